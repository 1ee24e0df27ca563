"""Outputs open in other engines and give the same rows, merge again, and tell the truth about themselves."""

import base64
import itertools
import json
import struct
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import plait

from .make_types import KEY, chunks, differences, every_decimal, every_type, stably_sorted, whole

# What Polars does not read in the sources either, and what PyArrow does not filter (views).
NOT_EVERYWHERE = (
    "string_view",
    "binary_view",
    "list_view",
    "large_list_view",
    "decimal256",
    "uuid",
    "json",
    "bool8",
    "tensor",
)
# Columns, by prefix, whose statistics PyArrow shows in another form than their values, or whose
# values Python sorts in another order.
UNLIKE_VALUES = ("ts_", "tz_", "time", "string", "large_string")
# Columns, by prefix, whose least and greatest values PyArrow shows.
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


def make_sources(folder, without=()):
    paths = [folder / f"{name}.parquet" for name in "abc"]
    making = [
        {"row_group_size": 70, "data_page_size": 256, "write_page_index": True},
        {"compression": "zstd", "data_page_version": "2.0", "use_dictionary": False},
        {"compression": "gzip", "write_batch_size": 8, "data_page_size": 64},
    ]
    for i, (path, rows, options) in enumerate(zip(paths, (300, 200, 100), making, strict=True)):
        pq.write_table(every_type(rows, i, without=without), path, **options)
    return paths


def merge(sources, out, **options):
    report = plait.merge(
        sources, out, sort_by=KEY, outputs=3, row_group_rows=90, page_rows=20, **options
    )
    assert len(report.outputs) == 3
    return [output.path for output in report.outputs]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return make_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def outputs(sources, tmp_path_factory):
    return merge(sources, tmp_path_factory.mktemp("merged"))


@pytest.fixture(scope="module")
def common_sources(tmp_path_factory):
    return make_sources(tmp_path_factory.mktemp("common"), without=NOT_EVERYWHERE)


@pytest.fixture(scope="module")
def common_outputs(common_sources, tmp_path_factory):
    return merge(common_sources, tmp_path_factory.mktemp("common-merged"))


def thrift(data, at, kind=12):
    """A value in the compact protocol and where it ends; structs as dictionaries by field id."""

    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                return value, at

    if kind in (1, 2):  # in a list: a byte
        return data[at] == 1, at + 1
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        value, at = varint(at)
        return (value >> 1) ^ -(value & 1), at
    if kind == 7:
        return data[at : at + 8], at + 8
    if kind == 8:
        size, at = varint(at)
        return data[at : at + size], at + size
    if kind in (9, 10):
        size, of, at = data[at] >> 4, data[at] & 15, at + 1
        if size == 15:
            size, at = varint(at)
        items = []
        for _ in range(size):
            item, at = thrift(data, at, of)
            items.append(item)
        return items, at
    fields, id_ = {}, 0
    while data[at]:
        step, of, at = data[at] >> 4, data[at] & 15, at + 1
        if step:
            id_ += step
        else:
            id_, at = thrift(data, at, 4)
        if of in (1, 2):
            fields[id_] = of == 1
        else:
            fields[id_], at = thrift(data, at, of)
    return fields, at + 1


def footer_of(data):
    return thrift(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))[0]


def page_indexes(path):
    """Per row group and column chunk: the column index and the offset index."""
    data = Path(path).read_bytes()
    return [
        [
            tuple(thrift(data, chunk[at])[0] if at in chunk else None for at in (6, 4))
            for chunk in group[1]
        ]
        for group in footer_of(data)[4]
    ]


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


def test_pyarrow_finds_rows_by_statistics(common_sources, common_outputs):
    for low, high in [(0, 0), (7, 9), (40, 60), (10**6, 10**7)]:
        filters = [(KEY, ">=", low), (KEY, "<=", high)]
        expected = stably_sorted([pq.read_table(path, filters=filters) for path in common_sources])
        found = pa.concat_tables([pq.read_table(path, filters=filters) for path in common_outputs])
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


def test_polars_reads_the_same_rows(common_sources, common_outputs):
    before = pl.concat([pl.read_parquet(path) for path in common_sources])
    before = before.sort(KEY, maintain_order=True, nulls_last=True)
    after = pl.concat([pl.read_parquet(path) for path in common_outputs])
    assert after.schema == before.schema
    assert after.equals(before, null_equal=True)
    for wanted in (pl.col(KEY).is_between(7, 9), pl.col(KEY).is_null(), pl.col("uint16") == 65535):
        found = pl.scan_parquet(common_outputs).filter(wanted).collect()
        assert found.equals(before.filter(wanted), null_equal=True)


# ---- merging again


@pytest.mark.behaviour("merge-33")
def test_merging_in_steps_gives_the_same_rows(sources, outputs, tmp_path):
    a, b, c = sources
    one = plait.merge([a, b], tmp_path / "ab.parquet", sort_by=KEY)
    two = plait.merge([tmp_path / "ab.parquet", c], tmp_path / "abc.parquet", sort_by=KEY)
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


@pytest.mark.parametrize("tiers", [(), ("chunk", "page", "dict")])
def test_disjoint_outputs_merge_to_one(outputs, tiers, tmp_path):
    plait.merge(outputs, tmp_path / "one.parquet", copy_tiers=tiers)
    expected = stably_sorted([pq.read_table(path) for path in outputs])
    assert differences(expected, pq.read_table(tmp_path / "one.parquet")) == []
    level = pq.read_metadata(tmp_path / "one.parquet").metadata[b"plait.merge_level"]
    assert level == b"2"


# ---- footers


@pytest.mark.behaviour("merge-29")
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


@pytest.mark.behaviour("merge-28")
@pytest.mark.parametrize("tiers", [(), ("chunk", "page", "dict")])
def test_indexes_of_pages_tell_the_truth(tiers, sources, tmp_path):
    for path in merge(sources, tmp_path / "out", copy_tiers=tiers):
        file = pq.ParquetFile(path)
        chunks_ = page_indexes(path)
        assert len(chunks_) == file.num_row_groups
        for i, group in enumerate(chunks_):
            rows = file.read_row_group(i)
            for j, (column_index, offset_index) in enumerate(group):
                name = file.schema.column(j).path
                assert offset_index is not None, name
                starts = [location.get(3) for location in offset_index[1]]
                assert starts[0] == 0 and starts == sorted(starts), name
                if file.schema.column(j).max_repetition_level:
                    continue
                if column_index is None:
                    # A copied chunk has what its source has; pages of NaN have no bounds in the order
                    # of floats that copied chunks have.
                    leaf = file.schema.column(j)
                    is_float = leaf.physical_type in ("FLOAT", "DOUBLE") or name == "float16"
                    assert tiers and (name == "null" or is_float), name
                    continue
                assert len(column_index[1]) == len(column_index[5]) == len(starts), name
                pages = list(itertools.pairwise([*starts, rows.num_rows]))
                assert tiers or all(b - a <= 20 for a, b in pages), name
                if name not in rows.column_names:
                    continue
                for page, (a, b) in enumerate(pages):
                    values = rows[name].slice(a, b - a)
                    assert column_index[5][page] == values.null_count, name
                    assert column_index[1][page] == (values.null_count == b - a), name
                    if name == KEY and not column_index[1][page]:
                        ends = [int.from_bytes(column_index[at][page], "little") for at in (2, 3)]
                        known = values.drop_null().to_pylist()
                        assert ends == [known[0], known[-1]]


def test_a_page_of_lists_with_values_is_never_called_a_null_page(tmp_path):
    lists = [[[5, None], [6, None]], [[None, None], [None]], [[], None], [[1], [None]]]
    for i, values in enumerate(lists):
        table = pa.table({KEY: [i, i], "v": pa.array(values, pa.list_(pa.int32()))})
        pq.write_table(table, tmp_path / f"{i}.parquet")
    for i in range(len(lists)):
        plait.merge(
            [tmp_path / f"{i}.parquet"], tmp_path / f"o{i}.parquet", sort_by=KEY, copy_tiers=()
        )
        column_index, _ = page_indexes(tmp_path / f"o{i}.parquet")[0][1]
        if column_index is not None:
            assert column_index[1] == [i in (1, 2)], lists[i]


@pytest.mark.behaviour("merge-22")
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
                if not name.startswith(UNLIKE_VALUES):
                    assert (statistics.min, statistics.max) == (values[0], values[-1]), name


def test_statistics_of_floats_leave_nan_out_and_keep_both_zeros(tmp_path):
    nan = float("nan")
    cases = {"mixed": [nan, 1.5], "zero": [0.0, 0.0], "minus": [-0.0, -0.0], "both": [0.0, -0.0]}
    pq.write_table(pa.table({KEY: [1, 2], **cases}), tmp_path / "a.parquet")
    plait.merge([tmp_path / "a.parquet"], tmp_path / "o.parquet", sort_by=KEY, copy_tiers=())
    footer = footer_of((tmp_path / "o.parquet").read_bytes())
    for j, name in enumerate(cases, start=1):
        statistics = footer[4][0][1][j][3][12]
        low, high = (struct.unpack("<d", statistics[at])[0] for at in (6, 5))
        if footer[7][j] == {2: {}}:  # the total order of IEEE 754: zeros differ
            exact = {"mixed": (1.5, 1.5), "zero": (0.0, 0.0), "minus": (-0.0, -0.0)}
        else:  # the older order, in which readers take zeros for equal
            exact = {"mixed": (1.5, 1.5)}
        assert repr((low, high)) == repr(exact.get(name, (-0.0, 0.0)))


def test_text_is_ordered_by_bytes_in_statistics(tmp_path):
    words = ["z", "\U0001f9f6", "\uffff", "é", None]
    pq.write_table(pa.table({KEY: range(5), "s": words}), tmp_path / "a.parquet")
    plait.merge([tmp_path / "a.parquet"], tmp_path / "o.parquet", sort_by=KEY, copy_tiers=())
    statistics = pq.read_metadata(tmp_path / "o.parquet").row_group(0).column(1).statistics
    assert (statistics.min, statistics.max, statistics.null_count) == ("z", "\U0001f9f6", 1)


def key_of(value):
    """An int32 key, as docs/formats/key.md draws it."""
    return b"\x02\0\0\0\0" if value is None else b"\x01" + (value + 2**31).to_bytes(4, "big")


@pytest.mark.behaviour("merge-23")
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


@pytest.mark.parametrize("codec", ["none", "snappy", "lz4", "gzip", "zstd(1)"])
@pytest.mark.parametrize("sources", [1, 2])
def test_a_dictionary_that_overflowed_is_written_in_the_codec_of_the_output(
    tmp_path, codec, sources
):
    # One source has most rows, and a dictionary that only its first pages refer to.
    rows = 60_000
    paths = []
    for i in range(sources):
        keys = list(range(i, rows if i == 0 else 3_000, sources))
        table = pa.table({"k": keys, "v": [f"value {(k * 7919) % 50_000:>40}" for k in keys]})
        paths.append(tmp_path / f"{i}.parquet")
        pq.write_table(table, paths[-1], compression="zstd", dictionary_pagesize_limit=200_000)
    encodings = pq.read_metadata(paths[0]).row_group(0).column(1).encodings
    assert "PLAIN" in encodings and "RLE_DICTIONARY" in encodings
    out = tmp_path / "out.parquet"
    plait.merge(paths, out, sort_by="k", compression=codec)
    want = pa.concat_tables([pq.read_table(path) for path in paths]).sort_by("k")
    assert pq.read_table(out).equals(want)
    distinct = duckdb.sql(f"select count(distinct v) from '{out}'").fetchall()
    assert distinct[0][0] > 20_000
