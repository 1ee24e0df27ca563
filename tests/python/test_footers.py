"""The rewriter of footers itself: what it does not touch stays, byte for byte."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from . import footers


@pytest.fixture
def written(tmp_path):
    table = pa.table(
        {
            "k": range(1000),
            "s": ["abc"[i % 3] for i in range(1000)],
            "l": [[i] * (i % 3) for i in range(1000)],
        }
    )
    path = tmp_path / "written.parquet"
    pq.write_table(table, path, row_group_size=400, write_page_index=True)
    return path, table


def test_a_footer_that_is_not_changed_is_written_as_it_was(written, tmp_path):
    path, _ = written
    copy = footers.change(path, tmp_path / "copy.parquet", lambda footer: None)
    assert copy.read_bytes() == path.read_bytes()


def test_fields_are_taken_from_every_chunk_and_from_nothing_else(written, tmp_path):
    path, table = written
    copy = tmp_path / "copy.parquet"
    taken = footers.without(path, copy, "ColumnMetaData.encoding_stats", "Statistics.null_count")
    assert taken == 2 * 3 * 3
    footer = footers.read(copy)
    assert all(chunk.get("encoding_stats") is None for chunk in footer.structs("ColumnMetaData"))
    assert pq.read_table(copy).equals(table)
    statistics = pq.ParquetFile(copy).metadata.row_group(0).column(0).statistics
    assert (statistics.has_null_count, statistics.min, statistics.max) == (False, 0, 399)


def test_a_field_is_changed(written, tmp_path):
    path, _ = written
    copy = footers.change(
        path, tmp_path / "copy.parquet", lambda footer: footer.chunks(1)[0].set("num_values", 7)
    )
    assert pq.ParquetFile(copy).metadata.row_group(1).column(0).num_values == 7
