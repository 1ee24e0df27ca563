"""Random statements of SQL, and the rows that a table should have after each.

Tables have the columns `id` (no two rows have one), `k` (the order; may be null), `v` and `part`.
Imported in the interpreter that has a Spark for the format, see `statement_race`.
"""

from __future__ import annotations

import random
from collections import Counter

KEYS = 97
COLUMNS = "id bigint, k int, v string, part int"


class Model:
    """The rows that a table should have: `k`, `v` and `part` by `id`; and what is done to them."""

    def __init__(self, name, seed, acts, order=""):
        """Takes what is done; and the order of inserted rows, if the table does not keep one."""
        self.name, self.rng, self.acts, self.order = name, random.Random(seed), acts, order
        self.rows, self.next, self.count = {}, 0, 0

    def statement(self):
        """A statement, and the rows after it."""
        self.count += 1
        act = self.rng.choice(self.acts) if self.rows else "insert"
        return act, *getattr(self, act)()

    def key(self):
        """Expression of a key by the id, and what it gives."""
        times, gap = self.rng.choice([1, 31, 7919]), self.rng.choice([11, 10**9])
        sql = f"if(id % {gap} = 5, NULL, CAST(id * {times} % {KEYS} AS INT))"
        return sql, lambda i: None if i % gap == 5 else i * times % KEYS

    def source(self, ids, text):
        """New rows as a query, and as they are."""
        sql, key = self.key()
        query = (
            f"SELECT id, {sql} AS k, concat('{text}', id) AS v, CAST(id % 3 AS INT) AS part "
            f"FROM range({ids.start}, {ids.stop}, {ids.step})"
        )
        return query, {i: (key(i), f"{text}{i}", i % 3) for i in ids}

    def condition(self):
        """A condition that no bounds of a file decide, and what it is of an id and a key."""
        share, at = self.rng.choice([3, 7, 19]), self.rng.randrange(KEYS)
        rest, wide = self.rng.randrange(share), at + self.rng.choice([3, 20, 60])
        return self.rng.choice(
            [
                (f"id % {share} = {rest}", lambda i, k: i % share == rest),
                (
                    f"k BETWEEN {at} AND {wide} AND id % 3 > 0",
                    lambda i, k: k is not None and at <= k <= wide and i % 3 > 0,
                ),
                (
                    f"k % {share} = {rest} AND id % 2 = 1",
                    lambda i, k: k is not None and k % share == rest and i % 2 == 1,
                ),
                (
                    f"k IS NULL AND id % {share} = {rest}",
                    lambda i, k: k is None and i % share == rest,
                ),
            ]
        )

    def insert(self):
        ids = range(self.next, self.next + self.rng.choice([1, 3, 40, 400]))
        self.next = ids.stop
        query, new = self.source(ids, "a")
        return f"INSERT INTO {self.name} {query} {self.order}", self.rows | new

    def delete(self):
        sql, matches = self.condition()
        left = {i: row for i, row in self.rows.items() if not matches(i, row[0])}
        return f"DELETE FROM {self.name} WHERE {sql}", left

    def delete_range(self):
        """May be all rows of a file, which is then removed as a whole."""
        at, wide = self.rng.randrange(KEYS), self.rng.choice([0, 10, KEYS])
        left = {
            i: row
            for i, row in self.rows.items()
            if row[0] is None or not at <= row[0] <= at + wide
        }
        return f"DELETE FROM {self.name} WHERE k BETWEEN {at} AND {at + wide}", left

    def update(self):
        sql, matches = self.condition()
        text, by = f"u{self.count}", self.rng.choice([0, 1, 50])
        changed = {
            i: (None if row[0] is None else row[0] + by, text, row[2])
            for i, row in self.rows.items()
            if matches(i, row[0])
        }
        return f"UPDATE {self.name} SET v = '{text}', k = k + {by} WHERE {sql}", self.rows | changed

    def merge(self):
        """Deletes, changes and adds rows of a range of ids, and changes some of the others."""
        first, step = self.rng.randrange(self.next), self.rng.choice([1, 3, 7])
        ids = range(first, first + step * self.rng.choice([2, 60, 300]), step)
        self.next = max(self.next, ids.stop)
        query, new = self.source(ids, f"m{self.count}-")
        others = self.rng.randrange(40)
        sql = (
            f"MERGE INTO {self.name} t USING ({query}) s ON t.id = s.id "
            "WHEN MATCHED AND s.id % 4 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT * "
            f"WHEN NOT MATCHED BY SOURCE AND t.id % 40 = {others} THEN UPDATE SET v = 'other'"
        )
        rows = {}
        for i, (k, v, part) in self.rows.items():
            if i in new and i % 4 == 0:
                continue
            is_other = i not in new and i % 40 == others
            rows[i] = new.get(i, (k, "other" if is_other else v, part))
        return sql, rows | {i: row for i, row in new.items() if i not in self.rows}

    def overwrite(self):
        ids = range(self.next, self.next + 200)
        self.next = ids.stop
        query, new = self.source(ids, "o")
        return f"INSERT OVERWRITE {self.name} {query}", new


def compared(found, rows, context):
    """Compares rows of a table with those that it should have: one of each id."""
    ids = Counter(row[0] for row in found)
    doubled = [i for i, count in ids.items() if count > 1]
    assert not doubled, (context, "doubled", doubled[:5])
    wrong = [row for row in found if rows.get(row[0]) != tuple(row[1:])]
    lost = [i for i in rows if i not in ids]
    assert not (wrong or lost), (context, "wrong or back", wrong[:5], "lost", lost[:5])
