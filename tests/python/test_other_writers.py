"""Files by parquet-java, Impala, Arrow C++ and others: read in place, concatenated with themselves.

`PLAIT_PARQUET_TESTING` names the folder with `data/` and `bad_data/`.
"""

import json
import os
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from .make_types import chunks, differences, whole

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("PLAIT_PARQUET_TESTING", ROOT.parent / "shared/data/parquet-testing"))
if not (HOME / "data").is_dir():
    pytest.skip(
        f"no files of other writers in {HOME}: set PLAIT_PARQUET_TESTING", allow_module_level=True
    )

GOOD = sorted(path.name for path in (HOME / "data").glob("*.parquet"))
BAD = sorted(path.name for path in (HOME / "bad_data").glob("*.parquet"))

# Files in data/ that are refused: the error, words of its message, and why.
REFUSED = {
    # the checksum of a page is wrong on purpose
    "datapage_v1-corrupt-checksum.parquet": (plait.CorruptSource, "does not match its checksum"),
    "rle-dict-uncompressed-corrupt-checksum.parquet": (
        plait.CorruptSource,
        "does not match its checksum",
    ),
    # the header of the dictionary page is not counted in the length of its chunk
    "nation.dict-malformed.parquet": (plait.CorruptSource, "page reaches out of its chunk"),
    # the footer uses the number of a field of the format for another type: an old fork's extension
    "dict-page-offset-zero.parquet": (plait.CorruptSource, "sources cannot be read"),
    # one page of a gigabyte in 4 kB; PyArrow and DuckDB cannot hand its rows out either
    "large_string_map.brotli.parquet": (
        plait.MemoryLimitExceeded,
        "one page is larger than the memory limit",
    ),
}
# Originals that only PyArrow reads.
NOT_IN_DUCKDB = {"map_no_value.parquet"}  # a map that is a set

# What becomes of bad_data/: refused, or the number of rows, as PyArrow and DuckDB also read it.
BAD_ENDS = {
    "ARROW-GH-41317.parquet": plait.CorruptSource,
    "ARROW-GH-43605.parquet": 2 * 21_186,  # only a page header claims too much
    "ARROW-RS-GH-6229-LEVELS.parquet": plait.CorruptSource,
    "PARQUET-1481.parquet": plait.CorruptSource,
}
RSS_MAX = 1 << 30


def pyarrow_rows(path):
    return pq.read_table(path)


def duckdb_rows(path):
    return duckdb.sql(f"from read_parquet('{path}')").to_arrow_table()


def twice(tmp_path, path):
    copies = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for copy in copies:
        shutil.copyfile(path, copy)
    return copies


def test_every_file_of_the_lists_is_there():
    assert set(REFUSED) | NOT_IN_DUCKDB <= set(GOOD)
    assert set(BAD_ENDS) == set(BAD)


@pytest.mark.parametrize(
    "tiers", [(), ("chunk",), ("page", "dict")], ids=["value", "chunk", "page"]
)
@pytest.mark.parametrize("name", [name for name in GOOD if name not in REFUSED])
def test_a_file_concatenated_with_itself_has_its_rows_twice(name, tiers, tmp_path):
    source, out = HOME / "data" / name, tmp_path / "out.parquet"
    report = plait.merge(
        twice(tmp_path, source), out, sort_by=[], copy_tiers=tiers, verify="content"
    )
    readers = [pyarrow_rows] if name in NOT_IN_DUCKDB else [pyarrow_rows, duckdb_rows]
    for rows in readers:
        original = rows(source)
        assert report.rows_out == 2 * original.num_rows
        expected = {
            column: pa.concat_arrays([whole(chunks(original[column]))] * 2)
            for column in original.column_names
        }
        merged = rows(out)
        assert merged.schema.equals(original.schema)
        assert differences(expected, merged) == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_malformed_is_refused_by_name(name, tmp_path):
    kind, words = REFUSED[name]
    with pytest.raises(kind, match=words) as caught:
        plait.merge(twice(tmp_path, HOME / "data" / name), tmp_path / "out", sort_by=[])
    assert type(caught.value) is kind
    assert caught.value.path == str(tmp_path / "a.parquet")
    assert caught.value.column or name == "dict-page-offset-zero.parquet"  # its footer is damaged
    assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")


SCRIPT = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
import plait
from peak_memory import peak_rss_bytes
a, b, out = sys.argv[1:]
calls = {
    "merge": lambda: plait.merge([a, b], out, sort_by=[], copy_tiers=()).rows_out,
    "chunk": lambda: plait.merge([a, b], out + ".chunk.parquet", sort_by=[]).rows_out,
    "verify": lambda: plait.verify([a], sort_by=[], against=[b]).ok,
    "inspect": lambda: plait.inspect(a, pages=True).rows,
}
ends = {}
for name, call in calls.items():
    try:
        ends[name] = call()
    except plait.PlaitError as error:
        ends[name] = type(error).__name__
ends["rss"] = peak_rss_bytes()
print(json.dumps(ends))
"""


@pytest.mark.parametrize("name", BAD + list(REFUSED))
def test_bad_files_neither_crash_nor_hang_nor_take_a_gigabyte(name, tmp_path, python):
    folder = HOME / ("bad_data" if name in BAD else "data")
    out = tmp_path / "out.parquet"
    ended = python("-c", SCRIPT, *twice(tmp_path, folder / name), out)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    ends = json.loads(ended.stdout)
    assert ends["rss"] < RSS_MAX
    end = BAD_ENDS[name] if name in BAD else REFUSED[name][0]
    expected = end if isinstance(end, int) else end.__name__
    assert ends["merge"] == ends["chunk"] == expected
    assert out.exists() == isinstance(end, int)
    if isinstance(end, int):
        for rows in (pyarrow_rows, duckdb_rows):
            assert rows(out).num_rows == end
