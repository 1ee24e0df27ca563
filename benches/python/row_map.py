"""What a row map costs: merges with and without one, in turn.

    python benches/python/row_map.py [--workloads W1,W4] [--scale 0.1] [--rounds 7]

Prints the size of the maps as a share of the data, and the least wall and processor time of each
kind. One process, as the difference is small; the first merge of a workload is not counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import workloads

import plait


def merge(name: str, folder: Path, out: Path, *, row_map: bool) -> plait.MergeReport:
    """One merge, whose outputs are the only ones that are there."""
    shutil.rmtree(out, ignore_errors=True)
    files = str(folder / "in-*.parquet")
    return plait.merge(files, out, sort_by=workloads.sort_by(name), row_map=row_map)


def measure(name: str, scale: float, rounds: int, home: Path) -> None:
    """Measures one workload and prints a line."""
    facts = workloads.prepare(name, home / name, scale)
    out = home / "out"
    least = {True: [float("inf")] * 2, False: [float("inf")] * 2}
    merge(name, home / name, out, row_map=False)
    size = 0
    for number in range(2 * rounds):
        is_mapped = number % 4 in (1, 2)
        report = merge(name, home / name, out, row_map=is_mapped)
        seconds = report.time.wall_s, report.time.cpu_s or 0.0
        least[is_mapped] = list(map(min, least[is_mapped], seconds))
        size = max(size, sum(os.path.getsize(o.row_map) for o in report.outputs if o.row_map))
    (wall, cpu), (wall_mapped, cpu_mapped) = least[False], least[True]
    print(
        f"{name}: {facts['rows']:,} rows, {facts['bytes'] / 1e6:.1f} MB; map {size / 1e3:.1f} kB = "
        f"{100 * size / facts['bytes']:.3f} % of the data; wall {wall:.3f} s and {wall_mapped:.3f} s "
        f"({100 * (wall_mapped / wall - 1):+.1f} %); processor {cpu:.2f} s and {cpu_mapped:.2f} s "
        f"({100 * (cpu_mapped / cpu - 1):+.1f} %)"
    )


def main() -> None:
    """Measures the workloads that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", default="W1,W4")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for name in given.workloads.split(","):
            measure(name, given.scale, given.rounds, Path(home))


if __name__ == "__main__":
    main()
