"""Row maps say where every row went: compared with a column that says the same, and read by PyArrow.

Every row has the number of its source and its own; so outputs tell what maps should.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .conftest import load

pytestmark = pytest.mark.local
CASES = int(os.environ.get("PLAIT_ROW_MAP_CASES", "25"))
FATES = ("kept", "dropped", "deleted")


def write(folder: Path, sources: list[list[int]], **options) -> list[str]:
    """One file for each list of keys; `id` says which row of which source a row is."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, keys in enumerate(sources):
        rows = {
            "k": pa.array(keys, pa.int64()),
            "id": pa.array([number * 1_000_000 + row for row in range(len(keys))], pa.int64()),
            "v": pa.array([f"v{k}" for k in keys]),
        }
        paths.append(str(folder / f"{number:03}.parquet"))
        pq.write_table(pa.table(rows), paths[-1], **options)
    return paths


def read_map(path: str) -> tuple[dict, list[tuple[str, int, str]]]:
    """The entry of a map, and each of its rows as source, row and fate: by PyArrow alone."""
    file = pq.ParquetFile(path)
    header = json.loads(file.metadata.metadata[b"plait.row_map"])
    table = file.read()
    following = [source["start"] for source in header["sources"]]
    rows = []
    for source, fate in zip(*(table[name].to_pylist() for name in ("source", "fate")), strict=True):
        rows.append((header["sources"][source]["path"], following[source], FATES[fate]))
        following[source] += 1
    assert following == [source["end"] for source in header["sources"]]
    return header, rows


def map_of(output: str) -> str:
    return str(Path(output).with_name(f".{Path(output).name}.rowmap"))


def ids(output: str) -> list[int]:
    return pq.ParquetFile(output).read()["id"].to_pylist()


def check(paths: list[str], out: Path, gone: dict[str, set[int]] | None = None) -> Counter:
    """Compares the maps in a folder with the ids of its outputs; the fates of all rows."""
    places = {str(Path(path).resolve()): number for number, path in enumerate(paths)}
    told: dict[tuple[int, int], str] = {}
    for path in out.rglob(".*.rowmap"):
        header, rows = read_map(str(path))
        output = path.with_name(header["output"])
        kept = [places[source] * 1_000_000 + row for source, row, fate in rows if fate == "kept"]
        assert kept == (ids(str(output)) if output.exists() else [])
        assert header["rows"] == len(kept)
        for source, row, fate in rows:
            assert told.setdefault((places[source], row), fate) == fate
        assert len(told) == len(set(told))
    lengths = [pq.ParquetFile(path).metadata.num_rows for path in paths]
    for number, path in enumerate(paths):
        deleted = (gone or {}).get(path, set())
        for row in range(lengths[number]):
            # Only deleted rows at the ends of tasks are in no map.
            fate = told.get((number, row), "deleted")
            assert (fate == "deleted") == (row in deleted), (path, row, fate)
    return Counter(told.values())


def some_keys(rng: random.Random) -> list[list[int]]:
    top = rng.choice([5, 60, 3000])
    sizes = [rng.choice([0, 1, 7, 300, 2500]) for _ in range(rng.randint(1, 9))]
    apart = rng.random() < 0.3
    return [
        sorted(rng.randrange(top) + (top * i if apart else 0) for _ in range(size))
        for i, size in enumerate(sizes)
    ]


WAYS = (
    {},
    {"on_duplicate": "keep_last"},
    {"on_duplicate": "keep_first"},
    {"on_duplicate": "keep_last", "drop_where": "k < 20"},
    {"drop_where": "k >= 30"},
    {"copy_tiers": ()},
    {"row_group_rows": 100, "page_rows": 16},
)


@pytest.mark.parametrize("case", range(CASES))
def test_maps_tell_where_random_rows_went(case, tmp_path):
    rng = random.Random(case)
    sources = some_keys(rng)
    paths = write(tmp_path / "in", sources, row_group_size=rng.choice([50, 1000]))
    options = {
        **rng.choice(WAYS),
        "outputs": rng.choice([None, 1, 3, 8]),
        "threads": rng.choice([1, 2]),
    }
    out = tmp_path / "out"
    report = plait.merge(paths, out, sort_by="k", row_map=True, **options)
    fates = check(paths, out)
    assert fates["kept"] == report.rows_out
    assert fates["dropped"] == sum(report.rows_dropped.values())
    assert {output.row_map for output in report.outputs} <= set(map(str, out.glob(".*.rowmap")))
    for output in report.outputs:
        assert output.row_map == map_of(output.path)
        found = ids(output.path)
        for row in rng.sample(range(len(found)), min(4, len(found))):
            (one,) = plait.trace(output.path, row).found
            number, source_row = divmod(found[row], 1_000_000)
            assert (one.source, one.source_row) == (str(Path(paths[number]).resolve()), source_row)
            (back,) = plait.trace(paths[number], source_row, to=out).found
            assert back == plait.TracedRow(one.source, source_row, "kept", output.path, row)
    plan = plait.plan(paths, sort_by="k", row_map=True, **options)
    for task in plan.tasks:
        plait.execute_task(task.to_json(), str(tmp_path / "tasks"))
    before = {path.name: path.read_bytes() for path in out.glob(".*.rowmap")}
    after = {path.name: path.read_bytes() for path in (tmp_path / "tasks").glob(".*.rowmap")}
    assert before == after, "tasks write other maps"
    assert {p.name for p in out.glob("*.parquet")} == {
        p.name for p in (tmp_path / "tasks").glob("*.parquet")
    }


def test_two_passes_have_one_map(tmp_path):
    rng = random.Random(3)
    sources = [sorted(rng.choices(range(900), k=300)) for _ in range(90)]
    paths = []
    for number, keys in enumerate(sources):
        text = ["".join(rng.choices("abcdefgh", k=200)) for _ in keys]
        rows = {"k": keys, "id": [number * 1_000_000 + row for row in range(300)], "t": text}
        paths.append(str(tmp_path / f"{number:03}.parquet"))
        pq.write_table(pa.table(rows), paths[-1], compression="none", use_dictionary=False)
    for way in ({}, {"on_duplicate": "keep_last"}):
        out = tmp_path / f"out{len(way)}"
        options = {"sort_by": "k", "memory_limit": "16MB", "outputs": 2, **way}
        report = plait.merge(paths, out, row_map=True, **options)
        assert report.passes == 2
        fates = check(paths, out)
        assert fates["dropped"] == sum(report.rows_dropped.values())
        wide = tmp_path / f"wide{len(way)}"
        plait.merge(paths, wide, row_map=True, **{**options, "memory_limit": "2GB"})
        maps = [sorted(folder.glob(".*.rowmap")) for folder in (out, wide)]
        for one, other in zip(*maps, strict=True):
            assert sorted(read_map(str(one))[1]) == sorted(read_map(str(other))[1])


def test_deleted_rows_are_told_of(tmp_path):
    pytest.importorskip("deltalake")
    vectors = load("vectors")
    import deltalake

    def append(uri, keys):
        before = set(vectors.live(uri)) if Path(uri).exists() else set()
        rows = pa.table({"k": pa.array(keys, pa.int64()), "v": keys})
        deltalake.write_deltalake(uri, rows, mode="append")
        (name,) = set(vectors.live(uri)) - before
        return name

    for case in range(6):
        rng = random.Random(case)
        uri = str(tmp_path / f"t{case}")
        gone = {}
        for _ in range(rng.randint(1, 4)):
            name = append(uri, sorted(rng.choices(range(200), k=rng.choice([3, 400]))))
            rows = pq.ParquetFile(Path(uri, name)).metadata.num_rows
            deleted = set(rng.sample(range(rows), rng.randint(1, rows)))
            deleted |= set(range(rng.choice([0, 2]))) | set(range(rows - rng.choice([0, 2]), rows))
            vectors.delete(uri, name, deleted)
            gone[str(Path(uri, name))] = deleted
        out = tmp_path / f"out{case}"
        way = rng.choice([{}, {"on_duplicate": "keep_last"}, {"outputs": 3}])
        report = plait.merge(uri, out, sort_by="k", row_map=True, **way)
        places = [str(Path(path).resolve()) for path in gone]
        kept = 0
        for path in out.glob(".*.rowmap"):
            for source, row, fate in read_map(str(path))[1]:
                assert (fate == "deleted") == (row in gone[source])
                kept += fate == "kept"
        assert kept == report.rows_out and places
        if "outputs" not in way and report.outputs:
            for source, deleted in gone.items():
                if all(source != s.path for s in report.sources if s.rows == 0):
                    for row in rng.sample(sorted(deleted), 1):
                        (one,) = plait.trace(source, row, to=out).found
                        assert (one.fate, one.output_row) == ("deleted", None)


def test_a_task_whose_rows_are_all_dropped_has_a_map(tmp_path):
    paths = write(tmp_path / "in", [[1, 2, 3, 4]])
    out = tmp_path / "out"
    report = plait.merge(paths, out, sort_by="k", outputs=2, drop_where="k < 3", row_map=True)
    assert len(report.outputs) == 1 and len(list(out.glob(".*.rowmap"))) == 2
    assert check(paths, out) == {"dropped": 2, "kept": 2}
    assert plait.trace(paths[0], 0, to=out).found[0].fate == "dropped"


def test_partitions_have_their_maps_beside_them(tmp_path):
    rows = {"p": ["a", "a", "b"], "k": [1, 2, 3], "id": [0, 1, 2]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    out = tmp_path / "out"
    plait.merge(tmp_path / "in.parquet", out, sort_by="k", partition_by=["p"], row_map=True)
    assert check([str(tmp_path / "in.parquet")], out) == {"kept": 3}
    assert plait.trace(tmp_path / "in.parquet", 2, to=out).found[0].output.startswith(f"{out}/p=b/")


def test_no_reader_takes_a_map_for_data(tmp_path):
    paths = write(tmp_path / "in", [[1, 3], [2, 4]])
    out = tmp_path / "out"
    plait.merge(paths, out, sort_by="k", row_map=True)
    assert pl.read_parquet(out / "*.parquet")["k"].to_list() == [1, 2, 3, 4]
    assert pq.read_table(out)["k"].to_pylist() == [1, 2, 3, 4]
    assert duckdb.sql(f"select k from '{out}/**/*.parquet' order by k").fetchall() == [
        (1,),
        (2,),
        (3,),
        (4,),
    ]
    assert pa.table(plait.read(out, sort_by="k"))["k"].to_pylist() == [1, 2, 3, 4]
    assert plait.verify(out, sort_by="k").rows == 4


def test_other_engines_read_a_map(tmp_path):
    paths = write(tmp_path / "in", [[1, 3, 3], [2, 3]])
    out = tmp_path / "out.parquet"
    report = plait.merge(paths, out, sort_by="k", on_duplicate="keep_last", row_map=True)
    found = report.outputs[0].row_map
    expected = [(0, 0), (1, 0), (1, 0), (0, 1), (0, 1)]
    assert duckdb.sql(f"select source, fate from read_parquet('{found}')").fetchall() == expected
    assert pl.read_parquet(found).rows() == expected


def test_maps_are_small(tmp_path):
    rng = random.Random(1)
    rows, sources = 400_000, 16
    dealt = defaultdict(list)
    for key in range(rows):
        dealt[rng.randrange(sources)].append(key)
    paths = write(tmp_path / "in", list(dealt.values()))
    report = plait.merge(paths, tmp_path / "out", sort_by="k", row_map=True)
    size = sum(os.path.getsize(output.row_map) for output in report.outputs)
    assert size < rows * 0.52, "half a byte a row where sixteen sources alternate at random"
    apart = write(
        tmp_path / "apart", [list(range(i * 25_000, (i + 1) * 25_000)) for i in range(16)]
    )
    report = plait.merge(apart, tmp_path / "out2", sort_by="k", row_map=True)
    size = sum(os.path.getsize(output.row_map) for output in report.outputs)
    assert size < 5000 + 100 * 16, "a few bytes a run"


def test_what_cannot_be_traced_is_an_error(tmp_path):
    paths = write(tmp_path / "in", [[1, 3], [2, 4]])
    out = tmp_path / "out.parquet"
    plait.merge(paths, out, sort_by="k")
    for call, kind, message in [
        (lambda: plait.trace(out, 0), plait.SourceNotFound, "has no row map"),
        (lambda: plait.trace(tmp_path / "x.parquet", 0), plait.SourceNotFound, "x.parquet"),
        (lambda: plait.trace(paths[0], 0, to=tmp_path), plait.SourceNotFound, "no row maps"),
        (lambda: plait.trace(out, -1), plait.InvalidArgument, "row"),
        (lambda: plait.trace(out, None), plait.InvalidArgument, "row"),
    ]:
        with pytest.raises(kind, match=message):
            call()
    out.unlink()
    plait.merge(paths, out, sort_by="k", row_map=True)
    for call, kind, message in [
        (lambda: plait.trace(out, 4), plait.InvalidArgument, "no such row"),
        (lambda: plait.trace(paths[0], 2, to=out), plait.InvalidArgument, "no such row"),
        (lambda: plait.trace(out, 0, to=out), plait.SourceNotFound, "is of this source"),
    ]:
        with pytest.raises(kind, match=message):
            call()
    plait.merge(paths[:1], tmp_path / "other.parquet", sort_by="k", row_map=True)
    os.replace(map_of(str(tmp_path / "other.parquet")), map_of(str(out)))
    with pytest.raises(plait.CorruptSource, match="belongs to another output"):
        plait.trace(out, 0)


def test_files_that_have_to_be_sorted_have_no_map(tmp_path):
    paths = write(tmp_path / "in", [[3, 1, 2], [1, 2]])
    with pytest.raises(plait.Unsupported, match="no row map"):
        plait.merge(paths, tmp_path / "out", sort_by="k", unsorted="sort", row_map=True)
    assert not (tmp_path / "out").exists()
    report = plait.merge(paths, tmp_path / "out", sort_by="k", unsorted="skip", row_map=True)
    assert report.rows_out == 2 and plait.trace(report.outputs[0].path, 1).found[0].source_row == 1


def remade(path: str, edit) -> None:
    """Writes a map again with another entry or other columns."""
    file = pq.ParquetFile(path)
    table, header = file.read(), json.loads(file.metadata.metadata[b"plait.row_map"])
    table, header = edit(table, header)
    entries = {"plait.row_map": header if isinstance(header, str) else json.dumps(header)}
    pq.write_table(table.replace_schema_metadata(entries), path)


def column(name: str, change):
    def edit(table, header):
        at = table.schema.get_field_index(name)
        values = pa.array(change(table[name].to_pylist()), pa.int32())
        return table.set_column(at, table.schema.field(at), values), header

    return edit


DAMAGE = {
    "another source": column("source", lambda v: [*v[:-1], 9]),
    "a negative source": column("source", lambda v: [*v[:-1], -1]),
    "a source twice": column("source", lambda v: [0] * len(v)),
    "another fate": column("fate", lambda v: [*v[:-1], 3]),
    "a row not kept": column("fate", lambda v: [*v[:-1], 1]),
    "rows missing": lambda t, h: (t.slice(1), h),
    "no columns": lambda t, h: (t.select(["source"]), h),
    "other columns": lambda t, h: (t.rename_columns(["source", "x"]), h),
    "wider columns": lambda t, h: (
        t.cast(pa.schema([("source", pa.int64()), ("fate", pa.int64())])),
        h,
    ),
    "no entry": lambda t, _: (t, "{"),
    "ranges": lambda t, h: (t, {**h, "sources": [{**s, "start": 9} for s in h["sources"]]}),
    "huge ranges": lambda t, h: (
        t,
        {**h, "sources": [{**s, "end": 2**64 - 1} for s in h["sources"]]},
    ),
    "no sources": lambda t, h: (t, {**h, "sources": []}),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_map_that_contradicts_itself_is_corrupt(what, tmp_path):
    paths = write(tmp_path / "in", [[1, 3, 5], [2, 4]])
    out = str(tmp_path / "out.parquet")
    plait.merge(paths, out, sort_by="k", row_map=True)
    remade(map_of(out), DAMAGE[what])
    for call in (lambda: plait.trace(out, 4), lambda: plait.trace(paths[0], 2, to=out)):
        try:
            call()
        except plait.CorruptSource as error:
            assert error.path == map_of(out)
        except plait.SourceNotFound as error:
            assert what == "no sources", error
        else:
            # Only whoever reads to the end notices that a row is missing there.
            assert what in ("a row not kept", "another source", "another fate", "a negative source")


def test_a_later_version_is_refused(tmp_path):
    paths = write(tmp_path / "in", [[1]])
    out = str(tmp_path / "out.parquet")
    plait.merge(paths, out, sort_by="k", row_map=True)
    remade(map_of(out), lambda t, h: (t, {**h, "version": 2}))
    with pytest.raises(plait.Unsupported, match="version"):
        plait.trace(out, 0)


def test_flipped_bytes_are_errors_or_answers(tmp_path):
    rng = random.Random(2)
    paths = write(tmp_path / "in", [sorted(rng.choices(range(99), k=200)) for _ in range(3)])
    out = str(tmp_path / "out.parquet")
    plait.merge(paths, out, sort_by="k", row_map=True)
    whole = Path(map_of(out)).read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        Path(map_of(out)).write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        for call in (lambda: plait.trace(out, 599), lambda: plait.trace(paths[1], 7, to=out)):
            try:
                call()
            except (
                plait.CorruptSource,
                plait.Unsupported,
                plait.SourceNotFound,
                plait.InvalidArgument,
            ):
                pass
            except plait.PlaitError as error:
                raise AssertionError(type(error).__name__) from error


def test_maps_of_objects_are_published_with_their_outputs(tmp_path):
    obstore = pytest.importorskip("obstore")
    store = obstore.store.MemoryStore()
    for path in write(tmp_path, [[1, 3], [2, 4]]):
        obstore.put(store, f"in/{Path(path).name}", Path(path).read_bytes())
    settings = {"sort_by": "k", "storage_options": store, "row_map": True}
    for _ in range(2):
        (output,) = plait.merge("in", "out", **settings).outputs
    (one,) = plait.trace(output.path, 2, storage_options=store).found
    assert (one.source, one.source_row) == ("in/000.parquet", 1)
    assert plait.trace("in/000.parquet", 1, to="out", storage_options=store).found == (one,)
    plait.merge("in", "one.parquet", **settings)
    obstore.delete(store, "one.parquet")
    # An object is never replaced: the map of another merge is in the way.
    with pytest.raises(plait.OutputExists, match="row map of another output"):
        plait.merge("in/000.parquet", "one.parquet", **settings)
    names = [found["path"] for found in obstore.list(store).collect()]
    assert "one.parquet" not in names


def test_a_map_whose_output_cannot_be_published_goes(tmp_path):
    paths = write(tmp_path / "in", [list(range(0, 90, 2)), list(range(1, 90, 2))])
    names = [
        Path(output.path).name
        for output in plait.merge(paths, tmp_path / "whole", sort_by="k", outputs=3).outputs
    ]
    for blocked in range(3):
        for name in (names[blocked], f".{names[blocked]}.rowmap"):
            out = tmp_path / f"{blocked}{name[0]}"
            (out / name / "in the way").mkdir(parents=True)
            with pytest.raises(plait.StorageError):
                plait.merge(paths, out, sort_by="k", outputs=3, row_map=True)
            there = {path.name for path in out.iterdir() if path.is_file()}
            whole = names[:blocked]
            assert there == {*whole, *(f".{one}.rowmap" for one in whole)}
