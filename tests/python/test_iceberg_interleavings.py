"""Compactions of Iceberg tables with others at every step: no row is lost, doubled, or comes back.

PyIceberg appends, deletes, overwrites and rewrites; delete files, which it does not write, are those
of `iceberg_deletes`. What the table holds is compared with a model, by PyIceberg where it plans the
table, and by the rules of the specification, row by row, where it does not (equality deletes).
`PLAIT_INTERLEAVINGS` says how many seeds are tried.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait._plan import Plan
from plait.table import compact_iceberg
from plait.table.iceberg import Iceberg

from .conftest import load

pytest.importorskip("pyiceberg")
deletes = load("iceberg_deletes")
interleavings = load("interleavings")
pytestmark = [
    pytest.mark.local,
    # PyIceberg does not close its connections, and says so of deletes that match nothing.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

NAME = "db.events"
SCHEMA = pa.schema([("k", pa.int64()), ("id", pa.int64())])
KEY = pa.schema([pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "1"})])
KINDS = ("v1", "v2", "positions", "equality", "mixed")
# What a rival may do to a table of each kind: PyIceberg plans no table with equality deletes.
ACTS = {
    "v1": ("append", "delete", "overwrite", "rewrite"),
    "v2": ("append", "delete", "overwrite", "rewrite"),
    "positions": ("append", "delete_positions", "delete_positions", "delete"),
    "equality": ("append", "delete_values", "delete_values"),
    "mixed": ("append", "delete_values", "delete_positions", "delete_positions"),
}
# What throws nothing away that is merged meanwhile.
CARRIED = {"append", "delete_values", "delete_positions"}
BY_VALUE = ("equality", "mixed")


def steps():
    """Every step of a compaction, and of its commit."""
    from pyiceberg.table import Transaction

    from plait.table import iceberg_snapshot

    return [
        (Iceberg, "survey"),
        (Plan, "execute"),
        (Iceberg, "commit"),
        (Iceberg, "_load"),
        (Iceberg, "_carried"),
        (iceberg_snapshot, "commit_replacement"),
        (Transaction, "commit_transaction"),
    ]


class Rival:
    """A writer of the table, and what its rows should be: the key of each row, by its id."""

    def __init__(self, catalog, kind, seed):
        self.catalog, self.kind, self.rng = catalog, kind, random.Random(seed)
        self.rows, self.next = {}, 0
        self.is_busy, self.left = False, self.rng.choice([1, 2, 4])
        self.done = []
        version = "1" if kind == "v1" else "2"
        catalog.create_table(NAME, SCHEMA, properties={"format-version": version})

    @property
    def table(self):
        return self.catalog.load_table(NAME)

    def made(self, size):
        keys = sorted(self.rng.randrange(60) for _ in range(size))
        ids = list(range(self.next, self.next + size))
        self.next += size
        return dict(zip(ids, keys, strict=True))

    @staticmethod
    def arrow(rows):
        columns = {"k": list(rows.values()), "id": list(rows)}
        return pa.table(columns, schema=SCHEMA)

    def append(self, size=None):
        new = self.made(size or self.rng.choice([1, 5, 200]))
        self.table.append(self.arrow(new))
        self.rows |= new

    def keys(self):
        return self.rng.sample(range(60), self.rng.choice([1, 4, 20]))

    def delete(self):
        keys = self.keys()
        self.table.delete(f"k in ({', '.join(map(str, keys))})")
        self.rows = {i: k for i, k in self.rows.items() if k not in keys}

    def overwrite(self):
        new = self.made(3)
        if self.rng.random() < 0.5:
            self.table.overwrite(self.arrow(new))
            self.rows = new
            return
        self.table.overwrite(self.arrow(new), "k < 30")
        self.rows = {i: k for i, k in self.rows.items() if k >= 30} | new

    def rewrite(self):
        """All rows in one file: a compaction as PyIceberg can do it."""
        table = self.table
        table.overwrite(table.scan().to_arrow().sort_by("k"))

    def delete_positions(self):
        table = self.table
        gone = {}
        for path in deletes.data_files(table):
            if self.rng.random() < 0.6:
                ids = pq.ParquetFile(path.removeprefix("file://")).read()["id"].to_pylist()
                here = [row for row, one in enumerate(ids) if one in self.rows]
                gone[path] = self.rng.sample(here, self.rng.randint(0, len(here) // 2))
                for row in gone[path]:
                    del self.rows[ids[row]]
        if any(gone.values()):
            deletes.delete_rows(table, gone)

    def delete_values(self):
        keys = self.keys()
        deletes.delete_values(self.table, pa.table({"k": keys}, schema=KEY), [1])
        self.rows = {i: k for i, k in self.rows.items() if k not in keys}

    def maybe(self, share):
        if self.is_busy or self.left == 0 or self.rng.random() >= share:
            return
        self.is_busy, self.left = True, self.left - 1
        try:
            act = self.rng.choice(ACTS[self.kind])
            getattr(self, act)()
            self.done.append(act)
        finally:
            self.is_busy = False

    def check(self, context):
        """The table has the rows of the model, once each."""
        table = self.table
        found = by_the_rules(table) if self.kind in BY_VALUE else table.scan().to_arrow()
        ids, keys = found["id"].to_pylist(), found["k"].to_pylist()
        expected = sorted(self.rows.items())
        assert sorted(zip(ids, keys, strict=True)) == expected, context
        ours = pa.table(plait.read(deletes.hinted(table), sort_by="k", missing_keys="null"))
        assert sorted(ours["id"].to_pylist()) == sorted(self.rows), context


def table_folder(table):
    return Path(table.location().removeprefix("file://"))


def by_the_rules(table):
    """The rows of a table with equality deletes, which PyIceberg does not plan.

    A delete by value reaches rows of lower sequence numbers, one by position equal ones, too.
    """
    found, gone, positions = [], {}, set()
    for delete in deletes.delete_entries(table):
        rows = pq.ParquetFile(delete.data_file.file_path.removeprefix("file://")).read()
        if delete.data_file.content == deletes.DataFileContent.POSITION_DELETES:
            named = zip(rows["file_path"].to_pylist(), rows["pos"].to_pylist(), strict=True)
            positions |= {(*one, delete.sequence_number) for one in named}
            continue
        for key in rows["k"].to_pylist():
            gone[key] = max(gone.get(key, 0), delete.sequence_number)
    for manifest in table.current_snapshot().manifests(table.io):
        if manifest.content != deletes.ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            name, sequence = entry.data_file.file_path, entry.sequence_number
            listed = {row for path, row, at in positions if path == name and at >= sequence}
            rows = pq.ParquetFile(name.removeprefix("file://")).read().select(["k", "id"])
            keys = enumerate(rows["k"].to_pylist())
            stays = [gone.get(k, 0) <= sequence and row not in listed for row, k in keys]
            found.append(rows.filter(pa.array(stays, pa.bool_())))
    return pa.concat_tables(found) if found else SCHEMA.empty_table()


@pytest.mark.parametrize("seed", interleavings.SEEDS)
def test_no_row_is_lost_or_doubled_or_comes_back(seed, catalog, monkeypatch):
    kind = KINDS[seed % len(KINDS)]
    rival = Rival(catalog, kind, seed)
    for _ in range(rival.rng.randint(2, 4)):
        rival.append()
    if kind in ("positions", *BY_VALUE) and rival.rng.random() < 0.5:
        rival.maybe(1)
    share = rival.rng.choice([0.1, 0.3, 1])
    how = {"sort_by": "k", "policy": rival.rng.choice(["full", "overlap"])}
    # What PyIceberg rewrites is not sorted.
    how["unsorted"] = rival.rng.choice(["sort", "error"])
    interleavings.disturb(monkeypatch, steps(), lambda: rival.maybe(share))
    report = compact_iceberg(catalog, NAME, target_file_size=None, **how)
    monkeypatch.undo()
    context = (kind, seed, rival.done, str(report))
    rival.check(context)
    if set(rival.done) <= CARRIED:
        assert report.lost == 0, context
    assert not list(table_folder(rival.table).rglob(".*.rowmap")), context
    compact_iceberg(catalog, NAME, target_file_size=None, **how)
    rival.check(context)
