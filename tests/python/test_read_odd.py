"""Sorted reads of odd files, and conditions whose values are no values of their columns."""

from __future__ import annotations

import datetime as dt
import math
import os
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait

from .peak_memory import measured

pytestmark = pytest.mark.local  # files that others write


def write(path: Path, columns: Any, **options: Any) -> str:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return str(path)


def numbers(read: plait.SortedRead, column: str = "i") -> list[Any]:
    return pa.table(read)[column].to_pylist()


VALUES = {
    "us": pa.array([0, 1, 1000, 1001, 2000], pa.timestamp("us")),
    "ms": pa.array([-2, -1, 0, 1, 2], pa.timestamp("ms")),
    "day": pa.array([-1, 0, 1, 2, 3], pa.date32()),
    "clock": pa.array([0, 1, 2, 1000, 1001], pa.time32("ms")),
    "i8": pa.array([-128, -3, 0, 5, 127], pa.int8()),
    "u64": pa.array([0, 1, 2**63, 2**64 - 2, 2**64 - 1], pa.uint64()),
    "money": pa.array([Decimal(n) / 100 for n in (-226, -225, 0, 225, 226)], pa.decimal128(9, 2)),
}
# Texts that no value of the column is, or only one that is written otherwise.
BETWEEN = {
    "us": ["'1970-01-01 00:00:00.0000005'", "'1970-01-01 00:00:00.0010000'"],
    "ms": ["'1969-12-31 23:59:59.9985'", "'1970-01-01 00:00:00.001500'"],
    "day": ["'1970-01-01 12:00:00'", "'1970-01-02 00:00:00'", "'1970-01-03 00:00:00.5'"],
    "clock": ["'00:00:00.0015'", "'00:00:01.000000'"],
    "i8": ["1.5", "-3.5", "5.0", "1e1", "1000", "-1000", "128", "-129"],
    "u64": ["-1", "18446744073709551616", "9223372036854775808.5", "1.0"],
    "money": ["2.251", "-2.251", "2.250", "1000000000000", "-0.001"],
}


@pytest.mark.parametrize("column", list(VALUES))
def test_conditions_are_exact_between_two_values_of_a_column(tmp_path: Path, column: str) -> None:
    file = write(tmp_path / "a.parquet", {"i": list(range(5)), column: VALUES[column]})
    is_moment = column in ("us", "ms", "day")
    duck = f"{column}::timestamp_ns" if is_moment else column
    for text in BETWEEN[column]:
        value = f"timestamp_ns {text}" if is_moment else text
        value = f"time {text}" if column == "clock" else value
        for sign in ("<", "<=", "=", "!=", ">=", ">"):
            found = numbers(plait.read(file, sort_by="i", where=f"{column} {sign} {text}"))
            query = f"SELECT i FROM '{file}' WHERE {duck} {sign} {value} ORDER BY i"
            expected = [row[0] for row in duckdb.sql(query).fetchall()]
            assert found == expected, f"{column} {sign} {text}"
        within = plait.read(file, sort_by="i", where=f"{column} IN ({text})").count()
        without = plait.read(file, sort_by="i", where=f"{column} NOT IN ({text})").count()
        assert within + without == 5
        assert within == plait.read(file, sort_by="i", where=f"{column} = {text}").count()


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_rows_are_dropped_by_a_time_that_no_row_has(tmp_path: Path, operator: str) -> None:
    file = write(tmp_path / "a.parquet", {"ms": VALUES["ms"]})
    condition = f"ms {operator} '1970-01-01 00:00:00.0015'"
    dropped = plait.read(file, sort_by="ms", where=condition).count()
    report = plait.merge(file, tmp_path / "out", sort_by="ms", drop_where=condition)
    assert report.rows_in - report.rows_out == dropped


def test_expressions_of_polars_find_what_polars_finds(tmp_path: Path) -> None:
    table = pa.table(
        {
            "t": pa.array([-3, 0, 5, None], pa.int8()),
            "u": pa.array([0, 1, 255, None], pa.uint8()),
            "dec": pa.array([*map(Decimal, ("0.10", "0.5", "1.5")), None], pa.decimal128(5, 2)),
            "s": ["a", "b%c", "d", None],
            "bin": [b"a", b"\xff", b"", None],
            "b": [True, False, None, None],
            "ns": pa.array([0, 1, 2, 1704153600000000001], pa.timestamp("ns")),
            "day": pa.array([0, 1, 2, 3], pa.date32()),
            "list": [[1], [], None, [2]],
            "i": range(4),
        }
    )
    file = write(tmp_path / "a.parquet", table)
    frame = pl.read_parquet(file)
    c = pl.col
    for condition in (
        c("t") < 1000, c("t") > -1000, c("t") == 300, c("t") < 1.5, c("t") < math.inf,
        c("u") > -1, c("u").is_in([1, 300]), ~c("u").is_in([1, 300]), c("t") < pl.lit(128, pl.Int64),
        c("dec") > 0.105, c("dec") > Decimal("0.105"), c("dec") < Decimal(10**20),
        c("bin") == b"\xff", c("bin") > b"a", c("b"), ~c("b"), ~(c("t") > 0), pl.lit(0) < c("t"),
        ~c("b").is_null(),
        c("ns") > pl.lit(pl.Series([1]).cast(pl.Datetime("ns"))), c("day") >= dt.datetime(1970, 1, 2, 12),
        c("s").str.starts_with("b%"), c("list").is_null(), c("list").is_not_null() & (c("t") < 3),
        c("b").eq_missing(None), (c("t") > 0) | (c("i") == 0), c("i") % 2 == 0, pl.lit(True),
    ):  # fmt: skip
        expected = frame.filter(condition)["i"].to_list()
        lazy = plait.read(file, sort_by="i").to_polars().filter(condition).collect()
        assert lazy["i"].to_list() == expected, str(condition)
        try:
            read = plait.read(file, sort_by="i", where=condition)
        except (plait.Unsupported, plait.UnsupportedKey):
            continue
        assert numbers(read) == expected, str(condition)


def test_values_of_pyarrow_have_one_type_in_a_list(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", {"u": pa.array([0, 1, 255], pa.uint8()), "i": range(3)})
    where = pc.field("u").isin([1, 255]) & (pc.field("u") < 1000)
    assert numbers(plait.read(file, sort_by="i", where=where)) == [1, 2]


def test_a_filter_of_polars_is_about_the_rows_within_the_limit(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", {"i": list(range(10))})
    lazy = plait.read(file, sort_by="i", limit=5).to_polars()
    assert lazy.filter(pl.col("i") > 3).collect()["i"].to_list() == [4]
    assert lazy.filter(pl.col("i") > 1).head(2).collect()["i"].to_list() == [2, 3]
    assert lazy.head(7).collect().height == 5


def test_a_file_that_changed_between_two_reads_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", {"k": [1, 2, 3]})
    read = plait.read(file, sort_by="k", limit=1)
    assert numbers(read, "k") == [1]
    write(tmp_path / "a.parquet", {"k": [7, 8, 9]})
    os.utime(file, ns=(10**18, 10**18))
    with pytest.raises(plait.SourceChanged, match=r"a\.parquet"):
        list(read)
    os.remove(file)
    with pytest.raises(plait.SourceChanged, match="no file"):
        list(read)


def test_what_cannot_be_asked_is_said_in_terms_of_conditions(tmp_path: Path) -> None:
    table = {"k": [1], "s": [{"a": 1}], "l": [[1]]}
    file = write(tmp_path / "a.parquet", table)
    for where in ("s IS NULL", "l = 1", "l IS NOT NULL"):
        with pytest.raises(plait.UnsupportedKey, match="a column of single values") as caught:
            plait.read(file, sort_by="k", where=where)
        assert caught.value.column == where[0]
    with pytest.raises(plait.UnknownColumn) as unknown:
        plait.read(file, sort_by="k", where="z = 1")
    assert unknown.value.hint == "the columns are `k`, `l`, `s`"


def test_files_without_rows_or_statistics_are_read(tmp_path: Path) -> None:
    schema = pa.schema({"k": pa.int64(), "v": pa.string()})
    empty = write(tmp_path / "empty.parquet", schema.empty_table())
    with pq.ParquetWriter(tmp_path / "groups.parquet", schema) as to:
        for keys in ([], [5, 6], []):
            to.write_table(pa.table({"k": keys, "v": ["x"] * len(keys)}).cast(schema))
    plain = write(
        tmp_path / "plain.parquet", {"k": list(range(100)), "v": ["y"] * 100},
        write_statistics=False, row_group_size=10,
    )  # fmt: skip
    files = [empty, str(tmp_path / "groups.parquet"), plain]
    assert numbers(plait.read(empty, sort_by="k"), "k") == []
    assert plait.read(empty, sort_by="k", where="k > 1").to_polars().collect().shape == (0, 2)
    read = plait.read(files, sort_by="k", reverse=True, where="k >= 5", limit=100)
    assert numbers(read, "k") == [*range(99, 6, -1), 6, 6, 5, 5]
    assert plait.read(files, sort_by="k", where="k BETWEEN 9 AND 3").count() == 0
    assert plait.read(files, sort_by="k", limit=0).count() == 0


def test_floats_have_one_zero_one_nan_and_nulls_where_the_order_says(tmp_path: Path) -> None:
    values = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan, None]
    file = write(tmp_path / "a.parquet", {"k": pa.array(values), "i": range(8)})
    merged = str(tmp_path / "b.parquet")
    plait.merge(file, merged, sort_by="k", bloom_filters=["k"])
    for where, expected in {
        "k = 0": [2, 3], "k = -0.0": [2, 3], "k IN (0, NaN)": [2, 3, 6], "k > 1": [5, 6],
        "k != NaN": [0, 1, 2, 3, 4, 5], "k >= inf": [5, 6], "k IS NULL": [7], "k NOT IN (0)": [0, 1, 4, 5, 6],
    }.items():  # fmt: skip
        for path in (file, merged):
            assert numbers(plait.read(path, sort_by="k", where=where)) == expected, where
            back = plait.read(path, sort_by="k", where=where, reverse=True)
            assert numbers(back) == expected[::-1], where
    first = write(tmp_path / "first.parquet", {"k": [None, None, 1, 2], "i": range(4)})
    again = write(tmp_path / "again.parquet", {"k": [None, 1, 3], "i": range(10, 13)})
    ask: dict[str, Any] = {"sort_by": "k nulls first"}
    assert numbers(plait.read([first, again], **ask)) == [0, 1, 10, 2, 11, 3, 12]
    assert numbers(plait.read([first, again], reverse=True, limit=3, **ask)) == [12, 3, 11]
    assert numbers(plait.read([first, again], where="k IS NULL", reverse=True, **ask)) == [10, 1, 0]
    with pytest.raises(plait.UnsortedSource):
        plait.read([first, again], sort_by="k").count()


def test_types_of_duckdb_and_polars_are_asked_for_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "duck.parquet"
    duckdb.sql(
        "COPY (SELECT i AS k, i::hugeint AS h, {'a': i, 'b': [i]} AS s, i::utinyint AS ut, i % 2 = 0 AS bo, "
        "date '2024-01-01' + i::int AS d, time '01:02:03' + interval (i) second AS t, "
        "timestamptz '2024-01-01 00:00:00+00' + interval (i) hour AS tz, i / 2::decimal(38, 10) AS dc, "
        "chr(97 + i::int)::blob AS bl, (['a', 'b'])[1 + i % 2]::enum('a', 'b') AS en FROM range(5) t(i)) "
        f"TO '{file}' (FORMAT parquet)"
    )
    for where, expected in {
        "h = 3": [3], "h > 2.5": [3, 4], "s.a = 2": [2], "ut <= 1": [0, 1], "bo = true": [0, 2, 4],
        "d >= '2024-01-04'": [3, 4], "t = '01:02:05'": [2], "tz < '2024-01-01 01:30:00+00:00'": [0, 1],
        "dc = 1.50": [3], "bl = 'b'": [1], "bl >= 0x64": [3, 4], "en = 'b'": [1, 3], "en LIKE 'a%'": [0, 2, 4],
    }.items():  # fmt: skip
        assert numbers(plait.read(file, sort_by="k", where=where), "k") == expected, where
    frame = pl.DataFrame({"k": [1, 2, 3], "f": [math.nan, 1.0, None], "c": ["x", "y", "x"]})
    frame = frame.with_columns(pl.col("c").cast(pl.Categorical))
    frame.write_parquet(tmp_path / "polars.parquet")
    for where, expected in {
        "f = NaN": [1], "f >= 1": [1, 2], "f IS NULL": [3], "f < 2": [2], "c = 'x'": [1, 3],
    }.items():  # fmt: skip
        read = plait.read(tmp_path / "polars.parquet", sort_by="k", where=where)
        assert numbers(read, "k") == expected, where


def test_columns_that_files_call_otherwise_are_found_by_their_ids(tmp_path: Path) -> None:
    def schema(name: str) -> pa.Schema:
        ids = [("k", pa.int64(), 1), (name, pa.int64(), 2)]
        return pa.schema([pa.field(n, t, metadata={"PARQUET:field_id": str(i)}) for n, t, i in ids])

    old = write(tmp_path / "a.parquet", pa.table([[1, 3], [10, 30]], schema=schema("was")))
    new = write(tmp_path / "b.parquet", pa.table([[2, 4], [20, 40]], schema=schema("now")))
    read = plait.read([old, new], sort_by="k", columns=["now"], where="now > 10", reverse=True)
    assert pa.table(read).to_pydict() == {"now": [40, 30, 20]}
    by_old = plait.read([old, new], sort_by="k", columns=["was"], where="was > 10", limit=2)
    assert pa.table(by_old).to_pydict() == {"was": [20, 30]}


def test_several_threads_read_one_read_at_once(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", {"k": list(range(10_000))})
    read = plait.read(file, sort_by="k", batch_rows=100)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(pa.table(read).num_rows)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [10_000] * 4


# ---- memory, threads and open files

LATE = """
import sys
import pyarrow as pa, pyarrow.parquet as pq
import plait
from tests.python.peak_memory import peak_rss_bytes

folder, count, half = sys.argv[1], 200_000, 100_000
for i in range(4):
    with pq.ParquetWriter(f"{folder}/{i}.parquet", pa.schema({"k": pa.int64(), "s": pa.string(), "v": pa.string()})) as to:
        for start in range(0, count, 20_000):
            keys = range(start, start + 20_000)
            marks = ["b" if k >= half else "ac"[k % 2] for k in keys]
            to.write_table(pa.table({"k": pa.array(keys, pa.int64()), "s": marks, "v": [f"{k:0>3000}" for k in keys]}))
before = peak_rss_bytes()
read = plait.read(folder, sort_by="k", where="s = 'b'", memory_limit="64MB", reverse=sys.argv[2] == "True")
rows = sum(batch.num_rows for batch in read)
print(rows, peak_rss_bytes() - before)
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_that_hold_after_many_that_do_not_fit(
    tmp_path: Path, root: Path, reverse: bool
) -> None:
    """Windows grow while no row holds; then all rows of one hold: 1.2 GB of them."""
    rows, grown = measured(LATE, root, tmp_path, reverse)
    assert rows == 400_000
    assert grown < 64e6 + 100e6


MANY = """
import os, resource, sys
import pyarrow as pa, pyarrow.parquet as pq
import plait
from tests.python.peak_memory import peak_rss_bytes

folder, count, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
first = os.path.join(folder, "00000.parquet")
table = pa.table({"k": range(rows), "v": ["x" * 100] * rows, "w": [0.5] * rows})
pq.write_table(table, first)
for number in range(1, count):
    with open(first, "rb") as source, open(os.path.join(folder, f"{number:05}.parquet"), "wb") as to:
        to.write(source.read())
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
opened = len(os.listdir("/proc/self/fd"))
before = peak_rss_bytes()
read = plait.read(folder, sort_by="k", memory_limit="256MB")
found = sum(batch.num_rows for batch in read)
grown = peak_rss_bytes() - before
del read
print(found, grown, len(os.listdir("/proc/self/fd")) - opened, len(os.listdir("/proc/self/task")))
"""


FOOTERS = """
import os, sys
import pyarrow as pa, pyarrow.parquet as pq
import plait
from tests.python.peak_memory import peak_rss_bytes

folder, count, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(count):
    table = {f"c{i}": [f"value {number} {i}" * 2, "w"] for i in range(columns)}
    pq.write_table(pa.table({"k": [number, count + number], **table}), f"{folder}/{number:05}.parquet")
before = peak_rss_bytes()
read = plait.read(folder, sort_by="k", memory_limit="16MB", columns=["k"])
opened = peak_rss_bytes() - before
left = pa.table(read.where(f"k = {count + 3}"))["k"].to_pylist()
print(opened // count, *left, read.where("c7 = 'w'").count())
"""


@pytest.mark.long
def test_a_footer_that_waits_takes_little_more_than_its_bytes(tmp_path: Path, root: Path) -> None:
    """Decoded, each would take 40 KB; files that are read need theirs all the same."""
    bytes_each, found, rows = measured(FOOTERS, root, tmp_path, 2000, 30)
    assert (found, rows) == (2003, 2000)
    assert bytes_each < 15_000


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("files", "rows"), [(10, 100_000), (10_000, 100)])
def test_memory_and_open_files_do_not_follow_files(
    tmp_path: Path, root: Path, files: int, rows: int
) -> None:
    """All files overlap everywhere, within `ulimit -n 1024`."""
    found, grown, descriptors, threads = measured(MANY, root, tmp_path, files, rows)
    assert found == files * rows
    assert grown < 256e6 + 100e6
    assert descriptors == 0
    assert threads <= 2 + (os.cpu_count() or 1)
