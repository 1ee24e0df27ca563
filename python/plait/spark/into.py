"""The table that a write of Spark goes to: made if there is none, otherwise compared with the rows.

    no table ──▶ anything there that would not count any more? ──▶ version 0, without rows
    a table  ──▶ takes appends? ──▶ the order of the rows? ──▶ their columns?

The table is made before a task writes: files of a first write that dies are then no rows of anybody
who reads the folder by its log.

Invariant: what is refused is refused before a file is written.
Not here: files and their commits (`sink`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plait import _native
from plait._logs.delta import DeltaLog, Snapshot
from plait._native_call import _call
from plait._table_commit import make_table
from plait._table_properties import is_same_order
from plait.errors import ForeignTable, InvalidArgument, SourceNotFound, StorageError, Unsupported
from plait.spark.settings import Settings, is_url
from plait.table._calls import is_delta
from plait.table.added import check_columns
from plait.table.delta import ORDER

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Into", "into_table"]


@dataclass(frozen=True)
class Into:
    """A table as writers know it.

    Attributes:
        root: Its folder.
        sort_by: The order of every run.
        schema_text: Its schema, as the log has it.
        properties: Its properties.
        settings: Settings of object stores.
    """

    root: str
    sort_by: str
    schema_text: str
    properties: Mapping[str, str]
    settings: Settings

    @property
    def schema(self) -> dict[str, Any]:
        """The schema, parsed."""
        found: dict[str, Any] = json.loads(self.schema_text)
        return found


def into_table(
    root: str,
    sort_by: str,
    columns: pa.Schema,
    settings: Settings,
    *,
    intent: Literal["append", "delete"],
) -> Into:
    """The table in a folder.

    Args:
        root: The folder, or a URL.
        sort_by: The order of the rows.
        columns: Their columns.
        settings: Settings of object stores.
        intent: Whether rows are only added, or those that are there go.

    Raises:
        Unsupported: Delta has no such type, or the table is partitioned, or takes no such change.
        ForeignTable: The folder has files that are no table, is one of another format, or in one.
        InvalidArgument: The table has another order.
        SchemaConflict: The table does not have a column, or has it of another type.
    """
    schema_text = _native.delta_schema(columns)
    is_new = not is_url(root) and _make_folder(root)
    try:
        is_delta(root, settings)  # refuses tables of other formats, and folders in tables
    except ForeignTable as found:
        if is_new:
            Path(root).rmdir()
        hint = "write to a folder of its own, or to the table itself if it is one of Delta"
        error = ForeignTable.of(found.what, got=f"`{root}`", hint=hint)
        error.path = found.path
        raise error from found
    log = DeltaLog(root, settings)
    if not _is_made(log):
        lost = _lost(log, settings)
        # Somebody else may have made it since, and written files.
        if lost is not None and not _is_made(log):
            raise lost
        make_table(log, schema_text, {ORDER: sort_by})
    snapshot = log.snapshot("append")
    if intent == "delete":
        snapshot = log.snapshot(intent)
    _compare(snapshot, sort_by)
    check_columns(json.loads(schema_text), snapshot.schema, "the frame")
    return Into(root, sort_by, snapshot.schema_text, snapshot.properties, settings)


def _make_folder(root: str) -> bool:
    """Makes a local folder, unless it is there."""
    try:
        is_new = not Path(root).exists()
        Path(root).mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        what = "cannot make the folder of the table"
        raise StorageError.of(what, got=f"`{root}`: {cause}") from cause
    return is_new


def _is_made(log: DeltaLog) -> bool:
    try:
        log.snapshot()
    except SourceNotFound:
        return False
    return True


def _lost(log: DeltaLog, settings: Settings) -> ForeignTable | None:
    """What is to be said of a folder with rows that a table there would not have."""
    there = log.there()
    manifest: dict[str, Any] = {}
    if any(name.startswith("_plait/manifest-") for name in there.hidden):
        manifest = _call(_native.commit, {"folder": log.root}, settings, None)["manifest"]
    if manifest.get("files") or manifest.get("replaced"):
        what = "the folder has a manifest, which lists its live files: rows are written to tables"
        got, hint = log.root, "write to another folder; plait.merge of this one gives its rows"
    elif there.visible:
        what = "the folder has Parquet files and is no table"
        got, hint = log.location(there.visible[0]), "plait.adopt(folder) makes it one"
    else:
        return None
    error = ForeignTable.of(what, got=f"`{got}`", hint=hint)
    error.path = log.root
    return error


def _compare(snapshot: Snapshot, sort_by: str) -> None:
    if snapshot.partition_columns:
        columns = ", ".join(f"`{column}`" for column in snapshot.partition_columns)
        what = "rows are not written to partitioned tables"
        raise Unsupported.of(what, got=columns, hint="write to a table without partitions")
    said = snapshot.properties.get(ORDER)
    # A table of others says no order.
    if said is not None and not is_same_order(said, sort_by):
        raise InvalidArgument.of(
            "`sort_by` is not that of the table",
            got=f"`{sort_by}`, the table has `{said}`",
            hint="give the order of the table",
        )
