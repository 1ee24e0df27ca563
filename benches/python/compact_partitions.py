"""A compaction of a folder of partitions: several groups at a time, and one after the other.

    .venv/bin/python benches/python/compact_partitions.py [--partitions 100] [--files 10]
        [--rows 20000] [--rounds 3] [--late 20]

Each partition has files that all overlap, which become one. With `max_seconds`, groups are merged
one after the other, each on all threads; with `min_commit_interval=0` each is committed by itself.
All take turns, each time on a new copy of the folder, in a new process. Prints seconds, those of
all processors, and the peak of the memory.

With `--late`, the copies are on an S3 server of this machine (moto, the extra `test`), each answer
of which waits for so many milliseconds more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

import s3_server  # noqa: E402 - among the tests

COMPACT = """
import json, sys, time
from pathlib import Path
import plait
options = json.loads(sys.argv[2])
if len(sys.argv) > 3:
    options["storage_options"] = json.loads(sys.argv[3])
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


class Local:
    """Copies on the disk."""

    @contextmanager
    def copy(self, folder: Path) -> Iterator[list[str]]:
        """A copy of the folder; how a process is given it."""
        with tempfile.TemporaryDirectory(prefix="plait-copy-") as name:
            yield [str(shutil.copytree(folder, Path(name) / "events"))]

    def stop(self) -> None:
        """Nothing runs."""


class Late:
    """Copies on a server that answers late."""

    def __init__(self, late_s: float) -> None:
        """Starts the server."""
        self._server = s3_server.Server()
        self._proxy = s3_server.Proxy(self._server)
        self._proxy.lose = lambda _method, _path: bool(time.sleep(late_s))
        self._client, self._copies = self._server.client(), 0
        self._options = self._server.options(self._proxy.url)

    @contextmanager
    def copy(self, folder: Path) -> Iterator[list[str]]:
        """A bucket of its own for each copy; how a process is given it."""
        self._copies += 1
        bucket = f"bench{self._copies}"
        self._client.create_bucket(Bucket=bucket)
        for file in sorted(folder.rglob("*.parquet")):
            key = f"events/{file.relative_to(folder).as_posix()}"
            self._client.put_object(Bucket=bucket, Key=key, Body=file.read_bytes())
        yield [f"s3://{bucket}/events", json.dumps(self._options)]

    def stop(self) -> None:
        """Stops the server."""
        self._proxy.stop()
        self._server.stop()


def measure(folder: Path, place: Local | Late, how: str) -> dict[str, float]:
    """One compaction of a copy of the folder."""
    with place.copy(folder) as (name, *storage):
        command = [sys.executable, "-c", COMPACT, name, json.dumps(HOW[how]), *storage]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    run: dict[str, float] = json.loads(done.stdout)
    return run


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--late", type=float, metavar="MS")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-partitions-") as name:
        folder = Path(name) / "events"
        make(folder, arguments.partitions, arguments.files, arguments.rows)
        place = Local() if arguments.late is None else Late(arguments.late / 1000)
        try:
            for _ in range(arguments.rounds):
                for how in HOW:
                    run = measure(folder, place, how)
                    print(
                        f"{how:<17} {run['groups']:>6} groups {run['wall_s']:>7.2f} s "
                        f"{run['cpu_s']:>7.2f} s of processor time {run['rss'] / 1e6:>5.0f} MB",
                        flush=True,
                    )
        finally:
            place.stop()


if __name__ == "__main__":
    main()
