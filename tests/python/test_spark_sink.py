"""Runs that Spark writes are sorted, whole and visible once, whatever fails in between."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

from pyspark.sql.types import DayTimeIntervalType, LongType, StringType, StructType

from plait.spark import sink
from plait.spark.source import MergingReader, Query

from .spark_runs import SCHEMA as KEYS
from .spark_runs import batch, dies_in_commit, options, ran, stream, task, visible, write
from .stops import Steps, Stop

pytestmark = pytest.mark.local

SCHEMA = StructType().add("name", StringType()).add("ts", LongType())
CASES = 200 if os.environ.get("CI") else 30


def files(root):
    """Names of the runs that lie there, live or not."""
    return sorted(path.name for path in root.glob("run-*.parquet"))


def live(root):
    """Names of the live files, as another library reads the log."""
    uris = deltalake.DeltaTable(str(root)).file_uris()
    return sorted(uri.rpartition("/")[2] for uri in uris)


def by_format(root):
    query = Query.of({"path": str(root)})
    reader = MergingReader(query, query.spark_schema())
    return [
        key
        for part in reader.partitions()
        for rows in reader.read(part)
        for key in rows["k"].to_pylist()
    ]


READERS = {
    "deltalake": lambda root: deltalake.DeltaTable(str(root)).to_pyarrow_table()["k"].to_pylist(),
    "Polars": lambda root: pl.read_delta(str(root))["k"].to_list(),
    "plait.read": lambda root: pa.table(plait.read(str(root), sort_by="k"))["k"].to_pylist(),
    "plait.Table": visible,
    "format plait": by_format,
}


def seen(root):
    """The keys of a table, in order, which are the same to all readers."""
    found = {name: sorted(read(root)) for name, read in READERS.items()}
    assert all(keys == found["deltalake"] for keys in found.values()), found
    return found["deltalake"]


# ---- commits


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("step", range(1, 4))
def test_a_batch_counts_once_wherever_its_commit_stops(step, dies, tmp_path, monkeypatch):
    """Stops before or after the n-th step of a commit, then a second driver runs the batch again.

    Twice: the batch is new, and the batch was committed by somebody else already.
    """
    for case, earlier in (("new", ()), ("again", ([1, 2], [3]))):
        root = tmp_path / case
        if earlier:
            batch(root, 0, *earlier)
        steps = Steps(step, dies)
        stopped = dies_in_commit(root, steps, monkeypatch)
        assert visible(root) in ([], [1, 2, 3])
        assert stopped == (step <= steps.count)
        batch(root, 0, [1, 2, 3])
        assert seen(root) == [1, 2, 3]
        batch(root, 1, [4])
        assert seen(root) == [1, 2, 3, 4]


DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from python.spark_runs import ran, stream

home = Path(sys.argv[1])
done = home / "done"
while True:
    number = int(done.read_text()) if done.exists() else 0
    # A query that is started again makes a new writer.
    writer = stream(home / "t")
    writer.commit(ran(writer, [[2 * number], [2 * number + 1]], number), number)
    next_ = home / "next"
    next_.write_text(str(number + 1))
    next_.replace(done)
    print(number, flush=True)
"""


@pytest.mark.long
def test_drivers_that_are_killed_commit_each_batch_once(tmp_path, root):
    rng = random.Random(5)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    for _ in range(CASES // 5):
        command = [sys.executable, str(script), str(tmp_path), str(root / "tests")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
            driver.stdout.readline()
            time.sleep(rng.uniform(0, 0.5))
            os.kill(driver.pid, signal.SIGKILL)
        number = int((tmp_path / "done").read_text())
        keys = seen(tmp_path / "t")
        assert keys in (list(range(2 * number)), list(range(2 * number + 2)))


def test_a_batch_that_was_compacted_and_swept_since_does_not_come_back(tmp_path):
    table = tmp_path / "t"
    batch(table, 0, [1])
    batch(table, 1, [2])
    opened = plait.Table(str(table))
    assert len(opened.compact(policy="full").groups) == 1
    assert len(opened.expire(0).removed) == 2
    assert seen(table) == [1, 2]
    for number in (1, 0):
        (again,) = batch(table, number, [1 + number])
        assert not (table / again).exists(), "it was not needed"
    assert seen(table) == [1, 2]


def test_a_commit_whose_answer_was_lost_keeps_its_files(tmp_path):
    table = tmp_path / "t"
    writer = stream(table)
    messages = ran(writer, [[1, 2], [3]])
    for _ in range(2):
        writer.commit(messages, 0)
        assert seen(table) == [1, 2, 3]
    # Nor those that an older version needs.
    plait.Table(str(table)).compact(policy="full")
    writer.commit(messages, 0)
    assert seen(table) == [1, 2, 3]
    assert pa.table(plait.Table(str(table)).read(version=1))["k"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ["append", "overwrite", "stream"])
@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_write_that_is_given_up_after_its_commit_keeps_its_rows(
    kind, dies, tmp_path, monkeypatch
):
    """Spark gives up what fails to commit, as where the answer of a commit is lost."""
    table = tmp_path / "t"
    write(table, [7])
    writer = (
        stream(table)
        if kind == "stream"
        else sink.RunWriter.of(options(table), KEYS, overwrite=kind == "overwrite")
    )
    messages = ran(writer, [[1, 2], [3]])
    steps = Steps(1, dies)
    monkeypatch.setattr(sink, "commit_rows", steps.counted(sink.commit_rows))
    arguments = (0,) if kind == "stream" else ()
    with pytest.raises(Stop):
        writer.commit(messages, *arguments)
    writer.abort(messages, *arguments)
    new = [1, 2, 3] if kind == "overwrite" else [1, 2, 3, 7]
    assert seen(table) == ([7] if dies == "before" else new)
    assert len(files(table)) == (1 if dies == "before" else 3)


def test_queries_with_the_same_numbers_are_told_apart(tmp_path):
    table = tmp_path / "t"
    batch(table, 0, [1])
    batch(table, 0, [2], query="other")
    batch(table, 0, [3], query="other")
    assert seen(table) == [1, 2]


def test_two_drivers_with_one_batch_commit_it_once(tmp_path):
    table = tmp_path / "t"
    for number in range(CASES // 3):
        writers = [stream(table) for _ in range(2)]
        messages = [ran(writer, [[number]], number) for writer in writers]
        threads = [
            threading.Thread(target=writer.commit, args=(mine, number))
            for writer, mine in zip(writers, messages, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert visible(table) == list(range(number + 1))
        assert files(table) == live(table), "files of the second one are removed"


def test_two_drivers_make_one_table(tmp_path):
    def make(root, made):
        made.append(stream(root))

    for case in range(CASES // 3):
        made = []
        threads = [
            threading.Thread(target=make, args=(tmp_path / str(case), made)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, writer in enumerate(made):
            writer.commit(ran(writer, [[number]], number), number)
        assert visible(tmp_path / str(case)) == [0, 1, 2]
        history = deltalake.DeltaTable(str(tmp_path / str(case))).history()
        made_by = [entry["operation"] for entry in history]
        assert made_by == ["WRITE", "WRITE", "WRITE", "CREATE TABLE"]


def test_commits_beside_compactions_lose_nothing(tmp_path):
    table = tmp_path / "t"
    batch(table, 0, [0])
    failed = []

    def write_batches():
        try:
            for number in range(1, CASES):
                batch(table, number, [number])
        except BaseException as error:
            failed.append(error)
            raise

    writer = threading.Thread(target=write_batches)
    writer.start()
    opened = plait.Table(str(table))
    while writer.is_alive():
        opened.compact(policy="full")
    writer.join()
    assert not failed
    opened.compact(policy="full")
    assert seen(table) == list(range(CASES))
    assert len(live(table)) == 1


def test_overwriting_replaces_what_is_live_and_nothing_else(tmp_path):
    table = tmp_path / "t"
    write(table, [1], [9])
    deltalake.write_deltalake(str(table), pa.table({"k": [5]}), mode="append")
    assert seen(table) == [1, 5, 9]
    write(table, [2], overwrite=True)
    assert seen(table) == [2]
    assert pa.table(plait.Table(str(table)).read(version=2))["k"].to_pylist() == [1, 5, 9]
    write(table, overwrite=True)
    assert visible(table) == [] and live(table) == []
    version = plait.Table(str(table)).version
    write(table, overwrite=True)
    assert plait.Table(str(table)).version == version, "there is nothing to replace"


def test_overwriting_beside_others_is_tried_again(tmp_path, monkeypatch):
    table = tmp_path / "t"
    write(table, [1])
    writer = sink.RunWriter.of(options(table), KEYS, overwrite=True)
    messages = ran(writer, [[7]])
    commit, tries = sink.commit_rows, []

    def later(log, *arguments, **named):
        tries.append(named["replaced"].version)
        if len(tries) < 4 or tries[-1] > 100:
            deltalake.write_deltalake(str(table), pa.table({"k": [5]}), mode="append")
        return commit(log, *arguments, **named)

    monkeypatch.setattr(sink, "commit_rows", later)
    writer.commit(messages)
    assert tries == [1, 2, 3, 4] and seen(table) == [7]
    tries[:] = []
    monkeypatch.setattr(sink, "_TRIES", 3)
    messages = ran(writer, [[8]])
    with pytest.raises(plait.StorageError, match="too often"):
        writer.commit(messages)
    assert seen(table) == [5, 5, 5, 7]
    writer.abort(messages)
    assert files(table) == sorted(path.name for path in table.glob("run-*")), "as before"


def test_a_schema_that_others_changed_meanwhile_is_told(tmp_path):
    table = tmp_path / "t"
    for kind in ("append", "overwrite", "stream"):
        writer = (
            stream(table)
            if kind == "stream"
            else sink.RunWriter.of(options(table), KEYS, overwrite=kind == "overwrite")
        )
        messages = ran(writer, [[1]])
        more = pa.table({"k": [5], kind: [1]})
        deltalake.write_deltalake(str(table), more, mode="append", schema_mode="merge")
        arguments = (0,) if kind == "stream" else ()
        with pytest.raises(plait.SchemaConflict, match="changed while rows were written"):
            writer.commit(messages, *arguments)
        writer.abort(messages, *arguments)
        assert files(table) == []
    # Started again, it is told of the columns, which its rows do not have.
    batch(table, 0, [1])
    assert visible(table) == [1, 5, 5, 5]


def test_rivals_that_append_and_delete_in_between_lose_and_double_nothing(tmp_path):
    """Batches of a stream, writes, overwrites, compactions; deltalake appends, deletes, optimizes."""
    table, rng = tmp_path / "t", random.Random(8)
    batch(table, 0, [-1])
    batches, keys, number = {0}, [-1], 0

    def fresh():
        nonlocal number
        number += 1
        return [number * 10 + j for j in range(rng.randint(1, 3))]

    for _ in range(CASES):
        step = rng.choices(
            ["batch", "write", "overwrite", "append", "delete", "compact", "optimize", "expire"],
            [8, 4, 1, 4, 4, 2, 1, 2],
        )[0]
        if step == "batch":
            at, new = rng.randrange(max(batches) + 2), fresh()
            batch(table, at, new[:1], new[1:])
            if at not in batches:
                batches.add(at)
                keys += new
        elif step == "write":
            new = fresh()
            write(table, new[1:], new[:1])
            keys += new
        elif step == "overwrite":
            keys = fresh()
            write(table, keys, overwrite=True)
        elif step == "append":
            new = fresh()
            deltalake.write_deltalake(str(table), pa.table({"k": new}), mode="append")
            keys += new
        elif step == "delete":
            # One file at a time: it writes what is left of several in no order.
            for gone in rng.sample(keys, min(2, len(keys) - 1)):
                deltalake.DeltaTable(str(table)).delete(f"k = {gone}")
                keys.remove(gone)
        elif step == "compact":
            plait.Table(str(table)).compact(policy="full")
        elif step == "optimize":
            deltalake.DeltaTable(str(table)).optimize.compact()
            # It puts rows of many files behind one another, in no order.
            write(table, sorted(keys), overwrite=True)
        else:
            plait.Table(str(table)).expire(0)
        assert seen(table) == sorted(keys), step


# ---- the table


def test_what_is_there_and_is_no_table_is_refused_by_name(tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for part in range(2):
        pq.write_table(pa.table({"k": [part]}), plain / f"{part}.parquet")
    with pytest.raises(plait.ForeignTable, match="no table") as caught:
        stream(plain)
    assert "plait.adopt" in caught.value.hint and caught.value.path == str(plain)
    assert not (plain / "_delta_log").exists()
    plait.compact(plain, policy="full", sort_by="k")
    with pytest.raises(plait.ForeignTable, match="manifest"):
        stream(plain)
    assert not (plain / "_delta_log").exists()
    adopted = tmp_path / "adopted"
    adopted.mkdir()
    pq.write_table(pa.table({"k": [7]}), adopted / "a.parquet")
    plait.adopt(adopted, sort_by="k")
    batch(adopted, 0, [5])
    assert seen(adopted) == [5, 7]


def test_tables_that_the_rows_do_not_fit_are_refused_before_any_work(tmp_path):
    def into(root, columns, sort_by="k", **more):
        given = {"path": str(root), "sort_by": sort_by}
        return sink.RunWriter.of(given, columns, **{"overwrite": False, **more})

    k = StructType().add("k", LongType())
    table = tmp_path / "t"
    into(table, k)
    with pytest.raises(plait.InvalidArgument, match="not that of the table"):
        into(table, k, "-k")
    into(table, k, "k asc")
    for overwrite in (False, True):
        with pytest.raises(plait.SchemaConflict, match="`k` of string, which the table has as lo"):
            into(table, StructType().add("k", StringType()), overwrite=overwrite)
    with pytest.raises(plait.SchemaConflict, match="`v` of long, which the table has not"):
        into(table, StructType().add("k", LongType()).add("v", LongType()))
    with pytest.raises(plait.Unsupported, match="`v` of"):
        into(tmp_path / "none", StructType().add("k", LongType()).add("v", DayTimeIntervalType()))
    assert not (tmp_path / "none").exists()
    days = tmp_path / "days"
    deltalake.write_deltalake(str(days), pa.table({"k": [1], "d": [1]}), partition_by=["d"])
    with pytest.raises(plait.Unsupported, match="partitioned"):
        into(days, k)
    only = tmp_path / "only"
    deltalake.write_deltalake(
        str(only), pa.table({"k": [1]}), configuration={"delta.appendOnly": "true"}
    )
    into(only, k)
    with pytest.raises(plait.Unsupported, match="takes no deletes"):
        into(only, k, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(plait.StorageError, match="cannot make the folder"):
        into(tmp_path / "file" / "t", k)


def test_a_first_write_that_dies_leaves_no_rows(tmp_path):
    table = tmp_path / "t"
    ran(stream(table), [[1], [2]])
    assert len(files(table)) == 2
    assert deltalake.DeltaTable(str(table)).to_pyarrow_table().num_rows == 0
    batch(table, 0, [1], [2])
    assert seen(table) == [1, 2]
    assert plait.adopt(table).files == (), "these are of a writer that may be at work"


def test_the_rule_of_the_table_holds_for_those_who_read_it(tmp_path):
    """Rows of a later commit are newer, whatever files are called, and compactions keep that."""
    table = tmp_path / "t"
    schema = StructType().add("k", LongType()).add("v", LongType())
    opened = plait.Table(str(table), sort_by="k", on_duplicate="keep_last")
    opened.append(pa.table({"k": [1, 2], "v": [0, 0]}))
    for value in range(1, 4):
        writer = sink.RunStreamWriter.of(options(table), schema, overwrite=False)
        with task():
            rows = pa.record_batch({"k": [1], "v": [value]})
            writer.commit([writer.write(iter([rows]))], value)
        if value == 2:
            opened.compact(policy="full")
        query = Query.of({"path": str(table)})
        assert (query.sort_by, query.duplicates["on_duplicate"]) == ("k", "keep_last")
        reader = MergingReader(query, query.spark_schema())
        found = [
            row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()
        ]
        assert found == [{"k": 1, "v": value}, {"k": 2, "v": 0}]
        assert pa.table(opened.read()).to_pylist() == found
    every = Query.of({"path": str(table), "on_duplicate": "keep_all"})
    assert every.duplicates["on_duplicate"] == "keep_all"


# ---- options


def test_options_that_are_invalid_are_refused(tmp_path):
    path = {"path": str(tmp_path)}
    for given, error in (
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
            sink.RunWriter.of(given, SCHEMA, overwrite=False)
    with pytest.raises(plait.Unsupported, match="appended"):
        sink.RunStreamWriter.of({**path, "sort_by": "ts"}, SCHEMA, overwrite=True)


@pytest.mark.parametrize("streaming", [False, True])
def test_attempts_that_lost_count_never(streaming, tmp_path):
    """Two attempts of one task end; one comes late, one dies half-way."""
    kind = sink.RunStreamWriter if streaming else sink.RunWriter
    writer = kind.of({"path": str(tmp_path), "sort_by": "name, ts"}, SCHEMA, overwrite=False)
    rows = pa.record_batch({"name": ["a", "b"], "ts": [1, 2]})

    def run(partition, batches):
        with task(partition, 3):
            return writer.write(iter(batches))

    def dies():
        yield rows
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        run(0, dies())
    won, lost = run(0, [rows]), run(0, [rows])
    empty, other = run(1, []), run(2, [rows.slice(0, 0), rows])
    assert lost.rows == won.rows == 2 and empty.file is None
    arguments = (3,) if streaming else ()
    writer.commit([won, empty, other, None], *arguments)
    mine = sorted([won.file["name"], other.file["name"]])
    assert live(tmp_path) == mine
    if streaming:
        again = run(0, [rows])
        writer.commit([again], *arguments)
        assert not (tmp_path / again.file["name"]).exists()
    else:
        assert files(tmp_path) == mine
    assert live(tmp_path) == mine
    aborted = run(0, [rows])
    writer.abort([aborted, None], *arguments)
    assert not (tmp_path / aborted.file["name"]).exists()


# ---- in Spark


@pytest.fixture
def plaited(spark):
    from plait import spark as ps

    ps.register(spark)
    return spark


def load(spark, path, **options):
    return spark.read.format("plait").options(**options).load(str(path))


@pytest.mark.long
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
        found = plait.inspect(tmp_path / "t" / name, check_order=True)
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
        found = plait.inspect(tmp_path / "t" / name, check_order=True)
        assert found.sort_by == "name, -ts"
    expected = frame.orderBy("name", frame.ts.desc(), "id").collect()
    back = load(plaited, tmp_path / "t").collect()
    assert [row[:2] for row in back] == [row[:2] for row in expected]
    assert sorted(back) == sorted(expected)


def assert_nothing_is_left(path):
    """A task that was still running when Spark gave the write up may end after it: what it leaves
    counts for nobody.
    """
    assert live(path) == [] and visible(path) == []
    assert len(files(path)) <= 1


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
    assert runs == live(out)
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
    assert seen(out) == list(range(300))
    written = [version for version in plait.Table(out).history() if version.operation == "WRITE"]
    assert [version.files_added for version in written] == [1, 1, 1]
    assert not (out / "_plait").exists()


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
    # What a dead attempt left behind counts for nobody.
    assert len(live(tmp_path / "t")) == 3
    assert seen(tmp_path / "t") == list(range(120_000))
