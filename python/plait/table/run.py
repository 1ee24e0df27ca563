"""The one loop of all compactions.

survey ──▶ budget ──▶ runner: here, or on executors ──▶ commits ──▶ survey
   │          │          └─ a file is unsorted or damaged: it stays, and is reported ──▲
   │          └─ nothing fits: what waits is reported                                  │
   └─ nothing to merge: the report                                                     │
                         others replaced a file, or committed first: lost, look again ─┘

Invariants: an output is live only by a commit, and a row is never in two live files. A commit that
is tried again is not done twice.
Not here: what a table is (`folder`, `delta`, `iceberg`); the runner of this process (`here`) and
that on executors (`plait.spark`); which groups come first (`budget`), and which are committed
together (`commits`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from operator import itemgetter
from time import sleep
from typing import Protocol

from plait._native_call import OnProgress
from plait._observe import watched
from plait.errors import (
    PlaitError,
    SourceChanged,
    SourceNotFound,
    StorageError,
    _by_file,
)
from plait.table.budget import Budget
from plait.table.change import Committer
from plait.table.commits import Commits, Merged
from plait.table.groups import Compaction, Found, Group, Prefetch, no_prefetch
from plait.table.options import CompactOptions
from plait.table.progress import Watch
from plait.table.report import CompactedGroup, CompactReport
from plait.table.survey import OF_A_FILE, left_alone

__all__ = [
    "FOR_ONE_GROUP",
    "Runner",
    "Table",
    "compact_table",
    "group_of",
]

# A policy of levels may go on with what it made; each round raises a level.
_ROUNDS_MAX = 64
# Rounds in a row in which others were always first.
_LOST_MAX = 16
# The first pause after such a round at most, and the longest, in seconds. Drawn at random: two
# compactions of the same files would else wait and lose in step.
_PAUSE_S, _PAUSE_MAX_S = 0.02, 1.0

# Others may have removed the file: then the group is lost.
_MOVED = (SourceChanged, SourceNotFound)
# Errors that end the merge of one group, and not the compaction.
FOR_ONE_GROUP = (*OF_A_FILE, *_MOVED)


# Merges groups; each with what was made of it, or with what went wrong with it alone.
Runner = Callable[[Sequence[Group], Watch], Iterable[tuple[Group, Merged | PlaitError]]]


class Table(Committer, Protocol):
    """What can be compacted."""

    format: str
    # Whether files may stay as they are, with others merged next to them.
    is_in_place: bool

    def survey(self, compaction: Compaction) -> Found:
        """What there is to merge now."""

    def leased(self, groups: Sequence[Group]) -> AbstractContextManager[Sequence[Group]]:
        """The groups to merge, with outputs that nobody removes while this lasts."""

    def is_live(self, group: Group) -> bool:
        """Whether all files of the group are live now."""


def compact_table(
    table: Table,
    options: CompactOptions,
    run: Runner,
    prefetch: Prefetch = no_prefetch,
    progress: OnProgress | None = None,
    *,
    budget: Budget | None = None,
) -> CompactReport:
    """Compacts a table until its policy finds nothing more, or the budget is spent.

    Args:
        table: The table.
        options: The options.
        run: Merges the groups of a round.
        prefetch: Reads what planning needs of many files.
        progress: Called a few times a second, and when all is committed. What it raises ends the
            compaction, after what is merged is committed.
        budget: How much is done; by default what the options say.

    Returns:
        What was done; in a dry run, what would be done first.

    Raises:
        StorageError: Others replaced the same files again and again.
        PlaitError: Anything that `merge` raises of more than one file.
    """
    options.check_format(table.format)
    watch = Watch(progress)
    with watched("compact") as call:
        limited = Budget(options) if budget is None else budget
        report = _compact(table, Compaction(options, prefetch, watch), run, limited)
        facts = {
            "groups": len(report.groups),
            "lost": report.lost,
            "sources": sum(len(group.sources) for group in report.groups),
        }
        call.done({**facts, "rows_dropped": report.rows_dropped})
    watch.end()
    return report


def _compact(table: Table, compaction: Compaction, run: Runner, budget: Budget) -> CompactReport:
    done: list[CompactedGroup] = []
    lost = lost_in_a_row = rounds = 0
    files: int | None = None
    while True:
        found = _survey(table, compaction)
        files = found.files if files is None else files
        chosen = budget.chosen(found.groups)
        if not (compaction.options.yes and chosen and rounds < _ROUNDS_MAX):
            break
        left_before = len(compaction.left)
        with table.leased(chosen) as groups:
            done_now, lost_now = _round(table, compaction, groups, run, budget)
        done += done_now
        lost += lost_now
        # To leave files alone is no round: it does not change how others are merged.
        if len(compaction.left) > left_before:
            continue
        rounds += 1
        is_lost = lost_now > 0 and not done_now
        lost_in_a_row = lost_in_a_row + 1 if is_lost else 0
        if lost_in_a_row == _LOST_MAX:
            raise StorageError.of(
                "others replace the files that are to be merged",
                got=f"`{table.name}`, {lost} times",
                hint="compact partitions that are not written to, or when less is written",
            )
        if is_lost:
            most = min(_PAUSE_MAX_S, _PAUSE_S * 2.0 ** (lost_in_a_row - 1))
            sleep(random.uniform(0, most))  # noqa: S311 - not a secret
    if not compaction.options.yes:
        done = [_described(group, Merged(unsorted=group.unsorted)) for group in chosen]
    return CompactReport(
        table=table.name,
        format=table.format,
        policy=compaction.options.policy,
        dry_run=not compaction.options.yes,
        groups=tuple(done),
        lost=lost,
        skipped=found.skipped,
        version=found.version,
        files_before=files,
        files=found.files,
        reasons=found.reasons,
        waiting=budget.waiting(found.groups, chosen),
    )


def _round(
    table: Table,
    compaction: Compaction,
    groups: Sequence[Group],
    run: Runner,
    budget: Budget,
) -> tuple[list[CompactedGroup], int]:
    """Merges and commits groups; those that count now, in their order, and how many are lost."""
    places = {id(group): place for place, group in enumerate(groups)}
    done: list[tuple[int, CompactedGroup]] = []
    lost = 0

    def ended(group: Group, made: Merged, is_done: bool) -> None:  # noqa: FBT001 - a callback
        nonlocal lost
        lost += not is_done
        if is_done:
            done.append((places[id(group)], _described(group, made)))
            compaction.watch.published()

    with (
        closing(_merged(groups, run, budget, compaction.watch)) as outcomes,
        Commits(table, compaction.options, ended) as commits,
    ):
        for group, made in outcomes:
            if isinstance(made, Merged):
                budget.spend(group)
                commits.add(group, made)
            elif _is_lost(table, compaction, group, made):
                budget.spend(group)
                lost += 1
            # A file that is left alone costs nothing: its group is looked at anew.
    return [group for _, group in sorted(done, key=itemgetter(0))], lost


def _merged(
    groups: Sequence[Group], run: Runner, budget: Budget, watch: Watch
) -> Generator[tuple[Group, Merged | PlaitError]]:
    """What became of groups, as far as there is time; whoever stops listening closes it."""
    for part in budget.parts(groups):
        yield from run(part, watch)


def _survey(table: Table, compaction: Compaction, moved: str | None = None) -> Found:
    """What there is to merge; again if others removed a file that was live, such as `moved`."""
    try:
        return table.survey(compaction)
    except _MOVED as error:
        # The next survey does not find it, unless it is live and gone.
        if error.path is None or error.path == moved:
            raise
        moved = error.path
    return _survey(table, compaction, moved)


def group_of(error: PlaitError, groups: Sequence[Group]) -> Group:
    """The group with the file that an error names; raises the error if it names none of them."""
    named = set(_by_file(error))
    for group in groups:
        if named & {file.path for file in group.files}:
            return group
    raise error


def _is_lost(table: Table, compaction: Compaction, group: Group, error: PlaitError) -> bool:
    """Whether others replaced files of the group; if not, what the error names is left alone."""
    if isinstance(error, OF_A_FILE) and table.is_in_place:
        compaction.left.update(left_alone(error, [file.path for file in group.files]))
        return False
    if isinstance(error, _MOVED) and not table.is_live(group):
        return True
    raise error


def _described(group: Group, made: Merged) -> CompactedGroup:
    return CompactedGroup(
        folder=group.scope,
        sort_by=group.sort_by,
        sources=tuple(file.path for file in group.files),
        rows=group.rows,
        bytes=group.bytes,
        depth_max=group.depth_max,
        outputs=tuple(output.path for output in made.outputs),
        bytes_out=sum(output.bytes for output in made.outputs),
        rows_dropped=made.rows_dropped,
        unsorted=made.unsorted,
    )
