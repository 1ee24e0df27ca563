"""How often other programs see each row of a folder, or of a table.

    plain_readers.py [folder | table | spark]

reads lines with a path, a tab and a number of rows; answers each with one line of JSON. Keys are
0, 1, …, rows - 1. What a program sees is `once`, `twice` for some rows, `missing` for some, or `error`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import plait

Reader = Callable[[str], list[int]]


def with_plait(rows: object) -> list[int]:
    return [key for batch in rows for key in pa.record_batch(batch)["k"].to_pylist()]


def with_duckdb(glob: str) -> list[int]:
    rows = duckdb.sql(f"SELECT k FROM read_parquet('{glob}', hive_partitioning = true)").fetchall()
    return [key for (key,) in rows]


def with_polars(path: str) -> list[int]:
    return pl.scan_parquet(path).collect()["k"].to_list()


def with_pyarrow(folder: str) -> list[int]:
    return ds.dataset(folder, partitioning="hive").to_table(columns=["k"])["k"].to_pylist()


def with_glob(folder: str, pattern: str) -> list[int]:
    files = sorted(Path(folder).glob(pattern))
    return [key for file in files for key in pq.ParquetFile(file).read()["k"].to_pylist()]


def with_deltalake(folder: str) -> list[int]:
    return deltalake.DeltaTable(folder).to_pyarrow_table()["k"].to_pylist()


def of_deltalake(folder: str) -> list[int]:
    rows = deltalake.DeltaTable(folder).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by name
    return [key for (key,) in duckdb.sql("SELECT k FROM rows").fetchall()]


FOLDER: dict[str, Reader] = {
    'plait.scan("events")': lambda f: with_plait(plait.scan(f, columns=["k"])),
    'pyarrow.dataset.dataset("events")': with_pyarrow,
    'pandas.read_parquet("events")': lambda f: pd.read_parquet(f)["k"].tolist(),
    "DuckDB, `events/*/*.parquet`": lambda f: with_duckdb(f"{f}/*/*.parquet"),
    "DuckDB, `events/**/*.parquet`": lambda f: with_duckdb(f"{f}/**/*.parquet"),
    'polars.scan_parquet("events")': with_polars,
    "Polars, `events/*/*.parquet`": lambda f: with_polars(f"{f}/*/*.parquet"),
    "Polars, `events/**/*.parquet`": lambda f: with_polars(f"{f}/**/*.parquet"),
    'deltalake.DeltaTable("events")': with_deltalake,
    "glob of a shell, `events/day=*/*.parquet`": lambda f: with_glob(f, "day=*/*.parquet"),
}

TABLE: dict[str, Reader] = {
    'plait.Table("metrics").read()': lambda f: with_plait(plait.Table(f).read()),
    'plait.scan("metrics")': lambda f: with_plait(plait.scan(f, columns=["k"])),
    'deltalake.DeltaTable("metrics")': with_deltalake,
    'polars.scan_delta("metrics")': lambda f: pl.scan_delta(f).collect()["k"].to_list(),
    "DuckDB, over deltalake": of_deltalake,
    "DuckDB, `metrics/*.parquet`": lambda f: with_duckdb(f"{f}/*.parquet"),
    'polars.scan_parquet("metrics")': with_polars,
    "Polars, `metrics/*.parquet`": lambda f: with_polars(f"{f}/*.parquet"),
    'pyarrow.dataset.dataset("metrics")': with_pyarrow,
    'pandas.read_parquet("metrics")': lambda f: pd.read_parquet(f)["k"].tolist(),
    "glob of a shell, `metrics/*.parquet`": lambda f: with_glob(f, "*.parquet"),
}


def spark_readers() -> dict[str, Reader]:
    """Those of Spark, which takes a while to begin. A path is of a folder or of a table."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )

    def of(format_name: str) -> Reader:
        def read(path: str) -> list[int]:
            options = {} if format_name == "parquet" else {"sort_by": "k"}
            rows = (
                session.read.format(format_name).options(**options).load(path).select("k").collect()
            )
            return [row.k for row in rows]

        return read

    return {f"Spark, format `{name}`": of(name) for name in ("parquet", "plait")}


def seen(read: Reader, folder: str, rows: int) -> str:
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
    which = sys.argv[1]
    readers: Mapping[str, Reader]
    readers = spark_readers() if which == "spark" else {"folder": FOLDER, "table": TABLE}[which]
    for line in sys.stdin:
        folder, rows = line.rstrip("\n").split("\t")
        told = {name: seen(read, folder, int(rows)) for name, read in readers.items()}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
