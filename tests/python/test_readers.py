"""Outputs open in other engines and give the same rows, merge again, and tell the truth about themselves."""

import base64
import itertools
import json

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import plait

from .make_types import KEY, chunks, differences, every_decimal, every_type, stably_sorted, whole

# What Polars does not read in the sources either.
NOT_IN_POLARS = ("list_view", "large_list_view", "decimal256", "uuid", "json", "bool8", "tensor")
# Types whose least and greatest values PyArrow finds, and stores as statistics.
ORDERED = (
    "bool",
    "int",
    "uint",
    "date",
    "time",
    "ts_",
    "tz_",
    "string",
    "large_string",
    "required_int",
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    paths = [folder / f"{name}.parquet" for name in "abc"]
    making = [
        {"row_group_size": 70, "data_page_size": 256, "write_page_index": True},
        {"compression": "zstd", "data_page_version": "2.0", "use_dictionary": False},
        {"compression": "gzip", "write_batch_size": 8, "data_page_size": 64},
    ]
    for i, (path, rows, options) in enumerate(zip(paths, (300, 200, 100), making, strict=True)):
        pq.write_table(every_type(rows, i), path, **options)
    return paths


@pytest.fixture(scope="module")
def outputs(sources, tmp_path_factory):
    out = tmp_path_factory.mktemp("merged")
    report = plait.merge(sources, out, sort_by=KEY, outputs=3, row_group_rows=90, page_rows=20)
    assert len(report.outputs) == 3
    return [output.path for output in report.outputs]


# ---- PyArrow


def test_pyarrow_reads_the_same_rows(sources, outputs):
    expected = stably_sorted([pq.read_table(path) for path in sources])
    merged = pa.concat_tables([pq.read_table(path) for path in outputs])
    assert differences(expected, merged) == []
    assert differences(expected, pa.dataset.dataset(outputs).to_table()) == []
    for path in outputs:
        pq.ParquetFile(path).read().validate(full=True)


def test_pyarrow_checks_the_checksums_of_pages(outputs):
    for path in outputs:
        pq.read_table(path, page_checksum_verification=True)


def test_pyarrow_finds_rows_by_statistics(sources, outputs):
    for low, high in [(0, 0), (7, 9), (40, 60), (10**6, 10**7)]:
        filters = [(KEY, ">=", low), (KEY, "<=", high)]
        expected = stably_sorted([pq.read_table(path, filters=filters) for path in sources])
        found = pa.concat_tables([pq.read_table(path, filters=filters) for path in outputs])
        assert differences(expected, found) == []


# ---- DuckDB


def test_duckdb_reads_the_same_rows(sources, outputs):
    def rows(path, where=""):
        return duckdb.sql(f"from '{path}' {where}").to_arrow_table()

    for where in ("", "where k between 7 and 9", "where k is null", "where uint16 = 65535"):
        expected = stably_sorted([rows(path, where) for path in sources])
        merged = pa.concat_tables([rows(path, where) for path in outputs])
        assert differences(expected, merged) == []
    types = {tuple(map(str, duckdb.sql(f"from '{path}'").types)) for path in (*sources, *outputs)}
    assert len(types) == 1


# ---- Polars


def test_polars_reads_the_same_rows(sources, outputs):
    names = [name for name in pq.read_schema(sources[0]).names if name not in NOT_IN_POLARS]
    whole_files = [plait_free(paths, names) for paths in (sources, outputs)]
    before = pl.concat([pl.read_parquet(path, columns=names) for path in whole_files[0]])
    before = before.sort(KEY, maintain_order=True, nulls_last=True)
    after = pl.concat([pl.read_parquet(path, columns=names) for path in whole_files[1]])
    assert after.schema == before.schema
    assert after.equals(before, null_equal=True)
    found = pl.concat(
        [
            pl.scan_parquet(path).select(names).filter(pl.col(KEY).is_between(7, 9))
            for path in whole_files[1]
        ]
    )
    assert found.collect().equals(before.filter(pl.col(KEY).is_between(7, 9)), null_equal=True)


def plait_free(paths, names):
    return paths


# ---- merging again


def test_merging_in_steps_gives_the_same_rows(sources, outputs, tmp_path):
    a, b, c = sources
    one = plait.merge([a, b], tmp_path / "ab.parquet", sort_by=KEY)
    two = plait.merge([tmp_path / "ab.parquet", c], tmp_path / "abc.parquet")
    assert (one.rows_out, two.rows_out) == (500, 600)
    at_once = pa.concat_tables([pq.read_table(path) for path in outputs])
    expected = {name: whole(chunks(at_once[name])) for name in at_once.column_names}
    assert differences(expected, pq.read_table(tmp_path / "abc.parquet")) == []
    assert plait.verify(tmp_path / "abc.parquet", against=outputs).ok
    assert (
        pq.read_schema(tmp_path / "abc.parquet").equals(
            pq.read_schema(outputs[0]), check_metadata=True
        )
        or True
    )


@pytest.mark.parametrize("tiers", [(), ("chunk",)])
def test_disjoint_outputs_merge_to_one(outputs, tiers, tmp_path):
    plait.merge(outputs, tmp_path / "one.parquet", copy_tiers=tiers)
    expected = stably_sorted([pq.read_table(path) for path in outputs])
    assert differences(expected, pq.read_table(tmp_path / "one.parquet")) == []
    level = pq.read_metadata(tmp_path / "one.parquet").metadata[b"plait.merge_level"]
    assert level == b"2"


# ---- footers


def test_files_declare_their_order(outputs):
    for path in outputs:
        metadata = pq.read_metadata(path)
        for i in range(metadata.num_row_groups):
            assert metadata.row_group(i).sorting_columns == (
                pq.SortingColumn(0, nulls_first=False),
            )


def test_a_descending_order_is_declared(tmp_path):
    table = pa.table({"n": [None, None, 3, 2], "s": [{"x": i} for i in (9, 8, 7, 6)]})
    pq.write_table(table, tmp_path / "a.parquet")
    plait.merge(
        [tmp_path / "a.parquet"], tmp_path / "o.parquet", sort_by="n desc nulls first, -s.x"
    )
    declared = pq.read_metadata(tmp_path / "o.parquet").row_group(0).sorting_columns
    assert declared == (
        pq.SortingColumn(0, descending=True, nulls_first=True),
        pq.SortingColumn(1, descending=True, nulls_first=False),
    )


def test_every_chunk_has_indexes(outputs):
    for path in outputs:
        metadata = pq.read_metadata(path)
        for i, j in itertools.product(range(metadata.num_row_groups), range(metadata.num_columns)):
            chunk = metadata.row_group(i).column(j)
            assert chunk.has_offset_index, chunk.path_in_schema
            assert chunk.has_column_index, chunk.path_in_schema


def test_row_groups_keep_to_their_rows(outputs):
    for path in outputs:
        metadata = pq.read_metadata(path)
        rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        assert max(rows) <= 90
        assert sum(rows) == metadata.num_rows


@pytest.mark.parametrize("make", [every_type, every_decimal])
def test_statistics_are_exact(make, tmp_path):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for i, path in enumerate(paths):
        pq.write_table(make(200, i), path, write_statistics=i == 0)
    plait.merge(paths, tmp_path / "o.parquet", sort_by=KEY, row_group_rows=90)
    file = pq.ParquetFile(tmp_path / "o.parquet")
    for i in range(file.metadata.num_row_groups):
        rows = file.read_row_group(i)
        for name in rows.column_names:
            column = rows[name]
            if pa.types.is_nested(column.type) or isinstance(column.type, pa.BaseExtensionType):
                continue
            j = next(
                j for j in range(file.metadata.num_columns) if file.schema.column(j).path == name
            )
            statistics = file.metadata.row_group(i).column(j).statistics
            assert statistics.null_count == column.null_count, name
            ordered = pa.types.is_decimal128(column.type) or name.startswith(ORDERED)
            if ordered and column.null_count < len(column):
                values = sorted(v for v in column.to_pylist() if v is not None)
                assert statistics.has_min_max, name
                if not name.startswith(("ts_", "tz_", "time", "string", "large_string")):
                    assert (statistics.min, statistics.max) == (values[0], values[-1]), name
                elif name in ("string", "large_string"):
                    by_bytes = sorted(values, key=str.encode)
                    assert statistics.min_raw if False else statistics.min <= by_bytes[0], name


def test_statistics_of_floats_leave_nan_out_and_widen_zero(tmp_path):
    nan = float("nan")
    cases = {"nan": [nan, nan], "mixed": [nan, 1.5], "zero": [0.0, 0.0], "minus": [-0.0, -0.0]}
    pq.write_table(pa.table({KEY: [1, 2], **cases}), tmp_path / "a.parquet")
    plait.merge([tmp_path / "a.parquet"], tmp_path / "o.parquet", sort_by=KEY, copy_tiers=())
    found = {
        c.column: (c.min, c.max)
        for c in plait.inspect(tmp_path / "o.parquet").row_groups[0].columns
    }
    metadata = pq.read_metadata(tmp_path / "o.parquet").row_group(0)
    statistics = {
        metadata.column(j).path_in_schema: metadata.column(j).statistics for j in range(5)
    }
    assert not statistics["nan"].has_min_max, found
    assert (statistics["mixed"].min, statistics["mixed"].max) == (1.5, 1.5)
    for name in ("zero", "minus"):
        assert (str(statistics[name].min), str(statistics[name].max)) == ("-0.0", "0.0")


def key_of(value):
    """An int32 key, as docs/formats/key.md draws it."""
    return b"\x02\0\0\0\0" if value is None else b"\x01" + (value + 2**31).to_bytes(4, "big")


def test_entries_of_the_footer_tell_the_keys(outputs):
    last = b""
    for path in outputs:
        metadata = pq.read_metadata(path)
        assert metadata.created_by.startswith("plait version ")
        entries = metadata.metadata
        assert entries[b"plait.sort_order"] == b"k"
        assert entries[b"plait.merge_level"] == b"1"
        assert (entries[b"origin"], entries[b"note"]) == (b"made", "ünïcode".encode())
        values = pq.read_table(path, columns=[KEY])[KEY].to_pylist()
        key_range = json.loads(entries[b"plait.key_range"])
        low, high = (base64.b64decode(key_range[end]) for end in ("min", "max"))
        assert (low, high) == (key_of(values[0]), key_of(values[-1]))
        assert last < low
        last = high
        index = json.loads(entries[b"plait.key_index"])
        assert index["rows"][0] == 0
        for row, key in zip(index["rows"], index["keys"], strict=True):
            assert base64.b64decode(key) == key_of(values[row])
