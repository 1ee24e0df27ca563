"""Runs the suite on an S3 server: `PLAIT_TEST_STORE=s3 pytest tests/python`.

Tests go on writing and reading local files. Around every call of `merge`, `verify` and `inspect`,
what the call names is moved to the server, the call is made with URLs, and what it made is moved
back; so sources and outputs of the call are objects. `PLAIT_TEST_FAULTS=0.02` puts a proxy between
the two that makes this share of the requests fail.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

import plait


class OnS3:
    """The three calls, with objects in the place of files."""

    def __init__(self, server, proxy) -> None:
        self.server, self.proxy = server, proxy
        self.numbers = itertools.count()
        self.calls = 0
        self.client = server.client()
        self.client.create_bucket(Bucket="suite")

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replaces the three calls."""
        for name, outs in (("merge", ("out",)), ("verify", ()), ("inspect", ())):
            call = getattr(plait, name)
            monkeypatch.setattr(plait, name, functools.wraps(call)(self.wrapped(call, outs)))

    def wrapped(self, call, outs):
        signature = inspect.signature(call)

        def on_s3(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            named = {n: bound.arguments.get(n) for n in ("sources", "files", "against", "file")}
            named |= {n: bound.arguments.get(n) for n in outs}
            named = {n: materialised(v) for n, v in named.items() if v is not None}
            is_asked = set(outs) <= set(named)
            if not is_asked or not all(is_local(v) for v in named.values()):
                for n, v in named.items():
                    bound.arguments[n] = v
                return call(*bound.args, **bound.kwargs)
            root = f"{next(self.numbers)}"
            self.calls += 1
            for name, value in named.items():
                bound.arguments[name] = self.moved(root, value)
            options = bound.arguments.get("storage_options") or {}
            bound.arguments["storage_options"] = {
                **self.server.options(self.proxy and self.proxy.url),
                "retry_init_backoff_ms": "10",
                "timeout": "20s",
                **options,
            }
            try:
                report = call(*bound.args, **bound.kwargs)
            except plait.PlaitError as error:
                self.rename_error(error, root)
                raise
            finally:
                for name in outs:
                    self.fetch(root, named[name])
                pending = self.client.list_multipart_uploads(Bucket="suite").get("Uploads")
                assert not pending, f"uploads were left behind: {pending}"
            return type(report).from_dict(renamed(report.to_dict(), root))

        return on_s3

    def moved(self, root: str, value):
        if isinstance(value, list):
            return [self.moved(root, v) for v in value]
        path = os.path.abspath(os.fsdecode(value))
        if "*" in path:
            self.send(root, path[: path.index("*")].rpartition("/")[0])
        else:
            self.send(root, path)
        return f"s3://suite/{root}{quote(path, safe='/*')}"

    def send(self, root: str, path: str) -> None:
        if os.path.isdir(path):
            for folder, _, files in os.walk(path):
                for file in files:
                    self.send(root, os.path.join(folder, file))
        elif os.path.exists(path):
            body = Path(path).read_bytes()
            self.client.put_object(Bucket="suite", Key=f"{root}{path}", Body=body)

    def fetch(self, root: str, out) -> None:
        path = os.path.abspath(os.fsdecode(out))
        pages = self.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket="suite", Prefix=f"{root}{path}"):
            for found in page.get("Contents", ()):
                local = Path(found["Key"].removeprefix(root))
                body = self.client.get_object(Bucket="suite", Key=found["Key"])["Body"].read()
                if not local.exists() or local.read_bytes() != body:
                    local.parent.mkdir(parents=True, exist_ok=True)
                    local.write_bytes(body)

    def rename_error(self, error: plait.PlaitError, root: str) -> None:
        error.args = tuple(renamed(list(error.args), root))
        if error.path is not None:
            error.path = renamed(error.path, root)


def renamed(value, root: str):
    """The same with local paths for URLs."""
    if isinstance(value, str) and f"s3://suite/{root}/" in value:
        return unquote(value.replace(f"s3://suite/{root}/", "/"))
    if isinstance(value, list):
        return [renamed(v, root) for v in value]
    if isinstance(value, dict):
        return {n: renamed(v, root) for n, v in value.items()}
    return value


def materialised(value):
    """Paths that come one by one, as a list."""
    if isinstance(value, str | bytes | os.PathLike) or not hasattr(value, "__iter__"):
        return value
    return list(value)


def is_local(value) -> bool:
    """Whether `value` is paths of files that can be objects as well."""
    if isinstance(value, list):
        return bool(value) and all(not isinstance(v, list) and is_local(v) for v in value)
    if not isinstance(value, str | bytes | os.PathLike):
        return False
    path = os.fsdecode(value)
    surrogates = any("\udc80" <= letter <= "\udcff" for letter in path)
    return bool(path) and "://" not in path and not set("?[") & set(path) and not surrogates
