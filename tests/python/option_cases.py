"""Cases of options that one function alone has: what is seen without the option, and with it.

`CASES` holds a function for each option by name; it takes a folder and returns the pair.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait

from . import option_effects as effects

CASES: dict[str, Callable[[Path], tuple[Any, Any]]] = {}


def case(*names: str) -> Callable:
    """Registers the case of an option."""

    def register(function: Callable[[Path], tuple[Any, Any]]) -> Callable:
        CASES.update(dict.fromkeys(names, function))
        return function

    return register


def either(call: Callable[..., Any], **option: Any) -> tuple[Any, Any]:
    """What the call returns without the option and with it; an error is its class."""

    def seen(options: dict) -> Any:
        try:
            return call(**options)
        except plait.PlaitError as error:
            return type(error).__name__

    return seen({}), seen(option)


def register_all(name: str, call: Callable[[Path], Callable], options: dict[str, Any]) -> None:
    """Registers a case for each of the options of one call, which `call` prepares in a folder."""
    for option, value in options.items():

        def run(folder: Path, option: str = option, value: Any = value) -> tuple[Any, Any]:
            return either(call(folder), **{option: value})

        CASES[f"{name}.{option}"] = run


# ---- compact


def compacted(*arguments: Any) -> Callable[..., Any]:
    def call(**options: Any) -> Any:
        report = plait.compact(*arguments, **{"sort_by": "k", "policy": "full", **options})
        return report.format, [group.folder for group in report.groups], report.dry_run

    return call


def partitioned(folder: Path) -> Callable[..., Any]:
    for day in "12":
        (folder / f"day={day}").mkdir()
        for part in "ab":
            pq.write_table(pa.table({"k": [1, 2]}), folder / f"day={day}" / f"{part}.parquet")
    return compacted(folder)


def delta(folder: Path) -> Callable[..., Any]:
    import deltalake

    for _ in range(2):
        deltalake.write_deltalake(str(folder), pa.table({"k": [1, 2]}), mode="append")
    return compacted(folder)


register_all("plait.compact", partitioned, {"where": {"day": "1"}, "guard": False})
register_all("plait.compact", delta, {"format": "folder"})


def drifting(folder: Path) -> Callable[..., Any]:
    (folder / "in").mkdir()
    for at in range(2):
        table = pa.table({"k": [at, 5], **({"later": [1, 2]} if at else {})})
        pq.write_table(table, folder / "in" / f"{at}.parquet")
    return compacted(folder / "in")


register_all("plait.compact", drifting, {"across_schemas": True})


@case("plait.compact.in_place")
def exchanged_by_compact(folder: Path) -> tuple[Any, Any]:
    partitioned(folder)

    def call(**options: Any) -> tuple[bool, int]:
        before = folder.stat().st_ino
        plait.compact(folder, sort_by="k", policy="full", **options)
        return before == folder.stat().st_ino, len(list(folder.glob("day=*/*.parquet")))

    return either(call, in_place=True)


@case("plait.expire.swap")
def exchanged_by_expire(folder: Path) -> tuple[Any, Any]:
    partitioned(folder)

    def call(**options: Any) -> bool:
        pq.write_table(pa.table({"k": [1, 2]}), folder / "day=1" / f"c{len(options)}.parquet")
        plait.compact(folder, sort_by="k", policy="full")
        before = folder.stat().st_ino
        plait.expire(folder, retention=0, yes=True, **options)
        return before == folder.stat().st_ino

    return either(call, swap=True)


register_all("plait.compact", partitioned, {"catalog": "absent"})


# ---- scan


def lake(folder: Path) -> Path:
    """Two folders of files that drift."""
    for year, table in (
        ("2024", pa.table({"a": pa.array([1], pa.int32()), "B": [1]})),
        ("2025", pa.table({"a": pa.array([2, 3], pa.int64()), "b": [None, 2], "c": ["x", "y"]})),
    ):
        (folder / "lake" / f"y={year}").mkdir(parents=True)
        pq.write_table(table, folder / "lake" / f"y={year}" / "0.parquet")
    return folder / "lake"


def scanned(folder: Path, **common: Any) -> Callable:
    source = lake(folder)

    def call(**options: Any) -> Any:
        found = plait.scan(source, **{**common, **options})
        batches = [pa.record_batch(batch) for batch in found.to_batches()]
        rows = [(str(batch.schema), batch.to_pylist()) for batch in batches]
        return rows, [change.what for change in found.report.changes]

    return call


GIVEN = pa.schema([("a", pa.int64()), ("z", pa.int8())])
FOLLOW = {"mode": "follow"}
register_all(
    "plait.scan",
    scanned,
    {
        "columns": ["a"],
        "schema": GIVEN,
        "policy": {"widen": "error"},
        "case": "insensitive",
        "static": {"region": "eu"},
        "implicit": ["_path"],
        "partitions": "hive",
        "mode": "follow",
        "batch_rows": 1,
        "limit": 1,
        "memory_limit": "1KB",
        "storage_options": effects.MISSPELLED,
    },
)
register_all(
    "plait.scan",
    lambda folder: scanned(folder, columns=["a", "none"], **FOLLOW),
    {"null_type": "int8"},
)
register_all("plait.scan", lambda folder: scanned(folder, **FOLLOW), {"on_change": "error"})
register_all(
    "plait.scan", lambda folder: scanned(folder, columns=["a", "none"]), {"missing": "null"}
)
register_all("plait.scan", lambda folder: scanned(folder, schema=GIVEN), {"strict": True})
register_all(
    "plait.scan",
    lambda folder: scanned(folder, partitions="hive"),
    {"partition_types": {"y": "int16"}},
)


@case("plait.scan.partition_clash")
def _(folder: Path) -> tuple[Any, Any]:
    (folder / "k=2").mkdir()
    pq.write_table(pa.table({"k": [1]}), folder / "k=2" / "a.parquet")
    return either(
        lambda **o: pa.table(plait.scan(folder, partitions="hive", **o)).to_pydict(),
        partition_clash="file",
    )


@case("plait.scan.root")
def _(folder: Path) -> tuple[Any, Any]:
    source = lake(folder)
    return either(
        lambda **o: pa.table(plait.scan(source, partitions="dirs", **o)).column_names,
        root=source.parent,
    )


@case("plait.scan.smooth")
def _(folder: Path) -> tuple[Any, Any]:
    tables = [pa.table({"a": [1], "b": [1]}), pa.table({"a": [2]})]

    def call(**options: Any) -> Any:
        found = plait.scan([t.to_reader() for t in tables], mode="follow", **options)
        return [pa.record_batch(batch).to_pylist() for batch in found.to_batches()]

    return either(call, smooth=False)


@case("plait.scan.batch_bytes")
def _(folder: Path) -> tuple[Any, Any]:
    table = pa.table({"v": ["x" * 1000] * 4000})
    return either(
        lambda **o: [len(b) for b in plait.scan(table, **o).to_batches()], batch_bytes="256KiB"
    )


@case("plait.scan.threads")
def _(folder: Path) -> tuple[Any, Any]:
    files = effects.written([effects.large()[0]] * 12, folder / "in", row_group_size=20_000)

    def threads(count: int) -> bool:
        made = effects.called(
            lambda: effects.Made(report=sum(len(b) for b in plait.scan(files, threads=count)))
        )
        return effects.threads(made)

    return threads(1), threads(12)


# ---- overlay


def layered(folder: Path) -> Callable:
    structs = [{"x": 1, "y": 1}, {"x": None, "y": 2}]
    base = pa.table({"_index": [1, 2], "n": [1, 2], "o": [1, 2], "s": structs})
    patch = pa.table({"_index": [1, 2], "n": [2, 1], "o": [1, 2], "s": [{"y": 9}, {"y": None}]})
    return base, patch


def overlaid(folder: Path) -> Callable:
    base, patch = layered(folder)

    def call(**options: Any) -> Any:
        layers = [plait.Layer(base), plait.Layer(patch, ["s.y"])]
        batches = [pa.record_batch(b) for b in plait.overlay(layers, **options)]
        return [(batch.schema.names, batch.to_pylist()) for batch in batches]

    return call


OVERLAY = {"index": "o", "row_number": "n", "struct_validity": "all_children"}
register_all("plait.overlay", overlaid, {**OVERLAY, "batch_rows": 1})


def overlaid_files(folder: Path) -> Callable:
    tables = layered(folder)
    base, patch = effects.written(tables, folder / "in")
    count = iter(range(9))

    def call(**options: Any) -> Any:
        out = folder / f"{next(count)}.parquet"
        plait.overlay_files([plait.Layer(base), plait.Layer(patch, ["s.y"])], out, **options)
        table = pq.read_table(out)
        return table.column_names, table.to_pylist()

    return call


register_all(
    "plait.overlay_files",
    overlaid_files,
    {**OVERLAY, "memory_limit": "1KB", "storage_options": effects.MISSPELLED},
)


@case("plait.overlay.check_unused", "plait.overlay_files.check_unused")
def _(folder: Path) -> tuple[Any, Any]:
    tables = [pa.table({"_index": [1], "a": [1]}), pa.table({"_index": [2], "a": [2]})]
    files = effects.written(tables, folder / "in")

    def call(**options: Any) -> Any:
        layers = [plait.Layer(tables[0], ["a"], precedence=1), plait.Layer(tables[1], ["a"])]
        streams = [pa.record_batch(b).to_pylist() for b in plait.overlay(layers, **options)]
        layers = [plait.Layer(files[0], ["a"], precedence=1), plait.Layer(files[1], ["a"])]
        plait.overlay_files(layers, folder / "out.parquet", **options)
        return streams

    return either(call, check_unused=False)


@case("plait.overlay_files.check")
def _(folder: Path) -> tuple[Any, Any]:
    keys = list(range(20_000))
    tables = [
        pa.table({"_index": keys, "a": keys}),
        pa.table({"_index": [*keys[:-1], -1], "b": keys}),
    ]
    files = effects.written(tables, folder / "in")
    layers = [plait.Layer(files[0]), plait.Layer(files[1], ["b"])]

    def writes(**options: Any) -> bool:
        before = effects.written_bytes()
        try:
            plait.overlay_files(layers, folder / "out.parquet", **options)
        except plait.RowMismatch:
            return effects.written_bytes() - before > files[0].stat().st_size // 2
        return False

    return writes(), writes(check="after")


@case("plait.overlay_files.copy_tiers")
def _(folder: Path) -> tuple[Any, Any]:
    table = pa.table({"_index": range(9), "a": range(9)})
    (file,) = effects.written([table], folder / "in")

    def call(**options: Any) -> Any:
        out = folder / f"{len(options)}.parquet"
        return set(plait.overlay_files([plait.Layer(file)], out, **options).copied)

    return either(call, copy_tiers=())


@case("plait.overlay_files.progress")
def _(folder: Path) -> tuple[Any, Any]:
    (file,) = effects.written([pa.table({"_index": [1]})], folder / "in")
    calls: list = []
    plait.overlay_files([plait.Layer(file)], folder / "a.parquet")
    without = len(calls)
    plait.overlay_files([plait.Layer(file)], folder / "b.parquet", progress=calls.append)
    return without, len(calls)


@case("plait.Layer.paths")
def _(folder: Path) -> tuple[Any, Any]:
    table = pa.table({"_index": [1], "a": [1], "b": [1]})
    return either(
        lambda **o: pa.table(plait.overlay([plait.Layer(table, **o)])).column_names, paths=["b"]
    )


@case("plait.Layer.schema")
def _(folder: Path) -> tuple[Any, Any]:
    schema = pa.schema([("_index", pa.int64()), ("a", pa.int64())])
    return either(
        lambda **o: pa.table(plait.overlay([plait.Layer([], **o)])).column_names, schema=schema
    )


@case("plait.merge_streams.schema")
def _(folder: Path) -> tuple[Any, Any]:
    return either(
        lambda **o: pa.table(plait.merge_streams([[]], sort_by="a", **o)).column_names,
        schema=pa.schema([("a", pa.int64())]),
    )


@case("plait.Layer.name")
def _(folder: Path) -> tuple[Any, Any]:
    def message(**options: Any) -> str:
        try:
            plait.overlay([plait.Layer(pa.table({"_index": [1]}), ["none"], **options)])
        except plait.FieldNotInLayer as error:
            return str(error)
        return ""

    return message(), message(name="prices")


@case("plait.Layer.precedence")
def _(folder: Path) -> tuple[Any, Any]:
    def call(**options: Any) -> Any:
        layers = [
            plait.Layer(pa.table({"_index": [1], "a": [1]}), **options),
            plait.Layer(pa.table({"_index": [1], "a": [2]})),
        ]
        return pa.table(plait.overlay(layers)).to_pylist()

    return either(call, precedence=5)


# ---- joins

LEFT = pa.table({"id": [1, 2, 3], "fk": [7, 8, 7], "v": [1, 2, 3]})
RIGHT = pa.table({"key": [7], "name": ["Ada"]})
KEYS = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}
SCHEMAS = {"left_schema": LEFT.schema, "right_schema": RIGHT.schema}


def joined(folder: Path) -> Callable:
    def call(**options: Any) -> Any:
        join = plait.ForeignKeyJoin(**{**KEYS, **options})
        first = [pa.record_batch(b).to_pylist() for b in join.apply(LEFT, RIGHT)]
        later = pa.table({"id": [1, None], "fk": [8, 7], "v": [5, 6]}).slice(0, 1)
        return first, pa.table(join.apply(later)).to_pylist()

    return call


def total(batch: Any) -> pa.RecordBatch:
    """A joiner that counts letters."""
    names = pa.record_batch(batch).column("name").to_pylist()
    return pa.record_batch({"letters": [len(name or "") for name in names]})


register_all(
    "plait.ForeignKeyJoin",
    joined,
    {
        "how": "left",
        "columns": ["id", "name"],
        "joiner": total,
        "before": True,
        "batch_rows": 1,
        "memory_limit": "1KB",
    },
)


@case("plait.ForeignKeyJoin.on_null_key")
def _(folder: Path) -> tuple[Any, Any]:
    rows = pa.table({"id": pa.array([None], pa.int64()), "fk": [7], "v": [1]})
    return either(
        lambda **o: pa.table(plait.ForeignKeyJoin(**KEYS, **o).apply(rows, RIGHT)).num_rows,
        on_null_key="drop",
    )


@case("plait.ForeignKeyJoin.left_schema")
def _(folder: Path) -> tuple[Any, Any]:
    return either(
        lambda **o: len(pa.table(plait.ForeignKeyJoin(**KEYS, **o).apply(right=RIGHT))),
        left_schema=LEFT.schema,
    )


@case("plait.ForeignKeyJoin.right_schema")
def _(folder: Path) -> tuple[Any, Any]:
    return either(
        lambda **o: len(pa.table(plait.ForeignKeyJoin(**KEYS, **o).apply(LEFT))),
        right_schema=RIGHT.schema,
    )


@case("plait.ForeignKeyJoin.state")
def _(folder: Path) -> tuple[Any, Any]:
    def call(**options: Any) -> bool:
        with plait.ForeignKeyJoin(**KEYS, **options) as join:
            join.apply(LEFT, RIGHT)
        return any(folder.rglob("*"))

    return call(), call(state=folder / "state")


LARGE_LEFT = pa.table({"id": range(400_000), "fk": [i % 1000 for i in range(400_000)]})
LARGE_RIGHT = pa.table({"key": range(1000), "name": ["x"] * 1000})


def is_joined_by_threads(start: Callable[[], plait.ForeignKeyJoin], tries: int) -> bool:
    """Whether threads are seen; the watch may miss those that are there for short."""

    def call() -> effects.Made:
        with start() as join:
            pa.table(join.apply(LARGE_LEFT, LARGE_RIGHT))
        return effects.Made()

    return any(effects.threads(effects.called(call)) for _ in range(tries))


@case("plait.ForeignKeyJoin.threads")
def _(folder: Path) -> tuple[Any, Any]:
    def seen(count: int, tries: int) -> bool:
        return is_joined_by_threads(lambda: plait.ForeignKeyJoin(**KEYS, threads=count), tries)

    return seen(1, 2), seen(12, 9)


@case("plait.ForeignKeyJoin.restore.threads")
def _(folder: Path) -> tuple[Any, Any]:
    state = folder / "state"
    with plait.ForeignKeyJoin(**KEYS, state=state) as join:
        join.apply(LARGE_LEFT, LARGE_RIGHT)

    def seen(count: int, tries: int) -> bool:
        return is_joined_by_threads(
            lambda: plait.ForeignKeyJoin.restore(state, threads=count), tries
        )

    return seen(1, 2), seen(12, 9)


@case("plait.ForeignKeyJoin.apply.left", "plait.ForeignKeyJoin.apply.right")
def _(folder: Path) -> tuple[Any, Any]:
    def rows(*sides: Any) -> int:
        return pa.table(plait.ForeignKeyJoin(**KEYS, **SCHEMAS).apply(*sides)).num_rows

    assert rows(LEFT, None) == rows(None, RIGHT) == 0
    return rows(LEFT, None), rows(LEFT, RIGHT)


@case("plait.ForeignKeyJoin.apply.step")
def _(folder: Path) -> tuple[Any, Any]:
    def last(**options: Any) -> int | None:
        join = plait.ForeignKeyJoin(**KEYS)
        join.apply(LEFT, RIGHT, **options)
        return join.step

    return last(), last(step=9)


def restored(folder: Path) -> Callable:
    with plait.ForeignKeyJoin(**KEYS, state=folder / "state") as join:
        join.apply(LEFT, RIGHT)

    def call(**options: Any) -> Any:
        with plait.ForeignKeyJoin.restore(folder / "state", **options) as join:
            changes = join.apply(pa.table({"id": [4, 5], "fk": [7, 7], "v": [4, 5]}), step=7)
            return [pa.record_batch(b).to_pylist() for b in changes]

    return call


register_all(
    "plait.ForeignKeyJoin.restore",
    restored,
    {"joiner": total, "batch_rows": 1, "memory_limit": "1KB"},
)


@case("plait.ForeignKeyJoin.restore.foreign_key")
def _(folder: Path) -> tuple[Any, Any]:
    def key(batch: Any) -> pa.Array:
        return pa.record_batch(batch).column("fk")

    with plait.ForeignKeyJoin(
        left_key="id", foreign_key=key, right_key="key", state=folder / "state"
    ) as join:
        join.apply(LEFT, RIGHT)

    def call(**options: Any) -> int:
        with plait.ForeignKeyJoin.restore(folder / "state", **options) as join:
            return pa.table(join.apply(LEFT.slice(0, 0))).num_rows

    return either(call, foreign_key=key)


@case("plait.StagedLeft.how", "plait.StagedRight.how")
def _(folder: Path) -> tuple[Any, Any]:
    def rows(how: str) -> int:
        left = plait.StagedLeft(**KEYS, **SCHEMAS, how=how)
        right = plait.StagedRight(**KEYS, **SCHEMAS, how=how)
        right.apply(RIGHT)
        return len(left.resolve(right.receive(left.send(LEFT))))

    return rows("inner"), rows("left")


@case("plait.StagedLeft.state", "plait.StagedRight.state")
def _(folder: Path) -> tuple[Any, Any]:
    def kept(**options: Any) -> bool:
        plait.StagedLeft(**KEYS, **SCHEMAS, **{name: path / "l" for name, path in options.items()})
        plait.StagedRight(**KEYS, **SCHEMAS, **{name: path / "r" for name, path in options.items()})
        return all(any((folder / side).glob("manifest-*")) for side in "lr")

    return either(kept, state=folder)


def staged(_: Path) -> Callable:
    """A staged join of changes, one of them without a key, the left row changed once more."""

    def call(**options: Any) -> Any:
        shared = {
            name: options[name] for name in ("on_null_key", "memory_limit") if name in options
        }
        left = plait.StagedLeft(**KEYS, **SCHEMAS, **options)
        right = plait.StagedRight(**KEYS, **SCHEMAS, **shared)
        right.apply(
            pa.concat_tables([RIGHT, pa.table({"key": [None], "name": ["x"]}, RIGHT.schema)])
        )
        without = pa.table({"id": [None], "fk": [7], "v": [0]}, LEFT.schema)
        changes = [left.resolve(right.receive(left.send(pa.concat_tables([LEFT, without]))))]
        left.send(pa.table({"id": [1], "fk": [7], "v": [5]}))
        return [pa.record_batch(batch).to_pylist() for batch in [*changes, left.resolve()]]

    return call


register_all(
    "plait.StagedLeft",
    lambda folder: lambda **o: staged(folder)(**{"on_null_key": "drop", **o}),
    {
        "columns": {"id": "id", "who": "name"},
        "joiner": total,
        "before": True,
        "memory_limit": "100B",
    },
)


@case("plait.StagedLeft.on_null_key", "plait.StagedRight.on_null_key")
def _(folder: Path) -> tuple[Any, Any]:
    return either(staged(folder), on_null_key="drop")


@case("plait.StagedRight.memory_limit")
def _(folder: Path) -> tuple[Any, Any]:
    def call(**options: Any) -> int:
        return len(plait.StagedRight(**KEYS, **SCHEMAS, **options).apply(RIGHT))

    return either(call, memory_limit="1B")


@case("plait.StagedLeft.resolve.responses")
def _(folder: Path) -> tuple[Any, Any]:
    left, right = plait.StagedLeft(**KEYS, **SCHEMAS), plait.StagedRight(**KEYS, **SCHEMAS)
    right.apply(RIGHT)
    responses = pa.record_batch(right.receive(left.send(LEFT)))
    return len(left.resolve()), len(left.resolve(responses))


@case("plait.StagedLeft.restore.joiner", "plait.StagedLeft.restore.memory_limit")
def _(folder: Path) -> tuple[Any, Any]:
    plait.StagedLeft(**KEYS, **SCHEMAS, state=folder / "left").close()

    def call(**options: Any) -> Any:
        with plait.StagedLeft.restore(folder / "left", **options) as left:
            return pa.table(left.table()).schema.names

    assert len({str(made) for made in either(call, memory_limit="1KB")}) == 2
    return either(call, joiner=total)


@case("plait.StagedRight.restore.memory_limit")
def _(folder: Path) -> tuple[Any, Any]:
    plait.StagedRight(**KEYS, **SCHEMAS, state=folder / "right").close()

    def call(**options: Any) -> Any:
        with plait.StagedRight.restore(folder / "right", **options) as right:
            return right.pending

    return either(call, memory_limit="1KB")


@case("plait.side_numbers.key")
def _(folder: Path) -> tuple[Any, Any]:
    rows = pa.record_batch({"a": [1, 2, 3, 4], "b": [5, 6, 7, 8]})
    numbers = [pa.array(plait.side_numbers(rows, 1000, key=key)).to_pylist() for key in "ab"]
    return numbers[0], numbers[1]


@case("plait.StagedLeft.send.changes", "plait.StagedRight.apply.changes")
def _(folder: Path) -> tuple[Any, Any]:
    def messages(left: Any, right: Any) -> tuple[int, int]:
        sent = plait.StagedLeft(**KEYS, **SCHEMAS).send(left)
        return len(sent), len(plait.StagedRight(**KEYS, **SCHEMAS).apply(right))

    side = plait.StagedRight(**KEYS, **SCHEMAS)
    side.receive(plait.StagedLeft(**KEYS, **SCHEMAS).send(LEFT))
    assert len(side.apply()) == 0 < len(side.apply(RIGHT))
    return messages(None, None), messages(LEFT, RIGHT)


# ---- keys


@case("plait.prefix_range.columns", "plait.prefix_range.sort_by", "plait.prefix_range.schema")
def _(folder: Path) -> tuple[Any, Any]:
    batch = pa.record_batch({"a": [1], "b": [2]})
    key = pa.array(plait.encode_keys(batch, "a, b"))[0].as_py()
    return plait.prefix_range(key), plait.prefix_range(key, 1, sort_by="a, b", schema=batch)


# ---- plans, verify, inspect, prune


@case("plait.Plan.execute.tasks")
def _(folder: Path) -> tuple[Any, Any]:
    files = effects.written(effects.mixed(), folder / "in")
    planned = plait.plan(files, sort_by="k", outputs=3)
    return (
        planned.execute(folder / "all").rows_out,
        planned.execute(folder / "one", tasks=[1]).rows_out,
    )


@case("plait.Plan.execute.out", "plait.plan.out")
def _(folder: Path) -> tuple[Any, Any]:
    files = effects.written(effects.mixed(), folder / "in")
    given = plait.plan(files, folder / "planned", sort_by="k")
    given.execute()
    assert any((folder / "planned").iterdir())
    given.execute(folder / "other")
    return either(lambda **o: plait.plan(files, sort_by="k", **o).execute(), out=folder / "third")


@case("plait.merge.if_exists", "plait.plan.if_exists", "plait.Plan.execute.if_exists")
def _(folder: Path) -> tuple[Any, Any]:
    files = effects.written(effects.mixed(), folder / "in")
    plait.merge(files[0], folder / "out", sort_by="k")
    planned = either(
        lambda **o: plait.plan(files[1], folder / "out", sort_by="k", **o).execute().rows_out,
        if_exists="add",
    )
    executed = either(
        lambda **o: plait.plan(files[1], sort_by="k").execute(folder / "out", **o).rows_out,
        if_exists="add",
    )
    merged = either(
        lambda **o: plait.merge(files[2], folder / "out", sort_by="k", **o).rows_out,
        if_exists="add",
    )
    assert planned[0] != planned[1]
    assert executed[0] != executed[1]
    return merged


@case("plait.RunWriter.if_exists")
def _(folder: Path) -> tuple[Any, Any]:
    plait.merge(effects.written(effects.mixed(), folder / "in"), folder / "out", sort_by="k")
    return either(
        lambda **o: plait.RunWriter(folder / "out", sort_by="k", **o).rows, if_exists="add"
    )


@case("plait.RunWriter.flush.progress")
def _(folder: Path) -> tuple[Any, Any]:
    def heard(*, listens: bool) -> bool:
        told: list[object] = []
        writer = plait.RunWriter(folder / str(listens), sort_by="k")
        writer.write(pa.table({"k": range(100_000, 0, -1)}))
        writer.flush(**({"progress": told.append} if listens else {}))
        return bool(told)

    return heard(listens=False), heard(listens=True)


@case("plait.merge.trust_footers", "plait.plan.trust_footers")
def _(folder: Path) -> tuple[Any, Any]:
    files = [folder / "0.parquet", folder / "1.parquet"]
    for i, file in enumerate(files):
        keys = np.sort(np.random.default_rng(i).integers(0, 10**9, 1_200_000))
        pq.write_table(pa.table({"k": keys}), folder / "in.parquet")
        plait.merge(folder / "in.parquet", file, sort_by="k", row_group_rows=200_000)

    def exact(**options: Any) -> Any:
        planned = plait.plan(files, sort_by="k", outputs=2, **options)
        report = plait.merge(
            files, folder / f"out{len(options)}", sort_by="k", outputs=2, **options
        )
        return [task.rows_exact for task in planned.tasks], [o.rows for o in report.outputs]

    return either(exact, trust_footers=False)


def verified(folder: Path) -> Callable:
    tables = [pa.table({"k": [3, 1, 2]}), pa.table({"k": [4]})]
    files = effects.written(tables, folder / "in")

    def call(**options: Any) -> Any:
        given = {"sort_by": [], "check": False, **options}
        return plait.verify(files[0], **given).ok

    return call


register_all(
    "plait.verify",
    verified,
    {"sort_by": "k", "memory_limit": "1KB", "storage_options": effects.MISSPELLED},
)


@case("plait.verify.against")
def _(folder: Path) -> tuple[Any, Any]:
    files = effects.written([pa.table({"k": [1]}), pa.table({"k": [2]})], folder / "in")
    return either(
        lambda **o: plait.verify(files[0], sort_by="k", check=False, **o).ok, against=files[1]
    )


@case("plait.verify.check")
def _(folder: Path) -> tuple[Any, Any]:
    files = effects.written([pa.table({"k": [2, 1]})], folder / "in")
    return either(lambda **o: plait.verify(files, sort_by="k", **o).ok, check=False)


@case("plait.verify.progress")
def _(folder: Path) -> tuple[Any, Any]:
    files = effects.written(effects.mixed(), folder / "in")
    calls: list = []
    plait.verify(files[0], sort_by="k")
    without = len(calls)
    plait.verify(files[0], sort_by="k", progress=calls.append)
    return without, len(calls)


@case("plait.inspect.storage_options", "plait.prune.storage_options")
def _(folder: Path) -> tuple[Any, Any]:
    (file,) = effects.written([pa.table({"k": [1]})], folder / "in")
    pruned = either(
        lambda **o: plait.prune(file, {"k": 1}, **o), storage_options=effects.MISSPELLED
    )
    assert pruned[0] != pruned[1]
    return either(lambda **o: plait.inspect(file, **o).rows, storage_options=effects.MISSPELLED)


def inspected(folder: Path) -> Callable:
    (file,) = effects.written([pa.table({"k": [2, 1]})], folder / "in")
    return lambda **options: plait.inspect(file, **options).to_dict()


register_all("plait.inspect", inspected, {"pages": True, "sort_by": "k"})


@case("plait.inspect.check_order")
def _(folder: Path) -> tuple[Any, Any]:
    (file,) = effects.written([pa.table({"k": [2, 1]})], folder / "in")
    return either(lambda **o: plait.inspect(file, sort_by="k", **o).to_dict(), check_order=True)


def uint(values: list[int]) -> pa.Array:
    return pa.array(values, pa.uint32())


@case("plait.Interleave.slice.length")
def _(folder: Path) -> tuple[Any, Any]:
    woven = plait.interleave([pa.array([1, 2])], uint([0, 0, 0]), uint([0, 1, 0]))
    return len(woven.slice(0)), len(woven.slice(0, length=1))


@case("plait.Interleave.to_arrow.large")
def _(folder: Path) -> tuple[Any, Any]:
    woven = plait.interleave([pa.array(["a"])], uint([0]), uint([0]))
    return either(lambda **o: str(pa.array(woven.to_arrow(**o)).type), large=True)


@case("plait.Task.execute.out")
def _(folder: Path) -> tuple[Any, Any]:
    (file,) = effects.written([pa.table({"k": [1]})], folder / "in")
    (task,) = plait.plan(file, folder / "planned", sort_by="k").tasks
    task.execute()
    planned = (folder / "planned").exists(), (folder / "given").exists()
    task.execute(folder / "given")
    return planned[1], (folder / "given").exists()


@case("plait.Plan.out", "plait.Plan.storage_options")
def _(folder: Path) -> tuple[Any, Any]:
    (file,) = effects.written([pa.table({"k": [1]})], folder / "in")
    data = plait.plan(file, sort_by="k").to_dict()
    plait.Plan(data, out=str(folder / "out")).execute()
    assert (folder / "out").exists()
    return either(
        lambda **o: plait.Plan(data, out=str(folder / "again"), **o).execute().rows_out,
        storage_options=effects.MISSPELLED,
    )


@case("plait.Plan.plot.path")
def _(folder: Path) -> tuple[Any, Any]:
    (file,) = effects.written([pa.table({"k": [1]})], folder / "in")
    planned = plait.plan(file, sort_by="k")
    planned.plot()
    without = (folder / "plan.png").exists()
    planned.plot(folder / "plan.png")
    return without, (folder / "plan.png").exists()


# ---- what is checked of Arrow data


def not_utf8() -> pa.RecordBatch:
    """Text that is not UTF-8: harmless to copy, and refused by `validate="full"`."""
    buffers = [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    text = pa.Array.from_buffers(pa.string(), 2, buffers)
    return pa.record_batch({"_index": [1, 2], "k": [1, 2], "v": text})


SIDES = {"left_key": "k", "foreign_key": "_index", "right_key": "k"}
NAMES = pa.record_batch({"k": [1], "name": ["a"]})


def restored(folder: Path, **options: Any) -> Any:
    if not (folder / "state").exists():
        with plait.ForeignKeyJoin(**SIDES, state=folder / "state") as join:
            join.apply(not_utf8(), NAMES)
    with plait.ForeignKeyJoin.restore(folder / "state", **options) as join:
        return join.apply(not_utf8()).schema.names


def restored_left(folder: Path, **options: Any) -> int:
    schemas = {"left_schema": not_utf8().schema, "right_schema": NAMES.schema}
    plait.StagedLeft(**SIDES, **schemas, state=folder / "left").close()
    with plait.StagedLeft.restore(folder / "left", **options) as side:
        return len(side.send(not_utf8()))


def restored_right(folder: Path, **options: Any) -> int:
    keys = {"left_key": "k", "foreign_key": "k", "right_key": "k"}
    schemas = {"left_schema": NAMES.schema, "right_schema": not_utf8().schema}
    plait.StagedRight(**keys, **schemas, state=folder / "right").close()
    with plait.StagedRight.restore(folder / "right", **options) as side:
        return len(side.apply(not_utf8()))


VALIDATED: dict[str, Callable] = {
    "plait.StagedLeft.restore": restored_left,
    "plait.StagedRight.restore": restored_right,
    "plait.RunWriter": lambda folder, **o: plait.RunWriter(
        folder / "runs", sort_by="k", if_exists="add", **o
    ).write(not_utf8()),
    "plait.side_numbers": lambda _, **o: len(plait.side_numbers(not_utf8(), 2, key="v", **o)),
    "plait.encode_keys": lambda _, **o: len(plait.encode_keys(not_utf8(), "v", **o)),
    "plait.Interleave.from_runs": lambda _, **o: len(
        plait.Interleave.from_runs([not_utf8()["v"]], [(0, 0, 1)], **o)
    ),
    "plait.interleave": lambda _, **o: len(
        plait.interleave([not_utf8()["v"]], uint([0]), uint([0]), **o)
    ),
    "plait.merge_streams": lambda _, **o: len(
        list(plait.merge_streams([not_utf8()], sort_by="k", **o))
    ),
    "plait.overlay": lambda _, **o: len(list(plait.overlay([plait.Layer(not_utf8())], **o))),
    "plait.scan": lambda _, **o: len(list(plait.scan(not_utf8(), **o))),
    "plait.ForeignKeyJoin": lambda _, **o: (
        plait.ForeignKeyJoin(**SIDES, **o).apply(not_utf8(), NAMES).schema.names
    ),
    "plait.ForeignKeyJoin.restore": restored,
    "plait.StagedLeft": lambda _, **o: len(
        plait.StagedLeft(
            **SIDES, left_schema=not_utf8().schema, right_schema=NAMES.schema, **o
        ).send(not_utf8())
    ),
    "plait.StagedRight": lambda _, **o: len(
        plait.StagedRight(
            left_key="k",
            foreign_key="k",
            right_key="k",
            left_schema=NAMES.schema,
            right_schema=not_utf8().schema,
            **o,
        ).apply(not_utf8())
    ),
}
for function, validated in VALIDATED.items():

    def checked(folder: Path, call: Callable = validated) -> tuple[Any, Any]:
        return either(lambda **options: call(folder, **options), validate="full")

    CASES[f"{function}.validate"] = checked
