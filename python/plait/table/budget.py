"""How much one compaction may do: bytes, groups, seconds; the most valuable groups come first.

groups ──▶ by value for a byte ──▶ those that fit ──▶ merged, and spent
                                       └── the others wait for another run, and are reported

Invariant: a run merges at least one group, whatever its budget, so that runs which follow one
another come to an end. A group that was begun is finished.
Not here: which groups there are (`survey`), the loop (`run`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from plait.table.groups import Group
from plait.table.options import CompactOptions
from plait.table.report import WaitingGroup

__all__ = ["Budget", "value"]


class Budget:
    """What is left of what a compaction may do.

    Args:
        options: The options, of which `max_bytes`, `max_groups` and `max_seconds` count.
        is_strict: Whether a first group that is too large waits, too.
    """

    def __init__(self, options: CompactOptions, *, is_strict: bool = False) -> None:
        """Begins to count the time."""
        self._limits = options.limits
        self._target_bytes = options.target_bytes
        self._is_strict = is_strict
        self._began = time.monotonic()
        self._bytes = self._groups = 0

    def chosen(self, groups: Sequence[Group]) -> tuple[Group, ...]:
        """The groups that may be merged now, in this order."""
        if self._limits.is_open:
            return tuple(groups)
        chosen: list[Group] = []
        planned = 0
        for group in sorted(groups, key=self._rank):
            is_first = not (self._groups or chosen or self._is_strict)
            if is_first or not self._exceeded(group, planned, len(chosen)):
                chosen.append(group)
                planned += group.bytes
        return tuple(chosen)

    def parts(self, groups: Sequence[Group]) -> Iterator[Sequence[Group]]:
        """The groups as they are handed to a runner: one by one if the time is limited."""
        if self._limits.seconds is None:
            yield groups
            return
        for group in groups:
            if self._groups and self._is_late:
                return
            yield (group,)

    def spend(self, group: Group) -> None:
        """Counts a group that was merged, whether or not others were quicker to commit."""
        self._bytes += group.bytes
        self._groups += 1

    def waiting(self, groups: Sequence[Group], chosen: Sequence[Group]) -> tuple[WaitingGroup, ...]:
        """Groups that were not chosen, the most valuable first, and why."""
        taken = set(map(id, chosen))
        planned = sum(group.bytes for group in chosen)
        return tuple(
            WaitingGroup(
                folder=group.scope,
                sources=tuple(file.path for file in group.files),
                rows=group.rows,
                bytes=group.bytes,
                depth_max=group.depth_max,
                why=self._exceeded(group, planned, len(chosen)),
            )
            for group in sorted(groups, key=self._rank)
            if id(group) not in taken
        )

    def _rank(self, group: Group) -> float:
        return -value(group, self._target_bytes)

    @property
    def _is_late(self) -> bool:
        limit = self._limits.seconds
        return limit is not None and time.monotonic() - self._began >= limit

    def _exceeded(self, group: Group, planned_bytes: int, planned_groups: int) -> str:
        """Which limit keeps a group from being merged now, by name; `""` if none does."""
        limits = self._limits
        if self._groups and self._is_late:
            return f"max_seconds: {limits.seconds:g} s have passed"
        if limits.groups is not None and self._groups + planned_groups >= limits.groups:
            return f"max_groups: {limits.groups:,} of this run"
        bytes_left = None if limits.bytes is None else limits.bytes - self._bytes - planned_bytes
        if bytes_left is not None and group.bytes > bytes_left:
            return f"max_bytes: {max(bytes_left, 0):,} of {limits.bytes:,} bytes are left"
        return ""


def value(group: Group, target_bytes: int | None) -> float:
    """What readers save for each byte that is merged, in files that they open no more.

    A scan opens fewer files: those that go, less the outputs. A look-up of one key opens one of
    those that share it. A file whose rows are deleted in part counts as that part of a file. A file
    that is not sorted counts as one more, since its readers sort it.

    Args:
        group: The group.
        target_bytes: How large an output may be.
    """
    if group.is_expired:
        return float("inf")
    outputs = 1 if target_bytes is None else -(-group.bytes // max(target_bytes, 1))
    saved: float = max(len(group.files) - outputs, 0) + group.depth_max - 1 + len(group.unsorted)
    for file in group.files:
        saved += file.deleted / max(file.deleted + (file.rows or 0), 1)
    return saved / max(group.bytes, 1)
