"""Stores that callers bring: obstore stores and fsspec file systems.

Local ones become paths, and those of obstore that are S3, Google Cloud Storage or Azure become URLs
and settings, so that the engine reads and writes itself. Every other one is called by the engine
through an adapter: `head`, `read`, `list`, `upload`. Nothing is imported that is not there already.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from datetime import datetime
from typing import Any
from urllib.parse import quote

from plait.errors import InvalidArgument

_COUNT = itertools.count()

# Length, tag, time as text, time in seconds since 1970.
_Head = tuple[int, str | None, str | None, float | None]

# What the engine calls instead of URLs: prefix of names, settings, adapter.
Reached = tuple[str, dict[str, str], object | None]


def is_store(given: object) -> bool:
    """Whether `given` is a store rather than settings."""
    return _is_obstore(given) or _is_fsspec(given)


def reach(store: Any) -> Reached:  # noqa: ANN401 - a class of a library that may be absent
    """How the engine gets at `store`."""
    if _is_fsspec(store):
        if "file" in _protocols(store):
            return "", {}, None
        return "", {}, _Fsspec(store)
    name = type(store).__name__
    if name == "LocalStore":
        return f"{str(store.prefix or '/').rstrip('/')}/", {}, None
    schemes = {"S3Store": ("s3", "bucket"), "GCSStore": ("gs", "bucket")}
    schemes["AzureStore"] = ("az", "container_name")
    if name in schemes and getattr(store, "credential_provider", None) is None:
        scheme, bucket = schemes[name]
        config = {str(key).lower(): _text(value) for key, value in dict(store.config).items()}
        found = [value for key, value in config.items() if key.endswith(bucket)]
        if found:
            client = store.client_options or {}
            options = {str(key).lower(): _text(value) for key, value in dict(client).items()}
            prefix = "".join(
                f"{part}/" for part in (found[0], str(store.prefix or "").strip("/")) if part
            )
            return f"{scheme}://{quote(prefix)}", {**options, **config}, None
    return "", {}, _Obstore(store)


def _is_obstore(given: object) -> bool:
    module = type(given).__module__ or ""
    return module.split(".")[0] in ("obstore", "_obstore", "builtins") and all(
        hasattr(given, name) for name in ("get_range", "list_with_delimiter", "rename")
    )


def _is_fsspec(given: object) -> bool:
    return all(hasattr(given, name) for name in ("cat_file", "find", "info", "root_marker"))


def _protocols(system: Any) -> tuple[str, ...]:  # noqa: ANN401 - see `reach`
    protocol = system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seconds(time: object) -> float | None:
    """Seconds since 1970 of what a store says about when something was written."""
    if isinstance(time, datetime):
        return time.timestamp()
    return float(time) if isinstance(time, int | float) else None


def _hidden(key: str) -> str:
    """A name next to `key` that readers of folders leave alone."""
    folder, slash, _ = key.rpartition("/")
    return f"{folder}{slash}.plait-tmp-{os.getpid()}-{next(_COUNT)}"


class _Obstore:
    """An obstore store that the engine cannot reach itself."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401 - see `reach`
        self._store = store

    def head(self, key: str) -> _Head | None:
        """Length, tag and time of the object."""
        try:
            meta = self._store.head(key)
        except FileNotFoundError:
            return None
        modified = meta.get("last_modified")
        return meta["size"], meta.get("e_tag"), str(modified), _seconds(modified)

    def read(self, key: str, start: int, end: int) -> bytes:
        """Bytes of the object."""
        return bytes(self._store.get_range(key, start=start, end=end))

    def list(self, prefix: str, deep: bool) -> list[str]:  # noqa: FBT001 - the engine calls it
        """Keys below the prefix."""
        if deep:
            found = [meta for batch in self._store.list(prefix or None) for meta in batch]
        else:
            found = self._store.list_with_delimiter(prefix or None)["objects"]
        return [meta["path"] for meta in found]

    def upload(self, key: str) -> _Obupload:
        """Begins an upload."""
        return _Obupload(self._store, key)

    def put_new(self, key: str, body: bytes) -> bool | None:
        """Makes an object unless there is one; `None` if the store cannot do both at once."""
        try:
            self._store.put(key, body, mode="create", use_multipart=False)
        except Exception as error:
            name = type(error).__name__
            if name in ("NotImplementedError", "NotSupportedError"):
                return None
            if name in ("AlreadyExistsError", "PreconditionError"):
                return False
            raise
        return True

    def replace(self, key: str, body: bytes) -> None:
        """Makes an object in the place of another."""
        self._store.put(key, body, mode="overwrite", use_multipart=False)

    def remove(self, key: str) -> None:
        """Removes an object."""
        with contextlib.suppress(FileNotFoundError):
            self._store.delete(key)


class _Obupload:
    """Written under a hidden name, then renamed."""

    def __init__(self, store: Any, key: str) -> None:  # noqa: ANN401 - see `reach`
        import obstore  # noqa: PLC0415 - the caller has it

        self._store, self._key, self._temp = store, key, _hidden(key)
        self._writer = obstore.open_writer(store, self._temp)
        self._is_open = True

    def part(self, part: bytes) -> None:
        """Writes the next part."""
        self._writer.write(part)

    def finish(self) -> None:
        """Ends the hidden object."""
        if self._is_open:
            self._writer.close()
            self._is_open = False

    def complete(self) -> bool:
        """Gives it its name, unless there is an object of that name."""
        with contextlib.suppress(FileNotFoundError):
            self._store.head(self._key)
            return False
        try:
            self._store.rename(self._temp, self._key, overwrite=False)
        except NotImplementedError:
            # What obstore raises for stores that cannot rename on condition; the look above is the
            # only guard there is with them.
            self._store.rename(self._temp, self._key)
        except Exception as error:
            if type(error).__name__ == "AlreadyExistsError":
                return False
            raise
        return True

    def abort(self) -> None:
        """Removes the hidden object."""
        self.finish()
        with contextlib.suppress(FileNotFoundError):
            self._store.delete(self._temp)


class _Fsspec:
    """An fsspec file system."""

    def __init__(self, system: Any) -> None:  # noqa: ANN401 - see `reach`
        self._system = system

    def _path(self, key: str) -> str:
        return f"{self._system.root_marker}{key}"

    def head(self, key: str) -> _Head | None:
        """Length, tag and time of the file."""
        # What others wrote meanwhile must be seen.
        self._system.invalidate_cache()
        try:
            info = self._system.info(self._path(key))
        except FileNotFoundError:
            return None
        if info["type"] != "file":
            return None
        times = (info.get(name) for name in ("LastModified", "last_modified", "mtime", "created"))
        modified = next((time for time in times if time is not None), None)
        tag = info.get("ETag") or info.get("etag")
        text = None if modified is None else str(modified)
        return int(info["size"]), None if tag is None else str(tag), text, _seconds(modified)

    def read(self, key: str, start: int, end: int) -> bytes:
        """Bytes of the file."""
        return bytes(self._system.cat_file(self._path(key), start=start, end=end))

    def list(self, prefix: str, deep: bool) -> list[str]:  # noqa: FBT001 - the engine calls it
        """Names below the folder."""
        self._system.invalidate_cache()
        found = self._system.find(self._path(prefix), maxdepth=None if deep else 1)
        return [str(name).strip("/") for name in found]

    def upload(self, key: str) -> _FsspecUpload:
        """Begins a file."""
        return _FsspecUpload(self._system, self._path(key))

    def put_new(self, key: str, body: bytes) -> None:
        """No method of fsspec promises to make a file only where there is none."""

    def replace(self, key: str, body: bytes) -> None:
        """Makes a file in the place of another."""
        self._system.pipe_file(self._path(key), body)

    def remove(self, key: str) -> None:
        """Removes a file."""
        with contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(key))


class _FsspecUpload:
    """Written under a hidden name, then moved."""

    def __init__(self, system: Any, path: str) -> None:  # noqa: ANN401 - see `reach`
        self._system, self._path, self._temp = system, path, _hidden(path)
        system.makedirs(system._parent(path), exist_ok=True)  # noqa: SLF001 - as fsspec's own do
        self._file = system.open(self._temp, "wb")

    def part(self, part: bytes) -> None:
        """Writes the next part."""
        self._file.write(part)

    def finish(self) -> None:
        """Ends the hidden file."""
        if not self._file.closed:
            self._file.close()

    def complete(self) -> bool:
        """Gives it its name, unless there is a file of that name."""
        self._system.invalidate_cache()
        if self._system.exists(self._path):
            return False
        self._system.mv(self._temp, self._path)
        return True

    def abort(self) -> None:
        """Removes the hidden file."""
        self.finish()
        with contextlib.suppress(FileNotFoundError):
            self._system.rm(self._temp)


def named(prefix: str, path: str) -> str:
    """`path` of a store whose names begin with `prefix`."""
    if not prefix or "://" in path:
        return path
    if ".." in path.split("/"):
        raise InvalidArgument.of("a name in a store cannot have `..`", got=f"`{path}`")
    name = path.lstrip("/")
    # Names are no URLs: `?`, `#` and `%` are letters of them. `*` is a glob in both.
    return prefix + (quote(name, safe="/*") if "://" in prefix else name)
