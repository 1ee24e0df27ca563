"""The format `plait`, where Spark looks for it: Spark imports every package `pyspark_*`.

    spark.read.format("plait") ─▶ Spark lists `pyspark_*` ─▶ `DefaultSource` ─▶ `plait.spark.source`

Every session that meets a Python source imports this, so it imports Plait when the format is used.
What is made here may run in a Python without Plait, and says so there.

Not here: what the format does (`plait.spark.source`, `plait.spark.sink`); the check (`_absent`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_plait._absent import checker

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The format `"plait"`: `spark.read.format("plait")`.

    The options of a reader and a writer are those of the guide (`docs/guide/spark-data.md`).
    """

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "plait"

    def schema(self) -> StructType:
        """The merged schema of all files, in Spark's types."""
        checker()()
        from plait.spark import source  # noqa: PLC0415 - see the module

        return source.schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads batches."""
        checker()()
        from plait.spark import source  # noqa: PLC0415 - see the module

        return source.reader_of(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Writes one run a task."""
        checker()()
        from plait.spark.sink import RunWriter  # noqa: PLC0415 - see the module

        return RunWriter.of(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's signature
        """Writes one run a task and micro-batch."""
        checker()()
        from plait.spark.sink import RunStreamWriter  # noqa: PLC0415 - see the module

        return RunStreamWriter.of(self.options, schema, overwrite=overwrite)
