"""The log of a Delta table, as deltalake reads it.

Not here: commits (`plait.table.delta`). Source: the Delta transaction log protocol.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from plait.errors import InvalidArgument, SourceNotFound, StorageError, Unsupported

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["live_files", "load", "logged", "refused", "with_vectors"]


def load(name: str, storage_options: dict[str, str] | None) -> DeltaTable:
    """The newest version of the table in a folder.

    Raises:
        InvalidArgument: deltalake is absent.
        SourceNotFound: There is no table.
        Unsupported: It uses a feature that deltalake does not know.
        StorageError: Its log cannot be read.
    """
    try:
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError, TableNotFoundError  # noqa: PLC0415
    except ImportError as cause:
        raise InvalidArgument.of(
            "Delta tables need deltalake", hint="pip install 'plait[delta]'"
        ) from cause
    try:
        return DeltaTable(name, storage_options=storage_options)
    except TableNotFoundError as cause:
        raise SourceNotFound.of("there is no such Delta table", got=f"`{name}`") from cause
    except (DeltaError, OSError) as cause:
        if "is not supported" in str(cause) or "catalog-managed" in str(cause):
            raise refused(name, "uses an unknown feature", got=str(cause)) from cause
        raise StorageError.of("cannot read the Delta table", got=f"`{name}`: {cause}") from cause


def live_files(table: DeltaTable) -> list[dict[str, Any]]:
    """The live files: the members of their `add` actions, by dotted name."""
    actions = table.get_add_actions(flatten=True)
    names = actions.schema.names
    columns = [actions.column(name).to_pylist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def with_vectors(table: DeltaTable) -> set[str]:
    """The files of which a deletion vector deletes rows."""
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 - an extra

    if "deletionVectors" not in (table.protocol().writer_features or ()):
        return set()
    base = table.table_uri.rstrip("/") + "/"
    found = set()
    try:
        for batch in table.deletion_vectors():
            for path in batch.column("filepath").to_pylist():
                found.add(unquote(path.removeprefix(base)))
    except DeltaError as cause:
        raise StorageError.of(
            "cannot read deletion vectors", got=f"`{table.table_uri}`: {cause}"
        ) from cause
    return found


def logged(value: object) -> str | None:
    """A partition value as the log has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
        return text if value.tzinfo is None else text.replace(" ", "T") + "Z"
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="surrogateescape")
    return None if value is None else str(value)


def refused(name: str, what: str, *, got: str = "", hint: str = "") -> Unsupported:
    """The error for a table that cannot be compacted as it is."""
    error = Unsupported.of(
        f"the Delta table `{name}` {what}",
        got=got,
        hint=hint or "compact it with the engine that wrote it",
    )
    error.path = name
    return error
