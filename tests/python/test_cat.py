"""`plait cat`: rows on standard output, as people and programs read them."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .command_line import plait_command

ROWS = pa.table(
    {
        "ts": pa.array([dt.datetime(2024, 5, 1, 13, 0, 0, 500_000), None], pa.timestamp("us")),
        "at": pa.array([dt.datetime(2024, 5, 1, 13, tzinfo=dt.timezone.utc)] * 2),
        "day": pa.array([dt.date(2024, 5, 1), dt.date(1969, 12, 31)]),
        "price": pa.array([Decimal("12.30"), Decimal("-0.05")], pa.decimal128(9, 2)),
        "name": ['it\'s "x", y', "Zürich\n"],
        "bytes": pa.array([b"\x00\xff", None]),
        "tags": pa.array([{"host": "a", "n": [1, 2]}, None]),
    }
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "rows.parquet"
    pq.write_table(ROWS, path)
    return str(path)


def cat(*arguments: str) -> bytes:
    run = plait_command("cat", *arguments, text=False)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout


def test_a_table_shows_values_as_people_read_them(file: str) -> None:
    heading, first, second = cat(file).decode().splitlines()
    assert heading.split() == ROWS.column_names
    for text in ("2024-05-01 13:00:00.5", "2024-05-01 13:00:00+00:00", "12.30", "00ff"):
        assert text in first
    assert "2024-05-01" in first
    assert second.startswith("null")
    assert "1969-12-31" in second
    assert "-0.05" in second
    # A line break inside of a value must not look like another row.
    assert "Zürich\N{REPLACEMENT CHARACTER}" in second


def test_lines_of_json_have_types(file: str) -> None:
    first, second = map(json.loads, cat(file, "--format", "jsonl").decode().splitlines())
    assert first["name"] == 'it\'s "x", y'
    assert first["tags"] == {"host": "a", "n": [1, 2]}
    assert first["ts"].startswith("2024-05-01 13:00:00.5")
    assert second["ts"] is None
    assert second["tags"] is None
    assert Decimal(str(first["price"])) == Decimal("12.30")


def test_csv_is_read_by_others(file: str, tmp_path: Path) -> None:
    text = cat(file, "--format", "csv", "--columns", "day,price,name,ts").decode()
    heading, *rows = csv.reader(io.StringIO(text))
    assert heading == ["day", "price", "name", "ts"]
    assert rows[0][:3] == ["2024-05-01", "12.30", 'it\'s "x", y']
    assert rows[1] == ["1969-12-31", "-0.05", "Zürich\n", ""]
    stored = tmp_path / "rows.csv"
    stored.write_text(text)
    found = duckdb.sql(f"SELECT day, price FROM read_csv('{stored}')").fetchall()
    assert found[0][0] == dt.date(2024, 5, 1)


def test_arrow_is_a_stream_of_the_same_rows(file: str) -> None:
    found = pa.ipc.open_stream(cat(file, "--format", "arrow")).read_all()
    assert found.to_pylist() == ROWS.to_pylist()
    assert found.schema.types == ROWS.schema.types
    empty = pa.ipc.open_stream(
        cat(file, "--format", "arrow", "--where", "name = 'none'")
    ).read_all()
    assert (empty.num_rows, empty.column_names) == (0, ROWS.column_names)


def test_files_are_merged_tested_and_cut(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 1)):
        pq.write_table(pa.table({"k": range(first, 100, 2)}), tmp_path / f"{name}.parquet")
    folder = str(tmp_path)
    ask = (folder, "--sort-by", "k", "--format", "csv")
    assert cat(*ask, "--where", "k >= 10", "--limit", "3").decode().split() == [
        "k",
        "10",
        "11",
        "12",
    ]
    assert cat(*ask, "--reverse", "--limit", "2").decode().split() == ["k", "99", "98"]
    explained = cat(folder, "--sort-by", "k", "--explain", "--where", "k > 200").decode()
    assert "files       0 of 2" in explained
    assert len(cat(folder, "--sort-by", "k").decode().splitlines()) == 101


def test_several_files_without_an_order_are_refused(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    for path in paths:
        pq.write_table(pa.table({"k": [2, 1]}), path)
    assert cat(paths[0]).decode().split() == ["k", "2", "1"]
    run = plait_command("cat", *paths)
    assert run.returncode == 2
    assert "--sort-by" in run.stderr
    with pytest.raises(plait.InvalidArgument):
        plait.read(paths)


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": range(200_000)}), tmp_path / "a.parquet")
    command = f"{sys.executable} -m plait cat {tmp_path}/a.parquet --format csv | head -n 2"
    run = subprocess.run(command, shell=True, capture_output=True, check=False, text=True)
    assert (run.stdout.split(), run.stderr) == (["k", "0"], "")
