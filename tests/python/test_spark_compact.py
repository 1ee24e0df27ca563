"""Compactions on Spark: rows exactly once, whichever of driver, executors and workers die."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import spark as ps
from plait.spark import prefetch
from plait.spark.plan import share_of

from .conftest import clean_environment, load

pytestmark = [
    pytest.mark.spark,
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
LONG = bool(os.environ.get("PLAIT_LONG"))
KILLS = 20 if LONG else 6
HERE = Path(__file__).parent


def write(folder: Path, count: int, rows: int, columns=None) -> Path:
    """Files whose keys all overlap."""
    folder.mkdir(parents=True)
    for i in range(count):
        rng = np.random.default_rng(i)
        table = {
            "k": np.sort(rng.integers(0, 10**6, rows)),
            "v": rng.random(rows),
            "from": [f"file {i} of {count}"] * rows,
        }
        pq.write_table(pa.table({**table, **(columns or {})}), folder / f"{i:03}.parquet")
    return folder


def same_rows(counted, sources) -> bool:
    found = plait.verify(counted, against=sources, sort_by="k", check=False)
    return found.against.equal


def counting(folder: Path) -> list[str]:
    return [source.path for source in plait.plan(folder, sort_by="k").sources]


# -- in one process --------------------------------------------------------------------------------


def test_a_folder_is_compacted_in_place_and_a_second_run_does_nothing(spark, tmp_path):
    folder = write(tmp_path / "events" / "day=1", 12, 5_000).parent
    sources = write(tmp_path / "sources", 12, 5_000)
    write(folder / "day=2", 3, 100)
    dry = ps.compact(spark, folder, sort_by="k", target_file_size="100kB", yes=False)
    assert dry.dry_run and len(dry.groups) == 2 and not (folder / "_plait").exists()
    report = ps.compact(
        spark, folder, sort_by="k", target_file_size="100kB", where={"day": "1"}, verify="content"
    )
    (group,) = report.groups
    assert group.rows == 60_000 and len(group.outputs) > 5
    # Sorted, disjoint, and the same rows.
    assert plait.verify(group.outputs, against=sources, sort_by="k").ok
    assert sorted(counting(folder / "day=1")) == sorted(group.outputs)
    again = ps.compact(spark, folder, sort_by="k", where={"day": "1"})
    assert again.groups == () and "nothing to merge" in str(again)
    assert [g.folder for g in ps.compact(spark, folder, sort_by="k").groups] == ["day=2"]
    # Spark reads what counts.
    total = spark.read.parquet(*counting(folder)).selectExpr("count(*)", "sum(k)").collect()[0]
    keys = [pq.read_table(p, columns=["k"])["k"].to_numpy() for p in sources.glob("*.parquet")]
    more = [pq.read_table(p)["k"].to_numpy() for p in (folder / "day=2").glob("*.parquet")]
    assert tuple(total) == (60_300, int(np.concatenate(keys + more).sum()))


def test_spark_makes_the_files_that_one_machine_makes(spark, tmp_path):
    for name in ("here", "there"):
        write(tmp_path / name, 6, 3_000)
    options = {"policy": "overlap", "sort_by": "k", "target_file_size": "50kB"}
    here = plait.compact(tmp_path / "here", yes=True, **options)
    there = ps.compact(spark, tmp_path / "there", **options)

    def contents(report):
        return [Path(path).read_bytes() for path in report.groups[0].outputs]

    assert contents(here) == contents(there) and len(contents(here)) > 2


def test_sources_are_merged_into_another_folder_once(spark, tmp_path, monkeypatch):
    sources, out = write(tmp_path / "sources", 5, 2_000), tmp_path / "out"
    options = {"sort_by": "k", "target_file_size": "50kB"}
    with monkeypatch.context() as patched:
        # The driver does not make the text of a plan, which may have a million sources.
        patched.setattr(plait.Plan, "to_json", None)
        patched.setattr(plait.Plan, "sources", None)
        report = ps.compact(spark, str(sources / "*.parquet"), out, **options)
    assert len(report.groups[0].outputs) > 1
    assert same_rows(counting(out), sources) and same_rows(report.groups[0].outputs, sources)
    again = ps.compact(spark, str(sources / "*.parquet"), out, **options)
    assert again.groups == () and same_rows(counting(out), sources)
    other = write(tmp_path / "other", 2, 10)
    with pytest.raises(plait.OutputExists, match="files of another merge"):
        ps.compact(spark, other, out, **options)
    ps.compact(spark, other, out, if_exists="add", **options)
    assert sum(source.rows for source in plait.plan(out, sort_by="k").sources) == 10_020


def test_two_jobs_at_once_count_rows_once(spark, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    sources, out = write(tmp_path / "sources", 5, 2_000), tmp_path / "out"
    folder = write(tmp_path / "folder", 5, 2_000)

    def both(_):
        options = {"sort_by": "k", "target_file_size": "50kB"}
        ps.compact(spark, sources, out, **options)
        ps.compact(spark, folder, **options)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(both, range(3)))
    assert same_rows(counting(out), sources) and same_rows(counting(folder), sources)


def test_delta_and_iceberg_tables_are_compacted(spark, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    sources = write(tmp_path / "sources", 4, 2_000)
    tables = [pq.read_table(path) for path in sorted(sources.glob("*.parquet"))]
    (tmp_path / "lake").mkdir()
    uri = f"sqlite:///{tmp_path}/lake.db"
    catalog = SqlCatalog("lake", uri=uri, warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("db")
    iceberg = catalog.create_table("db.events", tables[0].schema)
    delta = str(tmp_path / "delta")
    for table in tables:
        iceberg.append(table)
        deltalake.write_deltalake(delta, table, mode="append")
    options = {"sort_by": "k", "target_file_size": "40kB", "verify": "content"}
    for _ in range(2):
        in_delta = ps.compact_delta(spark, delta, **options)
        in_iceberg = ps.compact_iceberg(spark, catalog, "db.events", **options)
        catalog.close()
        files = deltalake.DeltaTable(delta).file_uris()
        assert len(files) > 1 and plait.verify(sorted(files), against=sources, sort_by="k").ok
        paths = [
            task.file.file_path for task in catalog.load_table("db.events").scan().plan_files()
        ]
        paths = sorted(path.removeprefix("file://") for path in paths)
        assert len(paths) > 1 and plait.verify(paths, against=sources, sort_by="k").ok
    catalog.close()
    # The second run had nothing to do.
    assert in_delta.groups == in_iceberg.groups == ()
    assert not list(tmp_path.rglob(".*.rowmap"))


def test_deletes_that_come_while_executors_merge_are_deletes_of_what_they_made(
    spark, catalog, monkeypatch
):
    from plait.table.iceberg import Iceberg

    deletes = load("iceberg_deletes")
    table = catalog.create_table("db.events", pa.schema([("k", pa.int64())]))
    for part in range(2):
        table.append(pa.table({"k": list(range(part, 1000, 2))}))
    commit, done = Iceberg.commit, []

    def late(self, change):
        if not done:
            gone = dict.fromkeys(deletes.data_files(table), (1, 2))
            done.append(deletes.delete_rows(catalog.load_table("db.events"), gone))
        return commit(self, change)

    monkeypatch.setattr(Iceberg, "commit", late)
    report = ps.compact_iceberg(spark, catalog, "db.events", sort_by="k")
    assert report.lost == 0 and len(report.groups) == 1
    found = catalog.load_table("db.events").scan().to_arrow()["k"].to_pylist()
    assert found == [k for k in range(1000) if k not in (2, 3, 4, 5)]


# -- many sources ----------------------------------------------------------------------------------


@pytest.fixture
def learned(monkeypatch):
    """Executors read from the fifth file on; gives how many files they read each time."""
    counts = []

    def known(files):
        files = list(files)
        counts.append(len(files))
        return found(files)

    found = plait._native.Known
    monkeypatch.setattr(plait._native, "Known", known)
    monkeypatch.setattr(prefetch, "LOCAL_FILES_MAX", 4)
    return counts


def test_executors_read_what_planning_needs_of_many_files(spark, learned, tmp_path):
    options = {"policy": "overlap", "sort_by": "k", "target_file_size": "50kB"}
    for name in ("here", "there", "sources"):
        write(tmp_path / name / "day=1", 6, 3_000)
        write(tmp_path / name / "day=2", 3, 100)
    here = plait.compact(tmp_path / "here", yes=True, **options)
    assert learned == []
    there = ps.compact(spark, tmp_path / "there", **options)
    # All files of the folder, and what was made of them when it is looked at again.
    assert learned[0] == 9 and learned[1:] == [sum(len(g.outputs) for g in there.groups)]

    def contents(report):
        return [Path(path).read_bytes() for group in report.groups for path in group.outputs]

    assert contents(here) == contents(there) and len(contents(here)) > 4
    learned.clear()
    into = ps.compact(spark, tmp_path / "sources" / "day=1", tmp_path / "out", **options)
    assert learned == [6]
    assert plait.verify(
        into.groups[0].outputs, against=tmp_path / "sources" / "day=1", sort_by="k"
    ).ok


def test_tables_of_many_files_are_read_by_executors(spark, learned, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    sources = write(tmp_path / "sources", 5, 500)
    (tmp_path / "lake").mkdir()
    uri = f"sqlite:///{tmp_path}/lake.db"
    catalog = SqlCatalog("lake", uri=uri, warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("db")
    tables = [pq.read_table(path) for path in sorted(sources.glob("*.parquet"))]
    iceberg = catalog.create_table("db.events", tables[0].schema)
    for table in tables:
        iceberg.append(table)
        deltalake.write_deltalake(str(tmp_path / "delta"), table, mode="append")
    assert ps.compact_delta(spark, str(tmp_path / "delta"), sort_by="k").groups[0].rows == 2_500
    assert learned == [5]
    report = ps.compact_iceberg(spark, catalog, "db.events", sort_by="k")
    assert learned == [5, 5] and report.groups[0].rows == 2_500
    paths = [task.file.file_path for task in catalog.load_table("db.events").scan().plan_files()]
    catalog.close()
    assert same_rows([path.removeprefix("file://") for path in paths], sources)


def test_files_that_executors_cannot_read_are_named_as_without_them(spark, learned, tmp_path):
    folder = write(tmp_path / "events", 6, 100)
    (folder / "003.parquet").write_bytes(b"PAR1, or so it begins")
    report = ps.compact(spark, folder, sort_by="k", yes=False)
    assert [item.path for item in report.skipped] == [str(folder / "003.parquet")]
    assert learned == [5]
    (folder / "003.parquet").unlink()
    with pytest.raises(plait.UnknownColumn, match="absent"):
        ps.compact(spark, folder, sort_by="absent")
    (tmp_path / "empty").mkdir()
    assert ps.compact(spark, tmp_path / "empty", sort_by="k").groups == ()


# -- watching and stopping -------------------------------------------------------------------------


def test_progress_grows_by_outputs_and_ends_with_all_rows(spark, tmp_path):
    folder = write(tmp_path / "events", 6, 5_000)
    told = []
    options = {"sort_by": "k", "target_file_size": "50kB"}
    report = ps.compact(spark, folder, progress=told.append, **options)
    assert len(report.groups[0].outputs) > 5
    done = [(p.consumed_bytes, p.rows_written) for p in told]
    assert done == sorted(done) and {p.stage for p in told} >= {"merge"}
    assert told[-1].rows_written == 30_000
    # The last call comes after the commit.
    assert told[-1].stage == "publish"
    assert told[-1].consumed_bytes == told[-1].total_bytes > 0
    assert all(0 <= p.consumed_bytes <= p.total_bytes for p in told)
    # A second run has nothing to merge.
    told.clear()
    ps.compact(spark, folder, progress=told.append, **options)
    assert told[-1] == plait.Progress(0, 0, 0, "plan")


def test_what_progress_raises_ends_the_job(spark, tmp_path):
    folder = write(tmp_path / "events", 6, 5_000)

    def enough(progress):
        if progress.stage == "merge":
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        ps.compact(spark, folder, sort_by="k", target_file_size="20kB", progress=enough)
    assert not committed(folder)
    assert ps.compact(spark, folder, sort_by="k").groups
    assert same_rows(counting(folder), write(tmp_path / "sources", 6, 5_000))


@pytest.mark.few(1)
@pytest.mark.parametrize("interrupts", [False, True])
@pytest.mark.parametrize("watched", [False, True])
def test_a_job_that_is_cancelled_ends_the_merges_of_its_workers(
    interrupts, watched, spark, tmp_path
):
    """The worker is killed in the midst of the native merge; no output shows up, then or later."""
    folder = write(tmp_path / "events", 4, 400_000)
    raised = []
    group = f"cancelled {interrupts} {watched}"

    def compacts():
        spark.sparkContext.setJobGroup(group, "a compaction", interruptOnCancel=interrupts)
        # Compressed so that it takes long.
        options = {"sort_by": "k", "target_file_size": None, "compression": "zstd(19)"}
        try:
            ps.compact(spark, folder, progress=print if watched else None, **options)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=compacts)
    thread.start()
    made = folder / "_plait" / "files"
    started = time.monotonic()
    while not (drafts := list(made.glob(".plait-tmp-*"))):
        assert time.monotonic() - started < 60 and thread.is_alive()
        time.sleep(0.02)
    worker = int(drafts[0].name.split("-")[2])
    spark.sparkContext.cancelJobGroup(group)
    thread.join(120)
    assert len(raised) == 1 and "cancel" in str(raised[0]).lower(), raised
    cancelled = time.monotonic()
    while Path(f"/proc/{worker}").exists() and is_busy(worker):
        assert time.monotonic() - cancelled < 60, "the merge goes on"
        time.sleep(0.05)
    time.sleep(0.5)
    assert not list(made.glob("*.parquet")) and not committed(folder)


def committed(folder: Path) -> list[Path]:
    """Manifests that name files; others tell of leases."""
    manifests = (folder / "_plait").glob("manifest-*")
    return [path for path in manifests if json.loads(path.read_text())["files"]]


def is_busy(pid: int) -> bool:
    """Whether a process uses a processor, for a while."""

    def ticks() -> int:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(0.3)
    return ticks() - before > 5


# -- errors ----------------------------------------------------------------------------------------


def test_errors_of_executors_are_those_of_one_machine(spark, tmp_path):
    folder = write(tmp_path / "events", 2, 100)
    pq.write_table(
        pa.table({"k": [5, 3], "v": [0.0, 1.0], "from": ["x", "y"]}), folder / "x.parquet"
    )
    with pytest.raises(plait.UnsortedSource) as caught:
        ps.compact(spark, folder, tmp_path / "out", sort_by="k")
    assert caught.value.path == str(folder / "x.parquet")
    assert (caught.value.column, caught.value.row) == ("k", 1)
    assert "hint: pass unsorted" in str(caught.value)
    # In place it is left alone; so is what only an executor finds out.
    pq.write_table(
        pa.table({"k": [1, 9, 3, 9], "v": [0.0] * 4, "from": ["x"] * 4}), folder / "y.parquet"
    )
    report = ps.compact(spark, folder, sort_by="k", policy="full")
    assert [item.path for item in report.skipped] == [
        str(folder / "x.parquet"),
        str(folder / "y.parquet"),
    ]
    assert len(report.groups) == 1 and len(report.groups[0].sources) == 2
    with pytest.raises(plait.InvalidArgument, match="`spark` is not a session"):
        ps.compact(folder, folder)
    with pytest.raises(plait.InvalidArgument, match="`policy` has no such choice"):
        ps.compact(spark, folder, policy="all")
    with pytest.raises(plait.SourceNotFound):
        ps.compact(spark, tmp_path / "absent", sort_by="k")


def test_storage_that_fails_everywhere_is_named(spark, tmp_path):
    folder = write(tmp_path / "events", 2, 100)
    (folder / "_plait").mkdir()
    # A file where the folder of outputs should be.
    (folder / "_plait" / "files").write_text("in the way")
    with pytest.raises(plait.StorageError, match="cannot make the output folder"):
        ps.compact(spark, folder, sort_by="k")


def test_a_source_that_changes_after_the_plan_is_merged_again(spark, tmp_path, monkeypatch):
    from plait.spark import plan

    folder = write(tmp_path / "events", 3, 100)
    run, written = plan._run, []

    def changed_first(*arguments):
        if not written:
            written.append(folder / "001.parquet")
            pq.write_table(pa.table({"k": [1], "v": [1.0], "from": ["x"]}), written[0])
        return run(*arguments)

    monkeypatch.setattr(plan, "_run", changed_first)
    report = ps.compact(spark, folder, sort_by="k")
    assert (len(report.groups), report.lost) == (1, 1)
    read = pa.table(plait.scan(folder))
    assert len(read) == 201 and read["from"].to_pylist().count("x") == 1


def test_outputs_that_the_driver_does_not_see_are_not_committed(spark, tmp_path, monkeypatch):
    from plait.spark import plan

    folder = write(tmp_path / "events", 3, 100)
    run = plan._run

    def elsewhere(*arguments):
        reports = run(*arguments)
        for report in reports.values():
            os.unlink(report.outputs[0].path)
        return reports

    monkeypatch.setattr(plan, "_run", elsewhere)
    with pytest.raises(plait.SourceChanged, match="is elsewhere"):
        ps.compact(spark, folder, sort_by="k")
    assert not committed(folder)


# -- what a task gets ------------------------------------------------------------------------------


class Settings:
    """A session's settings, and no session."""

    def __init__(self, **settings):
        self.settings = {f"spark.{n.replace('_', '.')}": value for n, value in settings.items()}
        self.conf = self
        self.range = None

    def get(self, name, default=None):
        return self.settings.get(name, default)


MIB = 1 << 20


@pytest.mark.parametrize(
    ("settings", "threads", "limit"),
    [
        ({"master": "local[8]"}, 1, 512_000_000),
        ({"master": "yarn"}, 1, 384 * MIB - 150_000_000),
        ({"master": "yarn", "executor_memoryOverhead": "2g"}, 1, 2048 * MIB - 150_000_000),
        ({"master": "yarn", "executor_memoryOverhead": "2048"}, 1, 2048 * MIB - 150_000_000),
        ({"master": "yarn", "executor_memory": "20g"}, 1, 2048 * MIB - 150_000_000),
        (
            {
                "master": "k8s",
                "executor_pyspark_memory": "8g",
                "executor_cores": "4",
                "task_cpus": "2",
            },
            2,
            4096 * MIB - 150_000_000,
        ),
        ({"master": "yarn", "executor_cores": "8"}, 1, 64_000_000),
    ],
)
def test_a_task_gets_its_part_of_an_executor(settings, threads, limit):
    share = share_of(Settings(**settings))
    assert (share.threads, share.memory_limit) == (threads, limit)
    assert share_of(Settings(**settings), "77MB").memory_limit == 77_000_000


def test_tasks_travel_small(tmp_path):
    from plait.spark.task import pack

    folder = write(tmp_path / "events", 100, 100)
    made = plait.plan(folder, sort_by="k", target_file_size="20kB")
    for task in made.tasks:
        packed = pack(task, "out")
        assert packed.bytes == task.bytes
        assert zlib.decompress(packed.task).decode() == task.to_json()
        assert len(packed.task) < 20_000


# -- files that are not sorted ---------------------------------------------------------------------


def shuffled(folder: Path, count: int) -> Path:
    """Files of which every second one is in no order."""
    folder.mkdir(parents=True)
    for i in range(count):
        keys = np.random.default_rng(i).integers(0, 10**6, 2_000)
        table = pa.table({"k": np.sort(keys) if i % 2 else keys, "v": [f"of {i}"] * 2_000})
        pq.write_table(table, folder / f"{i}.parquet")
    return folder


def test_a_group_with_unsorted_files_is_sorted_by_one_task(spark, tmp_path):
    folder = shuffled(tmp_path / "events" / "day=1", 4).parent
    shuffled(tmp_path / "events" / "day=2", 1)
    sources = shuffled(tmp_path / "sources", 4)
    options = {"sort_by": "k", "unsorted": "sort", "target_file_size": "20kB"}
    dry = ps.compact(spark, folder, **options, yes=False)
    assert [len(group.unsorted) for group in dry.groups] == [2, 1]
    report = ps.compact(spark, folder, **options, verify="content")
    first, second = sorted(report.groups, key=lambda group: group.folder)
    assert len(first.outputs) > 2 and len(second.sources) == 1
    assert plait.verify(first.outputs, against=sources, sort_by="k").ok
    assert "sorted 3 files that were not sorted" in str(report)
    assert "a group with unsorted files is one task of Spark" in str(report)
    assert ps.compact(spark, folder, **options).groups == ()


def test_unsorted_sources_are_merged_into_another_folder_once(spark, tmp_path):
    sources, out = shuffled(tmp_path / "sources", 3), tmp_path / "out"
    options = {"sort_by": "k", "target_file_size": "20kB"}
    with pytest.raises(plait.UnsortedSource):
        ps.compact(spark, sources, out, **options)
    report = ps.compact(spark, sources, out, **options, unsorted="sort")
    assert len(report.groups[0].outputs) > 1 and len(report.groups[0].unsorted) == 2
    assert plait.verify(counting(out), against=sources, sort_by="k").ok
    again = ps.compact(spark, sources, out, **options, unsorted="sort")
    assert again.groups == () and same_rows(counting(out), sources)
    other = tmp_path / "other"
    skipped = ps.compact(spark, sources, other, **options, unsorted="skip")
    assert [Path(file.path).name for file in skipped.skipped] == ["0.parquet", "2.parquet"]
    assert same_rows(counting(other), sources / "1.parquet")


def test_a_delta_table_with_unsorted_files_is_compacted(spark, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    uri = str(tmp_path / "orders")
    for part in range(4):
        rows = pa.table({"k": [part, part + 10, part + 20]})
        deltalake.write_deltalake(uri, rows, mode="append")
    deltalake.DeltaTable(uri).delete("k > 10 and k < 13")
    report = ps.compact_delta(spark, uri, sort_by="k", unsorted="sort")
    assert sum(len(group.unsorted) for group in report.groups) == 1
    table = deltalake.DeltaTable(uri)
    left = [0, 1, 2, 3, 10, 13, 20, 21, 22, 23]
    assert table.to_pyarrow_table()["k"].to_pylist() == left and len(table.file_uris()) == 1


# -- executors that die ----------------------------------------------------------------------------


def on_a_cluster(root) -> dict[str, dict]:
    """What `spark_cluster.py` saw, by case."""
    write(root / "sources", 200, 2_000)
    cases = json.dumps({"seed": 20, "kills": KILLS})
    done = subprocess.run(
        [sys.executable, str(HERE / "spark_cluster.py"), str(root), cases],
        capture_output=True,
        text=True,
        timeout=600 + 90 * KILLS,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {case["case"]: case for case in told}


def is_right(case) -> bool:
    """Whether rows count once at all times, and nothing is left over."""
    return (
        case["rows are right"]
        and case["rows are right then"]
        and case["rows are right at last"]
        and case["groups of the run after"] == 0
        and case["left"] == []
        and case["orphans"] == 0
    )


# One test, since each process of pytest would start a cluster of its own.
@pytest.mark.long
def test_rows_count_once_on_a_cluster_whatever_happens_to_its_executors(tmp_path):
    cluster = on_a_cluster(tmp_path)

    # Two hundred files become disjoint ones without a shuffle.
    plain = cluster["plain"]
    assert is_right(plain) and plain["groups"] == 1 and plain["groups of the next run"] == 0
    assert plain["stages"] > 0
    assert plain["shuffleReadBytes"] == plain["shuffleWriteBytes"] == 0
    assert plain["diskBytesSpilled"] == plain["memoryBytesSpilled"] == 0
    assert 0 < plain["worker bytes"] < plain["limit"] + 200_000_000

    # Workers and executors are killed: Spark tries again, and the job goes on.
    killed = [case for name, case in cluster.items() if name.startswith(("worker ", "executor "))]
    assert len(killed) == KILLS
    assert all(is_right(case) for case in killed), [c for c in killed if not is_right(c)]
    failed = [case for case in killed if "error" in case or "spark error" in case]
    assert failed == [], failed
    assert sum(case["killed"] != "too late" for case in killed) >= KILLS // 3, killed

    # Two jobs run at once.
    assert is_right(cluster["concurrently"]), cluster["concurrently"]

    # An executor whose storage is full is passed over.
    full = cluster["full"]
    assert full["limited"] and is_right(full) and full.get("groups") == 1, full

    # Storage that is full everywhere is named, and nothing counts.
    full = cluster["all full"]
    assert full["error"].startswith("StorageError: cannot write an output: file `"), full
    assert "hint: nothing was published" in full["error"]
    assert full["rows are right"] and full["manifests"] == 0


# -- drivers that die ------------------------------------------------------------------------------

DRIVER = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
from pyspark.sql import SparkSession
from plait import _lease, _native, spark as ps
from plait.spark import plan
from plait.table import folder

path, stage = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
    .config("spark.log.level", "OFF").getOrCreate()
)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Native:
    def __getattr__(self, name):
        call = getattr(_native, name)
        def staged(*arguments):
            if stage == "before " + name:
                die()
            told = call(*arguments)
            if stage == "after " + name:
                die()
            return told
        staged.__name__ = name
        return staged

folder._native = _lease._native = Native()
if stage.startswith("work "):
    run = plan._run
    def timed(*arguments):
        signal.signal(signal.SIGALRM, lambda *_: die())
        signal.setitimer(signal.ITIMER_REAL, float(stage.removeprefix("work ")))
        return run(*arguments)
    plan._run = timed
ps.compact(spark, path, sort_by="k", target_file_size="50kB")
print("done")
"""


def in_session(leader: int) -> list[int]:
    """The processes that a process started in a session of its own, and those below them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if session == str(leader) and state != "Z":
            found.append(int(entry.name))
    return found


@pytest.mark.long
@pytest.mark.parametrize("stage", ["after survey", "work", "before commit", "after commit"])
def test_rows_count_once_when_the_driver_is_killed(stage, spark, tmp_path):
    sources = write(tmp_path / "sources", 20, 10_000)
    folder = tmp_path / "events"
    shutil.copytree(sources, folder)
    at = f"work {random.Random(stage).uniform(0.2, 1.5)}" if stage == "work" else stage
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), at],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=clean_environment(),
    )
    said, complained = driver.communicate(timeout=300)
    assert driver.returncode == -9 and "done" not in said, complained[-2_000:]
    # Its JVM and workers notice a little later, and may write until then.
    started = time.monotonic()
    while in_session(driver.pid):
        assert time.monotonic() - started < 120, in_session(driver.pid)
        time.sleep(0.1)
    # Whatever is there, every row counts once: before the next run and after it.
    assert same_rows(counting(folder), sources)
    report = ps.compact(spark, folder, sort_by="k", target_file_size="50kB")
    assert len(report.groups) == (0 if stage == "after commit" else 1)
    assert same_rows(counting(folder), sources)
    assert ps.compact(spark, folder, sort_by="k", target_file_size="50kB").groups == ()
    plait.expire(folder, retention=0, yes=True)
    assert same_rows(counting(folder), sources)
    left = [path for path in folder.rglob("*.parquet") if str(path) not in counting(folder)]
    assert left == [] and not list(folder.rglob(".plait-tmp-*"))


def test_deleted_rows_of_a_delta_table_are_left_out_on_executors(spark, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    pytest.importorskip("pyroaring")
    vectors = load("vectors")
    uri, expected = str(tmp_path / "delta"), []
    for part in range(4):
        keys = list(range(part, 4000, 4))
        deltalake.write_deltalake(uri, pa.table({"k": keys}), mode="append")
        (name,) = [n for n, add in vectors.live(uri).items() if "deletionVector" not in add]
        vectors.delete(uri, name, range(part, 300, 3), kind="ui"[part % 2])
        expected += [k for i, k in enumerate(keys) if i not in range(part, 300, 3)]
    expected.sort()

    def keys_of_format():
        rows = spark.read.format("plait").option("sort_by", "k").load(uri)
        return sorted(row["k"] for row in rows.collect())

    assert keys_of_format() == expected
    report = ps.compact_delta(spark, uri, sort_by="k", verify="content")
    assert [group.rows for group in report.groups] == [len(expected)]
    assert not any("deletionVector" in add for add in vectors.live(uri).values())
    assert keys_of_format() == expected
