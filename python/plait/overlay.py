"""Layers joined by position: every leaf comes whole from the layer that owns it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

from plait import _native
from plait._api import _count, _flag
from plait._native import Stream
from plait.errors import InvalidArgument, InvalidPath

FieldPath = str | Sequence[str]
Mark = str | Mapping[str, str]
StructValidity = Literal["any", "all_children"]

_INT64 = 1 << 63


@dataclass(frozen=True)
class Layer:
    """Some columns of the rows that all layers share, and which of them count.

    Attributes:
        stream: The rows: anything with `__arrow_c_stream__` or `__arrow_c_array__`, such as tables
            of PyArrow, Polars and DuckDB, or an iterable of record batches. For `overlay_files`:
            a path, or a list of paths whose rows follow one another.
        paths: What the layer owns: paths of fields, each a tuple of names from the root, or text
            such as `"a.b"` with odd names in double quotes. `None` is every column but the index.
        name: Its name in messages; its number by default.
        precedence: The greater, the stronger; of equals the later layer is the stronger.

    Example:
        >>> Layer([], paths=["x", ("a", "b.c")], name="labels").paths
        ['x', ('a', 'b.c')]
    """

    stream: object
    paths: Iterable[FieldPath] | None = None
    name: str | None = None
    precedence: int | None = None


def overlay(
    layers: Iterable[Layer],
    *,
    index: Mark | None = None,
    row_number: Mark | None = None,
    struct_validity: StructValidity = "any",
    check_unused: bool = True,
    batch_rows: SupportsIndex | None = None,
) -> Stream:
    """Gathers each leaf whole from the strongest layer that owns it, row by row in place.

    Row i of one layer is row i of every other: no sort, no join by key, no choice by row. Index
    values are compared element by element; a difference is an error, and there is no fallback. A
    null of a stronger layer beats a value of a weaker one. Value buffers are shared, not copied.

    Args:
        layers: The layers, weakest first unless they have a `precedence`.
        index: The index column of every layer: its name, or entries of its field's metadata. The
            column marked `{"plait.index": "true"}` by default, else `_index`. It is int64 or a
            timestamp, of one type in all layers, without nulls.
        row_number: A column that is compared as the index is; it tells rows of equal index apart.
        struct_validity: When a struct whose fields come from several layers is there: where `"any"`
            of these layers has it, or, for compatibility, where not `"all_children"` are null.
        check_unused: Whether layers that supply nothing are compared, too.
        batch_rows: Rows of every batch but the last, 1 to 1048576. By default batches end where
            those of the layers do, and short ones are joined.

    Returns:
        The stream: the index, then columns in the order in which layers name them.

    Raises:
        RowMismatch: Layers do not hold the same rows. Rows before may have been given out already.
        IndexTypeError: An index column has another type than it must have.
        FieldNotInLayer: A layer owns a path that it does not have, or it has no index column.
        SplitInsideNonStruct: Layers own parts of a list, map or other value that is taken whole.
        PathThroughNonStruct: A path leads through a value that has no fields.
        DuplicateField: A name is there twice.
        SchemaDrift: The schema of a layer changed; raised when its batch is read.
        InvalidPath: A path is empty or can be read in two ways.

    Example:
        >>> import pyarrow as pa
        >>> base = pa.table({"_index": [1, 2], "a": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]})
        >>> patch = pa.table({"_index": [1, 2], "a": [{"y": 20}, {"y": None}]})
        >>> layers = [Layer(base, ["a"]), Layer(patch, ["a.y"])]
        >>> pa.table(overlay(layers)).column("a").to_pylist()
        [{'x': 1, 'y': 20}, {'x': 3, 'y': None}]
    """
    layers = _layers(layers)
    options = {
        "layers": [_layer(layer, i) for i, layer in enumerate(layers)],
        "index": _mark(index, "index"),
        "row_number": _mark(row_number, "row_number"),
        "struct_validity": struct_validity,
        "check_unused": _flag(check_unused, "check_unused"),
        "batch_rows": _count(batch_rows, "batch_rows"),
    }
    return _native.overlay([layer.stream for layer in layers], _json(options))


def _json(options: dict[str, Any]) -> str:
    try:
        return json.dumps(options)
    except TypeError as cause:
        raise InvalidArgument(f"an option has a type that cannot be used: {cause}") from cause


def _layers(layers: object) -> list[Layer]:
    if isinstance(layers, Layer) or not isinstance(layers, Iterable):
        raise InvalidArgument.of("`layers` is not a list of layers", got=f"`{layers!r}`")
    found = list(layers)
    for layer in found:
        if not isinstance(layer, Layer):
            raise InvalidArgument.of(
                "a layer is not a `plait.Layer`",
                got=f"`{type(layer).__name__}`",
                hint="write plait.Layer(stream, paths=[...])",
            )
    return found


def _layer(layer: Layer, number: int) -> dict[str, Any]:
    name = str(number) if layer.name is None else layer.name
    if not isinstance(name, str):
        raise InvalidArgument.of("the name of a layer is not text", got=f"`{name!r}`")
    precedence = 0 if layer.precedence is None else layer.precedence
    is_number = isinstance(precedence, int) and not isinstance(precedence, bool)
    if not is_number or not -_INT64 <= precedence < _INT64:
        raise InvalidArgument.of("`precedence` is not a whole number", got=f"`{precedence!r}`")
    return {"name": name, "paths": _paths(layer.paths), "precedence": precedence}


def _paths(paths: object) -> list[str | list[str]] | None:
    if paths is None:
        return None
    if isinstance(paths, str):
        return [paths]
    if not isinstance(paths, Iterable):
        raise InvalidPath.of("`paths` is not a list of paths", got=f"`{paths!r}`")
    return [_path(path) for path in paths]


def _path(path: object) -> str | list[str]:
    if isinstance(path, str):
        return path
    if isinstance(path, Iterable):
        names = list(path)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidPath.of(
        "a path of fields is neither text nor names", got=f"`{path!r}`", hint='write ("a", "b")'
    )


def _mark(mark: object, name: str) -> str | dict[str, str] | None:
    if mark is None or isinstance(mark, str):
        return mark
    if isinstance(mark, Mapping) and mark:
        entries = {_text(key): _text(value) for key, value in mark.items()}
        if None not in entries and None not in entries.values():
            return {str(key): str(value) for key, value in entries.items()}
    raise InvalidArgument.of(
        f"`{name}` is neither a column nor metadata",
        got=f"`{mark!r}`",
        hint='give a name, or metadata such as {"plait.index": "true"}',
    )


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return os.fsdecode(value)
    return value if isinstance(value, str) else None
