"""Pictures of merges by matplotlib, for files and slides.

Not here: what a picture shows (`_picture`); this draws the same bands, headings and keys.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait._picture import BARS_MAX, Band, Depths, Picture, banded, colour, placed_keys, stepped
from plait._svg import FONT_SIZE, fitted
from plait._text import human_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 10.0
_BAR_INCHES = 0.26
_DEPTH_INCHES = 0.7
_FONT_SIZE = 8
# Where there is room for labels, about, in points.
_NAME_POINTS = 170
_KEYS_POINTS = 480
_GREY = "#6b6b6b"


def plot(picture: Picture, path: str | os.PathLike[str] | None) -> Figure:
    """Draws the picture, and saves it if `path` is given: files, and where several overlap."""
    # Here, because the package is optional; not pyplot, which would keep every figure.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    # Of each: what is drawn on it, and how high it is.
    panels: list[tuple[Any, float]] = []
    for heading, bars, depths in picture.sides():
        bands = banded(bars)
        height = max(len(bands) * _BAR_INCHES * (1.6 if len(bars) > BARS_MAX else 1), 0.4)
        panels.append(((heading, bands), height))
        if any(depth > 1 for start, end, depth in depths if end > start):
            panels.append((stepped(depths, picture.rows), _DEPTH_INCHES))
    heights = [height for _, height in panels] or [1.0]
    # Room for the title, the headings and the keys.
    inches = sum(heights) + 0.5 * len(heights) + 0.6 + 0.2 * len(picture.key_names)
    figure = Figure(figsize=(_WIDTH, inches), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(picture.title[:1].upper() + picture.title[1:], x=0.01, ha="left", weight="bold")
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    axes: list[Any] = list(grid[:, 0])
    for (drawn, _), axis in zip(panels, axes, strict=False):
        for side in ("top", "right", "left", "bottom"):
            axis.spines[side].set_visible(False)
        axis.tick_params(length=0, labelbottom=False)
        if isinstance(drawn[0], str):
            _draw_files(axis, *drawn)
        else:
            _draw_depths(axis, drawn)
    _label_keys(axes[-1], picture)
    if path is not None:
        figure.savefig(path)
    return figure


def _draw_files(axis: Any, heading: str, bands: Sequence[Band]) -> None:  # noqa: ANN401 - no types
    axis.set_title(heading, loc="left", fontsize="medium")
    kinds = list(dict.fromkeys(kind for band in bands for kind in band.kinds))
    seen: set[str] = set()
    for row, band in enumerate(bands):
        lanes = band.lanes
        line = 0.8 / (max(lanes) + 1)
        for bar, lane in zip(band.bars, lanes, strict=True):
            label = None if bar.kind in seen else bar.kind
            seen.add(bar.kind)
            axis.barh(
                row - 0.4 + line * (lane + 0.5),
                bar.end - bar.start,
                left=bar.start,
                height=line,
                color=colour(bar.kind, kinds),
                label=label,
            )
    axis.set_ylim(len(bands) - 0.5, -0.5)
    names = [fitted(band.name, _NAME_POINTS, _FONT_SIZE) for band in bands]
    axis.set_yticks(range(len(bands)), names, fontsize=_FONT_SIZE, parse_math=False)
    if len(kinds) > 1:
        axis.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=_FONT_SIZE, frameon=False)


def _draw_depths(axis: Any, depths: Depths) -> None:  # noqa: ANN401 - no types
    wide = [step for step in depths if step[1] > step[0]]
    most = max(depth for _, _, depth in wide)
    edges = [wide[0][0], *(end for _, end, _ in wide)]
    axis.stairs([depth for _, _, depth in wide], edges, fill=True, color=_GREY, alpha=0.45)
    axis.set_ylim(0, most * 1.05)
    axis.set_yticks([most], [f"files that overlap, up to {most:,}"], fontsize=_FONT_SIZE)
    axis.axhline(most, color=_GREY, linewidth=0.5)


def _label_keys(axis: Any, picture: Picture) -> None:  # noqa: ANN401 - no types
    marks = [mark for mark in picture.placed.marks if mark.key]
    room = _KEYS_POINTS * FONT_SIZE / _FONT_SIZE
    if marks:
        marks = [mark for mark, _ in placed_keys(marks, picture.rows, room)]
    axis.set_xlim(0, picture.rows or 1)
    lines = [
        "\n".join(fitted(human_key((value,)), room / 2) for value in mark.key) for mark in marks
    ]
    axis.set_xticks([mark.row for mark in marks], lines, fontsize=_FONT_SIZE, parse_math=False)
    axis.tick_params(axis="x", labelbottom=True, length=3, color=_GREY)
    for i, label in enumerate(axis.get_xticklabels()):
        # The first and the last stay between the ends of the axis.
        last = len(marks) - 1
        label.set_horizontalalignment("left" if i == 0 else "right" if i == last else "center")
    if picture.key_names:
        axis.set_xlabel(
            ", ".join(picture.key_names),
            loc="left",
            fontsize=_FONT_SIZE,
            color=_GREY,
            parse_math=False,
        )
