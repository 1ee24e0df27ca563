"""Compactions of folders that are URLs: commits, crashes, faults, stores that cannot commit."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _native
from plait._lease import end
from plait.cli import main

pytestmark = [pytest.mark.local, pytest.mark.slow]  # the tests name URLs themselves

COMPACT = Path(__file__).with_name("compact_staged.py")


class Folder:
    """A folder in a bucket, written and looked at without Plait."""

    def __init__(self, server, name: str) -> None:
        self.server, self.prefix = server, name
        self.url = f"s3://compact/{name}"
        self.client = server.client()
        self.client.create_bucket(Bucket="compact")
        self.options = {**server.options(), "retry_init_backoff_ms": "10", "timeout": "20s"}

    def write(self, name: str, keys: list[int]) -> None:
        out = pa.BufferOutputStream()
        pq.write_table(pa.table({"k": sorted(keys), "from": [name] * len(keys)}), out)
        body = out.getvalue().to_pybytes()
        self.client.put_object(Bucket="compact", Key=f"{self.prefix}/{name}", Body=body)

    def names(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket="compact", Prefix=f"{self.prefix}/")
        keys = [entry["Key"] for page in found for entry in page.get("Contents", ())]
        return [key.removeprefix(f"{self.prefix}/") for key in keys]

    def manifest(self) -> dict:
        return json.loads(_native.commit(json.dumps({"folder": self.url, **self.stored})))[
            "manifest"
        ]

    @property
    def stored(self) -> dict:
        return {"storage_options": self.options}

    def rows(self, below: str = "", **options) -> Counter:
        url = f"{self.url}/{below}"
        read = pa.table(plait.scan(url, storage_options={**self.options, **options}))
        columns = (read.column(name).to_pylist() for name in ("k", "from"))
        return Counter(zip(*columns, strict=True))

    def compact(self, **options) -> plait.CompactReport:
        how = {"policy": "overlap", "sort_by": "k", "yes": True, **options}
        return plait.compact(self.url, **{"storage_options": self.options, **how})


@pytest.fixture
def folder(s3_server, request):
    made = Folder(s3_server, f"events ü {request.node.name}".replace("/", "-"))
    rng = random.Random(1)
    for day in (1, 2):
        for part in range(6):
            keys = [rng.randrange(part * 10, part * 10 + 15) for _ in range(50)]
            made.write(f"day={day}/{part:02}.parquet", keys)
    return made


def test_a_url_is_compacted_read_and_expired_as_a_folder_is(folder):
    before = folder.rows()
    dry = folder.compact(yes=False)
    assert dry.dry_run and [len(group.sources) for group in dry.groups] == [6, 6]
    assert not [name for name in folder.names() if name.startswith("_plait")]
    done = folder.compact()
    assert [len(group.outputs) for group in done.groups] == [1, 1] and done.version == 2
    made = [name for name in folder.names() if name.endswith(".parquet") and "_plait" in name]
    assert sorted(name.rpartition("/")[0] for name in made) == [
        "_plait/files/day=1",
        "_plait/files/day=2",
    ]
    assert folder.rows() == before
    assert sum(folder.rows("day=1").values()) == 300
    assert folder.compact().groups == ()
    planned = plait.plan(f"{folder.url}/day=1/", sort_by="k", storage_options=folder.options)
    assert len(planned.sources) == 1
    folder.write("day=1/late.parquet", [5, 50, 500])
    assert sum(folder.rows("day=1").values()) == 303
    assert [len(g.sources) for g in folder.compact(policy="full").groups] == [2]
    options = {"storage_options": folder.options, "yes": True}
    assert plait.expire(folder.url, **options).replaced == ()
    dry = plait.expire(folder.url, retention=0, storage_options=folder.options)
    assert len(dry.replaced) == 14 and dry.bytes > 0
    assert len(plait.expire(folder.url, retention=0, **options).replaced) == 14
    assert plait.expire(folder.url, retention=0, **options).replaced == ()
    left = [name for name in folder.names() if name.endswith(".parquet")]
    assert len(left) == 2 and sum(folder.rows().values()) == 603


def test_objects_are_looked_up_and_removed_many_at_a_time(folder, s3_proxy):
    for part in range(6, 30):
        folder.write(f"day=1/{part:02}.parquet", [part])
    made = []

    def kind(method: str, path: str) -> str:
        if method == "PUT" and "day=1/" in unquote(path):
            made.append(path)
        if not made and method == "HEAD" and "day=1/" in unquote(path):
            return "HEAD of a merge"
        return method if path.endswith(".parquet") else "bulk"

    most = s3_proxy.watch(kind)
    options = {**folder.options, "aws_endpoint_url": s3_proxy.url}
    done = folder.compact(storage_options=options)
    assert sum(len(group.sources) for group in done.groups) == 36
    # Opened to be merged; looked up before that is published, and again to be replaced.
    assert most["GET"] > 8 and most["HEAD"] > 8, most
    assert most["HEAD of a merge"] > 8, most
    most.clear()
    gone = plait.expire(folder.url, retention=0, yes=True, storage_options=options)
    assert len(gone.replaced) == 36
    # Stores remove an object by a request of their own, or as a list of one.
    assert most["HEAD"] > 8 and max(most["DELETE"], most["bulk"]) > 8, most


def test_a_url_without_files_is_an_error_and_not_a_folder_with_nothing_to_do(folder):
    misspelt = folder.url.replace("events", "evnets")
    for yes in (True, False):
        with pytest.raises(plait.SourceNotFound, match="evnets"):
            plait.compact(misspelt, sort_by="k", yes=yes, storage_options=folder.options)
    # A folder whose files all were removed by a compaction is there.
    folder.compact(policy="size_tiered", drop_where="k < 1000")
    plait.expire(folder.url, retention=0, yes=True, storage_options=folder.options)
    assert not [name for name in folder.names() if name.endswith(".parquet")]
    assert folder.compact().groups == ()


def run(folder: Folder, stage: str, options: dict | None = None) -> subprocess.Popen:
    options = json.dumps(options or folder.options)
    command = [sys.executable, COMPACT, folder.url, stage, "0", options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
def test_two_compactions_at_once_end_as_one(folder):
    before = folder.rows()
    both = [run(folder, "") for _ in range(2)]
    told = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert sum(int(out.split()[0]) for out, _ in told) == 2
    assert folder.rows() == before
    assert folder.compact(yes=False).groups == ()
    manifests = [name for name in folder.names() if "manifest-" in name]
    # Each takes a lease, groups are committed once, and a lease may end by itself. One that starts
    # after the other has ended finds nothing to do.
    assert 2 <= len(manifests) <= 6


@pytest.mark.long
def test_of_two_that_commit_the_same_files_one_finds_them_replaced(folder, monkeypatch):
    before = folder.rows()
    execute, others = plait.Plan.execute, []

    def beaten(self, *args, **options):
        report = execute(self, *args, **options)
        if not others:
            others.append(None)
            others.append(folder.compact())
        return report

    monkeypatch.setattr(plait.Plan, "execute", beaten)
    mine = folder.compact()
    assert (len(mine.groups), mine.lost) == (0, 1 + 1)
    assert len(others[1].groups) == 2 and "another process" in str(mine)
    assert folder.rows() == before


@pytest.mark.long
@pytest.mark.parametrize(
    "stage", ["before execute", "after execute", "before commit", "after commit"]
)
def test_a_killed_compaction_leaves_old_or_new(folder, stage):
    before = folder.rows()
    process = run(folder, stage)
    assert (process.wait(60), process.communicate()[1]) == (-9, "")
    assert folder.rows() == before
    folder.compact()
    assert folder.rows() == before and folder.compact().groups == ()
    # A bucket has no locks: what the process made is out of reach until its lease has ended.
    for lease in folder.manifest()["leases"]:
        end(folder.url, lease["id"], folder.options)
    plait.expire(folder.url, retention=0, storage_options=folder.options, yes=True)
    assert folder.rows() == before
    assert len([name for name in folder.names() if name.endswith(".parquet")]) == 2


@pytest.mark.long
def test_failing_requests_lose_nothing_and_count_nothing_twice(folder, s3_proxy):
    before = folder.rows()
    s3_proxy.share = 0.1
    faulty = {**folder.options, "aws_endpoint_url": s3_proxy.url}
    done = folder.compact(storage_options=faulty, min_commit_interval=0)
    assert (len(done.groups), done.lost, done.version) == (2, 0, 3)
    assert folder.rows(**faulty) == before
    plait.expire(folder.url, retention=0, storage_options=faulty, yes=True)
    assert folder.rows() == before
    assert {"500", "503"} <= set(s3_proxy.failed)


def test_a_commit_whose_answer_was_lost_counts_once(folder, s3_proxy):
    s3_proxy.lose = lambda method, path: method == "PUT" and "manifest-00000002" in path
    done = folder.compact(storage_options={**folder.options, "aws_endpoint_url": s3_proxy.url})
    assert s3_proxy.failed == ["lost"]
    assert (len(done.groups), done.lost, done.version) == (2, 0, 2)


@pytest.mark.long
def test_a_commit_whose_output_is_gone_when_it_is_named_is_taken_back(folder, s3_proxy):
    """The output goes between the last look at it and the manifest that names it."""
    before, gone = folder.rows(), []

    def vanish(method: str, path: str) -> bool:
        # The first manifest is that of the lease.
        if method == "PUT" and "manifest-00000002" in path and not gone:
            gone.extend(name for name in folder.names() if "_plait/files/" in name)
            for name in gone:
                folder.client.delete_object(Bucket="compact", Key=f"{folder.prefix}/{name}")
        return False

    s3_proxy.lose = vanish
    with pytest.raises(plait.SourceChanged, match="removed meanwhile"):
        options = {**folder.options, "aws_endpoint_url": s3_proxy.url}
        # One group after the other: else there may be two outputs.
        folder.compact(storage_options=options, threads=1, min_commit_interval=0)
    assert len(gone) == 1 and folder.rows() == before
    assert len(folder.compact().groups) == 2 and folder.rows() == before
    options = {"storage_options": folder.options, "retention": 0, "yes": True}
    assert len(plait.expire(folder.url, **options).replaced) == 12
    assert folder.rows() == before


@pytest.mark.long
def test_an_expire_that_was_stopped_for_long_removes_nothing_that_counts(folder, s3_proxy):
    """After its first removal others append, compact and expire, more than once."""
    folder.compact()
    rounds = []

    def stop(method: str, path: str) -> bool:
        if method == "POST" and path.endswith("?delete") and not rounds:
            for part in (1, 2):
                rounds.append(part)
                for name in "ab":
                    folder.write(f"day=1/late-{part}{name}.parquet", [part, part + 100])
                before = folder.rows()
                folder.compact(policy="full")
                options = {"storage_options": folder.options, "retention": 0, "yes": True}
                plait.expire(folder.url, **options)
                assert folder.rows() == before
        return False

    s3_proxy.lose = stop
    options = {**folder.options, "aws_endpoint_url": s3_proxy.url, "timeout": "300s"}
    plait.expire(folder.url, retention=0, storage_options=options, yes=True)
    assert rounds == [1, 2] and sum(folder.rows().values()) == 600 + 8


def test_stores_that_cannot_commit_are_refused_before_anything_is_merged(folder, s3_proxy):
    disabled = {**folder.options, "aws_conditional_put": "disabled"}
    with pytest.raises(plait.Unsupported, match="only if it is absent"):
        folder.compact(storage_options=disabled)
    # A server that does not know the condition replaces what is there, and says so.
    s3_proxy.drop_headers = ("if-none-match",)
    with pytest.raises(plait.Unsupported, match="only if it is absent"):
        folder.compact(storage_options={**folder.options, "aws_endpoint_url": s3_proxy.url})
    assert not [name for name in folder.names() if "_plait/files" in name]


def test_a_store_of_the_caller_is_compacted(folder):
    obstore = pytest.importorskip("obstore.store")
    store = obstore.MemoryStore()
    for part in range(3):
        out = pa.BufferOutputStream()
        pq.write_table(pa.table({"k": [part, part + 5]}), out)
        store.put(f"events/{part}.parquet", out.getvalue().to_pybytes())
    options = {"policy": "full", "sort_by": "k", "storage_options": store, "yes": True}
    assert len(plait.compact("events", **options).groups) == 1
    assert plait.compact("events", **options).groups == ()
    assert len(plait.expire("events", retention=0, storage_options=store, yes=True).replaced) == 3
    names = [entry["path"] for batch in store.list() for entry in batch]
    assert len([name for name in names if name.endswith(".parquet")]) == 1
    assert pa.table(plait.scan("events", storage_options=store)).num_rows == 6
    # Settings reach the engine, not the store: the same folder by its URL and by its name.
    config = {n: v for n, v in folder.server.options().items() if n != "allow_http"}
    client = {"allow_http": True}
    s3 = obstore.S3Store("compact", prefix=folder.prefix, config=config, client_options=client)
    done = plait.compact("", policy="overlap", sort_by="k", storage_options=s3, yes=True)
    assert len(done.groups) == 2 and folder.compact().groups == ()


def test_an_fsspec_file_system_cannot_commit_and_a_local_one_can(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    with memory.open("/fs-events/a.parquet", "wb") as file:
        pq.write_table(pa.table({"k": [1]}), file)
    with memory.open("/fs-events/b.parquet", "wb") as file:
        pq.write_table(pa.table({"k": [1]}), file)
    options = {"policy": "full", "sort_by": "k", "yes": True}
    with pytest.raises(plait.Unsupported, match="only if it is absent"):
        plait.compact("fs-events", storage_options=memory, **options)
    memory.rm("/fs-events", recursive=True)
    for name in ("a", "b"):
        pq.write_table(pa.table({"k": [1]}), tmp_path / f"{name}.parquet")
    local = fsspec.filesystem("file")
    assert len(plait.compact(str(tmp_path), storage_options=local, **options).groups) == 1
    assert plait.compact(f"file://{tmp_path}", **options).groups == ()


def test_a_damaged_manifest_is_refused_and_not_passed_over(folder):
    folder.compact()
    key = f"{folder.prefix}/_plait/manifest-00000009.json"
    for text, error in (("{", plait.CorruptSource), ('{"version": 4}', plait.Unsupported)):
        folder.client.put_object(Bucket="compact", Key=key, Body=text.encode())
        with pytest.raises(error, match="manifest"):
            folder.rows()
        with pytest.raises(error, match="manifest"):
            folder.compact()


def test_the_command_line_compacts_urls(folder, capsys):
    settings = [
        part for pair in folder.options.items() for part in ("--storage-options", "=".join(pair))
    ]
    arguments = ["compact", folder.url, "--policy", "overlap", "--sort-by", "k", *settings]
    assert main([*arguments, "--yes"]) == 0
    assert "merged 12 files into 2 files" in capsys.readouterr().out
    assert main(["expire", folder.url, "--retention", "0s", "--yes", *settings]) == 0
    assert "removed 12 files" in capsys.readouterr().out
