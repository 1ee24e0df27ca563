"""`server_side_copy` on Azure: blocks of row groups that Azurite copies from blobs itself."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from urllib.parse import parse_qsl, urlsplit

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import AzureStore

import plait

from .s3_server import Proxy
from .test_server_side_copy import ROWS, merged, parquet, table

pytestmark = [
    pytest.mark.local,  # these tests bring their own container
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Container:
    """A container of its own."""

    def __init__(self, azurite, name: str) -> None:
        azurite.make(name)
        self.name, self.url = name, f"az://{name}"
        options = azurite.options()
        self.store = AzureStore(
            name,
            account_name=options["azure_storage_account_name"],
            account_key=options["azure_storage_account_key"],
            endpoint=options["azure_storage_endpoint"],
            client_options={"allow_http": True},
        )

    def put(self, key: str, body: bytes) -> str:
        obstore.put(self.store, key, body)
        return f"{self.url}/{key}"

    def files(self, folder: str) -> list[bytes]:
        keys = [entry["path"] for page in obstore.list(self.store, folder) for entry in page]
        return [bytes(obstore.get(self.store, key).bytes()) for key in sorted(keys)]

    def digests(self, folder: str) -> list[str]:
        return [hashlib.sha256(body).hexdigest() for body in self.files(folder)]


@pytest.fixture
def container(azurite, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[-40:].strip("-")
    return Container(azurite, f"c-{name}-{os.getpid()}".replace("--", "-"))


@pytest.fixture
def proxy(azurite):
    """A proxy before the emulator."""
    proxy = Proxy(azurite)
    yield proxy
    proxy.stop()


@pytest.fixture(scope="module")
def disjoint() -> list[bytes]:
    """Three files, one behind the other."""
    return [parquet(table(part * ROWS)) for part in range(3)]


def both(container: Container, sources, options, **how):
    """The metrics of a merge without the option, and with it: outputs have the same bytes."""
    usual = merged(container, "usual", sources, options, **how)
    report = merged(container, "copied", sources, options, server_side_copy=True, **how)
    assert container.digests("copied") == container.digests("usual") != []
    assert report.copied == usual.copied
    assert usual.metrics.server_copied_bytes == 0
    return usual.metrics, report.metrics


def is_copy(headers) -> bool:
    return "x-ms-copy-source" in headers


def test_most_bytes_stay_in_the_store_and_outputs_are_the_same(container, azurite, disjoint):
    sources = [container.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    usual, copied = both(container, sources, azurite.options())
    size = sum(map(len, disjoint))
    # All row groups: nothing is filled up, as blocks may be small.
    assert copied.server_copied_bytes > 0.99 * size
    # The key, to check the order.
    assert copied.received_bytes < 0.5 * size < size < usual.received_bytes
    assert copied.requests <= usual.requests
    (out,) = container.files("copied")
    read = pq.read_table(pa.BufferReader(out), page_checksum_verification=True)
    assert read == pa.concat_tables(table(part * ROWS) for part in range(3))


def test_files_that_overlap_are_woven_where_they_do(container, azurite):
    parts = [table(part * (3 * ROWS - 1_000), 3 * ROWS) for part in range(2)]
    sources = [
        container.put(f"in/{n}.parquet", parquet(part, row_group_size=ROWS))
        for n, part in enumerate(parts)
    ]
    how = {"outputs": 2, "memory_limit": "64MB"}
    _, copied = both(container, sources, azurite.options(), **how)
    assert copied.server_copied_bytes > 0


def test_another_container(container, azurite, disjoint):
    other = Container(azurite, f"{container.name}-other")
    other.put("in/day=2024-01-01/a+b.parquet", disjoint[0])
    _, copied = both(container, [f"{other.url}/in"], azurite.options())
    assert copied.server_copied_bytes > 0.99 * len(disjoint[0])


ODD = "in/day=a b+c%25 é/0.parquet"


def test_a_key_reads_what_it_cannot_sign(container, azurite, proxy, disjoint):
    asked = []
    proxy.answer = lambda method, headers: asked.append(1) if is_copy(headers) else None
    sources = [container.put(ODD, disjoint[0]), container.put("in/1.parquet", disjoint[1])]
    _, copied = both(container, [f"{container.url}/in"], azurite.options(proxy.url))
    # The other one is copied all the same.
    assert len(disjoint[1]) * 0.99 < copied.server_copied_bytes < len(disjoint[1])
    assert (len(asked), len(sources)) == (1, 2)


def test_a_shared_access_signature_is_enough(container, azurite, disjoint):
    options = azurite.options()
    del options["azure_storage_account_key"]
    options["azure_storage_sas_token"] = azurite.token(container.name, "rwlcd")
    container.put(ODD, disjoint[0])
    _, copied = both(container, [f"{container.url}/in"], options)
    assert copied.server_copied_bytes > 0.99 * len(disjoint[0])


def test_requests_name_the_version_and_show_no_key(container, azurite, proxy, disjoint):
    seen = []

    def note(method, headers):
        if is_copy(headers):
            seen.append((urlsplit(proxy.log[-1][1]), headers))

    proxy.answer = note
    sources = [container.put("in/0.parquet", disjoint[0])]
    merged(container, "out", sources, azurite.options(proxy.url), server_side_copy=True, threads=1)
    tag = obstore.head(container.store, "in/0.parquet")["e_tag"]
    for url, headers in seen:
        assert headers["x-ms-source-if-match"] == tag
        assert headers["x-ms-source-range"].startswith("bytes=")
        asked, source = dict(parse_qsl(url.query)), headers["x-ms-copy-source"]
        assert (asked["comp"], asked["sp"]) == ("block", "w")
        assert dict(parse_qsl(urlsplit(source).query))["sp"] == "r"
        assert "authorization" not in headers
    assert seen


@pytest.mark.parametrize(
    ("status", "code"),
    [(501, "NotImplemented"), (403, "CannotVerifyCopySource"), (400, "InvalidHeaderValue")],
)
def test_a_store_that_copies_nothing_is_asked_once(
    container, azurite, proxy, disjoint, status, code
):
    asked = []

    def refuse(method, headers):
        if not is_copy(headers):
            return None
        asked.append(headers["x-ms-copy-source"])
        return status, code

    proxy.answer = refuse
    sources = [container.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    _, copied = both(container, sources, azurite.options(proxy.url), outputs=3)
    assert copied.server_copied_bytes == 0
    # A signature may not be valid yet: that request is sent again, for some seconds, and no other.
    assert len(set(asked)) == 1
    assert len(asked) == 1 if status != 403 else len(asked) > 2


def test_a_signature_that_the_emulator_refuses_copies_nothing(container, azurite, proxy, disjoint):
    """What it answers is its own."""
    sources = [container.put("in/0.parquet", disjoint[0])]
    # The signature of the source is spoiled on its way.
    proxy.translated = lambda headers: {
        name: value.replace("sig=", "sig=AA") if name.lower() == "x-ms-copy-source" else value
        for name, value in headers.items()
    }
    _, copied = both(container, sources, azurite.options(proxy.url))
    assert copied.server_copied_bytes == 0


def test_a_signature_that_is_not_valid_yet_is_sent_again(container, azurite, proxy, disjoint):
    """The clock of the store is behind: the third copy is refused, and soon accepted."""
    copies = []

    def early(method, headers):
        if not is_copy(headers):
            return None
        copies.append(headers["x-ms-copy-source"])
        return (403, "AuthenticationFailed") if len(copies) in (3, 4) else None

    proxy.answer = early
    sources = [container.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    options = {**azurite.options(proxy.url), "retry_init_backoff_ms": "50"}
    _, copied = both(container, sources, options)
    assert copied.server_copied_bytes > 0
    assert proxy.answered == [403, 403]
    # The same signature, which is older each time.
    assert copies[2] == copies[3] == copies[4]


def test_a_container_that_cannot_be_read_by_the_store_is_read_here(
    container, azurite, proxy, disjoint
):
    """As behind a firewall that lets in this machine alone: the other container is copied from."""
    other = Container(azurite, f"{container.name}-far")
    sources = [container.put("in/0.parquet", disjoint[0]), other.put("1.parquet", disjoint[1])]

    def far(method, headers):
        is_far = f"/{other.name}/" in headers.get("x-ms-copy-source", "")
        return (403, "CannotVerifyCopySource") if is_far else None

    proxy.answer = far
    _, copied = both(container, sources, azurite.options(proxy.url))
    assert 0.99 * len(disjoint[0]) < copied.server_copied_bytes < len(disjoint[0])


def test_a_source_that_changes_is_named_and_nothing_is_left(container, azurite, proxy, disjoint):
    sources = [container.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    changed = []

    def change(method, headers):
        if is_copy(headers) and not changed:
            changed.append(container.put("in/0.parquet", disjoint[0]))

    proxy.answer = change
    with pytest.raises(plait.SourceChanged) as caught:
        merged(container, "out", sources, azurite.options(proxy.url), server_side_copy=True)
    assert caught.value.path == sources[0]
    assert container.files("out") == []


def test_a_source_that_is_gone_is_named(container, azurite, proxy, disjoint):
    sources = [container.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    gone = []

    def remove(method, headers):
        if is_copy(headers) and not gone:
            obstore.delete(container.store, "in/0.parquet")
            gone.append(True)

    proxy.answer = remove
    with pytest.raises(plait.SourceChanged) as caught:
        merged(container, "out", sources, azurite.options(proxy.url), server_side_copy=True)
    assert caught.value.path == sources[0]
    assert container.files("out") == []


def test_requests_that_fail_are_made_again(container, azurite, proxy, disjoint):
    fails = iter([(503, "ServerBusy"), (500, "InternalError"), (500, "CannotVerifyCopySource")])
    proxy.answer = lambda method, headers: next(fails, None) if is_copy(headers) else None
    sources = [container.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    options = {**azurite.options(proxy.url), "retry_init_backoff_ms": "10"}
    _, copied = both(container, sources, options)
    assert copied.server_copied_bytes > 0
    assert sorted(proxy.answered) == [500, 500, 503]


def test_the_emulator_of_the_settings(container, azurite, disjoint, monkeypatch):
    url = f"http://127.0.0.1:{azurite.port}"
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", url)
    sources = [container.put("in/0.parquet", disjoint[0])]
    _, copied = both(container, sources, {"azure_storage_use_emulator": "true"})
    assert copied.server_copied_bytes > 0.99 * len(disjoint[0])


def test_s3_and_azure_do_not_copy_from_each_other(container, azurite, s3_server, disjoint):
    client = s3_server.client()
    client.create_bucket(Bucket=container.name)
    client.put_object(Bucket=container.name, Key="in/0.parquet", Body=disjoint[0])
    options = {**s3_server.options(), **azurite.options()}
    source = f"s3://{container.name}/in/0.parquet"
    report = merged(container, "out", [source], options, server_side_copy=True)
    assert report.metrics.server_copied_bytes == 0
    assert len(container.files("out")) == 1


def test_compactions_copy(container, azurite, proxy, disjoint):
    for number, body in enumerate(disjoint):
        container.put(f"in/{number}.parquet", body)
    copies = []
    proxy.answer = lambda method, headers: copies.append(1) if is_copy(headers) else None
    options = azurite.options(proxy.url)
    plait.compact(
        f"{container.url}/in",
        sort_by="k",
        policy="full",
        target_file_size=None,
        yes=True,
        server_side_copy=True,
        storage_options=options,
    )
    assert copies, "the compaction copied nothing"
    live = pa.table(plait.read(f"{container.url}/in", sort_by="k", storage_options=options))
    assert live == pa.concat_tables(table(part * ROWS) for part in range(3))


def test_a_read_looks_at_a_source_once(container, azurite, proxy, disjoint):
    """Requests name the version that they read: none at the end compares it."""
    sources = [container.put(f"in/{n}.parquet", body) for n, body in enumerate(disjoint)]
    pa.table(plait.read(sources, sort_by="k", storage_options=azurite.options(proxy.url)))
    heads = Counter(path.partition("?")[0] for method, path in proxy.log if method == "HEAD")
    assert [count for path, count in heads.items() if "/in/" in path] == [1, 1, 1]
