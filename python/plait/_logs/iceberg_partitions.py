"""Columns of an Iceberg table that its files do not store: their partitions have the values.

    p=7/a.parquet   k          partition {p: 7}   ──▶  p is 7 in all rows of the file

Files of Hive are so. All files of a table lack such a column, or none: a table of both is refused.
Cost: the footers of all files whose partitions have values of columns as they are. Counts of values
in the metadata do not tell: some writers count those of columns that they do not store.
Not here: how rows get the values (the engine). Source: the Iceberg table specification, "Column
Projection".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plait._logs.iceberg_files import IcebergFile
from plait.errors import Unsupported

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.types import NestedField

__all__ = ["unstored"]

# Name, type as Arrow writes it, and text by location of the file.
Values = tuple[str, str, dict[str, str | None]]
_FIELD_ID = b"PARQUET:field_id"
_TYPES = {
    "string": "Utf8",
    "long": "Int64",
    "int": "Int32",
    "float": "Float32",
    "double": "Float64",
    "boolean": "Boolean",
    "date": "Date32",
    "timestamp": "Timestamp(Microsecond, None)",
    "timestamptz": 'Timestamp(Microsecond, Some("+00:00"))',
}


def unstored(name: str, table: IcebergTable, files: Sequence[IcebergFile]) -> tuple[Values, ...]:
    """The values of columns that no file stores.

    Raises:
        Unsupported: Some files store such a column and others do not, or its type is not read.
    """
    columns = [
        column
        for column in table.schema().fields
        if any(_place(table, file, column) is not None for file in files)
    ]
    if not columns:
        return ()
    stored = _stored(table, files)
    found = []
    for column in columns:
        names = _names(table, column)
        lacking = {
            file.path
            for file in files
            if _place(table, file, column) is not None
            and (here := stored[file.path]) is not None
            and here.isdisjoint(names)
        }
        if not lacking:
            continue
        other = next((file.path for file in files if file.path not in lacking), None)
        if other is not None:
            what = f"has files that store the partition column `{column.name}`, and others do not"
            raise _refused(name, what, f"`{other}` stores it, `{min(lacking)}` does not")
        kind = str(column.field_type)
        arrow = f"Decimal128{kind[7:]}" if kind.startswith("decimal") else _TYPES.get(kind)
        if arrow is None:
            what = "has a partition column that files lack, of a type that is not read"
            raise _refused(name, what, f"`{column.name}` of {kind}")
        texts = {file.path: _text(table, file, column) for file in files}
        found.append((column.name, arrow, texts))
    return tuple(found)


def _names(table: IcebergTable, column: NestedField) -> set[str | int]:
    """What files may call a column: its field id, or else a name."""
    mapping = table.name_mapping()
    mapped = [] if mapping is None else [m for m in mapping.root if m.field_id == column.field_id]
    return {column.field_id, column.name, *(name for m in mapped for name in m.names)}


def _stored(table: IcebergTable, files: Sequence[IcebergFile]) -> dict[str, set[str | int] | None]:
    """The field ids of the columns that files have, or their names if they have no ids.

    `None` for a file that cannot be read: what is wrong with it is said where its rows are read.
    """
    import pyarrow as pa  # noqa: PLC0415 - of PyIceberg
    import pyarrow.parquet as pq  # noqa: PLC0415
    from pyiceberg.utils.concurrent import ExecutorFactory  # noqa: PLC0415 - an extra

    def read(file: IcebergFile) -> set[str | int] | None:
        try:
            with table.io.new_input(file.file.file_path).open() as stream:
                schema = pq.read_schema(stream)
        except (OSError, pa.ArrowException):
            return None
        ids = [(field.metadata or {}).get(_FIELD_ID) for field in schema]
        return {int(id_) for id_ in ids if id_} if any(ids) else set(schema.names)

    read_all = ExecutorFactory.get_or_create().map(read, files)
    return dict(zip((file.path for file in files), read_all, strict=True))


def _place(table: IcebergTable, file: IcebergFile, column: NestedField) -> int | None:
    """Which of the values of the partition is that of the column."""
    fields = table.specs()[file.file.spec_id].fields
    for place, field in enumerate(fields):
        if field.source_id == column.field_id and str(field.transform) == "identity":
            return place
    return None


def _text(table: IcebergTable, file: IcebergFile, column: NestedField) -> str | None:
    """The value of the partition, as text."""
    import pyarrow as pa  # noqa: PLC0415 - of PyIceberg
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415

    place = _place(table, file, column)
    value: Any = None if place is None else file.file.partition[place]
    if value is None:
        return None
    kind = schema_to_pyarrow(column.field_type)
    if pa.types.is_timestamp(kind):
        kind = pa.timestamp("us")  # of UTC, as the column says
    (text,) = pa.array([value], kind).cast(pa.string()).to_pylist()
    return str(text)


def _refused(name: str, what: str, got: str) -> Unsupported:
    error = Unsupported.of(
        f"the Iceberg table `{name}` {what}", got=got, hint="read it with the engine that wrote it"
    )
    error.path = name
    return error
