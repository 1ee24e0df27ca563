"""An S3 server on loopback, and a proxy before it that makes some requests fail.

The server is moto's, in a process of its own. `PLAIT_S3_SERVER` may have the address of another one
on loopback, with the access key `key`, the secret key `secret` and no buckets. The proxy forwards one
request at a time per connection, and by the numbers of its generator answers 500 or 503 instead,
cuts the answer short, or pauses in the middle of it.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

START_S = 60

# The server looks who asks, not whether the signature fits.
AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=key/20240101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


class Server:
    """The server; `url` is its endpoint."""

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None
        if url := os.environ.get("PLAIT_S3_SERVER"):
            self.url, self.port = url, int(url.rpartition(":")[2])
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {name: v for name, v in os.environ.items() if name != "PYTHONWARNINGS"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self.process.poll() is None, "the S3 server ended at once"
                assert time.monotonic() < deadline, "the S3 server did not start"
                time.sleep(0.05)

    def options(self, url: str | None = None) -> dict[str, str]:
        """`storage_options` that reach the server, or a proxy at `url`."""
        return {
            "aws_endpoint_url": url or self.url,
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def client(self):
        """A client of Amazon's own for it, of two connections."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            region_name="us-east-1",
            config=Config(max_pool_connections=2),
        )

    def request(self, method: str, path: str, body: bytes = b"", port: int | None = None):
        """One plain request; gives status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=30)
        try:
            headers = {"Content-Length": str(len(body)), "Authorization": AUTHORIZATION}
            if method == "PUT":
                headers["x-amz-acl"] = "public-read"  # for the tests that sign nothing
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)


class Proxy:
    """Forwards to a server; `share` of the requests fail in one of four ways."""

    KINDS = ("500", "503", "cut", "slow")

    def __init__(self, server: Server, share: float = 0.0, seed: int = 0) -> None:
        self.share = share
        self.log: list[tuple[str, str]] = []
        self.failed: list[str] = []
        # Uploads that began though the answer with their id was cut: nobody can end them.
        self.orphaned_uploads = 0
        # Which request is forwarded, once, and answered with an error all the same.
        self.lose = lambda method, path: False
        # The status and the code that a request is answered with, instead of being forwarded.
        self.answer = lambda method, headers: None
        self.answered: list[int] = []
        # Headers of requests that the server does not get to see, and others that it gets.
        self.drop_headers: tuple[str, ...] = ()
        self.translated = dict
        numbers, lock, upstream = random.Random(seed), threading.Lock(), server.port
        conditional = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                with lock:
                    proxy.log.append((self.command, self.path))
                    fails = numbers.random() < proxy.share
                    kind = numbers.choice(Proxy.KINDS) if fails else ""
                    if kind:
                        proxy.failed.append(kind)
                    if kind == "cut" and self.command == "POST" and "uploads" in self.path:
                        proxy.orphaned_uploads += 1
                if kind in ("500", "503"):
                    self.reply(int(kind), [], b"<Error><Code>InternalError</Code></Error>")
                    return
                given = {name.lower(): value for name, value in self.headers.items()}
                if answer := proxy.answer(self.command, given):
                    status, code = answer
                    proxy.answered.append(status)
                    self.reply(status, [], f"<Error><Code>{code}</Code></Error>".encode())
                    return
                connection = http.client.HTTPConnection("127.0.0.1", upstream, timeout=60)
                dropped = ("connection", *proxy.drop_headers)
                headers = {n: v for n, v in self.headers.items() if n.lower() not in dropped}
                headers = proxy.translated(headers)
                # The server looks whether an object is there, and then makes it: two at a time would
                # both find nothing.
                is_new = any(name.lower() == "if-none-match" for name in headers)
                try:
                    with conditional if is_new else nullcontext():
                        connection.request(self.command, self.path, body, headers)
                        answer = connection.getresponse()
                        data = answer.read()
                finally:
                    connection.close()
                if "lost" not in proxy.failed and proxy.lose(self.command, self.path):
                    proxy.failed.append("lost")
                    self.reply(500, [], b"")
                    return
                skipped = ("content-length", "connection", "transfer-encoding")
                kept = [(n, v) for n, v in answer.getheaders() if n.lower() not in skipped]
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.reply(answer.status, kept, data, kind, length)

            def reply(self, status, headers, data, kind="", length=None) -> None:
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in ("date", "server"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length or str(len(data)))
                self.end_headers()
                half = len(data) // 2
                if kind == "cut":
                    self.wfile.write(data[:half])
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                elif self.command != "HEAD":
                    self.wfile.write(data[:half])
                    if kind == "slow":
                        time.sleep(0.2)
                    self.wfile.write(data[half:])

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_one

            def log_message(self, *arguments) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            # Of several processes: a connection that finds no place waits for a second, then two.
            request_queue_size = 128

            def handle_error(self, request, client_address) -> None:
                pass  # the client went away: a merge that failed or was cancelled

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def as_google(self) -> dict[str, str]:
        """Speaks as Google Cloud Storage does, whose XML is that of S3; gives `storage_options`."""

        def translated(headers: dict[str, str]) -> dict[str, str]:
            given = {name.lower(): value for name, value in headers.items()}
            if given.pop("x-goog-if-generation-match", None) == "0":
                given["if-none-match"] = "*"
            return {**given, "authorization": AUTHORIZATION}

        self.translated = translated
        names = ("client_email", "private_key", "private_key_id")
        key = {"gcs_base_url": self.url, "disable_oauth": True, **dict.fromkeys(names, "")}
        return {"google_service_account_key": json.dumps(key), "allow_http": "true"}

    def watch(self, kind: Callable[[str, str], str]) -> Counter[str]:
        """Most requests of each kind, by method and path, that wait for an answer at a time.

        Every answer takes a while from now on.
        """
        waiting, most, lock = Counter(), Counter(), threading.Lock()

        def wait(method: str, path: str) -> bool:
            what = kind(method, path)
            with lock:
                waiting[what] += 1
                most[what] = max(most[what], waiting[what])
            time.sleep(0.05)
            with lock:
                waiting[what] -= 1
            return False

        self.lose = wait
        return most

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(10)
