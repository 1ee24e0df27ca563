"""A source without a sort column is refused by name, through every door, unless null keys are asked for."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local

WITH = {"k": [1, 3], "v": ["a", "c"]}
WITHOUT = {"v": ["x", "y"]}
HINT = 'if that is intended, pass missing_keys="null"'


@pytest.fixture
def files(tmp_path):
    for name, columns in (("a", WITH), ("b", WITHOUT), ("c", WITHOUT)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    return [str(tmp_path / f"{name}.parquet") for name in "abc"]


def merged(files, out, **options):
    plait.merge(files, out, sort_by="k", **options)
    return pq.read_table(out)


def streamed(files, _, **options):
    return pa.table(plait.merge_streams(files, sort_by="k", **options))


def streamed_tables(files, _, **options):
    tables = [pq.read_table(file) for file in files]
    return pa.table(plait.merge_streams(tables, sort_by="k", **options))


def planned(files, out, **options):
    plait.Plan.from_json(plait.plan(files, sort_by="k", **options).to_json()).execute(out)
    return pq.read_table(out)


DOORS = [merged, planned, streamed, streamed_tables]


@pytest.mark.parametrize("door", DOORS)
def test_sources_without_the_sort_column_are_refused_and_all_named(door, files, tmp_path):
    out = tmp_path / "out.parquet"
    with pytest.raises(plait.UnknownColumn, match="2 sources lack a sort column") as caught:
        door(files, out)
    assert HINT in str(caught.value) and caught.value.column == "k" and not out.exists()
    names = ["source 1", "source 2"] if door is streamed_tables else files[1:]
    assert all(name in str(caught.value) for name in names)
    assert files[0] not in str(caught.value)
    with pytest.raises(plait.UnknownColumn, match="a source lacks a sort column") as caught:
        door(files[:2], out)
    assert caught.value.path == (None if door is streamed_tables else files[1])


@pytest.mark.parametrize("door", DOORS)
def test_null_keys_are_merged_if_they_are_asked_for(door, files, tmp_path):
    table = door(files, tmp_path / "out.parquet", missing_keys="null")
    assert table.column("k").to_pylist() == [1, 3, None, None, None, None]
    assert table.column("v").to_pylist() == ["a", "c", "x", "y", "x", "y"]


@pytest.mark.parametrize("door", DOORS)
def test_a_column_that_no_source_has_is_not_a_missing_key(door, files, tmp_path):
    with pytest.raises(plait.UnknownColumn, match="sort column is in no source"):
        door(files[1:], tmp_path / "out.parquet", missing_keys="null")


@pytest.mark.parametrize("door", DOORS)
def test_a_member_of_a_struct_that_a_source_lacks_is_a_missing_key(door, tmp_path):
    tables = [{"k": [{"a": 1, "b": 2}]}, {"k": [{"b": 1}]}]
    files = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    for file, columns in zip(files, tables):
        pq.write_table(pa.table(columns), file)

    def nested(files, out, **options):
        with pytest.MonkeyPatch.context() as patch:
            for name in ("merge", "plan", "merge_streams"):
                real = getattr(plait, name)
                patch.setattr(
                    plait, name, lambda *a, _of=real, **o: _of(*a, **{**o, "sort_by": "k.a"})
                )
            return door(files, out, **options)

    with pytest.raises(plait.UnknownColumn, match="a source lacks a sort column") as caught:
        nested(files, tmp_path / "out.parquet")
    assert caught.value.column == "k.a"
    found = nested(files, tmp_path / "out.parquet", missing_keys="null")
    assert found.column("k").to_pylist() == [{"a": 1, "b": 2}, {"a": None, "b": 1}]


def test_a_column_of_nulls_is_there(tmp_path):
    tables = [{"k": [1]}, {"k": pa.nulls(1)}]
    found = pa.table(plait.merge_streams([pa.table(t) for t in tables], sort_by="k"))
    assert found.column("k").to_pylist() == [1, None]


def test_a_key_that_was_renamed_is_found_by_its_field_id(tmp_path):
    def field(name, number):
        return pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": str(number).encode()})

    for file, name in (("a", "old"), ("b", "new")):
        schema = pa.schema([field(name, 1), field("v", 2)])
        pq.write_table(pa.table([[1, 2], [3, 4]], schema=schema), tmp_path / f"{file}.parquet")
    plait.merge(str(tmp_path), tmp_path / "out" / "x.parquet", sort_by="old")
    found = pq.read_table(tmp_path / "out" / "x.parquet")
    assert found.column(0).to_pylist() == [1, 1, 2, 2]


def test_verify_says_which_file_lacks_the_column(files):
    report = plait.verify(files, sort_by="k", check=False)
    assert not report.ok
    for file in files[1:]:
        assert f"{file} has no column `k`, which it is sorted by" in report.problems


def test_missing_error_refuses_keys_too(files, tmp_path):
    with pytest.raises(plait.SchemaConflict, match="`k`"):
        merged(files, tmp_path / "o.parquet", missing="error", missing_keys="null")
    with pytest.raises(plait.InvalidArgument, match="`missing_keys` has no such choice"):
        merged(files, tmp_path / "o.parquet", missing_keys="first")


def test_the_command_line_has_the_option(files, tmp_path, capsys):
    from plait.cli import main

    out = str(tmp_path / "o.parquet")
    assert main(["merge", *files, "--out", out, "--sort-by", "k"]) == 3
    assert "if that is intended, pass --missing-keys null" in capsys.readouterr().err
    command = ["merge", *files, "--out", out, "--sort-by", "k", "--missing-keys", "null"]
    assert main(command) == 0
    assert pq.read_metadata(out).num_rows == 6
