"""Columns are matched by field id through every door, whatever files call them."""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .conftest import load

pytest.importorskip("pyiceberg")
histories = load("field_histories")

pytestmark = [
    pytest.mark.local,
    # PyIceberg does not close its connections.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

# As many as the slow suite wants: PLAIT_FIELD_ID_CASES=2000.
CASES = int(os.environ.get("PLAIT_FIELD_ID_CASES", "25"))


def named(name, type_, number):
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(number)})


def write(path, fields, *columns):
    table = pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, fields)], schema=pa.schema(fields)
    )
    pq.write_table(table, path)
    return path


@pytest.fixture
def renamed(tmp_path):
    """Two files between which `k` became `id` and `old` became `new`."""
    int64 = pa.int64()
    a = write(
        tmp_path / "a.parquet", [named("k", int64, 1), named("old", int64, 2)], [1, 3], [10, 30]
    )
    b = write(
        tmp_path / "b.parquet", [named("id", int64, 1), named("new", int64, 2)], [2, 4], [20, 40]
    )
    return [a, b]


# Iceberg --------------------------------------------------------------------------------------


def test_a_projection_of_a_renamed_column_is_what_iceberg_reads(catalog):
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("old", pa.int64())]))
    table.append(pa.table({"id": [1, 3], "old": [10, 30]}))
    with table.update_schema() as update:
        update.rename_column("old", "new")
    table.append(pa.table({"id": [2, 4], "new": [20, 40]}))
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    expected = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    schema = histories.arrow(table.schema())
    for options in ({}, {"schema": schema}):
        scan = plait.scan(files, ["id", "new"], **options)
        assert scan.schema.names == ["id", "new"]
        got = sorted(pa.table(scan).to_pylist(), key=lambda row: row["id"])
        assert got == expected
        # What is explained is what is done.
        assert {what for a in scan.adapters for _, what in a.columns} <= {"take #0", "take #1"}


# By hand --------------------------------------------------------------------------------------


def test_any_name_of_a_column_is_the_column_and_two_names_of_it_are_refused(renamed):
    for columns in (["id", "new"], ["k", "old"], ["new", "id"], ["id", "old"]):
        got = pa.table(plait.scan(renamed, columns))
        assert got.column_names == columns
        values = [value for row in got.to_pylist() for value in row.values()]
        assert sorted(values) == [1, 2, 3, 4, 10, 20, 30, 40]
    assert pa.table(plait.scan(renamed, ["new", "*"])).column_names == ["new", "k"]
    with pytest.raises(plait.InvalidArgument, match="two names in `columns` are one field"):
        plait.scan(renamed, ["old", "new"])
    with pytest.raises(plait.UnknownColumn):
        plait.scan(renamed, ["older"])


def test_the_given_schema_decides_a_swap_of_names(tmp_path):
    int64 = pa.int64()
    one, two = (
        [named("a", int64, 1), named("b", int64, 2)],
        [named("b", int64, 1), named("a", int64, 2)],
    )
    files = [
        write(tmp_path / "1.parquet", one, [1, 2], [10, 20]),
        write(tmp_path / "2.parquet", two, [3, 4], [30, 40]),
    ]
    for schema, ids in (
        (one, {"a": [1, 2, 3, 4], "b": [10, 20, 30, 40]}),
        (two, {"b": [1, 2, 3, 4], "a": [10, 20, 30, 40]}),
    ):
        for columns in (["a"], ["b"], ["b", "a"]):
            got = pa.table(plait.scan(files, columns, schema=pa.schema(schema)))
            assert got.to_pydict() == {name: ids[name] for name in columns}
    # Without one, names are those of the first file, as in a scan of all columns.
    whole = pa.table(plait.scan(files))
    for columns in (["a"], ["b"], ["b", "a"]):
        assert pa.table(plait.scan(files, columns)) == whole.select(columns)


def test_a_name_that_was_given_to_another_column_is_a_conflict_unless_a_schema_decides(tmp_path):
    int64 = pa.int64()
    key = named("id", int64, 1)
    files = [
        write(tmp_path / "1.parquet", [key, named("x", int64, 2)], [1], [10]),
        write(tmp_path / "2.parquet", [key, named("x", int64, 3)], [2], [20]),
    ]
    now = pa.schema([key, named("x", int64, 3)])
    expected = {"id": [1, 2], "x": [None, 20]}
    assert pa.table(plait.scan(files, ["id", "x"], schema=now)).to_pydict() == expected
    dropped = plait.scan(files, schema=now, policy={"extra": "drop"})
    assert pa.table(dropped).to_pydict() == expected
    assert pa.table(plait.scan(files, ["id"])).to_pydict() == {"id": [1, 2]}
    for columns in (None, ["x"], ["id", "x"]):
        with pytest.raises(plait.SchemaConflict, match="`x` has different field ids"):
            plait.scan(files, columns)


def test_members_elements_and_values_of_maps_are_matched_by_id(tmp_path):
    def fields(x, y):
        struct = pa.struct([named(x, pa.int64(), 11), named(y, pa.string(), 12)])
        item = pa.field("element", struct, metadata={"PARQUET:field_id": "21"})
        value = pa.field("value", struct, metadata={"PARQUET:field_id": "32"})
        return [
            named("m", struct, 1),
            named("l", pa.list_(item), 2),
            named("d", pa.map_(pa.field("key", pa.string(), nullable=False), value), 3),
        ]

    def values(x, y, number):
        struct = {x: number, y: str(number)}
        return [struct], [[struct, struct]], [[("k", struct)]]

    files = [
        write(tmp_path / "1.parquet", fields("x", "y"), *values("x", "y", 1)),
        # `x` is renamed, and `y` is now called `x`.
        write(tmp_path / "2.parquet", fields("z", "x"), *values("z", "x", 2)),
    ]
    now = pa.schema(fields("z", "x"))
    whole = pa.table(plait.scan(files, schema=now)).to_pylist()
    assert [row["m"] for row in whole] == [{"z": 1, "x": "1"}, {"z": 2, "x": "2"}]
    for column in ("m.z", "l.z", "l[0].z"):
        (name, _, _) = column.replace("[0]", "").partition(".")
        got = pa.table(plait.scan(files, [column], schema=now)).to_pylist()
        only = [[{"z": 1}, {"z": 1}], [{"z": 2}, {"z": 2}]] if name == "l" else [{"z": 1}, {"z": 2}]
        assert [row[name] for row in got] == only, column
        if name == "m":
            assert pa.table(plait.scan(files, [column])).to_pylist() == got
    got = pa.table(plait.scan(files, ["d"], schema=now)).to_pylist()
    assert got == [{"d": [("k", {"z": 1, "x": "1"})]}, {"d": [("k", {"z": 2, "x": "2"})]}]
    # A member that no file has, and one that was renamed.
    got = pa.table(plait.scan(files, ["m.z", "m.none"], missing="null"))
    assert [row["m"] for row in got.to_pylist()] == [{"z": 1, "none": None}, {"z": 2, "none": None}]


def test_ids_decide_for_all_files_or_for_none_also_inside_of_a_projection(tmp_path):
    def struct(*members):
        return pa.struct(list(members))

    int64 = pa.int64()
    plain = pa.field("m", struct(pa.field("q", int64)))
    a = write(tmp_path / "a.parquet", [pa.field("m", struct(named("p", int64, 1)))], [{"p": 1}])
    b = write(tmp_path / "b.parquet", [plain], [{"q": 2}])
    c = write(tmp_path / "c.parquet", [pa.field("m", struct(named("z", int64, 1)))], [{"z": 3}])
    got = pa.table(plait.scan([a, b, c], ["m.p"])).to_pylist()
    assert got == [{"m": {"p": 1}}, {"m": {"p": None}}, {"m": {"p": None}}]
    whole = pa.table(plait.scan([a, b, c])).to_pylist()
    assert [row["m"]["p"] for row in whole] == [1, None, None]
    assert [row["m"]["z"] for row in whole] == [None, None, 3]


def test_a_renamed_sort_column_is_one_key_by_either_name(renamed, tmp_path):
    for at, sort_by in enumerate(("id", "k")):
        out = tmp_path / f"{at}.parquet"
        plait.merge(renamed, out, sort_by=sort_by)
        assert [list(row.values()) for row in pq.read_table(out).to_pylist()] == [
            [1, 10],
            [2, 20],
            [3, 30],
            [4, 40],
        ]
        # The output is by its own names.
        assert plait.inspect(out).sort_by == "k"
        assert plait.verify(out, against=renamed, sort_by=sort_by).ok
        streams = [pq.read_table(path) for path in renamed]
        merged = pa.table(plait.merge_streams(streams, sort_by=sort_by))
        assert merged.column(0).to_pylist() == [1, 2, 3, 4]
        kept = plait.merge_streams(
            streams, sort_by=sort_by, on_duplicate="keep_last", version_by="new"
        )
        assert len(pa.table(kept)) == 4
    out = tmp_path / "kept.parquet"
    plait.merge(
        renamed, out, sort_by="id", on_duplicate="keep_last", version_by="new", drop_where="id < 2"
    )
    assert pq.read_table(out).column(0).to_pylist() == [2, 3, 4]
    # Every task of a plan knows the names, whichever sources it reads.
    plait.merge(renamed, tmp_path / "parts", sort_by="id", outputs=2)
    assert sum(pq.read_metadata(path).num_rows for path in (tmp_path / "parts").iterdir()) == 4


def test_orders_that_files_claim_are_compared_by_column_not_by_name(renamed, tmp_path):
    claimed = []
    for at, (path, key) in enumerate(zip(renamed, ("k", "id"))):
        claimed.append(tmp_path / f"claimed-{at}.parquet")
        plait.merge([path], claimed[-1], sort_by=key)
    out = tmp_path / "o.parquet"
    plait.merge(claimed, out)
    assert pq.read_table(out).column("k").to_pylist() == [1, 2, 3, 4]
    # A claim of another column by the same name is no claim of the key.
    int64 = pa.int64()
    odd = write(
        tmp_path / "odd.parquet", [named("k", int64, 2), named("v", int64, 1)], [1, 2], [9, 8]
    )
    plait.merge([odd], tmp_path / "z.parquet", sort_by="k")
    with pytest.raises(plait.InvalidArgument, match="declare different sort orders"):
        plait.merge([claimed[0], tmp_path / "z.parquet"], tmp_path / "no.parquet")
    with pytest.raises(plait.UnsortedSource):
        plait.merge([claimed[0], tmp_path / "z.parquet"], tmp_path / "no.parquet", sort_by="k")


# At random ------------------------------------------------------------------------------------

# What the table does not have any more is left out.
DROPPED = {"extra": "drop", "struct_field": "drop"}
REFUSED = (plait.SchemaConflict, plait.UnknownColumn, plait.UnsupportedKey, plait.InvalidArgument)


def projections(rng, table):
    """Columns as one would ask for them: whole ones and members of structs."""
    names = []
    for column in rng.sample(table.columns, rng.randint(1, len(table.columns))):
        if column.kind in ("struct", "list of structs") and rng.random() < 0.6:
            members = rng.sample(column.members, rng.randint(1, len(column.members)))
            names += [f"{column.name}.{member.name}" for member in members]
        else:
            names.append(column.name)
    return names


def in_iceberg(columns, table):
    """The same paths as PyIceberg writes them."""
    lists = {c.name for c in table.columns if c.kind == "list of structs"}
    split = [name.partition(".") for name in columns]
    return [f"{a}.element.{b}" if b and a in lists else f"{a}{dot}{b}" for a, dot, b in split]


def check_scans(rng, table):
    now = table.schema()
    given = histories.arrow(now)
    dropped = {"schema": given, "policy": DROPPED}
    files = rng.sample(table.files, len(table.files))
    expected = histories.rows(histories.read(files, now))
    assert histories.rows(pa.table(plait.scan(files, **dropped))) == expected
    columns = projections(rng, table)
    rows = rng.choice([3, 8192])
    got = pa.table(plait.scan(files, columns, **dropped, batch_rows=rows))
    wanted = histories.read(files, now, in_iceberg(columns, table))
    roots = [*dict.fromkeys(name.partition(".")[0] for name in columns)]
    assert got.column_names == roots
    assert histories.rows(got) == histories.rows(wanted.select(roots))
    # Without a schema: a name that never was another column's.
    plain = [c.name for c in table.columns if table.is_plain(c)]
    if plain:
        asked = rng.sample(plain, rng.randint(1, len(plain)))
        try:
            got = histories.rows(pa.table(plait.scan(files, asked)))
        except plait.SchemaConflict as refused:
            assert "field ids" in str(refused) and not table.are_plain()
            return False
        wanted = histories.rows(histories.read(files, now).select(asked))
        whole = [c.name for c in table.columns if not c.members]
        for name in set(asked) & set(whole):
            assert [row[name] for row in got] == [row[name] for row in wanted], name
        return True
    return False


def by_key(found, key):
    return sorted(found, key=lambda row: row[key])


def no_empty(value):
    """Without empty lists: PyIceberg reads null lists and maps of structs as empty ones."""
    if isinstance(value, dict):
        return {name: no_empty(member) for name, member in value.items()}
    if isinstance(value, list):
        return [no_empty(item) for item in value] or None
    return value


def check_merges(rng, table, folder):
    now = table.schema()
    key = table.key.name

    def read(files):
        return no_empty(histories.rows(histories.read(files, now)))

    expected = by_key(read(table.files), key)
    out = folder / "merged.parquet"
    try:
        plait.merge(table.files, out, sort_by=key)
        assert read([out]) == expected
        streams = [pq.read_table(path) for path in table.files]
        pq.write_table(
            pa.table(plait.merge_streams(streams, sort_by=key)), folder / "stream.parquet"
        )
        assert read([folder / "stream.parquet"]) == expected
    except (*REFUSED, plait.UnsortedSource, pa.ArrowInvalid) as refused:
        return is_refused_rightly(table, refused)
    return True


def is_refused_rightly(table, refused):
    """Whether names are several columns: of the key, which may be another column in the first file, or
    of others, at any depth."""
    says = str(refused)
    if "field ids" in says:
        return not table.are_plain()
    return not table.is_plain(table.key)


def test_random_histories_of_tables_are_read_as_pyiceberg_reads_them(tmp_path):
    for seed in range(CASES):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        table = histories.history(rng, folder)
        try:
            check_scans(rng, table)
            assert check_merges(rng, table, folder)
        except BaseException:
            print(f"seed {seed}: {[str(p) for p in table.files]} {table.schema()}")
            raise
        shutil.rmtree(folder)


# Spark, without a session: readers and tasks are called as Spark calls them ----------------------


class Session:
    """What `plait.spark.scan` asks of a session, in this process."""

    def __init__(self):
        self.made = []

    def range(self, start, end, step, parts):
        assert (start, step, parts) == (0, 1, end)
        self.numbers = range(end)
        return self

    def mapInArrow(self, function, schema):
        return Frame(function, [pa.record_batch({"id": [number]}) for number in self.numbers])


class Frame:
    def __init__(self, function, tasks):
        self.function, self.tasks = function, tasks

    def batches(self):
        return [batch for task in self.tasks for batch in self.function(iter([task]))]

    def collect(self):
        from pyspark.sql import Row

        return [Row(**row) for batch in self.batches() for row in batch.to_pylist()]


def scanned(files, columns=None, **options):
    from plait.spark.scan import scan

    batches = scan(Session(), files, columns, **options).batches()
    return [row for batch in batches for row in histories.rows(pa.table(batch))]


def formatted(files, **options):
    from plait.spark.source import MergingReader, Query

    query = Query.of({"paths": json.dumps([str(file) for file in files]), **options})
    reader = MergingReader(query, query.spark_schema())
    made = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in made for row in histories.rows(pa.table(batch))]


def by_job(monkeypatch, files):
    """Summaries are made by a job, of so many files at a time; or by the driver."""
    module = importlib.import_module("plait.spark.scan")
    monkeypatch.setattr(module, "_DRIVER_FILES", 64 if files is None else 0)
    monkeypatch.setattr(module, "_SUMMARY_FILES", files or 64)


def test_the_format_plait_reads_renamed_keys_and_columns(renamed):
    pytest.importorskip("pyspark")
    expected = [{"id": i, "new": 10 * i} for i in (1, 2, 3, 4)]
    columns = {"columns": "id,new"}
    for part_rows in ("1", "1000"):
        options = {**columns, "part_rows": part_rows}
        assert formatted(renamed, sort_by="id", **options) == expected
        assert formatted(renamed, sort_by="k", on_duplicate="keep_last", **options) == expected
        asked = {"sort_by": "id", "where": "id >= 2"}
        assert formatted(renamed, **asked, **options) == expected[1:]
        versioned = {"on_duplicate": "keep_last", "version_by": "new", "drop_where": "id < 3"}
        assert formatted(renamed, sort_by="id", **versioned, **options) == expected[2:]
    with pytest.raises(plait.InvalidArgument, match="two names in `columns` are one field"):
        formatted(renamed, sort_by="id", columns="old,new")
    with pytest.raises(plait.UnknownColumn):
        formatted(renamed, sort_by="id", columns="older")


def test_a_sorted_read_takes_all_names_of_a_column(renamed):
    expected = [(i, 10 * i) for i in (1, 2, 3, 4)]
    for key in ("id", "k"):
        for columns in (["id", "new"], ["k", "old"], ["k", "new"], ["id"]):
            rows = plait.read(renamed, sort_by=key, columns=columns, where=f"{key} >= 2")
            assert pa.schema(rows.schema).names == columns
            found = pa.table(rows).to_pydict()
            wanted = [row[: len(columns)] for row in expected[1:]]
            assert list(zip(*found.values(), strict=True)) == wanted
            assert rows.where("new = 30").count() == rows.where("old = 30").count() == 1
    for version in ("new", "old"):
        asked = {"on_duplicate": "keep_last", "version_by": version, "drop_where": "id < 3"}
        assert plait.read(renamed, sort_by="k", **asked).count() == 2
    for columns in (["id", "k"], ["k", "id"]):
        with pytest.raises(plait.InvalidArgument, match="two names in `columns` are one field"):
            plait.read(renamed, sort_by="id", columns=columns)


def test_a_filter_that_needs_some_files_finds_keys_by_the_names_of_all(tmp_path):
    pytest.importorskip("pyspark")
    int64 = pa.int64()
    value = named("v", int64, 3)
    old, new = [named("k", int64, 1), value], [named("id", int64, 1), value]
    a = write(tmp_path / "a.parquet", old, [1, 2, 3], [4, 5, 6])
    b = write(tmp_path / "b.parquet", new, [10, 20, 30], [7, 8, 9])
    for key in ("k", "id"):
        for where, keys in ((f"{key} >= 10", [10, 20, 30]), (f"{key} < 5", [1, 2, 3])):
            options = {"columns": f"{key},v", "where": where, "part_rows": "1"}
            found = formatted([a, b], sort_by=key, **options)
            assert [row[key] for row in found] == keys
    # In the second file, `k` is another column, in another order.
    before, after = (
        [named("k", int64, 1), named("a", int64, 2)],
        [named("a", int64, 1), named("k", int64, 2)],
    )
    first = write(tmp_path / "1.parquet", before, [1, 2, 3], [0, 0, 0])
    second = write(tmp_path / "2.parquet", after, [10, 20, 30], [3, 2, 1])
    options = {"columns": "k", "where": "k >= 10", "part_rows": "1"}
    found = formatted([first, second], sort_by="k", **options)
    assert [row["k"] for row in found] == [10, 20, 30]


def test_tasks_of_a_scan_read_what_one_scan_of_all_files_reads(renamed):
    pytest.importorskip("pyspark")
    for columns in (None, ["id", "new"], ["k"], ["new", "_filename"]):
        expected = pa.table(plait.scan(renamed, columns)).to_pylist()
        for files_per_task in (1, 2):
            assert scanned(renamed, columns, files_per_task=files_per_task) == expected


def test_files_with_and_without_ids_are_scanned_alike_however_they_are_grouped(
    tmp_path, monkeypatch
):
    """64 files with ids and 66 without: names decide for all, in every task."""
    pytest.importorskip("pyspark")
    int64 = pa.int64()
    files = []
    for i in range(130):
        name = "old" if i % 2 else "new"
        ids = (1, 2) if i < 64 else (None, None)
        fields = [
            pa.field(column, int64) if number is None else named(column, int64, number)
            for column, number in zip(("id", name), ids)
        ]
        files.append(write(tmp_path / f"{i:03}.parquet", fields, [i], [i * 10]))
    expected = pa.table(plait.scan(files)).to_pylist()
    assert sum(row["new"] is None for row in expected) == 65
    for grouped, files_per_task in ((None, 50), (64, 1), (7, 130)):
        by_job(monkeypatch, grouped)
        assert scanned(files, files_per_task=files_per_task) == expected
        got = scanned(files, ["new", "id"], files_per_task=files_per_task)
        assert got == [{"new": row["new"], "id": row["id"]} for row in expected]


def test_every_policy_is_that_of_one_scan_and_conflicts_are_raised_by_the_driver(
    tmp_path, monkeypatch
):
    pytest.importorskip("pyspark")
    tables = [
        {"a": [1], "x": [1], "s": [{"p": 1}], "t": pa.array([1], pa.timestamp("us"))},
        {"a": [2.5], "s": [{"p": 2, "q": 3}], "t": pa.array([2], pa.timestamp("us", "UTC"))},
        {"a": ["3"], "x": pa.array([2**40]), "y": [None], "s": [{"q": 4}]},
        {"x": pa.array([7], pa.int32()), "y": ["t"]},
    ]
    files = []
    for i, table in enumerate(tables):
        files.append(tmp_path / f"{i}.parquet")
        pq.write_table(pa.table({"k": [i], **table}), files[-1])
    policies = [
        {"lossy": "drop", "zone": "drop"},
        {"lossy": "null", "zone": "cast"},
        {"lossy": "cast", "zone": "drop", "missing": "drop"},
        {"lossy": "drop", "zone": "cast", "struct_field": "drop", "widen": "drop"},
        {"lossy": "error"},
        {"lossy": "drop", "missing": "error"},
    ]
    for policy in policies:
        for grouped in (None, 1, 2, 3):
            by_job(monkeypatch, grouped)
            try:
                expected = pa.table(plait.scan(files, policy=policy)).to_pylist()
            except plait.PlaitError as error:
                with pytest.raises(type(error)) as caught:
                    scanned(files, policy=policy, files_per_task=2)
                assert str(caught.value) == str(error)
                continue
            got = [
                row
                for files_per_task in (1, 3)
                for row in scanned(files, policy=policy, files_per_task=files_per_task)
            ]
            plain = [{n: histories.plain(v) for n, v in row.items()} for row in expected]
            assert [list(row) for row in got] == [list(row) for row in plain + plain], policy
            for name in ("k", "a", "x", "y", "s"):
                values = [row[name] for row in plain if name in row]
                assert [row[name] for row in got if name in row] == values + values, (policy, name)
    files[1].write_bytes(b"PAR1 this is no file PAR1")
    for grouped in (None, 1):
        by_job(monkeypatch, grouped)
        with pytest.raises(plait.CorruptSource, match=r"1\.parquet"):
            scanned(files)


def check_spark(rng, table, monkeypatch):
    now = table.schema()
    given = histories.arrow(now)
    options = {"schema": given, "policy": DROPPED}
    columns = projections(rng, table)
    expected = histories.rows(pa.table(plait.scan(table.files, columns, **options)))
    by_job(monkeypatch, rng.randint(1, 3) if rng.random() < 0.5 else None)
    got = scanned(table.files, columns, files_per_task=rng.randint(1, 3), **options)
    assert got == expected
    key = table.key.name
    plain = [c.name for c in table.columns if table.is_plain(c) and c is not table.key]
    chosen = rng.sample(plain, rng.randint(0, len(plain)))
    whole = [c.name for c in table.columns if not c.members and c.name in chosen]
    try:
        found = formatted(
            table.files,
            sort_by=key,
            columns=",".join([key, *chosen]),
            where=f"{key} >= 50",
            on_duplicate="keep_last",
            part_rows=str(rng.choice([2, 5, 1000])),
        )
    except (*REFUSED, plait.UnsortedSource) as refused:
        return is_refused_rightly(table, refused)
    if not table.is_plain(table.key):
        # Without a schema the name is the column that the first file calls so.
        return True
    expected = by_key(histories.rows(histories.read(table.files, now)), key)
    expected = [row for row in expected if row[key] >= 50]
    names = [key, *whole]
    picked = [[row[name] for name in names] for row in found]
    return picked == [[row[name] for name in names] for row in expected]


def test_random_histories_are_read_alike_by_the_tasks_of_spark(tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    for seed in range(CASES):
        rng = random.Random(f"spark {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        table = histories.history(rng, folder)
        try:
            assert check_spark(rng, table, monkeypatch)
        except BaseException:
            print(f"seed {seed}: {[str(p) for p in table.files]} {table.schema()}")
            raise
        shutil.rmtree(folder)


# On Spark --------------------------------------------------------------------------------------

SPARK_CASES = int(os.environ.get("PLAIT_FIELD_ID_SPARK_CASES", "3"))


def in_spark(column):
    """A column with its id, as Spark finds columns by id."""
    from pyspark.sql import types as st

    struct = st.StructType([in_spark(member) for member in column.members])
    made = {
        "long": st.LongType(),
        "text": st.StringType(),
        "double": st.DoubleType(),
        "struct": struct,
        "list": st.ArrayType(st.LongType()),
        "list of structs": st.ArrayType(struct),
        "map of structs": st.MapType(st.StringType(), struct),
    }
    return st.StructField(column.name, made[column.kind], True, {"parquet.field.id": column.id})


def of_rows(found):
    """Rows of Spark as plain values."""

    def plain(value):
        if isinstance(value, tuple):  # a row
            return plain(value.asDict())
        if isinstance(value, list):
            return [plain(item) for item in value]
        return value

    rows = []
    for row in found:
        values = row.asDict()
        for name, value in values.items():
            if isinstance(value, dict):  # a map
                values[name] = [(key, plain(item)) for key, item in sorted(value.items())]
            else:
                values[name] = plain(value)
        rows.append({name: histories.plain(value) for name, value in values.items()})
    return rows


@pytest.mark.spark
def test_random_histories_are_read_as_spark_reads_them_by_id(tmp_path, spark):
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import types as st

    from plait import spark as ps

    ps.register(spark)
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    try:
        for seed in range(SPARK_CASES):
            rng = random.Random(f"on spark {seed}")
            folder = tmp_path / str(seed)
            folder.mkdir()
            table = histories.history(rng, folder)
            print(f"seed {seed}: {[str(p) for p in table.files]} {table.schema()}")
            key = table.key.name
            files = [str(path) for path in table.files]
            schema = st.StructType([in_spark(column) for column in table.columns])
            try:
                read = spark.read.schema(schema).parquet(*files).collect()
            except (PySparkException, Py4JJavaError) as refused:
                # A dropped map whose name another column has: Spark's own reader refuses the file.
                assert "Invalid Spark read type: expected optional group" in str(refused), refused
                continue
            expected = by_key(of_rows(read), key)
            now = table.schema()
            assert by_key(histories.rows(histories.read(table.files, now)), key) == expected
            given = histories.arrow(now)
            options = {"schema": given, "policy": DROPPED, "files_per_task": 2}
            names = rng.sample([c.name for c in table.columns], len(table.columns))
            names = [key, *[name for name in names if name != key]]
            found = by_key(of_rows(ps.scan(spark, files, names, **options).collect()), key)
            assert found == [{name: row[name] for name in names} for row in expected]
            if not table.is_plain(table.key):
                continue
            frame = spark.read.format("plait").options(
                sort_by=key, paths=json.dumps(files), columns=key, on_duplicate="keep_last"
            )
            keys = [row[key] for row in expected]
            try:
                got = [row[key] for row in frame.load().where(f"{key} >= 50").collect()]
            except PySparkException as refused:
                assert "field ids" in str(refused), refused
                continue
            assert got == [number for number in keys if number >= 50]
    finally:
        spark.conf.unset("spark.sql.parquet.fieldId.read.enabled")
