"""Iceberg on Spark: `rewrite_data_files` with strategy sort, on a table of the sorted files.

Runs in an environment of the Spark that Iceberg's runtime is made for, with PyArrow and pandas:
`--peer-python`. The jar comes from Maven by the client that is part of Spark.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pyspark
import spark_compact
from missing import NotInstalled
from pyspark.errors import PySparkRuntimeError
from tools import SPARK

ICEBERG = "1.12.0"
JAR = f"org.apache.iceberg:iceberg-spark-runtime-{SPARK}_2.13:{ICEBERG}"
DRIVER_MEMORY = "8g"


def ready(job: dict):
    if not pyspark.__version__.startswith(f"{SPARK}."):
        found = f"{pyspark.__version__} is, and Iceberg {ICEBERG} has no runtime for it"
        raise NotInstalled(f"PySpark {SPARK} ({found}): --peer-python")
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise NotInstalled("a JDK")
    size = sum(os.path.getsize(path) for path in job["sources"])
    asked = {
        "sources": job["sources"],
        "key": job["key"],
        "out": f"{Path(job['scratch']).resolve()}/iceberg",
        "iceberg_jar": JAR,
        # A task sorts and writes a file: one for every thread, or threads would be idle.
        "target": -(-size // job["threads"]),
    }
    spark = start(asked, job["threads"])
    # A small rewrite loads classes and compiles the common paths; it does not count.
    first = asked["sources"][:1]
    few = asked | {"sources": first, "target": max(1, os.path.getsize(first[0]) // 8)}
    rewrite(few, spark, spark_compact.iceberg_table(few, spark, "small"))
    table = spark_compact.iceberg_table(asked, spark, "whole")

    def run():
        used, started = processor_s(), time.perf_counter()
        rewrite(asked, spark, table)
        told = {"wall_s": time.perf_counter() - started, "cpu_s": processor_s() - used}
        told["rss_bytes"] = peak_bytes()
        java = spark._jvm.System.getProperty("java.version")
        told["versions"] = f"Iceberg {ICEBERG} on Spark {spark.version} (Java {java})"
        found = spark.sql(f"SELECT file_path FROM lake.{table}.files").collect()
        for i, row in enumerate(sorted(found)):
            shutil.move(row.file_path.removeprefix("file:"), f"{job['out']}.{i}")
        stop(spark)
        return told

    return run


def start(asked: dict, threads: int):
    """A session with a catalog in a folder, in one process besides this."""
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.local.dir": f"{asked['out']}-spark",
        **spark_compact.lake(asked),
    }
    try:
        return spark_compact.start_spark(f"local[{threads}]", **settings)
    except PySparkRuntimeError:
        raise NotInstalled(f"a JDK that starts Spark, or {JAR}") from None


def stop(spark) -> None:
    """Ends the JVM and waits for it: else its time would seem that of other programs."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def rewrite(asked: dict, spark, table: str) -> None:
    order = ", ".join(f"{c} {'DESC' if down else 'ASC'} NULLS LAST" for c, down in asked["key"])
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{table}', strategy => 'sort', "
        f"sort_order => '{order}', options => map('rewrite-all', 'true', "
        f"'target-file-size-bytes', '{asked['target']}', "
        # A task whose file comes out larger than planned does not begin another.
        f"'max-file-size-bytes', '{4 * asked['target']}'))"
    ).collect()


def processor_s() -> float:
    """Processor seconds of this process and of the JVM."""
    return sum(used for _, used, _ in spark_compact.processes().values())


def peak_bytes() -> int:
    """The greatest memory of this process and of those below it, added up."""
    total = 0
    for pid in spark_compact.processes():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                total += int(line.split()[1]) * 1024
    return total
