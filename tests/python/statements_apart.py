"""Runs scripts in an environment whose Spark loads the libraries of Iceberg and Delta.

`PLAIT_ICEBERG_PYTHON` is its interpreter: PySpark 4.1.1, PyIceberg with `sql-sqlite`, PyArrow. The
libraries come from Maven. Plait is that of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import plait

PYTHON = os.environ.get("PLAIT_ICEBERG_PYTHON")
marks = [
    pytest.mark.local,
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.skipif(not PYTHON, reason="PLAIT_ICEBERG_PYTHON names no interpreter"),
]


def told_by(script, folder, *cases):
    """What a script tells of each case, in the other interpreter."""
    here = Path(__file__).with_name(script)
    package = str(Path(plait.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package, "PYSPARK_PYTHON": PYTHON}
    done = subprocess.run(
        [PYTHON, "-W", "ignore", str(here), str(folder), *cases],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=3600,
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-4000:]
    return {one.pop("case"): one for one in told}
