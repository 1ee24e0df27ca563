"""The laws of the overlay, on random layers: nested to depth 4, hidden values, slices, any chunking."""

import importlib.util
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import Layer

_SPEC = importlib.util.spec_from_file_location(
    "overlay_oracle", Path(__file__).parent / "overlay_oracle.py"
)
oracle = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(oracle)

CASES = 2000 if os.environ.get("CI") else 100
# Ten numbered blocks, so that a failure names few cases.
BLOCKS = [range(block * CASES // 10, (block + 1) * CASES // 10) for block in range(10)]
in_blocks = pytest.mark.parametrize("seeds", BLOCKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")


def overlay(r, tables, paths, **options):
    sources = [oracle.chunked(r, table) for table in tables]
    layers = [Layer(source, own) for source, own in zip(sources, paths)]
    batch_rows = r.choice([None, 1, 5, 64, 1000])
    table = pa.table(plait.overlay(layers, batch_rows=batch_rows, **options))
    table.validate(full=True)
    return table


def ordered(value):
    """The same value with fields in alphabetical order."""
    if isinstance(value, dict):
        return {name: ordered(value[name]) for name in sorted(value)}
    return value


def assert_no_null_where_none_may_be(table):
    def visit(field, array, valid):
        own = [ok and good for ok, good in zip(valid, array.is_valid().to_pylist())]
        if not field.nullable:
            assert own == valid, field
        if pa.types.is_struct(field.type):
            for place, below in enumerate(field.type):
                visit(below, array.field(place), own)

    for batch in table.to_batches():
        for field, array in zip(batch.schema, batch.columns):
            visit(field, array, [True] * batch.num_rows)


@pytest.mark.behaviour("overlay-01", "overlay-11")
@in_blocks
def test_overlays_are_what_the_definition_says(seeds):
    for seed in seeds:
        r, tables, paths = oracle.random_layers(seed)
        got = overlay(r, tables, paths)
        rows = [table.to_pylist() for table in tables]
        expected = oracle.overlaid(list(zip(rows, paths)))(oracle.stored_names(tables))
        expected = [{"_index": row["_index"], **e} for row, e in zip(rows[0], expected)]
        assert [ordered(row) for row in got.to_pylist()] == [ordered(row) for row in expected], seed
        assert_no_null_where_none_may_be(got)
        names = [own[0] for layer in paths for own in layer]
        assert got.column_names == ["_index", *dict.fromkeys(names)], seed


@pytest.mark.behaviour("overlay-31")
@in_blocks
def test_cutting_a_layer_elsewhere_changes_nothing(seeds):
    for seed in seeds:
        r, tables, paths = oracle.random_layers(seed)
        one, other = overlay(r, tables, paths), overlay(r, tables, paths)
        assert one.schema.equals(other.schema, check_metadata=True), seed
        assert one.to_pylist() == other.to_pylist(), seed


@pytest.mark.behaviour("overlay-09")
@in_blocks
def test_a_layer_that_supplies_nothing_changes_nothing(seeds):
    for seed in seeds:
        r, tables, paths = oracle.random_layers(seed)
        without = overlay(r, tables, paths)
        place = r.randrange(len(tables) + 1)
        more = [*tables[:place], r.choice(tables), *tables[place:]]
        with_it = overlay(
            r, more, [*paths[:place], [], *paths[place:]], check_unused=r.random() < 0.5
        )
        assert with_it.schema.equals(without.schema, check_metadata=True), seed
        assert with_it.to_pylist() == without.to_pylist(), seed


def all_nullable(field):
    typ = field.type
    if pa.types.is_struct(typ):
        typ = pa.struct([all_nullable(below) for below in typ])
    return pa.field(field.name, typ, True, field.metadata)


@pytest.mark.behaviour("overlay-12")
@in_blocks
def test_a_file_split_by_leaves_comes_back(seeds):
    for seed in seeds:
        r = random.Random(seed)
        rows = r.choice([0, 1, 64, 130])
        fields = oracle.random_schema(r, list(oracle.LEAVES))
        table = oracle.table(r, fields, rows, range(rows)).replace_schema_metadata({"k": "v"})
        leaves = list(oracle.leaf_paths(fields))
        cuts = sorted(r.randrange(len(leaves) + 1) for _ in range(r.randrange(3)))
        parts = [leaves[a:b] for a, b in zip([0, *cuts], [*cuts, len(leaves)])]
        got = overlay(r, [table] * len(parts), parts)
        schema = pa.schema([all_nullable(field) for field in table.schema], table.schema.metadata)
        found = pa.schema([all_nullable(field) for field in got.schema], got.schema.metadata)
        assert found.equals(schema, check_metadata=True), seed
        assert got.to_pylist() == table.to_pylist(), seed


@in_blocks
def test_disjoint_layers_may_change_places(seeds):
    for seed in seeds:
        r = random.Random(seed)
        fields = oracle.random_schema(r, list(oracle.LEAVES))
        table = oracle.table(r, fields, 65, range(65))
        leaves = list(oracle.leaf_paths(fields))
        r.shuffle(leaves)
        cut = r.randrange(len(leaves) + 1)
        parts = [leaves[:cut], leaves[cut:]]
        one, other = overlay(r, [table] * 2, parts), overlay(r, [table] * 2, parts[::-1])
        rows = [[ordered(row) for row in of.to_pylist()] for of in (one, other, table)]
        assert rows[0] == rows[1] == rows[2], seed


def validate(table):
    """Validates, but for a slip of PyArrow: where all structs of a row group are null it makes up
    the hidden indices of a dictionary without values."""
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        if "out of bounds: 0 (should be in [0, -1])" not in str(error):
            raise


@in_blocks
def test_an_overlay_of_files_is_the_overlay_written(seeds, tmp_path):
    for seed in list(seeds)[:: 1 if os.environ.get("CI") else 2]:
        r, tables, paths = oracle.random_layers(seed, oracle.IN_FILES)
        names = []
        for number, table in enumerate(tables):
            names.append(tmp_path / f"{seed}-{number}.parquet")
            pq.write_table(
                table,
                names[-1],
                row_group_size=r.choice([10, 64, 1000]),
                data_page_size=r.choice([16, 1 << 20]),
                write_batch_size=8,
                data_page_version=r.choice(["1.0", "2.0"]),
                compression=r.choice(["none", "snappy", "zstd"]),
                write_page_index=r.random() < 0.5,
            )
        validity = r.choice(["any", "any", "all_children"])
        tables = [pq.read_table(name) for name in names]
        expected = overlay(r, tables, paths, struct_validity=validity)
        pq.write_table(expected, tmp_path / "expected.parquet")
        out = tmp_path / f"{seed}.parquet"
        tiers = r.choice([("chunk", "page", "dict"), ("page",), ()])
        layers = [Layer(name, own) for name, own in zip(names, paths)]
        report = plait.overlay_files(layers, out, struct_validity=validity, copy_tiers=tiers)
        got, written = pq.read_table(out), pq.read_table(tmp_path / "expected.parquet")
        validate(got)
        assert report.rows == got.num_rows == written.num_rows
        assert got.schema.equals(written.schema), (seed, got.schema, written.schema)
        assert got.to_pylist() == written.to_pylist(), seed


def collapsed(value):
    """The same value with structs null where all their fields are; structs without fields stay."""
    if not isinstance(value, dict):
        return value
    below = {name: collapsed(inner) for name, inner in value.items()}
    return None if below and all(inner is None for inner in below.values()) else below


@pytest.mark.behaviour("overlay-22")
@in_blocks
def test_all_children_means_null_where_all_fields_are(seeds):
    for seed in seeds:
        r, tables, paths = oracle.random_layers(seed)
        usual = overlay(r, tables, paths).to_pylist()
        got = overlay(r, tables, paths, struct_validity="all_children")
        expected = [{name: collapsed(value) for name, value in row.items()} for row in usual]
        assert got.to_pylist() == expected, seed
        assert_no_null_where_none_may_be(got)


def field_at(schema, path):
    """The field at a path of a schema, if there is one."""
    field = next((f for f in schema if f.name == path[0]), None)
    for name in path[1:]:
        if field is None or not pa.types.is_struct(field.type):
            return None
        field = next((below for below in field.type if below.name == name), None)
    return field


def first_named(tables, paths, at):
    """Names of the fields of the struct at a path, in the order in which paths first name them."""
    names = []
    for table, own in zip(tables, paths):
        field = field_at(table.schema, at)
        if field is None or not pa.types.is_struct(field.type):
            continue
        stored = [below.name for below in field.type]
        if any(path == at[: len(path)] and path != at for path in own):
            names += stored
        for path in own:
            if path == at:
                names += stored
            elif path[: len(at)] == at and path[len(at)] in stored:
                names.append(path[len(at)])
    return list(dict.fromkeys(names))


def structs(schema):
    """Paths of all structs that are not inside of lists and the like, and the names below them."""

    def visit(field, above):
        if pa.types.is_struct(field.type):
            path = (*above, field.name)
            yield path, [below.name for below in field.type]
            for below in field.type:
                yield from visit(below, path)

    for field in schema:
        yield from visit(field, ())


@pytest.mark.behaviour("overlay-23")
@in_blocks
def test_fields_come_in_the_order_in_which_paths_first_name_them(seeds):
    for seed in seeds:
        r, tables, paths = oracle.random_layers(seed)
        for path, names in structs(overlay(r, tables, paths).schema):
            named = first_named(tables, paths, path)
            assert names == sorted(names, key=named.index), (seed, path)


def shuffled(r, array):
    """The same rows with the fields of all structs in another order."""
    if not pa.types.is_struct(array.type) or not array.type.num_fields:
        return array
    order = r.sample(range(array.type.num_fields), array.type.num_fields)
    below = [shuffled(r, array.field(place)) for place in order]
    fields = [array.type.field(place).with_type(a.type) for place, a in zip(order, below)]
    return pa.StructArray.from_arrays(below, fields=fields, mask=array.is_null())


@in_blocks
def test_a_layer_on_top_moves_no_field(seeds):
    for seed in seeds:
        r, tables, paths = oracle.random_layers(seed)
        base, own = tables[0].combine_chunks(), paths[0]
        alone = overlay(r, [base], [own])
        columns = r.sample(range(base.num_columns), base.num_columns)
        arrays = [
            shuffled(r, base.column(i).chunk(0)) if base.num_rows else base.column(i)
            for i in columns
        ]
        fields = [base.schema.field(i).with_type(a.type) for i, a in zip(columns, arrays)]
        other = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        leaves = [leaf for leaf in every_path(alone.schema) if leaf != ("_index",)]
        over = r.sample(leaves, r.randrange(1, len(leaves) + 1))
        both = overlay(r, [base, other], [own, over])
        names = dict(structs(both.schema))
        for path, before in structs(alone.schema):
            assert [name for name in names[path] if name in before] == before, (seed, own, over)
        assert both.column_names == alone.column_names, seed


def every_path(schema):
    """Paths of all columns and of all fields of structs."""

    def visit(field, above):
        path = (*above, field.name)
        yield path
        if pa.types.is_struct(field.type):
            for below in field.type:
                yield from visit(below, path)

    for field in schema:
        yield from visit(field, ())
