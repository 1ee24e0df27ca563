"""`StagedLeft` and `StagedRight`: a foreign-key join whose tables live in different places.

subscriptions = left.send(changes)
responses = right.receive(subscriptions)
changes_out = left.resolve(responses)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from plait import _native
from plait._checks import Path, _path, _validate
from plait._svg import related
from plait._text import Page
from plait.errors import InvalidArgument
from plait.join import Columns, _choice, _names

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Self

    from plait._streams import ArrowBatch, ArrowStream

    Batches: TypeAlias = ArrowStream | ArrowBatch | Iterable[ArrowBatch]


class StagedLeft:
    """The left side of a foreign-key join: it subscribes to right rows and resolves the answers.

    Messages are record batches. A transport may delay, split, reorder and duplicate them, but must
    not lose any. Once all have arrived and no side is `pending`, the changes that `resolve`
    returned make the full join of both tables. A side may restart with all, some or none of its
    state: both sides notice, and the left one subscribes again.

    Args:
        left_key: Columns that identify a left row: the primary key.
        foreign_key: Columns of the left table that hold a right key.
        right_key: Columns that identify a right row.
        left_schema: Columns of the left changes, as anything with `__arrow_c_schema__`.
        right_schema: Columns of the right changes.
        how: As for `ForeignKeyJoin`.
        state: A local folder that keeps the state, made if absent; `None` keeps it in memory. Each
            call is durable before it returns. A folder with a state continues from that state.
        validate: As for `ForeignKeyJoin`.

    Raises:
        Unsupported: Changes have sequence numbers: order each side's changes before.
        InvalidArgument: A right column has the name of a column of messages, or the state is that
            of another join or of the other side.
        PlaitError: As `ForeignKeyJoin` does.

    Example:
        >>> import pyarrow as pa
        >>> orders = pa.table({"order": [1], "customer": [7]})
        >>> customers = pa.table({"customer": [7], "name": ["Ada"]})
        >>> keys = {"left_key": "order", "foreign_key": "customer", "right_key": "customer"}
        >>> schemas = {"left_schema": orders.schema, "right_schema": customers.schema}
        >>> left, right = StagedLeft(**keys, **schemas), StagedRight(**keys, **schemas)
        >>> _ = left.resolve(right.apply())  # they greet each other
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
        state: Path | None = None,
        validate: Literal["basic", "full"] = "basic",
    ) -> None:
        """Makes the side."""
        options = _options(left_key, foreign_key, right_key, how, state)
        self._options: dict[str, Any] = json.loads(options)
        checked = _validate(validate)
        self._side = _native.StagedLeft(options, left_schema, right_schema, checked)

    @classmethod
    def restore(cls, state: Path, *, validate: Literal["basic", "full"] = "basic") -> Self:
        """Continues the side whose state, or a snapshot of it, is in a folder.

        Args:
            state: The folder, which keeps the state from now on.
            validate: As for a new side.

        Raises:
            SourceNotFound: There is no state in the folder.
            InvalidArgument: It is the state of another join or of the other side.
            CorruptSource: The state is damaged.
            StorageError: Another process has it open.
        """
        side = cls.__new__(cls)
        options = {"state": _path(state, "state")}
        made = _native.StagedLeft(json.dumps(options), None, None, _validate(validate))
        side._side, side._options = made, options  # noqa: SLF001 -- its own, made in another way
        return side

    def send(self, changes: Batches | None = None) -> _native.Batch:
        """Takes changes of the left table, and returns subscriptions for the right side.

        Args:
            changes: The changes; `None` for what is due without any, while `pending`.

        Returns:
            A row for each: encoded foreign key and primary key, epoch, version and hash of the left
            row, and the instruction, which is that of KIP-213: 0 forget, 1 forget and answer,
            2 answer in any case, 3 answer if there is a right row. Rows go to the right side that
            has their foreign key.
        """
        return self._side.send(changes)

    def resolve(self, responses: Batches) -> _native.Batch:
        """Takes responses, drops outdated ones, and returns the changes of the join.

        A sink stores `step` with the changes, in one transaction: after a crash `again` returns the
        changes that were not delivered.
        """
        return self._side.resolve(responses)

    def again(self) -> _native.Batch:
        """The changes of the last call again: none if it was `send`."""
        return self._side.again()

    def table(self) -> _native.Stream:
        """The joined table as it was resolved so far, by primary key."""
        return self._side.table()

    @property
    def pending(self) -> bool:
        """Whether `send()` has messages for right sides without any change.

        True after a restart of either side. A call of `send` returns some of the messages; check
        again after it.
        """
        return self._side.pending

    @property
    def step(self) -> int | None:
        """The number of the last call that changed the state, `None` before the first."""
        return self._side.step

    def snapshot(self, folder: Path) -> str:
        """Writes the state to another folder, for `restore`, and returns that folder.

        A side restored from it needs the changes since then again. A copy of the joined table must
        be reset to the result of `table`.

        Raises:
            OutputExists: The folder holds a state.
            StorageError: It cannot be written.
        """
        location = _path(folder, "folder")
        self._side.snapshot(location)
        return location

    def _repr_html_(self) -> str:
        return _drawn("left", self._options, self._side)

    def close(self) -> None:
        """Closes the state, so that another process may open its folder."""
        self._side.close()

    def __enter__(self) -> Self:
        """The side itself; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the side."""
        self.close()


class StagedRight:
    """The right side of a foreign-key join: it answers subscriptions and sends changes.

    Args:
        left_key: As for `StagedLeft`, as all others.
        foreign_key: See there.
        right_key: See there.
        left_schema: See there.
        right_schema: See there.
        how: See there.
        state: See there.
        validate: See there.
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
        state: Path | None = None,
        validate: Literal["basic", "full"] = "basic",
    ) -> None:
        """Makes the side."""
        options = _options(left_key, foreign_key, right_key, how, state)
        self._options: dict[str, Any] = json.loads(options)
        checked = _validate(validate)
        self._side = _native.StagedRight(options, left_schema, right_schema, checked)

    @classmethod
    def restore(cls, state: Path, *, validate: Literal["basic", "full"] = "basic") -> Self:
        """As `StagedLeft.restore`."""
        side = cls.__new__(cls)
        options = {"state": _path(state, "state")}
        made = _native.StagedRight(json.dumps(options), None, None, _validate(validate))
        side._side, side._options = made, options  # noqa: SLF001 -- its own, made in another way
        return side

    def receive(self, subscriptions: Batches) -> _native.Batch:
        """Takes subscriptions of left sides, and returns the responses.

        Returns:
            A row for each: encoded primary key, epoch, version and hash of the left row, epoch and
            version of the right row, whether there is one, and its columns. Rows go to the left
            side that has their primary key; one without goes to all left sides.
        """
        return self._side.receive(subscriptions)

    def apply(self, changes: Batches | None = None) -> _native.Batch:
        """Takes changes of the right table, and returns a response for each subscriber.

        Args:
            changes: The changes; `None` for what is due without any, while `pending`.
        """
        return self._side.apply(changes)

    @property
    def pending(self) -> bool:
        """Whether `apply()` has messages for left sides without any change.

        True when the side starts or restarts: it sends a greeting to all left sides.
        """
        return self._side.pending

    def snapshot(self, folder: Path) -> str:
        """As `StagedLeft.snapshot`."""
        location = _path(folder, "folder")
        self._side.snapshot(location)
        return location

    def _repr_html_(self) -> str:
        return _drawn("right", self._options, self._side)

    def close(self) -> None:
        """Closes the state, so that another process may open its folder."""
        self._side.close()

    def __enter__(self) -> Self:
        """The side itself; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the side."""
        self.close()


def _drawn(here: str, options: dict[str, Any], side: Any) -> str:  # noqa: ANN401 - either side
    """A side of the join as HTML; what a restored state alone knows is left out."""
    keys = {name: ", ".join(of) for name, of in options.items() if isinstance(of, list)}
    places = {name: "here" if name == here else "elsewhere" for name in ("left", "right")}
    left, right = ((name, keys.get(f"{name}_key", ""), place) for name, place in places.items())
    try:
        pending = "yes: send what is due" if side.pending else "no"
        step = getattr(side, "step", None)
    except InvalidArgument:
        pending, step = "this side was closed", None
    how = f"{options['how']} join" if "how" in options else "join, restored from its state"
    return Page(
        title=f"{here} side of a staged {how}",
        svg=related(left, keys["foreign_key"], right) if keys else "",
        facts=(
            ("state", options["state"] or "in memory"),
            ("pending", pending),
            *((("step", f"{step:,}"),) if step is not None else ()),
        ),
    ).html()


def _options(
    left_key: Columns, foreign_key: Columns, right_key: Columns, how: str, state: Path | None
) -> str:
    return json.dumps(
        {
            "left_key": _names(left_key, "left_key"),
            "foreign_key": _names(foreign_key, "foreign_key"),
            "right_key": _names(right_key, "right_key"),
            "how": _choice(how, "how"),
            "state": None if state is None else _path(state, "state"),
        }
    )
