"""One commit of rows that come in, for every writer of a table: `Table.append`, Spark, its streams.

    files ─▶ of a batch that is there? ─────────▶ present
                 │ another schema? ─────────────▶ conflicted
                 └─▶ live, instead of others if these are the files of a version ─▶ committed

Invariant: nothing is live before the commit, and everything is after it; a batch counts once.
Not here: the log (`rust/delta`), which also makes the entries of files.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plait._logs.delta import DeltaLog
from plait._table_properties import uuid
from plait.errors import SchemaConflict

__all__ = ["Batch", "Replaced", "commit_rows", "make_table"]

# Greater than any version: a change for it alone finds a table that is there changed.
_NO_VERSION = (1 << 64) - 1


@dataclass(frozen=True)
class Batch:
    """A batch of an application: it counts unless one of this number, or a later one, does."""

    app: str
    number: int


@dataclass(frozen=True)
class Replaced:
    """The live files of a version, which go."""

    version: int
    names: Sequence[str]


def commit_rows(
    log: DeltaLog,
    files: Sequence[Mapping[str, Any]],
    rows: int,
    schema_text: str,
    *,
    partition_by: Sequence[str] = (),
    batch: Batch | None = None,
    info: Mapping[str, str] | None = None,
    create: Mapping[str, str] | None = None,
    replaced: Replaced | None = None,
) -> dict[str, Any]:
    """Makes files live.

    Args:
        log: The log of the table.
        files: The files, as `DeltaLog.added` gives them, the oldest rows first.
        rows: Their rows.
        schema_text: The schema that they were written for.
        partition_by: Partition columns of the table.
        batch: The batch that they are.
        info: More for the history.
        create: Properties of the table, if there need not be one.
        replaced: Files that go.

    Returns:
        How it ended: `committed`, or `present`, as the batch counted before. With `replaced` also
        `conflicted`: there is another version.

    Raises:
        SchemaConflict: The table has another schema, or other partition columns, by now.
    """
    change: dict[str, Any] = {
        "intent": "append" if replaced is None else "delete",
        "operation": "WRITE",
        "parameters": {
            "mode": "Append" if replaced is None else "Overwrite",
            "partitionBy": json.dumps(list(partition_by)),
        },
        "metrics": {
            "numFiles": len(files),
            "numOutputRows": rows,
            "numOutputBytes": sum(file["bytes"] for file in files),
        },
        "info": dict(info or {}),
        "token": secrets.token_hex(16),
        "add": list(files),
        "adds_data": True,
        "txn": None if batch is None else {"app": batch.app, "number": batch.number},
        "schema": schema_text,
    }
    if create is not None:
        change["create"] = {
            "id": uuid(),
            "schema": schema_text,
            "partition_columns": list(partition_by),
            "properties": dict(create),
        }
    if replaced is not None:
        change |= {"remove": list(replaced.names), "removes_data": True}
        change["only_at"] = replaced.version
    ended = log.commit(change)
    if ended["outcome"] == "conflicted" and replaced is None:
        raise SchemaConflict.of(
            "the table changed while rows were written, nothing was committed",
            got=ended["why"],
            hint="write them again",
        )
    return ended


def make_table(log: DeltaLog, schema_text: str, properties: Mapping[str, str]) -> None:
    """Makes a table without rows, unless there is a table."""
    log.commit(
        {
            "intent": "append",
            "operation": "CREATE TABLE",
            "parameters": {"partitionBy": "[]", "properties": json.dumps(dict(properties))},
            "token": secrets.token_hex(16),
            "create": {"id": uuid(), "schema": schema_text, "properties": dict(properties)},
            "only_at": _NO_VERSION,
        }
    )
