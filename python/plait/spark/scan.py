"""`scan`: one schema over files that drift, resolved once, and applied by every task.

    driver     files ─▶ summaries (by a small job where there are many) ─▶ one frozen schema
    executor   its files ─▶ adapted to that schema, or refused ─▶ Arrow batches

Invariants: the schema does not depend on how files are shared out; no task changes it: a file that
does not adapt is an error.
Not here: how schemas are brought together (`plait.scan`), merges (`source`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from plait.errors import InvalidArgument, SchemaConflict, Unsupported
from plait.scan import Constant
from plait.scan import scan as _scan
from plait.sizes import Size
from plait.spark.folder import listed
from plait.spark.types import Lossy, spark_schema
from plait.spark.worker import memory_limit as _memory_limit
from plait.spark.worker import threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Fewer footers are read by the driver sooner than by a job.
_DRIVER_FILES = 64
_SUMMARY_FILES = 64
_IMPLICIT = ("_path", "_filename", "_row_number")


def scan(
    spark: SparkSession,
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    columns: Iterable[str] | str | None = None,
    *,
    schema: pa.Schema | None = None,
    strict: bool = False,
    policy: Mapping[str, str] | None = None,
    case: Literal["exact", "insensitive"] = "exact",
    missing: Literal["error", "null"] = "error",
    static: Mapping[str, Constant] | None = None,
    implicit: Iterable[str] = (),
    files_per_task: int = 1,
    batch_rows: int = 16_384,
    lossy: Lossy = "error",
    memory_limit: Size | None = None,
) -> DataFrame:
    """Reads Parquet files whose schemas drift as one DataFrame: `plait.scan` on executors.

    The schema is resolved over all files first and is then frozen. Rows come file by file, in the
    order of the list.

    Args:
        spark: The session.
        sources: Local or mounted files, globs, folders.
        columns: See `plait.scan`, as the following.
        schema: An Arrow schema that wins over what files say.
        strict: Whether columns that `schema` does not name are refused.
        policy: What becomes of a kind of drift.
        case: Whether names that differ in case alone are one column.
        missing: Whether a column that no file has is an error, or null.
        static: Columns of one value each.
        implicit: `_path`, `_filename`, `_row_number`.
        files_per_task: Files that one task reads, one after the other.
        batch_rows: Rows of a batch, at most.
        lossy: Whether nanoseconds below a microsecond are an error, or are cut off.
        memory_limit: What reading may take in a worker; by default a share of what Spark gives it.

    Returns:
        The rows of all files, with the frozen schema in Spark's types.

    Raises:
        SchemaConflict: Types do not go together; names all columns, types and files.
        UnknownColumn: A column is in no file.
        SourceNotFound: A path leads to no file.
        Unsupported: `_file_index` is asked for, which tasks do not know.

    Example:
        >>> frame = scan(spark, "runs", ["name", "ts"])  # doctest: +SKIP
    """
    if files_per_task < 1 or batch_rows < 1:
        raise InvalidArgument.of(
            "`files_per_task` and `batch_rows` are 1 or more", got=f"{files_per_task}, {batch_rows}"
        )
    names = [columns] if isinstance(columns, str) and columns != "*" else columns
    names = None if names is None or names == "*" else list(names)
    asked = [implicit] if isinstance(implicit, str) else list(implicit)
    if "_file_index" in (*asked, *(names or ())):
        raise Unsupported.of(
            "`_file_index` is not known to tasks", hint="`_path` tells files apart, too"
        )
    paths = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    files = [str(Path(file).absolute()) for file in listed(os.fspath(path) for path in paths)]
    drift: dict[str, Any] = {
        "policy": dict(policy or {}),
        "case": case,
        "strict": strict,
        "schema": schema,
    }
    columns_of: dict[str, Any] = {
        "static": dict(static or {}),
        "implicit": asked,
    }
    summaries = files if len(files) <= _DRIVER_FILES else _summaries(spark, files, drift)
    try:
        resolved = _scan(summaries, names, missing=missing, **drift, **columns_of)
    except SchemaConflict:
        # Summaries have no names: the files themselves say which of them differ.
        resolved = _scan(files, names, missing=missing, **drift, **columns_of)
    frozen = pa.schema(resolved.schema)
    declared = spark_schema(frozen)
    made_up = {*columns_of["static"], *asked, *_IMPLICIT}
    of_files = pa.schema([field for field in frozen if field.name not in made_up])
    tasks = [files[i : i + files_per_task] for i in range(0, len(files), files_per_task)]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from plait.spark.functions import to_spark  # noqa: PLC0415 - in the worker

        for batch in batches:
            for task in batch.column(0).to_pylist():
                adapted = _scan(
                    tasks[task],
                    frozen.names if names is None else names,
                    **{**drift, "schema": of_files, "strict": False},
                    **columns_of,
                    missing="null",
                    batch_rows=batch_rows,
                    threads=threads(),
                    memory_limit=_memory_limit(memory_limit),
                )
                made = (pa.record_batch(found) for found in adapted.to_batches())
                yield from to_spark(made, declared, batch_rows=batch_rows, lossy=lossy)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, declared)


def _summaries(spark: SparkSession, files: list[str], drift: Mapping[str, Any]) -> list[pa.Table]:
    """What the files' schemas come to, a group of files at a time, as tables without rows."""
    groups = [files[i : i + _SUMMARY_FILES] for i in range(0, len(files), _SUMMARY_FILES)]

    def summarize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                found = _scan(groups[group], threads=threads(), **drift)
                made = pa.schema(found.schema).serialize().to_pybytes()
                yield pa.record_batch({"schema": pa.array([made], pa.binary())})

    job = spark.range(0, len(groups), 1, len(groups)).mapInArrow(summarize, "schema binary")
    rows = cast("list[Any]", job.collect())
    return [pa.ipc.read_schema(pa.py_buffer(bytes(row.schema))).empty_table() for row in rows]
