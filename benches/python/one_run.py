"""Runs one tool in this process and prints what it took, as JSON.

    python one_run.py '{"tool": "plait", ...}'
    python one_run.py '{"tools": "sort_tools", "tool": "plait-sort", ...}'

Imports nothing that a tool does not ask for: memory is that of the whole process.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path

from missing import NotInstalled


def run(job: dict) -> dict:
    """Wall and processor time of the merge alone, peak memory of the process.

    A tool that works in a process of its own says itself what that took.
    """
    try:
        tools = importlib.import_module(job.get("tools", "tools"))
        merge = tools.TOOLS[job["tool"]].ready(job)
    except ModuleNotFoundError as missing:
        return {"error": f"not installed: {missing.name}"}
    except NotInstalled as missing:
        return {"error": f"not installed: {missing}"}
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    more = merge()
    wall_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": wall_s, "cpu_s": cpu_s, "rss_bytes": peak_rss_bytes()} | (more or {})


def peak_rss_bytes() -> int:
    """Most memory this process had. Not `ru_maxrss` on Linux: that starts at the parent's."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
