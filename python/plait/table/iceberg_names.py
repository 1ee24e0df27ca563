"""Files of an Iceberg table that give one name to different columns: not merged with one another.

    a.parquet  k #2, v #3 ─┐
    b.parquet  k #2, w #3 ─┴─ one naming: `v` was renamed
    c.parquet  k #5        ── another: `k` was dropped and added again, or names were exchanged

Invariant: in the files of one naming, a name is one column. Without field ids, a column has one
name in them, too.
Cost: the footers of all files, if a name ever was that of two columns, or files without field ids
may have several names for one; none otherwise.
Not here: matching the columns of files of one naming (the engine). Source: the Iceberg table
specification, "Schema Evolution" and "Column Projection".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait import _native
from plait.order import _quoted_if_odd

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.name_mapping import MappedField, NameMapping

    from plait._logs.iceberg_files import IcebergFile

__all__ = ["Named", "by_names"]

# The id of what a column lies in, 0 for none, and its name there.
Place = tuple[int, str]


@dataclass
class _Naming:
    """What the columns of some files are called.

    Attributes:
        has_ids: Whether the files have field ids.
        columns: Column by place.
        paths: Names of a column, from the outermost, by its id.
    """

    has_ids: bool
    columns: dict[Place, int] = field(default_factory=dict)
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def takes(self, other: _Naming) -> bool:
        """Whether files of both can be merged."""
        if self.has_ids != other.has_ids:
            return False
        both = self.columns.keys() & other.columns.keys()
        if any(self.columns[place] != other.columns[place] for place in both):
            return False
        return self.has_ids or all(
            self.paths.get(column, path) == path for column, path in other.paths.items()
        )

    def add(self, other: _Naming) -> None:
        self.columns |= other.columns
        self.paths = other.paths | self.paths


@dataclass
class Named:
    """Files of one naming.

    Attributes:
        files: The files.
        sort_by: The order by the names of these files.
        why: Why they have no such order; `""` if they have.
    """

    files: list[IcebergFile]
    sort_by: str | None
    why: str = ""


def by_names(table: IcebergTable, files: Sequence[IcebergFile], sort_by: str | None) -> list[Named]:
    """Files that may be merged with one another.

    Args:
        table: The table.
        files: Files of one partition.
        sort_by: Their order by the names of the table.
    """
    if len(files) < 2 or not _is_at_odds(table):  # noqa: PLR2004 - a file has no other
        return [Named(list(files), sort_by)]
    from pyiceberg.utils.concurrent import ExecutorFactory  # noqa: PLC0415 - an extra

    mapping = table.name_mapping()

    def read(file: IcebergFile) -> _Naming | None:
        return None if file.unread else _read(table.io, file.file.file_path, mapping)

    made: list[tuple[_Naming, list[IcebergFile]]] = []
    unknown: list[IcebergFile] = []
    readings = ExecutorFactory.get_or_create().map(read, files)
    for file, naming in zip(files, readings, strict=True):
        if naming is None:
            unknown.append(file)
            continue
        for known, members in made:
            if known.takes(naming):
                known.add(naming)
                members.append(file)
                break
        else:
            made.append((naming, [file]))
    found = [_ordered(table, naming, members, sort_by) for naming, members in made]
    if unknown:
        # What is wrong with them is found out where they are planned, each for itself.
        found += [Named([file], sort_by) for file in unknown]
    return found


def _is_at_odds(table: IcebergTable) -> bool:
    """Whether files may give one name to two columns, or two names to one that has no id."""
    known: dict[Place, int] = {}
    for schema in table.schemas().values():
        for place, column, _ in _places(schema):
            if known.setdefault(place, column) != column:
                return True
    mapping = table.name_mapping()
    return mapping is not None and any(_are_many(mapped) for mapped in mapping.root)


def _are_many(mapped: MappedField) -> bool:
    return len(mapped.names) > 1 or any(map(_are_many, mapped.fields))


def _places(schema: Schema) -> Iterator[tuple[Place, int, tuple[str, ...]]]:
    """Place, id and names of each column, also of those in others."""
    from pyiceberg.types import ListType, MapType, StructType  # noqa: PLC0415 - an extra

    def inside(kind: Any, parent: int, path: tuple[str, ...]) -> Iterator[Any]:  # noqa: ANN401
        if isinstance(kind, StructType):
            children = [(f.field_id, f.name, f.field_type) for f in kind.fields]
        elif isinstance(kind, ListType):
            children = [(kind.element_id, "element", kind.element_type)]
        elif isinstance(kind, MapType):
            keys = (kind.key_id, "key", kind.key_type)
            children = [keys, (kind.value_id, "value", kind.value_type)]
        else:
            return
        for column, name, of in children:
            yield (parent, name), column, (*path, name)
            yield from inside(of, column, (*path, name))

    yield from inside(schema.as_struct(), 0, ())


def _read(io: FileIO, path: str, mapping: NameMapping | None) -> _Naming | None:
    """What the columns of a file are called; `None` if that cannot be read."""
    import pyarrow as pa  # noqa: PLC0415 - of PyIceberg
    import pyarrow.parquet as pq  # noqa: PLC0415
    from pyiceberg.io.pyarrow import (  # noqa: PLC0415
        UnsupportedPyArrowTypeException,
        pyarrow_to_schema,
    )

    try:
        with io.new_input(path).open() as stream:
            stored = pq.read_schema(stream)
        schema = pyarrow_to_schema(stored, mapping, downcast_ns_timestamp_to_us=True)
    except (OSError, pa.ArrowException, UnsupportedPyArrowTypeException, ValueError, TypeError):
        return None
    made = _Naming(all(b"PARQUET:field_id" in (column.metadata or {}) for column in stored))
    for place, column, names in _places(schema):
        made.columns[place] = column
        made.paths[column] = names
    return made


def _ordered(
    table: IcebergTable, naming: _Naming, files: list[IcebergFile], sort_by: str | None
) -> Named:
    """Files with their order in the names that they have."""
    if not sort_by:
        return Named(files, sort_by)
    columns, is_same = [], True
    for names, is_descending, is_nulls_first in _native.sort_columns(sort_by):
        path = tuple(names)
        column = _column(table, path)
        here = naming.paths.get(column, path) if column is not None else path
        if column is not None and column not in naming.paths and path in naming.paths.values():
            why = f"sort column `{'.'.join(path)}` is another column in the file, of the same name"
            return Named(files, sort_by, why)
        is_same = is_same and here == path
        sign, nulls = "-" * is_descending, " nulls first" * is_nulls_first
        columns.append(f"{sign}{'.'.join(map(_quoted_if_odd, here))}{nulls}")
    if is_same:
        return Named(files, sort_by)
    if "(" in sort_by:
        return Named(files, sort_by, "sort columns of a curve have other names in the file")
    return Named(files, ", ".join(columns))


def _column(table: IcebergTable, path: tuple[str, ...]) -> int | None:
    """The column of a name: of the newest schema, or else the only one that ever had it."""
    schemas = [table.schema(), *table.schemas().values()]
    found = [
        {column for _, column, names in _places(schema) if names == path} for schema in schemas
    ]
    if found[0]:
        return next(iter(found[0]))
    ever = set[int]().union(*found)
    return ever.pop() if len(ever) == 1 else None
