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


class DuckOracle:
    """The same by DuckDB: from all changes so far, its join, and the difference to the one before."""

    NEWEST = """
        select * from (
            select *, row_number() over (
                partition by key order by coalesce(seq, 0) desc, number desc) as place
            from log where side = '{side}')
        where place = 1 and not is_deleted"""
    DIFFERENCE = """
        select case when a.id is null then 'insert' when b.id is null then 'delete' else 'update' end,
            coalesce(b.id, a.id), b.fk, b.payload, b.value
        from before a full join after b on a.id = b.id
        where a.id is null or b.id is null
            or (a.fk, a.payload, a.value) is distinct from (b.fk, b.payload, b.value)"""

    def __init__(self, how: str):
        import duckdb

        self.connection = duckdb.connect()
        self.connection.execute("set threads = 1")
        self.connection.execute("create sequence numbers")
        self.connection.execute("""create table log (number bigint default nextval('numbers'),
            side text, key text, is_deleted boolean, fk text, payload text, value text, seq bigint)""")
        left, right = (self.NEWEST.format(side=side) for side in ("left", "right"))
        self.connection.execute(f"""create view joined as
            select l.key as id, l.fk, l.payload, r.value
            from ({left}) l {how} join ({right}) r on l.fk = r.key""")
        self.connection.execute("create table before as from joined")

    def apply(self, events) -> list[tuple]:
        """As for `Oracle`."""
        rows = []
        for side, key, value, seq in events:
            fk, payload = (value or (None, None)) if side == "left" else (None, None)
            right = value if side == "right" else None
            rows.append((side, key, value is None, fk, payload, right, seq))
        self.connection.executemany(
            """insert into log (side, key, is_deleted, fk, payload, value, seq)
            values (?, ?, ?, ?, ?, ?, ?)""",
            rows,
        )
        self.connection.execute("create or replace table after as from joined")
        found = self.connection.execute(self.DIFFERENCE).fetchall()
        self.connection.execute("drop table before; alter table after rename to before")
        changes = [(op, key, None if op == "delete" else tuple(row)) for op, key, *row in found]
        return sorted(changes, key=repr)

    def table(self) -> dict:
        """As for `Oracle`."""
        rows = self.connection.execute("from before").fetchall()
        return {key: tuple(row) for key, *row in rows}
