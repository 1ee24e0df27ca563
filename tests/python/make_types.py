"""Tables with every type that Parquet can hold, and comparison to the last bit.

`every_type` and `every_decimal` draw from small pools of odd values: limits, NaN payloads, -0.0,
empty lists, nulls at every level. `stably_sorted` is the oracle of a merge; `differences` compares.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
import string
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY = "k"
DAYS = dt.date(1970, 1, 1)
F64 = (0, 1 << 63, 0x7FF0 << 48, 0xFFF0 << 48, 1, 0x3FF0 << 48)
F64_NAN = (0x7FF8 << 48, 0xFFF8_0000_0000_0001, 0x7FF4_0000_0000_0001, 0x7FFF_DEAD_BEEF_0BAD)
F32 = (0, 1 << 31, 0x7F80_0000, 0xFF80_0000, 1, 0x3F80_0000, 0x7FC0_0000, 0xFFC0_1234)
F16 = (0, 1 << 15, 0x7C00, 0xFC00, 1, 0x3C00, 0x7E00, 0xFE01, 0x7C01)


def inner(name, type_, nullable=True):
    return pa.field(name, type_, nullable=nullable)


POINT = pa.struct(
    [inner("x", pa.int32(), False), inner("y", pa.string()), inner("z", pa.float32())]
)
DEEP = pa.struct(
    [
        inner("a", pa.struct([inner("b", pa.list_(pa.struct([inner("c", pa.int64())])))])),
        inner("m", pa.map_(pa.string(), pa.list_(pa.float64()))),
    ]
)
TYPES = {
    "null": pa.null(),
    "bool": pa.bool_(),
    **{f"{u}int{w}": getattr(pa, f"{u}int{w}")() for u in ("", "u") for w in (8, 16, 32, 64)},
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "fixed1": pa.binary(1),
    "fixed16": pa.binary(16),
    "uuid": pa.uuid(),
    "json": pa.json_(),
    "bool8": pa.bool8(),
    "tensor": pa.fixed_shape_tensor(pa.float32(), (2, 2)),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "time32_s": pa.time32("s"),
    "time32_ms": pa.time32("ms"),
    "time64_us": pa.time64("us"),
    "time64_ns": pa.time64("ns"),
    **{f"ts_{u}": pa.timestamp(u) for u in ("s", "ms", "us", "ns")},
    **{f"tz_{u}": pa.timestamp(u, "UTC") for u in ("s", "ms", "us", "ns")},
    "tz_paris": pa.timestamp("us", "Europe/Paris"),
    **{f"duration_{u}": pa.duration(u) for u in ("s", "ms", "us", "ns")},
    "decimal32": pa.decimal32(9, 4),
    "decimal64": pa.decimal64(18, 3),
    "decimal128": pa.decimal128(38, 10),
    "decimal256": pa.decimal256(76, 38),
    "dict8": pa.dictionary(pa.int8(), pa.string()),
    "dict32": pa.dictionary(pa.int32(), pa.string()),
    "dict_ordered": pa.dictionary(pa.int32(), pa.string(), ordered=True),
    "dict_binary": pa.dictionary(pa.int32(), pa.binary()),
    "dict_int64": pa.dictionary(pa.int16(), pa.int64()),
    "list": pa.list_(pa.int32()),
    "list_required": pa.list_(inner("item", pa.string(), False)),
    "large_list": pa.large_list(pa.string()),
    "list_view": pa.list_view(pa.int32()),
    "large_list_view": pa.large_list_view(pa.string()),
    "fixed_list": pa.list_(pa.int16(), 3),
    "list_list": pa.list_(pa.list_(pa.float64())),
    "list3": pa.list_(pa.list_(pa.list_(pa.int8()))),
    "list_struct": pa.list_(POINT),
    "list_decimal": pa.list_(pa.decimal128(20, 2)),
    "list_null": pa.list_(pa.null()),
    "struct": POINT,
    "struct_deep": DEEP,
    "map": pa.map_(pa.string(), pa.int64()),
    "map_list": pa.map_(pa.int32(), pa.list_(pa.string())),
    "map_map": pa.map_(pa.string(), pa.map_(pa.int32(), POINT)),
}
REQUIRED = {
    "required_int": pa.int64(),
    "required_text": pa.string(),
    "required_float": pa.float64(),
    "required_list": pa.list_(pa.int32()),
    "required_struct": POINT,
}


def draw(type_, rng, nullable=True):
    """A value of a type, often an odd one."""
    t = pa.types
    if (nullable and rng.random() < 0.2) or t.is_null(type_):
        return None
    if isinstance(type_, pa.BaseExtensionType):
        storage = draw(type_.storage_type, rng, nullable=False)
        if not isinstance(type_, pa.JsonType):
            return storage
        return (
            '{"a": [1, null]}'
            if rng.random() < 0.5
            else '"' + draw_text(rng, string.ascii_letters) + '"'
        )
    if t.is_boolean(type_):
        return rng.random() < 0.5
    if t.is_integer(type_):
        low = 0 if t.is_unsigned_integer(type_) else -(1 << (type_.bit_width - 1))
        high = low + (1 << type_.bit_width) - 1
        return rng.choice((low, high, 0, 1, rng.randint(low, high)))
    if t.is_float64(type_):
        bits = rng.choice(F64 + F64_NAN)
        return (
            struct.unpack("<d", struct.pack("<Q", bits))[0] if rng.random() < 0.6 else rng.random()
        )
    if t.is_float32(type_):
        return np.array([rng.choice(F32)], np.uint32).view(np.float32)[0]
    if t.is_float16(type_):
        return np.array([rng.choice(F16)], np.uint16).view(np.float16)[0]
    if t.is_decimal(type_):
        top = 10**type_.precision - 1
        digits = rng.choice((top, -top, 0, 1, -1, rng.randint(-top, top)))
        return decimal.Decimal(digits).scaleb(-type_.scale, decimal.Context(prec=100))
    if t.is_fixed_size_binary(type_):
        return rng.randbytes(type_.byte_width)
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return draw_text(rng, "abß\0\u4e2d\U0001f9f6 ")
    if t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_):
        return rng.randbytes(rng.choice((0, 1, 3, 20, 90)))
    if t.is_date(type_):
        return DAYS + dt.timedelta(rng.choice((-700_000, -1, 0, rng.randint(0, 30_000))))
    if t.is_time(type_):
        unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit]
        return rng.choice((0, 86_400 * unit - 1, rng.randint(0, 86_400 * unit - 1)))
    if t.is_timestamp(type_) or t.is_duration(type_):
        return rng.choice((-(10**9), -1, 0, rng.randint(0, 2 * 10**9))) * UNITS[type_.unit]
    if t.is_dictionary(type_):
        return draw(type_.value_type, random.Random(rng.randrange(9)), nullable=False)
    if t.is_fixed_size_list(type_):
        return [
            draw(type_.value_type, rng, type_.value_field.nullable) for _ in range(type_.list_size)
        ]
    if t.is_map(type_):
        size = rng.choice((0, 1, 2, 5))
        item = type_.item_field
        return [
            (draw(type_.key_type, rng, False), draw(item.type, rng, item.nullable))
            for _ in range(size)
        ]
    if t.is_struct(type_):
        return {f.name: draw(f.type, rng, f.nullable) for f in type_}
    size = rng.choice((0, 0, 1, 2, 7))
    return [draw(type_.value_type, rng, type_.value_field.nullable) for _ in range(size)]


# Seconds in every unit, so that any unit can be stored as any finer one.
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def draw_text(rng, letters):
    return "".join(rng.choices(letters, k=rng.choice((0, 1, 3, 12, 13, 40))))


def array(type_, rows, rng, nullable=True):
    """An array of a type whose values come from a small pool."""
    pool = [draw(type_, rng, nullable) for _ in range(min(rows, 150))]
    values = rng.choices(pool, k=rows) if pool else []
    storage = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    made = pa.array(values, storage)
    return made if storage is type_ else pa.ExtensionArray.from_storage(type_, made)


def keys(rows, rng, nulls=True):
    """Small sorted integers with duplicates; a few nulls at the end."""
    values = sorted(rng.randrange(max(rows // 6, 1)) for _ in range(rows))
    tail = rows // 20 if nulls else 0
    return pa.array(values[: rows - tail] + [None] * tail, pa.int32())


def make(types, required, rows, seed, ids):
    rng = random.Random(f"{seed} {rows}")
    fields, arrays = [pa.field(KEY, pa.int32())], [keys(rows, rng)]
    for nullable, group in ((True, types), (False, required)):
        for name, type_ in group.items():
            fields.append(pa.field(name, type_, nullable=nullable))
            arrays.append(array(type_, rows, rng, nullable))
    if ids:
        fields = [
            f.with_metadata({"PARQUET:field_id": str(i + 100), "unit": f.name})
            for i, f in enumerate(fields)
        ]
    schema = pa.schema(fields, {"origin": "made", "note": "ünïcode"} if ids else None)
    return pa.Table.from_arrays(arrays, schema=schema)


def every_type(rows, seed, *, without=(), ids=True):
    """A sorted table with a column of every type; `required_...` columns hold no nulls."""
    types = {name: type_ for name, type_ in TYPES.items() if name not in without}
    required = {name: type_ for name, type_ in REQUIRED.items() if name not in without}
    return make(types, required, rows, seed, ids)


def every_decimal(rows, seed, most=76):
    """A sorted table with decimals of 1 to `most` digits, of several scales."""
    kinds = {p: pa.decimal128 if p <= 38 else pa.decimal256 for p in range(1, most + 1)}
    types = {f"d{p}": kind(p, (p * 7) % (p + 1)) for p, kind in kinds.items()}
    return make(types, {}, rows, seed, ids=False)


# ---- the oracle


def stable_order(keys_):
    """Places of the rows in the order of an integer key, nulls last, ties as they come."""
    values = np.array([2**62 if k is None else k for k in keys_.to_pylist()], np.int64)
    return np.argsort(values, kind="stable")


def stably_sorted(tables, key=KEY):
    """Columns of the concatenation in the order of `key`, stably."""
    order = stable_order(
        pa.chunked_array([c for t in tables for c in t[key].chunks], tables[0][key].type)
    )
    return {
        name: taken([chunk for table in tables for chunk in chunks(table[name])], order)
        for name in tables[0].column_names
    }


def chunks(column):
    """The chunks of a column, at least one."""
    return column.chunks or [pa.array([], column.type)]


def whole(some):
    """One array of some chunks, dictionaries decoded."""
    return pa.concat_arrays([plain(chunk) for chunk in some])


def plain(array_):
    """The array without extension type and outer dictionary."""
    if isinstance(array_.type, pa.BaseExtensionType):
        array_ = array_.storage
    return array_.dictionary_decode() if pa.types.is_dictionary(array_.type) else array_


def taken(some, order):
    array_ = whole(some)
    try:
        return array_.take(pa.array(order))
    except pa.ArrowNotImplementedError:  # views, in some versions
        return pa.concat_arrays([array_.slice(i, 1) for i in order]) if len(order) else array_


def same(a, b):
    """Whether two arrays hold the same values, to the last bit."""
    a, b = plain(a), plain(b)
    t = pa.types
    if len(a) != len(b) or not a.is_null().equals(b.is_null()):
        return False
    if t.is_null(a.type):
        return t.is_null(b.type)
    if t.is_struct(a.type):
        names = [f.name for f in a.type] == [f.name for f in b.type]
        return names and all(same(x, y) for x, y in zip(a.flatten(), b.flatten(), strict=True))
    if t.is_map(a.type):
        a, b = (m.cast(pa.list_(pa.struct([m.type.key_field, m.type.item_field]))) for m in (a, b))
    if t.is_nested(a.type):
        lengths = pc.list_value_length(a).equals(pc.list_value_length(b))
        return lengths and same(a.flatten(), b.flatten())
    if a.type != b.type:
        return False
    if t.is_floating(a.type):
        bits = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[a.type.bit_width]
        a, b = a.view(bits), b.view(bits)
    return a.equals(b)


def differences(columns, table):
    """Names of the columns of `table` that do not hold `columns`, to the last bit."""
    assert list(columns) == table.column_names
    return [
        name for name, column in columns.items() if not same(column, whole(chunks(table[name])))
    ]
