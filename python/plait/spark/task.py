"""What an executor does: one task, and one row that reports it.

JSON of the task ──▶ execute_task, storage to storage ──▶ (number, report or error as JSON)
unsorted group   ──▶ sort_merge, with all its outputs ─┘
                                                      └──▶ counters: bytes and rows that are done

Invariants: a task is executed any number of times, at once or one after the other, and ends with
files of the same names: one, or those of an unsorted group. Errors that come back on every executor
are rows and are not tried again; errors of storage are raised, so that Spark tries elsewhere.
Not here: which tasks there are (`plan`), what becomes of their outputs (`compact`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait._plan import pieces_of
from plait._planning import execute_task
from plait.errors import PlaitError, StorageError
from plait.table.sorting import Seen, sort_merge

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from plait._plan import Task
    from plait.report import MergeReport

__all__ = ["ANSWER", "Counters", "Packed", "PackedSort", "executor", "pack"]

# Columns of the answers: by position, as Spark matches them.
ANSWER = "number bigint, report string, error string"
_DETAILS = ("path", "column", "row", "offset", "got", "hint", "what")


@dataclass(frozen=True)
class Packed:
    """A task as it travels: its JSON, compressed, the folder of its output, bytes it will read."""

    task: bytes
    out: str
    bytes: int = 0

    def run(self, options: dict[str, Any]) -> MergeReport:
        """Executes the task."""
        return execute_task(zlib.decompress(self.task), self.out, if_exists="add", **options)


@dataclass(frozen=True)
class PackedSort:
    """A group with unsorted files as it travels: what `sort_merge` takes, bytes it will read."""

    sources: tuple[str, ...]
    out: str
    merge: dict[str, Any]
    seen: Seen
    bytes: int = 0

    def run(self, options: dict[str, Any]) -> MergeReport:
        """Sorts and merges the group."""
        return sort_merge(self.sources, self.out, {**self.merge, **options}, self.seen)


@dataclass(frozen=True)
class Counters:
    """What tasks have done: source bytes that were planned for them, and rows written.

    Spark adds what a task counted once, when the first of its attempts ends.
    """

    bytes: Accumulator[int]
    rows: Accumulator[int]


def pack(task: Task, out: str) -> Packed:
    """A task as it travels."""
    compressing = zlib.compressobj()
    pieces = [compressing.compress(piece.encode()) for piece in pieces_of(task)]
    return Packed(b"".join([*pieces, compressing.flush()]), out, task.bytes)


def executor(
    tasks: Sequence[Packed | PackedSort],
    options: dict[str, Any],
    counters: Counters | None = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` is given: numbers of tasks come in, answers go out.

    Args:
        tasks: All tasks of the job. Spark ships them to an executor once.
        options: Options of `plait.execute_task`: threads, checks, settings of stores.
        counters: Counts of tasks that are done.
    """
    packed = tuple(tasks)

    def execute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - Spark itself needs it

        for batch in batches:
            for number in batch.column(0).to_pylist():
                report, error = _execute(packed[number], options, counters)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([number], pa.int64()),
                        pa.array([report], pa.string()),
                        pa.array([error], pa.string()),
                    ],
                    names=["number", "report", "error"],
                )

    return execute


def _execute(
    packed: Packed | PackedSort, options: dict[str, Any], counters: Counters | None
) -> tuple[str | None, str | None]:
    try:
        report = packed.run(options)
    except StorageError:
        raise
    except PlaitError as error:
        details = {name: getattr(error, name) for name in _DETAILS}
        return None, json.dumps({"kind": type(error).__name__, "text": str(error), **details})
    if counters is not None:
        counters.bytes.add(packed.bytes)
        counters.rows.add(report.rows_out)
    return json.dumps(report.to_dict()), None
