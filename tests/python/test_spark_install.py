"""The first minutes on Spark: what is found without being told, and what is missing is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from .conftest import clean_environment

pytestmark = pytest.mark.local

# What a session needs to start quickly and to say little.
SESSION = """
import json, sys
from pyspark.sql import SparkSession

def session():
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )

def said(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", "it worked"
"""

FOUND = """
spark = session()
folder = sys.argv[1]
frame = spark.read.format("plait").option("sort_by", "k").load(folder)
facts = {"imported": "plait" in sys.modules, "rows": [row.k for row in frame.collect()]}
log = {"sort_by": "k", "read_log": folder + "/log"}

def rows_read(name):
    logged = spark.read.format("plait").options(sort_by="k", read_log=folder + name).load(
        folder + "/*.parquet"
    )
    assert logged.where("k = 3").count() == 1
    from pathlib import Path
    logs = [json.loads(path.read_text()) for path in Path(folder + name).iterdir()]
    return sum(log["files_opened"] for log in logs)

facts["without"] = rows_read("/log")
from plait import spark as ps
for _ in range(2):
    ps.register(spark)
facts["with"] = rows_read("/log2")
frame.write.format("plait").option("sort_by", "k").mode("append").save(folder + "/made")
facts["written"] = spark.read.format("plait").load(folder + "/made").count()
print(json.dumps(facts))
"""

# The driver has Plait, and the Python of the workers has not.
WITHOUT = """
import plait
from plait import spark as ps
spark = session()
folder = sys.argv[1]
one = spark.createDataFrame([("a", 1)], "run string, k long")
keys = {"left_key": "run", "foreign_key": "k", "right_key": "k"}
right = one.select("k", one.run.alias("v"))

def of_format():
    ps.register(spark)
    spark.read.format("plait").option("sort_by", "k").load(folder).collect()

print(json.dumps({
    "compact": said(lambda: ps.compact(spark, folder, folder + "/made", sort_by="k")),
    "scan": said(lambda: ps.scan(spark, folder).collect()),
    "overlay": said(lambda: ps.overlay(spark, [plait.Layer(folder, ["k"])], index="k").collect()),
    "merge_runs": said(lambda: ps.merge_runs(one, run_column="run", sort_by="k").collect()),
    "join": said(lambda: ps.foreign_key_join_batch(one, right, **keys).collect()),
    "format": said(of_format),
}))
"""

# `sitecustomize` of a Python that lacks packages.
LACKING = """
import sys
for name in {names}:
    sys.modules[name] = None
"""


def ran(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder)],
        env=clean_environment() | {"SPARK_LOCAL_IP": "127.0.0.1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def facts(code: str, folder: Path, **environment: str) -> dict:
    made = ran(SESSION + code, folder, **environment)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout.splitlines()[-1])


def lacking(folder: Path, *names: str) -> str:
    """A folder for PYTHONPATH, with which Python lacks packages."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LACKING.format(names=names))
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture
def folder(tmp_path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    for part in range(2):
        pq.write_table(pa.table({"k": [part * 2, part * 2 + 1]}), made / f"{part}.parquet")
    return made


@pytest.mark.long
@pytest.mark.spark
def test_a_fresh_session_finds_the_format_and_register_adds_filters(folder):
    found = facts(FOUND, folder)
    assert found["imported"] is False and found["rows"] == [0, 1, 2, 3]
    # Without `register` both files are read, with it the one that has the row.
    assert found["without"] == 2
    assert found["with"] == 1 and found["written"] == 4


@pytest.mark.long
@pytest.mark.spark
def test_workers_without_plait_say_what_to_do(folder, tmp_path):
    worker = tmp_path / "python"
    path = lacking(tmp_path / "lacking", "plait", "pyspark_plait")
    worker.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" "$@"\n')
    worker.chmod(0o755)
    said = facts(WITHOUT, folder, PYSPARK_PYTHON=str(worker), PYSPARK_DRIVER_PYTHON=sys.executable)
    for door, (kind, text) in said.items():
        assert "Spark's Python workers have no Plait" in text, (door, text)
        assert "hint: set PYSPARK_PYTHON to a Python that has Plait" in text, (door, text)
        assert sys.executable in text, (door, text)
        kinds = {"compact": "Unsupported", "format": "AnalysisException"}
        assert kind == kinds.get(door, "PythonException"), (door, kind)
    assert not list(folder.glob("made/_plait/files/*"))


DOORS = ("plait.spark", "plait.spark.functions", "plait.spark.source", "plait.spark.sink")


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (("pyspark",), "PySpark"),
        (("pyarrow",), "PyArrow"),
        (("pandas",), "pandas"),
        (("pyarrow", "pandas"), "PyArrow and pandas"),
    ],
)
def test_a_missing_package_names_the_extra_at_every_door(missing, named, tmp_path):
    code = f"""
import importlib
for door in {DOORS}:
    try:
        importlib.import_module(door)
    except ImportError as error:
        import plait
        assert isinstance(error, plait.Unsupported), error
        print(error)
"""
    made = ran(code, tmp_path, PYTHONPATH=lacking(tmp_path / "lacking", *missing))
    lines = made.stdout.splitlines()
    assert lines[::2] == [f"`plait.spark` needs {named}: got `{sys.executable}` without"] * 4, made
    assert all("pip install 'plait[spark]'" in line for line in lines[1::2]) and len(lines) == 8


def test_the_format_of_a_python_that_lacks_pyarrow_names_the_extra(tmp_path):
    """What Spark imports to find formats imports no PyArrow: one format is no reason to fail."""
    code = """
import pyspark_plait
source = pyspark_plait.DefaultSource({"path": "absent"})
for call in (source.schema, lambda: source.reader(None), lambda: source.writer(None, False),
             lambda: source.streamWriter(None, False)):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    made = ran(code, tmp_path, PYTHONPATH=lacking(tmp_path / "lacking", "pyarrow"))
    assert made.stdout.count("pip install 'plait[spark]'") == 4, made


def test_the_wheel_has_the_package_in_which_spark_looks(root):
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        from pip._vendor import tomli as tomllib
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["maturin"]
    packages = {path.name for path in (root / settings["python-source"]).iterdir() if path.is_dir()}
    assert packages - {"__pycache__", "plait"} == set(settings["python-packages"])


def test_executors_need_the_package_plait_alone(folder, tmp_path):
    """As they have it from an archive of that folder."""
    from pyspark import cloudpickle

    from plait.spark.shipping import shipped
    from plait.spark.source import reader_of, schema_of

    options = {"path": str(folder), "sort_by": "k"}
    reader = reader_of(options, schema_of(options))

    def doubled(numbers):
        return [2 * number for number in numbers]

    shipment = (shipped(doubled), reader, reader.partitions())
    (tmp_path / "shipment").write_bytes(cloudpickle.dumps(shipment))
    code = """
import pickle, sys
function, reader, parts = pickle.loads(open(sys.argv[1], "rb").read())
print(function([1, 2]), [k for part in parts for b in reader.read(part) for k in b["k"].to_pylist()])
"""
    path = lacking(tmp_path / "lacking", "pyspark_plait")
    made = ran(code, tmp_path / "shipment", PYTHONPATH=path)
    assert made.stdout.strip() == "[2, 4] [0, 1, 2, 3]", made
