"""Cases of options that one function of `plait.spark` alone has, or that rows do not tell.

`CASES` holds a function for each option by name; it takes a session and a folder, and returns what
is seen without the option, and with it. An error is its class, and must name the option.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import types as st

import plait
from plait import spark as ps
from plait.spark import functions as fn

from . import option_cases as cases
from . import option_effects as effects
from .option_cases import GIVEN, KEYS, LEFT, RIGHT

Case = Callable[[Any, Path], tuple[Any, Any]]
CASES: dict[str, Case] = {}

_OURS = re.compile(r"plait\.(?:errors\.)?(\w+): (.+(?:\nhint: .+)?)")
# State that can hold maps; a store for every partition of every stage takes its time.
_STATEFUL = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def raised() -> Iterator[None]:
    """Raises what a task, a data source or a query raised, if that is an error of ours."""
    try:
        yield
    except PySparkException as cause:
        found = _OURS.search(str(cause))
        if found is None:
            raise
        raise getattr(plait, found[1])(found[2]) from cause


def either(call: Callable[..., Any], *, told: str | None = None, **option: Any) -> tuple[Any, Any]:
    """What the call returns without the option and with it; an error is its class.

    An error must name the option, or what is `told` instead.
    """
    (name,) = option

    def named(**options: Any) -> Any:
        try:
            with raised():
                return call(**options)
        except plait.PlaitError as error:
            assert (told or name) in str(error), f"{name} is not in: {error}"
            raise

    return cases.either(named, **option)


def case(*names: str) -> Callable[[Case], Case]:
    """Registers the case of an option, or of some that have the same effect."""

    def register(function: Case) -> Case:
        CASES.update(dict.fromkeys(names, function))
        return function

    return register


def register_all(
    function: str, call: Callable, options: dict[str, Any], *, told: str | None = None
) -> None:
    """Registers a case for each of the options of one call, which `call` prepares in a folder."""
    for option, value in options.items():

        def run(spark: Any, folder: Path, option: str = option, value: Any = value) -> Any:
            return either(call(spark, folder), told=told, **{option: value})

        CASES[f"{function}.{option}"] = run


def numbered(folder: Path) -> Iterator[Path]:
    """Folders that are not there yet, one after the other."""
    return (folder / str(number) for number in range(9))


def dicts(frame: Any) -> list[dict]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def nanoseconds() -> pa.Table:
    """A point in time between two microseconds."""
    return pa.table({"_index": [1], "k": [1], "t": pa.array([1_001], pa.timestamp("ns"))})


def batches_of(frame_of: Callable[[], Any], log: Path) -> list[dict[str, Any]]:
    """The batches that `mapInArrow` is given: their rows, and whether runs lie in files then."""
    frames = pytest.importorskip("pyspark.sql.classic.dataframe").DataFrame
    real = frames.mapInArrow

    def spied(frame: Any, function: Callable, schema: Any, *rest: Any) -> Any:
        def told(batches: Any) -> Iterator[pa.RecordBatch]:
            local = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0])
            for batch in function(batches):
                spilled = any(local.glob("plait-runs-*/*"))
                with log.open("a") as file:
                    file.write(json.dumps({"rows": batch.num_rows, "spilled": spilled}) + "\n")
                yield batch

        return real(frame, told, schema, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "mapInArrow", spied)
        frame = frame_of()
    frame.collect()
    return [json.loads(line) for line in log.read_text().splitlines()]


# ---- compact


@case("plait.spark.compact.out")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    effects.written(effects.mixed(), folder / "in")

    def call(**options: Any) -> set[str]:
        report = ps.compact(spark, folder / "in", sort_by="k", **options)
        (group,) = report.groups
        return {Path(path).relative_to(folder).parts[0] for path in group.outputs}

    with_it = call(out=folder / "other")
    return call(), with_it


@case("plait.spark.compact.if_exists")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    files = effects.written(effects.mixed(), folder / "in")
    out = folder / "out"
    ps.compact(spark, files[0], out, sort_by="k")

    def call(**options: Any) -> int:
        ps.compact(spark, files[1], out, sort_by="k", **options)
        return sum(source.rows for source in plait.plan(out, sort_by="k").sources)

    return either(call, if_exists="add")


@case("plait.spark.compact.where")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    for day in ("mon", "tue"):
        effects.written(effects.mixed(), folder / "in" / f"day={day}")

    def call(**options: Any) -> list[str]:
        report = ps.compact(spark, folder / "in", sort_by="k", yes=False, **options)
        return sorted(group.folder for group in report.groups)

    return either(call, where={"day": "mon"})


# ---- merge_runs


def runs() -> list[pa.RecordBatch]:
    """Two runs whose rows interleave."""
    return [pa.record_batch({"run": [r] * 300, "k": list(range(r, 600, 2))}) for r in range(2)]


@case("plait.spark.merge_runs.batch_rows", "plait.spark.merge_runs.memory_limit")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    frame = spark.createDataFrame(pa.Table.from_batches(runs())).coalesce(1)

    def batches(name: str, **options: Any) -> list[dict[str, Any]]:
        merge = partial(ps.merge_runs, frame, run_column="run", sort_by="k", **options)
        return batches_of(merge, folder / name)

    without = batches("without")
    few, little = batches("few", batch_rows=7), batches("little", memory_limit="1KB")
    assert max(b["rows"] for b in few) == 7
    assert sum(b["rows"] for b in without) == sum(b["rows"] for b in few) == 600
    assert max(b["rows"] for b in without) > 7
    return any(b["spilled"] for b in (*without, *few)), all(b["spilled"] for b in little)


@case("plait.spark.functions.merge_runs.memory_limit")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    def spills(**options: Any) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARK_LOCAL_DIRS", str(folder))
            merged = fn.merge_runs(runs(), run_column="run", sort_by="k", **options)
            next(merged)
            found = any(folder.glob("plait-runs-*/*"))
            assert sum(len(batch) for batch in merged) < 600
            return found

    return either(spills, memory_limit="1KB")


# ---- to_spark, overlay_batches


def passed(spark: Any, folder: Path) -> Callable:
    batch = pa.record_batch({"a": pa.array([1, 2], pa.uint8()), "b": ["x", "y"]})

    def call(**options: Any) -> Any:
        made = list(fn.to_spark([batch], **options))
        return [str(b.schema) for b in made], [b.to_pylist() for b in made]

    return call


register_all(
    "plait.spark.functions.to_spark",
    passed,
    {"schema": st.StructType().add("b", "string").add("a", "long"), "batch_rows": 1},
)


@case("plait.spark.functions.to_spark.lossy")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    batches = nanoseconds().to_batches()
    return either(lambda **o: [b.to_pylist() for b in fn.to_spark(batches, **o)], lossy="truncate")


@case("plait.spark.functions.overlay_batches.index")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    base, patch = cases.layered(folder)
    layers = [plait.Layer(base), plait.Layer(patch, ["s.y"])]
    return either(lambda **o: [b.schema.names for b in fn.overlay_batches(layers, **o)], index="o")


@case("plait.spark.functions.overlay_batches.row_number")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    base, patch = cases.layered(folder)
    layers = [plait.Layer(base), plait.Layer(patch, ["s.y"])]
    return either(
        lambda **o: [b.num_rows for b in fn.overlay_batches(layers, **o)],
        row_number="n",
        told="row numbers differ: column `n`",
    )


# ---- overlay


def overlaid(spark: Any, folder: Path) -> Callable:
    base, patch = map(str, effects.written(cases.layered(folder), folder / "in"))

    def call(**options: Any) -> Any:
        frame = ps.overlay(spark, [plait.Layer(base), plait.Layer(patch, ["s.y"])], **options)
        return frame.columns, dicts(frame), frame.rdd.getNumPartitions()

    return call


register_all(
    "plait.spark.overlay",
    overlaid,
    {"index": "o", "struct_validity": "all_children", "part_rows": 1},
)


@case("plait.spark.overlay.row_number")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    base, patch = (
        spark.createDataFrame(pa.table({"_index": [5, 6], "row": [0, 1], name: values}))
        for name, values in (("a", [1, 2]), ("b", [3, 4]))
    )
    layers = [plait.Layer(base), plait.Layer(patch, ["b"])]
    return either(lambda **o: dicts(ps.overlay(spark, layers, **o)), row_number="row")


@case("plait.spark.overlay.check_unused")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    tables = [pa.table({"_index": [1], "a": [1]}), pa.table({"_index": [2], "a": [2]})]
    strong, unused = map(str, effects.written(tables, folder / "in"))
    layers = [plait.Layer(strong, ["a"], precedence=1), plait.Layer(unused, ["a"])]
    return either(
        lambda **o: dicts(ps.overlay(spark, layers, **o)),
        check_unused=False,
        told="layers do not hold the same rows",
    )


@case("plait.spark.overlay.lossy")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    (file,) = effects.written([nanoseconds()], folder / "in")
    return either(
        lambda **o: dicts(ps.overlay(spark, [plait.Layer(str(file))], **o)), lossy="truncate"
    )


# ---- scan


# Spark has no two columns whose names differ in case alone.
ANY_CASE = {"case": "insensitive"}


def scanned(spark: Any, folder: Path, **common: Any) -> Callable:
    source = cases.lake(folder)

    def call(**options: Any) -> Any:
        frame = ps.scan(spark, source, **{**ANY_CASE, **common, **options})
        return frame.dtypes, dicts(frame), frame.rdd.getNumPartitions()

    return call


register_all(
    "plait.spark.scan",
    scanned,
    {
        "columns": ["a"],
        "schema": GIVEN,
        "static": {"region": "eu"},
        "implicit": ["_path"],
        "files_per_task": 2,
        "memory_limit": "1KB",
        "partitions": "hive",
        "limit": 2,
        "storage_options": effects.MISSPELLED,
    },
)
register_all(
    "plait.spark.scan", partial(scanned, partitions="hive"), {"partition_types": {"y": "int16"}}
)
register_all("plait.spark.scan", partial(scanned, columns=["a", "none"]), {"missing": "null"})
register_all(
    "plait.spark.scan",
    scanned,
    {"policy": {"widen": "error"}},
    told="`a` would have to be widened",
)
register_all(
    "plait.spark.scan",
    partial(scanned, schema=GIVEN),
    {"strict": True},
    told="is not in the given schema",
)


@case("plait.spark.scan.partition_clash")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    (folder / "k=1").mkdir()
    pq.write_table(pa.table({"k": [2]}), folder / "k=1" / "0.parquet")
    return either(
        lambda **o: dicts(ps.scan(spark, folder, partitions="hive", **o)),
        partition_clash="file",
        told="`k`",
    )


@case("plait.spark.scan.root")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    source = cases.lake(folder)
    names = partial(ps.scan, spark, source, partitions="dirs", **ANY_CASE)
    return either(lambda **o: names(**o).columns, root=folder)


@case("plait.spark.scan.case")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    source = cases.lake(folder)
    return either(
        lambda **o: ps.scan(spark, source, **o).columns,
        case="insensitive",
        told="two columns have one name in Spark: got `a`, `B`, `b`, `c`",
    )


@case("plait.spark.scan.batch_rows")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    source = cases.lake(folder)

    def rows(name: str, **options: Any) -> list[int]:
        found = batches_of(partial(ps.scan, spark, source, **ANY_CASE, **options), folder / name)
        return sorted(batch["rows"] for batch in found)

    return rows("without"), rows("with", batch_rows=1)


@case("plait.spark.scan.lossy")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    effects.written([nanoseconds()], folder / "in")
    return either(lambda **o: dicts(ps.scan(spark, folder / "in", **o)), lossy="truncate")


# ---- joins


def joined(spark: Any, folder: Path, left: pa.Table = LEFT) -> Callable:
    sides = [spark.createDataFrame(table) for table in (left, RIGHT)]

    def call(**options: Any) -> Any:
        changes = ps.foreign_key_join_batch(*sides, **{**KEYS, **options})
        return changes.columns, sorted(map(str, dicts(changes))), changes.rdd.getNumPartitions()

    return call


# A row without a primary key.
KEYLESS = pa.table({"id": [1, None], "fk": [7, 7], "v": [1, 2]})

register_all(
    "plait.spark.foreign_key_join_batch",
    joined,
    {"how": "left", "columns": ["id", "name"], "before": True, "shards": 1, "memory_limit": "1KB"},
)
register_all(
    "plait.spark.foreign_key_join_batch", partial(joined, left=KEYLESS), {"on_null_key": "drop"}
)


def streams(spark: Any, folder: Path, left: pa.Table = LEFT) -> list[Any]:
    """Two streams of one batch."""
    for side, table in (("left", left), ("right", RIGHT)):
        effects.written([table], folder / side)
    schemas = {side: spark.read.parquet(str(folder / side)).schema for side in ("left", "right")}
    return [
        spark.readStream.schema(schema).parquet(str(folder / side))
        for side, schema in schemas.items()
    ]


def started(spark: Any, folder: Path, left: pa.Table = LEFT) -> Callable:
    """Starts a join of streams; gives the query, its checkpoint, and the changes that it made."""
    sides, places = streams(spark, folder, left), numbered(folder / "checkpoints")

    def start(**options: Any) -> tuple[Any, Path, list[pa.Table]]:
        checkpoint, made = next(places), []
        query = ps.foreign_key_join(
            *sides,
            checkpoint=checkpoint,
            sink=lambda changes, number: made.append(changes.toArrow()),
            **{**KEYS, **options},
        )
        return query, checkpoint, made

    return start


ONCE = {"trigger": {"availableNow": True}}


def streamed(spark: Any, folder: Path, left: pa.Table = LEFT) -> Callable:
    start = started(spark, folder, left)

    def call(**options: Any) -> Any:
        query, _, made = start(**ONCE, **options)
        query.awaitTermination()
        return [(table.column_names, sorted(map(str, table.to_pylist()))) for table in made]

    return call


register_all(
    "plait.spark.foreign_key_join",
    streamed,
    {"how": "left", "columns": ["id", "name"], "before": True, "memory_limit": "1KB"},
)
register_all(
    "plait.spark.foreign_key_join", partial(streamed, left=KEYLESS), {"on_null_key": "drop"}
)


@case("plait.spark.foreign_key_join.shards", "plait.spark.foreign_key_join.query_name")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    start = started(spark, folder)

    def call(**options: Any) -> tuple[set[str], str | None]:
        query, checkpoint, made = start(**ONCE, **options)
        query.awaitTermination()
        assert len(made) == 1
        return {path.name for path in checkpoint.glob("plait-join/rows/*")}, query.name

    (many, unnamed), (one, named) = call(), call(shards=1, query_name="orders")
    assert (unnamed, named) == (None, "orders")
    return many, one


@case("plait.spark.foreign_key_join.trigger")
def _(spark: Any, folder: Path) -> tuple[Any, Any]:
    def batches(home: Path, **options: Any) -> int:
        """Batches of a query, where more comes when it has taken all that was there."""
        query, _, made = started(spark, home)(**options)
        try:
            if options:
                query.awaitTermination(60)
            else:
                query.processAllAvailable()
            (later,) = effects.written([LEFT.set_column(0, "id", pa.array([7, 8, 9]))], home / "in")
            later.rename(home / "left" / "later.parquet")
            if query.isActive:
                query.processAllAvailable()
        finally:
            query.stop()
        return len(made)

    return batches(folder / "without"), batches(folder / "with", **ONCE)


def stateful(spark: Any, folder: Path, left: pa.Table = LEFT) -> Callable:
    sides, places = streams(spark, folder, left), numbered(folder / "checkpoints")

    def call(**options: Any) -> Any:
        made: list[pa.Table] = []
        before = {name: spark.conf.get(name) for name in _STATEFUL}
        for name, value in _STATEFUL.items():
            spark.conf.set(name, value)
        try:
            changes = ps.foreign_key_join_stateful(*sides, **{**KEYS, **options})
            writer = changes.writeStream.foreachBatch(lambda rows, _: made.append(rows.toArrow()))
            writer = writer.option("checkpointLocation", str(next(places)))
            writer.trigger(availableNow=True).start().awaitTermination()
        finally:
            for name, value in before.items():
                spark.conf.set(name, value)
        return changes.columns, sorted(str(row) for table in made for row in table.to_pylist())

    return call


register_all(
    "plait.spark.foreign_key_join_stateful",
    stateful,
    {"how": "left", "columns": ["id", "name"], "before": True},
)
register_all(
    "plait.spark.foreign_key_join_stateful",
    partial(stateful, left=KEYLESS),
    {"on_null_key": "drop"},
)
