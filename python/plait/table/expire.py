"""`expire`: removes files of a folder that compactions replaced, or wrote and never committed.

Not here: which files these are, and why no row is lost (`rust/parquet/src/compact/expire.rs`).
"""

from __future__ import annotations

from dataclasses import dataclass

from plait import _native
from plait._checks import Path, StorageOptions, _flag, _path, _time_span
from plait._lease import new_id
from plait._native_call import _call
from plait._report import _files, _PrintedReport
from plait._text import Advice, Page, human_bytes
from plait.table.folder import reached, refuse_tables

__all__ = ["ExpireReport", "expire"]


_WROTE = "that compactions wrote"
_WAITING = "must wait: their rows are in files with rows of files that were replaced later"


@dataclass(frozen=True)
class ExpireReport(_PrintedReport):
    """What `expire` removed, or would remove.

    Attributes:
        folder: The folder.
        dry_run: Whether nothing was done.
        replaced: Files that were replaced long enough ago.
        orphans: Files that a compaction wrote long enough ago, and never committed.
        kept: Files that were written later under the name of a replaced file: they stay, and are
            live from now on.
        shown: Outputs of compactions that became ordinary files, by their new path.
        waiting: Files that were replaced long enough ago but stay, because their rows are in a file
            that also has rows of files replaced later.
        bytes: Sum of the sizes of what was removed.
    """

    folder: str
    dry_run: bool
    replaced: tuple[str, ...]
    orphans: tuple[str, ...]
    kept: tuple[str, ...]
    shown: tuple[str, ...]
    waiting: tuple[str, ...]
    bytes: int

    def _page(self) -> Page:
        did = "would remove" if self.dry_run else "removed"
        made = "would become ordinary" if self.dry_run else "became ordinary"
        return Page(
            title=f"{self.folder}: {did} {_files(len(self.replaced))} that were replaced and "
            f"{_files(len(self.orphans))} that never became live, {human_bytes(self.bytes)}",
            remarks=(
                *(f"kept: {path} was written again, and is live" for path in self.kept),
                *([f"{_files(len(self.shown))} {_WROTE} {made}"] if self.shown else []),
                *([f"{_files(len(self.waiting))} {_WAITING}"] if self.waiting else []),
                *((Advice("nothing was done; pass yes=True"),) if self.dry_run else ()),
            ),
        )


def expire(
    folder: Path,
    *,
    retention: str | float = "7d",
    swap: bool = False,
    storage_options: StorageOptions | None = None,
    yes: bool = False,
) -> ExpireReport:
    """Removes files that compactions replaced or never committed. A dry run unless `yes`.

    Outputs of compactions become ordinary files in the folder and in its partitions, and every
    program reads each row once. Files that a running compaction may still commit stay, with any
    retention. For Delta and Iceberg tables, vacuum the table or expire its snapshots instead.

    Args:
        folder: A folder that was compacted, or a URL.
        retention: How long ago a file must have been replaced, such as `"7d"`, `"12h"` or
            `"30min"`. The same age applies to outputs that were never committed. A number counts
            seconds. A reader with an older list of files finds files missing.
        swap: Whether the folder is exchanged in one step, so that a listing has the old files or
            the new ones: local folders on Linux. Other programs must open files by their paths
            again, because the folder is a new one.
        storage_options: See `merge`.
        yes: Whether to remove them; otherwise the report says what would be removed.

    Returns:
        What was removed, or would be.

    Raises:
        ForeignTable: The folder is a Delta or Iceberg table.
        InvalidArgument: `retention` is not a time span.
        SourceChanged: With `swap`: another writer holds a lease of the folder, such as a
            compaction.
        SourceNotFound: A live file is missing: nothing is removed.
        StorageError: A file cannot be removed.
        Unsupported: The folder cannot be exchanged, which is found out before any work.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> for part in range(3):
        ...     pq.write_table(pa.table({"k": [part, part + 5]}), f"part-{part}.parquet")
        >>> done = compact(".", sort_by="k")
        >>> len(expire(".", retention=0, yes=True).replaced)
        3
        >>> pq.read_table(".").num_rows
        6
    """
    root, store = reached(_path(folder, "folder"), storage_options)
    refuse_tables(root, storage_options, "vacuum the table, or expire its snapshots")
    options = {
        "folder": root,
        "retention_s": _time_span(retention, "retention"),
        "yes": _flag(yes, "yes"),
        "swap": new_id() if _flag(swap, "swap") else None,
    }
    done = _call(_native.expire, options, store, None)
    return ExpireReport(
        folder=root,
        dry_run=not yes,
        replaced=tuple(done["replaced"]),
        orphans=tuple(done["orphans"]),
        kept=tuple(done["kept"]),
        shown=tuple(done["shown"]),
        waiting=tuple(done["waiting"]),
        bytes=done["bytes"],
    )
