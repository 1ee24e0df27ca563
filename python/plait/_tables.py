"""Tables among sources: the files that a table's log says count, not all that lie in its folder.

    call(sources) ──▶ the engine refuses a folder of a table ──▶ its log ──▶ call(live files)
                                                                  └─ order, rule of duplicates

Invariants: the engine finds tables, and never reads past a log; where the log cannot be read, or
says what files alone do not, the table is refused by name. A file that is named is that file. What
a table says of its order and of rows with one key holds unless the call says otherwise.
Not here: the logs (`plait._logs`); compactions (`plait.table`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from plait import _native, _stores
from plait._logs.columns import LogColumns
from plait._logs.live import Live, live
from plait._logs.pruning import Asked
from plait._native_call import _reach, _settings
from plait._rules import Rules, narrowing
from plait.errors import ForeignTable, InvalidArgument

# A path, or the number of a stream among the sources.
Named = str | int
# The order of sources, and what becomes of rows with one key: options of the engine.
Ordered = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Expanded:
    """Sources with files in place of tables, and the tables."""

    sources: list[Named]
    tables: tuple[Live, ...]

    @property
    def columns(self) -> LogColumns:
        """What the logs say of columns."""
        joined, *others = [table.columns for table in self.tables]
        for columns in others:
            joined = joined.joined(columns)
        # Columns of other sources count, too.
        return replace(joined, stored=()) if self.has_others else joined

    @property
    def has_others(self) -> bool:
        """Whether there are sources that are no tables."""
        return len(self.sources) > sum(len(table.files) for table in self.tables)


def with_tables(
    call: Callable[[list[Any]], T],
    sources: Sequence[Named],
    storage_options: object,
    *,
    columns: Literal["all", "of_files"] = "all",
) -> T:
    """Calls with sources; if they have tables among them, with the live files.

    Args:
        call: Takes the sources.
        sources: Paths, and numbers of streams.
        storage_options: Settings of object stores.
        columns: Whether the rows need all columns of a table, or those that files have will do.
    """
    try:
        return call(list(sources))
    except ForeignTable as found:
        expanded = expand(sources, storage_options, found)
        for table in expanded.tables:
            table.check_undeleted()
        if columns == "all":
            for table in expanded.tables:
                table.check_whole()
        return call(expanded.sources)


def with_rules(
    call: Callable[[list[Any], Ordered, LogColumns], T],
    sources: Sequence[Named],
    storage_options: object,
    *,
    sort_by: str | None,
    on_duplicate: object,
    takes: Literal["nothing", "deleted", "all"] = "nothing",
    asked: Asked | None = None,
) -> T:
    """Calls with sources and their order; if they have tables among them, as these say.

    Args:
        call: Takes the sources, their order, and what logs say of rows.
        sources: Paths, and numbers of streams.
        storage_options: Settings of object stores.
        sort_by: The order; `None`: as tables say, or files.
        on_duplicate: The rule; `None`: as tables say, or all rows. Options of columns that go with
            a rule are the call's own.
        takes: What the call knows what to do with: columns that only logs have, deleted rows.
        asked: Which rows are asked for; all by default.

    Raises:
        InvalidArgument: Sources have different rules.
    """
    given = Rules.of(on_duplicate, {})
    own = {"on_duplicate": given.on_duplicate or "keep_all"}
    try:
        return call(list(sources), {"sort_by": sort_by, **own}, LogColumns())
    except ForeignTable as found:
        # The order of several sources is not that of one.
        is_told = asked is not None and (len(sources) == 1 or asked.sort_by is not None)
        expanded = expand(sources, storage_options, found, asked if is_told else None)
    for table in expanded.tables:
        if takes == "nothing":
            table.check_undeleted()
        if takes != "all" or not table.columns.partitions:
            table.check_whole()
    order = sort_by if sort_by is not None else _order_of(expanded)
    said = expanded.columns
    known = {"nothing": LogColumns(), "deleted": LogColumns(deleted=said.deleted), "all": said}

    def as_told(rules: Mapping[str, Any]) -> T:
        return call(expanded.sources, {"sort_by": order, **rules}, known[takes])

    if given.on_duplicate is not None:
        return as_told(own)
    return narrowing(lambda rules: as_told(rules.options()), _rules_of(expanded))


def _order_of(expanded: Expanded) -> str | None:
    """The order that all sources say; `None` if files are to be asked."""
    orders = {table.sort_by for table in expanded.tables}
    return orders.pop() if len(orders) == 1 and not expanded.has_others else None


def _rules_of(expanded: Expanded) -> Rules:
    """The rules that all sources say."""
    rules = {str(table.rules): (table.rules, table.name) for table in expanded.tables}
    if expanded.has_others:
        rules.setdefault("keep_all", (Rules(), "other sources"))
    if len(rules) > 1:
        raise InvalidArgument.of(
            "sources have different rules for rows with one key",
            got=", ".join(f"{rule} of `{name}`" for rule, (_, name) in rules.items()),
            hint="give `on_duplicate`, or name one table alone",
        )
    return next(found for found, _ in rules.values())


def look_up(
    sources: list[Named], storage_options: object = None, *, text_files: bool = False
) -> list[Named]:
    """The sources as they are, once the engine has found files for all folders among them."""
    # A file that is named is found when it is opened.
    folders = [s for s in sources if isinstance(s, str) and not s.endswith(".parquet")]
    for folder in folders:
        listed([folder], storage_options, text_files=text_files)
    return sources


def listed(
    paths: Sequence[str], storage_options: object = None, *, text_files: bool = False
) -> list[str]:
    """The files that paths name, as the engine lists them."""
    options: dict[str, Any] = {"sources": list(paths), "text_files": text_files}
    bucket = _reach(options, storage_options)
    found: list[str] = json.loads(_native.list_sources(json.dumps(options), None, bucket))
    return found


def expand(
    sources: Sequence[Named],
    storage_options: object,
    found: ForeignTable,
    asked: Asked | None = None,
) -> Expanded:
    """The sources with the live files in place of tables.

    Args:
        sources: Paths, and numbers of streams.
        storage_options: Settings of object stores.
        found: What the engine says, for what is no table as a whole: a folder of tables, a glob.
        asked: Which rows are asked for; all by default.

    Raises:
        ForeignTable: The log cannot be read, or a table is not a source but in one.
        Unsupported: The table has what its files alone do not say.
    """
    if _stores.is_store(storage_options):
        raise found
    settings = _settings(storage_options)
    paths = [source for source in sources if isinstance(source, str)]
    options = json.dumps({"sources": paths, "storage_options": settings})
    tables_at = dict(zip(paths, json.loads(_native.tables_of(options)), strict=True))
    files: list[Named] = []
    tables = []
    for source in sources:
        table = tables_at.get(source) if isinstance(source, str) else None
        if table is None:
            files.append(source)
            continue
        where = (table["format"], table["root"], str(source))
        read = live(*where, settings, found, asked=asked or Asked())
        tables.append(read)
        files += read.files
    if not tables:
        raise found
    return Expanded(files, tuple(tables))
