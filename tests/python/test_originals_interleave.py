"""The scenarios of the interleave array, written from its description: what a row is decides all.

The reference pulls one element after the other: row `i` is `values[arrays[i]][rows[i]]`.
"""

import itertools

import pyarrow as pa
import pytest

import plait

KINDS = {
    "bool": (pa.bool_(), [True, False, True, True, False]),
    "int64": (pa.int64(), [3, -1, 4, 1, 5]),
    "string": (pa.string(), ["a", "", "longer than twelve bytes", "b", "c"]),
    "list": (pa.list_(pa.int8()), [[1], [], [2, 3], [4], [5, 6, 7]]),
    "struct": (pa.struct([("x", pa.int8())]), [{"x": i} for i in range(5)]),
}
PAIRS = [(0, 1), (1, 0), (0, 0), (1, 2), (0, 0), (1, 1), (0, 3)]


def u(numbers, kind=None):
    return pa.array(numbers, kind or pa.uint32())


def gather(values, pairs):
    """The interleave of pairs, and its rows by the reference."""
    lazy = plait.interleave(values, u([a for a, _ in pairs]), u([r for _, r in pairs]))
    return lazy, [values[a][r].as_py() for a, r in pairs]


def rows(lazy):
    made = pa.array(lazy)
    made.validate(full=True)
    assert [element.as_py() for element in lazy] == made.to_pylist()
    assert lazy.null_count == made.null_count
    return made.to_pylist()


@pytest.fixture(params=KINDS)
def values(request):
    """Two arrays of a kind; the second has nulls and begins in the middle of its buffers."""
    kind, items = KINDS[request.param]
    return [pa.array(items, kind), pa.array([items[0], items[2], None, items[1]], kind).slice(1)]


# Random access --------------------------------------------------------------------------------


@pytest.mark.behaviour("interleave-01", "interleave-04")
@pytest.mark.parametrize(
    "pairs",
    [
        PAIRS,
        [(0, 0), (1, 1), (0, 2)],
        [(0, 2), (0, 0), (0, 1)],
        [(1, 1), (0, 0), (1, 0), (0, 2), (0, 1)],
        [],
    ],
    ids=["reorder and repeat", "skip", "one array", "nulls", "none"],
)
def test_rows_are_reordered_repeated_and_skipped(values, pairs):
    lazy, expected = gather(values, pairs)
    assert len(lazy) == len(expected)
    assert rows(lazy) == expected


@pytest.mark.behaviour("interleave-02")
def test_three_arrays_of_different_lengths(values):
    values.append(values[0].slice(2, 1))
    lazy, expected = gather(values, [(2, 0), (0, 4), (1, 0), (2, 0), (0, 1), (1, 2)])
    assert rows(lazy) == expected


@pytest.mark.behaviour("interleave-18")
@pytest.mark.parametrize("nullable", [False, True])
def test_rows_and_nulls_span_words_of_64_bits(nullable):
    one = pa.array([None if nullable and i % 4 == 0 else i % 3 == 0 for i in range(100)])
    other = pa.array([None if nullable and i % 3 == 0 else i % 5 == 0 for i in range(100)])
    pairs = [(i % 2, i * 7 % 100) for i in range(200)]
    lazy, expected = gather([one, other], pairs)
    assert rows(lazy) == expected


@pytest.mark.behaviour("interleave-07")
@pytest.mark.parametrize("widths", [*itertools.product(["uint8", "uint64"], repeat=2)], ids=str)
def test_selectors_have_any_unsigned_width(values, widths):
    arrays, places = (u(part, width) for part, width in zip(zip(*PAIRS[:4]), widths))
    lazy = plait.interleave([values[0], values[0]], arrays, places)
    assert rows(lazy) == [values[0][r].as_py() for _, r in PAIRS[:4]]


@pytest.mark.behaviour("interleave-03")
def test_an_interleave_of_one_array_is_a_take(values):
    lazy = plait.interleave(values[:1], u([0, 0]), u([4, 1]))
    assert pa.array(lazy) == values[0].take(pa.array([4, 1]))


# Slices, take, filter -------------------------------------------------------------------------

LAZY = [(1, 0), (0, 4), (1, 1), (0, 0), (0, 2), (1, 1)]


@pytest.mark.behaviour("interleave-12")
def test_a_slice_is_the_slice_of_the_rows(values):
    lazy, expected = gather(values, LAZY)
    for start, stop in itertools.combinations_with_replacement(range(len(LAZY) + 1), 2):
        assert rows(lazy[start:stop]) == expected[start:stop]
        for inner in range(stop - start + 1):
            assert rows(lazy[start:stop][inner:]) == expected[start + inner : stop]
    assert rows(lazy[::-1]) == expected[::-1]


@pytest.mark.behaviour("interleave-13")
def test_a_take_picks_rows_in_any_order_and_often(values):
    lazy, expected = gather(values, LAZY)
    places = [5, 0, 0, 3, 2]
    taken = lazy.take(u(places))
    assert rows(taken) == [expected[i] for i in places]
    assert rows(taken.take(u([4, 4, 0]))) == [expected[i] for i in (2, 2, 5)]
    assert rows(lazy.take(u([]))) == []
    with pytest.raises(plait.InvalidArgument):
        lazy.take(u([6]))


@pytest.mark.behaviour("interleave-14")
def test_every_filter_keeps_what_its_mask_says(values):
    lazy, expected = gather(values, LAZY)
    for mask in itertools.product([True, False], repeat=len(LAZY)):
        assert rows(lazy.filter(pa.array(mask))) == list(itertools.compress(expected, mask))
    assert rows(lazy[1:].filter(pa.array([True, None, False, True, None]))) == [
        expected[1],
        expected[4],
    ]


@pytest.mark.behaviour("interleave-15")
def test_slice_take_and_filter_in_every_order(values):
    steps = {
        "slice": (lambda lazy: lazy[1:], lambda rows: rows[1:]),
        "take": (lambda lazy: lazy.take(u([3, 0, 2, 1])), lambda r: [r[3], r[0], r[2], r[1]]),
        "filter": (
            lambda lazy: lazy.filter(pa.array([i != 1 for i in range(len(lazy))])),
            lambda rows: rows[:1] + rows[2:],
        ),
    }
    for order in itertools.permutations(steps):
        lazy, expected = gather(values, LAZY)
        for name in order:
            lazy, expected = steps[name][0](lazy), steps[name][1](expected)
        assert rows(lazy) == expected, order


# Nullability ----------------------------------------------------------------------------------


@pytest.mark.behaviour("interleave-17", "interleave-19")
@pytest.mark.parametrize("second", [[4, 5], [4, None], [None, None]], ids=str)
def test_nulls_of_the_values_are_those_of_the_rows_whatever_the_selectors(second):
    values = [pa.array([1, 2]), pa.array(second, pa.int64())]
    lazy, expected = gather(values, [(1, 1), (0, 0), (1, 0)])
    assert rows(lazy) == expected
    assert lazy.null_count == expected.count(None)


def struct_of(nullable, items):
    field = pa.field("x", pa.int64(), nullable=nullable)
    schema = pa.schema([field])
    return pa.RecordBatch.from_arrays([pa.array(items, field.type)], schema=schema)


@pytest.mark.behaviour("interleave-16")
@pytest.mark.parametrize(("one", "two"), [*itertools.product([False, True], repeat=2)])
def test_the_type_is_nullable_if_that_of_any_value_is(one, two):
    lazy = plait.interleave([struct_of(one, [1]), struct_of(two, [2])], u([1, 0]), u([0, 0]))
    assert pa.table(lazy).schema.field("x").nullable == (one or two)
    assert pa.table(lazy)["x"].to_pylist() == [2, 1]


def test_an_array_of_nulls_and_one_without_rows_are_values(values):
    nothing, nulls = values[0].slice(0, 0), pa.nulls(2, values[0].type)
    lazy = plait.interleave([values[0], nothing, nulls], u([2, 0, 2]), u([1, 3, 0]))
    assert rows(lazy) == [None, values[0][3].as_py(), None]


# Nested interleaves ---------------------------------------------------------------------------


@pytest.mark.behaviour("interleave-20")
def test_an_interleave_of_interleaves_is_their_rows(values):
    inner, inner_rows = gather(values, LAZY)
    other, other_rows = gather(values[::-1], PAIRS[:3])
    pairs = [(1, 2), (0, 5), (0, 1), (1, 0), (0, 1)]
    outer = plait.interleave([inner, other], u([a for a, _ in pairs]), u([r for _, r in pairs]))
    assert rows(outer) == [(inner_rows, other_rows)[a][r] for a, r in pairs]
    again = plait.interleave([outer, values[0]], u([0, 1, 0]), u([4, 2, 1]))
    assert rows(again) == [inner_rows[1], values[0][2].as_py(), inner_rows[5]]


@pytest.mark.behaviour("interleave-21")
def test_nested_interleaves_are_sliced_taken_and_filtered(values):
    inner, inner_rows = gather(values, LAZY)
    outer = plait.interleave([values[0], inner[2:]], u([1, 0, 1, 1]), u([3, 4, 0, 2]))
    expected = [inner_rows[5], values[0][4].as_py(), inner_rows[2], inner_rows[4]]
    assert rows(outer) == expected
    assert rows(outer[1:3]) == expected[1:3]
    assert rows(outer.take(u([3, 3, 0]))) == [expected[i] for i in (3, 3, 0)]
    assert rows(outer.filter(pa.array([False, True, True, False]))) == expected[1:3]


# What is refused ------------------------------------------------------------------------------


@pytest.mark.behaviour("interleave-08", "interleave-09", "interleave-10")
@pytest.mark.parametrize(
    ("arrays", "places", "words"),
    [
        (pa.array([True, False]), u([0, 1]), "`array_indices` is not unsigned integers"),
        (u([0, 1], pa.int32()), u([0, 0]), "`array_indices` is not unsigned integers"),
        (u([0, 1]), u([0, 0], pa.int64()), "`row_indices` is not unsigned integers"),
        (u([0, 1]), u([0, None]), "`row_indices` has nulls"),
        (u([0, None]), u([0, 0]), "`array_indices` has nulls"),
        (u([0, 1]), u([0]), "2 `array_indices`, 1 `row_indices`"),
    ],
)
def test_selectors_are_checked_when_an_interleave_is_made(values, arrays, places, words):
    with pytest.raises(plait.InvalidArgument, match=words):
        plait.interleave(values, arrays, places)


@pytest.mark.behaviour("interleave-11")
@pytest.mark.parametrize(
    ("pair", "words"),
    [((2, 0), "`array_indices` 2 of 2 arrays"), ((1, 3), "`row_indices` 3, where array 1 has 3")],
)
def test_rows_that_are_not_there_are_found_when_rows_are_copied(values, pair, words):
    lazy = plait.interleave(values, u([0, pair[0]]), u([0, pair[1]]))
    assert len(lazy) == 2
    for call in (lazy.to_arrow, lazy.check_bounds):
        with pytest.raises(plait.InvalidArgument, match=words):
            call()


@pytest.mark.behaviour("interleave-22")
def test_values_of_different_types_are_refused():
    for other in (pa.array([1], pa.int32()), pa.array(["1"]), pa.array([[1]])):
        with pytest.raises(plait.InvalidArgument, match="different types"):
            plait.interleave([pa.array([1]), other], u([0]), u([0]))
