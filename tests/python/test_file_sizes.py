"""Files are as large as `target_file_size` says, whatever sources store.

The shapes are those of `benches/python/file_sizes.py`, which measures larger files. Sizes are those
of the files on disk.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait

from .conftest import load

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches" / "python"))
import file_sizes

MB = 1_000_000


def shares(folder: Path, target: int) -> list[float]:
    """Sizes of the files in the order of their keys, as shares of `target`."""
    return [path.stat().st_size / target for path in sorted(folder.rglob("*.parquet"))]


def check(sizes: list[float]) -> None:
    """What is asked of all files, and of the last one."""
    *others, last = sizes
    assert others and all(0.7 <= size <= 1.3 for size in others), sizes
    assert 0.3 <= last <= 1.3, sizes


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("shape", file_sizes.SHAPES)
def test_files_have_the_size_that_was_asked_for(tmp_path, shape):
    sizes, report = file_sizes.run(tmp_path, shape, 2 * MB)
    assert shares(tmp_path / "out", 2 * MB) == sizes
    check(sizes)
    assert not any(output.oversized for output in report.outputs)
    assert plait.verify(tmp_path / "out", sort_by="k").ok


def stored_badly(folder: Path, rows: int = 400_000, files: int = 4) -> list[str]:
    """Overlapping files without compression and dictionaries: a tenth of them remains."""
    draw = np.random.default_rng(1)
    paths = []
    for i in range(files):
        keys = np.arange(i, rows, files)
        words = np.array([f"{word:040d}" for word in range(50)])
        table = pa.table(
            {
                "day": keys * 3 // rows,
                "k": keys,
                "word": draw.choice(words, len(keys)),
                "value": draw.normal(size=len(keys)),
            }
        )
        paths.append(str(folder / f"{i}.parquet"))
        pq.write_table(table, paths[-1], compression="none", use_dictionary=False)
    return paths


def test_a_plan_has_the_files_of_the_merge_and_writes_nothing(tmp_path):
    paths = stored_badly(tmp_path)
    options = {"sort_by": "k", "target_file_size": MB, "compression": "zstd"}
    before = sorted(tmp_path.iterdir())
    planned = plait.plan(paths, **options)
    assert sorted(tmp_path.iterdir()) == before
    assert planned.to_json() == plait.plan(paths, **options).to_json()
    report = plait.merge(paths, tmp_path / "merged", **options)
    check(shares(tmp_path / "merged", MB))
    restored = plait.Plan.from_json(planned.to_json())
    for task in restored.tasks:
        task.execute(tmp_path / "tasks")
    assert [task.rows for task in planned.tasks] == [output.rows for output in report.outputs]

    def bytes_in(folder: Path) -> dict[str, str]:
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}

    assert bytes_in(tmp_path / "tasks") == bytes_in(tmp_path / "merged")


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_no_cut(tmp_path, threads):
    paths = stored_badly(tmp_path)
    options = {"target_file_size": MB, "compression": "zstd"}
    alone = plait.plan(paths, sort_by="k", threads=1, **options)
    made = plait.plan(paths, sort_by="k", threads=threads, **options)
    assert [task.rows for task in made.tasks] == [task.rows for task in alone.tasks]


def test_files_without_an_order_have_the_size(tmp_path):
    paths = stored_badly(tmp_path)
    plait.merge(paths, tmp_path / "out", sort_by=[], target_file_size=MB, compression="zstd")
    check(shares(tmp_path / "out", MB))


def test_files_of_partitions_have_the_size(tmp_path):
    paths = stored_badly(tmp_path, rows=1_200_000)
    plait.merge(
        paths,
        tmp_path / "out",
        sort_by="k",
        partition_by=["day"],
        target_file_size=MB,
        compression="zstd",
    )
    for day in range(3):
        check(shares(tmp_path / "out" / f"day={day}", MB))


def test_more_files_than_memory_has_room_for_have_the_size(tmp_path):
    paths = stored_badly(tmp_path, rows=900_000, files=300)
    plan = plait.plan(
        paths, sort_by="k", target_file_size=2 * MB, compression="zstd", memory_limit="64MB"
    )
    assert plan.memory.passes == 2
    plan.execute(tmp_path / "out")
    check(shares(tmp_path / "out", 2 * MB))


def test_rows_between_the_tried_ones_take_what_sources_store_for_them(tmp_path):
    # Long texts come in eight stretches, and the middles of the four places lie in none of them.
    rows, stretch = 320_000, 40_000
    draw = np.random.default_rng(5)
    paths = []
    for i in range(4):
        keys = np.arange(i, rows, 4)
        is_long = (keys % stretch >= 5_000) & (keys % stretch < 15_000)
        texts = [draw.bytes(200 if long else 4).hex() for long in is_long]
        paths.append(str(tmp_path / f"{i}.parquet"))
        table = pa.table({"k": keys, "text": texts})
        pq.write_table(table, paths[-1], compression="zstd", row_group_size=1_250)
    plait.merge(paths, tmp_path / "out", sort_by="k", target_file_size=2 * MB)
    check(shares(tmp_path / "out", 2 * MB))


def test_rows_of_one_key_stay_together_and_are_not_tried_as_a_whole(tmp_path):
    table = pa.table(
        {
            "k": np.repeat([1, 2, 3], [10, 500_000, 10]),
            "v": np.random.default_rng(2).normal(size=500_020),
        }
    )
    paths = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    for path in paths:
        pq.write_table(table, path, compression="none")
    report = plait.merge(
        paths, tmp_path / "out", sort_by="k", target_file_size=MB, compression="zstd"
    )
    assert [output.rows for output in report.outputs] == [1_000_020, 20]
    assert report.outputs[0].oversized


def test_what_is_wrong_with_rows_that_are_tried_is_told_as_ever(tmp_path):
    paths = stored_badly(tmp_path)
    swapped = pq.read_table(paths[0])
    half = swapped.num_rows // 2
    rows = [*range(half), half + 1, half, *range(half + 2, swapped.num_rows)]
    pq.write_table(swapped.take(rows), paths[0], compression="none")
    options = {"sort_by": "k", "target_file_size": MB, "compression": "zstd"}
    with pytest.raises(plait.UnsortedSource, match="row"):
        plait.merge(paths, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    plait.merge(paths, tmp_path / "out", unsorted="sort", **options)
    check(shares(tmp_path / "out", MB))


def test_progress_and_counts_leave_out_what_was_tried(tmp_path):
    paths = stored_badly(tmp_path)
    seen = []
    report = plait.merge(
        paths,
        tmp_path / "out",
        sort_by="k",
        target_file_size=MB,
        compression="zstd",
        progress=seen.append,
    )
    assert sum(output.rows for output in report.outputs) == 400_000
    assert seen and all(now.rows_written <= 400_000 for now in seen)
    assert all(now.consumed_bytes <= now.total_bytes for now in seen if now.stage == "merge")


def test_rows_that_are_deleted_take_no_part_of_a_file(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    pytest.importorskip("pyroaring")
    vectors = load("vectors")
    uri = str(tmp_path / "table")
    for path in stored_badly(tmp_path):
        before = set(vectors.live(uri)) if Path(uri).exists() else set()
        deltalake.write_deltalake(uri, pq.read_table(path), mode="append")
        (name,) = set(vectors.live(uri)) - before
        vectors.delete(uri, name, {row for row in range(100_000) if row % 5}, prefix="ab")
    plait.merge(uri, tmp_path / "out", sort_by="k", target_file_size=MB // 4, compression="zstd(1)")
    check(shares(tmp_path / "out", MB // 4))


def test_groups_that_stay_together_are_tried_in_part(tmp_path):
    draw = np.random.default_rng(4)
    rows = 600_000
    table = pa.table(
        {
            "tenant": np.arange(rows) // 60_000,
            "ts": np.arange(rows),
            "value": draw.integers(0, 1 << 16, rows),
        }
    )
    paths = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    for i, path in enumerate(paths):
        half = table.take(np.arange(i, rows, 2))
        pq.write_table(half, path, compression="none", use_dictionary=False)
    options = {"cut_on": 1, "target_file_size": MB // 2, "compression": "zstd(1)"}
    plait.merge(paths, tmp_path / "out", sort_by="tenant, ts", **options)
    # Three tenants of 150 kB each are nearer to it than one of them.
    sizes = shares(tmp_path / "out", MB // 2)
    assert all(size > 0.6 for size in sizes[:-1]), sizes


def test_rows_that_are_unlike_in_some_range_of_keys_are_found(tmp_path):
    paths = stored_badly(tmp_path, rows=800_000)
    options = {"target_file_size": MB // 2, "compression": "zstd(1)"}
    plait.merge(paths, tmp_path / "dropped", sort_by="k", drop_where="k < 250000", **options)
    check(shares(tmp_path / "dropped", MB // 2))
    table = pq.read_table(paths[0])
    is_absent = pc.less(table["k"], 150_000)
    text = pa.array([f"{n:x}" * 3 for n in np.random.default_rng(5).integers(0, 1 << 60, 200_000)])
    text = pc.if_else(is_absent, pa.scalar(None, pa.string()), text)
    pq.write_table(table.append_column("text", text), tmp_path / "text.parquet")
    report = plait.merge(tmp_path / "text.parquet", tmp_path / "texts", sort_by="k", **options)
    sizes = [output.bytes / (MB // 2) for output in report.outputs]
    assert len(sizes) > 5 and max(sizes) <= 1.3, sizes


def test_duplicates_of_more_files_than_memory_holds_count_once(tmp_path):
    paths = []
    for i in range(60):
        path = tmp_path / f"{i}.parquet"
        value = np.random.default_rng(i).normal(size=20_000)
        pq.write_table(pa.table({"k": np.arange(20_000), "value": value}), path)
        paths.append(str(path))
    plait.merge(
        paths,
        tmp_path / "out",
        sort_by="k",
        on_duplicate="keep_last",
        memory_limit="16MB",
        target_file_size=60_000,
    )
    check(shares(tmp_path / "out", 60_000))


@pytest.mark.long
def test_trials_read_little_of_many_small_files(tmp_path):
    paths = stored_badly(tmp_path, rows=2_000_000, files=200)
    options = {"sort_by": "k", "compression": "zstd(1)"}
    by_size = plait.merge(paths, tmp_path / "sizes", target_file_size=2 * MB, **options)
    check(shares(tmp_path / "sizes", 2 * MB))
    rows = by_size.outputs[0].rows
    by_rows = plait.merge(paths, tmp_path / "rows", target_rows=rows, **options)
    assert len(by_rows.outputs) == len(by_size.outputs)
    assert by_size.metrics.bytes_read < 1.5 * by_rows.metrics.bytes_read
