"""Partial updates: a wide table and sorted runs that change a few of its columns.

    python benches/python/updates.py [--rows 4000000] [--leaves 200] [--runs 16] [--rounds 3]
    python benches/python/updates.py --rows 1000000 --tools plait,duckdb,polars

The runs together touch `--touched` of the keys, each in the same three leaves; they do not have the
others. Each tool writes one row of each key with the last value of each column that is not null, in
the order of keys, in a process of its own; the tools take turns. Prints seconds, processor seconds,
peak memory of the process, and for Plait the share of stored bytes that were copied as pages. Sums of
all columns must agree.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOUCHED = 3
ROW_GROUP = 250_000


def column(rng: np.random.Generator, number: int, rows: int) -> pa.Array:
    """Numbers and text as tables of events have them."""
    match number % 4:
        case 0:
            return pa.array(rng.integers(0, 1000, rows))
        case 1:
            return pa.array(np.round(rng.normal(size=rows), 2))
        case 2:
            names = pa.array([f"host-{n:03}" for n in range(500)])
            indices = pa.array(rng.integers(0, 500, rows).astype(np.int32))
            return pa.DictionaryArray.from_arrays(indices, names).cast(pa.string())
        case _:
            return pa.array(rng.integers(0, 10**9, rows) * 1000)


def make(folder: Path, rows: int, leaves: int, runs: int, touched: float) -> None:
    """The table, and the runs of updates."""
    rng = np.random.default_rng(7)
    names = [f"c{n:03}" for n in range(leaves - 1)]
    writer = None
    for start in range(0, rows, ROW_GROUP):
        count = min(ROW_GROUP, rows - start)
        columns = {"k": pa.array(np.arange(start, start + count))}
        columns |= {name: column(rng, n, count) for n, name in enumerate(names)}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(folder / "00.parquet", table.schema, compression="zstd")
        writer.write_table(table, row_group_size=ROW_GROUP)
    if writer:
        writer.close()
    each = int(rows * touched / runs)
    for run in range(1, runs + 1):
        keys = np.sort(rng.choice(rows, each, replace=False))
        columns = {"k": pa.array(keys)}
        for n in range(TOUCHED):
            values = column(rng, n, each)
            is_null = pa.array(rng.random(each) < 0.3)
            columns[names[n]] = pa.compute.if_else(is_null, None, values)
        pq.write_table(pa.table(columns), folder / f"{run:02}.parquet", compression="zstd")


def plait(files: list[str], out: str, memory_limit: str) -> dict:
    import plait

    report = plait.merge(
        files, out, sort_by="k", on_duplicate="update", outputs=1, memory_limit=memory_limit
    )
    tiers = report.to_dict()["copied"]
    stored = {tier: copied["bytes"] for tier, copied in tiers.items()}
    return {"pages": (stored["page"] + stored["chunk"]) / sum(stored.values())}


def duckdb(files: list[str], out: str, memory_limit: str) -> dict:
    import duckdb

    columns = pq.read_schema(files[0]).names[1:]
    last = ", ".join(
        f"last({name} ORDER BY run) FILTER ({name} IS NOT NULL) AS {name}" for name in columns
    )
    parts = []
    for run, path in enumerate(files):
        have = set(pq.read_schema(path).names)
        picked = ", ".join(c if c in have else f"NULL AS {c}" for c in columns)
        parts.append(f"SELECT k, {run} AS run, {picked} FROM '{path}'")
    duckdb.sql(
        f"COPY (SELECT k, {last} FROM ({' UNION ALL '.join(parts)}) GROUP BY k ORDER BY k) "
        f"TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
    )
    return {}


def polars(files: list[str], out: str, memory_limit: str) -> dict:
    import polars as pl

    every = pl.concat([pl.scan_parquet(path) for path in files], how="diagonal")
    # Rows of one key keep their order.
    picked = every.group_by("k", maintain_order=True).agg(pl.all().drop_nulls().last())
    picked.sort("k").sink_parquet(out, compression="zstd")
    return {}


def polars_updates(files: list[str], out: str, memory_limit: str) -> dict:
    """What somebody writes who knows that only three columns change: `update` of a joined frame."""
    import polars as pl

    every = pl.concat([pl.scan_parquet(path) for path in files[1:]], how="diagonal")
    changes = every.group_by("k", maintain_order=True).agg(pl.all().drop_nulls().last())
    pl.scan_parquet(files[0]).update(changes, on="k", how="full").sort("k").sink_parquet(
        out, compression="zstd"
    )
    return {}


TOOLS = {"plait": plait, "duckdb": duckdb, "polars": polars, "polars_updates": polars_updates}


def run_apart(tool: str, files: list[str], out: str, memory_limit: str) -> dict:
    """One tool in a process of its own."""
    Path(out).unlink(missing_ok=True)
    os.sync()
    job = json.dumps({"tool": tool, "files": files, "out": out, "memory_limit": memory_limit})
    done = subprocess.run(
        [sys.executable, __file__, "--job", job], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [str(done.returncode)])[-1][:150]}
    return json.loads(done.stdout.splitlines()[-1])


def one(job: dict) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.perf_counter()
    facts = TOOLS[job["tool"]](job["files"], job["out"], job["memory_limit"])
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Since the process runs this program: its parent is large.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"s": seconds, "cpu": cpu, "mb": peak, **facts}))


def sums(path: str) -> list:
    """What all tools must agree on."""
    import duckdb

    schema = pq.read_schema(path)
    parts = ["count(*)"]
    for field in schema:
        text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        parts.append(f'sum(hash("{field.name}"::{"VARCHAR" if text else "DOUBLE"}))::VARCHAR')
    return list(duckdb.sql(f"SELECT {', '.join(parts)} FROM '{path}'").fetchall()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--leaves", type=int, default=200)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--touched", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--memory-limit", default="512MB")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        one(json.loads(options.job))
        return
    with tempfile.TemporaryDirectory() as home:
        make(Path(home), options.rows, options.leaves, options.runs, options.touched)
        files = sorted(str(path) for path in Path(home).glob("*.parquet"))
        size = sum(os.path.getsize(path) for path in files)
        print(
            f"{options.rows:,} rows, {options.leaves} leaves, {options.runs} runs, {size:,} bytes"
        )
        best: dict[str, dict] = {}
        agreed = None
        for _ in range(options.rounds):
            for tool in options.tools.split(","):
                out = f"{home}/out.parquet"
                found = run_apart(tool, files, out, options.memory_limit)
                print(tool, json.dumps(found), flush=True)
                if "failed" in found:
                    continue
                if tool not in best:
                    made = sums(out)
                    agreed = agreed or made
                    if made != agreed:
                        raise SystemExit(f"{tool} has other rows")
                best[tool] = min(best.get(tool, found), found, key=lambda run: run["s"])
        print("| tool | s | processor s | peak MB | copied as pages |\n|---|---|---|---|---|")
        for tool, run in best.items():
            pages = f"{run['pages']:.1%}" if "pages" in run else ""
            print(f"| {tool} | {run['s']:.2f} | {run['cpu']:.2f} | {run['mb']:.0f} | {pages} |")


if __name__ == "__main__":
    main()
