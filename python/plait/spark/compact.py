"""`compact`, `compact_delta`, `compact_iceberg`: as those of one machine, with tasks on executors.

survey, plan: driver ──▶ tasks: executors ──▶ outputs where they stay ──▶ one commit a group: driver

Invariant: nothing is live before the driver's commit; whatever dies, rows count exactly once.
Not here: the loop and the tables (`plait.table`); the job (`plan`); an executor's part (`task`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from plait._checks import Path, Paths, _path, _paths
from plait._native_call import OnProgress
from plait.spark.plan import run_on, share_of
from plait.spark.prefetch import prefetch_on
from plait.table._calls import find_table
from plait.table.folder import Into
from plait.table.iceberg import Iceberg
from plait.table.options import CompactOptions, TableOptions, takes
from plait.table.report import CompactReport
from plait.table.run import Table, compact_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

__all__ = ["compact", "compact_delta", "compact_iceberg"]


@takes(TableOptions)
def compact(
    spark: SparkSession,
    sources: Paths,
    out: Path | None = None,
    *,
    if_exists: Literal["error", "add"] = "error",
    progress: OnProgress | None = None,
    **options: Unpack[TableOptions],
) -> CompactReport:
    """Merges sorted files on executors, within a folder or Delta table, or into another folder.

    Without `out`, `sources` is one folder or Delta table, which is compacted in place, by policy.
    With `out`, all sources are merged into that folder. A manifest in `_plait` lists the live files
    of a folder, and doing it again does nothing. Executors and driver must see the folder under one
    path.

    Args:
        spark: The session.
        sources: A folder; with `out` files, folders, globs or URLs.
        out: A folder.
        if_exists: What to do when `out` has files of another merge: refuse, or add to them.
        progress: Called a few times a second, on the thread of the caller, with a
            `plait.Progress`, and for the last time when all is committed. Tasks report what they
            did when they end, so it grows by outputs. What it raises stops the job.
        **options: Those of `plait.table.CompactOptions` that are not of folders alone, as keywords.
            `policy`, `where`, `max_bytes`, `max_groups` and `max_seconds` go without `out`. There
            is one task for each file of `target_file_size`; `storage_options` travel to executors
            with the tasks. With
            `unsorted="sort"` a group with unsorted files is one task, whatever its outputs, and the
            driver reads the keys of files that do not tell them.

    Returns:
        The groups that were merged.

    Raises:
        StorageError: Reading or writing failed on every executor that tried.
        PlaitError: Anything that `plait.compact` raises, on whichever executor.
    """

    def find(given: CompactOptions) -> Table:
        if out is None:
            folder = _absolute(_path(sources, "sources"))
            return find_table(folder, None, None, given.storage_options)
        found = [_absolute(path) for path in _paths(sources, "sources")]
        return Into(found, _absolute(_path(out, "out")), if_exists, given.storage_options)

    return _compact(spark, find, progress, options)


@takes(TableOptions)
def compact_delta(
    spark: SparkSession,
    table: Path,
    *,
    guard: bool = True,
    progress: OnProgress | None = None,
    **options: Unpack[TableOptions],
) -> CompactReport:
    """Merges sorted files of a Delta table on executors; the driver commits.

    As `plait.table.compact_delta`. Executors need no deltalake.

    Args:
        spark: The session.
        table: Path or URL of the table.
        guard: See `plait.table.compact_delta`.
        progress: See `compact`.
        **options: See `compact`.

    Returns:
        The groups that were merged.

    Raises:
        PlaitError: Anything that `plait.table.compact_delta` raises.
    """

    def find(given: CompactOptions) -> Table:
        path = _absolute(_path(table, "table"))
        return find_table(path, "delta", None, given.storage_options, guard=guard)

    return _compact(spark, find, progress, options)


@takes(TableOptions)
def compact_iceberg(
    spark: SparkSession,
    catalog: Catalog | str,
    table: str,
    *,
    progress: OnProgress | None = None,
    **options: Unpack[TableOptions],
) -> CompactReport:
    """Merges sorted files of an Iceberg table on executors; the driver commits.

    As `plait.table.compact_iceberg`. Executors need no PyIceberg, and the catalog is one of
    PyIceberg and need not be one of Spark.

    Args:
        spark: The session.
        catalog: See `plait.table.compact_iceberg`.
        table: The table, such as `"db.events"`.
        progress: See `compact`.
        **options: See `compact`.

    Returns:
        The groups that were merged.

    Raises:
        PlaitError: Anything that `plait.table.compact_iceberg` raises.
    """
    return _compact(spark, lambda _: Iceberg(catalog, table), progress, options)


def _compact(
    spark: SparkSession,
    find: Callable[[CompactOptions], Table],
    progress: OnProgress | None,
    options: TableOptions,
) -> CompactReport:
    share = share_of(spark, options.get("memory_limit"))
    given = replace(CompactOptions(**options), memory_limit=share.memory_limit)
    run = run_on(spark, share, given)
    prefetch = prefetch_on(spark, share, given.storage_options)
    report = compact_table(find(given), given, run, prefetch, progress)
    groups = sum(bool(group.unsorted) for group in report.groups)
    if not groups:
        return report
    note = "a group with unsorted files is one task of Spark"
    return replace(report, notes=(note,))


def _absolute(path: str) -> str:
    """Executors have folders of their own to start from."""
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 - globs, too
