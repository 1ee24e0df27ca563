"""Delta tables: one commit of the log replaces the files of groups.

newest version ──▶ supported? ──▶ statistics of outputs ──▶ commit, if all replaced files are live

Invariants: added files say that no data changed, unless rows were dropped; of removed ones see
`guard`. Rows that others delete meanwhile are deleted from the outputs by the same commit. An
output is as new as the newest file that it replaces. What the table says of its order and of rows
with one key holds unless the call says otherwise.
Not here: which rows of outputs others deleted (`deletes`); the log, and statistics of outputs
(`rust/delta`).
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from plait._logs.columns import vectors_of
from plait._logs.delta import DUPLICATES, ORDER, DeltaLog, LiveFile, NewFile, Snapshot
from plait._table_properties import order_of_files, rules_of
from plait.errors import UnknownColumn
from plait.order import sort_text
from plait.table.casting import cast_files
from plait.table.change import (
    Change,
    Committed,
    Conflicted,
    Outcome,
    Retryable,
    is_final,
    token_of,
)
from plait.table.deletes import DeletedRows, Touched, all_carried, carry
from plait.table.groups import Compaction, Found, Group, Scope, TableFile
from plait.table.mapped import by_names_of_files, by_names_of_table, check_files
from plait.table.survey import groups_of_all, partition_name, wanted

__all__ = ["Delta"]

# Where removals that change data would be refused, or read as deleted rows.
_NO_GUARD = ("delta.appendOnly", "delta.enableChangeDataFeed")
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class _Carried:
    """What became of deletes.

    Attributes:
        replaced: The replaced files as they are live now.
        deleted: Deleted rows of outputs, by path.
    """

    replaced: tuple[LiveFile, ...]
    deleted: dict[str, DeletedRows]

    @property
    def rows(self) -> int:
        """How many rows of the outputs are deleted."""
        return sum(gone.rows for gone in self.deleted.values())


@dataclass(frozen=True)
class _Made:
    """A change as the log takes it.

    Attributes:
        add: Its new files.
        remove: The files that go, by id.
        rows: Rows of the new files.
        drops: Whether rows are lost by it, such as those of duplicate keys.
    """

    add: list[dict[str, Any]]
    remove: list[str]
    rows: int
    drops: bool


class Delta:
    """A Delta table."""

    format = "delta"
    is_in_place = True

    def __init__(self, uri: str, storage_options: object, *, guard: bool) -> None:
        """Takes the table; its log is read by `survey`."""
        self.name = uri.removeprefix("file://")
        self._storage_options = storage_options
        self._guard = guard
        # Files that are to be merged have the types of the table by then.
        self._is_cast = False
        self._opened: DeltaLog | None = None
        # Files as they were when they were surveyed, by id; and whether row maps stay.
        self._seen: dict[str, LiveFile] = {}
        self._keeps_maps = False
        # Whether rows of one key become one.
        self._combines = False
        # Files that have the columns of the table as it says, by name.
        self._fitting: set[str] = set()

    @property
    def _log(self) -> DeltaLog:
        if self._opened is None:
            self._opened = DeltaLog(self.name, self._storage_options)
            self.name = self._opened.root
        return self._opened

    def survey(self, compaction: Compaction) -> Found:
        """The groups that the policy finds in each partition."""
        where = compaction.options.partitions
        snapshot = self._log.snapshot("rewrite")
        if compaction.options.yes and not self._is_cast:
            self._is_cast = True
            removal = {"removes_data": self._is_guarded(snapshot), "adds_data": False}
            if cast_files(self._log, self._storage_options, removal):
                snapshot = self._log.snapshot("rewrite")
        compaction = replace(compaction, options=_with_rules(compaction, snapshot, self.name))
        compaction = by_names_of_files(compaction, snapshot)
        is_ordered = compaction.options.on_duplicate != "keep_all"
        self._combines = compaction.options.on_duplicate in ("update", "aggregate")
        if is_ordered:
            # A compaction drops rows.
            snapshot = self._log.snapshot("delete")
        files = self._log.files(
            "rewrite", order="commits" if is_ordered else "known", deleted="list"
        )
        self._seen = {file.id: file for file in files}
        self._keeps_maps = compaction.options.row_map
        columns = snapshot.partition_columns
        unknown = sorted(set(where) - set(columns))
        if unknown:
            raise UnknownColumn.of(
                "the table has no such partition column",
                got=f"`{unknown[0]}`",
                hint=f"partition columns: {', '.join(columns) or 'none'}",
            )
        every = defaultdict(list)
        for file in files:
            every[tuple(snapshot.values_of(file).items())].append(file)
        named = {v: {c: _NULL if text is None else text for c, text in v} for v in every}
        partitions = {values: every[values] for values in wanted(named, where)}
        asked = [file for members in partitions.values() for file in members]
        check_files(self._log, asked, snapshot, compaction, self._fitting)
        scopes = []
        for values in sorted(partitions, key=str):
            members = tuple(self._file(file) for file in partitions[values])
            out = members[0].path.rpartition("/")[0]
            scopes.append(Scope(partition_name(named[values]), out, members))
        # What a file lacks is null in the table: its log says that the column is there.
        located = {self._log.location(file.name): file for file in files}
        merge = {
            **compaction.options.merge_options,
            "missing_keys": "null",
            "row_map": True,
            "deletion_vectors": vectors_of(self.name, located),
        }
        with snapshot.names.in_errors():
            groups = groups_of_all(scopes, compaction, merge)
        groups = by_names_of_table(groups, compaction, snapshot)
        return Found.of_scopes(snapshot.version, scopes, groups, compaction)

    def _file(self, file: LiveFile) -> TableFile:
        deleted = 0 if file.deleted is None else file.deleted["rows"]
        where = self._log.location(file.name)
        return TableFile(file.id, where, file.rows, file.bytes, deleted)

    def leased(self, groups: Sequence[Group]) -> AbstractContextManager[Sequence[Group]]:
        """The groups as they are: what `VACUUM` or orphan removal spares is their age."""
        return nullcontext(groups)

    def is_live(self, group: Group) -> bool:
        """Whether the newest version has all files of the group."""
        names = [file.name for file in group.files]
        return len(self._log.files("rewrite", only=names, deleted="list")) == len(names)

    def commit(self, changes: Sequence[Change]) -> Outcome:
        """Commits, if the replaced files count in the newest version."""
        outcome = self._commit(changes)
        if is_final(outcome, changes) and not self._keeps_maps:
            maps = [o.row_map for change in changes for o in change.added if o.row_map]
            self._log.remove(map(self._log.name_of, maps))
        return outcome

    def _commit(self, changes: Sequence[Change]) -> Outcome:
        log = self._log
        snapshot = log.snapshot("rewrite", apps=(_app(changes),))
        added = [log.name_of(output.path) for change in changes for output in change.added]
        gone = [name for change in changes for name in change.replaced]
        there = log.files("rewrite", names=added, deleted="list")
        replaced = log.files("rewrite", only=gone, deleted="list")
        if len(there) == len(added) and not replaced:
            return Committed(snapshot.version)
        names = [self._seen[name].name for name in gone]
        live = {file.name: file for file in log.files("rewrite", names=names, deleted="list")}
        carried = all_carried(self._carried(change, live) for change in changes)
        if isinstance(carried, str):
            return Conflicted(carried)
        made = self._made(list(zip(changes, carried, strict=True)), snapshot)
        if len({one.drops for one in made}) > 1:
            # A commit says of all its files whether rows changed.
            return Conflicted("only some of the groups lose rows")
        ended = log.commit(self._actions(changes, made, snapshot))
        if ended["outcome"] == "conflicted":
            # Looked at again: rows of a file may have been deleted since.
            return Retryable(ended["why"])
        return Committed(ended["version"])

    def _carried(self, change: Change, now: Mapping[str, LiveFile]) -> _Carried | str:
        """The replaced files as they are now, and rows of the outputs that others deleted."""
        log, then = self._log, [self._seen[name] for name in change.replaced]
        names = [file.name for file in then]
        gone = [name for name in names if name not in now]
        if gone:
            return f"`{gone[0]}` is not live any more"
        places = {log.location(f.name): f for f in then if now[f.name].id != f.id}
        old = vectors_of(log.root, places)
        new = vectors_of(log.root, {where: now[file.name] for where, file in places.items()})
        touched = [Touched(path, old.get(path), new.get(path)) for path in places]
        if touched and self._combines and _rows(then) != sum(o.rows for o in change.added):
            # Values of a row may be in the row that was made of several.
            return f"rows of `{touched[0].path}` were deleted, and rows were combined"
        deleted = carry(touched, change.added, "bitmap", self._storage_options)
        if isinstance(deleted, str):
            return deleted
        return _Carried(tuple(now[name] for name in names), deleted)

    def _actions(
        self, changes: Sequence[Change], made: Sequence[_Made], snapshot: Snapshot
    ) -> dict[str, Any]:
        """The changes as the log takes them."""
        add = [entry for one in made for entry in one.add]
        names = [name for one in made for name in one.remove]
        drops = any(one.drops for one in made)
        app, scopes = _app(changes), {change.scope for change in changes}
        return {
            "intent": "delete" if drops else "rewrite",
            "operation": "OPTIMIZE",
            "parameters": {"predicate": scopes.pop() if len(scopes) == 1 else ""},
            "metrics": {
                "numAddedFiles": len(add),
                "numRemovedFiles": len(names),
                "numOutputRows": sum(one.rows for one in made),
            },
            "info": {"plait.task": ",".join(change.token for change in changes)},
            "token": secrets.token_hex(16),
            "add": add,
            "remove": names,
            "removes_data": self._is_guarded(snapshot) or drops,
            "adds_data": drops,
            "txn": {"app": app, "number": snapshot.batches.get(app, 0) + 1},
        }

    def _made(self, changes: Sequence[tuple[Change, _Carried]], snapshot: Snapshot) -> list[_Made]:
        """Each of the changes as the log takes it."""
        log, settings = self._log, snapshot.properties
        new = []
        for change, carried in changes:
            partition = snapshot.partition_of(carried.replaced[0])
            ids = [file.id for file in carried.replaced]
            new += [NewFile(log.name_of(o.path), partition, ids) for o in change.added]
        entries = iter(log.added(new, snapshot.schema_text, properties=settings))
        return [_made_of(*each, entries, settings) for each in changes]

    def _is_guarded(self, snapshot: Snapshot) -> bool:
        """Whether removed files are logged as changed data.

        Other writers compare their removals with those of others only if these change data.
        """
        said = snapshot.properties
        return self._guard and not any(said.get(name) == "true" for name in _NO_GUARD)


def _made_of(
    change: Change,
    carried: _Carried,
    entries: Iterator[dict[str, Any]],
    settings: Mapping[str, str],
) -> _Made:
    """A change as the log takes it; `entries` go on with those of its new files."""
    rows_in = [file.rows for file in carried.replaced]
    rows_out = sum(output.rows for output in change.added) - carried.rows
    is_known = None not in rows_in
    drops = is_known and sum(n for n in rows_in if n is not None) != rows_out
    # Where the log does not say how many there were, some may have gone.
    drops = drops or (not is_known and settings.get(DUPLICATES, "keep_all") != "keep_all")
    add = []
    for output, entry in zip(change.added, entries, strict=False):
        gone = carried.deleted.get(output.path)
        add.append(entry | {"deleted": gone and {"bitmap": gone.encoded, "rows": gone.rows}})
    return _Made(add, [file.id for file in carried.replaced], rows_out, drops)


def _app(changes: Sequence[Change]) -> str:
    return f"plait.{token_of(changes)}"


def _rows(files: Sequence[LiveFile]) -> int | None:
    """Rows of files that are not deleted, if the log says so of all."""
    rows = [file.rows for file in files]
    known = [count for count in rows if count is not None]
    return sum(known) if len(known) == len(rows) else None


def _with_rules(compaction: Compaction, snapshot: Snapshot, name: str) -> Any:  # noqa: ANN401 - options
    """The options, with what the table says of its order where they say nothing, and its rules."""
    options, said = compaction.options, snapshot.properties
    found: dict[str, Any] = {}
    order = said.get(ORDER) if options.sort_by is None else sort_text(options.sort_by)
    # Files do not have partition columns.
    if order is not None:
        found["sort_by"] = order_of_files(order, snapshot.partition_columns)
    rules = rules_of(said, name, snapshot.schema)
    if rules.on_duplicate is not None:
        found |= rules.options()
    return replace(options, **found) if found else options
