"""The tools that are measured: Plait, its peers, and floors that no merge through Arrow gets below.

Each takes a job (sources, key, output, threads) and returns a function: what happens before it is
called, such as imports and plans, is not timed. All write zstd level 3, except for Plait, which
chooses as it does for users.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

# The Spark that Iceberg's newest runtime is made for.
SPARK = "4.1"
# A dictionary paid where it made a value shorter than this, as encoded, before compression: fixed
# widths by this share of their plain size, text to fewer bytes than its length alone takes.
PAID_SHARE = 0.7
TEXT_BYTES = 4
PLAIN_BYTES = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


@dataclass(frozen=True)
class Tool:
    """How to run a tool, which package it is from, and what it does, in a few words."""

    ready: Callable[[dict], Callable[[], dict | None]]
    package: str
    does: str
    is_floor: bool = False
    # Runs in another environment, that of `--peer-python`.
    is_apart: bool = False


def order_by(job: dict, quote: str = '"') -> str:
    """The key in SQL."""
    parts = (f"{quote}{c}{quote} {'DESC' if down else 'ASC'} NULLS LAST" for c, down in job["key"])
    return ", ".join(parts)


def files(paths: list[str]) -> str:
    """Paths as SQL text, separated by commas."""
    return ", ".join("'" + path.replace("'", "''") + "'" for path in paths)


# -- Plait -----------------------------------------------------------------------------------------


def plait_merge(job: dict):
    import plait

    options = {"memory_limit": job["memory_limit"]} if job["memory_limit"] else {}
    if job["row_group_rows"]:
        # Row groups of so many rows, as the others: the limit in bytes is out of the way.
        options |= {"row_group_rows": job["row_group_rows"], "row_group_size": "1TB"}

    def run():
        report = plait.merge(
            job["sources"], job["out"], sort_by=job["sort_by"], threads=job["threads"], **options
        ).to_dict()
        return {
            "stages": report["time"],
            "memory": report["memory"],
            "copied": report.get("copied", {}),
            "warnings": report.get("warnings", []),
        }

    return run


# -- peers -----------------------------------------------------------------------------------------


def duckdb_sort(job: dict):
    return duckdb_limited(job, None)


def duckdb_limited(job: dict, memory_bytes: int | None):
    import duckdb

    database = duckdb.connect()
    database.execute(f"SET threads = {job['threads']}")
    database.execute(f"SET temp_directory = {files([job['scratch']])}")
    if memory_bytes is not None:
        database.execute(f"SET memory_limit = '{memory_bytes >> 20}MiB'")
    query = (
        f"COPY (SELECT * FROM read_parquet([{files(job['sources'])}]) ORDER BY {order_by(job)}) "
        f"TO {files([job['out']])} (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, "
        f"ROW_GROUP_SIZE {job['peer_row_group_rows']})"
    )
    return lambda: database.execute(query) and None


def datafusion_merge(job: dict, *, tuned: bool):
    from datafusion import SessionConfig, SessionContext, col

    config = (
        SessionConfig()
        .with_target_partitions(len(job["sources"]))  # one file a partition keeps its order
        .set("datafusion.execution.parquet.compression", "zstd(3)")
        .set("datafusion.execution.parquet.max_row_group_size", str(job["peer_row_group_rows"]))
        .set("datafusion.optimizer.repartition_file_scans", "false")
        .set("datafusion.execution.parquet.schema_force_view_types", "false")
    )
    session = SessionContext(config)
    declared = [[col(f'"{c}"').sort(ascending=not d, nulls_first=False) for c, d in job["key"]]]
    session.register_parquet("t", job["folder"], file_sort_order=declared)
    select = f"SELECT * FROM t ORDER BY {order_by(job)}"
    plan = session.sql(f"EXPLAIN {select}").collect()
    text = " ".join(str(row["plan"]) for batch in plan for row in batch.to_pylist())
    assert "SortPreservingMergeExec" in text, "DataFusion does not use the declared order"
    assert "SortExec" not in text, "DataFusion sorts although the order is declared"
    query = f"COPY ({select}) TO {files([job['out']])} STORED AS PARQUET"
    plain = without_dictionary(job["sources"][0]) if tuned else []
    if plain:
        off = (f"'format.dictionary_enabled::{path}' 'false'" for path in plain)
        query += f" OPTIONS ({', '.join(off)})"
    return lambda: session.sql(query).collect() and None


def polars_write(frame, job: dict):
    def run():
        frame.sink_parquet(
            job["out"],
            compression="zstd",
            compression_level=3,
            row_group_size=job["peer_row_group_rows"],
            maintain_order=True,
            engine="streaming",
        )

    return run


def polars_sort(job: dict):
    import polars as pl

    columns, descending = zip(*job["key"])
    frame = pl.scan_parquet(job["sources"])
    return polars_write(frame.sort(columns, descending=descending, nulls_last=True), job)


def polars_merge(job: dict):
    """A tree of `merge_sorted`, which knows ascending order only: numbers that descend are negated."""
    import polars as pl

    def negated(column: str) -> str:
        return f"negated {column}"

    down = [column for column, descending in job["key"] if descending]
    key = [negated(column) if column in down else column for column, _ in job["key"]]
    turned = [(-pl.col(column)).alias(negated(column)) for column in down]
    frames = [pl.scan_parquet(path).with_columns(turned).set_sorted(key) for path in job["sources"]]
    while len(frames) > 1:
        pairs = [frames[i : i + 2] for i in range(0, len(frames), 2)]
        frames = [
            pair[0].merge_sorted(pair[1], key=key) if len(pair) == 2 else pair[0] for pair in pairs
        ]
    return polars_write(frames[0].drop([negated(column) for column in down]), job)


def chdb_sort(job: dict):
    import chdb

    chdb.query("SELECT 1")  # starts the engine
    settings = {
        "max_threads": job["threads"],
        "max_parsing_threads": job["threads"],
        "schema_inference_make_columns_nullable": "'auto'",
        "output_format_parquet_row_group_size": job["peer_row_group_rows"],
        "output_format_parquet_compression_method": "'zstd'",
        "output_format_compression_level": 3,
    }
    query = (
        f"SELECT * FROM file({files([job['folder'] + '*.parquet'])}, Parquet) "
        f"ORDER BY {order_by(job, '`')} INTO OUTFILE {files([job['out']])} FORMAT Parquet "
        "SETTINGS " + ", ".join(f"{name} = {value}" for name, value in settings.items())
    )
    return lambda: chdb.query(query) and None


def pyarrow_sort(job: dict):
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
            row_group_size=job["peer_row_group_rows"],
            write_page_index=True,
        )

    return run


def parquet_go(job: dict):
    import tools_go

    return tools_go.ready(job)


def iceberg_rewrite(job: dict):
    import tools_spark

    return tools_spark.ready(job)


# -- floors ----------------------------------------------------------------------------------------


def decode_and_encode(job: dict, *, tuned: bool):
    """Every thread reads its share of the sources and writes its own file: nothing is ordered."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(job["threads"])
    pa.set_io_thread_count(job["threads"])
    first = job["sources"][0]
    plain = without_dictionary(first) if tuned else []
    group = pq.read_metadata(first).row_group(0)
    leaves = [group.column(i).path_in_schema for i in range(group.num_columns)]
    paid = [leaf for leaf in leaves if leaf not in plain]
    text = [f.name for f in pq.read_schema(first) if pa.types.is_string(f.type) and f.name in paid]

    def share(thread: int) -> None:
        writer = None
        for path in job["sources"][thread :: job["threads"]]:
            source = pq.ParquetFile(path, read_dictionary=text if tuned else None)
            for i in range(source.num_row_groups):
                table = source.read_row_group(i, use_threads=False)
                writer = writer or pq.ParquetWriter(
                    f"{job['out']}.{thread}",
                    table.schema,
                    compression="zstd",
                    compression_level=3,
                    use_dictionary=paid if tuned else True,
                    write_page_index=True,
                )
                writer.write_table(table, row_group_size=job["peer_row_group_rows"])
        if writer:
            writer.close()

    def run():
        with ThreadPoolExecutor(job["threads"]) as pool:
            list(pool.map(share, range(job["threads"])))

    return run


def copy_bytes(job: dict):
    def run():
        for i, path in enumerate(job["sources"]):
            shutil.copyfile(path, f"{job['out']}.{i}")

    return run


def without_dictionary(path: str) -> list[str]:
    """Leaf columns of a file in which a dictionary did not make values much shorter."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(path)
    group = footer.row_group(0)
    found = []
    for i in range(group.num_columns):
        chunk, leaf = group.column(i), footer.schema.column(i)
        if chunk.physical_type == "BYTE_ARRAY":
            most = TEXT_BYTES
        elif chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
            most = PAID_SHARE * leaf.length
        else:
            most = PAID_SHARE * PLAIN_BYTES.get(chunk.physical_type, float("inf"))
        if chunk.total_uncompressed_size >= most * max(1, chunk.num_values):
            found.append(chunk.path_in_schema)
    return found


# -- all -------------------------------------------------------------------------------------------

TOOLS = {
    "plait": Tool(plait_merge, "plait", "merges"),
    "duckdb": Tool(duckdb_sort, "duckdb", "sorts"),
    "datafusion": Tool(
        partial(datafusion_merge, tuned=False),
        "datafusion",
        "merges, because it is configured with the sort order of every file",
    ),
    "datafusion-tuned": Tool(
        partial(datafusion_merge, tuned=True),
        "datafusion",
        "also disables dictionaries for columns where they did not pay off in the sources",
    ),
    "polars-merge": Tool(polars_merge, "polars", "merges pairwise with `merge_sorted`"),
    "polars-sort": Tool(polars_sort, "polars", "sorts"),
    "chdb": Tool(chdb_sort, "chdb", "(ClickHouse) sorts"),
    "pyarrow": Tool(pyarrow_sort, "pyarrow", "sorts"),
    "parquet-go": Tool(
        parquet_go, "", "(Go) merges in one thread, with `MergeRowGroups` and `WriteRowGroup`"
    ),
    "iceberg": Tool(
        iceberg_rewrite,
        "",
        "sorts: `rewrite_data_files` of Iceberg on Spark, strategy `sort`, on a table of the files",
        is_apart=True,
    ),
    "floor": Tool(
        partial(decode_and_encode, tuned=False),
        "pyarrow",
        "decodes and encodes with PyArrow, without order; every thread has its own share of the files",
        is_floor=True,
    ),
    "floor-tuned": Tool(
        partial(decode_and_encode, tuned=True),
        "pyarrow",
        "does the same, and keeps dictionary encoding where it paid off in the sources",
        is_floor=True,
    ),
    "cp": Tool(copy_bytes, "", "copies the bytes", is_floor=True),
}


def versions(names) -> str:
    """The versions of the packages of these tools, as far as they are installed here."""
    installed = []
    for package in dict.fromkeys(TOOLS[name].package for name in names):
        try:
            installed.append(f"{package} {metadata.version(package)}")
        except (metadata.PackageNotFoundError, ValueError):
            continue
    return ", ".join(installed)


def out_bytes(out: str) -> int:
    """Bytes of the output, or of the outputs of all threads."""
    return sum(path.stat().st_size for path in outputs(out))


def remove(out: str) -> None:
    """Removes the output, or what is there of it."""
    for path in outputs(out):
        path.unlink()


def outputs(out: str) -> list[Path]:
    path = Path(out)
    return [path] * path.exists() + sorted(path.parent.glob(path.name + ".*"))
