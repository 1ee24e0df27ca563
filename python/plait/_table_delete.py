"""Rows of a table go: whole files where a condition is true of all of their rows.

    log, footers ─▶ files that may have such rows ─▶ count ─┬─ all    ─▶ removed
         │                                                  ├─ some   ─▶ the rest in new files
         │                                                  └─ none   ─▶ stays
         └─▶ on partition columns alone ────────────────────▶ removed, without a look at rows

Invariants: rows that go and rows that stay are counted, and are all rows of a file. What stays is
as new as it was, of the same level, and in its partition.
Cost: the columns of the condition are read of each file that may have such rows; all columns of
those that are rewritten.
Not here: which rows a condition is true of (the engine).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plait import _native
from plait._logs.columns import LogColumns
from plait._logs.delta import DeltaLog, LiveFile, NewFile, Snapshot
from plait._logs.pruning import Left
from plait._native_call import _call
from plait._read import SortedRead, files_left, read_live
from plait._run_writer import RunWriter
from plait._table_reports import DeleteReport
from plait.errors import (
    InternalError,
    InvalidArgument,
    SourceChanged,
    SourceNotFound,
    UnknownColumn,
)

__all__ = ["Deleting", "check_condition", "delete_once", "suffices"]


@dataclass(frozen=True)
class Deleting:
    """Which rows go, of files that are read so.

    Attributes:
        condition: True of the rows that go.
        sort_by: The order of the files.
        columns: What the log says of their columns.
        storage_options: Settings of object stores.
    """

    condition: str
    sort_by: str | None
    columns: LogColumns
    storage_options: Any

    def read(self, files: Sequence[str], where: str | None = None) -> SortedRead:
        """All rows of files, or some."""
        return read_live(
            files,
            self.columns.of(files),
            where=where,
            sort_by=self.sort_by,
            missing_keys="null",
            storage_options=self.storage_options,
        )

    @property
    def takes_whole_files(self) -> bool:
        """Whether all rows of a file go, or none, whatever they are."""
        names = [[name] for name in self.columns.names]
        return all(column in names for column in _native.condition_columns(self.condition))


@dataclass
class _Found:
    """What goes, and what comes instead."""

    removed: list[LiveFile]
    rewritten: list[LiveFile]
    add: list[dict[str, Any]]
    rows: int


def check_condition(condition: str, sort_by: str | None, partition_columns: Sequence[str]) -> None:
    """Refuses a condition on other columns than those of the order and of partitions.

    Raises:
        InvalidArgument: There is one; names it.
    """
    order = sort_by or ""
    keys = {tuple(names) for names, _, _ in _native.sort_columns(order)}
    keys |= {(column,) for column in partition_columns}
    for column in _native.condition_columns(condition):
        if tuple(column) not in keys:
            raise InvalidArgument.of(
                "the condition of a delete is on a column that is not sorted by",
                got=f"`{'.'.join(column)}`",
                hint="older rows of a key would come back; name columns of "
                + ", ".join(f"`{text}`" for text in (order, *partition_columns) if text),
            )


def suffices(log: DeltaLog, left: Left, how: Deleting) -> bool:
    """Whether files that are left of a table say of the condition what all would."""
    if left.expected is None:
        return True
    try:
        read = how.read([log.location(file.name) for file in left.files], how.condition)
    except (SourceNotFound, SourceChanged, UnknownColumn):
        return False
    # Types alone: a delete needs no other columns.
    return left.expected.are_in(read.schema, [])


def delete_once(
    log: DeltaLog, live: list[LiveFile], snapshot: Snapshot, how: Deleting
) -> DeleteReport | None:
    """Deletes the rows of live files.

    Args:
        log: The log of the table.
        live: The live files.
        snapshot: The table that they are of.
        how: Which rows go, and how files are read.

    Returns:
        What was deleted; `None` if others replaced one of the files meanwhile.
    """
    files = {log.location(file.name): file for file in live}
    found = _Found([], [], [], 0)
    try:
        asked = how.read(list(files), how.condition) if files else None
        for path in () if asked is None else files_left(asked).files:
            _look(log, files[path], snapshot, how, found)
    except (SourceNotFound, SourceChanged):
        # A compaction replaced a file, and somebody removed it.
        if {file.id for file in live} <= {file.id for file in log.files(deleted="list")}:
            raise
        return None
    if not found.removed and not found.rewritten:
        return DeleteReport(log.root, snapshot.version, 0, (), ())
    ended = log.commit(
        {
            "intent": "delete",
            "operation": "DELETE",
            "parameters": {"predicate": how.condition},
            "metrics": {
                "numRemovedFiles": len(found.removed) + len(found.rewritten),
                "numAddedFiles": len(found.add),
                "numDeletedRows": found.rows,
            },
            "token": secrets.token_hex(16),
            "add": found.add,
            "remove": [file.id for file in found.removed + found.rewritten],
            "adds_data": True,
            "removes_data": True,
        }
    )
    if ended["outcome"] == "conflicted":
        return None
    removed = tuple(file.name for file in found.removed)
    rewritten = tuple(file.name for file in found.rewritten)
    return DeleteReport(log.root, ended["version"], found.rows, removed, rewritten)


def _look(log: DeltaLog, file: LiveFile, snapshot: Snapshot, how: Deleting, found: _Found) -> None:
    """Finds out what goes of one file."""
    path = log.location(file.name)
    if how.takes_whole_files:
        found.rows += how.read([path]).count() if file.rows is None else file.rows
        found.removed.append(file)
        return
    whole = how.read([path])
    count, there = whole.where(how.condition).count(), whole.count()
    found.rows += count
    if count == there:
        found.removed.append(file)
    elif count:
        found.rewritten.append(file)
        names = _rest(log, path, whole, there - count, how)
        new = [NewFile(name, snapshot.partition_of(file), [file.id]) for name in names]
        found.add += log.added(new, snapshot.schema_text, properties=snapshot.properties)


class _Rewriter(RunWriter):
    """Writes rows of a file that was compacted before: they are not new to the next compaction."""

    def __init__(self, merge_level: int, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        self._merge_level = merge_level
        super().__init__(*arguments, **options)


def _merge_level(path: str, storage_options: Any) -> int:  # noqa: ANN401 - settings or a store
    options = {"file": path, "pages": False, "sort_by": None, "check_order": False}
    metadata = _call(_native.inspect, options, storage_options, None)["metadata"]
    return int(metadata.get("plait.merge_level", 0))


def _rest(log: DeltaLog, path: str, whole: SortedRead, expected: int, how: Deleting) -> list[str]:
    """Names of files with the rows of one file that stay."""
    writer = _Rewriter(
        _merge_level(path, how.storage_options),
        log.root,
        sort_by=how.sort_by or [],
        partition_by=how.columns.names,
        if_exists="add",
        storage_options=how.storage_options,
    )
    with writer:
        writer.write(_native.rest(whole, how.condition))
        report = writer.flush()
    outputs = () if report is None else report.outputs
    rows = sum(output.rows for output in outputs)
    if rows != expected:
        raise InternalError.of(
            "rows are missing or too many; nothing was committed",
            got=f"{rows} rows instead of {expected}",
        )
    return [log.name_of(output.path) for output in outputs]
