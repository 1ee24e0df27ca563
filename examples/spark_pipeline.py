"""Pipelines on Spark: sorted files arrive, a stream takes them in, a compaction runs at the same time.

    make demo-spark            or            python examples/spark_pipeline.py [FOLDER]

      agents ─▶ incoming/*.parquet ─▶ structured streaming ─▶ sorted runs, one commit a batch
                                                              ▲    │
                                                 compaction ──┘    └──▶ merge-on-read query

Twice: into a Delta table, whose log says which files are live, and into an Iceberg table, whose snapshots
say it. Executors are processes of their own (`local-cluster`). Half-way the stream is stopped as a
crash would stop it, before Spark has written down its last batch, and started again. In the end every
row that an agent wrote is there once, in order, in few files.
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


def samples(agent: int, tick: int, count: int) -> pa.Table:
    """What one agent saw in one minute, in the order of the key."""
    rng = np.random.default_rng(agent * 1000 + tick)
    metric, service = rng.integers(0, 40, count), rng.integers(0, 25, count)
    ts = 1_700_000_000 + tick * 60 + rng.integers(-20, 60, count)  # some come late
    order = np.lexsort((ts, service, metric))
    return pa.table(
        {
            "metric": [f"metric-{n:02}" for n in metric[order]],
            "service": [f"service-{n:02}" for n in service[order]],
            "ts": ts[order],
            "agent": pa.array([agent] * count, pa.int32()),
            "value": rng.normal(size=count),
        }
    )


def agents(incoming: Path, ticks: range, count: int) -> None:
    """Writes a file for every agent and minute; a file shows up whole."""
    for tick in ticks:
        for agent in range(AGENTS):
            draft = incoming / f".{tick:03}-{agent}"
            pq.write_table(samples(agent, tick, count), draft)
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


def runs_of(spark, incoming: Path):
    """The stream: files of a batch are merged in their tasks, into sorted runs."""
    from plait import spark as ps

    arriving = (
        spark.readStream.schema("metric string, service string, ts long, agent int, value double")
        .option("maxFilesPerTrigger", 8)
        .parquet(str(incoming))
        .selectExpr("*", "_metadata.file_name file")
    )
    # A task gets several files, each of which is sorted: that is merged, not sorted.
    return ps.merge_runs(arriving, run_column="file", sort_by=KEY).drop("file")


class InFolder:
    """Runs in a Delta table: the log in its folder says which files are live."""

    def __init__(self, home: Path) -> None:
        self.root = home / "metrics"
        self.root.mkdir()

    def take_in(self, runs, checkpoint: Path):
        """Starts the stream: the sink commits the runs of a batch once, whoever dies."""
        return (
            runs.writeStream.format("plait")
            .option("sort_by", KEY)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="1 second")
            .start(str(self.root))
        )

    def compact(self, spark, **policy):
        """Merges files while the stream runs: here, in this process."""
        return plait.compact(self.root, yes=True, **policy)

    def read(self, spark, **options):
        """Compacted files and fresh runs, merged while they are read; `None` before the first."""
        try:
            plait.scan(self.root)
        except plait.SourceNotFound:
            return None
        return spark.read.format("plait").options(**options).load(str(self.root))

    def tidy(self) -> str:
        """Removes what was replaced; nobody reads it any more."""
        removed = plait.Table(self.root).expire(0)
        left = len(list(self.root.glob("*.parquet")))
        return f"{left} file; {len(removed.removed)} replaced files removed"


class InTable:
    """Runs in an Iceberg table: its newest snapshot says which files are live."""

    NAME = "db.metrics"

    def __init__(self, home: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.schema import Schema
        from pyiceberg.table.sorting import NullOrder, SortField, SortOrder
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

        self.root = home / "lake"
        self.root.mkdir()
        self.catalog = SqlCatalog(
            "lake", uri=f"sqlite:///{home}/lake.db", warehouse=f"file://{self.root}"
        )
        self.catalog.create_namespace("db")
        columns = {
            "metric": StringType(),
            "service": StringType(),
            "ts": LongType(),
            "agent": IntegerType(),
            "value": DoubleType(),
        }
        fields = [NestedField(i, *column) for i, column in enumerate(columns.items(), 1)]
        # The order of the runs: compactions take it from the table.
        key = [
            SortField(field.field_id, IdentityTransform(), null_order=NullOrder.NULLS_LAST)
            for field in fields[: len(KEY.split(", "))]
        ]
        self.catalog.create_table(self.NAME, Schema(*fields), sort_order=SortOrder(*key))

    def take_in(self, runs, checkpoint: Path):
        """Starts the stream: runs of a batch are files first, then one snapshot names them."""
        return (
            runs.writeStream.foreachBatch(self.commit)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="1 second")
            .start()
        )

    def commit(self, batch, number: int) -> None:
        """Commits a batch, unless the table has it already."""
        table = self.catalog.load_table(self.NAME)
        if number <= int(table.properties.get("pipeline.batch", -1)):
            return
        # What an earlier try of this batch has left here is overwritten: no snapshot names it.
        folder = self.root / "data" / f"batch-{number:06}"
        batch.write.format("plait").option("sort_by", KEY).mode("overwrite").save(str(folder))
        runs = [f"file://{source.path}" for source in plait.plan(folder, sort_by=KEY).sources]
        with table.transaction() as transaction:
            transaction.add_files(runs)
            transaction.set_properties({"pipeline.batch": str(number)})

    def compact(self, spark, **policy):
        """Merges files while the stream runs: on executors; a snapshot replaces the files of a group."""
        from plait import spark as ps

        return ps.compact_iceberg(spark, self.catalog, self.NAME, **policy)

    def read(self, spark, **options):
        """The files of the newest snapshot, merged while they are read; `None` before the first."""
        files = [task.file.file_path for task in self.table().scan().plan_files()]
        return spark.read.format("plait").options(**options).load(sorted(files)) if files else None

    def table(self):
        return self.catalog.load_table(self.NAME)

    def tidy(self) -> str:
        """Reads the table as everybody else does."""
        scan = self.table().scan(selected_fields=("ts",))
        files, rows = len(list(scan.plan_files())), scan.to_arrow().num_rows
        self.catalog.close()
        return f"{files} file; PyIceberg reads {rows:,} rows of it"


def forget_last_batch(checkpoint: Path) -> int:
    """Leaves the checkpoint as a driver does that dies between a commit and Spark's note of it."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (*checkpoint.glob(f"commits/{last}"), *checkpoint.glob(f"commits/.{last}.*")):
        path.unlink()
    return last


def pipeline(spark, home: Path, kind, ticks: int = TICKS, count: int = ROWS) -> None:
    """One pipeline, from agents to the last query.

    Args:
        spark: The session.
        home: An empty folder.
        kind: `InFolder` or `InTable`.
        ticks: Minutes of samples; an even number.
        count: Samples of one agent in one minute.
    """
    from plait import spark as ps

    ps.register(spark)
    incoming, checkpoint = home / "incoming", home / "checkpoint"
    incoming.mkdir(parents=True)
    target = kind(home)
    for half in (range(ticks // 2), range(ticks // 2, ticks)):
        query = target.take_in(runs_of(spark, incoming), checkpoint)
        writing = threading.Thread(target=agents, args=(incoming, half, count))
        writing.start()
        expected = half.stop * AGENTS * count
        while True:
            if query.exception() is not None:
                raise SystemExit(f"the stream failed: {query.exception()}")
            done = target.compact(spark, policy="size_tiered", merge_factor=4)
            for group in done.groups:
                print(f"compacted  {len(group.sources)} files of {group.rows:,} rows")
            view = target.read(spark)
            rows = 0 if view is None else view.count()
            print(f"query      {rows:,} rows so far")
            if rows >= expected and not writing.is_alive():
                break
            time.sleep(1)
        query.stop()
        if half.start == 0:
            print(f"\ncrash      batch {forget_last_batch(checkpoint)} counts, Spark forgot it\n")

    frame = target.read(spark, read_log=str(home / "log"))
    own = spark.read.parquet(str(incoming))
    assert frame.count() == own.count() == ticks * AGENTS * count, "rows were lost or came twice"
    assert frame.exceptAll(own).isEmpty() and own.exceptAll(frame).isEmpty(), "rows differ"
    keys = [tuple(row) for row in frame.select("metric", "service", "ts").toLocalIterator()]
    assert keys == sorted(keys), "rows are out of order"
    print(f"\nall {len(keys):,} rows are there once and in order, as in Spark's own read and sort")

    shutil.rmtree(home / "log", ignore_errors=True)
    one = frame.where("metric = 'metric-07' and service = 'service-03'")
    means = one.groupBy("agent").mean("value").count()
    tasks = [json.loads(path.read_text()) for path in (home / "log").iterdir()]
    opened = sum(task["files_opened"] for task in tasks)
    print(f"one series: {one.count():,} rows of {means} agents, from {opened} files")

    target.compact(spark, policy="full")
    assert target.read(spark).count() == len(keys)
    print(f"compacted to {target.tidy()}")


def main() -> None:
    home = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="plait-pipeline-"))
    if home.exists() and any(home.iterdir()):
        raise SystemExit(f"{home} is not empty")
    home.mkdir(parents=True, exist_ok=True)
    spark = session(home)
    print("agents write sorted files; a stream takes them in; a compaction runs at the same time")
    print("\n-- into a folder\n")
    pipeline(spark, home / "folder", InFolder)
    print("\n-- into an Iceberg table\n")
    pipeline(spark, home / "iceberg", InTable)
    spark.stop()
    if len(sys.argv) < 2:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
