"""A file as the log of a table takes it, and whether its columns are those of the table.

path ──▶ inspect ──▶ statistics ──▶ {"name": …, "bytes": …, "stats": …}

Not here: commits (`rust/delta`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from plait._logs.delta import DeltaLog
from plait.errors import SchemaConflict, SourceNotFound
from plait.table.statistics import statistics

__all__ = ["added", "check_columns"]

Bounds = Mapping[str, tuple[Any, Any]]


def added(
    log: DeltaLog,
    name: str,
    schema: dict[str, Any],
    *,
    storage_options: object,
    properties: Mapping[str, str],
    partition: Mapping[str, str | None] | None = None,
    instead_of: Sequence[str] = (),
    bounds: Bounds | None = None,
) -> dict[str, Any]:
    """A file of a table, for a commit.

    Args:
        log: The log of the table.
        name: The file's path below the table.
        schema: The table's schema, as the log has it.
        storage_options: Settings of object stores.
        properties: Properties of the table.
        partition: Values of partition columns.
        instead_of: Files that are removed, and of which this one has the rows.
        bounds: Bounds of these files, where the footer has none.

    Raises:
        SourceNotFound: There is no such file.
    """
    looked = log.look(name)
    path = log.location(name)
    if looked is None:
        raise SourceNotFound.of("a file of the table was removed meanwhile", got=f"`{path}`")
    # Of columns that the file does not have, its folder says the values.
    stored = [field for field in schema["fields"] if field["name"] not in (partition or {})]
    of_file = {**schema, "fields": stored}
    stats = statistics(path, of_file, storage_options, dict(properties), dict(bounds or {}))
    return {
        "name": name,
        "bytes": looked[0],
        "modified_ms": looked[1],
        "partition": dict(partition or {}),
        "stats": json.dumps(stats, allow_nan=False),
        "instead_of": list(instead_of),
    }


def check_columns(given: dict[str, Any], table: dict[str, Any], where: str) -> None:
    """Refuses columns that a table does not have, or has of another type.

    Args:
        given: The schema of new rows, as the log would have it.
        table: The schema of the table.
        where: What has the rows.

    Raises:
        SchemaConflict: There are such columns; names them.
    """
    kinds = {field["name"]: field["type"] for field in table["fields"]}
    shapes = {name: _shape(kind) for name, kind in kinds.items()}
    misfits = [
        f"`{field['name']}` of {_kind(field['type'])}, which the table "
        + (f"has as {_kind(kinds[field['name']])}" if field["name"] in kinds else "has not")
        for field in given["fields"]
        if shapes.get(field["name"]) != _shape(field["type"])
    ]
    if misfits:
        raise SchemaConflict.of(
            f"{where} has columns that do not fit the table",
            got="; ".join(misfits),
            hint="cast or leave out these columns",
        )


def _shape(kind: Any) -> Any:  # noqa: ANN401 - any JSON
    """A type without what it says of nulls and fields besides their names."""
    if isinstance(kind, dict):
        said = ("type", "name", "fields", "elementType", "keyType", "valueType")
        return {name: _shape(kind[name]) for name in said if name in kind}
    return [_shape(one) for one in kind] if isinstance(kind, list) else kind


def _kind(kind: object) -> str:
    return kind if isinstance(kind, str) else f"a {kind['type']}"  # type: ignore[index]
