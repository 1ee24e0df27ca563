"""Whether columns of new rows are those of a table.

Not here: files and their statistics (`rust/delta`).
"""

from __future__ import annotations

from typing import Any

from plait.errors import SchemaConflict

__all__ = ["check_columns"]


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
