"""`plan`: makes a plan of files; `execute_task` executes one task of it, in any process.

files, options ─▶ engine: footers, keys ─▶ Plan ─ task.to_json ─▶ execute_task

Not here: what a plan is (`_plan`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsIndex

from plait import _native
from plait._checks import (
    Aggregates,
    BloomFilters,
    OnDuplicate,
    Path,
    Paths,
    Statistics,
    StorageOptions,
    ValueSets,
    VersionBy,
    merge_options,
)
from plait._logs.columns import LogColumns
from plait._native_call import OnProgress, _call
from plait._plan import Plan, Task
from plait._tables import Ordered, with_rules
from plait.order import SortBy
from plait.report import MergeReport
from plait.sizes import Size

__all__ = ["execute_task", "plan"]


def execute_task(task: Task | str | bytes, out: Path, **options: Any) -> MergeReport:  # noqa: ANN401 - passed on
    """Executes one task, in any process, from the JSON of `Task.to_json`.

    Args:
        task: The task, or its JSON.
        out: The folder of the outputs; the same for all tasks of a plan.
        options: Those of `Plan.execute` without `tasks`.

    Returns:
        The report of this one output.

    Raises:
        SourceChanged: A source changed since the plan was made; names it.
        PlaitError: Anything that `merge` raises.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 3]}), "a.parquet")
        >>> pq.write_table(pa.table({"k": [2, 4]}), "b.parquet")
        >>> made = plan(["a.parquet", "b.parquet"], sort_by="k", outputs=2)
        >>> tasks = [task.to_json() for task in made.tasks]
        >>> [execute_task(task, "merged").rows_out for task in tasks]
        [2, 2]
    """
    text = task.to_json() if isinstance(task, Task) else task
    return Plan.from_json(text).execute(out, **options)


def plan(
    sources: Paths,
    out: Path | None = None,
    *,
    sort_by: SortBy | None = None,
    outputs: SupportsIndex | None = None,
    target_file_size: Size | None = None,
    target_rows: SupportsIndex | None = None,
    cut_on: SupportsIndex | None = None,
    partition_by: Iterable[str] = (),
    partition_columns: Literal["drop", "keep"] = "drop",
    row_group_size: Size = "128MB",
    row_group_rows: SupportsIndex = 1_048_576,
    page_size: Size = "1MB",
    page_rows: SupportsIndex = 20_000,
    align_row_groups: SupportsIndex = 0,
    compression: str | None = None,
    dictionary: bool | None = None,
    data_page_version: Literal[1, 2] | None = None,
    encoding: Literal["sources", "compatible", "smallest"] = "sources",
    bloom_filters: BloomFilters = (),
    value_sets: ValueSets = (),
    statistics: Statistics = "page",
    widen: Literal["lossless", "error"] = "lossless",
    missing: Literal["null", "error"] = "null",
    missing_keys: Literal["error", "null"] = "error",
    metadata_conflicts: Literal["first", "drop", "error"] = "drop",
    on_duplicate: OnDuplicate | None = None,
    version_by: VersionBy | None = None,
    replace_columns: Iterable[str] = (),
    aggregate: Aggregates | None = None,
    delete_where: str | None = None,
    keep_tombstones: bool = False,
    drop_where: str | None = None,
    verify_order: Literal["bounds", "full"] = "full",
    verify_pages: Literal["checksum", "unpack"] = "checksum",
    server_side_copy: bool = False,
    unsorted: Literal["error", "sort", "skip"] = "error",
    assume_sorted: bool = False,
    trust_footers: bool = True,
    verify: Literal["content"] | None = None,
    sha256: bool = False,
    row_map: bool = False,
    copy_tiers: Iterable[str] = ("chunk", "page", "dict"),
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    if_exists: Literal["error", "add"] = "error",
    empty_output: bool = True,
    storage_options: StorageOptions | None = None,
    progress: OnProgress | None = None,
) -> Plan:
    """Plans a merge without running it: reads footers, and keys where footers have none.

    Files that Plait wrote have keys in their footers: then no data page is read, unless the
    requested outputs are smaller than the distance between these keys. Of other files, one page of
    each key column is read at both ends, and a few pages for every output.

    Args:
        sources: See `merge`.
        out: Where `Plan.execute` writes to by default. It is not part of the plan.
        sort_by: See `merge`.
        outputs: See `merge`.
        target_file_size: See `merge`.
        target_rows: See `merge`.
        cut_on: See `merge`.
        partition_by: See `merge`.
        partition_columns: See `merge`.
        row_group_size: See `merge`.
        row_group_rows: See `merge`.
        page_size: See `merge`.
        page_rows: See `merge`.
        align_row_groups: See `merge`.
        compression: See `merge`.
        dictionary: See `merge`.
        data_page_version: See `merge`.
        encoding: See `merge`.
        bloom_filters: See `merge`.
        value_sets: See `merge`.
        statistics: See `merge`.
        widen: See `merge`.
        missing: See `merge`.
        missing_keys: See `merge`.
        metadata_conflicts: See `merge`.
        on_duplicate: See `merge`.
        version_by: See `merge`.
        replace_columns: See `merge`.
        aggregate: See `merge`.
        delete_where: See `merge`.
        keep_tombstones: See `merge`.
        drop_where: See `merge`.
        verify_order: See `merge`.
        verify_pages: See `merge`.
        server_side_copy: See `merge`.
        unsorted: See `merge`.
        assume_sorted: See `merge`.
        trust_footers: Whether keys in footers are trusted. If one is wrong, the task that finds it
            fails; plan again with `trust_footers=False`.
        verify: See `merge`.
        sha256: See `merge`.
        row_map: See `merge`.
        copy_tiers: See `merge`.
        threads: See `merge`.
        memory_limit: See `merge`.
        if_exists: See `merge`.
        empty_output: See `merge`.
        storage_options: See `merge`. The plan object keeps them, its JSON does not.
        progress: See `merge`.

    Returns:
        The plan: sources, tasks, what to expect. Printing it draws it.

    Raises:
        PlaitError: Anything that `merge` raises before it writes.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 3]}), "a.parquet")
        >>> pq.write_table(pa.table({"k": [2, 4]}), "b.parquet")
        >>> made = plan(["a.parquet", "b.parquet"], sort_by="k", outputs=2)
        >>> [(task.rows, task.depth_max) for task in made.tasks]
        [(2, 2), (2, 2)]
        >>> made.execute("merged").rows_out
        4
    """
    options = merge_options(locals())

    def run(named: list[str], order: Ordered, said: LogColumns) -> dict[str, Any]:
        given = {**options, "sources": named, **order, **said.options()}
        return _call(_native.plan, given, storage_options, progress)

    rules = {"sort_by": options["sort_by"], "on_duplicate": on_duplicate}
    made = with_rules(run, options["sources"], storage_options, **rules, takes="deleted")
    return Plan(made, out=out, storage_options=storage_options)


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `plan` as the engine takes them, and all of one value looked at by it.

    What is not among `given` is as `plan` has it.
    """
    options = merge_options({**(plan.__kwdefaults__ or {}), "sources": [], **given})
    _native.check(json.dumps({**options, "storage_options": {}}))
    return options


def plan_knowing(
    sources: Sequence[str],
    options: Mapping[str, Any],
    known: _native.Known | None,
    progress: OnProgress | None = None,
) -> Plan:
    """The same plan, of files of which parts were read before.

    Args:
        sources: The files.
        options: Arguments of `plan`, by name.
        known: What was read of some of the files; it is served instead of reading it again.
        progress: As for `plan`.
    """
    given: dict[str, Any] = {**(plan.__kwdefaults__ or {}), **options, "sources": sources}
    storage_options = given["storage_options"]
    made = _call(_native.plan, merge_options(given), storage_options, progress, known)
    return Plan(made, storage_options=storage_options)
