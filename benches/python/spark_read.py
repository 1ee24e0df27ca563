"""Reading sorted runs as one sorted DataFrame: the format `plait` and Spark's own sort.

    python benches/python/spark_read.py [--runs 16] [--rows 500000] [--rounds 3] [--alone]
    python benches/python/spark_read.py --lineitem --runs 200 [--scale 1] [--rounds 3]
    ... --master "local-cluster[2,1,1024]"    two executors instead of threads of one process

Both sides read the same files and hand every row, in order, to Spark's `noop` sink. Also: one series by
a filter on the key, and the latest row of every key; of W3 (`workloads.py`), dealt into more files, one
day and an unsorted read. Prints seconds, the best of the rounds, and checks
first that both sides have the same rows.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import workloads


def make(folder: Path, runs: int, rows: int) -> None:
    """Sorted runs of metrics whose key ranges overlap all over."""
    for run in range(runs):
        rng = np.random.default_rng(run)
        metric, ts = rng.integers(0, 1000, rows), rng.integers(0, 10**7, rows)
        order = np.lexsort((ts, metric))
        table = pa.table(
            {
                "metric": [f"metric-{n:04}" for n in metric[order]],
                "ts": ts[order],
                "run": pa.array([run] * rows, pa.int32()),
                "value": rng.normal(size=rows),
                "host": [f"host-{n}" for n in rng.integers(0, 200, rows)],
            }
        )
        pq.write_table(table, folder / f"{run:03}.parquet", row_group_size=100_000)


def deal(folder: Path, runs: int, scale: float) -> None:
    """The rows of W3, row by row in turn into so many sorted files."""
    home = folder / "w3"
    home.mkdir()
    parts = runs // 10
    workloads.prepare("W3", home, scale)
    for number, path in enumerate(sorted(home.glob("in-*.parquet"))):
        table = pq.read_table(path)
        for part in range(parts):
            rows = table.take(np.arange(part, len(table), parts))
            pq.write_table(rows, folder / f"{number}-{part:02}.parquet", compression="zstd")


def alone(files: str) -> None:
    """Plans and merges as the driver and a task would, in this process."""
    from plait.spark.source import MergingReader, PushingReader, Query, ds

    for limit in ("256MB", "64MB", "16MB"):
        query = Query.of({"path": files, "sort_by": "metric, ts", "memory_limit": limit})
        start = time.perf_counter()
        schema = query.spark_schema()
        planned = time.perf_counter() - start
        reader = MergingReader(query, schema)
        parts = reader.partitions()
        cut = time.perf_counter() - start - planned
        one = PushingReader(query, schema)
        one.pushFilters([ds.EqualTo(("metric",), "metric-0500")])
        start = time.perf_counter()
        found = len(one.partitions())
        pruned = time.perf_counter() - start
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before, started, rows, most = status("VmRSS"), time.process_time(), 0, 0
        for part in parts:
            for batch in reader.read(part):
                rows, most = rows + batch.num_rows, max(most, batch.num_rows)
        seconds = time.process_time() - started
        print(
            f"{limit:>6}: schema {planned:.2f} s, {len(parts)} parts {cut:.2f} s, one series {found} "
            f"part {pruned:.2f} s; {rows:,} rows in {seconds:.2f} s of a processor, batches up to "
            f"{most:,} rows, {status('VmHWM') - before} MB more than before"
        )


def status(name: str) -> int:
    """Megabytes of this process."""
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lineitem", action="store_true", help="the rows of W3, in --runs files")
    parser.add_argument("--scale", type=float, default=1.0, help="of W3")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--alone", action="store_true", help="the merge of a task, without Spark")
    options = parser.parse_args()
    if options.alone:
        with tempfile.TemporaryDirectory() as home:
            make(Path(home), options.runs, options.rows)
            alone(str(Path(home) / "*.parquet"))
        return
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf

    from plait import spark as ps

    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        if options.lineitem:
            deal(folder, options.runs, options.scale)
        else:
            make(folder, options.runs, options.rows)
        spark = (
            SparkSession.builder.master(options.master)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "8")
            .config("spark.log.level", "ERROR")
            .config("spark.local.dir", home)
            .getOrCreate()
        )
        ps.register(spark)
        files = str(folder / "*.parquet")

        key = [name for name, _ in workloads.KEYS["W3"]] if options.lineitem else ["metric", "ts"]

        def plait_read(**more):
            return spark.read.format("plait").options(sort_by=", ".join(key), **more).load(files)

        own = spark.read.parquet(files)
        series = "metric = 'metric-0500'"
        cases = {
            "all rows in order": (plait_read, lambda: own.orderBy("metric", "ts")),
            "one of 1000 series": (
                lambda: plait_read().where(series),
                lambda: own.where(series).orderBy("metric", "ts"),
            ),
            "last row of every key": (
                lambda: plait_read(on_duplicate="keep_last"),
                lambda: own.groupBy("metric", "ts").agg(sf.max_by("value", "run").alias("value")),
            ),
        }
        if options.lineitem:
            day = "l_shipdate = date '1995-06-17'"
            cases = {
                "all rows in order": (plait_read, lambda: own.orderBy(*key)),
                "all rows, Spark unsorted": (plait_read, lambda: own),
                "one day": (lambda: plait_read().where(day), lambda: own.where(day)),
            }
        print(
            f"{options.runs} runs of {own.count() // options.runs:,} rows, {options.master}, best of {options.rounds}"
        )
        for name, sides in cases.items():
            counts = [side().count() for side in sides]
            assert counts[0] == counts[1], f"{name}: {counts}"
            best = []
            for side in sides:
                seconds = []
                for _ in range(options.rounds):
                    start = time.perf_counter()
                    side().write.format("noop").mode("overwrite").save()
                    seconds.append(time.perf_counter() - start)
                best.append(min(seconds))
            print(f"{name:24} plait {best[0]:6.2f} s   Spark {best[1]:6.2f} s   {counts[0]:,} rows")
        spark.stop()


if __name__ == "__main__":
    main()
