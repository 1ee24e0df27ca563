"""A snapshot of an Iceberg table that replaces files by others with the same rows.

manifest of the snapshot before ─┬─ has no file that goes ──▶ stays as it is
                                 └─ has some ──▶ written again; in it they are marked as deleted
added files ──▶ one manifest for each partition spec, of data files and of delete files

Invariants: files that stay keep their sequence numbers. Added files have the one that is given, so
that deletes by value that are newer than it apply to them.
Cost: manifests that have a file that goes are written again; all are read.
Not here: whether the files may be replaced (`iceberg`), which imports this module when it commits.
Source: the Iceberg table specification. PyIceberg has no such operation; what is derived from here
is not part of what it promises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
    write_manifest,
)
from pyiceberg.table.snapshots import Operation, Summary, UpdateMetrics, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import EMPTY_DICT

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Transaction

__all__ = ["Replacement", "commit_replacement"]


@dataclass(frozen=True)
class Replacement:
    """Files that come, and files that go.

    Attributes:
        added: New data files, of any partition specs of the table.
        deletes: New delete files. They are as new as the snapshot.
        removed: Data files and delete files that do not count any more.
        sequence: The data sequence number of the new files: that of the snapshot that was read.
        properties: What the summary of the snapshot says besides.
    """

    added: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    sequence: int
    properties: dict[str, str]


def commit_replacement(transaction: Transaction, replacement: Replacement) -> None:
    """Adds the snapshot of a replacement to a transaction.

    Raises:
        ValidationException: A file that goes is not live.
    """
    with _ReplaceFiles(transaction, replacement):
        pass


class _ReplaceFiles(_SnapshotProducer["_ReplaceFiles"]):
    def __init__(self, transaction: Transaction, replacement: Replacement) -> None:
        super().__init__(
            Operation.REPLACE,
            transaction,
            io=transaction._table.io,  # noqa: SLF001 - as `update_snapshot` does
            snapshot_properties=replacement.properties,
        )
        self._replacement = replacement
        self._is_versioned = transaction.table_metadata.format_version > 1

    def _manifests(self) -> list[ManifestFile]:
        parent = self._transaction.table_metadata.current_snapshot()
        gone = {file.file_path for file in self._replacement.removed}
        found: set[str] = set()
        manifests = []
        for manifest in parent.manifests(self._io) if parent else []:
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            here = gone.intersection(entry.data_file.file_path for entry in entries)
            found |= here
            manifests.append(self._without(manifest, entries, here) if here else manifest)
        if missing := sorted(gone - found):
            what = f"files are not live any more: {', '.join(missing)}"
            raise ValidationException(what)
        return [*self._added(), *manifests]

    def _without(
        self, manifest: ManifestFile, entries: Iterable[ManifestEntry], gone: Collection[str]
    ) -> ManifestFile:
        """The manifest with files marked as deleted."""
        with self._writer(manifest.partition_spec_id, manifest.content) as writer:
            for entry in entries:
                if entry.data_file.file_path in gone:
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()

    def _added(self) -> list[ManifestFile]:
        sequence = self._replacement.sequence if self._is_versioned else None
        return [
            *self._manifests_of(self._replacement.added, ManifestContent.DATA, sequence),
            # Their sequence number is that of the snapshot, which is not known yet.
            *self._manifests_of(self._replacement.deletes, ManifestContent.DELETES, None),
        ]

    def _manifests_of(
        self, files: Iterable[DataFile], content: ManifestContent, sequence: int | None
    ) -> list[ManifestFile]:
        """Manifests of new files, one for each partition specification."""
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for file in files:
            by_spec[file.spec_id].append(file)
        manifests = []
        for spec_id, of_spec in by_spec.items():
            with self._writer(spec_id, content) as writer:
                for file in of_spec:
                    writer.add_entry(self._entry(file, sequence))
            manifests.append(writer.to_manifest_file())
        return manifests

    def _writer(self, spec_id: int, content: ManifestContent) -> ManifestWriter:
        spec = self.spec(spec_id)
        version = self._transaction.table_metadata.format_version
        where = (spec, self._schema_of(spec), self.new_manifest_output(), self._snapshot_id)
        if content == ManifestContent.DELETES:
            return _DeleteManifestWriter(*where, self._compression)
        return write_manifest(version, *where, self._compression)

    def _schema_of(self, spec: PartitionSpec) -> Schema:
        """The newest schema with the columns of a specification: some may be dropped by now."""
        metadata = self._transaction.table_metadata
        newest = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
        ids = {field.source_id for field in spec.fields}
        for schema in (self.schema(), *newest):
            if all(schema.find_column_name(field_id) for field_id in ids):
                return schema
        return self.schema()

    def _entry(self, file: DataFile, sequence: int | None) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self._snapshot_id,
            sequence_number=sequence,
            file_sequence_number=None,
            data_file=file,
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        metrics = UpdateMetrics()
        new = (*self._replacement.added, *self._replacement.deletes)
        files = (*new, *self._replacement.removed)
        for file in new:
            metrics.add_file(file)
        for file in self._replacement.removed:
            metrics.remove_file(file)
        partitions = {(file.spec_id, str(file.partition)) for file in files}
        said = {**metrics.to_dict(), "changed-partition-count": str(len(partitions))}
        previous = self._transaction.table_metadata.current_snapshot()
        # PyIceberg counts for three operations, and `replace` is not one of them.
        summary = update_snapshot_summaries(
            Summary(Operation.OVERWRITE, **said, **snapshot_properties),
            previous.summary if previous else None,
        )
        return Summary(self._operation, **summary.additional_properties)

    def _deleted_entries(self) -> list[ManifestEntry]:
        """None besides those of `_manifests`."""
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        """None besides those of `_manifests`."""
        return []


class _DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files, as PyIceberg does of data files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
