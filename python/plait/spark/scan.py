"""`scan`: one schema over files that drift, resolved once, and applied by every task.

    driver     files ─▶ summaries (by a small job where there are many) ─▶ one frozen schema
    executor   its files ─▶ adapted to that schema, or refused ─▶ Arrow batches

Invariants: rows and schema are those of `plait.scan` of all files, however files are shared out:
the driver decides, the engine writes the decision down, and no task decides anything again.
Not here: how schemas are brought together (the engine), what a task is (`scan_plan`), merges
(`source`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, cast

import pyarrow as pa

from plait._checks import _count, _flag, _mapping, _path
from plait._scan import Constant, _choice, _constants, _names
from plait.errors import PlaitError
from plait.sizes import Size
from plait.spark.scan_plan import plan_scan, summary
from plait.spark.settings import located
from plait.spark.shipping import shipped
from plait.spark.types import Lossy
from plait.spark.worker import threads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Fewer footers are read by the driver sooner than by a job.
_DRIVER_FILES = 64
_SUMMARY_FILES = 64


def scan(
    spark: SparkSession,
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    columns: Iterable[str] | Mapping[str, str] | str | None = None,
    *,
    schema: pa.Schema | None = None,
    strict: bool = False,
    policy: Mapping[str, str] | None = None,
    case: Literal["exact", "insensitive"] = "exact",
    missing: Literal["error", "null"] = "error",
    static: Mapping[str, Constant | Sequence[Constant]] | None = None,
    implicit: Iterable[str] = (),
    partitions: Literal["none", "hive", "dirs"] = "none",
    partition_types: Mapping[str, str] | None = None,
    partition_clash: Literal["error", "partition", "file"] | None = None,
    root: str | os.PathLike[str] | None = None,
    limit: SupportsIndex | None = None,
    files_per_task: int = 1,
    batch_rows: int = 16_384,
    lossy: Lossy = "error",
    memory_limit: Size | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Reads files whose schemas drift as one DataFrame: `plait.scan` on executors.

    The driver freezes one schema for all files. Rows and schema are those of `plait.scan` of all
    files, whatever `files_per_task` is. Rows come file by file, in the order of the list.

    Args:
        spark: The session.
        sources: Parquet files, and files of JSON lines and CSV: paths, globs, folders, URLs that
            executors reach, too; Delta and Iceberg tables as in `plait.scan`. The driver reads
            files of text for the types of their columns.
        columns: See `plait.scan`, as the following.
        schema: An Arrow schema that wins over what files say.
        strict: Whether columns that `schema` does not name are refused.
        policy: What becomes of a kind of drift.
        case: Whether names that differ in case alone are one column.
        missing: Whether a column that no file has is an error, or null.
        static: Columns of one value each, or of one value for each of `sources`.
        implicit: `_path`, `_folder`, `_filename`, `_size`, `_modified`, `_row_number`.
        partitions: Whether folders are columns: `"hive"` for those of `key=value`, `"dirs"` for
            `dir0`, `dir1` below the folder that is named. Types follow from the folders of all
            files, whichever task reads them.
        partition_types: Types of partition columns by name, such as `{"year": "int32"}`. Needs
            `partitions`.
        partition_clash: Which column is meant if a folder and a file have one of the same name.
            Needs `partitions`.
        root: The folder above `dir0`, for files that are named one by one, or in place of the
            folder that is named. Needs `partitions="dirs"`.
        limit: Maximum number of rows: the first in the order of the files. The driver opens files
            until they have as many; others are in no task.
        files_per_task: Files that one task reads, one after the other.
        batch_rows: Rows of a batch, at most.
        lossy: Whether nanoseconds below a microsecond are an error, or are cut off.
        memory_limit: What reading may take in a worker; by default a share of what Spark gives it.
        storage_options: Settings of object stores by name. They travel with the tasks; secrets are
            better kept in the environment of the executors. A store object is refused.

    Returns:
        The rows of all files, with the frozen schema in Spark's types.

    Raises:
        SchemaConflict: Types are incompatible; names all columns, types and files.
        UnknownColumn: A column is in no file.
        SourceNotFound: A path leads to no file.
        InvalidArgument: An option is invalid or has no effect.
        Unsupported: `_file_index` is asked for, which tasks do not know, or a store is an object.

    Example:
        >>> frame = scan(spark, "runs", ["name", "ts"])  # doctest: +SKIP
        >>> frame = scan(spark, "lake", partitions="hive", limit=100)  # doctest: +SKIP
    """
    named = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    options: dict[str, Any] = {
        "columns": _names(columns),
        "policy": _mapping(policy, "policy"),
        "case": _choice(case, "case"),
        "strict": _flag(strict, "strict"),
        "missing": _choice(missing, "missing"),
        "static": _constants(static),
        "implicit": [implicit] if isinstance(implicit, str) else list(implicit),
        "partitions": _choice(partitions, "partitions"),
        "partition_types": _mapping(partition_types, "partition_types"),
        "partition_clash": None
        if partition_clash is None
        else _choice(partition_clash, "partition_clash"),
        "root": None if root is None else located(_path(root, "root")),
    }
    plan = plan_scan(
        [located(_path(source, "sources")) for source in named],
        options,
        schema,
        storage_options=storage_options,
        limit=_count(limit, "limit"),
        files_per_task=files_per_task,
        batch_rows=batch_rows,
        lossy=lossy,
        memory_limit=memory_limit,
        summaries=lambda files, settings: _summaries(spark, files, settings),
    )
    if not plan.tasks:
        return spark.createDataFrame([], plan.declared)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from plan.read(plan.tasks[task])

    tasks = spark.range(0, len(plan.tasks), 1, len(plan.tasks))
    return tasks.mapInArrow(shipped(read), plan.declared)


def _summaries(spark: SparkSession, files: list[str], settings: Mapping[str, Any]) -> list[str]:
    """What the files say of their columns, group by group: by a job where there are many."""
    if len(files) <= _DRIVER_FILES:
        return [summary(files, settings)]
    groups = [files[i : i + _SUMMARY_FILES] for i in range(0, len(files), _SUMMARY_FILES)]

    def summarize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                try:
                    found = summary(groups[group], settings, threads=threads())
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
    return [known.get(i) or summary(group, settings) for i, group in enumerate(groups)]
