"""`_native.Folder`: a folder on a disk or in a bucket, whose files are there whole or not at all."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _native

pytestmark = pytest.mark.local  # objects of its own

NAMES = ["plain.json", "a b/c d.json", "100%/%20.json", "é/日本.json", "q?#&+.json", "d=1/.hidden"]


def opened(root, settings=None):
    return _native.Folder(json.dumps({"folder": str(root), "storage_options": settings or {}}))


@pytest.fixture(params=["disk", "s3", "gs", "obstore", "fsspec"])
def folder(request, tmp_path):
    """An empty folder of each kind."""
    if request.param == "disk":
        return opened(tmp_path)
    if request.param in ("s3", "gs"):
        server, proxy = (request.getfixturevalue(name) for name in ("s3_server", "s3_proxy"))
        name = f"folder{uuid.uuid4().hex[:12]}"
        client = server.client()
        client.create_bucket(Bucket=name)
        client.close()
        settings = proxy.as_google() if request.param == "gs" else server.options()
        return opened(f"{request.param}://{name}/below", settings)
    if request.param == "obstore":
        store = pytest.importorskip("obstore").store.MemoryStore()
    else:
        store = pytest.importorskip("fsspec").filesystem("memory", skip_instance_cache=True)
        store.store = {}
    from plait import _stores

    _, _, adapter = _stores.reach(store)
    return _native.Folder(json.dumps({"folder": "below"}), adapter)


def has_conditions(folder):
    """Whether the store makes a file only where there is none: fsspec does not promise it."""
    try:
        return folder.put_new("condition", b"")
    except plait.Unsupported:
        return False
    finally:
        folder.remove(["condition"])


def test_a_name_is_given_once(folder):
    if not has_conditions(folder):
        pytest.skip("a store without conditions")
    for name in NAMES:
        assert folder.read(name) is None
        assert folder.put_new(name, name.encode())
        assert not folder.put_new(name, b"other")
        assert folder.put_new(name, name.encode()), "an answer may be lost"
        assert folder.read(name) == name.encode()
    assert folder.names() == sorted(NAMES)
    assert folder.names("a b") == ["a b/c d.json"] and folder.names("none") == []
    for name in NAMES:
        folder.remove([name])
        folder.remove([name, "absent"])
    assert folder.names() == []


def test_a_file_is_replaced_in_one_step(folder):
    for body in (b"one", b"", b"two"):
        folder.replace("a/b", body)
        assert folder.read("a/b") == body
    assert folder.names() == ["a/b"]


def test_many_writers_of_one_name_and_one_of_them_has_it(folder):
    if not has_conditions(folder):
        pytest.skip("a store without conditions")
    for turn in range(5):
        won = []

        def put(body, name=f"{turn}", won=won):
            if folder.put_new(name, body):
                won.append(body)

        threads = [threading.Thread(target=put, args=(b"%d" % i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [folder.read(f"{turn}")]


def test_pyarrow_writes_files_that_are_visible_when_they_are_closed(folder):
    table = pa.table({"k": range(300_000), "v": [f"{i * 7919 % 1000003}" for i in range(300_000)]})
    with folder.create("runs/é %.parquet") as file:
        with pq.ParquetWriter(file, table.schema, compression="none") as writer:
            writer.write_table(table, row_group_size=50_000)
        assert not file.closed and file.tell() > 1 << 21
        assert folder.names() == []
    assert file.closed and folder.names() == ["runs/é %.parquet"]
    assert pq.read_table(pa.BufferReader(folder.read("runs/é %.parquet"))).equals(table)
    file.close()
    with pytest.raises(plait.InvalidArgument, match="closed"):
        file.write(b"more")


def test_of_two_writers_of_one_name_one_ends(folder):
    first, second = folder.create("a.parquet"), folder.create("a.parquet")
    assert first.write(b"first") == 5
    second.write(memoryview(b"second"))
    first.close()
    with pytest.raises(plait.OutputExists, match=r"a\.parquet"):
        second.close()
    assert second.closed and folder.read("a.parquet") == b"first"


@pytest.mark.few(4)
@pytest.mark.parametrize("size", [1, 3 << 20, 17 << 20])
def test_a_writer_that_is_not_closed_leaves_nothing(folder, size, tmp_path):
    def stops():
        with folder.create("a") as file, pq.ParquetWriter(file, pa.schema({"k": pa.int64()})):
            file.write(bytes(size))
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        stops()
    forgotten = folder.create("b")
    forgotten.write(bytes(size))
    del forgotten
    gc.collect()
    given_up = folder.create("c")
    given_up.write(bytes(size))
    given_up.abort()
    given_up.close()
    assert given_up.closed and folder.names() == []
    assert list(tmp_path.rglob("*")) == []


def test_a_lost_answer_is_no_failure(s3_server, s3_proxy):
    client = s3_server.client()
    client.create_bucket(Bucket="lost")
    client.close()
    settings = {**s3_server.options(s3_proxy.url), "retry_init_backoff_ms": "10"}
    folder = opened("s3://lost/x", settings)
    s3_proxy.lose = lambda method, path: method == "PUT" and path.endswith("record.json")
    assert folder.put_new("record.json", b"mine")
    assert s3_proxy.failed == ["lost"] and not folder.put_new("record.json", b"other")


def test_uploads_that_are_given_up_are_aborted(s3_server):
    client = s3_server.client()
    client.create_bucket(Bucket="given-up")
    folder = opened("s3://given-up/x", s3_server.options())
    for size in (1, 30 << 20):
        folder.create("a").write(bytes(size))
        folder.create("b").abort()
    gc.collect()
    assert not client.list_multipart_uploads(Bucket="given-up").get("Uploads")
    client.close()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "/etc/passwd", "a/../b", "a//b", "a/", "\0"]
)
def test_names_stay_below_the_folder(folder, name):
    calls = [folder.read, lambda name: folder.remove([name]), folder.create, folder.location]
    for call in calls if name else calls[1:]:
        with pytest.raises(plait.InvalidArgument, match="no name of a file below"):
            call(name)
    for put in (folder.put_new, folder.replace):
        with pytest.raises(plait.InvalidArgument, match="no name of a file below"):
            put(name, b"")
    if name:
        with pytest.raises(plait.InvalidArgument):
            folder.names(name)


def test_what_is_no_bytes_is_refused(folder):
    with folder.create("a") as file:
        for wrong in (5, "text", None):
            with pytest.raises(TypeError):
                file.write(wrong)
    for wrong in (5, "text"):
        with pytest.raises(TypeError):
            folder.put_new("b", wrong)
    assert folder.names() == ["a"] and folder.read("a") == b""


def test_a_local_folder_must_be_there(tmp_path):
    with pytest.raises(plait.SourceNotFound, match="no such folder"):
        opened(tmp_path / "none")
    with pytest.raises(plait.InvalidArgument, match="options"):
        _native.Folder('{"folder": ".", "overwrite": true}')


def test_a_folder_that_is_only_read_is_an_error_of_storage(tmp_path):
    if os.geteuid() == 0:
        # Root writes everywhere, but where a file is in the place of a folder.
        (tmp_path / "runs").write_bytes(b"")
    else:
        (tmp_path / "runs").mkdir(mode=0o500)
    folder = opened(tmp_path)
    for call in (lambda: folder.put_new("runs/a", b""), lambda: folder.create("runs/b")):
        with pytest.raises(plait.StorageError) as caught:
            call()
        assert caught.value.path.startswith(str(tmp_path / "runs")) and caught.value.hint


def test_a_store_that_does_not_answer_is_an_error_of_storage():
    settings = {
        "aws_endpoint_url": "http://127.0.0.1:9",
        "allow_http": "true",
        "skip_signature": "true",
        "max_retries": "0",
    }
    folder = opened("s3://bucket/runs", settings)
    calls = (
        folder.read,
        lambda name: folder.create(name).close(),
        lambda name: folder.put_new(name, b""),
    )
    for call in calls:
        with pytest.raises(plait.StorageError) as caught:
            call("a")
        assert caught.value.path == "s3://bucket/runs/a"


def test_a_process_that_is_killed_leaves_no_visible_file(tmp_path):
    script = """
import json, sys, time
from plait import _native

file = _native.Folder(json.dumps({"folder": sys.argv[1]})).create("runs/a.parquet")
file.write(bytes(5 << 20))
print("written", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    folder = opened(tmp_path)
    assert folder.names() == [] and folder.read("runs/a.parquet") is None
    with folder.create("runs/a.parquet") as file:
        file.write(b"whole")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a.parquet"], "swept"


def test_forked_processes_write_to_the_same_folder(folder, request):
    if "obstore" in request.node.name or "fsspec" in request.node.name:
        pytest.skip("in the memory of one process")
    folder.put_new("mine", b"1")
    child = os.fork()
    if child == 0:
        try:
            with folder.create("of the child") as file:
                file.write(b"2")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert folder.names() == ["mine", "of the child"]
