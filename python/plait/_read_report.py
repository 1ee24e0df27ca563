"""What a sorted read may need and what it did, as values.

Not here: the reads (`_read`); how they are counted (the engine).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ReadPlan:
    """The files, row groups, pages and rows that a read may need, by footers and indexes.

    Attributes:
        sort_by: The order of the rows.
        files: Number of files.
        files_skipped: Files that cannot have a requested row.
        row_groups: Row groups of all files.
        row_groups_skipped: Row groups left out by bounds, bloom filters or the bounds of all pages.
        pages: Pages of the columns of conditions whose bounds were compared.
        pages_skipped: Pages of these that are left out.
        rows: Rows of all files.
        rows_left: Rows that may be requested.
        depth: Maximum number of files that may have rows of one key, by their footers.
        groups: Groups of files that are merged first, because too many files overlap for
            `memory_limit`; 0 if all files are merged at once. The rows of a group wait in a
            temporary file.
        window_bytes: Approximate size of a window of rows of one file.
        conditions_of_files: Conditions that are tested on the rows of files.
        conditions_of_rows: Conditions that are tested on merged rows, because rows of one key are
            dropped first.
    """

    sort_by: str
    files: int
    files_skipped: int
    row_groups: int
    row_groups_skipped: int
    pages: int
    pages_skipped: int
    rows: int
    rows_left: int
    depth: int
    groups: int
    window_bytes: int
    conditions_of_files: int
    conditions_of_rows: int

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        def of(skipped: int, all_: int) -> str:
            return f"{all_ - skipped:,} of {all_:,}"

        lines = [
            f"read in the order {self.sort_by or 'of the files'}",
            f"files       {of(self.files_skipped, self.files)}, at most {self.depth:,} at a key",
            f"row groups  {of(self.row_groups_skipped, self.row_groups)}",
        ]
        if self.pages:
            pages = of(self.pages_skipped, self.pages)
            lines.append(f"pages       {pages} with bounds, of the columns of conditions")
        lines.append(f"rows        {self.rows_left:,} of {self.rows:,}")
        if self.groups:
            lines.append(f"merged in two passes, {self.groups:,} groups of files first")
        if self.conditions_of_rows:
            lines.append(
                f"tested once merged: {self.conditions_of_rows:,} of "
                f"{self.conditions_of_rows + self.conditions_of_files:,} conditions"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class ReadStats:
    """What the last read did so far.

    Attributes:
        files_opened: Files whose rows were read.
        pages_read: Data pages that became Arrow arrays.
        reads: Number of reads of files, without those that opened them.
        bytes_read: Bytes of these reads, as stored.
        bytes_spilled: Bytes of decoded rows that waited in a temporary file.
        spill_error: Why no more rows were spilled, if the temporary file could not be written.
        rows_read: Rows that were tested or merged.
        rows_filtered: Rows for which a condition did not hold.
        rows: Rows that were returned.
        rows_dropped: Rows that were dropped, by reason, as in `MergeReport`.
    """

    files_opened: int
    pages_read: int
    reads: int
    bytes_read: int
    bytes_spilled: int
    spill_error: str | None
    rows_read: int
    rows_filtered: int
    rows: int
    rows_dropped: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class FilesLeft:
    """What may be read.

    Attributes:
        files: Files that may have requested rows.
        rows_of_files: All rows of these files.
        rows: Rows that may be requested.
        lacks_columns: Whether none of these files has some column, which others have.
    """

    files: tuple[str, ...]
    rows_of_files: int
    rows: int
    lacks_columns: bool
