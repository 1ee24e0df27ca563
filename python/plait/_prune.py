"""Leaves out files that cannot hold what is looked for, by the zone maps in their footers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from pathlib import Path

from plait import _api
from plait._checks import Paths, StorageOptions, _paths
from plait._report import _files
from plait._tables import listed, with_tables
from plait._text import Page, Table
from plait.errors import InvalidArgument
from plait.inspected import ZoneColumn, shown_bytes


class PrunedFiles(list[str]):
    """The files that may have the rows: a list, which a notebook shows as a table.

    Attributes:
        looked_at: The number of files among which these were found.
        where: The requested values, as text, by column.
    """

    def __init__(self, files: Iterable[str], looked_at: int, where: Mapping[str, str]) -> None:
        """Takes the files."""
        super().__init__(files)
        self.looked_at, self.where = looked_at, dict(where)

    def _repr_html_(self) -> str:
        return Page(
            title=f"{len(self):,} of {_files(self.looked_at)} may hold what is looked for",
            tables=(Table(("file",), tuple((file,) for file in self)),) if self else (),
            facts=tuple(self.where.items()),
        ).html()


def prune(
    files: Paths,
    where: Mapping[str, object],
    *,
    storage_options: StorageOptions | None = None,
) -> PrunedFiles:
    """Returns the files that may have rows with these values.

    Reads footers, and the first and last key. A file without a zone map of a column is never left
    out for that column. A file that is left out has no such row. See `value_sets` of `merge`.

    Args:
        files: One file or many, folders, globs, object store URLs; of a Delta table the live files.
        where: A value for each column, or a list, set or tuple of alternatives; `None` means null.
            A row must match in all columns.
        storage_options: See `merge`.

    Returns:
        These files, in order: a list, which notebooks show as a table.

    Raises:
        InvalidArgument: A value is not of the column's type.
        PlaitError: A file cannot be read, see `plait.errors`.

    Example:
        >>> import plait, pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"host": ["a", "b", "c", "d"]}), "hosts.parquet")
        >>> report = plait.merge("hosts.parquet", "split", sort_by="host", target_rows=2,
        ...                      value_sets=["host"], row_group_rows=2)
        >>> left = prune([output.path for output in report.outputs], {"host": "c"})
        >>> [plait.inspect(path).zone_map["host"].values for path in left]
        [('c', 'd')]
    """
    if not isinstance(where, Mapping):
        raise InvalidArgument.of(
            "`where` is not a mapping", got=f"`{where!r}`", hint='give {"column": value}'
        )
    wanted = {column: _any_of(value) for column, value in where.items()}
    left = []
    listed_files = _listed(_paths(files, "files"), storage_options)
    for path in listed_files:
        zones = _api.inspect(path, storage_options=storage_options).zone_map or {}
        if all(
            any(_may_hold(zones[column], column, value) for value in values)
            for column, values in wanted.items()
            if column in zones
        ):
            left.append(path)
    texts = {column: " or ".join(map(_shown, values)) for column, values in wanted.items()}
    return PrunedFiles(left, len(listed_files), texts)


def _listed(paths: list[str], storage_options: object) -> list[str]:
    """The files: of a folder those that are in it, of a table those that count."""

    def files_of(named: list[str]) -> list[str]:
        found: list[str] = []
        for path in named:
            is_glob = "*" in path and not Path(path).exists()
            is_file = path.endswith(".parquet") and not is_glob and not Path(path).is_dir()
            found += [path] if is_file else listed([path], storage_options)
        return found

    return with_tables(files_of, paths, storage_options, columns="of_files")


def _shown(value: object) -> str:
    return "null" if value is None else value if isinstance(value, str) else repr(value)


def _any_of(value: object) -> list[object]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return list(value)
    return [value]


def _may_hold(zone: ZoneColumn, column: str, value: object) -> bool:
    if value is None:
        return zone.nulls
    known = _comparable(zone, column, value)
    if zone.values is not None:
        return known in zone.values
    if zone.prefixes is not None and isinstance(value, str | bytes):
        return _as_zone(value[: zone.prefix_length]) in zone.prefixes
    return True


def _as_zone(value: object) -> object:
    """A value as reports show those of zone maps."""
    if isinstance(value, bytes):
        return shown_bytes(value)
    return value.isoformat() if isinstance(value, dt.date) else value


def _comparable(zone: ZoneColumn, column: str, value: object) -> object:
    """The value as the zone map holds it."""
    if zone.type == "date" and type(value) is dt.date:
        return _as_zone(value)
    types: dict[str, type] = {"text": str, "bytes": bytes, "int": int, "bool": bool}
    wanted = types.get(zone.type)
    if (
        wanted is not None
        and isinstance(value, wanted)
        and (zone.type == "bool") == isinstance(value, bool)
    ):
        return _as_zone(value)
    raise InvalidArgument.of(
        f"a value for `{column}` is not of its type",
        got=f"`{value!r}`",
        hint=f"the column is of type {zone.type}",
    )
