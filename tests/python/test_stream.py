"""Streams, batches and schemas: Arrow data through the door, both ways, without a copy."""

import gc

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import plait

ROWS = pa.table({"a": [1, None, 3], "b": ["x", "y", None], "c": [[1], [], None]})


def producers():
    return {
        "table": ROWS,
        "batch": ROWS.to_batches()[0],
        "reader": ROWS.to_reader(max_chunksize=2),
        "generator": (batch for batch in ROWS.to_batches(max_chunksize=1)),
        "list": ROWS.to_batches(max_chunksize=2),
        "polars": pl.DataFrame(ROWS),
        "duckdb": duckdb.sql("from ROWS"),
        "stream": plait.Stream(ROWS),
    }


@pytest.mark.parametrize("name", producers())
def test_whatever_has_batches_becomes_a_stream(name):
    assert pa.table(plait.Stream(producers()[name])).to_pydict() == ROWS.to_pydict()


def test_a_stream_gives_batches_and_schemas_to_any_library():
    stream = plait.Stream(ROWS.to_reader(max_chunksize=2))
    assert pa.schema(stream.schema) == ROWS.schema
    assert stream.schema.names == ["a", "b", "c"] and len(stream.schema) == 3
    batches = list(stream)
    assert [len(batch) for batch in batches] == [2, 1]
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert {batch.num_columns for batch in batches} == {3}
    assert all(batch.schema == stream.schema for batch in batches)
    table = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    assert table == ROWS


def test_rows_without_columns_keep_their_number():
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}, {}], type=pa.struct([])))
    assert [len(b) for b in plait.Stream(batch)] == [3]


def test_buffers_are_shared():
    column = pa.array(range(1000), type=pa.int64())
    [batch] = plait.Stream(pa.record_batch({"a": column}))
    back = pa.record_batch(batch).column(0)
    assert back.buffers()[1].address == column.buffers()[1].address


@pytest.mark.parametrize(
    "wrong",
    [7, "text", [1, 2], [], pa.array([1]), object()],
    ids=["number", "text", "list", "empty", "array", "object"],
)
def test_what_has_no_batches_is_refused(wrong):
    with pytest.raises((plait.InvalidArgument, TypeError)):
        plait.Stream(wrong)


def test_null_rows_are_no_batch():
    with pytest.raises(plait.InvalidArgument, match="null"):
        plait.Stream(pa.array([None, {"a": 1}]))


def test_what_a_generator_raises_comes_through():
    def batches():
        yield ROWS.to_batches()[0]
        raise LookupError("gone")

    stream = plait.Stream(batches())
    assert len(next(stream)) == 3
    with pytest.raises(LookupError, match="gone"):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


def test_what_a_foreign_stream_raises_is_a_failed_source():
    def batches():
        yield ROWS.to_batches()[0]
        raise LookupError("gone")

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    stream = plait.Stream(reader)
    next(stream)
    with pytest.raises(plait.SourceFailed, match="gone"):
        next(stream)


def test_a_stream_is_read_once():
    stream = plait.Stream(ROWS)
    pa.table(stream)
    with pytest.raises(plait.InvalidArgument, match="consumed"):
        pa.table(stream)
    closed = plait.Stream(ROWS)
    closed.close()
    closed.close()
    with pytest.raises(plait.InvalidArgument, match="closed"):
        next(closed)


@pytest.mark.parametrize("how", ["end", "close", "drop", "raise"])
def test_sources_are_let_go(how):
    released = []

    class Watched:
        def __del__(self):
            released.append(True)

    def batches(watched):
        yield ROWS.to_batches()[0]
        yield ROWS.to_batches()[0]
        if how == "raise":
            raise LookupError

    def watch():
        watched = Watched()
        return batches(watched)

    stream = plait.Stream(watch())
    next(stream)
    assert not released
    if how == "end":
        list(stream)
    elif how == "close":
        stream.close()
    elif how == "raise":
        with pytest.raises(LookupError):
            list(stream)
    else:
        del stream
    gc.collect()
    assert released
