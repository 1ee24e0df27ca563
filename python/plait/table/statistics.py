"""Statistics of an output as the Delta log has them, from the bounds in its footer.

footer: min 2020-01-01 01:02:03.456789Z ──▶ "2020-01-01T01:02:03.456Z"

Invariant: a bound may be wider than the values and never narrower; what is not known is left out.
Bounds that a footer does not have, and those of floats, are those of the files that were replaced,
as the log has them: footers leave NaN out, which is greater than all to some readers.
Not here: Iceberg, whose library reads footers itself. Source: "Per-file Statistics" of the Delta
transaction log protocol.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from plait._api import inspect
from plait._text import Value
from plait.inspected import ColumnReport
from plait.report import FileReport

__all__ = ["statistics"]

# So many leading columns have statistics unless the table says otherwise.
_COLUMNS = 32
# Longer text is cut: statistics are in every reader's memory.
_LETTERS_MAX = 32
_HEX = re.compile(r"0x[0-9a-f]+…?")
# As reports show them; no calendar of Python has the year 0.
_DATE = re.compile(r"(?!0000)\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(rf"({_DATE.pattern} \d\d:\d\d:\d\d)(?:\.(\d{{1,9}}))?Z?")
_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL_MAX = 1 << 53
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - zones are written by hand
_SECOND = dt.timedelta(seconds=1)
_NANOS_OF_SECOND, _NANOS_OF_MS = 10**9, 10**6
_LAST_LETTER = "\U0010ffff"


def statistics(
    path: str,
    schema: dict[str, Any],
    storage_options: object,
    settings: dict[str, str],
    logged: dict[str, tuple[Any, Any]],
) -> dict[str, Any]:
    """The statistics of a file.

    Args:
        path: The file.
        schema: The table's schema, as its JSON.
        storage_options: Settings of object stores.
        settings: The table's properties.
        logged: Bounds of the replaced files by dotted name, as delta-rs reads them.

    Returns:
        `numRecords`, `minValues`, `maxValues` and `nullCount`; nested as the columns are.
    """
    report = inspect(path, storage_options=storage_options)
    count = int(settings.get("delta.dataSkippingNumIndexedCols", _COLUMNS))
    named = settings.get("delta.dataSkippingStatsColumns")
    leaves = list(_leaves(schema["fields"], ()))
    if named:
        wanted = {name.strip(" `") for name in named.split(",")}
        leaves = [leaf for leaf in leaves if wanted & _prefixes(leaf[0])]
    elif count >= 0:
        leaves = leaves[:count]
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for names, kind in leaves:
        chunks = _chunks(report, ".".join(names))
        if not chunks:
            # Absent from the file: null in every row.
            _put(nulls, names, report.rows)
            continue
        counts = [chunk.null_count for chunk in chunks]
        if None not in counts:
            _put(nulls, names, sum(count for count in counts if count is not None))
        bounds = [
            (_value(c.min, kind, c, is_max=False), _value(c.max, kind, c, is_max=True))
            for c, group in zip(chunks, report.row_groups, strict=True)
            if c.null_count is None or c.null_count < group.rows
        ]
        if not bounds:
            continue
        lows, highs = zip(*bounds, strict=True)
        ends = (None, None) if None in (*lows, *highs) else (min(lows), max(highs))
        known = [_bound(end, kind) for end in ends]
        if None in known:
            known = [_relogged(value) for value in logged.get(".".join(names), (None, None))]
        if None not in known:
            _put(low, names, known[0])
            _put(high, names, known[1])
    return {
        "numRecords": report.rows,
        "minValues": low,
        "maxValues": high,
        "nullCount": nulls,
    }


def _leaves(
    fields: list[dict[str, Any]], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for field in fields:
        names, kind = (*above, field["name"]), field["type"]
        if isinstance(kind, str):
            yield names, kind
        elif kind["type"] == "struct":
            yield from _leaves(kind["fields"], names)


def _prefixes(names: tuple[str, ...]) -> set[str]:
    return {".".join(names[: i + 1]) for i in range(len(names))}


def _chunks(report: FileReport, path: str) -> list[ColumnReport]:
    return [c for group in report.row_groups for c in group.columns if c.path == path]


def _put(side: dict[str, Any], names: tuple[str, ...], value: object) -> None:
    for name in names[:-1]:
        side = side.setdefault(name, {})
    side[names[-1]] = value


def _value(shown: Value, kind: str, chunk: ColumnReport, *, is_max: bool) -> Any:  # noqa: ANN401
    """A bound as something that compares; `None` if it is not known."""
    value: Any = None
    if shown is None or chunk.physical_type == "INT96":
        return None
    text = str(shown)
    if kind in _WHOLE or kind == "boolean":
        value = shown if isinstance(shown, int) else None
    elif kind == "date":
        value = text if _DATE.fullmatch(text) else None
    elif kind.startswith("decimal"):
        if chunk.physical_type in ("INT32", "INT64"):
            value = Decimal(text)
    elif kind.startswith("timestamp"):
        found = _TIMESTAMP.fullmatch(text)
        if found:
            # Delta has milliseconds.
            seconds = (dt.datetime.fromisoformat(found[1]) - _EPOCH) // _SECOND
            nanos = seconds * _NANOS_OF_SECOND + int((found[2] or "").ljust(9, "0"))
            value = -(-nanos // _NANOS_OF_MS) if is_max else nanos // _NANOS_OF_MS
    # Bounds that others cut inside of a letter are no text, and are shown as hexadecimal digits.
    elif kind == "string" and not _HEX.fullmatch(text):
        is_cut = len(text) > _LETTERS_MAX
        value = text[:_LETTERS_MAX] + (_LAST_LETTER if is_cut and is_max else "")
    return value


def _bound(value: Any, kind: str) -> Any:  # noqa: ANN401 - any JSON
    """A bound from a footer as the log has it; `None` if it cannot."""
    if value is None:
        return None
    if kind.startswith("timestamp"):
        text = (_EPOCH + dt.timedelta(milliseconds=value)).isoformat("T", "milliseconds")
        return text + ("Z" if kind == "timestamp" else "")
    if isinstance(value, Decimal):
        return float(value) if Decimal(float(value)) == value else None
    return value


def _relogged(value: object) -> object:
    """A bound from the log as the log has it; `None` if it cannot."""
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat("T", "milliseconds")
        return text if value.tzinfo is None else text + "Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        # delta-rs cuts wide ones to 64 bits.
        return float(value) if abs(value) < _DECIMAL_MAX else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float) else None
