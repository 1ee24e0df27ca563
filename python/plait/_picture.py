"""Pictures of merges: one bar per file over the rows of the result, as text and as SVG.

    Before: 3 files, up to 2 overlap
    a.parquet  ├──────────┤                 files; many of them are drawn as bands of files
    b.parquet        ├──────────────┤
    After: 2 files, none overlap
    part-0     ├──────────┤
    part-1                 ├────────┤
    ts         08:00       12:30    17:00   columns of the key, and their values

Not here: where files lie (`_layout`), lines and bars (`_svg`), matplotlib (`_plot`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from plait._layout import Bar, Mark, Placed
from plait._svg import COLOURS, FONT_SIZE, ROW_HEIGHT, Canvas, Part, Sides, fitted, text_width
from plait._text import column_names, counted, human_key

_COLUMNS = 60
BARS_MAX = 24
_BANDS = 12
_BAND_HEIGHT = 30
_MARKS_MAX = 5
_TEXT_MARKS_MAX = 8
_STEPS_MAX = 100
_KEY_MAX = 24
_LEVELS = " ▁▂▃▄▅▆▇█"
# What a copy tier copies, in words.
TIER_WORDS = {
    "chunk": "whole row groups",
    "page": "whole pages",
    "dict": "dictionary ids",
    "value": "values",
}
_TIER_COLOURS = dict(zip(TIER_WORDS.values(), COLOURS[1:5], strict=True))
SOURCE = "source"

Depths = Sequence[tuple[float, float, int]]


def merged_times(level: int) -> str:
    """How many merges lie behind a file, in words."""
    few = ("not merged before", "merged once before", "merged twice before")
    return few[level] if level < len(few) else f"merged {level:,} times before"


@dataclass(frozen=True)
class Band:
    """Files that are drawn as one: one file, or neighbours of many."""

    bars: tuple[Bar, ...]

    @property
    def start(self) -> float:
        """Where the first of them begins."""
        return min(bar.start for bar in self.bars)

    @property
    def end(self) -> float:
        """Where the last of them ends."""
        return max(bar.end for bar in self.bars)

    @property
    def name(self) -> str:
        """The name of the file; of many the first and the last, or the first two."""
        names = [_base(bar.name) for bar in self.bars]
        if len(names) == 1:
            return names[0]
        first, second, *_, last = (n.removesuffix(".parquet") for n in (*names[:2], names[-1]))
        # From where they begin, their names may be in any order, and then no range.
        shown = f"{first} to {last}" if names == sorted(names) else f"{first}, {second}, …"
        return f"{len(names):,} files: {shown}"

    @property
    def rows(self) -> int:
        """Rows of all of them."""
        return sum(bar.rows for bar in self.bars)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What they are coloured by."""
        return tuple(dict.fromkeys(bar.kind for bar in self.bars))

    @property
    def lanes(self) -> list[int]:
        """A number for each file, the least that is free: files of one number do not overlap."""
        taken: list[tuple[float, int]] = []
        free: list[int] = []
        lanes = []
        for bar in self.bars:
            while taken and taken[0][0] <= bar.start:
                heappush(free, heappop(taken)[1])
            lane = heappop(free) if free else len(taken)
            heappush(taken, (bar.end, lane))
            lanes.append(lane)
        return lanes


def banded(bars: Sequence[Bar]) -> list[Band]:
    """Each file alone; of many, bands of as many each, by where they begin."""
    if len(bars) <= BARS_MAX:
        return [Band((bar,)) for bar in bars]
    ordered = sorted(bars, key=lambda bar: (bar.start, bar.end))
    cuts = [i * len(ordered) // _BANDS for i in range(_BANDS + 1)]
    return [Band(tuple(ordered[cuts[i] : cuts[i + 1]])) for i in range(_BANDS)]


@dataclass(frozen=True)
class Picture:
    """Files before and after a merge, or the parts of one file.

    Attributes:
        title: What is drawn.
        sort_by: The order, whose columns name the values of the keys.
        placed: Where everything lies.
        words: What stands before the number of sources and outputs, and what they are.
    """

    title: str
    sort_by: str
    placed: Placed
    words: tuple[str, str, str] = ("Before", "After", "file")

    @property
    def rows(self) -> float:
        """Length of the axis: rows of the result."""
        return max((bar.end for bar in self._bars()), default=0.0)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Columns of the key."""
        return column_names(self.sort_by)

    def _bars(self) -> tuple[Bar, ...]:
        return (*self.placed.sources, *self.placed.outputs)

    def sides(self) -> list[tuple[str, tuple[Bar, ...], Depths]]:
        """Headings, files and depths of what is before and what is after."""
        placed, (before, after, what) = self.placed, self.words
        parts = (
            (before, placed.sources, placed.source_depth),
            (after, placed.outputs, placed.output_depth),
        )
        return [
            (_heading(name, what, bars, depths), bars, depths)
            for name, bars, depths in parts
            if bars
        ]

    def text(self) -> str:
        """The picture in characters; `""` without files that have keys."""
        if not self.placed.sources or not self.rows:
            return ""
        lines = [
            _depth_line("depth before", self.placed.source_depth, self.rows),
            *_bar_lines(self.placed.sources, self.rows),
            *_bar_lines(self.placed.outputs, self.rows),
            *_key_lines(self.placed.marks, self.rows, self.key_names),
        ]
        return "\n".join(lines)

    def svg(self) -> str:
        """The picture as SVG, without any package."""
        if not self._bars() or not self.rows:
            return ""
        sides = self.sides()
        bands = [banded(bars) for _, bars, _ in sides]
        every = [band for part in bands for band in part]
        labels = [band.name for band in every] + [*self.key_names, _OVERLAP]
        canvas = Canvas(Sides.of(labels, [_rows(band) for band in every]))
        spans: list[tuple[float, float]] = []
        for (heading, bars, depths), part in zip(sides, bands, strict=True):
            canvas.heading(heading)
            kinds = list(dict.fromkeys(bar.kind for bar in bars))
            if len(kinds) > 1:
                title = "Mostly copied as" if kinds[0] in _TIER_COLOURS else "Files"
                canvas.legend([(colour(kind, kinds), kind) for kind in kinds], title)
            top = canvas.y
            if _most(depths) > 1:
                _draw_depths(canvas, depths, self.rows)
            for band in part:
                _draw_band(canvas, band, self.rows, kinds)
            spans.append((top, canvas.y))
            canvas.y += 4
        _draw_keys(canvas, self, spans)
        return canvas.svg(self.title)


_OVERLAP = "files that overlap"


def _most(depths: Depths) -> int:
    return max((depth for start, end, depth in depths if end > start), default=0)


def _heading(name: str, what: str, bars: Sequence[Bar], depths: Depths) -> str:
    kinds = {bar.kind for bar in bars} - {SOURCE}
    most = max((depth for _, _, depth in depths), default=1)
    parts = [f"{len(bars):,} {what}" + ("" if len(bars) == 1 else "s")]
    if len(bars) > 1 and depths:
        parts.append(f"up to {most:,} overlap" if most > 1 else "none overlap")
    if len(kinds) == 1:
        kind = next(iter(kinds))
        parts.append(f"mostly copied as {kind}" if kind in _TIER_COLOURS else kind)
    return f"{name}: {', '.join(parts)}"


def _rows(band: Band) -> str:
    return f"{band.rows:,} row" + ("" if band.rows == 1 else "s")


def _draw_band(canvas: Canvas, band: Band, rows: float, kinds: Sequence[str]) -> None:
    canvas.row(band.name, _rows(band))
    height = ROW_HEIGHT
    if len(band.bars) > 1:
        height = _BAND_HEIGHT
        grey = Part(1, height - 4, 0.15)
        canvas.bar(band.start / rows, band.end / rows, "currentColor", tip=band.name, part=grey)
    lanes = band.lanes
    line = (height - 6) / (max(lanes) + 1)
    for bar, lane in zip(band.bars, lanes, strict=True):
        part = Part(3 + lane * line, line, 1.0)
        tip = f"{bar.name}: {counted(bar.rows, 'row')}, {bar.kind}"
        canvas.bar(bar.start / rows, bar.end / rows, colour(bar.kind, kinds), tip=tip, part=part)
    canvas.y += height


def stepped(depths: Depths, rows: float) -> Depths:
    """The steps as they are; of very many the highest in each of equal places."""
    if len(depths) <= _STEPS_MAX:
        return depths
    most = [0] * _STEPS_MAX
    for start, end, depth in depths:
        if end > start:
            first, last = (int(at / rows * _STEPS_MAX) for at in (start, end))
            for place in range(first, min(max(last, first + 1), _STEPS_MAX)):
                most[place] = max(most[place], depth)
    wide = rows / _STEPS_MAX
    return [(i * wide, (i + 1) * wide, depth) for i, depth in enumerate(most)]


def _draw_depths(canvas: Canvas, depths: Depths, rows: float) -> None:
    """Steps: how many files overlap at each place."""
    most, height = _most(depths), 28.0
    canvas.row(_OVERLAP, f"up to {most:,}")
    scale, base = canvas.sides.bars / rows, canvas.y + height
    path = f"M{canvas.sides.label:.1f} {base:.1f}"
    for start, end, depth in stepped(depths, rows):
        if end > start:
            y = base - depth / most * (height - 3)
            path += f"V{y:.1f}H{canvas.sides.label + end * scale:.1f}"
    canvas.parts.append(f'<path d="{path}V{base:.1f}Z" fill-opacity="0.35"/>')
    canvas.y += height + 6


def _draw_keys(canvas: Canvas, picture: Picture, spans: Sequence[tuple[float, float]]) -> None:
    """The columns of the key below the bars, and their values where files begin and end."""
    names, width = picture.key_names, canvas.sides.bars
    marks = [mark for mark in picture.placed.marks if len(mark.key) == len(names)]
    if not names or not marks:
        return
    places = placed_keys(marks, picture.rows, width)
    for top, bottom in spans:
        for mark, _ in places:
            x = canvas.sides.label + mark.row / picture.rows * width
            canvas.parts.append(
                f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="currentColor" '
                'stroke-opacity="0.3" fill="none"/>'
            )
    for column, name in enumerate(names):
        canvas.row(name, "")
        for i, (mark, left) in enumerate(places):
            value = fitted(human_key(mark.key[column : column + 1]), _key_room(width))
            x = canvas.sides.label + left
            if i and i == len(places) - 1:
                # The last key ends at its line.
                canvas.text(x + _key_width(mark, width), value, anchor="end")
            else:
                canvas.text(x, value)
        canvas.y += ROW_HEIGHT - 2


def _key_room(width: float) -> float:
    return (width - FONT_SIZE) / 2


def _key_width(mark: Mark, width: float) -> float:
    return max(text_width(fitted(human_key((v,)), _key_room(width))) for v in mark.key)


def placed_keys(marks: Sequence[Mark], rows: float, width: float) -> list[tuple[Mark, float]]:
    """Where the texts of keys begin: of the first, the last, and those for which there is room."""

    def wide(mark: Mark) -> float:
        return _key_width(mark, width)

    marks = _picked(marks, rows, _MARKS_MAX)
    first, last = marks[0], marks[-1]
    if len(marks) == 1:
        return [(first, min(first.row / rows * width, width - wide(first)))]
    left = min(first.row / rows * width, width - wide(first) - FONT_SIZE - wide(last))
    free = left + wide(first) + FONT_SIZE
    last_left = max(last.row / rows * width - wide(last), free)
    places = [(first, left)]
    for mark in marks[1:-1]:
        left = mark.row / rows * width - wide(mark) / 2
        if left >= free and left + wide(mark) + FONT_SIZE <= last_left:
            places.append((mark, left))
            free = left + wide(mark) + FONT_SIZE
    return [*places, (last, last_left)]


def _base(name: str) -> str:
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _shortened(text: str, most: int = _KEY_MAX) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _picked(marks: Sequence[Mark], rows: float, most: int) -> list[Mark]:
    """The first and the last mark, and some between that are apart from their neighbours."""
    if len(marks) <= 2:  # noqa: PLR2004 - the first and the last
        return list(marks)
    picked, apart = [marks[0]], rows / most
    for mark in marks[1:-1]:
        if mark.row - picked[-1].row >= apart and marks[-1].row - mark.row >= apart:
            picked.append(mark)
    return [*picked, marks[-1]]


def _cells(band: Band, rows: float) -> range:
    start = min(round(band.start * _COLUMNS / rows), _COLUMNS - 1)
    return range(start, max(round(band.end * _COLUMNS / rows), start + 1))


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
    for band in banded(bars):
        cells = _cells(band, rows)
        marks = ["═" if cell in cells else " " for cell in range(_COLUMNS)]
        marks[cells.start] = "╞"
        marks[cells.stop - 1] = "╡" if len(cells) > 1 else "╪"
        lines.append(f"{''.join(marks)}  {band.name} ({', '.join(band.kinds)})")
    return lines


def _key_lines(marks: Sequence[Mark], rows: float, names: Sequence[str]) -> list[str]:
    """Keys below the bars: the first, the last, and those for which there is room."""
    if not marks:
        return []
    texts = [_shortened(human_key(mark.key)) for mark in marks]
    line, last = texts[0], texts[-1]
    for mark in _picked(marks, rows, _TEXT_MARKS_MAX)[1:-1]:
        at, text = round(mark.row * _COLUMNS / rows), _shortened(human_key(mark.key))
        if at >= len(line) + 2 and at + len(text) + 2 <= _COLUMNS - len(last):
            line = line.ljust(at) + text
    if len(marks) > 1:
        line = line.ljust(_COLUMNS - len(last)) + last
    return [f"{line.ljust(_COLUMNS)}  {', '.join(names)}"]


def colour(kind: str, kinds: Sequence[str]) -> str:
    """The colour of a kind: copy tiers have their own, others take them in turn."""
    if kind in _TIER_COLOURS:
        return _TIER_COLOURS[kind]
    return COLOURS[kinds.index(kind) % len(COLOURS)]
