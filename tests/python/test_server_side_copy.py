"""`server_side_copy`: row groups that S3 copies from sources to outputs itself."""

from __future__ import annotations

import hashlib
import hmac
import io
import os
from collections import Counter
from urllib.parse import parse_qsl, quote, urlsplit

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main

from . import footers

pytestmark = pytest.mark.local  # these tests bring their own bucket

ROWS = 600_000  # 12 MB: parts of S3 have at least 5 MiB, and the first one has the first bytes
INDEXED = {"write_page_index": True, "write_page_checksum": True, "use_dictionary": False}


def table(start: int, rows: int = ROWS) -> pa.Table:
    """Ascending keys and numbers that do not compress."""
    noise = np.random.default_rng(start).integers(0, 2**62, 2 * rows)
    keys = np.arange(start, start + rows)
    return pa.table({"k": keys, "noise": noise[:rows], "more": noise[rows:]})


def parquet(rows: pa.Table, **how) -> bytes:
    written = io.BytesIO()
    pq.write_table(rows, written, **{**INDEXED, **how})
    return written.getvalue()


class Bucket:
    """A bucket of its own, with the given files below `in`."""

    def __init__(self, client, name: str) -> None:
        self.client, self.name, self.url = client, name, f"s3://{name}"
        client.create_bucket(Bucket=name)

    def put(self, key: str, body: bytes) -> str:
        self.client.put_object(Bucket=self.name, Key=key, Body=body)
        return f"{self.url}/{key}"

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def files(self, folder: str) -> list[bytes]:
        listed = self.client.list_objects_v2(Bucket=self.name, Prefix=f"{folder}/")
        return [self.get(found["Key"]) for found in listed.get("Contents", [])]

    def digests(self, folder: str) -> list[str]:
        return [hashlib.sha256(body).hexdigest() for body in self.files(folder)]

    def pending(self) -> int:
        return len(self.client.list_multipart_uploads(Bucket=self.name).get("Uploads") or [])


@pytest.fixture
def bucket(s3_server, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[-45:].strip("-")
    return Bucket(s3_server.client(), f"c-{name}-{os.getpid()}")


@pytest.fixture(scope="module")
def disjoint() -> list[bytes]:
    """Three files, one behind the other."""
    return [parquet(table(part * ROWS)) for part in range(3)]


def merged(bucket: Bucket, out: str, sources, options, **how) -> plait.MergeReport:
    how = {"sort_by": "k", "row_group_rows": ROWS, "outputs": 1, **how}
    return plait.merge(sources, f"{bucket.url}/{out}", storage_options=options, **how)


def both(bucket: Bucket, sources, options, **how):
    """The reports of a merge without the option, and with it: outputs have the same bytes."""
    usual = merged(bucket, "usual", sources, options, **how)
    report = merged(bucket, "copied", sources, options, server_side_copy=True, **how)
    assert bucket.digests("copied") == bucket.digests("usual") != []
    assert bucket.pending() == 0
    assert report.copied == usual.copied
    assert usual.metrics.server_copied_bytes == 0
    return usual.metrics, report.metrics


def test_most_bytes_stay_in_the_store_and_outputs_are_the_same(bucket, s3_server, disjoint):
    sources = [bucket.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    usual, copied = both(bucket, sources, s3_server.options())
    size = sum(map(len, disjoint))
    assert copied.server_copied_bytes > 0.75 * size
    # The key, to check the order, and parts that begin with other bytes.
    assert copied.received_bytes < 0.5 * size < size < usual.received_bytes
    # And the requests that end uploads.
    assert 0 <= copied.sent_bytes + copied.server_copied_bytes - copied.bytes_written < 1_000
    assert copied.requests <= usual.requests
    (out,) = bucket.files("copied")
    read = pq.read_table(pa.BufferReader(out), page_checksum_verification=True)
    assert read == pa.concat_tables(table(part * ROWS) for part in range(3))


def test_readers_find_rows_in_what_was_copied(bucket, s3_server, disjoint, tmp_path):
    sources = [bucket.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    merged(bucket, "out", sources, s3_server.options(), server_side_copy=True)
    path = tmp_path / "out.parquet"
    path.write_bytes(bucket.files("out")[0])
    at = ROWS + 17
    wanted = table(ROWS)["noise"][17].as_py()
    assert pq.read_table(path, filters=[("k", "==", at)])["noise"].to_pylist() == [wanted]
    asked = duckdb.execute("select noise from read_parquet(?) where k = ?", [str(path), at])
    assert asked.fetchall() == [(wanted,)]
    read = pa.table(plait.read(path, where=f"k == {at}"))
    assert read["noise"].to_pylist() == [wanted]
    assert plait.verify(path, check="rows").ok


def test_files_that_overlap_are_woven_where_they_do(bucket, s3_server):
    parts = [table(part * (3 * ROWS - 1_000), 3 * ROWS) for part in range(2)]
    sources = [
        bucket.put(f"in/{n}.parquet", parquet(part, row_group_size=ROWS))
        for n, part in enumerate(parts)
    ]
    how = {"outputs": 2, "memory_limit": "64MB"}
    _, copied = both(bucket, sources, s3_server.options(), **how)
    assert copied.server_copied_bytes > 0


def test_another_bucket_and_names_with_all_letters(bucket, s3_server, disjoint):
    other = Bucket(bucket.client, f"{bucket.name}-other")
    sources = [other.put("in/a b+c%25 é.parquet", disjoint[0])]
    _, copied = both(bucket, [f"{other.url}/in"], s3_server.options())
    assert len(sources) == 1
    assert copied.server_copied_bytes > 0.5 * len(disjoint[0])


@pytest.mark.parametrize(
    ("status", "code"), [(501, "NotImplemented"), (403, "AccessDenied"), (400, "InvalidRequest")]
)
def test_a_store_that_copies_no_parts_is_asked_once(
    bucket, s3_server, s3_proxy, disjoint, status, code
):
    s3_proxy.answer = lambda method, headers: (status, code) if is_copy(headers) else None
    sources = [bucket.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    _, copied = both(bucket, sources, s3_server.options(s3_proxy.url), outputs=3)
    assert copied.server_copied_bytes == 0
    assert Counter(s3_proxy.answered)[status] == 1


def is_copy(headers) -> bool:
    return "x-amz-copy-source" in headers


@pytest.mark.parametrize("nth", [1, 2])
def test_a_source_that_changes_is_named_and_nothing_is_left(
    bucket, s3_server, s3_proxy, disjoint, nth
):
    sources = [bucket.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    asked = []

    def change(method, headers):
        if is_copy(headers):
            asked.append(1)
            if len(asked) == nth:
                for n, body in enumerate(disjoint):
                    bucket.put(f"in/{n}.parquet", body[:-8] + body[-8:][::-1])

    s3_proxy.answer = change
    with pytest.raises(plait.SourceChanged) as caught:
        merged(bucket, "out", sources, s3_server.options(s3_proxy.url), server_side_copy=True)
    assert caught.value.path in sources
    assert bucket.files("out") == [] and bucket.pending() == 0


def test_a_bucket_that_the_store_cannot_read_is_read_here(bucket, s3_server, s3_proxy, disjoint):
    other = Bucket(bucket.client, f"{bucket.name}-far")
    sources = [bucket.put("in/0.parquet", disjoint[0]), other.put("1.parquet", disjoint[1])]

    def far(method, headers):
        is_far = headers.get("x-amz-copy-source", "").startswith(other.name)
        return (403, "AccessDenied") if is_far else None

    s3_proxy.answer = far
    _, copied = both(bucket, sources, s3_server.options(s3_proxy.url))
    assert 0 < copied.server_copied_bytes < len(disjoint[0])


def test_the_version_that_was_read_is_asked_for(bucket, s3_server, s3_proxy, disjoint):
    seen = []
    s3_proxy.answer = lambda method, headers: seen.append(headers) if is_copy(headers) else None
    sources = [bucket.put("in/0.parquet", disjoint[0])]
    merged(bucket, "out", sources, s3_server.options(s3_proxy.url), server_side_copy=True)
    tag = bucket.client.head_object(Bucket=bucket.name, Key="in/0.parquet")["ETag"]
    assert {headers["x-amz-copy-source-if-match"] for headers in seen} == {tag}


def signature(method: str, path: str, headers: dict[str, str], secret: str) -> tuple[str, str]:
    """The signature that a signed URL has, and the one that it must have (AWS Signature, 4)."""
    url = urlsplit(path)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    found = query.pop("X-Amz-Signature")
    names = query["X-Amz-SignedHeaders"]
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in query.items())
    lines = [f"{name}:{headers[name].strip()}\n" for name in names.split(";")]
    asked = "&".join(f"{k}={v}" for k, v in pairs)
    whole = "\n".join([method, url.path, asked, "".join(lines), names, "UNSIGNED-PAYLOAD"])
    _, *scope = query["X-Amz-Credential"].split("/")
    digest = hashlib.sha256(whole.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], "/".join(scope), digest])
    key = f"AWS4{secret}".encode()
    for step in (*scope, text):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return found, key.hex()


def test_requests_are_signed_with_their_headers(bucket, s3_server, s3_proxy, disjoint):
    seen = []

    def note(method, headers):
        if is_copy(headers):
            seen.append((*s3_proxy.log[-1], headers))

    s3_proxy.answer = note
    sources = [bucket.put("in/a b+c.parquet", disjoint[0])]
    merged(bucket, "out", sources[0].rpartition("/")[0], s3_server.options(s3_proxy.url),
           server_side_copy=True, threads=1)  # fmt: skip
    method, path, headers = seen[0]
    found, wanted = signature(method, path, headers, "secret")
    assert found == wanted
    signed = dict(parse_qsl(urlsplit(path).query))["X-Amz-SignedHeaders"].split(";")
    assert {name for name in headers if name.startswith("x-amz-")} <= set(signed)


def test_requests_that_fail_are_made_again(bucket, s3_server, s3_proxy, disjoint):
    fails = iter([(503, "SlowDown"), (500, "InternalError"), (200, "InternalError")])
    s3_proxy.answer = lambda method, headers: next(fails, None) if is_copy(headers) else None
    sources = [bucket.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    options = {**s3_server.options(s3_proxy.url), "retry_init_backoff_ms": "10"}
    _, copied = both(bucket, sources, options)
    assert copied.server_copied_bytes > 0
    assert sorted(s3_proxy.answered) == [200, 500, 503]


def test_a_store_that_stays_busy_is_an_error(bucket, s3_server, s3_proxy, disjoint):
    s3_proxy.answer = lambda method, headers: (503, "SlowDown") if is_copy(headers) else None
    sources = [bucket.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    options = {**s3_server.options(s3_proxy.url), "max_retries": "2", "retry_init_backoff_ms": "5"}
    with pytest.raises(plait.StorageError, match="SlowDown"):
        merged(bucket, "out", sources, options, server_side_copy=True)
    assert len(s3_proxy.answered) == 3
    assert bucket.files("out") == [] and bucket.pending() == 0


def test_what_is_not_known_without_its_pages_is_read(bucket, s3_server, disjoint):
    unindexed = parquet(table(0), write_page_index=False)
    sources = [bucket.put("in/0.parquet", unindexed)]
    usual, copied = both(bucket, sources, s3_server.options())
    assert copied.server_copied_bytes == 0
    assert copied.bytes_read == usual.bytes_read
    # Another codec: pages are packed anew.
    sources = [bucket.put("in/1.parquet", disjoint[1])]
    other = Bucket(bucket.client, f"{bucket.name}-zstd")
    _, copied = both(other, sources, s3_server.options(), compression="zstd")
    assert copied.server_copied_bytes == 0


def no_counts(chunk):
    chunk.drop("encoding_stats")


def other_counts(chunk):
    """Encoding stats that count one page too many."""
    for stats in chunk.get("encoding_stats"):
        stats.set("count", stats.get("count") + 1)


def too_many_values(chunk):
    chunk.set("num_values", chunk.get("num_values") + 5)


@pytest.mark.parametrize("edit", [no_counts, other_counts, too_many_values])
def test_a_footer_that_contradicts_its_index_is_not_believed(
    bucket, s3_server, disjoint, tmp_path, edit
):
    given, changed = tmp_path / "given.parquet", tmp_path / "changed.parquet"
    given.write_bytes(disjoint[0])
    footers.change(given, changed, lambda footer: [edit(chunk) for chunk in footer.chunks(0)])
    sources = [bucket.put("in/0.parquet", changed.read_bytes())]
    _, copied = both(bucket, sources, s3_server.options())
    assert copied.server_copied_bytes == 0
    (out,) = bucket.files("copied")
    assert pq.read_table(pa.BufferReader(out)) == table(0)


@pytest.mark.long
def test_a_source_may_lack_any_optional_field(bucket, s3_server, disjoint, tmp_path):
    given, changed = tmp_path / "given.parquet", tmp_path / "changed.parquet"
    given.write_bytes(disjoint[0])
    done = 0
    for field in footers.OPTIONAL:
        if not footers.without(given, changed, field):
            continue
        other = Bucket(bucket.client, f"{bucket.name[:40]}-{done}")
        sources = [other.put("in/0.parquet", changed.read_bytes())]
        both(other, sources, s3_server.options())
        (out,) = other.files("copied")
        assert pq.read_table(pa.BufferReader(out)) == table(0), field
        done += 1
    assert done > 15


@pytest.mark.parametrize("setting", ["aws_checksum_algorithm", "aws_request_payer"])
def test_settings_that_ask_for_other_headers_copy_nothing(bucket, s3_server, disjoint, setting):
    value = {"aws_checksum_algorithm": "SHA256", "aws_request_payer": "true"}[setting]
    sources = [bucket.put("in/0.parquet", disjoint[0])]
    report = merged(
        bucket, "out", sources, {**s3_server.options(), setting: value}, server_side_copy=True
    )
    assert report.metrics.server_copied_bytes == 0
    assert bucket.files("out") != []


def test_local_files_are_copied_as_usual(tmp_path, disjoint):
    (tmp_path / "0.parquet").write_bytes(disjoint[0])
    report = plait.merge(
        tmp_path / "0.parquet", tmp_path / "out.parquet", sort_by="k", server_side_copy=True
    )
    assert report.metrics.server_copied_bytes == 0
    assert pq.read_table(tmp_path / "out.parquet") == table(0)


def test_a_copy_in_the_store_is_part_of_plans_and_of_compactions(
    bucket, s3_server, s3_proxy, disjoint, capsys
):
    asked = []
    s3_proxy.answer = lambda method, headers: asked.append(1) if is_copy(headers) else None
    for number, body in enumerate(disjoint):
        bucket.put(f"in/{number}.parquet", body)
    options = s3_server.options(s3_proxy.url)
    how = {"sort_by": "k", "row_group_rows": ROWS, "storage_options": options}
    plan = plait.plan(f"{bucket.url}/in", server_side_copy=True, **how)
    plan = plait.Plan.from_json(plan.to_json())
    report = plan.execute(f"{bucket.url}/out", storage_options=options)
    assert report.metrics.server_copied_bytes > 0
    settings = [f"--storage-options={name}={value}" for name, value in options.items()]
    out = f"{bucket.url}/shell"
    call = ["merge", f"{bucket.url}/in", "--out", out, "--sort-by", "k", "--json"]
    assert main([*call, "--server-side-copy", f"--row-group-rows={ROWS}", *settings]) == 0
    assert '"server_copied_bytes": 0' not in capsys.readouterr().out
    asked.clear()
    plait.compact(
        f"{bucket.url}/in",
        sort_by="k",
        policy="full",
        target_file_size=None,
        yes=True,
        server_side_copy=True,
        storage_options=options,
    )
    assert asked, "the compaction copied nothing"
    live = pa.table(plait.read(f"{bucket.url}/in", sort_by="k", storage_options=options))
    assert live == pa.concat_tables(table(part * ROWS) for part in range(3))


@pytest.mark.parametrize("other", [{"verify": "content"}, {"sha256": True}])
def test_what_needs_the_bytes_excludes_it(tmp_path, disjoint, other):
    (tmp_path / "0.parquet").write_bytes(disjoint[0])
    with pytest.raises(plait.InvalidArgument, match=r"`server_side_copy` and `.*` exclude"):
        plait.merge(
            tmp_path / "0.parquet", tmp_path / "out", sort_by="k", server_side_copy=True, **other
        )
    plan = plait.plan(tmp_path / "0.parquet", sort_by="k", server_side_copy=True)
    with pytest.raises(plait.InvalidArgument, match=r"`server_side_copy` and `.*` exclude"):
        plan.execute(tmp_path / "out", **other)
    assert not (tmp_path / "out").exists()
