"""`merge` given what a notebook holds in memory: the error names the call that takes it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

TABLE = pa.table({"k": [1, 3], "secret": ["first-value", "last-value"]})
TABLES = {
    "pyarrow.Table": lambda: TABLE,
    "pyarrow.RecordBatch": lambda: TABLE.to_batches()[0],
    "pyarrow.RecordBatchReader": TABLE.to_reader,
    "pandas.DataFrame": lambda: pytest.importorskip("pandas").DataFrame({"k": [1]}),
    "polars.DataFrame": lambda: pytest.importorskip("polars").DataFrame({"k": [1]}),
    "plait.Stream": lambda: plait.merge_streams([TABLE], sort_by="k"),
    "duckdb.DuckDBPyRelation": lambda: pytest.importorskip("duckdb").sql("select 1 as k"),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("call", [plait.merge, plait.plan])
@pytest.mark.parametrize("listed", [False, True])
def test_tables_and_streams_are_refused_by_the_call_that_takes_them(kind, call, listed, tmp_path):
    made = TABLES[kind]()
    with pytest.raises(plait.InvalidArgument) as caught:
        call([made] if listed else made, tmp_path / "out.parquet", sort_by="k")
    text = str(caught.value)
    package, _, name = kind.partition(".")
    assert text.startswith("`sources` takes files, not data in memory")
    assert "plait.merge_streams" in text and package in text and name in text
    assert "value" not in text and "\n1" not in text and len(text.splitlines()) <= 3
    assert not (tmp_path / "out.parquet").exists()


def test_other_paths_are_refused_without_the_data(tmp_path):
    for call in (lambda: plait.verify(TABLE), lambda: plait.inspect(TABLE)):
        with pytest.raises(
            plait.InvalidArgument, match="write it to a Parquet file first"
        ) as caught:
            call()
        assert "last-value" not in str(caught.value)
    with pytest.raises(plait.InvalidArgument, match="`out` takes files"):
        plait.merge(tmp_path / "a.parquet", TABLE, sort_by="k")


def test_what_the_error_says_works(tmp_path):
    stream = plait.merge_streams([TABLE, pa.table({"k": [2]})], sort_by="k")
    pq.write_table(pa.table(stream), tmp_path / "merged.parquet")
    assert pq.read_table(tmp_path / "merged.parquet").column("k").to_pylist() == [1, 2, 3]
