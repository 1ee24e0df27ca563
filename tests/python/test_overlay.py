"""Overlay: the recorded cases, the door, and every way in which a layer can go wrong."""

import gc
import importlib.util
import json
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import plait
from plait import Layer

CASES_DIR = Path(__file__).parent.parent / "cases"


def _load(name):
    spec = importlib.util.spec_from_file_location(name, CASES_DIR / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


batches = _load("batches")
CASES = json.loads((CASES_DIR / "overlay.json").read_text())["cases"]
# More lists of paths than layers cannot be said: a layer and its paths are one value.
SAYABLE = [case for case in CASES if case["expect"].get("error") != "ArgumentError"]


def read(stream):
    """All rows as one batch."""
    return pa.table(stream).combine_chunks()


def one_batch(table):
    found = table.to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=table.schema)


def layers_of(case):
    return [
        Layer([batches.build_batch(batch) for batch in layer["batches"]], layer["paths"])
        for layer in case["layers"]
    ]


def test_there_are_cases():
    assert len(CASES) >= 40
    assert len(CASES) - len(SAYABLE) == 1


@pytest.mark.parametrize("case", SAYABLE, ids=lambda case: f"{case['id']} {case['title']}")
@pytest.mark.parametrize("batch_rows", [None, 1, 3])
def test_recorded_cases_hold(case, batch_rows):
    expect = case["expect"]
    if "error" in expect:
        with pytest.raises(getattr(plait, expect["error"])):
            list(plait.overlay(layers_of(case), batch_rows=batch_rows))
        return
    table = read(plait.overlay(layers_of(case), batch_rows=batch_rows))
    if "empty" in expect:
        assert table.num_rows == 0
        assert table.column_names == ["_index", "x", "y"]
        return
    got = batches.ser_batch(one_batch(table))
    assert got == expect
