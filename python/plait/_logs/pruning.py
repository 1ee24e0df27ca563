"""Files of a table that a read need not open: what the log says of partitions and of values.

    where, order, rule ──▶ log ──▶ files that may have rows ──▶ read ──┐
                            └────▶ all files ◀── columns are absent? ──┘

Invariants: the rows and the columns are those of a read of all files. Where rows replace rows, only
conditions on sort columns and partition columns leave out files: others may hold for a row that is
replaced. Columns that only files have that were left out make the read begin again.
Not here: what the log says (`rust/delta`); footers, pages and rows (the engine).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from plait import _native
from plait._logs.columns import Expected, LogColumns
from plait._logs.delta import DUPLICATES, ORDER, DeltaLog, LiveFile, Snapshot
from plait.errors import UnknownColumn

if TYPE_CHECKING:
    from typing import Literal

    from plait._native import Schema

__all__ = ["Asked", "complete"]


class _Read(Protocol):
    @property
    def schema(self) -> Schema: ...


T = TypeVar("T", bound=_Read)


@dataclass(frozen=True)
class Left:
    """Files that are left of those of a table.

    Attributes:
        files: The files.
        expected: The columns of the table, if files were left out: these may lack some.
    """

    files: list[LiveFile]
    expected: Expected | None = None


@dataclass(frozen=True)
class Asked:
    """Which rows are asked for, and how rows of one key are read.

    Attributes:
        where: The condition, as the engine reads it.
        sort_by: The order; `None`: as the table says.
        on_duplicate: The rule; `None`: as the table says.
        replaces: Whether rows replace others by more than the rule.
        by_ids: Whether columns are read as `Live.schema` has them: of a Delta table whose columns
            have other names in its files.
    """

    where: str | None = None
    sort_by: str | None = None
    on_duplicate: str | None = None
    replaces: bool = False
    by_ids: bool = False

    def files(
        self,
        log: DeltaLog,
        snapshot: Snapshot,
        order: Literal["known", "commits"],
        version: int | None = None,
    ) -> Left:
        """The live files that may have such rows, one at least if there are any."""
        by = snapshot.properties.get(ORDER) if self.sort_by is None else self.sort_by
        if self.where is None or by is None:
            return Left(log.files(version=version, order=order, deleted="list"))
        rule = self.on_duplicate or snapshot.properties.get(DUPLICATES, "keep_all")
        keys = None
        if rule != "keep_all" or self.replaces:
            columns = [names[0] for names, _, _ in _native.sort_columns(by) if len(names) == 1]
            keys = [*columns, *snapshot.partition_columns]
        left, left_out = log.files_with(self.where, keys, version=version, order=order)
        if not left and left_out:
            # The newest has the columns of all others, as a rule.
            left, left_out = (
                log.files(version=version, order=order, deleted="list")[-1:],
                left_out - 1,
            )
        return Left(left, Expected.of(snapshot, left_out) if left_out else None)


def complete(
    read: Callable[[Asked], tuple[T, LogColumns]],
    asked: Asked,
    columns: Sequence[str] | None,
) -> T:
    """Reads what is asked; all files if those that are left lack columns.

    Args:
        read: Reads as asked; gives what logs say of columns, too.
        asked: What is asked.
        columns: The columns that are asked for.
    """
    if asked.where is not None:
        try:
            made, logged = read(asked)
        except UnknownColumn:
            # A file that was left out may have it.
            pass
        else:
            if all(one.are_in(made.schema, columns) for one in logged.expected):
                return made
    return read(replace(asked, where=None))[0]
