"""Compactions that come with appends: `maintain="auto"`.

    append of 1 MB ─▶ committed ─▶ policy: groups ─▶ those of 64 MB in all ─▶ merged, committed
                                                └──▶ larger ones wait for `compact`

Invariants: rows are live before anything is merged, and stay so if that fails. What is merged with
an append is bounded by its bytes, so that no append waits for all of a table.
Not here: which files a policy selects (`plait.table.survey`), the loop (`plait.table.run`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import SupportsIndex

from plait._logs.delta import DeltaLog
from plait._table_reports import AppendReport
from plait.errors import PlaitError
from plait.table.budget import Budget
from plait.table.delta import Delta
from plait.table.here import run_here
from plait.table.options import CompactOptions
from plait.table.run import compact_table

__all__ = ["maintained"]

# So many times the bytes of an append are merged with it, or so many bytes if that is more.
_TIMES = 16
_BYTES_MIN = 64 << 20


def maintained(
    log: DeltaLog, report: AppendReport, options: CompactOptions, threads: SupportsIndex | None
) -> AppendReport:
    """Compacts a table after an append, within a budget of bytes.

    Args:
        log: The log of the table.
        report: What was appended.
        options: How files are merged.
        threads: See `merge`.

    Returns:
        The report with what was merged, or with what went wrong with that.
    """
    table = _Appended(log.root, options.storage_options)
    options = replace(options, max_bytes=max(_TIMES * report.bytes, _BYTES_MIN))
    run, budget = run_here(options, threads), Budget(options, is_strict=True)
    try:
        done = compact_table(table, options, run, budget=budget)
    except PlaitError as error:
        # The rows are there; the next append tries again.
        return replace(report, problem=str(error))
    return replace(report, compacted=done) if done.groups else report


class _Appended(Delta):
    """A table that is not cast: that is work of `compact`, and has no bounds."""

    def __init__(self, root: str, storage_options: object) -> None:
        super().__init__(root, storage_options, guard=True)
        self._is_cast = True
