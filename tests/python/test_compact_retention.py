"""Rows past their retention: a reason of its own to write files again, and options of dry runs."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main
from plait.table import compact_delta, compact_iceberg

pytestmark = pytest.mark.local  # the tests look at the files of folders

CASES = 400 if os.environ.get("PLAIT_LONG") else 60


def write(path: Path, table: dict | pa.Table, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)


def read(folder: Path) -> list[dict]:
    return pa.table(plait.scan(folder)).to_pylist()


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "events"
    for day in range(4):
        write(made / f"{day}.parquet", {"ts": [day * 10, day * 10 + 5], "v": [day, day]})
    return made


HOW = {"sort_by": "ts", "drop_where": "ts < 12"}


@pytest.mark.parametrize("policy", ["size_tiered", "overlap"])
def test_expired_rows_alone_are_a_reason_to_write_a_file_again(folder, policy):
    dry = plait.compact(folder, policy=policy, yes=False, **HOW)
    assert dry.dry_run and [len(group.sources) for group in dry.groups] == [1, 1]
    done = plait.compact(folder, policy=policy, yes=True, **HOW)
    names = [[Path(path).name for path in group.sources] for group in done.groups]
    assert names == [["0.parquet"], ["1.parquet"]]
    assert [len(group.outputs) for group in done.groups] == [0, 1]
    assert [group.rows_dropped for group in done.groups] == [{"expired": 2}, {"expired": 1}]
    assert [row["ts"] for row in read(folder)] == [15, 20, 25, 30, 35]
    assert plait.compact(folder, policy=policy, yes=True, **HOW).groups == ()
    assert len(plait.expire(folder, retention=0, yes=True).replaced) == 2
    assert [row["ts"] for row in read(folder)] == [15, 20, 25, 30, 35]


def test_files_of_expired_rows_only_are_dropped_at_once_and_nothing_is_written(folder):
    done = plait.compact(folder, sort_by="ts", drop_where="ts <= 25", yes=True)
    assert [(len(g.sources), g.outputs, g.rows_dropped) for g in done.groups] == [
        (3, (), {"expired": 6})
    ]
    assert not list(folder.glob("_plait/files/**/*.parquet"))
    assert [row["ts"] for row in read(folder)] == [30, 35]
    assert "dropped 6 rows: expired" in str(done)
    plait.compact(folder, sort_by="ts", drop_where="ts >= 0", yes=True)
    plait.expire(folder, retention=0, yes=True)
    assert list(folder.rglob("*.parquet")) == []


def test_a_file_that_is_written_again_keeps_its_level(folder):
    for limit in (12, 13, 14):
        plait.compact(folder, sort_by="ts", drop_where=f"ts < {limit}", yes=True)
        write(folder / "1x.parquet", {"ts": [limit], "v": [0]})
    (made,) = folder.glob("_plait/files/*.parquet")
    assert plait.inspect(made).metadata["plait.merge_level"] == "0"
    merged = plait.compact(folder, policy="full", sort_by="ts", yes=True).groups[0].outputs[0]
    assert plait.inspect(merged).metadata["plait.merge_level"] == "1"


def test_what_the_policy_merges_drops_its_rows_on_the_way(folder):
    done = plait.compact(folder, policy="full", yes=True, **HOW)
    assert [len(group.sources) for group in done.groups] == [4]
    assert [row["ts"] for row in read(folder)] == [15, 20, 25, 30, 35]


def test_statistics_that_lie_lose_no_row(tmp_path):
    """A footer that says all rows are expired is not believed: the rows are looked at."""
    write(tmp_path / "a.parquet", {"ts": pa.array([1, 2, 900], pa.int64())})
    data = (tmp_path / "a.parquet").read_bytes()
    at = data.rindex(b"PAR1") - 4
    footer = at - int.from_bytes(data[at : at + 4], "little")
    lying = data[footer:].replace((900).to_bytes(8, "little"), (3).to_bytes(8, "little"))
    assert lying != data[footer:]
    (tmp_path / "a.parquet").write_bytes(data[:footer] + lying)
    plait.compact(tmp_path, sort_by="ts", drop_where="ts < 100", yes=True)
    assert [row["ts"] for row in read(tmp_path)] == [900]


OPERATORS = {
    "<": pc.less,
    "<=": pc.less_equal,
    "=": pc.equal,
    ">=": pc.greater_equal,
    ">": pc.greater,
}
TYPES = {
    "int32": lambda rng: rng.randrange(-20, 20),
    "uint64": lambda rng: rng.randrange(40),
    "date32": lambda rng: rng.randrange(40),
    "timestamp": lambda rng: rng.randrange(40) * 1_000_000,
    "double": lambda rng: rng.choice([rng.uniform(-9, 9), float("nan"), 0.0]),
    "string": lambda rng: rng.choice("abcd") * rng.randrange(1, 4),
}
ARROW = {"timestamp": pa.timestamp("us"), "double": pa.float64()}


def column(rng: random.Random, kind: str, rows: int) -> pa.Array:
    values = [None if rng.random() < 0.15 else TYPES[kind](rng) for _ in range(rows)]
    return pa.array(values, ARROW.get(kind) or pa.type_for_alias(kind))


@pytest.mark.parametrize("seed", range(CASES))
def test_random_folders_keep_the_rows_that_are_not_expired(tmp_path, seed):
    rng = random.Random(seed)
    kind = rng.choice(sorted(TYPES))
    order = rng.choice(["ts", "-ts", "k, ts", "ts nulls first, k", "k, -ts nulls first"])
    whole = []
    for part in range(rng.randrange(1, 6)):
        rows = rng.randrange(0, 30)
        keys = pa.array([rng.randrange(3) for _ in range(rows)], pa.int64())
        table = pa.table({"k": keys, "ts": column(rng, kind, rows)})
        table = sorted_by(table, order, tmp_path)
        write(
            tmp_path / "in" / f"{part}.parquet",
            table,
            row_group_size=rng.choice([5, 1000]),
            write_statistics=rng.random() < 0.7,
        )
        whole.append(table)
    table = pa.concat_tables(whole)
    operator = rng.choice(sorted(OPERATORS))
    value = column(rng, kind, 100).drop_null()[0]
    text = value.cast(pa.string()).as_py() if kind != "double" else repr(value.as_py())
    expired = OPERATORS[operator](table["ts"], value)
    if kind == "double":
        nan = pc.is_nan(table["ts"])
        # NaN is the greatest number here, and equal to itself.
        is_nan = value.as_py() != value.as_py()
        holds = {"<": False, "<=": is_nan, "=": is_nan, ">=": True, ">": not is_nan}[operator]
        others = {"<": True, "<=": True, "=": False, ">=": False, ">": False}[operator]
        expired = pc.if_else(nan, holds, others if is_nan else expired)
    expected = table.filter(pc.invert(pc.fill_null(expired, False)))
    how = {"sort_by": order, "drop_where": f"ts {operator} {text}", "yes": True}
    policy = rng.choice(["size_tiered", "overlap", "full"])
    plait.compact(tmp_path / "in", policy=policy, **how)
    assert sorted(map(str, read(tmp_path / "in"))) == sorted(map(str, expected.to_pylist())), seed
    again = plait.compact(tmp_path / "in", policy="size_tiered", **how)
    assert again.groups == (), seed


def sorted_by(table: pa.Table, order: str, folder: Path) -> pa.Table:
    """Sorts by a merge of files of one row: whatever the engine's order is, these are in it."""
    one = folder / "one"
    for row in range(table.num_rows):
        write(one / f"{row:03}.parquet", table.slice(row, 1))
    if not table.num_rows:
        return table
    made = pa.table(
        plait.merge_streams(
            [table.slice(i, 1).to_reader() for i in range(table.num_rows)], sort_by=order
        )
    )
    return made.cast(table.schema)


# -- dry runs --------------------------------------------------------------------------------------


BAD = [
    ({"drop_where": "nonsense"}, plait.InvalidArgument, "not a comparison"),
    ({"drop_where": "v < 3"}, plait.InvalidArgument, "needs a key column"),
    ({"drop_where": "absent < 3"}, plait.UnknownColumn, "absent"),
    ({"drop_where": "ts < soon"}, plait.PlaitError, "soon"),
    ({"on_duplicate": "keep_last", "version_by": "absent"}, plait.UnknownColumn, "absent"),
    ({"on_duplicate": "keep_last", "delete_where": "absent"}, plait.UnknownColumn, "absent"),
    ({"on_duplicate": "keep_last", "delete_where": "v"}, plait.InvalidArgument, "not boolean"),
    ({"version_by": "v"}, plait.InvalidArgument, "version_by"),
    ({"compression": "nonsense"}, plait.InvalidArgument, "compression"),
    ({"threads": 0}, plait.InvalidArgument, "threads"),
    ({"memory_limit": "1kB"}, plait.InvalidArgument, "memory_limit"),
    ({"target_file_size": "0B"}, plait.InvalidArgument, "target_file_size"),
    ({"storage_options": {"a": None}}, plait.InvalidArgument, "storage_options"),
]


@pytest.mark.parametrize(("options", "error", "match"), BAD, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("yes", [False, True])
@pytest.mark.parametrize("files", [1, 4])
def test_dry_runs_refuse_what_real_runs_refuse(folder, options, error, match, yes, files):
    for path in sorted(folder.glob("*.parquet"))[files:]:
        path.unlink()
    with pytest.raises(error, match=match):
        plait.compact(folder, policy="full", yes=yes, **{"sort_by": "ts", **options})
    assert not (folder / "_plait").exists()


@pytest.mark.parametrize(("options", "error", "match"), BAD[:7], ids=lambda value: str(value)[:40])
def test_a_plan_refuses_what_its_execution_would(folder, options, error, match):
    with pytest.raises(error, match=match):
        plait.plan(folder, sort_by="ts", **options)


def test_the_command_line_refuses_in_a_dry_run(folder, capsys):
    arguments = ["compact", str(folder), "--sort-by", "ts", "--drop-where", "v < 3"]
    codes = [main([*arguments, "--dry-run"]), main([*arguments, "--yes"])]
    assert codes[0] == codes[1] != 0
    told = capsys.readouterr().err
    assert told.count("needs a key column") == 2
    assert main([*arguments[:-1], "ts < 12", "--dry-run"]) == 0
    assert "would merge 2 files" in capsys.readouterr().out
    assert main([*arguments[:-1], "ts < 12", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["rows_dropped"] == {"expired": 2}


TABLE_BAD = [
    ({"compression": "nonsense"}, plait.InvalidArgument, "compression"),
    ({"threads": 0}, plait.InvalidArgument, "threads"),
    ({"memory_limit": "1kB"}, plait.InvalidArgument, "memory_limit"),
    ({"target_file_size": "0B"}, plait.InvalidArgument, "target_file_size"),
    ({"storage_options": {"a": None}}, plait.InvalidArgument, "storage_options"),
    ({"where": "day"}, plait.InvalidArgument, "where"),
    ({"where": {"day": 1.5}}, plait.InvalidArgument, "where"),
    ({"where": {"absent": "1"}}, plait.UnknownColumn, "no such partition column"),
    ({"sort_by": 3}, plait.InvalidArgument, "sort_by"),
    ({"yes": 1}, plait.InvalidArgument, "yes"),
]


@pytest.mark.parametrize(
    ("options", "error", "match"), TABLE_BAD, ids=lambda value: str(value)[:40]
)
@pytest.mark.parametrize("yes", [False, True])
def test_dry_runs_of_delta_tables_refuse_what_real_runs_refuse(
    tmp_path, options, error, match, yes
):
    deltalake = pytest.importorskip("deltalake")
    table = pa.table({"k": [1, 2], "day": ["1", "1"]})
    deltalake.write_deltalake(str(tmp_path / "t"), table, partition_by=["day"])
    with pytest.raises(error, match=match):
        compact_delta(tmp_path / "t", **{"sort_by": "k", "yes": yes, **options})
    assert deltalake.DeltaTable(str(tmp_path / "t")).version() == 0


@pytest.mark.parametrize(
    ("options", "error", "match"), TABLE_BAD, ids=lambda value: str(value)[:40]
)
@pytest.mark.parametrize("rows", [0, 2])
def test_dry_runs_of_iceberg_tables_refuse_what_real_runs_refuse(
    tmp_path, options, error, match, rows
):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = sql.SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/lake"
    )
    catalog.create_namespace("db")
    table = pa.table({"k": [1, 2]}).slice(0, rows)
    events = catalog.create_table("db.events", table.schema)
    if rows:
        events.append(table)
    for yes in (False, True):
        with pytest.raises(error, match=match):
            compact_iceberg(catalog, "db.events", **{"sort_by": "k", "yes": yes, **options})


@pytest.mark.few(1)
@pytest.mark.spark
def test_dry_runs_on_spark_refuse_what_real_runs_refuse(spark, tmp_path):
    ps = pytest.importorskip("plait.spark")
    for part in range(2):
        write(tmp_path / "in" / "day=1" / f"{part}.parquet", {"k": [part, part + 5]})
    cases = [case for case in TABLE_BAD if "threads" not in case[0]]
    for options, error, match in cases:
        for yes in (False, True):
            with pytest.raises(error, match=match):
                ps.compact(spark, tmp_path / "in", **{"sort_by": "k", "yes": yes, **options})
    assert not (tmp_path / "in" / "_plait").exists()
    where = {"where": {"day": "1"}, "sort_by": "k"}
    with pytest.raises(plait.InvalidArgument, match="goes without `out`"):
        ps.compact(spark, tmp_path / "in", tmp_path / "out", **where)
    assert len(ps.compact(spark, tmp_path / "in", **where).groups) == 1
