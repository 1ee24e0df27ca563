"""Where files lie in a picture of a merge: by rows of the result, in key order.

    keys      a      d   e        k          first and last keys of files, and those of cuts
    cells    │a│ gap │d│g│e│ gap │k│         a key, what is between two keys, a key, ...
    rows     0 1    40  41  60    99         of the result; a cell is as wide as it has rows

Invariants: outputs are as wide as they have rows, and share no row; a file begins and ends with the
cells of its first and last key, so files that share a key overlap.
Not here: drawing (`_picture`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from plait._text import Value

__all__ = ["Bar", "Mark", "Placed", "Span", "distances", "laid_out"]


@dataclass(frozen=True)
class Span:
    """A file to be placed.

    Attributes:
        name: What it is called.
        kind: What it is coloured by.
        first: Its first cell.
        last: Its last cell.
        rows: Its rows.
        parts: Of a source, its rows in each output; `None` where these are not known.
    """

    name: str
    kind: str
    first: int
    last: int
    rows: int
    parts: Mapping[int, float] | None = None


@dataclass(frozen=True)
class Bar:
    """A file in the picture: from which row of the result to which, and how many rows it has."""

    name: str
    kind: str
    start: float
    end: float
    rows: int


@dataclass(frozen=True)
class Mark:
    """A key in the picture: the rows of the result in front of it, and its columns."""

    row: float
    key: tuple[Value, ...]


@dataclass(frozen=True)
class Placed:
    """Bars, marks, and how many sources and outputs share each cell: start, end, depth."""

    sources: tuple[Bar, ...]
    outputs: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    source_depth: tuple[tuple[float, float, int], ...]
    output_depth: tuple[tuple[float, float, int], ...]


def cell_of(key: int) -> int:
    """The cell of a key by its place; the cell before it is what lies between it and the last."""
    return 2 * key + 1


def distances(keys: Sequence[bytes]) -> list[float]:
    """How far each key is from the one before, by the bytes behind what all begin with."""
    common = 0
    if keys:
        ends = zip(min(keys), max(keys), strict=False)
        common = next((i for i, (a, b) in enumerate(ends) if a != b), min(map(len, keys)))
    values = [int.from_bytes(key[common : common + 8].ljust(8, b"\0"), "big") for key in keys]
    return [0.0, *(max(b - a, 1) / 2**64 for a, b in pairwise(values))]


def laid_out(
    keys: Sequence[tuple[Value, ...]],
    gaps: Sequence[float] | None,
    sources: Sequence[Span],
    outputs: Sequence[Span],
) -> Placed:
    """Places files over the rows of the result.

    Args:
        keys: The keys by column, in order; `()` for one that gets no mark.
        gaps: How far each key is from the one before, if that is known.
        sources: Files before; a source covers the cells from its first to its last.
        outputs: Files after, which share no cell.
    """
    if not keys:
        return _in_a_row(outputs)
    count = 2 * len(keys) + 1
    far = [1.0] * count
    for i in range(len(keys)):
        far[cell_of(i)] = 0.0
        if gaps is not None:
            far[cell_of(i) - 1] = gaps[i]
    owners: list[int | None] = [None] * count
    for number, output in enumerate(outputs):
        for cell in range(output.first, output.last + 1):
            owners[cell] = number
    starts = [0.0, *accumulate(_widths(far, owners, sources, outputs))]

    def bar(span: Span) -> Bar:
        return Bar(span.name, span.kind, starts[span.first], starts[span.last + 1], span.rows)

    marks = [Mark(starts[cell_of(i)], key) for i, key in enumerate(keys) if key]
    return Placed(
        tuple(bar(source) for source in sources),
        tuple(bar(output) for output in outputs),
        tuple(marks),
        _depths(sources, starts),
        _depths(outputs, starts),
    )


def _in_a_row(outputs: Sequence[Span]) -> Placed:
    """Outputs of which nothing is known but their rows."""
    places = list(pairwise([0.0, *accumulate(float(output.rows) for output in outputs)]))
    bars = [
        Bar(output.name, output.kind, *place, output.rows)
        for output, place in zip(outputs, places, strict=True)
    ]
    return Placed((), tuple(bars), (), (), tuple((*place, 1) for place in places))


def _widths(
    far: Sequence[float],
    owners: Sequence[int | None],
    sources: Sequence[Span],
    outputs: Sequence[Span],
) -> list[float]:
    """Rows of the result in each cell; `owners` are the outputs that have them."""
    widths = [0.0] * len(far)
    for source in sources:
        cells = range(source.first, source.last + 1)
        ends = {source.first, source.last}
        if source.parts is None:
            _spread(widths, cells, far, source.rows, ends)
            continue
        for number, rows in source.parts.items():
            output = outputs[number]
            within = range(max(cells.start, output.first), min(cells.stop, output.last + 1))
            _spread(widths, within, far, rows, ends)
    if not outputs:
        return widths
    for output in outputs:
        cells_of = range(output.first, output.last + 1)
        found = sum(widths[cell] for cell in cells_of)
        for cell in cells_of:
            share = widths[cell] / found if found else 1 / len(cells_of)
            widths[cell] = output.rows * share
    # What no output has was not merged.
    return [0.0 if owners[cell] is None else width for cell, width in enumerate(widths)]


def _spread(
    widths: list[float], cells: Sequence[int], far: Sequence[float], rows: float, ends: set[int]
) -> None:
    """Adds rows to cells: one to each key that a file ends with, the others by distance."""
    total = sum(far[cell] for cell in cells)
    at_ends = [cell for cell in cells if cell in ends]
    share = 1.0 if total and rows > len(at_ends) else rows / max(len(at_ends), 1)
    for cell in at_ends:
        widths[cell] += share
    rest = rows - share * len(at_ends)
    for cell in cells:
        if total and rest > 0:
            widths[cell] += rest * far[cell] / total


def _depths(spans: Sequence[Span], starts: Sequence[float]) -> tuple[tuple[float, float, int], ...]:
    changes = [0] * len(starts)
    for span in spans:
        changes[span.first] += 1
        changes[span.last + 1] -= 1
    depths = list(accumulate(changes))[:-1]
    return tuple((starts[i], starts[i + 1], depth) for i, depth in enumerate(depths))
