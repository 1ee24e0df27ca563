"""Colour where the terminal wants it, by the customs of no-color.org and force-color.org."""

from __future__ import annotations

import os
from typing import TextIO

RED, GREEN, CYAN, BOLD = "31;1", "32", "36", "1"


def wants_colour(stream: TextIO) -> bool:
    """Whether colour is shown: `NO_COLOR` first, then what forces it, then the terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE") or "0"
    if forced != "0":
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Text in a colour, or as it is."""
    return f"\x1b[{colour}m{text}\x1b[0m" if text and wants_colour(stream) else text
