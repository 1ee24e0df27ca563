"""Writing to the format `plait`: one sorted run a task, checked, visible all at once.

    rows of a task ─▶ in order? ─▶ run-….parquet ─▶ one commit of the table's log names all runs
            └─ sort=true: sorted in bounded memory first

      driver    makes the table, or looks whether the rows fit it, before a task writes a file
      task      checks the order row by row; sorts if it is asked to; reads bounds for the log
      commit    from the driver, of the tasks that won; once for every micro-batch
      abort     removes what tasks wrote

Invariants: readers see all runs of a write, or none; a batch that is committed again adds nothing;
files of tasks that lost count never.
Not here: the table that rows go to (`into`), its log (`rust/delta`), compaction (`plait.compact`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import datasource as ds

from plait import _native
from plait._lease import new_id
from plait._logs.delta import DeltaLog, NewFile
from plait._run_writer import RunWriter as SortedWriter
from plait._streams import merge_streams
from plait._table_commit import Batch, Replaced, commit_rows
from plait.errors import InvalidArgument, SchemaConflict, StorageError, Unsupported
from plait.order import sort_text
from plait.sizes import parse_size
from plait.spark.folder import place_of
from plait.spark.into import Into, into_table
from plait.spark.settings import is_url, settings_of
from plait.spark.shipping import shipped_object
from plait.spark.types import edge_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType
    from typing_extensions import Self

OPTIONS = (
    *("path", "sort_by", "compression", "row_group_rows", "query", "checkpointlocation"),
    *("storage_options", "sort", "memory_limit"),
)
# What a batch has no use for: it counts once, and nobody commits it again.
_OF_STREAMS = ("query", "checkpointlocation")

_ROW_GROUP_ROWS = 131_072
_MEMORY_LIMIT = "256MB"
_BATCH_ROWS = 8_192
_COPY_BYTES = 1 << 20
# Others may commit while a table is overwritten; each time somebody else was quicker.
_TRIES = 20


@dataclass(frozen=True)
class Written(ds.WriterCommitMessage):
    """What a task wrote: the file as the log takes it, `None` without rows; its rows; its query."""

    file: dict[str, Any] | None
    rows: int
    query: str


@dataclass(frozen=True)
class Runs:
    """The options of a writer, checked.

    Attributes:
        into: The table.
        schema: The columns.
        compression: Codec of pages.
        row_group_rows: Rows of a row group.
        query: Name of a streaming query; `None` takes Spark's own id.
        memory_limit: Memory in which a task sorts its rows; `None`: they come in order.
        job: Tells the files of one write from those of others.
    """

    into: Into
    schema: StructType
    compression: str
    row_group_rows: int
    query: str | None
    memory_limit: int | None
    job: str

    @property
    def log(self) -> DeltaLog:
        """The log of the table."""
        return DeltaLog(self.into.root, self.into.settings)

    @property
    def place(self) -> _native.Folder:
        """The folder of the table."""
        return place_of(self.into.root, self.into.settings)

    @classmethod
    def of(
        cls,
        options: Mapping[str, str],
        schema: StructType,
        *,
        is_streaming: bool,
        overwrite: bool = False,
    ) -> Runs:
        """The options as Spark gives them, and the table; it is made if there is none."""
        given = {name.lower(): value for name, value in options.items()}
        known = [name for name in OPTIONS if is_streaming or name not in _OF_STREAMS]
        unknown = [name for name in given if name not in known]
        if unknown:
            what = "there is no such option"
            if unknown[0] in _OF_STREAMS:
                what = "a batch has no such option, only a stream has"
            raise InvalidArgument.of(what, got=f"`{unknown[0]}`", hint="give " + ", ".join(known))
        if "path" not in given or "sort_by" not in given:
            missing = "path" if "path" not in given else "sort_by"
            raise InvalidArgument.of(
                f"`{missing}` is needed",
                hint='.option("sort_by", "name, ts").save("folder"): rows must come in this order',
            )
        root = given["path"].removeprefix("file://").removeprefix("file:")
        rows = given.get("row_group_rows", str(_ROW_GROUP_ROWS)).replace("_", "")
        if not rows.isdecimal() or int(rows) < 1:
            raise InvalidArgument.of("`row_group_rows` is not a number above 0", got=f"`{rows}`")
        order, columns = sort_text(given["sort_by"]) or "", edge_schema(schema)
        if not _native.sort_columns(order, columns):
            raise InvalidArgument.of("`sort_by` names no column", got=f"`{given['sort_by']}`")
        memory_limit, settings = _sort_memory(given), settings_of(given.get("storage_options"))
        return cls(
            into=into_table(
                # Tasks run in other folders.
                root if is_url(root) else os.path.abspath(root),  # noqa: PTH100 - as text
                order,
                columns,
                settings,
                intent="delete" if overwrite else "append",
            ),
            schema=schema,
            compression=given.get("compression", "zstd"),
            row_group_rows=int(rows),
            query=given.get("query"),
            memory_limit=memory_limit,
            job=new_id(),
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one task, if they are in order."""
        first = next((batch for batch in batches if batch.num_rows), None)
        context = TaskContext.get()
        if context is None:
            raise Unsupported.of("runs are written in tasks of Spark")
        query = self.query or _query(context)
        if first is None:
            return Written(None, 0, query)
        # The attempt keeps files of a task apart, and the number of the task tells whose they are.
        name = f"run-{self.job}-{context.partitionId():05}-{context.taskAttemptId()}.parquet"
        into = self.into
        try:
            rows = self._write(name, first, batches)
            new = [NewFile(name)]
            (file,) = self.log.added(new, into.schema_text, properties=into.properties)
        except BaseException:
            self.place.remove([name])
            raise
        return Written(file, rows, query)

    def _write(self, name: str, first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> int:
        schema = pa.schema([_plain(field) for field in first.schema])
        if schema.names != self.schema.fieldNames():
            raise InvalidArgument.of(
                "a batch has other columns than were declared",
                got=", ".join(schema.names),
                hint="have " + ", ".join(self.schema.fieldNames()),
            )

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in chain((first,), batches):
                yield batch.cast(schema) if batch.schema != schema else batch

        if self.memory_limit is None:
            return self._write_checked(name, schema, rows())
        return self._write_sorted(name, rows())

    def _write_sorted(self, name: str, rows: Iterator[pa.RecordBatch]) -> int:
        """Sorts the rows of a task, in bounded memory and temporary files."""
        with tempfile.TemporaryDirectory(prefix="plait-sort-") as folder:
            path = Path(folder) / "sorted.parquet"
            with SortedWriter(
                path,
                sort_by=self.into.sort_by,
                compression=self.compression,
                row_group_rows=self.row_group_rows,
                threads=1,
                memory_limit=self.memory_limit or _MEMORY_LIMIT,
            ) as writer:
                writer.write(rows)
            with path.open("rb") as made, self.place.create(name) as file:
                shutil.copyfileobj(made, file, _COPY_BYTES)
            return sum(report.rows_out for report in writer.reports)

    def _write_checked(self, name: str, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> int:
        """Writes the rows of a task if they are in order."""
        sorting = [
            pq.SortingColumn(_leaf(schema, path), descending, nulls_first=nulls_first)
            for path, descending, nulls_first in _native.plain_columns(self.into.sort_by)
        ]
        # Parquet has no word for a curve: Plait's own entry has.
        is_said = len(sorting) == len(_native.sort_columns(self.into.sort_by, schema))
        # A merge of one source: it checks the order, and passes the rows on.
        batch_rows = min(_BATCH_ROWS, self.row_group_rows)
        stream = merge_streams([rows], sort_by=self.into.sort_by, batch_rows=batch_rows, threads=1)
        count = 0
        with self.place.create(name) as file:
            writer = pq.ParquetWriter(
                file,
                schema,
                compression=self.compression,
                sorting_columns=sorting,
                write_page_index=True,
                store_schema=False,
            )
            if not is_said:
                writer.add_key_value_metadata({"plait.sort_order": self.into.sort_by})
            with writer:
                held: list[pa.RecordBatch] = []
                held_rows = 0
                for piece in chain(stream, (None,)):
                    if piece is not None:
                        held.append(pa.record_batch(piece))
                        held_rows += held[-1].num_rows
                    if held and (piece is None or held_rows >= self.row_group_rows):
                        writer.write_table(pa.Table.from_batches(held, schema), held_rows)
                        count += held_rows
                        held, held_rows = [], 0
        return count

    def remove(self, names: Iterable[str]) -> None:
        """Removes files that are live for nobody."""
        self.place.remove(list(names))

    def found(self) -> list[str]:
        """Names of all files of this write, whichever attempts made them."""
        mine = f"run-{self.job}-"
        return [name for name in self.place.names() if name.startswith(mine)]

    def give_up(self, names: Sequence[str]) -> None:
        """Removes files that were not committed: a commit that fails may count all the same."""
        live = {file.name for file in self.log.files(deleted="list")} if names else set()
        self.remove(name for name in names if name not in live)

    def append(self, written: Sequence[Written], batch: Batch | None) -> None:
        """Makes files live; removes those of a batch that was committed before."""
        files, rows = _files(written), sum(message.rows for message in written)
        log = self.log
        ended = commit_rows(log, files, rows, self.into.schema_text, batch=batch)
        if ended["outcome"] == "present":
            # A commit whose answer was lost had these files: they were live once.
            known = set(log.there().known)
            self.remove(file["name"] for file in files if file["name"] not in known)

    def overwrite(self, written: Sequence[Written]) -> None:
        """Makes files live, and no others.

        Raises:
            SchemaConflict: The table has another schema by now.
            StorageError: Others commit to it again and again.
        """
        files, rows = _files(written), sum(message.rows for message in written)
        log = self.log
        for _ in range(_TRIES):
            snapshot = log.snapshot("delete")
            if snapshot.schema_text != self.into.schema_text:
                raise SchemaConflict.of(
                    "the table changed while rows were written, nothing was committed",
                    got="another schema was committed",
                    hint="write them again",
                )
            live = [file.id for file in log.files("delete", deleted="list")]
            if not files and not live:
                return
            replaced = Replaced(snapshot.version, live)
            ended = commit_rows(log, files, rows, self.into.schema_text, replaced=replaced)
            if ended["outcome"] != "conflicted":
                return
        raise StorageError.of(
            "the table changes too often to overwrite it",
            got=f"`{self.into.root}`",
            hint="stop compactions and other writers while it is overwritten",
        )


class RunWriter(ds.DataSourceArrowWriter):
    """Writes a DataFrame: every task a run, all of them visible at once."""

    def __init__(self, runs: Runs, *, overwrite: bool) -> None:
        self._runs = runs
        self._overwrite = overwrite

    def __reduce__(self) -> tuple[Any, ...]:
        return shipped_object(type(self), self.__dict__)

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """The writer that options ask for."""
        runs = Runs.of(options, schema, is_streaming=False, overwrite=overwrite)
        return cls(runs, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ds.WriterCommitMessage:
        """One run, in a task."""
        return self._runs.write(iterator)

    def commit(self, messages: Sequence[ds.WriterCommitMessage | None]) -> None:
        """Makes the runs count, on the driver."""
        written, runs = _written(messages), self._runs
        if self._overwrite:
            runs.overwrite(written)
        elif _files(written):
            runs.append(written, None)
        # What attempts of tasks left behind that did not win.
        keep = set(_names(written))
        runs.remove(name for name in runs.found() if name not in keep)

    def abort(self, messages: Sequence[ds.WriterCommitMessage | None]) -> None:  # noqa: ARG002 - of all attempts
        """Removes the runs of a write that failed."""
        self._runs.give_up(self._runs.found())


class RunStreamWriter(ds.DataSourceStreamArrowWriter):
    """Writes micro-batches: every task a run, each batch visible at once and once."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def __reduce__(self) -> tuple[Any, ...]:
        return shipped_object(type(self), self.__dict__)

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """The writer that options ask for."""
        if overwrite:
            raise Unsupported.of(
                "a stream of runs can only be appended",
                got='output mode "complete"',
                hint='.outputMode("append")',
            )
        return cls(Runs.of(options, schema, is_streaming=True))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ds.WriterCommitMessage:
        """One run, in a task."""
        return self._runs.write(iterator)

    def commit(self, messages: Sequence[ds.WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Makes the runs of a batch count, unless it was committed before."""
        written = _written(messages)
        if _files(written):
            self._runs.append(written, Batch(f"plait.stream:{written[0].query}", batchId))

    def abort(self, messages: Sequence[ds.WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Removes the runs of a batch that failed."""
        self._runs.give_up(_names(_written(messages)))


def _sort_memory(given: Mapping[str, str]) -> int | None:
    """Bytes in which a task sorts, if it does."""
    sort, limit = given.get("sort", "false").lower(), given.get("memory_limit")
    if sort not in ("true", "false"):
        raise InvalidArgument.of("`sort` is neither true nor false", got=f"`{given['sort']}`")
    if sort == "false":
        if limit is not None:
            raise InvalidArgument.of("`memory_limit` is for tasks that sort", hint="sort=true")
        return None
    return parse_size(limit or _MEMORY_LIMIT, "memory_limit")


def _written(messages: Sequence[ds.WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]


def _files(written: Sequence[Written]) -> list[dict[str, Any]]:
    return [message.file for message in written if message.file is not None]


def _names(written: Sequence[Written]) -> list[str]:
    return [file["name"] for file in _files(written)]


def _query(context: TaskContext) -> str:
    return context.getLocalProperty("sql.streaming.queryId") or "batch"


def _plain(field: pa.Field) -> pa.Field:
    """The field as a file has it: Spark hands out large texts if configured."""
    t = pa.types
    if t.is_large_string(field.type):
        return field.with_type(pa.string())
    return field.with_type(pa.binary()) if t.is_large_binary(field.type) else field


def _leaf(schema: pa.Schema, path: Sequence[str]) -> int:
    """The index of a leaf column among all leaves of a file."""
    index = 0
    fields = list(schema)
    for depth, name in enumerate(path):
        for field in fields:
            if field.name == name:
                fields = list(field.type) if depth + 1 < len(path) else []
                break
            index += _leaves(field.type)
    return index


def _leaves(type_: pa.DataType) -> int:
    if pa.types.is_struct(type_):
        return sum(_leaves(field.type) for field in type_)
    if pa.types.is_map(type_):
        return _leaves(type_.key_type) + _leaves(type_.item_type)
    return _leaves(type_.value_type) if pa.types.is_list(type_) else 1
