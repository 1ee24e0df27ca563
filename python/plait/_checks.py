"""Arguments as users give them, checked and in the form that the engine takes.

value, name ─▶ checker ─▶ JSON value, or InvalidArgument that names the argument
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Literal, SupportsIndex, get_args

from plait._now import at_moment
from plait.errors import InvalidArgument
from plait.order import sort_text
from plait.sizes import Size, parse_size

Path = str | os.PathLike[str]
Paths = Path | Iterable[Path]
# Settings of object stores, or an obstore store or fsspec file system that paths are names in.
StorageOptions = Mapping[str, str] | object

# Columns that get bloom filters, and how they are made.
BloomFilters = Iterable[str] | Mapping[str, bool | Mapping[str, float | None]]
ValueSets = Iterable[str] | Mapping[str, bool | Mapping[str, int | None]]
# What becomes of several rows with one key.
OnDuplicate = Literal["keep_all", "keep_first", "keep_last", "error", "update", "aggregate"]
# One column for whole rows, or version columns and the columns that go by each.
VersionBy = str | Mapping[str, str | Iterable[str]]
# What makes one value of several.
Aggregate = Literal[
    "sum",
    "product",
    "min",
    "max",
    "first",
    "last",
    "first_non_null",
    "last_non_null",
    "bool_and",
    "bool_or",
    "collect",
    "collect_distinct",
    "merge_map",
]
Aggregates = Mapping[str, Aggregate]
# Of what bounds are written, for all columns or by column.
Statistics = Literal["none", "chunk", "page"] | Mapping[str, Literal["none", "chunk", "page"]]

# The options that take one of a few values.
CHOICES: dict[str, tuple[str, ...] | tuple[int, ...]] = {
    "data_page_version": (1, 2),
    "encoding": ("sources", "compatible", "smallest"),
    "widen": ("lossless", "error"),
    "missing": ("null", "error"),
    "missing_keys": ("error", "null"),
    "metadata_conflicts": ("first", "drop", "error"),
    "on_duplicate": get_args(OnDuplicate),
    "unsorted": ("error", "sort", "skip"),
    "partition_columns": ("drop", "keep"),
    "verify_order": ("bounds", "full"),
    "verify_pages": ("checksum", "unpack"),
    "verify": ("content",),
    "if_exists": ("error", "add"),
    "validate": ("basic", "full"),
    "maintain": ("none", "auto"),
}
_LEVELS = ("none", "chunk", "page")
_AGGREGATES = get_args(Aggregate)


def _path(path: object, name: str) -> str:
    if isinstance(path, str | bytes | os.PathLike):
        text = os.fsdecode(path)
        if any("\udc80" <= letter <= "\udcff" for letter in text):
            raise InvalidArgument.of(f"`{name}` is not valid UTF-8", got=ascii(text))
        return text
    _check_no_data(path, name)
    raise InvalidArgument.of(
        f"`{name}` is not a path", got=f"`{path!r}`", hint="give text or a pathlib.Path"
    )


def _paths(paths: object, name: str) -> list[str]:
    if isinstance(paths, Mapping | AbstractSet):
        raise InvalidArgument.of(
            f"`{name}` is not a list of paths",
            got=f"`{paths!r}`",
            hint="give a list: the order of the sources decides the order of rows with equal keys",
        )
    # A frame is iterable, too: over its columns, whose names must not be taken for paths.
    _check_no_data(paths, name)
    if isinstance(paths, Iterable) and not isinstance(paths, str | bytes | os.PathLike):
        return [_path(path, name) for path in paths]
    return [_path(paths, name)]


def _check_no_data(source: object, name: str) -> None:
    """Refuses tables, frames, streams and batches, by the call that takes them and not by value."""
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        kind = type(source)
        raise InvalidArgument.of(
            f"`{name}` takes files, not data in memory",
            got=f"a `{kind.__module__.partition('.')[0]}.{kind.__name__}`",
            hint="`plait.merge_streams` merges tables, streams and files into a sorted stream; "
            "`pyarrow.parquet.write_table(pyarrow.table(stream), path)` writes it to a file"
            if name == "sources"
            else "write it to a Parquet file first",
        )


def _count(value: object, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
        if number >= 0:
            return number
    raise InvalidArgument.of(
        f"`{name}` is not a count", got=f"`{value!r}`", hint="give a whole number, 0 or more"
    )


_UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def _time_span(value: object, name: str) -> float:
    """Seconds, from a number or from text such as `7d`."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    if isinstance(value, str):
        text = value.strip()
        for unit, seconds in sorted(_UNITS_S.items(), key=lambda item: -len(item[0])):
            digits = text.removesuffix(unit).strip()
            if digits != text and digits.replace(".", "", 1).isdecimal():
                return float(digits) * seconds
        if text.replace(".", "", 1).isdecimal():
            return float(text)
    raise InvalidArgument.of(
        f"`{name}` is not a time span",
        got=f"`{value}`",
        hint='give seconds, or text such as "7d"',
    )


def _names(value: object, name: str) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, Iterable) and not isinstance(names, Mapping):
        found = list(names)
        if all(isinstance(column, str) for column in found):
            return found
    raise InvalidArgument.of(
        f"`{name}` does not name columns", got=f"`{value!r}`", hint='give names, such as ["host"]'
    )


def _by_column(
    value: object, name: str, known: set[str], *, hint: str
) -> dict[str, dict[str, Any]]:
    """Settings of columns, of those that are known; names alone have none."""
    if not isinstance(value, Mapping):
        return {column: {} for column in _names(value, name)}
    columns: dict[str, dict[str, Any]] = {}
    for column, how in value.items():
        if how is False:
            continue
        settings = {} if how is True else how
        if not (
            isinstance(column, str) and isinstance(settings, Mapping) and settings.keys() <= known
        ):
            raise InvalidArgument.of(
                f"`{name}` is invalid", got=f"`{column!r}: {how!r}`", hint=hint
            )
        columns[column] = {of: setting for of, setting in settings.items() if setting is not None}
    return columns


def _value_sets(value: object) -> dict[str, int | None]:
    hint = 'give {"column": True} or {"column": {"max": 1000}}'
    columns = _by_column(value, "value_sets", {"max"}, hint=hint)
    return {
        column: _count(given["max"], "max") if given else None for column, given in columns.items()
    }


def _bloom_filters(value: object) -> dict[str, dict[str, float]]:
    hint = 'give {"column": True} or {"column": {"fpp": 0.01, "ndv": 50_000}}'
    filters = _by_column(value, "bloom_filters", {"fpp", "ndv"}, hint=hint)
    for given in filters.values():
        if "ndv" in given:
            given["ndv"] = _count(given["ndv"], "ndv")
        fpp = given.get("fpp", 0.0)
        if isinstance(fpp, bool) or not isinstance(fpp, int | float) or not math.isfinite(fpp):
            raise InvalidArgument.of(
                "`fpp` is not a rate", got=f"`{fpp!r}`", hint="give a number such as 0.01"
            )
    return filters


def _statistics(value: object) -> dict[str, str]:
    levels: dict[str, str] = dict(value) if isinstance(value, Mapping) else {"*": value}  # type: ignore[dict-item]
    for column, level in levels.items():
        if not isinstance(column, str) or level not in _LEVELS:
            raise InvalidArgument.of(
                "`statistics` has no such choice",
                got=f"`{level!r}`",
                hint="give one of: 'none', 'chunk', 'page', or a mapping from columns to these",
            )
    # Of pages is what nobody asks for.
    return {} if levels == {"*": "page"} else levels


def _version_by(value: object, name: str) -> str | dict[str, list[str]] | None:
    if value is None or isinstance(value, str):
        return value
    hint = 'give a name, or {"version": ["a", "b"]} with on_duplicate="update"'
    if not isinstance(value, Mapping):
        what = f"`{name}` does not name a column, or columns by version"
        raise InvalidArgument.of(what, got=f"`{value!r}`", hint=hint)
    versions: dict[str, list[str]] = {}
    for version, columns in value.items():
        if not isinstance(version, str):
            what = f"`{name}` does not name version columns"
            raise InvalidArgument.of(what, got=f"`{version!r}`", hint=hint)
        versions[version] = _names(columns, name)
    return versions


def _aggregates(value: object, name: str) -> dict[str, Aggregate]:
    functions: dict[str, Aggregate] = _mapping(value, name)
    for column, function in functions.items():
        if not isinstance(column, str):
            raise InvalidArgument.of(
                f"`{name}` does not name columns",
                got=f"`{column!r}`",
                hint='give {"column": "sum"}',
            )
        if function not in _AGGREGATES:
            raise InvalidArgument.of(
                f"`{name}` has no such function",
                got=f"`{function!r}` of column `{column}`",
                hint=f"give one of: {', '.join(map(repr, _AGGREGATES))}",
            )
    return functions


def _size(value: Size | None, name: str) -> int | None:
    return None if value is None else parse_size(value, name)


def _choice(value: object, name: str) -> object:
    if value is None and name in ("data_page_version", "verify"):
        return None
    if value is None and name == "on_duplicate":
        # As tables say; files say nothing.
        return CHOICES[name][0]
    for choice in CHOICES[name]:
        if value == choice and not isinstance(value, bool):
            return choice
    choices = ", ".join(map(repr, CHOICES[name]))
    raise InvalidArgument.of(
        f"`{name}` has no such choice", got=f"`{value!r}`", hint=f"give one of: {choices}"
    )


def _validate(value: object) -> str:
    return str(_choice(value, "validate"))


def _flag(value: object, name: str) -> bool | None:
    if value is None and name == "dictionary":
        return None
    if isinstance(value, bool):
        return value
    raise InvalidArgument.of(f"`{name}` is a switch", got=f"`{value!r}`", hint="give True or False")


def _text(value: object, name: str) -> str | None:
    # The engine checks what it says.
    if value is None or isinstance(value, str):
        return value
    raise InvalidArgument.of(f"`{name}` is not text", got=f"`{value!r}`")


def _at_least(least: int) -> Callable[[object, str], int | None]:
    """A check of counts that are no less."""

    def check(value: object, name: str) -> int | None:
        number = _count(value, name)
        if number is not None and number < least:
            hint = f"give {least} or more"
            raise InvalidArgument.of(f"`{name}` is too small", got=f"{number}", hint=hint)
        return number

    return check


def _mapping(value: object, name: str) -> dict[Any, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    raise InvalidArgument.of(
        f"`{name}` is not a mapping", got=f"`{value!r}`", hint='give {"name": ...}'
    )


# Options by which policies choose files.
POLICY_CHECKS: dict[str, Callable[[Any, str], object]] = {
    "max_depth": _at_least(1),
    "merge_factor": _at_least(2),
    "merge_factor_max": _at_least(2),
    "mature_size": _size,
    "mature_level": _count,
    "finalize": _flag,
}


# Every option of `merge` but `out`, and what checks it. Its parameters are these names.
MERGE_CHECKS: dict[str, Callable[[Any, str], object]] = {
    "sources": _paths,
    "sort_by": lambda value, _: sort_text(value),
    "outputs": _count,
    "target_file_size": _size,
    "target_rows": _count,
    "cut_on": _count,
    "partition_by": _names,
    "partition_columns": _choice,
    "row_group_size": _size,
    "row_group_rows": _count,
    "page_size": _size,
    "page_rows": _count,
    "align_row_groups": _count,
    "compression": _text,
    "dictionary": _flag,
    "data_page_version": _choice,
    "encoding": _choice,
    "bloom_filters": lambda value, _: _bloom_filters(value),
    "value_sets": lambda value, _: _value_sets(value),
    "statistics": lambda value, _: _statistics(value),
    "widen": _choice,
    "missing": _choice,
    "missing_keys": _choice,
    "metadata_conflicts": _choice,
    "on_duplicate": _choice,
    "version_by": _version_by,
    "replace_columns": _names,
    "aggregate": _aggregates,
    "delete_where": _text,
    "keep_tombstones": _flag,
    "drop_where": lambda value, name: at_moment(_text(value, name)),
    "verify_order": _choice,
    "verify_pages": _choice,
    "server_side_copy": _flag,
    "unsorted": _choice,
    "assume_sorted": _flag,
    "trust_footers": _flag,
    "verify": _choice,
    "sha256": _flag,
    "row_map": _flag,
    "copy_tiers": lambda value, _: [value] if isinstance(value, str) else list(value),
    "threads": _count,
    "memory_limit": parse_size,
    "if_exists": _choice,
    "empty_output": _flag,
}


def merge_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `merge` as the engine takes them, checked one by one; without `out`.

    `given` are the arguments of `merge` or `plan`, by name, `deletion_vectors` of files, and
    `absent_columns`, which rules name and only other files have.
    """
    options: dict[str, Any] = {n: check(given[n], n) for n, check in MERGE_CHECKS.items()}
    if given.get("absent_columns"):
        options["absent_columns"] = given["absent_columns"]
    vectors = given.get("deletion_vectors", {})
    found = {path: vectors[path] for path in options["sources"] if path in vectors}
    return {**options, "deletion_vectors": found} if found else options


def writer_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `merge` that `given` has by name, as the engine takes them."""
    checks = MERGE_CHECKS.items()
    return {name: check(given[name], name) for name, check in checks if name in given}
