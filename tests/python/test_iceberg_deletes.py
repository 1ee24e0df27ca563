"""Rows that delete files of Iceberg tables delete: no door gives them, no compaction keeps them.

The delete files are made by PyArrow, as Spark makes them; PyIceberg and Polars read the same tables.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _native
from plait._native_call import _call
from plait._planning import checked_options
from plait.table import compact_iceberg
from plait.table.iceberg import Iceberg

from .conftest import load

pytest.importorskip("pyiceberg")
deletes = load("iceberg_deletes")
pytest.importorskip("pyroaring")
vectors = load("vectors")
pytestmark = [
    pytest.mark.local,
    # PyIceberg does not close its connections.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # Polars says that a plugin of its own would plan faster.
    pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning"),
]

CASES = int(os.environ.get("PLAIT_ICEBERG_CASES", "10"))
NAME = "db.events"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("day", pa.string())])


def create(catalog, by_day=False):
    table = catalog.create_table(NAME, SCHEMA)
    if by_day:
        with table.update_spec() as spec:
            spec.add_identity("day")
    return table


def append(table, keys, text="v", day="mon"):
    """Appends one file; its name."""
    before = deletes.data_files(table)
    columns = [pa.array(keys, pa.int64()), [f"{text}{k}" for k in keys], [day] * len(keys)]
    table.append(pa.Table.from_arrays([pa.array(c) for c in columns], schema=SCHEMA))
    (name,) = deletes.data_files(table).keys() - before.keys()
    return name


@pytest.fixture
def table(catalog):
    return create(catalog)


@pytest.fixture
def deleted(table):
    """Two files that overlap; of both some rows are deleted. The keys that are left."""
    even, odd = list(range(0, 4000, 2)), list(range(1, 4000, 2))
    gone = {
        append(table, even): {0, 1, 2, 100, *range(700, 900), 1999},
        append(table, odd): {5, *range(1000, 2000, 3)},
    }
    # Apart, as Polars reads them.
    for name, listed_rows in gone.items():
        deletes.delete_rows(table, {name: listed_rows})
    of_even, of_odd = gone.values()
    left = [k for i, k in enumerate(even) if i not in of_even]
    return sorted(left + [k for i, k in enumerate(odd) if i not in of_odd])


def keys_of(path):
    files = sorted(Path(path).glob("*.parquet")) if Path(path).is_dir() else [path]
    return [key for file in files for key in pq.ParquetFile(file).read()["k"].to_pylist()]


def others_read(table):
    """The keys as two readers that are not ours see them."""
    table.refresh()
    iceberg = sorted(table.scan().to_arrow()["k"].to_pylist())
    try:
        polars = pl.scan_iceberg(table, reader_override="native").collect()
    except pl.exceptions.ComputeError as error:
        # Polars reads no delete file of several data files.
        assert "not limited to one data file" in str(error)
    else:
        assert sorted(polars["k"].to_list()) == iceberg
    return iceberg


def keys(read):
    return pa.table(read)["k"].to_pylist()


def merged(folder, out, **options):
    report = plait.merge(folder, out, sort_by="k", verify="content", **options)
    assert report.rows_in == report.rows_out
    return keys_of(out)


def planned(folder, out):
    plan = plait.plan(folder, sort_by="k", outputs=3)
    report = plait.Plan.from_json(plan.to_json()).execute(str(out), verify="content")
    assert report.rows_out == plan.rows
    return keys_of(out)


DOORS = {
    "read": lambda folder, _: keys(plait.read(folder, sort_by="k")),
    "small batches": lambda folder, _: keys(plait.read(folder, sort_by="k", batch_rows=7)),
    "reverse": lambda folder, _: keys(plait.read(folder, sort_by="k", reverse=True))[::-1],
    "merge": merged,
    "merge, sorted": lambda folder, out: merged(folder, out, unsorted="sort"),
    "merge, one thread": lambda folder, out: merged(folder, out, threads=1, copy_tiers=[]),
    "plan": planned,
    "read of tasks": lambda folder, _: [
        key
        for task in plait.plan(folder, sort_by="k", outputs=3).tasks
        for key in keys(plait.read(task))
    ],
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_gives_deleted_rows(door, table, deleted, tmp_path):
    out = tmp_path / ("outs" if door == "plan" else "out.parquet")
    assert DOORS[door](deletes.hinted(table), out) == deleted == others_read(table)


def test_the_command_line_gives_no_deleted_rows(table, deleted, capsys):
    from plait.cli import main

    assert main(["cat", deletes.hinted(table), "--sort-by", "k", "--columns", "k"]) == 0
    lines = capsys.readouterr().out.split()
    assert [int(line) for line in lines if line.isdigit()] == deleted


def test_calls_that_cannot_leave_out_rows_refuse_the_table(table, deleted):
    folder = deletes.hinted(table)
    for call in (
        lambda: pa.table(plait.scan(folder)),
        lambda: pa.table(plait.merge_streams([folder], sort_by="k")),
    ):
        with pytest.raises(plait.Unsupported, match="deleted by a deletion vector or a delete"):
            call()


COLUMNS = {
    "as the specification has it": {},
    "without field ids": {
        "columns": pa.schema([("file_path", pa.string()), ("pos", pa.int64())]),
    },
    "with other names": {
        "columns": pa.schema(
            [field.with_name(f"_{field.name}") for field in deletes.SCHEMA],
        ),
    },
    "with large text": {
        "columns": pa.schema([("file_path", pa.large_string()), ("pos", pa.int64())]),
    },
    "with text as dictionaries": {
        "columns": pa.schema(
            [("file_path", pa.dictionary(pa.int32(), pa.string())), ("pos", pa.int64())]
        ),
    },
    "in no order": {"order": "reverse"},
    "in small row groups": {"row_group_size": 10},
    "without dictionaries": {"use_dictionary": False, "row_group_size": 100},
    "with bounds cut short": {"bounds": "cut"},
    "without bounds": {"bounds": "none"},
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_delete_files_of_every_kind_are_read(kind, table, tmp_path):
    names = {append(table, list(range(part, 900, 3))): part for part in range(3)}
    gone = {name: {part, 17, *range(100, 150)} for name, part in names.items()}
    deletes.delete_rows(table, gone, **COLUMNS[kind])
    left = sorted(
        key
        for name, part in names.items()
        for i, key in enumerate(range(part, 900, 3))
        if i not in gone[name]
    )
    folder = deletes.hinted(table)
    assert keys(plait.read(folder, sort_by="k")) == left
    assert merged(folder, tmp_path / "out.parquet") == left
    if kind != "with other names":  # which PyIceberg does not find
        assert others_read(table) == left
    assert compact_iceberg(table.catalog, NAME, sort_by="k", verify="content", yes=True).groups
    assert others_read(table) == left and deletes.delete_entries(table) == []


def test_several_delete_files_of_one_file_and_one_twice(table):
    name = append(table, list(range(100)))
    other = append(table, list(range(100, 200)))
    for gone in ({name: [1, 2, 3]}, {name: [3, 4], other: [0]}, {name: [3]}):
        deletes.delete_rows(table, gone)
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == [
        k for k in range(200) if k not in (1, 2, 3, 4, 100)
    ]
    assert others_read(table) == keys(plait.read(deletes.hinted(table), sort_by="k"))


def test_deletes_that_are_older_than_a_file_do_not_reach_it(table):
    name = append(table, list(range(100)))
    deletes.delete_rows(table, {name: range(50)})
    # The same file, removed and added again.
    file = deletes.data_files(table)[name]
    with table.transaction() as transaction:
        with transaction.update_snapshot().overwrite() as update:
            update.delete_data_file(file)
    with table.transaction() as transaction:
        with transaction.update_snapshot().fast_append() as update:
            update.append_data_file(file)
    table.refresh()
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == list(range(100))
    assert others_read(table) == list(range(100))


def test_a_compaction_removes_deleted_rows_for_good(catalog, table, deleted):
    report = compact_iceberg(catalog, NAME, sort_by="k", verify="content", yes=True)
    assert [group.rows for group in report.groups] == [len(deleted)]
    assert others_read(table) == deleted and deletes.delete_entries(table) == []
    (name,) = deletes.data_files(table)
    assert keys_of(name.removeprefix("file://")) == deleted
    summary = table.current_snapshot().summary
    assert summary["removed-position-delete-files"] == "2"
    assert summary["total-position-deletes"] == "0" == summary["total-delete-files"]
    assert summary["total-records"] == str(len(deleted))
    assert not compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups
    # The snapshots before are still there.
    before = table.scan(snapshot_id=table.snapshots()[3].snapshot_id).to_arrow()
    assert before.num_rows == len(deleted)


def test_delete_files_stay_as_long_as_they_reach_a_file(catalog):
    table = create(catalog, by_day=True)
    names = {day: append(table, list(range(100)), day=day) for day in ("mon", "tue")}
    both = [append(table, list(range(50)), day=day) for day in names]
    files = deletes.data_files(table)
    # One for each partition, each with bounds of its own.
    deletes.delete_rows(table, {names["mon"]: range(30), names["tue"]: range(30), both[1]: [0]})
    compact_iceberg(catalog, NAME, sort_by="k", where={"day": "mon"}, yes=True)
    table.refresh()
    (left,) = deletes.delete_entries(table)
    assert left.data_file.partition == files[names["tue"]].partition
    compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    expected = [*range(30, 100), *range(50), *range(30, 100), *range(1, 50)]
    assert others_read(table) == sorted(expected) and deletes.delete_entries(table) == []


def test_a_file_of_its_own_is_rewritten_once_a_twentieth_is_deleted(catalog, table):
    name = append(table, list(range(1000)))
    deletes.delete_rows(table, {name: range(50)}, bounds="none")
    assert not compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups
    deletes.delete_rows(table, {name: [50]}, bounds="none")
    (group,) = compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups
    assert group.rows == 949 and others_read(table) == list(range(51, 1000))
    assert not compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups


def test_a_file_without_a_row_that_is_left_goes(catalog, table, tmp_path):
    name, other = append(table, [1, 2, 3]), append(table, [2, 4])
    deletes.delete_rows(table, {name: range(3)})
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == [2, 4]
    assert merged(deletes.hinted(table), tmp_path / "out.parquet") == [2, 4]
    deletes.delete_rows(table, {other: range(2)})
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == []
    assert len(compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups) == 1
    assert others_read(table) == [] and deletes.delete_entries(table) == []


def test_files_in_no_order_are_sorted_without_their_deleted_rows(catalog, table):
    shuffled = list(range(3000))
    random.Random(7).shuffle(shuffled)
    gone = set(random.Random(8).sample(range(3000), 900))
    deletes.delete_rows(table, {append(table, shuffled): gone})
    append(table, list(range(3000, 3100)))
    left = sorted(k for i, k in enumerate(shuffled) if i not in gone) + list(range(3000, 3100))
    report = compact_iceberg(
        catalog, NAME, sort_by="k", unsorted="sort", verify="content", yes=True
    )
    assert report.groups and others_read(table) == left


# -- what is wrong -----------------------------------------------------------------------------------


def wrong(table, gone, like=None, **how):
    """Commits a delete file whose rows are what is said, right or wrong."""
    like = like or next(iter(deletes.data_files(table).values()))
    path = deletes.new_path(table, "pos")
    pq.write_table(gone, path)
    made = deletes.entry(
        table, path, deletes.DataFileContent.POSITION_DELETES, like, gone.num_rows, **how
    )
    deletes.commit(table, [made])
    return path


def rows_of(paths, positions, schema=None):
    return pa.table({"file_path": paths, "pos": positions}, schema=schema)


WRONG = {
    "behind the last row": (lambda name: rows_of([name], [100]), "rows that the file lacks"),
    "negative": (lambda name: rows_of([name], [-1]), "negative position"),
    "null": (lambda name: rows_of([name, name], [1, None]), "without a file or a position"),
    "no file": (lambda name: rows_of([None, name], [1, 2]), "without a file or a position"),
    "a text": (lambda name: rows_of([name], ["1"]), "column of another type"),
    "a number for a file": (lambda _: rows_of([7], [1]), "column of another type"),
    "bytes": (lambda name: rows_of([name.encode()], [1]), "column of another type"),
    "no column": (lambda name: pa.table({"file_path": [name]}), "lacks a column"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_delete_file_that_is_wrong_is_an_error(what, catalog, table, tmp_path):
    name = append(table, list(range(100)))
    append(table, list(range(50)))
    make, message = WRONG[what]
    path = wrong(table, make(name))
    everything_fails(catalog, table, tmp_path, plait.CorruptSource, message, path)


@pytest.mark.parametrize("how", ["cut", "absent"])
def test_a_delete_file_that_is_damaged_is_an_error(how, catalog, table, tmp_path):
    name = append(table, list(range(100)))
    append(table, list(range(50)))
    path = wrong(table, rows_of([name], [5]))
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-5])
        everything_fails(catalog, table, tmp_path, plait.CorruptSource, "not a Parquet", path)
    else:
        path.unlink()
        everything_fails(catalog, table, tmp_path, plait.SourceNotFound, "does not exist", path)


def everything_fails(catalog, table, tmp_path, kind, message, path):
    folder, snapshot = deletes.hinted(table), table.current_snapshot().snapshot_id
    for call in (
        lambda: keys(plait.read(folder, sort_by="k")),
        lambda: plait.merge(folder, tmp_path / "out.parquet", sort_by="k"),
        lambda: plait.plan(folder, sort_by="k"),
    ):
        with pytest.raises(kind, match=message) as caught:
            call()
        assert path.name in str(caught.value)
    assert not (tmp_path / "out.parquet").exists()
    if kind is plait.CorruptSource:
        report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
        whys = [skipped.why for skipped in report.skipped]
        assert whys and all(path.name in why for why in whys), whys
    else:
        with pytest.raises(kind):
            compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert table.refresh().current_snapshot().snapshot_id == snapshot


def test_others_are_compacted_where_a_delete_file_is_damaged(catalog):
    table = create(catalog, by_day=True)
    names = [append(table, list(range(50)), day=day) for day in ("mon", "mon", "tue", "tue")]
    like = deletes.data_files(table)[names[0]]
    path = wrong(table, rows_of([names[0]], [-1]), like=like)
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert [group.folder for group in report.groups] == ["day=tue"]
    # It has no bounds, so it reaches both.
    assert [skipped.path for skipped in report.skipped] == sorted(
        name.removeprefix("file://") for name in names[:2]
    )
    assert all(path.name in skipped.why for skipped in report.skipped)


# -- vectors of format version 3 ---------------------------------------------------------------------


def encoded(rows):
    return vectors.stored(vectors.bitmap(rows))


@pytest.fixture
def of_version_3(catalog, table):
    """A table with deletion vectors; the keys that are left."""
    names = [append(table, list(range(part, 4000, 2))) for part in range(2)]
    # A vector has what was deleted by position before it, and that does not count any more.
    deletes.delete_rows(table, {names[0]: [0, 1, 1500]})
    gone = {names[0]: [0, 1, *range(500, 700)], names[1]: [1999]}
    deletes.delete_by_vectors(table, gone, encoded)
    left = [
        key
        for part, name in enumerate(names)
        for i, key in enumerate(range(part, 4000, 2))
        if i not in gone[name]
    ]
    return deletes.as_version_3(catalog, NAME), sorted(left)


@pytest.mark.parametrize("door", DOORS)
def test_no_door_gives_rows_that_vectors_delete(door, of_version_3, tmp_path):
    table, left = of_version_3
    out = tmp_path / ("outs" if door == "plan" else "out.parquet")
    assert DOORS[door](deletes.hinted(table), out) == left


def test_other_readers_read_the_vectors(catalog, table):
    # PyIceberg applies old position deletes, too, so there are none.
    name = append(table, list(range(1000)))
    deletes.delete_by_vectors(table, {name: range(0, 1000, 3)}, encoded)
    table = deletes.as_version_3(catalog, NAME)
    left = table.scan().to_arrow()["k"].to_pylist()
    assert left == [k for k in range(1000) if k % 3]
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == left


def test_tables_of_version_3_are_not_compacted_as_pyiceberg_commits_none(catalog, of_version_3):
    table, _ = of_version_3
    folder = Path(deletes.hinted(table))
    before = sorted(folder.rglob("*"))
    for yes in (False, True):
        with pytest.raises(plait.Unsupported) as caught:
            compact_iceberg(catalog, NAME, sort_by="k", yes=yes)
        assert str(caught.value) == (
            f"the Iceberg table `{NAME}` has a format version that PyIceberg does not commit: "
            "got version 3\nhint: compact it with the engine that wrote it; plait.read and "
            "plait.merge read it"
        )
    assert sorted(folder.rglob("*")) == before


WRONG_VECTORS = {
    "number of rows": ({"record_count": 7}, "another number of rows"),
    "length": ({"content_size_in_bytes": 20}, "another length"),
    "offset": ({"content_offset": 2}, "longer than it can be|another length"),
}


@pytest.mark.parametrize("what", WRONG_VECTORS)
def test_a_vector_that_is_not_as_the_manifest_says_is_an_error(what, catalog, table):
    wrong_said, message = WRONG_VECTORS[what]
    name = append(table, list(range(100)))
    deletes.delete_by_vectors(table, {name: [1, 2]}, encoded, lambda said: {**said, **wrong_said})
    table = deletes.as_version_3(catalog, NAME)
    with pytest.raises(plait.CorruptSource, match=message):
        keys(plait.read(deletes.hinted(table), sort_by="k"))


def test_a_file_with_two_vectors_is_refused_by_name(catalog, table):
    name = append(table, list(range(100)))
    for row in (1, 2):
        deletes.delete_by_vectors(table, {name: [row]}, encoded)
    table = deletes.as_version_3(catalog, NAME)
    with pytest.raises(plait.Unsupported, match="has a file that has several deletion vectors"):
        keys(plait.read(deletes.hinted(table), sort_by="k"))


# -- deletes by value --------------------------------------------------------------------------------


def listed(type_=None, **columns):
    """Rows of an equality delete file, with the field ids of the table."""
    ids = {"k": 1, "v": 2, "day": 3}
    types = {"k": type_ or pa.int64(), "v": pa.string(), "day": pa.string()}
    fields = [
        pa.field(name, types[name], True, {"PARQUET:field_id": str(ids[name])}) for name in columns
    ]
    return pa.table(list(map(pa.array, columns.values())), schema=pa.schema(fields))


@pytest.fixture
def by_value(table):
    """Two files, deletes by value, a file that is newer; the keys that are left."""
    append(table, list(range(0, 4000, 2)))
    append(table, list(range(1, 4000, 2)))
    gone = [0, 3, *range(1000, 1500), 3999, 77777]
    deletes.delete_values(table, listed(k=gone), [1])
    deletes.delete_values(table, listed(v=["v4", "v5"], day=["mon", "tue"]), [2, 3])
    append(table, [0, 3, 1000])
    return sorted([k for k in range(4000) if k not in {*gone, 4}] + [0, 3, 1000])


@pytest.mark.parametrize("door", DOORS)
def test_no_door_gives_rows_that_are_deleted_by_value(door, table, by_value, tmp_path):
    out = tmp_path / ("outs" if door == "plan" else "out.parquet")
    assert DOORS[door](deletes.hinted(table), out) == by_value


def test_a_compaction_removes_deletes_by_value(catalog, table, by_value):
    report = compact_iceberg(catalog, NAME, sort_by="k", verify="content", yes=True)
    assert [group.rows for group in report.groups] == [len(by_value)]
    assert others_read(table) == by_value and deletes.delete_entries(table) == []
    assert not compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups


def test_null_equals_null_and_a_column_that_a_file_lacks_is_null(catalog, table):
    from pyiceberg.types import LongType

    append(table, [1, 2])
    with table.update_schema() as update:
        update.add_column("w", LongType())
    new = {"k": [3, 4, None], "v": ["a", "b", None], "day": ["mon"] * 3, "w": [None, 5, 6]}
    table.append(pa.table(new))
    field = pa.field("w", pa.int64(), True, {"PARQUET:field_id": "4"})
    deletes.delete_values(table, pa.table([[None]], schema=pa.schema([field])), [4])
    folder = deletes.hinted(table)
    assert keys(plait.read(folder, sort_by="k")) == [4, None]
    deletes.delete_values(table, listed(k=[None], v=[None]), [1, 2])
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == [4]


def test_values_are_compared_as_the_wider_type(table):
    narrow = pa.schema([("k", pa.int32())])
    made = table.catalog.create_table("db.narrow", narrow)
    made.append(pa.table({"k": pa.array([1, 2, 3], pa.int32())}))
    with made.update_schema() as update:
        from pyiceberg.types import LongType

        update.update_column("k", LongType())
    deletes.delete_values(made, listed(k=[2, 1 << 40]), [1])
    assert keys(plait.read(deletes.hinted(made), sort_by="k")) == [1, 3]
    deletes.delete_values(made, listed(k=[3], type_=pa.int32()), [1])
    assert keys(plait.read(deletes.hinted(made), sort_by="k")) == [1]


def test_deletes_by_value_reach_their_partition_alone(catalog):
    table = create(catalog, by_day=True)
    names = {day: append(table, [1, 2, 3], day=day) for day in ("mon", "tue")}
    like = deletes.data_files(table)[names["mon"]]
    deletes.delete_values(table, listed(k=[2]), [1], like)
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == [1, 1, 2, 3, 3]
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert [group.folder for group in report.groups] == ["day=mon"]
    assert others_read(table) == [1, 1, 2, 3, 3]


def test_the_keys_of_deletes_may_be_more_than_fit(table, tmp_path):
    wide = "x" * 200
    append(table, list(range(3000)), text=wide)
    gone = [f"{wide}{k}" for k in range(0, 200_000, 2)]
    deletes.delete_values(table, listed(v=gone), [2])
    folder = deletes.hinted(table)
    small = plait.read(folder, sort_by="k", memory_limit="32MB")
    assert keys(small) == list(range(1, 3000, 2))


def test_a_file_whose_deletes_cannot_be_compared_is_left_alone(catalog, tmp_path):
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    table = catalog.create_table(NAME, schema)
    table.append(pa.table({"k": [1, 5], "x": [0.0, 1.0]}, schema=schema))
    (old,) = deletes.data_files(table)
    field = pa.field("x", pa.float64(), True, {"PARQUET:field_id": "2"})
    deletes.delete_values(table, pa.table([[0.0]], schema=pa.schema([field])), [2])
    for part in range(2):
        table.append(pa.table({"k": [part, 7], "x": [0.0, 1.0]}, schema=schema))
    with pytest.raises(plait.UnsupportedKey, match="deleted by floating numbers"):
        keys(plait.read(deletes.hinted(table), sort_by="k"))
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert [len(group.sources) for group in report.groups] == [2]
    ((path, why),) = [(skipped.path, skipped.why) for skipped in report.skipped]
    assert path == old.removeprefix("file://") and "deleted by floating numbers" in why
    table.refresh()
    assert old in deletes.data_files(table) and len(deletes.delete_entries(table)) == 1


def test_deletes_by_value_that_come_while_files_are_merged_apply_to_what_is_made(
    catalog, table, monkeypatch
):
    for part in range(2):
        append(table, list(range(part, 100, 2)))
    commit, done = Iceberg.commit, []

    def rival(self, change):
        if not done:
            done.append(True)
            deletes.delete_values(catalog.load_table(NAME), listed(k=[7, 8]), [1])
        return commit(self, change)

    monkeypatch.setattr(Iceberg, "commit", rival)
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert report.lost == 0 and len(report.groups) == 1
    table.refresh()
    left = [k for k in range(100) if k not in (7, 8)]
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == left
    assert len(deletes.delete_entries(table)) == 1


@pytest.mark.long
def test_random_deletes_by_value_are_those_of_a_model(catalog, tmp_path):
    rng = random.Random(5)
    for case in range(CASES):
        table = create(catalog, by_day=rng.random() < 0.5)
        by_day = bool(table.spec().fields)
        live = []
        for step in range(rng.randint(3, 8)):
            day = rng.choice(("mon", "tue"))
            if step == 0 or rng.random() < 0.5:
                found = sorted(rng.randrange(60) for _ in range(rng.choice([1, 30, 200])))
                append(table, found, day=day)
                live += [(k, f"v{k}", day) for k in found]
                continue
            like = next(iter(deletes.data_files(table).values()))
            day = like.partition[0] if by_day else None
            some = [rng.randrange(60) for _ in range(rng.randint(1, 20))]
            if rng.random() < 0.5:
                deletes.delete_values(table, listed(k=some), [1], like)
                gone = {(k, f"v{k}") for k in some}
            else:
                deletes.delete_values(
                    table, listed(k=some, v=[f"v{k}" for k in some]), [1, 2], like
                )
                gone = {(k, f"v{k}") for k in some}
            live = [row for row in live if row[:2] not in gone or (by_day and row[2] != day)]
        left = sorted(k for k, _, _ in live)
        assert keys(plait.read(deletes.hinted(table), sort_by="k")) == left, case
        compact_iceberg(catalog, NAME, sort_by="k", policy="full", verify="content", yes=True)
        table.refresh()
        assert keys(plait.read(deletes.hinted(table), sort_by="k")) == left, case
        catalog.drop_table(NAME)


# -- files that are left alone -----------------------------------------------------------------------


ODD = {
    "encrypted": ({"key_metadata": b"key"}, "the file is encrypted"),
    "of another format": ({"file_format": "ORC"}, "the file is no Parquet file but ORC"),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_file_that_cannot_be_read_is_left_alone_and_the_others_are_compacted(
    kind, catalog, table
):
    changed, why = ODD[kind]
    odd = append(table, [1, 2])
    file = deletes.data_files(table)[odd]
    with table.transaction() as transaction:
        with transaction.update_snapshot().overwrite() as update:
            update.delete_data_file(file)
    for part in range(3):
        append(table, [part, part + 5])
    where = f"{odd.removesuffix('.parquet')}-odd.parquet"
    made = deletes.entry(
        table,
        odd.removeprefix("file://"),
        deletes.DataFileContent.DATA,
        file,
        2,
    )
    said = {"file_path": where, "file_format": made.file_format}
    said |= {
        key: deletes.FileFormat[v] if key == "file_format" else v for key, v in changed.items()
    }
    odd_file = deletes.DataFile.from_args(
        content=made.content,
        partition=made.partition,
        record_count=2,
        file_size_in_bytes=made.file_size_in_bytes,
        **said,
    )
    with table.transaction() as transaction:
        with transaction.update_snapshot().fast_append() as update:
            update.append_data_file(odd_file)
    table.refresh()
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert [len(group.sources) for group in report.groups] == [3]
    assert [(skipped.path, skipped.why) for skipped in report.skipped] == [
        (where.removeprefix("file://"), why)
    ]
    table.refresh()
    assert where in deletes.data_files(table) and len(deletes.data_files(table)) == 2
    with pytest.raises(plait.Unsupported, match=why.removeprefix("the file ")) as caught:
        plait.read(deletes.hinted(table), sort_by="k")
    assert Path(where).name in str(caught.value)


# -- others in between -------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch):
    """Does something once, when files are merged and nothing is committed yet."""

    def meanwhile(act):
        commit, done = Iceberg.commit, []

        def late(self, change):
            if not done:
                done.append(act())
            return commit(self, change)

        monkeypatch.setattr(Iceberg, "commit", late)

    return meanwhile


def test_rows_deleted_while_a_compaction_merges_are_deleted_of_its_files(
    catalog, table, deleted, meanwhile
):
    names = list(deletes.data_files(table))
    append(table, list(range(4000, 4100)))
    # So few that the new file is not rewritten at once.
    gone = {name: range(20) for name in names}
    meanwhile(lambda: deletes.delete_rows(catalog.load_table(NAME), gone))
    report = compact_iceberg(catalog, NAME, sort_by="k", policy="full", yes=True)
    left = [k for k in deleted if k >= 40] + list(range(4000, 4100))
    assert report.lost == 0 and others_read(table) == left
    assert keys(plait.read(deletes.hinted(table), sort_by="k")) == left
    ((name, output),) = deletes.data_files(table).items()
    (entry,) = deletes.delete_entries(table)
    # Those of the files that were merged are gone; rows that were deleted twice count once.
    gone_of_output = [k for k in deleted if k < 40]
    rows = pq.read_table(entry.data_file.file_path.removeprefix("file://"))
    assert rows.schema.equals(deletes.SCHEMA, check_metadata=False)
    assert [field.metadata[b"PARQUET:field_id"] for field in rows.schema] == [
        str(field_id).encode() for field_id in (deletes.PATH, deletes.POS)
    ]
    assert rows["file_path"].unique().to_pylist() == [name]
    assert rows["pos"].to_pylist() == list(range(len(gone_of_output)))
    assert entry.data_file.record_count == len(gone_of_output)
    assert entry.sequence_number == table.current_snapshot().sequence_number
    assert output.record_count == len(gone_of_output) + len(left)
    summary = table.current_snapshot().summary
    assert summary.operation.value == "replace"
    assert summary["added-position-deletes"] == str(len(gone_of_output))
    # Another compaction leaves them out.
    append(table, [5000])
    compact_iceberg(catalog, NAME, sort_by="k", policy="full", yes=True)
    left.append(5000)
    assert others_read(table) == left and deletes.delete_entries(table) == []


def test_deletes_of_a_partition_stay_in_it(catalog, meanwhile):
    table = create(catalog, by_day=True)
    names = [append(table, list(range(i, 100, 2)), day=d) for d in ("mon", "tue") for i in (0, 1)]
    gone = {name: [1, 2] for name in names}
    meanwhile(lambda: deletes.delete_rows(catalog.load_table(NAME), gone))
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert report.lost == 0 and len(report.groups) == 2
    left = [k for k in range(100) if k not in (2, 3, 4, 5)]
    assert others_read(table) == sorted(left * 2)
    # The second group carries what the rival said of its files when the first was committed.
    days = [str(entry.data_file.partition) for entry in deletes.delete_entries(table)]
    assert len(days) == len(set(days)) == 2


def test_deletes_that_are_taken_back_are_a_conflict(catalog, table, deleted, meanwhile):
    deleted_before = others_read(table)
    snapshots = [snapshot.snapshot_id for snapshot in table.snapshots()]

    def restore():
        with catalog.load_table(NAME).manage_snapshots() as manage:
            manage.set_current_snapshot(snapshots[-2])

    meanwhile(restore)
    report = compact_iceberg(catalog, NAME, sort_by="k", policy="full", yes=True)
    table.refresh()
    found = others_read(table)
    assert report.lost == 1 and len(found) > len(deleted_before)
    assert set(found) > set(deleted_before)


def test_deletes_that_cannot_be_read_are_a_conflict_and_leave_the_file_alone(
    catalog, table, meanwhile
):
    names = [append(table, list(range(i, 100, 2))) for i in (0, 1)]
    meanwhile(lambda: wrong(catalog.load_table(NAME), rows_of([names[0]], [-1])))
    report = compact_iceberg(catalog, NAME, sort_by="k", policy="full", yes=True)
    assert report.lost == 1 and len(report.groups) == 0
    # The delete file does not say which files it names: it may be about both.
    assert {f"file://{skipped.path}" for skipped in report.skipped} == set(names)


def test_row_maps_stay_if_asked_to_and_tell_where_rows_went(catalog, table, deleted):
    folder = Path(table.location().removeprefix("file://"))
    compact_iceberg(catalog, NAME, sort_by="k", policy="full", yes=True)
    assert not list(folder.rglob(".*.rowmap"))
    table.refresh()
    append(table, list(range(4000, 4100)))
    compact_iceberg(catalog, NAME, sort_by="k", policy="full", row_map=True, yes=True)
    (_,) = folder.rglob(".*.rowmap")
    (output,) = deletes.data_files(table.refresh())
    (one,) = plait.trace(output.removeprefix("file://"), 5).found
    source = pq.ParquetFile(one.source).read()["k"].to_pylist()
    assert source[one.source_row] == keys_of(output.removeprefix("file://"))[5]


@pytest.mark.long
def test_random_deletes_are_those_of_a_model(catalog, tmp_path):
    rng = random.Random(11)
    for case in range(CASES):
        table = create(catalog, by_day=rng.random() < 0.5)
        files = {}
        is_sorted = rng.random() < 0.6
        for _ in range(rng.randint(1, 5)):
            keys_in = [rng.randrange(200) for _ in range(rng.choice([1, 30, 700]))]
            keys_in = sorted(keys_in) if is_sorted else keys_in
            name = append(table, keys_in, day=rng.choice(("mon", "tue")))
            files[name] = (keys_in, set())
        for _ in range(rng.randint(1, 4)):
            gone = {}
            for name in rng.sample(list(files), rng.randint(1, len(files))):
                rows_in, before = files[name]
                gone[name] = set(rng.sample(range(len(rows_in)), rng.randint(1, len(rows_in))))
                before |= gone[name]
            how = {"bounds": rng.choice(("whole", "cut", "none"))}
            how["row_group_size"] = rng.choice((7, 10_000))
            if rng.random() < 0.5:
                deletes.delete_rows(table, gone, **how)
                continue
            for name, rows_gone in gone.items():
                deletes.delete_rows(table, {name: rows_gone}, **how)
        left = [k for found, gone in files.values() for i, k in enumerate(found) if i not in gone]
        left.sort()
        how = {} if is_sorted else {"unsorted": "sort"}
        folder = deletes.hinted(table)
        assert others_read(table) == left
        if is_sorted:
            assert keys(plait.read(folder, sort_by="k")) == left
        assert merged(folder, tmp_path / f"{case}.parquet", **how) == left
        compact_iceberg(catalog, NAME, sort_by="k", verify="content", yes=True, **how)
        assert others_read(table) == left, case
        catalog.drop_table(NAME)


def test_plans_carry_delete_files(table, deleted):
    plan = plait.plan(deletes.hinted(table), sort_by="k", outputs=2)
    said = json.loads(plan.to_json())["options"]["deletion_vectors"]
    assert len(said) == 2
    for path, vector in said.items():
        assert vector["positions"]["name"] == f"file://{path}"
        assert [name.endswith("-pos.parquet") for name in vector["positions"]["files"]] == [True]


def test_a_row_map_that_cannot_be_removed_fails_no_commit(catalog, table, deleted, monkeypatch):
    from pyiceberg.io.pyarrow import PyArrowFileIO

    def refuse(io, location):
        raise PermissionError(location)

    monkeypatch.setattr(PyArrowFileIO, "delete", refuse)
    report = compact_iceberg(catalog, NAME, sort_by="k", policy="full", yes=True)
    monkeypatch.undo()
    assert len(report.groups) == 1 and others_read(table) == deleted
    assert len(list(Path(table.location().removeprefix("file://")).rglob(".*.rowmap"))) == 1


def test_deletes_of_a_source_under_another_name_are_an_error(table, deleted):
    path = next(iter(deletes.data_files(table))).removeprefix("file://")
    plan = plait.plan(deletes.hinted(table), sort_by="k")
    (vector, _) = json.loads(plan.to_json())["options"]["deletion_vectors"].values()
    given = {**checked_options({"sort_by": "k"}), "sources": [path]}
    other = {path.replace("/data/", "/./data/"): vector}
    with pytest.raises(plait.InvalidArgument, match="a deletion vector is of no source"):
        _call(_native.plan, {**given, "deletion_vectors": other}, None, None)
