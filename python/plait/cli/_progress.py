"""A bar on the terminal: bytes consumed, rate, time left."""

from __future__ import annotations

import shutil
import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from plait._text import human_bytes
from plait.report import Progress

if TYPE_CHECKING:
    from typing_extensions import Self

_BAR_COLUMNS_MAX = 30
_COLUMNS_MIN = 60
_RATE_AFTER_S = 0.5
_MINUTE_S = 60


class Bar:
    """Draws one line and rewrites it; wiped when the `with` block ends."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._started_s = time.monotonic()
        self._drawn = False

    @classmethod
    def on_terminal(cls, stream: TextIO, *, quiet: bool) -> Bar:
        """A bar on `stream` if that is a terminal; otherwise one that draws nothing."""
        return cls(stream if stream.isatty() and not quiet else None)

    def __call__(self, progress: Progress) -> None:
        """Draws the state."""
        if self._stream is None:
            return
        columns = shutil.get_terminal_size().columns
        line = bar_line(progress, time.monotonic() - self._started_s, columns)
        self._stream.write("\r\x1b[K" + line)
        self._stream.flush()
        self._drawn = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._drawn and self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def bar_line(progress: Progress, elapsed_s: float, columns: int) -> str:
    """One line of at most `columns` characters.

    Example:
        >>> bar_line(Progress(50_000_000, 100_000_000, 1000, "merge"), 2.0, 80)
        'merge [###############...............]  50%  50 MB/100 MB  25 MB/s  0:02 left'
    """
    done, total = progress.consumed_bytes, progress.total_bytes
    if total <= 0:
        return f"{progress.stage} ..."[:columns]
    part = min(done / total, 1.0)
    pieces = [f"{part:4.0%}", f"{human_bytes(done)}/{human_bytes(total)}"]
    if elapsed_s >= _RATE_AFTER_S and done > 0:
        rate = done / elapsed_s
        left_s = round((total - done) / rate)
        pieces += [f"{human_bytes(rate)}/s", f"{left_s // _MINUTE_S}:{left_s % _MINUTE_S:02} left"]
    bar = ""
    if columns >= _COLUMNS_MIN:
        filled = round(part * _BAR_COLUMNS_MAX)
        bar = "[" + "#" * filled + "." * (_BAR_COLUMNS_MAX - filled) + "] "
    return (f"{progress.stage} {bar}" + "  ".join(pieces))[: max(columns - 1, 1)]
