"""Rules of rows with one key, at every door: what they refuse, count, keep and copy."""

from __future__ import annotations

import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .conftest import load
from .update_model import (
    SCHEMA,
    check,
    model,
    random_files,
    random_how,
    random_row,
    written,
)


def files_of(folder, *tables):
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{at}.parquet" for at in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        pq.write_table(pa.table(table), path)
    return paths


def test_a_report_counts_values_that_are_not_of_the_last_row(tmp_path):
    paths = files_of(
        tmp_path / "in",
        {"k": [1, 2, 3], "a": [1, 2, 3], "b": ["x", "y", "z"]},
        {"k": [1, 2], "a": [None, 5], "b": [None, None]},
    )
    report = plait.merge(paths, tmp_path / "o.parquet", sort_by="k", on_duplicate="update")
    rows = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, 1, "x"), (2, 5, "y"), (3, 3, "z")]
    assert (report.values_merged, report.rows_dropped) == (3, {"duplicate": 2})
    assert "merged by key" in str(report) and "3 values" in str(report)
    again = plait.MergeReport.from_dict(report.to_dict())
    assert again.values_merged == 3
    kept = plait.merge(paths, tmp_path / "k.parquet", sort_by="k", on_duplicate="keep_last")
    assert kept.values_merged == 0 and "merged by key" not in str(kept)


def test_pages_of_columns_without_updates_are_copied(tmp_path):
    keys = range(40_000)
    base = {"k": keys, **{f"c{c}": [c * i for i in keys] for c in range(8)}}
    change = {"k": range(0, 40_000, 400), "c0": range(0, 40_000, 400)}
    paths = files_of(tmp_path / "in", base, change)
    report = plait.merge(paths, tmp_path / "o.parquet", sort_by="k", on_duplicate="update")
    table = pq.read_table(tmp_path / "o.parquet")
    assert table["c7"].to_pylist() == base["c7"]
    c0 = [i if i % 400 == 0 else 0 for i in keys]
    assert table["c0"].to_pylist() == c0
    # All columns but the key and the one that changes.
    assert report.copied["page"].rows > 40_000 * 7 // 9 - 1000
    assert report.values_merged == 7 * 100


@pytest.mark.parametrize(
    ("type_", "values", "function"),
    [
        (pa.int8(), [100, 27, 1], "sum"),
        (pa.int64(), [2**63 - 1, 1], "sum"),
        (pa.uint8(), [200, 56], "sum"),
        (pa.int32(), [2**20, 2**11], "product"),
        (pa.decimal128(4, 2), [Decimal("99.99"), Decimal("0.01")], "sum"),
    ],
    ids=str,
)
def test_a_sum_that_does_not_fit_is_an_error_with_the_key(tmp_path, type_, values, function):
    tables = [{"k": ["ok", "seven"], "v": pa.array([None, v], type_)} for v in values]
    paths = files_of(tmp_path / "in", *tables)
    how = {"sort_by": "k", "on_duplicate": "aggregate", "aggregate": {"v": function}}
    with pytest.raises(plait.PlaitError, match="seven") as caught:
        plait.merge(paths, tmp_path / "o.parquet", **how)
    assert caught.value.column == "v" and not (tmp_path / "o.parquet").exists()
    with pytest.raises(plait.PlaitError, match="seven"):
        list(plait.merge_streams(list(map(pa.table, tables)), **how))
    with pytest.raises(plait.PlaitError, match="seven"):
        list(plait.read(paths, **how))
    assert plait.merge(paths[:1], tmp_path / "fits.parquet", **how).rows_out == 2


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"replace_columns": ["n"]}, plait.InvalidArgument, "`replace_columns` needs"),
        ({"aggregate": {"n": "sum"}}, plait.InvalidArgument, "`aggregate` needs"),
        ({"version_by": {"v": ["n"]}}, plait.InvalidArgument, "needs on_duplicate"),
        ({"on_duplicate": "aggregate"}, plait.InvalidArgument, "needs `aggregate`"),
        ({"on_duplicate": "update", "version_by": "v"}, plait.InvalidArgument, "`version_by`"),
        (
            {"on_duplicate": "keep_last", "version_by": {"v": ["n"]}},
            plait.InvalidArgument,
            "needs on_duplicate",
        ),
        ({"on_duplicate": "update", "version_by": {"no": ["n"]}}, plait.UnknownColumn, "no"),
        ({"on_duplicate": "update", "version_by": {"v": 3}}, plait.InvalidArgument, "version_by"),
        ({"on_duplicate": "update", "version_by": {3: ["n"]}}, plait.InvalidArgument, "version_by"),
        ({"on_duplicate": "update", "version_by": ["v"]}, plait.InvalidArgument, "version_by"),
        (
            {"on_duplicate": "update", "version_by": {"v": ["n"]}, "replace_columns": ["n"]},
            plait.InvalidArgument,
            "two rules",
        ),
        (
            {"on_duplicate": "update", "version_by": {"v": ["n"], "n": ["v"]}},
            plait.InvalidArgument,
            "two rules",
        ),
        (
            {"on_duplicate": "update", "replace_columns": ["k"]},
            plait.InvalidArgument,
            "sort column",
        ),
        ({"on_duplicate": "update", "replace_columns": ["at.x"]}, plait.InvalidArgument, "at.x"),
        ({"on_duplicate": "update", "replace_columns": ["no"]}, plait.UnknownColumn, "no"),
        ({"on_duplicate": "update", "replace_columns": [3]}, plait.InvalidArgument, "replace_col"),
        ({"on_duplicate": "aggregate", "aggregate": {"no": "sum"}}, plait.UnknownColumn, "no"),
        (
            {"on_duplicate": "aggregate", "aggregate": {"n": "median"}},
            plait.InvalidArgument,
            "no such function",
        ),
        (
            {"on_duplicate": "aggregate", "aggregate": {3: "sum"}},
            plait.InvalidArgument,
            "does not name columns",
        ),
        (
            {"on_duplicate": "aggregate", "aggregate": ["n"]},
            plait.InvalidArgument,
            "not a mapping",
        ),
        (
            {"on_duplicate": "aggregate", "aggregate": {"at": "max"}},
            plait.InvalidArgument,
            "does not take values of this type",
        ),
        (
            {"on_duplicate": "aggregate", "aggregate": {"n": "bool_or"}},
            plait.InvalidArgument,
            "does not take values of this type",
        ),
        ({"on_duplicate": "update", "sort_by": []}, plait.InvalidArgument, "all rows are equal"),
    ],
    ids=repr,
)
def test_rules_that_are_none_are_refused_through_every_door(tmp_path, how, error, words):
    rows = {"k": [1], "n": [1], "v": [1], "at": [{"x": 1}]}
    paths = files_of(tmp_path / "in", rows, rows)
    given = {"sort_by": "k", **how}
    calls = [
        lambda: plait.merge(paths, tmp_path / "o.parquet", **given),
        lambda: plait.plan(paths, **given),
        lambda: plait.read(paths, **given).count(),
        lambda: pa.table(plait.merge_streams([pa.table(rows)] * 2, **given)),
        lambda: written_by_a_writer(tmp_path / "w.parquet", rows, given),
    ]
    if given["sort_by"]:
        calls.append(lambda: plait.compact(tmp_path / "in", policy="full", **given))
    for call in calls:
        with pytest.raises(error, match=words):
            call()
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == []


def written_by_a_writer(path, rows, given):
    with plait.RunWriter(path, **given) as writer:
        writer.write(pa.table(rows))
        writer.write(pa.table(rows))


def test_what_two_passes_combine_is_what_one_does(tmp_path):
    rng = random.Random(7)
    tables = []
    for _ in range(90):
        keys = sorted(rng.choices(range(300), k=300))
        text = ["".join(rng.choices("abcdefgh", k=200)) for _ in keys]
        patch = [rng.choice([None, n]) for n in range(300)]
        gone = [rng.random() < 0.05 for _ in keys]
        tables.append({"k": keys, "t": text, "n": patch, "m": patch, "gone": gone})
    paths = []
    for at, table in enumerate(tables):
        paths.append(tmp_path / f"{at:03}.parquet")
        pq.write_table(pa.table(table), paths[-1], compression="none", use_dictionary=False)
    for how in (
        {"on_duplicate": "update", "replace_columns": ["m"], "version_by": {"n": ["t"]}},
        {"on_duplicate": "aggregate", "aggregate": {"n": "sum", "m": "first", "t": "max"}},
    ):
        given = {"sort_by": "k", "delete_where": "gone", **how}
        few = plait.merge(paths, tmp_path / "few.parquet", memory_limit="16MB", **given)
        assert few.passes == 2
        plait.merge(paths, tmp_path / "all.parquet", memory_limit="2GB", **given)
        tables_out = [pq.read_table(tmp_path / name) for name in ("few.parquet", "all.parquet")]
        assert tables_out[0].equals(tables_out[1])
        assert tables_out[0].equals(pa.table(plait.read(paths, **given)))
        (tmp_path / "few.parquet").unlink()
        (tmp_path / "all.parquet").unlink()


def test_one_key_of_many_rows_is_one_row(tmp_path):
    count = 100_000
    tables = [{"k": [0] * count, "n": [1] * count, "t": [None] * (count - 1) + [s]} for s in "ab"]
    paths = files_of(tmp_path / "in", *tables, {"k": [0], "n": [1]})
    for rule, total in (({"n": "sum", "t": "last_non_null"}, 2 * count + 1), (None, 1)):
        how = (
            {"on_duplicate": "aggregate", "aggregate": rule} if rule else {"on_duplicate": "update"}
        )
        out = tmp_path / f"{total}.parquet"
        plait.merge(paths, out, sort_by="k", page_rows=100, row_group_rows=100, **how)
        expected = [{"k": 0, "n": total, "t": "b"}]
        assert pq.read_table(out).to_pylist() == expected
        assert pa.table(plait.read(paths, sort_by="k", **how)).to_pylist() == expected
        stream = plait.merge_streams(paths, sort_by="k", **how)
        assert pa.table(stream).to_pylist() == expected


def test_row_groups_have_no_more_rows_than_were_asked_for(tmp_path):
    base = pa.table({"k": range(0, 800, 2), "v": range(400)})
    change = pa.table({"k": range(1, 800, 3), "v": [None] * 267})
    paths = [tmp_path / "base.parquet", tmp_path / "change.parquet"]
    pq.write_table(base, paths[0], row_group_size=100)
    pq.write_table(change, paths[1])
    out = tmp_path / "o.parquet"
    plait.merge(paths, out, sort_by="k", on_duplicate="update", row_group_rows=100)
    made = pq.ParquetFile(out).metadata
    assert max(made.row_group(i).num_rows for i in range(made.num_row_groups)) <= 100


def test_a_key_with_more_rows_than_memory_has_room_for_is_an_error(tmp_path):
    paths = files_of(tmp_path / "in", {"k": [1] + [2] * 60_000, "n": [1] * 60_001})
    how = {"sort_by": "k", "on_duplicate": "aggregate", "aggregate": {"n": "sum"}}
    with pytest.raises(plait.MemoryLimitExceeded, match="rows of key 2") as caught:
        plait.merge(paths, tmp_path / "o.parquet", memory_limit="16MB", **how)
    assert caught.value.path == str(paths[0]) and not (tmp_path / "o.parquet").exists()
    plait.merge(paths, tmp_path / "o.parquet", memory_limit="64MB", **how)
    assert pq.read_table(tmp_path / "o.parquet").to_pylist()[1] == {"k": 2, "n": 60_000}


def test_a_tombstone_that_is_kept_leaves_before_the_rows_behind_it(tmp_path):
    tables = [
        {"k": [1, 2, 3], "a": [1, 2, 3], "gone": [False, False, False]},
        {"k": [1, 2], "a": [9, None], "gone": [True, True]},
        {"k": [1], "a": [None], "gone": [False]},
    ]
    paths = files_of(tmp_path / "in", *tables)
    how = {"sort_by": "k", "on_duplicate": "update", "delete_where": "gone"}
    plait.merge(paths[1:], tmp_path / "new.parquet", keep_tombstones=True, **how)
    rows = pq.read_table(tmp_path / "new.parquet").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (1, 9, True),
        (1, None, False),
        (2, None, True),
    ]
    for given in (paths, [paths[0], tmp_path / "new.parquet"]):
        rows = pa.table(plait.read(given, **how)).to_pylist()
        assert [tuple(row.values()) for row in rows] == [(1, None, False), (3, 3, False)]


def test_a_struct_that_has_a_sort_column_is_that_of_the_last_row(tmp_path):
    paths = files_of(
        tmp_path / "in",
        {"at": [{"x": 1, "y": 5}], "v": [1]},
        {"at": [{"x": 1, "y": 6}], "v": [None]},
    )
    for how in (
        {"on_duplicate": "update"},
        {"on_duplicate": "aggregate", "aggregate": {"v": "last_non_null"}},
    ):
        plait.merge(paths, tmp_path / "o.parquet", sort_by="at.x", **how)
        expected = [{"at": {"x": 1, "y": 6}, "v": 1}]
        assert pq.read_table(tmp_path / "o.parquet").to_pylist() == expected
        assert pa.table(plait.read(paths, sort_by="at.x", **how)).to_pylist() == expected
        (tmp_path / "o.parquet").unlink()


# ---- writers, folders, tables, shells


@pytest.mark.parametrize("seed", range(6))
def test_writers_combine_the_rows_of_a_flush(tmp_path, seed):
    rng = random.Random(f"writer {seed}")
    files, _ = random_files(rng, 60)
    how = random_how(rng, with_products=True)
    # Rows of one key stay in the order in which they are written.
    rows = [row for rows in files for row in rng.sample(rows, len(rows))]
    with plait.RunWriter(tmp_path / "o.parquet", sort_by="k, s", **how) as writer:
        for at in range(0, len(rows), 7):
            writer.write(pa.Table.from_pylist(rows[at : at + 7], SCHEMA))
    made = pq.read_table(tmp_path / "o.parquet").to_pylist() if rows else []
    check(made, model([rows], how), how)


@pytest.mark.parametrize("seed", range(12))
def test_a_folder_that_is_compacted_keeps_its_rows(tmp_path, seed):
    rng = random.Random(f"folder {seed}")
    files, _ = random_files(rng, 30)
    how = random_how(rng, with_products=True)
    for at, rows in enumerate(files):
        written(rng, tmp_path / f"{at}.parquet", rows)
    expected = model(files, how)
    for policy in rng.sample(["overlap", "size_tiered", "full"], 2):
        plait.compact(tmp_path, sort_by="k, s", policy=policy, merge_factor=2, **how)
        check(
            pa.table(plait.read(tmp_path, sort_by="k, s", **how)).to_pylist(), expected, policy, how
        )
    plait.compact(tmp_path, sort_by="k, s", policy="full", **how)
    live = [source.path for source in plait.plan(tmp_path, sort_by="k, s").sources]
    whole = [row for path in live for row in pq.ParquetFile(path).read().to_pylist()]
    if len(live) == 1:
        check(whole, expected, how)


def test_tables_refuse_what_is_of_folders(tmp_path):
    table = plait.Table(tmp_path / "t", sort_by="k")
    table.append(pa.table({"k": [1], "n": [1]}))
    for name, how in {
        "on_duplicate": {"on_duplicate": "update"},
        "replace_columns": {"replace_columns": ["n"]},
        "aggregate": {"aggregate": {"n": "sum"}},
        "version_by": {"version_by": {"n": ["m"]}},
    }.items():
        rule = "aggregate" if name == "aggregate" else "update"
        with pytest.raises(plait.InvalidArgument, match=f"`(on_duplicate|{name})`"):
            plait.compact(tmp_path / "t", **{"on_duplicate": rule, **how})
    with pytest.raises(plait.InvalidArgument, match="needs `aggregate`"):
        plait.Table(tmp_path / "new", sort_by="k", on_duplicate="aggregate")


@pytest.mark.parametrize("seed", range(6))
def test_a_table_of_partial_updates_is_a_dictionary(tmp_path, seed):
    rng = random.Random(f"table {seed}")
    how = {"on_duplicate": "update"}
    table = plait.Table(tmp_path / "t", sort_by="k, s", **how)
    batches = []
    for _ in range(8):
        rows = [random_row(rng, 6) for _ in range(rng.randint(1, 30))]
        # Delta has no such type.
        table.append(pa.Table.from_pylist(rows, SCHEMA))
        batches.append(rows)
        if rng.random() < 0.4:
            table.compact(policy=rng.choice(["full", "overlap", "size_tiered"]))
        if rng.random() < 0.3:
            key = rng.randrange(6)
            table.delete(f"k = {key}")
            batches = [[row for row in rows if row["k"] != key] for rows in batches]
        with pytest.raises(plait.InvalidArgument, match="not sorted by"):
            table.delete("n = 1")
        expected = model(batches, how)
        check(pa.table(table.read()).to_pylist(), expected)
        # A row whose file has no such value may have it from another.
        for where, holds in (
            ("n = 2 AND text = 'a'", lambda row: row["n"] == 2 and row["text"] == "a"),
            ("k = 3", lambda row: row["k"] == 3),
            ("yes IS NULL", lambda row: row["yes"] is None),
        ):
            wanted = [row for row in expected if holds(row)]
            check(pa.table(table.read(where=where)).to_pylist(), wanted, where)
            check(pa.table(plait.read(tmp_path / "t", where=where)).to_pylist(), wanted, where)
        plait.merge(tmp_path / "t", tmp_path / f"{len(batches)}.parquet")
        check(pq.read_table(tmp_path / f"{len(batches)}.parquet").to_pylist(), expected)
    assert plait.Table(tmp_path / "t").on_duplicate == "update"


def test_values_of_rows_that_are_deleted_meanwhile_do_not_come_back(tmp_path, monkeypatch):
    """The row of an older file has a value of the row that a compaction makes of several."""
    pytest.importorskip("pyroaring")
    from plait.table.delta import Delta

    vectors, uri = load("vectors"), str(tmp_path / "t")
    table = plait.Table(uri, sort_by="k", on_duplicate="update")
    table.append(pa.table({"k": [1], "a": [1], "b": pa.array([None], pa.int64())}))
    oldest = next(iter(vectors.live(uri)))
    table.append(pa.table({"k": [1], "a": pa.array([None], pa.int64()), "b": [2]}))
    commit, done = Delta.commit, []

    def late(table, change):
        if not done:
            done.append(vectors.delete(uri, oldest, {0}))
        return commit(table, change)

    monkeypatch.setattr(Delta, "commit", late)
    plait.compact(uri, policy="full")
    monkeypatch.undo()
    assert done
    assert pa.table(plait.read(uri)).to_pylist() == [{"k": 1, "a": None, "b": 2}]
    plait.compact(uri, policy="full")
    assert pa.table(plait.read(uri)).to_pylist() == [{"k": 1, "a": None, "b": 2}]


def test_a_shell_writes_the_rules_of_columns(tmp_path, capsys):
    from plait.cli import main

    files_of(
        tmp_path / "in",
        {"k": [1], "a": [1], "b": [1], "c": ["x"], "d": [1], "v": [2], "w": [1]},
        {"k": [1], "a": [2], "b": [2], "c": [None], "d": [None], "v": [1], "w": [2]},
    )

    def merged(name, *options):
        out = tmp_path / f"{name}.parquet"
        code = main(["merge", str(tmp_path / "in"), "-o", str(out), "--sort-by", "k", *options])
        printed = capsys.readouterr()
        return pq.read_table(out).to_pylist()[0] if code == 0 else printed.err

    row = merged("u", "--on-duplicate", "update", "--replace-columns", "c,d", "--version-by", "v=a")
    assert row == {"k": 1, "a": 1, "b": 2, "c": None, "d": None, "v": 2, "w": 2}
    by_two = merged("v", "--on-duplicate", "update", "--version-by", "v=a, b,w=c,d")
    assert by_two == {"k": 1, "a": 1, "b": 1, "c": None, "d": None, "v": 2, "w": 2}
    row = merged("a", "--on-duplicate", "aggregate", "--aggregate", "a=sum,c=first_non_null,d=min")
    assert row == {"k": 1, "a": 3, "b": 2, "c": "x", "d": 1, "v": 1, "w": 2}
    row = merged("k", "--on-duplicate", "keep_last", "--version-by", "v")
    assert row["a"] == 1
    assert "--aggregate" in merged("x", "--aggregate", "a=sum")
    assert "no such function" in merged("x", "--on-duplicate", "aggregate", "--aggregate", "a=avg")
    assert "VERSION=A,B" in merged("x", "--on-duplicate", "update", "--version-by", "a,v=b")


LISTS = pa.schema(
    {
        "k": pa.int64(),
        "tags": pa.large_list(pa.float32()),
        "must": pa.field(
            "must", pa.list_(pa.field("item", pa.int64(), nullable=False)), False
        ).type,
        "map": pa.map_(pa.int32(), pa.struct({"a": pa.list_(pa.string()), "b": pa.bool_()})),
    }
)
COLLECT = {"tags": "collect_distinct", "must": "collect", "map": "merge_map"}


def test_lists_and_maps_are_collected_at_every_door(tmp_path):
    nan = float("nan")
    rows = [
        {"k": 1, "tags": [0.0, nan, None], "must": [1], "map": [(1, {"a": ["x"], "b": None})]},
        {
            "k": 1,
            "tags": [-0.0, nan, 2.0],
            "must": [],
            "map": [(2, None), (1, {"a": [], "b": True})],
        },
        {"k": 2, "tags": [1.0, 1.0], "must": [], "map": []},
        {"k": 2, "tags": None, "must": [], "map": None},
        {"k": 3, "tags": [5.0, 5.0], "must": [5, 5], "map": None},
    ]
    paths = []
    for at, part in enumerate((rows[::2], rows[1::2])):
        paths.append(tmp_path / f"{at}.parquet")
        pq.write_table(pa.Table.from_pylist(part, LISTS), paths[-1])
    how = {"sort_by": "k", "on_duplicate": "aggregate", "aggregate": COLLECT}
    first = "{'k': 1, 'tags': [0.0, nan, None, -0.0, 2.0], 'must': [1], 'map': [(1, {'a': [], "
    first += "'b': True}), (2, None)]}"
    expected = [
        first,
        # The only list of the key stays as it is.
        "{'k': 2, 'tags': [1.0, 1.0], 'must': [], 'map': []}",
        "{'k': 3, 'tags': [5.0, 5.0], 'must': [5, 5], 'map': None}",
    ]
    plait.merge(paths, tmp_path / "o.parquet", **how)
    merged = pq.read_table(tmp_path / "o.parquet")
    assert [str(row) for row in merged.to_pylist()] == expected
    for read in (plait.read(paths, **how), plait.merge_streams(paths, **how)):
        assert [str(row) for row in pa.table(read).to_pylist()] == expected
    pq.ParquetFile(tmp_path / "o.parquet").read()
    found = duckdb.execute(
        "select k from read_parquet(?) where list_contains(tags, 2)", [str(tmp_path / "o.parquet")]
    )
    assert found.fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("function", "type_"),
    [
        ("collect", pa.string()),
        ("collect", pa.list_(pa.int8(), 2)),
        ("collect_distinct", pa.list_(pa.map_(pa.string(), pa.int8()))),
        ("merge_map", pa.list_(pa.int8())),
        ("merge_map", pa.struct({"a": pa.int8()})),
    ],
    ids=str,
)
def test_what_cannot_be_collected_is_refused(tmp_path, function, type_):
    table = {"k": [1], "v": pa.nulls(1, type_)}
    paths = files_of(tmp_path / "in", table, table)
    how = {"sort_by": "k", "on_duplicate": "aggregate", "aggregate": {"v": function}}
    for call in (
        lambda: plait.merge(paths, tmp_path / "o.parquet", **how),
        lambda: pa.table(plait.read(paths, **how)),
        lambda: pa.table(plait.merge_streams([pa.table(table)] * 2, **how)),
    ):
        with pytest.raises(plait.InvalidArgument, match="does not take values of this type"):
            call()
    assert not (tmp_path / "o.parquet").exists()


def test_a_collected_value_has_a_share_of_the_memory_limit(tmp_path):
    table = {"k": [1, 2], "v": [["x" * 100_000] * 10, ["y"]]}
    paths = files_of(tmp_path / "in", *[table] * 4)
    how = {"sort_by": "k", "on_duplicate": "aggregate", "aggregate": {"v": "collect"}}
    plait.merge(paths[:1], tmp_path / "o.parquet", memory_limit="16MB", **how)
    with pytest.raises(plait.MemoryLimitExceeded, match="values of one key are too large"):
        plait.merge(paths, tmp_path / "p.parquet", memory_limit="16MB", **how)
    plait.merge(paths, tmp_path / "p.parquet", memory_limit="64MB", **how)
    assert [len(v) for v in pq.read_table(tmp_path / "p.parquet")["v"].to_pylist()] == [40, 4]
