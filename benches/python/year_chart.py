"""The chart of `year.py`: a column of panels for each order, a curve for each policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from policies import COLOURS, INK, spread

ORDERS = {"ts, name": "By time", "name, ts": "By series"}


def draw(runs: list[Any], path: Path) -> None:
    """A column of panels for each order, a curve for each policy."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    style = {"svg.hashsalt": "plait", "svg.fonttype": "none", "font.size": 9}
    style |= dict.fromkeys(("text.color", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    shown = [
        ("written per row", "written", (1, 3, 10, 30, 100)),
        ("files for an hour, most in a week", "hour", (1, 3, 10, 30, 100)),
        ("files for a series, most in a week", "series", (1, 10, 100, 1_000, 10_000)),
    ]
    drawn = [run for run in runs if run.policy in COLOURS and run.days]
    with mpl.rc_context(style):
        figure = Figure(figsize=(9.5, 8.5), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(3, 2, sharex=True, sharey="row")
        names = []
        for column, order in enumerate(ORDERS):
            for axis, (title, what, ticks) in zip(panels[:, column], shown, strict=True):
                at = {}  # where the name of a curve stands: at its last weeks
                for run in drawn:
                    if run.order == order:
                        days, values = curve(run, what)
                        axis.plot(days, values, color=COLOURS[run.policy], linewidth=1.4)
                        at[run.policy] = float(np.mean(values[-3:]))
                names.append((axis, at))
                axis.set_title(f"{ORDERS[order]}: {title}", loc="left", fontweight="bold")
                axis.set_yscale("log")
                axis.yaxis.set_major_locator(FixedLocator(ticks))
                axis.yaxis.set_minor_locator(NullLocator())
                axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
                axis.grid(visible=True, axis="y", alpha=0.3)
                axis.spines[["top", "right", "left"]].set_visible(False)
                axis.tick_params(length=0)
                last = max(run.days[-1] for run in drawn)
                axis.set_xlim(0, last)
        for axis, at in names:
            for name, height in spread(axis, at).items():
                style = {"transform": axis.transAxes, "verticalalignment": "center"}
                axis.text(1.01, height, name, color=COLOURS[name], fontweight="bold", **style)
        for axis in panels[-1]:
            axis.set_xticks(range(0, int(last) + 1, 120 if last > 300 else max(int(last) // 3, 1)))
            axis.xaxis.set_major_formatter(StrMethodFormatter("day {x:.0f}"))
        figure.savefig(path, metadata={"Date": None}, transparent=True)


def curve(run: Any, what: str) -> tuple[list[float], list[float]]:
    """What was written as it grows; of reads, the most of each week."""
    values = getattr(run, what)
    if what == "written":
        return run.days, values
    weeks: dict[int, float] = {}
    for day, value in zip(run.days, values, strict=True):
        week = int((day - 1) // 7)
        if week < run.hours // (7 * 24) or not weeks:
            weeks[week] = max(weeks.get(week, 0), value)
    return [7 * (week + 1) for week in weeks], list(weeks.values())
