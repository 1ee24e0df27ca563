"""Sorts that are killed, interrupted, starved of disk, or told lies by footers.

Whatever happens: nothing is visible or what is visible is whole, sources are what they were, and the
next run clears up and gives the full result.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .test_object_store import Bucket

pytestmark = pytest.mark.local  # temp files, full disks and locks of one machine

SEED = 40
LIMIT = "16MB"


def hashes(paths) -> list[str]:
    return [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths]


def shuffled(folder: Path, rows: int, files: int = 3) -> list[Path]:
    """Files in no order, whose values do not compress."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(files):
        rng = np.random.default_rng(i)
        keys = rng.permutation(rows) * files + i
        table = pa.table({"k": keys, "v": rng.random(rows), "w": rng.random(rows)})
        paths.append(folder / f"{i}.parquet")
        pq.write_table(table, paths[-1], row_group_size=max(1, rows // 2))
    return paths


def keys_of(out: Path) -> list[int]:
    return [k for path in sorted(out.iterdir()) for k in pq.read_table(path)["k"].to_pylist()]


SORTS = """
import json, sys, plait
print("go", flush=True)
plait.sort(sys.argv[3:], sys.argv[1], sort_by="k", **json.loads(sys.argv[2]))
"""


def start(program: str, *arguments, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def check_left(out: Path, whole: list[str], before: list[str], paths: list[Path]) -> int:
    """Looks at what a killed sort left: whole files or none, and temp files; how many of these."""
    names = sorted(os.listdir(out)) if out.exists() else []
    visible = [name for name in names if name.endswith(".parquet")]
    assert hashes(out / name for name in visible) == whole[: len(visible)]
    temps = [name for name in names if name not in visible]
    assert all(name.startswith(".plait-tmp-") for name in temps), temps
    assert hashes(paths) == before
    return len(temps)


# --- kill ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_sort_killed_at_any_time_leaves_nothing_but_temp_files_that_the_next_run_removes(
    tmp_path, environment
):
    paths, out = shuffled(tmp_path / "in", rows=150_000), tmp_path / "out"
    options = {"memory_limit": LIMIT, "outputs": 2, "threads": 2}
    before = hashes(paths)
    started = time.monotonic()
    whole = hashes(o.path for o in plait.sort(paths, out, sort_by="k", **options).outputs)
    seconds = time.monotonic() - started
    shutil.rmtree(out)
    rng, stale = random.Random(SEED), 0
    for _ in range(16):
        process = start(SORTS, out, json.dumps(options), *paths, environment=environment)
        assert process.stdout.readline() == "go\n"
        time.sleep(rng.random() * seconds * 1.1)
        process.kill()
        process.communicate(timeout=60)
        stale += check_left(out, whole, before, paths)
        report = plait.sort(paths, out, sort_by="k", **options)
        assert hashes(o.path for o in report.outputs) == whole
        assert len(os.listdir(out)) == 2, "stale files were not swept"
        shutil.rmtree(out)
    assert stale > 0, "no process was killed while it spilled"


@pytest.mark.long
@pytest.mark.slow
def test_a_sort_killed_at_any_write_loses_nothing(tmp_path, environment):
    """At every spill, and at every step of publishing."""
    killer = tmp_path / "kill_at_write.so"
    source = Path(__file__).with_name("kill_at_write.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", killer, source, "-ldl"], check=True)
    paths, out = shuffled(tmp_path / "in", rows=120_000, files=2), tmp_path / "out"
    options = {"memory_limit": LIMIT, "threads": 1}
    before = hashes(paths)
    report = plait.sort(paths, out, sort_by="k", **options)
    assert report.sort.runs > 2, "several spills"
    whole = hashes(o.path for o in report.outputs)
    shutil.rmtree(out)
    told = tmp_path / "count"
    environment = {
        **environment,
        "LD_PRELOAD": str(killer),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PLAIT_KILL_IN": str(out),
        "PLAIT_KILL_AT": "-1",
        "PLAIT_KILL_COUNT": str(told),
    }
    done = start(SORTS, out, json.dumps(options), *paths, environment=environment)
    assert done.communicate(timeout=120) == ("go\n", "")
    shutil.rmtree(out)
    count = int(told.read_text())
    assert count > 10
    every = 1 if os.environ.get("PLAIT_LONG") else max(1, count // 12)
    stale = 0
    for at in [*range(0, count, every), *range(max(0, count - 4), count)]:
        environment["PLAIT_KILL_AT"] = str(at)
        process = start(SORTS, out, json.dumps(options), *paths, environment=environment)
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, at
        stale += check_left(out, whole, before, paths)
        plait.sort(paths, out, sort_by="k", **options)
        assert hashes(sorted(out.iterdir())) == whole
        shutil.rmtree(out)
    assert stale > 0


def test_runs_of_a_killed_sort_into_objects_are_removed_by_the_next(
    tmp_path, environment, s3_server
):
    paths, temps = shuffled(tmp_path / "in", rows=400_000), tmp_path / "temps"
    bucket = Bucket(s3_server, f"b-killed-{os.getpid()}")
    options = {"memory_limit": LIMIT, "storage_options": s3_server.options()}
    arguments = (f"{bucket.url}/out/", json.dumps(options), *paths)
    environment = {**environment, "TMPDIR": str(temps)}
    temps.mkdir()
    os.mkfifo(temps / ".plait-tmp-pipe")
    process = start(SORTS, *arguments, environment=environment)
    deadline = time.monotonic() + 60
    while len(os.listdir(temps)) <= 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    process.communicate(timeout=60)
    assert len(os.listdir(temps)) > 2
    done = start(SORTS, *arguments, environment=environment)
    assert done.communicate(timeout=120) == ("go\n", "")
    assert os.listdir(temps) == [".plait-tmp-pipe"]
    assert len(bucket.keys("out/")) == 1


# --- cancel ----------------------------------------------------------------------------------------

INTERRUPTED = """
import json, sys, plait
print("go", flush=True)
try:
    plait.sort(sys.argv[2:], sys.argv[1], sort_by="k", memory_limit="16MB")
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
def test_ctrl_c_stops_a_sort_and_removes_its_runs(tmp_path, environment):
    paths, out = shuffled(tmp_path / "in", rows=400_000), tmp_path / "out"
    before, interrupted = hashes(paths), 0
    whole = hashes(o.path for o in plait.sort(paths, out, sort_by="k", memory_limit=LIMIT).outputs)
    shutil.rmtree(out)
    for delay in (0.0, 0.2, 0.5):
        process = start(INTERRUPTED, out, *paths, environment=environment)
        assert process.stdout.readline() == "go\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        text, errors = process.communicate(timeout=60)
        assert errors == "" and text in ("interrupted\n", "finished\n")
        if out.exists():  # also where Ctrl-C was pressed while the output appeared
            assert hashes(sorted(out.iterdir())) == whole
            shutil.rmtree(out)
        else:
            assert text == "interrupted\n"
            interrupted += 1
    assert interrupted
    assert hashes(paths) == before


@pytest.mark.parametrize("stage", ["sort", "merge"])
def test_an_exception_in_the_progress_callback_stops_a_sort(tmp_path, stage):
    class Enough(Exception):
        pass

    def callback(progress):
        if progress.stage == stage:
            raise Enough

    options = {"memory_limit": LIMIT, "compression": "zstd(15)", "threads": 1}
    # A fast machine needs more rows to be seen sorting.
    for rows in (300_000, 1_200_000, 4_800_000):
        paths, out = shuffled(tmp_path / f"in-{rows}", rows=rows), tmp_path / f"out-{rows}"
        try:
            plait.sort(paths, out, sort_by="k", progress=callback, **options)
        except Enough:
            assert not out.exists()
            return
    pytest.fail("no stage was seen")


# --- disk ------------------------------------------------------------------------------------------

LIMITED = """
import os, resource, signal, sys, plait
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
try:
    plait.sort(sys.argv[3:], sys.argv[2], sort_by="k", threads=2, memory_limit="16MB")
except plait.StorageError as e:
    assert "File too large" in str(e) and e.hint and sys.argv[2] in e.path, e
    print("refused")
assert not os.path.exists(sys.argv[2])
"""


@pytest.mark.parametrize("limit", [0, 3, 300_000])
def test_a_run_that_may_not_grow_is_a_storage_error(tmp_path, environment, limit):
    paths = shuffled(tmp_path / "in", rows=60_000)
    before = hashes(paths)
    process = start(LIMITED, limit, tmp_path / "out", *paths, environment=environment)
    assert process.communicate(timeout=60) == ("refused\n", "")
    assert hashes(paths) == before


@pytest.mark.parametrize("size", [1_000_000, 6_000_000])
def test_a_full_disk_is_a_storage_error_and_leaves_room_as_before(tmp_path, size):
    """Full of runs, or of runs and outputs."""
    paths, small = shuffled(tmp_path / "in", 80_000), shuffled(tmp_path / "small", 10)
    before = hashes(paths)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        return  # only root may; the test of RLIMIT_FSIZE takes the same way through the engine
    try:
        free = os.statvfs(disk).f_bfree
        for options in ({}, {"memory_limit": LIMIT}, {"outputs": 3, "threads": 1}):
            with pytest.raises(plait.StorageError, match="No space left") as caught:
                plait.sort(paths, disk / "out", sort_by="k", **options)
            assert "free some space" in caught.value.hint
            assert os.listdir(disk) == [] and os.statvfs(disk).f_bfree == free
        assert plait.sort(small, disk / "out", sort_by="k").rows_out == 30
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert hashes(paths) == before


def test_a_sort_may_write_into_the_folder_of_its_sources(tmp_path):
    paths = shuffled(tmp_path / "in", 20_000)
    report = plait.sort(paths, tmp_path / "in", sort_by="k", if_exists="add", memory_limit=LIMIT)
    assert pq.read_table(report.outputs[0].path)["k"].to_pylist() == list(range(60_000))
    assert len(os.listdir(tmp_path / "in")) == 4


# --- footers that lie ------------------------------------------------------------------------------


def lying(folder: Path, how: str) -> Path:
    """A file that says it is sorted by `k`, and is not."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = np.random.default_rng(SEED).permutation(30_000)
    table = pa.table({"k": keys, "row": np.arange(30_000)})
    path = folder / "lies.parquet"
    if how == "sorting_columns":
        pq.write_table(table, path, sorting_columns=[pq.SortingColumn(0)])
        return path
    ordered = folder / "ordered.parquet"
    pq.write_table(table.sort_by("k"), ordered)
    merged = plait.merge(ordered, folder / "merged.parquet", sort_by="k").outputs[0].path
    entries = pq.read_metadata(merged).metadata
    entries = {name: value for name, value in entries.items() if name.startswith(b"plait.")}
    assert b"plait.key_range" in entries
    pq.write_table(table.replace_schema_metadata(entries), path)
    ordered.unlink()
    Path(merged).unlink()
    return path


@pytest.mark.parametrize("how", ["sorting_columns", "plait entries"])
@pytest.mark.parametrize("options", [{}, {"outputs": 3}, {"trust_footers": False}])
def test_a_file_whose_footer_lies_about_its_order_is_sorted_all_the_same(tmp_path, how, options):
    lies = lying(tmp_path / "in", how)
    other = shuffled(tmp_path / "other", 20_000, files=1)[0]
    pq.write_table(pq.read_table(other, columns=["k"]), other)
    table = pa.concat_tables([pq.read_table(lies, columns=["k"]), pq.read_table(other)])
    expected = sorted(table["k"].to_pylist())
    for sources in ([lies], [lies, other]):
        out = tmp_path / f"out-{len(sources)}"
        report = plait.sort(sources, out, sort_by="k", **options)
        assert str(lies) in report.sort.unsorted
        rows = report.rows_out
        assert keys_of(out) == (expected if len(sources) == 2 else list(range(30_000)))
        assert rows == sum(o.rows for o in report.outputs)
    report = plait.sort(lies, tmp_path / "declared", **options)  # the order that it claims
    assert report.sort_by == "k" and report.sort.rows == 30_000


@pytest.mark.parametrize("how", ["sorting_columns", "plait entries"])
def test_a_file_whose_footer_lies_about_its_order_is_left_out(tmp_path, how):
    lies = lying(tmp_path / "in", how)
    pq.write_table(
        pa.table({"k": range(0, 90_000, 3), "row": range(30_000)}), tmp_path / "s.parquet"
    )
    sources = [lies, tmp_path / "s.parquet"]
    report = plait.merge(sources, tmp_path / "out", sort_by="k", unsorted="skip")
    assert report.sort.unsorted == (str(lies),)
    assert keys_of(tmp_path / "out") == list(range(0, 90_000, 3))
