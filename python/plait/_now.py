"""Times in conditions that count from now: `ts < now() - 7d` becomes `ts < '2024-05-01 12:00:00Z'`.

Invariants: a call looks at the clock once, so that all its conditions, and all tasks of its plan,
mean the same moment. What stands in quotes stays as it is.
Not here: what a time is in the type of a column (`plait_core::key`).
"""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from typing import TypeVar

from plait.errors import InvalidArgument

__all__ = ["at_moment", "moment"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
# Text in quotes, or `now()` with spans behind it.
_SPAN = r"\s*[+-]\s*\d+\s*[smhdw](?![\w.])"
_FOUND = re.compile(
    rf"""'(?:[^']|'')*' | "(?:[^"]|"")*" | (?<![\w.])now\s*\(\s*\)(?P<spans>(?:{_SPAN})*)""",
    re.IGNORECASE | re.VERBOSE,
)
# What follows a time in a condition.
_END = re.compile(r"\s*($|[,)]|AND\b)", re.IGNORECASE)
_HINT = "write now(), now() - 7d or now() - 1d - 12h, in s, m, h, d or w"

T = TypeVar("T")


def moment() -> float:
    """The time in whole seconds since 1970: columns may have no finer unit."""
    return float(int(time.time()))


def at_moment(text: T, now: float | None = None) -> T:
    """A condition without `now()`; what is no text stays as it is.

    Args:
        text: The condition.
        now: The moment, as `moment` gives it; by default that of the call.

    Raises:
        InvalidArgument: What is behind `now()` is no span, or leads out of the calendar.

    Example:
        >>> at_moment("ts < now() - 1d AND s = 'now()'", 86_400.0)
        "ts < '1970-01-01 00:00:00Z' AND s = 'now()'"
    """
    if not isinstance(text, str):
        return text
    at = now

    def replaced(found: re.Match[str]) -> str:
        nonlocal at
        spans = found["spans"]
        if spans is None:
            return found[0]
        at = moment() if at is None else at
        if not _END.match(text, found.end()):
            what = "what is behind now() is no span of time"
            raise InvalidArgument.of(what, got=f"`{text}`", hint=_HINT)
        seconds = 0
        for sign, count, unit in re.findall(r"([+-])\s*(\d+)\s*([a-zA-Z])", spans):
            seconds += int(sign + count) * _SECONDS[unit.lower()]
        try:
            then = datetime.fromtimestamp(at, timezone.utc) + timedelta(seconds=seconds)
        except OverflowError:
            what = "a time that counts from now is outside of the calendar"
            raise InvalidArgument.of(what, got=f"`{text}`", hint=_HINT) from None
        return f"'{then:%Y-%m-%d %H:%M:%S}Z'"

    return _FOUND.sub(replaced, text)  # type: ignore[return-value]
