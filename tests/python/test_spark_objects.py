"""The format `plait` on S3: read as files are, written whole and once."""

import json
import random
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

from pyspark.sql import datasource as ds

from plait.spark import sink
from plait.spark.settings import settings_of
from plait.spark.source import MergingReader, PushingReader, Query

from .spark_runs import SCHEMA, batch, dies_in_commit, options, ran, stream, visible, write
from .stops import Steps

pytestmark = pytest.mark.local  # objects of its own


@pytest.fixture
def bucket(s3_server):
    """The URL of a new bucket, settings that reach it, and a client."""
    options = s3_server.options()
    client = s3_server.client()
    name = f"runs-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)
    yield f"s3://{name}", options, client
    client.close()


def put(client, url, table):
    """A table as an object."""
    name, _, key = url.removeprefix("s3://").partition("/")
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=50)
    client.put_object(Bucket=name, Key=key, Body=sink.getvalue().to_pybytes())


def keys_in(client, url):
    found = client.list_objects_v2(Bucket=url.removeprefix("s3://").partition("/")[0])
    return sorted(entry["Key"] for entry in found.get("Contents", ()))


def reader(url, settings, pushed=(), **options):
    given = {"path": url, "storage_options": json.dumps(settings), **options}
    query = Query.of({name: str(value) for name, value in given.items()})
    kind = PushingReader if pushed else MergingReader
    made = kind(query, query.spark_schema())
    if pushed:
        list(made.pushFilters(list(pushed)))
    return made


def rows(made):
    return [
        [row for batch in made.read(part) for row in batch.to_pylist()]
        for part in made.partitions()
    ]


def runs(count, each, seed=0):
    """Sorted tables, and all their rows in merged order."""
    draw = random.Random(seed)
    tables = []
    for i in range(count):
        keys = sorted(draw.randrange(1000) for _ in range(each))
        tables.append(pa.table({"k": keys, "v": [i * each + j for j in range(each)]}))
    merged = [row for table in tables for row in table.to_pylist()]
    return tables, sorted(merged, key=lambda row: row["k"])


def test_objects_are_read_merged_and_in_parts(bucket, tmp_path):
    url, settings, client = bucket
    tables, expected = runs(4, 200)
    for i, table in enumerate(tables):
        put(client, f"{url}/in/{i} %20 é.parquet", table)
    parts = rows(reader(f"{url}/in", settings, sort_by="k", part_rows=150))
    assert len(parts) > 3 and [row for part in parts for row in part] == expected
    log = tmp_path / "log"
    pushed = [ds.GreaterThan(("k",), 400), ds.LessThan(("k",), 420)]
    made = reader(f"{url}/in", settings, pushed, sort_by="k", read_log=log)
    assert [row for part in rows(made) for row in part] == [
        row for row in expected if 400 < row["k"] < 420
    ]
    (entry,) = [json.loads(path.read_text()) for path in log.iterdir()]
    # Of row groups of 50 rows, which are a page each.
    assert 0 < entry["rows"] < entry["rows_read"] <= 8 * 50


def test_an_object_that_was_written_since_is_refused(bucket):
    url, settings, client = bucket
    put(client, f"{url}/in/a.parquet", pa.table({"k": [1, 2]}))
    made = reader(f"{url}/in", settings, sort_by="k")
    (part,) = made.partitions()
    put(client, f"{url}/in/a.parquet", pa.table({"k": [1, 3]}))  # as long as it was
    with pytest.raises(plait.SourceChanged, match=r"a\.parquet"):
        list(made.read(part))
    client.delete_object(Bucket=url.removeprefix("s3://"), Key="in/a.parquet")
    with pytest.raises(plait.SourceNotFound, match=r"a\.parquet"):
        list(made.read(part))


def test_what_is_wrong_with_a_store_is_said(bucket):
    url, settings, client = bucket
    put(client, f"{url}/in/a.parquet", pa.table({"k": [1, 2]}))
    made = reader(f"{url}/in", settings, sort_by="k")
    (part,) = made.partitions()
    made._query.settings["aws_endpoint_url"] = "http://127.0.0.1:9"
    with pytest.raises(plait.StorageError, match=r"a\.parquet"):
        list(made.read(part))
    for text in ("[1]", "{", '{"timeout": 3}'):
        with pytest.raises(plait.InvalidArgument, match="storage_options"):
            settings_of(text)
    with pytest.raises(plait.InvalidArgument, match="known object store"):
        reader("hdfs://host/x", {}, sort_by="k")


@pytest.mark.few(2)
@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("step", range(1, 4))
def test_a_batch_counts_once_wherever_its_commit_stops(step, dies, bucket, monkeypatch):
    url, settings, client = bucket
    text = json.dumps(settings)
    for case, earlier in (("new", ()), ("again", ([1, 2], [3]))):
        root = f"{url}/{case}"
        if earlier:
            batch(root, 0, *earlier, settings=text)
        steps = Steps(step, dies)
        stopped = dies_in_commit(root, steps, monkeypatch, text)
        assert stopped == (step <= steps.count)
        assert visible(root, settings) in ([], [1, 2, 3])
        batch(root, 0, [1, 2, 3], settings=text)
        assert visible(root, settings) == [1, 2, 3]
        batch(root, 1, [4], settings=text)
        read = rows(reader(root, settings))
        assert [row["k"] for part in read for row in part] == [1, 2, 3, 4]
    assert not [key for key in keys_in(client, url) if "_plait/" in key]


def test_a_batch_that_was_compacted_and_swept_since_does_not_come_back(bucket):
    url, settings, client = bucket
    text = json.dumps(settings)
    for number, keys in enumerate(([1], [2])):
        batch(url, number, keys, settings=text)
    table = plait.Table(url, storage_options=settings)
    table.compact(policy="full")
    assert len(table.expire(0).removed) == 2
    assert visible(url, settings) == [1, 2]
    (again,) = batch(url, 1, [2], settings=text)
    assert visible(url, settings) == [1, 2]
    assert again not in keys_in(client, url)


def test_writes_and_overwrites_of_objects_leave_what_won(bucket):
    url, settings, client = bucket
    text = json.dumps(settings)
    write(url, [1], [3], settings=text)
    write(url, [2], settings=text)
    assert visible(url, settings) == [1, 2, 3]
    write(url, [7], overwrite=True, settings=text)
    assert visible(url, settings) == [7]
    runs_before = [key for key in keys_in(client, url) if key.endswith(".parquet")]
    writer = sink.RunWriter.of(options(url, text), SCHEMA, overwrite=False)
    messages = ran(writer, [[4], [5]])
    ran(writer, [[4]])  # an attempt that nobody hears of
    writer.abort(messages[:1])
    assert [key for key in keys_in(client, url) if key.endswith(".parquet")] == runs_before
    assert visible(url, settings) == [7]


def test_objects_that_are_no_table_are_refused(bucket):
    url, settings, client = bucket
    put(client, f"{url}/in/a.parquet", pa.table({"k": [1, 2]}))
    with pytest.raises(plait.ForeignTable, match="no table") as caught:
        stream(f"{url}/in", json.dumps(settings))
    assert "plait.adopt" in caught.value.hint
    assert keys_in(client, url) == ["in/a.parquet"]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_frames_and_streams_are_written_to_objects_and_read_back(bucket, spark, tmp_path):
    from plait import spark as ps

    ps.register(spark)
    whole, settings, client = bucket
    url = f"{whole}/made"
    text = json.dumps(settings)
    frame = spark.range(0, 10_000, 1, 4).selectExpr("id % 7 a", "id b", "array(id) c")
    sorted_ = frame.sortWithinPartitions("a", "b")

    def written(mode):
        return (
            sorted_.write.format("plait").options(sort_by="a, b", storage_options=text).mode(mode)
        )

    def load():
        return spark.read.format("plait").options(storage_options=text, part_rows="3000").load(url)

    written("append").save(url)
    assert load().collect() == frame.orderBy("a", "b").collect()
    assert len([key for key in keys_in(client, url) if key.endswith(".parquet")]) == 4
    written("append").save(url)
    assert load().count() == 20_000
    written("overwrite").save(url)
    assert load().collect() == frame.orderBy("a", "b").collect()
    # Executors merge from store to store.
    report = ps.compact(spark, url, policy="full", storage_options=settings, verify="content")
    assert [(len(group.sources), group.rows) for group in report.groups] == [(4, 10_000)]
    assert load().collect() == frame.orderBy("a", "b").collect()

    # Out of order: nothing counts, nothing stays.
    before = keys_in(client, url)
    with pytest.raises(Exception, match="UnsortedSource"):
        frame.write.format("plait").options(sort_by="a, b", storage_options=text).mode(
            "append"
        ).save(url)
    assert keys_in(client, url) == before
    assert load().collect() == frame.orderBy("a", "b").collect()

    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def stream():
        query = (
            spark.readStream.schema("k long")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
            .writeStream.format("plait")
            .options(sort_by="k", storage_options=text, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start(f"{whole}/streamed")
        )
        query.awaitTermination()

    for i in range(2):
        pq.write_table(pa.table({"k": list(range(i * 10, i * 10 + 10))}), source / f"{i}.parquet")
    stream()
    for left in [*(checkpoint / "commits").glob("1"), *(checkpoint / "commits").glob(".1.*")]:
        left.unlink()
    stream()
    assert visible(f"{whole}/streamed", settings) == list(range(20))
