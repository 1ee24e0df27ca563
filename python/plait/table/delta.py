"""Delta tables, through delta-rs: one transaction replaces the files of a group.

newest version ──▶ supported? ──▶ do all replaced files still count, without deletion vectors?
      ▲                                 │ yes: version + 1, with no retries of delta-rs
      └──────── others were quicker ◀───┘

Invariants: a commit is tried for the version that was looked at and for no other, so that what was
seen is what is replaced. Added files say that no data changed; of removed ones see `guard`.
Cost: the log is read again for every attempt.
Not here: statistics from footers (`statistics`). Source: the Delta transaction log protocol.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from plait._logs.delta import live_files, load, logged, refused, with_vectors
from plait.errors import UnknownColumn
from plait.table.change import Change, Committed, Conflicted, Outcome, Retryable
from plait.table.statistics import statistics
from plait.table.survey import (
    Compaction,
    Found,
    Group,
    Scope,
    TableFile,
    groups_of_all,
    partition_name,
    wanted,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["Delta"]

# Features whose rules this commit keeps (it adds and removes whole files and changes no row), and
# with which delta-rs commits. With others it refuses when all is merged: they are refused before.
_WRITER_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "deletionVectors",  # a table with a file that has one is refused
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
}
# The last writer version without a list of features that has none but these.
_WRITER_VERSION_MAX = 5
# The writer version that has a list of features.
_WRITER_VERSION_LISTED = 7
# Where removals that change data would be refused, or read as deleted rows.
_NO_GUARD = ("delta.appendOnly", "delta.enableChangeDataFeed")
_NULL = "__HIVE_DEFAULT_PARTITION__"


class Delta:
    """A Delta table."""

    format = "delta"
    is_in_place = True

    def __init__(self, uri: str, storage_options: dict[str, str] | None, *, guard: bool) -> None:
        """Takes the table; its log is read by `survey`."""
        self.name = uri.removeprefix("file://")
        self._storage_options = storage_options
        self._guard = guard

    def survey(self, compaction: Compaction) -> Found:
        """The groups that the policy finds in each partition."""
        where = compaction.options.partitions
        table = load(self.name, self._storage_options)
        columns = _check_supported(table, self.name)
        unknown = sorted(set(where) - set(columns))
        if unknown:
            raise UnknownColumn.of(
                "the table has no such partition column",
                got=f"`{unknown[0]}`",
                hint=f"partition columns: {', '.join(columns) or 'none'}",
            )
        every = defaultdict(list)
        for row in live_files(table):
            every[tuple((column, row.get(f"partition.{column}")) for column in columns)].append(row)
        named = {values: {column: _text(value) for column, value in values} for values in every}
        partitions = {values: every[values] for values in wanted(named, where)}
        deleted = with_vectors(table)
        scopes = []
        for values in sorted(partitions, key=str):
            rows = sorted(partitions[values], key=lambda r: (r["modification_time"], r["path"]))
            for row in rows:
                if unquote(row["path"]) in deleted:
                    raise refused(
                        self.name,
                        "has rows that are deleted by a deletion vector",
                        got=f"`{unquote(row['path'])}`",
                        hint="purge them first, such as with REORG TABLE ... APPLY (PURGE)",
                    )
            name = partition_name(named[values])
            files = tuple(self._file(row) for row in rows)
            scopes.append(Scope(name, files[0].path.rpartition("/")[0], files))
        # What a file lacks is null in the table: its log says that the column is there.
        merge = {**compaction.options.merge_options, "missing_keys": "null"}
        groups = groups_of_all(scopes, compaction, merge)
        return Found.of_scopes(table.version(), scopes, groups, compaction)

    def _file(self, row: dict[str, Any]) -> TableFile:
        path = unquote(row["path"])
        if "://" in path or path.startswith("/"):
            raise refused(
                self.name, "has files that lie elsewhere", got=f"`{path}`", hint="copy it deeply"
            )
        where = f"{self.name.rstrip('/')}/{path}"
        return TableFile(path, where, row["num_records"], row["size_bytes"])

    def leased(self, groups: Sequence[Group]) -> AbstractContextManager[Sequence[Group]]:
        """The groups as they are: what `VACUUM` or orphan removal spares is their age."""
        return nullcontext(groups)

    def is_live(self, group: Group) -> bool:
        """Whether the newest version has all files of the group."""
        live = {unquote(row["path"]) for row in live_files(load(self.name, self._storage_options))}
        return live.issuperset(file.name for file in group.files)

    def commit(self, change: Change) -> Outcome:
        """Commits for the next version, if the replaced files count in the newest."""
        from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - an extra
        from deltalake.exceptions import CommitFailedError  # noqa: PLC0415

        table = load(self.name, self._storage_options)
        columns = _check_supported(table, self.name)
        live = {unquote(row["path"]): row for row in live_files(table)}
        added = [output.path.removeprefix(self.name.rstrip("/") + "/") for output in change.added]
        app = f"plait.{change.token}"
        if all(path in live for path in added) and live.keys().isdisjoint(change.replaced):
            return Committed(table.version())
        gone = [path for path in change.replaced if path not in live]
        if gone:
            return Conflicted(f"`{gone[0]}` is not live any more")
        if not with_vectors(table).isdisjoint(change.replaced):
            return Conflicted("rows were deleted by a deletion vector")
        now_ms = int(time.time() * 1000)
        version = (table.transaction_version(app) or 0) + 1
        try:
            table.create_write_transaction(
                self._actions(change, added, live, table),
                mode="append",
                schema=table.schema(),
                partition_by=columns,
                commit_properties=CommitProperties(
                    max_commit_retries=0,
                    app_transactions=[Transaction(app, version, now_ms)],
                    custom_metadata={"plait.task": change.token},
                ),
            )
        except CommitFailedError as cause:
            return Retryable(str(cause))
        return Committed(table.version() + 1)

    def _actions(
        self,
        change: Change,
        added: list[str],
        live: dict[str, dict[str, Any]],
        table: DeltaTable,
    ) -> list[Any]:
        from deltalake.transaction import AddAction, RemoveAction  # noqa: PLC0415 - an extra

        now_ms = int(time.time() * 1000)
        first = live[change.replaced[0]]
        metadata = table.metadata()
        values = {c: logged(first[f"partition.{c}"]) for c in metadata.partition_columns}
        schema = json.loads(table.schema().to_json())
        bounds = _bounds([live[path] for path in change.replaced])
        settings = {name: str(value) for name, value in metadata.configuration.items()}
        # delta-rs compares its own removals with those of others only if these change data.
        is_guarded = self._guard and not any(settings.get(n) == "true" for n in _NO_GUARD)
        adds = []
        for path, output in zip(added, change.added, strict=True):
            stats_of = statistics(output.path, schema, self._storage_options, settings, bounds)
            stats = json.dumps(stats_of, allow_nan=False)
            adds.append(
                AddAction(path, output.bytes, values, now_ms, data_change=False, stats=stats)
            )
        removes = [
            RemoveAction(
                path,
                data_change=is_guarded,
                deletion_timestamp=now_ms,
                size=live[path]["size_bytes"],
                partition_values=values,
            )
            for path in change.replaced
        ]
        return adds + removes


def _check_supported(table: DeltaTable, name: str) -> list[str]:
    """Refuses what a commit would break; gives the partition columns."""
    protocol, metadata = table.protocol(), table.metadata()
    mode = metadata.configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise refused(name, "maps column names", got=f"mode `{mode}`")
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    unknown = sorted(features - _WRITER_FEATURES)
    if unknown:
        raise refused(name, "uses a feature that Plait does not support", got=f"`{unknown[0]}`")
    version = protocol.min_writer_version
    if version > _WRITER_VERSION_MAX and version != _WRITER_VERSION_LISTED:
        what = "uses a writer version that Plait does not support"
        raise refused(name, what, got=f"version {version}")
    return list(metadata.partition_columns)


def _bounds(rows: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """What the log says of all these files together, by column; where it says it of all."""
    found = {}
    for name in (name.removeprefix("min.") for name in rows[0] if name.startswith("min.")):
        filled = [row for row in rows if row.get(f"null_count.{name}") != row["num_records"]]
        lows = [row[f"min.{name}"] for row in filled]
        highs: list[Any] = [row.get(f"max.{name}") for row in filled]
        if filled and None not in (*lows, *highs):
            found[name] = (min(lows), max(highs))
    return found


def _text(value: object) -> str:
    text = logged(value)
    return _NULL if text is None else text
