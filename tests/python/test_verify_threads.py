"""`verify` on several threads: the report, and the error, of one."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait


def write(path, keys, **options):
    keys = np.asarray(keys)
    texts = pa.array(np.char.add("t", (keys % 97).astype(str)))
    lists = pa.ListArray.from_arrays(np.arange(len(keys) + 1, dtype=np.int32), pa.array(keys))
    table = pa.table({"k": keys, "t": texts, "l": lists.slice(0, len(keys))})
    pq.write_table(table, path, row_group_size=100_000, **options)
    return path


@pytest.mark.parametrize("index", [True, False])
def test_the_report_does_not_depend_on_threads(tmp_path, index):
    files = [
        write(tmp_path / f"{i}.parquet", np.arange(i, 300_000, 3 + i), write_page_index=index)
        for i in range(3)
    ]
    again = [write(tmp_path / "whole.parquet", np.arange(0, 300_000, 3))]
    reports = [
        plait.verify(files, against=again, sort_by="k", check=False, threads=threads)
        for threads in (1, 2, 5, None)
    ]
    assert all(report.to_dict() == reports[0].to_dict() for report in reports)
    assert not reports[0].against.equal
    assert (
        reports[0].content_hash == plait.verify(files[::-1], sort_by="k", check=False).content_hash
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("group_rows", [600_000, 70_000])
@pytest.mark.parametrize("row", [1, 69_999, 70_000, 99_999, 100_000, 100_001, 300_000])
def test_the_first_row_out_of_order_is_named_wherever_it_is(tmp_path, row, group_rows, threads):
    # Each of three threads takes 100,000 rows at a time, or one row group.
    keys = np.arange(10, 600_010)
    keys[row:] -= 5
    keys[-3:] = 1  # further disorder behind it
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": keys}), path, row_group_size=group_rows)
    report = plait.verify(path, sort_by="k", check=False, threads=threads)
    got, before = keys[row], keys[row - 1]
    assert [str(problem) for problem in report.problems] == [
        f"{path} is not sorted: row {row} has {got} after {before}"
    ]
    file = report.files[0]
    assert (file.sorted, file.key_min, file.key_max) == (False, (1,), (int(keys.max()),))


@pytest.mark.parametrize("row", [83_334, 125_002, 131_073, 250_000])
def test_a_single_key_out_of_order_may_overlap_another_file(tmp_path, row):
    keys = np.arange(500_002)
    keys[row] = 10**7
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(pa.table({"k": keys}), files[0])
    pq.write_table(pa.table({"k": np.arange(500_002, 500_012)}), files[1])
    for threads in (1, 2, 3, 7):
        report = plait.verify(files, sort_by="k", check=False, threads=threads)
        assert (report.files[0].key_max, report.disjoint) == ((10**7,), False)
        assert len(report.problems) == 2


def test_the_first_error_is_raised_however_many_threads_find_one(tmp_path):
    files = [
        write(tmp_path / f"{i}.parquet", np.arange(i * 10**6, i * 10**6 + 90_000)) for i in range(6)
    ]
    for path in files[2:]:
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(2)
        data = bytearray(path.read_bytes())
        at = chunk.data_page_offset + chunk.total_compressed_size // 2
        data[at : at + 400] = bytes(400)
        path.write_bytes(data)
    errors = []
    for threads in (1, 2, 4, 4, 4):
        with pytest.raises(plait.CorruptSource) as raised:
            plait.verify(files, sort_by="k", threads=threads)
        errors.append(str(raised.value))
    assert set(errors) == {errors[0]}
    assert "2.parquet" in errors[0]


def test_the_error_of_one_file_does_not_depend_on_threads(tmp_path):
    # Column `a` is damaged at its end, column `b` at its beginning.
    rows = np.arange(400_000)
    path = tmp_path / "a.parquet"
    table = pa.table({"k": rows, "a": rows * 7, "b": rows * 11})
    how = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=400_000, **how)
    group = pq.ParquetFile(path).metadata.row_group(0)
    data = bytearray(path.read_bytes())
    for column, part in ((1, 0.9), (2, 0.1)):
        chunk = group.column(column)
        at = chunk.data_page_offset + int(chunk.total_compressed_size * part)
        data[at : at + 8] = bytes(8)
    path.write_bytes(data)
    errors = []
    for threads in (1, 2, 3, 7):
        with pytest.raises(plait.CorruptSource) as raised:
            plait.verify(path, sort_by="k", threads=threads)
        errors.append(str(raised.value))
    assert set(errors) == {errors[0]}
    assert "column `a`" in errors[0]


@pytest.mark.parametrize("threads", [0, 2000, "many"])
def test_a_wrong_number_of_threads_is_an_error(tmp_path, threads):
    path = write(tmp_path / "a.parquet", np.arange(10))
    with pytest.raises(plait.PlaitError, match="threads"):
        plait.verify(path, sort_by="k", threads=threads)
    with pytest.raises(plait.PlaitError, match="threads"):
        plait.read(path, sort_by="k", threads=threads)
