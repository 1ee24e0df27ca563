"""One schema over files that drift: recorded cases, pairs in both orders, limits, static columns."""

import datetime as dt
import decimal
import importlib.util
import inspect
import json
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main
from plait.cli._options import parser

CASES_DIR = Path(__file__).parent.parent / "cases"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, CASES_DIR / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = _load("batches")
CASES = json.loads((CASES_DIR / "scan.json").read_text())["cases"]


@pytest.fixture
def write(tmp_path):
    """Writes tables as files named in order; gives their paths."""

    def write(*tables, **options):
        paths = []
        for table in tables:
            path = tmp_path / f"{len(list(tmp_path.iterdir())):02}.parquet"
            pq.write_table(table, path, **options)
            paths.append(path)
        return paths

    return write


def rows(scan):
    return [row for batch in scan.to_batches() for row in pa.record_batch(batch).to_pylist()]


def types(scan):
    return {field.name: field.type for field in pa.schema(scan.schema)}


def table_of(field, values):
    return pa.Table.from_arrays([pa.array(values, field.type)], schema=pa.schema([field]))


# Recorded cases -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']} {case['name']}")
def test_recorded_cases_give_the_recorded_schema_and_rows(case, write):
    tables = [pa.Table.from_batches([cases.build_batch(file)]) for file in case["files"]]
    paths = write(*tables)
    expect = case["expect"]
    if "error" in expect:
        for order in (paths, paths[::-1]):
            with pytest.raises(getattr(plait, expect["error"])) as caught:
                plait.scan(order, **case["args"])
            assert expect["column"] in str(caught.value)
        return
    scan = plait.scan(paths, **case["args"])
    wanted = cases.ser_batch(cases.build_batch(expect))
    table = pa.table(scan).combine_chunks()
    batch = (
        table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
    )
    got = cases.ser_batch(batch)
    assert got["rows"] == wanted["rows"]
    assert [field[:2] for field in got["schema"]] == [field[:2] for field in wanted["schema"]]
    for batch in plait.scan(paths, **case["args"]).to_batches():
        assert batch.schema.is_same(scan.schema) or batch.schema == scan.schema


# Pairs, in both orders ------------------------------------------------------------------------

FINE = {
    "int32 with int64": (pa.int32(), [1, None], pa.int64(), [2**40], pa.int64()),
    "int8 with uint8": (pa.int8(), [-1], pa.uint8(), [255], pa.int16()),
    "int32 with float64": (pa.int32(), [2**31 - 1], pa.float64(), [0.5], pa.float64()),
    "float32 with float64": (pa.float32(), [0.5], pa.float64(), [1e300], pa.float64()),
    "null type with text": (pa.null(), [None], pa.string(), ["x"], pa.string()),
    "null type with list": (pa.null(), [None], pa.list_(pa.int32()), [[1]], pa.list_(pa.int32())),
    "list elements widen": (
        pa.list_(pa.int32()),
        [[1, None], None, []],
        pa.list_(pa.int64()),
        [[2**40]],
        pa.list_(pa.int64()),
    ),
    "list with large list": (
        pa.list_(pa.int32()),
        [[1], None],
        pa.large_list(pa.int32()),
        [[2], []],
        pa.large_list(pa.int32()),
    ),
    "decimals": (
        pa.decimal128(10, 2),
        [decimal.Decimal("12345678.91")],
        pa.decimal128(12, 4),
        [decimal.Decimal("12345678.9123")],
        pa.decimal128(12, 4),
    ),
    "decimals to enough digits": (
        pa.decimal128(10, 0),
        [decimal.Decimal(9999999999)],
        pa.decimal128(12, 6),
        [decimal.Decimal("0.000001")],
        pa.decimal128(16, 6),
    ),
    "milliseconds with microseconds": (
        pa.timestamp("ms"),
        [dt.datetime(2024, 1, 2, 3, 4, 5, 6000)],
        pa.timestamp("us"),
        [dt.datetime(2024, 1, 2, 3, 4, 5, 7)],
        pa.timestamp("us"),
    ),
    "text with large text": (pa.string(), ["x"], pa.large_string(), ["y"], pa.large_string()),
    "dictionary with plain": (
        pa.dictionary(pa.int32(), pa.string()),
        ["x", None],
        pa.string(),
        ["y"],
        pa.string(),
    ),
    "struct fields": (
        pa.struct({"x": pa.int32(), "y": pa.string()}),
        [{"x": 1, "y": "u"}, None],
        pa.struct({"z": pa.bool_(), "x": pa.int64()}),
        [{"z": True, "x": 2**40}],
        None,
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_types_that_meet_give_every_value_in_both_orders(name, write):
    a_type, a, b_type, b, both = FINE[name]
    [first, second] = write(
        pa.table({"a": pa.array(a, a_type)}), pa.table({"a": pa.array(b, b_type)})
    )

    def whole(values):
        keys = ("x", "y", "z") if name == "struct fields" else None
        return [{k: v.get(k) for k in keys} if keys and v else v for v in values]

    for order, values in (([first, second], a + b), ([second, first], b + a)):
        scan = plait.scan(order)
        assert [row["a"] for row in rows(scan)] == whole(values)
        if both is not None:
            assert types(scan)["a"] == both
    assert plait.scan([first, second]).fingerprint == plait.scan([second, first]).fingerprint


CONFLICTS = {
    "int64 with float64": (pa.int64(), 2**53 + 1, pa.float64(), 0.5, "int64", "double"),
    "number with text": (pa.int32(), 1, pa.string(), "x", "int32", "string"),
    "uint64 with signed": (pa.uint64(), 2**63, pa.int8(), -1, "uint64", "int8"),
    "scalar with list": (pa.int64(), 1, pa.list_(pa.int64()), [1], "int64", "list<"),
    "scalar with struct": (
        pa.int64(),
        1,
        pa.struct({"x": pa.int64()}),
        {"x": 1},
        "int64",
        "struct<",
    ),
    "naive with UTC": (
        pa.timestamp("us"),
        1,
        pa.timestamp("us", "UTC"),
        1,
        "timestamp[us]",
        "tz=UTC",
    ),
    "date with timestamp": (pa.date32(), 1, pa.timestamp("us"), 1, "date32[day]", "timestamp[us]"),
    "text with binary": (pa.string(), "x", pa.binary(), b"\xff", "string", "binary"),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_types_that_do_not_meet_are_told_before_the_first_row(name, write):
    a_type, a, b_type, b, a_says, b_says = CONFLICTS[name]
    paths = write(pa.table({"a": pa.array([a], a_type)}), pa.table({"a": pa.array([b], b_type)}))
    for order in (paths, paths[::-1]):
        with pytest.raises(plait.SchemaConflict) as caught:
            plait.scan(order)
        for part in (a_says, b_says, *map(str, paths), "`a`"):
            assert part in str(caught.value)


def test_all_conflicts_are_told_at_once(write):
    inner = pa.struct({"x": pa.int64()})
    paths = write(
        pa.table({"a": [1], "b": ["x"], "m": pa.array([{"x": 1}], inner), "ok": [1]}),
        pa.table({"a": ["x"], "b": [1], "m": [{"x": "u"}], "ok": [2]}),
    )
    with pytest.raises(plait.SchemaConflict) as caught:
        plait.scan(paths)
    assert "3 schema conflicts" in str(caught.value)
    assert all(f"`{name}`" in str(caught.value) for name in ("a", "b", "m.x"))
    assert rows(plait.scan(paths, ["ok"])) == [{"ok": 1}, {"ok": 2}]


@pytest.mark.parametrize("nullable", [True, False])
def test_nullability_follows_from_all_files(write, nullable):
    never = pa.field("a", pa.int32(), nullable=False)
    paths = write(
        table_of(never, [1]),
        table_of(never.with_nullable(nullable), [2]),
    )
    assert pa.schema(plait.scan(paths).schema).field("a").nullable == nullable
    paths += write(pa.table({"k": pa.array([], pa.int32())}))
    assert pa.schema(plait.scan(paths).schema).field("a").nullable == nullable, "no row is null"
    paths += write(pa.table({"k": pa.array([1], pa.int32())}))
    assert pa.schema(plait.scan(paths).schema).field("a").nullable


def test_files_without_rows_and_without_columns_count(write):
    no_columns = pa.table({"a": [1, 2]}).select([])
    paths = write(pa.table({"a": pa.array([], pa.int64())}), pa.table({"a": [7]}), no_columns)
    assert rows(plait.scan(paths)) == [{"a": 7}]
    [empty] = plait.scan(paths[:1]).to_batches()
    assert (len(empty), pa.schema(empty.schema)) == (0, pa.schema({"a": pa.int64()}))


def test_no_source_is_an_error(tmp_path):
    with pytest.raises(plait.InvalidArgument, match="no sources"):
        plait.scan([])
    with pytest.raises(plait.SourceNotFound):
        plait.scan(tmp_path / "absent.parquet")


# Policies -------------------------------------------------------------------------------------


def test_a_lossy_cast_that_meets_a_value_that_does_not_fit_names_it(write):
    paths = write(
        pa.table({"k": pa.array(range(20_000)), "a": pa.array([0.5] * 20_000)}),
        pa.table({"k": pa.array(range(20_000)), "a": pa.array([*range(19_999), 2**53 + 1])}),
    )
    scan = plait.scan(paths, policy={"lossy": "cast"})
    with pytest.raises(plait.LossyCast) as caught:
        list(scan.to_batches())
    error = caught.value
    assert (error.path, error.column, error.row) == (str(paths[1]), "a", 19_999)
    assert "9007199254740993" in str(error)
    values = [row["a"] for row in rows(plait.scan(paths, ["a"], policy={"lossy": "null"}))]
    assert values[-2:] == [19_998.0, None]


def test_lossy_casts_inside_of_lists_and_structs_name_the_path(write):
    inner = [[{"x": 1}], [{"x": 2**53 + 1}]]
    paths = write(pa.table({"l": [[{"x": 0.5}]]}), pa.table({"l": inner}))
    with pytest.raises(plait.LossyCast) as caught:
        rows(plait.scan(paths, policy={"lossy": "cast"}))
    assert (caught.value.row, caught.value.column) == (1, "l[].x")


POLICIES = [
    ({"missing": "error"}, plait.SchemaConflict),
    ({"missing": "drop"}, ["a"]),
    ({"widen": "error"}, plait.SchemaConflict),
    ({"widen": "drop"}, ["b"]),
    ({"lossy": "drop"}, ["a", "b"]),
    ({"nullability": "error"}, ["a", "b"]),
    ({"missing": "cast"}, plait.InvalidArgument),
    ({"mising": "null"}, plait.InvalidArgument),
]


@pytest.mark.parametrize(("policy", "outcome"), POLICIES, ids=str)
def test_policies_do_what_they_say(policy, outcome, write):
    paths = write(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}), pa.table({"a": [2]}))
    if isinstance(outcome, list):
        assert plait.scan(paths, policy=policy).schema.names == outcome
        assert len(rows(plait.scan(paths, policy=policy))) == 2
    else:
        with pytest.raises(outcome):
            plait.scan(paths, policy=policy)


def test_conflicts_can_be_allowed_or_dropped(write):
    when = dt.datetime(2024, 1, 1, 12)
    paths = write(
        pa.table({"n": [1], "t": pa.array([when], pa.timestamp("us")), "d": [when.date()]}),
        pa.table({"n": ["x"], "t": pa.array([when], pa.timestamp("us", "UTC")), "d": [when]}),
    )
    scan = plait.scan(paths, policy={"lossy": "cast", "zone": "cast"})
    assert types(scan) == {
        "n": pa.string(),
        "t": pa.timestamp("us", "UTC"),
        "d": pa.timestamp("us"),
    }
    assert [row["n"] for row in rows(scan)] == ["1", "x"]
    assert plait.scan(paths, policy={"lossy": "drop", "zone": "drop"}).schema.names == []


def test_struct_fields_have_a_policy_of_their_own(write):
    paths = write(pa.table({"m": [{"x": 1}]}), pa.table({"m": [{"x": 2, "y": "u"}]}))
    assert rows(plait.scan(paths, policy={"struct_field": "drop"})) == [
        {"m": {"x": 1}},
        {"m": {"x": 2}},
    ]
    with pytest.raises(plait.SchemaConflict, match=r"`m\.y`"):
        plait.scan(paths, policy={"struct_field": "error"})


# Given schemas --------------------------------------------------------------------------------


def test_a_given_schema_wins_and_knows_defaults(write):
    paths = write(pa.table({"a": pa.array([1], pa.int32()), "x": ["u"]}), pa.table({"a": [None]}))
    given = pa.schema(
        [
            pa.field("b", pa.int16(), nullable=False, metadata={"plait.default": "7"}),
            pa.field("a", pa.int64()),
        ]
    )
    assert rows(plait.scan(paths[:1], schema=given)) == [{"b": 7, "a": 1, "x": "u"}]
    assert plait.scan(paths, schema=given, policy={"extra": "drop"}).schema.names == ["b", "a"]
    with pytest.raises(plait.SchemaConflict, match="`x` is not in the given schema"):
        plait.scan(paths, schema=given, strict=True)


@pytest.mark.parametrize(
    "field",
    [
        pa.field("a", pa.int16()),
        pa.field("a", pa.string()),
        pa.field("a", pa.int64(), nullable=False),
    ],
    ids=str,
)
def test_files_that_do_not_fit_the_given_schema_are_told(write, field):
    paths = write(pa.table({"a": [1, 2, 70_000]}))
    with pytest.raises(plait.SchemaConflict, match="given schema"):
        plait.scan(paths, schema=pa.schema([field]))


def test_nulls_in_a_column_declared_never_null_are_found(write):
    given = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    good, bad = write(pa.table({"a": [1, 2]}), pa.table({"a": [3, None]}))
    policy = {"nullability": "cast"}
    assert rows(plait.scan(good, schema=given, policy=policy)) == [{"a": 1}, {"a": 2}]
    with pytest.raises(plait.LossyCast) as caught:
        rows(plait.scan([good, bad], schema=given, policy=policy))
    assert (caught.value.path, caught.value.row) == (str(bad), 1)


def test_a_missing_column_that_is_never_null_needs_a_default(write):
    given = pa.schema([pa.field("b", pa.int64(), nullable=False)])
    with pytest.raises(plait.SchemaConflict, match="without a default"):
        plait.scan(write(pa.table({"a": [1]})), schema=given)


def test_columns_are_matched_by_field_id_when_all_files_have_ids(write):
    def field(name, number):
        return pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})

    paths = write(
        pa.Table.from_arrays(
            [pa.array([1]), pa.array([2])], schema=pa.schema([field("a", 1), field("b", 2)])
        ),
        pa.Table.from_arrays(
            [pa.array([3]), pa.array([4])], schema=pa.schema([field("b", 1), field("c", 2)])
        ),
    )
    assert rows(plait.scan(paths)) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    paths += write(pa.table({"a": [5]}))
    assert plait.scan(paths).schema.names == ["a", "b", "c"]


def test_the_memory_limit_bounds_what_is_read_ahead(write):
    big = pa.table({f"c{i}": range(i, 200_000 + i) for i in range(8)})
    paths = write(*[big] * 4, compression="none", use_dictionary=False)
    scans = {limit: plait.scan(paths, memory_limit=limit) for limit in ("16MiB", "512MB")}
    read = {}
    for limit, scan in scans.items():
        batches = [pa.record_batch(batch) for batch in scan.to_batches()]
        read[limit] = pa.Table.from_batches(batches)
        assert max(batch.nbytes for batch in batches) <= 2 << 20
    assert read["16MiB"] == read["512MB"] == pa.concat_tables([big] * 4)
    few, many = (scan.report.peak_bytes for scan in scans.values())
    assert 0 < few <= 16 << 20 < many <= 512_000_000
    with pytest.raises(plait.InvalidArgument, match="memory_limit"):
        plait.scan(paths, memory_limit="1MB")


# Projection -----------------------------------------------------------------------------------

NESTED = pa.table(
    {
        "k": [1, 2],
        "m": pa.array([{"x": 1, "y": "u"}, None], pa.struct({"x": pa.int64(), "y": pa.string()})),
        "l": [[{"b": 1, "c": "u"}], None],
        "a.b": [5, 6],
    }
)


@pytest.mark.behaviour("scan-16", "scan-17", "scan-20")
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["m.y", "k"], [{"m": {"y": "u"}, "k": 1}, {"m": None, "k": 2}]),
        (["m.y", "m.x"], [{"m": {"y": "u", "x": 1}}, {"m": None}]),
        (["m.x", "m"], [{"m": {"x": 1, "y": "u"}}, {"m": None}]),
        (["l.c"], [{"l": [{"c": "u"}]}, {"l": None}]),
        (["l[1]"], [{"l": [{"b": 1, "c": "u"}]}, {"l": None}]),
        (["a.b"], [{"a.b": 5}, {"a.b": 6}]),
        (["`a.b`", "k", "k"], [{"a.b": 5, "k": 1}, {"a.b": 6, "k": 2}]),
        (["_row_number", "k"], [{"_row_number": 0, "k": 1}, {"_row_number": 1, "k": 2}]),
        ([], [{}, {}]),
    ],
    ids=str,
)
def test_columns_come_as_asked(write, columns, expected):
    found = rows(plait.scan(write(NESTED), columns))
    assert found == expected
    assert [list(row) for row in found] == [list(row) for row in expected]


@pytest.mark.behaviour("scan-19")
def test_a_star_is_everything_that_is_not_named(write):
    [path] = write(NESTED)
    scan = plait.scan(path, ["_filename", "*", "m.x"], static={"s": "eu"})
    assert scan.schema.names == ["_filename", "k", "l", "a.b", "s", "m"]
    assert rows(scan)[0]["_filename"] == path.name
    scan = plait.scan(path, ["l", "k", "s", "m"], static={"s": 7})
    assert scan.schema.names == ["l", "k", "s", "m"]
    assert rows(scan)[1]["s"] == 7


@pytest.mark.behaviour("scan-18")
@pytest.mark.parametrize("columns", ["k.x", "k[0]", "m[1]", "m.x.y"])
def test_a_form_that_the_type_does_not_have_is_refused(write, columns):
    with pytest.raises(plait.ProjectionError) as caught:
        plait.scan(write(NESTED), columns)
    assert "type" in str(caught.value)
    assert caught.value.column is not None


def test_unknown_columns_are_refused_or_null(write):
    paths = write(NESTED)
    for columns in (["z"], ["m.z"], ["l.z"]):
        with pytest.raises(plait.UnknownColumn, match="z"):
            plait.scan(paths, columns)
    scan = plait.scan(paths, ["z", "m.z", "k"], missing="null")
    assert rows(scan) == [{"z": None, "m": {"z": None}, "k": 1}, {"z": None, "m": None, "k": 2}]
    with pytest.raises(plait.InvalidPath):
        plait.scan(paths, ["m["])


def test_a_member_that_one_file_lacks_is_null_there(write):
    paths = write(NESTED, pa.table({"m": [{"y": "v"}, None]}))
    assert rows(plait.scan(paths, ["m.x"])) == [
        {"m": {"x": 1}},
        {"m": None},
        {"m": {"x": None}},
        {"m": None},
    ]


def test_names_can_be_told_apart_by_case_or_not(write):
    paths = write(pa.table({"Id": [1]}), pa.table({"id": [2]}))
    assert rows(plait.scan(paths, case="insensitive")) == [{"Id": 1}, {"Id": 2}]
    assert plait.scan(paths).schema.names == ["Id", "id"]


# Static columns -------------------------------------------------------------------------------


def test_folders_are_columns_with_inferred_or_declared_types(tmp_path):
    for folder in ("y=2024/d=2024-01-02/r=07", "y=2023/d=2024-01-03/r=a%20b"):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(pa.table({"a": [1]}), tmp_path / folder / "f.parquet")
    scan = plait.scan(tmp_path, partitions="hive")
    assert types(scan) == {
        "a": pa.int64(),
        "y": pa.int64(),
        "d": pa.date32(),
        "r": pa.string(),
    }
    assert sorted((row["y"], str(row["d"]), row["r"]) for row in rows(scan)) == [
        (2023, "2024-01-03", "a b"),
        (2024, "2024-01-02", "07"),
    ]
    declared = plait.scan(tmp_path, partitions="hive", partition_types={"y": "int16"})
    assert types(declared)["y"] == pa.int16()
    with pytest.raises(plait.InvalidArgument, match=r"07|a b"):
        rows(plait.scan(tmp_path, partitions="hive", partition_types={"r": "int32"}))
    dirs = plait.scan(tmp_path, partitions="dirs", root=tmp_path)
    assert dirs.schema.names == ["a", "dir0", "dir1", "dir2"]
    assert {row["dir0"] for row in rows(dirs)} == {"y=2023", "y=2024"}


@pytest.mark.behaviour("scan-23")
def test_folders_count_from_the_one_that_was_named_whatever_files_it_has(tmp_path, monkeypatch):
    def add(place):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": [1]}), tmp_path / place)

    def dirs(named, **options):
        scan = plait.scan(named, partitions="dirs", **options)
        return [tuple(v for n, v in row.items() if n != "a") for row in rows(scan)]

    monkeypatch.chdir(tmp_path)
    add("lake/2024/01/a.parquet")
    for named in ("lake", "./lake/", tmp_path / "lake", ["lake"], "lake/*/*/*.parquet"):
        assert dirs(named) == [("2024", "01")], named
    assert dirs("lake/2024") == dirs("lake/2024/*/a.parquet") == [("01",)]
    add("lake/2025/b.parquet")
    assert dirs("lake") == [("2024", "01"), ("2025", None)]
    # Each folder counts for itself, and `root` for all.
    assert dirs(["lake/2024", "lake/2025"]) == [("01",), (None,)]
    both = [("2024", "01"), ("2025", None)]
    assert dirs(["lake/2024", "lake/2025"], root="lake/") == both
    file = "lake/2024/01/a.parquet"
    with pytest.raises(plait.InvalidArgument, match="counts from a folder"):
        plait.scan(file, partitions="dirs")
    assert dirs(file, root="lake") == [("2024", "01")]
    with pytest.raises(plait.InvalidArgument, match="not below `root`"):
        plait.scan(file, partitions="dirs", root="elsewhere")
    # Outputs of a compaction lie below `_plait/files`, which is no folder of the data.
    add("lake/2025/c.parquet")
    plait.compact("lake", sort_by="a", yes=True)
    assert sorted(map(str, dirs("lake"))) == ["('2024', '01')", "('2025', None)", "('2025', None)"]


def test_static_columns_tell_where_rows_are_from(write):
    paths = write(pa.table({"a": [1, 2]}), pa.table({"a": [3]}))
    scan = plait.scan(paths, static={"s": None, "f": 0.5}, implicit=["_path", "_row_number"])
    assert scan.schema.names == ["a", "s", "f", "_path", "_row_number"]
    assert rows(scan)[2] == {"a": 3, "s": None, "f": 0.5, "_path": str(paths[1]), "_row_number": 0}
    with pytest.raises(plait.InvalidArgument, match="name of a column"):
        plait.scan(paths, static={"a": 1})
    with pytest.raises(plait.InvalidArgument):
        plait.scan(paths, implicit=["_owner"])


# Batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "opened"), [(0, 0), (1, 1), (50, 1), (75, 2), (125, 2)])
def test_a_limit_opens_only_what_it_needs(write, limit, opened):
    paths = write(*(pa.table({"a": range(i, i + 50)}) for i in (0, 50)))
    scan = plait.scan(paths, limit=limit)
    assert [row["a"] for row in rows(scan)] == list(range(min(limit, 100)))
    assert scan.report.sources_opened == opened
    assert scan.report.rows == min(limit, 100)


@pytest.mark.behaviour("scan-39")
def test_batches_are_bounded_in_rows_and_bytes(write):
    big = "x" * 300_000
    paths = write(pa.table({"t": ["a", big, "b", "c", big + big, "d"] * 3}))
    batches = list(plait.scan(paths, batch_bytes="256KiB").to_batches())
    texts = [pa.record_batch(batch).column("t").to_pylist() for batch in batches]
    assert [text for part in texts for text in part] == ["a", big, "b", "c", big + big, "d"] * 3
    assert all(len(part) == 1 or len("".join(part)) < 2**18 for part in texts)
    assert ["b", "c"] in texts, "small rows stay together"
    paths = write(pa.table({"a": range(10_000)}))
    assert [len(b) for b in plait.scan(paths).to_batches()] == [8192, 1808]
    assert max(len(b) for b in plait.scan(paths, batch_rows=7).to_batches()) == 7
    for wrong in (
        {"batch_rows": 0},
        {"batch_rows": 2**20 + 1},
        {"batch_bytes": 2**18 - 1},
        {"batch_bytes": 2**31},
    ):
        with pytest.raises(plait.InvalidArgument):
            plait.scan(paths, **wrong)


def test_no_columns_keep_the_number_of_rows(write):
    paths = write(pa.table({"a": range(10_000)}), pa.table({"b": [1]}))
    assert sum(len(batch) for batch in plait.scan(paths, []).to_batches()) == 10_001
    assert [row["_row_number"] for row in rows(plait.scan(paths, ["_row_number"]))][-2:] == [
        9999,
        0,
    ]


def test_rows_do_not_depend_on_threads(write):
    paths = write(
        *(pa.table({"a": range(i, i + 1000)}) for i in range(0, 30_000, 1000)), row_group_size=300
    )
    expected = list(range(30_000))
    for threads in (1, 2, 7):
        assert [row["a"] for row in rows(plait.scan(paths, threads=threads))] == expected


def test_buffers_of_columns_that_stay_are_shared():
    column = pa.array(range(1000), type=pa.int64())
    [batch] = plait.scan(pa.record_batch({"a": column})).to_batches()
    assert pa.record_batch(batch).column(0).buffers()[1].address == column.buffers()[1].address


# Streams --------------------------------------------------------------------------------------


def test_files_and_streams_mix(write):
    paths = write(pa.table({"a": pa.array([1], pa.int32())}), pa.table({"b": ["x"]}))
    stream = pa.table({"a": [2**40]}).to_reader()
    scan = plait.scan([paths[0], stream, paths[1]], implicit=["_file_index"])
    assert rows(scan) == [
        {"a": 1, "b": None, "_file_index": 0},
        {"a": 2**40, "b": None, "_file_index": 1},
        {"a": None, "b": "x", "_file_index": 2},
    ]
    with pytest.raises(plait.InvalidArgument, match="read before"):
        rows(scan)


def test_a_stream_that_drifts_beyond_the_resolved_schema_is_refused_by_name(write):
    batches = iter([pa.record_batch({"a": [1]}), pa.record_batch({"a": ["x"]})])
    scan = plait.scan([batches, *write(pa.table({"a": [2]}))])
    with pytest.raises(plait.SchemaConflict) as caught:
        rows(scan)
    assert caught.value.path == "<stream 0>"


# Files that change, reports -------------------------------------------------------------------


def test_a_file_that_changed_since_it_was_resolved_is_refused(write):
    paths = write(pa.table({"a": [1]}), pa.table({"a": [2]}))
    scan = plait.scan(paths)
    pq.write_table(pa.table({"a": ["other"]}), paths[1])
    with pytest.raises(plait.SourceChanged) as caught:
        rows(scan)
    assert caught.value.path == str(paths[1])


def test_damage_is_named(write):
    paths = write(pa.table({"a": [1]}), pa.table({"a": range(1000)}))
    data = bytearray(paths[1].read_bytes())
    data[40:400] = bytes(360)
    paths[1].write_bytes(data)
    with pytest.raises(plait.CorruptSource) as caught:
        rows(plait.scan(paths))
    assert caught.value.path == str(paths[1])


def test_reports_and_explanations_say_what_happens(write):
    paths = write(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}), pa.table({"a": [2]}))
    scan = plait.scan(paths)
    assert scan.report.seen == {"a": 2, "b": 1}
    assert (scan.report.schemas, scan.report.rows_known, scan.report.rows) == (2, 2, 0)
    rows(scan)
    assert (scan.report.rows, scan.report.sources_skipped) == (2, 0)
    [first, second] = scan.adapters
    assert first.columns == (("a", "cast #0 int32 -> int64"), ("b", "take #1"))
    assert second.columns == (("a", "take #0"), ("b", "null"))
    assert "cast #0 int32 -> int64" in scan.explain()
    assert len(scan.fingerprint) == 32


def test_the_command_line_prints_schemas_plans_and_reports(write, capsys):
    paths = [str(path) for path in write(pa.table({"a": [1, 2]}), pa.table({"b": ["x"]}))]
    assert main(["scan", *paths, "--schema", "--json", "--static", "r=eu"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in told["columns"]] == ["a", "b", "r"]
    assert told["fingerprint"] == plait.scan(paths, static={"r": "eu"}).fingerprint
    assert main(["scan", *paths, "--explain"]) == 0
    assert "null" in capsys.readouterr().out
    assert main(["scan", *paths, "--explain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["columns"] == [["a", "null"], ["b", "take #0"]]
    assert main(["scan", *paths, "--limit", "1", "--json", "--policy", "missing=null"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1
    assert main(["scan", *paths, "--columns", "z"]) == 3
    assert "`z`" in capsys.readouterr().err


def test_every_option_of_a_scan_is_a_flag():
    [scan] = [a.choices["scan"] for a in parser()._actions if isinstance(a.choices, dict)]
    flags = {flag for action in scan._actions for flag in action.option_strings}
    # Batches of streams alone are validated, and a shell gives files.
    names = set(inspect.signature(plait.scan).parameters) - {"sources", "validate"}
    assert {"--" + name.replace("_", "-") for name in names} <= flags
