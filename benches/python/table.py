"""Tables: appends until they are committed, a compaction of a day of hours, a log of 100,000 files.

    .venv/bin/python benches/python/table.py append compact open --rounds 3
    .venv/bin/python benches/python/table.py --peer-python peers/bin/python     timelake and pypaimon, where that has them

`append` takes 60 batches of 10,000 rows in any order. `compact` merges 24 hourly files of 250,000 rows of
a time series table into one. `open` reads a log of 10,000 commits and 100,000 files, with a checkpoint.
Every tool runs in a process of its own, in turn, as often as there are rounds. Processor time is of all
its threads, and the least of the rounds; beside it the time that passed then, which others on the machine
stretch. A tool that is not installed is a line that says so. What each does is not the same:

    plait                    sorts each batch; merges by name and time; syncs files and commits
    delta-rs                 writes rows as they come; concatenates files
    delta-rs, sorted before  batches are sorted by PyArrow before
    delta-rs, z-order        sorts by a curve through the columns
    timelake                 sorts each batch; merges by name and time; keeps an index of last values
    pypaimon                 writes rows as they come; merges nothing, which Paimon's Java jobs do
    pypaimon, keyed          a table with primary keys: sorts each batch
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BATCH, BATCHES = 10_000, 60
HOUR, HOURS = 250_000, 24
COMMITS, PER_COMMIT = 10_000, 10
SERIES = 1_000
LIMIT = "256MB"
ORDER = "name, ts"
BY = [("name", "ascending"), ("ts", "ascending")]
PEERS = ("timelake", "pypaimon")  # of another interpreter, if one is given


def rows(count: int, seed: int, start: int = 0, span: int = 3_600) -> pa.Table:
    """Rows of a time series table, in any order."""
    rng = np.random.default_rng(seed)
    names = np.array([f"host-{i:04}.cpu.user" for i in range(SERIES)])
    columns = {
        "name": names[rng.integers(0, SERIES, count)],
        "ts": pa.array((start + rng.integers(0, span, count)) * 1_000_000, pa.timestamp("us")),
        "value": rng.normal(size=count),
        "code": rng.integers(0, 5, count),
    }
    return pa.table(columns)


# -- tools: each gives a call that appends, and one that compacts, if it can -----------------------

Tool = tuple[Callable[[pa.Table], object], Callable[[], object] | None]


def plait_table(folder: Path) -> Tool:
    import plait

    table = plait.Table(folder, sort_by=ORDER)
    return (
        lambda batch: table.append(batch, memory_limit=LIMIT),
        lambda: table.compact(policy="full", memory_limit=LIMIT),
    )


def delta_rs(folder: Path, before: str = "", how: str = "compact") -> Tool:
    import deltalake

    def append(batch: pa.Table) -> None:
        batch = batch.sort_by(BY) if before else batch
        deltalake.write_deltalake(folder, batch, mode="append")

    def compact() -> object:
        optimize = deltalake.DeltaTable(folder).optimize
        if how == "compact":
            return optimize.compact(target_size=1 << 30)
        return optimize.z_order(["name", "ts"], target_size=1 << 30)

    return append, compact


def timelake(folder: Path) -> Tool:
    import timelake

    lake = timelake.Lake(str(folder))
    schema = in_zone(rows(1, 0)).schema
    how = {"time_column": "ts", "series_key": ["name"], "chunk": "day"}
    table = lake.create_table("m.cpu", schema, **how, dedup=False, ingest_time=False)
    return lambda batch: table.append(in_zone(batch), maintain=False), table.maintain


def in_zone(batch: pa.Table) -> pa.Table:
    """The same moments; a table of timelake has a zone."""
    at = batch.schema.get_field_index("ts")
    return batch.set_column(at, "ts", batch["ts"].cast(pa.timestamp("us", "UTC")))


def pypaimon(folder: Path, keys: list[str] | None = None) -> Tool:
    from pypaimon import CatalogFactory, Schema

    catalog = CatalogFactory.create({"warehouse": folder.as_uri()})
    catalog.create_database("m", True)
    options = {"bucket": "1"} if keys else {}
    schema = Schema.from_pyarrow_schema(rows(1, 0).schema, primary_keys=keys, options=options)
    catalog.create_table("m.cpu", schema, False)
    table = catalog.get_table("m.cpu")

    def append(batch: pa.Table) -> None:
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(batch)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    return append, None


TOOLS: dict[str, Callable[[Path], Tool]] = {
    "plait": plait_table,
    "delta-rs": delta_rs,
    "delta-rs, sorted before": lambda folder: delta_rs(folder, before=ORDER),
    "delta-rs, z-order": lambda folder: delta_rs(folder, how="z_order"),
    "timelake": timelake,
    "pypaimon": pypaimon,
    "pypaimon, keyed": lambda folder: pypaimon(folder, ["name", "ts", "code"]),
}
PARTS = {
    "append": [tool for tool in TOOLS if "z-order" not in tool],
    "compact": ["plait", "delta-rs", "delta-rs, z-order", "timelake"],
    "open": ["plait", "delta-rs"],
}


# -- one measurement, in a process of its own ------------------------------------------------------


def measured(call: Callable[[], object]) -> dict[str, float]:
    """Processor time of all threads, and time that passed."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    call()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    return {"cpu": cpu, "wall": wall, "peak_mib": peak / 1024}


def one_append(tool: str, folder: Path) -> dict[str, float]:
    batches = [rows(BATCH, seed) for seed in range(BATCHES)]
    append, _ = TOOLS[tool](folder)
    append(rows(BATCH, BATCHES))  # the table is made, and everything is loaded
    waits = []

    def work() -> None:
        for batch in batches:
            began = time.perf_counter()
            append(batch)
            waits.append(time.perf_counter() - began)

    return {**measured(work), "median_ms": sorted(waits)[BATCHES // 2] * 1000}


def one_compact(tool: str, folder: Path) -> dict[str, float | str]:
    append, compact = TOOLS[tool](folder)
    for hour in range(HOURS):
        append(rows(HOUR, hour, hour * 3_600))
    found = measured(compact)
    made = max(folder.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    meta = pq.read_metadata(made)
    if meta.num_rows != HOURS * HOUR:
        raise AssertionError(f"{meta.num_rows:,} rows in the largest file")
    codec = meta.row_group(0).column(0).compression.lower()
    return {**found, "mb": made.stat().st_size / 1e6, "codec": codec}


def one_open(tool: str, folder: Path) -> dict[str, float]:
    if tool == "plait":
        from plait._logs.delta import DeltaLog

        def resident() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        log, before = DeltaLog(str(folder), None), resident()
        found = measured(log.snapshot)
        grown = resident() - before
        return {**found, "bytes_per_file": grown / len(log.files())}
    import deltalake

    return measured(lambda: deltalake.DeltaTable(folder).file_uris())


ONE = {"append": one_append, "compact": one_compact, "open": one_open}


def make_log(folder: Path) -> None:
    """A log of 10,000 commits; the one after them writes a checkpoint."""
    import plait

    table = plait.Table(folder, sort_by=ORDER)
    table.append(rows(10, 0))
    log = folder / "_delta_log"
    (first,) = log.glob("*0.json")
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.checkpointInterval"] = str(COMMITS)
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    add = next(action["add"] for action in actions if "add" in action)
    info = next(action for action in actions if "commitInfo" in action)
    for version in range(1, COMMITS):
        lines = [json.dumps(info)]
        for i in range(PER_COMMIT):
            name = f"part-00000-{version:016x}-{i:016x}.parquet"
            lines.append(json.dumps({"add": {**add, "path": name, "tags": None}}))
        (log / f"{version:020}.json").write_text("\n".join(lines) + "\n")
    made = measured(lambda: plait.Table(folder).append(rows(10, 1)))
    files = COMMITS * PER_COMMIT
    print(f"open     a commit with a checkpoint of {files:,} files: {made['cpu']:.2f} s")


# -- all of them, in turn --------------------------------------------------------------------------


def run(tool: str, part: str, folder: Path, python: str) -> dict[str, float] | str:
    """One measurement; why there is none."""
    interpreter = python if tool.startswith(PEERS) else sys.executable
    command = [interpreter, __file__, "--one", part, tool, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    return (done.stderr.strip().splitlines() or ["killed"])[-1]


def compare(part: str, rounds: int, python: str, wanted: list[str]) -> None:
    found: dict[str, list[dict[str, float]]] = {}
    missing: dict[str, str] = {}
    folder = Path(tempfile.mkdtemp(prefix="plait-table-"))
    try:
        if part == "open":
            make_log(folder / "log")
        for _ in range(rounds):
            for tool in wanted:
                if tool in missing:
                    continue
                at = folder / ("log" if part == "open" else "one")
                told = run(tool, part, at, python)
                if isinstance(told, str):
                    missing[tool] = told
                else:
                    found.setdefault(tool, []).append(told)
                if part != "open":
                    shutil.rmtree(at, ignore_errors=True)
    finally:
        shutil.rmtree(folder)
    count = {"append": BATCH * BATCHES, "compact": HOUR * HOURS}.get(part)
    ours = min((one["cpu"] for one in found.get("plait", [])), default=None)
    for tool in wanted:
        if tool in missing:
            print(f"{part:8} {tool:24} not measured: {missing[tool]}")
            continue
        best = min(found[tool], key=lambda one: one["cpu"])
        line = f"{part:8} {tool:24} {best['cpu']:7.2f} s of processor"
        line += f"   {best['cpu'] / ours:5.2f} x" if ours else ""
        line += f"   {best['wall']:7.2f} s passed   peak {best['peak_mib']:5,.0f} MiB"
        if count:
            line += f"   {count / best['cpu']:9,.0f} rows/s of processor"
        for name, unit in (("median_ms", "ms an append"), ("bytes_per_file", "bytes a file")):
            if name in best:
                line += f"   {min(one[name] for one in found[tool]):,.0f} {unit}"
        if "codec" in best:
            line += f"   {best['mb']:.0f} MB, {best['codec']}"
        print(line, flush=True)


def main() -> None:
    """Measures the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tools", default="", help="those whose names begin so, by comma")
    parser.add_argument("--peer-python", default=sys.executable, help="has timelake and pypaimon")
    parser.add_argument("--one", nargs=3, metavar=("PART", "TOOL", "FOLDER"), help="one, as JSON")
    options = parser.parse_args()
    if options.one:
        part, tool, folder = options.one
        print(json.dumps(ONE[part](tool, Path(folder))))
        return
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} processors, load {load:.1f}, limit {LIMIT}, rounds {options.rounds}")
    for part in options.parts or PARTS:
        begins = tuple(options.tools.split(","))
        wanted = [tool for tool in PARTS[part] if tool.startswith(begins)]
        compare(part, options.rounds, options.peer_python, wanted)


if __name__ == "__main__":
    main()
