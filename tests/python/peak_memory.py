"""Most memory this process has had, for tests that bound it."""

import os
import subprocess
import sys
from pathlib import Path


def peak_rss_bytes() -> int:
    """Most resident memory of this process so far.

    Not `ru_maxrss`: on Linux that starts at what the parent had when this process was forked.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    message = "/proc/self/status has no VmHWM"
    raise OSError(message)


def measured(script: str, root: Path, *given: object) -> list[int]:
    """The numbers that a script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, given)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'python'}"},
    )
    return list(map(int, done.stdout.split()))
