"""What a log says of rows and files do not: values of partitions, types, which rows are deleted.

    partitionValues {"day": "2024-05-01"}       ──▶ day: 2024-05-01 in all rows of the file
    metadata {"plait.was": "uint32"} of a field ──▶ its values are cast to the type of the field
    deletionVector {...} of a file              ──▶ the rows that it names are left out

Not here: how rows get them (the engine).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from plait import _native
from plait._logs.delta import LiveFile, Snapshot
from plait.errors import PlaitError, SchemaConflict, Unsupported

if TYPE_CHECKING:
    from plait._native import Schema

__all__ = [
    "WAS",
    "Expected",
    "LogColumns",
    "columns_of",
    "location_of",
    "values_of_folders",
    "vectors_of",
]

# Metadata of a field: the type that files have until they are merged.
WAS = "plait.was"
# Types as Arrow writes them.
_TYPES = {
    "string": "Utf8",
    "long": "Int64",
    "integer": "Int32",
    "short": "Int16",
    "byte": "Int8",
    "float": "Float32",
    "double": "Float64",
    "boolean": "Boolean",
    "date": "Date32",
    "timestamp_ntz": "Timestamp(Microsecond, None)",
    "timestamp": 'Timestamp(Microsecond, Some("+00:00"))',
}
# Ends of types of times that the log compares as files do.
_UTC = ("tz=UTC]", "tz=+00:00]")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


@dataclass(frozen=True)
class Expected:
    """The columns of a table of which files were left out, as its log has them.

    Attributes:
        schema: Names and types.
        left_out: Number of files that were left out.
    """

    schema: tuple[tuple[str, str], ...]
    left_out: int

    @classmethod
    def of(cls, snapshot: Snapshot, left_out: int) -> Expected:
        """Those of a table: partition columns come last, as in its rows."""
        fields = {field["name"]: json.dumps(field["type"]) for field in snapshot.schema["fields"]}
        last = snapshot.partition_columns
        names = [*(name for name in fields if name not in last), *last]
        return cls(tuple((name, fields.get(name, "")) for name in names), left_out)

    def are_in(self, schema: Schema, columns: Sequence[str] | None) -> bool:
        """Whether a read has them all, or those that were asked for; in UTC if they are times."""
        if any("tz=" in kind and not kind.endswith(_UTC) for _, kind, _ in schema.columns):
            return False
        names = [name for name, _ in self.schema]
        if columns is None and schema.names != names:
            return False
        if columns is not None and "*" in columns and not set(names) <= set(schema.names):
            return False
        try:
            found = json.loads(_native.delta_schema(schema))
        except PlaitError:
            return False
        types = {field["name"]: json.dumps(field["type"]) for field in found["fields"]}
        known = dict(self.schema)
        return all(known.get(name, kind) == kind for name, kind in types.items())


@dataclass(frozen=True)
class LogColumns:
    """What a log says of rows.

    Attributes:
        partitions: Columns that files do not have: name, type, text by location of the file.
        casts: Columns that may have another type in files, with the type of the table.
        deleted: What deletes rows, by location of the file: vectors, or delete files of Iceberg.
        expected: The columns of the tables of which files were left out.
        stored: The columns of the tables but for these, with their types: files may have others, or
            lack one. Empty if files alone say it.
    """

    partitions: tuple[tuple[str, str, dict[str, str | None]], ...] = ()
    casts: dict[str, str] = field(default_factory=dict)
    deleted: dict[str, dict[str, Any]] = field(default_factory=dict)
    expected: tuple[Expected, ...] = ()
    stored: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> list[str]:
        """The partition columns."""
        return [name for name, _, _ in self.partitions]

    def of(self, files: Sequence[str]) -> LogColumns:
        """The same of some files, by their locations."""
        partitions = tuple(
            (name, kind, {where: texts[where] for where in files})
            for name, kind, texts in self.partitions
        )
        deleted = {where: self.deleted[where] for where in files if where in self.deleted}
        return LogColumns(partitions, self.casts, deleted, self.expected, self.stored)

    def joined(self, other: LogColumns) -> LogColumns:
        """Those of two tables.

        Raises:
            SchemaConflict: They differ in the type of a column.
        """
        known = {name: (kind, dict(texts)) for name, kind, texts in self.partitions}
        for name, kind, texts in other.partitions:
            if known.setdefault(name, (kind, {}))[0] != kind:
                raise SchemaConflict.of(
                    f"tables differ in the type of the partition column `{name}`",
                    got=f"{known[name][0]} and {kind}",
                )
            known[name][1].update(texts)
        partitions = tuple((name, kind, texts) for name, (kind, texts) in known.items())
        casts, deleted = {**self.casts, **other.casts}, {**self.deleted, **other.deleted}
        expected = self.expected + other.expected
        stored = (
            self.stored
            and other.stored
            and tuple({**dict(self.stored), **dict(other.stored)}.items())
        )
        return LogColumns(partitions, casts, deleted, expected, stored)

    def file_values(self) -> list[dict[str, Any]]:
        """Values of partitions, as the engine takes them."""
        return [
            {"name": name, "data_type": kind, "values": texts}
            for name, kind, texts in self.partitions
        ]

    def options(self) -> dict[str, Any]:
        """Options of a read: those that say something."""
        said = {
            "file_values": self.file_values(),
            "casts": self.casts,
            "deletion_vectors": self.deleted,
            "table_columns": self.stored,
        }
        return {name: value for name, value in said.items() if value}


def columns_of(
    root: str,
    snapshot: Snapshot,
    files: Mapping[str, LiveFile],
    expected: Expected | None = None,
) -> LogColumns:
    """What the log of a table says of columns.

    Args:
        root: The table.
        snapshot: It at some version.
        files: Its files by their locations.
        expected: Its columns, if these are not all of its files.

    Raises:
        Unsupported: A partition column has a type that is not read.
    """
    types = {field["name"]: field["type"] for field in snapshot.schema["fields"]}
    values = {where: snapshot.values_of(file) for where, file in files.items()}
    partitions = []
    for column in snapshot.partition_columns:
        kind = _arrow_type(types.get(column))
        if kind is None:
            error = Unsupported.of(
                f"the Delta table `{root}` has a partition column whose type is not read",
                got=f"`{column}` of {types.get(column)}",
                hint="read it with the engine that wrote it",
            )
            error.path = root
            raise error
        texts = {where: values[where][column] for where in files}
        partitions.append((column, kind, texts))
    casts = {
        field["name"]: kind
        for field in snapshot.schema["fields"]
        if WAS in field.get("metadata", {}) and (kind := _arrow_type(field["type"])) is not None
    }
    of_left_out = () if expected is None else (expected,)
    stored = () if snapshot.names.is_mapped else _stored(snapshot)
    return LogColumns(tuple(partitions), casts, vectors_of(root, files), of_left_out, stored)


def _stored(snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
    """The columns but for those of partitions; empty if the type of one is not read."""
    try:
        columns = _native.delta_columns(snapshot.schema_text, snapshot.partition_columns, set())
    except Unsupported:
        return ()
    return tuple(_native.table_columns(columns))


def vectors_of(root: str, files: Mapping[str, LiveFile]) -> dict[str, dict[str, Any]]:
    """The deletion vectors of files that have one, as calls of the engine take them.

    Args:
        root: The table.
        files: Its files by their locations.
    """
    vectors = {}
    for where, file in files.items():
        if file.deleted is None:
            continue
        vector = dict(file.deleted)
        if stored := vector.get("stored"):
            vector["stored"] = {**stored, "location": location_of(root, stored["location"])}
        vectors[where] = vector
    return vectors


def location_of(root: str, path: str) -> str:
    """How calls of the engine name a file that the log of a table names."""
    if path.startswith("file:/") and "://" not in path:
        return path.removeprefix("file:")
    if "://" in path or path.startswith("/"):
        return path
    if "://" in root:
        return f"{root.rstrip('/')}/{quote(path, safe='/=')}"
    return str(Path(root, path))


def values_of_folders(name: str) -> dict[str, str | None]:
    """What the folders of a file say of its rows."""
    found: dict[str, str | None] = {}
    for part in name.split("/")[:-1]:
        column, is_value, text = part.partition("=")
        if is_value:
            found[unquote(column)] = None if text in (_NULL, "") else unquote(text)
    return found


def _arrow_type(kind: object) -> str | None:
    """A type of Delta as Arrow writes it."""
    name = str(kind)
    decimal = _DECIMAL.fullmatch(name)
    return f"Decimal128({decimal[1]}, {decimal[2]})" if decimal else _TYPES.get(name)
