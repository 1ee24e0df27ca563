"""Every option of every public function has an effect: a test for each, found by reflection.

An option is a parameter with a default. `EFFECTS` says for each what must
differ; an option that is not in it, here or in `test_options_spark.py`, fails the suite.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
import plait.table

from . import (
    option_cases_read,  # noqa: F401 - registers its cases
    option_cases_table,  # noqa: F401 - registers its cases
)
from . import option_effects as effects
from .option_cases import CASES
from .option_effects import KEYED, SCENARIOS, Effect, Made

deltalake = pytest.importorskip("deltalake")
pytestmark = [
    pytest.mark.local,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match any records"),
]

Door = Callable[[list[Path], Path, dict[str, Any]], Any]


# ---- doors that merge files


def merge(files, out, options):
    report = plait.merge(files, out, **options)
    return Made([output.path for output in report.outputs], report)


def sort(files, out, options):
    report = plait.sort(files, out, **options)
    return Made([output.path for output in report.outputs], report)


def run_writer(files, out, options):
    with plait.RunWriter(out, **options) as writer:
        for file in files:
            writer.write(pq.read_table(file))
    return Made([output.path for output in writer.reports[0].outputs], writer.reports[0])


def plan(files, out, options):
    planned = plait.plan(files, out, **options)
    report = planned.execute()
    return Made([output.path for output in report.outputs], report)


def execute(files, out, options):
    report = plait.plan(files, sort_by="k").execute(out, **options)
    return Made([output.path for output in report.outputs], report)


def compact(files, out, options):
    folder = files[0].parent
    report = plait.compact(folder, **{"yes": True, "policy": "full", **options})
    live = [source.path for source in plait.plan(folder, sort_by=[]).sources]
    return Made(live, report)


def delta(files, out, options):
    uri = str(out)
    for file in files:
        rows = pq.ParquetFile(file).read()
        by = ["day"] if "day" in rows.column_names else None
        deltalake.write_deltalake(uri, rows, mode="append", partition_by=by)
    settings = {"yes": True, "policy": "full", **options}
    report = plait.table.compact_delta(uri, **settings)
    table = deltalake.DeltaTable(uri)
    return Made(sorted(table.file_uris()), report)


def iceberg(files, out, options):
    from pyiceberg.catalog.sql import SqlCatalog

    out.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{out}/lake.db", warehouse=f"file://{out}")
    catalog.create_namespace("db")
    tables = [pq.ParquetFile(file).read() for file in files]
    table = catalog.create_table("db.t", tables[0].schema)
    if "day" in tables[0].column_names:
        with table.update_spec() as spec:
            spec.add_identity("day")
    for rows in tables:
        table.append(rows)
    settings = {"yes": True, "policy": "full", **options}
    report = plait.table.compact_iceberg(catalog, "db.t", **settings)
    live = catalog.load_table("db.t").inspect.files().column("file_path").to_pylist()
    catalog.close()
    return Made(sorted(path.removeprefix("file://") for path in live), report)


def merge_streams(files, out, options):
    readers = [pq.ParquetFile(file).read().to_reader() for file in files]
    stream = plait.merge_streams(readers, **options)
    batches = [pa.record_batch(batch) for batch in stream]
    out.mkdir()
    schema = batches[0].schema if batches else pa.schema([])
    pq.write_table(pa.Table.from_batches(batches, schema), out / "all.parquet")
    return Made([str(out / "all.parquet")], [len(batch) for batch in batches])


def verify(files, out, options):
    return Made([], plait.verify(files, **options))


def expire(files, out, options):
    plait.compact(files[0].parent, sort_by="k", policy="full", yes=True)
    settings = {"retention": 0, "yes": True, **options}
    report = plait.expire(files[0].parent, **settings)
    return Made(sorted(map(str, files[0].parent.glob("*.parquet"))), report)


def heard(door: Door) -> Door:
    """The door with a list of what `progress` was called with in place of its report."""

    def called(files, out, options):
        calls: list = []
        if options.pop("progress", None):
            options["progress"] = calls.append
        made = door(files, out, options)
        return Made(made.files, calls)

    return called


PROGRESS = Effect(True, lambda made: len(made.report) > 0, given=KEYED)


# ---- what must differ, by function and option


def maps(made: Made) -> int:
    """How many row maps there are."""
    return sum(1 for file in made.files for _ in Path(file).parent.glob(".*.rowmap"))


def groups(made: Made) -> list[int]:
    """Sources of each group that was merged."""
    return [len(group.sources) for group in made.report.groups]


def commits(made: Made) -> int:
    """How many commits the folder or table has."""
    logs = ("_delta_log/*.json", "metadata/*.metadata.json", "_plait/manifest-*.json")
    return sum(
        1 for root in Path(made.files[0]).parents[:4] for log in logs for _ in root.glob(log)
    )


def logged(made: Made) -> list[bool]:
    """Whether the last commit of a Delta table says that removed files changed data."""
    import json

    log = max((Path(made.files[0]).parent / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    return [action["remove"]["dataChange"] for action in actions if "remove" in action]


def days() -> list[pa.Table]:
    return [
        pa.table({"k": [i, i + 5], "day": [day] * 2}) for day in ("mon", "tue") for i in range(2)
    ]


OVERLAPPING = {**KEYED, "policy": "overlap"}
POLICY: dict[str, Effect] = {
    "policy": Effect("overlap", groups, tables=effects.disjoint, given=KEYED),
    **{
        name: Effect(limit, groups, tables=effects.two_regions, given=OVERLAPPING)
        for name, limit in (("max_bytes", 1), ("max_groups", 1), ("max_seconds", 0))
    },
    "min_commit_interval": Effect(0, commits, tables=effects.two_regions, given=OVERLAPPING),
    "max_depth": Effect(3, groups, given={**KEYED, "policy": "overlap"}),
    "merge_factor": Effect(3, groups, given={**KEYED, "policy": "size_tiered"}),
    "merge_factor_max": Effect(
        2, groups, given={**KEYED, "policy": "size_tiered", "merge_factor": 2}
    ),
    "mature_size": Effect(
        "1B", groups, given={**KEYED, "policy": "size_tiered", "merge_factor": 2}
    ),
    "mature_level": Effect(0, groups, given={**KEYED, "policy": "size_tiered", "merge_factor": 2}),
    "finalize": Effect(True, groups, given={**KEYED, "policy": "size_tiered"}),
    "yes": Effect(False, lambda made: made.report.dry_run, given=KEYED),
    "verify": Effect("content", effects.times_read, tables=effects.disjoint, given=KEYED),
    "storage_options": Effect(effects.MISSPELLED, effects.error_of, given=KEYED),
    "sort_by": Effect("k", effects.outcome),
    "target_file_size": Effect("2KB", lambda made: len(made.files), given=KEYED),
    "unsorted": Effect("sort", groups, tables=effects.unsorted, given=KEYED),
}

SHARED = {
    "plait.merge": (merge, {**SCENARIOS}),
    "plait.sort": (sort, {"sort_by": SCENARIOS["sort_by"]}),
    "plait.RunWriter": (
        run_writer,
        {
            **{
                name: SCENARIOS[name]
                for name in (
                    *("outputs", "target_file_size", "target_rows", "cut_on", "row_group_rows"),
                    *("partition_by", "partition_columns"),
                    *("page_rows", "align_row_groups", "compression", "dictionary"),
                    *("data_page_version", "bloom_filters", "value_sets", "statistics"),
                    *("on_duplicate", "version_by", "replace_columns", "aggregate"),
                    *("delete_where", "keep_tombstones"),
                    *("drop_where", "sha256", "threads", "memory_limit", "storage_options"),
                )
            },
            **{
                name: replace(SCENARIOS[name], given={**KEYED, "dictionary": False})
                for name in ("row_group_size", "page_size")
            },
            # The codec that is taken without this option is zstd.
            "compression": Effect("snappy", effects.chunks, given=KEYED),
        },
    ),
    "plait.plan": (
        plan,
        {
            **SCENARIOS,
            "unsorted": Effect(
                "skip", effects.outcome, tables=effects.partly_unsorted, given=KEYED
            ),
        },
    ),
    "plait.Plan.execute": (
        execute,
        {
            name: replace(SCENARIOS[name], given={})
            for name in ("threads", "verify", "sha256", "storage_options")
        },
    ),
    "plait.compact": (
        compact,
        {
            **{
                name: SCENARIOS[name]
                for name in (
                    *("compression", "encoding", "server_side_copy", "on_duplicate", "version_by"),
                    *("replace_columns", "aggregate", "delete_where", "drop_where"),
                    *("threads", "memory_limit"),
                )
            },
            **POLICY,
            # Delta tables have it.
            "row_map": Effect(True, effects.outcome, given=KEYED),
            "mature_age": Effect(
                0, groups, given={**KEYED, "policy": "size_tiered", "merge_factor": 2}
            ),
        },
    ),
    "plait.table.compact_delta": (
        delta,
        {
            **{
                name: SCENARIOS[name]
                for name in (
                    *("compression", "encoding", "server_side_copy"),
                    *("threads", "memory_limit"),
                )
            },
            **POLICY,
            "row_map": Effect(True, maps, given=KEYED),
            "where": Effect({"day": "mon"}, groups, tables=days, given=KEYED),
            "guard": Effect(False, logged, given=KEYED),
        },
    ),
    "plait.table.compact_iceberg": (
        iceberg,
        {
            **{
                name: SCENARIOS[name]
                for name in (
                    *("compression", "encoding", "server_side_copy"),
                    *("threads", "memory_limit"),
                )
            },
            **POLICY,
            "where": Effect({"day": "mon"}, groups, tables=days, given=KEYED),
            "compression": Effect("snappy", effects.chunks, given=KEYED),
            "row_map": Effect(True, maps, given=KEYED),
        },
    ),
    "plait.merge_streams": (
        merge_streams,
        {
            **{
                name: SCENARIOS[name]
                for name in (
                    *(
                        "widen",
                        "missing",
                        "missing_keys",
                        "metadata_conflicts",
                        "on_duplicate",
                        "version_by",
                        "replace_columns",
                        "aggregate",
                    ),
                    *("delete_where", "keep_tombstones", "drop_where", "assume_sorted", "threads"),
                    "storage_options",
                )
            },
            "batch_rows": Effect(10, lambda made: made.report, given=KEYED),
        },
    ),
    "plait.verify": (
        verify,
        {"threads": replace(SCENARIOS["threads"], given={**KEYED, "check": False})},
    ),
    "plait.expire": (
        expire,
        {
            "retention": Effect("7d", lambda made: len(made.files)),
            "yes": Effect(False, lambda made: len(made.files)),
            "storage_options": Effect(effects.MISSPELLED, effects.error_of),
        },
    ),
}

EFFECTS: dict[str, tuple[Door, Any]] = {
    f"{function}.{option}": (door, effect)
    for function, (door, of_options) in SHARED.items()
    for option, effect in of_options.items()
}
for function, door in (("merge", merge), ("plan", plan), ("Plan.execute", execute)):
    given = {} if function == "Plan.execute" else KEYED
    EFFECTS[f"plait.{function}.progress"] = (heard(door), replace(PROGRESS, given=given))
for function, door in (
    ("compact", compact),
    ("table.compact_delta", delta),
    ("table.compact_iceberg", iceberg),
):
    EFFECTS[f"plait.{function}.progress"] = (heard(door), PROGRESS)


def marked(names):
    """Names of options. Threads are seen only where large merges are watched, which takes long."""
    return [
        pytest.param(name, marks=pytest.mark.long) if name.endswith(".threads") else name
        for name in names
    ]


@pytest.mark.few(12)
@pytest.mark.parametrize("name", marked(EFFECTS))
def test_the_option_has_an_effect(name, tmp_path):
    door, effect = EFFECTS[name]
    without, given = effects.compared(effect, name.rpartition(".")[2], tmp_path, door)
    assert without != given


@pytest.mark.parametrize("name", marked(CASES))
def test_the_option_of_one_function_has_an_effect(name, tmp_path):
    without, given = CASES[name](tmp_path)
    assert without != given


# ---- no option is forgotten


def options_of(function: Callable) -> list[str]:
    return [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is not inspect.Parameter.empty
    ]


def is_value(value: type) -> bool:
    """Whether users are handed it and do not make it."""
    return issubclass(value, BaseException) or (
        is_dataclass(value) and value not in (plait.Layer, plait.Task)
    )


def public() -> dict[str, list[str]]:
    """Options of all public functions and methods, by name."""
    found = {}
    for module in (plait, plait.table):
        for name in module.__all__:
            value, path = getattr(module, name), f"{module.__name__}.{name}"
            if inspect.isfunction(value):
                found[path] = options_of(value)
            elif inspect.isclass(value) and not is_value(value):
                for method, of in inspect.getmembers(value, callable):
                    if method == "__init__" or not method.startswith("_"):
                        where = path if method == "__init__" else f"{path}.{method}"
                        try:
                            found[where] = options_of(of)
                        except ValueError:  # of the extension, without a signature
                            continue
    return found


def test_every_option_of_every_public_function_has_a_test_of_its_effect():
    wanted = {f"{function}.{option}" for function, names in public().items() for option in names}
    tested = set(EFFECTS) | set(CASES)
    assert sorted(wanted - tested) == []
    assert sorted(tested - wanted) == []
