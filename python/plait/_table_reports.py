"""What the calls of `plait.Table` return.

Not here: the calls (`_table`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plait._report import _files, _PrintedReport
from plait._text import Page, Table, counted, human_bytes
from plait.table.report import CompactReport

__all__ = [
    "AdoptReport",
    "AppendReport",
    "DataFile",
    "DeleteReport",
    "TableExpireReport",
    "TableVerifyReport",
    "Version",
]

# So many names are printed.
_NAMED_MAX = 20


@dataclass(frozen=True)
class AppendReport(_PrintedReport):
    """What an append committed.

    Attributes:
        table: The table.
        version: The version with the rows; `None` if there is no table, since no row came.
        rows: Rows that were added, after duplicates in the batch were dropped: none if the batch
            was there before.
        files: The files, by their names below the table.
        bytes: Sum of their sizes.
        compacted: What was merged with it, if `maintain` of the table says so.
        problem: Why that was not done, in words; the rows were appended all the same.
    """

    table: str
    version: int | None
    rows: int
    files: tuple[str, ...]
    bytes: int
    compacted: CompactReport | None = None
    problem: str | None = None

    def _page(self) -> Page:
        if not self.files:
            return Page(title=f"{self.table}: nothing to append, version {self.version}")
        what = f"{counted(self.rows, 'row')} in {_files(len(self.files))}"
        return Page(
            title=f"{self.table}: appended {what}, {human_bytes(self.bytes)}, "
            f"as version {self.version}",
            remarks=tuple(self._remarks()),
        )

    def _remarks(self) -> Iterator[str]:
        if self.compacted is not None:
            merged = sum(len(group.sources) for group in self.compacted.groups)
            yield f"merged {_files(merged)}: {_files(self.compacted.files or 0)} now"
        if self.problem is not None:
            yield f"not compacted: {self.problem}"


@dataclass(frozen=True)
class DeleteReport(_PrintedReport):
    """What a delete committed.

    Attributes:
        table: The table.
        version: The version without the rows.
        rows: Rows that were deleted.
        removed: Files that went as a whole.
        rewritten: Files of which some rows stayed, in new files.
    """

    table: str
    version: int
    rows: int
    removed: tuple[str, ...]
    rewritten: tuple[str, ...]

    def _page(self) -> Page:
        return Page(
            title=f"{self.table}: deleted {counted(self.rows, 'row')}: removed "
            f"{_files(len(self.removed))}, rewrote {_files(len(self.rewritten))}, "
            f"version {self.version}"
        )


@dataclass(frozen=True)
class TableExpireReport(_PrintedReport):
    """What was removed, or would be.

    Attributes:
        table: The table.
        dry_run: Whether nothing was done.
        removed: Data files that no version inside the retention needs.
        bytes: Sum of their sizes.
        log_removed: Files of the log that only older versions needed.
    """

    table: str
    dry_run: bool
    removed: tuple[str, ...]
    bytes: int
    log_removed: tuple[str, ...]

    def _page(self) -> Page:
        did = "would remove" if self.dry_run else "removed"
        return Page(
            title=f"{self.table}: {did} {_files(len(self.removed))}, {human_bytes(self.bytes)}, "
            f"and {_files(len(self.log_removed))} of the log"
        )


@dataclass(frozen=True)
class TableVerifyReport(_PrintedReport):
    """What was found in the live files.

    Attributes:
        table: The table.
        version: Its version.
        files: Number of live files.
        rows: Number of their rows.
        problems: What does not hold, in words.
    """

    table: str
    version: int
    files: int
    rows: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything holds."""
        return not self.problems

    def _page(self) -> Page:
        found = "as the log says" if self.ok else counted(len(self.problems), "problem")
        return Page(
            title=f"{self.table}: {_files(self.files)}, {counted(self.rows, 'row')}: {found}",
            remarks=self.problems[:_NAMED_MAX],
        )


@dataclass(frozen=True)
class AdoptReport(_PrintedReport):
    """What was adopted.

    Attributes:
        table: The folder.
        version: The version with the files.
        files: Files that are live from now on.
        rows: Number of their rows.
        skipped: Files of Plait that no commit has: their writers commit them, or died.
        casts: Columns that become others when files are next merged: their type in files, and in
            the table.
    """

    table: str
    version: int
    files: tuple[str, ...]
    rows: int
    skipped: tuple[str, ...]
    casts: dict[str, tuple[str, str]] = field(default_factory=dict)

    def _page(self) -> Page:
        return Page(
            title=f"{self.table}: adopted {_files(len(self.files))}, "
            f"{counted(self.rows, 'row')}, version {self.version}",
            remarks=(
                *(f"`{name}`: {was} becomes {to}" for name, (was, to) in self.casts.items()),
                *(f"left alone: {name}" for name in self.skipped[:_NAMED_MAX]),
            ),
        )


@dataclass(frozen=True)
class DataFile:
    """A live file of a table.

    Attributes:
        name: Its path below the table.
        bytes: Its length.
        rows: Its rows, if the log says so.
        partition: Values of partition columns, as text.
        version: The version that its newest rows came with, if that is known.
    """

    name: str
    bytes: int
    rows: int | None
    partition: dict[str, str | None]
    version: int | None


@dataclass(frozen=True)
class Version:
    """One version of a table, as its writer describes it.

    Attributes:
        version: Its number.
        at: When it was committed.
        operation: What was done, such as `"WRITE"`.
        engine: Who did it.
        files_added: Files that it made live.
        files_removed: Files that are live no more.
        metrics: What the writer counted.
        info: All that the writer wrote.
    """

    version: int
    at: dt.datetime | None
    operation: str
    engine: str
    files_added: int
    files_removed: int
    metrics: dict[str, Any]
    info: dict[str, Any]

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Version:
        """A version as the engine read it."""
        info = entry["info"]
        stamp = info.get("timestamp")
        at = dt.datetime.fromtimestamp(stamp / 1000, dt.timezone.utc) if stamp else None
        return cls(
            version=entry["version"],
            at=at,
            operation=info.get("operation") or "",
            engine=info.get("engineInfo") or "",
            files_added=entry["files_added"],
            files_removed=entry["files_removed"],
            metrics=info.get("operationMetrics") or {},
            info=info,
        )


def history_page(table: str, versions: list[Version]) -> Page:
    """The history as it is printed."""
    rows = tuple(
        (
            v.version,
            "" if v.at is None else v.at.strftime("%Y-%m-%d %H:%M:%S"),
            v.operation,
            v.files_added,
            v.files_removed,
            v.engine,
        )
        for v in versions
    )
    columns = ("version", "at (UTC)", "operation", "added", "removed", "engine")
    return Page(
        title=f"{table}: {counted(len(versions), 'version')}", tables=(Table(columns, rows),)
    )
