"""Random operations of three writers that are killed, and of a rival, on disk and on faulty S3.

    round   4 processes: append, delete, compact, expire ── kill -9, again from the first not done
            then every version of the round, by every reader ── against the rows that commits name

`PLAIT_LONG=1` runs 1,000 operations for the whole proof; otherwise 100, and 60 on S3, where each
version is read by one reader. Those of the rival come on top. The oracle replays what commits say
was done, not the files that they name. `expire` is called for the begin of the round:
files that versions before it alone need go, and all versions since must be read.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import plait

from .table_writer import RIVAL, made, operation

deltalake = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")
pytestmark = pytest.mark.local

HERE = Path(__file__).parent
IS_LONG = bool(os.environ.get("PLAIT_LONG"))
WRITERS = (1, 2, 3, RIVAL)
# Operations of one writer in a round.
ROUND = 10


class Store:
    """Where the table is: on disk, or on a server that only Plait reaches through faults."""

    def __init__(self, path, server=None, proxy=None):
        self.path, self.server = path, server
        self.operations = 1000 if IS_LONG else 100 if server is None else 60
        # Versions that have a file of the rival that is not in order.
        self.unsorted = 0
        self.plain = server and server.options()
        # The clock of `expire` is read later than that of its caller: on a busy machine by seconds.
        self.delay_s = 2 if server is None else 8
        self.faulty = server and {
            **server.options(proxy.url),
            "retry_init_backoff_ms": "10",
            "timeout": "120s",
        }

    def commits(self, known):
        """Bytes of the commits that are not known, by version."""
        if self.server is None:
            names = sorted(Path(self.path, "_delta_log").glob("*.json"))
            return {int(n.stem): n.read_bytes() for n in names if int(n.stem) not in known}
        client = self.server.client()
        bucket, _, prefix = self.path.removeprefix("s3://").partition("/")
        pages = client.get_paginator("list_objects_v2")
        pages = pages.paginate(Bucket=bucket, Prefix=f"{prefix}/_delta_log/")
        keys = [o["Key"] for page in pages for o in page.get("Contents", ())]
        found = {int(Path(k).stem): k for k in keys if re.search(r"/\d{20}\.json$", k)}
        return {
            version: client.get_object(Bucket=bucket, Key=key)["Body"].read()
            for version, key in found.items()
            if version not in known
        }


class Oracle:
    """The rows of each version, by what its commit says was done."""

    def __init__(self):
        self.rows = {}
        self.batches = []

    def follow(self, store):
        """Replays the commits since."""
        for version, text in sorted(store.commits(self.rows).items()):
            assert version == len(self.rows), "no version is absent"
            info = next(json.loads(li) for li in text.splitlines() if b'"commitInfo"' in li)
            info, before = info["commitInfo"], self.rows.get(version - 1, Counter())
            batch = info.get("plait.batch_id") or info.get("batch")
            if batch:
                self.batches.append(batch)
                keys = operation(SEED, *map(int, batch.split()))[1]
                before = before + Counter((k, batch) for k in keys)
            elif info["operation"] == "DELETE":
                gone = int(re.search(r"\d+", info["operationParameters"]["predicate"])[0])
                before = Counter({row: n for row, n in before.items() if row[0] != gone})
            self.rows[version] = before


SEED = 5


class Writer:
    """A process that does operations, and is killed now and then."""

    def __init__(self, me, store, rng):
        self.me, self.store, self.rng = me, store, rng
        self.process, self.kills, self.removed, self.error = None, 0, 0, None

    def start(self):
        storage = self.store.plain if self.me == RIVAL else self.store.faulty
        self.process = subprocess.Popen(
            [sys.executable, HERE / "table_writer.py", self.store.path]
            + [str(SEED), str(self.me), json.dumps(storage)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, first, end, since):
        """Operations of a round."""
        try:
            while first < end:
                first = self.go_on(first, end, since)
        except BaseException as error:
            self.error = error

    def go_on(self, first, end, since):
        """Until they are done, or the process is killed; gives the first that is not done."""
        if self.process is None:
            self.start()
        self.process.stdin.write(f"{first} {end} {since}\n")
        self.process.stdin.flush()
        dies = self.me != RIVAL and self.rng.random() < 0.6
        victim = self.rng.randrange(first, end) if dies else None
        is_killed = False
        while first < end or is_killed:
            if first == victim:
                time.sleep(self.rng.random() * (0.1 if self.store.server is None else 0.4))
                self.process.kill()
                victim, is_killed, self.kills = None, True, self.kills + 1
            line = self.process.stdout.readline()
            if not line:
                _, error = self.process.communicate()
                if self.process.returncode != -9:
                    raise AssertionError(f"writer {self.me}, {first}: {error}")
                self.process = None
                return first
            at, removed = map(int, line.split())
            assert at == first
            first, self.removed = at + 1, self.removed + removed
        return first

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


def rows_of(table):
    return Counter(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def ours(store, version):
    """The rows in order; in the order of files where a rewrite of the rival joined two files."""
    table = plait.Table(store.path, storage_options=store.faulty)
    try:
        return rows_of(pa.table(table.read(version=version)))
    except pa.ArrowInvalid as error:
        assert re.search(r"key goes backwards: file `[^`]*/part-\d+-[^`/]*-c000\.", str(error)), (
            error
        )
    store.unsorted += 1
    names = [f"{store.path}/{file.name}" for file in table.files(version=version)]
    return rows_of(pa.table(plait.read(names, sort_by=[], storage_options=store.faulty)))


READERS = {
    "deltalake": lambda store, version: rows_of(
        deltalake.DeltaTable(
            store.path, version=version, storage_options=store.plain
        ).to_pyarrow_table()
    ),
    "polars": lambda store, version: Counter(
        pl.read_delta(store.path, version=version, storage_options=store.plain)
        .select("k", "v")
        .rows()
    ),
    "plait": ours,
}


def check(store, oracle, first, last):
    """Every reader sees each row once, in each version; on S3, one reader a version in turn."""
    for version in range(first, last + 1):
        readers = list(READERS.items())
        if store.server is not None and not IS_LONG:
            readers = [readers[version % len(readers)]]
        for name, read in readers:
            assert read(store, version) == oracle.rows[version], (name, version)


def check_program(oracle, count):
    """Every append is one commit, in the order of its writer; gives the rows that are left."""
    left = Counter({(-1, "first"): 1})
    for me in WRITERS:
        done = [operation(SEED, me, i) for i in range(count)]
        appended = [value for act, _, value in done if act == "append"]
        assert [b for b in oracle.batches if b.split()[0] == str(me)] == appended
        for act, keys, value in done:
            if act == "append":
                left += Counter((k, value) for k in keys)
            elif act == "delete":
                left = Counter({row: n for row, n in left.items() if row[0] != keys[0]})
    return left


def prove(store, partition_by=()):
    """All of it; gives figures."""
    table = plait.Table(
        store.path, sort_by="k", partition_by=partition_by, storage_options=store.faulty
    )
    table.append(made([-1], "first"))
    oracle, rng = Oracle(), random.Random(SEED)
    oracle.rows[0] = Counter({(-1, "first"): 1})
    writers = [Writer(me, store, random.Random(rng.random())) for me in WRITERS]
    count, before, checked = -(-store.operations // (len(WRITERS) - 1)), 0, 0
    started = time.monotonic()
    try:
        for first in range(0, count, ROUND):
            since, end = time.time() - store.delay_s, min(first + ROUND, count)
            threads = [threading.Thread(target=w.run, args=(first, end, since)) for w in writers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for writer in writers:
                if writer.error is not None:
                    raise writer.error
            oracle.follow(store)
            newest = max(oracle.rows)
            check(store, oracle, before, newest)
            checked += newest - before + 1
            before = newest
    finally:
        for writer in writers:
            writer.stop()
    assert oracle.rows[before] == check_program(oracle, count)
    table.compact(unsorted="sort", policy="full")
    table.expire(time.time() - since)
    oracle.follow(store)
    check(store, oracle, before, max(oracle.rows))
    assert table.verify().ok
    lost = 0
    for version in range(0, before, max(1, before // 50)):
        # What versions before the retention need may be gone: then they are told, not guessed.
        try:
            assert ours(store, version) == oracle.rows[version]
        except plait.SourceNotFound:
            lost += 1
    kills, removed = (sum(getattr(w, name) for w in writers) for name in ("kills", "removed"))
    assert kills and removed and lost
    print(
        f"{count * (len(WRITERS) - 1)} operations and {count} of the rival, {kills} kills, {before + 1} versions, "
        f"{checked} checked by {len(READERS)} readers, {removed} files expired meanwhile, "
        f"{store.unsorted} times unsorted, {lost} of {len(range(0, before, max(1, before // 50)))} old versions gone, "
        f"{time.monotonic() - started:.0f} s"
    )


@pytest.mark.long
@pytest.mark.slow
def test_random_operations_on_disk(tmp_path):
    prove(Store(str(tmp_path / "t")))


@pytest.mark.long
def test_random_operations_on_partitions(tmp_path):
    prove(Store(str(tmp_path / "t")), ["p"])


@pytest.mark.long
def test_random_operations_on_a_store_with_faults(s3_server, s3_proxy):
    s3_server.client().create_bucket(Bucket="random")
    s3_proxy.share = 0.02
    prove(Store("s3://random/t", s3_server, s3_proxy))
    print(f"{len(s3_proxy.failed)} of {len(s3_proxy.log)} requests failed")
