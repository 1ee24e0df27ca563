"""Overlay: the recorded cases, the door, and every way in which a layer can go wrong."""

import gc
import importlib.util
import json
import os
import sys
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import plait
from plait import Layer

CASES_DIR = Path(__file__).parent.parent / "cases"


def _load(name):
    spec = importlib.util.spec_from_file_location(name, CASES_DIR / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


batches = _load("batches")
CASES = json.loads((CASES_DIR / "overlay.json").read_text())["cases"]
# A `Layer` is a stream and its paths, so that there cannot be more lists of paths than streams; below it, there can.
SAYABLE = [case for case in CASES if case["expect"].get("error") != "ArgumentError"]


def read(stream):
    """All rows as one batch."""
    return pa.table(stream).combine_chunks()


def one_batch(table):
    found = table.to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=table.schema)


def layers_of(case):
    return [
        Layer([batches.build_batch(batch) for batch in layer["batches"]], layer["paths"])
        for layer in case["layers"]
    ]


def test_there_are_cases():
    assert len(CASES) >= 40
    assert len(CASES) - len(SAYABLE) == 1


@pytest.mark.behaviour(
    "overlay-03",
    "overlay-10",
    "overlay-13",
    "overlay-15",
    "overlay-16",
    "overlay-17",
    "overlay-19",
    "overlay-27",
    "overlay-30",
    "overlay-32",
)
@pytest.mark.parametrize("case", SAYABLE, ids=lambda case: f"{case['id']} {case['title']}")
@pytest.mark.parametrize("batch_rows", [None, 1, 3])
def test_recorded_cases_hold(case, batch_rows):
    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(getattr(plait, expect["error"])):
            list(plait.overlay(layers_of(case), batch_rows=batch_rows))
        return
    table = read(plait.overlay(layers_of(case), batch_rows=batch_rows))
    if "empty" in expect:
        assert table.num_rows == 0
        assert table.column_names == ["_index", "x", "y"]
        return
    got = batches.ser_batch(one_batch(table))
    assert got == expect


@pytest.mark.behaviour("overlay-07")
def test_more_lists_of_paths_than_streams_are_refused_below_the_door(monkeypatch):
    """Case O29, recorded where streams and lists of paths are two arguments, as they are at the border."""
    [case] = [case for case in CASES if case not in SAYABLE]
    door = sys.modules["plait._overlay"]
    native = door._native.overlay

    def with_spare_paths(streams, schemas, options, validate):
        options = json.loads(options)
        options["layers"].append(options["layers"][0])
        return native(streams, schemas, json.dumps(options), validate)

    monkeypatch.setattr(door._native, "overlay", with_spare_paths)
    with pytest.raises(plait.InvalidArgument, match="paths of 2 layers, 1 streams"):
        plait.overlay(layers_of(case))


BASE = pa.table({"_index": [1, 2, 3], "a": [{"x": 1, "y": 2}, None, {"x": 5, "y": 6}]})
PATCH = pa.table({"_index": [1, 2, 3], "a": [{"y": 20}, {"y": 40}, None], "b": ["p", None, "q"]})


def test_any_library_can_be_a_layer_and_take_the_result():
    patch = PATCH.select(["_index", "b"])
    base = [Layer(BASE), Layer(pl.DataFrame(patch), ["b"])]
    relation = duckdb.sql("select _index, b from patch")
    expected = BASE.append_column("b", PATCH["b"]).to_pylist()
    for layers in (
        base,
        [base[0], Layer(relation, ["b"])],
        [base[0], Layer(plait.Stream(patch), ["b"])],
    ):
        assert pa.table(plait.overlay(layers)).to_pylist() == expected
    assert pl.DataFrame(plait.overlay(base)).to_dicts() == expected


@pytest.mark.behaviour("overlay-20")
def test_value_buffers_are_shared():
    rows = pa.record_batch(
        {"_index": pa.array(range(5000)), "s": pa.array([{"x": 1.0, "y": "t"}] * 5000)}
    )
    [batch] = plait.overlay([Layer(rows), Layer(rows, ["s.y"])])
    got, had = pa.record_batch(batch).column("s"), rows.column("s")
    for field in (0, 1):
        assert got.field(field).buffers()[1].address == had.field(field).buffers()[1].address


@pytest.mark.behaviour("overlay-04")
def test_precedence_goes_before_place_and_of_equals_the_later_is_stronger():
    layers = [Layer(pa.table({"_index": [1], "x": [n]}), ["x"]) for n in range(3)]

    def winner(*precedences):
        order = [Layer(x.stream, x.paths, precedence=p) for x, p in zip(layers, precedences)]
        return read(plait.overlay(order))["x"].to_pylist()

    assert winner(None, None, None) == [2]
    assert winner(1, None, None) == [0]
    assert winner(5, 5, -1) == [1]


@pytest.mark.behaviour("overlay-02")
@pytest.mark.parametrize(
    "paths",
    [["a.y"], [("a", "y")], [["a", "y"]], ['a."y"'], "a.y", iter(["a.y"])],
    ids=["names", "tuple", "list", "quoted", "text", "iterator"],
)
def test_paths_are_text_or_names(paths):
    table = read(plait.overlay([Layer(BASE, ["a"]), Layer(PATCH, paths)]))
    assert table["a"].to_pylist() == [{"x": 1, "y": 20}, {"x": None, "y": 40}, {"x": 5, "y": None}]


@pytest.mark.behaviour("overlay-05")
def test_a_dot_in_a_name_is_never_guessed():
    table = pa.table({"_index": [1], "a.b": [1], "a": [{"b": 2}]})
    for path in ["a.b"]:
        with pytest.raises(plait.InvalidPath, match="two ways"):
            plait.overlay([Layer(table, [path])])
    assert read(plait.overlay([Layer(table, ['"a.b"'])])).column_names == ["_index", "a.b"]
    assert read(plait.overlay([Layer(table, [("a", "b")])])).column_names == ["_index", "a"]
    with pytest.raises(plait.FieldNotInLayer):
        plait.overlay([Layer(table.drop(["a.b"]), ['"a.b"'])])


@pytest.mark.behaviour("overlay-06", "overlay-08")
@pytest.mark.parametrize(
    ("paths", "error"),
    [
        ([""], plait.InvalidPath),
        (["a..y"], plait.InvalidPath),
        ([()], plait.InvalidPath),
        ([7], plait.InvalidPath),
        ([("a", 7)], plait.InvalidPath),
        (7, plait.InvalidPath),
        (["A"], plait.FieldNotInLayer),
        (["a.z"], plait.FieldNotInLayer),
        (["a.x.q"], plait.PathThroughNonStruct),
    ],
    ids=str,
)
def test_paths_that_lead_nowhere_are_refused_before_a_row_is_read(paths, error):
    def batches():
        yield BASE.to_batches()[0]
        raise AssertionError("a second batch was asked for")

    with pytest.raises(error):
        plait.overlay([Layer(batches(), paths)])


@pytest.mark.behaviour("overlay-14")
@pytest.mark.parametrize(
    ("base", "patch"),
    [
        (pa.array([[1]]), pa.array([{"x": 1}])),
        (pa.array([7]), pa.array([{"x": 1}])),
        (pa.array([{}], pa.struct([])), pa.array([{"x": 1}])),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), pa.array([{"x": 1}])),
    ],
    ids=str,
)
def test_what_is_taken_whole_cannot_be_contested(base, patch):
    layers = [
        Layer(pa.table({"_index": [1], "a": base}), ["a"], name="base"),
        Layer(pa.table({"_index": [1], "a": patch}), ["a.x"], name="patch"),
    ]
    with pytest.raises(plait.SplitInsideNonStruct, match="base") as caught:
        plait.overlay(layers)
    assert caught.value.column == "a"


@pytest.mark.behaviour("overlay-24", "overlay-25")
@pytest.mark.parametrize(
    ("one", "other", "row", "words"),
    [
        ([1, 2, 3], [1, 2, 4], 2, "`3` in layer `one`, `4` in layer `other`"),
        ([1, 2, 3], [1, None, 3], 1, "`2` in layer `one`, null in layer `other`"),
        ([1, None, 3], [1, None, 3], 1, "null in layer `one`"),
        ([1, 2, 3], [1, 2], 2, "no further row in layer `other`, `3` in layer `one`"),
        ([1, 2], [1, 2, 3], 2, "no further row in layer `one`, `3` in layer `other`"),
        ([], [1], 0, "no further row in layer `one`, `1` in layer `other`"),
    ],
    ids=str,
)
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_rows_that_differ_are_named(one, other, row, words, chunk):
    def layer(name, index, paths):
        table = pa.table({"_index": pa.array(index, pa.int64()), name: pa.array(index, pa.int64())})
        return Layer(table.to_batches(max_chunksize=chunk) or table, paths, name=name)

    for paths in ([["one"], ["other"]], [["one"], []]):
        layers = [layer("one", one, paths[0]), layer("other", other, paths[1])]
        with pytest.raises(plait.RowMismatch) as caught:
            list(plait.overlay(layers))
        assert words in str(caught.value)
        assert caught.value.row == row
        assert caught.value.column == "_index"


def test_rows_that_differ_are_named_by_times_as_people_read_them():
    times = [pa.array([second * 500], pa.timestamp("ms", "UTC")) for second in range(2)]
    layers = [
        Layer(pa.table({"_index": index, name: [1]}), name=name)
        for index, name in zip(times, "ab", strict=True)
    ]
    with pytest.raises(plait.RowMismatch) as caught:
        list(plait.overlay(layers))
    assert "`1970-01-01 00:00:00Z` in layer `a`, `1970-01-01 00:00:00.5Z`" in str(caught.value)


@pytest.mark.behaviour("overlay-28")
def test_unused_layers_are_compared_unless_told_otherwise():
    unused = pa.table({"_index": [9], "z": [1]})
    layers = [Layer(BASE), Layer(unused, [])]
    with pytest.raises(plait.RowMismatch):
        list(plait.overlay(layers))
    assert read(plait.overlay(layers, check_unused=False)).num_rows == 3


@pytest.mark.behaviour("overlay-26")
def test_row_numbers_tell_rows_of_equal_index_apart():
    def layer(numbers, name):
        return Layer(pa.table({"_index": [5, 5, 5], "n": numbers, name: [1, 2, 3]}), [name])

    same = [layer([1, 2, 3], "x"), layer([1, 2, 3], "y")]
    swapped = [layer([1, 2, 3], "x"), layer([2, 1, 3], "y")]
    assert read(plait.overlay(same, row_number="n")).column_names == ["_index", "x", "y"]
    assert read(plait.overlay(swapped)).num_rows == 3
    with pytest.raises(plait.RowMismatch, match="row numbers") as caught:
        list(plait.overlay(swapped, row_number="n"))
    assert (caught.value.row, caught.value.column) == (0, "n")


@pytest.mark.behaviour("overlay-29")
def test_the_index_is_found_by_name_or_by_metadata():
    marked = pa.schema(
        [pa.field("t", pa.timestamp("ms", "UTC"), metadata={"role": "time"}), ("x", pa.int64())]
    )
    table = pa.table({"t": pa.array([1, 2], pa.timestamp("ms", "UTC")), "x": [1, 2]}, schema=marked)
    for index in ("t", {"role": "time"}):
        got = read(plait.overlay([Layer(table)], index=index))
        assert got.equals(table) and got.schema.equals(table.schema, check_metadata=True)
    with pytest.raises(plait.FieldNotInLayer, match="index"):
        plait.overlay([Layer(table)])
    with pytest.raises(plait.IndexTypeError):
        plait.overlay([Layer(pa.table({"t": ["a"], "x": [1]}))], index="t")


@pytest.mark.parametrize(
    "call",
    [
        lambda: plait.overlay([]),
        lambda: plait.overlay(Layer(BASE)),
        lambda: plait.overlay([BASE]),
        lambda: plait.overlay(7),
        lambda: plait.overlay([Layer(BASE)], batch_rows=0),
        lambda: plait.overlay([Layer(BASE)], batch_rows=1 << 21),
        lambda: plait.overlay([Layer(BASE)], struct_validity="some"),
        lambda: plait.overlay([Layer(BASE)], check_unused=1),
        lambda: plait.overlay([Layer(BASE)], index=7),
        lambda: plait.overlay([Layer(BASE)], index={}),
        lambda: plait.overlay([Layer(BASE, precedence="high")]),
        lambda: plait.overlay([Layer(BASE, precedence=1 << 70)]),
        lambda: plait.overlay([Layer(BASE, name=b"n")]),
        lambda: plait.overlay([Layer([])]),
        lambda: plait.overlay([Layer(7)]),
    ],
)
def test_arguments_that_are_invalid_are_refused(call):
    with pytest.raises(plait.InvalidArgument):
        call()


@pytest.mark.parametrize("rows", [1, 2, 7, 100])
def test_batches_have_the_rows_asked_for(rows):
    table = pa.table({"_index": pa.array(range(50)), "x": pa.array(range(50))})
    layers = [
        Layer(table.to_batches(max_chunksize=9)),
        Layer(table.to_batches(max_chunksize=4), ["x"]),
    ]
    sizes = [len(batch) for batch in plait.overlay(layers, batch_rows=rows)]
    assert sum(sizes) == 50 and set(sizes[:-1]) <= {rows} and 0 < sizes[-1] <= rows


@pytest.mark.behaviour("overlay-21")
def test_values_without_validity_are_hidden_under_a_null_parent():
    for kind in ("sparse", "dense"):
        types, ints = pa.array([0, 1, 0], pa.int8()), pa.array([1, 2, 3])
        texts = pa.array(["a", "b", "c"])
        make = pa.UnionArray.from_sparse
        union = (
            make(types, [ints, texts])
            if kind == "sparse"
            else pa.UnionArray.from_dense(types, pa.array([0, 1, 2], pa.int32()), [ints, texts])
        )
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array([7]))
        mask = pa.array([False, True, False])
        struct = pa.StructArray.from_arrays(
            [union, runs, pa.array([0] * 3)], ["u", "r", "z"], mask=mask
        )
        base = pa.table({"_index": [1, 2, 3], "a": struct})
        patch = pa.table({"_index": [1, 2, 3], "a": [{"z": 1}, {"z": 2}, {"z": 3}]})
        got = read(plait.overlay([Layer(base, ["a"]), Layer(patch, ["a.z"])]))
        got.validate(full=True)
        first, last = ({"u": n, "r": 7, "z": n} for n in (1, 3))
        assert got["a"].to_pylist() == [first, {"u": None, "r": None, "z": 2}, last]


class Watched:
    """Says when a generator that holds it is let go."""

    def __init__(self, released):
        self.released = released

    def __del__(self):
        self.released.append(True)


def watched(released, batches):
    """A generator of batches, or of an exception, that is watched."""

    def generate(watch):
        for batch in batches:
            if isinstance(batch, Exception):
                raise type(batch)(*batch.args)
            yield batch

    return generate(Watched(released))


ONE = pa.record_batch({"_index": [1, 2], "x": [1, 2]})
TWO = pa.record_batch({"_index": [3, 4], "x": [3, 4]})
DRIFTED = pa.record_batch({"_index": [3, 4], "x": ["3", "4"]})


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        ([ONE, LookupError("gone")], LookupError),
        ([ONE, DRIFTED], plait.SchemaDrift),
        ([ONE, TWO.select(["_index"])], plait.SchemaDrift),
        ([ONE, TWO.rename_columns(["_index", "y"])], plait.SchemaDrift),
        ([ONE], plait.RowMismatch),
        ([ONE, ONE], plait.RowMismatch),
        ([ONE, TWO], None),
    ],
    ids=[
        "raises",
        "another type",
        "a column less",
        "another name",
        "ends early",
        "other rows",
        "well",
    ],
)
def test_whatever_a_layer_does_all_layers_are_let_go(batches, error):
    released = []
    layers = [
        Layer(watched(released, [ONE, TWO]), ["x"]),
        Layer(watched(released, batches), ["x"]),
    ]
    stream = plait.overlay(layers, batch_rows=2)
    del layers
    if error is None:
        assert sum(len(batch) for batch in stream) == 4
    else:
        assert len(next(stream)) == 2
        with pytest.raises(error):
            next(stream)
        with pytest.raises(StopIteration):
            next(stream)
    gc.collect()
    assert len(released) == 2


@pytest.mark.parametrize("how", ["close", "drop", "capsule"])
def test_a_consumer_that_stops_early_lets_all_layers_go(how):
    released, asked = [], []

    def endless(place):
        watch = Watched(released)
        for start in range(0, 1 << 40, 2):
            asked.append(place)
            yield pa.record_batch({"_index": [start, start + 1], "x": [1, 2]})
        del watch

    stream = plait.overlay([Layer(endless(0)), Layer(endless(1))], batch_rows=2)
    if how == "capsule":
        reader = pa.RecordBatchReader.from_stream(stream)
        reader.read_next_batch()
        reader.close()
        del reader, stream
    else:
        next(stream)
        stream.close() if how == "close" else None
        del stream
    gc.collect()
    assert len(released) == 2
    # One batch is in flight in each layer: nothing was read ahead.
    assert len(asked) == 2


@pytest.mark.behaviour("overlay-18")
def test_null_columns_take_the_type_of_their_layer():
    typed = pa.record_batch({"_index": [1], "x": [[{"a": 1}]]})
    untyped = pa.record_batch({"_index": [2], "x": pa.array([None])})
    got = read(plait.overlay([Layer(iter([typed, untyped]))]))
    assert got["x"].to_pylist() == [[{"a": 1}], None]
    # A list is looked through first; of a generator only the first batch is known.
    assert read(plait.overlay([Layer([untyped, pa.record_batch({"_index": [3], "x": [7]})])]))[
        "x"
    ].to_pylist() == [None, 7]
    with pytest.raises(plait.SchemaDrift):
        list(plait.overlay([Layer(iter([untyped, typed]))]))


STREAM = """
import sys
import numpy as np, pyarrow as pa, plait
from peak_memory import peak_rss_bytes
total, rows = int(sys.argv[1]), 65_536
per_row = 8 * 2 * 9
def batches(cut):
    start, left = 0, total // per_row
    while left > 0:
        count = min(cut, left)
        index = pa.array(np.arange(start, start + count))
        values = [pa.array(np.full(count, float(start))) for _ in range(8)]
        yield pa.record_batch({"_index": index, "s": pa.StructArray.from_arrays(values, list("abcdefgh"))})
        start, left = start + count, left - count
layers = [plait.Layer(batches(rows), ["s"]), plait.Layer(batches(rows - 1000), ["s.c", "s.h"])]
seen, early = 0, None
for batch in plait.overlay(layers):
    seen += len(batch)
    if early is None and seen > total // per_row // 10:
        early = peak_rss_bytes()
assert seen == total // per_row
print(peak_rss_bytes() - early)
"""


@pytest.mark.behaviour("overlay-33")
@pytest.mark.long
def test_memory_stays_flat_however_much_streams_by(python):
    total = os.environ.get("PLAIT_STREAM_BYTES", "400_000_000")
    ran = python("-c", STREAM, total)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 20_000_000


@pytest.mark.behaviour("overlay-34")
def test_partitions_with_and_without_an_override_can_be_concatenated():
    base = pa.table({"_index": [1], "s": [{"x": 1, "y": 2}]})
    alone = read(plait.overlay([Layer(base, ["s.x", "s.y"])]))
    for names in (["x"], ["y"], ["y", "x"]):
        patch = pa.table({"_index": [1], "s": [dict.fromkeys(names, 9)]})
        whole = Layer(patch, [f"s.{name}" for name in names])
        both = read(plait.overlay([Layer(base, ["s.x", "s.y"]), whole]))
        assert both.schema == alone.schema, names
        assert pa.concat_tables([alone, both]).num_rows == 2
    # Whoever owns the struct: the order is the one named first.
    turned = pa.table({"_index": [1], "s": [{"y": 8, "x": 9}]})
    for own in (["s"], ["s.y", "s.x"]):
        both = read(plait.overlay([Layer(base, ["s"]), Layer(turned, own)]))
        assert both.schema == alone.schema, own
        assert both["s"].to_pylist() == [{"x": 9, "y": 8}]
