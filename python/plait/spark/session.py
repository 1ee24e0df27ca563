"""Lets a session of Spark know the format `plait`.

Not here: the format (`pyspark_plait`, `source`, `sink`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Lets Spark push filters down to the format `"plait"`, which it finds without this call.

    Spark pushes no filters down to Python sources until a setting of the session says so, and a
    source cannot set it: `spark.sql.python.filterPushdown.enabled`. Where the Python of Spark's
    driver did not find `pyspark_plait`, the session gets to know the format, too.

    Example:
        >>> register(spark)  # doctest: +SKIP
    """
    import pyspark_plait  # noqa: PLC0415 - executors need not have it

    # As code and not by name, for a driver's Python without Plait, too.
    cloudpickle.register_pickle_by_value(pyspark_plait)  # type: ignore[no-untyped-call]
    try:
        spark.dataSource.register(pyspark_plait.DefaultSource)
    except AnalysisException as error:
        # What Spark found by itself cannot be registered.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    finally:
        cloudpickle.unregister_pickle_by_value(pyspark_plait)  # type: ignore[no-untyped-call]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
