"""One schema over many files and streams that drift.

s = plait.scan("runs/*.parquet", ["name", "ts", "_path"])
print(s.schema, s.fingerprint)
for batch in s.to_batches():
    ...
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from plait import _native
from plait._checks import Path, StorageOptions, _count, _flag, _mapping, _path, _size, _validate
from plait._logs.pruning import Asked
from plait._native import Batch, Schema
from plait._native_call import _reach
from plait._observe import watch, watched
from plait._scan_report import ScanReport, SourceAdapter
from plait._tables import Expanded, expand, look_up
from plait._text import Table
from plait._text_reader import TextReader
from plait.errors import ForeignTable, InvalidArgument
from plait.sizes import Size

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

Constant = str | int | float | bool | None

# The options that take one of a few values, the default first.
CHOICES: dict[str, tuple[str, ...]] = {
    "case": ("exact", "insensitive"),
    "missing": ("error", "null"),
    "mode": ("resolve", "follow"),
    "on_change": ("report", "error"),
    "partition_clash": ("error", "partition", "file"),
    "partitions": ("none", "hive", "dirs"),
}


class Scan:
    """One schema over many sources; made by `scan`."""

    def __init__(self, native: _native.Scan, *, follow: bool) -> None:
        self._native = native
        self._follow = follow
        self._schema = native.schema

    @property
    def schema(self) -> Schema:
        """The schema of every batch; in mode `"follow"` that of the first."""
        return self._schema

    @property
    def fingerprint(self) -> str | None:
        """32 digits that name the resolved schema; `None` in mode `"follow"`."""
        return self._native.fingerprint

    @property
    def report(self) -> ScanReport:
        """The sources, and counts of the read so far."""
        return ScanReport.from_dict(json.loads(self._native.report()))

    @property
    def adapters(self) -> tuple[SourceAdapter, ...]:
        """The adapter of every source, in order; empty in mode `"follow"`."""
        return tuple(
            SourceAdapter(p["source"], p["rows"], tuple((n, w) for n, w in p["columns"]))
            for p in json.loads(self._native.explain())
        )

    def to_batches(self) -> Iterator[Batch]:
        """The batches, from the first row on. Streams among the sources are read once.

        Raises:
            LossyCast: A value does not fit; names file, row, column and value.
            SchemaChanged: In mode `"follow"` with `on_change="error"`.
        """
        batches = watch("scan.read", self._native.batches())
        # What may change its schema must not be handed on as a stream of one schema.
        return (batch for batch in batches) if self._follow else batches

    def explain(self) -> str:
        """What happens to each column of each source, as a table."""
        rows = [
            (adapter.source, name, what)
            for adapter in self.adapters
            for name, what in adapter.columns
        ]
        return Table(("source", "column", "what"), tuple(rows)).text()

    def __arrow_c_stream__(self, requested_schema: object = None) -> CapsuleType:
        stream = watch("scan.read", self._native.stream())
        return stream.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> CapsuleType:
        return self._schema.__arrow_c_schema__()

    def __iter__(self) -> Iterator[Batch]:
        return self.to_batches()

    def __repr__(self) -> str:
        return f"<plait.Scan of {self._schema!r}>"

    def _repr_html_(self) -> str:
        facts = [] if self.fingerprint is None else [("fingerprint", self.fingerprint)]
        return self.report._page(self._schema, facts).html()  # noqa: SLF001 - of this module


def scan(
    sources: object,
    columns: Iterable[str] | Mapping[str, str] | str | None = None,
    *,
    schema: object = None,
    strict: bool = False,
    policy: Mapping[str, str] | None = None,
    case: Literal["exact", "insensitive"] = "exact",
    missing: Literal["error", "null"] | None = None,
    static: Mapping[str, Constant | Sequence[Constant]] | None = None,
    implicit: Iterable[str] = (),
    partitions: Literal["none", "hive", "dirs"] = "none",
    partition_types: Mapping[str, str] | None = None,
    partition_clash: Literal["error", "partition", "file"] | None = None,
    root: Path | None = None,
    mode: Literal["resolve", "follow"] = "resolve",
    smooth: bool | None = None,
    on_change: Literal["report", "error"] | None = None,
    null_type: str | None = None,
    batch_rows: SupportsIndex = 8_192,
    batch_bytes: Size = "16MiB",
    limit: SupportsIndex | None = None,
    validate: Literal["basic", "full"] = "basic",
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    storage_options: StorageOptions | None = None,
) -> Scan:
    """Resolves one schema over sources that drift, and reads them adapted to it.

    Whatever the order of the sources, the schema is the same. Nothing is lost silently:
    incompatible types are an error before the first row, which lists all of them.

    Args:
        sources: Parquet files, and files of JSON lines (`.jsonl`, `.ndjson`) and CSV (`.csv`), each
            also with `.gz` behind: paths, globs, folders, URLs. Or Arrow streams, or a list of all.
            PyArrow reads files of text, each twice: once for the types of its columns. Of a Delta
            table, or an Iceberg table with `metadata/version-hint.text`, the live files
            with the partition columns. If a Delta table has column mapping, it must be alone and
            without `schema`: its columns are found by their field ids.
        columns: The columns, in the order of the output, such as `a.b`, `a[1]` or `*`; all by
            default. Names, members (`"a.b"`), elements (`"a[1]"`, which gives the whole list),
            `"*"` for all that are not named, static columns. `None` is everything, `[]` keeps only
            the number of rows. If all files have field ids, any name that a file has for a column
            works. `"a.b as c"`, or the item `{"c": "a.b"}` of a dict, is the member itself with the
            name `c`; `"m['k']"` is what map `m` has for key `k`.
        schema: An Arrow schema that takes precedence over those of the sources. The field metadata
            `plait.default` holds the value of a column where a source lacks it.
        strict: Refuse columns that `schema` does not name. Needs `schema`.
        policy: What becomes of kinds of drift: each an error, null, dropped or cast. Kinds are
            `missing`, `extra`, `widen`, `lossy`, `nullability`, `struct_field` and `zone`; what
            becomes of them `"error"`, `"null"`, `"drop"` or `"cast"`. `extra` needs `schema`; in
            mode `"follow"` every kind does.
        case: Whether names that differ in case alone are one column.
        missing: Whether a named column that no source has is an error, the default of mode
            `"resolve"`, or null, which mode `"follow"` makes it until a source has it.
        static: Columns of one value each, by name. A list has one value for each of `sources`, in
            their order: all files of a folder or glob have the same.
        implicit: Columns that say where a row is from: `_path`, `_folder`, `_filename`, `_size` in
            bytes, `_modified` (a timestamp of microseconds, UTC), `_file_index`, `_row_number`.
            They can be named in `columns` as well.
        partitions: Whether folders are columns: key=value folders, or dir0, dir1 below the folder
            that is named.
        partition_types: Types of partition columns, such as int32. By default columns of `k=v`
            folders are int64 or date32 if all values are, else text; `dir0`, `dir1` are text. Needs
            `partitions`.
        partition_clash: Which column is meant if a folder and a file have one of the same name: an
            error, the default, that of the folder, or that of the file. Needs `partitions`.
        root: The folder above `dir0`, for files that are named one by one, or in place of the
            folder that is named.
        mode: Resolve the schema of all sources first, or follow one source after the other.
            `"follow"` is for sources that are not known in advance.
        smooth: In mode `"follow"`, keep the published schema while it carries the data; true by
            default.
        on_change: In mode `"follow"`, report changes of the schema, the default, or refuse them.
        null_type: In mode `"follow"`, the type of columns that no source has had yet.
        batch_rows: Rows of a batch, at most; 1 to 1,048,576.
        batch_bytes: Size of a batch, at most, unless one row is larger; 256 KiB to 2 GiB - 1.
        limit: Maximum number of rows. Files that are not needed are not opened for reading.
        validate: How much of batches of streams is checked: `"basic"`, what memory safety relies
            on (offsets, views, keys, lengths), or `"full"`, also every value, as Arrow itself does.
        threads: Number of threads; all processors by default. Rows do not depend on it.
        memory_limit: Memory for reading, at least 16 MiB. An eighth is for batches that wait, an
            eighth for bytes that are read and not decoded, half for batches being decoded. With a
            small limit, batches are smaller and fewer threads decode. A row or page that is larger
            than its share is still read. Footers and returned batches come on top.
        storage_options: See `merge`.

    Returns:
        The scan: its schema, its batches, its report.

    Raises:
        SchemaConflict: Types are incompatible; names all columns, types and files.
        UnknownColumn: A column is in no source.
        ProjectionError: A path demands another form than the column has.
        InvalidArgument: An option is invalid or has no effect, or there is no source.
        ForeignTable: A folder is a table whose log cannot be read, or a glob leads into one.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), "a.parquet")
        >>> pq.write_table(pa.table({"b": ["x"], "a": [2]}), "b.parquet")
        >>> s = scan(["a.parquet", "b.parquet"])
        >>> s.schema
        <plait.Schema of a: int64, b: string>
        >>> pa.table(s).to_pylist()
        [{'a': 1, 'b': None}, {'a': 2, 'b': 'x'}]
    """
    named, streams = _sources(sources)
    options = {
        "sources": named,
        "text_files": True,
        "columns": _names(columns),
        "policy": _mapping(policy, "policy"),
        "strict": _flag(strict, "strict"),
        "case": _choice(case, "case"),
        "missing": None if missing is None else _choice(missing, "missing"),
        "static": _constants(static),
        "implicit": [implicit] if isinstance(implicit, str) else list(implicit),
        "partitions": _choice(partitions, "partitions"),
        "partition_types": dict(partition_types or {}),
        "partition_clash": None
        if partition_clash is None
        else _choice(partition_clash, "partition_clash"),
        "root": None if root is None else _path(root, "root"),
        "mode": _choice(mode, "mode"),
        "smooth": None if smooth is None else _flag(smooth, "smooth"),
        "on_change": None if on_change is None else _choice(on_change, "on_change"),
        "null_type": null_type,
        "batch_rows": _count(batch_rows, "batch_rows"),
        "batch_bytes": _size(batch_bytes, "batch_bytes"),
        "limit": _count(limit, "limit"),
        "threads": _count(threads, "threads"),
        "memory_limit": _size(memory_limit, "memory_limit"),
    }
    check = _validate(validate)
    with watched("scan") as call:
        try:
            if streams:
                # Before a stream is asked for anything: it may give its rows once.
                look_up(named, storage_options, text_files=True)
            native = _opened(options, schema, streams, storage_options, check)
        except ForeignTable as found:
            is_by_table = schema is None and len(named) == 1 and options["mode"] == "resolve"
            expanded = expand(named, storage_options, found, Asked(by_ids=is_by_table))
            changed, schema = _of_tables(expanded, options, schema)
            options |= changed
            native = _opened(options, schema, streams, storage_options, check)
        if call.is_heard():
            call.done({**json.loads(native.report()), "columns": len(native.schema)})
    return Scan(native, follow=mode == "follow")


def _opened(
    options: dict[str, Any],
    schema: object,
    streams: list[object],
    storage_options: object,
    check: Any,  # noqa: ANN401 - as `_validate` gives it
) -> _native.Scan:
    given = dict(options)
    bucket = _reach(given, storage_options)
    try:
        text = json.dumps(given, allow_nan=False)
    except (TypeError, ValueError) as cause:
        raise InvalidArgument(f"an option has a type that cannot be used: {cause}") from cause
    return _native.Scan(text, schema, streams, bucket, check, TextReader(schema))


def _of_tables(
    expanded: Expanded, options: dict[str, Any], schema: object
) -> tuple[dict[str, Any], object]:
    """Options and schema of a scan that has files in place of tables."""
    for table in expanded.tables:
        table.check_undeleted()
    if any(isinstance(value, list) for _, value in options["static"]):
        raise InvalidArgument.of(
            "`static` has a list, and a source is a table",
            hint="give one value for all, or name the files",
        )
    values = expanded.columns.file_values()
    changed: dict[str, Any] = {"sources": expanded.sources, "file_values": values}
    is_alone = len(options["sources"]) == 1
    if is_alone and options["partitions"] == "hive":
        changed["partitions"] = "none"  # the log knows better
    by_id = [table for table in expanded.tables if table.schema is not None]
    if schema is None and is_alone and by_id and options["mode"] == "resolve":
        # Names of files may be old ones; what the table has dropped is still in its files.
        changed["policy"] = {"extra": "drop", **options["policy"]}
        return changed, by_id[0].schema
    if schema is None:
        for table in by_id:
            table.check_whole()
        changed["table_columns"] = expanded.columns.stored
    return changed, schema


def _sources(sources: object) -> tuple[list[str | int], list[object]]:
    """Names of files, and the places of streams in the list of them."""
    arrow = ("__arrow_c_stream__", "__arrow_c_array__")
    single = isinstance(sources, str | bytes | os.PathLike) or any(
        hasattr(sources, name) for name in arrow
    )
    if not single and not isinstance(sources, Iterable):
        raise InvalidArgument.of(
            "not a source",
            got=f"`{sources!r}`",
            hint="give paths, Arrow streams, or a list of them",
        )
    items: Sequence[object] = [sources] if single else list(sources)  # type: ignore[call-overload]
    named: list[str | int] = []
    streams: list[object] = []
    for item in items:
        if isinstance(item, str | bytes | os.PathLike):
            named.append(_path(item, "sources"))
        else:
            named.append(len(streams))
            streams.append(item)
    return named, streams


def _constants(static: object) -> list[tuple[str, object]]:
    """Name and value; a list of values is one for each source."""
    found = _mapping(static, "static").items()
    return [(name, list(v) if isinstance(v, list | tuple) else v) for name, v in found]


def _names(columns: Iterable[str] | Mapping[str, str] | str | None) -> list[str] | None:
    if columns is None or columns == "*":
        return None
    if isinstance(columns, Mapping):
        return [_renamed(name, path) for name, path in columns.items()]
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument.of("`columns` has an entry that is not a name", got=f"`{name!r}`")
    return names


def _renamed(name: object, path: object) -> str:
    """The text of a column with another name."""
    if not isinstance(name, str) or not isinstance(path, str):
        raise InvalidArgument.of(
            "`columns` has an entry that is not a name", got=f"`{name!r}: {path!r}`"
        )
    if not name or "`" in name:
        raise InvalidArgument.of(
            "`columns` has a name that is empty or has a backtick", got=f"`{name!r}`"
        )
    return f"{path} as `{name}`"


def _choice(value: object, name: str) -> object:
    if value in CHOICES[name]:
        return value
    choices = ", ".join(map(repr, CHOICES[name]))
    raise InvalidArgument.of(
        f"`{name}` has no such choice", got=f"`{value!r}`", hint=f"give one of: {choices}"
    )
