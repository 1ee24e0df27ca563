"""Values that cannot be decoded: every call says in which column."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

ROWS = 20_000


@pytest.fixture(params=[True, False], ids=["page index", "no index"])
def damaged(request, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "k": range(ROWS),
            "whole": [f"whole {i}" for i in range(ROWS)],
            "s": [{"x": i, "damaged": f"text {i}"} for i in range(ROWS)],
            "behind": [f"behind {i}" for i in range(ROWS)],
        }
    )
    index = request.param
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_index=index)
    data = bytearray(path.read_bytes())
    at = data.index(b"text 12345") - 4
    assert data[at : at + 4] == (10).to_bytes(4, "little")
    data[at : at + 4] = (2**31 - 1).to_bytes(4, "little")  # a text that is longer than its page
    path.write_bytes(data)
    return path


def rows(batches):
    return sum(batch.num_rows for batch in batches)


CALLS = {
    "merge": lambda path, out: plait.merge(path, out, sort_by="k", copy_tiers=()),
    "verify": lambda path, out: plait.verify(path, sort_by="k"),
    "read": lambda path, out: rows(plait.read(path, sort_by="k")),
    "where": lambda path, out: rows(plait.read(path, sort_by="k", where="k > 100")),
    "scan": lambda path, out: rows(plait.scan(path)),
    "streams": lambda path, out: rows(plait.merge_streams([path], sort_by="k")),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_column_is_named(damaged, tmp_path, call):
    with pytest.raises(plait.CorruptSource) as raised:
        CALLS[call](damaged, tmp_path / "out")
    assert (raised.value.path, raised.value.column) == (str(damaged), "s.damaged")


def test_columns_that_are_whole_can_be_read(damaged):
    assert rows(plait.read(damaged, columns=["k", "whole", "behind"], sort_by="k")) == ROWS
    assert rows(plait.scan(damaged, columns=["k", "behind"])) == ROWS


@pytest.mark.parametrize("call", ["scan", "merge"])
def test_deltas_of_duckdb_that_are_wider_than_their_column_are_explained(tmp_path, call):
    values = np.random.default_rng(8).integers(0, 2**32, 3_000)
    table = pa.table({"k": range(3_000), "wide": pa.array(values, pa.uint32())})
    path = tmp_path / "wide.parquet"
    with duckdb.connect() as connection:
        connection.register("source", table)
        connection.execute(f"copy source to '{path}' (format parquet, parquet_version 'V2')")

    def read():
        if call == "scan":
            return pa.Table.from_batches(list(plait.scan(path)))
        plait.merge(path, tmp_path / "out.parquet", sort_by="k", copy_tiers=())
        return pq.read_table(tmp_path / "out.parquet")

    with pytest.raises(plait.CorruptSource, match="wide") as raised:
        read()
    assert (raised.value.column, "DuckDB" in raised.value.hint) == ("wide", True)
