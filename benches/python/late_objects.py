"""Merges, sorts, scans, reads and checks of objects that answer late.

    .venv/bin/python benches/python/late_objects.py [--workload W1] [--delay 20ms] [--no-index]
    .venv/bin/python benches/python/late_objects.py --rows 20000      16 objects become 400 of W1

The sources of a workload (`workloads.py`) are the objects of an S3 server on loopback
(`benches/go/store`, needs Go). Outputs are local files. Each call runs in a process of its own and
prints its time, processor time, requests, bytes received and peak memory. With `--no-index`, PyArrow
writes the sources again, without page indexes and in row groups of 200,000 rows; with `--rows`, in
files of so many rows, which overlap as the sources do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import workloads
from late_store import late_store

ROOT = Path(__file__).resolve().parents[2]

CALLS = {
    "merge into one": {"outputs": 1},
    "merge into files of 128 MB": {"target_file_size": "128MB"},
    "merge with 64 MB of memory": {"target_file_size": "128MB", "memory_limit": "64MB"},
    "scan": None,
    "sorted read": None,
    "verify": None,
    "sort": None,
}

RUN = """
import json, sys, time
import plait

call, options, out, sort_by, url = json.loads(sys.argv[1])
how = {"endpoint_url": url, "allow_http": "true", "region": "us-east-1",
       "access_key_id": "key", "secret_access_key": "secret"}
sources, received = "s3://objects/*.parquet", None
processor, begin = time.process_time(), time.perf_counter()
if options:
    done = plait.merge(sources, out, sort_by=sort_by, storage_options=how, **options)
    received = done.metrics.received_bytes
elif call == "scan":
    rows = sum(batch.num_rows for batch in plait.scan(sources, storage_options=how))
elif call == "verify":
    try:
        plait.verify(sources, sort_by=sort_by, storage_options=how)
    except plait.VerificationFailed as error:
        assert "overlap" in str(error)
elif call == "sort":
    done = plait.sort(sources, out, sort_by=sort_by.split(",")[-1].strip("- "), storage_options=how)
    received = done.metrics.received_bytes
else:
    rows = sum(batch.num_rows for batch in plait.read(sources, sort_by=sort_by, storage_options=how))
wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - processor
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "received": received,
                  "bytes": int(peak.split()[1]) * 1024}))
"""


def rewritten(sources: Path, folder: Path, rows: int | None, index: bool) -> Path:
    """The same rows in files of at most `rows` rows, with or without page indexes."""
    for path in sorted(sources.glob("*.parquet")):
        table = pq.read_table(path)
        for start in range(0, table.num_rows, rows or table.num_rows):
            pq.write_table(
                table.slice(start, rows),
                folder / f"{path.stem}-{start:08}.parquet",
                row_group_size=200_000,
                compression="zstd",
                write_page_index=index,
            )
    return folder


def main() -> None:
    """Makes the workload, runs each call, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", default="W1")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--delay", default="20ms", help="of each answer of the server")
    parser.add_argument("--no-index", action="store_true", help="sources without page indexes")
    parser.add_argument("--rows", type=int, help="rows of each source")
    parser.add_argument("--calls", default=",".join(CALLS), help="those that run")
    arguments = parser.parse_args()
    sources = ROOT / "bench-data" / f"{arguments.workload}-{arguments.scale:g}"
    workloads.prepare(arguments.workload, sources, arguments.scale)
    with tempfile.TemporaryDirectory(prefix="plait-late-") as scratch:
        if arguments.no_index or arguments.rows:
            folder = Path(scratch, "sources")
            folder.mkdir()
            sources = rewritten(sources, folder, arguments.rows, not arguments.no_index)
        for call in arguments.calls.split(","):
            with late_store(sources, arguments.delay) as (url, requests):
                out = f"{scratch}/{'-'.join(call.split())}/"
                asked = call, CALLS[call], out, workloads.sort_by(arguments.workload), url
                ran = subprocess.run(
                    [sys.executable, "-c", RUN, json.dumps(asked)],
                    check=True,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                run, counted = json.loads(ran.stdout), requests()
            received = f", {run['received'] / 1e6:,.0f} MB received" if run["received"] else ""
            print(
                f"{call}: {run['wall_s']:.1f} s, {run['cpu_s']:.1f} s of processor time, "
                f"{counted}{received}, {run['bytes'] / 1e6:.0f} MB of memory",
                flush=True,
            )


if __name__ == "__main__":
    main()
