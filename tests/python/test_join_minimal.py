"""No change leaves a join for a row that is what it was: rows of nulls, values set to what they are."""

from __future__ import annotations

import functools
import math
import os
import random

import pyarrow as pa
import pytest

import plait

HISTORIES = 2000 if os.environ.get("CI") == "true" else 60
FIRST = int(os.environ.get("PLAIT_SEED", "0"))
LEFT = pa.schema([("id", pa.int64()), ("fk", pa.float64()), ("v", pa.float64())])
RIGHT = pa.schema(
    [
        ("key", pa.float64()),
        ("w", pa.float64()),
        ("s", pa.struct([("a", pa.int64())])),
        ("n", pa.null()),
    ]
)
KEYS = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}
# Of the columns of the result; the last has nothing of the right table.
COLUMNS = (None, ["id", "fk", "v", "w"], ["id", "w", "s"], ["id", "v"])


def told(value):
    """A value as text: -0.0 is another one than 0.0, null another one than a struct of nulls."""
    return repr(value)


def joined(left: dict, right: dict, how: str, columns) -> dict:
    rows = {}
    for key, row in left.items():
        # Keys know no -0.0.
        found = None if row["fk"] is None else right.get(row["fk"] + 0.0)
        if found is None and how == "inner":
            continue
        whole = row | (found or {"w": None, "s": None, "n": None})
        names = columns or ["id", "fk", "v", "w", "s", "n"]
        rows[key] = {name: whole[name] for name in names}
    return rows


def difference(before: dict, after: dict, *, with_old: bool) -> list:
    changes = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if told(old) == told(new):
            continue
        op = "insert" if old is None else "delete" if new is None else "update"
        none = dict.fromkeys(old or new)
        row = {"_op": op} | (new or none | {"id": key})
        if with_old:
            row |= {f"before.{name}": value for name, value in (old or none).items()}
        changes.append(told(row))
    return changes


def history(draw: random.Random) -> list[list[tuple]]:
    """Steps of changes of both sides; most values are null."""
    floats = [None, None, 0.0, -0.0, math.nan]
    steps = []
    for _ in range(draw.randrange(2, 9)):
        step = []
        for _ in range(draw.randrange(1, 6)):
            is_gone = draw.random() < 0.3
            if draw.random() < 0.5:
                row = {"id": draw.randrange(3), "fk": draw.choice([None, 0.0, -0.0, 1.0])}
                step.append(("left", row | {"v": draw.choice(floats)}, is_gone))
            else:
                row = {"key": draw.choice([0.0, -0.0, 1.0]), "w": draw.choice(floats), "n": None}
                step.append(("right", row | {"s": draw.choice([None, None, {"a": None}])}, is_gone))
        steps.append(step)
    return steps


def batches(step: list[tuple]) -> dict[str, pa.Table]:
    sides = {}
    for side, schema in (("left", LEFT), ("right", RIGHT)):
        rows = [
            row | {"_op": "delete" if is_gone else "upsert"}
            for of, row, is_gone in step
            if of == side
        ]
        if rows:
            sides[side] = pa.Table.from_pylist(rows, schema.append(pa.field("_op", pa.string())))
    return sides


def check(seed: int, make) -> None:
    draw = random.Random(seed)
    how, columns = draw.choice(["inner", "left"]), draw.choice(COLUMNS)
    with_old = draw.random() < 0.5
    apply = make(how, columns, with_old)
    left: dict = {}
    right: dict = {}
    before: dict = {}
    for step in history(draw):
        for side, row, is_gone in step:
            table, key = (left, row["id"]) if side == "left" else (right, row["key"] + 0.0)
            table.pop(key, None)
            if not is_gone:
                table[key] = row
        after = joined(left, right, how, columns)
        expected = difference(before, after, with_old=with_old)
        found = sorted(apply(batches(step)), key=lambda row: row["id"])
        assert [told(row) for row in found] == expected, (seed, how, columns, step)
        before = after


def together(how, columns, with_old, **options):
    join = plait.ForeignKeyJoin(
        **KEYS,
        how=how,
        columns=columns,
        before=with_old,
        left_schema=LEFT,
        right_schema=RIGHT,
        **options,
    )
    return lambda sides: pa.table(join.apply(**sides)).to_pylist()


@pytest.mark.behaviour("join-08")
def test_changes_are_the_difference_of_the_joins_where_values_are_null():
    for seed in range(FIRST, FIRST + HISTORIES):
        check(seed, together)


def test_so_they_are_for_state_in_a_folder(tmp_path):
    for seed in range(FIRST, FIRST + HISTORIES // 20):
        check(seed, functools.partial(together, state=tmp_path / str(seed)))


def test_messages_of_one_step_leave_nothing_that_is_the_same():
    """Between the messages of one change the table may go through others, but never to itself."""
    for seed in range(FIRST, FIRST + HISTORIES // 2):
        draw = random.Random(seed)
        how = draw.choice(["inner", "left"])
        options = KEYS | {"how": how, "left_schema": LEFT, "right_schema": RIGHT}
        left, right = plait.StagedLeft(**options), plait.StagedRight(**options)
        left.resolve(right.apply())
        table: dict = {}
        for step in history(draw):
            sides = batches(step)
            answers = []
            if "left" in sides:
                answers.append(right.receive(left.send(sides["left"])))
            if "right" in sides:
                answers.append(right.apply(sides["right"]))
            draw.shuffle(answers)
            for answer in answers:
                for row in pa.record_batch(left.resolve(answer)).to_pylist():
                    op, key = row.pop("_op"), row["id"]
                    # A delete has its key alone, and looks like a row of nulls.
                    assert op == "delete" or told(table.get(key)) != told(row), (seed, row)
                    assert (op == "insert") == (key not in table)
                    table.pop(key, None)
                    if op != "delete":
                        table[key] = row


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_right_row_of_nulls_that_comes_and_goes(how):
    left = pa.table({"id": [1, 2], "fk": [7, 8], "v": ["a", "b"]})
    right = pa.table({"key": pa.array([7]), "w": pa.nulls(1, pa.string())})
    gone = pa.table({"key": [7], "_op": ["delete"]})
    join = plait.ForeignKeyJoin(**KEYS, how=how, right_schema=right.schema)
    join.apply(left=left)
    comes = pa.table(join.apply(right=right))["_op"].to_pylist()
    goes = pa.table(join.apply(right=gone))["_op"].to_pylist()
    assert (comes, goes) == ((["insert"], ["delete"]) if how == "inner" else ([], []))
    values = right.set_column(1, "w", pa.array(["x"]))
    assert len(pa.table(join.apply(right=values))) == 1
    # A value that goes back to null changes the row; the right row that goes then does not.
    assert len(pa.table(join.apply(right=right))) == 1
    assert len(pa.table(join.apply(right=gone))) == (1 if how == "inner" else 0)


def test_columns_that_show_nothing_of_the_right_table_change_with_nothing_of_it():
    left = pa.table({"id": [1], "fk": [7], "v": ["a"]})
    right = pa.table({"key": [7], "w": ["x"]})
    join = plait.ForeignKeyJoin(
        **KEYS, how="left", columns=["id", "v"], right_schema=right.schema, before=True
    )
    assert len(pa.table(join.apply(left=left))) == 1
    assert pa.table(join.apply(right=right)).to_pylist() == []
    gone = pa.table({"key": [7], "_op": ["delete"]})
    assert pa.table(join.apply(right=gone)).to_pylist() == []
