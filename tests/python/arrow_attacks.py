"""Arrow arrays that contradict themselves, through every door that takes Arrow data.

Each call takes a random valid array, copies its structures of the C data interface, breaks one thing
in the copy (offsets, views, keys, type ids, run ends, lengths, counts, pointers) and gives it to one
door. A line for each call says what became of it. Run as a program, because a door that believes
the array may end the process::

    python arrow_attacks.py FIRST COUNT basic|full
"""

import ctypes
import os
import random
import sys
import traceback
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int64, c_void_p

import pyarrow as pa

import plait

INT64_MAX = (1 << 63) - 1
# What was lent to other libraries stays until the process ends.
KEPT = []


class ArrowArray(ctypes.Structure):
    """The structure of the interface."""


RELEASE = CFUNCTYPE(None, POINTER(ArrowArray))
ArrowArray._fields_ = [
    *((name, c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(ArrowArray))),
    ("dictionary", POINTER(ArrowArray)),
    ("release", c_void_p),
    ("private_data", c_void_p),
]


@RELEASE
def release(array):
    array.contents.release = None


api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype = c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, c_char_p]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [c_void_p, c_char_p, c_void_p]


def copied(source):
    """A copy of a structure and of all below it, over the same buffers."""
    made = ArrowArray()
    for name in ("length", "null_count", "offset", "n_buffers", "n_children"):
        setattr(made, name, getattr(source, name))
    buffers = (c_void_p * max(1, source.n_buffers))(
        *(source.buffers[i] for i in range(source.n_buffers))
    )
    below = [copied(source.children[i].contents) for i in range(source.n_children)]
    children = (POINTER(ArrowArray) * max(1, len(below)))(*map(ctypes.pointer, below))
    made.buffers = ctypes.cast(buffers, POINTER(c_void_p))
    made.children = ctypes.cast(children, POINTER(POINTER(ArrowArray)))
    if source.dictionary:
        made.dictionary = ctypes.pointer(copied(source.dictionary.contents))
    made.release = ctypes.cast(release, c_void_p).value
    KEPT.append((made, buffers, below, children))
    return made


class Broken:
    """An array or batch whose structures are `made`."""

    def __init__(self, array, made):
        self.array, self.made = array, made

    def __arrow_c_array__(self, requested_schema=None):
        schema, _ = self.array.__arrow_c_array__()
        pointer = ctypes.addressof(self.made)
        return schema, api.PyCapsule_New(pointer, b"arrow_array", None)

    def __arrow_c_schema__(self):
        return self.array.__arrow_c_array__()[0]


def structures(array):
    """The structures of an array, copied."""
    capsules = array.__arrow_c_array__()
    KEPT.append((array, capsules))
    pointer = api.PyCapsule_GetPointer(capsules[1], b"arrow_array")
    return copied(ArrowArray.from_address(pointer))


# ---- random valid arrays


def ints(r, n):
    return [None if r.random() < 0.2 else r.randrange(100) for _ in range(n)]


def texts(r, n, longest=30):
    return [
        None
        if r.random() < 0.2
        else "abcdefghij"[: r.randrange(11)] * r.randrange(longest // 10 + 1)
        for _ in range(n)
    ]


def lists(r, n, make):
    return [None if r.random() < 0.2 else make(r, r.randrange(4)) for _ in range(n)]


def runs(r, n):
    ends = sorted(r.sample(range(1, n), min(3, n - 1))) + [n] if n else []
    return pa.RunEndEncodedArray.from_arrays(
        pa.array(ends, pa.int32()), pa.array(texts(r, len(ends)))
    )


def union(r, n, mode):
    ids = pa.array([r.randrange(2) for _ in range(n)], pa.int8())
    children = [pa.array(ints(r, n)), pa.array(texts(r, n))]
    if mode == "sparse":
        return pa.UnionArray.from_sparse(ids, children, ["i", "s"])
    return pa.UnionArray.from_dense(ids, pa.array(range(n), pa.int32()), children, ["i", "s"])


def dictionary(r, n, key, values):
    count = max(1, r.randrange(6))
    keys = [None if r.random() < 0.2 else r.randrange(count) for _ in range(n)]
    return pa.DictionaryArray.from_arrays(pa.array(keys, key), values(count))


S = pa.struct([("x", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32()))])
KINDS = {
    "int": lambda r, n: pa.array(ints(r, n)),
    "bool": lambda r, n: pa.array([None if v is None else v % 2 == 0 for v in ints(r, n)]),
    "decimal": lambda r, n: pa.array(ints(r, n), pa.decimal128(9, 2)),
    "null": lambda r, n: pa.nulls(n),
    "string": lambda r, n: pa.array(texts(r, n)),
    "large_string": lambda r, n: pa.array(texts(r, n), pa.large_string()),
    "binary": lambda r, n: pa.array(texts(r, n), pa.binary()),
    "fixed": lambda r, n: pa.array([b"abcd"] * n, pa.binary(4)),
    "string_view": lambda r, n: pa.array(texts(r, n), pa.string_view()),
    "binary_view": lambda r, n: pa.array(texts(r, n), pa.binary_view()),
    "list": lambda r, n: pa.array(lists(r, n, ints), pa.list_(pa.int64())),
    "large_list": lambda r, n: pa.array(lists(r, n, texts), pa.large_list(pa.string())),
    "list_view": lambda r, n: pa.array(lists(r, n, ints), pa.list_view(pa.int32())),
    "large_list_view": lambda r, n: pa.array(lists(r, n, texts), pa.large_list_view(pa.string())),
    "fixed_list": lambda r, n: pa.array([["a", "b"]] * n, pa.list_(pa.string(), 2)),
    "views_list": lambda r, n: pa.array(lists(r, n, texts), pa.list_(pa.string_view())),
    "struct": lambda r, n: pa.array(
        [{"x": i, "s": s, "l": [1, 2]} for i, s in zip(ints(r, n), texts(r, n))], S
    ),
    "structs": lambda r, n: pa.array(
        lists(r, n, lambda r, k: [{"x": 1, "s": s, "l": [3]} for s in texts(r, k)]), pa.list_(S)
    ),
    "map": lambda r, n: pa.array(
        lists(r, n, lambda r, k: [(f"k{i}", i) for i in range(k)]), pa.map_(pa.string(), pa.int64())
    ),
    "dictionary": lambda r, n: dictionary(r, n, pa.int8(), lambda c: pa.array(["abc"] * c)),
    "dictionary_16": lambda r, n: dictionary(r, n, pa.uint16(), lambda c: pa.array(range(c))),
    "dictionary_views": lambda r, n: dictionary(
        r, n, pa.int32(), lambda c: pa.array(["a value that is long"] * c, pa.string_view())
    ),
    "dictionary_lists": lambda r, n: dictionary(
        r, n, pa.int64(), lambda c: pa.array([["a", "b"]] * c, pa.list_(pa.string()))
    ),
    "runs": runs,
    "dense": lambda r, n: union(r, n, "dense"),
    "sparse": lambda r, n: union(r, n, "sparse"),
}


# ---- what is broken


def nodes(made, typ):
    """Structures of an array and of all below it, with their types."""
    yield made, typ
    if isinstance(typ, pa.BaseExtensionType):
        return
    for place in range(made.n_children):
        if pa.types.is_run_end_encoded(typ):
            below = typ.run_end_type if place == 0 else typ.value_type
        elif pa.types.is_map(typ):
            below = pa.struct([typ.key_field, typ.item_field])
        else:
            below = typ.field(place).type
        yield from nodes(made.children[place].contents, below)
    if made.dictionary:
        yield from nodes(made.dictionary.contents, typ.value_type)


def numbers(node, place, count, code):
    """A copy of a buffer in place of it: numbers that can be changed."""
    code_type = {"b": ctypes.c_int8, "B": ctypes.c_uint8, "h": ctypes.c_int16, "H": ctypes.c_uint16}
    code_type |= {"i": ctypes.c_int32, "I": ctypes.c_uint32, "q": c_int64, "Q": ctypes.c_uint64}
    made = (code_type[code] * max(1, count))()
    if node.buffers[place] and count:
        ctypes.memmove(made, node.buffers[place], ctypes.sizeof(code_type[code]) * count)
    node.buffers[place] = ctypes.addressof(made)
    KEPT.append(made)
    return made


WILD = (-1, -(1 << 31), (1 << 31) - 1, 0, 1, 2, 3, 5, 100, 1000, 65_536, 1 << 20)


def break_counts(r, node, _typ):
    """Lengths and counts that cannot be, or that children do not have."""
    what = r.choice(["length", "offset", "null_count", "n_buffers", "n_children", "shorter"])
    if what == "shorter":
        node.length = r.randrange(max(1, node.length))
    elif what in ("length", "offset"):
        setattr(node, what, r.choice([-1, -(1 << 63), INT64_MAX, INT64_MAX // 2]))
    elif what == "null_count":
        node.null_count = r.choice([-5, node.length + 1, INT64_MAX])
    elif what == "n_buffers":
        node.n_buffers = r.choice([-1, 0, max(0, node.n_buffers - 1)])
    else:
        node.n_children = r.choice([-1, 0, max(0, node.n_children - 1)])


def break_pointer(r, node, _typ):
    """A pointer that leads nowhere."""
    places = [("buffers", i) for i in range(node.n_buffers)]
    places += [("children", i) for i in range(node.n_children)]
    if node.dictionary:
        places.append(("dictionary", 0))
    what, place = r.choice(places or [("buffers", None)])
    if place is None or r.random() < 0.1:
        node.buffers = POINTER(c_void_p)()
    elif what == "buffers":
        node.buffers[place] = None
    elif what == "children":
        node.children[place] = POINTER(ArrowArray)()
    else:
        node.dictionary = POINTER(ArrowArray)()


def break_range(r, node, typ):
    """What leads from one buffer into another."""
    t, rows = pa.types, node.offset + node.length
    row = r.randrange(rows + 1)
    if t.is_list(typ) or t.is_map(typ):
        numbers(node, 1, rows + 1, "i")[row] = r.choice(WILD)
    elif t.is_large_list(typ):
        numbers(node, 1, rows + 1, "q")[row] = r.choice([*WILD, INT64_MAX, -(1 << 63), 1 << 40])
    elif t.is_string(typ) or t.is_binary(typ) or t.is_large_string(typ) or t.is_large_binary(typ):
        is_large = t.is_large_string(typ) or t.is_large_binary(typ)
        offsets = numbers(node, 1, rows + 1, "q" if is_large else "i")
        # How long the values are is what the last offset says: nobody can know better.
        most = offsets[rows]
        offsets[row] = r.choice([value for value in WILD if row < rows or value <= most])
    elif t.is_string_view(typ) or t.is_binary_view(typ):
        if not rows:
            return False
        raw = numbers(node, 1, rows * 4, "I")
        at = 4 * r.randrange(rows)
        if raw[at] <= 12:
            raw[at] = r.choice([13, 100, (1 << 32) - 1])
        raw[at + r.choice([0, 2, 3])] = r.choice([13, 50, 1000, 1 << 31, (1 << 32) - 1])
    elif t.is_list_view(typ) or t.is_large_list_view(typ):
        if not rows:
            return False
        code = "i" if t.is_list_view(typ) else "q"
        numbers(node, r.choice([1, 2]), rows, code)[r.randrange(rows)] = r.choice(WILD)
    elif t.is_dictionary(typ):
        if not rows:
            return False
        code = {8: "b", 16: "h", 32: "i", 64: "q"}[typ.index_type.bit_width]
        made = numbers(node, 1, rows, code)
        made[r.randrange(rows)] = r.choice([-1, -128, 100, 127, 6])
    elif t.is_union(typ):
        if not rows:
            return False
        if typ.mode == "dense" and r.random() < 0.5:
            numbers(node, 1, rows, "i")[r.randrange(rows)] = r.choice(WILD)
        else:
            numbers(node, 0, rows, "b")[r.randrange(rows)] = r.choice([-1, -128, 2, 127])
    elif t.is_run_end_encoded(typ):
        ends = node.children[0].contents
        if not ends.length:
            return False
        numbers(ends, 1, ends.offset + ends.length, "i")[r.randrange(ends.length)] = r.choice(WILD)
    else:
        return False
    return True


def broken(r, array):
    """An array with one thing broken, and what that was."""
    typ = array.type if isinstance(array, pa.Array) else pa.struct(list(array.schema))
    made = structures(array)
    found = list(nodes(made, typ))
    if isinstance(array, pa.RecordBatch):
        # Top-level columns are more of a target than the batch itself.
        found = found[1:] or found
    for _ in range(20):
        node, below = r.choice(found)
        how = r.choices([break_range, break_counts, break_pointer], [6, 2, 1])[0]
        before = [getattr(node, name) for name, _ in ArrowArray._fields_[:5]]
        if how(r, node, below) is not False:
            after = [getattr(node, name) for name, _ in ArrowArray._fields_[:5]]
            return Broken(array, made), f"{how.__name__} {below} {before}->{after}"
    return Broken(array, made), "nothing"


# ---- doors


def batches(stream):
    return pa.Table.from_batches(
        [pa.record_batch(batch) for batch in stream], pa.schema(stream.schema)
    )


def through_interleave(r, bad, good, validate):
    order = list(range(len(good))) * 2
    r.shuffle(order)
    places = [r.randrange(2) for _ in order]
    rows = pa.array(order, pa.uint32())
    made = plait.interleave([good, bad], pa.array(places, pa.uint8()), rows, validate=validate)
    if r.random() < 0.3:
        all_rows = pa.array(range(len(order)), pa.uint32())
        made = plait.interleave([made], pa.array([0] * len(order), pa.uint8()), all_rows)
    out = pa.array(made.to_arrow(large=r.random() < 0.2) if r.random() < 0.5 else made)
    return out, lambda known: [
        (good, known)[place][row].as_py() for place, row in zip(places, order)
    ]


def through_merge(r, bad, good, validate):
    made = plait.merge_streams(
        [[bad], good.slice(0, good.num_rows // 2)],
        sort_by="k",
        validate=validate,
        batch_rows=r.choice([1, 3, 8192]),
        on_duplicate=r.choice(["keep_all", "keep_first", "keep_last"]),
    )
    return batches(made), None


def through_overlay(r, bad, good, validate):
    other = good.rename_columns(["_index", "k", "w"])
    layers = [plait.Layer([bad], ["v", "k"]), plait.Layer(other, ["w"])]
    out = batches(plait.overlay(layers, validate=validate))
    return out, lambda known: [
        {"_index": row["_index"], "v": row["v"], "k": row["k"], "w": w}
        for row, w in zip(known.to_pylist(), good.column("v").to_pylist())
    ]


def through_scan(r, bad, good, validate):
    made = plait.scan([Once([bad]), Once([good])], validate=validate)
    out = batches(made.to_batches())
    return out, lambda known: known.to_pylist() + good.to_pylist()


class Once:
    """A stream of batches, which are checked as they come."""

    def __init__(self, given):
        self.stream = plait.Stream(given)

    def __arrow_c_stream__(self, requested_schema=None):
        return self.stream.__arrow_c_stream__()


def through_join(r, bad, good, validate):
    join = plait.ForeignKeyJoin(
        left_key="k", foreign_key="f", right_key="f", how="left", validate=validate
    )
    with join:
        right = pa.table({"f": [1, 2], "name": ["a", "b"]})
        return batches(join.apply(left=[bad], right=right)), None


def through_staged(r, bad, good, validate):
    keys = {"left_key": "k", "foreign_key": "f", "right_key": "f"}
    right = pa.table({"f": [1, 2], "name": ["a", "b"]})
    schemas = {"left_schema": good.schema, "right_schema": right.schema}
    sides = (
        plait.StagedLeft(**keys, **schemas, how="left", validate=validate),
        plait.StagedRight(**keys, **schemas, how="left", validate=validate),
    )
    sides[1].apply(right)
    answers = sides[1].receive(sides[0].send(bad))
    return pa.Table.from_batches([pa.record_batch(sides[0].resolve(answers))]), None


BATCH_DOORS = {
    "merge_streams": (through_merge, ("k", "v")),
    "overlay": (through_overlay, ("_index", "k", "v")),
    "scan": (through_scan, ("k", "v")),
    "join": (through_join, ("k", "f", "v")),
    "staged": (through_staged, ("k", "f", "v")),
}
DOORS = ["interleave", "interleave", *BATCH_DOORS]


def columns(r, door, v):
    """A batch of the columns that a door needs, and `v`."""
    n = len(v)
    made = {"k": pa.array(sorted(r.randrange(99) for _ in range(n)), pa.int64()), "v": v}
    if door in ("join", "staged"):
        made = {"k": pa.array(range(n), pa.int64()), "f": pa.array([1] * n, pa.int64()), "v": v}
    if door == "overlay":
        made = {"_index": pa.array(range(n), pa.int64()), **made}
    return pa.record_batch(made)


def attack(seed, validate):
    """What became of one call: a word, and what it is about."""
    r = random.Random(seed)
    door, kind = r.choice(DOORS), r.choice(list(KINDS))
    n = r.choice([0, 1, 5, 20, 70])
    array = KINDS[kind](r, n + 4).slice(r.randrange(4), n)
    good = array if door == "interleave" else columns(r, door, array)
    bad, how = broken(r, good)
    known = Broken(bad.array, copied(bad.made)) if is_whole(bad.made) else None
    about = f"{door} {kind} {how}"
    call = through_interleave if door == "interleave" else BATCH_DOORS[door][0]
    try:
        out, expected = call(r, bad, good, validate)
    except plait.InternalError as error:
        return "internal", f"{about}: {error}"
    except plait.PlaitError as error:
        return f"refused {type(error).__name__}", f"{about}: {error}"
    except BaseException:  # panics are none of `Exception`
        return "unclassified", f"{about}: {traceback.format_exc()}"
    try:
        out.validate()
    except pa.ArrowException as error:
        return "malformed", f"{about}: {error}"
    try:
        out.validate(full=True)
    except pa.ArrowException as error:
        return "content", f"{about}: {error}"
    if known is None or expected is None:
        return "passed", about
    try:
        known = (pa.array if door == "interleave" else pa.record_batch)(known)
        known.validate(full=True)
    except pa.ArrowException:
        return "passed", about  # such as null counts, which are counted anew
    same = repr(out.to_pylist()) == repr(expected(known))
    return "equal" if same else "wrong", about


def is_whole(made):
    """Whether all counts and pointers can be followed to copy a structure."""
    counts = (made.length, made.offset, made.n_buffers, made.n_children)
    below = [made.children[i] for i in range(max(0, made.n_children)) if made.children]
    return (
        all(count >= 0 for count in counts)
        and bool(made.buffers)
        and all(child and is_whole(child.contents) for child in below)
        and (not made.dictionary or is_whole(made.dictionary.contents))
    )


def main():
    first, count, validate = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for seed in range(first, first + count):
        print(seed, "begun", flush=True)
        word, about = attack(seed, validate)
        print(seed, word, "|", about.replace("\n", " "), flush=True)
    sys.stdout.flush()
    # Interpreters that end would release what was lent.
    os._exit(0)


if __name__ == "__main__":
    main()
