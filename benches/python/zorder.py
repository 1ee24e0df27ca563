"""Clustering keys: what a range on either column reads, and what merging such files costs.

    python benches/python/zorder.py [--rows 10000000] [--files 8] [--times 3] [--data DIR]

Pairs of random integers of 64 bits, in files sorted by a, b and along both curves; keys are made
with NumPy. Reads look for the share of pages that 20 ranges of one percent need.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait

ORDERS = ("a, b", "zorder(a, b)", "hilbert(a, b)")
RANGES = 20
RANGE_SHARE = 0.01
VALUES = 2**63


def spread(bits: np.ndarray) -> np.ndarray:
    """The low 32 bits, each two places apart."""
    for places, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        bits = (bits | bits << np.uint64(places)) & np.uint64(mask)
    return bits


def z_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The rows along the curve, by the high and the low half of their keys."""
    a, b = (column.view(np.uint64) ^ np.uint64(1 << 63) for column in (a, b))
    low = np.uint64(0xFFFFFFFF)
    halves = [
        spread(x) << np.uint64(1) | spread(y)
        for x, y in ((a & low, b & low), (a >> np.uint64(32), b >> np.uint64(32)))
    ]
    return np.lexsort(halves)


def hilbert(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same along the Hilbert curve, by Skilling's transform."""
    x, y = (column.view(np.uint64) ^ np.uint64(1 << 63) for column in (a, b))
    for level in range(63, 0, -1):
        bit, below = np.uint64(1 << level), np.uint64((1 << level) - 1)
        x = np.where(x & bit, x ^ below, x)
        flip = (x ^ y) & below
        exchanged = (y & bit) == 0
        x, y = np.where(exchanged, x ^ flip, x ^ below), np.where(exchanged, y ^ flip, y)
    y ^= x
    turn = np.zeros_like(x)
    for level in range(63, 0, -1):
        turn = np.where(y & np.uint64(1 << level), turn ^ np.uint64((1 << level) - 1), turn)
    x, y = x ^ turn, y ^ turn
    low = np.uint64(0xFFFFFFFF)
    halves = [
        spread(p) << np.uint64(1) | spread(q)
        for p, q in ((x & low, y & low), (x >> np.uint64(32), y >> np.uint64(32)))
    ]
    return np.lexsort(halves)


SORTS = {"a, b": lambda a, b: np.lexsort((b, a)), "zorder(a, b)": z_order, "hilbert(a, b)": hilbert}


def make(folder: Path, rows: int, files: int) -> dict[str, list[str]]:
    """The files of each order: the same rows in each of them."""
    rng = np.random.default_rng(7)
    made: dict[str, list[str]] = {order: [] for order in ORDERS}
    for file in range(files):
        a, b = (rng.integers(-VALUES, VALUES - 1, rows // files) for _ in range(2))
        v = rng.integers(0, 1000, rows // files)
        for place, order in enumerate(ORDERS):
            path = folder / f"order{place}-{file}.parquet"
            if not path.exists():
                at = SORTS[order](a, b)
                pq.write_table(pa.table({"a": a[at], "b": b[at], "v": v[at]}), path)
            made[order].append(str(path))
    return made


def merged(files: list[str], order: str, out: Path) -> tuple[float, float]:
    """Seconds on the clock and of processors."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    plait.merge(files, out, sort_by=order, threads=1)
    wall_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def shares(files: str, column: str) -> list[float]:
    """Of the pages of `column`, those that each range needs."""
    width = int(RANGE_SHARE * 2 * VALUES)
    rng = np.random.default_rng(1)
    all_pages, found = pages_read(files, column), []
    for _ in range(RANGES):
        low = int(rng.integers(-VALUES, VALUES - 1 - width))
        where = f"{column} >= {low} and {column} < {low + width}"
        found.append(pages_read(files, column, where) / all_pages)
    return found


def pages_read(files: str, column: str, where: str | None = None) -> int:
    """Pages of `column` that become rows."""
    rows = plait.read(files, columns=[column], where=where, sort_by=[])
    for _batch in rows:
        pass
    return rows.stats.pages_read


def main() -> None:
    """Prints a line for each order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = given.data or Path(scratch)
        data.mkdir(parents=True, exist_ok=True)
        made = make(data, given.rows, given.files)
        best: dict[str, tuple[float, float]] = {}
        for time_ in range(given.times):
            for place, order in enumerate(ORDERS):
                took = merged(made[order], order, Path(scratch) / f"out{place}-{time_}")
                best[order] = min(took, best.get(order, took), key=lambda took: took[1])
        linear = best[ORDERS[0]][1]
        for place, order in enumerate(ORDERS):
            wall_s, cpu_s = best[order]
            out = f"{scratch}/out{place}-0"
            pages = [
                f"pages of a range on {column}: mean {np.mean(found):.1%}, most {max(found):.1%}"
                for column in "ab"
                for found in [shares(out, column)]
            ]
            print(
                f"{order:14} {given.files} files, {given.rows:,} rows: {wall_s:.2f} s, "
                f"{cpu_s:.2f} s of processors ({cpu_s / linear:.2f}x); " + "; ".join(pages)
            )


if __name__ == "__main__":
    main()
