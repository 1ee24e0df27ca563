"""What a merge tells `logging`, OpenTelemetry and its report."""

import logging
import os
import subprocess
import sys
import types
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local  # tests of folders, of examples, of what one call tells


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
    texts = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "plait"]
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
    large = pa.table({"k": [1, 2], "v": [os.urandom(12_000_000), b""]})
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


def test_parts_of_the_engine_are_heard_by_name(run, caplog, tmp_path):
    caplog.set_level(logging.DEBUG, logger="plait")
    run(outputs=2)
    plait.compact(tmp_path / "o", policy="overlap", yes=True)
    heard = [(r.name, r.getMessage()) for r in caplog.records if r.name != "plait"]
    assert heard[0] == (
        "plait.plan",
        "1 sources, keys of 0 from footers and of 1 from rows; 1 regions, 1 deep",
    )
    outputs = [text.split(",")[0] for name, text in heard if name == "plait.merge"]
    assert outputs == ["output 0", "output 1"]
    caplog.clear()
    pq.write_table(pa.table({"k": range(1000)}), tmp_path / "o" / "b.parquet")
    plait.compact(tmp_path / "o", policy="full", sort_by="k", yes=True)
    told = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    # The first manifest is the lease of the compaction.
    assert ("plait.compact", "INFO", "manifest 2 is current: 1 for 3 files") in told
    assert any(text.startswith("compact: done, sources=") for _, _, text in told)


def test_only_what_is_listened_to_is_heard(run, caplog):
    caplog.set_level(logging.WARNING, logger="plait")
    caplog.set_level(logging.DEBUG, logger="plait.merge")
    run()
    assert [r.name for r in caplog.records] == ["plait.merge"]


@pytest.mark.local
def test_failing_requests_are_heard_while_the_call_runs(
    s3_server, s3_proxy, caplog, tmp_path, monkeypatch
):
    caplog.set_level(logging.DEBUG, logger="plait.store")
    s3_server.request("PUT", "/observed")
    pq.write_table(pa.table({"k": range(1000)}), tmp_path / "a.parquet")
    s3_server.request("PUT", "/observed/a.parquet", (tmp_path / "a.parquet").read_bytes())
    s3_proxy.share, heard = 1.0, []
    monkeypatch.setattr(type(s3_proxy), "KINDS", ("500", "503"))
    retries = {"retry_init_backoff_ms": "50", "retry_max_backoff_ms": "100", "max_retries": "99"}
    options = {**s3_server.options(s3_proxy.url), **retries}

    def progress(_):
        heard.append(len(caplog.records))
        s3_proxy.share = 1.0 if len(s3_proxy.failed) < 6 else 0.0

    plait.merge(
        "s3://observed/a.parquet",
        tmp_path / "out",
        sort_by="k",
        storage_options=options,
        progress=progress,
    )
    texts = {r.getMessage() for r in caplog.records if r.name == "plait.store"}
    assert texts <= {f"GET /observed/a.parquet: answered {status}" for status in (500, 503)}
    assert texts, s3_proxy.failed
    # The progress is told by the same thread: it finds what was heard before the end.
    assert any(0 < count for count in heard[:-1])


def test_streams_tell_their_end_and_scans_what_they_found(run, caplog, tmp_path):
    caplog.set_level(logging.INFO, logger="plait")
    table = pa.table({"k": [1, 1, 2]})
    stream = plait.merge_streams([table, table], sort_by="k", on_duplicate="keep_last")
    assert caplog.records == []
    assert sum(batch.num_rows for batch in stream) == 2
    assert list(stream) == []
    told = [r.getMessage() for r in caplog.records]
    assert told == ["merge_streams: ended, rows=2, batches=1, rows_duplicate=4"]
    caplog.clear()
    plait.overlay([plait.Layer(table.append_column("_index", [[1, 2, 3]]))], index="_index").close()
    assert [r.getMessage() for r in caplog.records] == ["overlay: closed, rows=0, batches=0"]
    caplog.clear()
    scan = plait.scan([tmp_path / "a.parquet", table])
    assert pa.table(scan).num_rows == 1003
    assert sum(batch.num_rows for batch in plait.scan(tmp_path / "a.parquet")) == 1000
    told = [r.getMessage() for r in caplog.records]
    assert told[0].startswith("scan: done, rows_known=") or told[0].startswith("scan: done, rows=")
    assert told[1] == "scan.read: handed on"
    assert told[3] == "scan.read: ended, rows=1000, batches=1"


def test_spans_nest_and_end_with_their_streams(run, monkeypatch, tmp_path):
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)

    def finished():
        spans = {span.name: span for span in exporter.get_finished_spans()}
        exporter.clear()
        return spans

    run()
    report = run("second", outputs=2)
    assert finished()["plait.merge"].attributes["plait.rows_out"] == report.rows_out
    plait.compact(tmp_path / "second", policy="full", yes=True)
    pq.write_table(pa.table({"k": [5]}), tmp_path / "second" / "more.parquet")
    plait.compact(tmp_path / "second", policy="full", sort_by="k", yes=True)
    spans = finished()
    assert {"plait.compact", "plait.survey", "plait.plan", "plait.execute", "plait.commit"} <= set(
        spans
    )
    compact = spans["plait.compact"]
    assert spans["plait.execute"].parent.span_id == compact.context.span_id
    assert compact.attributes["plait.groups"] == 1
    stream = plait.merge_streams([pa.table({"k": [1]})], sort_by="k")
    assert finished() == {}
    for _ in stream:
        assert not trace.get_current_span().get_span_context().is_valid
    assert finished()["plait.merge_streams"].attributes["plait.end"] == "ended"
    pa.table(plait.scan(tmp_path / "a.parquet"))
    spans = finished()
    assert spans["plait.scan"].attributes["plait.columns"] == 1
    assert spans["plait.scan.read"].attributes["plait.end"] == "handed on"
    with pytest.raises(plait.SourceNotFound):
        plait.merge(tmp_path / "none.parquet", tmp_path / "x", sort_by="k")
    assert not finished()["plait.merge"].status.is_ok


def test_opentelemetry_is_not_imported(python):
    code = "import sys, plait; print([name for name in sys.modules if 'opentelemetry' in name])"
    done = python("-c", code)
    assert isinstance(done, subprocess.CompletedProcess) and done.stdout.strip() == "[]"
