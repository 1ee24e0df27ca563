"""Joins on Spark say what a join on one machine says, batch for batch, whoever dies in between."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import spark as ps

from .conftest import clean_environment, load

pytestmark = [
    pytest.mark.spark,
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
HERE = Path(__file__).parent
CI = bool(os.environ.get("CI"))
LONG = bool(os.environ.get("PLAIT_LONG"))
Oracle = load("join_oracle").Oracle
CASES = json.loads((Path(__file__).parents[1] / "cases" / "join.json").read_text())["cases"]
LEFT = "_op string, _seq long, id string, fk string, payload string"
RIGHT = "_op string, _seq long, key string, value string"
KEYS = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}


class Feeds:
    """Two folders of files of changes: a batch takes the next file of both."""

    def __init__(self, spark, root: Path, left: str = LEFT, right: str = RIGHT):
        self.spark, self.root = spark, root
        self.schemas = {"left": left, "right": right}
        self.count = {"left": 0, "right": 0}
        for side in self.schemas:
            (root / side).mkdir(parents=True)

    def put(self, side: str, rows: list[dict]) -> None:
        """The file of the next batch, which may be one without rows."""
        number = self.count[side]
        self.count[side] += 1
        types = {"string": pa.string(), "long": pa.int64(), "double": pa.float64()}
        fields = [field.split() for field in self.schemas[side].split(", ")]
        schema = pa.schema([(name, types[type_]) for name, type_ in fields])
        path = self.root / side / f"{number:05}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which Spark takes them

    def events(self, events) -> None:
        """The changes of one batch: `(side, key, value or None, seq)`."""
        for side in ("left", "right"):
            mine = [event for event in events if event[0] == side]
            rows = []
            for _, key, value, seq in mine:
                row = {"_op": "delete" if value is None else "upsert", "_seq": seq}
                if side == "left":
                    foreign, payload = value or (None, None)
                    row |= {"id": key, "fk": foreign, "payload": payload}
                else:
                    row |= {"key": key, "value": value}
                rows.append(row)
            self.put(side, rows)

    def stream(self, side: str):
        reader = self.spark.readStream.schema(self.schemas[side]).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.root / side))

    def run(self, sink, **options):
        """Starts the join, and waits until it has taken all files."""
        options = {**KEYS, "shards": 3, "trigger": {"availableNow": True}, **options}
        query = ps.foreign_key_join(
            self.stream("left"),
            self.stream("right"),
            checkpoint=self.root / "checkpoint",
            sink=sink,
            **options,
        )
        query.awaitTermination()
        return query


class Kept:
    """A sink that keeps the changes of every batch."""

    def __init__(self):
        self.batches: dict[int, list] = {}
        self.calls: list[int] = []

    def __call__(self, changes, number: int) -> None:
        self.calls.append(number)
        self.batches[number] = changes_of(changes.toArrow())


def changes_of(table: pa.Table) -> list[tuple]:
    found = []
    for row in table.to_pylist():
        value = (row["fk"], row["payload"], row["value"])
        found.append((row["_op"], row["id"], None if row["_op"] == "delete" else value))
    return sorted(found, key=repr)


def history(draw: random.Random, keys: int, batches: int, each: int) -> list[list[tuple]]:
    """Batches of changes: moves, nulls, deletes, the same again, a key twice, some out of order."""
    made, seq = [], 0
    for _ in range(batches):
        events = []
        for _ in range(each):
            seq += 1
            number = max(0, seq * 50 + (draw.randrange(-900, 900) if draw.random() < 0.3 else 0))
            if draw.random() < 0.65:
                foreign = None if draw.random() < 0.1 else f"f{draw.randrange(keys // 3 + 1)}"
                value = None if draw.random() < 0.25 else (foreign, f"p{draw.randrange(3)}")
                events.append(("left", f"k{draw.randrange(keys)}", value, number))
            else:
                value = None if draw.random() < 0.3 else f"v{draw.randrange(3)}"
                events.append(("right", f"f{draw.randrange(keys // 3 + 1)}", value, number))
        # Numbers of one key are never equal: what is the last would be open.
        unique = {
            (side, key, number): event for event in events for side, key, _, number in [event]
        }
        made.append(list(unique.values()))
    return made


def folded(events) -> list[tuple]:
    """Events in the order of their numbers, which is the order that counts."""
    return sorted(events, key=lambda event: event[3])


def test_an_order_and_its_customer_by_eye(spark, tmp_path):
    feeds, kept = Feeds(spark, tmp_path), Kept()
    feeds.events([("left", "order 1", ("ada", "ten"), 0), ("right", "ada", "Ada", 1)])
    feeds.events([("right", "bob", "Bob", 2)])  # nobody's yet
    feeds.events([("left", "order 1", ("bob", "ten"), 3)])  # moves, maybe to another shard
    feeds.events([("right", "bob", None, 4)])
    feeds.run(kept)
    assert kept.batches == {
        0: [("insert", "order 1", ("ada", "ten", "Ada"))],
        2: [("update", "order 1", ("bob", "ten", "Bob"))],
        3: [("delete", "order 1", None)],
    }
    # Batches without changes do not come to the sink.
    assert kept.calls == [0, 2, 3]


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "left"])
def test_random_histories_give_the_changes_of_the_full_join(spark, tmp_path, how):
    for seed in range(3 if CI else 1):
        draw = random.Random(f"{how} {seed}")
        feeds, kept, oracle = Feeds(spark, tmp_path / str(seed)), Kept(), Oracle(how)
        batches = history(draw, draw.choice([12, 60]), 6, 40)
        for events in batches:
            feeds.events(events)
        feeds.run(kept, how=how, shards=draw.choice([1, 3, 5]))
        for number, events in enumerate(batches):
            assert kept.batches.get(number, []) == oracle.apply(folded(events)), (seed, number)


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "left"])
def test_recorded_cases_side_by_side_in_one_stream(spark, tmp_path, how):
    """Event i of every case is batch i; keys begin with the number of their case."""
    cases = [case for case in CASES if case["join"] == how]
    feeds, kept = Feeds(spark, tmp_path), Kept()
    steps = 14 if CI else 6
    cases = [case for case in cases if len(case["events"]) <= steps]
    assert len(cases) > 10
    for step in range(max(len(case["events"]) for case in cases)):
        events = []
        for case in cases:
            if step >= len(case["events"]):
                continue
            event, mark = case["events"][step], f"{case['id']}:"
            value = event["value"]
            if event["side"] == "left" and value is not None:
                foreign = value["fk"]
                value = (None if foreign is None else mark + foreign, value["payload"])
            is_timed = f"{event['side']}V" in case["name"]
            seq = event["ts"] if is_timed else step
            events.append((event["side"], mark + event["key"], value, seq))
        feeds.events(events)
    feeds.run(kept, how=how)
    tables: dict = {}
    for number in sorted(kept.batches):
        for op, key, value in kept.batches[number]:
            assert (key in tables) == (op != "insert")
            tables[key] = value
            if op == "delete":
                del tables[key]
    wanted = {}
    for case in cases:
        mark = f"{case['id']}:"
        for key, row in case["table"].items():
            foreign = row["left"]["fk"]
            at = None if foreign is None else mark + foreign
            wanted[mark + key] = (at, row["left"]["payload"], row["right"])
    assert tables == wanted


@pytest.mark.long
def test_old_values_and_columns_that_leave_out_the_foreign_key(spark, tmp_path):
    feeds, seen = Feeds(spark, tmp_path), {}
    feeds.events(
        [("left", "k", ("a", "p"), 0), ("right", "a", "same", 1), ("right", "b", "same", 2)]
    )
    feeds.events([("right", "c", "other", 3)])
    # Over several keys: some rows move between shards, but what is told of them stays the same.
    feeds.events([("left", "k", ("b", "p"), 4)])
    feeds.events([("left", "k", ("c", "p"), 5)])

    def keep(changes, number):
        seen[number] = changes.toArrow().to_pylist()

    columns = {"row": "id", "payload": "payload", "value": "value"}
    feeds.run(keep, columns=columns, shards=8)
    assert seen == {
        0: [{"_op": "insert", "row": "k", "payload": "p", "value": "same"}],
        3: [{"_op": "update", "row": "k", "payload": "p", "value": "other"}],
    }
    for number in (2, 3):
        commit = tmp_path / "checkpoint" / "plait-join" / f"commit-{number:010}.json"
        assert json.loads(commit.read_text())["told"]["moved"] == 2, "no row moved"
    shutil.rmtree(tmp_path / "checkpoint")
    seen.clear()
    feeds.run(keep, columns=columns, shards=8, before=True)
    (change,) = seen[3]
    assert change["before.value"] == "same" and change["value"] == "other"
    assert 2 not in seen


def right_rows_of_nulls(feeds) -> None:
    """A right row without a value comes, gets one, loses it and goes; somebody refers to it."""
    feeds.events([("left", "k", ("a", "p"), 0), ("left", "m", ("b", "q"), 1)])
    for seq, (op, value) in enumerate(
        [("upsert", None), ("upsert", "x"), ("upsert", None), ("delete", None)], 2
    ):
        feeds.put("left", [])
        feeds.put("right", [{"_op": op, "_seq": seq, "key": "a", "value": value}])


CHANGES_OF_NULLS = {
    0: [("insert", "k", ("a", "p", None)), ("insert", "m", ("b", "q", None))],
    2: [("update", "k", ("a", "p", "x"))],
    3: [("update", "k", ("a", "p", None))],
}


@pytest.mark.long
def test_a_right_row_of_nulls_changes_no_row_of_a_left_join(spark, tmp_path):
    feeds, kept = Feeds(spark, tmp_path), Kept()
    right_rows_of_nulls(feeds)
    feeds.run(kept, how="left")
    assert {number: told for number, told in kept.batches.items() if told} == CHANGES_OF_NULLS


@pytest.mark.long
def test_a_sink_that_fails_gets_the_same_files_again(spark, tmp_path):
    feeds, kept, files = Feeds(spark, tmp_path), Kept(), {}
    batches = history(random.Random(7), 20, 5, 20)
    for events in batches:
        feeds.events(events)
    failures = []

    def failing(changes, number):
        files.setdefault(number, []).append(sorted(changes.inputFiles()))
        if number in {0, 3} and number not in failures:
            failures.append(number)
            raise RuntimeError("the table is locked")
        kept(changes, number)

    for _ in range(3):
        try:
            feeds.run(failing, how="left")
        except Exception as error:
            assert "the table is locked" in str(error)
    assert failures == [0, 3] and kept.calls == [0, 1, 2, 3, 4]
    assert files[0][0] == files[0][1] and files[3][0] == files[3][1]
    oracle = Oracle("left")
    for number, events in enumerate(batches):
        assert kept.batches[number] == oracle.apply(folded(events))


@pytest.mark.long
def test_a_batch_that_spark_forgot_is_not_applied_again(spark, tmp_path):
    feeds, kept = Feeds(spark, tmp_path), Kept()
    batches = history(random.Random(8), 20, 3, 20)
    for events in batches[:2]:
        feeds.events(events)
    feeds.run(kept, how="left")
    before = dict(kept.batches)
    root = tmp_path / "checkpoint" / "plait-join"
    versions = sorted(root.glob("*/*/*"))
    # The driver dies between our commit and Spark's note of it.
    for path in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        path.unlink()
    feeds.run(kept, how="left")
    assert kept.calls == [0, 1, 1] and kept.batches == before
    assert sorted(root.glob("*/*/*")) == versions
    # Drafts and versions that nobody names are swept.
    orphan = root / "rows" / "0" / "0000000002-dead"
    for folder in (orphan / "state", root / "temp" / "0000000002-dead-1", root / "moved" / "x"):
        folder.mkdir(parents=True)
    feeds.events(batches[2])
    feeds.run(kept, how="left")
    assert not orphan.exists() and not list((root / "temp").iterdir())
    assert not (root / "moved" / "x").exists()
    oracle = Oracle("left")
    for number, events in enumerate(batches):
        assert kept.batches[number] == oracle.apply(folded(events)), number


@pytest.mark.long
def test_the_batch_form_is_the_join_of_what_the_feeds_end_with(spark):
    events = [event for batch in history(random.Random(3), 60, 1, 600) for event in batch]
    for how in ("inner", "left"):
        sides = {"left": [], "right": []}
        for side, key, value, seq in events:
            op = "delete" if value is None else "upsert"
            row = (op, seq, key, *((value or (None, None)) if side == "left" else (value,)))
            sides[side].append(row)
        frames = [
            spark.createDataFrame(sides[side], schema)
            for side, schema in (("left", LEFT), ("right", RIGHT))
        ]
        made = ps.foreign_key_join_batch(*frames, how=how, shards=4, **KEYS)
        assert changes_of(made.toArrow()) == Oracle(how).apply(folded(events))


@pytest.mark.long
def test_keys_of_several_columns_and_types_that_spark_has(spark, tmp_path):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        left = spark.range(1000).selectExpr(
            "id % 10 AS shop", "id AS number", "if(id % 7 = 0, NULL, id % 90) AS customer",
            "date_add(DATE'2026-01-01', cast(id % 3 AS int)) AS day",
            "timestamp_seconds(id) AS at", "array(id, NULL) AS items",
            "cast(id AS decimal(20, 3)) AS price",
        )  # fmt: skip
        right = spark.range(240).selectExpr(
            "id % 80 AS customer",
            "date_add(DATE'2026-01-01', cast(id % 3 AS int)) AS day",
            "named_struct('a', id, 'b', cast(NULL AS string)) AS more",
        )
        made = ps.foreign_key_join_batch(
            left,
            right,
            left_key=["shop", "number"],
            foreign_key=["customer", "day"],
            right_key=["customer", "day"],
            how="left",
            shards=3,
        ).drop("_op")
        plain = left.join(right, ["customer", "day"], "left").select(*made.columns)
        assert made.schema["at"].dataType == left.schema["at"].dataType
        assert made.count() == 1000
        assert made.exceptAll(plain).isEmpty() and plain.exceptAll(made).isEmpty()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_mistakes_are_named(spark, tmp_path):
    rows = spark.createDataFrame([("a", "x", "p")], "id string, fk string, payload string")
    names = spark.createDataFrame([("x", "X")], "key string, value string")
    join = ps.foreign_key_join_batch
    with pytest.raises(plait.UnknownColumn, match="`left_key` names no column"):
        join(rows, names, left_key="nr", foreign_key="fk", right_key="key")
    with pytest.raises(plait.SchemaConflict, match="different types"):
        join(rows.selectExpr("id", "1 AS fk"), names, **KEYS)
    with pytest.raises(plait.InvalidArgument, match="`shards` is not from 1"):
        join(rows, names, shards=0, **KEYS)
    with pytest.raises(plait.InvalidArgument, match="no such choice"):
        join(rows, names, how="outer", **KEYS)
    with pytest.raises(plait.InvalidArgument, match="is not a stream"):
        ps.foreign_key_join(rows, names, checkpoint=tmp_path, sink=print, **KEYS)
    twice = rows.union(rows.selectExpr("id", "'y'", "payload"))
    with pytest.raises(Exception, match=r"InvalidArgument: a left key changes twice in one batch"):
        join(twice, names, shards=1, **KEYS).collect()

    plain = ("id string, fk string, payload string", "key string, value string")
    feeds, kept = Feeds(spark, tmp_path / "a", *plain), Kept()
    with pytest.raises(plait.Unsupported, match="lies in a folder"):
        ps.foreign_key_join(
            feeds.stream("left"), feeds.stream("right"), checkpoint="s3://b/c", sink=kept, **KEYS
        )
    feeds.put("left", [{"id": "k", "fk": "a", "payload": "p"}])
    feeds.put("right", [{"key": "a", "value": "A"}])
    feeds.run(kept)
    with pytest.raises(plait.InvalidArgument, match="a join with another `shards`"):
        feeds.run(kept, shards=4)
    feeds.put("right", [{"key": "a", "value": "B"}, {"key": "a", "value": "C"}])
    with pytest.raises(Exception, match=r"InvalidArgument: a right key changes twice"):
        feeds.run(kept)
    feeds = Feeds(spark, tmp_path / "b", *plain)
    feeds.put("left", [{"id": None, "fk": "a", "payload": "p"}, {"id": "k", "fk": "a"}])
    feeds.put("right", [{"key": "a", "value": "A"}, {"key": None, "value": "B"}])
    with pytest.raises(Exception, match="NullKey"):
        feeds.run(kept)
    feeds.run(kept, on_null_key="drop")
    assert kept.batches[0] == [("insert", "k", ("a", None, "A"))]
    shutil.rmtree(feeds.root / "checkpoint" / "plait-join" / "rows")
    feeds.put("right", [{"key": "a", "value": "D"}])
    with pytest.raises(Exception, match=r"StorageError|SourceNotFound"):
        feeds.run(kept, on_null_key="drop")


# -- a cluster, whose parts are killed -------------------------------------------------------------


def run_and_kill(root: Path, kills: list[str], seconds: float, timeout: float = 900) -> list[dict]:
    """Runs drivers until all is done; each of the first dies as `kills` says, by a batch later.

    `"python"` kills the driver's Python, `"jvm"` its JVM. Every run also loses an executor.
    """
    cluster = load("spark_cluster")
    told: list[dict] = []
    for turn, marked in enumerate([*kills, None]):
        victim = marked
        driver = subprocess.Popen(
            [sys.executable, HERE / "spark_join_cluster.py", root, "1", str(seconds), "run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env=clean_environment(),
        )
        timer = threading.Timer(timeout, os.killpg, (driver.pid, signal.SIGKILL))
        timer.start()
        try:
            seen = 0
            for line in driver.stdout:
                told.append(json.loads(line))
                seen += "batch" in told[-1]
                if victim is not None and seen >= 3 + turn:
                    # In the midst of the next batch.
                    time.sleep(random.Random(turn).uniform(0, told[-1].get("seconds", 1)))
                    pid = driver.pid
                    if victim == "jvm":
                        mine = cluster.commands_below(driver.pid)
                        pid = next(p for p, c in mine.items() if "SparkSubmit" in c)
                    os.kill(pid, signal.SIGKILL)
                    told.append({"killed": f"driver {victim}"})
                    victim = None
            driver.wait()
        finally:
            timer.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.stdout.close()
            driver.wait()
    return told


@pytest.mark.long
def test_the_result_is_the_join_when_drivers_and_executors_are_killed(tmp_path):
    """Two drivers and two executors die, in the midst of batches."""
    cluster = load("spark_join_cluster")
    batches, changes = (20, 50_000) if LONG else (10, 1_000)
    root = tmp_path / "feeds"
    cluster.make(root, batches, changes)
    told = run_and_kill(root, ["python", "jvm"], 6)
    killed = [entry["killed"] for entry in told if "killed" in entry]
    assert killed.count("executor") >= 2, told
    assert {"driver python", "driver jvm"} <= set(killed), told
    assert told[-1] == {"end": True}
    assert len(list((root / "out").glob("*.parquet"))) == batches
    assert cluster.result(root).equals(pq.read_table(root / "expected.parquet"))
