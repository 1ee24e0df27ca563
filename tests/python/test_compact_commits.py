"""Which groups of a compaction are replaced in one commit.

What counts does not depend on it: rows, places of files, and what becomes of each group when others
are quicker, an output breaks, or the compaction is stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.table import commits
from plait.table.delta import Delta
from plait.table.folder import Folder
from plait.table.here import run_here
from plait.table.iceberg import Iceberg
from plait.table.options import CompactOptions
from plait.table.run import compact_table

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")

DAYS = 4


def rows_of(day: int, part: int) -> pa.Table:
    keys = [part, part + 5, part + 10]
    return pa.table({"k": keys, "v": [f"{day} {part} {k}" for k in keys], "day": [f"d{day}"] * 3})


EXPECTED = Counter(
    (row["k"], row["v"])
    for day in range(DAYS)
    for part in range(3)
    for row in rows_of(day, part).to_pylist()
)


class OfFolder:
    """A folder with a partition for each day, whose files overlap."""

    def __init__(self, home: Path) -> None:
        self.path = home / "events"
        for day in range(DAYS):
            (self.path / f"day=d{day}").mkdir(parents=True)
            for part in range(3):
                file = self.path / f"day=d{day}" / f"{part}.parquet"
                pq.write_table(rows_of(day, part).drop_columns("day"), file)

    def table(self):
        return Folder(str(self.path), None)

    def rows(self):
        read = pa.table(plait.scan(self.path, partitions="none"))
        return counted(read)

    def commits(self):
        """How many commits replaced files."""
        manifests = [json.loads(p.read_text()) for p in self.path.glob("_plait/manifest-*.json")]
        counts = sorted({len(manifest["replaced"]) for manifest in manifests})
        return len([count for count in counts if count])

    def take(self, day):
        """Replaces files of a day."""
        assert plait.compact(self.path, sort_by="k", where={"day": f"d{day}"}).groups

    def check(self):
        assert list(self.path.glob("_plait/leases/*")) == []


class OfDelta:
    """A Delta table."""

    def __init__(self, home: Path) -> None:
        self.path = str(home / "events")
        for part in range(3):
            rows = pa.concat_tables([rows_of(day, part) for day in range(DAYS)])
            deltalake.write_deltalake(self.path, rows, mode="append", partition_by=["day"])

    def table(self):
        return Delta(self.path, None, guard=True)

    def rows(self):
        live = deltalake.DeltaTable(self.path).file_uris()
        query = "SELECT k, v FROM read_parquet(?)"
        by_duckdb = Counter(duckdb.execute(query, [live]).fetchall())
        assert counted(deltalake.DeltaTable(self.path).to_pyarrow_table()) == by_duckdb
        return by_duckdb

    def commits(self):
        history = deltalake.DeltaTable(self.path).history()
        return sum(1 for commit in history if commit["operation"] == "OPTIMIZE")

    def take(self, day):
        deltalake.DeltaTable(self.path).optimize.compact(
            partition_filters=[("day", "=", f"d{day}")]
        )

    def check(self):
        tokens = [
            token
            for commit in deltalake.DeltaTable(self.path).history()
            for token in commit.get("plait.task", "").split(",")
            if token
        ]
        assert len(tokens) == len(set(tokens))
        assert all(len(token) == 16 for token in tokens)


class OfIceberg:
    """An Iceberg table."""

    def __init__(self, home: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        home.mkdir(exist_ok=True)
        self.catalog = SqlCatalog(
            "lake", uri=f"sqlite:///{home}/lake.db", warehouse=f"file://{home}"
        )
        self.catalog.create_namespace("db")
        table = self.catalog.create_table("db.events", rows_of(0, 0).schema)
        with table.update_spec() as spec:
            spec.add_identity("day")
        for part in range(3):
            table.append(pa.concat_tables([rows_of(day, part) for day in range(DAYS)]))

    def table(self):
        return Iceberg(self.catalog, "db.events")

    def rows(self):
        return counted(self.catalog.load_table("db.events").scan().to_arrow())

    def commits(self):
        snapshots = self.catalog.load_table("db.events").snapshots()
        return sum(1 for snapshot in snapshots if snapshot.summary.operation.value == "replace")

    def take(self, day):
        table = self.catalog.load_table("db.events")
        kept = table.scan(row_filter=f"day = 'd{day}'").to_arrow()
        table.overwrite(kept, overwrite_filter=f"day = 'd{day}'")

    def check(self):
        self.catalog.close()


def counted(rows: pa.Table) -> Counter:
    return Counter(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.fixture(params=[OfFolder, OfDelta, OfIceberg], ids=["folder", "delta", "iceberg"])
def lake(request, tmp_path):
    if request.param is OfIceberg:
        pytest.importorskip("pyiceberg")
    lake = request.param(tmp_path)
    assert lake.rows() == EXPECTED
    return lake


def compacted(lake, run=None, **changed):
    options = CompactOptions(sort_by="k", target_file_size=None, **changed)
    return compact_table(lake.table(), options, run or run_here(options, threads=1))


@pytest.mark.parametrize(
    ("interval", "count"), [("1min", 1), (0, DAYS), ("0s", DAYS), (1e9, 1)], ids=str
)
def test_groups_that_are_merged_within_the_interval_are_committed_together(lake, interval, count):
    report = compacted(lake, min_commit_interval=interval)
    assert [len(group.sources) for group in report.groups] == [3] * DAYS and report.lost == 0
    assert lake.commits() == count
    assert lake.rows() == EXPECTED
    assert compacted(lake).groups == ()
    lake.check()


def test_a_commit_is_made_when_the_interval_has_passed(lake, monkeypatch):
    """The clock is at the number of groups that are merged."""
    merged = [0]
    monkeypatch.setattr(commits.time, "monotonic", lambda: float(merged[0]))
    options = CompactOptions(sort_by="k", target_file_size=None, min_commit_interval=3)
    work = run_here(options, threads=1)

    def counting(groups, watch):
        for made in work(groups, watch):
            merged[0] += 1
            yield made

    assert len(compact_table(lake.table(), options, counting).groups) == DAYS
    assert lake.commits() == 2  # three groups, and the last one
    assert lake.rows() == EXPECTED


def test_a_group_whose_files_others_replaced_ends_no_other(lake):
    options = CompactOptions(sort_by="k", target_file_size=None)
    work = run_here(options, threads=1)
    taken = []

    def beaten(groups, watch):
        for group, made in work(groups, watch):
            if not taken and "d2" in group.scope:
                taken.append(group)
                lake.take(2)
            yield group, made

    report = compact_table(lake.table(), options, beaten)
    assert len(taken) == 1 and report.lost == 1
    scopes = [group.folder for group in report.groups]
    assert len(set(scopes)) == len(scopes) >= DAYS - 1
    assert lake.rows() == EXPECTED
    # All in one, which is in the way; then each by itself.
    assert lake.commits() >= DAYS - 1
    lake.check()


def ended_by(lake, error):
    """Compacts until two groups are merged; then an error ends the compaction."""
    options = CompactOptions(sort_by="k", target_file_size=None)
    work = run_here(options, threads=1)

    def run(groups, watch):
        for count, made in enumerate(work(groups, watch)):
            if count == 2:
                raise error
            yield made

    compact_table(lake.table(), options, run)


def test_what_waits_is_committed_when_an_error_ends_the_compaction(lake):
    with pytest.raises(plait.StorageError, match="no space"):
        ended_by(lake, plait.StorageError("no space left"))
    assert lake.commits() == 1 and lake.rows() == EXPECTED
    assert len(compacted(lake).groups) == DAYS - 2
    assert lake.rows() == EXPECTED
    lake.check()


def test_what_waits_never_counts_after_ctrl_c(lake):
    with pytest.raises(KeyboardInterrupt):
        ended_by(lake, KeyboardInterrupt())
    assert lake.commits() == 0 and lake.rows() == EXPECTED
    assert len(compacted(lake).groups) == DAYS
    assert lake.rows() == EXPECTED


def test_a_commit_that_is_made_twice_counts_once(lake):
    table = lake.table()
    first, count = table.commit, []

    def twice(changes):
        count.append(len(changes))
        made = first(changes)
        assert first(changes) == made
        return made

    table.commit = twice
    options = CompactOptions(sort_by="k", target_file_size=None)
    report = compact_table(table, options, run_here(options, threads=1))
    assert count == [DAYS] and (len(report.groups), report.lost) == (DAYS, 0)
    assert lake.commits() == 1 and lake.rows() == EXPECTED


def changed_days(path: str) -> dict[str, bool]:
    """Whether compactions said of the outputs of a day that rows changed."""
    said = {}
    for log in sorted(Path(path, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        if any(action.get("commitInfo", {}).get("operation") == "OPTIMIZE" for action in actions):
            adds = [action["add"] for action in actions if "add" in action]
            said |= {add["partitionValues"]["day"]: add["dataChange"] for add in adds}
    return said


@pytest.mark.parametrize("interval", [0, "1min"])
def test_rows_that_are_dropped_are_committed_apart_from_rows_that_stay(tmp_path, interval):
    """Readers of changes are to be sent the rows of some groups again, and not of others."""
    path = str(tmp_path / "t")
    rows = pa.table({"k": [1, 2], "day": ["same"] * 2})
    keyed = plait.Table(path, sort_by="k", partition_by=["day"], on_duplicate="keep_last")
    for part in range(2):
        keyed.append(rows)
        keyed.append(pa.table({"k": [part, part + 5], "day": ["other"] * 2}))
    plait.table.compact_delta(path, min_commit_interval=interval)
    assert changed_days(path) == {"same": True, "other": False}
    read = (
        deltalake.DeltaTable(path)
        .to_pyarrow_table()
        .sort_by([("day", "ascending"), ("k", "ascending")])
    )
    assert read["k"].to_pylist() == [0, 1, 5, 6, 1, 2]


@pytest.mark.parametrize("interval", [0, "1min"])
def test_outputs_stand_where_their_sources_stood(tmp_path, interval):
    """Of rows with one key the one of the last file counts, whatever is committed together."""
    folder = tmp_path / "t"
    folder.mkdir()
    # Two groups, whose files stand in turns, and a file behind each of them.
    for name, key in (("a", 1), ("b", 100), ("c", 1), ("d", 100), ("e", 1), ("f", 100)):
        pq.write_table(pa.table({"k": [key, key + 1], "v": [name] * 2}), folder / f"{name}.parquet")
    late = {name: folder / f"{name}.parquet" for name in "ef"}
    for file in late.values():
        shutil.move(file, tmp_path / file.name)
    report = plait.compact(folder, sort_by="k", min_commit_interval=interval)
    assert [len(group.sources) for group in report.groups] == [2, 2]
    for file in late.values():
        shutil.move(tmp_path / file.name, file)
    merged = plait.merge(folder, tmp_path / "out", sort_by="k", on_duplicate="keep_last")
    read = pq.read_table(merged.outputs[0].path)
    assert read["v"].to_pylist() == ["e", "e", "f", "f"]
    # Each output takes the place of the last of its own sources.
    manifest = json.loads(max((folder / "_plait").glob("manifest-*.json")).read_text())
    assert sorted(Path(made["place"]).name for made in manifest["files"]) == [
        "c.parquet",
        "d.parquet",
    ]
    assert len({made["group"] for made in manifest["files"]}) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_is_replaced_before_its_merge_is_planned_is_merged_again(
    tmp_path, monkeypatch, threads
):
    """It was an error of the engine: rows did not add up."""
    lake = OfFolder(tmp_path)
    survey, more = Folder.survey, pa.table({"k": [7, 8], "v": ["new", "new"]})

    def late(self, compaction):
        found = survey(self, compaction)
        if found.groups and not late.__dict__.setdefault("is_done", False):
            late.is_done = True
            pq.write_table(more, lake.path / "day=d1" / "0.parquet")
        return found

    monkeypatch.setattr(Folder, "survey", late)
    report = plait.compact(lake.path, sort_by="k", threads=threads)
    assert late.is_done and (len(report.groups), report.lost) == (DAYS, 1)
    gone = Counter((row["k"], row["v"]) for row in rows_of(1, 0).to_pylist())
    assert lake.rows() == EXPECTED - gone + counted(more)


def test_a_file_that_is_overwritten_while_its_group_waits_is_merged_again(tmp_path):
    """Its new rows would have been hidden, until `expire` finds another footer."""
    lake = OfFolder(tmp_path)
    options = CompactOptions(sort_by="k", target_file_size=None)
    work, more = run_here(options, threads=1), pa.table({"k": [7, 8], "v": ["new", "new"]})

    def overwritten(groups, watch):
        for count, made in enumerate(work(groups, watch)):
            yield made
            if count == len(groups) - 1 and len(groups) == DAYS:
                pq.write_table(more, lake.path / "day=d1" / "0.parquet")

    report = compact_table(lake.table(), options, overwritten)
    assert (len(report.groups), report.lost) == (DAYS, 1)
    gone = Counter((row["k"], row["v"]) for row in rows_of(1, 0).to_pylist())
    assert lake.rows() == EXPECTED - gone + counted(more)


def test_files_that_are_links_are_compacted(tmp_path):
    folder = tmp_path / "links"
    folder.mkdir()
    for part in range(2):
        pq.write_table(pa.table({"k": [part, part + 5]}), tmp_path / f"{part}.parquet")
        (folder / f"{part}.parquet").symlink_to(tmp_path / f"{part}.parquet")
    report = plait.compact(folder, sort_by="k")
    assert (len(report.groups), report.lost) == (1, 0)
    assert sorted(pa.table(plait.scan(folder))["k"].to_pylist()) == [0, 1, 5, 6]


def test_an_output_that_another_compaction_made_is_not_replaced(tmp_path):
    """Whoever reads it sees a file that stays the same. Two compactions of a Delta table ended one
    another with `SourceChanged`: the second put the same output in the place of the live one."""
    lake = OfDelta(tmp_path)
    options = CompactOptions(sort_by="k", target_file_size=None)
    first, work = lake.table(), run_here(options, threads=1)
    seen = []

    def beaten(groups, watch):
        # The other one has surveyed the same files, and is quicker.
        for group in groups:
            list(run_here(options, threads=1)([group], watch))
        assert len(compacted(lake).groups) == DAYS
        live = deltalake.DeltaTable(lake.path).file_uris()
        before = {path: Path(path).stat() for path in live}
        yield from work(groups, watch)
        seen.extend((before[path].st_ino, Path(path).stat().st_ino) for path in live)

    report = compact_table(first, options, beaten)
    assert report.lost == 0 and lake.rows() == EXPECTED
    assert len(seen) == DAYS and all(then == now for then, now in seen)


def test_a_file_of_the_same_length_that_is_written_meanwhile_is_merged_again(tmp_path):
    lake = OfFolder(tmp_path)
    file = lake.path / "day=d1" / "0.parquet"
    plain = {"use_dictionary": False, "compression": None, "column_encoding": "PLAIN"}
    pq.write_table(rows_of(1, 0).drop_columns("day"), file, **plain)
    options = CompactOptions(sort_by="k", target_file_size=None)
    work, length = run_here(options, threads=1), file.stat().st_size
    # As many digits as before.
    other = pa.table({"k": [1, 6, 11], "v": ["1 0 1", "1 0 6", "1 0 11"]})

    def overwritten(groups, watch):
        for count, made in enumerate(work(groups, watch)):
            yield made
            if count == len(groups) - 1 and len(groups) == DAYS:
                pq.write_table(other, file, **plain)
                assert file.stat().st_size == length

    report = compact_table(lake.table(), options, overwritten)
    assert (len(report.groups), report.lost) == (DAYS, 1)
    gone = Counter((row["k"], row["v"]) for row in rows_of(1, 0).to_pylist())
    assert lake.rows() == EXPECTED - gone + counted(other)


def test_a_group_whose_output_is_gone_keeps_no_other_from_being_committed(lake):
    options = CompactOptions(sort_by="k", target_file_size=None)
    work = run_here(options, threads=1)

    def removed(groups, watch):
        outputs = []
        for group, made in work(groups, watch):
            yield group, made
            outputs.append(made.outputs[0].path)
        Path(outputs[1]).unlink()

    with pytest.raises((plait.SourceChanged, plait.SourceNotFound)):
        compact_table(lake.table(), options, removed)
    assert lake.commits() == DAYS - 1 and lake.rows() == EXPECTED
    assert len(compacted(lake).groups) == 1 and lake.rows() == EXPECTED
    lake.check()


def test_groups_without_row_counts_do_not_make_others_changed(tmp_path):
    """Where a log says no number of rows, and one of several may go, the rows may have changed."""
    path = str(tmp_path / "t")
    keyed = plait.Table(path, sort_by="k", partition_by=["day"], on_duplicate="keep_last")
    for part in range(2):
        for day in "ab":
            keyed.append(pa.table({"k": [part, part + 5], "day": [day] * 2}))
    for file in Path(path, "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            if "add" in line and line["add"]["partitionValues"] == {"day": "a"}:
                line["add"].pop("stats", None)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plait.table.compact_delta(path)
    assert changed_days(path) == {"a": True, "b": False}


@pytest.mark.parametrize("days", [0, 9])
def test_an_old_output_that_is_kept_is_as_new_as_one_that_is_written(tmp_path, days):
    """What no log names is removed by its age, and this one will be named soon."""
    for part in range(2):
        pq.write_table(pa.table({"k": [part, part + 5]}), tmp_path / f"{part}.parquet")
    plan = plait.plan(sorted(tmp_path.glob("*.parquet")), sort_by="k")
    out = Path(plan.execute(tmp_path / "out").outputs[0].path)
    old = out.stat()
    os.utime(out, ns=(old.st_atime_ns, old.st_mtime_ns - days * 86_400 * 10**9))
    then = out.stat()
    plan.execute(tmp_path / "out")
    now = out.stat()
    assert now.st_ino == then.st_ino
    assert (now.st_mtime_ns == then.st_mtime_ns) == (days == 0)
    assert time.time() - now.st_mtime < 600


def test_a_damaged_output_of_the_same_name_is_replaced(tmp_path):
    plan = None
    for part in range(2):
        pq.write_table(pa.table({"k": [part, part + 5]}), tmp_path / f"{part}.parquet")
    plan = plait.plan(sorted(tmp_path.glob("*.parquet")), sort_by="k")
    out = Path(plan.execute(tmp_path / "out", if_exists="add").outputs[0].path)
    whole = out.read_bytes()
    flipped = bytes([*whole[:20], whole[20] ^ 1, *whole[21:]])
    for broken in (whole[:-9], whole[:-1] + b"x", b"", flipped):
        out.write_bytes(broken)
        plan.execute(tmp_path / "out", if_exists="add")
        assert out.read_bytes() == whole


def test_the_interval_goes_without_out(tmp_path):
    for part in range(2):
        pq.write_table(pa.table({"k": [part, part + 5]}), tmp_path / f"{part}.parquet")
    from plait.table.folder import Into

    options = CompactOptions(sort_by="k", min_commit_interval=5)
    table = Into([str(tmp_path)], str(tmp_path / "out"), "error", None)
    with pytest.raises(plait.InvalidArgument, match="min_commit_interval"):
        compact_table(table, options, run_here(options, threads=1))
