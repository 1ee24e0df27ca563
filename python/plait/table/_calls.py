"""The calls: `compact`, `compact_delta`, `compact_iceberg`.

name, catalog ──▶ find_table ──▶ Folder, Delta or Iceberg ──▶ compact_table, by the runner of here
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING, Literal, SupportsIndex
from urllib.parse import unquote

from plait import _native, _stores
from plait._checks import Path, _flag, _path
from plait._native_call import OnProgress, _settings
from plait.errors import ForeignTable, InvalidArgument
from plait.table.delta import Delta
from plait.table.expire import expire
from plait.table.folder import Folder, reached
from plait.table.here import run_here
from plait.table.iceberg import Iceberg
from plait.table.options import (
    CompactOptions,
    FolderOptions,
    LogOptions,
    takes,
)
from plait.table.report import CompactReport
from plait.table.run import Table, compact_table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from typing_extensions import Unpack

__all__ = ["FORMATS", "compact", "compact_delta", "compact_iceberg", "find_table", "is_delta"]

FORMATS = ("folder", "delta", "iceberg")


@takes(FolderOptions)
def compact(
    folder: Path,
    *,
    format: Literal["folder", "delta", "iceberg"] | None = None,  # noqa: A002 - as on the command line
    catalog: Catalog | str | None = None,
    guard: bool = True,
    in_place: bool = False,
    threads: SupportsIndex | None = None,
    progress: OnProgress | None = None,
    **options: Unpack[FolderOptions],
) -> CompactReport:
    """Merges sorted files of a folder or table that a policy selects.

    Compacts a plain folder, a Delta table (as `plait.table.compact_delta`), or, with `catalog`, an
    Iceberg table (as `plait.table.compact_iceberg`). The folder of an Iceberg table alone is
    refused: only its catalog can commit.

    Files are merged only with files of the same partition (in a folder: of the same subfolder),
    schema and order. Outputs of a folder are written to `_plait/files` and are live once a manifest
    in `_plait` lists them, in one atomic commit; `merge`, `plan` and `scan` of the folder read live
    files. Replaced files stay until `expire`. When nothing is left to merge, a compaction does
    nothing, and says so.

    A file that cannot be merged (not sorted, damaged, encrypted, without the sort column) stays as
    it is and is reported with the reason; the others are merged. A dry run reads footers and the
    first and last key of each file, so it does not detect unsorted rows in between.

    Args:
        folder: A local folder, or a URL such as `s3://bucket/folder`; with `catalog` the name of a
            table, such as `"db.events"`.
        format: What it is: a plain folder, a Delta or an Iceberg table; found out by default.
        catalog: Iceberg: a PyIceberg catalog, or the name of one that PyIceberg is configured for.
        guard: Delta: whether removed files are logged as changed data. See `compact_delta`.
        in_place: Folders: whether replaced files are removed at once, and the folder is exchanged
            in one step, as by `expire(folder, retention=0, swap=True)`: local folders on Linux. If
            that fails because others write to the folder, the merges are committed all the same.
        threads: See `merge`.
        progress: Called a few times a second with a `Progress`, which adds up over all merges, and
            for the last time when all is committed. `total_bytes` grows whenever further merges are
            planned. An exception ends the compaction, after what is merged is committed.
        **options: Those of `plait.table.CompactOptions`, as keywords.

    Returns:
        The groups that were merged; in a dry run, those that would be merged first.

    Raises:
        ForeignTable: The folder is a Hudi table, an Iceberg table without `catalog`, in a table, or
            has one in it.
        InvalidArgument: An option is not one of the format, or invalid.
        UnknownColumn: No file has the sort column.
        Unsupported: A table has what a commit would break, such as row tracking. With
            `in_place`: the folder cannot be exchanged, which is found out before any work.
        StorageError: Reading or writing failed, or others replaced the same files 16 times in a
            row.
        PlaitError: Anything that `merge` raises of more than one file.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> for part in range(3):
        ...     pq.write_table(pa.table({"k": [part, part + 5]}), f"part-{part}.parquet")
        >>> compact(".", sort_by="k", yes=False).groups[0].depth_max
        3
        >>> len(compact(".", sort_by="k").groups)
        1
        >>> compact(".", sort_by="k").groups
        ()
    """
    given = CompactOptions(**options)
    table = find_table(folder, format, catalog, given.storage_options, guard=guard)
    if not _flag(in_place, "in_place"):
        return compact_table(table, given, run_here(given, threads), progress=progress)
    if table.format != "folder":
        raise InvalidArgument.of("`in_place` is not an option of the format", got=table.format)
    swapped = partial(expire, folder, retention=0, swap=True, storage_options=given.storage_options)
    swapped()  # refused here, before anything is merged
    report = compact_table(table, given, run_here(given, threads), progress=progress)
    return report.shown_as(swapped(yes=True).shown) if given.yes else report


@takes(LogOptions)
def compact_delta(
    table: Path,
    *,
    guard: bool = True,
    threads: SupportsIndex | None = None,
    progress: OnProgress | None = None,
    **options: Unpack[LogOptions],
) -> CompactReport:
    """Merges sorted files of a Delta table where a policy selects them.

    Files are merged only with files of the same partition. One transaction replaces the files of
    groups (see `min_commit_interval`); it says that no row changed. Rows that others append
    meanwhile stay. Rows that others delete meanwhile by deletion vectors are deleted from the new
    files in the same transaction; if the merge dropped rows, it is done again instead. If another
    writer removed or rewrote files meanwhile, the remaining files are planned again. Replaced files
    stay until the table is vacuumed. When nothing is left to merge, a compaction does nothing.

    The order of a table that `plait.Table` made, and its rule for rows with one key, hold here.

    Of a table with column mapping, `sort_by` and `where` have the names of the table; files keep
    physical names and field ids. First it is looked at in their footers whether files have the
    columns of the table by both.

    Args:
        table: Path or URL of the table.
        guard: Whether removed files are logged as changed data. delta-rs compares only such
            removals when it commits work that it began earlier. Without them its OPTIMIZE or
            overwrite is committed too, and rows are duplicated. Streaming readers stop at such a
            commit unless they skip it (`skipChangeCommits`). Append-only tables and tables with a
            change feed never have this guard.
        threads: See `plait.merge`.
        progress: See `plait.compact`.
        **options: Those of `plait.table.CompactOptions` that are not of folders alone, as keywords.

    Returns:
        The groups that were merged; in a dry run, those that would be merged first.

    Raises:
        Unsupported: The table has what a commit would break, such as an unknown feature, or is
            mapped and has a file with other columns.
        CorruptSource: Its column mapping does not tell columns apart.
        UnknownColumn: No file has the sort column.
        PlaitError: Anything that `merge` raises of more than one file. A file that is not sorted or
            damaged stays as it is, and is reported.

    Example:
        >>> import pyarrow as pa
        >>> from deltalake import write_deltalake
        >>> for part in range(3):
        ...     write_deltalake("events", pa.table({"k": [part, part + 5]}), mode="append")
        >>> compact_delta("events", sort_by="k").groups[0].rows
        6
        >>> compact_delta("events", sort_by="k").groups
        ()
    """
    given = CompactOptions(**options)
    found = find_table(table, "delta", None, given.storage_options, guard=guard)
    return compact_table(found, given, run_here(given, threads), progress=progress)


@takes(LogOptions)
def compact_iceberg(
    catalog: Catalog | str,
    table: str,
    *,
    threads: SupportsIndex | None = None,
    progress: OnProgress | None = None,
    **options: Unpack[LogOptions],
) -> CompactReport:
    """Merges sorted files of an Iceberg table where a policy selects them.

    As `compact_delta`; one snapshot replaces the files of groups. Replaced files stay until
    snapshots are expired. `sort_by` is by default the sort order of the table.

    Needs PyIceberg: `pip install 'plait[iceberg]'`.

    Args:
        catalog: A PyIceberg catalog, or the name of one that PyIceberg is configured for.
        table: The table, such as `"db.events"`.
        threads: See `plait.merge`.
        progress: See `plait.compact`.
        **options: Those of `plait.table.CompactOptions` that are not of folders alone, as keywords.
            `storage_options` are for data files: the catalog has its own for metadata.

    Returns:
        The groups that were merged; in a dry run, those that would be merged first.

    Raises:
        Unsupported: The table has format version 3, is encrypted, has values where files lack a
            column, or has what PyIceberg does not know.
        UnknownColumn: No file has the sort column.
        PlaitError: Anything that `merge` raises of more than one file. A file that is not sorted,
            damaged, encrypted or not Parquet stays as it is, and is reported.

    Example:
        >>> import os, pyarrow as pa
        >>> from pyiceberg.catalog.sql import SqlCatalog
        >>> os.makedirs("lake", exist_ok=True)
        >>> catalog = SqlCatalog("lake", uri="sqlite:///lake.db", warehouse=f"file://{os.getcwd()}/lake")
        >>> catalog.create_namespace("db")
        >>> events = catalog.create_table("db.events", pa.schema({"k": pa.int64()}))
        >>> for part in range(3):
        ...     events.append(pa.table({"k": [part, part + 5]}))
        >>> compact_iceberg(catalog, "db.events", sort_by="k").groups[0].rows
        6
        >>> compact_iceberg(catalog, "db.events", sort_by="k").groups
        ()
    """
    given, found = CompactOptions(**options), Iceberg(catalog, table)
    return compact_table(found, given, run_here(given, threads), progress=progress)


def find_table(
    name: Path,
    format: str | None,  # noqa: A002 - as in the calls
    catalog: Catalog | str | None,
    storage_options: object,
    *,
    guard: bool = True,
) -> Table:
    """The folder or table of a name.

    Raises:
        ForeignTable: It is a table that cannot be committed to by its name, or in a table.
        InvalidArgument: `format` is unknown, or does not fit the other arguments.
    """
    path = _path(name, "folder")
    if format not in (None, *FORMATS):
        choices = ", ".join(map(repr, FORMATS))
        raise InvalidArgument.of(
            "`format` has no such choice", got=f"`{format!r}`", hint=f"give one of: {choices}"
        )
    if format is None:
        format = "folder" if catalog is None else "iceberg"  # noqa: A001 - found out
        if catalog is None and is_delta(path, storage_options):
            format = "delta"  # noqa: A001 - found out
    if format == "iceberg" and catalog is None:
        raise InvalidArgument.of(
            "`catalog` is missing", hint='give the name of a catalog, such as catalog="lake"'
        )
    for option, kind, is_given in (
        ("catalog", "iceberg", catalog is not None),
        ("guard", "delta", not _flag(guard, "guard")),
    ):
        if is_given and format != kind:
            raise InvalidArgument.of(f"`{option}` is not an option of the format", got=format)
    if catalog is not None:
        return Iceberg(catalog, path)
    if format == "delta":
        return Delta(path, _settings(storage_options) or None, guard=guard)
    return Folder(*reached(path, storage_options))


def is_delta(path: str, storage_options: object) -> bool:
    """Whether a path is a Delta table itself; refuses other tables, and folders in tables."""
    if _stores.is_store(storage_options):
        return False
    options = {"sources": [path], "storage_options": _settings(storage_options)}
    (found,) = json.loads(_native.tables_of(json.dumps(options)))
    if found is None:
        return False
    kind, root = found["format"], found["root"]
    if not _is_same(path, root):
        what = f"the folder is in a table of {kind}: only its log lists the live files"
        hint = f"compact `{root}`; `where` names partitions"
    elif kind == "Delta":
        return True
    else:
        what = f"the folder is a table of {kind}: only its log lists the live files"
        hint = {
            "Iceberg": 'pass its catalog: plait.compact("db.events", catalog="lake")',
        }.get(kind, "compact it with the engine that wrote it")
    error = ForeignTable.of(what, hint=hint)
    error.path = root
    raise error


def _is_same(path: str, root: str) -> bool:
    if "://" in path.removeprefix("file://"):
        return unquote(path.rstrip("/")) == unquote(root.rstrip("/"))
    return os.path.realpath(path.removeprefix("file://")) == os.path.realpath(root)
