"""The log of Delta: what others wrote is read, and what we write is read by them."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait._logs.delta import DeltaLog

from .rivals import beat_everywhere

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.local


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def write(path, table, **options):
    deltalake.write_deltalake(path, table, mode="append", **options)


def theirs(path, version=None):
    """Live files as delta-rs sees them: name, bytes, rows, partition."""
    table = deltalake.DeltaTable(path, version=version)
    rows = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    return sorted((row["path"], row["size_bytes"], row["num_records"]) for row in rows)


def ours(path, version=None):
    from urllib.parse import quote

    files = DeltaLog(path, None).files(version=version)
    return sorted((quote(f.name, safe="/=!$'()*,:@&+~"), f.bytes, f.rows) for f in files)


def rewrite(path, version, change):
    log = Path(path, "_delta_log", f"{version:020}.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions if action))


@pytest.mark.parametrize("seed", range(4))
def test_every_version_that_delta_rs_wrote_is_the_same_to_us(seed, path):
    rng = random.Random(seed)
    write(path, pa.table({"k": [1]}))
    for i in range(15):
        act = rng.choice(["append", "append", "delete", "overwrite", "compact", "checkpoint"])
        table = deltalake.DeltaTable(path)
        if act == "append":
            write(path, pa.table({"k": [rng.randrange(9) for _ in range(5)]}))
        elif act == "delete":
            table.delete(f"k = {rng.randrange(9)}")
        elif act == "overwrite" and rng.random() < 0.3:
            deltalake.write_deltalake(path, pa.table({"k": [i]}), mode="overwrite")
        elif act == "compact":
            table.optimize.compact()
        else:
            table.create_checkpoint()
    newest = deltalake.DeltaTable(path).version()
    for version in range(newest + 1):
        assert ours(path, version) == theirs(path, version), version
    assert DeltaLog(path, None).snapshot().version == newest
    # From the checkpoint alone.
    deltalake.DeltaTable(path).create_checkpoint()
    for log in Path(path, "_delta_log").glob("*.json"):
        if int(log.name.split(".")[0]) < newest:
            log.unlink()
    assert ours(path) == theirs(path)


def test_partitions_and_names_with_any_letters_are_read(path):
    values = ["a b", "ü/é", "50%", "x=1", "a+b", "#?&", None, "", "..", "%2F", "'q'", '"d"']
    for part in range(2):
        table = pa.table({"k": list(range(len(values))), "day": pa.array(values, pa.string())})
        write(path, table, partition_by=["day"])
        if part == 0:
            deltalake.DeltaTable(path).create_checkpoint()
    found = pa.table(plait.scan(path))
    # Empty text is null in every partition.
    expected = Counter((k, v or None) for k, v in enumerate(values) for _ in range(2))
    assert Counter(zip(found["k"].to_pylist(), found["day"].to_pylist())) == expected
    for file in DeltaLog(path, None).files():
        assert Path(path, file.name).is_file(), file.name


def test_statistics_may_be_absent_and_columns_may_come_later(path):
    write(path, pa.table({"k": [2, 3]}))
    rewrite(path, 0, lambda action: action.get("add", {}).pop("stats", None))
    table = pa.table({"k": [1], "later": ["x"]})
    write(path, table, schema_mode="merge")
    assert {file.rows for file in DeltaLog(path, None).files()} == {None, 1}
    handle = plait.Table(path, sort_by="k")
    assert pa.table(handle.read()).to_pylist() == [
        {"k": 1, "later": "x"},
        {"k": 2, "later": None},
        {"k": 3, "later": None},
    ]
    handle.append(pa.table({"k": [0], "later": ["y"]}))
    handle.compact(policy="full")
    assert len(handle.files()) == 1 and handle.files()[0].rows == 4
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 4


def test_a_checkpoint_of_several_parts_or_with_sidecars_is_read(path):
    for i in range(6):
        write(path, pa.table({"k": [i]}))
    deltalake.DeltaTable(path).create_checkpoint()
    log = Path(path, "_delta_log")
    expected = theirs(path)
    (whole,) = log.glob("*.checkpoint.parquet")
    rows = pq.read_table(whole)
    for commit in log.glob("*.json"):
        commit.unlink()
    whole.unlink()
    stem = whole.name.removesuffix(".checkpoint.parquet")
    # A part is absent: the checkpoint does not count.
    half = rows.num_rows // 2
    pq.write_table(rows[:half], log / f"{stem}.checkpoint.{1:010}.{2:010}.parquet")
    with pytest.raises(plait.SourceNotFound, match="no such Delta table"):
        ours(path)
    pq.write_table(rows[half:], log / f"{stem}.checkpoint.{2:010}.{2:010}.parquet")
    assert ours(path) == expected
    for part in log.glob("*.checkpoint.*"):
        part.unlink()
    # As JSON, with the files in a sidecar.
    (log / "_sidecars").mkdir()
    pq.write_table(rows.select(["add"]), log / "_sidecars" / "one.parquet")
    others = [
        {name: value for name, value in row.items() if value and name in ("protocol", "metaData")}
        for row in rows.to_pylist()
    ]
    for row in filter(None, others):
        if "metaData" in row:
            row["metaData"]["configuration"] = {}
            row["metaData"]["format"] = {"provider": "parquet", "options": {}}
    lines = [json.dumps(row, default=str) for row in others if row]
    lines.append(json.dumps({"sidecar": {"path": "one.parquet", "sizeInBytes": 1}}))
    (log / f"{stem}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text(
        "\n".join(lines)
    )
    assert ours(path) == expected


def test_our_checkpoints_are_what_delta_rs_reads(path):
    table = plait.Table(path, sort_by="k")
    for i in range(5):
        table.append(pa.table({"k": [i], "t": ["x" * 40]}), batch_id=str(i))
    while table.version < 10:
        table.append(pa.table({"k": [7], "t": ["y"]}))
        if table.version < 10:
            table.compact()
    last = json.loads(Path(path, "_delta_log", "_last_checkpoint").read_text())
    assert last["version"] == 10 and last["numOfAddFiles"] == len(table.files())
    before, version = theirs(path), deltalake.DeltaTable(path).version()
    for log in Path(path, "_delta_log").glob("*.json"):
        if log.name != f"{10:020}.json":
            log.unlink()
    again = deltalake.DeltaTable(path)
    assert (theirs(path), again.version()) == (before, version)
    assert again.transaction_version("plait.batch:3") == 1
    assert again.metadata().configuration["plait.sort_by"] == "k"
    # They go on from it.
    write(path, pa.table({"k": [100], "t": ["z"]}))
    again.update_incremental()
    assert ours(path) == theirs(path) and again.version() == 11


def test_how_often_checkpoints_are_written_is_a_property(path):
    write(path, pa.table({"k": [1]}), configuration={"delta.checkpointInterval": "3"})
    table = plait.Table(path, sort_by="k")
    for i in range(7):
        table.append(pa.table({"k": [i]}))
    names = sorted(p.name for p in Path(path, "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(name.split(".")[0]) for name in names] == [3, 6]


@pytest.mark.parametrize("damage", ["gap", "garbage", "nothing", "no metadata"])
def test_a_log_that_is_damaged_is_told(damage, path):
    for i in range(4):
        write(path, pa.table({"k": [i]}))
    log = Path(path, "_delta_log", f"{2:020}.json")
    if damage == "gap":
        log.unlink()
    elif damage == "garbage":
        log.write_bytes(b'{"add": {"path": 7}}\n')
    elif damage == "nothing":
        Path(path, "_delta_log", f"{3:020}.checkpoint.parquet").write_bytes(b"PAR1")
    else:
        rewrite(path, 0, lambda action: action.pop("metaData", None))
    with pytest.raises(plait.CorruptSource) as caught:
        ours(path)
    assert "_delta_log" in caught.value.path


def test_a_log_that_is_cleaned_up_meanwhile_is_listed_again(path, monkeypatch):
    # What is known of a log is not trusted for longer than commits stay.
    table = plait.Table(path, sort_by="k")
    table.append(pa.table({"k": [1]}))
    for i in range(3):
        write(path, pa.table({"k": [i]}))
    assert table.version == 3


def test_commits_say_what_was_done(path):
    table = plait.Table(path, sort_by="k")
    table.append(pa.table({"k": [1, 2, 3]}))
    table.append(pa.table({"k": [2]}))
    table.compact()
    table.delete("k = 2")
    found = [(v.operation, v.files_added, v.files_removed) for v in table.history()]
    assert found == [("DELETE", 1, 1), ("OPTIMIZE", 1, 2), ("WRITE", 1, 0), ("WRITE", 1, 0)]
    newest = table.history(1)
    assert len(newest) == 1 and newest[0].metrics["numDeletedRows"] == 2
    assert abs(newest[0].at.timestamp() - time.time()) < 60
    assert newest[0].engine.startswith("Plait/")
    assert [h["operation"] for h in deltalake.DeltaTable(path).history()] == [
        o for o, _, _ in found
    ]


def test_two_handles_commit_one_after_the_other(path):
    tables = [plait.Table(path, sort_by="k") for _ in range(4)]
    tables[0].append(pa.table({"k": [-1]}))

    def work(me):
        for i in range(10):
            tables[me].append(pa.table({"k": [me * 100 + i]}), batch_id=f"{me} {i % 7}")

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = deltalake.DeltaTable(path).to_pyarrow_table()["k"].to_pylist()
    assert sorted(keys) == [-1, *(me * 100 + i for me in range(4) for i in range(7))]
    assert tables[0].version == 28


def test_an_append_is_refused_if_the_schema_changed_while_rows_were_written(path, monkeypatch):
    table = plait.Table(path, sort_by="k")
    table.append(pa.table({"k": [1]}))
    added = DeltaLog.added

    def late(*arguments, **options):
        monkeypatch.setattr(DeltaLog, "added", added)
        write(path, pa.table({"k": [5], "v": ["x"]}), schema_mode="merge")
        return added(*arguments, **options)

    monkeypatch.setattr(DeltaLog, "added", late)
    with pytest.raises(plait.SchemaConflict, match="another schema was committed"):
        table.append(pa.table({"k": [2]}))
    assert table.append(pa.table({"k": [2]})).rows == 1
    assert len(pa.table(table.read())) == 3


def test_a_delete_is_done_again_if_files_were_replaced_meanwhile(path, monkeypatch):
    table = plait.Table(path, sort_by="k")
    for i in range(3):
        table.append(pa.table({"k": [i, 5, 9]}))
    added = DeltaLog.added

    def late(*arguments, **options):
        monkeypatch.setattr(DeltaLog, "added", added)
        plait.Table(path).compact()
        return added(*arguments, **options)

    monkeypatch.setattr(DeltaLog, "added", late)
    assert table.delete("k = 5").rows == 3
    assert pa.table(table.read())["k"].to_pylist() == [0, 1, 2, 9, 9, 9]
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 6


def test_a_place_that_only_old_commits_tell_is_found_there(path):
    # Written by others: their checkpoint does not say which commit added a file.
    for value in ("a", "b", "c"):
        write(path, pa.table({"k": [1], "v": [value]}))
    table = plait.Table(path, sort_by="k", on_duplicate="keep_last")
    deltalake.DeltaTable(path).create_checkpoint()
    # Names and times are no help.
    assert pa.table(table.read()).to_pylist() == [{"k": 1, "v": "c"}]
    order = DeltaLog(path, None).files(order="commits")
    assert [file.version for file in order] == [0, 1, 2]
    assert {file.version for file in DeltaLog(path, None).files()} == {None}


CHANGES = {
    "batch": (lambda table: table.append(pa.table({"k": [7]}), batch_id="1"), [0, 1, 1, 2, 7]),
    "delete": (lambda table: table.delete("k = 1"), [0, 2]),
    "compact": (lambda table: table.compact(policy="full"), [0, 1, 1, 2]),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_made_for_the_version_it_was_checked_for(change, monkeypatch):
    """Somebody else does the same before the n-th request of a change, for every n."""
    act, expected = CHANGES[change]

    def make(store):
        table = plait.Table("t", sort_by="k", storage_options=store)
        table.append(pa.table({"k": [0, 1]}))
        table.append(pa.table({"k": [1, 2]}))

    def check(table, at):
        assert pa.table(table.read())["k"].to_pylist() == expected, at

    assert beat_everywhere(monkeypatch, make, act, check) > 7
