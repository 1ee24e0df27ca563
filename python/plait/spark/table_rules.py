"""The order and the rules for rows with one key of the tables among the paths of a read.

Invariants: options of the caller go before those of a table. A rule is never left out: where the
rules of several paths may differ, the caller has to give one.
Not here: which files are live (`plait._tables`); options of reads (`source`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from plait._logs.delta import ORDER, DeltaLog, Snapshot
from plait._rules import Rules
from plait._table_properties import is_keep_all, rules_of
from plait.errors import InvalidArgument, PlaitError, Unsupported
from plait.table._calls import is_delta

__all__ = ["TableRules", "rules_of_tables"]


@dataclass(frozen=True)
class TableRules:
    """Options that the properties of a table name.

    Attributes:
        sort_by: The order; `None` if no table has one.
        rules: What becomes of rows with one key; `None` if no table says so.
    """

    sort_by: str | None = None
    rules: Rules | None = None


def rules_of_tables(
    paths: Sequence[str], settings: Mapping[str, str], *, has_rule: bool
) -> TableRules:
    """The options of the tables among `paths`.

    Args:
        paths: Sources of a read.
        settings: Settings of object stores.
        has_rule: Whether `on_duplicate` is given, so that those of tables do not matter.

    Raises:
        Unsupported: A table has columns that its files lack: tasks know files alone. Or it says
            what this version cannot read.
        InvalidArgument: Several paths have a table that combines rows.
    """
    found = TableRules()
    for path in paths:
        snapshot = _snapshot(path, settings)
        if snapshot is None:
            continue
        if snapshot.partition_columns:
            columns = ", ".join(f"`{column}`" for column in snapshot.partition_columns)
            what = "the table has partition columns, which its files lack"
            hint = "read it by the format delta, or name a folder of one partition"
            raise Unsupported.of(what, got=f"{columns} of `{path}`", hint=hint)
        properties = snapshot.properties
        if len(paths) == 1:
            rules = None if has_rule else rules_of(properties, path, snapshot.schema)
            found = TableRules(properties.get(ORDER), rules)
        elif not has_rule and not is_keep_all(properties):
            what = "a table among several paths has a rule for rows with one key"
            raise InvalidArgument.of(
                what, got=f"`{path}`", hint="give `on_duplicate`, or name one table alone"
            )
    return found


def _snapshot(path: str, settings: Mapping[str, str]) -> Snapshot | None:
    """The table in a folder, if it is one."""
    # What cannot be read is an error when its rows are read.
    with suppress(PlaitError):
        if is_delta(path, settings):
            return DeltaLog(path, settings).snapshot()
    return None
