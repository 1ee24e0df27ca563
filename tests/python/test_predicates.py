"""A filter that is right on the sources is right on the outputs, for every engine.

Random predicates on random columns of random merges. Each engine answers from the sources and from
the outputs; where it differs, the same rows in memory, where no statistics can mislead it, decide. `PLAIT_LONG=1` asks 10,000
predicates, a checkout 500; a failure names the number of its lake:

    PLAIT_PREDICATES_LAKE=1234 pytest tests/python/test_predicates.py

Bugs of engines, which they have on files that no merge made, are named in `known_bug`, each with a
test of its smallest case that expects the bug.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait

from . import footers
from .predicate_engines import (
    DataFusion,
    DuckDB,
    Polars,
    PyArrow,
    Spark,
    Unsupported,
    truth,
)
from .predicates import (
    ROW,
    TYPES,
    Column,
    Lake,
    Predicate,
    columns_of,
    make_lake,
    random_predicate,
)

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests/cases/hostile"
SEED = os.environ.get("PLAIT_PREDICATES_SEED", "20261123")
ONLY = os.environ.get("PLAIT_PREDICATES_LAKE")
DUCKDB = tuple(map(int, duckdb.__version__.split(".")[:3]))
PREDICATES = 10_000 if os.environ.get("PLAIT_LONG") else 500
A_LAKE = 25
LAKES_A_TEST = 5


def engines(number: int = 0) -> list:
    pushdown = "true" if number % 2 else "false"
    return [PyArrow(), Polars(), DuckDB(), DataFusion(pushdown_filters=pushdown)]


def ordered(rows: list) -> list[str]:
    """As texts: NaN is not equal to itself."""
    return sorted(map(repr, rows))


# Bugs of engines ------------------------------------------------------------------------------


def known_bug(name: str, lake: Lake, asked: Predicate, answer: list, held: list) -> str | None:
    """The bug of an engine that explains why it answers otherwise than from memory."""
    wrong = set(answer) ^ set(held)
    if lake.row != ROW:
        return None
    if pa.types.is_floating(asked.column.type):
        nans = truth(lake, Predicate(asked.column, "nan"), nan_is_greatest=True)
        is_pruned = name in ("duckdb", "datafusion") or (name == "pyarrow" and asked.op == "in")
        if is_pruned and wrong <= nans:
            return "takes bounds for those of NaN, too, which every writer leaves out"
        if name == "pyarrow" and asked.op == "nan" and wrong <= nans:
            if all(has_one_number(lake, asked.column, row) for row in wrong):
                return "takes a row group of NaN and one other number for that number alone"
    is_bytes = pa.types.is_string(asked.column.type) or pa.types.is_binary(asked.column.type)
    is_bytes |= pa.types.is_fixed_size_binary(asked.column.type)
    if name == "duckdb" and asked.op == "null" and is_bytes and wrong.isdisjoint(held):
        if all(begins_with_one_value(lake, asked.column, row) for row in wrong):
            return "takes the values of a first page of one value and nulls for nulls"
    return None


def has_one_number(lake: Lake, column: Column, row: int) -> bool:
    """Whether all values in the row group of the row but NaN are one number."""
    for path in lake.outputs:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=[ROW, ".".join(column.path)])
            if row in table[ROW].to_pylist():
                values = table[column.path[0]]
                for name in column.path[1:]:
                    values = pc.struct_field(values, name)
                return len({v for v in values.to_pylist() if v is not None and v == v}) == 1
    return False


def begins_with_one_value(lake: Lake, column: Column, row: int) -> bool:
    """Whether no other value is before the row in its row group."""
    for path in lake.outputs:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=[ROW, ".".join(column.path)])
            rows = table[ROW].to_pylist()
            if row in rows:
                values = table[column.path[0]]
                for name in column.path[1:]:
                    values = pc.struct_field(values, name)
                before = values.slice(0, rows.index(row) + 1).drop_null()
                return pc.count_distinct(before).as_py() == 1
    return False


def from_file(engine, folder, values: list, type_: pa.DataType, op: str, *of, **how) -> list[int]:
    """What an engine answers from a small file of PyArrow."""
    path = folder / "small" / "x.parquet"
    path.parent.mkdir(exist_ok=True)
    table = pa.table({"x": pa.array(values, type_), ROW: list(range(len(values)))})
    pq.write_table(table, path, **how)
    return engine.answer(engine.open([str(path)]), Predicate(Column(("x",), type_, ()), op, of))


@pytest.mark.xfail(reason="prunes NaN by bounds that leave NaN out", strict=True)
@pytest.mark.parametrize("op", ["=", ">="])
@pytest.mark.parametrize("engine", [DuckDB, DataFusion], ids=lambda engine: engine.name)
def test_engines_find_nan_in_a_file_of_pyarrow(tmp_path, engine, op):
    found = from_file(engine(), tmp_path, [1.0, math.nan, 2.0], pa.float64(), op, math.nan)
    assert found == [1]


@pytest.mark.xfail(reason="prunes NaN by bounds that leave NaN out", strict=True)
def test_pyarrow_finds_nan_among_values_of_a_list(tmp_path):
    found = from_file(PyArrow(), tmp_path, [1.0, math.nan, 2.0], pa.float64(), "in", math.nan)
    assert found == [1]


@pytest.mark.xfail(reason="takes NaN and one other number for that number", strict=True)
def test_pyarrow_finds_nan_beside_one_number(tmp_path):
    found = from_file(PyArrow(), tmp_path, [math.nan, 1.0], pa.float32(), "nan")
    assert found == [0]


@pytest.mark.xfail(
    DUCKDB < (2, 0, 1), reason="reads a first page of one value and nulls as nulls", strict=True
)
def test_duckdb_finds_nulls_beside_one_value_in_a_file_of_pyarrow(tmp_path):
    asked = ([b"a", None], pa.binary(), "null")
    assert from_file(DuckDB(), tmp_path, *asked, use_dictionary=False) == [1]


# The test -------------------------------------------------------------------------------------


class Asking:
    """Asks engines of a lake, and keeps what was answered and what was wrong."""

    def __init__(self, lake: Lake, engines: list) -> None:
        self.lake = lake
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.opened = []
        for engine in engines:
            try:
                sources = engine.open(lake.sources)
            except Exception:
                continue  # of several writers, whose types the engine does not unite
            self.opened.append((engine, sources, engine.open(lake.outputs)))

    def ask(self, asked: Predicate) -> None:
        for engine, sources, outputs in self.opened:
            row = self.lake.row
            try:
                of_sources = ordered(engine.answer(sources, asked, row))
            except Exception:
                self.counts["not answered from the sources"] += 1
                continue
            self.counts[engine.name] += 1
            try:
                answer = engine.answer(outputs, asked, row)
                if ordered(answer) == of_sources:
                    continue
                held = engine.answer(engine.hold(self.lake.table), asked, row)
            except Exception as error:
                self.wrong.append(f"{engine.name}: {asked}: {error}\n  {self.lake.note}")
                continue
            if ordered(answer) == ordered(held):
                self.counts["wrong on the sources"] += 1
            elif known_bug(engine.name, self.lake, asked, answer, held):
                self.counts["known bugs"] += 1
            else:
                self.wrong.append(
                    f"{engine.name}: {asked}: {len(answer)} rows, {len(of_sources)} from the "
                    f"sources, {len(held)} from memory\n  {self.lake.note}"
                )


LAKES = math.ceil(PREDICATES / A_LAKE)


@pytest.mark.few(1)
@pytest.mark.parametrize("part", [int(ONLY)] if ONLY else range(0, LAKES, LAKES_A_TEST))
def test_filters_find_the_same_rows_in_outputs_as_in_sources(tmp_path, part, record_property):
    wrong, counts = [], Counter()
    for number in range(part, part + (1 if ONLY else min(LAKES_A_TEST, LAKES - part))):
        folder = tmp_path / str(number)
        lake = make_lake(f"{SEED} {number}", folder)
        assert_uniform(lake.outputs)
        asking, rng = Asking(lake, engines(number)), random.Random(f"{SEED} {number} asked")
        for _ in range(A_LAKE):
            asking.ask(random_predicate(rng, lake))
        wrong += [f"lake {number}: {text}" for text in asking.wrong]
        counts += asking.counts
        shutil.rmtree(folder)
    record_property("counts", dict(counts))
    print(f"seed {SEED}, lakes from {part}: {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    asked = A_LAKE * (1 if ONLY else min(LAKES_A_TEST, LAKES - part))
    if not ONLY and asked == A_LAKE * LAKES_A_TEST:
        assert all(counts[engine.name] > asked / 5 for engine in engines()), counts


def assert_uniform(paths) -> None:
    """Every column of a file has bounds and null counts in all row groups, or in none."""
    for path in paths:
        metadata = pq.read_metadata(path)
        for leaf in range(metadata.num_columns):
            told = set()
            for group in range(metadata.num_row_groups):
                chunk = metadata.row_group(group).column(leaf)
                statistics = chunk.statistics
                if statistics is not None and statistics.null_count == chunk.num_values:
                    continue  # nothing but nulls has no bounds
                told.add(
                    statistics is not None and (statistics.has_null_count, statistics.has_min_max)
                )
            assert len(told) < 2, (path, chunk.path_in_schema, told)


def floats(path, group: int, leaf: int) -> list[float]:
    """The values of a chunk of floats."""

    def below(value: object) -> list[float]:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list | tuple):
            return [found for member in value for found in below(member)]
        return [value] if isinstance(value, float) else []

    name = pq.read_metadata(path).row_group(group).column(leaf).path_in_schema
    return below(pq.ParquetFile(path).read_row_group(group, columns=[name]).column(0).to_pylist())


# Statistics in all row groups or in none ------------------------------------------------------


@pytest.mark.parametrize("case", ["1630", "1804"])
def test_datafusion_finds_every_row_where_some_sources_have_no_statistics(tmp_path, case):
    """Row groups without bounds, copied with others, once hid rows from filters."""
    told = json.loads((CASES / case / "case.json").read_text())
    sources = sorted((CASES / case).glob("*.parquet"))
    report = plait.merge(sources, tmp_path / "out", sort_by=told["sort_by"], **told["opts"])
    assert report.copied["chunk"].rows > 0
    files = [output.path for output in report.outputs]
    assert_uniform(files)
    table = pa.concat_tables([pq.read_table(file) for file in files])
    engine = DataFusion(pushdown_filters="true")
    outputs, memory = engine.open(files), engine.hold(table)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            continue
        for value in column.drop_null():
            asked = Equal(Column((name,), column.type, ()), "=", (value,))
            found = engine.answer(outputs, asked)
            assert found and ordered(found) == ordered(engine.answer(memory, asked)), asked


class Equal(Predicate):
    """Values are scalars already."""

    def scalars(self) -> list[pa.Scalar]:
        return list(self.values)


@pytest.mark.parametrize("level", ["page", "chunk", "none"])
@pytest.mark.parametrize(
    "fields",
    [
        ["ColumnMetaData.statistics"],
        ["Statistics.null_count"],
        ["Statistics.min_value"],
        ["Statistics.max_value", "Statistics.min_value"],
        ["FileMetaData.column_orders"],
    ],
    ids="+".join,
)
def test_columns_have_statistics_in_all_row_groups_or_in_none(tmp_path, fields, level):
    rng = random.Random(f"{fields} {level}")
    columns = {name: [draw(rng) for _ in range(60)] for name, (_, draw) in TYPES.items()}
    columns["s"] = [None if i % 7 == 0 else {"x": i, "y": [str(i)] * (i % 3)} for i in range(60)]
    types = {name: type_ for name, (type_, _) in TYPES.items()}
    types["s"] = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    table = table.append_column("k", pa.array(range(60)))
    whole, bare = tmp_path / "whole.parquet", tmp_path / "bare.parquet"
    pq.write_table(table.slice(0, 30), whole, row_group_size=10, write_page_index=True)
    pq.write_table(table.slice(30), tmp_path / "t.parquet", row_group_size=10)
    footers.without(tmp_path / "t.parquet", bare, *fields)
    out = tmp_path / "out.parquet"
    how = {"sort_by": "k", "row_group_rows": 10, "statistics": level}
    report = plait.merge([whole, bare], out, **how)
    assert report.copied["chunk"].rows == 60
    assert_uniform([out])
    rows = [row for path in (whole, bare) for row in pq.read_table(path).to_pylist()]
    assert repr(pq.read_table(out).to_pylist()) == repr(rows)
    woven = tmp_path / "woven.parquet"
    plait.merge([whole, bare], woven, copy_tiers=(), **how)
    metadata, expected = pq.read_metadata(out), pq.read_metadata(woven)
    assert metadata.num_row_groups == expected.num_row_groups == 6
    for group in range(3, 6):
        for leaf in range(metadata.num_columns):
            found = metadata.row_group(group).column(leaf)
            wanted = expected.row_group(group).column(leaf)
            if level == "none":
                assert found.statistics is None
            else:
                assert found.statistics.null_count == wanted.statistics.null_count
                if found.statistics.physical_type in ("FLOAT", "DOUBLE"):
                    # Bounds leave NaN out, which hides them from Spark: there are none where NaN
                    # were found, and then in no row group.
                    counted = [floats(out, other, leaf) for other in range(3, 6)]
                    values = counted[group - 3]
                    if any(math.isnan(value) for values in counted for value in values):
                        assert not found.statistics.has_min_max
                    elif values:
                        assert found.statistics.min == min(values)
                        assert found.statistics.max == max(values)
                    continue
                assert found.statistics.has_min_max == wanted.statistics.has_min_max
                if found.statistics.has_min_max and "column_orders" not in fields[0]:
                    assert repr(found.statistics.min) == repr(wanted.statistics.min)
                    assert repr(found.statistics.max) == repr(wanted.statistics.max)


def test_an_overlay_has_statistics_in_all_row_groups_or_in_none(tmp_path):
    table = pa.table({"i": list(range(40)), "a": [str(i) for i in range(40)]})
    files = []
    for part, has in ((0, True), (1, False)):
        files.append(str(tmp_path / f"{part}.parquet"))
        pq.write_table(table.slice(20 * part, 20), files[-1], write_statistics=has)
    out = tmp_path / "out.parquet"
    report = plait.overlay_files([plait.Layer(files)], out, index="i")
    assert report.copied["chunk"].rows == 40
    assert pq.read_metadata(out).num_row_groups == 2
    assert_uniform([out])


# Files of other writers -----------------------------------------------------------------------

HOME = Path(os.environ.get("PLAIT_PARQUET_TESTING", ROOT.parent / "shared/data/parquet-testing"))
ROWS_MAX = 20_000


@pytest.mark.long
@pytest.mark.skipif(not (HOME / "data").is_dir(), reason="no files of other writers")
def test_filters_find_the_same_rows_in_copies_of_files_of_other_writers(tmp_path):
    wrong, counts = [], Counter()
    predicates = 20 if os.environ.get("PLAIT_LONG") else 4
    for path in sorted((HOME / "data").glob("*.parquet")):
        rng = random.Random(f"{SEED} {path.name}")
        lake = copied(rng, path, tmp_path / path.stem)
        if lake is None:
            counts["files left out"] += 1
            continue
        asking = Asking(lake, engines())
        for _ in range(predicates):
            asking.ask(random_predicate(rng, lake))
        wrong += [f"{path.name}: {text}" for text in asking.wrong]
        counts += asking.counts
    print(f"seed {SEED}: {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert all(counts[name] > 60 for name in ("pyarrow", "polars", "duckdb", "datafusion")), counts


def copied(rng: random.Random, path: Path, folder: Path) -> Lake | None:
    """A lake of one source that somebody else wrote; none if PyArrow or Plait refuse it."""
    try:
        table = pq.read_table(path)
        (folder / "sources").mkdir(parents=True)
        source = shutil.copyfile(path, folder / "sources" / "0.parquet")
        tiers = rng.choice((("chunk", "page", "dict"), ("page",), ()))
        groups = rng.choice((100, 1_000_000))
        how = {"sort_by": [], "copy_tiers": tiers, "row_group_rows": groups, "page_rows": 50}
        report = plait.merge(source, folder / "outputs", **how)
    except (plait.PlaitError, pa.ArrowException, OSError, NotImplementedError):
        return None
    known = {str(type_) for type_, _ in TYPES.values()}
    flat = [name for name in dict.fromkeys(table.column_names) if str(table[name].type) in known]
    # Rows have no numbers here to tell those of NaN by.
    flat = [
        name
        for name in flat
        if not pa.types.is_floating(table[name].type) or not pc.any(pc.is_nan(table[name])).as_py()
    ]
    if (
        not flat
        or not 0 < table.num_rows <= ROWS_MAX
        or len(set(table.column_names)) < table.num_columns
    ):
        return None
    outputs = tuple(output.path for output in report.outputs)
    columns = columns_of(table.select(flat))
    return Lake(f"{path.name} {how}", table.select(flat), columns, (str(source),), outputs, flat[0])


# Spark ----------------------------------------------------------------------------------------


def is_right(predicate: Predicate, sources: list, outputs: list, held: list) -> bool:
    """Whether Spark found in outputs what it found in sources, or what there is.

    To Spark NaN is the greatest value, and it prunes by bounds all the same, in which the format has
    no NaN: of sources with such bounds it loses rows. Outputs may lose fewer, and no others.
    """
    if outputs in (sources, held):
        return True
    is_float = pa.types.is_floating(predicate.column.type)
    return (
        is_float
        and not Counter(sources) - Counter(outputs)
        and not Counter(outputs) - Counter(held)
    )


@pytest.mark.long
@pytest.mark.spark
def test_spark_finds_the_same_rows_in_outputs_as_in_sources(tmp_path, spark):
    wrong, asked = [], 0
    engine = Spark(spark)
    kinds = ("bool", "i32", "i64", "f32", "f64", "text", "bytes", "dec5", "dec18", "date", "ts_us")
    lakes, predicates = (25, 40) if os.environ.get("PLAIT_LONG") else (3, 6)
    for number in range(lakes):
        folder = tmp_path / str(number)
        lake = make_lake(f"{SEED} spark {number}", folder, ("pyarrow",), kinds)
        if number % 3 == 2:
            lake = written_by(spark, lake, folder)
        sources, outputs = engine.open(lake.sources), engine.open(lake.outputs)
        rng = random.Random(f"{SEED} spark {number} asked")
        for _ in range(predicates):
            predicate = random_predicate(rng, lake)
            try:
                found = [sorted(engine.answer(files, predicate)) for files in (sources, outputs)]
            except Unsupported:
                continue
            asked += 1
            held = sorted(truth(lake, predicate, nan_is_greatest=True))
            if not is_right(predicate, *found, held):
                wrong.append(
                    f"lake {number}: {predicate}: {list(map(len, [*found, held]))}\n  {lake.note}"
                )
    print(f"seed {SEED}: {asked} predicates")
    assert not wrong, "\n".join(wrong)
    assert asked >= lakes * predicates * 2 / 3


@pytest.mark.few(1)
@pytest.mark.spark
@pytest.mark.parametrize("writer", ["spark", "duckdb"])
@pytest.mark.parametrize("how", [{}, {"row_group_rows": 10}, {"copy_tiers": ()}])
def test_spark_finds_nan_in_outputs_of_sources_in_which_it_finds_them(tmp_path, spark, writer, how):
    """Spark and DuckDB write no bounds where there are NaN."""
    values = [math.nan if row % 4 == 0 else float(row) for row in range(40)]
    table = pa.table({"r": range(40), "v": values, "s": [{"x": value} for value in values]})
    source, out = tmp_path / "source", tmp_path / "out.parquet"
    pq.write_table(table, tmp_path / "t.parquet")
    if writer == "spark":
        spark.read.parquet(str(tmp_path / "t.parquet")).coalesce(1).write.parquet(str(source))
    else:
        source.mkdir()
        copied = f"COPY (SELECT * FROM '{tmp_path / 't.parquet'}') TO '{source / 'd.parquet'}'"
        duckdb.sql(copied)
    plait.merge(sorted(source.glob("*.parquet")), out, sort_by="r", **how)
    asked = ["v = {}", "v in ({}, 3.0)", "v >= {}", "v > 38.5", "v < {}", "isnan(v)", "s.x >= {}"]
    for predicate in (text.format("double('NaN')") for text in asked):
        counts = [spark.read.parquet(str(path)).where(predicate).count() for path in (source, out)]
        assert counts[0] == counts[1] > 0, predicate


def written_by(spark, lake: Lake, folder: Path) -> Lake:
    """The lake with sources that Spark wrote, INT96 among them, merged again."""
    files = []
    for i, source in enumerate(lake.sources):
        made = folder / f"spark-{i}"
        frame = spark.read.parquet(source).coalesce(1)
        frame.write.option("parquet.block.size", 1 << 14).parquet(str(made))
        files += [str(path) for path in sorted(made.glob("*.parquet"))]
    report = plait.merge(files, folder / "again", sort_by=[], row_group_rows=50)
    outputs = tuple(output.path for output in report.outputs)
    return Lake(f"{lake.note}, by Spark", lake.table, lake.columns, tuple(files), outputs)
