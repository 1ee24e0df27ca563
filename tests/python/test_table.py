"""`plait.Table`: rows come in, are merged, go, and are each seen once by every reader of Delta.

The oracle is a list of rows in the order in which they were committed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.table import delta

deltalake = pytest.importorskip("deltalake")
pl = pytest.importorskip("polars")
pytestmark = pytest.mark.local

HERE = Path(__file__).parent


def batch(keys, value):
    return pa.table(
        {"k": pa.array(keys, pa.int64()), "v": pa.array([value] * len(keys), pa.string())}
    )


def rows(read):
    return [tuple(row.values()) for row in pa.table(read).to_pylist()]


def seen(path, version=None):
    """The rows as readers of Delta that are not ours see them: all of them see the same."""
    table = deltalake.DeltaTable(path, version=version)
    arrow = Counter(map(tuple, zip(*table.to_pyarrow_table().to_pydict().values())))
    lazy = Counter(pl.scan_delta(path, version=version).collect().rows())
    whole = Counter(pl.read_delta(path, version=version).rows())
    assert arrow == lazy == whole
    return arrow


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "metrics")


# -- appending and reading -------------------------------------------------------------------------


def test_every_version_is_what_was_appended_until_then(path):
    rng = random.Random(1)
    table = plait.Table(path, sort_by="k")
    assert table.version is None and table.files() == () and table.history() == []
    expected = []
    for i in range(23):
        keys = [rng.randrange(100) for _ in range(20)]
        report = table.append(batch(keys, f"of {i}"))
        assert (report.version, report.rows, len(report.files)) == (i, 20, 1)
        expected.append(Counter((k, f"of {i}") for k in keys))
    assert len(list(Path(path, "_delta_log").glob("*.checkpoint.parquet"))) == 2
    for version in (0, 9, 10, 11, 20, 22):
        until = sum(expected[: version + 1], Counter())
        assert seen(path, version) == until
        assert Counter(rows(table.read(version=version))) == until
        assert len(table.files(version=version)) == version + 1
    found = rows(table.read())
    assert [k for k, _ in found] == sorted(k for k, _ in found)
    assert plait.Table(path).version == 22 and table.verify().ok
    with pytest.raises(plait.SourceNotFound, match="no such version"):
        table.read(version=23)
    # The checkpoints alone say the same.
    for log in Path(path, "_delta_log").glob("*.json"):
        if int(log.name.split(".")[0]) <= 20:
            log.unlink()
    assert seen(path) == sum(expected, Counter())
    assert Counter(rows(plait.Table(path).read())) == sum(expected, Counter())


def test_a_batch_is_added_once_by_its_name(path):
    table = plait.Table(path, sort_by="k")
    for _ in range(3):
        table.append(batch([2, 1], "a"), batch_id="one")
    assert table.version == 0 and table.append(batch([2, 1], "a"), batch_id="one").rows == 0
    plait.Table(path).append(batch([2, 1], "a"), batch_id="one")
    table.append(batch([3], "b"), batch_id="two")
    table.append(batch([3], "b"))
    assert seen(path) == Counter({(1, "a"): 1, (2, "a"): 1, (3, "b"): 2})
    # Names are kept by checkpoints.
    for i in range(20):
        table.append(batch([9], "c"), batch_id=f"c{i}")
    assert plait.Table(path).append(batch([2, 1], "a"), batch_id="one").rows == 0
    assert table.history()[0].info["plait.batch_id"] == "c19"
    for wrong in ("", 5):
        with pytest.raises(plait.InvalidArgument, match="`batch_id` is no name"):
            table.append(batch([1], "a"), batch_id=wrong)


def test_rows_are_sorted_within_little_memory_and_by_any_number_of_threads(path):
    rng = random.Random(2)
    keys = [rng.randrange(10**9) for _ in range(300_000)]
    table = plait.Table(path, sort_by="k")
    told = []
    parts = [batch(keys[i : i + 50_000], "x").to_batches()[0] for i in range(0, 300_000, 50_000)]
    report = table.append(iter(parts), memory_limit="16MB", threads=1, progress=told.append)
    assert report.rows == 300_000 and told
    assert [k for k, _ in rows(table.read())] == sorted(keys)
    with pytest.raises(plait.InvalidArgument, match="memory_limit"):
        table.append(batch([1], "x"), memory_limit="1KB")
    with pytest.raises(plait.InvalidArgument, match="threads"):
        table.append(batch([1], "x"), threads=0)
    with pytest.raises(plait.InvalidArgument, match="memory_limit"):
        table.read(memory_limit="1KB")
    with pytest.raises(plait.InvalidArgument, match="threads"):
        table.read(threads=0)


def test_rows_of_one_key_are_one_row_and_the_later_commit_is_newer(path):
    for rule, expected in (("keep_last", "b"), ("keep_first", "a"), ("keep_all", None)):
        table = plait.Table(f"{path}-{rule}", sort_by="k", on_duplicate=rule)
        table.append(batch([1, 2], "a"))
        table.append(batch([2, 3], "b"))
        of_two = [v for k, v in rows(table.read()) if k == 2]
        assert of_two == ([expected] if expected else ["a", "b"])
        assert plait.Table(f"{path}-{rule}").on_duplicate == rule
    table = plait.Table(f"{path}-error", sort_by="k", on_duplicate="error")
    table.append(batch([1], "a"))
    with pytest.raises(plait.DuplicateKey):
        table.append(batch([2, 2], "b"))
    assert table.version == 0


def test_reads_take_columns_conditions_limits_and_directions(path):
    table = plait.Table(path, sort_by="k")
    for i in range(3):
        table.append(batch(range(i, 30, 3), f"of {i}"))
    assert rows(table.read(where="k >= 5 AND k < 8")) == [(5, "of 2"), (6, "of 0"), (7, "of 1")]
    assert rows(table.read(columns=["v"], limit=2)) == [("of 0",), ("of 1",)]
    assert rows(table.read(reverse=True, limit=1)) == [(29, "of 2")]
    assert table.read(where="k < 100").explain().files == 3


def test_nothing_is_appended_where_there_are_no_rows(path):
    table = plait.Table(path, sort_by="k")
    assert table.append(batch([], "x")).version is None and table.version is None
    table.append(batch([1], "x"))
    assert table.append(batch([], "x")).version == 0
    # A name is kept for a batch without rows, too.
    assert table.append(batch([], "x"), batch_id="empty").version == 1
    assert table.append(batch([5], "x"), batch_id="empty").rows == 0
    with pytest.raises(plait.SourceNotFound, match="has no version yet"):
        plait.Table(f"{path}-new", sort_by="k").read()


# -- what is refused -------------------------------------------------------------------------------


def test_options_are_those_of_the_table(path):
    with pytest.raises(plait.InvalidArgument, match="a new table needs an order"):
        plait.Table(path)
    table = plait.Table(path, sort_by="k, -v", on_duplicate="keep_last", retention="12h")
    table.append(batch([1], "x"))
    said = deltalake.DeltaTable(path).metadata().configuration
    assert said["plait.sort_by"] == "k, -v" and said["plait.on_duplicate"] == "keep_last"
    assert said["delta.deletedFileRetentionDuration"] == "interval 12 hours"
    again = plait.Table(path, sort_by="k,-v", on_duplicate="keep_last", retention=43_200)
    assert again.sort_by == "k, -v" and again.on_duplicate == "keep_last"
    for given in ({"sort_by": "k"}, {"on_duplicate": "keep_all"}, {"retention": "7d"}):
        with pytest.raises(plait.InvalidArgument, match=f"`{next(iter(given))}` is not that"):
            plait.Table(path, **given)


def test_two_that_make_a_table_make_one(path):
    tables = [plait.Table(path, sort_by="k") for _ in range(2)]
    other = plait.Table(path, sort_by="v")
    for i, table in enumerate(tables):
        table.append(batch([i], "x"))
    with pytest.raises(plait.InvalidArgument, match="`sort_by` is not that of the table"):
        other.append(batch([5], "x"))
    assert tables[0].version >= 1 and Counter(k for k, _ in seen(path).elements())[0] == 1


def test_a_folder_that_is_another_table_is_refused(path, tmp_path):
    plait.Table(path, sort_by="k").append(batch([1], "x"))
    inner = Path(path, "inner")
    inner.mkdir()
    hudi = tmp_path / "h"
    (hudi / ".hoodie").mkdir(parents=True)
    for folder, kind in ((inner, "Delta"), (hudi, "Hudi")):
        with pytest.raises(plait.ForeignTable, match=f"table of {kind}"):
            plait.Table(folder, sort_by="k")


def test_columns_that_do_not_fit_are_named_before_any_work(path):
    table = plait.Table(path, sort_by="k")
    odd = pa.table(
        {
            "k": pa.array([1], pa.uint32()),
            "t": pa.array([1], pa.time32("s")),
            "n": pa.array([1], pa.timestamp("ns")),
            "d": pa.array([1], pa.duration("s")),
        }
    )
    with pytest.raises(plait.Unsupported) as caught:
        table.append(odd)
    for column in ("`k` of uint32", "`t` of", "`n` of", "`d` of"):
        assert column in str(caught.value)
    assert not Path(path).exists()
    table.append(batch([1], "x"))
    before = sorted(Path(path).rglob("*"))
    with pytest.raises(plait.SchemaConflict, match="`v` of long, which the table has as string"):
        table.append(pa.table({"k": [1], "v": [2]}))
    with pytest.raises(plait.SchemaConflict, match="`w` of long, which the table has not"):
        table.append(pa.table({"k": [1], "w": [2]}))
    assert sorted(Path(path).rglob("*")) == before
    # A column may be absent.
    table.append(pa.table({"k": pa.array([2], pa.int64())}))
    assert seen(path) == Counter({(1, "x"): 1, (2, None): 1})
    assert rows(table.read()) == [(1, "x"), (2, None)]


def test_all_types_are_read_back_by_others(path):
    import datetime as dt
    from decimal import Decimal

    moment = dt.datetime(2024, 5, 1, 12, 30, 1, 123456)
    columns = {
        "k": pa.array([2, 1], pa.int64()),
        "b": pa.array([True, None]),
        "i8": pa.array([1, -1], pa.int8()),
        "f": pa.array([1.5, float("nan")]),
        "s": pa.array(["x" * 50, None]),
        "y": pa.array([b"x", b""]),
        "d": pa.array([dt.date(2024, 5, 1), None]),
        "m": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "z": pa.array([moment, None], pa.timestamp("us", "UTC")),
        "n": pa.array([moment, None], pa.timestamp("us")),
        "l": pa.array([["a"], []]),
        "t": pa.array([{"x": 1, "y": "a"}, None], pa.struct({"x": pa.int64(), "y": pa.string()})),
        "p": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "c": pa.array(["u", "v"]).dictionary_encode(),
    }
    given = pa.table(columns)
    plait.Table(path, sort_by="k").append(given)
    found = deltalake.DeltaTable(path).to_pyarrow_table()
    plain = given.take([1, 0]).set_column(given.num_columns - 1, "c", pa.array(["v", "u"]))
    for name in plain.column_names:
        expected, is_ = plain[name].to_pylist(), found[name].to_pylist()
        if name == "z":
            is_ = [v and v.replace(tzinfo=None) for v in is_]
            expected = [v and v.replace(tzinfo=None) for v in expected]
        assert str(is_) == str(expected), name
    assert pl.read_delta(path).height == 2
    (stats,) = (
        deltalake.DeltaTable(path).get_add_actions(flatten=True).to_pylist()
        if hasattr(deltalake.DeltaTable(path).get_add_actions(flatten=True), "to_pylist")
        else pa.table(deltalake.DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    )
    assert stats["num_records"] == 2 and stats["min.k"] == 1 and stats["max.k"] == 2
    assert stats["null_count.s"] == 1 and stats["max.s"] >= "x" * 50 and stats.get("max.f") is None


# -- compacting ------------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_compactions_change_no_row_that_is_read(seed, path):
    rng = random.Random(seed)
    rule = rng.choice(["keep_all", "keep_last", "keep_first"])
    table = plait.Table(path, sort_by="k", on_duplicate=rule)
    newest, oldest, every = {}, {}, Counter()
    for i in range(30):
        low = rng.randrange(60)
        keys = [low + rng.randrange(20) for _ in range(8)]
        table.append(batch(keys, f"of {i}"))
        for k in keys:
            newest[k] = f"of {i}"
            oldest.setdefault(k, f"of {i}")
            every[(k, f"of {i}")] += 1
        if rng.random() < 0.4:
            policy = rng.choice(["overlap", "size_tiered", "full"])
            table.compact(policy=policy, merge_factor=rng.choice([2, 3]), max_depth=2)
        found = rows(plait.Table(path).read())
        if rule == "keep_all":
            assert Counter(found) == every, (seed, i)
        else:
            expected = newest if rule == "keep_last" else oldest
            assert dict(found) == expected and len(found) == len(expected), (seed, i, rule)
    table.compact(policy="full")
    assert table.verify().ok
    if rule != "keep_all":
        expected = newest if rule == "keep_last" else oldest
        assert seen(path) == Counter(expected.items())


def test_a_file_between_two_with_its_keys_is_merged_with_them(path):
    table = plait.Table(path, sort_by="k", on_duplicate="keep_last")
    for keys, value in (([1, 2], "old"), ([1, 2], "mid"), ([2, 3], "new")):
        table.append(batch(keys, value))
    # Made small and large so that a policy of levels takes the first and the last alone.
    from plait.table.survey import _in_order_of_age

    assert _in_order_of_age([[0, 2]], [(1, 2), (1, 2), (2, 3)]) == [[0, 1, 2]]
    assert _in_order_of_age([[0, 2]], [(1, 2), (5, 6), (2, 3)]) == [[0, 2]]
    # Another joins because of one that joined; a group that shares a file waits.
    ends = [(1, 2), (2, 5), (5, 6), (1, 1)]
    assert _in_order_of_age([[0, 3], [2]], ends) == [[0, 1, 2, 3]]
    table.compact()
    assert rows(table.read()) == [(1, "mid"), (2, "new"), (3, "new")]


def test_a_compaction_by_another_door_keeps_order_and_rule(path):
    from plait.cli import main

    table = plait.Table(path, sort_by="-k", on_duplicate="keep_last")
    for i in range(3):
        table.append(batch([1, 2, 3], f"of {i}"))
    assert main(["compact", path, "--yes", "--quiet"]) == 0
    assert rows(table.read()) == [(3, "of 2"), (2, "of 2"), (1, "of 2")]
    assert len(table.files()) == 1 and seen(path) == Counter({(k, "of 2"): 1 for k in (1, 2, 3)})
    with pytest.raises(plait.InvalidArgument, match="are those of the table"):
        table.compact(storage_options={})
    with pytest.raises(plait.InvalidArgument, match="threads"):
        table.compact(threads=0)
    told = []
    table.append(batch([1], "z"))
    table.compact(progress=told.append)
    assert told


def test_an_upsert_by_others_is_newer_and_their_rewrites_are_not(path):
    table = plait.Table(path, sort_by="k", on_duplicate="keep_last")
    table.append(batch([1, 2], "a"))
    deltalake.write_deltalake(path, batch([2, 3], "theirs"), mode="append")
    assert dict(rows(table.read())) == {1: "a", 2: "theirs", 3: "theirs"}
    table.append(batch([3], "ours"))
    expected = {1: "a", 2: "theirs", 3: "ours"}
    assert dict(rows(table.read())) == expected
    table.compact()
    assert dict(rows(table.read())) == expected and len(seen(path)) == 3
    # Their checkpoint keeps the tags, or the commits say it.
    deltalake.write_deltalake(path, batch([1], "late"), mode="append")
    deltalake.DeltaTable(path).create_checkpoint()
    table.append(batch([2], "last"))
    assert dict(rows(plait.Table(path).read())) == {1: "late", 2: "last", 3: "ours"}


def test_a_shell_appends_reads_compacts_and_expires(path, tmp_path, capsys):
    import pyarrow.parquet as pq

    from plait.cli import main

    def run(*arguments):
        code = main([*arguments])
        told = capsys.readouterr()
        assert code == 0, told.err
        return told.out

    for i in range(2):
        pq.write_table(batch([3, 1, 2], f"of {i}"), tmp_path / f"{i}.parquet")
    files = [str(tmp_path / f"{i}.parquet") for i in range(2)]
    how = ["--sort-by", "k", "--on-duplicate", "keep_last", "--retention", "1d"]
    assert "appended 3 rows in 1 file" in run("append", path, files[0], *how, "--batch-id", "one")
    assert "nothing to append" in run("append", path, files[0], "--batch-id", "one")
    told = json.loads(run("append", path, files[1], "--memory-limit", "64MB", "--json"))
    assert told["version"] == 1 and told["rows"] == 3
    assert run("cat", path, "--format", "csv").split() == [
        "k,v",
        "1,of",
        "1",
        "2,of",
        "1",
        "3,of",
        "1",
    ]
    assert "on_duplicate" not in run("compact", path) and len(plait.Table(path).files()) == 1
    assert run("cat", path, "--format", "jsonl", "--limit", "1") == '{"k":1,"v":"of 1"}\n'
    text = run("history", path, "--limit", "2")
    assert "OPTIMIZE" in text and "WRITE" in text and text.count("Plait/") == 2
    assert [v["version"] for v in json.loads(run("history", path, "--json"))] == [2, 1, 0]
    assert "would remove 0 files" in run("expire", path)
    assert "would remove 2 files" in run("expire", path, "--retention", "0")
    assert "removed 2 files" in run("expire", path, "--retention", "0", "--yes")
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(batch([1], "x"), folder / "a.parquet")
    assert "adopted 1 file, 1 row, version 0" in run("adopt", str(folder), "--sort-by", "k")
    assert "would remove 0 files" in run("expire", str(tmp_path)), "a plain folder"
    assert main(["history", str(tmp_path / "none")]) != 0


# -- deleting and expiring -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_deletes_by_key_are_exact(seed, path):
    rng = random.Random(seed)
    table = plait.Table(path, sort_by="a, b")
    expected = Counter()
    for i in range(6):
        a = [rng.choice(["p", "q", "r", None]) for _ in range(40)]
        b = [rng.choice([rng.randrange(50) * 0.5, None, float("nan")]) for _ in range(40)]
        table.append(
            pa.table({"a": pa.array(a, pa.string()), "b": pa.array(b, pa.float64()), "v": [i] * 40})
        )
        expected += Counter((x, str(y), i) for x, y in zip(a, b))

    def number(text):
        return None if text == "None" else float(text)

    conditions = [
        ("b < 3", lambda a, b: b is not None and b < 3),
        ("a = 'p' AND b >= 10", lambda a, b: a == "p" and b is not None and not b < 10),
        ("b IS NULL", lambda a, b: b is None),
        ("a = 'q'", lambda a, b: a == "q"),
        ("b BETWEEN 4 AND 6", lambda a, b: b is not None and 4 <= b <= 6),
    ]
    rng.shuffle(conditions)
    for condition, goes in conditions:
        gone = Counter({row: n for row, n in expected.items() if goes(row[0], number(row[1]))})
        report = table.delete(condition)
        assert report.rows == sum(gone.values()), condition
        expected -= gone
        found = pa.table(plait.Table(path).read()).to_pylist() if expected else []
        assert Counter((r["a"], str(r["b"]), r["v"]) for r in found) == expected, condition
    assert table.verify().ok
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == sum(expected.values())


def test_whole_files_go_and_others_are_not_opened(path):
    table = plait.Table(path, sort_by="k")
    for low in (0, 10, 20):
        table.append(batch(range(low, low + 10), "x"))
    report = table.delete("k < 15")
    assert (report.rows, len(report.removed), len(report.rewritten)) == (15, 1, 1)
    assert sorted(k for k, _ in seen(path)) == list(range(15, 30))
    assert table.delete("k < 15").rows == 0 and table.version == 3
    assert len(rows(table.read(version=2))) == 30
    with pytest.raises(plait.InvalidArgument, match="`where` is missing"):
        table.delete("")
    upserts = plait.Table(f"{path}-2", sort_by="k", on_duplicate="keep_last")
    upserts.append(batch([1], "x"))
    with pytest.raises(plait.InvalidArgument, match="not sorted by: got `v`"):
        upserts.delete("v = 'x'")
    # A rewritten file stays as old as it was.
    upserts.append(batch([2, 3], "new"))
    upserts.append(batch([3, 4], "newest"))
    upserts.delete("k = 2")
    assert rows(upserts.read()) == [(1, "x"), (3, "newest"), (4, "newest")]


def test_a_file_that_is_there_again_after_its_removal_is_not_removed_at_once(path):
    table = plait.Table(path, sort_by="k")
    for i in range(2):
        table.append(batch([1, 2], f"of {i}"))
    table.compact()
    (made,) = [file.name for file in table.files()]
    deltalake.DeltaTable(path).restore(1)
    # As a compaction would, which makes the same file of the same sources and has not committed.
    again = Path(path, made)
    body = again.read_bytes()
    again.unlink()
    time.sleep(0.02)
    again.write_bytes(body)
    table = plait.Table(path)
    assert table.expire(0).removed == () and again.exists()
    assert len(table.compact().groups) == 1 and len(seen(path)) == 4


def test_a_compaction_that_would_drop_rows_is_refused_before_any_work(path):
    table = plait.Table(path, sort_by="k", on_duplicate="keep_last")
    for i in range(2):
        table.append(batch([1], f"of {i}"))
    log = Path(path, "_delta_log", f"{0:020}.json")
    given = '"plait.sort_by":"k"'
    assert given in log.read_text()
    log.write_text(log.read_text().replace(given, f'{given},"delta.appendOnly":"true"'))
    before = sorted(Path(path).rglob("*"))
    with pytest.raises(plait.Unsupported, match="takes no deletes"):
        plait.Table(path).compact()
    assert sorted(Path(path).rglob("*")) == before


def test_compactions_say_that_data_changed_where_they_drop_rows(path):
    for rule, changed in (("keep_all", False), ("keep_last", True)):
        table = plait.Table(f"{path}-{rule}", sort_by="k", on_duplicate=rule)
        for i in range(2):
            table.append(batch([1], f"of {i}"))
        table.compact()
        log = Path(f"{path}-{rule}", "_delta_log", f"{2:020}.json").read_text().splitlines()
        adds = [json.loads(line)["add"] for line in log if '"add"' in line[:8]]
        assert [add["dataChange"] for add in adds] == [changed]


def test_nested_columns_of_others_take_rows_whatever_they_say_of_nulls(path):
    kind = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    schema = pa.schema([("k", pa.int64()), ("s", kind), ("l", pa.list_(pa.string()))])
    given = pa.table({"k": [1], "s": [{"x": 1}], "l": [["a"]]}, schema)
    deltalake.write_deltalake(path, given)
    plait.Table(path, sort_by="k").append(given)
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 2


def test_columns_that_take_no_nulls_take_no_rows(path):
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    deltalake.write_deltalake(path, pa.table({"k": [1]}, schema))
    with pytest.raises(plait.Unsupported, match=r"takes no nulls.*`k`"):
        plait.Table(path, sort_by="k").append(
            pa.table({"k": [None]}, pa.schema([("k", pa.int64())]))
        )
    assert deltalake.DeltaTable(path).version() == 0


def test_no_table_is_made_where_rows_would_be_lost(path):
    plait.Table(path, sort_by="k").append(batch([1], "x"))
    with pytest.raises(plait.ForeignTable, match="in a table of Delta"):
        plait.Table(f"{path}/below", sort_by="k").append(batch([2], "x"))
    assert not Path(path, "below").exists()
    plain = Path(f"{path}-plain")
    plain.mkdir()
    pq.write_table(batch([3], "x"), plain / "a.parquet")
    with pytest.raises(plait.ForeignTable, match=r"no table.*\n.*plait\.adopt"):
        plait.Table(plain, sort_by="k").append(batch([4], "x"))
    assert [path.name for path in plain.iterdir()] == ["a.parquet"]
    plait.adopt(plain, sort_by="k")
    assert plait.Table(plain, sort_by="k").append(batch([4], "x")).rows == 1
    assert len(pa.table(plait.Table(plain).read())) == 2


def test_deletes_are_refused_where_the_table_forbids_them(path):
    settings = {"delta.appendOnly": "true"}
    deltalake.write_deltalake(path, batch([1, 2], "x"), configuration=settings)
    table = plait.Table(path, sort_by="k")
    table.append(batch([3], "y"))
    with pytest.raises(plait.Unsupported, match="takes no deletes"):
        table.delete("k = 1")
    deltalake.DeltaTable(path).alter.add_constraint({"positive": "k > 0"})
    with pytest.raises(plait.Unsupported, match=r"delta\.constraints\.positive"):
        table.append(batch([-1], "y"))


def age(path, days):
    """Makes files, and removals in the log, older."""
    for file in Path(path).rglob("*.parquet"):
        stat = file.stat()
        os.utime(file, (stat.st_atime - days * 86_400, stat.st_mtime - days * 86_400))
    for log in Path(path, "_delta_log").glob("*.json"):
        stat = log.stat()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for action in lines:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= int(days * 86_400_000)
        log.write_text("".join(json.dumps(action) + "\n" for action in lines))
        os.utime(log, (stat.st_atime - days * 86_400, stat.st_mtime - days * 86_400))


def test_files_go_that_no_version_inside_the_retention_needs(path):
    table = plait.Table(path, sort_by="k", retention="2d")
    for i in range(4):
        table.append(batch([1, 2], f"of {i}"))
    first = table.files()[0].name
    table.compact()
    orphan = Path(path, "part-00000-orphan.parquet")
    orphan.write_bytes(Path(path, first).read_bytes())
    Path(path, "README.txt").write_text("stays")
    assert table.expire().removed == () and len(table.expire(0, yes=False).removed) == 4
    assert rows(table.read(version=3)) and orphan.exists()
    age(path, 1.5)
    table = plait.Table(path)
    assert table.expire().removed == (), "inside the retention of the table"
    assert table.expire("1d", yes=False).dry_run and len(table.expire("1d", yes=False).removed) == 5
    age(path, 1)
    table = plait.Table(path)
    done = table.expire()
    assert len(done.removed) == 5 and done.bytes > 0 and orphan.name in done.removed
    assert not orphan.exists() and not Path(path, first).exists()
    assert Path(path, "README.txt").exists() and len(rows(table.read())) == 8
    assert seen(path) == Counter(rows(table.read())) and table.verify().ok


def test_the_log_is_cleaned_up_to_a_checkpoint_and_reads_go_on(path):
    table = plait.Table(path, sort_by="k", on_duplicate="keep_last")
    for i in range(25):
        table.append(batch([i % 5], f"of {i}"), batch_id=f"b{i}")
    expected = dict(rows(table.read()))
    age(path, 40)
    table = plait.Table(path)
    done = table.expire("365d")
    assert done.removed == () and len(done.log_removed) == 21
    names = sorted(file.name for file in Path(path, "_delta_log").glob("*.json"))
    assert names[0].startswith("00000000000000000020") and len(names) == 5
    table = plait.Table(path)
    assert dict(rows(table.read())) == expected and sum(seen(path).values()) == 25
    # Order and names of batches are still known.
    assert table.append(batch([0], "again"), batch_id="b0").rows == 0
    table.compact()
    assert dict(rows(plait.Table(path).read())) == expected


def test_verify_tells_what_is_not_as_the_log_says(path):
    table = plait.Table(path, sort_by="k")
    for keys in ([1, 2], [3, 4], [5, 6]):
        table.append(batch(keys, "x"))
    gone, cut, _ = (Path(path, file.name) for file in table.files())
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-10])
    report = table.verify()
    assert not report.ok and len(report.problems) >= 3
    assert f"`{gone.name}` is not there" in report.problems and "3 problems" in str(report)
    assert report.rows == 2  # of the file that can be read


def test_verify_finds_the_file_that_is_out_of_order_or_counts_others(path):
    table = plait.Table(path, sort_by="k")
    for keys in ([1, 9], [2, 8], [3, 7]):
        table.append(batch(keys, "x"))
    # Files overlap, which is no problem.
    assert table.verify().ok
    first, second, _ = (Path(path, file.name) for file in table.files())
    pq.write_table(batch([9, 1], "x"), first)
    pq.write_table(batch([2, 8, 9], "x"), second)
    problems = table.verify().problems
    for name, what in [
        (first.name, "not sorted: row 1"),
        (first.name, "bytes, the log says"),
        (second.name, "has 3 rows, the log says 2"),
    ]:
        assert any(f"`{name}`" in problem and what in problem for problem in problems), problems


def test_verify_compares_no_file_with_another(path):
    """Types of a column that were widened are those of some files alone."""
    for part, kind in enumerate([pa.int64(), pa.int32()]):
        Path(path).mkdir(exist_ok=True)
        pq.write_table(pa.table({"k": pa.array([part], kind)}), f"{path}/{part}.parquet")
        if part == 0:
            table = plait.adopt(path, sort_by="k") and plait.Table(path)
    log = Path(path, "_delta_log")
    action = {
        "path": "1.parquet",
        "partitionValues": {},
        "size": Path(path, "1.parquet").stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 1}),
    }
    (log / f"{1:020}.json").write_text(json.dumps({"add": action}))
    report = table.verify()
    assert report.ok and report.rows == 2


# -- others in between, and sudden ends ------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_each_seen_once_while_others_write(seed, path):
    rng = random.Random(seed)
    table = plait.Table(path, sort_by="k")
    table.append(batch([1], "first"))
    expected = Counter({(1, "first"): 1})
    for i in range(25):
        act = rng.choice(
            ["ours", "theirs", "their delete", "our delete", "compact", "their compact"]
        )
        keys = [rng.randrange(20) for _ in range(5)]
        value = f"{act} {i}"
        if act == "ours":
            table.append(batch(keys, value))
            expected += Counter((k, value) for k in keys)
        elif act == "theirs":
            deltalake.write_deltalake(path, batch(sorted(keys), value), mode="append")
            expected += Counter((k, value) for k in keys)
        elif act.endswith("delete"):
            if act == "our delete":
                table.delete(f"k = {keys[0]}")
            else:
                deltalake.DeltaTable(path).delete(f"k = {keys[0]}")
            expected = Counter({row: n for row, n in expected.items() if row[0] != keys[0]})
        elif act == "compact":
            table.compact(unsorted="sort")
        else:
            deltalake.DeltaTable(path).optimize.compact()
            table.compact(unsorted="sort")
        assert seen(path) == expected, (seed, i, act)
        if rng.random() < 0.3:
            table = plait.Table(path)
    table.compact(unsorted="sort")
    assert Counter(rows(table.read()) if expected else []) == expected


WRITER = """
import random, sys, pyarrow as pa, plait
path, me, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(me)
table = plait.Table(path, sort_by="k")
for i in range(count):
    keys = [rng.randrange(100) for _ in range(5)]
    rows = pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{me} {i}"] * 5})
    table.append(rows, batch_id=f"{me} {i}")
    if rng.random() < 0.2:
        table.compact(max_depth=3)
    print(i, flush=True)
"""


def start(program, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_three_writers_lose_and_double_nothing_even_if_one_is_killed(path):
    count = 15
    writers = [start(WRITER, path, me, count) for me in range(3)]
    for _ in range(5):
        assert writers[0].stdout.readline()
    writers[0].kill()
    for writer in writers[1:]:
        _, error = writer.communicate(timeout=120)
        assert writer.returncode == 0, error
    writers[0].communicate()
    again = start(WRITER, path, 0, count)
    _, error = again.communicate(timeout=120)
    assert again.returncode == 0, error
    values = Counter(v for _, v in seen(path).elements())
    assert values == Counter({f"{me} {i}": 5 for me in range(3) for i in range(count)})
    table = plait.Table(path)
    assert table.verify().ok
    found = [v.version for v in table.history()]
    assert found == list(range(len(found)))[::-1], "no version is absent"


@pytest.fixture(scope="session")
def killer(tmp_path_factory):
    """A library that kills its process between two steps."""
    library = tmp_path_factory.mktemp("killer") / "kill_in_folder.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "kill_in_folder.c", "-ldl"]
    subprocess.run(command, check=True)
    return str(library)


STEPS = {
    "append": "t.append(pa.table({'k': [3, 1, 2], 'v': ['new'] * 3}), batch_id='the batch')",
    "compact": "t.compact(policy='full')",
    "delete": "t.delete('k < 2')",
    "expire": "t.compact(policy='full'); t.expire(0)",
}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("act", STEPS)
def test_a_process_that_is_killed_at_any_step_loses_and_doubles_nothing(act, killer, tmp_path):
    program = f"import sys, pyarrow as pa, plait\nt = plait.Table(sys.argv[1])\n{STEPS[act]}"
    for step in range(60):
        path = str(tmp_path / f"t{step}")
        table = plait.Table(path, sort_by="k")
        # The tenth version brings a checkpoint.
        for i in range(10 if act == "append" else 3):
            table.append(batch([i % 4, 5], f"of {i}"))
        before = Counter(rows(table.read()))
        after = {
            "append": before + Counter({(k, "new"): 1 for k in (1, 2, 3)}),
            "delete": Counter({row: n for row, n in before.items() if row[0] >= 2}),
        }.get(act, before)
        process = start(
            program, path, LD_PRELOAD=killer, PLAIT_KILL_AT=str(step), PLAIT_KILL_IN=path
        )
        _, error = process.communicate(timeout=60)
        found = Counter(pl.read_delta(path).rows())
        assert found in (before, after), (act, step)
        assert Counter(rows(plait.Table(path).read())) == found
        if process.returncode == 0:
            assert found == after == seen(path) and step > 2
            return
        assert process.returncode == -9, error
        # Whoever does it again ends where it would have ended at once.
        exec(program.split("\n", 2)[2], {"t": plait.Table(path), "pa": pa})
        assert Counter(rows(plait.Table(path).read())) == after, (act, step)
    raise AssertionError("there is no end of steps")


def test_readers_see_whole_versions_while_rows_come_and_are_compacted(path):
    table = plait.Table(path, sort_by="k")
    table.append(batch(range(10), "0"))
    ended = threading.Event()

    def write():
        writer = plait.Table(path)
        for i in range(1, 25):
            writer.append(batch(range(10), str(i)))
            if i % 5 == 0:
                writer.compact()
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    last = 0
    while not ended.is_set():
        for found in (rows(table.read()), pl.read_delta(path).rows()):
            values = Counter(v for _, v in found)
            assert set(values.values()) == {10} and len(values) >= last
            last = len(values)
    thread.join()
    assert len(seen(path)) == 250


# -- where it lies ---------------------------------------------------------------------------------


def test_a_table_in_a_bucket_is_written_by_several(s3_server):
    s3_server.client().create_bucket(Bucket="tables")
    options = {**s3_server.options(), "aws_region": "us-east-1"}
    url = "s3://tables/some where/m"
    tables = [
        plait.Table(url, sort_by="k", on_duplicate="keep_last", storage_options=options)
        for _ in range(2)
    ]
    failed = []

    def write(me):
        try:
            for i in range(6):
                tables[me].append(batch([i, 100 + me], f"{me} {i}"), batch_id=f"{me} {i}")
        except plait.PlaitError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(me,)) for me in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    table = plait.Table(url, storage_options=options)
    assert table.version == 11 and len(table.files()) == 12
    before = rows(table.read())
    assert len(before) == 8
    assert table.compact().groups and rows(table.read()) == before
    assert table.delete("k >= 100").rows == 2 and table.verify().ok
    assert len(table.expire(0).removed) >= 12
    assert [k for k, _ in rows(plait.Table(url, storage_options=options).read())] == list(range(6))
    theirs = deltalake.DeltaTable(
        "s3://tables/some where/m", storage_options={**options, "aws_allow_http": "true"}
    )
    assert theirs.to_pyarrow_table().num_rows == 6


@pytest.fixture
def url(s3_server):
    client = s3_server.client()
    name = f"t{os.urandom(4).hex()}"
    client.create_bucket(Bucket=name)
    return f"s3://{name}/m"


def patient(server, at=None):
    return {**server.options(at), "retry_init_backoff_ms": "10", "timeout": "20s"}


def test_requests_that_fail_lose_nothing_and_double_nothing(url, s3_server, s3_proxy):
    s3_proxy.share = 0.08
    options = patient(s3_server, s3_proxy.url)
    table = plait.Table(url, sort_by="k", storage_options=options)
    expected = Counter()
    for i in range(12):
        for _ in range(20):
            try:
                table.append(batch([i, 50], f"of {i}"), batch_id=str(i))
                break
            except plait.StorageError:
                table = plait.Table(url, sort_by="k", storage_options=options)
        expected += Counter({(i, f"of {i}"): 1, (50, f"of {i}"): 1})
    s3_proxy.share = 0
    assert len(s3_proxy.failed) > 5
    table = plait.Table(url, storage_options=patient(s3_server))
    assert Counter(rows(table.read())) == expected and table.version == 11


def test_files_are_adopted_verified_and_committed_many_at_a_time(url, s3_server, s3_proxy):
    client, bucket = s3_server.client(), url.split("/")[2]
    for part in range(30):
        out = pa.BufferOutputStream()
        pq.write_table(batch([part, part + 10], f"of {part}"), out)
        body = out.getvalue().to_pybytes()
        client.put_object(Bucket=bucket, Key=f"m/day={part}/x.parquet", Body=body)
    most = s3_proxy.watch(lambda method, path: f"{method} {'day=' in unquote(path)}")
    options = patient(s3_server, s3_proxy.url)
    assert plait.adopt(url, sort_by="k", storage_options=options).rows == 60
    assert most["GET True"] > 8 and most["HEAD True"] > 8, most
    table = plait.Table(url, storage_options=options)
    most.clear()
    assert table.verify().ok and table.verify().rows == 60
    assert most["GET True"] > 8 and most["HEAD True"] > 8, most
    # Each of these appends a file to 20 partitions, which the commit then looks at.
    most.clear()
    days = pa.table({"k": [0] * 20, "v": ["new"] * 20, "day": list(range(20))})
    assert len(table.append(days).files) == 20
    assert most["HEAD True"] > 8, most
    plain = plait.Table(url, storage_options=patient(s3_server))
    for i in range(12):
        plain.append(pa.table({"k": [i], "v": ["more"], "day": [0]}))
    # Commits of the log, too.
    most.clear()
    assert len(table.history()) == 14
    assert most["GET False"] > 8, most
    most.clear()
    assert table.expire("365d", yes=False).removed == ()
    assert most["GET False"] > 8, most


def test_a_commit_whose_answer_is_lost_counts_once(url, s3_server, s3_proxy):
    table = plait.Table(url, sort_by="k", storage_options=patient(s3_server, s3_proxy.url))
    table.append(batch([1], "x"))
    s3_proxy.lose = lambda method, path: method == "PUT" and f"{1:020}.json" in path
    assert table.append(batch([2], "y")).version == 1
    assert s3_proxy.failed == ["lost"] and table.version == 1
    assert rows(table.read()) == [(1, "x"), (2, "y")]


def test_a_store_of_a_library_is_as_good_as_settings(s3_server):
    obstore = pytest.importorskip("obstore.store")
    name = f"t{os.urandom(4).hex()}"
    s3_server.client().create_bucket(Bucket=name)
    config = {
        "endpoint": s3_server.url,
        "access_key_id": "key",
        "secret_access_key": "secret",
        "region": "us-east-1",
    }
    store = obstore.S3Store(name, prefix="a b", config=config, client_options={"allow_http": True})
    table = plait.Table("m", sort_by="k", storage_options=store)
    for i in range(2):
        table.append(batch([i, 5], "x"))
    table.compact()
    table.delete("k = 0")
    assert rows(plait.Table("m", storage_options=store).read()) == [(1, "x"), (5, "x"), (5, "x")]
    found = plait.Table(f"s3://{name}/a b/m", storage_options=patient(s3_server))
    assert found.version == 3


def test_names_may_have_any_letters(tmp_path):
    path = str(tmp_path / "a b é#1")
    table = plait.Table(path, sort_by="k")
    for i in range(12):
        table.append(batch([i], "x"))
    table.compact()
    assert len(rows(table.read())) == 12 and table.verify().ok
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 12
    assert plait.Table(f"file://{tmp_path}/u", sort_by="k").append(batch([1], "x")).version == 0
    assert repr(table).startswith("<plait.Table `")


def test_a_compaction_goes_on_where_others_replace_and_remove_what_it_looks_at(path, monkeypatch):
    table = plait.Table(path, sort_by="k")
    for i in range(4):
        table.append(batch([i, 9], str(i)))
    expected, asked = Counter(rows(table.read())), []
    groups_of_all = delta.groups_of_all

    def beaten(*arguments):
        asked.append(len(asked))
        if len(asked) == 1:
            plait.Table(path).compact(policy="full")
            plait.Table(path).expire(0)
        return groups_of_all(*arguments)

    monkeypatch.setattr(delta, "groups_of_all", beaten)
    table.compact(policy="full")
    assert len(asked) > 1 and Counter(rows(table.read())) == expected
    table.append(batch([1], "more"))
    Path(path, table.files()[0].name).unlink()
    with pytest.raises(plait.SourceNotFound):
        table.compact(policy="full")
