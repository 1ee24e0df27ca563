"""The runner of this process: merges the groups of a compaction.

groups ──▶ small ones, several at a time (`groups_at_once`) ──▶ Merged, or what went wrong
      └──▶ large ones, those to sort, those that drop rows: one by one ──▲

Invariants: what is wrong with one group ends no other. An error of more than one group comes after
the results of the others.
Not here: the loop (`run`); committing (`change`); the runner on executors (`plait.spark`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex

from plait._checks import _count
from plait._native_call import OnProgress
from plait._observe import logger
from plait._plan import Plan, sharing
from plait._planning import checked_options
from plait.errors import PlaitError, UnsortedSource
from plait.report import MergeReport
from plait.table.commits import Merged
from plait.table.groups import Group
from plait.table.groups_at_once import GroupShare, RunningGroups, SharedGroups
from plait.table.options import CompactOptions
from plait.table.progress import Watch
from plait.table.run import FOR_ONE_GROUP, Runner
from plait.table.sorting import sort_merge

__all__ = ["run_here"]

# So many groups are planned before they are merged: nothing else takes memory meanwhile.
_PLANNED = 32

_Outcome = tuple[Group, Merged | PlaitError]


def run_here(options: CompactOptions, threads: SupportsIndex | None) -> Runner:
    """The runner of this process.

    Args:
        options: How groups are merged.
        threads: See `merge`.
    """
    return _Here(options, _count(threads, "threads")).run


class _Here:
    def __init__(self, options: CompactOptions, threads: int | None) -> None:
        checked_options({"threads": threads})
        self._options = options
        self._threads = threads

    def run(self, groups: Sequence[Group], watch: Watch) -> Iterator[_Outcome]:
        watch.expect(sum(group.bytes for group in groups if not group.is_expired))
        if self._threads == 1:
            yield from (self._alone(group, watch) for group in groups)
            return
        for begin in range(0, len(groups), _PLANNED):
            yield from self._some(groups[begin : begin + _PLANNED], watch)

    def _some(self, groups: Sequence[Group], watch: Watch) -> Iterator[_Outcome]:
        """What became of some groups: first of those that are merged next to others."""
        shared = SharedGroups.of([group for group in groups if _is_planned(group)], self._threads)
        if shared is not None:
            with RunningGroups(shared, self._next_to_others, watch) as running:
                for group in shared.groups:
                    while running.is_full:
                        yield from self._ended(running, watch)
                    running.begin(group)
                while running.has_begun:
                    yield from self._ended(running, watch)
        done = set() if shared is None else set(map(id, shared.groups))
        yield from (self._alone(group, watch) for group in groups if id(group) not in done)

    def _ended(self, running: RunningGroups, watch: Watch) -> Iterator[_Outcome]:
        """What became of the merge that was begun first."""
        group, made = running.first()
        if isinstance(made, MergeReport):
            yield group, Merged.of(made)
        elif isinstance(made, UnsortedSource) and self._options.unsorted == "sort":
            # To sort takes the whole memory limit.
            running.wait()
            watch.expect(group.bytes)
            yield self._outcome(group, self._sorted, watch)
        elif isinstance(made, FOR_ONE_GROUP):
            yield group, made
        else:
            running.cancel_waiting()
            while running.has_begun:
                other, made_of_other = running.first()
                if isinstance(made_of_other, MergeReport):
                    yield other, Merged.of(made_of_other)
                elif isinstance(made_of_other, PlaitError):
                    logger.warning("compact: one more group failed: %s", made_of_other)
            raise made

    def _alone(self, group: Group, watch: Watch) -> _Outcome:
        if group.is_expired:
            return group, Merged((), {"expired": group.rows})
        return self._outcome(group, self._merged, watch)

    def _outcome(
        self, group: Group, merge: Callable[[Group, OnProgress | None], MergeReport], watch: Watch
    ) -> _Outcome:
        try:
            with watch.merging(group.bytes) as progress:
                return group, Merged.of(merge(group, progress))
        except FOR_ONE_GROUP as error:
            return group, error

    def _merged(self, group: Group, progress: OnProgress | None) -> MergeReport:
        if not group.unsorted:
            try:
                return self._executed(group, group.plan, self._threads, progress)
            except UnsortedSource:
                # A footer says that a file is sorted, and it is not.
                if self._options.unsorted != "sort":
                    raise
        return self._sorted(group, progress)

    def _sorted(self, group: Group, progress: OnProgress | None) -> MergeReport:
        paths = [file.path for file in group.files]
        how = {**group.merge, "threads": self._threads, "verify": self._options.verify}
        return sort_merge(paths, group.out, how, group.seen, progress)

    def _next_to_others(self, group: Group, share: GroupShare, progress: OnProgress) -> MergeReport:
        return self._executed(group, sharing(group.plan, share.bytes), share.threads, progress)

    def _executed(
        self, group: Group, plan: Plan, threads: int | None, progress: OnProgress | None
    ) -> MergeReport:
        how: dict[str, Any] = {"verify": self._options.verify, "if_exists": "add"}
        return plan.execute(group.out, threads=threads, progress=progress, **how)


def _is_planned(group: Group) -> bool:
    """Plans a group, unless it is sorted or no row of it stays; whether it could be planned."""
    if group.is_expired or group.unsorted:
        return False
    try:
        return group.plan is not None
    except FOR_ONE_GROUP:
        # It is planned again when its turn comes, and what is wrong is said then.
        return False
