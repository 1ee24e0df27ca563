"""Options of `plait.read`: what each must change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import plait

from . import option_effects as effects
from .option_cases import case, either, register_all

OLD = pa.table({"k": [1, 2, 3], "v": [9, 20, 30], "dead": [False, False, True]})
NEW = pa.table({"k": [1, 2, 4], "v": [11, 2, 40], "dead": [False, False, False]})


def stored(folder: Path) -> list[str]:
    paths = [str(folder / name) for name in ("old.parquet", "new.parquet")]
    for path, table in zip(paths, (OLD, NEW), strict=True):
        pq.write_table(table, path)
    return paths


def rows(folder: Path, **common: Any) -> Callable[..., Any]:
    files = stored(folder)

    def call(**options: Any) -> Any:
        return pa.table(plait.read(files, **{"sort_by": "k", **common, **options})).to_pylist()

    return call


register_all(
    "plait.read",
    rows,
    {
        "columns": ["v"],
        "where": "v > 10",
        "limit": 2,
        "reverse": True,
        "on_duplicate": "keep_last",
        "storage_options": effects.MISSPELLED,
    },
)
register_all(
    "plait.read",
    lambda folder: rows(folder, on_duplicate="keep_last"),
    {"version_by": "v", "delete_where": "dead", "drop_where": "k < 2"},
)


def patched(folder: Path, rule: str) -> Callable[..., Any]:
    files = effects.written(effects.patches(), folder / "patches")

    def call(**options: Any) -> Any:
        read = plait.read(files, sort_by="k", on_duplicate=rule, **options)
        return pa.table(read).to_pylist()

    return call


@case("plait.read.replace_columns")
def _(folder: Path) -> tuple[Any, Any]:
    return either(patched(folder, "update"), replace_columns=["v"])


@case("plait.read.aggregate")
def _(folder: Path) -> tuple[Any, Any]:
    call = patched(folder, "aggregate")
    return call(aggregate={"v": "max"}), call(aggregate={"v": "sum"})


def traced(folder: Path) -> Callable[..., Any]:
    files = stored(folder)
    plait.merge(files, folder / "merged.parquet", sort_by="k", row_map=True)
    return lambda **options: plait.trace(files[0], 1, **options).to_dict()


@case("plait.trace.to")
def _(folder: Path) -> tuple[Any, Any]:
    return either(traced(folder), to=str(folder))


@case("plait.trace.storage_options")
def _(folder: Path) -> tuple[Any, Any]:
    call = traced(folder)
    return either(lambda **o: call(to=str(folder), **o), storage_options=effects.MISSPELLED)


@case("plait.read.sort_by")
def _(folder: Path) -> tuple[Any, Any]:
    files = stored(folder)
    return either(lambda **o: pa.table(plait.read(files, **o)).to_pylist(), sort_by="k")


@case("plait.read.missing_keys")
def _(folder: Path) -> tuple[Any, Any]:
    files = [*stored(folder), str(folder / "none.parquet")]
    pq.write_table(pa.table({"v": [1]}), files[-1])
    return either(lambda **o: plait.read(files, sort_by="k", **o).count(), missing_keys="null")


@case("plait.read.batch_rows")
def _(folder: Path) -> tuple[Any, Any]:
    files = stored(folder)
    return either(lambda **o: [len(b) for b in plait.read(files, sort_by="k", **o)], batch_rows=2)


@case("plait.read.memory_limit")
def _(folder: Path) -> tuple[Any, Any]:
    files = stored(folder)
    read = plait.read(files, sort_by="k")
    less = plait.read(files, sort_by="k", memory_limit="16MB")
    return read.explain().window_bytes, less.explain().window_bytes


@case("plait.read.temp_dir")
def _(folder: Path) -> tuple[Any, Any]:
    files = []
    for number in range(30):
        table = pa.table({"k": range(number, 90_000, 30), "v": ["x" * 400] * 3000})
        files.append(str(folder / f"{number}.parquet"))
        pq.write_table(table, files[-1], use_dictionary=False)
    temp = folder / "temp"
    read = plait.read(files, sort_by="k", memory_limit="16MB", temp_dir=temp)
    before = temp.is_dir()
    return before, len(pa.table(read)) == 90_000 and temp.is_dir()


@case("plait.read.threads")
def _(folder: Path) -> tuple[Any, Any]:
    table = effects.large()[0]
    table = table.append_column("at", pa.array(range(table.num_rows)))
    files = effects.written([table] * 12, folder / "in", row_group_size=20_000)

    def threads(count: int) -> bool:
        made = effects.called(
            lambda: effects.Made(
                report=sum(len(b) for b in plait.read(files, sort_by="at", threads=count))
            )
        )
        return effects.threads(made)

    return threads(1), threads(12)
