"""Iceberg tables that gave a name to another column: files are merged, or it is said why not.

What Spark does to such tables is in `iceberg_evolved_cases`; here PyIceberg changes them.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

import plait
from plait.table import compact_iceberg

from .conftest import load

pytest.importorskip("pyiceberg")
deletes = load("iceberg_deletes")
pytestmark = [
    pytest.mark.local,
    # PyIceberg does not close its connections.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NAME = "db.events"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("part", pa.int64())])


@pytest.fixture
def table(catalog):
    """Two files whose keys overlap, of which one has deleted rows; ordered by `k`."""
    from pyiceberg.transforms import IdentityTransform

    made = catalog.create_table(NAME, SCHEMA)
    with made.update_sort_order() as order:
        order.asc("k", IdentityTransform())
    append(made, k=[1, 3, 5, 7], v=["a", "b", "c", "d"], part=[0, 1, 1, 0])
    append(made, k=[2, 4, 6], v=["e", "f", "g"], part=[1, 0, 1])
    deletes.delete_rows(made, {min(deletes.data_files(made)): [0]})
    return made


def append(table, **columns):
    """One file; columns are those of the table."""
    schema = table.schema().as_arrow()
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    table.append(pa.Table.from_arrays(arrays, schema=schema))


def rows(table):
    found = table.refresh().scan().to_arrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=str)


def compacted(table, **how):
    """Compacts a table, which has the same rows afterwards; the report."""
    before = rows(table)
    report = compact_iceberg(table.catalog, NAME, policy="full", verify="content", yes=True, **how)
    assert rows(table) == before
    assert not compact_iceberg(table.catalog, NAME, policy="full", yes=True, **how).groups
    return report


def stored(group, column):
    (path,) = group.outputs
    return pq.ParquetFile(path).read()[column].to_pylist()


def test_a_column_that_was_dropped_and_added_with_another_type(table):
    with table.update_schema() as update:
        update.delete_column("v")
    with table.update_schema() as update:
        update.add_column("v", LongType())
    append(table, k=[1, 8], part=[0, 1], v=[10, 20])
    append(table, k=[2, 9], part=[0, 1], v=[30, 40])
    report = compacted(table)
    assert sorted(group.rows for group in report.groups) == [4, 6] and not report.skipped
    assert deletes.delete_entries(table) == []


@pytest.mark.parametrize("sort_by", [None, "part", ["part", "v"]])
def test_names_that_were_exchanged_are_each_what_they_were(table, sort_by):
    with table.update_schema() as update:
        update.rename_column("k", "x")
    with table.update_schema() as update:
        update.rename_column("part", "k")
    with table.update_schema() as update:
        update.rename_column("x", "part")
    append(table, part=[1, 8], k=[1, 0], v=["h", "i"])
    append(table, part=[2, 9], k=[1, 0], v=["j", "k"])
    report = compacted(table, sort_by=sort_by)
    old, new = sorted(report.groups, key=lambda group: -group.rows)
    assert not report.skipped and old.sort_by.startswith("k")
    assert stored(old, "k") == sorted(stored(old, "k")) and len(stored(old, "k")) == 6
    assert stored(new, "part") == [1, 2, 8, 9]
    orders = [file["sort_order_id"] for file in table.inspect.files().to_pylist()]
    assert orders == [None if sort_by == ["part", "v"] else table.sort_order().order_id] * 2


def test_files_without_the_key_that_have_its_name_are_left_by_name(catalog, table):
    with table.update_sort_order():
        pass
    with table.update_schema() as update:
        update.delete_column("k")
    with table.update_schema() as update:
        update.add_column("k", StringType())
    append(table, k=["a", "c"], v=["x", "y"], part=[1, 1])
    append(table, k=["b", "d"], v=["x", "y"], part=[1, 1])
    report = compacted(table, sort_by="k")
    assert [stored(group, "k") for group in report.groups] == [["a", "b", "c", "d"]]
    assert len(report.skipped) == 2
    assert all("another column in the file" in skipped.why for skipped in report.skipped)


def test_a_curve_over_other_names_is_not_guessed(table):
    with table.update_schema() as update:
        update.rename_column("k", "x")
    with table.update_schema() as update:
        update.rename_column("part", "k")
    report = compacted(table, sort_by="zorder(x, k)", unsorted="sort")
    assert not report.groups and all("of a curve" in skipped.why for skipped in report.skipped)


def no_ids(table, **columns):
    """Adds a file without field ids."""
    path = deletes.new_path(table, "plain")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    table.add_files([f"file://{path}"])


def test_files_without_ids_are_merged_with_those_of_their_names(catalog):
    table = catalog.create_table(NAME, SCHEMA)
    no_ids(table, k=[1, 4], v=["a", "b"], part=[0, 1])
    no_ids(table, k=[2, 5], v=["c", "d"], part=[0, 1])
    with table.update_schema() as update:
        update.rename_column("k", "key")
    append(table, key=[3, 6], v=["e", "f"], part=[0, 1])
    append(table, key=[0, 7], v=["g", "h"], part=[0, 1])
    no_ids(table, key=[1, 9], v=["i", "j"], part=[0, 1])
    no_ids(table, key=[2, 8], v=["k", "l"], part=[0, 1])
    report = compacted(table, sort_by="key")
    assert [group.rows for group in report.groups] == [4, 4, 4] and not report.skipped
    # A read cannot keep them apart.
    with pytest.raises(plait.Unsupported, match="maps several names to one column"):
        plait.read(deletes.hinted(table), sort_by="key")


def test_a_file_whose_types_do_not_fit_is_left_by_name(catalog):
    table = catalog.create_table(NAME, SCHEMA)
    for first in range(3):
        append(table, k=[first, first + 5], v=["a", "b"], part=[0, 1])
    file = next(iter(deletes.data_files(table).values()))
    path = deletes.new_path(table, "odd")
    fields = [
        field.with_metadata({"PARQUET:field_id": f"{i + 1}"}) for i, field in enumerate(SCHEMA)
    ]
    odd = [fields[0], fields[1].with_type(pa.bool_()), fields[2]]
    pq.write_table(pa.table([[1], [True], [0]], schema=pa.schema(odd)), path)
    made = deletes.entry(table, path, deletes.DataFileContent.DATA, file, 1)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        update.append_data_file(made)
    report = compact_iceberg(catalog, NAME, sort_by="k", policy="full", yes=True)
    assert [group.rows for group in report.groups] == [6]
    ((left, why),) = [(skipped.path, skipped.why) for skipped in report.skipped]
    assert left == str(path) and "`v`" in why and "in most of the files" in why
