"""Statements of Delta's Spark library on tables that Plait compacts: what every version has.

    python delta_statements.py FOLDER SEED …

Prints a line of JSON for each seed; of `stream`, streaming readers are tried instead of statements.
Needs PySpark with a library of Delta, and Plait.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import statement_race as race
from statement_race import session
from statements import COLUMNS, compared

from plait.table import compact_delta
from plait.table.delta import Delta

JARS = ("io.delta:delta-spark_4.1_2.13:4.2.0",)
# Whether rows are deleted by vectors, and what is done. What UPDATE and MERGE write is in no order.
KINDS = {
    "vectors": (True, ("insert", "delete", "delete")),
    "all by vectors": (True, ("insert", "delete", "update", "merge", "delete_range")),
    "rewrites": (False, ("insert", "delete", "update", "merge", "delete_range", "overwrite")),
}
# A statement is refused if files that it read are not live any more.
REFUSED = ("DELTA_CONCURRENT", "Concurrent")


def session_of():
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    return session(JARS, settings)


class Table:
    """A table, and the rows that each of its versions should have."""

    committer, refused, order = Delta, REFUSED, "ORDER BY k NULLS LAST"

    def __init__(self, spark, path, seed, guards=(True, False)):
        self.spark, self.path, self.name = spark, path, f"delta.`{path}`"
        self.guards = guards
        self.kind = list(KINDS)[seed % len(KINDS)]
        has_vectors, self.acts = KINDS[self.kind]
        self.is_partitioned = seed // len(KINDS) % 2 == 1
        by = "PARTITIONED BY (part)" if self.is_partitioned else ""
        spark.sql(
            f"CREATE TABLE {self.name} ({COLUMNS}) USING delta {by} TBLPROPERTIES "
            f"('delta.enableDeletionVectors' = '{str(has_vectors).lower()}')"
        )
        self.rows = {0: {}}

    def run(self, sql):
        self.spark.sql(sql).collect()

    def compact(self, rng):
        how = {"policy": rng.choice(["full", "full", "overlap"]), "unsorted": "sort"}
        how |= {"target_file_size": rng.choice([None, "4kB"]), "memory_limit": "64MB"}
        how |= {"sort_by": "k", "guard": rng.choice(self.guards), "yes": True}
        return compact_delta(self.path, **how)

    def log(self):
        """The actions of each version."""
        found = {}
        for path in sorted((self.path / "_delta_log").glob("*.json")):
            found[int(path.stem)] = [json.loads(line) for line in path.read_text().splitlines()]
        return found

    def check(self, sql, before, after):
        """What a statement committed: one version, or none if it changed nothing."""
        new = {v for v, actions in self.log().items() if not is_ours(actions)} - self.rows.keys()
        assert len(new) == 1 or (not new and before == after), (sql, "versions", new)
        self.rows.update(dict.fromkeys(new, after))

    def check_all(self):
        """Compares every version; gives what they tell."""
        told = {"versions": 0, "ours": 0, "files removed": 0, "carried": 0}
        for version, actions in self.log().items():
            added = {a["add"]["path"]: a["add"] for a in actions if "add" in a}
            if is_ours(actions):
                self.rows[version] = self.rows[version - 1]
                told["ours"] += 1
                vectors = (add.get("deletionVector") for add in added.values())
                told["carried"] += sum(vector["cardinality"] for vector in vectors if vector)
            else:
                removed = [a["remove"]["path"] for a in actions if "remove" in a]
                told["files removed"] += len(set(removed) - added.keys())
            told["versions"] += 1
            query = f"SELECT id, k, v, part FROM {self.name} VERSION AS OF {version}"
            found = [tuple(row) for row in self.spark.sql(query).collect()]
            compared(found, self.rows[version], (self.kind, version, "Spark"))
        left = list(map(str, self.path.rglob(".*.rowmap")))
        assert not left, left
        return told


def is_ours(actions):
    return any("plait.task" in action.get("commitInfo", {}) for action in actions)


def main(folder, *cases):
    folder = Path(folder).resolve()
    folder.mkdir(parents=True)
    spark = session_of()

    def run(case):
        if case != "stream":
            return race.statements(Table(spark, folder / f"t{case}", int(case)), int(case))
        # Removals that say that data changed stop streaming readers.
        table = Table(spark, folder / "stream", 0, guards=(False,))
        reader = spark.readStream.format("delta").load(str(table.path))
        return race.stream(table, reader, folder)

    race.main(cases, run)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
