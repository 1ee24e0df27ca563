"""A compaction of a folder of partitions: several groups at a time, and one after the other.

    .venv/bin/python benches/python/compact_partitions.py [--partitions 100] [--files 10]
        [--rows 20000] [--rounds 3]

Each partition has files that all overlap, which become one. With `max_seconds`, groups are merged
one after the other, each on all threads; with `min_commit_interval=0` each is committed by itself.
All take turns, each time on a new copy of the folder, in a new process. Prints seconds, those of
all processors, and the peak of the memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COMPACT = """
import json, sys, time
from pathlib import Path
import plait
options = json.loads(sys.argv[2])
begin, processor = time.perf_counter(), time.process_time()
report = plait.compact(sys.argv[1], sort_by="k", policy="full", **options)
wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - processor
status = Path("/proc/self/status").read_text().splitlines()
rss = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "rss": rss, "groups": len(report.groups)}))
"""

HOW = {
    "together": {},
    "a commit for each": {"min_commit_interval": 0},
    "one by one": {"max_seconds": 86_400, "min_commit_interval": 0},
}


def make(folder: Path, partitions: int, files: int, rows: int) -> None:
    """Writes the partitions."""
    rng = np.random.default_rng(3)
    for day in range(partitions):
        path = folder / f"day={day:04}"
        path.mkdir(parents=True)
        for number in range(files):
            took = zip(
                rng.integers(0, 1 << 30, rows).tolist(),
                rng.integers(0, 500, rows).tolist(),
                strict=True,
            )
            columns = {
                "k": np.sort(rng.integers(0, 1 << 40, rows)),
                "host": pa.array([f"host-{i}" for i in rng.integers(0, 50, rows)]),
                "value": rng.normal(size=rows),
                "count": rng.integers(0, 1000, rows),
                "message": pa.array([f"request {i} took {ms} ms" for i, ms in took]),
            }
            pq.write_table(pa.table(columns), path / f"{number}.parquet", compression="zstd")


def measure(folder: Path, copy: Path, how: str) -> dict[str, float]:
    """One compaction of a copy of the folder."""
    shutil.copytree(folder, copy)
    try:
        command = [sys.executable, "-c", COMPACT, str(copy), json.dumps(HOW[how])]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    finally:
        shutil.rmtree(copy)
    run: dict[str, float] = json.loads(done.stdout)
    return run


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-partitions-") as name:
        folder = Path(name) / "events"
        make(folder, arguments.partitions, arguments.files, arguments.rows)
        for _ in range(arguments.rounds):
            for how in HOW:
                run = measure(folder, Path(name) / "copy", how)
                print(
                    f"{how:<17} {run['groups']:>6} groups {run['wall_s']:>7.2f} s "
                    f"{run['cpu_s']:>7.2f} s of processor time {run['rss'] / 1e6:>5.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
