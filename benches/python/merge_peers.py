"""Merges the same sorted files with Plait and with what users would otherwise use.

    python benches/python/merge_peers.py --workloads W1,W3 --scale 1 --rounds 3

One process a run; the tools take turns, so that a noisy minute hits all of them. Time and processor
time are those of the merge alone, without starting Python and importing; memory is the peak of the
whole process. Every output is checked by `plait.verify`: sorted, and the rows of the sources.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import workloads

# Processors that others may keep busy during a run that counts at once.
OTHERS_MAX = 0.15
TOOLS = ("plait", "duckdb", "datafusion", "polars", "pyarrow")
ROOT = Path(__file__).resolve().parents[2]


# -- one run: a tool in a process of its own -------------------------------------------------------


def merge_plait(job: dict):
    import plait

    # Row groups of so many rows, as the others: the limit in bytes is out of the way.
    def run():
        report = plait.merge(
            job["sources"],
            job["out"],
            sort_by=job["sort_by"],
            compression="zstd(3)",
            row_group_rows=job["row_group_rows"],
            row_group_size="1TB",
            threads=job["threads"],
        )
        return {"stages": report.to_dict()["time"], "memory": report.to_dict()["memory"]}

    return run


def merge_duckdb(job: dict):
    import duckdb

    order = ", ".join(f'"{c}" {"DESC" if down else "ASC"} NULLS LAST' for c, down in job["key"])
    database = duckdb.connect()
    database.execute(f"SET threads = {job['threads']}")
    database.execute(f"SET temp_directory = '{job['scratch']}'")
    query = (
        f"COPY (SELECT * FROM read_parquet({job['sources']!r}) ORDER BY {order}) TO '{job['out']}' "
        "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, "
        f"ROW_GROUP_SIZE {job['row_group_rows']})"
    )
    return lambda: database.execute(query)


def merge_datafusion(job: dict):
    from datafusion import SessionConfig, SessionContext, col

    config = (
        SessionConfig()
        .with_target_partitions(len(job["sources"]))  # one file a partition keeps its order
        .set("datafusion.execution.parquet.compression", "zstd(3)")
        .set("datafusion.execution.parquet.max_row_group_size", str(job["row_group_rows"]))
        .set("datafusion.optimizer.repartition_file_scans", "false")
        .set("datafusion.execution.parquet.schema_force_view_types", "false")
    )
    session = SessionContext(config)
    declared = [[col(f'"{c}"').sort(ascending=not d, nulls_first=False) for c, d in job["key"]]]
    session.register_parquet("t", job["folder"], file_sort_order=declared)
    order = ", ".join(f'"{c}" {"DESC" if down else "ASC"} NULLS LAST' for c, down in job["key"])
    query = f"COPY (SELECT * FROM t ORDER BY {order}) TO '{job['out']}' STORED AS PARQUET"
    plan = session.sql(f"EXPLAIN SELECT * FROM t ORDER BY {order}").collect()
    text = " ".join(str(row["plan"]) for batch in plan for row in batch.to_pylist())
    assert "SortPreservingMergeExec" in text, "DataFusion does not use the declared order"
    assert "SortExec" not in text, "DataFusion sorts although the order is declared"
    return lambda: session.sql(query).collect()


def merge_polars(job: dict):
    import polars as pl

    frame = pl.scan_parquet(job["sources"]).sort(
        [c for c, _ in job["key"]], descending=[d for _, d in job["key"]], nulls_last=True
    )

    def run():
        frame.sink_parquet(
            job["out"],
            compression="zstd",
            compression_level=3,
            row_group_size=job["row_group_rows"],
            maintain_order=True,
        )

    return run


def merge_pyarrow(job: dict):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(job["threads"])
    pa.set_io_thread_count(job["threads"])

    def run():
        table = pa.concat_tables([pq.read_table(path) for path in job["sources"]])
        keys = [(c, "descending" if down else "ascending") for c, down in job["key"]]
        pq.write_table(
            table.sort_by(keys),
            job["out"],
            compression="zstd",
            compression_level=3,
            row_group_size=job["row_group_rows"],
            write_page_index=True,
        )

    return run


def run_here(job: dict) -> dict:
    """Runs one tool in this process."""
    run = globals()[f"merge_{job['tool']}"](job)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    more = run()
    wall_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    facts = {"wall_s": wall_s, "cpu_s": cpu_s, "rss_bytes": peak_rss_bytes()}
    return facts | (more if isinstance(more, dict) else {})


def peak_rss_bytes() -> int:
    """Most memory this process had. Not `ru_maxrss` on Linux: that starts at the parent's."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


# -- all runs --------------------------------------------------------------------------------------


def busy_s() -> float:
    """Processor seconds that all processes together have used, where the system tells."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq = path.read_text().split()[1:8]
    ticks = sum(map(int, (user, nice, system, irq, softirq)))
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(wait_s: float) -> None:
    """Waits until others used less than a tenth of a processor for two seconds, at most `wait_s`."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        before = busy_s()
        time.sleep(2)
        if busy_s() - before < 0.2:
            return


def run_apart(job: dict, wait_s: float) -> dict:
    """Runs one tool in a process of its own and measures its output, and what others did then."""
    out = Path(job["out"])
    out.unlink(missing_ok=True)
    shutil.rmtree(job["scratch"], ignore_errors=True)
    os.makedirs(job["scratch"])
    threads = str(job["threads"])
    libraries = (
        "POLARS_MAX_THREADS",
        "TOKIO_WORKER_THREADS",
        "RAYON_NUM_THREADS",
        "OMP_NUM_THREADS",
    )
    wait_until_quiet(wait_s)
    before, started = busy_s(), time.perf_counter()
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, __file__, "--job", json.dumps(job)],
        env={**os.environ, **dict.fromkeys(libraries, threads)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"exit code {done.returncode}: {last}"}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    others = max(0.0, busy_s() - before - own_s) / (time.perf_counter() - started)
    return json.loads(done.stdout) | {"out_bytes": out.stat().st_size, "others": others}


def check(job: dict) -> str:
    """Whether the output is sorted and has the rows of the sources."""
    import plait

    try:
        report = plait.verify(
            job["out"], against=job["sources"], sort_by=job["sort_by"], check=False
        )
    except plait.SchemaConflict as conflict:
        # The tool changed a type, such as fixed-size binary to binary: rows cannot be compared.
        report = plait.verify(job["out"], sort_by=job["sort_by"], check=False)
        same = plait.verify(job["sources"], sort_by=[], check=False).rows == report.rows
        if report.ok and same:
            return f"order and count; type of {conflict.column or 'a column'} changed"
        return "; ".join(report.problems) or "rows are missing"
    if report.ok:
        return "order and rows"
    changed = report.against.columns_differ if report.against else ()
    if report.against and all(f.sorted for f in report.files) and changed:
        return "order; values of " + ", ".join(changed) + " differ"
    return "; ".join(report.problems)


def bench(name: str, arguments: argparse.Namespace) -> dict:
    """All runs of one workload."""
    folder = arguments.data / f"{name}-{arguments.scale:g}"
    facts = workloads.prepare(name, folder, arguments.scale)
    sources = sorted(map(str, folder.glob("*.parquet")))
    tools = ["plait", *(t for t in arguments.peers if t != "plait")]
    jobs = {
        tool: {
            "tool": tool,
            "folder": f"{folder}/",
            "sources": sources,
            "out": str(arguments.data / f"out-{tool}.parquet"),
            "scratch": str(arguments.data / "scratch"),
            "key": workloads.KEYS[name],
            "sort_by": workloads.sort_by(name),
            "row_group_rows": facts["row_group_rows"],
            "threads": arguments.threads,
        }
        for tool in tools
    }
    for path in sources:  # every tool finds the files in memory
        Path(path).read_bytes()
    runs: dict[str, list[dict]] = {tool: [] for tool in tools}
    checks = {}
    for turn in range(arguments.rounds):
        shift = turn % len(tools)
        for tool in tools[shift:] + tools[:shift]:
            # The quietest of a few tries, the first that is quiet enough.
            tries = []
            while len(tries) < arguments.tries:
                tries.append(run_apart(jobs[tool], arguments.wait))
                if tries[-1].get("others", 0) <= OTHERS_MAX:
                    break
            run = min(tries, key=lambda run: run.get("others", 0))
            runs[tool].append(run)
            print(name, turn, tool, json.dumps(run), flush=True)
            if turn == 0:
                checks[tool] = run.get("error") or check(jobs[tool])
                print(name, tool, "checked:", checks[tool], flush=True)
            Path(jobs[tool]["out"]).unlink(missing_ok=True)
    shutil.rmtree(arguments.data / "scratch", ignore_errors=True)
    return {"name": name, "facts": facts, "runs": runs, "checks": checks}


# -- the page --------------------------------------------------------------------------------------


def machine() -> str:
    """What was measured on, in general terms."""
    model, memory = "unknown processor", "unknown"
    for path, key in (("/proc/cpuinfo", "model name"), ("/proc/meminfo", "MemTotal")):
        for line in Path(path).read_text().splitlines() if Path(path).exists() else ():
            if line.startswith(key):
                value = line.partition(":")[2].strip()
                if key == "MemTotal":
                    memory = f"{int(value.split()[0]) / 2**20:.0f} GiB"
                else:
                    model = value
                break
    return f"{os.cpu_count()} cores ({model}), {memory} of memory, {platform.system()}"


def versions(tools) -> str:
    installed = [f"{tool} {metadata.version(tool)}" for tool in tools]
    return ", ".join([f"Python {platform.python_version()}", *installed])


def median(runs: list[dict], fact: str) -> float:
    return statistics.median(run[fact] for run in runs)


def table(result: dict) -> list[str]:
    """The runs of one workload as lines of Markdown."""
    facts = result["facts"]
    whole = {t: runs for t, runs in result["runs"].items() if not any("error" in r for r in runs)}
    peers = {tool: median(runs, "wall_s") for tool, runs in whole.items() if tool != "plait"}
    best = min(peers, key=peers.get, default=None)
    size = f"{facts['files']} files, {facts['bytes'] / 1e6:,.0f} MB"
    lines = [
        f"## {result['name']}: {facts['rows']:,} rows, {facts['columns']} leaf columns, {size}",
        "",
        f"Scale {facts['scale']:g}. Key `{workloads.sort_by(result['name'])}`.",
        "",
        "| tool | wall s | min–max | CPU s | peak RSS MB | output MB | others | checked |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for tool, runs in result["runs"].items():
        if tool not in whole:
            lines.append(f"| {tool} | failed | | | | | | {result['checks'][tool]} |")
            continue
        walls = [run["wall_s"] for run in runs]
        lines.append(
            f"| {tool} | {median(runs, 'wall_s'):.2f} | {min(walls):.2f}–{max(walls):.2f} "
            f"| {median(runs, 'cpu_s'):.2f} | {median(runs, 'rss_bytes') / 1e6:,.0f} "
            f"| {median(runs, 'out_bytes') / 1e6:,.0f} | {max(r['others'] for r in runs):.2f} "
            f"| {result['checks'][tool]} |"
        )
    if best and "plait" in whole:
        ours = whole["plait"]
        time_ratio = median(ours, "wall_s") / peers[best]
        rss_ratio = median(ours, "rss_bytes") / median(whole[best], "rss_bytes")
        ratios = f"{time_ratio:.2f} times the wall time and {rss_ratio:.2f} times the memory"
        lines += ["", f"Plait takes {ratios} of the fastest peer, {best}."]
    if "plait" in whole:
        stages = {stage: median([r["stages"] for r in whole["plait"]], stage) for stage in STAGES}
        lines += [
            "",
            "Plait by stage: " + ", ".join(f"{s[:-2]} {v:.2f} s" for s, v in stages.items()) + ".",
        ]
    return lines


STAGES = ("plan_s", "order_s", "weave_s", "write_s")

PREFACE = """\
# Benchmarks

Made by `benches/python/merge_peers.py`, which `make bench` calls; every number below was measured in
one go on one machine. Your files and machine differ: run it there.

- The same sorted files, the same number of threads, zstd level 3, row groups of as many rows, one
  output file. Files are in the page cache before the first run.
- One process a run, tools in turn. Medians of {rounds} rounds; wall and CPU time of the merge alone,
  without starting Python; peak RSS of the whole process.
- Plait runs with its default `memory_limit` of 512 MB and checks every key. DuckDB, Polars and PyArrow
  sort; DataFusion merges, because it is told that every file is sorted.
- *others*: processors that everything else on the machine kept busy during the worst of these runs. Runs
  above {others_max} are tried again, a few times. Above 0.3 or so, trust CPU seconds more than wall time.
- *checked* is what `plait verify` found: `order and rows` means sorted, and value for value the rows
  of the sources. Where a tool changes the type of a column, values cannot be compared.
"""


def page(results: list[dict], arguments: argparse.Namespace) -> str:
    tools = list(dict.fromkeys(tool for result in results for tool in result["runs"]))
    lines = [
        PREFACE.format(rounds=arguments.rounds, others_max=OTHERS_MAX),
        f"Machine: {machine()}. Threads: {arguments.threads}. {versions(tools)}.",
        "",
    ]
    for result in results:
        lines += [*table(result), ""]
    return "\n".join(lines)


def parse(arguments=None) -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return [part for part in text.split(",") if part]

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", type=names, default=["W1", "W3"])
    parser.add_argument("--peers", type=names, default=["duckdb", "datafusion"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tries", type=int, default=3, help="most tries of a run for quiet")
    parser.add_argument("--wait", type=float, default=60, help="most seconds to wait for quiet")
    parser.add_argument(
        "--data", type=Path, default=ROOT / "bench-data", help="where files are made"
    )
    parser.add_argument("--write", type=Path, help="Markdown file for the tables")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    for tool in parsed.peers:
        if tool not in TOOLS:
            parser.error(f"no such peer: {tool}")
    for name in parsed.workloads:
        if name not in workloads.TABLES:
            parser.error(f"no such workload: {name}")
    return parsed


def main(arguments=None) -> None:
    parsed = parse(arguments)
    if parsed.job:
        print(json.dumps(run_here(parsed.job)))
        return
    parsed.data.mkdir(parents=True, exist_ok=True)
    text = page([bench(name, parsed) for name in parsed.workloads], parsed)
    print("\n" + text)
    if parsed.write:
        parsed.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
