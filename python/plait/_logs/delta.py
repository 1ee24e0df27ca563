"""The log of a Delta table, as the engine reads it.

Not here: which files a log makes live, and commits (`rust/delta`). Source: the Delta transaction
log protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, Literal
from urllib.parse import quote, unquote

from plait import _native, _stores
from plait._logs.names import Names
from plait._native_call import _settings

__all__ = ["DUPLICATES", "ORDER", "RULES", "DeltaLog", "Intent", "LiveFile", "Snapshot", "There"]

# Properties of a table: its order, which of several rows with one key stays, and how columns of
# these rows are combined.
ORDER, DUPLICATES = "plait.sort_by", "plait.on_duplicate"
RULES = "plait.duplicate_rules"

# Tells the folder of a table from one of files before there is a version; no reader looks at it.
_BEGUN = "_delta_log/.plait-begun"

# What is to be done with the table: what of it cannot be kept is refused before any work.
Intent = Literal["read", "scan", "rewrite", "append", "delete"]


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file.

    Attributes:
        name: Its path below the table.
        id: What a commit removes: the name, and the deletion vector if there is one.
        bytes: Its length.
        rows: Its rows that are not deleted, if the log says so.
        partition: Values of partition columns, by the names that the log has: see `Names`.
        version: The version that its newest rows came with, if that is known.
        deleted: Its deletion vector, as calls of the engine take it but for the location, which is
            below the table unless it is absolute.
    """

    name: str
    id: str
    bytes: int
    rows: int | None
    partition: dict[str, str | None]
    version: int | None
    deleted: dict[str, Any] | None


@dataclass(frozen=True)
class Snapshot:
    """A table at one version, without its files.

    Attributes:
        version: The version.
        schema: The schema, as the log has it.
        properties: Properties of the table.
        partition_columns: Columns that files do not have.
        files: Number of live files.
        batches: The last batch of each application that was asked for.
        names: The names of columns in the table and in files, if these are mapped.
    """

    version: int
    schema: dict[str, Any]
    schema_text: str
    properties: dict[str, str]
    partition_columns: list[str]
    files: int
    batches: dict[str, int]
    names: Names = field(default_factory=Names)

    def partition_of(self, file: LiveFile) -> dict[str, str | None]:
        """The value of each partition column, as the log has it; some writers leave out nulls."""
        columns = map(self.names.stored, self.partition_columns)
        return {column: file.partition.get(column) for column in columns}

    def values_of(self, file: LiveFile) -> dict[str, str | None]:
        """The same by the names of the table; empty is null, as the protocol says."""
        values = self.partition_of(file).values()
        return {c: text or None for c, text in zip(self.partition_columns, values, strict=True)}


@dataclass(frozen=True)
class Looked:
    """What footers of files say of columns that are mapped.

    Attributes:
        unfit: Files that cannot be read, or have other columns, and why.
        without_zone: Field ids of columns in which a file has times without a zone.
    """

    unfit: dict[str, str]
    without_zone: set[int]


@dataclass(frozen=True)
class NewFile:
    """A file that a commit adds.

    Attributes:
        name: Its path below the table.
        partition: Values of partition columns, by the names that the log has.
        instead_of: Files that are removed, and of which this one has the rows.
    """

    name: str
    partition: Mapping[str, str | None] = field(default_factory=dict)
    instead_of: Sequence[str] = ()


@dataclass(frozen=True)
class There:
    """What lies in a folder.

    Attributes:
        visible: Names of Parquet files that may be of the table.
        hidden: Names of all other files.
        known: Names of files that the log says to be live or removed.
    """

    visible: list[str]
    hidden: list[str]
    known: list[str]


class DeltaLog:
    """The log of a table. Nothing is read before something is asked."""

    def __init__(self, name: str, storage_options: object) -> None:
        """Opens the log of the table in a folder.

        Raises:
            SourceNotFound: There is no such folder.
        """
        self.root = name
        bucket: object = None
        settings: dict[str, str]
        if _stores.is_store(storage_options):
            prefix, settings, bucket = _stores.reach(storage_options)
            self.root = _stores.named(prefix, name)
        else:
            settings = _settings(storage_options)
        self._options = json.dumps({"folder": self.root, "storage_options": settings})
        self._bucket = bucket
        self._native = _native.DeltaLog(self._options, bucket)

    def snapshot(
        self, intent: Intent = "read", *, version: int | None = None, apps: tuple[str, ...] = ()
    ) -> Snapshot:
        """The table at a version, the newest by default.

        Raises:
            SourceNotFound: There is no table, or no such version.
            Unsupported: The table has what would not be kept.
        """
        asked = {"intent": intent, "version": version, "apps": apps}
        found = json.loads(self._native.snapshot(json.dumps(asked)))
        metadata = found["metadata"]
        return Snapshot(
            version=found["version"],
            schema=json.loads(metadata["schemaString"]),
            schema_text=metadata["schemaString"],
            properties={k: v for k, v in metadata["configuration"].items() if v is not None},
            partition_columns=metadata["partitionColumns"],
            files=found["files"],
            batches=found["batches"],
            names=Names.of(found["names"]),
        )

    def files(
        self,
        intent: Intent = "read",
        *,
        version: int | None = None,
        order: Literal["known", "commits"] = "known",
        only: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        deleted: Literal["refuse", "list"] = "refuse",
    ) -> list[LiveFile]:
        """The live files, from the oldest rows to the newest.

        Args:
            intent: What is to be done with them.
            version: The version; the newest by default.
            order: Whether commits may be read to find the order, if a checkpoint does not say it.
            only: Ids of files that alone are asked for, if they are live.
            names: Names of files that alone are asked for, whatever rows of them are deleted.
            deleted: What becomes of files with deleted rows: `list` for whoever leaves these out.

        Raises:
            Unsupported: A file has deleted rows and is not to be listed, or lies elsewhere.
        """
        asked = {"intent": intent, "version": version, "order": order, "only": only}
        asked |= {"names": names, "deleted": deleted}
        return self._listed(asked)[0]

    def files_with(
        self,
        where: str,
        keys: Sequence[str] | None,
        *,
        version: int | None,
        order: Literal["known", "commits"],
    ) -> tuple[list[LiveFile], int]:
        """The live files but for those that have no row of a condition, by what the log says.

        Files with deleted rows are listed: whoever reads them leaves these out.

        Args:
            where: The condition, as the engine reads it.
            keys: Columns whose conditions may leave out files; `None` for all.
            version: See `files`.
            order: See `files`.

        Returns:
            The files, and the number of those that are left out.

        Raises:
            Unsupported: See `files`.
        """
        asked = {"version": version, "order": order, "where": where, "keys": keys}
        asked["deleted"] = "list"
        return self._listed(asked)

    def _listed(self, asked: Mapping[str, object]) -> tuple[list[LiveFile], int]:
        found = json.loads(self._native.files(json.dumps(asked)))
        partitions = found["partitions"]
        names: list[str] = found.pop("name")
        ids, vectors = list(names), [None] * len(names)
        for i, (id_, vector) in found.pop("deleted").items():
            ids[int(i)], vectors[int(i)] = id_, vector
        columns = [names, ids, found.pop("bytes"), found.pop("rows")]
        columns += [[partitions[i] for i in found.pop("partition")], found.pop("version_of")]
        files = list(starmap(LiveFile, zip(*columns, vectors, strict=True)))
        return files, found["left_out"]

    def check_columns(self, names: Sequence[str], *, by_ids: bool = False) -> Looked:
        """Looks whether files have the columns of the table, if it is mapped; reads footers.

        Args:
            names: The files.
            by_ids: Whether all columns must be found by their field ids. Then a file that has
                others is an error.

        Raises:
            Unsupported: By field ids, a file has other columns than the table.
        """
        asked = {"names": list(names), "by_ids": by_ids}
        looked = json.loads(self._native.check_columns(json.dumps(asked)))
        return Looked(looked["unfit"], set(looked["without_zone"]))

    def added(
        self, files: Iterable[NewFile], schema_text: str, *, properties: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Files as a commit adds them: lengths, times, statistics of their footers.

        Args:
            files: The files. Many objects are read at a time.
            schema_text: The schema of the table.
            properties: Properties of the table.

        Raises:
            SourceNotFound: One of the files does not exist.
        """
        asked = {
            "files": [
                {
                    "name": file.name,
                    "partition": dict(file.partition),
                    "instead_of": list(file.instead_of),
                }
                for file in files
            ],
            "schema": schema_text,
            "properties": dict(properties),
        }
        found: list[dict[str, Any]] = json.loads(self._native.added(json.dumps(asked)))
        return found

    def begin(self) -> None:
        """Says that a table is being made: files of a first write that dies are no rows."""
        _native.Folder(self._options, self._bucket).put_new(_BEGUN, b"")

    def commit(self, change: dict[str, Any]) -> dict[str, Any]:
        """Commits a change; how that ended: `committed`, `present` or `conflicted`, and why."""
        ended: dict[str, Any] = json.loads(self._native.commit(json.dumps(change)))
        return ended

    def history(self, limit: int | None) -> list[dict[str, Any]]:
        """What was committed, the newest first."""
        found: list[dict[str, Any]] = json.loads(self._native.history(json.dumps({"limit": limit})))
        return found

    def clean(self, retention_s: float, *, dry_run: bool) -> dict[str, Any]:
        """Removes what no version inside the retention needs."""
        asked = {"retention_ms": int(retention_s * 1000), "dry_run": dry_run}
        done: dict[str, Any] = json.loads(self._native.clean(json.dumps(asked)))
        return done

    def remove(self, names: Iterable[str]) -> None:
        """Removes files that no version names; absent ones are no error."""
        _native.Folder(self._options, self._bucket).remove(list(names))

    def there(self) -> There:
        """The files of the folder, and those that the log names."""
        return There(**json.loads(self._native.there()))

    def location(self, name: str) -> str:
        """How calls of the engine name a file of the table."""
        root = self.root.rstrip("/")
        return f"{root}/{quote(name, safe='/=') if '://' in root else name}"

    def name_of(self, location: str) -> str:
        """What the log calls the file that calls of the engine name so."""
        root = self.root.rstrip("/") + "/"
        if "://" in location:
            location, root = unquote(location), unquote(root)
        return location.removeprefix(root)

    def look(self, names: Sequence[str]) -> list[tuple[int, int] | None]:
        """Lengths of files, and when they were written in milliseconds since 1970.

        `None` stands for a file that does not exist.
        """
        return self._native.look(list(names))
