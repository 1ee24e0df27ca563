"""Tables that Iceberg's Spark runtime makes and changes: columns, types, partitions, places.

    python iceberg_evolved.py FOLDER [CASE …]

Makes each of `iceberg_evolved_cases`, compacts it, and compares the rows that Spark reads before
and after. Prints a line of JSON for each. Needs what `iceberg_statements` needs.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import statement_race as race
from iceberg_evolved_cases import CASES, CREATE, MERGE_ON_READ, ORDERED, VERSION_1
from iceberg_statements import catalog_of, session_of

from plait.table import compact_iceberg


def rows_of(spark, query):
    return Counter(map(repr, spark.sql(query).collect()))


def add_file(folder):
    """A sorted file without field ids, for `add_files`: alone in its folder."""
    number = len(list(folder.glob("*")))
    (folder / f"{number}").mkdir(parents=True)
    ids = list(range(1000 * (number + 1), 1000 * (number + 1) + 50))
    columns = {"id": pa.array(ids), "k": pa.array(range(50), pa.int32())}
    columns |= {"v": [f"v{i}" for i in ids], "part": pa.array([i % 2 for i in ids], pa.int32())}
    pq.write_table(pa.table(columns), folder / f"{number}" / "part.parquet")
    return folder / f"{number}"


def tried(spark, catalog, folder, case):
    statements, how, files_max = CASES[case]
    number = list(CASES).index(case)
    name = f"db.e{number}"
    said = "'format-version' = '1'" if case in VERSION_1 else MERGE_ON_READ
    for sql in (f"{CREATE} TBLPROPERTIES ({said})", ORDERED, *statements):
        files = add_file(folder / "added" / f"{number}") if "{files}" in sql else ""
        spark.sql(sql.format(t=f"lake.{name}", name=name, files=files)).collect()
    refs = [row.name for row in spark.sql(f"SELECT name FROM lake.{name}.refs").collect()]
    queries = [f"SELECT * FROM lake.{name}"]
    queries += [f"SELECT * FROM lake.{name} VERSION AS OF '{r}'" for r in refs if r != "main"]
    before = [rows_of(spark, query) for query in queries]

    def compact():
        return compact_iceberg(catalog, name, policy="full", verify="content", yes=True, **how)

    report = compact()
    assert [rows_of(spark, query) for query in queries] == before, "Spark reads other rows"
    contents = [
        row.content for row in spark.sql(f"SELECT content FROM lake.{name}.files").collect()
    ]
    again = compact()
    return {
        "groups": len(report.groups),
        "files": contents.count(0),
        "files_max": files_max,
        "delete_files": len(contents) - contents.count(0),
        "skipped": [skipped.why for skipped in report.skipped],
        "again": len(again.groups),
    }


def main(folder, *cases):
    folder = Path(folder).resolve()
    (folder / "lake").mkdir(parents=True)
    catalog = catalog_of(folder)
    catalog.create_namespace("db")
    spark = session_of(folder)
    race.main(cases or CASES, lambda case: tried(spark, catalog, folder, case))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
