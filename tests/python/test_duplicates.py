"""Which rows stay: duplicates, versions, tombstones, retention, against plain Python."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int32()),
        ("v", pa.int64()),
        ("dead", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("x", pa.float64()), ("y", pa.string())])),
    ]
)


def some_rows(rng: random.Random, count: int, keys: int, which: str):
    """Sorted rows; many share a key, within a source and across sources."""
    made = []
    for _ in range(count):
        n = rng.randrange(keys)
        made.append(
            {
                "k": rng.choice(["a", "bb", "", None]) if which == "two" else f"k{n % 7}",
                "n": n,
                "v": rng.choice([None, *range(4)]),
                "dead": rng.choice([None, False, False, True]),
                "tags": rng.choice([None, [], ["t"], [None, "u" * rng.randrange(40)]]),
                "inner": rng.choice([None, {"x": rng.random(), "y": None}, {"x": None, "y": "w"}]),
            }
        )
    return sorted(made, key=order)


def order(row):
    return (row["k"] is None, row["k"] or "", row["n"])


def write(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, **options)
    return path


def expected(sources, on_duplicate, version_by=None, deletes=False, keeps=False, low=None):
    """The rows that stay, and how many did not by reason."""
    rows = sorted((row for source in sources for row in source), key=order)
    dropped = {}
    groups: dict[tuple, list] = {}
    for row in rows:
        if low is not None and row["n"] < low:
            dropped["expired"] = dropped.get("expired", 0) + 1
        else:
            groups.setdefault(order(row), []).append(row)
    kept = []
    for group in groups.values():
        if on_duplicate == "keep_all":
            kept += group
            continue
        if on_duplicate == "keep_first":
            best = group[0]
        elif version_by:
            versions = [-1 if row[version_by] is None else row[version_by] for row in group]
            best = group[max(range(len(group)), key=lambda i: (versions[i], i))]
        else:
            best = group[-1]
        if len(group) > 1:
            dropped["duplicate"] = dropped.get("duplicate", 0) + len(group) - 1
        if deletes and best["dead"] and not keeps:
            dropped["deleted"] = dropped.get("deleted", 0) + 1
        else:
            kept.append(best)
    return kept, dropped


@pytest.mark.parametrize("seed", range(60))
def test_rows_that_stay_are_those_of_plain_python(tmp_path, seed):
    rng = random.Random(seed)
    which = rng.choice(["two", "one"])
    sources = [some_rows(rng, rng.choice([0, 3, 200, 700]), rng.choice([5, 100, 2000]), which)
               for _ in range(rng.randrange(1, 6))]  # fmt: skip
    paths = [
        write(
            tmp_path / f"{i}.parquet",
            rows,
            row_group_size=rng.choice([7, 90, 10_000]),
            data_page_size=rng.choice([64, 1 << 20]),
            use_dictionary=rng.choice([True, False]),
            data_page_version=rng.choice(["1.0", "2.0"]),
        )
        for i, rows in enumerate(sources)
    ]
    on_duplicate = rng.choice(["keep_all", "keep_first", "keep_last"])
    version_by = rng.choice([None, "v"]) if on_duplicate == "keep_last" else None
    deletes = on_duplicate != "keep_all" and rng.random() < 0.5
    keeps = deletes and rng.random() < 0.3
    low = rng.choice([None, 0, 40])
    report = plait.merge(
        paths,
        tmp_path / "out",
        sort_by="k, n",
        on_duplicate=on_duplicate,
        version_by=version_by,
        delete_where="dead" if deletes else None,
        keep_tombstones=keeps,
        drop_where=None if low is None else f"n < {low}",
        row_group_rows=rng.choice([10, 300, 100_000]),
        page_rows=rng.choice([5, 20_000]),
        threads=rng.choice([1, 3]),
        target_rows=rng.choice([None, 50]),
        copy_tiers=rng.choice([(), ("chunk", "page", "dict")]),
    )
    rows, dropped = expected(sources, on_duplicate, version_by, deletes, keeps, low)
    got = []
    for output in report.outputs:
        got += pq.read_table(output.path).to_pylist()
    assert got == rows
    assert report.rows_dropped == dropped
    assert report.rows_in == report.rows_out + sum(dropped.values())
    if rows:
        files = [output.path for output in report.outputs if output.rows]
        assert plait.verify(files, sort_by="k, n").ok
        first = next(output for output in report.outputs if output.rows)
        assert first.key_min == (rows[0]["k"], rows[0]["n"])


def test_runs_of_upserts_merged_in_any_grouping_equal_a_dictionary(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("gone", pa.bool_())])
    for history in range(20):
        rng = random.Random(history)
        state: dict[int, str] = {}
        runs = []
        for run in range(12):
            changes = {}
            for k in rng.sample(range(400), 120):
                if rng.random() < 0.3:
                    changes[k] = {"k": k, "v": None, "gone": True}
                    state.pop(k, None)
                else:
                    changes[k] = {"k": k, "v": f"{run}-{k}", "gone": False}
                    state[k] = f"{run}-{k}"
            path = tmp_path / f"{history}-{run}.parquet"
            rows = [changes[k] for k in sorted(changes)]
            pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=50)
            runs.append(path)
        # Neighbours are merged until one file is left, whichever come first; tombstones stay
        # until the oldest run is part of it.
        merges = 0
        while len(runs) > 1:
            start = rng.randrange(len(runs) - 1)
            end = rng.randrange(start + 2, len(runs) + 1)
            out = tmp_path / f"{history}-m{merges}.parquet"
            plait.merge(
                runs[start:end],
                out,
                sort_by="k",
                on_duplicate="keep_last",
                delete_where="gone",
                keep_tombstones=start > 0,
            )
            runs[start:end] = [out]
            merges += 1
        table = pq.read_table(runs[0])
        assert dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True)) == state
        assert table.num_rows == len(state)


def test_two_rows_of_one_key_are_refused_by_name(tmp_path):
    rows = [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
    paths = [write(tmp_path / "x.parquet", rows), write(tmp_path / "y.parquet", rows[1:])]
    out = tmp_path / "o.parquet"
    with pytest.raises(plait.DuplicateKey, match="two rows have the same key") as caught:
        plait.merge(paths, out, sort_by="k, n", on_duplicate="error")
    text = str(caught.value)
    assert "y.parquet`, row 0" in text and "as in row 1 of" in text and "x.parquet" in text
    assert not out.exists()
    assert plait.merge(paths[:1], out, sort_by="k, n", on_duplicate="error").rows_out == 2


def test_pages_without_dropped_rows_are_still_copied(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("v", pa.float64())])
    paths = []
    for i in range(2):
        start = i * 199_990
        table = pa.table({"k": range(start, start + 200_000), "v": [float(i)] * 200_000}, schema)
        paths.append(tmp_path / f"{i}.parquet")
        pq.write_table(table, paths[-1], use_dictionary=False, write_page_index=True)
    report = plait.merge(paths, tmp_path / "o.parquet", sort_by="k", on_duplicate="keep_last")
    assert report.rows_dropped == {"duplicate": 10}
    assert report.copied["page"].rows > 300_000
    got = pq.read_table(tmp_path / "o.parquet")
    assert got["k"].to_pylist() == list(range(399_990))
    assert got["v"].to_pylist() == [0.0] * 199_990 + [1.0] * 200_000


def test_all_rows_may_go(tmp_path):
    path = write(tmp_path / "x.parquet", [{"k": "a", "n": n} for n in range(5)])
    report = plait.merge(path, tmp_path / "o", sort_by="k, n", drop_where="n >= 0", target_rows=2)
    assert report.rows_out == 0 and report.rows_dropped == {"expired": 5}
    assert sum(pq.read_table(output.path).num_rows for output in report.outputs) == 0
    report = plait.merge(path, tmp_path / "o.parquet", sort_by="k, n", drop_where="n >= 0")
    assert report.rows_out == 0 and pq.read_schema(tmp_path / "o.parquet").equals(SCHEMA)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version_by": "v"}, "`version_by` needs on_duplicate"),
        ({"delete_where": "dead"}, "`delete_where` needs on_duplicate"),
        ({"on_duplicate": "keep_last", "delete_where": "v"}, "`delete_where` is not boolean"),
        ({"keep_tombstones": True}, "`keep_tombstones` needs `delete_where`"),
        ({"drop_where": "n"}, "not a comparison"),
        ({"drop_where": "n < soon"}, "not a value of the column's type"),
        ({"drop_where": "v < 3"}, "needs a key column"),
        ({"drop_where": "nobody < 3"}, "nobody"),
        ({"on_duplicate": "keep_last", "version_by": "tags"}, "tags"),
        ({"on_duplicate": "keep_last", "sort_by": []}, "all rows are equal"),
        ({"on_duplicate": "keep_last", "verify": "content"}, "other options drop some"),
    ],
)
def test_options_that_are_invalid_are_refused(tmp_path, options, words):
    path = write(tmp_path / "x.parquet", [{"k": "a", "n": 1}])
    with pytest.raises(plait.PlaitError, match=words):
        plait.merge(path, tmp_path / "o.parquet", **{"sort_by": "k, n", **options})
    assert not (tmp_path / "o.parquet").exists()


def test_retention_takes_times_as_numbers_and_as_text(tmp_path):
    import datetime as dt

    times = [dt.datetime(2024, 5, day) for day in range(1, 11)]
    for unit in ("s", "ms", "us", "ns"):
        path = tmp_path / f"{unit}.parquet"
        pq.write_table(pa.table({"t": pa.array(times, pa.timestamp(unit))}), path)
        report = plait.merge(
            path, tmp_path / f"{unit}-o", sort_by="t", drop_where="t < '2024-05-04'"
        )
        assert report.rows_dropped == {"expired": 3}
    path = tmp_path / "days.parquet"
    pq.write_table(pa.table({"t": pa.array([t.date() for t in times])}), path)
    days = (dt.date(2024, 5, 4) - dt.date(1970, 1, 1)).days
    report = plait.merge(path, tmp_path / "days-o", sort_by="t", drop_where=f"t <= {days}")
    assert report.rows_dropped == {"expired": 4}


def test_more_sources_than_memory_allows_keep_the_last_row_too(tmp_path):
    paths = []
    for i in range(60):
        rows = [{"k": "x", "n": n, "v": i} for n in range(0, 3000, 1 + i % 3)]
        paths.append(write(tmp_path / f"{i:02}.parquet", rows))
    report = plait.merge(paths, tmp_path / "o.parquet", sort_by="k, n", on_duplicate="keep_last",
                         memory_limit="16MB")  # fmt: skip
    got = pq.read_table(tmp_path / "o.parquet", columns=["n", "v"])
    last = [max(i for i in range(60) if n % (1 + i % 3) == 0) for n in range(3000)]
    assert got["n"].to_pylist() == list(range(3000))
    assert got["v"].to_pylist() == last
    assert report.rows_in == report.rows_out + report.rows_dropped["duplicate"]


@pytest.mark.behaviour("merge-19")
@pytest.mark.parametrize("on_duplicate", ["keep_first", "keep_last"])
@pytest.mark.parametrize("drops", ["duplicates", "expired"])
def test_row_groups_stay_aligned_where_rows_are_dropped(tmp_path, on_duplicate, drops):
    rng = random.Random(f"{on_duplicate} {drops}")
    for case in range(20):
        sources = []
        for i in range(rng.choice([1, 3])):
            keys = sorted((rng.randrange(8), rng.randrange(6)) for _ in range(rng.randrange(1, 90)))
            table = pa.table({"a": [a for a, _ in keys], "b": [b for _, b in keys]})
            sources.append(tmp_path / f"{case}-{i}.parquet")
            pq.write_table(table, sources[-1], row_group_size=rng.choice([1, 7, 1000]))
        columns, row_group_rows = rng.choice([1, 2]), rng.choice([1, 2, 5, 10])
        if drops == "expired":
            options = {"on_duplicate": "keep_all", "drop_where": "b < 2"}
        else:
            options = {"on_duplicate": on_duplicate}
        out = tmp_path / f"{case}.parquet"
        plait.merge(
            sources,
            out,
            sort_by="a, b",
            align_row_groups=columns,
            row_group_rows=row_group_rows,
            **options,
        )
        file = pq.ParquetFile(out)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group).to_pylist()
            prefixes = {tuple(row.values())[:columns] for row in rows}
            assert len(prefixes) == 1, (case, columns, row_group_rows, options)
            assert len(rows) <= row_group_rows
