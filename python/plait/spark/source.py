"""The data source `plait`: sorted Parquet files as one sorted DataFrame, merged as they are read.

    spark.read.format("plait").option("sort_by", "name, ts").load("runs")     (`pyspark_plait`)

      driver     filters ─▶ files that may have rows ─▶ plan ─▶ tasks that may, one partition each
      executor   task ─▶ plait.read ─▶ Arrow batches

Invariants: partitions follow each other in key order, and each is sorted; rows of one key are in
one partition; files are never written. A filter only leaves out what Spark would, too.
Not here: which rows are read (`plait.read`); filters as conditions (`filters`); writing (`sink`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as ds

from plait import Plan, plan
from plait._checks import OnDuplicate, _aggregates, _version_by
from plait._now import at_moment, moment
from plait._read import (
    SortedRead,
    files_left,
    has_deleted_rows,
    int96_columns,
    read,
    read_task,
    table_columns,
    tasks_left,
)
from plait._read_report import FilesLeft
from plait._rules import OF_COLUMNS
from plait.errors import InvalidArgument, SchemaConflict, UnknownColumn
from plait.spark.filters import conditions
from plait.spark.functions import BATCH_ROWS_MAX
from plait.spark.settings import located, settings_of
from plait.spark.shipping import shipped_object
from plait.spark.table_rules import rules_of_tables
from plait.spark.types import Lossy, edge_schema, spark_schema, to_spark
from plait.spark.worker import local_dir, memory_limit, threads

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PART_ROWS = 1_000_000
# A task decodes every page of which it has rows: where it has few of each page, more tasks would
# decode the same pages. Most writers end a page after so many rows.
_PAGE_ROWS = 20_000
_PART_ROWS_MAX = 8 * _PART_ROWS
# How many files are counted to see how many rows filters leave, and rows that are read for that.
_COUNTED_FILES = 4
_COUNTED_ROWS_MAX = 2_000_000
# Other files may have more.
_COUNTED_MARGIN = 2

# Which rows of one key stay, as in `plait.merge`: what tables say, too, and what only calls do.
_RULES = ("on_duplicate", *OF_COLUMNS)
_DUPLICATES = (*_RULES, "delete_where", "keep_tombstones", "drop_where")

OPTIONS = (
    *("path", "paths", "sort_by", "columns", "where", "part_rows", "batch_rows", "lossy"),
    *("missing_keys", "memory_limit", "read_log", "push_filters", "storage_options"),
    *_DUPLICATES,
)

# Options of `plait.spark.scan` that people look for here.
_OF_SCANS = ("partitions", "partition_types", "partition_clash", "root", "limit", "implicit")


def schema_of(options: Mapping[str, str]) -> StructType:
    """The merged schema of all files, in Spark's types."""
    return Query.of(options).spark_schema()


def reader_of(options: Mapping[str, str], schema: StructType) -> MergingReader:
    """What reads files as the options say."""
    query = Query.of(options)
    return PushingReader(query, schema) if query.push_filters else MergingReader(query, schema)


@dataclass(frozen=True)
class Query:
    """The options of a reader, checked.

    Attributes:
        paths: Files, folders, globs.
        sort_by: The order; `None` takes the files' own.
        columns: Columns to read; `None` is all.
        where: Rows to read, as in `plait.read`.
        part_rows: Rows of a partition, about; `None`: as many as pay.
        batch_rows: Rows of a batch, at most.
        lossy: What becomes of nanoseconds below a microsecond.
        missing_keys: Whether files without a sort column are refused, or their keys are null.
        memory_limit: Memory of batches; `None` derives it from Spark's.
        read_log: A folder to which tasks write what they read.
        push_filters: Whether Spark pushes its filters down.
        settings: Settings of object stores.
        duplicates: Which rows of one key stay: options of `plait.plan`.
        is_of_table: Whether `duplicates` are the rules of the table that `paths` are.
    """

    paths: tuple[str, ...]
    sort_by: str | None
    columns: tuple[str, ...] | None
    where: str | None
    part_rows: int | None
    batch_rows: int
    lossy: Lossy
    missing_keys: Literal["error", "null"]
    memory_limit: str | None
    read_log: str | None
    push_filters: bool
    settings: Mapping[str, str]
    duplicates: Mapping[str, Any]
    is_of_table: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Query:
        """The options as Spark gives them: texts whose names have no case."""
        given = {name.lower(): value for name, value in options.items()}
        # All tasks mean the moment at which the driver looked at the clock.
        now = moment()
        for name in ("where", "drop_where"):
            if name in given:
                given[name] = at_moment(given[name], now)
        unknown = [name for name in given if name not in OPTIONS]
        if unknown:
            of_scans = unknown[0] in _OF_SCANS
            raise InvalidArgument.of(
                "there is no such option" + (" of sorted reads" if of_scans else ""),
                got=f"`{unknown[0]}`",
                hint="`plait.spark.scan` has it, for files in any order"
                if of_scans
                else "give " + ", ".join(OPTIONS),
            )
        paths = json.loads(given["paths"]) if "paths" in given else []
        paths += [given["path"]] if "path" in given else []
        if not paths:
            raise InvalidArgument.of("there is no path", hint="give one: .load('folder')")
        settings = settings_of(given.get("storage_options"))
        local = tuple(located(path) for path in paths)
        # What a table says of its order, and of rows with one key, holds unless the options differ.
        of_table = rules_of_tables(local, settings, has_rule="on_duplicate" in given)
        is_of_table = of_table.rules is not None and not any(name in given for name in OF_COLUMNS)
        if of_table.rules is not None and of_table.rules.on_duplicate is not None:
            given.setdefault("on_duplicate", of_table.rules.on_duplicate)
        lossy = _one_of(given, "lossy", ("error", "truncate"))
        columns = given.get("columns")
        return cls(
            paths=local,
            sort_by=given.get("sort_by", of_table.sort_by),
            columns=None if columns is None else tuple(_names(columns)),
            where=given.get("where"),
            part_rows=_number(given, "part_rows") if "part_rows" in given else None,
            batch_rows=_number(given, "batch_rows") if "batch_rows" in given else BATCH_ROWS_MAX,
            lossy=cast("Lossy", lossy),
            missing_keys=cast("Any", _one_of(given, "missing_keys", ("error", "null"))),
            memory_limit=given.get("memory_limit"),
            read_log=given.get("read_log"),
            push_filters=_one_of(given, "push_filters", ("true", "false")) == "true",
            settings=settings,
            duplicates={
                "on_duplicate": _one_of(given, "on_duplicate", get_args(OnDuplicate)),
                "version_by": _version_by(_mapping(given, "version_by"), "version_by"),
                "replace_columns": [
                    f'"{name}"' if "," in name else name
                    for name in _names(given.get("replace_columns", ""))
                ],
                "aggregate": _aggregates(_mapping(given, "aggregate"), "aggregate"),
                "delete_where": given.get("delete_where"),
                "keep_tombstones": _one_of(given, "keep_tombstones", ("false", "true")) == "true",
                "drop_where": given.get("drop_where"),
                **(of_table.rules.of_columns if of_table.rules and is_of_table else {}),
            },
            is_of_table=is_of_table,
        )

    def _rules(self, files: Sequence[str]) -> dict[str, Any]:
        """Which rows of one key stay: of a table as a whole, what it says itself."""
        is_whole = self.is_of_table and tuple(files) == self.paths
        left_out = _RULES if is_whole else ()
        return {name: v for name, v in self.duplicates.items() if name not in left_out}

    def read(
        self,
        columns: Sequence[str] | None,
        where: str | None = None,
        files: Sequence[str] | None = None,
    ) -> SortedRead:
        """The rows of all files, or some, on the driver."""
        sources = self.paths if files is None else files
        asked = {n: v for n, v in self._rules(sources).items() if n != "keep_tombstones"}
        return read(
            list(sources),
            sort_by=self.sort_by,
            columns=None if columns is None else list(map(_quoted, columns)),
            where=where,
            missing_keys=self.missing_keys,
            storage_options=dict(self.settings),
            **asked,
        )

    def plan(self, sources: Sequence[str], target_rows: int | None) -> Plan:
        """The plan of some files: one task, for which no key is looked up, or many."""
        return plan(
            list(sources),
            sort_by=self.sort_by,
            outputs=1 if target_rows is None else None,
            target_rows=target_rows,
            missing_keys=self.missing_keys,
            storage_options=dict(self.settings),
            **self._rules(sources),
        )

    def spark_schema(self) -> StructType:
        """The merged schema of the columns, in Spark's types."""
        if self.columns == ():
            raise SchemaConflict.of("a DataFrame needs a column", hint="name one in `columns`")
        found = self.read(self.columns)
        return spark_schema(instants(pa.schema(found.schema), int96_columns(found)))


def instants(schema: pa.Schema, int96: Iterable[str]) -> pa.Schema:
    """The schema with moments where timestamps of twelve bytes are, as Spark reads them."""
    roots = set(int96)

    def instant(type_: pa.DataType) -> pa.DataType:
        t = pa.types
        if t.is_timestamp(type_) and type_.tz is None:
            return pa.timestamp(type_.unit, "UTC")
        if t.is_list(type_):
            return pa.list_(instant(type_.value_type))
        if t.is_map(type_):
            return pa.map_(instant(type_.key_type), instant(type_.item_type))
        if t.is_struct(type_):
            return pa.struct([field.with_type(instant(field.type)) for field in type_])
        return type_

    return pa.schema([f.with_type(instant(f.type)) if f.name in roots else f for f in schema])


class TaskPartition(ds.InputPartition):
    """A task as Spark ships it: a small value that travels instead of rows.

    All that reading takes is here: Spark ships the reader before it asks for partitions.
    """

    def __init__(
        self, index: int, task: str, where: str | None, table_columns: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__(index)
        self.task = task
        self.where = where
        # Its files may have others, or lack one.
        self.table_columns = table_columns


class MergingReader(ds.DataSourceReader):
    """Plans on the driver; every task merges its rows."""

    def __init__(self, query: Query, schema: StructType) -> None:
        self._query = query
        self._schema = schema
        self._filters: list[ds.Filter] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return shipped_object(type(self), self.__dict__)

    def partitions(self) -> Sequence[ds.InputPartition]:
        """One partition for every range of keys that may have rows."""
        query, names = self._query, self._schema.fieldNames()
        if not names:
            raise SchemaConflict.of("a DataFrame needs a column", hint="declare one")
        rows = query.read(names, query.where)
        # Files alone have names and types that all of them together need not have.
        pushed = conditions(self._filters, pa.schema(rows.schema))
        where = " AND ".join([*([] if query.where is None else [query.where]), *pushed]) or None
        if pushed:
            rows = rows.where(" AND ".join(pushed))
        explained = rows.explain()
        if not explained.sort_by:
            raise InvalidArgument.of(
                "the files have no order", hint='give one: .option("sort_by", "name, ts")'
            )
        left = files_left(rows)
        if not left.files:
            return []
        by_id = any(b"PARQUET:field_id" in (f.metadata or {}) for f in pa.schema(rows.schema))
        part_rows = query.part_rows or _rows_that_pay(left, explained.depth)
        target, share = None, _share(query, where, left, part_rows)
        if left.rows_of_files * share > part_rows:
            # Where conditions leave few rows, tasks have more of which these are.
            target = max(int(part_rows / share), part_rows)
            # Tasks of one size end together.
            target = -(-left.rows_of_files // -(-left.rows_of_files // target))
        # Some files alone could call the key otherwise than all of them do, or lack a column.
        as_named = by_id or left.lacks_columns or has_deleted_rows(rows)
        try:
            planned = query.plan(query.paths if as_named else left.files, target)
        except UnknownColumn:
            if as_named:
                raise
            # A rule may name a column that only files without wanted rows have.
            planned = query.plan(query.paths, target)
        may_have = set(tasks_left(rows, planned))
        stored = table_columns(rows)
        return [
            TaskPartition(task.index, task.to_json(), where, stored)
            for task in planned.tasks
            if task.index in may_have
        ]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        if not isinstance(partition, TaskPartition):  # how Spark says that there are none
            return
        query, names = self._query, self._schema.fieldNames()
        wanted = edge_schema(self._schema)
        rows = read_task(
            partition.task,
            partition.table_columns,
            columns=list(map(_quoted, names)),
            where=partition.where,
            batch_rows=query.batch_rows,
            threads=threads(),
            memory_limit=memory_limit(query.memory_limit),
            temp_dir=local_dir(),
            storage_options=dict(query.settings),
        )
        try:
            for batch in rows:
                given = pa.record_batch(batch)
                # Files of a task need not know the name that the query has for a column.
                named = pa.RecordBatch.from_arrays(given.columns, names)
                yield to_spark(named, wanted, lossy=query.lossy)
        finally:
            if query.read_log is not None:
                _write_log(query.read_log, partition.value, rows)


def _rows_that_pay(left: FilesLeft, depth: int) -> int:
    """Rows of a partition of files of which at most `depth` have rows of one key, about."""
    page_rows = min(_PAGE_ROWS, left.rows_of_files // len(left.files))
    return min(max(_PART_ROWS, depth * page_rows), _PART_ROWS_MAX)


def _share(query: Query, where: str | None, left: FilesLeft, part_rows: int) -> float:
    """The share of the rows of files that conditions leave, about: cuts for few would cost more.

    Indexes say it; where they leave many rows, some files are counted.
    """
    share = left.rows / left.rows_of_files
    if where is None or left.rows <= part_rows:
        return share
    some = left.files[:: -(-len(left.files) // _COUNTED_FILES)]
    try:
        rows = query.read([], where, some)
    except (SchemaConflict, UnknownColumn, InvalidArgument):
        # Some files need not have a column, or values of its type, that all of them have.
        return share
    counted = files_left(rows)
    if counted.rows > _COUNTED_ROWS_MAX:
        return share
    whole = max(counted.rows_of_files, 1)
    return min(share, max(_COUNTED_MARGIN * rows.count() / whole, 1 / whole))


class PushingReader(MergingReader):
    """As above, and leaves out what filters leave out."""

    @property
    def pushFilters(self) -> PushFilters:  # noqa: N802 - Spark's name
        """What Spark hands filters to, if it hands them down."""
        return PushFilters(self._filters)


class PushFilters:
    """`pushFilters` of a reader that takes filters where Spark hands them down, and else reads all.

    While `spark.sql.python.filterPushdown.enabled` is off, Spark refuses readers whose method is
    not that of the base class, lest users wait for filters in vain. It is off by default, and rows
    are the same without; so here the method passes for the one that it overrides.
    """

    __func__ = staticmethod(ds.DataSourceReader.pushFilters)

    def __init__(self, filters: list[ds.Filter]) -> None:
        self._filters = filters

    def __call__(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:
        """Takes note of filters; Spark checks them all again, so that none can lose a row."""
        self._filters += filters
        return filters


def _write_log(folder: str, index: int, rows: SortedRead) -> None:
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    Path(folder).mkdir(parents=True, exist_ok=True)
    entry = {"part": index, **rows.stats.to_dict()}
    Path(folder, f"part-{index:05}-{attempt}.json").write_text(json.dumps(entry), encoding="utf-8")


def _quoted(name: str) -> str:
    """A name as `columns` of `plait.read` takes it, whatever is in it."""
    return name if "`" in name else f"`{name}`"


def _names(text: str) -> list[str]:
    """Names between commas; those with commas in double quotes."""
    return [m[1].replace('""', '"') if m[1] is not None else m[2] for m in _NAME.finditer(text)]


_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,"]+?))\s*(?:,|$)')


def _mapping(given: Mapping[str, str], name: str) -> Any:  # noqa: ANN401 - checked by its option
    """A JSON object, or the text if it is none."""
    text = given.get(name)
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidArgument.of(f"`{name}` is not a JSON object", got=f"`{text}`") from None


def _number(given: Mapping[str, str], name: str) -> int:
    text = given[name].replace("_", "")
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument.of(f"`{name}` is not a number above 0", got=f"`{given[name]}`")
    return int(text)


def _one_of(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    found = given.get(name, choices[0])
    if found.lower() not in choices:
        raise InvalidArgument.of(
            f"`{name}` has no such choice",
            got=f"`{found}`",
            hint=f"give one of: {', '.join(choices)}",
        )
    return found.lower()
