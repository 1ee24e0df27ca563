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

from plait._checks import OnDuplicate, Path, StorageOptions, _count, _names, _path
from plait._logs.columns import Expected, LogColumns, columns_of
from plait._logs.delta import DUPLICATES, ORDER, DeltaLog, Intent, LiveFile, Snapshot
from plait._table_new import lost_rows, open_folder
from plait._table_properties import OPTIONS, RETENTION, is_same_order, properties_of
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
        retention: str | float | None,
        storage_options: StorageOptions | None,
    ) -> None:
        self.path = _path(path, "path")
        if self.path.startswith("file://"):
            self.path = unquote(self.path.removeprefix("file://"))
        self._storage_options = storage_options
        self._given = properties_of(sort_by, on_duplicate, retention)
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
        """Which of several rows with one key stays."""
        return self._properties().get(DUPLICATES, "keep_all")

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
        snapshot = self._snapshot()
        return self._given if snapshot is None else {**self._given, **snapshot.properties}

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
        for name, given in self._given.items():
            said = snapshot.properties.get(name)
            option = OPTIONS[name]
            if said is None and name == DUPLICATES and given == "keep_all":
                continue
            if name != RETENTION and ORDER not in snapshot.properties:
                # A table of others: order and rule are this handle's alone.
                continue
            if said != given and not (name == ORDER and is_same_order(said, given)):
                raise InvalidArgument.of(
                    f"`{option}` is not that of the table",
                    got=f"`{given}`, the table has `{said}`",
                    hint=f"leave `{option}` out",
                )

    @property
    def _order_of_files(self) -> Literal["known", "commits"]:
        return "known" if self.on_duplicate == "keep_all" else "commits"

    def _live(self, version: SupportsIndex | None) -> list[LiveFile]:
        at = _count(version, "version")
        return self._log.files("read", version=at, order=self._order_of_files, deleted="list")

    def _columns(
        self, snapshot: Snapshot, files: list[LiveFile], expected: Expected | None = None
    ) -> LogColumns:
        """What the log says of the columns of files; `expected`, if they are not all files."""
        located = {self._log.location(file.name): file for file in files}
        return columns_of(self.path, snapshot, located, expected)
