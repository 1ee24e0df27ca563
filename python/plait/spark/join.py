"""`foreign_key_join`: two streams of changes, and the changes of their join, once each.

    left changes ──┐                     ┌─▶ commit of batch n ─▶ sink(changes, n)
                   ├─▶ batch n ─▶ step ──┤
    right changes ─┘                     └── a batch that has its commit goes to the sink again

`foreign_key_join_batch` does one step from nothing: the join of two change feeds;
`foreign_key_join_stateful` leaves the state to Spark.

Invariants: the changes of a batch are files before the sink sees them, and the same files whenever
it sees them again; rows never pass the driver.
Not here: the step (`join_step`), its state (`join_state`), Spark's state (`join_stateful`).
"""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sf

from plait._checks import Path, _flag, _path
from plait.errors import InvalidArgument, SchemaConflict, UnknownColumn, Unsupported
from plait.join import Columns, _choice, _columns, _names
from plait.sizes import Size, parse_size
from plait.spark.join_rows import OP, SEQ
from plait.spark.join_state import Commit, Step, Store
from plait.spark.join_step import CHANGES, MOVED, Joined, Scratch
from plait.spark.join_step import met as _met
from plait.spark.join_step import routes as _routes
from plait.spark.join_step import streamed as _streamed
from plait.spark.join_step import written as _written
from plait.spark.plan import is_connect, parallelism, raised
from plait.spark.shipping import shipped
from plait.spark.types import edge_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

__all__ = ["foreign_key_join", "foreign_key_join_batch", "foreign_key_join_stateful"]

# What takes the changes of a batch: the changes, and the number of the batch.
Sink = Callable[["DataFrame", int], object]

_SHARDS_MAX = 4096
_QUERY_ID = "sql.streaming.queryId"


def foreign_key_join(
    left_changes: DataFrame,
    right_changes: DataFrame,
    *,
    left_key: Columns,
    foreign_key: Columns,
    right_key: Columns,
    checkpoint: Path,
    sink: Sink,
    how: Literal["inner", "left"] = "inner",
    columns: Mapping[str, str] | Iterable[str] | None = None,
    before: bool = False,
    on_null_key: Literal["error", "drop"] = "error",
    shards: SupportsIndex = 16,
    memory_limit: Size | None = None,
    query_name: str | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Joins two streams of changes, many left rows to one right row, and starts the query.

    Changes are as for `plait.ForeignKeyJoin`: columns of the table, `_op`, and `_seq` where a key
    may change more than once in a batch, for a shuffle keeps no order. Each batch is one step. Its
    changes are files under the checkpoint before the sink is called; if the driver dies, the sink
    is called again with the same files and the same number. A sink that knows the number of the
    last batch it took, as Delta's `txnVersion` does, has each change once.

    Args:
        left_changes: A streaming DataFrame.
        right_changes: Another one.
        left_key: Columns that identify a left row: the primary key.
        foreign_key: Columns of the left table that hold a right key.
        right_key: Columns that identify a right row, of the types of the foreign key.
        checkpoint: A folder that driver and executors see under one path: a local one, or a mount.
            It holds Spark's checkpoint and the state of the join. One query at a time may use it.
        sink: Called in the driver with the changes of a batch and its number, if there are any.
        how: `"inner"`: left rows with a right row. `"left"`: all left rows.
        columns: See `plait.ForeignKeyJoin`.
        before: Whether changes have the old values, in columns `before.*`.
        on_null_key: Whether a change without a key is an error, or left out.
        shards: Into how many parts the state is split; stays what it is for a checkpoint.
        memory_limit: Memory of the join in one task; by default a part of the worker's.
        query_name: Spark's name of the query.
        trigger: Arguments of Spark's `trigger`: `{"processingTime": "10 seconds"}`,
            `{"availableNow": True}`.

    Returns:
        Spark's query, running.

    Raises:
        UnknownColumn: A key, or one of `columns`, is not there.
        SchemaConflict: Foreign key and right key have different types.
        InvalidArgument: An option is invalid, or the checkpoint is that of another join. In the
            query also: a key changes twice in a batch that has no `_seq`.
        Unsupported: The checkpoint is not a folder, or the session is one of Spark Connect.

    Example:
        >>> query = foreign_key_join(  # doctest: +SKIP
        ...     orders, customers, left_key="order", foreign_key="customer", right_key="customer",
        ...     checkpoint="/mnt/state/orders", sink=lambda changes, batch: upsert(changes, batch),
        ... )
    """
    if is_connect(left_changes.sparkSession):
        raise Unsupported.of(
            "`foreign_key_join` calls its sink in the driver, where Spark Connect runs no caller",
            got="a session of Spark Connect",
            hint="take foreign_key_join_stateful or foreign_key_join_batch, "
            "or run the query in a session of its own driver",
        )
    for side, frame in (("left_changes", left_changes), ("right_changes", right_changes)):
        if not frame.isStreaming:
            raise InvalidArgument.of(
                f"`{side}` is not a stream",
                hint="read it with spark.readStream, or take foreign_key_join_batch",
            )
    joined = _joined(
        left_changes,
        right_changes,
        left_key=left_key,
        foreign_key=foreign_key,
        right_key=right_key,
        how=how,
        columns=columns,
        before=before,
        on_null_key=on_null_key,
        shards=shards,
        memory_limit=memory_limit,
    )
    if not callable(sink):
        raise InvalidArgument.of("`sink` is not a function", got=f"`{sink!r}`")
    location = _path(checkpoint, "checkpoint").removeprefix("file://").removeprefix("file:")
    if "://" in location:
        raise Unsupported.of(
            "the state of a join lies in a folder",
            got=f"`{location}`",
            hint="give a folder that driver and executors see, local or mounted",
        )
    store = Store(location, _identity(joined))

    def take(batch: DataFrame, number: int) -> None:
        commit = apply(batch, number, joined, store)
        if commit.count:
            files = [str(store.root / name) for name in commit.changes]
            reader = batch.sparkSession.read.schema(_declared(joined))
            sink(reader.parquet(*files), number)

    both = _side(left_changes, "left").unionByName(
        _side(right_changes, "right"), allowMissingColumns=True
    )
    writer = both.writeStream.foreachBatch(take).option("checkpointLocation", location)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if trigger is not None:
        writer = writer.trigger(**dict(trigger))
    return writer.start()


def foreign_key_join_batch(
    left_changes: DataFrame,
    right_changes: DataFrame,
    *,
    left_key: Columns,
    foreign_key: Columns,
    right_key: Columns,
    how: Literal["inner", "left"] = "inner",
    columns: Mapping[str, str] | Iterable[str] | None = None,
    before: bool = False,
    on_null_key: Literal["error", "drop"] = "error",
    shards: SupportsIndex = 16,
    memory_limit: Size | None = None,
) -> DataFrame:
    """Joins two change feeds from nothing: what the stream would have in the end, as inserts.

    Args:
        left_changes: All changes of the left table. `_seq` says which change of a key is the last.
        right_changes: All changes of the right table.
        left_key: See `foreign_key_join`.
        foreign_key: See there.
        right_key: See there.
        how: See there.
        columns: See there.
        before: See there.
        on_null_key: See there.
        shards: Into how many parts the work is split: each must fit into a task.
        memory_limit: See there.

    Returns:
        One row with `_op` `"insert"` for each row of the join.

    Raises:
        UnknownColumn: A key, or one of `columns`, is not there.
        SchemaConflict: Foreign key and right key have different types.
        InvalidArgument: An option is invalid; from tasks: a key changes twice, without `_seq`.

    Example:
        >>> changes = foreign_key_join_batch(  # doctest: +SKIP
        ...     orders, customers, left_key="order", foreign_key="customer", right_key="customer"
        ... )
    """
    joined = _joined(
        left_changes,
        right_changes,
        left_key=left_key,
        foreign_key=foreign_key,
        right_key=right_key,
        how=how,
        columns=columns,
        before=before,
        on_null_key=on_null_key,
        shards=shards,
        memory_limit=memory_limit,
    )
    scratch = Scratch()
    changes = _streamed(joined, scratch, _routes(joined, scratch, left_changes), right_changes)
    return changes.select(*[_column(field.name) for field in _declared(joined).fields])


def foreign_key_join_stateful(
    left_changes: DataFrame,
    right_changes: DataFrame,
    *,
    left_key: Columns,
    foreign_key: Columns,
    right_key: Columns,
    how: Literal["inner", "left"] = "inner",
    columns: Mapping[str, str] | Iterable[str] | None = None,
    before: bool = False,
    on_null_key: Literal["error", "drop"] = "error",
) -> DataFrame:
    """Joins two streams of changes with state in Spark's own state store: for small volumes.

    The changes are those of `foreign_key_join`, as a streaming DataFrame that may go on to any
    sink in append mode. Its checkpoint may be in an object store. Three stages of
    `transformWithState` follow each other; every key that changes costs a call of Python.

    Args:
        left_changes: A streaming DataFrame.
        right_changes: Another one.
        left_key: See `foreign_key_join`.
        foreign_key: See there.
        right_key: See there.
        how: See there.
        columns: See there.
        before: See there.
        on_null_key: See there.

    Returns:
        The changes of the join, each batch those of its batch.

    Raises:
        UnknownColumn: A key, or one of `columns`, is not there.
        SchemaConflict: Foreign key and right key have different types.
        InvalidArgument: An option is invalid, or the session's state store is not that of
            RocksDB. In the query also: a key changes twice in a batch that has no `_seq`.
        Unsupported: PySpark is older than 4.1.

    Example:
        >>> changes = foreign_key_join_stateful(  # doctest: +SKIP
        ...     orders, customers, left_key="order", foreign_key="customer", right_key="customer"
        ... )
    """
    from plait.spark.join_stateful import stages, unpacked  # noqa: PLC0415 - needs protobuf

    joined = _joined(
        left_changes,
        right_changes,
        left_key=left_key,
        foreign_key=foreign_key,
        right_key=right_key,
        how=how,
        columns=columns,
        before=before,
        on_null_key=on_null_key,
        shards=1,
        memory_limit=None,
    )
    packed = stages(joined, left_changes, right_changes)
    return packed.mapInArrow(shipped(unpacked(joined)), _declared(joined))


def apply(batch: DataFrame, number: int, joined: Joined, store: Store) -> Commit:
    """Applies one batch of both sides, unless it has its commit, and gives the commit."""
    spark = batch.sparkSession
    query = spark.sparkContext.getLocalProperty(_QUERY_ID) or ""
    last = store.last(query)
    if last is not None and last.batch >= number:
        if last.batch > number:
            # Spark goes back by one batch at most; more is a checkpoint put together by hand.
            return store.read(number, query)
        return last
    step = store.step(number, last)
    batch.persist()
    try:
        left, right = (_of(batch, side) for side in ("left", "right"))
        made = _written(joined, step, _routes(joined, step, left), right)
        reports = [(row["shard"], json.loads(row["report"])) for row in made.collect()]
    except Exception as cause:
        error = raised(cause)
        if error is None:
            raise
        raise error from cause
    finally:
        batch.unpersist()
    counts: Counter[str] = Counter()
    for _, report in reports:
        counts.update(report)
    files, count = _files(spark, joined, store, step, reports)
    return store.commit(
        Commit(
            number,
            query,
            store.made(step, "places"),
            store.made(step, "rows"),
            tuple(files),
            count,
            dict(counts),
        )
    )


def _files(
    spark: SparkSession,
    joined: Joined,
    store: Store,
    step: Step,
    reports: list[tuple[int, dict[str, int]]],
) -> tuple[list[str], int]:
    """Files with the changes of a step, and how many these are; halves of moved rows meet."""
    files = [
        f"rows/{shard}/{step.name}/{CHANGES}" for shard, counts in reports if counts["changes"]
    ]
    count = sum(counts["changes"] for _, counts in reports)
    halves = [f"rows/{shard}/{step.name}/{MOVED}" for shard, counts in reports if counts["moved"]]
    if halves:
        out = f"moved/{step.name}"
        moved = spark.read.schema(spark_schema(joined.made))
        frame = moved.parquet(*[str(store.root / name) for name in halves])
        _met(joined, frame).write.parquet(str(store.root / out))
        for path in sorted((store.root / out).glob("part-*.parquet")):
            if rows := pq.read_metadata(path).num_rows:
                files.append(f"{out}/{path.name}")
                count += rows
    return files, count


def _side(frame: DataFrame, side: str) -> DataFrame:
    return frame.select(sf.struct(*[_column(name) for name in frame.columns]).alias(side))


def _of(batch: DataFrame, side: str) -> DataFrame:
    return batch.where(sf.col(side).isNotNull()).select(f"{side}.*")


def _column(name: str) -> Any:  # noqa: ANN401 - a column of either kind of session
    return sf.col("`" + name.replace("`", "``") + "`")


def _declared(joined: Joined) -> StructType:
    """The columns of changes, as users get them."""
    keep = [f for f in joined.made if joined.before or not f.name.startswith("before.")]
    return spark_schema(pa.schema(keep))


def _identity(joined: Joined) -> dict[str, Any]:
    """What must not change between runs of one checkpoint."""
    return {
        "left_key": list(joined.left_key),
        "foreign_key": list(joined.foreign_key),
        "right_key": list(joined.right_key),
        "how": joined.how,
        "columns": None if joined.columns is None else [list(pair) for pair in joined.columns],
        "before": joined.before,
        "left": [f"{field.name}: {field.type}" for field in joined.left],
        "right": [f"{field.name}: {field.type}" for field in joined.right],
        "has_seq": list(joined.has_seq),
        "shards": joined.shards,
    }


def _joined(
    left: DataFrame,
    right: DataFrame,
    *,
    left_key: Columns,
    foreign_key: Columns,
    right_key: Columns,
    how: Any,  # noqa: ANN401 - checked here
    columns: Any,  # noqa: ANN401 - checked here
    before: bool,
    on_null_key: Any,  # noqa: ANN401 - checked here
    shards: SupportsIndex,
    memory_limit: Size | None,
) -> Joined:
    """The options, checked, as a join of no rows checks them, too."""
    count = operator.index(shards)
    if not 1 <= count <= _SHARDS_MAX:
        raise InvalidArgument.of(f"`shards` is not from 1 to {_SHARDS_MAX}", got=f"`{count}`")
    keys = {
        "left_key": tuple(_names(left_key, "left_key")),
        "foreign_key": tuple(_names(foreign_key, "foreign_key")),
        "right_key": tuple(_names(right_key, "right_key")),
    }
    for option, frame in (("left_key", left), ("foreign_key", left), ("right_key", right)):
        for name in keys[option]:
            if name not in frame.columns:
                raise UnknownColumn.of(
                    f"`{option}` names no column", got=f"`{name}`", hint=", ".join(frame.columns)
                )
    schemas = [edge_schema(frame.schema) for frame in (left, right)]
    tables = [pa.schema([f for f in schema if f.name not in {OP, SEQ}]) for schema in schemas]
    for ours, theirs in zip(keys["foreign_key"], keys["right_key"], strict=False):
        types = tables[0].field(ours).type, tables[1].field(theirs).type
        if types[0] != types[1]:
            raise SchemaConflict.of(
                "foreign key and right key have different types",
                got=f"`{ours}` is {types[0]}, `{theirs}` is {types[1]}",
                hint="cast one of them",
            )
    joined = Joined(
        **keys,
        how=_choice(how, "how"),
        columns=None if columns is None else tuple(_columns(columns)),
        before=_flag(before, "before") is True,
        on_null_key=_choice(on_null_key, "on_null_key"),
        left=tables[0],
        right=tables[1],
        has_seq=(SEQ in schemas[0].names, SEQ in schemas[1].names),
        shards=count,
        tasks=max(1, min(count, parallelism(left.sparkSession))),
        memory_limit=None if memory_limit is None else parse_size(memory_limit, "memory_limit"),
    )
    _ = joined.made
    return joined
