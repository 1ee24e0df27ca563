"""One step of a join on Spark: left changes by primary key, then both sides by foreign key.

    left ─▶ by key(PK) ─▶ places ─▶ where a row is, where it was ─┐
                                                                  ├─▶ by key(FK) ─▶ rows ─▶ changes
    right ────────────────────────────────────────────────────────┘
                                           a row that moved: a delete there, an insert here ─▶ one

`places` and `rows` are `plait.ForeignKeyJoin`s, one for each shard. That of places joins nothing:
it remembers the foreign key of every primary key, which says where the old row is when a left row
moves or goes.

Invariants: what is shuffled depends on the changes and the state alone, so it is the same when a
task is done again. Each shard sees at most one left change a primary key.
Cost: a left change is shuffled twice, a right change once, a change of a row that moved once more.
The changes of one shard in one batch are held in memory.
Not here: which versions count (`join_state`), the stream (`join`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf

from plait.errors import InvalidArgument
from plait.join import ForeignKeyJoin
from plait.spark.join_rows import OP, SEQ, ChangeFiles, as_struct, as_table, rows_of, with_seq
from plait.spark.join_state import STATE
from plait.spark.shipping import shipped
from plait.spark.types import edge_schema, spark_schema, to_spark
from plait.spark.worker import memory_limit as _memory_limit
from plait.spark.worker import threads

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

CHANGES, MOVED = "changes.parquet", "moved.parquet"
_REPORT = "shard int, report string"
_ROW_BITS = 40


@dataclass(frozen=True)
class Joined:
    """What is joined with what, as it travels to tasks.

    Attributes:
        left_key: Columns of the primary key.
        foreign_key: Columns of the left table that hold a right key.
        right_key: Columns of the right key.
        how: `"inner"` or `"left"`.
        columns: New names and the names they have without, `None` for all.
        before: Whether changes have the old values.
        on_null_key: `"error"` or `"drop"`.
        left: Columns of the left table.
        right: Columns of the right table.
        has_seq: Whether left and right changes are numbered.
        shards: How many shards there are.
        tasks: How many tasks a stage has.
        memory_limit: Bytes of one task.
    """

    left_key: tuple[str, ...]
    foreign_key: tuple[str, ...]
    right_key: tuple[str, ...]
    how: Any
    columns: tuple[tuple[str, str], ...] | None
    before: bool
    on_null_key: Any
    left: pa.Schema
    right: pa.Schema
    has_seq: tuple[bool, bool]
    shards: int
    tasks: int
    memory_limit: int | None

    def rows(self, state: Path | None) -> ForeignKeyJoin:
        """The join of one shard."""
        return ForeignKeyJoin(
            left_key=self.left_key,
            foreign_key=self.foreign_key,
            right_key=self.right_key,
            how=self.how,
            columns=None if self.columns is None else dict(self.columns),
            before=self.has_old_values,
            on_null_key=self.on_null_key,
            left_schema=self.left,
            right_schema=with_seq(self.right, has_seq=self.has_seq[1]),
            state=state,
            memory_limit=_memory_limit(self.memory_limit),
            threads=threads(),
        )

    def places(self, state: Path | None) -> ForeignKeyJoin:
        """The index of one shard: primary keys `k…`, foreign keys `f…`, where the change is."""
        keys = [(f"k{i}", self.left.field(n).type) for i, n in enumerate(self.left_key)]
        foreign = [(f"f{i}", self.left.field(n).type) for i, n in enumerate(self.foreign_key)]
        return ForeignKeyJoin(
            left_key=[name for name, _ in keys],
            foreign_key=[name for name, _ in foreign],
            right_key=[name for name, _ in foreign],
            how="left",
            before=True,
            on_null_key=self.on_null_key,
            left_schema=with_seq(
                pa.schema([*keys, *foreign, ("row", pa.int64())]), has_seq=self.has_seq[0]
            ),
            right_schema=pa.schema(foreign),
            state=state,
            memory_limit=_memory_limit(self.memory_limit),
            threads=threads(),
        )

    @property
    def has_old_values(self) -> bool:
        """Whether shards report old values: else a row that moved might be one that is the same."""
        named = {of for _, of in self.columns or ()}
        return self.before or (self.columns is not None and not named.issuperset(self.foreign_key))

    @property
    def made(self) -> pa.Schema:
        """The columns of a shard's changes, as Spark has them."""
        return edge_schema(spark_schema(pa.schema(self.rows(None).schema)))

    @property
    def key(self) -> list[str]:
        """What the columns of the primary key are called in changes."""
        if self.columns is None:
            return list(self.left_key)
        return [next(new for new, of in self.columns if of == name) for name in self.left_key]


class Versions(Protocol):
    """Where a step keeps its state: a `Step` of a checkpoint, or nowhere."""

    @property
    def batch(self) -> int:
        """The number of the step."""

    def version(self, kind: str, shard: int) -> Any:  # noqa: ANN401 - a context
        """A folder for the next version of a shard."""


@dataclass(frozen=True)
class Scratch:
    """Versions of a join without a past and without a future: in the folder of the task."""

    batch: int = 0

    @contextmanager
    def version(self, kind: str, shard: int) -> Iterator[Path]:
        """An empty folder that goes with the block."""
        with tempfile.TemporaryDirectory(prefix=f"plait-{kind}-{shard}-") as folder:
            yield Path(folder)


# -- by primary key --------------------------------------------------------------------------------


def routes(joined: Joined, versions: Versions, left: DataFrame) -> DataFrame:
    """Left changes with the shard of their row, and a delete for the shard that it leaves."""
    row = [sf.col(_quoted(name)) for name in left.columns]
    keyed = left.select(
        _shard(joined, [sf.col(_quoted(name)) for name in joined.left_key]).alias("shard"),
        sf.struct(*row).alias("row"),
    ).repartition(joined.tasks, "shard")
    foreign = pa.struct(
        [(f"f{i}", joined.left.field(n).type) for i, n in enumerate(joined.foreign_key)]
    )
    declared = spark_schema(
        pa.schema(
            {
                OP: pa.string(),
                "had": pa.bool_(),
                "old": foreign,
                "row": pa.struct(list(joined.left)),
            }
        )
    )
    routed = keyed.groupBy("shard").applyInArrow(
        shipped(_placed(joined, versions, declared)), declared
    )
    # A row that joins nothing lies with its primary key.
    keys = [sf.col(f"row.{_quoted(name)}") for name in joined.left_key]
    here = _shard(joined, [sf.col(f"row.{_quoted(name)}") for name in joined.foreign_key], keys)
    there = _shard(joined, [sf.col(f"old.f{i}") for i in range(len(joined.foreign_key))], keys)
    is_delete = sf.col(OP) == "delete"
    moved = ~is_delete & sf.col("had") & (here != there)

    def sent(shard: Column, op: str, is_moved: bool) -> Column:  # noqa: FBT001 - a literal
        return sf.struct(
            shard.alias("shard"), sf.lit(op).alias(OP), sf.lit(is_moved).alias("moved")
        )

    sends = (
        sf.when(is_delete, sf.array(sent(there, "delete", is_moved=False)))
        .when(
            moved,
            sf.array(sent(here, "upsert", is_moved=True), sent(there, "delete", is_moved=True)),
        )
        .otherwise(sf.array(sent(here, "upsert", is_moved=False)))
    )
    return routed.select(sf.explode(sends).alias("to"), "row").select("to.*", "row")


def _placed(
    joined: Joined, versions: Versions, declared: StructType
) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    schema = edge_schema(declared)

    def place(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        left = rows_of(table["row"], joined.left, has_seq=joined.has_seq[0])
        names = {f"k{i}": name for i, name in enumerate(joined.left_key)}
        names |= {f"f{i}": name for i, name in enumerate(joined.foreign_key)}
        given = {new: left[name] for new, name in names.items()}
        # Every change has another value than any before, so that each comes out again.
        start = (versions.batch + 1) << _ROW_BITS
        given["row"] = pa.array(range(start, start + left.num_rows), pa.int64())
        given |= {name: left[name] for name in (OP, SEQ) if name in left.column_names}
        with (
            versions.version("places", key[0].as_py()) as folder,
            joined.places(folder / STATE) as places,
        ):
            changes = pa.table(places.apply(left=pa.table(given), step=versions.batch))
            _check_once(joined, places, "left", is_numbered=joined.has_seq[0])
        changed = left.select(joined.left.names).take(pc.subtract(changes["row"], start))
        for i, name in enumerate(joined.left_key):
            # A delete has its primary key alone.
            index = changed.schema.get_field_index(name)
            changed = changed.set_column(index, changed.schema.field(index), changes[f"k{i}"])
        old = [changes[f"before.f{i}"] for i in range(len(joined.foreign_key))]
        ops = changes[OP]
        return as_table(
            [
                pc.if_else(pc.equal(ops, "delete"), "delete", "upsert"),
                pc.not_equal(ops, "insert"),
                as_struct(old, schema.field("old").type),
                as_struct(changed.columns, schema.field("row").type),
            ],
            schema,
        )

    return place


# -- by foreign key --------------------------------------------------------------------------------


def by_shard(joined: Joined, routed: DataFrame, right: DataFrame) -> Any:  # noqa: ANN401 - no name
    """Both sides, grouped by shard."""
    keys = [sf.col(_quoted(name)) for name in joined.right_key]
    row = [sf.col(_quoted(name)) for name in right.columns]
    sided = right.select(_shard(joined, keys).alias("shard"), sf.struct(*row).alias("row"))
    sides = [side.repartition(joined.tasks, "shard").groupBy("shard") for side in (routed, sided)]
    return sides[0].cogroup(sides[1])


def written(joined: Joined, versions: Versions, routed: DataFrame, right: DataFrame) -> DataFrame:
    """Writes the changes of each shard next to its next version, and reports them: one row each."""
    schema = joined.made

    def write(key: tuple[pa.Scalar, ...], left: pa.Table, right: pa.Table) -> pa.Table:
        shard = key[0].as_py()
        with (
            versions.version("rows", shard) as folder,
            joined.rows(folder / STATE) as rows,
            ChangeFiles(folder, schema) as writers,
        ):
            before, moved = rows.stats, _moved(joined, left)
            for batch in _changes(joined, rows, versions.batch, left, right):
                mine, met = (batch, None) if moved is None else _apart(batch, moved, joined.key)
                writers.write(CHANGES, mine)
                if met is not None:
                    writers.write(MOVED, met)
            stats = rows.stats
            report = {
                "changes": writers.rows.get(CHANGES, 0),
                "moved": writers.rows.get(MOVED, 0),
                "left_changes": stats.left_changes - before.left_changes,
                "right_changes": stats.right_changes - before.right_changes,
                "null_keys": stats.null_keys - before.null_keys,
                "stale": stats.stale - before.stale,
                "merges": stats.merges - before.merges,
            }
        return pa.table(
            {"shard": pa.array([shard], pa.int32()), "report": pa.array([json.dumps(report)])}
        )

    made: DataFrame = by_shard(joined, routed, right).applyInArrow(shipped(write), _REPORT)
    return made


def streamed(joined: Joined, versions: Versions, routed: DataFrame, right: DataFrame) -> DataFrame:
    """The changes of all shards, where none has a past: no row moves."""
    schema = joined.made

    def stream(key: tuple[pa.Scalar, ...], left: pa.Table, right: pa.Table) -> pa.Table:
        with (
            versions.version("rows", key[0].as_py()) as folder,
            joined.rows(folder / STATE) as rows,
        ):
            batches = _changes(joined, rows, versions.batch, left, right)
            return pa.Table.from_batches([to_spark(b, schema) for b in batches], schema=schema)

    made: DataFrame = by_shard(joined, routed, right).applyInArrow(
        shipped(stream), spark_schema(schema)
    )
    return made


def _changes(
    joined: Joined, rows: ForeignKeyJoin, batch: int, left: pa.Table, right: pa.Table
) -> Iterator[pa.RecordBatch]:
    sides: dict[str, pa.Table] = {}
    if left.num_rows:
        came = rows_of(left["row"], joined.left, has_seq=False)
        sides["left"] = came.select(joined.left.names).append_column(OP, left[OP])
    if right.num_rows:
        sides["right"] = rows_of(right["row"], joined.right, has_seq=joined.has_seq[1])
    stream = rows.apply(**sides, step=batch)
    _check_once(joined, rows, "right", is_numbered=joined.has_seq[1])
    for made in stream:
        found = pa.record_batch(made)
        if found.num_rows:
            yield found


def _moved(joined: Joined, left: pa.Table) -> pa.Table | None:
    """Primary keys of rows that came from another shard or went to one, under their new names."""
    if not left.num_rows or not pc.any(left["moved"]).as_py():
        return None
    rows = rows_of(left["row"], joined.left, has_seq=False).filter(left["moved"])
    return rows.select(joined.left_key).rename_columns(joined.key)


def _apart(
    batch: pa.RecordBatch, moved: pa.Table, key: list[str]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Changes that are whole, and those of which another shard has the other half."""
    marks = moved.append_column("\0moved", pa.array([True] * moved.num_rows))
    numbered = pa.Table.from_batches([batch.select(key)]).append_column(
        "\0row", pa.array(range(batch.num_rows), pa.int64())
    )
    met = numbered.join(marks, keys=key, join_type="inner")["\0row"]
    is_met = pc.is_in(pa.array(range(batch.num_rows), pa.int64()), value_set=met)
    return batch.filter(pc.invert(is_met)), batch.filter(is_met)


# -- rows that moved -------------------------------------------------------------------------------


def met(joined: Joined, moved: DataFrame) -> DataFrame:
    """A delete in one shard and an insert in another, of one primary key, as one change.

    Args:
        joined: The join.
        moved: Changes of shards, at most two a primary key.

    Returns:
        One change for each key at most: none where the row is what it was.
    """
    names = joined.made.names
    values = [name for name in names if name != OP and not name.startswith("before.")]
    olds = [name for name in names if name.startswith("before.")]
    every = sf.struct(*[sf.col(_quoted(name)) for name in names])
    keys = [sf.col(_quoted(name)).alias(f"\0k{i}") for i, name in enumerate(joined.key)]
    pairs = (
        moved.repartition(joined.tasks, *[sf.col(_quoted(name)) for name in joined.key])
        .groupBy(*keys)
        .agg(
            sf.first(sf.when(sf.col(OP) == "insert", every), ignorenulls=True).alias("new"),
            sf.first(sf.when(sf.col(OP) == "delete", every), ignorenulls=True).alias("old"),
        )
    )
    is_new, is_old = sf.col("new").isNotNull(), sf.col("old").isNotNull()
    op = sf.when(is_new & is_old, "update").when(is_new, "insert").otherwise("delete")
    columns = [op.alias(OP)]
    for name in values:
        new, old = sf.col(f"new.{_quoted(name)}"), sf.col(f"old.{_quoted(name)}")
        columns.append(sf.when(is_new, new).otherwise(old).alias(name))
    columns += [sf.col(f"old.{_quoted(name)}").alias(name) for name in olds]
    if joined.has_old_values:
        same = sf.lit(True)  # noqa: FBT003 - a literal of Spark
        for name in values:
            new, old = sf.col(f"new.{_quoted(name)}"), sf.col(f"old.{_quoted('before.' + name)}")
            same = same & new.eqNullSafe(old)
        pairs = pairs.where(~(is_new & is_old & same))
    return pairs.select(*columns)


# -- tables ----------------------------------------------------------------------------------------


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _shard(joined: Joined, keys: list[Column], otherwise: list[Column] | None = None) -> Column:
    shard = sf.pmod(sf.xxhash64(*keys), sf.lit(joined.shards)).cast("int")
    if otherwise is None:
        return shard
    known = keys[0].isNotNull()
    for key in keys[1:]:
        known = known & key.isNotNull()
    return sf.when(known, shard).otherwise(_shard(joined, otherwise))


def _check_once(joined: Joined, join: ForeignKeyJoin, side: str, *, is_numbered: bool) -> None:
    """A shuffle has no order: which of two changes is the last, only a number can say."""
    if not is_numbered and join.stats.folded:
        keys = joined.left_key if side == "left" else joined.right_key
        raise InvalidArgument.of(
            f"a {side} key changes twice in one batch, and the order of the changes is unknown",
            got=f"key ({', '.join(keys)})",
            hint="give the changes a column `_seq` of whole numbers that grow",
        )
