"""Every door to a table does as the table says: its order, and which of several rows stays."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

deltalake = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")
pytestmark = pytest.mark.local


def rows(read):
    return [tuple(row.values()) for row in pa.table(read).to_pylist()]


@pytest.fixture
def path(tmp_path):
    """A table in which two commits have one key; names of its files say nothing of their order."""
    here = str(tmp_path / "metrics")
    table = plait.Table(here, sort_by="-k", on_duplicate="keep_last")
    table.append(pa.table({"k": [1, 2], "v": ["a", "a"]}))
    table.append(pa.table({"k": [2, 3], "v": ["b", "b"]}))
    return here


EXPECTED = [(3, "b"), (2, "b"), (1, "a")]


def test_every_door_does_as_the_table_says(path, tmp_path):
    assert rows(plait.Table(path).read()) == EXPECTED
    assert rows(plait.read(path)) == EXPECTED
    assert rows(plait.read(f"{path}/")) == EXPECTED
    assert rows(plait.read([path], where="v = 'b'")) == EXPECTED[:2]
    assert rows(plait.read(path, where="v = 'a'", limit=5)) == EXPECTED[2:]
    assert rows(plait.merge_streams([path], sort_by="-k")) == EXPECTED
    report = plait.merge(path, tmp_path / "merged.parquet")
    assert rows(pq.read_table(tmp_path / "merged.parquet")) == EXPECTED
    assert report.rows_dropped == {"duplicate": 1}
    planned = plait.plan(path)
    assert planned.to_dict()["options"]["on_duplicate"] == "keep_last"
    assert rows(plait.read(planned)) == EXPECTED
    # What the call says holds.
    every = [(3, "b"), (2, "a"), (2, "b"), (1, "a")]
    assert rows(plait.read(path, on_duplicate="keep_all")) == every
    assert rows(plait.read(path, on_duplicate="keep_first")) == [every[i] for i in (0, 1, 3)]
    with pytest.raises(plait.UnsortedSource):
        list(plait.read(path, sort_by="k"))


def test_different_rules_are_no_rule(path, tmp_path):
    file = tmp_path / "other.parquet"
    with plait.RunWriter(file, sort_by="-k") as writer:
        writer.write(pa.table({"k": [2], "v": ["c"]}))
    message = "different rules.*`keep_last|keep_last of"
    for call in (plait.read, plait.plan, lambda s: plait.merge(s, tmp_path / "m.parquet")):
        with pytest.raises(plait.InvalidArgument, match=message):
            call([path, file])
    found = rows(plait.read([path, file], on_duplicate="keep_last"))
    assert found == [(3, "b"), (2, "c"), (1, "a")]
    other = f"{path}-other"
    plait.Table(other, sort_by="-k", on_duplicate="keep_last").append(
        pa.table({"k": [1], "v": ["z"]})
    )
    assert rows(plait.read([path, other])) == [(3, "b"), (2, "b"), (1, "z")]
    plain = f"{path}-plain"
    plait.Table(plain, sort_by="-k").append(pa.table({"k": [1], "v": ["y"]}))
    assert rows(plait.read([plain, file])) == [(2, "c"), (1, "y")]
    with pytest.raises(plait.InvalidArgument, match=message):
        plait.read([path, plain])


# -- columns that are cast -------------------------------------------------------------------------

LACKING = {
    "k": (pa.array([3, 4_000_000_000], pa.uint32()), "long", [3, 4_000_000_000]),
    "a": (pa.array([1, 255], pa.uint8()), "short", [1, 255]),
    "b": (pa.array([1, None], pa.uint16()), "integer", [1, None]),
    "c": (
        pa.array([1, 2**64 - 1], pa.uint64()),
        "decimal(20,0)",
        [Decimal(1), Decimal(2**64 - 1)],
    ),
    "t": (pa.array([1, 3_600_000_001], pa.time64("us")), "string", None),
    "d": (pa.array([5, None], pa.duration("ms")), "long", [5, None]),
    "n": (
        pa.array([1_000, None], pa.timestamp("ns")),
        "timestamp_ntz",
        [dt.datetime(1970, 1, 1, 0, 0, 0, 1), None],
    ),
    "w": (pa.array([Decimal("12.5"), None], pa.decimal256(50, 2)), "string", ["12.50", None]),
}


def test_columns_that_delta_lacks_are_cast_when_files_are_merged(tmp_path):
    path = str(tmp_path / "events")
    Path(path).mkdir()
    given = pa.table({name: values for name, (values, _, _) in LACKING.items()})
    pq.write_table(given, f"{path}/a.parquet")
    pq.write_table(given.slice(0, 1), f"{path}/b.parquet")
    with pytest.raises(plait.Unsupported, match="Delta has no such type"):
        plait.adopt(path, sort_by="k")
    report = plait.adopt(path, sort_by="k", cast=True)
    assert report.casts["k"] == ("uint32", "long") and "`k`: uint32 becomes long" in str(report)
    assert {name: to for name, (_, to) in report.casts.items()} == {
        name: to for name, (_, to, _) in LACKING.items()
    }
    table = plait.Table(path)

    def check(count):
        for read in (table.read(), plait.read(path)):
            found = pa.table(read)
            assert found.column_names == list(LACKING) and found.num_rows == count
            for name, (_, _, values) in LACKING.items():
                if values is not None:
                    assert found[name].to_pylist()[-2:] == values[-2:] or count != 3, name
            assert found["t"].to_pylist()[-1] == "01:00:00.000001"
        assert rows(table.read(where="k > 3 AND d IS NULL", columns=["k"])) == [(4_000_000_000,)]

    check(3)
    # Rows come in as the table has them, and go next to those that files have.
    table.append(pa.table({"k": [5], "a": pa.array([7], pa.int16())}))
    assert rows(table.read(where="k = 5", columns=["k", "a"])) == [(5, 7)]
    assert table.delete("k = 5").rows == 1
    pq.write_table(given.slice(0, 1), f"{path}/c.parquet")
    assert plait.adopt(path).files == ("c.parquet",)
    assert table.read().count() == 4
    table.compact(policy="full")
    assert [file.name for file in table.files() if "part-" not in file.name] == []
    kinds = pq.read_schema(Path(path, table.files()[0].name))
    assert str(kinds.field("k").type) == "int64" and str(kinds.field("t").type) == "string"
    assert Counter(rows(table.read(columns=["k"]))) == Counter([(3,), (3,), (3,), (4_000_000_000,)])
    theirs = deltalake.DeltaTable(path).to_pyarrow_table()
    assert sorted(theirs["k"].to_pylist()) == [3, 3, 3, 4_000_000_000]
    lazy = pl.scan_delta(path).select("k", "c", "t").collect()
    assert sorted(lazy["k"].to_list()) == [3, 3, 3, 4_000_000_000] and table.verify().ok


def test_a_value_that_does_not_fit_is_an_error_and_never_another(tmp_path):
    path = str(tmp_path / "events")
    Path(path).mkdir()
    pq.write_table(
        pa.table({"k": [1, 2], "n": pa.array([1_000, 1_001], pa.timestamp("ns"))}),
        f"{path}/a.parquet",
    )
    plait.adopt(path, sort_by="k", cast=True)
    table = plait.Table(path)
    with pytest.raises(plait.LossyCast, match="n"):
        list(table.read())
    with pytest.raises(plait.LossyCast, match="n"):
        table.compact(policy="full")
    assert table.version == 0 and rows(table.read(columns=["k"])) == [(1,), (2,)]


def test_what_cannot_be_cast_is_refused_by_name(tmp_path):
    path = str(tmp_path / "events")
    Path(path).mkdir()
    inner = pa.array([{"u": 1}], pa.struct({"u": pa.uint8()}))
    pq.write_table(pa.table({"k": [1], "s": inner}), f"{path}/a.parquet")
    with pytest.raises(plait.Unsupported, match=r"`s\.u` of uint8"):
        plait.adopt(path, sort_by="k", cast=True)
    for unit in ("ms", "us"):
        column = pa.array([1], pa.duration(unit))
        pq.write_table(pa.table({"k": [1], "d": column}), f"{path}/{unit}.parquet")
    Path(path, "a.parquet").unlink()
    with pytest.raises(plait.Unsupported, match="durations in different units"):
        plait.adopt(path, sort_by="k", cast=True)
    Path(path, "us.parquet").unlink()
    plait.adopt(path, sort_by="k", cast=True)
    pq.write_table(pa.table({"k": pa.array([1], pa.uint8())}), f"{path}/x.parquet")
    with pytest.raises(plait.Unsupported, match=r"does not cast columns.*`k` of uint8"):
        plait.adopt(path)


# -- maintenance -----------------------------------------------------------------------------------


def test_a_table_is_compacted_with_its_appends(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    table = plait.Table(path, sort_by="k", on_duplicate="keep_last", maintain="auto")
    expected = {}
    merged = 0
    for i in range(16):
        report = table.append(pa.table({"k": [i % 7, i], "v": [i, i]}))
        expected |= {i % 7: i, i: i}
        assert report.problem is None
        if report.compacted is not None:
            merged += 1
            assert "merged" in str(report)
        assert dict(rows(table.read())) == expected
    assert merged > 0 and len(table.files()) < 12
    # A larger group waits, and a failure is told and loses nothing.
    from plait import _table_maintain

    monkeypatch.setattr(_table_maintain, "_BYTES_MIN", 1)
    monkeypatch.setattr(_table_maintain, "_TIMES", 0)
    for i in range(9):
        assert table.append(pa.table({"k": [0, 99], "v": [i, i]})).compacted is None
    assert len(table.files()) >= 9

    def broken(*_, **__):
        raise plait.StorageError.of("the disk is full")

    monkeypatch.setattr(_table_maintain, "compact_table", broken)
    report = table.append(pa.table({"k": [1000], "v": [1]}))
    assert "the disk is full" in report.problem and "not compacted" in str(report)
    assert rows(table.read(where="k = 1000")) == [(1000, 1)]
    with pytest.raises(plait.InvalidArgument, match="`maintain` has no such choice"):
        plait.Table(path, maintain="always")
