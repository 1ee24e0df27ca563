"""Pictures of merges: one bar per file over the key axis, and how many files share each key.

The axis has one step per first or last key of a file: keys have an order, but no distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 60
_BARS_MAX = 24
_LEVELS = " ▁▂▃▄▅▆▇█"
# Copy tiers have colours of their own, merge levels take the rest in turn.
_TIER_COLOURS = {"chunk": "#2a9d8f", "page": "#8ab17d", "dict": "#e9c46a", "value": "#e76f51"}
_COLOURS = ("#577590", "#90be6d", "#f9844a", "#9d4edd", "#43aa8b", "#f94144", "#277da1")


@dataclass(frozen=True)
class Bar:
    """A file: its name, the places of its first and last key, and what it is coloured by."""

    name: str
    first: int
    last: int
    kind: str


@dataclass(frozen=True)
class Picture:
    """Files before and after."""

    title: str
    before: tuple[Bar, ...]
    after: tuple[Bar, ...]

    @property
    def steps(self) -> int:
        """Length of the axis."""
        return max((bar.last for bar in (*self.before, *self.after)), default=0) + 1

    def text(self) -> str:
        """The picture in characters; `""` without files that have keys."""
        if not self.before or self.steps <= 1:
            return ""
        width = min(_COLUMNS, max(self.steps * 2, 20))
        lines = [
            _depth_line("depth before", depths(self.before, self.steps), width),
            *_bar_lines(self.before, self.steps, width),
            *_bar_lines(self.after, self.steps, width),
        ]
        return "\n".join(lines)

    def svg(self) -> str:
        """The picture as SVG, without any package."""
        bars = [*self.before[:_BARS_MAX], *self.after[:_BARS_MAX]]
        if not bars:
            return ""
        width, row = 640, 12
        scale = width / self.steps
        parts = []
        for i, bar in enumerate(bars):
            y = i * row + (6 if i >= len(self.before[:_BARS_MAX]) else 0)
            length = max((bar.last - bar.first + 1) * scale - 1, 1)
            parts.append(
                f'<rect x="{bar.first * scale:.1f}" y="{y}" width="{length:.1f}" '
                f'height="{row - 3}" fill="{_colour(bar.kind, bars)}">'
                f"<title>{escape(bar.name)}: {escape(bar.kind)}</title></rect>"
            )
        height = len(bars) * row + 8
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}">{"".join(parts)}</svg>'
        )


def depths(bars: Sequence[Bar], steps: int) -> list[int]:
    """How many bars cover each step of the axis."""
    changes = [0] * (steps + 1)
    for bar in bars:
        changes[bar.first] += 1
        changes[bar.last + 1] -= 1
    found, depth = [], 0
    for change in changes[:steps]:
        depth += change
        found.append(depth)
    return found


def _cells(first: int, last: int, steps: int, width: int) -> range:
    start = first * width // steps
    return range(start, max((last + 1) * width // steps, start + 1))


def _depth_line(name: str, found: Sequence[int], width: int) -> str:
    most = max(found, default=0)
    marks = []
    for cell in range(width):
        low = cell * len(found) // width
        high = max((cell + 1) * len(found) // width, low + 1)
        depth = max(found[low:high])
        marks.append(_LEVELS[-(-depth * (len(_LEVELS) - 1) // max(most, 1))])
    return f"{''.join(marks)}  {name}: at most {most}"


def _bar_lines(bars: Sequence[Bar], steps: int, width: int) -> list[str]:
    lines = []
    for bar in bars[:_BARS_MAX]:
        cells = _cells(bar.first, bar.last, steps, width)
        marks = ["═" if cell in cells else " " for cell in range(width)]
        marks[cells.start] = "╞"
        marks[cells.stop - 1] = "╡" if len(cells) > 1 else "╪"
        lines.append(f"{''.join(marks)}  {bar.name} ({bar.kind})")
    if len(bars) > _BARS_MAX:
        lines.append(f"{' ' * width}  and {len(bars) - _BARS_MAX:,} more")
    return lines


def _colour(kind: str, bars: Sequence[Bar]) -> str:
    if kind in _TIER_COLOURS:
        return _TIER_COLOURS[kind]
    kinds = sorted({bar.kind for bar in bars} - set(_TIER_COLOURS))
    return _COLOURS[kinds.index(kind) % len(_COLOURS)]


def plot(picture: Picture, path: str | None) -> Figure:
    """Draws the picture with matplotlib, and saves it if `path` is given."""
    # Here, because the package is optional; not pyplot, which would keep every figure.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    parts = [("before", picture.before), ("after", picture.after)]
    axes: Any = figure.subplots(
        4, 1, sharex=True, height_ratios=[_height(picture.before), 2, _height(picture.after), 2]
    )
    figure.suptitle(picture.title)
    for i, (name, bars) in enumerate(parts):
        files, curve = axes[2 * i], axes[2 * i + 1]
        seen: set[str] = set()
        for row, bar in enumerate(bars):
            label = None if bar.kind in seen else bar.kind
            seen.add(bar.kind)
            files.barh(
                row,
                bar.last - bar.first + 1,
                left=bar.first,
                height=0.8,
                color=_colour(bar.kind, bars),
                label=label,
            )
        files.invert_yaxis()
        files.set_yticks([])
        files.set_ylabel(f"files {name}")
        if seen:
            files.legend(loc="upper right", fontsize="small")
        steps = picture.steps
        curve.step(range(steps), depths(bars, steps), where="mid", color="#444444")
        curve.set_ylim(bottom=0)
        curve.set_ylabel("depth")
    axes[-1].set_xlabel("keys in order, one step per first or last key of a file")
    if path is not None:
        figure.savefig(path)
    return figure


def _height(bars: Sequence[Bar]) -> float:
    return min(max(len(bars), 3), 30) / 3
