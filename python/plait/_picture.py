"""Pictures of merges: one bar per file over the rows of the result, and how many share each key."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from plait._layout import Bar, Mark, Placed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 60
_BARS_MAX = 24
_MARKS_MAX = 8
_KEY_MAX = 24
_LEVELS = " ▁▂▃▄▅▆▇█"
# Copy tiers have colours of their own, merge levels take the rest in turn.
_TIER_COLOURS = {"chunk": "#2a9d8f", "page": "#8ab17d", "dict": "#e9c46a", "value": "#e76f51"}
_COLOURS = ("#577590", "#90be6d", "#f9844a", "#9d4edd", "#43aa8b", "#f94144", "#277da1")

Depths = Sequence[tuple[float, float, int]]


@dataclass(frozen=True)
class Picture:
    """Files before and after a merge."""

    title: str
    placed: Placed

    @property
    def rows(self) -> float:
        """Length of the axis: rows of the result."""
        return max((bar.end for bar in self._bars()), default=0.0)

    def _bars(self) -> tuple[Bar, ...]:
        return (*self.placed.sources, *self.placed.outputs)

    def text(self) -> str:
        """The picture in characters; `""` without files that have keys."""
        if not self.placed.sources or not self.rows:
            return ""
        lines = [
            _depth_line("depth before", self.placed.source_depth, self.rows),
            *_bar_lines(self.placed.sources, self.rows),
            *_bar_lines(self.placed.outputs, self.rows),
            *_key_lines(self.placed.marks, self.rows),
        ]
        return "\n".join(lines)

    def svg(self) -> str:
        """The picture as SVG, without any package."""
        before, after = self.placed.sources[:_BARS_MAX], self.placed.outputs[:_BARS_MAX]
        bars = [*before, *after]
        if not bars or not self.rows:
            return ""
        width, label, row = 640, 220, 14
        scale = width / self.rows
        parts = []
        for i, bar in enumerate(bars):
            y = i * row + (6 if i >= len(before) else 0)
            length = max((bar.end - bar.start) * scale, 1)
            parts.append(
                f'<rect x="{bar.start * scale:.1f}" y="{y}" width="{length:.1f}" '
                f'height="{row - 3}" fill="{_colour(bar.kind, bars)}" stroke="#ffffff">'
                f"<title>{escape(_tooltip(bar))}</title></rect>"
                f'<text x="{width + 6}" y="{y + row - 5}" font-size="10">'
                f"{escape(_short(_base(bar.name), 36))}</text>"
            )
        height = len(bars) * row + 10
        for mark in _picked(self.placed.marks, self.rows):
            x = mark.row * scale
            anchor = "start" if x < width / 4 else "end" if x > width * 3 / 4 else "middle"
            parts.append(
                f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height}" stroke="#00000033"/>'
                f'<text x="{x:.1f}" y="{height + 12}" font-size="10" text-anchor="{anchor}">'
                f"{escape(_short(mark.key))}</text>"
            )
        height += 18
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + label} {height}" '
            f'width="{width + label}" height="{height}">{"".join(parts)}</svg>'
        )


def _tooltip(bar: Bar) -> str:
    return f"{bar.name}: {bar.rows:,} rows, {bar.kind}"


def _base(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _short(text: str, most: int = _KEY_MAX) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _picked(marks: Sequence[Mark], rows: float) -> list[Mark]:
    """The first and the last mark, and some between that are apart from their neighbours."""
    if len(marks) <= 2:  # noqa: PLR2004 - the first and the last
        return list(marks)
    picked, apart = [marks[0]], rows / _MARKS_MAX
    for mark in marks[1:-1]:
        if mark.row - picked[-1].row >= apart and marks[-1].row - mark.row >= apart:
            picked.append(mark)
    return [*picked, marks[-1]]


def _cells(bar: Bar, rows: float) -> range:
    start = min(round(bar.start * _COLUMNS / rows), _COLUMNS - 1)
    return range(start, max(round(bar.end * _COLUMNS / rows), start + 1))


def _depth_line(name: str, depths: Depths, rows: float) -> str:
    most = max((depth for _, _, depth in depths), default=0)
    marks = []
    for column in range(_COLUMNS):
        low, high = column * rows / _COLUMNS, (column + 1) * rows / _COLUMNS
        here = [depth for start, end, depth in depths if start < high and end > low]
        marks.append(_LEVELS[-(-max(here, default=0) * (len(_LEVELS) - 1) // max(most, 1))])
    return f"{''.join(marks)}  {name}: at most {most}"


def _bar_lines(bars: Sequence[Bar], rows: float) -> list[str]:
    lines = []
    for bar in bars[:_BARS_MAX]:
        cells = _cells(bar, rows)
        marks = ["═" if cell in cells else " " for cell in range(_COLUMNS)]
        marks[cells.start] = "╞"
        marks[cells.stop - 1] = "╡" if len(cells) > 1 else "╪"
        lines.append(f"{''.join(marks)}  {_base(bar.name)} ({bar.kind})")
    if len(bars) > _BARS_MAX:
        lines.append(f"{' ' * _COLUMNS}  and {len(bars) - _BARS_MAX:,} more")
    return lines


def _key_lines(marks: Sequence[Mark], rows: float) -> list[str]:
    """Keys below the bars: the first, the last, and those for which there is room."""
    if not marks:
        return []
    last = _short(marks[-1].key)
    line = _short(marks[0].key)
    for mark in _picked(marks, rows)[1:-1]:
        at, text = round(mark.row * _COLUMNS / rows), _short(mark.key)
        if at >= len(line) + 2 and at + len(text) + 2 <= _COLUMNS - len(last):
            line = line.ljust(at) + text
    if len(marks) > 1:
        line = line.ljust(_COLUMNS - len(last)) + last
    return [f"{line.ljust(_COLUMNS)}  keys"]


def _colour(kind: str, bars: Sequence[Bar]) -> str:
    if kind in _TIER_COLOURS:
        return _TIER_COLOURS[kind]
    kinds = sorted({bar.kind for bar in bars} - set(_TIER_COLOURS))
    return _COLOURS[kinds.index(kind) % len(_COLOURS)]


def plot(picture: Picture, path: str | os.PathLike[str] | None) -> Figure:
    """Draws the picture with matplotlib, and saves it if `path` is given."""
    # Here, because the package is optional; not pyplot, which would keep every figure.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    placed = picture.placed
    figure = Figure(figsize=(11, 6), layout="constrained")
    FigureCanvasAgg(figure)
    parts = [
        ("before", placed.sources, placed.source_depth),
        ("after", placed.outputs, placed.output_depth),
    ]
    heights = [_height(placed.sources), 2, _height(placed.outputs), 2]
    axes: Any = figure.subplots(4, 1, sharex=True, height_ratios=heights)
    figure.suptitle(picture.title)
    for i, (name, bars, depths) in enumerate(parts):
        files, curve = axes[2 * i], axes[2 * i + 1]
        seen: set[str] = set()
        for row, bar in enumerate(bars):
            label = None if bar.kind in seen else bar.kind
            seen.add(bar.kind)
            colour = _colour(bar.kind, bars)
            width = bar.end - bar.start
            edge = {"edgecolor": "white", "linewidth": 0.5}
            files.barh(row, width, left=bar.start, height=0.8, color=colour, label=label, **edge)
        files.invert_yaxis()
        names = [_short(_base(bar.name), 36) for bar in bars]
        files.set_yticks(range(len(bars)) if len(bars) <= _BARS_MAX else [])
        if len(bars) <= _BARS_MAX:
            files.set_yticklabels(names, fontsize="x-small")
        files.set_ylabel(f"files {name}")
        if seen:
            files.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
        wide = [step for step in depths if step[1] > step[0]]
        if wide:
            edges = [wide[0][0], *(end for _, end, _ in wide)]
            curve.stairs([depth for _, _, depth in wide], edges, color="#444444", baseline=None)
        curve.set_ylim(0, max((depth for _, _, depth in wide), default=0) * 1.15 or 1)
        curve.yaxis.get_major_locator().set_params(integer=True)
        curve.set_ylabel("depth")
    marks = _picked(placed.marks, picture.rows)
    last = axes[-1]
    if picture.rows:
        last.set_xlim(0, picture.rows)
    last.set_xticks([mark.row for mark in marks])
    last.set_xticklabels([f"{mark.row:,.0f}\n{_short(mark.key)}" for mark in marks])
    last.set_xlabel("rows of the result, and keys at them; places between keys are estimates")
    if path is not None:
        figure.savefig(path)
    return figure


def _height(bars: Sequence[Bar]) -> float:
    return min(max(len(bars), 3), 30) / 3
