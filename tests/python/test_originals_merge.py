"""What users of the streaming merge rely on and no other test says."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait


@pytest.mark.behaviour("merge-07")
def test_sources_that_declare_different_orders_are_refused_by_name(tmp_path):
    for name, order in (("a", "k, t"), ("b", "k, -t")):
        table = pa.table({"k": [1], "t": [2]})
        pq.write_table(table, tmp_path / f"{name}-source.parquet")
        plait.merge(
            tmp_path / f"{name}-source.parquet", tmp_path / f"{name}.parquet", sort_by=order
        )
    sources = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(plait.InvalidArgument, match="different sort orders") as caught:
        plait.merge(sources, tmp_path / "out.parquet")
    assert "a.parquet" in str(caught.value) and "b.parquet" in str(caught.value)
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.behaviour("merge-31")
def test_rows_read_are_rows_written_plus_rows_dropped(tmp_path):
    for number in range(2):
        table = pa.table({"k": [1, 2, 3 + number]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    sources = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    report = plait.merge(sources, tmp_path / "all.parquet", sort_by="k")
    assert (report.rows_in, report.rows_out, report.rows_dropped) == (6, 6, {})
    report = plait.merge(sources, tmp_path / "k.parquet", sort_by="k", on_duplicate="keep_last")
    assert (report.rows_in, report.rows_out, report.rows_dropped) == (6, 4, {"duplicate": 2})
    written = sum(output.rows for output in report.outputs)
    assert pq.read_metadata(tmp_path / "k.parquet").num_rows == written == report.rows_out
