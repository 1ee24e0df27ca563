"""A pipeline that joins changes step by step and hands what changed to a sink that commits.

Run as a program it is what the tests kill: `python join_driver.py STATE SINK`.
"""

from __future__ import annotations

import json
import sqlite3
import sys

import pyarrow as pa

import plait

STEPS = 14


def changes_of(step: int) -> tuple[pa.Table | None, pa.Table | None]:
    """The changes of a step: inserts, moves to other foreign keys, deletes, and none of one side."""
    ids = [(step * 7 + i * 3) % 40 for i in range(12)]
    ops = ["delete" if (step + i) % 5 == 4 else "upsert" for i in range(12)]
    left = pa.table({"id": ids, "fk": [(i + step) % 6 for i in ids], "v": [step] * 12, "_op": ops})
    right = pa.table(
        {
            "key": [step % 6, (step + 1) % 6],
            "name": [f"n{step}", f"m{step}"],
            "_op": ["upsert", "delete" if step % 3 == 2 else "upsert"],
        }
    )
    return (None if step % 7 == 6 else left), (None if step % 4 == 3 else right)


def open_join(state: str | None) -> plait.ForeignKeyJoin:
    left, right = changes_of(0)
    return plait.ForeignKeyJoin(
        left_key="id",
        foreign_key="fk",
        right_key="key",
        how="left",
        left_schema=left.schema,
        right_schema=right.schema,
        state=state,
    )


def deliver(sink: sqlite3.Connection, step: int, changes) -> None:
    """Writes the changes and the number of the step in one transaction."""
    rows = sorted(json.dumps(row) for row in pa.table(changes).to_pylist())
    with sink:
        sink.execute("insert into steps values (?)", (step,))
        sink.executemany("insert into changes values (?, ?)", [(step, row) for row in rows])


def open_sink(path: str) -> sqlite3.Connection:
    sink = sqlite3.connect(path)
    with sink:
        sink.execute("create table if not exists steps (step integer primary key)")
        sink.execute("create table if not exists changes (step integer, row text)")
    return sink


def run(state: str | None, sink_path: str) -> list[dict]:
    """Goes on where state and sink are, to the end; gives the joined table."""
    sink = open_sink(sink_path)
    with open_join(state) as join:
        (delivered,) = sink.execute("select max(step) from steps").fetchone()
        if join.step is not None and join.step != delivered:
            deliver(sink, join.step, join.apply(step=join.step))
        for step in range(0 if join.step is None else join.step + 1, STEPS):
            left, right = changes_of(step)
            deliver(sink, step, join.apply(left=left, right=right, step=step))
        table = pa.table(join.table()).sort_by("id").to_pylist()
    sink.close()
    return table


def delivered(sink_path: str) -> tuple[list[int], list[tuple[int, str]]]:
    """The steps that the sink has, and their changes, in order."""
    sink = open_sink(sink_path)
    steps = [step for (step,) in sink.execute("select step from steps order by step")]
    rows = list(sink.execute("select step, row from changes order by step, row"))
    sink.close()
    return steps, rows


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2])
