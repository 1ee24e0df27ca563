"""The same pairs of drifting files, read by several engines: who is right, who refuses, who loses data.

    .venv/bin/python benches/python/drift.py [--write]

`--write` puts the table into docs/guide/scan.md. Every engine reads each pair in both orders with the
call that its documentation gives for many files. Rows are compared with what the two files hold.
"""

import argparse
import datetime as dt
import decimal
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import plait

Row = dict[str, Any]
GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/scan.md"
BEGIN, END = "<!-- drift table: begin -->", "<!-- drift table: end -->"
NOON = dt.datetime(2024, 1, 2, 12)
STRUCT = pa.struct({"x": pa.int64(), "y": pa.string()})


def one(kind: pa.DataType, *values: Any, name: str = "a", nullable: bool = True) -> pa.Table:
    """A table of a key and one column."""
    fields = [pa.field("k", pa.int64()), pa.field(name, kind, nullable=nullable)]
    keys = pa.array(range(len(values)), pa.int64())
    return pa.Table.from_arrays([keys, pa.array(values, kind)], schema=pa.schema(fields))


PAIRS: dict[str, tuple[pa.Table, pa.Table]] = {
    "column added": (pa.table({"k": [1]}), pa.table({"k": [2], "b": ["x"]})),
    "columns reordered": (pa.table({"a": [1], "b": [2]}), pa.table({"b": [3], "a": [4]})),
    "int32, int64 past 32 bits": (one(pa.int32(), 1), one(pa.int64(), 2**40)),
    "int64 past 53 bits, float64": (one(pa.int64(), 2**53 + 1), one(pa.float64(), 0.5)),
    "float32, float64": (one(pa.float32(), 0.5), one(pa.float64(), 0.1)),
    "int64, text": (one(pa.int64(), 1), one(pa.string(), "x")),
    "null type, text": (one(pa.null(), None), one(pa.string(), "x")),
    "non-null, absent": (one(pa.int64(), 1, nullable=False), pa.table({"k": [2]})),
    "`a`, `A`": (one(pa.int64(), 1), one(pa.int64(), 2, name="A")),
    "struct field added": (
        one(pa.struct({"x": pa.int64()}), {"x": 1}),
        one(STRUCT, {"x": 2, "y": "u"}),
    ),
    "struct fields reordered": (
        one(STRUCT, {"x": 1, "y": "u"}),
        one(pa.struct({"y": pa.string(), "x": pa.int64()}), {"y": "v", "x": 2}),
    ),
    "list elements widen": (one(pa.list_(pa.int32()), [1]), one(pa.list_(pa.int64()), [2**40])),
    "scalar, list": (one(pa.int64(), 1), one(pa.list_(pa.int64()), [2])),
    "decimal(10,2), decimal(12,4)": (
        one(pa.decimal128(10, 2), decimal.Decimal("1.25")),
        one(pa.decimal128(12, 4), decimal.Decimal("1.2345")),
    ),
    "timestamp ms, us": (
        one(pa.timestamp("ms"), NOON),
        one(pa.timestamp("us"), NOON.replace(microsecond=7)),
    ),
    "naive, UTC": (one(pa.timestamp("us"), NOON), one(pa.timestamp("us", "UTC"), NOON)),
    "date, timestamp": (one(pa.date32(), NOON.date()), one(pa.timestamp("us"), NOON)),
    "dictionary, plain": (
        one(pa.dictionary(pa.int32(), pa.string()), "x"),
        one(pa.string(), "y"),
    ),
}


def pyarrow_rows(paths: list[str]) -> list[Row]:
    return ds.dataset(paths, format="parquet").to_table().to_pylist()


def duckdb_rows(paths: list[str]) -> list[Row]:
    return duckdb.read_parquet(paths).to_arrow_table().to_pylist()


def duckdb_union_rows(paths: list[str]) -> list[Row]:
    return duckdb.read_parquet(paths, union_by_name=True).to_arrow_table().to_pylist()


def polars_rows(paths: list[str]) -> list[Row]:
    return pl.scan_parquet(paths).collect().to_dicts()


def datafusion_rows(paths: list[str]) -> list[Row]:
    context = datafusion.SessionContext()
    context.register_parquet("t", str(Path(paths[0]).parent))
    return context.sql("select * from t").to_arrow_table().to_pylist()


def plait_rows(paths: list[str]) -> list[Row]:
    return pa.table(plait.scan(paths)).to_pylist()


def spark_reader(*, merge: bool) -> Callable[[list[str]], list[Row]]:
    """Reads with Spark; one session for all pairs."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )

    def rows(paths: list[str]) -> list[Row]:
        frame = spark.read.option("mergeSchema", str(merge).lower()).parquet(*paths)
        return [row.asDict(recursive=True) for row in frame.collect()]

    return rows


def normal(value: Any) -> Any:
    """A value as all engines would give it."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None)
    if isinstance(value, decimal.Decimal):
        return value.normalize()
    if isinstance(value, dict):
        return {name: normal(inner) for name, inner in value.items() if inner is not None}
    return [normal(inner) for inner in value] if isinstance(value, list) else value


def verdict(got: list[Row], wanted: list[Row]) -> str:
    """What an engine made of rows: `ok`, or how it lost something."""
    if len(got) != len(wanted):
        return "**drops**"
    cast = united = False
    for row in wanted:
        for name, value in row.items():
            if value is None:
                continue
            if not any(name in other for other in got):
                folded = [normal(v) for o in got for n, v in o.items() if n.lower() == name.lower()]
                if normal(value) not in folded:
                    return "**drops**"
                united = True
                continue
            raw = [other.get(name) for other in got]
            found = [normal(other) for other in raw]
            if normal(value) in found and not (
                isinstance(value, int) and int(found[found.index(normal(value))]) != value
            ):
                same = raw[found.index(normal(value))]
                cast |= getattr(value, "tzinfo", None) is None is not getattr(same, "tzinfo", None)
                cast |= getattr(same, "tzinfo", None) is None is not getattr(value, "tzinfo", None)
                continue
            if str(value) in found or str(normal(value)) in found:
                cast = True
                continue
            if isinstance(value, dict) and any(
                isinstance(f, dict) and f.items() <= normal(value).items() for f in found
            ):
                return "**drops**"
            if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
                if dt.datetime(value.year, value.month, value.day) in found:
                    cast = True
                    continue
            return "**null**" if None in found else "**wrong**"
    if united:
        return "one"
    return "cast" if cast else "ok"


def judge(read: Callable[[list[str]], list[Row]], paths: list[Path], wanted: list[Row]) -> str:
    try:
        return verdict(read([str(path) for path in paths]), wanted)
    except Exception:
        return "–"
    except BaseException as e:  # a panic of a Rust engine is no Exception
        if type(e).__name__ == "PanicException":
            return "panic"
        raise


def table() -> str:
    """The table as Markdown."""
    engines: dict[str, Callable[[list[str]], list[Row]]] = {
        "Plait": plait_rows,
        "PyArrow": pyarrow_rows,
        "DuckDB": duckdb_rows,
        "DuckDB, by name": duckdb_union_rows,
        "Polars": polars_rows,
        "DataFusion": datafusion_rows,
        "Spark": spark_reader(merge=False),
        "Spark, merged": spark_reader(merge=True),
    }
    lines = ["| files | " + " | ".join(engines) + " |", "|---" * (len(engines) + 1) + "|"]
    for name, (first, second) in PAIRS.items():
        cells = []
        wanted = first.to_pylist() + second.to_pylist()
        for read in engines.values():
            found = []
            for order in ((first, second), (second, first)):
                with tempfile.TemporaryDirectory() as folder:
                    paths = [Path(folder) / f"{i}.parquet" for i in range(2)]
                    for path, part in zip(paths, order, strict=True):
                        pq.write_table(part, path)
                    found.append(judge(read, paths, wanted))
            cells.append(found[0] if found[0] == found[1] else " / ".join(found))
        assert not re.search(r"\*\*|panic", cells[0]), f"Plait loses data: {name}: {cells[0]}"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    versions = [
        f"PyArrow {pa.__version__}",
        f"DuckDB {duckdb.__version__}",
        f"Polars {pl.__version__}",
    ]
    versions.append(f"DataFusion {datafusion.__version__}")
    import pyspark

    versions.append(f"Spark {pyspark.__version__}")
    return "\n".join(lines) + "\n\n" + ", ".join(versions) + ".\n"


def main() -> None:
    """Prints the table, or writes it into the guide."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="put the table into the guide")
    text = table() if not parser.parse_args().write else ""
    if text:
        print(text)
        return
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    GUIDE.write_text(f"{before}{BEGIN}\n{table()}{END}{after}")


if __name__ == "__main__":
    main()
