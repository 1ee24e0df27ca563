"""Orders refer to customers, both change, and a Delta table follows their join.

    make demo-join            or            python examples/orders_customers.py [FOLDER]

      shop ─▶ orders/*.parquet    ─┐
                                   ├─▶ plait.spark.foreign_key_join ─▶ MERGE into open_orders (Delta)
      crm  ─▶ customers/*.parquet ─┘             │
                                                 └─ crash: the sink gets batch n again, the table has it once

Orders come, move to other customers and go; customers come, get other names and go. After every few
batches the table is compared with a join of all orders and customers as they are then. Half-way the
driver stops after a batch is in the table and before Spark has noted it.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

ORDERS = "_op string, order_id long, customer_id long, status string, amount double"
CUSTOMERS = "_op string, customer_id long, name string, city string"
APP = "orders_customers"
BATCHES = 8
CITIES = np.array(["Lisbon", "Osaka", "Quito", "Turku"])
STATUS = np.array(["new", "paid", "packed"])


class World:
    """Orders and customers as they are, and files with what changes."""

    def __init__(self, home: Path):
        self.home, self.rng, self.batch = home, np.random.default_rng(5), 0
        self.orders: dict[int, tuple] = {}
        self.customers: dict[int, tuple] = {}
        for name in ("orders", "customers"):
            (home / name).mkdir(parents=True)

    def turn(self, orders: int = 4_000, customers: int = 300) -> None:
        """Some of everything: new rows, changed ones, moved ones, deleted ones."""
        rng, batch = self.rng, self.batch
        ids = np.unique(rng.integers(0, 10_000, orders))
        rows = {
            "_op": np.where(rng.random(len(ids)) < 0.1, "delete", "upsert"),
            "order_id": ids,
            "customer_id": rng.integers(0, 1_200, len(ids)),
            "status": STATUS[rng.integers(0, 3, len(ids))],
            "amount": rng.integers(100, 99_999, len(ids)) / 100,
        }
        self._write("orders", pa.table(rows), self.orders)
        keys = np.unique(rng.integers(0, 1_200, customers))
        names = {
            "_op": np.where(rng.random(len(keys)) < 0.1, "delete", "upsert"),
            "customer_id": keys,
            "name": [f"customer {key}, {batch}" for key in keys],
            "city": CITIES[rng.integers(0, 4, len(keys))],
        }
        self._write("customers", pa.table(names), self.customers)
        self.batch += 1

    def _write(self, name: str, changes: pa.Table, rows: dict[int, tuple]) -> None:
        for op, key, *values in zip(*(column.to_pylist() for column in changes.columns)):
            if op == "delete":
                rows.pop(key, None)
            else:
                rows[key] = tuple(values)
        draft = self.home / name / f".{self.batch:03}"
        pq.write_table(changes, draft)
        draft.rename(self.home / name / f"{self.batch:03}.parquet")

    def joined(self) -> list[tuple]:
        """The join, made anew."""
        return sorted(
            (order, *row, *self.customers[row[0]])
            for order, row in self.orders.items()
            if row[0] in self.customers
        )


class Table:
    """The sink: a Delta table that has the changes of each batch once."""

    def __init__(self, path: Path):
        self.path, self.crash_at, self.skipped = str(path), None, 0

    def take(self, changes, batch: int) -> None:
        """Merges the changes; the commit of the table names the batch, so that it counts once."""
        rows = changes.toArrow()  # some thousand; Spark's own Delta writer takes them on executors
        once = CommitProperties(app_transactions=[Transaction(APP, batch)])
        ops = np.unique(rows["_op"].to_numpy(zero_copy_only=False), return_counts=True)
        told = ", ".join(f"{count:,} {op}s" for op, count in zip(*ops))
        if not DeltaTable.is_deltatable(self.path):
            write_deltalake(self.path, rows.drop_columns("_op"), commit_properties=once)
        else:
            table = DeltaTable(self.path)
            if (table.transaction_version(APP) or 0) >= batch:
                self.skipped += 1
                print(f"batch {batch}   again after the crash: the table has it already")
                return
            (
                table.merge(
                    rows,
                    predicate="t.order_id = c.order_id",
                    source_alias="c",
                    target_alias="t",
                    commit_properties=once,
                )
                .when_matched_delete(predicate="c._op = 'delete'")
                .when_matched_update_all(predicate="c._op = 'update'", except_cols=["_op"])
                .when_not_matched_insert_all(predicate="c._op = 'insert'", except_cols=["_op"])
                .execute()
            )
        print(f"batch {batch}   {told}")
        if batch == self.crash_at:
            self.crash_at = None
            raise RuntimeError("the driver dies")

    def rows(self) -> list[tuple]:
        """What is in the table."""
        found = DeltaTable(self.path).to_pyarrow_table()
        names = ["order_id", "customer_id", "status", "amount", "name", "city"]
        return sorted(zip(*(found[name].to_pylist() for name in names)))


def session(home: Path):
    """Two threads on this machine."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master("local[2]")
        .appName("orders and customers")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(home / "spark"))
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )


def follow(spark, home: Path, table: Table) -> None:
    """Takes all files that are there."""
    from plait import spark as ps

    def stream(name: str, schema: str):
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(home / name))

    query = ps.foreign_key_join(
        stream("orders", ORDERS),
        stream("customers", CUSTOMERS),
        left_key="order_id",
        foreign_key="customer_id",
        right_key="customer_id",
        checkpoint=home / "checkpoint",
        sink=table.take,
        shards=4,
        trigger={"availableNow": True},
    )
    query.awaitTermination()


def main() -> None:
    home = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="plait-orders-"))
    if home.exists() and any(home.iterdir()):
        raise SystemExit(f"{home} is not empty")
    world, table = World(home), Table(home / "open_orders")
    spark = session(home)
    started = time.monotonic()
    print("orders refer to customers, both change, a Delta table follows their join\n")
    for turn in range(BATCHES):
        world.turn()
        if turn == BATCHES // 2:
            table.crash_at = turn
        if turn % 2 == 0 and turn != BATCHES // 2:
            continue
        try:
            follow(spark, home, table)
        except Exception:
            if table.crash_at is not None or table.skipped:
                raise
            print(f"crash     after batch {turn} came into the table\n")
            follow(spark, home, table)
        assert table.rows() == world.joined(), "the table is not the join"
        print(f"          the table has {len(table.rows()):,} rows, those of a join made anew\n")
    assert table.skipped == 1, "the batch before the crash should have come again"
    print(f"{BATCHES} batches in {time.monotonic() - started:.0f} s")
    spark.stop()
    if len(sys.argv) < 2:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
