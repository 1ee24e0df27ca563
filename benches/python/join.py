"""Foreign-key joins that follow changes, beside DuckDB that joins again and beside DuckDB's MERGE.

    nice -n 5 .venv/bin/python benches/python/join.py [--rows 2000000] [--rounds 5]

Orders (8 columns, about 100 bytes a row) refer to customers, ten orders each. Times are the least and
the median of the rounds; where others use the machine, compare ratios, not times.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time

import duckdb
import numpy as np
import pyarrow as pa

import plait

COMMENT = np.array([f"comment {i:05} {'x' * 30}" for i in range(5000)])


def orders(keys: np.ndarray, customers: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    n = len(keys)
    return pa.table(
        {
            "order_id": keys,
            "customer_id": random.integers(0, customers, n),
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


def timed(call, *args, **kwargs):
    started = time.perf_counter()
    result = call(*args, **kwargs)
    return time.perf_counter() - started, result


def followed(join, **changes) -> int:
    return drained(join.apply(**changes))


def told(what: str, seconds: list[float], rows: int | None = None) -> float:
    least, middle = min(seconds), statistics.median(seconds)
    rate = f"   {rows / least / 1e6:7.2f} M rows/s" if rows else ""
    print(f"{what:58} {least * 1e3:9.1f} ms   median {middle * 1e3:9.1f} ms{rate}", flush=True)
    return least


def new_join(state=None) -> plait.ForeignKeyJoin:
    return plait.ForeignKeyJoin(
        left_key="order_id",
        foreign_key="customer_id",
        right_key="customer_id",
        state=state,
        memory_limit="4GB",
    )


def filled(rows: int, state=None) -> plait.ForeignKeyJoin:
    join, fan = new_join(state), rows // 10
    right = customers_of(np.arange(fan), 1)
    for start in range(0, rows, 1_000_000):
        keys = np.arange(start, min(rows, start + 1_000_000))
        drained(join.apply(left=orders(keys, fan, start + 2), right=right if start == 0 else None))
    join.compact()
    return join


def steps(join, rows: int, rounds: int, batch: int) -> tuple[list[float], list[float], int]:
    """Seconds of left steps (half move) and of right steps, and result rows of a right step."""
    random, fan, lefts, rights, out = np.random.default_rng(9), rows // 10, [], [], 0
    for i in range(rounds):
        keys = random.choice(rows, batch, replace=False)
        left = orders(keys, fan, 100 + i)
        lefts.append(timed(followed, join, left=left)[0])
        right = customers_of(random.choice(fan, batch // 10, replace=False), 200 + i)
        seconds, out = timed(followed, join, right=right)
        rights.append(seconds)
    return lefts, rights, out


def duckdb_steps(rows: int, rounds: int, batch: int) -> None:
    random, fan = np.random.default_rng(9), rows // 10
    connection = duckdb.connect()
    connection.execute("set threads = 2")
    keys = np.arange(rows)
    for name, table in (("l", orders(keys, fan, 2)), ("r", customers_of(np.arange(fan), 1))):
        connection.register("given", table)
        connection.execute(f"create table {name} as select * from given")
    connection.execute(
        "create table j as select l.*, name, score from l join r using (customer_id)"
    )
    again, merged = [], []
    for i in range(rounds):
        left = orders(random.choice(rows, batch, replace=False), fan, 100 + i)
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
        left = orders(random.choice(rows, batch, replace=False), fan, 300 + i)
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
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--batch", type=int, default=100_000)
    arguments.add_argument("--without", nargs="*", default=[], help="duckdb, folder, double")
    given = arguments.parse_args()
    rows, rounds, batch = given.rows, given.rounds, given.batch

    build = orders(np.arange(1_000_000), 100_000, 2)
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

    join = filled(rows)
    lefts, rights, out = steps(join, rows, rounds, batch)
    name = f"{batch:,} left changes against {rows / 1e6:g} M rows, memory"
    memory = (
        told(name, lefts, batch),
        told(f"right changes, {out:,} result rows, memory", rights, out),
    )
    if "double" not in given.without:
        del join
        join = filled(rows // 2)
        lefts, rights, _ = steps(join, rows // 2, rounds, batch)
        half = told("the same against half the table", lefts), told("right, half the table", rights)
        print(
            f"twice the table: left {memory[0] / half[0]:.2f} x, right {memory[1] / half[1]:.2f} x"
        )
    del join
    if "folder" not in given.without:
        with tempfile.TemporaryDirectory() as state, filled(rows, state) as join:
            lefts, rights, out = steps(join, rows, rounds, batch)
            disk = (
                told("left changes, folder", lefts, batch),
                told("right changes, folder", rights, out),
            )
        print(
            f"folder: left {disk[0] / memory[0]:.2f} x, right {disk[1] / memory[1]:.2f} x of memory"
        )
    if "duckdb" not in given.without:
        duckdb_steps(rows, rounds, batch)


if __name__ == "__main__":
    sys.exit(main())
