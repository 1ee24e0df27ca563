"""What a sort says: report, progress, errors, plans, and the command line."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main

ROWS = 20_000


def write(path: Path, keys) -> str:
    keys = np.asarray(keys)
    pq.write_table(pa.table({"k": keys, "v": np.arange(len(keys))}), path)
    return str(path)


@pytest.fixture
def mixed(tmp_path) -> list[str]:
    """A sorted file, one in no order, and one of which a row is late."""
    late = np.arange(ROWS)
    late[[5_000, 12_000]] = late[[12_000, 5_000]]
    return [
        write(tmp_path / "sorted.parquet", range(ROWS)),
        write(tmp_path / "shuffled.parquet", np.random.default_rng(1).permutation(ROWS)),
        write(tmp_path / "late.parquet", late),
    ]


# ---- the report


def test_one_line_says_what_was_sorted_and_what_was_merged(mixed, tmp_path):
    report = plait.sort(mixed, tmp_path / "out", sort_by="k")
    assert report.sort.unsorted == tuple(mixed[1:])
    assert report.sort.rows == ROWS + 2
    line = "sorted 20,002 rows of 2 files; 1 file was in order; "
    found = [text for text in str(report).splitlines() if text.startswith("sort ")]
    assert len(found) == 1 and line in found[0]
    assert found[0].endswith(f"{report.sort.runs} sorted runs")
    assert line in report._repr_html_()
    told = report.to_dict()
    assert told["sort"] == {
        "unsorted": mixed[1:],
        "rows": ROWS + 2,
        "runs": report.sort.runs,
    }
    assert plait.MergeReport.from_dict(json.loads(json.dumps(told))) == report


def test_files_that_are_in_order_are_merged_and_nothing_is_spilled(mixed, tmp_path):
    report = plait.sort(mixed[0], tmp_path / "out", sort_by="k")
    assert (report.sort.unsorted, report.sort.rows, report.sort.runs) == ((), 0, 0)
    assert report.passes == 1
    assert "nothing sorted; 1 file was in order" in str(report)
    assert report.metrics.spilled_bytes == 0 == report.time.sort_s
    assert plait.merge(mixed[0], tmp_path / "m", sort_by="k").sort is None


def test_sorted_runs_count_as_spilled(mixed, tmp_path):
    few = plait.sort(mixed[2], tmp_path / "few", sort_by="k")
    many = plait.sort(mixed[1], tmp_path / "many", sort_by="k")
    size = os.path.getsize(mixed[1])
    assert size / 4 < many.metrics.spilled_bytes < 4 * size
    assert 0 < few.metrics.spilled_bytes < many.metrics.spilled_bytes / 10
    assert many.time.sort_s > 0


def test_sources_and_spans_are_those_of_the_files(mixed, tmp_path):
    report = plait.sort(mixed, tmp_path / "out", sort_by="k")
    assert [source.path for source in report.sources] == mixed
    assert [source.rows for source in report.sources] == [ROWS] * 3
    assert report.sources[0].span and report.sources[2].span
    # Nothing of a file in no order is left where it was; pictures do without it.
    alone = plait.sort(mixed[1], tmp_path / "alone", sort_by="k")
    assert alone.sources[0].span is None
    for each in (report, alone):
        assert "<svg" in each._repr_html_()
        assert each._picture().svg()


def test_pieces_behind_each_other_are_merged_and_not_sorted(tmp_path):
    keys = np.concatenate([np.arange(i, 3 * ROWS, 3) for i in range(3)])
    path = write(tmp_path / "pieces.parquet", keys)
    report = plait.sort(path, tmp_path / "out", sort_by="k")
    assert report.sort.unsorted == (path,) and report.sort.runs == 3
    assert report.sort.rows == 0 == report.metrics.spilled_bytes
    assert report.rows_out == 3 * ROWS


# ---- unsorted=


def test_skipping_names_what_is_left_out(mixed, tmp_path):
    report = plait.merge(mixed, tmp_path / "out", sort_by="k", unsorted="skip")
    assert report.sort.unsorted == tuple(mixed[1:])
    assert [source.path for source in report.sources] == mixed[:1]
    assert report.rows_in == report.rows_out == ROWS
    text = str(report)
    assert "nothing sorted; 1 file was in order; left out 2 files" in text
    assert f"left out, because not sorted: {mixed[1]}, {mixed[2]}" in text
    with pytest.raises(plait.UnsortedSource, match="no source is sorted by k") as caught:
        plait.merge(mixed[1:], tmp_path / "none", sort_by="k", unsorted="skip")
    assert 'unsorted="sort"' in caught.value.hint
    assert not (tmp_path / "none").exists()


def test_the_error_of_an_unsorted_source_names_the_option(mixed, tmp_path, capsys):
    with pytest.raises(plait.UnsortedSource) as caught:
        plait.merge(mixed[1], tmp_path / "out", sort_by="k")
    assert 'pass unsorted="sort"' in caught.value.hint
    assert main(["merge", mixed[1], "-o", str(tmp_path / "out"), "--sort-by", "k"]) == 3
    assert "pass --unsorted sort" in capsys.readouterr().err


def test_options_that_exclude_each_other_are_refused(mixed, tmp_path):
    with pytest.raises(plait.InvalidArgument, match="exclude each other"):
        plait.merge(mixed, tmp_path / "o", sort_by="k", unsorted="sort", assume_sorted=True)
    with pytest.raises(plait.InvalidArgument, match="unsorted"):
        plait.merge(mixed, tmp_path / "o", sort_by="k", unsorted="perhaps")
    for name in ("unsorted", "assume_sorted"):
        with pytest.raises(plait.InvalidArgument, match=f"no option `{name}`"):
            plait.sort(mixed, tmp_path / "o", sort_by="k", **{name: True})
    with pytest.raises(TypeError, match="nowhere"):
        plait.sort(mixed, tmp_path / "o", sort_by="k", nowhere=1)


def test_sort_takes_the_options_of_merge(mixed, tmp_path):
    """At their defaults they change nothing."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(plait.merge).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
        and name not in ("sort_by", "unsorted", "assume_sorted")
    }
    one = plait.sort(mixed, tmp_path / "one", sort_by="k")
    two = plait.sort(mixed, tmp_path / "two", sort_by="k", **defaults)
    assert [Path(o.path).name for o in one.outputs] == [Path(o.path).name for o in two.outputs]


# ---- plans


def test_a_plan_of_the_sorted_files_is_a_plan_like_any_other(mixed, tmp_path):
    other = write(tmp_path / "other.parquet", range(5, ROWS))
    plan = plait.plan([*mixed, other], tmp_path / "out", sort_by="k", unsorted="skip", outputs=2)
    assert [source.path for source in plan.sources] == [mixed[0], other]
    assert f"left out, because not sorted: {mixed[1]}, {mixed[2]}" in str(plan)
    report = plait.Plan.from_json(plan.to_json()).execute(tmp_path / "out")
    assert report.rows_out == 2 * ROWS - 5 and len(report.outputs) == 2
    assert any("left out" in warning for warning in report.warnings)


def test_a_plan_says_how_much_there_is_to_sort(mixed, tmp_path):
    assert plait.plan(mixed[0], sort_by="k", unsorted="sort").execute(tmp_path / "o").rows_out
    with pytest.raises(plait.Unsupported, match="2 of 3 files that are not sorted: 20002 of") as e:
        plait.plan(mixed, sort_by="k", unsorted="sort")
    assert 'unsorted="skip"' in e.value.hint


# ---- progress


@pytest.mark.parametrize("options", [{}, {"verify": "content"}, {"memory_limit": "16MB"}])
def test_progress_counts_what_is_sorted_and_never_more_than_all(tmp_path, options):
    rng = np.random.default_rng(2)
    told: list[plait.Progress] = []
    stages: list[str] = []
    # Progress is told a few times a second: a fast machine needs more rows to be seen sorting.
    for rows in (300_000, 1_200_000, 4_800_000):
        paths = []
        for i in range(3):
            table = pa.table({"k": rng.permutation(rows), "v": rng.random(rows)})
            paths.append(tmp_path / f"{i}.parquet")
            pq.write_table(table, paths[-1])
        told.clear()
        out = tmp_path / str(rows)
        plait.sort(paths, out, sort_by="k", threads=1, progress=told.append, **options)
        stages = list(dict.fromkeys(progress.stage for progress in told))
        if "sort" in stages:
            break
    assert "sort" in stages and stages[-1] in ("publish", "verify")
    assert all(p.consumed_bytes <= p.total_bytes for p in told)
    known = [p for p in told if p.total_bytes]
    assert {p.stage for p in known} >= {"sort"}, "the total is known while it sorts"
    shares = [p.consumed_bytes / p.total_bytes for p in known if p.stage == "sort"]
    # With little memory pages are read again, which nobody foresees.
    assert shares[0] < 0.75 or "memory_limit" in options, "the merge is still to come"
    # Two passes count rows twice.
    assert told[-1].rows_written in (3 * rows, 6 * rows)


# ---- the command line


def test_sort_prints_its_report(mixed, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert main(["sort", *mixed, "--sort-by", "k", "-o", out]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("merged 3 files into 1 file: 60,000 rows sorted by k\n")
    assert "sorted 20,002 rows of 2 files; 1 file was in order; " in printed.out
    assert printed.err == ""
    assert pq.read_table(out)["k"].to_pylist() == sorted([*range(ROWS)] * 3)


def test_sort_prints_json(mixed, tmp_path, capsys):
    out = str(tmp_path / "o.parquet")
    assert main(["sort", *mixed, "--sort-by", "-k", "-o", out, "--json", "--threads", "1"]) == 0
    report = plait.MergeReport.from_dict(json.loads(capsys.readouterr().out))
    assert report.sort.unsorted and (report.rows_out, report.outputs[0].path) == (60_000, out)


def test_merge_sorts_and_skips_if_told_to(mixed, tmp_path, capsys):
    for way, rows in (("sort", 3 * ROWS), ("skip", ROWS)):
        out = str(tmp_path / way)
        assert main(["merge", *mixed, "-o", out, "--sort-by", "k", "--unsorted", way]) == 0
        assert f"{rows:,} rows sorted by k" in capsys.readouterr().out
    assert main(["plan", *mixed, "--sort-by", "k", "--unsorted", "skip"]) == 0
    assert "left out, because not sorted" in capsys.readouterr().out
    assert main(["plan", *mixed, "--sort-by", "k", "--unsorted", "sort"]) == 3
    assert "--unsorted skip" in capsys.readouterr().err


def test_sort_has_the_options_of_merge_but_two(mixed, tmp_path, capsys):
    for option in ("--unsorted=sort", "--assume-sorted"):
        assert main(["sort", *mixed, "-o", str(tmp_path / "o"), "--sort-by", "k", option]) == 2
        capsys.readouterr()
    options = "--outputs 2 --verify content --sha256 --quiet".split()
    out = tmp_path / "o"
    assert main(["sort", *mixed, "-o", str(out), "--sort-by", "k", *options]) == 0
    assert capsys.readouterr() == ("", "")
    assert len(list(out.iterdir())) == 2
