"""Sources without batches: no rows, and no columns to speak of, beside others or with a schema."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

ROWS = pa.table({"k": [1, 3], "v": ["a", "c"]})
NARROW = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.string())])


def nothing():
    """A generator that ends at once."""
    yield from ()


# ---- scan


@pytest.mark.parametrize("blank", [[], (), nothing], ids=["list", "tuple", "generator"])
@pytest.mark.parametrize("mode", ["resolve", "follow"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_scan_passes_over_a_stream_without_batches(blank, mode, place):
    sources = [ROWS]
    sources.insert(place, blank() if callable(blank) else blank)
    scan = plait.scan(sources, mode=mode)
    found = pa.table(scan)
    assert found == ROWS
    assert scan.report.sources == 2


def test_a_stream_without_batches_makes_no_column_nullable_and_lacks_none():
    rows = pa.table({"k": [1]}, pa.schema([pa.field("k", pa.int64(), nullable=False)]))
    for policy in ({}, {"missing": "error"}):
        schema = pa.schema(plait.scan([[], rows], policy=policy))
        assert not schema.field("k").nullable
    # One with a schema of its own lacks what it does not have.
    reader = pa.RecordBatchReader.from_batches(pa.schema([("other", pa.int64())]), [])
    assert pa.schema(plait.scan([reader, rows])).field("k").nullable


@pytest.mark.behaviour("scan-12")
@pytest.mark.parametrize("mode", ["resolve", "follow"])
@pytest.mark.parametrize("limit", [None, 0])
def test_a_scan_of_nothing_but_empty_streams_has_the_schema_that_is_given(mode, limit):
    scan = plait.scan([[], nothing()], schema=NARROW, mode=mode, limit=limit)
    assert pa.schema(scan) == NARROW
    assert pa.table(scan).num_rows == 0
    with pytest.raises(plait.InvalidArgument, match="without batches") as error:
        plait.scan([[], nothing()], mode=mode)
    assert "schema=" in str(error.value)


def test_a_scan_of_files_and_an_empty_stream(tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    scan = plait.scan([[], tmp_path / "a.parquet"], implicit=["_filename"], static={"s": [1, 2]})
    assert pa.table(scan).to_pylist() == [
        {"k": 1, "v": "a", "s": 2, "_filename": "a.parquet"},
        {"k": 3, "v": "c", "s": 2, "_filename": "a.parquet"},
    ]


# ---- streaming merges


@pytest.mark.parametrize("blank", [[], nothing], ids=["list", "generator"])
def test_a_merge_of_streams_passes_over_one_without_batches(blank, tmp_path):
    other = pa.table({"k": [2], "v": ["b"]})
    pq.write_table(other, tmp_path / "b.parquet")
    empty = blank() if callable(blank) else blank
    merged = plait.merge_streams([empty, ROWS, str(tmp_path / "b.parquet")], sort_by="k")
    assert pa.table(merged)["v"].to_pylist() == ["a", "b", "c"]
    # It lacks nothing.
    merged = plait.merge_streams([ROWS, []], sort_by="k", missing="error", widen="error")
    assert pa.table(merged) == ROWS


def test_a_merge_of_nothing_but_empty_streams_has_the_schema_that_is_given():
    merged = plait.merge_streams([[], nothing()], sort_by="k", schema=ROWS.schema)
    assert pa.table(merged) == ROWS.slice(0, 0)
    with pytest.raises(plait.InvalidArgument, match="without batches") as error:
        plait.merge_streams([[], nothing()], sort_by="k")
    assert "schema=" in str(error.value)
    with pytest.raises(plait.UnknownColumn):
        plait.merge_streams([[]], sort_by="x", schema=ROWS.schema)


# ---- overlays


@pytest.mark.behaviour("overlay-32")
@pytest.mark.parametrize("blank", [[], nothing], ids=["list", "generator"])
def test_a_layer_without_batches_has_the_schema_that_is_given(blank):
    base = pa.table({"_index": pa.array([], pa.int64()), "x": pa.array([], pa.string())})
    schema = pa.schema([("_index", pa.int64()), ("y", pa.int32())])

    def layers(**options):
        empty = blank() if callable(blank) else blank
        return [plait.Layer(base), plait.Layer(empty, ["y"], **options)]

    joined = pa.table(plait.overlay(layers(schema=schema)))
    assert joined.schema == pa.schema([*base.schema, pa.field("y", pa.int32())])
    assert joined.num_rows == 0
    with pytest.raises(plait.InvalidArgument, match="without batches") as error:
        plait.overlay(layers())
    assert "schema=" in str(error.value)


def test_a_layer_without_rows_differs_from_one_with_rows():
    rows = pa.table({"_index": [1], "x": ["a"]})
    schema = pa.schema([("_index", pa.int64()), ("y", pa.int32())])
    with pytest.raises(plait.RowMismatch):
        list(plait.overlay([plait.Layer(rows), plait.Layer([], ["y"], schema=schema)]))


def test_a_layer_of_files_has_a_schema_of_its_own(tmp_path):
    pq.write_table(pa.table({"_index": [1]}), tmp_path / "a.parquet")
    layer = plait.Layer(tmp_path / "a.parquet", schema=ROWS.schema)
    with pytest.raises(plait.InvalidArgument, match="schema"):
        plait.overlay_files([layer], tmp_path / "out.parquet")
