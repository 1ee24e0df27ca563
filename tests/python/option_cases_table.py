"""Options of `plait.Table` and `plait.adopt`: what each must change."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait

from . import option_effects as effects
from .option_cases import case, either, register_all

NUMBERS = count()


def made(folder: Path, keys: Any = (3, 1, 2), **options: Any) -> plait.Table:
    table = plait.Table(folder / f"t{next(NUMBERS)}", **{"sort_by": "k", **options})
    table.append(pa.table({"k": list(keys), "v": list(range(len(keys)))}))
    return table


def opened(folder: Path) -> Callable[..., Any]:
    """A table that another call made; its properties do not differ."""

    def call(**options: Any) -> Any:
        table = plait.Table(folder / f"t{next(NUMBERS)}", **{"sort_by": "k", **options})
        table.append(pa.table({"k": [1, 1], "v": [1, 2]}))
        said = table._properties(), table.partition_by
        return pa.table(table.read()).to_pylist(), said

    return call


register_all(
    "plait.Table",
    opened,
    {
        "sort_by": "-v",
        "partition_by": ["v"],
        "on_duplicate": "keep_last",
        "retention": "1d",
        "storage_options": effects.MISSPELLED,
    },
)


RULES = {
    "version_by": ("v", {"on_duplicate": "keep_last"}),
    "replace_columns": (["v"], {"on_duplicate": "update"}),
    # Without functions there is no such rule.
    "aggregate": ({"v": "sum"}, {"on_duplicate": "aggregate"}),
}
for option, (value, given) in RULES.items():

    @case(f"plait.Table.{option}")
    def _(folder: Path, option: str = option, value: Any = value, given: Any = given) -> Any:
        call = opened(folder)
        return either(lambda **o: call(**given, **o), **{option: value})

    @case(f"plait.adopt.{option}")
    def _(folder: Path, option: str = option, value: Any = value, given: Any = given) -> Any:
        call = adopted(folder)
        return either(lambda **o: call(**given, **o), **{option: value})


@case("plait.Table.maintain")
def _(folder: Path) -> tuple[Any, Any]:
    def files(**options: Any) -> int:
        table = made(folder, **options)
        for _ in range(20):
            table.append(pa.table({"k": [1, 2], "v": [1, 2]}))
        return len(table.files())

    return either(files, maintain="auto")


@case("plait.Table.append.batch_id")
def _(folder: Path) -> tuple[Any, Any]:
    def twice(**options: Any) -> int:
        table = made(folder)
        for _ in range(2):
            table.append(pa.table({"k": [7], "v": [7]}), **options)
        return len(table.files())

    return either(twice, batch_id="one")


@case("plait.Table.append.memory_limit")
def _(folder: Path) -> tuple[Any, Any]:
    rows = pa.table({"k": [1], "v": [1]})
    return either(lambda **o: made(folder).append(rows, **o).rows, memory_limit="1KB")


@case("plait.Table.append.progress")
def _(folder: Path) -> tuple[Any, Any]:
    def heard(*, listens: bool) -> bool:
        told: list[object] = []
        rows = pa.table({"k": range(100_000, 0, -1), "v": range(100_000)})
        made(folder).append(rows, **({"progress": told.append} if listens else {}))
        return bool(told)

    return heard(listens=False), heard(listens=True)


def many(folder: Path) -> plait.Table:
    table = plait.Table(folder / f"t{next(NUMBERS)}", sort_by="k")
    for seed in range(3):
        keys = np.random.default_rng(seed).integers(0, 10**9, 600_000)
        table.append(pa.table({"k": keys}))
    return table


def threads(call: Callable[[int], Any]) -> tuple[bool, bool]:
    # The watch may miss threads that are there for short.
    def seen(number: int, tries: int) -> bool:
        for _ in range(tries):
            if effects.threads(effects.called(lambda: effects.Made(report=call(number)))):
                return True
        return False

    return seen(1, 2), seen(12, 9)


@case("plait.Table.append.threads")
def _(folder: Path) -> tuple[Any, Any]:
    rows = pa.table({"k": np.random.default_rng(1).integers(0, 10**9, 600_000)})
    table = many(folder)
    return threads(lambda number: table.append(rows, threads=number).rows)


@case("plait.Table.compact.threads")
def _(folder: Path) -> tuple[Any, Any]:
    return threads(lambda number: len(many(folder).compact(threads=number).groups))


@case("plait.Table.read.threads")
def _(folder: Path) -> tuple[Any, Any]:
    rows = pa.table({"k": range(300_000), "v": [f"{i:x}" for i in range(300_000)]})
    effects.written([rows] * 12, folder / "in", row_group_size=20_000)
    plait.adopt(folder / "in", sort_by="k")
    table = plait.Table(folder / "in")
    return threads(lambda number: sum(len(b) for b in table.read(threads=number)))


@case("plait.Table.compact.progress")
def _(folder: Path) -> tuple[Any, Any]:
    def heard(*, listens: bool) -> bool:
        told: list[object] = []
        table = made(folder)
        table.append(pa.table({"k": [1], "v": [1]}))
        table.compact(**({"progress": told.append} if listens else {}))
        return bool(told)

    return heard(listens=False), heard(listens=True)


def replaced(folder: Path) -> Callable[..., Any]:
    def call(**options: Any) -> Any:
        table = made(folder)
        table.append(pa.table({"k": [1], "v": [1]}))
        table.compact()
        report = table.expire(**options)
        return len(report.removed), report.dry_run

    return call


register_all("plait.Table.expire", replaced, {"retention": 0, "yes": False})


def two_versions(folder: Path) -> plait.Table:
    table = made(folder)
    table.append(pa.table({"k": [5], "v": [50]}))
    return table


register_all(
    "plait.Table.read",
    lambda folder: lambda **o: pa.table(two_versions(folder).read(**o)).to_pylist(),
    {
        "version": 0,
        "where": "k > 1",
        "columns": ["v"],
        "limit": 2,
        "reverse": True,
        "memory_limit": "1KB",
    },
)
register_all(
    "plait.Table.files",
    lambda folder: lambda **o: len(two_versions(folder).files(**o)),
    {"version": 0},
)
register_all(
    "plait.Table.history",
    lambda folder: lambda **o: len(two_versions(folder).history(**o)),
    {"limit": 1},
)


def adopted(folder: Path) -> Callable[..., Any]:
    def call(**options: Any) -> Any:
        home = folder / f"f{next(NUMBERS)}"
        home.mkdir()
        pq.write_table(pa.table({"k": [1, 2], "v": [1, 2]}), home / "a.parquet")
        plait.adopt(home, **{"sort_by": "k", **options})
        return plait.Table(home)._properties()

    return call


@case("plait.adopt.cast")
def _(folder: Path) -> tuple[Any, Any]:
    def outcome(**options: Any) -> str:
        home = folder / f"f{next(NUMBERS)}"
        home.mkdir()
        pq.write_table(pa.table({"k": pa.array([1], pa.uint8())}), home / "a.parquet")
        try:
            return str(plait.adopt(home, sort_by="k", **options).casts)
        except plait.Unsupported:
            return "refused"

    return either(outcome, cast=True)


register_all(
    "plait.adopt",
    adopted,
    {
        "sort_by": "v",
        "on_duplicate": "keep_last",
        "retention": "1d",
        "storage_options": effects.MISSPELLED,
    },
)
