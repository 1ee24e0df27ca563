"""`overlay`: layers joined by position, on executors; files by path, DataFrames by row number.

    files       rows a..b of every layer ─▶ one task, no shuffle
    DataFrames  rows ─▶ shuffled to the task of their row number, sorted there ─▶ the same task

      task   layer 0 ▒▒▒▒▒▒▒▒ ─┐
             layer 1 ▒▒▒▒▒▒▒▒ ─┴─▶ plait.overlay ─▶ Arrow batches

Invariants: row i of a layer is row i of all others, or the task fails with `RowMismatch`; every row
is in one task, also where a layer lacks it.
Not here: the overlay of batches (`plait.overlay`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from plait._overlay import Layer, StructValidity
from plait._overlay import overlay as _overlay
from plait._read import SortedRead, read, read_rows
from plait.errors import InvalidArgument, RowMismatch, SchemaDrift, SourceFailed, UnknownColumn
from plait.spark.folder import listed
from plait.spark.functions import to_spark
from plait.spark.shipping import shipped
from plait.spark.types import Lossy, edge_schema, spark_schema
from plait.spark.worker import memory_limit as _memory_limit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_ROWS = 16_384
_LIMIT_BYTES_MIN = 16_000_000


@dataclass(frozen=True)
class _Files:
    """A layer of files: paths, their rows, their schema."""

    paths: tuple[str, ...]
    rows: tuple[int, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, paths: Sequence[str]) -> _Files:
        rows, schema = [], None
        for path in paths:
            file = read(path, sort_by=[])
            found = pa.schema(file.schema)
            rows.append(file.explain().rows)
            # Field ids are metadata of fields: other ids are other columns.
            if schema is not None and not _same(found, schema):
                raise SchemaDrift.of("files of one layer have different columns", got=f"`{path}`")
            schema = found
        return cls(tuple(paths), tuple(rows), schema)

    def stream(self, start: int, end: int, memory_limit: int) -> SortedRead:
        """Rows `start..end` of the files as if they were one."""
        limit = max(memory_limit, _LIMIT_BYTES_MIN)
        options: dict[str, Any] = {"batch_rows": _BATCH_ROWS, "threads": 1, "memory_limit": limit}
        return read_rows(self.paths, start, end, **options)


def _same(one: pa.Schema, other: pa.Schema) -> bool:
    return len(one) == len(other) and all(
        a.equals(b, check_metadata=True) for a, b in zip(one, other, strict=True)
    )


@dataclass(frozen=True)
class _Options:
    """What `plait.overlay` is given in every task."""

    layers: tuple[tuple[Any, str, int | None], ...]
    index: str | None
    row_number: str | None
    struct_validity: StructValidity
    check_unused: bool

    def overlay(self, streams: Sequence[object]) -> Any:  # noqa: ANN401 - a stream of ours
        layers = [
            Layer(stream, paths, name, precedence)
            for stream, (paths, name, precedence) in zip(streams, self.layers, strict=True)
        ]
        return _overlay(
            layers,
            index=self.index,
            row_number=self.row_number,
            struct_validity=self.struct_validity,
            check_unused=self.check_unused,
        )


def overlay(
    spark: SparkSession,
    layers: Iterable[Layer],
    *,
    index: str | None = None,
    row_number: str | None = None,
    struct_validity: StructValidity = "any",
    check_unused: bool = True,
    part_rows: int = 1_000_000,
    lossy: Lossy = "error",
) -> DataFrame:
    """Combines layers by position: `plait.overlay` on executors.

    Args:
        spark: The session.
        layers: The layers, as for `plait.overlay`. `stream` is a path, a list of paths whose rows
            follow one another, or a DataFrame.
        index: The name of the index column of every layer; `_index` by default.
        row_number: The column that numbers the rows of all layers, from 0 and without gaps. It is
            needed where a layer is a DataFrame, whose rows have no order.
        struct_validity: See `plait.overlay`.
        check_unused: See there.
        part_rows: Rows of a task.
        lossy: Whether nanoseconds below a microsecond are an error, or are cut off.

    Returns:
        The index, then columns in the order in which layers name them.

    Raises:
        RowMismatch: Layers of files have different numbers of rows; or, from a task, layers do not
            hold the same rows.
        InvalidArgument: A layer is a DataFrame and there is no `row_number`.
        PlaitError: What `plait.overlay` raises.

    Example:
        >>> layers = [Layer("base"), Layer("labels", ["label"])]
        >>> frame = overlay(spark, layers)  # doctest: +SKIP
    """
    layers = list(layers)
    if not layers or part_rows < 1:
        raise InvalidArgument.of("an overlay needs layers, and a part a row")
    sources = [_source(layer) for layer in layers]
    options = _Options(
        tuple(
            (layer.paths, layer.name if layer.name is not None else str(i), layer.precedence)
            for i, layer in enumerate(layers)
        ),
        index,
        row_number,
        struct_validity,
        check_unused,
    )
    schemas = [
        source.schema if isinstance(source, _Files) else edge_schema(source.schema)
        for source in sources
    ]
    made = options.overlay([schema.empty_table() for schema in schemas])
    declared = spark_schema(pa.schema(made.schema))
    files = {i: source for i, source in enumerate(sources) if isinstance(source, _Files)}
    totals = {sum(source.rows) for source in files.values()}
    if len(totals) > 1:
        raise RowMismatch.of(
            "layers have different numbers of rows",
            got=", ".join(f"{options.layers[i][1]}: {sum(f.rows)}" for i, f in files.items()),
        )
    total = totals.pop() if totals else 0
    parts = -(-total // part_rows)

    def joined(streams: Sequence[object]) -> Iterator[pa.RecordBatch]:
        batches = (pa.record_batch(batch) for batch in options.overlay(streams))
        return to_spark(batches, declared, batch_rows=_BATCH_ROWS, lossy=lossy)

    if len(files) == len(sources):

        def of_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            limit = _memory_limit() // (2 * len(files))
            for batch in batches:
                for part in batch.column(0).to_pylist():
                    start, end = part * part_rows, min((part + 1) * part_rows, total)
                    yield from joined([f.stream(start, end, limit) for f in files.values()])

        return spark.range(0, parts, 1, max(parts, 1)).mapInArrow(shipped(of_files), declared)

    if row_number is None:
        raise InvalidArgument.of(
            "rows of a DataFrame have no order",
            hint='number the rows of all layers, and pass row_number="column"',
        )
    frames = {i: source for i, source in enumerate(sources) if isinstance(source, DataFrame)}
    of_rows, count = {i: schemas[i] for i in frames}, len(sources)
    rows = _shuffled(spark, frames, row_number, part_rows, parts)

    def of_frames(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        limit = _memory_limit() // (2 * count)
        feed = _Feed(batches, of_rows)
        while (part := feed.next_part()) is not None:
            # Behind the files' last row there may be none; overlay says so.
            start, end = part * part_rows, min((part + 1) * part_rows, total)
            streams: list[object] = [
                files[i].stream(start, end, limit) if i in files else feed.reader(i)
                for i in range(count)
            ]
            try:
                yield from joined(streams)
            except SourceFailed:
                if feed.failure is not None:
                    raise feed.failure from None
                raise

    return rows.mapInArrow(shipped(of_frames), declared)


def _source(layer: Layer) -> _Files | DataFrame:
    stream = layer.stream
    if isinstance(stream, DataFrame) or hasattr(stream, "mapInArrow"):
        return stream  # type: ignore[return-value]
    paths = [stream] if isinstance(stream, str | os.PathLike) else stream
    if not isinstance(paths, Iterable):
        raise InvalidArgument.of(
            "a layer is neither files nor a DataFrame", got=f"`{type(stream).__name__}`"
        )
    return _Files.of([os.path.abspath(f) for f in listed(os.fspath(path) for path in paths)])  # noqa: PTH100 - tasks run elsewhere


def _shuffled(
    spark: SparkSession,
    frames: dict[int, DataFrame],
    row_number: str,
    part_rows: int,
    parts: int,
) -> DataFrame:
    """Rows of all frames by part, row and layer; one row more for every part that files have."""
    dealt = []
    for i, frame in frames.items():
        if row_number not in frame.columns:
            raise UnknownColumn.of(
                f"a layer has no column `{row_number}`", got=", ".join(frame.columns)
            )
        row = sf.col(f"`{row_number}`").cast("long")
        columns = [sf.col(f"`{name}`") for name in frame.columns]
        dealt.append(
            frame.select(
                sf.floor(row / part_rows).cast("long").alias("part"),
                row.alias("row"),
                sf.lit(i).alias("layer"),
                sf.struct(*columns).alias(f"l{i}"),
            )
        )
    marks = spark.range(0, parts, 1, 1).select(
        sf.col("id").alias("part"), sf.lit(-1).cast("long").alias("row"), sf.lit(-1).alias("layer")
    )
    rows = marks
    for frame in dealt:
        rows = rows.unionByName(frame, allowMissingColumns=True)
    return rows.repartition("part").sortWithinPartitions("part", "row", "layer")


class _Feed:
    """Rows of several layers that come in turns, as a reader for each layer of each part."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schemas: dict[int, pa.Schema]) -> None:
        self._batches = iter(batches)
        self._schemas = schemas
        self._waiting: deque[pa.RecordBatch] = deque()  # of parts to come
        self._held: dict[int, deque[pa.RecordBatch]] = {i: deque() for i in schemas}
        self._part: int | None = None
        self.failure: Exception | None = None

    def next_part(self) -> int | None:
        """The next part; what is left of the one before is skipped."""
        while self._more():
            pass
        for held in self._held.values():
            held.clear()
        self._part = None
        batch = self._peek()
        if batch is not None:
            self._part = batch.column(0)[0].as_py()
        return self._part

    def reader(self, layer: int) -> pa.RecordBatchReader:
        """The rows of a layer in the current part."""
        return pa.RecordBatchReader.from_batches(self._schemas[layer], self._rows(layer))

    def _rows(self, layer: int) -> Iterator[pa.RecordBatch]:
        held = self._held[layer]
        while True:
            if held:
                yield held.popleft()
            elif not self._more():
                return

    def _peek(self) -> pa.RecordBatch | None:
        while not self._waiting:
            batch = next(self._batches, None)
            if batch is None:
                return None
            if batch.column(0).null_count:
                raise InvalidArgument.of("a row has no number", hint="number the rows from 0")
            if batch.num_rows:
                self._waiting.append(batch)
        return self._waiting[0]

    def _more(self) -> bool:
        """Deals the next rows of the current part to the layers; false if there are none."""
        batch = self._peek()
        if batch is None or batch.column(0)[0].as_py() != self._part:
            return False
        self._waiting.popleft()
        parts = batch.column(0).to_numpy(zero_copy_only=False)
        count = int(parts.searchsorted(self._part, side="right"))
        if count < batch.num_rows:
            self._waiting.appendleft(batch.slice(count))
        mine = batch.slice(0, count)
        layers = mine.column(2).to_numpy(zero_copy_only=False)
        for layer, held in self._held.items():
            rows = mine.column(mine.schema.get_field_index(f"l{layer}"))
            found = rows.filter(pa.array(layers == layer))
            if len(found):
                try:
                    columns = found.flatten()
                    schema = self._schemas[layer]
                    held.append(
                        pa.RecordBatch.from_arrays(
                            [c.cast(f.type) for c, f in zip(columns, schema, strict=True)],
                            schema=schema,
                        )
                    )
                except pa.ArrowException as cause:
                    self.failure = cause
                    raise
        return True
