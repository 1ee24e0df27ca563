"""Footer entries that describe one source do not survive as statements about its merge."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait


def write(path, keys, **entries):
    table = pa.table({"k": keys}).replace_schema_metadata(entries)
    pq.write_table(table, path)
    return path


def entries(path) -> dict[str, str]:
    found = pq.read_metadata(path).metadata or {}
    names = {name.decode(): value.decode() for name, value in found.items()}
    return {
        name: value
        for name, value in names.items()
        if not name.startswith("plait.") and name != "ARROW:schema"
    }


# Entries by which readers skip a file, or take its rows for something else.
OF_ONE_FILE = {
    "qh.row_keys": ("AA==", "BB=="),
    "qh.zonemap_regexes": ('{"k": "^1$"}', '{"k": "^2$"}'),
    "qh.num_merge_ops": ("1", "1"),
    "qh.sort_fields": ("k|timestamp/V2", "k|timestamp/V2"),
    "hoodie_min_record_key": ("1", "2"),
    "hoodie_max_record_key": ("3", "4"),
    "org.apache.hudi.bloomfilter": ("AAA=", "BBB="),
    "delete-type": ("position", "position"),
    "geo": ("not json", "not json either"),
}


@pytest.mark.behaviour("merge-25")
@pytest.mark.parametrize("policy", ["first", "drop", "error"])
@pytest.mark.parametrize("tiers", [("chunk", "page", "dict"), ()])
def test_entries_that_describe_one_file_are_left_out_with_a_warning(tmp_path, policy, tiers):
    sources = [
        write(
            tmp_path / f"{i}.parquet",
            [i + 1, i + 3],
            team="storage",
            **{name: values[i] for name, values in OF_ONE_FILE.items()},
        )
        for i in range(2)
    ]
    out = tmp_path / "out.parquet"
    report = plait.merge(sources, out, sort_by="k", metadata_conflicts=policy, copy_tiers=tiers)
    assert entries(out) == {"team": "storage"}
    assert {conflict.key for conflict in report.metadata_conflicts} == set(OF_ONE_FILE)
    for name in OF_ONE_FILE:
        assert any(f"`{name}` was left out" in warning for warning in report.warnings)
    assert plait.plan(sources, sort_by="k", metadata_conflicts=policy).metadata_conflicts == (
        report.metadata_conflicts
    )


def test_entries_that_differ_or_are_not_everywhere_are_dropped_unless_asked_for(tmp_path):
    one = write(tmp_path / "one.parquet", [1], who="one", only="here", same="s")
    two = write(tmp_path / "two.parquet", [2], who="two", same="s")
    report = plait.merge([one, two], tmp_path / "out.parquet", sort_by="k")
    assert entries(tmp_path / "out.parquet") == {"same": "s"}
    assert [(c.key, c.kept, c.why) for c in report.metadata_conflicts] == [
        ("who", False, "has different values"),
        ("only", False, "is not in every file"),
    ]
    assert len(report.warnings) == 2
    plait.merge([one, two], tmp_path / "first.parquet", sort_by="k", metadata_conflicts="first")
    assert entries(tmp_path / "first.parquet") == {"same": "s", "who": "one", "only": "here"}
    with pytest.raises(plait.SchemaConflict, match="who"):
        plait.merge([one, two], tmp_path / "no", sort_by="k", metadata_conflicts="error")
    alone = plait.merge(one, tmp_path / "alone.parquet", sort_by="k")
    assert entries(tmp_path / "alone.parquet") == {"who": "one", "only": "here", "same": "s"}
    assert alone.warnings == ()


def test_a_pandas_index_of_row_numbers_is_that_of_the_output(tmp_path):
    frames = [
        pd.DataFrame({"k": [1, 4]}, index=pd.RangeIndex(10, 12)),
        pd.DataFrame({"k": [2, 3]}, index=pd.RangeIndex(20, 22)),
    ]
    for i, frame in enumerate(frames):
        frame.to_parquet(tmp_path / f"{i}.parquet")
    out = tmp_path / "out.parquet"
    plait.merge([tmp_path / "0.parquet", tmp_path / "1.parquet"], out, sort_by="k")
    assert json.loads(entries(out)["pandas"])["index_columns"] == []
    assert list(pd.read_parquet(out).index) == [0, 1, 2, 3]
    # Two of four rows: an index of the right length, of rows that are others.
    report = plait.merge(tmp_path / "0.parquet", tmp_path / "split", sort_by="k", target_rows=1)
    for output in report.outputs:
        assert list(pd.read_parquet(output.path).index) == [0]
    named = pd.DataFrame({"k": [1, 2]}, index=pd.Index(["a", "b"], name="name"))
    named.to_parquet(tmp_path / "named.parquet")
    plait.merge(tmp_path / "named.parquet", tmp_path / "n.parquet", sort_by="k")
    assert list(pd.read_parquet(tmp_path / "n.parquet").index) == ["a", "b"]


def geo(bbox, kinds, **more):
    column = {"encoding": "WKB", "geometry_types": kinds, **({"bbox": bbox} if bbox else {})}
    return json.dumps({"version": "1.1.0", "primary_column": "k", "columns": {"k": column | more}})


def test_bounding_boxes_of_geometries_hold_those_of_all_sources(tmp_path):
    def merged(*texts):
        sources = [write(tmp_path / f"{i}.parquet", [i], geo=text) for i, text in enumerate(texts)]
        out = tmp_path / "out.parquet"
        out.unlink(missing_ok=True)
        report = plait.merge(sources, out, sort_by="k")
        found = entries(out).get("geo")
        return found and json.loads(found)["columns"]["k"], report.warnings

    column, warnings = merged(
        geo([0, 0, 1, 1], ["Point"]), geo([5, -3, 6, 0], ["Polygon"]), geo([2, 2, 2, 9], ["Point"])
    )
    assert column["bbox"] == [0, -3, 6, 9]
    assert column["geometry_types"] == ["Point", "Polygon"]
    assert len(warnings) == 1 and "computed anew" in warnings[0]
    column, _ = merged(geo([170, 0, -170, 1], ["Point"]), geo([5, 0, 6, 0], ["Point"]))
    assert "bbox" not in column, "a box over the antimeridian is not the least and the greatest"
    assert merged(geo(None, []), geo(None, [], crs=None))[0] is None, "another system"
    same = geo([0, 0, 1, 1], ["Point"])
    assert merged(same, same)[1] == ()


def test_layers_of_several_files_do_not_pass_on_entries_of_one(tmp_path):
    for i in range(2):
        table = pa.table({"i": [2 * i, 2 * i + 1], "a": [i, i]})
        facts = {"hoodie_min_record_key": str(i), "who": str(i), "same": "s"}
        pq.write_table(table.replace_schema_metadata(facts), tmp_path / f"{i}.parquet")
    out = tmp_path / "out.parquet"
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    plait.overlay_files([plait.Layer(files)], out, index="i")
    assert entries(out) == {"same": "s"}


def quickwit_file(path, order: str, **columns):
    table = pa.table(columns).replace_schema_metadata({"qh.sort_fields": order})
    pq.write_table(table, path)
    return path


@pytest.mark.behaviour("merge-06")
def test_the_order_of_quickwit_is_the_order_of_the_merge(tmp_path):
    order = "name|timestamp/V2"
    paths = [
        quickwit_file(tmp_path / "a.parquet", order, name=["x", "x"], timestamp=[9, 1]),
        quickwit_file(tmp_path / "b.parquet", order, name=["x", "y"], timestamp=[5, 7]),
    ]
    report = plait.merge(paths, tmp_path / "out.parquet")
    assert report.sort_by == "name, -timestamp"
    assert pq.read_table(tmp_path / "out.parquet")["timestamp"].to_pylist() == [9, 5, 1, 7]
    assert plait.inspect(paths[0]).sort_by == "name, -timestamp"


def test_an_order_of_quickwit_may_name_columns_that_a_file_lacks(tmp_path):
    order = "name|host|timestamp/V2"
    paths = [
        quickwit_file(tmp_path / "a.parquet", order, name=["x"], host=["h"], timestamp=[9]),
        quickwit_file(tmp_path / "b.parquet", order, name=["x"], timestamp=[5]),
    ]
    with pytest.raises(plait.UnknownColumn, match="missing_keys"):
        plait.merge(paths, tmp_path / "out.parquet")
    plait.merge(paths, tmp_path / "out.parquet", missing_keys="null")
    assert pq.read_table(tmp_path / "out.parquet")["host"].to_pylist() == ["h", None]


@pytest.mark.parametrize("order", ["", "name", "a||b/V2", "name|timestamp/V9", "\x00"])
def test_an_order_of_quickwit_that_is_none_counts_as_absent(tmp_path, order):
    path = quickwit_file(tmp_path / "a.parquet", order, name=["x"], timestamp=[9])
    with pytest.raises(plait.InvalidArgument, match="no sort order"):
        plait.merge(path, tmp_path / "out.parquet")


@pytest.mark.behaviour("merge-20")
def test_footers_say_how_row_groups_are_aligned(tmp_path):
    paths = []
    for i in range(2):
        paths.append(tmp_path / f"{i}.parquet")
        table = pa.table({"a": [n // 50 for n in range(200)], "b": range(i, i + 200)})
        pq.write_table(table, paths[-1], row_group_size=50)

    def made(name, **options):
        report = plait.merge(paths, tmp_path / name, sort_by="a, b", **options)
        found = pq.read_metadata(tmp_path / name).metadata
        return found.get(b"plait.row_group_columns"), report.warnings

    assert made("plain.parquet") == (None, ())
    assert made("aligned.parquet", align_row_groups=1) == (b"1", ())
    columns, warnings = made("small.parquet", align_row_groups=1, row_group_rows=40)
    assert columns == b"1" and len(warnings) == 1 and "agree in 1 key columns" in warnings[0]
    # It describes the rows of one file.
    paths[:] = [tmp_path / "aligned.parquet"]
    assert made("again.parquet") == (None, ())


def test_row_groups_that_memory_makes_small_are_told(tmp_path):
    rows = 1_500_000
    pq.write_table(pa.table({"k": pa.array(range(0, 2 * rows, 2))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": pa.array(range(1, 2 * rows, 2))}), tmp_path / "b.parquet")
    options = {"sort_by": "k", "row_group_rows": 2_000_000, "row_group_size": "1GB"}
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    report = plait.merge(paths, tmp_path / "o.parquet", memory_limit="64MB", **options)
    assert any("memory_limit allows row groups" in warning for warning in report.warnings)
    report = plait.merge(paths, tmp_path / "p.parquet", memory_limit="1GB", **options)
    assert report.warnings == ()


@pytest.mark.parametrize("damaged", [1, 2])
def test_an_arrow_schema_that_cannot_be_decoded_is_left_out(tmp_path, damaged):
    files = []
    for i in range(2):
        path = tmp_path / f"{i}.parquet"
        table = pa.table({"k": range(i, 100, 2), "v": pa.array(["x"] * 50, pa.large_string())})
        pq.write_table(table, path)
        if i < damaged:
            data = bytearray(path.read_bytes())
            at = data.index(b"ARROW:schema") + 60
            data[at : at + 4] = bytes(4)
            path.write_bytes(data)
        files.append(path)
    out = tmp_path / "out.parquet"
    plait.merge(files, out, sort_by="k", verify="content")
    read = pq.read_table(out)
    assert read["k"].to_pylist() == list(range(100))
    assert read.schema.field("v").type == (pa.large_string() if damaged == 1 else pa.string())
