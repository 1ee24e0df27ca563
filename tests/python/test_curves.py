"""Clustering keys, `zorder(a, b)` and `hilbert(a, b)`, against keys that Python makes by itself."""

import datetime as dt
import decimal
import itertools
import json
import math
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

KINDS = ("zorder", "hilbert")
BITS = 64
MOST = 2**BITS - 1
EPOCH = dt.datetime(1970, 1, 1)


# The oracle: integers of Python, a bit at a time ---------------------------------------------------


def coordinate(value: Any, *, nulls_first: bool = False) -> int:
    """A value as a number of 64 bits: its place among all of its type."""
    match value:
        case None:
            return 0 if nulls_first else MOST
        case bool():
            return int(value) << (BITS - 1)
        case float():
            value = math.nan if math.isnan(value) else value + 0.0
            (bits,) = struct.unpack(">Q", struct.pack(">d", value))
            return MOST - bits if bits >> (BITS - 1) else bits + 2 ** (BITS - 1)
        case str() | bytes():
            value = value.encode() if isinstance(value, str) else value
            return int.from_bytes(value[:8].ljust(8, b"\0"), "big")
        case decimal.Decimal():
            unscaled = int(value.scaleb(2))
            return coordinate(min(max(unscaled, -(2 ** (BITS - 1))), 2 ** (BITS - 1) - 1))
        case dt.datetime():
            return coordinate((value - EPOCH) // dt.timedelta(microseconds=1))
        case dt.date():
            return coordinate((value - EPOCH.date()).days)
    return value + 2 ** (BITS - 1)


def z_index(coordinates: list[int]) -> int:
    """Bits by turns."""
    index = 0
    for level in range(BITS - 1, -1, -1):
        for value in coordinates:
            index = index << 1 | value >> level & 1
    return index


def hilbert_index(coordinates: list[int]) -> int:
    """Skilling's transform, 2004, then bits by turns."""
    x = list(coordinates)
    for level in range(BITS - 1, 0, -1):
        bit, below = 1 << level, (1 << level) - 1
        for i in range(len(x)):
            if x[i] & bit:
                x[0] ^= below
            else:
                flip = (x[0] ^ x[i]) & below
                x[0] ^= flip
                x[i] ^= flip
    for i in range(1, len(x)):
        x[i] ^= x[i - 1]
    turn = 0
    for level in range(BITS - 1, 0, -1):
        if x[-1] & 1 << level:
            turn ^= (1 << level) - 1
    return z_index([value ^ turn for value in x])


INDEX: dict[str, Callable[[list[int]], int]] = {"zorder": z_index, "hilbert": hilbert_index}


def key_of(kind: str, names: list[str], nulls_first: frozenset[str] = frozenset()) -> Any:
    """The key of a row: its index, which columns are null, and what the index does not say."""

    def behind(name: str, value: Any) -> Any:
        nothing: Any = b"" if isinstance(value, str | bytes) else 0
        where = -1 if name in nulls_first else 1
        if value is None:
            return (where, nothing)
        return (0, value.encode() if isinstance(value, str) else value)

    def key(row: dict[str, Any]) -> Any:
        values = [row[name] for name in names]
        coordinates = [
            coordinate(value, nulls_first=name in nulls_first)
            for name, value in zip(names, values, strict=True)
        ]
        marks = sum(1 << i for i, value in enumerate(values) if value is None)
        whole = (str, bytes, decimal.Decimal)
        return (
            INDEX[kind](coordinates),
            marks,
            [
                behind(n, v) if isinstance(v, whole) or v is None else (0, 0)
                for n, v in zip(names, values, strict=True)
            ],
        )

    return key


def in_order(table: pa.Table, key: Any) -> pa.Table:
    """The rows, sorted stably."""
    rows = table.to_pylist()
    return table.take(pa.array(sorted(range(len(rows)), key=lambda i: key(rows[i])), pa.int64()))


# Sources ------------------------------------------------------------------------------------------

TYPES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [-(2**31), -1, 0, 1, 5, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2**40, 2**63 - 1],
    pa.float32(): [-math.inf, -1.5, 0.0, -0.0, 2.0**-30, math.inf, math.nan],
    pa.float64(): [-1e300, -0.0, 0.0, 5e-324, 0.1, math.nan],
    pa.bool_(): [False, True],
    pa.string(): ["", "a", "a\0", "longer than", "longer than eight", "longer t", "é"],
    pa.binary(): [b"", b"\0", b"\xff" * 9, b"\xff" * 8],
    pa.date32(): [dt.date(1969, 1, 1), dt.date(2024, 5, 1)],
    pa.timestamp("us"): [dt.datetime(2024, 5, 1, 13), dt.datetime(1900, 1, 1)],
    pa.decimal128(25, 2): [decimal.Decimal(text) for text in ("-1.00", "0.00", "1e20", "-1e20")],
}


def table_of(types: list[pa.DataType], rows: int, rng: random.Random, nulls: float) -> pa.Table:
    """Random rows of some values each, and their number."""
    names = [chr(ord("a") + i) for i in range(len(types))]
    columns: dict[str, pa.Array] = {}
    for name, type_ in zip(names, types, strict=True):
        values = [None if rng.random() < nulls else rng.choice(TYPES[type_]) for _ in range(rows)]
        if type_ == pa.decimal128(25, 2):
            values = [v if v is None else v.quantize(decimal.Decimal("0.01")) for v in values]
        columns[name] = pa.array(values, type_)
    return pa.table(columns | {"row": pa.array(range(rows), pa.int64())})


def write(tables: list[pa.Table], folder: Path, **options: Any) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(folder / f"{i}.parquet") for i in range(len(tables))]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(table, path, **options)
    return paths


def read(paths: str | list[str] | Path) -> pa.Table:
    if isinstance(paths, Path) and paths.is_dir():
        paths = sorted(map(str, paths.glob("*.parquet")))
    found = [pq.read_table(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    return pa.concat_tables(found)


def pieces(table: pa.Table, count: int) -> list[pa.Table]:
    """The rows dealt to sources, each of which keeps their order."""
    return [table.take(pa.array(range(i, len(table), count))) for i in range(count)]


def same(a: pa.Table, b: pa.Table) -> bool:
    """Equal, NaN to itself and 0.0 to -0.0 not."""
    return str(a.to_pylist()) == str(b.to_pylist())


@pytest.fixture(scope="module")
def pairs() -> pa.Table:
    """Random pairs of integers, of every magnitude."""
    rng = np.random.default_rng(5)
    n = 40_000
    shift = rng.integers(0, 60, n)
    a = rng.integers(-(2**62), 2**62, n) >> shift
    return pa.table({"a": a, "b": rng.integers(-500, 500, n), "v": np.arange(n)})


def z_sorted(table: pa.Table) -> pa.Table:
    """Sorted along zorder(a, b) by NumPy."""
    halves = []
    a, b = (table[c].to_numpy().view(np.uint64) ^ np.uint64(1 << 63) for c in ("a", "b"))
    for shift in (0, 32):
        half = np.zeros(len(table), np.uint64)
        for bit in range(32):
            for place, column in ((2 * bit + 1, a), (2 * bit, b)):
                one = column >> np.uint64(shift + bit) & np.uint64(1)
                half |= one << np.uint64(place)
        halves.append(half)
    return table.take(np.lexsort(halves))


# Merges -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(24))
def test_a_merge_is_concatenating_and_sorting_by_the_index(
    tmp_path: Path, kind: str, seed: int
) -> None:
    rng = random.Random(f"{kind} {seed}")
    types = rng.choices(list(TYPES), k=rng.choice([2, 2, 3, 5]))
    names = [chr(ord("a") + i) for i in range(len(types))]
    first = frozenset(name for name in names if rng.random() < 0.2)
    key = key_of(kind, names, first)
    nulls = rng.choice([0, 0.2])
    tables = [
        in_order(table_of(types, rng.randrange(1, 60), rng, nulls), key)
        for _ in range(rng.randrange(1, 5))
    ]
    paths = write(tables, tmp_path / "in", row_group_size=rng.choice([7, 100]))
    order = ", ".join(f"{name} nulls first" if name in first else name for name in names)
    order = f"{kind}({order})"
    report = plait.merge(paths, tmp_path / "out", sort_by=order, outputs=rng.choice([1, 3]))
    expected = in_order(pa.concat_tables(tables), key)
    assert same(read([o.path for o in report.outputs]), expected)
    stream = plait.merge_streams(tables, sort_by=order)
    assert same(pa.table(stream), expected), "a stream is merged as files are"
    assert plait.verify(tmp_path / "out", against=paths).ok
    rows = plait.read([o.path for o in report.outputs], reverse=True)
    backwards = expected.take(pa.array(range(len(expected) - 1, -1, -1)))
    assert same(pa.table(rows), backwards), "read backwards"
    assert rows.explain().sort_by == f"-{order}"


@pytest.mark.parametrize("tiers", [[], ["dict"], ["page", "dict"], ["chunk", "page", "dict"]])
@pytest.mark.parametrize("shape", ["interleaved", "disjoint", "partly"])
def test_every_tier_makes_the_same_rows(
    tmp_path: Path, pairs: pa.Table, tiers: list[str], shape: str
) -> None:
    expected, n = z_sorted(pairs), len(pairs)
    tables = {
        "interleaved": pieces(expected, 4),
        "disjoint": [expected.slice(i * n // 4, n // 4) for i in range(4)],
        "partly": [
            expected.slice(0, n // 2),
            *pieces(expected.slice(n // 2, n // 4), 2),
            expected.slice(3 * n // 4),
        ],
    }[shape]
    paths = write(tables, tmp_path / "in", data_page_size=8_000)
    report = plait.merge(
        paths,
        tmp_path / "out.parquet",
        sort_by="zorder(a, b)",
        copy_tiers=tiers,
        row_group_rows=n // 4,
        verify="content",
    )
    made = read(tmp_path / "out.parquet")
    # Rows of a key come in the order of their sources.
    assert made.equals(z_sorted(pa.concat_tables(tables)))
    if shape == "disjoint" and "chunk" in tiers:
        assert [output.tiers["chunk"] for output in report.outputs] == [n]


@pytest.mark.parametrize("nulls", ["none", "untold", "denied"])
def test_nulls_that_footers_do_not_tell_of_have_their_place(
    tmp_path: Path, pairs: pa.Table, nulls: str
) -> None:
    table = pairs.slice(0, 500)
    if nulls != "none":
        a = table["a"].to_pylist()
        a[17] = a[99] = a[400] = None
        table = table.set_column(0, "a", pa.array(a, pa.int64()))
    expected = in_order(table, key_of("zorder", ["a", "b"]))
    tables = pieces(expected, 2)
    statistics = nulls != "untold"
    paths = write(tables, tmp_path / "in", write_statistics=statistics, use_dictionary=False)
    if nulls == "denied":
        for path in paths:
            blob = Path(path).read_bytes()
            # null_count, then max_value of eight bytes: all of them say 0.
            for count in (1, 2, 3):
                told, denied = (bytes([0x16, 2 * c, 0x28, 0x08]) for c in (count, 0))
                blob = blob.replace(told, denied)
            Path(path).write_bytes(blob)
            chunk = pq.read_metadata(path).row_group(0).column(0)
            assert chunk.statistics.null_count == 0
    plait.merge(paths, tmp_path / "out.parquet", sort_by="zorder(a, b)")
    made = read(tmp_path / "out.parquet")
    expected = in_order(pa.concat_tables(tables), key_of("zorder", ["a", "b"]))
    assert made.equals(expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", ["true", "too narrow"])
def test_rows_outside_of_the_bounds_of_footers_have_their_place(
    tmp_path: Path, kind: str, bounds: str
) -> None:
    rng = random.Random(8)
    key = key_of(kind, ["a", "b", "c"])
    types = {"a": pa.int64(), "b": pa.int32(), "c": pa.int64()}
    tables = []
    for _ in range(3):
        columns = {
            name: pa.array([rng.randrange(10_000, 12_000) for _ in range(300)], type_)
            for name, type_ in types.items()
        }
        tables.append(in_order(pa.table(columns | {"row": range(300)}), key))
    if bounds == "too narrow":
        # Far away: bits that the footers say all rows share.
        lowest = pa.table({name: pa.array([-5], type_) for name, type_ in types.items()})
        tables[1] = in_order(
            pa.concat_tables([tables[1], lowest.append_column("row", pa.array([300]))]), key
        )
    paths = write(tables, tmp_path / "in", use_dictionary=False)
    if bounds == "too narrow":
        blob = Path(paths[1]).read_bytes()
        footer = int.from_bytes(blob[-8:-4], "little") + 8
        pages, told = blob[:-footer], blob[-footer:]
        for width in (8, 4):
            least, denied = (v.to_bytes(width, "little", signed=True) for v in (-5, 10_001))
            assert least in told
            told = told.replace(least, denied)
        Path(paths[1]).write_bytes(pages + told)
        assert pq.read_metadata(paths[1]).row_group(0).column(0).statistics.min == 10_001
    plait.merge(paths, tmp_path / "out.parquet", sort_by=f"{kind}(a, b, c)")
    assert same(read(tmp_path / "out.parquet"), in_order(pa.concat_tables(tables), key))


def test_columns_that_are_wider_in_other_sources_keep_their_order(tmp_path: Path) -> None:
    key = key_of("hilbert", ["a", "b"])
    rng = random.Random(3)
    narrow = in_order(table_of([pa.int32(), pa.float32()], 200, rng, 0.1), key)
    wide = in_order(table_of([pa.int64(), pa.float64()], 200, rng, 0.1), key)
    paths = write([narrow, wide], tmp_path / "in")
    plait.merge(paths, tmp_path / "out.parquet", sort_by="hilbert(a, b)")
    both = pa.concat_tables([narrow.cast(wide.schema), wide])
    assert same(read(tmp_path / "out.parquet"), in_order(both, key))


def test_columns_before_a_curve_come_first(tmp_path: Path) -> None:
    rng = random.Random(4)
    own = key_of("zorder", ["b", "c"])

    def key(row: dict[str, Any]) -> Any:
        return (-row["a"].toordinal(), own(row))

    types = [pa.date32(), pa.int32(), pa.string()]
    tables = [in_order(table_of(types, 300, rng, 0), key) for _ in range(3)]
    paths = write(tables, tmp_path / "in")
    report = plait.merge(
        paths, tmp_path / "out", sort_by=["-a", "zorder(b, c)"], outputs=2, cut_on=1
    )
    assert report.sort_by == "-a, zorder(b, c)"
    assert same(read([o.path for o in report.outputs]), in_order(pa.concat_tables(tables), key))
    days = [set(read(o.path)["a"].to_pylist()) for o in report.outputs]
    assert len(days) == 2 and not days[0] & days[1], "a day stays in one file"
    file = pq.ParquetFile(report.outputs[0].path)
    assert [(c.column_index, c.descending) for c in file.metadata.row_group(0).sorting_columns] == [
        (0, True)
    ], "what Parquet can say of the order"
    # The order of the days alone is declared, too.
    merged = plait.merge([o.path for o in report.outputs], tmp_path / "b.parquet", sort_by="-a")
    assert merged.sort_by == "-a"


# Cuts, plans, footers -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_equal_keys_are_in_one_output(tmp_path: Path, kind: str) -> None:
    rng = random.Random(6)
    types = [pa.bool_(), pa.string()]
    key = key_of(kind, ["a", "b"])
    tables = [in_order(table_of(types, 400, rng, 0.1), key) for _ in range(3)]
    paths = write(tables, tmp_path / "in")
    report = plait.merge(paths, tmp_path / "out", sort_by=f"{kind}(a, b)", outputs=4)
    keys = [{str(key(row)) for row in read(o.path).to_pylist()} for o in report.outputs]
    assert len(keys) > 1
    for mine, others in itertools.combinations(keys, 2):
        assert not mine & others
    # Row groups begin where the curve goes on, as one column.
    aligned = plait.merge(
        paths, tmp_path / "aligned.parquet", sort_by=f"{kind}(a, b)", align_row_groups=1
    )
    file = pq.ParquetFile(aligned.outputs[0].path)
    groups = [file.read_row_group(i).to_pylist() for i in range(file.num_row_groups)]
    firsts = [{str(key(row)) for row in rows} for rows in groups]
    assert len(groups) > 1 and all(not a & b for a, b in itertools.pairwise(firsts))


def test_a_plan_is_executed_by_tasks(tmp_path: Path, pairs: pa.Table) -> None:
    tables = pieces(z_sorted(pairs), 3)
    paths = write(tables, tmp_path / "in")
    plan = plait.plan(paths, sort_by="zorder(a, b)", outputs=4)
    assert plan.sort_by == "zorder(a, b)"
    cuts = [task["key_low"] for task in json.loads(plan.to_json())["tasks"]]
    assert len(cuts) == 4 and all(len(cut) == 2 for cut in cuts[1:]), cuts
    made = [
        plait.execute_task(task.to_json(), tmp_path / "out").outputs[0].path for task in plan.tasks
    ]
    assert read(made).equals(z_sorted(pa.concat_tables(tables)))


def test_the_next_merge_finds_the_order(tmp_path: Path, pairs: pa.Table) -> None:
    paths = write(pieces(z_sorted(pairs), 4), tmp_path / "in")
    outs = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    for out, part in zip(outs, (paths[:2], paths[2:]), strict=True):
        plait.merge(part, out, sort_by="zorder(a, b)")
        file = pq.ParquetFile(out)
        assert file.metadata.metadata[b"plait.sort_order"] == b"zorder(a, b)"
        assert not file.metadata.row_group(0).sorting_columns
    report = plait.merge(outs, tmp_path / "all.parquet")
    assert report.sort_by == "zorder(a, b)"
    assert all(source.keys_from == "footer" for source in plait.plan(outs).sources)
    # Another curve or order of the same columns is not what they declare.
    for other in ("hilbert(a, b)", "zorder(b, a)", "a, b", "a"):
        with pytest.raises(plait.UnsortedSource):
            plait.merge(outs, tmp_path / "no.parquet", sort_by=other)


def test_a_folder_is_compacted_along_its_curve(tmp_path: Path, pairs: pa.Table) -> None:
    tables = pieces(z_sorted(pairs), 3)
    paths = write(tables, tmp_path / "in")
    folder = tmp_path / "events"
    folder.mkdir()
    for i, path in enumerate(paths):
        plait.merge(path, folder / f"{i}.parquet", sort_by="zorder(a, b)")
    done = plait.compact(folder)
    assert len(done.groups) == 1 and done.groups[0].depth_max == 3
    rows = plait.read(folder)
    assert rows.explain().sort_by == "zorder(a, b)"
    assert pa.table(rows).equals(z_sorted(pa.concat_tables(tables)))


def test_a_file_is_inspected_and_verified_along_its_curve(tmp_path: Path, pairs: pa.Table) -> None:
    (path,) = write([z_sorted(pairs)], tmp_path / "in")
    out = str(tmp_path / "out.parquet")
    plait.merge(path, out, sort_by="zorder(a, b)")
    shown = plait.inspect(out, check_order=True)
    assert (shown.declared, shown.sorted) == ("zorder(a, b)", True)
    rows = z_sorted(pairs).to_pylist()
    assert list(shown.key_min) == [rows[0]["a"], rows[0]["b"]]
    assert list(shown.key_max) == [rows[-1]["a"], rows[-1]["b"]]
    assert plait.inspect(path, sort_by="hilbert(a, b)", check_order=True).sorted is False
    assert not plait.verify(path, sort_by="hilbert(a, b)", check=False).ok
    (broken,) = write([pairs.slice(0, 100)], tmp_path / "broken")
    with pytest.raises(plait.UnsortedSource, match="key goes backwards"):
        plait.merge(broken, tmp_path / "no.parquet", sort_by="zorder(a, b)")


# Rows that are dropped ----------------------------------------------------------------------------


def test_texts_that_begin_alike_are_different_keys(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": ["same beginning 1", "same beginning 2", "same beginning 2"],
            "b": [1, 1, 1],
            "v": [1, 2, 3],
        }
    )
    (path,) = write([table], tmp_path / "in")
    out = tmp_path / "out.parquet"
    plait.merge(path, out, sort_by="zorder(a, b)", on_duplicate="keep_last")
    assert read(out)["v"].to_pylist() == [1, 3]
    kept = plait.read(path, sort_by="zorder(a, b)", on_duplicate="keep_first")
    assert pa.table(kept)["v"].to_pylist() == [1, 2]


def test_a_column_of_a_curve_may_say_what_is_expired(tmp_path: Path, pairs: pa.Table) -> None:
    paths = write(pieces(z_sorted(pairs), 2), tmp_path / "in")
    out = tmp_path / "out.parquet"
    plait.merge(paths, out, sort_by="zorder(a, b)", drop_where="b < 100")
    made = read(out)
    assert made["b"].to_numpy().min() == 100
    assert len(made) == int((pairs["b"].to_numpy() >= 100).sum())


# Reads --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """200,000 random pairs, one file each order."""
    folder = tmp_path_factory.mktemp("clustered")
    rng = np.random.default_rng(9)
    n = 200_000
    a, b = (rng.integers(0, 2**30, n) for _ in range(2))
    table = pa.table({"a": a, "b": b, "v": np.arange(n)})
    files = {}
    for order, rows in (
        ("a, b", table.take(np.lexsort((b, a)))),
        ("zorder(a, b)", z_sorted(table)),
    ):
        (path,) = write([rows], folder / order[0])
        files[order] = str(folder / f"{order[0]}.parquet")
        plait.merge(path, files[order], sort_by=order, page_rows=2_000, copy_tiers=[])
    return files


@pytest.mark.parametrize("column", ["a", "b"])
def test_a_range_on_either_column_reads_few_pages(clustered: dict[str, str], column: str) -> None:
    low, high = 2**28, 2**28 + 2**24
    where = f"{column} >= {low} and {column} < {high}"
    shares, found = {}, {}
    for order, path in clustered.items():
        rows = plait.read(path, where=where)
        plan = rows.explain()
        assert plan.sort_by == order
        # Whole pages of 2,000 rows.
        shares[order] = plan.rows_left / plan.rows
        got = pa.table(rows)
        values = got[column].to_numpy()
        assert ((values >= low) & (values < high)).all()
        found[order] = sorted(got["v"].to_pylist())
        assert found[order] == sorted(
            v
            for x, v in zip(*(read(path)[c].to_pylist() for c in (column, "v")), strict=True)
            if low <= x < high
        )
    assert len(found["a, b"]) > 1000
    assert shares["zorder(a, b)"] < 0.25
    assert shares["a, b"] < 0.05 if column == "a" else shares["a, b"] == 1


def test_conditions_limits_and_several_files_agree_with_the_order(
    tmp_path: Path, pairs: pa.Table
) -> None:
    tables = pieces(z_sorted(pairs), 3)
    paths = write(tables, tmp_path / "in", data_page_size=4_000)
    whole = z_sorted(pa.concat_tables(tables))
    for where in ("b = 7", "a > 0 and b <= -490", "a = 0", "b = 7 and a < 0"):
        text = where.replace(" = ", " == ")
        keep = [row for row in whole.to_pylist() if eval(text, {}, row)]
        rows = plait.read(paths, sort_by="zorder(a, b)", where=where)
        assert pa.table(rows).to_pylist() == keep, where
        rows = plait.read(paths, sort_by="zorder(a, b)", where=where, limit=5)
        assert pa.table(rows).to_pylist() == keep[:5], where
        rows = plait.read(paths, sort_by="zorder(a, b)", where=where, limit=5, reverse=True)
        assert pa.table(rows).to_pylist() == keep[::-1][:5], where


# What is refused ----------------------------------------------------------------------------------


def refusals() -> Iterator[tuple[dict[str, Any], str]]:
    yield {"sort_by": "zorder(a)"}, "`zorder` takes 2 to 8 columns"
    yield {"sort_by": "zorder(a, -b)"}, "write `-zorder"
    yield {"sort_by": "hilbert(a, b), v"}, "a curve comes last"
    yield {"sort_by": "zorder(a, b), v"}, "`day, zorder"
    yield {"sort_by": "zorder(a, b", "outputs": 2}, "is not closed"
    yield {"sort_by": "zorder(a, b)", "cut_on": 2}, "counts as one"
    yield {"sort_by": "zorder(a, b)", "align_row_groups": 2}, "counts as one"
    yield (
        {"sort_by": "zorder(a, b)", "on_duplicate": "keep_last", "version_by": "zorder(a, b)"},
        ("a single column"),
    )


@pytest.mark.parametrize(("options", "message"), list(refusals()))
def test_what_a_curve_cannot_be_is_refused(
    tmp_path: Path, pairs: pa.Table, options: dict[str, Any], message: str
) -> None:
    (path,) = write([pairs.slice(0, 10)], tmp_path / "in")
    with pytest.raises(plait.InvalidArgument, match=message.replace("(", r"\(")):
        plait.merge(path, tmp_path / "out.parquet", **options)
    with pytest.raises(plait.UnknownColumn):
        plait.merge(path, tmp_path / "out.parquet", sort_by="zorder(a, nowhere)")
