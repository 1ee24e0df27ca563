"""`StagedLeft` and `StagedRight`: a foreign-key join whose tables live in different places.

subscriptions = left.send(changes)
responses = right.receive(subscriptions)
changes_out = left.resolve(responses)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from plait import _native
from plait.join import Columns, _choice, _names

if TYPE_CHECKING:
    from plait._streams import ArrowBatch, ArrowStream

    Batches = ArrowStream | ArrowBatch | Iterable[ArrowBatch]


class StagedLeft:
    """The left side of a foreign-key join: it subscribes to right rows and resolves the answers.

    Messages are record batches, which may wait, be cut into pieces and overtake each other. Once
    all have come, the changes that `resolve` gave make the full join of both tables. State is in
    memory.

    Args:
        left_key: Columns that identify a left row: the primary key.
        foreign_key: Columns of the left table that hold a right key.
        right_key: Columns that identify a right row.
        left_schema: Columns of the left changes, as anything with `__arrow_c_schema__`.
        right_schema: Columns of the right changes.
        how: As for `ForeignKeyJoin`.

    Raises:
        Unsupported: Changes have sequence numbers: order each side's changes before.
        PlaitError: As `ForeignKeyJoin` does.

    Example:
        >>> import pyarrow as pa
        >>> orders = pa.table({"order": [1], "customer": [7]})
        >>> customers = pa.table({"customer": [7], "name": ["Ada"]})
        >>> keys = {"left_key": "order", "foreign_key": "customer", "right_key": "customer"}
        >>> schemas = {"left_schema": orders.schema, "right_schema": customers.schema}
        >>> left, right = StagedLeft(**keys, **schemas), StagedRight(**keys, **schemas)
        >>> len(right.receive(left.send(orders)))
        0
        >>> pa.record_batch(left.resolve(right.apply(customers))).to_pylist()
        [{'_op': 'insert', 'order': 1, 'customer': 7, 'name': 'Ada'}]
    """

    def __init__(
        self,
        *,
        left_key: Columns,
        foreign_key: Columns,
        right_key: Columns,
        left_schema: object,
        right_schema: object,
        how: Literal["inner", "left"] = "inner",
    ) -> None:
        """Makes the side."""
        options = _options(left_key, foreign_key, right_key, how)
        self._side = _native.StagedLeft(options, left_schema, right_schema)

    def send(self, changes: Batches) -> _native.Batch:
        """Takes changes of the left table, and gives subscriptions for the right side.

        Returns:
            A row for each: encoded foreign key and primary key, version and hash of the left row,
            and the instruction, which are those of KIP-213: 0 forget, 1 forget and answer, 2 answer
            in any case, 3 answer if there is a right row.
        """
        return self._side.send(changes)

    def resolve(self, responses: Batches) -> _native.Batch:
        """Takes responses, drops those that are not current, and gives the changes of the join."""
        return self._side.resolve(responses)


class StagedRight:
    """The right side of a foreign-key join: it answers subscriptions and tells of changes.

    Args:
        left_key: As for `StagedLeft`, as all others.
        foreign_key: See there.
        right_key: See there.
        left_schema: See there.
        right_schema: See there.
        how: See there.
    """

    def __init__(
        self,
        *,
        left_key: Columns,
        foreign_key: Columns,
        right_key: Columns,
        left_schema: object,
        right_schema: object,
        how: Literal["inner", "left"] = "inner",
    ) -> None:
        """Makes the side."""
        options = _options(left_key, foreign_key, right_key, how)
        self._side = _native.StagedRight(options, left_schema, right_schema)

    def receive(self, subscriptions: Batches) -> _native.Batch:
        """Takes subscriptions of the left side, and gives the responses that they ask for."""
        return self._side.receive(subscriptions)

    def apply(self, changes: Batches) -> _native.Batch:
        """Takes changes of the right table, and gives a response for each subscriber."""
        return self._side.apply(changes)


def _options(left_key: Columns, foreign_key: Columns, right_key: Columns, how: str) -> str:
    return json.dumps(
        {
            "left_key": _names(left_key, "left_key"),
            "foreign_key": _names(foreign_key, "foreign_key"),
            "right_key": _names(right_key, "right_key"),
            "how": _choice(how, "how"),
        }
    )
