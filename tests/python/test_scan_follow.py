"""Sources one after the other: what is published, what is remembered, what is told."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

A = pa.field("a", pa.int64(), nullable=False)
B = pa.field("b", pa.string())


def source(fields, *values):
    arrays = [pa.array(column, field.type) for field, column in zip(fields, values, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def follow(sources, columns=None, **options):
    return plait.scan(
        [table if hasattr(table, "__fspath__") else table.to_reader() for table in sources],
        columns,
        mode="follow",
        **options,
    )


def read(scan):
    batches = list(scan.to_batches())
    return batches, [pa.record_batch(batch).to_pylist() for batch in batches]


@pytest.mark.behaviour("scan-34")
def test_a_column_that_may_be_null_is_null_where_it_is_missing():
    scan = follow([source([A, B], [1], ["x"]), source([A], [2])])
    batches, rows = read(scan)
    assert rows == [[{"a": 1, "b": "x"}], [{"a": 2, "b": None}]]
    assert batches[0].schema.is_same(batches[1].schema)
    assert scan.schema.is_same(batches[0].schema)
    assert scan.report.changes == ()


def test_a_new_column_is_a_change_unless_it_was_asked_for():
    sources = [source([A], [1]), source([A, B], [2], ["x"])]
    scan = follow(sources)
    batches, rows = read(scan)
    assert rows == [[{"a": 1}], [{"a": 2, "b": "x"}]]
    assert not batches[0].schema.is_same(batches[1].schema)
    [change] = scan.report.changes
    assert change.what == ("`b` is new: string",)
    assert change.source == "<stream 1>"
    asked = follow(sources, ["a", "b"], null_type="string")
    batches, rows = read(asked)
    assert rows == [[{"a": 1, "b": None}], [{"a": 2, "b": "x"}]]
    assert batches[0].schema.is_same(batches[1].schema)
    given = follow(sources, ["a", "b"], schema=pa.schema([B]))
    assert read(given)[1] == rows
    assert given.report.changes == ()


def test_a_column_of_the_null_type_that_gets_a_type_is_a_change():
    scan = follow([source([A], [1]), source([A, B], [2], ["x"])], ["b", "a"])
    assert read(scan)[1] == [[{"b": None, "a": 1}], [{"b": "x", "a": 2}]]
    assert [change.what for change in scan.report.changes] == [("`b` was null, is string",)]


def test_changes_can_be_refused():
    scan = follow([source([A], [1]), source([A, B], [2], ["x"])], on_change="error")
    batches = scan.to_batches()
    assert len(next(batches)) == 1
    with pytest.raises(plait.SchemaChanged, match="`b` is new"):
        next(batches)


def test_a_change_never_reaches_a_reader_of_one_schema():
    scan = follow([source([A], [1]), source([A, B], [2], ["x"])])
    with pytest.raises((plait.SchemaChanged, pa.ArrowInvalid, OSError), match="schema changed"):
        pa.table(scan)
    assert pa.table(follow([source([A, B], [1], ["x"]), source([A], [2])])).num_rows == 2


def test_a_type_or_nullability_that_cannot_be_carried_is_a_change():
    wide = source([pa.field("a", pa.int64())], [None])
    scan = follow([source([A], [1]), wide])
    assert read(scan)[1] == [[{"a": 1}], [{"a": None}]]
    assert scan.report.changes[0].what == ("`a` was int64 not null, is int64",)
    scan = follow([wide, source([A], [1])])
    assert scan.report.changes == () and read(scan)[1] == [[{"a": None}], [{"a": 1}]]
    assert scan.report.changes == ()
    scan = follow([source([A], [1]), source([pa.field("a", pa.int32(), nullable=False)], [2])])
    read(scan)
    assert scan.report.changes[0].what == ("`a` was int64 not null, is int32 not null",)


def test_a_column_that_is_never_null_and_missing_is_a_change_but_lists_are_empty():
    lists = pa.field("l", pa.list_(pa.int64()), nullable=False)
    scan = follow([source([A, B], [1], ["x"]), source([B], ["y"])])
    read(scan)
    assert scan.report.changes[0].what == ("`a` is gone",)
    scan = follow([source([A, lists], [1], [[1]]), source([A], [2])])
    assert read(scan)[1] == [[{"a": 1, "l": [1]}], [{"a": 2, "l": []}]]
    assert scan.report.changes == ()


def test_a_missing_column_has_the_type_it_had_before():
    sources = [
        source([A, B], [1], ["x"]),
        source([pa.field("c", pa.int8())], [1]),
        source([A], [3]),
    ]
    scan = follow(sources, ["b", "c"])
    batches, rows = read(scan)
    assert rows[-1] == [{"b": None, "c": None}]
    assert pa.schema(batches[-1].schema).field("b").type == pa.string()


@pytest.mark.behaviour("scan-33")
def test_without_smoothing_every_difference_is_a_change():
    scan = follow([source([A, B], [1], ["x"]), source([A], [2])], smooth=False)
    assert read(scan)[1] == [[{"a": 1, "b": "x"}], [{"a": 2}]]
    assert scan.report.changes[0].what == ("`b` is gone",)


def test_named_columns_come_in_their_order_from_permuted_sources():
    scan = follow([source([A, B], [1], ["x"]), source([B, A], ["y"], [2])], ["b", "a"])
    batches, rows = read(scan)
    assert rows == [[{"b": "x", "a": 1}], [{"b": "y", "a": 2}]]
    assert [list(row) for batch in rows for row in batch] == [["b", "a"], ["b", "a"]]
    assert batches[0].schema.is_same(batches[1].schema)


@pytest.mark.parametrize(("limit", "opened"), [(0, 1), (1, 1), (50, 1), (75, 2), (125, 2)])
def test_a_limit_opens_only_what_it_needs(tmp_path, limit, opened):
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for i, path in enumerate(paths):
        pq.write_table(pa.table({"a": range(50 * i, 50 * i + 50)}), path)
    scan = follow(paths, limit=limit)
    assert [row["a"] for batch in read(scan)[1] for row in batch] == list(range(min(limit, 100)))
    assert scan.report.sources_opened == opened
    paths[1].unlink()
    if opened == 2:
        with pytest.raises(plait.SourceNotFound):
            follow(paths, limit=limit)


def test_the_first_batch_is_read_for_the_schema_and_given_in_full():
    given = []

    def batches():
        for i in range(3):
            given.append(i)
            yield pa.record_batch({"a": [i]})

    scan = plait.scan([batches()], mode="follow", batch_rows=1)
    assert given == [0]
    assert read(scan)[1] == [[{"a": 0}], [{"a": 1}], [{"a": 2}]]


@pytest.mark.behaviour("scan-10")
def test_a_column_first_seen_within_a_source_is_null_in_the_rows_before():
    def batches():
        yield pa.record_batch({"a": [1, 2]})
        yield pa.record_batch({"a": [3], "b": ["x"]})
        yield pa.record_batch({"b": ["y"], "a": [4]})

    scan = plait.scan([batches()], mode="follow", batch_rows=100)
    assert read(scan)[1] == [
        [
            {"a": 1, "b": None},
            {"a": 2, "b": None},
            {"a": 3, "b": "x"},
            {"a": 4, "b": "y"},
        ]
    ]
    assert scan.report.changes == ()


def test_a_type_that_changes_within_a_source_ends_the_batch_and_is_told():
    def batches():
        yield pa.record_batch({"a": [1]})
        yield pa.record_batch({"a": ["x"]})

    scan = plait.scan([batches()], mode="follow")
    assert read(scan)[1] == [[{"a": 1}], [{"a": "x"}]]
    assert scan.report.changes[0].what == ("`a` was int64, is string",)


# ---- options of the other mode, or of another option


@pytest.mark.behaviour("scan-15")
def test_a_given_schema_wins_over_what_sources_say():
    wide = pa.schema([pa.field("b", pa.string()), pa.field("a", pa.int64())])
    narrow = pa.field("a", pa.int32())
    scan = follow([source([narrow], [1]), source([narrow, B], [2], ["x"])], schema=wide)
    assert pa.schema(scan.schema).equals(wide)
    assert read(scan)[1] == [[{"b": None, "a": 1}], [{"b": "x", "a": 2}]]
    assert scan.report.changes == ()
    text = source([pa.field("a", pa.string())], ["1"])
    with pytest.raises(plait.SchemaConflict, match="`a`"):
        follow([text], schema=wide)


@pytest.mark.behaviour("scan-15")
def test_a_given_default_is_the_value_of_a_missing_column():
    field = pa.field("c", pa.int64(), nullable=False, metadata={"plait.default": "7"})
    scan = follow([source([A], [1]), source([A, field], [2], [8])], schema=pa.schema([A, field]))
    assert read(scan)[1] == [[{"a": 1, "c": 7}], [{"a": 2, "c": 8}]]


def test_strict_refuses_columns_that_the_given_schema_lacks():
    sources = [source([A], [1]), source([A, B], [2], ["x"])]
    assert len(read(follow(sources, schema=pa.schema([A])))[1]) == 2
    batches = follow(sources, schema=pa.schema([A]), strict=True).to_batches()
    assert len(next(batches)) == 1
    with pytest.raises(plait.SchemaConflict, match="`b` is not in the given schema"):
        next(batches)


def test_a_policy_says_how_sources_adapt_to_the_given_schema():
    given = pa.schema([pa.field("a", pa.int32())])
    sources = [source([A], [1]), source([A, B], [2], ["x"])]
    with pytest.raises(plait.SchemaConflict):
        follow(sources, schema=given)
    scan = follow(sources, schema=given, policy={"lossy": "cast", "extra": "drop"})
    assert read(scan)[1] == [[{"a": 1}], [{"a": 2}]]
    assert scan.report.changes == ()
    large = follow([source([A], [1 << 40])], schema=given, policy={"lossy": "null"})
    assert read(large)[1] == [[{"a": None}]]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"missing": "error"}, "missing"),
        ({"policy": {"lossy": "cast"}}, "policy"),
        ({"strict": True}, "strict"),
    ],
)
def test_options_without_effect_are_refused_when_following(options, named):
    with pytest.raises(plait.InvalidArgument, match=f"`{named}` has no effect"):
        follow([source([A], [1])], **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"null_type": "nonsense"}, "null_type"),
        ({"smooth": True}, "smooth"),
        ({"smooth": False}, "smooth"),
        ({"on_change": "report"}, "on_change"),
        ({"strict": True}, "strict"),
        ({"policy": {"extra": "drop"}}, "policy"),
        ({"partition_types": {"y": "int32"}}, "partition_types"),
        ({"root": "."}, "root"),
    ],
)
def test_options_without_effect_are_refused_when_resolving(options, named):
    with pytest.raises(plait.InvalidArgument, match=rf"`{named}.*` has no effect"):
        plait.scan([source([A], [1])], **options)


def test_a_type_of_a_partition_column_that_is_none_is_refused(tmp_path):
    (tmp_path / "y=1").mkdir()
    pq.write_table(source([A], [1]), tmp_path / "y=1" / "0.parquet")
    with pytest.raises(plait.InvalidArgument, match="names no partition column"):
        plait.scan(tmp_path, partitions="hive", partition_types={"year": "int32"})
