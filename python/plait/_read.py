"""Many sorted files as one sorted table, read lazily.

    rows = plait.read("runs/*.parquet", where="name = 'cpu' AND ts >= '2024-05-01'", limit=100)
    for batch in rows: ...

Not here: which rows and pages are read (the engine); conditions of other libraries (`_where`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from plait import _native
from plait._checks import (
    Aggregates,
    OnDuplicate,
    Path,
    Paths,
    StorageOptions,
    VersionBy,
    _aggregates,
    _choice,
    _count,
    _flag,
    _names,
    _path,
    _paths,
    _size,
    _text,
    _version_by,
)
from plait._logs.columns import LogColumns
from plait._logs.pruning import Asked, complete
from plait._native import Batch, Schema, Stream
from plait._native_call import _reach
from plait._notebook import schema_html
from plait._now import at_moment, moment
from plait._observe import watch, watched
from plait._plan import Plan, Task
from plait._read_report import FilesLeft, ReadPlan, ReadStats
from plait._tables import Ordered, with_rules
from plait._where import Condition, where_text
from plait.errors import InvalidArgument, Unsupported
from plait.order import SortBy, sort_text
from plait.sizes import Size

if TYPE_CHECKING:
    import polars as pl
    from typing_extensions import CapsuleType


class SortedRead:
    """Rows of many sorted files in one order; made by `read`. It can be read any number of times.

    Every library that reads Arrow streams reads it: `pa.table(rows)`, `pl.DataFrame(rows)`,
    `duckdb.sql("FROM rows")`.
    """

    def __init__(self, native: _native.SortedRead, again: _Again) -> None:
        self._native = native
        self._again = again
        self._counted = native

    def follow(self, read: SortedRead) -> None:
        """Reports the counts of `read`, a narrower read of the same files, in `stats`."""
        self._counted = read._native

    @property
    def schema(self) -> Schema:
        """The schema of every batch."""
        return self._native.schema

    @property
    def stats(self) -> ReadStats:
        """What the last read did so far; zeros before the first."""
        return ReadStats(**json.loads(self._counted.stats()))

    def explain(self) -> ReadPlan:
        """What a read may need, by footers and indexes: files, row groups, pages, rows.

        Raises:
            CorruptSource: An index is damaged.
        """
        said = json.loads(self._native.plan())
        left_out = self._again.left_out
        said |= {name: said[name] + left_out for name in ("files", "files_skipped")}
        return ReadPlan(**said)

    def to_batches(self) -> Stream:
        """The batches, from the first row on: a stream that can be read once and closed.

        Raises:
            UnsortedSource: A file is not in the order.
            CorruptSource: A file is damaged; names file, column and offset.
        """
        self._counted = self._native
        return watch("read", self._native.batches())

    def where(self, condition: Condition) -> SortedRead:
        """The same read with a further condition. The files are not opened again.

        Args:
            condition: As `where` of `read`.

        Raises:
            InvalidArgument: The condition cannot be parsed; says where.
            UnknownColumn: A column is in no file.
            Unsupported: An expression of another library is no conjunction of such conditions.

        Example:
            >>> import pyarrow as pa, pyarrow.parquet as pq
            >>> pq.write_table(pa.table({"k": [1, 2, 3]}), "a.parquet")
            >>> rows = read("a.parquet", sort_by="k")
            >>> [rows.where(f"k = {key}").count() for key in (2, 9)]
            [1, 0]
        """
        return self._again(where=where_text(condition))

    def count(self) -> int:
        """The number of rows. Reads only the columns that the conditions and the order need.

        Example:
            >>> import pyarrow as pa, pyarrow.parquet as pq
            >>> pq.write_table(pa.table({"k": [1, 2, 3]}), "a.parquet")
            >>> read("a.parquet", sort_by="k", where="k > 1").count()
            2
        """
        counted = self._again(columns=[])
        self.follow(counted)
        return sum(batch.num_rows for batch in counted.to_batches())

    def to_polars(self) -> pl.LazyFrame:
        """A lazy frame of Polars: its projections, filters and limits reach the files.

        A filter that cannot be expressed as conditions of `where` is applied by Polars.

        Raises:
            Unsupported: Polars is not installed.

        Example:
            >>> import pyarrow as pa, pyarrow.parquet as pq, polars as pl
            >>> pq.write_table(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}), "a.parquet")
            >>> read("a.parquet", sort_by="k").to_polars().filter(pl.col("k") > 1).collect().rows()
            [(2, 'b'), (3, 'c')]
        """
        try:
            from plait._polars import lazy_frame  # noqa: PLC0415 - Polars need not be there
        except ImportError as cause:
            raise Unsupported.of(
                "`to_polars` needs Polars", hint="pip install 'plait[polars]'"
            ) from cause
        return lazy_frame(self, self._again)

    def __arrow_c_stream__(self, requested_schema: object = None) -> CapsuleType:
        return self.to_batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> CapsuleType:
        return self.schema.__arrow_c_schema__()

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.to_batches())

    def __repr__(self) -> str:
        return f"<plait.SortedRead of {self.schema!r}>"

    def _repr_html_(self) -> str:
        lazy = (
            "rows are read as you iterate, or as another library takes them, as often as you like"
        )
        return schema_html("sorted read of", self.schema, lazy)


def files_left(read: SortedRead) -> FilesLeft:
    """The files of a read that may have rows, by their footers and indexes."""
    return FilesLeft(**json.loads(read._native.files_left()))  # noqa: SLF001 - of this module


def has_deleted_rows(read: SortedRead) -> bool:
    """Whether files of a read have deleted rows: read by their names alone, they would be back."""
    return bool(read._again.options.get("deletion_vectors"))  # noqa: SLF001 - see above


def tasks_left(read: SortedRead, plan: Plan) -> list[int]:
    """The indices of the tasks of a plan of a read's files that may have rows."""
    return read._native.tasks_left(plan.to_json())  # noqa: SLF001 - see above


def int96_columns(read: SortedRead) -> list[str]:
    """Columns of a read with timestamps that a file stores in twelve bytes: moments."""
    return read._native.int96_columns()  # noqa: SLF001 - see above


def read_rows(paths: Iterable[str], start: int, end: int, **options: Any) -> SortedRead:  # noqa: ANN401 - passed on
    """Rows `start..end` of files that follow each other; other options are those of `read`."""
    whole = read(list(paths), sort_by=[], **options)
    return whole._again(rows={"start": start, "end": end})  # noqa: SLF001 - see above


def read_live(
    files: Sequence[str],
    logged: LogColumns,
    *,
    storage_options: object,
    **options: Any,  # noqa: ANN401 - passed on
) -> SortedRead:
    """Files of a table with columns that its log alone has; other options are those of `read`."""
    whole = {"sources": list(files), **logged.options(), **_of_rows(options)}
    return _reported(whole, storage_options, logged)


def read_task(
    task: str,
    table_columns: Sequence[tuple[str, str]],
    *,
    storage_options: object,
    **options: Any,  # noqa: ANN401 - passed on
) -> SortedRead:
    """The rows of a task; other options are those of `read`.

    Args:
        task: A task of a plan, as JSON.
        table_columns: The columns of the table whose files the task has, with their types; empty if
            files alone say it.
        storage_options: As in `read`.
        **options: See `read`.
    """
    logged = LogColumns(stored=tuple(table_columns))
    given = {**_of_rows(options), **_OF_PLAN, **logged.options(), "plan": task}
    return _reported(given, storage_options, logged)


def table_columns(read: SortedRead) -> list[tuple[str, str]]:
    """The columns of the table whose files are read; empty if files alone say it."""
    return list(read._again.options.get("table_columns", ()))  # noqa: SLF001 - see above


def _reported(options: dict[str, Any], storage_options: object, logged: LogColumns) -> SortedRead:
    """A read that is opened as one call, which who listens to calls hears of."""
    with watched("read") as call:
        made = _opened(options, storage_options, logged)
        if call.is_heard():
            call.done({"columns": len(made.schema)})
    return made


# What a plan determines, and its files.
_OF_PLAN: dict[str, Any] = {"sources": [], "sort_by": None, "on_duplicate": "keep_all"}


class _Again:
    """The options of a read, for one that asks for less of the same files."""

    def __init__(self, native: _native.SortedRead, options: dict[str, Any], left_out: int) -> None:
        self._native = native
        self.options = options
        # Files of tables that were not opened.
        self.left_out = left_out
        self.limit: int | None = options["limit"]

    def __call__(
        self,
        *,
        columns: list[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        batch_rows: int | None = None,
        rows: dict[str, int] | None = None,
    ) -> SortedRead:
        """The same with other columns, further conditions, fewer rows, or those between two."""
        options = {**self.options, "rows": rows}
        if columns is not None:
            options["columns"] = columns
        if where is not None:
            before = options["where"]
            options["where"] = where if before is None else f"{before} AND {where}"
        limits = [n for n in (limit, options["limit"]) if n is not None]
        options["limit"] = min(limits) if limits else None
        options["batch_rows"] = batch_rows or options["batch_rows"]
        native = self._native.narrowed(json.dumps(options))
        return SortedRead(native, _Again(native, options, self.left_out))


def _opened(options: dict[str, Any], storage_options: object, logged: LogColumns) -> SortedRead:
    given = dict(options)
    bucket = _reach(given, storage_options)
    try:
        text = json.dumps(given)
    except TypeError as cause:
        raise InvalidArgument(f"an option has a type that cannot be used: {cause}") from cause
    native = _native.SortedRead(text, bucket)
    left_out = sum(table.left_out for table in logged.expected)
    again = _Again(native, options, left_out)
    if isinstance(options.get("version_by"), str):
        # A column that is not there is an error now, not when rows are read.
        again(columns=[options["version_by"]])
    return SortedRead(native, again)


def _of_rows(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `read` as the engine takes them; what is not given is as `read` has it."""
    said = {**(read.__kwdefaults__ or {}), **given}
    now = moment()
    columns = said["columns"]
    return {
        "sort_by": sort_text(said["sort_by"]),
        "on_duplicate": _choice(said["on_duplicate"], "on_duplicate"),
        "columns": None if columns is None else _names(columns, "columns"),
        "where": where_text(said["where"], now),
        "limit": _count(said["limit"], "limit"),
        "reverse": _flag(said["reverse"], "reverse"),
        "version_by": _version_by(said["version_by"], "version_by"),
        "replace_columns": _names(said["replace_columns"], "replace_columns"),
        "aggregate": _aggregates(said["aggregate"], "aggregate"),
        "delete_where": _text(said["delete_where"], "delete_where"),
        "drop_where": at_moment(said["drop_where"], now),
        "missing_keys": _choice(said["missing_keys"], "missing_keys"),
        "batch_rows": _count(said["batch_rows"], "batch_rows"),
        "threads": _count(said["threads"], "threads"),
        "memory_limit": _size(said["memory_limit"], "memory_limit"),
        "temp_dir": None if said["temp_dir"] is None else _path(said["temp_dir"], "temp_dir"),
    }


def _planned(plan: Plan | Task, given: Mapping[str, object]) -> str:
    """A plan as JSON, if the options leave to it what it says."""
    said = [name for name, value in given.items() if value is not None]
    if said:
        raise InvalidArgument.of(
            f"the plan determines `{said[0]}`",
            got=f"`{given[said[0]]}`",
            hint="plan with this option, and read the plan without it",
        )
    return plan.to_json()


def read(
    sources: Paths | Plan | Task,
    *,
    sort_by: SortBy | None = None,
    columns: Iterable[str] | str | None = None,
    where: Condition = None,
    limit: SupportsIndex | None = None,
    reverse: bool = False,
    on_duplicate: OnDuplicate | None = None,
    version_by: VersionBy | None = None,
    replace_columns: Iterable[str] = (),
    aggregate: Aggregates | None = None,
    delete_where: str | None = None,
    drop_where: str | None = None,
    missing_keys: Literal["error", "null"] = "error",
    batch_rows: SupportsIndex = 65_536,
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    temp_dir: Path | None = None,
    storage_options: StorageOptions | None = None,
) -> SortedRead:
    """Reads many sorted Parquet files as one sorted table, lazily.

    The rows are those that `merge` of the files would write, in its order. Files, row groups and
    pages that cannot have a requested row are skipped, by the bounds in footers and page indexes
    and by bloom filters. A file is not opened before its first key is next.

    A `Plan`, or a `Task` of one, may take the place of files: the rows are those that executing it
    would write. It determines the order, which rows of a key stay, and which rows are dropped.

    Of a Delta table, the columns are those of its log, not of its files: a column that no file has
    is null. Partition columns come behind all others, and first in the order, so rows of a
    partition stay together.

    Args:
        sources: Sorted files: paths, globs, folders, tables, URLs, as in `merge`.
        sort_by: The order of the files, as in `merge`; by default that of the table, or the order
            that they declare. A single file without a declared order is read in row order. `[]`
            makes all rows equal: the files follow each other.
        columns: The columns, in the order of the output: names, members such as `"a.b"`, `"*"` for
            all others; all by default. `[]` keeps only the number of rows.
        where: Which rows: conditions with AND between them, such as
            `"name = 'cpu' AND ts >= '2024-05-01'"`. A condition is a comparison (`<`, `<=`, `=`,
            `!=`, `>=`, `>`), `IN (a, b)`, `BETWEEN a AND b`, `IS [NOT] NULL` or `LIKE 'prefix%'`,
            of a column or a member of a struct. Equivalent expressions of Polars or PyArrow work,
            too. A comparison with null is not true; NaN is above all other numbers. Times may count
            from now, `ts >= now() - 7d`, in `s`, `m`, `h`, `d` or `w`.
        limit: Maximum number of rows. Reading stops once they are found.
        reverse: Whether the rows come from the last to the first. Files are read from their ends.
        on_duplicate: Which of several rows with one key stay, as in `merge`; conditions of `where`
            on other columns are tested on the rows that stay.
        version_by: The row with the greatest value of this column stays; of equal ones the last
            with `"keep_last"`, the first with `"keep_first"`. With `"update"`, version columns and
            the columns that go by each, see `merge`.
        replace_columns: See `merge`.
        aggregate: See `merge`.
        delete_where: A boolean column: where it is true in the row that stays, the key is deleted.
            With `"update"` and `"aggregate"`, where it is true, rows of the key before are deleted.
        drop_where: Rows to drop, as a comparison of a key column with a value.
        missing_keys: Whether files without a sort column are refused, or their keys are null.
        batch_rows: Rows of every batch but the last; fewer where rows are so wide that a batch
            would take more than a thirty-second of `memory_limit`.
        threads: Number of threads; all processors by default. Rows do not depend on it.
        memory_limit: Memory for reading, at least 16 MB. Half of it is for windows of rows, shared
            by the files that may have rows. Returned batches come on top.
        temp_dir: Folder for decoded rows that are spilled, made if absent; by default the system's
            folder of temporary files (`TMPDIR`). It should be on a disk. Rows are spilled if many
            files overlap and their pages do not fit `memory_limit`, and so are stored footers of
            many files. The file has no name, so nothing is left behind.
        storage_options: See `merge`.

    Returns:
        The read: a schema, and batches each time it is read.

    Raises:
        InvalidArgument: The files declare no order, or a condition cannot be parsed; says where.
        UnknownColumn: A column is in no file, or a sort column is missing in some.
        Unsupported: An expression of another library is no conjunction of such conditions.
        UnsortedSource: A file is not in the order; raised while it is read.
        SchemaConflict: Files have incompatible types.
        SourceNotFound: There is no such file.
        SourceChanged: A file is not the one that was planned.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 3], "v": ["a", "c"]}), "a.parquet")
        >>> pq.write_table(pa.table({"k": [2, 4], "v": ["b", "d"]}), "b.parquet")
        >>> rows = read(["a.parquet", "b.parquet"], sort_by="k", where="k >= 2", limit=2)
        >>> pa.table(rows).to_pylist()
        [{'k': 2, 'v': 'b'}, {'k': 3, 'v': 'c'}]
        >>> rows.stats.rows
        2
    """
    options = _of_rows(locals())

    def opened(
        files: list[str], order: Ordered, columns: LogColumns
    ) -> tuple[SortedRead, LogColumns]:
        given = {**options, "sources": files, **order, **columns.options()}
        return _opened(given, storage_options, columns), columns

    if isinstance(sources, Plan | Task):
        given = {
            "sort_by": sort_by,
            "on_duplicate": None if on_duplicate == "keep_all" else on_duplicate,
            "version_by": version_by,
            "replace_columns": options["replace_columns"] or None,
            "aggregate": options["aggregate"] or None,
            "delete_where": delete_where,
            "drop_where": drop_where,
            "missing_keys": None if missing_keys == "error" else missing_keys,
        }
        options["plan"] = _planned(sources, given)
        if storage_options is None:
            storage_options = sources.storage_options
        return _reported({**options, **_OF_PLAN}, storage_options, LogColumns())
    paths = _paths(sources, "sources")
    order = sort_text(sort_by)
    replaces = any(option is not None for option in (version_by, delete_where, drop_where))
    asked = Asked(options["where"], order, on_duplicate, replaces)
    with watched("read") as call:
        made = complete(
            lambda asked: with_rules(
                opened,
                paths,
                storage_options,
                sort_by=order,
                on_duplicate=on_duplicate,
                takes="all",
                asked=asked,
            ),
            asked,
            options["columns"],
        )
        if call.is_heard():
            call.done({"columns": len(made.schema)})
    return made
