"""`StagedLeft` and `StagedRight`: a foreign-key join whose tables live in different places.

subscriptions = left.send(changes)
responses = right.receive(subscriptions)
changes_out = left.resolve(responses)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from plait import _native
from plait._checks import Path, _flag, _path, _size, _validate
from plait._staged_report import SideStats, _drawn, _stats
from plait.errors import InvalidArgument
from plait.join import Columns, RowMaker, _choice, _columns, _maker, _names

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Self

    from plait._streams import ArrowBatch, ArrowStream
    from plait.sizes import Size

    Batches: TypeAlias = ArrowStream | ArrowBatch | Iterable[ArrowBatch]


class StagedLeft:
    """The left side of a foreign-key join: it subscribes to right rows and resolves the answers.

    Messages are record batches. A transport may delay, split, reorder and duplicate them, but must
    not lose any. Once all have arrived and no side is `pending`, the changes that `resolve`
    returned make the full join of both tables. A side may restart with all, some or none of its
    state: both sides notice, and the left one subscribes again.

    Changes are those of `ForeignKeyJoin`, with `_op` and `_seq`. A schema with `_seq` says that
    changes of its side have sequence numbers.

    Args:
        left_key: Columns that identify a left row: the primary key.
        foreign_key: Columns of the left table that hold a right key.
        right_key: Columns that identify a right row.
        left_schema: Columns of the left changes, as anything with `__arrow_c_schema__`.
        right_schema: Columns of the right changes.
        how: As for `ForeignKeyJoin`.
        columns: As for `ForeignKeyJoin`.
        joiner: As for `ForeignKeyJoin`. If it raises an error, the state is what it was.
        before: As for `ForeignKeyJoin`.
        on_null_key: As for `ForeignKeyJoin`; `stats` counts what was left out.
        state: A local folder that keeps the state, made if absent; `None` keeps it in memory. Each
            call is durable before it returns. A folder with a state continues from that state.
        validate: As for `ForeignKeyJoin`.
        memory_limit: Memory to stay within, such as `"4G"`. State in a folder may be larger; a
            batch of messages is held in addition.

    Raises:
        MemoryLimitExceeded: The state needs more than `memory_limit`.
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
        columns: Mapping[str, str] | Iterable[str] | None = None,
        joiner: RowMaker | None = None,
        before: bool = False,
        on_null_key: Literal["error", "drop"] = "error",
        state: Path | None = None,
        validate: Literal["basic", "full"] = "basic",
        memory_limit: Size = "512MB",
    ) -> None:
        """Makes the side."""
        if joiner is not None and columns is not None:
            hint = "let the joiner make the columns"
            raise InvalidArgument.of("`joiner` and `columns` exclude each other", hint=hint)
        self._options: dict[str, Any] = {
            **_options(
                left_key=left_key,
                foreign_key=foreign_key,
                right_key=right_key,
                how=how,
                on_null_key=on_null_key,
                state=state,
                memory_limit=memory_limit,
            ),
            "columns": None if columns is None else _columns(columns),
            "before": _flag(before, "before"),
            "has_joiner": _maker(joiner),
        }
        self._side = _native.StagedLeft(
            json.dumps(self._options), left_schema, right_schema, joiner, _validate(validate)
        )

    @classmethod
    def restore(
        cls,
        state: Path,
        *,
        joiner: RowMaker | None = None,
        validate: Literal["basic", "full"] = "basic",
        memory_limit: Size = "512MB",
    ) -> Self:
        """Continues the side whose state, or a snapshot of it, is in a folder.

        Args:
            state: The folder, which keeps the state from now on.
            joiner: As for a new side; it may be another than before, in place of `columns`.
            validate: As for a new side.
            memory_limit: As for a new side.

        Raises:
            SourceNotFound: There is no state in the folder.
            InvalidArgument: It is the state of another join or of the other side.
            CorruptSource: The state is damaged.
            StorageError: Another process has it open.
        """
        side = cls.__new__(cls)
        options = {
            "state": _path(state, "state"),
            "has_joiner": _maker(joiner),
            "memory_limit": _size(memory_limit, "memory_limit"),
        }
        made = _native.StagedLeft(json.dumps(options), None, None, joiner, _validate(validate))
        side._side, side._options = made, options  # noqa: SLF001 -- its own, made in another way
        return side

    def send(self, changes: Batches | None = None) -> _native.Batch:
        """Takes changes of the left table, and returns subscriptions for the right side.

        A row that keeps its foreign key sends none: its subscription stands. If the answer is
        known, the change of the result is `ready`, and the next call of `resolve` returns it.

        Args:
            changes: The changes; `None` for what is due without any, while `pending`.

        Returns:
            A row for each: encoded foreign key and primary key, epoch, version and hash of the left
            row, and the instruction, which is that of KIP-213: 0 forget, 1 forget and answer,
            2 answer in any case, 3 answer if there is a right row. Rows go to the right side that
            has their foreign key, see `side_numbers`.

        Raises:
            NullKey: A change has no key. The state is what it was, as after all errors.
            SchemaDrift: Columns are not those of the schema.
            MemoryLimitExceeded: The state would need more than `memory_limit`.
        """
        return self._side.send(changes)

    def resolve(self, responses: Batches | None = None) -> _native.Batch:
        """Takes responses, drops outdated ones, and returns the changes of the join.

        A sink stores `step` with the changes, in one transaction: after a crash `again` returns the
        changes that were not delivered.

        Args:
            responses: The responses; `None` for the changes that are `ready` without any.

        Returns:
            The changes, those that were `ready` among them, as `ForeignKeyJoin.apply` has them.
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
    def ready(self) -> bool:
        """Whether `resolve()` has changes without any response.

        They are those of left rows that kept their foreign key. A side that restarts has none: it
        subscribes again.
        """
        return self._side.ready

    @property
    def stats(self) -> SideStats:
        """Counts of the calls so far, and the size of the state."""
        return _stats(self._side.stats())

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
        on_null_key: See there.
        state: See there.
        validate: See there.
        memory_limit: See there.
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
        on_null_key: Literal["error", "drop"] = "error",
        state: Path | None = None,
        validate: Literal["basic", "full"] = "basic",
        memory_limit: Size = "512MB",
    ) -> None:
        """Makes the side."""
        self._options: dict[str, Any] = _options(
            left_key=left_key,
            foreign_key=foreign_key,
            right_key=right_key,
            how=how,
            on_null_key=on_null_key,
            state=state,
            memory_limit=memory_limit,
        )
        options, checked = json.dumps(self._options), _validate(validate)
        self._side = _native.StagedRight(options, left_schema, right_schema, checked)

    @classmethod
    def restore(
        cls,
        state: Path,
        *,
        validate: Literal["basic", "full"] = "basic",
        memory_limit: Size = "512MB",
    ) -> Self:
        """As `StagedLeft.restore`."""
        side = cls.__new__(cls)
        options = {
            "state": _path(state, "state"),
            "memory_limit": _size(memory_limit, "memory_limit"),
        }
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

    @property
    def stats(self) -> SideStats:
        """Counts of the calls so far, and the size of the state."""
        return _stats(self._side.stats())

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


def _options(
    *,
    left_key: Columns,
    foreign_key: Columns,
    right_key: Columns,
    how: str,
    on_null_key: str,
    state: Path | None,
    memory_limit: Size,
) -> dict[str, Any]:
    return {
        "left_key": _names(left_key, "left_key"),
        "foreign_key": _names(foreign_key, "foreign_key"),
        "right_key": _names(right_key, "right_key"),
        "how": _choice(how, "how"),
        "on_null_key": _choice(on_null_key, "on_null_key"),
        "state": None if state is None else _path(state, "state"),
        "memory_limit": _size(memory_limit, "memory_limit"),
    }
