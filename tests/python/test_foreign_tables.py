"""Folders of Delta and Iceberg tables: what the log says counts is read, or the table is refused by name."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytestmark = [pytest.mark.local, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def append(uri, keys, day=None, **options):
    columns = {"k": pa.array(keys, pa.int64()), "v": [f"v{k}" for k in keys]}
    if day is not None:
        columns["day"] = [day] * len(keys)
    partitions = None if day is None else ["day"]
    table = pa.table(columns)
    deltalake.write_deltalake(uri, table, mode="append", partition_by=partitions, **options)


def compacted(uri):
    """The table after a compaction: what was replaced still lies in its folder."""
    from plait.table import compact_delta

    assert compact_delta(uri, sort_by="k", yes=True).groups
    return uri


@pytest.fixture
def table(tmp_path):
    uri = str(tmp_path / "events")
    for part in range(3):
        append(uri, [part, part + 5])
    return compacted(uri)


@pytest.fixture
def days(tmp_path):
    uri = str(tmp_path / "days")
    for day in ("mon", "a b/ü", None):
        for part in range(2):
            columns = {"k": [part, part + 5], "day": pa.array([day] * 2, pa.string())}
            deltalake.write_deltalake(uri, pa.table(columns), mode="append", partition_by=["day"])
    return compacted(uri)


def iceberg(catalog, hint=True):
    """An Iceberg table with dead files; with a hint of its metadata as Hadoop catalogs write it."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    made = catalog.create_table("db.t", schema)
    for part in range(3):
        made.append(pa.table({"k": [part, part + 5], "v": ["a", "b"]}, schema=schema))
    from plait.table import compact_iceberg

    compact_iceberg(catalog, "db.t", sort_by="k", yes=True)
    return hinted(catalog) if hint else folder_of(catalog)


def folder_of(catalog):
    return catalog.load_table("db.t").location().removeprefix("file://")


def hinted(catalog):
    metadata = Path(catalog.load_table("db.t").metadata_location.removeprefix("file://"))
    (metadata.parent / "version-hint.text").write_text(metadata.name.removesuffix(".metadata.json"))
    return folder_of(catalog)


def keys_of(found):
    return sorted(found.column("k").to_pylist())


def merged(source, out):
    plait.merge(source, out, sort_by="k")
    return keys_of(pq.read_table(out))


def streamed(source, _):
    return keys_of(pa.table(plait.merge_streams([source, pa.table({"k": [99]})], sort_by="k")))[:-1]


def planned(source, out):
    plait.plan(source, sort_by="k").execute(out)
    return keys_of(pq.read_table(out))


def scanned(source, _):
    return keys_of(pa.table(plait.scan(source)))


def scanned_with_stream(source, _):
    reader = pa.table({"k": [99]}).to_reader()
    return keys_of(pa.table(plait.scan([source, reader])))[:-1]


def verified(source, _):
    report = plait.verify(source, sort_by="k")
    assert plait.verify(source, sort_by="k", against=source).against.equal
    return [
        row for file in report.files for row in pq.read_table(file.path).column("k").to_pylist()
    ]


def pruned(source, _):
    return keys_of(pq.read_table(plait.prune(source, {"k": 3})))


DOORS = [merged, planned, streamed, scanned, scanned_with_stream, verified, pruned]
ALL = [0, 1, 2, 5, 6, 7]


@pytest.mark.parametrize("door", DOORS)
def test_the_files_that_count_in_a_delta_table_are_read(door, table, tmp_path):
    out = tmp_path / "out.parquet"
    assert len(list(Path(table).glob("*.parquet"))) == 4
    assert door(table, out) == ALL
    out.unlink(missing_ok=True)
    assert door(Path(table).as_uri(), out) == ALL
    out.unlink(missing_ok=True)
    link = tmp_path / "link"
    link.symlink_to(table)
    assert door(str(link), out) == ALL


@pytest.mark.parametrize("door", DOORS)
def test_the_files_that_count_in_an_iceberg_table_are_read(door, catalog, tmp_path):
    folder = iceberg(catalog)
    assert len(list(Path(folder).rglob("*.parquet"))) == 4
    assert door(folder, tmp_path / "out.parquet") == ALL


READERS = [
    lambda source, out: plait.merge(source, out, sort_by="k"),
    lambda source, _: plait.plan(source, sort_by="k"),
    lambda source, _: plait.scan(source),
    lambda source, _: plait.merge_streams([source], sort_by="k"),
    lambda source, _: plait.verify(source, sort_by="k"),
    lambda source, _: plait.verify(__file__ and source, sort_by="k", against=source),
    lambda source, _: plait.prune(source, {"k": 1}),
    lambda source, _: plait.inspect(source),
    lambda source, out: plait.overlay_files([plait.Layer(source), plait.Layer(source)], out),
    lambda source, _: plait.compact(source, sort_by="k"),
]


def refused(read, source, out, match):
    with pytest.raises(plait.Unsupported, match=match) as caught:
        read(source, out)
    assert caught.value.hint and not out.exists()
    return caught.value


@pytest.mark.parametrize("read", READERS)
def test_what_leads_into_a_table_is_refused_by_name(read, table, tmp_path):
    out = tmp_path / "out.parquet"
    parent = tmp_path / "parent"
    shutil.copytree(table, parent / "in" / "it")
    pq.write_table(pa.table({"k": [1]}), parent / "a.parquet")
    error = refused(
        read, str(parent), out, "is a table of Delta: only its log lists the live files"
    )
    assert error.path == str(parent / "in" / "it") and isinstance(error, plait.ForeignTable)
    linked = tmp_path / "linked"
    linked.mkdir()
    dead = next(Path(table).glob("*.parquet"))
    (linked / "x.parquet").symlink_to(dead)
    assert refused(read, str(linked), out, "is a table of Delta").path == table
    if read is READERS[-1]:
        return  # a glob is no folder to compact
    for glob in (
        f"{table}/*.parquet",
        f"{parent}/in/*/*",
        f"{parent}/**/*.parquet",
        f"{parent}/i*",
    ):
        refused(read, glob, out, "is a table of Delta: only its log lists the live files")


@pytest.mark.parametrize("read", READERS)
def test_an_iceberg_table_without_a_hint_is_refused_by_name(read, catalog, tmp_path):
    folder = iceberg(catalog, hint=False)
    for source in (folder, f"{folder}/data"):
        error = refused(read, source, tmp_path / "out.parquet", "table.* of Iceberg|Iceberg table")
        assert error.path == folder


@pytest.mark.parametrize("read", READERS)
def test_a_hudi_table_is_refused_by_name(read, tmp_path):
    (tmp_path / "h" / ".hoodie").mkdir(parents=True)
    pq.write_table(pa.table({"k": [1]}), tmp_path / "h" / "a.parquet")
    refused(read, str(tmp_path / "h"), tmp_path / "out.parquet", "is a table of Hudi")


def without(library, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)


@pytest.mark.parametrize("read", READERS[:7])
def test_an_iceberg_table_is_refused_where_its_library_is_absent(
    read, catalog, tmp_path, monkeypatch
):
    source = iceberg(catalog)
    without("pyiceberg", monkeypatch)
    error = refused(read, source, tmp_path / "out.parquet", "is a table of")
    assert isinstance(error, plait.ForeignTable) and "pip install 'plait[" in error.hint


@pytest.mark.parametrize("read", [*READERS[:7], READERS[9]])
def test_a_delta_table_needs_no_library(read, table, tmp_path, monkeypatch):
    without("deltalake", monkeypatch)
    read(table, tmp_path / "out.parquet")


def test_a_delta_table_is_compacted_by_its_name_and_its_partitions_by_where(days, tmp_path):
    deltalake.write_deltalake(days, pa.table({"k": [9, 10], "day": ["mon"] * 2}), mode="append")
    with pytest.raises(plait.ForeignTable, match="is in a table of Delta") as caught:
        plait.compact(f"{days}/day=mon", sort_by="k")
    assert caught.value.path == days and f"compact `{days}`; `where`" in caught.value.hint
    link = tmp_path / "link"
    link.symlink_to(days)
    dry = plait.compact(link, sort_by="k", policy="full", yes=False)
    assert (dry.format, [group.folder for group in dry.groups]) == ("delta", ["day=mon"])
    report = plait.compact(days, sort_by="k", policy="full", where={"day": "mon"})
    assert report.format == "delta" and report.version == deltalake.DeltaTable(days).version()
    assert [group.rows for group in report.groups] == [6]


def test_the_former_names_of_a_report_warn(tmp_path):
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a.parquet")
    report = plait.compact(tmp_path, sort_by="k")
    for old, new in (("folder", str(tmp_path)), ("manifest", 0)):
        with pytest.warns(DeprecationWarning, match=f"`CompactReport.{old}` is now"):
            assert getattr(report, old) == new


def test_a_file_that_is_named_is_that_file(table, tmp_path):
    old = deltalake.DeltaTable(table, version=1).file_uris()
    assert merged(old, tmp_path / "out.parquet") == [0, 1, 5, 6]
    assert scanned(old, None) == [0, 1, 5, 6]
    assert plait.inspect(old[0]).rows == 2


def test_the_command_line_refuses_files_of_a_table_that_a_shell_names(table, tmp_path, capsys):
    from plait.cli import main

    files = sorted(map(str, Path(table).glob("*.parquet")))
    out = str(tmp_path / "out.parquet")
    for command in (["merge", *files, "--out", out], ["plan", *files], ["scan", *files]):
        order = [] if command[0] == "scan" else ["--sort-by", "k"]
        assert main([*command, *order]) == 3
        said = capsys.readouterr().err
        assert "of a table of Delta" in said and f"hint: name the table, `{table}`" in said
    assert main(["merge", table, "--out", out, "--sort-by", "k"]) == 0
    assert keys_of(pq.read_table(out)) == ALL
    assert main(["inspect", files[0]]) == 0


# -- partitions ------------------------------------------------------------------------------------


def test_scans_have_the_partition_columns_of_the_log(days):
    found = pa.table(plait.scan(days))
    assert found.schema.field("day").type == pa.string()
    expected = deltalake.DeltaTable(days).to_pyarrow_table().select(["k", "day"])

    def rows(table):
        return sorted(map(str, table.select(["k", "day"]).to_pylist()))

    assert rows(found) == rows(expected) and found.num_rows == 12
    assert pa.table(plait.scan(days, ["day"])).column_names == ["day"]
    part = pa.table(plait.scan(f"{days}/day=mon"))
    assert part.column("day").to_pylist() == ["mon"] * 4
    with pytest.raises(plait.InvalidArgument, match="static column has the name of a column"):
        plait.scan([days, pa.table({"k": [1], "day": ["new"]}).to_reader()])
    assert pa.table(plait.scan(days, partitions="hive")).num_rows == 12


UTC = dt.timezone.utc
MOMENT = dt.datetime(2020, 1, 1, 1, 2, 3, 456789)
VALUES = {
    "bool": pa.array([True, None]),
    "day": pa.array([dt.date(2020, 1, 1), None]),
    "local": pa.array([MOMENT, dt.datetime(1960, 1, 1)], pa.timestamp("us")),
    "utc": pa.array([MOMENT.replace(tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
    "decimal": pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(10, 2)),
    "float": pa.array([1.5, 1e30]),
    "f32": pa.array([1.5, -0.25], pa.float32()),
    "int": pa.array([1, -1], pa.int8()),
    "i16": pa.array([1, -1], pa.int16()),
    "i32": pa.array([1, -1], pa.int32()),
    "i64": pa.array([1, None], pa.int64()),
    "text": pa.array(["06", "__x=1/2"]),
}


@pytest.mark.parametrize("name", VALUES)
def test_partition_values_of_every_type_are_read(name, tmp_path):
    uri = str(tmp_path / "t")
    given = pa.table({"k": [1, 2], name: VALUES[name]})
    deltalake.write_deltalake(uri, given, partition_by=[name])
    assert pa.table(plait.scan(uri)).sort_by("k").cast(given.schema) == given


@pytest.mark.parametrize("read", [*READERS[:2], *READERS[3:6], READERS[8]])
def test_where_rows_leave_without_their_partition_a_table_is_refused(read, days, tmp_path):
    refused(read, days, tmp_path / "out.parquet", "`day`|table of Delta")


def test_one_partition_is_a_folder_that_says_what_it_holds(days, tmp_path):
    assert merged(f"{days}/day=mon", tmp_path / "out.parquet") == [0, 1, 5, 6]
    assert len(plait.prune(days, {"k": 1})) == 3


def test_a_partition_without_files_that_count_is_not_found(days):
    deltalake.DeltaTable(days).delete("day = 'mon'")
    for read in READERS[:6]:
        with pytest.raises(plait.SourceNotFound, match="the Delta table has no live file"):
            read(f"{days}/day=mon", Path(days, "out.parquet"))


# -- what files alone do not say -------------------------------------------------------------------


def edit_log(uri, change):
    (log,) = Path(uri, "_delta_log").glob("*00.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("\n".join(map(json.dumps, actions)) + "\n")


def with_features(uri, reader, **add):
    def change(action):
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": reader,
                "writerFeatures": reader,
            }
        if "add" in action:
            action["add"].update(add)

    edit_log(uri, change)


@pytest.mark.parametrize("read", READERS[2:7])
def test_rows_under_a_deletion_vector_are_not_read_as_if_they_were_there(read, tmp_path):
    uri = str(tmp_path / "t")
    append(uri, list(range(40)))
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    with_features(uri, ["deletionVectors"], deletionVector=vector)
    refused(read, uri, tmp_path / "out.parquet", "deleted by a deletion vector")


@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview", "variantType"])
def test_reader_features_that_change_what_files_mean_are_refused_by_name(feature, tmp_path):
    uri = str(tmp_path / "t")
    append(uri, [1])
    with_features(uri, [feature])
    for read in READERS[:7]:
        refused(read, uri, tmp_path / "out.parquet", f"`{feature}`")


def test_features_that_only_writers_must_know_do_not_hinder_readers(tmp_path):
    uri = str(tmp_path / "t")
    append(uri, [1])

    def change(action):
        if "protocol" in action:
            listed = ["rowTracking", "domainMetadata", "clustering", "identityColumns"]
            action["protocol"] = {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": listed,
            }

    edit_log(uri, change)
    assert scanned(uri, None) == [1]


def test_mapped_columns_are_refused(tmp_path):
    uri = str(tmp_path / "t")
    append(uri, [1])

    def mapped(action):
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"

    edit_log(uri, mapped)
    for read in READERS[:7]:
        refused(read, uri, tmp_path / "out.parquet", "maps column names")


def test_renamed_and_dropped_columns_of_iceberg_are_read_by_their_ids(catalog, tmp_path):
    from pyiceberg.types import LongType

    iceberg(catalog)
    table = catalog.load_table("db.t")
    with table.update_schema() as update:
        update.rename_column("v", "value")
        update.add_column("w", LongType())
    table.append(pa.table({"k": [8], "value": ["new"], "w": [1]}))
    folder = hinted(catalog)

    def rows(table):
        return sorted(map(str, table.to_pylist()))

    assert rows(pa.table(plait.scan(folder))) == rows(catalog.load_table("db.t").scan().to_arrow())
    refused(READERS[0], folder, tmp_path / "out.parquet", "renamed or dropped the column `v`")
    with pytest.raises(plait.Unsupported, match="renamed or dropped the column `v`") as caught:
        plait.read(folder, sort_by="k")
    assert caught.value.hint == "read it with plait.scan"
    with catalog.load_table("db.t").update_schema() as update:
        update.delete_column("value")
    folder = hinted(catalog)
    found = pa.table(plait.scan(folder))
    assert found.column_names == ["k", "w"]
    assert rows(found) == rows(catalog.load_table("db.t").scan().to_arrow())


# -- object stores ---------------------------------------------------------------------------------


def test_tables_in_object_stores_are_found(s3_server, table, tmp_path):
    client = s3_server.client()
    client.create_bucket(Bucket="foreign")
    for path in Path(table).rglob("*"):
        if path.is_file():
            key = f"in/t/{path.relative_to(table)}"
            client.put_object(Bucket="foreign", Key=key, Body=path.read_bytes())
    plain = next(Path(table).glob("*.parquet")).read_bytes()
    client.put_object(Bucket="foreign", Key="plain/a.parquet", Body=plain)
    root = "s3://foreign/in/t"
    options = {"storage_options": s3_server.options()}
    out = tmp_path / "out.parquet"
    plait.merge(root, out, sort_by="k", **options)
    assert keys_of(pq.read_table(out)) == ALL
    assert keys_of(pa.table(plait.scan(f"{root}/", **options))) == ALL
    for source in ("s3://foreign/in", f"{root}/*.parquet", "s3://foreign/in/**/*.parquet"):
        with pytest.raises(plait.ForeignTable, match="table of Delta") as caught:
            plait.scan(source, **options)
        assert caught.value.path == root
    assert pa.table(plait.scan("s3://foreign/plain", **options)).num_rows in (2, 6)
    found = plait.compact(root, sort_by="k", yes=False, **options)
    assert (found.format, found.groups) == ("delta", ())


# -- Spark -----------------------------------------------------------------------------------------


def by_format(source, **options):
    """What the format `plait` reads, as Spark would call it."""
    from plait.spark.source import MergingReader, Query

    query = Query.of({"path": source, "sort_by": "k", **options})
    reader = MergingReader(query, query.spark_schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [key for batch in batches for key in batch.column("k").to_pylist()]


def test_the_format_plait_reads_what_counts_in_a_table(table, days):
    pytest.importorskip("pyspark")
    assert by_format(table) == ALL
    assert by_format(table, part_rows="2") == ALL
    with pytest.raises(plait.Unsupported, match="`day`"):
        by_format(days)
    with pytest.raises(plait.ForeignTable, match="table of Delta"):
        by_format(f"{table}/*.parquet")


def test_scans_on_spark_list_what_counts_in_a_table(table, days, tmp_path):
    pytest.importorskip("pyspark")
    from plait.spark.folder import listed

    assert listed([table]) == deltalake.DeltaTable(table).file_uris()
    with pytest.raises(plait.Unsupported, match="`day`"):
        listed([days])
    with pytest.raises(plait.ForeignTable):
        listed([str(tmp_path)])


def test_the_sink_of_spark_writes_to_tables_and_not_into_their_folders(table, days):
    pytest.importorskip("pyspark")
    from pyspark.sql.types import LongType, StructType

    from plait.spark.sink import RunWriter

    columns = StructType().add("k", LongType())

    def into(path, columns=columns):
        return RunWriter.of({"path": path, "sort_by": "k"}, columns, overwrite=False)

    before = sorted(Path(table).rglob("*"))
    into(table)
    with pytest.raises(plait.SchemaConflict, match="`x` of long, which the table has not"):
        into(table, StructType().add("k", LongType()).add("x", LongType()))
    with pytest.raises(plait.ForeignTable, match="in a table of Delta"):
        into(f"{table}/part")
    with pytest.raises(plait.Unsupported, match="partitioned"):
        into(days)
    assert sorted(Path(table).rglob("*")) == before


def test_the_format_plait_refuses_files_without_the_key(tmp_path):
    pytest.importorskip("pyspark")
    pq.write_table(pa.table({"k": [1], "v": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"v": [2]}), tmp_path / "b.parquet")
    with pytest.raises(plait.UnknownColumn, match="a source lacks a sort column") as caught:
        by_format(str(tmp_path))
    assert caught.value.path == str(tmp_path / "b.parquet")
    assert by_format(str(tmp_path), missing_keys="null") == [1, None]
