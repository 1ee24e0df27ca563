"""Functions over Arrow batches, for users' own `mapInArrow` and `applyInArrow` code.

    frame.mapInArrow(lambda batches: merge_runs(batches, run_column="run", sort_by="ts"), schema)

All of them take record batches of any library, give iterators of PyArrow's, know nothing of a
session, and work in tests without one. Batches that come out are bounded.

Invariants: rows are neither lost nor made up; a batch that does not have the declared columns is an
error, for Spark itself goes by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from plait._checks import Aggregates, OnDuplicate, VersionBy
from plait._overlay import Layer, overlay
from plait._streams import ArrowBatch, merge_streams
from plait.errors import SchemaConflict
from plait.order import SortBy
from plait.sizes import Size
from plait.spark.spill import Runs
from plait.spark.types import Lossy, bounded, edge_schema, spark_schema
from plait.spark.types import to_spark as _to_spark
from plait.spark.worker import memory_limit as _memory_limit
from plait.spark.worker import threads as _threads

if TYPE_CHECKING:
    from pyspark.sql import types as st

__all__ = ["checked", "merge_runs", "merge_sorted", "overlay_batches", "to_spark"]

BATCH_ROWS_MAX = 65_536


def to_spark(
    batches: Iterable[ArrowBatch],
    schema: st.StructType | None = None,
    *,
    batch_rows: int = BATCH_ROWS_MAX,
    lossy: Lossy = "error",
) -> Iterator[pa.RecordBatch]:
    """Converts batches to the types that Spark takes, and bounds their size.

    Spark refuses batches of libraries other than PyArrow. This function makes PyArrow batches of
    them, without a copy of columns whose types stay. So a stream of Plait can be yielded from
    `mapInArrow`, as `to_spark(plait.merge_streams(...))`.

    Args:
        batches: The batches: a `plait.Stream`, or an iterable of batches of PyArrow, of Plait or
            of any library with `__arrow_c_array__`.
        schema: The Spark schema that was declared. Columns are found by name. `None` takes what
            `plait.spark.types.spark_schema` makes of the first batch.
        batch_rows: Rows of a batch, at most.
        lossy: Whether nanoseconds below a microsecond are an error, or are cut off.

    Raises:
        LossyCast: A value does not fit.
        SchemaConflict: A declared column is missing or of a type that cannot become it.

    Example:
        >>> import pyarrow as pa
        >>> batch = pa.record_batch({"n": pa.array([7], pa.uint8()), "t": pa.array(["a"])})
        >>> from pyspark.sql.types import StructType
        >>> declared = StructType().add("t", "string").add("n", "integer")
        >>> [b.to_pydict() for b in to_spark([batch], declared)]
        [{'t': ['a'], 'n': [7]}]
    """
    wanted = None if schema is None else edge_schema(schema)
    for batch in _of_pyarrow(batches):
        if wanted is None:
            wanted = edge_schema(spark_schema(batch.schema))
        for piece in bounded(batch, batch_rows):
            yield _to_spark(piece, wanted, lossy=lossy)


def checked(batches: Iterable[ArrowBatch], schema: st.StructType) -> Iterator[pa.RecordBatch]:
    """Passes on batches with the declared columns in the declared order, and refuses others.

    `mapInArrow` matches columns by position, so it does not notice that two columns of one type
    changed places.

    Raises:
        SchemaConflict: Names or types differ.

    Example:
        >>> import pyarrow as pa
        >>> batch = pa.record_batch({"b": [1], "a": [2]})
        >>> from pyspark.sql.types import StructType
        >>> next(checked([batch], StructType().add("b", "long").add("a", "long"))).num_rows
        1
    """
    wanted = edge_schema(schema)
    for batch in _of_pyarrow(batches):
        if batch.schema.names != wanted.names:
            raise SchemaConflict.of(
                "columns are not those declared",
                got=", ".join(batch.schema.names),
                hint=f"declared are {', '.join(wanted.names)}; "
                "plait.spark.functions.to_spark puts them in place",
            )
        for have, want in zip(batch.schema, wanted, strict=True):
            if have.type != want.type:
                raise SchemaConflict.of(
                    f"column `{have.name}` is not of the type declared",
                    got=f"`{have.type}`",
                    hint=f"`{want.type}` is declared; plait.spark.functions.to_spark converts",
                )
        yield batch


def merge_sorted(
    sources: Iterable[object],
    *,
    sort_by: SortBy,
    missing_keys: Literal["error", "null"] = "error",
    on_duplicate: OnDuplicate = "keep_all",
    version_by: VersionBy | None = None,
    replace_columns: Iterable[str] = (),
    aggregate: Aggregates | None = None,
    delete_where: str | None = None,
    batch_rows: int = 8192,
) -> Iterator[pa.RecordBatch]:
    """Merges sorted sources with the threads of the task: `plait.merge_streams` for a worker.

    Args:
        sources: Paths, tables, readers, iterables of batches, as for `plait.merge_streams`.
        sort_by: The order of all of them.
        missing_keys: See `plait.merge_streams`.
        on_duplicate: See there.
        version_by: See there.
        replace_columns: See there.
        aggregate: See there.
        delete_where: See there.
        batch_rows: Rows of a batch.

    Example:
        >>> import pyarrow as pa
        >>> tables = [pa.table({"k": [1, 3]}), pa.table({"k": [2]})]
        >>> [b.to_pydict() for b in merge_sorted(tables, sort_by="k")]
        [{'k': [1, 2, 3]}]
    """
    stream = merge_streams(
        list(sources),  # type: ignore[arg-type]
        sort_by=sort_by,
        missing_keys=missing_keys,
        on_duplicate=on_duplicate,
        version_by=version_by,
        replace_columns=replace_columns,
        aggregate=aggregate,
        delete_where=delete_where,
        batch_rows=batch_rows,
        threads=_threads(),
    )
    for batch in _of_pyarrow(stream):
        if batch.num_rows:
            yield batch


def merge_runs(
    batches: Iterable[ArrowBatch],
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
) -> Iterator[pa.RecordBatch]:
    """Merges the sorted runs that lie in some batches, instead of sorting all rows.

    Rows of one run must be in order, even if rows of other runs lie between them. Runs are
    distinguished by `run_column`. Of rows with equal keys, those of runs with smaller values come
    first.

    Args:
        batches: The rows of several runs.
        run_column: The column that names the run of a row: whole numbers, text, dates or the like,
            without nulls.
        sort_by: The order of every run.
        on_duplicate: See `plait.merge_streams`.
        version_by: See there.
        replace_columns: See there.
        aggregate: See there.
        delete_where: See there.
        batch_rows: Rows of a returned batch.
        memory_limit: Memory for rows that wait; other rows wait in a file. By default a share of
            what Spark gives the worker.

    Raises:
        UnsortedSource: A run is not in order.
        UnknownColumn: There is no `run_column`.

    Example:
        >>> import pyarrow as pa
        >>> batch = pa.record_batch({"run": [1, 1, 2, 2], "k": [1, 4, 2, 3]})
        >>> [b.to_pydict() for b in merge_runs([batch], run_column="run", sort_by="k")]
        [{'run': [1, 2, 2, 1], 'k': [1, 2, 3, 4]}]
    """
    with Runs(run_column, _memory_limit(memory_limit)) as runs:
        for batch in _of_pyarrow(batches):
            runs.add(batch)
        sources = runs.in_order()
        if not sources:
            return
        yield from merge_sorted(
            sources,
            sort_by=sort_by,
            on_duplicate=on_duplicate,
            version_by=version_by,
            replace_columns=replace_columns,
            aggregate=aggregate,
            delete_where=delete_where,
            batch_rows=batch_rows,
        )


def overlay_batches(
    layers: Sequence[Layer], *, index: str | None = None, row_number: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Joins layers by position: `plait.overlay` as batches.

    Example:
        >>> import pyarrow as pa
        >>> base = pa.table({"_index": [1, 2], "a": [1, 2]})
        >>> patch = pa.table({"_index": [1, 2], "b": ["x", "y"]})
        >>> [b.to_pydict() for b in overlay_batches([Layer(base), Layer(patch, ["b"])])]
        [{'_index': [1, 2], 'a': [1, 2], 'b': ['x', 'y']}]
    """
    for batch in _of_pyarrow(overlay(layers, index=index, row_number=row_number)):
        if batch.num_rows:
            yield batch


def _of_pyarrow(batches: Iterable[ArrowBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch if isinstance(batch, pa.RecordBatch) else pa.record_batch(batch)
