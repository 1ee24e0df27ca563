"""Delta tables with mapped columns: merged by the names in files, reported by those of the table.

sort_by="day, -k" ──▶ "col-1a, -col-2b" ──▶ plan, merge ──▶ group.sort_by, messages: "day, -k"

Invariant: merged files have the columns of the table by their names and their field ids.
Not here: what names mean (`rust/delta`), partitions and statistics (the log).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from plait import _native
from plait._logs.delta import DeltaLog, LiveFile, Snapshot
from plait.order import sort_text
from plait.table.groups import Compaction, Group

__all__ = ["by_names_of_files", "by_names_of_table", "check_files"]


def by_names_of_files(compaction: Compaction, snapshot: Snapshot) -> Compaction:
    """A compaction by the order of files.

    Raises:
        UnknownColumn: The table has no such sort column.
    """
    order = sort_text(compaction.options.sort_by)
    if not (snapshot.names.is_mapped and order):
        return compaction
    order = _native.delta_stored_order(snapshot.schema_text, order)
    return replace(compaction, options=replace(compaction.options, sort_by=order))


def by_names_of_table(
    groups: tuple[Group, ...], compaction: Compaction, snapshot: Snapshot
) -> tuple[Group, ...]:
    """Groups with their order as callers know it; why files are left alone, in the same words."""
    if not snapshot.names.is_mapped:
        return groups
    for path, why in compaction.left.items():
        compaction.left[path] = snapshot.names.shown(why)
    schema = snapshot.schema_text
    return tuple(replace(g, sort_by=_native.delta_shown_order(schema, g.sort_by)) for g in groups)


def check_files(
    log: DeltaLog,
    files: Iterable[LiveFile],
    snapshot: Snapshot,
    compaction: Compaction,
    fitting: set[str],
) -> None:
    """Looks whether files have the columns of the table; those that do not are left alone.

    Args:
        log: The log.
        files: The files.
        snapshot: The table.
        compaction: The compaction.
        fitting: Names of files that were looked at before.
    """
    if not snapshot.names.is_mapped:
        return
    names = [file.name for file in files if file.name not in fitting]
    unfit = log.check_columns(names).unfit
    compaction.left.update({log.location(name): why for name, why in unfit.items()})
    fitting.update(name for name in names if name not in unfit)
