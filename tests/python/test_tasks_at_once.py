"""Tasks of a merge that run at the same time: the outputs, and the error, of one after the other."""

import hashlib
import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

# From eight threads on, two tasks run at the same time; with more memory, more do.
TOGETHER = ({"threads": 8}, {"threads": 32, "memory_limit": "4GB"})


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    rng = np.random.default_rng(24)
    for i in range(6):
        keys = np.sort(rng.integers(0, 40_000, 9_000))
        table = pa.table(
            {
                "k": keys,
                "day": pa.array(keys // 4_000).cast(pa.string()),
                "value": rng.random(9_000),
                "text": [f"text {key % 13}" for key in keys],
                "list": [[int(key)] * (key % 3) for key in keys],
                "none": pa.array([None if key % 5 else int(key) for key in keys], pa.int64()),
            }
        )
        index = i % 2 == 0
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=4_000, write_page_index=index)
    return folder


def digests(folder):
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


LAYOUTS = {
    "outputs": {"sort_by": "k", "outputs": 9},
    "rows": {"sort_by": "k", "target_rows": 5_000, "row_group_rows": 700, "page_rows": 90},
    "size": {"sort_by": "k", "target_file_size": "100kB", "sha256": True, "verify": "content"},
    "maps": {"sort_by": "k", "outputs": 5, "row_map": True, "copy_tiers": ()},
    "folders": {"sort_by": "day, k", "partition_by": ["day"], "unsorted": "sort"},
    "sorted": {"sort_by": "-value", "outputs": 5, "unsorted": "sort"},
    "smallest": {"sort_by": "k", "outputs": 4, "encoding": "smallest"},
    "no order": {"sort_by": "", "outputs": 3},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_outputs_do_not_depend_on_tasks_at_a_time(sources, tmp_path, layout):
    options, made = LAYOUTS[layout], []
    for i, threads in enumerate(({"threads": 1}, *TOGETHER)):
        same = {"memory_limit": "4GB", **threads}
        report = plait.merge(sources, tmp_path / f"{i}", **options, **same)
        made.append(digests(tmp_path / f"{i}"))
        assert report.rows_out == 54_000
        assert not report.warnings
    assert len(made[0]) >= 3
    assert made[0] == made[1] == made[2]
    read = pa.concat_tables(pq.read_table(path) for path in (tmp_path / "0").rglob("*.parquet"))
    keys = pq.read_table(sources, columns=["k"])["k"].to_numpy()
    assert np.array_equal(np.sort(read["k"].to_numpy()), np.sort(keys))


def test_outputs_do_not_depend_on_how_many_keys_are_read_at_once(tmp_path):
    # Of 60 files, 2,666 keys are read at once by one task, and 708 by each of two.
    rng = np.random.default_rng(59)
    files = tmp_path / "sources"
    files.mkdir()
    for i in range(60):
        keys = np.sort(rng.integers(0, 1_000_000, 6_000))
        pq.write_table(
            pa.table({"k": keys, "v": [f"{key:x}" for key in keys]}), files / f"{i}.parquet"
        )
    for threads in (1, 8):
        plait.merge(files, tmp_path / f"{threads}", sort_by="k", outputs=4, threads=threads)
    assert digests(tmp_path / "1") == digests(tmp_path / "8")


def test_rows_that_are_dropped_do_not_depend_on_threads(sources, tmp_path):
    for i, threads in enumerate(({"threads": 1}, {"threads": 16})):
        how = {"sort_by": "k", "outputs": 4, "on_duplicate": "keep_last", **threads}
        plait.merge(sources, tmp_path / f"{i}", **how)
    assert digests(tmp_path / "0") == digests(tmp_path / "1")


def test_tasks_of_a_plan_run_at_the_same_time_too(sources, tmp_path):
    plan = plait.plan(sources, sort_by="k", outputs=6)
    plan.execute(tmp_path / "one", threads=1)
    plan.execute(tmp_path / "many", threads=8)
    assert digests(tmp_path / "one") == digests(tmp_path / "many")


def test_two_tasks_have_threads_of_their_own(tmp_path):
    rows = np.arange(1_500_000)
    for i in range(2):
        columns = {f"c{c}": rows * (c + 3) % 1_000_003 for c in range(6)}
        pq.write_table(pa.table({"k": rows * 2 + i, **columns}), tmp_path / f"{i}.parquet")
    files = [tmp_path / f"{i}.parquet" for i in range(2)]

    def most_first_threads(out, **options):
        most, over = [0], threading.Event()

        def watch():
            while not over.wait(0.0005):
                names = []
                for task in os.listdir("/proc/self/task"):
                    try:
                        names.append(Path(f"/proc/self/task/{task}/comm").read_text().strip())
                    except OSError:
                        continue
                most[0] = max(most[0], names.count("plait-0"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            plait.merge(files, tmp_path / out, sort_by="k", outputs=4, **options)
        finally:
            over.set()
            watcher.join()
        return most[0]

    assert most_first_threads("a", threads=8) == 2
    assert most_first_threads("b", threads=7) == 1
    assert most_first_threads("c", threads=8, memory_limit="200MB") == 1
    assert most_first_threads("d", threads=16, memory_limit="4GB") == 4


def test_the_error_is_that_of_the_first_task_and_nothing_stays(sources, tmp_path):
    broken = tmp_path / "sources"
    broken.mkdir()
    for path in sources.glob("*.parquet"):
        data = bytearray(path.read_bytes())
        if path.name in ("2.parquet", "4.parquet"):
            for group in (1, 2):  # rows of the middle and of the end
                chunk = pq.ParquetFile(path).metadata.row_group(group).column(2)
                at = chunk.data_page_offset + chunk.total_compressed_size // 2
                data[at : at + 60] = bytes(60)
        (broken / path.name).write_bytes(data)
    errors = []
    for threads in ({"threads": 1}, *TOGETHER, *TOGETHER, *TOGETHER):
        how = {"sort_by": "k", "outputs": 9, "copy_tiers": (), "memory_limit": "4GB", **threads}
        with pytest.raises(plait.PlaitError) as raised:
            plait.merge(broken, tmp_path / "out", **how)
        errors.append((type(raised.value), raised.value.path, raised.value.column))
        assert not (tmp_path / "out").exists()
    assert set(errors) == {errors[0]}
    assert errors[0][0] is plait.CorruptSource


def test_a_caller_stops_all_tasks(sources, tmp_path):
    def stop(progress):
        raise LookupError("enough")

    slow = {"compression": "brotli(11)", "page_size": "100kB", "dictionary": False}
    started = time.monotonic()
    with pytest.raises(LookupError, match="enough"):
        plait.merge(
            [*sources.glob("*.parquet")],
            tmp_path / "out",
            sort_by="k",
            outputs=6,
            copy_tiers=(),
            threads=16,
            memory_limit="4GB",
            progress=stop,
            **slow,
        )
    assert time.monotonic() - started < 20
    assert not (tmp_path / "out").exists()
