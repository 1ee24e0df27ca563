"""What `inspect` reports of a file: row groups, column chunks, and the values its footer lists.

FileReport ── row_groups: RowGroupReport ── columns: ColumnReport
    └──────── zone_map: ZoneColumn, by path
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from plait import _layout, _picture
from plait._report import _PrintedReport, _Report, _yes
from plait._text import Page, Table, Value, counted, human_bytes, human_key, human_value

__all__ = ["ColumnReport", "FileReport", "RowGroupReport", "ZoneColumn"]


@dataclass(frozen=True)
class ColumnReport(_Report):
    """One column chunk: its types, encodings, sizes in bytes, pages and statistics.

    `data_type` is the type as PyArrow prints it, and `logical_type` the annotation in the file, if
    it has one. `min` and `max` are numbers and booleans as such, and text otherwise:
    `"2024-05-01 13:00:00.5"`, `"12.30"` for a decimal, `"0x00ff"` for binary.
    """

    path: str
    data_type: str
    physical_type: str
    logical_type: str | None
    codec: str
    encodings: tuple[str, ...]
    bytes: int
    compressed_bytes: int
    pages: int | None = None
    page_bytes_max: int | None = None
    page_rows_max: int | None = None
    dictionary: bool = False
    dictionary_bytes: int | None = None
    null_count: int | None = None
    min: Value = None
    max: Value = None
    bloom_filter: bool = False


@dataclass(frozen=True)
class ZoneColumn(_Report):
    """The values of one column of a file, if they are few; see `plait.prune`.

    Attributes:
        type: `"text"`, `"bytes"` (as `0x00ff`), `"int"`, `"date"` (as `2024-05-01`) or `"bool"`.
        nulls: Whether there are nulls.
        values: All distinct values, or `None` if they are many.
        prefix_length: Characters of text or bytes of each value that are in `prefixes`.
        prefixes: What the values begin with, all of it, where the values are many.
    """

    type: str
    nulls: bool
    values: tuple[Any, ...] | None = None
    prefix_length: int | None = None
    prefixes: tuple[Any, ...] | None = None


def zones_as_shown(zones: dict[str, Any] | None) -> dict[str, Any] | None:
    """The zone map of a footer with days and bytes as people read them."""
    for zone in (zones or {}).values():
        for values in ("values", "prefixes"):
            if zone.get(values) is not None and zone.get("type") in _SHOWN:
                zone[values] = [*map(_SHOWN[zone["type"]], zone[values])]
    return zones


def shown_bytes(value: bytes) -> str:
    """Bytes as people read them: `0x00ff`."""
    return f"0x{value.hex()}"


def _shown_day(days: Any) -> str:  # noqa: ANN401 - what a footer has
    try:
        return dt.date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError, TypeError):
        return str(days)  # outside of every calendar


def _shown_base64(text: Any) -> str:  # noqa: ANN401 - what a footer has
    try:
        return shown_bytes(base64.b64decode(text))
    except (ValueError, TypeError):
        return str(text)


_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
# Values of zone maps that footers write in another way than people.
_SHOWN: dict[str, Callable[[Any], str]] = {
    "bytes": _shown_base64,
    "date": _shown_day,
}


@dataclass(frozen=True)
class RowGroupReport(_Report):
    """One row group: rows, sizes in bytes, columns; first and last key if there is an order."""

    rows: int
    bytes: int
    compressed_bytes: int
    columns: tuple[ColumnReport, ...]
    key_min: tuple[Value, ...] = ()
    key_max: tuple[Value, ...] = ()


@dataclass(frozen=True)
class FileReport(_PrintedReport):
    """What a file says about itself.

    Attributes:
        path: Where it is.
        bytes: Its size.
        rows: Number of rows.
        created_by: The program that wrote it.
        sort_by: The order of the keys: the one that was given, or else the declared one, if any.
        key_min: First key, one value per column of that order, `None` for a null.
        key_max: Last key.
        metadata: Footer entries; long ones are cut.
        schema: The schema as text.
        row_groups: One entry per row group.
        sorted: Whether the rows are in that order, with `check_order`.
        unsorted_row: The first row that is not.
        zone_map: Columns whose values the footer lists, by path; `None` if Plait did not write it.
        declared: The order that the footer declares, if any.
    """

    path: str
    bytes: int
    rows: int
    created_by: str | None
    sort_by: str | None
    key_min: tuple[Value, ...]
    key_max: tuple[Value, ...]
    metadata: dict[str, str]
    schema: str
    row_groups: tuple[RowGroupReport, ...]
    sorted: bool | None = None
    unsorted_row: int | None = None
    zone_map: dict[str, ZoneColumn] | None = None
    declared: str | None = None

    def _page(self) -> Page:
        facts = [
            ("created by", self.created_by or "unknown"),
            *self._order(),
        ]
        if self.key_min and self.key_max:
            facts += [("first key", human_key(self.key_min)), ("last key", human_key(self.key_max))]
        facts += [(f"metadata {key}", _shortened(text)) for key, text in self.metadata.items()]
        groups = Table(
            ("group", "rows", "bytes", "stored", "first key", "last key"),
            tuple(
                (
                    index,
                    group.rows,
                    group.bytes,
                    group.compressed_bytes,
                    human_key(group.key_min),
                    human_key(group.key_max),
                )
                for index, group in enumerate(self.row_groups)
            ),
        )
        chunks = [(i, column) for i, g in enumerate(self.row_groups) for column in g.columns]
        values = Table(
            ("group", "column", "type", "nulls", "least", "greatest"),
            tuple(
                (
                    index,
                    column.path,
                    column.data_type,
                    "" if column.null_count is None else f"{column.null_count:,}",
                    *(
                        "" if bound is None else human_value(bound)
                        for bound in (column.min, column.max)
                    ),
                )
                for index, column in chunks
            ),
        )
        stored = Table(
            ("group", "column", "codec", "encodings", "bytes", "stored", "dictionary", *_PAGES),
            tuple(
                (
                    index,
                    column.path,
                    column.codec,
                    " ".join(column.encodings),
                    column.bytes,
                    column.compressed_bytes,
                    _dictionary(column),
                    column.pages,
                    column.page_rows_max,
                )
                for index, column in chunks
            ),
        )
        tables = (groups, values.without_empty(), stored.without_empty())
        held = f"{counted(self.rows, 'row')} in {counted(len(self.row_groups), 'row group')}"
        return Page(
            title=f"{self.path}: {held}, {human_bytes(self.bytes)}",
            svg=self._picture().svg(),
            tables=tables if self.row_groups else (),
            facts=tuple(facts),
            remarks=(self.schema.rstrip(),),
            columns=_COLUMNS_MAX,
        )

    def _order(self) -> list[tuple[str, str]]:
        """The order, and whether it is declared, was checked, or neither."""
        if self.sort_by is None:
            return [("sorted by", "not declared in the footer")]
        is_declared = self.sort_by == self.declared
        origin = "declared in the footer" if is_declared else "given"
        footer = "" if is_declared else f"; the footer declares {self.declared or 'none'}"
        if self.sorted is None:
            name, checked = "sorted by" if is_declared else "keys by", "not checked by reading"
        elif self.sorted:
            name, checked = "sorted by", "checked by reading"
        else:
            name, checked = "not sorted by", f"row {self.unsorted_row or 0:,} goes back"
        return [(name, self.sort_by), ("order", f"{origin}, {checked}{footer}")]

    def _picture(self) -> _picture.Picture:
        """The row groups side by side, with the keys at which they begin, and the last."""
        ends = [0, *accumulate(group.rows for group in self.row_groups)]
        bars = [
            _layout.Bar(f"row group {i}", _picture.SOURCE, *place, group.rows)
            for i, (group, place) in enumerate(zip(self.row_groups, pairwise(ends), strict=True))
        ]
        groups = list(zip(bars, self.row_groups, strict=True))
        marks = [_layout.Mark(bar.start, group.key_min) for bar, group in groups if group.key_min]
        if groups and groups[-1][1].key_max:
            marks.append(_layout.Mark(ends[-1], groups[-1][1].key_max))
        placed = _layout.Placed((), tuple(bars), tuple(marks), (), ())
        return _picture.Picture(self.path, self.sort_by or "", placed, _ROW_GROUPS)


_COLUMNS_MAX = 100
_PAGES = ("pages", "rows a page")
_ROW_GROUPS = ("", "In the file", "row group")
_SHOWN_CHARS_MAX = 60


def _shortened(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= _SHOWN_CHARS_MAX else line[: _SHOWN_CHARS_MAX - 3] + "..."


def _dictionary(column: ColumnReport) -> str:
    if column.dictionary_bytes is not None:
        return human_bytes(column.dictionary_bytes)
    return _yes(column.dictionary)
