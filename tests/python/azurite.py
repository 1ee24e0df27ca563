"""Azurite, the emulator of Azure's store, on loopback: `npm install -g azurite`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import shutil
import socket
import subprocess
import time
from email.utils import formatdate

START_S = 60
PROGRAM = shutil.which("azurite-blob")

# What everybody knows, see the documentation of Azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"


class Azurite:
    """The emulator."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--blobPort"]
        self.process = subprocess.Popen(
            [PROGRAM, *options, str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self.process.poll() is None, "Azurite ended at once"
                assert time.monotonic() < deadline, "Azurite did not start"
                time.sleep(0.05)

    def options(self) -> dict[str, str]:
        """`storage_options` that reach it."""
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_storage_endpoint": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "allow_http": "true",
        }

    def make(self, container: str) -> None:
        """Makes a container."""
        path, date = f"/{ACCOUNT}/{container}", formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": VERSION}
        lines = [f"{name}:{value}" for name, value in headers.items()]
        text = "\n".join(["PUT", *[""] * 11, *lines, f"/{ACCOUNT}{path}", "restype:container"])
        sign = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(sign).decode()}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        status = connection.getresponse().status
        connection.close()
        assert status == 201, status

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
