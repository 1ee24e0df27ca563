"""Rewrites footers of Parquet files: fields taken away, fields changed. Pages stay as they are.

A footer is Thrift in its compact protocol. It is read generically, so that whatever a writer put there
survives, and written back behind the same pages:

    footers.without(source, copy, "ColumnMetaData.encoding_stats", "Statistics.null_count")
    footers.change(source, copy, lambda footer: footer.chunks(1)[0].set("num_values", 7))

`OPTIONAL` names every field that the format lets a writer leave out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Types of the compact protocol.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

# Fields of the format (parquet.thrift), by struct. A name that ends in `?` is optional.
FIELDS: dict[str, dict[str, int]] = {
    "FileMetaData": {
        "version": 1,
        "schema": 2,
        "num_rows": 3,
        "row_groups": 4,
        "key_value_metadata?": 5,
        "created_by?": 6,
        "column_orders?": 7,
    },
    "SchemaElement": {
        "type": 1,
        "type_length": 2,
        "repetition_type": 3,
        "name": 4,
        "num_children": 5,
        "converted_type?": 6,
        "scale": 7,
        "precision": 8,
        "field_id?": 9,
        "logicalType?": 10,
    },
    "RowGroup": {
        "columns": 1,
        "total_byte_size": 2,
        "num_rows": 3,
        "sorting_columns?": 4,
        "file_offset?": 5,
        "total_compressed_size?": 6,
        "ordinal?": 7,
    },
    "ColumnChunk": {
        "file_path?": 1,
        "file_offset": 2,
        "meta_data": 3,
        "offset_index_offset?": 4,
        "offset_index_length?": 5,
        "column_index_offset?": 6,
        "column_index_length?": 7,
    },
    "ColumnMetaData": {
        "type": 1,
        "encodings": 2,
        "path_in_schema": 3,
        "codec": 4,
        "num_values": 5,
        "total_uncompressed_size": 6,
        "total_compressed_size": 7,
        "key_value_metadata?": 8,
        "data_page_offset": 9,
        "index_page_offset?": 10,
        "dictionary_page_offset?": 11,
        "statistics?": 12,
        "encoding_stats?": 13,
        "bloom_filter_offset?": 14,
        "bloom_filter_length?": 15,
        "size_statistics?": 16,
        "geospatial_statistics?": 17,
    },
    "Statistics": {
        "max?": 1,
        "min?": 2,
        "null_count?": 3,
        "distinct_count?": 4,
        "max_value?": 5,
        "min_value?": 6,
        "is_max_value_exact?": 7,
        "is_min_value_exact?": 8,
        "nan_count?": 9,
    },
    "SizeStatistics": {
        "unencoded_byte_array_data_bytes?": 1,
        "repetition_level_histogram?": 2,
        "definition_level_histogram?": 3,
    },
    "PageEncodingStats": {"page_type": 1, "encoding": 2, "count": 3},
}

# Structs within structs: where each of them is found.
INNER = {
    ("FileMetaData", 2): "SchemaElement",
    ("FileMetaData", 4): "RowGroup",
    ("RowGroup", 1): "ColumnChunk",
    ("ColumnChunk", 3): "ColumnMetaData",
    ("ColumnMetaData", 12): "Statistics",
    ("ColumnMetaData", 13): "PageEncodingStats",
    ("ColumnMetaData", 16): "SizeStatistics",
}

IDS = {kind: {name.rstrip("?"): i for name, i in known.items()} for kind, known in FIELDS.items()}

OPTIONAL = [
    f"{kind}.{name[:-1]}" for kind, known in FIELDS.items() for name in known if name.endswith("?")
]


@dataclass
class Struct:
    """A Thrift struct: values and their types by field id."""

    kind: str | None = None
    fields: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def id(self, name: str) -> int:
        """The number of a field that the format names."""
        assert self.kind is not None, "the format's name of this struct is not known here"
        return IDS[self.kind][name]

    def get(self, name: str) -> Any:
        """The value of a field, or `None`."""
        return self.fields.get(self.id(name), (None, None))[1]

    def set(self, name: str, value: Any) -> None:
        """Another value for a field that is there."""
        at = self.id(name)
        kind, _ = self.fields[at]
        self.fields[at] = (kind, value)

    def add(self, name: str, kind: int, value: Any) -> None:
        """A field, there before or not."""
        self.fields[self.id(name)] = (kind, value)

    def drop(self, name: str) -> bool:
        """Takes a field away; whether it was there."""
        return self.fields.pop(self.id(name), None) is not None


@dataclass
class Items:
    """A Thrift list."""

    kind: int
    items: list[Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> Any:
        return self.items[at]


class Footer(Struct):
    """A file's metadata."""

    def structs(self, kind: str) -> list[Struct]:
        """All structs of one kind."""
        return [found for found in everything(self) if found.kind == kind]

    def chunks(self, row_group: int) -> list[Struct]:
        """`ColumnMetaData` of all columns of a row group."""
        columns = self.get("row_groups")[row_group].get("columns")
        return [column.get("meta_data") for column in columns]

    def without(self, *names: str) -> int:
        """Takes fields away, each written `Struct.field`; how many there were."""
        pairs = [name.split(".") for name in names]
        return sum(found.drop(name) for kind, name in pairs for found in self.structs(kind))


def everything(value: Any) -> Iterator[Struct]:
    """All structs within a value, itself first."""
    if isinstance(value, Struct):
        yield value
        for _, inner in list(value.fields.values()):
            yield from everything(inner)
    elif isinstance(value, Items):
        for inner in value:
            yield from everything(inner)


class Reader:
    """Reads the compact protocol."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def value(self, kind: int, name: str | None) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return self.byte()
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind in (DOUBLE, BINARY):
            length = 8 if kind == DOUBLE else self.varint()
            self.at += length
            return self.data[self.at - length : self.at]
        if kind in (LIST, SET):
            head = self.byte()
            length, inner = head >> 4, head & 15
            length = self.varint() if length == 15 else length
            # Within lists, a boolean is a byte.
            inner_kind = BYTE if inner in (TRUE, FALSE) else inner
            return Items(inner, [self.value(inner_kind, name) for _ in range(length)])
        assert kind == STRUCT, f"type {kind} is not in footers"
        return self.struct(Struct(name))

    def struct(self, into: Struct) -> Struct:
        last = 0
        while head := self.byte():
            delta, kind = head >> 4, head & 15
            last = last + delta if delta else self.zigzag()
            into.fields[last] = (kind, self.value(kind, INNER.get((into.kind or "", last))))
        return into


class Writer:
    """Writes the compact protocol."""

    def __init__(self) -> None:
        self.out = bytearray()

    def varint(self, value: int) -> None:
        while value >= 0x80:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def zigzag(self, value: int) -> None:
        self.varint(value << 1 if value >= 0 else (-value << 1) - 1)

    def value(self, kind: int, value: Any) -> None:
        if kind == BYTE:
            self.out.append(value)
        elif kind in (I16, I32, I64):
            self.zigzag(value)
        elif kind in (DOUBLE, BINARY):
            if kind == BINARY:
                self.varint(len(value))
            self.out += value
        elif kind in (LIST, SET):
            length = len(value)
            self.out.append(min(length, 15) << 4 | value.kind)
            if length >= 15:
                self.varint(length)
            inner_kind = BYTE if value.kind in (TRUE, FALSE) else value.kind
            for inner in value:
                self.value(inner_kind, inner)
        elif kind == STRUCT:
            self.struct(value)

    def struct(self, value: Struct) -> None:
        last = 0
        for at, (kind, inner) in sorted(value.fields.items()):
            written = (TRUE if inner else FALSE) if kind in (TRUE, FALSE) else kind
            if 0 < at - last < 16:
                self.out.append((at - last) << 4 | written)
            else:
                self.out.append(written)
                self.zigzag(at)
            if kind not in (TRUE, FALSE):
                self.value(kind, inner)
            last = at
        self.out.append(0)


def read(path: str | Path) -> Footer:
    """The footer of a file."""
    data = Path(path).read_bytes()
    return parse(data)[0]


def parse(data: bytes) -> tuple[Footer, int]:
    """The footer of a file's bytes, and where it begins."""
    assert data[-4:] == b"PAR1", "not a Parquet file"
    (length,) = struct.unpack("<I", data[-8:-4])
    start = len(data) - 8 - length
    footer = Reader(data[start:-8]).struct(Footer("FileMetaData"))
    assert isinstance(footer, Footer)
    return footer, start


def encode(footer: Footer) -> bytes:
    """A footer as a file holds it, with its length and the magic bytes."""
    writer = Writer()
    writer.struct(footer)
    return bytes(writer.out) + struct.pack("<I", len(writer.out)) + b"PAR1"


def change(source: str | Path, copy: str | Path, edit: Callable[[Footer], Any]) -> Path:
    """Writes `source` to `copy` with the footer that `edit` makes of its own, in place."""
    data = Path(source).read_bytes()
    footer, start = parse(data)
    edit(footer)
    Path(copy).write_bytes(data[:start] + encode(footer))
    return Path(copy)


def without(source: str | Path, copy: str | Path, *names: str) -> int:
    """Writes `source` to `copy` without the fields `names`; how many fields were there."""
    taken = 0

    def edit(footer: Footer) -> None:
        nonlocal taken
        taken = footer.without(*names)

    change(source, copy, edit)
    return taken
