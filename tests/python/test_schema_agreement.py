"""Merges of files, scans of the same files and merges of their streams decide by one reconciler."""

import datetime as dt
import decimal
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plait

EPOCH = dt.datetime(2020, 1, 1)

# Types of one family mostly go together, those of two families do not.
FAMILIES: list[list[pa.DataType]] = [
    [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.float32(), pa.float64()],
    [pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float16()],
    [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()],
    # Seconds are none of the format: files of them say milliseconds, streams say seconds.
    [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us", "UTC")],
    [pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("ns", "UTC"), pa.date32()],
    [pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.int64()],
    [pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
    [pa.decimal128(5, 2), pa.decimal128(9, 0), pa.decimal128(30, 4), pa.int16()],
    [pa.date32(), pa.bool_()],  # PyArrow shows date64 of its own files as date32
]


def nested(leaves: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    def more(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        fields = st.lists(
            st.tuples(st.sampled_from("xyz"), inner, st.booleans()),
            min_size=1,
            max_size=3,
            unique_by=lambda field: field[0],
        )
        return st.one_of(
            fields.map(lambda members: pa.struct([field(*each) for each in members])),
            st.tuples(inner, st.booleans()).map(lambda i: pa.list_(field("item", *i))),
            inner.map(pa.large_list),
            inner.map(lambda item: pa.map_(pa.string(), item)),
        )

    return st.recursive(leaves, more, max_leaves=4)


def field(name: str, of: pa.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, of, nullable or pa.types.is_null(of))


def sources() -> st.SearchStrategy[list[list[pa.Field]]]:
    """Columns of two to four files; a column's types are of one family, or of its nested forms."""

    def of_file(types: list[st.SearchStrategy[pa.DataType]]) -> st.SearchStrategy[list[pa.Field]]:
        columns = [
            st.tuples(st.just(name), kind, st.booleans())
            for name, kind in zip("abc", types, strict=True)
        ]
        chosen = st.tuples(*(st.one_of(st.none(), column, column) for column in columns))
        shuffled = chosen.map(list).flatmap(st.permutations)
        return shuffled.map(lambda columns: [field(*column) for column in columns if column])

    def families(leaves: list[list[pa.DataType]]) -> st.SearchStrategy[list[list[pa.Field]]]:
        kinds = []
        for family in leaves:
            leaf = st.sampled_from([*family, pa.null()])
            kinds.append(st.one_of(leaf, nested(leaf)))
        return st.lists(of_file(kinds), min_size=2, max_size=4)

    # Few types to choose from, so that about half of the cases go together.
    few = st.sampled_from(FAMILIES).flatmap(
        lambda family: st.lists(st.sampled_from(family), min_size=1, max_size=2)
    )
    return st.lists(few, min_size=3, max_size=3).flatmap(families)


def value(of: pa.DataType, nullable: bool, n: int) -> Any:
    if pa.types.is_null(of) or (nullable and n % 3 == 0):
        return None
    if pa.types.is_struct(of):
        return {f.name: value(f.type, f.nullable, n + i) for i, f in enumerate(of)}
    if pa.types.is_map(of):
        return [(f"{i}", value(of.item_type, True, n + i)) for i in range(n % 3)]
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        item = of.value_field
        return [value(item.type, item.nullable, n + i) for i in range(n % 4)]
    makers: list[tuple[Callable[[pa.DataType], bool], Any]] = [
        (pa.types.is_boolean, n % 2 == 0),
        (pa.types.is_floating, float(n)),
        (pa.types.is_integer, n),
        (pa.types.is_binary, b"%d" % n),
        (pa.types.is_timestamp, EPOCH + dt.timedelta(seconds=n)),
        (pa.types.is_duration, dt.timedelta(seconds=n)),
        (pa.types.is_time, dt.time(1, 2, n % 60)),
        (pa.types.is_date, EPOCH.date() + dt.timedelta(days=n)),
        (pa.types.is_decimal, decimal.Decimal(n)),
    ]
    return next((made for test, made in makers if test(of)), f"text {n}")


def table(number: int, fields: list[pa.Field]) -> pa.Table:
    ks = [number * 10 + row for row in range(4)]
    columns = [pa.array(ks, pa.int64())]
    for at, f in enumerate(fields):
        columns.append(pa.array([value(f.type, f.nullable, k + at) for k in ks], f.type))
    return pa.Table.from_arrays(
        columns, schema=pa.schema([pa.field("k", pa.int64(), nullable=False), *fields])
    )


def shape(of: pa.DataType) -> Any:
    """A type without the names of list items and map entries, which say nothing."""
    if pa.types.is_struct(of):
        return [(f.name, shape(f.type), f.nullable) for f in of]
    if pa.types.is_map(of):
        return ("map", shape(of.key_type), shape(of.item_type))
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        kind = "list" if pa.types.is_list(of) else "large_list"
        return (kind, shape(of.value_type), of.value_field.nullable)
    return str(of)


LINE = re.compile(r"  `(?P<column>.*?)` (?P<why>.*?): .* in `(?P<a>[^`]*)`, .* in `(?P<b>[^`]*)`")


def outcome(read: Callable[[], tuple[pa.Schema, list[Any]]], names: dict[str, str]) -> Any:
    """The schema and rows, or what does not go together between which sources."""
    try:
        schema, rows = read()
    except plait.SchemaConflict as e:
        lines = [LINE.fullmatch(line) for line in str(e).split("\n") if line.startswith("  ")]
        assert lines, e
        assert all(lines), e
        return [
            (
                re.sub(r"\belement\b", "item", line["column"]),
                line["why"],
                names.get(line["a"], line["a"]),
                names.get(line["b"], line["b"]),
            )
            for line in lines
            if line
        ]
    return [(f.name, shape(f.type), f.nullable) for f in schema], rows


COUNTS = {"agreed": 0, "refused": 0}


def without_second(found: Any) -> Any:
    """Conflicts without the second source of shapes: of three, merges compare groups as such."""
    if isinstance(found, tuple):
        return found
    return [line[:3] if "shapes" in line[1] else line for line in found]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files=sources())
def decide_alike(files: list[list[pa.Field]], folder: Path) -> None:
    tables = [table(number, fields) for number, fields in enumerate(files)]
    paths = [folder / f"{number}.parquet" for number in range(len(tables))]
    for path, each in zip(paths, tables, strict=True):
        pq.write_table(each, path)
    names = {str(path): f"source {number}" for number, path in enumerate(paths)}

    def scanned() -> tuple[pa.Schema, list[Any]]:
        scan = plait.scan(paths)
        return pa.schema(scan.schema), pa.table(scan).to_pylist()

    def merged() -> tuple[pa.Schema, list[Any]]:
        out = folder / "out.parquet"
        out.unlink(missing_ok=True)
        plait.merge(paths, out, sort_by="k")
        made = pq.ParquetFile(out).read()
        return made.schema, made.to_pylist()

    def streamed() -> tuple[pa.Schema, list[Any]]:
        made = pa.table(plait.merge_streams(tables, sort_by="k"))
        return made.schema, made.to_pylist()

    by_scan, by_merge, by_streams = (outcome(r, names) for r in (scanned, merged, streamed))
    assert without_second(by_merge) == without_second(by_scan)
    assert by_streams == by_scan
    COUNTS["agreed" if isinstance(by_scan, tuple) else "refused"] += 1


@pytest.mark.behaviour("merge-13")
@pytest.mark.long
def test_merges_scans_and_streams_agree_on_schema_and_rows_or_on_conflicts(tmp_path: Path) -> None:
    decide_alike(folder=tmp_path)
    assert min(COUNTS.values()) > 20, COUNTS


def test_field_ids_match_columns_alike(tmp_path: Path) -> None:
    def numbered(name: str, number: int) -> pa.Field:
        return pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})

    def write(name: str, fields: list[pa.Field]) -> Path:
        columns = [pa.array([number], pa.int64()) for number in range(len(fields))]
        made = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        pq.write_table(made, tmp_path / name)
        return tmp_path / name

    a = write("a.parquet", [numbered("a", 1), numbered("b", 2)])
    b = write("b.parquet", [numbered("b", 1), numbered("c", 2)])
    expected = [{"a": 0, "b": 1}, {"a": 0, "b": 1}]
    plait.merge([a, b], tmp_path / "o.parquet", sort_by=[])
    assert pq.ParquetFile(tmp_path / "o.parquet").read().to_pylist() == expected
    assert pa.table(plait.scan([a, b])).to_pylist() == expected
    c = write("c.parquet", [numbered("a", 3)])
    for read in (
        lambda: plait.scan([a, c]),
        lambda: plait.merge([a, c], tmp_path / "x", sort_by=[]),
    ):
        with pytest.raises(plait.SchemaConflict, match="`a` has different field ids"):
            read()
