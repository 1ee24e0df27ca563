"""The analyst's folder: 300 files by DuckDB, Polars and pandas, some sorted, some not."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main

pytestmark = pytest.mark.local
FILES = 300


def by_duckdb(rows: pa.Table, path: Path) -> None:
    duckdb.sql(f"copy (from rows) to '{path}' (format parquet)")


def by_polars(rows: pa.Table, path: Path) -> None:
    pl.from_arrow(rows).write_parquet(path)


def by_pandas(rows: pa.Table, path: Path) -> None:
    rows.to_pandas().to_parquet(path, index=False)


WRITERS = (by_duckdb, by_polars, by_pandas)


def sales(number: int) -> pa.Table:
    """Sales of some days: sorted by customer and day, late by a row, or as they came."""
    rng = np.random.default_rng(number)
    rows = int(rng.integers(1, 60))
    table = pa.table(
        {
            "customer": [f"customer {i:02}" for i in rng.integers(0, 40, rows)],
            "day": pa.array(rng.integers(19_700, 19_760, rows).astype(np.int64)),
            "amount": rng.random(rows).round(2),
            "file": pa.array(np.full(rows, number)),
            "row": pa.array(np.arange(rows)),
        }
    )
    if number % 4:  # most are sorted
        table = table.sort_by([("customer", "ascending"), ("day", "ascending")])
        if number % 7 == 0 and rows > 1:
            table = pa.concat_tables([table.slice(1), table.slice(0, 1)])
    return table


def key(row: dict) -> tuple:
    return row["customer"], row["day"]


def test_a_folder_of_files_in_any_order_becomes_one_by_one_command(tmp_path, capsys):
    folder, tables = tmp_path / "sales", []
    folder.mkdir()
    for i in range(FILES):
        table = sales(i)
        tables.append(table)
        WRITERS[i % 3](table, folder / f"{i:03}.parquet")
    rows = [row for table in tables for row in table.to_pylist()]
    of_files = [[key(row) for row in table.to_pylist()] for table in tables]
    unsorted = [keys for keys in of_files if keys != sorted(keys)]
    assert 50 < len(unsorted) < 250

    out = tmp_path / "out.parquet"
    command = ["sort", str(folder), "--sort-by", "customer, day", "-o", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    loose = sum(map(len, unsorted))
    line = f"{len(unsorted)} files; {FILES - len(unsorted)} files were in order; "
    told = next(text for text in printed.splitlines() if text.startswith("sort "))
    assert line in told and "sorted run" in told
    count = int(told.split("sorted ")[1].split(" row")[0].replace(",", ""))
    assert 0 < count <= loose
    # Right order, and a stable one.
    assert pq.read_table(out).to_pylist() == sorted(rows, key=key)
    assert plait.verify(out, against=folder, sort_by="customer, day").ok
