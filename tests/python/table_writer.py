"""A process of `test_table_random.py`: does operations to a table, and says which are done.

It reads lines `first end since`, does the operations of these numbers, and prints a line after each
of them. Files that were replaced after `since` are needed, so `expire` is called for that time.
"""

from __future__ import annotations

import json
import random
import sys
import time

RIVAL = 9


def operation(seed, me, i):
    """What a writer does next, to keys of its own: the same whenever it is asked."""
    rng = random.Random(f"{seed} {me} {i}")
    acts = ["append"] * 5 + (["delete"] * 2 if me == RIVAL else ["delete", "compact", "expire"])
    keys = sorted(me * 1000 + rng.randrange(30) for _ in range(4))
    return rng.choice(acts), keys, f"{me} {i}"


def made(keys, value):
    """Rows of an append."""
    import pyarrow as pa

    columns = {"k": pa.array(keys, pa.int64()), "v": [value] * len(keys)}
    return pa.table({**columns, "p": pa.array([k % 3 for k in keys], pa.int64())})


def of_rival(path, storage):
    """The operations of deltalake, which is done again where others were first."""
    import deltalake

    def do(act, keys, value, since):
        while True:
            try:
                if act == "append":
                    said = deltalake.CommitProperties(custom_metadata={"batch": value})
                    deltalake.write_deltalake(
                        path,
                        made(keys, value),
                        mode="append",
                        storage_options=storage,
                        commit_properties=said,
                    )
                else:
                    table = deltalake.DeltaTable(path, storage_options=storage)
                    table.delete(f"k = {keys[0]}")
                return 0
            except deltalake.exceptions.CommitFailedError:
                pass

    return do


def of_plait(path, storage):
    """The operations of `plait.Table`."""
    import plait

    table = plait.Table(path, storage_options=storage)

    def do(act, keys, value, since):
        if act == "append":
            table.append(made(keys[::-1], value), batch_id=value)
        elif act == "delete":
            table.delete(f"k = {keys[0]}")
        elif act == "compact":
            table.compact(max_depth=2, unsorted="sort")
        else:
            return len(table.expire(time.time() - since).removed)
        return 0

    return do


def main():
    path, seed, me, storage = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    do = (of_rival if me == RIVAL else of_plait)(path, json.loads(storage))
    for line in sys.stdin:
        first, end, since = line.split()
        for i in range(int(first), int(end)):
            print(i, do(*operation(seed, me, i), float(since)), flush=True)


if __name__ == "__main__":
    main()
