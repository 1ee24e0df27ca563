"""How reports look to people: sizes, aligned tables, and the same tables as HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plait import _html
from plait._fit import fitted, padded, printable, shortened, width

Cell = str | int | None
# A value as reports have it: numbers and booleans as such, all others as people read them.
Value = bool | int | float | str | None
_STEP = 1000
_UNITS = ("B", "kB", "MB", "GB", "TB")
_COLUMN = re.compile(r'(?:"(?:[^"]|"")*"|[^,"])+')
_CURVE = re.compile(
    r'((?:"(?:[^"]|"")*"|[^"])*?)(?<![^\s,])-?(?:zorder|hilbert)\((.*)\)\s*',
    re.IGNORECASE | re.DOTALL,
)
_NULLS = re.compile(r"\s+nulls\s+(first|last)\s*$", re.IGNORECASE)


def counted(count: int, what: str) -> str:
    """Writes a number of things.

    Example:
        >>> counted(1, "row"), counted(1200, "row"), counted(2, "batch")
        ('1 row', '1,200 rows', '2 batches')
    """
    plural = "" if count == 1 else "es" if what.endswith(("ch", "x")) else "s"
    return f"{count:,} {what}{plural}"


def human_bytes(size_bytes: float) -> str:
    """Writes a size with a decimal unit and three digits.

    Example:
        >>> human_bytes(999), human_bytes(12_345_678)
        ('999 B', '12.3 MB')
    """
    power = 0
    while abs(size_bytes) >= _STEP - 0.5 and power < len(_UNITS) - 1:
        size_bytes /= _STEP
        power += 1
    digits = f"{size_bytes:.3g}" if abs(size_bytes) < _STEP else f"{size_bytes:,.0f}"
    return f"{digits} {_UNITS[power]}"


def human_value(value: Value) -> str:
    """Writes a value of a report.

    Example:
        >>> human_value(True), human_value(1200), human_value(2.0), human_value(None)
        ('true', '1200', '2', 'null')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return "null" if value is None else str(value).lower()


def human_key(values: Sequence[Value]) -> str:
    """Writes the columns of a key; a null key column is `null`."""
    return ", ".join(map(human_value, values))


def column_names(text: str) -> tuple[str, ...]:
    """The columns of an order as people call them, without quotes.

    Example:
        >>> column_names('name, -"at, UTC" nulls first')
        ('name', 'at, UTC (descending)')
        >>> column_names("day, zorder(a, b nulls first)")
        ('day', 'a', 'b')
    """
    curve = _CURVE.fullmatch(text)
    text = text if curve is None else curve[1] + curve[2]
    names = []
    for column in _COLUMN.findall(text):
        name = _NULLS.sub("", column).strip()
        descends = name.startswith("-")
        name = name.removeprefix("-").strip()
        name = re.sub(r'"((?:[^"]|"")*)"', lambda m: m[1].replace('""', '"'), name)
        names.append(f"{name} (descending)" if descends else name)
    return tuple(names)


@dataclass(frozen=True)
class Table:
    """A titled table; whole numbers are aligned to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def text(self, columns: int | None = None) -> str:
        """The table with aligned columns.

        Args:
            columns: Its width at most: long cells of text are shortened.
        """
        rows = (tuple(printable(_cell_text(cell)) for cell in row) for row in self.rows)
        lines = [self.columns, *rows]
        right = self._right()
        widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
        if columns is not None:
            # Numbers and titles stay whole.
            titles = map(width, self.columns)
            least = [
                n if is_right else t for n, t, is_right in zip(widths, titles, right, strict=True)
            ]
            widths = fitted(widths, least, columns)
        return "\n".join(
            "  ".join(
                padded(shortened(cell, room), room, right=is_right)
                for cell, room, is_right in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        )

    def without_empty(self) -> Table:
        """The table without columns that have nothing in any row."""
        kept = [
            i for i in range(len(self.columns)) if any(r[i] not in (None, "") for r in self.rows)
        ]
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return Table(tuple(self.columns[i] for i in kept), rows)

    def html(self) -> str:
        """The table as HTML, every cell escaped."""
        cells = [list(map(_cell_text, row)) for row in self.rows]
        return _html.table(self.columns, cells, self._right())

    def _right(self) -> list[bool]:
        return [
            bool(self.rows) and all(isinstance(row[i], int) for row in self.rows)
            for i in range(len(self.columns))
        ]


class Advice(str):
    """A remark that names options, as Python does: `yes=True`; what is before them is plain."""

    __slots__ = ("before",)

    before: str

    def __new__(cls, text: str, before: str = "") -> Advice:  # noqa: PYI034 - Python 3.10 has no Self
        """The advice `text` after other text."""
        made = super().__new__(cls, before + text)
        made.before = before
        return made

    def said(self, say: Callable[[str], str]) -> str:
        """The remark with the advice in the words of the door."""
        return self.before + say(self.removeprefix(self.before))


@dataclass(frozen=True)
class Page:
    """What every report is made of: a sentence, a drawing as text and SVG, tables, remarks.

    With `columns`, no line of the text is longer; in HTML tables scroll and lines wrap.
    """

    title: str
    tables: tuple[Table, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    drawing: str = ""
    svg: str = ""
    columns: int | None = None

    def text(self, say: Callable[[str], str] = str) -> str:
        """The page as aligned text.

        Args:
            say: Writes what names options in the words of the door.
        """
        parts = [
            self._line(self.title),
            self.drawing,
            *(table.text(self.columns) for table in self.tables),
            Table(("", ""), self.facts).text(self.columns).removeprefix("\n") if self.facts else "",
            "\n".join(
                r.said(say) if isinstance(r, Advice) else self._lines(r) for r in self.remarks
            ),
        ]
        return "\n\n".join(part for part in parts if part)

    def _line(self, text: str) -> str:
        return text if self.columns is None else shortened(printable(text), self.columns)

    def _lines(self, text: str) -> str:
        return "\n".join(map(self._line, text.split("\n")))

    def html(self) -> str:
        """The page as HTML, everything escaped."""
        parts = [_html.picture(self.svg), *(table.html() for table in self.tables)]
        if self.facts:
            parts.append(_html.facts(self.facts))
        return _html.page(self.title, [*parts, *map(_html.remark, self.remarks)])


def _cell_text(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else cell
