"""Random histories of rows of one key, by `update` and by `aggregate`, against a dictionary.

files of random rows ─▶ merge, merge_streams, read, neighbours first ─┐
                    └─▶ model: a dictionary of keys ──────────────────┴─▶ the same rows
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

import plait

from .update_model import (
    SCHEMA,
    among,
    check,
    chunked,
    layout,
    model,
    random_files,
    random_how,
    rows_in,
    written,
)

HISTORIES = int(os.environ.get("PLAIT_UPDATES") or (150 if os.environ.get("CI") else 60))


@pytest.mark.few(12)
@pytest.mark.parametrize("history", range(HISTORIES))
def test_a_history_is_that_of_a_dictionary_through_every_door(history, tmp_path):
    rng = random.Random(f"updates {history}")
    is_large = history % 12 == 11
    files, lacking = random_files(rng, 1500 if is_large else 30)
    how = random_how(rng, with_products=not is_large)
    paths = [
        written(rng, tmp_path / f"{at}.parquet", rows, lacks)
        for at, (rows, lacks) in enumerate(zip(files, lacking, strict=True))
    ]
    expected = model(files, how)

    report = plait.merge(paths, tmp_path / "out", sort_by="k, s", **how, **layout(rng))
    check(rows_in(rng, [output.path for output in report.outputs]), expected, "merge", how)
    assert (
        report.rows_in
        == sum(map(len, files))
        == report.rows_out + sum(report.rows_dropped.values())
    )

    mixed = [
        path if rng.random() < 0.3 else chunked(rng, rows, lacks)
        for path, rows, lacks in zip(paths, files, lacking, strict=True)
    ]
    stream = plait.merge_streams(
        mixed, sort_by="k, s", batch_rows=rng.choice([1, 2, 7, 8192]), threads=2, **how
    )
    check(pa.table(stream).to_pylist(), expected, "merge_streams", how)
    assert sum(map(len, files)) == len(expected) + sum(stream.rows_dropped.values())

    for _ in range(4):
        check_read(rng, paths, how, expected)
    planned = plait.plan(paths, sort_by="k, s", target_rows=rng.choice([5, 1000]), **how)
    check(pa.table(plait.read(planned)).to_pylist(), expected, "read of a plan", how)
    if planned.tasks:
        task = rng.choice(planned.tasks)
        made = plait.execute_task(task.to_json(), tmp_path / "task")
        rows = rows_in(rng, [output.path for output in made.outputs])
        check(pa.table(plait.read(task)).to_pylist(), rows, "read of a task", how)
    for start in range(len(files) - 1):
        for end in range(start + 2, len(files) + 1):
            if is_large and rng.random() < 0.8:
                continue
            first = among(how, lacking[start:end])
            if first is not None:
                together = model(files[start:end], {**how, "keep_tombstones": True})
                keeps = {"keep_tombstones": True} if "delete_where" in how else {}
                made = tmp_path / f"{start}-{end}.parquet"
                plait.merge(
                    paths[start:end],
                    made,
                    sort_by="k, s",
                    **first,
                    **keeps,
                    **layout(rng) | {"target_rows": None},
                )
                check(rows_in(rng, [made]), together, "neighbours", start, end, how)
                rest = [*paths[:start], made, *paths[end:]]
                check(
                    pa.table(plait.merge_streams(rest, sort_by="k, s", **how)).to_pylist(),
                    expected,
                    "neighbours and the rest",
                    (start, end),
                    how,
                )


def check_read(rng, paths, how, expected):
    """A read of some of the rows and columns."""
    asked = {"reverse": rng.random() < 0.5, "memory_limit": rng.choice(["16MB", "512MB"])}
    asked["batch_rows"] = rng.choice([1, 5, 8192])
    where, holds = rng.choice(
        [
            (None, lambda row: True),
            ("k >= 1", lambda row: row["k"] is not None and row["k"] >= 1),
            ("n > 0", lambda row: row["n"] is not None and row["n"] > 0),
            ("text = 'a' AND yes = true", lambda row: row["text"] == "a" and row["yes"]),
            ("s IS NULL", lambda row: row["s"] is None),
        ]
    )
    rows = [row for row in expected if holds(row)]
    rows = rows[::-1] if asked["reverse"] else rows
    if rng.random() < 0.5:
        asked["limit"] = rng.randint(0, 10)
        rows = rows[: asked["limit"]]
    if rng.random() < 0.5:
        asked["columns"] = rng.sample(SCHEMA.names, rng.randint(1, 5))
        rows = [{name: row[name] for name in asked["columns"]} for row in rows]
    made = plait.read(paths, sort_by="k, s", where=where, **asked, **how)
    check(pa.table(made).to_pylist(), rows, "read", where, asked, how)


# ---- cases by hand
