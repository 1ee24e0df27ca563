"""`partition_by`: outputs in Hive folders, with the rows of the sources and nothing else.

The oracle: filter the rows by partition, sort stably, compare with the files of its folder.
"""

from __future__ import annotations

import datetime as dt
import decimal
import glob
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local

NULL = "__HIVE_DEFAULT_PARTITION__"
UTC = dt.timezone.utc


def files_in(folder: Path) -> dict[str, list[Path]]:
    """The files of each folder, in the order of their names."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.setdefault(str(path.parent.relative_to(folder)), []).append(path)
    return found


def rows_in(folder: Path) -> dict[str, list[dict]]:
    """The rows of each folder, file by file."""
    return {
        name: [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
        for name, files in files_in(folder).items()
    }


def values_in(folder: str) -> dict[str, str | None]:
    """What the name of a folder says."""
    values = {}
    for step in folder.split("/"):
        name, _, value = step.partition("=")
        values[urllib.parse.unquote(name)] = None if value == NULL else urllib.parse.unquote(value)
    return values


def write(folder: Path, tables: list[pa.Table], **options) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{i}.parquet" for i in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(table, path, **options)
    return paths


def text_of(value) -> str | None:
    """A value as its folder says it."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


DAYS = pa.table(
    {
        "day": pa.array([dt.date(2024, 5, 1)] * 3 + [dt.date(2024, 5, 2)] * 2),
        "ts": [1, 2, 5, 3, 4],
        "v": list("abcde"),
    }
)


def test_each_file_has_the_rows_of_its_folder(tmp_path):
    (source,) = write(tmp_path / "in", [DAYS])
    report = plait.merge(source, tmp_path / "out", sort_by="ts", partition_by="day")
    assert rows_in(tmp_path / "out") == {
        "day=2024-05-01": DAYS.slice(0, 3).drop(["day"]).to_pylist(),
        "day=2024-05-02": DAYS.slice(3).drop(["day"]).to_pylist(),
    }
    assert report.sort_by == "day, ts"
    assert [Path(output.path).parent.name for output in report.outputs] == [
        "day=2024-05-01",
        "day=2024-05-02",
    ]
    assert [output.key_min for output in report.outputs] == [
        ("2024-05-01", 1),
        ("2024-05-02", 3),
    ]


def test_files_declare_the_order_inside_of_them(tmp_path):
    (source,) = write(tmp_path / "in", [DAYS])
    plait.merge(
        source, tmp_path / "out", sort_by="ts", partition_by="day", bloom_filters=["ts"],
        value_sets=["v"],
    )  # fmt: skip
    for files in files_in(tmp_path / "out").values():
        metadata = pq.ParquetFile(files[0]).metadata
        assert metadata.metadata[b"plait.sort_order"] == b"ts"
        group = metadata.row_group(0)
        assert [column.column_index for column in group.sorting_columns] == [0]
        assert group.column(0).path_in_schema == "ts"
        assert group.column(0).statistics.has_min_max
        assert pq.read_schema(files[0]).names == ["ts", "v"]
    # Keys of the footers are believed: nothing says that the plan is stale, and order is checked.
    folder = tmp_path / "out" / "day=2024-05-01"
    assert plait.plan(folder, sort_by="ts").sources[0].keys_from == "footer"
    assert plait.merge(folder, tmp_path / "one.parquet").rows_out == 3
    assert plait.verify(folder).ok
    assert plait.inspect(next(folder.iterdir()), check_order=True).sort_by == "ts"
    assert list(plait.prune(folder, {"v": "zz"})) == []


def test_columns_stay_if_they_are_to(tmp_path):
    (source,) = write(tmp_path / "in", [DAYS])
    options = {"sort_by": "ts", "partition_by": "day", "partition_columns": "keep"}
    plait.merge(source, tmp_path / "out", **options)
    assert rows_in(tmp_path / "out")["day=2024-05-02"] == DAYS.slice(3).to_pylist()


def test_metadata_that_lists_columns_goes_with_them(tmp_path):
    frame = DAYS.to_pandas().set_index("day")
    table = pa.Table.from_pandas(frame).replace_schema_metadata(
        {**pa.Table.from_pandas(frame).schema.metadata, b"mine": b"stays"}
    )
    (source,) = write(tmp_path / "in", [table])
    plait.merge(source, tmp_path / "out", sort_by="day, ts", partition_by="day")
    file = files_in(tmp_path / "out")["day=2024-05-01"][0]
    schema = pq.read_schema(file)
    assert b"pandas" not in (schema.metadata or {})
    assert pq.ParquetFile(file).metadata.metadata[b"mine"] == b"stays"
    assert list(pq.read_table(file, partitioning=None).to_pandas().columns) == ["ts", "v"]


def test_types_of_the_arrow_schema_stay(tmp_path):
    table = pa.table(
        {
            "p": [1, 1, 2],
            "t": pa.array(["a", "b", "c"], pa.large_string()),
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            "s": [{"a": 1, "b": [1, 2]}, {"a": 2, "b": []}, {"a": None, "b": None}],
            "k": [1, 2, 3],
        }
    )
    (source,) = write(tmp_path / "in", [table])
    plait.merge(source, tmp_path / "out", sort_by="k", partition_by="p")
    file = files_in(tmp_path / "out")["p=1"][0]
    assert pq.ParquetFile(file).schema_arrow.remove_metadata() == table.drop(["p"]).schema
    assert pq.ParquetFile(file).read().to_pylist() == table.slice(0, 2).drop(["p"]).to_pylist()


# ---- values and their texts

ODD = [
    "a b",
    "a/b",
    "a%2Fb",
    "%",
    "=",
    "é ü",
    "..",
    "a:b?c*d",
    "'\"",
    "{x}[y]",
    "\t\n",
    "a\\b",
    "+",
    "#",
    "日本",
]
VALUES = {
    "text": (pa.string(), [*ODD, "x", None]),
    "large_text": (pa.large_string(), ["a", "ä=1", None]),
    "int8": (pa.int8(), [-128, 0, 127, None]),
    "int64": (pa.int64(), [-(2**63), 0, 2**63 - 1, None]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "bool": (pa.bool_(), [False, True, None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), None]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal(t) for t in ("-0.01", "0.00", "12.30")]),
    "timestamp": (
        pa.timestamp("us"),
        [dt.datetime(2024, 5, 1, 13), dt.datetime(2024, 5, 1, 13, 0, 0, 500_000), None],
    ),
    "timestamp_utc": (
        pa.timestamp("ms", "UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, tzinfo=UTC), dt.datetime(2024, 5, 1, tzinfo=UTC)],
    ),
    "time": (pa.time64("us"), [dt.time(0, 0), dt.time(13, 0, 0, 1)]),
}  # fmt: skip


@pytest.fixture(params=VALUES)
def partitioned(request, tmp_path):
    """Rows of three sources, interleaved, in a folder for each value."""
    data_type, values = VALUES[request.param]
    rng = random.Random(request.param)
    rows = [{"p": rng.choice(values), "k": rng.randrange(50), "n": n} for n in range(300)]
    schema = pa.schema([("p", data_type), ("k", pa.int64()), ("n", pa.int64())])
    tables = [pa.Table.from_pylist(rows[at : at + 100], schema) for at in (0, 100, 200)]
    sources = write(tmp_path / "in", tables)
    out = tmp_path / "out"
    plait.sort(sources, out, sort_by="k", partition_by="p", verify="content", threads=2)
    return request.param, data_type, rows, out


def test_values_are_read_back_by_everyone(partitioned):
    name, data_type, rows, out = partitioned
    expected = sorted((row["n"], row["p"]) for row in rows)

    # By hand: the texts.
    found = [
        (row["n"], values_in(folder)["p"]) for folder, all_ in rows_in(out).items() for row in all_
    ]
    if name in (
        "text",
        "large_text",
        "int8",
        "int64",
        "uint32",
        "uint64",
        "bool",
        "date",
        "decimal",
    ):
        assert sorted(found) == [(n, text_of(p)) for n, p in expected]
    for folder, all_ in rows_in(out).items():
        p = values_in(folder)["p"]
        numbers = {row["n"] for row in all_}
        (value,) = {row["p"] for row in rows if row["n"] in numbers}
        inside = sorted((row for row in rows if row["p"] == value), key=lambda row: row["k"])
        assert [row["n"] for row in all_] == [row["n"] for row in inside], p

    # PyArrow, told the type; it reads no decimals.
    if name != "decimal":
        partitioning = ds.partitioning(pa.schema([("p", data_type)]), flavor="hive")
        table = ds.dataset(out, partitioning=partitioning).to_table()
        assert sorted(zip(table["n"].to_pylist(), table["p"].to_pylist(), strict=True)) == expected

    # DuckDB and Polars, told the type.
    of_duckdb = {
        "text": "VARCHAR", "large_text": "VARCHAR", "int8": "TINYINT", "int64": "BIGINT",
        "uint32": "UINTEGER", "uint64": "UBIGINT", "bool": "BOOLEAN", "date": "DATE",
        "timestamp": "TIMESTAMP",
    }  # fmt: skip
    if name in of_duckdb:
        read = f"read_parquet('{out}/**/*.parquet', hive_partitioning=true, hive_types={{'p': {of_duckdb[name]}}})"
        assert sorted(duckdb.sql(f"SELECT n, p FROM {read}").fetchall()) == expected
    if name not in ("time", "timestamp_utc", "decimal", "large_text"):
        schema = {"p": pl.from_arrow(pa.array([], data_type)).dtype}
        frame = pl.scan_parquet(f"{out}/**/*.parquet", hive_partitioning=True, hive_schema=schema)
        assert sorted(frame.select("n", "p").collect().rows()) == expected

    # Plait, told the type.
    if name in ("text", "int8", "int64", "uint32", "uint64", "bool", "date", "timestamp"):
        types = {"p": {"date": "date32", "timestamp": "timestamp"}.get(name, str(data_type))}
        scanned = plait.scan(out, partitions="hive", partition_types=types, implicit=[])
        table = pa.table(scanned)
        assert sorted(zip(table["n"].to_pylist(), table["p"].to_pylist(), strict=True)) == expected


@pytest.mark.spark
def test_spark_reads_values_back(spark, tmp_path):
    rows = [
        {"p": p, "day": day, "k": n, "n": n}
        for n, (p, day) in enumerate(
            [(p, day) for p in [*ODD, None] for day in (dt.date(2024, 5, 1), None)]
        )
    ]
    schema = pa.schema(
        [("p", pa.string()), ("day", pa.date32()), ("k", pa.int64()), ("n", pa.int64())]
    )
    sources = write(tmp_path / "in", [pa.Table.from_pylist(rows, schema)])
    out = tmp_path / "out"
    plait.sort(sources, out, sort_by="k", partition_by=["p", "day"])
    frame = spark.read.schema("n long, k long, p string, day date").parquet(str(out))
    assert sorted((row.n, row.p, row.day) for row in frame.collect()) == [
        (row["n"], row["p"], row["day"]) for row in rows
    ]
    inferred = spark.read.parquet(str(out))
    assert dict(inferred.dtypes)["day"] == "date"


@pytest.mark.spark
def test_spark_and_plait_name_folders_alike(spark, tmp_path):
    names = [*ODD, "x"]
    table = pa.table({"p": names, "n": list(range(len(names)))})
    sources = write(tmp_path / "in", [table])
    plait.sort(sources, tmp_path / "out", sort_by="n", partition_by="p")
    spark.read.parquet(str(sources[0])).write.partitionBy("p").parquet(str(tmp_path / "spark"))
    folders = {path.name for path in (tmp_path / "spark").iterdir() if path.is_dir()}
    assert folders == set(files_in(tmp_path / "out"))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1.5, 2.5]), plait.errors.UnsupportedKey),
        (pa.array([b"a", b"b"]), plait.errors.UnsupportedKey),
        (pa.array([[1], [2]]), plait.errors.UnsupportedKey),
        (pa.array([{"a": 1}, {"a": 2}]), plait.errors.UnsupportedKey),
        (pa.array([None, None], pa.null()), plait.errors.UnsupportedKey),
        (pa.array(["", "x"]), plait.errors.InvalidArgument),
        (pa.array([NULL, "x"]), plait.errors.InvalidArgument),
        (pa.array(["x" * 300, "y"]), plait.errors.InvalidArgument),
        (pa.array([2**62, 0], pa.timestamp("us")), plait.errors.InvalidArgument),
    ],
)
def test_values_without_a_name_are_refused_before_work(tmp_path, column, kind):
    sources = write(tmp_path / "in", [pa.table({"p": column, "k": [1, 2]})])
    with pytest.raises(kind) as error:
        plait.sort(sources, tmp_path / "out", sort_by="k", partition_by="p")
    assert error.value.hint
    assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"outputs": 2}, "outputs"),
        ({"assume_sorted": True}, "assume_sorted"),
        ({"verify_order": "bounds"}, "verify_order"),
        ({"partition_by": ["day", "day"]}, "twice"),
        ({"partition_by": ["day", "ts", "v"]}, "all columns"),
        ({"cut_on": 2}, "cut_on"),
        ({"align_row_groups": 2}, "align_row_groups"),
        ({"sort_by": [], "target_rows": 1}, "no sort column"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(tmp_path, options, said):
    sources = write(tmp_path / "in", [DAYS])
    given = {"sort_by": "ts", "partition_by": "day", **options}
    with pytest.raises(plait.InvalidArgument, match=said):
        plait.merge(sources, tmp_path / "out", **given)


def test_names_that_readers_pass_over_are_refused(tmp_path):
    sources = write(tmp_path / "in", [DAYS.rename_columns(["_day", "ts", "v"])])
    with pytest.raises(plait.InvalidArgument, match="pass over"):
        plait.merge(sources, tmp_path / "out", sort_by="ts", partition_by="_day")
    with pytest.raises(plait.UnknownColumn, match="dya"):
        plait.merge(sources, tmp_path / "out", sort_by="ts", partition_by="dya")


def test_one_file_holds_no_partitions(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    with pytest.raises(plait.InvalidArgument, match="name a folder"):
        plait.merge(sources, tmp_path / "out.parquet", sort_by="ts", partition_by="day")


# ---- the order


def test_interleaved_partitions_need_a_sort(tmp_path):
    table = pa.table({"p": ["a", "b", "a", "b"], "k": [1, 2, 3, 4]})
    sources = write(tmp_path / "in", [table])
    options = {"sort_by": "k", "partition_by": "p"}
    for call in (plait.merge, plait.plan):
        with pytest.raises(plait.UnsortedSource, match="partition columns") as error:
            call(sources, tmp_path / "out", **options)
        assert "plait.sort" in error.value.hint
        assert error.value.path == str(sources[0])
    assert not (tmp_path / "out").exists()
    report = plait.sort(sources, tmp_path / "out", **options)
    assert report.sort.rows > 0
    assert {
        name: [row["k"] for row in rows] for name, rows in rows_in(tmp_path / "out").items()
    } == {
        "p=a": [1, 3],
        "p=b": [2, 4],
    }


def test_disorder_inside_of_a_partition_is_found(tmp_path):
    # Both ends are of one partition, so that planning reads nothing between.
    rows = 50_000
    table = pa.table({"p": ["a"] * rows, "k": list(range(rows))})
    hidden = table.to_pydict()
    hidden["p"][25_000] = "b"
    for name, column in (("p", hidden["p"]), ("k", [*range(rows - 1), 5])):
        source = tmp_path / f"{name}.parquet"
        pq.write_table(table.set_column(table.schema.get_field_index(name), name, [column]), source)
        with pytest.raises(plait.UnsortedSource, match="partition columns"):
            plait.merge(source, tmp_path / "out", sort_by="k", partition_by="p")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("sort_by", ["day, ts", "-day, ts", "ts, day", "day nulls first, -ts"])
def test_a_partition_column_may_be_in_the_order(tmp_path, sort_by):
    sources = write(tmp_path / "in", [DAYS])
    plait.sort(sources, tmp_path / "out", sort_by=sort_by, partition_by="day")
    sign = -1 if "-ts" in sort_by else 1
    for name, rows in rows_in(tmp_path / "out").items():
        day = [row for row in DAYS.to_pylist() if f"day={row['day']}" == name]
        day.sort(key=lambda row: sign * row["ts"])
        assert rows == [{"ts": row["ts"], "v": row["v"]} for row in day]


def test_the_order_of_sources_is_that_inside_of_files(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    plait.sort(sources, tmp_path / "sorted.parquet", sort_by="day, ts")
    plait.merge(tmp_path / "sorted.parquet", tmp_path / "out", partition_by="day")
    for files in files_in(tmp_path / "out").values():
        assert pq.ParquetFile(files[0]).metadata.metadata[b"plait.sort_order"] == b"ts"


def test_without_an_order_partitions_are_enough(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    plait.merge(sources, tmp_path / "out", sort_by=[], partition_by="day")
    file = files_in(tmp_path / "out")["day=2024-05-01"][0]
    assert b"plait.sort_order" not in (pq.ParquetFile(file).metadata.metadata or {})


def random_case(rng: random.Random):
    columns = {
        "a": lambda: rng.choice(["x", "y/z", "w w", None]),
        "b": lambda: rng.choice([1, 2, 3]),
        "k": lambda: rng.randrange(40),
        "t": lambda: rng.choice(["p", "q", None]),
        "v": rng.random,
    }
    schema = pa.schema(
        [("a", pa.string()), ("b", pa.int32()), ("k", pa.int64()), ("t", pa.string()), ("v", pa.float64())]
    )  # fmt: skip
    tables = []
    for _ in range(rng.randint(1, 4)):
        rows = [
            {name: make() for name, make in columns.items()} for _ in range(rng.randint(0, 2000))
        ]
        tables.append(pa.Table.from_pylist(rows, schema))
    options = {
        "sort_by": rng.choice(["k", "k, t", "-k", "t nulls first, k", "b, k"]),
        "partition_by": rng.choice([["a"], ["b"], ["a", "b"], ["b", "a"]]),
        "target_rows": rng.choice([None, 50, 300]),
        "row_group_rows": rng.choice([1_048_576, 100]),
        "partition_columns": rng.choice(["drop", "keep"]),
        "on_duplicate": rng.choice(["keep_all", "keep_all", "keep_last"]),
        "copy_tiers": rng.choice([("chunk", "page", "dict"), ()]),
        "memory_limit": rng.choice(["16MB", "512MB"]),
    }
    return tables, options


def sort_key(order: str):
    def key(row):
        parts = []
        for column in order.split(", "):
            name, _, nulls = column.lstrip("-").partition(" ")
            value = row[name]
            first = (value is not None) if nulls else (value is None)
            parts.append((first, 0 if value is None else -value if column[0] == "-" else value))
        return parts

    return key


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_agree_with_the_oracle(tmp_path, seed):
    rng = random.Random(seed)
    tables, options = random_case(rng)
    sources = write(tmp_path / "in", tables, row_group_size=rng.choice([100, 10_000]))
    verify = "content" if options["on_duplicate"] == "keep_all" else None
    outs = []
    for threads in (1, 2):
        out = tmp_path / f"out{threads}"
        report = plait.sort(sources, out, threads=threads, verify=verify, **options)
        outs.append(
            {name: [f.read_bytes() for f in files] for name, files in files_in(out).items()}
        )
    assert outs[0] == outs[1]
    columns, kept = options["partition_by"], options["partition_columns"] == "keep"
    expected: dict[str, list[dict]] = {}
    for row in (row for table in tables for row in table.to_pylist()):
        steps = [
            f"{c}={NULL if row[c] is None else urllib.parse.quote(str(row[c]), safe=' ')}"
            for c in columns
        ]
        expected.setdefault("/".join(steps), []).append(row)
    order = ", ".join(c for c in options["sort_by"].split(", ") if c.lstrip("-") not in columns)
    for folder, rows in expected.items():
        rows.sort(key=sort_key(order))
        if options["on_duplicate"] == "keep_last":
            last = {str(sort_key(order)(row)): row for row in rows}
            rows[:] = last.values()
        if not kept:
            rows[:] = [{k: v for k, v in row.items() if k not in columns} for row in rows]
        files = files_in(out)[folder]
        assert len(files) == 1 or options["target_rows"]
    assert rows_in(out) == expected
    assert report.rows_out == sum(map(len, expected.values()))


def test_target_rows_cut_inside_of_partitions(tmp_path):
    table = pa.table(
        {"p": [1] * 1000 + [2] * 30 + [3] * 1000, "k": list(range(2030)), "v": [0] * 2030}
    )
    sources = write(tmp_path / "in", [table])
    plait.merge(sources, tmp_path / "out", sort_by="k", partition_by="p", target_rows=400)
    counts = {
        name: [pq.ParquetFile(file).metadata.num_rows for file in files]
        for name, files in files_in(tmp_path / "out").items()
    }
    assert counts == {"p=1": [400, 400, 200], "p=2": [30], "p=3": [400, 400, 200]}


def test_cut_on_and_align_row_groups_count_sort_columns(tmp_path):
    table = pa.table({"p": [1] * 12, "a": [1] * 5 + [2] * 7, "b": list(range(12))})
    sources = write(tmp_path / "in", [table])
    options = {"sort_by": "a, b", "partition_by": "p"}
    for given, counts in (
        ({"target_rows": 3}, [3, 3, 3, 3]),
        ({"target_rows": 3, "cut_on": 1}, [5, 7]),
    ):
        out = tmp_path / f"out{len(given)}"
        plait.merge(sources, out, **options, **given)
        assert [pq.ParquetFile(f).metadata.num_rows for f in files_in(out)["p=1"]] == counts
    plait.merge(sources, tmp_path / "aligned", **options, align_row_groups=1)
    metadata = pq.ParquetFile(files_in(tmp_path / "aligned")["p=1"][0]).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [5, 7]


def test_row_groups_of_one_partition_are_copied_whole(tmp_path):
    tables = [
        pa.table({"p": [p] * 5000, "k": list(range(5000)), "v": ["x"] * 5000}) for p in (1, 2)
    ]
    sources = write(tmp_path / "in", tables, store_schema=False)
    options = {"sort_by": "k", "partition_by": "p", "row_group_rows": 5000}
    report = plait.merge(sources, tmp_path / "out", **options)
    assert report.copied["chunk"].rows == 10_000
    assert rows_in(tmp_path / "out")["p=2"] == tables[1].drop(["p"]).to_pylist()


@pytest.mark.parametrize("limit", ["16MB", "512MB"])
@pytest.mark.parametrize("columns", ["drop", "keep"])
def test_a_writer_takes_rows_of_all_partitions_in_any_order(tmp_path, limit, columns):
    rng = random.Random(7)
    rows = [
        {"day": dt.date(2024, 5, 1 + rng.randrange(20)), "ts": rng.randrange(1000), "row": row}
        for row in range(60_000)
    ]
    out = tmp_path / "out"
    options = {"sort_by": "-ts", "partition_by": ["day"], "partition_columns": columns}
    with plait.RunWriter(out, memory_limit=limit, **options) as writer:
        for start in range(0, 30_000, 7000):
            writer.write(pa.Table.from_pylist(rows[start : min(start + 7000, 30_000)]))
        first = writer.flush()
        assert plait.verify(first.outputs[0].path, sort_by="-ts").ok
        writer.write(pa.Table.from_pylist(rows[30_000:]))
    assert sum(report.rows_out for report in writer.reports) == 60_000
    found = files_in(out)
    assert len(found) == 20
    for folder, files in found.items():
        day = dt.date.fromisoformat(values_in(folder)["day"])
        for half in (rows[:30_000], rows[30_000:]):
            mine = sorted((row for row in half if row["day"] == day), key=lambda row: -row["ts"])
            if columns == "drop":
                mine = [{"ts": row["ts"], "row": row["row"]} for row in mine]
            assert mine in [pq.ParquetFile(file).read().to_pylist() for file in files]
        assert len(files) == 2
    with pytest.raises(plait.OutputExists, match="day=2024-05-"):
        plait.RunWriter(out, **options)


def test_many_sources_are_merged_in_two_passes(tmp_path):
    rng = random.Random(1)
    tables = []
    for at in range(90):
        text = ["".join(rng.choices("abcdefgh", k=300)) for _ in range(400)]
        tables.append(pa.table({"p": ["a"] * 200 + ["b"] * 200, "k": sorted(rng.choices(range(1000), k=200)) * 2, "t": text, "n": [at] * 400}))  # fmt: skip
    sources = write(tmp_path / "in", tables, compression="none", use_dictionary=False)
    report = plait.merge(
        sources,
        tmp_path / "out",
        sort_by="k",
        partition_by="p",
        memory_limit="16MB",
        verify="content",
    )
    assert any("two passes" in warning for warning in report.warnings)
    assert report.passes == 2
    merged = [row for table in tables for row in table.drop(["p"]).slice(0, 200).to_pylist()]
    assert rows_in(tmp_path / "out")["p=a"] == sorted(merged, key=lambda row: row["k"])


# ---- plans, verification, what is there already


def test_tasks_of_a_plan_name_their_partition(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    plan = plait.plan(sources, tmp_path / "out", sort_by="ts", partition_by="day")
    assert [task.partition for task in plan.tasks] == ["day=2024-05-01/", "day=2024-05-02/"]
    for task in reversed(plan.tasks):
        plait.execute_task(task.to_json(), tmp_path / "out", if_exists="add")
    plait.merge(sources, tmp_path / "merged", sort_by="ts", partition_by="day")
    by_task, merged = files_in(tmp_path / "out"), files_in(tmp_path / "merged")
    assert list(by_task) == list(merged)
    for name, (file,) in by_task.items():
        assert file.name == merged[name][0].name
        assert file.read_bytes() == merged[name][0].read_bytes()


@pytest.mark.parametrize("folder", ["../x=1/", "/x=1/", "x=1/../../y/", "x", ".x=1/"])
def test_plans_cannot_write_elsewhere(tmp_path, folder):
    sources = write(tmp_path / "in", [DAYS])
    data = json.loads(plait.plan(sources, sort_by="ts", partition_by="day").to_json())
    data["tasks"][0]["partition"] = folder
    with pytest.raises(plait.InvalidArgument, match="contradicts itself"):
        plait.Plan.from_json(json.dumps(data)).execute(tmp_path / "out")


def test_the_content_hash_counts_the_columns_that_left(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    options = {"sort_by": "ts", "verify": "content"}
    whole = plait.sort(sources, tmp_path / "whole", **options).content_hash
    for name, call in (("merge", plait.merge), ("sort", plait.sort)):
        report = call(sources, tmp_path / name, partition_by="day", **options)
        assert report.content_hash == whole
    other = DAYS.set_column(0, "day", pa.array([dt.date(2024, 5, 3)] * 5))
    (source,) = write(tmp_path / "other", [other])
    moved = plait.sort(source, tmp_path / "moved", partition_by="day", **options).content_hash
    assert moved != whole


def test_files_below_the_folder_are_not_mixed_with(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    options = {"sort_by": "ts", "partition_by": "day"}
    plait.merge(sources, tmp_path / "out", **options)
    plait.merge(sources, tmp_path / "out", **options)  # the same files again
    with pytest.raises(plait.errors.OutputExists):
        plait.merge(sources, tmp_path / "out", **options, compression="gzip")
    plait.merge(sources, tmp_path / "out", **options, compression="gzip", if_exists="add")
    assert [len(files) for files in files_in(tmp_path / "out").values()] == [2, 2]


def test_without_rows_there_are_no_files(tmp_path):
    sources = write(tmp_path / "in", [DAYS.slice(0, 0)])
    report = plait.merge(sources, tmp_path / "out", sort_by="ts", partition_by="day")
    assert report.outputs == ()
    assert files_in(tmp_path / "out") == {}
    assert os.listdir(tmp_path / "out") == []


def test_partitions_without_rows_left_get_no_file(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    plait.merge(sources, tmp_path / "out", sort_by="ts", partition_by="day", drop_where="ts > 2")
    assert list(files_in(tmp_path / "out")) == ["day=2024-05-01"]


def test_conditions_may_name_partition_columns(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    given = {"sort_by": "ts", "partition_by": "day", "drop_where": "day < '2024-05-02'"}
    plait.merge(sources, tmp_path / "out", **given)
    assert list(files_in(tmp_path / "out")) == ["day=2024-05-02"]


def test_outputs_are_merged_compacted_and_scanned(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    options = {"sort_by": "ts", "partition_by": "day", "target_rows": 1}
    out = tmp_path / "out"
    plait.merge(sources, out, **options)
    assert plait.merge(out, tmp_path / "again", sort_by="ts").rows_out == 5
    scanned = pa.table(plait.scan(out, partitions="hive", implicit=[]))
    assert sorted(zip(*(scanned[c].to_pylist() for c in ("day", "ts", "v")), strict=True)) == [
        tuple(row.values()) for row in DAYS.to_pylist()
    ]
    compacted = plait.compact(out, policy="full", yes=True)
    assert compacted is not None
    scanned = pa.table(plait.scan(out, partitions="hive", implicit=[]))
    assert sorted(scanned["day"].to_pylist()) == DAYS["day"].to_pylist()


# ---- many partitions, little of everything

MANY = 10_000 if os.environ.get("PLAIT_LONG") else 3_000


@pytest.mark.parametrize(
    ("rows", "open_max"), [(200, 64), pytest.param(MANY, 256, marks=pytest.mark.long)]
)
def test_more_partitions_than_files_may_be_open(tmp_path, rows, open_max):
    table = pa.table({"p": list(range(rows)), "k": list(range(rows, 0, -1)), "v": ["x"] * rows})
    sources = write(tmp_path / "in", [table])
    code = (
        "import resource, sys, plait\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[3]),) * 2)\n"
        "report = plait.merge(sys.argv[1], sys.argv[2], sort_by='k', partition_by='p',"
        " memory_limit='16MB')\n"
        "print(len(report.outputs), report.memory.peak_accounted_bytes)"
    )
    command = [sys.executable, "-c", code, str(sources[0]), str(tmp_path / "out"), str(open_max)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outputs, peak = map(int, done.stdout.split())
    assert outputs == rows
    assert peak <= 16_000_000
    assert len(files_in(tmp_path / "out")) == rows
    (file,) = files_in(tmp_path / "out")["p=17"]
    assert pq.ParquetFile(file).read().to_pylist() == [{"k": rows - 17, "v": "x"}]


@pytest.mark.few(1)
@pytest.mark.parametrize("rows_each", [1, 7, 5000, 20_000])
def test_partitions_are_found_in_large_sources(tmp_path, rows_each):
    p = [n // rows_each for n in range(70_000)]
    sources = write(tmp_path / "in", [pa.table({"p": p, "k": [0] * len(p)})])
    plan = plait.plan(sources, sort_by="k", partition_by=["p"])
    found = [(task.partition, task.rows, task.rows_exact) for task in plan.tasks]
    assert found == [
        (f"p={n}/", min(rows_each, 70_000 - n * rows_each), True) for n in range(p[-1] + 1)
    ]


def test_too_many_partitions_are_an_error_before_work(tmp_path):
    sources = write(tmp_path / "in", [pa.table({"p": list(range(150_000)), "k": [0] * 150_000})])
    with pytest.raises(plait.InvalidArgument, match="too many partitions"):
        plait.merge(sources, tmp_path / "out", sort_by="k", partition_by="p")
    assert not (tmp_path / "out").exists()


# ---- crashes


def test_a_failed_merge_leaves_nothing(tmp_path):
    sources = write(tmp_path / "in", [DAYS])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "day=2024-05-02").write_text("a file where a folder is to be")
    with pytest.raises(plait.errors.StorageError):
        plait.merge(sources, tmp_path / "out", sort_by="ts", partition_by="day")
    assert os.listdir(tmp_path / "out") == ["day=2024-05-02"]


@pytest.mark.long
def test_a_killed_merge_is_swept_and_done_again(tmp_path):
    rows = 200
    table = pa.table({"p": list(range(rows)), "k": [0] * rows, "v": ["x"] * rows})
    sources = write(tmp_path / "in", [table])
    out = tmp_path / "out"
    code = "import sys, plait; plait.merge(sys.argv[1], sys.argv[2], sort_by='k', partition_by='p')"
    process = subprocess.Popen([sys.executable, "-c", code, str(sources[0]), str(out)])
    deadline = time.monotonic() + 30
    while len(glob.glob(f"{out}/.plait-tmp-*/.plait-tmp-*")) < 20:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(out.glob("p=*")), "a name before all outputs were whole"
    assert len(list(out.iterdir())) == 1
    plait.merge(sources, out, sort_by="k", partition_by="p")
    assert len(files_in(out)) == rows
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_the_temp_files_of_a_live_merge_are_left_alone(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    nest = tmp_path / "out" / ".plait-tmp-1-1"
    nest.mkdir(parents=True)
    with open(nest / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = write(tmp_path / "in", [DAYS])
        plait.merge(sources, tmp_path / "out", sort_by="ts", partition_by="day")
        assert nest.exists()
    plait.merge(sources, tmp_path / "out", sort_by="ts", partition_by="day")
    assert not nest.exists()


# ---- objects


@pytest.mark.long
def test_partitions_are_objects(s3_server, tmp_path):
    bucket = f"partitions-{os.getpid()}"
    s3_server.request("PUT", f"/{bucket}")
    storage = s3_server.options()
    rows = [{"p": p, "k": n} for n, p in enumerate([*ODD, None])]
    table = pa.Table.from_pylist(rows, pa.schema([("p", pa.string()), ("k", pa.int64())]))
    sources = write(tmp_path / "in", [table])
    options = {"sort_by": "k", "partition_by": "p", "storage_options": storage}
    out = f"s3://{bucket}/out"
    report = plait.sort(sources, out, verify="content", **options)
    assert len(report.outputs) == len(rows)
    assert all("/out/p=" in output.path for output in report.outputs)
    with pytest.raises(plait.errors.OutputExists):
        plait.sort(sources, out, compression="gzip", **options)
    table = pa.table(
        plait.scan(
            out,
            partitions="hive",
            implicit=[],
            storage_options=storage,
            partition_types={"p": "string"},
        )
    )
    assert sorted(zip(table["k"].to_pylist(), table["p"].to_pylist(), strict=True)) == [
        (row["k"], row["p"]) for row in rows
    ]
