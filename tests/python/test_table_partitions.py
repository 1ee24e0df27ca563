"""Tables with partitions: rows go to folders by their values, and come back with them.

The oracle is a list of rows; readers of Delta that are not ours see the same.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .rivals import beat_everywhere

deltalake = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")
obstore = pytest.importorskip("obstore")
pytestmark = pytest.mark.local


def rows(read, *columns):
    found = pa.table(read)
    return list(zip(*(found[name].to_pylist() for name in columns or found.column_names)))


def seen(path, *columns):
    """The rows as deltalake and Polars see them."""
    arrow = deltalake.DeltaTable(path).to_pyarrow_table().select(columns)
    lazy = pl.scan_delta(path).select(columns).collect()
    found = Counter(zip(*(arrow[name].to_pylist() for name in columns)))
    assert found == Counter(lazy.rows())
    return found


def batch(days, keys, value="x"):
    return pa.table(
        {
            "day": pa.array(days, pa.int64()),
            "k": pa.array(keys, pa.int64()),
            "v": pa.array([value] * len(keys), pa.string()),
        }
    )


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "events")


def test_rows_lie_in_folders_and_come_back_in_order(path):
    table = plait.Table(path, sort_by="k", partition_by=["day"])
    assert table.partition_by == ("day",)
    report = table.append(batch([2, 1, 2, 1], [5, 9, 3, 1]))
    assert sorted(name.split("/")[0] for name in report.files) == ["day=1", "day=2"]
    assert report.rows == 4
    table.append(batch([1, None], [4, 7]))
    assert "day" not in pq.read_schema(Path(path, report.files[0])).names
    assert deltalake.DeltaTable(path).metadata().partition_columns == ["day"]
    expected = [(1, 1), (1, 4), (1, 9), (2, 3), (2, 5), (None, 7)]
    assert rows(table.read(), "day", "k") == expected
    assert rows(table.read(reverse=True), "day", "k") == expected[::-1]
    assert seen(path, "day", "k") == Counter(expected)
    assert [file.partition for file in table.files()].count({"day": None}) == 1
    # A partition column comes last, and its condition leaves files out.
    assert pa.table(table.read()).column_names == ["k", "v", "day"]
    assert pa.table(table.read()).schema.field("day").type == pa.int64()
    plan = table.read(where="day = 2").explain()
    assert (plan.files, plan.files_skipped, plan.rows_left) == (4, 3, 2)
    assert plan.sort_by == "day, k"
    assert rows(table.read(where="day = 2"), "day", "k") == [(2, 3), (2, 5)]
    assert rows(table.read(where="day IS NULL"), "k") == [(7,)]
    assert rows(table.read(where="day < 2 AND k > 1"), "k") == [(4,), (9,)]
    assert rows(table.read(where="day = 3"), "k") == []
    assert rows(table.read(columns=["day"], limit=3)) == [(1,), (1,), (1,)]
    assert rows(table.read(columns=["v", "day", "k"], limit=1)) == [("x", 1, 1)]
    assert table.read(where="day IN (1, 2)").count() == 5
    assert rows(table.read(version=0), "day", "k") == [(1, 1), (1, 9), (2, 3), (2, 5)]
    assert table.verify().ok and plait.Table(path).partition_by == ("day",)


def test_values_of_all_types_are_folders_and_values(path):
    moment = dt.datetime(2024, 5, 1, 12, 30, 1, 123456)
    values = {
        "i": ([1, -2], pa.int32()),
        "b": ([True, False], pa.bool_()),
        "s": (["a/b=c %é", "x"], pa.string()),
        "d": ([dt.date(2024, 5, 1), dt.date(1960, 2, 29)], pa.date32()),
        "m": ([Decimal("1.50"), Decimal("-3.00")], pa.decimal128(10, 2)),
        "n": ([moment, moment.replace(microsecond=0)], pa.timestamp("us")),
        "z": ([moment, moment.replace(microsecond=0)], pa.timestamp("us", "UTC")),
    }
    for name, (of_rows, kind) in values.items():
        here = f"{path}-{name}"
        table = plait.Table(here, sort_by="k", partition_by=[name])
        given = pa.array([*of_rows, None], kind)
        table.append(pa.table({name: given, "k": [1, 2, 3]}))
        by_key = sorted(zip(given.to_pylist(), [1, 2, 3]), key=lambda row: row[1])
        found = pa.table(table.read())
        assert sorted(rows(table.read(), name, "k"), key=lambda row: row[1]) == by_key, name
        assert found.schema.field(name).type == kind or name == "z", name
        theirs = deltalake.DeltaTable(here).to_pyarrow_table().sort_by("k")
        assert list(zip(theirs[name].to_pylist(), theirs["k"].to_pylist())) == by_key, name
        lazy = pl.scan_delta(here).select(name, "k").sort("k").collect().rows()
        assert lazy == by_key, name
    with pytest.raises(plait.UnsupportedKey, match="partition column"):
        plait.Table(f"{path}-f", sort_by="k", partition_by=["f"]).append(
            pa.table({"f": [1.5], "k": [1]})
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_of_rows_with_one_key_in_a_partition_one_stays(seed, path):
    rng = random.Random(seed)
    rule = rng.choice(["keep_last", "keep_first", "keep_all"])
    table = plait.Table(path, sort_by="k", partition_by=["day"], on_duplicate=rule)
    every, newest, oldest = Counter(), {}, {}
    for i in range(12):
        days = [rng.choice([1, 2, 3]) for _ in range(8)]
        keys = [rng.randrange(10) for _ in range(8)]
        table.append(batch(days, keys, f"of {i}"))
        for at in zip(days, keys):
            newest[at] = f"of {i}"
            oldest.setdefault(at, f"of {i}")
            every[(*at, f"of {i}")] += 1
        action = rng.random()
        if action < 0.3:
            table.compact(policy=rng.choice(["overlap", "full"]), merge_factor=2, max_depth=2)
        elif action < 0.45:
            day, key = rng.choice([1, 2, 3]), rng.randrange(10)
            by_day = rng.random() < 0.5
            table.delete(f"day = {day}" if by_day else f"day = {day} AND k < {key}")

            def stays(at, day=day, key=key, by_day=by_day):
                return at[0] != day or not (by_day or at[1] < key)

            every = Counter({row: n for row, n in every.items() if stays(row)})
            newest = {at: v for at, v in newest.items() if stays(at)}
            oldest = {at: v for at, v in oldest.items() if stays(at)}
        if rule == "keep_all":
            expected = every
        else:
            kept = newest if rule == "keep_last" else oldest
            expected = Counter((*at, v) for at, v in kept.items())
        for read in (table.read, lambda: plait.read(path, missing_keys="null")):
            if expected:
                assert Counter(rows(read(), "day", "k", "v")) == expected, (seed, i, rule)
    table.compact(policy="full")
    assert table.verify().ok
    assert seen(path, "day", "k", "v") == expected
    table.expire(0)
    assert seen(path, "day", "k", "v") == expected
    found = rows(table.read(), "day", "k")
    assert found == sorted(found)


def test_a_condition_on_partitions_takes_whole_files_and_reads_no_row(path):
    table = plait.Table(path, sort_by="k", partition_by=["day"], on_duplicate="keep_last")
    table.append(batch([1, 1, 2], [1, 2, 1]))
    table.append(batch([1, 2], [3, 2]))
    # The pages of one file are damaged: nobody looks at them.
    for file in table.files():
        if file.partition == {"day": "1"}:
            damaged = Path(path, file.name)
            body = bytearray(damaged.read_bytes())
            body[4:40] = b"\xff" * 36
            damaged.write_bytes(bytes(body))
    report = table.delete("day = 1")
    assert (report.rows, len(report.removed), report.rewritten) == (3, 2, ())
    assert rows(table.read(), "day", "k") == [(2, 1), (2, 2)]
    report = table.delete("day = 2 AND k = 2")
    assert (report.rows, len(report.removed), len(report.rewritten)) == (1, 1, 0)
    table.append(batch([2, 2], [5, 6]))
    report = table.delete("k = 5")
    assert (report.rows, len(report.rewritten)) == (1, 1)
    assert seen(path, "day", "k") == Counter([(2, 1), (2, 6)])
    assert {file.partition["day"] for file in table.files()} == {"2"}
    with pytest.raises(plait.InvalidArgument, match="not sorted by: got `v`"):
        table.delete("v = 'x'")
    assert table.delete("day = 9").rows == 0


def test_partitions_are_those_of_the_table(path):
    plait.Table(path, sort_by="k", partition_by=["day"]).append(batch([1], [1]))
    for other in ([], ["v"], ["day", "v"]):
        with pytest.raises(plait.InvalidArgument, match="`partition_by` is not that of the table"):
            plait.Table(path, partition_by=other)
    assert plait.Table(path, partition_by="day").partition_by == ("day",)
    with pytest.raises(plait.UnknownColumn, match="day"):
        plait.Table(path).append(pa.table({"k": [1]}))
    # Two that make one table with other partitions: one of them makes it.
    first = plait.Table(f"{path}-two", sort_by="k", partition_by=["day"])
    second = plait.Table(f"{path}-two", sort_by="k", partition_by=["v"])
    first.append(batch([1], [1]))
    with pytest.raises(plait.InvalidArgument, match="`partition_by` is not that of the table"):
        second.append(batch([1], [1]))


def test_a_table_of_others_and_an_adopted_folder_are_the_same(path):
    deltalake.write_deltalake(path, batch([1, 2], [1, 2]), partition_by=["day"])
    table = plait.Table(path, sort_by="k")
    table.append(batch([2], [1]))
    assert rows(table.read(), "day", "k") == [(1, 1), (2, 1), (2, 2)]
    assert rows(plait.read(path, sort_by="k"), "day", "k") == [(1, 1), (2, 1), (2, 2)]
    folder = f"{path}-folder"
    for day in (1, 2):
        Path(folder, f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"k": [day, 5]}), f"{folder}/day={day}/a.parquet")
    plait.adopt(folder, sort_by="k")
    table = plait.Table(folder)
    table.append(pa.table({"day": [2], "k": [3]}))
    assert rows(table.read(), "day", "k") == [(1, 1), (1, 5), (2, 2), (2, 3), (2, 5)]
    assert rows(plait.read(f"{folder}/day=2"), "day", "k") == [(2, 2), (2, 3), (2, 5)]
    assert table.delete("day = 1").rows == 2
    assert len(table.compact(policy="full").groups) == 1
    assert seen(folder, "day", "k") == Counter([(2, 2), (2, 3), (2, 5)])


def test_an_order_may_name_partition_columns(path):
    table = plait.Table(path, sort_by="-day, k", partition_by=["day"])
    table.append(batch([1, 2, 1], [2, 1, 1]))
    table.append(batch([1, 2], [0, 0]))
    expected = [(2, 0), (2, 1), (1, 0), (1, 1), (1, 2)]
    assert rows(table.read(), "day", "k") == expected
    assert len(table.compact(policy="full").groups) == 2
    assert rows(table.read(), "day", "k") == expected and table.verify().ok


def test_partitions_are_in_buckets_as_on_disks(s3_server):
    s3_server.client().create_bucket(Bucket="parted")
    options = {**s3_server.options(), "aws_region": "us-east-1"}
    url = "s3://parted/a b"
    table = plait.Table(url, sort_by="k", partition_by=["s"], storage_options=options)
    table.append(pa.table({"s": ["x y/é", "b"], "k": [1, 2]}))
    table.append(pa.table({"s": ["x y/é"], "k": [0]}))
    expected = [("b", 2), ("x y/é", 0), ("x y/é", 1)]
    assert rows(table.read(), "s", "k") == expected
    assert rows(plait.read(url, storage_options=options), "s", "k") == expected
    assert table.delete("s = 'b'").rows == 1
    assert len(table.compact(policy="full").groups) == 1
    assert rows(table.read(where="s = 'x y/é'"), "k") == [(0,), (1,)]


CHANGES = {
    "append": (
        lambda table: table.append(pa.table({"day": [2, 1], "k": [7, 8]}), batch_id="1"),
        [(1, 1), (1, 8), (2, 2), (2, 7)],
    ),
    "delete": (lambda table: table.delete("day = 1"), [(2, 2)]),
    "rewrite": (lambda table: table.delete("k = 1"), [(2, 2)]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_made_for_the_version_it_was_checked_for(change, monkeypatch):
    """Somebody else does the same before the n-th request of a change, for every n."""
    act, expected = CHANGES[change]

    def make(store):
        table = plait.Table("t", sort_by="k", partition_by=["day"], storage_options=store)
        table.append(pa.table({"day": [1, 2], "k": [1, 2]}))

    def check(table, at):
        assert rows(table.read(), "day", "k") == expected, at

    assert beat_everywhere(monkeypatch, make, act, check) > 3
