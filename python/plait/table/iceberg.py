"""Iceberg tables, through PyIceberg: one snapshot replaces the files of a group.

newest snapshot ──▶ do all replaced files still count, without row-level deletes?
      ▲                      │ yes: a snapshot on top of that one, with no retries of PyIceberg
      └── others were quicker◀┘

Invariants: a commit is tried on top of the snapshot that was looked at and of no other. Deletes by
position or by value never apply to rows that were merged before they came.
Cost: the manifests are read again for every attempt.
Not here: catalogs; whoever calls brings one. Source: the Iceberg table specification.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from plait._logs.iceberg import check_file, check_table, refused, scanned
from plait.errors import InvalidArgument, SourceNotFound, UnknownColumn
from plait.order import _quoted_if_odd
from plait.table.change import Change, Committed, Conflicted, Outcome, Retryable
from plait.table.survey import (
    Compaction,
    Found,
    Group,
    Scope,
    TableFile,
    groups_of_all,
    partition_name,
    wanted,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as IcebergTable

__all__ = ["Iceberg"]

_NULL = "null"


class Iceberg:
    """An Iceberg table."""

    format = "iceberg"
    is_in_place = True

    def __init__(self, catalog: Catalog | str, name: str) -> None:
        """Takes a catalog, or the name of one that PyIceberg is configured for."""
        self.name = name
        self._catalog = _catalog(catalog)

    def survey(self, compaction: Compaction) -> Found:
        """The groups that the policy finds in each partition."""
        where, options = compaction.options.partitions, compaction.options.merge_options
        table = self._load()
        check_table(self.name, table)
        columns = [field.name for field in table.spec().fields]
        unknown = sorted(set(where) - set(columns))
        if unknown:
            raise UnknownColumn.of(
                "the table has no such partition column",
                got=f"`{unknown[0]}`",
                hint=f"partition fields: {', '.join(columns) or 'none'}",
            )
        snapshot = table.current_snapshot()
        if snapshot is None:
            return Found(0, files=0)
        order = _order(table) if options["sort_by"] is None else options["sort_by"]
        # What a file lacks is null in the table: its schema says that the column is there.
        merge = {**options, "sort_by": order, "missing_keys": "null"}
        every = defaultdict(list)
        for task in scanned(self.name, table):
            _check_spec(self.name, task, table)
            every[tuple(_values(task.file, columns).items())].append(task)
        named = {values: _texts(table, dict(values)) for values in every}
        scopes = []
        for values in sorted(wanted(named, _as_shown(where, named)), key=str):
            for task in every[values]:
                check_file(self.name, task)
            found = sorted((t.file for t in every[values]), key=lambda file: str(file.file_path))
            files = tuple(
                TableFile(f.file_path, _path(f.file_path), f.record_count, f.file_size_in_bytes)
                for f in found
            )
            name = partition_name(named[values])
            scopes.append(Scope(name, files[0].path.rpartition("/")[0], files))
        groups = groups_of_all(scopes, compaction, merge)
        return Found.of_scopes(snapshot.snapshot_id, scopes, groups, compaction)

    def leased(self, groups: Sequence[Group]) -> AbstractContextManager[Sequence[Group]]:
        """The groups as they are: what `VACUUM` or orphan removal spares is their age."""
        return nullcontext(groups)

    def is_live(self, group: Group) -> bool:
        """Whether the newest snapshot has all files of the group."""
        live = {task.file.file_path for task in scanned(self.name, self._load())}
        return live.issuperset(file.name for file in group.files)

    def commit(self, change: Change) -> Outcome:
        """Commits on top of the newest snapshot, if the replaced files count in it."""
        from pyiceberg.exceptions import (  # noqa: PLC0415 - an extra
            CommitFailedException,
            ValidationException,
        )

        table = self._load()
        check_table(self.name, table)
        tasks = {task.file.file_path: task for task in scanned(self.name, table)}
        replaced = [tasks.get(path) for path in change.replaced]
        # Named as the files of the table are, by whichever form of URL.
        first = change.replaced[0]
        scheme = first.removesuffix(_path(first))
        added = [scheme + output.path for output in change.added]
        snapshot = table.current_snapshot()
        if all(path in tasks for path in added) and not any(replaced):
            return Committed(snapshot.snapshot_id if snapshot else 0)
        live = [task for task in replaced if task is not None]
        if len(live) < len(replaced):
            return Conflicted("a file is not live any more")
        if any(task.delete_files for task in live):
            return Conflicted("rows were deleted by a delete file")
        new = self._actions(table, added, live[0].file)
        # One attempt: what follows a lost race is looked at anew, above.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        transaction = table.transaction()
        properties = {"plait.task": change.token}
        try:
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as update:
                for file in new:
                    update.append_data_file(file)
                for task in live:
                    update.delete_data_file(task.file)
            transaction.commit_transaction()
        except (CommitFailedException, ValidationException) as cause:
            return Retryable(str(cause))
        current = self._load().current_snapshot()
        return Committed(current.snapshot_id if current else 0)

    def _actions(self, table: IcebergTable, added: list[str], like: DataFile) -> list[DataFile]:
        return [_data_file(table, path, like) for path in added]

    def _load(self) -> IcebergTable:
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 - an extra

        try:
            return self._catalog.load_table(self.name)
        except NoSuchTableError as cause:
            raise SourceNotFound.of(
                "there is no such Iceberg table", got=f"`{self.name}`"
            ) from cause


def _catalog(catalog: Catalog | str) -> Catalog:
    if not isinstance(catalog, str):
        return catalog
    try:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
    except ImportError as cause:
        raise InvalidArgument.of(
            "Iceberg tables need pyiceberg", hint="pip install 'plait[iceberg]'"
        ) from cause
    try:
        return load_catalog(catalog)
    except ValueError as cause:
        raise InvalidArgument.of(
            "there is no such catalog",
            got=f"`{catalog}`: {cause}",
            hint="configure it in .pyiceberg.yaml or by PYICEBERG_CATALOG__* variables",
        ) from cause


def _order(table: IcebergTable, schema: Schema | None = None) -> str | None:
    """The table's sort order as `sort_by`; `None` if it has none that says it all.

    Args:
        table: The table.
        schema: The schema by whose names it is said; the table's by default.
    """
    schema = schema or table.schema()
    parts = []
    for field in table.sort_order().fields:
        if str(field.transform) != "identity":
            return None
        name = schema.find_column_name(field.source_id)
        if name is None:
            return None
        # As the engine spells it, so that footers can be compared.
        sign = "-" if field.direction.name == "DESC" else ""
        nulls = " nulls first" if field.null_order.name == "NULLS_FIRST" else ""
        parts.append(f"{sign}{_quoted_if_odd(name)}{nulls}")
    return ", ".join(parts) or None


def _check_spec(name: str, task: FileScanTask, table: IcebergTable) -> None:
    """Refuses files whose partition is not one of the table as it is now."""
    if task.file.spec_id != table.spec().spec_id:
        raise refused(name, "has files of an older partition spec", task)


def _values(file: DataFile, columns: Iterable[str]) -> dict[str, Any]:
    return {column: file.partition[i] for i, column in enumerate(columns)}


def _texts(table: IcebergTable, values: dict[str, Any]) -> dict[str, str]:
    """Values of a partition as people read them: days and times, not their numbers."""
    texts = {}
    for field in table.spec().fields:
        value = values[field.name]
        text = _NULL if value is None else str(value)
        if isinstance(value, int):
            source = table.schema().find_type(field.source_id)
            text = field.transform.to_human_string(source, value)
        texts[field.name] = text
    return texts


def _as_shown(
    where: dict[str, tuple[str, ...]], named: dict[tuple[tuple[str, Any], ...], dict[str, str]]
) -> dict[str, tuple[str, ...]]:
    """A `where` by the texts of partitions; it may name the numbers that tables store, too."""
    texts = {(c, str(value)): named[values][c] for values in named for c, value in values}
    return {c: tuple(texts.get((c, value), value) for value in where[c]) for c in where}


def _path(location: str) -> str:
    """Where the engine finds a file: `file:///a` and `file:/a` are `/a`."""
    return location.removeprefix("file://").removeprefix("file:")


def _data_file(table: IcebergTable, path: str, like: DataFile) -> DataFile:
    """The entry of an output: partition of what it replaces, metrics from its footer."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - of PyIceberg
    from pyiceberg.io.pyarrow import (  # noqa: PLC0415
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
        pyarrow_to_schema,
    )
    from pyiceberg.manifest import DataFile  # noqa: PLC0415

    source = table.io.new_input(path)
    with source.open() as stream:
        footer = pq.read_metadata(stream)
    # The file's own names and ids: columns may have been renamed or dropped since.
    schema = pyarrow_to_schema(
        footer.schema.to_arrow_schema(), table.name_mapping(), downcast_ns_timestamp_to_us=True
    )
    metrics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=like.content,
        file_path=path,
        file_format=like.file_format,
        partition=like.partition,
        file_size_in_bytes=len(source),
        sort_order_id=_sort_order_id(table, footer.metadata or {}, schema),
        spec_id=like.spec_id,
        equality_ids=None,
        key_metadata=None,
        **metrics.to_serialized_dict(),
    )


def _sort_order_id(table: IcebergTable, metadata: dict[bytes, bytes], schema: Schema) -> int | None:
    """The table's sort order, if the output has it: of the same columns by their ids."""
    made = metadata.get(b"plait.sort_order", b"").decode()
    return table.sort_order().order_id if made and made == _order(table, schema) else None
