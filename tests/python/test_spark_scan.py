"""Scans on executors: folders, file columns, limits, text and tables give the rows of `plait.scan`."""

import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

from plait import spark as ps
from plait.spark import scan_plan

from . import test_spark_objects as objects
from .test_spark_runs import dicts

pytestmark = [pytest.mark.spark, pytest.mark.local]

bucket = objects.bucket  # a fixture
FILES = {
    "year=2023/month=06/a": pa.table({"a": pa.array([1, 2], pa.int32())}),
    "year=2024/b": pa.table({"a": [3], "b": ["x"]}),
    "year=2024/month=11/c": pa.table({"b": ["y", "z"], "a": [4, 2**40]}),
    "year=__HIVE_DEFAULT_PARTITION__/d": pa.table({"a": [6]}),
}


@pytest.fixture
def lake(tmp_path):
    for name, table in FILES.items():
        path = tmp_path / "lake" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    return tmp_path / "lake"


def same(spark, sources, columns=None, **options):
    """Compares all rows and names with those of `plait.scan`, however files are shared out."""
    expected = pa.table(plait.scan(sources, columns, **options))
    for files_per_task in (1, 3):
        found = ps.scan(spark, sources, columns, files_per_task=files_per_task, **options)
        assert found.columns == expected.column_names
        assert dicts(found) == without_zones(expected).to_pylist()
    return expected.to_pylist()


def without_zones(table):
    """The table as Spark collects it: moments of a session in UTC."""
    schema = pa.schema(
        field.with_type(pa.timestamp("us")) if str(field.type) == "timestamp[us, tz=UTC]" else field
        for field in table.schema
    )
    return table.cast(schema)


@pytest.mark.parametrize(
    "options",
    [
        {"partitions": "hive"},
        {"partitions": "hive", "partition_types": {"year": "string", "month": "int8"}},
        {"partitions": "dirs"},
        {"partitions": "dirs", "partition_types": {"dir1": "binary"}},
        {"partitions": "hive", "columns": ["month as m", "b", "year"]},
        {"partitions": "hive", "columns": {"y": "year", "from": "_folder"}},
    ],
    ids=str,
)
def test_folders_are_the_columns_that_plait_scan_makes_of_them(options, spark, lake):
    """A task sees some folders only: `month` is text because of one folder, and absent in others."""
    same(spark, str(lake), **options)


def test_folders_are_counted_from_the_root_of_each_source(spark, lake):
    rows = same(spark, [str(lake / "year=2024"), str(lake / "*" / "*" / "a*")], partitions="dirs")
    assert {row["dir0"] for row in rows} == {None, "month=11", "year=2023"}
    rows = same(spark, str(lake / "*" / "*" / "*.parquet"), partitions="dirs")
    assert {row["dir0"] for row in rows} == {"year=2023", "year=2024"}
    files = [str(lake / f"{name}.parquet") for name in FILES]
    assert same(spark, files, partitions="dirs", root=lake)[0]["dir0"] == "year=2023"
    assert same(spark, files, partitions="dirs", root=lake.parent)[0]["dir0"] == "lake"


def test_files_of_a_compacted_folder_have_the_folders_of_their_sources(spark, tmp_path):
    for i in range(4):
        path = tmp_path / "runs" / f"day={i % 2}" / f"{i}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"k": [i]}), path)
    plait.compact(tmp_path / "runs", policy="full", sort_by="k", yes=True)
    for partitions in ("hive", "dirs"):
        same(spark, str(tmp_path / "runs"), partitions=partitions)


def test_a_column_of_files_may_be_one_of_folders(spark, tmp_path):
    (tmp_path / "a=1").mkdir()
    pq.write_table(pa.table({"a": [5], "b": [6]}), tmp_path / "a=1" / "0.parquet")
    pq.write_table(pa.table({"b": [7]}), tmp_path / "1.parquet")
    for clash in ("partition", "file"):
        rows = same(spark, str(tmp_path), partitions="hive", partition_clash=clash)
        assert [row["a"] for row in rows] == ([None, 1] if clash == "partition" else [None, 5])
    with pytest.raises(plait.PlaitError, match="`a`"):
        ps.scan(spark, str(tmp_path), partitions="hive")


def test_columns_of_files_tell_where_a_row_is_from(spark, lake):
    names = ["_path", "_folder", "_filename", "_size", "_modified", "_row_number"]
    rows = same(spark, str(lake), implicit=names, partitions="hive")
    first = lake / "year=2023/month=06/a.parquet"
    assert (rows[0]["_size"], rows[1]["_row_number"]) == (first.stat().st_size, 1)
    assert rows[0]["_folder"] == str(first.parent)


def test_a_constant_may_differ_by_source(spark, lake):
    sources = [str(lake / "year=2023"), str(lake / "year=2024")]
    rows = same(spark, sources, static={"from": [None, "b"], "n": [1, 2], "all": True})
    assert [row["from"] for row in rows] == [None, None, "b", "b", "b"]


@pytest.mark.parametrize("limit", range(8))
def test_a_limit_gives_the_first_rows_and_leaves_files_out(limit, spark, lake):
    rows = same(spark, str(lake), limit=limit, partitions="hive")
    assert len(rows) == min(limit, 6)


def test_files_past_the_limit_are_in_no_task(spark, lake):
    frame = ps.scan(spark, str(lake), limit=3)
    assert frame.rdd.getNumPartitions() == 2
    (lake / "year=2024/month=11/c.parquet").unlink()
    assert [row.a for row in frame.collect()] == [1, 2, 3]


def test_files_of_text_are_scanned_beside_parquet(spark, lake, monkeypatch):
    (lake / "year=2024/t.jsonl").write_text('{"a": 7, "s": {"x": 1}}\n{"a": 8.5}\n')
    (lake / "year=2025").mkdir()
    (lake / "year=2025/u.csv").write_text("b,at\n007,2024-02-29T12:00:00\n,\n")
    schema = pa.schema({"a": pa.float64(), "at": pa.timestamp("us"), "b": pa.string()})
    given = {"schema": schema, "policy": {"lossy": "cast", "extra": "drop"}}
    rows = same(spark, str(lake), partitions="hive", implicit=["_filename"], **given)
    assert [row["b"] for row in rows if row["_filename"] == "u.csv"] == ["007", None]
    assert len(same(spark, str(lake), ["a", "b"], limit=5, **given)) == 5
    # A job that summarizes footers meets text, too.
    monkeypatch.setattr(sys.modules["plait.spark.scan"], "_DRIVER_FILES", 1)
    monkeypatch.setattr(sys.modules["plait.spark.scan"], "_SUMMARY_FILES", 2)
    same(spark, str(lake), ["a", "b"], **given)
    monkeypatch.undo()
    text = lake / "year=2024/t.jsonl"
    frame = ps.scan(spark, [str(text)])
    text.write_text('{"a": "text"}\n')
    with pytest.raises(Exception, match=r"(SchemaConflict|SourceChanged)[^\0]*t\.jsonl"):
        frame.collect()
    text.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(plait.CorruptSource, match=r"t\.jsonl"):
        ps.scan(spark, [str(text)])


def test_a_table_with_partition_columns_has_them(spark, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    rows = pa.table({"k": [1, 2, 3], "day": ["a", "b", "b"]})
    deltalake.write_deltalake(str(tmp_path / "t"), rows, partition_by=["day"])
    found = same(spark, str(tmp_path / "t"), implicit=["_filename"])
    assert sorted((row["k"], row["day"]) for row in found) == [(1, "a"), (2, "b"), (3, "b")]


def test_objects_are_scanned_with_settings(spark, bucket, lake):
    url, settings, client = bucket
    for name in FILES:
        path = lake / f"{name}.parquet"
        client.upload_file(str(path), url.removeprefix("s3://"), f"lake/{name}.parquet")
    given = {"storage_options": settings, "partitions": "dirs", "implicit": ["_path", "_size"]}
    rows = same(spark, f"{url}/lake/", **given)
    assert len(rows) == 6 and rows[0]["_path"].startswith(url)
    same(spark, f"{url}/lake/*/*.parquet", limit=2, **given)
    with pytest.raises(plait.PlaitError):
        ps.scan(spark, f"{url}/lake/", storage_options={**settings, "aws_endpoint_url": "x"})


def test_what_is_wrong_is_told_by_the_driver(spark, lake):
    scan = lambda **options: ps.scan(spark, str(lake), **options)  # noqa: E731
    for options, error, told in (
        ({"partitions": "folders"}, plait.InvalidArgument, "`partitions`"),
        ({"partitions": "hive", "partition_types": {"k": "int8"}}, plait.InvalidArgument, "`k`"),
        ({"partitions": "hive", "partition_types": {"year": "x"}}, plait.InvalidArgument, "`x`"),
        ({"partitions": "hive", "partition_types": "year"}, plait.InvalidArgument, "types"),
        ({"partition_types": {"year": "int8"}}, plait.InvalidArgument, "partition_types"),
        ({"partition_clash": "file"}, plait.InvalidArgument, "partition_clash"),
        ({"partitions": "hive", "partition_clash": "x"}, plait.InvalidArgument, "clash"),
        ({"root": str(lake)}, plait.InvalidArgument, "`root`"),
        ({"root": 7}, plait.InvalidArgument, "`root`"),
        ({"partitions": "dirs", "root": "/absent"}, plait.InvalidArgument, "not below"),
        ({"limit": -1}, plait.InvalidArgument, "`limit`"),
        ({"limit": "all"}, plait.InvalidArgument, "`limit`"),
        ({"implicit": ["_owner"]}, plait.InvalidArgument, "`_owner`"),
        ({"implicit": ["_file_index"]}, plait.Unsupported, "_file_index"),
        ({"storage_options": 7}, plait.InvalidArgument, "`storage_options`"),
        ({"static": {"n": [1, 2]}}, plait.InvalidArgument, "one for each source"),
        ({"static": {"n": [object()]}}, plait.InvalidArgument, "type that cannot be used"),
        ({"files_per_task": 0}, plait.InvalidArgument, "files_per_task"),
    ):
        with pytest.raises(error, match=told):
            scan(**options)
    with pytest.raises(plait.InvalidArgument, match="pass it as `root`"):
        ps.scan(spark, [str(lake / "year=2024/b.parquet")], partitions="dirs")
    fsspec = pytest.importorskip("fsspec")
    with pytest.raises(plait.Unsupported, match="cannot travel"):
        scan(storage_options=fsspec.filesystem("memory"))
    with pytest.raises(plait.SourceNotFound):
        ps.scan(spark, str(lake / "absent"))


def test_a_declared_type_is_told_in_every_name_of_it():
    """The table of types has those of `partition_types`, each as the engine makes it."""
    for made, (name, _) in scan_plan._TYPES.items():
        options = {"partitions": "dirs", "partition_types": {"dir0": name}, "root": "/"}
        options |= {"text_files": True, "storage_options": {}, "static": []}
        found = scan_plan._no_file_has(options, [os.path.abspath(__file__)])
        assert found["dir0"] == made
