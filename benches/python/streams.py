"""merge_streams beside Polars and DataFusion: 8 sources x 1 M rows, in one process, interleaved.

    .venv/bin/python benches/python/streams.py [ROWS]

Two threads for everyone. DataFusion merges instead of sorting only where a table declares its order,
which from Python means files: Arrow files in memory (/dev/shm), mapped by the page cache. Every tool gets sorted data in memory in its own form and is read to its
last row, batch by batch, and nobody keeps the result unless it must. Best and median of the rounds.
"""

import os
import statistics
import sys
import tempfile
import time

os.environ["POLARS_MAX_THREADS"] = "2"

import datafusion
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.ipc

import plait

SOURCES = 8
ROUNDS = 5
BATCH_ROWS = 8192


def table(kind, source, rows):
    random = np.random.default_rng(source)
    payload = {
        "value": random.random(rows),
        "count": random.integers(0, 1000, rows),
        "label": pa.array([f"label-{i}" for i in range(100)]).take(
            pa.array(random.integers(0, 100, rows))
        ),
    }
    if kind == "int":
        keys = {"k": np.sort(random.integers(0, 1 << 40, rows))}
        return pa.table({**keys, **payload})

    def names(prefix, n):
        return pa.array([f"{prefix}-{i:04}" for i in range(n)]).take(
            pa.array(random.integers(0, n, rows))
        )

    keys = {"a": names("metric", 200), "b": names("service", 50), "c": names("host", 2000)}
    whole = pa.table({**keys, **payload})
    return whole.sort_by([(name, "ascending") for name in keys]).combine_chunks()


def run_plait(tables, by):
    rows = 0
    stream = plait.merge_streams(
        [t.to_reader(max_chunksize=65_536) for t in tables],
        sort_by=list(by),
        batch_rows=BATCH_ROWS,
        threads=2,
    )
    for batch in stream:
        rows += len(batch)
    return rows


def polars_query(frames, by):
    """A tree of merges of two; several keys are one struct, which is all merge_sorted takes."""
    if len(by) > 1:
        frames = [f.with_columns(pl.struct(by).alias("key")) for f in frames]
    key = by[0] if len(by) == 1 else "key"
    while len(frames) > 1:
        pairs = zip(frames[::2], frames[1::2])
        frames = [a.merge_sorted(b, key=key) for a, b in pairs]
    return frames[0]


def run_polars(frames, by):
    return polars_query(frames, by).height


def run_polars_streaming(frames, by):
    return polars_query([f.lazy() for f in frames], by).collect(engine="streaming").height


def run_datafusion(folder, by):
    """Sorted files that say so are what lets DataFusion merge instead of sort."""
    config = datafusion.SessionConfig().with_target_partitions(SOURCES).with_batch_size(BATCH_ROWS)
    context = datafusion.SessionContext(config)
    order = ", ".join(by)
    context.sql(
        f"create external table t stored as arrow location '{folder}' with order ({order})"
    ).collect()
    frame = context.sql(f"select * from t order by {order}")
    assert "SortPreservingMergeExec" in str(frame.execution_plan()), frame.execution_plan()
    assert "SortExec" not in str(frame.execution_plan()), frame.execution_plan()
    return sum(len(batch.to_pyarrow()) for batch in frame.execute_stream())


def measure(kind, by, rows, folder):
    """Milliseconds of every round of every tool, the tools taking turns."""
    tables = [table(kind, source, rows) for source in range(SOURCES)]
    frames = [pl.DataFrame(t).rechunk() for t in tables]
    for i, t in enumerate(tables):
        with pa.OSFile(f"{folder}/{i}.arrow", "wb") as file:
            with pa.ipc.new_file(file, t.schema) as writer:
                writer.write_table(t, max_chunksize=65_536)
    tools = {
        "plait": lambda: run_plait(tables, by),
        "polars": lambda: run_polars(frames, by),
        "polars streaming": lambda: run_polars_streaming(frames, by),
        "datafusion": lambda: run_datafusion(folder, by),
    }
    times = {name: [] for name in tools}
    for _ in range(ROUNDS):
        for name, run in tools.items():
            start = time.perf_counter()
            found = run()
            times[name].append(1000 * (time.perf_counter() - start))
            assert found == SOURCES * rows, (name, found)
    return times


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"{SOURCES} sources x {rows:,} rows, 2 threads, ms: best / median of {ROUNDS}")
    for kind, by in {"int": ("k",), "text": ("a", "b", "c")}.items():
        # A file in memory is read through the page cache alone.
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            times = measure(kind, by, rows, folder)
        for name, all_ms in times.items():
            print(f"{kind:5} {name:17} {min(all_ms):8.0f} / {statistics.median(all_ms):8.0f}")
        best = min(min(all_ms) for name, all_ms in times.items() if name != "plait")
        print(
            f"{kind:5} the best of the others takes {best / min(times['plait']):.2f} times as long"
        )


if __name__ == "__main__":
    main()
