"""Foreign-key joins that follow changes, and DuckDB that joins again, or merges changes.

    nice -n 5 .venv/bin/python benches/python/join.py [--rows 2000000] [--rounds 9]

Orders (8 columns, about 100 bytes a row) refer to customers, ten orders each. Of the changed orders half
move to another customer. Times are the least and the median of the rounds, and the least time of all
processors together; where others use the machine, compare ratios, not times. Tables of half and of twice
as many rows take turns with it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

import plait

COMMENT = np.array([f"comment {i:05} {'x' * 30}" for i in range(5000)])


def orders(keys: np.ndarray, customer_ids: np.ndarray, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    n = len(keys)
    return pa.table(
        {
            "order_id": keys,
            "customer_id": customer_ids,
            "price": random.random(n),
            "tax": random.random(n),
            "quantity": random.integers(0, 100, n),
            "day": random.integers(0, 9000, n),
            "status": pa.array(np.array(["open", "shipped", "paid"])[random.integers(0, 3, n)]),
            "comment": pa.array(COMMENT[random.integers(0, 5000, n)]),
        }
    )


def customers_of(keys: np.ndarray, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "customer_id": keys,
            "name": pa.array([f"name {i % 997}" for i in keys]),
            "score": random.random(len(keys)),
        }
    )


def drained(stream) -> int:
    return sum(batch.num_rows for batch in stream)


@dataclass(frozen=True)
class Took:
    """Seconds of one call, by the clock and of all processors."""

    clock: float
    processors: float


def timed(call, *args, **kwargs):
    clock, processors = time.perf_counter(), time.process_time()
    result = call(*args, **kwargs)
    return Took(time.perf_counter() - clock, time.process_time() - processors), result


def followed(join, **changes) -> int:
    return drained(join.apply(**changes))


def told(what: str, took: list[Took], rows: int | None = None) -> list[Took]:
    """Prints the times of the rounds; gives them."""
    clocks, processors = [t.clock for t in took], [t.processors for t in took]
    least = min(clocks)
    rate = f"   {rows / least / 1e6:6.2f} M rows/s" if rows else ""
    print(
        f"{what:58} {least * 1e3:8.1f} ms   median {statistics.median(clocks) * 1e3:8.1f} ms"
        f"   processors {min(processors) * 1e3:8.1f} ms{rate}",
        flush=True,
    )
    return took


def ratio(a: list[Took], b: list[Took]) -> str:
    """Times of `a` over those of `b`: of the least, of the medians, and of all processors."""

    def of(one, what) -> float:
        return one(what(t) for t in a) / one(what(t) for t in b)

    clock, processors = (lambda t: t.clock), (lambda t: t.processors)
    median = of(statistics.median, clock)
    return f"{of(min, clock):.2f} x (median {median:.2f} x, processors {of(min, processors):.2f} x)"


def told_size(rows: int) -> str:
    return f"{rows / 1e6:g} M rows"


def new_join(state=None) -> plait.ForeignKeyJoin:
    return plait.ForeignKeyJoin(
        left_key="order_id",
        foreign_key="customer_id",
        right_key="customer_id",
        state=state,
        memory_limit="4GB",
    )


def customers_at_first(rows: int) -> np.ndarray:
    """The customer of each order."""
    return np.random.default_rng(2).integers(0, rows // 10, rows)


def filled(rows: int, state=None) -> plait.ForeignKeyJoin:
    join, of = new_join(state), customers_at_first(rows)
    right = customers_of(np.arange(rows // 10), 1)
    for start in range(0, rows, 1_000_000):
        keys = np.arange(start, min(rows, start + 1_000_000))
        left = orders(keys, of[keys], start + 2)
        drained(join.apply(left=left, right=right if start == 0 else None))
    join.compact()
    return join


def changed_orders(random, of: np.ndarray, batch: int, seed: int) -> pa.Table:
    """Changes of a batch of orders, half of which move; `of` is their customer before and after."""
    keys = random.choice(len(of), batch, replace=False)
    of[keys[: batch // 2]] = random.integers(0, len(of) // 10, batch // 2)
    order = random.permutation(batch)
    return orders(keys[order], of[keys[order]], seed)


class Following:
    """A join that takes changes of either side, a step at a time, and how long the steps took."""

    def __init__(self, rows: int, state=None) -> None:
        self.join, self.rows, self.of = filled(rows, state), rows, customers_at_first(rows)
        self.random, self.round = np.random.default_rng(9), 0
        self.lefts: list[Took] = []
        self.rights: list[Took] = []
        self.result_rows = 0

    def step(self, batch: int) -> None:
        """One step of `batch` left changes, and one of right changes with about as many result rows."""
        left = changed_orders(self.random, self.of, batch, 100 + self.round)
        took, changed = timed(followed, self.join, left=left)
        assert changed == batch
        self.lefts.append(took)
        changed = self.random.choice(self.rows // 10, batch // 10, replace=False)
        took, self.result_rows = timed(
            followed, self.join, right=customers_of(changed, 200 + self.round)
        )
        self.rights.append(took)
        self.round += 1

    def tell(self, batch: int, where: str) -> tuple[list[Took], list[Took]]:
        left = told(f"{batch:,} left changes, {where}", self.lefts, batch)
        return left, told(
            f"right changes, {self.result_rows:,} result rows, {where}",
            self.rights,
            self.result_rows,
        )


def duckdb_steps(rows: int, rounds: int, batch: int) -> None:
    random, of = np.random.default_rng(9), customers_at_first(rows)
    connection = duckdb.connect()
    connection.execute("set threads = 2")
    keys = np.arange(rows)
    for name, table in (("l", orders(keys, of, 2)), ("r", customers_of(np.arange(rows // 10), 1))):
        connection.register("given", table)
        connection.execute(f"create table {name} as select * from given")
    connection.execute(
        "create table j as select l.*, name, score from l join r using (customer_id)"
    )
    again, merged = [], []
    for i in range(rounds):
        left = changed_orders(random, of, batch, 100 + i)
        connection.register("given", left)

        def upsert() -> None:
            connection.execute("delete from l where order_id in (select order_id from given)")
            connection.execute("insert into l select * from given")

        def recompute() -> None:
            upsert()
            connection.execute(
                "create or replace table k as select l.*, name, score from l join r using (customer_id)"
            )
            connection.execute(
                "select count(*) from (select * from k except all select * from j)"
            ).fetchall()
            connection.execute("drop table j; alter table k rename to j")

        again.append(timed(recompute)[0])
        left = changed_orders(random, of, batch, 300 + i)
        connection.register("given", left)

        def merge() -> None:
            upsert()
            connection.execute("""merge into j using (select given.*, name, score from given
                join r using (customer_id)) n on j.order_id = n.order_id
                when matched then update set customer_id = n.customer_id, price = n.price, tax = n.tax,
                  quantity = n.quantity, day = n.day, status = n.status, comment = n.comment,
                  name = n.name, score = n.score
                when not matched then insert by position""")

        merged.append(timed(merge)[0])
    told("DuckDB: upsert, join again, difference", again, batch)
    told("DuckDB: upsert, MERGE of the changed rows", merged, batch)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--batch", type=int, default=100_000)
    arguments.add_argument("--without", nargs="*", default=[], help="duckdb, folder, double")
    given = arguments.parse_args()
    rows, rounds, batch = given.rows, given.rounds, given.batch

    build = orders(np.arange(1_000_000), customers_at_first(1_000_000), 2)
    right = customers_of(np.arange(100_000), 1)
    schemas = {"left": build.slice(0, 0), "right": right}
    seconds = []
    for _ in range(max(1, rounds // 2)):
        join = new_join()
        join.apply(**schemas)
        seconds.append(timed(join.apply, left=build)[0])
    told("build: 1 M left rows in one step, memory, state alone", seconds, 1_000_000)
    held, raw = join.stats.memory_bytes, build.nbytes + right.nbytes
    print(f"state: {held / 1e6:.0f} MB of {raw / 1e6:.0f} MB raw: {held / raw:.2f} x", flush=True)

    sizes = [rows] if "double" in given.without else [rows // 2, rows, 2 * rows]
    tables = {size: Following(size) for size in sizes}
    for _ in range(rounds):
        for table in tables.values():
            table.step(batch)
    memory = {size: table.tell(batch, told_size(size)) for size, table in tables.items()}
    for size in sizes[1:]:
        left, right = zip(memory[size], memory[size // 2], strict=True)
        print(
            f"{told_size(size)} compared with {told_size(size // 2)}:"
            f" left {ratio(*left)}, right {ratio(*right)}"
        )
    tables.clear()
    if "folder" not in given.without:
        with tempfile.TemporaryDirectory() as state:
            table = Following(rows, state)
            with table.join:
                for _ in range(rounds):
                    table.step(batch)
                left, right = zip(table.tell(batch, "folder"), memory[rows], strict=True)
        print(f"folder: left {ratio(*left)}, right {ratio(*right)} of memory")
    if "duckdb" not in given.without:
        duckdb_steps(rows, rounds, batch)


if __name__ == "__main__":
    sys.exit(main())
