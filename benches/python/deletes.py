"""Compacts tables of which one row in a hundred is deleted: Plait, Iceberg, delta-rs, Delta on Spark.

    python benches/python/deletes.py --other-python ENVIRONMENT/bin/python --rounds 3
    python benches/python/deletes.py --other-python … --scale 0.05 --tools plait-iceberg,iceberg-sort

    plait-iceberg    plait.table.compact_iceberg of a table with position delete files
    iceberg-sort     rewrite_data_files of Iceberg with strategy sort
    iceberg-binpack  the same with strategy binpack: concatenates, sorts nothing
    plait-delta      plait.table.compact_delta of a table with deletion vectors
    delta-compact    OPTIMIZE of delta-rs: concatenates, sorts nothing
    delta-spark      OPTIMIZE of Delta on Spark: concatenates, sorts nothing
    plait-iceberg-clean, plait-delta-clean    Plait on the same tables without deletes

The files are those of W1 in `workloads.py`, as `spark_compact.py` makes them. DELETE of Iceberg's
runtime and of Delta on Spark, both merge-on-read, delete the same rows. Both run in an environment
of PySpark 4.1 with PyArrow, pandas and PyIceberg (with `sql-sqlite`): `--other-python`. It takes
Plait from here. The jars come from Maven by the client that is part of Spark.

One process a run; the tools take turns. Spark runs in one process, `local[CORES]`, and rewrites a
small table first, which does not count. Time and processor time are of the call alone, over the
process and all that it started. Memory is their greatest resident set together, with the JVM. Tables
are put back after each run. Rows are compared with those that Spark read before, unless deletes are
left; then their number is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import warnings
from pathlib import Path

import spark_compact
import workloads

ON_SPARK = ("iceberg-sort", "iceberg-binpack", "delta-spark")
PLAIT = ("plait-iceberg", "plait-iceberg-clean", "plait-delta", "plait-delta-clean")
TOOLS = (
    "plait-iceberg",
    "plait-iceberg-clean",
    "iceberg-sort",
    "iceberg-binpack",
    "plait-delta",
    "plait-delta-clean",
    "delta-compact",
    "delta-spark",
)
KEY = workloads.METRICS_KEY
SORT_BY = workloads.sort_by("W1")
JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "io.delta:delta-spark_4.1_2.13:4.2.0",
)
GONE = "pmod(xxhash64(metric_name, service, host, timestamp_secs), 100) = 7"


# -- the tables ------------------------------------------------------------------------------------


def start(home: Path, cores: int):
    """A session for both kinds of tables; that of Iceberg shares its catalog with PyIceberg."""
    lake = "spark.sql.catalog.lake"
    extensions = (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension"
    )
    settings = {
        "spark.jars.packages": ",".join(JARS),
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        lake: "org.apache.iceberg.spark.SparkCatalog",
        f"{lake}.type": "jdbc",
        f"{lake}.uri": f"jdbc:sqlite:{home}/lake.db",
        f"{lake}.jdbc.schema-version": "V1",
        f"{lake}.warehouse": f"file://{home}/lake",
        f"{lake}.cache-enabled": "false",
    }
    return spark_compact.start_spark(f"local[{cores}]", **settings)


def catalog(home: Path):
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("lake", uri=f"sqlite:///{home}/lake.db", warehouse=f"file://{home}/lake")


def linked(folder: Path, sources: list[str]) -> Path:
    folder.mkdir(parents=True)
    for path in sources:
        os.link(path, folder / Path(path).name)
    return folder


def make_tables(job: dict) -> None:
    """Makes the tables, and the rows that are left as files, in a folder that is not there."""
    home = Path(job["home"])
    (home / "lake").mkdir(parents=True)
    catalog(home).create_namespace("db")
    spark = start(home, job["cores"])
    for name, of in (("deleted", job["sources"]), ("clean", job["sources"])):
        folder = linked(home / f"iceberg-{name}", of)
        spark.read.parquet(str(folder)).limit(0).writeTo(f"lake.db.{name}").using(
            "iceberg"
        ).tableProperty("format-version", "2").tableProperty(
            "write.delete.mode", "merge-on-read"
        ).tableProperty("write.parquet.compression-codec", "zstd").tableProperty(
            "write.distribution-mode", "none"
        ).create()
        source = f"parquet.`{folder}`"
        spark.sql(
            f"CALL lake.system.add_files(table => 'db.{name}', source_table => '{source}')"
        ).collect()
        delta = linked(home / f"delta-{name}", of)
        spark.sql(f"CONVERT TO DELTA parquet.`{delta}`")
    spark.sql(f"DELETE FROM lake.db.deleted WHERE {GONE}")
    delta = f"delta.`{home}/delta-deleted`"
    spark.sql(f"ALTER TABLE {delta} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {delta} WHERE {GONE}")
    spark.table("lake.db.deleted").write.parquet(str(home / "left"))
    spark.stop()
    (home / "done").touch()


def files_of(home: Path) -> set[str]:
    return {
        str(p) for part in ("lake", "delta-*") for p in home.glob(f"{part}/**/*") if p.is_file()
    }


class PutBack:
    """Puts the tables back: new files go, and the catalog is what it was."""

    def __init__(self, home: Path):
        self.home, self.files = home, files_of(home)
        self.kept = home / "lake.db.kept"
        shutil.copy(home / "lake.db", self.kept)

    def __call__(self) -> None:
        now = files_of(self.home)
        assert now >= self.files, "a tool removed files of the tables"
        for path in now - self.files:
            os.remove(path)
        with sqlite3.connect(self.kept) as kept, sqlite3.connect(self.home / "lake.db") as live:
            kept.backup(live)


# -- the tools -------------------------------------------------------------------------------------


def by_plait(job: dict):
    from plait.table import compact_delta, compact_iceberg

    how = {"sort_by": SORT_BY, "target_file_size": job["target"], "policy": "full", "yes": True}
    how |= {"memory_limit": job["memory_limit"], "threads": job["cores"]}
    home, state = Path(job["home"]), "clean" if job["tool"].endswith("clean") else "deleted"
    if "delta" in job["tool"]:
        return lambda: compact_delta(str(home / f"delta-{state}"), **how)
    import plait.table.iceberg_snapshot  # noqa: F401 - what a first call would import

    of = catalog(home)
    of.load_table(f"db.{state}")
    return lambda: compact_iceberg(of, f"db.{state}", **how)


def by_delta_rs(job: dict):
    import deltalake

    table = deltalake.DeltaTable(f"{job['home']}/delta-deleted")
    how = {"target_size": job["target"], "max_concurrent_tasks": job["cores"]}
    return lambda: table.optimize.compact(**how)


def rewrite(spark, name: str, job: dict) -> None:
    asked = ""
    if job["tool"] == "iceberg-sort":
        order = (f"{name} {'DESC' if down else 'ASC'} NULLS LAST" for name, down in KEY)
        asked = f", sort_order => '{', '.join(order)}'"
    strategy = job["tool"].removeprefix("iceberg-")
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => 'db.{name}', strategy => '{strategy}'{asked}, "
        f"options => map('rewrite-all', 'true', 'target-file-size-bytes', '{job['target']}', "
        "'remove-dangling-deletes', 'true'))"
    ).collect()


def by_spark(job: dict, spark):
    home = job["home"]
    few = f"SELECT * FROM parquet.`{job['sources'][0]}` LIMIT 20000"
    if job["tool"] == "delta-spark":
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(job["target"]))
        spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(job["target"]))
        shutil.rmtree(f"{home}/delta-small", ignore_errors=True)  # of the round before
        spark.sql(f"CREATE TABLE delta.`{home}/delta-small` USING delta AS {few}")
        spark.sql(f"INSERT INTO delta.`{home}/delta-small` {few}")
        spark.sql(f"OPTIMIZE delta.`{home}/delta-small`").collect()
        return lambda: spark.sql(f"OPTIMIZE delta.`{home}/delta-deleted`").collect()
    modes = "'write.delete.mode' = 'merge-on-read'"
    spark.sql(f"CREATE TABLE lake.db.small USING iceberg TBLPROPERTIES ({modes}) AS {few}")
    spark.sql(f"DELETE FROM lake.db.small WHERE {GONE}")
    rewrite(spark, "small", job)
    return lambda: rewrite(spark, "deleted", job)


def left_in(job: dict) -> dict:
    """Files of the table, delete files or vectors, and the rows that they delete."""
    home, state = Path(job["home"]), "clean" if job["tool"].endswith("clean") else "deleted"
    if "delta" in job["tool"]:
        from plait._logs.delta import DeltaLog

        log = DeltaLog(str(home / f"delta-{state}"), None)
        files = log.files("read", deleted="list")
        vectors = [file.deleted["rows"] for file in files if file.deleted]
        rows = sum(file.rows for file in files)
        return {
            "paths": [log.location(file.name) for file in files],
            "delete_files": len(vectors),
            "deleted_rows": sum(vectors),
            "rows": rows,
        }
    from plait._logs.iceberg_files import files_of as files_of_table

    found = files_of_table(catalog(home).load_table(f"db.{state}"))
    deleted = sum(delete.file.record_count for delete in found.deletes)
    reaching = sum(file.deleted_max for file in found.data)
    return {
        "paths": [file.path for file in found.data],
        "delete_files": len(found.deletes),
        "deleted_rows": deleted,
        "rows": sum(file.file.record_count for file in found.data) - reaching,
    }


def run_one(job: dict) -> dict:
    """One tool, in this process: what it took, and whether the result is right."""
    import plait

    warnings.simplefilter("ignore")
    spark = start(Path(job["home"]), job["cores"]) if job["tool"] in ON_SPARK else None
    if spark is not None:
        call = by_spark(job, spark)
    else:
        call = (by_plait if job["tool"] in PLAIT else by_delta_rs)(job)
    os.sync()
    sampler = spark_compact.Sampler()
    sampler.start()
    used = sum(cpu for _, cpu, _ in spark_compact.processes().values())
    started = time.perf_counter()
    try:
        call()
        told = {"wall_s": time.perf_counter() - started}
    finally:
        sampler.is_done.set()
    told["cpu_s"] = sum(cpu for _, cpu, _ in spark_compact.processes().values()) - used
    told["memory"] = sampler.all_max
    if spark is not None:
        spark.stop()
    left = left_in(job)
    paths = left.pop("paths")
    told |= {"files": len(paths), **left}
    against = job["sources"] if job["tool"].endswith("clean") else [f"{job['home']}/left"]
    if not left["deleted_rows"]:
        found = plait.verify(paths, against=against, sort_by=SORT_BY, check=False)
        told["same"] = bool(found.against and found.against.equal)
        told["in order"] = not [p for p in found.problems if "differ" not in p]
    return told


# -- the comparison --------------------------------------------------------------------------------


def run_apart(job: dict, python: str, timeout_s: float) -> dict:
    import plait

    path = os.pathsep.join((str(Path(plait.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [python, str(Path(__file__).resolve()), "--one", json.dumps(job)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": path},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:300]}
    return json.loads(lines[-1])


def table(results: dict[str, list[dict]], rows: int) -> str:
    """One line a tool; the run of the least time."""
    lines = [
        "| tool | time | processor time | memory | files | delete files | deleted rows left | rows |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    best = {}
    for tool, runs in results.items():
        good = [run for run in runs if "failed" not in run]
        if not good:
            lines.append(f"| {tool} | failed: {runs[-1]['failed']} | | | | | | |")
            continue
        run = best[tool] = min(good, key=lambda run: run["wall_s"])
        if "same" in run:
            held = ("the same" if run["same"] else "DIFFER") + (
                ", in order" if run["in order"] else ""
            )
        else:
            held = "as many" if run["rows"] == rows else f"{run['rows']:,} INSTEAD OF {rows:,}"
        lines.append(
            f"| {tool} | {run['wall_s']:.2f} s | {run['cpu_s']:.2f} s | {run['memory'] / 1e6:,.0f} MB "
            f"| {run['files']} | {run['delete_files']} | {run['deleted_rows']:,} | {held} |"
        )
    for kind in ("plait-iceberg", "plait-delta"):
        if kind in best and f"{kind}-clean" in best:
            with_, without = best[kind], best[f"{kind}-clean"]
            shares = (f"{with_[unit] / without[unit]:.2f} x" for unit in ("wall_s", "cpu_s"))
            lines.append(
                f"\n{kind}: {' the time and '.join(shares)} the processor time without deletes"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--target", type=int, default=128_000_000)
    parser.add_argument("--memory-limit", type=int, default=512_000_000)
    parser.add_argument("--data", type=Path, default=Path("bench-data"))
    parser.add_argument("--timeout", type=float, default=3600)
    parser.add_argument("--other-python", default=sys.executable)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        job = json.loads(given.one)
        print(json.dumps(make_tables(job) if job["tool"] == "make" else run_one(job)))
        return
    folder = (given.data / f"spark-W1-{given.scale}").resolve()
    facts = spark_compact.prepare("W1", folder, given.scale)
    home = (given.data / f"deletes-W1-{given.scale}").resolve()
    job = {
        "home": str(home),
        "sources": sorted(str(path) for path in folder.glob("*.parquet")),
        "target": given.target,
        "memory_limit": given.memory_limit,
        "cores": given.cores,
    }
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        made = run_apart({**job, "tool": "make"}, given.other_python, given.timeout)
        if not (home / "done").exists():
            sys.exit(f"the tables could not be made: {made.get('failed')}")
    job_before = {**job, "tool": "plait-iceberg"}
    rows = left_in(job_before)["rows"]
    deleted = facts["rows"] - rows
    print(
        f"\nW1: {facts['files']} files, {facts['bytes'] / 1e6:,.0f} MB, {facts['rows']:,} rows, "
        f"{deleted:,} of them deleted\n"
    )
    put_back = PutBack(home)
    results: dict[str, list[dict]] = {tool: [] for tool in given.tools.split(",")}
    for _ in range(given.rounds):
        for tool, runs in results.items():
            python = given.other_python if tool in ON_SPARK else sys.executable
            told = run_apart({**job, "tool": tool}, python, given.timeout)
            put_back()
            runs.append(told)
            print(f"    {tool}: {json.dumps(told)}", file=sys.stderr, flush=True)
    print(table(results, rows), flush=True)


if __name__ == "__main__":
    main()
