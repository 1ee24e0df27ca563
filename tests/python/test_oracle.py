"""Random merges against an oracle of ten lines: concatenate, sort stably.

A case is made from its number alone. CI runs 2,000, a checkout 200; a failure names the number:

    PLAIT_ORACLE_CASE=1234 pytest tests/python/test_oracle.py
"""

import decimal
import functools
import hashlib
import itertools
import math
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

SEED = int(os.environ.get("PLAIT_ORACLE_SEED", "20261121"))
CASES = 800 if os.environ.get("CI") else 200
PARTS = 4  # for as many processes

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A key column: its name, direction and where nulls go."""

    name: str
    descending: bool
    nulls_first: bool

    def text(self) -> str:
        direction = "-" if self.descending else ""
        return f"{direction}{self.name} nulls {'first' if self.nulls_first else 'last'}"


# The oracle -----------------------------------------------------------------------------------


def ordered(value: Any) -> tuple[int, Any]:
    """A value as something that Python compares as Plait does: NaN greatest, -0.0 equal to 0.0."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return (0, value.encode() if isinstance(value, str) else value)


def compare(a: Row, b: Row, key: list[Column]) -> int:
    """Negative, zero or positive, as `a` comes before, with or after `b`."""
    for column in key:
        x, y = a[column.name], b[column.name]
        if x is None or y is None:
            if (x is None) != (y is None):
                return -1 if (x is None) == column.nulls_first else 1
        elif ordered(x) != ordered(y):
            return -1 if (ordered(x) < ordered(y)) != column.descending else 1
    return 0


def oracle(sources: list[list[Row]], key: list[Column]) -> list[Row]:
    """Concatenate, sort stably."""
    rows = [row for source in sources for row in source]
    return sorted(rows, key=functools.cmp_to_key(lambda a, b: compare(a, b, key)))


# Random input ---------------------------------------------------------------------------------

ALL_TIERS = ("chunk", "page", "dict")
FLOATS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324]
TEXTS = ["", "a", "a\0", "a\0b", "ab", "\0", "\0\0", "ÿ", "😀", "b"]

Make = Callable[[random.Random], Any]

SCALARS: list[tuple[pa.DataType, Make]] = [
    (pa.int8(), lambda r: r.randint(-4, 4)),
    (pa.int32(), lambda r: r.choice([-(2**31), -1, 0, 1, 2**31 - 1])),
    (pa.uint32(), lambda r: r.choice([0, 1, 2**31, 2**32 - 1])),
    (pa.int64(), lambda r: r.choice([-(2**63), -5, 0, 5, 2**63 - 1])),
    (pa.uint64(), lambda r: r.choice([0, 7, 2**63, 2**64 - 1])),
    (pa.float32(), lambda r: r.choice([f for f in FLOATS if f != 5e-324])),
    (pa.float64(), lambda r: r.choice(FLOATS)),
    (pa.bool_(), lambda r: r.random() < 0.5),
    (pa.string(), lambda r: r.choice(TEXTS)),
    (pa.binary(), lambda r: r.choice([b"", b"\0", b"\0\1", b"\xff", b"\xff\xff"])),
    (pa.binary(2), lambda r: r.choice([b"\0\0", b"\0\1", b"\xff\xfe"])),
    (pa.decimal128(7, 2), lambda r: decimal.Decimal(r.randint(-300, 300)) / 100),
    (pa.decimal128(25, 3), lambda r: decimal.Decimal(r.randint(-(10**20), 10**20)) / 1000),
    (pa.timestamp("us"), lambda r: r.choice([-(10**12), 0, 10**15])),
    (pa.date32(), lambda r: r.randint(-3, 3)),
    (pa.timestamp("ns", tz="UTC"), lambda r: r.choice([-(10**12), 0, 1000, 10**15])),
    (pa.time64("us"), lambda r: r.choice([0, 1, 86_399_999_999])),
    (pa.decimal256(60, 5), lambda r: decimal.Decimal(r.choice([-(10**50), -1, 0, 7, 10**50]))),
    (pa.large_string(), lambda r: r.choice(TEXTS)),
    (pa.large_binary(), lambda r: r.choice([b"", b"\0", b"\0\1", b"\xff"])),
]
# Only as whole columns: PyArrow cannot write a struct whose dictionary has nothing but nulls when
# `use_dictionary=False`.
COLUMNS: list[tuple[pa.DataType, Make]] = [
    *SCALARS,
    (pa.dictionary(pa.int32(), pa.string()), lambda r: r.choice(TEXTS)),
]


DEPTH = 3


def random_type(rng: random.Random, depth: int) -> tuple[pa.DataType, Make]:
    """A type, nested up to `depth`, and how to make a value of it."""
    kind = rng.choice(["scalar", "scalar", "list", "struct", "map"])
    if depth == 0 or kind == "scalar":
        return rng.choice(COLUMNS if depth == DEPTH else SCALARS)
    inner, make = random_type(rng, depth - 1)
    some = maybe(make, 0.2)
    if kind == "list":
        return pa.list_(inner), lambda r: [some(r) for _ in range(r.choice([0, 0, 1, 3]))]
    if kind == "map":
        return pa.map_(pa.string(), inner), lambda r: [
            (f"k{i}", some(r)) for i in range(r.choice([0, 1, 2]))
        ]
    other, make_other = random_type(rng, depth - 1)
    fields = [pa.field("x", inner), pa.field("y", other)]
    return pa.struct(fields), lambda r: {"x": some(r), "y": maybe(make_other, 0.2)(r)}


def maybe(make: Make, share: float) -> Make:
    """Makes a null now and then."""
    return lambda r: None if r.random() < share else make(r)


def random_schema(rng: random.Random) -> tuple[pa.Schema, list[tuple[str, Make]], list[Column]]:
    """A schema of key and body columns in random places, and a sort order."""
    fields, makers, key = [], [], []
    for i in range(rng.choice([1, 1, 2, 3, 4])):
        data_type, make = rng.choice(COLUMNS)
        nullable = rng.random() < 0.7
        fields.append(pa.field(f"k{i}", data_type, nullable=nullable))
        makers.append((f"k{i}", maybe(make, 0.15) if nullable else make))
        key.append(Column(f"k{i}", rng.random() < 0.4, rng.random() < 0.4))
    for i in range(rng.randint(0, 3)):
        data_type, make = random_type(rng, DEPTH)
        nullable = rng.random() < 0.8
        fields.append(pa.field(f"b{i}", data_type, nullable=nullable))
        makers.append((f"b{i}", maybe(make, 0.2) if nullable else make))
    both = list(zip(fields, makers, strict=True))
    rng.shuffle(both)
    fields = [field for field, _ in both] + [pa.field("row", pa.int64(), nullable=False)]
    return pa.schema(fields), [maker for _, maker in both], key


def random_sources(
    rng: random.Random, schema: pa.Schema, makers: list[tuple[str, Make]], key: list[Column]
) -> list[list[Row]]:
    """Sorted sources; `row` numbers all rows, so that ties show their order."""
    sources, number = [], 0
    most = 1500 if rng.random() < 0.02 else 40
    for _ in range(rng.randint(1, 6)):
        rows = [
            {name: make(rng) for name, make in makers}
            for _ in range(rng.choice([0, 1, rng.randint(1, most), rng.randint(1, most)]))
        ]
        # What the file gives back is what counts: floats of 32 bits, times, decimals.
        arrays = [pa.array([r[f.name] for r in rows], f.type) for f in schema if f.name != "row"]
        stored = pa.table(arrays, names=[f.name for f in schema if f.name != "row"]).to_pylist()
        stored = oracle([stored], key)
        for row in stored:
            row["row"] = number
            number += 1
        sources.append(stored)
    return sources


def write(rng: random.Random, rows: list[Row], schema: pa.Schema, path: Path) -> None:
    """Writes a source in a random way."""
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    pq.write_table(
        pa.table(arrays, schema=schema),
        path,
        row_group_size=rng.choice([1, 3, 7, 20, 5000]),
        data_page_size=rng.choice([1, 50, 1 << 20]),
        write_batch_size=rng.choice([1, 4, 1024]),
        data_page_version=rng.choice(["1.0", "2.0"]),
        use_dictionary=rng.random() < 0.6,
        write_page_index=rng.random() < 0.5,
        compression=rng.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        write_page_checksum=rng.random() < 0.3,
    )


def random_options(rng: random.Random, key: list[Column]) -> dict[str, Any]:
    """Options that shape the outputs but not the rows."""
    options: dict[str, Any] = {
        "row_group_rows": rng.choice([1, 5, 33, 1_000_000]),
        "row_group_size": rng.choice([1, 3_000, 128_000_000, 128_000_000]),
        "page_rows": rng.choice([1, 4, 20_000]),
        "page_size": rng.choice([1, 100, 1_000_000]),
        "threads": rng.randint(1, 4),
        "memory_limit": rng.choice(["16MB", "64MB", "512MB"]),
        "cut_on": rng.choice([None, *range(1, len(key) + 1)]),
        "align_row_groups": rng.choice([0, 0, *range(1, len(key) + 1)]),
        "compression": rng.choice([None, None, "none", "snappy", "zstd(3)", "gzip", "lz4_raw"]),
        "dictionary": rng.choice([None, None, True, False]),
        "data_page_version": rng.choice([None, None, 1, 2]),
        "copy_tiers": rng.choice([(), ("chunk",), ("page",), ("dict",), ALL_TIERS, ALL_TIERS]),
        "verify_order": rng.choice(["bounds", "full"]),
        "verify": rng.choice([None, "content"]),
    }
    size = rng.choice(["outputs", "target_rows", "target_file_size", None])
    if size == "outputs":
        options["outputs"] = rng.randint(1, 6)
    elif size == "target_rows":
        options["target_rows"] = rng.randint(1, 60)
    elif size == "target_file_size":
        options["target_file_size"] = rng.choice([1, 2_000, 20_000])
    return options


# The test -------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Equal to the bit: NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def read(report: plait.MergeReport) -> list[list[Row]]:
    return [pq.read_table(output.path).to_pylist() for output in report.outputs]


def digests(report: plait.MergeReport) -> list[tuple[str, str]]:
    paths = [Path(output.path) for output in report.outputs]
    return [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths]


def check_outputs(
    outputs: list[list[Row]], key: list[Column], options: dict[str, Any], report: plait.MergeReport
) -> None:
    """Disjoint on the cut key, as many as promised, row groups aligned."""
    cut = key[: options["cut_on"] or len(key)]
    full = [rows for rows in outputs if rows]
    for before, after in itertools.pairwise(full):
        assert compare(before[-1], after[0], cut) < 0
    rows = [row for output in full for row in output]
    distinct = sum(1 for i, row in enumerate(rows) if i == 0 or compare(rows[i - 1], row, cut) != 0)
    if "outputs" in options and rows:
        assert len(outputs) == min(options["outputs"], distinct)
    if "target_rows" in options:
        for output in full[:-1]:
            assert len(output) >= options["target_rows"]
            # One row less would have been too few: only the last cut key may overshoot.
            body = [row for row in output if compare(row, output[-1], cut) != 0]
            assert len(body) < options["target_rows"]
    if aligned := key[: options["align_row_groups"]]:
        for output in report.outputs:
            file = pq.ParquetFile(output.path)
            for group in range(file.num_row_groups):
                part = file.read_row_group(group).to_pylist()
                assert compare(part[0], part[-1], aligned) == 0


def run_case(number: int, folder: Path) -> None:
    rng = random.Random(f"{SEED}/{number}")
    schema, makers, key = random_schema(rng)
    sources = random_sources(rng, schema, makers, key)
    paths = [folder / f"in-{i}.parquet" for i in range(len(sources))]
    for rows, path in zip(sources, paths, strict=True):
        write(rng, rows, schema, path)
    options = random_options(rng, key)
    sort_by = ", ".join(column.text() for column in key)
    report = plait.merge(paths, folder / "out", sort_by=sort_by, **options)

    outputs = read(report)
    got = [row for output in outputs for row in output]
    expected = oracle(sources, key)
    assert [row["row"] for row in got] == [row["row"] for row in expected]
    assert same(got, expected)
    check_outputs(outputs, key, options, report)
    assert report.rows_in == report.rows_out == len(expected)
    for output in report.outputs:
        assert pq.read_schema(output.path).equals(schema)

    checks = rng.sample(range(5), 2)
    if 0 in checks:  # the same merge again: the same names, the same bytes
        again = plait.merge(paths, folder / "out", sort_by=sort_by, **options)
        assert digests(again) == digests(report)
    if 1 in checks:  # other threads: the same bytes
        other = {**options, "threads": 5 - options["threads"]}
        again = plait.merge(paths, folder / "threads", sort_by=sort_by, **other)
        assert digests(again) == digests(report)
    if 2 in checks:  # other tiers: the same rows
        other = {**options, "copy_tiers": () if options["copy_tiers"] else ALL_TIERS}
        again = plait.merge(paths, folder / "tiers", sort_by=sort_by, **other)
        assert same([row for output in read(again) for row in output], expected)
    if 3 in checks:  # anybody can check it
        verified = plait.verify(folder / "out", against=paths, sort_by=sort_by)
        assert verified.ok
        assert verified.rows == len(expected)
    if 4 in checks and len(paths) > 1:  # merged in two steps: the same rows
        first = folder / "first.parquet"
        plait.merge(paths[:2], first, sort_by=sort_by)
        twice = plait.merge([first, *paths[2:]], folder / "twice", sort_by=sort_by)
        assert same([row for output in read(twice) for row in output], expected)


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of merges sync thousands of files."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.few(1)
@pytest.mark.behaviour("merge-01")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_merges_equal_the_oracle(
    part: int, fast_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = os.environ.get("PLAIT_ORACLE_CASE")
    numbers = [int(only)] if only else range(part, CASES, PARTS)
    with capsys.disabled():
        print(f" {len(numbers):,} random merges, PLAIT_ORACLE_SEED={SEED} ", end="", flush=True)
    for number in numbers:
        folder = fast_path / f"{number}"
        folder.mkdir()
        try:
            run_case(number, folder)
        except BaseException:
            again = f"PLAIT_ORACLE_SEED={SEED} PLAIT_ORACLE_CASE={number} pytest {__file__}"
            print(f"to see this case again: {again}")
            raise
        shutil.rmtree(folder)
