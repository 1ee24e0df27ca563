"""What messages and reports show: types in PyArrow's words, values as people read and write them."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import socket
import threading
import time
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .command_line import plait_command

UTC = dt.timezone.utc
IDENTIFIERS = [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)]
NOON = dt.datetime(2024, 5, 1, 13)
# By name: the column of three rows, what is shown of each, and what JSON has if that differs.
COLUMNS = {
    "timestamp": (
        pa.array([NOON + dt.timedelta(milliseconds=500 * i) for i in range(3)], pa.timestamp("us")),
        ["2024-05-01 13:00:00", "2024-05-01 13:00:00.5", "2024-05-01 13:00:01"],
    ),
    "utc": (
        pa.array([NOON.replace(tzinfo=UTC, second=i) for i in range(3)], pa.timestamp("ms", "UTC")),
        ["2024-05-01 13:00:00Z", "2024-05-01 13:00:01Z", "2024-05-01 13:00:02Z"],
    ),
    "nanoseconds": (
        pa.array([0, 1, 1_500_000_000], pa.timestamp("ns")),
        ["1970-01-01 00:00:00", "1970-01-01 00:00:00.000000001", "1970-01-01 00:00:01.5"],
    ),
    "date": (
        pa.array([dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29)]),
        ["1969-12-31", "1970-01-01", "2024-02-29"],
    ),
    "time": (
        pa.array([dt.time(1), dt.time(1, 2, 3, 500_000), dt.time(23, 59)], pa.time64("us")),
        ["01:00:00", "01:02:03.5", "23:59:00"],
    ),
    "decimal": (
        pa.array([Decimal("-0.01"), Decimal("12.30"), Decimal(1000)], pa.decimal128(10, 2)),
        ["-0.01", "12.30", "1000.00"],
    ),
    "uuid": (
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([one.bytes for one in IDENTIFIERS], pa.binary(16))
        ),
        [str(one) for one in IDENTIFIERS],
    ),
    "binary": (pa.array([b"\x00\xff", b"a", b"b"]), ["0x00ff", "0x61", "0x62"]),
    "fixed": (pa.array([b"ab", b"cd", b"ef"], pa.binary(2)), ["0x6162", "0x6364", "0x6566"]),
    "string": (pa.array(["a", "b c", "é"]), ["a", "b c", "é"]),
    "long": (pa.array([-1, 0, 2**62]), ["-1", "0", str(2**62)], [-1, 0, 2**62]),
    "unsigned": (
        pa.array([0, 1, 2**64 - 1], pa.uint64()),
        ["0", "1", str(2**64 - 1)],
        [0, 1, 2**64 - 1],
    ),
    "double": (pa.array([-0.5, 2.0, 2.5e10]), ["-0.5", "2", "25000000000"], [-0.5, 2.0, 2.5e10]),
    "float": (pa.array([-0.5, 0.1, 3], pa.float32()), ["-0.5", "0.1", "3"], [-0.5, 0.1, 3.0]),
    "half": (pa.array([-0.5, 0.25, 3], pa.float16()), ["-0.5", "0.25", "3"], [-0.5, 0.25, 3.0]),
    "infinite": (
        pa.array([-math.inf, 0.5, math.inf]),
        ["-inf", "0.5", "inf"],
        ["-inf", 0.5, "inf"],
    ),
}


@pytest.fixture(params=COLUMNS)
def column(request):
    return COLUMNS[request.param][:2]


@pytest.fixture(params=COLUMNS)
def typed(request):
    values, texts, *given = COLUMNS[request.param]
    return values, texts, *(given or [texts])


def written(path, column):
    pq.write_table(pa.table({"k": column}), path)
    return str(path)


def same(found, expected):
    """Whether values are equal, and of the same types."""
    return found == expected and [*map(type, found)] == [*map(type, expected)]


def test_keys_are_shown_in_reports_plans_and_inspections(typed, tmp_path):
    values, texts, shown = typed
    sources = [written(tmp_path / f"{i}.parquet", values.slice(i, 2)) for i in range(2)]
    plan = plait.plan(sources, sort_by="k")
    assert [(s.key_min, s.key_max) for s in plan.sources] == [
        ((shown[0],), (shown[1],)),
        ((shown[1],), (shown[2],)),
    ]
    # What is shown changes nothing of what is planned.
    again = plait.Plan.from_json(plan.to_json())
    merged = again.execute(str(tmp_path / "out.parquet"))
    (made,) = merged.outputs
    assert same([*made.key_min, *made.key_max], [shown[0], shown[2]])
    assert texts[0] in str(merged) and texts[2] in merged._repr_html_()
    found = plait.inspect(made.path)
    assert same([*found.key_min, *found.key_max], [shown[0], shown[2]])
    assert re.search(f"first key +{re.escape(texts[0])}\n", str(found))
    (group,) = found.row_groups
    assert same([group.columns[0].min, group.columns[0].max], [shown[0], shown[2]])
    checked = plait.verify(made.path, against=sources)
    assert checked.files[0].key_max == (shown[2],)


def test_json_has_values_with_their_types(typed, tmp_path):
    values, _, shown = typed
    path = written(tmp_path / "a.parquet", values)
    ends = [shown[0], shown[2]]
    plan = plait.plan(path, sort_by="k", outputs=3)
    planned = json.loads(plan.to_json())
    assert same(planned["sources"][0]["key_min"] + planned["sources"][0]["key_max"], ends)
    cuts = [type(task["key_low"][0]) for task in planned["tasks"][1:]]
    assert cuts and set(cuts) <= set(map(type, shown))
    assert plait.Plan.from_json(plan.to_json()).to_dict() == planned
    made = plait.merge(path, str(tmp_path / "out.parquet"), sort_by="k")
    checked = plait.verify(made.outputs[0].path)
    for report, part in ((made, "outputs"), (checked, "files")):
        told = json.loads(json.dumps(report.to_dict()))
        assert same(told[part][0]["key_min"] + told[part][0]["key_max"], ends)
        assert type(report).from_dict(told) == report
    told = inspected(made.outputs[0].path)
    assert same(told["key_min"] + told["key_max"], ends)
    chunk = told["row_groups"][0]["columns"][0]
    assert same([chunk["min"], chunk["max"]], ends)


def inspected(path):
    return json.loads(plait_command("inspect", path, "--json").stdout)


def test_json_has_booleans_and_nulls_as_such(tmp_path):
    path = written(tmp_path / "a.parquet", pa.array([False, True, None]))
    plait.merge(path, str(tmp_path / "out.parquet"), sort_by="k")
    told = inspected(str(tmp_path / "out.parquet"))
    assert same(told["key_min"] + told["key_max"], [False, None])
    chunk = told["row_groups"][0]["columns"][0]
    assert same([chunk["min"], chunk["max"]], [False, True])
    printed = str(plait.inspect(tmp_path / "out.parquet"))
    assert re.search("first key +false\nlast key +null\n", printed)


def test_an_order_that_is_broken_is_told_by_its_values(column, tmp_path):
    values, texts = column
    path = written(tmp_path / "a.parquet", values.take(pa.array([0, 2, 1])))
    of = [f"`{text}`" if pa.types.is_string(values.type) else text for text in texts]
    good = written(tmp_path / "b.parquet", values)
    out = str(tmp_path / "out.parquet")
    for call in (
        lambda: plait.merge([path, good], out, sort_by="k"),
        lambda: list(plait.merge_streams([pq.read_table(path)], sort_by="k")),
    ):
        with pytest.raises(plait.UnsortedSource) as caught:
            call()
        assert f"got {of[1]} after {of[2]}\n" in str(caught.value)
    again = written(tmp_path / "c.parquet", values)
    with pytest.raises(plait.DuplicateKey) as caught:
        plait.merge([good, again], out, sort_by="k", on_duplicate="error")
    assert f"got {of[0]} as in" in str(caught.value)


def test_what_is_shown_can_be_asked_for(column, tmp_path):
    values, texts = column
    path = written(tmp_path / "a.parquet", values)
    quotes = ["", "'"] if not (values.type == pa.uuid() or "binary" in str(values.type)) else [""]
    for i, text in enumerate(f"{quote}{texts[1]}{quote}" for quote in quotes):
        out = tmp_path / f"out-{i}.parquet"
        plait.merge([path], str(out), sort_by="k", drop_where=f"k < {text}")
        assert pq.read_table(out).column("k").combine_chunks().equals(values.slice(1))
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        with pytest.raises(plait.InvalidArgument) as caught:
            plait.merge([path], str(tmp_path / "b"), sort_by="k", drop_where="k < 'x y'")
        storage = values.type.storage_type if values.type == pa.uuid() else values.type
        assert f"got 'x y' for {storage}\n" in f"{caught.value}\n"


def test_types_are_those_of_pyarrow(tmp_path):
    types = [
        pa.timestamp("us", "UTC"),
        pa.string(),
        pa.decimal128(10, 2),
        pa.list_(pa.field("element", pa.int64())),
        pa.binary(16),
        pa.float32(),
        pa.large_string(),
        pa.struct([pa.field("a", pa.int64(), nullable=False)]),
        pa.map_(pa.string(), pa.int32()),
        pa.duration("ms"),
        pa.float16(),
        pa.month_day_nano_interval(),
        pa.list_(pa.int8(), 3),
    ]
    for type_ in types:
        lazy = plait.interleave([pa.array([], type_)], *[pa.array([], pa.uint32())] * 2)
        assert f"of 0 rows, {type_}>" in repr(lazy)
    coded = pa.array(["a"]).dictionary_encode()
    lazy = plait.interleave([coded], pa.array([0], pa.uint32()), pa.array([0], pa.uint32()))
    assert "dictionary<values=string, indices=int32>" in repr(lazy)
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("us", "UTC"))}), a)
    pq.write_table(pa.table({"t": ["x"]}), b)
    with pytest.raises(plait.SchemaConflict) as caught:
        plait.scan([str(a), str(b)])
    assert "timestamp[us, tz=UTC]" in str(caught.value) and "string" in str(caught.value)
    with pytest.raises(plait.UnsupportedKey, match=r"list<element: int64>"):
        table = pa.table({"k": pa.array([[1]], pa.list_(pa.field("element", pa.int64())))})
        list(plait.merge_streams([table], sort_by="k"))


@pytest.fixture
def silent():
    """The address of a server that accepts and never answers, and what has connected to it."""
    connected = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept():
            while True:
                try:
                    connected.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", connected
        server.shutdown(socket.SHUT_RDWR)
    for connection in connected:
        connection.close()


def without_keys(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("url", "variables", "options", "looked_for"),
    [
        (
            "s3://bucket/a.parquet",
            {"AWS_METADATA_ENDPOINT": "http://{}"},
            {},
            ("AWS_ACCESS_KEY_ID", "`aws_access_key_id`"),
        ),
        (
            "s3://bucket/a.parquet",
            {},
            {
                "aws_container_credentials_full_uri": "http://{}/credentials",
                "aws_container_authorization_token_file": "token",
            },
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "`aws_secret_access_key`"),
        ),
        (
            "gs://bucket/a.parquet",
            {"GCE_METADATA_HOST": "{}", "GCE_METADATA_IP": "{}", "HOME": "/nowhere"},
            {},
            ("GOOGLE_APPLICATION_CREDENTIALS", "`google_service_account`"),
        ),
        (
            "az://bucket/a.parquet",
            {},
            {"azure_storage_account_name": "x", "msi_endpoint": "http://{}/token"},
            ("AZURE_STORAGE_ACCOUNT_KEY", "`azure_storage_account_key`"),
        ),
    ],
)
def test_a_metadata_service_that_is_silent_is_waited_for_five_seconds(
    url, variables, options, looked_for, silent, monkeypatch, tmp_path
):
    address, connected = silent
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("token")
    without_keys(monkeypatch)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(address))
    options = {name: value.format(address) for name, value in options.items()}
    start = time.monotonic()
    with pytest.raises(plait.StorageError) as caught:
        plait.inspect(url, storage_options=options)
    assert 4 < time.monotonic() - start < 9
    assert connected
    assert caught.value.what == "no credentials for the object store were found"
    assert address in str(caught.value)
    assert all(name in caught.value.hint for name in looked_for)


def test_an_endpoint_without_tls_says_what_allows_it(silent):
    address, connected = silent
    options = {
        "aws_endpoint_url": f"http://{address}",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
    }
    with pytest.raises(plait.InvalidArgument) as caught:
        plait.inspect("s3://bucket/a.parquet", storage_options=options)
    assert 'storage_options={"allow_http": "true"}' in caught.value.hint
    settings = [part for pair in options.items() for part in ("--storage-options", "=".join(pair))]
    shell = plait_command("inspect", "s3://bucket/a.parquet", *settings)
    assert "--storage-options allow_http=true" in shell.stderr
    assert not connected


@pytest.mark.parametrize("more", [{}, {"retry_timeout_ms": "3000"}])
def test_the_time_of_requests_includes_their_retries(more, silent):
    address, connected = silent
    options = {
        "aws_endpoint_url": f"http://{address}",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "allow_http": "true",
        "timeout": "1s",
    }
    start = time.monotonic()
    with pytest.raises(plait.StorageError):
        plait.inspect("s3://bucket/a.parquet", storage_options={**options, **more})
    took = time.monotonic() - start
    if more:
        assert 3 < took < 8 and len(connected) > 1
    else:
        assert 1 <= took < 2.9
