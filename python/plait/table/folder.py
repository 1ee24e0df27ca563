"""Plain folders: a manifest says which files are live.

in place    events/a.parquet, b.parquet ──▶ events/_plait/files/part-….parquet, b and a replaced
into        whichever files             ──▶ out/_plait/files/part-….parquet, nothing replaced

Not here: manifests (`rust/parquet/src/compact`, `docs/formats/manifest.md`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path as LocalPath
from typing import Any
from urllib.parse import unquote

from plait import _native, _stores
from plait._lease import Lease
from plait._native_call import _call, _settings
from plait._plan import Plan, entries, token_of, with_level
from plait._planning import checked_options, plan_knowing
from plait.errors import (
    ForeignTable,
    InvalidArgument,
    OutputExists,
    SourceChanged,
    SourceNotFound,
    UnknownColumn,
    UnsortedSource,
)
from plait.table.change import Change, Committed, Conflicted, Outcome
from plait.table.groups import Compaction, Found, Group, Scope, TableFile, no_prefetch, skipped_of
from plait.table.progress import Watch
from plait.table.reasons import Alike, reasons
from plait.table.report import Skipped
from plait.table.sorting import Look, Seen, look, task_of
from plait.table.survey import left_alone, no_partition, of_partition

__all__ = ["Folder", "Into", "reached", "refuse_tables"]

_MADE = "_plait/files"
# What tells a file that is to be replaced from another of its name.
_VERSION = ("footer", "bytes", "version")


class _Leased:
    """A folder in which files are made under a lease."""

    def __init__(self, root: str, storage_options: object) -> None:
        self.name = root
        self._storage_options = storage_options
        self._lease: Lease | None = None

    @contextmanager
    def leased(self, groups: Sequence[Group]) -> Iterator[Sequence[Group]]:
        """The groups with plans whose outputs may come to count while this lasts."""
        with Lease(self.name, self._storage_options, len(groups)) as lease:
            self._lease = lease
            yield [group.leased(lease.id) for group in groups]

    def _commit(self, change: dict[str, Any], groups: int) -> dict[str, Any]:
        if self._lease is not None:
            return self._lease.commit(change, groups)
        options = {"folder": self.name, **change}
        return _call(_native.commit, options, self._storage_options, None)


class Folder(_Leased):
    """A folder that is compacted in place."""

    format = "folder"
    is_in_place = True

    def __init__(self, root: str, storage_options: object) -> None:
        """Takes the folder; it is looked at by `survey`."""
        super().__init__(root, storage_options)
        # What the survey says of files, by name.
        self._seen: dict[str, tuple[object, ...]] = {}

    def survey(self, compaction: Compaction) -> Found:
        """The groups that the policy finds."""
        refuse_tables(self.name, self._storage_options, "leave out `format`")
        wanted = compaction.options
        options = {
            "folder": self.name,
            "leave": compaction.left,
            **wanted.policy_options,
            "sorted": sorted(compaction.sorted),
            # What it says of rows is checked by the survey, and so in a dry run, too.
            "merge": checked_options(wanted.merge_options),
        }
        # With a slash it is a folder, whatever its name ends in.
        known = _prefetched([f"{self.name.rstrip('/')}/"], compaction, self._storage_options)
        try:
            planning = compaction.watch.planning
            found = _call(_native.survey, options, self._storage_options, planning, known)
        except UnknownColumn as error:
            raise of_partition(error, self._names()) from None
        skipped = tuple(Skipped(**skipped) for skipped in found["skipped"])
        if wanted.unsorted != "error":
            files = (file for scope in found["scopes"] for file in scope["files"])
            compaction.sorted.update(file["path"] for file in files if file["is_sorted"])
        folders = {scope["folder"] for scope in found["scopes"]}
        _check_where(wanted.partitions, sorted(folders), is_all=not skipped)
        scopes = [s for s in found["scopes"] if _is_wanted(s["folder"], wanted.partitions)]
        groups = [
            self._group(scope, group, compaction, known)
            for scope in scopes
            for group in scope["groups"]
        ]
        alike = [
            Alike(
                scope["folder"],
                scope["sort_by"],
                tuple((file["bytes"], file["merge_level"]) for file in scope["files"]),
                bool(scope["groups"]),
                tuple(map(tuple, scope["columns"])),
            )
            for scope in scopes
        ]
        count = sum(len(scope["files"]) for scope in scopes) + len(skipped)
        why = reasons(wanted.policy_options, alike)
        return Found(found["manifest"], tuple(groups), skipped, count, why)

    def _names(self) -> list[str]:
        """The locations of all files."""
        named = {"sources": [f"{self.name.rstrip('/')}/"]}
        options = {**named, "storage_options": _settings(self._storage_options)}
        return list(json.loads(_native.list_sources(json.dumps(options))))

    def _group(
        self,
        scope: dict[str, Any],
        group: dict[str, Any],
        compaction: Compaction,
        known: _native.Known | None,
    ) -> Group:
        chosen = [scope["files"][i] for i in group["files"]]
        self._seen |= {f["name"]: tuple(f[of] for of in _VERSION) for f in chosen}
        files = tuple(TableFile(f["name"], f["path"], f["rows"], f["bytes"]) for f in chosen)
        merge = {
            **compaction.options.merge_options,
            "storage_options": self._storage_options,
            "sort_by": scope["sort_by"] or [],
            "keep_tombstones": group["keep_tombstones"],
            "absent_columns": scope["absent_columns"],
        }
        # A file that is rewritten for its expired rows alone keeps its level.
        level = chosen[0]["merge_level"] if group["why"] == "expired" else None
        return Group(
            scope=scope["folder"],
            out=scope["out"],
            files=files,
            sort_by=scope["sort_by"],
            rows=sum(file["rows"] for file in chosen),
            depth_max=group["depth_max"],
            make_plan=None
            if group["why"] == "all_expired"
            else partial(_planned, files, merge, known, level, compaction.watch),
            merge=merge,
            seen=Seen(
                unsorted=tuple(file["path"] for file in chosen if not file["is_sorted"]),
                footers={file["path"]: file["footer"] for file in chosen},
            ),
        )

    def is_live(self, group: Group) -> bool:
        """Whether no file of the group was replaced or removed."""
        gone = self._gone([file.name for file in group.files])
        options = {"folder": self.name, "changes": [{"replace": gone}], "check": True}
        return bool(_call(_native.commit, options, self._storage_options, None)["counts"])

    def commit(self, changes: Sequence[Change]) -> Outcome:
        """Writes a manifest, unless a replaced file is not live any more."""
        asked = [
            {"add": [o.path for o in change.added], "replace": self._gone(change.replaced)}
            for change in changes
        ]
        done = self._commit({"changes": asked}, len(changes))
        manifest = done["manifest"]
        if done["committed"]:
            return Committed(manifest["number"])
        made = [output.path for change in changes for output in change.added]
        replaced = [name for change in changes for name in change.replaced]
        gone = {of["path"] for of in manifest["replaced"]}
        is_mine = bool(made) and _below(self.name, made) <= _names(manifest)
        if is_mine and gone.issuperset(replaced):
            return Committed(manifest["number"])
        return Conflicted("files of the groups were replaced or removed")

    def _gone(self, names: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {"name": name, **dict(zip(_VERSION, self._seen.get(name, ()), strict=False))}
            for name in names
        ]


class Into(_Leased):
    """Files that are merged into a folder of their own."""

    format = "folder"
    is_in_place = False

    def __init__(self, sources: list[str], out: str, if_exists: str, storage: object) -> None:
        """Takes the sources, and the folder, which is made if it is absent."""
        super().__init__(out, storage)
        self._sources = sources
        self._if_exists = if_exists
        self._is_committed = False
        self._part: str | None = None
        if "://" not in out:
            LocalPath(out).mkdir(parents=True, exist_ok=True)

    def survey(self, compaction: Compaction) -> Found:
        """All sources as one group, unless the folder has what it makes."""
        if compaction.options.partitions:
            raise InvalidArgument.of(
                "`where` goes without `out`", hint="name the folders to merge as sources"
            )
        if not compaction.options.limits.is_open:
            raise InvalidArgument.of(
                "`max_bytes`, `max_groups` and `max_seconds` go without `out`",
                hint="all sources are one group: name fewer of them",
            )
        if compaction.options.has_commit_interval:
            raise InvalidArgument.of(
                "`min_commit_interval` goes without `out`", hint="all sources are one group"
            )
        if self._is_committed:
            return Found(self._manifest()["number"], skipped=skipped_of(compaction.left))
        known = _prefetched(self._sources, compaction, self._storage_options)
        merge = compaction.options.merge_options
        made = self._planned_or_seen(merge, known, compaction)
        if made is None:
            return Found(self._manifest()["number"], (), skipped_of(compaction.left))
        token = task_of(made, merge) if isinstance(made, Look) else token_of(made)
        self._part = f"-{token}"
        manifest = self._manifest()
        live = sorted(_names(manifest))
        if any(self._part in name for name in live):
            return Found(manifest["number"], skipped=skipped_of(compaction.left))
        if live and self._if_exists == "error":
            raise OutputExists.of(
                "the folder has files of another merge",
                got=f"`{self.name}`: `{live[0]}`",
                hint='write to another folder, or pass if_exists="add"',
            )
        files = tuple(_files(made))
        scope = Scope("", f"{self.name.rstrip('/')}/{_MADE}", files)
        skipped = skipped_of(compaction.left)
        if isinstance(made, Look):
            group = Group.of_look(scope, files, made, merge)
            named = replace(group.seen, naming={"task": token})
            return Found(manifest["number"], (replace(group, seen=named),), skipped)
        groups = (Group.of_plan(scope, files, made, merge),) if made.tasks else ()
        return Found(manifest["number"], groups, skipped)

    def _planned_or_seen(
        self, merge: Mapping[str, Any], known: _native.Known | None, compaction: Compaction
    ) -> Plan | Look | None:
        """The plan of the sources, or what was seen of them if some are to be sorted.

        `None` if all of them are left alone.
        """
        unsorted, planning = compaction.options.unsorted, compaction.watch.planning
        sources = self._sources
        if unsorted != "error":
            listed = {"sources": sources, "storage_options": _settings(self._storage_options)}
            paths = [
                path
                for path in json.loads(_native.list_sources(json.dumps(listed)))
                if path not in compaction.left
            ]
            try:
                seen = look(
                    paths, {**merge, "unsorted": unsorted}, compaction.sorted, known, planning
                )
            except UnsortedSource as error:
                compaction.left.update(left_alone(error, paths))
                sources = [path for path in paths if path not in compaction.left]
            else:
                if not all(file.is_sorted for file in seen.files):
                    return seen
                sources = paths
            if not sources:
                return None
        return plan_knowing(sources, merge, known, planning)

    def is_live(self, _group: Group) -> bool:
        """Sources of another folder are nobody's to replace: what is missing is an error."""
        return True

    def commit(self, changes: Sequence[Change]) -> Outcome:
        """Puts a manifest that names the outputs, unless another job has put one for the same."""
        made = [output.path for change in changes for output in change.added]
        done = self._commit({"changes": [{"add": made}], "unless": self._part}, len(changes))
        self._is_committed = True
        return Committed(done["manifest"]["number"])

    def _manifest(self) -> dict[str, Any]:
        options = {"folder": self.name}
        found = _call(_native.commit, options, self._storage_options, None)["manifest"]
        return dict(found)


def reached(folder: str, storage_options: object) -> tuple[str, object]:
    """The folder and the settings that calls of the engine need: a store is looked at once."""
    if not _stores.is_store(storage_options):
        return folder, storage_options
    prefix, settings, bucket = _stores.reach(storage_options)
    return _stores.named(prefix, folder), settings if bucket is None else storage_options


def refuse_tables(root: str, storage_options: object, hint: str) -> None:
    """Refuses local folders whose live files a log of Delta or Iceberg lists."""
    if "://" in root or _stores.is_store(storage_options):
        return
    for kind, is_there in (
        ("Delta", LocalPath(root, "_delta_log").is_dir()),
        ("Iceberg", any(LocalPath(root, "metadata").glob("*.metadata.json"))),
    ):
        if is_there:
            error = ForeignTable.of(f"`{root}` is a table of {kind}, not a plain folder", hint=hint)
            error.path = root
            raise error


def _planned(
    files: Sequence[TableFile],
    merge: Mapping[str, Any],
    known: _native.Known | None,
    level: int | None,
    watch: Watch,
) -> Plan:
    made = plan_knowing([file.path for file in files], merge, known, watch.planning)
    rows = {file.path: file.rows for file in files}
    for file in _files(made):
        if file.rows != rows[file.path]:
            error = SourceChanged.of(
                "a file was replaced after it was surveyed",
                got=f"{file.rows} rows instead of {rows[file.path]}",
                hint="compact when less is written",
            )
            error.path = file.path
            raise error
    return made if level is None else with_level(made, level)


def _files(made: Plan | Look) -> Iterator[TableFile]:
    if isinstance(made, Look):
        return (TableFile(file.path, file.path, file.rows, file.bytes) for file in made.files)
    return (TableFile(s["path"], s["path"], s["rows"], s["bytes"]) for s in entries(made))


def _prefetched(
    sources: list[str], compaction: Compaction, storage_options: object
) -> _native.Known | None:
    """What others read of the files that `sources` name; nothing where that is not worth it."""
    if compaction.prefetch is no_prefetch:
        return None
    options = json.dumps({"sources": sources, "storage_options": _settings(storage_options)})
    try:
        paths = json.loads(_native.list_sources(options))
    except SourceNotFound:
        return None  # planning reports it, or takes it for an empty folder
    return compaction.prefetch(paths, compaction.options.merge_options)


def _names(manifest: dict[str, Any]) -> set[str]:
    """What compactions made, by path below the folder."""
    return {made["path"] for made in manifest["files"]}


def _below(root: str, paths: list[str]) -> set[str]:
    return {path.removeprefix(root.rstrip("/") + "/") for path in paths}


def _check_where(where: dict[str, tuple[str, ...]], folders: list[str], *, is_all: bool) -> None:
    """Refuses partitions that are not there, if all folders are known."""
    columns = {p.split("=", 1)[0] for folder in folders for p in folder.split("/") if "=" in p}
    unknown = sorted(set(where) - columns) if folders else []
    if unknown:
        raise UnknownColumn.of(
            "the folder has no such partition column",
            got=f"`{unknown[0]}`",
            hint=f"partition columns: {', '.join(sorted(columns)) or 'none'}",
        )
    if is_all and folders and not any(_is_wanted(folder, where) for folder in folders):
        raise no_partition(where, folders)


def _is_wanted(folder: str, where: dict[str, tuple[str, ...]]) -> bool:
    values = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
    # As the folder is called, or as its value reads: `a%20b` is `a b`.
    return all(
        {values.get(column), unquote(values.get(column, ""))} & {*wanted}
        for column, wanted in where.items()
    )
