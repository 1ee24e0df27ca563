"""Random layers, and an overlay that can be checked by eye: one row at a time, in Python values."""

import random
import string

import pyarrow as pa

LEAVES = {
    "int64": lambda r: (pa.int64(), lambda: r.randrange(100)),
    "float64": lambda r: (pa.float64(), lambda: r.randrange(100) / 4),
    "bool": lambda r: (pa.bool_(), lambda: r.random() < 0.5),
    "string": lambda r: (pa.string(), lambda: "s" * r.randrange(4)),
    "decimal": lambda r: (pa.decimal128(9, 2), lambda: r.randrange(100)),
    "list": lambda r: (pa.list_(pa.int64()), lambda: [r.randrange(9)] * r.randrange(3)),
    "structs": lambda r: (
        pa.list_(pa.struct([("i", pa.int64())])),
        lambda: [{"i": r.randrange(9)}] * r.randrange(3),
    ),
    "map": lambda r: (pa.map_(pa.string(), pa.int64()), lambda: [("k", r.randrange(9))]),
    "binary": lambda r: (pa.binary(3), lambda: bytes([r.randrange(256)] * 3)),
    "dictionary": lambda r: (pa.dictionary(pa.int32(), pa.string()), lambda: f"v{r.randrange(3)}"),
    # What follows is not in Parquet files, or not read back as it was written.
    "view": lambda r: (pa.string_view(), lambda: "view" * r.randrange(6)),
    "fixed": lambda r: (pa.list_(pa.int64(), 2), lambda: [r.randrange(9)] * 2),
    "large": lambda r: (pa.large_list(pa.int64()), lambda: [r.randrange(9)] * r.randrange(3)),
    "empty": lambda r: (pa.struct([]), dict),
    "null": lambda r: (pa.null(), lambda: None),
    "runs": lambda r: (pa.run_end_encoded(pa.int32(), pa.int64()), lambda: r.randrange(2)),
    "sparse": lambda r: (union("sparse"), lambda: r.randrange(9)),
    "dense": lambda r: (union("dense"), lambda: r.randrange(9)),
}
IN_FILES = list(LEAVES)[:10]


def union(mode):
    fields = [pa.field("i", pa.int64()), pa.field("s", pa.string())]
    return pa.union(fields, mode)


class Field:
    """A node of a schema: a struct if it has fields, else a leaf."""

    def __init__(self, name, kind=None, fields=None, nullable=True, metadata=None):
        self.name, self.kind, self.fields = name, kind, fields
        self.nullable, self.metadata = nullable, metadata

    def array(self, r, rows):
        """Random values; those under a null struct are there, but hidden."""
        nulls = [self.nullable and r.random() < 0.3 for _ in range(rows)]
        if self.fields is not None:
            arrays = [field.array(r, rows) for field in self.fields]
            fields = [field.arrow(array.type) for field, array in zip(self.fields, arrays)]
            return pa.StructArray.from_arrays(
                arrays, fields=fields, mask=pa.array(nulls, pa.bool_())
            )
        typ, make = LEAVES[self.kind](r)
        values = [None if null else make() for null in nulls]
        if self.kind == "runs":
            return pa.array(values, pa.int64()).dictionary_encode() and runs(values)
        if self.kind in ("sparse", "dense"):
            return made_union(self.kind, values)
        if self.kind == "empty":
            return pa.array(values, typ)
        return pa.array(values, typ)

    def arrow(self, typ):
        return pa.field(self.name, typ, self.nullable, self.metadata)


def runs(values):
    ends = list(range(1, len(values) + 1))
    return pa.RunEndEncodedArray.from_arrays(
        pa.array(ends, pa.int32()), pa.array(values, pa.int64())
    )


def made_union(mode, values):
    kinds = [0 if value is None or value % 2 else 1 for value in values]
    ints = pa.array(values, pa.int64())
    texts = pa.array([None if value is None else f"t{value}" for value in values], pa.string())
    types = pa.array(kinds, pa.int8())
    if mode == "sparse":
        return pa.UnionArray.from_sparse(types, [ints, texts], ["i", "s"])
    offsets = pa.array(range(len(values)), pa.int32())
    return pa.UnionArray.from_dense(types, offsets, [ints, texts], ["i", "s"])


def random_schema(r, kinds, depth=4, width=4):
    """Columns: structs down to `depth`, and leaves."""

    def node(name, depth):
        metadata = {"m": name} if r.random() < 0.2 else None
        if depth > 1 and r.random() < 0.5:
            names = r.sample(string.ascii_lowercase[:6], r.randrange(1, 4))
            fields = [node(name, depth - 1) for name in names]
            return Field(name, None, fields, r.random() < 0.75, metadata)
        kind = r.choice(kinds)
        may_lack = kind not in ("null", "runs", "sparse", "dense")
        return Field(name, kind, None, not may_lack or r.random() < 0.75, metadata)

    return [
        node(name, depth) for name in r.sample(string.ascii_lowercase[:8], r.randrange(1, width))
    ]


def variant(r, fields, kinds):
    """Some of the fields, in another order, some leaves of another type."""
    kept = [field for field in fields if r.random() < 0.8] or fields[:1]
    r.shuffle(kept)
    made = []
    for field in kept:
        if field.fields is not None:
            below = variant(r, field.fields, kinds)
            made.append(Field(field.name, None, below, field.nullable, field.metadata))
        else:
            kind = r.choice(kinds) if r.random() < 0.3 else field.kind
            free = kind in ("null", "runs", "sparse", "dense")
            made.append(Field(field.name, kind, None, free or field.nullable, field.metadata))
    return made


def table(r, fields, rows, index):
    """A table of random values, a slice of a longer one."""
    before, after = r.randrange(3), r.randrange(3)
    arrays = [field.array(r, before + rows + after).slice(before, rows) for field in fields]
    schema = [pa.field("_index", pa.int64())]
    schema += [field.arrow(array.type) for field, array in zip(fields, arrays)]
    return pa.Table.from_arrays([pa.array(index, pa.int64()), *arrays], schema=pa.schema(schema))


def paths_of(fields, above=()):
    """All paths, of structs and of leaves."""
    for field in fields:
        path = (*above, field.name)
        yield path
        if field.fields is not None:
            yield from paths_of(field.fields, path)


def leaf_paths(fields, above=()):
    for field in fields:
        path = (*above, field.name)
        if field.fields is not None:
            yield from leaf_paths(field.fields, path)
        else:
            yield path


def chunked(r, table):
    """The same rows in batches of random sizes, some of them empty."""
    cuts = sorted(r.randrange(table.num_rows + 1) for _ in range(r.randrange(5)))
    batches = []
    for start, end in zip([0, *cuts], [*cuts, table.num_rows]):
        part = table.slice(start, end - start).combine_chunks()
        batches += part.to_batches() or [empty(part)]
    return batches


def empty(part):
    arrays = [
        column.chunk(0) if column.num_chunks else empty_array(column.type)
        for column in part.columns
    ]
    return pa.RecordBatch.from_arrays([array.slice(0, 0) for array in arrays], schema=part.schema)


def empty_array(typ):
    return pa.array([], typ) if not pa.types.is_union(typ) else made_union(typ.mode, [])


def value(row, path):
    """The value at a path of a row; null below a null."""
    for name in path:
        row = None if row is None else row[name]
    return row


def overlaid(layers):
    """Rows of the overlay of `(rows, paths)`, weakest first: the definition, read out row by row."""
    declared = [(layer, tuple(path)) for layer, (_, paths) in enumerate(layers) for path in paths]

    def supplier(path):
        owners = [layer for layer, own in declared if path[: len(own)] == own]
        return max(owners, default=None)

    def is_split(path):
        below = {supplier(own) for _, own in declared if own[: len(path)] == path and own != path}
        return supplier(path) is None or bool(below - {supplier(path)})

    def fields_below(path, stored):
        names = set(stored.get((supplier(path), path), ()))
        below = (own for _, own in declared if own[: len(path)] == path and own != path)
        return names | {own[len(path)] for own in below if keeps(own[: len(path) + 1], stored)}

    def keeps(path, stored):
        """Whether somebody supplies something at a path that its struct's owner does not store."""
        owner = supplier(path[:-1])
        if supplier(path) != owner:
            return True
        stored_names = stored.get((owner, path[:-1]), ())
        return path[-1] in stored_names or is_split(path)

    def suppliers(path, stored):
        if not is_split(path):
            return {supplier(path)}
        below = fields_below(path, stored)
        return set().union(*(suppliers((*path, name), stored) for name in below))

    def made(path, at, stored):
        if not is_split(path):
            return value(layers[supplier(path)][0][at], path)
        there = [value(layers[layer][0][at], path) is not None for layer in suppliers(path, stored)]
        if not any(there):
            return None
        return {name: made((*path, name), at, stored) for name in fields_below(path, stored)}

    def rows(stored):
        roots = {path[:1] for _, path in declared}
        count = len(layers[0][0])
        return [{path[0]: made(path, at, stored) for path in roots} for at in range(count)]

    return rows


def stored_names(tables):
    """Names in each struct of each layer, by layer and path."""
    stored = {}
    for layer, table in enumerate(tables):

        def visit(typ, path, layer=layer):
            if pa.types.is_struct(typ):
                stored[layer, path] = [field.name for field in typ]
                for field in typ:
                    visit(field.type, (*path, field.name))

        for field in table.schema:
            visit(field.type, (field.name,))
    return stored


def random_layers(seed, kinds=tuple(LEAVES), rows=None):
    """Tables and paths of a few layers, weakest first."""
    r = random.Random(seed)
    rows = r.choice([0, 1, 7, 63, 64, 65, 130]) if rows is None else rows
    index = sorted(r.randrange(1000) for _ in range(rows))
    master = random_schema(r, list(kinds))
    tables, paths = [], []
    for _ in range(r.randrange(1, 4)):
        fields = variant(r, master, list(kinds))
        tables.append(table(r, fields, rows, index))
        all_paths = list(paths_of(fields))
        paths.append(r.sample(all_paths, r.randrange(1, min(4, len(all_paths)) + 1)))
    return r, tables, paths
