"""Malformed Arrow data never ends the process, and is never taken for what it is not."""

import collections
import ctypes
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import plait

ATTACKS = Path(__file__).parent / "arrow_attacks.py"


def outcomes(first, count, validate):
    """What became of each call, in processes of its own: a word and what it is about."""
    found, end = {}, first + count
    while first < end:
        command = [sys.executable, str(ATTACKS), str(first), str(end - first), validate]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
        last = first
        for seed, said in lines:
            last = int(seed)
            if said != "begun":
                word, _, about = said.partition(" | ")
                found[last] = (word, about)
        if done.returncode == 0:
            break
        found[last] = (f"ended by {done.returncode}", done.stderr[-400:])
        first = last + 1
    return found


def check(first, count, validate):
    found = outcomes(first, count, validate)
    assert len(found) == count, f"seeds from {first}, {validate}"
    words = collections.Counter(word for word, _ in found.values())
    print(f"seeds from {first}, {validate}: {dict(words)}")
    fine = {
        "refused CorruptSource",
        "refused InvalidArgument",
        "refused RowMismatch",
        "refused UnsortedSource",
    }
    fine |= {"refused NullKey", "refused Unsupported", "passed", "equal"}
    if validate == "basic":
        # Text that is not UTF-8 and prefixes that are not those of their values are for "full".
        fine.add("content")
    # The order of offsets in a dense union is not checked: each leads to a value that is there.
    unordered = ("content", "non-monotonic offset")
    bad = {
        seed: said
        for seed, said in found.items()
        if said[0] not in fine and not (said[0] == unordered[0] and unordered[1] in said[1])
    }
    assert not bad, bad
    assert words["refused CorruptSource"] > count / 2
    assert words["equal"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("validate", ["basic", pytest.param("full", marks=pytest.mark.long)])
def test_malformed_arrays_are_refused_through_every_door(validate):
    check(0, 780, validate)


@pytest.mark.long
@pytest.mark.parametrize("validate", ["basic", "full"])
def test_malformed_arrays_are_refused_through_every_door_at_length(validate):
    check(780, 20_000 if os.environ.get("PLAIT_LONG") else 1_500, validate)


# ---- arrays of PyArrow whose buffers are too short


def short():
    """A batch of a damaged IPC stream, which PyArrow reads without a word: its values are 8 bytes."""
    rows = 1001
    batch = pa.record_batch({"k": pa.array(range(rows)), "v": pa.array(range(rows))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    length = struct.pack("<q", rows * 8)
    at = data.rfind(length, 0, data.find(struct.pack("<qqq", 0, 1, 2)))
    damaged = data[:at] + struct.pack("<q", 8) + data[at + 8 :]
    return pa.ipc.open_stream(damaged).read_next_batch()


def test_buffers_of_pyarrow_are_as_long_as_they_must_be():
    batch = short()
    rows = pa.array([0], pa.uint64())
    doors = [
        lambda: plait.interleave([batch["v"]], pa.array([0], pa.uint8()), rows),
        lambda: plait.merge_streams([batch], sort_by="k"),
        lambda: plait.merge_streams([pa.Table.from_batches([batch])], sort_by="k"),
        lambda: next(plait.merge_streams([iter([batch])], sort_by="k")),
        lambda: plait.overlay([plait.Layer([batch])], index="k"),
        lambda: plait.Stream(batch),
        lambda: plait.scan([pa.Table.from_batches([batch])]),
    ]
    for door in doors:
        with pytest.raises(plait.CorruptSource, match="not valid Arrow data"):
            door()


# ---- what messages say


def texts(offsets):
    """Text whose offsets are not checked by whoever makes it."""
    made = (ctypes.c_int32 * len(offsets))(*offsets)
    data = pa.py_buffer(b"abcdefgh")
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(made), data])


def streamed(batch):
    """The batch as a stream of the C interface, of which nobody asks PyArrow whether it is valid."""
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


BACK = texts([0, 5, 2, 8])
NESTED = pa.StructArray.from_arrays([pa.array([1, 2, 3]), BACK], ["x", "y"])


def test_the_source_and_the_column_below_a_struct_are_named():
    good = pa.table({"k": [1, 2, 3], "s": pa.array([{"x": 1, "y": "a"}] * 3, NESTED.type)})
    bad = pa.record_batch({"k": [1, 2, 3], "s": NESTED})
    with pytest.raises(plait.CorruptSource, match=r"offsets go back.*source 1.*`s.y`") as raised:
        list(plait.merge_streams([good, streamed(bad)], sort_by="k"))
    assert raised.value.column == "s.y"


def test_the_layer_is_named():
    base = pa.table({"_index": [1, 2, 3], "x": [1, 2, 3]})
    bad = pa.record_batch({"_index": [1, 2, 3], "s": NESTED})
    layers = [plait.Layer(base), plait.Layer(streamed(bad), ["s"], name="labels")]
    with pytest.raises(plait.CorruptSource, match=r"layer `labels`: offsets go back.*`s.y`"):
        list(plait.overlay(layers))


# ---- validate="full"

NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer((ctypes.c_int32 * 3)(0, 1, 2)), pa.py_buffer(b"\xff\xfe")]
)


def everywhere():
    """Every door that takes Arrow data, as a call that reads text which is not UTF-8."""
    batch = pa.record_batch({"k": [1, 2], "v": NOT_UTF8})
    indexed = pa.record_batch({"_index": [1, 2], "v": NOT_UTF8})
    keys = {"left_key": "k", "foreign_key": "k", "right_key": "k"}
    right = pa.table({"k": [1], "name": ["a"]})
    schemas = {"left_schema": batch.schema, "right_schema": right.schema}
    zeros, rows = pa.array([0, 0], pa.uint8()), pa.array([0, 1], pa.uint8())
    return {
        "interleave": lambda v: pa.array(plait.interleave([NOT_UTF8], zeros, rows, validate=v)),
        "merge_streams": lambda v: list(plait.merge_streams([[batch]], sort_by="k", validate=v)),
        "merge_streams, a stream": lambda v: list(
            plait.merge_streams([streamed(batch)], sort_by="k", validate=v)
        ),
        "overlay": lambda v: list(plait.overlay([plait.Layer([indexed])], validate=v)),
        "scan": lambda v: list(plait.scan([streamed(batch)], validate=v)),
        "stream": lambda v: list(plait.Stream(batch, v)),
        "join": lambda v: list(
            plait.ForeignKeyJoin(**keys, validate=v).apply(left=batch, right=right)
        ),
        "staged left": lambda v: plait.StagedLeft(**keys, **schemas, validate=v).send(batch),
        "staged right": lambda v: plait.StagedRight(
            left_key="k",
            foreign_key="k",
            right_key="k",
            left_schema=right.schema,
            right_schema=batch.schema,
            validate=v,
        ).apply(batch),
    }


@pytest.mark.parametrize("door", everywhere())
def test_full_validation_looks_at_values_through_every_door(door):
    call = everywhere()[door]
    call("basic")
    with pytest.raises(plait.CorruptSource, match="not valid Arrow data"):
        call("full")
    with pytest.raises(plait.InvalidArgument, match="`validate` has no such choice"):
        call("some")


def test_a_restored_join_validates_as_it_is_told(tmp_path):
    batch = pa.record_batch({"k": [1, 2], "v": NOT_UTF8})
    right = pa.table({"k": [1], "name": ["a"]})
    keys = {"left_key": "k", "foreign_key": "k", "right_key": "k"}
    with plait.ForeignKeyJoin(**keys, state=tmp_path / "state") as join:
        join.apply(left=batch, right=right)
    restored = plait.ForeignKeyJoin.restore(tmp_path / "state", validate="full")
    with restored, pytest.raises(plait.CorruptSource):
        restored.apply(left=batch)


def test_null_counts_are_counted_anew_and_refused_by_full():
    array = pa.array([1, None, 3])
    wrong = pa.Array.from_buffers(array.type, 3, array.buffers(), null_count=2)
    zeros, rows = pa.array([0] * 3, pa.uint8()), pa.array([0, 1, 2], pa.uint8())
    made = pa.array(plait.interleave([wrong], zeros, rows))
    assert (made.to_pylist(), made.null_count) == ([1, None, 3], 1)
    with pytest.raises(plait.CorruptSource, match="null_count"):
        plait.interleave([wrong], zeros, rows, validate="full")


# ---- sources that ask for what they feed

SELF_FEEDING = """
import signal, threading
import pyarrow as pa, plait
signal.alarm(60)
batch = pa.record_batch({"k": [1], "_index": [1], "f": [1]})

def in_thread(call):
    raised = []
    def run():
        try:
            call()
        except plait.PlaitError as error:
            raised.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise raised[0]

asks = {
    "next": lambda: next(result),
    "table": lambda: pa.table(result),
    "close": lambda: result.close(),
    "thread": lambda: in_thread(lambda: next(result)),
}

def source():
    yield batch
    asks[mode]()
    yield batch

def reader():
    return pa.RecordBatchReader.from_batches(batch.schema, source())

def merged(source):
    return plait.merge_streams([source], sort_by="k")

doors = {
    "merge_streams": lambda: plait.merge_streams([source(), batch], sort_by="k"),
    "merge_streams of a reader": lambda: merged(reader()),
    "merge_streams of itself": lambda: merged(merged(source())),
    "overlay": lambda: plait.overlay(
        [plait.Layer(source()), plait.Layer(iter([batch, batch]), ["f"])]
    ),
    "scan": lambda: plait.scan([plait.Stream(source())]).to_batches(),
    "stream": lambda: plait.Stream(source()),
}
for door, make in doors.items():
    for mode in asks:
        if (door, mode) == ("merge_streams of a reader", "thread"):
            continue  # nobody can see that the reader runs Python code
        result = make()
        try:
            print(door, mode, sum(len(batch) for batch in result))
        except plait.PlaitError as error:
            # Through a foreign reader the text alone comes back.
            text = "a source asks for what it feeds"
            print(text if text in str(error) else error)
"""


def said(script):
    """What a script prints; it is killed if it waits."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def test_a_source_that_asks_for_what_it_feeds_is_an_error_at_once():
    assert said(SELF_FEEDING) == ["a source asks for what it feeds"] * 23


JOINS = """
import signal, threading
import pyarrow as pa, plait
signal.alarm(60)
batch = pa.record_batch({"k": [1], "f": [1]})
right = pa.record_batch({"f": [1], "name": ["a"]})

def in_thread(call):
    raised = []
    def run():
        try:
            call()
        except plait.PlaitError as error:
            raised.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise raised[0]

asks = {
    "apply": lambda: join.apply(right=right),
    "table": lambda: join.table(),
    "stats": lambda: join.stats,
    "close": lambda: join.close(),
    "thread": lambda: in_thread(lambda: join.stats),
}

def source():
    yield batch
    asks[mode]()

def foreign_key(rows):
    if rows.num_rows and asking:
        asks[mode]()
    return pa.array([1] * rows.num_rows, pa.int64())

for mode in asks:
    for who in ("source", "foreign_key"):
        asking = True
        keys = {"left_key": "k", "foreign_key": "f", "right_key": "f"}
        if who == "foreign_key":
            keys["foreign_key"] = foreign_key
        join = plait.ForeignKeyJoin(**keys)
        try:
            changes = join.apply(left=source() if who == "source" else batch, right=right)
            print(mode, who, sum(len(batch) for batch in changes))
        except plait.InvalidArgument as error:
            print(error.what)
        assert join.step is None
        asking = False
        changes = join.apply(left=batch, right=right, step=7)
        assert join.step == 7
"""


def test_changes_that_ask_the_join_they_are_applied_to_are_an_error_at_once():
    assert said(JOINS) == ["a source asks for what it feeds"] * 10


READERS = """
import ctypes, signal
import pyarrow as pa, plait
signal.alarm(20)
batch = pa.record_batch({"k": [1]})

def source():
    yield batch
    reader.read_next_batch()
    yield batch

reader = pa.RecordBatchReader.from_stream(plait.merge_streams([source()], sort_by="k"))
try:
    reader.read_all()
except pa.ArrowInvalid as error:
    print(error)
"""


def test_a_stream_that_was_handed_on_is_not_asked_by_its_source_either():
    assert "a source asks for what it feeds" in " ".join(said(READERS))


def test_threads_take_turns_where_no_source_is_python_code():
    rows = 200_000
    stream = plait.merge_streams([pa.table({"k": range(rows)})], sort_by="k", batch_rows=100)
    counts = []

    def read():
        counts.append(sum(len(batch) for batch in stream))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == rows


def test_a_message_with_a_zero_byte_does_not_end_the_process():
    stream = plait.merge_streams([pa.table({"k": ["b\0", "a\0"]})], sort_by="k")
    with pytest.raises(pa.ArrowInvalid, match="goes backwards"):
        pa.table(stream)
