"""Delta tables whose columns are mapped: files have physical names and field ids, callers do not see.

DataFusion reads the tables through delta-rs, all of them and by conditions; rows are those written.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import plait
from plait.table import compact_delta
from plait.table.delta import Delta

from .conftest import load

pytest.importorskip("deltalake")
mapped = load("mapped_tables")
Column, MappedTable, counted = mapped.Column, mapped.MappedTable, mapped.counted
K, V, DAY, small = mapped.K, mapped.V, mapped.DAY, mapped.small
pytestmark = pytest.mark.local


@pytest.fixture(params=mapped.MODES)
def mode(request):
    return request.param


def compacted(table, **options):
    """Compacts; the rows stay, whoever reads them and by whichever condition."""
    conditions = ["true", f"{table.columns[0].name} > 4", f"{table.columns[0].name} IS NULL"]
    before = [table.rows(where) for where in conditions]
    report = compact_delta(table.uri, **{"verify": "content", **options})
    assert [table.rows(where) for where in conditions] == before
    return report


@pytest.mark.parametrize("protocol", [mapped.LEGACY, mapped.LISTED], ids=["versions", "features"])
def test_outputs_keep_physical_names_and_field_ids(protocol, mode, tmp_path):
    table, rows = small(tmp_path, mode, protocol=protocol)
    report = compacted(table, sort_by="k")
    assert [group.sort_by for group in report.groups] == ["k"]
    schema = table.schema()
    assert mapped.ids(schema) == {"col-k1": 1, "col-v2": 2}
    assert table.rows() == counted(rows)
    (name,) = table.live()
    assert pq.read_table(Path(table.uri, name))["col-k1"].to_pylist() == [0, 1, 2, 5, 6, 7]
    assert not compacted(table, sort_by="k").groups
    stats = json.loads(table.live()[name]["stats"])
    assert stats["minValues"] == {"col-k1": 0, "col-v2": "of 0"}
    assert stats["maxValues"] == {"col-k1": 7, "col-v2": "of 2"}
    assert stats["nullCount"] == {"col-k1": 0, "col-v2": 3}


def test_columns_of_the_order_may_have_been_renamed(mode, tmp_path):
    table, rows = small(tmp_path, mode)
    table.rename("k", "a key, of rows")
    table.rename("v", "k")
    with pytest.raises(plait.UnknownColumn, match=r"no such sort column.*`v`") as caught:
        compact_delta(table.uri, sort_by="v")
    assert "a key, of rows" in caught.value.hint and caught.value.column == "v"
    report = compact_delta(table.uri, sort_by='"a key, of rows", -k nulls first')
    assert report.groups[0].sort_by == '"a key, of rows", -k nulls first'
    (name,) = table.live()
    assert pq.read_table(Path(table.uri, name))["col-k1"].to_pylist() == [0, 1, 2, 5, 6, 7]
    assert table.rows() == counted([{"a key, of rows": r["k"], "k": r["v"]} for r in rows])


def test_the_order_of_the_table_is_one_of_its_own_names(mode, tmp_path):
    table, _ = small(tmp_path, mode, properties={"plait.sort_by": "-k"})
    reasons = [skipped.why for skipped in compact_delta(table.uri).skipped]
    assert len(reasons) == 3 and not any("col-k1" in reason for reason in reasons), reasons
    report = compacted(table, unsorted="sort")
    assert report.groups[0].sort_by == "-k"
    (name,) = table.live()
    assert pq.read_table(Path(table.uri, name))["col-k1"].to_pylist() == [7, 6, 5, 2, 1, 0]
    table.rename("k", "key")
    table.append([{"key": 9}])
    table.append([{"key": 9}])
    with pytest.raises(plait.UnknownColumn, match=r"no such sort column.*`k`"):
        compact_delta(table.uri)
    assert compacted(table, sort_by="-key").groups


def test_curves_and_members_are_found_by_both_names(mode, tmp_path):
    members = (Column("x", "col-x5", 5), Column("y", "col-y6", 6, (Column("k", "k", 7),)))
    deep = Column("l", "col-l8", 8, [(Column("k", "col-k9", 9), Column("w", "col-w10", 10))])
    table = MappedTable(tmp_path / "t", (K, Column("s", "col-s4", 4, members), deep), mode)
    for part in range(3):
        of = lambda i: {"k": i, "s": {"x": -i, "y": {"k": i}}, "l": [{"k": i, "w": None}]}  # noqa: E731
        table.append([of(part), of(part + 7), {"k": 9 + part, "s": None, "l": None}])
    before = table.rows()
    report = compact_delta(table.uri, sort_by="s.y.k, -s.x", verify="content")
    assert report.groups[0].sort_by == "s.y.k, -s.x" and table.rows() == before
    all_ids = {"col-k1": 1, "col-s4": 4, "col-s4.col-x5": 5, "col-s4.col-y6": 6}
    all_ids |= {"col-s4.col-y6.k": 7, "col-l8": 8}
    all_ids |= {"col-l8.element.col-k9": 9, "col-l8.element.col-w10": 10}
    assert mapped.ids(table.schema()) == all_ids
    (add,) = table.live().values()
    stats = json.loads(add["stats"])
    assert stats["minValues"]["col-s4"] == {"col-x5": -9, "col-y6": {"k": 0}}
    for where in ("s.x < -5", "s.y.k = 2", "k > 10"):
        assert sum(table.rows(where).values()) in (1, 3)
    table.append([{"k": 1, "s": {"x": 1, "y": {"k": 1}}, "l": []}])
    before = table.rows()
    by = "zorder(s.y.k, s.x)"
    assert compact_delta(table.uri, sort_by=by, unsorted="sort", verify="content").groups
    assert table.rows() == before and mapped.ids(table.schema()) == all_ids


def test_partitions_have_both_names(mode, tmp_path):
    table = MappedTable(tmp_path / "t", (K, DAY, V), mode, by=["day"])
    for part in range(3):
        for day in ("mon", "tue", None):
            table.append([{"k": part, "day": day}, {"k": part + 5, "day": day}], prefix=f"{day}/")
    report = compacted(table, sort_by="day, k", where={"day": ["mon"]})
    assert [group.folder for group in report.groups] == ["day=mon"]
    table.rename("day", "weekday")
    table.rename("v", "day")
    with pytest.raises(plait.UnknownColumn, match="hint: partition columns: weekday"):
        compact_delta(table.uri, sort_by="k", where={"day": "tue"})
    with pytest.raises(plait.InvalidArgument, match="`weekday=mon`, `weekday=tue`"):
        compact_delta(table.uri, sort_by="k", where={"weekday": "wed"})
    report = compacted(table, sort_by="weekday, k")
    folders = sorted(group.folder for group in report.groups)
    assert folders == ["weekday=__HIVE_DEFAULT_PARTITION__", "weekday=tue"]
    values = [add["partitionValues"] for add in table.live().values()]
    assert sorted(map(str, values)) == [
        "{'col-d3': 'mon'}",
        "{'col-d3': 'tue'}",
        "{'col-d3': None}",
    ]
    for where, count in [("weekday = 'mon'", 6), ("weekday IS NULL", 6), ("day IS NULL", 18)]:
        assert sum(table.rows(where).values()) == count
    # Partitions of a checkpoint have the names of the log.
    for part in range(14):
        table.append([{"k": part, "weekday": "wed"}])
    before = table.rows()
    for _ in range(3):
        compact_delta(table.uri, sort_by="k", where={"weekday": "wed"}, policy="full")
        table.append([{"k": 1, "weekday": "sun"}])
    log = Path(table.uri, "_delta_log")
    while not list(log.glob("*.checkpoint.parquet")):
        table.append([{"k": 3, "weekday": "sun"}])
        compact_delta(table.uri, sort_by="k", where={"weekday": "sun"}, policy="full")
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    adds = [add for add in pq.read_table(checkpoint)["add"].to_pylist() if add]
    assert {name for add in adds for name, _ in add["partitionValues"]} == {"col-d3"}
    assert table.rows("weekday != 'sun' OR weekday IS NULL") == before


def test_columns_that_come_and_go(mode, tmp_path):
    """One that is added again does not get the old values; one that is new is null in old files."""
    table, rows = small(tmp_path, mode)
    table.drop("v")
    table.append([{"k": 3}])
    table.add(Column("v", "col-v7", 7, "string"))
    table.append([{"k": 4, "v": "new"}])
    expected = counted(
        [{"k": r["k"], "v": None} for r in rows] + [{"k": 3, "v": None}, {"k": 4, "v": "new"}]
    )
    assert table.rows() == expected
    compacted(table, sort_by="k")
    assert table.rows() == expected and len(table.live()) == 1
    found = mapped.ids(table.schema())
    assert found.items() >= {"col-k1": 1, "col-v7": 7}.items()
    (add,) = table.live().values()
    stats = json.loads(add["stats"])
    assert stats["minValues"] == {"col-k1": 0, "col-v7": "new"}
    table.add(Column("w", "col-w8", 8))
    assert table.rows("w IS NULL AND v IS NULL") == counted(
        [{**json.loads(row), "w": None} for row in expected.elements() if "new" not in row]
    )
    table.append([{"k": 1, "v": "x", "w": 2}])
    compacted(table, sort_by="w nulls first, k", unsorted="sort")
    assert sum(table.rows("w = 2").values()) == 1 and sum(table.rows("v = 'new'").values()) == 1


def test_a_new_column_of_an_old_physical_name_of_another_is_not_that(tmp_path):
    """A table that was not mapped before: its physical names are those that columns had then."""
    plain = (Column("a", "a", 1), Column("b", "b", 2))
    table = MappedTable(tmp_path / "t", plain, "name")
    for part in range(2):
        table.append([{"a": part, "b": 10}, {"a": part + 3, "b": 20}], has_ids=False)
    table.rename("a", "key")
    table.drop("b")
    table.add(Column("a", "col-3", 3))
    table.add(Column("b", "col-4", 4))
    table.append([{"key": 1, "a": 7, "b": 8}])
    expected = [{"key": key, "a": None, "b": None} for key in (0, 3, 1, 4)]
    expected = counted([*expected, {"key": 1, "a": 7, "b": 8}])
    assert table.rows() == expected
    compacted(table, sort_by="key")
    assert table.rows() == expected and len(table.live()) == 1
    with pytest.raises(plait.Unsupported, match="a column without a field id"):
        plait.scan(table.uri)


def test_rows_that_are_deleted_stay_so(mode, tmp_path, monkeypatch):
    pytest.importorskip("pyroaring")
    vectors = load("vectors")
    monkeypatch.setattr(vectors, "FEATURE", mapped.LISTED)
    table, rows = small(tmp_path, mode)
    vectors.delete(table.uri, "part-0.parquet", [1])
    rows.remove({"k": 5, "v": None})
    assert table.rows() == counted(rows)
    later = []

    def between(actions):
        """Somebody deletes a row of a file that was merged, before the commit."""
        if not later:
            later.append(1)
            vectors.delete(table.uri, "part-2.parquet", [0])
        return actions

    real = Delta._carried
    monkeypatch.setattr(Delta, "_carried", lambda self, of, now: real(self, between(of), now))
    report = compact_delta(table.uri, sort_by="k", policy="full", verify="content")
    rows.remove({"k": 2, "v": "of 2"})
    assert report.lost == 0 and table.rows() == counted(rows) and len(table.live()) == 1
    assert table.rows("k > 4") == counted([row for row in rows if row["k"] > 4])


def test_others_rename_and_add_while_files_are_merged(mode, tmp_path, monkeypatch):
    table = MappedTable(tmp_path / "t", (K, DAY, V), mode, by=["day"])
    for part in range(3):
        table.append([{"k": part, "day": "mon", "v": "x"}])
    real, later = Delta._commit, []

    def between(self, change):
        if not later:
            later.append(1)
            table.rename("day", "weekday")
            table.rename("v", "day")
            table.add(Column("v", "col-v9", 9))
            table.append([{"k": 7, "weekday": "mon", "day": "y", "v": 1}])
        return real(self, change)

    monkeypatch.setattr(Delta, "_commit", between)
    report = compact_delta(table.uri, sort_by="k", policy="full")
    assert report.groups
    expected = [{"k": part, "weekday": "mon", "day": "x", "v": None} for part in range(3)]
    assert table.rows() == counted([*expected, {"k": 7, "weekday": "mon", "day": "y", "v": 1}])
    assert {str(a["partitionValues"]) for a in table.live().values()} == {"{'col-d3': 'mon'}"}
