"""Sorted reads side by side: Plait, DuckDB, Polars and DataFusion with the order declared.

    python benches/python/read_sorted.py --scale 0.3 --rounds 3

    S992       W1 cut into 62 files for each of its 16, one behind the other: 16 of them overlap
    D992       W1 dealt into as many: all of them overlap, and a page is a file
    limit      the first and the last 100 rows, 4 columns
    series     one series (metric, service, host), all columns
    look-up    one of 8,000,000 ids in 1,000 files with bloom filters, whose footers are known
    whole      W1 in order, 4 columns and all, as batches that are counted
    many       10,000 files of 200 rows of W1, one behind the other, and all overlapping: memory

Every read runs in a process of its own; rounds go through all tools in turn, and the fastest of
each counts. `again` asks once more in the same process, where footers are known: those of the same
`SortedRead`, of DuckDB's cache of Parquet metadata, of the same session of DataFusion, and of the
same lazy frame of Polars. With `--memory-limit` Plait is given a smaller limit than 512 MB.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import workloads
from one_read import KEY, READS, counted, timed

FOLDER = Path("bench-data")
CUTS = 62


def cut_files(
    files: list[str], folder: Path, deals: bool, cuts: int = CUTS, rows_max: int | None = None
) -> list[str]:
    """Each file as so many files: stretches of rows, or every n-th row."""
    made = [folder / f"{i:02}-{j:02}.parquet" for i in range(len(files)) for j in range(cuts)]
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for i, file in enumerate(files):
            table = pq.read_table(file).slice(0, rows_max)
            bounds = [table.num_rows * j // cuts for j in range(cuts + 1)]
            if deals:
                order = np.concatenate([np.arange(j, table.num_rows, cuts) for j in range(cuts)])
                table = table.take(order).combine_chunks()
                bounds = [0, *np.cumsum([len(range(j, table.num_rows, cuts)) for j in range(cuts)])]
            for j, (first, end) in enumerate(itertools.pairwise(bounds)):
                pq.write_table(table.slice(first, end - first), folder / f"{i:02}-{j:02}.parquet",
                               compression="zstd", compression_level=3, write_page_index=True)  # fmt: skip
        (folder / "done").touch()
    return [str(path) for path in made]


def in_process(job: dict) -> subprocess.CompletedProcess[str]:
    """Runs a job in a process of its own; paths of 10,000 files are too long for an argument."""
    command = [sys.executable, str(Path(__file__).with_name("one_read.py"))]
    return subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)


def many(files: list[str], folder: Path, limits: Iterable[str]) -> None:
    """Memory of Plait for 10,000 files of all columns: once they are open, and when all are read."""
    for deals in (False, True):
        cut = cut_files(files[:4], folder / ("dealt" if deals else "cut"), deals, 2500, 500_000)
        job = {"files": cut, "columns": None, "where": None, "limit": None, "reverse": False,
               "tool": "plait"}  # fmt: skip
        print(f"{len(cut):,} files, {'all overlapping' if deals else 'one behind the other'}")
        for name, rows, limit in [
            (name, rows, limit)
            for limit in limits
            for name, rows in (("first row", 1), ("all rows", None))
        ]:
            run = in_process({**job, "limit": rows, "memory_limit": limit})
            if run.returncode:
                print(f"  {name} within {limit}: {run.stderr.strip().splitlines()[-1]}")
                continue
            found = json.loads(run.stdout)
            print(
                f"  {name:<9} within {limit:<6}{found['cpu_s']:8.3f} s processor "
                f"{found['rss_bytes'] / 1e6:7.0f} MB {found['rows']:>9,} rows",
                flush=True,
            )


def look_ups(folder: Path, files: int, rows: int) -> None:
    """One id in so many files, of which each may have any: by bloom filters."""
    import duckdb
    import pyarrow as pa

    import plait

    ids = np.random.default_rng(7).permutation(files * rows)
    paths = [folder / f"{i:04}.parquet" for i in range(files)]
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / "draft"
        for i, path in enumerate(paths):
            mine = np.sort(ids[i * rows : (i + 1) * rows])
            pq.write_table(pa.table({"id": mine, "text": [f"text {n}" for n in mine]}), draft)
            plait.merge(
                [draft], path, sort_by="id", bloom_filters={"id": {"fpp": 0.01}}, page_rows=1000
            )
        draft.unlink()
        (folder / "done").touch()
    files_ = [str(path) for path in paths]
    read = plait.read(files_, sort_by="id")
    asked = [int(n) for n in ids[:: len(ids) // 20]][:20]
    seconds: dict[str, list[float]] = {"plait": [], "duckdb": []}
    database = duckdb.connect()
    database.execute("SET threads = 2")
    database.execute("SET parquet_metadata_cache = true")
    processor: dict[str, list[float]] = {"plait": [], "duckdb": []}
    requests = []
    for key in asked:
        read_one: list[Any] = []

        def ask(key: int = key, into: list[Any] = read_one) -> int:
            into.append(read.where(f"id = {key}"))
            return counted(into[0])

        wall_s, cpu_s, found = timed(ask)
        assert found == 1
        one = read_one[0]
        seconds["plait"].append(wall_s)
        processor["plait"].append(cpu_s)
        requests.append(one.stats.reads)
        text = f"SELECT * FROM read_parquet({files_}) WHERE id = {key}"
        wall_s, cpu_s, found = timed(lambda text=text: database.sql(text).fetchall())
        assert len(found) == 1
        seconds["duckdb"].append(wall_s)
        processor["duckdb"].append(cpu_s)
    print(f"look-up of one id in {files} files of {rows} rows: the first, and the median of others")
    for tool, (first, *others) in seconds.items():
        cpu_first, *cpu_others = processor[tool]
        print(
            f"  {tool:<11}{1e3 * first:8.1f} ms wall {1e3 * cpu_first:8.1f} ms processor, then "
            f"{1e3 * sorted(others)[len(others) // 2]:8.1f} ms wall "
            f"{1e3 * sorted(cpu_others)[len(cpu_others) // 2]:8.1f} ms processor"
        )
    first, *others = requests
    print(f"             requests: {first}, then {min(others)} to {max(others)}", flush=True)


def reads(cut: list[str], dealt: list[str], whole: list[str]) -> dict[str, dict]:
    first = pq.ParquetFile(cut[len(cut) // 2]).read_row_group(0, columns=KEY[:3])
    row = first.slice(first.num_rows // 2, 1).to_pylist()[0]
    series = " AND ".join(f"{name} = '{value}'" for name, value in row.items())
    common = {"files": cut, "columns": None, "where": None, "limit": None, "reverse": False}
    four = [*KEY[:1], *KEY[2:], pq.read_schema(cut[0]).names[-1]]
    return {
        "S992, first 100": {**common, "columns": four, "limit": 100},
        "S992, last 100": {**common, "columns": four, "limit": 100, "reverse": True},
        "S992, one series": {**common, "where": series},
        "D992, first 100": {**common, "files": dealt, "columns": four, "limit": 100},
        "D992, one series": {**common, "files": dealt, "where": series},
        "D992, all columns": {**common, "files": dealt},
        "W1, 4 columns": {**common, "files": whole, "columns": four},
        "W1, all columns": {**common, "files": whole},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--only", default="")
    parser.add_argument("--memory-limit", default="512MB", help="of Plait")
    given = parser.parse_args()
    folder = given.folder / f"W1-{given.scale}"
    workloads.prepare("W1", folder, given.scale)
    whole = [str(path) for path in sorted(folder.glob("*.parquet"))]
    cut = cut_files(whole, given.folder / f"S992-{given.scale}", deals=False)
    dealt = cut_files(whole, given.folder / f"D992-{given.scale}", deals=True)
    if given.only in "many":
        limits = dict.fromkeys(("64MB", given.memory_limit))
        many(whole, given.folder / f"M10000-{given.scale}", limits)
    if given.only in "look-up":
        look_ups(given.folder / f"ids-{given.scale}", 1000, int(8000 * given.scale))
    for name, read in reads(cut, dealt, whole).items():
        if given.only not in name:
            continue
        best: dict[str, dict] = {}
        for _ in range(given.rounds):
            for tool in READS:
                run = in_process({**read, "tool": tool, "memory_limit": given.memory_limit})
                if run.returncode:
                    best.setdefault(tool, {"error": run.stderr.strip().splitlines()[-1:]})
                    continue
                found = json.loads(run.stdout)
                known = best.get(tool, found)
                if "error" in known:
                    continue
                least = {
                    name: min(known[name], found[name]) for name in found if name.endswith("_s")
                }
                best[tool] = {**found, **least}
        print(name)
        for tool, found in best.items():
            if "error" in found:
                print(f"  {tool:<11}{found['error']}")
                continue
            print(
                f"  {tool:<11}{found['wall_s']:8.3f} s wall {found['cpu_s']:8.3f} s processor "
                f"{found['rss_bytes'] / 1e6:7.0f} MB {found['rows']:>9,} rows, again "
                f"{found['again_wall_s']:8.3f} s wall {found['again_cpu_s']:8.3f} s processor",
                flush=True,
            )
            if "stats" in found:
                print(f"             {found['stats']}", flush=True)


if __name__ == "__main__":
    main()
