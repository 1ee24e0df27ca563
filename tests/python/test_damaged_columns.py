"""Values that cannot be decoded: every call says in which column."""

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
