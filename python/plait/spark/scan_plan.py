"""A scan in parts: the driver decides once, and every task reads its files as that says.

    driver     sources ─▶ files, folders ─▶ one frozen schema ─▶ tasks: files, and rows at most
    executor   task ─▶ files of the task, adapted ─▶ Arrow batches

Types of partition columns follow from the folders of all files. A task gets these types, and
the names of the columns that the folders of its own files lack.

Invariants: the rows of all tasks, one after the other, are those of `plait.scan`; no task decides
anything. What folders say, the engine reads off them, on both sides.
Not here: options as users give them (`scan`, `scan_source`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait import _native, _stores
from plait._native_call import _settings
from plait._scan import Scan, _of_tables
from plait._tables import expand, listed
from plait._text_reader import TextReader
from plait.errors import ForeignTable, InvalidArgument, Unsupported
from plait.sizes import Size
from plait.spark.functions import to_spark
from plait.spark.types import Lossy, spark_schema
from plait.spark.worker import memory_limit, threads

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Summaries of groups of files, for those that are many.
Summarize = Callable[[list[str], Mapping[str, Any]], list[str]]

# Types of partition columns and constants: in `partition_types`, and as Arrow writes them.
_TYPES = {
    pa.int8(): ("int8", "Int8"),
    pa.int16(): ("int16", "Int16"),
    pa.int32(): ("int32", "Int32"),
    pa.int64(): ("int64", "Int64"),
    pa.uint8(): ("uint8", "UInt8"),
    pa.uint16(): ("uint16", "UInt16"),
    pa.uint32(): ("uint32", "UInt32"),
    pa.uint64(): ("uint64", "UInt64"),
    pa.float32(): ("float32", "Float32"),
    pa.float64(): ("float64", "Float64"),
    pa.bool_(): ("bool", "Boolean"),
    pa.string(): ("string", "Utf8"),
    pa.binary(): ("binary", "Binary"),
    pa.date32(): ("date32", "Date32"),
    pa.timestamp("us"): ("timestamp", "Timestamp(Microsecond, None)"),
}

# What a file without columns is summarized as: what is left is what is not in files.
_NO_COLUMNS = json.dumps(
    {
        "classes": [
            {
                "schema": base64.b64encode(pa.schema([]).serialize()).decode(),
                "first": "",
                "sources": 1,
                "has_rows": False,
            }
        ]
    }
)


@dataclass(frozen=True)
class ScanTask:
    """What one task reads.

    Attributes:
        files: Its files, in order.
        root: The folder above `dir0`.
        constants: Name and value of columns of one value.
        limit: Rows, at most; `None` is all.
    """

    files: tuple[str, ...]
    root: str | None
    constants: tuple[tuple[str, Any], ...]
    limit: int | None = None


@dataclass(frozen=True)
class ScanPlan:
    """A scan that is decided.

    Attributes:
        options: Options of the engine, but those of tasks.
        schema: The schema that was asked for, or none.
        frozen: What the engine decided, as it wrote it down.
        declared: The columns, in Spark's types.
        types: Types of columns that no file has, by name.
        tasks: The tasks, in the order of their rows.
        batch_rows: Rows of a batch, at most.
        lossy: What becomes of nanoseconds below a microsecond.
        memory_limit: Memory of a task; `None` derives it from Spark's.
    """

    options: Mapping[str, Any]
    schema: pa.Schema | None
    frozen: str
    declared: StructType
    types: Mapping[str, pa.DataType]
    tasks: tuple[ScanTask, ...]
    batch_rows: int
    lossy: Lossy
    memory_limit: Size | None

    def open(self, task: ScanTask) -> Scan:
        """The scan of the files of a task."""
        given = {
            **self.options,
            **self._statics(task),
            "sources": task.files,
            "frozen": self.frozen,
            "batch_rows": self.batch_rows,
            "limit": task.limit,
            "threads": threads(),
            "memory_limit": memory_limit(self.memory_limit),
        }
        text = json.dumps(given)
        native = _native.Scan(text, None, [], None, None, TextReader(self.schema))
        return Scan(native, follow=False)

    def read(self, task: ScanTask, declared: StructType | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a task, as Spark takes them.

        Args:
            task: The task.
            declared: The columns; all by default.
        """
        made = (pa.record_batch(rows) for rows in self.open(task).to_batches())
        wanted = self.declared if declared is None else declared
        yield from to_spark(made, wanted, batch_rows=self.batch_rows, lossy=self.lossy)

    def _statics(self, task: ScanTask) -> dict[str, Any]:
        """What no file has, as the driver decided on it."""
        files = set(task.files)
        logged = [
            {**column, "values": {f: v for f, v in column["values"].items() if f in files}}
            for column in self.options["file_values"]
        ]
        known = {column["name"] for column in logged}
        folders = {**self.options, "root": task.root, "partition_types": {}}
        here = _no_file_has(folders, task.files)
        constants = {name for name, _ in task.constants}
        # A null among constants has the type of the others.
        nulls = {
            name
            for name, value in task.constants
            if value is None and not pa.types.is_null(self.types[name])
        }
        absent = set(self.types) - known - set(here) - constants
        return {
            "root": task.root,
            "static": [pair for pair in task.constants if pair[0] not in nulls],
            "partition_types": {name: _TYPES[self.types[name]][0] for name in here},
            "file_values": [
                *logged,
                *(
                    {"name": name, "data_type": _TYPES[self.types[name]][1], "values": {}}
                    for name in sorted(absent | nulls)
                ),
            ],
        }


def plan_scan(
    sources: Sequence[str],
    options: dict[str, Any],
    schema: pa.Schema | None,
    *,
    storage_options: object = None,
    limit: int | None = None,
    files_per_task: int = 1,
    batch_rows: int = 16_384,
    lossy: Lossy = "error",
    memory_limit: Size | None = None,
    summaries: Summarize | None = None,
) -> ScanPlan:
    """Decides on a scan.

    Args:
        sources: Paths, globs, folders, tables, URLs.
        options: Options of the engine: columns, policies, static columns.
        schema: The schema that wins over what files say.
        storage_options: Settings of object stores.
        limit: Rows in all, at most.
        files_per_task: Files that one task reads.
        batch_rows: Rows of a batch, at most.
        lossy: What becomes of nanoseconds below a microsecond.
        memory_limit: Memory of a task.
        summaries: What files say of their columns; by default the caller reads them all.

    Raises:
        Unsupported: A store is an object, `_file_index` is asked for.
        PlaitError: As `plait.scan`.
    """
    _check(options, storage_options, files_per_task, batch_rows)
    options = {
        "text_files": True,
        "file_values": [],
        **options,
        "sources": list(sources),
        "storage_options": _settings(storage_options),
    }
    try:
        json.dumps(options, allow_nan=False)
    except (TypeError, ValueError) as cause:
        raise InvalidArgument(f"an option has a type that cannot be used: {cause}") from cause
    try:
        found = listed(options["sources"], options["storage_options"], text_files=True)
    except ForeignTable as error:
        expanded = expand(options["sources"], options["storage_options"], error)
        changed, given = _of_tables(expanded, {**options, "mode": "resolve"}, schema)
        schema = None if given is None else pa.schema(given)
        options |= changed
        found = listed(options["sources"], options["storage_options"], text_files=True)
    frozen, columns = _frozen(options, found, schema, summaries or _summary)
    plan = ScanPlan(
        options=options,
        schema=schema,
        frozen=frozen,
        declared=spark_schema(columns),
        types=_no_file_has(options, options["sources"], constants=True),
        tasks=tuple(_tasks(options, found, files_per_task)),
        batch_rows=batch_rows,
        lossy=lossy,
        memory_limit=memory_limit,
    )
    return plan if limit is None else replace(plan, tasks=tuple(_limited(plan, limit)))


def _check(
    options: Mapping[str, Any], storage_options: object, files_per_task: int, batch_rows: int
) -> None:
    if files_per_task < 1 or batch_rows < 1:
        raise InvalidArgument.of(
            "`files_per_task` and `batch_rows` are 1 or more", got=f"{files_per_task}, {batch_rows}"
        )
    if "_file_index" in (*options["implicit"], *(options["columns"] or ())):
        raise Unsupported.of(
            "`_file_index` is not known to tasks", hint="`_path` distinguishes files, too"
        )
    if _stores.is_store(storage_options):
        raise Unsupported.of(
            "`storage_options` is a store, which cannot travel to tasks",
            got=f"a `{type(storage_options).__name__}`",
            hint="give its settings, and URLs as sources",
        )


def _frozen(
    options: Mapping[str, Any],
    files: list[str],
    schema: pa.Schema | None,
    summaries: Summarize,
) -> tuple[str, pa.Schema]:
    """The decision, and the columns."""
    try:
        made = summaries(files, options["storage_options"])
    except Unsupported:
        # Files of text have no footer: their types follow from their rows, which are read here.
        scan = _native.Scan(json.dumps(options), schema, [], None, None, TextReader(schema))
        if scan.frozen is None:
            raise
        return scan.frozen, pa.schema(scan.schema)
    frozen, columns = _native.freeze_scan(json.dumps(options), schema, made)
    return frozen, pa.schema(columns)


def _summary(files: list[str], settings: Mapping[str, Any]) -> list[str]:
    return [summary(files, settings)]


def summary(files: list[str], settings: Mapping[str, Any], **options: int) -> str:
    """What files say of their columns.

    Raises:
        Unsupported: A file of text is among them.
    """
    given = {"sources": files, "text_files": True, "storage_options": settings, **options}
    return _native.summarize_scan(json.dumps(given))


def _no_file_has(
    options: Mapping[str, Any], sources: Sequence[str], *, constants: bool = False
) -> dict[str, pa.DataType]:
    """Columns that folders of the sources say, and those of one value: name and type."""
    if options["partitions"] == "none" and not constants:
        return {}
    names = ("text_files", "partitions", "partition_types", "root", "storage_options")
    given = {name: options[name] for name in names}
    given |= {"static": options["static"] if constants else [], "sources": list(sources)}
    _, schema = _native.freeze_scan(json.dumps(given), None, [_NO_COLUMNS])
    return {field.name: field.type for field in pa.schema(schema)}


def _tasks(options: Mapping[str, Any], files: list[str], files_per_task: int) -> Iterator[ScanTask]:
    """The files, dealt out in order; those of one task have one root and the same constants."""
    root, static = options["root"], options["static"]
    is_counted = options["partitions"] == "dirs" and root is None
    if not is_counted and not any(isinstance(value, list) for _, value in static):
        groups = [(files, root, tuple(map(tuple, static)))]
    else:
        groups = []
        for place, source in enumerate(options["sources"]):
            some = listed([source], options["storage_options"], text_files=True)
            of = [(name, v[place] if isinstance(v, list) else v) for name, v in static]
            groups.append((some, _root(options, source, some) if is_counted else root, tuple(of)))
    for some, above, constants in groups:
        for i in range(0, len(some), files_per_task):
            yield ScanTask(tuple(some[i : i + files_per_task]), above, constants)


def _root(options: Mapping[str, Any], source: str, files: list[str]) -> str:
    """The folder from which the engine counts the folders of a source."""
    free = {**options, "partition_types": {}}
    depth = len(_no_file_has(free, [source]))
    folder = files[0].rpartition("/")[0]
    while folder:
        try:
            if len(_no_file_has({**free, "root": folder}, files)) == depth:
                return folder
        except InvalidArgument:
            pass  # a folder of some files only
        folder = folder.rpartition("/")[0]
    return "/"


def _limited(plan: ScanPlan, limit: int) -> Iterator[ScanTask]:
    """The tasks that have the first rows; the last one ends where there are enough."""
    left = limit
    for task in plan.tasks:
        if left < 1:
            return
        rows = sum(adapter.rows or 0 for adapter in plan.open(task).adapters)
        yield task if rows <= left else replace(task, limit=left)
        left -= rows
