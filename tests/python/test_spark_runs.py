"""Runs in DataFrames, scans and overlays on executors: the rows of the calls on one machine."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

from plait import Layer

pytestmark = [pytest.mark.spark, pytest.mark.local]


@pytest.fixture
def ps(spark):
    from plait import spark as ps

    ps.register(spark)
    return ps


def dicts(frame):
    return [row.asDict(recursive=True) for row in frame.collect()]


# ---- merge_runs


def test_partitions_of_runs_are_sorted_as_spark_sorts_them(spark, ps, tmp_path):
    rng = random.Random(3)
    for i in range(6):
        ks = sorted(rng.randrange(1000) for _ in range(800))
        pq.write_table(pa.table({"k": ks, "v": [i] * 800}), tmp_path / f"{i}.parquet")
    frame = spark.read.parquet(str(tmp_path)).selectExpr("k", "v", "_metadata.file_name file")
    runs = frame.coalesce(2)
    merged = ps.merge_runs(runs, run_column="file", sort_by="k", memory_limit="32KB")
    assert merged.schema == runs.schema
    own = runs.sortWithinPartitions("k", "file")

    def by_partition(some):
        return some.rdd.glom().map(lambda rows: [tuple(row) for row in rows]).collect()

    assert by_partition(merged) == by_partition(own)
    last = ps.merge_runs(frame.coalesce(1), run_column="v", sort_by="k", on_duplicate="keep_last")
    expected = frame.groupBy("k").agg({"v": "max"}).orderBy("k").collect()
    assert [(row.k, row.v) for row in last.collect()] == [tuple(row) for row in expected]


def test_a_run_that_is_not_one_fails(spark, ps):
    from pyspark.errors import PySparkException

    frame = spark.range(100).selectExpr("id % 7 k", "0 run")
    with pytest.raises(PySparkException, match="UnsortedSource"):
        ps.merge_runs(frame, run_column="run", sort_by="k").collect()
    with pytest.raises(plait.UnknownColumn, match="absent"):
        ps.merge_runs(frame, run_column="absent", sort_by="k")
    with pytest.raises(plait.UnknownColumn, match="absent"):
        ps.merge_runs(frame, run_column="run", sort_by="absent")


# ---- scan


@pytest.fixture
def drifting(tmp_path):
    folder = tmp_path / "drifting"
    folder.mkdir()
    tables = [
        pa.table({"a": pa.array([1, 2], pa.int32()), "s": [{"x": 1, "y": "q"}] * 2}),
        pa.table({"b": ["x"], "a": [2**40]}),
        pa.table({"a": pa.array([5], pa.int16()), "c": [1.5], "s": [{"x": 1}]}),
        pa.table({"d": pa.array(["u", "u"]).dictionary_encode(), "a": [7, None]}),
    ]
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"{i}.parquet")
    return folder


@pytest.mark.parametrize("by_job", [False, True])
def test_scanned_rows_are_those_of_plait_scan(by_job, spark, ps, drifting, monkeypatch):
    import sys

    if by_job:
        monkeypatch.setattr(sys.modules["plait.spark.scan"], "_DRIVER_FILES", 1)
        monkeypatch.setattr(sys.modules["plait.spark.scan"], "_SUMMARY_FILES", 2)
    for columns, options in (
        (None, {}),
        (["s.x", "a", "_filename", "_row_number"], {}),
        (["c", "k", "e"], {"static": {"k": 7}, "missing": "null"}),
        (
            None,
            {
                "schema": pa.schema({"a": pa.float64(), "c": pa.float32()}),
                "policy": {"extra": "drop", "lossy": "cast"},
            },
        ),
        (None, {"implicit": ["_path"]}),
    ):
        expected = pa.table(plait.scan(str(drifting), columns, **options)).to_pylist()
        found = ps.scan(spark, str(drifting), columns, files_per_task=3, **options)
        assert dicts(found) == expected, columns


def test_files_that_do_not_go_together_are_named(spark, ps, drifting, monkeypatch):
    import sys

    from pyspark.errors import PySparkException

    monkeypatch.setattr(sys.modules["plait.spark.scan"], "_DRIVER_FILES", 1)
    frame = ps.scan(spark, str(drifting))
    pq.write_table(pa.table({"a": ["text"]}), drifting / "2.parquet")
    with pytest.raises(PySparkException, match=r"SchemaConflict[^\0]*2\.parquet"):
        frame.collect()
    # Conflicts inside of a group are raised by the driver, too.
    with pytest.raises(plait.SchemaConflict, match=r"2\.parquet"):
        ps.scan(spark, str(drifting))
    monkeypatch.setattr(sys.modules["plait.spark.scan"], "_SUMMARY_FILES", 1)
    with pytest.raises(plait.SchemaConflict, match=r"2\.parquet"):
        ps.scan(spark, str(drifting))
    with pytest.raises(plait.SourceNotFound):
        ps.scan(spark, str(drifting / "absent"))
    with pytest.raises(plait.SchemaConflict, match="needs a column"):
        ps.scan(spark, str(drifting / "0.parquet"), [])
    with pytest.raises(plait.Unsupported, match="_file_index"):
        ps.scan(spark, str(drifting), implicit="_file_index")


def test_a_compacted_folder_is_scanned_as_it_counts(spark, ps, tmp_path):
    for i in range(3):
        pq.write_table(pa.table({"k": [i, i + 3]}), tmp_path / f"{i}.parquet")
    plait.compact(tmp_path, policy="full", sort_by="k", yes=True)
    assert [row.k for row in ps.scan(spark, tmp_path).collect()] == [0, 1, 2, 2 + 1, 4, 5]


# ---- overlay

ROWS = 5000


@pytest.fixture
def layers(tmp_path):
    """A base of two files, a patch of one; the oracle."""
    base = pa.table(
        {
            "_index": list(range(0, 2 * ROWS, 2)),
            "row": list(range(ROWS)),
            "a": [{"x": i, "y": str(i)} for i in range(ROWS)],
        }
    )
    patch = pa.table(
        {
            "_index": list(range(0, 2 * ROWS, 2)),
            "row": list(range(ROWS)),
            "a": [{"y": None if i % 3 else f"p{i}"} for i in range(ROWS)],
            "l": [[i] for i in range(ROWS)],
        }
    )
    files = [tmp_path / "base0.parquet", tmp_path / "base1.parquet"]
    pq.write_table(base.slice(0, 1800), files[0], row_group_size=700)
    pq.write_table(base.slice(1800), files[1], row_group_size=500)
    pq.write_table(patch, tmp_path / "patch.parquet", row_group_size=333)
    joined = plait.overlay([Layer(base, ["a"]), Layer(patch, ["a.y", "l"])])
    return files, tmp_path / "patch.parquet", pa.table(joined).to_pylist()


def test_layers_of_files_are_joined_in_parts_and_in_order(spark, ps, layers):
    files, patch, expected = layers
    frame = ps.overlay(spark, [Layer(files, ["a"]), Layer(patch, ["a.y", "l"])], part_rows=1200)
    assert frame.selectExpr("spark_partition_id() part").distinct().count() == 5
    assert dicts(frame) == expected


@pytest.mark.parametrize("mixed", [True, False])
def test_frames_are_layers_in_whatever_order_their_rows_are(mixed, spark, ps, layers):
    files, patch, expected = layers
    shuffled = spark.read.parquet(str(patch)).repartition(3, "l")
    base = files if mixed else spark.read.parquet(*map(str, files)).orderBy("a")
    some = [Layer(base, ["a"]), Layer(shuffled, ["a.y", "l"])]
    found = dicts(ps.overlay(spark, some, row_number="row", part_rows=700))
    assert sorted(found, key=lambda row: row["_index"]) == expected


@pytest.mark.long
def test_layers_of_other_rows_fail(spark, ps, layers, tmp_path):
    from pyspark.errors import PySparkException

    files, patch, _ = layers
    frame = spark.read.parquet(str(patch))
    for wrong in (
        frame.where("row <> 77"),
        frame.where("row >= 1200"),
        frame.union(frame.selectExpr("_index + 20000", "row + 10000", "a", "l")),
        frame.selectExpr("_index + 1 _index", "row", "a", "l"),
        frame.selectExpr("_index", "nullif(row, 5) row", "a", "l"),
    ):
        some = [Layer(files, ["a"]), Layer(wrong, ["a.y", "l"])]
        with pytest.raises(
            PySparkException, match=r"RowMismatch|InvalidArgument: a row has no number"
        ):
            ps.overlay(spark, some, row_number="row", part_rows=1200).collect()
    with pytest.raises(plait.RowMismatch, match="1800"):
        ps.overlay(spark, [Layer(files[0], ["a"]), Layer(patch, ["l"])])
    with pytest.raises(plait.InvalidArgument, match="no order"):
        ps.overlay(spark, [Layer(files, ["a"]), Layer(frame, ["l"])])
    with pytest.raises(plait.FieldNotInLayer):
        ps.overlay(spark, [Layer(files, ["a"]), Layer(frame, ["l"])], row_number="absent")
    with pytest.raises(plait.FieldNotInLayer):
        ps.overlay(spark, [Layer(files, ["absent"]), Layer(patch, ["l"])])
