"""`RunWriter`: Arrow data in any order, written as sorted files.

with plait.RunWriter("events", sort_by="host, ts") as writer:
    for batch in batches:
        writer.write(batch)
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, SupportsIndex

from plait import _native
from plait._checks import (
    Aggregates,
    BloomFilters,
    OnDuplicate,
    Path,
    Statistics,
    StorageOptions,
    ValueSets,
    VersionBy,
    _path,
    _validate,
    writer_options,
)
from plait._native_call import OnProgress, _reach, _teller
from plait.errors import InvalidArgument
from plait.order import SortBy
from plait.report import MergeReport
from plait.sizes import Size

if TYPE_CHECKING:
    from typing_extensions import Self


class RunWriter:
    """Writes Arrow data in any order as sorted Parquet files, in bounded memory.

    `write` takes rows into memory. When a third of `memory_limit` is full, they are sorted and
    spilled to a temporary file next to the outputs, as a sorted run. `flush` and `close` merge the
    runs into files. The sort is stable: rows with one key keep the order in which they were
    written, within a flush.

    After `flush` the rows written so far are in complete, durable files. Rows that were not flushed
    are in no visible file. The files of two flushes may overlap: `plait.merge` and `plait.compact`
    merge them. A writer is a context manager: leaving it closes the writer, or aborts it if an
    exception was raised.

    Args:
        out: A folder, made if absent; or one path that ends in `.parquet`, then `flush` is called
            by `close` alone.
        sort_by: The order of the files, such as `"host, -ts"`.
        target_file_size: See `merge`.
        target_rows: See `merge`.
        outputs: Files of a flush, at most.
        cut_on: See `merge`.
        partition_by: Columns of the folders that files lie in, outermost first; see `merge`.
        partition_columns: See `merge`.
        row_group_size: See `merge`.
        row_group_rows: See `merge`.
        page_size: See `merge`.
        page_rows: See `merge`.
        align_row_groups: See `merge`.
        compression: Codec of the files, such as `"zstd(3)"` or `"snappy"`; `"zstd"` by default,
            its parameters chosen by trial.
        dictionary: Whether to encode with dictionaries; where they pay by default.
        data_page_version: Version of the data pages; 1 by default.
        bloom_filters: See `merge`.
        value_sets: See `merge`.
        statistics: See `merge`.
        on_duplicate: Which of several rows with one key stay, within a flush; the last is the one
            that was written last.
        version_by: See `merge`.
        replace_columns: See `merge`.
        aggregate: See `merge`.
        delete_where: See `merge`.
        keep_tombstones: See `merge`.
        drop_where: See `merge`.
        sha256: See `merge`.
        threads: See `merge`.
        memory_limit: See `merge`. Data that the caller still references comes on top.
        if_exists: What to do when the folder holds Parquet files, or the file exists: refuse, or
            add to the folder.
        storage_options: See `merge`.
        validate: How much of the Arrow data of others is checked: `"basic"` or `"full"`.

    Raises:
        InvalidArgument: An option is invalid.
        OutputExists: The output exists and `if_exists` is `"error"`.
        StorageError: The folder cannot be written.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> with RunWriter("events.parquet", sort_by="k") as writer:
        ...     rows = writer.write(pa.table({"k": [3, 1]}))
        ...     rows = writer.write(pa.table({"k": [2]}))
        >>> pq.read_table("events.parquet")["k"].to_pylist()
        [1, 2, 3]
    """

    # 0: the rows are new. Whoever rewrites a file gives its level.
    _merge_level = 0

    def __init__(
        self,
        out: Path,
        *,
        sort_by: SortBy,
        outputs: SupportsIndex | None = None,
        target_file_size: Size | None = None,
        target_rows: SupportsIndex | None = None,
        cut_on: SupportsIndex | None = None,
        partition_by: Iterable[str] = (),
        partition_columns: Literal["drop", "keep"] = "drop",
        row_group_size: Size = "128MB",
        row_group_rows: SupportsIndex = 1_048_576,
        page_size: Size = "1MB",
        page_rows: SupportsIndex = 20_000,
        align_row_groups: SupportsIndex = 0,
        compression: str | None = None,
        dictionary: bool | None = None,
        data_page_version: Literal[1, 2] | None = None,
        bloom_filters: BloomFilters = (),
        value_sets: ValueSets = (),
        statistics: Statistics = "page",
        on_duplicate: OnDuplicate = "keep_all",
        version_by: VersionBy | None = None,
        replace_columns: Iterable[str] = (),
        aggregate: Aggregates | None = None,
        delete_where: str | None = None,
        keep_tombstones: bool = False,
        drop_where: str | None = None,
        sha256: bool = False,
        threads: SupportsIndex | None = None,
        memory_limit: Size = "512MB",
        if_exists: Literal["error", "add"] = "error",
        storage_options: StorageOptions | None = None,
        validate: Literal["basic", "full"] = "basic",
    ) -> None:
        merge = writer_options(locals())
        options = {"out": _path(out, "out"), "memory_limit": merge["memory_limit"]}
        bucket = _reach(options, storage_options)
        merge["out"] = options.pop("out")
        # Files of two writers have different names, whatever is in them.
        options |= {"merge": merge, "id": secrets.token_hex(8), "merge_level": self._merge_level}
        self._native = _native.RunWriter(json.dumps(options), bucket, _validate(validate))
        self._reports: list[MergeReport] = []
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the writer was closed or aborted."""
        return self._closed

    @property
    def rows(self) -> int:
        """Number of rows that were written and not flushed."""
        return self._native.rows

    @property
    def reports(self) -> tuple[MergeReport, ...]:
        """What each flush did, in their order."""
        return tuple(self._reports)

    def write(self, batches: object) -> int:
        """Adds rows.

        Args:
            batches: A record batch, table, stream or data frame of any Arrow library, or an
                iterable of record batches. All have the columns of the first.

        Returns:
            Number of rows.

        Raises:
            SchemaConflict: The columns differ from those before in name, type or number.
            UnknownColumn: `sort_by` names a column that is not there.
            UnsupportedKey: `sort_by` names a column whose type has no order.
            InvalidArgument: The writer is closed, or this is no Arrow data.
        """
        self._check_open()
        return self._native.write(batches)

    def flush(self, *, progress: OnProgress | None = None) -> MergeReport | None:
        """Writes all rows added so far as sorted files, complete and durable.

        Args:
            progress: Called a few times a second with a `Progress`.

        Returns:
            What was merged and written; `None` if there were no rows.

        Raises:
            PlaitError: As `merge`. No file of this flush is visible then, and the rows are kept.
        """
        self._check_open()
        text = self._native.flush(_teller(progress))
        if text is None:
            return None
        report = MergeReport.from_dict(json.loads(text))
        self._reports.append(report)
        return report

    def close(self) -> MergeReport | None:
        """Flushes, and ends the writer. A second call does nothing.

        Returns:
            What the last flush did; `None` if there were no rows left.
        """
        if self._closed:
            return None
        report = self.flush()
        self.abort()
        return report

    def abort(self) -> None:
        """Ends the writer without a flush: files of earlier flushes stay, other rows are lost."""
        self._closed = True
        self._native.abort()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument.of("the writer is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
