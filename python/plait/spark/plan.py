"""What the session does: settings into a task's share, groups into one job, answers into outputs.

groups ──▶ tasks, largest first ──▶ range(n, n partitions).mapInArrow ──▶ outputs by group
                                                   └──▶ counters ──▶ progress, for the caller

Cost: one Spark job a round, one task an output, no shuffle; about 60 ms of Spark a task. A group
with files that are to be sorted is one task, whatever its outputs. Whoever watches costs a thread,
in which the job waits.
Not here: what a task does (`task`); surveys and commits (`plait.table`).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import plait
from plait._native_call import OnProgress
from plait.errors import InvalidArgument, PlaitError
from plait.report import MergeReport, OutputReport, Progress
from plait.sizes import parse_size
from plait.spark.shipping import absent, shipped
from plait.spark.task import ANSWER, Counters, Packed, PackedSort, executor, pack
from plait.table.commits import Merged
from plait.table.groups import Group
from plait.table.options import CompactOptions
from plait.table.progress import Watch
from plait.table.run import FOR_ONE_GROUP, Runner, group_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

__all__ = ["Share", "is_connect", "parallelism", "raised", "run_on", "share_of", "tagged"]

# What a Python worker takes besides the engine: the interpreter, PyArrow, pandas.
_WORKER_BYTES = 150_000_000
_LIMIT_BYTES_MIN = 64_000_000
_LIMIT_BYTES_DEFAULT = 512_000_000
_MIB = 1 << 20
_SPARK_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_PROGRESS_EVERY_S = 0.25
# More rows than a cluster has cores.
_RANGE_ROWS = 100_000
_RAISED = re.compile(r"^plait\.(?:errors\.)?(\w+): (.+(?:\nhint: .+)?)", re.MULTILINE)


class Share:
    """What one task may take: threads, and bytes of memory."""

    def __init__(self, threads: int, memory_limit: int) -> None:
        """Takes both."""
        self.threads = threads
        self.memory_limit = memory_limit


def share_of(spark: SparkSession, memory_limit: object = None) -> Share:
    """The share of a task, from the session's settings.

    Threads are `spark.task.cpus`. Memory is the part of a slot in `spark.executor.pyspark.memory`,
    or else in `spark.executor.memoryOverhead`, less what the Python worker takes itself; 512 MB
    where Spark runs in one process.

    Args:
        spark: The session.
        memory_limit: A limit that was given; it is taken as it is.
    """
    if not hasattr(spark, "range") or not hasattr(spark, "conf"):
        raise InvalidArgument.of("`spark` is not a session", got=f"`{spark!r}`")

    def setting(name: str) -> str | None:
        found: str | None = spark.conf.get(name, None)
        return found

    cpus = int(setting("spark.task.cpus") or 1)
    if memory_limit is not None:
        return Share(cpus, parse_size(memory_limit, "memory_limit"))  # type: ignore[arg-type]
    master = setting("spark.master") or ""
    if master == "local" or master.startswith("local["):
        return Share(cpus, _LIMIT_BYTES_DEFAULT)
    slots = max(1, int(setting("spark.executor.cores") or 1) // cpus)
    heap = _bytes(setting("spark.executor.memory") or "1g")
    factor = float(setting("spark.executor.memoryOverheadFactor") or 0.1)
    whole = (
        setting("spark.executor.pyspark.memory") or setting("spark.executor.memoryOverhead") or ""
    )
    shared = _bytes(whole) if whole else max(384 * _MIB, int(heap * factor))
    return Share(cpus, max(_LIMIT_BYTES_MIN, shared // slots - _WORKER_BYTES))


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no `sparkContext`."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark runs side by side, as it says itself."""
    if not is_connect(spark):
        return max(1, int(spark.sparkContext.defaultParallelism))
    # Into so many partitions Spark divides a range that says nothing of it.
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark is there when it is used

    numbers = spark.range(_RANGE_ROWS).select(sf.spark_partition_id().alias("part"))
    return max(1, numbers.distinct().count())


def run_on(
    spark: SparkSession,
    share: Share,
    options: CompactOptions,
) -> Runner:
    """The runner on executors: all groups of a round in one job."""
    of_task = {
        "threads": share.threads,
        "verify": options.verify,
        "storage_options": options.storage_options,
    }

    def run(groups: Sequence[Group], watch: Watch) -> list[tuple[Group, Merged | PlaitError]]:
        try:
            return list(zip(groups, merged(groups, watch), strict=True))
        except FOR_ONE_GROUP as error:
            # The job has failed: of the other groups nothing is kept.
            return [(group_of(error, groups), error)]

    def merged(groups: Sequence[Group], watch: Watch) -> list[Merged]:
        parts = [part for g, group in enumerate(groups) for part in _parts(g, group)]
        # The last to finish should be a short one.
        parts.sort(key=lambda part: -part.rows)
        tasks = [part.packed for part in parts]
        outputs: list[dict[int, tuple[OutputReport, ...]]] = [{} for _ in groups]
        unsorted: dict[int, tuple[str, ...]] = {}
        total = sum(task.bytes for task in tasks)
        watch.expect(total)
        with watch.merging(total) as progress:
            reports = _run(spark, tasks, of_task, progress)
        for number, report in reports.items():
            part = parts[number]
            outputs[part.group][part.index] = report.outputs
            if report.sort is not None:
                unsorted[part.group] = report.sort.unsorted
        return [
            Merged(tuple(o for index in sorted(of) for o in of[index]), {}, unsorted.get(g, ()))
            for g, of in enumerate(outputs)
        ]

    return run


@dataclass(frozen=True)
class _Part:
    """What one task of Spark does: the number of its group, its place in that, rows it writes."""

    group: int
    index: int
    rows: int
    packed: Packed | PackedSort


def _parts(number: int, group: Group) -> list[_Part]:
    if not group.unsorted:
        return [
            _Part(number, task.index, task.rows, pack(task, group.out)) for task in group.plan.tasks
        ]
    merge = {name: value for name, value in group.merge.items() if name != "storage_options"}
    paths = tuple(file.path for file in group.files)
    packed = PackedSort(paths, group.out, merge, group.seen, group.bytes)
    return [_Part(number, 0, group.rows, packed)]


class Job:
    """A job whose progress is reported a few times a second."""

    def __init__(self, spark: SparkSession, progress: OnProgress) -> None:
        """Takes the callback of the caller."""
        self._progress = progress
        self._spark = spark
        # Spark Connect has no accumulators; there, answers are counted as they come.
        self.counters = None
        if not is_connect(spark):
            context = spark.sparkContext
            self.counters = Counters(context.accumulator(0), context.accumulator(0))
        self._counted_bytes, self._counted_rows = 0, 0
        self._total_bytes = 0

    def collect(
        self, frame: DataFrame, tasks: Sequence[Packed | PackedSort], tag: str
    ) -> list[Row]:
        """The rows of a job, which runs in a thread with the settings of this one.

        What `progress` raises ends the job, and is raised when that has ended.
        """
        from pyspark import InheritableThread  # noqa: PLC0415 - Spark is there when it is used

        self._total_bytes = sum(task.bytes for task in tasks)
        made: Future[list[Row]] = Future()

        def run() -> None:
            try:
                made.set_result(self._rows(frame, tasks))
            except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
                made.set_exception(error)

        thread = InheritableThread(run, session=self._spark)
        thread.start()
        is_done = False
        while not is_done:
            thread.join(_PROGRESS_EVERY_S)
            is_done = not thread.is_alive()
            try:
                self._progress(self._current())
            except BaseException:
                self._spark.interruptTag(tag)
                thread.join()
                raise
        return made.result()

    def _rows(self, frame: DataFrame, tasks: Sequence[Packed | PackedSort]) -> list[Row]:
        if self.counters is not None:
            return frame.collect()
        rows = []
        # Tasks run side by side, and their answers come in the order of their numbers.
        for row in frame.toLocalIterator():
            rows.append(row)
            if row["error"] is None:
                self._counted_rows += MergeReport.from_dict(json.loads(row["report"])).rows_out
                self._counted_bytes += tasks[row["number"]].bytes
        return rows

    def _current(self) -> Progress:
        done, rows = self._counted_bytes, self._counted_rows
        if self.counters is not None:
            done, rows = self.counters.bytes.value, self.counters.rows.value
        return Progress(done, self._total_bytes, rows, "merge")


def _run(
    spark: SparkSession,
    tasks: Sequence[Packed | PackedSort],
    options: dict[str, Any],
    progress: OnProgress | None = None,
) -> dict[int, MergeReport]:
    """The report of each task, by its number."""
    count = len(tasks)
    numbers = spark.range(0, count, 1, count)
    job = None if progress is None else Job(spark, progress)
    run = executor(tasks, options, None if job is None else job.counters)
    answers = numbers.mapInArrow(shipped(run), ANSWER)
    with tagged(spark) as tag:
        rows = answers.collect() if job is None else job.collect(answers, tasks, tag)
    for row in rows:
        if row["error"] is not None:
            details = json.loads(row["error"])
            error = _error(details.pop("kind"), details.pop("text"))
            for name, value in details.items():
                setattr(error, name, value)
            raise error
    return {row["number"]: MergeReport.from_dict(json.loads(row["report"])) for row in rows}


@contextmanager
def tagged(spark: SparkSession) -> Iterator[str]:
    """Gives the tag of the jobs that begin inside, which end with it; raises what a task raised."""
    tag = f"plait-{uuid.uuid4().hex}"
    spark.addTag(tag)
    try:
        yield tag
    except Exception as cause:
        error = raised(cause)
        if error is None:
            raise
        raise error from cause
    except BaseException:
        # Ctrl-C: executors would go on with what nobody waits for.
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)


def raised(cause: Exception) -> PlaitError | None:
    """The error of ours that a task raised, in what Spark raises."""
    text = str(cause)
    found = _RAISED.search(text)
    return absent(text) if found is None else _error(found[1], found[2])


def _error(kind: str, text: str) -> PlaitError:
    found = getattr(plait, kind, None)
    is_ours = isinstance(found, type) and issubclass(found, PlaitError)
    error: PlaitError = found(text) if is_ours and found is not None else PlaitError(text)
    return error


def _bytes(text: str) -> int:
    """A size as Spark's settings have it: `512m`, `1g`; a bare number is in MiB."""
    digits = text.strip().lower().removesuffix("b") or "0"
    unit = _SPARK_UNITS.get(digits[-1])
    return int(digits) * _MIB if unit is None else int(digits[:-1]) * unit
