"""`scan`: one schema over files that drift, resolved once, and applied by every task.

    driver     files ─▶ summaries (by a small job where there are many) ─▶ one frozen schema
    executor   its files ─▶ adapted to that schema, or refused ─▶ Arrow batches

Invariants: rows and schema are those of `plait.scan` of all files, however files are shared out:
the driver decides, the engine writes the decision down, and no task decides anything again.
Not here: how schemas are brought together (the engine), merges (`source`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from plait import _native
from plait._checks import _flag, _mapping
from plait._scan import Constant, Scan, _choice, _names
from plait.errors import InvalidArgument, PlaitError, Unsupported
from plait.sizes import Size
from plait.spark.shipping import shipped
from plait.spark.types import Lossy, spark_schema
from plait.spark.worker import memory_limit as _memory_limit
from plait.spark.worker import threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Fewer footers are read by the driver sooner than by a job.
_DRIVER_FILES = 64
_SUMMARY_FILES = 64


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

    The driver freezes one schema for all files. Rows and schema are those of `plait.scan` of all
    files, whatever `files_per_task` is. Rows come file by file, in the order of the list.

    Args:
        spark: The session.
        sources: Local or mounted files, globs, folders; Delta tables without partition columns.
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
        SchemaConflict: Types are incompatible; names all columns, types and files.
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
    names = _names(columns)
    asked = [implicit] if isinstance(implicit, str) else list(implicit)
    if "_file_index" in (*asked, *(names or ())):
        raise Unsupported.of(
            "`_file_index` is not known to tasks", hint="`_path` distinguishes files, too"
        )
    files = _listed(sources)
    options: dict[str, Any] = {
        "columns": names,
        "policy": _mapping(policy, "policy"),
        "case": _choice(case, "case"),
        "strict": _flag(strict, "strict"),
        "missing": _choice(missing, "missing"),
        "static": list(_mapping(static, "static").items()),
        "implicit": asked,
    }
    try:
        text = json.dumps({**options, "sources": files}, allow_nan=False)
    except (TypeError, ValueError) as cause:
        raise InvalidArgument(f"an option has a type that cannot be used: {cause}") from cause
    frozen, found = _native.freeze_scan(text, schema, _summaries(spark, files))
    declared = spark_schema(pa.schema(found))
    tasks = [files[i : i + files_per_task] for i in range(0, len(files), files_per_task)]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from plait.spark.functions import to_spark  # noqa: PLC0415 - in the worker

        for batch in batches:
            for task in batch.column(0).to_pylist():
                here = {
                    "sources": tasks[task],
                    "frozen": frozen,
                    "batch_rows": batch_rows,
                    "threads": threads(),
                    "memory_limit": _memory_limit(memory_limit),
                }
                part = Scan(_native.Scan(json.dumps(options | here), None, [], None), follow=False)
                made = (pa.record_batch(rows) for rows in part.to_batches())
                yield from to_spark(made, declared, batch_rows=batch_rows, lossy=lossy)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(shipped(read), declared)


def _listed(sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The files that sources name, as the engine lists them; tasks run in another folder."""
    named = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    paths = [os.path.abspath(os.fspath(path)) for path in named]  # noqa: PTH100 - a glob is no path
    found: list[str] = json.loads(_native.list_sources(json.dumps({"sources": paths})))
    return found


def _summaries(spark: SparkSession, files: list[str]) -> list[str]:
    """What the files say of their columns, group by group: by a job where there are many."""
    if len(files) <= _DRIVER_FILES:
        return [_summary(files)]
    groups = [files[i : i + _SUMMARY_FILES] for i in range(0, len(files), _SUMMARY_FILES)]

    def summarize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                try:
                    found = _summary(groups[group], threads=threads())
                except PlaitError:
                    found = None  # the driver meets the same error, and raises it as it is
                yield pa.record_batch(
                    {
                        "number": pa.array([group], pa.int64()),
                        "summary": pa.array([found], pa.string()),
                    }
                )

    job = spark.range(0, len(groups), 1, len(groups))
    rows = cast(
        "list[Any]", job.mapInArrow(shipped(summarize), "number long, summary string").collect()
    )
    known = {row.number: row.summary for row in rows}
    return [known.get(i) or _summary(group) for i, group in enumerate(groups)]


def _summary(files: list[str], **options: int) -> str:
    return _native.summarize_scan(json.dumps({"sources": files, **options}))
