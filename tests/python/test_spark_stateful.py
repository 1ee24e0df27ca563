"""Joins with state in Spark's state store say what the other forms say, batch for batch."""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import plait
from plait import spark as ps

from .conftest import load
from .test_spark_join import (
    CHANGES_OF_NULLS,
    KEYS,
    LEFT,
    RIGHT,
    Feeds,
    Kept,
    changes_of,
    folded,
    history,
    right_rows_of_nulls,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
CI = bool(os.environ.get("CI"))
Oracle = load("join_oracle").Oracle
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def rocks(spark):
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKS)
    yield spark
    spark.conf.set(PROVIDER, before)


def run(feeds, sink, **options):
    """Takes all files that are there, and waits."""
    changes = ps.foreign_key_join_stateful(
        feeds.stream("left"), feeds.stream("right"), **{**KEYS, **options}
    )
    query = (
        changes.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(feeds.root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def told(kept, number):
    """The changes of a batch; the sink gets batches without changes, too."""
    return kept.batches.get(number, [])


def test_an_order_and_its_customer_by_eye(rocks, tmp_path):
    feeds, kept = Feeds(rocks, tmp_path), Kept()
    feeds.events([("left", "order 1", ("ada", "ten"), 0), ("right", "ada", "Ada", 1)])
    feeds.events([("right", "bob", "Bob", 2)])
    feeds.events([("left", "order 1", ("bob", "ten"), 3)])
    run(feeds, kept)
    # The state is in the checkpoint: a query that starts again goes on with it.
    feeds.events([("right", "bob", None, 4)])
    run(feeds, kept)
    assert {number: changes for number, changes in kept.batches.items() if changes} == {
        0: [("insert", "order 1", ("ada", "ten", "Ada"))],
        2: [("update", "order 1", ("bob", "ten", "Bob"))],
        3: [("delete", "order 1", None)],
    }


@pytest.mark.long
def test_a_right_row_of_nulls_changes_no_row_of_a_left_join(rocks, tmp_path):
    feeds, kept = Feeds(rocks, tmp_path), Kept()
    right_rows_of_nulls(feeds)
    run(feeds, kept, how="left")
    assert {number: told for number, told in kept.batches.items() if told} == CHANGES_OF_NULLS


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "left"])
def test_random_histories_give_the_changes_of_the_full_join(rocks, tmp_path, how):
    for seed in range(2 if CI else 1):
        draw = random.Random(f"stateful {how} {seed}")
        feeds, kept, oracle = Feeds(rocks, tmp_path / str(seed)), Kept(), Oracle(how)
        batches = history(draw, draw.choice([12, 40]), 5 if CI else 3, 40)
        for events in batches:
            feeds.events(events)
        run(feeds, kept, how=how)
        for number, events in enumerate(batches):
            assert told(kept, number) == oracle.apply(folded(events)), (seed, number)
        # And what they amount to is what the batch form makes of both feeds.
        frames = [rocks.read.schema(s).parquet(str(feeds.root / side)) for side, s in SIDES]
        made = ps.foreign_key_join_batch(*frames, how=how, shards=2, **KEYS)
        rows = {}
        for number in sorted(kept.batches):
            for op, key, value in kept.batches[number]:
                assert (key in rows) == (op != "insert")
                rows[key] = value
                if op == "delete":
                    del rows[key]
        assert sorted((("insert", k, v) for k, v in rows.items()), key=repr) == changes_of(
            made.toArrow()
        )


SIDES = (("left", LEFT), ("right", RIGHT))


@pytest.mark.long
def test_old_values_types_and_columns_come_as_they_were(rocks, tmp_path):
    """Nothing of a type is lost in bytes; a row that moves and stays what it was is no change."""
    rocks.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for side in ("left", "right"):
            (tmp_path / side).mkdir()
        base = rocks.range(200).selectExpr(
            "id AS number", "if(id % 7 = 0, NULL, timestamp_seconds(id % 30)) AS at",
            "array(id, NULL) AS items", "cast(id AS decimal(20, 3)) AS price",
            "if(id % 3 = 0, double('NaN'), -0.0D) AS d",
        )  # fmt: skip
        names = rocks.range(25).selectExpr(
            "timestamp_seconds(id) AS at", "map('a', id) AS more", "if(id > 20, 1, 0) AS same"
        )
        moved = base.where("number % 5 = 0 and at IS NOT NULL").selectExpr(
            "number", "at + INTERVAL 1 SECOND AS at", "items", "price", "d"
        )
        write = {"left": [base, moved], "right": [names, names.limit(0)]}
        for side, frames in write.items():
            for i, frame in enumerate(frames):
                path = tmp_path / side / f"{i}.parquet"
                pq.write_table(frame.toArrow(), path)
                os.utime(path, (1_700_000_000 + i,) * 2)
        seen = {}

        def keep(changes, number):
            seen[number] = changes.orderBy("row").toArrow()

        sides = [
            rocks.readStream.schema(frames[0].schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / side))
            for side, frames in write.items()
        ]
        changes = ps.foreign_key_join_stateful(
            *sides,
            left_key="number",
            foreign_key="at",
            right_key="at",
            how="left",
            columns={"row": "number", "items": "items", "price": "price", "d": "d", "n": "same"},
        )
        query = (
            changes.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        plain = base.join(names, "at", "left").selectExpr(
            "'insert' AS _op", "number AS row", "items", "price", "d", "same AS n"
        )
        assert repr(seen[0].to_pylist()) == repr(plain.orderBy("row").toArrow().to_pylist())
        assert {row["_op"] for row in seen[1].to_pylist()} == {"update"}
        # Of the rows that moved, only those whose new neighbour has another `same`.
        after = moved.join(names, "at", "left").selectExpr("number AS row", "same AS n")
        old = {row["row"]: row["n"] for row in seen[0].to_pylist()}
        new = {row["row"]: row["n"] for row in after.toArrow().to_pylist()}
        told_of = {row["row"]: row["n"] for row in seen[1].to_pylist()}
        assert told_of == {row: n for row, n in new.items() if old[row] != n} and told_of
    finally:
        rocks.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.long
def test_mistakes_are_named(spark, rocks, tmp_path):
    plain = ("id string, fk string, payload string", "key string, value string")
    feeds, kept = Feeds(spark, tmp_path / "a", *plain), Kept()
    feeds.put("left", [{"id": "k", "fk": "a", "payload": "p"}])
    feeds.put("right", [{"key": "a", "value": "B"}, {"key": "a", "value": "C"}])
    with pytest.raises(Exception, match=r"InvalidArgument: a right key changes twice"):
        run(feeds, kept)
    feeds = Feeds(spark, tmp_path / "b", *plain)
    feeds.put("left", [{"id": None, "fk": "a", "payload": "p"}, {"id": "k", "fk": "a"}])
    feeds.put("right", [{"key": "a", "value": "A"}, {"key": None, "value": "B"}])
    with pytest.raises(Exception, match="NullKey: a change of the"):
        run(feeds, kept)
    run(feeds, kept, on_null_key="drop")
    assert kept.batches[0] == [("insert", "k", ("a", None, "A"))]
    spark.conf.set(PROVIDER, PROVIDER.replace("providerClass", "HDFSBackedStateStoreProvider"))
    with pytest.raises(plait.InvalidArgument, match="needs the state store of RocksDB"):
        run(feeds, kept)
    with pytest.raises(plait.UnknownColumn, match="`left_key` names no column"):
        run(feeds, kept, left_key="nr")


def test_rows_and_keys_survive_bytes():
    """Without Spark: what a stage reads is what another wrote."""
    from plait.spark.join_stateful import _Keys, _read, _written

    table = pa.table(
        {
            "k": pa.array([3, None], pa.int16()),
            "s": [{"a": [1, None]}, None],
            "t": pa.array([5, None], pa.timestamp("us", "UTC")),
        }
    )
    (batch,) = table.to_batches()
    for i in range(2):
        row = batch.slice(i, 1)
        assert _read(_written(row), table.schema).to_pylist() == row.to_pylist()
    keys = _Keys.of(("k", "t"), table.schema)
    assert keys.of_rows(batch) == [bytes.fromhex("0180000003" + "018000000000000005"), None]
