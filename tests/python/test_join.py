"""Foreign-key joins: recorded cases for every cut into steps, random histories, faults of callers."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import plait

_SPEC = importlib.util.spec_from_file_location(
    "join_oracle", Path(__file__).parent / "join_oracle.py"
)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)
Oracle, DuckOracle = _MODULE.Oracle, _MODULE.DuckOracle

CASES = json.loads((Path(__file__).parents[1] / "cases" / "join.json").read_text())["cases"]
CI = os.environ.get("CI") == "true"

LEFT = pa.schema([("id", pa.string()), ("fk", pa.string()), ("payload", pa.string())])
RIGHT = pa.schema([("key", pa.string()), ("value", pa.string())])


def new_join(how: str, **options) -> plait.ForeignKeyJoin:
    return plait.ForeignKeyJoin(
        left_key="id",
        foreign_key="fk",
        right_key="key",
        how=how,
        left_schema=options.pop("left_schema", LEFT),
        right_schema=options.pop("right_schema", RIGHT),
        **options,
    )


def batches(events):
    """The changes of `(side, key, value, seq)` of both sides as tables, `None` where a side has none."""
    sides = []
    for side in ("left", "right"):
        mine = [event for event in events if event[0] == side]
        columns: dict = {
            "_op": ["delete" if value is None else "upsert" for _, _, value, _ in mine]
        }
        if side == "left":
            rows = [(None, None) if value is None else value for _, _, value, _ in mine]
            columns |= {
                "id": [key for _, key, _, _ in mine],
                "fk": [fk for fk, _ in rows],
                "payload": [payload for _, payload in rows],
            }
        else:
            columns |= {
                "key": [key for _, key, _, _ in mine],
                "value": [value for _, _, value, _ in mine],
            }
        fields = [pa.field(name, pa.string()) for name in columns]
        if mine and mine[0][3] is not None:
            columns["_seq"] = [seq for _, _, _, seq in mine]
            fields.append(pa.field("_seq", pa.int64()))
        sides.append(pa.table(columns, schema=pa.schema(fields)) if mine else None)
    return sides


def rows_of(stream) -> list[tuple]:
    """`(op, key, (fk, payload, value) or None)` of every change, sorted."""
    found = []
    for row in pa.table(stream).to_pylist():
        value = (row["fk"], row["payload"], row["value"])
        if row["_op"] == "delete":
            assert value == (None, None, None)
        found.append((row["_op"], row["id"], None if row["_op"] == "delete" else value))
    return sorted(found, key=repr)


def table_of(join) -> dict:
    rows = pa.table(join.table()).to_pylist()
    found = {row["id"]: (row["fk"], row["payload"], row["value"]) for row in rows}
    assert len(found) == len(rows)
    return found


def events_of(case) -> list[tuple]:
    return [
        (
            event["side"],
            event["key"],
            (event["value"]["fk"], event["value"]["payload"])
            if event["side"] == "left" and event["value"] is not None
            else event["value"],
            # Where the names say so, a table is versioned by time: V, not U.
            event["ts"] if f"{event['side']}V" in case["name"] else None,
        )
        for event in case["events"]
    ]


def schemas_of(events) -> dict:
    """The schemas of the changes; those with numbers have `_seq`."""
    numbered = {side for side, _, _, seq in events if seq is not None}
    return {
        f"{side}_schema": with_sequence(schema) if side in numbered else schema
        for side, schema in (("left", LEFT), ("right", RIGHT))
    }


def table_of_case(case) -> dict:
    return {
        key: (row["left"]["fk"], row["left"]["payload"], row["right"])
        for key, row in case["table"].items()
    }


def cuts_of(count: int):
    """Every way of cutting up to 8 events into steps; some ways for more."""
    if count <= 8:
        bits = itertools.product((False, True), repeat=count - 1)
    else:
        draw = random.Random(count)
        ways = [[draw.random() < 0.4 for _ in range(count - 1)] for _ in range(64)]
        bits = iter([[True] * (count - 1), [False] * (count - 1), *ways])
    for cut in bits:
        ends = [i + 1 for i, is_cut in enumerate(cut) if is_cut] + [count]
        yield list(itertools.pairwise([0, *ends]))


@pytest.mark.behaviour("join-06", "join-23")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_recorded_cases_hold_for_every_cut(case):
    check_case(case, lambda number: {})


@pytest.mark.few(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_recorded_cases_hold_for_state_in_a_folder(case, tmp_path):
    check_case(case, lambda number: {"state": tmp_path / str(number)}, every=1 if CI else 9)


def check_case(case, options, every: int = 1) -> None:
    """All cuts, or one of `every` so many and the last, which cuts behind every event."""
    events, table = events_of(case), table_of_case(case)
    cuts = list(cuts_of(len(events)))
    for number, cut in enumerate(cuts):
        if number % every and cut != cuts[-1]:
            continue
        join = new_join(case["join"], **schemas_of(events), **options(number))
        oracle = Oracle(case["join"])
        for start, end in cut:
            left, right = batches(events[start:end])
            changes = rows_of(join.apply(left=left, right=right))
            assert changes == oracle.apply(events[start:end]), cut
            if len(cut) == len(events) and case["changelog_by_event"] is not None:
                told = case["changelog_by_event"][start]
                assert [change[1] for change in changes] == [change["key"] for change in told]
                for change, row in zip(changes, told, strict=True):
                    value = row["value"] and (
                        row["value"]["left"]["fk"],
                        row["value"]["left"]["payload"],
                        row["value"]["right"],
                    )
                    assert change[2] == value
        assert table_of(join) == table, cut
        assert oracle.table() == table


def history(draw: random.Random, keys: int, count: int, *, with_seq: bool) -> list[tuple]:
    """Changes of `keys` keys: moves, nulls, deletes, re-inserts, the same again, out of order."""
    events: list[tuple] = []
    for number in range(count):
        if events and draw.random() < 0.05:
            events.append(draw.choice(events))
            continue
        seq = max(0, number + draw.randrange(-20, 20)) if with_seq else None
        if draw.random() < 0.65:
            foreign = None if draw.random() < 0.1 else f"f{draw.randrange(keys // 3 + 1)}"
            value = None if draw.random() < 0.25 else (foreign, f"p{draw.randrange(3)}")
            events.append(("left", f"k{draw.randrange(keys)}", value, seq))
        else:
            value = None if draw.random() < 0.3 else f"v{draw.randrange(3)}"
            events.append(("right", f"f{draw.randrange(keys // 3 + 1)}", value, seq))
    return events


def with_sequence(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("_seq", pa.int64()))


def check_history(seed: int, make=new_join, oracle_of=Oracle, **options) -> None:
    """Joins the changes of a random history step by step; DuckDB looks at the table after each."""
    draw = random.Random(seed)
    how = draw.choice(["inner", "left"])
    with_seq = draw.random() < 0.5
    keys = draw.choice([3, 20, 200])
    events = history(draw, keys, draw.choice([10, 60, 400]), with_seq=with_seq)
    options |= schemas_of([(side, "", None, 0 if with_seq else None) for side in ("left", "right")])
    join, oracle = make(how, batch_rows=draw.choice([1, 7, 32_768]), **options), oracle_of(how)
    at, step, expected = 0, 0, []
    while at < len(events):
        if "state" in options and draw.random() < 0.2:
            join.close()
            join = make(how, batch_rows=5, **options)
            assert join.step == (step - 1 if step else None)
            if step:
                assert rows_of(join.apply(step=join.step)) == expected, (seed, at)
        step += 1
        end = at + draw.choice([1, 3, 10, 50, 200])
        left, right = batches(events[at:end])
        expected = oracle.apply(events[at:end])
        assert rows_of(join.apply(left=left, right=right)) == expected, (seed, at)
        if draw.random() < 0.2:
            join.compact()
        at = end
        if draw.random() < 0.3 or at >= len(events) or oracle_of is DuckOracle:
            assert table_of(join) == oracle.table(), (seed, at)
    # The last changes, again.
    assert rows_of(join.apply(step=join.step)) == expected, seed


def test_random_histories_give_the_difference_of_full_joins():
    for seed in range(2000 if CI else 200):
        check_history(seed)


def test_random_histories_hold_for_state_in_a_folder_that_is_opened_again(tmp_path):
    for seed in range(300 if CI else 12):
        check_history(seed, state=tmp_path / str(seed))


def test_duckdb_says_the_same_after_every_step():
    pytest.importorskip("duckdb")
    for seed in range(300 if CI else 8):
        check_history(10_000 + seed, oracle_of=DuckOracle)


class MadeOracle(Oracle):
    """Joined rows as `made` makes them."""

    def table(self) -> dict:
        """As for `Oracle`."""
        rows = super().table().items()
        return {key: (fk and fk.upper(), "p", right) for key, (fk, _, right) in rows}


def made(batch) -> pa.Table:
    """Without the payload: rows that differ in it alone become the same."""
    rows = pa.table(pa.record_batch(batch))
    upper = pc.utf8_upper(rows["fk"])
    payload = pa.array(["p"] * len(rows), pa.string())
    return pa.table({"fk": upper, "payload": payload, "value": rows["value"]})


def test_a_joiner_gives_the_difference_of_what_it_makes():
    def make(how, **options):
        return new_join(how, joiner=made, **options)

    for seed in range(500 if CI else 40):
        check_history(20_000 + seed, make=make, oracle_of=MadeOracle)


def test_rows_and_their_order_do_not_depend_on_threads():
    count, random_ = 30_000, random.Random(7)
    keys = random_.sample(range(count), count)
    left = pa.table(
        {
            "id": [f"k{i}" for i in keys],
            "fk": [f"f{random_.randrange(3000)}" for _ in keys],
            "payload": [f"p{i % 7}" for i in keys],
        }
    )
    right = pa.table({"key": [f"f{i}" for i in range(2500)], "value": ["v"] * 2500})
    moved = left.slice(0, 20_000).set_column(1, "fk", left["fk"].slice(10_000, 20_000))
    renamed = right.set_column(1, "value", pa.array(["w"] * 2500))
    steps = [{"left": left, "right": right}, {"left": moved, "right": renamed}, {"right": right}]

    def run(threads):
        join = new_join("left", threads=threads)
        told = [pa.table(join.apply(**step)).to_pylist() for step in steps]
        join.compact()
        return told, pa.table(join.table()).to_pylist()

    alone = run(1)
    assert len(alone[0][0]) == len(alone[1]) == count
    assert all(len(changes) > 20_000 for changes in alone[0])
    assert run(3) == alone
