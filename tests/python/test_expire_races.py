"""Compactions, `expire` at retention 0, appends and readers at once, and processes that are killed.

Every row that was written is read once by every reader at every moment, or the read says that it must
be repeated. See `expire_driver.py` for what the processes do.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import plait

pytestmark = pytest.mark.local  # processes name folders and URLs themselves

DRIVER = Path(__file__).with_name("expire_driver.py")
LONG = bool(os.environ.get("PLAIT_LONG"))
FILES = 1500 if LONG else 60
SEEDS = range(5) if LONG else range(1)


class Schedule:
    """Processes that work on one folder; some are killed, and others take their place."""

    def __init__(self, folder: str, options: dict | None, logs: Path, seed: int) -> None:
        self.case = {"folder": folder, "options": options, "logs": str(logs), "files": FILES}
        logs.mkdir()
        self.stop = logs / "stop"
        self.rng, self.seeds, self.seed = random.Random(seed), seed * 100, seed
        self.did = {role: Counter[str]() for role in ("append", "compact", "expire", "read")}
        self.killed = 0

    def start(self, role: str) -> tuple[str, subprocess.Popen[str]]:
        self.seeds += 1
        case = json.dumps({**self.case, "seed": self.seeds})
        command = [sys.executable, DRIVER, role, case]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return role, subprocess.Popen(command, text=True, **pipes)

    def run(self, roles: list[str], *, kills: bool) -> None:
        running = [self.start(role) for role in roles]
        try:
            while any(role == "append" and p.poll() is None for role, p in running):
                if not kills:
                    time.sleep(0.1)
                    continue
                # Those that write are killed, with `kill -9`.
                time.sleep(self.rng.uniform(0.5, 3))
                writers = [pair for pair in running if pair[0] in ("compact", "expire")]
                victim = self.rng.choice(writers)
                if victim[1].poll() is None:
                    victim[1].kill()
                    victim[1].communicate()
                    self.killed += 1
                    running[running.index(victim)] = self.start(victim[0])
            self.stop.touch()
            for role, process in running:
                out, errors = process.communicate(timeout=300)
                assert process.returncode == 0, f"{role}, schedule {self.seed}: {errors}"
                self.did[role].update(json.loads(out.splitlines()[-1]))
        finally:
            for _, process in running:
                process.kill()

    def check(self, *, kills: bool) -> None:
        """Rows are there at the end, and every role has done something."""
        told = f"schedule {self.seed}: {self.did}, {self.killed} killed"
        print(told)
        assert self.did["append"]["appended"] and self.did["read"]["read"], told
        # Who is killed does not say what it did.
        assert kills or (self.did["compact"]["merged"] and self.did["expire"]["removed"]), told
        assert bool(self.killed) == kills, told
        folder, options = self.case["folder"], self.case["options"]
        assert plait.compact(folder, sort_by="k", storage_options=options).version > 3, told
        sys.path.insert(0, str(DRIVER.parent))
        from expire_driver import Case

        case = Case(json.dumps({**self.case, "seed": 0}))
        assert case.check() is None, told


ROLES = ["append", "compact", "expire", "read", "compact"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kills", [False, True], ids=["alive", "killed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_row_is_lost_beside_expire(tmp_path, seed, kills):
    schedule = Schedule(str(tmp_path / "events"), None, tmp_path / "logs", seed)
    (tmp_path / "events").mkdir()
    schedule.run([*ROLES, "expire"], kills=kills)
    schedule.check(kills=kills)


@pytest.mark.long
@pytest.mark.parametrize("kills", [False, True], ids=["alive", "killed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_object_is_lost_beside_expire(s3_server, tmp_path, seed, kills):
    s3_server.client().create_bucket(Bucket="races")
    folder = f"s3://races/events-{seed}-{kills}"
    schedule = Schedule(folder, s3_server.options(), tmp_path / "logs", seed)
    schedule.run(ROLES, kills=kills)
    schedule.check(kills=kills)
