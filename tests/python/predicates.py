"""Random predicates, and engines that answer them from the sources and from the outputs of a merge.

A `Lake` is a table dealt to files by some writer, and the outputs of their merge. A `Predicate` is
asked of both; the answer is the row numbers (`_rid`) for which it holds.
"""

from __future__ import annotations

import decimal
import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import plait

ROW = "_rid"
TIERS = ("chunk", "page", "dict")


# Values ---------------------------------------------------------------------------------------


def number(bits: int, signed: bool) -> Callable[[random.Random], int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return lambda rng: rng.choice((low, high, 0, 1, low + 1, high - 1, rng.randint(low, high)))


def real(rng: random.Random) -> float:
    special = (math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 1.5, -1.5, 5e-324)
    return rng.choice(special) if rng.random() < 0.6 else round(rng.uniform(-9, 9), 1)


def single(rng: random.Random) -> float:
    return struct.unpack("f", struct.pack("f", real(rng)))[0]


def text(rng: random.Random) -> str:
    head = rng.choice(
        ("", "a", "ab", "zeta ", "p" * 63, "p" * 64, "p" * 1023, "é" * 40, "\U0010ffff" * 20)
    )
    return head + rng.choice(("", "a", "b", "é", "~", "\U0010ffff", "中"))


def octets(rng: random.Random) -> bytes:
    head = rng.choice((b"", b"\0", b"a", b"\xff", b"\xff" * 64, b"\xff" * 1100, b"p" * 70))
    return head + rng.choice((b"", b"\0", b"\xff", b"\x80", b"b"))


def exact(precision: int, scale: int) -> Callable[[random.Random], decimal.Decimal]:
    top = 10**precision - 1
    context = decimal.Context(prec=60)

    def value(rng: random.Random) -> decimal.Decimal:
        digits = rng.choice((0, 1, -1, top, -top, rng.randint(-top, top), rng.randint(-99, 99)))
        return decimal.Decimal(digits).scaleb(-scale, context)

    return value


def moment(per_second: int) -> Callable[[random.Random], int]:
    # From 1700 to 2250: what nanoseconds reach.
    def value(rng: random.Random) -> int:
        seconds = rng.choice((-8_500_000_000, -1, 0, 8_800_000_000, rng.randint(0, 2 * 10**9)))
        return seconds * per_second + rng.randrange(per_second)

    return value


UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TYPES: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    **{f"i{n}": (getattr(pa, f"int{n}")(), number(n, True)) for n in (8, 16, 32, 64)},
    **{f"u{n}": (getattr(pa, f"uint{n}")(), number(n, False)) for n in (8, 16, 32, 64)},
    "f32": (pa.float32(), single),
    "f64": (pa.float64(), real),
    "text": (pa.string(), text),
    "bytes": (pa.binary(), octets),
    "fixed3": (
        pa.binary(3),
        lambda rng: rng.choice((b"\xff\xff", b"\0\0", b"ab")) + rng.choice((b"\xff", b"\0", b"c")),
    ),
    "fixed16": (
        pa.binary(16),
        lambda rng: rng.choice((b"\xff", b"\0", b"a")) * 15 + rng.choice((b"\xff", b"\0", b"c")),
    ),
    "dec5": (pa.decimal128(5, 2), exact(5, 2)),
    "dec18": (pa.decimal128(18, 3), exact(18, 3)),
    "dec38": (pa.decimal128(38, 10), exact(38, 10)),
    "date": (pa.date32(), lambda rng: rng.choice((-90_000, -1, 0, 95_000, rng.randint(0, 20_000)))),
    **{f"ts_{unit}": (pa.timestamp(unit), moment(n)) for unit, n in UNITS.items() if unit != "s"},
    "tz_us": (pa.timestamp("us", "UTC"), moment(10**6)),
    "time_us": (
        pa.time64("us"),
        lambda rng: rng.choice((0, 86_399_999_999, rng.randrange(86_400_000_000))),
    ),
}
# What all writers and Spark keep as it is.
COMMON = ("bool", "i32", "i64", "f32", "f64", "text", "bytes", "dec5", "dec18", "date", "ts_us")
NESTED = ("i32", "i64", "f64", "text", "dec18", "date")


@dataclass(frozen=True)
class Column:
    """A leaf that predicates are about: its path and type; lists and structs only as a whole."""

    path: tuple[str, ...]
    type: pa.DataType
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Predicate:
    column: Column
    op: str
    values: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{'.'.join(self.column.path)} ({self.column.type}) {self.op} {self.values!r:.200}"

    def scalars(self) -> list[pa.Scalar]:
        return [pa.scalar(value, self.column.type) for value in self.values]


@dataclass(frozen=True)
class Lake:
    note: str
    table: pa.Table
    columns: tuple[Column, ...]
    sources: tuple[str, ...]
    outputs: tuple[str, ...]
    row: str = ROW


def random_array(rng: random.Random, kind: str, rows: int) -> pa.Array:
    """Values of few kinds in stretches: of all sorts, sorted, of one value, of nothing but nulls."""
    type_, draw = TYPES[kind]
    pool = [draw(rng) for _ in range(rng.choice((1, 2, 5, 40)))]
    values: list[Any] = []
    nulls = rng.choice((0, 0.1, 0.6))
    while len(values) < rows:
        size = rng.choice((3, 20, 90, rows))
        manner = rng.random()
        if manner < 0.15 and nulls:
            values += [None] * size
        elif manner < 0.3:
            values += [math.nan if kind in ("f32", "f64") else rng.choice(pool)] * size
        else:
            values += [None if rng.random() < nulls else rng.choice(pool) for _ in range(size)]
    made = pa.array(values[:rows], type_)
    if rng.random() < 0.3:
        made = made.take(pc.sort_indices(made))
    return made


def random_table(
    rng: random.Random, kinds: tuple[str, ...], rows: int, *, lists: bool
) -> tuple[pa.Table, list[str]]:
    """Columns of random kinds, sorted by one or two of them; and the key."""
    chosen = [rng.choice(kinds) for _ in range(rng.choice((3, 4, 5)))]
    columns: dict[str, pa.Array] = {
        f"c{i}": random_array(rng, kind, rows) for i, kind in enumerate(chosen)
    }
    # Writers have two types for text and for lists.
    inner = [
        rng.choice([kind for kind in NESTED if kind in kinds and (lists or kind != "text")])
        for _ in range(2)
    ]
    mask = pa.array([rng.random() < 0.2 for _ in range(rows)])
    fields = [random_array(rng, kind, rows) for kind in inner]
    columns["s"] = pa.StructArray.from_arrays(fields, ["x", "y"], mask=mask)
    if lists:
        items = random_array(rng, inner[0], rows)
        cut = [
            None if rng.random() < 0.2 else items[i : i + rng.randrange(3)].to_pylist()
            for i in range(rows)
        ]
        columns["l"] = pa.array(cut, pa.list_(items.type))
    table = pa.table(columns)
    key = rng.sample([f"c{i}" for i in range(len(chosen))], rng.choice((1, 1, 2)))
    order = pc.sort_indices(table, [(name, "ascending") for name in key])
    return table.take(order).append_column(ROW, pa.array(range(rows), pa.int64())), key


# Writers --------------------------------------------------------------------------------------


def write_pyarrow(rng: random.Random, table: pa.Table, path: str, form: dict[str, Any]) -> None:
    leaves = [name for name in table.column_names if name not in ("s", "l")]
    pq.write_table(
        table,
        path,
        row_group_size=rng.choice((7, 40, 5000)),
        data_page_size=rng.choice((1, 100, 1 << 20)),
        write_batch_size=rng.choice((1, 8, 1024)),
        data_page_version=rng.choice(("1.0", "2.0")),
        use_dictionary=rng.random() < 0.6,
        write_statistics=rng.choice((True, True, False, rng.sample(leaves, 2))),
        write_page_index=rng.random() < 0.6,
        compression=rng.choice(("none", "snappy", "zstd")),
        store_decimal_as_integer=rng.random() < 0.3,
        **form,
    )


def random_form(rng: random.Random, table: pa.Table) -> dict[str, Any]:
    """What decides the types of a file, alike for all files of a lake."""
    return {
        "version": "2.6"
        if pa.timestamp("ns") in table.schema.types
        else rng.choice(("1.0", "2.4", "2.6")),
        # INT96 has no time zone: Polars refuses to compare it with times that have one.
        "use_deprecated_int96_timestamps": rng.random() < 0.2
        and pa.timestamp("us", "UTC") not in table.schema.types,
        "store_schema": rng.random() < 0.8,
    }


def write_polars(rng: random.Random, table: pa.Table, path: str, form: dict[str, Any]) -> None:
    pl.from_arrow(table).write_parquet(
        path,
        compression=rng.choice(("uncompressed", "snappy", "zstd")),
        row_group_size=rng.choice((16, 100, 5000)),
        data_page_size=rng.choice((100, 1 << 20)),
        statistics=rng.choice((True, True, False, "full")),
    )


def write_duckdb(rng: random.Random, table: pa.Table, path: str, form: dict[str, Any]) -> None:
    codec, rows = rng.choice(("uncompressed", "snappy", "zstd")), rng.choice((2048, 5000))
    version = rng.choice(("v1", "v2"))
    duckdb.connect().register("t", table).execute(
        f"copy t to '{path}' (format parquet, codec {codec}, row_group_size {rows}, parquet_version {version})"
    )


def write_datafusion(rng: random.Random, table: pa.Table, path: str, form: dict[str, Any]) -> None:
    from datafusion import ParquetWriterOptions, SessionContext

    options = ParquetWriterOptions(
        data_pagesize_limit=rng.choice((50, 1 << 20)),
        writer_version=rng.choice(("1.0", "2.0")),
        compression=rng.choice(("uncompressed", "snappy", "zstd(3)")),
        dictionary_enabled=rng.random() < 0.5,
        statistics_enabled=rng.choice(("page", "page", "chunk", "none")),
        max_row_group_size=rng.choice((20, 5000)),
        column_index_truncate_length=rng.choice((1, 5, 64)),
        statistics_truncate_length=rng.choice((1, 5, 64)),
        data_page_row_count_limit=rng.choice((1, 10, 20_000)),
        bloom_filter_on_write=rng.random() < 0.3,
        write_batch_size=rng.choice((1, 10, 1024)),
    )
    SessionContext().from_arrow(table).write_parquet_with_options(path, options)


WRITERS = {
    "pyarrow": write_pyarrow,
    "polars": write_polars,
    "duckdb": write_duckdb,
    "datafusion": write_datafusion,
}


# Lakes ----------------------------------------------------------------------------------------


def options(rng: random.Random, names: list[str]) -> dict[str, Any]:
    """Options that shape outputs, but not their rows."""
    chosen: dict[str, Any] = {
        "row_group_rows": rng.choice((10, 40, 40, 300, 1_000_000)),
        "page_rows": rng.choice((2, 10, 20_000)),
        "page_size": rng.choice((1, 1_000_000)),
        "copy_tiers": rng.choice((TIERS, TIERS, TIERS, ("chunk",), ("page",), ("dict",), ())),
        "outputs": rng.choice((None, None, 2)),
        "threads": rng.choice((1, 2)),
        "dictionary": rng.choice((None, None, None, True, False)),
        "data_page_version": rng.choice((None, None, None, 1, 2)),
        "compression": rng.choice((None, None, None, "zstd(1)")),
        "statistics": rng.choice(("page", "page", "chunk", "none", {rng.choice(names): "chunk"})),
        "memory_limit": "64MB",
    }
    if rng.random() < 0.3:
        chosen["bloom_filters"] = [rng.choice(names)]
    return chosen


def deal(rng: random.Random, table: pa.Table, count: int) -> list[pa.Table]:
    """The rows in as many sorted parts: one after the other, or mixed, or partly so."""
    rows, manner = table.num_rows, rng.choice(("after", "after", "mixed", "partly"))
    if manner == "mixed":
        of = [rng.randrange(count) for _ in range(rows)]
    else:
        of = [min(i * count // rows, count - 1) for i in range(rows)]
        if manner == "partly":
            of = [rng.randrange(count) if rng.random() < 0.05 else part for part in of]
    picked = [[i for i in range(rows) if of[i] == part] for part in range(count)]
    return [table.take(pa.array(rows, pa.int64())).combine_chunks() for rows in picked]


def columns_of(table: pa.Table) -> tuple[Column, ...]:
    """What predicates are asked of, with values that occur."""
    found = []
    for name in table.column_names:
        values = table[name]
        if name == "s":
            found += [
                Column(("s", field.name), field.type, known(pc.struct_field(values, field.name)))
                for field in values.type
            ]
        found.append(Column((name,), values.type, known(values)))
    return tuple(found)


def known(values: pa.ChunkedArray) -> tuple[Any, ...]:
    if pa.types.is_nested(values.type):
        return ()
    if pa.types.is_temporal(values.type):
        wide = pa.int32() if values.type.bit_width == 32 else pa.int64()
        values = values.cast(wide)
    return tuple(dict.fromkeys(values.drop_null().to_pylist()))


def make_lake(
    seed: str, folder: Path, writers: tuple[str, ...] = tuple(WRITERS), kinds=None
) -> Lake:
    rng = random.Random(seed)
    mixed = rng.random() < 0.4 or writers != tuple(WRITERS)
    if kinds is None:
        kinds = COMMON if mixed else tuple(TYPES)
    table, key = random_table(rng, kinds, rng.choice((30, 200, 600)), lists=not mixed)
    chosen = writers if mixed else ("pyarrow",)
    form = {"version": "2.6"} if mixed else random_form(rng, table)
    sources = []
    for i, part in enumerate(deal(rng, table, rng.choice((1, 2, 3, 5)))):
        path = folder / "sources" / f"{i}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = rng.choice(chosen)
        WRITERS[writer](rng, part, str(path), form)
        if writer == "duckdb":
            try:
                pq.read_table(path)
            except OSError:
                # It writes deltas of int32 that PyArrow cannot read, nor the parquet crate.
                write_pyarrow(rng, part, str(path), {"version": "2.6"})
        sources.append(str(path))
    names = [
        name
        for name in table.column_names
        if name not in ("s", "l") and table[name].type != pa.bool_()
    ]
    how = options(rng, names)
    report = plait.merge(sources, folder / "outputs", sort_by=", ".join(key), **how)
    outputs = tuple(output.path for output in report.outputs)
    note = f"lake {seed!r}: key {key}, {how}, copied { ({t: c.rows for t, c in report.copied.items()}) }"
    return Lake(note, table, columns_of(table), tuple(sources), outputs)


def random_predicate(rng: random.Random, lake: Lake) -> Predicate:
    column = rng.choice(lake.columns)
    if not column.values:
        return Predicate(column, "null")
    ops = ["=", "=", "<", ">=", "between", "in", "null"]
    floating, textual = pa.types.is_floating(column.type), pa.types.is_string(column.type)
    op = rng.choice(ops + ["nan"] * (2 * floating) + ["prefix"] * (2 * textual))

    def value() -> Any:
        found = rng.choice(column.values)
        if rng.random() < 0.15:
            kinds = [draw for type_, draw in TYPES.values() if type_ == column.type]
            return kinds[0](rng) if kinds else found
        return found

    if op in ("null", "nan"):
        return Predicate(column, op)
    if op == "prefix":
        return Predicate(column, op, (value()[: rng.choice((1, 2, 64, 70))] or "a",))
    values = [value() for _ in range({"between": 2, "in": rng.choice((1, 2, 5))}.get(op, 1))]
    if op == "between" and not floating:
        values.sort()
    return Predicate(column, op, tuple(values))
