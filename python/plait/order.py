"""Sort orders as Python writes them, turned into the one text form the engine reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from plait.errors import InvalidArgument

SortBy = str | Iterable[str | tuple[str, str]]

_DIRECTIONS = {"ascending": "", "asc": "", "descending": "-", "desc": "-"}
_BARE_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def sort_text(sort_by: SortBy | None) -> str | None:
    """Writes a sort order as text.

    Args:
        sort_by: Text (`"name, -ts nulls first"`, `"day, zorder(a, b)"`), a list of such columns, a
            list of PyArrow's `(name, "ascending" | "descending")` pairs, `[]` for the empty order,
            or `None` to take the order from the files.

    Returns:
        The text; `""` for the empty order; `None` when the files decide.

    Raises:
        InvalidArgument: An item is neither text nor such a pair, or the columns are a mapping or a
            set.

    Example:
        >>> sort_text(["name", ("ts", "descending")])
        'name, -ts'
    """
    if sort_by is None or isinstance(sort_by, str):
        return sort_by
    if isinstance(sort_by, Mapping | AbstractSet):
        # Its items are its keys alone, or have no order.
        raise InvalidArgument.of(
            "`sort_by` is not a list of columns",
            got=f"`{sort_by!r}`",
            hint='give pairs, such as [("ts", "descending")], or text such as "name, -ts"',
        )
    if not isinstance(sort_by, Iterable):
        hint = 'give text such as "name, -ts", or a list of columns'
        raise InvalidArgument.of("`sort_by` names no columns", got=f"`{sort_by!r}`", hint=hint)
    columns = list(sort_by)
    if isinstance(sort_by, tuple) and columns[1:] and columns[1] in (*_DIRECTIONS,):
        raise InvalidArgument.of(
            "`sort_by` is one pair, not a list of columns",
            got=f"`{sort_by!r}`",
            hint=f"write [{sort_by!r}] for a column and its direction",
        )
    return ", ".join(_column_text(column) for column in columns)


def _column_text(column: object) -> str:
    if isinstance(column, str) and column.strip():
        return column
    if isinstance(column, tuple | list) and len(column) == len(("name", "direction")):
        name, direction = column
        sign = _DIRECTIONS.get(direction) if isinstance(direction, str) else None
        if isinstance(name, str) and name and sign is not None:
            return sign + _quoted_if_odd(name)
    raise InvalidArgument.of(
        "`sort_by` has a column of an unknown form",
        got=f"`{column!r}`",
        hint='write "ts", "-ts", or ("ts", "descending")',
    )


def _quoted_if_odd(name: str) -> str:
    # A plain dotted name is a path; anything else is one name, kept as it is.
    if _BARE_PATH.fullmatch(name):
        return name
    return '"' + name.replace('"', '""') + '"'
