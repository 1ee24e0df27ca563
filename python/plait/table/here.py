"""The runner of this process: merges the groups of a compaction.

groups ──▶ small ones, several at a time (`at_once`) ──▶ Merged, or what went wrong with a group
      └──▶ large ones, those to sort, those that drop rows: one by one ──▲

Invariants: what became of groups is given in their order. An error of more than one group comes
after what was made of others.
Not here: the loop (`run`); committing (`change`); the runner on executors (`plait.spark`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex

from plait._native_call import OnProgress
from plait._plan import Plan, sharing
from plait._planning import checked_options
from plait.errors import PlaitError, UnsortedSource
from plait.report import MergeReport
from plait.table.at_once import Share, Shares, Together
from plait.table.groups import Group
from plait.table.options import CompactOptions
from plait.table.progress import Watch
from plait.table.run import FOR_ONE_GROUP, Merged, Runner
from plait.table.sorting import sort_merge

__all__ = ["run_here"]

_Outcome = tuple[Group, Merged | PlaitError]


def run_here(options: CompactOptions, threads: SupportsIndex | None) -> Runner:
    """The runner of this process.

    Args:
        options: How groups are merged.
        threads: See `merge`.
    """
    checked_options({"threads": threads})
    return _Here(options, threads).run


class _Here:
    def __init__(self, options: CompactOptions, threads: SupportsIndex | None) -> None:
        self._options = options
        self._threads = threads

    def run(self, groups: Sequence[Group], watch: Watch) -> Iterator[_Outcome]:
        watch.expect(sum(group.bytes for group in groups if not group.is_expired))
        shares = Shares.of(groups, self._threads)
        if shares is None:
            yield from (self._alone(group, watch) for group in groups)
            return
        with Together(shares, self._next_to_others, watch) as together:
            for group, is_together in zip(groups, shares.together, strict=True):
                while together and (together.is_full or not is_together):
                    yield from self._ended(together, watch)
                if is_together:
                    together.begin(group)
                else:
                    yield self._alone(group, watch)
            while together:
                yield from self._ended(together, watch)

    def _ended(self, together: Together, watch: Watch) -> Iterator[_Outcome]:
        """What became of the merge that was begun first."""
        group, made = together.first()
        if isinstance(made, MergeReport):
            yield group, Merged.of(made)
        elif isinstance(made, UnsortedSource) and self._options.unsorted == "sort":
            # To sort takes the whole memory limit.
            together.wait()
            watch.expect(group.bytes)
            yield self._alone(group, watch)
        elif isinstance(made, FOR_ONE_GROUP):
            yield group, made
        else:
            while together:
                other, made_of_other = together.first()
                if isinstance(made_of_other, MergeReport):
                    yield other, Merged.of(made_of_other)
            raise made

    def _alone(self, group: Group, watch: Watch) -> _Outcome:
        if group.is_expired:
            return group, Merged((), {"expired": group.rows})
        try:
            with watch.merging(group.bytes) as progress:
                return group, Merged.of(self._merged(group, progress))
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
        paths = [file.path for file in group.files]
        how = {**group.merge, "threads": self._threads, "verify": self._options.verify}
        return sort_merge(paths, group.out, how, group.seen, progress)

    def _next_to_others(self, group: Group, share: Share, progress: OnProgress) -> MergeReport:
        return self._executed(group, sharing(group.plan, share.bytes), share.threads, progress)

    def _executed(
        self, group: Group, plan: Plan, threads: SupportsIndex | None, progress: OnProgress | None
    ) -> MergeReport:
        how: dict[str, Any] = {"verify": self._options.verify, "if_exists": "add"}
        return plan.execute(group.out, threads=threads, progress=progress, **how)
