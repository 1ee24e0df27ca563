"""Merges of several groups at the same time, as far as threads and memory allow.

planned groups ──▶ small ones, with a share of threads and memory ──▶ a ▓▓▓ c ▓▓ e ▓▓▓▓
              └──▶ large ones, those that drop rows: not here         b ▓▓▓▓▓ d ▓▓▓

Invariants: what is made of groups is given in their order, on the caller's thread, and so is their
progress. Outputs do not depend on how many run at a time, and all of them stay within one memory
limit. No thread outlives the call.
Cost: a thread of Python for each merge that runs.
Not here: how many run, and which may (the engine: `merge/shared.rs`); what a merge does (`here`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from plait import _native
from plait._native_call import OnProgress, _call
from plait._plan import needs
from plait.report import MergeReport, Progress
from plait.table.groups import Group
from plait.table.progress import Watch, WatchedMerge

__all__ = ["GroupShare", "RunningGroups", "SharedGroups"]

if TYPE_CHECKING:
    from typing_extensions import Self

# How often progress is reported while merges run.
_POLL_S = 0.2

# One group has all threads.
_SHARED_MIN = 2


@dataclass(frozen=True)
class GroupShare:
    """What a merge has that runs next to others.

    Attributes:
        threads: Its threads.
        bytes: Its part of the memory limit.
    """

    threads: int
    bytes: int


class _Stopped(Exception):
    """The compaction ends: nobody waits for what a merge makes."""


# Merges a group with a share, telling how far it is.
MergeGroup = Callable[[Group, GroupShare, OnProgress], MergeReport]


@dataclass(frozen=True)
class SharedGroups:
    """Groups that share threads and memory.

    Attributes:
        groups: The groups.
        at_once: How many are merged at a time.
        each: What each of these has.
    """

    groups: tuple[Group, ...]
    at_once: int
    each: GroupShare

    @classmethod
    def of(cls, groups: Sequence[Group], threads: int | None) -> SharedGroups | None:
        """Those of groups that may be merged next to others; `None` if not even two may.

        Args:
            groups: Groups with a plan.
            threads: See `merge`.
        """
        if len(groups) < _SHARED_MIN:
            return None
        plans = [needs(group.plan, group.bytes) for group in groups]
        limit = plans[0]["options"]["memory_limit"]
        options = {"plans": plans, "threads": threads, "memory_limit": limit}
        found = _call(_native.share, options, None, None)
        shared = tuple(group for group, may in zip(groups, found["shares"], strict=True) if may)
        if len(shared) < _SHARED_MIN:
            return None
        return cls(shared, found["at_once"], GroupShare(found["threads"], found["share_bytes"]))


class RunningGroups:
    """Merges that run at the same time; gives what became of them in the order of their groups.

    Args:
        shared: How many run, and what each has.
        merge: Merges one group.
        watch: What is called with how far they are.
    """

    def __init__(self, shared: SharedGroups, merge: MergeGroup, watch: Watch) -> None:
        """Starts no thread yet."""
        self._shared = shared
        self._merge = merge
        self._watch = watch
        self._stop = Event()
        self._pool = ThreadPoolExecutor(shared.at_once, thread_name_prefix="plait-group")
        self._begun: deque[tuple[Group, WatchedMerge, Future[MergeReport]]] = deque()

    def __enter__(self) -> Self:
        """Nothing is merged yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stops merges that run, if any do, and waits for their threads."""
        self._stop.set()
        try:
            self._pool.shutdown(cancel_futures=True)
        finally:
            # Ctrl-C may end the first wait.
            self._pool.shutdown()

    def begin(self, group: Group) -> None:
        """Begins a merge, or has it wait for a thread."""
        watched = self._watch.begin(group.bytes)

        def told(progress: Progress) -> None:
            watched.last = progress
            if self._stop.is_set():
                raise _Stopped

        merge = partial(self._merge, group, self._shared.each, told)
        try:
            # Spans of the call are those of its merges, too.
            future = self._pool.submit(copy_context().run, merge)
        except RuntimeError:
            # No thread can be started, as when the interpreter ends.
            future = _called(merge)
        self._begun.append((group, watched, future))

    @property
    def has_begun(self) -> bool:
        """Whether merges were begun whose outcome nobody asked for."""
        return bool(self._begun)

    @property
    def is_full(self) -> bool:
        """Whether as many merges wait as run."""
        return len(self._begun) >= 2 * self._shared.at_once

    def first(self) -> tuple[Group, MergeReport | BaseException]:
        """What became of the merge that was begun first."""
        group, watched, future = self._begun[0]
        self._wait(future)
        self._watch.tell()
        self._begun.popleft()
        self._watch.end_of(watched)
        error = CancelledError() if future.cancelled() else future.exception()
        return group, future.result() if error is None else error

    def wait(self) -> None:
        """Waits until no merge runs."""
        for _, _, future in self._begun:
            self._wait(future)

    def cancel_waiting(self) -> None:
        """Cancels merges that have no thread yet."""
        for _, _, future in self._begun:
            future.cancel()

    def _wait(self, future: Future[MergeReport]) -> None:
        while not wait([future], timeout=_POLL_S).done:
            self._watch.tell()


def _called(merge: Callable[[], MergeReport]) -> Future[MergeReport]:
    """What a merge on this thread made."""
    future: Future[MergeReport] = Future()
    try:
        future.set_result(merge())
    except Exception as error:  # noqa: BLE001 - as on another thread
        future.set_exception(error)
    return future
