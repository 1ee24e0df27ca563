"""What docs/troubleshooting.md calls the cause of an error is made, and raises that error.

`VerificationFailed`, `InternalError` and `Cancelled` have tests of their own; so has every class at
its exit code, in test_docs.py.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import Layer, errors

pytestmark = pytest.mark.local

INDEXED = pa.table({"_index": [1, 2], "a": [{"x": 1}, {"x": 2}], "l": [[1], [2]]})
CAUSES = {}


def cause(raised: type[plait.PlaitError]):
    """Notes a function that does what the page calls the cause of `raised`."""

    def noted(function):
        CAUSES.setdefault(raised, []).append(function)
        return function

    return noted


def write(name: str, **columns) -> str:
    pq.write_table(pa.table(columns), name)
    return name


def overlay(*layers: Layer, **options) -> None:
    list(plait.overlay(list(layers), **options))


def read(scan) -> None:
    list(scan.to_batches())


def joined(**options) -> plait.ForeignKeyJoin:
    return plait.ForeignKeyJoin(left_key="id", foreign_key="fk", right_key="key", **options)


RIGHT = pa.table({"key": [7], "w": [1]})


@cause(plait.VerificationFailed)
def a_file_is_not_in_order():
    plait.verify(write("a.parquet", k=[2, 1]), sort_by="k")


@cause(plait.InvalidArgument)
def an_option_is_invalid():
    plait.merge(write("a.parquet", k=[1]), "out", sort_by="k", outputs=0)


@cause(plait.InvalidArgument)
def a_combination_of_options_is_invalid():
    plait.merge(write("a.parquet", k=[1]), "out", sort_by="k", version_by="k")


@cause(plait.InvalidPath)
def a_field_path_cannot_be_parsed():
    overlay(Layer(INDEXED, ["a..x"]))


@cause(plait.UnsortedSource)
def a_source_is_not_sorted():
    plait.merge(write("a.parquet", k=[2, 1]), "out", sort_by="k")


@cause(plait.DuplicateKey)
def two_rows_share_a_key():
    plait.merge(write("a.parquet", k=[1, 1]), "out", sort_by="k", on_duplicate="error")


@cause(plait.SchemaConflict)
def types_have_no_common_type():
    paths = [write("a.parquet", k=[1], v=["x"]), write("b.parquet", k=[1], v=[1])]
    plait.merge(paths, "out", sort_by="k")


@cause(plait.UnknownColumn)
def sort_by_names_a_column_that_is_not_there():
    plait.merge(write("a.parquet", k=[1]), "out", sort_by="time")


@cause(plait.UnknownColumn)
def one_source_lacks_the_column():
    plait.merge([write("a.parquet", k=[1]), write("b.parquet", v=[1])], "out", sort_by="k")


@cause(plait.UnsupportedKey)
def sort_by_names_a_list():
    plait.merge(write("a.parquet", k=[[1]]), "out", sort_by="k")


@cause(plait.ProjectionError)
def a_path_does_not_fit_the_type():
    plait.scan(write("a.parquet", a=[{"x": 1}]), ["a[1]"])


@cause(plait.SchemaConflict)
def the_schema_asks_for_a_smaller_type():
    path = write("a.parquet", v=[2**40])
    plait.scan(path, schema=pa.schema({"v": pa.int32()}))


@cause(plait.LossyCast)
def a_value_does_not_fit_the_type_that_a_policy_asks_for():
    paths = [write("a.parquet", v=[0.5]), write("b.parquet", v=[2**53 + 1])]
    read(plait.scan(paths, policy={"lossy": "cast"}))


@cause(plait.SchemaChanged)
def a_followed_schema_changed():
    batches = [pa.record_batch({"a": [1]}), pa.record_batch({"a": [1], "b": [2]})]
    sources = [pa.RecordBatchReader.from_batches(b.schema, [b]) for b in batches]
    read(plait.scan(sources, mode="follow", on_change="error"))


@cause(plait.SchemaDrift)
def batches_of_a_stream_differ():
    batches = iter([pa.record_batch({"k": [1]}), pa.record_batch({"k": ["two"]})])
    list(plait.merge_streams([batches], sort_by="k"))


@cause(plait.NullKey)
def a_change_has_no_key():
    left = pa.table({"id": [1, None], "fk": [7, 7], "v": ["a", "b"]})
    joined().apply(left=left, right=RIGHT)


@cause(plait.RowMismatch)
def layers_have_other_rows():
    other = pa.table({"_index": [1, 3], "b": [1, 2]})
    overlay(Layer(INDEXED, ["a"]), Layer(other, ["b"]))


@cause(plait.IndexTypeError)
def the_index_is_text():
    overlay(Layer(pa.table({"_index": ["1"], "a": [1]})))


@cause(plait.FieldNotInLayer)
def a_layer_owns_a_path_that_it_lacks():
    overlay(Layer(INDEXED, ["b"]))


@cause(plait.SplitInsideNonStruct)
def two_layers_own_parts_of_a_list():
    patch = pa.table({"_index": [1, 2], "l": [{"x": 1}, {"x": 2}]})
    overlay(Layer(INDEXED, ["l"]), Layer(patch, ["l.x"]))


@cause(plait.PathThroughNonStruct)
def a_path_leads_through_a_number():
    overlay(Layer(INDEXED, ["a.x.y"]))


@cause(plait.DuplicateField)
def a_schema_has_two_fields_of_one_name():
    twice = pa.Table.from_arrays([pa.array([1])] * 3, names=["_index", "a", "a"])
    overlay(Layer(twice))


@cause(plait.CorruptSource)
def a_file_is_cut_short():
    whole = Path(write("a.parquet", k=[1])).read_bytes()
    Path("a.parquet").write_bytes(whole[:-9])
    plait.inspect("a.parquet")


@cause(plait.EncryptedSource)
def a_footer_is_encrypted():
    Path("a.parquet").write_bytes(b"PARE" + bytes(20) + b"\x14\x00\x00\x00PARE")
    plait.inspect("a.parquet")


@cause(plait.ForeignTable)
def a_folder_is_a_table_of_hudi():
    Path("table/.hoodie").mkdir(parents=True)
    plait.merge(write("table/a.parquet", k=[1]).rpartition("/")[0], "out", sort_by="k")


@cause(plait.SourceNotFound)
def a_path_has_no_file():
    plait.merge("absent", "out", sort_by="k")


@cause(plait.SourceChanged)
def a_source_is_replaced_after_the_plan():
    plan = plait.plan(write("a.parquet", k=[1]), sort_by="k")
    write("a.parquet", k=[1, 2, 3])
    plan.execute("out")


@cause(plait.SourceFailed)
def a_stream_that_is_a_source_fails():
    def batches():
        yield pa.record_batch({"k": [1]})
        raise LookupError("gone")

    schema = pa.schema({"k": pa.int64()})
    list(plait.Stream(pa.RecordBatchReader.from_batches(schema, batches())))


@cause(plait.StorageError)
def a_folder_cannot_be_made():
    Path("file").write_text("not a folder")
    plait.merge(write("a.parquet", k=[1]), "file/below", sort_by="k")


@cause(plait.OutputExists)
def the_output_folder_has_files():
    Path("out").mkdir()
    write("out/a.parquet", k=[1])
    plait.merge(write("a.parquet", k=[1]), "out", sort_by="k")


@cause(plait.MemoryLimitExceeded)
def a_page_is_larger_than_the_limit():
    pq.write_table(pa.table({"k": [1, 2], "v": ["x" * 40_000_000, "y" * 40_000_000]}), "a.parquet")
    plait.merge("a.parquet", "out", sort_by="k", memory_limit="16MB", copy_tiers=())


@cause(plait.MemoryLimitExceeded)
def a_join_in_memory_is_larger_than_the_limit():
    rows = 60_000
    left = pa.table({"id": range(rows), "fk": [7] * rows, "v": ["x" * 600] * rows})
    joined(memory_limit=32_000_000).apply(left=left, right=RIGHT)


@cause(plait.Cancelled)
def progress_raises_that_it_was_cancelled():
    def stop(progress):
        raise plait.Cancelled("enough")

    plait.merge(write("a.parquet", k=[1]), "out", sort_by="k", progress=stop)


CASES = [(raised, function) for raised, found in CAUSES.items() for function in found]


@pytest.mark.parametrize(
    ("raised", "function"), CASES, ids=[function.__name__ for _, function in CASES]
)
def test_the_cause_that_the_page_names_raises_the_error(raised, function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(raised) as caught:
        function()
    assert type(caught.value) is raised
    assert str(caught.value).strip()
    # The last `progress` of a merge comes when it is done, which is too late to stop it.
    if raised is not plait.Cancelled:
        assert not list(tmp_path.glob("out/part-*")), "nothing was published"


def test_all_classes_but_two_have_a_cause_here():
    named = {raised.__name__ for raised in CAUSES}
    # Another feature each version, and a bug.
    assert set(errors.__all__) - named == {"PlaitError", "Unsupported", "InternalError"}
