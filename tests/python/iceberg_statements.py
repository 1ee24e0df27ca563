"""Statements of Iceberg's Spark runtime on tables that Plait compacts: what every snapshot has.

    python iceberg_statements.py FOLDER SEED …

Both commit to one catalog: PyIceberg's of SQLite, which is a `JdbcCatalog` for the runtime. Prints
a line of JSON for each seed; of `stream`, streaming readers are tried instead of statements.
Needs PySpark with a runtime of Iceberg, PyIceberg and Plait.
"""

from __future__ import annotations

import sys
from pathlib import Path

import statement_race as race
from pyiceberg.catalog.sql import SqlCatalog
from statement_race import session
from statements import COLUMNS, compared

from plait.table import compact_iceberg
from plait.table.iceberg import Iceberg

JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
BY_ROWS = ("insert", "delete", "delete", "update", "merge")
WHOLE_FILES = (*BY_ROWS, "delete_range", "overwrite")
# How rows are deleted and what is done, by the kind of a table.
KINDS = {
    "merge-on-read": (("merge-on-read",) * 3, BY_ROWS, {}),
    "by partition": (("merge-on-read",) * 3, BY_ROWS, {"write.delete.granularity": "partition"}),
    "mixed": (("merge-on-read", "copy-on-write", "merge-on-read"), WHOLE_FILES, {}),
    "copy-on-write": (("copy-on-write",) * 3, WHOLE_FILES, {}),
}
# The runtime refuses a statement if files that it read are not live any more.
REFUSED = (
    "Cannot commit, missing data files",
    "Missing required files to delete",
    "Cannot commit, found new conflicting",
    "CommitFailedException",
    "UnableToCommitException",
    # Two processes write to one file.
    "SQLITE_BUSY",
)


def session_of(folder):
    lake = "spark.sql.catalog.lake"
    settings = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        lake: "org.apache.iceberg.spark.SparkCatalog",
        f"{lake}.type": "jdbc",
        f"{lake}.uri": f"jdbc:sqlite:{folder}/lake.db?busy_timeout=20000",
        f"{lake}.jdbc.schema-version": "V1",
        f"{lake}.warehouse": f"file://{folder}/lake",
        f"{lake}.cache-enabled": "false",
    }
    return session(JARS, settings)


def catalog_of(folder):
    where = {"uri": f"sqlite:///{folder}/lake.db", "warehouse": f"file://{folder}/lake"}
    return SqlCatalog("lake", **where)


def is_ours(snapshot):
    return "plait.task" in snapshot.summary.additional_properties


class Table:
    """A table, and the rows that each of its snapshots should have."""

    committer, refused, order = Iceberg, REFUSED, ""

    def __init__(self, spark, catalog, name, seed):
        self.spark, self.catalog, self.name = spark, catalog, name
        self.kind = list(KINDS)[seed % len(KINDS)]
        modes, self.acts, more = KINDS[self.kind]
        names = (f"write.{act}.mode" for act in ("delete", "update", "merge"))
        said = {"format-version": "2", **dict(zip(names, modes, strict=True)), **more}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in said.items())
        self.is_partitioned = seed // len(KINDS) % 2 == 1
        by = "PARTITIONED BY (part)" if self.is_partitioned else ""
        spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING iceberg {by} TBLPROPERTIES ({listed})")
        spark.sql(f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY k")
        self.rows = {}

    def run(self, sql):
        self.spark.sql(sql).collect()

    def compact(self, rng):
        how = {"policy": rng.choice(["full", "full", "overlap"]), "unsorted": "sort"}
        how |= {"target_file_size": rng.choice([None, "4kB"]), "memory_limit": "64MB"}
        return compact_iceberg(self.catalog, self.name.removeprefix("lake."), yes=True, **how)

    @property
    def table(self):
        return self.catalog.load_table(self.name.removeprefix("lake."))

    def check(self, sql, before, after):
        """What a statement committed: one snapshot, or none if it changed nothing."""
        known = {s.snapshot_id for s in self.table.snapshots() if not is_ours(s)}
        new = known - self.rows.keys()
        assert len(new) == 1 or (not new and before == after), (sql, "snapshots", new)
        self.rows.update(dict.fromkeys(new, after))

    def check_all(self):
        """Compares every snapshot by PyIceberg and by Spark; gives what they tell."""
        table, told = self.table, {"snapshots": 0, "ours": 0, "files removed": 0, "carried": 0}
        for snapshot in sorted(table.snapshots(), key=lambda s: s.sequence_number):
            number, told["snapshots"] = snapshot.snapshot_id, told["snapshots"] + 1
            summary = snapshot.summary.additional_properties
            if is_ours(snapshot):
                assert snapshot.summary.operation.value == "replace"
                self.rows[number] = self.rows[snapshot.parent_snapshot_id]
                told["ours"] += 1
                told["carried"] += int(summary.get("added-position-deletes", 0))
            else:
                told["files removed"] += int(summary.get("deleted-data-files", 0))
            rows, context = self.rows[number], (self.kind, snapshot.sequence_number, summary)
            found = table.scan(snapshot_id=number).to_arrow().select(["id", "k", "v", "part"])
            columns = (column.to_pylist() for column in found.columns)
            compared(list(zip(*columns, strict=True)), rows, ("PyIceberg", *context))
            query = f"SELECT id, k, v, part FROM {self.name} VERSION AS OF {number}"
            spark = [tuple(row) for row in self.spark.sql(query).collect()]
            compared(spark, rows, ("Spark", *context))
        left = [str(p) for p in Path(table.location().removeprefix("file://")).rglob(".*.rowmap")]
        assert not left, left
        return told


def main(folder, *cases):
    folder = Path(folder).resolve()
    (folder / "lake").mkdir(parents=True)
    catalog = catalog_of(folder)
    catalog.create_namespace("db")
    spark = session_of(folder)

    def run(case):
        if case != "stream":
            seed = int(case)
            return race.statements(Table(spark, catalog, f"lake.db.t{seed}", seed), seed)
        table = Table(spark, catalog, "lake.db.stream", 0)
        return race.stream(table, spark.readStream.format("iceberg").load(table.name), folder)

    race.main(cases, run)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
