"""The tools that sort: Plait and its peers, which are told a memory limit where they know one.

As in `tools`, each takes a job and returns a function, and what happens before it is called is not
timed. `peer_memory` of a job is the limit in bytes that peers are given.
"""

from __future__ import annotations

from tools import Tool, duckdb_limited, order_by, plait_merge, polars_sort, pyarrow_sort


def plait_sort(job: dict):
    import plait

    options = {"memory_limit": job["memory_limit"]} if job["memory_limit"] else {}
    if job["row_group_rows"]:
        options |= {"row_group_rows": job["row_group_rows"], "row_group_size": "1TB"}

    def run():
        report = plait.sort(
            job["sources"], job["out"], sort_by=job["sort_by"], threads=job["threads"], **options
        ).to_dict()
        told = report["sort"] or {"rows": 0, "runs": 0}
        return {
            "stages": report["time"],
            "memory": report["memory"],
            "spilled_bytes": report["metrics"]["spilled_bytes"],
            "sorted_rows": told["rows"],
            "runs": told["runs"],
        }

    return run


def duckdb_sort(job: dict):
    return duckdb_limited(job, job["peer_memory"])


def datafusion_sort(job: dict):
    """An external sort: a memory pool shared by its operators, which spill to disk."""
    from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

    config = (
        SessionConfig()
        .with_target_partitions(job["threads"])
        .set("datafusion.execution.parquet.compression", "zstd(3)")
        .set("datafusion.execution.parquet.max_row_group_size", str(job["peer_row_group_rows"]))
        .set("datafusion.execution.parquet.schema_force_view_types", "false")
    )
    runtime = (
        RuntimeEnvBuilder()
        .with_temp_file_path(job["scratch"])
        .with_fair_spill_pool(job["peer_memory"])
    )
    session = SessionContext(config, runtime)
    session.register_parquet("t", job["folder"])
    query = f"COPY (SELECT * FROM t ORDER BY {order_by(job)}) TO '{job['out']}' STORED AS PARQUET"
    return lambda: session.sql(query).collect() and None


TOOLS = {
    "plait-sort": Tool(plait_sort, "plait", "finds runs, sorts the rest, merges"),
    "plait-merge": Tool(plait_merge, "plait", "merges what is sorted: the yardstick"),
    "duckdb": Tool(duckdb_sort, "duckdb", "sorts, `memory_limit`, spills"),
    "datafusion": Tool(datafusion_sort, "datafusion", "sorts, memory pool, spills"),
    "polars": Tool(polars_sort, "polars", "sorts, streaming engine, no limit"),
    "pyarrow": Tool(pyarrow_sort, "pyarrow", "sorts in memory, no limit"),
}
