"""Bloom filters, value sets and statistics: exact or absent, whichever tier moves the values."""

import datetime as dt
import itertools
import json
import random
import string

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main

TIERS = {
    "value": (),
    "dict": ("dict",),
    "page": ("page",),
    "chunk": ("chunk",),
    "all": ("chunk", "page", "dict"),
}
SETS = ["word", "many", "code", "day", "flag", "raw", "tags"]


def table(seed: int, rows: int, keys: range) -> pa.Table:
    rng = random.Random(seed)
    words = rng.sample(["api", "web", "db", "é", "", "cache"], rng.randint(1, 6))
    maybe = rng.choice([0, 0.2])

    def some(values):
        return [None if rng.random() < maybe else value for value in values]

    return pa.table(
        {
            "k": pa.array(sorted(rng.choices(keys, k=rows)), pa.int64()),
            "word": some(rng.choices(words, k=rows)),
            "many": some("".join(rng.choices(string.ascii_lowercase, k=6)) for _ in range(rows)),
            "code": pa.array(some(rng.choices(range(-3, 3), k=rows)), pa.int32()),
            "day": some(dt.date(2024, 1, 1) + dt.timedelta(rng.randint(0, 9)) for _ in range(rows)),
            "flag": some(rng.random() < 0.9 for _ in range(rows)),
            "raw": some(rng.choices([b"\xff", b"\0a", b""], k=rows)),
            "f": some(rng.choices([0.0, -0.0, 1.5, float("nan")], k=rows)),
            "tags": [rng.choices(words, k=rng.randint(0, 3)) for _ in range(rows)],
        }
    )


def leaf(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(column) if pa.types.is_list(column.type) else column


def shown(value: object) -> object:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return str(value) if isinstance(value, dt.date) else value


def check_zones(path: str, columns: list[str]) -> None:
    """Values and nulls of the zone map are those that PyArrow reads."""
    zones, read = plait.inspect(path).zone_map, pq.read_table(path)
    paths = {name.split(".")[0]: name for name in zones}
    assert set(paths) == set(columns)
    for name in columns:
        values = leaf(read[name]).combine_chunks()
        distinct = {shown(v) for v in values.to_pylist() if v is not None}
        zone = zones[paths[name]]
        if pa.types.is_list(read[name].type):
            # An empty list is a level without value, as a null is.
            assert zone.nulls == bool(
                values.null_count or 0 in pc.list_value_length(read[name]).to_pylist()
            )
        else:
            assert zone.nulls == bool(values.null_count)
        if len(distinct) <= 64:
            assert zone.prefixes is None
            assert list(zone.values) == sorted(
                distinct, key=lambda v: v.encode() if zone.type == "text" else v
            )
        else:
            assert zone.values is None
            assert {v[: zone.prefix_length] for v in distinct} == set(zone.prefixes)
            assert len(zone.prefixes) <= 64 < len({v[: zone.prefix_length + 1] for v in distinct})


def passes(path: str, column: str, value: object) -> list[bool]:
    """Whether DuckDB would read each row group that `value` is looked for in."""
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, ?, ?) ORDER BY row_group_id"
    return [not excludes for (excludes,) in duckdb.execute(probe, [path, column, value]).fetchall()]


def check_filters(path: str, columns: list[str]) -> None:
    file = pq.ParquetFile(path)
    for name, group in itertools.product(columns, range(file.num_row_groups)):
        values = file.read_row_group(group, columns=[name])[name].unique().to_pylist()
        for value in [v for v in values if v is not None][:40]:
            assert passes(path, name, value)[group], (name, group, value)


@pytest.mark.few(4)
@pytest.mark.behaviour("merge-26")
@pytest.mark.behaviour("merge-27")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tier", TIERS)
def test_filters_and_sets_hold_every_value_whichever_tier_moved_it(tier, seed, tmp_path):
    # Some stretches overlap, one is alone, one source has no column `word`.
    ranges = [range(1000), range(500, 1500), range(5000, 6000)]
    rng = random.Random(seed)
    for i, keys in enumerate(ranges):
        made = table(10 * seed + i, rng.randint(1, 3000), keys)
        pq.write_table(
            made,
            tmp_path / f"{i}.parquet",
            row_group_size=rng.choice([300, 10_000]),
            use_dictionary=rng.choice([True, False, ["word", "raw"]]),
            data_page_size=rng.choice([200, 1 << 20]),
            write_page_index=rng.choice([True, False]),
        )
    blooms = ["k", "word", "many", "code", "raw"]
    report = plait.merge(
        tmp_path / "?.parquet",
        tmp_path / "out",
        sort_by="k",
        outputs=rng.randint(1, 3),
        row_group_rows=rng.choice([700, 100_000]),
        page_rows=rng.choice([50, 20_000]),
        bloom_filters=blooms,
        value_sets=SETS,
        copy_tiers=TIERS[tier],
        threads=rng.choice([1, 3]),
    )
    for output in report.outputs:
        check_zones(output.path, SETS)
        check_filters(output.path, blooms)
        chunks = plait.inspect(output.path).row_groups[0].columns
        assert {c.path for c in chunks if c.bloom_filter} == set(blooms)


def test_page_and_chunk_tiers_are_used_and_observed(tmp_path):
    rows = 20_000
    for i in range(2):
        data = pa.table({"k": range(i * rows, (i + 1) * rows), "v": [f"v{i}"] * rows})
        pq.write_table(data, tmp_path / f"{i}.parquet", data_page_size=2000, write_page_index=True)
    single = pa.table({"k": [rows // 2, rows // 2 + 1], "v": ["x", "y"]})
    pq.write_table(single, tmp_path / "2.parquet")
    report = plait.merge(
        tmp_path / "?.parquet",
        tmp_path / "o.parquet",
        sort_by="k",
        row_group_rows=5 * rows,
        bloom_filters={"v": True, "k": {"fpp": 0.001}},
        value_sets="v",
    )
    assert report.copied["chunk"].rows == rows
    assert report.copied["page"].rows > 4000
    path = report.outputs[0].path
    assert plait.inspect(path).zone_map["v"].values == ("v0", "v1", "x", "y")
    assert any(passes(path, "v", "x")) and not any(passes(path, "v", "absent"))
    check_filters(path, ["k", "v"])


def test_nothing_is_made_that_was_not_asked_for_and_filters_stay_with_their_chunks(tmp_path):
    pq.write_table(pa.table({"k": range(1000)}), tmp_path / "a.parquet")
    asked = plait.merge(tmp_path / "a.parquet", tmp_path / "b", sort_by="k", bloom_filters=["k"])
    carried = plait.merge(asked.outputs[0].path, tmp_path / "c", row_group_rows=1000)
    assert carried.copied["chunk"].rows == 1000
    woven = plait.merge(asked.outputs[0].path, tmp_path / "d", copy_tiers=())
    has = [
        plait.inspect(r.outputs[0].path).row_groups[0].columns[0].bloom_filter
        for r in (asked, carried, woven)
    ]
    assert has == [True, True, False]
    assert passes(carried.outputs[0].path, "k", 999) == [True]
    for report in (asked, carried, woven):
        assert plait.inspect(report.outputs[0].path).zone_map is None
        assert b"plait.zone_map" not in pq.read_metadata(report.outputs[0].path).metadata


def test_a_filter_is_as_large_as_its_values_need(tmp_path):
    data = pa.table({"k": range(20_000), "few": [i % 10 for i in range(20_000)]})
    pq.write_table(data, tmp_path / "a.parquet")
    sizes = {}
    for name, filters in [
        ("none", ()),
        ("few", ["few"]),
        ("k", ["k"]),
        ("k rare", {"k": {"fpp": 1e-5}}),
        ("few roomy", {"few": {"ndv": 50_000}}),
    ]:
        report = plait.merge(
            tmp_path / "a.parquet", tmp_path / name, sort_by="k", bloom_filters=filters
        )
        sizes[name] = report.outputs[0].bytes
    assert sizes["few"] - sizes["none"] < 300
    assert 15_000 < sizes["k"] - sizes["none"] < 50_000 < sizes["k rare"] - sizes["none"]
    assert sizes["few roomy"] - sizes["none"] > 30_000
    wrong = sum(passes(str(next((tmp_path / "k").iterdir())), "k", -n)[0] for n in range(1, 500))
    assert wrong < 25


def test_zeros_of_both_signs_are_found(tmp_path):
    pq.write_table(pa.table({"k": [1, 2], "f": [-0.0, 1.0]}), tmp_path / "a.parquet")
    report = plait.merge(tmp_path / "a.parquet", tmp_path / "o", sort_by="k", bloom_filters=["f"])
    path = report.outputs[0].path
    assert passes(path, "f", 0.0) == passes(path, "f", -0.0) == [True]
    found = duckdb.execute("SELECT count(*) FROM read_parquet(?) WHERE f = 0.0", [path]).fetchall()
    assert found == [(1,)]


@pytest.mark.parametrize("tiers", [(), ("chunk", "page", "dict")])
def test_statistics_are_written_as_asked(tiers, tmp_path):
    data = pa.table({"k": range(100), "a": range(100), "b": range(100), "s": [{"x": 1}] * 100})
    pq.write_table(data, tmp_path / "a.parquet", write_page_index=True)

    def levels(**options):
        report = plait.merge(
            tmp_path / "a.parquet",
            tmp_path / str(options),
            sort_by="k",
            copy_tiers=tiers,
            **options,
        )
        group = pq.ParquetFile(report.outputs[0].path).metadata.row_group(0)
        columns = [group.column(i) for i in range(group.num_columns)]
        assert pq.read_table(report.outputs[0].path)["a"].to_pylist() == list(range(100))
        return {
            c.path_in_schema: (
                bool(c.statistics and c.statistics.has_min_max),
                c.has_column_index,
                c.has_offset_index,
            )
            for c in columns
        }

    none, chunk, page = (False, False, True), (True, False, True), (True, True, True)
    assert set(levels().values()) == {page}
    assert set(levels(statistics="chunk").values()) == {chunk}
    mixed = {"*": "chunk", "a": "none", "k": "page", "s": "none"}
    assert levels(statistics=mixed) == {"k": page, "a": none, "b": chunk, "s.x": none}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"bloom_filters": ["x"]}, plait.UnknownColumn),
        ({"value_sets": ["x"]}, plait.UnknownColumn),
        ({"statistics": {"x": "none"}}, plait.UnknownColumn),
        ({"bloom_filters": ["flag"]}, plait.InvalidArgument),
        ({"value_sets": ["f"]}, plait.InvalidArgument),
    ],
)
def test_columns_that_are_not_there_or_do_not_fit_are_refused(options, error, tmp_path):
    pq.write_table(table(1, 10, range(9)), tmp_path / "a.parquet")
    with pytest.raises(error, match=next(iter(next(iter(options.values()))))):
        plait.merge(tmp_path / "a.parquet", tmp_path / "o", sort_by="k", **options)
    assert not (tmp_path / "o").exists()


def test_zone_maps_of_other_rows_are_not_believed(tmp_path):
    pq.write_table(pa.table({"k": [1, 2], "v": ["a", "b"]}), tmp_path / "a.parquet")
    report = plait.merge(tmp_path / "a.parquet", tmp_path / "o", sort_by="k", value_sets=["v"])
    read = pq.read_table(report.outputs[0].path)
    kept = pq.read_metadata(report.outputs[0].path).metadata
    changed = pa.table({"k": read["k"], "v": ["x", "y"]}).replace_schema_metadata(
        {key: value for key, value in kept.items() if key.startswith(b"plait.")}
    )
    pq.write_table(changed, tmp_path / "copy.parquet")
    assert b"plait.zone_map" in pq.read_metadata(tmp_path / "copy.parquet").metadata
    assert plait.inspect(tmp_path / "copy.parquet").zone_map is None
    again = plait.merge(tmp_path / "copy.parquet", tmp_path / "again", sort_by="k")
    assert plait.inspect(again.outputs[0].path).zone_map is None


def test_a_column_lists_as_many_values_as_it_may(tmp_path):
    names = [f"metric.{i:04}" for i in range(1000)]
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(1000), "name": names, "code": range(1000)}), source)

    outputs = (str(tmp_path / f"{i}.parquet") for i in itertools.count())

    def zone(sets, column="name"):
        report = plait.merge(source, next(outputs), sort_by="k", value_sets=sets)
        return plait.inspect(report.outputs[0].path).zone_map[column]

    assert zone(["name"]).values is None
    assert zone({"name": {"max": 1000}}).values == tuple(names)
    assert zone({"name": {"max": 999}}).prefixes == tuple(sorted({name[:-1] for name in names}))
    assert zone({"code": {"max": 1000}}, "code").values == tuple(range(1000))
    assert zone({"name": True, "code": False}).prefix_length == len("metric.00")
    # The second file lists all names, the third what they begin with.
    assert plait.prune(tmp_path / "1.parquet", {"name": "metric.0a"}) == []
    assert plait.prune(tmp_path / "2.parquet", {"name": "metric.1000"}) == []
    for wrong in ({"name": {"max": 0}}, {"name": {"max": 65_537}}, {"name": {"most": 3}}):
        with pytest.raises(plait.InvalidArgument, match=r"value_sets|max"):
            zone(wrong)
    command = ["merge", str(source), "-o", str(tmp_path / "p.parquet"), "--sort-by", "k"]
    assert main([*command, "--value-sets", "name=1000,code"]) == 0
    assert plait.inspect(tmp_path / "p.parquet").zone_map["name"].values == tuple(names)


def test_an_output_without_rows_lists_no_values(tmp_path):
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    report = plait.merge(tmp_path / "a.parquet", tmp_path / "o", sort_by="k", value_sets=["k"])
    path = report.outputs[0].path
    assert plait.inspect(path).zone_map["k"].values == ()
    assert plait.prune(path, {"k": 1}) == []


def test_more_sources_than_memory_holds_have_exact_sets_too(tmp_path):
    rng = random.Random(7)
    for i in range(24):
        data = table(i, 60, range(1000))
        # A whole group of sources has no such column.
        data = data.drop_columns("word") if i < 20 else data
        data = data.append_column("pad", [[rng.randbytes(20_000) for _ in range(60)]])
        pq.write_table(data, tmp_path / f"{i:02}.parquet", use_dictionary=False)
    report = plait.merge(
        tmp_path / "*.parquet",
        tmp_path / "o",
        sort_by="k",
        value_sets=SETS,
        bloom_filters=["word"],
        statistics={"word": "chunk"},
        memory_limit="16MB",
    )
    assert any("two passes" in warning for warning in report.warnings)
    check_zones(report.outputs[0].path, SETS)
    check_filters(report.outputs[0].path, ["word"])


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(5))
def test_files_that_are_left_out_have_no_such_row(seed, tmp_path):
    rng = random.Random(seed)
    pq.write_table(table(seed, 400, range(300)), tmp_path / "a.parquet")
    report = plait.merge(
        tmp_path / "a.parquet",
        tmp_path / "o",
        sort_by="k",
        outputs=6,
        row_group_rows=50,
        value_sets=["k", *SETS],
    )
    files = [output.path for output in report.outputs]
    rows = {path: pq.read_table(path).to_pylist() for path in files}
    everything = [row for path in files for row in rows[path]]
    dropped = 0
    for _ in range(40):
        row = rng.choice(everything)
        where = {name: row[name] for name in rng.sample(["k", "word", "many", "day", "raw"], 2)}
        where["flag"] = [row["flag"], None]
        left = plait.prune(files, where)
        dropped += len(files) - len(left)
        fits = {
            path
            for path in files
            for held in rows[path]
            if all(held[n] == v or (n == "flag" and held[n] in v) for n, v in where.items())
        }
        assert fits and fits <= set(left)
        assert left == [path for path in files if path in left]
    assert dropped > 40
    assert plait.prune(files, {"word": "nobody says this"}) == []
    assert plait.prune(tmp_path / "o" / "*.parquet", {}) == files
    assert plait.prune([*files, tmp_path / "a.parquet"], {"code": 99}) == [
        str(tmp_path / "a.parquet")
    ]
    with pytest.raises(plait.InvalidArgument, match="is not of its type"):
        plait.prune(files, {"code": "1"})


def test_sets_and_filters_do_not_depend_on_threads(tmp_path):
    for i in range(3):
        pq.write_table(table(i, 2000, range(3000)), tmp_path / f"{i}.parquet")
    made = []
    for threads in (1, 4):
        report = plait.merge(
            tmp_path / "?.parquet",
            tmp_path / str(threads),
            sort_by="k",
            threads=threads,
            row_group_rows=900,
            bloom_filters=["many", "f"],
            value_sets=SETS,
            sha256=True,
        )
        made.append(report.outputs[0].sha256)
    assert made[0] == made[1]
    entry = json.loads(pq.read_metadata(report.outputs[0].path).metadata[b"plait.zone_map"])
    assert entry["version"] == 1 and entry["rows"] == 6000
