"""The live files of a table, compared with its log: there, as long, in order.

Cost: all keys are read.
Not here: files themselves (`verify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait._api import verify
from plait._logs.delta import DeltaLog, LiveFile
from plait._table_reports import TableVerifyReport
from plait.errors import PlaitError

__all__ = ["verified"]


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
    rows, problems = 0, []
    for file in files:
        looked = log.look(file.name)
        if looked is None:
            problems.append(f"`{file.name}` is not there")
            continue
        if looked[0] != file.bytes:
            problems.append(f"`{file.name}` has {looked[0]:,} bytes, the log says {file.bytes:,}")
        path = log.location(file.name)
        try:
            found = verify(path, sort_by=order, storage_options=storage_options, check=False)
        except PlaitError as error:
            problems.append(f"`{file.name}`: {error.what or error}")
            continue
        problems += [f"`{file.name}`: {problem}" for problem in found.problems]
        live = found.rows - (0 if file.deleted is None else file.deleted["rows"])
        rows += live
        if file.rows is not None and live != file.rows:
            problems.append(f"`{file.name}` has {live:,} rows, the log says {file.rows:,}")
    return TableVerifyReport(log.root, version, len(files), rows, tuple(problems))
