"""`expire`: removes files of a folder that compactions replaced, or wrote and never committed.

Not here: which files these are, and why no row is lost (`rust/parquet/src/compact/expire.rs`).
"""

from __future__ import annotations

from dataclasses import dataclass

from plait import _native
from plait._checks import Path, StorageOptions, _flag, _path, _time_span
from plait._native_call import _call
from plait._report import _files, _PrintedReport
from plait._text import Advice, Page, human_bytes
from plait.table.folder import reached, refuse_tables

__all__ = ["ExpireReport", "expire"]


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
        bytes: Sum of the sizes of what was removed.
    """

    folder: str
    dry_run: bool
    replaced: tuple[str, ...]
    orphans: tuple[str, ...]
    kept: tuple[str, ...]
    bytes: int

    def _page(self) -> Page:
        did = "would remove" if self.dry_run else "removed"
        return Page(
            title=f"{self.folder}: {did} {_files(len(self.replaced))} that were replaced and "
            f"{_files(len(self.orphans))} that never became live, {human_bytes(self.bytes)}",
            remarks=(
                *(f"kept: {path} was written again, and is live" for path in self.kept),
                *((Advice("nothing was done; pass yes=True"),) if self.dry_run else ()),
            ),
        )


def expire(
    folder: Path,
    *,
    retention: str | float = "7d",
    storage_options: StorageOptions | None = None,
    yes: bool = False,
) -> ExpireReport:
    """Removes files that compactions replaced or never committed. A dry run unless `yes`.

    It never removes a file that a running compaction may still commit, whatever the retention. For
    Delta and Iceberg tables, vacuum the table or expire its snapshots instead.

    Args:
        folder: A folder that was compacted, or a URL.
        retention: How long ago a file must have been replaced, such as `"7d"`, `"12h"` or
            `"30min"`. The same age applies to outputs that were never committed. A number counts
            seconds. A reader with an older list of files finds files missing.
        storage_options: See `merge`.
        yes: Whether to remove them; otherwise the report says what would be removed.

    Returns:
        What was removed, or would be.

    Raises:
        ForeignTable: The folder is a Delta or Iceberg table.
        InvalidArgument: `retention` is not a time span.
        SourceNotFound: A live file is missing: nothing is removed.
        StorageError: A file cannot be removed.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> for part in range(3):
        ...     pq.write_table(pa.table({"k": [part, part + 5]}), f"part-{part}.parquet")
        >>> done = compact(".", sort_by="k")
        >>> len(expire(".", retention=0, yes=True).replaced)
        3
    """
    root, store = reached(_path(folder, "folder"), storage_options)
    refuse_tables(root, storage_options, "vacuum the table, or expire its snapshots")
    options = {
        "folder": root,
        "retention_s": _time_span(retention, "retention"),
        "yes": _flag(yes, "yes"),
    }
    done = _call(_native.expire, options, store, None)
    return ExpireReport(
        folder=root,
        dry_run=not yes,
        replaced=tuple(done["replaced"]),
        orphans=tuple(done["orphans"]),
        kept=tuple(done["kept"]),
        bytes=done["bytes"],
    )
