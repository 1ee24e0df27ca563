"""Merges of several groups at the same time, as far as threads and memory allow.

groups ──▶ a  b  c  D  e        a, b, c, e: about a second each     D: large, or drops rows
threads    a ▓▓▓ c ▓▓ │ D ▓▓▓▓▓▓▓ │ e ▓▓▓
           b ▓▓▓▓▓    │ D ▓▓▓▓▓▓▓ │

Invariants: what is made of groups is given in their order, on the caller's thread, and so is their
progress. Outputs are those of merges one after the other, and all of them stay within one memory
limit. No thread outlives the call.
Cost: a thread of Python for each merge that runs.
Not here: how many run, and which may (the engine: `merge/shared.rs`); what a merge does (`run`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, SupportsIndex

from plait import _native
from plait._native_call import OnProgress, _call
from plait._plan import needs
from plait.report import MergeReport, Progress
from plait.table.groups import Group
from plait.table.progress import Watch, WatchedMerge

__all__ = ["Share", "Shares", "Together"]

if TYPE_CHECKING:
    from typing_extensions import Self

# How often progress is told while merges run.
_POLL_S = 0.2


@dataclass(frozen=True)
class Share:
    """What a merge has that runs next to others.

    Attributes:
        threads: Its threads.
        bytes: Its part of the memory limit.
    """

    threads: int
    bytes: int


class _Stopped(Exception):
    """The compaction ends: nobody waits for what a merge makes."""


# Merges a group with a plan and a share, telling how far it is.
MergeOne = Callable[[Group, Share, OnProgress], MergeReport]


@dataclass(frozen=True)
class Shares:
    """How groups share threads and memory.

    Attributes:
        at_once: How many are merged at a time.
        each: What each of these has.
        together: Whether a group is merged next to others, in the order of the groups.
    """

    at_once: int
    each: Share
    together: tuple[bool, ...]

    @classmethod
    def of(cls, groups: Sequence[Group], threads: SupportsIndex | None) -> Shares | None:
        """Those of groups; `None` if each is merged alone.

        Args:
            groups: The groups. Those that are sorted, or of which no row stays, are merged alone.
            threads: See `merge`.
        """
        planned = [not (group.is_expired or group.unsorted) for group in groups]
        plans = [
            needs(group.plan, group.bytes)
            for group, is_planned in zip(groups, planned, strict=True)
            if is_planned
        ]
        if len(plans) < 2:  # noqa: PLR2004 - nobody to share with
            return None
        limit = plans[0]["options"]["memory_limit"]
        options = {"plans": plans, "threads": threads, "memory_limit": limit}
        found = _call(_native.share, options, None, None)
        may = iter(found["shares"])
        together = tuple(is_planned and next(may) for is_planned in planned)
        if sum(together) < 2:  # noqa: PLR2004
            return None
        each = Share(found["threads"], found["share_bytes"])
        return cls(found["at_once"], each, together)


class Together:
    """Merges that run at the same time; gives what became of them in the order of their groups.

    Args:
        shares: How many run, and what each has.
        merge: Merges one group.
        watch: What is called with how far they are.
    """

    def __init__(self, shares: Shares, merge: MergeOne, watch: Watch) -> None:
        """Starts no thread yet."""
        self._shares = shares
        self._merge = merge
        self._watch = watch
        self._stop = Event()
        self._pool = ThreadPoolExecutor(shares.at_once, thread_name_prefix="plait-group")
        self._begun: deque[tuple[Group, WatchedMerge, Future[MergeReport]]] = deque()

    def __enter__(self) -> Self:
        """Nothing is merged yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stops merges that run, if any do, and waits for their threads."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, group: Group) -> None:
        """Begins a merge, or has it wait for a thread."""
        watched = self._watch.begin(group.bytes)

        def told(progress: Progress) -> None:
            watched.last = progress
            if self._stop.is_set():
                raise _Stopped

        # Spans of the call are those of its merges, too.
        run = copy_context().run
        future = self._pool.submit(run, self._merge, group, self._shares.each, told)
        self._begun.append((group, watched, future))

    @property
    def is_full(self) -> bool:
        """Whether as many merges wait as run."""
        return len(self._begun) >= 2 * self._shares.at_once

    def __bool__(self) -> bool:
        """Whether merges were begun whose outcome nobody asked for."""
        return bool(self._begun)

    def wait(self) -> None:
        """Waits until no merge runs."""
        for _, _, future in self._begun:
            self._await(future)

    def first(self) -> tuple[Group, MergeReport | BaseException]:
        """What became of the merge that was begun first."""
        group, watched, future = self._begun[0]
        self._await(future)
        self._watch.tell()
        self._begun.popleft()
        self._watch.end_of(watched)
        error = future.exception()
        return group, future.result() if error is None else error

    def _await(self, future: Future[MergeReport]) -> None:
        while not wait([future], timeout=_POLL_S).done:
            self._watch.tell()
