"""Engines that answer predicates: DuckDB, Polars, DataFusion, PyArrow and Spark.

Every engine opens files once and gives the row numbers for which a predicate holds, or `Unsupported`.
Held in memory, the same rows tell what the engine takes the predicate for, without any statistics.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from .predicates import ROW, Predicate

EPOCH = dt.datetime(1970, 1, 1)
DAY = 86_400_000_000


class Unsupported(Exception):
    """The engine has no such type or operator."""


class PyArrow:
    name = "pyarrow"

    def open(self, files: Sequence[str]) -> ds.Dataset:
        return ds.dataset(list(files), format="parquet")

    def hold(self, table: pa.Table) -> pa.Table:
        return table

    def answer(self, dataset: ds.Dataset | pa.Table, asked: Predicate, row: str = ROW) -> list[Any]:
        if len(asked.column.path) > 1 and asked.op == "null":
            # The Arrow kernel for a member does not see that its struct is null.
            raise Unsupported
        field, values = pc.field(*asked.column.path), asked.scalars()
        match asked.op:
            case "null":
                held = field.is_null()
            case "nan":
                held = pc.is_nan(field)
            case "prefix":
                held = pc.starts_with(field, asked.values[0])
            case "in":
                held = field.isin(pa.array(asked.values, asked.column.type))
            case "between":
                held = (field >= values[0]) & (field <= values[1])
            case _:
                held = {"=": operator.eq, "<": operator.lt, ">=": operator.ge}[asked.op](
                    field, values[0]
                )
        if isinstance(dataset, pa.Table):
            return dataset.filter(held)[row].to_pylist()
        return dataset.to_table(columns=[row], filter=held)[row].to_pylist()


class Polars:
    name = "polars"

    def open(self, files: Sequence[str]) -> pl.LazyFrame:
        return pl.scan_parquet(list(files))

    def hold(self, table: pa.Table) -> pl.LazyFrame:
        return pl.from_arrow(table).lazy()

    def answer(self, frame: pl.LazyFrame, asked: Predicate, row: str = ROW) -> list[Any]:
        column = pl.col(asked.column.path[0])
        for name in asked.column.path[1:]:
            column = column.struct.field(name)
        if pa.types.is_fixed_size_binary(asked.column.type):
            values = pl.from_arrow(pa.array(asked.values, pa.binary()))
        else:
            values = pl.from_arrow(pa.array(asked.values, asked.column.type))
        one = [pl.lit(value, dtype=values.dtype) for value in values]
        match asked.op:
            case "null":
                held = column.is_null()
            case "nan":
                held = column.is_nan()
            case "prefix":
                held = column.str.starts_with(asked.values[0])
            case "in":
                held = column.is_in(values.implode())
            case "between":
                held = column.is_between(one[0], one[1])
            case _:
                held = {"=": operator.eq, "<": operator.lt, ">=": operator.ge}[asked.op](
                    column, one[0]
                )
        return frame.filter(held).select(row).collect()[row].to_list()


class DataFusion:
    name = "datafusion"

    def __init__(self, **settings: str) -> None:
        from datafusion import SessionConfig, SessionContext

        config = SessionConfig().with_target_partitions(1)
        for key, value in settings.items():
            config = config.set(f"datafusion.execution.parquet.{key}", value)
        self.context = SessionContext(config)

    def open(self, files: Sequence[str]) -> Any:
        return self.context.read_parquet(str(Path(files[0]).parent) + "/")

    def hold(self, table: pa.Table) -> Any:
        return self.context.from_arrow(table)

    def answer(self, frame: Any, asked: Predicate, row: str = ROW) -> list[Any]:
        from datafusion import col, functions, lit

        column = col(f'"{asked.column.path[0]}"')
        for name in asked.column.path[1:]:
            column = column[name]
        values = [lit(value) for value in asked.scalars()]
        match asked.op:
            case "null":
                held = column.is_null()
            case "nan":
                held = functions.isnan(column)
            case "prefix":
                held = functions.starts_with(column, lit(asked.values[0]))
            case "in":
                held = functions.in_list(column, values)
            case "between":
                held = column.between(values[0], values[1])
            case _:
                held = {"=": operator.eq, "<": operator.lt, ">=": operator.ge}[asked.op](
                    column, values[0]
                )
        batches = frame.filter(held).select(col(f'"{row}"')).collect()
        return [found for batch in batches for found in batch.column(0).to_pylist()]


# SQL ------------------------------------------------------------------------------------------


def condition(asked: Predicate, column: str, literal: Any, nan: str, prefix: str) -> str:
    values = [literal(asked.column.type, value) for value in asked.values]
    match asked.op:
        case "null":
            return f"{column} is null"
        case "nan":
            return f"{nan}({column})"
        case "prefix":
            return f"{prefix}({column}, {values[0]})"
        case "in":
            return f"{column} in ({', '.join(values)})"
        case "between":
            return f"{column} between {values[0]} and {values[1]}"
        case _:
            return f"{column} {asked.op} {values[0]}"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def real(value: float) -> str:
    return "'nan'" if math.isnan(value) else f"'{value!r}'"


def duckdb_literal(type_: pa.DataType, value: Any) -> str:
    t = pa.types
    if t.is_boolean(type_):
        return str(value)
    if t.is_integer(type_):
        name = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[type_.bit_width]
        return f"CAST('{value}' AS {'U' if t.is_unsigned_integer(type_) else ''}{name})"
    if t.is_floating(type_):
        return f"CAST({real(value)} AS {'FLOAT' if t.is_float32(type_) else 'DOUBLE'})"
    if t.is_decimal(type_):
        return f"CAST('{value:f}' AS DECIMAL({type_.precision},{type_.scale}))"
    if t.is_string(type_):
        return quoted(value)
    if t.is_binary(type_) or t.is_fixed_size_binary(type_):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if t.is_date(type_):
        return f"(DATE '1970-01-01' + CAST({value} AS INTEGER))"
    if t.is_time(type_):
        return f"TIME '{(EPOCH + dt.timedelta(microseconds=value)).time()}'"
    if t.is_timestamp(type_):
        if type_.unit == "ns":
            return f"make_timestamp_ns(CAST('{value}' AS BIGINT))"
        micros = value * (1000 if type_.unit == "ms" else 1)
        made = f"make_timestamp(CAST('{micros}' AS BIGINT))"
        return f"({made} AT TIME ZONE 'UTC')" if type_.tz else made
    raise Unsupported


class DuckDB:
    name = "duckdb"

    def __init__(self) -> None:
        self.database = duckdb.connect()
        self.database.execute("SET TimeZone='UTC'; SET threads=1")

    def open(self, files: Sequence[str]) -> str:
        return "read_parquet([" + ", ".join(quoted(file) for file in files) + "])"

    def hold(self, table: pa.Table) -> str:
        self.database.register("arrow", table)
        self.database.execute("create or replace temp table held as from arrow")
        return "held"

    def answer(self, files: str, asked: Predicate, row: str = ROW) -> list[Any]:
        column = ".".join(f'"{name}"' for name in asked.column.path)
        where = condition(asked, column, duckdb_literal, "isnan", "starts_with")
        found = self.database.execute(f'select "{row}" from {files} where {where}').fetchall()
        return [value for (value,) in found]


def spark_literal(type_: pa.DataType, value: Any) -> str:
    t = pa.types
    if t.is_boolean(type_):
        return str(value)
    if t.is_integer(type_) and not t.is_unsigned_integer(type_):
        name = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}[type_.bit_width]
        return f"CAST('{value}' AS {name})"
    if t.is_floating(type_):
        return f"CAST({real(value)} AS {'FLOAT' if t.is_float32(type_) else 'DOUBLE'})"
    if t.is_decimal(type_):
        return f"CAST('{value:f}' AS DECIMAL({type_.precision},{type_.scale}))"
    if t.is_string(type_):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if t.is_binary(type_):
        return f"X'{value.hex()}'"
    if t.is_date(type_):
        return f"date_from_unix_date({value})"
    if t.is_timestamp(type_) and type_.unit == "us":
        made = f"timestamp_micros({value})"
        return made if type_.tz else f"CAST({made} AS TIMESTAMP_NTZ)"
    raise Unsupported


class Spark:
    name = "spark"

    def __init__(self, session: Any) -> None:
        self.session = session

    def open(self, files: Sequence[str]) -> Any:
        return self.session.read.parquet(*files)

    def answer(self, frame: Any, asked: Predicate, row: str = ROW) -> list[Any]:
        column = ".".join(f"`{name}`" for name in asked.column.path)
        where = condition(asked, column, spark_literal, "isnan", "startswith")
        return [found[0] for found in frame.where(where).select(f"`{row}`").collect()]


# Truth ----------------------------------------------------------------------------------------


def truth(lake: Any, asked: Predicate, nan_is_greatest: bool) -> set[int]:
    """The rows for which `asked` holds, by their values; engines differ in what NaN is."""
    values = lake.table[asked.column.path[0]]
    for name in asked.column.path[1:]:
        values = pc.struct_field(values, name)
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())

    def place(value: Any) -> Any:
        is_nan = isinstance(value, float) and math.isnan(value)
        return (is_nan, 0.0 if is_nan else value)

    def compare(value: Any, other: Any, op: Any) -> bool:
        if nan_is_greatest and isinstance(value, float):
            return op(place(value), place(other))
        return op(value, other)

    holds = functools.partial(_holds, asked, compare)
    rows = zip(lake.table[ROW].to_pylist(), values.to_pylist(), strict=True)
    return {found for found, value in rows if holds(value)}


def _holds(asked: Predicate, compare: Any, value: Any) -> bool:
    if asked.op == "null":
        return value is None
    if value is None:
        return False
    match asked.op:
        case "nan":
            return math.isnan(value)
        case "prefix":
            return value.startswith(asked.values[0])
        case "in":
            return any(compare(value, other, operator.eq) for other in asked.values)
        case "between":
            low, high = asked.values
            return compare(value, low, operator.ge) and compare(value, high, operator.le)
        case _:
            op = {"=": operator.eq, "<": operator.lt, ">=": operator.ge}[asked.op]
            return compare(value, asked.values[0], op)
