"""`plait join`: steps whose changes are in files, whatever goes wrong."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main

KEYS = ["--left-key", "o", "--foreign-key", "c", "--right-key", "c"]


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"o": [1, 2], "c": [7, 7]}), "left.parquet")
    pq.write_table(pa.table({"c": [7], "name": ["A"]}), "right.parquet")
    pq.write_table(pa.table({"c": [7], "name": ["B"]}), "renamed.parquet")
    first = ["--left", "left.parquet", "--right", "right.parquet", *KEYS, "-o", "first.parquet"]
    assert main(["join", *first, "--state", "s", "--json"]) == 0
    return tmp_path


def names(path: str) -> list:
    return pq.read_table(path)["name"].to_pylist()


def step_of(state: str) -> int | None:
    with plait.ForeignKeyJoin.restore(state) as join:
        return join.step


@pytest.mark.parametrize("out", ["out.csv", "first.parquet", "first.parquet/x.parquet"])
def test_a_step_whose_output_cannot_be_is_not_taken_or_can_be_had_again(shop, capsys, out):
    step = ["join", "--right", "renamed.parquet", "--state", "s"]
    assert main([*step, "-o", out]) != 0
    told = capsys.readouterr().err
    again = ["--step", "1"] if "--step 1 gives its changes again" in told else []
    assert bool(again) == (step_of("s") == 1), told
    assert names("first.parquet") == ["A", "A"]
    assert main([*step, *again, "-o", "second.parquet"]) == 0
    assert names("second.parquet") == ["B", "B"]


def test_outputs_are_replaced_only_when_asked_to(shop, capsys):
    table = ["join", "--state", "s", "--table", "table.parquet", "--json"]
    assert main(table) == 0
    step = ["join", "--right", "renamed.parquet", "--state", "s", "-o", "second.parquet"]
    assert main([*step, "--table", "table.parquet"]) != 0
    assert "error: `--table` is there already: got `table.parquet`" in capsys.readouterr().err
    assert step_of("s") == 0 and names("table.parquet") == ["A", "A"]
    assert main([*step, "--table", "table.parquet", "--replace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"changes": 2, "step": 1, "rows": 2}
    assert names("table.parquet") == ["B", "B"]


@pytest.mark.parametrize(
    "outputs",
    [["-o", "./renamed.parquet"], ["-o", "both.parquet", "--table", "both.parquet"]],
    ids=["a source", "one for both"],
)
def test_no_output_is_written_over_what_the_step_reads_or_writes(shop, outputs):
    step = ["join", "--right", "renamed.parquet", "--state", "s", "--replace", *outputs]
    assert main(step) == 2
    assert step_of("s") == 0 and names("renamed.parquet") == ["B"]


@pytest.mark.parametrize(
    "option", [["--how", "left"], ["--columns", "o"], ["--before"], ["--on-null-key", "drop"]]
)
def test_options_that_a_state_stores_are_not_ignored(shop, capsys, option):
    assert main(["join", "--left", "left.parquet", "--state", "s", *option]) == 2
    assert f"error: `{option[0]}` is that of the state" in capsys.readouterr().err
    # With the keys it is a join as asked for, which may say otherwise what it gives, not what joins.
    is_other = main(["join", "--left", "left.parquet", "--state", "s", *KEYS, *option]) != 0
    assert is_other == (option[0] == "--how")
