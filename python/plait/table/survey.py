"""Which files of a table to merge with one another.

files by partition ──▶ plan: first and last keys ──▶ policy ──▶ groups, each with its plan

Invariant: files are merged only with files of their partition.
Cost: one plan for a partition, and another for each group that is not all of it. What a plan reads
may have been read before, by others: see `Learn`.
Not here: the policies (`rust/core/src/policy`); folders, which the engine surveys itself.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from plait import _native
from plait._native_call import OnProgress
from plait._plan import Plan, leased
from plait._planning import plan_knowing
from plait._rules import OF_COLUMNS, Rules, narrowing
from plait.errors import (
    CorruptSource,
    InvalidArgument,
    PlaitError,
    SchemaConflict,
    UnknownColumn,
    UnsortedSource,
    UnsupportedKey,
    _by_file,
)
from plait.table.odd import odd_ones
from plait.table.options import CompactOptions
from plait.table.progress import Watch
from plait.table.reasons import Alike, reasons
from plait.table.report import Skipped
from plait.table.sorting import Look, LookedFile, Seen, look

__all__ = [
    "OF_A_FILE",
    "Compaction",
    "Found",
    "Group",
    "Prefetch",
    "Scope",
    "TableFile",
    "groups_of_all",
    "left_alone",
    "no_partition",
    "no_prefetch",
    "of_partition",
    "partition_name",
    "skipped_of",
    "wanted",
]

K = TypeVar("K")

# What is wrong with one file, and leaves others as they are.
OF_A_FILE = (UnsortedSource, CorruptSource, UnknownColumn, UnsupportedKey)

# Reads what planning will read of files, given their paths and the options of `plait.plan`.
Prefetch = Callable[[Sequence[str], Mapping[str, Any]], _native.Known | None]

# So many partitions are named in an error.
_NAMED_MAX = 8

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


@dataclass(frozen=True)
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
            depth_max=_depth(_ranked(seen.files)),
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
        made = _MADE.search(outputs[0]) if outputs else None
        return made[1] if made else ""

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


def groups_of_all(
    scopes: Sequence[Scope], compaction: Compaction, merge: Mapping[str, Any]
) -> tuple[Group, ...]:
    """The groups that the policy finds among the files of each partition.

    Args:
        scopes: The partitions.
        compaction: The compaction. Files that cannot be planned are left alone from now on.
        merge: Options of `plait.plan`.

    Returns:
        Groups of two and more files, or of one that is to be sorted, or has many deleted rows.

    Raises:
        UnknownColumn: No file has the sort column.
        PlaitError: Anything that planning a merge of the files raises of more than one file.
    """
    shared = [scope for scope in scopes if compaction.is_worth_a_look(scope.files)]
    told_alike = [scope for scope in shared if scope.sort_by is None]
    known = compaction.prefetch([file.path for scope in told_alike for file in scope.files], merge)
    groups: list[Group] = []
    misfits: list[PlaitError] = []
    for scope in shared:
        try:
            if scope.sort_by is None:
                groups += _groups_of(scope, compaction, merge, known)
            else:
                told = {**merge, "sort_by": scope.sort_by}
                groups += _groups_of(scope, compaction, told, None)
        except (UnknownColumn, UnsupportedKey) as error:  # noqa: PERF203 - a plan takes longer
            # The sort column is in no file of the partition.
            misfits.append(error)
            why = str(error).partition("\nhint: ")[0]
            compaction.left.update({file.path: why for file in scope.files})
    if misfits and len(misfits) == len(shared):
        raise of_partition(misfits[0], [scope.name for scope in shared])
    return tuple(groups)


def of_partition(error: PlaitError, names: Iterable[str]) -> PlaitError:
    """The error for a sort column that no file has: another if it is a column of partitions."""
    start = f"{error.column}="
    if not any(part.startswith(start) for name in names for part in name.split("/")):
        return error
    found = UnknownColumn.of(
        "sort column is a partition column, which files do not store",
        got=f"`{error.column}`",
        hint="leave it out of sort_by: files are merged within a partition, where it has one value",
    )
    found.column = error.column
    return found


def partition_name(values: Mapping[str, str]) -> str:
    """What a partition is called: the values of its columns, such as `day=1/hour=2`."""
    return "/".join(f"{column}={value}" for column, value in values.items())


def wanted(
    partitions: Mapping[K, Mapping[str, str]], where: Mapping[str, Sequence[str]]
) -> list[K]:
    """The partitions that `where` matches.

    Args:
        partitions: The values of each partition, by column, as text.
        where: The values that a column may have.

    Raises:
        InvalidArgument: It matches none of them; names them.
    """
    found = [
        key
        for key, values in partitions.items()
        if all(values.get(column) in texts for column, texts in where.items())
    ]
    if partitions and not found:
        raise no_partition(where, map(partition_name, partitions.values()))
    return found


def no_partition(where: Mapping[str, Sequence[str]], names: Iterable[str]) -> InvalidArgument:
    """The error for a `where` that matches none of the partitions."""
    known = sorted(set(names))
    more = f" and {len(known) - _NAMED_MAX:,} more" if len(known) > _NAMED_MAX else ""
    asked = ", ".join(f"{column}={value}" for column, of in where.items() for value in of)
    return InvalidArgument.of(
        "`where` matches no partition",
        got=f"`{asked}`",
        hint=f"the partitions are {', '.join(f'`{n}`' for n in known[:_NAMED_MAX])}{more}",
    )


def left_alone(error: PlaitError, paths: Iterable[str]) -> dict[str, str]:
    """Files among `paths` that an error names, and why; raises it if it is about no one of them."""
    among = set(paths)
    found = {path: why for path, why in _by_file(error).items() if path in among}
    if not found:
        raise error
    return found


def skipped_of(left: Mapping[str, str]) -> tuple[Skipped, ...]:
    """Files that are left alone, for a report."""
    return tuple(Skipped(path, why) for path, why in sorted(left.items()))


def _groups_of(
    scope: Scope, compaction: Compaction, merge: Mapping[str, Any], known: _native.Known | None
) -> list[Group]:
    files, seen, whole = _seen(scope, merge, known, compaction)
    watching = compaction.watch.planning
    if seen is None:
        return []
    compaction.levels.update((file.path, file.merge_level) for file in seen.files)
    facts = [
        (first, last, file.bytes, looked.merge_level, _task(file, looked.merge_level), 0.0)
        for (first, last), file, looked in zip(_ranked(seen.files), files, seen.files, strict=True)
    ]
    unsorted = [i for i, looked in enumerate(seen.files) if not looked.is_sorted]
    asked = {"policy": compaction.options.policy_options, "files": facts, "unsorted": unsorted}
    groups = []
    chosen = json.loads(_native.choose(json.dumps(asked)))
    if compaction.options.on_duplicate != "keep_all":
        chosen = _in_order_of_age(chosen, [(first, last) for first, last, *_ in facts])
    taken = {i for indices in chosen for i in indices}
    live = [file.rows for file in seen.files]
    chosen += [[i] for i, f in enumerate(files) if f.is_worn(live[i]) and i not in taken]
    for indices in chosen:
        members = [files[i] for i in indices]
        if not set(unsorted).isdisjoint(indices):
            of_group = Look(seen.sort_by, tuple(seen.files[i] for i in indices))
            how = merge
            if Rules.of(None, merge).of_columns:
                # What is sorted first has no plan, but its footers say which columns it has.
                trusted = {**merge, "assume_sorted": True}
                how = {**_planned(members, trusted, known, watching)[1], "assume_sorted": False}
            groups.append(Group.of_look(scope, members, of_group, how))
            continue
        if whole is None or len(members) < len(files):
            planned, how = _planned(members, merge, known, watching)
        else:
            planned, how = whole
        groups.append(Group.of_plan(scope, members, planned, how))
    return groups


# A plan, and the arguments that it was made with.
_Planned = tuple[Plan, Mapping[str, Any]]


def _planned(
    files: Sequence[TableFile],
    merge: Mapping[str, Any],
    known: _native.Known | None,
    watching: OnProgress | None,
) -> _Planned:
    """Plans a merge: a table's rules may name columns that some of its files lack."""
    paths = [file.path for file in files]

    def plan_by(rules: Rules) -> _Planned:
        how = {**merge, **rules.options()}
        return plan_knowing(paths, how, known, watching), how

    return narrowing(plan_by, Rules.of(merge.get("on_duplicate"), merge))


def _seen(
    scope: Scope, merge: Mapping[str, Any], known: _native.Known | None, compaction: Compaction
) -> tuple[list[TableFile], Look | None, _Planned | None]:
    """The files of a partition that can be merged, what was seen of them, and the plan of all.

    Where files that are not sorted are errors, a plan sees enough of them; otherwise none is made.
    """
    left, unsorted = compaction.left, compaction.options.unsorted
    while True:
        files = [file for file in scope.files if file.path not in left]
        if not compaction.is_worth_a_look(files):
            return files, None, None
        paths = [file.path for file in files]
        try:
            watching = compaction.watch.planning
            if unsorted == "error":
                whole = _planned(files, merge, known, watching)
                return files, _look_of(whole[0]), whole
            # Keys are looked at, whatever becomes of rows that share one.
            bare = {**merge, "on_duplicate": "keep_all", **OF_COLUMNS, "unsorted": unsorted}
            seen = look(paths, bare, compaction.sorted, known, watching)
        except OF_A_FILE as error:
            left.update(left_alone(error, paths))
        except SchemaConflict as error:
            # A file that stays between others keeps rows of one key from being told apart by age.
            if compaction.options.on_duplicate != "keep_all":
                raise
            left.update(odd_ones(error, paths, merge["storage_options"]))
        else:
            compaction.sorted.update(file.path for file in seen.files if file.is_sorted)
            return files, seen, None


def _in_order_of_age(
    groups: Sequence[Sequence[int]], ends: Sequence[tuple[int, int]]
) -> list[list[int]]:
    """Groups with the files between theirs that may have rows of the same keys.

    An output is as new as its newest file. If a file in between with the same keys stayed out,
    older rows of the output would count as newer than its own. A group that shares a file with one
    before it waits for the next round.
    """
    made: list[list[int]] = []
    taken: set[int] = set()
    for group in groups:
        members = set(group)
        for i in range(min(members), max(members)):
            first, last = ends[i]
            if any(m < i and ends[m][0] <= last and first <= ends[m][1] for m in members):
                members.add(i)
        if taken.isdisjoint(members):
            taken |= members
            made.append(sorted(members))
    return made


def _look_of(whole: Plan) -> Look:
    ends = whole.to_dict()["sources"]
    files = (
        LookedFile(
            path=source.path,
            rows=source.rows,
            bytes=source.bytes,
            merge_level=source.merge_level,
            footer="",
            is_sorted=True,
            first=end["first"],
            last=end["last"],
        )
        for source, end in zip(whole.sources, ends, strict=True)
    )
    return Look(whole.sort_by, tuple(files))


def _ranked(files: Sequence[LookedFile]) -> list[tuple[int, int]]:
    """First and last key of each file as numbers in the order of keys."""
    ends = [(file.first or "", file.last or "") for file in files]
    keys = sorted({key for end in ends for key in end}, key=base64.b64decode)
    rank = {key: i for i, key in enumerate(keys)}
    return [(rank[first], rank[last]) for first, last in ends]


def _depth(ends: Sequence[tuple[int, int]]) -> int:
    """The most of the ranges that share one key."""
    firsts, lasts = sorted(first for first, _ in ends), sorted(last for _, last in ends)
    return max((bisect_right(firsts, at) - bisect_left(lasts, at) for at in firsts), default=0)


def _task(file: TableFile, merge_level: int) -> str:
    made = _MADE.search(file.path)
    return made[1] if made and merge_level else ""
