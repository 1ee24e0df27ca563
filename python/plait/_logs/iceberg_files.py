"""The data files of an Iceberg snapshot, and the delete files that reach each of them.

manifests ─┬─ data files ──────────────────────────────────────────────┐
           └─ delete files ─┬─ by the name of a data file              ├─▶ IcebergFile, …
                            ├─ by partition, and bounds of names in it │
                            └─ by partition, or in all of the table ───┘

Invariants: deletes by position reach data files that are as old or older, deletes by value those
that are older. A delete file that does not say which files it names reaches all of its partition:
it may have no row of some.
Cost: all manifests of the snapshot are read.
Not here: which rows are deleted (the engine). Source: the Iceberg table specification, "Scan
Planning".
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table as IcebergTable

__all__ = [
    "FILE_PATH",
    "POS",
    "DeleteFile",
    "IcebergFile",
    "IcebergFiles",
    "Partition",
    "files_of",
    "path_of",
]

# What a file has; manifests of format version 1 say nothing, and PyIceberg gives a number.
_DATA, _EQUALITY_DELETES = 0, 2
# Places in a data file of format version 3, for which PyIceberg has no names.
_REFERENCED, _OFFSET, _BYTES = 17, 18, 19
# The field ids of the columns of position delete files.
FILE_PATH, POS = 2_147_483_546, 2_147_483_545
# Bytes of a vector besides its magic number and its bitmap: its length, its checksum.
_FRAME_BYTES = 8

Kind = Literal["vector", "positions", "equality"]
# The specification and the values of a partition.
Partition = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True)
class DeleteFile:
    """A delete file, or a deletion vector in one.

    Attributes:
        file: Its entry.
        sequence: Its data sequence number.
    """

    file: DataFile
    sequence: int

    @property
    def kind(self) -> Kind:
        """How it says which rows are deleted."""
        if self.file.content == _EQUALITY_DELETES:
            return "equality"
        return "vector" if self.file.file_format.name == "PUFFIN" else "positions"

    @property
    def id(self) -> str:
        """What no other has: several vectors may lie in one file."""
        offset = self.file[_OFFSET]
        return self.file.file_path if offset is None else f"{self.file.file_path}@{offset}"

    @property
    def only(self) -> str | None:
        """The one data file that it names, if it says so."""
        if self.file[_REFERENCED] is not None:
            return str(self.file[_REFERENCED])
        lowest, highest = self._bounds
        return lowest.decode() if lowest is not None and lowest == highest else None

    def may_name(self, path: str) -> bool:
        """Whether the bounds of the names in it leave room for one. They may be cut short."""
        lowest, highest = self._bounds
        name = path.encode()
        is_below = highest is None or name <= highest or name.startswith(highest)
        return is_below and (lowest is None or lowest <= name)

    @property
    def _bounds(self) -> tuple[bytes | None, bytes | None]:
        lowest, highest = self.file.lower_bounds or {}, self.file.upper_bounds or {}
        return lowest.get(FILE_PATH), highest.get(FILE_PATH)

    @property
    def unread(self) -> str:
        """Why the rows that it deletes are not known, said of a data file; `""` if they are."""
        where = f"`{self.file.file_path}`"
        if self.file.key_metadata is not None:
            return f"has rows that an encrypted file deletes: {where}"
        if self.kind != "vector" and self.file.file_format.name != "PARQUET":
            return f"has rows that no Parquet file deletes: {where}"
        if self.kind == "equality" and not self.file.equality_ids:
            return f"has rows that are deleted by no column: {where}"
        return ""

    @property
    def vector(self) -> dict[str, Any]:
        """The deletion vector as calls of the engine take it."""
        stored = {
            "location": path_of(self.file.file_path),
            "offset": self.file[_OFFSET],
            "bytes": self.file[_BYTES] - _FRAME_BYTES,
        }
        return {"stored": stored, "rows": self.file.record_count}


@dataclass(frozen=True)
class IcebergFile:
    """A data file, and what deletes rows of it.

    Attributes:
        file: Its entry.
        sequence: Its data sequence number.
        deletes: The delete files that reach it.
        columns: Field ids of columns of which its partition has the value.
    """

    file: DataFile
    sequence: int
    deletes: tuple[DeleteFile, ...] = ()
    columns: frozenset[int] = frozenset()

    @property
    def path(self) -> str:
        """Where the engine reads it."""
        return path_of(self.file.file_path)

    @property
    def partition(self) -> Partition:
        """Its partition."""
        return _partition(self.file)

    @property
    def id(self) -> str:
        """Names the file as it is now: with all of its deletes."""
        return _named(self.file, self.deletes)

    def id_at(self, sequence: int) -> str:
        """Names the file by its location and its deletes, but for deletes by value that are newer.

        What is made of a file keeps the sequence number, so that these apply to it.
        """
        return self.at(sequence).id

    def at(self, sequence: int) -> IcebergFile:
        """The file without deletes by value that are newer."""
        older = tuple(d for d in self.deletes if d.kind != "equality" or d.sequence <= sequence)
        return replace(self, deletes=older)

    @property
    def deleted_max(self) -> int:
        """At most so many of its rows are deleted."""
        all_rows = self.file.record_count
        # One value may be that of all rows.
        rows = (all_rows if d.kind == "equality" else d.file.record_count for d in self.deletes)
        return min(sum(rows), all_rows)

    @property
    def vector(self) -> dict[str, Any] | None:
        """What is deleted of it as calls of the engine take it; `None` if nothing is."""
        said: dict[str, Any] = {}
        for delete in self.deletes:
            if delete.kind == "vector":
                said.update(delete.vector)
        listed = [path_of(d.file.file_path) for d in self.deletes if d.kind == "positions"]
        if listed:
            said["positions"] = {"name": self.file.file_path, "files": sorted(listed)}
        by_columns: dict[tuple[int, ...], list[dict[str, Any]]] = defaultdict(list)
        for delete in self.deletes:
            if delete.kind == "equality":
                where = {"location": path_of(delete.file.file_path), "sequence": delete.sequence}
                by_columns[tuple(sorted(delete.file.equality_ids or []))].append(where)
        if by_columns:
            said["equality"] = [
                {"columns": ids, "stored": sorted(self.columns.intersection(ids)), "files": files}
                for ids, files in sorted(by_columns.items())
            ]
        return said or None

    @property
    def unread(self) -> str:
        """Why its rows cannot be read, in words; `""` if they can be."""
        if self.file.key_metadata is not None:
            return "is encrypted"
        if self.file.file_format.name != "PARQUET":
            return f"is no Parquet file but {self.file.file_format.name}"
        if sum(delete.kind == "vector" for delete in self.deletes) > 1:
            return "has several deletion vectors"
        return next(filter(None, (delete.unread for delete in self.deletes)), "")


@dataclass(frozen=True)
class IcebergFiles:
    """The files of a snapshot.

    Attributes:
        data: The data files, by name.
        deletes: All delete files, also those that reach no data file any more.
    """

    data: tuple[IcebergFile, ...] = ()
    deletes: tuple[DeleteFile, ...] = ()

    def unreached(self, without: Iterable[str], *, newer: int) -> list[DeleteFile]:
        """The delete files that reach no data file, once some are gone.

        Args:
            without: These, by `id`.
            newer: What comes instead has this sequence number: newer deletes by value reach it.
        """
        gone = set(without)
        reached = {d.id for file in self.data if file.id not in gone for d in file.deletes}
        return [
            delete
            for delete in self.deletes
            if delete.id not in reached and (delete.kind != "equality" or delete.sequence <= newer)
        ]


def files_of(table: IcebergTable) -> IcebergFiles:
    """The files of the newest snapshot of a table."""
    from pyiceberg.utils.concurrent import ExecutorFactory  # noqa: PLC0415 - an extra

    snapshot = table.current_snapshot()
    if snapshot is None:
        return IcebergFiles()

    def read(manifest: ManifestFile) -> list[ManifestEntry]:
        return _entries(table.io, manifest)

    read_all = ExecutorFactory.get_or_create().map(read, snapshot.manifests(table.io))
    entries = [entry for of_manifest in read_all for entry in of_manifest]
    data, deletes = [], []
    for entry in entries:
        file, sequence = entry.data_file, entry.sequence_number or 0
        if file.content == _DATA:
            data.append((file, sequence))
        else:
            deletes.append(DeleteFile(file, sequence))
    index = _Index.of(deletes)
    fixed = {spec_id: _fixed(spec) for spec_id, spec in table.specs().items()}
    found = [
        IcebergFile(file, number, index.reaching(file, number), fixed[file.spec_id])
        for file, number in data
    ]
    return IcebergFiles(tuple(sorted(found, key=lambda f: f.file.file_path)), tuple(deletes))


def _named(file: DataFile, deletes: Iterable[DeleteFile]) -> str:
    ids = "\n".join(sorted(delete.id for delete in deletes))
    return (
        f"{file.file_path}\n{hashlib.sha256(ids.encode()).hexdigest()}" if ids else file.file_path
    )


def path_of(location: str) -> str:
    """Where the engine finds a file: `file:///a` and `file:/a` are `/a`."""
    return location.removeprefix("file://").removeprefix("file:")


@dataclass(frozen=True)
class _Index:
    """Delete files by what they reach."""

    by_name: dict[str, list[DeleteFile]] = field(default_factory=lambda: defaultdict(list))
    by_partition: dict[Partition, list[DeleteFile]] = field(
        default_factory=lambda: defaultdict(list)
    )
    # Deletes by value without a partition reach all of the table.
    of_all: list[DeleteFile] = field(default_factory=list)

    @classmethod
    def of(cls, deletes: Iterable[DeleteFile]) -> _Index:
        index = cls()
        for delete in deletes:
            if delete.kind != "equality" and (only := delete.only) is not None:
                index.by_name[only].append(delete)
            elif delete.kind == "equality" and len(delete.file.partition) == 0:
                index.of_all.append(delete)
            else:
                index.by_partition[_partition(delete.file)].append(delete)
        return index

    def reaching(self, file: DataFile, sequence: int) -> tuple[DeleteFile, ...]:
        named = self.by_name.get(file.file_path, [])
        others = [*self.by_partition.get(_partition(file), []), *self.of_all]
        by_value = [d for d in others if d.kind == "equality" and d.sequence > sequence]
        by_position = [
            delete
            for delete in (*named, *others)
            if delete.kind != "equality"
            and delete.sequence >= sequence
            and delete.may_name(file.file_path)
        ]
        # A vector has all that was deleted by position before it.
        vectors = [delete for delete in by_position if delete.kind == "vector"]
        return (*(vectors or by_position), *by_value)


def _fixed(spec: PartitionSpec) -> frozenset[int]:
    """The columns of which partitions have the value."""
    return frozenset(f.source_id for f in spec.fields if str(f.transform) == "identity")


def _partition(file: DataFile) -> Partition:
    return file.spec_id, _values(file)


def _values(file: DataFile) -> tuple[Any, ...]:
    return tuple(file.partition[i] for i in range(len(file.partition)))


def _entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """The live entries of a manifest; those of delete files as format version 3 has them."""
    from pyiceberg.avro.file import AvroFile  # noqa: PLC0415 - an extra
    from pyiceberg.manifest import (  # noqa: PLC0415
        MANIFEST_ENTRY_SCHEMAS,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestEntryStatus,
        _inherit_from_manifest,
    )
    from pyiceberg.manifest import DataFile as File  # noqa: PLC0415
    from pyiceberg.manifest import ManifestEntry as Entry  # noqa: PLC0415

    if manifest.content == ManifestContent.DATA:
        return manifest.fetch_manifest_entry(io, discard_deleted=True)
    # `fetch_manifest_entry` leaves out which data file is meant, and where a vector lies.
    with AvroFile[Entry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: Entry, 2: File},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        entries = (_inherit_from_manifest(entry, manifest) for entry in reader)
        return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
