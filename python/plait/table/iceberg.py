"""Iceberg tables, through PyIceberg: one snapshot replaces the files of groups.

newest snapshot ──▶ are all replaced files live? which rows of them were deleted meanwhile?
      ▲                      │ a snapshot on top of that one, with no retries of PyIceberg
      └── others were quicker◀┘

Invariants: a commit is tried on top of the snapshot that was looked at and of no other. Deletes by
position that came meanwhile become delete files of the new files in the same snapshot; deletes by
value apply to the new files, too. A delete file that reaches no data file any more goes in the same
snapshot. Files are merged with files of their partition specification alone, and with those that
give the same columns the same names.
Cost: the manifests are read again for every attempt.
Not here: catalogs; whoever calls brings one. The snapshot itself (`iceberg_snapshot`). Entries of
new files (`iceberg_entries`). Source: the Iceberg table specification.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from plait._logs.iceberg import check_committed, found_in, loaded
from plait._logs.iceberg_files import IcebergFile, IcebergFiles, Partition, files_of, path_of
from plait.errors import InvalidArgument, SourceChanged, SourceNotFound, UnknownColumn
from plait.order import sort_text
from plait.table.change import Change, Committed, Conflicted, Outcome, Retryable, is_final
from plait.table.deletes import DeletedRows, Touched, all_carried, carry
from plait.table.groups import Compaction, Found, Group, Scope, TableFile
from plait.table.iceberg_entries import new_data_files, new_delete_file, order_of, remove
from plait.table.iceberg_names import by_names
from plait.table.survey import groups_of_all, partition_name, wanted

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
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
        # Files as they were when they were surveyed, by what names them; and whether maps stay.
        self._seen: dict[str, IcebergFile] = {}
        self._keeps_maps = False
        self._storage_options: object = None

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
        given = sort_text(options["sort_by"])
        order = order_of(table) if given is None else given
        with found_in(self.name):
            files = files_of(table)
        self._seen = self._live(files)
        self._keeps_maps = compaction.options.row_map
        self._storage_options = compaction.options.storage_options
        # What a file lacks is null in the table: its schema says that the column is there.
        merge = {
            **options,
            "sort_by": order,
            "missing_keys": "null",
            # Tables of format version 1 have no deletes; their row maps are for `trace` alone.
            "row_map": table.format_version > 1 or self._keeps_maps,
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
            name = partition_name(named[partition])
            for alike in by_names(table, found, order):
                if alike.why:
                    compaction.left.update({file.path: alike.why for file in alike.files})
                members = tuple(self._file(file) for file in alike.files)
                out = members[0].path.rpartition("/")[0]
                sort_by = alike.sort_by if alike.sort_by != order else None
                scopes.append(Scope(name, out, members, sort_by))
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

    def commit(self, changes: Sequence[Change]) -> Outcome:
        """Commits on top of the newest snapshot, if the replaced files count in it."""
        table = self._load()
        check_committed(self.name, table)
        outcome = self._commit(changes, table)
        if is_final(outcome, changes) and not self._keeps_maps:
            maps = [self._form(c) + o.row_map for c in changes for o in c.added if o.row_map]
            remove(table, maps)
        return outcome

    def _form(self, change: Change) -> str:
        """What the table writes before paths: its files are named by whichever form of URL."""
        first = self._seen[change.replaced[0]].file.file_path
        return first.removesuffix(path_of(first))

    def _commit(self, changes: Sequence[Change], table: IcebergTable) -> Outcome:
        from pyiceberg.exceptions import (  # noqa: PLC0415 - an extra
            CommitFailedException,
            ValidationException,
        )

        from plait.table.iceberg_snapshot import Replacement, commit_replacement  # noqa: PLC0415

        files = files_of(table)
        live = {file.file.file_path: file for file in files.data}
        then = [self._seen[name] for change in changes for name in change.replaced]
        replaced = [live[f.file.file_path] for f in then if f.file.file_path in live]
        added = {self._form(c) + output.path for c in changes for output in c.added}
        snapshot = table.current_snapshot()
        if not replaced and live.keys() >= added:
            return Committed(snapshot.snapshot_id if snapshot else 0)
        if len(replaced) < len(then):
            return Conflicted("a file is not live any more")
        carried = all_carried(self._carried(change, live) for change in changes)
        if isinstance(carried, str):
            return Conflicted(carried)
        unreached = files.unreached([file.id for file in replaced], newer=self._sequence)
        made: list[tuple[str, DataFile]] = []
        gone: list[tuple[str, DeletedRows, DataFile]] = []
        for change, deleted in zip(changes, carried, strict=True):
            form, first = self._form(change), self._seen[change.replaced[0]]
            like = live[first.file.file_path].file
            made += [(form + output.path, like) for output in change.added]
            gone += [(form + path, rows, like) for path, rows in deleted.items()]
        try:
            new_files = new_data_files(table, made)
        except FileNotFoundError as cause:
            what = "an output was removed meanwhile, nothing was committed"
            raise SourceChanged.of(what, got=str(cause)) from cause
        new_deletes = [new_delete_file(table, *each) for each in gone]
        replacement = Replacement(
            added=tuple(new_files),
            deletes=tuple(new_deletes),
            removed=(*(f.file for f in replaced), *(delete.file for delete in unreached)),
            sequence=self._sequence,
            properties={"plait.task": ",".join(change.token for change in changes)},
        )
        # One attempt: what follows a lost race is looked at anew, above.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        transaction = table.transaction()
        try:
            commit_replacement(transaction, replacement)
            transaction.commit_transaction()
        except (CommitFailedException, ValidationException) as cause:
            remove(table, [file.file_path for file in new_deletes])
            return Retryable(str(cause))
        current = self._load().current_snapshot()
        return Committed(current.snapshot_id if current else 0)

    def _carried(
        self, change: Change, live: dict[str, IcebergFile]
    ) -> dict[str, DeletedRows] | str:
        """Rows of the outputs that others deleted, by path; or why that is not known."""
        touched = []
        for name in change.replaced:
            before = self._seen[name]
            file = live[before.file.file_path]
            after = file.at(self._sequence)
            if after.id == before.id_at(self._sequence):
                continue
            if after.unread:
                return f"the file `{after.path}` {after.unread}"
            touched.append(Touched(after.path, before.vector, after.vector))
        return carry(touched, change.added, "numbers", self._storage_options)

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
