"""A full join of two tables of plain rows, and its difference to another: what a join must say."""

from __future__ import annotations


class Oracle:
    """Left rows by primary key, right rows by key; keys and values are plain Python values.

    A left row is `(foreign key, payload)`, a right row a value. Sequence numbers, if there are any,
    decide which change counts; a deleted key keeps its number.
    """

    def __init__(self, how: str):
        self.how = how
        self.left: dict = {}
        self.right: dict = {}
        self.left_seq: dict = {}
        self.right_seq: dict = {}
        self.before: dict = {}

    def apply(self, events) -> list[tuple]:
        """Applies `(side, key, value or None, seq or None)`, and gives the changes of the join."""
        for side, key, value, seq in events:
            rows = self.left if side == "left" else self.right
            newest = self.left_seq if side == "left" else self.right_seq
            if seq is not None:
                if newest.get(key, seq) > seq:
                    continue
                newest[key] = seq
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        after = self.table()
        changes = []
        for key in self.before.keys() | after.keys():
            old, new = self.before.get(key), after.get(key)
            if old != new:
                op = "insert" if old is None else "delete" if new is None else "update"
                changes.append((op, key, new))
        self.before = after
        return sorted(changes, key=repr)

    def table(self) -> dict:
        """The joined table by primary key: `(foreign key, payload, right value)`."""
        joined = {}
        for key, (foreign, payload) in self.left.items():
            right = None if foreign is None else self.right.get(foreign)
            if right is not None or self.how == "left":
                joined[key] = (foreign, payload, right)
        return joined
