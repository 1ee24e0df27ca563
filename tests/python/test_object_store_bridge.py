"""Stores that callers bring: obstore stores and fsspec file systems."""

from __future__ import annotations

import io

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import HTTPStore, LocalStore, MemoryStore, S3Store

import plait

ROWS = 4_000

pytestmark = pytest.mark.local  # these tests bring their own stores


def rows(part: int, parts: int) -> pa.Table:
    keys = list(range(part, ROWS, parts))
    return pa.table({"k": keys, "text": [f"{k:05}" for k in keys]})


def source(part: int) -> bytes:
    written = io.BytesIO()
    pq.write_table(rows(part, 4), written)
    return written.getvalue()


class Obstore:
    def __init__(self, store) -> None:
        self.store = store

    def put(self, key: str, body: bytes) -> None:
        self.store.put(key, body)

    def get(self, key: str) -> bytes:
        return bytes(self.store.get(key).bytes())

    def keys(self) -> list[str]:
        return sorted(meta["path"] for batch in self.store.list() for meta in batch)


class Fsspec:
    def __init__(self, system, root: str = "") -> None:
        self.store, self.root = system, root

    def put(self, key: str, body: bytes) -> None:
        path = f"{self.root}/{key}"
        self.store.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.store.pipe(path, body)

    def get(self, key: str) -> bytes:
        return self.store.cat_file(f"{self.root}/{key}")

    def keys(self) -> list[str]:
        found = self.store.find(self.root or "/")
        return sorted(name.removeprefix(self.root).strip("/") for name in found)


@pytest.fixture(params=["obstore memory", "obstore local", "obstore s3", "fsspec memory", "dir"])
def bucket(request, tmp_path, s3_server):
    if request.param == "obstore memory":
        made = Obstore(MemoryStore())
    elif request.param == "obstore local":
        made = Obstore(LocalStore(tmp_path))
    elif request.param == "obstore s3":
        name = f"bridge-{abs(hash(str(tmp_path))) % 10**12}"
        s3_server.request("PUT", f"/{name}")
        settings = {"endpoint": s3_server.url, "access_key_id": "key", "secret_access_key": "s"}
        client = {"allow_http": True}
        made = Obstore(
            S3Store(
                name,
                prefix="some/where",
                region="us-east-1",
                config=settings,
                client_options=client,
            )
        )
    elif request.param == "fsspec memory":
        system = fsspec.filesystem("memory")
        system.store.clear()
        made = Fsspec(system)
    else:
        made = Fsspec(fsspec.filesystem("dir", path=str(tmp_path), target_protocol="file"))
    for part in range(4):
        made.put(f"in/{part}.parquet", source(part))
    return made


def test_paths_are_names_in_the_store(bucket):
    report = plait.merge("in", "out", sort_by="k", outputs=2, storage_options=bucket.store)
    made = [key for key in bucket.keys() if not key.startswith("in/")]
    assert len(made) == 2 and all(key.startswith("out/part-") for key in made)
    assert [o.path.rpartition("/")[2] for o in report.outputs] == [k.split("/")[1] for k in made]
    tables = [pq.read_table(pa.BufferReader(bucket.get(key))) for key in made]
    assert pa.concat_tables(tables) == rows(0, 1)
    found = plait.verify("out/*.parquet", against="in", storage_options=bucket.store)
    assert found.ok
    assert plait.inspect("in/0.parquet", storage_options=bucket.store).rows == ROWS // 4


def test_scans_name_files_in_the_store_beside_streams(bucket):
    more = pa.table({"more": [1.5]})
    scan = plait.scan(["in", more], storage_options=bucket.store)
    read = pa.table(scan)
    assert read.num_rows == ROWS + 1
    assert sorted(read["k"].to_pylist()[:-1]) == rows(0, 1)["k"].to_pylist()
    assert read["more"].to_pylist()[-1] == 1.5
    assert len(scan.adapters) == 5


def test_streams_name_files_in_the_store(bucket):
    last = pa.table({"k": [ROWS], "text": ["last"]})
    stream = plait.merge_streams([last, "in"], sort_by="k", storage_options=bucket.store)
    assert pa.table(stream) == pa.concat_tables([rows(0, 1), last])


def test_nothing_is_replaced_and_nothing_left_behind(bucket):
    bucket.put("out/all.parquet", b"somebody's")
    for out in ("out", "out/all.parquet"):
        with pytest.raises(plait.OutputExists):
            plait.merge("in", out, sort_by="k", storage_options=bucket.store)
    bucket.put("bad/0.parquet", source(0))
    written = io.BytesIO()
    pq.write_table(pa.table({"k": [2, 1], "text": ["a", "b"]}), written)
    bucket.put("bad/1.parquet", written.getvalue())
    with pytest.raises(plait.UnsortedSource, match=r"1\.parquet"):
        plait.merge("bad", "other", sort_by="k", storage_options=bucket.store)
    kept = {"bad/0.parquet", "bad/1.parquet", "out/all.parquet"}
    assert set(bucket.keys()) == kept | {f"in/{part}.parquet" for part in range(4)}
    assert bucket.get("out/all.parquet") == b"somebody's"


def test_the_same_merge_twice_is_one(bucket):
    merge = {"sort_by": "k", "outputs": 2, "storage_options": bucket.store}
    plait.merge("in", "out", **merge)
    before = {key: bucket.get(key) for key in bucket.keys()}
    plait.merge("in", "out", **merge)
    assert {key: bucket.get(key) for key in bucket.keys()} == before


def test_what_is_missing_is_not_found(bucket):
    for name in ("absent", "absent.parquet", "in/x*.parquet"):
        with pytest.raises(plait.SourceNotFound):
            plait.merge(name, "out", sort_by="k", storage_options=bucket.store)


def test_what_a_store_raises_is_a_storage_error():
    system = fsspec.filesystem("memory", skip_instance_cache=True)
    system.store.clear()
    system.pipe("/in/0.parquet", source(0))

    def broken(path, start=None, end=None, **options):
        raise ConnectionResetError("the cable was cut")

    system.cat_file = broken
    with pytest.raises(plait.StorageError, match="the cable was cut"):
        plait.inspect("in/0.parquet", storage_options=system)


def test_urls_go_past_the_store(tmp_path):
    store = MemoryStore()
    store.put("in/0.parquet", source(0))
    out = tmp_path / "a.parquet"
    plait.merge("in", out.as_uri(), sort_by="k", storage_options=store)
    assert pq.read_table(out).num_rows == ROWS // 4


def test_a_store_that_is_read_only_says_so(s3_server, tmp_path):
    s3_server.request("PUT", "/readonly")
    s3_server.request("PUT", "/readonly/0.parquet", source(0))
    store = HTTPStore.from_url(f"{s3_server.url}/readonly", client_options={"allow_http": True})
    out = (tmp_path / "a.parquet").as_uri()
    plait.merge("0.parquet", out, sort_by="k", storage_options=store)
    assert pq.read_table(tmp_path / "a.parquet").num_rows == ROWS // 4


def test_s3fs_works_as_any_file_system(s3_server):
    s3fs = pytest.importorskip("s3fs")
    system = s3fs.S3FileSystem(key="key", secret="s", endpoint_url=s3_server.url)
    s3_server.request("PUT", "/s3fs-bucket")
    for part in range(4):
        s3_server.request("PUT", f"/s3fs-bucket/in/{part}.parquet", source(part))
    plait.merge("s3fs-bucket/in", "s3fs-bucket/out/a.parquet", sort_by="k", storage_options=system)
    assert system.find("s3fs-bucket/out") == ["s3fs-bucket/out/a.parquet"]
    body = system.cat_file("s3fs-bucket/out/a.parquet")
    assert pq.read_table(pa.BufferReader(body)) == rows(0, 1)
