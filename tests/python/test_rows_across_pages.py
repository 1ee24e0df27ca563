"""Pages that begin inside a row, in a file whose offset index says that none does.

parquet-go writes such files. PyArrow, DuckDB and Polars read them: they do not look at the index.
The case was made by `WriteRowGroup` of parquet-go 0.32.0, with dictionaries of at most one byte, from
two files of 16,000 rows that PyArrow wrote with page indexes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

FILE = Path(__file__).resolve().parents[1] / "cases/writers/parquet-go-0.32.0.parquet"
ROWS = 32_000


def value(row: int) -> list[float] | None:
    return None if row % 11 == 0 else [float(row % 3)] * (row % 5)


EXPECTED = {"k": [row // 1000 for row in range(ROWS)], "list": [value(row) for row in range(ROWS)]}


def test_other_readers_read_it():
    assert pq.read_table(FILE).to_pydict() == EXPECTED
    assert pl.read_parquet(FILE).to_dict(as_series=False) == EXPECTED
    rows = duckdb.execute("select list from read_parquet(?)", [str(FILE)]).fetchall()
    assert [row for (row,) in rows] == EXPECTED["list"]


@pytest.mark.parametrize("how", ["scan", "read", "stream"])
def test_every_reader_has_all_rows(how):
    calls = {
        "scan": lambda: plait.scan(FILE),
        "read": lambda: plait.read(FILE, sort_by="k"),
        "stream": lambda: plait.merge_streams([FILE], sort_by="k"),
    }
    assert pa.table(calls[how]()).to_pydict() == EXPECTED


def test_reads_with_conditions_find_their_rows():
    for key in (0, 13, 31):
        read = pa.table(plait.read(FILE, sort_by="k", where=f"k == {key}"))
        assert read["list"].to_pylist() == EXPECTED["list"][key * 1000 : (key + 1) * 1000]


@pytest.mark.parametrize("options", [{}, {"compression": "snappy"}, {"copy_tiers": ()}])
def test_merges_keep_all_rows(tmp_path, options):
    again, out = tmp_path / "again.parquet", tmp_path / "out.parquet"
    shutil.copy(FILE, again)
    plait.merge([FILE, again], out, sort_by="k", **options)
    assert pq.read_metadata(out).num_rows == 2 * ROWS
    assert plait.verify(out, against=[FILE, again], sort_by="k").ok
    plait.merge(FILE, tmp_path / "one.parquet", sort_by="k", **options)
    assert pq.read_table(tmp_path / "one.parquet").to_pydict() == EXPECTED
