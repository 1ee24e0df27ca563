"""Plait on Spark: plan on the driver, work on executors, commit on the driver.

compact      folders, Delta and Iceberg tables: plan ──▶ task on executors ──▶ commit
register     filters for the format "plait": sorted files read merged, sorted runs written
merge_runs   sorted runs inside a DataFrame
scan         files whose schemas drift        overlay   layers by position
foreign_key_join  two tables that change, and how their join changes
functions    for users' own mapInArrow and applyInArrow

Rows never pass the driver.

from plait import spark as ps
frame = spark.read.format("plait").option("sort_by", "name, ts").load("runs")
"""

from plait.spark import needs

needs.check()

from plait.spark import functions
from plait.spark.compact import compact, compact_delta, compact_iceberg
from plait.spark.join import (
    foreign_key_join,
    foreign_key_join_batch,
    foreign_key_join_stateful,
)
from plait.spark.overlay import overlay
from plait.spark.runs import merge_runs
from plait.spark.scan import scan
from plait.spark.session import register

__all__ = [
    "compact",
    "compact_delta",
    "compact_iceberg",
    "foreign_key_join",
    "foreign_key_join_batch",
    "foreign_key_join_stateful",
    "functions",
    "merge_runs",
    "overlay",
    "register",
    "scan",
]
