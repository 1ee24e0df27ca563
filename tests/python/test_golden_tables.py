"""Tables that other projects publish for their own tests: the same rows, or a refusal by name.

`PLAIT_GOLDEN_TABLES` names a folder with clones of the repositories; without it these tests are
skipped. CONTRIBUTING.md says which. Their tables are read and compacted as copies, and none of them
is in this repository.

Rows are compared with those that their project publishes next to the table (`expected`, or its own
test), and with those that delta-rs or PyIceberg reads. `REFUSED` lists every table that Plait does
not read or compact, and why: any other refusal fails.
"""

from __future__ import annotations

import datetime as dt
import decimal
import faulthandler
import json
import os
import shutil
import struct
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import plait
from plait.table import compact_delta, compact_iceberg

from .conftest import load
from .golden_refusals import (
    LARGE,
    LEFT_OUT,
    MICROSECONDS,
    MISREAD,
    MISSTATED,
    REFUSED,
    Refusal,
)

GOLDEN = os.environ.get("PLAIT_GOLDEN_TABLES")
if not GOLDEN:
    pytest.skip("PLAIT_GOLDEN_TABLES names no folder of golden tables", allow_module_level=True)

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")
pyiceberg_table = pytest.importorskip("pyiceberg.table")
vectors = load("vectors")
BitMap64 = pytest.importorskip("pyroaring").BitMap64
pytestmark = [
    pytest.mark.local,
    # PyIceberg leaves files open, and warns of what it does not implement.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::UserWarning"),
]

# Where each project keeps them, by a short name.
DELTA = {
    "golden": "delta/connectors/golden-tables/src/main/resources/golden",
    "kernel": "delta/kernel/kernel-defaults/src/test/resources",
    "benchmarks": "delta/kernel/kernel-benchmarks/src/test/resources/workload_specs",
    "spark": "delta/spark/src/test/resources/delta",
    "kernel-rs": "delta-kernel-rs/kernel/tests/data",
    "kernel-rs-golden": "delta-kernel-rs/kernel/tests/golden_data",
    "unity": "delta-kernel-rs/delta-kernel-unity-catalog/tests/data",
    "delta-rs": "delta-rs/crates/test/tests/data",
    "delta-rs-logs": "delta-rs/crates/core/tests/data_err_logs",
    "duckdb": "duckdb-delta/data/inlined",
    "polars": "polars/py-polars/tests/unit/io/files",
}
ICEBERG = {
    "duckdb": "duckdb-iceberg/data/persistent",
    "polars": "polars/py-polars/tests/unit/io/files",
}
BITMAPS = "iceberg/core/src/test/resources/org/apache/iceberg/deletes"

# Cells of a table from which on DuckDB compares: lists of Python would take minutes.
MANY = 300_000
SAME = "same rows"


# -- finding tables --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Golden:
    """A table of another project.

    Attributes:
        name: A short name: its collection, and where it is in there.
        path: Its folder, or the archive that it is in.
        inside: Its folder in the archive.
    """

    name: str
    path: Path
    inside: str = ""

    def copy(self, to: Path) -> Path:
        """A copy that may be changed; its project's `expected` rows come along."""
        if self.inside:
            with _archive(self.path) as archive:
                archive.extractall(to, filter="data")
            return to / self.inside
        copied = to / self.path.name
        shutil.copytree(self.path, copied, symlinks=True)
        return _as_published(copied)


def _archive(path: Path) -> tarfile.TarFile:
    stream = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")
    return tarfile.open(fileobj=stream, mode="r|")


def _as_published(table: Path) -> Path:
    """What Spark's tests do before they read: names that only these tests know become plain."""
    prefix = "test%dv%prefix-"
    for vector in table.rglob(f"{prefix}*.bin"):
        if "folder&" not in vector.parent.name:
            vector.rename(vector.with_name(vector.name.removeprefix(prefix)))
    here = quote(str(table / "folder&with%special char"))
    for commit in table.glob("_delta_log/*.json"):
        text = commit.read_bytes()
        if b"{{FOLDER_WITH_SPECIAL_CHAR}}" in text:
            commit.write_bytes(text.replace(b"{{FOLDER_WITH_SPECIAL_CHAR}}", here.encode()))
    return table


@cache
def delta_tables() -> list[Golden]:
    found = []
    for short, where in DELTA.items():
        root = Path(GOLDEN, where)
        for log in sorted(root.rglob("_delta_log")):
            name = f"{short}/{log.parent.relative_to(root).as_posix()}"
            if log.is_dir() and name not in LEFT_OUT:
                found.append(Golden(name, log.parent))
        for path in sorted(root.glob("*.tar.zst")):
            with _archive(path) as archive:
                names = {member.name.partition("/_delta_log")[0] for member in archive
                         if "/_delta_log" in member.name}  # fmt: skip
            for inside in sorted(names):
                name = f"{short}/{inside}".removesuffix("/delta").replace("/delta/", "/")
                found.append(Golden(name, path, inside))
    return found


# -- comparing rows --------------------------------------------------------------------------------


def plain(type_: pa.DataType) -> pa.DataType:
    """A type without what differs from reader to reader: views, units, zones' names."""
    if pa.types.is_string_view(type_) or pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_binary_view(type_) or pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_dictionary(type_):
        return plain(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return plain(type_.storage_type)
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz and "UTC")
    if pa.types.is_map(type_):
        return pa.map_(plain(type_.key_type), plain(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_list_view(type_):
        return pa.list_(plain(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, plain(field.type)) for field in type_])
    return type_


def tidy(read: object) -> pa.Table:
    """A table with its columns by name, in plain types."""
    table = pa.table(read)
    table = table.select(sorted(table.column_names))
    return table.cast(pa.schema([(field.name, plain(field.type)) for field in table.schema]))


def cell(value: object) -> object:
    """A value that can be counted: equal if and only if the values are."""
    if isinstance(value, dict):
        return ("struct", *((name, cell(inner)) for name, inner in value.items()))
    if isinstance(value, list | tuple):
        return ("list", *map(cell, value))
    if isinstance(value, float):
        return "nan" if value != value else value
    if isinstance(value, decimal.Decimal):
        return str(value.normalize() + 0)
    if isinstance(value, dt.datetime):
        # INT96 has no zone, and readers disagree on whether that is one: instants are compared.
        utc = dt.timezone.utc
        return value.astimezone(utc).replace(tzinfo=None) if value.tzinfo else value
    return value


def counted(table: pa.Table) -> object:
    """What two tables with the same rows in any order have in common."""
    if not table.num_columns:
        return table.num_rows
    if table.num_rows * table.num_columns < MANY:
        columns = [map(cell, column.to_pylist()) for column in table.columns]
        return table.column_names, Counter(zip(*columns, strict=True))
    texts = ", ".join(f'"{name}"::varchar' for name in table.column_names)
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        asked = f"select count(*), sum(hash(row({texts}))::hugeint) from table_"
        return table.column_names, connection.register("table_", table).execute(asked).fetchall()


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def outcome(call: Callable[[], pa.Table | None], want: pa.Table | None) -> str:
    """`SAME`, or the class and the message of a refusal; all else is a fault."""
    try:
        found = call()
    except plait.PlaitError as error:
        assert not isinstance(error, plait.InternalError), error
        return f"{type(error).__name__}: {error}"
    assert want is not None, f"there is nothing to compare with: {found}"
    assert found is None or counted(found) == counted(want), f"{found}\nis not\n{want}"
    return SAME


@pytest.fixture(autouse=True)
def _no_hang():
    faulthandler.dump_traceback_later(600, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


# -- Delta -----------------------------------------------------------------------------------------


def by_delta_rs(folder: Path) -> pa.Table:
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder)))
    return tidy(builder.execute("select * from t"))


def published(golden: Golden, folder: Path) -> pa.Table | None:
    """The rows that lie next to a table of kernel-rs."""
    expected = folder.parent / "expected"
    if not (golden.inside and folder.name == "delta" and expected.is_dir()):
        return None
    files = sorted(expected.rglob("*.parquet"))
    return tidy(pa.concat_tables([pq.ParquetFile(f).read() for f in files]))


def published_by_twin(golden: Golden, to: Path) -> pa.Table | None:
    """The rows of a table of Delta that kernel-rs has, too."""
    twin = named().get(golden.name.replace("golden/", "kernel-rs-golden/", 1))
    return None if twin is None or twin is golden else published(twin, twin.copy(to))


@cache
def named() -> dict[str, Golden]:
    return {golden.name: golden for golden in delta_tables()}


@lru_cache(maxsize=2)
def wanted(golden: Golden) -> pa.Table | None:
    """The rows of a table; `None` if nobody tells."""
    with TemporaryDirectory() as made:
        return _wanted(golden, golden.copy(Path(made)))


def _wanted(golden: Golden, folder: Path) -> pa.Table | None:
    if golden.name in MISREAD:
        files = map(unquote, deltalake.DeltaTable(str(folder)).file_uris())
        return tidy(pa.concat_tables([pq.read_table(f, **MICROSECONDS) for f in files]))
    told = published(golden, folder)
    try:
        read = by_delta_rs(folder)
    except Exception:  # whatever delta-rs raises, it does not read the table
        return told or published_by_twin(golden, folder.parent / "twin")
    if told is not None and golden.name not in MISSTATED:
        assert counted(read) == counted(told), "delta-rs does not read what is published"
    return read


def conditions(want: pa.Table) -> list[pc.Expression]:
    """Conditions on columns that are compared alike by all: half of the rows, one, the nulls."""
    found = []
    for field in want.schema:
        is_plain = pa.types.is_integer(field.type) or pa.types.is_string(field.type)
        if (is_plain or pa.types.is_date(field.type)) and len(found) < 8:
            values = want[field.name].drop_null().sort()
            if len(values):
                found.append(pc.field(field.name) >= values[len(values) // 2])
                found.append(pc.field(field.name) == values[-1])
            found.append(pc.field(field.name).is_null())
    return found


def read_where(source: str, want: pa.Table) -> None:
    if not (asked := conditions(want)):
        plait.read(source, sort_by=[])
    for condition in asked:
        found = tidy(plait.read(source, sort_by=[], where=condition))
        assert counted(found) == counted(want.filter(condition)), condition


def key_of(folder: Path) -> str:
    """A column to sort by: the first that can be one."""
    try:
        table = deltalake.DeltaTable(str(folder))
        schema, without = pa.schema(table.schema()), table.metadata().partition_columns
    except Exception:  # the table is refused before its columns are looked at
        return "id"
    names = [
        field.name
        for field in sorted(schema, key=lambda f: pa.types.is_nested(f.type))
        if field.name not in without and not pa.types.is_null(field.type)
    ]
    return json.dumps(names[0]) if names else "id"


def compacted(folder: Path) -> None:
    compact_delta(
        folder,
        sort_by=key_of(folder),
        policy="full",
        unsorted="sort",
        verify="content",
        yes=True,
    )


def undone(folder: Path) -> dict[str, int]:
    """Deleted rows of each file that should have been rewritten without them."""
    rows = pa.table(deltalake.DeltaTable(str(folder)).deletion_vectors()).to_pylist()
    deleted = {r["filepath"]: (r["selection_vector"].count(False), len(r["selection_vector"]))
               for r in rows}  # fmt: skip
    # A file that no other can be merged with is rewritten if a twentieth of it is deleted.
    return {path: count for path, (count, of) in deleted.items() if count * 20 > of}


CALLS = ("read", "where", "scan", "compact")


def expected_of(kind: str, name: str, call: str) -> Refusal | None:
    of = [
        r for r in REFUSED if f"{kind} {name}" in r.tables and (r.calls == "*" or call in r.calls)
    ]
    assert len(of) <= 1, of
    return of[0] if of else None


def checked(found: str, refusal: Refusal | None) -> None:
    if refusal is None:
        assert found == SAME, f"GOT {found}"
        return
    assert found.startswith(f"{refusal.error.__name__}: "), f"GOT {found}"
    assert refusal.says in found


def cases(tables: list) -> list:
    return [
        pytest.param(golden, call, id=f"{golden.name}-{call}")
        for golden in tables
        for call in CALLS
    ]


@pytest.mark.parametrize(("golden", "call"), cases(delta_tables()))
def test_a_delta_table_has_the_same_rows_or_is_refused_by_name(golden, call, tmp_path):
    folder = golden.copy(tmp_path)
    if golden.name in LARGE and not any(folder.glob("*.parquet")):
        pytest.skip("a partial clone lacks its data file")
    source, before = str(folder), files_of(folder)
    refusal = expected_of("delta", golden.name, call)
    want = wanted(golden) if refusal is None else None
    doors = {
        "read": lambda: tidy(plait.read(source, sort_by=[])),
        "where": lambda: (
            plait.read(source, where="id = 1") if want is None else read_where(source, want)
        ),
        "scan": lambda: tidy(plait.scan(source)),
        "compact": lambda: compacted(folder),
    }
    by_other = by_delta_rs(folder) if call == "compact" and want is not None else None
    found = outcome(doors[call], want)
    checked(found, refusal)
    if call != "compact" or refusal is not None:
        assert files_of(folder) == before
        return
    assert counted(by_delta_rs(folder)) == counted(by_other)
    assert not undone(folder)
    for again in ("read", "scan"):
        if expected_of("delta", golden.name, again):
            continue
        assert counted(doors[again]()) == counted(want)


# -- Iceberg ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoldenIceberg:
    """An Iceberg table of another project.

    Attributes:
        name: A short name.
        path: Its folder.
    """

    name: str
    path: Path

    def copy(self, to: Path) -> tuple[Path, Path]:
        """A copy, and the folder from which its metadata names its files."""
        newest = self.newest()
        location = json.loads(_text(newest))["location"].removeprefix("file://")
        if "://" in location or location.startswith("/"):
            location = self.path.name
        parts = Path(location).parts
        folder = to.joinpath(*parts)
        shutil.copytree(self.path, folder, symlinks=True)
        hint = folder / "metadata" / "version-hint.text"
        if not hint.is_file():
            # Without a hint only a catalog knows; the newest is what their tests read.
            hint.write_text(newest.name.removesuffix(".metadata.json"))
        return folder, to

    def newest(self) -> Path:
        hint = self.path / "metadata" / "version-hint.text"
        if hint.is_file():
            said = hint.read_text().strip()
            for name in (f"{said}.metadata.json", f"v{said}.metadata.json",
                         f"v{said}.gz.metadata.json"):  # fmt: skip
                if (self.path / "metadata" / name).is_file():
                    return self.path / "metadata" / name
        every = (self.path / "metadata").glob("*.metadata.json")
        return max(every, key=lambda path: (json.loads(_text(path))["last-updated-ms"], path.name))


def _text(path: Path) -> bytes:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        import gzip

        return gzip.decompress(data)
    return data


# Tables without data files, whose manifests name a bucket that nobody has: readers wait for it.
ELSEWHERE = ("duckdb/generated_bounds", "duckdb/big_query_error")


@cache
def iceberg_tables() -> list[GoldenIceberg]:
    found = []
    for short, where in ICEBERG.items():
        root = Path(GOLDEN, where)
        for folder in sorted(root.rglob("metadata")):
            name = f"{short}/{folder.parent.relative_to(root).as_posix()}"
            if any(folder.glob("*.metadata.json")) and name not in ELSEWHERE:
                found.append(GoldenIceberg(name, folder.parent))
    return found


CLICKS = {"user_id": [12345, 67890], "event_type": ["click", "purchase"]}
# Rows that tests of DuckDB state; PyIceberg does not read deletes by value.
STATED: dict[str, dict[str, list]] = {
    "duckdb/equality_deletes/warehouse/mydb/mytable": {
        "id": [4, 5],
        "name": ["d", "e"],
        "bir": [dt.date(2025, 1, 4), dt.date(2025, 1, 5)],
    },
    "duckdb/equality_deletes/warehouse/mydb/mytable_partitioned": {
        "id": [1, 4, 5],
        "name": ["a", "d", "e"],
        "bir": [dt.date(2025, 1, 1), dt.date(2025, 1, 4), dt.date(2025, 1, 5)],
    },
    "duckdb/equality_delete_cross_partition/warehouse/ns/t": {
        "part": [0, 1, 1],
        "key": [999, 100, 888],
        "val": ["p0-k999", "p1-k100", "p1-k888"],
    },
    "duckdb/equality_delete_extra_column/warehouse/ns/t": {"id": [1, 3], "val": ["a", "c"]},
    "duckdb/partition_fixed_length_binary/default.db/partition_fixed_length_binary": {
        "partition_col": pa.array([b"hello world", b"fixed value"], pa.binary(11)),
        **CLICKS,
    },
    "duckdb/partition_time/default.db/partition_time": {
        "partition_col": [dt.time(12, 34, 56), dt.time(8, 21, 9)],
        **CLICKS,
    },
    "duckdb/partition_timestamp/default.db/partition_timestamp": {
        "partition_col": [
            dt.datetime(2023, 5, 15, 14, 30, 45),
            dt.datetime(2023, 8, 22, 9, 15, 20),
        ],
        **CLICKS,
    },
    "duckdb/partition_timestamptz/default.db/partition_timestamptz": {
        "partition_col": pa.array(
            [dt.datetime(2023, 5, 15, 14, 30, 45), dt.datetime(2023, 8, 22, 9, 15, 20)],
            pa.timestamp("us", "UTC"),
        ),
        **CLICKS,
    },
    "duckdb/legacy_bare_deletion_vector/warehouse/default/legacy_bare_deletion_vector": {
        "id": [1, 3],
        "source": ["legacy", "legacy"],
    },
}


def by_pyiceberg(source: str) -> pa.Table | None:
    try:
        return tidy(pyiceberg_table.StaticTable.from_metadata(source).scan().to_arrow())
    except Exception:  # whatever PyIceberg raises, it does not read the table
        return None


@pytest.mark.parametrize(("golden", "call"), cases(iceberg_tables()))
def test_an_iceberg_table_has_the_same_rows_or_is_refused_by_name(
    golden, call, tmp_path, monkeypatch
):
    folder, root = golden.copy(tmp_path / "there")
    monkeypatch.chdir(root)
    source = str(folder.relative_to(root))
    before = files_of(folder)
    refusal = expected_of("iceberg", golden.name, call)
    want = None
    if refusal is None:
        stated = STATED.get(golden.name)
        want = (
            tidy(pa.table(stated))
            if stated
            else by_pyiceberg(str(folder / "metadata" / golden.newest().name))
        )
    doors = {
        "read": lambda: tidy(plait.read(source, sort_by=[])),
        "where": lambda: (
            plait.read(source, where="id = 1") if want is None else read_where(source, want)
        ),
        "scan": lambda: tidy(plait.scan(source)),
        "compact": lambda: compacted_iceberg(golden, Path(source), tmp_path, want),
    }
    found = outcome(doors[call], want)
    checked(found, refusal)
    if call != "compact" or refusal is not None:
        assert files_of(folder) == before


def compacted_iceberg(golden: GoldenIceberg, folder: Path, home: Path, want: pa.Table) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import ValidationError

    catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/lake.db", warehouse=f"file://{home}/lake")
    try:
        catalog.create_namespace("db")
        where = str(folder / "metadata" / golden.newest().name)
        try:
            table = catalog.register_table("db.t", where)
        except ValidationError:
            pytest.skip("PyIceberg does not load it")
        fixed = {field.source_id for spec in table.specs().values() for field in spec.fields}
        names = [
            field.name
            for field in table.schema().fields
            if field.field_type.is_primitive and field.field_id not in fixed
        ]
        compact_iceberg(
            catalog,
            "db.t",
            sort_by=json.dumps(names[0] if names else "id"),
            policy="full",
            unsorted="sort",
            verify="content",
            yes=True,
        )
        after = catalog.load_table("db.t")
        tasks = list(after.scan().plan_files())
        assert not any(task.delete_files for task in tasks)
        if (found := by_pyiceberg(after.metadata_location)) is None:
            # PyIceberg finds no required column in files that leave it to their partition.
            files = [pq.ParquetFile(task.file.file_path).read() for task in tasks]
            found = tidy(pa.concat_tables(files))
            want = want.select(found.column_names)
        assert counted(found) == counted(want)
    finally:
        catalog.close()


# -- bitmaps ---------------------------------------------------------------------------------------

# Rows of the file of which a bitmap deletes some: all kinds of containers reach into it.
ROWS = 200_000


def bitmaps() -> list[Path]:
    return sorted(Path(GOLDEN, BITMAPS).glob("*.bin"))


@pytest.mark.parametrize("path", bitmaps(), ids=lambda path: path.stem)
def test_a_bitmap_of_iceberg_deletes_the_rows_that_it_lists(path, tmp_path):
    """As the vector of a Delta table: both formats store length, magic number, bitmap, checksum."""
    data = path.read_bytes()
    is_framed = path.stem.endswith("-position-index")
    bitmap = data[8:-4] if is_framed else data
    magic = struct.pack("<I", vectors.MAGIC)
    assert not is_framed or data[4:8] == magic
    stored = data if is_framed else vectors.stored(magic + bitmap)
    (tmp_path / "vector.bin").write_bytes(stored)
    # That file went through an editor of text: bytes that are none became U+FFFD.
    is_damaged = b"\xef\xbf\xbd" in bitmap
    deleted = set() if is_damaged else BitMap64.deserialize(bitmap)
    table = tmp_path / "t"
    deltalake.write_deltalake(str(table), pa.table({"k": pa.array(range(ROWS), pa.int64())}))
    (name,) = vectors.live(str(table))
    said = {
        "storageType": "p",
        "pathOrInlineDv": str(tmp_path / "vector.bin"),
        "offset": 0,
        "sizeInBytes": len(stored) - 8,
        "cardinality": len(deleted),
    }
    vectors.delete(str(table), name, [0], edit=lambda _: said)

    def read():
        return pa.table(plait.read(str(table), sort_by=[]))["k"].to_pylist()

    highest = max(deleted, default=0)
    if is_damaged or highest >= ROWS:
        # Rows that the file lacks are refused, by the number of the last.
        says = "is not a roaring bitmap" if is_damaged else f"got row {highest} of {ROWS}"
        with pytest.raises(plait.CorruptSource, match=says):
            read()
    else:
        assert read() == [k for k in range(ROWS) if k not in deleted]
