"""Columns and values in the text form of conditions.

Not here: expressions (`_where`, `_where_arrow`).
"""

from __future__ import annotations

import datetime as dt
import decimal

from plait.errors import Unsupported

_HINT = (
    "comparisons of a column with a value, is_in, is_between, is_null, is_not_null, "
    "starts_with and ~, with & between them, can be written as text"
)


def unsupported(expression: object) -> Unsupported:
    """The error for an expression that cannot be written."""
    return Unsupported.of("`where` cannot be read from files", got=f"`{expression}`", hint=_HINT)


def quoted(*path: str) -> str:
    """The path of a column, every name in double quotes."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in path)


def literal(value: object) -> str | None:
    """A value as text; `None` for one that has no text, null among them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return "NaN" if value != value else repr(value)  # noqa: PLR0124 - what NaN is
    if isinstance(value, int | decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, dt.datetime):
        value = value.isoformat(" ")
    elif isinstance(value, dt.date | dt.time):
        value = value.isoformat()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else None
