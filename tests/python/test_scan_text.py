"""Scans of JSON lines and CSV: one schema with Parquet files, file columns, errors with file and row.

DuckDB and Python's own readers say what is in the files.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _text_files


def lines(path: Path, rows, *, opener=open) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opener(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def commas(path: Path, names, rows, *, opener=open) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opener(path, "wt", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(names)
        writer.writerows(rows)
    return path


def rows_of(scan) -> list[dict]:
    return pa.table(scan).to_pylist()


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(_text_files, "_BLOCK_BYTES", 256)


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz"])
@pytest.mark.usefixtures("small_blocks")
def test_json_lines_are_what_pythons_reader_and_duckdb_read(tmp_path, name):
    draw = random.Random(name)
    rows = [
        {
            "id": i,
            "price": draw.choice([1, 1.5, None]),
            "tags": draw.choice([[], ["a", "b"], None]),
            "at": {"host": f"h{i % 3}", "load": draw.choice([None, 2])},
            "note": draw.choice(["2024-01-01 00:00:00", "x" * draw.randrange(400), "ü"]),
        }
        for i in range(300)
    ]
    path = lines(tmp_path / name, rows, opener=gzip.open if name.endswith("gz") else open)
    scan = plait.scan(path)
    assert str(pa.schema(scan).field("price").type) == "double"
    assert pa.schema(scan).field("note").type == pa.string()
    assert rows_of(scan) == rows
    # A scan of files can be read again.
    assert rows_of(scan) == rows
    query = f"select id, price, struct_extract(\"at\", 'host'), note from read_json('{path}', format='newline_delimited')"
    told = duckdb.sql(query).fetchall()
    mine = [(r["id"], r["price"], r["at"]["host"], r["note"]) for r in rows_of(scan)]
    assert [(i, p, h, str(n)) for i, p, h, n in told] == [(*row[:3], row[3]) for row in mine]
    assert scan.report.rows_known == 300


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.usefixtures("small_blocks")
def test_csv_is_what_pythons_reader_and_duckdb_read(tmp_path, name):
    draw = random.Random(name)
    rows = [
        (i, draw.choice(["", 2.5, -1]), draw.choice(["x,y", 'q"', "two\nlines", "z"]), "2024-02-29")
        for i in range(200)
    ]
    opener = gzip.open if name.endswith("gz") else open
    path = commas(tmp_path / name, ["id", "price", "text", "day"], rows, opener=opener)
    scan = plait.scan(path)
    kinds = [str(field.type) for field in pa.schema(scan)]
    assert kinds == ["int64", "double", "string", "date32[day]"]
    assert [(r["id"], r["price"], r["text"]) for r in rows_of(scan)] == [
        (i, None if price == "" else price, text) for i, price, text, _ in rows
    ]
    told = duckdb.sql(f"select * from read_csv('{path}', quote='\"', header=true)").fetchall()
    assert [tuple(row.values()) for row in rows_of(scan)] == told


def test_types_follow_from_the_last_row_as_from_the_first(tmp_path, small_blocks):
    path = lines(tmp_path / "a.jsonl", [{"x": 1}] * 100 + [{"x": 0.5, "y": "late"}])
    assert pa.schema(plait.scan(path)) == pa.schema([("x", pa.float64()), ("y", pa.string())])
    assert rows_of(plait.scan(path))[-1] == {"x": 0.5, "y": "late"}
    path = commas(tmp_path / "a.csv", ["x"], [[1]] * 200 + [["007"]])
    assert rows_of(plait.scan(path))[-1] == {"x": "007"}


def test_readers_of_one_file_do_not_share_a_position(tmp_path, monkeypatch):
    """A reader of CSV reads ahead in a thread: it took blocks from the reader behind it."""
    path = commas(tmp_path / "a.csv", ["x"], [[1], [2], [3]])
    files = []
    survey = _text_files.survey
    monkeypatch.setattr(
        _text_files, "survey", lambda file, given: files.append(file) or survey(file, given)
    )
    assert rows_of(plait.scan(path)) == [{"x": 1}, {"x": 2}, {"x": 3}]
    first, second = _text_files._opened(files[0]), _text_files._opened(files[0])
    assert first.read(3) == b"x\r\n"
    assert second.read() == path.read_bytes() == b"x\r\n" + first.read()


def test_a_folder_of_parquet_json_lines_and_csv_has_one_schema(tmp_path):
    base = tmp_path / "day=2024-05-01"
    base.mkdir()
    table = pa.table({"id": pa.array([1], pa.int32()), "price": [0.5]})
    pq.write_table(table, base / "a.parquet")
    lines(base / "b.jsonl", [{"id": 2, "price": 1}, {"id": 3, "name": "c"}])
    commas(tmp_path / "day=2024-05-02" / "c.csv", ["price", "id"], [[2, 4]])
    (base / "notes.txt").write_text("not read")
    scan = plait.scan(tmp_path, partitions="hive", implicit=["_path", "_filename", "_row_number"])
    schema = pa.schema(scan)
    assert [f"{f.name}: {f.type}" for f in schema][:3] == [
        "id: int64",
        "price: double",
        "name: string",
    ]
    found = [
        (r["id"], r["price"], r["name"], str(r["day"]), r["_filename"], r["_row_number"])
        for r in rows_of(scan)
    ]
    assert found == [
        (1, 0.5, None, "2024-05-01", "a.parquet", 0),
        (2, 1.0, None, "2024-05-01", "b.jsonl", 0),
        (3, None, "c", "2024-05-01", "b.jsonl", 1),
        (4, 2.0, None, "2024-05-02", "c.csv", 0),
    ]
    report = scan.report
    assert (report.files, report.sources, report.rows_known) == (3, 3, 4)
    # The same, whatever the order.
    names = [str(path) for path in tmp_path.rglob("*.*") if path.suffix != ".txt"]
    assert pa.schema(plait.scan(names[::-1])) == pa.schema(plait.scan(names))
    # Other calls do not read text.
    with pytest.raises(plait.SourceNotFound, match="no Parquet file"):
        plait.read(tmp_path / "day=2024-05-02", sort_by="id")


def test_file_columns_are_those_of_the_file(tmp_path):
    path = lines(tmp_path / "in" / "a.jsonl", [{"x": 1}])
    scan = plait.scan(path, ["x", "_path", "_folder", "_filename", "_size", "_modified"])
    (row,) = rows_of(scan)
    status = path.stat()
    assert row == {
        "x": 1,
        "_path": str(path),
        "_folder": str(path.parent),
        "_filename": "a.jsonl",
        "_size": status.st_size,
        "_modified": row["_modified"],
    }
    assert abs(row["_modified"].timestamp() - status.st_mtime) < 1e-3


@pytest.mark.parametrize("mode", ["resolve", "follow"])
def test_columns_policies_limits_and_modes_are_those_of_parquet_files(tmp_path, mode):
    first = lines(tmp_path / "a.jsonl", [{"x": i, "y": "a"} for i in range(10)])
    second = lines(tmp_path / "b.jsonl", [{"x": i} for i in range(10, 20)])
    given = {"mode": mode}
    scan = plait.scan([first, second], ["y", "x as n"], limit=12, batch_rows=5, **given)
    assert [(r["y"], r["n"]) for r in rows_of(scan)] == [
        ("a" if i < 10 else None, i) for i in range(12)
    ]
    counted = plait.scan([first, second], [], **given)
    assert sum(batch.num_rows for batch in map(pa.record_batch, counted)) == 20
    if mode == "resolve":
        with pytest.raises(plait.SchemaConflict, match="`y`"):
            plait.scan([first, second], policy={"missing": "error"})


def test_a_given_schema_reads_text_as_times_and_decimals(tmp_path):
    rows = [{"day": "2024-02-29", "at": "2024-01-01T00:00:01.5", "price": "1.25", "n": 3}]
    path = lines(tmp_path / "a.jsonl", rows)
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("price", pa.decimal128(10, 2)),
            ("n", pa.float64()),
        ]
    )
    scan = plait.scan(path, schema=schema)
    assert pa.schema(scan) == schema
    (row,) = rows_of(scan)
    assert [str(value) for value in row.values()] == [
        "2024-02-29",
        "2024-01-01 00:00:01.500000",
        "1.25",
        "3.0",
    ]
    lines(path, [*rows * 3, rows[0] | {"day": "yesterday"}])
    with pytest.raises(plait.LossyCast) as error:
        list(plait.scan(path, schema=schema))
    assert (error.value.path, error.value.column, error.value.row) == (str(path), "day", 3)


# ---- errors


def caught(call, kind):
    with pytest.raises(kind) as error:
        call()
    return error.value


@pytest.mark.usefixtures("small_blocks")
def test_errors_name_file_and_row(tmp_path):
    good = b'{"x": 1, "t": "' + b"a" * 50 + b'"}\n'
    path = tmp_path / "bad.jsonl"
    for bad, kind in (
        (b'{"x" 1}\n', plait.CorruptSource),
        (b'{"x": "text"}\n', plait.SchemaConflict),
        (b'{"x": 1} more\n', plait.CorruptSource),
        (b"\xff\n", plait.CorruptSource),
    ):
        path.write_bytes(good * 20 + bad + good)
        error = caught(lambda: plait.scan(path), kind)
        assert (error.path, error.row) == (str(path), 20), str(error)
        assert str(path) in str(error)
        assert "row 20" in str(error)
    path = commas(tmp_path / "bad.csv", ["a", "b"], [[1, "x" * 60]] * 20)
    with path.open("a") as out:
        out.write("1\n")
    error = caught(lambda: plait.scan(path), plait.CorruptSource)
    assert (error.path, error.row) == (str(path), 20)
    twice = commas(tmp_path / "twice.csv", ["a", "a"], [[1, 2]])
    error = caught(lambda: plait.scan(twice), plait.DuplicateField)
    assert (error.path, error.column) == (str(twice), "a")
    packed = tmp_path / "cut.jsonl.gz"
    packed.write_bytes(gzip.compress(good * 1000)[:-20])
    error = caught(lambda: plait.scan(packed), plait.CorruptSource)
    assert error.path == str(packed)


def test_whole_numbers_that_a_double_cannot_hold_are_an_error(tmp_path):
    big = 2**53 + 1
    path = lines(tmp_path / "a.jsonl", [{"x": 0.5}, {"x": big}])
    error = caught(lambda: list(plait.scan(path)), plait.LossyCast)
    assert (error.path, error.column, error.row) == (str(path), "x", 1)
    # Elsewhere it is what it is.
    assert rows_of(plait.scan(lines(tmp_path / "b.jsonl", [{"x": big}]))) == [{"x": big}]
    pq.write_table(pa.table({"x": [0.5]}), tmp_path / "c.parquet")
    both = [tmp_path / "b.jsonl", tmp_path / "c.parquet"]
    error = caught(lambda: list(plait.scan(both)), plait.LossyCast)
    assert (error.path, error.row) == (str(both[0]), 0)


def test_a_file_that_changes_between_schema_and_rows_is_noticed(tmp_path):
    path = lines(tmp_path / "a.jsonl", [{"x": 1}])
    scan = plait.scan(path)
    lines(path, [{"x": 1}, {"x": 2}])
    with pytest.raises(plait.SourceChanged):
        list(scan)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_rows_has_no_columns(tmp_path, content):
    (tmp_path / "a.jsonl").write_text(content)
    lines(tmp_path / "b.jsonl", [{"x": 1}])
    scan = plait.scan(tmp_path)
    assert rows_of(scan) == [{"x": 1}]
    (tmp_path / "c.csv").write_text("x,y\n")
    assert (
        pa.schema(plait.scan([tmp_path / "b.jsonl", tmp_path / "c.csv"])).field("x").type == "int64"
    )


def test_memory_does_not_grow_with_the_file(tmp_path, python):
    path = tmp_path / "large.jsonl"
    with path.open("w") as out:
        for i in range(200_000):
            out.write(json.dumps({"id": i, "text": "x" * 200}) + "\n")
    program = f"""
import plait
from peak_memory import peak_rss_bytes
rows = sum(len(batch) for batch in plait.scan({str(path)!r}))
print(rows, peak_rss_bytes())
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr
    rows, peak = map(int, done.stdout.split())
    assert (rows, path.stat().st_size > 40 << 20) == (200_000, True)
    assert peak < 220 << 20, f"{peak} bytes"


def test_a_scan_without_pyarrow_says_so(tmp_path):
    path = lines(tmp_path / "a.jsonl", [{"x": 1}])
    program = f"""
import sys
sys.modules["pyarrow"] = None
import plait
try:
    plait.scan({str(path)!r})
except plait.Unsupported as error:
    print(error.path, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert str(path) in done.stdout
    assert "install pyarrow" in done.stdout
