"""Delete files of Iceberg tables, as other engines write them: by PyArrow and PyIceberg's manifests.

PyIceberg itself writes no delete files; it reads those that list positions. Source: the Iceberg
table specification, "Row-level Deletes".
"""

from __future__ import annotations

import json
import struct
import uuid
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import (
    Operation,
    Summary,
    UpdateMetrics,
    update_snapshot_summaries,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles

PATH, POS = 2147483546, 2147483545
SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POS)}),
    ]
)


class _Manifest(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


class _Manifest3(_Manifest):
    """With what format version 3 says of vectors; PyIceberg writes none of it."""

    @property
    def version(self):
        return 3

    def new_writer(self):
        return AvroOutputFile(
            output_file=self._output_file,
            file_schema=self._with_partition(3),
            record_schema=self._with_partition(3),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


class _AddDeletes(_FastAppendFiles):
    def __init__(self, transaction, files, manifest=_Manifest):
        super().__init__(Operation.APPEND, transaction, transaction._table.io)
        self.files, self.manifest = files, manifest

    def _manifests(self):
        by_spec = defaultdict(list)
        for file in self.files:
            by_spec[file.spec_id].append(file)
        made = []
        for spec_id, files in by_spec.items():
            output = self.new_manifest_output()
            spec = self.spec(spec_id)
            made_by = self.manifest(spec, self.schema(), output, self._snapshot_id, "gzip")
            with made_by as writer:
                for file in files:
                    entry = ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        data_file=file,
                    )
                    writer.add_entry(entry)
            made.append(writer.to_manifest_file())
        return made + self._existing_manifests()

    def _summary(self, snapshot_properties):
        metrics = UpdateMetrics()
        for file in self.files:
            metrics.add_file(file)
        said = Summary(Operation.APPEND, **metrics.to_dict(), **snapshot_properties)
        previous = self._transaction.table_metadata.current_snapshot()
        return update_snapshot_summaries(said, previous.summary)


def commit(table, files, manifest=_Manifest):
    """Adds delete files to a table."""
    with table.transaction() as transaction, _AddDeletes(transaction, files, manifest):
        pass
    table.refresh()


def entry(table, path, content, like, rows, **said):
    """The entry of a file that was written."""
    made = DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=like.partition,
        record_count=rows,
        file_size_in_bytes=Path(path).stat().st_size,
        **said,
    )
    made.spec_id = like.spec_id
    return made


def new_path(table, kind):
    folder = Path(table.location().removeprefix("file://"), "data")
    return folder / f"{uuid.uuid4()}-{kind}.parquet"


def data_files(table):
    """The live data files, by name, of tables that PyIceberg does not plan, too."""
    found, snapshot = {}, table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content == ManifestContent.DATA:
            for one in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                found[one.data_file.file_path] = one.data_file
    return found


def position_file(table, gone, *, bounds="whole", order="sorted", columns=SCHEMA, **options):
    """Writes one delete file that lists positions of many data files of one partition."""
    rows = [(path, row) for path, listed in gone.items() for row in listed]
    rows = sorted(rows, reverse=order == "reverse")
    paths, positions = [path for path, _ in rows], [row for _, row in rows]
    path = new_path(table, "pos")
    arrays = [pa.array(paths, columns.field(0).type), pa.array(positions, columns.field(1).type)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=columns), path, **options)
    lowest, highest = min(paths).encode(), max(paths).encode()
    if bounds == "cut":
        # Spark cuts the lowest after 16 bytes; the highest is cut and raised.
        lowest, highest = lowest[:16], highest[:15] + bytes([highest[15] + 1])
    said = {"lower_bounds": {PATH: lowest}, "upper_bounds": {PATH: highest}}
    like = data_files(table)[rows[0][0]]
    return entry(
        table,
        path,
        DataFileContent.POSITION_DELETES,
        like,
        len(rows),
        **({} if bounds == "none" else said),
    )


def delete_rows(table, gone, **how):
    """Commits the deletion of rows of data files, by their numbers."""
    by_partition = defaultdict(dict)
    files = data_files(table)
    for path, listed in gone.items():
        if listed:
            by_partition[str(files[path].partition)][path] = sorted(listed)
    made = [position_file(table, part, **how) for part in by_partition.values()]
    commit(table, made)
    return made


def delete_values(table, rows, ids, like=None):
    """Commits the deletion of all older rows that are equal in the columns `ids`."""
    path = new_path(table, "eq")
    pq.write_table(rows, path)
    like = like or next(iter(data_files(table).values()))
    made = entry(
        table, path, DataFileContent.EQUALITY_DELETES, like, rows.num_rows, equality_ids=list(ids)
    )
    commit(table, [made])
    return made


def delete_by_vectors(table, gone, encode, edit=lambda said: said):
    """Commits deletion vectors that `encode` makes of row numbers, all in one Puffin file."""
    path = new_path(table, "dv").with_suffix(".puffin")
    data, blobs, entries = b"PFA1", [], []
    for name, listed in gone.items():
        blob = encode(listed)
        place = {"offset": len(data), "length": len(blob)}
        of = {"referenced-data-file": name, "cardinality": str(len(listed))}
        about = {"type": "deletion-vector-v1", "fields": [POS], "snapshot-id": -1}
        blobs.append({**about, "sequence-number": -1, **place, "properties": of})
        said = {"content_offset": len(data), "content_size_in_bytes": len(blob)}
        entries.append((name, edit({"record_count": len(listed), **said})))
        data += blob
    footer = json.dumps({"blobs": blobs}).encode()
    path.write_bytes(data + b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1")
    files = data_files(table)
    made = []
    for name, said in entries:
        made.append(
            DataFile.from_args(
                _table_format_version=3,
                content=DataFileContent.POSITION_DELETES,
                file_path=f"file://{path}",
                file_format=FileFormat.PUFFIN,
                partition=files[name].partition,
                file_size_in_bytes=path.stat().st_size,
                referenced_data_file=name,
                **said,
            )
        )
        made[-1].spec_id = files[name].spec_id
    commit(table, made, _Manifest3)


def as_version_3(catalog, name):
    """The same table in format version 3, which PyIceberg reads and does not write."""
    table = catalog.load_table(name)
    old = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(old.read_text())
    metadata.update({"format-version": 3, "next-row-id": 1_000_000})
    for snapshot in metadata["snapshots"]:
        snapshot.update({"first-row-id": 0, "added-rows": 0})
    new = old.with_name(f"99999-{uuid.uuid4()}.metadata.json")
    new.write_text(json.dumps(metadata))
    catalog.drop_table(name)
    return catalog.register_table(name, f"file://{new}")


def hinted(table):
    """The folder of a table, with a hint of its metadata as Hadoop catalogs write it."""
    metadata = Path(table.metadata_location.removeprefix("file://"))
    (metadata.parent / "version-hint.text").write_text(metadata.name.removesuffix(".metadata.json"))
    return table.location().removeprefix("file://")


def delete_entries(table):
    """The live delete files of the newest snapshot."""
    found = []
    for manifest in table.current_snapshot().manifests(table.io):
        if manifest.content == ManifestContent.DELETES:
            found += manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    return found
