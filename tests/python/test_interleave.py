"""Interleave against PyArrow: `take` on the concatenated arrays, for every type.

A case is made from its number alone. CI runs 2,000, a checkout 200.
"""

import os
import pickle
import random
import sys

import numpy as np
import pyarrow as pa
import pytest

import plait

CASES = 2000 if os.environ.get("CI") else 200

FLAT = [
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(5, 2), pa.decimal64(12, 3), pa.decimal128(30, 4), pa.decimal256(60, 5)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns")),
    *(pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns")),
    pa.month_day_nano_interval(),
    *(pa.binary(), pa.string(), pa.large_binary(), pa.large_string()),
    *(pa.binary_view(), pa.string_view(), pa.binary(3), pa.binary(16)),
]
NESTED = [
    pa.list_(pa.int32()),
    pa.list_(pa.string()),
    pa.large_list(pa.float64()),
    pa.list_view(pa.int16()),
    pa.large_list_view(pa.string()),
    pa.list_(pa.int64(), 3),
    pa.list_(pa.list_(pa.bool_())),
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
    pa.struct([("a", pa.list_(pa.struct([("c", pa.binary())])))]),
    pa.map_(pa.string(), pa.int64()),
    pa.list_(pa.map_(pa.int8(), pa.list_(pa.string()))),
]
TYPES = FLAT + NESTED


def value(kind, rng):
    """A Python value of a type; sometimes None."""
    t = pa.types
    if rng.random() < 0.2 or t.is_null(kind):
        return None
    if t.is_boolean(kind):
        return rng.random() < 0.5
    if t.is_integer(kind):
        return rng.randrange(100)
    if t.is_floating(kind):
        return float(rng.randrange(100)) / 4
    if t.is_decimal(kind):
        import decimal

        return decimal.Decimal(rng.randrange(-999, 999)).scaleb(-kind.scale)
    if t.is_date64(kind):
        return rng.randrange(1000) * 86_400_000
    if t.is_temporal(kind) and kind != pa.month_day_nano_interval():
        return rng.randrange(80_000)
    if kind == pa.month_day_nano_interval():
        return pa.MonthDayNano([rng.randrange(9), rng.randrange(9), rng.randrange(9)])
    if t.is_fixed_size_binary(kind):
        return bytes(rng.randrange(256) for _ in range(kind.byte_width))
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return "ab😀"[: rng.randrange(4)] * rng.choice([1, 1, 5, 30])
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind):
        return b"xyz"[: rng.randrange(4)] * rng.choice([1, 1, 5, 30])
    if t.is_fixed_size_list(kind):
        return [value(kind.value_type, rng) for _ in range(kind.list_size)]
    if t.is_map(kind):
        keys = {str(i) if t.is_string(kind.key_type) else i for i in range(rng.randrange(4))}
        return [(key, value(kind.item_type, rng)) for key in sorted(keys)]
    if t.is_struct(kind):
        return {field.name: value(field.type, rng) for field in kind}
    return [value(kind.value_type, rng) for _ in range(rng.randrange(5))]


def arrays(kind, rng):
    """Some arrays, sliced, some empty; at least one row in all."""
    made = []
    for length in [
        1 + rng.randrange(40),
        *(rng.choice([0, 1, 30]) for _ in range(rng.randrange(4))),
    ]:
        before, after = rng.randrange(9), rng.randrange(9)
        rows = [value(kind, rng) for _ in range(before + length + after)]
        made.append(pa.array(rows, kind).slice(before, length))
    rng.shuffle(made)
    return made


def selectors(values, rng):
    """Random rows, or runs: of every array and of none twice, or anything."""
    full = [i for i, array in enumerate(values) if len(array)]
    longest = rng.choice([1, 2, 8, 40])
    pairs = []
    for _ in range(rng.randrange(40)):
        array = rng.choice(full)
        start = rng.randrange(len(values[array]))
        end = min(len(values[array]), start + 1 + rng.randrange(longest))
        pairs += [(array, row) for row in range(start, end)]
    kinds = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    first = pa.array([array for array, _ in pairs], rng.choice(kinds))
    return first, pa.array([row for _, row in pairs], rng.choice(kinds)), pairs


def expected(values, pairs):
    """`take` on the concatenation."""
    bases = [sum(len(array) for array in values[:i]) for i in range(len(values))]
    indices = pa.array([bases[array] + row for array, row in pairs], pa.int64())
    whole = pa.concat_arrays(values)
    try:
        return whole.take(indices).to_pylist()
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):  # views of lists, in some versions
        rows = whole.to_pylist()
        return [rows[i] for i in indices.to_pylist()]


def compare(kind, rng):
    values = arrays(kind, rng)
    first, second, pairs = selectors(values, rng)
    lazy = plait.interleave(values, first, second)
    rows = expected(values, pairs)
    made = pa.array(lazy)
    made.validate(full=True)
    assert made.type == kind
    assert made.to_pylist() == rows
    assert len(lazy) == len(rows)
    if kind != pa.null():
        assert lazy.null_count == made.null_count
    large = pa.array(lazy.to_arrow(large=True))
    large.validate(full=True)
    assert large.to_pylist() == rows
    assert pa.chunked_array(lazy).to_pylist() == rows


@pytest.mark.behaviour("interleave-23")
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_equals_take_on_concatenated_arrays(kind):
    for seed in range(3):
        compare(kind, random.Random(f"{kind} {seed}"))


def test_random_cases_equal_take_on_concatenated_arrays():
    for case in range(CASES):
        rng = random.Random(case)
        try:
            compare(rng.choice(TYPES), rng)
        except BaseException as e:
            e.add_note(f"case {case}") if sys.version_info >= (3, 11) else None
            raise


def u(*numbers):
    return pa.array(numbers, pa.uint32())


VALUES = [pa.array(["a", "b", "c"]), pa.array(["d", None])]


@pytest.fixture
def lazy():
    return plait.interleave(VALUES, u(1, 0, 0, 1), u(0, 2, 2, 1))


def test_dictionaries_are_united_and_mixed_with_plain_values():
    a = pa.array(["x", "y", None]).dictionary_encode()
    b = pa.array(["y", "z"]).dictionary_encode()
    made = pa.array(plait.interleave([a, b], u(1, 0, 1, 0, 0), u(0, 1, 1, 0, 2)))
    assert made.type == a.type
    assert made.to_pylist() == ["y", "y", "z", "x", None]
    assert sorted(made.dictionary.to_pylist()) == ["x", "y", "z"]
    mixed = plait.interleave([a, pa.array(["p", None])], u(1, 0, 1, 0), u(0, 1, 1, 2))
    assert pa.array(mixed).equals(pa.array(["p", "y", None, None]))
    assert mixed.null_count == 2


def test_run_ends_and_unions_go_through():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["a", None]))
    made = pa.array(plait.interleave([runs, runs.slice(1, 3)], u(0, 0, 1, 1), u(0, 4, 0, 1)))
    assert made.to_pylist() == ["a", None, "a", None] and made.type == runs.type
    ids, offsets = pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32())
    dense = pa.UnionArray.from_dense(ids, offsets, [pa.array([1, 2]), pa.array(["u"])])
    sparse = pa.UnionArray.from_sparse(ids, [pa.array([1, 0, 2]), pa.array(["", "u", ""])])
    for union in (dense, sparse):
        made = pa.array(plait.interleave([union, union.slice(1)], u(0, 1, 1), u(2, 0, 1)))
        made.validate(full=True)
        assert made.to_pylist() == [2, "u", 2] and made.type == union.type


def test_extension_types_are_kept():
    array = pa.array([b"0123456789abcdef"] * 2, pa.binary(16))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), array)
    assert pa.array(plait.interleave([uuids], u(0), u(1))).type == pa.uuid()
    with pytest.raises(plait.InvalidArgument, match="different types"):
        plait.interleave([uuids, array], u(0), u(1))


@pytest.mark.parametrize(
    ("arrays", "rows", "message"),
    [
        (pa.array([0], pa.int32()), u(0), "`array_indices` is not unsigned integers: got `int32`"),
        (u(0), pa.array([0.0]), "`row_indices` is not unsigned integers: got `double`"),
        (u(0, 0), pa.array([0, None], pa.uint8()), "`row_indices` has nulls: row 1, got 1 nulls"),
        (u(0, 0), u(0), "got 2 `array_indices`, 1 `row_indices`"),
    ],
)
def test_selectors_that_are_none_are_refused(arrays, rows, message):
    with pytest.raises(plait.InvalidArgument, match=message):
        plait.interleave(VALUES, arrays, rows)


@pytest.mark.parametrize(
    ("arrays", "rows", "row", "message"),
    [
        (u(0, 2), u(0, 0), 1, "`array_indices` 2 of 2 arrays"),
        (u(0, 0, 1), u(0, 2, 2), 2, "`row_indices` 2, where array 1 has 2 rows"),
    ],
)
def test_rows_that_are_not_there_are_refused_with_their_position(arrays, rows, row, message):
    lazy = plait.interleave(VALUES, arrays, rows)
    for call in (lazy.check_bounds, lazy.to_arrow, lambda: pa.array(lazy), lambda: lazy.null_count):
        with pytest.raises(plait.InvalidArgument, match=message) as caught:
            call()
        assert caught.value.row == row


@pytest.mark.behaviour("interleave-05")
def test_lazy_operations_select_rows(lazy):
    def rows(lazy):
        return pa.array(lazy).to_pylist()

    assert rows(lazy) == ["d", "c", "c", None]
    assert [x.as_py() for x in lazy] == ["d", "c", "c", None]
    assert lazy[-4].as_py() == "d" and lazy[3].as_py() is None
    assert rows(lazy[1:3]) == ["c", "c"] and rows(lazy[::-2]) == [None, "c"]
    assert rows(lazy.slice(2)) == ["c", None]
    assert rows(lazy.take(u(3, 0))) == [None, "d"]
    assert rows(lazy.filter(pa.array([True, None, False, True]))) == ["d", None]
    assert rows(lazy.concat(lazy[:1])) == ["d", "c", "c", None, "d"]
    assert lazy.runs() is None and lazy[:2].runs() == [(1, 0, 1), (0, 2, 1)]
    for index in (4, -5):
        with pytest.raises(IndexError):
            lazy[index]
    with pytest.raises(plait.InvalidArgument):
        lazy.take(u(4))


def test_nested_interleaves_are_flattened(lazy):
    outer = plait.interleave([pa.array(["q"]), lazy], u(1, 0, 1), u(3, 0, 0))
    assert pa.array(outer).to_pylist() == [None, "q", "d"]
    assert outer[2].as_py() == "d"


def test_numpy_sees_numbers():
    values = [pa.array([1, 2, 3]), pa.array([4, 5])]
    lazy = plait.interleave(values, u(1, 0), u(1, 2))
    made = np.asarray(lazy)
    assert made.dtype == np.int64 and made.tolist() == [5, 3]
    assert np.asarray(lazy, dtype=np.float32).tolist() == [5.0, 3.0]
    assert np.array(lazy.to_arrow()).tolist() == [5, 3]
    flags = plait.interleave([pa.array([True, False])], u(0, 0), u(1, 0))
    assert np.asarray(flags).tolist() == [False, True]
    times = pa.array([7], pa.timestamp("us"))
    assert np.asarray(plait.interleave([times], u(0), u(0))) == np.datetime64(7, "us")
    with pytest.raises(plait.InvalidArgument, match="nulls"):
        np.asarray(plait.interleave([pa.array([1, None])], u(0), u(1)))
    with pytest.raises(plait.InvalidArgument, match="`string`"):
        np.asarray(plait.interleave([pa.array(["a"])], u(0), u(0)))


def test_only_the_first_rows_are_shown():
    lazy = plait.interleave(
        [pa.array(range(1000))], pa.array([0] * 1000, pa.uint8()), u(*range(1000))
    )
    shown = repr(lazy)
    assert shown.startswith("<plait.Interleave of 1000 rows, int64>") and shown.endswith(
        "... 992 more"
    )
    assert "  7,\n" in shown and "  8,\n" not in shown
    assert repr(lazy.to_arrow()).startswith("<plait.Array of 1000 rows")


def test_what_does_not_fit_32_bits_says_so_and_comes_in_chunks():
    big = pa.array([b"x" * (1 << 20)])
    rows = 2100
    lazy = plait.interleave(
        [big], pa.array([0] * rows, pa.uint8()), pa.array([0] * rows, pa.uint8())
    )
    with pytest.raises(plait.Unsupported, match=r"to_arrow\(large=True\)"):
        lazy.to_arrow()
    lens = [len(chunk) for chunk in pa.chunked_array(lazy[:100]).chunks]
    assert sum(lens) == 100 and max(lens) <= 16


def test_errors_come_through_streams():
    lazy = plait.interleave(VALUES, u(0), u(9))
    with pytest.raises(plait.InvalidArgument, match="`row_indices` 9"):
        pa.chunked_array(lazy)


def test_structs_are_tables():
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    batch = table.to_batches()[0]
    lazy = plait.interleave([batch, batch], u(0, 1, 1), u(1, 0, 1))
    assert pa.table(lazy).to_pydict() == {"a": [2, 1, 2], "b": ["y", "x", "y"]}


def test_types_that_differ_are_refused():
    with pytest.raises(plait.InvalidArgument, match="`int64` before `string` at array 1"):
        plait.interleave([pa.array([1]), pa.array(["a"])], u(0), u(0))
    with pytest.raises(plait.InvalidArgument, match="`values` is empty"):
        plait.interleave([], u(0), u(0))


def test_views_under_nulls_may_lead_nowhere():
    # length, prefix, number of the buffer, offset: the second row is null and its view garbage.
    text = b"0123456789abcdefghij"
    good = np.array([[20, 0x33323130, 0, 0]], "<u4")
    for bad in ([99, 7, 12, 3], [0xFFFFFFFF, 0, 0xFFFFFFFF, 9], [50, 1, 1, 0]):
        views = np.concatenate([good, np.array([bad], "<u4"), np.repeat(good, 14, axis=0)])
        valid = np.packbits([i != 1 for i in range(16)], bitorder="little")
        buffers = [pa.py_buffer(valid.tobytes()), pa.py_buffer(views.tobytes()), pa.py_buffer(text)]
        broken = pa.Array.from_buffers(pa.string_view(), 16, buffers)
        values = [pa.array(["other text that is long"], pa.string_view()), broken]
        for rows in ([0, 0, 1, 2, 1], [0, *range(16), *range(16)]):
            arrays = pa.array([0] + [1] * (len(rows) - 1), pa.uint8())
            made = pa.array(plait.interleave(values, arrays, pa.array(rows, pa.uint32())))
            made.validate(full=True)
            expected = [None if row == 1 else text.decode() for row in rows[1:]]
            assert made.to_pylist() == ["other text that is long", *expected]


def test_views_of_values_that_lead_nowhere_are_refused():
    text = pa.py_buffer(b"0123456789abcdefghij")
    views = np.array([[20, 0x33323130, 0, 0], [20, 0x33323130, 1, 0]], "<u4")
    broken = pa.Array.from_buffers(pa.string_view(), 2, [None, pa.py_buffer(views), text])
    other = pa.array(["another text that is long"], pa.string_view())
    # The bytes of another array are not its own.
    with pytest.raises(plait.CorruptSource, match="outside of its buffers") as caught:
        plait.interleave([broken, other], u(0, 1), u(0, 0))
    assert caught.value.row == 1


# Other kinds of values -------------------------------------------------------------------------


def chunked():
    return pa.chunked_array([["a", "b"], [], ["c"]])


@pytest.mark.parametrize(
    "value",
    [
        chunked(),
        chunked().combine_chunks(),
        pytest.param("polars", id="polars"),
        pytest.param("pandas", id="pandas"),
        pytest.param("numpy", id="numpy"),
        pytest.param("stream", id="stream"),
    ],
)
def test_streams_series_and_numpy_arrays_are_values(value):
    texts = ["a", "b", "c"]
    if value == "polars":
        polars = pytest.importorskip("polars")
        value = pl = polars.concat(
            [polars.Series(texts[:2]), polars.Series(texts[2:])], rechunk=False
        )
        assert pl.n_chunks() == 2
    elif value == "pandas":
        # Rows by place, whatever the labels are.
        value = pytest.importorskip("pandas").Series(texts, index=[2, 0, 1])
    elif value == "numpy":
        value = np.array(texts)
    elif value == "stream":
        value = plait.interleave([chunked()], u(0, 0, 0), u(0, 1, 2))
    other = pa.array(["x"], pa.large_string() if "polars" in type(value).__module__ else None)
    if str(plait.interleave([value], u(0), u(0)).type) != str(other.type):
        other = pa.array(["x"], plait_type(value))
    lazy = plait.interleave([other, value], u(1, 0, 1, 1), u(2, 0, 0, 1))
    assert pa.array(lazy).to_pylist() == ["c", "x", "a", "b"]
    row = lazy[0]
    assert (row.as_py() if hasattr(row, "as_py") else row) == "c"
    assert lazy[1:].null_count == 0


def plait_type(value):
    return pa.field(plait.interleave([value], u(0), u(0))).type


def test_tables_and_readers_are_values_of_structs():
    table = pa.concat_tables([pa.table({"a": [1, 2]}), pa.table({"a": [3]})])
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    lazy = plait.interleave([table, reader], u(0, 1, 1), u(2, 0, 2))
    assert pa.table(lazy).to_pydict() == {"a": [3, 1, 3]}
    assert pa.array(lazy[0]).to_pylist() == [{"a": 3}], "a table has columns by number, not rows"
    assert len(lazy.values) == 4


def test_chunked_values_are_not_joined():
    chunks = chunked()
    lazy = plait.interleave([chunks], u(0, 0), u(2, 0))
    values = [pa.array(value) for value in lazy.values]
    addresses = [value.buffers()[2].address for value in values if len(value)]
    assert addresses == [chunk.buffers()[2].address for chunk in chunks.chunks if len(chunk)]


def test_an_empty_stream_is_a_value_without_rows():
    lazy = plait.interleave([pa.chunked_array([], pa.int8()), pa.array([1], pa.int8())], u(1), u(0))
    assert pa.array(lazy).to_pylist() == [1]


def test_selectors_may_be_chunked_or_of_numpy():
    arrays = pa.chunked_array([pa.array([0], pa.uint8()), pa.array([0], pa.uint8())])
    lazy = plait.interleave([pa.array([5, 6])], arrays, np.array([1, 0], np.uint32))
    assert pa.array(lazy).to_pylist() == [6, 5]
    assert pa.array(lazy.take(np.array([1], np.uint64))).to_pylist() == [5]
    assert pa.array(lazy.filter(np.array([True, False]))).to_pylist() == [6]
    with pytest.raises(plait.InvalidArgument, match="int64"):
        plait.interleave([pa.array([5, 6])], arrays, np.array([1, 0]))


def test_what_is_no_array_is_refused_with_a_hint_of_what_is_taken():
    for value in (object(), [1, 2], "text"):
        with pytest.raises(plait.InvalidArgument, match="not an Arrow array") as caught:
            plait.interleave([value], u(0), u(0))
        assert "chunked arrays" in str(caught.value) and "NumPy" in str(caught.value)


# What it is made of ----------------------------------------------------------------------------


@pytest.mark.behaviour("interleave-25")
def test_values_selectors_and_type_are_told(lazy):
    assert [pa.array(value).to_pylist() for value in lazy.values] == [
        value.to_pylist() for value in VALUES
    ]
    taken = lazy.take(u(3, 1))
    again = plait.interleave(taken.values, taken.array_indices, taken.row_indices)
    assert pa.array(again).to_pylist() == [None, "c"]
    assert pa.array(taken.array_indices).type == pa.uint32()
    assert pa.array(taken.row_indices).type == pa.uint64()
    assert lazy.type == "string" and lazy.to_arrow().type == "string"


@pytest.mark.behaviour("interleave-06")
def test_runs_make_an_interleave_and_are_checked():
    values = [pa.array([1, 2, 9]), pa.chunked_array([[3], [4]])]
    runs = [(0, 0, 2), (1, 0, 2), (0, 2, 1)]
    lazy = plait.Interleave.from_runs(values, runs)
    assert pa.array(lazy).to_pylist() == [1, 2, 3, 4, 9]
    assert plait.Interleave.from_runs(values[:1], [(0, 1, 2)]).runs() == [(0, 1, 2)]
    assert len(plait.Interleave.from_runs(values, [])) == 0
    for run in ((2, 0, 1), (0, 2, 2), (1, 0, 3), (0, 2**63, 2**63)):
        with pytest.raises(plait.InvalidArgument, match="run 0"):
            plait.Interleave.from_runs(values, [run])


@pytest.mark.behaviour("interleave-24")
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_is_pickled_and_written_as_ipc(kind):
    rng = random.Random(str(kind))
    array = pa.array([value(kind, rng) for _ in range(9)], kind)
    lazy = plait.interleave([array.slice(1), array], u(0, 1, 1, 0), u(7, 0, 8, 2))
    for made in (pickle.loads(pickle.dumps(lazy)), plait.Interleave.from_ipc(lazy.to_ipc())):
        assert pa.array(made).equals(pa.array(lazy))
        assert made.type == lazy.type and made[0] is not None


def test_pickled_nested_interleaves_dictionaries_and_extensions_are_the_same(lazy):
    codes = pa.array(["x", "y", "x"]).dictionary_encode()
    uuid = pa.array([bytes(16)], pa.uuid())
    for made in (
        plait.interleave([lazy, pa.array(["q"])], u(1, 0), u(0, 2)),
        plait.interleave([codes], u(0, 0), u(1, 0)),
        plait.interleave([codes, pa.array(["z"])], u(0, 1), u(1, 0)),
        plait.interleave([uuid], u(0, 0), u(0, 0)),
    ):
        again = pickle.loads(pickle.dumps(made))
        assert pa.array(again).equals(pa.array(made)) and pa.field(again) == pa.field(made)


def test_damaged_and_later_bytes_are_refused(lazy):
    data = lazy.to_ipc()
    for bad in (b"", data[:8], data[:-1], b"x" + data, data[:9], data[:9] + bytes(8) + data[9:]):
        with pytest.raises(plait.CorruptSource):
            plait.Interleave.from_ipc(bad)
    with pytest.raises(plait.Unsupported, match="version 2"):
        plait.Interleave.from_ipc(data[:8] + b"\x02" + data[9:])
