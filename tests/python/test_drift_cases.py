"""Recorded cases of drifting schemas, told by `tests/cases/scan.json`, through a merge.

The cases belong to the scan of a data set; those without arguments ask nothing but the schema and
the rows of files one after the other, which a merge in the empty order gives as well.
"""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

CASES_DIR = Path(__file__).parent.parent / "cases"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, CASES_DIR / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


batches = _load("batches")
CASES = [
    case for case in json.loads((CASES_DIR / "scan.json").read_text())["cases"] if not case["args"]
]


def test_there_are_cases() -> None:
    assert len(CASES) >= 17


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']} {case['name']}")
def test_files_that_drift_give_the_recorded_schema_and_rows(
    case: dict[str, Any], tmp_path: Path
) -> None:
    paths = []
    for number, file in enumerate(case["files"]):
        batch = batches.build_batch(file)
        paths.append(tmp_path / f"{number:02d}.parquet")
        pq.write_table(pa.Table.from_batches([batch]), paths[-1])
    out = tmp_path / "out"
    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(getattr(plait, expect["error"])) as caught:
            plait.merge(paths, out, sort_by=[])
        assert expect["column"] in str(caught.value)
        assert not out.exists()
        return
    report = plait.merge(paths, out, sort_by=[])
    table = pq.read_table(report.outputs[0].path).combine_chunks()
    got = batches.ser_batch(table.to_batches()[0])
    wanted = batches.ser_batch(batches.build_batch(expect))
    assert got["rows"] == wanted["rows"]
    assert [field[:2] for field in got["schema"]] == [field[:2] for field in wanted["schema"]]
