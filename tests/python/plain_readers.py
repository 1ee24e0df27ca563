"""How often other programs see each row of a folder, as JSON: FOLDER [ROWS].

Keys are 0, 1, …, ROWS - 1. What a program sees is `once`, `twice` for some rows, `missing` for some, or `error`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import plait


def with_duckdb(glob: str) -> list[int]:
    rows = duckdb.sql(f"SELECT k FROM read_parquet('{glob}', hive_partitioning = true)").fetchall()
    return [key for (key,) in rows]


def with_glob(folder: str, pattern: str) -> list[int]:
    files = sorted(Path(folder).glob(pattern))
    return [key for file in files for key in pq.ParquetFile(file).read()["k"].to_pylist()]


READERS = {
    'plait.scan("events")': lambda f: [
        key
        for batch in plait.scan(f, columns=["k"])
        for key in __import__("pyarrow").record_batch(batch)["k"].to_pylist()
    ],
    'pyarrow.dataset.dataset("events")': lambda f: (
        ds.dataset(f, partitioning="hive").to_table(columns=["k"])["k"].to_pylist()
    ),
    'pandas.read_parquet("events")': lambda f: pd.read_parquet(f)["k"].tolist(),
    "DuckDB, `events/*/*.parquet`": lambda f: with_duckdb(f"{f}/*/*.parquet"),
    "DuckDB, `events/**/*.parquet`": lambda f: with_duckdb(f"{f}/**/*.parquet"),
    'polars.scan_parquet("events")': lambda f: pl.scan_parquet(f).collect()["k"].to_list(),
    "Polars, `events/*/*.parquet`": lambda f: (
        pl.scan_parquet(f"{f}/*/*.parquet").collect()["k"].to_list()
    ),
    "Polars, `events/**/*.parquet`": lambda f: (
        pl.scan_parquet(f"{f}/**/*.parquet").collect()["k"].to_list()
    ),
    "glob of a shell, `events/day=*/*.parquet`": lambda f: with_glob(f, "day=*/*.parquet"),
}


def seen(read: Callable[[str], list[int]], folder: str, rows: int) -> str:
    try:
        counts = Counter(read(folder))
    except Exception:
        return "error"
    words = [
        *(["missing"] if any(counts[key] == 0 for key in range(rows)) else []),
        *(["twice"] if any(count > 1 for count in counts.values()) else []),
    ]
    return " and ".join(words) or "once"


def main() -> None:
    folder, rows = sys.argv[1], int(sys.argv[2])
    print(json.dumps({name: seen(read, folder, rows) for name, read in READERS.items()}))


if __name__ == "__main__":
    main()
