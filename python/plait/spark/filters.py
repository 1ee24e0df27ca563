"""Filters of Spark as conditions of `plait.read`: what a query can skip without reading it.

    EqualTo(("name",), "cpu"), GreaterThan(("ts",), 7)  ──▶  "name" = 'cpu' AND "ts" > 7

Invariants: the conditions hold for every row for which the filters hold, perhaps for others; Spark
applies all filters again. A value that a column cannot hold makes no condition.
Not here: which rows and pages conditions leave (the engine).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

from plait._where_text import literal, quoted

_OPERATORS: tuple[tuple[type[ds.Filter], str], ...] = (
    (ds.EqualTo, "="),
    (ds.EqualNullSafe, "="),
    (ds.LessThan, "<"),
    (ds.LessThanOrEqual, "<="),
    (ds.GreaterThan, ">"),
    (ds.GreaterThanOrEqual, ">="),
)
_MICROSECOND = dt.timedelta(microseconds=1)
_MOST_DIGITS = 38


def conditions(filters: Iterable[ds.Filter], schema: pa.Schema) -> list[str]:
    """What of some filters can be left to the engine.

    Args:
        filters: The filters.
        schema: The columns as files have them, by the names that Spark has for them.

    Example:
        >>> conditions([ds.LessThan(("ts",), 7)], pa.schema({"ts": pa.int64()}))
        ['"ts" < 7']
    """
    found = []
    for filter_ in filters:
        path = tuple(getattr(filter_, "attribute", ()))
        type_ = _type_at(path, schema)
        if type_ is not None:
            found += _conditions(filter_, quoted(*path), type_)
    return found


def _conditions(filter_: ds.Filter, column: str, type_: pa.DataType) -> list[str]:
    value = getattr(filter_, "value", None)
    kind = type(filter_)
    if kind is ds.IsNull or (kind is ds.EqualNullSafe and value is None):
        return [f"{column} IS NULL"]
    if kind is ds.IsNotNull:
        return [f"{column} IS NOT NULL"]
    if kind is ds.StringStartsWith:
        is_text = any(f(type_) for f in (pa.types.is_string, pa.types.is_large_string))
        if not is_text or not isinstance(value, str) or set(value) & set("%_\\"):
            return []
        return [f"{column} LIKE {literal(value + '%')}"]
    if kind is ds.In:
        # Null is equal to nothing.
        values = [v for v in value or () if v is not None]
        texts = [_value(v, type_) for v in values]
        known = bool(texts) and None not in texts and not _is_fine(type_)
        return [f"{column} IN ({', '.join(map(str, texts))})"] if known else []
    operator = next((sign for of, sign in _OPERATORS if kind is of), None)
    if operator is None or value is None:
        return []
    if _is_fine(type_):
        return _around(column, operator, value, type_)
    text = _value(value, type_)
    return [] if text is None else [f"{column} {operator} {text}"]


def _around(column: str, operator: str, value: Any, type_: pa.DataType) -> list[str]:  # noqa: ANN401 - Spark's
    """A comparison of nanoseconds, of which Spark sees microseconds, a microsecond wider."""
    if not isinstance(value, dt.datetime):
        return []
    wider = []
    for sign, moved in ((">=", value - _MICROSECOND), ("<=", value + _MICROSECOND)):
        if operator == "=" or operator[0] == sign[0]:
            text = _value(moved, type_)
            if text is None:
                return []
            wider.append(f"{column} {sign} {text}")
    return wider


def _value(value: Any, type_: pa.DataType) -> str | None:  # noqa: ANN401 - Spark's
    """A value as text; `None` where a column of the type cannot have just this one."""
    t = pa.types
    if t.is_timestamp(type_) and isinstance(value, dt.datetime):
        if type_.tz is None and value.tzinfo is not None:
            # Timestamps of twelve bytes are moments, and have no zone in Arrow.
            value = value.astimezone(dt.timezone.utc).replace(tzinfo=None)
        elif type_.tz is not None and value.tzinfo is None:
            return None
    if t.is_integer(type_) and isinstance(value, Decimal) and value == int(value):
        # Spark holds 64 unsigned bits as a decimal.
        value = int(value)
    try:
        back = pa.scalar(value, type_).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if back != value and not (back != back and value != value):  # noqa: PLR0124 - NaN
        return None
    return format(value, "f") if isinstance(value, Decimal) else literal(value)


def _is_fine(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "ns")


def _type_at(path: Sequence[str], schema: pa.Schema) -> pa.DataType | None:
    """The type of a leaf whose values look the same to Spark; `None` for others."""
    fields: Any = schema
    if not path:
        return None
    for name in path:
        if isinstance(fields, pa.DataType) and not pa.types.is_struct(fields):
            return None
        index = fields.get_field_index(name)
        if index < 0:
            return None
        fields = fields.field(index).type
    if pa.types.is_dictionary(fields):
        fields = fields.value_type
    t = pa.types
    same = (
        *(t.is_boolean, t.is_integer, t.is_float32, t.is_float64, t.is_date32, t.is_timestamp),
        *(t.is_string, t.is_large_string),
    )
    is_same = any(is_(fields) for is_ in same)
    return fields if is_same or (t.is_decimal(fields) and _fits(fields)) else None


def _fits(type_: pa.DataType) -> bool:
    # Others are text in Spark.
    return bool(0 <= type_.scale <= type_.precision <= _MOST_DIGITS)
