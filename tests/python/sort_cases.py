"""Files in no order, or almost in order, and what sorting them must give.

A case is a list of tables, each disturbed in some way, and an order; the oracle is a stable sort of
all rows behind each other. `file` and `row` number the rows, so that ties show their order.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

KINDS = ("sorted", "late", "reversed", "pieces", "shuffled", "mixed", "swapped")
EPOCH = dt.datetime(2024, 1, 1)

# What a key column is made of: numbers, by types whose order is that of the numbers.
TYPES: dict[str, Callable[[np.ndarray], pa.Array]] = {
    "int64": lambda n: pa.array(n.astype(np.int64) - 1000),
    "int32": lambda n: pa.array(n.astype(np.int32)),
    "int16": lambda n: pa.array((n % 30_000).astype(np.int16)),
    "uint64": lambda n: pa.array(n.astype(np.uint64) + np.uint64(2**63 - 1000)),
    "float64": lambda n: pa.array(n / 7 - 50),
    "float32": lambda n: pa.array((n / 4).astype(np.float32)),
    "text": lambda n: pa.array([f"a longer text that is a key, {i:09}" for i in n], pa.string()),
    "words": lambda n: pa.array([f"w{i:06}" for i in n], pa.string()),
    "binary": lambda n: pa.array([int(i).to_bytes(5, "big") for i in n], pa.binary()),
    "fixed": lambda n: pa.array([int(i).to_bytes(7, "big") for i in n], pa.binary(7)),
    "decimal": lambda n: pa.array([decimal.Decimal(int(i)) / 100 for i in n], pa.decimal128(12, 2)),
    "wide decimal": lambda n: pa.array([decimal.Decimal(int(i)) for i in n], pa.decimal256(50)),
    "date": lambda n: pa.array((n % 90_000).astype(np.int32), pa.date32()),
    "time": lambda n: pa.array(n.astype(np.int64), pa.time64("us")),
    "timestamp": lambda n: pa.array(n.astype(np.int64) * 1_000_003, pa.timestamp("us", "UTC")),
    "nanoseconds": lambda n: pa.array(n.astype(np.int64) * 1_000_003, pa.timestamp("ns")),
}
# Of these, several numbers are one value.
FOLDED = {"int16": 30_000, "date": 90_000}


@dataclass(frozen=True)
class Case:
    """Tables to sort, and the order of all their rows."""

    tables: list[pa.Table]
    sort_by: str
    order: np.ndarray

    @property
    def expected(self) -> pa.Table:
        """The rows in order."""
        return pa.concat_tables(self.tables).take(pa.array(self.order)).combine_chunks()


def disturbed(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Places of rows that were in order, after they were disturbed."""
    if kind == "shuffled":
        return rng.permutation(rows)
    if kind == "reversed":
        return np.arange(rows)[::-1]
    if kind == "late":
        place = np.arange(rows) * 2.0
        moved = rng.random(rows) < 0.01
        place[moved] += rng.integers(-2000, 2001, int(moved.sum())) * 2 + 1
        return np.argsort(place, kind="stable")
    if kind == "pieces":
        parts = np.array_split(rng.permutation(rows), rng.integers(2, 6))
        return np.concatenate([np.sort(part) for part in parts])
    if kind == "mixed":
        half = rows // 2
        return np.concatenate([np.arange(half), half + rng.permutation(rows - half)])
    order = np.arange(rows)
    if kind == "swapped" and rows > 1:  # one row is out of order
        at = int(rng.integers(0, rows - 1))
        order[[at, at + 1]] = order[[at + 1, at]]
    return order


def random_case(rng: np.random.Generator, *, rows_max: int = 30_000, files_max: int = 4) -> Case:
    """Tables of one random schema and order."""
    name = str(rng.choice(list(TYPES)))
    distinct = int(rng.choice([3, 500, 20_000]))
    has_nulls, descends, nulls_first = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.3
    by_second = rng.random() < 0.3
    tables, ranks = [], []
    for file in range(int(rng.integers(1, files_max + 1))):
        kind = str(rng.choice(KINDS))
        rows = int(rng.choice([0, 1, 20, rows_max // 4, rows_max]))
        numbers = rng.integers(0, distinct, rows) % FOLDED.get(name, distinct)
        null = numbers % 11 == 5 if has_nulls else np.zeros(rows, bool)
        second = rng.integers(0, 4, rows)
        rank = key_rank(numbers, null, descends=descends, nulls_first=nulls_first)
        keys = np.column_stack([rank, second if by_second else np.zeros(rows, np.int64)])
        order = np.lexsort((keys[:, 1], keys[:, 0]))[disturbed(kind, rows, rng)]
        numbers, null, second = numbers[order], null[order], second[order]
        key = TYPES[name](numbers)
        if has_nulls:
            key = pc.if_else(pa.array(null), pa.scalar(None, key.type), key)
        tables.append(pa.table({"k": key, "second": second} | body(file, rows, rng)))
        ranks.append(keys[order])
    everything = np.concatenate(ranks)
    sort_by = ("-k" if descends else "k") + (" nulls first" if nulls_first else "")
    return Case(
        tables,
        sort_by + (", second" if by_second else ""),
        np.lexsort((everything[:, 1], everything[:, 0])),
    )


def key_rank(
    numbers: np.ndarray, null: np.ndarray, *, descends: bool, nulls_first: bool
) -> np.ndarray:
    """Where each value comes among all."""
    rank = -numbers if descends else numbers
    return np.where(null, -(2**40) if nulls_first else 2**40, rank)


def body(file: int, rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    """Columns of all shapes that are not the key."""
    index = np.arange(rows)
    return {
        "file": pa.array(np.full(rows, file)),
        "row": pa.array(index),
        "word": pa.array(np.array(["aa", "b", "cccc", ""])[index % 4], pa.string()),
        "float": pa.array(rng.random(rows), mask=rng.random(rows) < 0.2),
        "text": pa.array([f"v{i}" * (i % 5) if i % 7 else None for i in range(rows)], pa.string()),
        "flag": pa.array(index % 3 == 0, mask=index % 10 == 9),
        "list": pa.array(
            [list(range(i % 4)) if i % 5 else None for i in range(rows)], pa.list_(pa.int32())
        ),
        "texts": pa.array(
            [[str(j) for j in range(i % 3)] for i in range(rows)], pa.list_(pa.string())
        ),
        "struct": pa.array(
            [{"a": i, "b": [{"c": f"{i % 9}"}] * (i % 3)} if i % 6 else None for i in range(rows)],
            pa.struct(
                [("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))],
            ),
        ),
        "map": pa.array(
            [[(f"k{j}", j) for j in range(i % 3)] for i in range(rows)],
            pa.map_(pa.string(), pa.int64()),
        ),
    }


def written(tables: Sequence[pa.Table], folder: Path, rng: np.random.Generator) -> list[Path]:
    """The tables as files, each in a random way."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i, table in enumerate(tables):
        paths.append(folder / f"{i:03}.parquet")
        pq.write_table(
            table,
            paths[-1],
            row_group_size=int(rng.choice([1000, 10_000, 1_000_000])),
            data_page_size=int(rng.choice([1000, 100_000])),
            data_page_version=str(rng.choice(["1.0", "2.0"])),
            use_dictionary=bool(rng.integers(0, 2)),
            write_page_index=bool(rng.integers(0, 2)),
            compression=str(rng.choice(["none", "snappy", "zstd", "lz4", "gzip"])),
        )
    return paths


def outputs(report) -> pa.Table:
    """All rows of the outputs, file by file."""
    return pa.concat_tables([pq.ParquetFile(o.path).read() for o in report.outputs])


def assert_same(got: pa.Table, expected: pa.Table) -> None:
    """Fails with the first row that differs."""
    assert got.num_rows == expected.num_rows
    assert got.column_names == expected.column_names
    for name in expected.column_names:
        if not got[name].equals(expected[name]):
            pairs = zip(got[name].to_pylist(), expected[name].to_pylist(), strict=True)
            for i, (a, b) in enumerate(pairs):
                assert a == b, (name, i, got.slice(i, 2).to_pylist(), expected.slice(i, 2))


def assert_left(out: Path, report) -> None:
    """Nothing but the outputs is in the folder."""
    names = [os.path.basename(output.path) for output in report.outputs]
    assert sorted(os.listdir(out)) == sorted(names)
