"""Delta tables: rows stay the rows, whoever else commits; what cannot be kept is refused in words."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.table import compact_delta
from plait.table.delta import Delta

from .conftest import load

deltalake = pytest.importorskip("deltalake")
interleavings = load("interleavings")
pytestmark = pytest.mark.local

DAYS = ("mon", "tue")


def append(uri, keys, value, day=None):
    """One file of sorted rows."""
    columns = {"k": pa.array(sorted(keys), pa.int64()), "v": [value] * len(keys)}
    if day is not None:
        columns["day"] = [day] * len(keys)
    partitions = None if day is None else ["day"]
    deltalake.write_deltalake(uri, pa.table(columns), mode="append", partition_by=partitions)


def rows(uri):
    table = deltalake.DeltaTable(uri).to_pyarrow_table()
    columns = [table.column(name).to_pylist() for name in sorted(table.column_names)]
    return interleavings.counted(zip(*columns))


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "events")


def test_overlapping_files_become_one_and_a_second_run_does_nothing(uri):
    for part in range(4):
        append(uri, [part, part + 5], f"of {part}")
    before = rows(uri)
    dry = compact_delta(uri, sort_by="k", yes=False)
    assert dry.dry_run and "would merge 4 files in 1 group" in str(dry)
    report = compact_delta(uri, sort_by="k", verify="content", yes=True)
    assert rows(uri) == before
    table = deltalake.DeltaTable(uri)
    assert len(table.file_uris()) == 1 and report.version == table.version() == 4
    again = compact_delta(uri, sort_by="k", yes=True)
    assert again.groups == () and "nothing to merge" in str(again)
    assert deltalake.DeltaTable(uri).version() == 4
    assert table.history(1)[0]["plait.task"] in report.groups[0].outputs[0]
    assert table.transaction_version(f"plait.{table.history(1)[0]['plait.task']}") == 1
    # What was replaced can be read until it is vacuumed, and vacuum leaves what counts.
    assert (
        interleavings.counted(
            zip(*deltalake.DeltaTable(uri, version=3).to_pyarrow_table().to_pydict().values())
        )
        == before
    )
    removed = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(removed) == 4 and rows(uri) == before


def test_partitions_are_compacted_apart_and_by_choice(uri):
    for part in range(3):
        for day in ("a b/ü", "tue", None):
            columns = {"k": [part, 9], "day": pa.array([day] * 2, pa.string())}
            deltalake.write_deltalake(uri, pa.table(columns), mode="append", partition_by=["day"])
    before = rows(uri)
    report = compact_delta(uri, sort_by="k", where={"day": ["tue", "a b/ü"]}, yes=True)
    assert [group.folder for group in report.groups] == ["day=a b/ü", "day=tue"]
    assert rows(uri) == before
    report = compact_delta(uri, sort_by="k", yes=True)
    assert [group.folder for group in report.groups] == ["day=__HIVE_DEFAULT_PARTITION__"]
    assert rows(uri) == before
    table = deltalake.DeltaTable(uri)
    assert len(table.file_uris()) == 3
    assert len(table.file_uris(file_pruning_predicate=[("day", "=", "a b/ü")])) == 1
    with pytest.raises(plait.UnknownColumn, match="hint: partition columns: day"):
        compact_delta(uri, sort_by="k", where={"month": "5"})
    with pytest.raises(plait.InvalidArgument, match="`where` does not name partitions"):
        compact_delta(uri, sort_by="k", where=[("day", "=", "tue")])
    with pytest.raises(plait.InvalidArgument) as caught:
        compact_delta(uri, sort_by="k", where={"day": ["mon", "wed"]})
    assert str(caught.value) == (
        "`where` matches no partition: got `day=mon, day=wed`\n"
        "hint: the partitions are `day=__HIVE_DEFAULT_PARTITION__`, `day=a b/ü`, `day=tue`"
    )


def test_a_policy_by_levels_says_why_it_merges_nothing(uri):
    for part in range(3):
        append(uri, [part, part + 5], "small")
    given = {"sort_by": "k", "policy": "size_tiered", "merge_factor": 4}
    (reason,) = compact_delta(uri, **given).reasons
    assert "3 files of" in reason and "of level 0: fewer than merge_factor 4" in reason
    # What is merged once is of level 1, as its footer says.
    compact_delta(uri, **{**given, "merge_factor": 3})
    append(uri, [1, 2], "small")
    reasons = compact_delta(uri, **given).reasons
    assert [why.partition(" of level ")[2][0] for why in reasons] == ["0", "1"]
    (reason,) = compact_delta(uri, **given, mature_size=1).reasons
    assert reason.endswith("large enough, from mature_size 1 B on")


UTC = dt.timezone.utc
MOMENT = dt.datetime(2020, 1, 1, 1, 2, 3, 456789)
PARTITIONS = {
    "bool": pa.array([True, False]),
    "day": pa.array([dt.date(2020, 1, 1), None]),
    "utc": pa.array([MOMENT.replace(tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
    "local": pa.array([MOMENT, dt.datetime(1960, 1, 1)], pa.timestamp("us")),
    "decimal": pa.array([Decimal("1.50"), Decimal("-2.00")]),
    "float": pa.array([1.0, 1e30]),
    "bytes": pa.array([b"ab", b"c/d"]),
    "int": pa.array([1, -1], pa.int8()),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partition_values_of_every_type_are_kept(name, uri):
    for _ in range(2):
        table = pa.table({"k": [1, 2], name: PARTITIONS[name]})
        deltalake.write_deltalake(uri, table, mode="append", partition_by=[name])
    before = rows(uri)

    def values():
        actions = pa.table(deltalake.DeltaTable(uri).get_add_actions(flatten=True))
        return set(actions.column(f"partition.{name}").to_pylist())

    found = values()
    report = compact_delta(uri, sort_by="k", yes=True)
    assert rows(uri) == before and sum(group.rows for group in report.groups) == 4
    assert values() == found and len(found) == len(set(PARTITIONS[name].to_pylist()))
    assert compact_delta(uri, sort_by="k", yes=True).groups == ()


def test_statistics_hold_for_every_row_and_readers_skip_by_them(uri):
    long = "é" * 50
    columns = {
        "k": [1, 2],
        "text": [long, "x"],
        "bool": [True, False],
        "decimal": [Decimal("1.50"), Decimal("-2.25")],
        "wide": pa.array([Decimal(10**12), Decimal(5)], pa.decimal128(38, 0)),
        "float": [1.5, float("nan")],
        "day": [dt.date(1950, 2, 3), None],
        "utc": pa.array([MOMENT.replace(tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
        "local": pa.array([MOMENT, dt.datetime(1960, 1, 1, 0, 0, 0, 1)], pa.timestamp("us")),
        "s": [{"a": 1, "b": None}, None],
        "list": [[1], None],
        "none": pa.array([None, None], pa.int64()),
    }
    for _ in range(2):
        deltalake.write_deltalake(uri, pa.table(columns), mode="append")
    deltalake.DeltaTable(uri)
    before = deltalake.DeltaTable(uri)
    compact_delta(uri, sort_by="k", yes=True)
    (log,) = Path(uri, "_delta_log").glob("*02.json")
    (add,) = [json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line]
    told = json.loads(add["stats"])
    assert not add["dataChange"] and told["numRecords"] == 4
    assert told["minValues"] == {
        "k": 1,
        "text": "x",
        "bool": False,
        "decimal": -2.25,
        "wide": 5.0,
        "float": 1.5,
        "day": "1950-02-03",
        "utc": "2020-01-01T01:02:03.456Z",
        "local": "1960-01-01T00:00:00.000",
        "s": {"a": 1},
    }
    assert told["maxValues"] == {
        "k": 2,
        "text": "é" * 32 + "\U0010ffff",
        "bool": True,
        "decimal": 1.5,
        "wide": 1e12,
        "float": 1.5,  # as delta-rs logged it: it leaves NaN out
        "day": "1950-02-03",
        "utc": "2020-01-01T01:02:03.457Z",
        "local": "2020-01-01T01:02:03.457",
        "s": {"a": 1},
    }
    nulls = {name: 0 for name in columns if name != "list"}
    assert told["nullCount"] == {**nulls, "day": 2, "s": {"a": 2, "b": 4}, "none": 4}
    table = deltalake.DeltaTable(uri)
    seen = pa.table(table.get_add_actions(flatten=True)).to_pylist()[0]
    assert seen["num_records"] == 4 and seen["min.text"] == "x" and seen["max.k"] == 2
    assert seen["max.local"] == dt.datetime(2020, 1, 1, 1, 2, 3, 457000)
    for filters in (
        ("text", "=", long),
        ("k", ">", 2),
        ("bool", "=", True),
        ("wide", ">", Decimal(6)),
    ):
        found = table.to_pyarrow_table(filters=[filters]).num_rows
        assert found == before.to_pyarrow_table(filters=[filters]).num_rows, filters


def test_statistics_are_of_the_columns_that_the_table_names(uri):
    table = pa.table({"k": [1, 2], "a": [1, 2], "b": [3, 4]})
    settings = {"delta.dataSkippingStatsColumns": "b"}
    deltalake.write_deltalake(uri, table, configuration=settings)
    deltalake.write_deltalake(uri, table, mode="append")
    compact_delta(uri, sort_by="k", yes=True)
    (log,) = Path(uri, "_delta_log").glob("*02.json")
    (add,) = [json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line]
    assert json.loads(add["stats"])["maxValues"] == {"b": 4}


def test_columns_that_came_later_are_null_in_older_rows(uri):
    append(uri, [1, 4], "old")
    later = pa.table({"k": [2, 3], "v": ["new", "new"], "w": [7, 8]})
    deltalake.write_deltalake(uri, later, mode="append", schema_mode="merge")
    before = rows(uri)
    assert compact_delta(uri, sort_by="k", yes=True).groups[0].rows == 4
    assert rows(uri) == before


def test_committing_twice_is_committing_once(uri):
    for _ in range(3):
        append(uri, [1, 2], "v")
    before = rows(uri)
    table = Delta(uri, None, guard=True)
    changes = []
    first = table.commit

    def twice(change):
        changes.append(change)
        assert first(change) == first(change)
        return first(change)

    table.commit = twice
    from plait.table.here import run_here
    from plait.table.run import compact_table

    options = interleavings.options()
    report = compact_table(table, options, run_here(options, threads=1))
    assert len(changes) == 1 and report.lost == 0
    assert rows(uri) == before and deltalake.DeltaTable(uri).version() == 3


@pytest.mark.parametrize("kind", ["delta", "folder"])
def test_an_output_that_is_not_as_it_was_written_is_not_committed(kind, uri, tmp_path, monkeypatch):
    if kind == "delta":
        append(uri, [1, 3, 5], "a")
        append(uri, [2, 4, 6], "b")
    else:
        uri = str(tmp_path / "folder")
        Path(uri).mkdir()
        for name, keys in (("a", [1, 3, 5]), ("b", [2, 4, 6])):
            pq.write_table(pa.table({"k": keys}), f"{uri}/{name}.parquet")
    execute = plait.Plan.execute

    def cut_short(plan, *args, **options):
        report = execute(plan, *args, **options)
        (output,) = report.outputs
        pq.write_table(pq.read_table(output.path).slice(0, 2), output.path)
        return report

    monkeypatch.setattr(plait.Plan, "execute", cut_short)
    with pytest.raises(plait.StorageError, match="not the one that was written"):
        plait.compact(uri, sort_by="k", policy="full")
    assert pa.table(plait.scan(uri, ["k"])).num_rows == 6


def test_options_are_checked_where_there_is_nothing_to_compact(uri, capsys):
    append(uri, [1], "a")
    for call in (plait.compact, compact_delta):
        with pytest.raises(plait.InvalidArgument, match="verify"):
            call(uri, verify="bogus", yes=False)
        with pytest.raises(TypeError, match=f"{call.__name__}.. got an unexpected"):
            call(uri, bogus=1)
    from plait.cli import main

    assert main(["compact", uri, "--yes", "--dry-run"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_a_table_may_be_named_by_a_url(uri):
    for _ in range(2):
        append(uri, [1, 2], "v")
    before = rows(uri)
    assert len(compact_delta(f"file://{uri}", sort_by="k", yes=True).groups) == 1
    assert rows(uri) == before and len(deltalake.DeltaTable(uri).file_uris()) == 1


def test_a_restored_table_is_compacted_again(uri):
    for _ in range(3):
        append(uri, [1, 2], "v")
    before = rows(uri)
    compact_delta(uri, sort_by="k", yes=True)
    deltalake.DeltaTable(uri).restore(2)
    assert len(deltalake.DeltaTable(uri).file_uris()) == 3
    # The same files make the same output, under a name that the log has removed before.
    assert len(compact_delta(uri, sort_by="k", yes=True).groups) == 1
    assert rows(uri) == before and len(deltalake.DeltaTable(uri).file_uris()) == 1


@pytest.mark.parametrize(
    ("settings", "guarded"),
    [
        ({}, True),
        ({"delta.appendOnly": "true"}, False),
        ({"delta.enableChangeDataFeed": "true"}, False),
    ],
)
def test_removed_files_say_that_data_changed_where_that_is_harmless(settings, guarded, uri):
    for part in range(2):
        table = pa.table({"k": [part, 5]})
        deltalake.write_deltalake(uri, table, mode="append", configuration=settings)
    compact_delta(uri, sort_by="k", yes=True)
    (log,) = Path(uri, "_delta_log").glob("*02.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    removed = [action["remove"]["dataChange"] for action in actions if "remove" in action]
    assert removed == [guarded] * 2


def test_the_command_line_compacts_tables(uri, capsys):
    from plait.cli import main

    for part in range(3):
        for day in DAYS:
            append(uri, [part, 9], "v", day)
    before = rows(uri)
    assert (
        main(["compact", uri, "--sort-by", "k", "--where", "day=mon", "--json", "--dry-run"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["dry_run"] and told["format"] == "delta" and told["policy"] == "overlap"
    assert [group["folder"] for group in told["groups"]] == ["day=mon"]
    assert main(["compact", uri, "--sort-by", "k", "--no-guard", "--yes"]) == 0
    assert "merged 6 files into 2 files" in capsys.readouterr().out and rows(uri) == before
    assert main(["compact", uri, "--mature-age", "7d"]) == 2
    assert "`--mature-age` is not an option of the format: got delta" in capsys.readouterr().err
    assert main(["compact", uri, "--format", "folder"]) == 3
    assert "is a table of Delta, not a plain folder" in capsys.readouterr().err
    with pytest.raises(plait.Unsupported, match="hint: vacuum the table"):
        plait.expire(uri, retention=0)


# -- what is refused -------------------------------------------------------------------------------


def edit_log(uri, change):
    """Rewrites the actions of the first version."""
    (log,) = Path(uri, "_delta_log").glob("*00.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("\n".join(json.dumps(action) for action in change(actions)) + "\n")


def with_feature(feature, reader=True, **add):
    def change(actions):
        for action in actions:
            if "protocol" in action:
                action["protocol"] = {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": [feature] if reader else [],
                    "writerFeatures": [feature],
                }
            if "add" in action:
                action["add"].update(add)
        return actions

    return change


def test_rows_under_a_deletion_vector_are_left_out(uri):
    for part in range(2):
        append(uri, range(40), f"v{part}")
    # A vector in the log itself, the example of the protocol: rows 3, 4, 7, 11, 18 and 29.
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    edit_log(uri, with_feature("deletionVectors", deletionVector=vector))
    (group,) = compact_delta(uri, sort_by="k", yes=True).groups
    assert group.rows == 74 and deltalake.DeltaTable(uri).version() == 2
    (path,) = deltalake.DeltaTable(uri).file_uris()
    left = [key for key in range(40) if key not in (3, 4, 7, 11, 18, 29)]
    assert pq.read_table(path).column("k").to_pylist() == sorted([*left, *range(40)])


def test_a_table_that_could_have_deletion_vectors_and_has_none_is_compacted(uri):
    for _ in range(2):
        append(uri, [1, 2, 3], "v")
    edit_log(uri, with_feature("deletionVectors"))
    assert len(compact_delta(uri, sort_by="k", yes=True).groups) == 1
    # delta-rs reads no rows of such tables.
    (path,) = deltalake.DeltaTable(uri).file_uris()
    assert pq.read_table(path).column("k").to_pylist() == [1, 1, 2, 2, 3, 3]


def everything(uri):
    """All files of a table, log and data, and what they hold."""
    return {path: path.read_bytes() for path in Path(uri).rglob("*") if path.is_file()}


# Every feature of the protocol, and whether tables that have it are compacted.
FEATURES = {
    "appendOnly": True,
    "changeDataFeed": True,
    "checkConstraints": True,
    "deletionVectors": True,
    "generatedColumns": True,
    "invariants": True,
    "timestampNtz": True,
    "v2Checkpoint": True,
    "variantType": True,
    "allowColumnDefaults": False,
    "catalogManaged": False,
    "catalogOwned-preview": False,
    "checkpointProtection": False,
    "clustering": False,
    "collations-preview": False,
    "columnMapping": True,  # nothing is mapped: see test_delta_mapping
    "coordinatedCommits-preview": False,
    "domainMetadata": False,
    "icebergCompatV1": False,
    "icebergCompatV2": False,
    "icebergCompatV3": False,
    "icebergWriterCompatV1": False,
    "icebergWriterCompatV3": False,
    "identityColumns": False,
    "inCommitTimestamp": False,
    "materializePartitionColumns": False,
    "rowTracking": False,
    "typeWidening": False,
    "typeWidening-preview": False,
    "vacuumProtocolCheck": False,
    "variantShredding": False,
    "variantShredding-preview": False,
    "variantType-preview": False,
    "redirectReaderWriter-preview": False,
    "redirectWriterOnly-preview": False,
    "managedCommit-preview": False,
    "rowTracking, as nobody spells it": False,
    "something that comes later": False,
}
# Those that readers must know, too.
READER_FEATURES = {
    "catalogManaged",
    "catalogOwned-preview",
    "columnMapping",
    "redirectReaderWriter-preview",
    "deletionVectors",
    "something that comes later",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantShredding",
    "variantShredding-preview",
    "variantType",
    "variantType-preview",
}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_is_kept_or_the_table_is_refused_by_its_name_before_any_work(feature, uri):
    for part in range(2):
        append(uri, [part, 5], "v")
    edit_log(uri, with_feature(feature, reader=feature in READER_FEATURES))
    before = everything(uri)
    if FEATURES[feature]:
        assert len(compact_delta(uri, sort_by="k", yes=True).groups) == 1
        (path,) = deltalake.DeltaTable(uri).file_uris()
        assert pq.read_table(path).column("k").to_pylist() == [0, 1, 5, 5]
        return
    for yes in (False, True):
        with pytest.raises(plait.Unsupported, match=feature.partition("M")[0]) as caught:
            compact_delta(uri, sort_by="k", yes=yes)
        assert caught.value.path == uri and caught.value.hint
    assert everything(uri) == before


@pytest.mark.parametrize("listed", ["reader", "both"])
def test_an_unknown_feature_among_known_ones_is_the_one_that_is_named(listed, uri):
    for part in range(2):
        append(uri, [part, 5], "v")
    known = sorted(feature for feature, is_kept in FEATURES.items() if is_kept)

    def change(actions):
        for action in actions:
            if "protocol" in action:
                readers = [f for f in known if f in READER_FEATURES]
                action["protocol"] = {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": [*readers, "laterStill"],
                    "writerFeatures": [*known, *(["laterStill"] if listed == "both" else [])],
                }
        return actions

    edit_log(uri, change)
    before = everything(uri)
    with pytest.raises(plait.Unsupported, match="got `laterStill`"):
        compact_delta(uri, sort_by="k")
    assert everything(uri) == before


@pytest.mark.parametrize("version", range(1, 9))
def test_a_writer_version_without_a_list_is_kept_or_refused_before_any_work(version, uri):
    for part in range(2):
        append(uri, [part, 5], "v")

    def change(actions):
        for action in actions:
            if "protocol" in action:
                reader = 2 if version > 4 else 1
                action["protocol"] = {"minReaderVersion": reader, "minWriterVersion": version}
        return actions

    edit_log(uri, change)
    if version in (6, 8):
        with pytest.raises(plait.PlaitError) as caught:
            compact_delta(uri, sort_by="k", yes=True)
        assert "version" in str(caught.value).lower()
        assert len(list(Path(uri).glob("*.parquet"))) == 2
    elif version != 7:  # which has a list, always
        assert len(compact_delta(uri, sort_by="k", yes=True).groups) == 1


def test_mapped_columns_are_refused(uri):
    append(uri, [1, 2], "v")
    append(uri, [1, 2], "v")

    def mapped(actions):
        for action in actions:
            if "metaData" in action:
                action["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
        return actions

    edit_log(uri, mapped)
    with pytest.raises(plait.Unsupported, match="maps column names"):
        compact_delta(uri, sort_by="k", yes=True)


def test_a_table_that_is_not_there_and_rows_that_are_not_sorted(uri):
    with pytest.raises(plait.SourceNotFound, match="there is no such Delta table"):
        compact_delta(uri, sort_by="k")
    deltalake.write_deltalake(uri, pa.table({"k": [3, 1, 2]}))
    deltalake.write_deltalake(uri, pa.table({"k": [1, 2]}), mode="append")
    report = compact_delta(uri, sort_by="k", yes=True)
    (left,) = report.skipped
    assert report.groups == () and left.path.startswith(uri)
    assert left.why.startswith("key goes backwards: column `k`, row 1")
    assert deltalake.DeltaTable(uri).version() == 1


# -- others in between -----------------------------------------------------------------------------


class Others:
    """What somebody else does, and what becomes of the rows."""

    def __init__(self, uri, rng, days):
        self.uri, self.rng, self.days = uri, rng, days
        self.began = deltalake.DeltaTable(uri)
        self.is_stale = False
        self.rows = rows(uri)
        self.refused = None

    def table(self):
        return self.began if self.is_stale else deltalake.DeltaTable(self.uri)

    def tried(self, act, expected):
        try:
            act()
        except deltalake.exceptions.CommitFailedError as error:
            assert self.is_stale, error
            self.refused = error
        else:
            self.rows = expected

    def append(self):
        keys = [self.rng.randrange(50) for _ in range(3)]
        day = self.rng.choice(self.days) if self.days else None
        append(self.uri, keys, "appended", day)
        added = [(day, k, "appended") if day else (k, "appended") for k in keys]
        self.rows = self.rows + Counter(added)

    def delete(self):
        place = 0 if self.days else 1
        victim = self.rng.choice(sorted({row[place] for row in self.rows}))
        left = Counter({row: n for row, n in self.rows.items() if row[place] != victim})
        column = "day" if self.days else "v"
        self.tried(lambda: self.table().delete(f"{column} = '{victim}'"), left)

    def overwrite(self):
        columns = {
            "k": [7, 8],
            "v": ["over", "over"],
            **({"day": ["mon"] * 2} if self.days else {}),
        }
        new = pa.table(columns)
        if self.days and self.rng.random() < 0.5:
            left = Counter({row: n for row, n in self.rows.items() if row[0] != "mon"})
            how = {"mode": "overwrite", "predicate": "day = 'mon'"}
        else:
            left, how = Counter(), {"mode": "overwrite"}
        added = (
            [("mon", 7, "over"), ("mon", 8, "over")] if self.days else [(7, "over"), (8, "over")]
        )
        write = deltalake.write_deltalake
        self.tried(lambda: write(self.table(), new, **how), left + Counter(added))

    def compaction(self):
        kind = self.rng.choice(("ours", "compact", "z-order"))
        if kind == "ours" and not self.is_stale:
            compact_delta(self.uri, sort_by="k", target_file_size=None, yes=True)
        elif kind == "z-order":
            self.tried(lambda: self.table().optimize.z_order(["k"]), self.rows)
        else:
            self.tried(self.table().optimize.compact, self.rows)


@pytest.mark.parametrize("kind", ["append", "delete", "overwrite", "compaction"])
@pytest.mark.parametrize("seed", interleavings.SEEDS)
def test_rows_are_right_whenever_others_commit(kind, seed, uri):
    rng = random.Random(f"{kind} {seed}")
    days = DAYS if rng.random() < 0.5 else ()
    for part in range(rng.randrange(2, 6)):
        keys = [rng.randrange(50) for _ in range(6)]
        append(uri, keys, f"of {part}", rng.choice(days) if days else None)
    others = Others(uri, rng, days)
    stage = rng.choice(interleavings.STAGES)
    others.is_stale = stage == "stale"
    table = Delta(uri, None, guard=True)
    options = interleavings.options(min_commit_interval=rng.choice((0, "1min")))
    report = interleavings.run(table, options, stage, getattr(others, kind), between="_actions")
    context = (kind, seed, stage, str(report))
    assert rows(uri) == others.rows, context
    assert not isinstance(report, plait.PlaitError), context
    if kind == "append" and stage in ("made", "looked"):
        assert report.lost == 0, context
    # What delta-rs rewrote is not sorted any more: it is left alone.
    while report.groups:
        report = compact_delta(uri, sort_by="k", target_file_size=None, yes=True)
        assert rows(uri) == others.rows, context


def test_a_delete_keeps_the_level_of_what_it_rewrites(tmp_path):
    """Otherwise `size_tiered` merges old rows with the newest ones."""
    table = plait.Table(tmp_path, sort_by="k")
    for number in range(2):
        table.append(pa.table({"k": [number, 10 + number, 20]}))
    table.compact(policy="full")
    table.delete("k = 20")
    table.append(pa.table({"k": [30]}))
    levels = [
        pq.read_metadata(tmp_path / file.name).metadata[b"plait.merge_level"]
        for file in table.files()
    ]
    assert levels == [b"1", b"0"]
    assert pa.table(table.read())["k"].to_pylist() == [0, 1, 10, 11, 30]
