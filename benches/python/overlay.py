"""Overlay in memory: time and memory for many leaves, next to a copy of the bitmaps it changes."""

import argparse
import statistics
import time

import numpy as np
import pyarrow as pa

import plait

ROWS = 96_000


def layers(leaves, *, nulls):
    """Two layers of one struct; structs are null in other rows, half of the leaves have nulls."""
    rng = np.random.default_rng(7)

    def table(names):
        arrays = []
        for i, _ in enumerate(names):
            mask = rng.random(ROWS) < 0.1 if nulls and i % 2 else None
            arrays.append(pa.array(rng.random(ROWS), mask=mask))
        mask = pa.array(rng.random(ROWS) < 0.1) if nulls else None
        struct = pa.StructArray.from_arrays(arrays, names, mask=mask)
        return pa.record_batch({"_index": pa.array(np.arange(ROWS)), "s": struct})

    names = [f"f{i}" for i in range(leaves)]
    half = leaves // 2
    return [
        plait.Layer(table(names), ["s"]),
        plait.Layer(table(names[half:]), [("s", name) for name in names[half:]]),
    ]


def run(pair, rounds=21):
    seconds, pull = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        stream = plait.overlay(pair)
        middle = time.perf_counter()
        batches = list(stream)
        seconds.append(time.perf_counter() - start)
        pull.append(time.perf_counter() - middle)
        assert sum(len(batch) for batch in batches) == ROWS
    return min(seconds), statistics.median(seconds), min(pull)


def copied(leaves, rounds=21):
    """A copy of the bitmaps that change: one of each leaf and one of the struct."""
    bitmaps = [np.zeros(ROWS // 8, np.uint8) for _ in range(leaves + 1)]
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        for bitmap in bitmaps:
            bitmap.copy()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peak_above(pair):
    """Bytes of buffers in the result that none of the layers has."""

    def buffers(array):
        yield from (buffer for buffer in array.buffers() if buffer is not None)

    known = set()
    for layer in pair:
        for column in layer.stream.columns:
            known |= {buffer.address for buffer in buffers(column)}
    new = {}
    for batch in plait.overlay(pair):
        for column in pa.record_batch(batch).columns:
            new |= {b.address: b.size for b in buffers(column) if b.address not in known}
    return sum(new.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, nargs="*", default=[2, 20, 200, 400])
    args = parser.parse_args()
    print(f"{ROWS:,} rows, two layers of one struct; milliseconds, the least of 21 rounds")
    for nulls in (False, True):
        print("structs and leaves with nulls" if nulls else "no nulls")
        for leaves in args.leaves:
            pair = layers(leaves, nulls=nulls)
            least, median, pull = run(pair)
            bitmaps = copied(leaves)
            above = peak_above(pair)
            print(
                f"  {leaves:4} leaves  {least * 1e3:7.2f} (median {median * 1e3:.2f}, reading alone"
                f" {pull * 1e3:.2f})  copy of the bitmaps {bitmaps * 1e3:.2f}, ratio"
                f" {pull / bitmaps:.2f}; new memory {above / 1e6:.2f} MB"
            )


if __name__ == "__main__":
    main()
