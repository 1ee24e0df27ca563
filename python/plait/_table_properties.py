"""What of the options of a table its properties keep, and how they are written.

    retention="7d"  ◀──▶  delta.deletedFileRetentionDuration: interval 7 days

Not here: the log, which has the properties (`rust/delta`).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from plait import _native
from plait._checks import _choice, _time_span
from plait._logs.delta import DUPLICATES, ORDER
from plait.errors import InvalidArgument
from plait.order import SortBy, sort_text

__all__ = [
    "OPTIONS",
    "RETENTION",
    "interval_s",
    "is_same_order",
    "order_of_files",
    "properties_of",
    "uuid",
]

RETENTION = "delta.deletedFileRetentionDuration"
_RETENTION_S = 7 * 86_400.0
# A column of an order, or a curve.
_ITEM = re.compile(r"(?:`[^`]*`|\"[^\"]*\"|\([^)]*\)|[^,])+")
# The option that a property keeps.
OPTIONS = {ORDER: "sort_by", DUPLICATES: "on_duplicate", RETENTION: "retention"}


def properties_of(
    sort_by: SortBy | None, on_duplicate: str | None, retention: str | float | None
) -> dict[str, str]:
    """The properties that a table has of the options that are given.

    Raises:
        InvalidArgument: An option is invalid, or is a rule whose functions no property has.
    """
    if on_duplicate == "aggregate":
        raise InvalidArgument.of(
            "a table does not keep the functions of its columns",
            got='on_duplicate="aggregate"',
            hint="keep all rows, and give on_duplicate and aggregate to plait.read",
        )
    made: dict[str, str | None] = {}
    if sort_by is not None:
        made[ORDER] = sort_text(sort_by)
    if on_duplicate is not None:
        made[DUPLICATES] = str(_choice(on_duplicate, "on_duplicate"))
    if retention is not None:
        made[RETENTION] = _interval(_time_span(retention, "retention"))
    return {name: text for name, text in made.items() if text is not None}


def is_same_order(one: str | None, other: str) -> bool:
    """Whether two texts say the same columns in the same directions."""
    if one is None or "(" in one + other:
        return one == other
    return _native.sort_columns(one) == _native.sort_columns(other)


def order_of_files(sort_by: str | None, partition_columns: Sequence[str]) -> str | None:
    """The order of the rows of a file, which does not have partition columns."""
    if sort_by is None or not partition_columns:
        return sort_by
    left_out = [[[column]] for column in partition_columns]
    items = [item.strip() for item in _ITEM.findall(sort_by)]
    return ", ".join(
        item
        for item in items
        if [names for names, _, _ in _native.sort_columns(item)] not in left_out
    )


def _interval(seconds: float) -> str:
    """A span of time as properties of Delta have it."""
    whole = int(seconds)
    for unit, of in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if whole and whole % of == 0:
            return f"interval {whole // of} {unit}"
    return f"interval {whole} seconds"


def interval_s(text: str | None) -> float:
    """Seconds of a span of time of a table."""
    if text is None:
        return _RETENTION_S
    words = text.lower().removeprefix("interval").split()
    units = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
    try:
        pairs = zip(words[::2], words[1::2], strict=True)
        return float(sum(int(count) * units[unit.removesuffix("s")] for count, unit in pairs))
    except (ValueError, KeyError):
        raise InvalidArgument.of(
            "the table's retention cannot be read", got=f"`{text}`", hint="give `retention`"
        ) from None


def uuid() -> str:
    """The id of a new table."""
    digits = secrets.token_hex(16)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
