"""A range of keys of several sorted files, read as one sorted stream: what a task of Spark does.

    plan ─▶ Part: sources, rows, low and high ─▶ row numbers ─▶ k readers ─▶ merge ─▶ batches

Invariants: a row is in one part alone, and equal keys are in the same part; a file that is not the
planned one any more is `SourceChanged`.
Cost: one batch of each source, as many rows as `memory_limit` allows; where a plan knows a row only
roughly, a few key pages are read to find it.
Not here: how parts are made (`source`), types of Spark (`types`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from plait import _native
from plait._streams import merge_streams
from plait.errors import (
    CorruptSource,
    PlaitError,
    SourceChanged,
    SourceFailed,
    SourceNotFound,
    StorageError,
)
from plait.spark.filters import Range
from plait.spark.keys import KeyColumn, key_arrays, located, row_key
from plait.spark.objects import Settings, is_url, opened

BATCH_ROWS_MAX = 65_536
_SAMPLE_ROWS = 64
_BUFFER_BYTES = 1 << 18
_NANOS = 10**9


@dataclass(frozen=True)
class Slice:
    """Rows of one file: the first lies between the numbers of `start`, the one behind of `end`.

    `bytes` and `stamp` are those of the planned file.
    """

    path: str
    bytes: int
    stamp: str | None
    start: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True)
class Duplicates:
    """Which rows of one key stay, see `merge_streams`."""

    on_duplicate: Literal["keep_all", "keep_first", "keep_last", "error"] = "keep_all"
    version_by: str | None = None
    delete_where: str | None = None
    keep_tombstones: bool = False
    drop_where: str | None = None


@dataclass(frozen=True)
class Part:
    """What one task reads: a small value that travels instead of rows.

    Attributes:
        index: Which part, in key order.
        sort_by: The order.
        slices: Where its rows are, in the order that breaks ties.
        low: Its keys are not below; `None` = no bound.
        high: Its keys are below.
        within: Its rows are those in these ranges.
    """

    index: int
    sort_by: str
    slices: tuple[Slice, ...]
    low: bytes | None
    high: bytes | None
    within: tuple[Range, ...]


def open_slice(slice_: Slice, settings: Settings) -> pq.ParquetFile:
    """The file of a slice, if it is the one that was planned.

    Args:
        slice_: The slice.
        settings: Settings of object stores.
    """
    if is_url(slice_.path):
        file, tag = opened(slice_.path, settings)
        if file.size() != slice_.bytes or slice_.stamp not in (None, tag):
            file.close()
            raise _about(
                SourceChanged, "the object was written since the query was planned", slice_.path
            )
        return open_file(slice_.path, file)
    try:
        status = Path(slice_.path).stat()
    except FileNotFoundError as cause:
        raise _about(SourceNotFound, "the file is gone", slice_.path) from cause
    except OSError as cause:
        raise _about(StorageError, str(cause), slice_.path) from cause
    stamp = f"{status.st_mtime_ns // _NANOS}.{status.st_mtime_ns % _NANOS:09}"
    if status.st_size != slice_.bytes or slice_.stamp not in (None, stamp):
        raise _about(SourceChanged, "the file was written since the query was planned", slice_.path)
    return open_file(slice_.path)


def open_file(path: str, file: pa.NativeFile | None = None) -> pq.ParquetFile:
    """A Parquet file, read in small buffers; microseconds for timestamps of 12 bytes.

    Args:
        path: Where it is.
        file: The object, if it is one of a store.
    """
    try:
        return pq.ParquetFile(
            path if file is None else file,
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )
    except FileNotFoundError as cause:
        raise _about(SourceNotFound, "the file is gone", path) from cause
    except OSError as cause:
        raise _about(StorageError, str(cause), path) from cause
    except pa.ArrowException as cause:
        raise _about(CorruptSource, str(cause), path) from cause


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Makes what PyArrow raises while it reads pages an error that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as cause:
        if isinstance(cause, PlaitError):
            raise
        raise _about(CorruptSource, f"a page cannot be read ({cause})", path) from cause


def _about(kind: type[PlaitError], what: str, path: str) -> PlaitError:
    error = kind.of(f"{what}: `{path}`")
    error.path = path
    return error


def row_groups(file: pq.ParquetFile) -> list[int]:
    """The first row of every row group, and the number of rows."""
    starts = [0]
    for group in range(file.metadata.num_row_groups):
        starts.append(starts[-1] + file.metadata.row_group(group).num_rows)
    return starts


def read_rows(
    file: pq.ParquetFile, start: int, end: int, columns: Sequence[str] | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Rows `start..end` of a file, in batches; only their row groups are read."""
    starts = row_groups(file)
    groups = [g for g in range(len(starts) - 1) if starts[g] < end and starts[g + 1] > start]
    if not groups or start >= end:
        return
    row = starts[groups[0]]
    batches = file.iter_batches(
        batch_size=batch_rows,
        row_groups=groups,
        columns=None if columns is None else list(columns),
        use_threads=False,
    )
    for batch in batches:
        first, last = max(start - row, 0), min(end - row, batch.num_rows)
        row += batch.num_rows
        if columns is not None and batch.schema.names != list(columns):
            # PyArrow takes `a` for `a.b`, too, which may be a column of its own.
            batch = batch.select(list(columns))  # noqa: PLW2901 - the same rows
        if last > first:
            yield batch.slice(first, last - first)
        if row >= end:
            return


def find_row(
    file: pq.ParquetFile, columns: Sequence[KeyColumn], key: bytes, low: int, high: int
) -> int:
    """The first of rows `low..high` whose key is not below `key`; `high` if there is none.

    Reads one key of some row groups, then the keys of one.
    """
    starts = row_groups(file)
    named = {column.path[0] for column in columns if column.path}
    names = sorted(named & set(file.schema_arrow.names))
    groups = [g for g in range(len(starts) - 1) if starts[g] < high and starts[g + 1] > low]
    if low >= high or not groups:
        return high

    def first_key(group: int) -> bytes:
        start = max(starts[group], low)
        (batch,) = read_rows(file, start, start + 1, names, 1024)
        return row_key(columns, key_arrays(columns, batch), 0)

    # The last group that begins below `key` has the row, or ends before it.
    index = bisect_left(groups, key, lo=1, key=first_key) - 1
    row = max(starts[groups[index]], low)
    end = min(starts[groups[index] + 1], high)
    for batch in read_rows(file, row, end, names, 8192):
        arrays = key_arrays(columns, batch)
        found = bisect_left(range(batch.num_rows), key, key=partial(row_key, columns, arrays))
        if found < batch.num_rows:
            return row + found
        row += batch.num_rows
    return row


def rows_of(
    file: pq.ParquetFile, slice_: Slice, part: Part, columns: Sequence[KeyColumn]
) -> list[tuple[int, int]]:
    """The rows of a slice that are in a part: stretches of row numbers, in order.

    Args:
        file: The file of the slice.
        slice_: The slice.
        part: The part.
        columns: The key columns, by the names that the file has for them.
    """

    def row(key: bytes, bounds: tuple[int, int]) -> int:
        low, high = bounds
        return low if low == high else find_row(file, columns, key, low, high)

    told_start, told_end = slice_.start, slice_.end
    if any(column.is_int96 for column in columns):
        # Their nanoseconds are not read, so one way of finding rows must do for all sources.
        told_start = told_end = (0, file.metadata.num_rows)
    start = 0 if part.low is None else row(part.low, told_start)
    end = file.metadata.num_rows if part.high is None else row(part.high, told_end)
    stretches = []
    for low, high in part.within:
        first = start if low is None else find_row(file, columns, low, start, end)
        last = end if high is None else find_row(file, columns, high, first, end)
        if last > first:
            stretches.append((first, last))
    return stretches


def read_part(
    part: Part,
    columns: Sequence[KeyColumn],
    schema: pa.Schema,
    *,
    duplicates: Duplicates,
    threads: int,
    memory_limit: int,
    settings: Settings,
    merged: pa.Schema | None = None,
    batch_rows: int = BATCH_ROWS_MAX,
    log: list[dict[str, Any]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a part in order, merged as they are read.

    Args:
        part: What to read.
        columns: The key columns.
        schema: The columns to read, by the types they have in the merge.
        duplicates: Which rows of one key stay.
        threads: For the merge.
        memory_limit: What batches may take, in bytes.
        settings: Settings of object stores.
        merged: The schema of the whole merge, by which columns of files are matched; `schema` by
            default.
        batch_rows: Rows of a batch, at most.
        log: Gets an entry for every file of which a row is read.
    """
    whole = schema if merged is None else merged
    opened: list[tuple[str, pq.ParquetFile, list[tuple[int, int]]]] = []
    for slice_ in part.slices:
        file = open_slice(slice_, settings)
        with reading(slice_.path):
            own = located(columns, whole, file.schema_arrow)
            stretches = rows_of(file, slice_, part, own)
        if not stretches:
            file.close()
            continue
        opened.append((slice_.path, file, stretches))
        if log is not None:
            log.append({"path": Path(slice_.path).name, "rows": stretches})
    if not opened:
        return
    path, file, _ = opened[0]
    with reading(path):
        names = [name for name, _ in _matched(file.schema_arrow, schema, whole)]
        rows = rows_within(file, names, memory_limit // (len(opened) + 2))
    rows = min(rows, batch_rows)
    failures: list[PlaitError] = []
    sources = [
        # Says what all columns are, also where this part's files have but some of them.
        schema.empty_table(),
        *(
            _reader(
                path,
                file,
                stretches,
                named=_matched(file.schema_arrow, schema, whole),
                batch_rows=rows,
                failures=failures,
            )
            for path, file, stretches in opened
        ),
    ]
    stream = merge_streams(
        sources,
        sort_by=part.sort_by,
        batch_rows=rows,
        threads=threads,
        # Whether keys may be missing was decided when the files were planned.
        missing_keys="null",
        on_duplicate=duplicates.on_duplicate,
        version_by=duplicates.version_by,
        delete_where=duplicates.delete_where,
        keep_tombstones=duplicates.keep_tombstones,
        drop_where=duplicates.drop_where,
    )
    try:
        for batch in stream:
            yield pa.record_batch(batch)
    except SourceFailed:
        if failures:
            raise failures[0] from None
        raise
    finally:
        stream.close()
        for _, file, _ in opened:
            file.close()


def rows_within(file: pq.ParquetFile, columns: Sequence[str], limit: int) -> int:
    """How many rows of a file take about `limit` bytes, from some that are read."""
    known = [name for name in columns if name in file.schema_arrow.names]
    sample = next(file.iter_batches(batch_size=_SAMPLE_ROWS, columns=known), None)
    if sample is None or sample.num_rows == 0:
        return BATCH_ROWS_MAX
    row_bytes = max(int(sample.nbytes) // sample.num_rows, 1)
    found: int = max(1, min(limit // row_bytes, BATCH_ROWS_MAX))
    return found


def _matched(file: pa.Schema, schema: pa.Schema, merged: pa.Schema) -> list[tuple[str, str]]:
    """Columns of a file that are read: its own names, and those of the merge."""
    indices = _native.matched_fields(file, merged)
    wanted = ((indices[merged.get_field_index(name)], name) for name in schema.names)
    found = sorted((index, name) for index, name in wanted if index is not None)
    return [(file.field(index).name, name) for index, name in found]


def _reader(
    path: str,
    file: pq.ParquetFile,
    stretches: Sequence[tuple[int, int]],
    *,
    named: Sequence[tuple[str, str]],
    batch_rows: int,
    failures: list[PlaitError],
) -> pa.RecordBatchReader:
    names = [own for own, _ in named]

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            with reading(path):
                for start, end in stretches:
                    for batch in read_rows(file, start, end, names, batch_rows):
                        # Metadata of the file's own schema can differ from that of its batches.
                        yield pa.RecordBatch.from_arrays(batch.columns, schema=have)
        except PlaitError as error:
            # Through the C interface only the text would arrive.
            failures.append(error)
            raise

    have = pa.schema([file.schema_arrow.field(own).with_name(name) for own, name in named])
    return pa.RecordBatchReader.from_batches(have, batches())
