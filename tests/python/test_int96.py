"""Timestamps of twelve bytes (INT96) are the same moment through every door, or an error."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import Layer

FAR = [
    datetime(1, 1, 1),
    datetime(1582, 10, 4),
    datetime(1677, 9, 21),
    datetime(1970, 1, 1),
    datetime(2262, 4, 12, 0, 0, 0, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
]
US, NS = pa.timestamp("us"), pa.timestamp("ns")
INT96 = {"use_deprecated_int96_timestamps": True, "store_schema": False}


def write(path: Path, times: pa.Array, first: int = 0, **options: object) -> Path:
    rows = len(times)
    struct = pa.StructArray.from_arrays([times, pa.array(range(rows))], ["t", "n"])
    table = pa.table(
        {
            "k": range(first, first + rows),
            "t": times,
            "ts": [[time.as_py(), None] for time in times] if times.type == US else times,
            "s": struct,
        },
        schema=pa.schema(
            [
                ("k", pa.int64()),
                ("t", times.type),
                ("ts", pa.list_(US) if times.type == US else times.type),
                ("s", struct.type),
            ]
        ),
    )
    pq.write_table(table, path, **{**INT96, **options})
    return path


@pytest.fixture(params=["dictionary", "plain", "version 2"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    options: dict[str, object] = {
        "dictionary": {},
        "plain": {"use_dictionary": False},
        "version 2": {"use_dictionary": False, "data_page_version": "2.0"},
    }[request.param]
    return write(tmp_path / "far.parquet", pa.array([*FAR, None], US), **options)


DOORS: dict[str, Callable[[Path, Path], pa.Table]] = {
    "scan": lambda path, _: pa.table(plait.scan(path)),
    "projected scan": lambda path, _: pa.table(plait.scan(path, ["k", "t", "ts", "s"])),
    "following scan": lambda path, _: pa.table(plait.scan(path, mode="follow")),
    "streams": lambda path, _: pa.table(plait.merge_streams([path], sort_by="k")),
    "merge": lambda path, out: pa.table(plait.scan(merged(path, out))),
    "value tier": lambda path, out: pa.table(plait.scan(merged(path, out, copy_tiers=()))),
}


def merged(path: Path, out: Path, **options: object) -> Path:
    plait.merge(path, out, sort_by="k", **options)
    return out


@pytest.mark.parametrize("door", DOORS)
def test_times_outside_of_the_nanosecond_range_are_what_duckdb_reads(
    door: str, far: Path, tmp_path: Path
) -> None:
    table = DOORS[door](far, tmp_path / "out").sort_by("k")
    found = [table[name].to_pylist() for name in ("t", "ts", "s")]
    want = duckdb.sql(f"select t, ts, s from '{far}' order by k").fetchall()
    assert found == [list(column) for column in zip(*want, strict=True)]
    assert found[0] == [*FAR, None]
    assert table.schema.field("t").type == US


def test_combined_structs_of_an_overlay_hold_the_same_times(tmp_path: Path) -> None:
    base = write(tmp_path / "base.parquet", pa.array([*FAR, None], US))
    patch = tmp_path / "patch.parquet"
    rows = len(FAR) + 1
    pq.write_table(pa.table({"k": range(rows), "s": [{"n": -i} for i in range(rows)]}), patch)
    layers = [Layer(str(base)), Layer(str(patch), ["s.n"])]
    streamed = pa.table(
        plait.overlay([Layer(plait.scan(base)), Layer(plait.scan(patch), ["s.n"])], index="k")
    )
    plait.overlay_files(layers, tmp_path / "out.parquet", index="k")
    written = pq.read_table(tmp_path / "out.parquet", coerce_int96_timestamp_unit="us")
    for table in (streamed, written):
        assert [row["t"] for row in table["s"].to_pylist()] == [*FAR, None]
        assert [row["n"] for row in table["s"].to_pylist()] == [-i for i in range(rows)]
        assert table["t"].to_pylist() == [*FAR, None]


def nanoseconds(path: Path, bad_row: int = 7, **options: object) -> Path:
    """Whole microseconds but in one row."""
    values = [1_000 * row for row in range(20)]
    values[bad_row] += 1
    table = pa.table({"k": range(20), "t": pa.array(values, NS)})
    pq.write_table(table, path, **{**INT96, **options})
    return path


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}])
@pytest.mark.parametrize("door", ["scan", "streams"])
def test_parts_of_a_microsecond_are_refused_by_row(
    door: str, options: dict[str, object], tmp_path: Path
) -> None:
    path = nanoseconds(tmp_path / "ns.parquet", row_group_size=5, **options)
    # Arrow's C interface would make an `ArrowInvalid` of the error.
    batches = plait.scan(path) if door == "scan" else plait.merge_streams([path], sort_by="k")
    with pytest.raises(plait.LossyCast) as caught:
        list(batches)
    text = str(caught.value)
    assert "ns.parquet" in text
    assert "`t`" in text
    assert "row 7" in text


def test_a_schema_of_nanoseconds_reads_them_exactly(tmp_path: Path) -> None:
    path = nanoseconds(tmp_path / "ns.parquet")
    schema = pa.schema([("k", pa.int64()), ("t", NS)])
    table = pa.table(plait.scan(path, schema=schema))
    assert table["t"].cast(pa.int64()).to_pylist() == [1_000 * i + (i == 7) for i in range(20)]
    far = write(tmp_path / "far.parquet", pa.array(FAR, US))
    with pytest.raises(plait.LossyCast, match="row 0"):
        list(plait.scan(far, schema=schema))


def test_a_stored_schema_of_nanoseconds_is_kept(tmp_path: Path) -> None:
    path = nanoseconds(tmp_path / "ns.parquet", store_schema=True)
    table = pa.table(plait.scan(path))
    assert table.schema.field("t").type == NS
    assert table["t"].equals(pq.read_table(path)["t"])


def test_merges_order_by_times_of_all_years(tmp_path: Path) -> None:
    left = write(tmp_path / "a.parquet", pa.array(FAR[::2], US))
    right = write(tmp_path / "b.parquet", pa.array(FAR[1::2], US), first=10)
    for tiers in (("chunk", "page", "dict"), ()):
        out = tmp_path / f"out{len(tiers)}"
        plait.merge([left, right], out, sort_by="t", copy_tiers=tiers)
        assert pa.table(plait.scan(out))["t"].to_pylist() == FAR
        assert plait.verify(out, sort_by="t").ok
    batches = plait.merge_streams([left, right], sort_by="t")
    assert pa.table(batches)["t"].to_pylist() == FAR
