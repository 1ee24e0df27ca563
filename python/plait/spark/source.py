"""The data source `plait`: sorted Parquet files as one sorted DataFrame, merged as they are read.

    spark.read.format("plait").option("sort_by", "name, ts").load("runs")     (`pyspark_plait`)

      driver     plan ─▶ disjoint ranges of keys ─▶ what filters leave ─▶ one partition each
      executor   partition ─▶ rows of every file ─▶ native merge ─▶ Arrow batches

Invariants: partitions follow each other in key order, and each is sorted; rows of one key are in
one partition; files are never written. A filter only leaves out what Spark would, too.
Not here: writing (`sink`), reading a range (`ranges`), what a filter leaves (`filters`).
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as ds

from plait import plan
from plait.errors import InvalidArgument, SchemaConflict, UnknownColumn, Unsupported
from plait.spark.filters import EVERYTHING, Condition, Range, cut, parse, ranges
from plait.spark.keys import KeyColumn, key_columns, located, plan_schema, sort_path
from plait.spark.names import Names
from plait.spark.objects import settings_of
from plait.spark.ranges import (
    BATCH_ROWS_MAX,
    Duplicates,
    Part,
    Slice,
    open_slice,
    read_part,
    reading,
    rows_of,
)
from plait.spark.shipping import shipped_object
from plait.spark.types import bounded, edge_schema, spark_schema, to_spark
from plait.spark.worker import memory_limit, threads

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PART_ROWS = 1_000_000

# A few key pages of so many files are read sooner than a plan finds places to cut.
_LOOKED_INTO = 64

OPTIONS = (
    *("path", "paths", "sort_by", "columns", "where", "part_rows", "batch_rows", "lossy"),
    *("missing_keys", "memory_limit", "read_log", "push_filters", "storage_options"),
    *(field.name for field in fields(Duplicates)),
)


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
        where: Rows to read: a range of keys as text.
        part_rows: Rows of a partition, about.
        batch_rows: Rows of a batch, at most.
        lossy: What becomes of nanoseconds below a microsecond.
        missing_keys: Whether files without a sort column are refused, or their keys are null.
        memory_limit: Memory of batches; `None` derives it from Spark's.
        read_log: A folder to which tasks write what they read.
        push_filters: Whether Spark pushes its filters down.
        settings: Settings of object stores.
        duplicates: Which rows of one key stay.
    """

    paths: tuple[str, ...]
    sort_by: str | None
    columns: tuple[str, ...] | None
    where: str | None
    part_rows: int
    batch_rows: int
    lossy: str
    missing_keys: str
    memory_limit: str | None
    read_log: str | None
    push_filters: bool
    settings: Mapping[str, str]
    duplicates: Duplicates

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Query:
        """The options as Spark gives them: texts whose names have no case."""
        given = {name.lower(): value for name, value in options.items()}
        unknown = [name for name in given if name not in OPTIONS]
        if unknown:
            raise InvalidArgument.of(
                "there is no such option", got=f"`{unknown[0]}`", hint="give " + ", ".join(OPTIONS)
            )
        paths = json.loads(given["paths"]) if "paths" in given else []
        paths += [given["path"]] if "path" in given else []
        if not paths:
            raise InvalidArgument.of("there is no path", hint="give one: .load('folder')")
        lossy = _one_of(given, "lossy", ("error", "truncate"))
        on_duplicate = ("keep_all", "keep_first", "keep_last", "error")
        columns = given.get("columns")
        return cls(
            paths=tuple(_local(path) for path in paths),
            sort_by=given.get("sort_by"),
            columns=None if columns is None else tuple(_names(columns)),
            where=given.get("where"),
            part_rows=_number(given, "part_rows", _PART_ROWS),
            batch_rows=_number(given, "batch_rows", BATCH_ROWS_MAX),
            lossy=lossy,
            missing_keys=_one_of(given, "missing_keys", ("error", "null")),
            memory_limit=given.get("memory_limit"),
            read_log=given.get("read_log"),
            push_filters=_one_of(given, "push_filters", ("true", "false")) == "true",
            settings=settings_of(given.get("storage_options")),
            duplicates=Duplicates(
                on_duplicate=cast("Any", _one_of(given, "on_duplicate", on_duplicate)),
                version_by=given.get("version_by"),
                delete_where=given.get("delete_where"),
                keep_tombstones=_one_of(given, "keep_tombstones", ("false", "true")) == "true",
                drop_where=given.get("drop_where"),
            ),
        )

    def plan(
        self, sources: Sequence[str] | None = None, *, target_rows: int | None = None
    ) -> dict[str, Any]:
        """The plan of all files, or some: one part, for which no key is looked up, or many."""
        made = plan(
            list(sources or self.paths),
            sort_by=self.sort_by,
            outputs=1 if target_rows is None else None,
            target_rows=target_rows,
            missing_keys=cast("Any", self.missing_keys),
            on_duplicate=self.duplicates.on_duplicate,
            version_by=self.duplicates.version_by,
            delete_where=self.duplicates.delete_where,
            keep_tombstones=self.duplicates.keep_tombstones,
            drop_where=self.duplicates.drop_where,
            storage_options=dict(self.settings),
        )
        return made.to_dict()

    def spark_schema(self) -> StructType:
        """The merged schema of the columns, in Spark's types."""
        planned = self.plan()
        schema, int96 = plan_schema(planned["schema"])
        return spark_schema(self.chosen(instants(schema, int96), Names.of(planned)))

    def chosen(self, schema: pa.Schema, names: Names) -> pa.Schema:
        """The columns that are asked for, in that order, called as they are asked for."""
        if self.columns is None:
            return schema
        chosen = []
        for name, column in names.columns(self.columns, schema).items():
            if column is None:
                raise UnknownColumn.of(
                    f"`columns` names `{name}`, which is in no file", got=", ".join(schema.names)
                )
            chosen.append(schema.field(column).with_name(name))
        return pa.schema(chosen)


def instants(schema: pa.Schema, int96: Iterable[str]) -> pa.Schema:
    """The schema with points in time where timestamps of 12 bytes are, as Spark reads them."""
    roots = {path.partition(".")[0] for path in int96}

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


@dataclass(frozen=True)
class Reading:
    """What tasks read, decided by the driver for all of them.

    Attributes:
        key: The key columns.
        merged: The schema of the merge.
        columns: The columns to read.
        shown: Columns that are given out, and what the query calls them.
        duplicates: Which rows of one key stay.
    """

    key: tuple[KeyColumn, ...]
    merged: pa.Schema
    columns: pa.Schema
    shown: tuple[tuple[str, str], ...]
    duplicates: Duplicates


class PartPartition(ds.InputPartition):
    """A part as Spark ships it, with what is read of it.

    All that a task needs is here: Spark ships the reader before it asks for partitions.
    """

    def __init__(self, part: Part, reading: Reading) -> None:
        super().__init__(part)
        self.reading = reading


class MergingReader(ds.DataSourceReader):
    """Plans on the driver; every task merges its part."""

    def __init__(self, query: Query, schema: StructType) -> None:
        self._query = query
        self._schema = schema
        self._conditions: list[Condition] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return shipped_object(type(self), self.__dict__)

    def partitions(self) -> Sequence[ds.InputPartition]:
        """One partition for every range of keys that may have rows."""
        query = self._query
        planned = query.plan()
        if not planned["sort_by"]:
            raise InvalidArgument.of(
                "the files have no order", hint='give one: .option("sort_by", "name, ts")'
            )
        schema, int96 = plan_schema(planned["schema"])
        key = key_columns(planned["sort_by"], schema, int96)
        names = Names.of(planned)
        read = self._reading(schema, key, names)
        within = EVERYTHING
        if query.where is not None:
            within = ranges(key, map(names.condition, parse(query.where)), exact=True)
        if self._conditions:
            asked = ranges(key, map(names.condition, self._conditions))
            within = tuple(part for low, high in asked for part in cut(within, low, high))
        needed = [s for s in planned["sources"] if _may_have(s, within)]
        whole = _part(planned, planned["tasks"][0], within) if needed else None
        if whole is None or not whole.slices:
            return []
        if not _is_small(whole, read, needed, query):
            # Some files alone could call the key otherwise than all of them do.
            by_id = any(b"PARQUET:field_id" in (field.metadata or {}) for field in schema)
            paths = None if by_id else [s["path"] for s in needed]
            planned = query.plan(paths, target_rows=query.part_rows)
        parts = (_part(planned, task, within) for task in planned["tasks"])
        return [PartPartition(part, read) for part in parts if part.slices and part.within]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        if not isinstance(partition, PartPartition):  # how Spark says that there are none
            return
        part: Part = partition.value
        query, read = self._query, partition.reading
        wanted = edge_schema(self._schema)
        log: list[dict[str, Any]] = []
        batches = read_part(
            part,
            read.key,
            read.columns,
            duplicates=read.duplicates,
            threads=threads(),
            memory_limit=memory_limit(query.memory_limit),
            settings=query.settings,
            merged=read.merged,
            batch_rows=query.batch_rows,
            log=log,
        )
        try:
            for batch in batches:
                shown = pa.RecordBatch.from_arrays(
                    [batch.column(own) for own, _ in read.shown], [name for _, name in read.shown]
                )
                for piece in bounded(shown, query.batch_rows):
                    yield to_spark(piece, wanted, lossy=cast("Any", query.lossy))
        finally:
            if query.read_log is not None:
                _write_log(query.read_log, part.index, log)

    def _reading(self, schema: pa.Schema, key: tuple[KeyColumn, ...], names: Names) -> Reading:
        """The columns that are given out, those of the key, and those that choose rows."""
        asked = self._query.duplicates
        duplicates = replace(
            asked,
            version_by=names.text(asked.version_by),
            delete_where=names.text(asked.delete_where),
            drop_where=names.text(asked.drop_where),
        )
        wanted = names.columns(self._schema.fieldNames(), schema)
        if not wanted:
            raise SchemaConflict.of("a DataFrame needs a column", hint="declare one")
        shown = []
        for name, column in wanted.items():
            if column is None:
                raise SchemaConflict.of(
                    f"the files have no column `{name}`", got=", ".join(schema.names)
                )
            shown.append((column, name))
        choosing = (duplicates.version_by, duplicates.delete_where)
        needed = {*(own for own, _ in shown), *(column.path[0] for column in key)}
        needed |= {sort_path(name)[0] for name in choosing if name}
        columns = pa.schema([field for field in schema if field.name in needed])
        return Reading(key, schema, columns, tuple(shown), duplicates)


class PushingReader(MergingReader):
    """As above, and leaves out what filters on key columns leave out."""

    @property
    def pushFilters(self) -> PushFilters:  # noqa: N802 - Spark's name
        """What Spark hands filters to, if it hands them down."""
        return PushFilters(self._conditions)


class PushFilters:
    """`pushFilters` of a reader that takes filters where Spark hands them down, and else reads all.

    While `spark.sql.python.filterPushdown.enabled` is off, Spark refuses readers whose method is
    not that of the base class, lest users wait for filters in vain. It is off by default, and rows
    are the same without; so here the method passes for the one that it overrides.
    """

    __func__ = staticmethod(ds.DataSourceReader.pushFilters)

    def __init__(self, conditions: list[Condition]) -> None:
        self._conditions = conditions

    def __call__(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:
        """Takes note of filters; Spark checks them all again, so that none can lose a row."""
        for filter_ in filters:
            condition = _condition(filter_)
            if condition is not None:
                self._conditions.append(condition)
        return filters


_OPERATORS: tuple[tuple[type[ds.Filter], str], ...] = (
    (ds.EqualTo, "="),
    (ds.LessThan, "<"),
    (ds.LessThanOrEqual, "<="),
    (ds.GreaterThan, ">"),
    (ds.GreaterThanOrEqual, ">="),
    (ds.In, "in"),
    (ds.StringStartsWith, "begins"),
    (ds.IsNull, "null"),
    (ds.IsNotNull, "not null"),
)


def _condition(filter_: ds.Filter) -> Condition | None:
    for kind, operator in _OPERATORS:
        if type(filter_) is kind:
            path = tuple(getattr(filter_, "attribute", ()))
            return Condition(path, operator, getattr(filter_, "value", None))
    if type(filter_) is ds.EqualNullSafe and filter_.value is not None:
        return Condition(tuple(filter_.attribute), "=", filter_.value)
    return None


def _may_have(source: Mapping[str, Any], within: Iterable[Range]) -> bool:
    if source["first"] is None:
        return False
    first, last = base64.b64decode(source["first"]), base64.b64decode(source["last"])
    return any(
        (low is None or last >= low) and (high is None or first < high) for low, high in within
    )


def _is_small(
    part: Part, read: Reading, sources: Sequence[Mapping[str, Any]], query: Query
) -> bool:
    """Whether a part has so few rows that it need not be cut, as far as that is cheap to say."""
    if sum(source["rows"] for source in sources) <= query.part_rows:
        return True
    if part.within == EVERYTHING or len(part.slices) > _LOOKED_INTO:
        return False
    left = query.part_rows
    for slice_ in part.slices:
        with open_slice(slice_, query.settings) as file, reading(slice_.path):
            key = located(read.key, read.merged, file.schema_arrow)
            left -= sum(last - first for first, last in rows_of(file, slice_, part, key))
        if left < 0:
            return False
    return True


def _part(planned: Mapping[str, Any], task: Mapping[str, Any], within: Sequence[Range]) -> Part:
    low, high = (None if task[k] is None else base64.b64decode(task[k]) for k in ("low", "high"))
    mine = cut(within, low, high)
    slices = []
    for piece in task["slices"]:
        source = planned["sources"][piece["source"]]
        if _may_have(source, mine):
            start, end = tuple(piece["start"]), tuple(piece["end"])
            slices.append(Slice(source["path"], source["bytes"], source["stamp"], start, end))
    # What is the whole task is not looked for in its files.
    ends = tuple((None if a == low else a, None if b == high else b) for a, b in mine)
    return Part(task["index"], planned["sort_by"], tuple(slices), low, high, ends)


def _write_log(folder: str, index: int, log: list[dict[str, Any]]) -> None:
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    Path(folder).mkdir(parents=True, exist_ok=True)
    entry = {"part": index, "files": log}
    Path(folder, f"part-{index:05}-{attempt}.json").write_text(json.dumps(entry), encoding="utf-8")


def _local(path: str) -> str:
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if path.startswith(("s3://", "s3a://")):
        return path
    if "://" in path:
        raise Unsupported.of(
            'the format "plait" reads files, local and mounted ones, and objects of S3',
            got=f"`{path}`",
            hint="merge them with plait.merge, which reads other stores",
        )
    # Tasks run in another folder than the driver.
    return os.path.abspath(path)  # noqa: PTH100 - a glob is no path


def _names(text: str) -> list[str]:
    """Names between commas; those with commas in double quotes."""
    return [m[1].replace('""', '"') if m[1] is not None else m[2] for m in _NAME.finditer(text)]


_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^,"]+?))\s*(?:,|$)')


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default)).replace("_", "")
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
