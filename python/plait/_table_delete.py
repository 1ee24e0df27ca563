"""Rows of a table go: whole files where a condition is true of all of their rows.

    footers ─▶ files that may have such rows ─▶ count ─┬─ all    ─▶ removed
                                                       ├─ some   ─▶ the rest in new files
                                                       └─ none   ─▶ stays
Invariant: rows that go and rows that stay are counted, and are all rows of a file.
Cost: the columns of the condition are read of each file that may have such rows; all columns of
those that are rewritten.
Not here: which rows a condition is true of (the engine).
"""

from __future__ import annotations

import secrets
from typing import Any

from plait import _native
from plait._logs.delta import DeltaLog, LiveFile, Snapshot
from plait._read import SortedRead, files_left, read
from plait._run_writer import RunWriter
from plait._table_reports import DeleteReport
from plait.errors import InternalError, InvalidArgument, SourceChanged, SourceNotFound
from plait.table.added import added

__all__ = ["check_condition", "delete_once"]


def check_condition(condition: str, sort_by: str | None) -> None:
    """Refuses a condition on other columns than those of the order.

    Raises:
        InvalidArgument: There is one; names it.
    """
    order = sort_by or ""
    keys = {tuple(names) for names, _, _ in _native.sort_columns(order)}
    for column in _native.condition_columns(condition):
        if tuple(column) not in keys:
            raise InvalidArgument.of(
                "the condition of a delete is on a column that is not sorted by",
                got=f"`{'.'.join(column)}`",
                hint=f"older rows of a key would come back; name columns of `{order}`",
            )


def delete_once(
    log: DeltaLog,
    live: list[LiveFile],
    snapshot: Snapshot,
    condition: str,
    how: dict[str, Any],
) -> DeleteReport | None:
    """Deletes the rows of live files.

    Args:
        log: The log of the table.
        live: The live files.
        snapshot: The table that they are of.
        condition: Which rows go.
        how: The order and the store, as `read` takes them.

    Returns:
        What was deleted; `None` if others replaced one of the files meanwhile.
    """
    files = {log.location(file.name): file for file in live}
    removed: list[str] = []
    add: list[dict[str, Any]] = []
    rewritten: list[str] = []
    rows = 0
    try:
        asked = read(list(files), where=condition, **how) if files else None
        for path in () if asked is None else files_left(asked).files:
            name = files[path].name
            whole = read([path], **how)
            count, there = whole.where(condition).count(), whole.count()
            rows += count
            if count == there:
                removed.append(name)
            elif count:
                rewritten.append(name)
                add += [
                    added(
                        log,
                        output,
                        snapshot.schema,
                        storage_options=how["storage_options"],
                        properties=snapshot.properties,
                        instead_of=[name],
                    )
                    for output in _rest(log, whole, condition, there - count, how)
                ]
    except (SourceNotFound, SourceChanged):
        # A compaction replaced a file, and somebody removed it.
        if {file.name for file in live} == {file.name for file in log.files()}:
            raise
        return None
    if not rows:
        return DeleteReport(log.root, snapshot.version, 0, (), ())
    ended = log.commit(
        {
            "intent": "delete",
            "operation": "DELETE",
            "parameters": {"predicate": condition},
            "metrics": {
                "numRemovedFiles": len(removed) + len(rewritten),
                "numAddedFiles": len(add),
                "numDeletedRows": rows,
            },
            "token": secrets.token_hex(16),
            "add": add,
            "remove": removed + rewritten,
            "adds_data": True,
            "removes_data": True,
        }
    )
    if ended["outcome"] == "conflicted":
        return None
    return DeleteReport(log.root, ended["version"], rows, tuple(removed), tuple(rewritten))


def _rest(
    log: DeltaLog, whole: SortedRead, condition: str, expected: int, how: dict[str, Any]
) -> list[str]:
    """Names of files with the rows of one file that stay."""
    writer = RunWriter(
        log.root,
        sort_by=how["sort_by"] or [],
        if_exists="add",
        storage_options=how["storage_options"],
    )
    with writer:
        writer.write(_native.rest(whole, condition))
        report = writer.flush()
    outputs = () if report is None else report.outputs
    rows = sum(output.rows for output in outputs)
    if rows != expected:
        raise InternalError.of(
            "rows are missing or too many; nothing was committed",
            got=f"{rows} rows instead of {expected}",
        )
    return [log.name_of(output.path) for output in outputs]
