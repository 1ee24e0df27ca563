"""Joins on Spark: seconds a batch and bytes of state, ours and Spark's own transformWithState.

    python benches/python/spark_join.py FOLDER [--batches 100] [--changes 50000] [--rows 500000]
                                               [--shards 16] [--peer-batches 5]

Every batch has as many changes as the others, nine left ones to one right one, of as many rows as
before: half of the left changes move their row, some delete it. What is measured is the time from
batch to batch, sink included, which writes the changes to a file, and what the checkpoint takes. The
peer does the same changes with two chained `transformWithState` operators in Python on RocksDB: rows
by primary key, then both sides by foreign key; it says deletes and inserts where a row moves, and
leaves it to others to put them together. Prints one JSON object a batch, and medians in the end.
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
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.streaming.stateStore.providerClass", store)
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


ROUTED = "to long, op string, id long, fk long, amount long, note string, name string"
CHANGES = "_op string, id long, fk long, amount long, note string, name string"


def spark_join(spark, root: Path) -> Watch:
    """Two stateful operators, one row at a time, as Spark's own guide writes them."""
    import pandas as pd
    from pyspark.sql import functions as sf
    from pyspark.sql.streaming import StatefulProcessor

    routed_names = [field.split()[0] for field in ROUTED.split(", ")]
    change_names = [field.split()[0] for field in CHANGES.split(", ")]

    class Places(StatefulProcessor):
        def init(self, handle):
            self.place = handle.getValueState("place", "fk long")

        def handleInputRows(self, key, rows, timer):
            made = []
            for frame in rows:
                for row in frame.itertuples(index=False):
                    old = self.place.get()
                    is_delete = row.op == "delete"
                    if old is not None and (is_delete or old[0] != row.fk):
                        made.append((old[0], "delete", row.id, None, None, None, None))
                    if is_delete:
                        self.place.clear()
                    else:
                        self.place.update((row.fk,))
                        made.append((row.fk, "upsert", row.id, row.fk, row.amount, row.note, None))
            yield pd.DataFrame(made, columns=routed_names)

        def close(self):
            pass

    class Rows(StatefulProcessor):
        def init(self, handle):
            self.rows = handle.getMapState("rows", "id long", "fk long, amount long, note string")
            self.name = handle.getValueState("name", "name string")

        def handleInputRows(self, key, rows, timer):
            before, after = {}, {}
            name = self.name.get()
            old_name = new_name = None if name is None else name[0]
            is_renamed = False
            for frame in rows:
                for row in frame.itertuples(index=False):
                    if row.op in {"name", "no name"}:
                        new_name, is_renamed = (row.name if row.op == "name" else None), True
                        continue
                    # Next to rows without them, numbers are floats, which the store takes for nulls.
                    id_ = int(row.id)
                    if id_ not in before:
                        had = self.rows.containsKey((id_,))
                        before[id_] = tuple(self.rows.getValue((id_,))) if had else None
                    is_delete = row.op == "delete"
                    new = None if is_delete else (int(row.fk), int(row.amount), row.note)
                    after[id_] = new
            if is_renamed:
                for (id_,), value in self.rows.iterator():
                    before.setdefault(id_, tuple(value))
                    after.setdefault(id_, tuple(value))
                if new_name is None:
                    self.name.clear()
                else:
                    self.name.update((new_name,))
            made = []
            for id_, new in after.items():
                old = before[id_]
                if new is None and old is not None:
                    self.rows.removeKey((id_,))
                elif new is not None and new != old:
                    self.rows.updateValue((id_,), new)
                was = None if old is None or old_name is None else (*old, old_name)
                now = None if new is None or new_name is None else (*new, new_name)
                if was != now:
                    op = "insert" if was is None else "delete" if now is None else "update"
                    made.append((op, id_, *(now or (None,) * 4)))
            yield pd.DataFrame(made, columns=change_names)

        def close(self):
            pass

    watch = Watch("transformWithState", root / "own", root / "own-checkpoint")
    left, right = streams(spark, root)
    options = {"outputMode": "append", "timeMode": "none"}
    routed = (
        left.withColumnRenamed("_op", "op")
        .groupBy("id")
        .transformWithStateInPandas(Places(), outputStructType=ROUTED, **options)
    )
    names = right.select(
        sf.col("key").alias("to"),
        sf.when(sf.col("_op") == "delete", "no name").otherwise("name").alias("op"),
        *[sf.lit(None).cast(t).alias(n) for n, t in (f.split() for f in ROUTED.split(", ")[2:6])],
        "name",
    )
    joined = (
        routed.unionByName(names)
        .groupBy("to")
        .transformWithStateInPandas(Rows(), outputStructType=CHANGES, **options)
    )
    joined.writeStream.foreachBatch(watch).outputMode("append").option(
        "checkpointLocation", str(root / "own-checkpoint")
    ).trigger(availableNow=True).start().awaitTermination()
    return watch


def table_of(out: Path, batches: int) -> dict:
    """What changes amount to; of a row that moved, the insert counts, whichever comes first."""
    rows: dict = {}
    for batch in range(batches):
        changes = pq.read_table(out / f"{batch:05}").to_pylist()
        for change in sorted(changes, key=lambda change: change["_op"] != "delete"):
            if change.pop("_op") == "delete":
                rows.pop(change["id"], None)
            else:
                rows[change["id"]] = change
    return rows


def median(values: list[float]) -> float:
    return round(statistics.median(values), 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--changes", type=int, default=50_000)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--peer-batches", type=int, default=5)
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
    if options.peer_batches:
        for side in ("left", "right"):
            for path in (root / side).glob("*.parquet"):
                if int(path.stem) > options.peer_batches:
                    path.unlink()
        count = options.peer_batches + 1
        peer = spark_join(spark, root).told[1:]
        same = told[: options.peer_batches]
        summary["plait, same batches"] = median([entry["seconds"] for entry in same])
        summary["transformWithState"] = median([entry["seconds"] for entry in peer])
        if table_of(root / "plait", count) != table_of(root / "own", count):
            sys.exit("the two do not end with the same table")
    print(json.dumps(summary))
    spark.stop()


if __name__ == "__main__":
    main()
