"""Tables: appends until they are committed, a compaction of a day of hours, a log of 100,000 files.

    .venv/bin/python benches/python/table.py append compact open

`append` takes batches of 10,000 rows in any order; delta-rs, which does not sort, is beside it.
`compact` merges 24 hourly files of 250,000 rows of a time series table; delta-rs concatenates them.
`open` reads a log of 10,000 commits and 100,000 files, with a checkpoint, in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa

import plait

BATCH, HOUR, HOURS = 10_000, 250_000, 24
COMMITS, PER_COMMIT = 10_000, 10
SERIES = 1_000
LIMIT = "256MB"


def rows(count: int, seed: int, start: int = 0, span: int = 3_600) -> pa.Table:
    """Rows of a time series table, in any order."""
    rng = np.random.default_rng(seed)
    names = np.array([f"host-{i:04}.cpu.user" for i in range(SERIES)])
    columns = {
        "name": names[rng.integers(0, SERIES, count)],
        "ts": pa.array((start + rng.integers(0, span, count)) * 1_000_000, pa.timestamp("us")),
        "value": rng.normal(size=count),
        "code": rng.integers(0, 5, count),
    }
    return pa.table(columns)


def timed(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def append(folder: Path) -> None:
    """Batches of 10,000 rows, each of them a commit."""
    batches = [rows(BATCH, seed) for seed in range(60)]
    table = plait.Table(folder / "ours", sort_by="name, ts")
    ours = [timed(lambda b=b: table.append(b, memory_limit=LIMIT)) for b in batches]
    theirs = [
        timed(lambda b=b: deltalake.write_deltalake(folder / "theirs", b, mode="append"))
        for b in batches
    ]
    for name, seconds in (("plait", ours), ("delta-rs, not sorted", theirs)):
        mean = len(batches) * BATCH / sum(seconds)
        median = statistics.median(seconds) * 1000
        worst = max(seconds) * 1000
        print(
            f"append   {name:22} {mean:9,.0f} rows/s   median {median:5.1f} ms   most {worst:5.1f} ms"
        )


def compact(folder: Path) -> None:
    """A day of hours becomes a day."""
    for name in ("ours", "theirs", "sorted"):
        table = plait.Table(folder / name, sort_by="name, ts")
        for hour in range(HOURS):
            table.append(rows(HOUR, hour, hour * 3_600), memory_limit=LIMIT)
    count = HOURS * HOUR
    table = plait.Table(folder / "ours")
    seconds = timed(lambda: table.compact(policy="full", memory_limit=LIMIT))
    print(f"compact  plait                  {seconds:6.2f} s   {count / seconds:10,.0f} rows/s")
    theirs = deltalake.DeltaTable(folder / "theirs")
    seconds = timed(lambda: theirs.optimize.compact(target_size=1 << 30))
    print(f"compact  delta-rs, concatenated {seconds:6.2f} s   {count / seconds:10,.0f} rows/s")
    ordered = deltalake.DeltaTable(folder / "sorted")
    seconds = timed(lambda: ordered.optimize.z_order(["name", "ts"], target_size=1 << 30))
    print(f"compact  delta-rs, z-ordered    {seconds:6.2f} s   {count / seconds:10,.0f} rows/s")


def make_log(folder: Path) -> None:
    """A log of 10,000 commits; the one after them writes a checkpoint."""
    table = plait.Table(folder, sort_by="name, ts")
    table.append(rows(10, 0))
    log = folder / "_delta_log"
    (first,) = log.glob("*0.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.checkpointInterval"] = str(COMMITS)
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    add = next(action["add"] for action in actions if "add" in action)
    info = next(action for action in actions if "commitInfo" in action)
    for version in range(1, COMMITS):
        lines = [json.dumps(info)]
        for i in range(PER_COMMIT):
            name = f"part-00000-{version:016x}-{i:016x}.parquet"
            lines.append(json.dumps({"add": {**add, "path": name, "tags": None}}))
        (log / f"{version:020}.json").write_text("\n".join(lines) + "\n")
    seconds = timed(lambda: plait.Table(folder).append(rows(10, 1)))
    print(f"open     commit with a checkpoint of {COMMITS * PER_COMMIT:,} files: {seconds:.2f} s")


OPEN = """
import sys, time
import plait
from plait._logs.delta import DeltaLog
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
began = time.perf_counter()
log = DeltaLog(sys.argv[1], None)
found = log.snapshot()
opened = time.perf_counter() - began
grown = resident() - before
began = time.perf_counter()
files = log.files()
listed = time.perf_counter() - began
print(f"open     plait {opened:.2f} s, {len(files):,} files, {grown / len(files):,.0f} bytes a file; "
      f"listed for Python in {listed:.2f} s")
"""

THEIRS = """
import sys, time, deltalake
began = time.perf_counter()
count = len(deltalake.DeltaTable(sys.argv[1]).file_uris())
print(f"open     delta-rs {time.perf_counter() - began:.2f} s, {count:,} files")
"""


def open_log(folder: Path) -> None:
    """How long a log takes to open."""
    make_log(folder)
    for program in (OPEN, THEIRS):
        subprocess.run([sys.executable, "-c", program, str(folder)], check=True)


def main() -> None:
    """Runs the parts that are named, or all."""
    parts = {"append": append, "compact": compact, "open": open_log}
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, limit {LIMIT}")
    for name in sys.argv[1:] or parts:
        folder = Path(tempfile.mkdtemp(prefix="plait-table-"))
        try:
            parts[name](folder)
        finally:
            shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak of this process {peak / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
