"""One sorted read by one tool, in this process: what it took, as JSON.

    python one_read.py < job.json

Imports nothing that a tool does not ask for: memory is that of the whole process.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from one_run import peak_rss_bytes

SORT_BY = "metric_name, service, host, -timestamp_secs"
KEY = ["metric_name", "service", "host", "timestamp_secs"]
ORDER = ("metric_name ASC NULLS LAST, service ASC NULLS LAST, host ASC NULLS LAST, "
         "timestamp_secs DESC NULLS LAST")  # fmt: skip
LAST = ("metric_name DESC NULLS FIRST, service DESC NULLS FIRST, host DESC NULLS FIRST, "
        "timestamp_secs ASC NULLS FIRST")  # fmt: skip


def counted(batches: Iterable) -> int:
    return sum(len(batch) for batch in batches)


def plait_read(job: dict) -> Callable[[], dict]:
    import plait

    def run() -> dict:
        read = plait.read(
            job["files"],
            sort_by=SORT_BY,
            columns=job["columns"],
            where=job["where"],
            limit=job["limit"],
            reverse=job["reverse"],
            memory_limit=job["memory_limit"],
            threads=2,
        )
        return {
            "rows": counted(read),
            "stats": read.stats.to_dict(),
            "again": lambda: counted(read),
        }

    return run


def query(job: dict, table: str) -> str:
    columns = ", ".join(job["columns"] or ["*"])
    where = f" WHERE {job['where']}" if job["where"] else ""
    limit = f" LIMIT {job['limit']}" if job["limit"] else ""
    return (
        f"SELECT {columns} FROM {table}{where} ORDER BY {LAST if job['reverse'] else ORDER}{limit}"
    )


def duckdb_read(job: dict) -> Callable[[], dict]:
    import duckdb

    database = duckdb.connect()
    database.execute("SET threads = 2")
    database.execute("SET parquet_metadata_cache = true")
    text = query(job, f"read_parquet({job['files']})")

    def once() -> int:
        return counted(database.sql(text).to_arrow_reader(65_536))

    def run() -> dict:
        return {"rows": once(), "again": once}

    return run


def polars_read(job: dict) -> Callable[[], dict]:
    import polars as pl

    def run() -> dict:
        frame = pl.scan_parquet(job["files"])
        if job["where"]:
            frame = frame.filter(pl.sql_expr(job["where"]))
        down = [column == "timestamp_secs" for column in KEY]
        down = [not d for d in down] if job["reverse"] else down
        frame = frame.sort(KEY, descending=down, nulls_last=not job["reverse"])
        frame = frame.select(job["columns"]) if job["columns"] else frame
        frame = frame.head(job["limit"]) if job["limit"] else frame

        def once() -> int:
            return len(frame.collect(engine="streaming"))

        return {"rows": once(), "again": once}

    return run


def datafusion_read(job: dict) -> Callable[[], dict]:
    from datafusion import SessionConfig, SessionContext, col

    config = (
        SessionConfig()
        .with_target_partitions(len(job["files"]))
        .set("datafusion.optimizer.repartition_file_scans", "false")
    )
    session = SessionContext(config)
    down = [column == "timestamp_secs" for column in KEY]
    # Order is declared as files have it; read in reverse, DataFusion sorts.
    declared = [[col(c).sort(ascending=not d, nulls_first=False) for c, d in zip(KEY, down)]]
    session.register_parquet("t", str(Path(job["files"][0]).parent), file_sort_order=declared)
    text = query(job, "t")

    def once() -> int:
        batches = session.sql(text).execute_stream()
        return sum(batch.to_pyarrow().num_rows for batch in batches)

    def run() -> dict:
        return {"rows": once(), "again": once}

    return run


READS = {
    "plait": plait_read, "duckdb": duckdb_read, "polars": polars_read, "datafusion": datafusion_read
}  # fmt: skip


def one(job: dict) -> dict:
    run = READS[job["tool"]](job)
    wall_s, cpu_s, found = timed(run)
    again, rss = found.pop("again"), peak_rss_bytes()
    again_wall_s, again_cpu_s, _ = timed(again)
    return {
        "wall_s": wall_s, "cpu_s": cpu_s, "rss_bytes": rss,
        "again_wall_s": again_wall_s, "again_cpu_s": again_cpu_s, **found,
    }  # fmt: skip


def timed(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall and processor time of a call, and what it gives."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    found = run()
    wall_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, found


if __name__ == "__main__":
    print(json.dumps(one(json.load(sys.stdin))))
