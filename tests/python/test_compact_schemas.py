"""Compactions of folders whose files have several schemas."""

from __future__ import annotations

import itertools
import random

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .update_model import check, model, random_files, random_how, written


def folder_of(path, *tables):
    path.mkdir()
    for at, table in enumerate(tables):
        pq.write_table(pa.table(table), path / f"{at}.parquet")
    return path


def live(folder, **asked):
    return pa.table(plait.read(folder, sort_by="k", **asked))


def test_files_of_several_schemas_become_one(tmp_path):
    folder = folder_of(
        tmp_path / "in",
        {"k": pa.array([1, 5], pa.int32()), "a": ["x", "y"]},
        {"k": pa.array([2, 6], pa.int64()), "a": ["x", None], "n": pa.array([1, 2], pa.int16())},
        {"n": pa.array([7, None], pa.int64()), "k": pa.array([3, 2**40], pa.int64())},
        {"k": pa.array([4, 5], pa.int64()), "a": pa.array([1.5, 2.5])},
    )
    rows = [row for n in range(3) for row in pq.read_table(folder / f"{n}.parquet").to_pylist()]
    expected = sorted(({"a": None, "n": None} | row for row in rows), key=lambda row: row["k"])
    apart = plait.compact(folder, sort_by="k", policy="full", yes=False)
    assert len(apart.groups) == 4 or not apart.groups
    report = plait.compact(folder, sort_by="k", policy="full", across_schemas=True)
    assert [len(group.sources) for group in report.groups] == [3]
    made = [output for group in report.groups for output in group.outputs]
    table = pq.read_table(made[0])
    assert table.schema.field("k").type == table.schema.field("n").type == pa.int64()
    assert sorted(table.to_pylist(), key=lambda row: row["k"]) == expected
    found = duckdb.execute("select k from read_parquet(?) where a is null", [str(made[0])])
    assert sorted(found.fetchall()) == [(k["k"],) for k in expected if k["a"] is None]
    # The text of `a` is no number: that file stays as it is, and is live.
    assert (folder / "3.parquet").exists()
    assert "schemas" in str(report) or len(report.groups[0].sources) == 3


def test_schemas_keep_files_apart_unless_it_is_asked_for(tmp_path):
    folder = folder_of(
        tmp_path / "in", {"k": [1, 3], "a": [1, 1]}, {"k": [2, 4]}, {"k": [2, 5], "a": [1, 1]}
    )
    dry = plait.compact(folder, sort_by="k", yes=False)
    assert [len(group.sources) for group in dry.groups] == [2]
    dry = plait.compact(folder, sort_by="k", yes=False, across_schemas=True)
    assert [len(group.sources) for group in dry.groups] == [3]


def test_a_file_without_the_sort_column_stays_apart(tmp_path):
    folder = folder_of(tmp_path / "in", {"k": [1, 3]}, {"a": [2, 4]}, {"k": [2, 5], "a": [1, 1]})
    report = plait.compact(folder, sort_by="k", across_schemas=True)
    assert [len(group.sources) for group in report.groups] == [2]
    assert [skipped.path.rpartition("/")[2] for skipped in report.skipped] == ["1.parquet"]


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(
    "rules",
    [
        {"on_duplicate": "keep_last", "version_by": "v"},
        {"on_duplicate": "keep_last", "delete_where": "gone"},
        {"on_duplicate": "update", "delete_where": "gone", "replace_columns": ["a"]},
        {"on_duplicate": "update", "version_by": {"v": ["a"]}},
        {"on_duplicate": "aggregate", "aggregate": {"n": "sum", "a": "max"}},
    ],
    ids=str,
)
def test_rules_may_name_what_some_files_lack(tmp_path, rules, across):
    folder = folder_of(
        tmp_path / "in",
        {"k": [1, 2, 3], "a": [9, 9, 9]},
        {"k": [1, 2], "a": [None, 8]},
        {"k": [2, 3], "a": [1, None], "gone": [True, None], "n": [1, 2], "v": [1, 2]},
        {"k": [2, 4], "a": [2, 5], "gone": [False, None], "n": [3, None], "v": [0, 7]},
    )
    expected = live(folder, **rules)
    report = plait.compact(folder, sort_by="k", policy="full", across_schemas=across, **rules)
    assert report.groups
    assert live(folder, **rules).select(expected.column_names).equals(expected)


def test_a_column_of_no_file_is_refused(tmp_path):
    folder = folder_of(tmp_path / "in", {"k": [1], "a": [1]}, {"k": [1], "a": [2], "n": [1]})
    for rules in (
        {"on_duplicate": "keep_last", "delete_where": "gone"},
        {"on_duplicate": "aggregate", "aggregate": {"m": "sum"}},
        {"on_duplicate": "update", "version_by": {"v": ["a"]}},
    ):
        with pytest.raises(plait.UnknownColumn):
            plait.compact(folder, sort_by="k", policy="full", **rules)
    assert sorted(path.name for path in folder.iterdir()) == ["0.parquet", "1.parquet"]


@pytest.mark.few(6)
@pytest.mark.parametrize("history", range(24))
def test_folders_of_drifting_files_are_dictionaries(history, tmp_path):
    """Files arrive, and compactions across schemas run in between."""
    rng = random.Random(f"drifting {history}")
    files, lacking = random_files(rng, 30)
    how = random_how(rng, with_products=True)
    how.pop("drop_where", None)
    folder = tmp_path / "in"
    folder.mkdir()
    seen, have = [], set()
    for at, (rows, lacks) in enumerate(itertools.zip_longest(files, lacking)):
        written(rng, folder / f"{at:03}.parquet", rows, lacks)
        seen.append(rows)
        have |= set(how_columns(how)) - lacks
        if rng.random() < 0.6 and set(how_columns(how)) <= have:
            plait.compact(
                folder,
                sort_by="k, s",
                policy=rng.choice(["full", "overlap"]),
                across_schemas=rng.random() < 0.7,
                target_file_size=rng.choice([None, 3000]),
                **how,
            )
        if set(how_columns(how)) <= have:
            got = pa.table(plait.read(folder, sort_by="k, s", **how)).to_pylist()
            check(got, model(seen, how), history, at, how)


def how_columns(how):
    named = [*how.get("aggregate", {}), *how.get("replace_columns", ())]
    for version, of in how.get("version_by", {}).items():
        named += [version, *of]
    return named + [how[name] for name in ("delete_where",) if name in how]
