"""Joins on Spark: seconds a batch and bytes of state, over batches of equal size.

    python benches/python/spark_join.py FOLDER [--batches 100] [--changes 50000] [--rows 500000]
                                               [--shards 16]

Every batch has as many changes as the others, nine left ones to one right one, of as many rows as
before: half of the left changes move their row, some delete it. What is measured is the time from
batch to batch, sink included, which writes the changes to a file, and what the checkpoint takes.
Prints one JSON object a batch, and medians in the end.
"""

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

warnings.filterwarnings("ignore", category=FutureWarning)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
LEFT = "_op string, id long, fk long, amount long, note string"
RIGHT = "_op string, key long, name string"


def make(root: Path, batches: int, changes: int, rows: int) -> None:
    """Batch 0 has all rows, the others change some of them."""
    rng = np.random.default_rng(3)
    keys = max(rows // 10, 1)
    for side in ("left", "right"):
        (root / side).mkdir(parents=True)
    for batch in range(batches + 1):
        count = changes * 9 // 10
        ids = np.arange(rows) if batch == 0 else np.sort(rng.choice(rows, count, replace=False))
        names = np.arange(keys) if batch == 0 else rng.choice(keys, changes - count, replace=False)
        share = 0.0 if batch == 0 else 0.1
        # A row keeps one of two foreign keys: every other change moves it.
        fk = (ids * 7 + rng.integers(0, 2, len(ids)) * 13) % keys
        left = {
            "_op": np.where(rng.random(len(ids)) < share, "delete", "upsert"),
            "id": ids,
            "fk": fk,
            "amount": rng.integers(0, 10**6, len(ids)),
            "note": [f"note {n % 9973} of batch {batch}" for n in ids],
        }
        right = {
            "_op": np.where(rng.random(len(names)) < share, "delete", "upsert"),
            "key": names,
            "name": [f"name {n} in batch {batch}" for n in names],
        }
        for side, table in (("left", left), ("right", right)):
            path = root / side / f"{batch:05}.parquet"
            pq.write_table(pa.table(table), path)
            os.utime(path, (1_700_000_000 + batch,) * 2)


def session():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def streams(spark, root: Path):
    for side, schema in (("left", LEFT), ("right", RIGHT)):
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        yield reader.parquet(str(root / side))


class Watch:
    """The sink: writes the changes, takes the time, weighs the checkpoint."""

    def __init__(self, tool: str, out: Path, checkpoint: Path):
        self.tool, self.out, self.checkpoint = tool, out, checkpoint
        self.last, self.told = time.monotonic(), []

    def __call__(self, changes, number: int) -> None:
        changes.write.mode("overwrite").parquet(str(self.out / f"{number:05}"))
        now = time.monotonic()
        seen, state = set(), 0
        for path in self.checkpoint.rglob("*"):
            # Versions share files by links: each counts once.
            status = path.lstat()
            if path.is_file() and status.st_ino not in seen:
                seen.add(status.st_ino)
                state += status.st_size
        entry = {
            "tool": self.tool,
            "batch": number,
            "seconds": round(now - self.last, 3),
            "bytes": state,
        }
        self.told.append(entry)
        print(json.dumps(entry), flush=True)
        self.last = time.monotonic()


def plait_join(spark, root: Path, shards: int) -> Watch:
    from plait import spark as ps

    watch = Watch("plait", root / "plait", root / "plait-checkpoint")
    left, right = streams(spark, root)
    ps.foreign_key_join(
        left,
        right,
        left_key="id",
        foreign_key="fk",
        right_key="key",
        checkpoint=root / "plait-checkpoint",
        sink=watch,
        shards=shards,
        trigger={"availableNow": True},
    ).awaitTermination()
    return watch


def median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--changes", type=int, default=50_000)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--shards", type=int, default=16)
    options = parser.parse_args()
    root: Path = options.folder
    make(root, options.batches, options.changes, options.rows)
    spark = session()
    told = plait_join(spark, root, options.shards).told[1:]
    tenth = max(len(told) // 10, 1)
    # Of the first tenth, runs are not merged yet: the second is compared with the last.
    early, late = told[tenth : 2 * tenth] or told[:1], told[-tenth:]
    summary = {
        "seconds a batch": median([entry["seconds"] for entry in told]),
        "seconds early": median([entry["seconds"] for entry in early]),
        "seconds late": median([entry["seconds"] for entry in late]),
        "bytes early": median([entry["bytes"] for entry in early]),
        "bytes late": median([entry["bytes"] for entry in late]),
    }
    print(json.dumps(summary))
    spark.stop()


if __name__ == "__main__":
    main()
