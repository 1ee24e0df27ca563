"""Joins of which any write fails: the step does not count, and the same join goes on with it.

Run as a program under the preloaded library: `python test_join_faults.py FOLDER STRIDE`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import plait

_SPEC = importlib.util.spec_from_file_location(
    "join_driver", Path(__file__).with_name("join_driver.py")
)
driver = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(driver)

pytestmark = pytest.mark.local

FAULTY = 8


def rows(stream) -> list[str]:
    return sorted(map(str, pa.table(stream).to_pylist()))


def apply(join, step: int) -> list[str]:
    left, right = driver.changes_of(step)
    return rows(join.apply(left=left, right=right, step=step))


def check(folder: Path, stride: int) -> None:
    """Lets every `stride`-th write of one step fail."""
    library = ctypes.CDLL(None)
    expected = []
    with driver.open_join(None) as join:
        for step in range(driver.STEPS):
            expected.append((apply(join, step), rows(join.table())))
    with driver.open_join(str(folder / "first")) as join:
        for step in range(FAULTY):
            apply(join, step)
    failed, at = 0, 0
    while True:
        state = folder / f"state-{at}"
        shutil.copytree(folder / "first", state)
        with driver.open_join(str(state)) as join:
            library.plait_fail(str(state).encode(), at)
            try:
                told = apply(join, FAULTY)
                writes = library.plait_calls()
            except plait.StorageError as e:
                assert "No space left" in str(e), (at, e)
                told = None
                failed += 1
            library.plait_fail(b"", -1)
            if told is None:
                assert rows(join.table()) == expected[FAULTY - 1][1], at
            else:
                # A name that cannot be linked is made by renaming: then nothing is missing.
                assert (told, rows(join.table())) == expected[FAULTY], at
                if writes <= at:
                    break
            for step in range(FAULTY if told is None else FAULTY + 1, FAULTY + 3):
                assert (apply(join, step), rows(join.table())) == expected[step], (at, step)
        with plait.ForeignKeyJoin.restore(state) as join:
            assert rows(join.table()) == expected[FAULTY + 2][1], at
        shutil.rmtree(state)
        at += stride
    assert failed >= 12 // stride, failed
    print(failed, "writes failed of", writes)


def test_any_write_of_a_step_may_fail_and_the_join_goes_on(tmp_path):
    library = tmp_path / "fail_at_write.so"
    source = Path(__file__).with_name("fail_at_write.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONDONTWRITEBYTECODE": "1"}
    stride = "1" if os.environ.get("CI") else "3"
    command = [sys.executable, __file__, str(tmp_path), stride]
    subprocess.run(command, env=environment, check=True, timeout=300)


if __name__ == "__main__":
    check(Path(sys.argv[1]), int(sys.argv[2]))
