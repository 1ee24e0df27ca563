"""What planning reads of many files, read by executors: footers, indexes, first and last keys.

paths ──▶ range(n tasks).mapInArrow: 64 files at a time a task ──▶ (path, bytes) ──▶ Known ──▶ plan

Invariants: the plan is the same bytes with and without. A file that an executor cannot read is no
error: the driver reads it, and raises what there is to raise. Nothing is held when it is planned.
Cost: one Spark job a look, no shuffle. Of each file the bytes of the footer, and at most 64 KiB of
keys besides the first and the last page of a key column, packed: the JVM and the driver hold them
until all are there, and then an unnamed file does, but for 16 MiB.
Not here: what is read (`rust/parquet/src/plan/learn.rs`); merges (`plan`, `task`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plait import _native
from plait._native_call import _settings
from plait.order import sort_text
from plait.spark.plan import Share, parallelism, tagged
from plait.spark.shipping import shipped
from plait.table.groups import Prefetch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["FILES_MAX", "prefetch_on"]

# More files than these are read by executors. One after the other, the driver needs about five
# requests a file of an object store: with 20 ms each, 256 files take it 27 s.
FILES_MAX = 256
# The same of local files, 2,000 of which the driver reads and plans in two seconds: as long as a
# small job of Spark takes.
LOCAL_FILES_MAX = 10_000

# Files that are handed to the engine at once.
_BATCH_FILES = 64
_TASKS_PER_CORE = 4


def prefetch_on(spark: SparkSession, share: Share, storage_options: object) -> Prefetch:
    """Reading that executors do.

    Args:
        spark: The session.
        share: What a task may take.
        storage_options: Settings of object stores.
    """

    def prefetch(paths: Sequence[str], merge: Mapping[str, Any]) -> _native.Known | None:
        objects = sum("://" in path for path in paths)
        if objects <= FILES_MAX and len(paths) - objects <= LOCAL_FILES_MAX:
            return None
        options = {
            "sort_by": sort_text(merge["sort_by"]),
            "trust_footers": True,
            "memory_limit": share.memory_limit,
            "storage_options": _settings(storage_options),
        }
        most = parallelism(spark) * _TASKS_PER_CORE
        count = min(-(-len(paths) // _BATCH_FILES), most)
        numbers = spark.range(0, count, 1, count)
        read = numbers.mapInArrow(shipped(_reader(tuple(paths), count, options)), "known binary")
        with tagged(spark):
            files = read.toArrow().column(0)
        # One after the other: there may be a million.
        return _native.Known(file.as_py() for file in files)

    return prefetch


def _reader(
    paths: tuple[str, ...], count: int, options: dict[str, Any]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` is given: numbers of tasks come in, what was read goes out."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - Spark itself needs it

        for batch in batches:
            for number in batch.column(0).to_pylist():
                mine = paths[number::count]
                for start in range(0, len(mine), _BATCH_FILES):
                    sources = list(mine[start : start + _BATCH_FILES])
                    files = _native.learn(json.dumps({**options, "sources": sources}))
                    known = pa.array([f for f in files if f is not None], pa.binary())
                    yield pa.RecordBatch.from_arrays([known], names=["known"])

    return read
