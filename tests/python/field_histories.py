"""Tables whose columns are renamed, swapped, dropped and added again, and PyIceberg's read of them.

A table is a tree of columns with Iceberg's field ids. Between two files it changes. What is expected
of any read of all files is what PyIceberg reads of them with the last schema.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as it
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

LEAVES = {"long": it.LongType(), "text": it.StringType(), "double": it.DoubleType()}
NAMES = ["a", "b", "c", "d", "e"]


@dataclass
class Column:
    """A column or member: its id stays, its name does not."""

    id: int
    name: str
    kind: str
    members: list[Column] = field(default_factory=list)
    # Ids of the element, or of key and value.
    inner: tuple[int, ...] = ()


class Table:
    """A table and its files."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.last_id = 0
        self.files: list[Path] = []
        self.schemas: list[list[tuple[str, ...]]] = []
        self.key = Column(self.next_id(), "k", "long")
        self.columns = [self.key]
        for name in NAMES[: rng.randint(2, 4)]:
            self.columns.append(self.column(name))

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def column(self, name: str, depth: int = 0) -> Column:
        kinds = [*LEAVES, *LEAVES]
        if depth == 0:
            kinds += ["struct", "list of structs", "map of structs", "list"]
        elif depth == 1:
            kinds += ["struct"]
        kind = self.rng.choice(kinds)
        made = Column(self.next_id(), name, kind)
        if "struct" in kind:
            names = self.rng.sample(["x", "y", "z"], self.rng.randint(1, 3))
            made.members = [self.column(member, depth + 1) for member in names]
        made.inner = tuple(self.next_id() for _ in range(2 if "map" in kind else 1))
        return made

    # What happens between two files ----------------------------------------------------------

    def evolve(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            self.rng.choice([self.rename, self.rename, self.swap, self.drop, self.add, self.move])()

    def levels(self) -> list[list[Column]]:
        found = [self.columns]
        for level in found:
            found += [column.members for column in level if column.members]
        return found

    def free_name(self, level: list[Column]) -> str:
        taken = {column.name for column in level}
        names = NAMES + ["f", "g"] if level is self.columns else ["x", "y", "z", "w", "v"]
        return self.rng.choice([name for name in [*names, "old", "new"] if name not in taken])

    def rename(self) -> None:
        level = self.rng.choice(self.levels())
        self.rng.choice(level).name = self.free_name(level)

    def swap(self) -> None:
        level = self.rng.choice(self.levels())
        if len(level) > 1:
            one, other = self.rng.sample(level, 2)
            one.name, other.name = other.name, one.name

    def drop(self) -> None:
        level = self.rng.choice(self.levels())
        left = [column for column in level if column is not self.key]
        if len(level) > 1 and left:
            level.remove(self.rng.choice(left))

    def add(self) -> None:
        level = self.rng.choice(self.levels())
        depth = 0 if level is self.columns else 2
        level.append(self.column(self.free_name(level), depth))

    def move(self) -> None:
        self.rng.shuffle(self.rng.choice(self.levels()))

    # Schemas and files -----------------------------------------------------------------------

    def schema(self) -> Schema:
        return Schema(*(self.iceberg(column) for column in self.columns))

    def iceberg(self, column: Column) -> it.NestedField:
        struct = it.StructType(*map(self.iceberg, column.members))
        made = {
            "struct": lambda: struct,
            "list": lambda: it.ListType(column.inner[0], it.LongType(), element_required=False),
            "list of structs": lambda: it.ListType(column.inner[0], struct, element_required=False),
            "map of structs": lambda: it.MapType(
                column.inner[0], it.StringType(), column.inner[1], struct, value_required=False
            ),
        }.get(column.kind, lambda: LEAVES[column.kind])
        return it.NestedField(column.id, column.name, made(), required=False)

    def value(self, column: Column) -> object:
        rng = self.rng
        # PyIceberg reads null lists and maps of structs as empty ones, so there are none.
        if rng.random() < 0.15 and column.kind not in ("list of structs", "map of structs"):
            return None

        def struct() -> dict:
            return {member.name: self.value(member) for member in column.members}

        made = {
            "long": lambda: rng.randint(-1000, 1000),
            "text": lambda: rng.choice(["p", "q", "r"]) * rng.randint(1, 4),
            "double": lambda: rng.randint(-100, 100) / 4,
            "struct": struct,
            "list": lambda: [rng.randint(0, 9) for _ in range(rng.randint(0, 3))],
            "list of structs": lambda: [struct() for _ in range(rng.randint(0, 3))],
            "map of structs": lambda: [(f"m{i}", struct()) for i in range(rng.randint(0, 3))],
        }
        return made[column.kind]()

    def write(self, keys: list[int]) -> None:
        """One more file, sorted by the key."""
        schema = arrow(self.schema())
        rows = {column.name: [self.value(column) for _ in keys] for column in self.columns}
        rows[self.key.name] = sorted(keys)
        arrays = [pa.array(rows[f.name], f.type) for f in schema]
        # Names of data files say nothing of their age.
        path = self.folder / f"{self.rng.randrange(1 << 32):08x}-{len(self.files)}.parquet"
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
        self.files.append(path)
        self.schemas.append(
            [(*prefix, c.id, c.name) for level, prefix in self.paths() for c in level]
        )

    def paths(self) -> list[tuple[list[Column], tuple[int, ...]]]:
        """Every level, with the ids above it."""
        found: list[tuple[list[Column], tuple[int, ...]]] = [(self.columns, ())]
        for level, prefix in found:
            found += [(c.members, (*prefix, c.id)) for c in level if c.members]
        return found

    def is_plain(self, column: Column, prefix: tuple[int, ...] = ()) -> bool:
        """Whether the column's name never was another column's, nor was it called otherwise by others."""
        here = [entry for entries in self.schemas for entry in entries if entry[:-2] == prefix]
        return all(entry[-2] == column.id for entry in here if entry[-1] == column.name)

    def are_plain(self) -> bool:
        """Whether no name was two columns, at any level, in any file."""
        ids: dict[tuple, set[int]] = {}
        for entries in self.schemas:
            for *prefix, number, name in entries:
                ids.setdefault((*prefix, name), set()).add(number)
        return all(len(found) == 1 for found in ids.values())


def history(rng: random.Random, folder: Path) -> Table:
    """A table of several files between which it changes."""
    table = Table(rng, folder)
    keys = rng.sample(range(200), 60)
    for part in range(rng.randint(2, 4)):
        if part:
            table.evolve()
        table.write(keys[part * 10 : part * 10 + rng.randint(1, 10)])
    return table


def arrow(schema: Schema) -> pa.Schema:
    """The schema with ids, in the types that PyArrow writes."""
    return schema_to_pyarrow(schema)


def read(files: list[Path], table_schema: Schema, columns: list[str] | None = None) -> pa.Table:
    """PyIceberg's own read of files."""
    metadata = TableMetadataV2(
        location="file:///nowhere",
        last_column_id=table_schema.highest_field_id,
        schemas=[table_schema],
        current_schema_id=table_schema.schema_id,
        partition_specs=[PartitionSpec()],
        default_spec_id=0,
        sort_orders=[UNSORTED_SORT_ORDER],
        default_sort_order_id=0,
    )
    projected = table_schema if columns is None else table_schema.select(*columns)
    tasks = []
    for path in files:
        made = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition={},
            record_count=pq.read_metadata(path).num_rows,
            file_size_in_bytes=path.stat().st_size,
        )
        made._spec_id = 0
        tasks.append(FileScanTask(made))
    scan = ArrowScan(metadata, PyArrowFileIO(), projected, AlwaysTrue())
    return scan.to_table(tasks)


def rows(table: pa.Table) -> list[dict]:
    """Rows as plain values.

    A struct of which a file has no member that is asked for is a struct of nulls in Plait and Spark,
    and null in PyIceberg, which does not read the struct then: both are null here.
    """
    return [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]


def plain(value: object) -> object:
    if isinstance(value, dict):
        members = {name: plain(member) for name, member in sorted(value.items())}
        return None if all(member is None for member in members.values()) else members
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
