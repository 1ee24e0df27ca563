"""Statements of Delta's Spark library on tables with mapped columns that Plait compacts.

    python delta_mapped_statements.py FOLDER CASE …

A case is a mode, `name`, `id` or `upgraded`, and after it whether rows are deleted by vectors and
whether the table is partitioned: `name-vectors-parts`. Rows and their count by conditions are
compared before and after each compaction, and `plait.scan` with Spark where no rows lie under a
vector. Prints a line of JSON for each case. Needs PySpark with a library of Delta, and Plait.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import statement_race as race
from delta_statements import session_of

import plait
from plait.table import compact_delta

ID, NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"


class Table:
    """A table, and what was compared."""

    def __init__(self, spark, path, case):
        self.spark, self.path, self.name = spark, path, f"delta.`{path}`"
        self.mode, *words = case.split("-")
        self.has_vectors, self.is_partitioned = "vectors" in words, "parts" in words
        self.told = {"case": case, "groups": 0, "scans": 0, "deleted": 0, "checks": 0}

    def run(self, sql):
        return self.spark.sql(sql.format(t=self.name)).collect()

    def rows(self, where):
        found = self.run(f"SELECT to_json(struct(*)) FROM {{t}} WHERE {where}")
        return sorted(row[0] for row in found)

    def log(self):
        return [
            json.loads(line)
            for path in sorted((self.path / "_delta_log").glob("*.json"))
            for line in path.read_text().splitlines()
        ]

    def live(self):
        found = {}
        for action in self.log():
            if "remove" in action:
                found.pop(action["remove"]["path"], None)
            elif "add" in action:
                found[action["add"]["path"]] = action["add"]
        return found

    def compact(self, sort_by, *conditions):
        """Compacts; the same rows are there, in files with the names and ids of the table."""
        conditions = ("true", *conditions)
        before = [self.rows(where) for where in conditions]
        assert all(before), conditions
        report = compact_delta(str(self.path), sort_by=sort_by, policy="full", unsorted="sort")
        self.told["groups"] += len(report.groups)
        assert report.groups and not report.skipped, report
        assert [self.rows(where) for where in conditions] == before, conditions
        self.told["checks"] += len(conditions)
        self.check_files()
        self.scan()

    def check_files(self):
        """Files have no field whose name and id are not those of the schema."""
        schema = [a["metaData"]["schemaString"] for a in self.log() if "metaData" in a][-1]
        known = {f["metadata"][NAME]: f["metadata"][ID] for f in json.loads(schema)["fields"]}
        for path, add in self.live().items():
            self.told["deleted"] += (add.get("deletionVector") or {}).get("cardinality", 0)
            for field in pq.read_schema(self.path / path):
                id_ = (field.metadata or {}).get(b"PARQUET:field_id")
                if field.name in known and self.mode != "upgraded":
                    assert id_ is not None and int(id_) == known[field.name], (path, field)
            if "plait" in json.dumps(add.get("tags") or {}):
                names = json.loads(add["stats"])["nullCount"].keys()
                assert names <= known.keys(), (names, known)

    def scan(self):
        if any("deletionVector" in add for add in self.live().values()) or self.mode == "upgraded":
            return
        found = pa.table(plait.scan(str(self.path))).to_pylist()
        spark = [row.asDict(recursive=True) for row in self.run("SELECT * FROM {t}")]
        for row in (*found, *spark):
            if row.get("at") is not None:
                row["at"] = row["at"].timestamp()
        text = [sorted(json.dumps(row, sort_keys=True) for row in rows) for rows in (found, spark)]
        assert text[0] == text[1], text
        self.told["scans"] += 1


def story(spark, path, case):
    table = Table(spark, path, case)
    mode = "" if table.mode == "upgraded" else f"'delta.columnMapping.mode' = '{table.mode}', "
    by = "PARTITIONED BY (part)" if table.is_partitioned else ""
    table.run(
        "CREATE TABLE {t} (k BIGINT, v STRING, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<z: INT>>, "
        f"at TIMESTAMP, part STRING) USING delta {by} TBLPROPERTIES ({mode}"
        f"'delta.enableDeletionVectors' = '{str(table.has_vectors).lower()}')"
    )

    def insert(start, columns="k, v, s, l, at, part"):
        of = {
            "k": f"id + {start}",
            "v": "concat('v', id)",
            "s": "named_struct('x', int(id), 'y', 'y')",
            "l": "array(named_struct('z', int(id)))",
            "at": "timestamp'2024-05-01 01:02:03.456789' + make_dt_interval(0, 0, 0, id)",
            "part": "if(id % 3 = 0, null, concat('p', id % 3))",
            "w": "id * 10",
        }
        chosen = ", ".join(of[name.split()[-1]] for name in columns.split(", "))
        names = ", ".join(name.split()[0] for name in columns.split(", "))
        table.run(f"INSERT INTO {{t}} ({names}) SELECT {chosen} FROM range(0, 60, 1, 1)")

    for start in (0, 20, 40):
        insert(start)
    if table.mode == "upgraded":
        table.run(
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
            "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
        )
    table.compact("k", "k > 70", "s.x = 3", "v = 'v7'")
    insert(10)
    table.run("ALTER TABLE {t} RENAME COLUMN k TO key")
    table.run("ALTER TABLE {t} RENAME COLUMN s.x TO xx")
    table.run("ALTER TABLE {t} RENAME COLUMN part TO day")
    table.run("DELETE FROM {t} WHERE key % 10 = 4")
    columns = "key k, v, s, l, at, day part"
    insert(30, columns)
    where = "key > 70", "s.xx = 3", "v = 'v7'", "day IS NULL", "day = 'p1'"
    table.compact("key", *where)
    table.run("ALTER TABLE {t} DROP COLUMN v")
    table.run("ALTER TABLE {t} ADD COLUMN (v BIGINT, w BIGINT)")
    insert(50, "key k, v w, s, l, at, day part, w")
    table.compact("s.xx, key", "v IS NULL", "v = 70", "w = 70", "key = 55")
    table.run("DELETE FROM {t} WHERE w > 500")
    table.run("UPDATE {t} SET v = -1 WHERE key = 61")
    insert(60, "key k, v w, s, l, at, day part, w")
    table.compact("-key nulls first, v", "v IS NULL", "v = -1", "w = 70", "key = 61")
    # A checkpoint of Plait, or of Spark, and statements after it.
    while len(list((path / "_delta_log").glob("*.checkpoint.parquet"))) < 2:
        insert(70, "key k, v w, s, l, at, day part, w")
        table.compact("key", "v = -1", "day = 'p2'")
    table.run("OPTIMIZE {t}")
    assert table.rows("v = -1")
    return table.told


def main(folder, *cases):
    folder = Path(folder).resolve()
    folder.mkdir(parents=True)
    spark = session_of()
    race.main(cases, lambda case: story(spark, folder / case, case))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
