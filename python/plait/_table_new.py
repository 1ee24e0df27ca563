"""A table is to be made: no row of its folder may be lost by that, and its rules are to fit.

    missing ──▶ made     files of no table ──▶ refused     in a table, or one of others ──▶ refused

A log makes all other files of its folder no rows of the table. So where there are some, or a
manifest says which of them are live, no table is made but by `plait.adopt`.

Invariant: what is refused is refused before a file is written.
Not here: the first commit (`_table_commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plait import _native, _stores
from plait._logs.delta import DeltaLog
from plait._native_call import _call
from plait._rules import Rules, path_of
from plait.errors import ForeignTable, InvalidArgument, StorageError
from plait.table._calls import is_delta

__all__ = ["check_rules", "lost_rows", "open_folder"]


def check_rules(
    rules: Rules,
    sort_by: str | None,
    partition_by: Sequence[str],
    look: Callable[[Rules], object],
) -> None:
    """Refuses rules for rows with one key that the columns of a new table do not go with.

    Args:
        rules: The rules.
        sort_by: The order of the table.
        partition_by: Its partition columns, which come first in the order.
        look: Looks at the columns of rows, and raises what is wrong with the rules.

    Raises:
        InvalidArgument: One names a sort column, or a function does not take values of its column.
        UnknownColumn: There is no such column.
    """
    if not rules.of_columns:
        return
    keys = {tuple(path) for path, _, _ in _native.sort_columns(sort_by or "")}
    keys |= {(column,) for column in partition_by}
    for name in rules.names():
        if path_of(name) in keys:
            error = InvalidArgument.of(
                "a sort column has one value a key",
                got=f"`{name}`",
                hint="name columns that are not in sort_by, nor in partition_by",
            )
            error.column = name
            raise error
    look(rules)


def open_folder(root: str, storage_options: Any) -> None:  # noqa: ANN401 - settings or a store
    """Makes the folder of a table if it is a local one, and refuses those of other tables.

    Raises:
        ForeignTable: The folder is a table of another format, or in a table.
        StorageError: It cannot be made.
    """
    is_local = "://" not in root and not _stores.is_store(storage_options)
    is_new = is_local and _make(root)
    try:
        is_delta(root, storage_options)
    except ForeignTable as found:
        if is_new:
            Path(root).rmdir()
        hint = "write to a folder of its own, or to the table itself if it is one of Delta"
        error = ForeignTable.of(found.what, got=f"`{root}`", hint=hint)
        error.path = found.path
        raise error from found


def lost_rows(log: DeltaLog, storage_options: Any) -> ForeignTable | None:  # noqa: ANN401 - the same
    """What is to be said of a folder with rows that a table there would not have."""
    there = log.there()
    # What is left of a first write that died is no row of anybody.
    if any(name.startswith("_delta_log/") for name in there.hidden):
        return None
    manifest: dict[str, Any] = {}
    if any(name.startswith("_plait/manifest-") for name in there.hidden):
        options = {"folder": log.root}
        manifest = _call(_native.commit, options, storage_options, None)["manifest"]
    if manifest.get("files") or manifest.get("replaced"):
        what = "the folder has a manifest, which lists its live files: rows are written to tables"
        got, hint = log.root, "write to another folder; plait.merge of this one gives its rows"
    elif there.visible:
        what = "the folder has Parquet files and is no table"
        got, hint = log.location(there.visible[0]), "plait.adopt(folder) makes it one"
    else:
        return None
    error = ForeignTable.of(what, got=f"`{got}`", hint=hint)
    error.path = log.root
    return error


def _make(root: str) -> bool:
    """Makes a local folder; whether it was not there."""
    try:
        is_new = not Path(root).exists()
        Path(root).mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        what = "cannot make the folder of the table"
        raise StorageError.of(what, got=f"`{root}`: {cause}") from cause
    return is_new
