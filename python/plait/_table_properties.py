"""What of the options of a table its properties keep, and how they are written.

    retention="7d"          ◀──▶  delta.deletedFileRetentionDuration: interval 7 days
    aggregate={"n": "sum"}  ◀──▶  plait.duplicate_rules: {"aggregate": {"n": "sum"}}

Invariant: a rule for rows with one key that this version cannot read is refused by its name.
Not here: the log, which has the properties (`rust/delta`).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plait import _native
from plait._checks import _time_span
from plait._logs.delta import DUPLICATES, ORDER, RULES
from plait._rules import OF_COLUMNS, Rules, path_of
from plait.errors import InvalidArgument, PlaitError, Unsupported
from plait.order import SortBy, sort_text

__all__ = [
    "RETENTION",
    "differences",
    "interval_s",
    "is_keep_all",
    "is_same_order",
    "order_of_files",
    "properties_of",
    "rules_of",
    "uuid",
]

RETENTION = "delta.deletedFileRetentionDuration"
_RETENTION_S = 7 * 86_400.0
# A column of an order, or a curve.
_ITEM = re.compile(r"(?:`[^`]*`|\"[^\"]*\"|\([^)]*\)|[^,])+")
# The option that a property keeps.
_OPTIONS = {ORDER: "sort_by", DUPLICATES: "on_duplicate", RETENTION: "retention"}


def properties_of(
    sort_by: SortBy | None, rules: Rules, retention: str | float | None
) -> dict[str, str]:
    """The properties that a table has of the options that are given.

    Raises:
        InvalidArgument: An option is invalid.
    """
    made: dict[str, str | None] = {}
    if sort_by is not None:
        made[ORDER] = sort_text(sort_by)
    if rules.on_duplicate is not None:
        made[DUPLICATES] = rules.on_duplicate
    if rules.of_columns:
        # Options of a rule mean nothing without it.
        rules.check()
        made[RULES] = rules.text()
    if retention is not None:
        made[RETENTION] = _interval(_time_span(retention, "retention"))
    return {name: text for name, text in made.items() if text is not None}


def rules_of(
    properties: Mapping[str, str], table: str, schema: Mapping[str, Any] | None = None
) -> Rules:
    """What becomes of rows with one key, as properties say.

    Args:
        properties: Properties of the table.
        table: Its name.
        schema: Its schema, as the log has it, if there is one.

    Raises:
        Unsupported: They say what this version cannot read, or name a column that is not there.
    """
    text = properties.get(RULES)
    try:
        options = {} if text is None else json.loads(text)
        if not isinstance(options, dict):
            raise _unread(table, RULES, text, "it is no JSON object")
        unknown = sorted(set(options) - set(OF_COLUMNS))
        if unknown:
            raise _unread(table, RULES, text, f"`{unknown[0]}` is not known")
        rules = Rules.of(properties.get(DUPLICATES), options)
        rules.check()
    except Unsupported:
        raise
    except (PlaitError, ValueError) as cause:
        name = DUPLICATES if text is None else RULES
        what = cause.what or str(cause) if isinstance(cause, PlaitError) else "it is no JSON"
        got = f": {cause.got}" if isinstance(cause, PlaitError) and cause.got else ""
        raise _unread(table, name, properties.get(name), f"{what}{got}") from None
    columns = [] if schema is None else [field["name"] for field in schema["fields"]]
    for name in rules.names() if schema is not None else ():
        path = path_of(name)
        if path is None or path[0] not in columns:
            raise _unread(table, RULES, text, f"the table has no column `{name}`")
    return rules


def _unread(table: str, name: str, text: str | None, why: str) -> Unsupported:
    error = Unsupported.of(
        f"the table `{table}` has a rule for rows with one key that this version cannot use: {why}",
        got=f"`{name}` is `{text}`",
        hint='use a newer version of Plait; on_duplicate="keep_all" of plait.read gives all rows',
    )
    error.path = table
    return error


def is_keep_all(properties: Mapping[str, str]) -> bool:
    """Whether a table keeps all rows of a key."""
    return properties.get(DUPLICATES, "keep_all") == "keep_all"


def differences(
    given: Mapping[str, str], said: Mapping[str, str], table: str
) -> Iterator[tuple[str, InvalidArgument]]:
    """The properties that are given and that a table does not have, each with its error.

    Args:
        given: What is given, as properties.
        said: Properties of the table.
        table: Its name.

    Raises:
        Unsupported: See `rules_of`.
    """
    pairs = [(name, option, given.get(name), said.get(name)) for name, option in _OPTIONS.items()]
    if RULES in given:
        known = rules_of(said, table).of_columns
        pairs += [
            (RULES, option, _told(value), _told(known.get(option)))
            for option, value in rules_of(given, table).of_columns.items()
        ]
    for name, option, asked, has in pairs:
        if asked is None or asked == has or (name == ORDER and is_same_order(has, asked)):
            continue
        if name == DUPLICATES and has is None and asked == "keep_all":
            continue
        error = InvalidArgument.of(
            f"`{option}` is not that of the table",
            got=f"`{asked}`, the table has {'none' if has is None else f'`{has}`'}",
            hint=f"leave `{option}` out",
        )
        yield name, error


def _told(value: object) -> str | None:
    """An option of columns as text."""
    is_said = value is None or isinstance(value, str)
    return value if is_said else json.dumps(value, ensure_ascii=False)  # type: ignore[return-value]


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
