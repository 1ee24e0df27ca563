"""How a shell writes the value of an option: readers by the type that the option has in Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from plait import sizes
from plait.cli._documented import Option
from plait.errors import InvalidArgument


class Form(NamedTuple):
    """A form of values: how one is read, what stands for it in help, and how it is written."""

    read: Callable[[str], Any]
    metavar: str
    syntax: str = ""


def form_of(option: Option) -> Form:
    """How the value of an option is written."""
    read, *rest = _BY_NAME.get(option.name) or _BY_TYPE[option.type]
    named = read if read in (str, path) else partial(read, name=option.name)
    # Sizes have a default that is a size, where `None` means something else.
    if option.type == "Size" and option.may_be_none:
        return Form(lambda text: None if text == "none" else named(text), *rest)
    return Form(named, *rest)


def path(text: str) -> str:
    """A path whose `~` the shell left alone."""
    return os.path.expanduser(text)  # noqa: PTH111 - the name goes on as text


def place(text: str) -> tuple[str, int]:
    """A row of a file, as in `merged.parquet:17`."""
    file, _, row = text.rpartition(":")
    if not (file and row.replace("_", "").isdecimal()):
        raise _wrong("a row is not of the form FILE:ROW", text, "give one such as a.parquet:17")
    return path(file), int(row)


def count(text: str, name: str = "step") -> int:
    """A whole number."""
    digits = text.replace("_", "")
    if not digits.isdecimal():
        raise _wrong(f"`{name}` is not a count", text, "give a whole number, 0 or more")
    return int(digits)


def _pair(text: str, name: str) -> tuple[str, str]:
    key, is_pair, value = text.partition("=")
    if not (key and is_pair):
        raise _wrong(f"`{name}` is not of the form NAME=VALUE", text)
    return key, value


def _partition(text: str, name: str) -> tuple[str, str]:
    """A partition, as folders are called or as a condition is written: `day = '2024-05-01'`."""
    column, value = (part.strip() for part in _pair(text, name))
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return column, value[1:-1] if is_quoted else value


def _names(text: str, name: str = "") -> list[str]:  # noqa: ARG001 - as all readers
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _tiers(text: str, name: str) -> list[str]:
    return [] if text.strip().lower() == "none" else _names(text, name)


def _pairs(text: str, name: str) -> dict[str, str]:
    pairs = (_pair(part, name) for part in _names(text))
    return {key.strip(): value.strip() for key, value in pairs}


def _renamed(text: str, name: str) -> dict[str, str]:
    parts = (part.partition("=") for part in _names(text, name))
    return {new: old or new for new, _, old in parts}


def _versions(text: str, name: str) -> str | dict[str, list[str]]:
    """A column, or version columns, each with the columns that go by it."""
    if "=" not in text:
        return text
    versions: dict[str, list[str]] = {}
    of: list[str] = []
    for part in _names(text):
        version, equals, column = (piece.strip() for piece in part.partition("="))
        if equals:
            of = versions.setdefault(version, [])
        elif not versions:
            raise _wrong(f"`{name}` is not of the form VERSION=A,B", text)
        of.append(column if equals else part)
    return versions


def _levels(text: str, name: str) -> str | dict[str, str]:
    return _pairs(text, name) if "=" in text else text


def _mark(text: str, name: str) -> str | dict[str, str]:
    return dict([_pair(text, name)]) if "=" in text else text


def _filters(text: str, name: str) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    for part in _names(text):
        column, equals, rate = part.partition("=")
        try:
            filters[column.strip()] = {"fpp": float(rate)} if equals else True
        except ValueError:
            raise _wrong(f"`{name}` has no such rate", rate, "give one such as 0.01") from None
    return filters


def _limits(text: str, name: str) -> dict[str, Any]:
    """Columns, each with the most values that are listed if it is not the default."""
    columns: dict[str, Any] = {}
    for part in _names(text):
        column, equals, most = part.partition("=")
        columns[column.strip()] = {"max": count(most, name)} if equals else True
    return columns


def _wrong(what: str, got: str, hint: str = "") -> InvalidArgument:
    return InvalidArgument.of(what, got=f"`{got}`", hint=hint)


_TEXT = (str, "TEXT")
_NAMES = (_names, "NAMES", "comma-separated")
_PAIRS = (_pairs, "NAME=VALUE,...")

_BY_TYPE: dict[str, tuple[Any, ...]] = {
    "str": _TEXT,
    "str | float": _TEXT,
    "SortBy": _TEXT,
    "Catalog | str": (str, "NAME"),
    "SupportsIndex": (count, "N"),
    "Iterable[SupportsIndex]": (count, "N"),
    "Size": (sizes.parse_size, "SIZE"),
    "Path": (path, "PATH"),
    "Paths": (path, "FILE"),
    "Columns": _NAMES,
    "Columns | ForeignKey": _NAMES,
    "Iterable[str]": _NAMES,
    "Iterable[str] | str": _NAMES,
    "Iterable[str] | Mapping[str, str] | str": _NAMES,
    "Mapping[str, str]": _PAIRS,
    "Mapping[str, Constant | Sequence[Constant]]": _PAIRS,
    "Mapping[str, str] | Iterable[str]": (_renamed, "NAMES", "comma-separated NAME or NEW=OLD"),
    "BloomFilters": (_filters, "NAMES", "comma-separated NAME or NAME=RATE"),
    "ValueSets": (_limits, "NAMES", "comma-separated NAME or NAME=MAX"),
    "VersionBy": (_versions, "NAME", "or VERSION=A,B,... with update"),
    "Aggregates": (_pairs, "COLUMN=FUNCTION,..."),
    "Statistics": (_levels, "LEVEL", "or NAME=LEVEL,..."),
    "Mark": (_mark, "NAME", "or KEY=VALUE of its metadata"),
    "StorageOptions": (_pair, "NAME=VALUE", "repeatable"),
    "Where": (_partition, "COLUMN=VALUE", "repeatable"),
    "Condition": _TEXT,
}
# Where a shell has a word of its own.
_BY_NAME: dict[str, tuple[Any, ...]] = {
    "copy_tiers": (_tiers, "TIERS", "comma-separated, or none"),
}
