"""Keys of rows as bytes: encoded, decoded, and as ranges.

keys = plait.encode_keys(batch, "host, -ts")     compared byte by byte, they have the order of rows
plait.decode_keys(keys, "host, -ts", batch)      the columns again
plait.prefix_range(key)                          from a key to the first that does not begin so

Not here: the bytes (`docs/formats/key.md`).
"""

from __future__ import annotations

from typing import Any, Literal, SupportsIndex

from plait import _native
from plait._checks import _count, _validate
from plait.errors import InvalidArgument
from plait.order import SortBy, sort_text


def encode_keys(
    batch: object, sort_by: SortBy, *, validate: Literal["basic", "full"] = "basic"
) -> _native.Array:
    """Encodes the sort columns of each row as bytes that have the order of the rows.

    Keys compare as `bytes` do. The bytes are those that footers and joins store, and stay the same
    from one version of Plait to the next.

    Args:
        batch: Anything with `__arrow_c_array__` that is a record batch.
        sort_by: The order, as for `merge`: `"host, -ts"`. Nulls have keys, too.
        validate: As for `interleave`.

    Returns:
        An array of binary, a key for each row.

    Raises:
        UnknownColumn: The batch lacks a sort column.
        UnsupportedKey: The type of a sort column has no order.
        CorruptSource: The batch is not valid Arrow data.

    Example:
        >>> import pyarrow as pa
        >>> batch = pa.record_batch({"host": ["b", "a"], "ts": [1, 2]})
        >>> [key.hex() for key in pa.array(encode_keys(batch, "host")).to_pylist()]
        ['01620000', '01610000']
        >>> keys = pa.array(encode_keys(batch, "host, -ts"))
        >>> keys[1].as_py() < keys[0].as_py()
        True
    """
    return _native.encode_keys(batch, _order(sort_by), _validate(validate))


def decode_keys(keys: object, sort_by: SortBy, schema: object) -> _native.Batch:
    """Decodes keys to the columns that they were made of.

    Args:
        keys: An array of binary without nulls.
        sort_by: The order of which they are keys.
        schema: A schema, or a table or batch, with the types of the sort columns: a key does not
            contain them. For example the batch that was encoded.

    Returns:
        A batch with a column for each sort column, `a.b` for the member of a struct. -0.0 comes
        back as 0.0.

    Raises:
        UnknownColumn: The schema lacks a sort column.
        CorruptSource: A key is none of this order.
        InvalidArgument: `keys` are not binary, or have nulls.

    Example:
        >>> import pyarrow as pa
        >>> batch = pa.record_batch({"n": pa.array([5, None], pa.int8()), "v": [0.5, 1.5]})
        >>> pa.record_batch(decode_keys(encode_keys(batch, "-n"), "-n", batch)).to_pylist()
        [{'n': 5}, {'n': None}]
    """
    return _native.decode_keys(keys, _order(sort_by), _schema(schema))


def successor(prefix: bytes) -> bytes | None:
    r"""The least byte string that is greater than all that begin with `prefix`.

    Args:
        prefix: A key, or its beginning.

    Returns:
        The bytes; `None` if there is no such string: the prefix is empty or all FF.

    Example:
        >>> successor(bytes([1, 0x61, 255]))
        b'\x01b'
    """
    return _native.successor(_bytes(prefix, "prefix"))


def prefix_range(
    key: bytes,
    columns: SupportsIndex | None = None,
    *,
    sort_by: SortBy | None = None,
    schema: object = None,
) -> tuple[bytes, bytes | None]:
    """The range of all keys that begin as `key` does.

    Args:
        key: A key, or one of fewer columns: keys by `"a"` begin those by `"a, b"`.
        columns: Of a whole key take the first so many columns only; a curve counts as one. Needs
            `sort_by` and `schema`.
        sort_by: The order of which it is a key.
        schema: The types of the sort columns, as for `decode_keys`.

    Returns:
        The first key of the range, and the first behind it, `None` if none is.

    Raises:
        InvalidArgument: There are fewer columns, or options are given of which one is missing.
        CorruptSource: It is no key of this order.

    Example:
        >>> import pyarrow as pa
        >>> batch = pa.record_batch({"host": ["a", "a", "b"], "ts": [1, 2, 3]})
        >>> keys = pa.array(encode_keys(batch, "host, ts")).to_pylist()
        >>> first, end = prefix_range(keys[0], 1, sort_by="host, ts", schema=batch)
        >>> [first <= key < end for key in keys]
        [True, True, False]
    """
    key = _bytes(key, "key")
    if columns is None:
        if sort_by is not None or schema is not None:
            raise InvalidArgument.of(
                "`sort_by` and `schema` have no effect without `columns`",
                hint="give the number of columns that keys of the range have in common",
            )
        return key, successor(key)
    if sort_by is None or schema is None:
        raise InvalidArgument.of(
            "`columns` needs `sort_by` and `schema`", hint="they say where a column ends"
        )
    count: Any = _count(columns, "columns")
    prefix = key[: _native.prefix_len(key, count, _order(sort_by), _schema(schema))]
    return prefix, successor(prefix)


def _order(sort_by: SortBy) -> str:
    text = sort_text(sort_by)
    if text is None:
        raise InvalidArgument.of("`sort_by` is needed", got="`None`")
    return text


def _schema(owner: object) -> object:
    """The schema of a table or batch, which not all of them export themselves."""
    return owner if hasattr(owner, "__arrow_c_schema__") else getattr(owner, "schema", owner)


def _bytes(value: object, name: str) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument.of(
        f"`{name}` is not bytes", got=f"`{value!r}`", hint="take an element of `encode_keys`"
    )
