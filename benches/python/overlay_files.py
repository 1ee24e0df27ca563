"""One column is added to a file: `overlay_files` next to `cp` of the same bytes, interleaved."""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait

ROW_GROUP_ROWS = 1_000_000
COLUMNS = 12


def make(folder, size_bytes, *, nested):
    """A file of random doubles of about so many bytes, and one of another column."""
    base, patch = folder / "base.parquet", folder / "patch.parquet"
    rows = size_bytes // (8 * (COLUMNS + 1))
    options = {"compression": "none", "use_dictionary": False}
    rng = np.random.default_rng(1)
    base_writer = patch_writer = None
    for start in range(0, rows, ROW_GROUP_ROWS):
        count = min(ROW_GROUP_ROWS, rows - start)
        index = pa.array(np.arange(start, start + count))
        columns = {f"f{i}": pa.array(rng.random(count)) for i in range(COLUMNS)}
        if nested:
            columns = {"s": pa.StructArray.from_arrays(list(columns.values()), list(columns))}
        new = {"label": pa.array(rng.random(count))}
        if nested:
            new = {"s": pa.StructArray.from_arrays(list(new.values()), list(new))}
        wide = pa.table({"_index": index, **columns})
        narrow = pa.table({"_index": index, **new})
        base_writer = base_writer or pq.ParquetWriter(base, wide.schema, **options)
        patch_writer = patch_writer or pq.ParquetWriter(patch, narrow.schema, **options)
        base_writer.write_table(wide, row_group_size=ROW_GROUP_ROWS)
        patch_writer.write_table(narrow, row_group_size=ROW_GROUP_ROWS)
    base_writer.close()
    patch_writer.close()
    return base, patch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--nested", action="store_true", help="the column goes into a struct")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        base, patch = make(folder, int(args.gb * 1e9), nested=args.nested)
        layers = [plait.Layer(base), plait.Layer(patch, ["s.label" if args.nested else "label"])]
        out, copy = folder / "out.parquet", folder / "copy.parquet"
        times = {"cp": [], "cp + sync": [], "overlay_files": []}
        for _ in range(args.rounds):
            for what, seconds in times.items():
                out.unlink(missing_ok=True)
                copy.unlink(missing_ok=True)
                os.sync()
                start = time.perf_counter()
                if what == "overlay_files":
                    report = plait.overlay_files(layers, out)
                else:
                    subprocess.run(["cp", "--reflink=never", base, copy], check=True)
                if what == "cp + sync":
                    subprocess.run(["sync", copy], check=True)
                seconds.append(time.perf_counter() - start)
        size = base.stat().st_size
        print(f"{size / 1e9:.2f} GB, {COLUMNS} columns and an index, one column added")
        for what, seconds in times.items():
            print(f"  {what:14} {min(seconds):6.2f} s (median {statistics.median(seconds):.2f})")
        ours = min(times["overlay_files"])
        print(f"  ratio to cp {ours / min(times['cp']):.2f}, to cp + sync", end=" ")
        print(f"{ours / min(times['cp + sync']):.2f}; {report.time}")
        print("  copied:", {tier: copied.bytes for tier, copied in report.copied.items()})


if __name__ == "__main__":
    main()
