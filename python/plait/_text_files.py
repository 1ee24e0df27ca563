"""Files of text among the sources of a scan: JSON lines and CSV, read by PyArrow.

survey   the whole file, block by block ─▶ one type for each column, number of rows
read     the same blocks again ─▶ batches of these types

Invariants: one block of a file is in memory at a time, and a row is never cut. Types depend on all
rows, not on the first ones. What a type cannot hold is an error with file and row, never another
value. The bytes come from the engine, so every storage will do.

Not here: one schema for several files, columns of folders, limits (the engine).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import csv
from pyarrow import json as arrow_json

from plait._text_types import (
    LONG,
    CsvTypes,
    check_exact,
    converted,
    joined,
    placed,
    raw,
    text_types,
    wanted,
)
from plait.errors import CorruptSource, DuplicateField, PlaitError, SchemaConflict

if TYPE_CHECKING:
    from plait import _native

# Bytes of a block; a longer row of JSON makes a longer block.
_BLOCK_BYTES = 1 << 20

_ROW = re.compile(r"[Rr]ow #?(\d+)")


def survey(file: _native.TextFile, given: object) -> tuple[pa.Schema, int]:
    """The columns of a file, and the number of its rows.

    Args:
        file: The file.
        given: The schema that is asked for, or none: text is read as the times and decimals that it
            names.
    """
    schema, rows = _form(file).survey(file)
    if given is None:
        return schema, rows
    asked = pa.schema(given)
    return pa.schema([wanted(field, asked) for field in schema]), rows


def read(file: _native.TextFile, schema: object) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with columns that `survey` found."""
    return _form(file).read(file, pa.schema(schema))


class _JsonLines:
    """One JSON object on each line."""

    def survey(self, file: _native.TextFile) -> tuple[pa.Schema, int]:
        schema, rows = pa.schema([]), 0
        for block in _blocks(file):
            table = self._parsed(file, block, rows, None)
            schema = joined(file, schema, text_types(table.schema), rows)
            rows += table.num_rows
        return schema, rows

    def read(self, file: _native.TextFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        spelled, rows = pa.schema([raw(field) for field in schema]), 0
        for block in _blocks(file):
            table = self._parsed(file, block, rows, spelled)
            if LONG.search(block):
                check_exact(file, block, schema, rows)
            for batch in table.combine_chunks().to_batches():
                yield converted(file, batch, schema, rows)
                rows += batch.num_rows

    def _parsed(
        self, file: _native.TextFile, block: bytes, rows: int, schema: pa.Schema | None
    ) -> pa.Table:
        try:
            block.decode()
        except UnicodeDecodeError as cause:
            error = CorruptSource.of("a file of JSON lines is not UTF-8")
            raise placed(error, file, rows + block.count(b"\n", 0, cause.start)) from cause
        reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        parsing = arrow_json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        )
        try:
            return arrow_json.read_json(pa.BufferReader(block), reading, parsing)
        except pa.ArrowInvalid as cause:
            raise _refused(file, cause, "JSON lines", rows, _first_bad(block)) from cause


class _Csv:
    """Values between commas, with the names of the columns on the first line."""

    def survey(self, file: _native.TextFile) -> tuple[pa.Schema, int]:
        names, batches = self._batches(file)
        if twice := next((name for name in names if names.count(name) > 1), None):
            error = DuplicateField.of("two columns of a file have one name", got=f"`{twice}`")
            error.column = twice
            raise placed(error, file)
        types, rows = [CsvTypes() for _ in names], 0
        for batch in batches:
            rows += batch.num_rows
            for kind, column in zip(types, batch.columns, strict=True):
                kind.see(column)
        found = [kind.found for kind in types]
        return pa.schema(list(zip(names, found, strict=True))), rows

    def read(self, file: _native.TextFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows = 0
        _, batches = self._batches(file)
        for batch in batches:
            yield converted(file, batch, schema, rows)
            rows += batch.num_rows

    def _batches(self, file: _native.TextFile) -> tuple[list[str], Iterator[pa.RecordBatch]]:
        """The names of columns, and all values as text; empty fields without quotes are null."""
        reading = csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
        parsing = csv.ParseOptions(newlines_in_values=True)
        nulls: dict[str, Any] = {
            "null_values": [""],
            "strings_can_be_null": True,
            "quoted_strings_can_be_null": False,
        }
        if not file.size():
            return [], iter(())
        with _refusing(file):
            head = csv.open_csv(_opened(file), reading, parsing)
            names = list(head.schema.names)
            options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), **nulls)
            reader = csv.open_csv(_opened(file), reading, parsing, options)

        def batches() -> Iterator[pa.RecordBatch]:
            rows = 0
            while True:
                with _refusing(file, rows):
                    batch = next(reader, None)
                if batch is None:
                    return
                rows += batch.num_rows
                yield batch

        return names, batches()


class _refusing:  # noqa: N801 - reads as a verb
    """Errors of PyArrow about a file of CSV become those of Plait, with file and row."""

    def __init__(self, file: _native.TextFile, rows: int = 0) -> None:
        self._file, self._rows = file, rows

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Raises the error of Plait."""
        if isinstance(error, pa.ArrowInvalid | OSError):
            raise _refused(self._file, error, "CSV", self._rows) from error


def _form(file: _native.TextFile) -> _JsonLines | _Csv:
    name = file.path.removesuffix(".gz")
    return _Csv() if name.endswith(".csv") else _JsonLines()


def _opened(file: _native.TextFile) -> Any:  # noqa: ANN401 - a file of PyArrow
    opened = pa.PythonFile(file.opened(), "r")
    return pa.CompressedInputStream(opened, "gzip") if file.path.endswith(".gz") else opened


def _blocks(file: _native.TextFile) -> Iterator[bytes]:
    """Whole lines of a file, about as many bytes at a time; blank ones alone are left out."""
    opened, rest = _opened(file), b""
    while True:
        with _refusing(file):
            read = opened.read(_BLOCK_BYTES)
        if not read:
            break
        head, line, tail = read.rpartition(b"\n")
        if not line:
            rest += tail
            continue
        block, rest = rest + head + line, tail
        if block.strip():
            yield block
    if rest.strip():
        yield rest


def _first_bad(block: bytes) -> int | None:
    """The place of the first line of a block that is no JSON: PyArrow may name the one behind."""
    lines = (line for line in block.split(b"\n") if line.strip())
    return next((place for place, line in enumerate(lines) if not _is_json(line)), None)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _refused(
    file: _native.TextFile, cause: Exception, form: str, rows: int, place: int | None = None
) -> PlaitError:
    """The error for what PyArrow refused, in rows behind so many others."""
    said = str(cause)
    found = _ROW.search(said)
    row = None if place is None else rows + place
    if row is None and found is not None:
        # PyArrow counts rows of CSV from 1 on, with the line of names.
        row = int(found.group(1)) - 2 if form == "CSV" else rows + int(found.group(1))
    if "changed from" in said:
        column = said.partition("Column(/")[2].partition(")")[0].replace("/", ".")
        error: PlaitError = SchemaConflict.of("values of a column are of several kinds", got=said)
        error.column = column or None
        return placed(error, file, row)
    return placed(CorruptSource.of(f"a file is not {form}", got=said), file, row)
