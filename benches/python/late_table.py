"""Calls on a Delta table of small objects whose answers wait.

    .venv/bin/python benches/python/late_table.py [--files 200] [--commits 100] [--late 20]

The objects are on an S3 server of this machine (moto, the extra `test`), each answer of which waits
for so many milliseconds more. Prints the seconds of each call.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import compact_partitions

CALLS = """
import json, sys, time
import pyarrow as pa
import plait

url, options, commits = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])

def timed(name, call):
    begin = time.perf_counter()
    made = call()
    print(f"{name:<32} {time.perf_counter() - begin:>7.2f} s", flush=True)
    return made

def table():
    return plait.Table(url, storage_options=options)

timed("adopt", lambda: plait.adopt(url, sort_by="k", storage_options=options))
report = timed("verify", lambda: table().verify())
assert report.ok, report
row = plait.read(url, storage_options=options, limit=1)
first = pa.table(row).select(["k", "host", "value", "count", "message"])
days = pa.array([f"{day:04}" for day in range(report.files)])
rows = pa.concat_tables([first] * report.files).append_column("day", days)
timed(f"append to {report.files} partitions", lambda: table().append(rows))
writer = table()
timed(f"{commits} appends", lambda: [writer.append(rows.slice(0, 1)) for _ in range(commits)])
timed("open", lambda: table().files())
timed(f"history of {commits + 2} commits", lambda: table().history())
timed("expire", lambda: table().expire("365d", yes=False))
"""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--late", type=float, default=20, metavar="MS")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-late-table-") as name:
        folder = Path(name) / "events"
        compact_partitions.make(folder, arguments.files, 1, 100)
        place = compact_partitions.Late(arguments.late / 1000)
        try:
            with place.copy(folder) as (url, options):
                command = [sys.executable, "-c", CALLS, url, options, str(arguments.commits)]
                subprocess.run(command, check=True)
        finally:
            place.stop()


if __name__ == "__main__":
    main()
