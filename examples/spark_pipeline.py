"""A pipeline on Spark: sorted files arrive, a stream takes them in, a compaction runs beside it.

    make demo-spark            or            python examples/spark_pipeline.py [FOLDER]

      agents ─▶ incoming/*.parquet ─▶ structured streaming ─▶ metrics/  sorted runs, one commit a batch
                                                              ▲    │
                                              plait.compact ──┘    └──▶ merge-on-read query

Executors are processes of their own (`local-cluster`). Half-way the stream is stopped as a crash would
stop it, before Spark has written down its last batch, and started again. In the end every row that an
agent wrote is there once, in order, in few files.
"""

import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait

AGENTS = 4
TICKS = 12
ROWS = 20_000
KEY = "metric, service, ts"


def samples(agent: int, tick: int) -> pa.Table:
    """What one agent saw in one minute, in the order of the key."""
    rng = np.random.default_rng(agent * 1000 + tick)
    metric, service = rng.integers(0, 40, ROWS), rng.integers(0, 25, ROWS)
    ts = 1_700_000_000 + tick * 60 + rng.integers(-20, 60, ROWS)  # some come late
    order = np.lexsort((ts, service, metric))
    return pa.table(
        {
            "metric": [f"metric-{n:02}" for n in metric[order]],
            "service": [f"service-{n:02}" for n in service[order]],
            "ts": ts[order],
            "agent": pa.array([agent] * ROWS, pa.int32()),
            "value": rng.normal(size=ROWS),
        }
    )


def agents(incoming: Path, ticks: range) -> None:
    """Writes a file for every agent and minute; a file shows up whole."""
    for tick in ticks:
        for agent in range(AGENTS):
            draft = incoming / f".{tick:03}-{agent}"
            pq.write_table(samples(agent, tick), draft)
            draft.rename(incoming / f"{tick:03}-{agent}.parquet")
        time.sleep(0.5)


def session(home: Path):
    """Two executors, one core each, on this machine."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .appName("plait pipeline")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "700m")
        .config("spark.executor.pyspark.memory", "2g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(home / "spark"))
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def take_in(spark, incoming: Path, metrics: Path, checkpoint: Path):
    """Starts the stream: files of a batch are merged in their tasks, and written as sorted runs."""
    from plait import spark as ps

    arriving = (
        spark.readStream.schema("metric string, service string, ts long, agent int, value double")
        .option("maxFilesPerTrigger", 8)
        .parquet(str(incoming))
        .selectExpr("*", "_metadata.file_name file")
    )
    # A task gets several files, each of which is sorted: that is merged, not sorted.
    merged = ps.merge_runs(arriving, run_column="file", sort_by=KEY).drop("file")
    return (
        merged.writeStream.format("plait")
        .option("sort_by", KEY)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .start(str(metrics))
    )


def forget_last_batch(checkpoint: Path) -> int:
    """Leaves the checkpoint as a driver does that dies between a commit and Spark's note of it."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (*checkpoint.glob(f"commits/{last}"), *checkpoint.glob(f"commits/.{last}.*")):
        path.unlink()
    return last


def main() -> None:
    home = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="plait-pipeline-"))
    if home.exists() and any(home.iterdir()):
        raise SystemExit(f"{home} is not empty")
    incoming, metrics, checkpoint = home / "incoming", home / "metrics", home / "checkpoint"
    for folder in (incoming, metrics):
        folder.mkdir(parents=True)
    spark = session(home)
    from plait import spark as ps

    ps.register(spark)

    print("agents write sorted files; a stream takes them in; a compaction runs beside it\n")
    for half in (range(TICKS // 2), range(TICKS // 2, TICKS)):
        query = take_in(spark, incoming, metrics, checkpoint)
        writing = threading.Thread(target=agents, args=(incoming, half))
        writing.start()
        expected = half.stop * AGENTS * ROWS
        while True:
            if query.exception() is not None:
                raise SystemExit(f"the stream failed: {query.exception()}")
            done = plait.compact(metrics, policy="size_tiered", merge_factor=4, yes=True)
            for group in done.groups:
                print(f"compacted  {len(group.sources)} files of {group.rows:,} rows")
            count = 0
            if any(metrics.glob("_plait/manifest-*.json")):
                # Compacted files and fresh runs, merged while they are read.
                view = spark.read.format("plait").load(str(metrics))
                count = view.count()
                print(f"query      {count:,} rows so far")
            if count >= expected and not writing.is_alive():
                break
            time.sleep(1)
        query.stop()
        if half.start == 0:
            print(f"\ncrash      batch {forget_last_batch(checkpoint)} counts, Spark forgot it\n")

    frame = spark.read.format("plait").option("read_log", str(home / "log")).load(str(metrics))
    own = spark.read.parquet(str(incoming))
    assert frame.count() == own.count() == TICKS * AGENTS * ROWS, "rows were lost or came twice"
    assert frame.exceptAll(own).isEmpty() and own.exceptAll(frame).isEmpty(), "rows differ"
    keys = [tuple(row) for row in frame.select("metric", "service", "ts").toLocalIterator()]
    assert keys == sorted(keys), "rows are out of order"
    print(f"\nall {len(keys):,} rows are there once and in order, as in Spark's own read and sort")

    shutil.rmtree(home / "log", ignore_errors=True)
    one = frame.where("metric = 'metric-07' and service = 'service-03'")
    means = one.groupBy("agent").mean("value").count()
    opened = sum(
        len(entry["files"])
        for entry in (json.loads(p.read_text()) for p in (home / "log").iterdir())
    )
    print(f"one series: {one.count():,} rows of {means} agents, from {opened} files")

    plait.compact(metrics, policy="full", yes=True)
    removed = plait.expire(metrics, retention=0, yes=True)
    assert spark.read.format("plait").load(str(metrics)).count() == len(keys)
    left = list(metrics.rglob("*.parquet"))
    print(f"compacted to {len(left)} file; {len(removed.replaced)} replaced files removed")
    spark.stop()
    if len(sys.argv) < 2:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
