"""Reads of many files that overlap spill decoded rows: the same rows, and pages are decoded once."""

from __future__ import annotations

import os
import random
import shutil
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

pytestmark = pytest.mark.local

FILES = 40
ROWS = 6000
LIMIT = "16MB"


def table_of(number: int, rows: int = ROWS) -> pa.Table:
    """The rows whose key has the remainder `number`, with columns of all kinds."""
    rng = random.Random(number)
    keys = range(number, FILES * rows, FILES)
    words = [f"word {rng.randrange(500)} of many" for _ in keys]
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "word": pa.array([None if rng.random() < 0.1 else w for w in words], pa.string()),
            "text": [f"{k} ".ljust(rng.randrange(10, 90), "x") for k in keys],
            "day": pa.array([k % 3000 for k in keys], pa.date32()),
            "price": pa.array([Decimal(k) / 100 for k in keys], pa.decimal128(12, 2)),
            "odd": [k % 2 == 1 for k in keys],
            "point": pa.array(
                [
                    None if k % 11 == 0 else {"x": k / 7, "name": words[i]}
                    for i, k in enumerate(keys)
                ],
                pa.struct([("x", pa.float64()), ("name", pa.string())]),
            ),
            "list": pa.array(
                [[k, None, k + 1][: i % 4] if i % 13 else None for i, k in enumerate(keys)],
                pa.list_(pa.int64()),
            ),
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("spilled")
    paths = []
    for number in range(FILES):
        paths.append(str(folder / f"{number:02}.parquet"))
        pq.write_table(table_of(number), paths[-1], row_group_size=5000, write_page_index=True)
    return paths


@pytest.fixture(scope="module")
def whole(files: list[str]) -> pa.Table:
    return pa.concat_tables(map(pq.read_table, files)).sort_by("k")


def pages_in(files: list[str]) -> int:
    metas = map(pq.read_metadata, files)
    # A chunk of 5,000 rows is one page.
    return sum(meta.num_row_groups * meta.row_group(0).num_columns for meta in metas)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_are_those_of_a_sort_and_pages_are_decoded_about_once(
    files: list[str], whole: pa.Table, threads: int, reverse: bool
) -> None:
    read = plait.read(files, sort_by="k", memory_limit=LIMIT, threads=threads, reverse=reverse)
    got = pa.table(read)
    expected = whole.take(list(range(len(whole) - 1, -1, -1))) if reverse else whole
    assert got.equals(expected.combine_chunks())
    # A page in which a window ends is decoded twice.
    assert pages_in(files) <= read.stats.pages_read <= 1.5 * pages_in(files)
    assert whole.nbytes / 2 < read.stats.bytes_spilled < 2 * whole.nbytes
    again = pa.table(read)
    assert again.equals(got)


def test_with_more_memory_nothing_is_spilled(files: list[str], whole: pa.Table) -> None:
    read = plait.read(files, sort_by="k", memory_limit="1GB")
    assert pa.table(read).equals(whole.combine_chunks())
    assert read.stats.bytes_spilled == 0


@pytest.mark.parametrize("seed", range(8))
def test_random_reads_are_those_of_duckdb(files: list[str], seed: int) -> None:
    rng = random.Random(seed)
    columns = rng.sample(["k", "word", "text", "day", "price", "odd", "point", "list"], 5)
    where, reverse = (
        rng.choice(
            [
                "odd = true",
                f"k >= {rng.randrange(50_000)}",
                f"word < 'word {rng.randrange(500)}'",
                f"price BETWEEN {rng.randrange(300)} AND 900",
                "point.x > 3000",
            ]
        ),
        rng.random() < 0.5,
    )
    read = plait.read(
        files,
        sort_by="k",
        columns=columns,
        where=where,
        reverse=reverse,
        memory_limit=LIMIT,
        batch_rows=rng.choice([100, 5000, 65_536]),
        threads=rng.choice([1, 2]),
    )
    names = ", ".join(columns)
    order = "DESC" if reverse else "ASC"
    query = f"SELECT {names} FROM read_parquet({files}) WHERE {where} ORDER BY k {order}"
    got = pa.table(read)
    assert got.equals(duckdb.sql(query).to_arrow_table().cast(got.schema).combine_chunks())


def test_conditions_that_hold_for_most_rows_spill_what_holds(
    files: list[str], whole: pa.Table
) -> None:
    read = plait.read(files, sort_by="k", where="day < 2900", memory_limit=LIMIT)
    plainly = plait.read(
        files, sort_by="k", where="day < 2900", memory_limit=LIMIT, temp_dir="/dev/null"
    )
    expected = whole.filter(pc.field("day").cast("int32") < 2900)
    assert pa.table(read).equals(expected.combine_chunks())
    assert pa.table(plainly).equals(expected.combine_chunks())
    assert read.stats.bytes_spilled > 0
    assert plainly.stats.bytes_spilled == 0
    assert 2 * read.stats.pages_read < plainly.stats.pages_read


def test_duplicates_and_deletes_go_by_merged_rows(
    files: list[str], whole: pa.Table, tmp_path: Path
) -> None:
    more = [*files, *(shutil.copy(path, tmp_path) for path in files[:10])]
    options: dict[str, Any] = {"sort_by": "k", "on_duplicate": "keep_last", "delete_where": "odd"}
    read = plait.read(more, memory_limit=LIMIT, **options)
    assert pa.table(read).equals(whole.filter(pc.invert(whole["odd"])).combine_chunks())
    assert read.stats.bytes_spilled > 0


def test_arrow_types_of_other_writers_are_spilled(tmp_path: Path) -> None:
    """Views and dictionaries: what a slice of them refers to is cut to the slice."""
    files, rows = [], []
    view = pa.schema({"k": pa.int64(), "view": pa.string_view(), "bytes": pa.binary_view()})
    for number in range(FILES):
        words = [f"word {n % 700} of the dictionary" for n in range(ROWS)]
        table = pa.table(
            {
                "k": range(number, FILES * ROWS, FILES),
                "view": [w * 3 for w in words],
                "bytes": [w.encode() * 2 for w in words],
            }
        )
        rows += table.to_pylist()
        table = table.cast(view).append_column("coded", pa.array(words).dictionary_encode())
        files.append(str(tmp_path / f"{number}.parquet"))
        pq.write_table(table, files[-1], row_group_size=ROWS, data_page_size=64 << 20)
    read = plait.read(files, sort_by="k", memory_limit=LIMIT)
    got = pa.table(read)
    assert pa.types.is_string_view(got.schema.field("view").type)
    assert pa.types.is_dictionary(got.schema.field("coded").type)
    assert got.select(["k", "view", "bytes"]).to_pylist() == sorted(rows, key=lambda row: row["k"])
    assert got["coded"].to_pylist() == [
        f"word {n % 700} of the dictionary" for n in range(ROWS) for _ in files
    ]
    assert 0 < read.stats.bytes_spilled < 3 * got.nbytes


def test_files_of_polars_and_duckdb(tmp_path: Path) -> None:
    files, rows = [], 4000
    for number in range(FILES):
        frame = pl.DataFrame(
            {
                "k": range(number, FILES * rows, FILES),
                "s": [f"{n % 900} words of some length to fill pages" for n in range(rows)],
                "l": [[n, n + 1] for n in range(rows)],
            }
        )
        files.append(str(tmp_path / f"{number}.parquet"))
        if number % 2:
            frame.write_parquet(files[-1])
        else:
            duckdb.sql(f"COPY (FROM frame ORDER BY k) TO '{files[-1]}'")
    read = plait.read(files, sort_by="k", memory_limit=LIMIT)
    expected = pl.concat(map(pl.read_parquet, files)).sort("k")
    assert pl.DataFrame(read).equals(expected)
    assert read.stats.bytes_spilled > 0


def spilled_file() -> list[os.stat_result]:
    """Files of this process that have no name any more, and content."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            if str(descriptor.readlink()).endswith(" (deleted)"):
                found.append(descriptor.stat())
        except OSError:
            continue
    return [stat for stat in found if stat.st_size > 0]


def test_the_folder_is_empty_and_the_file_goes_with_the_read(
    files: list[str], tmp_path: Path
) -> None:
    """One file without a name, that does not grow with the rows of files."""
    before, folder = len(spilled_file()), tmp_path / "made" / "for it"
    read = plait.read(files, sort_by="k", memory_limit=LIMIT, temp_dir=folder)
    batches = iter(read)
    next(batches)
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
    assert len(spilled_file()) == before + 1
    del batches
    assert len(spilled_file()) == before
    assert read.count() == len(pa.table(read))
    assert read.stats.bytes_spilled > 0
    assert len(spilled_file()) == before


def test_disk_space_is_used_again(tmp_path: Path) -> None:
    files = []
    for number in range(30):
        keys = range(number, 30 * 20_000, 30)
        table = pa.table({"k": keys, "v": [f"{k} ".ljust(200) for k in keys]})
        files.append(str(tmp_path / f"{number}.parquet"))
        pq.write_table(table, files[-1], row_group_size=5000, use_dictionary=False)
    read = plait.read(files, sort_by="k", memory_limit=LIMIT)
    most = 0
    for batch in read:
        assert len(batch)
        most = max([most, *(stat.st_size for stat in spilled_file())])
    assert read.stats.bytes_spilled > 100e6
    assert 0 < most < read.stats.bytes_spilled / 2


def test_without_a_folder_the_read_goes_on_more_slowly(
    files: list[str], whole: pa.Table, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    read = plait.read(files, sort_by="k", memory_limit=LIMIT, temp_dir=tmp_path / "file")
    assert pa.table(read).equals(whole.combine_chunks())
    assert read.stats.bytes_spilled == 0
    assert read.stats.pages_read > 2 * pages_in(files)
    assert str(tmp_path / "file") in str(read.stats.spill_error)


def test_a_limit_spills_nothing(files: list[str]) -> None:
    read = plait.read(files, sort_by="k", memory_limit=LIMIT, limit=50_000)
    assert pa.table(read)["k"].to_pylist() == list(range(50_000))
    assert read.stats.bytes_spilled == 0


READ = """
import sys
import plait
from tests.python.peak_memory import peak_rss_bytes

before = peak_rss_bytes()
read = plait.read(sys.argv[1], sort_by="k", memory_limit="64MB", threads=2)
found = sum(len(batch) for batch in read)
print(found, read.stats.bytes_spilled, peak_rss_bytes() - before)
"""


@pytest.mark.slow
def test_a_file_with_wider_rows_than_its_footer_says_stays_within_the_limit(
    tmp_path: Path, root: Path
) -> None:
    """Windows that are spilled begin small where nothing says how long the texts of a file are."""
    for number in range(40):
        keys = range(number, 320_000, 40)
        table = pa.table({"k": keys, "v": [f"{k % 977} some text" for k in keys]})
        pq.write_table(table, tmp_path / f"{number:02}.parquet")
    # The longest texts lie between the least and the greatest, and are stored once.
    text = "CASE n % 50 WHEN 0 THEN 'a' WHEN 1 THEN 'z' ELSE repeat('m', 20000 + n % 50) END"
    wide = f"SELECT n * 10 AS k, {text} AS v FROM range(32000) AS t(n) ORDER BY k"
    duckdb.sql(f"COPY ({wide}) TO '{tmp_path}/wide.parquet' (ROW_GROUP_SIZE 40000)")
    found, spilled, grown = measured(READ, root, tmp_path)
    assert found == 320_000 + 32_000
    assert spilled > 0
    assert grown < 64e6 + 100e6
