"""Keys in public: the order of rows, round trips of every type, ranges."""

import datetime as dt
import decimal
import math

import pyarrow as pa
import pytest

import plait

VALUES = {
    pa.null(): [None, None],
    pa.bool_(): [True, None, False],
    pa.int8(): [-128, 127, None],
    pa.int16(): [-5, 5, None],
    pa.int32(): [-(2**31), 7, None],
    pa.int64(): [2**63 - 1, -(2**63), None],
    pa.uint8(): [255, 0, None],
    pa.uint16(): [9, 65_535, None],
    pa.uint32(): [2**32 - 1, 0, None],
    pa.uint64(): [2**64 - 1, 0, None],
    pa.float16(): [1.5, -2.0, None],
    pa.float32(): [1.5, -0.25, None],
    pa.float64(): [1e300, -math.inf, None],
    pa.decimal32(5, 2): [decimal.Decimal("1.25"), decimal.Decimal("-999.99"), None],
    pa.decimal64(12, 3): [decimal.Decimal("1.250"), None],
    pa.decimal128(30, 4): [decimal.Decimal("-1.2500"), decimal.Decimal(10**25), None],
    pa.decimal256(60, 5): [decimal.Decimal(10**50), None],
    pa.date32(): [dt.date(2024, 2, 29), dt.date(1960, 1, 1), None],
    pa.date64(): [dt.date(2024, 2, 29), None],
    pa.time32("s"): [dt.time(1, 2, 3), None],
    pa.time32("ms"): [dt.time(1, 2, 3, 4000), None],
    pa.time64("us"): [dt.time(1, 2, 3, 4), None],
    pa.timestamp("s"): [dt.datetime(2024, 1, 1), dt.datetime(1960, 1, 1), None],
    pa.timestamp("us", "Europe/Paris"): [dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), None],
    pa.duration("ms"): [dt.timedelta(seconds=-1), dt.timedelta(days=2), None],
    pa.string(): ["", "a\0b", "ä", None],
    pa.large_string(): ["b", "", None],
    pa.string_view(): ["b", "", None],
    pa.binary(): [b"", b"\0\xff", None],
    pa.large_binary(): [b"x", None],
    pa.binary_view(): [b"x", None],
    pa.binary(3): [b"abc", b"\0\0\0", None],
    pa.dictionary(pa.int8(), pa.string()): ["b", "a", "b", None],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@pytest.mark.parametrize("order", ["c", "-c", "c nulls first"])
def test_values_of_every_type_come_back_and_keys_have_their_order(kind, order):
    batch = pa.record_batch({"c": pa.array(VALUES[kind], kind)})
    keys = plait.encode_keys(batch, order)
    found = pa.record_batch(plait.decode_keys(keys, order, batch))
    assert found.column(0).equals(batch.column(0))
    assert found.schema.field(0).type == kind
    if pa.types.is_null(kind):
        return
    texts = pa.array(keys).to_pylist()
    by_key = [batch.column(0)[i].as_py() for i in sorted(range(len(texts)), key=texts.__getitem__)]
    values = sorted(
        {v for v in batch.column(0).to_pylist() if v is not None}, reverse=order == "-c"
    )
    nulls = [None]
    ordered = nulls + values if order.endswith("first") else values + nulls
    assert list(dict.fromkeys(by_key)) == ordered


def test_orders_may_be_lists_have_members_and_curves():
    batch = pa.record_batch({"m": [{"x": 2}, {"x": None}, None], "b": [1, 2, 3], "c": [7, 8, 9]})
    for order in (["m.x", ("b", "descending")], "m.x, zorder(b, c)", "b, hilbert(c, m.x)"):
        found = pa.record_batch(plait.decode_keys(plait.encode_keys(batch, order), order, batch))
        assert found.to_pydict()["m.x"] == [2, None, None]
        assert found.to_pydict()["b"] == [1, 2, 3]


def test_keys_are_those_of_the_format():
    batch = pa.record_batch({"t": ["op", None], "n": [7, None]})
    keys = pa.array(plait.encode_keys(batch, "t, -n")).to_pylist()
    assert keys[0].hex() == "016f700000" + "017ffffffffffffff8"
    assert keys[1].hex() == "02" + "020000000000000000"


def test_a_range_has_all_keys_that_begin_alike_and_no_others():
    hosts = ["a", "a\0", "a", "b", "", None, "aa"]
    batch = pa.record_batch({"h": hosts, "t": pa.array(range(7), pa.uint8())})
    keys = pa.array(plait.encode_keys(batch, "h, t")).to_pylist()
    prefixes = pa.array(plait.encode_keys(batch, "h")).to_pylist()
    for row, host in enumerate(hosts):
        for range_ in (
            plait.prefix_range(prefixes[row]),
            plait.prefix_range(keys[row], 1, sort_by="h, t", schema=batch.schema),
        ):
            first, end = range_
            assert [first <= key < end for key in keys] == [other == host for other in hosts]
    whole = plait.prefix_range(keys[0], 2, sort_by="h, t", schema=batch)
    assert whole == (keys[0], plait.successor(keys[0]))
    assert plait.prefix_range(keys[0], 0, sort_by="h, t", schema=batch) == (b"", None)


def test_successors():
    assert plait.successor(b"a\xff\xff") == b"b"
    assert plait.successor(bytearray(b"a")) == b"b"
    assert plait.successor(b"\xff") is plait.successor(b"") is None


def test_what_is_wrong_is_told():
    batch = pa.record_batch({"a": [1], "l": [[1]]})
    keys = plait.encode_keys(batch, "a")
    with pytest.raises(plait.UnknownColumn):
        plait.encode_keys(batch, "z")
    with pytest.raises(plait.UnsupportedKey):
        plait.encode_keys(batch, "l")
    with pytest.raises(plait.InvalidArgument, match="sort_by"):
        plait.encode_keys(batch, None)
    with pytest.raises(plait.CorruptSource):
        plait.decode_keys(pa.array([b"\x01"]), "a", batch)
    for bad in (pa.array([1]), pa.array([b"x", None])):
        with pytest.raises(plait.InvalidArgument, match="not binary without nulls"):
            plait.decode_keys(bad, "a", batch)
    with pytest.raises(plait.InvalidArgument, match="more columns"):
        plait.prefix_range(pa.array(keys)[0].as_py(), 2, sort_by="a", schema=batch)
    for options in ({"sort_by": "a"}, {"schema": batch}):
        with pytest.raises(plait.InvalidArgument, match="no effect without"):
            plait.prefix_range(b"x", **options)
        with pytest.raises(plait.InvalidArgument, match="needs"):
            plait.prefix_range(b"x", 1, **options)
    with pytest.raises(plait.InvalidArgument, match="not bytes"):
        plait.successor("a")


@pytest.mark.parametrize("choice", ["basic", "full"])
def test_batches_are_checked_as_asked(choice):
    bad = pa.StringArray.from_buffers(
        1, pa.py_buffer(bytes(4) + b"\1\0\0\0"), pa.py_buffer(b"\xff")
    )
    batch = pa.record_batch({"t": bad})
    if choice == "full":
        with pytest.raises(plait.CorruptSource):
            plait.encode_keys(batch, "t", validate=choice)
    else:
        assert len(plait.encode_keys(batch, "t", validate=choice)) == 1
