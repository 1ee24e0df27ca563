"""Outputs: names that are no folders, and which of them are oversized."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"k": [3, 2, 2, 2, 1]}), path)
    return path


@pytest.mark.parametrize(
    "name", ["o.csv", "o.JSON", "o.parquet.gz", "o.PARQUET", "o.Parquet", "deep/o.arrow", "o.pq"]
)
def test_an_output_that_looks_like_another_file_is_refused(source, tmp_path, name, capsys):
    out = tmp_path / name
    layers = [plait.Layer(source)]
    calls = [
        lambda: plait.merge(source, out, sort_by="-k"),
        lambda: plait.plan(source, sort_by="-k").execute(out),
        lambda: plait.overlay_files(layers, out, index="k"),
    ]
    for call in calls:
        with pytest.raises(plait.InvalidArgument, match=r"the output ends .*\n?.*"):
            call()
    assert main(["merge", str(source), "-o", str(out), "--sort-by=-k"]) == 2
    assert "end the path in `.parquet`" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.parquet"]
    # Who means a folder says so, or has one.
    assert plait.merge(source, f"{out}/", sort_by="-k").rows_out == 5
    assert out.is_dir()
    assert plait.merge(source, out, sort_by="-k", if_exists="add").rows_out == 5


@pytest.mark.parametrize("name", ["out", "v1.2", "date=2024.01.05", "sales.db", "o.d"])
def test_folders_with_dots_are_folders(source, tmp_path, name):
    plait.merge(source, tmp_path / name, sort_by="-k")
    assert (tmp_path / name).is_dir()


def test_outputs_are_oversized_by_number_as_by_rows(tmp_path):
    path = tmp_path / "ties.parquet"
    pq.write_table(pa.table({"k": [1, 2, 2, 2, 2, 2, 3, 4]}), path)
    for trust in (True, False):
        by_rows = plait.merge(
            path, tmp_path / f"r{trust}", sort_by="k", target_rows=2, trust_footers=trust
        )
        by_number = plait.merge(
            path, tmp_path / f"n{trust}", sort_by="k", outputs=4, trust_footers=trust
        )
        for report in (by_rows, by_number):
            assert [o.oversized for o in report.outputs if o.rows > 2] == [True]
            assert not any(o.oversized for o in report.outputs if o.rows <= 2)
    # A task alone knows the share as well.
    tasks = plait.plan(path, sort_by="k", outputs=4).tasks
    reports = [plait.execute_task(task.to_json(), tmp_path / "tasks") for task in tasks]
    assert [r.outputs[0].oversized for r in reports] == [r.rows_out > 2 for r in reports]
    even = plait.plan(path, sort_by="k", outputs=1).execute(tmp_path / "even.parquet")
    assert not even.outputs[0].oversized


def test_outputs_cut_by_keys_of_footers_are_not_oversized_by_chance(tmp_path):
    pq.write_table(pa.table({"k": range(400_000)}), tmp_path / "a.parquet")
    plait.merge(tmp_path / "a.parquet", tmp_path / "b.parquet", sort_by="k")
    report = plait.merge(tmp_path / "b.parquet", tmp_path / "out", sort_by="k", outputs=3)
    assert not any(output.oversized for output in report.outputs)
