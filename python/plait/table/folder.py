"""Plain folders: a manifest says which files count.

in place    events/a.parquet, b.parquet ──▶ events/_plait/files/part-….parquet, b and a replaced
into        whichever files             ──▶ out/_plait/files/part-….parquet, nothing replaced

Not here: manifests (`rust/parquet/src/compact`, `docs/formats/manifest.md`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path as LocalPath
from typing import Any

from plait import _native
from plait._api import _call, _settings
from plait._compact import Skipped, _refuse_tables
from plait._lease import Lease
from plait._plan import leased, plan_knowing
from plait.errors import InvalidArgument, OutputExists, SourceNotFound, UnknownColumn
from plait.order import sort_text
from plait.table.change import Change, Committed, Conflicted, Outcome
from plait.table.run import How
from plait.table.survey import Found, Group, TableFile, learn_nothing

__all__ = ["Folder", "Into"]

_MADE = "_plait/files"


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
            yield [replace(group, plan=leased(group.plan, lease.id)) for group in groups]

    def _commit(self, change: dict[str, Any]) -> dict[str, Any]:
        if self._lease is not None:
            return self._lease.commit(change)
        options = {"folder": self.name, **change}
        return _call(_native.commit, options, self._storage_options, None)


class Folder(_Leased):
    """A folder that is compacted in place."""

    format = "folder"
    is_in_place = True

    def __init__(self, root: str, storage_options: object) -> None:
        """Takes the folder; it is looked at by `survey`."""
        super().__init__(root, storage_options)
        self._footers: dict[str, str] = {}

    def survey(self, how: How) -> Found:
        """The groups that the policy finds."""
        _refuse_tables(self.name, self._storage_options)
        options = {
            "folder": self.name,
            "sort_by": sort_text(how.merge["sort_by"]),
            "memory_limit": how.merge["memory_limit"],
            "leave": how.left,
            **how.policy,
        }
        # With a slash it is a folder, whatever its name ends in.
        known = _learn([f"{self.name.rstrip('/')}/"], how, self._storage_options)
        found = _call(_native.survey, options, self._storage_options, None, known)
        _check_where(how.where, [scope["folder"] for scope in found["scopes"]])
        groups = [
            self._group(scope, group, how, known)
            for scope in found["scopes"]
            for group in scope["groups"]
            if _is_wanted(scope["folder"], how.where)
        ]
        skipped = tuple(Skipped(**skipped) for skipped in found["skipped"])
        return Found(found["manifest"], tuple(groups), skipped)

    def _group(
        self,
        scope: dict[str, Any],
        group: dict[str, Any],
        how: How,
        known: _native.Known | None,
    ) -> Group:
        chosen = [scope["files"][i] for i in group["files"]]
        self._footers |= {file["name"]: file["footer"] for file in chosen}
        files = tuple(TableFile(f["name"], f["path"], f["rows"], f["bytes"]) for f in chosen)
        out = "/".join(part for part in (self.name.rstrip("/"), _MADE, scope["folder"]) if part)
        merge = {**how.merge, "sort_by": scope["sort_by"] or []}
        made = plan_knowing([file.path for file in files], merge, known)
        return Group(scope["folder"], out, files, group["depth_max"], made)

    def commit(self, change: Change) -> Outcome:
        """Puts a manifest, unless a replaced file counts no more."""
        made = [output.path for output in change.added]
        gone = [{"name": n, "footer": self._footers.get(n, "")} for n in change.replaced]
        done = self._commit({"add": made, "replace": gone})
        manifest = done["manifest"]
        if done["committed"]:
            return Committed(manifest["number"])
        left = {replaced["path"] for replaced in manifest["replaced"]}
        if _below(self.name, made) <= _names(manifest) and left.issuperset(change.replaced):
            return Committed(manifest["number"])
        return Conflicted("files of the group were replaced or removed")


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

    def survey(self, how: How) -> Found:
        """All sources as one group, unless the folder has what it makes."""
        if how.where:
            raise InvalidArgument.of(
                "`where` goes without `out`", hint="name the folders to merge as sources"
            )
        if self._is_committed:
            return Found(self._manifest()["number"])
        learned = _learn(self._sources, how, self._storage_options)
        made = plan_knowing(self._sources, how.merge, learned)
        token = made.to_dict()["task"]
        self._part = f"-{token}"
        manifest = self._manifest()
        known = sorted(_names(manifest))
        if any(self._part in name for name in known):
            return Found(manifest["number"])
        if known and self._if_exists == "error":
            raise OutputExists.of(
                "the folder has files of another merge",
                got=f"`{self.name}`: `{known[0]}`",
                hint='write to another folder, or pass if_exists="add"',
            )
        files = tuple(TableFile(s.path, s.path, s.rows, s.bytes) for s in made.sources)
        out = f"{self.name.rstrip('/')}/{_MADE}"
        group = Group("", out, files, made.overlap.depth_max, made)
        return Found(manifest["number"], (group,) if made.tasks else ())

    def commit(self, change: Change) -> Outcome:
        """Puts a manifest that names the outputs, unless another job has put one for the same."""
        made = [output.path for output in change.added]
        done = self._commit({"add": made, "unless": self._part})
        self._is_committed = True
        return Committed(done["manifest"]["number"])

    def _manifest(self) -> dict[str, Any]:
        options = {"folder": self.name}
        found = _call(_native.commit, options, self._storage_options, None)["manifest"]
        return dict(found)


def _learn(sources: list[str], how: How, storage_options: object) -> _native.Known | None:
    """What others read of the files that `sources` name; nothing where that is not worth it."""
    if how.learn is learn_nothing:
        return None
    options = json.dumps({"sources": sources, "storage_options": _settings(storage_options)})
    try:
        paths = json.loads(_native.list_sources(options))
    except SourceNotFound:
        return None  # whoever plans tells, or takes it for an empty folder
    return how.learn(paths, how.merge)


def _names(manifest: dict[str, Any]) -> set[str]:
    """What compactions made, by path below the folder."""
    return {made["path"] for made in manifest["files"]}


def _below(root: str, paths: list[str]) -> set[str]:
    return {path.removeprefix(root.rstrip("/") + "/") for path in paths}


def _check_where(where: dict[str, tuple[str, ...]], folders: list[str]) -> None:
    columns = {p.split("=", 1)[0] for folder in folders for p in folder.split("/") if "=" in p}
    unknown = sorted(set(where) - columns) if folders else []
    if unknown:
        raise UnknownColumn.of(
            "`where` names what the folder is not partitioned by",
            got=f"`{unknown[0]}`",
            hint=f"partition columns: {', '.join(sorted(columns)) or 'none'}",
        )


def _is_wanted(folder: str, where: dict[str, tuple[str, ...]]) -> bool:
    values = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
    return all(values.get(column) in wanted for column, wanted in where.items())
