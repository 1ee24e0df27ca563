"""Compactions of tables with others in between: where the others come, and what must be left.

survey ─ work ─ made ─ looked ─ committed      the other commits at one of these
   └──────────── began ──────────────┘         or began at the first and commits after the last

`PLAIT_INTERLEAVINGS` says how many seeds are tried.
"""

from __future__ import annotations

import os
from collections import Counter

import plait
from plait.table.here import run_here
from plait.table.options import CompactOptions
from plait.table.run import compact_table

STAGES = ("survey", "work", "made", "looked", "stale")
SEEDS = range(int(os.environ.get("PLAIT_INTERLEAVINGS") or (15 if os.environ.get("CI") else 5)))


def run(table, options, stage, other, *, between):
    """Compacts, with `other` at a stage; gives the report, or the error.

    `between` names the method of `table` that is called between looking and committing.
    """
    waiting = [other]

    def now(at):
        if at == stage and waiting:
            waiting.pop()()

    work = run_here(options, threads=2)

    def staged(groups, watch):
        now("work")
        made = work(groups, watch)
        now("made")
        return made

    looked = getattr(table, between)

    def raced(*arguments):
        done = looked(*arguments)
        now("looked")
        return done

    setattr(table, between, raced)
    now("survey")
    try:
        report = compact_table(table, options, staged)
    except plait.PlaitError as error:
        report = error
    now("stale")
    # Nothing to compact: then the other comes alone.
    while waiting:
        waiting.pop()()
    return report


def disturb(monkeypatch, steps, act):
    """Calls `act` before and after every call of `steps`: classes, and names of their methods."""
    for owner, name in steps:
        step = getattr(owner, name)

        def disturbed(*args, step=step, **kwargs):
            act()
            made = step(*args, **kwargs)
            act()
            return made

        monkeypatch.setattr(owner, name, disturbed)


def counted(rows):
    """Rows as a multiset."""
    return Counter(map(tuple, rows))


def options(**changed):
    """What a compaction of overlapping files is told."""
    return CompactOptions(
        **{"sort_by": "k", "target_file_size": None, "memory_limit": "64MB", **changed}
    )
