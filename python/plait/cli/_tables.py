"""Tables in a shell: `plait append`, `plait history`, and what other commands do with a table.

Not here: tables (`plait.Table`); folders (`plait.compact`, `plait.expire`).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import plait
from plait._logs.delta import ORDER
from plait._table_reports import history_page
from plait.errors import ForeignTable
from plait.table._calls import is_delta

_OF_TABLE = (
    *("path", "sort_by", "partition_by", "on_duplicate", "version_by", "replace_columns"),
    *("aggregate", "retention", "maintain", "storage_options"),
)


def append(options: dict[str, Any]) -> Any:  # noqa: ANN401 - a report
    """Appends the rows of files, which may be in any order.

    Args:
        options: Those of `plait.Table` and of its `append`, with `sources` for the rows.
    """
    table = plait.Table(**{name: options.pop(name) for name in _OF_TABLE if name in options})
    settings = table._storage_options  # noqa: SLF001 - our own
    rows = plait.scan(options.pop("sources"), storage_options=settings)
    return table.append(rows, **options)


def history(path: Any, *, limit: int | None = None, as_json: bool, **options: Any) -> str:  # noqa: ANN401 - see above
    """What was committed to a table, as text."""
    table = plait.Table(path, **options)
    versions = table.history(limit)
    if as_json:
        return json.dumps([asdict(version) for version in versions], indent=2, default=str)
    return history_page(table.path, versions).text()


def expire(folder: Any, **options: Any) -> Any:  # noqa: ANN401 - see above
    """Removes what a folder, or a table, needs no more."""
    settings = options.get("storage_options")
    if not _is_table(folder, settings):
        return plait.expire(folder, **options)
    table = plait.Table(folder, storage_options=settings)
    return table.expire(options.get("retention"), yes=options.get("yes", False))


def with_order(sources: list[Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options of a read; of one table, its order where they say nothing."""
    settings = options.get("storage_options")
    if len(sources) != 1 or not _is_table(sources[0], settings):
        return options
    said = plait.Table(sources[0], storage_options=settings)._properties()  # noqa: SLF001 - our own
    if ORDER not in said:
        return options
    return {"sort_by": said[ORDER], "missing_keys": "null", **options}


def _is_table(path: Any, settings: Any) -> bool:  # noqa: ANN401 - see above
    try:
        return is_delta(str(path), settings)
    except ForeignTable:
        return False
