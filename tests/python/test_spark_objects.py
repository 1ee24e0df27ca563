"""The format `plait` on S3: read as files are, written whole and once."""

import contextlib
import json
import random
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytest.importorskip("pyspark")

from pyspark.sql import datasource as ds

from plait._lease import new_id
from plait.spark import folder
from plait.spark.settings import settings_of
from plait.spark.source import MergingReader, PushingReader, Query

from .stops import Steps, Stop

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


def run(bucket, name, keys):
    """A run that counts for nobody yet, and its lease."""
    url, settings, _ = bucket
    lease = new_id()
    folder.begin(url, lease, settings)
    path = f"_plait/files/{name}-{lease}.parquet"
    with folder.place_of(url, settings).create(path) as file:
        pq.write_table(pa.table({"k": keys}), file)
    return path


def visible(url, settings):
    return sorted(row["k"] for part in rows(reader(url, settings, sort_by="k")) for row in part)


@pytest.mark.parametrize("step", range(1, 16))
def test_a_batch_counts_once_wherever_its_commit_stops(step, bucket, monkeypatch):
    url, settings, _ = bucket
    first = [run(bucket, "first-0", [1, 2]), run(bucket, "first-1", [3])]
    steps = Steps(step)
    monkeypatch.setattr(folder, "place_of", steps.counting(folder.place_of))
    for name in ("newest", "_call"):
        monkeypatch.setattr(folder, name, steps.counted(getattr(folder, name)))
    stopped = False
    try:
        folder.publish_batch(url, "query", 0, first, settings)
    except Stop:
        stopped = True
    monkeypatch.undo()
    assert stopped == (step <= steps.count)
    counted = folder.counting(url, settings)
    assert sorted(counted) in ([], sorted(first))
    again = [run(bucket, "second-0", [1, 2, 3])]
    folder.publish_batch(url, "query", 0, again, settings)
    assert visible(url, settings) == [1, 2, 3]
    folder.publish_batch(url, "query", 1, [run(bucket, "next", [4])], settings)
    assert visible(url, settings) == [1, 2, 3, 4]


def test_a_batch_that_was_compacted_and_swept_since_does_not_come_back(bucket):
    url, settings, _ = bucket
    for batch, keys in enumerate(([1], [2])):
        mine = [run(bucket, f"run-{batch}", keys)]
        folder.publish_batch(url, "query", batch, mine, settings)
    plait.compact(url, policy="full", sort_by="k", yes=True, storage_options=settings)
    plait.expire(url, retention=0, yes=True, storage_options=settings)
    assert visible(url, settings) == [1, 2]
    again = run(bucket, "again", [2])
    assert folder.publish_batch(url, "query", 1, [again], settings) == (again,)
    assert visible(url, settings) == [1, 2]


@pytest.mark.parametrize("is_added", [False, True])
def test_records_of_batches_that_are_tables_are_read_too(is_added, bucket, monkeypatch):
    """Those that Plait 0.1 put into buckets."""
    url, settings, _ = bucket
    place = folder.place_of(url, settings)
    first = [run(bucket, "first", [1, 2])]

    def dies(*_arguments, **_named):
        raise Stop

    if not is_added:
        monkeypatch.setattr(folder, "_add", dies)
    with contextlib.suppress(Stop):
        folder.publish_batch(url, "query", 0, first, settings)
    monkeypatch.undo()
    record = "_plait/batches/query/000000000000.json"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"value": [place.read(record).decode()]}), sink)
    place.put_new(record.replace(".json", ".parquet"), sink.getvalue().to_pybytes())
    place.remove(record)
    again = run(bucket, "again", [1, 2])
    assert folder.publish_batch(url, "query", 0, [again], settings) == (again,)
    assert folder.counting(url, settings) == first
    assert folder.publish_batch(url, "query", 0, [again], settings) == (again,)
    assert folder.counting(url, settings) == first and not place.exists(record)


def test_a_decision_of_an_older_version_that_was_swept_is_made_anew(bucket):
    url, settings, _ = bucket
    place = folder.place_of(url, settings)
    token = ".plait-batches/query/000000000000-1"
    place.put_new(token, b"")
    sink = pa.BufferOutputStream()
    decided = json.dumps({"files": ["_plait/files/swept.parquet"], "token": token})
    pq.write_table(pa.table({"value": [decided]}), sink)
    record = "_plait/batches/query/000000000000"
    place.put_new(f"{record}.parquet", sink.getvalue().to_pybytes())
    again = run(bucket, "again", [1, 2])
    for _ in range(2):
        assert folder.publish_batch(url, "query", 0, [again], settings) == ()
        assert folder.counting(url, settings) == [again]
    assert json.loads(place.read(f"{record}.json")) == {"files": [again], "token": token}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_frames_and_streams_are_written_to_objects_and_read_back(bucket, spark, tmp_path):
    from plait import spark as ps

    ps.register(spark)
    url, settings, client = bucket
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
    def files():
        # A write has a lease, which is a manifest, as has its end.
        return [key for key in keys_in(client, url) if "/manifest-" not in key]

    before = files()
    with pytest.raises(Exception, match="UnsortedSource"):
        frame.write.format("plait").options(sort_by="a, b", storage_options=text).mode(
            "append"
        ).save(url)
    assert files() == before
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
            .start(f"{url}/streamed")
        )
        query.awaitTermination()

    for i in range(2):
        pq.write_table(pa.table({"k": list(range(i * 10, i * 10 + 10))}), source / f"{i}.parquet")
    stream()
    for left in [*(checkpoint / "commits").glob("1"), *(checkpoint / "commits").glob(".1.*")]:
        left.unlink()
    stream()
    assert visible(f"{url}/streamed", settings) == list(range(20))
