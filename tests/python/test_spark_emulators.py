"""The format `plait` in other stores than S3: Azure's emulator, and an S3 server that speaks as
Google Cloud Storage does.
"""

import json
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.local,  # objects of its own
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(params=["az", "gs"])
def place(request):
    """A URL of each store, and settings that reach it."""
    name = f"runs{uuid.uuid4().hex[:12]}"
    if request.param == "az":
        emulator = request.getfixturevalue("azurite")
        emulator.make(name)
        return f"az://{name}/t", emulator.options()
    server, proxy = (request.getfixturevalue(fixture) for fixture in ("s3_server", "s3_proxy"))
    client = server.client()
    client.create_bucket(Bucket=name)
    client.close()
    return f"gs://{name}/t", proxy.as_google()


def rows(url, settings, out):
    """What counts in a folder, merged by the engine."""
    plait.merge(url, out, sort_by="a, b", storage_options=settings)
    return pq.read_table(out).to_pylist()


@pytest.mark.long
def test_frames_and_streams_are_written_and_compacted(place, spark, tmp_path):
    from plait import spark as ps

    ps.register(spark)
    url, settings = place
    options = {"sort_by": "a, b", "storage_options": json.dumps(settings)}
    frame = spark.range(0, 10_000, 1, 4).selectExpr("id % 7 a", "id b", "array(id) c")
    expected = [row.asDict() for row in frame.orderBy("a", "b").collect()]

    def write(mode, rows=None):
        rows = frame.sortWithinPartitions("a", "b") if rows is None else rows
        rows.write.format("plait").options(**options).mode(mode).save(url)

    write("append")
    assert rows(url, settings, tmp_path / "1.parquet") == expected
    write("append")
    write("overwrite")
    assert rows(url, settings, tmp_path / "2.parquet") == expected
    with pytest.raises(Exception, match="UnsortedSource"):
        write("append", frame)
    report = ps.compact(spark, url, policy="full", storage_options=settings, verify="content")
    assert [(len(group.sources), group.rows) for group in report.groups] == [(4, 10_000)]
    table = plait.Table(url, storage_options=settings)
    assert len(table.expire(0).removed) == 12
    assert rows(url, settings, tmp_path / "3.parquet") == expected
    assert len(table.files()) == 1

    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def stream():
        query = (
            spark.readStream.schema("a long, b long")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
            .writeStream.format("plait")
            .options(**options, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start(f"{url}-streamed")
        )
        query.awaitTermination()

    for i in range(2):
        table = pa.table({"a": [i] * 10, "b": list(range(10))})
        pq.write_table(table, source / f"{i}.parquet")
    stream()
    # The driver dies before Spark knows of the last batch.
    for left in [*(checkpoint / "commits").glob("1"), *(checkpoint / "commits").glob(".1.*")]:
        left.unlink()
    stream()
    assert len(rows(f"{url}-streamed", settings, tmp_path / "4.parquet")) == 20
