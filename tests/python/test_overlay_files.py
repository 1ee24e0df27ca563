"""Overlay of Parquet files: what is copied how, what other tools read, and every way to fail."""

import decimal
import os
import random

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import Layer
from plait.cli import main

from . import footers

ROWS = 1000


def wide(rows=ROWS):
    return pa.table(
        {
            "_index": range(rows),
            "a": [{"x": i, "y": f"t{i % 9}"} if i % 7 else None for i in range(rows)],
            "b": [[i] * (i % 3) for i in range(rows)],
            "c": [{"p": i, "q": {"r": -i}} for i in range(rows)],
        }
    )


def narrow(rows=ROWS):
    return pa.table(
        {
            "_index": range(rows),
            "a": [{"y": i / 2} if i % 5 else None for i in range(rows)],
            "c": [{"z": i} for i in range(rows)],
            "d": [f"d{i}" for i in range(rows)],
        }
    )


@pytest.fixture
def files(tmp_path):
    pq.write_table(wide(), tmp_path / "base.parquet", row_group_size=300)
    pq.write_table(narrow(), tmp_path / "patch.parquet", row_group_size=300)
    return tmp_path / "base.parquet", tmp_path / "patch.parquet", tmp_path / "out.parquet"


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_new_column_is_a_copy_of_bytes(files):
    base, patch, out = files
    report = plait.overlay_files([Layer(base), Layer(patch, ["d"])], out)
    assert set(report.copied) == {"chunk"}
    assert report.copied["chunk"].rows == report.rows == ROWS
    assert report.supplied[-1] == ("d", str(patch))
    assert str(report).startswith(f"overlaid into {out}: 1,000 rows")
    got = pq.read_table(out)
    assert got.to_pylist() == wide().append_column("d", narrow()["d"]).to_pylist()
    mine, theirs = pq.ParquetFile(out).metadata, pq.ParquetFile(base).metadata
    for group in range(theirs.num_row_groups):
        for leaf in range(theirs.num_columns):
            one, other = mine.row_group(group).column(leaf), theirs.row_group(group).column(leaf)
            assert one.total_compressed_size == other.total_compressed_size
            assert one.statistics == other.statistics
    for group in range(theirs.num_row_groups):
        chunks = [f.row_group(group).column(1) for f in (mine, theirs)]
        spans = [
            (c.dictionary_page_offset or c.data_page_offset, c.total_compressed_size)
            for c in chunks
        ]
        one, other = (read_span(path, *span) for path, span in zip((out, base), spans))
        assert one == other


def read_span(path, start, size):
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(size)


def test_a_field_of_a_struct_that_all_layers_have_is_a_copy_too(files):
    base, patch, out = files
    report = plait.overlay_files([Layer(base), Layer(patch, ["c.z"])], out)
    assert set(report.copied) == {"chunk"}
    got = pq.read_table(out)["c"].to_pylist()
    assert got == [{"p": i, "q": {"r": -i}, "z": i} for i in range(ROWS)]


def test_a_struct_on_which_layers_disagree_is_made_anew(files):
    base, patch, out = files
    layers = [Layer(base), Layer(patch, ["a.y"])]
    report = plait.overlay_files(layers, out)
    assert report.copied["value"].bytes > 0 and report.copied["chunk"].bytes > 0
    expected = plait.overlay([Layer(wide()), Layer(narrow(), ["a.y"])])
    assert pq.read_table(out).to_pylist() == pa.table(expected).to_pylist()


@pytest.mark.parametrize("size", [100, 299, 301, 1000])
def test_row_groups_that_do_not_line_up_are_copied_page_by_page(files, size):
    base, patch, out = files
    pq.write_table(narrow(), patch, row_group_size=size, data_page_size=64, write_batch_size=20)
    report = plait.overlay_files([Layer(base), Layer(patch, ["d"])], out)
    assert report.copied["chunk"].bytes > 0
    assert sum(
        report.copied[tier].bytes for tier in ("page", "dict", "value") if tier in report.copied
    )
    assert pq.read_table(out)["d"].to_pylist() == narrow()["d"].to_pylist()
    assert report.row_groups == 4


def test_a_layer_may_be_several_files(files, tmp_path):
    base, _, out = files
    parts = tmp_path / "parts"
    parts.mkdir()
    for part, start in enumerate(range(0, ROWS, 250)):
        pq.write_table(narrow().slice(start, 250), parts / f"{part}.parquet", row_group_size=99)
    plait.overlay_files([Layer(base), Layer(sorted(parts.iterdir()), ["d", "a.y"])], out)
    expected = plait.overlay([Layer(wide()), Layer(narrow(), ["d", "a.y"])])
    assert pq.read_table(out).to_pylist() == pa.table(expected).to_pylist()
    out.unlink()
    plait.overlay_files([Layer(parts), Layer(base, ["b"])], out)
    assert pq.read_table(out).column_names == ["_index", "a", "c", "d", "b"]
    pq.write_table(pa.table({"_index": [1], "d": [1]}), parts / "9.parquet")
    with pytest.raises(plait.SchemaDrift, match=r"9\.parquet"):
        plait.overlay_files([Layer(parts)], tmp_path / "no.parquet")


def test_other_tools_read_the_output(files):
    base, patch, out = files
    layers = [Layer(base), Layer(patch, ["a.y", "c.z", "d"])]
    plait.overlay_files(layers, out)
    expected = pa.table(
        plait.overlay([Layer(wide()), Layer(narrow(), ["a.y", "c.z", "d"])])
    ).to_pylist()
    assert pq.read_table(out).to_pylist() == expected
    assert pl.read_parquet(out).to_dicts() == expected
    assert duckdb.sql(f"from '{out}'").arrow().read_all().to_pylist() == expected
    assert plait.inspect(out).rows == ROWS


@pytest.mark.parametrize("check", ["upfront", "after"])
def test_rows_that_differ_publish_nothing(files, check, tmp_path):
    base, patch, out = files
    index = list(range(ROWS))
    index[777] = 9999
    pq.write_table(narrow().set_column(0, "_index", pa.array(index)), patch)
    before = left(tmp_path)
    with pytest.raises(plait.RowMismatch) as caught:
        plait.overlay_files([Layer(base), Layer(patch, ["d"])], out, check=check)
    assert caught.value.row == 777 and "`9999`" in str(caught.value)
    pq.write_table(narrow(ROWS - 1), patch)
    with pytest.raises(plait.RowMismatch, match="no further row"):
        plait.overlay_files([Layer(base), Layer(patch, ["d"])], out, check=check)
    assert left(tmp_path) == before


def test_what_cannot_be_opened_or_written_publishes_nothing(files, tmp_path):
    base, patch, out = files
    before = left(tmp_path)
    layers = [Layer(base), Layer(patch, ["d"])]
    with pytest.raises(plait.SourceNotFound):
        plait.overlay_files([Layer(base), Layer(tmp_path / "absent.parquet", ["d"])], out)
    with pytest.raises(plait.OutputExists):
        plait.overlay_files(layers, base)
    with pytest.raises(plait.InvalidArgument, match="parquet"):
        plait.overlay_files(layers, tmp_path / "folder")
    for wrong in (
        {"check": "never"},
        {"memory_limit": 1},
        {"copy_tiers": ["fast"]},
        {"struct_validity": 1},
    ):
        with pytest.raises(plait.InvalidArgument):
            plait.overlay_files(layers, out, **wrong)
    with pytest.raises(plait.FieldNotInLayer):
        plait.overlay_files([Layer(base), Layer(patch, ["b"])], out)
    assert left(tmp_path) == before


def test_what_progress_raises_leaves_nothing(files, tmp_path):
    base, patch, out = files

    def stop(progress):
        raise LookupError("enough")

    before = left(tmp_path)
    with pytest.raises(LookupError):
        plait.overlay_files([Layer(base), Layer(patch, ["a.y"])], out, progress=stop)
    # The call may have been done before the first report: then the file is there, and whole.
    assert set(left(tmp_path)) - set(before) <= {"out.parquet"}


@pytest.mark.parametrize("victim", ["base", "patch"])
def test_damage_is_an_error_or_changes_nothing(files, tmp_path, victim):
    base, patch, out = files
    path = {"base": base, "patch": patch}[victim]
    whole = path.read_bytes()
    layers = [Layer(base), Layer(patch, ["a.y", "d"])]
    plait.overlay_files(layers, out)
    expected = pq.read_table(out).to_pylist()
    out.unlink()
    outcomes = set()
    step = max(1, len(whole) // (400 if os.environ.get("CI") else 60))
    for at in range(0, len(whole), step):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
        try:
            plait.overlay_files(layers, out)
        except plait.InternalError:
            raise
        except plait.PlaitError as error:
            outcomes.add(type(error).__name__)
            assert not out.exists()
        else:
            outcomes.add("published")
            out.unlink()
    assert "CorruptSource" in outcomes
    for cut in (0, 3, 11, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(plait.CorruptSource):
            plait.overlay_files(layers, out)
    path.write_bytes(whole)
    plait.overlay_files(layers, out)
    assert pq.read_table(out).to_pylist() == expected
    assert left(tmp_path) == ["base.parquet", "out.parquet", "patch.parquet"]


def test_the_footer_keeps_what_still_holds(tmp_path):
    schema = pa.schema(
        [pa.field("_index", pa.int64(), False), pa.field("x", pa.int64(), metadata={"unit": "m"})]
    )
    base = pa.table(
        {"_index": [1], "x": [2]}, schema=schema.with_metadata({"owner": "me", "both": "1"})
    )
    patch = pa.table({"_index": [1], "y": [2]}).replace_schema_metadata(
        {"more": "you", "both": "2"}
    )
    pq.write_table(base, tmp_path / "a.parquet")
    pq.write_table(patch, tmp_path / "b.parquet")
    plait.overlay_files(
        [Layer(tmp_path / "a.parquet"), Layer(tmp_path / "b.parquet")], tmp_path / "o.parquet"
    )
    got = pq.read_schema(tmp_path / "o.parquet")
    assert got.metadata == {b"owner": b"me", b"both": b"1", b"more": b"you"}
    assert got.field("x").metadata[b"unit"] == b"m"
    assert not got.field("_index").nullable


def test_files_without_rows_and_columns_named_like_the_index(tmp_path):
    mark = {"plait.index": "true"}
    schema = pa.schema(
        [pa.field("_index_", pa.int64(), metadata=mark), pa.field("_index", pa.int64())]
    )
    for rows in (0, 3):
        table = pa.table({"_index_": range(rows), "_index": range(10, 10 + rows)}, schema=schema)
        pq.write_table(table, tmp_path / "a.parquet")
        for path, names in ((["_index"], ["_index_", "_index"]), ([], ["_index"])):
            out = tmp_path / f"{rows}-{len(path)}.parquet"
            report = plait.overlay_files([Layer(tmp_path / "a.parquet", path)], out)
            got = pq.read_table(out)
            assert report.rows == got.num_rows == rows
            assert got.column_names == names
            assert got[0].to_pylist() == list(range(rows))


def test_the_command_line_overlays(files, capsys):
    base, patch, out = map(str, files)
    assert main(["overlay", "--layer", base, "--layer", patch, "a.y", "d", "-o", out]) == 0
    assert capsys.readouterr().out.startswith(f"overlaid into {out}: 1,000 rows")
    assert pq.read_table(out).column_names == ["_index", "a", "b", "c", "d"]
    assert main(["overlay", "--layer", base, "-o", out]) == 4
    assert main(["overlay", "--layer", base, "nowhere", "-o", out + ".parquet"]) == 3
    assert main(["overlay", "--layer", base, "a..b", "-o", out + ".parquet"]) == 2
    more = ["--index", "plait.index=true", "--row-number", "n", "--struct-validity", "all_children"]
    more += [
        "--no-check-unused",
        "--check",
        "after",
        "--copy-tiers",
        "none",
        "--memory-limit",
        "64MB",
        "--json",
    ]
    assert main(["overlay", "--layer", base, "-o", out + ".parquet", *more]) == 3
    assert (
        main(["overlay", "--layer", base, "-o", out + ".parquet", *more[6:], "--index", "_index"])
        == 0
    )
    assert '"rows": 1000' in capsys.readouterr().out


def test_a_struct_that_holds_a_map_is_looked_for_through_the_whole_map(tmp_path):
    """The parquet crate does not read the keys of a map without its values."""
    maps = pa.map_(pa.string(), pa.int64())
    with_map = pa.struct([("m", maps)])
    base = pa.table(
        {"_index": [1, 2, 3], "s": pa.array([{"m": [("a", 1)]}, None, {"m": None}], with_map)}
    )
    patch = pa.table({"_index": [1, 2, 3], "s": [{"x": 1}, {"x": 2}, None]})
    paths = [tmp_path / name for name in ("base.parquet", "patch.parquet", "out.parquet")]
    pq.write_table(base, paths[0])
    pq.write_table(patch, paths[1])
    plait.overlay_files([Layer(paths[0]), Layer(paths[1], [("s", "x")])], paths[2])
    wanted = plait.overlay([Layer(base), Layer(patch, [("s", "x")])])
    assert pq.read_table(paths[2]).to_pylist() == pa.table(wanted).to_pylist()


def column_index(path, name):
    """Null pages, null counts and whether there are values, of each page of a leaf; none without index."""
    data = path.read_bytes()
    for group in footers.read(path).get("row_groups"):
        for column in group.get("columns"):
            dotted = ".".join(
                part.decode() for part in column.get("meta_data").get("path_in_schema")
            )
            start, length = (column.get(f"column_index_{word}") for word in ("offset", "length"))
            if dotted != name or start is None:
                continue
            index = footers.Reader(data[start : start + length]).struct(footers.Struct())
            null_pages, levels = (list(index.fields[at][1]) for at in (1, 7))
            per_page = len(levels) // len(null_pages)
            for page, is_null in enumerate(null_pages):
                # Within lists of booleans, 1 is true.
                yield is_null == 1, levels[(page + 1) * per_page - 1]


def test_no_page_with_values_is_called_a_null_page(tmp_path):
    # As many nulls as rows, and values besides: the nulls of lists are not rows.
    for seed in range(20):
        r = random.Random(seed)
        rows = r.choice([4, 7, 20])
        z = [r.choice([None, [], [None], [1], [1, 2, None], [1, None, None]]) for _ in range(rows)]
        one = [None if r.random() < 0.2 else {"z": v} for v in z]
        other = [None if r.random() < 0.2 else {"y": i} for i in range(rows)]
        base = pa.table({"_index": range(rows), "s": pa.array(one, Z)})
        patch = pa.table({"_index": range(rows), "s": pa.array(other, Y)})
        for name, table in {"base": base, "patch": patch}.items():
            pq.write_table(table, tmp_path / f"{name}.parquet")
        out = tmp_path / f"{seed}.parquet"
        layers = [Layer(tmp_path / "base.parquet"), Layer(tmp_path / "patch.parquet", ["s.y"])]
        plait.overlay_files(layers, out)
        for is_null, values in column_index(out, "s.z.list.element"):
            assert not (is_null and values), seed
        want = pa.table(plait.overlay([Layer(base), Layer(patch, ["s.y"])]))
        assert pq.read_table(out).to_pylist() == want.to_pylist(), seed


Z = pa.struct([("z", pa.list_(pa.int64()))])
Y = pa.struct([("y", pa.int64())])


def test_files_of_a_layer_may_store_decimals_in_several_ways(tmp_path):
    ways = [{"store_decimal_as_integer": True}, {}]
    values = [decimal.Decimal(i).scaleb(-2) for i in range(-50, 50)]
    for precision in (5, 12):
        typ, files = pa.decimal128(precision, 2), []
        for i, options in enumerate([*ways, ways[0]]):
            rows = pa.table({"_index": range(i * 100, i * 100 + 100), "d": pa.array(values, typ)})
            files.append(tmp_path / f"{precision}-{i}.parquet")
            pq.write_table(rows, files[-1], row_group_size=30, **options)
        stored = {pq.ParquetFile(file).schema.column(1).physical_type for file in files}
        assert len(stored) == 2, stored
        base = tmp_path / f"base-{precision}.parquet"
        pq.write_table(pa.table({"_index": range(300), "x": range(300)}), base, row_group_size=64)
        for tiers in (("chunk", "page", "dict"), ("page",), ()):
            out = tmp_path / f"{precision}-{len(tiers)}-out.parquet"
            plait.overlay_files([Layer(base), Layer(files, ["d"])], out, copy_tiers=tiers)
            got = pq.read_table(out)
            assert got["d"].to_pylist() == values * 3
            assert got.schema.field("d").type == typ
            found = duckdb.sql(f"select sum(d), count(*) from '{out}'").fetchall()
            assert found == [(3 * sum(values), 300)]
