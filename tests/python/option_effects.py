"""Two calls that differ in one option, and what must differ in what they did.

    tables ─▶ files ─▶ door(files, option left out) ─▶ Made ─▶ sees ─┐
                   └─▶ door(files, option=value)    ─▶ Made ─▶ sees ─┴─▶ must differ

A door is a function that merges; `SCENARIOS` has a case for each option that several doors share.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import plait

LEFT_OUT = object()


@dataclass(frozen=True)
class Made:
    """What a call made: its files, its report or result, or its error."""

    files: list[str] = field(default_factory=list)
    report: Any = None
    error: Exception | None = None
    threads: int = 0
    read_bytes: int = 0


@dataclass(frozen=True)
class Effect:
    """A case in which an option must have an effect.

    Attributes:
        value: The option in one of the calls.
        sees: What is looked at in what was made; an error is raised unless `sees` is `outcome`.
        instead: The option in the other call; left out by default.
        tables: The sources.
        given: Further options of both calls.
        write: How PyArrow writes the sources.
        spoil: Changes the files before they are merged.
    """

    value: Any
    sees: Callable[[Made], Any]
    instead: Any = LEFT_OUT
    tables: Callable[[], Sequence[pa.Table]] | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    write: Mapping[str, Any] = field(default_factory=dict)
    spoil: Callable[[list[Path]], None] = lambda files: None


def compared(
    effect: Effect, option: str, folder: Path, door: Callable[[list[Path], Path, dict], Made]
) -> tuple[Any, Any]:
    """What is seen without the option, and with it."""
    seen = []
    for name, value in (("without", effect.instead), ("with", effect.value)):
        home = folder / name
        files = written((effect.tables or mixed)(), home / "in", **effect.write)
        effect.spoil(files)
        options = {**effect.given, **({} if value is LEFT_OUT else {option: value})}
        for run in range((3 if value == 1 else 20) if effect.sees is threads else 1):
            made = called(lambda: door(files, home / f"out{run}", options))  # noqa: B023
            if threads(made):
                break  # the watch may miss threads that are there for short
        if made.error is not None and effect.sees not in (outcome, error_of):
            raise made.error
        seen.append(effect.sees(made))
    return seen[0], seen[1]


def called(call: Callable[[], Made]) -> Made:
    """What a call made, its error, and the most threads that it had."""
    # Stores of other tests may have a thread still.
    most, over, before = [0], threading.Event(), engine_threads()

    def count() -> None:
        while not over.is_set():
            most[0] = max(most[0], engine_threads() - before)
            over.wait(0.0005)

    read_before = read_bytes()
    watch = threading.Thread(target=count)
    watch.start()
    try:
        made = call()
    except plait.PlaitError as error:
        made = Made(error=error)
    finally:
        over.set()
        watch.join()
    read = read_bytes() - read_before
    return Made(made.files, made.report, made.error, most[0], read)


# A flag of tasks of Linux.
EXITING = 0x4


def engine_threads() -> int:
    """Threads of the engine that live now: they are named."""
    found = 0
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            said = Path(f"/proc/self/task/{task}/stat").read_text()
            # `proc_pid_stat(5)`: state, parent, group, session, terminal, its group, flags.
            name, flags = said.partition("(")[2], int(said.rpartition(")")[2].split()[6])
            # On a busy machine, threads that were joined are listed for a while.
            found += name.startswith("plait") and not flags & EXITING
    return found


def read_bytes() -> int:
    """Bytes that this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def written_bytes() -> int:
    """Bytes that this process has written so far."""
    return int(Path("/proc/self/io").read_text().split()[3])


def written(tables: Sequence[pa.Table], folder: Path, **how: Any) -> list[Path]:
    """The tables as files of a folder."""
    folder.mkdir(parents=True)
    files = [folder / f"{i}.parquet" for i in range(len(tables))]
    for table, file in zip(tables, files, strict=True):
        pq.write_table(table, file, **how)
    return files


# ---- sources


def mixed() -> list[pa.Table]:
    """Three runs of int keys that interleave."""
    return [
        pa.table({"k": range(i, 900, 3), "v": [f"v{j % 7}" for j in range(300)]}) for i in range(3)
    ]


def ties() -> list[pa.Table]:
    """Two versions of each of three rows; of the second run's rows one deletes its key."""
    return [
        pa.table({"k": [1, 2, 3], "v": [9, 8, 7], "gone": [False, False, False]}),
        pa.table({"k": [1, 2, 3], "v": [1, 2, 9], "gone": [False, True, False]}),
    ]


def patches() -> list[pa.Table]:
    """Two rows, and values that replace some of theirs."""
    return [
        pa.table({"k": [1, 2], "v": [9, 8], "w": [1, 2]}),
        pa.table({"k": [1, 2], "v": [None, 3], "w": [7, None]}),
    ]


def pairs() -> list[pa.Table]:
    """Runs of two key columns."""
    return [
        pa.table({"k": [j // 10 for j in range(100)], "b": [2 * j + i for j in range(100)]})
        for i in range(2)
    ]


def widths() -> list[pa.Table]:
    """A column of two widths."""
    return [pa.table({"k": pa.array([i], t)}) for i, t in enumerate((pa.int32(), pa.int64()))]


def absent() -> list[pa.Table]:
    """A column that one of two files lacks."""
    return [pa.table({"k": [1], "v": [1]}), pa.table({"k": [2]})]


def keyless() -> list[pa.Table]:
    """The sort column that one of two files lacks."""
    return [pa.table({"k": [1], "v": [1]}), pa.table({"v": [2]})]


def entries() -> list[pa.Table]:
    """Footer entries that differ."""
    return [
        pa.table({"k": [i]}).replace_schema_metadata({"same": "1", "owner": f"team {i}"})
        for i in range(2)
    ]


def disjoint() -> list[pa.Table]:
    """Files that do not overlap: their row groups can be copied whole."""
    return [
        pa.table(
            {
                "k": range(i * 20_000, i * 20_000 + 20_000),
                "v": [f"a longer value {j % 1000}" for j in range(20_000)],
            }
        )
        for i in range(2)
    ]


def two_regions() -> list[pa.Table]:
    """Two files that share keys, and two others that do."""
    return [pa.table({"k": [i, i + 5]}) for i in (0, 1, 100, 101)]


def hidden_disorder() -> list[pa.Table]:
    """Files that do not overlap; in the second, two keys are swapped inside a page.

    They are not among the first keys of the row group, which are always decoded.
    """
    first, second = disjoint()
    keys = second.column("k").to_pylist()
    keys[15_000], keys[15_001] = keys[15_001], keys[15_000]
    return [first, second.set_column(0, "k", pa.array(keys))]


def unsorted() -> list[pa.Table]:
    """A file in no order."""
    return [pa.table({"k": [1, 5, 3], "v": ["a", "b", "c"]})]


def partly_unsorted() -> list[pa.Table]:
    """A file in order, and one in none."""
    return [pa.table({"k": [2, 4], "v": ["d", "e"]}), *unsorted()]


def nothing() -> list[pa.Table]:
    """A file without rows."""
    return [pa.table({"k": pa.array([], pa.int64())})]


def large() -> list[pa.Table]:
    """Runs that take long enough for threads to be seen."""
    return [
        pa.table({"k": range(i, 200_000, 2), **{f"c{c}": range(100_000) for c in range(8)}})
        for i in range(2)
    ]


def ascending() -> list[pa.Table]:
    """Runs with pages that are long enough for their encoding to be tried."""
    return [pa.table({"k": range(i, 40_000, 2), "v": range(20_000)}) for i in range(2)]


def break_a_page(files: list[Path]) -> None:
    """Damages compressed bytes of the last file's column `v`."""
    chunk = pq.ParquetFile(files[-1]).metadata.row_group(0).column(1)
    at = chunk.data_page_offset + chunk.total_compressed_size // 4
    data = bytearray(files[-1].read_bytes())
    for i in range(at, at + 40):
        data[i] ^= 0xFF
    files[-1].write_bytes(bytes(data))


# ---- what is seen


def outcome(made: Made) -> object:
    """The error's class, or the rows by file."""
    return type(made.error).__name__ if made.error else rows(made)


def error_of(made: Made) -> object:
    """The error's class."""
    return type(made.error).__name__


def rows(made: Made) -> object:
    """All rows, by file."""
    return [pq.ParquetFile(file).read().to_pylist() for file in made.files]


def file_rows(made: Made) -> list[int]:
    """Rows of each file."""
    return [pq.ParquetFile(file).metadata.num_rows for file in made.files]


def group_rows(made: Made) -> list[int]:
    """Rows of each row group."""
    footers = [pq.ParquetFile(file).metadata for file in made.files]
    return [f.row_group(i).num_rows for f in footers for i in range(f.num_row_groups)]


def pages(made: Made) -> list[int | None]:
    """Pages of each column chunk."""
    return [
        column.pages
        for file in made.files
        for group in plait.inspect(file, pages=True).row_groups
        for column in group.columns
    ]


def chunks(made: Made) -> list[tuple]:
    """Codec, encodings, statistics and bloom filter of each column chunk, as DuckDB reads them."""
    query = (
        "select compression, encodings, stats_min_value, bloom_filter_offset is not null "
        "from parquet_metadata(?)"
    )
    return [row for file in made.files for row in duckdb.execute(query, [file]).fetchall()]


def footer(made: Made) -> list[dict]:
    """Entries of each footer."""
    found = [pq.ParquetFile(file).metadata.metadata or {} for file in made.files]
    return [{k: v for k, v in entries.items() if k != b"ARROW:schema"} for entries in found]


def folders(made: Made) -> list[str]:
    """The name of the folder of each file."""
    return [Path(file).parent.name for file in made.files]


def columns(made: Made) -> list[list[str]]:
    """The columns of each file."""
    return [pq.ParquetFile(file).schema_arrow.names for file in made.files]


def size(made: Made) -> list[int]:
    """Bytes of each file."""
    return [Path(file).stat().st_size for file in made.files]


def times_read(made: Made) -> int:
    """How often as many bytes as the files have were read."""
    return round(made.read_bytes / sum(size(made)))


def threads(made: Made) -> bool:
    """Whether there were more threads than one, the one that waits, and one that ends."""
    return made.threads > 3


MISSPELLED = {"aws_regoin": "eu-central-1"}
KEYED = {"sort_by": "k"}
# Row groups that are copied as they are.
WHOLE = {**KEYED, "row_group_rows": 20_000}
# Values that are written anew, without dictionaries.
PLAIN = {"use_dictionary": False}
VALUES = {**KEYED, "copy_tiers": (), "dictionary": False}
UPSERT = {"sort_by": "k", "on_duplicate": "keep_last"}
UPDATE = {"sort_by": "k", "on_duplicate": "update"}
AGGREGATE = {"sort_by": "k", "on_duplicate": "aggregate"}

SCENARIOS: dict[str, Effect] = {
    "sort_by": Effect("k", outcome),
    "outputs": Effect(2, file_rows, given=KEYED),
    "target_file_size": Effect("1KB", file_rows, given=KEYED),
    "target_rows": Effect(100, file_rows, given=KEYED),
    "cut_on": Effect(1, file_rows, tables=pairs, given={"sort_by": "k, b", "target_rows": 7}),
    "partition_by": Effect(["k"], folders, tables=pairs, given={"sort_by": "k, b"}),
    "partition_columns": Effect(
        "keep", columns, tables=pairs, given={"sort_by": "k, b", "partition_by": ["k"]}
    ),
    "row_group_size": Effect("100KB", group_rows, tables=disjoint, given=VALUES),
    "row_group_rows": Effect(100, group_rows, given=KEYED),
    "page_size": Effect("1KB", pages, tables=disjoint, given=VALUES),
    "page_rows": Effect(10, pages, given=KEYED),
    "align_row_groups": Effect(1, group_rows, tables=pairs, given={"sort_by": "k, b"}),
    "compression": Effect("zstd(3)", chunks, given=KEYED),
    "dictionary": Effect(False, chunks, given=KEYED),
    "data_page_version": Effect(2, size, given=KEYED),
    "encoding": Effect("compatible", chunks, tables=ascending, given=KEYED, write=PLAIN),
    "bloom_filters": Effect(["k"], chunks, given=KEYED),
    "value_sets": Effect(["v"], footer, given=KEYED),
    "statistics": Effect("none", chunks, given=KEYED),
    "widen": Effect("error", outcome, tables=widths, given=KEYED),
    "missing": Effect("error", outcome, tables=absent, given=KEYED),
    "missing_keys": Effect("null", outcome, tables=keyless, given=KEYED),
    "metadata_conflicts": Effect("error", outcome, tables=entries, given=KEYED),
    "on_duplicate": Effect("keep_last", rows, tables=ties, given=KEYED),
    "version_by": Effect("v", rows, tables=ties, given=UPSERT),
    "replace_columns": Effect("v", rows, tables=patches, given=UPDATE),
    "aggregate": Effect({"v": "sum"}, rows, instead={"v": "max"}, tables=patches, given=AGGREGATE),
    "delete_where": Effect("gone", rows, tables=ties, given=UPSERT),
    "keep_tombstones": Effect(True, rows, tables=ties, given={**UPSERT, "delete_where": "gone"}),
    "drop_where": Effect("k < 10", rows, given=KEYED),
    "verify_order": Effect(
        "bounds",
        error_of,
        tables=hidden_disorder,
        given=WHOLE,
        write={"write_page_index": True},
    ),
    "verify_pages": Effect(
        "unpack",
        error_of,
        tables=disjoint,
        given=WHOLE,
        write={"use_dictionary": False},
        spoil=break_a_page,
    ),
    # Its effect is on object stores: `test_server_side_copy.py`.
    "server_side_copy": Effect(True, error_of, given={**KEYED, "verify": "content"}),
    "unsorted": Effect("sort", outcome, tables=unsorted, given=KEYED),
    "assume_sorted": Effect(True, outcome, tables=unsorted, given=KEYED),
    "verify": Effect("content", lambda made: made.report.content_hash is None, given=KEYED),
    "sha256": Effect(True, lambda made: made.report.outputs[0].sha256 is None, given=KEYED),
    "row_map": Effect(True, lambda made: made.report.outputs[0].row_map is None, given=KEYED),
    "copy_tiers": Effect((), lambda made: made.report.copied, tables=disjoint, given=KEYED),
    "threads": Effect(12, threads, instead=1, tables=large, given=KEYED),
    "memory_limit": Effect("1KB", error_of, given=KEYED),
    "empty_output": Effect(False, file_rows, tables=nothing, given=KEYED),
    "storage_options": Effect(MISSPELLED, error_of, given=KEYED),
}
