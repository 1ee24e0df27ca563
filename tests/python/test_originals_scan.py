"""The scenarios of the scan orchestrator's own tests, written from their descriptions.

A reader of an early schema tells its columns before its first row: a reader of Arrow batches. One of
a late schema tells them with its rows: a generator. Readers follow one another.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

A = pa.field("a", pa.int32(), nullable=False)
B = pa.field("b", pa.string(), nullable=False)
FRED = [[1, 2], ["fred", "wilma"]]


def maybe(field):
    return field.with_nullable(True)


def table(fields, columns):
    arrays = [pa.array(values, field.type) for field, values in zip(fields, columns)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def early(fields, columns):
    return table(fields, columns).to_reader()


def late(fields, columns):
    yield from table(fields, columns).to_batches()


def select(columns, *readers, **options):
    """The schema of each batch, the rows of all, and how often the schema changed."""
    scan = plait.scan(list(readers), columns, mode="follow", **options)
    batches = [pa.record_batch(batch) for batch in scan.to_batches()]
    rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return [batch.schema for batch in batches], rows, len(scan.report.changes)


KINDS = pytest.mark.parametrize("reader", [early, late])


# Early and late schema ------------------------------------------------------------------------


@pytest.mark.behaviour("scan-01")
@KINDS
@pytest.mark.parametrize("columns", [None, "*", ["*"], ["a", "b"]], ids=str)
def test_all_columns_by_wildcard_and_by_name(reader, columns):
    schemas, rows, changes = select(columns, reader([A, B], FRED))
    assert (schemas, changes) == ([pa.schema([A, B])], 0)
    assert rows == [(1, "fred"), (2, "wilma")]


@pytest.mark.behaviour("scan-02")
@KINDS
def test_columns_come_in_the_order_of_the_select_list(reader):
    schemas, rows, _ = select(["b", "a"], reader([A, B], FRED))
    assert schemas == [pa.schema([B, A])]
    assert rows == [("fred", 1), ("wilma", 2)]


@pytest.mark.behaviour("scan-03")
@KINDS
def test_a_subset_of_the_columns_is_read(reader):
    schemas, rows, _ = select(["a"], reader([A, B], FRED))
    assert (schemas, rows) == ([pa.schema([A])], [(1,), (2,)])


@pytest.mark.behaviour("scan-04", "scan-05")
@KINDS
@pytest.mark.parametrize(("null_type", "made"), [(None, "null"), ("string", "string")])
def test_a_column_that_no_reader_has_is_null_of_the_null_type(reader, null_type, made):
    schemas, rows, _ = select(["a", "b", "c"], reader([A, B], FRED), null_type=null_type)
    assert [str(field.type) for field in schemas[0]] == ["int32", "string", made]
    assert schemas[0].field("c").nullable
    assert rows == [(1, "fred", None), (2, "wilma", None)]


@pytest.mark.behaviour("scan-06")
@KINDS
def test_a_select_list_may_share_one_column_with_the_table_or_none(reader):
    _, rows, _ = select(["a", "c"], reader([A, B], FRED))
    assert rows == [(1, None), (2, None)]
    _, rows, _ = select(["c"], reader([A, B], FRED))
    assert rows == [(None,), (None,)]


@pytest.mark.behaviour("scan-07")
@KINDS
def test_an_empty_select_list_counts_rows(reader):
    schemas, rows, _ = select([], reader([A, B], FRED))
    assert (schemas, rows) == ([pa.schema([])], [(), ()])


@pytest.mark.behaviour("scan-08")
def test_a_table_without_columns_has_rows_and_null_columns():
    rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    schemas, found, _ = select("*", rows)
    assert (schemas, found) == ([pa.schema([])], [(), ()])
    assert select(["a"], rows)[1] == [(None,), (None,)]


@pytest.mark.behaviour("scan-14")
@KINDS
def test_names_are_told_apart_by_case_unless_asked_otherwise(reader):
    upper = [pa.field("A", pa.int32(), nullable=False)]
    schemas, rows, changes = select(None, reader([A], [[1]]), reader(upper, [[2]]))
    assert ([schema.names for schema in schemas], changes) == ([["a"], ["A"]], 1)
    assert rows == [(1,), (2,)]
    readers = [reader([A], [[1]]), reader(upper, [[2]])]
    schemas, rows, changes = select(None, *readers, case="insensitive")
    assert ([schema.names for schema in schemas], changes) == ([["a"], ["a"]], 0)


@pytest.mark.behaviour("scan-09")
def test_the_batch_that_told_the_schema_is_the_first_that_is_given():
    pulled = []

    def reader():
        for i in range(2):
            pulled.append(i)
            yield from late([A, B], [[i], ["x"]])

    scan = plait.scan([reader()], mode="follow", batch_rows=1)
    assert scan.schema.names == ["a", "b"] and pulled == [0]
    assert [pa.record_batch(batch).to_pylist() for batch in scan.to_batches()] == [
        [{"a": 0, "b": "x"}],
        [{"a": 1, "b": "x"}],
    ]


@pytest.mark.behaviour("scan-11")
def test_readers_without_rows_are_passed_over_wherever_they_are():
    none = pa.schema([A, B]).empty_table().to_reader
    for readers in (
        [none(), early([A, B], FRED)],
        [early([A, B], FRED), none()],
        [[], none(), late([A, B], FRED), []],
    ):
        assert select(None, *readers)[1:] == ([(1, "fred"), (2, "wilma")], 0)
    scan = plait.scan([none()], mode="follow")
    assert scan.schema.names == ["a", "b"]
    assert sum(len(batch) for batch in scan.to_batches()) == 0


# File and partition columns -------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path):
    """`w/x/y/a.parquet` and `w/x/b.parquet`, below which `w` is the root."""
    (tmp_path / "w/x/y").mkdir(parents=True)
    fields = [A, maybe(B)]
    pq.write_table(table(fields, [[10, 20], ["fred", "wilma"]]), tmp_path / "w/x/y/a.parquet")
    pq.write_table(table(fields, [[30, 40], ["bambam", "betty"]]), tmp_path / "w/x/b.parquet")
    return tmp_path / "w"


MODES = pytest.mark.parametrize("mode", ["resolve", "follow"])


def files(lake, columns, mode, names=("x/y/a.parquet",), **options):
    paths = [lake / name for name in names]
    scan = plait.scan(paths, columns, mode=mode, partitions="dirs", root=lake, **options)
    batches = [pa.record_batch(batch) for batch in scan.to_batches()]
    assert len({batch.schema.to_string() for batch in batches}) == 1
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.behaviour("scan-21")
@MODES
def test_a_wildcard_and_every_file_and_partition_column(lake, mode):
    columns = ["*", "_path", "_folder", "_filename", "dir0", "dir1"]
    path = lake / "x/y/a.parquet"
    of_file = (str(path), str(path.parent), "a.parquet", "x", "y")
    rows = files(lake, columns, mode)
    assert rows == [(10, "fred", *of_file), (20, "wilma", *of_file)]


@pytest.mark.behaviour("scan-25")
@MODES
def test_file_and_partition_columns_are_read_without_any_column_of_the_file(lake, mode):
    assert files(lake, ["_filename", "dir1"], mode) == [("a.parquet", "y")] * 2


@pytest.mark.behaviour("scan-26")
@MODES
def test_partition_table_file_and_null_columns_mix_in_any_order(lake, mode):
    missing = {"missing": "null"} if mode == "resolve" else {"null_type": "int32"}
    rows = files(lake, ["dir0", "b", "_filename", "c"], mode, **missing)
    assert rows == [("x", "fred", "a.parquet", None), ("x", "wilma", "a.parquet", None)]


@pytest.mark.behaviour("scan-24")
@MODES
def test_file_and_partition_columns_follow_their_files(lake, mode):
    names = ("x/y/a.parquet", "x/b.parquet")
    rows = files(lake, ["dir0", "dir1", "_filename", "b"], mode, names)
    assert rows == [
        ("x", "y", "a.parquet", "fred"),
        ("x", "y", "a.parquet", "wilma"),
        ("x", None, "b.parquet", "bambam"),
        ("x", None, "b.parquet", "betty"),
    ]
    assert files(lake, ["dir1", "a"], mode, names[::-1])[0] == (None, 30)


# Smoothing and schema change ------------------------------------------------------------------

NAMES = pa.field("b", pa.string())
LISTS = pa.field("c", pa.list_(pa.int32()), nullable=False)


@pytest.mark.behaviour("scan-28", "scan-29")
@KINDS
def test_missing_columns_keep_the_type_that_they_had(reader):
    first = reader([A, NAMES, LISTS], [[1], ["x"], [[7]]])
    readers = [first, reader([A, LISTS], [[2], [[8]]]), reader([A, NAMES], [[3], ["y"]])]
    schemas, rows, changes = select(["a", "b", "c"], *readers)
    assert (schemas, changes) == ([pa.schema([A, NAMES, LISTS])] * 3, 0)
    assert rows == [(1, "x", [7]), (2, None, [8]), (3, "y", [])]


@pytest.mark.behaviour("scan-36")
@KINDS
def test_a_missing_column_that_is_never_null_changes_the_schema_to_a_nullable_one(reader):
    readers = [reader([A, NAMES], [[1], ["x"]]), reader([NAMES], [["y"]])]
    schemas, rows, changes = select(["a", "b"], *readers)
    assert (schemas[1], changes) == (pa.schema([maybe(A), NAMES]), 1)
    assert rows == [(1, "x"), (None, "y")]


@pytest.mark.behaviour("scan-32")
@KINDS
def test_a_table_between_two_of_one_schema_changes_nothing(reader):
    one, two, three = (
        reader([A, NAMES], [[10, 20], ["fred", "wilma"]]),
        reader([A], [[30, 40]]),
        reader([A, NAMES], [[50, 60], ["dino", "barney"]]),
    )
    schemas, rows, changes = select(["a", "b"], one, two, three)
    assert (schemas, changes) == ([pa.schema([A, NAMES])] * 3, 0)
    assert rows[1:4] == [(20, "wilma"), (30, None), (40, None)]


@pytest.mark.behaviour("scan-30")
@KINDS
def test_a_column_that_may_be_null_stays_so_for_readers_without_nulls(reader):
    readers = [reader([maybe(A)], [[1, None]]), reader([A], [[2]])]
    schemas, rows, changes = select(["a"], *readers)
    assert (schemas, changes) == ([pa.schema([maybe(A)])] * 2, 0)
    assert rows == [(1,), (None,), (2,)]
    schemas, _, changes = select(["a"], reader([A], [[2]]), reader([maybe(A)], [[1, None]]))
    assert (schemas[1], changes) == (pa.schema([maybe(A)]), 1)


@pytest.mark.behaviour("scan-31")
@KINDS
@pytest.mark.parametrize("columns", [["a", "b", "c"], None], ids=str)
def test_permuted_columns_are_no_change(reader, columns):
    c = pa.field("c", pa.int64(), nullable=False)
    readers = [
        reader([A, NAMES, c], [[10], ["fred"], [110]]),
        reader([c, A, NAMES], [[330], [30], ["bambam"]]),
        reader([A, c, NAMES], [[50], [550], ["dino"]]),
    ]
    schemas, rows, changes = select(columns, *readers)
    assert (schemas, changes) == ([pa.schema([A, NAMES, c])] * 3, 0)
    assert rows == [(10, "fred", 110), (30, "bambam", 330), (50, "dino", 550)]


@pytest.mark.behaviour("scan-35")
@KINDS
def test_a_wildcard_keeps_the_first_schema_for_subsets_and_changes_for_new_columns(reader):
    c, d = pa.field("c", pa.int64()), pa.field("d", pa.string(), nullable=False)
    readers = [
        reader([A, NAMES, c], [[10], ["fred"], [110]]),
        reader([A, NAMES, c], [[70], ["pebbles"], [770]]),
        reader([NAMES, A], [["bambam"], [30]]),
        reader([A, NAMES, d], [[50], ["dino"], ["supporting"]]),
    ]
    schemas, rows, changes = select(None, *readers)
    assert schemas[:3] == [pa.schema([A, NAMES, c])] * 3
    assert (schemas[3], changes) == (pa.schema([A, NAMES, d]), 1)
    assert rows[2:] == [(30, "bambam", None), (50, "dino", "supporting")]


@pytest.mark.behaviour("scan-38")
@KINDS
def test_every_kind_of_hard_change_is_one_change(reader):
    c, d = pa.field("c", pa.float64(), nullable=False), pa.field("d", A.type, nullable=False)
    a, real = maybe(A), pa.field("a", pa.float64())
    readers = [
        reader([a, NAMES, c], [[1], ["x"], [0.5]]),
        reader([a, c], [[2], [0.5]]),
        reader([a, NAMES, c, d], [[3], ["x"], [0.5], [9]]),
        reader([a, NAMES], [[4], ["x"]]),
        reader([real, NAMES], [[5.5], ["x"]]),
    ]
    schemas, rows, changes = select(None, *readers)
    assert [schema.names for schema in schemas[:2]] == [["a", "b", "c"]] * 2
    assert schemas[2:] == [
        pa.schema([a, NAMES, c, d]),
        pa.schema([a, NAMES]),
        pa.schema([real, NAMES]),
    ]
    assert (len(rows), changes) == (5, 3)


@pytest.mark.behaviour("scan-37")
@KINDS
def test_a_type_that_changes_under_a_name_is_a_change_and_each_row_is_given(reader):
    text = pa.field("a", pa.string(), nullable=False)
    schemas, rows, changes = select(None, reader([A], [[1]]), reader([text], [["x"]]))
    assert (schemas, changes) == ([pa.schema([A]), pa.schema([text])], 1)
    assert rows == [(1,), ("x",)]
    with pytest.raises(plait.SchemaChanged, match="`a`"):
        select(None, reader([A], [[1]]), reader([text], [["x"]]), on_change="error")


@pytest.mark.behaviour("scan-40")
@pytest.mark.parametrize(("limit", "read"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 4)])
def test_a_limit_counts_the_rows_of_all_readers_and_reads_no_further(limit, read):
    pulled = []

    def batches(first):
        pulled.append(first)
        yield from late([A], [[first, first + 1]])

    def reader(first):
        return pa.RecordBatchReader.from_batches(pa.schema([A]), batches(first))

    _, rows, _ = select(None, reader(0), reader(2), limit=limit)
    assert rows == [(i,) for i in range(read)]
    assert pulled == [0, 2][: (limit + 1) // 2]


@pytest.mark.behaviour("scan-13")
def test_a_generator_is_asked_for_its_first_batch_when_the_scan_is_made():
    pulled = []

    def reader(first):
        for i in range(first, first + 2):
            pulled.append(i)
            yield from late([A], [[i]])

    scan = plait.scan([reader(0), reader(2)], mode="follow", limit=1)
    assert pulled[:2] == [0, 2]
    assert [len(batch) for batch in scan.to_batches()] == [1]
    assert 3 not in pulled
