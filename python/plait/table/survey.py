"""Which files of a table to merge with one another.

files by partition ──▶ plan: first and last keys ──▶ policy ──▶ groups, each with its plan

Invariant: files are merged only with files of their partition.
Cost: one plan for a partition, and another for each group that is not all of it. What a plan reads
may have been read before, by others: see `Prefetch`.
Not here: what it finds (`groups`); the policies (`rust/core/src/policy`); folders, which the engine
surveys itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from plait import _native
from plait._native_call import OnProgress
from plait._plan import Plan, entries
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
from plait.table.groups import Compaction, Group, Scope, TableFile, merge_token, ranked
from plait.table.odd import odd_ones
from plait.table.sorting import Look, LookedFile, look

__all__ = [
    "OF_A_FILE",
    "groups_of_all",
    "left_alone",
    "no_partition",
    "of_partition",
    "partition_name",
    "wanted",
]

K = TypeVar("K")

# What is wrong with one file, and leaves others as they are.
OF_A_FILE = (UnsortedSource, CorruptSource, UnknownColumn, UnsupportedKey)

# So many partitions are named in an error.
_NAMED_MAX = 8


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
                options = {**merge, "sort_by": scope.sort_by}
                groups += _groups_of(scope, compaction, options, None)
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
        for (first, last), file, looked in zip(ranked(seen.files), files, seen.files, strict=True)
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
            # A file that stays between others hides which of the rows of a key is newest.
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
    files = (
        LookedFile(
            **{name: source[name] for name in ("path", "rows", "bytes", "merge_level")},
            footer="",
            is_sorted=True,
            first=source["first"],
            last=source["last"],
        )
        for source in entries(whole)
    )
    return Look(whole.sort_by, tuple(files))


def _task(file: TableFile, merge_level: int) -> str:
    return merge_token(file.path) if merge_level else ""
