"""What a merge tells `logging`, OpenTelemetry and its report."""

import logging
import os
import sys
import types
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait


@pytest.fixture
def run(tmp_path):
    pq.write_table(pa.table({"k": range(1000)}), tmp_path / "a.parquet")
    return lambda name="o", **options: plait.merge(
        tmp_path / "a.parquet", tmp_path / name, sort_by="k", **options
    )


def test_metrics_are_those_of_the_files(run, tmp_path):
    metrics = run().metrics
    assert metrics.bytes_written == sum(f.stat().st_size for f in (tmp_path / "o").iterdir())
    stored = pq.read_metadata(tmp_path / "a.parquet").row_group(0).column(0).total_compressed_size
    assert metrics.bytes_read >= stored
    assert metrics.requests == metrics.sent_bytes == metrics.spilled_bytes == 0


def test_logging_hears_of_calls_outputs_and_failures(run, caplog):
    caplog.set_level(logging.DEBUG, logger="plait")
    report = run()
    texts = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert texts[0] == ("DEBUG", "merge: begins")
    assert texts[1][1].startswith(f"merge: wrote {report.outputs[0].path}, 1000 rows")
    assert texts[2][0] == "INFO" and "rows_out=1000" in texts[2][1]
    caplog.clear()
    with pytest.raises(plait.OutputExists):
        run(target_rows=10)
    assert caplog.records[-1].getMessage() == "merge: failed with OutputExists"


def test_warnings_are_warnings_and_info_alone_is_one_line(run, caplog, tmp_path):
    caplog.set_level(logging.INFO, logger="plait")
    run()
    assert [r.levelname for r in caplog.records] == ["INFO"]
    caplog.clear()
    large = pa.table({"k": [1, 2], "v": [os.urandom(20_000_000), b""]})
    pq.write_table(large, tmp_path / "a.parquet", use_dictionary=False)
    report = run("big", memory_limit="16MB", copy_tiers=())
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert report.warnings and told == [f"merge: {text}" for text in report.warnings]


def test_a_span_is_around_each_call_where_opentelemetry_is_used(run, monkeypatch):
    spans = []

    class Tracer:
        @contextmanager
        def start_as_current_span(self, name):
            attributes = {}
            spans.append((name, attributes))
            yield types.SimpleNamespace(set_attribute=attributes.__setitem__)

    trace = types.ModuleType("opentelemetry.trace")
    trace.get_tracer = lambda name: Tracer()
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    report = run()
    plait.verify(report.outputs[0].path)
    assert [name for name, _ in spans] == ["plait.merge", "plait.verify"]
    assert spans[0][1]["plait.rows_out"] == 1000
    assert spans[0][1]["plait.bytes_written"] == report.metrics.bytes_written
