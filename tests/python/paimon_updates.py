"""The merge engines of Apache Paimon and ours: random histories, one result.

    python -m venv peers && peers/bin/pip install pypaimon
    PYTHONPATH=python peers/bin/python tests/python/paimon_updates.py [HISTORIES]

Run by hand: pypaimon is no dependency of the tests. Each history is some commits of a table with
primary keys, read by pypaimon, and the same batches merged by `plait.merge_streams`. pypaimon has no
sequence groups and reads no maps in such tables (`ArrowTypeError`), so these are compared with the
model of `update_model.py` alone.
"""

from __future__ import annotations

import random
import sys
import tempfile

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

import plait

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("n", pa.int64()),
        ("a", pa.string()),
        ("b", pa.string()),
        ("x", pa.float64()),
        ("yes", pa.bool_()),
        ("other", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("once", pa.list_(pa.int32())),
    ]
)
NAMES = {
    "first": "first_value",
    "last": "last_value",
    "first_non_null": "first_non_null_value",
    "last_non_null": "last_non_null_value",
    "collect_distinct": "collect",
}
FUNCTIONS = [
    {"n": "sum", "a": "max", "b": "min", "x": "sum", "yes": "bool_and", "other": "last"},
    {"n": "product", "a": "first", "b": "first_non_null", "x": "last_non_null", "yes": "bool_or"},
    {"tags": "collect", "once": "collect_distinct"},
]


def paimon(commits, options):
    with tempfile.TemporaryDirectory() as home:
        catalog = CatalogFactory.create({"warehouse": home})
        catalog.create_database("db", ignore_if_exists=False)
        made = Schema.from_pyarrow_schema(
            SCHEMA, primary_keys=["k"], options={"bucket": "1", **options}
        )
        catalog.create_table("db.t", made, ignore_if_exists=False)
        table = catalog.get_table("db.t")
        for rows in commits:
            builder = table.new_batch_write_builder()
            writer, commit = builder.new_write(), builder.new_commit()
            writer.write_arrow(pa.Table.from_pylist(rows, schema=SCHEMA))
            commit.commit(writer.prepare_commit())
            writer.close()
            commit.close()
        reader = table.new_read_builder()
        found = reader.new_read().to_arrow(reader.new_scan().plan().splits())
        return sorted(found.to_pylist(), key=lambda row: row["k"])


def ours(commits, how):
    runs = (sorted(rows, key=lambda row: row["k"]) for rows in commits)
    sources = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in runs]
    return pa.table(plait.merge_streams(sources, sort_by="k", **how)).to_pylist()


def random_commit(rng):
    """Rows of distinct keys, since Paimon merges those of one commit, too."""

    def some(value):
        return value if rng.random() < 0.6 else None

    return [
        {
            "k": key,
            "n": some(rng.randrange(9)),
            "a": some(rng.choice("xyz")),
            "b": some(rng.choice("pqr")),
            "x": some(float(rng.randrange(9))),
            "yes": some(rng.random() < 0.5),
            "other": some(rng.randrange(9)),
            "tags": some(rng.choices("xy", k=rng.randrange(3))),
            "once": some(rng.sample(range(3), rng.randrange(3))),
        }
        for key in rng.sample(range(5), rng.randrange(1, 5))
    ]


def unordered(rows):
    """The rows with the elements that are there once in one order."""
    return [row | {"once": row["once"] and sorted(row["once"])} for row in rows]


def main() -> None:
    histories = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    cases = [({"merge-engine": "partial-update"}, {"on_duplicate": "update"})]
    for functions in FUNCTIONS:
        options = {"merge-engine": "aggregation"}
        for column in SCHEMA.names[1:]:
            # What is not named is the last value that is not null there, the last value here.
            name = functions.get(column, "last")
            options[f"fields.{column}.aggregate-function"] = NAMES.get(name, name)
            if name == "collect_distinct":
                options[f"fields.{column}.distinct"] = "true"
        cases.append((options, {"on_duplicate": "aggregate", "aggregate": functions}))
    for seed in range(histories):
        rng = random.Random(seed)
        commits = [random_commit(rng) for _ in range(rng.randrange(1, 6))]
        for options, how in cases:
            theirs, here = map(unordered, (paimon(commits, options), ours(commits, how)))
            if theirs != here:
                raise SystemExit(f"{how}\n{commits}\npaimon {theirs}\nplait  {here}")
    print(f"{histories} histories of {len(cases)} engines: no difference")


if __name__ == "__main__":
    main()
