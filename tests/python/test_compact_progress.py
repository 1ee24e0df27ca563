"""The progress of compactions: sums over merges, the last call, what a callback raises, the bar."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
import plait.table
from plait.cli import main
from plait.report import Progress
from plait.table.progress import Watch

pytestmark = pytest.mark.local

ROWS = 20_000


def write(folder: Path, days: int = 3) -> Path:
    """Partitions of two overlapping files each."""
    for day in range(days):
        (folder / f"day={day}").mkdir(parents=True)
        for part in range(2):
            keys = range(part, 2 * ROWS, 2)
            pq.write_table(pa.table({"k": keys}), folder / f"day={day}" / f"{part}.parquet")
    return folder


def committed(folder: Path) -> int:
    """Outputs that the newest manifest lists; 0 without one."""
    manifests = sorted(folder.glob("_plait/manifest-*.json"))
    return len(json.loads(manifests[-1].read_text())["files"]) if manifests else 0


def live(folder: Path) -> int:
    """Files that count."""
    return plait.compact(folder, sort_by="k", yes=False).files or 0


@pytest.mark.parametrize("threads", [1, 2])
def test_progress_adds_up_over_merges_and_ends_after_the_last_commit(tmp_path, threads):
    folder = write(tmp_path / "events")
    calls: list[tuple[Progress, int]] = []

    def progress(now: Progress) -> None:
        calls.append((now, committed(folder)))

    report = plait.compact(folder, sort_by="k", progress=progress, threads=threads)
    assert len(report.groups) == 3
    told = [now for now, _ in calls]
    assert {now.stage for now in told} >= {"publish"}
    assert [now.rows_written for now in told] == sorted(now.rows_written for now in told)
    assert all(0 <= now.consumed_bytes <= now.total_bytes for now in told)
    # Each merge tells its end before its commit; the last call has seen all commits.
    assert all(now.rows_written >= 2 * ROWS * outputs for now, outputs in calls)
    if threads == 1:
        assert {2 * ROWS, 4 * ROWS, 6 * ROWS} <= {now.rows_written for now in told}
    assert next(outputs for _, outputs in calls) == 0
    last, outputs = calls[-1]
    assert (last.rows_written, last.stage) == (6 * ROWS, "publish")
    assert last.consumed_bytes == last.total_bytes > 0
    assert outputs == live(folder) == 3


def test_nothing_to_merge_and_a_dry_run_are_told_once_or_more(tmp_path):
    folder = write(tmp_path / "events", days=1)
    calls: list[Progress] = []
    plait.compact(folder, sort_by="k", yes=False, progress=calls.append)
    assert calls[-1] == Progress(0, 0, 0, "plan")
    plait.compact(folder, sort_by="k")
    calls.clear()
    plait.compact(folder, sort_by="k", progress=calls.append)
    assert calls[-1] == Progress(0, 0, 0, "plan")


def test_what_progress_raises_ends_the_compaction_between_commits(tmp_path):
    folder = write(tmp_path / "events")

    def stop(now: Progress) -> None:
        if now.rows_written > 2 * ROWS:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        plait.compact(folder, sort_by="k", progress=stop, threads=1)
    # The first group counts, the others are as they were.
    assert live(folder) == 1 + 2 + 2
    assert len(plait.compact(folder, sort_by="k").groups) == 2


def test_what_the_last_call_raises_undoes_nothing(tmp_path):
    folder = write(tmp_path / "events", days=1)

    def late(_: Progress) -> None:
        if committed(folder):
            raise LookupError("too late")

    with pytest.raises(LookupError, match="too late"):
        plait.compact(folder, sort_by="k", progress=late)
    assert live(folder) == 1


def test_a_delta_table_tells_its_progress(tmp_path):
    import deltalake

    uri = str(tmp_path / "t")
    for part in range(2):
        rows = pa.table({"k": range(part, 2 * ROWS, 2)})
        deltalake.write_deltalake(uri, rows, mode="append")
    versions = []

    def progress(now: Progress) -> None:
        versions.append((deltalake.DeltaTable(uri).version(), now.stage, now.rows_written))

    plait.compact(uri, sort_by="k", progress=progress)
    assert versions[0][0] == 1 and versions[-1] == (2, "publish", 2 * ROWS)


def test_a_merge_that_ends_early_counts_what_it_read():
    calls: list[Progress] = []
    watch = Watch(calls.append)
    watch.expect(100)
    with pytest.raises(LookupError), watch.merging(40) as tell:
        tell(Progress(0, 0, 0, "plan"))
        tell(Progress(30, 50, 3, "merge"))
        raise LookupError
    with watch.merging(60) as tell:
        tell(Progress(70, 70, 7, "merge"))
    watch.published()
    watch.end()
    totals = [(now.consumed_bytes, now.total_bytes) for now in calls]
    assert totals == [(0, 100), (30, 110), (100, 100), (100, 100)]
    assert (calls[-1].rows_written, calls[-1].stage) == (10, "publish")


def test_without_a_callback_nothing_is_called():
    watch = Watch()
    assert watch.planning is None
    with watch.merging(1) as tell:
        assert tell is None
    watch.end()


def test_a_terminal_shows_the_bar_of_a_compaction_and_quiet_nothing(tmp_path, environment, capsys):
    folder = write(tmp_path / "events", days=1)
    command = [sys.executable, "-m", "plait", "compact", str(folder), "--sort-by", "k"]
    ours, theirs = pty.openpty()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0 and b"merged 2 files into 1 file" in done.stdout
    # The bar is wiped at the end.
    assert re.search(r"publish .*100%", shown) and shown.endswith("\r\x1b[K")
    assert main(["compact", str(folder), "--sort-by", "k", "--policy", "full", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
