"""Delta tables: one commit of the log replaces the files of a group.

newest version ──▶ supported? ──▶ statistics of outputs ──▶ commit, if all replaced files are live

Invariants: added files say that no data changed, unless rows were dropped; of removed ones see
`guard`. An output is as new as the newest file that it replaces. What the table says of its order
and of rows with one key holds unless the call says otherwise.
Not here: the log (`rust/delta`), statistics from footers (`statistics`).
"""

from __future__ import annotations

import json
import re
import secrets
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from plait._logs.delta import DeltaLog, LiveFile, Snapshot
from plait.errors import UnknownColumn
from plait.table.added import added as added_file
from plait.table.change import Change, Committed, Conflicted, Outcome
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

__all__ = ["DUPLICATES", "ORDER", "Delta"]

# Properties of a table: its order, and which of several rows with one key stays.
ORDER, DUPLICATES = "plait.sort_by", "plait.on_duplicate"
# Where removals that change data would be refused, or read as deleted rows.
_NO_GUARD = ("delta.appendOnly", "delta.enableChangeDataFeed")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]")


class Delta:
    """A Delta table."""

    format = "delta"
    is_in_place = True

    def __init__(self, uri: str, storage_options: object, *, guard: bool) -> None:
        """Takes the table; its log is read by `survey`."""
        self.name = uri.removeprefix("file://")
        self._storage_options = storage_options
        self._guard = guard
        self._opened: DeltaLog | None = None

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
        compaction = replace(compaction, options=_told(compaction, snapshot))
        is_ordered = compaction.options.on_duplicate != "keep_all"
        if is_ordered:
            # A compaction drops rows.
            snapshot = self._log.snapshot("delete")
        files = self._log.files("rewrite", order="commits" if is_ordered else "known")
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
            values = tuple((column, file.partition.get(column) or None) for column in columns)
            every[values].append(file)
        named = {v: {c: _NULL if text is None else text for c, text in v} for v in every}
        partitions = {values: every[values] for values in wanted(named, where)}
        scopes = []
        for values in sorted(partitions, key=str):
            members = tuple(self._file(file) for file in partitions[values])
            out = members[0].path.rpartition("/")[0]
            scopes.append(Scope(partition_name(named[values]), out, members))
        # What a file lacks is null in the table: its log says that the column is there.
        merge = {**compaction.options.merge_options, "missing_keys": "null"}
        groups = groups_of_all(scopes, compaction, merge)
        return Found.of_scopes(snapshot.version, scopes, groups, compaction)

    def _file(self, file: LiveFile) -> TableFile:
        return TableFile(file.name, self._log.location(file.name), file.rows, file.bytes)

    def leased(self, groups: Sequence[Group]) -> AbstractContextManager[Sequence[Group]]:
        """The groups as they are: what `VACUUM` or orphan removal spares is their age."""
        return nullcontext(groups)

    def is_live(self, group: Group) -> bool:
        """Whether the newest version has all files of the group."""
        names = [file.name for file in group.files]
        return len(self._log.files("rewrite", only=names)) == len(names)

    def commit(self, change: Change) -> Outcome:
        """Commits, if the replaced files count in the newest version."""
        app = f"plait.{change.token}"
        snapshot = self._log.snapshot("rewrite", apps=(app,))
        added = [self._log.name_of(output.path) for output in change.added]
        named = self._log.files("rewrite", only=[*added, *change.replaced])
        live = {file.name: file for file in named}
        if all(name in live for name in added) and live.keys().isdisjoint(change.replaced):
            return Committed(snapshot.version)
        gone = [name for name in change.replaced if name not in live]
        if gone:
            return Conflicted(f"`{gone[0]}` is not live any more")
        ended = self._log.commit(self._actions(change, added, live, snapshot))
        if ended["outcome"] == "conflicted":
            return Conflicted(ended["why"])
        return Committed(ended["version"])

    def _actions(
        self, change: Change, added: list[str], live: dict[str, LiveFile], snapshot: Snapshot
    ) -> dict[str, Any]:
        """The change as the log takes it."""
        replaced = [live[name] for name in change.replaced]
        settings = snapshot.properties
        bounds = _bounds(replaced)
        rows_in = [file.rows for file in replaced]
        rows_out = sum(output.rows for output in change.added)
        is_known = None not in rows_in
        drops = is_known and sum(n for n in rows_in if n is not None) != rows_out
        # Where the log does not say how many there were, some may have gone.
        drops = drops or (not is_known and settings.get(DUPLICATES, "keep_all") != "keep_all")
        # Other writers compare their removals with those of others only if these change data.
        is_guarded = self._guard and not any(settings.get(n) == "true" for n in _NO_GUARD)
        app = f"plait.{change.token}"
        names = list(change.replaced)
        add = [
            added_file(
                self._log,
                name,
                snapshot.schema,
                storage_options=self._storage_options,
                properties=settings,
                partition=replaced[0].partition,
                instead_of=names,
                bounds=bounds,
            )
            for name in added
        ]
        return {
            "intent": "delete" if drops else "rewrite",
            "operation": "OPTIMIZE",
            "parameters": {"predicate": change.scope},
            "metrics": {
                "numAddedFiles": len(add),
                "numRemovedFiles": len(names),
                "numOutputRows": rows_out,
            },
            "info": {"plait.task": change.token},
            "token": secrets.token_hex(16),
            "add": add,
            "remove": names,
            "removes_data": is_guarded or drops,
            "adds_data": drops,
            "txn": {"app": app, "number": snapshot.batches.get(app, 0) + 1},
        }


def _told(compaction: Compaction, snapshot: Snapshot) -> Any:  # noqa: ANN401 - the options
    """The options, with what the table says of its order where they say nothing."""
    options, said = compaction.options, snapshot.properties
    told: dict[str, Any] = {}
    if options.sort_by is None and said.get(ORDER):
        told["sort_by"] = said[ORDER]
    if said.get(DUPLICATES):
        told["on_duplicate"] = said[DUPLICATES]
    return replace(options, **told) if told else options


def _bounds(files: list[LiveFile]) -> dict[str, tuple[Any, Any]]:
    """What the log says of all these files together, by dotted column; where it says it of all."""
    parsed = [json.loads(file.stats) if file.stats else {} for file in files]
    lows = [_flat(stats.get("minValues")) for stats in parsed]
    highs = [_flat(stats.get("maxValues")) for stats in parsed]
    nulls = [_flat(stats.get("nullCount")) for stats in parsed]
    found = {}
    for name in sorted({name for low in lows for name in low}):
        filled = [i for i, file in enumerate(files) if nulls[i].get(name) != file.rows]
        low: list[Any] = [lows[i].get(name) for i in filled]
        high: list[Any] = [highs[i].get(name) for i in filled]
        values = [*low, *high]
        kinds = {str if isinstance(v, str) else float for v in values}
        texts = [v for v in values if isinstance(v, str) and _TIME.match(v)]
        # Times are compared as text only where they are written alike.
        are_alike = len(kinds) == 1 and (not texts or len({len(v) for v in values}) == 1)
        if filled and None not in values and are_alike:
            found[name] = (min(low), max(high))
    return found


def _flat(side: object, above: str = "") -> dict[str, Any]:
    """Nested values by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in side.items() if isinstance(side, dict) else ():
        if isinstance(value, dict):
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat
