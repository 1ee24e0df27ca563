"""Runs that Spark writes are sorted, whole and visible once, whatever fails in between."""

import json
import os
import random
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructType

from plait._lease import new_id
from plait.spark import folder, sink

from .stops import Steps, Stop

pytestmark = pytest.mark.local

SCHEMA = StructType().add("name", StringType()).add("ts", LongType())
CASES = 200 if os.environ.get("CI") else 30


def files(root):
    """Names of the runs that lie there, visible or not."""
    return sorted(path.name for path in root.glob("_plait/files/*.parquet"))


def put(root, name, keys):
    """A run that counts for nobody yet, and its lease."""
    lease = new_id()
    folder.begin(str(root), lease)
    path = root / "_plait/files" / f"{name}-{lease}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"k": keys}), path)
    return f"_plait/files/{path.name}"


def end_leases(root):
    """What becomes of the leases of drivers that died, in time."""
    for lease in folder.newest(str(root))["leases"]:
        folder.give_up(str(root), lease["id"])


def visible(root):
    return sorted(
        k
        for name in folder.counting(str(root))
        for k in pq.read_table(root / name)["k"].to_pylist()
    )


# ---- commits


@pytest.mark.parametrize("step", range(1, 16))
def test_a_batch_counts_once_wherever_its_commit_stops(step, tmp_path, monkeypatch):
    """Stops the n-th step of a commit, then commits again, with files of a second attempt."""
    first = [put(tmp_path, "first-0", [1, 2]), put(tmp_path, "first-1", [3])]
    steps = Steps(step)
    monkeypatch.setattr(folder, "place_of", steps.counting(folder.place_of))
    for name in ("newest", "_call"):
        monkeypatch.setattr(folder, name, steps.counted(getattr(folder, name)))
    stopped = False
    try:
        folder.publish_batch(str(tmp_path), "query", 0, first)
    except Stop:
        stopped = True
    monkeypatch.undo()
    assert visible(tmp_path) in ([], [1, 2, 3])
    assert stopped == (step <= steps.count)
    again = [put(tmp_path, "second-0", [1, 2, 3])]
    unused = folder.publish_batch(str(tmp_path), "query", 0, again)
    assert visible(tmp_path) == [1, 2, 3]
    assert set(unused) in (set(), set(again))
    folder.publish_batch(str(tmp_path), "query", 1, [put(tmp_path, "next", [4])])
    assert visible(tmp_path) == [1, 2, 3, 4]


def test_a_batch_that_was_compacted_and_swept_since_does_not_come_back(tmp_path):
    folder.publish_batch(str(tmp_path), "query", 0, [put(tmp_path, "a", [1])])
    folder.publish_batch(str(tmp_path), "query", 1, [put(tmp_path, "b", [2])])
    plait.compact(tmp_path, policy="full", sort_by="k", yes=True)
    plait.expire(tmp_path, retention=0, yes=True)
    assert visible(tmp_path) == [1, 2]
    again = put(tmp_path, "again", [2])
    assert folder.publish_batch(str(tmp_path), "query", 1, [again]) == (again,)
    assert visible(tmp_path) == [1, 2]


def test_files_that_were_swept_before_they_counted_are_written_again(tmp_path, monkeypatch):
    def dies(*_arguments, **_named):
        raise Stop

    monkeypatch.setattr(folder, "_call", dies)
    with pytest.raises(Stop):
        folder.publish_batch(str(tmp_path), "query", 0, [put(tmp_path, "a", [1])])
    monkeypatch.undo()
    plait.expire(tmp_path, retention=0, yes=True)
    assert len(files(tmp_path)) == 1, "it may still come to count"
    end_leases(tmp_path)
    plait.expire(tmp_path, retention=0, yes=True)
    assert files(tmp_path) == []
    folder.publish_batch(str(tmp_path), "query", 0, [put(tmp_path, "b", [1])])
    assert visible(tmp_path) == [1]


def test_two_drivers_with_one_batch_commit_it_once(tmp_path):
    for batch in range(CASES // 3):
        mine = [[put(tmp_path, f"{who}-{batch}", [batch])] for who in "ab"]
        threads = [
            threading.Thread(target=folder.publish_batch, args=(str(tmp_path), "q", batch, names))
            for names in mine
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert visible(tmp_path) == list(range(batch + 1))


def test_commits_beside_compactions_lose_nothing(tmp_path):
    def write():
        for batch in range(CASES):
            folder.publish_batch(
                str(tmp_path), "q", batch, [put(tmp_path, f"r{batch:03}", [batch])]
            )

    writer = threading.Thread(target=write)
    (tmp_path / "_plait").mkdir()
    writer.start()
    while writer.is_alive():
        plait.compact(tmp_path, policy="full", sort_by="k", yes=True)
    writer.join()
    plait.compact(tmp_path, policy="full", sort_by="k", yes=True)
    assert visible(tmp_path) == list(range(CASES))
    assert len(folder.counting(str(tmp_path))) == 1


def test_overwriting_replaces_what_counts_and_nothing_else(tmp_path):
    pq.write_table(pa.table({"k": [9]}), tmp_path / "old.parquet")
    folder.publish(str(tmp_path), [put(tmp_path, "a", [1])])
    assert visible(tmp_path) == [1, 9]
    folder.publish(str(tmp_path), [put(tmp_path, "b", [2])], overwrite=True)
    assert visible(tmp_path) == [2]
    folder.publish(str(tmp_path), [], overwrite=True)
    assert visible(tmp_path) == []
    assert (tmp_path / "old.parquet").exists()


def test_a_random_history_of_batches_is_a_list_of_sets(tmp_path):
    rng = random.Random(8)
    expected = {}
    for step in range(CASES):
        batch = rng.randrange(12)
        keys = [step * 10 + j for j in range(rng.randint(1, 3))]
        folder.publish_batch(str(tmp_path), "q", batch, [put(tmp_path, f"s{step}", keys)])
        expected.setdefault(batch, keys)
        if rng.random() < 0.1:
            plait.compact(tmp_path, policy="full", sort_by="k", yes=True)
        assert visible(tmp_path) == sorted(k for keys in expected.values() for k in keys)


# ---- options


def test_options_that_are_invalid_are_refused(tmp_path):
    path = {"path": str(tmp_path)}
    for options, error in (
        ({"sort_by": "ts"}, plait.InvalidArgument),
        (path, plait.InvalidArgument),
        ({**path, "sort_by": "absent"}, plait.UnknownColumn),
        ({**path, "sort_by": "ts", "sorted": "yes"}, plait.InvalidArgument),
        ({**path, "sort_by": "ts", "row_group_rows": "0"}, plait.InvalidArgument),
        ({**path, "sort_by": "ts", "sort": "perhaps"}, plait.InvalidArgument),
        ({**path, "sort_by": "ts", "memory_limit": "64MB"}, plait.InvalidArgument),
        ({**path, "sort_by": "ts", "sort": "true", "memory_limit": "x"}, plait.InvalidArgument),
        ({"path": "hdfs://host/x", "sort_by": "ts"}, plait.InvalidArgument),
    ):
        with pytest.raises(error):
            sink.RunWriter.of(options, SCHEMA, overwrite=False)
    with pytest.raises(plait.Unsupported, match="appended"):
        sink.RunStreamWriter.of({**path, "sort_by": "ts"}, SCHEMA, overwrite=True)


class Task:
    """What a task knows of itself."""

    def __init__(self, partition, attempt):
        self.partition, self.attempt = partition, attempt

    def partitionId(self):
        return self.partition

    def taskAttemptId(self):
        return self.attempt

    def getLocalProperty(self, name):
        return {"sql.streaming.queryId": "query", "streaming.sql.batchId": "3"}.get(name)


@pytest.mark.parametrize("streaming", [False, True])
def test_attempts_that_lost_count_never(streaming, tmp_path, monkeypatch):
    """Two attempts of one task end; one comes late, one dies half-way."""
    kind = sink.RunStreamWriter if streaming else sink.RunWriter
    writer = kind.of({"path": str(tmp_path), "sort_by": "name, ts"}, SCHEMA, overwrite=False)
    batch = pa.record_batch({"name": ["a", "b"], "ts": [1, 2]})

    def run(partition, attempt, batches):
        monkeypatch.setattr(sink.TaskContext, "get", lambda: Task(partition, attempt))
        return writer.write(iter(batches))

    def dies():
        yield batch
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        run(0, 10, dies())
    won, lost = run(0, 11, [batch]), run(0, 12, [batch])
    empty, other = run(1, 13, []), run(2, 14, [batch.slice(0, 0), batch])
    assert lost.rows == won.rows == 2 and empty.name is None
    arguments = (3,) if streaming else ()
    writer.commit([won, empty, other, None], *arguments)
    assert sorted(folder.counting(str(tmp_path))) == sorted([won.name, other.name])
    if streaming:
        again = run(0, 15, [batch])
        writer.commit([again], *arguments)
        assert not (tmp_path / again.name).exists()
    else:
        assert len(files(tmp_path)) == 2
    assert sorted(folder.counting(str(tmp_path))) == sorted([won.name, other.name])
    aborted = run(0, 16, [batch])
    writer.abort([aborted, None], *arguments)
    assert not (tmp_path / aborted.name).exists()


# ---- in Spark


@pytest.fixture
def plaited(spark):
    from plait import spark as ps

    ps.register(spark)
    return spark


def load(spark, path, **options):
    return spark.read.format("plait").options(**options).load(str(path))


@pytest.mark.spark
def test_every_task_writes_one_sorted_run(plaited, tmp_path):
    frame = plaited.range(0, 10_000, 1, 4).selectExpr(
        "concat('m', id % 3) name", "id ts", "array(id, null) tags", "named_struct('x', id) s"
    )
    options = {"sort_by": "name, -ts", "row_group_rows": "1000", "compression": "snappy"}
    runs = frame.sortWithinPartitions("name", frame.ts.desc())
    runs.write.format("plait").options(**options).mode("append").save(str(tmp_path / "t"))
    names = files(tmp_path / "t")
    assert len(names) == 4
    for name in names:
        found = plait.inspect(tmp_path / "t/_plait/files" / name, check_order=True)
        assert found.sort_by == "name, -ts" and len(found.row_groups) >= 2
    # The order is in the files: nobody needs to say it again.
    back = load(plaited, tmp_path / "t", part_rows="3000")
    expected = frame.orderBy("name", frame.ts.desc())
    assert back.collect() == expected.collect()
    # Once more, then instead.
    runs.limit(10).coalesce(1).write.format("plait").options(**options).mode("append").save(
        str(tmp_path / "t")
    )
    assert load(plaited, tmp_path / "t").count() == 10_010
    runs.write.format("plait").options(**options).mode("overwrite").save(str(tmp_path / "t"))
    assert load(plaited, tmp_path / "t").count() == 10_000
    report = plait.compact(tmp_path / "t", policy="full", yes=True)
    assert sum(group.rows for group in report.groups) == 10_000
    assert load(plaited, tmp_path / "t").collect() == expected.collect()


@pytest.mark.spark
def test_tasks_sort_their_rows_if_asked_to(plaited, tmp_path):
    frame = plaited.range(0, 40_000, 1, 4).selectExpr(
        "concat('m', hash(id) % 5) name", "hash(id, 1) ts", "id", "array(id, null) tags"
    )
    options = {"sort_by": "name, -ts", "row_group_rows": "5000"}
    writer = frame.write.format("plait").options(**options).mode("append")
    with pytest.raises(Exception, match="UnsortedSource"):
        writer.save(str(tmp_path / "refused"))
    writer.options(sort="true", memory_limit="16MB").save(str(tmp_path / "t"))
    names = files(tmp_path / "t")
    assert len(names) == 4
    for name in names:
        found = plait.inspect(tmp_path / "t/_plait/files" / name, check_order=True)
        assert found.sort_by == "name, -ts"
    expected = frame.orderBy("name", frame.ts.desc(), "id").collect()
    back = load(plaited, tmp_path / "t").collect()
    assert [row[:2] for row in back] == [row[:2] for row in expected]
    assert sorted(back) == sorted(expected)


def assert_nothing_is_left(path):
    """A task that was still running when Spark gave the write up may end after it: what it leaves
    counts for nobody, and `expire` removes it.
    """
    if not path.exists():
        return
    assert folder.counting(str(path)) == []
    until = time.monotonic() + 120
    while files(path) and time.monotonic() < until:
        time.sleep(0.2)
        plait.expire(path, retention=0, yes=True)
    assert files(path) == []
    assert folder.counting(str(path)) == []


@pytest.mark.spark
def test_a_task_out_of_order_fails_the_write_and_leaves_nothing(plaited, tmp_path):
    from pyspark.errors import PySparkException

    frame = plaited.range(0, 100, 1, 3).selectExpr("id % 7 k", "id v")
    with pytest.raises(PySparkException, match="UnsortedSource: key goes backwards"):
        frame.write.format("plait").option("sort_by", "k").mode("append").save(str(tmp_path / "t"))
    assert_nothing_is_left(tmp_path / "t")


@pytest.mark.spark
def test_one_failing_task_of_many_leaves_nothing_visible(plaited, tmp_path):
    from pyspark.errors import PySparkException

    frame = plaited.range(0, 3000, 1, 3).selectExpr(
        "id k", "if(id = 2999, raise_error('no'), id) v"
    )
    with pytest.raises(PySparkException):
        frame.write.format("plait").option("sort_by", "k").mode("append").save(str(tmp_path))
    assert_nothing_is_left(tmp_path)


@pytest.mark.spark
def test_a_replayed_micro_batch_adds_nothing(plaited, tmp_path):
    source, out, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    source.mkdir()

    def arrives(i):
        table = pa.table({"k": list(range(i * 100, i * 100 + 100)), "v": [i] * 100})
        pq.write_table(table, source / f"{i}.parquet")

    def run():
        stream = plaited.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1)
        query = (
            stream.parquet(str(source))
            .writeStream.format("plait")
            .option("sort_by", "k")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(out))
        )
        query.awaitTermination()

    arrives(0)
    arrives(1)
    run()
    assert [row.k for row in load(plaited, out).collect()] == list(range(200))
    runs = files(out)
    # The driver died after the commit of the runs, before Spark wrote down its own.
    for left in (checkpoint / "commits").glob("*1*"):
        left.unlink()
    for left in (checkpoint / "commits").glob(".1*"):
        left.unlink()
    run()
    assert [row.k for row in load(plaited, out).collect()] == list(range(200))
    assert files(out) == runs
    plait.compact(out, policy="full", yes=True)
    arrives(2)
    run()
    assert [row.k for row in load(plaited, out).collect()] == list(range(300))
    records = sorted(out.glob("_plait/batches/*/*.json"))
    assert [len(json.loads(path.read_text())["files"]) for path in records] == [1, 1, 1]


KILLS = """
import os, signal, sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from plait import spark as ps

home = Path(sys.argv[1])
spark = (
    SparkSession.builder.master("local-cluster[2,1,700]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.executor.memory", "600m")
    .config("spark.executor.pyspark.memory", "2g")
    .config("spark.local.dir", str(home / "spark"))
    .config("spark.log.level", "OFF")
    .getOrCreate()
)
ps.register(spark)

def killing(victim):
    # Kills its own worker, or its own executor, once, after some batches.
    def run(batches):
        for i, batch in enumerate(batches):
            mark = home / f"killed-{victim}"
            if i == 2 and TaskContext.get().partitionId() == 1 and not mark.exists():
                mark.touch()
                fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
                executor = int(fields[1])
                os.kill(os.getpid() if victim.endswith("worker") else executor, signal.SIGKILL)
            yield batch
    return run

rows = spark.range(0, 120_000, 1, 3).selectExpr("id k", "id * 2 v")
for victim in ("write-executor",):
    dying = rows.mapInArrow(killing(victim), rows.schema)
    dying.write.format("plait").option("sort_by", "k").mode("append").save(str(home / "t"))
    found = spark.read.format("plait").option("part_rows", 40_000).load(str(home / "t"))
    assert found.count() == 120_000, victim
    assert (home / f"killed-{victim}").exists(), victim
for victim in ("read-worker",):
    dying = found.mapInArrow(killing(victim), found.schema)
    got = dying.selectExpr("count(*)", "sum(k)", "sum(v)", "count(distinct k)").collect()[0]
    total = 120_000 * 119_999 // 2
    assert tuple(got) == (120_000, total, 2 * total, 120_000), victim
    assert (home / f"killed-{victim}").exists(), victim
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.long
def test_killed_workers_and_executors_lose_nothing_and_double_nothing(tmp_path):
    script = tmp_path / "kills.py"
    script.write_text(KILLS)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # What a dead attempt left behind counts for nobody, and is swept.
    assert len(folder.counting(str(tmp_path / "t"))) == 3
    plait.expire(tmp_path / "t", retention=0, yes=True)
    assert len(files(tmp_path / "t")) == 3
