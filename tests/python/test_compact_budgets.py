"""Budgets of one compaction: what comes first, what waits and why, and where runs come to an end."""

from __future__ import annotations

import json
import math
import random
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
import plait.table
from plait.cli import main
from plait.table import budget as budgets
from plait.table.folder import Folder
from plait.table.groups import Group, TableFile
from plait.table.options import CompactOptions
from plait.table.sorting import Seen

pytestmark = pytest.mark.local

OVERLAP = {"sort_by": "k", "policy": "overlap"}


def write(path: Path, first: int, rows: int = 10, step: int = 3) -> int:
    """A file of keys from `first` on; gives its size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = list(range(first, first + rows * step, step))
    pq.write_table(pa.table({"k": keys, "v": [f"{k * 7919 % 1009:x}" for k in keys]}), path)
    return path.stat().st_size


@pytest.fixture
def events(tmp_path):
    """Three regions: two large files, two small ones, five small ones."""
    folder = tmp_path / "events"
    for part in range(2):
        write(folder / f"large-{part}.parquet", part, rows=5_000)
    for part in range(2):
        write(folder / f"pair-{part}.parquet", 100_000 + part)
    for part in range(5):
        write(folder / f"small-{part}.parquet", 200_000 + part)
    return folder


def kinds(groups):
    """How many files of each kind of `events` each group has."""
    return [(Path(group.sources[0]).name.partition("-")[0], len(group.sources)) for group in groups]


def sizes(events, kind):
    return sum(path.stat().st_size for path in events.glob(f"{kind}-*.parquet"))


# -- what comes first --------------------------------------------------------------------------------


def test_the_most_valuable_groups_come_first_and_the_others_wait(events):
    report = plait.compact(events, max_groups=1, **OVERLAP)
    assert kinds(report.groups) == [("small", 5)]
    assert kinds(report.waiting) == [("pair", 2), ("large", 2)]
    assert {group.why for group in report.waiting} == {"max_groups: 1 of this run"}
    first = report.waiting[0]
    assert first.rows == 20 and first.bytes == sizes(events, "pair") and first.depth_max == 2
    assert kinds(plait.compact(events, max_groups=1, **OVERLAP).groups) == [("pair", 2)]
    last = plait.compact(events, max_groups=1, **OVERLAP)
    assert kinds(last.groups) == [("large", 2)] and last.waiting == ()
    assert plait.compact(events, max_groups=1, **OVERLAP).groups == ()


def test_without_a_budget_groups_keep_the_order_of_the_survey(events):
    report = plait.compact(events, **OVERLAP)
    assert kinds(report.groups) == [("large", 2), ("pair", 2), ("small", 5)]
    assert report.waiting == ()


def group(*bytes_, depth=2, deleted=0, rows=100, unsorted=(), expired=False):
    files = tuple(
        TableFile(f"{i}", f"{i}", rows - deleted, size, deleted) for i, size in enumerate(bytes_)
    )
    seen = Seen(unsorted=tuple(unsorted))
    plan = None if expired else lambda: None
    return Group("", "out", files, "k", rows, depth, plan, {}, seen)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(group(10, 10, 10), group(15, 15), id="more files go"),
        pytest.param(group(5, 5), group(10, 10), id="fewer bytes"),
        pytest.param(group(10, 10, depth=2), group(10, 10, depth=1), id="more share a key"),
        pytest.param(group(10, deleted=50), group(10, deleted=10), id="more rows deleted"),
        pytest.param(group(10, 10, unsorted=["0"]), group(10, 10), id="a file is unsorted"),
        pytest.param(group(10, depth=1, expired=True), group(1, 1, 1), id="no row stays"),
    ],
)
def test_value_grows_with_what_readers_save_for_a_byte(better, worse):
    assert budgets.value(better, None) > budgets.value(worse, None)


def test_outputs_that_come_instead_are_no_files_that_go():
    four = group(100, 100, 100, 100, depth=1)
    assert budgets.value(four, None) == 3 / 400
    assert budgets.value(four, 200) == 2 / 400
    assert budgets.value(four, 10) == 0


# -- each limit --------------------------------------------------------------------------------------


def test_bytes_are_filled_with_what_fits(events):
    limit = sizes(events, "small") + sizes(events, "large")
    report = plait.compact(events, max_bytes=limit, **OVERLAP)
    # The large files would have fitted without the pair, which is worth more for a byte.
    assert kinds(report.groups) == [("small", 5), ("pair", 2)]
    (waiting,) = report.waiting
    left = limit - sizes(events, "small") - sizes(events, "pair")
    assert waiting.why == f"max_bytes: {left:,} of {limit:,} bytes are left"


def test_what_does_not_fit_leaves_room_to_less_valuable_groups(events):
    write(events / "pair-2.parquet", 100_002, rows=12_000)
    limit = sizes(events, "small") + sizes(events, "large")
    assert sizes(events, "large") < sizes(events, "pair") < 2 * sizes(events, "large")
    report = plait.compact(events, max_bytes=limit, **OVERLAP)
    assert kinds(report.groups) == [("small", 5), ("large", 2)]
    assert kinds(report.waiting) == [("pair", 3)]


def test_the_first_group_is_merged_even_if_it_is_too_large(events):
    report = plait.compact(events, max_bytes=1, **OVERLAP)
    assert kinds(report.groups) == [("small", 5)]
    assert report.waiting[0].why == "max_bytes: 0 of 1 bytes are left"


def test_no_group_begins_when_the_time_is_over(events, monkeypatch):
    clock = count()
    monkeypatch.setattr(budgets.time, "monotonic", lambda: float(next(clock)))
    report = plait.compact(events, max_seconds="1s", **OVERLAP)
    assert kinds(report.groups) == [("small", 5)]
    assert kinds(report.waiting) == [("pair", 2), ("large", 2)]
    assert {group.why for group in report.waiting} == {"max_seconds: 1 s have passed"}
    assert kinds(plait.compact(events, max_seconds=1e9, **OVERLAP).groups) == [
        ("pair", 2),
        ("large", 2),
    ]


def test_groups_of_a_run_with_limited_time_are_committed_before_the_next_begins(
    events, monkeypatch
):
    monkeypatch.setattr(budgets.time, "monotonic", lambda: 0.0)
    calls = []
    committed = Folder.commit
    begun = plait._plan.Plan.execute

    def execute(self, *args, **kwargs):
        calls.append("merge")
        return begun(self, *args, **kwargs)

    def commit(self, change):
        calls.append("commit")
        return committed(self, change)

    monkeypatch.setattr(plait._plan.Plan, "execute", execute)
    monkeypatch.setattr(Folder, "commit", commit)
    plait.compact(events, max_seconds=1, min_commit_interval=0, **OVERLAP)
    assert calls == ["merge", "commit"] * 3


def test_a_dry_run_says_what_one_run_would_do(events):
    report = plait.compact(events, max_groups=2, yes=False, **OVERLAP)
    assert kinds(report.groups) == [("small", 5), ("pair", 2)]
    assert kinds(report.waiting) == [("large", 2)]
    assert not (events / "_plait").exists()


def test_a_file_that_is_left_alone_costs_nothing(events):
    for path in events.glob("small-*.parquet"):
        rows = pq.read_table(path)
        keys = rows["k"].to_pylist()
        keys[3], keys[4] = keys[4], keys[3]
        pq.write_table(rows.set_column(0, "k", pa.array(keys)), path)
    report = plait.compact(events, max_groups=1, **OVERLAP)
    assert kinds(report.groups) == [("pair", 2)]
    # With fewer files left the group is worth less, and waits behind the pair.
    assert {Path(file.path).name.partition("-")[0] for file in report.skipped} == {"small"}
    assert ("large", 2) in kinds(report.waiting)


def test_a_group_that_others_replaced_first_is_paid_for(events, monkeypatch):
    commit, done = Folder.commit, []

    def rival(self, change):
        if not done:
            done.append(True)
            plait.compact(events, max_groups=1, **OVERLAP)
        return commit(self, change)

    monkeypatch.setattr(Folder, "commit", rival)
    report = plait.compact(events, max_groups=1, **OVERLAP)
    assert report.lost == 1 and report.groups == ()
    assert kinds(report.waiting) == [("pair", 2), ("large", 2)]
    assert "merged nothing" in str(report)


# -- repeated until nothing waits --------------------------------------------------------------------


def files_of(paths):
    """The keys of each file, whatever it is called."""
    return sorted(pq.ParquetFile(path).read()["k"].to_pylist() for path in paths)


def made(kind, home, tables, catalog):
    """A table of one format: how it is compacted, and what finds its live files."""
    if kind == "folder":
        home.mkdir()
        for i, rows in enumerate(tables):
            pq.write_table(rows, home / f"{i:03}.parquet")
        live = lambda: [s.path for s in plait.plan(home, sort_by=[]).sources]  # noqa: E731
        return lambda **options: plait.compact(home, sort_by="k", **options), live
    if kind == "table":
        table = plait.Table(home, sort_by="k")
        for rows in tables:
            table.append(rows)
        return table.compact, lambda: [home / file.name for file in table.files()]
    if kind == "delta":
        deltalake = pytest.importorskip("deltalake")
        for rows in tables:
            deltalake.write_deltalake(str(home), rows, mode="append")
        live = lambda: deltalake.DeltaTable(str(home)).file_uris()  # noqa: E731
        return lambda **o: plait.table.compact_delta(str(home), sort_by="k", **o), live
    name = f"db.{home.name}"
    table = catalog.create_table(name, tables[0].schema)
    for rows in tables:
        table.append(rows)

    def live():
        found = catalog.load_table(name).inspect.files()["file_path"].to_pylist()
        return [path.removeprefix("file://") for path in found]

    return lambda **o: plait.table.compact_iceberg(catalog, name, sort_by="k", **o), live


CASES = [
    *[
        ("folder", policy, limit)
        for policy in ("overlap", "full", "size_tiered")
        for limit in range(3)
    ],
    *[
        (kind, policy, 0)
        for kind in ("table", "delta", "iceberg")
        for policy in ("overlap", "size_tiered")
    ],
]


@pytest.mark.parametrize(("kind", "policy", "limit"), CASES)
def test_runs_with_budgets_end_in_the_table_of_one_run_without(
    kind, policy, limit, tmp_path, request
):
    catalog = request.getfixturevalue("catalog") if kind == "iceberg" else None
    rng = random.Random(f"{kind} {policy}")
    tables = []
    for _ in range(9):
        first, rows = rng.randrange(12) * 1000, rng.choice([1, 30, 300])
        keys = sorted(rng.randrange(first, first + 1400) for _ in range(rows))
        tables.append(pa.table({"k": pa.array(keys, pa.int64())}))
    how = {"policy": policy, "target_file_size": None}
    if policy == "size_tiered":
        how |= {"merge_factor": 2, "merge_factor_max": 3}
    limits = ({"max_groups": 1}, {"max_bytes": 4_000}, {"max_seconds": 0})[limit]
    compact, live = made(kind, tmp_path / "limited", tables, catalog)
    for _ in range(20):
        report = compact(**how, **limits)
        assert report.groups or not report.waiting
        if not report.groups:
            break
    assert not report.groups and compact(**how).groups == ()
    found = files_of(live())
    assert sorted(k for keys in found for k in keys) == sorted(
        k for rows in tables for k in rows["k"].to_pylist()
    )
    if policy == "size_tiered":
        return  # which files are of one level depends on when one looks
    compact, live = made(kind, tmp_path / "whole", tables, catalog)
    assert len(compact(**how).groups) > 1 or policy == "full"
    assert found == files_of(live())


# -- values, doors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        *[("max_groups", value) for value in (0, -1, 1.5, "1", True)],
        *[("max_bytes", value) for value in (0, -1, 1.5, "many", "0.5", True)],
        *[("max_seconds", value) for value in (-1, "soon", math.nan, True, [])],
        *[("min_commit_interval", value) for value in (-1, "soon", math.nan, True, None)],
    ],
)
def test_bad_values_are_refused_before_the_table_is_looked_at(option, wrong, tmp_path):
    for call in (plait.compact, plait.table.compact_delta):
        with pytest.raises(plait.InvalidArgument, match=f"`{option}`"):
            call(tmp_path / "absent", **{option: wrong})
    with pytest.raises(plait.InvalidArgument, match=f"`{option}`"):
        plait.table.compact_iceberg("absent", "db.t", **{option: wrong})
    table = plait.Table(tmp_path / "t", sort_by="k")
    table.append(pa.table({"k": [1]}))
    with pytest.raises(plait.InvalidArgument, match=f"`{option}`"):
        table.compact(**{option: wrong})


def test_the_command_line_has_the_same_limits(events, capsys):
    assert main(["compact", str(events), "--sort-by", "k", "--max-groups", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [len(group["sources"]) for group in report["waiting"]] == [2, 2]
    assert main(["compact", str(events), "--sort-by", "k", "--max-bytes", "1KB"]) == 0
    said = capsys.readouterr().out
    assert "left to another run: 1 group of 2 files" in said and "max_bytes: 0 of 1,000" in said
    assert main(["compact", str(events), "--sort-by", "k", "--max-seconds", "1min"]) == 0
    assert "left to another run" not in capsys.readouterr().out
    assert main(["compact", str(events), "--max-seconds", "soon"]) == 2
    assert "`--max-seconds` is not a time span" in capsys.readouterr().err


def test_merges_with_appends_are_bounded_even_if_that_leaves_the_first_group(tmp_path, monkeypatch):
    from plait import _table_maintain

    monkeypatch.setattr(_table_maintain, "_BYTES_MIN", 1)
    monkeypatch.setattr(_table_maintain, "_TIMES", 0)
    table = plait.Table(tmp_path / "t", sort_by="k", maintain="auto")
    for _ in range(12):
        assert table.append(pa.table({"k": [1, 2]})).compacted is None
    assert len(table.files()) == 12
    strict = budgets.Budget(CompactOptions(max_bytes=1), is_strict=True)
    assert strict.chosen([group(10, 10)]) == ()
