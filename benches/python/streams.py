"""merge_streams, Polars and DataFusion: 8 sources x 1 M rows, in one process, interleaved.

    nice -n 5 .venv/bin/python benches/python/streams.py [ROWS]

Two threads for everyone: the process is bound to two CPUs, and what can be told is told besides: Plait
`threads=2`, Polars POLARS_MAX_THREADS, DataFusion's tokio runtime TOKIO_WORKER_THREADS. Its
`target_partitions` is 2 where it then still merges, else the number of sources: partitions are not
threads, and with fewer than files it would sort.

DataFusion merges instead of sorting only where a table declares its order, which from Python means files:
Arrow files in memory (/dev/shm). Every other tool gets sorted data in memory in its own form. The result
is read to its last row, batch by batch, and nobody keeps it unless it must (Polars does).

Where others use the machine too, times tell how much of it was left, and processor times what a tool asks for.
"""

import os
import statistics
import sys
import tempfile
import time

os.environ["POLARS_MAX_THREADS"] = os.environ["TOKIO_WORKER_THREADS"] = "2"

import datafusion
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.ipc

import plait

THREADS = 2  # as above
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
        threads=THREADS,
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


def query_datafusion(folder, by, partitions):
    """Sorted files that say so are what lets DataFusion merge instead of sort; None where it sorts."""
    config = datafusion.SessionConfig({"datafusion.execution.target_partitions": str(partitions)})
    context = datafusion.SessionContext(config.with_batch_size(BATCH_ROWS))
    order = ", ".join(by)
    context.sql(
        f"create external table t stored as arrow location '{folder}' with order ({order})"
    ).collect()
    frame = context.sql(f"select * from t order by {order}")
    plan = str(frame.execution_plan())
    return frame if "SortPreservingMergeExec" in plan and "SortExec" not in plan else None


def run_datafusion(folder, by):
    frame = query_datafusion(folder, by, THREADS) or query_datafusion(folder, by, SOURCES)
    return sum(len(batch.to_pyarrow()) for batch in frame.execute_stream())


def measure(kind, by, rows, folder):
    """Milliseconds of every round of every tool, and of its processors, the tools taking turns."""
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
            start, cpu = time.perf_counter(), time.process_time()
            found = run()
            cpu = time.process_time() - cpu
            times[name].append((1000 * (time.perf_counter() - start), 1000 * cpu))
            assert found == SOURCES * rows, (name, found)
    return times


def main():
    # Threads that tools start from here on are bound too.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    pa.set_cpu_count(THREADS)
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print(f"{SOURCES} sources x {rows:,} rows, {THREADS} threads; ms, {ROUNDS} rounds taking turns")
    print(f"polars {pl.__version__}, {pl.thread_pool_size()} threads; datafusion", end=" ")
    print(f"{datafusion.__version__}, {THREADS} tokio workers; CPUs {len(os.sched_getaffinity(0))}")
    print(
        f"{'key':5} {'tool':17} {'best':>7} {'median':>7} {'times plait':>12} {'M rows/s':>9}"
        f" {'cpu':>7} {'times plait':>12}"
    )
    for kind, by in {"int": ("k",), "text": ("a", "b", "c")}.items():
        # A file in memory is read through the page cache alone.
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            times = measure(kind, by, rows, folder)
        best = {name: [min(all_ms) for all_ms in zip(*pairs)] for name, pairs in times.items()}
        wall, cpu = best["plait"]
        for name, pairs in times.items():
            ms, cpu_ms = best[name]
            median = statistics.median(ms for ms, _ in pairs)
            rate = SOURCES * rows / ms / 1000
            print(
                f"{kind:5} {name:17} {ms:7.0f} {median:7.0f} {ms / wall:12.2f} {rate:9.1f}"
                f" {cpu_ms:7.0f} {cpu_ms / cpu:12.2f}"
            )
        others = [pair for name, pair in best.items() if name != "plait"]
        ms, cpu_ms = (min(all_ms) for all_ms in zip(*others))
        print(f"{kind:5} the best of the others takes {ms / wall:.2f} times as long", end=", ")
        print(f"{cpu_ms / cpu:.2f} times as much of the processors")


if __name__ == "__main__":
    main()
