"""How large files become for a `target_file_size`, on five shapes of data, and what planning costs.

    python benches/python/file_sizes.py [--targets 2MB,16MB,128MB] [--shapes nested,strings]

Each shape is merged for each target, with rows for a bit more than three files. What is printed for
each: sizes of the files as shares of what was asked for, smallest and largest but for the last one,
then the last one; the seconds of planning and of all.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait

SEED = 7
SOURCES = 6
BATCH_ROWS = 100_000
# Files of a run: the last one may be small.
FILES = 3.4

Make = Callable[[np.random.Generator, np.ndarray], pa.Table]


def numbers(draw: np.random.Generator, keys: np.ndarray) -> pa.Table:
    """Metrics: a key, few hosts, a value that changes slowly."""
    hosts = pa.array([f"host-{i:03}.example" for i in range(200)])
    value = np.round(np.cumsum(draw.normal(size=len(keys))), 2)
    host = pa.DictionaryArray.from_arrays(pa.array(draw.integers(0, 200, len(keys))), hosts)
    return pa.table({"k": keys, "host": host.cast(pa.string()), "value": value})


def versions(draw: np.random.Generator, keys: np.ndarray) -> pa.Table:
    """Three rows of each key in four: a merge keeps the last one."""
    return numbers(draw, keys // 4)


def strings(draw: np.random.Generator, keys: np.ndarray) -> pa.Table:
    """Text that hardly repeats, much longer for the last third of the keys."""
    words = np.array([f"{word:x}" for word in draw.integers(0, 1 << 24, 5_000)])
    number = np.where(keys % 3_000_000 < 2_000_000, 4, 24)
    parts = draw.choice(words, int(number.sum()))
    ends = np.cumsum(number)
    text = [" ".join(parts[end - n : end]) for end, n in zip(ends, number, strict=True)]
    return pa.table({"k": keys, "text": text})


def nested(draw: np.random.Generator, keys: np.ndarray) -> pa.Table:
    """Lists of structs, and maps."""
    count = draw.integers(0, 6, len(keys))
    offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
    total = int(offsets[-1])
    items = pa.StructArray.from_arrays(
        [pa.array(draw.integers(0, 500, total)), pa.array(draw.normal(size=total))],
        names=["id", "score"],
    )
    tags = pa.MapArray.from_arrays(
        np.arange(len(keys) + 1, dtype=np.int32),
        pa.array([f"tag-{i}" for i in draw.integers(0, 30, len(keys))]),
        pa.array(draw.integers(0, 9, len(keys))),
    )
    return pa.table({"k": keys, "items": pa.ListArray.from_arrays(offsets, items), "tags": tags})


@dataclass(frozen=True)
class Shape:
    """A kind of data, how it is stored, and what the merge is asked for."""

    make: Make
    # Bytes of a row in the files of the merge, about.
    row_bytes: float
    stored: str = "zstd"
    options: dict[str, object] = field(default_factory=dict)


SHAPES = {
    "to zstd": Shape(numbers, 5.0, "none", {"compression": "zstd"}),
    "from zstd": Shape(numbers, 17.0, "zstd", {"compression": "uncompressed"}),
    "keep last": Shape(versions, 1.4, options={"on_duplicate": "keep_last"}),
    "strings": Shape(strings, 18.0),
    "nested": Shape(nested, 26.0),
}


def write(folder: Path, shape: Shape, rows: int) -> list[str]:
    """Sorted files that overlap each other, of `rows` rows in all."""
    draw = np.random.default_rng(SEED)
    paths = []
    for source in range(SOURCES):
        path = folder / f"{source}.parquet"
        writer = None
        for start in range(0, rows // SOURCES, BATCH_ROWS):
            count = min(BATCH_ROWS, rows // SOURCES - start)
            keys = (start + np.arange(count, dtype=np.int64)) * SOURCES + source
            table = shape.make(draw, keys)
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema, compression=shape.stored)
            writer.write_table(table)
        if writer is not None:
            writer.close()
        paths.append(str(path))
    return paths


def run(folder: Path, name: str, target: int) -> tuple[list[float], plait.MergeReport]:
    """The sizes of the files as shares of `target`, in the order of their keys, and the report."""
    shape = SHAPES[name]
    paths = write(folder, shape, int(FILES * target / shape.row_bytes))
    report = plait.merge(
        paths, folder / "out", sort_by="k", target_file_size=target, **shape.options
    )
    return [output.bytes / target for output in report.outputs], report


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--targets", default="2MB,16MB,128MB")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    asked = parser.parse_args()
    print(
        f"{'shape':<10} {'target':>6} {'files':>5}  {'least':>5} {'most':>5} {'last':>5}  plan s  all s"
    )
    for name in asked.shapes.split(","):
        for target in asked.targets.split(","):
            size = int(target.removesuffix("MB")) * 1_000_000
            with tempfile.TemporaryDirectory() as folder:
                sizes, report = run(Path(folder), name, size)
            *others, last = sizes
            least, most = min(others, default=last), max(others, default=last)
            time = report.time
            print(
                f"{name:<10} {target:>6} {len(sizes):>5}  {least:>5.2f} {most:>5.2f} {last:>5.2f}"
                f"  {time.plan_s:>6.2f} {time.wall_s:>6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
