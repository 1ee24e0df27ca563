"""Azurite, the emulator of Azure's store, on loopback; `npm` installs it when it is first needed."""

from __future__ import annotations

import base64
import fcntl
import functools
import hashlib
import hmac
import http.client
import shutil
import socket
import subprocess
import time
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode

START_S = 60
INSTALL_S = 300

# The first version that makes blocks of blobs (Put Block From URL).
PACKAGE = "azurite@3.37.0"
CACHE = Path.home() / ".cache/plait" / PACKAGE.replace("@", "-")

# What everybody knows, see the documentation of Azurite.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"


@functools.cache
def program() -> tuple[Path | None, str]:
    """The emulator, or why there is none."""
    found = CACHE / "node_modules/.bin/azurite-blob"
    if not (npm := shutil.which("npm")):
        return None, "npm is not installed"
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with (CACHE.parent / "azurite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            flags = ["--no-audit", "--no-fund", "--omit=dev", "--omit=optional"]
            try:
                subprocess.run(
                    [npm, "install", "--prefix", str(CACHE), *flags, PACKAGE],
                    check=True,
                    capture_output=True,
                    timeout=INSTALL_S,
                )
            except subprocess.SubprocessError as e:
                shutil.rmtree(CACHE, ignore_errors=True)
                return None, f"npm could not install {PACKAGE}: {e}"
    return found, ""


def sign(text: str) -> str:
    """The signature of a text by the key of the account."""
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


class Azurite:
    """The emulator."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--blobPort"]
        self.process = subprocess.Popen(
            [program()[0], *options, str(self.port)],
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

    def options(self, url: str | None = None) -> dict[str, str]:
        """`storage_options` that reach it, or a proxy at `url`."""
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_storage_endpoint": f"{url or f'http://127.0.0.1:{self.port}'}/{ACCOUNT}",
            "allow_http": "true",
        }

    def token(self, container: str, permissions: str) -> str:
        """A shared access signature for the blobs of a container, valid for an hour."""
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        of = f"/blob/{ACCOUNT}/{container}"
        lines = [permissions, "", ends, of, "", "", "", VERSION, "c", *[""] * 7]
        what = {"sv": VERSION, "sr": "c", "sp": permissions, "se": ends}
        return urlencode({**what, "sig": sign("\n".join(lines))})

    def make(self, container: str) -> None:
        """Makes a container."""
        path, date = f"/{ACCOUNT}/{container}", formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": VERSION}
        lines = [f"{name}:{value}" for name, value in headers.items()]
        text = "\n".join(["PUT", *[""] * 11, *lines, f"/{ACCOUNT}{path}", "restype:container"])
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{sign(text)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        status = connection.getresponse().status
        connection.close()
        assert status == 201, status

    def stop(self) -> None:
        self.process.kill()  # nothing of it is kept, and connections that are open would delay it
        self.process.wait(10)
