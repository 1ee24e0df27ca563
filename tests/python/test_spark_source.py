"""The format `plait` reads what Spark reads, sorted and merged, and opens only the files it must.

Readers are ordinary objects: most tests call them as Spark does, without a session.
"""

import base64
import datetime as dt
import json
import os
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

from pyspark.sql import datasource as ds

from plait import _native
from plait.spark import types
from plait.spark.filters import conditions
from plait.spark.source import MergingReader, PushingReader, Query

from .make_types import TYPES, array, every_decimal, every_type, stably_sorted
from .update_model import among, check, model, random_files, random_how, written

pytestmark = pytest.mark.local  # the format reads local files

CASES = 300 if os.environ.get("CI") else 40


def read(options, pushed=()):
    """The rows that a reader gives, partition by partition, as Spark would call it."""
    query = Query.of({name: str(value) for name, value in options.items()})
    schema = query.spark_schema()
    reader = PushingReader(query, schema) if pushed else MergingReader(query, schema)
    if pushed:
        assert list(reader.pushFilters(list(pushed))) == list(pushed)
    found = []
    for partition in reader.partitions():
        batches = list(reader.read(partition))
        assert all(batch.schema == types.edge_schema(schema) for batch in batches)
        found.append([row for batch in batches for row in batch.to_pylist()])
    return found


def flat(parts):
    return [row for part in parts for row in part]


# ---- keys


@pytest.mark.parametrize("name", [n for n, t in TYPES.items() if not pa.types.is_nested(t)])
def test_a_key_has_the_bytes_that_a_plan_tells(name, tmp_path):
    if name in ("null", "tensor"):  # not a key, or a list
        return
    path = tmp_path / "one.parquet"
    for seed in range(3):
        for order in ("x", "-x", "-x nulls first"):
            some = array(TYPES[name], 4, random.Random(seed))
            pq.write_table(pa.table({"x": some.slice(seed, 1)}), path)
            planned = plait.plan(path, sort_by=order).to_dict()
            (batch,) = pq.read_table(path).to_batches()
            (key,) = _native.row_keys(batch, order)
            expected = base64.b64decode(planned["sources"][0]["first"])
            assert key == (expected if some[seed].is_valid else None), some[seed]


def test_an_order_is_read_as_it_is_written():
    schema = pa.schema(
        {"a b": pa.int32(), "s": pa.struct({"x": pa.int64()}), 'q"': pa.string(), "n": pa.int8()}
    )
    columns = _native.sort_columns('"a b", -s.x NULLS first,"q""" desc, n asc nulls last', schema)
    assert columns == [
        (["a b"], False, False),
        (["s", "x"], True, True),
        (['q"'], True, False),
        (["n"], False, False),
    ]
    assert _native.sort_columns("absent") == [(["absent"], False, False)]
    with pytest.raises(plait.UnknownColumn, match="absent"):
        _native.sort_columns("absent", schema)


# ---- the merge


def make_runs(rng, folder, order):
    """A few sorted files of `a`, `b`, `v`, and all their rows in the order of the sources."""
    files = []
    letters = ["", "a", "a\0", "ab", "b", "é", None]
    for i in range(rng.randint(1, 5)):
        count = rng.choice((0, 1, 7, 40, 150))
        rows = [
            {"a": rng.choice(letters), "b": rng.choice((None, *range(-4, 5))), "v": (i, j)}
            for j in range(count)
        ]
        rows = [{**row, "v": i * 1000 + j} for j, row in enumerate(in_order(rows, order))]
        schema = pa.schema({"a": pa.string(), "b": pa.int32(), "v": pa.int64()})
        path = folder / f"{i}.parquet"
        size = rng.choice((1, 5, 50, 1000))
        pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=size)
        files.append(rows)
    return files


def in_order(rows, order):
    """The oracle: stable sorts, from the last column to the first."""
    for column in reversed(order.split(", ")):
        name = column.split()[0].lstrip("-")
        known = sorted(
            (row for row in rows if row[name] is not None),
            key=lambda row: row[name].encode() if isinstance(row[name], str) else row[name],
            reverse=False,
        )
        if column.startswith("-"):
            # Descending and stable: the groups turned around, not the rows in them.
            groups = {}
            for row in known:
                groups.setdefault(row[name], []).append(row)
            known = [row for value in reversed(groups) for row in groups[value]]
        nulls = [row for row in rows if row[name] is None]
        rows = nulls + known if "nulls first" in column else known + nulls
    return rows


ORDERS = ("a, b", "-a, b", "a nulls first, -b", "b, a", "-b nulls first", "a")


def only_one(rows, order, which):
    names = [column.split()[0].lstrip("-") for column in order.split(", ")]
    kept = {}
    for row in rows:
        key = tuple(row[name] for name in names)
        if which == "keep_last" or key not in kept:
            kept[key] = row
    chosen = {row["v"] for row in kept.values()}
    return [row for row in rows if row["v"] in chosen]


def random_filter(rng):
    name = rng.choice("ab")
    value = rng.choice(["", "a", "ab", "b", "zz"] if name == "a" else list(range(-5, 6)))

    def less(x, y):
        return x.encode() < y.encode() if isinstance(x, str) else x < y

    values = tuple({value, "a" if name == "a" else 0})
    tests = {
        ds.EqualTo: lambda x: x is not None and x == value,
        ds.LessThan: lambda x: x is not None and less(x, value),
        ds.LessThanOrEqual: lambda x: x is not None and not less(value, x),
        ds.GreaterThan: lambda x: x is not None and less(value, x),
        ds.GreaterThanOrEqual: lambda x: x is not None and not less(x, value),
        ds.EqualNullSafe: lambda x: x == value,
    }
    kind = rng.choice([*tests, ds.In, ds.IsNull, ds.IsNotNull, ds.StringStartsWith, ds.Not])
    if kind is ds.In:
        return ds.In((name,), values), lambda row: row[name] in values
    if kind is ds.IsNull:
        return ds.IsNull((name,)), lambda row: row[name] is None
    if kind is ds.IsNotNull:
        return ds.IsNotNull((name,)), lambda row: row[name] is not None
    if kind is ds.StringStartsWith:
        return ds.StringStartsWith(("a",), "a"), lambda row: (row["a"] or "").startswith("a")
    if kind is ds.Not:
        return ds.Not(ds.EqualTo((name,), value)), lambda row: row[name] not in (None, value)
    return kind((name,), value), lambda row: tests[kind](row[name])


@pytest.mark.parametrize("seed", range(CASES))
def test_rows_are_those_of_a_stable_sort_however_they_are_parted(seed, tmp_path):
    rng = random.Random(seed)
    order = rng.choice(ORDERS)
    files = make_runs(rng, tmp_path, order)
    rows = in_order([row for file in files for row in file], order)
    which = rng.choice(("keep_all", "keep_all", "keep_first", "keep_last"))
    options = {
        "path": tmp_path,
        "sort_by": order,
        "part_rows": rng.choice((3, 20, 100, 10_000)),
        "batch_rows": rng.choice((1, 7, 65_536)),
        "on_duplicate": which,
    }
    expected = rows if which == "keep_all" else only_one(rows, order, which)
    assert flat(read(options)) == expected
    # Filters leave out nothing that they keep; what more there is, Spark filters out.
    pushed, tests = zip(*(random_filter(rng) for _ in range(rng.randint(1, 3))))
    kept = [row for row in expected if all(test(row) for test in tests)]
    found = flat(read(options, pushed))
    assert [row for row in found if all(test(row) for test in tests)] == kept
    assert len(found) <= len(expected)


def test_rows_of_one_key_are_in_one_partition(tmp_path):
    for i in range(3):
        pq.write_table(pa.table({"k": [1] * 50 + [2] * 50}), tmp_path / f"{i}.parquet")
    parts = read({"path": tmp_path, "sort_by": "k", "part_rows": 10})
    assert [{row["k"] for row in part} for part in parts] == [{1}, {2}]


def test_where_is_exact(tmp_path):
    for i in range(3):
        table = pa.table({"name": ["a"] * 50 + ["b"] * 50, "ts": [*range(i, 150, 3)] * 2})
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=9)
    options = {"path": tmp_path, "sort_by": "name, ts", "part_rows": 40}
    found = flat(read({**options, "where": "name = 'b' and ts >= 100 and ts < 104"}))
    assert [(row["name"], row["ts"]) for row in found] == [("b", ts) for ts in range(100, 104)]
    assert flat(read({**options, "where": "name = 'c'"})) == []
    assert len(flat(read({**options, "where": "name > 'a'"}))) == 150
    assert len(flat(read({**options, "where": "ts between 100 and 104"}))) == 10
    for wrong, error in (
        ("name ! 3", plait.InvalidArgument),
        ("name = 'a' and absent = 3", plait.UnknownColumn),
        ("name = 'a' and ts > x", plait.InvalidArgument),
    ):
        with pytest.raises(error):
            read({**options, "where": wrong})


def test_a_filter_on_the_leading_key_opens_only_the_files_it_must(tmp_path):
    for i in range(8):
        rows = range(i * 100, i * 100 + 100)
        pq.write_table(pa.table({"k": rows, "v": [i] * 100}), tmp_path / f"{i}.parquet")
    log = tmp_path / "log"
    options = {"path": tmp_path / "*.parquet", "sort_by": "k", "read_log": log}
    found = flat(read(options, [ds.GreaterThan(("k",), 250), ds.LessThan(("k",), 420)]))
    assert [row["k"] for row in found] == list(range(251, 420))
    (entry,) = [json.loads(path.read_text()) for path in log.iterdir()]
    assert (entry["files_opened"], entry["rows"]) == (3, len(found))


def test_a_filter_whose_value_a_column_cannot_hold_leaves_out_nothing():
    def texts(kind, value, type_=None):
        return conditions([kind(("x",), value)], pa.schema({"x": type_ or pa.float32()}))

    assert texts(ds.EqualTo, 0.5) == ['"x" = 0.5']
    for value in (0.1, "text", None, 10**400):
        assert texts(ds.EqualTo, value) == []
    assert texts(ds.EqualTo, 300, pa.uint8()) == []
    assert texts(ds.EqualTo, Decimal(2**63), pa.uint64()) == [f'"x" = {2**63}']
    assert texts(ds.In, (1, None, 300), pa.uint8()) == []
    assert texts(ds.In, (1, None, 3), pa.uint8()) == ['"x" IN (1, 3)']
    assert texts(ds.StringStartsWith, "a%", pa.string()) == []
    for type_ in (pa.time64("us"), pa.list_(pa.int8()), pa.decimal256(50, 1), pa.binary()):
        assert conditions([ds.IsNotNull(("x",))], pa.schema({"x": type_})) == []
    # Spark sees microseconds, and there may be nanoseconds around them.
    moment, nanos = dt.datetime(2024, 1, 1), pa.timestamp("ns")
    assert texts(ds.LessThan, moment, nanos) == ["\"x\" <= '2024-01-01 00:00:00.000001'"]
    assert texts(ds.EqualTo, moment, nanos) == [
        "\"x\" >= '2023-12-31 23:59:59.999999'",
        "\"x\" <= '2024-01-01 00:00:00.000001'",
    ]
    assert texts(ds.EqualTo, dt.datetime(9999, 1, 1), nanos) == []
    assert texts(ds.In, (moment,), nanos) == []


def test_no_cuts_are_looked_for_where_filters_leave_few_rows(tmp_path):
    """Without page indexes only counting some files shows it."""
    for i in range(6):
        table = pa.table({"k": range(i, 6000, 6), "v": [i] * 1000})
        if i % 2:
            table = table.append_column("w", pa.array(range(1000)))
        pq.write_table(table, tmp_path / f"{i}.parquet")
    options = {"path": tmp_path, "sort_by": "k", "part_rows": 500}
    assert len(read(options)) > 8
    few = read(options, [ds.GreaterThan(("k",), 3000), ds.LessThan(("k",), 3010)])
    assert [[row["k"] for row in part] for part in few] == [list(range(3001, 3010))]
    assert len(read(options, [ds.GreaterThan(("k",), 1000)])) > 6
    # A column that the files that are counted lack.
    found = flat(read(options, [ds.LessThan(("w",), 3)]))
    assert sorted(row["k"] for row in found) == [1, 3, 5, 7, 9, 11, 13, 15, 17]


def test_deletions_and_versions_are_those_of_merge(tmp_path):
    base = {"k": [1, 2, 3], "n": [5, 5, 5], "gone": [False, False, False], "w": ["a", "b", "c"]}
    change = {"k": [1, 2, 4], "n": [4, 6, 1], "gone": [False, True, False], "w": ["A", "B", "D"]}
    for i, columns in enumerate((base, change)):
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    options = {"path": tmp_path, "sort_by": "k", "on_duplicate": "keep_last", "columns": "w, k"}
    more = {"version_by": "n", "delete_where": "gone"}
    found = [(row["k"], row["w"]) for row in flat(read({**options, **more}))]
    assert found == [(1, "a"), (3, "c"), (4, "D")]


def test_rules_of_columns_are_texts(tmp_path):
    base = {"k": [1, 2], "n": [5, 5], "v": [2, 2], "w": ["a", "b"]}
    change = {"k": [1, 2], "n": [4, None], "v": [1, 3], "w": [None, "B"]}
    for i, columns in enumerate((base, change)):
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    options = {"path": tmp_path, "sort_by": "k"}

    def found(**rules):
        return [(row["n"], row["v"], row["w"]) for row in flat(read({**options, **rules}))]

    assert found(on_duplicate="update") == [(4, 1, "a"), (5, 3, "B")]
    replaced = {"on_duplicate": "update", "replace_columns": "w, n"}
    assert found(**replaced) == [(4, 1, None), (None, 3, "B")]
    by_version = {"on_duplicate": "update", "version_by": '{"v": ["n"]}'}
    assert found(**by_version) == [(5, 2, "a"), (None, 3, "B")]
    sums = {"on_duplicate": "aggregate", "aggregate": '{"n": "sum", "v": "max"}'}
    assert found(**sums) == [(9, 2, None), (5, 3, "B")]
    for wrong, said in (
        ({"aggregate": '{"n": sum}'}, "not a JSON object"),
        ({"aggregate": "sum"}, "not a mapping"),
        ({"aggregate": '{"n": "median"}'}, "no such function"),
        ({"version_by": '{"v": 3}'}, "does not name columns"),
    ):
        with pytest.raises(plait.InvalidArgument, match=said):
            found(on_duplicate="aggregate", **wrong)


def test_files_that_drift_have_one_schema_in_every_partition(tmp_path):
    pq.write_table(pa.table({"k": pa.array([1, 2], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": ["x", "y"], "k": [5, 6]}), tmp_path / "b.parquet")
    parts = read({"path": tmp_path, "sort_by": "k", "part_rows": 2})
    assert len(parts) == 2
    assert flat(parts)[0] == {"k": 1, "v": None} and flat(parts)[3] == {"k": 6, "v": "y"}


def test_what_is_wrong_is_said_before_a_task_runs(tmp_path):
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "a.parquet")
    path = {"path": tmp_path}
    for options, error in (
        ({"path": tmp_path / "absent", "sort_by": "k"}, plait.SourceNotFound),
        ({**path, "sort_by": "absent"}, plait.UnknownColumn),
        ({**path, "sort_by": "k", "columns": "k, absent"}, plait.UnknownColumn),
        ({**path, "sort_by": "k", "columns": ""}, plait.SchemaConflict),
        ({**path, "sort_by": "k", "part_rows": "many"}, plait.InvalidArgument),
        ({**path, "sort_by": "k", "on_duplicate": "keep"}, plait.InvalidArgument),
        ({**path, "sort_by": "k", "sorted_by": "k"}, plait.InvalidArgument),
        ({"sort_by": "k"}, plait.InvalidArgument),
        ({"path": "hdfs://host/x", "sort_by": "k"}, plait.InvalidArgument),
    ):
        with pytest.raises(error):
            read(options)
    pq.write_table(pa.table({"k": [2, 1]}), tmp_path / "a.parquet")
    with pytest.raises(plait.UnsortedSource):
        read({**path, "sort_by": "k"})


@pytest.mark.parametrize("option", ["partitions", "partition_types", "root", "limit", "implicit"])
def test_an_option_of_scans_is_refused_with_the_call_that_has_it(option, tmp_path):
    with pytest.raises(plait.InvalidArgument, match=rf"`{option}`\nhint: `plait\.spark\.scan`"):
        Query.of({"path": str(tmp_path), "sort_by": "k", option: "1"})


def test_text_in_a_sorted_read_is_refused_by_name(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"k": 1}\n')
    with pytest.raises(plait.PlaitError, match=r"a\.jsonl"):
        read({"path": tmp_path / "a.jsonl", "sort_by": "k"})


def test_a_file_that_changed_after_planning_is_refused(tmp_path):
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "a.parquet")
    query = Query.of({"path": str(tmp_path), "sort_by": "k"})
    reader = MergingReader(query, query.spark_schema())
    (partition,) = reader.partitions()
    pq.write_table(pa.table({"k": [1, 3]}), tmp_path / "a.parquet")
    with pytest.raises(plait.SourceChanged, match=r"a\.parquet"):
        list(reader.read(partition))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(plait.SourceNotFound, match=r"a\.parquet"):
        list(reader.read(partition))


def test_a_damaged_page_is_an_error_of_ours(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"k": list(range(5000)), "v": [random.random() for _ in range(5000)]}), path
    )
    query = Query.of({"path": str(tmp_path), "sort_by": "k"})
    schema = query.spark_schema()
    chunk = pq.read_metadata(path).row_group(0).column(1)
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset + 30)
        file.write(b"\xff" * 200)
    reader = MergingReader(query, schema)
    (partition,) = reader.partitions()
    with pytest.raises(plait.PlaitError) as raised:
        list(reader.read(partition))
    assert isinstance(raised.value, plait.CorruptSource)


# ---- types

TIMES = {"time32_s": 10**3, "time32_ms": 10**3, "time64_us": 10**6, "time64_ns": 10**9}


def as_spark_has_it(name, column):
    """What a column of `every_type` is in Spark: the oracle of the table in the guide."""
    values = column.to_pylist() if not name.endswith("_ns") else None
    if name.startswith("time"):
        return [None if v is None else v for v in column.cast(ints(column)).to_pylist()]
    if values is None:
        counts = column.cast(pa.int64()).to_pylist()
        return [None if v is None else v // 1000 for v in counts]
    if name == "tz_paris":
        return column.cast(pa.timestamp("us", "UTC")).to_pylist()
    if name == "bool8":
        return [None if v is None else bool(v) for v in values]
    if name == "uint64":
        return [None if v is None else Decimal(v) for v in values]
    if name == "decimal256":
        return [None if v is None else f"{v:f}" for v in values]
    return values


def ints(column):
    return pa.int32() if column.type.bit_width == 32 else pa.int64()


def test_every_type_arrives_as_the_guide_says(tmp_path, root):
    tables = [every_type(90, seed) for seed in range(2)]
    for seed, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{seed}.parquet", row_group_size=25)
    query = Query.of(
        {"path": str(tmp_path), "sort_by": "k", "lossy": "truncate", "part_rows": "50"}
    )
    schema = query.spark_schema()
    reader = MergingReader(query, schema)
    found = pa.Table.from_batches(
        [batch for part in reader.partitions() for batch in reader.read(part)]
    )
    stored = [pq.read_table(tmp_path / f"{seed}.parquet") for seed in range(2)]
    expected = stably_sorted(stored)
    guide = (root / "docs/guide/spark-data.md").read_text(encoding="utf-8")
    for name, column in expected.items():
        have = found[name]
        if name.endswith("_ns") and not name.startswith("time"):
            have = have.cast(pa.int64())
        assert repr(have.to_pylist()) == repr(as_spark_has_it(name, column)), name
    converted = types.converted(stored[0].schema)
    for said in converted.values():
        kind = said.partition(" becomes ")[2].partition("(")[0].partition("<")[0]
        assert f"`{kind}" in guide, said
    assert {"uint8", "uuid", "ts_ns", "dict8", "decimal256"} <= converted.keys()
    assert not {"k", "int64", "string", "list", "map", "struct_deep", "ts_us"} & converted.keys()


def test_nanoseconds_are_not_cut_off_in_silence(tmp_path):
    times = pa.array([1_000, 1_001], pa.timestamp("ns"))
    pq.write_table(pa.table({"k": [1, 2], "t": times}), tmp_path / "a.parquet")
    with pytest.raises(plait.LossyCast, match="`t`"):
        read({"path": tmp_path, "sort_by": "k"})
    found = flat(read({"path": tmp_path, "sort_by": "k", "lossy": "truncate"}))
    assert [row["t"].microsecond for row in found] == [1, 1]


def test_names_with_dots_are_names(tmp_path):
    columns = {"a": [1, 2], "a.b": [3, 4], "c": [{"a.b": 5}, {"a.b": 6}]}
    for i in range(2):
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    options = {"path": tmp_path, "sort_by": '"a.b", a', "part_rows": 2}
    assert flat(read({**options, "columns": "a"})) == [{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}]
    found = flat(read({**options, "where": '"a.b" = 4'}))
    assert found == [{"a": 2, "a.b": 4, "c": {"a.b": 6}}] * 2
    nested = flat(read({**options, "sort_by": 'c."a.b" nulls first', "columns": '"a.b"'}))
    assert nested == [{"a.b": 3}, {"a.b": 3}, {"a.b": 4}, {"a.b": 4}]


def test_options_and_calls_are_in_the_guide(root):
    from plait.spark import __all__, functions, sink, source

    guide = (root / "docs/guide/spark-data.md").read_text(encoding="utf-8")
    options = {*source.OPTIONS, *sink.OPTIONS} - {"path", "paths", "checkpointlocation"}
    assert [name for name in options if f"`{name}`" not in guide] == []
    pages = "".join(p.read_text(encoding="utf-8") for p in (root / "docs/guide").glob("spark*.md"))
    assert [name for name in __all__ if name not in pages] == []
    assert [name for name in functions.__all__ if f"`{name}(" not in guide] == []


def test_what_spark_cannot_tell_apart_is_refused(tmp_path):
    pq.write_table(pa.table({"k": [1], "K": [2]}), tmp_path / "a.parquet")
    with pytest.raises(plait.SchemaConflict, match="one name"):
        read({"path": tmp_path, "sort_by": "k"})


# ---- in Spark


@pytest.fixture
def plaited(spark):
    from plait import spark as ps

    ps.register(spark)
    return spark


def reprs(frame):
    return [repr(row) for row in frame.collect()]


@pytest.mark.spark
def test_rows_are_those_of_sparks_own_read_and_sort(plaited, tmp_path):
    from .test_spark import NOT_IN_SPARK, in_key_order

    for seed in range(3):
        table = every_type(80, seed, without=NOT_IN_SPARK)
        pq.write_table(table, tmp_path / f"{seed}.parquet", row_group_size=30)
    paths = [str(tmp_path / f"{seed}.parquet") for seed in range(3)]
    frame = plaited.read.format("plait").options(sort_by="k", part_rows="60").load(paths)
    assert frame.selectExpr("spark_partition_id() part").distinct().count() > 2
    own = [plaited.read.parquet(path) for path in paths]
    assert [f.dataType for f in frame.schema] == [f.dataType for f in own[0].schema]
    expected = in_key_order([row for some in own for row in some.collect()])
    assert reprs(frame) == list(map(repr, expected))
    assert reprs(frame.where("k between 3 and 5")) == [
        repr(row) for row in expected if row[0] in (3, 4, 5)
    ]
    assert frame.where("k is null").count() == sum(row[0] is None for row in expected)


@pytest.mark.spark
def test_timestamps_of_twelve_bytes_are_what_spark_reads(plaited, tmp_path):
    plaited.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    frame = plaited.range(200).selectExpr(
        "timestamp_micros(id * 86399000001 - 10000000000001) t", "array(timestamp_micros(id)) l"
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "a"))
    back = (
        plaited.read.format("plait").options(sort_by="t", part_rows="50").load(str(tmp_path / "a"))
    )
    assert back.dtypes == frame.dtypes
    assert reprs(back) == reprs(frame)
    late = "t > timestamp '1970-04-01'"
    assert reprs(back.where(late)) == reprs(frame.where(late))


@pytest.mark.spark
def test_decimals_of_all_precisions_arrive(plaited, tmp_path):
    pq.write_table(every_decimal(60, 1, most=38), tmp_path / "a.parquet")
    back = plaited.read.format("plait").option("sort_by", "k").load(str(tmp_path))
    assert reprs(back) == reprs(plaited.read.parquet(str(tmp_path)))


@pytest.mark.spark
def test_an_upsert_view_is_sparks_last_row_of_every_key(plaited, tmp_path):
    rng = random.Random(5)
    for i in range(4):
        ks = sorted(rng.randrange(500) for _ in range(400))
        versions = [i * 1000 + j for j in range(400)]
        pq.write_table(pa.table({"k": ks, "version": versions}), tmp_path / f"{i}.parquet")
    options = {"sort_by": "k", "on_duplicate": "keep_last", "part_rows": "300"}
    view = plaited.read.format("plait").options(**options).load(str(tmp_path))
    own = plaited.read.parquet(str(tmp_path)).groupBy("k").agg({"version": "max"}).orderBy("k")
    assert [tuple(row) for row in view.collect()] == [tuple(row) for row in own.collect()]
    few = view.where("k in (3, 77, 400) and version > 1000")
    assert {tuple(row) for row in few.collect()} == {
        tuple(row) for row in own.where("k in (3, 77, 400)").collect() if row[1] > 1000
    }


@pytest.mark.spark
def test_filters_reach_the_source_through_spark(plaited, tmp_path):
    for i in range(5):
        rows = pa.table({"name": [f"m{i}"] * 50, "ts": list(range(50))})
        pq.write_table(rows, tmp_path / f"{i}.parquet")
    options = {"sort_by": "name, ts", "read_log": str(tmp_path / "log")}
    frame = plaited.read.format("plait").options(**options).load(str(tmp_path / "*.parquet"))
    assert frame.where("name = 'm3' and ts >= 45").count() == 5
    (entry,) = [json.loads(path.read_text()) for path in (tmp_path / "log").iterdir()]
    assert (entry["files_opened"], entry["rows"]) == (1, 5)
    assert frame.where("name = 'none'").count() == 0


@pytest.mark.spark
def test_errors_of_tasks_name_file_and_reason(plaited, tmp_path):
    from pyspark.errors import PySparkException

    pq.write_table(
        pa.table({"k": [1, 2], "t": pa.array([1, 2], pa.timestamp("ns"))}), tmp_path / "a"
    )
    (tmp_path / "a").rename(tmp_path / "a.parquet")
    frame = plaited.read.format("plait").option("sort_by", "k").load(str(tmp_path))
    with pytest.raises(PySparkException, match="LossyCast: column `t`"):
        frame.collect()
    with pytest.raises(PySparkException, match="no such option"):
        _ = plaited.read.format("plait").option("sortby", "k").load(str(tmp_path)).schema


@pytest.mark.few(3)
@pytest.mark.parametrize("history", range(24))
def test_rows_of_one_key_become_what_a_merge_makes_of_them(history, tmp_path):
    rng = random.Random(f"updates in the format {history}")
    files, lacking = random_files(rng, 30)
    how = among(random_how(rng, with_products=True), lacking)
    if how is None:
        return  # no file has a column that a rule names
    for at, (rows, lacks) in enumerate(zip(files, lacking, strict=True)):
        written(rng, tmp_path / f"{at:02}.parquet", rows, lacks)
    texts = {list: ",".join, dict: json.dumps, str: str}
    options = {name: texts[type(value)](value) for name, value in how.items() if value}
    rows = flat(read({"path": tmp_path, "sort_by": "k, s", **options}))
    check(rows, model(files, how), how)


def test_a_table_is_read_by_its_rules(tmp_path):
    how = {"on_duplicate": "aggregate", "aggregate": {"n": "sum"}}
    path = str(tmp_path / "t")
    table = plait.Table(path, sort_by="k", **how)
    table.append(pa.table({"k": [1, 2], "n": [1, 1], "v": [1, 2]}))
    table.append(pa.table({"k": [1, 2], "n": [1, 2], "v": [3, None]}))
    for _ in range(2):
        found = [{"k": 1, "n": 2, "v": 3}, {"k": 2, "n": 3, "v": None}]
        assert flat(read({"path": path})) == found
        assert flat(read({"path": path}, [ds.EqualTo(("k",), 2)])) == found[1:]
        table.compact(policy="full")
    table.append(pa.table({"k": [1], "n": [7], "v": [5]}))
    # What the options say counts.
    some = {"path": path, "where": "k = 1"}
    assert flat(read({**some, "on_duplicate": "keep_last"})) == [{"k": 1, "n": 7, "v": 5}]
    assert flat(read({**some, "aggregate": '{"n": "min"}'})) == [{"k": 1, "n": 2, "v": 5}]
    # No file that is left has the column of the rule.
    table.delete("k < 3")
    table.append(pa.table({"k": [7], "v": [5]}))
    found = [{"k": 7, "n": None, "v": 5}]
    assert flat(read({"path": path})) == found
    assert flat(read({"path": path, "where": "n = 7"})) == []
    assert flat(read({"path": path}, [ds.IsNull(("n",))])) == found
    paths = json.dumps([path, path])
    with pytest.raises(plait.InvalidArgument, match="among several paths has a rule"):
        read({"paths": paths})
    log = next((tmp_path / "t" / "_delta_log").glob(f"{0:020}.json"))
    log.write_text(log.read_text().replace("sum", "median"))
    with pytest.raises(plait.Unsupported, match=f"`{path}` has a rule.*no such function"):
        read({"path": path})
    assert flat(read({"path": path, "on_duplicate": "keep_all"})) == found


def test_files_that_a_filter_leaves_may_all_lack_a_column(tmp_path):
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [5, 6], "x": [7, 8]}), tmp_path / "b.parquet")
    options = {"path": tmp_path, "sort_by": "k"}
    assert flat(read(options, [ds.EqualTo(("k",), 1)])) == [{"k": 1, "x": None}]
    rules = {"on_duplicate": "aggregate", "aggregate": '{"x": "sum"}'}
    assert flat(read(options | rules, [ds.EqualTo(("k",), 2)])) == [{"k": 2, "x": None}]
