"""Keys of single rows and of values, as bytes: where a task begins and ends in a file.

    sort_by "name, -ts"    ("cpu", 7) ──▶ 01 63 70 75 00 00 │ 01 7F FF FF FF FF FF FF F8

The layout is key v1 (`docs/formats/key.md`), the one of the cuts in a plan. Only rows at
the ends of a range are encoded, a few for each row group; all others are ordered by the engine.

Invariants: comparing two keys compares the rows; a prefix of columns is a prefix of bytes.
Not here: reading (`ranges`), filters of Spark (`filters`).
"""

from __future__ import annotations

import base64
import decimal
import io
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plait import _native
from plait.errors import UnknownColumn, Unsupported

_COLUMN = re.compile(
    r"""\s*(?P<sign>[-+]?)\s*
    (?P<path>(?:"(?:[^"]|"")*"|[^\s,".]+)(?:\.(?:"(?:[^"]|"")*"|[^\s,".]+))*)
    (?:\s+(?P<direction>asc|desc|ascending|descending))?
    (?:\s+nulls\s+(?P<nulls>first|last))?\s*(?:,|$)""",
    re.VERBOSE | re.IGNORECASE,
)
_STEP = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')

# Noon of 1970-01-01 is day 2440588 of Julian days, in which INT96 counts.
_JULIAN_EPOCH = 2_440_588
_NANOS_PER_DAY = 86_400 * 10**9
_WIDE = decimal.Context(prec=100)
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@dataclass(frozen=True)
class KeyColumn:
    """A column of the order.

    Attributes:
        path: Names from the root.
        descending: Whether greater values come first.
        nulls_first: Whether nulls come first, in either direction.
        type: The Arrow type of the merged column.
        is_int96: Whether the file holds timestamps of 12 bytes.
    """

    path: tuple[str, ...]
    descending: bool
    nulls_first: bool
    type: pa.DataType
    is_int96: bool = False


def plan_schema(encoded: str) -> tuple[pa.Schema, frozenset[str]]:
    """The schema of a plan's outputs, and the dotted paths of its columns that are INT96."""
    bytes_ = io.BytesIO(base64.b64decode(encoded))
    file = pq.ParquetFile(bytes_, coerce_int96_timestamp_unit="us")
    leaves = (file.schema.column(i) for i in range(len(file.schema)))
    int96 = frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")
    return file.schema_arrow, int96


def key_columns(
    sort_by: str, schema: pa.Schema, int96: frozenset[str] = frozenset()
) -> tuple[KeyColumn, ...]:
    """The columns of an order, with their types.

    Example:
        >>> column, = key_columns("-ts nulls first", pa.schema({"ts": pa.int64()}))
        >>> column.descending, column.nulls_first
        (True, True)
    """
    columns = []
    position = 0
    while position < len(sort_by):
        match = _COLUMN.match(sort_by, position)
        if match is None:
            raise Unsupported.of("cannot read the order", got=f"`{sort_by[position:]}`")
        position = match.end()
        path = sort_path(match["path"])
        type_ = _type_at(path, schema)
        words = (match["direction"] or "").lower()
        columns.append(
            KeyColumn(
                path,
                match["sign"] == "-" or words.startswith("desc"),
                (match["nulls"] or "").lower() == "first",
                type_,
                ".".join(path) in int96,
            )
        )
    return tuple(columns)


def sort_path(text: str) -> tuple[str, ...]:
    """The names of a path: `a."b c"` is `a`, then `b c`."""
    return tuple(
        m[1].replace('""', '"') if m[1] is not None else m[2] for m in _STEP.finditer(text)
    )


def _type_at(path: tuple[str, ...], schema: pa.Schema) -> pa.DataType:
    fields: Any = schema
    for name in path:
        index = fields.get_field_index(name)
        if index < 0:
            raise UnknownColumn.of(
                f"the order names column `{'.'.join(path)}`, which is not there",
                got=", ".join(schema.names),
            )
        fields = fields.field(index).type
    if isinstance(fields, pa.BaseExtensionType):
        fields = fields.storage_type
    return fields.value_type if pa.types.is_dictionary(fields) else fields


def located(
    columns: Sequence[KeyColumn], merged: pa.Schema, file: pa.Schema
) -> tuple[KeyColumn, ...]:
    """The key columns by the names that a file has for them; where it has none, without names.

    Args:
        columns: The key columns, by the names of the merge.
        merged: The schema of the merge.
        file: The schema of the file.

    Example:
        >>> merged = pa.schema([pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        >>> file = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        >>> located(key_columns("k", merged), merged, file)[0].path
        ('id',)
    """
    return tuple(replace(column, path=_path_in(column.path, merged, file)) for column in columns)


def _path_in(path: Sequence[str], merged: pa.Schema, file: pa.Schema) -> tuple[str, ...]:
    names: list[str] = []
    for depth, name in enumerate(path):
        target = merged.get_field_index(name)
        index = _native.matched_fields(file, merged)[target] if target >= 0 else None
        if index is None:
            return ()
        names.append(file.field(index).name)
        if depth + 1 < len(path):
            types = (merged.field(target).type, file.field(index).type)
            if not all(map(pa.types.is_struct, types)):
                return ()
            merged, file = (pa.schema(list(type_)) for type_ in types)
    return tuple(names)


def key_arrays(columns: Sequence[KeyColumn], batch: pa.RecordBatch) -> list[pa.Array]:
    """The key columns of a batch, each in its type of the merged file."""
    arrays = []
    for column in columns:
        name, *rest = column.path or ("",)
        index = batch.schema.get_field_index(name) if column.path else -1
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, column.type))
            continue
        array = batch.column(index)
        for step in rest:
            array = pc.struct_field(array, step)
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        arrays.append(array if array.type == column.type else array.cast(column.type))
    return arrays


def row_key(columns: Sequence[KeyColumn], arrays: Sequence[pa.Array], row: int) -> bytes:
    """The key of one row of `key_arrays`."""
    return b"".join(
        column_bytes(column, array[row]) for column, array in zip(columns, arrays, strict=True)
    )


def column_bytes(column: KeyColumn, scalar: pa.Scalar) -> bytes:
    """The bytes of one value of a column.

    Example:
        >>> column, = key_columns("ts", pa.schema({"ts": pa.int32()}))
        >>> column_bytes(column, pa.scalar(7, pa.int32())).hex(" ")
        '01 80 00 00 07'
    """
    if not scalar.is_valid:
        width = _width(column)
        return (b"\0" if column.nulls_first else b"\2") + bytes(width or 0)
    value = value_bytes(column, scalar)
    if _width(column) is None:
        value = value.replace(b"\0", b"\0\1") + b"\0\0"
    return b"\1" + (complement(value) if column.descending else value)


def complement(value: bytes) -> bytes:
    """Every bit turned: what was first comes last."""
    return bytes(255 - byte for byte in value)


def successor(prefix: bytes) -> bytes | None:
    """The first key behind all that begin with `prefix`; `None` where there is none.

    Example:
        >>> successor(bytes.fromhex("01 9E FF FF")).hex(" ")
        '01 9f'
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def value_bytes(column: KeyColumn, scalar: pa.Scalar) -> bytes:
    """The bytes of a value before they are escaped or complemented."""
    t, type_ = pa.types, column.type
    if t.is_boolean(type_):
        return b"\1" if scalar.as_py() else b"\0"
    if column.is_int96:
        nanos: int = scalar.value * _NANOS[type_.unit]
        day, rest = divmod(nanos, _NANOS_PER_DAY)
        return _signed(day + _JULIAN_EPOCH, 4) + int(rest).to_bytes(8, "big")
    if t.is_floating(type_):
        return _float(scalar.as_py(), type_.bit_width // 8)
    if t.is_decimal(type_):
        unscaled = int(scalar.as_py().scaleb(type_.scale, _WIDE))
        return _signed(unscaled, 16 if type_.precision <= 38 else 32)  # noqa: PLR2004 - digits
    if t.is_unsigned_integer(type_):
        return int(scalar.as_py()).to_bytes(_width(column) or 0, "big")
    if t.is_integer(type_):
        return _signed(scalar.as_py(), _width(column) or 0)
    if t.is_temporal(type_):
        return _signed(scalar.value, _width(column) or 0)
    value: str | bytes = scalar.as_py()
    return value.encode() if isinstance(value, str) else bytes(value)


def _width(column: KeyColumn) -> int | None:
    """Bytes of a value; `None` where that depends on the value."""
    t, type_ = pa.types, column.type
    if t.is_null(type_):
        return 0
    if t.is_boolean(type_):
        return 1
    if column.is_int96:
        return 12
    if t.is_floating(type_):
        return int(type_.bit_width) // 8
    if t.is_decimal(type_):
        return 16 if type_.precision <= 38 else 32  # noqa: PLR2004 - digits
    if t.is_integer(type_) or t.is_temporal(type_):
        # Parquet holds dates and times to milliseconds in 32 bits, and small integers, too.
        return 8 if type_.bit_width > 32 and not t.is_date(type_) else 4  # noqa: PLR2004 - bits
    kinds = (
        *(t.is_string, t.is_large_string, t.is_string_view, t.is_binary, t.is_large_binary),
        *(t.is_binary_view, t.is_fixed_size_binary),
    )
    if any(kind(type_) for kind in kinds):
        return None
    raise Unsupported.of(
        f"a key column of type `{type_}` cannot be read in parts",
        hint="merge the files with plait.merge, and read the outputs",
    )


def _signed(value: int, width: int) -> bytes:
    return (value + (1 << (8 * width - 1))).to_bytes(width, "big")


_FLOATS = {2: ("e", 0x7E00), 4: ("f", 0x7FC0_0000), 8: ("d", 0x7FF8 << 48)}


def _float(value: float, width: int) -> bytes:
    letter, quiet = _FLOATS[width]
    if value != value:  # noqa: PLR0124 - NaN alone differs from itself
        bits = quiet
    else:
        bits = int.from_bytes(struct.pack(f">{letter}", value + 0.0), "big")
    sign = 1 << (8 * width - 1)
    return ((bits ^ (2 * sign - 1)) if bits & sign else bits | sign).to_bytes(width, "big")
