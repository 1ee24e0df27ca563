"""What the sink of Spark writes, without Spark: tasks, their messages, and the rows that count."""

import contextlib

import pyarrow as pa
from pyspark.sql.types import LongType, StructType

import plait
from plait.spark import sink

from .stops import Stop

SCHEMA = StructType().add("k", LongType())


class Task:
    """What a task of Spark knows of itself."""

    attempts = 0

    def __init__(self, partition, batch):
        Task.attempts += 1
        self.partition, self.attempt, self.batch = partition, Task.attempts, batch

    def partitionId(self):
        return self.partition

    def taskAttemptId(self):
        return self.attempt

    def getLocalProperty(self, name):
        return {"sql.streaming.queryId": "q", "streaming.sql.batchId": str(self.batch)}.get(name)


@contextlib.contextmanager
def task(partition=0, batch=0):
    """Inside of a task."""
    get = sink.TaskContext.get
    made = Task(partition, batch)
    sink.TaskContext.get = lambda: made
    try:
        yield
    finally:
        sink.TaskContext.get = get


def options(root, settings="", **more):
    """Options of a writer."""
    given = {"path": str(root), "sort_by": "k", **more}
    return given | ({"storage_options": settings} if settings else {})


def ran(writer, runs, batch=0):
    """The messages of tasks, each of which writes some keys."""
    messages = []
    for partition, keys in enumerate(runs):
        with task(partition, batch):
            messages.append(writer.write(iter([pa.record_batch({"k": pa.array(keys, "int64")})])))
    return messages


def stream(root, settings="", **more):
    """What Spark makes for a query, or for one that is started again."""
    return sink.RunStreamWriter.of(options(root, settings, **more), SCHEMA, overwrite=False)


def batch(root, number, *runs, settings="", **more):
    """A batch as a driver commits it that was just started; the files that its tasks wrote."""
    writer = stream(root, settings, **more)
    messages = ran(writer, runs, number)
    writer.commit(messages, number)
    return [message.file["name"] for message in messages if message.file]


def dies_in_commit(root, steps, monkeypatch, settings=""):
    """Whether a driver dies that commits the keys 1, 2 and 3 as batch 0; calls of it are `steps`."""
    writer = stream(root, settings)
    messages = ran(writer, [[1, 2], [3]])
    with monkeypatch.context() as patched:
        patched.setattr(sink, "DeltaLog", steps.counting(sink.DeltaLog))
        patched.setattr(sink, "place_of", steps.counting(sink.place_of))
        try:
            writer.commit(messages, 0)
        except Stop:
            return True
    return False


def write(root, *runs, overwrite=False, settings=""):
    """A write of a frame."""
    writer = sink.RunWriter.of(options(root, settings), SCHEMA, overwrite=overwrite)
    writer.commit(ran(writer, runs))


def visible(root, settings=None):
    """The keys that count, in order."""
    table = plait.Table(str(root), sort_by="k", storage_options=settings)
    return pa.table(table.read())["k"].to_pylist() if table.files() else []
