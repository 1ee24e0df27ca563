"""`merge_runs`: a DataFrame whose partitions hold sorted runs, merged instead of sorted.

    partition   run a: 1 4 7 │ run b: 2 3 9 │ …   ──▶   1 2 3 4 7 9 …

Invariants: rows stay in their partition; nothing is shuffled; disorder in a run is an error.
Not here: the merge of batches (`functions`), merges of files (`source`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from plait import _native
from plait._checks import (
    Aggregates,
    OnDuplicate,
    VersionBy,
    _aggregates,
    _names,
    _version_by,
)
from plait.errors import UnknownColumn
from plait.order import SortBy, sort_text
from plait.sizes import Size
from plait.spark.functions import merge_runs as _merge_runs
from plait.spark.functions import to_spark
from plait.spark.shipping import shipped
from plait.spark.types import edge_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def merge_runs(
    frame: DataFrame,
    *,
    run_column: str,
    sort_by: SortBy,
    on_duplicate: OnDuplicate = "keep_all",
    version_by: VersionBy | None = None,
    replace_columns: Iterable[str] = (),
    aggregate: Aggregates | None = None,
    delete_where: str | None = None,
    batch_rows: int = 8192,
    memory_limit: Size | None = None,
) -> DataFrame:
    """Sorts every partition of a DataFrame by merging the sorted runs that lie in it.

    The result is that of `sortWithinPartitions`, for data that arrives in sorted pieces: files of
    sorted rows, unions of sorted frames. Rows of one run must be in order within their partition.
    Of rows with equal keys, those of runs with smaller values come first.

    Args:
        frame: The rows.
        run_column: The column that names the run of a row, such as one of `input_file_name()`.
        sort_by: The order of every run, as in `plait.merge`.
        on_duplicate: Which rows of one key and partition stay, see `plait.merge_streams`.
        version_by: See there.
        replace_columns: See there.
        aggregate: See there.
        delete_where: See there.
        batch_rows: Rows of a returned batch.
        memory_limit: Memory for rows in a worker; other rows wait in local files.

    Returns:
        The rows with the same columns; each partition is sorted.

    Raises:
        UnknownColumn: A column is not in the frame.
        UnsortedSource: A run is not in order; from the task, when the frame is used.

    Example:
        >>> merged = merge_runs(frame, run_column="file", sort_by="ts")  # doctest: +SKIP
    """
    order = sort_text(sort_by) or ""
    schema = frame.schema
    _native.sort_columns(order, edge_schema(schema))
    versions = _version_by(version_by, "version_by")
    replaced = _names(replace_columns, "replace_columns")
    functions = _aggregates(aggregate, "aggregate")
    by_version = {versions: []} if isinstance(versions, str) else versions or {}
    named = [name for version, of in by_version.items() for name in (version, *of)]
    for name in (run_column, delete_where, *named, *replaced, *functions):
        if name is not None and name not in schema.names:
            raise UnknownColumn.of(f"there is no column `{name}`", got=", ".join(schema.names))

    def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = _merge_runs(
            batches,
            run_column=run_column,
            sort_by=order,
            on_duplicate=on_duplicate,
            version_by=versions,
            replace_columns=replaced,
            aggregate=functions,
            delete_where=delete_where,
            batch_rows=batch_rows,
            memory_limit=memory_limit,
        )
        return to_spark(made, schema, batch_rows=batch_rows)

    return frame.mapInArrow(shipped(merged), schema)
