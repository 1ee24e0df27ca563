"""parquet-go: a program in Go, built from `benches/go`, merges in a process of its own.

The program measures itself: time and processor time of the merge alone, and the greatest memory of
its process. The Python that starts it and waits is not counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from missing import NotInstalled

SOURCE = Path(__file__).resolve().parents[1] / "go"


def ready(job: dict):
    program = build(Path(job["scratch"]).resolve().parent / "parquet-go-merge")
    asked = {
        "sources": job["sources"],
        "out": job["out"],
        "key": [{"name": column, "descending": down} for column, down in job["key"]],
        "row_group_rows": job["peer_row_group_rows"],
    }
    environment = os.environ | {"GOMAXPROCS": str(job["threads"])}

    def run():
        done = subprocess.run(
            [program], input=json.dumps(asked), env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(last_line(done.stderr))
        return json.loads(done.stdout)

    return run


def build(program: Path) -> Path:
    """The program, next to the data of the benches; Go knows whether there is something to do."""
    if not shutil.which("go"):
        raise NotInstalled("Go")
    done = subprocess.run(
        ["go", "build", "-buildvcs=false", "-trimpath", "-o", str(program), "."],
        cwd=SOURCE,
        capture_output=True,
        text=True,
    )
    if done.returncode:  # such as a module that is not there and cannot be fetched
        raise NotInstalled(f"the program of benches/go ({last_line(done.stderr)})")
    return program


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]
