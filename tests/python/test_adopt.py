"""`plait.adopt`: a folder of Parquet files becomes a table, and no file of it is touched."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

deltalake = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")
pytestmark = pytest.mark.local


def write(folder, name, **columns):
    path = Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def seen(path):
    arrow = deltalake.DeltaTable(path).to_pyarrow_table()
    lazy = pl.scan_delta(path).select(arrow.column_names).collect()
    found = Counter(map(tuple, zip(*arrow.to_pydict().values())))
    assert found == Counter(lazy.rows())
    return found


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "events")


def state(path):
    return {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in Path(path).rglob("*.parquet")}


def test_files_stay_as_they_are_and_every_reader_sees_each_row_once(path):
    for i in range(3):
        write(path, f"part {i}%é.parquet", k=[i, 5], v=["a", "b"])
    before = state(path)
    report = plait.adopt(path, sort_by="k", on_duplicate="keep_last", retention="1d")
    assert (report.version, len(report.files), report.rows) == (0, 3, 6)
    assert state(path) == before
    assert seen(path) == Counter({(0, "a"): 1, (1, "a"): 1, (2, "a"): 1, (5, "b"): 3})
    table = plait.Table(path, sort_by="k", on_duplicate="keep_last", retention="1d")
    assert [
        k for (k,) in pa.table(table.read(columns=["k"])).to_pandas().itertuples(index=False)
    ] == [0, 1, 2, 5]
    assert table.history()[0].operation == "CONVERT" and table.verify().ok
    # Bounds are those of footers, so that readers skip files.
    added = pa.table(deltalake.DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    assert sorted(row["min.k"] for row in added) == [0, 1, 2]
    table.append(pa.table({"k": [9], "v": ["z"]}))
    table.compact()
    assert len(seen(path)) == 5


def test_folders_become_columns_with_their_types(path):
    write(path, "day=1/kind=x/a.parquet", k=[1])
    write(path, "day=2/kind=a b%2Fé/b.parquet", k=[2])
    write(path, "day=__HIVE_DEFAULT_PARTITION__/kind=y/c.parquet", k=[3])
    plait.adopt(path, sort_by="k")
    assert seen(path) == Counter({(1, 1, "x"): 1, (2, 2, "a b/é"): 1, (3, None, "y"): 1})
    fields = {f.name: str(f.type.type) for f in deltalake.DeltaTable(path).schema().fields}
    assert fields == {"k": "long", "day": "long", "kind": "string"}
    for name, text in (("date", "2024-05-01"), ("string", "06")):
        other = f"{path}-{name}"
        write(other, f"d={text}/a.parquet", k=[1])
        plait.adopt(other)
        value = dt.date(2024, 5, 1) if name == "date" else "06"
        assert seen(other) == Counter({(1, value): 1})
    # A partitioned table is compacted by partition, and scanned.
    write(path, "day=1/kind=x/b.parquet", k=[1])
    assert plait.adopt(path).files == ("day=1/kind=x/b.parquet",)
    assert [group.folder for group in plait.Table(path).compact().groups] == ["day=1/kind=x"]
    assert seen(path)[(1, 1, "x")] == 2
    found = pa.table(plait.Table(path).read()).to_pylist()
    assert found[0] == {"k": 1, "day": 1, "kind": "x"} and len(found) == 4


def test_files_dropped_since_are_adopted_and_those_removed_are_not(path):
    write(path, "a.parquet", k=[1])
    plait.adopt(path, sort_by="k")
    assert plait.adopt(path).files == () and plait.Table(path).version == 0
    write(path, "b.parquet", k=[2])
    write(path, "sub/c.parquet", k=[3])
    report = plait.adopt(path)
    assert report.files == ("b.parquet", "sub/c.parquet") and report.version == 1
    table = plait.Table(path)
    table.compact()
    # What was replaced lies there, and is not adopted again: neither by us, nor after a checkpoint.
    assert plait.adopt(path).files == ()
    for i in range(10):
        table.append(pa.table({"k": [10 + i]}))
    assert plait.adopt(path).files == ()
    deltalake.DeltaTable(path).delete("k = 1")
    assert plait.adopt(path).files == ()
    assert sorted(k for (k,) in seen(path)) == [2, 3, *range(10, 20)]
    # Nor is what a writer of Plait made, and has not committed.
    (live,) = [f for f in table.files() if f.version == table.version - 1][:1]
    orphan = "part-00000-0123456789abcdef-0123456789abcdef.parquet"
    shutil.copy(Path(path, live.name), Path(path, orphan))
    report = plait.adopt(path)
    assert report.files == () and report.skipped == (orphan,) and orphan in str(report)
    # Hidden files are nobody's data.
    write(path, "_tmp/x.parquet", k=[99])
    write(path, ".x.parquet", k=[99])
    assert plait.adopt(path).files == ()


def test_files_with_other_columns_have_one_schema(path):
    write(path, "a.parquet", k=pa.array([1], pa.int32()), v=["x"])
    write(path, "b.parquet", k=pa.array([2**40], pa.int64()))
    plait.adopt(path, sort_by="k")
    fields = {f.name: str(f.type.type) for f in deltalake.DeltaTable(path).schema().fields}
    assert fields == {"k": "long", "v": "string"}
    assert pl.read_delta(path).height == 2
    write(path, "c.parquet", k=[1], w=[5])
    with pytest.raises(plait.SchemaConflict, match="`w` of long, which the table has not"):
        plait.adopt(path)
    assert plait.Table(path).version == 0


def test_what_delta_lacks_is_told_by_column_before_any_work(path):
    write(path, "a.parquet", k=pa.array([1], pa.uint32()), ok=[1], t=pa.array([1], pa.time64("us")))
    write(path, "b.parquet", k=pa.array([1], pa.uint32()), d=pa.array([1], pa.duration("s")))
    with pytest.raises(plait.Unsupported) as caught:
        plait.adopt(path)
    text = str(caught.value)
    assert "`k` of uint32" in text and "`t` of" in text and "`d` of" in text and "`ok`" not in text
    assert not Path(path, "_delta_log").exists()


def test_what_cannot_be_adopted_is_refused_by_name(path, tmp_path):
    with pytest.raises(plait.SourceNotFound, match="no such folder"):
        plait.adopt(path)
    Path(path).mkdir()
    with pytest.raises(plait.SourceNotFound, match="has no Parquet files"):
        plait.adopt(path)
    write(path, "day=1/a.parquet", k=[1])
    write(path, "b.parquet", k=[1])
    with pytest.raises(plait.Unsupported, match="folders name different partition columns"):
        plait.adopt(path)
    Path(path, "b.parquet").unlink()
    write(path, "day=1/b.parquet", k=[1], day=[1])
    with pytest.raises(plait.Unsupported, match=r"in the names of their folders: got `day`"):
        plait.adopt(path)
    Path(path, "day=1", "b.parquet").unlink()
    plait.adopt(path, sort_by="k")
    for given in ({"sort_by": "day"}, {"on_duplicate": "keep_last"}, {"retention": "9d"}):
        with pytest.raises(plait.InvalidArgument, match="is not that of the table"):
            plait.adopt(path, **given)
    write(path, "day=mon/c.parquet", k=[1])
    with pytest.raises(plait.Unsupported, match="not of their partition column: got `day`"):
        plait.adopt(path)
    with pytest.raises(plait.ForeignTable, match="is in a table of Delta"):
        plait.adopt(f"{path}/day=1")
    hudi = tmp_path / "h"
    (hudi / ".hoodie").mkdir(parents=True)
    with pytest.raises(plait.ForeignTable, match="table of Hudi"):
        plait.adopt(str(hudi))


def test_a_compacted_plain_folder_is_refused(path):
    for i in range(2):
        write(path, f"{i}.parquet", k=[i, 5])
    plait.compact(path, sort_by="k")
    if any(Path(path).glob("_plait/manifest-*")):
        with pytest.raises(plait.ForeignTable, match="compacted as a plain folder"):
            plait.adopt(path)


def test_a_folder_in_a_bucket_is_adopted(s3_server):
    client = s3_server.client()
    client.create_bucket(Bucket="adopted")
    options = {**s3_server.options(), "aws_region": "us-east-1"}
    for i in range(2):
        out = pa.BufferOutputStream()
        pq.write_table(pa.table({"k": [i, 5]}), out)
        key = f"a b/day={i}/x%.parquet"
        client.put_object(Bucket="adopted", Key=key, Body=out.getvalue().to_pybytes())
    url = "s3://adopted/a b"
    report = plait.adopt(url, sort_by="k", storage_options=options)
    assert report.files == ("day=0/x%.parquet", "day=1/x%.parquet") and report.rows == 4
    assert plait.adopt(url, storage_options=options).files == ()
    table = plait.Table(url, storage_options=options)
    assert [file.partition for file in table.files()] == [{"day": "0"}, {"day": "1"}]
    found = pa.table(plait.scan(url, storage_options=options))
    assert sorted(found["day"].to_pylist()) == [0, 0, 1, 1]
