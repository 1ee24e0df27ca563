"""Rivals delete rows of files by vectors while a compaction merges these: nothing is merged again.

The rival is pyroaring and a writer of logs that is not ours; Polars and delta-rs read every version.
`PLAIT_INTERLEAVINGS` says how many seeds are tried.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait._logs.delta import DeltaLog
from plait._plan import Plan
from plait.table.delta import Delta

from .conftest import load

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyroaring")
interleavings = load("interleavings")
vectors = load("vectors")
pytestmark = pytest.mark.local

SEEDS = int(os.environ.get("PLAIT_INTERLEAVINGS", "24"))


class Rival:
    """A writer of the table, and what its rows should be at every version."""

    def __init__(self, uri: str, rng: random.Random) -> None:
        self.uri, self.rng, self.next = uri, rng, 0
        self.rows: set[int] = set()
        self.models: dict[int, set[int]] = {}
        self.gone: dict[str, set[int]] = {}
        self.is_busy, self.left = False, rng.choice([1, 3, 8])

    def version(self) -> int:
        return max(int(path.stem) for path in Path(self.uri, "_delta_log").glob("*.json"))

    def noted(self) -> None:
        self.models[self.version()] = set(self.rows)

    def append(self, size: int) -> None:
        keys = sorted(self.rng.randrange(4000) for _ in range(size))
        ids = list(range(self.next, self.next + size))
        self.next += size
        rows = pa.table({"k": pa.array(keys, pa.int64()), "id": pa.array(ids, pa.int64())})
        deltalake.write_deltalake(self.uri, rows, mode="append")
        self.rows |= set(ids)
        self.noted()

    def ids(self, name: str) -> list[int]:
        return pq.ParquetFile(Path(self.uri, name)).read()["id"].to_pylist()

    def deleted(self, name: str) -> set[int]:
        """Rows of a live file that are deleted: those whose ids are."""
        return {row for row, one in enumerate(self.ids(name)) if one not in self.rows}

    def delete(self) -> None:
        """Deletes more rows of a live file by a vector."""
        names = [name for name in vectors.live(self.uri) if self.ids(name)]
        if not names:
            return
        name = self.rng.choice(sorted(names))
        ids, before = self.ids(name), self.deleted(name)
        left = [row for row in range(len(ids)) if row not in before]
        more = self.rng.sample(left, min(len(left), self.rng.choice([1, 3, 400, 3000])))
        if not more:
            return  # a file is not removed and added with the same vector
        vectors.delete(self.uri, name, before | set(more), kind=self.rng.choice("ui"))
        self.rows -= {ids[row] for row in more}
        self.noted()

    def rewrite(self) -> None:
        """Deletes rows of a live file by writing another in its place."""
        live = vectors.live(self.uri)
        name = self.rng.choice(sorted(live))
        ids = self.ids(name)
        more = set(self.rng.sample(ids, min(len(ids), 5)))
        self.rows -= more
        table = pq.ParquetFile(Path(self.uri, name)).read()
        kept = [one in self.rows for one in table["id"].to_pylist()]
        table = table.filter(pa.array(kept, pa.bool_()))
        made = f"rewritten-{uuid.uuid4()}.parquet"
        pq.write_table(table, Path(self.uri, made))
        add = live[name]
        removed = {k: v for k, v in add.items() if k in ("path", "partitionValues", "size")}
        if add.get("deletionVector"):
            removed["deletionVector"] = add["deletionVector"]
        size = Path(self.uri, made).stat().st_size
        stats = json.dumps({"numRecords": table.num_rows})
        added = {"path": made, "partitionValues": {}, "size": size, "modificationTime": 1}
        actions = [
            {"commitInfo": {"operation": "DELETE"}},
            {"remove": {**removed, "dataChange": True, "deletionTimestamp": 1}},
            {"add": {**added, "dataChange": True, "stats": stats}},
        ]
        path = Path(self.uri, "_delta_log", f"{self.version() + 1:020}.json")
        with path.open("x") as commit:
            commit.write("\n".join(map(json.dumps, actions)))
        self.noted()

    def maybe(self, share: float, *, rewrites: bool) -> None:
        if self.is_busy or self.left == 0 or self.rng.random() >= share:
            return
        self.is_busy, self.left = True, self.left - 1
        try:
            if rewrites and self.rng.random() < 0.3:
                self.rewrite()
            elif self.rng.random() < 0.2:
                self.append(self.rng.choice([1, 200]))
            else:
                self.delete()
        finally:
            self.is_busy = False

    def check(self) -> None:
        """Every version has the rows of the model, for readers that are not ours, and for ours."""
        expected: set[int] = set()
        for version in range(self.version() + 1):
            expected = self.models.get(version, expected)
            found = pl.scan_delta(self.uri, version=version).collect()["id"].to_list()
            assert sorted(found) == sorted(expected), f"version {version}"
        builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(self.uri))
        found = pa.table(builder.execute("select id from t"))["id"].to_pylist()
        assert sorted(found) == sorted(self.rows)
        ours = pa.table(plait.read(self.uri, sort_by="k"))
        assert sorted(ours["id"].to_pylist()) == sorted(self.rows)
        assert ours["k"].to_pylist() == sorted(ours["k"].to_pylist())
        log = "".join(path.read_text() for path in Path(self.uri, "_delta_log").glob("*.json"))
        for path in Path(self.uri).glob("deletion_vector_*.bin"):
            name = uuid.UUID(path.stem.removeprefix("deletion_vector_"))
            assert vectors.z85(name.bytes) in log, f"{path.name} was left"
        for add in vectors.live(self.uri).values():
            if add.get("deletionVector"):
                assert json.loads(add["stats"])["numRecords"] > 0


STEPS = [
    (Delta, "survey"),
    (Plan, "execute"),
    (Delta, "commit"),
    (Delta, "_actions"),
    (DeltaLog, "snapshot"),
    (DeltaLog, "commit"),
]


def table(tmp_path, seed: int) -> Rival:
    rng = random.Random(seed)
    rival = Rival(str(tmp_path / "events"), rng)
    for _ in range(rng.randint(2, 5)):
        rival.append(rng.choice([3, 700, 5000]))
    if rng.random() < 0.5:
        rival.delete()
    return rival


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_vector_deletes_at_every_step_throw_nothing_away(seed, tmp_path, monkeypatch):
    rival = table(tmp_path, seed)
    share = rival.rng.choice([0.1, 0.3, 0.6])
    interleavings.disturb(monkeypatch, STEPS, lambda: rival.maybe(share, rewrites=False))
    size = rival.rng.choice([None, "20KB"])
    report = plait.compact(rival.uri, sort_by="k", policy="full", target_file_size=size)
    monkeypatch.undo()
    assert report.lost == 0
    rival.check()
    assert not list(Path(rival.uri).glob(".*.rowmap"))
    plait.compact(rival.uri, sort_by="k", policy="full")
    rival.check()


@pytest.mark.parametrize("seed", range(100, 100 + SEEDS // 2))
def test_rewrites_lose_only_their_groups(seed, tmp_path, monkeypatch):
    rival = table(tmp_path, seed)
    interleavings.disturb(monkeypatch, STEPS, lambda: rival.maybe(0.15, rewrites=True))
    plait.compact(rival.uri, sort_by="k", policy="full")
    monkeypatch.undo()
    rival.check()


def test_where_rows_are_dropped_the_next_newest_stays_if_the_newest_is_deleted(
    tmp_path, monkeypatch
):
    lost = 0
    for seed in range(6):
        rng = random.Random(seed)
        uri = str(tmp_path / f"t{seed}")
        merged = plait.Table(uri, sort_by="k", on_duplicate="keep_last")
        for at in range(3):
            merged.append(
                pa.table({"k": list(range(300)), "id": [at * 1000 + i for i in range(300)]})
            )
        rival = Rival(uri, rng)
        rival.rows = {at * 1000 + i for at in range(3) for i in range(300)}
        commit, done = Delta.commit, []

        def late(table, change, commit=commit, rival=rival, done=done):
            if not done:
                done.append(rival.delete())
            return commit(table, change)

        monkeypatch.setattr(Delta, "commit", late)
        report = plait.compact(uri, policy="full")
        monkeypatch.undo()
        lost += report.lost
        newest = {row % 1000: row for row in sorted(rival.rows)}
        found = pl.scan_delta(uri).collect()["id"].to_list()
        assert sorted(found) == sorted(newest.values())
    # Rows that were dropped anyway are no reason to merge again.
    assert 0 < lost < 6


def test_vectors_are_inline_if_they_are_small(tmp_path, monkeypatch):
    kinds = {}
    for rows in (2, 1000):
        rival = Rival(str(tmp_path / str(rows)), random.Random(1))
        rival.append(4000)
        rival.append(4000)
        commit = Delta.commit

        def late(table, change, commit=commit, rival=rival, rows=rows):
            if rows in kinds:
                return commit(table, change)  # a file of which many rows are deleted is rewritten
            name = min(vectors.live(rival.uri))
            vectors.delete(rival.uri, name, range(0, 4000, 4000 // rows))
            rival.rows -= set(rival.ids(name)[:: 4000 // rows])
            rival.noted()
            outcome = commit(table, change)
            (add,) = vectors.live(rival.uri).values()
            kinds[rows] = add["deletionVector"]["storageType"]
            assert json.loads(add["stats"])["tightBounds"] is False
            return outcome

        monkeypatch.setattr(Delta, "commit", late)
        report = plait.compact(rival.uri, sort_by="k", policy="full")
        monkeypatch.undo()
        assert report.lost == 0
        rival.check()
    assert kinds == {2: "i", 1000: "u"}


def test_rows_that_are_deleted_no_more_are_a_conflict(tmp_path, monkeypatch):
    rival = Rival(str(tmp_path / "events"), random.Random(1))
    rival.append(50)
    rival.append(50)
    name = min(vectors.live(rival.uri))
    vectors.delete(rival.uri, name, [1, 2, 3])
    commit, done = Delta.commit, []

    def restored(table, change):
        if not done:
            done.append(True)
            vectors.delete(rival.uri, name, [2])
        return commit(table, change)

    monkeypatch.setattr(Delta, "commit", restored)
    report = plait.compact(rival.uri, sort_by="k", policy="full")
    assert report.lost == 1
    rival.rows -= {rival.ids(name)[2]}
    found = pl.scan_delta(rival.uri).collect()["id"].to_list()
    assert sorted(found) == sorted(rival.rows)


def test_kept_maps_trace_and_go_with_their_outputs(tmp_path):
    rival = Rival(str(tmp_path / "events"), random.Random(1))
    rival.append(50)
    rival.append(50)
    (group,) = plait.compact(rival.uri, sort_by="k", policy="full", row_map=True).groups
    (output,) = group.outputs
    (one,) = plait.trace(output, 3).found
    row = rival.ids(Path(one.source).name)[one.source_row]
    assert row == rival.ids(Path(output).name)[3]
    rival.append(50)
    plait.compact(rival.uri, sort_by="k", policy="full")
    long_ago = 1_000_000_000
    for path in Path(rival.uri).iterdir():
        os.utime(path, (long_ago, long_ago))
    stray = Path(rival.uri, ".part-none.parquet.rowmap")
    stray.write_bytes(b"of a writer that died")
    log = DeltaLog(rival.uri, None)
    log.clean(0, dry_run=False)
    assert not Path(output).exists() and list(Path(rival.uri).glob(".*.rowmap")) == [stray]
    os.utime(stray, (long_ago, long_ago))
    log.clean(0, dry_run=False)
    assert not stray.exists()
