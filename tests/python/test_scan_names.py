"""Other names, keys of maps, columns that folders and files share, values per source."""

import datetime as dt
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait


@pytest.fixture
def nested(tmp_path):
    """Two files that drift: one lacks `m.y`, the other orders its columns differently."""
    prices = pa.map_(pa.string(), pa.int64())
    first = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "m": pa.array([{"x": 1}, None, {"x": 3}], pa.struct([("x", pa.int32())])),
            "l": [[{"k": 1, "v": "a"}], [], None],
            "p": pa.array([[("eur", 1), ("usd", 2)], [("usd", 3)], None], prices),
            "as": ["q", "r", "s"],
        }
    )
    second = pa.table(
        {
            "p": pa.array([[("eur", 9)]], prices),
            "m": [{"y": "z", "x": 2**40}],
            "l": [[{"k": 4, "v": "b"}, None]],
            "id": [4],
            "as": ["t"],
        }
    )
    pq.write_table(first, tmp_path / "1.parquet")
    pq.write_table(second, tmp_path / "2.parquet")
    return tmp_path


def columns(folder, asked, **options):
    return pa.table(plait.scan(folder, asked, **options)).to_pydict()


@pytest.mark.parametrize("asked", [["id as number", "m.x as x"], {"number": "id", "x": "m.x"}])
def test_columns_get_other_names_by_text_and_by_dict(nested, asked):
    scan = plait.scan(nested, asked)
    assert pa.table(scan).to_pydict() == {"number": [1, 2, 3, 4], "x": [1, None, 3, 2**40]}
    assert pa.schema(scan.schema).field("x").type == pa.int64()
    assert ("number", "cast #0 int32 -> int64 of `id`") in scan.adapters[0].columns
    assert scan.fingerprint != plait.scan(nested, ["id", "m.x"]).fingerprint


def test_a_member_through_a_list_is_a_list_of_members(nested):
    assert columns(nested, ["l.v as v"]) == {"v": [["a"], [], None, ["b", None]]}


def test_a_column_can_be_there_under_two_names_and_under_its_own(nested):
    found = columns(nested, ["id", "id as a", "id AS `b c`"])
    assert found == {"id": [1, 2, 3, 4], "a": [1, 2, 3, 4], "b c": [1, 2, 3, 4]}


def test_own_names_keep_the_members_that_were_asked_for_beside_other_names(nested):
    scan = plait.scan(nested, ["m.x", "m.y as y", "id"])
    assert pa.table(scan).to_pydict() == {
        "m": [{"x": 1}, None, {"x": 3}, {"x": 2**40}],
        "y": [None, None, None, "z"],
        "id": [1, 2, 3, 4],
    }


def test_a_star_leaves_out_what_has_another_name_and_takes_its_place(nested):
    scan = plait.scan(nested, ["_filename as file", "*", "m.x as x"], implicit=["_row_number"])
    assert scan.schema.names == ["file", "id", "l", "p", "as", "_row_number", "x"]
    assert pa.table(scan)["file"].to_pylist() == ["1.parquet"] * 3 + ["2.parquet"]


def test_a_repeated_name_in_the_output_is_refused_by_name(nested):
    for asked in (["id as a", "m.x as a"], ["*", "m.x as id2", "id as p"]):
        with pytest.raises(plait.InvalidArgument, match="two columns get one name") as error:
            plait.scan(nested, asked)
        assert f"`{asked[-1].split()[-1]}`" in str(error.value)
    with pytest.raises(plait.InvalidArgument, match="two columns get one name"):
        plait.scan(nested, ["id as a", "m.x as A"], case="insensitive")


def test_a_column_whose_name_has_as_in_it_is_that_column(tmp_path):
    pq.write_table(pa.table({"a as b": [1], "a": [2]}), tmp_path / "1.parquet")
    assert columns(tmp_path, ["a as b"]) == {"a as b": [1]}
    assert columns(tmp_path, {"c": "a as b", "d": "a"}) == {"c": [1], "d": [2]}


@pytest.mark.parametrize("asked", ["id as ", "id as `x", ["m['x] as y"]])
def test_text_that_is_no_name_is_refused(nested, asked):
    with pytest.raises(plait.InvalidPath):
        plait.scan(nested, asked)


def test_a_dict_refuses_names_that_cannot_be_written(nested):
    for asked in ({"": "id"}, {"a`b": "id"}, {1: "id"}):
        with pytest.raises(plait.InvalidArgument, match="`columns`"):
            plait.scan(nested, asked)


def test_members_of_maps_are_columns_by_key(nested):
    found = columns(nested, ["p['eur']", 'p["usd"] as dollars'])
    assert found == {"p['eur']": [1, None, None, 9], "dollars": [2, 3, None, None]}


def test_keys_of_maps_may_be_numbers_and_lead_to_members(tmp_path):
    inner = pa.struct([("a", pa.int64())])
    rows = [[(1, {"a": 5}), (7, None)], [(7, {"a": 6}), (7, {"a": 8})]]
    table = pa.table({"m": pa.array(rows, pa.map_(pa.int32(), inner))})
    pq.write_table(table, tmp_path / "1.parquet")
    assert columns(tmp_path, ["m['7'].a as a"]) == {"a": [None, 6]}, "of two entries the first"
    with pytest.raises(plait.InvalidArgument, match="not of the column's type"):
        plait.scan(tmp_path, ["m['x']"])


@pytest.mark.parametrize("asked", ["id['x']", "m['x']", "l['x']", "p.eur as e", "id.x as y"])
def test_a_path_that_the_type_does_not_have_is_refused(nested, asked):
    with pytest.raises(plait.ProjectionError, match="path demands"):
        plait.scan(nested, [asked])


def test_elements_of_more_levels_than_the_list_has_are_refused(tmp_path):
    pq.write_table(pa.table({"a": [[1]], "b": [[[1]]]}), tmp_path / "1.parquet")
    assert columns(tmp_path, ["a[0]", "b[0][1] as b"]) == {"a": [[1]], "b": [[[1]]]}
    for path in ("a[0][1]", "b[0][1][2]"):
        with pytest.raises(plait.ProjectionError, match=r"lists of \d levels"):
            plait.scan(tmp_path, [path])


def test_other_names_hold_while_following(nested):
    scan = plait.scan(nested, ["_filename as file", "m.x as x"], mode="follow")
    batches = [pa.record_batch(batch) for batch in scan]
    assert [batch.schema.names for batch in batches] == [["file", "x"]] * 2
    assert scan.schema.names == ["file", "x"]
    assert batches[1].to_pydict() == {"file": ["2.parquet"], "x": [2**40]}
    assert "`m` was struct" in scan.report.changes[0].what[0]


def test_only_columns_of_other_names_are_read(tmp_path):
    pq.write_table(pa.table({"a": range(9), "b": [bytes(99)] * 9}), tmp_path / "1.parquet")
    data = bytearray((tmp_path / "1.parquet").read_bytes())
    chunk = pq.read_metadata(tmp_path / "1.parquet").row_group(0).column(1)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    (tmp_path / "1.parquet").write_bytes(data)
    assert columns(tmp_path, ["a as c"]) == {"c": list(range(9))}


@pytest.fixture
def shared(tmp_path):
    """A folder and one of its files have the column `year`."""
    for year, table in ((2023, {"id": [1], "year": ["x"]}), (2024, {"id": [2]})):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        pq.write_table(pa.table(table), folder / "a.parquet")
    return tmp_path


def test_a_column_of_folders_and_files_is_an_error_or_one_of_them(shared):
    for clash in (None, "error"):
        with pytest.raises(plait.InvalidArgument, match="partition_clash"):
            plait.scan(shared, partitions="hive", partition_clash=clash)
    found = {
        clash: pa.table(plait.scan(shared, partitions="hive", partition_clash=clash)).to_pydict()
        for clash in ("partition", "file")
    }
    assert found["partition"] == {"id": [1, 2], "year": [2023, 2024]}
    assert found["file"] == {"id": [1, 2], "year": ["x", None]}


@pytest.mark.behaviour("scan-27")
@pytest.mark.parametrize(("clash", "year"), [("partition", [2023, 2024]), ("file", ["x", None])])
def test_a_named_column_of_folders_and_files_is_the_chosen_one(shared, clash, year):
    scan = plait.scan(shared, ["year", "id as n"], partitions="hive", partition_clash=clash)
    assert pa.table(scan).to_pydict() == {"year": year, "n": [1, 2]}


def test_a_hidden_column_of_a_file_cannot_conflict_and_is_not_read(tmp_path):
    for year, values in ((1, ["x"]), (2, [2.5])):
        (tmp_path / f"k={year}").mkdir()
        pq.write_table(pa.table({"k": values, "v": [year]}), tmp_path / f"k={year}" / "a.parquet")
    found = plait.scan(tmp_path, partitions="hive", partition_clash="partition")
    assert pa.table(found).to_pydict() == {"v": [1, 2], "k": [1, 2]}


def test_a_clash_without_partitions_is_refused(shared):
    with pytest.raises(plait.InvalidArgument, match="`partition_clash` has no effect"):
        plait.scan(shared, partition_clash="file")


def test_a_list_of_constants_has_one_for_each_source(nested):
    stream = pa.table({"id": [7]})
    sources = [stream, nested, pa.table({"id": [8]})]
    scan = plait.scan(sources, ["id", "day", "n"], static={"day": ["mo", "tu", None], "n": 1})
    assert pa.table(scan)["day"].to_pylist() == ["mo"] + ["tu"] * 4 + [None]
    assert pa.schema(scan.schema).field("day") == pa.field("day", pa.string())
    assert not pa.schema(scan.schema).field("n").nullable


def test_a_list_of_constants_holds_while_following():
    sources = [pa.table({"id": [1]}), pa.table({"id": [2, 3]})]
    scan = plait.scan(sources, mode="follow", static={"from": ["a", "b"]})
    assert [r for b in scan for r in pa.record_batch(b)["from"].to_pylist()] == ["a", "b", "b"]


@pytest.mark.parametrize(
    ("values", "told"), [(["a"], "1 values for 2"), (["a", 1], "string and int64")]
)
def test_a_list_of_constants_of_another_length_or_mixed_types_is_refused(values, told):
    sources = [pa.table({"id": [1]}), pa.table({"id": [2]})]
    with pytest.raises(plait.InvalidArgument, match=told):
        plait.scan(sources, static={"s": values})


def test_size_time_and_folder_of_files_are_columns(nested):
    path = nested / "1.parquet"
    os.utime(path, (1_700_000_000, 1_700_000_000.25))
    names = ["_folder", "_size", "_modified"]
    for options in ({}, {"mode": "follow"}):
        scan = plait.scan([path, pa.table({"id": [9]})], implicit=names, **options)
        table = pa.concat_tables(
            pa.table(batch).select(names) for batch in map(pa.record_batch, scan)
        )
        time = dt.datetime(2023, 11, 14, 22, 13, 20, 250_000, dt.timezone.utc)
        assert table.slice(0, 1).to_pylist() == [
            {"_folder": str(nested), "_size": path.stat().st_size, "_modified": time}
        ]
        assert table.slice(3).to_pylist() == [dict.fromkeys(names)], "a stream has none"
