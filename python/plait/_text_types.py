"""Types of columns of text, and their values: what a scan makes of JSON lines and CSV.

Invariants: types depend on all values. What a type cannot hold is an error with file and row, never
another value: 007 is text, a whole number beyond 2^53 no double.

Not here: files and their formats (`plait._text_files`).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import LossyCast, PlaitError, SchemaConflict

if TYPE_CHECKING:
    from plait import _native

# Whole numbers up to this are doubles, too.
_EXACT = 1 << 53

# What may be a whole number beyond it; most files have none.
LONG = re.compile(rb"\d{16}")


class CsvTypes:
    """The types that a column of CSV may have, the narrowest first."""

    def __init__(self) -> None:
        """All of them, until there are values."""
        self._types = [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us")]
        self._has_values = False

    def see(self, column: pa.Array) -> None:
        """Leaves out what values of the column, which is text, are not."""
        if column.null_count < len(column):
            self._has_values = True
            self._types = [kind for kind in self._types if _is_all(column, kind)]

    @property
    def found(self) -> pa.DataType:
        """The type of all values."""
        if not self._has_values:
            return pa.null()
        return self._types[0] if self._types else pa.string()


def text_types(schema: pa.Schema) -> pa.Schema:
    """The types of values of JSON, in which times are text."""

    def of(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.string()
        if pa.types.is_list(kind):
            return pa.list_(of(kind.value_type))
        if pa.types.is_struct(kind):
            return pa.struct([(field.name, of(field.type)) for field in kind])
        return kind

    return pa.schema([(field.name, of(field.type)) for field in schema])


def joined(file: _native.TextFile, a: pa.Schema, b: pa.Schema, rows: int) -> pa.Schema:
    """The columns of two blocks of a file: JSON has one kind of number."""

    def both(path: str, a: pa.DataType, b: pa.DataType) -> pa.DataType:
        if a.equals(b) or pa.types.is_null(b):
            return a
        if pa.types.is_null(a):
            return b
        number = [pa.int64(), pa.float64()]
        if a in number and b in number:
            return pa.float64()
        if pa.types.is_list(a) and pa.types.is_list(b):
            return pa.list_(both(f"{path}[]", a.value_type, b.value_type))
        if pa.types.is_struct(a) and pa.types.is_struct(b):
            return pa.struct(fields(f"{path}.", list(a), list(b)))
        what = "values of a column are of several kinds"
        error = SchemaConflict.of(what, got=f"`{path}`: {a} before, {b} in later rows")
        error.column = path
        raise placed(error, file, rows)

    def fields(path: str, a: list[pa.Field], b: list[pa.Field]) -> list[pa.Field]:
        found = {field.name: field.type for field in a}
        for field in b:
            known = found.get(field.name, pa.null())
            found[field.name] = both(f"{path}{field.name}", known, field.type)
        return [pa.field(name, kind) for name, kind in found.items()]

    return pa.schema(fields("", list(a), list(b)))


def _is_all(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether all values of a column of text are of a type, and none loses its spelling to it."""

    def matches(pattern: str) -> pa.Array:
        return pc.match_substring_regex(column, pattern)

    if pa.types.is_boolean(kind):
        return bool(pc.all(matches("^(?i:true|false)$")).as_py())
    # Numbers such as 007 are names.
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and pc.any(matches(r"^[+-]?0\d|^\+")).as_py():
        return False
    if pa.types.is_floating(kind) and pc.any(_beyond(column)).as_py():
        return False
    try:
        pc.cast(column, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _beyond(column: pa.Array) -> pa.Array:
    """Which values of text are whole numbers that a double may not hold."""
    long = pc.match_substring_regex(column, r"^-?\d{16,}$")
    if not pc.any(long).as_py():
        return long
    values = pc.if_else(long, column, None).to_pylist()
    return pa.array([value is not None and abs(int(value)) > _EXACT for value in values])


def wanted(field: pa.Field, given: pa.Schema) -> pa.Field:
    """A column of text as the type that is asked for, if text or a number of JSON can be that."""
    if given.get_field_index(field.name) < 0:
        return field
    kind, of = given.field(field.name).type, pa.types
    spelled = of.is_temporal(kind) or of.is_decimal(kind)
    if (of.is_string(field.type) and spelled) or (
        of.is_integer(field.type) and of.is_floating(kind)
    ):
        return pa.field(field.name, kind)
    return field


def raw(field: pa.Field) -> pa.Field:
    """A column as JSON has it."""
    of = pa.types
    if of.is_temporal(field.type) or of.is_decimal(field.type):
        return pa.field(field.name, pa.string())
    return field


# ---- values


def converted(
    file: _native.TextFile, batch: pa.RecordBatch, schema: pa.Schema, rows: int
) -> pa.RecordBatch:
    """The columns of a batch as the types of the schema."""

    def column(field: pa.Field) -> pa.Array:
        values = batch.column(field.name)
        if values.type.equals(field.type):
            return values
        if pa.types.is_null(field.type):
            return pa.nulls(len(values))
        if pa.types.is_floating(field.type) and pa.types.is_string(values.type):
            beyond = _beyond(values)
            if pc.any(beyond).as_py():
                raise misfit(field, values, pc.index(beyond, value=True).as_py())
        try:
            return pc.cast(values, field.type)
        except pa.ArrowInvalid as cause:
            raise misfit(field, values, _first(values, field.type)) from cause

    def misfit(field: pa.Field, values: pa.Array, place: int) -> PlaitError:
        got = f"`{values[place].as_py()}` for {field.type}"
        error = LossyCast.of("value does not fit the type of its column", got=got)
        error.column = field.name
        return placed(error, file, rows + place)

    return pa.record_batch([column(field) for field in schema], schema=schema)


def _first(values: pa.Array, kind: pa.DataType) -> int:
    """The place of the first value that cannot be cast."""
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        try:
            pc.cast(values.slice(low, middle - low + 1), kind)
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle + 1
    return low


def check_exact(file: _native.TextFile, block: bytes, schema: pa.Schema, rows: int) -> None:
    """Whole numbers of JSON that become doubles must be the same as doubles."""

    def check(path: str, value: object, kind: pa.DataType, row: int) -> None:
        if isinstance(value, dict) and pa.types.is_struct(kind):
            for field in kind:
                check(f"{path}.{field.name}", value.get(field.name), field.type, row)
        elif isinstance(value, list) and pa.types.is_list(kind):
            for item in value:
                check(f"{path}[]", item, kind.value_type, row)
        elif pa.types.is_floating(kind) and isinstance(value, int) and int(float(value)) != value:
            got = f"`{value}` for {kind}"
            error = LossyCast.of("value does not fit the type of its column", got=got)
            error.column = path
            raise placed(error, file, row)

    lines = (line for line in block.split(b"\n") if line.strip())
    for row, line in enumerate(lines, rows):
        if LONG.search(line):
            values = json.loads(line)
            for field in schema:
                check(field.name, values.get(field.name), field.type, row)


def placed(error: PlaitError, file: _native.TextFile, row: int | None = None) -> PlaitError:
    """The error with the file, and the row if there is one."""
    error.path, error.row = file.path, row
    where = f"file `{file.path}`" + (f", row {row}" if row is not None else "")
    what, hint = f"{error.what}: {where}", f"\nhint: {error.hint}" if error.hint else ""
    error.args = (what + (f", got {error.got}" if error.got else "") + hint,)
    return error
