"""Makes the inputs of the benches: folders of sorted Parquet files, always the same for one scale.

    W1 metrics    16 x 500,000 rows, 22 columns; ranges overlap row by row
    W2 wide        8 x 250,000 rows, 1 + 100 float64 + 20 text columns; ids interleave
    W3 lineitem   TPC-H at scale factor SCALE, sorted, dealt in turn into 10 files (tpchgen-cli)
    W4 disjoint   the rows of W1 in 16 stretches; 2 % of the rows of a file lie in a neighbour's
    W5 text        8 x 72,000 rows, 1 to 4 KiB of text and 256 float32

Four more ask how much memory a merge takes. They are made only when named:

    M1 many       1,000 x 70,000 rows of W1, about 5 MB each
    M2 wider       8 x 100,000 rows, 400 columns as those of W2
    M3 one group   2 x one row group of 2 GiB: 16 columns of 8 bytes that no codec makes smaller
    W1x10         16 x 5,000,000 rows of W1

Files are written by PyArrow: zstd level 3, dictionaries, page indexes, sorting_columns, row groups
of a million rows or about 128 MiB, whichever is less, except for M3.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# What a cached folder was made by; raise it when a generator changes.
VERSION = 2
SEED = 20
ROW_GROUP_ROWS = 1_000_000
ROW_GROUP_BYTES = 128 << 20

METRICS_KEY = (
    ("metric_name", False),
    ("service", False),
    ("host", False),
    ("timestamp_secs", True),
)
KEYS = {
    "W1": METRICS_KEY,
    "W2": (("id", False),),
    "W3": (("l_shipdate", False), ("l_orderkey", False), ("l_linenumber", False)),
    "W4": METRICS_KEY,
    "W5": (("id", False),),
    "M1": METRICS_KEY,
    "M2": (("id", False),),
    "M3": (("id", False),),
    "W1x10": METRICS_KEY,
}
BY_DEFAULT = ("W1", "W2", "W3", "W4", "W5")


def prepare(name: str, folder: Path, scale: float) -> dict:
    """Makes the files of a workload in `folder` unless they are there; returns what they are."""
    facts_path = folder / "facts.json"
    wanted = {"workload": name, "scale": scale, "version": VERSION, "seed": SEED}
    if facts_path.exists():
        facts = json.loads(facts_path.read_text())
        if wanted.items() <= facts.items():
            return facts
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    group_rows = 0
    for i, table in enumerate(TABLES[name](scale, folder)):
        # A file too large to be made at once comes as tables that follow each other.
        parts = iter((table,)) if isinstance(table, pa.Table) else table
        first = next(parts)
        group_rows = group_rows or (first.num_rows if name == "M3" else rows_per_group(first))
        path = folder / f"in-{i:03}.parquet"
        write(itertools.chain((first,), parts), first.schema, path, KEYS[name], group_rows)
        del table, first, parts  # before the next is made
    footers = [pq.read_metadata(path) for path in sorted(folder.glob("*.parquet"))]
    facts = {
        **wanted,
        "files": len(footers),
        "rows": sum(footer.num_rows for footer in footers),
        "columns": footers[0].num_columns,
        "bytes": sum(path.stat().st_size for path in folder.glob("*.parquet")),
        "row_group_rows": group_rows,
    }
    facts_path.write_text(json.dumps(facts))
    return facts


def sort_by(name: str) -> str:
    """The key of a workload as Plait writes it."""
    return ", ".join(("-" if descending else "") + column for column, descending in KEYS[name])


def write(tables, schema: pa.Schema, path: Path, key, group_rows: int) -> None:
    sorting = [pq.SortingColumn(schema.get_field_index(c), descending=d) for c, d in key]
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        sorting_columns=sorting,
        write_page_index=True,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=group_rows)


def rows_per_group(table: pa.Table) -> int:
    """A million rows, or as many as are encoded in about 128 MiB."""
    buffer = pa.BufferOutputStream()
    sample = table.slice(0, 100_000)
    pq.write_table(sample, buffer, compression="none")
    row_bytes = buffer.tell() / max(1, sample.num_rows)
    return max(1024, min(ROW_GROUP_ROWS, int(ROW_GROUP_BYTES / row_bytes)))


# -- columns ---------------------------------------------------------------------------------------


def drawn(words: list[str], index: np.ndarray, null: np.ndarray | None = None) -> pa.Array:
    """`words[index]` as text, null where `null`."""
    return pa.array(words).take(pa.array(index.astype(np.int32), mask=null))


def skewed(rng, rows: int, choices: int) -> np.ndarray:
    """Few choices often, many seldom: the n-th about 1/n as often as the first."""
    weights = np.cumsum(1 / np.arange(1, choices + 1))
    return np.searchsorted(weights, rng.random(rows) * weights[-1]).clip(0, choices - 1)


def hex_text(rng, rows: int, digits: int, dashes: tuple[int, ...] = ()) -> pa.Array:
    """Random hexadecimal text of one length, with dashes at fixed places."""
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, (rows, digits))]
    text[:, list(dashes)] = ord("-")
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(digits)
    return pa.Array.from_buffers(
        pa.utf8(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))]
    )


# -- W1, W4 ----------------------------------------------------------------------------------------


def metrics(scale: float, _folder: Path):
    rows = int(500_000 * scale)
    series = make_series(16 * rows)
    return (metrics_file(series, rows, i) for i in range(16))


def make_series(rows: int) -> dict:
    """A fleet of time series; some report more often than others."""
    rng = np.random.default_rng([SEED, 1])
    count = int(np.clip(rows // 400, 200, 20_000))
    metric, service, host = (rng.integers(0, n, count) for n in (200, 50, 2000))
    # Each series once, in order: a series twice would make the files unsorted.
    code = np.unique((metric * 50 + service) * 2000 + host)
    return {
        "metrics": sorted(f"{a}.{b}.{c}" for a in LAYERS for b in PARTS for c in STATISTICS),
        "services": sorted(f"{a}-{b}" for a in TEAMS for b in ROLES),
        "hosts": [f"node-{i:04}.rack-{i % 61:02}.example.internal" for i in range(2000)],
        "metric": code // 100_000,
        "service": code // 2000 % 50,
        "host": code % 2000,
        "weights": np.cumsum(rng.pareto(2.5, len(code)) + 0.2),
    }


LAYERS = ("app", "db", "http", "kernel", "runtime")
PARTS = ("cache", "cpu", "disk", "errors", "latency", "memory", "queue", "requests")
STATISTICS = ("max", "mean", "p50", "p99", "rate")
TEAMS = ("auth", "billing", "cart", "export", "feed", "ingest", "mail", "media", "rank", "search")
ROLES = ("api", "batch", "edge", "store", "worker")


def metrics_file(series: dict, rows: int, number: int) -> pa.Table:
    rng = np.random.default_rng([SEED, 2, number])
    which = np.searchsorted(series["weights"], rng.random(rows) * series["weights"][-1])
    which = which.clip(0, len(series["weights"]) - 1)
    time = 1_720_000_000 + rng.integers(0, 30 * 86_400, rows)
    order = np.lexsort((-time, which))
    which, time = which[order], time[order]
    metric, service, host = series["metric"][which], series["service"][which], series["host"][which]

    def words(prefix: str, count: int) -> list[str]:
        return [f"{prefix}-{i}" for i in range(count)]

    def at_random(share: float) -> np.ndarray:
        return rng.random(rows) < share

    def by_host(share: float) -> np.ndarray:
        return host * 7919 % 1000 < share * 1000

    lengths = rng.integers(0, 5, rows)
    no_list = at_random(0.05)
    lengths[no_list] = 0
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    samples = pa.array(rng.exponential(100, offsets[-1]).round(3))
    trace = pa.py_buffer(rng.bytes(16 * rows))
    value = np.where(metric % 2 == 0, rng.normal(100, 15, rows).round(2), rng.lognormal(3, 1, rows))
    return pa.table(
        {
            "metric_name": drawn(series["metrics"], metric),
            "service": drawn(series["services"], service),
            "host": drawn(series["hosts"], host),
            "timestamp_secs": time,
            "value": value,
            "tag_region": drawn(words("region", 8), host % 8),
            "tag_zone": drawn(words("zone", 24), host % 24),
            "tag_env": drawn(["prod", "staging", "test", "dev"], service % 4),
            "tag_cluster": drawn(words("cluster", 40), host % 40),
            "tag_machine": drawn(words("machine-type", 30), host * 13 % 30),
            "tag_version": drawn(words("v1.4", 300), skewed(rng, rows, 300), at_random(0.3)),
            "tag_pod": drawn(words("pod", 4000), host * 2 + rng.integers(0, 2, rows), by_host(0.5)),
            "tag_container": drawn(words("container", 500), (host + service) % 500, by_host(0.4)),
            "tag_status": drawn(words("status", 12), skewed(rng, rows, 12)),
            "tag_method": drawn(words("method", 7), skewed(rng, rows, 7), at_random(0.3)),
            "tag_endpoint": drawn(
                words("/api/v2/items", 2000), skewed(rng, rows, 2000), at_random(0.6)
            ),
            "tag_customer": drawn(
                words("customer", 20_000), rng.integers(0, 20_000, rows), at_random(0.9)
            ),
            "request_id": hex_text(rng, rows, 36, dashes=(8, 13, 18, 23)),
            "trace_id": pa.Array.from_buffers(pa.binary(16), rows, [None, trace]),
            "span": rng.integers(-(2**63), 2**63 - 1, rows),
            "samples": pa.ListArray.from_arrays(offsets, samples, mask=pa.array(no_list)),
            "is_error": at_random(0.03),
        }
    )


def disjoint(scale: float, folder: Path):
    rows = int(500_000 * scale)
    table = pa.concat_tables(metrics(scale, folder))
    keys = [(column, "descending" if down else "ascending") for column, down in METRICS_KEY]
    order = pc.sort_indices(table, sort_keys=keys).to_numpy()
    owner = np.arange(len(order)) // rows
    rng = np.random.default_rng([SEED, 4])
    for cut in range(rows, len(order), rows):
        near = slice(cut - rows // 100, cut + rows // 100)
        owner[near] = cut // rows - rng.integers(0, 2, near.stop - near.start)
    return (table.take(pa.array(order[owner == i])).combine_chunks() for i in range(16))


# -- W2, W3, W5 ------------------------------------------------------------------------------------


def dealt_ids(rows: int, files: int) -> list[np.ndarray]:
    """Ascending ids, dealt at random, equally many to each file."""
    owner = np.random.default_rng([SEED, 5]).permutation(np.repeat(np.arange(files), rows))
    return [np.flatnonzero(owner == i).astype(np.int64) * 3 for i in range(files)]


def wide(scale: float, _folder: Path):
    rows = int(250_000 * scale)
    for number, ids in enumerate(dealt_ids(rows, 8)):
        rng = np.random.default_rng([SEED, 6, number])
        yield pa.table({"id": pa.array(ids)} | wide_columns(rng, rows))


def wide_columns(rng, rows: int) -> dict[str, pa.Array]:
    """Numbers f00 to f99 and texts t00 to t19."""
    columns = {}
    for i in range(100):
        if i < 40:  # full precision
            values, null = rng.normal(0, 1 + i, rows), None
        elif i < 80:  # prices
            values, null = rng.gamma(2, 50 + i, rows).round(2), None
        elif i < 90:  # few values
            values, null = rng.integers(0, 10 + 90 * (i - 80), rows) / 4, None
        else:  # often absent
            values, null = rng.normal(0, 10, rows).round(3), rng.random(rows) < 0.6
        columns[f"f{i:02}"] = pa.array(values, mask=null)
    for i in range(20):
        if i < 10:
            null = rng.random(rows) < 0.2 if i % 3 == 0 else None
            choices = 10 << i
            values = drawn(
                [f"t{i}-{j:x}" for j in range(choices)], skewed(rng, rows, choices), null
            )
        elif i < 15:
            choices = 20_000 * (i - 9)
            items = [f"item/{i}/{j * 2654435761 % 2**32:08x}" for j in range(choices)]
            values = drawn(items, rng.integers(0, choices, rows))
        else:
            values = hex_text(rng, rows, 14)
        columns[f"t{i:02}"] = values
    return columns


def lineitem(scale: float, folder: Path):
    program = Path(sys.executable).parent / "tpchgen-cli"
    made = folder / "made"
    subprocess.run(
        [program, "parquet", "-s", str(scale), "-T", "lineitem", "-o", made],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    table = pa.concat_tables(pq.read_table(path) for path in sorted(made.rglob("*.parquet")))
    shutil.rmtree(made)
    # Text that is no view, and no ids of fields: a cast loses those of text, and where some are
    # left, Iceberg goes by them and finds no column for the others.
    fields = [
        pa.field(f.name, pa.utf8())
        if pa.types.is_string_view(f.type)
        else pa.field(f.name, f.type, f.nullable)
        for f in table.schema
    ]
    table = table.cast(pa.schema(fields)).sort_by([(c, "ascending") for c, _ in KEYS["W3"]])
    return (table.take(pa.array(np.arange(i, len(table), 10))).combine_chunks() for i in range(10))


def text(scale: float, _folder: Path):
    rows = int(72_000 * scale)
    syllables = "al an be da el en ga in ka lo mi no or ra so te ti ur ve zu".split()
    picks = np.random.default_rng([SEED, 7]).integers(0, len(syllables), (20_000, 4))
    lexicon = ["".join(syllables[j] for j in row[: 1 + i % 4]) + " " for i, row in enumerate(picks)]
    for number, ids in enumerate(dealt_ids(rows, 8)):
        rng = np.random.default_rng([SEED, 8, number])
        offsets = np.concatenate(([0], np.cumsum(rng.integers(1024, 4097, rows)))).astype(np.int32)
        words = drawn(lexicon, skewed(rng, int(offsets[-1]) // 3 + 1, 20_000))
        letters = words.buffers()[2]
        assert letters.size >= offsets[-1]
        body = pa.Array.from_buffers(pa.utf8(), rows, [None, pa.py_buffer(offsets), letters])
        numbers = pa.array(rng.normal(0, 0.06, 256 * rows).astype(np.float32))
        starts = pa.array(np.arange(rows + 1, dtype=np.int32) * np.int32(256))
        embedding = pa.ListArray.from_arrays(starts, numbers)
        yield pa.table({"id": ids, "body": body, "embedding": embedding})


# -- memory: M1, M2, M3, W1x10 ---------------------------------------------------------------------


def many(scale: float, _folder: Path):
    rows = max(1, int(70_000 * scale))
    series = make_series(1000 * rows)
    return (metrics_file(series, rows, i) for i in range(1000))


def wider(scale: float, _folder: Path):
    rows = int(100_000 * scale)
    for number, ids in enumerate(dealt_ids(rows, 8)):
        rng = np.random.default_rng([SEED, 9, number])
        columns = {"id": pa.array(ids)}
        for copy in "abcd":
            columns |= {f"{copy}_{name}": c for name, c in wide_columns(rng, rows).items()}
        yield pa.table(dict(itertools.islice(columns.items(), 400)))


def one_group(scale: float, _folder: Path):
    """Columns without nulls, dictionaries or a pattern, so that encoded bytes are plain bytes."""
    rows = int((2 << 30) * scale) // (16 * 8)

    def made(number: int, ids: np.ndarray):
        rng = np.random.default_rng([SEED, 11, number])
        values = {f"v{i:02}": rng.integers(-(2**63), 2**63 - 1, rows) for i in range(15)}
        yield pa.table({"id": ids} | values)

    # Not tables but generators of one, so that none is made before the last is gone.
    return (made(number, ids) for number, ids in enumerate(dealt_ids(rows, 2)))


def metrics_by_ten(scale: float, _folder: Path):
    """Files of W1 with ten times the rows, a tenth of the time series after the other."""
    rows, parts = int(500_000 * scale), 10
    series = make_series(16 * rows * parts)
    weights = series["weights"]
    cuts = np.searchsorted(weights, np.arange(parts + 1) / parts * weights[-1])
    stretches = []
    for low, high in itertools.pairwise(cuts):
        kept = {name: series[name][low:high] for name in ("metric", "service", "host")}
        kept["weights"] = weights[low:high] - (weights[low - 1] if low else 0)
        stretches.append(series | kept)
    for number in range(16):
        yield (metrics_file(part, rows, number * parts + i) for i, part in enumerate(stretches))


TABLES = {
    "W1": metrics,
    "W2": wide,
    "W3": lineitem,
    "W4": disjoint,
    "W5": text,
    "M1": many,
    "M2": wider,
    "M3": one_group,
    "W1x10": metrics_by_ten,
}
