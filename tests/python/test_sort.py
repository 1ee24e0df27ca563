"""Random files in any order against the oracle: concatenate, sort stably.

A case is made from its number alone; PLAIT_LONG runs 2,000, and a failure names the number:

    PLAIT_SORT_CASE=1234 pytest tests/python/test_sort.py
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from . import sort_cases, test_oracle

SEED = int(os.environ.get("PLAIT_SEED", "40"))
LONG = bool(os.environ.get("PLAIT_LONG"))
SMALL_CASES = int(os.environ.get("PLAIT_SORT_CASES", "1600" if LONG else "40"))
LARGE_CASES = int(os.environ.get("PLAIT_SORT_CASES", "400" if LONG else "12"))


def numbers(cases: int) -> Any:
    only = os.environ.get("PLAIT_SORT_CASE")
    return [int(only)] if only else range(cases)


# ---- small files: every type, nesting and option


def disorder(rng: random.Random, rows: list[dict]) -> list[dict]:
    """The rows in another order; sometimes in the same."""
    how = rng.choice(["sorted", "shuffled", "reversed", "late"])
    if how == "shuffled":
        return rng.sample(rows, len(rows))
    if how == "reversed":
        return rows[::-1]
    if how == "late" and len(rows) > 2:
        moved = rows.pop(rng.randrange(len(rows)))
        rows.insert(rng.randrange(len(rows)), moved)
    return rows


def small(number: int, folder: Path) -> None:
    rng = random.Random(f"{SEED}/{number}")
    schema, makers, key = test_oracle.random_schema(rng)
    sources = test_oracle.random_sources(rng, schema, makers, key)
    sources = [disorder(rng, rows) for rows in sources]
    count = 0
    for rows in sources:
        for row in rows:
            row["row"], count = count, count + 1
    paths = [folder / f"in-{i}.parquet" for i in range(len(sources))]
    for rows, path in zip(sources, paths, strict=True):
        test_oracle.write(rng, rows, schema, path)
    options = test_oracle.random_options(rng, key)
    sort_by = ", ".join(column.text() for column in key)
    report = plait.sort(paths, folder / "out", sort_by=sort_by, **options)
    outputs = test_oracle.read(report)
    got = [row for output in outputs for row in output]
    expected = test_oracle.oracle(sources, key)
    assert [row["row"] for row in got] == [row["row"] for row in expected]
    assert test_oracle.same(got, expected)
    test_oracle.check_outputs(outputs, key, options, report)
    assert report.rows_in == report.rows_out == len(expected)
    assert [source.path for source in report.sources] == [str(path) for path in paths]
    in_order = [test_oracle.oracle([rows], key) == rows for rows in map(list, sources)]
    unsorted = [str(p) for p, is_sorted in zip(paths, in_order, strict=True) if not is_sorted]
    assert set(unsorted) == set(report.sort.unsorted) or has_nan(sources)
    for output in report.outputs:
        assert pq.read_schema(output.path).equals(schema)
    sort_cases.assert_left(folder / "out", report)
    if rng.random() < 0.3:  # other threads: the same bytes
        other = {**options, "threads": 5 - options["threads"]}
        again = plait.sort(paths, folder / "threads", sort_by=sort_by, **other)
        assert test_oracle.digests(again) == test_oracle.digests(report)
    if rng.random() < 0.3:
        plait.verify([o.path for o in report.outputs], against=paths, sort_by=sort_by)


def has_nan(sources: list[list[dict]]) -> bool:
    """Whether rows are not equal to themselves, by Python's rules."""
    return any(row != row for rows in sources for row in rows) or "nan" in repr(sources)


def test_random_small_files_are_sorted_as_the_oracle_sorts_them(tmp_path):
    for number in numbers(SMALL_CASES):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        try:
            small(number, folder)
        except BaseException as error:
            error.add_note(f"PLAIT_SEED={SEED} PLAIT_SORT_CASE={number}")
            raise
        shutil.rmtree(folder)


# ---- large files: natural runs, late rows, loose rows


def random_options(rng: np.random.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {
        "memory_limit": str(rng.choice(["16MB", "64MB", "512MB"])),
        "threads": int(rng.integers(1, 3)),
    }
    some: list[dict[str, Any]] = [
        {"outputs": 3},
        {"target_rows": 7000},
        {"target_file_size": "200KB"},
        {"cut_on": 1, "outputs": 4},
        {"verify": "content"},
        {"sha256": True},
        {"copy_tiers": ()},
        {"copy_tiers": ("dict",)},
        {"copy_tiers": ("chunk", "page")},
        {"row_group_rows": 5000},
        {"compression": "snappy"},
        {"compression": "lz4"},
        {"dictionary": False},
        {"data_page_version": 2},
        {"trust_footers": False},
        {"bloom_filters": ["word"]},
        {"statistics": "none"},
    ]
    cuts = {"outputs", "target_rows", "target_file_size"}
    for i in rng.permutation(len(some))[: rng.integers(0, 3)]:
        # One rule says where outputs end.
        if not (cuts & options.keys() and cuts & some[i].keys()):
            options |= some[i]
    return options


def large(number: int, folder: Path) -> None:
    rng = np.random.default_rng([SEED, number])
    case = sort_cases.random_case(rng)
    paths = sort_cases.written(case.tables, folder / "in", rng)
    options = random_options(rng)
    try:
        report = plait.sort(paths, folder / "out", sort_by=case.sort_by, **options)
        sort_cases.assert_same(sort_cases.outputs(report), case.expected)
        plait.verify([o.path for o in report.outputs], against=paths, sort_by=case.sort_by)
        sort_cases.assert_left(folder / "out", report)
        check_codec(report, paths, options)
    except BaseException as error:
        error.add_note(f"PLAIT_SEED={SEED} PLAIT_SORT_CASE={number} {case.sort_by} {options}")
        raise


def check_codec(report: plait.MergeReport, paths: list[Path], options: dict[str, Any]) -> None:
    """Outputs have the codec that was asked for, or that of a source."""

    def codecs(files) -> set[str]:
        footers = [pq.read_metadata(file) for file in files]
        groups = [f.row_group(i) for f in footers for i in range(f.num_row_groups)]
        columns = [g.column(i) for g in groups for i in range(g.num_columns)]
        return {column.compression for column in columns if column.num_values}

    found = codecs(output.path for output in report.outputs)
    asked = options.get("compression")
    assert found <= ({asked.upper()} if asked else codecs(paths) | {"SNAPPY"} - {""}), found


@pytest.mark.long
def test_random_large_files_are_sorted_as_the_oracle_sorts_them(tmp_path):
    for number in numbers(LARGE_CASES):
        large(number, tmp_path / f"{number}")
        shutil.rmtree(tmp_path / f"{number}")


@pytest.mark.parametrize("kind", sort_cases.KINDS)
@pytest.mark.parametrize("name", sort_cases.TYPES)
@pytest.mark.slow
def test_every_type_of_key_is_sorted_stably(tmp_path, name, kind):
    rng = np.random.default_rng([SEED, 7])
    tables, ranks = [], []
    for file in range(2):
        keys = np.sort(rng.integers(0, 6000, 12_000))
        keys = keys[sort_cases.disturbed(kind, len(keys), rng)]
        rows = pa.array(np.arange(len(keys)))
        key = sort_cases.TYPES[name](keys)
        tables.append(pa.table({"k": key, "file": pa.array([file] * len(keys)), "row": rows}))
        ranks.append(keys)
    case = sort_cases.Case(tables, "k", np.argsort(np.concatenate(ranks), kind="stable"))
    paths = sort_cases.written(tables, tmp_path / "in", rng)
    report = plait.sort(paths, tmp_path / "out", sort_by="k", memory_limit="16MB")
    sort_cases.assert_same(sort_cases.outputs(report), case.expected)
    # Two rows of one key change places without a trace.
    unsorted = sum(bool((np.diff(keys) < 0).any()) for keys in ranks)
    assert len(report.sort.unsorted) == unsorted


def test_zeros_nan_and_nulls_of_floats_are_in_their_places(tmp_path):
    values = [float("nan"), 0.0, None, -0.0, float("-inf"), 1.5, float("nan"), 0.0, None, -1.0]
    table = pa.table({"k": pa.array(values, pa.float64()), "row": range(10)})
    pq.write_table(table, tmp_path / "a.parquet")
    report = plait.sort(tmp_path / "a.parquet", tmp_path / "o.parquet", sort_by="k")
    # Zeros of both signs are equal, and stay in their order; NaN is greatest.
    assert sort_cases.outputs(report)["row"].to_pylist() == [4, 9, 1, 3, 7, 5, 0, 6, 2, 8]
    report = plait.sort(tmp_path / "a.parquet", tmp_path / "d.parquet", sort_by="-k nulls first")
    assert sort_cases.outputs(report)["row"].to_pylist() == [2, 8, 0, 6, 5, 1, 3, 7, 9, 4]


def test_outputs_have_the_codec_of_the_sources_and_not_that_of_temp_files(tmp_path):
    # As many rows as a row group has: a sorted run could be copied whole.
    rng = np.random.default_rng(1)
    keys = rng.permutation(20_000)
    table = pa.table({"k": keys, "v": [f"v{i % 99}" for i in range(20_000)]})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    report = plait.sort(tmp_path / "a.parquet", tmp_path / "o", sort_by="k", row_group_rows=20_000)
    group = pq.read_metadata(report.outputs[0].path).row_group(0)
    assert [group.column(i).compression for i in range(2)] == ["ZSTD", "ZSTD"]
    assert report.copied["chunk"].rows == 0
    # An asked for codec that is that of temp files: still not their small pages.
    options = {"row_group_rows": 20_000, "compression": "lz4", "memory_limit": "16MB"}
    report = plait.sort(tmp_path / "a.parquet", tmp_path / "lz4", sort_by="k", **options)
    assert report.copied["chunk"].rows == report.copied["page"].rows == 0
