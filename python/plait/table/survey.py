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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait import _native
from plait._compact import OF_A_FILE, Skipped, left_alone
from plait._plan import Plan, plan_knowing
from plait.errors import PlaitError, UnknownColumn, UnsupportedKey

__all__ = [
    "Found",
    "Group",
    "Learn",
    "Scope",
    "TableFile",
    "groups_of_all",
    "learn_nothing",
    "skipped_of",
]

# Reads what planning will read of files, given their paths and the options of `plait.plan`.
Learn = Callable[[Sequence[str], Mapping[str, Any]], _native.Known | None]

# One file has none to be merged with.
_MERGED_MIN = 2

# What `plait.execute_task` names its outputs.
_MADE = re.compile(r"part-\d{5,}-([0-9a-f]{16})\.parquet$")


@dataclass(frozen=True)
class TableFile:
    """A data file.

    Attributes:
        name: What the table calls it.
        path: Where the engine reads it.
        rows: Its rows, if the table tells.
        bytes: Its bytes.
    """

    name: str
    path: str
    rows: int | None
    bytes: int


@dataclass(frozen=True)
class Scope:
    """Files that may be merged with one another: those of a partition, in tie order.

    Attributes:
        name: The partition, such as `day=1`; `""` without one.
        out: The folder that their outputs go to.
        files: The files.
    """

    name: str
    out: str
    files: tuple[TableFile, ...]


@dataclass(frozen=True)
class Group:
    """Files to merge, and the plan of it.

    Attributes:
        scope: Their partition.
        out: The folder of the outputs.
        files: The files, in the order that breaks ties.
        depth_max: The most of them that share one key.
        plan: How they are merged.
    """

    scope: str
    out: str
    files: tuple[TableFile, ...]
    depth_max: int
    plan: Plan = field(compare=False)

    @property
    def token(self) -> str:
        """What names the plan."""
        return str(self.plan.to_dict()["task"])


@dataclass(frozen=True)
class Found:
    """What there is to do: groups, files that are left alone, and the version looked at."""

    version: int
    groups: tuple[Group, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def learn_nothing(_paths: Sequence[str], _merge: Mapping[str, Any]) -> None:
    """Leaves reading to whoever plans."""


def groups_of_all(
    scopes: Sequence[Scope],
    policy: dict[str, Any],
    merge: dict[str, Any],
    learn: Learn,
    left: dict[str, str],
) -> tuple[Group, ...]:
    """The groups that a policy finds among the files of each partition.

    Args:
        scopes: The partitions.
        policy: The policy and its options, as the engine takes them.
        merge: Options of `plait.plan`.
        learn: Reads what planning needs.
        left: Files that are left alone, by path, and why. Gets those that cannot be planned.

    Returns:
        Groups of two and more files.

    Raises:
        UnknownColumn: No file has the sort column.
        PlaitError: Anything that planning a merge of the files raises of more than one file.
    """
    shared = [scope for scope in scopes if len(scope.files) >= _MERGED_MIN]
    known = learn([file.path for scope in shared for file in scope.files], merge)
    groups: list[Group] = []
    misfits: list[PlaitError] = []
    for scope in shared:
        try:
            groups += _groups_of(scope, policy, merge, known, left)
        except (UnknownColumn, UnsupportedKey) as error:  # noqa: PERF203 - a plan takes longer
            # The sort column is in no file of the partition.
            misfits.append(error)
            why = str(error).partition("\nhint: ")[0]
            left.update({file.path: why for file in scope.files})
    if misfits and len(misfits) == len(shared):
        raise misfits[0]
    return tuple(groups)


def skipped_of(left: Mapping[str, str]) -> tuple[Skipped, ...]:
    """Files that are left alone, for a report."""
    return tuple(Skipped(path, why) for path, why in sorted(left.items()))


def _groups_of(
    scope: Scope,
    policy: dict[str, Any],
    merge: dict[str, Any],
    known: _native.Known | None,
    left: dict[str, str],
) -> list[Group]:
    files, whole = _planned(scope, merge, known, left)
    if whole is None:
        return []
    data = whole.to_dict()
    ends = [(source["first"] or "", source["last"] or "") for source in data["sources"]]
    # The policy compares keys only with one another: their ranks do as well.
    keys = sorted({key for end in ends for key in end}, key=base64.b64decode)
    rank = {key: i for i, key in enumerate(keys)}
    facts = [
        (rank[first], rank[last], file.bytes, level, _task(file, level), 0.0)
        for (first, last), file, level in zip(
            ends, files, (source.merge_level for source in whole.sources), strict=True
        )
    ]
    chosen = json.loads(_native.choose(json.dumps({"policy": policy, "files": facts})))
    groups = []
    for places in chosen:
        members = tuple(files[i] for i in places)
        planned = whole
        if len(members) < len(files):
            planned = plan_knowing([file.path for file in members], merge, known)
        depth = planned.overlap.depth_max
        groups.append(Group(scope.name, scope.out, members, depth, planned))
    return groups


def _planned(
    scope: Scope, merge: dict[str, Any], known: _native.Known | None, left: dict[str, str]
) -> tuple[list[TableFile], Plan | None]:
    """The files of a partition that can be merged, and the plan of them, if they are several."""
    while True:
        files = [file for file in scope.files if file.path not in left]
        if len(files) < _MERGED_MIN:
            return files, None
        paths = [file.path for file in files]
        try:
            return files, plan_knowing(paths, merge, known)
        except OF_A_FILE as error:
            left.update(left_alone(error, paths))


def _task(file: TableFile, merge_level: int) -> str:
    made = _MADE.search(file.path)
    return made[1] if made and merge_level else ""
