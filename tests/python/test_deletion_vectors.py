"""Rows that a deletion vector of a Delta table deletes: no door gives them, no compaction keeps them.

The vectors are made by pyroaring; Polars and delta-rs read the same tables.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.table.delta import Delta

from .conftest import load

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyroaring")
vectors = load("vectors")
pytestmark = pytest.mark.local

CASES = int(os.environ.get("PLAIT_VECTOR_CASES", "20"))


def append(uri, keys, text="v"):
    """One file of rows in the order given; its name."""
    before = set(vectors.live(uri)) if Path(uri).exists() else set()
    rows = pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{text}{k}" for k in keys]})
    deltalake.write_deltalake(uri, rows, mode="append")
    (name,) = set(vectors.live(uri)) - before
    return name


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "events")


@pytest.fixture
def deleted(uri):
    """Two files that overlap; of both some rows are deleted. The keys that are left."""
    even, odd = list(range(0, 4000, 2)), list(range(1, 4000, 2))
    of_even, of_odd = {0, 1, 2, 100, *range(700, 900), 1999}, {5, *range(1000, 2000, 3)}
    vectors.delete(uri, append(uri, even), of_even, prefix="ab")
    vectors.delete(uri, append(uri, odd), of_odd, kind="i")
    left = [k for i, k in enumerate(even) if i not in of_even]
    return sorted(left + [k for i, k in enumerate(odd) if i not in of_odd])


def keys_of(path):
    files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [path]
    return [key for file in files for key in pq.ParquetFile(file).read()["k"].to_pylist()]


def others_read(uri):
    """The keys as two readers that are not ours see them."""
    polars = sorted(pl.scan_delta(uri).collect()["k"].to_list())
    rows = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri))
    datafusion = sorted(pa.table(rows.execute("select k from t"))["k"].to_pylist())
    assert polars == datafusion
    return polars


def keys(read):
    return pa.table(read)["k"].to_pylist()


def merged(uri, out, **options):
    report = plait.merge(uri, out, sort_by="k", verify="content", **options)
    assert report.rows_in == report.rows_out
    return keys_of(out)


def planned(uri, out):
    plan = plait.plan(uri, sort_by="k", outputs=3)
    report = plait.Plan.from_json(plan.to_json()).execute(str(out), verify="content")
    assert report.rows_out == plan.rows
    return keys_of(out)


DOORS = {
    "read": lambda uri, _: keys(plait.read(uri, sort_by="k")),
    "small batches": lambda uri, _: keys(plait.read(uri, sort_by="k", batch_rows=7)),
    "reverse": lambda uri, _: keys(plait.read(uri, sort_by="k", reverse=True))[::-1],
    "one column": lambda uri, _: [
        int(v[1:]) for v in pa.table(plait.read(uri, sort_by="k", columns="v"))["v"].to_pylist()
    ],
    "table": lambda uri, _: keys(plait.Table(uri, sort_by="k").read()),
    "merge": merged,
    "merge, sorted": lambda uri, out: merged(uri, out, unsorted="sort"),
    "merge, one thread": lambda uri, out: merged(uri, out, threads=1, copy_tiers=[]),
    "plan": planned,
    "read of a plan": lambda uri, _: keys(
        plait.read(plait.Plan.from_json(plait.plan(uri, sort_by="k", outputs=3).to_json()))
    ),
    "read of tasks": lambda uri, _: [
        key
        for task in plait.plan(uri, sort_by="k", outputs=3).tasks
        for key in keys(plait.read(task))
    ],
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_gives_deleted_rows(door, uri, deleted, tmp_path):
    out = tmp_path / ("outs" if door == "plan" else "out.parquet")
    assert DOORS[door](uri, out) == deleted == others_read(uri)


def test_conditions_limits_and_counts_are_of_rows_that_are_left(uri, deleted):
    for where, holds in {
        "k < 300": lambda k: k < 300,
        "k >= 1400 AND k <= 1800": lambda k: 1400 <= k <= 1800,
        "v = 'v0'": lambda _: False,
        "v = 'v6'": lambda k: k == 6,
    }.items():
        read = plait.read(uri, sort_by="k", where=where)
        assert keys(read) == [k for k in deleted if holds(k)]
        assert read.count() == sum(map(holds, deleted))
    assert keys(plait.read(uri, sort_by="k", limit=10)) == deleted[:10]
    assert plait.read(uri, sort_by="k").count() == len(deleted)


def test_a_compaction_removes_deleted_rows_for_good(uri, deleted):
    before = plait.Table(uri, sort_by="k")
    assert sum(file.rows for file in before.files()) == len(deleted) and before.verify().ok
    report = plait.compact(uri, sort_by="k", verify="content", yes=True)
    assert [group.rows for group in report.groups] == [len(deleted)]
    (add,) = vectors.live(uri).values()
    assert "deletionVector" not in add and json.loads(add["stats"])["numRecords"] == len(deleted)
    assert keys_of(Path(uri, add["path"])) == deleted == others_read(uri)
    assert not plait.compact(uri, sort_by="k", yes=True).groups


def test_a_file_of_its_own_is_rewritten_once_a_twentieth_is_deleted(uri):
    name = append(uri, list(range(1000)))
    vectors.delete(uri, name, range(50))
    assert not plait.compact(uri, sort_by="k", yes=True).groups
    vectors.delete(uri, name, range(51))
    (group,) = plait.compact(uri, sort_by="k", yes=True).groups
    assert (group.rows, others_read(uri)) == (949, list(range(51, 1000)))


def test_a_file_without_a_row_that_is_left_goes(uri, tmp_path):
    name = append(uri, [1, 2, 3])
    other = append(uri, [2, 4])
    vectors.delete(uri, name, range(3), kind="p")
    assert keys(plait.read(uri, sort_by="k")) == [2, 4]
    assert merged(uri, tmp_path / "out.parquet") == [2, 4]
    assert planned(uri, tmp_path / "outs") == [2, 4]
    vectors.delete(uri, other, range(2))
    assert keys(plait.read(uri, sort_by="k")) == []
    assert merged(uri, tmp_path / "none.parquet") == []
    assert len(plait.compact(uri, sort_by="k", yes=True).groups) == 1
    assert sum(file.rows for file in plait.Table(uri).files()) == 0


def test_files_in_no_order_are_sorted_without_their_deleted_rows(uri, tmp_path):
    shuffled = list(range(3000))
    random.Random(7).shuffle(shuffled)
    gone = set(random.Random(8).sample(range(3000), 900))
    vectors.delete(uri, append(uri, shuffled), gone)
    append(uri, list(range(3000, 3100)))
    left = sorted(k for i, k in enumerate(shuffled) if i not in gone) + list(range(3000, 3100))
    with pytest.raises(plait.UnsortedSource):
        merged(uri, tmp_path / "out.parquet")
    assert merged(uri, tmp_path / "out.parquet", unsorted="sort") == left
    assert merged(uri, tmp_path / "skipped.parquet", unsorted="skip") == left[-100:]
    assert plait.compact(uri, sort_by="k", unsorted="sort", verify="content", yes=True).groups
    assert keys(plait.read(uri, sort_by="k")) == left == others_read(uri)


def test_outputs_are_cut_by_rows_that_are_left(uri, tmp_path):
    gone = range(500, 1000)  # the largest keys
    vectors.delete(uri, append(uri, list(range(1000))), gone)
    vectors.delete(uri, append(uri, list(range(1000))), gone)
    for outputs in (2, 600):
        out = tmp_path / str(outputs)
        report = plait.merge(uri, out, sort_by="k", outputs=outputs)
        assert len(report.outputs) == min(outputs, 500)
        assert keys_of(out) == sorted(2 * list(range(500)))
    report = plait.merge(uri, tmp_path / "rows", sort_by="k", target_rows=300)
    assert sum(output.rows for output in report.outputs) == 1000
    assert keys_of(tmp_path / "rows") == sorted(2 * list(range(500)))


def test_a_delete_makes_no_row_newer(uri):
    table = plait.Table(uri, sort_by="k", on_duplicate="keep_last")
    table.append(pa.table({"k": [1, 2, 3], "v": ["old"] * 3}))
    (old,) = vectors.live(uri)
    table.append(pa.table({"k": [1, 2, 3], "v": ["new"] * 3}))
    vectors.delete(uri, old, [0])
    table = plait.Table(uri)
    assert pa.table(table.read())["v"].to_pylist() == ["new"] * 3
    table.compact(policy="full")
    assert pa.table(table.read())["v"].to_pylist() == ["new"] * 3


def test_deletes_by_key_and_expiry_of_a_table_with_vectors(uri, deleted):
    table = plait.Table(uri, sort_by="k")
    assert table.delete("k < 1000").rows == sum(k < 1000 for k in deleted)
    left = [k for k in deleted if k >= 1000]
    assert keys(table.read()) == left == others_read(uri)
    bins = list(Path(uri).rglob("*.bin"))
    assert len(bins) == 1
    long_ago = 1_000_000_000
    for path in [*bins, *Path(uri).rglob("*.parquet")]:
        os.utime(path, (long_ago, long_ago))
    table.expire("1h")
    assert bins[0].exists(), "its removal is younger"
    # Here, too, as if time had passed.
    age_log(uri)
    plait.Table(uri).expire("1h")
    assert not bins[0].exists() and keys(plait.Table(uri, sort_by="k").read()) == left


def age_log(uri):
    for path in Path(uri, "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = 2_000_000_000_000 // 2
        path.write_text("\n".join(map(json.dumps, actions)))


def test_a_vector_that_is_live_is_never_removed(uri, deleted):
    for path in [*Path(uri).rglob("*.bin"), *Path(uri).rglob("*.parquet")]:
        os.utime(path, (1_000_000_000, 1_000_000_000))
    age_log(uri)
    plait.Table(uri).expire("0s")
    assert keys(plait.read(uri, sort_by="k")) == deleted


def replaced(**said):
    return lambda made: {**made, **said}


DAMAGE = {
    "number of rows": (replaced(cardinality=7), "another number of rows"),
    "length": (replaced(sizeInBytes=20), "another length"),
    "end": (replaced(sizeInBytes=1 << 20), "longer than it can be"),
    "offset": (replaced(offset=3), "longer than it can be|another length"),
    "kind": (replaced(storageType="x"), "is none"),
    "text": (replaced(pathOrInlineDv="short"), "is none"),
    "negative": (replaced(offset=-1), "is none"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_the_log_says_wrongly_is_an_error(what, uri, tmp_path):
    edit, message = DAMAGE[what]
    name = append(uri, list(range(100)))
    append(uri, list(range(50)))
    vectors.delete(uri, name, [1, 5, 9], edit=edit)
    everything_fails(uri, tmp_path, plait.CorruptSource, message)


def everything_fails(uri, tmp_path, kind, message):
    version = deltalake.DeltaTable(uri).version()
    for call in (
        lambda: keys(plait.read(uri, sort_by="k")),
        lambda: plait.merge(uri, tmp_path / "out.parquet", sort_by="k"),
        lambda: plait.plan(uri, sort_by="k"),
        lambda: plait.Table(uri, sort_by="k").delete("k < 3"),
    ):
        with pytest.raises(kind, match=message):
            call()
    assert not (tmp_path / "out.parquet").exists()
    try:
        plait.compact(uri, sort_by="k", yes=True)
    except plait.PlaitError as error:
        assert isinstance(error, kind)
    assert deltalake.DeltaTable(uri).version() == version


@pytest.mark.parametrize("at", ["length", "magic", "bitmap", "checksum", "cut", "absent"])
def test_a_damaged_file_of_a_vector_is_an_error(at, uri, tmp_path):
    name = append(uri, list(range(100)))
    append(uri, list(range(50)))
    vectors.delete(uri, name, [1, 5, 9])
    (path,) = Path(uri).glob("*.bin")
    said = vectors.live(uri)[name]["deletionVector"]
    data = bytearray(path.read_bytes())
    start = said["offset"]
    place = {"length": start, "magic": start + 4, "bitmap": start + 20, "checksum": len(data) - 1}
    if at == "absent":
        path.unlink()
        return everything_fails(
            uri, tmp_path, plait.SourceNotFound, "no file|no such|does not exist|not found"
        )
    if at == "cut":
        del data[-5:]
    else:
        data[place[at]] ^= 1
    path.write_bytes(data)
    return everything_fails(uri, tmp_path, plait.CorruptSource, "a deletion vector")


def test_a_vector_of_another_file_is_an_error(uri, tmp_path):
    name = append(uri, list(range(100)))
    append(uri, list(range(50)))
    vectors.delete(uri, name, [1, 100])
    everything_fails(uri, tmp_path, plait.CorruptSource, "rows that the file lacks")


def test_a_bitmap_that_is_none_is_an_error_whatever_its_checksum(uri, tmp_path, monkeypatch):
    rng = random.Random(5)
    name = append(uri, list(range(100)))
    whole = vectors.bitmap([1, 5, 9])
    for case in range(60):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        data = data[: rng.randint(4, len(data))] if case % 3 == 0 else data
        monkeypatch.setattr(vectors, "bitmap", lambda _, data=bytes(data): data)
        vectors.delete(uri, name, [1, 5, 9])
        try:
            found = keys(plait.read(uri, sort_by="k"))
        except plait.CorruptSource:
            continue
        assert len(found) == 97, "three rows, if it is a bitmap at all"


def test_rows_deleted_while_a_compaction_merges_do_not_come_back(uri, deleted, monkeypatch):
    names = list(vectors.live(uri))
    append(uri, list(range(4000, 4100)))
    commit, done = Delta.commit, []

    def rival(table, change):
        if not done:
            done.append(True)
            vectors.delete(uri, names[0], {*range(1000), 1999})
        return commit(table, change)

    monkeypatch.setattr(Delta, "commit", rival)
    report = plait.compact(uri, sort_by="k", policy="full", yes=True)
    left = [k for k in deleted if k % 2 or 2000 <= k < 3998] + list(range(4000, 4100))
    assert report.lost == 0 and keys(plait.read(uri, sort_by="k")) == left == others_read(uri)


def test_partitions_with_vectors_are_read_and_compacted(uri):
    for part in range(2):
        rows = pa.table({"k": list(range(part, 40, 2)) * 2, "day": ["mon"] * 20 + ["tue"] * 20})
        deltalake.write_deltalake(uri, rows, mode="append", partition_by=["day"])
    expected = []
    for name in list(vectors.live(uri)):
        vectors.delete(uri, name, [0, 7])
        day = name.partition("/")[0].removeprefix("day=")
        found = pq.ParquetFile(Path(uri, name)).read()["k"].to_pylist()
        expected += [(day, k) for i, k in enumerate(found) if i not in (0, 7)]
    expected.sort()

    def rows_of(read):
        table = pa.table(read)
        return list(zip(table["day"].to_pylist(), table["k"].to_pylist(), strict=True))

    assert rows_of(plait.read(uri, sort_by="day, k")) == expected
    assert len(plait.compact(uri, sort_by="k", yes=True).groups) == 2
    assert rows_of(plait.read(uri, sort_by="day, k")) == expected
    assert not any("deletionVector" in add for add in vectors.live(uri).values())


def test_random_deletes_are_those_of_a_model(tmp_path):
    rng = random.Random(11)
    for case in range(CASES):
        uri = str(tmp_path / f"t{case}")
        files = {}
        is_sorted = rng.random() < 0.6
        for _ in range(rng.randint(1, 5)):
            keys_in = [rng.randrange(200) for _ in range(rng.choice([1, 30, 700]))]
            keys_in = sorted(keys_in) if is_sorted else keys_in
            files[append(uri, keys_in)] = (keys_in, set())
        for _ in range(rng.randint(1, 4)):
            name = rng.choice(list(files))
            rows_in, gone = files[name]
            gone |= set(rng.sample(range(len(rows_in)), rng.randint(1, len(rows_in))))
            vectors.delete(uri, name, gone, kind=rng.choice("uip"))
        left = [k for found, gone in files.values() for i, k in enumerate(found) if i not in gone]
        left.sort()
        how = {} if is_sorted else {"unsorted": "sort"}
        if is_sorted:
            assert keys(plait.read(uri, sort_by="k")) == left
        assert merged(uri, tmp_path / f"{case}.parquet", **how) == left
        plait.compact(uri, sort_by="k", verify="content", yes=True, **how)
        assert others_read(uri) == left
        shutil.rmtree(uri)


def test_contents_are_compared_in_one_pass_where_every_second_row_is_deleted(uri, tmp_path):
    name = append(uri, list(range(20_000)))
    vectors.delete(uri, name, set(range(0, 20_000, 2)), prefix="ab")
    report = plait.merge(uri, tmp_path / "out", sort_by="k", verify="content")
    assert report.rows_out == 10_000
    # Each live row opened all columns anew: 10,000 times the bytes of the file.
    assert report.metrics.bytes_read < 20 * (Path(uri) / name).stat().st_size
    output = plait.verify(report.outputs[0].path, sort_by="k")
    assert output.content_hash == report.content_hash
