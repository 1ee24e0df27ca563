"""Spark's statements on Delta tables with mapped columns, and compactions between them.

See `statements_apart` for the interpreter, without which these tests are skipped.
"""

from __future__ import annotations

import pytest

from .conftest import load

others = load("statements_apart")
pytestmark = others.marks

CASES = ["name", "id", "upgraded", "name-vectors-parts", "id-vectors-parts", "upgraded-parts"]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    home = tmp_path_factory.mktemp("mapped") / "home"
    return others.told_by("delta_mapped_statements.py", home, *CASES)


@pytest.mark.parametrize("case", CASES)
def test_spark_reads_the_same_rows_before_and_after(told, case):
    assert "error" not in told[case], told[case]["error"]
    assert told[case]["groups"] and told[case]["checks"] > 10
    if not case.startswith("upgraded"):
        assert told[case]["scans"]
