"""Statements of SQL while Plait compacts the table: every version has the rows that it should have.

Iceberg's and Delta's libraries for Spark follow its version, and none loads in that of the other
Spark tests: see `statements_apart`. Without `PLAIT_ICEBERG_PYTHON` these tests are skipped.
`PLAIT_STATEMENTS` says how many statements a case has, `PLAIT_INTERLEAVINGS` how many cases there
are.
"""

from __future__ import annotations

import pytest

from .conftest import load

interleavings = load("interleavings")
others = load("statements_apart")
pytestmark = others.marks

CASES = [*map(str, interleavings.SEEDS), "stream"]


def seen(told):
    """What one case tells, once nothing was wrong."""
    assert "error" not in told, told["error"]
    return told


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory):
    return others.told_by(
        "iceberg_statements.py", tmp_path_factory.mktemp("iceberg") / "home", *CASES
    )


@pytest.fixture(scope="module")
def delta(tmp_path_factory):
    return others.told_by("delta_statements.py", tmp_path_factory.mktemp("delta") / "home", *CASES)


@pytest.mark.parametrize("case", CASES)
def test_no_statement_on_an_iceberg_table_is_undone(iceberg, case):
    told = seen(iceberg[case])
    assert told["ours"], told
    if told["kind"] in ("merge-on-read", "by partition", "stream"):
        assert told["files removed"] == 0 == told["thrown_away"], told


@pytest.mark.parametrize("case", CASES)
def test_no_statement_on_a_delta_table_is_undone(delta, case):
    told = seen(delta[case])
    if told["kind"] in ("vectors", "stream"):
        # A file of which all rows are deleted goes as a whole.
        assert told["thrown_away"] == 0 or told["files removed"], told
        assert told["ours"], told


def test_deletes_came_while_files_were_merged(iceberg, delta):
    assert sum(told.get("carried", 0) for told in iceberg.values())
    assert sum(told.get("carried", 0) for told in delta.values())
