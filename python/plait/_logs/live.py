"""What counts in a table as it is now: files, partition values, schema, from the table's own log.

    events/_delta_log         the engine   files of the newest version, values of partition columns
    events/metadata/*.json    PyIceberg    files of the snapshot that `version-hint.text` names

Invariant: what files alone do not say (mapped or evolved columns, and deleted rows where a call
cannot leave them out) is refused by name.
Not here: finding tables (the engine), compacting them (`plait.table`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from plait import _native
from plait._logs.columns import LogColumns, columns_of, location_of
from plait._logs.delta import ORDER, DeltaLog, Snapshot
from plait._logs.iceberg import check_table, loaded, readable
from plait._logs.iceberg_partitions import unstored
from plait._logs.pruning import Asked
from plait._rules import Rules
from plait._table_properties import is_keep_all, rules_of
from plait.errors import ForeignTable, SourceNotFound, Unsupported

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

__all__ = ["Live", "live"]


@dataclass(frozen=True)
class Live:
    """The files of a table, or of a part of it, that count.

    Attributes:
        name: The table's folder.
        format: `"Delta"` or `"Iceberg"`.
        files: Their locations, oldest first.
        columns: What the log says of columns, and files do not.
        sort_by: The order of the files, if the table says it.
        snapshot: The table of Delta, which says what becomes of rows with one key.
        schema: The table's columns with their field ids, where names of files do not say it.
        lost: What of the table its files alone do not say, in words; `""` if nothing.
    """

    name: str
    format: str
    files: list[str]
    columns: LogColumns = field(default_factory=LogColumns)
    sort_by: str | None = None
    snapshot: Snapshot | None = field(default=None, compare=False)
    schema: Any = field(default=None, compare=False)
    lost: str = ""

    @property
    def rules(self) -> Rules:
        """What becomes of several rows with one key.

        Raises:
            Unsupported: This version cannot read what the table says.
        """
        if self.snapshot is None:
            return Rules()
        return rules_of(self.snapshot.properties, self.name, self.snapshot.schema)

    def check_undeleted(self) -> None:
        """Refuses a table with files whose rows are not all there."""
        if self.columns.deleted:
            raise _refused(
                self.format,
                self.name,
                "has rows that are deleted by a deletion vector or a delete file",
                got=f"`{next(iter(self.columns.deleted))}`",
                # What files alone do not say is not read by `plait.read`, either.
                hint="compact it first" if self.lost else "read it with plait.read, or compact it",
            )

    def check_whole(self) -> None:
        """Refuses a table whose rows are more than what files say."""
        if self.lost:
            # Reads have columns of partitions; columns by other names only scans have.
            hint = "read it with plait.scan"
            if self.columns.partitions:
                hint = "read it with plait.read or plait.scan, or name a folder of one partition"
            raise _refused(self.format, self.name, self.lost, hint=hint)


def live(
    format_: str,
    root: str,
    source: str,
    settings: dict[str, str],
    found: ForeignTable,
    *,
    asked: Asked,
) -> Live:
    """The live files of a table, or of the folder `source` in it.

    Args:
        format_: `"Delta"`, `"Iceberg"` or `"Hudi"`.
        root: The table's folder, or its URL.
        source: What the caller named: the table or a folder in it.
        settings: Settings of object stores.
        found: What is raised where the log cannot be read.
        asked: Which rows are asked for: files that have none by the log are left out.

    Raises:
        ForeignTable: The library that reads the log is absent, or no file says which metadata
            counts.
        Unsupported: The table has what its files alone do not say.
        SourceNotFound: No file counts.
    """
    part = _part(root, source)
    if format_ == "Delta":
        table = _delta(root, part, settings, asked)
    elif format_ == "Iceberg":
        table = _iceberg(root, part, settings)
    else:
        raise found
    if not table.files:
        raise SourceNotFound.of(
            f"the {format_} table has no live file", got=f"`{source}`", hint="it has no rows"
        )
    return table


def _part(root: str, source: str) -> str:
    """The folder `source` below the folder `root`: `""` is all of it."""
    if "://" not in source or source.startswith("file://"):
        whole = os.path.realpath(
            unquote(source.removeprefix("file://")) if "://" in source else source
        )
        return Path(whole).relative_to(os.path.realpath(root)).as_posix().removeprefix(".")
    return unquote(source.rstrip("/")).removeprefix(unquote(root.rstrip("/"))).strip("/")


def _is_in(path: str, part: str) -> bool:
    return not part or path.startswith(f"{part}/")


# -- Delta -----------------------------------------------------------------------------------------


def _delta(root: str, part: str, settings: dict[str, str], asked: Asked) -> Live:
    log = DeltaLog(root, settings)
    snapshot = log.snapshot("scan" if asked.by_ids else "read")
    if snapshot.names.is_mapped:
        return _mapped(root, part, log, snapshot)
    # Rows of a later commit are newer, where that matters.
    order: Literal["known", "commits"] = "known" if is_keep_all(snapshot.properties) else "commits"
    left = asked.files(log, snapshot, order)
    rows = [row for row in left.files if _is_in(row.name, part)]
    if not rows and left.expected is not None:
        # No file of this part has such rows: one is left, for its columns.
        every = log.files(order=order, deleted="list")
        rows = [row for row in every if _is_in(row.name, part)][-1:]
    located = {location_of(root, row.name): row for row in rows}
    # A folder that names a partition says what its rows have in these columns.
    said = {folder.partition("=")[0] for folder in part.split("/") if "=" in folder}
    unsaid = [f"`{column}`" for column in snapshot.partition_columns if column not in said]
    lost = f"is partitioned by columns that its files do not have: {', '.join(unsaid)}"
    return Live(
        root,
        "Delta",
        list(located),
        columns_of(root, snapshot, located, left.expected),
        sort_by=snapshot.properties.get(ORDER),
        snapshot=snapshot,
        lost=lost if unsaid else "",
    )


def _mapped(root: str, part: str, log: DeltaLog, snapshot: Snapshot) -> Live:
    """A table whose columns have other names in its files: these are read by field ids."""
    version = snapshot.version
    every = log.files("scan", version=version, deleted="list")
    rows = [row for row in every if _is_in(row.name, part)]
    looked = log.check_columns([row.name for row in rows], by_ids=True)
    located = {location_of(root, row.name): row for row in rows}
    return Live(
        root,
        "Delta",
        list(located),
        columns_of(root, snapshot, located),
        schema=_native.delta_columns(
            snapshot.schema_text, snapshot.partition_columns, looked.without_zone
        ),
        lost="maps column names",
    )


# -- Iceberg ---------------------------------------------------------------------------------------


def _iceberg(root: str, part: str, settings: dict[str, str]) -> Live:
    try:
        from pyiceberg.table import StaticTable  # noqa: PLC0415 - an extra

    except ImportError as cause:
        raise _unread("Iceberg", root, "pip install 'plait[iceberg]'") from cause
    if part:
        raise _refused(
            "Iceberg", root, "has partitions that folders do not tell", got=f"the folder `{part}`"
        )
    if "://" in root or not Path(root, "metadata", "version-hint.text").is_file():
        error = ForeignTable.of(
            f"the folder `{root}` is a table of Iceberg: only its catalog knows which metadata is "
            "current",
            hint="name the files that the catalog plans: "
            "[task.file.file_path for task in table.scan().plan_files()]",
        )
        error.path = root
        raise error
    metadata = _newest_metadata(root)
    table = loaded(root, lambda: StaticTable.from_metadata(metadata, settings))
    check_table(root, table)
    files = readable(root, table)
    deleted = {file.path: vector for file in files if (vector := file.vector) is not None}
    partitions = unstored(root, table, files)
    evolved = _evolved(table)
    if partitions and evolved:
        raise _refused("Iceberg", root, evolved)
    names = ", ".join(f"`{name}`" for name, _, _ in partitions)
    lost = f"is partitioned by columns that its files do not have: {names}" if names else ""
    columns = LogColumns(partitions, deleted=deleted)
    return Live(
        root,
        "Iceberg",
        [file.path for file in files],
        columns,
        schema=_columns(table, columns.names),
        lost=evolved or lost,
    )


def _newest_metadata(root: str) -> str:
    """The table, or its newest metadata if that is compressed: PyIceberg looks for plain one."""
    folder = Path(root, "metadata")
    hint = (folder / "version-hint.text").read_text().strip()
    compressed = folder / f"v{hint}.gz.metadata.json"
    return str(compressed) if compressed.is_file() else root


def _columns(table: IcebergTable, left_out: Sequence[str]) -> Any:  # noqa: ANN401 - of PyArrow
    """The columns of the table with their ids, but for some."""
    import pyarrow as pa  # noqa: PLC0415 - of PyIceberg
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415 - an extra

    schema = schema_to_pyarrow(table.schema(), include_field_ids=True)
    return pa.schema([field for field in schema if field.name not in left_out])


def _evolved(table: IcebergTable) -> str:
    """Columns that files may have by another name, or that the table has no more."""
    now = table.schema()
    for schema in table.schemas().values():
        for column in schema.fields:
            if now.find_column_name(column.field_id) != column.name:
                return f"has renamed or dropped the column `{column.name}` that its files may have"
    return ""


def _refused(format_: str, name: str, what: str, *, got: str = "", hint: str = "") -> Unsupported:
    error = Unsupported.of(
        f"the {format_} table `{name}` {what}",
        got=got,
        hint=hint or "read it with the engine that wrote it",
    )
    error.path = name
    return error


def _unread(format_: str, root: str, install: str) -> ForeignTable:
    error = ForeignTable.of(
        f"the folder `{root}` is a table of {format_}: only its log lists the live files",
        hint=install,
    )
    error.path = root
    return error
