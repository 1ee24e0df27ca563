"""What a survey of a table finds: files, partitions, and groups of files to merge.

table ─▶ Scope (a partition) ─▶ TableFile …
              └─ Group: some of its files, and how they are merged ─▶ Found

Invariant: a group has files of one partition, in the order that breaks ties.
Cost: a plan is made when it is first asked for.
Not here: which files make a group (`survey`).
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from plait import _native
from plait._plan import Plan, leased
from plait._planning import plan_knowing
from plait.table.options import CompactOptions
from plait.table.progress import Watch
from plait.table.reasons import Alike, reasons
from plait.table.report import Skipped
from plait.table.sorting import Look, LookedFile, Seen

__all__ = [
    "Compaction",
    "Found",
    "Group",
    "Prefetch",
    "Scope",
    "TableFile",
    "merge_token",
    "no_prefetch",
    "ranked",
    "skipped_of",
]

# Reads what planning will read of files, given their paths and the options of `plait.plan`.
Prefetch = Callable[[Sequence[str], Mapping[str, Any]], _native.Known | None]

# One file has none to be merged with.
_MERGED_MIN = 2

# The share of deleted rows that a file keeps: that of Delta's `OPTIMIZE`.
_DELETED_MAX = 0.05

# What merges name their outputs: after the task, and the lease of a folder.
_MADE = re.compile(r"part-\d{5,}-([0-9a-f]{16})(?:-[0-9a-f]{16})?\.parquet$")


def no_prefetch(_paths: Sequence[str], _merge: Mapping[str, Any]) -> None:
    """Leaves reading to planning."""


@dataclass(frozen=True)
class Compaction:
    """A compaction while it runs.

    Attributes:
        options: Its options.
        prefetch: Reads what surveys and plans need of many files.
        watch: What is called with how far it is.
        left: Files that stay as they are, by path, and why. Surveys and the loop add to it.
        levels: How many merges lie behind a file, by path, as far as plans have read it.
        sorted: Files that were found sorted, by path, as far as all keys were looked at.
    """

    options: CompactOptions
    prefetch: Prefetch = no_prefetch
    watch: Watch = field(default_factory=Watch)
    left: dict[str, str] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    sorted: set[str] = field(default_factory=set)

    @property
    def members_min(self) -> int:
        """How many files are worth a look: one has none to be merged with, but may be unsorted."""
        return 1 if self.options.unsorted == "sort" else _MERGED_MIN

    def is_worth_a_look(self, files: Sequence[TableFile]) -> bool:
        """Whether some of the files may be merged, or rewritten."""
        return len(files) >= self.members_min or any(file.may_be_worn for file in files)


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file.

    Attributes:
        name: What the table calls it.
        path: Where the engine reads it.
        rows: Its rows that are not deleted, if the table says so; at least as many, if it says how
            many rows are deleted at most.
        bytes: Its bytes.
        deleted: How many rows of the file are deleted, at most.
    """

    name: str
    path: str
    rows: int | None
    bytes: int
    deleted: int = 0

    @property
    def may_be_worn(self) -> bool:
        """Whether so many rows may be deleted that it is rewritten: see `is_worn`."""
        return self.rows is not None and self.is_worn(self.rows)

    def is_worn(self, live: int) -> bool:
        """Whether so many rows are deleted that it is rewritten, even if no other file overlaps.

        Args:
            live: Its rows that are not deleted.
        """
        all_rows = self.deleted + (self.rows or 0)
        return self.rows is not None and all_rows - live > _DELETED_MAX * all_rows


@dataclass(frozen=True)
class Scope:
    """Files that may be merged with one another: those of a partition, in tie order.

    Attributes:
        name: The partition, such as `day=1`; `""` without one.
        out: The folder that their outputs go to.
        files: The files.
        sort_by: Their order, if it is not said of them as it is of others.
    """

    name: str
    out: str
    files: tuple[TableFile, ...]
    sort_by: str | None = None


@dataclass(frozen=True)
class Group:
    """Files to merge.

    Attributes:
        scope: Their partition.
        out: The folder of the outputs.
        files: The files, in the order that breaks ties.
        sort_by: Their order.
        rows: Number of their rows.
        depth_max: The most of them that share one key.
        make_plan: Plans their merge; `None` if no row of them stays, so that there is no output.
        merge: Arguments of `plait.merge`, by name.
        seen: What was seen of them. If some are not sorted, no plan is made: the group is sorted
            and merged as a whole.
    """

    scope: str
    out: str
    files: tuple[TableFile, ...]
    sort_by: str
    rows: int
    depth_max: int
    make_plan: Callable[[], Plan] | None = field(compare=False)
    merge: Mapping[str, Any] = field(compare=False)
    seen: Seen = field(default_factory=Seen)

    @classmethod
    def of_plan(
        cls, scope: Scope, files: Sequence[TableFile], plan: Plan, merge: Mapping[str, Any]
    ) -> Group:
        """The group of a merge that is planned."""
        depth = plan.overlap.depth_max
        return cls(
            scope=scope.name,
            out=scope.out,
            files=tuple(files),
            sort_by=plan.sort_by,
            rows=plan.rows,
            depth_max=depth,
            make_plan=lambda: plan,
            merge={**merge, "sort_by": plan.sort_by or []},
        )

    @classmethod
    def of_look(
        cls, scope: Scope, files: Sequence[TableFile], seen: Look, merge: Mapping[str, Any]
    ) -> Group:
        """The group of a merge that sorts. `seen` is what was seen of its files alone."""
        merge = {**merge, "sort_by": seen.sort_by or []}
        return cls(
            scope=scope.name,
            out=scope.out,
            files=tuple(files),
            sort_by=seen.sort_by,
            rows=sum(file.rows for file in seen.files),
            depth_max=_depth(ranked(seen.files)),
            make_plan=lambda: plan_knowing([file.path for file in files], merge, None),
            merge=merge,
            seen=Seen(
                unsorted=tuple(file.path for file in seen.files if not file.is_sorted),
                footers={file.path: file.footer for file in seen.files},
            ),
        )

    @property
    def unsorted(self) -> tuple[str, ...]:
        """Which of the files are in no order, by path."""
        return self.seen.unsorted

    @property
    def bytes(self) -> int:
        """Sum of the sizes of the files."""
        return sum(file.bytes for file in self.files)

    @property
    def is_expired(self) -> bool:
        """Whether no row of the files stays."""
        return self.make_plan is None

    @cached_property
    def plan(self) -> Plan:
        """How the files are merged; made when it is first asked for."""
        if self.make_plan is None:
            what = "a group without rows has no plan"
            raise ValueError(what)
        return self.make_plan()

    def token(self, outputs: Sequence[str]) -> str:
        """What names the merge that made the outputs; `""` without any."""
        return merge_token(outputs[0]) if outputs else ""

    def leased(self, lease: str) -> Group:
        """The group with outputs whose names have the id of a lease."""
        make_plan = self.make_plan
        if make_plan is None:
            return self
        seen = replace(self.seen, naming={**self.seen.naming, "lease": lease})
        return replace(self, make_plan=lambda: leased(make_plan(), lease), seen=seen)


@dataclass(frozen=True)
class Found:
    """What there is to do.

    Attributes:
        version: The version looked at.
        groups: What to merge.
        skipped: Files that are left alone.
        files: Number of all files, if they are those of one table.
        reasons: Why the others are not merged.
    """

    version: int
    groups: tuple[Group, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    files: int | None = None
    reasons: tuple[str, ...] = ()

    @classmethod
    def of_scopes(
        cls,
        version: int,
        scopes: Sequence[Scope],
        groups: tuple[Group, ...],
        compaction: Compaction,
    ) -> Found:
        """What was found in the partitions of a table."""
        left, levels = compaction.left, compaction.levels
        chosen = {group.scope for group in groups}
        found = [
            Alike(scope.name, "", files, scope.name in chosen)
            for scope in scopes
            # Of a file that is alone in its partition the level does not matter.
            if (
                files := tuple(
                    (f.bytes, levels.get(f.path, 0)) for f in scope.files if f.path not in left
                )
            )
        ]
        return cls(
            version,
            groups,
            skipped_of(left),
            sum(len(scope.files) for scope in scopes),
            reasons(compaction.options.policy_options, found),
        )


def skipped_of(left: Mapping[str, str]) -> tuple[Skipped, ...]:
    """Files that are left alone, for a report."""
    return tuple(Skipped(path, why) for path, why in sorted(left.items()))


def merge_token(path: str) -> str:
    """What names the merge that made an output; `""` for files that no merge named."""
    made = _MADE.search(path)
    return made[1] if made else ""


def ranked(files: Sequence[LookedFile]) -> list[tuple[int, int]]:
    """First and last key of each file as numbers in the order of keys."""
    ends = [(file.first or "", file.last or "") for file in files]
    keys = sorted({key for end in ends for key in end}, key=base64.b64decode)
    rank = {key: i for i, key in enumerate(keys)}
    return [(rank[first], rank[last]) for first, last in ends]


def _depth(ends: Sequence[tuple[int, int]]) -> int:
    """The most of the ranges that share one key."""
    firsts, lasts = sorted(first for first, _ in ends), sorted(last for _, last in ends)
    return max((bisect_right(firsts, at) - bisect_left(lasts, at) for at in firsts), default=0)
