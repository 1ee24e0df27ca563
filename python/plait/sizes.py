"""Byte sizes: integers, or text with a decimal or binary unit."""

from __future__ import annotations

import operator
import re
from typing import SupportsIndex

from plait.errors import InvalidArgument

Size = SupportsIndex | str

_UNITS: dict[str, int] = {
    prefix + suffix: factor**power
    for factor, suffix in ((1000, "b"), (1024, "ib"))
    for power, prefix in enumerate(["", "k", "m", "g", "t", "p"])
    if prefix or suffix == "b"
}
_TEXT = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def parse_size(value: Size, name: str = "size") -> int:
    """Reads a size in bytes.

    Args:
        value: A positive integer, or text such as `"256MB"` (decimal), `"1GiB"` (binary),
            `"1.5 KB"`. Units ignore case; `B` alone, or none, means bytes.
        name: The option, for the message.

    Returns:
        The number of bytes, at least 1.

    Raises:
        InvalidArgument: The value is none of these.

    Example:
        >>> parse_size("256MB"), parse_size("1GiB"), parse_size(4096)
        (256000000, 1073741824, 4096)
    """
    size_bytes = _parse_text(value) if isinstance(value, str) else _parse_integer(value)
    if size_bytes is None or size_bytes < 1:
        raise InvalidArgument.of(
            f"`{name}` is not a size",
            got=f"`{value}`",
            hint='give a positive number of bytes, or text such as "256MB" or "1GiB"',
        )
    return size_bytes


def _parse_integer(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    return operator.index(value)


def _parse_text(text: str) -> int | None:
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    number, unit = match[1].replace("_", ""), match[2].lower() or "b"
    if unit not in _UNITS:
        return None
    factor = _UNITS[unit]
    if "." in number:
        return int(float(number) * factor)
    return int(number) * factor
