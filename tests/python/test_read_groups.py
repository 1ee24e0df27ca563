"""Reads of so many overlapping files that groups of them are merged first: the same rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .peak_memory import measured

pytestmark = pytest.mark.local

FILES = 150
# 106 files fit the first limit, all fit the second.
LESS, MORE = "16MB", "512MB"


def table_of(number: int) -> pa.Table:
    """Some rows of a file, with keys that many files have."""
    rng = random.Random(number)
    keys = sorted((rng.randrange(400), rng.choice("abc")) for _ in range(rng.randrange(20, 60)))
    table = pa.table(
        {
            "k": pa.array([k for k, _ in keys], pa.int64()),
            "name": [name for _, name in keys],
            "version": pa.array([rng.randrange(5) for _ in keys], pa.int32()),
            "gone": [rng.random() < 0.1 for _ in keys],
            "file": pa.array([number for _ in keys], pa.int32()),
            "row": pa.array(range(len(keys)), pa.int32()),
            "point": [
                None if rng.random() < 0.2 else {"x": rng.random(), "list": ["a", None][: i % 3]}
                for i in range(len(keys))
            ],
        }
    )
    # Some files are older, others newer.
    if number % 3 == 0:
        table = table.drop(["point"])
    return table.append_column("new", table["row"]) if number % 5 == 0 else table


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("groups")
    paths = []
    for number in range(FILES):
        paths.append(str(folder / f"{number:03}.parquet"))
        pq.write_table(table_of(number), paths[-1], row_group_size=25)
    return paths


READS: dict[str, dict[str, Any]] = {
    "all": {},
    "reverse": {"reverse": True},
    "columns": {"columns": ["file", "row", "point"]},
    "few": {"where": "version = 1 AND gone = true"},
    "most": {"where": "k >= 3 AND name != 'b'"},
    "first": {"on_duplicate": "keep_first"},
    "last": {"on_duplicate": "keep_last"},
    "last, reverse": {"on_duplicate": "keep_last", "reverse": True},
    "version": {"on_duplicate": "keep_last", "version_by": "version"},
    "deletes": {"on_duplicate": "keep_last", "delete_where": "gone"},
    "drops": {"drop_where": "k < 100"},
    "merged": {"on_duplicate": "keep_last", "where": "version = 3"},
    "aggregate": {
        "on_duplicate": "aggregate",
        "aggregate": {"version": "sum", "file": "last", "row": "first", "gone": "max"},
        "columns": ["k", "name", "version", "file", "row", "gone"],
    },
    "limit": {"limit": 10},
    "limit, reverse": {"limit": 200, "reverse": True},
    "limit, where": {"limit": 50, "where": "version = 2"},
}


def read(files: list[str], memory: str, **options: Any) -> plait.SortedRead:
    return plait.read(files, sort_by="k, name", memory_limit=memory, **options)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("options", READS.values(), ids=list(READS))
def test_the_rows_are_those_of_one_merge(
    files: list[str], options: dict[str, Any], threads: int
) -> None:
    """Rows of one key included: they come in the order of the files."""
    less = read(files, LESS, threads=threads, **options)
    more = read(files, MORE, threads=threads, **options)
    expected = pa.table(more)
    assert pa.table(less).equals(expected)
    assert len(expected) > 0
    assert pa.table(less).equals(expected), "read again"
    assert (less.explain().groups, more.explain().groups) == (12, 0)
    assert more.stats.bytes_spilled == 0
    assert less.stats.bytes_spilled > 0
    for name in ("rows", "rows_dropped"):
        assert getattr(less.stats, name) == getattr(more.stats, name)
    assert "12 groups of files first" in str(less.explain())
    assert "groups of files" not in str(more.explain())


def test_rows_of_one_key_are_those_of_duckdb(files: list[str]) -> None:
    place = "file_row_number"
    from_files = f"FROM read_parquet({files}, union_by_name = true, {place} = true)"
    expected = duckdb.sql(f"SELECT k, name, file, row {from_files} ORDER BY k, name, file, {place}")
    rows = pa.table(read(files, LESS, columns=["k", "name", "file", "row"]))
    assert rows.to_pylist() == expected.to_arrow_table().to_pylist()


def test_a_limit_of_many_rows_reads_no_groups(files: list[str]) -> None:
    few, many = (read(files, LESS, limit=limit) for limit in (800, 801))
    assert (few.explain().groups, many.explain().groups) == (12, 0)
    assert pa.table(few).equals(pa.table(many).slice(0, 800))
    # Which row of a key stays is not known before all groups are there.
    one = read(files, LESS, limit=5, on_duplicate="keep_last")
    assert one.explain().groups == 0
    assert len(pa.table(one)) == 5


def test_files_one_behind_the_other_are_in_no_groups(tmp_path: Path) -> None:
    for number in range(FILES):
        table = pa.table({"k": range(number * 10, number * 10 + 10)})
        pq.write_table(table, tmp_path / f"{number:03}.parquet")
    plain = plait.read(tmp_path, sort_by="k", memory_limit=LESS)
    assert plain.explain().groups == 0
    assert pa.table(plain)["k"].to_pylist() == list(range(FILES * 10))
    assert plain.stats.bytes_spilled == 0


def test_without_a_folder_groups_are_merged_on_demand(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    less = read(files, LESS, temp_dir=tmp_path / "file")
    assert pa.table(less).equals(pa.table(read(files, MORE)))
    assert less.stats.bytes_spilled == 0
    assert str(tmp_path / "file") in str(less.stats.spill_error)


def test_a_file_that_is_not_sorted_is_named(files: list[str], tmp_path: Path) -> None:
    odd = tmp_path / "odd.parquet"
    pq.write_table(table_of(1).sort_by([("k", "descending")]), odd)
    with pytest.raises(plait.UnsortedSource, match=r"odd\.parquet"):
        list(read([*files, str(odd)], LESS))


def test_two_rows_of_a_key_name_their_files(files: list[str]) -> None:
    with pytest.raises(plait.DuplicateKey, match=r"\d{3}\.parquet and \d+ more"):
        list(read(files, LESS, on_duplicate="error"))


READ = """
import sys
import plait
from tests.python.peak_memory import peak_rss_bytes

before = peak_rss_bytes()
read = plait.read(sys.argv[1], sort_by="k", memory_limit="32MB", threads=2)
found = sum(len(batch) for batch in read)
print(found, read.explain().groups, peak_rss_bytes() - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_files_that_overlap(tmp_path: Path, root: Path) -> None:
    """2,000 files of 22 columns took 142 MB at once, each at least 50 KB."""
    for number in range(2000):
        keys = range(number, 80_000, 2000)
        columns = {f"c{i}": [f"{k} {i}" for k in keys] for i in range(21)}
        pq.write_table(pa.table({"k": keys, **columns}), tmp_path / f"{number:04}.parquet")
    found, groups, grown = measured(READ, root, tmp_path)
    assert (found, groups) == (80_000, 44)
    assert grown < 32e6 + 40e6
