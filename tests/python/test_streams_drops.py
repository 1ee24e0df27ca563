"""merge_streams with on_duplicate, version_by, delete_where and drop_where, compared with merge and Python."""

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

CASES = 400 if os.environ.get("CI") else 60

SCHEMA = pa.schema(
    [
        ("k", pa.int32()),
        ("t", pa.string()),
        ("version", pa.int64()),
        ("gone", pa.bool_()),
        ("payload", pa.struct([("tags", pa.list_(pa.string())), ("n", pa.int64())])),
    ]
)


def order_of(row):
    """k ascending, nulls last; t descending, nulls last."""
    k = (row["k"] is None, row["k"] or 0)
    t = (row["t"] is None, [-ord(c) for c in row["t"] or ""] + [1])
    return k, t


def random_rows(random_, source):
    rows = [
        {
            "k": random_.choice([None, *range(5)]),
            "t": random_.choice([None, "", "a", "b"]),
            "version": random_.choice([None, 1, 2, 3]),
            "gone": random_.choice([None, False, False, True]),
            "payload": random_.choice(
                [None, {"tags": ["x", None] * (i % 3), "n": source * 1000 + i}]
            ),
        }
        for i in range(random_.choice([0, 1, 5, 40]))
    ]
    return sorted(rows, key=order_of)


def oracle(sources, how):
    """Sort, group, choose; and what was dropped, by reason. Versions are at least 1."""
    rows = sorted((row for rows in sources for row in rows), key=order_of)
    groups = {}
    for row in rows:
        groups.setdefault((row["k"], row["t"]), []).append(row)
    kept, dropped = [], {"duplicate": 0, "deleted": 0, "expired": 0}
    for (k, _), group in groups.items():
        if "drop_where" in how and k is not None and k < 2:
            dropped["expired"] += len(group)
            continue
        policy = how.get("on_duplicate", "keep_all")
        if policy == "keep_all":
            kept += group
            continue
        stays = group[0] if policy == "keep_first" else group[-1]
        if "version_by" in how:
            stays = max(reversed(group), key=lambda row: row["version"] or 0)
        dropped["duplicate"] += len(group) - 1
        if "delete_where" in how and stays["gone"] and not how.get("keep_tombstones"):
            dropped["deleted"] += 1
        else:
            kept.append(stays)
    return kept, {reason: n for reason, n in dropped.items() if n}


def random_how(random_):
    how = {"on_duplicate": random_.choice(["keep_all", "keep_first", "keep_last"])}
    if how["on_duplicate"] == "keep_last" and random_.random() < 0.5:
        how["version_by"] = "version"
    if how["on_duplicate"] != "keep_all" and random_.random() < 0.6:
        how["delete_where"] = "gone"
        how["keep_tombstones"] = random_.random() < 0.3
    if random_.random() < 0.3:
        how["drop_where"] = "k < 2"
    return how


def chunked(rows, random_):
    table = pa.Table.from_pylist(rows, schema=SCHEMA).combine_chunks()
    batches, at = [], 0
    while at < len(rows):
        n = random_.choice([1, 1, 2, 3, 30])
        batches += table.slice(at, n).to_batches()
        at += n
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


@pytest.mark.parametrize("part", range(4))
def test_streams_and_files_drop_what_the_oracle_drops(part, tmp_path):
    random_ = random.Random(f"drops {part}")
    for case in range(CASES // 4):
        sources = [random_rows(random_, s) for s in range(random_.randint(1, 5))]
        how = random_how(random_)
        paths = []
        for s, rows in enumerate(sources):
            paths.append(tmp_path / f"{case}-{s}.parquet")
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
            pq.write_table(table, paths[-1], row_group_size=random_.choice([3, 100]))
        mixed = [
            path if random_.random() < 0.3 else chunked(rows, random_)
            for path, rows in zip(paths, sources, strict=True)
        ]
        sort_by = "k nulls last, -t nulls last"
        expected, dropped = oracle(sources, how)
        stream = plait.merge_streams(
            mixed, sort_by=sort_by, batch_rows=random_.choice([1, 2, 7, 8192]), **how
        )
        found = pa.table(stream)
        assert found.to_pylist() == expected, how
        assert stream.rows_dropped == dropped, how
        assert sum(map(len, sources)) == len(found) + sum(stream.rows_dropped.values())
        out = tmp_path / f"{case}-out.parquet"
        report = plait.merge(paths, out, sort_by=sort_by, **how)
        # Where no row stays, a merge has no output.
        written = pq.read_table(out).to_pylist() if report.outputs else []
        assert written == expected, how
        assert report.rows_dropped == dropped, how


def table(*rows):
    return pa.table({"k": [row[0] for row in rows], "v": [row[1] for row in rows]})


def test_a_row_waits_while_its_source_and_others_go_on():
    def one_by_one(letter, keys):
        for i, k in enumerate(keys):
            yield pa.record_batch({"k": [k], "v": [f"{letter}{i}"]})

    for how, expected in [("keep_first", ["a0", "b1"]), ("keep_last", ["b0", "b2"])]:
        sources = [one_by_one("a", [1] * 9), one_by_one("b", [1, 2, 2])]
        stream = plait.merge_streams(sources, sort_by="k", on_duplicate=how)
        assert pa.table(stream).column("v").to_pylist() == expected
        assert stream.rows_dropped == {"duplicate": 10}


def test_many_large_batches_are_sifted_beside_each_other():
    rows = 300_000
    sides = [
        pa.table(
            {
                "k": pa.array(range(s, rows, 2 + s), pa.int64()),
                "s": [s] * len(range(s, rows, 2 + s)),
            }
        )
        for s in range(3)
    ]
    expected = {k: s for s, side in enumerate(sides) for k in side.column("k").to_pylist()}
    stream = plait.merge_streams(
        [pa.RecordBatchReader.from_batches(t.schema, t.to_batches(10_000)) for t in sides],
        sort_by="k",
        on_duplicate="keep_last",
    )
    found = pa.table(stream)
    assert found.column("k").to_pylist() == sorted(expected)
    assert found.column("s").to_pylist() == [expected[k] for k in sorted(expected)]
    assert stream.rows_dropped == {"duplicate": sum(map(len, sides)) - len(expected)}


def test_all_rows_may_go():
    sides = [table((1, "a"), (3, "b")), table((1, "c"))]
    stream = plait.merge_streams(sides, sort_by="k", drop_where="k < 9")
    assert pa.table(stream).num_rows == 0
    assert stream.rows_dropped == {"expired": 3}


def test_a_clash_names_both_rows_and_comes_after_the_batches_before_it(tmp_path):
    pq.write_table(table((4, "x"), (7, "y")), tmp_path / "a.parquet")
    for batch_rows, given in [(1, [[1], [2], [4]]), (2, [[1, 2]]), (9, [])]:
        sources = [table((1, "a"), (2, "b"), (7, "c")), tmp_path / "a.parquet"]
        stream = plait.merge_streams(
            sources, sort_by="k", on_duplicate="error", batch_rows=batch_rows
        )
        seen = []
        with pytest.raises(plait.DuplicateKey) as caught:
            for batch in stream:
                seen.append(pa.record_batch(batch).column("k").to_pylist())
        assert seen == given
        text = str(caught.value)
        assert "two rows have the same key" in text
        assert "a.parquet" in text
        assert "row 1" in text
        assert "7 as in row 2 of source 0" in text
    once = [table((1, "a")), table((2, "b"))]
    assert pa.table(plait.merge_streams(once, sort_by="k", on_duplicate="error")).num_rows == 2


def test_bad_options_are_refused_in_the_words_of_merge(tmp_path):
    whole = pa.table({"k": [1], "v": [2], "gone": [True], "l": [[1]]})
    pq.write_table(whole, tmp_path / "a.parquet")
    for how, error in [
        ({"on_duplicate": "no"}, plait.InvalidArgument),
        ({"version_by": "v"}, plait.InvalidArgument),
        ({"delete_where": "gone"}, plait.InvalidArgument),
        ({"delete_where": "gone", "on_duplicate": "error"}, plait.InvalidArgument),
        ({"delete_where": "v", "on_duplicate": "keep_last"}, plait.InvalidArgument),
        ({"delete_where": "x", "on_duplicate": "keep_last"}, plait.UnknownColumn),
        ({"version_by": "-v", "on_duplicate": "keep_last"}, plait.InvalidArgument),
        ({"keep_tombstones": True}, plait.InvalidArgument),
        ({"drop_where": "k"}, plait.InvalidArgument),
        ({"drop_where": "k < soon"}, plait.InvalidArgument),
        ({"drop_where": "v < 2"}, plait.InvalidArgument),
        ({"drop_where": "x < 2"}, plait.UnknownColumn),
        ({"on_duplicate": "keep_last", "sort_by": []}, plait.InvalidArgument),
    ]:
        options = {"sort_by": "k", **how}
        with pytest.raises(error) as by_files:
            plait.merge(tmp_path / "a.parquet", tmp_path / "out", **options)
        with pytest.raises(error) as by_streams:
            plait.merge_streams([whole], **options)
        assert str(by_streams.value).splitlines()[0] == str(by_files.value).splitlines()[0]
    with pytest.raises(plait.UnsupportedKey):
        plait.merge_streams([whole], sort_by="k", on_duplicate="keep_last", version_by="l")


def test_a_stream_that_drops_nothing_says_so():
    stream = plait.merge_streams([table((1, "a"), (1, "b"))], sort_by="k")
    assert stream.rows_dropped == {}
    assert pa.table(stream).num_rows == 2
    assert stream.rows_dropped == {}


def test_a_key_of_many_batches_holds_few_of_them():
    """The last row of a key may be in the next batch: those before it are let go of."""
    rows, peak = 10_000, 0
    before = pa.total_allocated_bytes()

    def batches():
        nonlocal peak
        for first in range(0, 60 * rows, rows):
            values = pa.array(range(first, first + rows))
            yield pa.record_batch({"k": pa.repeat(pa.scalar(7), rows), "v": values})
            peak = max(peak, pa.total_allocated_bytes() - before)

    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    source = pa.RecordBatchReader.from_batches(schema, batches())
    merged = pa.table(plait.merge_streams([source], sort_by="k", on_duplicate="keep_last"))
    assert merged.to_pylist() == [{"k": 7, "v": 60 * rows - 1}]
    assert peak < 8 * 16 * rows
