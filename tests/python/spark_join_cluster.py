"""A join on a local cluster: one run of its driver, until all files are taken or somebody dies.

    python spark_join_cluster.py FOLDER BATCHES CHANGES make       writes the changes, and what they end with
    python spark_join_cluster.py FOLDER KILLS [SECONDS] run        one driver; kills so many executors itself

      left/00007.parquet  right/00007.parquet ─▶ foreign_key_join ─▶ out/00007   one file a batch

The sink writes the changes of a batch to a file that shows up whole, so that a batch it gets again
replaces itself. Prints one JSON object a batch: number, changes, seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
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
SHARDS = 16 if os.environ.get("CI") else 4


def make(root: Path, batches: int, changes: int) -> None:
    """Nine left changes in ten; half of them move rows that are there, some delete."""
    rng = np.random.default_rng(11)
    keys = np.arange(batches * changes)
    left: dict[int, tuple] = {}
    right: dict[int, str] = {}
    for side in ("left", "right"):
        (root / side).mkdir(parents=True)
    for batch in range(batches):
        count = changes * 9 // 10
        ids = np.unique(rng.choice(max(len(keys) // 4, 1), count))
        deleted = rng.random(len(ids)) < 0.1
        table = pa.table(
            {
                "_op": np.where(deleted, "delete", "upsert"),
                "id": ids,
                "fk": rng.integers(0, max(changes // 5, 2), len(ids)),
                "amount": rng.integers(0, 1000, len(ids)),
                "note": [f"note {n % 997} of batch {batch}" for n in ids],
            }
        )
        others = np.unique(rng.integers(0, max(changes // 5, 2), changes - count))
        gone = rng.random(len(others)) < 0.2
        names = pa.table(
            {
                "_op": np.where(gone, "delete", "upsert"),
                "key": others,
                "name": [f"name {n} in batch {batch}" for n in others],
            }
        )
        for side, made in (("left", table), ("right", names)):
            path = root / side / f"{batch:05}.parquet"
            pq.write_table(made, path)
            os.utime(path, (1_700_000_000 + batch,) * 2)
        for row in table.to_pylist():
            left.pop(row["id"], None)
            if row["_op"] == "upsert":
                left[row["id"]] = (row["fk"], row["amount"], row["note"])
        for row in names.to_pylist():
            right.pop(row["key"], None)
            if row["_op"] == "upsert":
                right[row["key"]] = row["name"]
    rows = [(k, *row, right[row[0]]) for k, row in left.items() if row[0] in right]
    names = ["id", "fk", "amount", "note", "name"]
    columns = [list(column) for column in zip(*sorted(rows))]
    pq.write_table(pa.table(dict(zip(names, columns))), root / "expected.parquet")


def result(root: Path) -> pa.Table:
    """What the changes in `out` amount to; each must fit what is there."""
    rows: dict = {}
    for path in sorted((root / "out").glob("*.parquet")):
        for change in pq.read_table(path).to_pylist():
            op, key = change.pop("_op"), change["id"]
            assert (key in rows) == (op != "insert"), (path.name, op, key)
            assert op != "update" or rows[key] != change, (path.name, key)
            if op == "delete":
                del rows[key]
            else:
                rows[key] = change
    schema = pq.read_schema(root / "expected.parquet")
    return pa.Table.from_pylist([rows[key] for key in sorted(rows)], schema=schema)


def session(master: str = "local-cluster[2,1,1024]"):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("plait join")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
        "spark.task.maxFailures": "8",
        "spark.executor.maxNumFailures": "100",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def tell(told: dict) -> None:
    """Prints a line at once: two threads tell."""
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def put_whole(root: Path, started: float):
    """A sink that writes one file a batch, and tells of it."""
    last = [started]

    def sink(changes, number: int) -> None:
        (root / "out").mkdir(exist_ok=True)
        table = changes.toArrow()
        draft = root / f"draft-{os.getpid()}-{number}"
        pq.write_table(table, draft)
        draft.rename(root / "out" / f"{number:05}.parquet")
        now = time.monotonic()
        told = {"batch": number, "changes": table.num_rows, "seconds": round(now - last[0], 2)}
        last[0] = now
        tell(told)

    return sink


def run(root: Path, kills: int, seconds: float) -> None:
    from spark_cluster import executors

    from plait import spark as ps

    spark = session()
    try:
        sides = [
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(root / side))
            for side, schema in (("left", LEFT), ("right", RIGHT))
        ]
        is_done = threading.Event()

        def kill() -> None:
            draw = random.Random(len(list(root.glob("out/*"))))
            for _ in range(kills):
                if is_done.wait(draw.uniform(0.5, 1) * seconds):
                    return
                # On a slow machine there may be none yet.
                while not (victims := executors()):
                    if is_done.wait(0.05):
                        return
                os.kill(draw.choice(victims), signal.SIGKILL)
                tell({"killed": "executor"})

        threading.Thread(target=kill, daemon=True).start()
        query = ps.foreign_key_join(
            *sides,
            left_key="id",
            foreign_key="fk",
            right_key="key",
            checkpoint=root / "checkpoint",
            sink=put_whole(root, time.monotonic()),
            shards=SHARDS,
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        is_done.set()
        tell({"end": True})
    finally:
        spark.stop()


def main() -> None:
    *arguments, what = sys.argv[1:]
    root = Path(arguments[0])
    if what == "make":
        make(root, int(arguments[1]), int(arguments[2]))
    else:
        sys.path.insert(0, str(Path(__file__).parent))
        run(root, int(arguments[1]), float(arguments[2]) if len(arguments) > 2 else 8)


if __name__ == "__main__":
    main()
