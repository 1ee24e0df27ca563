"""Folders of inserts, updates and deletes: whatever is compacted when, what is read is a dictionary."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main

pytestmark = pytest.mark.local  # tests of folders, of examples, of what one call tells

RUNS = 12
SEEDS = range(120 if os.environ.get("CI") else 24)
SCHEMA = pa.schema(
    [("k", pa.int64()), ("v", pa.int64()), ("version", pa.int64()), ("dead", pa.bool_())]
)


class History:
    """Files that come one after the other, and the dictionary that they make."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.mode = ("last", "version", "late versions", "first")[seed % 4]
        self.deletes = self.mode != "late versions"
        self.alive: dict[int, tuple[int, int, bool]] = {}
        self.runs = self.written = 0
        folder.mkdir()

    def options(self) -> dict:
        """How rows with one key are merged."""
        how: dict = {"on_duplicate": "keep_first" if self.mode == "first" else "keep_last"}
        if "version" in self.mode:
            how["version_by"] = "version"
        if self.deletes:
            how["delete_where"] = "dead"
        return how

    def write(self) -> None:
        """One more file: keys of a stretch, some of them twice, some of them deleted."""
        rng, rows = self.rng, []
        start, width = rng.randrange(0, 60), rng.choice([3, 15, 60])
        for _ in range(rng.choice([0, 1, 8, 30])):
            self.written += 1
            version = self.written
            if self.mode == "late versions":
                version += rng.randrange(0, 400)
            dead = self.deletes and rng.random() < 0.3
            rows.append((start + rng.randrange(width), self.written, version, dead))
        rows.sort(key=lambda row: row[0])  # stable: a later row is younger
        for key, value, version, dead in rows:
            known = self.alive.get(key)
            is_older = "version" in self.mode and known is not None and known[1] > version
            if not (is_older or (self.mode == "first" and known is not None)):
                self.alive[key] = (value, version, dead)
        columns = list(zip(*rows, strict=True)) or [[], [], [], []]
        table = pa.table(list(map(list, columns)), SCHEMA)
        if rng.random() < 0.1:  # of another schema: never merged with the others
            table = table.append_column("more", pa.nulls(len(rows), pa.string()))
        pq.write_table(table, self.folder / f"{self.runs:03}.parquet", row_group_size=7)
        self.runs += 1

    def compact(self, **options) -> plait.CompactReport:
        """Compacts by whatever policy, unless one is given."""
        rng = self.rng
        how = {
            "policy": rng.choice(["full", "overlap", "size_tiered", "size_tiered"]),
            "max_depth": rng.choice([1, 2]),
            "merge_factor": rng.choice([2, 3]),
            "merge_factor_max": 3,
            "finalize": rng.random() < 0.2,
            "target_file_size": rng.choice([None, None, "1kB"]),
        }
        how = {**how, "sort_by": "k", "yes": True, **options}
        return plait.compact(self.folder, **how, **self.options())

    def read(self) -> dict[int, int]:
        """What a reader sees, who merges what is left."""
        out = self.folder.parent / f"read-{self.runs}-{self.rng.random()}"
        plait.merge(self.folder, out, sort_by="k", **self.options())
        table = pa.concat_tables(
            [pq.read_table(p, columns=["k", "v"]) for p in sorted(out.iterdir())]
        )
        assert len(set(table["k"].to_pylist())) == table.num_rows
        return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))

    def expected(self) -> dict[int, int]:
        return {key: value for key, (value, _, dead) in self.alive.items() if not dead}


@pytest.mark.parametrize("seed", SEEDS)
def test_compacted_histories_are_dictionaries(tmp_path, seed):
    history = History(tmp_path / "table", seed)
    for _ in range(RUNS):
        history.write()
        if history.rng.random() < 0.5:
            history.compact()
        if history.rng.random() < 0.2:
            plait.expire(history.folder, retention=0, yes=True)
    assert history.read() == history.expected()
    history.compact()
    assert history.read() == history.expected()
    history.compact(policy="full")
    assert history.read() == history.expected()


def write(path: Path, keys: list[int], dead: list[bool] | None = None) -> None:
    dead = dead or [False] * len(keys)
    rows = [keys, [int(path.stem[-1])] * len(keys), [0] * len(keys), dead]
    pq.write_table(pa.table(rows, SCHEMA), path)


def stored(folder: Path) -> list[tuple[int, bool]]:
    table = pa.table(plait.scan(folder))
    return sorted(zip(table["k"].to_pylist(), table["dead"].to_pylist(), strict=True))


HOW = {"sort_by": "k", "on_duplicate": "keep_last", "delete_where": "dead", "yes": True}


def test_rows_that_delete_go_with_the_oldest_files_of_their_keys(tmp_path):
    write(tmp_path / "0.parquet", [1, 2])
    write(tmp_path / "1.parquet", [50])
    write(tmp_path / "2.parquet", [1, 51], [True, False])
    write(tmp_path / "3.parquet", [2, 52], [False, True])
    tiered = {**HOW, "policy": "size_tiered", "merge_factor": 2, "merge_factor_max": 2}
    # Two and two: the second pair deletes keys of the first, whose turn is next.
    first = plait.compact(tmp_path, **tiered, mature_level=1)
    assert [len(group.sources) for group in first.groups] == [2, 2]
    assert stored(tmp_path) == [(1, False), (1, True), (2, False), (2, False), (50, False),
                                (51, False), (52, True)]  # fmt: skip
    second = plait.compact(tmp_path, **tiered, mature_level=2)
    assert [dict(group.rows_dropped) for group in second.groups] == [{"duplicate": 2, "deleted": 2}]
    assert stored(tmp_path) == [(2, False), (50, False), (51, False)]
    assert "dropped 2 rows: deleted" in str(second)


def test_files_between_others_are_merged_with_them_or_keep_them_apart(tmp_path):
    write(tmp_path / "0.parquet", [1])
    write(tmp_path / "1.parquet", [1, 9])
    write(tmp_path / "2.parquet", [2])
    write(tmp_path / "3.parquet", [1])
    tiered = {**HOW, "policy": "size_tiered", "merge_factor": 2}
    big = plait.compact(tmp_path, **tiered, merge_factor_max=2, mature_size=1)
    assert big.groups == ()
    size = max((tmp_path / f"{i}.parquet").stat().st_size for i in (0, 2, 3)) + 1
    large = pa.table([[1] * 500, [1] * 500, list(range(500)), [False] * 500], SCHEMA)
    pq.write_table(large, tmp_path / "1.parquet")
    assert (tmp_path / "1.parquet").stat().st_size > size
    how = {**tiered, "merge_factor_max": 4, "mature_size": size}
    apart = plait.compact(tmp_path, **how)
    names = [[Path(path).name for path in group.sources] for group in apart.groups]
    assert names == [["2.parquet", "3.parquet"]], "0 is older than 1, and 1 is mature"
    both = plait.compact(tmp_path, **{**HOW, "yes": False}, policy="overlap")
    assert [len(group.sources) for group in both.groups] == [3]


def test_expired_rows_are_dropped_and_counted(tmp_path):
    for part in range(3):
        write(tmp_path / f"{part}.parquet", [part, 10 + part])
    arguments = ["compact", str(tmp_path), "--policy", "full", "--sort-by", "k", "--yes"]
    assert main([*arguments, "--drop-where", "k < 10"]) == 0
    assert [key for key, _ in stored(tmp_path)] == [10, 11, 12]


def test_options_that_are_invalid_are_refused_and_nothing_is_lost(tmp_path):
    for part in range(2):
        write(tmp_path / f"{part}.parquet", [1])
    with pytest.raises(plait.InvalidArgument, match="on_duplicate"):
        plait.compact(tmp_path, on_duplicate="newest")
    for wrong in (
        {"version_by": "version"},
        {"delete_where": "dead"},
        {"on_duplicate": "keep_last", "delete_where": "v"},
        {"on_duplicate": "keep_last", "version_by": "none"},
        {"drop_where": "v <"},
    ):
        with pytest.raises((plait.InvalidArgument, plait.UnknownColumn)):
            plait.compact(tmp_path, policy="full", sort_by="k", yes=True, **wrong)
    with pytest.raises(plait.DuplicateKey):
        plait.compact(tmp_path, policy="full", sort_by="k", on_duplicate="error", yes=True)
    assert len(stored(tmp_path)) == 2
