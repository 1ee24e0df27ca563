"""The live files of a table, compared with its log: there, as long, in order.

log ──▶ lengths of all files ──▶ their keys, many files at a time ──▶ ok
                                      └── a problem ──▶ one file after the other ──▶ which, and why

Cost: all keys are read; those of up to `_FILES` files twice if one of these has a problem.
Not here: files themselves (`verify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait import _native
from plait._api import verify
from plait._logs.delta import DeltaLog, LiveFile
from plait._native_call import _call
from plait._table_reports import TableVerifyReport
from plait.errors import PlaitError

__all__ = ["verified"]

# Files of one call of the engine.
_FILES = 1_000


def verified(
    log: DeltaLog,
    files: Sequence[LiveFile],
    version: int,
    order: str | None,
    storage_options: Any,  # noqa: ANN401 - settings or a store
) -> TableVerifyReport:
    """Checks live files.

    Args:
        log: The log of the table.
        files: Its live files.
        version: The version that they are of.
        order: The order of a file.
        storage_options: Settings of object stores.
    """
    problems, there = [], []
    for file, looked in zip(files, log.look([file.name for file in files]), strict=True):
        if looked is None:
            problems.append(f"`{file.name}` is not there")
            continue
        if looked[0] != file.bytes:
            problems.append(f"`{file.name}` has {looked[0]:,} bytes, the log says {file.bytes:,}")
        there.append(file)
    rows = 0
    for start in range(0, len(there), _FILES):
        some = there[start : start + _FILES]
        counts = _rows_of([log.location(file.name) for file in some], order, storage_options)
        if counts is None:
            counts = [_rows(log, file, order, storage_options, problems) for file in some]
        for file, count in zip(some, counts, strict=True):
            if count is None:
                continue
            live = count - (0 if file.deleted is None else file.deleted["rows"])
            rows += live
            if file.rows is not None and live != file.rows:
                problems.append(f"`{file.name}` has {live:,} rows, the log says {file.rows:,}")
    return TableVerifyReport(log.root, version, len(files), rows, tuple(problems))


def _rows_of(
    paths: Sequence[str],
    order: str | None,
    storage_options: Any,  # noqa: ANN401 - settings or a store
) -> list[int | None] | None:
    """Rows of files that have no problems; `None` if one of them has."""
    options = {"files": paths, "sort_by": order, "may_overlap": True}
    try:
        found = _call(_native.verify, options, storage_options, None)
    except PlaitError:
        # Which file it is, and whether others have problems, is seen one by one.
        return None
    rows = [file["rows"] for file in found["files"]]
    return rows if found["ok"] and len(rows) == len(paths) else None


def _rows(
    log: DeltaLog,
    file: LiveFile,
    order: str | None,
    storage_options: Any,  # noqa: ANN401 - settings or a store
    problems: list[str],
) -> int | None:
    """Rows of a file; `None` if it cannot be read."""
    path = log.location(file.name)
    try:
        found = verify(path, sort_by=order, storage_options=storage_options, check=False)
    except PlaitError as error:
        problems.append(f"`{file.name}`: {error.what or error}")
        return None
    problems += [f"`{file.name}`: {problem}" for problem in found.problems]
    return found.rows
