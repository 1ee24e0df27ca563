"""`adopt`: a folder of Parquet files becomes a table, without touching them.

    day=1/a.parquet ─┐                                 ┌─▶ schema: of all files, and `day`
    day=2/b.parquet ─┴─ footers ─▶ one schema, bounds ─┴─▶ _delta_log/00…0.json

Invariants: no data file is written or moved. A file that the log ever named is not adopted again,
nor is one that a writer of Plait made and has not committed.
Not here: what is done with the table (`_table`).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plait import _native
from plait._checks import (
    Aggregates,
    OnDuplicate,
    Path,
    StorageOptions,
    VersionBy,
    _flag,
    _path,
)
from plait._logs.columns import WAS, LogColumns, columns_of, values_of_folders
from plait._logs.delta import ORDER, DeltaLog, NewFile, Snapshot
from plait._read import read_live
from plait._rules import Rules
from plait._scan import scan
from plait._table_new import check_rules
from plait._table_properties import differences, order_of_files, properties_of, rules_of, uuid
from plait._table_reports import AdoptReport
from plait.errors import ForeignTable, SourceNotFound, StorageError, Unsupported
from plait.order import SortBy
from plait.table._calls import is_delta
from plait.table.casting import lacking_types
from plait.table.columns import check_columns

__all__ = ["adopt"]

# What writers of Plait name their files.
_OURS = re.compile(
    r"(?:part-\d{5,}-[0-9a-f]{16}(?:-[0-9a-f]{16})?|run-[0-9a-f]{16}-\d{5,}-\d+)\.parquet$"
)
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Others may commit in between; each time there is less to adopt.
_ATTEMPTS_MAX = 20


def adopt(
    folder: Path,
    *,
    sort_by: SortBy | None = None,
    on_duplicate: OnDuplicate | None = None,
    version_by: VersionBy | None = None,
    replace_columns: Iterable[str] = (),
    aggregate: Aggregates | None = None,
    retention: str | float | None = None,
    cast: bool = False,
    storage_options: StorageOptions | None = None,
) -> AdoptReport:
    """Turns a folder of Parquet files into a table, or adds new files of the folder to it.

    No file is moved or changed. Statistics come from footers. Folders such as `day=1` become
    partition columns: whole numbers, dates or text. Files are adopted in the order of their names,
    and earlier ones are older.

    Args:
        folder: The folder, or a URL.
        sort_by: The order of the files, for compactions and reads; the one that each file declares
            by default. It is not checked: see `Table.verify`.
        on_duplicate: See `Table`.
        version_by: See `Table`.
        replace_columns: See `Table`.
        aggregate: See `Table`.
        retention: See `Table`.
        cast: Whether columns of types that Delta lacks become columns of others, which the report
            names: `uint32` becomes `long`, a time `string`. `plait.read` and `Table.read` cast
            their values from now on, checked one by one; files are rewritten when the table is
            next compacted. A table that was adopted so adopts further files so.
        storage_options: See `merge`.

    Returns:
        The files that are live from now on.

    Raises:
        Unsupported: Delta has no such type; names the columns, also with `cast` those that become
            no other: members of structs and lists. Folders name different columns, or one that
            files have, too. Nothing was done.
        SchemaConflict: Columns of several files, or of files and table, do not fit.
        InvalidArgument: An option is not that of the table.
        ForeignTable: The folder is in a table, is one of another format, or was compacted as a
            plain folder.
        SourceNotFound: There are no such files.

    Example:
        >>> import os, pyarrow as pa, pyarrow.parquet as pq
        >>> for day in (1, 2):
        ...     os.makedirs(f"events/day={day}")
        ...     pq.write_table(pa.table({"k": [day, 5]}), f"events/day={day}/a.parquet")
        >>> adopt("events", sort_by="k").files
        ('day=1/a.parquet', 'day=2/a.parquet')
        >>> pq.write_table(pa.table({"k": [7]}), "events/day=2/b.parquet")
        >>> adopt("events").files
        ('day=2/b.parquet',)
    """
    root = _path(folder, "folder").removeprefix("file://")
    _flag(cast, "cast")
    of_columns = {
        "version_by": version_by,
        "replace_columns": replace_columns,
        "aggregate": aggregate,
    }
    rules = Rules.of(on_duplicate, of_columns)
    properties = properties_of(sort_by, rules, retention)
    is_table = is_delta(root, storage_options)
    try:
        log = DeltaLog(root, storage_options)
    except SourceNotFound:
        raise SourceNotFound.of("there is no such folder", got=f"`{root}`") from None
    for _ in range(_ATTEMPTS_MAX):
        snapshot = log.snapshot("append") if is_table else None
        if snapshot is None:
            rules.check()
        else:
            for _, error in differences(properties, snapshot.properties, root):
                raise error
        report = _adopted(log, snapshot, properties, storage_options, cast=cast)
        if report is not None:
            return report
        is_table = True
    raise StorageError.of(
        "others commit to the table again and again", got=f"`{root}`", hint="adopt again"
    )


def _adopted(
    log: DeltaLog,
    snapshot: Snapshot | None,
    properties: dict[str, str],
    storage_options: object,
    *,
    cast: bool,
) -> AdoptReport | None:
    root = log.root
    names, skipped = _new_files(log, root, snapshot)
    if not names:
        if snapshot is None:
            raise SourceNotFound.of("the folder has no Parquet files", got=f"`{root}`")
        return AdoptReport(root, snapshot.version, (), 0, skipped)
    values = {name: values_of_folders(name) for name in names}
    columns = _columns(values, snapshot)
    # One schema of all: also what no table of Arrow could hold is an error before any work.
    found = scan([log.location(name) for name in names], storage_options=storage_options)
    known = {} if snapshot is None else _cast_columns(snapshot.schema)
    is_cast = cast if snapshot is None else bool(known)
    schema_of = _native.delta_cast_schema if is_cast else _native.delta_schema
    of_files: dict[str, Any] = json.loads(schema_of(found.schema))
    casts = _cast_columns(of_files)
    _check_casts(log, names, casts, known if snapshot is not None else casts, storage_options)
    twice = [field["name"] for field in of_files["fields"] if field["name"] in columns]
    if twice:
        raise Unsupported.of(
            "a column is in the files and in the names of their folders", got=f"`{twice[0]}`"
        )
    kinds = {column: _kind(values[name][column] for name in names) for column in columns}
    if snapshot is None:
        fields = [
            {"name": column, "type": kind, "nullable": True, "metadata": {}}
            for column, kind in kinds.items()
        ]
        schema = {"type": "struct", "fields": [*of_files["fields"], *fields]}
        text = json.dumps(schema)
        made_of = Snapshot(0, schema, text, properties, columns, 0, {})
        _check_rules(log, names, made_of, storage_options)
        create = {
            "id": uuid(),
            "schema": text,
            "partition_columns": columns,
            "properties": properties,
        }
        made: dict[str, Any] = {"create": create, "schema": text}
    else:
        schema, properties = snapshot.schema, snapshot.properties
        check_columns(of_files, schema, "a file of the folder")
        _check_values(kinds, schema)
        made = {"schema": snapshot.schema_text}
    text = json.dumps(schema) if snapshot is None else snapshot.schema_text
    new = [NewFile(name, values[name]) for name in names]
    add = log.added(new, text, properties=properties)
    rows = sum(json.loads(entry["stats"])["numRecords"] for entry in add)
    ended = log.commit(
        {
            "intent": "append",
            "operation": "CONVERT" if snapshot is None else "WRITE",
            "parameters": {"partitionedBy": json.dumps(columns)},
            "metrics": {"numConvertedFiles": len(add), "numOutputRows": rows},
            "info": {"plait.adopted": True},
            "token": secrets.token_hex(16),
            "add": add,
            "adds_data": True,
            # Two that adopt at a time would add a file twice: the second looks again.
            "only_at": None if snapshot is None else snapshot.version,
            **made,
        }
    )
    if ended["outcome"] == "conflicted":
        return None
    kinds_of = {field["name"]: field["type"] for field in of_files["fields"]}
    changed = {name: (was, kinds_of[name]) for name, was in casts.items()}
    return AdoptReport(root, ended["version"], tuple(names), rows, skipped, changed)


def _check_rules(
    log: DeltaLog, names: Sequence[str], made: Snapshot, storage_options: object
) -> None:
    """Refuses rules for rows with one key that the columns of a new table do not go with."""
    order = made.properties.get(ORDER)
    casts = LogColumns(casts=columns_of(log.root, made, {}).casts)

    def look(rules: Rules) -> object:
        return read_live(
            list(map(log.location, names)),
            casts,
            sort_by=order_of_files(order, made.partition_columns),
            missing_keys="null",
            storage_options=storage_options,
            **rules.options(),
        )

    check_rules(rules_of(made.properties, log.root), order, made.partition_columns, look)


def _new_files(
    log: DeltaLog, root: str, snapshot: Snapshot | None
) -> tuple[list[str], tuple[str, ...]]:
    """Names of files that the log never named; in a table, those of Plait's writers apart."""
    there = log.there()
    if any(name.startswith("_plait/manifest-") for name in there.hidden):
        error = ForeignTable.of(
            "the folder was compacted as a plain folder: its manifest lists the live files",
            got=f"`{root}`",
            hint="merge it into another folder, and adopt that",
        )
        error.path = root
        raise error
    if snapshot is None:
        return there.visible, ()
    known = set(there.known)
    names = [name for name in there.visible if name not in known]
    skipped = tuple(name for name in names if _OURS.search(name))
    return [name for name in names if not _OURS.search(name)], skipped


def _columns(values: dict[str, dict[str, str | None]], snapshot: Snapshot | None) -> list[str]:
    first = next(iter(values))
    columns = list(values[first]) if snapshot is None else snapshot.partition_columns
    for name, of_file in values.items():
        if sorted(of_file) != sorted(columns):
            raise Unsupported.of(
                "folders name different partition columns",
                got=f"`{name}` has {', '.join(of_file) or 'none'}, "
                f"others have {', '.join(columns) or 'none'}",
            )
    return columns


def _kind(texts: Iterable[str | None]) -> str:
    """The type of a partition column, as its values are written."""
    filled = [text for text in texts if text is not None]
    if filled and all(_WHOLE.fullmatch(text) for text in filled):
        return "long"
    return "date" if filled and all(_DATE.fullmatch(text) for text in filled) else "string"


def _cast_columns(schema: Mapping[str, Any]) -> dict[str, str]:
    """Columns that files have of a type that Delta lacks, with this type."""
    return {f["name"]: f["metadata"][WAS] for f in schema["fields"] if WAS in f["metadata"]}


def _check_casts(
    log: DeltaLog,
    names: Sequence[str],
    casts: Mapping[str, str],
    known: Mapping[str, str],
    storage_options: object,
) -> None:
    """Refuses columns that the table does not cast, and counts of different units as one column."""
    lacking = [f"`{name}` of {was}" for name, was in casts.items() if name not in known]
    if lacking:
        raise Unsupported.of(
            "the table does not cast columns to types that Delta has",
            got=", ".join(lacking),
            hint="write these columns as the types of the table",
        )
    units = {name: known[name] for name, was in casts.items() if was.startswith("duration")}
    for file in names if units else ():
        own = lacking_types(log.location(file), storage_options)
        for name, was in units.items():
            if own.get(name, was) != was:
                raise Unsupported.of(
                    "a column has durations in different units, which would be one number",
                    got=f"`{name}` of {own[name]} in `{file}`, not {was}",
                    hint="write it in one unit",
                )


def _check_values(kinds: dict[str, str], schema: dict[str, Any]) -> None:
    for field in schema["fields"]:
        name, kind = field["name"], field["type"]
        is_number = kind in ("byte", "short", "integer", "long")
        if name in kinds and kind != "string" and kinds[name] != ("long" if is_number else kind):
            raise Unsupported.of(
                "folders have values that are not of their partition column",
                got=f"`{name}`, which the table has as {kind}",
            )
