"""Rows of one key that become one row: a model, a dictionary of keys, and random files and rules."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("s", pa.string()),
        ("n", pa.int64()),
        ("m", pa.int16()),
        ("x", pa.float64()),
        ("d", pa.decimal128(12, 2)),
        ("text", pa.string()),
        ("at", pa.timestamp("us")),
        ("yes", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("lists", pa.list_(pa.struct([("a", pa.int16()), ("b", pa.list_(pa.string()))]))),
        ("map", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("inner", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("seq_1", pa.int32()),
        ("seq_2", pa.string()),
        ("dead", pa.bool_()),
    ]
)
COLUMNS = SCHEMA.names[2:]


# ---- the model: a dictionary of keys, and what each rule makes of the values of a column

FUNCTIONS = {
    "sum": lambda values: sum(values[1:], values[0]),
    "product": math.prod,
    "min": min,
    "max": max,
    "bool_and": all,
    "bool_or": any,
    "first_non_null": lambda values: values[0],
    "last_non_null": lambda values: values[-1],
    "collect": lambda values: list(itertools.chain(*values)),
    "collect_distinct": lambda values: once(itertools.chain(*values)),
    "merge_map": lambda values: list({k: v for value in values for k, v in value}.items()),
}


def once(elements):
    kept = []
    kept.extend(element for element in elements if element not in kept)
    return kept


def nulls_last(key):
    return [(part is None, part) for part in key]


def model(files, how):
    """What is left of the rows of some files, oldest first."""
    keys = {}
    for row in (row for rows in files for row in rows):
        if "drop_where" in how and row["k"] is not None and row["k"] < 1:
            continue
        rows = keys.setdefault((row["k"], row["s"]), [])
        if "delete_where" in how and row["dead"]:
            rows.clear()
        rows.append(row)
    left = []
    for key in sorted(keys, key=nulls_last):
        rows = keys[key]
        if "delete_where" in how and rows[0]["dead"]:
            left += rows[: how.get("keep_tombstones", False)]
            rows = rows[1:]
        if rows:
            left.append({column: combined(rows, column, how) for column in SCHEMA.names})
    return left


def combined(rows, column, how):
    """The value of a column of rows with one key."""
    for version, of in how.get("version_by", {}).items():
        if column == version or column in of:
            newest = max(
                (row[version] is not None, row[version], at) for at, row in enumerate(rows)
            )
            return rows[newest[2]][column]
    values = [row[column] for row in rows]
    function = how.get("aggregate", {}).get(column, "last")
    if how["on_duplicate"] == "update" and column not in how.get("replace_columns", ()):
        function = "last_non_null"
    if function in ("first", "last"):
        return values[0 if function == "first" else -1]
    known = [value for value in values if value is not None]
    # One value stays as it is, even if it is a list with equal elements.
    return FUNCTIONS[function](known) if len(known) > 1 else known[0] if known else None


# ---- random histories


def random_row(rng, keys):
    """A row; integers and floats are such that sums and products are exact."""
    start = dt.datetime(2024, 5, 1)
    made = {
        "k": rng.choice([None, *range(keys)]),
        "s": rng.choice([None, "", "a"]),
        "n": rng.choice([-1, 1, 2]),
        "m": rng.randint(-3, 3),
        "x": rng.choice([-1.0, 0.5, 1.0, 2.0]),
        "d": Decimal(rng.randint(-999, 999)).scaleb(-2),
        "text": rng.choice(["", "a", "é", "z" * 30]),
        "at": start + dt.timedelta(seconds=rng.randint(0, 5)),
        "yes": rng.random() < 0.5,
        "tags": rng.choice([[], ["t"], ["t", "t"], [None, "u" * rng.randrange(20)]]),
        "lists": [
            rng.choice(
                [None, {"a": rng.choice([None, 1]), "b": rng.choice([None, [], ["x", None]])}]
            )
            for _ in range(rng.randrange(4))
        ],
        "map": [
            (key, rng.choice([None, [], [rng.randrange(9)], [1, None]]))
            for key in rng.sample(["", "a", "b"], rng.randrange(4))
        ],
        "inner": rng.choice([{"a": None, "b": None}, {"a": rng.randint(0, 9), "b": "w"}]),
        "seq_1": rng.randint(0, 3),
        "seq_2": rng.choice(["", "v1", "v2"]),
        "dead": rng.random() < 0.2,
    }
    nulls = rng.choice([0.1, 0.5, 0.9])
    return made | {name: None for name in COLUMNS if rng.random() < nulls}


def order(row):
    return nulls_last([row["k"], row["s"]])


def random_files(rng, rows_max):
    """Rows of files, and the columns that each of them lacks."""
    keys = rng.choice([1, 4, 40])
    files, lacking = [], []
    for at in range(rng.randint(3, 8)):
        count = rng.choice([0, 1, 5, rows_max])
        lacks = {name for name in COLUMNS if at and rng.random() < 0.1}
        rows = [random_row(rng, keys) | dict.fromkeys(lacks) for _ in range(count)]
        files.append(sorted(rows, key=order))
        lacking.append(lacks)
    return files, lacking


def random_how(rng, *, with_products):
    named = rng.sample(COLUMNS, rng.randint(1, len(COLUMNS)))
    how = {"on_duplicate": rng.choice(["update", "aggregate"])}
    if how["on_duplicate"] == "aggregate":
        how["aggregate"] = {name: rng.choice(functions(name, with_products)) for name in named}
    else:
        free = [name for name in named if not name.startswith("seq_")]
        cuts = sorted(rng.choices(range(len(free) + 1), k=2))
        how["replace_columns"] = free[: cuts[0]]
        groups = [free[cuts[0] : cuts[1]], free[cuts[1] :]]
        versions = rng.sample(["seq_1", "seq_2"], rng.randint(0, 2))
        how["version_by"] = dict(zip(versions, groups, strict=False))
    if rng.random() < 0.6:
        how["delete_where"] = "dead"
    if rng.random() < 0.2:
        how["drop_where"] = "k < 1"
    return how


def functions(name, with_products):
    found = ["first", "last", "first_non_null", "last_non_null"]
    if name in ("n", "m", "x", "d"):
        found += ["sum", "sum"]
    if name in ("n", "x") and with_products:
        found += ["product"]
    if name in ("yes", "dead"):
        found += ["bool_and", "bool_or"]
    if name in ("tags", "lists"):
        found += ["collect", "collect_distinct"]
    if name == "map":
        found += ["merge_map", "merge_map"]
    if name not in ("tags", "lists", "map", "inner"):
        found += ["min", "max"]
    return found


def written(rng, path, rows, lacks=frozenset()):
    table = pa.Table.from_pylist(rows, SCHEMA).drop(sorted(lacks))
    pq.write_table(
        table,
        path,
        row_group_size=rng.choice([2, 30, 100_000]),
        data_page_size=rng.choice([32, 1 << 20]),
        use_dictionary=rng.choice([True, False]),
        data_page_version=rng.choice(["1.0", "2.0"]),
    )
    return path


def layout(rng):
    return {
        "row_group_rows": rng.choice([3, 50, 100_000]),
        "page_rows": rng.choice([1, 7, 20_000]),
        "memory_limit": rng.choice(["16MB", "512MB"]),
        "target_rows": rng.choice([None, None, 10]),
        "copy_tiers": rng.choice([(), ("chunk", "page", "dict")]),
        "dictionary": rng.choice([None, True, False]),
        "threads": rng.choice([1, 2]),
        "row_map": rng.choice([False, True]),
    }


def rows_in(rng, paths):
    """The rows of files, as one of three readers sees them."""
    rows, reader = [], rng.choice(["pyarrow", "duckdb", "polars"])
    for path in paths:
        if reader == "pyarrow":
            rows += pq.ParquetFile(path).read().to_pylist()
        elif reader == "polars":
            rows += pl.read_parquet(path).to_dicts()
        else:
            found = duckdb.execute("from read_parquet(?)", [str(path)])
            names = [column[0] for column in found.description]
            rows += [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    has_map = [row.get("map") is not None for row in rows]
    paired = zip(rows, has_map, strict=True)
    return [row | {"map": entries(row["map"])} if has else row for row, has in paired]


def entries(value):
    """The entries of a map as PyArrow has them, where other readers have other forms."""
    if isinstance(value, dict):
        return list(value.items())
    return [tuple(pair.values()) if isinstance(pair, dict) else pair for pair in value]


def chunked(rng, rows, lacks):
    table = pa.Table.from_pylist(rows, SCHEMA).drop(sorted(lacks)).combine_chunks()
    batches, at = [], 0
    while at < len(rows):
        count = rng.choice([1, 2, 30, 1000])
        batches += table.slice(at, count).to_batches()
        at += count
    return pa.RecordBatchReader.from_batches(table.schema, batches)


def among(how, lacking):
    """The rules for files that lack columns; `None` if there are none.

    A version column that no file has is null: the last row counts.
    """
    lacks = set.intersection(*lacking)
    made = dict(how)
    if "aggregate" in how:
        made["aggregate"] = {c: of for c, of in how["aggregate"].items() if c not in lacks}
        if not made["aggregate"]:
            return None
    for version, of in how.get("version_by", {}).items():
        made["version_by"] = {v: c for v, c in made["version_by"].items() if v not in lacks}
        if version in lacks:
            made["replace_columns"] = [*made["replace_columns"], *of]
    for version, of in made.get("version_by", {}).items():
        made["version_by"][version] = [c for c in of if c not in lacks]
    made["replace_columns"] = [c for c in made.get("replace_columns", ()) if c not in lacks]
    return None if how.get("delete_where") in lacks else made


def check(got, expected, *about):
    """Says which row differs first, and in which columns."""
    for at, (one, other) in enumerate(zip(got, expected, strict=False)):
        # A column that no source has is in no output.
        differing = {c: (one.get(c), other[c]) for c in other if one.get(c) != other[c]}
        assert not differing, (at, {c: other.get(c) for c in ("k", "s")}, differing, *about)
    assert len(got) == len(expected), about
