"""Ten thousand small files of three schemas: time to resolve, memory, and what adapting costs.

    .venv/bin/python benches/python/scan_many.py [--files 10000] [--rounds 5]

The same read without drift is a data set of as many files that all have the widened schema. Rounds
alternate; the least processor time of each is compared.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 50
ROWS = 200


def variant(number: int, *, drift: bool) -> pa.Table:
    """Fifty columns; with drift a third of them narrower, absent or in another order."""
    columns = {}
    for i in range(COLUMNS):
        if drift and number == 1 and i % 10 == 3:
            continue
        if i % 5 == 0:
            values, kind = [f"text {i} {row % 17}" for row in range(ROWS)], pa.string()
        else:
            narrow = drift and number == 2 and i % 5 == 1
            values, kind = (
                [row * 7 % 1000 for row in range(ROWS)],
                pa.int32() if narrow else pa.int64(),
            )
        columns[f"c{i:02}"] = pa.array(values, kind)
    if drift and number == 1:
        columns = dict(reversed(columns.items()))
    return pa.table(columns)


def make(folder: Path, files: int, *, drift: bool) -> None:
    folder.mkdir(parents=True)
    for number in range(3):
        pq.write_table(variant(number, drift=drift), folder / f"v{number}.parquet")
    data = [(folder / f"v{number}.parquet").read_bytes() for number in range(3)]
    for number in range(3):
        (folder / f"v{number}.parquet").unlink()
    for file in range(files):
        (folder / f"{file:05}.parquet").write_bytes(data[file % 3])


MEASURE = """
import json, resource, sys, time
import plait
begin = time.perf_counter()
scan = plait.scan(sys.argv[1])
resolve_s = time.perf_counter() - begin
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
processor = time.process_time()
begin = time.perf_counter()
rows = sum(len(batch) for batch in scan.to_batches())
print(json.dumps({
    "resolve_s": resolve_s, "resolve_peak_mb": peak_mb, "rows": rows,
    "read_s": time.perf_counter() - begin, "read_cpu_s": time.process_time() - processor,
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    "columns": len(scan.schema),
}))
"""


def main() -> None:
    """Makes the files, measures, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="plait-scan-"))
    try:
        for name in ("drift", "same"):
            make(root / name, arguments.files, drift=name == "drift")
        found: dict[str, list[dict[str, float]]] = {"drift": [], "same": []}
        for _ in range(arguments.rounds):
            for name, runs in found.items():
                command = [sys.executable, "-c", MEASURE, str(root / name)]
                ran = subprocess.run(command, check=True, capture_output=True, text=True)
                runs.append(json.loads(ran.stdout))
                time.sleep(0.1)
    finally:
        shutil.rmtree(root)
    drift, same = found["drift"], found["same"]
    assert {run["rows"] for run in drift + same} == {arguments.files * ROWS}
    assert {run["columns"] for run in drift + same} == {COLUMNS}

    def least(runs: list[dict[str, float]], name: str) -> float:
        return min(run[name] for run in runs)

    print(
        f"{arguments.files} files of {COLUMNS} columns and {ROWS} rows, {arguments.rounds} rounds"
    )
    print(f"resolve        {least(drift, 'resolve_s'):.2f} s")
    print(
        f"memory         {max(run['peak_mb'] for run in drift):.0f} MB at its peak, reading included"
    )
    for name in ("read_s", "read_cpu_s"):
        ours, theirs = least(drift, name), least(same, name)
        print(
            f"{name:<14} {ours:.2f} s with drift, {theirs:.2f} s without: {ours / theirs - 1:+.1%}"
        )


if __name__ == "__main__":
    main()
