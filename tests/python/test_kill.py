"""Merges that are killed, interrupted, starved, forked, run at the same time, or lose a source.

Whatever happens to the process: what is visible is whole, sources are what they were, and the next
run clears up and gives the full result.
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
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local  # temp files, full disks and locks of one machine

SEED = 20240229


def hashes(paths) -> list[str]:
    return [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths]


def runs(folder: Path, rows: int, *, shares_keys: bool = False) -> list[Path]:
    """Four interleaved runs whose values do not compress; every key in each, or in one."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(4):
        values = np.random.default_rng(i).random(rows)
        keys = np.arange(rows) if shares_keys else np.arange(i, rows * 4, 4)
        table = pa.table({"k": keys, "v": values, "w": values[::-1]})
        paths.append(folder / f"{i}.parquet")
        pq.write_table(table, paths[-1], row_group_size=max(1, rows // 4))
    return paths


def start(program: str, *arguments, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


# --- kill ------------------------------------------------------------------------------------------

MERGES = """
import json, sys, plait
print("go", flush=True)
plait.merge(sys.argv[3:], sys.argv[1], sort_by="k", **json.loads(sys.argv[2]))
"""


class Victim:
    """One merge, again and again, in processes that are killed."""

    def __init__(self, folder: Path, environment: dict[str, str], rows: int, **options):
        combines = "on_duplicate" in options
        self.paths = runs(folder / "in", rows, shares_keys=combines)
        self.rows = rows if combines else rows * 4
        self.out = folder / "out"
        self.options = options
        self.environment = environment
        self.before = hashes(self.paths)
        started = time.monotonic()
        self.merge()
        self.seconds = time.monotonic() - started
        self.whole = self.visible()
        assert sum(rows for rows, _ in self.whole.values()) == self.rows
        self.clear()

    def merge(self):
        return plait.merge(self.paths, self.out, sort_by="k", **self.options)

    def clear(self):
        shutil.rmtree(self.out, ignore_errors=True)

    def start(self) -> subprocess.Popen[str]:
        process = start(
            MERGES, self.out, json.dumps(self.options), *self.paths, environment=self.environment
        )
        assert process.stdout.readline() == "go\n"
        return process

    def visible(self) -> dict[str, tuple[int, str]]:
        """Rows and hash of every visible file; all other files must be ours and hidden."""
        found = {}
        for name in sorted(os.listdir(self.out)) if self.out.exists() else ():
            path = self.out / name
            if name.endswith(".parquet"):
                found[name] = (pq.read_table(path).num_rows, hashes([path])[0])
            else:
                assert name.startswith(".plait-tmp-"), name
        return found

    def end(self, process: subprocess.Popen[str], number: int) -> int:
        """Kills, looks at what is left, merges again; how many files had become visible."""
        process.send_signal(number)
        text, errors = process.communicate(timeout=60)
        assert (text, errors) == ("", "")
        assert process.returncode in (-number, 0)
        assert hashes(self.paths) == self.before
        visible = self.visible()
        # Each visible file is whole, and one of those that the whole merge makes.
        assert visible.items() <= self.whole.items()
        self.merge()
        assert self.visible() == self.whole
        assert sorted(os.listdir(self.out)) == sorted(self.whole), "stale files were not swept"
        assert hashes(self.paths) == self.before
        return len(visible)


@pytest.mark.behaviour("merge-32")
@pytest.mark.long
@pytest.mark.parametrize(
    "rules", [{}, {"on_duplicate": "aggregate", "aggregate": {"v": "sum"}}], ids=["all", "sums"]
)
def test_a_merge_killed_at_any_time_leaves_only_whole_files(tmp_path, environment, rules):
    layout = {"outputs": 3, "compression": "zstd(9)", "threads": 2}
    victim = Victim(tmp_path, environment, rows=60_000, **layout, **rules)
    rng = random.Random(SEED)
    stale = 0
    for i in range(16):
        process = victim.start()
        time.sleep(rng.random() * victim.seconds * 1.2)
        if victim.out.exists():
            stale += any(name.startswith(".plait-tmp-") for name in os.listdir(victim.out))
        victim.end(process, signal.SIGTERM if i % 5 == 4 else signal.SIGKILL)
        victim.clear()
    assert stale > 0, "no process was killed while it wrote"


@pytest.mark.slow
def test_a_merge_killed_while_it_publishes_leaves_whole_files_that_the_next_run_completes(
    tmp_path, environment
):
    killer = tmp_path / "kill_at_rename.so"
    source = Path(__file__).with_name("kill_at_rename.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", killer, source, "-ldl"], check=True)
    environment = {**environment, "LD_PRELOAD": str(killer), "PYTHONDONTWRITEBYTECODE": "1"}
    victim = Victim(tmp_path, environment, rows=2_000, outputs=4)
    visible = []
    for at in range(50):
        environment["PLAIT_KILL_AT"] = str(at)
        process = victim.start()
        process.wait(timeout=60)
        has_ended = process.returncode == 0
        visible.append(victim.end(process, signal.SIGKILL))
        victim.clear()
        if has_ended:
            break
    # Killed before each step, the files become visible one by one.
    assert visible == sorted(visible) and set(visible) == {0, 1, 2, 3, 4}


def test_what_a_killed_merge_published_is_never_mixed_with_another_merge(tmp_path):
    paths = runs(tmp_path / "in", 1_000)
    out = tmp_path / "out"
    plait.merge(paths, out, sort_by="k", outputs=3)
    sorted(out.iterdir())[1].unlink()  # as if killed between renames
    left = sorted(os.listdir(out))
    for other in ({"outputs": 2}, {"outputs": 3, "compression": "gzip"}):
        with pytest.raises(plait.OutputExists):
            plait.merge(paths, out, sort_by="k", **other)
    with pytest.raises(plait.OutputExists):
        plait.merge(paths[:2], out, sort_by="k", outputs=3)
    assert sorted(os.listdir(out)) == left
    plait.merge(paths, out, sort_by="k", outputs=3)
    assert pq.read_table(out).num_rows == 4_000


def test_stale_files_of_other_tools_are_left_alone(tmp_path):
    paths = runs(tmp_path / "in", 100)
    out = tmp_path / "out"
    out.mkdir()
    others = [".plait-tmp", ".hidden", "_temporary", "notes.txt", "plait-tmp-1-1"]
    for name in others:
        (out / name).write_text("theirs")
    (out / ".plait-tmp-1-1").write_text("ours, of a process that is gone")
    report = plait.merge(paths, out, sort_by="k")
    assert sorted(os.listdir(out)) == sorted([*others, Path(report.outputs[0].path).name])


# --- Ctrl-C ----------------------------------------------------------------------------------------

INTERRUPTED = """
import json, sys, plait
print("go", flush=True)
try:
    plait.merge(sys.argv[3:], sys.argv[1], sort_by="k", **json.loads(sys.argv[2]))
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd(19)"},
        {"compression": "zstd(15)", "threads": 1, "outputs": 4},
        {"verify": "content", "compression": "brotli(9)"},
        {"memory_limit": "16MB", "compression": "gzip(9)", "copy_tiers": []},
    ],
    ids=lambda options: options["compression"],
)
def test_ctrl_c_stops_a_merge_within_a_second(tmp_path, environment, options):
    paths = runs(tmp_path / "in", rows=300_000)
    before = hashes(paths)
    out = tmp_path / "out"
    whole = hashes(o.path for o in plait.merge(paths, out, sort_by="k", **options).outputs)
    shutil.rmtree(out)
    waits = []
    for delay in (0.0, 0.1, 0.3, 0.6):
        process = start(INTERRUPTED, out, json.dumps(options), *paths, environment=environment)
        assert process.stdout.readline() == "go\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        text, errors = process.communicate(timeout=60)
        assert errors == ""
        if out.exists():  # also where Ctrl-C was pressed while the outputs appeared
            assert hashes(sorted(out.iterdir())) == whole
            shutil.rmtree(out)
            continue
        waits.append(time.monotonic() - started)
        assert text == "interrupted\n" and process.returncode == 0
    assert len(waits) >= 2
    # Other work on the machine may delay the end of one process.
    assert sorted(waits)[-2] < 1.0, waits
    assert hashes(paths) == before


def test_an_exception_in_the_progress_callback_stops_the_merge(tmp_path):
    class Enough(Exception):
        pass

    def callback(progress):
        raise Enough

    paths = runs(tmp_path / "in", rows=200_000)
    with pytest.raises(Enough):
        plait.merge(paths, tmp_path / "out", sort_by="k", compression="zstd(19)", progress=callback)
    assert not (tmp_path / "out").exists()


# --- limits of the process -------------------------------------------------------------------------

LIMITED = """
import os, resource, signal, sys, plait
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
try:
    plait.merge(sys.argv[3:], sys.argv[2], sort_by="k", outputs=2, threads=2, memory_limit="16MB")
except plait.StorageError as e:
    assert "File too large" in str(e) and e.hint and sys.argv[2] in e.path, e
    print("refused")
assert not os.path.exists(sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 3, 1_000, 300_000, 1_500_000])
def test_a_file_that_may_not_grow_is_a_storage_error(tmp_path, environment, limit):
    paths = runs(tmp_path / "in", rows=100_000)
    before = hashes(paths)
    process = start(LIMITED, limit, tmp_path / "out", *paths, environment=environment)
    assert process.communicate(timeout=60) == ("refused\n", "")
    assert hashes(paths) == before


FULL_DISK_BYTES = 2_000_000


def test_a_full_disk_is_a_storage_error_and_leaves_room_as_before(tmp_path):
    paths = runs(tmp_path / "in", rows=100_000)
    small = runs(tmp_path / "small", rows=10)
    before = hashes(paths)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={FULL_DISK_BYTES}", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        return  # only root may; the test of RLIMIT_FSIZE takes the same way through the engine
    try:
        free = os.statvfs(disk).f_bfree
        for options in ({}, {"copy_tiers": ()}, {"outputs": 8}, {"memory_limit": "16MB"}):
            with pytest.raises(plait.StorageError, match="No space left") as caught:
                plait.merge(paths, disk / "out", sort_by="k", **options)
            assert "free some space" in caught.value.hint
            assert os.listdir(disk) == [] and os.statvfs(disk).f_bfree == free
        assert plait.merge(small, disk / "out", sort_by="k").rows_out == 40
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert hashes(paths) == before


FEW_DESCRIPTORS = """
import os, resource, sys, plait
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
try:
    print(plait.merge(sys.argv[2], sys.argv[1], sort_by="k").rows_out)
except plait.StorageError as e:
    print("refused", e.hint is not None or "Too many open files" in str(e), os.path.exists(sys.argv[1]))
"""


def test_running_out_of_descriptors_is_a_storage_error_or_no_matter(tmp_path, environment):
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(60):
        pq.write_table(pa.table({"k": [i]}), folder / f"{i:02}.parquet")
    process = start(FEW_DESCRIPTORS, tmp_path / "out", folder, environment=environment)
    text, errors = process.communicate(timeout=60)
    assert errors == "" and text in ("60\n", "refused True False\n")


# --- sources that change ---------------------------------------------------------------------------


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def replace(path: Path) -> None:
    pq.write_table(pa.table({"k": [1], "v": [0.0], "w": [0.0]}), path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


CHANGES = {
    "appended to": append,
    "cut short": lambda path: os.truncate(path, 1000),
    "emptied": lambda path: os.truncate(path, 0),
    "overwritten": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "replaced": replace,
    "removed": Path.unlink,
}


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_while_it_is_merged_is_noticed(tmp_path, change):
    paths = runs(tmp_path / "in", rows=100_000)
    out = tmp_path / "out"
    done = []

    def callback(progress):
        # Called from within the merge: it has begun, and has not published yet.
        if not done:
            done.append(progress.stage)
            CHANGES[change](paths[0])

    with pytest.raises((plait.SourceChanged, plait.CorruptSource)) as caught:
        plait.merge(paths, out, sort_by="k", threads=1, compression="zstd(15)", progress=callback)
    assert done and Path(caught.value.path) == paths[0]
    assert not out.exists()


# --- side by side ----------------------------------------------------------------------------------


def at_once(*calls) -> list:
    """What the calls return or raise when all run at the same time."""
    outcomes: list = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def go(i: int):
        barrier.wait()
        try:
            outcomes[i] = calls[i]()
        except BaseException as e:
            outcomes[i] = e

    threads = [threading.Thread(target=go, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_the_same_merge_several_times_at_once_gives_one_whole_result(tmp_path):
    paths = runs(tmp_path / "in", 10_000)
    out = tmp_path / "out"

    def merge():
        return plait.merge(paths, out, sort_by="k", outputs=3, threads=2).rows_out

    assert at_once(*[merge] * 6) == [40_000] * 6
    files = sorted(out.iterdir())
    assert len(files) == 3
    assert [k for f in files for k in pq.read_table(f)["k"].to_pylist()] == list(range(40_000))


def test_different_merges_into_one_folder_do_not_disturb_each_other(tmp_path):
    paths = runs(tmp_path / "in", 2_000)
    out = tmp_path / "out"

    def merge(i: int):
        def go():
            rows = 0
            for j in range(8):
                options = {"row_group_rows": 999 + 8 * i + j, "if_exists": "add"}
                rows += plait.merge(paths, out, sort_by="k", **options).rows_out
            return rows

        return go

    assert at_once(*map(merge, range(4))) == [64_000] * 4
    assert len(os.listdir(out)) == 32
    assert all(pq.read_table(file).num_rows == 8_000 for file in out.iterdir())


def test_of_different_merges_to_one_file_at_once_one_wins_and_the_others_say_so(tmp_path):
    paths = runs(tmp_path / "in", 20_000)
    for attempt in range(4):
        out = tmp_path / f"{attempt}.parquet"

        def merge(i: int, out=out):
            return lambda: plait.merge(paths[i], out, sort_by="k", copy_tiers=()).rows_out

        outcomes = at_once(*map(merge, range(4)))
        winners = [i for i, outcome in enumerate(outcomes) if outcome == 20_000]
        assert len(winners) == 1, outcomes
        assert all(i in winners or type(o) is plait.OutputExists for i, o in enumerate(outcomes))
        assert pq.read_table(out).equals(pq.read_table(paths[winners[0]]))
        assert sorted(p.name for p in tmp_path.glob(".plait*")) == []


FORKS = """
import os, sys, threading, plait
def rows(name):
    return plait.merge(sys.argv[2:], f"{sys.argv[1]}-{name}", sort_by="k", outputs=2, threads=4).rows_out
assert rows("parent") == 40_000
assert threading.active_count() == 1
if os.path.isdir("/proc/self/task"):
    assert len(os.listdir("/proc/self/task")) == 1, "a thread outlives the merge"
children = []
for i in range(4):
    child = os.fork()
    if child == 0:
        os._exit(0 if rows(i) == 40_000 else 1)
    children.append(child)
assert rows("again") == 40_000
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
"""


def test_forked_children_merge_as_their_parent_does(tmp_path, environment):
    paths = runs(tmp_path / "in", rows=10_000)
    process = start(FORKS, tmp_path / "out", *paths, environment=environment)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
    got = {name: hashes(sorted((tmp_path / f"out-{name}").iterdir())) for name in ("parent", 0, 3)}
    assert got["parent"] == got[0] == got[3]


FORK_DURING = """
import os, sys, threading, time, plait
def rows(name):
    return plait.merge(sys.argv[2:], f"{sys.argv[1]}-{name}", sort_by="k", compression="zstd(9)").rows_out
outcome = []
thread = threading.Thread(target=lambda: outcome.append(rows("parent")))
thread.start()
time.sleep(0.1)
child = os.fork()
if child == 0:
    os._exit(0 if rows("child") == 400_000 else 1)
thread.join()
assert outcome == [400_000]
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_fork_while_a_merge_runs_disturbs_neither(tmp_path, environment):
    paths = runs(tmp_path / "in", rows=100_000)
    process = start(FORK_DURING, tmp_path / "out", *paths, environment=environment)
    text, errors = process.communicate(timeout=60)
    assert text == "" and process.returncode == 0, errors
    (parent,), (child,) = (list((tmp_path / f"out-{n}").iterdir()) for n in ("parent", "child"))
    assert hashes([parent]) == hashes([child])
