"""Staged joins: messages in any order end in the full join. `rust/core` goes through every order."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import plait

ALL = json.loads((Path(__file__).parents[1] / "cases" / "join.json").read_text())["cases"]
# Versioned tables (V) have sequence numbers: see the options.
CASES = [case for case in ALL if "V" not in case["name"]]
ORDERS = 200 if os.environ.get("CI") == "true" else 5
LEFT = pa.schema([("id", pa.string()), ("fk", pa.string()), ("payload", pa.string())])
RIGHT = pa.schema([("key", pa.string()), ("value", pa.string())])


def sides(how: str):
    options = {"left_key": "id", "foreign_key": "fk", "right_key": "key", "how": how}
    options |= {"left_schema": LEFT, "right_schema": RIGHT}
    return plait.StagedLeft(**options), plait.StagedRight(**options)


def change(event) -> pa.Table:
    value, key = event["value"], event["key"]
    if event["side"] == "left":
        row = {"id": key} | (value or {"fk": None, "payload": None})
        schema = LEFT
    else:
        row, schema = {"key": key, "value": value}, RIGHT
    row["_op"] = "delete" if value is None else "upsert"
    return pa.Table.from_pylist([row], schema.append(pa.field("_op", pa.string())))


def messages(batch) -> list[pa.RecordBatch]:
    whole = pa.record_batch(batch)
    return [whole.slice(row, 1) for row in range(whole.num_rows)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_messages_in_any_order_end_in_the_join(case):
    expected = {
        key: (row["left"]["fk"], row["left"]["payload"], row["right"])
        for key, row in case["table"].items()
    }
    for seed in range(ORDERS):
        draw = random.Random(seed)
        left, right = sides(case["join"])
        waiting = {
            left.send: [change(e) for e in case["events"] if e["side"] == "left"],
            right.apply: [change(e) for e in case["events"] if e["side"] == "right"],
            right.receive: [],
            left.resolve: [],
        }
        table: dict = {}
        while any(waiting.values()) or left.ready:
            if left.ready:
                waiting[left.resolve].append(None)
            function = draw.choice([f for f, queue in waiting.items() if queue])
            queue = waiting[function]
            # Changes of a side are in order; messages overtake each other.
            in_order = function in (left.send, right.apply)
            told = messages(function(queue.pop(0 if in_order else draw.randrange(len(queue)))))
            if function == left.send:
                waiting[right.receive] += told
            elif function != left.resolve:
                waiting[left.resolve] += told
            else:
                for (row,) in (message.to_pylist() for message in told):
                    key, new = row["id"], (row["fk"], row["payload"], row["value"])
                    assert (row["_op"] == "insert") == (key not in table)
                    assert table.get(key) != new
                    table.pop(key, None)
                    if row["_op"] != "delete":
                        table[key] = new
        assert table == expected, seed


def test_other_batches_are_refused():
    left, right = sides("inner")
    with pytest.raises(plait.InvalidArgument, match="lacks a column"):
        left.resolve(pa.table({"a": [1]}))
    with pytest.raises(plait.InvalidArgument, match="lacks a column"):
        right.receive(pa.table({"a": [1]}))
    with pytest.raises(plait.SchemaDrift, match="sequence numbers"):
        left.send(pa.table({"id": ["1"], "fk": ["a"], "payload": ["p"], "_seq": [1]}))


# ---- options: the staged join equals the other one, whatever the order of messages


def upper(batch):
    """Rows of the result that do not tell every change of a payload."""
    rows = pa.record_batch(batch)
    return pa.table(
        {"fk": rows["fk"], "text": pc.utf8_slice_codeunits(rows["payload"], 0, 1)},
    )


OPTIONS: dict[str, dict] = {
    "columns": {"columns": {"id": "id", "v": "value"}},
    "before": {"before": True},
    "joiner": {"joiner": upper},
    "joiner_before": {"joiner": upper, "before": True},
    "on_null_key": {"on_null_key": "drop"},
    "memory_limit": {"memory_limit": "1MB"},
    "_seq": {},
}
OF_BOTH = ("on_null_key", "memory_limit")


def changes_of(draw: random.Random, side: str, *, sequence: bool, nulls: bool) -> list[pa.Table]:
    """Changes of a side; with sequence numbers in any order, with nulls some without a key."""
    made = []
    for number in range(draw.randrange(2, 10)):
        key = draw.choice(["k1", "k2", *([None] if nulls else [])])
        row: dict = {"_op": "delete" if draw.random() < 0.25 else "upsert"}
        if side == "left":
            fk = draw.choice([None, "f1", "f2"])
            row |= {"id": key, "fk": fk, "payload": draw.choice(["p", "pp", "q"])}
        else:
            key = key and key.replace("k", "f")
            row |= {"key": key, "value": draw.choice([None, "v", "w"])}
        schema = (LEFT if side == "left" else RIGHT).append(pa.field("_op", pa.string()))
        if sequence:
            row["_seq"] = number
            schema = schema.append(pa.field("_seq", pa.int64()))
        made.append(pa.Table.from_pylist([row], schema))
    if sequence:
        draw.shuffle(made)
    return made


def followed(table: dict, changes, *, before: bool) -> None:
    """Applies changes; each must fit the table and change it, old values are those it has."""
    for row in pa.record_batch(changes).to_pylist():
        operation, key = row.pop("_op"), row["id"]
        old = {name: row.pop(f"before.{name}") for name in list(row) if f"before.{name}" in row}
        known = table.get(key)
        if before:
            assert old == (known or dict.fromkeys(row))
        assert (operation == "insert") == (known is None)
        assert known != row or operation == "delete"
        table.pop(key, None)
        if operation != "delete":
            table[key] = row


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_means_what_it_means_for_the_other_join(option, how):
    given = OPTIONS[option]
    keys = {"left_key": "id", "foreign_key": "fk", "right_key": "key", "how": how}
    for seed in range(2 * ORDERS):
        draw = random.Random(f"{option} {how} {seed}")
        kind = {"sequence": option == "_seq", "nulls": option == "on_null_key"}
        lefts, rights = (changes_of(draw, side, **kind) for side in ("left", "right"))
        schemas = {"left_schema": lefts[0].schema, "right_schema": rights[0].schema}
        left = plait.StagedLeft(**keys, **schemas, **given)
        shared = {name: value for name, value in given.items() if name in OF_BOTH}
        right = plait.StagedRight(**keys, **schemas, **shared)
        waiting: dict = {
            left.send: list(lefts),
            right.apply: list(rights),
            right.receive: [],
            left.resolve: [],
        }
        table: dict = {}
        while any(waiting.values()) or left.ready or left.pending or right.pending:
            choices = [function for function, queue in waiting.items() if queue]
            choices += [left.resolve] * left.ready + [left.send] * left.pending
            choices += [right.apply] * right.pending
            function = draw.choice(choices)
            queue = waiting[function]
            place = 0 if function in (left.send, right.apply) else draw.randrange(len(queue) or 1)
            told = function(*([queue.pop(place)] if queue else []))
            if function == left.resolve:
                followed(table, told, before=given.get("before", False))
            else:
                waiting[right.receive if function == left.send else left.resolve] += messages(told)
        join = plait.ForeignKeyJoin(**keys, **schemas, **given)
        for change in lefts:
            join.apply(left=change)
        for change in rights:
            join.apply(right=change)
        expected = {row["id"]: row for row in pa.table(join.table()).to_pylist()}
        assert table == expected, seed
        assert {row["id"]: row for row in pa.table(left.table()).to_pylist()} == expected
        counts = join.stats
        sums = [left.stats, right.stats]
        assert sum(stats.null_keys for stats in sums) == counts.null_keys
        assert sum(stats.stale for stats in sums) == counts.stale
        assert left.stats.left_changes == counts.left_changes == len(lefts)
        assert right.stats.right_changes == counts.right_changes == len(rights)


@pytest.mark.behaviour("join-13")
def test_a_row_that_keeps_its_foreign_key_sends_nothing():
    left, right = sides("inner")
    left.resolve(right.apply(pa.table({"key": ["f"], "value": ["v"]})))
    row = {"id": ["k", "l"], "fk": ["f", "g"], "payload": ["p", "q"]}
    left.resolve(right.receive(left.send(pa.table(row))))
    sent = left.send(pa.table(row | {"payload": ["r", "s"]}))
    assert (len(sent), left.ready) == (0, True)
    (change,) = pa.record_batch(left.resolve()).to_pylist()
    assert change == {"_op": "update", "id": "k", "fk": "f", "payload": "r", "value": "v"}
    assert not left.ready
    # Not answered yet, as `g` has no right row: the answer finds the row as it is then.
    (change,) = pa.record_batch(
        left.resolve(right.apply(pa.table({"key": ["g"], "value": ["w"]})))
    ).to_pylist()
    assert change == {"_op": "insert", "id": "l", "fk": "g", "payload": "s", "value": "w"}
    # What it was is no change.
    assert len(left.send(pa.table(row | {"payload": ["r", "s"]}))) == 0
    assert len(left.resolve()) == 0


def test_a_joiner_that_fails_leaves_the_state_as_it_was():
    fails = [False]

    def joiner(batch):
        if fails[0]:
            raise RuntimeError("not now")
        return upper(batch)

    keys = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}
    schemas = {"left_schema": LEFT, "right_schema": RIGHT}
    left, right = plait.StagedLeft(**keys, **schemas, joiner=joiner), sides("inner")[1]
    left.resolve(right.apply(pa.table({"key": ["f"], "value": ["v"]})))
    answers = right.receive(left.send(pa.table({"id": ["k"], "fk": ["f"], "payload": ["p"]})))
    answers, step = pa.record_batch(answers), left.step
    fails[0] = True
    with pytest.raises(RuntimeError, match="not now"):
        left.resolve(answers)
    fails[0] = False
    assert (left.step, pa.table(left.table()).num_rows) == (step, 0)
    (change,) = pa.record_batch(left.resolve(answers)).to_pylist()
    assert change == {"_op": "insert", "id": "k", "fk": "f", "text": "p"}


def test_a_joiner_that_asks_for_its_side_is_refused():
    sides_made = []

    def joiner(batch):
        if sides_made:
            sides_made[0].table()
        return upper(batch)

    keys = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}
    left = plait.StagedLeft(**keys, left_schema=LEFT, right_schema=RIGHT, how="left", joiner=joiner)
    right = sides("left")[1]
    left.resolve(right.apply())
    sides_made.append(left)
    answers = right.receive(left.send(pa.table({"id": ["k"], "fk": ["f"], "payload": ["p"]})))
    with pytest.raises(plait.PlaitError, match="asks for what it feeds"):
        left.resolve(answers)


def test_more_state_than_the_memory_limit_is_an_error_and_changes_nothing():
    keys = {"left_key": "id", "foreign_key": "fk", "right_key": "key", "memory_limit": "100KB"}
    left = plait.StagedLeft(**keys, left_schema=LEFT, right_schema=RIGHT)
    right = plait.StagedRight(**keys, left_schema=LEFT, right_schema=RIGHT)
    many = [f"{i:050}" for i in range(5_000)]
    with pytest.raises(plait.MemoryLimitExceeded, match="more memory than the limit"):
        left.send(pa.table({"id": many, "fk": many, "payload": many}))
    with pytest.raises(plait.MemoryLimitExceeded, match="more memory than the limit"):
        right.apply(pa.table({"key": many, "value": many}))
    assert (left.step, left.stats.steps, right.stats.steps) == (None, 0, 0)


# ---- sides by number


@pytest.mark.behaviour("join-20")
@pytest.mark.parametrize("count", [1, 2, 7])
def test_changes_and_messages_of_a_key_go_to_one_side(count):
    schemas = {"left_schema": LEFT, "right_schema": RIGHT}
    keys = {"left_key": "id", "foreign_key": "fk", "right_key": "key", "how": "left"}
    lefts = [plait.StagedLeft(**keys, **schemas) for _ in range(count)]
    rights = [plait.StagedRight(**keys, **schemas) for _ in range(count)]
    orders = pa.record_batch(
        {
            "id": [f"k{i}" for i in range(40)],
            "fk": [None if i == 3 else f"f{i % 9}" for i in range(40)],
            "payload": ["p"] * 40,
        },
        schema=LEFT,
    )
    customers = pa.record_batch(
        {"key": [f"f{i}" for i in range(8)], "value": [f"v{i}" for i in range(8)]}, schema=RIGHT
    )

    def parts(rows, numbers):
        rows, numbers = pa.record_batch(rows), pa.array(numbers)
        # A greeting goes to all.
        return [
            rows.filter(pc.or_kleene(pc.is_null(numbers), pc.equal(numbers, i)))
            for i in range(count)
        ]

    told = []
    for right, part in zip(
        rights, parts(customers, plait.side_numbers(customers, count, key="key")), strict=True
    ):
        told.append(right.apply(part))
    for left, part in zip(
        lefts, parts(orders, plait.side_numbers(orders, count, key=["id"])), strict=True
    ):
        sent = pa.record_batch(left.send(part))
        for right, messages_of in zip(
            rights, parts(sent, plait.side_numbers(sent["_fk"], count)), strict=True
        ):
            told.append(right.receive(messages_of))
    for responses in map(pa.record_batch, told):
        for left, part in zip(
            lefts, parts(responses, plait.side_numbers(responses["_pk"], count)), strict=True
        ):
            left.resolve(part)
    while any(left.pending for left in lefts):
        for left in lefts:
            sent = pa.record_batch(left.send())
            for right, part in zip(
                rights, parts(sent, plait.side_numbers(sent["_fk"], count)), strict=True
            ):
                responses = pa.record_batch(right.receive(part))
                numbers = plait.side_numbers(responses["_pk"], count)
                for to, answers in zip(lefts, parts(responses, numbers), strict=True):
                    to.resolve(answers)
    join = plait.ForeignKeyJoin(**keys)
    join.apply(left=orders, right=customers)

    def rows(tables):
        found = [row for table in tables for row in pa.table(table).to_pylist()]
        return sorted(found, key=lambda row: row["id"])

    assert rows(left.table() for left in lefts) == rows([join.table()])


def test_numbers_of_sides_are_those_of_the_format():
    # The first two keys and their xxh3-128 are known from the makers of the hash.
    hashes = {b"": 0x99AA06D3014798D86001C324468D497F, b"a": 0xA96FAF705AF16834E6C632B61E964E1F}
    keys = pa.array([*hashes, None])
    for sides in (1, 97, 2**32 - 1):
        numbers = pa.array(plait.side_numbers(keys, sides)).to_pylist()
        assert numbers == [*(number % sides for number in hashes.values()), None]
    rows = pa.record_batch({"key": ["a", "b", None]})
    encoded = plait.encode_keys(rows, "key")
    numbers = pa.array(plait.side_numbers(encoded, 97))
    assert pa.array(plait.side_numbers(rows, 97, key="key")) == numbers
    for wrong in (0, 2**32):
        with pytest.raises(plait.InvalidArgument, match="is not from 1"):
            plait.side_numbers(rows, wrong, key="key")
    with pytest.raises(plait.InvalidArgument, match="not binary"):
        plait.side_numbers(pa.array(["a"]), 2)
    with pytest.raises(plait.UnknownColumn):
        plait.side_numbers(rows, 2, key="x")
