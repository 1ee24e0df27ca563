"""Delta tables with column mapping, written by hand: physical names and field ids as Spark gives them.

Source: the Delta transaction log protocol, "Column Mapping".
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

ID, NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
LEGACY = {"minReaderVersion": 2, "minWriterVersion": 5}
FEATURES = ["columnMapping", "deletionVectors"]
LISTED = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": FEATURES,
    "writerFeatures": FEATURES,
}
TYPES = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class Column:
    """A column: its type is a name, a tuple of members, or a list with the type of elements."""

    name: str
    stored: str
    id: int | None
    kind: object = "long"

    def field(self):
        """As the schema of the log has it."""
        said = {ID: self.id, NAME: self.stored}
        metadata = {name: value for name, value in said.items() if value is not None}
        kind = delta_type(self.kind)
        return {"name": self.name, "type": kind, "nullable": True, "metadata": metadata}

    def arrow(self, has_ids=True):
        metadata = {"PARQUET:field_id": str(self.id)} if has_ids else None
        return pa.field(self.stored, arrow_type(self.kind, has_ids), metadata=metadata)


def delta_type(kind):
    if isinstance(kind, tuple):
        return {"type": "struct", "fields": [member.field() for member in kind]}
    if isinstance(kind, list):
        return {"type": "array", "elementType": delta_type(kind[0]), "containsNull": True}
    return kind


def arrow_type(kind, has_ids):
    if isinstance(kind, tuple):
        return pa.struct([member.arrow(has_ids) for member in kind])
    if isinstance(kind, list):
        return pa.list_(pa.field("element", arrow_type(kind[0], has_ids)))
    return TYPES[kind]


def stored_value(kind, value):
    """A value by the names that files have."""
    if value is None or isinstance(kind, str):
        return value
    if isinstance(kind, list):
        return [stored_value(kind[0], one) for one in value]
    return {member.stored: stored_value(member.kind, value.get(member.name)) for member in kind}


class MappedTable:
    """A table, its columns as they are now, and what its rows should be."""

    def __init__(self, uri, columns, mode="name", *, by=(), properties=None, protocol=LISTED):
        self.uri, self.columns, self.by = str(uri), list(columns), list(by)
        self.properties = {"delta.columnMapping.mode": mode, **(properties or {})}
        self.files = 0
        Path(uri, "_delta_log").mkdir(parents=True)
        self.commit({"protocol": protocol}, self.metadata())

    def metadata(self):
        schema = {"type": "struct", "fields": [column.field() for column in self.columns]}
        return {
            "metaData": {
                "id": "0000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": self.by,
                "configuration": self.properties,
                "createdTime": 1,
            }
        }

    def commit(self, *actions):
        log = Path(self.uri, "_delta_log")
        version = len(list(log.glob("*.json")))
        text = "\n".join(json.dumps(action) for action in actions)
        (log / f"{version:020}.json").write_text(text + "\n")

    def rename(self, old, new):
        self.columns = [replace(c, name=new) if c.name == old else c for c in self.columns]
        self.by = [new if name == old else name for name in self.by]
        self.commit(self.metadata())

    def drop(self, name):
        self.columns = [column for column in self.columns if column.name != name]
        self.commit(self.metadata())

    def add(self, column):
        self.columns.append(column)
        self.commit(self.metadata())

    def append(self, rows, *, has_ids=True, has_stats=True, fields=None, prefix=""):
        """One file of rows, all of one partition; `fields`: columns that are in the file instead."""
        inside = [column for column in self.columns if column.name not in self.by]
        schema = pa.schema(fields or [column.arrow(has_ids) for column in inside])
        given = [
            [stored_value(column.kind, row.get(column.name)) for row in rows] for column in inside
        ]
        table = pa.table([pa.array(v, f.type) for v, f in zip(given, schema)], schema=schema)
        name = f"{prefix}part-{self.files}.parquet"
        self.files += 1
        path = Path(self.uri, name)
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path)
        values = {c.stored: rows[0].get(c.name) for c in self.columns if c.name in self.by}
        stats = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
        for column, of in zip(schema.names, given):
            known = [value for value in of if isinstance(value, int | str)]
            if known:
                stats["minValues"][column], stats["maxValues"][column] = min(known), max(known)
                stats["nullCount"][column] = len(of) - len(known)
        add = {"path": name, "partitionValues": values, "size": path.stat().st_size}
        add |= {"modificationTime": 1, "dataChange": True}
        self.commit({"add": {**add, **({"stats": json.dumps(stats)} if has_stats else {})}})
        return name

    def rows(self, where="true"):
        """The rows that satisfy a condition, as DataFusion reads them through delta-rs."""
        table = deltalake.DeltaTable(self.uri)
        builder = deltalake.QueryBuilder().register("t", table)
        found = pa.table(builder.execute(f"SELECT * FROM t WHERE {where}"))
        return counted(found.to_pylist())

    def live(self):
        """The `add` of each live file."""
        found = {}
        for path in sorted(Path(self.uri, "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            for action in actions:
                if "remove" in action:
                    found.pop(unquote(action["remove"]["path"]), None)
            for action in actions:
                if "add" in action:
                    found[unquote(action["add"]["path"])] = action["add"]
        return found

    def schema(self):
        """The schema of the only live file."""
        (name,) = self.live()
        return pq.read_schema(Path(self.uri, name))


def counted(rows):
    """Rows whatever their order, and that of their columns."""
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)


def ids(schema):
    """Field id by dotted name, of all structs."""
    found = {}

    def inside(field, above):
        id_ = (field.metadata or {}).get(b"PARQUET:field_id")
        path = f"{above}{field.name}"
        if id_ is not None:
            found[path] = int(id_)
        kind = field.type
        if pa.types.is_struct(kind):
            for member in kind:
                inside(member, f"{path}.")
        elif pa.types.is_list(kind):
            inside(kind.value_field, f"{path}.")

    for field in schema:
        inside(field, "")
    return found


MODES = ("name", "id")
K, V = Column("k", "col-k1", 1), Column("v", "col-v2", 2, "string")
DAY = Column("day", "col-d3", 3, "string")


def small(path, mode="name", columns=(K, V), parts=3, **given):
    """A table of files that overlap."""
    table = MappedTable(path / "t", columns, mode, **given)
    rows = []
    for part in range(parts):
        of_file = [{"k": part, "v": f"of {part}"}, {"k": part + 5, "v": None}]
        table.append(of_file)
        rows += of_file
    return table, rows
