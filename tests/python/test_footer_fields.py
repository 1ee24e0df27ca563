"""Sources whose footers lack what a writer may leave out, or say what is not so.

Every optional field, and every pair of them, is taken from files of three writers. Each merge is read by
PyArrow, DuckDB and Polars, whole and with filters, and compared with the sources.
"""

import itertools
import json
import math
import os
import random

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait

from . import footers

SEED = int(os.environ.get("PLAIT_SEED", "18"))
ROWS = 1500
GROUP_ROWS = 500
# The dictionary of PyArrow's files overflows within each row group.
DICTIONARY_BYTES = 300

# Where a chunk begins is not optional for a chunk with a dictionary: see `begins_with_dictionary`.
FIELDS = [name for name in footers.OPTIONAL if name != "ColumnMetaData.dictionary_page_offset"]

# Fields that none of the writers fills.
NOWHERE = {
    "RowGroup.sorting_columns",
    "SchemaElement.field_id",
    "ColumnChunk.file_path",
    "ColumnMetaData.key_value_metadata",
    "ColumnMetaData.index_page_offset",
    "ColumnMetaData.geospatial_statistics",
    "ColumnMetaData.bloom_filter_offset",
    "ColumnMetaData.bloom_filter_length",
}

WAYS = {
    "default": {},
    "small row groups": {"row_group_rows": 170},
    "another codec": {"compression": "gzip", "row_group_rows": 350},
    "chunk": {"copy_tiers": ("chunk",)},
    "page": {"copy_tiers": ("page",), "row_group_rows": 170},
    "dict": {"copy_tiers": ("dict",), "row_group_rows": 170},
    "value": {"copy_tiers": (), "row_group_rows": 350},
    "version 2": {"data_page_version": 2, "row_group_rows": 170},
}


def rows(rng, start):
    """Unique keys from `start` on; text and numbers that come again, lists, structs, nulls, NaN."""
    keys = sorted(rng.sample(range(start, start + 4 * ROWS), ROWS))
    words = [f"one of the words {rng.randrange(40):03}" for _ in range(150)]

    def some(value):
        return None if rng.random() < 0.1 else value

    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "s": [some(rng.choice(words)) for _ in keys],
            "n": pa.array([some(rng.choice([3, -7, 11, 2**40])) for _ in keys], pa.int64()),
            "f": [rng.choice([0.0, -0.0, 1.5, -2.5, 7.25]) for _ in keys],
            "l": [some([rng.choice(words) for _ in range(rng.randrange(3))]) for _ in keys],
            "t": [some({"a": rng.choice(words), "b": some(rng.random())}) for _ in keys],
        }
    )


def by_pyarrow(table, path):
    pq.write_table(
        table,
        path,
        row_group_size=GROUP_ROWS,
        dictionary_pagesize_limit=DICTIONARY_BYTES,
        data_page_size=512,
        write_batch_size=64,
        write_page_index=True,
        use_compliant_nested_type=True,
    )


def by_pyarrow_1_0(table, path):
    pq.write_table(
        table,
        path,
        row_group_size=GROUP_ROWS,
        version="1.0",
        dictionary_pagesize_limit=DICTIONARY_BYTES,
        data_page_size=512,
        write_batch_size=64,
        compression="gzip",
    )


def by_duckdb(table, path):
    duckdb.from_arrow(table).write_parquet(str(path), row_group_size=2048, compression="snappy")


def by_polars(table, path):
    pl.from_arrow(table).write_parquet(path, row_group_size=GROUP_ROWS, data_page_size=4096)


WRITERS = {
    "pyarrow": by_pyarrow,
    "pyarrow 1.0": by_pyarrow_1_0,
    "duckdb": by_duckdb,
    "polars": by_polars,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Two sources of each writer: interleaved keys, then keys behind both."""
    rng = random.Random(SEED)
    tables = [rows(rng, 0), rows(rng, 4 * ROWS * 10)]
    tables[1:1] = [tables[0].set_column(0, "k", pc.add(tables[0]["k"], 10**9))]
    tables[1] = tables[1].set_column(0, "k", pa.array(spread(rng, tables[0]["k"]), pa.int64()))
    folder = tmp_path_factory.mktemp("written")
    sources = {}
    for name, write in WRITERS.items():
        sources[name] = [folder / f"{name} {i}.parquet" for i in range(len(tables))]
        for table, path in zip(tables, sources[name], strict=True):
            write(table, path)
    return sources


def spread(rng, taken):
    """As many keys, in the same range, and none of `taken`."""
    left = sorted(set(range(4 * ROWS)) - set(taken.to_pylist()))
    return sorted(rng.sample(left, ROWS))


def read_pyarrow(paths, where=None):
    filters = None if where is None else (pc.field("k") >= where[0]) & (pc.field("k") < where[1])
    tables = [pq.read_table(path, filters=filters) for path in paths]
    return pa.concat_tables(tables).to_pylist()


def read_duckdb(paths, where=None):
    files = ", ".join(f"'{path}'" for path in paths)
    bounds = "" if where is None else f"where k >= {where[0]} and k < {where[1]}"
    return duckdb.sql(f"from read_parquet([{files}]) {bounds}").to_arrow_table().to_pylist()


def read_polars(paths, where=None):
    frames = [pl.scan_parquet(path) for path in paths]
    if where is not None:
        keep = (pl.col("k") >= where[0]) & (pl.col("k") < where[1])
        frames = [frame.filter(keep) for frame in frames]
    return [row for frame in frames for row in frame.collect().rows(named=True)]


READERS = {"pyarrow": read_pyarrow, "duckdb": read_duckdb, "polars": read_polars}


def sorted_rows(found):
    """Rows in the order of their unique keys, with the signs of zeros."""
    return sorted(map(repr, found), key=lambda row: int(row.split("'k': ")[1].split(",")[0]))


_read: dict = {}


def expected(reader, paths, where=None, *, key=None):
    """Rows of the sources, once for each reader."""
    key = (reader, key or tuple(paths), where)
    if key not in _read:
        _read[key] = sorted_rows(READERS[reader](paths, where))
    return _read[key]


def compare(out, sources, *, of=None, where=((500, 900), (60_100, 61_000))):
    """Reads an output by all readers, whole and with filters; `of` are sources to compare with."""
    of = of or sources
    for name, read in READERS.items():
        for bounds in (None, *where):
            found = read([out], bounds)
            in_order = sorted_rows(found)
            assert in_order == expected(name, of, bounds), (name, bounds)
            if name == "pyarrow":
                assert [repr(row) for row in found] == in_order, "the output is not in order"


def some_ways(count, *seed):
    """Ways to merge: all of them where there is time."""
    every = list(WAYS)
    count = len(every) if os.environ.get("PLAIT_LONG") else count
    return random.Random(f"{SEED} {seed}").sample(every, count)


def merge(sources, out, way):
    out.unlink(missing_ok=True)
    plait.merge(sources, out, sort_by="k", missing="null", **WAYS[way])
    return out


def taken_away(sources, folder, *names):
    """Copies of the sources without some fields; `None` if they have none of these."""
    copies = [folder / path.name for path in sources]
    taken = [footers.without(p, c, *names) for p, c in zip(sources, copies, strict=True)]
    return copies if any(taken) else None


def check(sources, folder, way, *names):
    copies = taken_away(sources, folder, *names)
    if copies is None:
        return 0
    # DuckDB knows no text and no lists by `logicalType` alone; outputs have both names of a type.
    elements = footers.read(copies[0]).structs("SchemaElement")
    is_half = "SchemaElement.converted_type" in names and any(
        element.get("logicalType") for element in elements
    )
    of = sources if is_half else copies
    try:
        compare(merge(copies, folder / "out.parquet", way), copies, of=of)
    except Exception as error:
        error.add_note(f"without {names}, {way}, seed {SEED}")
        raise
    finally:
        _read.clear()
    return 1


@pytest.mark.parametrize("writer", WRITERS)
def test_merges_of_overflowed_dictionaries_without_encoding_stats_are_read_by_all(
    writer, written, tmp_path
):
    for way in {"small row groups", *some_ways(2, writer)}:
        taken = check(written[writer], tmp_path, way, "ColumnMetaData.encoding_stats")
        assert taken or writer == "polars"  # it does not write them


@pytest.mark.few(8)
@pytest.mark.parametrize("field", FIELDS)
def test_a_source_may_lack_any_optional_field(field, written, tmp_path):
    done = 0
    for writer, sources in written.items():
        # Where there is no time for all writers, one that has the field.
        if not done or os.environ.get("PLAIT_LONG"):
            for way in some_ways(1, field, writer):
                done += check(sources, tmp_path, way, field)
    assert done or field in NOWHERE


@pytest.mark.long
def test_a_source_may_lack_any_pair_of_optional_fields(written, tmp_path):
    rng = random.Random(SEED)
    pairs = list(itertools.combinations(FIELDS, 2))
    cases = [(*pair, writer) for pair in pairs for writer in WRITERS]
    count = len(cases) if os.environ.get("PLAIT_LONG") else 15
    done = 0
    for one, other, writer in rng.sample(cases, len(cases)):
        if done == count:
            break
        done += check(written[writer], tmp_path, rng.choice(list(WAYS)), one, other)
    assert done == min(count, 15) or done > 800


def edited(sources, folder, edit):
    """Copies of the sources with every chunk's metadata edited."""

    def change(footer):
        for chunk in footer.structs("ColumnMetaData"):
            edit(chunk)

    return [footers.change(path, folder / path.name, change) for path in sources]


def begins_with_dictionary(chunk):
    """As old writers say where a chunk begins: the first page is the dictionary."""
    if chunk.get("dictionary_page_offset") is not None:
        chunk.set("data_page_offset", chunk.get("dictionary_page_offset"))
        chunk.drop("dictionary_page_offset")


def dictionary_at_zero(chunk):
    """As some writers do: an offset that is none."""
    if chunk.get("dictionary_page_offset") is not None:
        chunk.set("data_page_offset", chunk.get("dictionary_page_offset"))
        chunk.set("dictionary_page_offset", 0)


def all_pages_are_ids(chunk):
    """Pages that follow an overflowed dictionary are not told of."""
    stats = chunk.get("encoding_stats")
    if stats is not None and chunk.get("dictionary_page_offset") is not None:
        stats.items = [s for s in stats if s.get("encoding") in (2, 8) or s.get("page_type") == 2]


def other_counts(chunk):
    """Encoding stats that count one page too many."""
    for stats in chunk.get("encoding_stats") or []:
        stats.set("count", stats.get("count") + 1)


def too_many_values(chunk):
    chunk.set("num_values", chunk.get("num_values") + 5)


def too_few_values(chunk):
    chunk.set("num_values", chunk.get("num_values") - 5)


def no_encodings(chunk):
    chunk.get("encodings").items = [3]


def fewer_nulls(chunk):
    statistics = chunk.get("statistics")
    if statistics is not None and statistics.get("null_count"):
        statistics.set("null_count", statistics.get("null_count") - 1)


def more_levels(chunk):
    sizes = chunk.get("size_statistics")
    if sizes is not None and sizes.get("definition_level_histogram"):
        sizes.get("definition_level_histogram").items[0] += 3


LIES = [
    begins_with_dictionary,
    dictionary_at_zero,
    all_pages_are_ids,
    other_counts,
    too_many_values,
    too_few_values,
    no_encodings,
    fewer_nulls,
    more_levels,
]


def contradictions(path):
    """What an output's footer says of its pages that is not so, by their headers."""
    data = path.read_bytes()
    footer, _ = footers.parse(data)
    found = []
    for chunk in footer.structs("ColumnMetaData"):
        name = b".".join(chunk.get("path_in_schema")).decode()
        first = chunk.get("dictionary_page_offset")
        at = chunk.get("data_page_offset") if first is None else first
        end = at + chunk.get("total_compressed_size")
        counts, values = {}, 0
        while at < end:
            reader = footers.Reader(data[at : at + 4096])
            header = reader.struct(footers.Struct()).fields
            kind = header[1][1]
            part = header[{0: 5, 2: 7, 3: 8}[kind]][1].fields
            encoding = part[4 if kind == 3 else 2][1]
            counts[kind, encoding] = counts.get((kind, encoding), 0) + 1
            values += 0 if kind == 2 else part[1][1]
            at += reader.at + header[3][1]
        said = {}
        for stats in chunk.get("encoding_stats") or []:
            key = stats.get("page_type"), stats.get("encoding")
            said[key] = said.get(key, 0) + stats.get("count")
        if said != counts:
            found.append((name, "encoding_stats", said, counts))
        if not {encoding for _, encoding in counts} <= set(chunk.get("encodings")):
            found.append((name, "encodings", chunk.get("encodings").items, counts))
        if chunk.get("num_values") != values:
            found.append((name, "num_values", chunk.get("num_values"), values))
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_what_a_footer_says_wrongly_is_not_repeated(lie, written, tmp_path):
    for writer in ("pyarrow", "pyarrow 1.0"):
        copies = edited(written[writer], tmp_path, lie)
        for way in {"chunk", *some_ways(1, lie.__name__, writer)}:
            out = merge(copies, tmp_path / "out.parquet", way)
            compare(out, copies, of=written[writer])
            assert contradictions(out) == [], (writer, way)


@pytest.mark.parametrize("writer", WRITERS)
def test_footers_of_outputs_count_and_name_their_pages(writer, written, tmp_path):
    for way in some_ways(3, writer):
        assert contradictions(merge(written[writer], tmp_path / "out.parquet", way)) == [], way


def test_dictionary_pages_of_the_older_name_are_named_by_the_footer(tmp_path):
    # The first version of the format calls the plain values of a dictionary PLAIN_DICTIONARY.
    table = pa.table({"k": range(9000), "v": [f"value {i % 50}" for i in range(9000)]})
    pq.write_table(table, tmp_path / "a.parquet", version="1.0", data_page_size=3000)
    out = tmp_path / "out.parquet"
    plait.merge([tmp_path / "a.parquet"], out, sort_by="k", copy_tiers=("page", "dict"))
    assert contradictions(out) == []
    kinds = {
        (stats.get("page_type"), stats.get("encoding"))
        for stats in footers.read(out).structs("PageEncodingStats")
    }
    assert (2, 2) in kinds, "no dictionary page was kept as it was"
    assert pq.read_table(out).equals(table)


@pytest.mark.parametrize("tiers", [("chunk", "page", "dict"), ("page", "dict"), ("dict",), ()])
def test_overlays_of_files_that_lack_fields_are_read_by_all(tiers, written, tmp_path):
    # Row groups of the layers do not line up, so that chunks of the patch are cut.
    base = pq.read_table(written["pyarrow"][0])
    count = base.num_rows
    base = base.rename_columns(["_index", *base.column_names[1:]])
    patch = base.select(["_index", "s", "f"]).set_column(
        1, "s", pa.array([f"patched {i % 37:020}" for i in range(count)])
    )
    layers = []
    for name, table, group in (("base", base, 500), ("patch", patch, 333)):
        path, copy = tmp_path / f"{name}.full.parquet", tmp_path / f"{name}.parquet"
        pq.write_table(
            table,
            path,
            row_group_size=group,
            dictionary_pagesize_limit=DICTIONARY_BYTES,
            data_page_size=512,
            write_batch_size=64,
            write_page_index=True,
        )
        assert footers.without(path, copy, "ColumnMetaData.encoding_stats", "Statistics.null_count")
        layers.append(copy)
    out = tmp_path / "out.parquet"
    plait.overlay_files(
        [plait.Layer(layers[0]), plait.Layer(layers[1], ["s", "f"])], out, copy_tiers=tiers
    )
    expected = base.set_column(1, "s", patch["s"]).to_pylist()
    for table in (
        pq.read_table(out),
        duckdb.read_parquet(str(out)).to_arrow_table(),
        pl.read_parquet(out).to_arrow(),
    ):
        assert repr(table.select(base.column_names).to_pylist()) == repr(expected)
    assert contradictions(out) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("limit", ["64MB", "16MB"])
def test_what_waits_on_disk_is_read_by_all(limit, tmp_path):
    # More sources than a small limit merges at once, and chunks that wait.
    rng = random.Random(f"{SEED} {limit}")
    sources = []
    for i in range(40):
        keys = range(i, 40_000, 40)
        table = pa.table(
            {
                "k": pa.array(keys, pa.int64()),
                "s": [f"word {rng.randrange(40):030}" for _ in keys],
                "u": [rng.randbytes(200).hex() for _ in keys],
            }
        )
        path = tmp_path / f"full {i}.parquet"
        by_pyarrow(table, path)
        sources.append(tmp_path / f"{i}.parquet")
        footers.without(path, sources[-1], "ColumnMetaData.encoding_stats")
    out = tmp_path / "out.parquet"
    plait.merge(sources, out, sort_by="k", memory_limit=limit, row_group_rows=9000)
    compare(out, sources, where=((500, 900),))
    _read.clear()
    assert contradictions(out) == []


def column_index(data, column):
    """Null pages, bounds and their order."""
    at, length = column.get("column_index_offset"), column.get("column_index_length")
    if at is None:
        return None
    return footers.Reader(data[at : at + length]).struct(footers.Struct()).fields


@pytest.mark.parametrize("way", WAYS)
def test_pages_ascend_where_the_column_index_says_so(way, tmp_path):
    # Keys of maps whose bounds are cut to one byte by one source and whole in the other.
    rng = random.Random(SEED)
    sources = []
    for i in range(2):
        keys = range(i, 4000, 2)
        maps = [
            [(f"k{rng.randrange(6)}" + "é" * rng.randrange(40), 1)] * rng.randrange(3) for _ in keys
        ]
        table = pa.table(
            {
                "k": pa.array(keys, pa.int64()),
                "m": pa.array(maps, pa.map_(pa.string(), pa.int64())),
                "s": [f"{rng.randrange(9)}" + "\x7f" * 63 + rng.choice("aé") for _ in keys],
            }
        )
        sources.append(tmp_path / f"{i}.parquet")
        pq.write_table(
            table, sources[i], data_page_size=400, write_page_index=True, write_batch_size=16
        )
    out = tmp_path / "out.parquet"
    plait.merge(sources, out, sort_by="k", page_rows=20, **WAYS[way])
    assert check_bounds_of_text(out) > 50


def check_bounds_of_text(path):
    """Compares bounds of pages of byte arrays with the order that is declared; how many there are."""
    data = path.read_bytes()
    checked = 0
    for group in footers.parse(data)[0].get("row_groups"):
        for column in group.get("columns"):
            index = column_index(data, column)
            if index is None or column.get("meta_data").get("type") != 6:
                continue
            order = index[4][1]
            pages = zip(index[1][1], index[2][1], index[3][1], strict=True)
            bounds = [(low, high) for null, low, high in pages if null != 1]
            for (low, high), (next_low, next_high) in itertools.pairwise(bounds):
                if order == 1:
                    assert low <= next_low and high <= next_high
                if order == 2:
                    assert low >= next_low and high >= next_high
            checked += len(bounds)
    return checked


@pytest.mark.parametrize("case", ["2463", "4810"])
def test_outputs_of_the_hostile_review_say_what_they_hold(case, root, tmp_path):
    folder = root / "tests" / "cases" / "hostile" / case
    told = json.loads((folder / "case.json").read_text())
    out = tmp_path / "out.parquet"
    plait.merge(sorted(folder.glob("*.parquet")), out, sort_by=told["sort_by"], **told["opts"])
    assert contradictions(out) == []
    check_bounds_of_text(out)


FLOATS = {
    "pyarrow": lambda table, path: pq.write_table(
        table, path, write_page_index=True, row_group_size=200, data_page_size=256
    ),
    "duckdb": lambda table, path: duckdb.from_arrow(table).write_parquet(str(path)),
    "polars": lambda table, path: pl.from_arrow(table).write_parquet(path, row_group_size=200),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_order_of_floats_that_is_declared_is_that_of_all_their_bounds(way, tmp_path):
    rng = random.Random(f"{SEED} {way}")
    tables = []
    for i in range(3):
        pools = [[0.0], [-0.0], [math.nan], [-1.5, 0.0], [-0.0, 3.0, math.nan], [2.0, 5.0]]
        values = [rng.choice(pool) for pool in pools for _ in range(100)]
        keys = range(i * 1000, i * 1000 + len(values))
        tables.append(pa.table({"k": keys, "d": values, "f": pa.array(values, pa.float32())}))
    sources = []
    for table, (writer, write) in zip(tables, FLOATS.items(), strict=True):
        sources.append(tmp_path / f"{writer}.parquet")
        write(table, sources[-1])
    out, again = tmp_path / "out.parquet", tmp_path / "again.parquet"
    merge(sources, out, way)
    merge([out], again, way)
    for path in (out, again):
        footer = footers.read(path)
        orders = [list(order.fields) for order in footer.get("column_orders")]
        copies = {"chunk", "page"} & set(WAYS[way].get("copy_tiers", ("chunk", "page")))
        wanted_order = 1 if copies else 2  # what is copied has the sources' order
        assert orders[1:] == [[wanted_order]] * 2
        metadata = pq.ParquetFile(path).metadata
        for group in range(metadata.num_row_groups if copies else 0):
            for column in (1, 2):
                statistics = metadata.row_group(group).column(column).statistics
                if statistics is None or not statistics.has_min_max:
                    continue
                low, high = statistics.min, statistics.max
                assert not math.isnan(low) and not math.isnan(high)
                assert low != 0 or math.copysign(1, low) == -1, "a minimum bounds both zeros"
                assert high != 0 or math.copysign(1, high) == 1, "a maximum bounds both zeros"
        wanted = pa.concat_tables(tables)["d"].to_pylist()
        for low, high in ((-1.5, -0.0), (0.0, 0.0), (-0.0, 2.0), (3.0, 9.0)):
            count = sum(low <= value <= high for value in wanted)
            got = duckdb.sql(f"select count(*) from '{path}' where d >= {low} and d <= {high}")
            assert got.fetchall()[0][0] == count
            frame = pl.scan_parquet(path).filter((pl.col("d") >= low) & (pl.col("d") <= high))
            assert frame.collect().height == count
            table = pq.read_table(path, filters=[("d", ">=", low), ("d", "<=", high)])
            assert table.num_rows == count


def test_floats_of_our_own_keep_the_total_order_and_their_count_of_nan(tmp_path):
    # What was made without a source in another order goes on in the total order.
    table = pa.table({"k": range(100), "d": [0.0, -0.0, math.nan, 1.0] * 25})
    first, again = tmp_path / "first.parquet", tmp_path / "again.parquet"
    pq.write_table(table, tmp_path / "a.parquet", write_statistics=False)
    plait.merge([tmp_path / "a.parquet"], first, sort_by="k")
    plait.merge([first], again, sort_by="k")
    assert pq.read_table(again)["d"].to_pylist().__repr__() == table["d"].to_pylist().__repr__()
    for path in (first, again):
        assert footers.read(path).chunks(0)[1].get("num_values") == 100
