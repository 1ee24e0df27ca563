"""Batches in any order into sorted files: `plait.RunWriter`, from `write` to closed files.

    python benches/python/run_writer.py [--rows 10000000,40000000] [--memory-limit 256MB]

Batches of 10,000 rows have the shape of W1, in random order. A pool of them is made first and
written again and again, each time at later times, so that no reader of files takes part. One
process a run. Memory is that of the process above what it had before the writer was made.
The files are checked: sorted by `plait.verify`, and all rows are there.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import one_run
import pyarrow as pa
import pyarrow.compute as pc
import workloads

BATCH_ROWS = 10_000
POOL_ROWS = 500_000
TIME = "timestamp_secs"


def batches(rows: int):
    """Batches of the shape of W1 whose rows are in random order; the pool is made at once."""
    table = workloads.metrics_file(workloads.make_series(8_000_000), POOL_ROWS, 0)
    table = table.take(np.random.default_rng(workloads.SEED).permutation(POOL_ROWS))
    pool = table.combine_chunks().to_batches(BATCH_ROWS)
    place = table.schema.get_field_index(TIME)
    field = table.schema.field(place)

    def later():
        for number in range(rows // BATCH_ROWS):
            round_, index = divmod(number, len(pool))
            shift = pa.scalar(round_ * POOL_ROWS, pa.int64())
            times = pc.add(pool[index].column(place).cast(pa.int64()), shift).cast(field.type)
            yield pool[index].set_column(place, field, times)

    return later()


def run_one(job: dict) -> dict:
    """One run in this process: what it took, and whether the files are right."""
    import plait

    made = batches(job["rows"])
    key = workloads.sort_by("W1")
    start = one_run.peak_rss_bytes()
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    with plait.RunWriter(
        job["out"], sort_by=key, memory_limit=job["memory_limit"], threads=2
    ) as writer:
        for batch in made:
            writer.write(batch)
    wall_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    rss_bytes = one_run.peak_rss_bytes()
    rows = sum(report.rows_out for report in writer.reports)
    is_right = rows == job["rows"] and plait.verify(job["out"], sort_by=key).ok
    return {
        "rows_s": round(job["rows"] / wall_s),
        "wall_s": wall_s,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "rss_bytes": rss_bytes,
        "more_bytes": rss_bytes - start,
        "accounted_bytes": max(
            r.to_dict()["memory"]["peak_accounted_bytes"] for r in writer.reports
        ),
        "checked": is_right,
    }


def main() -> None:
    """Runs one process for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default="10000000,40000000")
    parser.add_argument("--memory-limit", default="256MB")
    parser.add_argument("--data", help="where files go for a while")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        print(json.dumps(run_one(json.loads(given.job))))
        return
    print("| rows | rows/s | s | cpu s | MB accounted | MB above the start | MB in all | checked |")
    print("|---:|---:|---:|---:|---:|---:|---:|---|")
    for rows in map(int, given.rows.split(",")):
        folder = Path(tempfile.mkdtemp(dir=given.data))
        job = {"rows": rows, "memory_limit": given.memory_limit, "out": str(folder / "out")}
        try:
            command = [sys.executable, __file__, "--job", json.dumps(job)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if ran.returncode:
            print(f"| {rows:,} | failed: {ran.stderr.strip().splitlines()[-1]} |")
            continue
        took = json.loads(ran.stdout)
        memory = (took["accounted_bytes"], took["more_bytes"], took["rss_bytes"])
        shown = " | ".join(f"{size / 1e6:.0f}" for size in memory)
        print(
            f"| {rows:,} | {took['rows_s']:,} | {took['wall_s']:.1f} | {took['cpu_s']:.1f}"
            f" | {shown} | {'order and rows' if took['checked'] else 'WRONG'} |"
        )


if __name__ == "__main__":
    main()
