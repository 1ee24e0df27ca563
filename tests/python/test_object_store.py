"""Object stores: what is asked of them, what is left in them, and what happens when they fail."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _native
from plait.cli import main

ROWS = 60_000
NUMBERS = itertools.count()


def parquet(table: pa.Table, **options) -> bytes:
    written = io.BytesIO()
    pq.write_table(table, written, **options)
    return written.getvalue()


def rows(part: int, parts: int) -> pa.Table:
    keys = list(range(part, ROWS, parts))
    return pa.table({"k": keys, "text": [f"{k * 7919 % 100_003:06}" for k in keys]})


class Bucket:
    """A bucket of its own for one test, with four sorted sources below `in`."""

    def __init__(self, server, name: str) -> None:
        self.server, self.name, self.url = server, name, f"s3://{name}"
        assert server.request("PUT", f"/{name}")[0] == 200
        for part in range(4):
            self.put(f"in/{part}.parquet", parquet(rows(part, 4), row_group_size=8_000))

    def put(self, key: str, body: bytes) -> None:
        assert self.server.request("PUT", f"/{self.name}/{key}", body)[0] == 200

    def get(self, key: str) -> bytes:
        status, body = self.server.request("GET", f"/{self.name}/{key}")
        assert status == 200, key
        return body

    def keys(self, prefix: str = "") -> list[str]:
        _, text = self.server.request("GET", f"/{self.name}?list-type=2&prefix={prefix}")
        return [part.split("</Key>")[0] for part in text.decode().split("<Key>")[1:]]

    def pending(self) -> int:
        _, text = self.server.request("GET", f"/{self.name}?uploads")
        return text.count(b"<UploadId>")

    def table(self, prefix: str) -> pa.Table:
        return pa.concat_tables(
            pq.read_table(pa.BufferReader(self.get(k))) for k in self.keys(prefix)
        )


@pytest.fixture
def bucket(s3_server, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[:40].strip("-")
    return Bucket(s3_server, f"b-{name}-{os.getpid()}-{next(NUMBERS)}")


@pytest.fixture
def options(s3_server):
    return s3_server.options()


def expected() -> pa.Table:
    return rows(0, 1)


pytestmark = pytest.mark.local  # these tests bring their own bucket


def test_sources_and_outputs_may_be_objects(bucket, options):
    report = plait.merge(
        f"{bucket.url}/in", f"{bucket.url}/out", sort_by="k", outputs=3, storage_options=options
    )
    assert [o.path.rpartition("/")[0] for o in report.outputs] == [f"{bucket.url}/out"] * 3
    assert bucket.table("out/") == expected()
    assert bucket.pending() == 0
    found = plait.verify(
        f"{bucket.url}/out/*.parquet", against=f"{bucket.url}/in/", storage_options=options
    )
    assert found.ok and found.disjoint
    assert plait.inspect(report.outputs[0].path, storage_options=options).rows == ROWS // 3


def test_scans_read_objects(bucket, options, capsys):
    drifted = rows(0, 4).set_column(0, "k", pa.array(range(15_000), pa.int32()))
    bucket.put("in/9.parquet", parquet(drifted.append_column("more", drifted["k"])))
    scan = plait.scan(f"{bucket.url}/in", implicit=["_filename"], storage_options=options)
    assert scan.schema.names == ["k", "text", "more", "_filename"]
    read = pa.table(scan)
    wanted = pa.concat_tables(
        [*(rows(part, 4) for part in range(4)), drifted.cast(rows(0, 4).schema)]
    )
    assert read.select(["k", "text"]) == wanted
    assert read["more"].null_count == ROWS
    assert read["_filename"].unique().to_pylist() == [f"{n}.parquet" for n in (0, 1, 2, 3, 9)]
    followed = plait.scan(
        [f"{bucket.url}/in/{n}.parquet" for n in (0, 1)], mode="follow", storage_options=options
    )
    assert sum(pa.record_batch(b).num_rows for b in followed.to_batches()) == ROWS // 2
    settings = [f"--storage-options={name}={value}" for name, value in options.items()]
    assert main(["scan", f"{bucket.url}/in/*.parquet", "--json", *settings]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == ROWS + 15_000
    with pytest.raises(plait.InvalidArgument, match="aws_regoin"):
        plait.scan(f"{bucket.url}/in", storage_options={"aws_regoin": "x"})


def test_streams_read_objects(bucket, options):
    last = pa.table({"k": [ROWS], "text": ["last"]})
    sources = [last, *(f"{bucket.url}/in/{part}.parquet" for part in range(4))]
    stream = plait.merge_streams(sources, sort_by="k", storage_options=options)
    assert pa.table(stream) == pa.concat_tables([expected(), last])
    folder = plait.merge_streams([f"{bucket.url}/in"], sort_by="k", storage_options=options)
    assert pa.table(folder) == expected()


def test_streams_refuse_wrong_settings_and_name_absent_objects(bucket, options):
    def opened(name, **changed):
        settings = {**options, **changed}
        return plait.merge_streams([f"{bucket.url}/{name}"], sort_by="k", storage_options=settings)

    with pytest.raises(plait.InvalidArgument, match="aws_regoin"):
        opened("in/0.parquet", aws_regoin="x")
    with pytest.raises(plait.InvalidArgument, match="aws_regoin"):
        plait.merge_streams([expected()], sort_by="k", storage_options={"aws_regoin": "x"})
    with pytest.raises(plait.SourceNotFound, match=r"absent\.parquet"):
        opened("absent.parquet")
    with pytest.raises(plait.StorageError):
        opened("in/0.parquet", aws_endpoint_url="http://127.0.0.1:1", max_retries="0")


def test_objects_have_the_bytes_that_files_have(bucket, options, tmp_path):
    for part in range(4):
        (tmp_path / f"{part}.parquet").write_bytes(bucket.get(f"in/{part}.parquet"))
    local = plait.merge(tmp_path, tmp_path / "out", sort_by="k", outputs=2, sha256=True)
    remote = plait.merge(
        f"{bucket.url}/in",
        f"{bucket.url}/out",
        sort_by="k",
        outputs=2,
        sha256=True,
        verify="content",
        storage_options=options,
    )
    assert [o.sha256 for o in local.outputs] == [o.sha256 for o in remote.outputs]
    names = [os.path.basename(o.path) for o in local.outputs]
    assert [k.removeprefix("out/") for k in bucket.keys("out/")] == names
    for name in names:
        assert bucket.get(f"out/{name}") == (tmp_path / "out" / name).read_bytes()


def test_local_sources_go_to_objects_and_back(bucket, options, tmp_path):
    pq.write_table(rows(0, 1), tmp_path / "a.parquet")
    up = f"{bucket.url}/up/one.parquet"
    plait.merge(tmp_path / "a.parquet", up, sort_by="k", storage_options=options)
    file_url = (tmp_path / "down.parquet").as_uri()
    plait.merge(up, file_url, storage_options=options)
    assert pq.read_table(tmp_path / "down.parquet") == expected()


# Within the smaller limit, outputs of the tests are not small: they go up in parts.
LIMITS = {"one request": "512MB", "parts": "16MB"}


def ends_upload(how: str, method: str, path: str) -> bool:
    """Whether an output becomes visible by this request."""
    if how == "parts":
        return method == "POST" and "uploadId=" in path
    return method == "PUT" and "/out/" in path and "partNumber=" not in path


@pytest.mark.parametrize("how", LIMITS)
def test_nothing_is_visible_before_all_outputs_are_whole(bucket, s3_proxy, how):
    options = bucket.server.options(s3_proxy.url)
    plait.merge(
        f"{bucket.url}/in",
        f"{bucket.url}/out",
        sort_by="k",
        outputs=3,
        memory_limit=LIMITS[how],
        storage_options=options,
    )
    log = list(enumerate(s3_proxy.log))
    ends = [i for i, (method, path) in log if ends_upload(how, method, path)]
    before = [i for i, (_, path) in log if "partNumber=" in path or "/in/" in path]
    assert len(ends) == 3 and max(before) < min(ends)
    begun = [path for method, path in s3_proxy.log if method == "POST" and "uploads=" in path]
    assert len(begun) == (3 if how == "parts" else 0)


def test_small_outputs_go_up_in_parts_where_puts_have_no_condition(bucket, s3_proxy):
    options = bucket.server.options(s3_proxy.url) | {"aws_conditional_put": "disabled"}
    out = f"{bucket.url}/out/all.parquet"
    plait.merge(f"{bucket.url}/in", out, sort_by="k", storage_options=options)
    assert bucket.table("out/") == expected() and bucket.pending() == 0
    assert [path for method, path in s3_proxy.log if ends_upload("parts", method, path)]


def test_a_store_that_ignores_conditions_keeps_what_is_there(bucket, s3_proxy):
    """The look before a small output is put finds what came after the merge began."""
    s3_proxy.drop_headers = ("if-none-match",)
    options = bucket.server.options(s3_proxy.url)
    looks = []

    class Log(list):
        def append(self, entry):
            super().append(entry)
            if entry[0] == "HEAD" and "/in/" in entry[1] and not looks:
                looks.append(entry)
                bucket.put("out/all.parquet", b"faster")

    s3_proxy.log = Log()
    out = f"{bucket.url}/out/all.parquet"
    with pytest.raises(plait.OutputExists):
        plait.merge(f"{bucket.url}/in", out, sort_by="k", storage_options=options)
    assert looks and bucket.get("out/all.parquet") == b"faster"


def test_an_output_is_never_replaced(bucket, options):
    there = f"{bucket.url}/out/all.parquet"
    bucket.put("out/all.parquet", b"somebody's")
    with pytest.raises(plait.OutputExists, match=r"all\.parquet"):
        plait.merge(f"{bucket.url}/in", there, sort_by="k", storage_options=options)
    with pytest.raises(plait.OutputExists):
        plait.merge(f"{bucket.url}/in", f"{bucket.url}/out", sort_by="k", storage_options=options)
    assert bucket.get("out/all.parquet") == b"somebody's"
    plait.merge(
        f"{bucket.url}/in",
        f"{bucket.url}/out",
        sort_by="k",
        if_exists="add",
        storage_options=options,
    )
    assert len(bucket.keys("out/")) == 2
    with pytest.raises(plait.OutputExists, match="one of the sources"):
        one = f"{bucket.url}/in/0.parquet"
        plait.merge(one, one, sort_by="k", storage_options=options)


@pytest.mark.parametrize("how", LIMITS)
def test_an_output_that_appears_meanwhile_is_kept(bucket, s3_proxy, how):
    options = bucket.server.options(s3_proxy.url)
    put = threading.Event()

    class Log(list):
        def append(self, entry):
            super().append(entry)
            # Completing has begun: the look before it is over, only the condition is left.
            if ends_upload(how, *entry):
                bucket.put("out/all.parquet", b"faster")
                put.set()

    s3_proxy.log = Log()
    with pytest.raises(plait.OutputExists, match="meanwhile"):
        plait.merge(
            f"{bucket.url}/in",
            f"{bucket.url}/out/all.parquet",
            sort_by="k",
            memory_limit=LIMITS[how],
            storage_options=options,
        )
    assert put.is_set()
    assert bucket.get("out/all.parquet") == b"faster"
    assert bucket.pending() == 0


def test_the_same_merge_twice_makes_the_same_objects(bucket, options):
    merge = {"sort_by": "k", "outputs": 2, "storage_options": options}
    first = plait.merge(f"{bucket.url}/in", f"{bucket.url}/out", **merge)
    before = {key: bucket.get(key) for key in bucket.keys("out/")}
    # One of two was published when the process died: the other is added.
    bucket.server.request("DELETE", f"/{bucket.name}/{bucket.keys('out/')[1]}")
    again = plait.merge(f"{bucket.url}/in", f"{bucket.url}/out", **merge)
    assert [o.path for o in again.outputs] == [o.path for o in first.outputs]
    assert {key: bucket.get(key) for key in bucket.keys("out/")} == before
    assert bucket.pending() == 0


@pytest.mark.parametrize("how", LIMITS)
def test_an_answer_that_is_lost_after_completing_is_no_error(bucket, s3_proxy, how):
    options = bucket.server.options(s3_proxy.url) | {"retry_init_backoff_ms": "10"}

    class Log(list):
        def append(self, entry):
            super().append(entry)
            completes = ends_upload(how, *entry)
            s3_proxy.share = 1.0 if completes and not s3_proxy.failed else 0.0

    s3_proxy.log = Log()
    kinds, type(s3_proxy).KINDS = type(s3_proxy).KINDS, ("cut",)
    try:
        plait.merge(
            f"{bucket.url}/in",
            f"{bucket.url}/out/all.parquet",
            sort_by="k",
            memory_limit=LIMITS[how],
            storage_options=options,
        )
    finally:
        type(s3_proxy).KINDS = kinds
    assert s3_proxy.failed == ["cut"]
    assert bucket.table("out/") == expected()


def test_a_small_file_whose_answer_was_lost_is_there_and_one_of_another_is_not(bucket, s3_proxy):
    options = bucket.server.options(s3_proxy.url) | {"retry_init_backoff_ms": "10"}
    asked = {"folder": f"{bucket.url}/files", "storage_options": options}
    folder = _native.Folder(json.dumps(asked))
    s3_proxy.lose = lambda method, path: method == "PUT"
    with folder.create("a") as file:
        file.write(b"ours")
    assert s3_proxy.failed == ["lost"] and bucket.get("files/a") == b"ours"
    s3_proxy.lose = lambda method, path: False

    class Log(list):
        def append(self, entry):
            super().append(entry)
            if entry[0] == "PUT":
                bucket.put("files/b", b"else")

    s3_proxy.log = Log()
    with pytest.raises(plait.OutputExists), folder.create("b") as file:
        file.write(b"ours")
    assert bucket.get("files/b") == b"else"


@pytest.mark.long
def test_two_in_a_hundred_requests_that_fail_lose_nothing(bucket, s3_proxy):
    options = bucket.server.options(s3_proxy.url)
    options |= {"retry_init_backoff_ms": "10", "retry_max_backoff_ms": "50", "timeout": "10s"}
    # Small reads, so that there are requests to fail.
    merge = {"sort_by": "k", "page_rows": 500, "memory_limit": "16MB", "storage_options": options}
    s3_proxy.share = 0.02
    runs = 30 if os.environ.get("CI") else 6
    for run in range(runs):
        out = f"{bucket.url}/out{run}"
        plait.merge(f"{bucket.url}/in", out, outputs=2, **merge)
        assert bucket.table(f"out{run}/") == expected()
    assert bucket.pending() == s3_proxy.orphaned_uploads
    failed = Counter(s3_proxy.failed)
    print(f"{sum(failed.values())} of {len(s3_proxy.log)} requests failed: {dict(failed)}")
    assert failed, "not one request failed"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["500", "503", "cut", "slow"])
def test_each_kind_of_fault_is_survived_often(bucket, s3_proxy, kind):
    options = bucket.server.options(s3_proxy.url)
    options |= {"retry_init_backoff_ms": "10", "retry_max_backoff_ms": "50"}
    kinds, type(s3_proxy).KINDS, s3_proxy.share = type(s3_proxy).KINDS, (kind,), 0.4
    try:
        plait.merge(f"{bucket.url}/in", f"{bucket.url}/out", sort_by="k", storage_options=options)
    finally:
        type(s3_proxy).KINDS = kinds
    assert len(s3_proxy.failed) > 0
    assert bucket.table("out/") == expected()


@pytest.mark.parametrize("how", LIMITS)
def test_a_store_that_always_fails_is_a_storage_error_and_leaves_nothing(bucket, s3_proxy, how):
    options = bucket.server.options(s3_proxy.url)
    options |= {"max_retries": "1", "retry_init_backoff_ms": "10"}
    kinds, type(s3_proxy).KINDS = type(s3_proxy).KINDS, ("503",)

    class Log(list):
        def append(self, entry):
            super().append(entry)
            # Reading works, outputs do not arrive.
            fails = "partNumber=" in entry[1] or ends_upload(how, *entry)
            s3_proxy.share = 1.0 if fails else 0.0

    s3_proxy.log = Log()
    try:
        with pytest.raises(plait.StorageError, match="request to the object store failed"):
            plait.merge(
                f"{bucket.url}/in",
                f"{bucket.url}/out",
                sort_by="k",
                memory_limit=LIMITS[how],
                storage_options=options,
            )
    finally:
        type(s3_proxy).KINDS = kinds
    assert bucket.keys("out/") == []
    assert bucket.pending() == 0


def put_large(bucket, last_key: int) -> None:
    """A source of 36 MB whose first part is full before its last row is read."""
    keys = [*range(11_999), last_key]
    values = [np.random.default_rng(row).bytes(3_000) for row in range(12_000)]
    # Without statistics, keys are not compared before they are merged.
    options = {"row_group_size": 500, "write_statistics": False}
    bucket.put("in/z.parquet", parquet(pa.table({"k": keys, "bytes": values}), **options))


def begun(proxy) -> list[str]:
    return [path for method, path in proxy.log if method == "POST" and "uploads=" in path]


def test_an_error_aborts_the_uploads_that_were_begun(bucket, s3_proxy):
    options = bucket.server.options(s3_proxy.url)
    put_large(bucket, last_key=3)
    merge = {"sort_by": "k", "row_group_rows": 1_000, "storage_options": options}
    with pytest.raises(plait.UnsortedSource, match=r"z\.parquet"):
        plait.merge(f"{bucket.url}/in/z.parquet", f"{bucket.url}/out", **merge)
    assert len(begun(s3_proxy)) == 1
    assert bucket.keys("out/") == []
    assert bucket.pending() == 0


def test_a_stopped_merge_aborts_its_uploads(bucket, s3_proxy):
    options = bucket.server.options(s3_proxy.url)
    put_large(bucket, last_key=12_000)

    def stop(now: plait.Progress) -> None:
        if begun(s3_proxy):
            raise RuntimeError("enough")

    # Parts take a while, so that there is progress between them.
    s3_proxy.watch(lambda method, path: "")
    with pytest.raises(RuntimeError, match="enough"):
        plait.merge(
            f"{bucket.url}/in/z.parquet",
            f"{bucket.url}/out",
            sort_by="k",
            row_group_rows=1_000,
            storage_options=options,
            progress=stop,
        )
    assert bucket.pending() == 0


@pytest.mark.long
def test_large_outputs_go_up_in_parts_within_the_memory_limit(bucket, s3_proxy):
    options = bucket.server.options(s3_proxy.url)
    keys = list(range(200_000))
    noise = pa.array([os.urandom(100) for _ in keys], pa.binary())
    for part in range(2):
        mine = pa.table({"k": keys[part::2], "noise": noise.take(keys[part::2])})
        bucket.put(f"big/{part}.parquet", parquet(mine, compression="none", use_dictionary=False))
    report = plait.merge(
        f"{bucket.url}/big",
        f"{bucket.url}/out/big.parquet",
        sort_by="k",
        memory_limit="64MB",
        storage_options=options,
    )
    parts = {path for method, path in s3_proxy.log if "partNumber=" in path}
    assert len(parts) == -(-report.outputs[0].bytes // (5 << 20)) >= 4
    assert report.memory.peak_accounted_bytes <= 64_000_000
    assert bucket.table("out/").column("noise").combine_chunks() == noise


def test_a_missing_object_or_bucket_is_not_found(bucket, options):
    for url in (f"{bucket.url}/absent.parquet", f"{bucket.url}/absent", f"{bucket.url}/in/x*"):
        with pytest.raises(plait.SourceNotFound):
            plait.merge(url, f"{bucket.url}/out", sort_by="k", storage_options=options)
    with pytest.raises(plait.PlaitError):
        plait.inspect("s3://no-such-bucket-here/a.parquet", storage_options=options)


def test_a_missing_bucket_is_named_in_one_sentence(options, tmp_path):
    calls = {
        "s3://no-such-bucket/in": lambda url: plait.merge(
            url, tmp_path / "o", sort_by="k", storage_options=options
        ),
        "s3://no-such-bucket/in/_delta_log": lambda _: plait.compact(
            "s3://no-such-bucket/in", sort_by="k", storage_options=options
        ),
        "s3://no-such-bucket/o.parquet": lambda url: plait.merge(
            tmp_path / "a.parquet", url, sort_by="k", storage_options=options
        ),
    }
    pq.write_table(rows(0, 1000), tmp_path / "a.parquet")
    for url, call in calls.items():
        with pytest.raises(plait.StorageError) as caught:
            call(url)
        error = caught.value
        assert str(error) == (
            f"the bucket does not exist: file `{url}`, got `no-such-bucket`, code NoSuchBucket\n"
            "hint: check its name, and the region and endpoint in `storage_options`"
        )
        assert (error.got, error.path) == ("`no-such-bucket`, code NoSuchBucket", url)


def test_an_object_that_changes_is_noticed(bucket, s3_proxy):
    options = bucket.server.options(s3_proxy.url)
    one = f"/{bucket.name}/in/0.parquet"
    noise = random.Random(7)
    table = rows(0, 4).append_column(
        "noise", pa.array([noise.randbytes(64) for _ in range(len(rows(0, 4)))])
    )
    # Larger than what opening it brings.
    assert len(parquet(table)) > 1_000_000
    bucket.put("in/0.parquet", parquet(table))

    class Log(list):
        def append(self, entry):
            super().append(entry)
            if entry == ("GET", one) and self.count(entry) == 2:
                bucket.put("in/0.parquet", parquet(table.slice(1)))

    s3_proxy.log = Log()
    with pytest.raises(plait.SourceChanged, match=r"0\.parquet"):
        plait.merge(f"{bucket.url}/in", f"{bucket.url}/out", sort_by="k", storage_options=options)
    assert bucket.keys("out/") == []


def test_a_small_object_takes_one_request(bucket, s3_proxy):
    options = bucket.server.options(s3_proxy.url)
    names = [f"/{bucket.name}/in/{part}.parquet" for part in range(4)]

    def asked(method: str) -> list[str]:
        return sorted(path for kind, path in s3_proxy.log if kind == method and path in names)

    assert plait.plan(f"{bucket.url}/in", sort_by="k", storage_options=options).rows == ROWS
    assert asked("GET") == names and not asked("HEAD")
    s3_proxy.log.clear()
    plait.merge(f"{bucket.url}/in", f"{bucket.url}/out", sort_by="k", storage_options=options)
    assert asked("GET") == names
    assert asked("HEAD") == names  # whether they changed meanwhile
    assert bucket.table("out/") == expected()


@pytest.mark.parametrize("how", [{"outputs": 1}, {"outputs": 4}, {"target_file_size": "200KB"}])
def test_each_of_many_small_objects_is_read_once(bucket, s3_proxy, how):
    # Of the limit, less than 1 MB is for bytes of objects that may be needed again.
    files, rows_each = 120, 2000
    for part in range(files):
        keys = pa.array(range(part, files * rows_each, files))
        values = pa.array(np.random.default_rng(part).random(rows_each))
        bucket.put(f"many/{part:03}.parquet", parquet(pa.table({"k": keys, "v": values})))
    options = bucket.server.options(s3_proxy.url)
    how = {"sort_by": "k", "memory_limit": "16MB", "storage_options": options, **how}

    def asked() -> Counter:
        paths = [path for method, path in s3_proxy.log if method == "GET" and "/many/" in path]
        s3_proxy.log.clear()
        return Counter(paths)

    plan = plait.plan(f"{bucket.url}/many", **how)
    assert plan.rows == files * rows_each
    gets = asked()
    assert len(gets) == files and set(gets.values()) == {1}, gets.most_common(3)
    report = plait.merge(f"{bucket.url}/many", f"{bucket.url}/out", **how)
    gets = asked()
    assert len(gets) == files and set(gets.values()) == {1}, gets.most_common(3)
    assert report.metrics.spilled_bytes > 0
    assert bucket.table("out/")["k"].to_pylist() == list(range(files * rows_each))


def with_ids(names: dict[str, int], *columns: pa.Array) -> pa.Table:
    """Columns by name, each with its field id."""
    fields = [
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(number)})
        for (name, number), column in zip(names.items(), columns)
    ]
    return pa.Table.from_arrays(list(columns), schema=pa.schema(fields))


UP, DOWN = pa.array([1, 2, 7]), pa.array([9, 8, 3])
KEYS_BY_ALL = {
    "names that were swapped": [
        with_ids({"a": 1, "k": 2}, UP, DOWN),
        with_ids({"k": 1, "a": 2}, UP, DOWN),
    ],
    "types that were widened": [
        pa.table({"k": UP.cast(pa.int32())}),
        pa.table({"k": pa.array([-5, 1 << 40])}),
    ],
    "text that was bytes": [
        pa.table({"k": pa.array(["a", "b"])}),
        pa.table({"k": pa.array([b"a", b"c"])}),
    ],
    "columns that were added": [
        pa.table({"v": DOWN}),
        pa.table({"v": DOWN, "k": UP}),
    ],
    "units that were made finer": [
        pa.table({"k": UP.cast(pa.timestamp("ms"))}),
        pa.table({"k": UP.cast(pa.timestamp("us"))}),
    ],
}


@pytest.mark.parametrize("tables", KEYS_BY_ALL.values(), ids=KEYS_BY_ALL.keys())
def test_keys_of_small_objects_are_those_by_the_schema_of_all(bucket, options, tmp_path, tables):
    (tmp_path / "in").mkdir()
    for i, table in enumerate(tables):
        body = parquet(table)
        (tmp_path / "in" / f"{i}.parquet").write_bytes(body)
        bucket.put(f"keys/{i}.parquet", body)

    def outcome(source, **settings):
        order = "a" if "a" in tables[-1].schema.names else "k"
        try:
            plan = plait.plan(source, sort_by=order, outputs=2, **settings)
        except plait.PlaitError as error:
            return type(error)
        keys = [(one.key_min, one.key_max, one.rows) for one in plan.sources]
        return keys, [(task.rows, task.sources) for task in plan.tasks]

    local = outcome(tmp_path / "in")
    assert outcome(f"{bucket.url}/keys", storage_options=options) == local


def test_an_object_without_bytes_is_no_parquet_file(bucket, s3_proxy):
    bucket.put("in/0.parquet", b"")
    options = bucket.server.options(s3_proxy.url)
    with pytest.raises(plait.CorruptSource, match=r"in/0\.parquet"):
        plait.inspect(f"{bucket.url}/in/0.parquet", storage_options=options)


def test_pages_and_indexes_take_few_requests(bucket, s3_proxy, tmp_path):
    options = bucket.server.options(s3_proxy.url)
    pq.write_table(rows(0, 1), tmp_path / "a.parquet")
    small = {"sort_by": "k", "page_rows": 200, "copy_tiers": ()}
    plait.merge(tmp_path / "a.parquet", tmp_path / "paged.parquet", **small)
    bucket.put("paged/a.parquet", (tmp_path / "paged.parquet").read_bytes())
    plait.verify(f"{bucket.url}/paged/a.parquet", sort_by="k", storage_options=options)
    gets = [path for method, path in s3_proxy.log if method == "GET"]
    found = plait.inspect(f"{bucket.url}/paged/a.parquet", pages=True, storage_options=options)
    pages = sum(column.pages for group in found.row_groups for column in group.columns)
    # Every page is read, those of the key twice.
    assert pages > 200 and len(gets) < pages / 5, (pages, len(gets))


def test_a_look_up_takes_few_requests(bucket, s3_proxy, tmp_path):
    files = 4
    small = {"sort_by": "id", "bloom_filters": ["id"], "page_rows": 1_000, "copy_tiers": ()}
    for number in range(files):
        ids = list(range(number, 200_000 * files, files))
        pq.write_table(pa.table({"id": ids, "v": [i / 7 for i in ids]}), tmp_path / "plain.parquet")
        plait.merge(tmp_path / "plain.parquet", tmp_path / f"{number}.parquet", **small)
        # Filters and pages do not come with the footer.
        assert (tmp_path / f"{number}.parquet").stat().st_size > 1_000_000
        bucket.put(f"in/{number}.parquet", (tmp_path / f"{number}.parquet").read_bytes())

    def gets() -> list[int]:
        asked = [path for method, path in s3_proxy.log if method == "GET"]
        s3_proxy.log.clear()
        return [sum(f"/{number}.parquet" in path for path in asked) for number in range(files)]

    options = bucket.server.options(s3_proxy.url)
    rows = plait.read(f"{bucket.url}/in/", sort_by="id", storage_options=options)
    assert gets() == [1] * files  # footers
    first = True
    for key in (2_003, 280_001, 600_003, 720_002, 2_003):
        assert rows.where(f"id = {key}").count() == 1
        asked = gets()
        # Data pages; and, once, the filter.
        assert asked.pop(key % files) <= 3
        assert asked == [int(first)] * (files - 1)
        first = False


class Waiting:
    """Answers of a proxy that come late, and how many requests waited at the same time.

    `alone` counts requests that were sent while no other waited.
    """

    def __init__(self, proxy) -> None:
        self.asked, self.most, self.alone, self.lock = 0, 0, 0, threading.Lock()
        proxy.lose = self.wait

    def wait(self, method: str, path: str) -> bool:
        with self.lock:
            self.alone += self.asked == 0
            self.asked += 1
            self.most = max(self.most, self.asked)
        time.sleep(0.1)  # so long that a busy machine has time to send the others
        with self.lock:
            self.asked -= 1
        return False


def test_scans_and_reads_ask_for_many_objects_at_a_time(bucket, s3_proxy):
    for part in range(32):
        bucket.put(f"many/{part:02}.parquet", parquet(rows(part, 32)))
    waiting = Waiting(s3_proxy)
    options = bucket.server.options(s3_proxy.url)
    scan = plait.scan(f"{bucket.url}/many", storage_options=options)
    assert waiting.most > 8
    waiting.most = 0
    assert pa.table(scan).num_rows == ROWS
    assert waiting.most > 8
    waiting.most = 0
    alone = plait.scan(f"{bucket.url}/many", storage_options=options, threads=1)
    assert pa.table(alone).num_rows == ROWS
    assert waiting.most == 1
    s3_proxy.log.clear()
    read = plait.read(f"{bucket.url}/many", sort_by="k", storage_options=options)
    assert pa.table(read)["k"].to_pylist() == list(range(ROWS))
    # Each answer says of which version it is.
    heads = [path for method, path in s3_proxy.log if method == "HEAD"]
    assert not [path for path in heads if path.endswith(".parquet")]
    s3_proxy.log.clear()
    with pytest.raises(plait.InvalidArgument, match="one file"):
        plait.inspect(f"{bucket.url}/many", storage_options=options)
    assert not [path for _, path in s3_proxy.log if path.endswith(".parquet")]


@pytest.mark.parametrize("index", [True, False])
def test_bytes_of_large_objects_are_requested_once_and_before_they_are_read(
    bucket, s3_proxy, tmp_path, index
):
    rows_each, files = 80_000, 6
    for part in range(files):
        rng = np.random.default_rng(part)
        keys = pa.array(range(part, files * rows_each, files))
        columns = {"k": keys, "v": rng.random(rows_each), "w": rng.random(rows_each)}
        body = parquet(pa.table(columns), write_page_index=index, row_group_size=50_000)
        bucket.put(f"large/{part}.parquet", body)
        (tmp_path / f"{part}.parquet").write_bytes(body)
    large = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert large > files * 1_000_000
    # Of the limit, 1.3 MB is for bytes of objects.
    how = {"sort_by": "k", "memory_limit": "32MB", "outputs": 3}
    options = bucket.server.options(s3_proxy.url)
    source = f"{bucket.url}/large/"
    waiting = Waiting(s3_proxy)
    merged = plait.merge(source, tmp_path / "out", storage_options=options, **how)
    assert waiting.most > 8
    assert merged.metrics.received_bytes < 1.2 * large
    local = plait.merge(f"{tmp_path}/*.parquet", tmp_path / "local", **how)
    for one, other in zip(merged.outputs, local.outputs, strict=True):
        assert pq.read_table(one.path).equals(pq.read_table(other.path))
    waiting.most = 0
    read = pa.table(plait.read(source, sort_by="k", storage_options=options, memory_limit="32MB"))
    assert read["k"].to_pylist() == list(range(files * rows_each))
    assert waiting.most > 8


@pytest.mark.parametrize("index", [True, False])
def test_objects_that_all_overlap_are_requested_before_they_are_read(
    bucket, s3_proxy, tmp_path, index
):
    files, rows_each = 24, 20_000
    (tmp_path / "local").mkdir()
    for part in range(files):
        rng = np.random.default_rng(part)
        keys = pa.array(range(part, files * rows_each, files))
        columns = {"k": keys, "v": rng.random(rows_each), "w": rng.random(rows_each)}
        body = parquet(pa.table(columns), write_page_index=index)
        assert len(body) > 256 << 10  # smaller ones are opened by one request for all of them
        bucket.put(f"all/{part:02}.parquet", body)
        (tmp_path / f"local/{part:02}.parquet").write_bytes(body)
    waiting = Waiting(s3_proxy)
    source, local = f"{bucket.url}/all/", f"{tmp_path}/local/*.parquet"
    how = {"storage_options": bucket.server.options(s3_proxy.url)}

    def overlapping() -> str:
        with pytest.raises(plait.VerificationFailed, match="overlap") as caught:
            plait.verify(source, sort_by="k", **how)
        return str(caught.value)

    def in_order() -> pa.Table:
        sorted_ = plait.sort(source, tmp_path / "sorted.parquet", sort_by="v", **how)
        return pq.read_table(sorted_.outputs[0].path)

    with pytest.raises(plait.VerificationFailed) as caught:
        plait.verify(local, sort_by="k")
    problems = str(caught.value).replace(f"{tmp_path}/local", f"{bucket.url}/all")
    by_v = pq.read_table(f"{tmp_path}/local").sort_by("v")
    calls = {
        "verify": (overlapping, problems.__eq__),
        "read": (lambda: pa.table(plait.read(source, sort_by="k", **how)), lambda read: (
            read["k"].to_pylist() == list(range(files * rows_each)))),
        "sort": (in_order, by_v.equals),
    }  # fmt: skip
    for name, (call, is_right) in calls.items():
        waiting.alone = 0
        assert is_right(call()), name
        # Not one for each file or column.
        assert waiting.alone <= 12, (name, waiting.alone)


@pytest.mark.parametrize("overlap", [False, True])
def test_row_groups_of_small_chunks_take_few_requests(bucket, s3_proxy, tmp_path, overlap):
    # Row groups that are copied, and those that are woven, of chunks of 16 KB.
    files, groups, rows_each, leaves = 3, 12, 2_000, 8
    for part in range(files):
        rng = np.random.default_rng(part)
        count = groups * rows_each
        keys = (
            range(part, files * count, files)
            if overlap
            else range(part * count, (part + 1) * count)
        )
        columns = {f"v{n}": rng.random(count) for n in range(leaves)}
        table = pa.table({"k": pa.array(keys), **columns})
        body = parquet(table, row_group_size=rows_each, write_page_index=True)
        bucket.put(f"groups/{part}.parquet", body)
    options = bucket.server.options(s3_proxy.url)
    out = tmp_path / "out.parquet"
    plait.merge(
        f"{bucket.url}/groups", out, sort_by="k", row_group_rows=4_000, storage_options=options
    )
    gets = [path for method, path in s3_proxy.log if method == "GET" and "/groups/" in path]
    assert len(gets) < 4 * files * groups, len(gets)
    assert pq.read_table(out)["k"].to_pylist() == list(range(files * groups * rows_each))


@pytest.mark.long
def test_many_objects_are_asked_for_at_a_time(bucket, s3_proxy):
    for part in range(24):
        bucket.put(f"in/{part:02}.parquet", parquet(rows(part, 24)))
    waiting = Waiting(s3_proxy)
    plans = {}
    for threads in (1, 2):
        waiting.most = 0
        plans[threads] = plait.plan(
            f"{bucket.url}/in/",
            sort_by="k",
            storage_options=bucket.server.options(s3_proxy.url),
            threads=threads,
        )
        assert waiting.most == 1 if threads == 1 else waiting.most > 8
    assert plans[1].to_dict()["sources"] == plans[2].to_dict()["sources"]


def test_settings_come_from_the_environment_too(bucket, options, monkeypatch):
    for name in ("aws_endpoint_url", "aws_access_key_id", "aws_secret_access_key", "aws_region"):
        monkeypatch.setenv(name.upper(), options[name])
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert plait.inspect(f"{bucket.url}/in/0.parquet").rows == ROWS // 4
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    # Both the long and the short name win over the variable.
    for name in ("aws_endpoint_url", "endpoint_url"):
        settings = {name: options["aws_endpoint_url"]}
        assert plait.inspect(f"{bucket.url}/in/0.parquet", storage_options=settings).rows


def test_requests_are_anonymous_when_asked(bucket, s3_proxy):
    signed = []
    url = urlsplit(s3_proxy.url)
    original = s3_proxy.http.RequestHandlerClass.parse_request

    def parse_request(handler):
        parsed = original(handler)
        signed.append("Authorization" in handler.headers)
        return parsed

    s3_proxy.http.RequestHandlerClass.parse_request = parse_request
    settings = {"aws_endpoint_url": url.geturl(), "allow_http": True, "skip_signature": True}
    plait.inspect(f"{bucket.url}/in/0.parquet", storage_options=settings)
    assert signed and not any(signed)


@pytest.mark.parametrize(
    "settings", [{"aws_regoin": "x"}, {"max_retries": "many"}, {"aws_region": None}, [1], "x"]
)
def test_settings_that_are_invalid_are_refused(settings):
    with pytest.raises(plait.InvalidArgument):
        plait.inspect("s3://bucket/a.parquet", storage_options=settings)


def test_files_behind_plain_http_can_be_read_not_written(bucket, tmp_path):
    url = f"{bucket.server.url}/{bucket.name}"
    sources = [f"{url}/in/{part}.parquet" for part in range(4)]
    plait.merge(sources, tmp_path / "a.parquet", sort_by="k")
    assert pq.read_table(tmp_path / "a.parquet") == expected()
    with pytest.raises(plait.Unsupported, match="read, not written"):
        plait.merge(sources, f"{url}/out/", sort_by="k", if_exists="add")


def test_no_thread_outlives_a_call(bucket, options):
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    plait.merge(f"{bucket.url}/in", f"{bucket.url}/out", sort_by="k", storage_options=options)
    assert threads() == before


def test_a_forked_process_reads_on_its_own(bucket, options, python):
    script = (
        "import os, sys, plait\n"
        f"options = {options!r}\n"
        f"url = '{bucket.url}/in/0.parquet'\n"
        "assert plait.inspect(url, storage_options=options).rows\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if plait.inspect(url, storage_options=options).rows else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    ran = python("-W", "ignore", "-c", script)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_the_command_line_takes_settings(bucket, options, python):
    flags = [f"--storage-options={name}={value}" for name, value in options.items()]
    ran = python("-m", "plait", "merge", f"{bucket.url}/in", "-o", f"{bucket.url}/out",
                 "--sort-by", "k", "--quiet", *flags)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert bucket.table("out/") == expected()
    ran = python("-m", "plait", "inspect", f"{bucket.url}/in/0.parquet", "--json", *flags)
    assert ran.returncode == 0 and '"rows": 15000' in ran.stdout
    ran = python("-m", "plait", "inspect", "s3://b/a", "--storage-options", "aws_region")
    assert ran.returncode == 2 and "NAME=VALUE" in ran.stderr
