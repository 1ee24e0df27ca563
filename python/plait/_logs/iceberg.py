"""Which Iceberg tables are read; what of a table its files do not say alone is refused.

Not here: the files (`iceberg_files`), commits (`plait.table.iceberg`). Source: the Iceberg table
specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plait._logs.iceberg_files import IcebergFile, files_of
from plait.errors import SourceNotFound, Unsupported

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

__all__ = ["check_committed", "check_table", "found_in", "loaded", "readable"]

# Format versions whose tables are committed.
_COMMITTED = (1, 2)
_READ = (1, 2, 3)


def loaded(name: str, load: Callable[[], IcebergTable]) -> IcebergTable:
    """The table that a call of PyIceberg loads.

    Raises:
        Unsupported: Its metadata has what PyIceberg does not know: a format version, a type, a
            transform.
        SourceNotFound: There is no metadata where it should be.
    """
    from pyiceberg.exceptions import ValidationError  # noqa: PLC0415 - an extra

    try:
        with found_in(name):
            return load()
    except ValidationError as cause:
        raise refused_table(
            name, "has metadata that PyIceberg does not read", _said(cause), "upgrade pyiceberg"
        ) from cause


@contextmanager
def found_in(name: str) -> Iterator[None]:
    """Names the table where PyIceberg does not find a file of its metadata.

    Raises:
        SourceNotFound: It does not.
    """
    try:
        yield
    except FileNotFoundError as cause:
        error = SourceNotFound.of(
            f"the Iceberg table `{name}` lacks a file of its metadata",
            got=str(cause.filename or cause).partition("\n")[0],
            hint="its metadata names files by where they were written: was the table moved?",
        )
        error.path = name
        raise error from cause


def _said(error: Exception) -> str:
    """What an error of PyIceberg says of metadata, without the metadata itself."""
    listed = getattr(error.args[0] if error.args else None, "errors", None)
    if listed is None:
        return str(error).partition("\n")[0]
    first = listed(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    what = first["msg"].removeprefix("Value error, ")
    return f"`{where}`: {what}" if where else str(what)


def check_committed(name: str, table: IcebergTable) -> None:
    """Refuses tables that are not read, or take no commit."""
    from pyiceberg.exceptions import ValidationError  # noqa: PLC0415 - an extra
    from pyiceberg.schema import index_by_id  # noqa: PLC0415

    version = table.metadata.format_version
    if version not in _COMMITTED:
        # PyIceberg writes no manifests of version 3, and gives rows no ids.
        raise refused_table(
            name,
            "has a format version that PyIceberg does not commit",
            f"version {version}",
            "compact it with the engine that wrote it; plait.read and plait.merge read it",
        )
    check_table(name, table)
    for column in index_by_id(table.schema()).values():
        if column.field_type.minimum_format_version() > version:
            # Bounds of new files would be in other units.
            what = f"has a column of a type that format version {version} does not have"
            raise refused_table(name, what, f"`{column.name}` of {column.field_type}")
    try:
        # What every commit checks, such as the sort order.
        _ = table.transaction().table_metadata
    except ValidationError as cause:
        what = "has metadata that PyIceberg does not commit"
        raise refused_table(name, what, _said(cause)) from cause


def check_table(name: str, table: IcebergTable) -> None:
    """Refuses tables whose files alone do not say what the rows are."""
    from pyiceberg.schema import index_by_id  # noqa: PLC0415 - an extra

    version = table.metadata.format_version
    if version not in _READ:
        raise refused_table(name, "has an unknown format version", f"version {version}")
    if any(setting.startswith("encryption.") for setting in table.properties):
        raise refused_table(name, "is encrypted", "a property `encryption.*`")
    for spec in table.specs().values():
        for field in spec.fields:
            if type(field.transform).__name__ == "UnknownTransform":
                transform = getattr(field.transform, "_transform", field.transform)
                got = f"`{transform}` of `{field.name}`"
                raise refused_table(name, "is partitioned by an unknown transform", got)
    schema = table.schema()
    for field_id, column in index_by_id(schema).items():
        if column.initial_default is not None:
            what = "has a column with a value where files lack it"
            raise refused_table(name, what, f"`{schema.find_column_name(field_id) or column.name}`")


def readable(name: str, table: IcebergTable) -> tuple[IcebergFile, ...]:
    """The live files, once it is known that all of their rows can be read."""
    mapping = table.name_mapping()
    for mapped in mapping.root if mapping is not None else ():
        if len(mapped.names) > 1:
            what = "maps several names to one column, which files without ids may have"
            raise refused_table(name, what, ", ".join(f"`{n}`" for n in sorted(mapped.names)))
    with found_in(name):
        files = files_of(table).data
    for file in files:
        if file.unread:
            raise refused(name, file)
    return files


def refused_table(name: str, what: str, got: str, hint: str = "") -> Unsupported:
    """The error for a table that is not read."""
    error = Unsupported.of(
        f"the Iceberg table `{name}` {what}",
        got=got,
        hint=hint or "use the engine that wrote it",
    )
    error.path = name
    return error


def refused(name: str, file: IcebergFile) -> Unsupported:
    """The error for a table with a file that is not read."""
    error = Unsupported.of(
        f"the Iceberg table `{name}` has a file that {file.unread.partition(': ')[0]}",
        got=f"`{file.file.file_path}`",
        hint="rewrite it with the engine that wrote it",
    )
    error.path = file.path
    return error
