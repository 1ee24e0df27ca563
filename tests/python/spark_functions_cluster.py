"""The functions of the guide on a local cluster, on many rows; prints the peak of their workers.

    python spark_functions_cluster.py FOLDER ROWS

The page is run first: its functions are those that are measured. One JSON object a line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import time
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

warnings.filterwarnings("ignore", category=FutureWarning)
PAGE = Path(__file__).resolve().parents[2] / "docs/guide/spark-functions.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def start():
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
        # A worker for each task: its peak is that of one kind.
        "spark.python.worker.reuse": "false",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("plait functions")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def page() -> dict:
    """What the page defines, after all its examples ran here."""
    # Cloudpickle sends by value what is defined in `__main__`.
    names: dict = {"__name__": "__main__"}
    for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        exec(compile(match[1], str(PAGE), "exec"), names)
    return names


def kinds(spark, the: dict, rows: int) -> dict:
    """For every kind: a frame of its function, over `rows` rows, and how many rows it has."""
    half = rows // 2
    for run in range(2):
        times = pa.array(range(run, rows, 2), pa.int64())
        pq.write_table(pa.table({"ts": times, "value": times.cast("double")}), f"big-{run}.parquet")
    names = [str(Path.cwd() / f"big-{run}.parquet") for run in range(2)]
    paths = spark.createDataFrame([(name,) for name in names], "path string").coalesce(1)
    columns = ("concat('m', id % 2) name", "id % 4 div 2 run", "id ts", "double(id) value")
    frame = spark.range(0, rows, 1, 2).selectExpr(*columns)
    groups = frame.groupBy("name")
    left = frame.selectExpr("name", "ts id").groupBy("name")
    units = spark.createDataFrame([("m0", "%"), ("m1", "B")], "name string, unit string")
    choice = ("value", the["sf"].col("ts").cast("double"), "run")
    told = "id long, name string, unit string"
    mean = "name string, run long, ts long, value double, mean double"
    sql = f"select ts, value from file_rows('{names[0]}')"

    def passed(batches):
        yield from batches

    return {
        "nothing": (frame.mapInArrow(passed, frame.schema), rows),
        "mapInArrow": (paths.mapInArrow(the["merged"], "ts long, value double"), rows),
        "mapInPandas": (paths.mapInPandas(the["scanned"], the["declared"]), rows),
        "applyInArrow, tables": (groups.applyInArrow(the["newest"], frame.schema), rows),
        "applyInArrow, batches": (groups.applyInArrow(the["in_order"], frame.schema), rows),
        "applyInArrow, cogroups": (
            left.cogroup(units.groupBy("name")).applyInArrow(the["joined"], told),
            rows,
        ),
        "applyInPandas": (groups.applyInPandas(the["smoothed"], mean), rows),
        "pandas_udf": (frame.select(the["pick_series"](*choice).alias("x")), rows),
        "arrow_udf": (frame.select(the["pick"](*choice).alias("x")), rows),
        "arrow_udtf": (spark.sql(sql), half),
    }


def main() -> None:
    folder, rows = Path(sys.argv[1]), int(sys.argv[2])
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_WORKER_DIR"] = str(folder / "work")
    os.chdir(folder)
    spec = importlib.util.spec_from_file_location(
        "spark_cluster", Path(__file__).with_name("spark_cluster.py")
    )
    cluster = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cluster)
    spark = start()
    try:
        the = page()
        for kind, (frame, expected) in kinds(spark, the, rows).items():
            peaks = cluster.Peaks()
            peaks.start()
            started = time.monotonic()
            # All columns are asked for, and no row passes to the driver.
            names = ", ".join(frame.columns)
            found = frame.selectExpr("count(*) n", f"bit_xor(xxhash64({names})) h").collect()[0]
            seconds = time.monotonic() - started
            peaks.is_done.set()
            peaks.join()
            assert found.n == expected, (kind, found.n, expected)
            told = {"kind": kind, "rows": found.n, "seconds": round(seconds, 1)}
            sys.stdout.write(json.dumps({**told, "worker bytes": peaks.bytes_max}) + "\n")
            sys.stdout.flush()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
