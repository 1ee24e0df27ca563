"""Which side of a staged join has a row, where a table is split over several sides.

Not here: the sides (`staged`).
"""

from __future__ import annotations

import operator
from typing import Literal, SupportsIndex

from plait import _native
from plait._checks import _validate
from plait.errors import InvalidArgument
from plait.join import Columns, _names

# More sides than a table is split over; their numbers are 32 bits.
_SIDES_MAX = 2**32 - 1


def side_numbers(
    rows: object,
    sides: SupportsIndex,
    *,
    key: Columns | None = None,
    validate: Literal["basic", "full"] = "basic",
) -> _native.Array:
    """The number of the side that has each row, where a table is split over several sides.

    Changes of the right table and subscriptions for them go to the same side, and so do changes of
    the left table and responses to them. The number depends on the key and on `sides` alone: xxh3
    with 128 bits of the encoded key, modulo `sides`.

    Args:
        rows: The keys of messages, an array of binary: the column `_fk` of subscriptions or `_pk`
            of responses. Or a batch of changes, with `key`.
        sides: How many sides the table is split over.
        key: The key columns of changes: `right_key` of the right table, `left_key` of the left one.
        validate: As for `interleave`.

    Returns:
        An array of uint32 from 0 to `sides` - 1; null for a response without a key, a greeting,
        which goes to all left sides.

    Raises:
        UnknownColumn: A column of `key` is not there.
        UnsupportedKey: A column of `key` has a type without order.
        InvalidArgument: `sides` is not from 1 to 2^32 - 1, or `rows` are not binary.

    Example:
        >>> import pyarrow as pa
        >>> customers = pa.record_batch({"customer": [7, 8, 9], "name": ["Ada", "Alan", "Kay"]})
        >>> pa.array(side_numbers(customers, 4, key="customer")).to_pylist()
        [2, 1, 0]
    """
    count = operator.index(sides)
    if not 1 <= count <= _SIDES_MAX:
        raise InvalidArgument.of("`sides` is not from 1 to 2^32 - 1", got=f"`{count}`")
    names = None if key is None else _names(key, "key")
    return _native.side_numbers(rows, names, count, _validate(validate))
