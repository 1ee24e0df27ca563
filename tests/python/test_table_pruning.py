"""Files that the log says to have no row of a condition are not opened: nor counted, nor there.

The oracle is the same condition on all rows.
"""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.local


def rows(read):
    return pa.table(read).to_pylist()


def batch(day, keys, value):
    n = len(keys)
    return pa.table({"day": [day] * n, "k": pa.array(keys, pa.int64()), "v": [value] * n})


def opened(proxy):
    """Data files that were asked for since the last time."""
    asked = {path.partition("?")[0] for _, path in proxy.log if ".parquet" in path}
    proxy.log.clear()
    return len([path for path in asked if "_delta_log" not in path])


@pytest.fixture
def on_store(s3_server, s3_proxy):
    """A table of three days with four files each, in a store that counts."""
    bucket = f"pruning{random.randrange(1 << 40)}"
    s3_server.client().create_bucket(Bucket=bucket)
    options = s3_server.options(s3_proxy.url)
    url = f"s3://{bucket}/t"
    table = plait.Table(url, sort_by="k", partition_by=["day"], storage_options=options)
    for i in range(4):
        days = [batch(f"2024-05-0{d}", range(i * 10, i * 10 + 10), f"{i}") for d in (1, 2, 3)]
        table.append(pa.concat_tables(days))
    assert len(table.files()) == 12
    s3_proxy.log.clear()
    return table, url, options


@pytest.mark.few(1)
def test_only_files_that_may_have_rows_are_opened(on_store, s3_proxy):
    table, url, options = on_store
    for condition, files in (
        ("day = '2024-05-02'", 4),
        ("k BETWEEN 12 AND 17", 3),
        ("day > '2024-05-01' AND k < 15", 4),
        ("day = '2024-05-02' AND v = '3'", 1),
        ("k = 1000", 1),
        ("day = '2025-01-01'", 1),
        (None, 12),
    ):
        found = rows(table.read(where=condition))
        assert opened(s3_proxy) == files, condition
        assert rows(plait.read(url, where=condition, storage_options=options)) == found
        assert opened(s3_proxy) == files, condition
        whole = pa.table(table.read()).to_pylist()
        s3_proxy.log.clear()
        is_in = {
            None: lambda row: True,
            "day = '2024-05-02'": lambda row: row["day"] == "2024-05-02",
            "k BETWEEN 12 AND 17": lambda row: 12 <= row["k"] <= 17,
            "day > '2024-05-01' AND k < 15": lambda r: r["day"] > "2024-05-01" and r["k"] < 15,
            "day = '2024-05-02' AND v = '3'": lambda r: r["day"] == "2024-05-02" and r["v"] == "3",
        }.get(condition, lambda row: False)
        assert found == [row for row in whole if is_in(row)], condition


@pytest.mark.few(1)
def test_a_delete_opens_only_files_that_may_have_rows(on_store, s3_proxy):
    table, _, _ = on_store
    assert table.delete("day = '2024-05-02' AND k < 5").rows == 5
    # The one with such rows, and the one with the rows that are left of it.
    assert opened(s3_proxy) == 2
    assert table.delete("k = 1000").rows == 0
    assert table.delete("v = '3' AND k < 32").rows == 6
    assert len(rows(table.read())) == 120 - 5 - 6


def test_a_folder_of_one_partition_and_two_tables_are_pruned_too(tmp_path):
    path, other = str(tmp_path / "t"), str(tmp_path / "u")
    for at in (path, other):
        table = plait.Table(at, sort_by="k", partition_by=["day"])
        for i in range(3):
            table.append(pa.concat_tables([batch(d, [10 * i, 10 * i + 1], str(i)) for d in "ab"]))
    for at in (path, other):
        for file in plait.Table(at).files():
            if file.version == 0:
                Path(at, file.name).unlink()
    assert [r["k"] for r in rows(plait.read(f"{path}/day=a", where="k = 20"))] == [20]
    found = rows(plait.read([path, other], sort_by="k", where="k IN (20, 11) AND day = 'b'"))
    assert [(r["k"], r["day"]) for r in found] == [(11, "b")] * 2 + [(20, "b")] * 2
    with pytest.raises(plait.SourceNotFound):
        rows(plait.read(path, where="k = 1"))


@pytest.mark.parametrize("rule", ["keep_last", "keep_first"])
def test_a_row_that_is_replaced_stays_away_where_the_newer_one_does_not_match(tmp_path, rule):
    path = str(tmp_path / "t")
    table = plait.Table(path, sort_by="k", on_duplicate=rule)
    for value in ("old", "new"):
        table.append(pa.table({"k": [1, 2], "v": [value] * 2}))
    stays, goes = ("new", "old") if rule == "keep_last" else ("old", "new")
    for read in (table.read, lambda where: plait.read(path, where=where)):
        assert rows(read(where=f"v = '{goes}'")) == []
        assert len(rows(read(where=f"v = '{stays}'"))) == 2
    whole = plait.read(path, where=f"v = '{goes}'", on_duplicate="keep_all")
    assert len(rows(whole)) == 2
    # The greatest version is "old".
    one = plait.read(path, where="v = 'new'", on_duplicate=rule, version_by="v", sort_by="k")
    assert rows(one) == []


def test_columns_that_only_other_files_have_are_there(tmp_path):
    path = str(tmp_path / "t")
    plait.Table(path, sort_by="k").append(pa.table({"k": [1], "v": ["a"]}))
    later = pa.table({"k": [5], "v": ["b"], "w": [7]})
    deltalake.write_deltalake(path, later, mode="append", schema_mode="merge")
    table = plait.Table(path)
    for read in (table.read, lambda **how: plait.read(path, **how)):
        assert rows(read(where="k = 1")) == [{"k": 1, "v": "a", "w": None}]
        assert rows(read(where="k = 1", columns=["w"])) == [{"w": None}]
        assert rows(read(where="k = 1", columns=["*"])) == [{"k": 1, "v": "a", "w": None}]
        assert rows(read(where="k = 5 AND w = 7")) == [{"k": 5, "v": "b", "w": 7}]
        with pytest.raises(plait.UnknownColumn):
            read(where="k = 1 AND nobody = 1")


def test_times_are_compared_in_the_zone_of_the_files(tmp_path):
    zone = dt.timezone(dt.timedelta(hours=5))
    path = str(tmp_path / "t")
    table = plait.Table(path, sort_by="t")
    for hour in range(3):
        at = [dt.datetime(2024, 5, 1, hour, m, tzinfo=zone) for m in (0, 30)]
        table.append(pa.table({"t": pa.array(at, pa.timestamp("us", "+05:00"))}))
    expected = [r["t"] for r in rows(table.read()) if r["t"].hour == 1]
    condition = "t >= '2024-05-01 01:00:00' AND t < '2024-05-01 02:00:00'"
    assert [r["t"] for r in rows(table.read(where=condition))] == expected
    assert table.delete(condition).rows == len(expected) > 0


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_a_read_of_all_files(tmp_path, seed):
    rng = random.Random(seed)
    path = str(tmp_path / "t")
    table = plait.Table(path, sort_by="s, k", partition_by=["p"] if seed % 2 else None)

    def values(n):
        base = dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc)
        steps = [dt.timedelta(microseconds=rng.randrange(10**10)) for _ in range(n)]
        at = rng.randrange(50)
        return pa.table(
            {
                "s": [rng.choice(["", "a", "ab", "é", "x" * 60]) for _ in range(n)],
                "k": pa.array([rng.choice([None, at, at + 3]) for _ in range(n)], pa.int32()),
                "t": pa.array([base + step for step in steps], pa.timestamp("us", "UTC")),
                "f": pa.array(
                    [rng.choice([float("nan"), rng.random(), None]) for _ in range(n)], pa.float64()
                ),
                "p": pa.array([rng.choice([None, 1, 22]) for _ in range(n)], pa.int64()),
            }
        )

    for i in range(12):
        if rng.random() < 0.3 and i:
            theirs = values(5).sort_by([("s", "ascending"), ("k", "ascending")])
            deltalake.write_deltalake(path, theirs.slice(0, 1), mode="append")
        else:
            table.append(values(rng.randrange(1, 8)))
    whole = pa.table(table.read())
    for _ in range(60):
        column = rng.choice(["s", "k", "t", "f", "p"])
        value = rng.choice([v for v in whole[column].to_pylist() if v is not None])
        text = value.isoformat() if column == "t" else str(value)
        literal = text if column in ("k", "p") else f"'{text}'"
        sign = rng.choice(["<", "<=", "=", "!=", ">=", ">"])
        test = rng.choice([f"{sign} {literal}", "IS NULL", "IS NOT NULL", f"IN ({literal})"])
        condition = f"{column} {test}"
        found = pa.table(table.read(where=condition))
        all_files = [f"{path}/{file.name}" for file in table.files()]
        if seed % 2 == 0:
            whole_read = plait.read(all_files, sort_by="s, k", where=condition)
            assert str(rows(found)) == str(rows(whole_read)), condition
        if column in ("s", "k", "p") and "IS" not in condition and "IN" not in condition:
            compare = {
                "<": pc.less,
                "<=": pc.less_equal,
                "=": pc.equal,
                "!=": pc.not_equal,
                ">=": pc.greater_equal,
                ">": pc.greater,
            }[sign]
            expected = whole.filter(compare(whole[column], value))
            assert str(rows(found)) == str(rows(expected)), condition


def test_statistics_that_are_absent_or_no_values_leave_files_in(tmp_path):
    path = str(tmp_path / "t")
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "a.parquet")
    table = plait.Table(path, sort_by="k")
    for keys in ([1], [2]):
        table.append(pa.table({"k": keys}))
    log = sorted(Path(path, "_delta_log").glob("*.json"))
    text = log[0].read_text()
    for was, is_ in (('\\"k\\":1', '\\"k\\":\\"one\\"'), ('"stats"', '"statistics"')):
        log[0].write_text(text.replace(was, is_))
        assert [row["k"] for row in rows(plait.Table(path).read(where="k = 1"))] == [1]
