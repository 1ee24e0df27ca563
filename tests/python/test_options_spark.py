"""Every option of `plait.spark`, and of its format, has an effect: a test for each, by reflection.

As `test_options.py` for one machine. `EFFECTS` has the options that can be told by the files or
rows which a door makes, `CASES` of `option_cases_spark.py` those of one function alone.

    format "plait"   read.sort_by, write.sort_by, stream.sort_by: one option, three doors
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
import plait.table

pytest.importorskip("pyspark")

from plait import spark as ps
from plait.spark import functions as fn
from plait.spark import plan as spark_plan
from plait.spark import sink, source
from pyspark_plait import DefaultSource

from . import option_effects as effects
from . import test_options as here
from .option_cases_spark import CASES, case, either, nanoseconds, raised
from .option_effects import KEYED, SCENARIOS, Effect, Made
from .test_options import POLICY, days, groups, heard, logged, options_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

# What is called, with a session: the files, a folder for what is made, the options.
Door = Callable[[Any, list[Path], Path, dict[str, Any]], Made]


# ---- doors


def instead_of(module: ModuleType, name: str, door: Callable) -> Door:
    """A door of one machine; what it calls is the function of that name on executors."""

    def called(spark, files, out, options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, partial(getattr(ps, name), spark))
            return door(files, out, options)

    return called


def listened(door: Door) -> Door:
    """The door with whether `progress` was called in place of its report."""
    return lambda spark, files, out, options: heard(partial(door, spark))(files, out, options)


def told(door: Door) -> Door:
    """The door with the reports of executors in place of its own."""

    def called(spark, files, out, options):
        reports: list = []
        run = spark_plan._run

        def kept(*arguments, **named):
            made = run(*arguments, **named)
            reports.extend(made.values())
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spark_plan, "_run", kept)
            made = door(spark, files, out, options)
        return Made(made.files, reports)

    return called


def kept(batches: list[pa.RecordBatch], out: Path) -> Made:
    """The rows as a file, and the rows of each batch."""
    out.mkdir()
    pq.write_table(pa.Table.from_batches(batches), out / "all.parquet")
    return Made([str(out / "all.parquet")], [len(batch) for batch in batches])


def merge_sorted(spark, files, out, options):
    readers = [pq.ParquetFile(file).read().to_reader() for file in files]
    return kept(list(fn.merge_sorted(readers, **options)), out)


def with_runs(files: list[Path]) -> list[pa.RecordBatch]:
    """The rows of all files, with the number of each one's file as `run`."""
    tables = [pq.ParquetFile(file).read() for file in files]
    return [
        batch.append_column("run", pa.repeat(i, len(batch)))
        for i, table in enumerate(tables)
        for batch in table.to_batches()
    ]


def merge_batches(spark, files, out, options):
    return kept(list(fn.merge_runs(with_runs(files), run_column="run", **options)), out)


def merge_frames(spark, files, out, options):
    frame = spark.createDataFrame(pa.Table.from_batches(with_runs(files))).coalesce(1)
    merged = ps.merge_runs(frame, run_column="run", **options)
    with raised():
        return kept(merged.toArrow().to_batches(), out)


def texts(options: dict[str, Any]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {n: v if isinstance(v, str) else json.dumps(v) for n, v in options.items()}


def read(spark, files, out, options):
    ps.register(spark)
    with raised():
        frame = spark.read.format("plait").options(**texts(options)).load(str(files[0].parent))
        made = kept(frame.toArrow().to_batches(), out)
        return replace(made, report=frame.rdd.getNumPartitions())


def runs_of(out: Path) -> Made:
    """What a writer wrote, and the names under which it counts batches."""
    files = sorted(map(str, out.glob("run-*.parquet")))
    actions = [
        json.loads(line)
        for path in out.glob("_delta_log/*.json")
        for line in path.read_text().splitlines()
    ]
    batches = {action["txn"]["appId"] for action in actions if "txn" in action}
    return Made(files, sorted(name.removeprefix("plait.stream:") for name in batches))


def write(spark, files, out, options):
    ps.register(spark)
    frame = spark.read.parquet(str(files[0])).coalesce(1)
    with raised():
        frame.write.format("plait").options(**texts(options)).mode("append").save(str(out))
    return runs_of(out)


def stream(spark, files, out, options):
    ps.register(spark)
    schema = spark.read.parquet(str(files[0])).schema
    # A task that had rows of several files would have them in no order.
    reader = spark.readStream.schema(schema).option("pathGlobFilter", files[0].name)
    frame = reader.parquet(str(files[0].parent))
    writer = frame.writeStream.format("plait").options(**texts(options))
    writer = writer.option("checkpointLocation", f"{out}-checkpoint")
    with raised():
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()
    return runs_of(out)


# ---- what must differ, by function and option


def names(made: Made) -> list[str]:
    """Columns of the rows."""
    return pq.ParquetFile(made.files[0]).schema_arrow.names


def report(made: Made) -> Any:
    return made.report


def is_named_q(made: Made) -> bool:
    """Whether batches are counted under this name: without one it is another every time."""
    return made.report == ["q"]


def scenarios(*options: str) -> dict[str, Effect]:
    return {option: SCENARIOS[option] for option in options}


DUPLICATES = scenarios("on_duplicate", "version_by", "replace_columns", "aggregate", "delete_where")
WRITTEN = {
    "sort_by": Effect("k", effects.outcome),
    "compression": Effect("snappy", effects.chunks, given=KEYED),
    "row_group_rows": Effect(100, effects.group_rows, given=KEYED),
    "storage_options": SCENARIOS["storage_options"],
    "sort": Effect("true", effects.outcome, tables=effects.unsorted, given=KEYED),
    # Too little for any task.
    "memory_limit": Effect("1KB", effects.outcome, given={**KEYED, "sort": "true"}),
}
COMPACTED = {
    **scenarios("compression", "encoding", "server_side_copy", "memory_limit"),
    **POLICY,
}
del COMPACTED["verify"]  # what is read is read by workers

SHARED: dict[str, tuple[Door, dict[str, Effect]]] = {
    "plait.spark.compact": (instead_of(plait, "compact", here.compact), COMPACTED),
    "plait.spark.compact_delta": (
        instead_of(plait.table, "compact_delta", here.delta),
        {
            **COMPACTED,
            "where": Effect({"day": "mon"}, groups, tables=days, given=KEYED),
            "guard": Effect(False, logged, given=KEYED),
        },
    ),
    "plait.spark.compact_iceberg": (
        instead_of(plait.table, "compact_iceberg", here.iceberg),
        {
            **COMPACTED,
            "where": Effect({"day": "mon"}, groups, tables=days, given=KEYED),
            "compression": Effect("snappy", effects.chunks, given=KEYED),
        },
    ),
    "plait.spark.merge_runs": (merge_frames, DUPLICATES),
    "plait.spark.functions.merge_sorted": (
        merge_sorted,
        {**DUPLICATES, **scenarios("missing_keys"), "batch_rows": Effect(10, report, given=KEYED)},
    ),
    "plait.spark.functions.merge_runs": (
        merge_batches,
        {**DUPLICATES, "batch_rows": Effect(10, report, given=KEYED)},
    ),
    "read": (
        read,
        {
            **scenarios("sort_by", "missing_keys", "storage_options", "drop_where"),
            **scenarios("keep_tombstones"),
            **DUPLICATES,
            "columns": Effect("v", names, given=KEYED),
            "where": Effect("k < 3", effects.rows, given=KEYED),
            "part_rows": Effect(100, report, given=KEYED),
            "lossy": Effect(
                "truncate", effects.outcome, tables=lambda: [nanoseconds()], given=KEYED
            ),
        },
    ),
    "write": (write, WRITTEN),
    "stream": (stream, {**WRITTEN, "query": Effect("q", is_named_q, given=KEYED)}),
}

EFFECTS: dict[str, tuple[Door, Effect]] = {
    f"{function}.{option}": (door, effect)
    for function, (door, of_options) in SHARED.items()
    for option, effect in of_options.items()
}
HASHES = Effect("content", lambda made: [r.content_hash is None for r in made.report], given=KEYED)
for function in ("compact", "compact_delta", "compact_iceberg"):
    door = SHARED[f"plait.spark.{function}"][0]
    EFFECTS[f"plait.spark.{function}.verify"] = (told(door), HASHES)
    EFFECTS[f"plait.spark.{function}.progress"] = (listened(door), here.PROGRESS)


# ---- options of the format that decide what is read, and where things are written


def loaded(spark: Any, **options: str) -> Any:
    """All rows, in Spark's rows."""
    ps.register(spark)
    return spark.read.format("plait").options(**options).load().collect()


@case("read.path")
def _(spark, folder):
    effects.written(effects.mixed(), folder / "in")
    return either(lambda **o: loaded(spark, sort_by="k", **o), path=str(folder / "in"))


@case("read.paths")
def _(spark, folder):
    """Spark has several paths as one option."""
    files = list(map(str, effects.written(effects.mixed(), folder / "in")))
    return either(
        lambda **o: loaded(spark, sort_by="k", **o),
        paths=json.dumps(files),
        told="there is no path",
    )


@case("read.batch_rows", "read.memory_limit")
def _(spark, folder):
    effects.written(effects.mixed(), folder / "in")

    def batches(**options: str) -> int:
        """Batches of the one partition, as Spark asks for them."""
        made = DefaultSource({"path": str(folder / "in"), "sort_by": "k", **options})
        reader = made.reader(made.schema())
        (partition,) = reader.partitions()
        return len(list(reader.read(partition)))

    without, few = batches(), batches(batch_rows="100")
    assert (without, few) == (1, 9)
    return either(batches, memory_limit="10KB", told="memory_limit")


@case("read.read_log")
def _(spark, folder):
    effects.written(effects.mixed(), folder / "in")

    def logs(**options: str) -> list[int]:
        loaded(spark, path=str(folder / "in"), sort_by="k", **options)
        return [json.loads(log.read_text())["rows"] for log in folder.glob("log/*.json")]

    return either(logs, read_log=str(folder / "log"))


@case("read.push_filters")
def _(spark, folder):
    effects.written(effects.disjoint(), folder / "in")
    ps.register(spark)

    def opened(log: Path, **options: str) -> int:
        """How many files rows are read of, for a key that is in one of them."""
        given = {"sort_by": "k", "read_log": str(log), **options}
        frame = spark.read.format("plait").options(**given).load(str(folder / "in"))
        assert [row.k for row in frame.where("k = 7").collect()] == [7]
        logs = [json.loads(file.read_text()) for file in log.iterdir()]
        return sum(log["files_opened"] for log in logs)

    return opened(folder / "without"), opened(folder / "with", push_filters="false")


@case("write.path")
def _(spark, folder):
    ps.register(spark)

    def call(**options: str) -> int:
        writer = spark.range(9).coalesce(1).write.format("plait").mode("append")
        writer.options(sort_by="id", **options).save()
        return len(runs_of(folder / "out").files)

    return either(call, path=str(folder / "out"))


@case("write.query", "write.checkpointlocation")
def _(spark, folder):
    """A batch counts under no name, and has no checkpoint."""
    (file,) = effects.written(effects.unsorted(), folder / "in")

    def call(**options: str) -> int:
        out = folder / f"out{len(options)}"
        return len(write(spark, [file], out, {"sort_by": "v", **options}).files)

    with_query = either(call, query="q")
    assert with_query == (1, "InvalidArgument")
    return either(call, checkpointLocation=str(folder), told="checkpointlocation")


def streaming(spark: Any, folder: Path) -> Any:
    """A stream of one batch of one task, on its way to the format."""
    ps.register(spark)
    effects.written(effects.unsorted(), folder / "in")
    frame = spark.readStream.schema("k long, v string").parquet(str(folder / "in"))
    return frame.writeStream.format("plait").option("sort_by", "v").trigger(availableNow=True)


@case("stream.path")
def _(spark, folder):
    writer = streaming(spark, folder).option("checkpointLocation", str(folder / "checkpoint"))

    def call(**options: str) -> int:
        writer.options(**options).start().awaitTermination()
        return len(runs_of(folder / "out").files)

    return either(call, path=str(folder / "out"))


@case("stream.checkpointlocation")
def _(spark, folder):
    """Where the option is missing, Spark takes a folder of the session."""
    setting = "spark.sql.streaming.checkpointLocation"

    def places(home: Path, **options: str) -> list[str]:
        spark.conf.set(setting, str(home / "of the session"))
        try:
            streaming(spark, home).options(**options).start(str(home / "out")).awaitTermination()
        finally:
            spark.conf.unset(setting)
        assert len(runs_of(home / "out").files) == 1
        return [path.relative_to(home).parts[0] for path in home.rglob("offsets")]

    given = folder / "with" / "of the query"
    return places(folder / "without"), places(folder / "with", checkpointLocation=str(given))


# ---- every option has an effect


@pytest.mark.parametrize("name", EFFECTS)
def test_the_option_has_an_effect(name, spark, tmp_path):
    door, effect = EFFECTS[name]
    option = name.rpartition(".")[2]

    def named(files, out, options):
        """The door; what it refuses, it says why."""
        try:
            return door(spark, files, out, options)
        except plait.PlaitError as error:
            assert option in str(error), error
            raise

    without, given = effects.compared(effect, option, tmp_path, named)
    assert without != given


@pytest.mark.parametrize("name", CASES)
def test_the_option_of_one_function_has_an_effect(name, spark, tmp_path):
    without, given = CASES[name](spark, tmp_path)
    assert without != given


# ---- no option is forgotten


def public() -> dict[str, list[str]]:
    """Options of all public functions, and of the format, by name."""
    found = {
        "read": list(source.OPTIONS),
        "write": list(sink.OPTIONS),
        "stream": list(sink.OPTIONS),
    }
    modules = [ps, *(getattr(ps, n) for n in ps.__all__ if inspect.ismodule(getattr(ps, n)))]
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                found[f"{module.__name__}.{name}"] = options_of(value)
            else:
                assert value in modules, f"{name} is neither a function nor a module of functions"
    return found


def test_every_option_of_every_public_function_has_a_test_of_its_effect():
    wanted = {f"{function}.{option}" for function, names in public().items() for option in names}
    tested = set(EFFECTS) | set(CASES)
    assert sorted(wanted - tested) == []
    assert sorted(tested - wanted) == []
    assert not set(EFFECTS) & set(CASES)
