"""Files that Spark writes merge; files that Plait writes give the same rows in Spark."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .make_types import KEY, differences, every_decimal, every_type, stably_sorted

pytestmark = pytest.mark.spark

# What Spark does not read in the sources either, or reads as something else.
NOT_IN_SPARK = (
    *("null", "list_null", "uint64", "float16", "fixed16", "time32_s", "time32_ms", "time64_us"),
    *("time64_ns", "ts_ns", "tz_ns", "duration_s", "duration_ms", "duration_us", "duration_ns"),
    *("decimal256", "uuid", "tensor", "bool8"),
)

SCHEMA = """
    k int, n8 tinyint, n16 smallint, n64 bigint, f float, d double, b boolean, t string, x binary,
    d3 decimal(3, 1), d9 decimal(9, 2), d18 decimal(18, 6), d38 decimal(38, 10),
    day date, ts timestamp, naive timestamp_ntz,
    l array<int>, ll array<array<string>>, s struct<a: int, b: struct<c: array<string>>>,
    ls array<struct<p: int, q: map<string, array<double>>>>, m map<int, string>,
    mm map<string, map<string, timestamp>>
"""
UTC = dt.timezone.utc


def rows(count, seed):
    """Rows in the order of `k`, nulls last; odd values, and nulls at every level."""

    def hole(i, value, every):
        return None if (i + seed) % every == 0 else value

    def row(i, k):
        odd = (float("nan"), -0.0, float("inf"), 1.5, -(2.0**-126))[i % 5]
        moment = dt.datetime(1890 + i % 200, 1 + i % 12, 1 + i % 28, i % 24, 1, 2, i * 999 % 10**6)
        return (
            k,
            hole(i, i % 256 - 128, 3),
            hole(i, i * 7 - 32_000, 4),
            hole(i, (i - 50) * 10**15, 5),
            hole(i, odd, 6),
            hole(i, odd, 7),
            hole(i, i % 2 == 0, 3),
            hole(i, "é\U0001f9f6\0x"[: i % 5] * (i % 9), 4),
            hole(i, bytearray(b"\0\xff" * (i % 4)), 5),
            hole(i, Decimal(i % 1999 - 999).scaleb(-1), 3),
            hole(i, Decimal(i - 999_999_999).scaleb(-2), 4),
            hole(i, Decimal(10**18 - 1 - i).scaleb(-6), 5),
            hole(i, Decimal(i - 10**20).scaleb(-10), 6),
            hole(i, moment.date(), 4),
            hole(i, moment.replace(tzinfo=UTC), 5),
            hole(i, moment, 6),
            hole(i, [hole(i + j, j, 3) for j in range(i % 5)], 4),
            hole(i, [hole(i + j, ["a"] * j + [None], 3) for j in range(i % 4)], 5),
            hole(i, {"a": hole(i, i, 2), "b": hole(i, {"c": hole(i, [None, "z"], 4)}, 3)}, 7),
            hole(
                i,
                [hole(j, {"p": hole(i, j, 2), "q": {"v": [odd, None]}}, 3) for j in range(i % 3)],
                4,
            ),
            hole(i, {j: hole(i + j, str(j), 2) for j in range(i % 4)}, 5),
            hole(i, {"a": {"b": hole(i, moment.replace(tzinfo=UTC), 2)}, "c": hole(i, {}, 3)}, 6),
        )

    keys = sorted((i * 37 + seed) % (count // 5) for i in range(count - 5)) + [None] * 5
    return [row(i, k) for i, k in enumerate(keys)]


def same_rows(frame):
    """Rows as text: NaN equals NaN, -0.0 does not equal 0.0."""
    return [repr(row) for row in frame.collect()]


def in_key_order(some):
    """The oracle: a stable sort of the concatenation, nulls last."""
    return sorted(some, key=lambda row: (row[0] is None, row[0] or 0))


def write(frame, folder, options):
    """One file by Spark; gives its path."""
    frame.coalesce(1).write.options(**options).parquet(str(folder))
    (path,) = Path(folder).glob("*.parquet")
    return path


WRITING = {
    "int96, snappy": ("INT96", {"compression": "snappy"}),
    "micros, zstd": ("TIMESTAMP_MICROS", {"compression": "zstd"}),
    "millis, gzip": ("TIMESTAMP_MILLIS", {"compression": "gzip"}),
    "v2 pages, small": (
        "TIMESTAMP_MICROS",
        {
            "compression": "lz4_raw",
            "parquet.writer.version": "v2",
            "parquet.page.size": "256",
            "parquet.page.row.count.limit": "7",
            "parquet.block.size": "4096",
        },
    ),
    "no dictionary, small": (
        "INT96",
        {
            "compression": "uncompressed",
            "parquet.enable.dictionary": "false",
            "parquet.page.size": "128",
            "parquet.page.size.row.check.min": "2",
        },
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", WRITING)
def test_files_by_spark_merge_to_the_same_rows(name, spark, tmp_path):
    timestamps, options = WRITING[name]
    settings = {
        "spark.sql.parquet.outputTimestampType": timestamps,
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    }
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    made = [rows(count, seed) for seed, count in enumerate((300, 120, 50))]
    frames = [spark.createDataFrame(some, SCHEMA) for some in made]
    paths = [write(f, tmp_path / str(i), options) for i, f in enumerate(frames)]

    report = plait.merge(
        paths, tmp_path / "out", sort_by=KEY, outputs=2, row_group_rows=100, verify="content"
    )
    files = [output.path for output in report.outputs]
    assert len(files) == 2

    # To the last bit, as PyArrow sees it.
    merged = pa.concat_tables([pq.read_table(path) for path in files])
    assert differences(stably_sorted([pq.read_table(path) for path in paths]), merged) == []
    # As Spark sees it: the files one by one, then all at once.
    back = [spark.read.parquet(path) for path in map(str, files)]
    before = [spark.read.parquet(str(path)) for path in paths]
    assert all(frame.schema == before[0].schema for frame in back)
    expected = in_key_order([row for frame in before for row in frame.collect()])
    assert [text for frame in back for text in same_rows(frame)] == list(map(repr, expected))
    # And the row's Spark schema is still told.
    entries = pq.read_metadata(files[0]).metadata
    assert b"org.apache.spark.sql.parquet.row.metadata" in entries
    assert "org.apache.spark.version" in {name.decode() for name in entries}


def test_spark_reads_every_type_it_knows(spark, tmp_path):
    tables = [every_type(count, seed, without=NOT_IN_SPARK) for seed, count in enumerate((200, 90))]
    paths = [tmp_path / f"{i}.parquet" for i in range(2)]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(table, path, data_page_size=256)
    check(spark, paths, tmp_path)


def test_spark_reads_decimals_of_all_its_precisions(spark, tmp_path):
    paths = [tmp_path / f"{i}.parquet" for i in range(2)]
    for seed, path in enumerate(paths):
        pq.write_table(every_decimal(60, seed, most=38), path)
    check(spark, paths, tmp_path)


def check(spark, paths, tmp_path):
    """Merges, and compares what Spark reads with the oracle, also through filters."""
    plait.merge(paths, tmp_path / "out", sort_by=KEY, row_group_rows=50, page_rows=11)
    before = [spark.read.parquet(str(path)) for path in paths]
    (out,) = (tmp_path / "out").glob("*.parquet")
    after = spark.read.parquet(str(out))
    assert after.schema == before[0].schema
    expected = in_key_order([row for frame in before for row in frame.collect()])
    assert same_rows(after) == list(map(repr, expected))
    found = [repr(row) for row in expected if row[0] is not None and 3 <= row[0] <= 5]
    assert same_rows(after.where("k between 3 and 5")) == found
    assert after.where("k is null").count() == sum(row[0] is None for row in expected)


def test_spark_takes_up_the_merged_folder_as_a_table(spark, tmp_path):
    for seed in range(3):
        pq.write_table(every_type(60, seed, without=NOT_IN_SPARK), tmp_path / f"{seed}.parquet")
    sources = [tmp_path / f"{seed}.parquet" for seed in range(3)]
    report = plait.merge(sources, tmp_path / "out", sort_by=KEY, outputs=4)
    assert len(report.outputs) > 1
    table = spark.read.parquet(str(tmp_path / "out"))
    totals = table.selectExpr("count(*)", "sum(k)", "count(string)", "sum(size(list))").collect()[0]
    each = spark.read.parquet(*map(str, sources))
    assert (
        totals
        == each.selectExpr("count(*)", "sum(k)", "count(string)", "sum(size(list))").collect()[0]
    )


def test_files_by_spark_and_others_merge(spark, tmp_path):
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame = spark.createDataFrame([(1, "a", [1]), (3, None, None)], "k int, v string, l array<int>")
    by_spark = write(frame, tmp_path / "spark", {})
    by_arrow = tmp_path / "arrow.parquet"
    pq.write_table(
        pa.table(
            {
                "k": pa.array([2, 3], pa.int64()),
                "l": pa.array([[2, None], []], pa.list_(pa.int64())),
                "w": [True, False],
            }
        ),
        by_arrow,
        use_compliant_nested_type=False,
    )
    plait.merge([by_spark, by_arrow], tmp_path / "out", sort_by=KEY)
    found = spark.read.parquet(str(tmp_path / "out"))
    # Columns have the order of the first file by name, whichever came first.
    assert found.dtypes == [
        ("k", "bigint"),
        ("l", "array<bigint>"),
        ("w", "boolean"),
        ("v", "string"),
    ]
    assert list(map(tuple, found.collect())) == [
        (1, [1], None, "a"),
        (2, [2, None], True, None),
        (3, None, None, None),
        (3, [], False, None),
    ]
