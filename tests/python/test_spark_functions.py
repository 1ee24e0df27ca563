"""The Arrow functions for users' own code in workers: without a session, and in one."""

import doctest
import importlib
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructType

from plait.spark import functions as fn
from plait.spark import spill, worker

CASES = 300 if os.environ.get("CI") else 40


def rows(batches):
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(CASES))
def test_merged_runs_are_a_stable_sort_by_key_then_run(seed):
    rng = random.Random(seed)
    runs = {}
    for run in rng.sample(range(20), rng.randint(1, 6)):
        ks = sorted(rng.choice((None, *range(9))) or -1 for _ in range(rng.randint(1, 60)))
        runs[run] = [{"run": run, "k": k, "v": run * 100 + j} for j, k in enumerate(ks)]
    # Rows of runs arrive in turns, in batches of any size.
    left = {run: list(some) for run, some in runs.items()}
    arriving = []
    while left:
        run = rng.choice(list(left))
        count = rng.randint(1, 10)
        arriving += left[run][:count]
        left[run] = left[run][count:]
        if not left[run]:
            del left[run]
    batches = []
    while arriving:
        count = rng.randint(1, 25)
        batches.append(pa.RecordBatch.from_pylist(arriving[:count]))
        arriving = arriving[count:]
    which = rng.choice(("keep_all", "keep_first", "keep_last"))
    limit = rng.choice((1, 500, 100_000))
    found = rows(
        fn.merge_runs(
            batches,
            run_column="run",
            sort_by="k",
            on_duplicate=which,
            batch_rows=rng.choice((1, 5, 1000)),
            memory_limit=limit,
        )
    )
    expected = sorted((row for run in sorted(runs) for row in runs[run]), key=lambda row: row["k"])
    if which != "keep_all":
        some = expected if which == "keep_last" else expected[::-1]
        chosen = {row["k"]: row["v"] for row in some}
        expected = [row for row in expected if chosen[row["k"]] == row["v"]]
    assert found == expected


def test_rows_beyond_the_limit_wait_in_files_that_are_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    batch = pa.record_batch({"run": [1] * 1000, "k": list(range(1000))})
    with spill.Runs("run", 40_000) as runs:
        for _ in range(5):
            runs.add(batch)
        assert runs.spilled == 2 and len(list(tmp_path.rglob("*.arrow"))) == 2
        (reader,) = runs.in_order()
        assert reader.read_all()["k"].to_pylist() == list(range(1000)) * 5
    assert list(tmp_path.rglob("*")) == []


def test_no_rows_are_no_batches():
    assert list(fn.merge_runs([], run_column="run", sort_by="k")) == []
    empty = pa.record_batch({"run": pa.array([], pa.int64()), "k": pa.array([], pa.int64())})
    assert list(fn.merge_runs([empty], run_column="run", sort_by="k")) == []


def test_runs_that_are_not_runs_are_refused():
    batch = pa.record_batch({"run": [1, None], "k": [1, 2]})
    with pytest.raises(plait.InvalidArgument, match="`run` is null"):
        list(fn.merge_runs([batch], run_column="run", sort_by="k"))
    with pytest.raises(plait.UnknownColumn, match="`absent`"):
        list(fn.merge_runs([batch], run_column="absent", sort_by="k"))
    backwards = pa.record_batch({"run": [1, 1], "k": [2, 1]})
    with pytest.raises(plait.UnsortedSource):
        list(fn.merge_runs([backwards], run_column="run", sort_by="k"))
    other = pa.record_batch({"run": [1], "k": ["x"]})
    with pytest.raises(plait.SchemaConflict):
        list(fn.merge_runs([backwards.slice(0, 1), other], run_column="run", sort_by="k"))


def test_columns_go_by_name_and_batches_are_bounded():
    declared = StructType().add("t", StringType()).add("n", LongType())
    batch = pa.record_batch(
        {
            "n": pa.array([1, 2, 3], pa.uint32()),
            "t": pa.array(["a", "b", "a"]).dictionary_encode(),
            "x": [0, 0, 0],
        }
    )
    found = list(fn.to_spark([batch], declared, batch_rows=2))
    assert [b.num_rows for b in found] == [2, 1]
    assert rows(found) == [{"t": "a", "n": 1}, {"t": "b", "n": 2}, {"t": "a", "n": 3}]
    assert rows(fn.checked(found, declared)) == rows(found)
    with pytest.raises(plait.SchemaConflict, match="not those declared"):
        list(fn.checked([batch], declared))
    with pytest.raises(plait.SchemaConflict, match="`n` is not of the type"):
        list(
            fn.checked(
                [batch.select(["t", "n"]).cast(pa.schema({"t": "string", "n": "int32"}))], declared
            )
        )
    with pytest.raises(plait.SchemaConflict, match="does not have column `t`"):
        list(fn.to_spark([batch.select(["n"])], declared))
    huge = pa.record_batch({"n": pa.array([2**63], pa.uint64()), "t": ["a"]})
    with pytest.raises(plait.LossyCast, match="`n`"):
        list(fn.to_spark([huge], declared))


def test_memory_and_threads_follow_what_spark_gives(monkeypatch):
    assert worker.threads() == 1
    monkeypatch.delenv("PYSPARK_EXECUTOR_MEMORY_MB", raising=False)
    assert worker.memory_limit() == 256 << 20
    monkeypatch.setenv("PYSPARK_EXECUTOR_MEMORY_MB", "100000")
    assert 40_000 << 20 < worker.memory_limit() < 50_000 << 20
    monkeypatch.setenv("PYSPARK_EXECUTOR_MEMORY_MB", "10")
    assert worker.memory_limit() == 32 << 20
    assert worker.memory_limit("64MB") == 64_000_000


@pytest.mark.parametrize("module", ["filters", "functions", "settings", "types", "worker"])
def test_examples_of_docstrings_run(module):
    failed, tried = doctest.testmod(importlib.import_module(f"plait.spark.{module}"))
    assert tried > 0 and failed == 0


@pytest.mark.few(1)
@pytest.mark.spark
def test_users_own_code_merges_groups(spark):
    """One group after the other, each with its runs, in `applyInArrow`."""
    frame = spark.range(600).selectExpr("id % 3 host", "id % 4 run", "id ts")

    def merged(table: pa.Table) -> pa.Table:
        table = table.sort_by([("run", "ascending"), ("ts", "ascending")])
        batches = fn.merge_runs(table.to_batches(), run_column="run", sort_by="ts")
        return pa.Table.from_batches(fn.to_spark(batches), table.schema)

    found = frame.groupBy("host").applyInArrow(merged, frame.schema).collect()
    for host in range(3):
        assert [row.ts for row in found if row.host == host] == list(range(host, 600, 3))


@pytest.mark.spark
def test_a_batch_of_plait_comes_out_of_map_in_arrow(spark, tmp_path):
    for part in range(2):
        pq.write_table(pa.table({"k": [part, part + 4]}), tmp_path / f"{part}.parquet")
    folder = str(tmp_path)
    one = spark.range(1).coalesce(1)

    def as_it_is(_batches):
        yield from plait.merge_streams([folder], sort_by="k")

    def converted(batches):
        return fn.to_spark(as_it_is(batches))

    assert [row.k for row in one.mapInArrow(converted, "k long").collect()] == [0, 1, 4, 5]
    # Spark takes batches of PyArrow only; whoever reads this failing can drop `to_spark`.
    with pytest.raises(Exception, match="UDF_RETURN_TYPE"):
        one.mapInArrow(as_it_is, "k long").collect()


def test_batches_of_other_libraries_are_taken():
    stream = plait.merge_streams([pa.table({"k": [1, 2], "v": ["a", "b"]})], sort_by="k")
    batches = list(stream)
    assert not any(isinstance(batch, pa.RecordBatch) for batch in batches)
    declared = StructType().add("v", "string").add("k", "long")
    (made,) = fn.to_spark(batches, declared)
    assert made.to_pydict() == {"v": ["a", "b"], "k": [1, 2]}
    (same,) = fn.checked(batches, StructType().add("k", "long").add("v", "string"))
    assert isinstance(same, pa.RecordBatch)
    (merged,) = fn.merge_runs(batches, run_column="v", sort_by="k")
    assert merged.num_rows == 2
