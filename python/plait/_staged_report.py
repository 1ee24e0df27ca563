"""Counts of a side of a staged join, and the side as a page.

Not here: the sides (`staged`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plait._svg import related
from plait._text import Page
from plait.errors import InvalidArgument


@dataclass(frozen=True)
class SideStats:
    """Counts of the calls of a side of a staged join, and the size of its state.

    Attributes:
        step: The last call that changed the state, `None` before the first.
        steps: Calls that changed the state.
        left_changes: Changes that were passed, to a left side.
        right_changes: Changes that were passed, to a right side.
        folded: Changes that a later one of the same call and key replaced.
        null_keys: Changes without a key, which were skipped.
        stale: Changes that were skipped because the state is newer, by `_seq`.
        merges: How often runs of the state were merged.
        rows_merged: Rows of those runs.
        runs: Rows of each run of each table of the state, oldest first, those that delete among
            them.
        memory_bytes: Bytes of the state in memory.
        cache_hits: Blocks of files that were found in memory.
        cache_misses: Blocks that were read.
    """

    step: int | None
    steps: int
    left_changes: int
    right_changes: int
    folded: int
    null_keys: int
    stale: int
    merges: int
    rows_merged: int
    runs: Mapping[str, tuple[int, ...]]
    memory_bytes: int
    cache_hits: int
    cache_misses: int


def _stats(text: str) -> SideStats:
    found: dict[str, Any] = json.loads(text)
    found["runs"] = {name: tuple(rows) for name, rows in found["runs"].items()}
    return SideStats(**found)


def _drawn(here: str, options: dict[str, Any], side: Any) -> str:  # noqa: ANN401 - either side
    """A side of the join as HTML; what a restored state alone knows is left out."""
    named = ("left_key", "foreign_key", "right_key")
    keys = {name: ", ".join(options[name]) for name in named if name in options}
    places = {name: "here" if name == here else "elsewhere" for name in ("left", "right")}
    left, right = ((name, keys.get(f"{name}_key", ""), place) for name, place in places.items())
    try:
        pending = "yes: send what is due" if side.pending else "no"
        step = getattr(side, "step", None)
    except InvalidArgument:
        pending, step = "this side was closed", None
    how = f"{options['how']} join" if "how" in options else "join, restored from its state"
    return Page(
        title=f"{here} side of a staged {how}",
        svg=related(left, keys["foreign_key"], right) if keys else "",
        facts=(
            ("state", options["state"] or "in memory"),
            ("pending", pending),
            *((("step", f"{step:,}"),) if step is not None else ()),
        ),
    ).html()
