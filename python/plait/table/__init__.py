"""Compacting tables: Delta, Iceberg, and the changes that are committed to them.

change     what is committed, and how it ends      run       look, merge, commit, look again
survey     which files                             folder, delta, iceberg   one kind of table each
statistics what the Delta log tells of a file

The same planner and committers serve `plait compact` on one machine and `plait.spark` on many.
"""

from plait.table._calls import compact_delta, compact_iceberg
from plait.table.change import Change, Committed, Committer, Conflicted, Retryable
from plait.table.run import TableReport

__all__ = [
    "Change",
    "Committed",
    "Committer",
    "Conflicted",
    "Retryable",
    "TableReport",
    "compact_delta",
    "compact_iceberg",
]
