"""The calls on whole files: `merge`, `sort`, `verify`, `inspect`.

Each writes its options as one JSON text, hands it to the engine, and reads one JSON report.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, SupportsIndex

from plait import _native
from plait._checks import (
    Aggregates,
    BloomFilters,
    OnDuplicate,
    Path,
    Paths,
    Statistics,
    StorageOptions,
    ValueSets,
    VersionBy,
    _count,
    _flag,
    _path,
    _paths,
    _size,
    merge_options,
)
from plait._logs.columns import LogColumns
from plait._native_call import OnProgress, _call
from plait._tables import Ordered, with_rules, with_tables
from plait.errors import InvalidArgument, VerificationFailed
from plait.inspected import zones_as_shown
from plait.order import SortBy, sort_text
from plait.report import FileReport, MergeReport, VerifyReport
from plait.sizes import Size


def merge(
    sources: Paths,
    out: Path,
    *,
    sort_by: SortBy | None = None,
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
    encoding: Literal["sources", "compatible", "smallest"] = "sources",
    bloom_filters: BloomFilters = (),
    value_sets: ValueSets = (),
    statistics: Statistics = "page",
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
    verify_order: Literal["bounds", "full"] = "full",
    verify_pages: Literal["checksum", "unpack"] = "checksum",
    server_side_copy: bool = False,
    unsorted: Literal["error", "sort", "skip"] = "error",
    assume_sorted: bool = False,
    trust_footers: bool = True,
    verify: Literal["content"] | None = None,
    sha256: bool = False,
    row_map: bool = False,
    copy_tiers: Iterable[str] = ("chunk", "page", "dict"),
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    if_exists: Literal["error", "add"] = "error",
    empty_output: bool = True,
    storage_options: StorageOptions | None = None,
    progress: OnProgress | None = None,
) -> MergeReport:
    """Merges sorted Parquet files into sorted files whose key ranges do not overlap.

    The merge is stable: rows with equal keys keep the order of the sources, then of their rows.
    Memory depends on `memory_limit`, not on the data. Outputs become visible complete, or not at
    all.

    Args:
        sources: Parquet files, sorted already: paths, globs, folders, object store URLs. Their
            order decides ties. Of a Delta table, the live files are merged; see "Tables among
            sources" in the guide.
        out: A folder, made if absent; or one path that ends in `.parquet`, then one output.
        sort_by: The order of the sources and outputs, most significant column first, such as
            `"name, -ts nulls first"`; that of a table, or the one that the files declare, by
            default. Also a list of
            columns, or of `(name, "ascending" | "descending")`. `"zorder(a, b)"` and
            `"hilbert(a, b)"` order rows by several columns at once. `[]` and `""` make all rows
            equal: the sources are concatenated.
        outputs: Maximum number of output files.
        target_file_size: Approximate size of a file, such as `"256MB"` or `"1GiB"`; a number counts
            bytes.
        target_rows: Approximate number of rows of a file.
        cut_on: Number of leading key columns whose equal values stay in one file; all by default.
            Columns of `partition_by` do not count.
        partition_by: Columns of the folders that outputs lie in, outermost first: `["day"]` makes
            `day=2024-05-01/part-….parquet`. Every file has rows of one partition. Sources must be
            sorted by these columns, then by `sort_by`; `unsorted="sort"` takes all others. A column
            is text, a whole number, a decimal, a date, a time, a timestamp or a boolean.
        partition_columns: Whether the files lack these columns (`"drop"`) or keep them (`"keep"`).
        row_group_size: Size of a row group.
        row_group_rows: Rows of a row group, at most.
        page_size: Size of a page.
        page_rows: Rows of a page, at most.
        align_row_groups: Number of leading key columns; a row group starts whenever one of them
            changes. Columns of `partition_by` do not count.
        compression: Codec of the outputs, such as `"zstd(3)"`, `"snappy"` or `"none"`; that of the
            sources by default.
        dictionary: Whether to encode with dictionaries; as the sources do by default.
        data_page_version: Version of the data pages; that of the sources by default.
        encoding: Encodings of values that are tried on pages that are neither copied nor made of
            dictionary ids. `"sources"` tries none. `"compatible"` tries the delta encodings of
            integers and text, `"smallest"` byte stream split and run lengths as well. The smallest
            is kept for the column.
        bloom_filters: Columns that get bloom filters. Names, or a mapping from names to `True` or
            to `{"fpp": 0.01, "ndv": 50_000}`, the rate of false positives and the distinct values
            of a row group to make room for; as many as there are by default. Filters of sources
            stay where a row group is copied whole, asked for or not.
        value_sets: Columns whose values are listed in the footer of each output. Names, or a
            mapping from names to `True` or to `{"max": 1000}`, at most 65,536. If there are more
            values than that, 64 by default, prefixes of text and bytes are listed instead. `prune`
            reads them.
        statistics: Where smallest and greatest values are written: `"page"` (pages and chunks),
            `"chunk"` (no column index) or `"none"`. One for all columns, or a mapping from names.
        widen: Whether columns whose types differ are widened where nothing is lost, or refused.
        missing: Whether columns absent from some sources are filled with nulls, or refused.
        missing_keys: Whether a source without a sort column is refused, or its keys are null. With
            `missing="error"` it is refused in any case.
        metadata_conflicts: What to do with a footer entry that is not the same in every source:
            drop it, keep the first, or refuse. Entries that are known to describe one file are
            dropped or computed anew, whatever is asked for.
        on_duplicate: Which of several rows with one key stay: all, the first in merged order, the
            last, an error if there are several, or one row that is made of all. All by default, but
            of a table as it says. The first is that of the first source. `"keep_last"` makes the
            sources runs of upserts, oldest first. `"update"` gives each column its last value that
            is not null: the sources are runs of partial updates. `"aggregate"` gives each column
            what its function in `aggregate` makes of all values.
        version_by: With `"keep_last"` or `"keep_first"`, the row with the greatest value of this
            column stays. Of equal values, the last or the first row stays; null is the least value.
            With `"update"`, a mapping from version columns to columns: `{"at": ["x", "y"]}` gives
            `at`, `x` and `y` the values of the row with the greatest `at`, null or not. Of equal
            values, the last row counts.
        replace_columns: With `"update"`, columns that take the value of the last row even if it is
            null.
        aggregate: With `"aggregate"`, the functions of columns, such as `{"n": "sum"}`: `sum`,
            `product`, `min`, `max`, `first`, `last`, `first_non_null`, `last_non_null`, `bool_and`,
            `bool_or`, `collect` (the elements of all lists), `collect_distinct` (each once) or
            `merge_map` (the entries of all maps; of equal keys the last). Other columns take the
            value of the last row. Only `first` and `last` give nulls if there are values. A sum or
            product that does not fit the column is an error.
        delete_where: A boolean column that marks tombstones. If it is true in the row that stays,
            the key is deleted and that row is dropped, too. With `"update"` and `"aggregate"`, a
            tombstone deletes the rows of its key before it. Needs a rule by which one row stays.
        keep_tombstones: Keep tombstones in the output. Required while older files are missing from
            the merge; otherwise the rows that the tombstones delete reappear. With `"update"` and
            `"aggregate"`, rows behind a tombstone become one row behind it.
        drop_where: Rows to drop, as a comparison of a key column with a value, such as
            `"timestamp < 1700000000"` or `"day < '2024-05-01'"`. For times, a number is in the unit
            of the column. They may count from now, when the call is made: `"ts < now() - 7d"`, in
            `s`, `m`, `h`, `d` or `w`. Nulls are kept.
        verify_order: How the order of copied stretches is checked: by the bounds of their pages,
            or in full, by decoding every key. Decoded keys are always checked. Outputs declare an
            order only where every key was checked.
        verify_pages: How pages that are copied as they are stored are checked: by their headers and
            checksums, or by unpacking them, too, which takes longer. Other pages are always
            decoded.
        server_side_copy: Whether S3 and Azure copy whole row groups from sources to outputs
            themselves (`UploadPartCopy`, `Put Block From URL`), so that their bytes are neither
            downloaded nor uploaded. Pages that they copy are not checked. Other stores, and row
            groups that have no offset index, are read and written as usual.
        unsorted: What to do with sources that are not sorted: refuse, `"sort"` or `"skip"` them.
            Sorted stretches of a file are merged as they are; rows between them are sorted in
            memory and spilled as sorted runs. `report.sort` says which files, and how many rows.
        assume_sorted: Trust the order of the sources. The report says so, and outputs declare no
            order: merge them again with `sort_by`.
        trust_footers: Whether keys that Plait wrote to footers are used for planning. If a footer
            is wrong, the merge detects it and plans again without them.
        verify: Hash all rows in and out, and fail on a difference: `"content"`.
        sha256: Whether to report a SHA-256 digest of every output.
        row_map: Whether a small hidden file next to each output says which row of which source
            each of its rows is, and which rows of the sources were dropped; `trace` looks it up.
            Sources that have to be sorted first have none.
        copy_tiers: Cheap ways of copying that may be used: column chunks, pages, dictionaries.
            `"chunk"` copies the column chunks of whole row groups as they are, `"page"` copies
            whole pages as they are, `"dict"` unites the dictionaries of the sources and copies ids
            instead of values. `()` decodes and encodes everything. The rows are the same either
            way.
        threads: Number of threads; all processors by default, as far as `memory_limit` has room.
            The result does not depend on it.
        memory_limit: Memory for buffers, such as `"512MB"` or `"4G"`; a number counts bytes.
        if_exists: What to do when the folder holds Parquet files already, or the file exists:
            refuse, or add to the folder.
        empty_output: Whether one file without rows is written when there are no rows.
        storage_options: Settings of object stores, by the names of delta-rs and Polars, such as
            `aws_region`. As in `{"aws_region": "eu-central-1"}`; they win over those of the
            environment. Or an obstore store or an fsspec file system: paths without a scheme are
            names in it.
        progress: Called a few times a second with a `Progress`, and for the last time when the
            outputs are published. An exception stops the merge; in the last call it undoes nothing.

    Returns:
        What was read, written, copied and measured.

    Raises:
        UnsortedSource: A source is not in the order; names file, row and both keys.
        DuplicateKey: Two rows have one key and `on_duplicate="error"`; names both.
        SchemaConflict: The sources cannot be brought to one schema; names every conflict.
        UnknownColumn: `sort_by` names a column that no source has, or that some lack; names them.
        UnsupportedKey: `sort_by` names a column whose type has no order.
        CorruptSource: A source is damaged; names file, column and offset.
        SourceNotFound: A source does not exist.
        ForeignTable: A folder is a table whose log cannot be read, or a glob leads into one.
        OutputExists: The output exists and `if_exists` is `"error"`.
        StorageError: Reading or writing failed.
        InvalidArgument: An option is invalid.
        PlaitError: Base of these and all others, see `plait.errors`.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 3], "v": ["a", "c"]}), "a.parquet")
        >>> pq.write_table(pa.table({"k": [2, 3], "v": ["b", "d"]}), "b.parquet")
        >>> report = merge(["a.parquet", "b.parquet"], "merged.parquet", sort_by="k")
        >>> report.rows_out
        4
        >>> pq.read_table("merged.parquet").column("v").to_pylist()
        ['a', 'b', 'c', 'd']
    """
    options = merge_options(locals())
    options = {"sources": options["sources"], "out": _path(out, "out"), **options}

    def run(sources: list[str], order: Ordered, said: LogColumns) -> dict[str, Any]:
        given = {**options, "sources": sources, **order, **said.options()}
        return _call(_native.merge, given, storage_options, progress)

    named = options["sources"]
    rules = {"sort_by": options["sort_by"], "on_duplicate": on_duplicate}
    return MergeReport.from_dict(with_rules(run, named, storage_options, **rules, takes="deleted"))


def sort(
    sources: Paths,
    out: Path,
    *,
    sort_by: SortBy | None = None,
    **options: Any,  # noqa: ANN401 - those of merge
) -> MergeReport:
    """Sorts Parquet files in any order into sorted files whose key ranges do not overlap.

    The same as `merge` with `unsorted="sort"`. Files that are sorted, and sorted stretches of the
    others, are merged as they are. Only rows that are out of order are sorted, in memory, and
    spilled to temporary files next to the outputs as sorted runs. The sort is stable: equal keys
    keep the order of the sources, then of their rows.

    Args:
        sources: Parquet files: paths, globs, folders, object store URLs.
        out: A folder, made if absent; or one path that ends in `.parquet`, then one output.
        sort_by: The order, such as `"name, -ts"`; the one that the files declare by default.
        **options: As those of `merge`, but for `unsorted` and `assume_sorted`.

    Returns:
        What was read, sorted, written and measured; `report.sort` has the part of the sort.

    Raises:
        InvalidArgument: An option is invalid.
        PlaitError: As `merge`, but for `UnsortedSource`.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [3, 1, 2]}), "unsorted.parquet")
        >>> report = sort("unsorted.parquet", "sorted.parquet", sort_by="k")
        >>> pq.read_table("sorted.parquet")["k"].to_pylist(), report.sort.rows
        ([1, 2, 3], 3)
    """
    for name in ("unsorted", "assume_sorted"):
        if name in options:
            raise InvalidArgument.of(f"`sort` has no option `{name}`", hint="use `merge`")
    return merge(sources, out, sort_by=sort_by, unsorted="sort", **options)


def verify(
    files: Paths,
    *,
    against: Paths | None = None,
    sort_by: SortBy | None = None,
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    storage_options: StorageOptions | None = None,
    check: bool = True,
    progress: OnProgress | None = None,
) -> VerifyReport:
    """Checks that files are sorted and disjoint, and hold the same rows as others.

    The files may be from any writer. Every value is read, those of `against`, too.

    Args:
        files: Files, folders, globs or URLs, as `sources` of `merge`.
        against: Files that must hold the same rows, in whatever order and split.
        sort_by: The order to check; the one that the files declare by default.
        threads: Number of threads; all processors by default. The report does not depend on it.
        memory_limit: See `merge`.
        storage_options: See `merge`.
        check: Whether a difference raises; otherwise it is only reported.
        progress: Called a few times a second with a `Progress`.

    Returns:
        What was found; `ok` says whether everything holds.

    Raises:
        VerificationFailed: Something does not hold. Its `report` is the `VerifyReport`.
        PlaitError: The files cannot be read, see `plait.errors`.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 2]}), "sorted.parquet")
        >>> verify("sorted.parquet", sort_by="k").ok
        True
    """
    options: dict[str, Any] = {
        "files": _paths(files, "files"),
        "against": None if against is None else _paths(against, "against"),
        "sort_by": sort_text(sort_by),
        "threads": _count(threads, "threads"),
        "memory_limit": _size(memory_limit, "memory_limit"),
    }

    def run(files: list[str]) -> dict[str, Any]:
        given = {**options, "files": files}
        if given["against"] is None:
            return _call(_native.verify, given, storage_options, progress)
        return with_tables(
            lambda others: _call(
                _native.verify, {**given, "against": others}, storage_options, progress
            ),
            given["against"],
            storage_options,
        )

    report = VerifyReport.from_dict(with_tables(run, options["files"], storage_options))
    if check and not report.ok:
        error = VerificationFailed("verification failed: " + "; ".join(report.problems))
        error.what = "verification failed"
        error.report = report
        raise error
    return report


def inspect(
    file: Path,
    *,
    pages: bool = False,
    sort_by: SortBy | None = None,
    check_order: bool = False,
    storage_options: StorageOptions | None = None,
) -> FileReport:
    """Describes a Parquet file: sizes, order, schema, row groups, columns.

    Reads the footer, and the first and last key of every row group where there is an order.

    Args:
        file: Path or object store URL of one file.
        pages: Whether to look for the pages of every column chunk, in the page indexes.
        sort_by: The order of the keys to show; the one that the file declares by default.
        check_order: Whether all keys are read, to see if they are in order.
        storage_options: See `merge`.

    Returns:
        Sizes, declared order, metadata, schema, and statistics of every column chunk.

    Raises:
        CorruptSource: The file is not Parquet, or damaged.
        SourceNotFound: The file does not exist.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 2]}), "two.parquet")
        >>> report = inspect("two.parquet")
        >>> report.rows, report.row_groups[0].columns[0].max
        (2, 2)
    """
    options = {
        "file": _path(file, "file"),
        "pages": _flag(pages, "pages"),
        "sort_by": sort_text(sort_by),
        "check_order": _flag(check_order, "check_order"),
    }
    found = _call(_native.inspect, options, storage_options, None)
    return FileReport.from_dict({**found, "zone_map": zones_as_shown(found.get("zone_map"))})
