"""Real tables: TPC-H lineitem and the flights that left New York, against DuckDB's ORDER BY."""

import importlib.util
import os
import zipfile
from pathlib import Path
from types import ModuleType

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import plait


def demo(root: Path) -> ModuleType:
    """The demo, whose maker of lineitem runs is used here."""
    spec = importlib.util.spec_from_file_location("demo", root / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(report: plait.MergeReport) -> pa.Table:
    """All rows of the outputs, in order."""
    return pa.concat_tables([pq.read_table(output.path) for output in report.outputs])


# What `dbgen` of TPC-H makes of these scale factors.
LINEITEM_ROWS = {"0.2": 1_199_969, "1": 6_001_215}
SCALE = "1" if os.environ.get("PLAIT_LONG") else "0.2"


@pytest.mark.long
def test_lineitem_equals_order_by_row_for_row(root: Path, tmp_path: Path) -> None:
    makers = demo(root)
    runs = tmp_path / "runs"
    runs.mkdir()
    makers.write_lineitem_runs(runs, SCALE)
    report = plait.merge(runs, tmp_path / "out", sort_by=makers.LINEITEM_KEY, outputs=4)

    assert report.rows_out == LINEITEM_ROWS[SCALE]
    assert len(report.outputs) == 4
    most = max(output.rows for output in report.outputs)
    least = min(output.rows for output in report.outputs)
    assert most - least <= 4  # unique keys cut anywhere
    wanted = duckdb.sql(
        f"SELECT * FROM read_parquet('{runs}/*.parquet') ORDER BY {makers.LINEITEM_KEY}"
    ).to_arrow_table()
    got = outputs(report)
    assert got.num_rows == wanted.num_rows
    for name in got.column_names:  # one column at a time: both tables are large
        column = got.column(name)
        assert column.equals(wanted.column(name).cast(column.type)), name
    del got, wanted
    assert plait.verify(tmp_path / "out", against=runs).ok


def flights(nycflights_csv: Path) -> pa.Table:
    """The flights, sorted by carrier, tailnum (nulls last), latest hour first."""
    with zipfile.ZipFile(nycflights_csv) as archive, archive.open(archive.namelist()[0]) as csv:
        table = pyarrow.csv.read_csv(
            csv,
            convert_options=pyarrow.csv.ConvertOptions(
                null_values=["", "NA"], strings_can_be_null=True
            ),
        )
    # Nulls go last in Arrow unless it is asked otherwise.
    order = [("carrier", "ascending"), ("tailnum", "ascending"), ("time_hour", "descending")]
    return table.take(pc.sort_indices(table, sort_keys=order))


@pytest.mark.long
def test_flights_equal_order_by(nycflights_csv: Path, tmp_path: Path) -> None:
    table = flights(nycflights_csv)
    assert table.num_rows == 336_776
    assert table.column("tailnum").null_count > 0
    runs = tmp_path / "runs"
    runs.mkdir()
    for run in range(7):
        rows = table.take(pa.array(range(run, table.num_rows, 7)))
        pq.write_table(rows, runs / f"run-{run}.parquet", row_group_size=10_000 * (run + 1))
    key = "carrier, tailnum nulls last, -time_hour"
    report = plait.merge(runs, tmp_path / "out", sort_by=key, outputs=3)
    got = outputs(report)

    # The key is not unique: its values must be in DuckDB's order, and the rows the same.
    duck = duckdb.connect()
    duck.register("got", got)
    wanted = duck.sql(
        f"SELECT carrier, tailnum, time_hour FROM read_parquet('{runs}/*.parquet') "
        "ORDER BY carrier, tailnum NULLS LAST, time_hour DESC"
    ).to_arrow_table()
    for name in wanted.column_names:
        column = got.column(name)
        assert column.equals(wanted.column(name).cast(column.type)), name
    runs_sql = f"SELECT * FROM read_parquet('{runs}/*.parquet')"
    for one, other in [("SELECT * FROM got", runs_sql), (runs_sql, "SELECT * FROM got")]:
        count = duck.sql(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})").fetchall()
        assert count == [(0,)]
    assert plait.verify(tmp_path / "out", against=runs).ok
