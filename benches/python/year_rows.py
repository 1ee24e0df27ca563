"""What comes in a year: hourly batches of metrics, some of them late. `year.py` says more.

hour   0        1        2                  a row comes in its hour,
rows   ▪▪▪▪▪▪▪▪ ▪▪▪▪▪▪▪▪ ▪▪▪▪▪▪▪▪           LATE of them later, AGAIN of them once more
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

HOUR = 3_600
SERIES, PER_HOUR = 50, 2
BATCH = SERIES * PER_HOUR
NAMES = np.array([f"host-{i:02}.cpu.user" for i in range(SERIES)])
LATE, AGAIN = 0.03, 0.01
LATE_MAX = 168  # hours


@dataclass
class Batches:
    """All rows of the time, by the hour in which they come."""

    ts: np.ndarray
    series: np.ndarray
    value: np.ndarray
    ends: np.ndarray  # of the rows of each hour

    def at(self, hour: int) -> slice:
        return slice(int(self.ends[hour - 1]) if hour else 0, int(self.ends[hour]))

    def of(self, hour: int) -> pa.Table:
        """The rows that come in an hour, in any order."""
        at = self.at(hour)
        return table_of(self.ts[at], self.series[at], self.value[at])

    def last(self, since: int) -> pa.Table:
        """The rows that a reader must see in the end, by time and series: the last of each key."""
        count = int(self.ends[-1])
        keys = self.ts[:count] * SERIES + self.series[:count]
        _, last = np.unique(keys[::-1], return_index=True)
        last = count - 1 - last
        last = last[self.ts[last] >= since]
        return table_of(self.ts[last], self.series[last], self.value[last])


def table_of(ts: np.ndarray, series: np.ndarray, value: np.ndarray) -> pa.Table:
    stamps = pa.array(ts * 1_000_000, pa.timestamp("us"))
    return pa.table({"name": NAMES[series], "ts": stamps, "value": value})


def make(hours: int) -> Batches:
    """Rows of every hour, of which some come later, and some again."""
    rng = np.random.default_rng(7)
    count = hours * BATCH
    hour = np.repeat(np.arange(hours), BATCH)
    series = np.tile(np.repeat(np.arange(SERIES), PER_HOUR), hours)
    ts = hour * HOUR + np.tile(np.arange(PER_HOUR) * (HOUR // PER_HOUR), hours * SERIES)

    def delay(n: int) -> np.ndarray:
        of = np.where(rng.random(n) < 2 / 3, rng.exponential(6, n), rng.exponential(48, n))
        return np.clip(np.ceil(of), 1, LATE_MAX - 1).astype(np.int64)

    comes = hour.copy()
    late = rng.random(count) < LATE
    comes[late] += delay(int(late.sum()))
    again = np.flatnonzero(rng.random(count) < AGAIN)
    comes_again = np.maximum(comes[again] + 1, hour[again] + delay(len(again)))
    which = np.concatenate([np.arange(count), again])
    comes = np.concatenate([comes, comes_again])
    order = np.lexsort((rng.random(len(which)), comes))
    which, comes = which[order], comes[order]
    ends = np.searchsorted(comes, np.arange(hours), "right")
    return Batches(ts[which], series[which], rng.normal(size=len(which)).round(2), ends)


def stamp(seconds: int) -> str:
    return str(np.datetime64(seconds, "s")).replace("T", " ")
