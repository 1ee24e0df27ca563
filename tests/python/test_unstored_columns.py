"""Tables of others whose log or metadata says what files do not, or say otherwise."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait._logs.columns import location_of
from plait.table import compact_delta

pytest.importorskip("pyiceberg")


# -- Iceberg: files of Hive ------------------------------------------------------------------------

VALUES = {
    "long": [7, 8],
    "string": ["a", "b"],
    "date": [dt.date(2024, 5, 1), dt.date(2024, 5, 2)],
    "timestamp": [dt.datetime(2024, 5, 1, 3), dt.datetime(2024, 5, 2, 3, 0, 0, 7)],
    "timestamptz": [dt.datetime(2024, 5, day, 3, tzinfo=dt.UTC) for day in (1, 2)],
    "decimal": [Decimal("1.50"), Decimal("-2.25")],
    "boolean": [False, True],
    "double": [0.5, 1.5],
}


def hive_table(folder, kind, *, keeps=0):
    """A table of two partitions; its files, but for the first `keeps`, do not store the column."""
    from pyiceberg import types
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform

    kinds = {
        "long": types.LongType(),
        "string": types.StringType(),
        "date": types.DateType(),
        "timestamp": types.TimestampType(),
        "timestamptz": types.TimestamptzType(),
        "decimal": types.DecimalType(9, 2),
        "boolean": types.BooleanType(),
        "double": types.DoubleType(),
    }
    fields = [types.NestedField(1, "k", types.LongType()), types.NestedField(2, "p", kinds[kind])]
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", Schema(*fields), partition_spec=spec)
    schema = table.schema().as_arrow()
    for k, value in enumerate(VALUES[kind]):
        added = [{"k": k, "p": value}, {"k": k + 5, "p": value}]
        table.append(pa.Table.from_pylist(added, schema))
    table = catalog.load_table("db.t")
    files = sorted(table.inspect.files()["file_path"].to_pylist())
    for path in files[keeps:]:
        where = path.removeprefix("file://")
        pq.write_table(pq.read_table(where, partitioning=None).select(["k"]), where)
    hint(table)
    return table, table.location().removeprefix("file://")


def hint(table):
    newest = Path(table.metadata_location.removeprefix("file://"))
    name = newest.name.removesuffix(".metadata.json")
    (newest.parent / "version-hint.text").write_text(name)


def rows(table):
    return sorted(pa.table(table).to_pylist(), key=lambda row: row["k"])


@pytest.mark.parametrize("kind", VALUES)
def test_columns_that_files_of_hive_lack_have_the_values_of_partitions(kind, tmp_path):
    table, where = hive_table(tmp_path, kind)
    values = VALUES[kind]
    expected = [{"k": k, "p": values[k % 5]} for k in (0, 1, 5, 6)]
    assert rows(table.scan().to_arrow()) == expected
    assert rows(plait.read(where, sort_by="k")) == expected
    assert rows(plait.scan(where)) == expected
    assert rows(plait.read(where, sort_by="k", columns=["p", "k"], where="k > 4")) == expected[2:]
    if kind == "long":
        assert rows(plait.read(where, sort_by="k", where="p = 8")) == expected[1::2]
    # An output has no partitions.
    with pytest.raises(plait.Unsupported, match="columns that its files do not have: `p`"):
        plait.merge(where, tmp_path / "o.parquet", sort_by="k")


def test_a_table_of_files_with_and_without_the_column_is_refused(tmp_path):
    _, where = hive_table(tmp_path, "long", keeps=1)
    for call in (plait.scan, lambda path: plait.read(path, sort_by="k")):
        with pytest.raises(plait.Unsupported, match="store the partition column `p`, and others"):
            call(where)


def test_partition_columns_that_files_store_are_columns_of_files(tmp_path):
    _, where = hive_table(tmp_path, "long", keeps=2)
    read = plait.read(where, sort_by="k")
    # Rows of all partitions are in one order.
    assert pa.table(read)["k"].to_pylist() == [0, 1, 5, 6]


def test_metadata_of_iceberg_that_is_elsewhere_is_an_error_of_plait(tmp_path):
    table, where = hive_table(tmp_path, "long", keeps=2)
    for manifest in Path(where, "metadata").glob("snap-*.avro"):
        manifest.unlink()
    for call in (plait.scan, lambda path: plait.read(path, sort_by="k")):
        with pytest.raises(plait.SourceNotFound, match="lacks a file of its metadata") as caught:
            call(where)
        assert caught.value.path == where and caught.value.hint
    with pytest.raises(plait.SourceNotFound, match="lacks a file of its metadata"):
        plait.table.compact_iceberg(table.catalog, "db.t", sort_by="k")


@pytest.mark.parametrize("keeps", [0, 2])
def test_files_that_are_damaged_or_gone_are_errors_of_plait(tmp_path, keeps):
    table, where = hive_table(tmp_path, "long", keeps=keeps)
    path = Path(min(table.inspect.files()["file_path"].to_pylist()).removeprefix("file://"))
    path.write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(plait.PlaitError):
        rows(plait.read(where, sort_by="k"))
    path.unlink()
    with pytest.raises(plait.PlaitError):
        rows(plait.read(where, sort_by="k"))


def test_compressed_metadata_of_iceberg_is_read(tmp_path):
    table, where = hive_table(tmp_path, "long", keeps=2)
    newest = Path(table.metadata_location.removeprefix("file://"))
    (newest.parent / "v9.gz.metadata.json").write_bytes(gzip.compress(newest.read_bytes()))
    (newest.parent / "version-hint.text").write_text("9")
    assert len(rows(plait.scan(where))) == 4


# -- Delta -----------------------------------------------------------------------------------------


def delta_table(folder, files, fields, partitions=(), before=()):
    """A table with a log by hand."""
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": dict(metadata)}
            for name, kind, *metadata in fields
        ],
    }
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(partitions),
        "configuration": {},
    }
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for at, (table, values) in enumerate(files):
        path = folder / f"{at}.parquet"
        pq.write_table(pa.table(table), path)
        actions.append(
            {
                "add": {
                    "path": path.name,
                    "partitionValues": values,
                    "size": path.stat().st_size,
                    "modificationTime": 1,
                    "dataChange": True,
                }
            }
        )
    for version, commit in enumerate([*before, actions]):
        text = "\n".join(map(json.dumps, commit))
        (log / f"{version:020}.json").write_text(text)
    return str(folder)


def by_delta_rs(uri):
    read = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri))
    return rows(pa.table(read.execute("select * from t")))


def test_values_of_the_log_count_where_files_store_partition_columns(tmp_path):
    files = [({"k": [1, 4], "p": [5, 5]}, {"p": "7"}), ({"k": [2, 3], "p": [6, 6]}, {"p": "8"})]
    uri = delta_table(tmp_path / "t", files, [("k", "long"), ("p", "long")], ["p"])
    expected = [{"k": 1, "p": 7}, {"k": 2, "p": 8}, {"k": 3, "p": 8}, {"k": 4, "p": 7}]
    assert by_delta_rs(uri) == expected
    assert rows(plait.read(uri, sort_by="k")) == rows(plait.scan(uri)) == expected
    assert rows(plait.read(uri, sort_by="k", where="p = 8")) == expected[1:3]
    assert rows(plait.read(uri, sort_by="k", where="p = 5")) == []
    assert compact_delta(uri, sort_by="k", policy="full").groups == ()
    deltalake.write_deltalake(uri, pa.table({"k": [0], "p": [7]}), mode="append")
    assert compact_delta(uri, sort_by="k", policy="full").groups
    expected = [{"k": 0, "p": 7}, *expected]
    assert by_delta_rs(uri) == rows(plait.scan(uri)) == expected


def both(uri, **options):
    """The same rows and columns by a read and a scan, and those of delta-rs."""
    read, scanned = pa.table(plait.read(uri, sort_by="k", **options)), pa.table(plait.scan(uri))
    if not options:
        assert read.schema.names == scanned.schema.names
        assert rows(read) == rows(scanned) == by_delta_rs(uri)
    return read


def test_columns_that_only_files_have_are_not_of_the_table(tmp_path):
    files = [
        ({"_change_type": ["insert", "delete"], "k": [1, 3], "v": [5, 6]}, {}),
        ({"k": [2], "v": [7], "_extra": [True]}, {}),
    ]
    uri = delta_table(tmp_path / "t", files, [("k", "long"), ("v", "long")])
    assert both(uri).schema.names == ["k", "v"]
    assert both(uri, columns=["v", "*"]).schema.names == ["v", "k"]
    for options in ({"columns": ["_extra"]}, {"where": "_change_type = 'insert'"}):
        with pytest.raises(plait.UnknownColumn):
            pa.table(plait.read(uri, sort_by="k", **options))
    with pytest.raises(plait.UnknownColumn):
        plait.scan(uri, columns=["_extra"])
    # Named, a file is that file.
    file = next((tmp_path / "t").glob("*.parquet"))
    assert len(plait.scan(file).schema) == 3


def test_columns_that_no_file_has_are_null(tmp_path):
    nested = {"type": "array", "elementType": "long", "containsNull": True}
    columns = [("new", "timestamp"), ("k", "long"), ("list", nested), ("none", "void")]
    files = [({"k": [1, 3]}, {}), ({"k": [2]}, {})]
    uri = delta_table(tmp_path / "t", files, columns)
    found = pa.table(plait.read(uri, sort_by="k"))
    utc, longs = pa.timestamp("us", "UTC"), pa.list_(pa.field("element", pa.int64()))
    assert found.schema.names == ["new", "k", "list", "none"]
    assert found.schema.types == [utc, pa.int64(), longs, pa.null()]
    assert pa.table(plait.scan(uri)).schema.types == found.schema.types
    empty = {"new": None, "list": None, "none": None}
    assert rows(found) == [{**empty, "k": k} for k in (1, 2, 3)]
    assert rows(plait.read(uri, sort_by="k", where="new IS NULL")) == rows(found)
    assert rows(plait.read(uri, sort_by="k", where="new >= '2024-01-01'")) == []
    newest = plait.read(uri, sort_by="k", columns=["new"], limit=1)
    assert pa.table(newest).to_pylist() == [{"new": None}]


def test_columns_come_in_the_order_of_the_table(tmp_path):
    files = [({"b": [1], "K": [1]}, {"p": "x"}), ({"K": [2], "a": [3]}, {"p": "y"})]
    columns = [("p", "string"), ("k", "long"), ("a", "long"), ("b", "long")]
    uri = delta_table(tmp_path / "t", files, columns, ["p"])
    # Names of files may differ from those of the log by case.
    found = pa.table(plait.read(uri, sort_by="K"))
    assert found.schema.names == pa.table(plait.scan(uri)).schema.names == ["K", "a", "b", "p"]
    assert [row["a"] for row in found.to_pylist()] == [None, 3]


def test_columns_that_are_cast_change_neither_the_columns_nor_their_order(tmp_path):
    was = ("plait.was", "uint8")
    columns = [("new", "string"), ("v", "integer", was), ("k", "long")]
    files = [({"k": [1], "v": [5], "_extra": [0]}, {})]
    uri = delta_table(tmp_path / "t", files, columns)
    found = pa.table(plait.read(uri, sort_by="k"))
    assert found.schema.names == ["new", "v", "k"]
    assert found.schema.field("v").type == pa.int32()
    assert found.to_pylist() == [{"new": None, "v": 5, "k": 1}]


def test_columns_of_several_tables_and_of_other_sources_count(tmp_path):
    one = delta_table(tmp_path / "a", [({"k": [1], "x": [1]}, {})], [("k", "long"), ("a", "long")])
    two = delta_table(tmp_path / "b", [({"k": [2], "a": [2]}, {})], [("k", "long"), ("c", "long")])
    pq.write_table(pa.table({"k": [3], "x": [3]}), tmp_path / "other.parquet")
    other = str(tmp_path / "other.parquet")
    for call in (lambda paths: plait.read(paths, sort_by="k"), plait.scan):
        assert pa.table(call([one, two])).schema.names == ["k", "a", "c"]
        assert pa.table(call([one, other])).schema.names == ["k", "x"]


def test_a_column_of_another_source_is_not_a_partition_column(tmp_path):
    files = [({"k": [1], "p": [5]}, {"p": "7"})]
    uri = delta_table(tmp_path / "t", files, [("k", "long"), ("p", "long")], ["p"])
    pq.write_table(pa.table({"k": [2], "p": [9]}), tmp_path / "other.parquet")
    for call in (plait.scan, lambda paths: plait.read(paths, sort_by="k")):
        with pytest.raises(plait.InvalidArgument, match="has the name of a column"):
            call([uri, tmp_path / "other.parquet"])


def test_metadata_without_a_schema_counts_for_nothing_once_it_is_replaced(tmp_path):
    bare = {"metaData": {"id": "t", "format": {"provider": "parquet"}, "partitionColumns": []}}
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, bare]
    uri = delta_table(tmp_path / "t", [({"k": [1]}, {})], [("k", "long")], before=[first])
    assert rows(plait.scan(uri)) == [{"k": 1}]
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(plait.CorruptSource, match="lacks metadata"):
        plait.scan(uri)


def test_a_location_may_have_one_slash_behind_its_scheme():
    assert location_of("/t", "file:/elsewhere/v.bin") == "/elsewhere/v.bin"
    assert location_of("/t", "file:///elsewhere/v.bin") == "file:///elsewhere/v.bin"
    assert location_of("/t", "v.bin") == "/t/v.bin"
