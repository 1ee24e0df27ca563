"""Tables that Iceberg's Spark runtime has changed: they are compacted, or files are left by name.

Skipped without `PLAIT_ICEBERG_PYTHON`, see `test_iceberg_statements`.
"""

from __future__ import annotations

import pytest

from .conftest import load

cases = load("iceberg_evolved_cases")
others = load("statements_apart")
pytestmark = others.marks


@pytest.fixture(scope="module")
def evolved(tmp_path_factory):
    return others.told_by("iceberg_evolved.py", tmp_path_factory.mktemp("evolved") / "home")


@pytest.mark.parametrize("case", cases.CASES)
def test_a_table_that_was_changed_is_compacted(evolved, case):
    told = evolved[case]
    assert "error" not in told, told["error"]
    assert told["groups"] and told["files"] == told["files_max"] and not told["again"], told
    if case not in cases.LEFT:
        assert not told["skipped"] and not told["delete_files"], told
    else:
        assert told["skipped"], told
        assert all(cases.LEFT[case] in why for why in told["skipped"]), told
