"""The files of an Iceberg snapshot, as PyIceberg reads it; what they do not say alone is refused.

Not here: commits (`plait.table.iceberg`). Source: the Iceberg table specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.errors import Unsupported

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as IcebergTable

__all__ = ["check_file", "check_table", "planned", "refused", "refused_table", "scanned"]

# Format versions whose tables are read and committed.
_VERSIONS = (1, 2)


def check_table(name: str, table: IcebergTable) -> None:
    """Refuses tables whose files alone do not say what the rows are, or that take no commit."""
    version = table.metadata.format_version
    if version not in _VERSIONS:
        # Row lineage, deletion vectors, default values, new types; PyIceberg commits none of it.
        raise refused_table(name, "has an unknown format version", f"version {version}")
    if any(setting.startswith("encryption.") for setting in table.properties):
        raise refused_table(name, "is encrypted", "a property `encryption.*`")
    for spec in table.specs().values():
        for field in spec.fields:
            if type(field.transform).__name__ == "UnknownTransform":
                transform = getattr(field.transform, "_transform", field.transform)
                got = f"`{transform}` of `{field.name}`"
                raise refused_table(name, "is partitioned by an unknown transform", got)
    for column in table.schema().fields:
        if column.initial_default is not None:
            what = "has a column with a value where files lack it"
            raise refused_table(name, what, f"`{column.name}`")
    mapping = table.name_mapping()
    for mapped in mapping.root if mapping is not None else ():
        if len(mapped.names) > 1:
            what = "maps several names to one column, which files without ids may have"
            raise refused_table(name, what, ", ".join(f"`{n}`" for n in sorted(mapped.names)))


def planned(name: str, table: IcebergTable) -> list[FileScanTask]:
    """The live files, once it is known that their rows are simply theirs."""
    tasks = sorted(scanned(name, table), key=lambda task: str(task.file.file_path))
    for task in tasks:
        check_file(name, task)
    return tasks


def scanned(name: str, table: IcebergTable) -> list[FileScanTask]:
    """The live files, whatever their rows are."""
    try:
        return list(table.scan().plan_files())
    except (ValueError, NotImplementedError) as cause:
        # PyIceberg cannot even plan tables with equality deletes.
        if "delete" not in str(cause):
            raise
        hint = "rewrite such files first, such as with rewrite_data_files"
        raise refused_table(name, "has rows that are deleted by value", str(cause), hint) from cause


def check_file(name: str, task: FileScanTask) -> None:
    """Refuses files whose rows are not simply theirs."""
    if task.delete_files:
        hint = "rewrite such files first, such as with rewrite_data_files"
        raise refused(name, "has rows that are deleted by a delete file", task, hint)
    if task.file.key_metadata is not None:
        raise refused(name, "has data files that are encrypted", task)
    if task.file.file_format.name != "PARQUET":
        raise refused(name, "has data files that are not Parquet", task)


def refused_table(name: str, what: str, got: str, hint: str = "") -> Unsupported:
    """The error for a table that is not read."""
    error = Unsupported.of(
        f"the Iceberg table `{name}` {what}",
        got=got,
        hint=hint or "use the engine that wrote it",
    )
    error.path = name
    return error


def refused(name: str, what: str, task: FileScanTask, hint: str = "") -> Unsupported:
    """The error for a file of a table that is not read."""
    error = Unsupported.of(
        f"the Iceberg table `{name}` {what}",
        got=f"`{task.file.file_path}`",
        hint=hint or "rewrite it with the engine that wrote it",
    )
    error.path = task.file.file_path
    return error
