"""Tables that Iceberg's Spark runtime makes and changes: columns, types, partitions, places.

Each has the columns `id`, `k`, `v` and `part` at first, and is ordered by `k`.
"""

from __future__ import annotations

MERGE_ON_READ = (
    "'format-version' = '2', 'write.delete.mode' = 'merge-on-read', "
    "'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read'"
)
CREATE = "CREATE TABLE {t} (id bigint, k int, v string, part int) USING iceberg"
ORDERED = "ALTER TABLE {t} WRITE LOCALLY ORDERED BY k"
GONE = "DELETE FROM {t} WHERE id % 7 = 3"


def insert(begin, columns="id, CAST(id * 7 % 50 AS INT), concat('v', id), CAST(id % 2 AS INT)"):
    return f"INSERT INTO {{t}} SELECT {columns} FROM range({begin}, {begin + 100})"


# The files that are laid next to the table, without field ids.
ADDED = "CALL lake.system.add_files(table => '{name}', source_table => 'parquet.`{files}`')"
TWO = [insert(0), insert(100), GONE]
# Statements, the options of the compaction, and how many files stay at most; what is left alone is
# said in `LEFT`.
CASES = {
    "renamed key": ([*TWO, "ALTER TABLE {t} RENAME COLUMN k TO key", insert(200), GONE], {}, 1),
    "renamed key, by name": (
        [*TWO, "ALTER TABLE {t} RENAME COLUMN k TO key", insert(200)],
        {"sort_by": "key"},
        1,
    ),
    "names exchanged": (
        [
            *TWO,
            "ALTER TABLE {t} RENAME COLUMN k TO x",
            "ALTER TABLE {t} RENAME COLUMN part TO k",
            "ALTER TABLE {t} RENAME COLUMN x TO part",
            insert(200),
            "DELETE FROM {t} WHERE k = 1 AND id % 3 = 0",
        ],
        {},
        2,
    ),
    "column dropped and added with another type": (
        [
            *TWO,
            "ALTER TABLE {t} DROP COLUMN v",
            "ALTER TABLE {t} ADD COLUMN v bigint AFTER k",
            insert(200, "id, CAST(id * 7 % 50 AS INT), id, 1"),
            GONE,
        ],
        {},
        2,
    ),
    "key dropped and added with another type": (
        [
            *TWO,
            "ALTER TABLE {t} WRITE UNORDERED",
            "ALTER TABLE {t} DROP COLUMN k",
            "ALTER TABLE {t} ADD COLUMN k string AFTER id",
            ORDERED,
            insert(200, "id, concat('k', id * 7 % 50), 'v', 1"),
        ],
        {},
        3,
    ),
    "files without ids, and a renamed key": (
        [
            ADDED,
            "ALTER TABLE {t} RENAME COLUMN k TO key",
            ADDED,
            insert(200),
            insert(300),
            GONE,
        ],
        {},
        # Those without ids, and the others.
        2,
    ),
    "files without ids, and names exchanged": (
        [
            ADDED,
            "ALTER TABLE {t} RENAME COLUMN k TO x",
            "ALTER TABLE {t} RENAME COLUMN part TO k",
            "ALTER TABLE {t} RENAME COLUMN x TO part",
            insert(200),
            insert(300),
            GONE,
        ],
        {"sort_by": "part nulls first, id"},
        2,
    ),
    "wider types": (
        [
            "ALTER TABLE {t} ADD COLUMNS (f float, d decimal(5, 2))",
            insert(0, "id, CAST(id % 50 AS INT), 'v', 1, id / 3, CAST(id / 4 AS DECIMAL(5, 2))"),
            "ALTER TABLE {t} ALTER COLUMN k TYPE bigint",
            "ALTER TABLE {t} ALTER COLUMN f TYPE double",
            "ALTER TABLE {t} ALTER COLUMN d TYPE decimal(12, 2)",
            insert(100, "id, id % 50 + 5000000000, 'v', 1, id / 3, CAST(id AS DECIMAL(12, 2))"),
            GONE,
        ],
        {},
        1,
    ),
    "fields of a struct": (
        [
            "ALTER TABLE {t} ADD COLUMN s struct<a: int, b: string>",
            insert(0, "id, 1, 'v', 1, named_struct('a', CAST(id % 50 AS INT), 'b', 'b')"),
            "ALTER TABLE {t} RENAME COLUMN s.a TO c",
            "ALTER TABLE {t} DROP COLUMN s.b",
            "ALTER TABLE {t} ADD COLUMN s.b bigint",
            "ALTER TABLE {t} WRITE LOCALLY ORDERED BY s.c",
            insert(100, "id, 1, 'v', 1, named_struct('c', CAST(id % 50 AS INT), 'b', id)"),
            GONE,
        ],
        {"unsorted": "sort"},
        2,
    ),
    "columns in another order": (
        [
            *TWO,
            "ALTER TABLE {t} ALTER COLUMN v FIRST",
            "ALTER TABLE {t} ALTER COLUMN k AFTER part",
            insert(200, "concat('v', id), id, 1, CAST(id * 7 % 50 AS INT)"),
        ],
        {},
        1,
    ),
    "lists and maps": (
        [
            "ALTER TABLE {t} ADD COLUMNS (l array<struct<x: int>>, m map<string, int>)",
            insert(0, "id, 1, 'v', 1, array(named_struct('x', 1)), map('a', 2)"),
            "ALTER TABLE {t} ADD COLUMN l.element.y string",
            "ALTER TABLE {t} ALTER COLUMN m.value TYPE bigint",
            insert(
                100, "id, 1, 'v', 1, array(named_struct('x', 1, 'y', 'y')), map('a', 5000000000)"
            ),
            GONE,
        ],
        {},
        1,
    ),
    "several partition specs": (
        [
            *TWO,
            "ALTER TABLE {t} ADD PARTITION FIELD part",
            insert(200),
            insert(300),
            "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)",
            insert(400),
            insert(500),
            GONE,
            "ALTER TABLE {t} DROP PARTITION FIELD part",
            insert(600),
            insert(700),
            "DELETE FROM {t} WHERE id % 11 = 4",
        ],
        {},
        # Of four specs: one, two, four and two partitions.
        9,
    ),
    "a partition column that was renamed": (
        [
            "ALTER TABLE {t} ADD PARTITION FIELD part",
            *TWO,
            "ALTER TABLE {t} RENAME COLUMN part TO half",
            insert(200),
            GONE,
        ],
        {},
        2,
    ),
    # Without deletes: Iceberg 1.12.0 cannot read those of such files itself.
    "a partition column that was dropped": (
        [
            "ALTER TABLE {t} ADD PARTITION FIELD part",
            insert(0),
            insert(100),
            "ALTER TABLE {t} DROP PARTITION FIELD part",
            "ALTER TABLE {t} DROP COLUMN part",
            insert(200, "id, CAST(id * 7 % 50 AS INT), 'v'"),
            insert(300, "id, CAST(id * 7 % 50 AS INT), 'v'"),
        ],
        {},
        # Their partitions have no value by then, for Iceberg, too.
        2,
    ),
    "a partition field that was replaced": (
        [
            "ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)",
            *TWO,
            "ALTER TABLE {t} REPLACE PARTITION FIELD bucket(4, id) WITH truncate(1000, id)",
            insert(200),
            insert(300),
            GONE,
        ],
        {},
        5,
    ),
    "specs of version 1": (
        [
            "ALTER TABLE {t} ADD PARTITION FIELD part",
            insert(0),
            insert(100),
            "ALTER TABLE {t} DROP PARTITION FIELD part",
            insert(200),
            insert(300),
        ],
        {},
        3,
    ),
    "version 2 since later": (
        [
            "ALTER TABLE {t} ADD PARTITION FIELD part",
            insert(0),
            insert(100),
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ({MERGE_ON_READ})",
            insert(200),
            GONE,
        ],
        {},
        2,
    ),
    "times": (
        [
            "ALTER TABLE {t} ADD COLUMNS (z timestamp, n timestamp_ntz, b binary, y boolean)",
            "ALTER TABLE {t} WRITE LOCALLY ORDERED BY z, n",
            *[
                insert(
                    begin,
                    "id, 1, 'v', 1, timestamp_millis(id * 86400000 % 1000000007), "
                    "CAST(timestamp_millis(id) AS timestamp_ntz), CAST('x' AS BINARY), true",
                )
                for begin in (0, 100)
            ],
            "ALTER TABLE {t} ADD PARTITION FIELD days(z)",
            insert(
                200,
                "id, 1, 'v', 1, timestamp_millis(id % 2 * 86400000), "
                "CAST(timestamp_millis(id) AS timestamp_ntz), CAST('x' AS BINARY), true",
            ),
            GONE,
        ],
        {},
        3,
    ),
    "an order by a transform": (
        [*TWO, "ALTER TABLE {t} WRITE LOCALLY ORDERED BY bucket(4, id), k", insert(200)],
        {"sort_by": "k", "unsorted": "sort"},
        1,
    ),
    "some files of ORC": (
        [
            insert(0),
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'orc')",
            insert(100),
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'parquet')",
            insert(200),
            GONE,
        ],
        {},
        2,
    ),
    "deletes in Avro": (
        [
            insert(0),
            insert(100),
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.format.default' = 'avro')",
            "DELETE FROM {t} WHERE id = 5",
            insert(200),
            insert(300),
        ],
        {},
        3,
    ),
    "folders by hash": (
        [
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.object-storage.enabled' = 'true')",
            "ALTER TABLE {t} ADD PARTITION FIELD part",
            *TWO,
        ],
        {},
        2,
    ),
    "manifests rewritten": (
        [
            *TWO,
            "CALL lake.system.rewrite_manifests('{name}')",
            (
                "CALL lake.system.rewrite_position_delete_files(table => '{name}', "
                "options => map('rewrite-all', 'true'))"
            ),
            insert(200),
            GONE,
        ],
        {},
        1,
    ),
    "a branch and a tag": (
        [
            *TWO,
            "ALTER TABLE {t} CREATE TAG before",
            "ALTER TABLE {t} CREATE BRANCH other",
            "DELETE FROM {t}.branch_other WHERE id % 2 = 0",
            insert(200),
            GONE,
        ],
        {},
        1,
    ),
}
LEFT = {
    "key dropped and added with another type": "is another column in the file, of the same name",
    # Their `part` is `k` by now, for Spark, too: its rows are in no order.
    "files without ids, and names exchanged": "goes backwards",
    "some files of ORC": "is no Parquet file but ORC",
    "deletes in Avro": "has rows that no Parquet file deletes",
}
VERSION_1 = ("specs of version 1", "version 2 since later")
