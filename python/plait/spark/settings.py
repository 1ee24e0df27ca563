"""What the options of the format `plait` say about stores: URLs, and settings that reach them.

Not here: which stores there are (the engine, see `docs/guide/object-stores.md`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from plait.errors import InvalidArgument

Settings = Mapping[str, str]


def is_url(path: str) -> bool:
    """Whether a path leads to an object store."""
    return "://" in path and not path.startswith("file:")


def located(path: str) -> str:
    """A path as tasks find it: they run in another folder than the driver.

    Example:
        >>> located("file:///data/runs"), located("s3://bucket/runs")
        ('/data/runs', 's3://bucket/runs')
    """
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    if is_url(path):
        return path
    return os.path.abspath(path)  # noqa: PTH100 - a glob is no path


def settings_of(text: str | None) -> dict[str, str]:
    """The option `storage_options`: a JSON object of texts.

    Example:
        >>> settings_of('{"aws_region": "eu-central-1"}')
        {'aws_region': 'eu-central-1'}
    """
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise InvalidArgument.of(
            "`storage_options` is not a JSON object of texts",
            hint="""give '{"aws_region": "eu-central-1"}'""",
        )
    return found
