"""A folder as tasks and the driver of Spark reach it: its files by name, and those that count.

The folder is a local or mounted one, or one of objects, by its URL.

Not here: writes (`sink`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from plait import _native
from plait._tables import listed as _listed
from plait._tables import with_tables
from plait.spark.settings import Settings

__all__ = ["listed", "place_of"]


def place_of(root: str, settings: Settings | None = None) -> _native.Folder:
    """The folder, wherever it is; a local one must be there."""
    options = {"folder": root, "storage_options": dict(settings or {})}
    return _native.Folder(json.dumps(options))


def listed(paths: Iterable[str]) -> list[str]:
    """Files of paths: of folders and tables those that count, of globs all that match, in order.

    Raises:
        SourceNotFound: A path leads to no file.
        ForeignTable: A folder is a table whose log cannot be read, or a glob leads into one.
        Unsupported: A table has what its files alone do not say.
    """
    return with_tables(_listed, list(paths), None)
