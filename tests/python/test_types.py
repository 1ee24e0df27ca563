"""Every type that Parquet can hold, by several writers, merges to the last bit; schemas may drift."""

import datetime as dt
import decimal
import itertools
import os

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .make_types import KEY, differences, every_decimal, every_type, keys, stably_sorted

# Encodings besides plain and dictionary, by the columns that can have them.
ENCODINGS = {
    "int32": "DELTA_BINARY_PACKED",
    "int64": "DELTA_BINARY_PACKED",
    "ts_us": "BYTE_STREAM_SPLIT",
    "string": "DELTA_BYTE_ARRAY",
    "binary": "DELTA_LENGTH_BYTE_ARRAY",
    "float32": "BYTE_STREAM_SPLIT",
    "float64": "BYTE_STREAM_SPLIT",
    "uuid": "DELTA_BYTE_ARRAY",
    "fixed16": "BYTE_STREAM_SPLIT",
    "bool": "RLE",
}
TINY = {"data_page_size": 64, "write_batch_size": 8}
V2 = {"data_page_version": "2.0"}

# name: rows of the sources, options of the writer, options of the merge
FILES = {
    "plain defaults": ((300, 120), {}, {}),
    "tiny pages": ((300, 120, 50), {**TINY, "write_page_index": True}, {"page_rows": 7}),
    "tiny pages v2": (
        (300, 120, 50),
        {**TINY, **V2, "compression": "zstd", "use_dictionary": False},
        {},
    ),
    "three rows a page": (
        (200, 100),
        {"max_rows_per_page": 3, **V2, "compression": "gzip", "write_page_index": True},
        {"row_group_rows": 31, "threads": 2},
    ),
    "brotli": ((120, 90), {"compression": "brotli"}, {"data_page_version": 2}),
    "lz4": ((120, 90), {**TINY, "compression": "lz4"}, {"compression": "snappy"}),
    "uncompressed v2": ((120, 90), {**V2, "compression": "none"}, {"compression": "zstd(3)"}),
    "many row groups": (
        (400, 300),
        {"row_group_size": 50, "write_page_checksum": True},
        {"row_group_rows": 97, "page_size": 256, "outputs": 3},
    ),
    "small dictionaries": ((500, 90), {"dictionary_pagesize_limit": 64, **TINY}, {}),
    "no dictionary": ((120, 90), {"use_dictionary": False}, {"dictionary": True}),
    "dictionary taken away": ((120, 90), {}, {"dictionary": False, "page_size": 128}),
    "other encodings": ((200, 90), {"use_dictionary": False, "column_encoding": ENCODINGS}, {}),
    "other encodings v2": (
        (200, 90),
        {**V2, **TINY, "use_dictionary": False, "column_encoding": ENCODINGS},
        {"data_page_version": 1},
    ),
    "no statistics": ((120, 90), {"write_statistics": False, "write_page_index": True}, {}),
    "decimals as integers": ((120, 90), {"store_decimal_as_integer": True}, {}),
    "old list names": ((120, 90), {"use_compliant_nested_type": False}, {}),
    "no arrow schema": ((120, 90), {"store_schema": False}, {}),
    "int96": ((120, 90), {"use_deprecated_int96_timestamps": True}, {}),
    "format 1.0": ((120, 90), {"version": "1.0"}, {}),
    "format 2.4": ((120, 90), {"version": "2.4"}, {}),
    "one empty": ((90, 0, 50), {}, {}),
    "five thousand rows": (
        (5000, 50),
        {"data_page_size": 4096, "row_group_size": 2000},
        {"threads": 2},
    ),
}


def write(tables, folder, **options):
    paths = [folder / f"{i}.parquet" for i in range(len(tables))]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(table, path, **options)
    return paths


def read(path):
    return pq.ParquetFile(path, arrow_extensions_enabled=True).read()


def carried(type_):
    """The type after a merge: keys of dictionaries have room for the union."""
    if pa.types.is_dictionary(type_) and type_.index_type.bit_width < 32:
        return pa.dictionary(pa.int32(), type_.value_type, type_.ordered)
    return type_


def check(paths, out, **options):
    """Merges sorted files by key and compares with the oracle; gives the outputs."""
    report = plait.merge(paths, out, sort_by=KEY, verify="content", **options)
    outputs = [output.path for output in report.outputs]
    tables = [read(path) for path in paths]
    merged = pa.concat_tables([read(path) for path in outputs])
    assert differences(stably_sorted(tables), merged) == []
    for path in outputs:
        check_schema(paths[0], path)
    return outputs


def check_schema(source, output):
    """Equal Arrow fields with ids, metadata and nullability; equal Parquet schema."""
    before, after = pq.read_schema(source), pq.read_schema(output)
    assert [f.with_type(carried(f.type)).remove_metadata() for f in before] == [
        f.remove_metadata() for f in after
    ]
    for a, b in zip(before, after, strict=True):
        assert a.with_type(carried(a.type)).equals(b, check_metadata=True), (
            a,
            a.metadata,
            b.metadata,
        )
    entries = pq.read_metadata(output).metadata
    for name, value in (before.metadata or {}).items():
        assert entries[name] == value
    assert pq.ParquetFile(source).schema.equals(pq.ParquetFile(output).schema)


# ---- the comparison itself


@pytest.mark.parametrize(
    ("type_", "a", "b"),
    [
        (pa.float64(), [0.0], [-0.0]),
        (pa.list_(pa.float32()), [[0.0]], [[-0.0]]),
        (pa.list_(pa.int32()), [[]], [None]),
        (pa.struct([("x", pa.int32())]), [{"x": None}], [None]),
        (pa.map_(pa.string(), pa.float64()), [[("a", 0.0)]], [[("a", -0.0)]]),
        (pa.list_view(pa.int32()), [[1], [2]], [[1, 2], []]),
        (pa.list_(pa.int8(), 2), [[1, None]], [[1, 0]]),
    ],
)
def test_the_comparison_sees_small_differences(type_, a, b):
    table = pa.table({"c": pa.array(a, type_)})
    assert differences({"c": pa.array(a, type_)}, table) == []
    assert differences({"c": pa.array(b, type_)}, table) == ["c"]


def test_the_comparison_sees_nan_payloads():
    quiet = pa.array(np.array([0x7FF8_0000_0000_0001], np.uint64).view(np.float64))
    assert differences({"c": quiet}, pa.table({"c": [float("nan")]})) == ["c"]


# ---- PyArrow


@pytest.mark.few(5)
@pytest.mark.behaviour("merge-15")
@pytest.mark.parametrize("name", FILES)
def test_every_type_by_pyarrow_merges_to_the_last_bit(name, tmp_path):
    rows, writing, merging = FILES[name]
    tables = [every_type(n, seed) for seed, n in enumerate(rows)]
    paths = write(tables, tmp_path, **writing)
    check(paths, tmp_path / "out", **merging)


def test_files_of_different_making_merge(tmp_path):
    tables = [every_type(n, seed) for seed, n in enumerate((150, 90, 60))]
    paths = [
        write([tables[0]], tmp_path, **TINY, compression="gzip")[0],
        tmp_path / "v2.parquet",
        tmp_path / "none.parquet",
    ]
    pq.write_table(tables[1], paths[1], **V2, compression="zstd", use_dictionary=False)
    pq.write_table(
        tables[2], paths[2], compression="none", row_group_size=20, write_page_index=True
    )
    check(paths, tmp_path / "out", page_rows=11)


@pytest.mark.parametrize("tiers", [(), ("chunk",), ("page", "dict")])
def test_sources_that_do_not_overlap_merge_to_the_last_bit(tiers, tmp_path):
    whole = every_type(400, 7).slice(0, 380)  # without the null keys
    cuts = [0, 100, 230, 380]
    paths = write(
        [whole.slice(a, b - a) for a, b in itertools.pairwise(cuts)],
        tmp_path,
        row_group_size=40,
    )
    check(paths, tmp_path / "out", copy_tiers=tiers)


@pytest.mark.parametrize("as_integer", [False, True])
def test_decimals_of_all_precisions_merge(as_integer, tmp_path):
    tables = [every_decimal(n, seed) for seed, n in enumerate((100, 60))]
    paths = write(tables, tmp_path, store_decimal_as_integer=as_integer, **TINY)
    check(paths, tmp_path / "out")


@pytest.mark.behaviour("merge-14")
def test_dictionaries_inside_lists_and_structs_merge(tmp_path):
    word = pa.dictionary(pa.int8(), pa.string())
    types = {"words": pa.list_(word), "inside": pa.struct([("word", word)])}
    values = [[["a", None, "b"], [], None, ["a"]], [["c"], ["a", "d"], [None]]]
    tables = [
        pa.table(
            {
                "k": range(len(v)),
                "words": pa.array(v, types["words"]),
                "inside": pa.array([{"word": w[0]} if w else None for w in v], types["inside"]),
            }
        )
        for v in values
    ]
    plait.merge(write(tables, tmp_path), tmp_path / "o.parquet", sort_by="k")
    rows = [row for table in tables for row in table.to_pylist()]
    merged = pq.read_table(tmp_path / "o.parquet")
    assert merged.to_pylist() == sorted(rows, key=lambda row: row["k"])
    wide = pa.dictionary(pa.int32(), pa.string())
    assert merged.schema.field("words").type.value_type == wide
    assert merged.schema.field("inside").type.field("word").type == wide


def test_schema_metadata_stays_visible_to_pyarrow(tmp_path):
    paths = write([every_type(60, seed) for seed in (1, 2)], tmp_path)
    (out,) = check(paths, tmp_path / "out")
    metadata = pq.read_schema(out).metadata
    assert metadata[b"origin"] == b"made"
    assert metadata[b"note"] == "ünïcode".encode()


def test_sources_without_rows_and_rows_without_columns_beside_the_key(tmp_path):
    empty = every_type(0, 1)
    check(write([empty, empty], tmp_path), tmp_path / "empty")
    check(
        write([empty.select([KEY]), every_type(50, 1).select([KEY])], tmp_path), tmp_path / "keys"
    )


# ---- DuckDB

DUCK = """
select (i * 37 % 40)::int as k, * exclude (k0) from (select i, i as k0,
  case when i % 5 <> 0 then i % 2 = 0 end as bool,
  case when i % 5 <> 1 then (i - 60)::tinyint end as i8, (i * 100)::smallint as i16, i::bigint * 10000000000 as i64,
  i::utinyint as u8, (i * 3)::usmallint as u16, (i * 7)::uinteger as u32, 18446744073709551615 - i::ubigint as u64,
  (i - 50)::hugeint * 1000000007 as huge, i::float / 3 as f32,
  case i % 4 when 0 then 'nan'::double when 1 then -0.0::double when 2 then 'infinity'::double else i / 7 end as f64,
  case when i % 3 <> 0 then (i - 9)::decimal(4, 1) end as d4, (i - 9)::decimal(9, 2) as d9,
  (i * 31)::decimal(18, 6) as d18, (i - 20)::decimal(38, 10) as d38,
  case when i % 6 <> 0 then repeat('é', i % 20) end as text, repeat('ab', i % 9)::blob as bytes,
  case when i % 7 <> 0 then md5(i::varchar)::uuid end as id,
  date '1969-12-25' + i::int as day, time '10:11:12.123456' as clock,
  timestamp '1969-12-31 23:59:59.999999' + to_seconds(i) as ts, (timestamp '2024-02-29' + to_days(i::int))::timestamp_s as ts_s,
  (timestamp '2024-02-29 01:02:03.004' + to_days(i::int))::timestamp_ms as ts_ms,
  (timestamp '2024-02-29 01:02:03.004005' + to_days(i::int))::timestamp_ns as ts_ns,
  (timestamp '2024-02-29 12:00:00' + to_hours(i))::timestamptz as tz, to_minutes(i) as span,
  (['red', 'green', 'blue'])[1 + i % 3]::enum('red', 'green', 'blue') as colour,
  case when i % 4 <> 0 then list_transform(range(i % 5), lambda x: case when x <> 2 then x + i end) end as list,
  [[i, null], [], null, [i]] as lists,
  case when i % 3 <> 0 then {'a': i, 'b': case when i % 2 = 0 then {'c': ['x', null]} end} end as struct,
  case when i % 3 <> 1 then map([i, i + 1], ['a', null]) end as map,
  [{'p': i, 'q': map(['z'], [[i]])}, null] as structs, array_value(i, i + 1, null) as pair,
  case when i % 2 = 0 then '{"a": 1}'::json end as doc
  from range(%d, %d) r(i)) order by k nulls last, i
"""


@pytest.mark.parametrize(
    "options",
    [
        "compression snappy",
        "compression zstd, parquet_version v2, row_group_size 2048",
        "compression gzip, parquet_version v2",
        "compression lz4_raw",
        "compression brotli, parquet_version v2",
        "compression uncompressed, dictionary_size_limit 1",
    ],
)
def test_every_type_by_duckdb_merges(options, tmp_path):
    paths = []
    with duckdb.connect() as con:
        for i, (start, stop) in enumerate([(0, 120), (20, 80)]):
            paths.append(tmp_path / f"{i}.parquet")
            query = DUCK.replace("%d, %d", f"{start}, {stop}")
            con.execute(f"copy ({query}) to '{paths[-1]}' (format parquet, {options})")
        (out,) = check(paths, tmp_path / "out")
        # And as DuckDB itself sees them, types included.
        before = [con.sql(f"from '{path}'") for path in paths]
        after = con.sql(f"from '{out}'")
        assert after.types == before[0].types
        expected = stably_sorted([relation.to_arrow_table() for relation in before])
        assert differences(expected, after.to_arrow_table()) == []


# ---- Polars


def polars_frame(rows, start):
    n = range(start, start + rows)
    hole = lambda i, value, every=5: None if i % every == 0 else value  # noqa: E731
    stamp = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    columns = {
        "k": pl.Series(sorted(i * 37 % 40 for i in n), dtype=pl.Int32),
        **{
            str(t): pl.Series([hole(i, i % 100) for i in n], dtype=t)
            for t in (pl.Int8, pl.Int16, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
        },
        "f32": pl.Series([hole(i, (i - 9) / 3) for i in n], dtype=pl.Float32),
        "f64": pl.Series(
            [(float("nan"), -0.0, float("inf"), None, i / 7)[i % 5] for i in n], dtype=pl.Float64
        ),
        "bool": pl.Series([hole(i, i % 2 == 0) for i in n], dtype=pl.Boolean),
        "text": pl.Series([hole(i, "é" * (i % 20)) for i in n], dtype=pl.String),
        "bytes": pl.Series([hole(i, b"\0\xff" * (i % 9)) for i in n], dtype=pl.Binary),
        "date": pl.Series([hole(i, dt.date(1969, 12, 20) + dt.timedelta(i)) for i in n]),
        "time": pl.Series([hole(i, dt.time(i % 24, 1, 2, i)) for i in n], dtype=pl.Time),
        **{
            f"ts_{unit}_{zone}": pl.Series(
                [hole(i, stamp + dt.timedelta(i)) for i in n], dtype=pl.Datetime(unit)
            ).dt.replace_time_zone(zone)
            for unit in ("ms", "us", "ns")
            for zone in (None, "UTC")
        },
        "span": pl.Series([hole(i, dt.timedelta(i, 3)) for i in n], dtype=pl.Duration("us")),
        "d9": pl.Series(
            [hole(i, decimal.Decimal(i - 9).scaleb(-2)) for i in n], dtype=pl.Decimal(9, 2)
        ),
        "d38": pl.Series(
            [hole(i, decimal.Decimal(i - 9).scaleb(-9)) for i in n], dtype=pl.Decimal(38, 9)
        ),
        "cat": pl.Series([hole(i, f"c{i % 7}") for i in n], dtype=pl.Categorical),
        "enum": pl.Series([hole(i, "abc"[i % 3]) for i in n], dtype=pl.Enum(list("abc"))),
        "null": pl.Series([None for _ in n], dtype=pl.Null),
        "list": pl.Series(
            [hole(i, [j if j != 2 else None for j in range(i % 5)], 3) for i in n],
            dtype=pl.List(pl.Int64),
        ),
        "lists": pl.Series(
            [hole(i, [[i], [], None], 4) for i in n], dtype=pl.List(pl.List(pl.Int32))
        ),
        "array": pl.Series([hole(i, [i, None, 3]) for i in n], dtype=pl.Array(pl.Int16, 3)),
        "struct": pl.Series(
            [hole(i, {"a": hole(i, i, 2), "b": hole(i, [{"c": "x"}, None], 3)}, 7) for i in n],
            dtype=pl.Struct({"a": pl.Int32, "b": pl.List(pl.Struct({"c": pl.String}))}),
        ),
    }
    return pl.DataFrame(columns)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"compression": "snappy", "row_group_size": 37, "data_page_size": 64},
        {"compression": "gzip", "statistics": False},
        {"compression": "lz4", "data_page_size": 16},
        {"compression": "brotli", "statistics": "full"},
        {"compression": "uncompressed", "row_group_size": 10},
    ],
    ids=str,
)
def test_every_type_by_polars_merges(options, tmp_path):
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path, (rows, start) in zip(paths, [(150, 0), (50, 40), (90, 10)], strict=True):
        polars_frame(rows, start).write_parquet(path, **options)
    (out,) = check(paths, tmp_path / "out", page_rows=13)
    before = pl.concat([pl.read_parquet(path) for path in paths]).sort(
        "k", maintain_order=True, nulls_last=True
    )
    after = pl.read_parquet(out)
    assert after.schema == before.schema
    assert after.equals(before, null_equal=True)


# ---- schemas that drift

DAY = 1_700_000_000


@pytest.mark.parametrize(
    ("a", "b", "both", "values"),
    [
        (pa.array([1, None], pa.int32()), pa.array([2**40, 3]), pa.int64(), [1, None, 2**40, 3]),
        (pa.array([1], pa.int8()), pa.array([300], pa.int16()), pa.int16(), [1, 300]),
        (pa.array([1.5], pa.float32()), pa.array([0.1]), pa.float64(), [1.5, 0.1]),
        (pa.array([7], pa.int32()), pa.array([0.1]), pa.float64(), [7.0, 0.1]),
        (
            pa.array([decimal.Decimal("1.5")], pa.decimal128(5, 1)),
            pa.array([decimal.Decimal("12345.678")], pa.decimal128(20, 3)),
            pa.decimal128(20, 3),
            [decimal.Decimal("1.500"), decimal.Decimal("12345.678")],
        ),
        (
            pa.array([decimal.Decimal(9)], pa.decimal128(38, 0)),
            pa.array([decimal.Decimal("0.25")], pa.decimal128(4, 2)),
            pa.decimal256(40, 2),
            [decimal.Decimal("9.00"), decimal.Decimal("0.25")],
        ),
        (
            pa.array([DAY * 1000], pa.timestamp("ms")),
            pa.array([DAY * 10**6 + 1], pa.timestamp("us")),
            pa.timestamp("us"),
            [dt.datetime(2023, 11, 14, 22, 13, 20), dt.datetime(2023, 11, 14, 22, 13, 20, 1)],
        ),
        (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.large_string(), ["a", "b"]),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), pa.string(), ["a", "b"]),
        (pa.array([None], pa.null()), pa.array([[1]]), pa.list_(pa.int64()), [None, [1]]),
        (
            pa.array([[1, None]], pa.list_(pa.int32())),
            pa.array([[], None], pa.list_(pa.int64())),
            pa.list_(pa.int64()),
            [[1, None], [], None],
        ),
    ],
    ids=str,
)
def test_types_widen_without_loss(a, b, both, values, tmp_path):
    paths = write(
        [pa.table({"k": pa.array([i] * len(v), pa.int32()), "v": v}) for i, v in enumerate((a, b))],
        tmp_path,
    )
    for order in (paths, paths[::-1]):
        plait.merge(order, tmp_path / f"{order[0].stem}-first.parquet", sort_by="k")
        merged = pq.read_table(tmp_path / f"{order[0].stem}-first.parquet")
        assert merged.schema.field("v").type == both
        assert merged["v"].to_pylist() == values


@pytest.mark.behaviour("merge-09", "merge-10")
def test_columns_may_be_missing_and_reordered(tmp_path):
    a = pa.table({"k": [1, 3], "only_a": ["x", "y"], "both": [1.5, 2.5]})
    b = pa.table({"both": [3.5, 4.5], "only_b": [[1], []], "k": [2, 3]})
    report = plait.merge(write([a, b], tmp_path), tmp_path / "o.parquet", sort_by="k")
    assert report.rows_out == 4
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == [
        {"k": 1, "only_a": "x", "both": 1.5, "only_b": None},
        {"k": 2, "only_a": None, "both": 3.5, "only_b": [1]},
        {"k": 3, "only_a": "y", "both": 2.5, "only_b": None},
        {"k": 3, "only_a": None, "both": 4.5, "only_b": []},
    ]


def test_fields_of_nested_structs_may_be_missing(tmp_path):
    small = pa.list_(pa.struct([("x", pa.int32())]))
    large = pa.list_(
        pa.struct([("y", pa.string()), ("x", pa.int64()), ("z", pa.struct([("w", pa.bool_())]))])
    )
    a = pa.table({"k": [1, 2, 3], "s": pa.array([[{"x": 1}, None], [], None], small)})
    b = pa.table(
        {"k": [2, 4], "s": pa.array([[{"y": "a", "x": 2, "z": {"w": True}}], [{"z": None}]], large)}
    )
    plait.merge(write([a, b], tmp_path), tmp_path / "o.parquet", sort_by="k")
    assert pq.read_table(tmp_path / "o.parquet")["s"].to_pylist() == [
        [{"x": 1, "y": None, "z": None}, None],
        [],
        [{"x": 2, "y": "a", "z": {"w": True}}],
        None,
        [{"x": None, "y": None, "z": None}],
    ]


@pytest.mark.behaviour("merge-11")
def test_required_meets_optional(tmp_path):
    fields = [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64(), nullable=False)]
    a = pa.table({"k": [1, 3], "v": [1, 3]}, schema=pa.schema(fields))
    b = pa.table(
        {"k": [2, 4], "v": [None, 4]}, schema=pa.schema([fields[0], pa.field("v", pa.int64())])
    )
    plait.merge(write([a, b], tmp_path), tmp_path / "o.parquet", sort_by="k")
    merged = pq.read_table(tmp_path / "o.parquet")
    assert merged.schema.field("k").nullable is False
    assert merged.schema.field("v").nullable is True
    assert merged["v"].to_pylist() == [1, None, 3, 4]


@pytest.mark.parametrize("key", ["k", "-k"])
def test_a_key_may_drift_too(key, tmp_path):
    descending = key.startswith("-")
    values = [[1, 5, 9, 9], [2, 5, 2**40]]
    types = [pa.int32(), pa.int64()]
    tables = [
        pa.table({"k": pa.array(sorted(v, reverse=descending), t), "from": [i] * len(v)})
        for i, (v, t) in enumerate(zip(values, types, strict=True))
    ]
    plait.merge(write(tables, tmp_path), tmp_path / "o.parquet", sort_by=key)
    rows = [row for table in tables for row in table.to_pylist()]
    rows.sort(key=lambda row: row["k"], reverse=descending)
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == rows


def test_drift_can_be_refused(tmp_path):
    paths = write(
        [
            pa.table({"k": [1], "v": pa.array([1], pa.int32())}),
            pa.table({"k": [1], "v": [2], "w": [3]}),
        ],
        tmp_path,
    )
    with pytest.raises(plait.SchemaConflict, match="`v` would have to be widened"):
        plait.merge(paths, tmp_path / "out", sort_by="k", widen="error")
    with pytest.raises(plait.SchemaConflict, match="`w` is missing"):
        plait.merge(paths, tmp_path / "out", sort_by="k", missing="error")
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


@pytest.mark.behaviour("merge-12")
def test_all_conflicts_are_reported_together_before_any_output(tmp_path):
    a = pa.table(
        {
            "k": [1],
            "n": [1],
            "t": pa.array([1], pa.timestamp("us")),
            "s": [{"x": 1}],
            "ok": [1],
            "l": [[1]],
        }
    )
    b = pa.table(
        {
            "k": [1],
            "n": ["one"],
            "t": pa.array([1], pa.timestamp("us", "UTC")),
            "s": [{"x": b"1"}],
            "ok": [2],
            "l": [1],
        }
    )
    paths = write([a, b], tmp_path)
    with pytest.raises(plait.SchemaConflict) as caught:
        plait.merge(paths, tmp_path / "out", sort_by="k")
    text = str(caught.value)
    assert "4 schema conflicts" in text
    for column in ("`n`", "`t`", "`s.x`", "`l`"):
        assert column in text
    assert "`ok`" not in text
    assert all(str(path) in text for path in paths)
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


@pytest.mark.behaviour("merge-03")
def test_null_keys_and_ties_leave_in_source_order(tmp_path):
    import random

    tables = []
    for source in range(3):
        k = keys(60, random.Random(source))
        tables.append(pa.table({"k": k, "from": [source] * 60, "row": list(range(60))}))
    paths = write(tables, tmp_path, row_group_size=20)
    (out,) = check(paths, tmp_path / "out", row_group_rows=50)
    assert pq.read_table(out)["k"].null_count == 9
