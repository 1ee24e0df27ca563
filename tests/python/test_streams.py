"""merge_streams: sorted Arrow data of any library, and Parquet files, as one sorted stream."""

import datetime as dt
import decimal
import gc
import os
import random
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait

CASES = 2000 if os.environ.get("CI") else 150
STREAM_BYTES = int(os.environ.get("PLAIT_STREAM_BYTES", "200_000_000"))


def merged(sources, sort_by, **options):
    return pa.table(plait.merge_streams(sources, sort_by=sort_by, **options))


def stable_sort(tables, keys):
    """The oracle: concatenate, sort stably by ordinary Python comparison."""
    rows = [row for table in tables for row in table.to_pylist()]
    for name, descending, nulls in reversed(keys):
        values = [row for row in rows if row[name] is not None]
        empty = [row for row in rows if row[name] is None]
        values.sort(key=lambda row: row[name], reverse=descending)
        rows = empty + values if nulls == "first" else values + empty
    return rows


def order_text(keys):
    return ", ".join(("-" if d else "") + f'"{n}" nulls {nulls}' for n, d, nulls in keys)


def sorted_table(table, keys):
    rows = stable_sort([table], keys)
    return pa.Table.from_pylist(rows, schema=table.schema)


def numbered(table, source):
    ids = pa.array([source * 1_000_000 + i for i in range(len(table))], pa.int64())
    return table.append_column("id", ids)


def chunked(table, random_):
    """The same rows in batches of odd sizes, some of them empty."""
    batches = []
    at = 0
    whole = table.combine_chunks()
    while at < len(whole):
        n = random_.choice([0, 1, 2, 3, 7, 30])
        batches += whole.slice(at, n).to_batches()
        if n == 0:
            batches.append(pa.RecordBatch.from_pylist([], schema=table.schema))
        at += n
    return pa.RecordBatchReader.from_batches(table.schema, batches)


VALUES = {
    "bool": (pa.bool_(), [False, True]),
    "int8": (pa.int8(), [-128, -1, 0, 5, 127]),
    "int16": (pa.int16(), [-32768, 0, 300]),
    "int32": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 1, 255]),
    "uint16": (pa.uint16(), [0, 65535]),
    "uint32": (pa.uint32(), [0, 2**31, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 2**63, 2**64 - 1]),
    "float32": (pa.float32(), [float("-inf"), -1.5, 0.0, 2.5, float("inf")]),
    "float64": (pa.float64(), [float("-inf"), -1.5, 0.0, 1e-300, float("inf")]),
    "date32": (pa.date32(), [dt.date(1960, 1, 1), dt.date(2030, 5, 5)]),
    "time64": (pa.time64("us"), [dt.time(0, 0), dt.time(23, 59, 59)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(y, 1, 1, tzinfo=dt.timezone.utc) for y in (1950, 2000, 2024)],
    ),
    "duration": (pa.duration("ms"), [dt.timedelta(d) for d in (-1, 0, 3)]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal(t) for t in ("-1.50", "0.00", "9.99")]),
    "decimal256": (pa.decimal256(50, 2), [decimal.Decimal(t) for t in ("-1.50", "0.00", "9.99")]),
    "string": (pa.string(), ["", "a", "a\0", "ab", "b", "host-1", "host-12", "é"]),
    "large_string": (pa.large_string(), ["", "a", "ab", "zz"]),
    "string_view": (pa.string_view(), ["", "a", "a string that is longer than a view", "b"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"a", b"\xff"]),
    "fixed_binary": (pa.binary(2), [b"\0\0", b"\0a", b"\xff\xff"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "bb", "c"]),
}


def random_sources(random_, names, k, rows):
    keys = [(name, random_.random() < 0.5, random_.choice(["first", "last"])) for name in names]
    tables = []
    for source in range(k):
        n = random_.randrange(rows)
        columns = {}
        for name in names:
            ty, values = VALUES[name]
            some = [random_.choice([*values, None]) for _ in range(n)]
            columns[name] = pa.array(some, ty)
        table = sorted_table(pa.table(columns), keys)
        tables.append(numbered(table, source))
    return tables, keys


@pytest.mark.parametrize("name", VALUES)
def test_every_key_type_is_merged_as_a_stable_sort_has_it(name):
    random_ = random.Random(name)
    for _ in range(8):
        tables, keys = random_sources(random_, [name], 4, 40)
        readers = [chunked(table, random_) for table in tables]
        out = merged(readers, order_text(keys), batch_rows=random_.choice([1, 5, 1000]))
        assert out.schema.field(name).type == VALUES[name][0]
        assert out.to_pylist() == stable_sort(tables, keys)


@pytest.mark.parametrize("part", range(10))
def test_random_sources_and_batches_merge_as_a_stable_sort_has_it(part):
    for seed in range(part, CASES, 10):
        random_ = random.Random(seed)
        names = random_.sample(sorted(VALUES), random_.randrange(1, 4))
        tables, keys = random_sources(random_, names, random_.randrange(1, 9), 60)
        readers = [chunked(table, random_) for table in tables]
        batch_rows = random_.choice([1, 3, 10, 64, 8192])
        stream = plait.merge_streams(
            readers,
            sort_by=order_text(keys),
            batch_rows=batch_rows,
            threads=random_.choice([1, 2, 3]),
        )
        batches = [pa.record_batch(batch) for batch in stream]
        assert all(len(batch) == batch_rows for batch in batches[:-1]), seed
        out = pa.Table.from_batches(batches, pa.schema(stream.schema))
        assert out.to_pylist() == stable_sort(tables, keys), seed


def test_large_batches_are_copied_beside_each_other():
    random_ = random.Random(1)
    tables = []
    for source in range(5):
        ks = sorted(random_.randrange(50_000) for _ in range(60_000))
        texts = [f"t{k % 97}" for k in ks]
        tables.append(numbered(pa.table({"k": ks, "t": texts, "l": [[k] for k in ks]}), source))
    out = merged(tables, "k")
    joined = pa.concat_tables(tables)
    places = pc.sort_indices(joined.column("k"))
    assert out.column("k").to_pylist() == joined.column("k").take(places).to_pylist()
    ids = joined.select(["k", "id"]).sort_by([("k", "ascending"), ("id", "ascending")])
    assert out.column("id").to_pylist() == ids.column("id").to_pylist()
    assert out.column("t").to_pylist() == [f"t{k % 97}" for k in out.column("k").to_pylist()]
    assert out.column("l").to_pylist() == [[k] for k in out.column("k").to_pylist()]


def test_columns_of_every_shape_are_carried():
    shapes = {
        "list": pa.array([[1], None, [], [2, 3]]),
        "large_list": pa.array([[1], None, [], [2, 3]], pa.large_list(pa.int8())),
        "fixed": pa.array([[1, 2], None, [3, 4], [5, None]], pa.list_(pa.int16(), 2)),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 2, "b": None}]),
        "map": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int32())),
        "null": pa.nulls(4),
        "ree": pa.RunEndEncodedArray.from_arrays([2, 4], ["x", None]),
        "view": pa.array(["a", None, "c" * 50, ""], pa.string_view()),
        "nested": pa.array([[{"d": [1]}], None, [], [{"d": None}]]),
        "dict": pa.array(["p", None, "q", "p"]).dictionary_encode(),
    }
    tables = [
        pa.table({"k": pa.array([1, 3, 5, 7]), **shapes}),
        pa.table({"k": pa.array([2, 3, 6, 8]), **shapes}),
    ]
    out = merged(tables, "k", batch_rows=3)
    assert out.to_pylist() == stable_sort(tables, [("k", False, "last")])
    assert out.schema == tables[0].schema


def test_a_leaf_of_a_struct_is_a_key():
    rows = [{"t": {"h": "a"}}, {"t": {"h": "c"}}, {"t": {"h": None}}, {"t": None}]
    first = pa.Table.from_pylist(rows)
    second = pa.Table.from_pylist([{"t": {"h": "b"}}, {"t": None}], schema=first.schema)
    out = merged([first, second], "t.h").column("t").to_pylist()
    assert [row and row["h"] for row in out] == ["a", "b", "c", None, None, None]


def test_without_sort_columns_sources_follow_each_other():
    tables = [pa.table({"a": [3, 1]}), pa.table({"a": [2]}), pa.table({"a": [9, 0]})]
    assert merged(tables, []).column("a").to_pylist() == [3, 1, 2, 9, 0]


def test_nothing_is_pulled_that_is_not_needed():
    pulled = [0, 0, 0]

    def batches(source, start):
        for i in range(100):
            pulled[source] += 1
            ks = [start + 30 * i + 3 * j for j in range(10)]
            yield pa.record_batch({"k": pa.array(ks)})

    # A generator is asked for its first batch when the stream is made: only that has its schema.
    stream = plait.merge_streams([batches(s, s) for s in range(3)], sort_by="k", batch_rows=10)
    assert pulled == [1, 1, 1]
    next(stream)
    assert pulled == [1, 1, 1]
    next(stream)
    assert pulled == [1, 1, 1]
    next(stream)
    assert pulled == [2, 2, 1], "the last rows of the others come after the last one of source 0"
    for n in range(4, 40):
        next(stream)
        exhausted = [len(range(s, 10 * n, 3)) // 10 for s in range(3)]
        assert all(p <= 1 + e for p, e in zip(pulled, exhausted)), (n, pulled)
    stream.close()
    before = list(pulled)
    with pytest.raises(plait.InvalidArgument, match="closed"):
        next(stream)
    assert pulled == before


def test_a_reader_is_not_touched_before_the_first_batch():
    touched = []

    def batches():
        touched.append(1)
        yield pa.record_batch({"k": [1]})

    reader = pa.RecordBatchReader.from_batches(pa.schema({"k": pa.int64()}), batches())
    stream = plait.merge_streams([reader], sort_by="k")
    assert pa.schema(stream.schema) == pa.schema({"k": pa.int64()}) and not touched
    assert pa.table(stream).to_pydict() == {"k": [1]} and touched


def test_a_source_that_is_far_ahead_is_not_copied():
    low, high = pa.table({"k": range(20_000)}), pa.table({"k": range(20_000, 40_000)})
    [batch, *_] = plait.merge_streams([high, low], sort_by="k", batch_rows=20_000)
    address = pa.record_batch(batch).column(0).buffers()[1].address
    assert address == low.column("k").chunk(0).buffers()[1].address


def test_any_library_gives_and_takes():
    table = pa.table({"k": [1, 4], "v": ["a", "d"]})
    other = pa.table({"k": [2, 4], "v": ["b", "e"]})
    frame = pl.DataFrame(other)
    relation = duckdb.sql("from other")

    def sources():
        return [table, frame.rechunk(), relation, (b for b in table.to_batches())]

    expected = ["a", "a", "b", "b", "d", "e", "e", "d"]

    def stream():
        return plait.merge_streams(sources(), sort_by="k")

    assert pa.table(stream()).column("v").cast(pa.string()).to_pylist() == expected
    assert pl.DataFrame(stream())["v"].to_list() == expected
    # The relation is read while the query runs: each needs a connection of its own.
    connection = duckdb.connect()
    connection.register("merged", pa.RecordBatchReader.from_stream(stream()))
    assert [v for (v,) in connection.sql("select v from merged").fetchall()] == expected
    again = plait.merge_streams([stream(), table], sort_by="k")
    assert pa.table(again).num_rows == 10


def test_one_table_need_not_be_in_a_list():
    table = pa.table({"k": [1, 2], "v": ["a", "b"]})
    for one in (table, table.to_batches()[0], table.to_reader(), table.to_pandas()):
        assert pa.table(plait.merge_streams(one, sort_by="k")).to_pylist() == table.to_pylist()


def test_files_and_sources_of_batches_merge_as_one(tmp_path):
    pq.write_table(pa.table({"k": [1, 5], "v": ["f", "f"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [2, 5], "v": ["g", "g"]}), tmp_path / "b.parquet")
    passing = pa.table({"k": [3, 5], "v": ["p", "p"]})
    out = merged([tmp_path / "a.parquet", passing, str(tmp_path / "b*.parquet")], "k")
    assert out.to_pydict() == {"k": [1, 2, 3, 5, 5, 5], "v": ["f", "g", "p", "f", "p", "g"]}
    assert merged([tmp_path], "k").num_rows == 4
    with pytest.raises(plait.SourceNotFound):
        plait.merge_streams([tmp_path / "none.parquet"], sort_by="k")


def test_a_damaged_file_is_a_corrupt_source_that_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"k": range(50_000)})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[4:80] = b"\xff" * 76
    path.write_bytes(data)
    with pytest.raises(plait.CorruptSource, match=r"a\.parquet"):
        list(plait.merge_streams([path, pa.table({"k": [7]})], sort_by="k"))


def test_drift_between_sources_is_reconciled():
    first = pa.table({"k": pa.array([1, 3], pa.int32()), "v": ["a", "c"]})
    second = pa.table({"k": pa.array([2], pa.uint32()), "w": [{"x": 1}]})
    third = pa.table({"w": [{"x": 5, "y": "z"}], "k": pa.array([9], pa.int64())})
    out = merged([first, second, third], "k")
    assert out.schema.field("k").type == pa.int64()
    assert out.to_pylist() == [
        {"k": 1, "v": "a", "w": None},
        {"k": 2, "v": None, "w": {"x": 1, "y": None}},
        {"k": 3, "v": "c", "w": None},
        {"k": 9, "v": None, "w": {"x": 5, "y": "z"}},
    ]
    with pytest.raises(plait.SchemaConflict, match="`v` is missing"):
        plait.merge_streams([first, second, third], sort_by="k", missing="error")
    with pytest.raises(plait.SchemaConflict, match="`k` would have to be widened"):
        plait.merge_streams([first, second], sort_by="k", widen="error")


def test_conflicts_are_reported_all_at_once():
    first = pa.table({"k": [1], "v": ["a"], "w": [1]})
    second = pa.table({"k": [1.5], "v": [1], "w": [2]})
    with pytest.raises(plait.SchemaConflict) as caught:
        plait.merge_streams([first, second], sort_by="w")
    assert "`k`" in str(caught.value) and "`v`" in str(caught.value)


def test_metadata_that_differs_follows_the_policy():
    tables = [
        pa.table({"k": [i]}).replace_schema_metadata({"same": "s", "who": str(i)}) for i in range(2)
    ]

    def kept(how):
        return pa.schema(
            plait.merge_streams(tables, sort_by="k", metadata_conflicts=how).schema
        ).metadata

    assert kept("first") == {b"same": b"s", b"who": b"0"}
    assert kept("drop") == {b"same": b"s"}
    with pytest.raises(plait.SchemaConflict, match="who"):
        kept("error")


def test_a_value_that_does_not_fit_the_common_type_is_an_error():
    coarse = pa.table({"k": pa.array([2**62], pa.timestamp("s"))})
    fine = pa.table({"k": pa.array([1], pa.timestamp("ns"))})
    # Too far away to be written as a time: the number is told.
    with pytest.raises(plait.LossyCast, match=f"source 0, column `k`, row 0, got `{2**62}`"):
        list(plait.merge_streams([coarse, fine], sort_by="k"))


def test_narrow_dictionaries_that_overflow_together_come_in_smaller_batches():
    def side(start):
        values = [f"v{start + 2 * i:03}" for i in range(100)]
        return pa.table(
            {"v": pa.array(values).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))}
        )

    tables = [side(0), side(1), side(200)]
    stream = plait.merge_streams(tables, sort_by="v")
    out = pa.Table.from_batches(
        [pa.record_batch(batch) for batch in stream], pa.schema(stream.schema)
    )
    assert out.schema.field("v").type == pa.dictionary(pa.int8(), pa.string())
    assert out.to_pylist() == stable_sort(tables, [("v", False, "last")])


@pytest.mark.parametrize("later", [False, True])
def test_disorder_names_source_row_and_both_keys(later):
    ks = [1, 2, 5, 4] if not later else [*range(20_000), 7]
    bad = pa.table({"k": ks, "s": ["x"] * len(ks)})
    stream = plait.merge_streams([pa.table({"k": [0], "s": ["x"]}), bad], sort_by="s, k")
    with pytest.raises(plait.UnsortedSource) as caught:
        list(stream)
    text = str(caught.value)
    assert "source 1" in text and "column `s, k`" in text
    assert caught.value.row == len(ks) - 1
    assert f"`x`, {ks[-1]} after `x`, {ks[-2]}" in text
    with pytest.raises(StopIteration):
        next(stream)


def test_disorder_between_two_batches_is_found_and_trust_is_explicit():
    def batches():
        return (pa.record_batch({"k": [k]}) for k in (1, 3, 2))

    with pytest.raises(plait.UnsortedSource, match=r"row 2.*2 after 3"):
        list(plait.merge_streams([batches()], sort_by="k"))
    out = merged([batches()], "k", assume_sorted=True)
    assert out.column("k").to_pylist() == [1, 3, 2]


def test_a_batch_of_another_schema_is_drift():
    def batches():
        yield pa.record_batch({"k": [1]})
        yield pa.record_batch({"k": ["two"]})

    stream = plait.merge_streams([batches()], sort_by="k", batch_rows=1)
    assert len(next(stream)) == 1
    with pytest.raises(plait.SchemaDrift, match="source 0"):
        next(stream)


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_one_path_need_not_be_in_a_list(kind, tmp_path):
    for day in range(2):
        pq.write_table(pa.table({"k": [day, day + 5]}), tmp_path / f"day-{day}.parquet")
    days = plait.merge_streams(kind(str(tmp_path / "day-*.parquet")), sort_by="k")
    assert pa.table(days).column("k").to_pylist() == [0, 1, 5, 6]


def test_wrong_arguments_are_refused():
    table = pa.table({"k": [1], "l": [[1]]})
    for sources, options, error, text in [
        ([], {}, plait.InvalidArgument, "no sources"),
        (None, {}, plait.InvalidArgument, "not a list"),
        ([7], {}, plait.InvalidArgument, "not a stream"),
        ([table], {"batch_rows": 0}, plait.InvalidArgument, "at least one row"),
        ([table], {"batch_rows": -1}, plait.InvalidArgument, "count"),
        ([table], {"sort_by": None}, plait.InvalidArgument, "sort_by"),
        ([table], {"sort_by": "x"}, plait.UnknownColumn, "`k`"),
        ([table], {"sort_by": "k.x"}, plait.UnknownColumn, "`k`"),
        ([table], {"sort_by": "l"}, plait.UnsupportedKey, "list<item: int64>"),
        ([table], {"sort_by": "k,"}, plait.InvalidArgument, "comma"),
        ([table], {"widen": "no"}, plait.InvalidArgument, "widen"),
        ([pa.Table.from_arrays([[1], [2]], ["k", "k"])], {}, plait.DuplicateField, "`k`"),
    ]:
        with pytest.raises(error, match=text):
            plait.merge_streams(sources, **{"sort_by": "k", **options})


class Watched:
    alive = 0

    def __init__(self):
        Watched.alive += 1

    def __del__(self):
        Watched.alive -= 1


def watched(watch, count, raises=None):
    for i in range(count):
        yield pa.record_batch({"k": pa.array([10 * i, 10 * i + 1])})
    if raises is not None:
        raise raises


@pytest.mark.parametrize("how", ["end", "close", "drop", "raise", "disorder", "capsule"])
def test_sources_are_let_go_however_it_ends(how):
    sources = [watched(Watched(), 50) for _ in range(3)]
    sources.append(watched(Watched(), 3, LookupError("gone") if how == "raise" else None))
    if how == "disorder":
        sources.append(pa.table({"k": [2, 1]}))
    stream = plait.merge_streams(sources, sort_by="k", batch_rows=4)
    del sources
    if how == "disorder":
        with pytest.raises(plait.UnsortedSource):
            list(stream)
    elif how == "raise":
        with pytest.raises(LookupError, match="gone"):
            list(stream)
    elif how == "end":
        assert sum(len(batch) for batch in stream) == 306
    elif how == "close":
        next(stream)
        stream.close()
    elif how == "capsule":
        reader = pa.RecordBatchReader.from_stream(stream)
        reader.read_next_batch()
        reader.close()
        del reader
    else:
        next(stream)
        del stream
    gc.collect()
    assert Watched.alive == 0


def test_what_is_released_was_held_no_longer_than_needed():
    alive = []

    def batches():
        for i in range(200):
            buffer = pa.allocate_buffer(8 * 1000)
            column = pa.Array.from_buffers(pa.int64(), 1000, [None, buffer])
            column = pc.add(pc.multiply(column, 0), i)
            yield pa.record_batch({"k": column})

    before = pa.total_allocated_bytes()
    for batch in plait.merge_streams([batches(), batches()], sort_by="k", batch_rows=500):
        alive.append(pa.total_allocated_bytes() - before)
        del batch
    assert max(alive) < 30 * 8000, "some batches are held, not all 400"
    gc.collect()
    assert pa.total_allocated_bytes() - before < 2 * 8000


def test_no_thread_lives_between_two_batches():
    table = pa.table({"k": range(200_000), "v": range(200_000)})
    stream = plait.merge_streams([table, table], sort_by="k", threads=3)
    next(stream)
    assert not [t for t in os.listdir("/proc/self/task") if name_of(t).startswith("plait")]


def name_of(task):
    with open(f"/proc/self/task/{task}/comm") as file:
        return file.read()


INTERRUPTED = """
import os, signal, sys, threading, time
import pyarrow as pa, plait

def endless(start):
    k = start
    while True:
        yield pa.record_batch({"k": pa.array(range(k, k + 1000))})
        k += 1000

def native(start):
    whole = pa.table({"k": range(100_000)})
    return pa.RecordBatchReader.from_batches(whole.schema, forever(whole))

def forever(whole):
    while True:
        yield from pa.table({"k": pa.repeat(7, 1000).cast(pa.int64())}).to_batches()

def main(how):
    # Python swallows an interrupt that meets a finalizer: that one, and no other, is sent again.
    sys.unraisablehook = lambda _: os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    if how == "iterate":
        for _ in plait.merge_streams([endless(0), endless(5)], sort_by="k"):
            pass
    else:
        stream = plait.merge_streams([native(0), native(5)], sort_by="k")
        for batch in pa.RecordBatchReader.from_stream(stream):
            pass

try:
    main(sys.argv[1])
except KeyboardInterrupt:
    print("stopped")
except pa.ArrowException as error:
    print("stopped" if "KeyboardInterrupt" in str(error) else error)
"""


@pytest.mark.parametrize("how", ["iterate", "capsule"])
def test_ctrl_c_stops_it(how):
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, how], capture_output=True, text=True, timeout=60
    )
    assert run.stdout.strip() == "stopped", run.stderr


FLAT = """
import resource, sys
import numpy as np, pyarrow as pa, plait

total = int(sys.argv[1])
ROWS, SOURCES = 16_384, 8
ROW_BYTES = 8 + 8 + 16
per_source = total // (ROWS * ROW_BYTES * SOURCES)
payload = pa.array(np.random.default_rng(0).integers(0, 1 << 60, ROWS))
text = pa.FixedSizeBinaryArray.from_buffers(
    pa.binary(16), ROWS, [None, pa.py_buffer(np.random.default_rng(1).bytes(ROWS * 16))])

def batches(source):
    steps = np.arange(ROWS, dtype=np.int64) * SOURCES + source
    for i in range(per_source):
        keys = steps + i * ROWS * SOURCES
        yield pa.record_batch({"k": pa.array(keys), "p": payload, "t": text})

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

stream = plait.merge_streams([batches(s) for s in range(SOURCES)], sort_by="k")
rows, sizes = 0, []
for batch in stream:
    first = pa.record_batch(batch).column("k")
    assert first[0].as_py() == rows
    rows += len(batch)
    if rows % (64 * 8192) == 0:
        sizes.append(resident())
assert rows == per_source * ROWS * SOURCES
early, late = max(sizes[: max(1, len(sizes) // 4)]), max(sizes)
print(rows * ROW_BYTES, early, late)
"""


@pytest.mark.long
def test_memory_stays_flat_while_rows_pass_by():
    run = subprocess.run(
        [sys.executable, "-c", FLAT, str(STREAM_BYTES)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    total, early, late = map(int, run.stdout.split())
    assert total > STREAM_BYTES * 0.95
    assert late < early * 1.1 + 10_000_000, (early, late)
