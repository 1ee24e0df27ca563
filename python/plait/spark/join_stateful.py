"""A foreign-key join as stages of `transformWithState`: its state is Spark's, no file is ours.

    left ─▶ by primary key: where was the row? ─▶ by foreign key: left rows, right row ─▶ halves
    right ─────────────────────────────────────▶                                            │
                       changes ◀─ by primary key: a delete here, an insert there are one ◀──┘

Rows and keys travel and are kept as bytes: a row is an Arrow message, a key is key v1, so Python
converts no value and nothing of a type is lost on the way.

Invariants: as those of `join_step`; every stage sees all rows of a key and batch at once.
Cost: a call of Python and some of the state store for every key that changes; a right change reads
all left rows that refer to it. For small volumes.
Not here: the form that keeps sorted runs, for large ones (`join`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from plait import _native
from plait.errors import InvalidArgument, NullKey, Unsupported
from plait.order import _quoted_if_odd
from plait.spark.join_rows import OP, SEQ
from plait.spark.join_step import Joined
from plait.spark.shipping import shipped
from plait.spark.types import to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

__all__ = ["stages"]

PACKED = "side string, pk binary, fk binary, op string, seq bigint, row binary"
HALF = "pk binary, op string, row binary"
MADE = "row binary"

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# What keys begin with: of rows that refer to something, and of those that refer to nothing.
_KNOWN, _NULL = b"\1", b"\0"
_OPS = ("upsert", "insert", "update", "delete")

_Packed = Row("side", "pk", "fk", "op", "seq", "row")
_Half = Row("pk", "op", "row")
_Made = Row("row")

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def stages(joined: Joined, left: DataFrame, right: DataFrame) -> DataFrame:
    """The changes of the join of two streams of changes, one row of bytes each.

    Raises:
        InvalidArgument: The session's state store cannot hold maps.
        Unsupported: Spark is older than 4.1.
    """
    spark = left.sparkSession
    provider = spark.conf.get(_PROVIDER, None) or ""
    if not provider.endswith("RocksDBStateStoreProvider"):
        raise InvalidArgument.of(
            "transformWithState needs the state store of RocksDB",
            got=f"`{provider}`",
            hint=f'spark.conf.set("{_PROVIDER}", "{_ROCKS}")',
        )
    grouped = left.mapInArrow(shipped(_left_packed(joined)), PACKED).groupBy("pk")
    if not hasattr(grouped, "transformWithState"):
        raise Unsupported.of("transformWithState for rows needs PySpark 4.1 or newer")
    routed = grouped.transformWithState(Places(joined), PACKED, "Append", "None")
    both = routed.union(right.mapInArrow(shipped(_right_packed(joined)), PACKED))
    halves = both.groupBy("fk").transformWithState(Rows(joined), HALF, "Append", "None")
    return halves.groupBy("pk").transformWithState(Met(joined), MADE, "Append", "None")


def unpacked(joined: Joined) -> Batches:
    """Rows of bytes as changes, for `mapInArrow`."""
    schema = joined.made
    names = [n for n in schema.names if joined.before or not n.startswith("before.")]

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [_read(row, schema) for row in batch.column(0).to_pylist()]
            if rows:
                yield from pa.Table.from_batches(rows).select(names).combine_chunks().to_batches()

    return unpack


# -- rows and keys as bytes ------------------------------------------------------------------------


def _left_packed(joined: Joined) -> Batches:
    primary, foreign = (
        _Keys.of(names, joined.left) for names in (joined.left_key, joined.foreign_key)
    )

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made = []
            for i, row, op, seq, (key, refers) in _rows(batch, joined.left, primary, foreign):
                if key is None:
                    _check_null(joined, "left", joined.left_key, i)
                    continue
                # What joins nothing is alone: it would lie in one place with all its like.
                place = _NULL + key if refers is None else _KNOWN + refers
                made.append(("left", key, place, op, seq, _written(row)))
            yield _packed(made)

    return pack


def _right_packed(joined: Joined) -> Batches:
    # Of the types of the foreign key, which are its own: `_joined` has looked.
    keys = _Keys.of(joined.right_key, joined.right)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made = []
            for i, row, op, seq, (key,) in _rows(batch, joined.right, keys):
                if key is None:
                    _check_null(joined, "right", joined.right_key, i)
                    continue
                made.append(("right", b"", _KNOWN + key, op, seq, _written(row)))
            yield _packed(made)

    return pack


@dataclass(frozen=True)
class _Keys:
    """Columns that make a key, as an order."""

    sort_by: str

    @classmethod
    def of(cls, names: tuple[str, ...] | list[str], schema: pa.Schema) -> _Keys:
        order = ", ".join(_quoted_if_odd(name) for name in names)
        _native.sort_columns(order, schema)
        return cls(order)

    def of_rows(self, rows: pa.RecordBatch) -> list[bytes | None]:
        """The key of each row; `None` if a part of it is null."""
        return _native.row_keys(rows, self.sort_by)


def _rows(
    batch: pa.RecordBatch, schema: pa.Schema, *keys: _Keys
) -> Iterator[tuple[int, pa.RecordBatch, str, int | None, tuple[bytes | None, ...]]]:
    """The rows of a batch one by one: the columns of the table, what happened, its number, keys."""
    table = pa.Table.from_batches([batch]).select(schema.names).cast(schema).combine_chunks()
    ops = _column(batch, OP, "upsert")
    seqs = _column(batch, SEQ, None)
    for rows in table.to_batches():
        found = zip(*(key.of_rows(rows) for key in keys), strict=True)
        for i, (op, seq, made) in enumerate(zip(ops, seqs, found, strict=True)):
            if op not in _OPS:
                raise InvalidArgument.of(
                    f"`{OP}` is none of {', '.join(_OPS)}", got=f"`{op}` in row {i} of a batch"
                )
            yield i, rows.slice(i, 1), "delete" if op == "delete" else "upsert", seq, made


def _column(batch: pa.RecordBatch, name: str, otherwise: object) -> list[Any]:
    index = batch.schema.get_field_index(name)
    values: list[Any] = batch.column(index).to_pylist() if index >= 0 else []
    return values or [otherwise] * batch.num_rows


def _check_null(joined: Joined, side: str, names: tuple[str, ...], row: int) -> None:
    if joined.on_null_key == "error":
        raise NullKey.of(
            f"a change of the {side} table has no key",
            got=f"({', '.join(names)}) of row {row} of a batch",
            hint='drop such changes before, or pass on_null_key="drop"',
        )


def _packed(made: list[tuple[Any, ...]]) -> pa.RecordBatch:
    types = (pa.string(), pa.binary(), pa.binary(), pa.string(), pa.int64(), pa.binary())
    columns = list(zip(*made, strict=True)) or [()] * len(types)
    arrays = [pa.array(list(c), type_) for c, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["side", "pk", "fk", "op", "seq", "row"])


def _written(row: pa.RecordBatch) -> bytes:
    return bytes(row.serialize())


def _read(row: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(bytes(row)), schema)


# -- stages ----------------------------------------------------------------------------------------


def _newest(
    rows: list[Any], known: int | None, *, is_numbered: bool, side: str, names: tuple[str, ...]
) -> Any:  # noqa: ANN401 - a row of Spark, or none
    """The last change of a key in a batch, unless the state has a later one."""
    if not is_numbered:
        if len(rows) > 1:
            raise InvalidArgument.of(
                f"a {side} key changes twice in one batch, and the order of the changes is unknown",
                got=f"key ({', '.join(names)})",
                hint="give the changes a column `_seq` of whole numbers that grow",
            )
        return rows[0]
    last = max(rows, key=lambda row: row.seq)
    return None if known is not None and last.seq < known else last


class Places(StatefulProcessor):
    """By primary key: sends a change where the row goes, and a delete where it was."""

    def __init__(self, joined: Joined) -> None:
        self._joined = joined

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Where the row is, the number of its last change, whether it is there at all."""
        self._place = handle.getValueState("place", "fk binary, seq bigint, live boolean")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:  # noqa: ANN401, ARG002, N802, N803 - Spark's signature
        """At most two changes."""
        joined = self._joined
        found = self._place.get()
        old, known, is_live = (None, None, False) if found is None else found
        change = _newest(
            list(rows),
            known,
            is_numbered=joined.has_seq[0],
            side="left",
            names=joined.left_key,
        )
        if change is None:
            return
        is_delete = change.op == "delete"
        self._place.update((change.fk, change.seq, not is_delete))
        pk = bytes(key[0])
        if not is_delete:
            yield _Packed("left", pk, change.fk, "upsert", None, change.row)
        if is_live and (is_delete or bytes(old) != bytes(change.fk)):
            yield _Packed("left", pk, old, "delete", None, change.row)


class Rows(StatefulProcessor):
    """By foreign key: the left rows that refer to it, and the right row; joins them."""

    def __init__(self, joined: Joined) -> None:
        self._joined = replace(joined, has_seq=(False, False))
        self._is_numbered = joined.has_seq[1]
        self._made = self._joined.made

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Left rows by primary key; the right row, and the number of its last change."""
        self._left = handle.getMapState("left", "pk binary", "row binary")
        self._right = handle.getValueState("right", "row binary, seq bigint, live boolean")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:  # noqa: ANN401, ARG002, N802, N803 - Spark's signature
        """What a join of this key alone says: halves of changes."""
        came = list(rows)
        lefts = [row for row in came if row.side == "left"]
        rights = [row for row in came if row.side == "right"]
        found = self._right.get()
        old_right, known, is_live = (None, None, False) if found is None else found
        right = None
        if rights:
            right = _newest(
                rights,
                known,
                is_numbered=self._is_numbered,
                side="right",
                names=self._joined.right_key,
            )
        old_left = [
            value[0]
            for value in (self._left.getValue((bytes(row.pk),)) for row in lefts)
            if right is None and value is not None
        ]
        if right is not None:
            # All of them report it.
            old_left = [row[0] for _, row in self._left.iterator()]
        before = [("upsert", row) for row in old_left]
        changes = [(row.op, row.row) for row in lefts]
        yield from self._joins(
            self._sides(before, [("upsert", old_right)] if is_live else []),
            self._sides(changes, [] if right is None else [(right.op, right.row)]),
        )
        for row in lefts:
            if row.op == "delete":
                self._left.removeKey((bytes(row.pk),))
            else:
                self._left.updateValue((bytes(row.pk),), (row.row,))
        if right is not None:
            self._right.update((right.row, right.seq, right.op != "delete"))

    def _sides(self, left: list[Any], right: list[Any]) -> dict[str, pa.Table]:
        sides = {}
        for side, some, schema in (
            ("left", left, self._joined.left),
            ("right", right, self._joined.right),
        ):
            if some:
                rows = pa.Table.from_batches([_read(row, schema) for _, row in some])
                sides[side] = rows.append_column(OP, pa.array([op for op, _ in some]))
        return sides

    def _joins(self, before: dict[str, pa.Table], now: dict[str, pa.Table]) -> Iterator[Any]:
        if not now:
            return
        made = self._made
        keys = _Keys.of(self._joined.key, made)
        with self._joined.rows(None) as join:
            if before:
                for _ in join.apply(**before, step=0):
                    pass
            for some in join.apply(**now, step=1):
                batch = to_spark(pa.record_batch(some), made)
                ops = batch.column(made.get_field_index(OP)).to_pylist()
                for i, (key, op) in enumerate(zip(keys.of_rows(batch), ops, strict=True)):
                    yield _Half(key, op, _written(batch.slice(i, 1)))


class Met(StatefulProcessor):
    """By primary key: a delete in one place and an insert in another are one change."""

    def __init__(self, joined: Joined) -> None:
        self._joined, self._made = joined, joined.made

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keeps nothing: both halves come in one batch."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:  # noqa: ANN401, ARG002, N802, N803 - Spark's signature
        """One change, or none where the row is what it was."""
        halves = {row.op: row.row for row in rows}
        if len(halves) == 1:
            yield _Made(*halves.values())
            return
        schema = self._made
        new, old = (_read(halves[op], schema) for op in ("insert", "delete"))
        olds = [name for name in schema.names if name.startswith("before.")]
        values = [name for name in schema.names if name != OP and name not in olds]
        if self._joined.has_old_values and all(
            _is_same(new.column(name), old.column(f"before.{name}")) for name in values
        ):
            return
        columns = [
            pa.array(["update"], schema.field(OP).type)
            if name == OP
            else (old if name in olds else new).column(name)
            for name in schema.names
        ]
        yield _Made(_written(pa.RecordBatch.from_arrays(columns, schema=schema)))


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    # Text, for NaN is NaN here.
    return one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist())
