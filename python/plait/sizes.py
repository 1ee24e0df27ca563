"""Byte sizes: integers, or text with a decimal or binary unit.

The `B` of a unit may be left out. `4G` is 4 GB, as in Kubernetes: only an `i` makes a unit binary.
"""

from __future__ import annotations

import operator
import re
from typing import SupportsIndex

from plait.errors import InvalidArgument

Size = SupportsIndex | str

_UNITS: dict[str, int] = {
    prefix + suffix: factor**power
    for factor, suffixes in ((1000, ("b", "")), (1024, ("ib", "i")))
    for power, prefix in enumerate(["", "k", "m", "g", "t", "p"])
    for suffix in suffixes
    if prefix or suffix in ("b", "")
}
_TEXT = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def parse_size(value: Size, name: str = "size") -> int:
    """Reads a size in bytes.

    Args:
        value: A positive integer, or text such as `"256MB"`, `"4G"`, `"1.5 KB"` (decimal) or
            `"1GiB"` (binary). Units ignore case; `B` alone, or none, means bytes.
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
            hint="give bytes, or a number and a unit: 256MB, 4G, 1.5GB (decimal), 512 MiB (binary)",
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
    number, factor = match[1].replace("_", ""), _UNITS.get(match[2].lower())
    if factor is None:
        return None
    if "." in number:
        # Half a byte is a unit forgotten.
        return int(float(number) * factor) if factor > 1 else None
    return int(number) * factor
