"""The calls: `compact_delta`, `compact_iceberg`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, SupportsIndex

from plait._api import _settings
from plait._checks import Path, _flag, _path
from plait.order import SortBy
from plait.sizes import Size
from plait.table.delta import Delta
from plait.table.iceberg import Iceberg
from plait.table.run import TableReport, Where, compact_table, how, work_here

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["compact_delta", "compact_iceberg"]


def compact_delta(
    table: Path,
    *,
    sort_by: SortBy | None = None,
    policy: Literal["size_tiered", "overlap", "full"] = "overlap",
    where: Where | None = None,
    max_depth: SupportsIndex = 1,
    merge_factor: SupportsIndex = 10,
    merge_factor_max: SupportsIndex = 12,
    mature_size: Size = "1GB",
    mature_level: SupportsIndex = 3,
    finalize: bool = False,
    target_file_size: Size | None = "128MB",
    compression: str | None = None,
    verify: Literal["content"] | None = None,
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    storage_options: dict[str, str] | None = None,
    guard: bool = True,
    yes: bool = False,
) -> TableReport:
    """Merges sorted files of a Delta table where a policy says so. A dry run unless `yes`.

    Files are merged only with files of the same partition. One transaction replaces the files of a
    group; it says that no row changed. Rows that others append meanwhile stay. Files that others
    deleted or rewrote meanwhile are left to them, and what is left is planned again. What was
    replaced stays until the table is vacuumed. Compacting again does nothing, and says so.

    Needs deltalake: `pip install 'plait[delta]'`.

    Args:
        table: Path or URL of the table.
        sort_by: The order of its files; each file's own by default.
        policy: See `plait.compact`.
        where: Partitions: a mapping from partition columns to a value, or to several, as text.
        max_depth: See `plait.compact`.
        merge_factor: See `plait.compact`.
        merge_factor_max: See `plait.compact`.
        mature_size: See `plait.compact`.
        mature_level: See `plait.compact`.
        finalize: See `plait.compact`.
        target_file_size: Files of about this size; `None`: one a group.
        compression: See `plait.merge`.
        verify: See `plait.merge`.
        threads: See `plait.merge`.
        memory_limit: See `plait.merge`.
        storage_options: Settings of object stores; for delta-rs, too.
        guard: Whether removed files are logged as changed data. delta-rs looks only at such
            removals when it commits what it began before: without them its OPTIMIZE or overwrite
            lands too, and rows are there twice. Streaming readers stop at such a commit unless
            they skip it (`skipChangeCommits`). Tables that are append-only or have a change feed
            go without, always.
        yes: Whether to do it.

    Returns:
        The groups that were merged; in a dry run, those that would be merged first.

    Raises:
        Unsupported: The table uses what a commit would break: deletion vectors, column mapping, a
            feature that is not known.
        UnknownColumn: No file has the sort column.
        PlaitError: Anything that `merge` raises of more than one file. A file that is not sorted or
            damaged is left alone, and reported.

    Example:
        >>> import pyarrow as pa
        >>> from deltalake import write_deltalake
        >>> for part in range(3):
        ...     write_deltalake("events", pa.table({"k": [part, part + 5]}), mode="append")
        >>> compact_delta("events", sort_by="k", yes=True).groups[0].rows
        6
        >>> compact_delta("events", sort_by="k", yes=True).groups
        ()
    """
    options = how(locals())
    settings = _settings(storage_options) or None
    found = Delta(_path(table, "table"), settings, guard=bool(_flag(guard, "guard")))
    work = work_here(threads=threads, verify=verify, storage_options=storage_options)
    return compact_table(found, options, yes=yes, work=work)


def compact_iceberg(
    catalog: Catalog | str,
    table: str,
    *,
    sort_by: SortBy | None = None,
    policy: Literal["size_tiered", "overlap", "full"] = "overlap",
    where: Where | None = None,
    max_depth: SupportsIndex = 1,
    merge_factor: SupportsIndex = 10,
    merge_factor_max: SupportsIndex = 12,
    mature_size: Size = "1GB",
    mature_level: SupportsIndex = 3,
    finalize: bool = False,
    target_file_size: Size | None = "128MB",
    compression: str | None = None,
    verify: Literal["content"] | None = None,
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    storage_options: dict[str, str] | None = None,
    yes: bool = False,
) -> TableReport:
    """Merges sorted files of an Iceberg table where a policy says so. A dry run unless `yes`.

    As `compact_delta`; one snapshot replaces the files of a group. What was replaced stays until
    snapshots are expired.

    Needs PyIceberg: `pip install 'plait[iceberg]'`.

    Args:
        catalog: A PyIceberg catalog, or the name of one that PyIceberg is configured for.
        table: The table, such as `"db.events"`.
        sort_by: The order of its files; that of the table, or else each file's own by default.
        policy: See `plait.compact`.
        where: Partitions: a mapping from partition fields to a value, or to several, as text.
        max_depth: See `plait.compact`.
        merge_factor: See `plait.compact`.
        merge_factor_max: See `plait.compact`.
        mature_size: See `plait.compact`.
        mature_level: See `plait.compact`.
        finalize: See `plait.compact`.
        target_file_size: Files of about this size; `None`: one a group.
        compression: See `plait.merge`.
        verify: See `plait.merge`.
        threads: See `plait.merge`.
        memory_limit: See `plait.merge`.
        storage_options: Settings of object stores for reading and writing data files. The catalog
            has its own for metadata.
        yes: Whether to do it.

    Returns:
        The groups that were merged; in a dry run, those that would be merged first.

    Raises:
        Unsupported: Rows are deleted by delete files, files are not Parquet, or are of an older
            partition spec.
        UnknownColumn: No file has the sort column.
        PlaitError: Anything that `merge` raises of more than one file. A file that is not sorted or
            damaged is left alone, and reported.

    Example:
        >>> import os, pyarrow as pa
        >>> from pyiceberg.catalog.sql import SqlCatalog
        >>> os.makedirs("lake", exist_ok=True)
        >>> catalog = SqlCatalog("lake", uri="sqlite:///lake.db", warehouse=f"file://{os.getcwd()}/lake")
        >>> catalog.create_namespace("db")
        >>> events = catalog.create_table("db.events", pa.schema({"k": pa.int64()}))
        >>> for part in range(3):
        ...     events.append(pa.table({"k": [part, part + 5]}))
        >>> compact_iceberg(catalog, "db.events", sort_by="k", yes=True).groups[0].rows
        6
        >>> compact_iceberg(catalog, "db.events", sort_by="k", yes=True).groups
        ()
    """
    options = how(locals())
    work = work_here(threads=threads, verify=verify, storage_options=storage_options)
    return compact_table(Iceberg(catalog, table), options, yes=yes, work=work)
