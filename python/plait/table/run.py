"""The compaction of a table: look, merge, commit, look again.

survey ──▶ groups ──▶ work: here, or on executors ──▶ check ──▶ commit, group by group ──▶ survey

Invariant: nothing counts before its rows were counted, and nothing counts twice.
Not here: what a table is (`folder`, `delta`, `iceberg`); where work is done (`plait.spark`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, SupportsIndex

from plait import _native, _stores
from plait._api import _call, _settings
from plait._checks import POLICY_CHECKS, _choice, _flag
from plait._compact import (
    CHOICES,
    OF_A_FILE,
    CompactedGroup,
    CompactReport,
    Skipped,
    left_alone,
)
from plait._plan import checked_options
from plait._report import _PrintedReport
from plait._text import Page
from plait.errors import InternalError, InvalidArgument, PlaitError, StorageError, _by_file
from plait.order import sort_text
from plait.report import OutputReport
from plait.table.change import Change, Committed, Committer, commit
from plait.table.survey import Found, Group, Learn, learn_nothing

__all__ = ["How", "Table", "TableReport", "Where", "Work", "compact_table", "how", "work_here"]

# A policy of levels may go on with what it made; each round raises a level.
_ROUNDS_MAX = 64
# Rounds in a row in which others were always quicker.
_LOST_MAX = 5

# Partitions: the values that a partition column may have.
Where = Mapping[str, str | Sequence[str]]

# What becomes of a group: its outputs, or what is wrong with one of its files.
Made = tuple[OutputReport, ...] | PlaitError

# Makes the outputs of each group; in the order of the groups.
Work = Callable[[Sequence[Group]], Iterable[Made]]


class Table(Committer, Protocol):
    """What can be compacted."""

    format: str
    # Whether files may stay as they are, beside what is made of others.
    is_in_place: bool

    def survey(self, how: How) -> Found:
        """What there is to merge now."""

    def leased(self, groups: Sequence[Group]) -> AbstractContextManager[Sequence[Group]]:
        """The groups to work on, out of reach of whoever removes files while this lasts."""


@dataclass(frozen=True)
class How:
    """Checked options: `policy` as the engine takes them, `merge` as `plait.plan` takes them.

    `learn` reads what surveys and plans need of many files, where others can do that. `left` has
    the files that are left alone, by path, and why; it grows while a table is compacted.
    """

    policy: dict[str, Any]
    merge: dict[str, Any]
    where: dict[str, tuple[str, ...]]
    learn: Learn = field(default=learn_nothing, compare=False)
    left: dict[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class TableReport(_PrintedReport):
    """What a compaction of a table did, or would do.

    Attributes:
        table: The table.
        format: `"folder"`, `"delta"` or `"iceberg"`.
        policy: The policy.
        dry_run: Whether nothing was done.
        groups: Groups that were merged; in a dry run those that would be merged first.
        lost: How many groups others changed meanwhile: what was made of them does not count.
        skipped: Files that were left alone.
        version: The manifest, version or snapshot that counts.
    """

    table: str
    format: str
    policy: str
    dry_run: bool
    groups: tuple[CompactedGroup, ...]
    lost: int
    skipped: tuple[Skipped, ...]
    version: int

    def _page(self) -> Page:
        as_folder = CompactReport(
            folder=self.table,
            policy=self.policy,
            dry_run=self.dry_run,
            groups=self.groups,
            lost=self.lost,
            skipped=self.skipped,
            manifest=self.version,
        )
        return as_folder._page()  # noqa: SLF001 - one look for all compactions


# What each group is planned with, besides its order.
_MERGE = ("target_file_size", "compression", "memory_limit", "storage_options")


def how(given: Mapping[str, Any]) -> How:
    """The options of a compaction, checked; `given` are the arguments of the call, by name."""
    policy = given["policy"]
    if policy not in CHOICES["policy"]:
        choices = ", ".join(map(repr, CHOICES["policy"]))
        raise InvalidArgument.of(
            "`policy` has no such choice", got=f"`{policy!r}`", hint=f"give one of: {choices}"
        )
    sort_text(given["sort_by"])
    _choice(given["verify"], "verify")
    _flag(given["yes"], "yes")
    if not _stores.is_store(given["storage_options"]):
        _settings(given["storage_options"])
    # What is asked of merges, whether or not there is something to merge.
    asked = (name for name in (*_MERGE, "sort_by", "threads", "verify") if name in given)
    checked_options({name: given[name] for name in asked})
    return How(
        policy={
            "policy": policy,
            **{name: check(given[name], name) for name, check in POLICY_CHECKS.items()},
        },
        merge={name: given[name] for name in ("sort_by", *_MERGE)},
        where=_where(given["where"]),
    )


def compact_table(table: Table, options: How, *, yes: bool, work: Work) -> TableReport:
    """Compacts a table until its policy finds nothing more.

    Args:
        table: The table.
        options: What `how` gave.
        yes: Whether to do it.
        work: Merges the groups.

    Returns:
        What was done, or would be.

    Raises:
        StorageError: Others changed the same files again and again.
        PlaitError: Anything that `merge` raises.
    """
    done: list[CompactedGroup] = []
    lost = lost_in_a_row = rounds = 0
    while rounds < _ROUNDS_MAX:
        found = table.survey(options)
        if not yes or not found.groups:
            break
        lost_before, done_before, left_before = lost, len(done), len(options.left)
        with table.leased(found.groups) as groups:
            for group, outputs in _worked(work, groups):
                if isinstance(outputs, PlaitError):
                    if not table.is_in_place:
                        raise outputs
                    options.left.update(left_alone(outputs, [f.path for f in group.files]))
                    continue
                _check(group, outputs, options.merge.get("storage_options"))
                change = Change(
                    token=group.token,
                    added=outputs,
                    replaced=tuple(file.name for file in group.files),
                    scope=group.scope,
                )
                if isinstance(commit(table, change), Committed):
                    done.append(_described(group, outputs))
                else:
                    lost += 1
        if len(options.left) > left_before:
            continue
        rounds += 1
        is_lost = lost > lost_before and len(done) == done_before
        lost_in_a_row = lost_in_a_row + 1 if is_lost else 0
        if lost_in_a_row == _LOST_MAX:
            raise StorageError.of(
                "others change the files that are to be merged",
                got=f"`{table.name}`, {lost} times",
                hint="compact partitions that are not written to, or when less is written",
            )
    if not yes:
        done = [_described(group, ()) for group in found.groups]
    return TableReport(
        table=table.name,
        format=table.format,
        policy=options.policy["policy"],
        dry_run=not yes,
        groups=tuple(done),
        lost=lost,
        skipped=found.skipped,
        version=found.version,
    )


def work_here(
    *, threads: SupportsIndex | None, verify: Literal["content"] | None, storage_options: object
) -> Work:
    """Work that is done in this process, one group after the other."""

    def work(groups: Sequence[Group]) -> Iterator[Made]:
        for group in groups:
            try:
                yield group.plan.execute(
                    group.out,
                    threads=threads,
                    verify=verify,
                    if_exists="add",
                    storage_options=storage_options,
                ).outputs
            except OF_A_FILE as error:  # noqa: PERF203 - a merge takes longer
                yield error

    return work


def _worked(work: Work, groups: Sequence[Group]) -> Iterator[tuple[Group, Made]]:
    """Groups and what becomes of them; if a job failed for one file, that file's group alone."""
    try:
        yield from zip(groups, work(groups), strict=True)
    except OF_A_FILE as error:
        named = set(_by_file(error))
        mine = [group for group in groups if named & {file.path for file in group.files}]
        if not mine:
            raise
        yield mine[0], error


def _check(group: Group, outputs: tuple[OutputReport, ...], storage_options: object) -> None:
    """That the outputs are where this process sees them, and that no row is missing."""
    rows = 0
    for output in outputs:
        options = {"file": output.path, "pages": False, "sort_by": None, "check_order": False}
        found = _call(_native.inspect, options, storage_options, None)
        rows += found["rows"]
        if (found["rows"], found["bytes"]) != (output.rows, output.bytes):
            raise StorageError.of(
                "an output is not the one that was written",
                got=f"`{output.path}`: {found['rows']} rows, {found['bytes']} bytes, "
                f"instead of {output.rows} and {output.bytes}",
                hint="executors and driver must see the same storage under the same path",
            )
    if rows != group.plan.rows:
        raise InternalError.of(
            "rows are missing or too many; nothing was committed",
            got=f"{rows} rows of {group.plan.rows} in `{group.out}`",
        )


def _described(group: Group, outputs: tuple[OutputReport, ...]) -> CompactedGroup:
    return CompactedGroup(
        folder=group.scope,
        sort_by=group.plan.sort_by,
        sources=tuple(file.path for file in group.files),
        rows=group.plan.rows,
        bytes=sum(file.bytes for file in group.files),
        depth_max=group.depth_max,
        outputs=tuple(output.path for output in outputs),
        bytes_out=sum(output.bytes for output in outputs),
    )


def _where(where: object) -> dict[str, tuple[str, ...]]:
    if where is None:
        return {}
    checked = {}
    for column, values in where.items() if isinstance(where, Mapping) else ((None, None),):
        texts = (values,) if isinstance(values, str) else values
        if not (
            isinstance(column, str)
            and isinstance(texts, Sequence)
            and all(isinstance(text, str) for text in texts)
        ):
            raise InvalidArgument.of(
                "`where` does not name partitions",
                got=f"`{where!r}`",
                hint='give {"day": "2024-05-01"} or {"day": ["2024-05-01", "2024-05-02"]}',
            )
        checked[column] = tuple(texts)
    return checked
