"""Sorted reads: the rows of DuckDB in the order of a merge, and no more pages than needed."""

from __future__ import annotations

import datetime as dt
import gc
import os
import random
import subprocess
import sys
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

NAMES = ["api", "api-2", "db", "it's", "", "Zürich"]
START = dt.datetime(2024, 5, 1)


def rows_of(rng: random.Random, count: int, *, nulls: bool) -> pa.Table:
    """Random rows with every kind of leaf that conditions are about, not sorted."""

    def some(make: Any, probability: float = 0.15) -> list[Any]:
        return [None if nulls and rng.random() < probability else make() for _ in range(count)]

    return pa.table(
        {
            "name": pa.array(some(lambda: rng.choice(NAMES)), pa.string()),
            "ts": pa.array(
                [START + dt.timedelta(seconds=rng.randrange(500)) for _ in range(count)],
                pa.timestamp("us"),
            ),
            "i": pa.array(some(lambda: rng.randrange(-50, 50)), pa.int32()),
            "f": pa.array(
                some(lambda: rng.choice([rng.random(), -0.0, 0.0, float("inf")])), pa.float64()
            ),
            "d": pa.array(
                some(lambda: Decimal(rng.randrange(-999, 999)) / 100), pa.decimal128(9, 2)
            ),
            "b": pa.array(some(lambda: rng.random() < 0.3), pa.bool_()),
            "tags": pa.array(
                [
                    {"host": rng.choice(["a", "b", None]), "n": rng.randrange(4)}
                    for _ in range(count)
                ],
                pa.struct([("host", pa.string()), ("n", pa.int64())]),
            ),
            "list": pa.array([[rng.randrange(9)] * rng.randrange(3) for _ in range(count)]),
        }
    )


def sorted_files(rng: random.Random, folder: Path, order: list[tuple[str, str]]) -> list[str]:
    """Some sorted files of several row groups and pages, one of which drifts."""
    paths = []
    for number in range(rng.randrange(1, 7)):
        table = rows_of(rng, rng.randrange(0, 900), nulls=rng.random() < 0.7)
        ranks = pc.sort_indices(table, sort_keys=order)
        table = table.take(ranks)
        if number == 1 and rng.random() < 0.5:
            table = table.drop(["f"]).set_column(
                table.column_names.index("i"), "i", table["i"].cast(pa.int64())
            )
        path = str(folder / f"{number}.parquet")
        pq.write_table(
            table,
            path,
            row_group_size=rng.choice([100, 350, 5000]),
            data_page_size=rng.choice([200, 2000, 1 << 20]),
            write_batch_size=rng.choice([16, 64]),
            write_page_index=rng.random() < 0.7,
            write_statistics=rng.random() < 0.9,
            use_dictionary=rng.random() < 0.6,
            data_page_version=rng.choice(["1.0", "2.0"]),
        )
        paths.append(path)
    return paths


def condition(rng: random.Random) -> str:
    sign = rng.choice(["<", "<=", "=", "!=", ">=", ">"])
    moment = START + dt.timedelta(seconds=rng.randrange(500))
    return rng.choice(
        [
            f"name {sign} '{rng.choice(NAMES).replace(chr(39), chr(39) * 2)}'",
            f"name IN ('api', '{rng.choice(['db', 'none', ''])}')",
            f"name LIKE '{rng.choice(['api', 'a', 'Z', ''])}%'",
            f"ts {sign} '{moment}'",
            f"ts BETWEEN '{moment}' AND '{moment + dt.timedelta(seconds=40)}'",
            f"i {sign} {rng.randrange(-60, 60)}",
            f"i NOT IN ({rng.randrange(-50, 50)}, 3)",
            f"f {sign} {rng.choice(['0', '0.5', '1e9'])}",
            f"d {sign} {rng.randrange(-900, 900) / 100}",
            "b = true",
            f"{rng.choice(['i', 'name', 'f', 'tags.host'])} IS {rng.choice(['', 'NOT '])}NULL",
            f"tags.host {sign} '{rng.choice('ab')}'",
            f"tags.n {sign} {rng.randrange(5)}",
        ]
    )


def plain(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


CASES = int(os.environ.get("PLAIT_READ_CASES", "2000" if os.environ.get("PLAIT_LONG") else "150"))
ORDERS = [
    [("name", "ascending"), ("ts", "ascending")],
    [("ts", "ascending"), ("name", "ascending")],
    [("name", "descending"), ("i", "ascending")],
    [("ts", "descending")],
]


def kept(files: list[str], order: list[tuple[str, str]], rule: str, deletes: bool) -> str:
    """The rows of all files that stay, for DuckDB."""
    if rule == "keep_all":
        return f"read_parquet({files}, union_by_name = true)"
    way = "DESC" if rule == "keep_last" else "ASC"
    place = f"list_position({files}, filename) {way}, file_row_number {way}"
    key = ", ".join(name for name, _ in order)
    rows = f"read_parquet({files}, union_by_name = true, filename = true, file_row_number = true)"
    alive = "WHERE b IS DISTINCT FROM true" if deletes else ""
    one = (
        f"SELECT * FROM {rows} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {place}) = 1"
    )
    return f"(SELECT * EXCLUDE (filename, file_row_number) FROM ({one}) {alive})"


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(5))
def test_random_reads_are_what_duckdb_gives(tmp_path: Path, part: int) -> None:
    rng = random.Random(part)
    for case in range(CASES // 5):
        folder = tmp_path / str(case)
        folder.mkdir()
        order = rng.choice(ORDERS)
        files = sorted_files(rng, folder, order)
        where = " AND ".join(condition(rng) for _ in range(rng.randrange(0, 4))) or None
        columns = rng.choice([None, ["i"], ["list", "name"], ["tags.n", "ts"], ["ts", "tags"]])
        limit = rng.choice([None, None, 0, 1, 7, 300])
        reverse = rng.random() < 0.4
        rule = rng.choice(["keep_all", "keep_all", "keep_first", "keep_last"])
        deletes = rule == "keep_last" and rng.random() < 0.5
        told = f"case {case}: {order} {where} {columns} {limit} {reverse} {rule} {deletes}"
        read = plait.read(
            files,
            sort_by=order,
            columns=columns,
            where=where,
            limit=limit,
            reverse=reverse,
            on_duplicate=rule,
            delete_where="b" if deletes else None,
            threads=rng.choice([1, 2]),
            batch_rows=rng.choice([10, 1000, 65_536]),
            memory_limit=rng.choice(["16MB", "512MB"]),
        )
        found = pa.table(read)
        flip = {"ascending": "DESC", "descending": "ASC"}
        own = {"ascending": "ASC", "descending": "DESC"}
        by = ", ".join(
            f"{name} {(flip if reverse else own)[way]} NULLS {'FIRST' if reverse else 'LAST'}"
            for name, way in order
        )
        clause = "" if where is None else f"WHERE {where}"
        from_files = f"FROM {kept(files, order, rule, deletes)} {clause}"
        shown = {
            None: "*", "i": "i", "list": "list, name", "tags.n": "struct_pack(n := tags.n) tags, ts",
            "ts": "ts, tags",
        }[columns and columns[0]]  # fmt: skip
        expected = duckdb.sql(f"SELECT {shown} {from_files} ORDER BY {by}").to_arrow_table()
        assert sorted(found.column_names) == sorted(expected.column_names), told
        wanted = min(expected.num_rows, expected.num_rows if limit is None else limit)
        assert found.num_rows == wanted == read.stats.rows, told
        for name, _ in order:
            if name in found.column_names:
                assert found[name].to_pylist() == expected[name].to_pylist()[:wanted], told
        if limit is None:
            assert plain(found.to_pylist()) == plain(expected.to_pylist()), told
        else:
            every = plain(expected.to_pylist())
            assert all(row in every for row in plain(found.to_pylist())), told


def write(path: Path, table: pa.Table, **options: Any) -> str:
    pq.write_table(table, path, write_page_index=True, **options)
    return str(path)


@pytest.fixture
def hours(tmp_path: Path) -> list[str]:
    """24 files of one hour each, and 3 series."""
    paths = []
    for hour in range(24):
        keys = [(name, hour * 3600 + i) for name in ("a", "b", "c") for i in range(1000)]
        table = pa.table(
            {
                "name": [name for name, _ in keys],
                "ts": [ts for _, ts in keys],
                "value": [float(ts) for _, ts in keys],
                "text": ["x" * 20 for _ in keys],
            }
        )
        path = write(
            tmp_path / f"{hour:02}.parquet",
            table,
            data_page_size=1000,
            write_batch_size=100,
            use_dictionary=False,
        )
        paths.append(path)
    return paths


def test_rows_of_a_key_are_read_from_the_pages_that_have_them(hours: list[str]) -> None:
    read = plait.read(hours, sort_by="name, ts", where="name = 'b' AND ts = 18005")
    table = pa.table(read)
    assert table.to_pylist() == [{"name": "b", "ts": 18005, "value": 18005.0, "text": "x" * 20}]
    plan, stats = read.explain(), read.stats
    assert (plan.files, plan.files_skipped) == (24, 23)
    assert plan.pages_skipped > plan.pages - 10
    assert plan.rows_left <= 200
    # A page of each of four columns, and those of the two conditions once more.
    assert stats.files_opened == 1
    assert stats.pages_read <= 8
    assert stats.rows == 1


@pytest.mark.parametrize("reverse", [False, True])
def test_a_limit_stops_reading(hours: list[str], reverse: bool) -> None:
    with pytest.raises(plait.UnsortedSource, match=r"\.parquet"):
        list(plait.read(hours, sort_by="ts, name", reverse=reverse))
    resorted = [
        write(Path(path), pq.read_table(path).sort_by([("ts", "ascending"), ("name", "ascending")]))
        for path in hours
    ]
    read = plait.read(resorted, sort_by="ts, name", limit=5, reverse=reverse)
    first = pa.table(read)["ts"].to_pylist()
    assert first == (
        [86399] * 0 + [82800 + 999] * 3 + [82800 + 998] * 2 if reverse else [0] * 3 + [1] * 2
    )
    assert read.stats.files_opened == 1
    assert read.stats.rows_read < 3000
    everything = plait.read(resorted, sort_by="ts, name")
    assert pa.table(everything).num_rows == 72_000
    assert everything.stats.files_opened == 24


def test_a_version_that_lost_is_not_found_by_its_other_columns(tmp_path: Path) -> None:
    old = write(
        tmp_path / "a.parquet", pa.table({"k": [1, 2], "v": [10, 20], "dead": [False, False]})
    )
    new = write(
        tmp_path / "b.parquet", pa.table({"k": [1, 2], "v": [11, 21], "dead": [False, True]})
    )
    ask: dict[str, Any] = {"sort_by": "k", "on_duplicate": "keep_last"}
    assert pa.table(plait.read([old, new], where="v = 10", **ask)).num_rows == 0
    read = plait.read([old, new], where="v >= 10 AND k >= 1", **ask)
    assert pa.table(read)["v"].to_pylist() == [11, 21]
    assert read.explain().conditions_of_rows == 1
    assert read.stats.rows_dropped == {"duplicate": 2}
    alive = plait.read([old, new], columns=["v"], delete_where="dead", **ask)
    assert pa.table(alive).to_pylist() == [{"v": 11}]
    for reverse in (False, True):
        first = plait.read([old, new], sort_by="k", on_duplicate="keep_first", reverse=reverse)
        last = plait.read([old, new], reverse=reverse, **ask)
        flip = slice(None, None, -1 if reverse else 1)
        assert pa.table(first)["v"].to_pylist() == [10, 20][flip]
        assert pa.table(last)["v"].to_pylist() == [11, 21][flip]
        by_version = plait.read([new, old], version_by="v", reverse=reverse, **ask)
        assert pa.table(by_version)["v"].to_pylist() == [11, 21][flip]


def test_reverse_is_the_very_opposite_of_forward(tmp_path: Path) -> None:
    rng = random.Random(7)
    files = sorted_files(rng, tmp_path, ORDERS[0])
    forward = pa.table(plait.read(files, sort_by=ORDERS[0])).to_pylist()
    backward = pa.table(plait.read(files, sort_by=ORDERS[0], reverse=True)).to_pylist()
    assert [repr(row) for row in backward] == [repr(row) for row in reversed(forward)]


def test_bloom_filters_rule_files_out(tmp_path: Path) -> None:
    files = []
    for number in range(10):
        table = pa.table({"id": [f"{i:04}" for i in range(number, 1000, 10)]})
        plain_file = write(tmp_path / f"p{number}.parquet", table)
        out = str(tmp_path / f"{number}.parquet")
        plait.merge(plain_file, out, sort_by="id", bloom_filters=["id"])
        files.append(out)
    read = plait.read(files, where="id = '0123'")
    assert pa.table(read).to_pylist() == [{"id": "0123"}]
    plan = read.explain()
    assert plan.files_skipped >= 8
    assert read.stats.rows_read <= 200


def with_filters(folder: Path, files: int) -> list[str]:
    """Files of which each may have any id by its bounds, and few by its filter."""
    made = []
    for number in range(files):
        table = pa.table({"id": list(range(number, 1000 * files, files))})
        plain_file = write(folder / "plain.parquet", table)
        made.append(str(folder / f"{number}.parquet"))
        plait.merge(plain_file, made[-1], sort_by="id", bloom_filters=["id"])
    return made


def test_filters_and_indexes_are_kept_between_reads(tmp_path: Path) -> None:
    rows = plait.read(with_filters(tmp_path, 20), sort_by="id")
    first = rows.where("id = 4003")
    assert pa.table(first)["id"].to_pylist() == [4003]
    # A filter of each file, and what the file that has the row is read by.
    assert first.stats.files_opened == 20
    assert 20 < first.stats.reads < 30
    for key in (4003, 1006, 19_999):
        other = rows.where(f"id = {key}")
        assert pa.table(other)["id"].to_pylist() == [key]
        assert other.stats.files_opened <= 3
        assert other.stats.reads <= 12
    again = rows.where("id = 4003")
    assert again.count() == 1
    assert again.stats.reads < 4
    nobody = rows.where("id = 5000000 AND id < 0")
    assert nobody.count() == 0
    assert nobody.stats.reads == 0


def test_filters_that_do_not_fit_are_read_again(tmp_path: Path) -> None:
    # A sixteenth of the limit has room for no more than some of the filters.
    files = []
    for number in range(40):
        table = pa.table({"id": list(range(number, 2_000_000, 40))})
        plain_file = write(tmp_path / "plain.parquet", table)
        files.append(str(tmp_path / f"{number}.parquet"))
        plait.merge(plain_file, files[-1], sort_by="id", bloom_filters=["id"])
    rows = plait.read(files, sort_by="id", memory_limit="16MB")
    opened = []
    for key in (1_000_005, 1_000_017, 1_000_031):
        found = rows.where(f"id = {key}")
        assert pa.table(found)["id"].to_pylist() == [key]
        opened.append(found.stats.files_opened)
    assert opened[0] == 40
    assert 10 < opened[1] < 40
    assert 10 < opened[2] < 40


@pytest.mark.parametrize("reverse", [False, True])
def test_windows_are_as_large_as_files_that_overlap_allow(tmp_path: Path, reverse: bool) -> None:
    """Many files, one behind the other: a page is not decoded once for each of several windows."""
    files, rows = 200, 2000
    for number in range(files):
        keys = list(range(number * rows, (number + 1) * rows))
        table = pa.table({"k": keys, "v": [0.5] * rows, "w": ["word"] * rows})
        write(tmp_path / f"{number:03}.parquet", table)
    read = plait.read(str(tmp_path), sort_by="k", reverse=reverse, memory_limit="16MB", threads=2)
    assert read.explain().depth == 1
    assert sum(batch.num_rows for batch in read) == files * rows
    pages = pq.ParquetFile(tmp_path / "000.parquet").metadata.num_columns * files
    once = plait.read(str(tmp_path / "000.parquet"), sort_by="k", reverse=reverse)
    assert sum(batch.num_rows for batch in once) == rows
    assert read.stats.pages_read <= once.stats.pages_read * files * 1.1
    assert read.stats.pages_read >= pages


def windowed_files(folder: Path, seed: int) -> list[str]:
    """Files of several row groups whose rows are so wide that a row group has many windows."""
    rng, files = random.Random(seed), []
    for number in range(3):
        few = rows_of(rng, 500, nulls=True)
        table = pa.concat_tables([few] * 12).append_column(
            "pad", [[f"{rng.randrange(400)} ".rjust(1000, "a") for _ in range(12 * len(few))]]
        )
        table = table.sort_by([("name", "ascending"), ("ts", "ascending")])
        path = folder / f"w{number}.parquet"
        pq.write_table(
            table, path, row_group_size=4100, max_rows_per_page=1000, write_page_index=True
        )
        files.append(str(path))
    return files


def pages_in(files: list[str], rows_of_a_page: int) -> int:
    """Pages of flat files, whose pages have so many rows but the last of a row group."""
    pages = 0
    for path in files:
        meta = pq.read_metadata(path)
        for group in range(meta.num_row_groups):
            pages += -(-meta.row_group(group).num_rows // rows_of_a_page) * meta.num_columns
    return pages


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_rows_of_many_windows_are_those_of_a_merge(tmp_path: Path, seed: int) -> None:
    files = windowed_files(tmp_path, seed)
    merged = tmp_path / "merged.parquet"
    plait.merge(files, merged, sort_by="name, ts")
    whole = pq.read_table(merged).to_pylist()
    limits: dict[str, Any] = {"memory_limit": "16MB", "threads": 1 + seed % 2}
    read = plait.read(files, sort_by="name, ts", **limits)
    assert pa.table(read).to_pylist() == whole
    assert pa.table(read).to_pylist() == whole
    some = plait.read(files, sort_by="name, ts", columns=["pad", "list", "ts"], **limits)
    assert pa.table(some).to_pylist() == [
        {name: row[name] for name in ("pad", "list", "ts")} for row in whole
    ]
    backwards = plait.read(files, sort_by="name, ts", reverse=True, **limits)
    assert pa.table(backwards).to_pylist() == whole[::-1]
    plan = plait.plan(files, sort_by="name, ts", outputs=3)
    parts = [pa.table(plait.read(task, memory_limit="16MB")) for task in plan.tasks]
    assert pa.concat_tables(parts).to_pylist() == whole


def test_pages_of_whole_reads_are_unpacked_once(tmp_path: Path) -> None:
    files, rows = [], 60_000
    for number in range(2):
        table = pa.table(
            {
                "k": range(number, 2 * rows, 2),
                "text": [f"text {n % 5000} of all the texts" for n in range(rows)],
                "v": range(rows),
            }
        )
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path, max_rows_per_page=20_000, write_page_index=True)
        files.append(str(path))
    read = plait.read(files, sort_by="k", memory_limit="16MB")
    assert sum(batch.num_rows for batch in read) == 2 * rows
    once = pages_in(files, 20_000)
    # Pages of a first, small window are unpacked again where further ones are larger.
    assert once <= read.stats.pages_read <= once + 3 * len(files)
    assert read.stats.bytes_read < 1.2 * sum(Path(path).stat().st_size for path in files)


def test_pages_that_do_not_fit_are_unpacked_once_or_for_each_window(tmp_path: Path) -> None:
    """One page of many files is more than their share: rows are spilled, or pages are read again."""
    files, rows = [], 3000
    for number in range(24):
        texts = [f"{number} {n} ".ljust(250, "x") for n in range(rows)]
        table = pa.table({"k": range(number, 24 * rows, 24), "text": texts})
        path = tmp_path / f"{number:02}.parquet"
        pq.write_table(table, path, use_dictionary=False, write_page_index=True)
        files.append(str(path))
    read = plait.read(files, sort_by="k", memory_limit="16MB")
    keys = pa.table(read).column("k").to_pylist()
    assert keys == list(range(24 * rows))
    assert read.stats.pages_read < 2 * pages_in(files, rows)
    read = plait.read(files, sort_by="k", memory_limit="16MB", temp_dir="/dev/null")
    assert pa.table(read).column("k").to_pylist() == keys
    assert read.stats.pages_read > 2 * pages_in(files, rows)


def test_bounds_of_files_of_several_schemas_are_compared_at_once(tmp_path: Path) -> None:
    """Columns that files lack, have in other types or as dictionaries, and files without rows."""
    tables = [
        pa.table({"k": [1, 2], "v": pa.array([10, 20], pa.int32())}),
        pa.table({"k": [3, 4]}),
        pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int32())}),
        pa.table({"k": [5, 6], "v": pa.array([30, None], pa.int64())}),
    ]
    files = [write(tmp_path / f"{i}.parquet", table) for i, table in enumerate(tables)]
    rows = plait.read(files, sort_by="k")
    for where, keys, files_left in (
        ("v >= 20", [2, 5], 2),
        ("v IS NULL", [3, 4, 6], 2),
        ("v = 30 AND k > 0", [5], 1),
        ("v IS NULL AND k < 4", [3], 1),
        ("k > 6", [], 0),
    ):
        read = rows.where(where)
        assert pa.table(read)["k"].to_pylist() == keys, where
        plan = read.explain()
        assert plan.files - plan.files_skipped == files_left, where
    words = pa.array(["a", "b"]).dictionary_encode()
    coded = [
        write(tmp_path / "a.parquet", pa.table({"k": words, "n": [1, 2]})),
        write(tmp_path / "b.parquet", pa.table({"k": pa.array(["c", "d"]), "n": [3, 4]})),
    ]
    by_word = plait.read(coded, sort_by="k", where="k >= 'c'")
    assert pa.table(by_word)["n"].to_pylist() == [3, 4]
    assert by_word.explain().files_skipped == 1


def test_files_that_state_one_order_are_read_by_it(tmp_path: Path) -> None:
    def sorted_file(number: int, by: str) -> str:
        out = str(tmp_path / f"{number}-{by}.parquet")
        table = pa.table({"a": [number, number + 9], "b": [number, number + 1]})
        plait.merge(write(tmp_path / "plain.parquet", table), out, sort_by=by)
        return out

    files = [sorted_file(number, "a") for number in range(5)]
    rows = plait.read(files)
    assert pa.table(rows)["a"].to_pylist() == [0, 1, 2, 3, 4, 9, 10, 11, 12, 13]
    assert rows.where("b = 3").explain().sort_by == "a"
    with pytest.raises(plait.InvalidArgument, match="different sort orders") as refused:
        plait.read([*files, sorted_file(7, "b")])
    assert "7-b.parquet" in str(refused.value)
    plain_file = write(tmp_path / "other.parquet", pa.table({"a": [1], "b": [1]}))
    with pytest.raises(plait.InvalidArgument, match="declares no sort order"):
        plait.read([files[0], plain_file])


def test_expressions_of_others_are_conditions(hours: list[str]) -> None:
    expected = pa.table(plait.read(hours, sort_by="name, ts", where="name = 'b' AND ts < 5"))
    for where in (
        (pl.col("name") == "b") & (pl.col("ts") < 5),
        (pl.col("ts") < 5) & pl.col("name").is_in(["b"]) & pl.col("value").is_not_null(),
        pl.col("ts").is_between(0, 5, closed="left") & pl.col("name").str.starts_with("b"),
        (pc.field("name") == "b") & (pc.field("ts") < 5),
        pc.field("name").isin(["b", "z"]) & (5 > pc.field("ts")) & pc.field("ts").is_valid(),
        pc.starts_with(pc.field("name"), "b") & (pc.field("ts") <= 4),
    ):
        assert pa.table(plait.read(hours, sort_by="name, ts", where=where)) == expected, str(where)
    for bad in (
        pl.col("name") == pl.col("text"),
        (pl.col("ts") < 5) | (pl.col("ts") > 9),
        pl.col("ts").cast(pl.Int8) < 5,
        pl.col("name").str.to_uppercase() == "B",
        (pc.field("ts") < 5) | (pc.field("ts") > 9),
        pc.field("ts") + 1 < 5,
    ):
        with pytest.raises(plait.Unsupported, match="cannot be read from files"):
            plait.read(hours, sort_by="name, ts", where=bad)
    with pytest.raises(plait.InvalidArgument, match="not a condition"):
        plait.read(hours, sort_by="name, ts", where=5)


def test_polars_pushes_filters_projections_and_limits(hours: list[str]) -> None:
    read = plait.read(hours, sort_by="name, ts")
    lazy = read.to_polars()
    found = lazy.filter(pl.col("name") == "c").select("value").head(10).collect()
    assert found["value"].to_list() == [float(i) for i in range(10)]
    assert read.stats.rows_read <= 24_000  # of 72,000
    assert lazy.head(10).collect().height == 10
    assert read.stats.rows == 10
    # What cannot be pushed is applied by Polars.
    odd = lazy.filter((pl.col("ts") % 2 == 1) & (pl.col("name") == "a")).head(3).collect()
    assert odd["ts"].to_list() == [1, 3, 5]
    assert lazy.select(pl.len()).collect().item() == 72_000
    assert lazy.select("ts").collect().height == 72_000


def test_engines_take_a_read(hours: list[str]) -> None:
    read = plait.read(hours, sort_by="name, ts", where="ts >= 82800")
    assert duckdb.sql("SELECT count(*), max(ts) FROM read").fetchall() == [(3000, 83799)]
    assert len(pl.DataFrame(read)) == 3000
    assert pa.table(read).num_rows == read.count() == 3000
    assert sum(len(batch) for batch in read) == 3000
    import datafusion

    context = datafusion.SessionContext()
    frame = context.from_arrow(read)
    assert frame.count() == 3000


def test_a_reader_that_stops_leaves_nothing(hours: list[str]) -> None:
    before = threading.active_count()
    files = len(os.listdir("/proc/self/fd"))
    read = plait.read(hours, sort_by="name, ts", batch_rows=100)
    stream = read.to_batches()
    next(stream)
    stream.close()
    for batch in read:
        assert len(batch) == 100
        break
    other = read.to_batches()
    next(other)
    del other, read, stream, batch
    gc.collect()
    assert threading.active_count() == before
    assert len(os.listdir("/proc/self/fd")) <= files


def test_what_is_wrong_is_said(tmp_path: Path, hours: list[str]) -> None:
    with pytest.raises(plait.InvalidArgument, match="declares no sort order"):
        plait.read(hours)
    with pytest.raises(plait.UnknownColumn, match="nope"):
        plait.read(hours, sort_by="name, ts", where="nope = 1")
    with pytest.raises(plait.UnknownColumn):
        plait.read(hours, sort_by="name, ts", columns=["nope"])
    with pytest.raises(plait.InvalidArgument, match="AND expected"):
        plait.read(hours, sort_by="name, ts", where="ts < 5 OR ts > 9")
    with pytest.raises(plait.InvalidArgument, match="not a value of the column"):
        plait.read(hours, sort_by="name, ts", where="ts < 'yesterday'")
    with pytest.raises(plait.SourceNotFound):
        plait.read(tmp_path / "none.parquet", sort_by="ts")
    lacks = write(tmp_path / "lacks.parquet", pa.table({"name": ["a"]}))
    with pytest.raises(plait.UnknownColumn, match="lacks a sort column"):
        plait.read([*hours, lacks], sort_by="name, ts")
    table = pa.table(plait.read([*hours, lacks], sort_by="name, ts", missing_keys="null"))
    assert table.num_rows == 72_001
    damaged = bytearray(Path(hours[3]).read_bytes())
    damaged[60:90] = b"\xff" * 30
    Path(hours[3]).write_bytes(damaged)
    with pytest.raises(plait.CorruptSource, match=r"03\.parquet"):
        list(plait.read(hours, sort_by="name, ts"))


def test_a_read_is_read_again_and_without_columns(hours: list[str]) -> None:
    read = plait.read(hours, sort_by="name, ts", columns=[])
    assert pa.table(read).num_columns == 0
    assert read.count() == read.count() == 72_000
    assert read.stats.rows == 72_000
    assert plait.read(hours, sort_by="name, ts", limit=7).count() == 7


@pytest.mark.local
def test_objects_are_read_as_files_are(s3_server: Any, hours: list[str]) -> None:
    options = s3_server.options()
    assert s3_server.request("PUT", "/sorted-reads")[0] == 200
    for path in hours[:4]:
        body = Path(path).read_bytes()
        assert s3_server.request("PUT", f"/sorted-reads/{Path(path).name}", body)[0] == 200
    ask: dict[str, Any] = {"sort_by": "name, ts", "where": "name = 'b' AND ts >= 11000"}
    read = plait.read("s3://sorted-reads/", storage_options=options, **ask)
    assert pa.table(read) == pa.table(plait.read(hours[:4], **ask))
    assert read.stats.files_opened == 1
    assert 0 < read.stats.reads < 20
    last = plait.read("s3://sorted-reads/", storage_options=options, reverse=True, limit=1, **ask)
    assert pa.table(last)["ts"].to_pylist() == [11799]


def test_many_files_are_within_the_limit_of_open_files(tmp_path: Path) -> None:
    import resource

    count = 1500
    for number in range(count):
        pq.write_table(pa.table({"k": [number, number + count]}), tmp_path / f"{number:05}.parquet")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Plait holds 512 files at most.
    resource.setrlimit(resource.RLIMIT_NOFILE, (800, hard))
    try:
        read = plait.read(tmp_path, sort_by="k")
        assert pa.table(read)["k"].to_pylist() == list(range(2 * count))
        first = plait.read(tmp_path, sort_by="k", limit=3)
        assert pa.table(first)["k"].to_pylist() == [0, 1, 2]
        # A batch has few rows, so few files are needed for it.
        assert first.stats.files_opened <= 8
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_table_is_read_by_the_files_that_count(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    table = str(tmp_path / "table")
    write_deltalake(table, pa.table({"k": [1, 2], "v": ["a", "b"]}))
    write_deltalake(table, pa.table({"k": [3], "v": ["c"]}), mode="append")
    DeltaTable(table).delete("k = 3")
    assert pa.table(plait.read(table, sort_by="k"))["k"].to_pylist() == [1, 2]


# ---- plans and tasks


@pytest.mark.parametrize("seed", range(20))
def test_tasks_of_a_plan_are_the_read_in_pieces(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    files = sorted_files(rng, tmp_path, [("name", "ascending"), ("ts", "ascending")])
    asked = {"on_duplicate": rng.choice(["keep_all", "keep_first", "keep_last"])}
    order = "name, ts"
    where = condition(rng) if rng.random() < 0.7 else None
    whole = pa.table(plait.read(files, sort_by=order, where=where, **asked))
    plan = plait.plan(files, sort_by=order, target_rows=rng.choice([40, 300, 4000]), **asked)
    assert pa.table(plait.read(plan, where=where)).equals(whole)
    # Each in another process, as far as it knows.
    tasks = [plait.Plan.from_json(task.to_json()) for task in plan.tasks]
    parts = [pa.table(plait.read(task, where=where)) for task in tasks]
    assert all(part.schema == whole.schema for part in parts)
    assert pa.concat_tables([whole.slice(0, 0), *parts]).to_pylist() == whole.to_pylist()
    backwards = [pa.table(plait.read(task, where=where, reverse=True)) for task in tasks]
    assert pa.concat_tables([whole.slice(0, 0), *reversed(backwards)]).to_pylist() == list(
        reversed(whole.to_pylist())
    )


def test_a_task_has_the_columns_of_its_plan(tmp_path: Path) -> None:
    def field(name: str, type_: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})

    old = pa.schema([field("k", pa.int32(), 1), field("was", pa.int64(), 2)])
    new = pa.schema(
        [field("k", pa.int64(), 1), field("now", pa.int64(), 2), field("more", pa.string(), 3)]
    )
    write(tmp_path / "a.parquet", pa.table([[1, 2], [3, 4]], schema=old))
    write(tmp_path / "b.parquet", pa.table([[11, 12], [13, 14], ["x", "y"]], schema=new))
    plan = plait.plan(tmp_path, sort_by="k", target_rows=2)
    assert len(plan.tasks) == 2
    for name in ("was", "now"):
        found = [
            pa.table(plait.read(task, columns=[name, "more"], where=f"{name} > 3 and k < 12"))
            for task in plan.tasks
        ]
        assert [list(map(list, zip(*t.to_pydict().values(), strict=True))) for t in found] == [
            [[4, None]],
            [[13, "x"]],
        ]
    assert {str(pa.schema(plait.read(task).schema)) for task in plan.tasks} == {
        str(pa.schema(plait.read(tmp_path, sort_by="k").schema))
    }


def test_a_plan_says_what_options_must_not(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"k": [1, 2]}))
    plan = plait.plan(tmp_path, sort_by="k")
    for option in ({"sort_by": "k"}, {"on_duplicate": "keep_last"}, {"missing_keys": "null"}):
        with pytest.raises(plait.InvalidArgument, match=next(iter(option))):
            plait.read(plan, **option)
    write(tmp_path / "a.parquet", pa.table({"k": [1, 3]}))
    with pytest.raises(plait.SourceChanged, match=r"a\.parquet"):
        plait.read(plan.tasks[0])


def test_a_task_reads_the_pages_of_its_rows(hours: list[str]) -> None:
    plan = plait.plan(hours, sort_by="name, ts", target_rows=1000)
    whole = plait.read(hours, sort_by="name, ts")
    assert whole.count() > 5000
    task = plait.read(plan.tasks[0], columns=["value"])
    table = pa.table(task)
    assert abs(table.num_rows - 1000) < 500
    assert task.stats.rows_read == table.num_rows
    assert task.stats.pages_read < whole.stats.pages_read


WIDE = """
import os, sys
import pyarrow as pa, pyarrow.parquet as pq
import plait
from tests.python.peak_memory import peak_rss_bytes

folder = sys.argv[1]
for i in range(2):
    schema = pa.schema({"k": pa.int64(), "v": pa.string()})
    with pq.ParquetWriter(f"{folder}/{i}.parquet", schema) as to:
        for group in range(20):
            keys = range(group * 40, group * 40 + 40)
            texts = [os.urandom(2048).hex() * 100 for _ in keys]
            to.write_table(pa.table({"k": pa.array(keys, pa.int64()), "v": texts}))
before = peak_rss_bytes()
rows = sum(b.num_rows for b in plait.read(folder, sort_by="k", memory_limit="64MB"))
print(rows, peak_rss_bytes() - before)
"""


@pytest.mark.long
@pytest.mark.slow
def test_wide_rows_make_small_batches(tmp_path: Path, root: Path) -> None:
    """650 MB of rows of 400 kB: a batch of 65,536 of them would be all."""
    done = subprocess.run(
        [sys.executable, "-c", WIDE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'python'}"},
    )
    rows, grown = map(int, done.stdout.split())
    assert rows == 1600
    assert grown < 64e6 + 100e6
