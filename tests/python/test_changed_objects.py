"""Objects that are replaced while they are read, by servers that ignore `If-Match`."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

ROWS = 120_000


def file_of(path, seed):
    values = np.random.default_rng(seed).integers(0, 2**60, ROWS)
    table = pa.table({"k": np.arange(ROWS), "v": values})
    pq.write_table(table, path, row_group_size=6_000, compression="none", use_dictionary=False)
    return path.read_bytes()


@pytest.fixture
def served(tmp_path):
    """The URL of an object that is replaced by one of the same length after three requests."""
    old, new = file_of(tmp_path / "old.parquet", 1), file_of(tmp_path / "new.parquet", 2)
    assert len(old) == len(new)
    asked = [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked[0] += 1
            data = old if asked[0] <= 3 else new
            first, _, last = (
                self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            )
            first, last = (
                (int(first), min(int(last or len(data)), len(data) - 1))
                if first
                else (len(data) - int(last), len(data) - 1)
            )
            part = data[first : last + 1]
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.send_header("Content-Length", str(len(part)))
            self.send_header("ETag", f'"{hashlib.md5(data).hexdigest()}"')
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(part)

        do_HEAD = do_GET

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/a.parquet", asked
    server.shutdown()
    server.server_close()
    thread.join(10)


def rows(batches):
    return sum(batch.num_rows for batch in batches)


CALLS = {
    "read": lambda url, **how: rows(plait.read(url, sort_by="k", **how)),
    "scan": lambda url, **how: rows(plait.scan(url, **how)),
    "streams": lambda url, **how: rows(plait.merge_streams([url], sort_by="k", **how)),
    "verify": lambda url, **how: plait.verify(url, sort_by="k", **how).rows,
}


@pytest.mark.parametrize("call", CALLS)
def test_an_object_that_changes_is_an_error_where_the_server_ignores_if_match(served, call):
    url, asked = served
    with pytest.raises(plait.SourceChanged, match=r"a\.parquet"):
        CALLS[call](url, storage_options={"allow_http": "true"})
    assert asked[0] > 3
