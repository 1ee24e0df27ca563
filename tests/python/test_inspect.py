"""What `inspect` prints: within 100 columns whatever the schema, and what is known of the order."""

from __future__ import annotations

import datetime as dt
import unicodedata
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait._fit import shortened, width
from plait._text import Table
from plait.cli import main

LONG = "a_very_long_name_of_a_column_which_somebody_generated_from_a_path_" * 2
WIDE = "東京都の温度計の値" * 8
ODD = "a\nname\x1b[2Jwith\tcontrols"


def columns_of(line: str) -> int:
    """Columns on a terminal, counted without the code that is tested."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in line
    )


def table() -> pa.Table:
    """Forty columns and more: long names, long types, long values."""
    deep = pa.array([{"x" * 30: {"y" * 30: [{"z" * 30: 1}]}}] * 3)
    numbers = {f"{LONG}{i:02}": [10**17 + i] * 3 for i in range(40)}
    more = {
        "k": [1, 2, 3],
        WIDE: ["ü" * 90, "é" * 90, None],
        ODD: [1.5, 2.5, None],
        "decimal": pa.array([Decimal("1.50")] * 3, pa.decimal128(38, 10)),
        "at": pa.array(
            [dt.datetime(2024, 5, 1)] * 3, pa.timestamp("us", "America/Argentina/Ushuaia")
        ),
        "deep": deep,
        "bytes": [b"\x00\xff" * 50] * 3,
    }
    return pa.table({**more, **numbers})


def of_pyarrow(path: Path) -> None:
    made = table().replace_schema_metadata({"key " * 20: "value " * 50, "short": "v"})
    order = [pq.SortingColumn(0)]
    pq.write_table(made, path, row_group_size=2, sorting_columns=order, compression="zstd")


def of_duckdb(path: Path) -> None:
    made = table().drop_columns([ODD])
    connection = duckdb.connect()
    connection.register("made", made)
    connection.execute(f"COPY made TO '{path}' (FORMAT parquet, COMPRESSION brotli)")


def of_polars(path: Path) -> None:
    pl.from_arrow(table().drop_columns(["deep"])).write_parquet(path)


def of_plait(path: Path) -> None:
    of_pyarrow(path.with_name("source.parquet"))
    plait.merge(path.with_name("source.parquet"), path, sort_by="k", bloom_filters=["k"])


WRITERS = [of_pyarrow, of_duckdb, of_polars, of_plait]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    "options", [[], ["--pages"], ["--sort-by", f'k, "{LONG}00"', "--check-order"]]
)
def test_every_line_fits_whatever_the_schema(write, options, tmp_path, capsys):
    path = tmp_path / ("folder" * 20) / ("file" * 20 + ".parquet")
    path.parent.mkdir()
    write(path)
    assert main(["inspect", str(path), *options]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) > 100
    assert [line for line in lines if columns_of(line) > 100] == []
    # It is as wide as it may be, and shows where something is left out, in the middle.
    assert max(map(columns_of, lines)) > 90
    assert lines[0].startswith(str(tmp_path)[:20]) and "…" in lines[0] and " rows in " in lines[0]
    first = next(line for line in lines if "a_very_" in line and "00" in line)
    assert first.index("a_very_") < first.index("…") < first.index("00")


def test_nothing_is_left_out_of_what_fits(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": [1, 2], "name": ["a", "b"]}), path)
    text = str(plait.inspect(path, pages=True))
    assert "…" not in text.partition("\n")[2].partition("metadata")[0]
    header = next(line for line in text.split("\n") if "codec" in line).split()
    assert header[:4] == ["group", "column", "codec", "encodings"] and header[-1] == "page"
    assert "pages" not in next(
        line for line in str(plait.inspect(path)).split("\n") if "codec" in line
    )


def facts(report: plait.FileReport) -> dict[str, str]:
    return dict(report._page().facts)


def test_the_order_says_whether_it_is_declared_or_was_checked(tmp_path):
    path, wrong = tmp_path / "a.parquet", tmp_path / "wrong.parquet"
    order = [pq.SortingColumn(0)]
    pq.write_table(pa.table({"k": [1, 2], "v": [1, 1]}), path, sorting_columns=order)
    pq.write_table(pa.table({"k": [2, 1]}), wrong, sorting_columns=order)
    pq.write_table(pa.table({"k": [1]}), tmp_path / "none.parquet")
    declared = plait.inspect(path)
    assert (declared.declared, declared.sort_by) == ("k", "k")
    told = facts(declared)
    assert told["sorted by"] == "k"
    assert told["order"] == "declared in the footer, not checked by reading"
    told = facts(plait.inspect(path, check_order=True))
    assert told["order"] == "declared in the footer, checked by reading"
    given = plait.inspect(path, sort_by="v")
    assert (given.declared, given.sort_by) == ("k", "v")
    told = facts(given)
    assert "sorted by" not in told and told["keys by"] == "v"
    assert told["order"] == "given, not checked by reading; the footer declares k"
    told = facts(plait.inspect(tmp_path / "none.parquet", sort_by="k", check_order=True))
    assert told["sorted by"] == "k"
    assert told["order"] == "given, checked by reading; the footer declares none"
    told = facts(plait.inspect(wrong, check_order=True))
    assert "sorted by" not in told and told["not sorted by"] == "k"
    assert told["order"] == "declared in the footer, row 1 goes back"
    told = facts(plait.inspect(tmp_path / "none.parquet"))
    assert told["sorted by"] == "not declared in the footer" and "order" not in told


def test_text_is_shortened_in_the_middle_by_its_width():
    for text in ("abcdefghij", "東京都の温度計", "e\u0301" * 9):
        for columns in range(1, 20):
            made = shortened(text, columns)
            assert columns_of(made) == width(made) <= columns
            assert made == text or "…" in made
    assert shortened("service.name", 9) == "serv…name"


def test_a_table_that_fits_is_not_narrowed_and_numbers_stay_whole():
    made = Table(("name", "rows"), (("n" * 50, 123_456_789), ("m", 1)))
    assert made.text() == made.text(64) and "n" * 50 in made.text()
    lines = made.text(30).split("\n")
    assert lines[1].endswith("123,456,789") and {*map(len, lines)} == {30}


def test_types_are_in_the_words_of_pyarrow_and_the_format_has_its_own(tmp_path):
    table = pa.table(
        {
            "n": pa.array([1], pa.int64()),
            "b": pa.array([b"a"], pa.binary()),
            "f": pa.array([b"abc"], pa.binary(3)),
            "t": pa.array([1], pa.timestamp("ms")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    report = plait.inspect(tmp_path / "a.parquet")
    columns = report.row_groups[0].columns
    types = ["int64", "binary", "fixed_size_binary[3]", "timestamp[ms]"]
    assert [column.data_type for column in columns] == types
    assert columns[1].physical_type == "BYTE_ARRAY" and columns[1].logical_type is None
    shown = str(report).partition("message schema")[0]
    assert all(type_ in shown for type_ in types) and "BYTE_ARRAY" not in shown
