"""`ForeignKeyJoin`: two tables that change, and the changes of their join.

j = plait.ForeignKeyJoin(left_key="order_id", foreign_key="customer_id", right_key="customer_id")
changes = j.apply(left=orders, right=customers)
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from plait import _native
from plait._checks import Path, _count, _flag, _path, _size, _validate
from plait._svg import related
from plait._text import Page, human_bytes
from plait.errors import InvalidArgument
from plait.sizes import Size

if TYPE_CHECKING:
    from typing_extensions import Self

    from plait._streams import ArrowBatch, ArrowStream

# Names of key columns, one or several.
Columns = str | Iterable[str]
# The foreign key of a batch of left changes, as an array of any Arrow library.
ForeignKey = Callable[[_native.Batch], object]

# As many rows as a batch of joined rows has, as a batch or table of any Arrow library.
RowMaker = Callable[[_native.Batch], object]

# The options that take one of a few values, the default first.
CHOICES: dict[str, tuple[str, ...]] = {
    "how": ("inner", "left"),
    "on_null_key": ("error", "drop"),
}

# Column of foreign keys that a callable makes.
_COMPUTED = "_foreign_key"


@dataclass(frozen=True)
class JoinStats:
    """Counts of the steps of a join, and the size of its state.

    Attributes:
        step: The last step, `None` before the first.
        steps: Steps that were applied.
        left_changes: Left changes that were passed.
        right_changes: Right changes that were passed.
        folded: Changes that a later one of the same step and key replaced.
        null_keys: Changes without a key, which were skipped.
        stale: Changes that were skipped because the state is newer, by `_seq`.
        merges: How often runs of the state were merged.
        rows_merged: Rows of those runs.
        left_runs: Rows of each run of left rows, oldest first, those that delete among them.
        place_runs: The same of the index from primary keys to foreign keys.
        right_runs: The same of right rows.
        memory_bytes: Bytes of the state in memory.
        cache_hits: Blocks of files that were found in memory.
        cache_misses: Blocks that were read.
    """

    step: int | None
    steps: int
    left_changes: int
    right_changes: int
    folded: int
    null_keys: int
    stale: int
    merges: int
    rows_merged: int
    left_runs: tuple[int, ...]
    place_runs: tuple[int, ...]
    right_runs: tuple[int, ...]
    memory_bytes: int
    cache_hits: int
    cache_misses: int


class ForeignKeyJoin:
    """Joins two changing tables, many left rows to one right row, and returns the changes.

    Changes are record batches with the key and value columns of a table, and these: `_op` is
    `"upsert"` (or `"insert"`, `"update"`) or `"delete"`, which needs the key alone; without `_op`
    all are upserts. `_seq`, int64, orders the changes of a key where the source does not: one that
    is older than what the state has is left out and counted.

    A step gives exact changes: what differs between the join before and after, one row for each
    primary key. `_op` is `"insert"`, `"update"` or `"delete"`; then follow the left columns and the
    right columns without the right key, one whose name is taken with the suffix `_right`. A delete
    has the primary key only. A left row whose foreign key is null joins nothing.

    Args:
        left_key: Columns that identify a left row, the primary key.
        foreign_key: Columns of the left table that hold a right key. Or a callable that takes a
            batch of left changes and returns an array of foreign keys.
        right_key: Columns that identify a right row.
        how: Left rows with a right row (inner), or all left rows (left).
        columns: What the result has; all by default. Names, or a mapping of new names to those it
            would have. The primary key must be among them.
        joiner: Makes the rows of the result, in place of `columns`: a callable that takes a batch
            of joined rows, with all columns the result would have, and returns as many rows in the
            same order, with columns of its own. The primary key stays in front of them. Where it
            makes the same of the old values and the new ones, nothing changes.
        before: Whether changes have the old values, in columns `before.*`.
        on_null_key: Whether a change without a key is an error, or left out and counted.
        left_schema: Columns of the left changes; those of the first changes by default. Needed, as
            anything with `__arrow_c_schema__`, where only one side changes in the first step.
        right_schema: The same of the right changes.
        state: A local folder that keeps the state, made if absent; `None` keeps it in memory. A
            folder with a state goes on from its last step.
        validate: How much of changes is checked: `"basic"`, what memory safety relies on (offsets,
            views, keys, lengths), or `"full"`, also every value, as Arrow itself does.
        batch_rows: Rows of a batch of changes, at most.
        memory_limit: Memory to stay within, such as `"4G"`. State in a folder may be larger.
        threads: Number of threads; all processors by default. Rows and their order do not depend on
            it. They exist only while something is done.

    Raises:
        UnknownColumn: A key, or one of `columns`, is not there.
        UnsupportedKey: A key column has a type without order.
        InvalidArgument: An option is invalid, or the state is that of another join.
        StorageError: The state cannot be written, or another process has it open.

    Example:
        >>> import pyarrow as pa
        >>> j = ForeignKeyJoin(left_key="order", foreign_key="customer", right_key="customer")
        >>> orders = pa.table({"order": [1, 2], "customer": [7, 8], "amount": [10, 20]})
        >>> customers = pa.table({"customer": [7], "name": ["Ada"]})
        >>> pa.table(j.apply(left=orders, right=customers)).to_pylist()
        [{'_op': 'insert', 'order': 1, 'customer': 7, 'amount': 10, 'name': 'Ada'}]
        >>> gone = pa.table({"customer": [7], "_op": ["delete"]})
        >>> pa.table(j.apply(right=gone)).to_pylist()
        [{'_op': 'delete', 'order': 1, 'customer': None, 'amount': None, 'name': None}]
    """

    def __init__(
        self,
        *,
        left_key: Columns,
        foreign_key: Columns | ForeignKey,
        right_key: Columns,
        how: Literal["inner", "left"] = "inner",
        columns: Mapping[str, str] | Iterable[str] | None = None,
        joiner: RowMaker | None = None,
        before: bool = False,
        on_null_key: Literal["error", "drop"] = "error",
        left_schema: object = None,
        right_schema: object = None,
        state: Path | None = None,
        validate: Literal["basic", "full"] = "basic",
        batch_rows: SupportsIndex = 32_768,
        memory_limit: Size = "512MB",
        threads: SupportsIndex | None = None,
    ) -> None:
        """Makes the join."""
        call = foreign_key if callable(foreign_key) else None
        if joiner is not None and columns is not None:
            hint = "let the joiner make the columns"
            raise InvalidArgument.of("`joiner` and `columns` exclude each other", hint=hint)
        options = {
            "left_key": _names(left_key, "left_key"),
            "foreign_key": [_COMPUTED]
            if callable(foreign_key)
            else _names(foreign_key, "foreign_key"),
            "is_computed": call is not None,
            "right_key": _names(right_key, "right_key"),
            "how": _choice(how, "how"),
            "columns": None if columns is None else _columns(columns),
            "before": _flag(before, "before"),
            "has_joiner": _maker(joiner),
            "on_null_key": _choice(on_null_key, "on_null_key"),
            "state": None if state is None else _path(state, "state"),
            "batch_rows": operator.index(batch_rows),
            "memory_limit": _size(memory_limit, "memory_limit"),
            "threads": _count(threads, "threads"),
        }
        self._join = _native.ForeignKeyJoin(
            json.dumps(options),
            call,
            left_schema,
            right_schema,
            joiner,
            _validate(validate),
        )

    def apply(
        self,
        left: ArrowStream | ArrowBatch | Iterable[ArrowBatch] | None = None,
        right: ArrowStream | ArrowBatch | Iterable[ArrowBatch] | None = None,
        *,
        step: SupportsIndex | None = None,
    ) -> _native.Stream:
        """Applies changes of both tables as one step.

        The step is committed when this returns. The changes are computed while they are read, also
        after later steps. Of several changes of one key, the last applies.

        Args:
            left: Changes of the left table, as anything with record batches.
            right: Changes of the right table.
            step: A number for the step, greater than that of the last; by default the next, from 0
                on. The number of the last step returns the changes of that step again, and ignores
                `left` and `right`.

        Returns:
            The changes of the joined table.

        Raises:
            NullKey: A change has no key. The state is what it was, as after all errors.
            SchemaDrift: Columns are not those of the first changes.
            InvalidArgument: An operation or sequence number is invalid, `step` is that of an
                older step, or the columns of one side are not known yet.
            MemoryLimitExceeded: The state would need more than `memory_limit`.
        """
        number = None if step is None else operator.index(step)
        return self._join.apply(left, right, number)

    def table(self) -> _native.Stream:
        """The current joined table, by foreign key, then primary key."""
        return self._join.table()

    @classmethod
    def restore(
        cls,
        state: Path,
        *,
        foreign_key: ForeignKey | None = None,
        joiner: RowMaker | None = None,
        validate: Literal["basic", "full"] = "basic",
        batch_rows: SupportsIndex = 32_768,
        memory_limit: Size = "512MB",
        threads: SupportsIndex | None = None,
    ) -> Self:
        """Continues the join whose state, or a snapshot of it, is in a folder.

        Args:
            state: The folder, which keeps the state from now on.
            foreign_key: The callable, if it was one.
            joiner: As for a new join; it may be another than before, in place of `columns`.
            validate: As for a new join.
            batch_rows: As for a new join.
            memory_limit: As for a new join.
            threads: As for a new join.

        Raises:
            SourceNotFound: There is no state in the folder.
            CorruptSource: The state is damaged.
            Unsupported: Another version of Plait wrote it.
            StorageError: Another process has it open.
        """
        options = {
            "has_joiner": _maker(joiner),
            "state": _path(state, "state"),
            "batch_rows": operator.index(batch_rows),
            "memory_limit": _size(memory_limit, "memory_limit"),
            "threads": _count(threads, "threads"),
        }
        join = cls.__new__(cls)
        text, validated = json.dumps(options), _validate(validate)
        made = _native.ForeignKeyJoin.restore(text, foreign_key, joiner, validated)
        join._join = made  # noqa: SLF001 -- its own, made in another way
        return join

    def snapshot(self, folder: Path) -> str:
        """Writes the state to another folder, for `restore`, and returns that folder.

        Files of a state in a folder get a second name where the file system allows it, which costs
        nothing; elsewhere, and from memory, they are written.

        Raises:
            OutputExists: The folder holds a state.
            StorageError: It cannot be written.
        """
        location = _path(folder, "folder")
        self._join.snapshot(location)
        return location

    def close(self) -> None:
        """Closes the state, so that another process may open its folder. Steps are committed."""
        self._join.close()

    def __enter__(self) -> Self:
        """The join itself; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the join."""
        self.close()

    def explain(self) -> str:
        """The keys of the join and the contents of the state, as text."""
        options: dict[str, Any] = json.loads(self._join.options())
        stats = self.stats
        keys = {name: ", ".join(options[name]) for name in ("left_key", "foreign_key", "right_key")}
        if options["is_computed"]:
            keys["foreign_key"] = "computed"
        runs = [
            f"{name:6} {sum(rows):>13,} rows in {_runs(len(rows))}"
            + (f": {counts}" if rows else "")
            for name, rows in (
                ("left", stats.left_runs),
                ("place", stats.place_runs),
                ("right", stats.right_runs),
            )
            for counts in (" ".join(f"{count:,}" for count in rows),)
        ]
        head = (
            f"{options['how']} join: left ({keys['left_key']}), {keys['foreign_key']} -> "
            f"right ({keys['right_key']})"
        )
        where = options["state"] or "memory"
        last = "no step yet" if stats.step is None else f"last step {stats.step}"
        return "\n".join([head, f"state in {where}, {last}", *runs])

    def _repr_html_(self) -> str:
        options: dict[str, Any] = json.loads(self._join.options())
        stats = self.stats
        foreign = "computed" if options["is_computed"] else ", ".join(options["foreign_key"])

        def held(runs: tuple[int, ...]) -> str:
            return f"{sum(runs):,} rows in {_runs(len(runs))}"

        left = ("left", ", ".join(options["left_key"]), held(stats.left_runs))
        right = ("right", ", ".join(options["right_key"]), held(stats.right_runs))
        return Page(
            title=f"{options['how']} join of left and right by {foreign}",
            svg=related(left, foreign, right),
            facts=(
                ("state", options["state"] or f"in memory, {human_bytes(stats.memory_bytes)}"),
                ("steps", f"{stats.steps:,}, the last is {stats.step}" if stats.steps else "none"),
                ("changes", f"{stats.left_changes:,} left, {stats.right_changes:,} right"),
                ("places", held(stats.place_runs)),
                ("runs merged", f"{stats.merges:,}, {stats.rows_merged:,} rows"),
            ),
        ).html()

    def compact(self) -> None:
        """Merges the sorted runs of the state, except those of the last step."""
        self._join.compact()

    @property
    def step(self) -> int | None:
        """The last step, `None` before the first."""
        return self._join.step

    @property
    def schema(self) -> _native.Schema | None:
        """The schema of changes, `None` before the columns of both sides are known."""
        return self._join.schema

    @property
    def stats(self) -> JoinStats:
        """Counts of the steps so far, and the size of the state."""
        found: dict[str, Any] = json.loads(self._join.stats())
        values: dict[str, Any] = {}
        for name, value in found.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return JoinStats(**values)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def _names(value: object, option: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    # A mapping would be its keys alone, and a set has no order.
    if isinstance(names, Iterable) and not isinstance(names, bytes | Mapping | AbstractSet):
        names = list(names)
        if names and all(isinstance(name, str) for name in names):
            return names
    raise InvalidArgument.of(
        f"`{option}` names no columns", got=f"`{value!r}`", hint="give a name or a list of names"
    )


def _columns(value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [(str(name), str(of)) for name, of in value.items()]
    return [(name, name) for name in _names(value, "columns")]


def _maker(joiner: object) -> bool:
    if joiner is None or callable(joiner):
        return joiner is not None
    raise InvalidArgument.of(
        "`joiner` is not callable", got=f"`{joiner!r}`", hint="give a function of a batch of rows"
    )


def _choice(value: str, option: str) -> str:
    if value in CHOICES[option]:
        return value
    choices = ", ".join(map(repr, CHOICES[option]))
    raise InvalidArgument.of(
        f"`{option}` has no such choice", got=f"`{value!r}`", hint=f"give one of: {choices}"
    )
