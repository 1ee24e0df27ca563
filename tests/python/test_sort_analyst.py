"""A folder of an analyst: 300 files by DuckDB, Polars and pandas, some sorted and some not."""

from __future__ import annotations

import datetime as dt
import random
import re
import subprocess
import sys

import pytest

import plait

duckdb = pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

FILES, ROWS = 300, 40
ORDER = ["customer", "day"]
START = dt.date(2024, 1, 1)


def sales(draw: random.Random) -> list[tuple[str, dt.date, float]]:
    """Rows of one file; their keys are few, so files share many."""
    return [
        (
            f"customer-{draw.randrange(50):02}",
            START + dt.timedelta(days=draw.randrange(366)),
            draw.randrange(10_000) / 4,
        )
        for _ in range(ROWS)
    ]


@pytest.fixture
def exports(tmp_path):
    """The folder, and how many of its files are in order."""
    draw, in_order = random.Random(20), 0
    folder = tmp_path / "exports"
    folder.mkdir()
    for i in range(FILES):
        # Every other file is sorted; a file of the rest is almost never.
        rows = sorted(sales(draw)) if i % 2 else sales(draw)
        in_order += [row[:2] for row in rows] == sorted(row[:2] for row in rows)
        path = str(folder / f"{i:03}.parquet")
        columns = dict(zip([*ORDER, "amount"], map(list, zip(*rows, strict=True)), strict=True))
        if i % 3 == 0:
            pl.DataFrame(columns).write_parquet(path)
        elif i % 3 == 1:
            pd.DataFrame(columns).to_parquet(path, index=False)
        else:
            frame = pl.DataFrame(columns)  # noqa: F841 - the query names it
            duckdb.sql("from frame").write_parquet(path)
    return folder, in_order


def test_one_command_sorts_what_is_not_sorted_and_merges_all(exports, tmp_path):
    folder, in_order = exports
    assert 140 <= in_order <= 160
    command = [sys.executable, "-m", "plait", "sort", str(folder), "--out", str(tmp_path / "sales")]
    ran = subprocess.run(
        [*command, "--sort-by", ", ".join(ORDER)], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    first, *lines = ran.stdout.splitlines()
    assert first == "merged 300 files into 1 file: 12,000 rows sorted by customer, day"
    (line,) = [line for line in lines if line.startswith("sort ")]
    told = re.fullmatch(
        r"sort +sorted ([\d,]+) rows of (\d+) files; (\d+) files were in order; (\d+) sorted runs?",
        line,
    )
    assert told, line
    assert (int(told[2]), int(told[3])) == (FILES - in_order, in_order)
    assert 0 < int(told[1].replace(",", "")) <= (FILES - in_order) * ROWS and int(told[4]) > 0
    (made,) = (tmp_path / "sales").glob("*.parquet")
    # Rows of one key stand in the order of the files, then of their rows.
    files = [duckdb.sql(f"from '{path}'").fetchall() for path in sorted(folder.iterdir())]
    expected = sorted((row for rows in files for row in rows), key=lambda row: row[:2])
    assert duckdb.sql(f"from '{made}'").fetchall() == expected
    assert plait.verify(made, against=str(folder)).ok
