"""Tables that keep the last row of a key: whatever is compacted when, reads are a dictionary.

Compactions make several small files, and later ones take some of these together with older files.
The seeds with a name of their own gave old rows before each of several outputs had a place of its own.
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

import plait

pytestmark = pytest.mark.local

STALE = (118, 318, 349, 578, 630)
SEEDS = (*STALE, *range(20 if os.environ.get("CI") else 4))
RUNS = 14


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_reads_give_the_last_row_of_each_key(tmp_path, seed):
    rng = random.Random(seed)
    table = plait.Table(tmp_path / "table", sort_by="k", on_duplicate="keep_last")
    last: dict[int, int] = {}
    written = 0
    for _ in range(RUNS):
        start, width = rng.randrange(60), rng.choice([3, 15, 60])
        rows = []
        for _ in range(rng.choice([1, 8, 30])):
            written += 1
            rows.append((start + rng.randrange(width), written))
        rows.sort(key=lambda row: row[0])  # stable: a later row is younger
        last.update(rows)
        keys, values = zip(*rows, strict=True)
        table.append(pa.table({"k": list(keys), "v": list(values)}))
        if rng.random() < 0.5:
            table.compact(
                policy=rng.choice(["full", "overlap", "size_tiered", "size_tiered"]),
                max_depth=rng.choice([1, 2]),
                merge_factor=rng.choice([2, 3]),
                merge_factor_max=3,
                target_file_size=rng.choice([None, "1kB", "1kB"]),
            )
        read = pa.table(table.read())
        assert dict(zip(read["k"].to_pylist(), read["v"].to_pylist(), strict=True)) == last
        assert read.num_rows == len(last)
