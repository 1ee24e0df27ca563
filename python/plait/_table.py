"""`Table`: sorted runs with a log that every engine reads.

    t = plait.Table("metrics", sort_by="name, ts", on_duplicate="keep_last")
    t.append(batches, batch_id="2024-05-01T13")
    t.read(where="name = 'cpu'"); t.compact(); t.expire("7d")

Invariant: a file is live by a commit alone.
Not here: what the table says of itself (`_table_handle`), the log (`rust/delta`), sorting
(`RunWriter`), merging on read (`read`), which files a compaction takes (`plait.table`).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, SupportsIndex

from plait import _native
from plait._checks import (
    Aggregates,
    OnDuplicate,
    Path,
    StorageOptions,
    VersionBy,
    _choice,
    _count,
    _flag,
    _names,
    _time_span,
)
from plait._logs.columns import LogColumns
from plait._logs.delta import ORDER
from plait._logs.pruning import Asked, Left, complete
from plait._native import Stream
from plait._native_call import OnProgress
from plait._read import SortedRead, read_live
from plait._rules import Rules, narrowing
from plait._table_append import app_of, append, fitting, nothing
from plait._table_delete import Deleting, check_condition, delete_once, suffices
from plait._table_handle import TableHandle
from plait._table_maintain import maintained
from plait._table_properties import RETENTION, interval_s, order_of_files
from plait._table_reports import (
    AppendReport,
    DeleteReport,
    TableExpireReport,
    TableVerifyReport,
)
from plait._table_verify import verified
from plait._where import Condition, where_text
from plait.errors import InvalidArgument, SourceNotFound, StorageError
from plait.order import SortBy
from plait.sizes import Size
from plait.table.columns import check_columns
from plait.table.delta import Delta
from plait.table.here import run_here
from plait.table.options import CompactOptions, TableOptions
from plait.table.report import CompactReport
from plait.table.run import compact_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Table"]

# A delete is done again if others replace its files; each time somebody else was quicker.
_ATTEMPTS_MAX = 20
_WAIT_S_MAX = 0.5


class Table(TableHandle):
    """A table of sorted files, in a folder or an object store, with the log of Delta.

    The first `append` makes the table, because its columns are known only then. The arguments are
    compared with the properties of an existing table. A table of another writer has no such
    properties; the arguments then apply to this object alone. Every reader of Delta reads the
    table: deltalake, Polars, Spark. `read` leaves out rows that a later row with the same key
    replaces; other readers see them until a compaction drops them.

    Args:
        path: A folder, or a URL such as `s3://bucket/metrics`.
        sort_by: The order of the files, such as `"name, ts"`. A new table needs it.
        partition_by: Columns of the folders that files lie in, outermost first, such as `["day"]`.
            They come first in the order, so rows with one key are rows of one partition.
        on_duplicate: Which of several rows with one key stays: see `merge`. Rows of a later commit
            are newer. `"keep_all"` by default. `"update"` makes each batch one of partial updates.
            The options of columns that go with it are the table's, too.
        version_by: See `merge`.
        replace_columns: See `merge`.
        aggregate: See `merge`.
        retention: For how long replaced files stay, such as `"7d"`; seven days by default.
        maintain: `"auto"` compacts after an append, where the policy of `compact` selects files
            that have at most sixteen times the bytes of the append, or 64 MB if that is more.
        storage_options: See `merge`.

    Raises:
        InvalidArgument: The table has another order, rule or retention, or other partitions; names
            both.
        ForeignTable: The folder is in a table, or is one of another format.
        Unsupported: The table has a feature of Delta that Plait does not support; names it.

    Example:
        >>> import pyarrow as pa
        >>> table = Table("metrics", sort_by="name", on_duplicate="keep_last")
        >>> table.append(pa.table({"name": ["mem", "cpu"], "value": [1, 2]})).version
        0
        >>> table.append(pa.table({"name": ["cpu"], "value": [3]}), batch_id="b").version
        1
        >>> table.append(pa.table({"name": ["cpu"], "value": [3]}), batch_id="b").rows
        0
        >>> pa.table(table.read()).to_pylist()
        [{'name': 'cpu', 'value': 3}, {'name': 'mem', 'value': 1}]
    """

    def __init__(
        self,
        path: Path,
        *,
        sort_by: SortBy | None = None,
        partition_by: Iterable[str] | None = None,
        on_duplicate: OnDuplicate | None = None,
        version_by: VersionBy | None = None,
        replace_columns: Iterable[str] = (),
        aggregate: Aggregates | None = None,
        retention: str | float | None = None,
        maintain: Literal["none", "auto"] = "none",
        storage_options: StorageOptions | None = None,
    ) -> None:
        super().__init__(
            path,
            sort_by=sort_by,
            partition_by=partition_by,
            on_duplicate=on_duplicate,
            version_by=version_by,
            replace_columns=replace_columns,
            aggregate=aggregate,
            retention=retention,
            storage_options=storage_options,
        )
        self._maintain = _choice(maintain, "maintain")

    # -- what is read -------------------------------------------------------------------------

    def read(
        self,
        *,
        version: SupportsIndex | None = None,
        where: Condition = None,
        columns: Iterable[str] | str | None = None,
        limit: SupportsIndex | None = None,
        reverse: bool = False,
        threads: SupportsIndex | None = None,
        memory_limit: Size = "512MB",
    ) -> SortedRead:
        """Reads the table as one sorted table, lazily; one row of each key, as `on_duplicate` says.

        Args:
            version: An older version, while its files are there; the newest by default.
            where: See `read`.
            columns: See `read`.
            limit: See `read`.
            reverse: See `read`.
            threads: See `read`.
            memory_limit: See `read`.

        Returns:
            The read, of the files that are live now. Partition columns come last in its rows and
            first in its order.

        Raises:
            SourceNotFound: There is no such version, or no row.
            Unsupported: A partition column has a type that is not read.
            PlaitError: As `read`.

        Example:
            >>> import pyarrow as pa
            >>> table = Table("metrics", sort_by="k")
            >>> for keys in ([3, 1], [2]):
            ...     done = table.append(pa.table({"k": keys}))
            >>> pa.table(table.read(where="k > 1"))["k"].to_pylist()
            [2, 3]
            >>> pa.table(table.read(version=0))["k"].to_pylist()
            [1, 3]
        """
        snapshot = self._needed("read")
        at = _count(version, "version")
        order, rules = self.sort_by, self._rules_at(snapshot)
        names = None if columns is None else _names(columns, "columns")

        def of_files(asked: Asked) -> tuple[SortedRead, LogColumns]:
            left = asked.files(self._log, snapshot, self._order_of_files, at)
            if not left.files:
                raise SourceNotFound.of("the table has no rows", got=f"`{self.path}`")
            logged = self._columns(snapshot, left.files, left.expected)
            files = [self._log.location(file.name) for file in left.files]

            def as_told(rules: Rules) -> SortedRead:
                return read_live(
                    files,
                    logged,
                    sort_by=order,
                    missing_keys="null",
                    where=text,
                    columns=names,
                    limit=limit,
                    reverse=reverse,
                    threads=threads,
                    memory_limit=memory_limit,
                    storage_options=self._storage_options,
                    **rules.options(),
                )

            return narrowing(as_told, rules), logged

        text = where_text(where)
        return complete(of_files, Asked(text, order, rules.on_duplicate), names)

    def verify(self) -> TableVerifyReport:
        """Checks that every live file is there, as long as the log says, and in order.

        Every key is read.

        Example:
            >>> import pyarrow as pa
            >>> table = Table("metrics", sort_by="k")
            >>> done = table.append(pa.table({"k": [2, 1]}))
            >>> table.verify().ok
            True
        """
        snapshot = self._needed("read")
        order = order_of_files(self.sort_by, snapshot.partition_columns)
        return verified(self._log, self._live(None), snapshot.version, order, self._storage_options)

    # -- what changes it ----------------------------------------------------------------------

    def append(
        self,
        batches: object,
        *,
        batch_id: str | None = None,
        threads: SupportsIndex | None = None,
        memory_limit: Size = "512MB",
        progress: OnProgress | None = None,
    ) -> AppendReport:
        """Adds rows in any order, in one commit.

        Rows are sorted within `memory_limit`. When the call returns, they are durable and visible
        to every reader. If it is interrupted before the
        commit, no row is visible.

        Args:
            batches: A record batch, table, stream or data frame of any Arrow library, or an
                iterable of record batches.
            batch_id: A name for the batch. A batch of this name is added only once, also by several
                writers. The log keeps the names.
            threads: See `merge`.
            memory_limit: See `RunWriter`.
            progress: See `RunWriter.flush`.

        Raises:
            SchemaConflict: A column is not in the table, or of another type.
            Unsupported: Delta has no such type, or the table has constraints.
            UnknownColumn: A sort column is not there.
            StorageError: The rows could not be written or committed.

        Example:
            >>> import pyarrow as pa
            >>> table = Table("metrics", sort_by="k")
            >>> print(table.append(pa.table({"k": [3, 1, 2]})).rows)
            3
        """
        if batch_id is not None and (not isinstance(batch_id, str) or not batch_id):
            raise InvalidArgument.of(
                "`batch_id` is no name", got=f"`{batch_id!r}`", hint='give a text such as "2024-05"'
            )
        source = Stream(batches)
        schema_text = _native.delta_schema(source.schema)
        snapshot = self._snapshot("append", app_of(batch_id))
        if snapshot is not None:
            self._compare(snapshot)
            if snapshot.batches:
                return nothing(self.path, snapshot.version)
            check_columns(json.loads(schema_text), snapshot.schema, "the batch")
        properties = self._said(snapshot)
        if ORDER not in properties:
            what = "the table does not say its order"
            raise InvalidArgument.of(what, hint="open it with sort_by")
        parts, is_new = self._partitions(snapshot), snapshot is None
        rules = self._rules_at(snapshot)
        rules = fitting(rules, source, properties[ORDER], parts, is_new=is_new)
        if is_new:
            self._begin()
        report = append(
            self._log,
            source,
            schema_text,
            snapshot,
            properties,
            rules=rules,
            partition_by=parts,
            batch_id=batch_id,
            threads=threads,
            memory_limit=memory_limit,
            progress=progress,
            storage_options=self._storage_options,
        )
        if snapshot is None and report.version is not None:
            # Somebody else may have made it, with other options.
            self._compare(self._needed("read"))
        if self._maintain == "auto" and report.files:
            options = CompactOptions(
                sort_by=self.sort_by,
                memory_limit=memory_limit,
                storage_options=self._storage_options,
            )
            return maintained(self._log, report, options, threads)
        return report

    def delete(self, where: Condition) -> DeleteReport:
        """Deletes the rows for which a condition on sort columns and partition columns is true.

        Files that have only such rows go as a whole; those with others are rewritten without them.
        Of a condition on partition columns alone no row is read.
        Rows that others append meanwhile stay. Where no rows are dropped on reading
        (`on_duplicate="keep_all"`), the condition may name any column: otherwise older rows of the
        same key would come back.

        Args:
            where: As in `read`, such as `"ts < '2024-01-01'"`.

        Raises:
            InvalidArgument: There is no condition, or it names other columns.
            Unsupported: The table takes no deletes.
            StorageError: Others replaced its files again and again.

        Example:
            >>> import pyarrow as pa
            >>> table = Table("metrics", sort_by="k")
            >>> done = table.append(pa.table({"k": [1, 2, 3]}))
            >>> table.delete("k < 3").rows
            2
            >>> pa.table(table.read())["k"].to_pylist()
            [3]
        """
        condition = where_text(where)
        if not condition:
            raise InvalidArgument.of("`where` is missing", hint="give \"ts < '2024-01-01'\"")
        for attempt in range(_ATTEMPTS_MAX):
            snapshot = self._needed("delete")
            if self.on_duplicate != "keep_all":
                check_condition(condition, self.sort_by, snapshot.partition_columns)
            left = Asked(condition, self.sort_by, "keep_all").files(
                self._log, snapshot, self._order_of_files
            )
            columns = self._columns(snapshot, left.files)
            how = Deleting(condition, self.sort_by, columns, self._storage_options)
            if not suffices(self._log, left, how):
                left = Left(self._live(None))
                how = replace(how, columns=self._columns(snapshot, left.files))
            report = delete_once(self._log, left.files, snapshot, how)
            if report is not None:
                return report
            time.sleep(random.uniform(0, min(0.01 * 2**attempt, _WAIT_S_MAX)))  # noqa: S311
        raise StorageError.of(
            "others replace the files that have the rows",
            got=f"{_ATTEMPTS_MAX} times at `{self.path}`",
            hint="delete when less is compacted; nothing was changed",
        )

    def compact(
        self,
        *,
        threads: SupportsIndex | None = None,
        progress: OnProgress | None = None,
        **options: Unpack[TableOptions],
    ) -> CompactReport:
        """Merges files that a policy selects; of rows with one key, one stays.

        The result of `read` does not change, and neither do older versions. An output is as new as
        the newest file that it replaces.

        Args:
            threads: See `merge`.
            progress: See `compact`.
            **options: Those of `plait.table.compact_delta`, as keywords.

        Example:
            >>> import pyarrow as pa
            >>> table = Table("metrics", sort_by="k")
            >>> for keys in ([3, 1], [2]):
            ...     done = table.append(pa.table({"k": keys}))
            >>> len(table.compact().groups), len(table.files())
            (1, 1)
        """
        if options.get("storage_options") is not None:
            raise InvalidArgument.of("`storage_options` are those of the table")
        options["storage_options"] = self._storage_options
        options.setdefault("sort_by", self.sort_by)
        given = CompactOptions(**options)
        self._needed("rewrite")
        table = Delta(self._log.root, self._storage_options, guard=True)
        return compact_table(table, given, run_here(given, threads), progress=progress)

    def expire(
        self, retention: str | float | None = None, *, yes: bool = True
    ) -> TableExpireReport:
        """Removes data files that no version inside the retention needs, and the log of older ones.

        Files in no commit stay for at least a day, because their writer may still be running.

        Args:
            retention: How long ago a file must have been replaced, such as `"7d"`; that of the
                table by default. Versions that need removed files cannot be read.
            yes: Whether to remove them; otherwise the report says what would be removed.

        Example:
            >>> import pyarrow as pa
            >>> table = Table("metrics", sort_by="k")
            >>> for keys in ([3, 1], [2]):
            ...     done = table.append(pa.table({"k": keys}))
            >>> done = table.compact()
            >>> len(table.expire().removed), len(table.expire(0).removed)
            (0, 2)
        """
        _flag(yes, "yes")
        snapshot = self._needed("rewrite")
        if retention is None:
            seconds = interval_s(snapshot.properties.get(RETENTION))
        else:
            seconds = _time_span(retention, "retention")
        done = self._log.clean(seconds, dry_run=not yes)
        return TableExpireReport(
            table=self.path,
            dry_run=not yes,
            removed=tuple(done["removed"]),
            bytes=done["bytes"],
            log_removed=tuple(done["log_removed"]),
        )
