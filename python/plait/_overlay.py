"""Layers joined by position: every leaf comes whole from the layer that owns it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

from plait import _native
from plait._checks import Path, StorageOptions, _count, _flag, _path, _paths, _size, _validate
from plait._native import Stream
from plait._native_call import OnProgress, _call
from plait._observe import watch
from plait._report import _PrintedReport, _Report
from plait._svg import Quantity, chart
from plait._text import Page, Table, counted, human_bytes
from plait.errors import InvalidArgument, InvalidPath
from plait.report import TIERS, Copied
from plait.sizes import Size

FieldPath = str | Sequence[str]
Mark = str | Mapping[str, str]
StructValidity = Literal["any", "all_children"]
CHOICES = {"struct_validity": ("any", "all_children"), "check": ("upfront", "after")}

_INT64 = 1 << 63


@dataclass(frozen=True)
class Layer:
    """Some columns of the rows that all layers share, and which of them it owns.

    Attributes:
        stream: The rows: anything with `__arrow_c_stream__` or `__arrow_c_array__`, such as tables
            of PyArrow, Polars and DuckDB, or an iterable of record batches. For `overlay_files`:
            a path, or a list of paths whose rows follow one another.
        paths: What the layer owns: paths of fields, each a tuple of names from the root, or text
            such as `"a.b"` with odd names in double quotes. `None` is every column but the index.
        name: Its name in messages; its number by default.
        precedence: The greater, the stronger; of equals the later layer is the stronger.
        schema: The columns of the layer if `stream` is a list or iterable without batches, as
            anything with `__arrow_c_schema__`. Batches have their own.

    Example:
        >>> Layer([], paths=["x", ("a", "b.c")], name="labels").paths
        ['x', ('a', 'b.c')]
    """

    stream: object
    paths: Iterable[FieldPath] | None = None
    name: str | None = None
    precedence: int | None = None
    schema: object = None


def overlay(
    layers: Iterable[Layer],
    *,
    index: Mark | None = None,
    row_number: Mark | None = None,
    struct_validity: StructValidity = "any",
    check_unused: bool = True,
    batch_rows: SupportsIndex | None = None,
    validate: Literal["basic", "full"] = "basic",
) -> Stream:
    """Combines layers by position: each leaf comes whole from the strongest layer that owns it.

    Row i of one layer is row i of every other: no sort, no join by key, no choice by row. Index
    values are compared element by element; a difference is an error. A null of a stronger layer
    beats a value of a weaker one. Value buffers are shared, not copied.

    Args:
        layers: The layers, weakest first unless they have a `precedence`.
        index: The index column of every layer; by default the one that is marked, or `_index`. Its
            name, or entries of its field's metadata; the mark is `{"plait.index": "true"}`. It is
            int64 or a timestamp, of one type in all layers, without nulls.
        row_number: A column that is compared as the index is. It distinguishes rows of equal index.
        struct_validity: When a struct with fields from several layers is non-null: if any of these
            layers has it, or if not all children are null. `"all_children"` is for compatibility.
        check_unused: Whether layers that supply nothing are compared, too.
        batch_rows: Rows of every batch but the last, 1 to 1048576. By default batches end where
            those of the layers do, and short ones are joined.
        validate: How much of foreign batches is checked: `"basic"`, what memory safety relies on
            (offsets, views, keys, lengths), or `"full"`, also every value, as Arrow itself does.

    Returns:
        The stream: the index, then columns in the order in which layers name them.

    Raises:
        RowMismatch: Layers do not hold the same rows. Earlier rows may have been returned already.
        IndexTypeError: An index column has another type than it must have.
        FieldNotInLayer: A layer owns a path that it does not have, or it has no index column.
        SplitInsideNonStruct: Layers own parts of a list, map or other value that is taken whole.
        PathThroughNonStruct: A path leads through a value that has no fields.
        DuplicateField: A name occurs twice.
        SchemaDrift: The schema of a layer changed; raised when its batch is read.
        CorruptSource: A batch of a layer is not valid Arrow data; names layer and column.
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
        "struct_validity": _choice(struct_validity, "struct_validity"),
        "check_unused": _flag(check_unused, "check_unused"),
        "batch_rows": _count(batch_rows, "batch_rows"),
    }
    validated = _validate(validate)
    streams, schemas = ([layer.stream for layer in layers], [layer.schema for layer in layers])
    stream = _native.overlay(streams, schemas, _json(options), validated)
    return watch("overlay", stream)


@dataclass(frozen=True)
class OverlayTimes(_Report):
    """Seconds by stage.

    Attributes:
        check_s: Comparing the index columns.
        write_s: Copying and encoding.
        publish_s: Making the output durable and giving it its name.
        wall_s: All.
    """

    check_s: float
    write_s: float
    publish_s: float
    wall_s: float


@dataclass(frozen=True)
class OverlayReport(_PrintedReport):
    """What an overlay of files did.

    Attributes:
        path: The output.
        rows: Its rows.
        bytes: Its length.
        row_groups: Its row groups.
        supplied: Which layer gave each column or field: path and name, in the order of the schema.
        copied: Rows and stored bytes by copy tier; a row counts in the shares of its leaves.
        time: Seconds by stage.
    """

    path: str
    rows: int
    bytes: int
    row_groups: int
    supplied: tuple[tuple[str, ...], ...]
    copied: dict[str, Copied]
    time: OverlayTimes

    def _page(self) -> Page:
        head = f"overlaid into {self.path}: {counted(self.rows, 'row')}, {human_bytes(self.bytes)}"
        rows = tuple((path, layer) for path, layer in self.supplied)
        tiers = [
            f"{name} {human_bytes(self.copied[name].bytes)}"
            for name in TIERS
            if name in self.copied
        ]
        time = self.time
        facts = (
            ("copied by", ", ".join(tiers) or "nothing"),
            ("time", f"{time.wall_s:.2f} s (check {time.check_s:.2f}, write {time.write_s:.2f})"),
        )
        counts = Counter(layer for _, layer in rows)
        picture = chart(
            "Columns by the layer that supplies them",
            [Quantity(layer, count, counted(count, "column")) for layer, count in counts.items()],
        )
        return Page(head, (Table(("column", "layer"), rows),), facts, svg=picture)


def overlay_files(
    layers: Iterable[Layer],
    out: Path,
    *,
    index: Mark | None = None,
    row_number: Mark | None = None,
    struct_validity: StructValidity = "any",
    check_unused: bool = True,
    check: Literal["upfront", "after"] = "upfront",
    copy_tiers: Iterable[str] = ("chunk", "page", "dict"),
    memory_limit: Size = "512MB",
    storage_options: StorageOptions | None = None,
    progress: OnProgress | None = None,
) -> OverlayReport:
    """Overlays Parquet files into one file, by copying bytes where row groups or pages line up.

    The output holds what `overlay` gives for the same files. Its row groups are those of the layer
    that supplies most bytes. It becomes visible complete, or not at all.

    Args:
        layers: The layers, weakest first unless they have a `precedence`. `stream` of each is a
            path, glob, folder or URL, or a list of them: files whose rows follow one another.
        out: Path of the output, which ends in `.parquet` and does not exist.
        index: See `overlay`.
        row_number: See `overlay`.
        struct_validity: See `overlay`.
        check_unused: See `overlay`.
        check: When index columns are compared: before the first byte is written, or after the last
            one. After the last one is before the output is published.
        copy_tiers: See `merge`.
        memory_limit: See `merge`.
        storage_options: See `merge`.
        progress: Called a few times a second with a `Progress`. What it raises stops the call.

    Returns:
        What was copied from where, and how.

    Raises:
        RowMismatch: Layers do not hold the same rows.
        CorruptSource: A file is damaged.
        SourceNotFound: A file does not exist.
        OutputExists: The output exists already.
        PlaitError: Base of these, of those of `overlay`, and of all others.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"_index": [1, 2], "x": [1, 2]}), "base.parquet")
        >>> pq.write_table(pa.table({"_index": [1, 2], "label": ["a", "b"]}), "labels.parquet")
        >>> layers = [Layer("base.parquet"), Layer("labels.parquet", ["label"])]
        >>> overlay_files(layers, "labelled.parquet").rows
        2
        >>> pq.read_table("labelled.parquet").column_names
        ['_index', 'x', 'label']
    """
    layers = _layers(layers)
    described = []
    for i, layer in enumerate(layers):
        files = _paths(layer.stream, "stream")
        if layer.schema is not None:
            hint = "leave `schema` out"
            raise InvalidArgument.of("a layer of files has a `schema` of its own", hint=hint)
        options = _layer(layer, i)
        if layer.name is None:
            options["name"] = files[0] if len(files) == 1 else str(i)
        described.append({**options, "files": files})
    return OverlayReport.from_dict(
        _call(
            _native.overlay_files,
            {
                "overlay": {
                    "layers": described,
                    "index": _mark(index, "index"),
                    "row_number": _mark(row_number, "row_number"),
                    "struct_validity": _choice(struct_validity, "struct_validity"),
                    "check_unused": _flag(check_unused, "check_unused"),
                },
                "out": _path(out, "out"),
                "check": _choice(check, "check"),
                "copy_tiers": [copy_tiers] if isinstance(copy_tiers, str) else list(copy_tiers),
                "memory_limit": _size(memory_limit, "memory_limit"),
            },
            storage_options,
            progress,
        )
    )


def _choice(value: object, name: str) -> str:
    for choice in CHOICES[name]:
        if value == choice:
            return choice
    choices = ", ".join(map(repr, CHOICES[name]))
    raise InvalidArgument.of(
        f"`{name}` has no such choice", got=f"`{value!r}`", hint=f"give one of: {choices}"
    )


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
    return {"name": name, "paths": _fields(layer.paths), "precedence": precedence}


def _fields(paths: object) -> list[str | list[str]] | None:
    if paths is None:
        return None
    if isinstance(paths, str):
        return [paths]
    if not isinstance(paths, Iterable):
        raise InvalidPath.of("`paths` is not a list of paths", got=f"`{paths!r}`")
    return [_field(path) for path in paths]


def _field(path: object) -> str | list[str]:
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
