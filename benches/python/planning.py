"""Plans of many small files: processor time and memory, by the number of files.

    .venv/bin/python benches/python/planning.py [--files 1000,10000,100000] [--rounds 3] [--overlap all]
    .venv/bin/python benches/python/planning.py --files 100000 --spark
    .venv/bin/python benches/python/planning.py --files 10000 --objects [--delay 20ms] [--merge]

Files of 800 rows by text and number, each of which overlaps its neighbours, or all others. Every plan
is made in a process of its own; the least time and processor time of the rounds are printed, and the
most memory; then what it takes to make all of its tasks JSON. With `--spark`, two executors with a
core each read the footers and merge the files; seconds, and what the driver takes, are printed. With
`--objects`, the files are objects of an S3 server on loopback (`benches/go/store`, needs Go) that are
planned or merged once; requests are printed, too, each of which is answered after the delay.
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
from late_store import late_store

SERIES = 40
OPTIONS = {"target_file_size": "2MB"}, {"outputs": 1}

MEASURE = """
import json, sys, time
from pathlib import Path
import plait

def peak_bytes():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))

folder, count, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
paths = [f"{folder}/{i // 1000:03}/{i:06}.parquet" for i in range(count)]
before, processor, begin = peak_bytes(), time.process_time(), time.perf_counter()
plan = plait.plan(paths, sort_by="name, ts", **options)
cpu_s, wall_s = time.process_time() - processor, time.perf_counter() - begin
grown, processor = peak_bytes() - before, time.process_time()
sent = sum(len(task.to_json()) for task in plan.tasks)
print(json.dumps({
    "cpu_s": cpu_s, "wall_s": wall_s, "task_s": time.process_time() - processor, "sent": sent,
    "bytes": grown, "tasks": len(plan.tasks), "depth": plan.overlap.depth_max,
}))
"""


ON_SPARK = """
import json, sys, time
from pathlib import Path
import plait.spark
from pyspark.sql import SparkSession

def peak_bytes():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))

folder, out = Path(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.master("local-cluster[2,1,3072]").getOrCreate()
spark.range(10).count()
before, processor, begin = peak_bytes(), time.process_time(), time.perf_counter()
folders = sorted(map(str, folder.iterdir()))
report = plait.spark.compact(spark, folders, out, sort_by="name, ts", target_file_size="16MB")
cpu_s, wall_s = time.process_time() - processor, time.perf_counter() - begin
print(json.dumps({"cpu_s": cpu_s, "wall_s": wall_s, "bytes": peak_bytes() - before}))
"""


ON_OBJECTS = """
import json, sys, time
from pathlib import Path
import plait

def peak_bytes():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))

options = {"endpoint_url": sys.argv[1], "allow_http": "true", "region": "us-east-1",
           "access_key_id": "key", "secret_access_key": "secret"}
how = {"sort_by": "name, ts", "target_file_size": "16MB", "storage_options": options}
before, processor, begin = peak_bytes(), time.process_time(), time.perf_counter()
if sys.argv[2]:
    done = plait.merge("s3://objects/", sys.argv[2], **how)
    outputs = len(done.outputs)
else:
    done = plait.plan("s3://objects/", **how)
    outputs = len(done.tasks)
cpu_s, wall_s = time.process_time() - processor, time.perf_counter() - begin
print(json.dumps({"cpu_s": cpu_s, "wall_s": wall_s, "bytes": peak_bytes() - before,
                  "files": len(done.sources), "outputs": outputs}))
"""


def measure_objects(folder: Path, delay: str, *, merges: bool) -> None:
    """A plan or merge of the folder's files as objects: prints seconds, memory and requests."""
    with (
        tempfile.TemporaryDirectory(prefix="plait-planned-") as out,
        late_store(folder, delay) as (url, requests),
    ):
        command = [sys.executable, "-c", ON_OBJECTS, url, out if merges else ""]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        counted = requests()
    run = json.loads(ran.stdout)
    print(
        f"{run['files']:,} objects in {run['outputs']} outputs: {run['wall_s']:.1f} s, "
        f"{run['cpu_s']:.1f} s of processor time, {run['bytes'] / run['files'] / 1000:.1f} KB/object; "
        f"{counted}"
    )


def measure_on_spark(folder: Path, files: int) -> None:
    """A compaction of all files on executors: prints seconds and memory of the driver."""
    with tempfile.TemporaryDirectory(prefix="plait-planned-") as out:
        command = [sys.executable, "-c", ON_SPARK, folder, out]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    run = json.loads(ran.stdout.splitlines()[-1])
    print(
        f"{files:,} files on Spark: {run['wall_s']:.1f} s; the driver: {run['cpu_s']:.1f} s of "
        f"processor time, {run['bytes'] / files / 1000:.1f} KB/file"
    )


def make(folder: Path, files: int, overlap: str, rows: int, payload: int) -> None:
    """Files of which each begins in the middle of the one before, or at the smallest key.

    Each row has so many bytes of a payload that does not compress.
    """
    rng = np.random.default_rng(7)
    for i in range(files):
        low, count = (0, rows * files // 4) if overlap == "all" else (i * SERIES // 2, SERIES)
        names = np.sort(rng.integers(low, low + count, rows))
        table = pa.table(
            {
                "name": pa.array([f"series-{name:08}" for name in names.tolist()]),
                "ts": pa.array(np.arange(rows)),
                "value": pa.array(rng.normal(size=rows)),
            }
        )
        if payload:
            table = table.append_column("payload", [[rng.bytes(payload) for _ in range(rows)]])
        path = folder / f"{i // 1000:03}" / f"{i:06}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)


def main() -> None:
    """Makes the files, measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", default="1000,2000,4000,8000,16000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overlap", choices=("neighbours", "all"), default="neighbours")
    parser.add_argument("--rows", type=int, default=800, help="of each file")
    parser.add_argument("--payload", type=int, default=0, help="bytes of each row on top")
    parser.add_argument("--spark", action="store_true", help="the most files, on executors")
    parser.add_argument("--objects", action="store_true", help="the most files, as objects")
    parser.add_argument("--delay", default="0s", help="of each answer of the server, as 20ms")
    parser.add_argument("--merge", action="store_true", help="merge the objects")
    parser.add_argument("--folder", type=Path, help="where the files are made, and stay")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.files.split(",")]
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="plait-planning-"))
    try:
        if not (folder / f"{(max(counts) - 1) // 1000:03}").exists():
            make(folder, max(counts), arguments.overlap, arguments.rows, arguments.payload)
        if arguments.spark:
            measure_on_spark(folder, max(counts))
            return
        if arguments.objects:
            measure_objects(folder, arguments.delay, merges=arguments.merge)
            return
        print(
            f"{'files':>8} {'options':<26} {'s':>7} {'cpu s':>7} {'ms/file':>8} {'KB/file':>8} "
            f"{'tasks s':>8} {'tasks MB':>8} outputs"
        )
        for count in counts:
            for options in OPTIONS:
                command = [sys.executable, "-c", MEASURE, folder, str(count), json.dumps(options)]
                rounds = []
                for _ in range(arguments.rounds):
                    ran = subprocess.run(command, check=True, capture_output=True, text=True)
                    rounds.append(json.loads(ran.stdout))
                cpu_s = min(run["cpu_s"] for run in rounds)
                most = max(run["bytes"] for run in rounds)
                named = ", ".join(f"{name}={value!r}" for name, value in options.items())
                print(
                    f"{count:>8,} {named:<26} {min(run['wall_s'] for run in rounds):>7.2f} "
                    f"{cpu_s:>7.2f} {1000 * cpu_s / count:>8.3f} {most / count / 1000:>8.1f} "
                    f"{min(run['task_s'] for run in rounds):>8.2f} {rounds[0]['sent'] / 1e6:>8.1f} "
                    f"{rounds[0]['tasks']}, {rounds[0]['depth']} deep",
                    flush=True,
                )
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
