"""Rows come into a table: sorted in bounded memory, and live by one commit.

    batches ─▶ is the batch there? ─▶ do columns fit? ─▶ RunWriter ─▶ statistics ─▶ commit
                                                     day=1/, day=2/

Invariant: nothing is live before the commit, and everything is after it.
Not here: sorting (`RunWriter`), the commit (`_table_commit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

from plait._logs.columns import values_of_folders
from plait._logs.delta import ORDER, DeltaLog, NewFile, Snapshot
from plait._native import Stream
from plait._native_call import OnProgress
from plait._rules import Rules, narrowing
from plait._run_writer import RunWriter
from plait._streams import check_streams
from plait._table_commit import Batch, commit_rows
from plait._table_new import check_rules
from plait._table_reports import AppendReport
from plait.sizes import Size

__all__ = ["app_of", "append", "fitting"]


def app_of(batch_id: str | None) -> tuple[str, ...]:
    """The application whose first batch is a batch of this name."""
    return () if batch_id is None else (f"plait.batch:{batch_id}",)


def fitting(
    rules: Rules,
    source: Stream,
    sort_by: str,
    partition_by: Sequence[str],
    *,
    is_new: bool,
) -> Rules:
    """What becomes of rows of a batch with one key: it may lack columns of a table that is there.

    Args:
        rules: The rules of the table.
        source: The rows.
        sort_by: The order of the table.
        partition_by: Its partition columns.
        is_new: Whether the rows make the table.

    Raises:
        InvalidArgument: See `check_rules`.
        UnknownColumn: See `check_rules`.
    """

    def look(rules: Rules) -> Rules:
        check_streams(source.schema, sort_by, rules.options())
        return rules

    if not rules.of_columns:
        return rules
    if not is_new:
        return narrowing(look, rules)
    check_rules(rules, sort_by, partition_by, look)
    return rules


def append(
    log: DeltaLog,
    source: Stream,
    schema_text: str,
    snapshot: Snapshot | None,
    properties: Mapping[str, str],
    *,
    rules: Rules,
    partition_by: Sequence[str],
    batch_id: str | None,
    threads: SupportsIndex | None,
    memory_limit: Size,
    progress: OnProgress | None,
    storage_options: Any,  # noqa: ANN401 - settings or a store
) -> AppendReport:
    """Appends the rows of a stream.

    Args:
        log: The log of the table.
        source: The rows.
        schema_text: Their schema, as the log has it.
        snapshot: The table; `None` if the append makes it.
        properties: Those of the table.
        rules: What becomes of rows of the stream with one key.
        partition_by: Its partition columns.
        batch_id: See `Table.append`.
        threads: See `Table.append`.
        memory_limit: See `Table.append`.
        progress: See `Table.append`.
        storage_options: See `Table`.
    """
    app = app_of(batch_id)
    writer = RunWriter(
        log.root,
        sort_by=properties[ORDER],
        partition_by=partition_by,
        if_exists="add",
        threads=threads,
        memory_limit=memory_limit,
        storage_options=storage_options,
        **rules.options(),
    )
    with writer:
        writer.write(source)
        report = writer.flush(progress=progress)
    outputs = () if report is None else report.outputs
    if not outputs and (snapshot is None or not app):
        return nothing(log.root, None if snapshot is None else snapshot.version)
    rows = sum(output.rows for output in outputs)
    text = schema_text if snapshot is None else snapshot.schema_text
    names = [log.name_of(output.path) for output in outputs]
    # The names of other folders than those of partitions are nobody's values.
    values = {name: values_of_folders(name) for name in names}
    new = [NewFile(n, {column: values[n].get(column) for column in partition_by}) for n in names]
    files = log.added(new, text, properties=properties)
    ended = commit_rows(
        log,
        files,
        rows,
        text,
        partition_by=partition_by,
        batch=Batch(app[0], 1) if app else None,
        info={} if batch_id is None else {"plait.batch_id": batch_id},
        create=properties if snapshot is None else None,
    )
    if ended["outcome"] == "present":
        # Another writer of the same batch was first: its files count, and these never will.
        return nothing(log.root, ended["version"])
    size = sum(file["bytes"] for file in files)
    return AppendReport(log.root, ended["version"], rows, tuple(names), size)


def nothing(table: str, version: int | None) -> AppendReport:
    """The report of an append that added nothing."""
    return AppendReport(table, version, 0, (), 0)
