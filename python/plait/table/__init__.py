"""Compacting folders and tables: Delta, Iceberg, and the changes that are committed to them.

options    what every call takes              run       survey, merge, commit, survey again
here       merges in this process             groups_at_once   several small ones
change     what is committed, how it ends     commits   which groups are committed together
report     what was done                      folder, delta, iceberg   one kind of table each
expire     removes replaced files             survey    which files

One loop, planner and set of tables serve `plait.compact` on one machine and `plait.spark` on many.
"""

from plait.table._calls import compact_delta, compact_iceberg
from plait.table.change import Change, Committed, Committer, Conflicted, Retryable
from plait.table.options import CompactOptions
from plait.table.report import CompactReport

# The former name.
TableReport = CompactReport

__all__ = [
    "Change",
    "Committed",
    "Committer",
    "CompactOptions",
    "Conflicted",
    "Retryable",
    "TableReport",
    "compact_delta",
    "compact_iceberg",
]
