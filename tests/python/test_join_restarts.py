"""Staged joins of which either side ends at any message and begins again: the table is the join.

A side begins again with the state that it had, with an older snapshot, or with none; its last message
may be lost with it. Messages are cut, overtake each other and come twice, tables are split over several
sides, and clocks go back. `rust/core` does the same, and goes through every order of short histories.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local

HISTORIES = 80 if os.environ.get("CI") == "true" or os.environ.get("PLAIT_LONG") else 12
FIRST = int(os.environ.get("PLAIT_SEED", "0"))
LEFT = pa.schema([("id", pa.int64()), ("fk", pa.string()), ("v", pa.string())])
RIGHT = pa.schema([("key", pa.string()), ("w", pa.string())])
KEYS = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}
SCHEMAS = {"left_schema": LEFT, "right_schema": RIGHT}


def history(draw: random.Random) -> tuple[list[dict], list[dict]]:
    """Changes of both tables: moves, nulls, deletes, the same again."""
    left, right = [], []
    for _ in range(draw.randrange(4, 14)):
        row = {"id": draw.randrange(4), "fk": draw.choice([None, "a", "b", "c"])}
        is_gone = draw.random() < 0.25
        left.append(row | {"v": f"v{draw.randrange(3)}", "_op": "delete" if is_gone else "upsert"})
    for _ in range(draw.randrange(2, 9)):
        row = {"key": draw.choice("abc"), "w": draw.choice([None, "x", "y"])}
        right.append(row | {"_op": "delete" if draw.random() < 0.3 else "upsert"})
    return left, right


def joined(left: list[dict], right: list[dict], how: str) -> dict:
    tables: list[dict] = []
    for changes, key in ((left, "id"), (right, "key")):
        table: dict = {}
        for change in changes:
            table.pop(change[key], None)
            if change["_op"] != "delete":
                table[change[key]] = change
        tables.append(table)
    rows = {}
    for key, row in tables[0].items():
        found = tables[1].get(row["fk"])
        if found is not None or how == "left":
            rows[key] = (row["fk"], row["v"], found and found["w"])
    return rows


def applied(table: dict, changes) -> None:
    """Applies changes to a table; each must fit it, and change it."""
    for row in pa.record_batch(changes).to_pylist():
        key, new = row["id"], (row["fk"], row["v"], row["w"])
        assert (row["_op"] == "insert") == (key not in table)
        assert table.get(key) != new
        table.pop(key, None)
        if row["_op"] != "delete":
            table[key] = new


def of_table(left) -> dict:
    rows = pa.table(left.table()).to_pylist()
    return {row["id"]: (row["fk"], row["v"], row["w"]) for row in rows}


def ahead(folder: Path, by: int) -> None:
    manifest = max(folder.glob("manifest-*.json"))
    found = json.loads(manifest.read_text())
    found["clock"]["epoch"] += by
    manifest.write_text(json.dumps(found))


def shard_of(key: bytes | None, shards: int) -> int:
    """Of a foreign key as text, or of a primary key: its last letter or number."""
    letters = [byte for byte in key or b"" if byte in b"abc"] or [key[-1] if key else 0]
    return letters[-1] % shards


class Side:
    """A side in a folder, the changes of its table, and how many of them it took."""

    def __init__(self, kind, root: Path, changes: list[dict], schema: pa.Schema, how: str) -> None:
        root.mkdir(parents=True)
        self.kind, self.root, self.changes, self.how = kind, root, changes, how
        self.schema = schema.append(pa.field("_op", pa.string()))
        self.lives, self.done = 0, 0
        self.side = self.begin()
        # Snapshots: folder, changes that were taken, the table of whoever follows.
        self.saved: list[tuple[Path, int, dict]] = []
        self.table: dict = {}

    def begin(self):
        self.lives += 1
        self.folder = self.root / f"{self.kind.__name__}-{self.lives}"
        return self.kind(**KEYS, **SCHEMAS, how=self.how, state=self.folder)

    def next_change(self) -> pa.Table:
        self.done += 1
        return pa.Table.from_pylist([self.changes[self.done - 1]], self.schema)

    def save(self) -> None:
        folder = self.root / f"copy-{self.kind.__name__}-{len(self.saved)}"
        self.side.snapshot(folder)
        self.saved.append((folder, self.done, dict(self.table)))

    def restart(self, draw: random.Random) -> None:
        self.side.close()
        what = draw.random()
        if what < 0.5 or (what < 0.8 and not self.saved):
            if draw.random() < 0.3:
                # Its clock is ahead: that of a later life will have gone back.
                ahead(self.folder, draw.randrange(2**50))
            self.side = self.kind.restore(self.folder)
        elif what < 0.8:
            copy, self.done, table = draw.choice(self.saved)
            self.table = dict(table)
            self.lives += 1
            self.folder = self.root / f"{self.kind.__name__}-{self.lives}"
            with self.kind.restore(copy) as side:
                side.snapshot(self.folder)
            self.side = self.kind.restore(self.folder)
        else:
            self.done, self.table = 0, {}
            self.side = self.begin()


def run(seed: int, root: Path, shards: int) -> None:
    draw = random.Random(seed)
    how = draw.choice(["inner", "left"])
    events = history(draw)

    def sides(kind, changes: list[dict], schema: pa.Schema) -> list[Side]:
        def is_of(change: dict, i: int) -> bool:
            key = change["id"] if "id" in change else ord(change["key"])
            return key % shards == i

        mine = [[change for change in changes if is_of(change, i)] for i in range(shards)]
        return [
            Side(kind, root / f"{kind.__name__}{i}", mine[i], schema, how) for i in range(shards)
        ]

    lefts = sides(plait.StagedLeft, events[0], LEFT)
    rights = sides(plait.StagedRight, events[1], RIGHT)
    # Messages on their way: to which shard, rows.
    to_right: list[tuple[int, pa.RecordBatch]] = []
    to_left: list[tuple[int, pa.RecordBatch]] = []
    kills = 12

    def send(messages, to: list[tuple[int, pa.RecordBatch]]) -> None:
        whole = pa.record_batch(messages)
        keys = whole["_fk" if to is to_right else "_pk"].to_pylist()
        for shard in range(shards):
            # A response without a key greets all left sides.
            places = [
                i
                for i, key in enumerate(keys)
                if shard_of(key, shards) == shard or (key is None and to is to_left)
            ]
            while places:
                count = draw.choice([1, 2, 50])
                to.append((shard, whole.take(pa.array(places[:count]))))
                places = places[count:]

    while True:
        doings = [
            *(("send", left) for left in lefts if left.done < len(left.changes)),
            *(("apply", right) for right in rights if right.done < len(right.changes)),
            *(("receive", None) for _ in to_right[:3]),
            *(("resolve", None) for _ in to_left[:3]),
            *(("poll", left) for left in lefts if left.side.pending),
            *(("poll", right) for right in rights if right.side.pending),
            *(("ready", left) for left in lefts if left.side.ready),
        ]
        if not doings:
            break
        doing, side = draw.choice(doings)
        # What a call says is lost if its side ends before it is sent.
        is_lost = kills > 0 and draw.random() < 0.2
        queue = {"receive": to_right, "resolve": to_left}.get(doing)
        if queue is not None:
            shard, message = queue.pop(draw.randrange(len(queue)))
            if draw.random() < 0.1:
                queue.append((shard, message))
            side = (lefts if queue is to_left else rights)[shard]
        if doing in ("resolve", "ready"):
            step = side.side.step
            made = side.side.resolve(message if doing == "resolve" else None)
            if is_lost and side.side.step != step:
                # Nobody heard of the changes: they are asked for again.
                side.side.close()
                side.side = plait.StagedLeft.restore(side.folder)
                made = side.side.again()
            applied(side.table, made)
            assert of_table(side.side) == side.table, seed
        else:
            if doing == "receive":
                out = side.side.receive(message)
            else:
                change = None if doing == "poll" else side.next_change()
                out = side.side.send(change) if side in lefts else side.side.apply(change)
            if not is_lost:
                send(out, to_right if side in lefts else to_left)
            else:
                kills -= 1
                side.side.close()
                side.side = side.kind.restore(side.folder)
        if kills > 0 and draw.random() < 0.25:
            kills -= 1
            draw.choice([*lefts, *rights]).restart(draw)
        elif draw.random() < 0.1:
            draw.choice([*lefts, *rights]).save()
    found = {key: row for left in lefts for key, row in left.table.items()}
    assert found == joined(*events, how), seed
    for side in (*lefts, *rights):
        side.side.close()


@pytest.fixture
def memory(tmp_path):
    """A folder in memory, where there is one: thousands of calls are synced."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize("shards", [1, 2])
def test_the_table_is_the_join_whichever_side_ends_at_whatever_message(memory, shards):
    for seed in range(FIRST, FIRST + HISTORIES):
        run(seed, memory / str(seed), shards)


def batch(schema: pa.Schema, *rows: tuple) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def drained(left, right) -> list[tuple]:
    """Lets all messages pass until nobody has anything to say; gives the changes."""
    changes = []
    while left.pending or right.pending or left.ready:
        answers = [right.apply()] if right.pending else []
        answers += [None] if left.ready else []
        while left.pending:
            answers.append(right.receive(left.send()))
        for answer in answers:
            found = pa.record_batch(left.resolve(answer)).to_pylist()
            changes += [tuple(row.values()) for row in found]
    return changes


def met(how: str = "inner", **states):
    left = plait.StagedLeft(**KEYS, **SCHEMAS, how=how, state=states.get("left"))
    right = plait.StagedRight(**KEYS, **SCHEMAS, how=how, state=states.get("right"))
    assert drained(left, right) == []
    return left, right


def test_a_left_side_without_its_state_is_heard():
    left, right = met()
    for number in range(3):
        left.resolve(right.receive(left.send(batch(LEFT, (1, "a", f"v{number}")))))
    right.apply(batch(RIGHT, ("a", "x")))
    # It counts from version 1 again; the right side has version 3 of this row.
    left = plait.StagedLeft(**KEYS, **SCHEMAS)
    changes = left.resolve(right.receive(left.send(batch(LEFT, (1, "a", "new")))))
    assert pa.record_batch(changes).to_pylist() == [
        {"_op": "insert", "id": 1, "fk": "a", "v": "new", "w": "x"}
    ]


def test_a_right_side_without_its_state_is_noticed():
    left, right = met("left")
    left.resolve(right.apply(batch(RIGHT, ("a", "x"), ("b", "y"))))
    left.resolve(right.receive(left.send(batch(LEFT, (1, "a", "p"), (2, "b", "q")))))
    right = plait.StagedRight(**KEYS, **SCHEMAS, how="left")
    assert right.pending
    told = left.resolve(right.apply(batch(RIGHT, ("a", "x2"))))
    assert len(told) == 0 and left.pending
    assert sorted(drained(left, right)) == [
        ("update", 1, "a", "p", "x2"),
        ("update", 2, "b", "q", None),
    ]
    assert of_table(left) == {1: ("a", "p", "x2"), 2: ("b", "q", None)}


def test_a_side_restored_to_an_older_snapshot_than_messages_it_sent(tmp_path):
    left, right = met(left=tmp_path / "left")
    left.resolve(right.apply(batch(RIGHT, ("a", "x"), ("b", "y"))))
    left.resolve(right.receive(left.send(batch(LEFT, (1, "a", "p")))))
    left.snapshot(tmp_path / "copy")
    waiting = left.send(batch(LEFT, (1, "b", "q")))
    right.receive(left.send(batch(LEFT, (1, "b", "r"), (2, "b", "s"))))
    left.close()
    with plait.StagedLeft.restore(tmp_path / "copy") as left:
        assert of_table(left) == {1: ("a", "p", "x")}
        # What it sent in the life that is forgotten still comes.
        late = right.receive(waiting)
        assert left.pending and drained(left, right) == []
        assert len(left.resolve(late)) == 0
        # Another change takes the version of the forgotten one.
        changes = left.resolve(right.receive(left.send(batch(LEFT, (1, "b", "t")))))
        assert [tuple(row.values()) for row in pa.record_batch(changes).to_pylist()] == [
            ("update", 1, "b", "t", "y")
        ]
        changed = left.resolve(right.apply(batch(RIGHT, ("b", "z"))))
        assert [tuple(row.values()) for row in pa.record_batch(changed).to_pylist()] == [
            ("update", 1, "b", "t", "z")
        ]
        assert of_table(left) == {1: ("b", "t", "z")}


def test_changes_that_were_not_delivered_are_given_again(tmp_path):
    left, right = met("left", left=tmp_path / "left")
    sent = left.send(batch(LEFT, (1, "a", "p"), (2, None, "q")))
    first = pa.record_batch(left.resolve(right.receive(sent)))
    step = left.step
    left.close()
    with plait.StagedLeft.restore(tmp_path / "left") as left:
        assert (left.step, pa.record_batch(left.again())) == (step, first)
        left.send(batch(LEFT, (3, "a", "r")))
        assert (left.step, len(left.again())) == (step + 1, 0)


def test_a_side_killed_in_a_process_of_its_own_goes_on(tmp_path):
    program = f"""
import os, signal, pyarrow as pa, plait
import test_join_restarts as t
left, right = t.met("left", left={str(tmp_path / "left")!r}, right={str(tmp_path / "right")!r})
left.resolve(right.apply(t.batch(t.RIGHT, ("a", "x"))))
left.resolve(right.receive(left.send(t.batch(t.LEFT, (1, "a", "p")))))
left.send(t.batch(t.LEFT, (2, "a", "q")))
right.apply(t.batch(t.RIGHT, ("a", "y")))
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=os.environ | path, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    with (
        plait.StagedLeft.restore(tmp_path / "left") as left,
        plait.StagedRight.restore(tmp_path / "right") as right,
    ):
        assert of_table(left) == {1: ("a", "p", "x")}
        drained(left, right)
        assert of_table(left) == {1: ("a", "p", "y"), 2: ("a", "q", "y")}


def test_the_page_of_the_format_has_what_folders_of_sides_have(tmp_path, root):
    left, right = met("left", left=tmp_path / "left", right=tmp_path / "right")
    right.apply(batch(RIGHT, ("a", "x")))
    left.resolve(right.receive(left.send(batch(LEFT, (1, "a", "p"), (2, None, "q")))))
    left.close()
    right.close()
    page = (root / "docs/formats/join.md").read_text()
    page = page[page.index("## State of a side") :]
    told = dict(re.findall(r"^\| (\w+) \| (?:left|right) \| .*? \| (.*?) \|$", page, re.MULTILINE))
    tables = {}
    for side in ("left", "right"):
        newest = max((tmp_path / side).glob("manifest-*.json"))
        manifest = json.loads(newest.read_text())
        assert (manifest["format"], manifest["version"]) == (f"plait.join.{side}", 1)
        assert sorted(manifest["clock"]) == ["epoch", "rights", "version"]
        assert manifest["clock"]["epoch"] > 0 and manifest["step"] >= 1
        for table in manifest["base"]:
            (name,) = [*manifest["base"][table], *manifest["last"][table]][:1]
            columns = pq.read_schema(tmp_path / side / name).names
            tables[table, side] = [c for c in columns if c.startswith("_")]
    named = {
        table: ["_key", "_deleted", *re.findall(r"`(_\w+)`", columns)]
        for table, columns in told.items()
    }
    assert {table: columns for (table, _), columns in tables.items()} == named


def test_states_of_something_else_are_refused_in_words(tmp_path):
    left, right = met(left=tmp_path / "left", right=tmp_path / "right")
    with pytest.raises(plait.StorageError, match="open already"):
        plait.StagedLeft.restore(tmp_path / "left")
    left.close()
    right.close()
    with pytest.raises(plait.InvalidArgument, match="closed"):
        left.send()
    with pytest.raises(plait.InvalidArgument, match="other side"):
        plait.StagedRight.restore(tmp_path / "left")
    with pytest.raises(plait.InvalidArgument, match="kind of join"):
        plait.ForeignKeyJoin.restore(tmp_path / "right")
    with pytest.raises(plait.InvalidArgument, match="another `how`"):
        plait.StagedLeft(**KEYS, **SCHEMAS, how="left", state=tmp_path / "left")
    with pytest.raises(plait.SchemaDrift, match="other columns of left changes"):
        other = SCHEMAS | {"left_schema": LEFT.append(pa.field("u", pa.int64()))}
        plait.StagedLeft(**KEYS, **other, state=tmp_path / "left")
    for kind in (plait.StagedLeft, plait.StagedRight):
        with pytest.raises(plait.SourceNotFound, match="no state"):
            kind.restore(tmp_path / "none")
        with pytest.raises(plait.InvalidArgument, match="messages of a staged join"):
            taken = SCHEMAS | {"right_schema": RIGHT.append(pa.field("_version", pa.int64()))}
            kind(**KEYS, **taken, state=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    manifest = max((tmp_path / "left").glob("manifest-*.json"))
    manifest.write_text(manifest.read_text()[:-20])
    with pytest.raises(plait.CorruptSource, match="manifest"):
        plait.StagedLeft.restore(tmp_path / "left")


def test_messages_that_lack_a_value_are_refused_and_change_nothing():
    left, right = met("left")
    sent = pa.record_batch(left.send(batch(LEFT, (1, "a", "p"))))
    for name in ("_fk", "_pk", "_version", "_instruction"):
        place = sent.schema.get_field_index(name)
        lacks = sent.set_column(place, name, pa.nulls(1, sent.column(place).type))
        with pytest.raises(plait.InvalidArgument, match="lacks a value"):
            right.receive(lacks)
    assert pa.record_batch(left.resolve(right.receive(sent)))["_op"].to_pylist() == ["insert"]
