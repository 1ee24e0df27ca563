"""How far a compaction is: the progress of its merges as that of one call.

survey ──▶ "plan"   merge ──▶ what came before + what merges that run say   commit ──▶ "publish"

Invariants: a merge that has ended is counted once, whatever became of it. A callback is always
called on the caller's thread, and for the last time when all is committed.
Not here: the progress of one merge (the engine); bars on terminals (`plait.cli`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from plait._native_call import OnProgress
from plait.report import Progress

__all__ = ["Watch", "WatchedMerge"]


@dataclass
class WatchedMerge:
    """A merge that runs.

    Attributes:
        expected_bytes: What it will read, about.
        last: How far it is. Its thread may set it.
    """

    expected_bytes: int
    last: Progress = field(default_factory=lambda: Progress(0, 0, 0, "merge"))


class Watch:
    """Calls a callback with the progress of a compaction; does nothing without a callback.

    Args:
        progress: The callback. What it raises ends the compaction.
    """

    def __init__(self, progress: OnProgress | None = None) -> None:
        """Takes the callback."""
        self._progress = progress
        self._ended = Progress(0, 0, 0, "plan")
        self._running: list[WatchedMerge] = []
        self._expected_bytes = 0
        self._has_published = False

    @property
    def planning(self) -> OnProgress | None:
        """The callback for calls that survey files and plan merges."""
        if self._progress is None:
            return None
        # What planning reads is not among the bytes of a merge.
        return lambda _: self._tell(self._sum(0, 0, 0, "plan"))

    def expect(self, total_bytes: int) -> None:
        """Adds what merges that begin soon will read, about."""
        self._expected_bytes += total_bytes

    @contextmanager
    def merging(self, expected_bytes: int) -> Iterator[OnProgress | None]:
        """Gives the callback for one merge.

        Args:
            expected_bytes: The part of what was given to `expect` that this merge reads.
        """
        merge = self.begin(expected_bytes)

        def tell(progress: Progress) -> None:
            merge.last = progress
            self.tell()

        try:
            yield None if self._progress is None else tell
        finally:
            self.end_of(merge)

    def begin(self, expected_bytes: int) -> WatchedMerge:
        """Watches a merge that runs next to others, until `end_of`; see `merging`."""
        merge = WatchedMerge(expected_bytes)
        self._running.append(merge)
        return merge

    def end_of(self, merge: WatchedMerge) -> None:
        """Counts a merge that has ended."""
        self._running.remove(merge)
        # A merge that ended early reads no more.
        done = merge.last.consumed_bytes
        self._expected_bytes -= merge.expected_bytes
        self._ended = replace(
            self._ended,
            consumed_bytes=self._ended.consumed_bytes + done,
            total_bytes=self._ended.total_bytes + done,
            rows_written=self._ended.rows_written + merge.last.rows_written,
        )

    def tell(self) -> None:
        """Calls the callback with how far merges are."""
        last = [merge.last for merge in self._running]
        # While its plan is made, a merge does not know what it will read.
        more = sum(
            (of.total_bytes or merge.expected_bytes) - merge.expected_bytes
            for merge, of in zip(self._running, last, strict=True)
        )
        consumed = sum(of.consumed_bytes for of in last)
        rows = sum(of.rows_written for of in last)
        self._tell(self._sum(consumed, more, rows, last[0].stage if last else "merge"))

    def published(self) -> None:
        """Remembers that a commit was made."""
        self._has_published = True

    def end(self) -> None:
        """Calls the callback for the last time: whatever was made counts."""
        self._expected_bytes = 0
        self._tell(self._sum(0, 0, 0, "publish" if self._has_published else "plan"))

    def _sum(self, consumed: int, total: int, rows: int, stage: str) -> Progress:
        ended = self._ended
        return Progress(
            ended.consumed_bytes + consumed,
            ended.total_bytes + total + self._expected_bytes,
            ended.rows_written + rows,
            stage,
        )

    def _tell(self, progress: Progress) -> None:
        if self._progress is not None:
            self._progress(progress)
