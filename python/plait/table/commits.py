"""Which groups are replaced in one commit: those that are merged within an interval.

merged group ──▶ checked ──▶ waits ──┬─ min_commit_interval has passed ─▶ one commit ─▶ committed
                                     ├─ all are merged ─────────────────▶      │
                                     └─ an error ───────────────────────▶      ▼
                          others replaced a file, an output is gone: each by itself ─▶ or lost

Invariants: nothing waits when the context ends, but for Ctrl-C and for a store that fails, after
which what waits never counts. What is wrong with one group keeps no other from being committed.
Groups of which rows are dropped are committed apart from others, as logs say of a whole commit
whether rows changed.
Not here: how a table commits (`change`); what a runner merges at the same time (`here`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from plait import _native
from plait._native_call import _call
from plait.errors import InternalError, PlaitError, SourceChanged, SourceNotFound, StorageError
from plait.report import MergeReport, OutputReport
from plait.table.change import Change, Committed, Committer, commit
from plait.table.groups import Group
from plait.table.options import CompactOptions

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Commits", "Merged"]

# What a commit raises of one output.
_GONE = (SourceChanged, SourceNotFound)

_SAME_STORAGE = "whoever merges and whoever commits must see the same storage under one path"


@dataclass(frozen=True)
class Merged:
    """What was made of a group.

    Attributes:
        outputs: The files that were written.
        rows_dropped: How many rows did not stay, by reason.
        unsorted: The files that were sorted, by path.
    """

    outputs: tuple[OutputReport, ...] = ()
    rows_dropped: dict[str, int] = field(default_factory=dict)
    unsorted: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: MergeReport) -> Merged:
        """What a merge made."""
        unsorted = () if report.sort is None else report.sort.unsorted
        return cls(report.outputs, report.rows_dropped, unsorted)


@dataclass(frozen=True)
class _Waiting:
    group: Group
    made: Merged
    change: Change


class Commits:
    """Merged groups on their way into a table, as a context that commits what waits in the end.

    Args:
        table: The table.
        options: The options of the compaction.
        ended: Called for each group with whether it counts; if not, others replaced a file of it.
    """

    def __init__(
        self,
        table: Committer,
        options: CompactOptions,
        ended: Callable[[Group, Merged, bool], None],
    ) -> None:
        """Begins to count the time."""
        self._table, self._options, self._ended = table, options, ended
        self._waiting: list[_Waiting] = []
        self._since = time.monotonic()

    def add(self, group: Group, made: Merged) -> None:
        """Takes a group that is merged; commits it and those that wait, if it is time.

        Raises:
            SourceChanged: An output is not there.
            StorageError: An output is another one; or see `commit`.
            InternalError: Rows are missing.
        """
        _check(group, made, self._options.storage_options)
        change = Change(
            token=group.token([output.path for output in made.outputs]),
            added=made.outputs,
            replaced=tuple(file.name for file in group.files),
            scope=group.scope,
        )
        self._waiting.append(_Waiting(group, made, change))
        if time.monotonic() - self._since >= self._options.commit_interval_s:
            self._commit()

    def _commit(self) -> None:
        """Commits what waits."""
        waiting, self._waiting = self._waiting, []
        drop = [of for of in waiting if any(of.made.rows_dropped.values())]
        keep = [of for of in waiting if not any(of.made.rows_dropped.values())]
        errors: list[PlaitError] = []
        for together in filter(None, (keep, drop)):
            # Of several, one may be in the way.
            if not (len(together) > 1 and self._try(together, [])):
                for of in together:
                    self._try([of], errors)
        self._since = time.monotonic()
        if errors:
            raise errors[0]

    def _try(self, waiting: list[_Waiting], errors: list[PlaitError]) -> bool:
        """Whether it is known what became of groups; an output that is gone is an error."""
        try:
            ended = commit(self._table, [of.change for of in waiting])
        except _GONE as error:
            errors.append(error)
            return False
        is_done = isinstance(ended, Committed)
        if not is_done and len(waiting) > 1:
            return False
        for of in waiting:
            self._ended(of.group, of.made, is_done)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, Exception):
            self._commit()


def _check(group: Group, made: Merged, storage_options: object) -> None:
    """Checks that the outputs are here as they were written, and that no row is missing."""
    rows = sum(made.rows_dropped.values())
    for output in made.outputs:
        options = {"file": output.path, "pages": False, "sort_by": None, "check_order": False}
        try:
            found = _call(_native.inspect, options, storage_options, None)
        except SourceNotFound:
            what = "an output was removed meanwhile or is elsewhere, nothing was committed"
            raise SourceChanged.of(what, got=f"`{output.path}`", hint=_SAME_STORAGE) from None
        rows += found["rows"]
        if (found["rows"], found["bytes"]) != (output.rows, output.bytes):
            raise StorageError.of(
                "an output is not the one that was written",
                got=f"`{output.path}`: {found['rows']} rows, {found['bytes']} bytes, "
                f"instead of {output.rows} and {output.bytes}",
                hint=_SAME_STORAGE,
            )
    if rows != group.rows:
        raise InternalError.of(
            "rows are missing or too many; nothing was committed",
            got=f"{rows} rows of {group.rows} in `{group.out}`",
        )
