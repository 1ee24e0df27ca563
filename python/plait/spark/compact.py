"""`compact`, `compact_delta`, `compact_iceberg`: as those of one machine, with tasks on executors.

survey, plan: driver ──▶ tasks: executors ──▶ outputs where they stay ──▶ one commit a group: driver

Invariant: nothing counts before the driver's commit; whatever dies, rows count exactly once.
Not here: surveys and commits (`plait.table`); the job (`plan`); an executor's part (`task`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from plait._api import OnProgress, _settings
from plait._checks import Path, Paths, _flag, _path, _paths
from plait.order import SortBy
from plait.sizes import Size
from plait.spark.learn import learn_on
from plait.spark.plan import Share, share_of, work_on
from plait.table.delta import Delta
from plait.table.folder import Folder, Into
from plait.table.iceberg import Iceberg
from plait.table.run import How, Table, TableReport, Where, compact_table, how

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

__all__ = ["compact", "compact_delta", "compact_iceberg"]


def compact(
    spark: SparkSession,
    sources: Paths,
    out: Path | None = None,
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
    memory_limit: Size | None = None,
    storage_options: dict[str, str] | None = None,
    if_exists: Literal["error", "add"] = "error",
    progress: OnProgress | None = None,
    yes: bool = True,
) -> TableReport:
    """Merges sorted files on executors, within a folder or into another.

    Without `out`, `sources` is one folder, which is compacted in place, by policy. With `out`, all
    sources are merged into that folder. Either way a manifest in `_plait` says which files count,
    and doing it again does nothing. Executors and driver must see the folder under one path.

    Args:
        spark: The session.
        sources: A folder; with `out` files, folders, globs or URLs.
        out: A folder.
        sort_by: See `plait.merge`.
        policy: See `plait.compact`; not with `out`.
        where: Partitions to compact, from folders such as `day=1`; not with `out`.
        max_depth: See `plait.compact`.
        merge_factor: See `plait.compact`.
        merge_factor_max: See `plait.compact`.
        mature_size: See `plait.compact`.
        mature_level: See `plait.compact`.
        finalize: See `plait.compact`.
        target_file_size: Files of about this size: one task each. `None`: one file a group.
        compression: See `plait.merge`.
        verify: See `plait.merge`.
        memory_limit: Memory of one task; by default a task's part of what the executor has for
            Python, see the guide.
        storage_options: Settings of object stores. They travel to executors with the tasks.
        if_exists: What to do when `out` has files of another merge: refuse, or add to them.
        progress: Called a few times a second, on the thread of the caller, with a
            `plait.Progress`. Tasks tell what they have done when they end, so it grows by outputs.
            What it raises stops the job.
        yes: Whether to do it; otherwise only tell what would be done.

    Returns:
        The groups that were merged.

    Raises:
        StorageError: Reading or writing failed on every executor that tried.
        PlaitError: Anything that `merge` raises, on whichever executor.
    """
    share = share_of(spark, memory_limit)
    options = _how(spark, share, locals())
    table: Table
    if out is None:
        table = Folder(_absolute(_path(sources, "sources")), storage_options)
    else:
        found = [_absolute(path) for path in _paths(sources, "sources")]
        table = Into(found, _absolute(_path(out, "out")), if_exists, storage_options)
    work = work_on(spark, share, verify=verify, storage_options=storage_options, progress=progress)
    return compact_table(table, options, yes=yes, work=work)


def compact_delta(
    spark: SparkSession,
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
    memory_limit: Size | None = None,
    storage_options: dict[str, str] | None = None,
    guard: bool = True,
    progress: OnProgress | None = None,
    yes: bool = True,
) -> TableReport:
    """Merges sorted files of a Delta table on executors; the driver commits.

    As `plait.table.compact_delta`. Executors need no deltalake.

    Args:
        spark: The session.
        table: Path or URL of the table.
        sort_by: See `plait.table.compact_delta`.
        policy: See `plait.compact`.
        where: See `plait.table.compact_delta`.
        max_depth: See `plait.compact`.
        merge_factor: See `plait.compact`.
        merge_factor_max: See `plait.compact`.
        mature_size: See `plait.compact`.
        mature_level: See `plait.compact`.
        finalize: See `plait.compact`.
        target_file_size: Files of about this size: one task each. `None`: one file a group.
        compression: See `plait.merge`.
        verify: See `plait.merge`.
        memory_limit: See `compact`.
        storage_options: See `compact`; for delta-rs, too.
        guard: See `plait.table.compact_delta`.
        progress: See `compact`.
        yes: Whether to do it; otherwise only tell what would be done.

    Returns:
        The groups that were merged.

    Raises:
        PlaitError: Anything that `plait.table.compact_delta` raises.
    """
    share = share_of(spark, memory_limit)
    options = _how(spark, share, locals())
    work = work_on(spark, share, verify=verify, storage_options=storage_options, progress=progress)
    settings = _settings(storage_options) or None
    found = Delta(_absolute(_path(table, "table")), settings, guard=bool(_flag(guard, "guard")))
    return compact_table(found, options, yes=yes, work=work)


def compact_iceberg(
    spark: SparkSession,
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
    memory_limit: Size | None = None,
    storage_options: dict[str, str] | None = None,
    progress: OnProgress | None = None,
    yes: bool = True,
) -> TableReport:
    """Merges sorted files of an Iceberg table on executors; the driver commits.

    As `plait.table.compact_iceberg`. Executors need no PyIceberg, and the catalog is one of
    PyIceberg and need not be one of Spark.

    Args:
        spark: The session.
        catalog: See `plait.table.compact_iceberg`.
        table: The table, such as `"db.events"`.
        sort_by: See `plait.table.compact_iceberg`.
        policy: See `plait.compact`.
        where: See `plait.table.compact_iceberg`.
        max_depth: See `plait.compact`.
        merge_factor: See `plait.compact`.
        merge_factor_max: See `plait.compact`.
        mature_size: See `plait.compact`.
        mature_level: See `plait.compact`.
        finalize: See `plait.compact`.
        target_file_size: Files of about this size: one task each. `None`: one file a group.
        compression: See `plait.merge`.
        verify: See `plait.merge`.
        memory_limit: See `compact`.
        storage_options: See `compact`.
        progress: See `compact`.
        yes: Whether to do it; otherwise only tell what would be done.

    Returns:
        The groups that were merged.

    Raises:
        PlaitError: Anything that `plait.table.compact_iceberg` raises.
    """
    share = share_of(spark, memory_limit)
    options = _how(spark, share, locals())
    work = work_on(spark, share, verify=verify, storage_options=storage_options, progress=progress)
    return compact_table(Iceberg(catalog, table), options, yes=yes, work=work)


def _how(spark: SparkSession, share: Share, given: Mapping[str, Any]) -> How:
    """The options of a call, checked; executors read what planning needs of many files."""
    options = how({**given, "memory_limit": share.memory_limit})
    return replace(options, learn=learn_on(spark, share, given["storage_options"]))


def _absolute(path: str) -> str:
    """Executors have folders of their own to start from."""
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - globs, too
