"""`merge_streams`: sorted Arrow data that passes by, as one sorted stream."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, SupportsIndex, cast

from plait import _native
from plait._checks import (
    Aggregates,
    OnDuplicate,
    StorageOptions,
    VersionBy,
    _aggregates,
    _choice,
    _count,
    _flag,
    _names,
    _path,
    _text,
    _validate,
    _version_by,
)
from plait._native_call import _reach
from plait._now import at_moment
from plait._observe import watch
from plait._rules import Rules
from plait._tables import Ordered, look_up, with_rules
from plait.errors import InvalidArgument
from plait.order import SortBy, sort_text

# Options that are not among those that the engine reads as text.
_NOT_NATIVE = ("schema", "validate", "storage_options")


class ArrowStream(Protocol):
    """What has record batches: tables, frames, relations and readers of most libraries."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule of an Arrow C stream."""


class ArrowBatch(Protocol):
    """One record batch of any library."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Capsules of an Arrow C schema and array."""


Source = str | os.PathLike[str] | ArrowStream | ArrowBatch | Iterable[ArrowBatch]


def merge_streams(
    sources: str | os.PathLike[str] | Iterable[Source],
    *,
    sort_by: SortBy,
    batch_rows: SupportsIndex = 8192,
    widen: Literal["lossless", "error"] = "lossless",
    missing: Literal["null", "error"] = "null",
    missing_keys: Literal["error", "null"] = "error",
    metadata_conflicts: Literal["first", "drop", "error"] = "drop",
    on_duplicate: OnDuplicate | None = None,
    version_by: VersionBy | None = None,
    replace_columns: Iterable[str] = (),
    aggregate: Aggregates | None = None,
    delete_where: str | None = None,
    keep_tombstones: bool = False,
    drop_where: str | None = None,
    assume_sorted: bool = False,
    schema: object = None,
    validate: Literal["basic", "full"] = "basic",
    threads: SupportsIndex | None = None,
    storage_options: StorageOptions | None = None,
) -> _native.Stream:
    """Merges sorted Arrow streams and Parquet files lazily into one sorted stream.

    The merge is stable: rows with equal keys keep the order of the sources, then of their rows. The
    call itself reads schemas only: footers of files, and the first batch of an iterable or
    generator. After that, a source is asked for a batch only when no further row can be returned
    without it. One batch of each source is in memory.

    Args:
        sources: What is merged, sorted already; their order decides ties. Anything with
            `__arrow_c_stream__` (tables, frames, relations and readers of PyArrow, Polars,
            DuckDB, nanoarrow, arro3), iterables and generators of record batches, and paths of
            Parquet files, with globs, folders and object store URLs as in `merge`. One path or
            table need not be in a list.
        sort_by: The order of the sources and of the result, as in `merge`. `[]` makes all rows
            equal: the sources follow each other.
        batch_rows: Rows of every batch but the last. A batch with dictionaries whose keys are too
            narrow for all its values comes in smaller ones.
        widen: Whether columns whose types differ are widened where nothing is lost, or refused.
        missing: Whether columns absent from some sources are filled with nulls, or refused.
        missing_keys: Whether a source without a sort column is refused, or its keys are null. With
            `missing="error"` it is refused in any case.
        metadata_conflicts: What to do with a metadata entry that is not the same in every source:
            drop it, keep the first, or refuse.
        on_duplicate: Which of several rows with one key stay: all, the first in merged order (that
            of the first source), the last, an error if there are several, or one row that is made
            of all, as in `merge`. But for `"keep_all"`, a row is returned once the next key is
            seen, so at most one batch more is in memory. With `"update"` and `"aggregate"`, all
            batches with rows of a key are in memory.
        version_by: With `"keep_last"` or `"keep_first"`, the row with the greatest value of this
            column stays; nulls are least. With `"update"`, version columns and the columns that go
            by each, see `merge`.
        replace_columns: See `merge`.
        aggregate: See `merge`.
        delete_where: A boolean column: where it is true and the row stays of its key, the key is
            deleted, that is, the row is dropped, too. With `"update"` and `"aggregate"`, a
            tombstone deletes the rows of its key before it. Needs a rule by which one row stays.
        keep_tombstones: Keep such rows, for a later merge with older data.
        drop_where: Rows to drop, as a comparison of a key column with a value, such as
            `"timestamp < 1700000000"` or `"day < '2024-05-01'"`. For times, a number is in the unit
            of the column. Nulls are kept.
        assume_sorted: Trust the sources: their order is not checked.
        schema: The columns of iterables that have no batch, as anything with `__arrow_c_schema__`;
            by default those of the first source that has any.
        validate: How much of foreign batches is checked: `"basic"`, what memory safety relies on
            (offsets, views, keys, lengths), or `"full"`, also every value, as Arrow itself does.
        threads: Number of threads; all processors by default. They exist only while a batch is
            made. The result does not depend on it.
        storage_options: Settings of object stores, as for `merge`.

    Returns:
        A stream of record batches: iterate over it, or give it to any library that takes
        Arrow streams. Once it has ended, `rows_dropped` has the dropped rows by reason:
        `"duplicate"`, `"deleted"`, `"expired"`.

    Raises:
        UnsortedSource: A source is not in the order; names source, row and both keys. As all
            errors of sources it comes from the stream, after the batches before it.
        DuplicateKey: Two rows have one key and `on_duplicate="error"`; names both. It comes from
            the stream, too.
        SchemaConflict: The sources have no common schema; names every conflict.
        SchemaDrift: A source's batches have different schemas.
        UnknownColumn: `sort_by`, or an option that drops rows, names a column that no source has;
            or `sort_by` names one that some lack.
        UnsupportedKey: `sort_by` names a column whose type has no order.
        CorruptSource: A batch is not valid Arrow data; names source and column.
        SourceFailed: A foreign stream failed. An exception of a generator is raised unchanged.
        InvalidArgument: An option is invalid, a source has no record batches, or it reads the
            stream that it belongs to.
        PlaitError: Base of these and all others, see `plait.errors`.

    Example:
        >>> import pyarrow as pa
        >>> monday = pa.table({"k": [1, 3], "v": ["a", "c"]})
        >>> tuesday = pa.table({"k": [2, 3], "v": ["b", "d"]})
        >>> pa.table(merge_streams([monday, tuesday], sort_by="k")).column("v").to_pylist()
        ['a', 'b', 'c', 'd']
        >>> stream = merge_streams([monday, tuesday], sort_by="k", on_duplicate="keep_last")
        >>> pa.table(stream).column("v").to_pylist(), stream.rows_dropped
        (['a', 'b', 'd'], {'duplicate': 1})
    """
    # The elements of a table alone would be its columns.
    is_one = hasattr(sources, "__arrow_c_stream__") or hasattr(sources, "__arrow_c_array__")
    if is_one or isinstance(sources, str | bytes | os.PathLike):
        sources = [cast("Source", sources)]
    if not isinstance(sources, Iterable):
        raise InvalidArgument.of(
            "`sources` is not a list", got=f"`{sources!r}`", hint="give a list of sources"
        )
    order = sort_text(sort_by)
    if order is None:
        raise InvalidArgument.of(
            "`sort_by` is needed", got="`None`", hint="give the order that all sources have"
        )
    options = {
        "sort_by": order,
        "batch_rows": _count(batch_rows, "batch_rows"),
        "widen": _choice(widen, "widen"),
        "missing": _choice(missing, "missing"),
        "missing_keys": _choice(missing_keys, "missing_keys"),
        "metadata_conflicts": _choice(metadata_conflicts, "metadata_conflicts"),
        "on_duplicate": _choice(on_duplicate, "on_duplicate"),
        "version_by": _version_by(version_by, "version_by"),
        "replace_columns": _names(replace_columns, "replace_columns"),
        "aggregate": _aggregates(aggregate, "aggregate"),
        "delete_where": _text(delete_where, "delete_where"),
        "keep_tombstones": _flag(keep_tombstones, "keep_tombstones"),
        "drop_where": at_moment(drop_where),
        "assume_sorted": _flag(assume_sorted, "assume_sorted"),
        "threads": _count(threads, "threads"),
    }
    listed: list[object] = [
        _path(source, "sources") if isinstance(source, str | bytes | os.PathLike) else source
        for source in sources
    ]
    named: list[str | int] = [
        source if isinstance(source, str) else i for i, source in enumerate(listed)
    ]

    def opened(found: list[str | int], said: Ordered, _: object) -> _native.Stream:
        # Before a stream is asked for anything: it may give its rows once.
        files = look_up(found, storage_options)
        reached: dict[str, Any] = {**options, "sources": files, **said}
        bucket = _reach(reached, storage_options)
        given = [listed[name] if isinstance(name, int) else name for name in reached.pop("sources")]
        text = json.dumps(reached)
        return _native.merge_streams(given, schema, text, bucket, _validate(validate))

    if on_duplicate is None:
        # Options that go with a rule cannot be distinguished from those of a table.
        Rules.of(None, options).check()
    # Only sources that are all tables are asked twice.
    stream = with_rules(opened, named, storage_options, sort_by=order, on_duplicate=on_duplicate)
    return watch("merge_streams", stream)


def check_streams(schema: object, sort_by: str, options: Mapping[str, Any]) -> None:
    """Checks options of a merge of streams by their columns: a merge of no rows has all of these.

    Args:
        schema: The columns, as anything with `__arrow_c_schema__`.
        sort_by: The order.
        options: Options of `merge_streams`, as the engine takes them; the others are as there.

    Raises:
        PlaitError: As `merge_streams`.
    """
    others = {**(merge_streams.__kwdefaults__ or {}), "sort_by": sort_by, **options}
    text = json.dumps({name: value for name, value in others.items() if name not in _NOT_NATIVE})
    _native.merge_streams([iter(())], schema, text, None, "basic")
