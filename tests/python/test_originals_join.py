"""The tables of the foreign-key join, written from its description, and orders of messages.

A row of a table is what both sides have, one change, and what comes of it. Left rows are `fk` and
payload, right rows a value. The description says what is sent and what is emitted if all messages
of a change have arrived before the next; whatever the order, the last table is the join.
"""

import os
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import plait

LEFT = pa.schema([("id", pa.string()), ("fk", pa.string()), ("payload", pa.string())])
RIGHT = pa.schema([("key", pa.string()), ("value", pa.string())])
OP = pa.field("_op", pa.string())
ORDERS_MAX = 40 if os.environ.get("CI") == "true" else 3


def left(fk, payload="p", key="k"):
    return ("left", key, (fk, payload))


def right(key, value="v"):
    return ("right", key, value)


def gone(side, key):
    return (side, key, None)


# What both sides have, the change, what is sent, what an inner join emits, what a left join emits.
# Sent are instructions (numbers of the format) and foreign keys; `0` is a null key, and an instruction
# with a slash is that of an inner join, then that of a left join.
INSERT, UPDATE, DELETE, NOTHING = "insert", "update", "delete", None
TABLE = {
    "left insert, right row there": ([right("1")], left("1"), "3/2:1", INSERT, INSERT),
    "left insert, no right row": ([], left("1"), "3/2:1", NOTHING, INSERT),
    "left insert, null key": ([right("1")], left(None), "3/2:0", NOTHING, INSERT),
    "left value, right row there": (
        [right("1"), left("1")], left("1", "q"), "", UPDATE, UPDATE,
    ),
    "left value, no right row": ([left("1")], left("1", "q"), "", NOTHING, UPDATE),
    "key from right row to right row": (
        [right("1"), right("2", "w"), left("1")], left("2"), "0:1 2:2", UPDATE, UPDATE,
    ),
    "key from right row to none": ([right("1"), left("1")], left("2"), "0:1 2:2", DELETE, UPDATE),
    "key from none to right row": ([right("2"), left("1")], left("2"), "0:1 3/2:2", INSERT, UPDATE),
    "key from none to none": ([left("1")], left("2"), "0:1 3/2:2", NOTHING, UPDATE),
    "key from right row to null": ([right("1"), left("1")], left(None), "0:1 2:0", DELETE, UPDATE),
    "key from none to null": ([left("1")], left(None), "0:1 3/2:0", NOTHING, UPDATE),
    "key from null to right row": ([right("1"), left(None)], left("1"), "0:0 3/2:1", INSERT, UPDATE),
    "left delete, right row there": (
        [right("1"), left("1")], gone("left", "k"), "1:1", DELETE, DELETE,
    ),
    "left delete, no right row": ([left("1")], gone("left", "k"), "1:1", NOTHING, DELETE),
    "left delete, null key": ([left(None)], gone("left", "k"), "1:0", NOTHING, DELETE),
    "left delete of no row": ([right("1")], gone("left", "k"), "", NOTHING, NOTHING),
    "right insert": ([left("1")], right("1"), "", INSERT, UPDATE),
    "right insert, no left row": ([], right("1"), "", NOTHING, NOTHING),
    "right insert, other left row": ([left("2")], right("1"), "", NOTHING, NOTHING),
    "right value": ([right("1"), left("1")], right("1", "w"), "", UPDATE, UPDATE),
    "right value as it was": ([right("1"), left("1")], right("1"), "", NOTHING, NOTHING),
    "right delete": ([right("1"), left("1")], gone("right", "1"), "", DELETE, UPDATE),
    "right delete of no row": ([left("1")], gone("right", "1"), "", NOTHING, NOTHING),
    "right value after the left delete": (
        [right("1"), left("1"), gone("left", "k")], right("1", "w"), "", NOTHING, NOTHING,
    ),
    "right value of the old key": (
        [right("1"), left("1"), left("2")], right("1", "w"), "", NOTHING, NOTHING,
    ),
}  # fmt: skip


class World:
    """Both sides, and the changes and messages that have not arrived."""

    def __init__(self, how, events, *, often=1):
        options = {"left_key": "id", "foreign_key": "fk", "right_key": "key", "how": how}
        options |= {"left_schema": LEFT, "right_schema": RIGHT}
        self.left, self.right = plait.StagedLeft(**options), plait.StagedRight(**options)
        self.left.resolve(self.right.apply())
        self.waiting = {"send": [], "apply": [], "receive": [], "resolve": []}
        self.often, self.calls, self.was_right = often, 0, False
        self.table, self.emitted, self.sent = {}, [], []
        for event in events:
            self.change(event)

    def change(self, event):
        side, key, value = event
        if side == "left":
            fk, payload = value or (None, None)
            row, schema = {"id": key, "fk": fk, "payload": payload}, LEFT
        else:
            row, schema = {"key": key, "value": value}, RIGHT
        row["_op"] = "delete" if value is None else "upsert"
        change = pa.Table.from_pylist([row], schema.append(OP))
        self.waiting["send" if side == "left" else "apply"].append((change, 0))

    def choices(self):
        """What may be next. Changes of a side are in order, messages are not.

        What one side does first and the other second could as well be the other way round: a call
        of the left side that could have been before the call of the right side is no choice.
        """
        found = []
        for name, queue in self.waiting.items():
            is_late = self.was_right and name in ("send", "resolve")
            known = []
            for place, (message, born) in enumerate(queue):
                if message not in known and not (is_late and born < self.calls):
                    found.append((name, place))
                known.append(message)
                if name in ("send", "apply"):
                    break
        if self.left.ready and not self.was_right:
            found.append(("resolve", None))
        return found

    def arrive(self, name, place):
        side = self.left if name in ("send", "resolve") else self.right
        message = () if place is None else (self.waiting[name].pop(place)[0],)
        batch = pa.record_batch(getattr(side, name)(*message))
        self.calls += 1
        self.was_right = side is self.right
        if name == "resolve":
            self.follow(batch.to_pylist())
            return
        told = [(batch.slice(row, 1), self.calls) for row in range(len(batch))]
        if name == "send":
            columns = (batch["_instruction"].to_pylist(), batch["_fk"].to_pylist())
            self.sent += zip(*columns)
        self.waiting["receive" if name == "send" else "resolve"] += told * self.often

    def is_done(self):
        return not (any(self.waiting.values()) or self.left.ready)

    def follow(self, changes):
        for row in changes:
            op, key = row["_op"], row["id"]
            new = (row["fk"], row["payload"], row["value"])
            assert (op == "insert") == (key not in self.table)
            assert self.table.pop(key, None) != new
            if op != "delete":
                self.table[key] = new
            self.emitted.append(op)

    def finish(self):
        """The order in which every message arrives before the next change."""
        self.was_right = False
        while choices := self.choices():
            self.arrive(*choices[-1])
            self.was_right = False


def joined(how, events):
    tables = {"left": {}, "right": {}}
    for side, key, value in events:
        tables[side].pop(key, None)
        if value is not None:
            tables[side][key] = value
    rows = {
        key: (fk, payload, tables["right"].get(fk)) for key, (fk, payload) in tables["left"].items()
    }
    return {key: row for key, row in rows.items() if how == "left" or row[2] is not None}


def orders(how, events, **options):
    """Ends of all orders; if there are too many, of the first ones and of as many random ones.

    The last choice that has another is taken anew, from the beginning. The engine's own test goes
    through every order, as it can copy its sides.
    """
    path = []
    for _ in range(ORDERS_MAX):
        world, depth = World(how, events, **options), 0
        while choices := world.choices():
            if depth == len(path):
                path.append([0, len(choices)])
            world.arrive(*choices[path[depth][0]])
            depth += 1
        if world.is_done():
            yield world
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return
        path[-1][0] += 1
    for seed in range(ORDERS_MAX):
        draw, world = random.Random(seed), World(how, events, **options)
        while not world.is_done():
            world.was_right = False
            world.arrive(*draw.choice(world.choices()))
        yield world


HOW = pytest.mark.parametrize("how", ["inner", "left"])


@pytest.mark.behaviour(
    "join-01", "join-02", "join-03", "join-04", "join-05", "join-07", "join-09", "join-10"
)
@HOW
@pytest.mark.parametrize("row", TABLE)
def test_a_row_of_the_table_emits_what_the_table_says(row, how):
    before, event, _, inner, outer = TABLE[row]
    world = World(how, [])
    for each in before:
        world.change(each)
        world.finish()
    assert world.table == joined(how, before)
    world.emitted.clear()
    world.change(event)
    world.finish()
    emitted = inner if how == "inner" else outer
    assert world.emitted == ([] if emitted is None else [emitted])
    assert world.table == joined(how, [*before, event])


@pytest.mark.behaviour("join-11", "join-12", "join-14")
@HOW
@pytest.mark.parametrize("row", TABLE)
def test_a_row_of_the_table_sends_what_the_table_says(row, how):
    before, event, sends, _, _ = TABLE[row]
    world = World(how, [])
    for each in before:
        world.change(each)
        world.finish()
    world.sent.clear()
    world.change(event)
    world.finish()
    encoded = plait.encode_keys(pa.record_batch({"k": [None, "1", "2"]}), "k")
    names = dict(zip(pa.array(encoded).to_pylist(), "012"))
    told = [f"{instruction}:{names[key]}" for instruction, key in world.sent]
    assert told == sends.replace("3/2", "3" if how == "inner" else "2").split()


@pytest.mark.behaviour("join-17")
@HOW
@pytest.mark.parametrize("row", TABLE)
def test_orders_of_the_messages_of_a_row_end_in_the_join(row, how):
    before, event, *_ = TABLE[row]
    expected = joined(how, [*before, event])
    assert [world.table for world in orders(how, [*before, event]) if world.table != expected] == []


BURSTS = {
    "delete, insert with another key": [right("1"), left("1"), gone("left", "k"), left("2")],
    "delete, insert as before, right delete": [
        right("1"), left("1"), gone("left", "k"), left("1"), gone("right", "1"),
    ],
    "key there and back": [right("1"), left("1"), left("2"), left("1")],
    "key to null and back": [right("1"), left("1"), left(None), left("1", "q")],
    "right delete, left value": [right("1"), left("1"), gone("right", "1"), left("1", "q")],
    "right value there and back": [left("1"), right("1"), right("1", "w"), right("1")],
    "two left rows, one moves": [right("1"), left("1"), left("1", key="l"), left("2", key="l")],
}  # fmt: skip


@pytest.mark.behaviour("join-15", "join-16")
@HOW
@pytest.mark.parametrize("burst", BURSTS)
def test_orders_of_the_messages_of_a_burst_end_in_the_join(burst, how):
    expected = joined(how, BURSTS[burst])
    for world in orders(how, BURSTS[burst]):
        assert world.table == expected


@pytest.mark.behaviour("join-18")
@HOW
@pytest.mark.parametrize("row", ["key from right row to none", "right delete"])
def test_messages_that_arrive_twice_change_nothing(row, how):
    before, event, *_ = TABLE[row]
    expected = joined(how, [*before, event])
    for world in orders(how, [*before, event], often=2):
        assert world.table == expected


@pytest.mark.behaviour("join-21")
def test_a_foreign_key_is_a_function_of_the_left_row():
    join = plait.ForeignKeyJoin(
        left_key="id",
        foreign_key=lambda batch: pc.utf8_slice_codeunits(pa.record_batch(batch)["payload"], 0, 1),
        right_key="key",
    )
    orders = pa.table({"id": ["k", "l"], "payload": ["1-a", "2-b"]})
    changes = join.apply(left=orders, right=pa.table({"key": ["1"], "value": ["v"]}))
    assert pa.table(changes)["id"].to_pylist() == ["k"]
    moved = pa.table({"id": ["l"], "payload": ["1-b"]})
    assert pa.table(join.apply(left=moved)).select(["_op", "value"]).to_pylist() == [
        {"_op": "insert", "value": "v"}
    ]


@pytest.mark.behaviour("join-26")
def test_of_two_right_rows_of_a_key_the_last_one_is_the_right_row():
    join = plait.ForeignKeyJoin(left_key="id", foreign_key="fk", right_key="key")
    left_rows = pa.table({"id": ["k", "l"], "fk": ["1", "1"]})
    right_rows = pa.table({"key": ["1", "1"], "value": ["v", "w"]})
    assert pa.table(join.apply(left=left_rows, right=right_rows))["value"].to_pylist() == ["w"] * 2
