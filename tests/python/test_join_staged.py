"""Staged joins: messages in any order end in the full join. `rust/core` goes through every order."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

import plait

ALL = json.loads((Path(__file__).parents[1] / "cases" / "join.json").read_text())["cases"]
# The staged form takes no sequence numbers, which versioned tables (V) have.
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
        while any(waiting.values()):
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


def test_sequence_numbers_and_other_batches_are_refused():
    schema = LEFT.append(pa.field("_seq", pa.int64()))
    keys = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}
    with pytest.raises(plait.Unsupported, match="sequence numbers"):
        plait.StagedLeft(**keys, left_schema=schema, right_schema=RIGHT)
    left, right = sides("inner")
    with pytest.raises(plait.InvalidArgument, match="lacks a column"):
        left.resolve(pa.table({"a": [1]}))
    with pytest.raises(plait.InvalidArgument, match="lacks a column"):
        right.receive(pa.table({"a": [1]}))
