"""What is refused of Delta tables whose columns are mapped, and what `plait.scan` reads of them."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import plait
from plait._logs.delta import DeltaLog
from plait.table import compact_delta

from .conftest import load

pytest.importorskip("deltalake")
mapped = load("mapped_tables")
Column, MappedTable, counted = mapped.Column, mapped.MappedTable, mapped.counted
K, V, DAY, MODES, small = mapped.K, mapped.V, mapped.DAY, mapped.MODES, mapped.small
pytestmark = pytest.mark.local


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def everything(table):
    return sorted((str(p), p.stat().st_mtime_ns) for p in Path(table.uri).rglob("*") if p.is_file())


BROKEN = {
    "no physical name": (K, Column("v", None, 2, "string")),
    "two columns have one physical name": (K, Column("v", "col-k1", 2)),
    "two columns have one field id": (K, Column("v", "col-v2", 1)),
    "no field id": (K, Column("v", "col-v2", None)),
    "of one name": (K, Column("k", "col-v2", 2)),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_mapping_that_does_not_tell_columns_apart_is_refused_before_any_work(
    what, mode, tmp_path
):
    table, _ = small(tmp_path, mode)
    table.columns = BROKEN[what]
    table.commit(table.metadata())
    before = everything(table)
    for call in (lambda: compact_delta(table.uri, sort_by="k"), lambda: plait.scan(table.uri)):
        with pytest.raises(plait.CorruptSource, match=what) as caught:
            call()
        assert caught.value.path == table.uri and caught.value.hint and caught.value.got
    assert everything(table) == before


def stored(name, id_):
    metadata = None if id_ is None else {"PARQUET:field_id": str(id_)}
    return pa.field(name, pa.int64(), metadata=metadata)


FOREIGN = {
    "another id": ([stored("col-k1", 7)], "field id of another", MODES),
    "another name": ([stored("k", 1)], "another name than in the table", MODES),
    "no ids": ([stored("col-k1", None)], "a file has none", ("id",)),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_files_that_have_other_columns_stay_as_they_are(case, mode, tmp_path):
    fields, what, modes = FOREIGN[case]
    table, _ = small(tmp_path, mode)
    name = table.append([{"k": 9}], fields=fields)
    before = everything(table)
    if mode not in modes:
        assert compact_delta(table.uri, sort_by="k").groups
        return
    with pytest.raises(plait.Unsupported, match=what):
        plait.scan(table.uri)
    assert everything(table) == before
    for yes in (False, True):
        report = compact_delta(table.uri, sort_by="k", yes=yes)
        (skipped,) = report.skipped
        assert skipped.path == str(Path(table.uri, name)) and re.search(what, skipped.why)
        (group,) = report.groups
        assert not any(source.endswith(name) for source in group.sources)
    assert name in table.live() and len(table.live()) == 2


def test_a_damaged_file_stays_and_is_reported(mode, tmp_path):
    table, _ = small(tmp_path, mode)
    name = table.append([{"k": 9}])
    Path(table.uri, name).write_bytes(b"PAR1 damaged PAR1")
    report = compact_delta(table.uri, sort_by="k")
    assert [skipped.path for skipped in report.skipped] == [str(Path(table.uri, name))]
    assert len(report.groups) == 1 and len(table.live()) == 2


def test_a_mode_without_the_feature_is_refused(mode, tmp_path):
    old = {"minReaderVersion": 1, "minWriterVersion": 4}
    table, _ = small(tmp_path, mode, protocol=old)
    for call in (lambda: compact_delta(table.uri, sort_by="k"), lambda: plait.scan(table.uri)):
        with pytest.raises(plait.Unsupported, match="without the feature"):
            call()
    table.properties["delta.columnMapping.mode"] = "other"
    table.commit({"protocol": mapped.LISTED}, table.metadata())
    with pytest.raises(plait.Unsupported, match="mode `other`"):
        compact_delta(table.uri, sort_by="k")


def test_changes_and_sorted_reads_are_refused_by_name(mode, tmp_path):
    table, _ = small(tmp_path, mode, properties={"plait.sort_by": "k"})
    before = everything(table)
    more = pa.table({"k": [1]})
    for call in (
        lambda: plait.Table(table.uri).append(more),
        lambda: plait.Table(table.uri).delete("k = 1"),
        lambda: plait.read(table.uri),
        lambda: plait.read(table.uri, where="k = 1"),
        lambda: plait.merge(table.uri, str(tmp_path / "out"), sort_by="k"),
        lambda: plait.plan(table.uri, sort_by="k"),
        lambda: plait.adopt(table.uri, sort_by="k"),
        lambda: plait.scan([table.uri, table.uri]),
        lambda: plait.scan(table.uri, schema=pa.schema({"k": pa.int64()})),
        lambda: plait.scan(table.uri, mode="follow"),
        lambda: DeltaLog(table.uri, None).snapshot("append"),
        lambda: DeltaLog(table.uri, None).snapshot("delete"),
    ):
        with pytest.raises(plait.Unsupported, match=f"maps column names.*`{mode}`") as caught:
            call()
        assert caught.value.hint
    assert everything(table) == before


def test_a_rule_for_rows_of_one_key_is_refused(tmp_path):
    table, _ = small(tmp_path, properties={"plait.sort_by": "k", "plait.on_duplicate": "keep_last"})
    with pytest.raises(plait.Unsupported, match="maps column names"):
        compact_delta(table.uri)


# -- plait.scan --------------------------------------------------------------------------------------


def scanned(table, **options):
    return counted(pa.table(plait.scan(table.uri, **options)).to_pylist())


def test_a_scan_reads_columns_by_their_ids(mode, tmp_path):
    members = (Column("x", "col-x5", 5), Column("y", "col-y6", 6, "timestamp"))
    columns = (K, V, Column("s", "col-s4", 4, members), Column("l", "col-l7", 7, ["long"]))
    table = MappedTable(tmp_path / "t", columns, mode)
    row = {"k": 1, "v": "a", "s": {"x": 2, "y": None}, "l": [1]}
    table.append([row])
    assert scanned(table) == table.rows() == counted([row])
    table.rename("k", "v2")
    table.rename("v", "k")
    table.drop("l")
    members = (Column("y", "col-x5", 5), Column("x", "col-y6", 6, "timestamp"), Column("z", "z", 9))
    table.columns = [
        c if c.name != "s" else Column("s", "col-s4", 4, members) for c in table.columns
    ]
    table.commit(table.metadata())
    table.add(Column("l", "col-l8", 8))
    table.append([{"v2": 3, "k": "b", "s": {"y": 5, "z": 6}, "l": 7}])
    expected = [{"v2": 1, "k": "a", "s": {"y": 2, "x": None, "z": None}, "l": None}]
    expected.append({"v2": 3, "k": "b", "s": {"y": 5, "x": None, "z": 6}, "l": 7})
    assert scanned(table) == counted(expected)
    found = pa.table(plait.scan(table.uri, ["l", "k", "s.y"]))
    assert found.column_names == ["l", "k", "s"]
    assert counted(found.to_pylist()) == counted(
        [{"l": row["l"], "k": row["k"], "s": {"y": row["s"]["y"]}} for row in expected]
    )
    with pytest.raises(plait.UnknownColumn):
        plait.scan(table.uri, ["v"])
    compact_delta(table.uri, sort_by="v2", policy="full")
    assert len(table.live()) == 1 and scanned(table) == counted(expected)


def test_a_scan_has_the_columns_of_partitions(mode, tmp_path):
    table = MappedTable(tmp_path / "t", (K, DAY, V), mode, by=["day"])
    table.append([{"k": 1, "day": "mon", "v": "a"}])
    table.append([{"k": 2, "day": None, "v": "b"}])
    table.rename("day", "weekday")
    table.rename("v", "day")
    assert scanned(table) == table.rows()
    assert pa.table(plait.scan(table.uri, ["weekday"])).num_rows == 2
    assert scanned(table, partitions="hive") == table.rows()


def test_a_scan_refuses_rows_under_a_vector(mode, tmp_path, monkeypatch):
    pytest.importorskip("pyroaring")
    vectors = load("vectors")
    monkeypatch.setattr(vectors, "FEATURE", mapped.LISTED)
    table, _ = small(tmp_path, mode)
    vectors.delete(table.uri, "part-0.parquet", [1])
    with pytest.raises(plait.Unsupported, match="deleted by a deletion vector"):
        plait.scan(table.uri)
    assert plait.compact(table.uri, sort_by="k", policy="full").groups
    assert scanned(table) == table.rows()
