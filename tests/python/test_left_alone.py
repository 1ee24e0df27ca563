"""One bad file does not block a folder: it is left alone and named, the others are merged."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local


def write(folder, name, keys, **options):
    path = Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"k": keys, "v": [name] * len(keys)}), path, **options)
    return str(path)


def middle():
    """Keys that are out of order in between, within one row group."""
    return [1, 2, 9, 3, 4, 10]


@pytest.fixture
def lake(tmp_path):
    folder = tmp_path / "lake"
    for part in range(4):
        write(folder, f"good-{part}.parquet", [part, part + 10])
    write(folder, "ends.parquet", [7, 3])
    write(folder, "groups.parquet", [1, 8, 2, 9], row_group_size=2)
    write(folder, "middle.parquet", middle())
    (folder / "cut.parquet").write_bytes((folder / "good-0.parquet").read_bytes()[:-20])
    (folder / "text.parquet").write_text("this is no Parquet file")
    pq.write_table(pa.table({"v": ["no key"]}), folder / "keyless.parquet")
    return folder


BAD = {
    "ends.parquet": "key goes backwards: column `k`, row 1, got 3 after 7",
    "groups.parquet": "key goes backwards: column `k`, row 2",
    "cut.parquet": "not a Parquet file, or cut short",
    "text.parquet": "not a Parquet file, or cut short",
    "keyless.parquet": "sort column is in no source: column `k`",
}


def skipped(report):
    return {Path(item.path).name: item.why for item in report.skipped}


def reasons(found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, why in wanted.items():
        assert found[name].startswith(why), (name, found[name])
        assert name not in found[name]  # once is enough


def test_compact_leaves_bad_files_alone_and_names_every_one(lake):
    dry = plait.compact(lake, policy="full", sort_by="k", yes=False)
    # What is wrong in between is not seen without reading it.
    reasons(skipped(dry), BAD)
    assert len(dry.groups) == 1 and len(dry.groups[0].sources) == 5
    before = {path.name: path.read_bytes() for path in lake.iterdir()}
    report = plait.compact(lake, policy="full", sort_by="k", yes=True)
    wrong = {**BAD, "middle.parquet": "key goes backwards: column `k`, row 3, got 3 after 9"}
    reasons(skipped(report), wrong)
    (group,) = report.groups
    assert [Path(source).name for source in group.sources] == [
        f"good-{i}.parquet" for i in range(4)
    ]
    (out,) = group.outputs
    assert pq.read_table(out).column("k").to_pylist() == sorted([0, 1, 2, 3, 10, 11, 12, 13])
    # Nothing of them was touched, and all of them are reported again.
    assert {p.name: p.read_bytes() for p in lake.iterdir() if p.is_file()} == before
    again = plait.compact(lake, policy="full", sort_by="k", yes=True)
    assert again.groups == () and skipped(again).keys() == wrong.keys()


def test_an_order_that_fits_no_file_is_an_error(lake):
    for name in BAD:
        (lake / name).unlink()
    with pytest.raises(plait.UnknownColumn, match="sort column is in no source"):
        plait.compact(lake, policy="full", sort_by="key", yes=True)


def test_rows_of_files_left_alone_may_be_younger_or_older(tmp_path):
    # Of rows of one key the last stays: what cannot be read may lie between two files in age.
    write(tmp_path, "1.parquet", [1, 2])
    write(tmp_path, "2.parquet", [2, 1])
    write(tmp_path, "3.parquet", [1, 2])
    options = {"policy": "full", "sort_by": "k", "on_duplicate": "keep_last", "yes": True}
    report = plait.compact(tmp_path, **options)
    assert report.groups == () and list(skipped(report)) == ["2.parquet"]
    Path(tmp_path, "2.parquet").rename(tmp_path / "0.parquet")
    assert len(plait.compact(tmp_path, **options).groups) == 1


@pytest.mark.long
def test_many_bad_files_do_not_use_up_the_rounds(tmp_path):
    for i in range(70):
        write(tmp_path, f"bad-{i:02}.parquet", middle())
    for i in range(2):
        write(tmp_path, f"good-{i}.parquet", [i, 5])
    report = plait.compact(tmp_path, policy="full", sort_by="k", yes=True)
    assert len(report.skipped) == 70 and len(report.groups) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_left_alone(tmp_path):
    for i in range(3):
        write(tmp_path, f"{i}.parquet", [i, 5])
    (tmp_path / "1.parquet").chmod(0)
    report = plait.compact(tmp_path, policy="full", sort_by="k", yes=True)
    reasons(skipped(report), {"1.parquet": "no permission to read the source"})
    assert len(report.groups) == 1


def test_merge_names_all_unsorted_sources_at_once(lake, tmp_path):
    good = sorted(map(str, lake.glob("good-*")))
    bad = [str(lake / name) for name in ("ends.parquet", "groups.parquet")]
    for door in (plait.merge, plait.plan):
        with pytest.raises(plait.UnsortedSource, match="2 sources are not sorted") as caught:
            door([*good, *bad], tmp_path / "out", sort_by="k")
        assert all(name in str(caught.value) for name in bad)
        assert [error.path for error in caught.value.errors] == bad
        assert [error.row for error in caught.value.errors] == [1, 2]
        assert caught.value.path == bad[0] and caught.value.row == 1 and caught.value.hint
    assert not (tmp_path / "out").exists()
    with pytest.raises(plait.UnsortedSource, match="key goes backwards") as caught:
        plait.merge([*good, bad[1]], tmp_path / "out", sort_by="k")
    assert caught.value.errors == () and caught.value.path == bad[1]


def test_merge_names_all_unreadable_sources_at_once(lake, tmp_path):
    with pytest.raises(plait.CorruptSource, match="2 sources cannot be read") as caught:
        plait.merge(str(lake), tmp_path / "out", sort_by="k")
    names = [Path(error.path).name for error in caught.value.errors]
    assert names == ["cut.parquet", "text.parquet"]


def test_bounds_that_are_no_proof_are_only_a_reason_to_look(tmp_path):
    # As signed numbers these go back; as unsigned ones they are in order.
    keys = pa.array([1, 2**63 - 1, 2**63, 2**64 - 1], pa.uint64())
    pq.write_table(pa.table({"k": keys}), tmp_path / "u.parquet", row_group_size=2)
    # As bytes, the negative decimals are the greatest.
    from decimal import Decimal

    values = pa.array([Decimal(-2), Decimal(-1), Decimal(1), Decimal(2)], pa.decimal128(30, 0))
    pq.write_table(pa.table({"k": values}), tmp_path / "d.parquet", row_group_size=2)
    for name in "ud":
        plait.merge(tmp_path / f"{name}.parquet", tmp_path / f"{name}-out.parquet", sort_by="k")
    for sort_by, keys in (("-k", [9, 8, 2, 1]), ("k", ["a", "b", "c", "d"])):
        pq.write_table(pa.table({"k": keys}), tmp_path / "s.parquet", row_group_size=2)
        assert plait.plan(tmp_path / "s.parquet", sort_by=sort_by).rows == 4
        pq.write_table(
            pa.table({"k": keys[2:] + keys[:2] + keys[2:]}),
            tmp_path / "s.parquet",
            row_group_size=2,
        )
        with pytest.raises(plait.UnsortedSource) as caught:
            plait.plan(tmp_path / "s.parquet", sort_by=sort_by)
        assert caught.value.row == 2


def test_delta_and_iceberg_compactions_leave_bad_files_alone(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    from plait.table import compact_delta

    uri = str(tmp_path / "events")
    for keys in ([1, 5], [5, 1], [2, 6], middle(), [3, 7]):
        deltalake.write_deltalake(uri, pa.table({"k": keys}), mode="append")
    before = sorted(deltalake.DeltaTable(uri).to_pyarrow_table().column("k").to_pylist())
    report = compact_delta(uri, sort_by="k", yes=True)
    assert len(report.groups) == 1 and len(report.groups[0].sources) == 3
    assert [item.why.partition(":")[0] for item in report.skipped] == ["key goes backwards"] * 2
    table = deltalake.DeltaTable(uri)
    assert sorted(table.to_pyarrow_table().column("k").to_pylist()) == before
    assert len(table.file_uris()) == 3


def test_tables_have_null_keys_where_a_column_came_later(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    from plait.table import compact_delta

    uri = str(tmp_path / "events")
    deltalake.write_deltalake(uri, pa.table({"v": [1, 2]}))
    for part in range(2):
        new = pa.table({"v": [part], "k": [part]})
        deltalake.write_deltalake(uri, new, mode="append", schema_mode="merge")
    report = compact_delta(uri, sort_by="k", policy="full", yes=True)
    assert report.groups[0].rows == 4
    table = deltalake.DeltaTable(uri).to_pyarrow_table()
    assert table.column("k").to_pylist() == [0, 1, None, None]
    with pytest.raises(plait.UnknownColumn, match="sort column is in no source"):
        deltalake.write_deltalake(uri, pa.table({"v": [1], "k": [1]}), mode="append")
        compact_delta(uri, sort_by="absent", policy="full", yes=True)
