"""Encodings of values that are tried: outputs are smaller, and everybody reads the same rows."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from pathlib import Path

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

ROWS = 40_000
TRIED = ("compatible", "smallest")


def table(start: int) -> pa.Table:
    """Columns that some encoding suits, every second row of a longer table."""
    rng = random.Random(start)
    keys = range(start, 2 * ROWS, 2)
    now = dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "small": pa.array([k // 7 for k in keys], pa.int32()),
            "at": pa.array(
                [now + dt.timedelta(seconds=k) for k in keys], pa.timestamp("us", "UTC")
            ),
            "day": pa.array([k // 3 for k in keys], pa.date32()),
            "path": pa.array([f"/a/long/prefix/of/all/{k:09}" for k in keys]),
            "text": pa.array(["x" * rng.randrange(30) + str(rng.random()) for _ in keys]),
            "maybe": pa.array([None if k % 5 == 0 else k * 3 for k in keys], pa.int64()),
            "measure": pa.array([20 + rng.random() for _ in keys]),
            "short": pa.array([20 + rng.random() for _ in keys], pa.float32()),
            "flag": pa.array([k // 9000 % 2 == 0 for k in keys]),
            "price": pa.array([decimal.Decimal(k) / 100 for k in keys], pa.decimal128(10, 2)),
            "id": pa.array([b"%016d" % k for k in keys], pa.binary(16)),
            "list": pa.array([[k, k + 1] if k % 3 else [] for k in keys], pa.list_(pa.int64())),
        }
    )


@pytest.fixture(scope="module", params=["1.0", "2.0"])
def sources(request, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sources")
    paths = [folder / f"{i}.parquet" for i in range(2)]
    for i, path in enumerate(paths):
        pq.write_table(
            table(i),
            path,
            use_dictionary=False,
            compression="zstd",
            data_page_version=request.param,
            store_decimal_as_integer=True,
        )
    return paths


@pytest.fixture(scope="module")
def made(sources, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("made")
    paths = {how: folder / f"{how}.parquet" for how in ("sources", *TRIED)}
    for how, path in paths.items():
        plait.merge(sources, path, sort_by="k", encoding=how, verify="content")
    return paths


def encodings(path: Path) -> dict[str, set[str]]:
    """Encodings of values of each column."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return {c.path_in_schema: {*c.encodings} - {"RLE"} for c in chunks}


def test_each_option_tries_its_encodings(made):
    plain, compatible, smallest = (encodings(made[how]) for how in ("sources", *TRIED))
    assert {name for names in plain.values() for name in names} == {"PLAIN"}
    for name in ("k", "small", "at", "day", "maybe", "price"):
        assert compatible[name] == {"DELTA_BINARY_PACKED"}, name
    assert compatible["path"] == {"DELTA_BYTE_ARRAY"}
    # Floats stay as they are for early readers.
    assert {*compatible["measure"], *compatible["short"], *compatible["id"]} == {"PLAIN"}
    assert smallest["measure"] == smallest["short"] == {"BYTE_STREAM_SPLIT"}
    # Not all readers have special encodings of fixed bytes.
    assert smallest["id"] == {"PLAIN"}
    sizes = [made[how].stat().st_size for how in ("sources", *TRIED)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[1] < 0.8 * sizes[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("how", TRIED)
def test_other_readers_read_the_same_rows(made, how):
    expected = pq.read_table(made["sources"])
    path = str(made[how])
    assert pq.read_table(path).equals(expected)
    rows = expected.to_pylist()
    assert pl.read_parquet(path).to_dicts() == pl.from_arrow(expected).to_dicts()
    # Zones need a package.
    select = 'select * replace (epoch_us("at") as "at") from'
    assert duckdb.sql(f"{select} '{path}'").fetchall() == (
        duckdb.sql(f"{select} expected").fetchall()
    )
    read = datafusion.SessionContext().read_parquet(path).to_pylist()
    assert sorted(read, key=lambda row: row["k"]) == rows


@pytest.mark.few(1)
@pytest.mark.parametrize("how", TRIED)
def test_outputs_are_merged_again_and_threads_change_nothing(made, sources, tmp_path, how):
    # The pages of an output are copied as they are, or woven with those of others.
    half = tmp_path / "half.parquet"
    plait.merge(sources[:1], half, sort_by="k", encoding=how, copy_tiers=())
    for out, given in (("a", {}), ("b", {"encoding": how}), ("c", {"encoding": how, "threads": 1})):
        plait.merge(
            [half, sources[1]], tmp_path / f"{out}.parquet", sort_by="k", verify="content", **given
        )
        assert pq.read_table(tmp_path / f"{out}.parquet").equals(pq.read_table(made["sources"]))
    assert (tmp_path / "b.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()


@pytest.mark.few(1)
@pytest.mark.spark
@pytest.mark.parametrize("how", TRIED)
def test_spark_reads_the_same_rows(made, spark, how):
    columns = ["k", "small", "path", "maybe", "measure", "short", "flag", "price", "list"]
    read = spark.read.parquet(str(made[how])).select(columns).orderBy("k").collect()
    rows = pq.read_table(made["sources"], columns=columns).to_pylist()
    assert [row.asDict() for row in read] == rows
