"""`plait.merge`, `plait.verify`, `plait.inspect` from Python: options, reports, errors, Ctrl-C."""

import doctest
import hashlib
import importlib
import inspect
import itertools
import json
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import order, sizes
from plait.cli import _options

KEYS = ("name", "-ts")
ORDER = "name, -ts"


# ---- merge


def test_merge_equals_the_oracle(deal, events, tmp_path, merged_slowly, read_rows):
    paths = deal(events, 3)
    report = plait.merge(paths, tmp_path / "out", sort_by=ORDER)
    assert [row["path"] for row in report.to_dict()["sources"]] == [str(p) for p in paths]
    assert (report.rows_in, report.rows_out, report.sort_by) == (12, 12, ORDER)
    assert len(report.outputs) == 1
    assert read_rows(report.outputs[0].path) == merged_slowly(paths, *KEYS)


@pytest.mark.behaviour("merge-02")
def test_ties_leave_in_source_order(tmp_path, read_rows):
    for name in "ab":
        pq.write_table(pa.table({"k": [1, 1, 2], "v": [name + c for c in "xyz"]}), tmp_path / name)
    report = plait.merge([tmp_path / "b", tmp_path / "a"], tmp_path / "out", sort_by="k")
    rows = read_rows(report.outputs[0].path)
    assert [row["v"] for row in rows] == ["bx", "by", "ax", "ay", "bz", "az"]


@pytest.mark.behaviour("merge-17")
@pytest.mark.parametrize("outputs", [1, 2, 3, 100])
def test_outputs_are_disjoint_and_complete(
    deal, events, tmp_path, merged_slowly, read_rows, outputs
):
    paths = deal(events, 4)
    report = plait.merge(paths, tmp_path / "out", sort_by=ORDER, outputs=outputs)
    assert 1 <= len(report.outputs) <= outputs
    files = [output.path for output in report.outputs]
    assert read_rows(*files) == merged_slowly(paths, *KEYS)
    keys = [{(r["name"], r["ts"]) for r in read_rows(file)} for file in files]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(keys, 2))
    assert sum(output.rows for output in report.outputs) == 12
    assert plait.verify(files, against=paths).ok


@pytest.mark.behaviour("merge-18")
def test_cut_on_keeps_leading_columns_together(deal, events, tmp_path, read_rows):
    paths = deal(events, 3)
    report = plait.merge(paths, tmp_path / "out", sort_by=ORDER, target_rows=1, cut_on=1)
    names = [{row["name"] for row in read_rows(output.path)} for output in report.outputs]
    assert names == [{"a"}, {"b"}, {"c"}, {"d"}, {None}]


@pytest.mark.behaviour("merge-16")
@pytest.mark.parametrize(
    ("sizes", "outputs", "expected"),
    [
        ([6, 1, 1], 3, [6, 1, 1]),
        ([1, 1, 6], 3, [1, 1, 6]),
        ([1, 6, 1], 3, [1, 6, 1]),
        ([4, 4, 4, 4], 2, [8, 8]),
        ([3, 3], 5, [3, 3]),
        ([9], 4, [9]),
    ],
)
def test_as_many_outputs_as_asked_whatever_the_size_of_groups(tmp_path, sizes, outputs, expected):
    rows = [(a, b) for a, size in enumerate(sizes) for b in range(size)]
    for i in range(2):
        a, b = zip(*rows[i::2], strict=True)
        pq.write_table(pa.table({"a": a, "b": b}), tmp_path / f"{i}.parquet")
    report = plait.merge(
        tmp_path / "*.parquet", tmp_path / "out", sort_by="a, b", outputs=outputs, cut_on=1
    )
    assert [output.rows for output in report.outputs] == expected


def test_the_empty_order_concatenates(deal, events, tmp_path, read_rows):
    paths = deal(events, 3)
    report = plait.merge(list(reversed(paths)), tmp_path / "all.parquet", sort_by=[])
    assert read_rows(tmp_path / "all.parquet") == read_rows(*reversed(paths))
    assert report.sort_by == ""


@pytest.mark.behaviour("merge-05")
def test_the_order_is_taken_from_the_files(deal, events, tmp_path, read_rows, merged_slowly):
    order = pq.SortingColumn.from_ordering(
        events.schema, [("name", "ascending"), ("ts", "descending")]
    )
    paths = deal(events, 2, sorting_columns=order)
    first = plait.merge(paths, tmp_path / "first.parquet")
    assert first.sort_by == ORDER
    again = plait.merge([tmp_path / "first.parquet"], tmp_path / "again.parquet")
    assert again.sort_by == ORDER
    assert read_rows(tmp_path / "again.parquet") == merged_slowly(paths, *KEYS)


@pytest.mark.parametrize(
    "sort_by",
    [
        ORDER,
        ["name", "-ts"],
        ["name", ("ts", "descending")],
        [("name", "ascending"), ("ts", "descending")],
        "name asc nulls last, ts desc",
    ],
)
def test_the_order_can_be_written_in_many_ways(deal, events, tmp_path, sort_by):
    assert plait.merge(deal(events, 2), tmp_path / "out", sort_by=sort_by).sort_by == ORDER


def test_sources_can_be_named_in_many_ways(deal, events, tmp_path):
    paths = deal(events, 2)
    ways = [
        paths,
        tuple(str(path) for path in paths),
        tmp_path.glob("run-*.parquet"),
        str(tmp_path / "run-*.parquet"),
        [str(tmp_path / "run-*.parquet")],
    ]
    for i, sources in enumerate(ways):
        assert plait.merge(sources, tmp_path / "out" / f"{i}.parquet", sort_by=ORDER).rows_in == 12
    assert plait.merge(tmp_path / "out", tmp_path / "all", sort_by=ORDER).rows_in == 12 * len(ways)
    assert plait.merge(paths[0], tmp_path / "one", sort_by=ORDER).rows_in == 6


def test_numbers_of_numpy_are_numbers(deal, events, tmp_path):
    report = plait.merge(
        deal(events, 2),
        tmp_path / "out",
        sort_by=ORDER,
        outputs=np.int64(2),
        row_group_rows=np.int32(3),
        memory_limit=np.uint64(100_000_000),
    )
    assert report.memory.limit_bytes == 100_000_000
    assert all(output.row_groups >= output.rows / 3 for output in report.outputs)


def test_layout_options_shape_the_file(deal, events, tmp_path):
    out = tmp_path / "out.parquet"
    plait.merge(
        deal(events, 2),
        out,
        sort_by=ORDER,
        row_group_rows=5,
        compression="zstd(3)",
        dictionary=False,
        data_page_version=2,
        copy_tiers=(),
    )
    footer = pq.ParquetFile(out).metadata
    groups = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    assert sum(groups) == 12 and max(groups) <= 5
    column = footer.row_group(0).column(1)
    assert column.compression == "ZSTD"
    assert not column.has_dictionary_page
    assert column.has_offset_index and column.has_column_index
    assert [(c.column_index, c.descending) for c in footer.row_group(0).sorting_columns] == [
        (0, False),
        (1, True),
    ]


def test_options_that_change_nothing_change_nothing(
    deal, events, tmp_path, read_rows, merged_slowly
):
    paths = deal(events, 3)
    expected = merged_slowly(paths, *KEYS)
    settings = [
        {"copy_tiers": ()},
        {"threads": 1},
        {"threads": 4},
        {"verify_order": "full"},
        {"verify_pages": "unpack"},
        {"assume_sorted": True},
        {"verify": "content"},
        {"dictionary": True},
        {"data_page_version": 1},
        {"page_rows": 1},
        {"page_size": 100},
        {"align_row_groups": 1},
        {"compression": "none"},
        {"memory_limit": "64MiB"},
    ]
    for i, options in enumerate(settings):
        report = plait.merge(paths, tmp_path / f"{i}.parquet", sort_by=ORDER, **options)
        assert read_rows(tmp_path / f"{i}.parquet") == expected, options
        assert report.assumed_sorted == (options == {"assume_sorted": True})
        assert (report.content_hash is not None) == (options == {"verify": "content"})


def test_digests_are_those_of_the_files(deal, events, tmp_path):
    report = plait.merge(deal(events, 2), tmp_path / "out", sort_by=ORDER, outputs=2, sha256=True)
    for output in report.outputs:
        with open(output.path, "rb") as file:
            content = file.read()
        assert output.sha256 == hashlib.sha256(content).hexdigest()
        assert output.bytes == len(content)


@pytest.mark.behaviour("merge-21")
def test_no_rows_give_one_empty_output_or_none(tmp_path, events):
    pq.write_table(events.slice(0, 0), tmp_path / "empty.parquet")
    report = plait.merge(tmp_path / "empty.parquet", tmp_path / "one", sort_by=ORDER)
    assert len(report.outputs) == 1
    assert pq.read_table(report.outputs[0].path).schema.equals(events.schema)
    report = plait.merge(
        tmp_path / "empty.parquet", tmp_path / "none", sort_by=ORDER, empty_output=False
    )
    assert report.outputs == ()


def test_a_folder_is_added_to_only_when_asked(deal, events, tmp_path, read_rows):
    paths = deal(events, 2)
    plait.merge(paths[:1], tmp_path / "out", sort_by=ORDER)
    with pytest.raises(plait.OutputExists):
        plait.merge(paths[1:], tmp_path / "out", sort_by=ORDER)
    plait.merge(paths[1:], tmp_path / "out", sort_by=ORDER, if_exists="add")
    assert len(read_rows(*(tmp_path / "out").glob("*.parquet"))) == 12


def test_progress_is_told_and_ends_complete(deal, events, tmp_path):
    told = []
    report = plait.merge(deal(events, 3), tmp_path / "out", sort_by=ORDER, progress=told.append)
    assert all(isinstance(progress, plait.Progress) for progress in told)
    assert told[-1].rows_written == report.rows_out
    assert 0 < told[-1].consumed_bytes <= told[-1].total_bytes


# ---- slow merges: callback, Ctrl-C


@pytest.fixture
def slow_sources(tmp_path):
    """Files whose merge takes seconds with `SLOW`, which packs every page very hard."""
    folder = tmp_path / "slow"
    folder.mkdir()
    random = np.random.default_rng(7)
    for i in range(4):
        rows = 200_000
        text = random.integers(97, 107, rows * 24, dtype=np.uint8).tobytes().decode()
        table = pa.table(
            {
                "k": np.arange(rows, dtype=np.int64) * 4 + i,
                "v": [text[j * 24 : j * 24 + 24] for j in range(rows)],
            }
        )
        pq.write_table(table, folder / f"{i}.parquet", use_dictionary=False)
    return folder


SLOW = {
    "sort_by": "k",
    "compression": "brotli(11)",
    "page_size": "100kB",
    "dictionary": False,
    "copy_tiers": (),
}


def test_an_exception_in_the_callback_stops_the_merge(slow_sources, tmp_path):
    def stop(progress):
        raise LookupError("enough")

    started = time.monotonic()
    with pytest.raises(LookupError, match="enough"):
        plait.merge(slow_sources, tmp_path / "out", **SLOW, progress=stop)
    assert time.monotonic() - started < 2
    assert list(tmp_path.glob("out/*.parquet")) == []


def test_ctrl_c_stops_a_merge_within_a_second(slow_sources, tmp_path, python):
    script = """
import os, signal, sys, threading, time
import plait
sources, out, options = eval(sys.argv[1])
sent = []
def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.6, interrupt).start()
try:
    plait.merge(sources, out, **options)
except KeyboardInterrupt:
    print(time.monotonic() - sent[0])
"""
    ran = python("-c", script, repr((str(slow_sources), str(tmp_path / "out"), SLOW)))
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) < 1.0
    assert ran.stderr == ""
    assert list(tmp_path.glob("out/*")) == []


def test_the_interpreter_is_free_during_a_merge(slow_sources, tmp_path):
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.wait(0.01):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    seen = []

    def after_a_while(progress):
        seen.append(progress)
        if len(seen) == 4:
            raise InterruptedError

    try:
        with pytest.raises(InterruptedError):
            plait.merge(slow_sources, tmp_path / "out", **SLOW, progress=after_a_while)
    finally:
        stop.set()
        ticker.join()
    assert len(ticks) > 20
    assert [p.consumed_bytes for p in seen] == sorted(p.consumed_bytes for p in seen)


# ---- errors


@pytest.mark.behaviour("merge-08")
def test_an_unsorted_source_is_named_with_its_row(tmp_path):
    pq.write_table(pa.table({"k": [1, 2, 3]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [1, 3, 2]}), tmp_path / "b.parquet")
    with pytest.raises(plait.UnsortedSource) as caught:
        plait.merge([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "o", sort_by="k")
    error = caught.value
    assert error.path == str(tmp_path / "b.parquet")
    assert error.row == 2
    assert error.hint
    assert str(error).startswith(error.what)
    assert not list(tmp_path.glob("o/*"))


def test_the_first_key_that_goes_backwards_is_named_whatever_the_ends_are(tmp_path):
    pq.write_table(pa.table({"k": [None, 1, 3]}), tmp_path / "a.parquet")
    with pytest.raises(plait.UnsortedSource, match="got 1 after null") as caught:
        plait.merge(tmp_path / "a.parquet", tmp_path / "o", sort_by="k")
    assert caught.value.row == 1


@pytest.mark.parametrize("end", ["?.parquet", "a.parquet?version=3", "a.parquet#3"])
def test_what_would_be_cut_off_a_url_is_refused(tmp_path, end):
    (tmp_path / "old").mkdir()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [2]}), tmp_path / "old/b.parquet")
    for url in (f"file://{tmp_path}/{end}", f"s3://nowhere/{end}", f"https://nowhere.test/{end}"):
        with pytest.raises(plait.InvalidArgument, match="ends at `\\?` and `#`"):
            plait.merge(url, tmp_path / "o", sort_by="k")


def test_types_without_a_common_type_conflict(tmp_path):
    pq.write_table(pa.table({"k": [1], "v": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [1], "v": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(plait.SchemaConflict, match="v"):
        plait.merge([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "o", sort_by="k")


def test_types_and_columns_that_differ_are_refused_when_asked(tmp_path, read_rows):
    pq.write_table(pa.table({"k": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": pa.array([2], pa.int64())}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"k": pa.array([3], pa.int64()), "v": [5]}), tmp_path / "c.parquet")
    a, b, c = (tmp_path / f"{name}.parquet" for name in "abc")
    with pytest.raises(plait.SchemaConflict):
        plait.merge([a, b], tmp_path / "o", sort_by="k", widen="error")
    with pytest.raises(plait.SchemaConflict):
        plait.merge([b, c], tmp_path / "o", sort_by="k", missing="error")
    plait.merge([a, b, c], tmp_path / "o.parquet", sort_by="k")
    assert read_rows(tmp_path / "o.parquet") == [
        {"k": 1, "v": None},
        {"k": 2, "v": None},
        {"k": 3, "v": 5},
    ]


def test_an_unknown_column_is_named(deal, events, tmp_path):
    with pytest.raises(plait.UnknownColumn, match="nowhere") as caught:
        plait.merge(deal(events, 1), tmp_path / "o", sort_by="nowhere")
    assert not str(caught.value).startswith('"')


def test_a_list_cannot_be_a_key(deal, events, tmp_path):
    with pytest.raises(plait.UnsupportedKey, match="tags"):
        plait.merge(deal(events, 1), tmp_path / "o", sort_by="tags.list.element")


def test_damaged_files_are_corrupt(deal, events, tmp_path):
    (path,) = deal(events, 1)
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[:-1], whole[: len(whole) // 2], b"x" * 1000):
        path.write_bytes(content)
        with pytest.raises(plait.CorruptSource) as caught:
            plait.merge(path, tmp_path / "o", sort_by=ORDER)
        assert caught.value.path == str(path)
        with pytest.raises(plait.CorruptSource):
            plait.inspect(path)


def test_an_encrypted_footer_is_told_apart(tmp_path):
    (tmp_path / "e.parquet").write_bytes(b"PARE" + bytes(20) + b"\x14\x00\x00\x00PARE")
    with pytest.raises(plait.EncryptedSource):
        plait.merge(tmp_path / "e.parquet", tmp_path / "o", sort_by="k")


def test_a_missing_source_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        plait.merge(tmp_path / "absent.parquet", tmp_path / "o", sort_by="k")
    assert isinstance(caught.value, plait.SourceNotFound)
    assert "absent.parquet" in str(caught.value)
    with pytest.raises(plait.SourceNotFound):
        plait.inspect(tmp_path / "absent.parquet")
    with pytest.raises(plait.SourceNotFound):
        plait.verify(tmp_path / "absent.parquet", sort_by="k")


def test_an_output_that_exists_is_left_alone(deal, events, tmp_path):
    out = tmp_path / "out.parquet"
    out.write_bytes(b"precious")
    with pytest.raises(plait.OutputExists):
        plait.merge(deal(events, 1), out, sort_by=ORDER)
    assert out.read_bytes() == b"precious"


@pytest.mark.local
def test_a_folder_that_cannot_be_made_is_a_storage_error(deal, events, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(plait.StorageError):
        plait.merge(deal(events, 1), tmp_path / "file" / "below", sort_by=ORDER)


@pytest.mark.parametrize(
    "options",
    [
        {"sources": []},
        {"sources": 7},
        {"out": None},
        {"sort_by": "name,,ts"},
        {"sort_by": "name, name"},
        {"sort_by": [("name", "sideways")]},
        {"outputs": -1},
        {"outputs": 0},
        {"outputs": 1.5},
        {"outputs": True},
        {"outputs": 2, "target_rows": 5},
        {"target_file_size": "many"},
        {"row_group_size": 0},
        {"memory_limit": "1XB"},
        {"compression": "zip"},
        {"data_page_version": 3},
        {"widen": "sure"},
        {"missing": "maybe"},
        {"metadata_conflicts": "second"},
        {"verify_order": "no"},
        {"verify_pages": "no"},
        {"verify": "everything"},
        {"bloom_filters": {"name": {"fpp": 0.9}}},
        {"bloom_filters": {"name": {"rate": 0.1}}},
        {"bloom_filters": {"name": {"fpp": float("nan")}}},
        {"bloom_filters": {"name": {"ndv": 0}}},
        {"bloom_filters": 3},
        {"value_sets": [3]},
        {"statistics": "row"},
        {"statistics": {"name": "all"}},
        {"copy_tiers": ("teleport",)},
        {"copy_tiers": (b"chunk",)},
        {"if_exists": "replace"},
        {"cut_on": 9},
        {"sha256": "yes"},
        {"widen": None},
        {"threads": 0},
        {"memory_limit": "1kB"},
        {"align_row_groups": 9},
        {"compression": ["zstd"]},
        {"version_by": 3},
        {"delete_where": 4},
        {"drop_where": 5},
        {"memory_limit": None},
        {"sort_by": 5},
    ],
    ids=repr,
)
def test_options_that_are_invalid_are_refused(deal, events, tmp_path, options):
    given = {"sources": deal(events, 1), "out": tmp_path / "o", "sort_by": ORDER, **options}
    with pytest.raises(plait.InvalidArgument):
        plait.merge(given.pop("sources"), given.pop("out"), **given)
    assert not list(tmp_path.glob("o/*"))


# ---- verify


def test_verify_agrees_with_a_merge(deal, events, tmp_path):
    paths = deal(events, 3)
    merged = plait.merge(paths, tmp_path / "out", sort_by=ORDER, outputs=3, verify="content")
    report = plait.verify(tmp_path / "out", against=paths)
    assert report.ok and report.disjoint and report.against.equal
    assert report.content_hash == merged.content_hash
    assert [file.rows for file in report.files] == [output.rows for output in merged.outputs]


def test_verify_finds_a_changed_value(deal, events, tmp_path):
    paths = deal(events, 2)
    changed = events.set_column(3, "value", pa.array([float(i) for i in range(11)] + [99.0]))
    pq.write_table(changed, tmp_path / "changed.parquet")
    with pytest.raises(plait.VerificationFailed) as caught:
        plait.verify(tmp_path / "changed.parquet", against=paths, sort_by=ORDER)
    assert caught.value.report.against.columns_differ == ("value",)
    report = plait.verify(tmp_path / "changed.parquet", against=paths, sort_by=ORDER, check=False)
    assert not report.ok and report.problems


def test_verify_finds_a_lost_row(deal, events, tmp_path):
    pq.write_table(events.slice(0, 11), tmp_path / "short.parquet")
    report = plait.verify(
        tmp_path / "short.parquet", against=deal(events, 2), sort_by=ORDER, check=False
    )
    assert not report.ok
    assert (report.rows, report.against.rows) == (11, 12)


def test_verify_finds_disorder_and_overlap(deal, events, tmp_path):
    paths = deal(events, 2)
    overlapping = plait.verify(paths, sort_by=ORDER, check=False)
    assert not overlapping.ok and not overlapping.disjoint
    assert all(file.sorted for file in overlapping.files)
    backwards = plait.verify(paths[0], sort_by="-name", check=False)
    assert not backwards.ok and not backwards.files[0].sorted


# ---- inspect


def test_inspect_tells_what_the_footer_says(deal, events, tmp_path):
    (path,) = deal(events, 1, row_group_size=5, compression="snappy")
    report = plait.inspect(path, pages=True)
    footer = pq.ParquetFile(path).metadata
    assert (report.rows, report.bytes) == (12, path.stat().st_size)
    assert report.created_by == footer.created_by
    assert report.sort_by is None
    assert [group.rows for group in report.row_groups] == [5, 5, 2]
    for i, group in enumerate(report.row_groups):
        for j, column in enumerate(group.columns):
            expected = footer.row_group(i).column(j)
            assert column.path == expected.path_in_schema
            assert column.physical_type == expected.physical_type
            assert column.codec.lower() == expected.compression.lower()
            assert column.compressed_bytes == expected.total_compressed_size
    assert report.row_groups[0].columns[1].min == 6


def test_inspect_tells_the_order_of_an_output(deal, events, tmp_path):
    plait.merge(deal(events, 2), tmp_path / "o.parquet", sort_by=ORDER)
    report = plait.inspect(tmp_path / "o.parquet")
    assert report.sort_by == ORDER
    assert report.key_min == ("a", 9)
    assert report.key_max == (None, 0)
    assert report.metadata["plait.sort_order"] == ORDER


# ---- reports


@pytest.fixture
def reports(deal, events, tmp_path):
    paths = deal(events, 2)
    return [
        plait.merge(paths, tmp_path / "out", sort_by=ORDER, outputs=2, sha256=True),
        plait.verify(tmp_path / "out", against=paths),
        plait.inspect(paths[0], pages=True),
    ]


def test_reports_survive_json_and_added_keys(reports):
    for report in reports:
        data = json.loads(json.dumps(report.to_dict()))
        data["key_of_the_future"] = {"nested": [1]}
        assert type(report).from_dict(data) == report


def test_reports_print_as_text_and_html(reports):
    merged, verified, inspected = map(str, reports)
    assert merged.startswith("merged 2 files into 2 files: 12 rows sorted by name, -ts\n")
    assert verified.startswith("verified: 2 files, 12 rows sorted by name, -ts\n")
    assert "tags.list.element" in inspected
    for report in reports:
        assert all(line == line.rstrip() for line in str(report).splitlines())
        html = report._repr_html_()
        assert html.startswith('<div class="plait">') and html.endswith("</div>")


def test_html_is_escaped(reports):
    data = reports[1].to_dict() | {"problems": ["<script>alert(1)</script>"], "ok": False}
    html = plait.VerifyReport.from_dict(data)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_reports_are_frozen(reports):
    for report in reports:
        with pytest.raises(AttributeError):
            report.rows = 1


# ---- names, sizes, orders, examples


def test_one_name_through_every_door(monkeypatch, tmp_path):
    parameters = inspect.signature(plait.merge).parameters
    called = {}

    def remember(options, progress=None, bucket=None):
        called.update(json.loads(options()))
        raise plait.Cancelled

    monkeypatch.setattr("plait._native.merge", remember)
    with pytest.raises(plait.Cancelled):
        plait.merge("a", tmp_path)
    assert list(called) == [name for name in parameters if name != "progress"]
    arguments = _options.parser().commands.choices["merge"].actions
    assert {a.dest for a in arguments} - {"help", "json", "quiet"} == set(called)
    # The command line leaves out what is not given, so that defaults are those of the function.
    parsed = vars(_options.parse(["merge", "a", "--out", str(tmp_path)]))
    assert set(parsed) == {"command", "json", "quiet", "sources", "out"}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, 1),
        ("1", 1),
        ("1_000", 1000),
        ("1B", 1),
        ("2KB", 2000),
        ("512 KB", 512_000),
        ("256MB", 256_000_000),
        ("1GiB", 2**30),
        ("1gib", 2**30),
        ("1.5 MiB", 1_572_864),
        (" 3 tb ", 3 * 10**12),
        ("4G", 4 * 10**9),
        ("1.5GB", 1_500_000_000),
        ("512 MiB", 2**29),
        ("2Gi", 2**31),
        (np.int64(5), 5),
    ],
)
def test_sizes_are_read(size, expected):
    assert sizes.parse_size(size) == expected


@pytest.mark.parametrize(
    "size",
    [0, -1, True, 1.5, None, "", "MB", "1.5", "1.5B", "1 XB", "-1MB", "1e3", "1i", "4 G B", "٣"],
)
def test_what_is_no_size_is_refused(size):
    with pytest.raises(plait.InvalidArgument, match="`memory_limit` is not a size") as caught:
        sizes.parse_size(size, "memory_limit")
    assert "256MB" in caught.value.hint


@pytest.mark.behaviour("merge-04")
@pytest.mark.parametrize(
    ("sort_by", "expected"),
    [
        (None, None),
        ([], ""),
        ("a, -b", "a, -b"),
        (("a", "-b nulls first"), "a, -b nulls first"),
        ([("a.b", "ascending"), ["c", "desc"]], "a.b, -c"),
        ([("odd, name", "descending"), ('q"', "asc")], '-"odd, name", "q"""'),
    ],
)
def test_orders_become_text(sort_by, expected):
    assert order.sort_text(sort_by) == expected


@pytest.mark.parametrize(
    "module", ["plait._api", "plait._text", "plait.sizes", "plait.order", "plait.cli._progress"]
)
def test_examples_of_the_documentation_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried > 0
    assert failed == 0
