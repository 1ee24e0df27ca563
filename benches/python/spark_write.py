"""Writing unsorted rows as sorted runs on Spark: the format `plait` with `sort=true`, and Spark's sort.

    python benches/python/spark_write.py [--rows 4000000] [--tasks 4] [--rounds 3]

    plait      df.write.format("plait").option("sort", "true"): each task sorts in bounded memory
    presorted  df.sortWithinPartitions(...).write.format("plait"): Spark sorts, the sink checks
    parquet    df.sortWithinPartitions(...).write.parquet(...): Spark sorts and writes

Rows have the shape of W1's metrics, in random order, and are read from Parquet by each tool. One
process a run; the tools take turns. Time, processor time and memory are those of `spark_compact.py`.
The files of each task are checked: sorted, and all rows are there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import spark_compact
import workloads

TOOLS = ("plait", "presorted", "parquet")


def make(folder: Path, rows: int, tasks: int) -> None:
    """Files of metrics whose rows are in random order, one for each task."""
    each = rows // tasks
    series = workloads.make_series(rows)
    for i in range(tasks):
        table = workloads.metrics_file(series, each, i)
        fixed = [
            field.with_type(pa.binary()) if pa.types.is_fixed_size_binary(field.type) else field
            for field in table.schema
        ]
        order = np.random.default_rng(i).permutation(table.num_rows)
        pq.write_table(table.cast(pa.schema(fixed)).take(order), folder / f"{i:03}.parquet")


def run_one(job: dict) -> dict:
    """One tool in this process: what it took, and whether the files are right."""
    import plait
    from plait import spark as ps
    from pyspark.sql import functions

    spark = spark_compact.start_spark(
        job["master"],
        # One task for each file, whatever its size.
        **{
            "spark.sql.files.maxPartitionBytes": str(1 << 40),
            "spark.sql.files.openCostInBytes": str(1 << 40),
        },
    )
    ps.register(spark)
    keys = [
        functions.col(column).desc_nulls_last() if down else functions.col(column).asc_nulls_last()
        for column, down in workloads.METRICS_KEY
    ]

    def write(frame, out: str) -> None:
        if job["tool"] != "plait":
            frame = frame.sortWithinPartitions(*keys)
        if job["tool"] == "parquet":
            frame.write.parquet(out)
            return
        writer = frame.write.format("plait").mode("append").option("sort_by", job["sort_by"])
        if job["tool"] == "plait":
            writer = writer.option("sort", "true").option("memory_limit", job["memory_limit"])
        writer.save(out)

    frame = spark.read.parquet(job["folder"])
    write(frame.limit(1000), job["out"] + "-warm")
    sampler = spark_compact.Sampler()
    sampler.start()
    used = sum(cpu for _, cpu, _ in spark_compact.processes().values())
    started = time.perf_counter()
    try:
        write(frame, job["out"])
        found = {"wall_s": time.perf_counter() - started}
    finally:
        sampler.is_done.set()
    found["cpu_s"] = sum(cpu for _, cpu, _ in spark_compact.processes().values()) - used
    found |= {"all_bytes": sampler.all_max, "worker_bytes": sampler.worker_max}
    spark.stop()
    files = sorted(str(path) for path in Path(job["out"]).rglob("*.parquet"))
    found["files"] = len(files)
    found["right"] = sum(pq.read_metadata(path).num_rows for path in files) == job["rows"] and all(
        plait.verify(path, sort_by=job["sort_by"]).ok for path in files
    )
    return found


def run_apart(job: dict) -> dict:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--one", json.dumps(job)],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    for after in ("", "-warm"):
        shutil.rmtree(job["out"] + after, ignore_errors=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    parser.add_argument("--memory-limit", default="256MB", help="of a task of Plait")
    parser.add_argument("--data", type=Path, help="where files go for a while")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run_one(json.loads(given.one))))
        return
    with tempfile.TemporaryDirectory(dir=given.data) as scratch:
        folder = Path(scratch, "in")
        folder.mkdir()
        make(folder, given.rows, given.tasks)
        order = ", ".join(("-" if down else "") + name for name, down in workloads.METRICS_KEY)
        job = {
            "folder": str(folder),
            "rows": given.rows // given.tasks * given.tasks,
            "sort_by": order,
            "master": given.master,
            "memory_limit": given.memory_limit,
        }
        best: dict[str, dict] = {}
        for number in range(given.rounds):
            for tool in TOOLS:
                run = run_apart(job | {"tool": tool, "out": str(Path(scratch, f"out-{number}"))})
                best[tool] = min(best.get(tool, run), run, key=lambda run: run["wall_s"])
    print(f"{job['rows']:,} rows in {given.tasks} tasks, {given.master}, best of {given.rounds}\n")
    print("| tool | time | processor time | memory, all | memory, worker | checked |")
    print("|---|---:|---:|---:|---:|---|")
    for tool, run in best.items():
        held = "rows, order" if run["right"] else "WRONG"
        memory = [f"{run[name] / 1e6:,.0f} MB" for name in ("all_bytes", "worker_bytes")]
        print(
            f"| {tool} | {run['wall_s']:.1f} s | {run['cpu_s']:.1f} s | {' | '.join(memory)} | {held} |"
        )


if __name__ == "__main__":
    main()
