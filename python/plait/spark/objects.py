"""Objects of S3 to be read: what PyArrow opens, by the settings that the engine takes.

Invariants: settings win over those of the environment, as for the engine. An object whose tag is
not the planned one is `SourceChanged`.
Not here: local files (`ranges`); other stores, which only the engine reaches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from plait.errors import SourceNotFound, StorageError, Unsupported
from plait.spark.settings import Settings, is_url, settings_of

__all__ = ["Settings", "is_url", "opened", "settings_of"]

# Names of settings, those of the environment in capitals among them: see `object_store`.
_NAMES = {
    "access_key": ("aws_access_key_id", "access_key_id"),
    "secret_key": ("aws_secret_access_key", "secret_access_key"),
    "session_token": ("aws_session_token", "session_token", "aws_token", "token"),
    "region": ("aws_region", "region", "aws_default_region", "default_region"),
    "endpoint": ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
    "anonymous": ("aws_skip_signature", "skip_signature"),
    "virtual": ("aws_virtual_hosted_style_request", "virtual_hosted_style_request"),
}
_TRUE = ("1", "true", "yes", "on", "t", "y")


def opened(url: str, settings: Settings) -> tuple[pa.NativeFile, str | None]:
    """An object to be read, and its tag.

    Raises:
        SourceNotFound: There is none.
        StorageError: The store does not answer, or refuses.
        Unsupported: The store is none of S3.
    """
    system, key = _reached(url, settings)
    with _storage_errors(url):
        file = system.open_input_file(key)
        tag = file.metadata() or {}
        return file, next((_text(v) for k, v in tag.items() if _text(k) == "ETag"), None)


@contextmanager
def _storage_errors(url: str) -> Iterator[None]:
    """Makes what PyArrow raises an error that names the object."""
    try:
        yield
    except FileNotFoundError as cause:
        if isinstance(cause, SourceNotFound):
            raise
        error = SourceNotFound.of(f"there is no object `{url}`")
        error.path = url
        raise error from cause
    except OSError as cause:
        if isinstance(cause, StorageError):
            raise
        error_of_store = StorageError.of(f"the store refuses `{url}`", got=str(cause))
        error_of_store.path = url
        raise error_of_store from cause


def _reached(url: str, settings: Settings) -> tuple[fs.FileSystem, str]:
    """The file system of a URL, and what it calls the object."""
    scheme, _, path = url.partition("://")
    if scheme not in ("s3", "s3a"):
        raise Unsupported.of(
            'the format "plait" reads and writes files and objects of S3',
            got=f"`{url}`",
            hint="merge others with plait.merge, which knows more stores",
        )
    return _system(tuple(sorted(settings.items()))), unquote(path)


@lru_cache(maxsize=16)
def _system(settings: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    given = {name.lower(): value for name, value in settings}
    around = {name.lower(): value for name, value in os.environ.items() if name[:4] == "AWS_"}

    def setting(name: str) -> str | None:
        for known in (given, around):
            for spelled in _NAMES[name]:
                if spelled in known:
                    return known[spelled]
        return None

    endpoint = setting("endpoint") or ""
    scheme, _, host = endpoint.rpartition("://")
    wanted: dict[str, Any] = {name: setting(name) for name in ("access_key", "secret_key")}
    wanted["session_token"] = setting("session_token")
    wanted["region"] = setting("region")
    wanted["endpoint_override"] = host.rstrip("/") or None
    wanted["scheme"] = scheme or None
    anonymous = (setting("anonymous") or "").lower() in _TRUE
    options = {name: value for name, value in wanted.items() if value is not None}
    if anonymous:
        options = {n: v for n, v in options.items() if n not in ("access_key", "secret_key")}
    virtual = (setting("virtual") or "").lower() in _TRUE
    return fs.S3FileSystem(anonymous=anonymous, force_virtual_addressing=virtual, **options)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
