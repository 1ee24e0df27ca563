"""Expressions of PyArrow as conditions in the engine's text form.

PyArrow shows its expressions as text and tells whether two are equal: the text is read, built
again, and compared. What is not equal is refused, so that text that reads in two ways does no harm.
Not here: expressions of Polars (`_where`).
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

from plait._where_text import literal, quoted, unsupported

_PART = re.compile(r"\((?P<name>.+?) (?P<sign><=|>=|==|!=|<|>) (?P<value>.+)\)", re.DOTALL)
_CALL = re.compile(r"(?P<call>is_null|is_valid|is_in|starts_with)\((?P<inside>.*)\)", re.DOTALL)
_SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_UNITS = ("s", "ms", "us", "ns")
_MICROSECOND_DIGITS = 6

# Conditions as text, each with the expression it was read from.
_Readings = Iterator[tuple[str, Any]]


def of_pyarrow(expression: Any) -> list[str]:  # noqa: ANN401 - expressions of PyArrow
    """The conditions that, built again, are equal to the expression.

    Args:
        expression: A `pyarrow.compute.Expression`.

    Raises:
        Unsupported: There are none.
    """
    choices = [list(_readings(part)) for part in _parts(str(expression))]
    for readings in itertools.islice(itertools.product(*choices), 4096):
        built = None
        for _, made in readings:
            built = made if built is None else built & made
        if built is not None and built.equals(expression):
            return [text for text, _ in readings]
    raise unsupported(expression)


def _parts(text: str) -> list[str]:
    """The parts of `((a and b) and c)`."""
    if text.startswith("(") and text.endswith(")"):
        depth, in_quotes, escaped = 0, False, False
        for at, letter in enumerate(text):
            if in_quotes:
                in_quotes = letter != '"' or escaped
                escaped = letter == "\\" and not escaped
                continue
            in_quotes = letter == '"'
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if depth == 1 and text.startswith(" and ", at):
                return [*_parts(text[1:at]), *_parts(text[at + 5 : -1])]
    return [text]


def _readings(part: str) -> _Readings:
    import pyarrow.compute as pc  # noqa: PLC0415 - the expression is one of PyArrow

    if found := _PART.fullmatch(part):
        sign = found["sign"]
        for path in _paths(found["name"]):
            for value in _values(found["value"]):
                text = literal(value.as_py())
                if text is not None:
                    made = _SIGNS[sign](pc.field(*path), value)
                    yield f"{quoted(*path)} {'=' if sign == '==' else sign} {text}", made
    if found := _CALL.fullmatch(part):
        name, _, options = found["inside"].partition(", {")
        for path in _paths(name):
            yield from _CALLS[found["call"]](quoted(*path), pc.field(*path), options)


def _is_null(column: str, field: Any, _options: str) -> _Readings:  # noqa: ANN401 - of PyArrow
    yield f"{column} IS NULL", field.is_null()


def _is_valid(column: str, field: Any, _options: str) -> _Readings:  # noqa: ANN401 - of PyArrow
    yield f"{column} IS NOT NULL", field.is_valid()


def _starts_with(column: str, field: Any, options: str) -> _Readings:  # noqa: ANN401 - of PyArrow
    import pyarrow.compute as pc  # noqa: PLC0415 - the expression is one of PyArrow

    prefix = re.match(r'pattern="(.*)", ignore_case=false', options, re.DOTALL)
    if prefix and not set(prefix[1]) & set('%_\\"'):
        yield f"{column} LIKE {literal(prefix[1] + '%')}", pc.starts_with(field, prefix[1])


def _is_in(column: str, field: Any, options: str) -> _Readings:  # noqa: ANN401 - of PyArrow
    import pyarrow as pa  # noqa: PLC0415 - the expression is one of PyArrow

    found = re.match(r"value_set=(\w+):\[(.*)\], null_matching", options, re.DOTALL)
    items = found and [line.strip().removesuffix(",") for line in found[2].strip().splitlines()]
    if not items or "..." in items or "null" in items:
        return
    # Of each item the values that PyArrow may show so, by their types.
    readings = [{value.type: value.as_py() for value in _values(item)} for item in items]
    for type_ in readings[0]:
        if not all(type_ in reading for reading in readings):
            continue
        values = [reading[type_] for reading in readings]
        texts = [literal(value) for value in values]
        if None not in texts:
            made = field.isin(pa.array(values, type_))
            yield f"{column} IN ({', '.join(map(str, texts))})", made


_CALLS: dict[str, Callable[[str, Any, str], _Readings]] = {
    "is_null": _is_null,
    "is_valid": _is_valid,
    "starts_with": _starts_with,
    "is_in": _is_in,
}


def _paths(name: str) -> Iterator[tuple[str, ...]]:
    yield (name,)
    if name.startswith("FieldRef.Nested("):
        yield tuple(re.findall(r"FieldRef\.Name\((.*?)\)(?= FieldRef|\))", name))


def _values(text: str) -> Iterator[Any]:
    """The scalars that PyArrow shows so."""
    import pyarrow as pa  # noqa: PLC0415 - the expression is one of PyArrow

    if text.startswith('"'):
        yield from (pa.scalar(value) for value in _unquoted(text))
    elif text in ("true", "false"):
        yield pa.scalar(text == "true")
    elif re.fullmatch(r"-?\d+", text):
        yield from _numbers(int(text))
    elif re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?|-?inf|nan", text):
        yield pa.scalar(float(text))
    elif re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        yield pa.scalar(dt.date.fromisoformat(text))
    elif found := re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)(Z?)", text):
        yield from _moments(found[1], "UTC" if found[2] else None)


def _unquoted(text: str) -> Iterator[str]:
    try:
        yield json.loads(text)
    except ValueError:
        return


def _numbers(number: int) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 - the expression is one of PyArrow

    for bits in (64, 32, 16, 8):
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            yield pa.scalar(number, getattr(pa, f"int{bits}")())
    yield pa.scalar(float(number))
    for bits in (64, 32, 16, 8):
        if 0 <= number < 1 << bits:
            yield pa.scalar(number, getattr(pa, f"uint{bits}")())


def _moments(text: str, zone: str | None) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 - the expression is one of PyArrow

    if len(text.partition(".")[2]) > _MICROSECOND_DIGITS:
        return
    moment = dt.datetime.fromisoformat(text)
    if zone is not None:
        moment = moment.replace(tzinfo=dt.timezone.utc)
    for unit in _UNITS:
        yield pa.scalar(moment, pa.timestamp(unit, zone))
