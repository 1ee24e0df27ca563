"""Memory of Python workers that run user functions in Spark: one function of each kind.

    python benches/python/spark_functions.py [--rows 2000000] [--groups 8] [--only KIND]
    ... --batch-rows 1000000    spark.sql.execution.arrow.maxRecordsPerBatch, 10,000 by default

The functions are those of docs/guide/spark-functions.md, on a cluster of two executors with one
Python worker each. No worker is used twice, so a peak is of one kind alone. At its end, each call
writes the peak of its process (`ru_maxrss`) to a file. What Spark does after a call is in the peak
of the next one, and all workers but those of `--groups 1` have several. Two further kinds only
import what the others do, and pass on what they get.

Prints a line for each kind: the greatest peak of any worker, how far it is above the worker that
passes Arrow batches on, the number of workers, rows out, and seconds with start and shuffle. Rows
and a sum of each result are compared with Spark's own functions first. With `--groups 1`, all rows
have one key. Takes minutes; on a busy machine, three JVMs need longer than the default `--timeout`.
"""

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import plait
from plait.spark import functions as fn

warnings.filterwarnings("ignore", category=FutureWarning)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
RUNS = 8


# -- functions, on workers -------------------------------------------------------------------------


def note(kind: str) -> None:
    """Writes the peak of this process so far, in KiB, in place of what an earlier call wrote."""
    folder = Path(os.environ["PEAKS"], kind)
    folder.mkdir(parents=True, exist_ok=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (folder / str(os.getpid())).write_text(str(peak))


def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a worker takes at least: `plait` and `fn` are imported with this module's names."""
    assert plait.__name__ and fn.__name__
    yield from batches
    note("Arrow batches, passed on")


def passed_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    assert plait.__name__ and fn.__name__
    yield from frames
    note("frames, passed on")


def merged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    files = [path for batch in batches for path in batch.column("path").to_pylist()]
    yield from fn.to_spark(fn.merge_sorted(files, sort_by="ts", on_duplicate="keep_last"))
    note("mapInArrow")


def scanned(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        scan = plait.scan(
            list(frame["path"]), implicit=["_filename"], threads=1, memory_limit="64MB"
        )
        for batch in scan.to_batches():
            yield pa.record_batch(batch).to_pandas()
    note("mapInPandas")


def newest(table: pa.Table) -> pa.Table:
    runs = sorted(pc.unique(table["run"]).to_pylist())
    parts = [table.filter(pc.field("run") == run).sort_by("ts") for run in runs]
    made = pa.table(plait.merge_streams(parts, sort_by="ts", on_duplicate="keep_last"))
    note("applyInArrow, tables")
    return made


def in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pieces = (
        batch.sort_by("ts").append_column("piece", pa.repeat(number, len(batch)))
        for number, batch in enumerate(batches)
    )
    limits = {"memory_limit": "16MB", "sort_by": "ts"}
    for batch in fn.merge_runs(pieces, run_column="piece", **limits):
        yield batch.drop_columns("piece")
    note("applyInArrow, batches")


def joined(left: pa.Table, right: pa.Table) -> pa.Table:
    keys = {"left_key": "id", "foreign_key": "name", "right_key": "name"}
    schemas = {"left_schema": left.schema, "right_schema": right.schema}
    join = plait.ForeignKeyJoin(**keys, **schemas, threads=1, memory_limit="128MB")
    made = pa.table(join.apply(left=left, right=right)).select(["id", "name", "unit"])
    note("applyInArrow, cogroups")
    return made


def smoothed(group: pd.DataFrame) -> pd.DataFrame:
    group = group.sort_values(["ts", "run"])
    index = pa.array(range(len(group)), pa.int64())
    base = pa.Table.from_pandas(group, preserve_index=False).append_column("_index", index)
    mean = group["value"].rolling(2, min_periods=1).mean()
    layers = [
        plait.Layer(base),
        plait.Layer(pa.table({"_index": index, "mean": pa.array(mean.to_numpy())}), ["mean"]),
    ]
    made = pa.table(plait.overlay(layers)).drop_columns("_index").to_pandas()
    note("applyInPandas")
    return made


def chosen(first: pa.Array, second: pa.Array, which: pa.Array) -> pa.Array:
    rows = pa.array(range(len(which)), pa.uint32())
    return pa.array(plait.interleave([first, second], which.cast(pa.uint8()), rows))


def pick(first: pa.Array, second: pa.Array, which: pa.Array) -> pa.Array:
    made = chosen(first, second, which)
    note("arrow_udf")
    return made


def pick_series(first: pd.Series, second: pd.Series, which: pd.Series) -> pd.Series:
    made = chosen(*map(pa.Array.from_pandas, (first, second, which))).to_pandas()
    note("pandas_udf")
    return made


class FileRows:
    def eval(self, path: pa.Array) -> Iterator[pa.RecordBatch]:
        for name in path.to_pylist():
            scan = plait.scan(name, ["ts", "value"], threads=1, memory_limit="64MB")
            yield from fn.to_spark(scan.to_batches())
        note("arrow_udtf, values")


class Picked:
    def eval(self, rows: pa.RecordBatch) -> Iterator[pa.Table]:
        yield pa.table({"value": chosen(rows["value"], rows["other"], rows["which"])})
        note("arrow_udtf, batches of a table")


# -- what they are given ---------------------------------------------------------------------------


def make(folder: Path, rows: int) -> list[str]:
    """Sorted runs; every other one has the same times, and a column that the others lack."""
    folder.mkdir()
    count = rows // RUNS
    for run in range(RUNS):
        numbers = np.arange(count)
        columns = {
            "ts": numbers * 2 + run % 2,
            "run": pa.array(np.full(count, run)),
            "value": (numbers * 7 + run).astype(float),
            "host": [f"host-{n}" for n in numbers % 200],
        }
        if run % 2:
            columns["note"] = [f"note {n}" for n in numbers % 1000]
        pq.write_table(pa.table(columns), folder / f"run-{run}.parquet", row_group_size=100_000)
    return [str(path) for path in sorted(folder.iterdir())]


def samples_of(spark, rows: int, groups: int):
    """Rows of some series in mixed order; two runs of the four of a series have a time each."""
    size = rows // groups
    return (
        spark.range(0, size * groups, 1, 2)
        .selectExpr(f"id % {groups} series", f"id div {groups} * 1000003 % {size} number")
        .selectExpr(
            "concat('series-', series) name",
            "number % 2 + number div 2 % 2 * 2 run",
            "number div 2 ts",
            "cast(number as double) value",
            "concat('host-', number % 200) host",
        )
    )


@dataclass
class Kind:
    """What calls a function, and what Spark's own functions say its rows and the sum are."""

    frame: Any
    own: Any
    column: str = "value"


def kinds(spark, folder: Path, rows: int, groups: int) -> dict[str, Callable[[], Kind]]:
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    files = make(folder, rows)
    paths = spark.createDataFrame([(path,) for path in files], "path string").coalesce(1)
    stored = spark.read.parquet(*files)
    samples = samples_of(spark, rows, groups)
    series = samples.groupBy("name")
    latest = sf.max_by("value", "run").alias("value")
    names = rows // 10
    left = spark.range(0, rows, 1, 2).selectExpr(
        f"id % {names} % {groups} shard", "id", f"concat('name-', id % {names}) name"
    )
    right = spark.range(0, names, 1, 2).selectExpr(
        f"id % {groups} shard", "concat('name-', id) name", "concat('unit-', id % 50) unit"
    )
    right = right.where("name not like '%3'")
    both = left.groupBy("shard").cogroup(right.groupBy("shard"))
    before = Window.partitionBy("name").orderBy("ts", "run").rowsBetween(-1, 0)
    columns = [sf.col("value"), sf.col("ts").cast("double").alias("other"), sf.col("run") % 2]
    columns[2] = columns[2].alias("which")
    wide = samples.select(*columns)
    own_pick = wide.selectExpr("if(which = 0, value, other) value")
    spark.udtf.register("file_rows", sf.arrow_udtf(FileRows, returnType="ts long, value double"))
    spark.udtf.register("picked", sf.arrow_udtf(Picked, returnType="value double"))
    wide.createOrReplaceTempView("wide")

    def udf(make_udf: Callable, function: Callable):
        return wide.select(make_udf(function, "double")("value", "other", "which").alias("value"))

    declared = "ts long, run long, value double, host string, note string"
    listed = samples.schema.simpleString()[7:-1]
    found = "id long, name string, unit string"
    return {
        "Arrow batches, passed on": lambda: Kind(
            samples.mapInArrow(passed, samples.schema), samples
        ),
        "frames, passed on": lambda: Kind(
            samples.mapInPandas(passed_frames, samples.schema), samples
        ),
        "mapInArrow": lambda: Kind(
            paths.mapInArrow(merged, declared), stored.groupBy("ts").agg(latest)
        ),
        "mapInPandas": lambda: Kind(
            paths.mapInPandas(scanned, f"{declared}, _filename string"), stored
        ),
        "applyInArrow, tables": lambda: Kind(
            series.applyInArrow(newest, samples.schema), samples.groupBy("name", "ts").agg(latest)
        ),
        "applyInArrow, batches": lambda: Kind(
            series.applyInArrow(in_order, samples.schema), samples
        ),
        "applyInArrow, cogroups": lambda: Kind(
            both.applyInArrow(joined, found), left.join(right, "name"), "id"
        ),
        "applyInPandas": lambda: Kind(
            series.applyInPandas(smoothed, f"{listed}, mean double"),
            samples.select(sf.avg("value").over(before).alias("mean")),
            "mean",
        ),
        "arrow_udf": lambda: Kind(udf(sf.arrow_udf, pick), own_pick),
        "pandas_udf": lambda: Kind(udf(sf.pandas_udf, pick_series), own_pick),
        "arrow_udtf, values": lambda: Kind(
            spark.sql(f"select value from file_rows('{folder}')"), stored
        ),
        "arrow_udtf, batches of a table": lambda: Kind(
            spark.sql("select value from picked(table(wide))"), own_pick
        ),
    }


# -- cluster ---------------------------------------------------------------------------------------


def session(root: Path, batch_rows: int):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executorEnv.PEAKS": str(root / "peaks"),
        "spark.local.dir": str(root / "local"),
        "spark.log.level": "ERROR",
        "spark.python.worker.reuse": "false",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(batch_rows),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("plait functions")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def remove_logs(application: str) -> None:
    """Removes what executors wrote: a local cluster does so beside the code of Spark only."""
    from pyspark.find_spark_home import _find_spark_home

    shutil.rmtree(Path(_find_spark_home(), "work", application), ignore_errors=True)


def totals(frame, column: str) -> tuple[int, float]:
    from pyspark.sql import functions as sf

    rows, total = frame.agg(sf.count("*"), sf.sum(column)).first()
    return rows, total


def measure(kind: Kind, peaks: Path) -> tuple[int, float, list[int]]:
    """Rows out, seconds, and the peaks of all workers in bytes."""
    start = time.perf_counter()
    found = totals(kind.frame, kind.column)
    seconds = time.perf_counter() - start
    expected = totals(kind.own, kind.column)
    assert found == expected, f"{peaks.name}: {found}, and {expected} by Spark's own functions"
    return found[0], seconds, [int(path.read_text()) << 10 for path in peaks.iterdir()]


def give_up(number, _frame) -> None:
    raise TimeoutError(f"the cluster is stopped before it is done ({signal.Signals(number).name})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--groups", type=int, default=8, help="keys, all with as many rows")
    parser.add_argument("--batch-rows", type=int, default=10_000)
    parser.add_argument("--only", default="", help="kinds with this in their names")
    parser.add_argument("--timeout", type=int, default=900, help="seconds, then all is stopped")
    options = parser.parse_args()
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, give_up)
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        signal.alarm(options.timeout)
        spark = session(root, options.batch_rows)
        try:
            print(
                f"{options.rows:,} rows, {options.groups} groups, batches of {options.batch_rows:,}"
                f" rows at most, PySpark {spark.version}, PyArrow {pa.__version__}"
            )
            base = 0
            for name, kind in kinds(spark, root / "runs", options.rows, options.groups).items():
                if base and options.only not in name:
                    continue
                rows, seconds, peaks = measure(kind(), root / "peaks" / name)
                base = base or max(peaks)
                print(
                    f"{name:31} peak {max(peaks) / 1e6:5.0f} MB, {(max(peaks) - base) / 1e6:+5.0f}"
                    f" MB   workers {len(peaks)}   {rows:>10,} rows   {seconds:5.1f} s",
                    flush=True,
                )
        finally:
            application = spark.sparkContext.applicationId
            signal.alarm(60)
            spark.stop()
            signal.alarm(0)
            remove_logs(application)


if __name__ == "__main__":
    main()
