"""A month of files, a file every five minutes, and what each policy makes of it.

    python benches/python/policies.py --write docs/guide/policies.md    the page's table, and its chart
    python benches/python/policies.py --days 3 --json out.json

No file is written and no row is moved: the policies choose as they do for `plait compact`, and merges
are done on samples of keys. A file has 100 of these, each for a hundredth of its bytes; one in a
hundred rows is late, by an hour on average.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from plait import _native

FILES_PER_DAY = 288
SECONDS = 300
KEYS = 100
BYTES = 1_000_000
LATE = 0.01
LATE_S = 3600
TARGET_BYTES = 64 * BYTES
MERGE_FACTOR = 10
LEVELS = 3
MAX_DEPTH = 8

# Name, what the policy is asked, and after how many files.
POLICIES: dict[str, tuple[dict[str, Any] | None, int]] = {
    "none": (None, 1),
    "size_tiered": (
        {
            "policy": "size_tiered",
            "merge_factor": MERGE_FACTOR,
            "merge_factor_max": MERGE_FACTOR + 2,
            "mature_level": LEVELS,
            "mature_size": 10**12,
        },
        1,
    ),
    "overlap": ({"policy": "overlap", "max_depth": MAX_DEPTH}, 12),
    "full": ({"policy": "full"}, FILES_PER_DAY),
}


@dataclass
class File:
    """Sampled keys of a file, sorted, and what a policy knows of it."""

    keys: np.ndarray
    level: int = 0
    task: str = ""

    @property
    def bytes(self) -> int:
        """Its size."""
        return len(self.keys) * BYTES // KEYS


@dataclass
class Run:
    """What became of a month."""

    days: list[float] = field(default_factory=list)
    write_amplification_over_time: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    depth: list[float] = field(default_factory=list)
    written: int = 0
    ingested: int = 0


def arrive(rng: np.random.Generator, number: int) -> File:
    """The file of some five minutes."""
    start = 30 * 86_400 + number * SECONDS  # so that nothing is late before the beginning
    keys = start + rng.uniform(0, SECONDS, KEYS)
    late = rng.random(KEYS) < LATE
    keys[late] -= rng.exponential(LATE_S, int(late.sum()))
    return File(np.sort(keys * 1000).astype(np.int64))


def choose(live: list[File], policy: dict[str, Any]) -> list[list[int]]:
    """Asks the engine's policy."""
    files = [
        (int(f.keys[0]), int(f.keys[-1]), f.bytes, f.level, f.task, 0.0)
        for f in live
        if len(f.keys)
    ]
    found: list[list[int]] = json.loads(
        _native.choose(json.dumps({"policy": policy, "files": files}))
    )
    return found


def merge(group: list[File], task: str, policy: str) -> list[File]:
    """What a merge of `group` makes; of one level one file, else files of the size aimed at."""
    keys = np.sort(np.concatenate([file.keys for file in group]))
    level = 1 + max(file.level for file in group)
    size = len(keys) * BYTES // KEYS
    parts = 1 if policy == "size_tiered" else max(size // TARGET_BYTES, 1)
    cuts = [0]
    for part in range(1, parts):
        cut = int(np.searchsorted(keys, keys[len(keys) * part // parts]))
        if cut > cuts[-1]:
            cuts.append(cut)
    return [File(keys[a:b], level, task) for a, b in zip(cuts, [*cuts[1:], len(keys)], strict=True)]


def mean_depth(live: list[File]) -> float:
    """How many files one must look into for a row, on average over rows."""
    keys = np.sort(np.concatenate([file.keys for file in live]))
    covered = sum(
        int(np.searchsorted(keys, f.keys[-1], "right") - np.searchsorted(keys, f.keys[0]))
        for f in live
    )
    return covered / len(keys)


def simulate(name: str, days: int) -> tuple[Run, int]:
    """Runs one policy; gives the run and how many sampled rows are left, which must be all."""
    policy, every = POLICIES[name]
    rng = np.random.default_rng(7)
    live: list[File] = []
    run = Run()
    for number in range(days * FILES_PER_DAY):
        new = arrive(rng, number)
        live.append(new)
        run.ingested += new.bytes
        run.written += new.bytes
        while policy is not None and (number + 1) % every == 0:
            groups = choose(live, policy)
            taken = {i for group in groups for i in group}
            made: list[File] = []
            for i, group in enumerate(groups):
                merged = merge([live[i] for i in group], f"{number}-{i}-{len(made)}", name)
                run.written += sum(file.bytes for file in merged)
                made += merged
            live = made + [file for i, file in enumerate(live) if i not in taken]
            if not groups or name != "size_tiered":
                break
        if (number + 1) % (FILES_PER_DAY // 4) == 0:
            run.days.append((number + 1) / FILES_PER_DAY)
            run.write_amplification_over_time.append(run.written / run.ingested)
            run.files.append(len(live))
            run.depth.append(mean_depth(live))
    return run, sum(len(file.keys) for file in live)


# Grey and middle tones show on light and dark pages alike.
INK = "#7a7a7a"
COLOURS = {"none": "#7d7d7d", "size_tiered": "#b8742a", "overlap": "#2b8f82", "full": "#c0556a"}
LABEL_GAP = 0.075  # of the height of a panel, between two names


def draw(runs: dict[str, Run], path: Path) -> None:
    """Three panels with a curve a policy, as SVG; names stand at the ends of the curves."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    style = {"svg.hashsalt": "plait", "svg.fonttype": "none", "font.size": 9}
    style |= dict.fromkeys(("text.color", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    shown = [
        ("How often each row was written", "write_amplification_over_time", (1, 2, 5, 10, 20)),
        ("Files in the folder", "files", (1, 10, 100, 1_000, 10_000)),
        ("Files that have to be read for one key, on average", "depth", (1, 2, 5, 10)),
    ]
    with mpl.rc_context(style):
        figure = Figure(figsize=(8, 8.5), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(3, 1, sharex=True)
        for axis, (title, what, ticks) in zip(panels, shown, strict=True):
            curves = {name: getattr(run, what) for name, run in runs.items()}
            for name, curve in curves.items():
                axis.plot(runs[name].days, curve, color=COLOURS[name], linewidth=1.4)
            axis.set_title(title, loc="left", fontweight="bold")
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(FixedLocator(ticks))
            axis.yaxis.set_minor_locator(NullLocator())
            axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axis.grid(visible=True, axis="y", alpha=0.3)
            axis.spines[["top", "right", "left"]].set_visible(False)
            axis.tick_params(length=0)
            last = max(run.days[-1] for run in runs.values())
            axis.set_xlim(0, last)
            # A curve's name stands where its last sawtooth has its middle.
            at = {name: sum(curve[-4:]) / len(curve[-4:]) for name, curve in curves.items()}
            for name, height in spread(axis, at).items():
                axis.text(
                    1.01,
                    height,
                    name,
                    color=COLOURS[name],
                    transform=axis.transAxes,
                    verticalalignment="center",
                    fontweight="bold",
                )
        panels[-1].set_xticks(range(0, int(last) + 1, max(int(last) // 3, 1)))
        panels[-1].xaxis.set_major_formatter(StrMethodFormatter("day {x:.0f}"))
        figure.savefig(path, metadata={"Date": None}, transparent=True)


def spread(axis, values: dict[str, float]) -> dict[str, float]:
    """Heights of names as shares of the panel: at the values, and apart from one another."""
    low, high = (math.log(limit) for limit in axis.get_ylim())
    heights: dict[str, float] = {}
    least = 0.0
    for name, value in sorted(values.items(), key=lambda item: item[1]):
        heights[name] = max((math.log(value) - low) / (high - low), least)
        least = heights[name] + LABEL_GAP
    return heights


def table(runs: dict[str, Run]) -> str:
    """The state at the end, and means over the time."""
    lines = [
        "| policy | times written per row | files at the end | files, mean | files per key, mean |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, run in runs.items():
        lines.append(
            f"| `{name}` | {run.write_amplification_over_time[-1]:.2f} | {run.files[-1]:,} "
            f"| {np.mean(run.files):,.0f} | {np.mean(run.depth):.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulates, and writes what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--write", type=Path, help="page whose table is replaced; its chart lies next to it"
    )
    options = parser.parse_args()
    runs, rows = {}, {}
    for name in POLICIES:
        runs[name], rows[name] = simulate(name, options.days)
    print(table(runs))
    if options.json:
        policies = {
            name: {
                "write_amplification": run.write_amplification_over_time[-1],
                "bound": 1 + LEVELS,
                "files": run.files,
                "depth": run.depth,
                "rows": rows[name],
            }
            for name, run in runs.items()
        }
        told = {"rows": options.days * FILES_PER_DAY * KEYS, "policies": policies}
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    if options.write:
        page = options.write.read_text()
        pattern = r"(?<=<!-- table -->\n).*?(?=\n<!-- end -->)"
        options.write.write_text(re.sub(pattern, lambda _: table(runs), page, flags=re.DOTALL))
        draw(runs, options.write.with_suffix(".svg"))


if __name__ == "__main__":
    main()
