"""Requests per merged gigabyte and peak memory of a merge between objects, and of one between files.

    .venv/bin/python benches/python/object_store.py [--megabytes 256] [--sources 8]

Sources and outputs are on an S3 server of this machine (moto, the extra `test`); a proxy before it
counts. What is told by kind of request: looks (HEAD), reads (GET), lists, parts and the ends of
uploads. Times are those of the server, mostly; requests and memory are ours.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

import s3_server  # noqa: E402 - among the tests

MERGE = """
import json, sys, time, plait
sources, out, limit, options = json.loads(sys.argv[1])
started = time.monotonic()
report = plait.merge(sources, out, sort_by="host, ts", outputs=4, memory_limit=limit,
                     storage_options=options)
print(json.dumps({
    "bytes": sum(o.bytes for o in report.outputs), "rows": report.rows_out,
    "accounted": report.memory.peak_accounted_bytes, "seconds": time.monotonic() - started,
    "rss": int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024,
}))
"""


def make(folder: Path, megabytes: int, sources: int, *, index: bool) -> None:
    numbers = np.random.default_rng(7)
    rows = megabytes * 1_000_000 // sources // 28
    for part in range(sources):
        host = np.sort(numbers.integers(0, 200, rows))
        table = pa.table(
            {
                "host": pa.array([f"host-{n:04}" for n in range(200)]).take(pa.array(host)),
                "ts": np.arange(rows) * sources + part,
                "value": numbers.random(rows),
                "noise": numbers.integers(0, 2**62, rows),
                "code": numbers.integers(0, 50, rows),
            }
        )
        # In order of host, then ts: ts grows with the row.
        pq.write_table(
            table, folder / f"{part:03}.parquet", row_group_size=500_000, write_page_index=index
        )


def kind(method: str, path: str) -> str:
    query = urlsplit(path).query
    if "list-type" in query:
        return "list"
    if "partNumber" in query:
        return "part"
    if "upload" in query.lower():
        return "upload"
    return {"HEAD": "look", "GET": "read"}.get(method, method)


def merge(sources: str, out: str, limit: str, options: dict[str, str]) -> dict[str, float]:
    ran = subprocess.run(
        [sys.executable, "-c", MERGE, json.dumps([sources, out, limit, options])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def run(folder: Path, asked, server, proxy, *, index: bool) -> None:
    (folder / "in").mkdir()
    make(folder / "in", asked.megabytes, asked.sources, index=index)
    prefix = f"bench/{index}"
    for file in sorted((folder / "in").iterdir()):
        server.request("PUT", f"/{prefix}/in/{file.name}", file.read_bytes())
    for limit in ("64MB", "512MB"):
        for where in ("files", "objects"):
            options, sources, out = {}, str(folder / "in"), str(folder / f"out-{limit}")
            if where == "objects":
                options = server.options(proxy.url)
                sources, out = f"s3://{prefix}/in", f"s3://{prefix}/out-{limit}"
            proxy.log.clear()
            ran = merge(sources, out, limit, options)
            kinds = Counter(kind(method, path) for method, path in proxy.log)
            per_gb = len(proxy.log) / (ran["bytes"] / 1e9)
            counts = "".join(f"{kinds[k]:>6}" for k in ("look", "read", "list", "part"))
            what = f"{where}, {'yes' if index else 'no'}"
            print(
                f"{what:<15}  {limit:>8}  {per_gb:>11.0f}{counts}{kinds['upload']:>8}"
                f"  {ran['accounted'] / 1e6:>6.1f} MB  {ran['rss'] / 1e6:>4.0f} MB"
                f"  {ran['seconds']:>5.1f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--sources", type=int, default=8)
    asked = parser.parse_args()
    server = s3_server.Server()
    proxy = s3_server.Proxy(server)
    try:
        server.request("PUT", "/bench")
        print("from, to, index     limit  requests/GB  look  read  list  part  upload"
              "  accounted     rss     time")  # fmt: skip
        for index in (False, True):
            with tempfile.TemporaryDirectory() as name:
                run(Path(name), asked, server, proxy, index=index)
    finally:
        proxy.stop()
        server.stop()


if __name__ == "__main__":
    main()
