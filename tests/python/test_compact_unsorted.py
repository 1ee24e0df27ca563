"""Unsorted files in a compaction: left alone, sorted or skipped; rows and their age stay as they are.

Rows are read by DuckDB, deltalake and PyIceberg; the oracle is "concatenate, sort stably".
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
import plait.table.folder
import plait.table.run
from plait.cli import main
from plait.table import compact_delta, compact_iceberg
from plait.table.delta import Delta

from .conftest import load

interleavings = load("interleavings")
pytestmark = [pytest.mark.local, pytest.mark.filterwarnings("ignore::ResourceWarning")]

POLICIES = ("overlap", "full", "size_tiered")
# Out of order within one row group, between ends that are in order.
HIDDEN = [20, 29, 22, 23, 30]
ENDS = [47, 43, 45]


def write(folder, name, keys, **options):
    path = Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{name} {row}" for row in range(len(keys))]
    pq.write_table(pa.table({"k": pa.array(keys, pa.int64()), "v": rows}), path, **options)
    return path


def live(folder):
    return [source.path for source in plait.plan(folder, sort_by=[]).sources]


def rows(paths):
    """All rows as DuckDB reads them."""
    named = ", ".join(f"'{path}'" for path in paths)
    return Counter(duckdb.sql(f"select * from read_parquet([{named}])").fetchall())


def names(paths):
    return [Path(path).name for path in paths]


def skipped(report):
    return {Path(file.path).name: file.why for file in report.skipped}


@pytest.fixture
def lake(tmp_path):
    """Two files that share keys, one whose disorder its ends show, one whose ends do not show it."""
    folder = tmp_path / "lake"
    write(folder, "a.parquet", [1, 10])
    write(folder, "b.parquet", [2, 11])
    write(folder, "c.parquet", HIDDEN)
    write(folder, "d.parquet", ENDS)
    return folder


@pytest.mark.parametrize("policy", POLICIES)
def test_unsorted_files_are_sorted_whatever_the_policy(lake, policy):
    before = rows(live(lake))
    options = {"policy": policy, "sort_by": "k", "unsorted": "sort"}
    dry = plait.compact(lake, **options, yes=False)
    unsorted = sorted(itertools.chain(*(group.unsorted for group in dry.groups)))
    assert names(unsorted) == ["c.parquet", "d.parquet"]
    assert "would sort 2 files that are not sorted" in str(dry)
    report = plait.compact(lake, **options)
    assert sorted(itertools.chain(*(group.unsorted for group in report.groups))) == unsorted
    assert report.skipped == () and "\nsorted 2 files that were not sorted" in str(report)
    assert rows(live(lake)) == before
    for path in live(lake):
        keys = pq.read_table(path)["k"].to_pylist()
        assert keys == sorted(keys)
    assert plait.verify(live(lake), sort_by="k", check=False).ok == (policy != "size_tiered")
    again = plait.compact(lake, **options)
    assert again.groups == () and "nothing to merge" in str(again)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("keys", [HIDDEN, ENDS, [3, 2], [1, 1, 0]])
def test_an_unsorted_file_alone_is_worth_a_merge(tmp_path, policy, keys):
    write(tmp_path, "one.parquet", keys)
    options = {"policy": policy, "sort_by": "k", "unsorted": "sort", "mature_size": "1B"}
    (group,) = plait.compact(tmp_path, **options).groups
    assert group.rows == len(keys) and group.depth_max == 1 and len(group.unsorted) == 1
    (out,) = live(tmp_path)
    assert pq.read_table(out)["k"].to_pylist() == sorted(keys)
    assert plait.compact(tmp_path, **options).groups == ()


def test_a_file_is_merged_with_those_that_its_keys_reach_not_its_ends(tmp_path):
    # The ends of the unsorted file are 20 and 30; its keys reach from 1 to 90.
    write(tmp_path, "a.parquet", [0, 2])
    write(tmp_path, "b.parquet", [20, 90, 1, 30])
    write(tmp_path, "c.parquet", [80, 99])
    write(tmp_path, "d.parquet", [100, 101])
    (group,) = plait.compact(tmp_path, sort_by="k", unsorted="sort").groups
    assert names(group.sources) == ["a.parquet", "b.parquet", "c.parquet"]
    assert group.depth_max == 2


def test_outputs_of_a_sorted_group_have_the_size_that_is_asked_for(tmp_path):
    rng = random.Random(1)
    for name in "ab":
        write(tmp_path, f"{name}.parquet", [rng.randrange(10**9) for _ in range(20_000)])
    before = rows(live(tmp_path))
    options = {"sort_by": "k", "unsorted": "sort", "target_file_size": "50kB"}
    (group,) = plait.compact(tmp_path, **options, verify="content").groups
    assert len(group.outputs) > 4 and rows(live(tmp_path)) == before
    assert plait.verify(group.outputs, sort_by="k").ok
    assert plait.compact(tmp_path, **options).groups == ()


def test_what_is_left_alone_names_the_option(lake, capsys):
    report = plait.compact(lake, policy="full", sort_by="k")
    assert sorted(skipped(report)) == ["c.parquet", "d.parquet"]
    assert str(report).endswith('unsorted="sort" sorts and merges files that are not sorted')
    assert main(["compact", str(lake), "--policy", "full", "--sort-by", "k"]) == 0
    assert "--unsorted sort sorts and merges files that are not sorted" in capsys.readouterr().out


def test_the_command_line_sorts(lake, capsys):
    before = rows(live(lake))
    command = ["compact", str(lake), "--policy", "full", "--sort-by", "k", "--unsorted"]
    assert main([*command, "sort"]) == 0
    assert "sorted 2 files that were not sorted" in capsys.readouterr().out
    assert rows(live(lake)) == before and len(live(lake)) == 1
    assert main([*command, "some"]) != 0
    assert "`--unsorted` has no such choice" in capsys.readouterr().err


def test_skipping_finds_all_before_anything_is_merged(lake):
    options = {"policy": "full", "sort_by": "k"}
    # By default what lies between the ends is found by a merge, which is done again.
    assert sorted(skipped(plait.compact(lake, **options, yes=False))) == ["d.parquet"]
    dry = plait.compact(lake, **options, unsorted="skip", yes=False)
    assert skipped(dry) == {
        "c.parquet": "key goes backwards: column `k`, row 2, got 22 after 29",
        "d.parquet": "key goes backwards: column `k`, row 1, got 43 after 47",
    }
    report = plait.compact(lake, **options, unsorted="skip")
    assert skipped(report) == skipped(dry)
    (group,) = report.groups
    assert names(group.sources) == ["a.parquet", "b.parquet"] and group.unsorted == ()


def test_the_option_is_checked():
    with pytest.raises(plait.InvalidArgument, match="unsorted"):
        plait.compact(".", unsorted="some")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["keep_last", "keep_first"])
def test_of_rows_with_one_key_the_same_stay(tmp_path, how, seed):
    rng, folder = random.Random(f"{how} {seed}"), tmp_path / "lake"
    newest = {}
    for part in range(rng.randrange(2, 9)):
        low = rng.randrange(30)
        keys = [rng.randrange(low, low + 12) for _ in range(rng.randrange(1, 9))]
        if rng.random() < 0.5:
            keys.sort()
        write(folder, f"{part}.parquet", keys)
        for row, key in enumerate(keys):
            value = f"{part}.parquet {row}"
            newest[key] = value if how == "keep_last" else newest.get(key, value)
    options = {"sort_by": "k", "on_duplicate": how, "unsorted": "sort"}
    options |= {"policy": rng.choice(POLICIES), "merge_factor": 2, "target_file_size": "1kB"}
    report = plait.compact(folder, **options)
    merged = tmp_path / "merged.parquet"
    plait.merge(folder, merged, sort_by="k", on_duplicate=how)
    found = dict(zip(*pq.read_table(merged).to_pydict().values()))
    assert found == newest, (seed, str(report))


def test_rows_past_their_retention_go_from_sorted_files_too(tmp_path):
    write(tmp_path, "a.parquet", [5, 1, 9])
    write(tmp_path, "b.parquet", [2, 1])
    report = plait.compact(tmp_path, sort_by="k", unsorted="sort", drop_where="k < 3")
    assert report.rows_dropped == {"expired": 3}
    (out,) = live(tmp_path)
    assert pq.read_table(out)["k"].to_pylist() == [5, 9]


KEYS = {
    "text": (pa.array(["b" * 200, "a", None, "c" * 200, "b"]), "k"),
    "descending": (pa.array([1.5, 2.5, float("nan"), None, -0.0]), "-k nulls first"),
    "bytes": (pa.array([b"\xff" * 70, b"", b"\x00", None], pa.binary()), "k"),
    "decimals": (pa.array([3, -1, 2]).cast(pa.decimal128(30, 2)), "k"),
    "times": (pa.array([3, None, 2], pa.timestamp("us")), "k nulls first"),
    "dictionary": (pa.array(["b", "a", "c", "a"]).dictionary_encode(), "k"),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_type_are_sorted(tmp_path, name):
    keys, order = KEYS[name]
    for part in range(2):
        pq.write_table(
            pa.table({"k": keys, "part": [part] * len(keys)}), tmp_path / f"{part}.parquet"
        )
    before = rows(live(tmp_path))
    (group,) = plait.compact(tmp_path, sort_by=order, unsorted="sort").groups
    assert len(group.unsorted) == 2
    assert plait.verify(live(tmp_path), sort_by=order).ok and len(live(tmp_path)) == 1
    if name != "descending":  # NaN is no value of a Counter
        assert rows(live(tmp_path)) == before


def test_a_footer_that_says_sorted_and_is_not_is_sorted_all_the_same(tmp_path):
    made = tmp_path / "made.parquet"
    sources = [write(tmp_path / "in", "a.parquet", [1, 3, 5, 7])]
    plait.merge(sources, made, sort_by="k")
    # The rows of another table under the footer entries of a sorted file.
    entries = {k: v for k, v in pq.read_metadata(made).metadata.items() if k.startswith(b"plait.")}
    lying = pa.table({"k": pa.array([1, 5, 3, 7], pa.int64()), "v": list("wxyz")})
    order = [pq.SortingColumn(0)]
    folder = tmp_path / "lake"
    folder.mkdir()
    path = folder / "lies.parquet"
    pq.write_table(lying.replace_schema_metadata(entries), path, sorting_columns=order)
    write(folder, "b.parquet", [2, 4])
    pq.write_table(pa.table({"k": pa.array([2], pa.int64()), "v": ["b"]}), folder / "b.parquet")
    before = rows(live(folder))
    report = plait.compact(folder, sort_by="k", policy="full", unsorted="sort")
    assert len(report.groups) == 1 and report.skipped == () and rows(live(folder)) == before
    (out,) = live(folder)
    assert pq.read_table(out)["k"].to_pylist() == [1, 2, 3, 5, 7]


def test_partitions_are_sorted_apart(tmp_path):
    for day in (1, 2):
        write(tmp_path, f"day={day}/a.parquet", [3, 1])
        write(tmp_path, f"day={day}/b.parquet", [1, 2])
    report = plait.compact(tmp_path, sort_by="k", unsorted="sort", where={"day": "2"})
    (group,) = report.groups
    assert group.folder == "day=2" and len(group.sources) == 2
    assert [g.folder for g in plait.compact(tmp_path, sort_by="k", unsorted="sort").groups] == [
        "day=1"
    ]


def test_files_that_are_left_alone_for_other_reasons_stay_so(lake):
    (lake / "cut.parquet").write_bytes((lake / "a.parquet").read_bytes()[:-20])
    report = plait.compact(lake, policy="full", sort_by="k", unsorted="sort")
    assert list(skipped(report)) == ["cut.parquet"] and len(report.groups) == 1
    assert len(report.groups[0].sources) == 4
    assert 'unsorted="sort"' not in str(report)


class Once:
    """Calls one function, and from then on another."""

    def __init__(self, first, then):
        self.first, self.then, self.is_done = first, then, False

    def __call__(self, *arguments):
        call = self.then if self.is_done else self.first
        self.is_done = True
        return call(*arguments)


def test_a_file_that_others_overwrite_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    write(tmp_path, "a.parquet", [3, 1])
    write(tmp_path, "b.parquet", [2, 1])
    real = plait.table.here.sort_merge

    def overwritten(*arguments):
        write(tmp_path, "a.parquet", [30, 10])
        return real(*arguments)

    pauses = []
    monkeypatch.setattr(plait.table.run, "sleep", pauses.append)
    monkeypatch.setattr(plait.table.here, "sort_merge", overwritten)
    with pytest.raises(plait.StorageError, match="others replace the files"):
        plait.compact(tmp_path, sort_by="k", unsorted="sort")
    # Each pause is drawn from twice as long a time as the one before, up to a second; the second
    # round merged the other file.
    assert len(pauses) == 16 and len(set(pauses)) == 16
    assert all(0 <= pause <= min(1, 0.02 * 2**n) for n, pause in enumerate(pauses[1:]))
    assert sum(pauses) > 0.5
    assert sorted(key for key, _ in rows(live(tmp_path))) == [1, 2, 10, 30]
    monkeypatch.setattr(plait.table.here, "sort_merge", once := Once(overwritten, real))
    write(tmp_path, "a.parquet", [3, 1])
    report = plait.compact(tmp_path, sort_by="k", unsorted="sort")
    assert once.is_done and (len(report.groups), report.lost) == (1, 1)
    assert len(pauses) == 17 and pauses[-1] <= 0.02
    assert sorted(key for key, _ in rows(live(tmp_path))) == [1, 2, 10, 30]


# -- tables ----------------------------------------------------------------------------------------


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "orders")


def append(uri, keys, value, **options):
    deltalake = pytest.importorskip("deltalake")
    columns = {"id": pa.array(keys, pa.int64()), "v": [value] * len(keys)}
    deltalake.write_deltalake(uri, pa.table(columns), mode="append", **options)


def delta_rows(uri):
    import deltalake

    table = deltalake.DeltaTable(uri)
    found = Counter(zip(*table.to_pyarrow_table().select(["id", "v"]).to_pydict().values()))
    # Another reader of the same files.
    assert rows(table.file_uris()) == found
    return found


def delete(table):
    table.delete("id > 12 and id < 16")


def update(table):
    table.update(updates={"v": "'new'"}, predicate="id > 10 and id < 15")


def merge(table):
    news = pa.table({"id": pa.array([2, 13, 99], pa.int64()), "v": ["upserted"] * 3})
    (
        table.merge(news, "old.id = new.id", source_alias="new", target_alias="old")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("act", [delete, update, merge])
def test_a_delta_table_that_delta_rs_rewrote_compacts(uri, act):
    deltalake = pytest.importorskip("deltalake")
    for part in range(6):
        append(uri, [part, part + 10, part + 20], f"of {part}")
    act(deltalake.DeltaTable(uri))
    before = delta_rows(uri)
    report = compact_delta(uri, sort_by="id", unsorted="sort")
    assert report.skipped == () and delta_rows(uri) == before
    (path,) = deltalake.DeltaTable(uri).file_uris()
    assert plait.verify(path, sort_by="id").ok
    table = deltalake.DeltaTable(uri)
    task = table.history(1)[0]["plait.task"]
    assert task and task in report.groups[0].outputs[0]
    assert table.transaction_version(f"plait.{task}") == 1
    # Readers skip by statistics, which are those of the rows.
    assert table.to_pyarrow_table(filters=[("id", ">", 24)]).num_rows == sum(
        n for (key, _), n in before.items() if key > 24
    )
    again = compact_delta(uri, sort_by="id", unsorted="sort")
    assert again.groups == () and deltalake.DeltaTable(uri).version() == table.version()


def test_an_unsorted_file_of_a_delta_table_alone_in_its_partition_is_sorted(uri):
    deltalake = pytest.importorskip("deltalake")
    for day in ("mon", "tue"):
        columns = {"id": [3, 1, 2], "v": list("abc"), "day": [day] * 3}
        deltalake.write_deltalake(uri, pa.table(columns), mode="append", partition_by=["day"])
    report = compact_delta(uri, sort_by="id", unsorted="sort", where={"day": "mon"})
    (group,) = report.groups
    assert group.folder == "day=mon" and group.rows == 3 and len(group.unsorted) == 1
    assert pq.ParquetFile(group.outputs[0]).read()["id"].to_pylist() == [1, 2, 3]
    assert compact_delta(uri, sort_by="id", where={"day": "mon"}).groups == ()
    left = compact_delta(uri, sort_by="id", unsorted="skip", yes=False)
    # Alone in its partition: there is nothing that it could be merged with.
    assert left.groups == () and left.skipped == ()


def test_skipped_files_of_a_delta_table_are_all_named(uri):
    append(uri, [1, 9], "a")
    append(uri, [2, 8, 3, 9], "b")
    append(uri, [2, 10], "c")
    dry = compact_delta(uri, sort_by="id", unsorted="skip", yes=False)
    (left,) = dry.skipped
    assert left.why == "key goes backwards: column `id`, row 2, got 3 after 8"
    assert [len(group.sources) for group in dry.groups] == [2]
    assert compact_delta(uri, sort_by="id", yes=False).skipped == ()


def test_columns_that_came_later_are_sort_columns(uri):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(uri, pa.table({"v": ["a", "b"]}))
    for keys in ([4, 2], [3, 1]):
        deltalake.write_deltalake(
            uri, pa.table({"v": ["c", "d"], "id": keys}), mode="append", schema_mode="merge"
        )
    (group,) = compact_delta(uri, sort_by="id", unsorted="sort", policy="full").groups
    assert len(group.sources) == 3 and len(group.unsorted) == 2
    found = deltalake.DeltaTable(uri).to_pyarrow_table()
    assert found["id"].to_pylist() == [1, 2, 3, 4, None, None]


@pytest.mark.parametrize("kind", ["append", "delete", "compact"])
@pytest.mark.parametrize("seed", interleavings.SEEDS)
def test_rows_of_a_delta_table_are_right_whenever_others_commit(uri, kind, seed):
    deltalake = pytest.importorskip("deltalake")
    rng = random.Random(f"unsorted {kind} {seed}")
    for part in range(4):
        append(uri, [rng.randrange(50) for _ in range(6)], f"of {part}")
    expected = delta_rows(uri)
    stage = rng.choice(interleavings.STAGES)
    began = deltalake.DeltaTable(uri)
    seen = []

    def other():
        table = began if stage == "stale" else deltalake.DeltaTable(uri)
        gone = f"of {rng.randrange(4)}"
        try:
            if kind == "append":
                append(uri, [7, 3], "appended")
            elif kind == "delete":
                table.delete(f"v = '{gone}'")
            else:
                table.optimize.compact()
        except deltalake.exceptions.CommitFailedError:
            assert stage == "stale"
            return
        seen.append(gone)

    table = Delta(uri, None, guard=True)
    options = interleavings.options(sort_by="id", unsorted="sort")
    report = interleavings.run(table, options, stage, other, between="_actions")
    assert not isinstance(report, plait.PlaitError), report
    if seen and kind == "append":
        expected += Counter([(7, "appended"), (3, "appended")])
    if seen and kind == "delete":
        expected = Counter({row: n for row, n in expected.items() if row[1] != seen[0]})
    assert delta_rows(uri) == expected, (kind, seed, stage, str(report))
    compact_delta(uri, sort_by="id", unsorted="sort")
    assert delta_rows(uri) == expected
    for path in deltalake.DeltaTable(uri).file_uris():
        assert plait.verify(path, sort_by="id").ok


def iceberg_rows(catalog):
    found = catalog.load_table("db.t").scan().to_arrow()
    return Counter(zip(*found.select(["id", "v"]).to_pydict().values()))


def iceberg_files(catalog):
    paths = catalog.load_table("db.t").inspect.files()["file_path"].to_pylist()
    return [path.removeprefix("file://") for path in paths]


@pytest.mark.parametrize("act", ["delete", "overwrite"])
def test_an_iceberg_table_that_pyiceberg_rewrote_compacts(catalog, act):
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = catalog.create_table("db.t", schema)
    for part in range(3):
        table.append(pa.table({"id": [part + 20, part, part + 10], "v": [f"of {part}"] * 3}))
    if act == "delete":
        table.delete("id > 10 and id < 13")
    else:
        table.overwrite(pa.table({"id": [5, 4], "v": ["new"] * 2}), "id < 2")
    before = iceberg_rows(catalog)
    assert rows(iceberg_files(catalog)) == before
    report = compact_iceberg(catalog, "db.t", sort_by="id", unsorted="sort")
    assert report.skipped == () and iceberg_rows(catalog) == before
    (path,) = iceberg_files(catalog)
    assert plait.verify(path, sort_by="id").ok and rows([path]) == before
    assert len(report.groups[0].unsorted) == len(report.groups[0].sources)
    assert compact_iceberg(catalog, "db.t", sort_by="id", unsorted="sort").groups == ()


def test_what_an_iceberg_table_says_of_its_order_is_what_is_sorted_by(catalog):
    from pyiceberg.transforms import IdentityTransform

    table = catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    with table.update_sort_order() as update:
        update.desc("id", IdentityTransform())
    table.append(pa.table({"id": [1, 3, 2], "v": list("abc")}))
    report = compact_iceberg(catalog, "db.t", unsorted="sort")
    assert report.groups[0].sort_by == "-id"
    (path,) = iceberg_files(catalog)
    assert pq.read_table(path)["id"].to_pylist() == [3, 2, 1]
    files = catalog.load_table("db.t").inspect.files()
    assert files["sort_order_id"].to_pylist() == [table.refresh().sort_order().order_id]


# -- kills -----------------------------------------------------------------------------------------

KILLED = """
    import os, signal, sys
    import plait
    from plait import _lease, _native
    from plait.table import sorting

    folder, stage, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    class Native:
        def __getattr__(self, name):
            call = getattr(_native, name)
            if name != "sort_merge":
                return call
            def staged(*args):
                stage == "before" and kill()
                if seconds:
                    signal.signal(signal.SIGALRM, kill)
                    signal.setitimer(signal.ITIMER_REAL, seconds)
                told = call(*args)
                kill()
            staged.__name__ = name
            return staged

    sorting._native = Native()
    plait.compact(folder, sort_by="k", unsorted="sort", memory_limit="32MB", threads=1)
"""


@pytest.mark.long
@pytest.mark.parametrize("stage", ["before", "after", "0.01", "0.05", "0.1", "0.2", "0.4"])
def test_a_kill_during_the_sort_leaves_the_folder_as_it_was(tmp_path, stage):
    folder = tmp_path / "lake"
    rng = random.Random(stage)
    for part in range(3):
        write(folder, f"{part}.parquet", [rng.randrange(10**9) for _ in range(50_000)])
    before = rows(live(folder))
    files = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
    seconds = "0" if stage in ("before", "after") else stage
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(folder), stage, seconds]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert {path.name: path.read_bytes() for path in folder.glob("*.parquet")} == files
    assert rows(live(folder)) == before and sorted(names(live(folder))) == sorted(files)
    plait.compact(folder, sort_by="k", unsorted="sort")
    assert rows(live(folder)) == before and len(live(folder)) == 1
    plait.expire(folder, retention=0, yes=True)
    assert rows(live(folder)) == before
    left = [path for path in folder.rglob("*") if path.is_file() and "manifest" not in path.name]
    assert [path.suffix for path in left] == [".parquet"], left


def test_two_compactions_that_sort_end_as_one(tmp_path):
    for part in range(3):
        write(tmp_path, f"{part}.parquet", [part + 5, part, 9])
    before = rows(live(tmp_path))
    code = "import plait, sys; r = plait.compact(sys.argv[1], sort_by='k', unsorted='sort');"
    command = [sys.executable, "-c", f"{code} print(len(r.groups))", str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [int(process.communicate()[0]) for process in both]
    assert sum(told) == 1 and rows(live(tmp_path)) == before
    last = max((tmp_path / "_plait").glob("manifest-*.json"))
    assert json.loads(last.read_text())["leases"] == []


def test_files_that_were_found_sorted_are_not_read_again(tmp_path, monkeypatch):
    large = tmp_path / "large.parquet"
    pq.write_table(pa.table({"k": pa.array(range(3_000_000))}), large, use_dictionary=False)
    pq.write_table(pa.table({"k": [5_000_001, 5_000_000]}), tmp_path / "small.parquet")
    read = []

    class Native:
        def __getattr__(self, name):
            call = getattr(plait._native, name)
            return survey if name == "survey" else call

    def read_bytes():
        with open("/proc/self/io") as file:
            return int(file.readline().split()[1])

    def survey(*arguments):
        before = read_bytes()
        told = plait._native.survey(*arguments)
        read.append(read_bytes() - before)
        return told

    monkeypatch.setattr(plait.table.folder, "_native", Native())
    (group,) = plait.compact(tmp_path, sort_by="k", unsorted="sort").groups
    assert names(group.sources) == ["small.parquet"]
    first, second = read
    assert first > large.stat().st_size > second
