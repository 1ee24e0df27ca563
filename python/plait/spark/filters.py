"""Filters on key columns as ranges of key bytes: what a query can skip without reading it.

    sort_by "name, -ts"    name = 'cpu' and ts >= 7  ──▶  [ 01 cpu 00 00 │ 01 …,  successor )

Equality on leading columns, then a comparison of the next one, is one range; `in` gives several.

Invariants: a range holds every row that the filters keep, and may hold others, unless `ranges` is
`exact`: then a filter that is no range is refused.
Not here: the bytes of a value (`keys`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from plait.errors import InvalidArgument
from plait.spark.keys import KeyColumn, column_bytes, sort_path, successor

Range = tuple[bytes | None, bytes | None]
"""Keys from the first, before the second; `None` is no bound."""

EVERYTHING: tuple[Range, ...] = ((None, None),)


@dataclass(frozen=True)
class Condition:
    """One comparison of a column: `=`, `<`, `<=`, `>`, `>=`, `in`, `begins`, `null`, `not null`."""

    path: tuple[str, ...]
    operator: str
    value: Any = None


_CONDITION = re.compile(
    r"""\s*(?P<path>(?:"(?:[^"]|"")*"|[^\s,".<>=]+)(?:\.(?:"(?:[^"]|"")*"|[^\s,".<>=]+))*)
    \s*(?P<operator><=|>=|<|>|==?)\s*
    (?P<value>'(?:[^']|'')*'|[^\s']+)\s*(?:\band\b|$)""",
    re.VERBOSE | re.IGNORECASE,
)


def parse(where: str) -> list[Condition]:
    """The conditions of a text such as `"name = 'cpu' and ts >= 100"`.

    Raises:
        InvalidArgument: The text is not comparisons joined by `and`.

    Example:
        >>> parse("name = 'cpu'")
        [Condition(path=('name',), operator='=', value='cpu')]
    """
    conditions = []
    position = 0
    while position < len(where.rstrip()):
        match = _CONDITION.match(where, position)
        if match is None:
            raise InvalidArgument.of(
                "`where` cannot be read",
                got=f"`{where[position:]}`",
                hint="write comparisons of key columns: \"name = 'cpu' and ts >= 100\"",
            )
        value = match["value"]
        if value.startswith("'"):
            value = value[1:-1].replace("''", "'")
        operator = match["operator"].replace("==", "=")
        conditions.append(Condition(sort_path(match["path"]), operator, value))
        position = match.end()
    return conditions


def ranges(
    columns: Sequence[KeyColumn], conditions: Iterable[Condition], *, exact: bool = False
) -> tuple[Range, ...]:
    """The ranges of keys that rows can have for which all conditions hold, in order.

    Args:
        columns: The key columns.
        conditions: What holds for the rows.
        exact: Whether the rows of the ranges must be those rows and no others. Values are texts
            then, and are read as the column's type.

    Returns:
        Ranges that do not overlap; none where no row can be.

    Raises:
        InvalidArgument: `exact`, and a condition does not make a range or its value no sense.
    """
    left = list(conditions)
    prefixes: list[bytes] = [b""]
    found: list[Range] | None = None
    for column in columns:
        mine = [c for c in left if c.path == column.path]
        left = [c for c in left if c.path != column.path]
        sets = [values for c in mine if (values := _values(column, c, exact=exact)) is not None]
        if sets:
            kept = set.intersection(*map(set, sets))
            prefixes = sorted(prefix + value for prefix in prefixes for value in kept)
            others = [c for c in mine if c.operator not in ("=", "in", "null")]
            if exact and (others or len(kept) > 1):
                left += others
            if len(kept) == 1:
                continue
            break
        bounds = [b for c in mine if (b := _bounds(column, c, exact=exact)) is not None]
        if bounds:
            made = (_all_of(prefix, bounds) for prefix in prefixes)
            found = [range_ for range_ in made if range_ is not None]
        break
    if exact and left:
        raise InvalidArgument.of(
            "`where` is no range of keys",
            got=f"a condition on `{'.'.join(left[0].path)}`",
            hint="compare the first key columns with `=` and the next one with anything; "
            "for other filters call .where() on the frame",
        )
    if found is not None:
        return tuple(found)
    return tuple((prefix or None, successor(prefix)) for prefix in prefixes)


def cut(have: Sequence[Range], low: bytes | None, high: bytes | None) -> tuple[Range, ...]:
    """The parts of some ranges between `low` and `high`."""
    parts = (_both(range_, (low, high)) for range_ in have)
    return tuple(part for part in parts if part is not None)


def _both(a: Range, b: Range) -> Range | None:
    lows = [low for low in (a[0], b[0]) if low is not None]
    highs = [high for high in (a[1], b[1]) if high is not None]
    low, high = max(lows, default=None), min(highs, default=None)
    return None if low is not None and high is not None and low >= high else (low, high)


def _all_of(prefix: bytes, bounds: Iterable[tuple[bytes, bytes]]) -> Range | None:
    range_: Range | None = (prefix or None, successor(prefix))
    for low, high in bounds:
        if range_ is None:
            return None
        range_ = _both(range_, (prefix + low, prefix + high))
    return range_


def _values(column: KeyColumn, condition: Condition, *, exact: bool) -> list[bytes] | None:
    """The values a column can have, as bytes, where these are few."""
    if condition.operator == "null":
        return [column_bytes(column, pa.scalar(None, column.type))]
    if condition.operator not in ("=", "in"):
        return None
    values = condition.value if condition.operator == "in" else [condition.value]
    found = [_encoded(column, value, exact=exact) for value in values]
    known = [value for value in found if value is not None]
    return known if len(known) == len(found) else None


def _bounds(column: KeyColumn, condition: Condition, *, exact: bool) -> tuple[bytes, bytes] | None:
    """The bytes of a column between which a comparison holds."""
    start, end = b"\1", b"\2"  # every value; nulls are before or behind
    if condition.operator == "not null":
        return start, end
    if condition.operator == "begins":
        if not pa.types.is_string(column.type):
            return None
        # Without the two bytes that end a string.
        prefix = column_bytes(column, pa.scalar(condition.value, column.type))[:-2]
        return prefix, successor(prefix) or end
    value = _encoded(column, condition.value, exact=exact)
    if value is None:
        return None
    behind = successor(value) or end
    upwards = condition.operator.startswith(">") != column.descending
    if condition.operator in ("<", ">"):
        return (behind, end) if upwards else (start, value)
    return (value, end) if upwards else (start, behind)


def _encoded(column: KeyColumn, value: object, *, exact: bool) -> bytes | None:
    """A value as a column has it; `None` where it cannot have just this one."""
    type_ = column.type
    try:
        if exact:
            scalar = pa.scalar(value, pa.string()).cast(type_)
        else:
            if value is None or (pa.types.is_temporal(type_) and _is_fine(type_)):
                return None
            scalar = pa.scalar(int(value) if _is_whole(type_, value) else value, type_)  # type: ignore[call-overload]
            back = scalar.as_py()
            if back != value and not (back != back and value != value):  # noqa: PLR0124 - NaN
                return None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
        if exact:
            raise InvalidArgument.of(
                f"`where` compares `{'.'.join(column.path)}` with what is no `{type_}`",
                got=f"`{value}`",
            ) from cause
        return None
    return column_bytes(column, scalar)


def _is_whole(type_: pa.DataType, value: object) -> bool:
    # Spark holds 64 unsigned bits as a decimal.
    return pa.types.is_uint64(type_) and not isinstance(value, bool)


def _is_fine(type_: pa.DataType) -> bool:
    # Spark sees microseconds: equal there may be different here. Times of day are numbers there.
    return pa.types.is_time(type_) or (not pa.types.is_date(type_) and type_.unit == "ns")
