"""Rows of a Delta table that others delete while a compaction merges their files.

    replaced file: vector then, vector now ─┐
    row maps of the outputs ────────────────┴─▶ vectors of the outputs, for the same commit

Invariant: a deleted row never comes back: what no row map tells of is a conflict.
Not here: reading vectors and maps (`rust/parquet`), writing vectors (`rust/delta`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait import _native
from plait._logs.columns import vectors_of
from plait._logs.delta import DeltaLog, LiveFile
from plait._native_call import _call
from plait.report import OutputReport

__all__ = ["Carried", "carry"]


@dataclass(frozen=True)
class Carried:
    """What became of deletes.

    Attributes:
        replaced: The replaced files as they are live now.
        deleted: Deleted rows of outputs, by path, as a commit takes them.
    """

    replaced: tuple[LiveFile, ...]
    deleted: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows of the outputs are deleted."""
        return sum(vector["rows"] for vector in self.deleted.values())


def carry(
    log: DeltaLog,
    then: Sequence[LiveFile],
    outputs: Sequence[OutputReport],
    storage_options: object,
) -> Carried | str:
    """Carries deletes from replaced files, as they were when they were merged, to the outputs.

    Returns:
        What to commit, or why that cannot be.

    Raises:
        PlaitError: What is wrong with a vector or a row map.
    """
    now = {
        file.name: file
        for file in log.files("rewrite", names=[f.name for f in then], deleted="list")
    }
    gone = [file.name for file in then if file.name not in now]
    if gone:
        return f"`{gone[0]}` is not live any more"
    replaced = tuple(now[file.name] for file in then)
    changed = [file for file in then if now[file.name].id != file.id]
    if not changed:
        return Carried(replaced)
    maps = {output.row_map: output.path for output in outputs}
    if None in maps:
        return f"rows of `{changed[0].name}` were deleted, and the new files have no row maps"
    places = {log.location(file.name): file for file in changed}
    old = vectors_of(log.root, places)
    new = vectors_of(log.root, {where: now[file.name] for where, file in places.items()})
    sources = [{"path": path, "then": old.get(path), "now": new.get(path)} for path in places]
    options = {"maps": list(maps), "sources": sources}
    told = _call(_native.carry_deletes, options, storage_options, None)
    if told["why"]:
        return str(told["why"])
    deleted = {
        maps[output["map"]]: {"bitmap": output["bitmap"], "rows": output["rows"]}
        for output in told["outputs"]
    }
    return Carried(replaced, deleted)
