"""The pipelines of `examples/spark_pipeline.py`, small: every row once, in order, after a crash."""

import importlib.util

import pytest

pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["InFolder", "InTable"])
def test_a_pipeline_ends_with_every_row_once(kind, spark, root, tmp_path, capsys):
    path = root / "examples" / "spark_pipeline.py"
    spec = importlib.util.spec_from_file_location("spark_pipeline", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    if kind == "InTable":
        pytest.importorskip("pyiceberg")
    # It compares every row with what the agents wrote, and raises at the first difference.
    example.pipeline(spark, tmp_path / kind, getattr(example, kind), ticks=4, count=500)
    said = capsys.readouterr().out
    assert "counts, Spark forgot it" in said and "compacted  " in said, said
    assert "all 8,000 rows are there once and in order" in said, said
    assert "compacted to 1 file; " in said, said
