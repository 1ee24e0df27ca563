"""Compactions of folders that are in the way: damaged manifests, links, tables in tables, odd names."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _lease, _native
from plait._lease import end, new_id, take
from plait.table import groups

pytestmark = pytest.mark.local  # the tests name folders and URLs themselves

HOW = {"policy": "full", "sort_by": "k", "yes": True}


def write(path: Path, *keys: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"k": sorted(keys)}), path)


def keys(folder: Path | str, **options) -> list[int]:
    return sorted(pa.table(plait.scan(folder, **options))["k"].to_pylist())


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "events"
    for part in range(3):
        write(made / f"{part}.parquet", part, part + 10)
    return made


def damage(manifest: dict, how: str) -> dict:
    made, gone = manifest["files"][0], manifest["replaced"][0]
    match how:
        case "above":
            gone["path"] = "../outside.parquet"
        case "absolute":
            gone["path"] = "/etc/hostname"
        case "odd":
            made["path"] = "_plait/files//a.parquet"
        case "twice":
            manifest["replaced"].append(dict(gone))
        case "counts and not":
            manifest["replaced"].append({**gone, "path": made["path"]})
        case "not made":
            made["path"] = "0.parquet"
        case "number":
            manifest["number"] = 7
        case "format":
            manifest["format"] = "other"
        case "lease":
            manifest["leases"] = [{"id": "../a", "until": 1.0, "machine": ""}]
        case "leases":
            manifest["leases"] = [{"id": "0" * 16, "until": 1.0, "machine": ""}] * 2
        case "more":
            manifest["more"] = 1
        case "types":
            manifest["files"] = {"a": 1}
    return manifest


CASES = (
    "above absolute odd twice counts-and-not not-made number format more types lease leases"
).split()


@pytest.mark.parametrize("how", CASES)
def test_manifests_that_cannot_be_are_refused_and_nothing_is_removed(folder, how):
    outside = folder.parent / "outside.parquet"
    write(outside, 1)
    plait.compact(folder, **HOW)
    path = folder / "_plait" / "manifest-00000002.json"
    path.write_text(json.dumps(damage(json.loads(path.read_text()), how.replace("-", " "))))
    before = sorted(folder.rglob("*"))
    for call in (
        lambda: plait.expire(folder, retention=0, yes=True),
        lambda: plait.compact(folder, **HOW),
        lambda: keys(folder),
    ):
        with pytest.raises(plait.CorruptSource, match="manifest"):
            call()
    assert sorted(folder.rglob("*")) == before and outside.exists()


def test_only_names_that_plait_gives_are_manifests(folder):
    plait.compact(folder, **HOW)
    for name in (
        "manifest-2.json",
        "manifest-+0000002.json",
        "manifest-99999999999999999999999.json",
        "manifest-00000003.json.bak",
    ):
        (folder / "_plait" / name).write_text("{")
    assert keys(folder) == [0, 1, 2, 10, 11, 12]
    last = 2**64 - 1
    text = (folder / "_plait" / "manifest-00000002.json").read_text()
    whole = {**json.loads(text), "number": last}
    (folder / "_plait" / f"manifest-{last}.json").write_text(json.dumps(whole))
    write(folder / "late.parquet", 5)
    with pytest.raises(plait.CorruptSource, match="no number"):
        plait.compact(folder, **HOW)
    assert keys(folder) == [0, 1, 2, 5, 10, 11, 12]


def test_a_file_that_is_written_again_under_its_name_is_not_removed(folder):
    plait.compact(folder, **HOW)
    write(folder / "1.parquet", 100, 101)
    (folder / "2.parquet").write_bytes(b"not a Parquet file")
    assert 100 not in keys(folder), "until expire has forgotten what was replaced"
    dry = plait.expire(folder, retention=0)
    assert dry.kept == ("1.parquet", "2.parquet") and "written again" in str(dry)
    done = plait.expire(folder, retention=0, yes=True)
    assert (done.replaced, done.kept) == (("0.parquet",), dry.kept)
    (folder / "2.parquet").unlink()
    assert keys(folder) == [0, 1, 2, 10, 11, 12, 100, 101]


def test_a_copy_of_a_folder_is_the_same_folder(folder, tmp_path):
    plait.compact(folder, **HOW)
    copy = tmp_path / "copy"
    for path in folder.rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    assert keys(copy) == keys(folder)
    assert len(plait.expire(copy, retention=0, yes=True).replaced) == 3
    assert keys(copy) == [0, 1, 2, 10, 11, 12]


def test_a_part_of_a_compacted_folder_is_not_compacted_by_itself(folder):
    write(folder / "day=1" / "a.parquet", 20)
    write(folder / "day=1" / "b.parquet", 21)
    plait.compact(folder, **HOW)
    for part in ("day=1", "_plait/files", "_plait/files/day=1"):
        with pytest.raises(plait.InvalidArgument, match="is compacted as a whole"):
            plait.compact(folder / part, **HOW)
    assert keys(folder / "day=1") == [20, 21]


def test_a_folder_over_compacted_ones_reads_them_and_leaves_them_alone(tmp_path):
    for day in (1, 2):
        for part in range(3):
            write(tmp_path / "all" / f"day={day}" / f"{part}.parquet", 10 * day + part)
    part = tmp_path / "all" / "day=1"
    plait.compact(part, **HOW)
    expected = [10, 11, 12, 20, 21, 22]
    assert keys(tmp_path / "all") == expected
    plait.expire(part, retention=0, yes=True)
    assert keys(tmp_path / "all") == expected
    done = plait.compact(tmp_path / "all", **HOW)
    assert [group.folder for group in done.groups] == ["day=2"]
    assert {skipped.why for skipped in done.skipped} == {
        "it lies in a subfolder that has its own manifest"
    }
    plait.expire(tmp_path / "all", retention=0, yes=True)
    assert keys(tmp_path / "all") == expected


def test_tables_in_tables_are_read_in_object_stores_too():
    store = pytest.importorskip("obstore.store").MemoryStore()
    for day in (1, 2):
        for part in range(3):
            out = pa.BufferOutputStream()
            pq.write_table(pa.table({"k": [10 * day + part]}), out)
            store.put(f"all/day={day}/{part}.parquet", out.getvalue().to_pybytes())
    options = {"storage_options": store}
    plait.compact("all/day=1", **HOW, **options)
    for _ in range(2):
        assert keys("all", **options) == [10, 11, 12, 20, 21, 22]
        assert keys("", **options) == [10, 11, 12, 20, 21, 22]
        assert keys("all/day=1", **options) == [10, 11, 12]
        plait.expire("all/day=1", retention=0, yes=True, **options)
    done = plait.compact("all", **HOW, **options)
    assert [group.folder for group in done.groups] == ["day=2"]
    plait.expire("all", retention=0, yes=True, **options)
    assert keys("all", **options) == [10, 11, 12, 20, 21, 22]
    with pytest.raises(plait.InvalidArgument, match="is compacted as a whole"):
        plait.compact("all/day=2", **HOW, **options)


@pytest.mark.parametrize("swap", [False, True])
def test_what_is_behind_links_stays(folder, tmp_path, swap):
    elsewhere = tmp_path / "elsewhere"
    for part in range(2):
        write(elsewhere / f"{part}.parquet", 50 + part)
    (folder / "link").symlink_to(elsewhere)
    write(tmp_path / "alone.parquet", 70)
    os.utime(tmp_path / "alone.parquet", (1, 1))  # far older than the link
    (folder / "z.parquet").symlink_to(tmp_path / "alone.parquet")
    expected = [0, 1, 2, 10, 11, 12, 50, 51, 70]
    done = plait.compact(folder, **HOW)
    assert [len(group.sources) for group in done.groups] == [4]
    assert {skipped.why for skipped in done.skipped} == {"it is behind a symbolic link"}
    plait.expire(folder, retention=0, yes=True, swap=swap)
    assert len(list(elsewhere.iterdir())) == 2 and (tmp_path / "alone.parquet").exists()
    assert keys(folder) == expected
    # The folder itself may be a link, and may be spelled in many ways.
    (tmp_path / "alias").symlink_to(folder)
    write(folder / "late.parquet", 99)
    assert len(plait.compact(f"{tmp_path}/alias/../alias/.", **HOW).groups) == 1
    assert keys(folder) == keys(tmp_path / "alias") == [*expected, 99]


@pytest.mark.parametrize(
    "name", ["day=ü 1", "a%20b", "x#y?z", "d.parquet", "[1]*", "日本", "a&b=c;d"]
)
def test_folders_and_files_may_have_any_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for part in range(2):
        write(tmp_path / "t" / name / f"{name} {part}.parquet", part)
    done = plait.compact("t", **HOW)
    assert [group.folder for group in done.groups] == [name]
    plait.expire("t", retention=0, yes=True)
    assert keys("t") == [0, 1] and keys(tmp_path / "t" / name) == [0, 1]
    assert plait.compact("./t/", **HOW).groups == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["day=ü 1", "x#y?z", "d.parquet", "日本", "a&b=c;d", "50%25"])
def test_objects_may_have_names_that_urls_escape(s3_server, name):
    store = pytest.importorskip("obstore.store")
    s3_server.request("PUT", "/names")
    options = s3_server.options()
    config = {n: v for n, v in options.items() if n != "allow_http"}
    s3 = store.S3Store("names", config=config, client_options={"allow_http": True})
    for part in range(2):
        out = pa.BufferOutputStream()
        pq.write_table(pa.table({"k": [part]}), out)
        s3.put(f"t-{name}/{name}/{part}.parquet", out.getvalue().to_pybytes())
    done = plait.compact(f"t-{name}", storage_options=s3, **HOW)
    assert [group.folder for group in done.groups] == [name]
    assert len(plait.expire(f"t-{name}", retention=0, storage_options=s3, yes=True).replaced) == 2
    assert keys(f"t-{name}/", storage_options=s3) == [0, 1]


def newest(folder: Path) -> dict:
    return json.loads(_native.commit(json.dumps({"folder": str(folder)})))["manifest"]


def test_expire_takes_no_output_that_is_about_to_count(folder, monkeypatch):
    execute = plait.Plan.execute

    def beaten(self, *args, **options):
        report = execute(self, *args, **options)
        told = plait.expire(folder, retention=0, yes=True)
        assert (told.orphans, told.replaced) == ((), ())
        assert Path(report.outputs[0].path).exists()
        return report

    monkeypatch.setattr(plait.Plan, "execute", beaten)
    assert len(plait.compact(folder, **HOW).groups) == 1
    assert keys(folder) == [0, 1, 2, 10, 11, 12]
    assert newest(folder)["leases"] == [] and not list((folder / "_plait/leases").iterdir())


def test_outputs_whose_lease_was_ended_are_not_committed(folder, monkeypatch):
    """Whatever the clocks: who was taken for dead commits nothing, and what it made is dead."""
    execute = plait.Plan.execute

    def beaten(self, *args, **options):
        report = execute(self, *args, **options)
        (lease,) = newest(folder)["leases"]
        end(str(folder), lease["id"], None)
        return report

    monkeypatch.setattr(plait.Plan, "execute", beaten)
    with pytest.raises(plait.SourceChanged, match="lease of an output has ended"):
        plait.compact(folder, **HOW)
    monkeypatch.undo()
    assert keys(folder) == [0, 1, 2, 10, 11, 12]
    assert len(plait.expire(folder, retention=0, yes=True).orphans) == 1
    assert len(plait.compact(folder, **HOW).groups) == 1
    assert keys(folder) == [0, 1, 2, 10, 11, 12]


def test_a_lease_that_was_not_renewed_is_ended_by_others_and_one_that_was_is_not(folder):
    for term, is_left in ((-1.0, False), (60.0, True)):
        lease = new_id()
        held = take(str(folder), lease, term, None)
        write(folder / f"_plait/files/made-{lease}.parquet", 5)
        told = plait.expire(folder, retention=0, yes=True)
        assert (told.orphans == ()) == is_left
        assert any(other["id"] == lease for other in newest(folder)["leases"]) == is_left
        change = {"folder": str(folder), "renew": {"id": lease, "term_s": 60.0}}
        if is_left:
            assert json.loads(_native.commit(json.dumps(change)))["committed"]
        else:
            with pytest.raises(plait.SourceChanged, match="lease has ended"):
                _native.commit(json.dumps(change))
        held.close()


def test_a_file_without_a_lease_is_never_committed(folder):
    write(folder / "_plait/files/strange.parquet", 5)
    made = [str(folder / "_plait/files/strange.parquet")]
    change = {"folder": str(folder), "changes": [{"add": made}]}
    with pytest.raises(plait.SourceChanged, match="lease of an output has ended"):
        _native.commit(json.dumps(change))
    assert keys(folder) == [0, 1, 2, 10, 11, 12]


def test_outputs_that_people_remove_are_not_committed(folder, monkeypatch):
    execute = plait.Plan.execute

    def beaten(self, *args, **options):
        report = execute(self, *args, **options)
        Path(report.outputs[0].path).unlink()
        return report

    monkeypatch.setattr(plait.Plan, "execute", beaten)
    with pytest.raises(plait.SourceChanged, match="removed meanwhile"):
        plait.compact(folder, **HOW)
    assert keys(folder) == [0, 1, 2, 10, 11, 12] and newest(folder)["leases"] == []


def test_a_lease_is_renewed_while_a_merge_takes_long(folder, monkeypatch):
    monkeypatch.setattr(_lease, "_RENEW_S", 0.01)
    execute = plait.Plan.execute

    def slow(self, *args, **options):
        (taken,) = newest(folder)["leases"]
        for _ in range(1000):
            (lease,) = newest(folder)["leases"]
            if lease["until"] > taken["until"]:
                return execute(self, *args, **options)
            time.sleep(0.01)
        pytest.fail("nobody renews the lease")

    monkeypatch.setattr(plait.Plan, "execute", slow)
    assert len(plait.compact(folder, **HOW).groups) == 1
    assert newest(folder)["leases"] == [] and keys(folder) == [0, 1, 2, 10, 11, 12]


def test_expire_removes_nothing_while_a_file_that_counts_is_missing(folder):
    done = plait.compact(folder, **HOW)
    Path(done.groups[0].outputs[0]).unlink()
    with pytest.raises(plait.SourceNotFound, match="a live file is missing"):
        plait.expire(folder, retention=0, yes=True)
    assert len(list(folder.glob("*.parquet"))) == 3


def test_manifests_of_before_there_were_leases_are_read(folder):
    plait.compact(folder, **HOW)
    path = max((folder / "_plait").glob("manifest-*.json"))
    old = json.loads(path.read_text())
    del old["leases"]
    path.write_text(json.dumps({**old, "version": 1}))
    assert keys(folder) == [0, 1, 2, 10, 11, 12]
    # Whoever does not know leases must not go on with those who do.
    assert len(plait.expire(folder, retention=0, yes=True).replaced) == 3
    assert newest(folder)["version"] == 3 and keys(folder) == [0, 1, 2, 10, 11, 12]


def test_files_that_vanish_while_they_are_compacted(folder, monkeypatch):
    called = groups.Group.plan.func

    def late(group):
        made = called(group)
        (folder / "1.parquet").unlink(missing_ok=True)
        return made

    monkeypatch.setattr(groups.Group, "plan", property(late))
    first = plait.compact(folder, **HOW)
    assert [len(group.sources) for group in first.groups] == [2] and first.lost == 1
    assert keys(folder) == [0, 2, 10, 12]


def test_folders_that_cannot_be_written_are_storage_errors(folder):
    (folder / "_plait").write_text("in the way")
    with pytest.raises(plait.StorageError):
        plait.compact(folder, **HOW)
    assert keys(folder) == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize(
    ("call", "option", "value"),
    [
        (plait.compact, "merge_factor", 2**80),
        (plait.compact, "max_depth", -1),
        (plait.compact, "mature_size", 2**70),
        (plait.compact, "mature_age", float("nan")),
        (plait.compact, "mature_age", float("inf")),
        (plait.compact, "version_by", 3),
        (plait.compact, "yes", 1),
        (plait.expire, "retention", float("inf")),
        (plait.expire, "retention", "-1d"),
        (plait.expire, "retention", "1e999s"),
        (plait.expire, "yes", "no"),
    ],
)
def test_numbers_that_are_invalid_are_refused(folder, call, option, value):
    with pytest.raises(plait.InvalidArgument):
        call(folder, **{**({"sort_by": "k"} if call is plait.compact else {}), option: value})


@pytest.mark.parametrize("outer", ["above", "below"])
@pytest.mark.parametrize("moment", ["its lease", "its outputs"])
def test_a_folder_and_one_below_it_are_compacted_at_once(tmp_path, monkeypatch, outer, moment):
    """The other one is compacted when the first has chosen its files, or has its lease."""
    above = tmp_path / "events"
    below = above / "day=1"
    for part in range(3):
        write(below / f"{part}.parquet", part, part + 10)
        write(above / "day=2" / f"{part}.parquet", part, part + 20)
    both = {"above": above, "below": below}
    before = {name: keys(path) for name, path in both.items()}
    inner = both["below" if outer == "above" else "above"]
    owner, name = {"its lease": (_lease, "take"), "its outputs": (plait.Plan, "execute")}[moment]
    original, hooked = getattr(owner, name), []

    def hook(*arguments, **options):
        if not hooked:
            hooked.append(None)
            with suppress(plait.InvalidArgument, plait.SourceChanged):
                plait.compact(inner, **HOW)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, hook)
    with suppress(plait.InvalidArgument, plait.SourceChanged):
        plait.compact(both[outer], **HOW)
    assert hooked
    assert {name: keys(path) for name, path in both.items()} == before
    for _ in range(2):
        for path in both.values():
            with suppress(plait.InvalidArgument):
                plait.compact(path, **HOW)
            plait.expire(path, retention=0, yes=True)
            assert {name: keys(path) for name, path in both.items()} == before


def test_a_folder_with_a_lease_that_a_killed_compaction_left_is_left_alone(tmp_path):
    above, below = tmp_path / "events", tmp_path / "events" / "day=1"
    for part in range(3):
        write(below / f"{part}.parquet", part, part + 10)
        write(above / "day=2" / f"{part}.parquet", part, part + 20)
    take(str(below), new_id(), 1000, None)
    before = keys(above), keys(below)
    report = plait.compact(above, **HOW)
    assert [len(group.sources) for group in report.groups] == [3]
    plait.expire(above, retention=0, yes=True)
    assert (keys(above), keys(below)) == before
    assert len(plait.compact(below, **HOW).groups) == 1
    assert (keys(above), keys(below)) == before
