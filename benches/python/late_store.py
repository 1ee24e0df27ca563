"""An S3 server on loopback whose answers wait (`benches/go/store`, needs Go)."""

from __future__ import annotations

import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "go"

Requests = Callable[[], str]


@contextmanager
def late_store(folder: Path, delay: str) -> Iterator[tuple[str, Requests]]:
    """Serves the files of `folder` as the objects of `s3://objects/`.

    Args:
        folder: What is served.
        delay: How long each answer waits, as `20ms`.

    Yields:
        The URL of the server, and what says how many requests it had.
    """
    with tempfile.TemporaryDirectory(prefix="plait-store-") as built:
        subprocess.run(["go", "build", "-o", f"{built}/store", "./store"], cwd=PROGRAM, check=True)
        with subprocess.Popen(
            [f"{built}/store", folder, delay], stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            url = f"http://{server.stdout.readline().strip()}"

            def requests() -> str:
                with urllib.request.urlopen(f"{url}/requests") as counted:
                    return counted.read().decode().strip()

            try:
                yield url, requests
            finally:
                server.kill()
