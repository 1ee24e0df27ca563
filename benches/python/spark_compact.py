"""Compacts the same sorted files on one Spark cluster: Plait, Spark's own sort, delta-rs without Spark.

    python benches/python/spark_compact.py --workloads W1,W4 --scale 1 --rounds 3
    python benches/python/spark_compact.py --workloads W1 --scale 0.1 --tools plait,spark

    plait           plait.spark.compact: tasks on executors
    spark           repartitionByRange + sortWithinPartitions + write, on the same cluster
    delta-compact   OPTIMIZE of delta-rs in one process: concatenates, sorts nothing
    delta-z-order   OPTIMIZE ZORDER of delta-rs in one process, by the same columns
    iceberg-sort    rewrite_data_files of Iceberg with strategy sort, on the same cluster
    iceberg-binpack the same with strategy binpack: concatenates, sorts nothing

Iceberg's runtime follows Spark: 1.12.0 is for Spark 4.1, and Spark 4.3 does not load it. Its tools run in
an environment of that PySpark, with PyArrow and pandas: `--iceberg-python ENVIRONMENT/bin/python`. The
jar comes from Maven by the client that is part of Spark.

Workloads are those of `workloads.py`, with binary columns of no fixed length, which Spark does not
write; and S200, 200 files of W1 whose keys all overlap, 10 MB each.

One process a run; the tools take turns. A run starts the session and runs a small job first, which
does not count. Time and processor time are of everything the run started, executors and driver; memory
is the peak of all its processes together, and of the Python workers alone. Spill and shuffle are
what Spark's pages tell. Every result is checked: the rows of the sources, and for tools that sort
also order and disjointness.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import workloads

TOOLS = ("plait", "spark", "delta-compact", "delta-z-order")
ICEBERG = ("iceberg-sort", "iceberg-binpack")
ON_SPARK = ("plait", "spark", *ICEBERG)
SORTING = ("plait", "spark", "iceberg-sort")
KEYS = {**workloads.KEYS, "S200": workloads.METRICS_KEY}
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


# -- what a run takes ------------------------------------------------------------------------------


def processes() -> dict[int, tuple[int, float, str]]:
    """Parent, processor seconds and command of this process and those below it."""
    known = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        known[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICKS, command)
    found, above = {}, {os.getpid()}
    while above:
        found |= {pid: known[pid] for pid in above if pid in known}
        above = {pid for pid, (parent, _, _) in known.items() if parent in above} - found.keys()
    return found


def memory_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


class Sampler(threading.Thread):
    """The greatest memory of all processes together, and of one Python worker."""

    def __init__(self):
        super().__init__(daemon=True)
        self.all_max, self.worker_max, self.is_done = 0, 0, threading.Event()

    def run(self):
        while not self.is_done.wait(0.1):
            found = {pid: (memory_of(pid), command) for pid, (_, _, command) in processes().items()}
            self.all_max = max(self.all_max, sum(size for size, _ in found.values()))
            workers = [
                size
                for size, command in found.values()
                if "pyspark" in command and "daemon" in command
            ]
            self.worker_max = max([self.worker_max, *workers])


def stages(spark) -> dict[str, int]:
    context = spark.sparkContext
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as page:
        told = json.load(page)
    names = ("shuffleWriteBytes", "diskBytesSpilled", "memoryBytesSpilled")
    return {name: sum(stage[name] for stage in told) for name in names}


# -- the tools -------------------------------------------------------------------------------------


def start_spark(master: str, **settings: str):
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("spark_compact")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.adaptive.enabled": "false",
        **settings,
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def by_plait(job, spark):
    from plait import spark as ps

    options = {"sort_by": job["sort_by"], "target_file_size": job["target"]}
    ps.compact(spark, job["sources"], job["out"], memory_limit=job["memory_limit"], **options)
    return sorted(str(path) for path in Path(job["out"]).rglob("*.parquet"))


def by_spark(job, spark):
    from pyspark.sql import functions

    keys = [
        functions.col(column).desc_nulls_last() if down else functions.col(column).asc_nulls_last()
        for column, down in KEYS[job["workload"]]
    ]
    parts = max(1, math.ceil(job["bytes"] / job["target"]))
    frame = spark.read.parquet(*job["sources"])
    frame.repartitionByRange(parts, *keys).sortWithinPartitions(*keys).write.parquet(job["out"])
    return sorted(str(path) for path in Path(job["out"]).glob("*.parquet"))


def lake(job) -> dict[str, str]:
    """Settings of a catalog in a folder, and of the jar."""
    prefix = "spark.sql.catalog.lake"
    return {
        "spark.jars.packages": job["iceberg_jar"],
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "hadoop",
        f"{prefix}.warehouse": f"{job['out']}-lake",
    }


def iceberg_table(job, spark, name: str) -> str:
    """A table of links to the sources, as they are."""
    folder = Path(f"{job['out']}-lake", f"{name}-sources")
    folder.mkdir(parents=True)
    for path in job["sources"]:
        os.link(path, folder / Path(path).name)
    frame = spark.read.parquet(str(folder))
    # As Spark's own write does.
    properties = {"write.parquet.compression-codec": "zstd", "write.distribution-mode": "none"}
    writer = frame.limit(0).writeTo(f"lake.db.{name}").using("iceberg")
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    writer.create()
    spark.sql(
        f"CALL lake.system.add_files(table => 'db.{name}', source_table => 'parquet.`{folder}`')"
    )
    return f"db.{name}"


def by_iceberg(job, spark, name: str):
    order = ", ".join(
        f"{column} {'DESC' if down else 'ASC'} NULLS LAST" for column, down in KEYS[job["workload"]]
    )
    strategy = job["tool"].removeprefix("iceberg-")
    asked = f", sort_order => '{order}'" if strategy == "sort" else ""
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{name}', strategy => '{strategy}'{asked}, "
        f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{job['target']}'))"
    )
    files = spark.sql(f"SELECT file_path FROM lake.{name}.files").collect()
    return sorted(row.file_path.removeprefix("file:") for row in files)


def delta_table(job):
    import deltalake

    os.makedirs(job["out"])
    for path in job["sources"]:
        shutil.copy(path, job["out"])
    deltalake.convert_to_deltalake(job["out"])
    return deltalake.DeltaTable(job["out"])


def by_delta(job, table):
    if job["tool"] == "delta-compact":
        table.optimize.compact(target_size=job["target"], max_concurrent_tasks=job["cores"])
    else:
        columns = [column for column, _ in KEYS[job["workload"]]]
        table.optimize.z_order(
            columns, target_size=job["target"], max_concurrent_tasks=job["cores"]
        )
    return table.file_uris()


def run_one(job: dict) -> dict:
    """One tool, in this process: what it took, and whether the result is right."""
    import plait

    warnings.simplefilter("ignore")
    spark = None
    if job["tool"] in ON_SPARK:
        is_lake = job["tool"] in ICEBERG
        spark = start_spark(job["master"], **(lake(job) if is_lake else {}))
        warm = Path(job["out"] + "-warm")
        # Enough tasks that every executor has started its Python.
        target = max(1, os.path.getsize(job["sources"][0]) // 8)
        few = {"sources": job["sources"][:1], "out": str(warm), "target": target}
        small = {**job, **few, "bytes": 8 * target}
        if is_lake:
            by_iceberg(small, spark, iceberg_table(small | {"out": job["out"]}, spark, "small"))
            table = iceberg_table(job, spark, "whole")
        else:
            (by_plait if job["tool"] == "plait" else by_spark)(small, spark)
        before = stages(spark)
    else:
        table = delta_table(job)
        os.sync()
    sampler = Sampler()
    sampler.start()
    used, started = sum(cpu for _, cpu, _ in processes().values()), time.perf_counter()
    try:
        if job["tool"] in ICEBERG:
            files = by_iceberg(job, spark, table)
        elif job["tool"] in ON_SPARK:
            files = (by_plait if job["tool"] == "plait" else by_spark)(job, spark)
        else:
            files = by_delta(job, table)
        told = {"wall_s": time.perf_counter() - started}
    finally:
        sampler.is_done.set()
    told["cpu_s"] = sum(cpu for _, cpu, _ in processes().values()) - used
    told |= {"all_bytes": sampler.all_max, "worker_bytes": sampler.worker_max, "files": len(files)}
    if spark is not None:
        told |= {name: value - before[name] for name, value in stages(spark).items()}
        spark.stop()
    found = plait.verify(files, against=job["sources"], sort_by=job["sort_by"], check=False)
    told["rows are the same"] = bool(found.against and found.against.equal)
    told["sorted and disjoint"] = not [p for p in found.problems if "differ" not in p]
    told["problems"] = len(found.problems)
    return told


# -- the comparison --------------------------------------------------------------------------------


def prepare(name: str, folder: Path, scale: float) -> dict:
    """The files of a workload, with columns that all tools write as they are."""
    done = folder / "facts.json"
    if done.exists():
        return json.loads(done.read_text())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "S200":
        rows = int(125_000 * scale)
        series = workloads.make_series(200 * rows)
        tables = (workloads.metrics_file(series, rows, i) for i in range(200))
    else:
        origin = folder.with_name(folder.name + "-origin")
        workloads.prepare(name, origin, scale)
        tables = (pq.read_table(path) for path in sorted(origin.glob("*.parquet")))
    key = KEYS[name]
    facts = {"files": 0, "rows": 0}
    for i, read in enumerate(tables):
        fields = [
            field.with_type(pa.binary()) if pa.types.is_fixed_size_binary(field.type) else field
            for field in read.schema
        ]
        table = read.cast(pa.schema(fields))
        group = workloads.rows_per_group(table)
        workloads.write(iter((table,)), table.schema, folder / f"in-{i:03}.parquet", key, group)
        facts = {"files": i + 1, "rows": facts["rows"] + table.num_rows}
    facts["bytes"] = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    done.write_text(json.dumps(facts))
    return facts


def run_apart(job: dict, timeout_s: float) -> dict:
    import plait

    for after in ("", "-warm", "-lake"):
        shutil.rmtree(job["out"] + after, ignore_errors=True)
    python = job["iceberg_python"] if job["tool"] in ICEBERG else sys.executable
    # Another environment has no Plait, which checks the result: it takes this one.
    path = os.pathsep.join((str(Path(plait.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [python, str(Path(__file__).resolve()), "--one", json.dumps(job)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": path},
    )
    for after in ("", "-warm", "-lake"):
        shutil.rmtree(job["out"] + after, ignore_errors=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return json.loads(lines[-1])


def table(results: dict[str, list[dict]]) -> str:
    """One line a tool; the run of the least time."""
    lines = [
        "| tool | time | of Plait's | processor time | shuffled | spilled | memory, all | memory, worker | checked |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    best = {
        tool: min(good, key=lambda run: run["wall_s"])
        for tool, runs in results.items()
        if (good := [run for run in runs if "failed" not in run])
    }
    for tool, runs in results.items():
        if tool not in best:
            lines.append(f"| {tool} | failed: {runs[-1]['failed']} | | | | | | | |")
            continue
        run = best[tool]
        times = f"{run['wall_s'] / best['plait']['wall_s']:.1f} x" if "plait" in best else ""
        mb = {name: f"{run.get(name, 0) / 1e6:,.0f} MB" for name in ("all_bytes", "worker_bytes")}
        moved = [
            f"{run.get(n, 0) / 1e6:,.0f} MB" for n in ("shuffleWriteBytes", "diskBytesSpilled")
        ]
        held = "rows" if run["rows are the same"] else "ROWS DIFFER"
        if tool in SORTING:
            held += ", order" if run["sorted and disjoint"] else ", NOT SORTED"
        lines.append(
            f"| {tool} | {run['wall_s']:.1f} s | {times} | {run['cpu_s']:.1f} s | {moved[0]} | {moved[1]} "
            f"| {mb['all_bytes']} | {mb['worker_bytes']} | {held} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default="W1,W4")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    parser.add_argument("--cores", type=int, default=2, help="of delta-rs; as many as --master has")
    parser.add_argument("--target", type=int, default=128_000_000)
    parser.add_argument("--memory-limit", type=int, default=512_000_000)
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    parser.add_argument("--timeout", type=float, default=3600)
    parser.add_argument("--iceberg-python", default=sys.executable)
    parser.add_argument(
        "--iceberg-jar", default="org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run_one(json.loads(given.one))))
        return
    for workload in given.workloads.split(","):
        folder = (given.data / f"spark-{workload}-{given.scale}").resolve()
        facts = prepare(workload, folder, given.scale)
        print(
            f"\n{workload}: {facts['files']} files, {facts['rows']:,} rows, {facts['bytes'] / 1e6:,.0f} MB\n"
        )
        job = {
            "workload": workload,
            "sources": sorted(str(path) for path in folder.glob("*.parquet")),
            "sort_by": ", ".join(("-" if down else "") + column for column, down in KEYS[workload]),
            "bytes": facts["bytes"],
            "target": given.target,
            "memory_limit": given.memory_limit,
            "master": given.master,
            "cores": given.cores,
            "iceberg_python": given.iceberg_python,
            "iceberg_jar": given.iceberg_jar,
        }
        results: dict[str, list[dict]] = {tool: [] for tool in given.tools.split(",")}
        with tempfile.TemporaryDirectory(dir=given.data) as scratch:
            for _ in range(given.rounds):
                for tool, runs in results.items():
                    out = str(Path(scratch, "out").resolve())
                    told = run_apart({**job, "tool": tool, "out": out}, given.timeout)
                    runs.append(told)
                    print(f"    {tool}: {json.dumps(told)}", file=sys.stderr, flush=True)
        print(table(results), flush=True)


if __name__ == "__main__":
    main()
