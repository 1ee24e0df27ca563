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

from plait._now import at_moment
from plait._where_arrow import of_pyarrow
from plait._where_text import literal, quoted, unsupported
from plait.errors import InvalidArgument, Unsupported

# Text, an expression of Polars or PyArrow, or none.
Condition = Any

_COMPARISONS = {"Lt": "<", "LtEq": "<=", "Eq": "=", "NotEq": "!=", "GtEq": ">=", "Gt": ">"}
# What a comparison is with its sides the other way around.
_TURNED = {"Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq", "NotEq": "NotEq", "GtEq": "LtEq", "Gt": "Lt"}
# What it is where it does not hold.
_OPPOSITE = {"Lt": "GtEq", "LtEq": "Gt", "Eq": "NotEq", "NotEq": "Eq", "GtEq": "Lt", "Gt": "LtEq"}
_BOUNDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


def where_text(where: Condition, now: float | None = None) -> str | None:
    r"""The condition as the engine reads it; `None` for no condition.

    Args:
        where: Text, an expression of Polars or of PyArrow, or `None`.
        now: The moment that `now()` means; by default that of the call.

    Raises:
        InvalidArgument: It is something else.
        Unsupported: The expression is no conjunction of conditions on single columns.

    Example:
        >>> import polars as pl
        >>> where_text((pl.col("k") > 5) & pl.col("s").is_in(["a", "it's"]))
        '"k" > 5 AND "s" IN (\'a\', \'it\'\'s\')'
    """
    if where is None or isinstance(where, str):
        return at_moment(where, now)
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


def pushed_down(expression: Any) -> tuple[list[str], bool]:  # noqa: ANN401 - Polars' own
    """What of a filter of Polars can be written, as conditions, and whether that is all of it."""
    found, is_all = [], True
    for part in _conjuncts(expression):
        try:
            found += _of_polars(part)
        except Unsupported:  # noqa: PERF203 - few conditions
            is_all = False
    return found, is_all


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


def _polars_condition(expression: Any, *, holds: bool = True) -> str:  # noqa: ANN401 - of Polars
    """A condition: that the expression is true, or that it is false."""
    form = _structure(expression)
    if not isinstance(form, dict):
        raise unsupported(expression)
    if _function(form).get("Boolean") == "Not":
        return _polars_condition(_operands(expression)[0], holds=not holds)
    flag = _polars_column(expression)
    if flag is not None:
        return f"{flag} = {str(holds).lower()}"
    operands = _operands(expression)
    comparison = form.get("BinaryExpr", {}).get("op")
    if comparison in _COMPARISONS and _polars_column(operands[0]) is None:
        operands, comparison = operands[::-1], _TURNED[comparison]
    column = _polars_column(operands[0]) if operands else None
    if column is None:
        raise unsupported(expression)
    values = [_polars_value(value) for value in operands[1:]]
    if comparison in _COMPARISONS:
        text = literal(values[0])
        if text is not None:
            sign = _COMPARISONS[comparison if holds else _OPPOSITE[comparison]]
            return f"{column} {sign} {text}"
    found = _polars_function(column, _function(form), values, holds=holds)
    if found is None:
        raise unsupported(expression)
    return found


def _function(form: dict[str, Any]) -> dict[str, Any]:
    function = form.get("Function", {}).get("function", {})
    return function if isinstance(function, dict) else {}


def _polars_function(
    column: str, function: dict[str, Any], values: list[Any], *, holds: bool
) -> str | None:
    """A call of Polars about one column; `None` for one that cannot be written."""
    kind = function.get("Boolean")
    if kind in ("IsNull", "IsNotNull"):
        return f"{column} IS {'' if (kind == 'IsNull') == holds else 'NOT '}NULL"
    if isinstance(kind, dict) and "IsIn" in kind and isinstance(values[0], list):
        texts = [literal(value) for value in values[0]]
        if texts and None not in texts and not kind["IsIn"].get("nulls_equal"):
            return f"{column} {'' if holds else 'NOT '}IN ({', '.join(map(str, texts))})"
    if not holds:
        return None
    prefix = values[0] if function.get("StringExpr") == "StartsWith" and values else None
    if isinstance(prefix, str) and not set(prefix) & set("%_\\"):
        return f"{column} LIKE {literal(prefix + '%')}"
    if isinstance(kind, dict) and "IsBetween" in kind:
        low, high = (literal(value) for value in values)
        signs = _BOUNDS.get(kind["IsBetween"].get("closed"))
        if low is not None and high is not None and signs is not None:
            return f"{column} {signs[0]} {low} AND {column} {signs[1]} {high}"
    return None


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
    is_list = value.dtype in (pl.List, pl.Array)
    items = value.explode() if is_list else value
    # Times of Python have no nanoseconds.
    if items.dtype == pl.Time:
        items = items.dt.to_string("%H:%M:%S%.9f")
    elif isinstance(items.dtype, pl.Datetime) and items.dtype.time_unit == "ns":
        items = items.cast(pl.String)
    return items.to_list() if is_list or len(value) != 1 else items.item()
