"""Plait on Spark: plan on the driver, work on executors, commit on the driver.

compact    folders, Delta and Iceberg tables: plan ──▶ task on executors ──▶ commit

Spark is imported when a function is called, and not before. Rows never pass the driver.
"""

from plait.spark.compact import compact, compact_delta, compact_iceberg

__all__ = ["compact", "compact_delta", "compact_iceberg"]
