"""Rows that others delete while a compaction merges their files.

    replaced file: deleted then, deleted now ─┐
    row maps of the outputs ──────────────────┴─▶ deleted rows of the outputs, for the same commit

Invariant: a deleted row never comes back: what no row map tells of is a conflict.
Not here: reading deletes and maps (`rust/parquet`), how a table stores them (`delta`, `iceberg`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from plait import _native
from plait._native_call import _call
from plait.errors import CorruptSource, SourceNotFound, UnsupportedKey
from plait.report import OutputReport

__all__ = ["DeletedRows", "Touched", "all_carried", "carry"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Touched:
    """A replaced file of which rows were deleted while it was merged.

    Attributes:
        path: Where the engine reads it.
        then: What was deleted when it was merged, as calls of the engine take it.
        now: What is deleted now.
    """

    path: str
    then: Mapping[str, Any] | None
    now: Mapping[str, Any] | None


@dataclass(frozen=True)
class DeletedRows:
    """Deleted rows of an output.

    Attributes:
        encoded: Which, in base 64: as the bitmap of a deletion vector, or as numbers of 8 bytes.
        rows: How many.
    """

    encoded: str
    rows: int


def carry(
    touched: Sequence[Touched],
    outputs: Sequence[OutputReport],
    form: Literal["bitmap", "numbers"],
    storage_options: object,
) -> dict[str, DeletedRows] | str:
    """Carries deletes from replaced files to the outputs.

    Returns:
        Deleted rows by the path of the output, or why that cannot be: what deletes rows now may
        be damaged, or gone again.

    Raises:
        PlaitError: Reading failed.
    """
    if not touched:
        return {}
    maps = {output.row_map: output.path for output in outputs}
    if None in maps:
        return f"rows of `{touched[0].path}` were deleted, and the new files have no row maps"
    sources = [{"path": file.path, "then": file.then, "now": file.now} for file in touched]
    options = {"maps": list(maps), "sources": sources, "form": form}
    try:
        found = _call(_native.carry_deletes, options, storage_options, None)
    except (CorruptSource, SourceNotFound, UnsupportedKey) as error:
        # The next survey finds it, too, and leaves the file alone or says what is wrong.
        return str(error)
    if found["why"]:
        return str(found["why"])
    return {maps[of["map"]]: DeletedRows(of["encoded"], of["rows"]) for of in found["outputs"]}


def all_carried(of_changes: Iterable[_T | str]) -> list[_T] | str:
    """What was carried for each change, or why that cannot be for one of them."""
    carried = []
    for found in of_changes:
        if isinstance(found, str):
            return found
        carried.append(found)
    return carried
