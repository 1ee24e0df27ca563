"""Groups of a compaction that are merged at the same time: outputs, errors, interrupts, memory."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
import plait.table.run
from plait._plan import Plan
from plait.table import folder as folders
from plait.table import here

pytestmark = pytest.mark.local

DAYS = 9


def write(folder: Path, days: int = DAYS, rows: int = 500) -> Path:
    """Partitions of three files that overlap; some of the days have many more rows."""
    rng = random.Random(5)
    for day in range(days):
        count = rows * (20 if day % 4 == 1 else 1)
        for part in range(3):
            keys = sorted(rng.randrange(1 << 40) for _ in range(count))
            texts = [f"{day} {part} {key % 97}" for key in keys]
            path = folder / f"day={day}" / f"{part}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"k": keys, "v": texts}), path)
    return folder


def live(folder: Path) -> list[str]:
    return sorted(source.path for source in plait.plan(folder, sort_by=[]).sources)


def rows(folder: Path) -> Counter[tuple[int, str]]:
    """All rows that count, as DuckDB reads them."""
    named = ", ".join(f"'{path}'" for path in live(folder))
    return Counter(duckdb.sql(f"select k, v from read_parquet([{named}])").fetchall())


def digests(folder: Path) -> list[tuple[str, str]]:
    """Partition and bytes of each file that counts; names have the id of a run."""
    return [
        (Path(path).parent.name, hashlib.sha256(Path(path).read_bytes()).hexdigest())
        for path in live(folder)
    ]


def threads_of_groups() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("plait-group")]


@pytest.fixture
def at_once(monkeypatch):
    """The most merges that ran at the same time, and the threads and memory of each."""
    lock, running = threading.Lock(), 0
    seen: dict[str, list[int]] = {"running": [], "threads": [], "bytes": []}
    real = Plan.execute

    def execute(self, *arguments, **options):
        nonlocal running
        with lock:
            running += 1
            seen["running"].append(running)
            seen["threads"].append(options["threads"])
            seen["bytes"].append(self._share_bytes)
        try:
            time.sleep(0.02)
            return real(self, *arguments, **options)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(Plan, "execute", execute)
    return seen


@pytest.mark.parametrize("threads", [2, 3, 8, 64])
@pytest.mark.parametrize("options", [{}, {"verify": "content"}, {"target_file_size": "100kB"}])
def test_outputs_are_those_of_merges_one_by_one(tmp_path, at_once, threads, options):
    folders = [write(tmp_path / name) for name in ("one", "many")]
    before = rows(folders[0])
    reports = [
        plait.compact(folder, sort_by="k", threads=count, **options)
        for folder, count in zip(folders, (1, threads), strict=True)
    ]
    assert digests(folders[0]) == digests(folders[1])
    assert rows(folders[1]) == before
    described = [[(Path(g.folder).name, g.rows) for g in report.groups] for report in reports]
    assert described[0] == described[1] and len(described[0]) == DAYS
    alone, shared = at_once["running"][:DAYS], at_once["running"][DAYS:]
    assert max(alone) == 1 and at_once["bytes"][:DAYS] == [None] * DAYS
    assert 2 <= max(shared) <= threads
    each = set(at_once["bytes"][DAYS:])
    assert len(each) == 1 and max(shared) * each.pop() < 512_000_000
    assert max(shared) * max(at_once["threads"][DAYS:]) <= threads


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1},
        {"memory_limit": "64MB"},
        {"on_duplicate": "keep_last"},
        {"max_seconds": 60},
        {"huge": True},
    ],
)
def test_merges_that_need_the_whole_limit_run_one_by_one(tmp_path, at_once, options):
    folder = write(tmp_path / "events", days=3)
    options = dict(options)
    if options.pop("huge", False):
        # Small on disk: 160 MB of each day once they are unpacked.
        for path in folder.rglob("*.parquet"):
            table = pa.table({"k": range(2000), "v": ["x" * 30_000] * 2000})
            pq.write_table(table, path, use_dictionary=False, compression="zstd")
    plait.compact(folder, sort_by="k", **{"threads": 4, **options})
    assert max(at_once["running"]) == 1 and set(at_once["bytes"]) == {None}
    assert len(live(folder)) == 3


def test_a_large_group_runs_alone_between_small_ones(tmp_path, at_once, monkeypatch):
    monkeypatch.setattr("plait.table.groups.Group.bytes", property(size))
    folder = write(tmp_path / "events")
    plait.compact(folder, sort_by="k", threads=2)
    shares = at_once["bytes"]
    assert shares.count(None) == 2 and max(at_once["running"]) == 2
    alone = [n for n, share in zip(at_once["running"], shares, strict=True) if share is None]
    assert alone == [1, 1] and len(live(folder)) == DAYS


def size(group):
    """Says of two groups that they are large."""
    is_large = group.files[0].path.split("/")[-2] in ("day=3", "day=4")
    return 33 << 20 if is_large else sum(file.bytes for file in group.files)


def test_a_damaged_file_stays_and_others_are_merged(tmp_path):
    reports = []
    for name, threads in (("one", 1), ("many", 2)):
        folder = write(tmp_path / name)
        path = folder / "day=1" / "1.parquet"
        data = bytearray(path.read_bytes())
        chunk = pq.read_metadata(path).row_group(0).column(1)
        start = chunk.data_page_offset
        data[start : start + 40] = bytes(40)
        path.write_bytes(data)
        report = plait.compact(folder, sort_by="k", threads=threads)
        (skipped,) = report.skipped
        assert skipped.path.endswith("day=1/1.parquet")
        reports.append((skipped.why.replace(name, ""), sorted(g.rows for g in report.groups)))
    assert reports[0] == reports[1] and len(reports[0][1]) == DAYS


def test_a_footer_that_lies_has_its_group_sorted(tmp_path, at_once):
    folder = write(tmp_path / "events")
    keys, run = [1, 1 << 38, 1 << 39, 1 << 40], tmp_path / "run.parquet"
    pq.write_table(pa.table({"k": keys, "v": list("abcd")}), tmp_path / "plain.parquet")
    plait.merge(tmp_path / "plain.parquet", run, sort_by="k")
    # The rows of another table under the footer entries of a sorted file.
    entries = {k: v for k, v in pq.read_metadata(run).metadata.items() if k.startswith(b"plait.")}
    lying = pa.table({"k": [keys[i] for i in (0, 2, 1, 3)], "v": list("wxyz")})
    lying, order = lying.replace_schema_metadata(entries), [pq.SortingColumn(0)]
    pq.write_table(lying, folder / "day=5" / "lying.parquet", sorting_columns=order)
    before = rows(folder)
    report = plait.compact(folder, sort_by="k", policy="full", unsorted="sort", threads=2)
    assert len(report.groups) == DAYS and rows(folder) == before
    assert max(at_once["running"]) == 2
    assert len(at_once["running"]) == DAYS and None not in at_once["bytes"]
    for path in live(folder):
        keys = pq.read_table(path)["k"].to_pylist()
        assert keys == sorted(keys)


def test_what_others_made_counts_when_one_fails(tmp_path, monkeypatch):
    folder = write(tmp_path / "events")
    before, real = rows(folder), here._Here._executed
    begun, failed = [], threading.Event()

    def executed(self, group, *arguments):
        begun.append(group.scope)
        if group.scope == "day=2":
            failed.set()
            raise plait.StorageError("the disk is on fire")
        if group.scope == "day=3":
            assert failed.wait(30)
            time.sleep(0.5)
        return real(self, group, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(here._Here, "_executed", executed)
        with pytest.raises(plait.StorageError, match="on fire"):
            plait.compact(folder, sort_by="k", threads=2)
    assert threads_of_groups() == [] and rows(folder) == before
    # What ran when day 2 failed counts; what waited for a thread does not begin.
    merged = {Path(path).parent.name for path in live(folder) if "part-" in path}
    assert {"day=0", "day=1", "day=3"} <= merged
    assert set(begun) == merged | {"day=2"} and "day=8" not in begun
    assert plait.compact(folder, sort_by="k").groups and len(live(folder)) == DAYS
    assert rows(folder) == before


@pytest.fixture
def stopped(monkeypatch):
    """Errors that ended merges which ran."""
    real, errors = Plan.execute, []

    def execute(self, *arguments, **options):
        try:
            return real(self, *arguments, **options)
        except BaseException as error:
            errors.append(type(error).__name__)
            raise

    monkeypatch.setattr(Plan, "execute", execute)
    return errors


@pytest.mark.parametrize("error", [KeyboardInterrupt, LookupError])
def test_what_progress_raises_stops_merges_that_run(tmp_path, stopped, error):
    folder = write(tmp_path / "events", rows=3000)
    before = rows(folder)

    def stop(now):
        if now.rows_written:
            raise error

    with pytest.raises(error):
        plait.compact(folder, sort_by="k", threads=2, progress=stop)
    assert threads_of_groups() == [] and rows(folder) == before
    assert set(stopped) == {"_Stopped"} and len(live(folder)) > DAYS


def test_a_commit_that_fails_stops_merges_that_run(tmp_path, monkeypatch, stopped):
    folder = write(tmp_path / "events", rows=3000)
    before = rows(folder)

    def committed(*_):
        raise plait.StorageError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(plait.table.commits, "commit", committed)
        with pytest.raises(plait.StorageError, match="no space"):
            plait.compact(folder, sort_by="k", threads=2, min_commit_interval=0)
    assert threads_of_groups() == [] and rows(folder) == before
    # Day 0 was made; day 1, which has twenty times the rows, was not.
    assert set(stopped) == {"_Stopped"} and len(stopped) <= 2
    plait.compact(folder, sort_by="k")
    assert rows(folder) == before and len(live(folder)) == DAYS


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
import plait

def interrupt():
    while not list(Path(sys.argv[1]).glob("_plait/manifest-*")):
        time.sleep(0.001)
    time.sleep(float(sys.argv[2]))
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    plait.compact(sys.argv[1], sort_by="k", threads=2)
except KeyboardInterrupt:
    print([t.name for t in threading.enumerate() if t.name.startswith("plait-group")])
else:
    print("done")
"""


@pytest.mark.parametrize("after_s", [0.0, 0.05])
def test_an_interrupt_stops_merges_that_run(tmp_path, after_s):
    folder = write(tmp_path / "events", rows=3000)
    before = rows(folder)
    command = [sys.executable, "-c", INTERRUPTED, str(folder), str(after_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.strip() == "[]", done.stdout + done.stderr
    assert rows(folder) == before
    plait.compact(folder, sort_by="k")
    assert rows(folder) == before and len(live(folder)) == DAYS


def removed(folder):
    (folder / "day=4" / "1.parquet").unlink()


def damaged(folder):
    path = folder / "day=4" / "1.parquet"
    data = bytearray(path.read_bytes())
    data[4:60] = bytes(56)
    path.write_bytes(data)


def unsorted(folder):
    table = pa.table({"k": [9, 5, 1], "v": ["a", "b", "c"]})
    pq.write_table(table, folder / "day=4" / "1.parquet")


def compacted(folder):
    plait.compact(folder, sort_by="k", where={"day": ["4"]})
    plait.expire(folder, retention=0, yes=True)


@pytest.mark.parametrize("event", [removed, damaged, unsorted, compacted])
def test_what_happens_to_one_group_before_it_is_planned_ends_no_other(tmp_path, monkeypatch, event):
    reports = []
    real = folders.Folder.survey
    for threads in (1, 2):
        folder = write(tmp_path / str(threads))
        surveys = []

        def survey(self, compaction, surveys=surveys, folder=folder):
            found = real(self, compaction)
            surveys.append(found)
            if len(surveys) == 1:
                with monkeypatch.context() as patch:
                    patch.setattr(folders.Folder, "survey", real)
                    event(folder)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(folders.Folder, "survey", survey)
            report = plait.compact(folder, sort_by="k", threads=threads)
        skipped = [Path(file.path).name for file in report.skipped]
        reports.append((sorted(g.folder for g in report.groups), report.lost, skipped))
        assert sum("part-" in path for path in live(folder)) == DAYS
    assert reports[0] == reports[1]


def test_a_number_of_threads_may_be_that_of_numpy(tmp_path):
    folder = write(tmp_path / "events", days=3)
    assert len(plait.compact(folder, sort_by="k", threads=np.int64(2)).groups) == 3


def test_a_merge_without_a_thread_runs_on_that_of_the_caller(tmp_path, monkeypatch):
    def submit(*_):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    folder = write(tmp_path / "events", days=3)
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.submit", submit)
    assert len(plait.compact(folder, sort_by="k", threads=2).groups) == 3


def test_objects_are_merged_next_to_others(tmp_path, at_once, s3_server):
    options = s3_server.options()
    made = write(tmp_path / "events", days=4)
    client = s3_server.client()
    client.create_bucket(Bucket="groups")
    for path in made.rglob("*.parquet"):
        key = str(path.relative_to(tmp_path))
        client.put_object(Bucket="groups", Key=key, Body=path.read_bytes())
    report = plait.compact("s3://groups/events", sort_by="k", threads=2, storage_options=options)
    assert len(report.groups) == 4 and max(at_once["running"]) == 2
    read = pa.table(plait.read("s3://groups/events", sort_by="k", storage_options=options))
    found = Counter(zip(read["k"].to_pylist(), read["v"].to_pylist(), strict=True))
    assert found == rows(made)


def test_progress_is_told_on_the_thread_of_the_caller(tmp_path):
    threads = set()
    plait.compact(
        write(tmp_path / "events"),
        sort_by="k",
        threads=2,
        progress=lambda _: threads.add(threading.current_thread().name),
    )
    assert threads == {threading.current_thread().name}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_delta_table_is_compacted_by_partitions(tmp_path, threads, at_once):
    deltalake = pytest.importorskip("deltalake")
    uri = str(tmp_path / "table")
    for part in range(3):
        keys = list(range(part, 900, 3))
        table = pa.table({"k": keys, "day": [key // 150 for key in keys]})
        deltalake.write_deltalake(uri, table, mode="append", partition_by=["day"])
    report = plait.compact(uri, sort_by="k", threads=threads)
    assert len(report.groups) == 6 and max(at_once["running"]) == threads
    found = deltalake.DeltaTable(uri).to_pyarrow_table()
    assert sorted(found["k"].to_pylist()) == list(range(900))
    assert len(deltalake.DeltaTable(uri).file_uris()) == 6
