"""`report.time` says whether more threads would help."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

ROWS = 100_000


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("idle")
    paths = []
    for place in range(4):
        values = pa.array(range(place, ROWS * 4, 4))
        table = pa.table({"k": values, "text": values.cast(pa.string())})
        paths.append(folder / f"{place}.parquet")
        pq.write_table(table, paths[-1], use_dictionary=False)
    return paths


def times(sources: list[Path], out: Path, **options) -> plait.report.Times:
    return plait.merge(sources, out, sort_by="k", **options).time


def test_threads_wait_where_one_column_is_left(sources, tmp_path):
    # Two columns: of four threads, two have nothing to do but compress pages of these.
    took = times(sources, tmp_path / "out.parquet", threads=4)
    assert took.idle_s > 0
    assert took.column_s > 0
    assert took.idle_s < 4 * took.wall_s


def test_one_thread_never_waits(sources, tmp_path):
    took = times(sources, tmp_path / "out.parquet", threads=1)
    assert took.idle_s == 0
    assert took.column_s > 0


def test_the_longest_column_is_no_longer_than_all(sources, tmp_path):
    both = times(sources, tmp_path / "both.parquet", threads=1)
    assert both.column_s < both.weave_s
    # The texts take longer than the keys: a merge of the keys alone has a shorter column.
    keys = [tmp_path / f"k-{path.name}" for path in sources]
    for path, copy in zip(sources, keys, strict=True):
        pq.write_table(pq.read_table(path, columns=["k"]), copy, use_dictionary=False)
    outs = [tmp_path / f"alone-{turn}.parquet" for turn in range(3)]
    alone = min(times(keys, out, threads=1).column_s for out in outs)
    assert 0 < alone < both.column_s


def test_threads_that_sort_count_as_well(tmp_path):
    values = pa.array([row * 7_919 % ROWS for row in range(ROWS)])
    pq.write_table(
        pa.table({"k": values, "text": values.cast(pa.string())}), tmp_path / "in.parquet"
    )
    out = tmp_path / "out.parquet"
    took = times([tmp_path / "in.parquet"], out, threads=4, unsorted="sort")
    assert took.sort_s > 0
    assert took.idle_s > 0
