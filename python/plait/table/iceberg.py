"""Iceberg tables, through PyIceberg: one snapshot replaces the files of a group.

newest snapshot ──▶ are all replaced files live, with the deletes that were merged?
      ▲                      │ yes: a snapshot on top of that one, with no retries of PyIceberg
      └── others were quicker◀┘

Invariants: a commit is tried on top of the snapshot that was looked at and of no other. Deletes by
position that came meanwhile are a conflict; deletes by value apply to the new files, too. A delete
file that reaches no data file any more goes in the same snapshot. Files are merged with files of
their partition specification alone.
Cost: the manifests are read again for every attempt.
Not here: catalogs; whoever calls brings one. The snapshot itself (`iceberg_snapshot`). Source: the
Iceberg table specification.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from plait._logs.iceberg import check_committed, loaded
from plait._logs.iceberg_files import IcebergFile, IcebergFiles, Partition, files_of, path_of
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
        # Of the snapshot that was surveyed: deletes by value up to it are merged.
        self._sequence = 0

    def survey(self, compaction: Compaction) -> Found:
        """The groups that the policy finds in each partition."""
        where, options = compaction.options.partitions, compaction.options.merge_options
        table = self._load()
        check_committed(self.name, table)
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
        self._sequence = snapshot.sequence_number or 0
        order = _order(table) if options["sort_by"] is None else options["sort_by"]
        files = files_of(table)
        # What a file lacks is null in the table: its schema says that the column is there.
        merge = {
            **options,
            "sort_by": order,
            "missing_keys": "null",
            "deletion_vectors": {f.path: f.vector for f in files.data if f.vector is not None},
        }
        every: dict[Partition, list[IcebergFile]] = defaultdict(list)
        for file in files.data:
            every[file.partition].append(file)
        named = {partition: _texts(table, partition) for partition in every}
        values = {partition: _stored(table, partition) for partition in every}
        scopes = []
        for partition in sorted(wanted(named, _as_shown(where, named, values)), key=str):
            found = every[partition]
            unread = {file.path: f"the file {file.unread}" for file in found if file.unread}
            compaction.left.update(unread)
            members = tuple(self._file(file) for file in found)
            name = partition_name(named[partition])
            scopes.append(Scope(name, members[0].path.rpartition("/")[0], members))
        groups = groups_of_all(scopes, compaction, merge)
        return Found.of_scopes(snapshot.snapshot_id, scopes, groups, compaction)

    def _file(self, file: IcebergFile) -> TableFile:
        entry = file.file
        return TableFile(
            file.id_at(self._sequence),
            file.path,
            entry.record_count - file.deleted_max,
            entry.file_size_in_bytes,
            file.deleted_max,
        )

    def leased(self, groups: Sequence[Group]) -> AbstractContextManager[Sequence[Group]]:
        """The groups as they are: what `VACUUM` or orphan removal spares is their age."""
        return nullcontext(groups)

    def is_live(self, group: Group) -> bool:
        """Whether the newest snapshot has all files of the group."""
        live = self._live(files_of(self._load()))
        return live.keys() >= {file.name for file in group.files}

    def _live(self, files: IcebergFiles) -> dict[str, IcebergFile]:
        """Files by what names them, apart from deletes that apply to what is made of them."""
        return {file.id_at(self._sequence): file for file in files.data}

    def commit(self, change: Change) -> Outcome:
        """Commits on top of the newest snapshot, if the replaced files count in it."""
        from pyiceberg.exceptions import (  # noqa: PLC0415 - an extra
            CommitFailedException,
            ValidationException,
        )

        from plait.table.iceberg_snapshot import Replacement, commit_replacement  # noqa: PLC0415

        table = self._load()
        check_committed(self.name, table)
        files = files_of(table)
        live = self._live(files)
        replaced = [live[name] for name in change.replaced if name in live]
        # Named as the files of the table are, by whichever form of URL.
        first = change.replaced[0].partition("\n")[0]
        scheme = first.removesuffix(path_of(first))
        added = [scheme + output.path for output in change.added]
        snapshot = table.current_snapshot()
        if not replaced and {file.file.file_path for file in files.data}.issuperset(added):
            return Committed(snapshot.snapshot_id if snapshot else 0)
        if len(replaced) < len(change.replaced):
            return Conflicted("a file is not live any more, or rows of it were deleted")
        gone = [file.id for file in replaced]
        deletes = files.unreached(gone, newer=self._sequence)
        replacement = Replacement(
            added=tuple(self._actions(table, added, replaced[0].file)),
            removed=(*(f.file for f in replaced), *(delete.file for delete in deletes)),
            sequence=self._sequence,
            properties={"plait.task": change.token},
        )
        # One attempt: what follows a lost race is looked at anew, above.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        transaction = table.transaction()
        try:
            commit_replacement(transaction, replacement)
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
            return loaded(self.name, lambda: self._catalog.load_table(self.name))
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


def _stored(table: IcebergTable, partition: Partition) -> dict[str, Any]:
    """The values of a partition, by the names of its fields."""
    spec_id, values = partition
    names = [field.name for field in table.specs()[spec_id].fields]
    return dict(zip(names, values, strict=True))


def _texts(table: IcebergTable, partition: Partition) -> dict[str, str]:
    """Values of a partition as people read them: days and times, not their numbers."""
    texts = {}
    values = _stored(table, partition)
    for field in table.specs()[partition[0]].fields:
        value = values[field.name]
        text = _NULL if value is None else str(value)
        if isinstance(value, int) and table.schema().find_column_name(field.source_id):
            source = table.schema().find_type(field.source_id)
            text = field.transform.to_human_string(source, value)
        texts[field.name] = text
    return texts


def _as_shown(
    where: dict[str, tuple[str, ...]],
    named: dict[Partition, dict[str, str]],
    stored: dict[Partition, dict[str, Any]],
) -> dict[str, tuple[str, ...]]:
    """A `where` by the texts of partitions; it may name the numbers that tables store, too."""
    texts = {
        (column, str(value)): named[partition][column]
        for partition, values in stored.items()
        for column, value in values.items()
    }
    return {c: tuple(texts.get((c, value), value) for value in where[c]) for c in where}


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
    made = DataFile.from_args(
        content=like.content,
        file_path=path,
        file_format=like.file_format,
        partition=like.partition,
        file_size_in_bytes=len(source),
        sort_order_id=_sort_order_id(table, footer.metadata or {}, schema),
        equality_ids=None,
        key_metadata=None,
        **metrics.to_serialized_dict(),
    )
    made.spec_id = like.spec_id
    return made


def _sort_order_id(table: IcebergTable, metadata: dict[bytes, bytes], schema: Schema) -> int | None:
    """The table's sort order, if the output has it: of the same columns by their ids."""
    made = metadata.get(b"plait.sort_order", b"").decode()
    return table.sort_order().order_id if made and made == _order(table, schema) else None
