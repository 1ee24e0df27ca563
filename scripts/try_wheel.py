"""Merges two files with the plait that is installed, in the current folder."""

import pyarrow as pa
import pyarrow.parquet as pq

import plait

for i in range(2):
    pq.write_table(pa.table({"k": [i, i + 2]}), f"{i}.parquet")
print(plait.merge(["0.parquet", "1.parquet"], "merged.parquet", sort_by="k", verify="content"))
assert pq.read_table("merged.parquet")["k"].to_pylist() == [0, 1, 2, 3]
