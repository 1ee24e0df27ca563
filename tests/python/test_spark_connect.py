"""The core of the Spark tests once more, through Spark Connect; and what Connect cannot do, named.

The tests are those of the other modules, with a session of Connect for `spark`: its server is in
the JVM of the tests, its client in this process.
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="the extra `connect` is missing")

import plait

from . import test_spark_compact as compact
from . import test_spark_functions as functions
from . import test_spark_join as join
from . import test_spark_runs as runs
from . import test_spark_sink as sink
from . import test_spark_source as source
from .test_spark_join import KEYS
from .test_spark_stateful import PROVIDER, ROCKS

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


# Fixtures of the tests, then the tests.
learned, drifting, layers, ps, plaited = (
    *(compact.learned, runs.drifting, runs.layers, runs.ps, source.plaited),
)
CORE = (
    compact.test_a_folder_is_compacted_in_place_and_a_second_run_does_nothing,
    compact.test_delta_and_iceberg_tables_are_compacted,
    compact.test_errors_of_executors_are_those_of_one_machine,
    compact.test_executors_read_what_planning_needs_of_many_files,
    compact.test_progress_grows_by_outputs_and_ends_with_all_rows,
    compact.test_sources_are_merged_into_another_folder_once,
    compact.test_what_progress_raises_ends_the_job,
    functions.test_a_batch_of_plait_comes_out_of_map_in_arrow,
    join.test_the_batch_form_is_the_join_of_what_the_feeds_end_with,
    runs.test_a_run_that_is_not_one_fails,
    runs.test_frames_are_layers_in_whatever_order_their_rows_are,
    runs.test_layers_of_files_are_joined_in_parts_and_in_order,
    runs.test_scanned_rows_are_those_of_plait_scan,
    sink.test_a_task_out_of_order_fails_the_write_and_leaves_nothing,
    sink.test_every_task_writes_one_sorted_run,
    source.test_errors_of_tasks_name_file_and_reason,
    source.test_filters_reach_the_source_through_spark,
    source.test_rows_are_those_of_sparks_own_read_and_sort,
)
globals().update({test.__name__: test for test in CORE})


@pytest.fixture(scope="module")
def connected(spark_connect):
    """A session of Connect, one for the tests of this module."""
    from pyspark.sql.connect.session import SparkSession

    # What PySpark's own functions ask, and the session when it is made.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    session = SparkSession.builder.remote(spark_connect).create()
    del os.environ["SPARK_CONNECT_MODE_ENABLED"]
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture
def spark(connected, monkeypatch):
    """Instead of the session of all other tests."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    return connected


def test_the_session_is_one_of_connect(spark):
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    with pytest.raises(Exception, match="sparkContext"):
        _ = spark.sparkContext


def test_streams_of_runs_are_written_once_and_read_back(spark, tmp_path):
    for part in range(3):
        pq.write_table(pa.table({"k": [part, part + 10]}), tmp_path / f"{part}.parquet")
    files = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1)
    for _ in range(2):
        query = (
            files.parquet(str(tmp_path))
            .writeStream.format("plait")
            .options(sort_by="k", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "made"))
        )
        query.awaitTermination()
    back = spark.read.format("plait").load(str(tmp_path / "made"))
    assert [row.k for row in back.collect()] == [0, 1, 2, 10, 11, 12]


def test_runs_in_partitions_are_merged(spark, ps):
    rng = random.Random(4)
    rows = [(run, k) for run in range(3) for k in sorted(rng.sample(range(100), 30))]
    frame = spark.createDataFrame(rows, "run long, k long").coalesce(1)
    merged = ps.merge_runs(frame, run_column="run", sort_by="k")
    assert [row.k for row in merged.collect()] == sorted(k for _, k in rows)


def test_a_join_with_state_of_spark_writes_its_changes(spark, ps, tmp_path):
    left = pa.table({"id": ["a", "b"], "fk": ["x", "y"], "payload": ["1", "2"]})
    for side, table in (("left", left), ("right", pa.table({"key": ["x"], "value": ["X"]}))):
        (tmp_path / side).mkdir()
        pq.write_table(table, tmp_path / side / "0.parquet")
    sides = [
        spark.readStream.schema(schema).parquet(str(tmp_path / side))
        for side, schema in (
            ("left", "id string, fk string, payload string"),
            ("right", "key string, value string"),
        )
    ]
    spark.conf.set(PROVIDER, ROCKS)
    try:
        query = (
            ps.foreign_key_join_stateful(*sides, **KEYS)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "changes"))
        )
        query.awaitTermination()
    finally:
        spark.conf.unset(PROVIDER)
    (row,) = spark.read.parquet(str(tmp_path / "changes")).collect()
    assert (row["_op"], row.id, row.value) == ("insert", "a", "X")


def test_a_join_whose_sink_runs_in_the_driver_is_refused_by_name(spark, ps, tmp_path):
    pq.write_table(pa.table({"id": ["a"], "fk": ["x"], "payload": ["1"]}), tmp_path / "0.parquet")
    left = spark.readStream.schema("id string, fk string, payload string").parquet(str(tmp_path))
    right = spark.readStream.schema("key string, value string").parquet(str(tmp_path))
    with pytest.raises(plait.Unsupported, match="foreign_key_join_stateful") as refused:
        ps.foreign_key_join(left, right, checkpoint=tmp_path / "c", sink=print, **KEYS)
    assert "Spark Connect" in str(refused.value)
    assert not (tmp_path / "c").exists()
