"""Conditions of `where`, as text or as expressions of Polars, in the engine's text form.

    pl.col("ts") >= datetime(2024, 5, 1)  ─▶  "ts" >= '2024-05-01 00:00:00'

Invariants: the text asks for the same rows, or there is an error: an expression that cannot be
written never becomes a read of everything.
Not here: the grammar of the text (`plait_core::predicate`); PyArrow (`_where_arrow`).
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from plait._where_arrow import of_pyarrow
from plait._where_text import literal, quoted, unsupported
from plait.errors import InvalidArgument, Unsupported

# Text, an expression of Polars or PyArrow, or none.
Condition = Any

_COMPARISONS = {"Lt": "<", "LtEq": "<=", "Eq": "=", "NotEq": "!=", "GtEq": ">=", "Gt": ">"}
_BOUNDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


def where_text(where: Condition) -> str | None:
    r"""The condition as the engine reads it; `None` for no condition.

    Args:
        where: Text, an expression of Polars or of PyArrow, or `None`.

    Raises:
        InvalidArgument: It is something else.
        Unsupported: The expression is no conjunction of conditions on single columns.

    Example:
        >>> import polars as pl
        >>> where_text((pl.col("k") > 5) & pl.col("s").is_in(["a", "it's"]))
        '"k" > 5 AND "s" IN (\'a\', \'it\'\'s\')'
    """
    if where is None or isinstance(where, str):
        return where
    polars, compute = sys.modules.get("polars"), sys.modules.get("pyarrow.compute")
    if polars is not None and isinstance(where, polars.Expr):
        return " AND ".join(_of_polars(where))
    if compute is not None and isinstance(where, compute.Expression):
        return " AND ".join(of_pyarrow(where))
    raise InvalidArgument.of(
        "`where` is not a condition",
        got=f"`{where!r}`",
        hint="give text, such as \"k >= 5 AND s = 'a'\", or an expression of Polars or PyArrow",
    )


def pushed_down(expression: Any) -> tuple[str | None, bool]:  # noqa: ANN401 - Polars' own
    """What of a filter of Polars can be written, and whether that is all of it."""
    found, is_all = [], True
    for part in _conjuncts(expression):
        try:
            found += _of_polars(part)
        except Unsupported:  # noqa: PERF203 - few conditions
            is_all = False
    return " AND ".join(found) or None, is_all


def _structure(expression: Any) -> Any:  # noqa: ANN401 - Polars' own form
    with warnings.catch_warnings():
        # The form may change between versions; what is not known in it is refused.
        warnings.simplefilter("ignore")
        return json.loads(expression.meta.serialize(format="json"))


def _operands(expression: Any) -> list[Any]:  # noqa: ANN401 - expressions of Polars
    return list(reversed(expression.meta.pop()))


def _conjuncts(expression: Any) -> Iterator[Any]:  # noqa: ANN401 - expressions of Polars
    form = _structure(expression)
    if isinstance(form, dict) and form.get("BinaryExpr", {}).get("op") in ("And", "LogicalAnd"):
        for part in _operands(expression):
            yield from _conjuncts(part)
    else:
        yield expression


def _of_polars(expression: Any) -> list[str]:  # noqa: ANN401 - expressions of Polars
    return [_polars_condition(part) for part in _conjuncts(expression)]


def _polars_condition(expression: Any) -> str:  # noqa: ANN401 - expressions of Polars
    form = _structure(expression)
    operands = _operands(expression)
    column = _polars_column(operands[0]) if operands else None
    if column is None or not isinstance(form, dict):
        raise unsupported(expression)
    values = [_polars_value(value) for value in operands[1:]]
    if "BinaryExpr" in form and form["BinaryExpr"].get("op") in _COMPARISONS:
        text = literal(values[0])
        if text is not None:
            return f"{column} {_COMPARISONS[form['BinaryExpr']['op']]} {text}"
    function = form.get("Function", {}).get("function", {})
    of_strings = function.get("StringExpr")
    prefix = values[0] if of_strings == "StartsWith" and values else None
    if isinstance(prefix, str) and not set(prefix) & set("%_\\"):
        return f"{column} LIKE {literal(prefix + '%')}"
    kind = function.get("Boolean")
    if kind in ("IsNull", "IsNotNull"):
        return f"{column} IS {'' if kind == 'IsNull' else 'NOT '}NULL"
    if isinstance(kind, dict) and "IsBetween" in kind:
        low, high = (literal(value) for value in values)
        signs = _BOUNDS.get(kind["IsBetween"].get("closed"))
        if low is not None and high is not None and signs is not None:
            return f"{column} {signs[0]} {low} AND {column} {signs[1]} {high}"
    if isinstance(kind, dict) and "IsIn" in kind and isinstance(values[0], list):
        texts = [literal(value) for value in values[0]]
        if texts and None not in texts and not kind["IsIn"].get("nulls_equal"):
            return f"{column} IN ({', '.join(map(str, texts))})"
    raise unsupported(expression)


def _polars_column(expression: Any) -> str | None:  # noqa: ANN401 - expressions of Polars
    form, path = _structure(expression), []
    while isinstance(form, dict) and "Function" in form:
        function = form["Function"]
        member = function.get("function", {}).get("StructExpr", {})
        if not isinstance(member, dict) or "FieldByName" not in member:
            return None
        path.append(member["FieldByName"])
        form = function["input"][0]
    if not isinstance(form, dict) or not isinstance(form.get("Column"), str):
        return None
    return quoted(form["Column"], *reversed(path))


def _polars_value(expression: Any) -> object:  # noqa: ANN401 - expressions of Polars
    form = _structure(expression)
    if not isinstance(form, dict) or "Literal" not in form:
        return None
    import polars as pl  # noqa: PLC0415 - the expression is one of Polars

    value = pl.select(expression).to_series()
    if len(value) != 1:
        return value.to_list()
    item = value.item()
    return item.to_list() if isinstance(item, pl.Series) else item
