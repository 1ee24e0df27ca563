"""What a table says of itself: version, order, live files, history; and how it is opened.

    path ──▶ is there a log? ─ yes ─▶ what is given is compared with its properties
                    └────── no ──▶ what is given waits for the first append

Invariants: order, partitions, rule for rows with one key and retention are properties of the table,
so that every door does the same. What is given and differs is refused by its name.
Not here: rows (`_table`); the log (`rust/delta`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, SupportsIndex
from urllib.parse import unquote

from plait._checks import (
    Aggregate,
    Aggregates,
    OnDuplicate,
    Path,
    StorageOptions,
    VersionBy,
    _count,
    _names,
    _path,
)
from plait._logs.columns import Expected, LogColumns, columns_of
from plait._logs.delta import DUPLICATES, ORDER, RULES, DeltaLog, Intent, LiveFile, Snapshot
from plait._rules import Rules
from plait._table_new import lost_rows, open_folder
from plait._table_properties import RETENTION, differences, is_keep_all, properties_of, rules_of
from plait._table_reports import DataFile, Version
from plait.errors import InvalidArgument, SourceNotFound
from plait.order import SortBy
from plait.table._calls import is_delta

__all__ = ["TableHandle"]


class TableHandle:
    """A table that is open: what it says of itself."""

    def __init__(
        self,
        path: Path,
        *,
        sort_by: SortBy | None,
        partition_by: Iterable[str] | None,
        on_duplicate: OnDuplicate | None,
        version_by: VersionBy | None,
        replace_columns: Iterable[str],
        aggregate: Aggregates | None,
        retention: str | float | None,
        storage_options: StorageOptions | None,
    ) -> None:
        self.path = _path(path, "path")
        if self.path.startswith("file://"):
            self.path = unquote(self.path.removeprefix("file://"))
        self._storage_options = storage_options
        of_columns = {
            "version_by": version_by,
            "replace_columns": replace_columns,
            "aggregate": aggregate,
        }
        rules = Rules.of(on_duplicate, of_columns)
        self._given = properties_of(sort_by, rules, retention)
        # None says nothing: a table that is there says it.
        self._given_partitions = (
            None if partition_by is None else _names(partition_by, "partition_by")
        )
        self._opened: DeltaLog | None = None
        snapshot = self._snapshot()
        if snapshot is None:
            is_delta(self.path, storage_options)
            if ORDER not in self._given:
                raise InvalidArgument.of(
                    "a new table needs an order",
                    got=f"no table at `{self.path}`",
                    hint='give sort_by="name, ts", or the path of a table that is there',
                )
        else:
            self._compare(snapshot)
        if snapshot is None or ORDER not in snapshot.properties:
            # Nothing else says what goes with the rule.
            rules.check()

    @property
    def version(self) -> int | None:
        """The newest version; `None` before the first append."""
        snapshot = self._snapshot()
        return None if snapshot is None else snapshot.version

    @property
    def sort_by(self) -> str | None:
        """The order of the files, as text; `None` if the table does not say it."""
        return self._properties().get(ORDER)

    @property
    def on_duplicate(self) -> str:
        """Which of several rows with one key stays, or how they are combined."""
        return self._properties().get(DUPLICATES, "keep_all")

    @property
    def version_by(self) -> str | dict[str, list[str]] | None:
        """The version column of rows, or version columns and the columns that go by each."""
        found: str | dict[str, list[str]] | None = self._rules.options()["version_by"]
        return found

    @property
    def replace_columns(self) -> tuple[str, ...]:
        """Columns that take the value of the last row even if it is null."""
        return tuple(self._rules.options()["replace_columns"])

    @property
    def aggregate(self) -> dict[str, Aggregate]:
        """The functions of columns."""
        return dict(self._rules.options()["aggregate"])

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns of the folders that files lie in, outermost first."""
        return tuple(self._partitions(self._snapshot()))

    def files(self, *, version: SupportsIndex | None = None) -> tuple[DataFile, ...]:
        """The live files, from the oldest rows to the newest.

        Args:
            version: The version; the newest by default.

        Raises:
            SourceNotFound: There is no such version.

        Example:
            >>> import pyarrow as pa
            >>> table = Table("metrics", sort_by="k")
            >>> done = table.append(pa.table({"k": [2, 1]}))
            >>> [file.rows for file in table.files()]
            [2]
        """
        if self.version is None:
            return ()
        return tuple(
            DataFile(file.name, file.bytes, file.rows, file.partition, file.version)
            for file in self._live(version)
        )

    def history(self, limit: SupportsIndex | None = None) -> list[Version]:
        """What was committed, the newest first, as far as the log goes back.

        Args:
            limit: Number of versions, at most.

        Example:
            >>> import pyarrow as pa
            >>> table = Table("metrics", sort_by="k")
            >>> done = table.append(pa.table({"k": [2, 1]}))
            >>> [(v.version, v.operation, v.files_added) for v in table.history()]
            [(0, 'WRITE', 1)]
        """
        if self.version is None:
            return []
        return [Version.of(entry) for entry in self._log.history(_count(limit, "limit"))]

    def __repr__(self) -> str:
        return f"<plait.Table `{self.path}`, version {self.version}>"

    # -- behind it ----------------------------------------------------------------------------

    @property
    def _log(self) -> DeltaLog:
        if self._opened is None:
            self._opened = DeltaLog(self.path, self._storage_options)
        return self._opened

    def _snapshot(self, intent: Intent = "read", apps: tuple[str, ...] = ()) -> Snapshot | None:
        """The newest version; `None` if there is no table yet."""
        try:
            return self._log.snapshot(intent, apps=apps)
        except SourceNotFound:
            return None

    def _begin(self) -> None:
        """Makes room for a table, unless rows of the folder would be lost by that."""
        open_folder(self.path, self._storage_options)
        lost = lost_rows(self._log, self._storage_options)
        # Somebody else may have made it since, and written files.
        if lost is not None and self._snapshot() is None:
            raise lost
        self._log.begin()

    def _needed(self, intent: Intent) -> Snapshot:
        snapshot = self._snapshot(intent)
        if snapshot is None:
            raise SourceNotFound.of(
                "the table has no version yet", got=f"`{self.path}`", hint="append rows first"
            )
        return snapshot

    def _properties(self) -> dict[str, str]:
        """The table's properties, and what is given where it does not say."""
        return self._said(self._snapshot())

    def _said(self, snapshot: Snapshot | None) -> dict[str, str]:
        """The same of a version."""
        if snapshot is None:
            return self._given
        said = snapshot.properties
        # What goes with a rule is said where that is.
        left_out = RULES if DUPLICATES in said else None
        return {**{n: text for n, text in self._given.items() if n != left_out}, **said}

    @property
    def _rules(self) -> Rules:
        """What becomes of several rows with one key."""
        return self._rules_at(self._snapshot())

    def _rules_at(self, snapshot: Snapshot | None) -> Rules:
        schema = None if snapshot is None else snapshot.schema
        return rules_of(self._said(snapshot), self.path, schema)

    def _partitions(self, snapshot: Snapshot | None) -> list[str]:
        return self._given_partitions or [] if snapshot is None else snapshot.partition_columns

    def _compare(self, snapshot: Snapshot) -> None:
        """Refuses what differs from the table, and an order that it does not keep."""
        given_columns, columns = self._given_partitions, snapshot.partition_columns
        if given_columns is not None and given_columns != columns:
            raise InvalidArgument.of(
                "`partition_by` is not that of the table",
                got=f"`{', '.join(given_columns)}`, the table has `{', '.join(columns)}`",
                hint="leave `partition_by` out",
            )
        for name, error in differences(self._given, snapshot.properties, self.path):
            # Of a table of others, order and rules are this handle's alone.
            if name == RETENTION or ORDER in snapshot.properties:
                raise error

    @property
    def _order_of_files(self) -> Literal["known", "commits"]:
        return "known" if is_keep_all(self._properties()) else "commits"

    def _live(self, version: SupportsIndex | None) -> list[LiveFile]:
        at = _count(version, "version")
        return self._log.files("read", version=at, order=self._order_of_files, deleted="list")

    def _columns(
        self, snapshot: Snapshot, files: list[LiveFile], expected: Expected | None = None
    ) -> LogColumns:
        """What the log says of the columns of files; `expected`, if they are not all files."""
        located = {self._log.location(file.name): file for file in files}
        return columns_of(self.path, snapshot, located, expected)
