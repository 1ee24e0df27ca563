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
from typing import TYPE_CHECKING, Any, Literal

from plait import _native
from plait._logs.delta import ORDER, DeltaLog, Snapshot
from plait._table_commit import make_table
from plait._table_new import lost_rows, open_folder
from plait._table_properties import is_same_order
from plait.errors import InvalidArgument, SourceNotFound, Unsupported
from plait.spark.settings import Settings
from plait.table.columns import check_columns

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
    open_folder(root, settings)
    log = DeltaLog(root, settings)
    if not _is_made(log):
        lost = lost_rows(log, settings)
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


def _is_made(log: DeltaLog) -> bool:
    try:
        log.snapshot()
    except SourceNotFound:
        return False
    return True


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
