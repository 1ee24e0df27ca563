"""Files whose columns have types that Delta lacks become files with the types of their table.

adopt(cast=True) ──▶ field {"type": "long", "metadata": {"plait.was": "uint32"}} ──▶ compaction
                                                                   a.parquet: k uint32 ─▶ k int64

Invariants: a value that the other type does not hold is an error, and nothing is committed of its
file. What is cast is as new as it was.
Cost: of a table with such columns the footers of all files, and all rows of those that are cast.
Not here: which types become which (`rust/delta`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping

from plait import _native
from plait._logs.columns import WAS, columns_of
from plait._logs.delta import ORDER, DeltaLog, LiveFile, NewFile, Snapshot
from plait._read import read_live
from plait._run_writer import RunWriter
from plait._scan import scan

__all__ = ["cast_files", "lacking_types"]


def lacking_types(path: str, storage_options: object) -> dict[str, str]:
    """Columns of a file that have types which Delta lacks, with these types."""
    found = scan([path], storage_options=storage_options)
    fields = json.loads(_native.delta_cast_schema(found.schema))["fields"]
    return {f["name"]: f["metadata"][WAS] for f in fields if WAS in f["metadata"]}


def cast_files(log: DeltaLog, storage_options: object, removal: Mapping[str, bool]) -> int:
    """Rewrites the live files of a table that have columns of other types than the table.

    Args:
        log: The log of the table.
        storage_options: Settings of object stores.
        removal: How their removal is logged.

    Returns:
        How many were rewritten.

    Raises:
        LossyCast: A value does not fit; names file, column and row.
    """
    snapshot = log.snapshot("rewrite")
    if not any(WAS in field.get("metadata", {}) for field in snapshot.schema["fields"]):
        return 0
    done = 0
    for file in log.files("rewrite", deleted="list"):
        if lacking_types(log.location(file.name), storage_options):
            done += _cast(log, file, snapshot, storage_options, removal)
    return done


def _cast(
    log: DeltaLog,
    file: LiveFile,
    snapshot: Snapshot,
    storage_options: object,
    removal: Mapping[str, bool],
) -> bool:
    path = log.location(file.name)
    columns = columns_of(log.root, snapshot, {path: file})
    writer = RunWriter(
        log.root,
        sort_by=snapshot.properties.get(ORDER, []),
        partition_by=snapshot.partition_columns,
        if_exists="add",
        storage_options=storage_options,
    )
    with writer:
        # In the order in which rows lie: those with one key keep it. Batch by batch, an error is
        # the one of the cast.
        for batch in read_live([path], columns, sort_by=[], storage_options=storage_options):
            writer.write(batch)
        report = writer.flush()
    outputs = () if report is None else report.outputs
    names = [log.name_of(output.path) for output in outputs]
    new = [NewFile(name, snapshot.partition_of(file), [file.id]) for name in names]
    add = log.added(new, snapshot.schema_text, properties=snapshot.properties)
    ended = log.commit(
        {
            "intent": "rewrite",
            "operation": "OPTIMIZE",
            "parameters": {"predicate": "", "cast": json.dumps(columns.casts)},
            "metrics": {"numAddedFiles": len(add), "numRemovedFiles": 1},
            "token": secrets.token_hex(16),
            "add": add,
            "remove": [file.id],
            "schema": snapshot.schema_text,
            **removal,
        }
    )
    # If others have replaced it, there is nothing to cast any more.
    return bool(ended["outcome"] == "committed")
