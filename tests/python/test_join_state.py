"""State of joins in folders, and what callers may do wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local

KEYS = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}
LEFT = pa.table({"id": [1, 2, 3], "fk": [7, 8, None], "v": ["a", "b", "c"]})
RIGHT = pa.table({"key": [7], "v": ["x"]})


def rows(stream) -> list[tuple]:
    return sorted((tuple(row.values()) for row in pa.table(stream).to_pylist()), key=repr)


def test_the_page_of_the_format_has_what_a_folder_has(tmp_path, root):
    with plait.ForeignKeyJoin(**KEYS, state=tmp_path) as join:
        join.apply(left=LEFT, right=RIGHT)
        join.apply(right=RIGHT)
    manifest = json.loads((tmp_path / "manifest-0000000002.json").read_text())
    page = (root / "docs/formats/join.md").read_text()
    page = page[: page.index("## State of a side")]
    told = re.findall(r"^\| (`.+?`) \| ", page, re.MULTILINE)
    members = [name for cell in told for name in re.findall(r"`(\w+)`", cell)]
    assert members == list(manifest)
    assert (manifest["format"], manifest["version"], manifest["step"]) == ("plait.join", 1, 1)
    named = [
        name for part in ("base", "last") for names in manifest[part].values() for name in names
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [".lock", "manifest-0000000002.json", *named]
    )
    for table, columns in (
        ("left", ["id", "fk", "v"]),
        ("place", ["_fk"]),
        ("right", ["key", "v"]),
    ):
        (first,) = manifest["base"][table]
        found = pq.read_table(tmp_path / first)
        assert found.column_names == ["_key", "_deleted", *columns]
        assert pc.all(pc.less(found["_key"][:-1], found["_key"][1:])).as_py() is not False


def test_state_of_another_join_is_refused_in_words(tmp_path):
    with plait.ForeignKeyJoin(**KEYS, state=tmp_path) as join:
        join.apply(left=LEFT, right=RIGHT)
    with pytest.raises(plait.InvalidArgument, match="another `how`"):
        plait.ForeignKeyJoin(**KEYS, how="left", state=tmp_path)
    with pytest.raises(plait.InvalidArgument, match="another `foreign_key`"):
        plait.ForeignKeyJoin(**KEYS | {"foreign_key": "v"}, state=tmp_path)
    with pytest.raises(plait.SchemaDrift, match="other columns of left changes"):
        plait.ForeignKeyJoin(**KEYS, state=tmp_path, left_schema=LEFT.drop(["v"]).schema)
    with pytest.raises(plait.SourceNotFound, match="no state"):
        plait.ForeignKeyJoin.restore(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    manifest = tmp_path / "manifest-0000000001.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"version": 1', '"version": 2'))
    with pytest.raises(plait.Unsupported, match="another version"):
        plait.ForeignKeyJoin.restore(tmp_path)
    manifest.write_text(whole[:-20])
    with pytest.raises(plait.CorruptSource, match="manifest"):
        plait.ForeignKeyJoin.restore(tmp_path)


def test_damaged_and_lost_runs_are_errors(tmp_path):
    with plait.ForeignKeyJoin(**KEYS, state=tmp_path) as join:
        join.apply(left=LEFT, right=RIGHT)
    (run,) = tmp_path.glob("left-*.parquet")
    whole = run.read_bytes()
    run.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(plait.CorruptSource):
        plait.ForeignKeyJoin.restore(tmp_path)
    run.unlink()
    with pytest.raises(plait.SourceNotFound):
        plait.ForeignKeyJoin.restore(tmp_path)


def test_one_process_at_a_time_has_the_state(tmp_path):
    program = f"import plait; plait.ForeignKeyJoin.restore({str(tmp_path)!r})"
    with plait.ForeignKeyJoin(**KEYS, state=tmp_path) as join:
        join.apply(left=LEFT, right=RIGHT)
        with pytest.raises(plait.StorageError, match="open already"):
            plait.ForeignKeyJoin.restore(tmp_path)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert b"open already" in done.stderr
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_snapshot_is_what_it_was(tmp_path, in_folder):
    state = tmp_path / "state" if in_folder else None
    with plait.ForeignKeyJoin(**KEYS, how="left", state=state) as join:
        first = rows(join.apply(left=LEFT, right=RIGHT))
        table = rows(join.table())
        join.snapshot(tmp_path / "copy")
        join.apply(left=pa.table({"id": [1], "_op": ["delete"]}))
        join.apply(left=pa.table({"id": [2], "_op": ["delete"]}))
        join.compact()
        with pytest.raises(plait.OutputExists):
            join.snapshot(tmp_path / "copy")
    with plait.ForeignKeyJoin.restore(tmp_path / "copy") as copy:
        assert rows(copy.table()) == table
        assert rows(copy.apply(step=0)) == first
        assert copy.step == 0


@pytest.mark.behaviour("join-27")
def test_state_larger_than_the_limit_lies_in_a_folder_and_not_in_memory(tmp_path):
    count, limit = 60_000, 32_000_000
    left = pa.table(
        {"id": range(count), "fk": [i % 500 for i in range(count)], "v": ["x" * 600] * count}
    )
    right = pa.table({"key": range(500), "w": range(500)})
    with pytest.raises(plait.MemoryLimitExceeded, match="state="):
        join = plait.ForeignKeyJoin(**KEYS, memory_limit=limit)
        join.apply(left=left, right=right)
    assert join.step is None
    with plait.ForeignKeyJoin(**KEYS, memory_limit=limit, state=tmp_path) as join:
        for start in range(0, count, 10_000):
            done = join.apply(left=left.slice(start, 10_000), right=right)
            assert sum(batch.num_rows for batch in done) == 10_000
            assert join.stats.memory_bytes <= limit
        changed = join.apply(right=pa.table({"key": [7], "w": [-1]}))
        assert pa.table(changed)["id"].to_pylist() == list(range(7, count, 500))
        assert join.stats.memory_bytes <= limit
        assert sum(batch.num_rows for batch in join.table()) == count
        assert join.stats.cache_misses > 0 and join.stats.merges > 0


@pytest.mark.behaviour("join-24")
def test_long_keys_that_begin_alike_are_found(tmp_path):
    count = 9_000
    key = [f"{'k' * 80}{i:06}" for i in range(count)]
    left = pa.table({"id": key, "fk": [f"{'f' * 70}{i % 30}" for i in range(count)]})
    right = pa.table({"key": sorted(set(left["fk"].to_pylist())), "w": range(30)})
    with plait.ForeignKeyJoin(**KEYS, state=tmp_path) as join:
        join.apply(left=left, right=right)
        for _ in range(5):
            join.apply(right=right.slice(0, 0))
    with plait.ForeignKeyJoin.restore(tmp_path) as join:
        gone = pa.table({"id": key[::7], "_op": ["delete"] * len(key[::7])})
        assert sorted(pa.table(join.apply(left=gone))["id"].to_pylist()) == key[::7]
        assert pa.table(join.table()).num_rows == count - len(key[::7])


def test_changes_are_read_from_the_step_they_are_of():
    join = plait.ForeignKeyJoin(**KEYS)
    first = join.apply(left=LEFT, right=RIGHT)
    second = join.apply(right=pa.table({"key": [7], "_op": ["delete"]}))
    join.apply(left=pa.table({"id": [1], "_op": ["delete"]}))
    assert [row[:2] for row in rows(second)] == [("delete", 1)]
    assert rows(first) == [("insert", 1, 7, "a", "x")]
    with pytest.raises(plait.InvalidArgument, match="before the last"):
        join.apply(step=1)
    assert join.apply(left=LEFT, step=40) is not None
    assert join.step == 40


def test_names_that_clash_columns_and_old_values():
    options = {"columns": {"id": "id", "right": "v_right"}, "before": True}
    join = plait.ForeignKeyJoin(**KEYS, **options)
    assert rows(join.apply(left=LEFT, right=RIGHT)) == [("insert", 1, "x", None, None)]
    # The left value is not in the result, so nothing changed.
    assert rows(join.apply(left=pa.table({"id": [1], "fk": [7], "v": ["z"]}))) == []
    renamed = pa.table({"key": [7], "v": ["y"]})
    assert rows(join.apply(right=renamed)) == [("update", 1, "y", 1, "x")]
    assert join.schema.names == ["_op", "id", "right", "before.id", "before.right"]
    with pytest.raises(plait.InvalidArgument, match="lacks the primary key"):
        plait.ForeignKeyJoin(**KEYS, columns=["v"]).apply(left=LEFT, right=RIGHT)
    with pytest.raises(plait.UnknownColumn, match="nope"):
        plait.ForeignKeyJoin(**KEYS, columns=["id", "nope"]).apply(left=LEFT, right=RIGHT)


def bad(**columns) -> pa.Table:
    return pa.table({"id": [1], "fk": [7], "v": ["a"], **columns})


@pytest.mark.parametrize(
    ("left", "error", "words"),
    [
        (pa.table({"id": [1, None], "fk": [7, 7], "v": ["a", "b"]}), plait.NullKey, "row 1"),
        (bad(_op=["upset"]), plait.InvalidArgument, "`upset`"),
        (bad(_op=[None]), plait.InvalidArgument, "got null"),
        (bad(_op=[5]), plait.InvalidArgument, "`5`"),
        (bad(w=[1]), plait.SchemaDrift, "is new"),
        (bad(_seq=[1]), plait.SchemaDrift, "have sequence numbers"),
        (pa.table({"id": [1], "v": ["a"]}), plait.SchemaDrift, "is missing"),
        (pa.table({"id": ["1"], "fk": [7], "v": ["a"]}), plait.SchemaDrift, "another type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_changes_are_errors_that_leave_the_state_alone(left, error, words):
    join = plait.ForeignKeyJoin(**KEYS)
    join.apply(left=LEFT, right=RIGHT)
    before = rows(join.table())
    with pytest.raises(error, match=words):
        join.apply(left=left)
    assert rows(join.table()) == before
    assert join.step == 0


def test_bad_options_are_errors():
    for options in (
        KEYS | {"left_key": []},
        KEYS | {"how": "outer"},
        KEYS | {"on_null_key": "keep"},
        KEYS | {"foreign_key": 5},
        KEYS | {"state": "s3://bucket/state"},
    ):
        with pytest.raises((plait.InvalidArgument, plait.Unsupported)):
            plait.ForeignKeyJoin(**options)
    with pytest.raises(plait.UnknownColumn, match="the columns are"):
        plait.ForeignKeyJoin(**KEYS | {"left_key": "no"}).apply(left=LEFT, right=RIGHT)
    with pytest.raises(plait.InvalidArgument, match="differ in type"):
        plait.ForeignKeyJoin(**KEYS | {"foreign_key": "v"}).apply(left=LEFT, right=RIGHT)
    with pytest.raises(plait.InvalidArgument, match="right_schema"):
        plait.ForeignKeyJoin(**KEYS).apply(left=LEFT)
    with pytest.raises(plait.UnsupportedKey):
        lists = pa.table({"key": [[7]], "v": ["x"]})
        plait.ForeignKeyJoin(**KEYS).apply(left=LEFT, right=lists)
    join = plait.ForeignKeyJoin(**KEYS)
    join.close()
    with pytest.raises(plait.InvalidArgument, match="closed"):
        join.table()


@pytest.mark.behaviour("join-22")
def test_changes_without_a_key_are_left_out_and_counted():
    join = plait.ForeignKeyJoin(**KEYS, on_null_key="drop")
    left = pa.table({"id": [None, 1], "fk": [7, 7], "v": ["a", "b"]})
    assert rows(join.apply(left=left, right=RIGHT)) == [("insert", 1, 7, "b", "x")]
    assert join.stats.null_keys == 1


def test_a_callable_that_fails_raises_what_it_raises():
    def fails(batch):
        if len(batch):
            raise LookupError("no such thing")
        return pa.array([], pa.int64())

    join = plait.ForeignKeyJoin(left_key="id", foreign_key=fails, right_key="key")
    with pytest.raises(LookupError, match="no such thing"):
        join.apply(left=LEFT, right=RIGHT)


def shouted(batch):
    found = pa.record_batch(batch)
    # The primary key is there whatever is made of it.
    return pa.table({"id": pa.nulls(len(found)), "loud": pc.utf8_upper(found["v_right"])})


@pytest.mark.behaviour("join-25")
def test_a_joiner_makes_the_rows_of_changes_and_of_the_table(tmp_path):
    with plait.ForeignKeyJoin(**KEYS, how="left", joiner=shouted, state=tmp_path) as join:
        assert rows(join.apply(left=LEFT, right=RIGHT)) == [
            ("insert", 1, "X"),
            ("insert", 2, None),
            ("insert", 3, None),
        ]
        assert join.schema.names == ["_op", "id", "loud"]
        # It makes the same of both: no change.
        assert rows(join.apply(right=pa.table({"key": [7], "v": ["X"]}))) == []
        assert rows(join.apply(left=pa.table({"id": [2], "_op": ["delete"]}))) == [
            ("delete", 2, None)
        ]
        assert rows(join.table()) == [(1, "X"), (3, None)]

    def length(batch):
        return pa.table({"n": pc.utf8_length(pa.record_batch(batch)["v"])})

    # What is made is no part of the state.
    with plait.ForeignKeyJoin.restore(tmp_path, joiner=length) as join:
        assert rows(join.table()) == [(1, 1), (3, 1)]
        assert rows(join.apply(step=2)) == [("delete", 2, None)]
    with plait.ForeignKeyJoin.restore(tmp_path) as join:
        assert rows(join.table()) == [(1, 7, "a", "X"), (3, None, "c", None)]


def test_a_joiner_tells_old_values_where_they_are_asked_for():
    join = plait.ForeignKeyJoin(**KEYS, joiner=shouted, before=True)
    join.apply(left=LEFT, right=RIGHT)
    changed = join.apply(right=pa.table({"key": [7], "v": ["y"]}))
    assert changed.schema.names == ["_op", "id", "loud", "before.id", "before.loud"]
    assert rows(changed) == [("update", 1, "Y", 1, "X")]


def test_joiners_that_do_not_join_are_errors():
    def none(batch):
        return pa.table({"n": pa.array([], pa.int64())})

    def fails(batch):
        if len(batch):
            raise LookupError("no such thing")
        return pa.table({"n": pa.array([], pa.int64())})

    def other(batch):
        return pa.table({"n" if len(batch) else "m": pa.array([1] * len(batch), pa.int64())})

    def twice(batch):
        return pa.table({"_op": pa.array(["x"] * len(batch), pa.string())})

    for joiner, error, words in (
        (none, plait.InvalidArgument, "one row of each"),
        (fails, LookupError, "no such thing"),
        (other, plait.SchemaDrift, "same columns"),
        (twice, plait.DuplicateField, "one name"),
    ):
        join = plait.ForeignKeyJoin(**KEYS, joiner=joiner)
        with pytest.raises(error, match=words):
            list(join.apply(left=LEFT, right=RIGHT))
    with pytest.raises(plait.InvalidArgument, match="not callable"):
        plait.ForeignKeyJoin(**KEYS, joiner="id")
    with pytest.raises(plait.InvalidArgument, match="exclude each other"):
        plait.ForeignKeyJoin(**KEYS, joiner=shouted, columns=["id"])


def test_nested_values_and_keys_of_several_columns():
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))
    left = pa.table(
        {
            "id": pa.array(["x", "y"]).dictionary_encode(),
            "day": pa.array([1, 1], pa.date32()),
            "f": [1.5, None],
            "g": [True, True],
            "v": pa.array([[{"a": 1, "b": None}], None], kind),
        }
    )
    right = pa.table({"p": [1.5], "q": [True], "w": pa.array([[{"a": 2, "b": "z"}]], kind)})
    join = plait.ForeignKeyJoin(
        left_key=["id", "day"], foreign_key=["f", "g"], right_key=["p", "q"], how="left"
    )
    found = pa.table(join.apply(left=left, right=right)).to_pylist()
    assert [(row["id"], row["v"], row["w"]) for row in found] == [
        ("x", [{"a": 1, "b": None}], [{"a": 2, "b": "z"}]),
        ("y", None, None),
    ]
    assert pa.table(join.apply(left=left, right=right)).num_rows == 0
    changed = right.set_column(2, "w", pa.array([[{"a": 3, "b": "z"}]], kind))
    assert pa.table(join.apply(right=changed))["w"].to_pylist() == [[{"a": 3, "b": "z"}]]


@pytest.mark.behaviour("join-29")
def test_the_full_join_of_duckdb_is_the_table():
    duckdb = pytest.importorskip("duckdb")
    left = pa.table(
        {
            "id": range(3000),
            "fk": [None if i % 11 == 0 else i * 7 % 400 for i in range(3000)],
            "v": [f"v{i}" for i in range(3000)],
        }
    )
    right = pa.table({"key": range(0, 400, 2), "w": [f"w{i}" for i in range(200)]})
    for how in ("inner", "left"):
        join = plait.ForeignKeyJoin(**KEYS, how=how)
        for start in range(0, 3000, 500):
            join.apply(left=left.slice(start, 500), right=right.slice(start // 15, 34))
        sql = f"select id, fk, v, w from l {how} join r on l.fk = r.key order by id"
        with duckdb.connect() as connection:
            connection.register("l", left)
            connection.register("r", right)
            expected = connection.execute(sql).fetchall()
        found = pa.table(join.table()).sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in found] == expected
