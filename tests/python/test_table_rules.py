"""Tables that keep functions, version columns and replaced columns: every door reads rows by them.

Random histories of appends, deletes and compactions are compared with a dictionary.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .command_line import plait_command
from .update_model import SCHEMA, check, model, nulls_last, random_files, random_how

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.local

ORDER = "k, s"
RUNS = 12 if os.environ.get("PLAIT_LONG") else 5


def rows(read):
    return pa.table(read).to_pylist()


def pairs(read):
    return [tuple(row.values()) for row in rows(read)]


def run(*arguments):
    done = plait_command(*map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


def table_how(rng):
    """Rules that a table keeps."""
    if rng.random() < 0.25:
        rule = rng.choice(["keep_last", "keep_first"])
        return {"on_duplicate": rule, "version_by": rng.choice(["seq_1", "seq_2"])}
    how = random_how(rng, with_products=False)
    return {name: of for name, of in how.items() if name not in ("delete_where", "drop_where")}


def expected(batches, how):
    """What a table has."""
    if not isinstance(how.get("version_by"), str):
        return model(batches, how)
    sign, keys = (1 if how["on_duplicate"] == "keep_last" else -1), {}
    for at, row in enumerate(row for batch in batches for row in batch):
        version = row[how["version_by"]]
        rank = (version is not None, version, sign * at)
        keys.setdefault((row["k"], row["s"]), []).append((rank, at, row))
    newest = [max(of)[2] for of in keys.values()]
    return sorted(newest, key=lambda row: nulls_last([row["k"], row["s"]]))


CONDITIONS = {
    "k = 2": lambda row: row["k"] == 2,
    "k >= 1 AND s = 'a'": lambda row: row["k"] is not None and row["k"] >= 1 and row["s"] == "a",
    "k IS NULL": lambda row: row["k"] is None,
    "s != ''": lambda row: row["s"] not in (None, ""),
}


def some(rng, table, path, out):
    """Rows of a table by some door, and which of all they are."""
    where, holds = rng.choice(list(CONDITIONS.items()))
    every = lambda row: True  # noqa: E731
    doors = {
        "Table.read": lambda: (table.read(threads=rng.choice([1, 2])), every),
        "Table.read of some": lambda: (table.read(where=where), holds),
        "Table.read by values": lambda: (table.read(where="m > 0"), lambda r: (r["m"] or 0) > 0),
        "read": lambda: (plait.read(path), every),
        "read of some": lambda: (plait.read(path, where=where), holds),
        "merge_streams": lambda: (plait.merge_streams(path, sort_by=ORDER), every),
        "plan": lambda: (plait.read(plait.plan(path, outputs=2)), every),
        "merge": lambda: (merged(path, out), every),
    }
    name = rng.choice(list(doors))
    return name, *doors[name]()


def merged(path, out):
    plait.merge(path, out)
    read = pq.read_table(out)
    out.unlink()
    return read


@pytest.mark.parametrize("seed", range(RUNS))
def test_random_histories_are_a_dictionary_by_every_door(tmp_path, seed):
    rng = random.Random(f"rules of tables {seed}")
    how, path = table_how(rng), str(tmp_path / "t")
    table = plait.Table(path, sort_by=ORDER, **how)
    batches = []
    files = zip(*random_files(rng, 20), strict=True)
    for batch, lacks in [(batch, lacks) for batch, lacks in files if batch]:
        given = pa.Table.from_pylist(rng.sample(batch, len(batch)), SCHEMA)
        batches.append(given.to_pylist())
        # The first batch makes the table, and has all of its columns.
        left_out = rng.sample(SCHEMA.names[2:], 4) if rng.random() < 0.3 else lacks
        left_out = sorted(left_out) if len(batches) > 1 else []
        batches[-1] = [row | dict.fromkeys(left_out) for row in batches[-1]]
        table.append(given.drop(left_out))
        if rng.random() < 0.2:
            where, holds = rng.choice(list(CONDITIONS.items()))
            table.delete(where)
            batches = [[row for row in of if not holds(row)] for of in batches]
        if rng.random() < 0.4:
            options = {
                "policy": rng.choice(["full", "overlap", "size_tiered"]),
                "merge_factor": 2,
                "target_file_size": rng.choice([None, "2kB"]),
            }
            compact = rng.choice([plait.compact, plait.table.compact_delta, None])
            done = compact(path, **options) if compact else table.compact(**options)
            assert not done.skipped
        if rng.random() < 0.2:
            table = plait.Table(path)
        if not any(batches):
            continue
        name, read, holds = some(rng, table, path, tmp_path / "out.parquet")
        check(rows(read), list(filter(holds, expected(batches, how))), how, name)
    if any(batches):
        table.compact(policy="full")
        theirs = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
        theirs.sort(key=lambda row: nulls_last([row["k"], row["s"]]))
        check(theirs, expected(batches, how), how, "deltalake")
        check(rows(table.read()), expected(batches, how), how)


def test_partitions_have_rules_of_their_own_columns(tmp_path):
    path = str(tmp_path / "t")
    table = plait.Table(
        path, sort_by="k", partition_by=["p"], on_duplicate="aggregate", aggregate={"n": "sum"}
    )
    for n in (1, 10):
        table.append(pa.table({"p": [1, 2, 1], "k": [1, 1, 1], "n": [n, n, n], "x": [n, n, n]}))
    table.append(pa.table({"p": [2], "k": [1]}))
    found = [(1, 22, 10, 1), (1, 11, None, 2)]
    for _ in range(2):
        assert pairs(table.read()) == pairs(plait.read(path)) == found
        assert pairs(plait.read(f"{path}/p=2")) == [found[1]]
        table.compact(policy="full")
    assert len(table.files()) == 2
    for named in ("p", "k"):
        other = plait.Table(
            f"{path}-{named}",
            sort_by="k",
            partition_by=["p"],
            on_duplicate="update",
            replace_columns=[named],
        )
        with pytest.raises(plait.InvalidArgument, match="a sort column has one value") as caught:
            other.append(pa.table({"p": [1], "k": [1]}))
        assert caught.value.column == named and not Path(f"{path}-{named}").exists()


# -- the rules of a table --------------------------------------------------------------------------

RULES = [
    {"on_duplicate": "aggregate", "aggregate": {"b": "max", "a": "sum"}},
    {"on_duplicate": "update", "replace_columns": ["b", "a"]},
    {"on_duplicate": "update", "version_by": {"v": ["b", "a"]}, "replace_columns": ["c"]},
    {"on_duplicate": "keep_last", "version_by": "v"},
]
BATCH = pa.table({"k": [2, 1], "a": [1, 2], "b": [3, 4], "c": [5, 6], "v": [7, 8]})


def read_alike(table, how):
    assert table.on_duplicate == how["on_duplicate"]
    assert table.aggregate == how.get("aggregate", {})
    assert sorted(table.replace_columns) == sorted(how.get("replace_columns", ()))
    versions = how.get("version_by")
    is_grouped = isinstance(versions, dict)
    assert table.version_by == ({"v": ["a", "b"]} if is_grouped else versions)


@pytest.mark.parametrize("how", RULES, ids=" ".join)
def test_rules_are_properties_and_are_compared(tmp_path, how):
    path = str(tmp_path / "t")
    table = plait.Table(path, sort_by="k", **how)
    read_alike(table, how)
    table.append(BATCH)
    read_alike(plait.Table(path), how)
    said = deltalake.DeltaTable(path).metadata().configuration
    own = {name: of for name, of in how.items() if name != "on_duplicate"}
    kept = json.loads(said["plait.duplicate_rules"])
    assert said["plait.on_duplicate"] == how["on_duplicate"] and kept.keys() == own.keys()
    # The same in another order, and what is not given is not compared.
    turned = {n: dict(reversed(of.items())) if n == "aggregate" else of for n, of in how.items()}
    read_alike(plait.Table(path, sort_by="k", **turned), how)
    read_alike(plait.Table(path, on_duplicate=how["on_duplicate"]), how)
    others = {
        "aggregate": {"aggregate": {"a": "min", "b": "max"}},
        "update": {"replace_columns": ["v"]},
        "keep_last": {"version_by": "a"},
    }[how["on_duplicate"]]
    (option,) = others
    for call in (plait.Table, plait.adopt):
        message = rf"`{option}` is not that of the table: got `.*`, the table has "
        with pytest.raises(plait.InvalidArgument, match=message):
            call(path, on_duplicate=how["on_duplicate"], **others)
        with pytest.raises(plait.InvalidArgument, match="`on_duplicate` is not that of the table"):
            call(path, on_duplicate="error")
    plain = plait.Table(f"{path}-plain", sort_by="k", on_duplicate="update")
    plain.append(BATCH)
    with pytest.raises(plait.InvalidArgument, match=r"`replace_columns` .* the table has none"):
        plait.Table(f"{path}-plain", on_duplicate="update", replace_columns=["a"])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"on_duplicate": "aggregate"}, "needs `aggregate`"),
        ({"on_duplicate": "aggregate", "aggregate": {"a": "median"}}, "no such function"),
        ({"on_duplicate": "keep_last", "aggregate": {"a": "sum"}}, "`aggregate` needs"),
        ({"replace_columns": ["a"]}, "`replace_columns` needs"),
        ({"on_duplicate": "update", "version_by": "v"}, "`version_by` names one column"),
        ({"on_duplicate": "keep_all", "version_by": "v"}, "`version_by` needs"),
        (
            {"on_duplicate": "update", "version_by": {"v": ["a"]}, "replace_columns": ["a"]},
            "two rules",
        ),
        ({"on_duplicate": "update", "replace_columns": ["a.b"]}, "a part of a column"),
    ],
)
def test_options_that_do_not_go_together_are_refused_at_once(tmp_path, how, words):
    with pytest.raises(plait.InvalidArgument, match=words):
        plait.Table(tmp_path / "t", sort_by="k", **how)
    pq.write_table(BATCH.sort_by("k"), tmp_path / "a.parquet")
    with pytest.raises(plait.InvalidArgument, match=words):
        plait.adopt(tmp_path, sort_by="k", **how)
    assert os.listdir(tmp_path) == ["a.parquet"]


def test_a_table_has_no_tombstones(tmp_path):
    with pytest.raises(TypeError, match="delete_where"):
        plait.Table(tmp_path / "t", sort_by="k", on_duplicate="update", delete_where="dead")
    plait.Table(tmp_path / "t", sort_by="k", on_duplicate="update").append(BATCH)
    with pytest.raises(plait.InvalidArgument, match="is not an option of the format: got delta"):
        plait.compact(tmp_path / "t", on_duplicate="update", delete_where="dead")


@pytest.mark.parametrize(
    ("how", "error", "column"),
    [
        ({"on_duplicate": "update", "replace_columns": ["k"]}, plait.InvalidArgument, "k"),
        ({"on_duplicate": "keep_last", "version_by": "k"}, plait.InvalidArgument, "k"),
        ({"on_duplicate": "aggregate", "aggregate": {"no": "sum"}}, plait.UnknownColumn, "no"),
        ({"on_duplicate": "keep_last", "version_by": "no"}, plait.UnknownColumn, "no"),
        ({"on_duplicate": "update", "version_by": {"no": ["a"]}}, plait.UnknownColumn, "no"),
        ({"on_duplicate": "aggregate", "aggregate": {"a": "bool_or"}}, plait.InvalidArgument, "a"),
    ],
)
def test_rules_that_columns_do_not_go_with_are_refused_before_a_table_is_made(
    tmp_path, how, error, column
):
    table = plait.Table(tmp_path / "t", sort_by="k", **how)
    with pytest.raises(error) as caught:
        table.append(BATCH)
    assert caught.value.column == column
    pq.write_table(BATCH.sort_by("k"), tmp_path / "a.parquet")
    with pytest.raises(error) as caught:
        plait.adopt(tmp_path, sort_by="k", **how)
    assert caught.value.column == column and os.listdir(tmp_path) == ["a.parquet"]


def test_a_folder_is_adopted_with_rules_of_its_columns(tmp_path):
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        for i, n in enumerate((200, 100)):
            # Delta has no such type: the sum is one of the column that it becomes.
            given = {"k": [1, 2], "n": pa.array([n, day], pa.uint8()), "x": [None, i]}
            pq.write_table(pa.table(given), tmp_path / f"day={day}/{i}.parquet")
    how = {"sort_by": "k", "on_duplicate": "aggregate", "aggregate": {"n": "sum"}, "cast": True}
    with pytest.raises(plait.InvalidArgument, match="a sort column has one value"):
        plait.adopt(tmp_path, **how | {"aggregate": {"day": "max"}})
    plait.adopt(tmp_path, **how)
    table = plait.Table(tmp_path)
    found = [(1, 300, None, 1), (2, 2, 1, 1), (1, 300, None, 2), (2, 4, 1, 2)]
    assert table.aggregate == {"n": "sum"}
    for _ in range(2):
        assert sorted(pairs(table.read()), key=str) == sorted(found, key=str)
        table.compact(policy="full")
    pq.write_table(pa.table({"k": [2]}), tmp_path / "day=1/2.parquet")
    assert plait.adopt(tmp_path).rows == 1 and table.read(where="k = 2").count() == 2


# -- rules that cannot be read ---------------------------------------------------------------------


def changed(path, rules, on_duplicate="aggregate"):
    """A table whose properties say something else."""
    table = plait.Table(path, sort_by="k", on_duplicate="aggregate", aggregate={"a": "sum"})
    for _ in range(2):
        table.append(BATCH)
    log = Path(path, "_delta_log", f"{0:020}.json")
    given = json.dumps(json.dumps({"aggregate": {"a": "sum"}}))
    text = log.read_text()
    assert given in text
    text = text.replace(given, json.dumps(rules))
    log.write_text(text.replace('duplicate":"aggregate', f'duplicate":"{on_duplicate}'))


DOORS = {
    "Table.read": lambda path, _: plait.Table(path).read(),
    "Table.append": lambda path, _: plait.Table(path).append(BATCH),
    "Table.compact": lambda path, _: plait.Table(path).compact(),
    "compact": lambda path, _: plait.compact(path),
    "compact_delta": lambda path, _: plait.table.compact_delta(path),
    "read": lambda path, _: plait.read(path),
    "plan": lambda path, _: plait.plan(path),
    "merge": plait.merge,
    "merge_streams": lambda path, _: plait.merge_streams(path, sort_by="k"),
    "aggregate": lambda path, _: plait.Table(path).aggregate,
}


@pytest.mark.parametrize(
    ("rules", "on_duplicate", "words"),
    [
        ('{"aggregate": {"a": "median"}}', "aggregate", "no such function: `'median'`"),
        ('{"delete_where": "dead"}', "aggregate", "`delete_where` is not known"),
        ("{", "aggregate", "it is no JSON"),
        ("[]", "aggregate", "it is no JSON object"),
        ('{"aggregate": {"gone": "sum"}}', "aggregate", "has no column `gone`"),
        ('{"aggregate": {"a": "sum"}}', "keep_last", "`aggregate` needs"),
        ('{"version_by": "a"}', "update", "names one column"),
        ("{}", "keep_median", "no such choice: `'keep_median'`"),
    ],
)
def test_rules_that_are_not_known_are_refused_by_every_door(tmp_path, rules, on_duplicate, words):
    path = str(tmp_path / "t")
    changed(path, rules, on_duplicate)
    there = sorted(Path(path).rglob("*"))
    words = words.replace(": `", ".*`")
    for door in DOORS.values():
        with pytest.raises(plait.Unsupported, match=rf"`{path}` has a rule .*{words}") as caught:
            door(path, tmp_path / "o.parquet")
        assert caught.value.path == path
    assert sorted(Path(path).rglob("*")) == there
    # What does not look at keys does not mind, nor does what has a rule of its own.
    assert plait.read(path, on_duplicate="keep_all").count() == 4
    assert pa.table(plait.scan(path)).num_rows == 4
    assert plait.Table(path).verify().ok and len(plait.Table(path).files()) == 2


# -- columns that files lack -----------------------------------------------------------------------

FIRST = {"k": [1, 5], "a": [1, 1], "b": [1, 1], "c": [1, 1], "v": [9, 9]}


@pytest.mark.parametrize("how", RULES, ids=" ".join)
def test_files_that_are_left_may_all_lack_the_columns_of_rules(tmp_path, how):
    path = str(tmp_path / "t")
    table = plait.Table(path, sort_by="k", **how)
    table.append(pa.table(FIRST))
    for c in ([1, 3], [2, None]):
        table.append(pa.table({"k": [2, 3], "c": pa.array(c, pa.int64())}))
    # The first of the rules for updates has no word of `c`, so null is no change.
    is_kept = how["on_duplicate"] == "update" and "c" not in how["replace_columns"]
    left = [{"k": 2, "c": 2}, {"k": 3, "c": 3 if is_kept else None}]

    def look(expected):
        for read in (table.read(), plait.read(path), plait.merge_streams(path, sort_by="k")):
            assert [{"k": r["k"], "c": r["c"]} for r in rows(read)] == expected
        assert rows(plait.read(plait.plan(path), columns=["k", "c"])) == expected
        plait.merge(path, tmp_path / "m.parquet")
        assert pq.read_table(tmp_path / "m.parquet", columns=["k", "c"]).to_pylist() == expected
        (tmp_path / "m.parquet").unlink()
        found = rows(table.read(where="k = 2", columns=["c", "k"]))
        assert found == [{"c": 2, "k": 2}]

    first = [{"k": 1, "c": 1}, *left, {"k": 5, "c": 1}]
    look(first)
    # Of the two files that share keys, none has the columns.
    done = table.compact(policy="overlap")
    assert [group.rows for group in done.groups] in ([4], [6]) and not done.skipped
    look(first)
    table.delete("k < 2")
    table.delete("k > 4")
    look(left)
    table.append(pa.table({"k": [2], "c": [2]}))
    table.compact(policy="full")
    look(left)


def test_groups_that_are_sorted_may_lack_the_columns_of_rules(tmp_path):
    path = str(tmp_path / "t")
    table = plait.Table(path, sort_by="k", on_duplicate="aggregate", aggregate={"n": "sum"})
    table.append(pa.table({"k": [9], "n": [1]}))
    for _ in range(2):
        deltalake.write_deltalake(path, pa.table({"k": [2, 1], "x": [1, 2]}), mode="append",
                                  schema_mode="merge")  # fmt: skip
    done = table.compact(unsorted="sort", policy="overlap")
    assert [len(group.unsorted) for group in done.groups] == [2] and not done.skipped
    assert [row["x"] for row in rows(table.read())] == [2, 1, None]
    table.append(pa.table({"k": [1], "n": [7]}))
    assert [row["n"] for row in rows(table.read())] == [7, None, 1]


# -- other ways in ---------------------------------------------------------------------------------


def test_appends_that_compact_keep_the_rules(tmp_path):
    table = plait.Table(
        tmp_path / "t",
        sort_by="k",
        on_duplicate="aggregate",
        aggregate={"n": "sum"},
        maintain="auto",
    )
    for n in range(12):
        report = table.append(pa.table({"k": [1, n], "n": [1, 1]}))
        assert report.problem is None
    assert len(table.files()) < 12 and table.read(where="k = 1").count() == 1
    assert rows(table.read(where="k = 1")) == [{"k": 1, "n": 13}]


def test_rules_for_a_table_of_others_are_those_of_the_handle(tmp_path):
    path = str(tmp_path / "t")
    for n in (1, 2):
        deltalake.write_deltalake(path, pa.table({"k": [1], "n": [n]}), mode="append")
    with pytest.raises(plait.InvalidArgument, match="needs `aggregate`"):
        plait.Table(path, sort_by="k", on_duplicate="aggregate")
    table = plait.Table(path, sort_by="k", on_duplicate="aggregate", aggregate={"n": "sum"})
    assert rows(table.read()) == [{"k": 1, "n": 3}]
    assert plait.read(path, sort_by="k").count() == 2


def test_several_tables_have_one_rule_if_it_is_the_same(tmp_path):
    paths = [str(tmp_path / name) for name in "abc"]
    for path, function in zip(paths, ("sum", "sum", "max"), strict=True):
        table = plait.Table(path, sort_by="k", on_duplicate="aggregate", aggregate={"n": function})
        table.append(pa.table({"k": [1], "n": [2]}))
    assert rows(plait.read(paths[:2])) == [{"k": 1, "n": 4}]
    assert rows(plait.merge_streams(paths[:2], sort_by="k")) == [{"k": 1, "n": 4}]
    with pytest.raises(plait.InvalidArgument, match=r'different rules.*"sum".*"max"'):
        plait.read(paths)
    # What the call says counts, all of it.
    how = {"on_duplicate": "aggregate", "aggregate": {"n": "min"}}
    assert rows(plait.read(paths, **how)) == [{"k": 1, "n": 2}]
    assert rows(plait.merge_streams(paths, sort_by="k", **how)) == [{"k": 1, "n": 2}]
    plait.merge(paths, tmp_path / "m.parquet", **how)
    assert pq.read_table(tmp_path / "m.parquet").to_pylist() == [{"k": 1, "n": 2}]
    table = plait.Table(paths[0])
    table.append(pa.table({"k": [1], "n": [3]}))
    assert rows(plait.read(paths[0], on_duplicate="keep_last")) == [{"k": 1, "n": 3}]
    for call in (plait.read, lambda path, **o: plait.merge_streams(path, sort_by="k", **o)):
        with pytest.raises(plait.InvalidArgument, match="`aggregate` needs"):
            call(paths[0], aggregate={"n": "max"})


def test_rules_in_a_shell(tmp_path):
    for n in (1, 2):
        pq.write_table(pa.table({"k": [7, n], "n": [n, n], "x": [n, n]}), tmp_path / f"{n}.parquet")
    table = str(tmp_path / "t")
    how = ["--sort-by", "k", "--on-duplicate", "aggregate", "--aggregate", "n=sum,x=max"]
    run("append", table, tmp_path / "1.parquet", *how, "--quiet")
    run("append", table, tmp_path / "2.parquet", "--quiet")
    cat = ["cat", table, "--where", "k = 7", "--format", "jsonl"]
    assert json.loads(run(*cat)) == {"k": 7, "n": 3, "x": 2}
    assert json.loads(run(*cat, "--on-duplicate", "keep_first")) == {"k": 7, "n": 1, "x": 1}
    run("compact", table, "--quiet")
    assert json.loads(run(*cat)) == {"k": 7, "n": 3, "x": 2}
    assert plait.Table(table).aggregate == {"n": "sum", "x": "max"}
