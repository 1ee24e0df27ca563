"""What theory promises of each policy, in a shorter year of hourly batches with late rows.

Tiers: a row is written once when it comes and once a level, and a level has fewer files than the merge
factor (O'Neil et al. 1996; Dayan and Idreos 2018). `benches/python/year.py` compares all rows that are
read in the end with those that came.
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

BENCHES = Path(__file__).resolve().parents[2] / "benches" / "python"
MERGE_FACTOR, LATE_HOURS = 10, 168
pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def year():
    """The bench as a module."""
    sys.path.insert(0, str(BENCHES))
    import year

    yield year
    sys.path.remove(str(BENCHES))


def simulated(folder: Path, *arguments: object) -> dict[str, dict]:
    out = folder / "year.json"
    command = [sys.executable, BENCHES / "year.py", "--json", out, "--folder", folder, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


def check_tiers(run: dict) -> None:
    levels = math.ceil(math.log(run["hours"], MERGE_FACTOR))
    writes = (run["rows"] + run["rows_merged"]) / run["rows"]
    assert 2 < writes <= max(run["written"]) + 0.1 and max(run["written"]) <= 1 + levels
    # A level has nine files, and a tenth makes a file of the next; four batches wait.
    assert run["files_max"] <= (MERGE_FACTOR - 1) * levels + 4
    assert run["hour_max"] <= run["series_max"] <= MERGE_FACTOR * levels


@pytest.mark.long
def test_sixty_days_keep_to_what_theory_promises_of_each_policy(year, tmp_path):
    runs = simulated(tmp_path, "--days", 60)
    assert list(runs) == list(year.RUNS)
    hours, weeks = 60 * 24, 60 // 7
    for order in ("ts, name", "name, ts"):
        none, full = runs[f"none by {order}"], runs[f"full by {order}"]
        assert (none["files_max"], none["rows_merged"]) == (hours, 0)
        check_tiers(runs[f"size_tiered by {order}"])
        # The w-th merge writes the rows of w weeks: 1 + 2 + … + 8 of 60 / 7.
        merged = full["rows_merged"] / full["rows"]
        assert merged == pytest.approx(weeks * (weeks + 1) / 2 / (60 / 7), rel=0.03)
        assert (full["files_after_max"], full["files_max"]) == (1, 169)
    by_time = runs["overlap by ts, name"]
    assert by_time["depth_after_max"] == runs["overlap by name, ts"]["depth_after_max"] == 1
    # Rows are written again as long as late rows may come between them, once a day.
    span = by_time["span_max_h"]
    writes = (by_time["rows"] + by_time["rows_merged"]) / by_time["rows"]
    assert 5 < writes <= 3 + (LATE_HOURS + 2 * span) / 24
    assert by_time["hour_max"] <= 24 + 2
    # Where every file has all keys, that is everything.
    by_series = runs["overlap by name, ts"]
    merged = by_series["rows_merged"] / runs["full by name, ts"]["rows_merged"]
    assert merged == pytest.approx(1, rel=0.05)


@pytest.mark.long
def test_rows_that_expire_are_gone_and_levels_stay(tmp_path):
    name = "size_tiered, 90 days by ts, name"
    run = simulated(tmp_path, "--days", 130, "--only", name)[name]
    assert run["live_rows"] < 100 * 100 * 24 < run["rows"]
    assert run["files_max"] <= (MERGE_FACTOR - 1) * 4 + 4
    assert run["series_max"] <= MERGE_FACTOR * 4


@pytest.mark.long
def test_a_table_keeps_to_the_same_bounds_as_a_folder(year, tmp_path):
    names = [f"size_tiered by {order}" for order in year.ORDERS]
    for run in simulated(tmp_path, "--days", 60, "--door", "table", "--only", *names).values():
        check_tiers(run)


@pytest.mark.long
@pytest.mark.slow
def test_bounds_are_those_of_the_run_and_break_where_more_is_written(year, tmp_path):
    runs = simulated(tmp_path, "--days", 15)
    for told in runs.values():
        run = year.Run(**told)
        found = {bound.what: bound for bound in year.bounds(run)}
        assert all(bound.holds for bound in found.values()), found
        more = dataclasses.replace(run, rows_merged=run.rows_merged * 3 + 1)
        more.files_max, more.depth_after_max = 5 * run.files_max, run.depth_after_max + 1
        broken = {bound.what for bound in year.bounds(more) if not bound.holds}
        assert broken >= {"writes" if run.policy != "overlap" else "depth after"}, run.policy
