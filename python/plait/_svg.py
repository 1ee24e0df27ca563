"""What pictures are made of: lines of text and bars, whose widths are known before they are drawn.

    ├─ label ─┤├────────── bars ──────────┤├─ note ─┤      one row; label and note are text

Invariants: no text is wider than its place, for `text_width` is what a wide font takes; text has
the colour of the page, bars have colours that show on light and dark.
Not here: what is drawn (`_picture`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from plait._html import escaped

WIDTH = 860
FONT_SIZE = 12
ROW_HEIGHT = 20
_GAP = 12
_LABEL_MAX = 250
_NOTE_MAX = 170
# Middle tones: 3 to 1 or more on white, and on the grounds of dark themes.
COLOURS = ("#4f7fb0", "#2b8f82", "#b8742a", "#8f6cc4", "#c0556a", "#5f8a3a", "#7d7d7d")
# Em of characters in wide fonts (DejaVu Sans, Verdana); others are wider than these.
_NARROW = (
    dict.fromkeys("ijl'", 0.3)
    | dict.fromkeys(" .,:;/\\!|", 0.41)
    | dict.fromkeys("ftr-()[]I", 0.42)
)
_WIDE = dict.fromkeys("mM", 0.98) | dict.fromkeys("W%@", 1.08) | dict.fromkeys("w+<=>~^#OQ&", 0.85)


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """The width of a text at most, in whatever sans-serif font it is shown."""
    return size * sum(map(_em, text))


def _em(letter: str) -> float:
    if letter in _NARROW:
        return _NARROW[letter]
    if letter in _WIDE:
        return _WIDE[letter]
    if letter.isascii():
        return 0.79 if letter.isupper() else 0.65
    return 0.0 if unicodedata.combining(letter) else 1.15


def fitted(text: str, width: float, size: float = FONT_SIZE) -> str:
    """The text, or as much of its begin and its end as there is room for."""
    # Room that was computed from the width of the text is the same but for its last digits.
    if text_width(text, size) <= width + 0.01:
        return text
    room = width - text_width("…", size)
    head, tail = "", ""
    for i in range(len(text)):
        taken = head + text[i], tail
        if text_width("".join(taken), size) > room:
            break
        head = taken[0]
        taken = head, text[-1 - i] + tail
        # The end of a name, such as its number, says as much as its begin.
        if text_width("".join(taken), size) > room:
            break
        tail = taken[1]
    return f"{head}…{tail}"


@dataclass(frozen=True)
class Sides:
    """How wide labels and notes are; what remains is for bars."""

    label: float
    note: float

    @classmethod
    def of(cls, labels: Sequence[str], notes: Sequence[str]) -> Sides:
        """As wide as the widest of them, within limits."""

        def most(texts: Sequence[str], limit: float) -> float:
            return min(max(map(text_width, texts), default=0.0), limit) + _GAP

        return cls(most(labels, _LABEL_MAX), most(notes, _NOTE_MAX))

    @property
    def bars(self) -> float:
        """The width of the bars."""
        return WIDTH - self.label - self.note


@dataclass
class Canvas:
    """A picture that grows downwards; `y` is where its next row begins."""

    sides: Sides
    y: float = 0.0
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, text: str, *, anchor: str = "start", style: str = "") -> None:
        """Writes a text on the base line of the row."""
        if not text:
            return
        self.parts.append(
            f'<text x="{x:.1f}" y="{self.y + FONT_SIZE + 2:.1f}" text-anchor="{anchor}"{style}>'
            f"{escaped(text)}</text>"
        )

    def heading(self, text: str) -> None:
        """Writes a line over all columns."""
        self.y += 4
        # Bold letters are wider.
        self.text(0, fitted(text, WIDTH / 1.15), style=' font-weight="600"')
        self.y += ROW_HEIGHT + 2

    def legend(self, kinds: Sequence[tuple[str, str]], title: str) -> None:
        """Writes colours and what they stand for, in as many lines as that takes."""
        x = 0.0
        for i, (colour, text) in enumerate([("", title), *kinds]):
            wide = text_width(text) + (16 if colour else 0)
            if i and x + wide > WIDTH:
                x = 0.0
                self.y += ROW_HEIGHT
            if colour:
                self.parts.append(
                    f'<path d="M{x:.1f} {self.y + 4:.1f}h11v11h-11z" fill="{colour}"/>'
                )
            self.text(x + (16 if colour else 0), fitted(text, WIDTH - 16), style=' opacity=".8"')
            x += wide + 16
        self.y += ROW_HEIGHT + 2

    def row(self, label: str, note: str) -> None:
        """Writes the label and the note of the row."""
        self.text(0, fitted(label, self.sides.label - _GAP))
        room = self.sides.note - _GAP
        self.text(WIDTH - room, fitted(note, room), style=' opacity=".8"')

    def bar(
        self, start: float, end: float, colour: str, *, tip: str, part: Part | None = None
    ) -> None:
        """Draws a bar; `start` and `end` are shares of the width of the bars."""
        part = part or Part(3, ROW_HEIGHT - 6, 1.0)
        x, least = self.sides.label + start * self.sides.bars, 1.0
        wide = max((end - start) * self.sides.bars, least)
        x = min(x, WIDTH - self.sides.note - least)
        self.parts.append(
            f'<rect x="{x:.1f}" y="{self.y + part.top:.1f}" width="{wide:.1f}" '
            f'height="{part.height:.1f}" fill="{colour}" fill-opacity="{part.opacity:g}"'
            f"><title>{escaped(tip)}</title></rect>"
        )

    def svg(self, title: str) -> str:
        """The picture as it is now."""
        height = self.y + 4
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'width="{WIDTH}" height="{height:.0f}" role="img" aria-label="{escaped(title)}" '
            f'fill="currentColor" font-family="system-ui,sans-serif" font-size="{FONT_SIZE}">'
            f"{''.join(self.parts)}</svg>"
        )


@dataclass(frozen=True)
class Part:
    """Which part of a row a bar takes, and how opaque it is."""

    top: float
    height: float
    opacity: float


@dataclass(frozen=True)
class Quantity:
    """One bar of a chart: its label, its length, what it says, and its colour by number."""

    label: str
    value: float
    note: str
    colour: int = 0


_QUANTITIES_MAX = 24


def chart(title: str, quantities: Sequence[Quantity]) -> str:
    """Bars below each other, from 0; of many the first."""
    shown, more = quantities[:_QUANTITIES_MAX], len(quantities) - _QUANTITIES_MAX
    if not shown:
        return ""
    sides = Sides.of([q.label for q in shown], [q.note for q in shown])
    canvas = Canvas(sides)
    canvas.heading(title)
    most = max(q.value for q in shown) or 1
    for quantity in shown:
        canvas.row(quantity.label, quantity.note)
        tip = f"{quantity.label}: {quantity.note}"
        if quantity.value:
            canvas.bar(0, quantity.value / most, COLOURS[quantity.colour], tip=tip)
        canvas.y += ROW_HEIGHT
    if more > 0:
        canvas.text(0, f"and {more:,} more", style=' opacity=".8"')
        canvas.y += ROW_HEIGHT
    return canvas.svg(title)


_BOX = 300.0


def related(left: tuple[str, str, str], by: str, right: tuple[str, str, str]) -> str:
    """Two tables, and the column by which rows of the left one find rows of the right one.

    Args:
        left: Name, key columns, and what is known about the left table.
        by: The column.
        right: As `left`, of the right table.
    """
    canvas = Canvas(Sides(0, 0), 4)
    pad, top, height = 12.0, canvas.y, 3 * ROW_HEIGHT + 12
    for x, (name, key, note) in ((1.0, left), (WIDTH - _BOX - 1, right)):
        canvas.parts.append(
            f'<path d="M{x:.1f} {top:.1f}h{_BOX:.1f}v{height:.1f}h-{_BOX:.1f}z" fill="none" '
            f'stroke="{COLOURS[0]}" stroke-width="1.5"/>'
        )
        canvas.y = top + 6
        lines = (name, f"key: {key}", note)
        styles = (' font-weight="600"', "", ' opacity=".8"')
        for text, style in zip(lines, styles, strict=True):
            canvas.text(x + pad, fitted(text, (_BOX - 2 * pad) / 1.15), style=style)
            canvas.y += ROW_HEIGHT
    start, end, middle = _BOX + 8, WIDTH - _BOX - 8, top + height / 2
    canvas.parts.append(
        f'<path d="M{start:.1f} {middle:.1f}H{end:.1f}m-7 -5l7 5l-7 5" fill="none" '
        'stroke="currentColor" stroke-opacity="0.6" stroke-width="1.5"/>'
    )
    canvas.y = middle - ROW_HEIGHT - 2
    canvas.text(WIDTH / 2, fitted(by, end - start - 16), anchor="middle")
    canvas.y = top + height + 2
    return canvas.svg(f"{left[0]} joins {right[0]} by {by}")
