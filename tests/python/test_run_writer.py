"""`plait.RunWriter`: Arrow data in any order becomes sorted files, in bounded memory.

The oracle sorts all rows of a flush stably. What is written is read by PyArrow, DuckDB and Polars.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

SEED = 7


def table(rows: int, seed: int = SEED) -> pa.Table:
    """Rows of many types in no order; `row` numbers them."""
    rng = np.random.default_rng(seed)
    key = rng.integers(0, max(2, rows // 3), rows)
    return pa.table(
        {
            "name": pa.array([f"n{k % 5}" for k in key]),
            "k": pa.array(key, mask=rng.random(rows) < 0.1),
            "row": np.arange(rows),
            "coded": pa.array([f"c{k % 3}" for k in key]).dictionary_encode(),
            "list": pa.array([list(range(k % 4)) if k % 7 else None for k in key.tolist()]),
            "x": pa.array([{"a": float(k), "b": None if k % 2 else str(k)} for k in key.tolist()]),
        }
    )


def ordered(rows: pa.Table) -> list[dict]:
    """The oracle: a stable sort by name and descending key, nulls last."""
    return sorted(
        rows.to_pylist(),
        key=lambda row: (row["name"], row["k"] is None, -(row["k"] or 0)),
    )


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.mark.parametrize("limit", ["16MB", "512MB"])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_in_any_order_become_one_sorted_file(tmp_path, limit, threads):
    rows = table(30_000)
    options = {"sort_by": "name, -k", "memory_limit": limit, "threads": threads}
    with plait.RunWriter(tmp_path / "sorted.parquet", **options) as writer:
        for start in range(0, rows.num_rows, 1_000):
            assert writer.write(rows.slice(start, 1_000)) == 1_000
        assert writer.rows == rows.num_rows
    assert pq.read_table(tmp_path / "sorted.parquet").to_pylist() == ordered(rows)
    assert names(tmp_path) == ["sorted.parquet"]
    report = writer.reports[0]
    assert (report.rows_out, report.sort_by) == (rows.num_rows, "name, -k")
    assert (len(report.sources) > 1) == (limit == "16MB")
    assert plait.verify(tmp_path / "sorted.parquet").ok
    assert pl.read_parquet(tmp_path / "sorted.parquet").height == rows.num_rows
    found = duckdb.sql(f"SELECT count(*), sum(row) FROM '{tmp_path}/sorted.parquet'").fetchall()[0]
    assert found == (rows.num_rows, sum(range(rows.num_rows)))


def test_every_kind_of_arrow_data_is_taken(tmp_path):
    rows = table(100).select(["name", "k", "row"])
    whole = rows.combine_chunks().to_batches()[0]
    kinds = [
        rows,
        whole,
        [whole, whole.slice(0, 10)],
        pa.RecordBatchReader.from_batches(whole.schema, [whole]),
        (batch for batch in [whole]),
        plait.read(write(rows, tmp_path / "a.parquet"), sort_by=[]),
    ]
    with plait.RunWriter(tmp_path / "out.parquet", sort_by="row") as writer:
        written = [writer.write(kind) for kind in kinds]
    assert written == [100, 100, 110, 100, 100, 100]
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == 610


def write(rows: pa.Table, path: Path) -> Path:
    pq.write_table(rows, path)
    return path


def test_flushed_rows_are_in_files_whatever_happens_then(tmp_path):
    rows = table(5_000)
    writer = plait.RunWriter(tmp_path / "out", sort_by="name, -k")
    writer.write(rows)
    assert names(tmp_path / "out") == []
    first = writer.flush()
    writer.write(rows)
    second = writer.flush()
    # The same rows twice are two files: none takes the place of the other.
    assert len({output.path for report in (first, second) for output in report.outputs}) == 2
    assert writer.flush() is None and writer.rows == 0
    writer.write(rows)
    writer.abort()
    assert writer.closed and len(names(tmp_path / "out")) == 2
    for report in (first, second):
        assert pq.read_table(report.outputs[0].path).to_pylist() == ordered(rows)


KILLED = """
    import os, sys
    import pyarrow as pa
    import plait
    writer = plait.RunWriter(sys.argv[1], sort_by="k", memory_limit="16MB")
    for i in range(60):
        writer.write(pa.table({"k": list(range(20_000, 0, -1)), "i": [i] * 20_000}))
        if i == 20:
            writer.flush()
    print("now", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_flushed_rows_and_nothing_else(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"now\n"
    hidden = [name for name in names(out) if name.startswith(".")]
    assert hidden, "rows that were spilled"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    visible = [name for name in names(out) if not name.startswith(".")]
    assert len(visible) == 1
    assert pq.read_metadata(out / visible[0]).num_rows == 21 * 20_000
    # Whoever writes there next removes what was left.
    with plait.RunWriter(out, sort_by="k", if_exists="add") as writer:
        writer.write(pa.table({"k": [1], "i": [0]}))
    assert [name for name in names(out) if name.startswith(".")] == []
    assert len(names(out)) == 2


def test_an_exception_in_the_block_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), plait.RunWriter(tmp_path / "out", sort_by="k") as writer:
        writer.write(pa.table({"k": [2, 1]}))
        raise RuntimeError
    assert not (tmp_path / "out").exists()
    with pytest.raises(plait.errors.InvalidArgument, match="closed"):
        writer.write(pa.table({"k": [1]}))
    assert writer.close() is None
    with plait.RunWriter(tmp_path / "none", sort_by="k"):
        pass
    assert not (tmp_path / "none").exists()


def test_a_source_that_raises_leaves_the_writer_as_it_was(tmp_path):
    def broken():
        yield pa.record_batch({"k": [3]})
        raise ValueError("here")

    with plait.RunWriter(tmp_path / "out.parquet", sort_by="k") as writer:
        writer.write(pa.table({"k": [2]}))
        with pytest.raises(ValueError, match="here"):
            writer.write(broken())
        writer.write(pa.table({"k": [1]}))
    assert pq.read_table(tmp_path / "out.parquet")["k"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"k": ["text"]}, plait.errors.SchemaConflict),
        ({"k": [1], "other": [1]}, plait.errors.SchemaConflict),
        ({"other": [1]}, plait.errors.SchemaConflict),
    ],
)
def test_other_columns_are_refused(tmp_path, more, error):
    with plait.RunWriter(tmp_path / "out.parquet", sort_by="k") as writer:
        writer.write(pa.table({"k": [1]}))
        with pytest.raises(error):
            writer.write(pa.table(more))
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 1


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(plait.errors.UnknownColumn):
        plait.RunWriter(tmp_path / "a", sort_by="z").write(pa.table({"k": [1]}))
    with pytest.raises(plait.errors.UnsupportedKey):
        plait.RunWriter(tmp_path / "b", sort_by="k").write(pa.table({"k": [[1]]}))
    with pytest.raises(plait.errors.InvalidArgument):
        plait.RunWriter(tmp_path / "c", sort_by="k").write(7)
    with pytest.raises(plait.errors.InvalidArgument):
        plait.RunWriter(tmp_path / "d", sort_by="k", memory_limit="1MB")
    write(pa.table({"k": [1]}), tmp_path / "there.parquet")
    with pytest.raises(plait.errors.OutputExists):
        plait.RunWriter(tmp_path / "there.parquet", sort_by="k", if_exists="add")
    with pytest.raises(plait.errors.OutputExists):
        plait.RunWriter(tmp_path, sort_by="k")
    one = plait.RunWriter(tmp_path / "one.parquet", sort_by="k")
    one.write(pa.table({"k": [1]}))
    one.flush()
    one.write(pa.table({"k": [2]}))
    with pytest.raises(plait.errors.InvalidArgument, match="one file"):
        one.flush()


def test_rows_with_one_key_are_dropped_as_merge_drops_them(tmp_path):
    rows = pa.table({"k": [2, 1, 2, 1, 3], "v": list("abcde"), "gone": [False] * 4 + [True]})
    options = {"on_duplicate": "keep_last", "delete_where": "gone"}
    with plait.RunWriter(tmp_path / "out.parquet", sort_by="k", **options) as writer:
        for i in range(rows.num_rows):
            writer.write(rows.slice(i, 1))
    assert pq.read_table(tmp_path / "out.parquet")["v"].to_pylist() == ["d", "c"]
    assert writer.reports[0].rows_dropped == {"duplicate": 2, "deleted": 1}


def test_random_batches_equal_the_oracle(tmp_path):
    for seed in range(int(os.environ.get("PLAIT_RUN_WRITER_CASES", "12"))):
        choose = random.Random(seed)
        rows = table(choose.randrange(1, 20_000), seed)
        out = tmp_path / str(seed)
        limit = choose.choice(["16MB", "20MB", "64MB"])
        options = {"sort_by": "name, -k", "memory_limit": limit, "target_rows": 7_000}
        writer = plait.RunWriter(out, **options)
        start = since = 0
        while start < rows.num_rows:
            some = rows.slice(start, choose.randrange(1, 3_000))
            writer.write(some)
            start += some.num_rows
            if choose.random() < 0.1 or start == rows.num_rows:
                report = writer.flush()
                files = [pq.read_table(output.path) for output in report.outputs]
                flushed = rows.slice(since, start - since)
                assert pa.concat_tables(files).to_pylist() == ordered(flushed), seed
                since = start
        writer.close()


def test_two_threads_write_one_after_the_other(tmp_path):
    writer = plait.RunWriter(tmp_path / "out.parquet", sort_by="k")
    parts = [
        threading.Thread(target=lambda: [writer.write(pa.table({"k": [1, 0]})) for _ in range(50)])
        for _ in range(4)
    ]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    writer.close()
    assert pq.read_table(tmp_path / "out.parquet")["k"].to_pylist() == [0] * 200 + [1] * 200


def test_files_of_new_rows_are_no_merge(tmp_path):
    """Otherwise they mature one compaction early."""
    for number in range(3):
        with plait.RunWriter(tmp_path, sort_by="k", if_exists="add") as writer:
            writer.write(pa.table({"k": [number, 9]}))
    paths = sorted(tmp_path.glob("*.parquet"))
    levels = [pq.read_metadata(path).metadata[b"plait.merge_level"] for path in paths]
    assert levels == [b"0"] * 3
    plan = plait.plan(paths, sort_by="k")
    assert [source.merge_level for source in plan.sources] == [0] * 3
    merged = plait.merge(paths, tmp_path / "out.parquet", sort_by="k").outputs[0].path
    assert pq.read_metadata(merged).metadata[b"plait.merge_level"] == b"1"
