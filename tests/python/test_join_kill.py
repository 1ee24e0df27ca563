"""Joins whose process is killed at any write: the state is that of a step, and nothing comes twice."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Every so many writes one is the last; all of them when there is time.
# Every write takes minutes.
STRIDE = 1 if os.environ.get("PLAIT_LONG") else 11 if os.environ.get("CI") else 41
DRIVER = Path(__file__).with_name("join_driver.py")

_SPEC = importlib.util.spec_from_file_location("join_driver", DRIVER)
driver = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(driver)

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def killer(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("killer") / "kill_at_write.so"
    source = Path(__file__).with_name("kill_at_write.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@pytest.mark.behaviour("join-28")
@pytest.mark.long
def test_a_join_killed_at_any_write_goes_on_and_delivers_every_change_once(tmp_path, killer):
    in_memory = str(tmp_path / "memory.sqlite")
    table = driver.run(None, in_memory)
    expected = driver.delivered(in_memory)
    assert expected[0] == list(range(driver.STEPS))
    assert len(table) > 10

    environment = {**os.environ, "LD_PRELOAD": str(killer), "PYTHONDONTWRITEBYTECODE": "1"}
    killed, at, resumed = 0, 0, set()
    while True:
        state, sink = tmp_path / f"state-{at}", str(tmp_path / f"{at}.sqlite")
        count = tmp_path / "count"
        environment |= {
            "PLAIT_KILL_AT": str(at),
            "PLAIT_KILL_IN": str(state),
            "PLAIT_KILL_COUNT": str(count),
        }
        done = subprocess.run(
            [sys.executable, DRIVER, state, sink], env=environment, check=False, timeout=60
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        killed += 1
        resumed.add(len(driver.delivered(sink)[0]))
        assert driver.run(str(state), sink) == table, at
        assert driver.delivered(sink) == expected, at
        # Nothing is left of the step that did not come to count.
        assert not [path for path in state.iterdir() if path.name.startswith(".plait-tmp-")]
        at += STRIDE
    writes = int(count.read_text())
    assert writes > 150 and killed == -(-writes // STRIDE)
    assert len(resumed) >= driver.STEPS // 2
