"""Text that fits in a line of a terminal: its width there, and an ellipsis in its middle.

Characters of East Asia take two columns, combining ones none. What a terminal would not print, such
as a line feed in the name of a column, is written as Python writes it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# No column of a table gets narrower, unless it is.
_COLUMN_MIN = 6
_GAP = 2
_ELLIPSIS = "…"


def printable(text: str) -> str:
    r"""The text with escapes for what a terminal does not print.

    Example:
        >>> print(printable("a\nb\x1b[2J"))
        a\nb\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width(text: str) -> int:
    """Columns of the text on a terminal.

    Example:
        >>> width("host"), width("東京")
        (4, 4)
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def shortened(text: str, columns: int) -> str:
    """The text, or its begin and end with an ellipsis between them, in so many columns.

    Example:
        >>> shortened("service.name", 9)
        'serv…name'
    """
    if width(text) <= columns:
        return text
    room = max(columns - 1, 0)
    head = _head(text, room - room // 2)
    tail = _head(text[::-1], room // 2)[::-1]
    return f"{head}{_ELLIPSIS}{tail}"


def padded(text: str, columns: int, *, right: bool) -> str:
    """The text in so many columns, at their left or right end."""
    space = " " * (columns - width(text))
    return space + text if right else text + space


def fitted(natural: Sequence[int], least: Sequence[int], columns: int) -> list[int]:
    """Widths of the columns of a table that fits: the widest are made narrower.

    Args:
        natural: Widths that they would have.
        least: Widths that they must have.
        columns: Width of the table, with gaps between its columns.
    """
    widths = list(natural)
    floors = [min(n, max(low, _COLUMN_MIN)) for n, low in zip(natural, least, strict=True)]
    while sum(widths) + _GAP * (len(widths) - 1) > columns:
        spare = [i for i, at_least in enumerate(floors) if widths[i] > at_least]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _head(text: str, columns: int) -> str:
    used = 0
    for i, character in enumerate(text):
        used += _columns(character)
        if used > columns:
            return text[:i]
    return text


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
