"""A year of hourly batches with late rows, and what each policy makes of it.

    python benches/python/year.py --write docs/guide/policies.md     all runs; the page's table and its chart, year.svg
    python benches/python/year.py --days 60 --json out.json          a shorter year
    python benches/python/year.py --only "size_tiered by ts, name" --json out.json     one run, added to the file
    python benches/python/year.py --door table               batches are appended to a `plait.Table`, not written to a folder

Every batch is written, merged and read by the calls that users have; only the clock is missing. A batch
has two rows of each of 50 series. Three rows in a hundred come late, by hours or days, at most by a week;
one in a hundred comes again with another value. Bounds are checked, and in the end all rows.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from year_rows import AGAIN, HOUR, LATE_MAX, NAMES, SERIES, Batches, make, stamp

import plait

MERGE_FACTOR, LEVELS = 10, 4
WEEK = 168
BY_TIME, BY_SERIES = "ts, name", "name, ts"
ORDERS = (BY_TIME, BY_SERIES)


@dataclass(frozen=True)
class Policy:
    """What `compact` is asked, after every so many hours; and for how long rows stay."""

    options: dict[str, Any] | None
    every: int
    every_by_series: int | None = None
    kept_days: int | None = None


_TIERED = {
    "policy": "size_tiered",
    "merge_factor": MERGE_FACTOR,
    "mature_level": LEVELS,
    "target_file_size": None,
}
# By series, every file has all keys, and `overlap` does what `full` does: not daily, then.
POLICIES = {
    "none": Policy(None, 1),
    "size_tiered": Policy(_TIERED, 4),
    "overlap": Policy({"policy": "overlap", "target_file_size": "64kB"}, 24, 168),
    "full": Policy({"policy": "full", "target_file_size": None}, 168),
    "size_tiered, 90 days": Policy(_TIERED, 4, kept_days=90),
}
RUNS = {
    f"{policy} by {order}": (policy, order)
    for order in ORDERS
    for policy in POLICIES
    if order == BY_TIME or POLICIES[policy].kept_days is None
}


@dataclass
class Run:
    """What became of the time; curves have a value for each day, or each week without a policy."""

    policy: str
    order: str
    hours: int
    rows: int = 0  # of users
    bytes: int = 0
    rows_merged: int = 0  # written by compactions and deletes
    bytes_merged: int = 0
    compactions: int = 0
    live_files: int = 0
    live_rows: int = 0
    live_bytes: int = 0
    files_max: int = 0  # at any moment
    files_after_max: int = 0  # after a compaction
    depth_after_max: int = 0
    hour_max: int = 0
    series_max: int = 0
    space_max: float = 1.0
    cpu_s: float = 0.0
    span_max_h: float = 0.0  # of a file, at the end
    days: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    hour: list[float] = field(default_factory=list)
    series: list[int] = field(default_factory=list)

    @property
    def row_writes(self) -> float:
        """How often a row was written, on average."""
        return (self.rows + self.rows_merged) / self.rows

    @property
    def byte_writes(self) -> float:
        return (self.bytes + self.bytes_merged) / self.bytes


class InFolder:
    """Sorted files in a folder, with names by time."""

    def __init__(self, folder: Path, order: str) -> None:
        self.folder, self.order, self.number = folder, order, 0
        self.how = {"sort_by": order, "on_duplicate": "keep_last"}
        folder.mkdir()

    def append(self, rows: pa.Table) -> tuple[int, int]:
        """Gives rows and bytes of the new file."""
        rows = rows.sort_by([(name, "ascending") for name in self.order.split(", ")])
        path = self.folder / f"{self.number:05}.parquet"
        pq.write_table(rows, path)
        self.number += 1
        return rows.num_rows, path.stat().st_size

    def compact(self, **options: Any) -> plait.CompactReport:
        return plait.compact(self.folder, **self.how, **LIMITS, **options)

    def read(self) -> Any:
        return plait.read(self.folder, **self.how)

    def depth(self) -> int:
        return plait.plan(self.folder, sort_by=self.order).overlap.depth_max

    def expire(self) -> None:
        plait.expire(self.folder, retention=0, yes=True)

    def files(self) -> list[tuple[Path, int, int]]:
        """Live files with rows and bytes, once there are no others."""
        found = self.folder.rglob("*.parquet")
        return [(p, pq.read_metadata(p).num_rows, p.stat().st_size) for p in found]


class InTable:
    """A table with a log. Its files begin at level 1; what `delete` rewrites does so again."""

    def __init__(self, folder: Path, order: str) -> None:
        how = {"on_duplicate": "keep_last", "retention": "0s"}
        self.table = plait.Table(folder, sort_by=order, **how)

    def append(self, rows: pa.Table) -> tuple[int, int]:
        done = self.table.append(rows, **LIMITS)
        return done.rows, done.bytes

    def compact(self, **options: Any) -> plait.CompactReport:
        return self.table.compact(**LIMITS, **options)

    def read(self) -> Any:
        return self.table.read()

    def depth(self) -> int:
        live = [path for path, *_ in self.files()]
        return plait.plan(live, sort_by=self.table.sort_by).overlap.depth_max

    def expire(self) -> None:
        self.table.expire(0)

    def files(self) -> list[tuple[Path, int, int]]:
        live = self.table.files()
        return [(Path(self.table.path) / f.name, f.rows, f.bytes) for f in live]


DOORS = {"folder": InFolder, "table": InTable}
LIMITS = {"threads": 1, "memory_limit": "64MB"}


def simulate(name: str, hours: int, folder: Path, door: str) -> Run:
    """Runs one policy; raises if a row is missing, doubled or another."""
    policy_name, order = RUNS[name]
    policy, batches, run = POLICIES[policy_name], make(hours), Run(policy_name, order, hours)
    rng = np.random.default_rng(8)
    there = DOORS[door](folder, order)
    every, days = every_of(run), 28 if policy.options is None else 1
    keys: set[int] = set()
    begun, since = time.process_time(), 0
    for hour in range(hours):
        rows, size = there.append(batches.of(hour))
        run.rows, run.bytes = run.rows + rows, run.bytes + size
        run.live_rows, run.live_bytes = run.live_rows + rows, run.live_bytes + size
        run.live_files += 1
        run.files_max = max(run.files_max, run.live_files)
        at = batches.at(hour)
        keys.update((batches.ts[at] * SERIES + batches.series[at]).tolist())
        now = hour + 1
        if now % (24 * days) == 0:
            probe(there.read(), run, now, since, rng, len(keys))
        if policy.options is not None and now % every == 0:
            count(run, there.compact(**policy.options))
            run.files_after_max = max(run.files_after_max, run.live_files)
        if policy.kept_days and now % WEEK == 0 and now > policy.kept_days * 24:
            since = (now - policy.kept_days * 24) * HOUR
            count(run, there.compact(**policy.options, drop_where=f"ts < '{stamp(since)}'"))
            keys = {key for key in keys if key >= since * SERIES}
        if now % WEEK == 0 and policy.options is not None:
            there.expire()
            if now % every == 0:
                run.depth_after_max = max(run.depth_after_max, there.depth())
    run.cpu_s = time.process_time() - begun
    finish(there, run, batches, since)
    return run


def every_of(run: Run) -> int:
    """After how many hours a run compacts."""
    policy = POLICIES[run.policy]
    return (policy.every_by_series if run.order == BY_SERIES else None) or policy.every


def count(run: Run, done: plait.CompactReport) -> None:
    """Adds what a compaction wrote, and what it left."""
    for group in done.groups:
        dropped = sum(group.rows_dropped.values())
        run.rows_merged += group.rows - dropped
        run.bytes_merged += group.bytes_out
        run.live_rows -= dropped
        run.live_bytes += group.bytes_out - group.bytes
        run.live_files += len(group.outputs) - len(group.sources)
    run.compactions += bool(done.groups)


def probe(opened: Any, run: Run, now: int, since: int, rng: np.random.Generator, keys: int) -> None:
    """How many files have to be opened now, before the next compaction."""

    def files(where: str) -> int:
        plan = opened.where(where).explain()
        return plan.files - plan.files_skipped

    oldest = since // HOUR
    hours = (now - 1, max(now - LATE_MAX, oldest), int(rng.integers(oldest, now)))
    of_hours = [
        files(f"ts >= '{stamp(h * HOUR)}' AND ts < '{stamp((h + 1) * HOUR)}'") for h in hours
    ]
    of_series = files(f"name = '{NAMES[int(rng.integers(SERIES))]}'")
    run.hour_max = max(run.hour_max, *of_hours)
    run.series_max = max(run.series_max, of_series)
    run.space_max = max(run.space_max, run.live_rows / keys)
    run.days.append(now / 24)
    run.written.append(run.row_writes)
    run.files.append(run.live_files)
    run.hour.append(sum(of_hours) / len(of_hours))
    run.series.append(of_series)


def finish(there: InFolder | InTable, run: Run, batches: Batches, since: int) -> None:
    """Compares counts with the files, and the rows with those that came."""
    there.expire()
    live = there.files()
    counted = len(live), sum(rows for _, rows, _ in live), sum(size for *_, size in live)
    if counted != (run.live_files, run.live_rows, run.live_bytes):
        raise AssertionError(f"there are {counted}, reports say {run}")
    rows = pa.table(there.read()).sort_by([("ts", "ascending"), ("name", "ascending")])
    rows = rows.filter(pc.field("ts") >= pa.scalar(since * 1_000_000, pa.timestamp("us")))
    expected = batches.last(since)
    if not rows.equals(expected.cast(rows.schema)):
        raise AssertionError(f"{rows.num_rows} rows are read, {expected.num_rows} came")
    for path, _, _ in live:
        meta = pq.read_metadata(path)
        at = meta.schema.names.index("ts")
        of = [meta.row_group(i).column(at).statistics for i in range(meta.num_row_groups)]
        span = max(s.max for s in of) - min(s.min for s in of)
        run.span_max_h = max(run.span_max_h, span.total_seconds() / HOUR)


# -- what theory promises --------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """A promise: what was measured is at most this."""

    what: str
    measured: float
    most: float
    why: str

    @property
    def holds(self) -> bool:
        return self.measured <= self.most


def bounds(run: Run) -> list[Bound]:
    """What each policy promises of a run; `n` batches, of which `every` wait for a compaction."""
    policy, n = POLICIES[run.policy], run.hours
    every = every_of(run)
    merges = n // every
    by_time = run.order == BY_TIME
    writes_max = max(*run.written, run.row_writes) if run.written else run.row_writes
    found: list[tuple[str, float, float, str]] = []
    if run.policy == "none":
        found = [("writes", run.row_writes, 1, "1"), ("files", run.files_max, n, "n")]
        if by_time:
            why = "an hour's own batch, and those of the hours in which it may be late"
            found.append(("hour", run.hour_max, LATE_MAX + 1, why))
    elif run.policy.startswith("size_tiered"):
        reached = min(LEVELS, int(math.log(n, MERGE_FACTOR) + 1e-9))
        most = (MERGE_FACTOR - 1) * LEVELS + n // MERGE_FACTOR**LEVELS + every
        levels = reached + 1
        found = [
            ("files", run.files_max, most, "(k - 1) a level, mature files, one that came"),
            ("hour", run.hour_max, MERGE_FACTOR * levels, "k * levels"),
            ("series", run.series_max, MERGE_FACTOR * levels, "k * levels"),
        ]
        writes, why = 1 + reached, "once, and once a level"
        if policy.kept_days:
            # What has rows that expire is written again each week until it has none.
            writes += 1 + (MERGE_FACTOR**reached + LATE_MAX) / WEEK
            why += ", and once a week while rows expire"
        found.append(("writes", writes_max, writes, why))
    elif run.policy == "overlap":
        found = [("depth after", run.depth_after_max, 1, "max_depth")]
        if by_time:
            writes = 3 + (LATE_MAX + 2 * run.span_max_h) / every
            found += [
                ("writes", writes_max, writes, "3 + (lateness + 2 spans of a file) / period"),
                ("hour", run.hour_max, every + 2, "new files, and two that are disjoint"),
            ]
        else:
            found.append(("writes", run.row_writes, 1 + (merges + 1) / 2, "1 + (merges + 1) / 2"))
            series = every + 2 + run.files_after_max / SERIES
            why = "new files, its share of those that are disjoint, and two at its ends"
            found.append(("series", run.series_max, series, why))
    else:
        found = [
            ("writes", run.row_writes, 1 + (merges + 1) / 2, "1 + (merges + 1) / 2"),
            ("files after", run.files_after_max, 1, "one"),
            ("files", run.files_max, every + 1, "new files, and one"),
            ("hour", run.hour_max, every + 1, "new files, and one"),
            ("series", run.series_max, every + 1, "new files, and one"),
        ]
    # A key has an older row only until the files with both are merged.
    found.append(("space", run.space_max, 1 + 2 * AGAIN, "rows that came, by keys"))
    return [Bound(*bound) for bound in found]


# -- what is shown ---------------------------------------------------------------------------------


def table(runs: list[Run]) -> str:
    """One line for each run."""
    head = ["order", "policy", "row writes", "bound", "byte writes", "files", "for an hour"]
    head += ["for a series", "size"]
    lines = [f"| {' | '.join(head)} |", "|---|---" + "|---:" * 7 + "|"]
    for run in runs:
        most = next((b.most for b in bounds(run) if b.what == "writes"), None)
        lines.append(
            f"| `{run.order}` | {run.policy} | {run.row_writes:.2f} "
            f"| {'–' if most is None else f'{most:,.1f}'.removesuffix('.0')} | {run.byte_writes:.2f} "
            f"| {run.files_max:,} | {run.hour_max:,} | {run.series_max:,} "
            f"| {run.live_bytes / 1e6:.1f} MB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulates, checks, and writes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--only", nargs="*", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--json", type=Path, help="runs are added to what it has")
    parser.add_argument("--write", type=Path, help="page with the table; its chart is beside it")
    parser.add_argument("--door", choices=list(DOORS), default="folder")
    parser.add_argument("--folder", type=Path, help="where tables are made, then removed")
    options = parser.parse_args()
    runs: dict[str, Run] = {}
    if options.json and options.json.exists():
        runs = {name: Run(**told) for name, told in json.loads(options.json.read_text()).items()}
    for name in options.only:
        if options.door == "table" and POLICIES[RUNS[name][0]].kept_days:
            continue
        folder = Path(tempfile.mkdtemp(prefix="plait-year-", dir=options.folder))
        try:
            run = simulate(name, options.days * 24, folder / "metrics", options.door)
        finally:
            shutil.rmtree(folder)
        runs[name] = run
        print(f"{name}: {run.row_writes:.2f} writes, {run.cpu_s:.0f} s of processor", flush=True)
        if options.json:
            told = {name: asdict(run) for name, run in runs.items()}
            options.json.write_text(json.dumps(told) + "\n")
    told = [runs[name] for name in RUNS if name in runs]
    print(table(told))
    broken = [(run, bound) for run in told for bound in bounds(run) if not bound.holds]
    for run, b in broken:
        where = f"{run.policy} by {run.order}"
        print(f"broken: {where}: {b.what} {b.measured:,.2f} > {b.most:,.2f}: {b.why}")
    if options.write:
        page = options.write.read_text()
        pattern = r"(?<=<!-- year -->\n).*?(?=\n<!-- end of year -->)"
        options.write.write_text(re.sub(pattern, lambda _: table(told), page, flags=re.DOTALL))
        from year_chart import draw

        draw(told, options.write.with_name("year.svg"))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
