"""The call `trace`: which row of a source a row of an output is, and where rows of sources went.

Not here: reading row maps (`rust/parquet/src/row_map`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex

from plait import _native
from plait._checks import Path, Paths, StorageOptions, _count, _path, _paths
from plait._native_call import _call
from plait._report import _PrintedReport, _Report
from plait._text import Page, Table, counted
from plait.errors import InvalidArgument

__all__ = ["TraceReport", "TracedRow", "trace"]


@dataclass(frozen=True)
class TracedRow(_Report):
    """A row before and after a merge.

    Attributes:
        source: The source.
        source_row: The row in the source, from 0; deleted rows of the file count.
        fate: `"kept"`, `"dropped"` by the merge, or `"deleted"` before it.
        output: The output whose row map tells of it.
        output_row: The row in the output, from 0; `None` if it is not there.
    """

    source: str
    source_row: int
    fate: str
    output: str
    output_row: int | None


@dataclass(frozen=True)
class TraceReport(_PrintedReport):
    """What row maps say of one row.

    Attributes:
        file: The file that was asked for.
        row: The row.
        found: The row before and after each merge; of the row of an output, one.
    """

    file: str
    row: int
    found: tuple[TracedRow, ...]

    def _page(self) -> Page:
        rows = tuple(
            (one.source, one.source_row, one.fate, one.output, one.output_row) for one in self.found
        )
        merges = counted(len(self.found), "merge")
        return Page(
            f"Row {self.row:,} of {self.file} in {merges}",
            (Table(("source", "row", "fate", "output", "row"), rows),),
        )


def trace(
    file: Path,
    row: SupportsIndex,
    *,
    to: Paths | None = None,
    storage_options: StorageOptions | None = None,
) -> TraceReport:
    """Looks a row up in the row maps that merges with `row_map=True` write.

    Without `to`, `file` is an output: the report says which row of which source its row is. With
    `to`, `file` is a source of merges, which may be gone by now: the report says which row of which
    output its row became, or that it was dropped or deleted.

    Args:
        file: An output, or with `to` a source.
        row: The row, from 0.
        to: Outputs, or folders with outputs, where a row of a source is looked for.
        storage_options: See `merge`.

    Returns:
        The row before and after a merge; with `to`, after each merge that read it.

    Raises:
        SourceNotFound: The output has no row map, or no row map in `to` is of the source.
        InvalidArgument: The file has no such row.
        CorruptSource: A row map is damaged, or belongs to another output.
        PlaitError: The files cannot be read, see `plait.errors`.

    Example:
        >>> import plait, pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 3]}), "a.parquet")
        >>> pq.write_table(pa.table({"k": [2, 4]}), "b.parquet")
        >>> _ = plait.merge(["a.parquet", "b.parquet"], "m.parquet", sort_by="k", row_map=True)
        >>> trace("m.parquet", 3).found[0].source_row
        1
        >>> trace("a.parquet", 1, to="m.parquet").found[0].output_row
        2
    """
    number = _count(row, "row")
    if number is None:
        raise InvalidArgument.of("`row` is missing", hint="rows are counted from 0")
    options = {
        "file": _path(file, "file"),
        "row": number,
        "to": None if to is None else _paths(to, "to"),
    }
    return TraceReport.from_dict(_call(_native.trace, options, storage_options, None))
