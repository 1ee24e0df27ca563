"""Iceberg tables: rows stay the rows, whoever else commits; what cannot be kept is refused in words."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import re
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.table import compact_iceberg
from plait.table.iceberg import Iceberg

from .conftest import load

ValidationError = pytest.importorskip("pyiceberg.exceptions").ValidationError
interleavings = load("interleavings")
pytestmark = [
    pytest.mark.local,
    # PyIceberg does not close its connections, and says so of deletes that match nothing.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

NAME = "db.events"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("day", pa.string())])


def create(catalog, by_day=False, **options):
    table = catalog.create_table(NAME, SCHEMA, **options)
    if by_day:
        with table.update_spec() as spec:
            spec.add_identity("day")
    return table


def append(catalog, keys, value, day="mon"):
    keys = sorted(keys)
    columns = {"k": pa.array(keys, pa.int64()), "v": [value] * len(keys), "day": [day] * len(keys)}
    catalog.load_table(NAME).append(pa.table(columns, schema=SCHEMA))


def rows(catalog):
    table = catalog.load_table(NAME).scan().to_arrow()
    return interleavings.counted(zip(*(table.column(n).to_pylist() for n in ("k", "v", "day"))))


def files(catalog):
    return catalog.load_table(NAME).inspect.files().to_pylist()


def test_overlapping_files_become_one_and_a_second_run_does_nothing(catalog):
    create(catalog)
    for part in range(4):
        append(catalog, [part, part + 5], f"of {part}")
    before = rows(catalog)
    dry = compact_iceberg(catalog, NAME, sort_by="k", yes=False)
    assert dry.dry_run and "would merge 4 files in 1 group" in str(dry)
    report = compact_iceberg(catalog, NAME, sort_by="k", verify="content", yes=True)
    assert rows(catalog) == before
    table = catalog.load_table(NAME)
    snapshot = table.current_snapshot()
    assert report.version == snapshot.snapshot_id
    assert snapshot.summary["plait.task"] in report.groups[0].outputs[0]
    (file,) = files(catalog)
    assert file["record_count"] == 8 and file["sort_order_id"] is None
    assert file["readable_metrics"]["k"]["lower_bound"] == 0
    assert file["readable_metrics"]["k"]["upper_bound"] == 8
    # Readers find columns by their ids.
    fields = pq.read_schema(report.groups[0].outputs[0])
    assert [field.metadata[b"PARQUET:field_id"] for field in fields] == [b"1", b"2", b"3"]
    again = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert again.groups == () and "nothing to merge" in str(again)
    assert catalog.load_table(NAME).current_snapshot() == snapshot
    # The snapshot before is still there.
    assert table.scan(snapshot_id=snapshot.parent_snapshot_id).to_arrow().num_rows == 8


def test_the_order_of_the_table_is_the_default(catalog):
    from pyiceberg.table.sorting import NullOrder
    from pyiceberg.transforms import IdentityTransform

    table = create(catalog)
    with table.update_sort_order() as order:
        order.desc("k", IdentityTransform(), NullOrder.NULLS_FIRST)
    for part in range(3):
        columns = {"k": [None, part + 5, part], "v": ["v"] * 3, "day": ["mon"] * 3}
        table.append(pa.table(columns, schema=SCHEMA))
    before = rows(catalog)
    report = compact_iceberg(catalog, NAME, yes=True)
    assert report.groups[0].sort_by == "-k nulls first" and rows(catalog) == before
    (file,) = files(catalog)
    assert file["sort_order_id"] == catalog.load_table(NAME).sort_order().order_id == 1
    keys = pq.read_table(report.groups[0].outputs[0]).column("k").to_pylist()
    assert keys == [None, None, None, 7, 6, 5, 2, 1, 0]


def test_partitions_are_compacted_apart_and_by_choice(catalog):
    create(catalog, by_day=True)
    for part in range(3):
        for day in ("a b/ü", "tue", None):
            append(catalog, [part, 9], "v", day)
    before = rows(catalog)
    report = compact_iceberg(catalog, NAME, sort_by="k", where={"day": ["tue", "a b/ü"]}, yes=True)
    assert [group.folder for group in report.groups] == ["day=a b/ü", "day=tue"]
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert [group.folder for group in report.groups] == ["day=null"]
    assert rows(catalog) == before
    found = sorted(
        (file["partition"]["day"] or "", file["record_count"]) for file in files(catalog)
    )
    assert found == [("", 6), ("a b/ü", 6), ("tue", 6)]
    assert catalog.load_table(NAME).scan("day = 'a b/ü'").to_arrow().num_rows == 6
    with pytest.raises(plait.UnknownColumn, match="hint: partition fields: day"):
        compact_iceberg(catalog, NAME, sort_by="k", where={"month": "5"})
    with pytest.raises(plait.InvalidArgument) as caught:
        compact_iceberg(catalog, NAME, sort_by="k", where={"day": "mon"})
    assert str(caught.value) == (
        "`where` matches no partition: got `day=mon`\n"
        "hint: the partitions are `day=a b/ü`, `day=null`, `day=tue`"
    )
    (reason,) = compact_iceberg(catalog, NAME, sort_by="k", policy="size_tiered").reasons
    assert reason.startswith("3 files of ") and "no other file of the partition" in reason


def test_a_policy_by_levels_says_why_it_merges_nothing(catalog):
    create(catalog)
    for part in range(3):
        append(catalog, [part, 9], "v")
    given = {"sort_by": "k", "policy": "size_tiered"}
    (reason,) = compact_iceberg(catalog, NAME, **given).reasons
    assert "3 files of" in reason and "of level 0: fewer than merge_factor 10" in reason
    compact_iceberg(catalog, NAME, **given, merge_factor=3)
    append(catalog, [1, 2], "v")
    reasons = compact_iceberg(catalog, NAME, **given).reasons
    assert [why.partition(" of level ")[2][0] for why in reasons] == ["0", "1"]


def test_files_of_one_partition_may_lie_in_many_folders(catalog):
    # Layouts for object stores hash the names of files into folders.
    table = create(catalog, properties={"write.object-storage.enabled": "true"})
    for part in range(2):
        for keys in ([1, 2], [8, 9]):
            append(catalog, keys, f"of {part}")
    assert len({file["file_path"].rpartition("/")[0] for file in files(catalog)}) == 4
    before = rows(catalog)
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert len(report.groups) == 2 and rows(catalog) == before and len(files(catalog)) == 2
    assert table.location() in files(catalog)[0]["file_path"]


def test_renamed_dropped_and_added_columns_are_found_by_their_ids(catalog):
    from pyiceberg.types import LongType

    table = create(catalog)
    append(catalog, [1, 4], "old")
    with table.update_schema() as update:
        update.rename_column("v", "value")
        update.delete_column("day")
        update.add_column("w", LongType())
    table.append(pa.table({"k": [2, 3], "value": ["new"] * 2, "w": [7, 8]}))

    def found():
        return catalog.load_table(NAME).scan().to_arrow().sort_by("k").to_pylist()

    before = found()
    assert compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups[0].rows == 4
    assert found() == before and len(files(catalog)) == 1


def test_the_command_line_compacts_tables(catalog, tmp_path, capsys, monkeypatch):
    from plait.cli import main

    create(catalog)
    for part in range(3):
        append(catalog, [part, 9], "v")
    before = rows(catalog)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/lake.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/lake")
    compact = [sys.executable, "-m", "plait", "compact", NAME, "--sort-by", "k", "--yes"]
    done = subprocess.run([*compact, "--catalog", "lake"], capture_output=True, text=True)
    assert "merged 3 files into 1 file" in done.stdout, done.stderr
    assert rows(catalog) == before and len(files(catalog)) == 1
    assert main(["compact", NAME, "--format", "iceberg"]) == 2
    told = capsys.readouterr().err
    assert (
        "`--catalog` is missing\nhint: give the name of a catalog, such as --catalog lake" in told
    )
    with pytest.raises(plait.Unsupported, match="is a table of Iceberg"):
        plait.compact(catalog.load_table(NAME).location().removeprefix("file://"))


def rewritten(catalog, change):
    """The same table with other metadata, as another engine could have written it."""
    table = catalog.load_table(NAME)
    old = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(old.read_text())
    change(metadata)
    new = old.with_name(f"99999-{uuid.uuid4()}.metadata.json")
    new.write_text(json.dumps(metadata))
    catalog.drop_table(NAME)
    # PyIceberg registers a table that it cannot load, and says so.
    with contextlib.suppress(ValidationError):
        catalog.register_table(NAME, f"file://{new}")
    return table.location().removeprefix("file://")


def version_3(metadata):
    metadata.update({"format-version": 3, "next-row-id": 4})
    for snapshot in metadata["snapshots"]:
        snapshot.update({"first-row-id": 0, "added-rows": 2})


def version_3_with_keys(metadata):
    version_3(metadata)
    metadata["encryption-keys"] = [{"key-id": "1", "encrypted-key-metadata": "YQ=="}]


def version_3_with_default(metadata):
    version_3(metadata)
    for schema in metadata["schemas"]:
        schema["fields"][1]["initial-default"] = "x"


def default(metadata):
    for schema in metadata["schemas"]:
        schema["fields"][1]["initial-default"] = "x"


def encrypted(metadata):
    metadata["properties"]["encryption.key-id"] = "key"


def unknown_transform(metadata):
    for spec in metadata["partition-specs"]:
        field = {"source-id": 1, "field-id": 1000, "name": "z", "transform": "zorder"}
        spec["fields"] = [field]


def nested_default(metadata):
    field = {"id": 11, "name": "y", "required": False, "type": "int", "initial-default": 7}
    inner = {"type": "struct", "fields": [field]}
    listed = {"type": "list", "element-id": 10, "element": inner, "element-required": False}
    for schema in metadata["schemas"]:
        schema["fields"].append({"id": 9, "name": "x", "required": False, "type": listed})


def several_arguments(metadata):
    for spec in metadata["partition-specs"]:
        field = {"source-ids": [1, 2], "field-id": 1000, "name": "z", "transform": "bucket[4]"}
        spec["fields"] = [field]


def unknown_order(metadata):
    field = {"transform": "zorder", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    metadata["sort-orders"] = [{"order-id": 1, "fields": [field]}]
    metadata["default-sort-order-id"] = 1


def of_type(name, version=2):
    def change(metadata):
        if version == 3:
            version_3(metadata)
        for schema in metadata["schemas"]:
            schema["fields"].append({"id": 9, "name": "x", "required": False, "type": name})

    return change


def of_version(number):
    return lambda metadata: metadata.update({"format-version": number})


UNREAD = "has metadata that PyIceberg does not read: got "


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (of_version(0), f"{UNREAD}Input tag '0'"),
        (of_version(4), f"{UNREAD}Input tag '4'"),
        (of_type("later"), f"{UNREAD}`schemas.0.fields.3.type`: Unsupported field type: 'later'"),
        (of_type("variant", 3), "does not"),
        (of_type("geometry", 3), "does not"),
        (of_type("geography", 3), "does not"),
        (of_type("timestamp_ns", 3), "version that PyIceberg does not commit"),
        (of_type("timestamptz_ns", 3), "version that PyIceberg does not commit"),
        (of_type("unknown", 3), "version that PyIceberg does not commit"),
        (unknown_order, "metadata that PyIceberg does not commit: got Invalid source field k"),
        (several_arguments, f"{UNREAD}`partition-specs.0.fields.0`: Multi argument"),
        (nested_default, "has a column with a value where files lack it: got `x.element.y`"),
        (version_3, "has a format version that PyIceberg does not commit: got version 3"),
        (version_3_with_keys, "has a format version that PyIceberg does not commit"),
        (version_3_with_default, "has a format version that PyIceberg does not commit"),
        (default, "has a column with a value where files lack it: got `v`"),
        (encrypted, "is encrypted"),
        (unknown_transform, "is partitioned by an unknown transform: got `zorder`"),
        (of_type("timestamp_ns"), "of a type that format version 2 does not have: got `x` of time"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name_before_any_work(change, said, catalog):
    create(catalog)
    for part in range(3):
        append(catalog, [part, 5], "v")
    folder = rewritten(catalog, change)
    before = {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
    for yes in (False, True):
        with pytest.raises(plait.Unsupported, match=re.escape(said)) as caught:
            compact_iceberg(catalog, NAME, sort_by="k", yes=yes)
        assert NAME in str(caught.value) and caught.value.hint
    assert {path: path.read_bytes() for path in before} == before
    assert {path for path in Path(folder).rglob("*") if path.is_file()} == before.keys()


def statistics(metadata):
    said = {"snapshot-id": metadata["current-snapshot-id"], "file-size-in-bytes": 1}
    blobs = {"statistics-path": "file:///x.puffin", "file-footer-size-in-bytes": 1}
    metadata["statistics"] = [{**said, **blobs, "blob-metadata": []}]
    metadata["partition-statistics"] = [{**said, "statistics-path": "file:///x.parquet"}]


def identifiers(metadata):
    for schema in metadata["schemas"]:
        schema["identifier-field-ids"] = [1]
        schema["fields"][0]["required"] = True


def written_default(metadata):
    for schema in metadata["schemas"]:
        schema["fields"][1]["write-default"] = "x"


def written_by_merge_on_read(metadata):
    for change in ("delete", "update", "merge"):
        metadata["properties"][f"write.{change}.mode"] = "merge-on-read"
    metadata["properties"]["something.that.comes.later"] = "1"


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    "change", [statistics, identifiers, written_default, written_by_merge_on_read]
)
def test_what_rows_do_not_depend_on_is_kept(change, version, catalog):
    create(catalog, properties={"format-version": version})
    for part in range(3):
        append(catalog, [part, 5], "v")
    rewritten(catalog, change)
    before, settings = rows(catalog), catalog.load_table(NAME).properties
    assert len(compact_iceberg(catalog, NAME, sort_by="k").groups) == 1
    table = catalog.load_table(NAME)
    assert rows(catalog) == before and table.properties == settings
    assert len(files(catalog)) == 1
    # What is told of the snapshot before stays with that.
    kept = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    assert {said.snapshot_id for said in table.metadata.statistics} <= kept


@pytest.mark.parametrize("version", ["1", "2"])
def test_tables_of_known_versions_are_compacted(version, catalog):
    create(catalog, properties={"format-version": version})
    for part in range(3):
        append(catalog, [part, 5], "v")
    before = rows(catalog)
    assert len(compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups) == 1
    assert rows(catalog) == before
    assert catalog.load_table(NAME).metadata.format_version == int(version)


def test_branches_and_tags_keep_what_they_have(catalog):
    create(catalog)
    for part in range(3):
        append(catalog, [part, 5], "v")
    table = catalog.load_table(NAME)
    snapshot = table.current_snapshot().snapshot_id
    with table.manage_snapshots() as manage:
        manage.create_branch(snapshot, "test")
        manage.create_tag(snapshot, "kept")
    before = rows(catalog)
    assert len(compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups) == 1
    table = catalog.load_table(NAME)
    assert rows(catalog) == before and table.current_snapshot().snapshot_id != snapshot
    assert {table.refs()[name].snapshot_id for name in ("test", "kept")} == {snapshot}
    assert table.scan(snapshot_id=snapshot).to_arrow().num_rows == sum(before.values())


@pytest.mark.parametrize("transform", ["bucket", "truncate", "void", "identity"])
def test_partitions_by_every_kind_of_transform_are_compacted_apart(transform, catalog):
    from pyiceberg import transforms
    from pyiceberg.exceptions import NotInstalledError

    table = create(catalog)
    made = {
        "bucket": transforms.BucketTransform(2),
        "truncate": transforms.TruncateTransform(1),
        "void": transforms.VoidTransform(),
        "identity": transforms.IdentityTransform(),
    }[transform]
    with table.update_spec() as spec:
        spec.add_field("day", made, "part")
    try:
        for part in range(3):
            for day in ("mon", "tue"):
                append(catalog, [part, 5], "v", day)
    except NotInstalledError as error:
        pytest.skip(f"PyIceberg does not write it: {error}")
    before = rows(catalog)
    parts = {str(file["partition"]) for file in files(catalog)}
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert len(report.groups) == len(parts) and rows(catalog) == before
    assert {str(file["partition"]) for file in files(catalog)} == parts


@pytest.mark.parametrize("asked", ["2024-05-01", "19844"])
def test_partitions_are_shown_as_where_takes_them(asked, catalog):
    from pyiceberg.transforms import IdentityTransform

    schema = pa.schema([("k", pa.int64()), ("on", pa.date32())])
    table = catalog.create_table(NAME, schema)
    with table.update_spec() as spec:
        spec.add_field("on", IdentityTransform(), "on")
    for part in range(2):
        days = [dt.date(2024, 5, 1 + i % 2) for i in range(4)]
        table.append(pa.table([[part, part, part + 5, part + 5], days], schema=schema))
    report = compact_iceberg(catalog, NAME, sort_by="k", where={"on": asked}, yes=True)
    assert [group.folder for group in report.groups] == ["on=2024-05-01"]


def test_a_sort_order_by_a_transform_says_nothing_of_the_rows(catalog):
    from pyiceberg.transforms import BucketTransform

    table = create(catalog)
    with table.update_sort_order() as order:
        order.asc("k", BucketTransform(4))
    for part in range(2):
        append(catalog, [part, 5], "v")
    report = compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    assert len(report.groups) == 1
    (file,) = files(catalog)
    assert file["sort_order_id"] is None


def test_files_of_each_spec_are_compacted_by_themselves(catalog):
    table = create(catalog)
    for part in range(2):
        append(catalog, [part, 9], "old")
    with table.update_spec() as spec:
        spec.add_identity("day")
    for part in range(2):
        append(catalog, [part, 9], "new")
        append(catalog, [part, 9], "new", "tue")
    with table.update_spec() as spec:
        spec.remove_field("day")
        spec.add_identity("v")
    before = rows(catalog)
    report = compact_iceberg(catalog, NAME, sort_by="k", verify="content", yes=True)
    assert [group.folder for group in report.groups] == ["", "day=mon", "day=tue"]
    assert rows(catalog) == before
    assert sorted(file["spec_id"] for file in files(catalog)) == [0, 1, 1]
    assert {file["partition"]["day"] for file in files(catalog)} == {None, "mon", "tue"}
    # Readers leave out files by the partitions of their spec.
    found = catalog.load_table(NAME).scan("day = 'tue'").to_arrow()
    assert found.column("v").to_pylist() == ["new"] * 4
    assert not compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups


def test_a_partition_by_a_column_that_was_dropped_is_compacted(catalog):
    table = create(catalog, by_day=True)
    for part in range(2):
        append(catalog, [part, 9], "v")
    with table.update_spec() as spec:
        spec.remove_field("day")
    with table.update_schema() as update:
        update.delete_column("day")

    def found():
        return catalog.load_table(NAME).scan().to_arrow().sort_by("k").to_pylist()

    before = found()
    report = compact_iceberg(catalog, NAME, sort_by="k", verify="content", yes=True)
    assert [len(group.sources) for group in report.groups] == [2] and found() == before


def test_snapshots_of_compactions_are_replacements(catalog):
    table = create(catalog)
    for part in range(2):
        append(catalog, [part, 9], "v")
    compact_iceberg(catalog, NAME, sort_by="k", yes=True)
    table.refresh()
    # As it is stored, for readers of every engine.
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    (last,) = (
        snapshot["summary"]
        for snapshot in metadata["snapshots"]
        if snapshot["snapshot-id"] == metadata["current-snapshot-id"]
    )
    counts = {
        "operation": "replace",
        "added-data-files": "1",
        "deleted-data-files": "2",
        "added-records": "4",
        "deleted-records": "4",
        "total-records": "4",
        "total-data-files": "1",
        "changed-partition-count": "1",
    }
    assert counts.items() <= last.items()
    # A new file is as old as what was read.
    found = [
        (entry.status.name, entry.sequence_number, entry.file_sequence_number)
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    ]
    assert sorted(found) == [("ADDED", 2, 3), ("DELETED", 1, 1), ("DELETED", 2, 2)]


def test_tables_and_catalogs_that_are_not_there(catalog):
    with pytest.raises(plait.SourceNotFound, match="no such Iceberg table"):
        compact_iceberg(catalog, "db.absent", sort_by="k")
    with pytest.raises(plait.InvalidArgument, match="there is no such catalog") as caught:
        compact_iceberg("absent", NAME, sort_by="k")
    assert ".pyiceberg.yaml" in str(caught.value)


def test_an_empty_table_has_nothing_to_merge(catalog):
    create(catalog)
    assert compact_iceberg(catalog, NAME, sort_by="k", yes=True).groups == ()


def test_committing_twice_is_committing_once(catalog):
    create(catalog)
    for _ in range(3):
        append(catalog, [1, 2], "v")
    before = rows(catalog)
    table = Iceberg(catalog, NAME)
    first = table.commit

    def twice(change):
        assert first(change) == first(change)
        return first(change)

    table.commit = twice
    report = interleavings.run(table, interleavings.options(), "", lambda: None, between="_carried")
    assert report.lost == 0 and len(report.groups) == 1
    assert rows(catalog) == before and len(files(catalog)) == 1


# -- others in between -----------------------------------------------------------------------------


class Others:
    """What somebody else does, and what becomes of the rows."""

    def __init__(self, catalog, rng, by_day):
        self.catalog, self.rng, self.by_day = catalog, rng, by_day
        self.began = catalog.load_table(NAME)
        self.is_stale = False
        self.rows = rows(catalog)

    def table(self):
        return self.began if self.is_stale else self.catalog.load_table(NAME)

    def tried(self, act, expected):
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        try:
            act()
        except (CommitFailedException, ValidationException) as error:
            assert self.is_stale, error
        else:
            self.rows = expected

    def append(self):
        keys = [self.rng.randrange(50) for _ in range(3)]
        day = self.rng.choice(("mon", "tue"))
        append(self.catalog, keys, "appended", day)
        self.rows = self.rows + Counter((k, "appended", day) for k in keys)

    def delete(self):
        column, place = self.rng.choice((("v", 1), ("day", 2)))
        victim = self.rng.choice(sorted({row[place] for row in self.rows}))
        left = Counter({row: n for row, n in self.rows.items() if row[place] != victim})
        self.tried(lambda: self.table().delete(f"{column} == '{victim}'"), left)

    def overwrite(self):
        new = pa.table({"k": [7, 8], "v": ["over"] * 2, "day": ["mon"] * 2}, schema=SCHEMA)
        added = Counter([(7, "over", "mon"), (8, "over", "mon")])
        if self.rng.random() < 0.5:
            left = Counter({row: n for row, n in self.rows.items() if row[2] != "mon"})
            self.tried(lambda: self.table().overwrite(new, "day == 'mon'"), left + added)
        else:
            self.tried(lambda: self.table().overwrite(new), added)

    def compaction(self):
        compact_iceberg(self.catalog, NAME, sort_by="k", target_file_size=None, yes=True)


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", ["append", "delete", "overwrite", "compaction"])
@pytest.mark.parametrize("seed", interleavings.SEEDS)
def test_rows_are_right_whenever_others_commit(kind, seed, catalog):
    rng = random.Random(f"{kind} {seed}")
    by_day = rng.random() < 0.5
    create(catalog, by_day)
    for part in range(rng.randrange(2, 5)):
        keys = [rng.randrange(50) for _ in range(6)]
        append(catalog, keys, f"of {part}", rng.choice(("mon", "tue")))
    others = Others(catalog, rng, by_day)
    stages = interleavings.STAGES[:-1] if kind == "compaction" else interleavings.STAGES
    stage = rng.choice(stages)
    others.is_stale = stage == "stale"
    table = Iceberg(catalog, NAME)
    options = interleavings.options(min_commit_interval=rng.choice((0, "1min")))
    report = interleavings.run(table, options, stage, getattr(others, kind), between="_carried")
    context = (kind, seed, stage, str(report))
    assert rows(catalog) == others.rows, context
    assert not isinstance(report, plait.PlaitError), context
    if kind == "append" and stage in ("made", "looked"):
        assert report.lost == 0, context
    compact_iceberg(catalog, NAME, sort_by="k", target_file_size=None, yes=True)
    assert rows(catalog) == others.rows, context
    assert compact_iceberg(catalog, NAME, sort_by="k", target_file_size=None, yes=True).groups == ()
