"""What may be sorted: files of odd writers and of differing schemas, and where they may lie."""

from __future__ import annotations

import datetime as dt
import os
import random

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

from . import footers
from .sort_cases import assert_same, outputs
from .test_footer_fields import FIELDS, WRITERS
from .test_object_store import Bucket

SEED = 40
ROWS = 12_000


def rows(number: int, kind: str = "shuffled") -> pa.Table:
    """A file in no order: keys come again, here and in other files."""
    rng = np.random.default_rng([SEED, number])
    keys = np.sort(rng.integers(0, ROWS, ROWS))
    keys = rng.permutation(keys) if kind == "shuffled" else keys
    return pa.table(
        {
            "k": keys,
            "file": np.full(ROWS, number),
            "row": np.arange(ROWS),
            "s": pa.array([f"one of {i % 40}" if i % 9 else None for i in range(ROWS)]),
            "l": pa.array([[f"{i % 7}"] * (i % 3) if i % 8 else None for i in range(ROWS)]),
        }
    )


def expected(*tables: pa.Table) -> pa.Table:
    table = pa.concat_tables(tables, promote_options="permissive")
    order = np.argsort(table["k"].to_numpy(), kind="stable")
    return table.take(pa.array(order)).combine_chunks()


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["file"].to_pylist(), table["row"].to_pylist(), strict=True))


# ---- writers


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_every_writer_are_sorted(tmp_path, writer):
    tables = [rows(0), rows(1, "sorted"), rows(2)]
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for table, path in zip(tables, paths, strict=True):
        WRITERS[writer](table, path)
    report = plait.sort(paths, tmp_path / "out", sort_by="k", memory_limit="16MB", outputs=2)
    got, wanted = outputs(report), expected(*tables)
    assert pairs(got) == pairs(wanted)
    for name in ("k", "s", "l"):
        assert got[name].to_pylist() == wanted[name].to_pylist()
    assert report.sort.unsorted == (str(paths[0]), str(paths[2]))


@pytest.mark.parametrize("field", [*FIELDS, None])
def test_an_unsorted_source_may_lack_any_optional_field(tmp_path, field):
    table = rows(0)
    names = list(WRITERS)
    writer = random.Random(f"{field}").choice(names)
    names = [writer] if not os.environ.get("PLAIT_LONG") else names
    for name in names:
        whole, path = tmp_path / f"{name}.parquet", tmp_path / f"{name} without.parquet"
        WRITERS[name](table, whole)
        footers.without(whole, path, *([field] if field else FIELDS))
        if field in (None, "SchemaElement.converted_type", "SchemaElement.logicalType"):
            table = table.select(["k", "file", "row"])  # texts are bytes then
        report = plait.sort(path, tmp_path / name, sort_by="k", memory_limit="16MB")
        assert pairs(outputs(report)) == pairs(expected(table))


def test_int96_is_a_key_like_any_other(tmp_path):
    rng = np.random.default_rng(SEED)
    at = rng.permutation(20_000)
    times = [dt.datetime(2020, 1, 1) + dt.timedelta(seconds=int(s)) for s in at]
    table = pa.table({"k": pa.array(times, pa.timestamp("us")), "n": at})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, store_schema=False)
    report = plait.sort(path, tmp_path / "out", sort_by="k")
    assert outputs(report)["n"].to_pylist() == list(range(20_000))


def test_booleans_dictionaries_and_large_texts_are_sorted(tmp_path):
    rng = np.random.default_rng(SEED)
    index = rng.integers(0, 3, 20_000)
    words = pa.array([["b", "a", "c"][i] for i in index])
    columns = {
        "bool": pa.array(index == 1),
        "dictionary": words.dictionary_encode(),
        "large": words.cast(pa.large_string()),
        "view": words.cast(pa.string_view()),
    }
    for name, column in columns.items():
        table = pa.table({"k": column, "row": np.arange(20_000)})
        path = tmp_path / f"{name}.parquet"
        pq.write_table(table, path)
        report = plait.sort(path, tmp_path / name, sort_by="k")
        values = (index == 1) if name == "bool" else np.array([1, 0, 2])[index]
        order = np.argsort(values, kind="stable")
        assert outputs(report)["row"].to_pylist() == order.tolist()


# ---- schemas that differ


def test_files_of_several_schemas_are_sorted_into_one(tmp_path):
    """A column that is missing, one that is wider, and columns in another order."""
    one = rows(0).drop_columns(["s"])
    two = rows(1).set_column(0, "k", rows(1)["k"].cast(pa.int32()))
    three = rows(2).select(["l", "row", "k", "s", "file"])
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    for table, path in zip((one, two, three), paths, strict=True):
        pq.write_table(table, path)
    report = plait.sort(paths, tmp_path / "out", sort_by="k", memory_limit="16MB")
    wanted = expected(one, two, three)
    assert_same(outputs(report).select(wanted.column_names), wanted)
    assert outputs(report).schema.field("k").type == pa.int64()


def test_columns_with_field_ids_are_sorted_under_their_new_names(tmp_path):
    def named(table: pa.Table, *names: str) -> pa.Table:
        fields = [
            pa.field(name, column.type, metadata={"PARQUET:field_id": str(i + 1)})
            for i, (name, column) in enumerate(zip(names, table.columns, strict=True))
        ]
        return pa.table(table.columns, schema=pa.schema(fields))

    tables = [rows(i).select(["k", "file", "row"]) for i in range(2)]
    old, new = named(tables[0], "key", "file", "row"), named(tables[1], "k", "file", "number")
    pq.write_table(old, tmp_path / "0.parquet")
    pq.write_table(new, tmp_path / "1.parquet")
    sources = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    merged = plait.merge(sources, tmp_path / "plain", sort_by="", unsorted="error")
    names = pq.read_schema(merged.outputs[0].path).names
    report = plait.sort(sources, tmp_path / "out", sort_by=names[0])
    got, wanted = outputs(report), expected(*tables)
    assert got.column_names == names
    assert [c.to_pylist() for c in got.columns] == [c.to_pylist() for c in wanted.columns]


def test_conflicts_and_missing_keys_are_refused_before_anything_is_sorted(tmp_path):
    pq.write_table(pa.table({"k": [2, 1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"k": ["b", "a"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"other": ["b", "a"]}), tmp_path / "2.parquet")
    with pytest.raises(plait.SchemaConflict):
        plait.sort([tmp_path / "0.parquet", tmp_path / "1.parquet"], tmp_path / "o", sort_by="k")
    sources = [tmp_path / "0.parquet", tmp_path / "2.parquet"]
    with pytest.raises(plait.UnknownColumn):
        plait.sort(sources, tmp_path / "o", sort_by="k")
    report = plait.sort(sources, tmp_path / "o", sort_by="k", missing_keys="null")
    assert outputs(report)["k"].to_pylist() == [1, 2, None, None]


# ---- duplicates, deleted and expired rows


def versions() -> list[pa.Table]:
    """Several versions of each key, in no order; some delete it."""
    tables = []
    for file in range(3):
        rng = np.random.default_rng([SEED, file])
        keys, version = rng.permutation(15_000) % 9_000, rng.integers(0, 50, 15_000)
        gone = rng.random(15_000) < 0.1
        tables.append(pa.table({"k": keys, "v": version, "gone": gone, "row": range(15_000)}))
    return [table.append_column("file", pa.array([i] * 15_000)) for i, table in enumerate(tables)]


@pytest.mark.parametrize(
    "options",
    [
        {"on_duplicate": "keep_first"},
        {"on_duplicate": "keep_last", "delete_where": "gone"},
        {"on_duplicate": "keep_last", "delete_where": "gone", "version_by": "v"},
    ],
    ids=["first", "last", "newest"],
)
def test_one_row_of_each_key_is_kept(tmp_path, options):
    tables = versions()
    for i, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{i}.parquet")
    report = plait.sort(
        sorted(tmp_path.glob("*.parquet")),
        tmp_path / "out",
        sort_by="k",
        drop_where="k < 500",
        memory_limit="16MB",
        **options,
    )
    kept: dict[int, dict] = {}
    for row in pa.concat_tables(tables).to_pylist():
        known = kept.get(row["k"])
        is_last = options["on_duplicate"] == "keep_last"
        is_newer = (
            is_last and ("version_by" not in options or row["v"] >= known["v"]) if known else True
        )
        if row["k"] >= 500 and is_newer:
            kept[row["k"]] = row
    is_deleted = "delete_where" in options
    wanted = [row for _, row in sorted(kept.items()) if not (is_deleted and row["gone"])]
    assert outputs(report).to_pylist() == wanted
    assert report.rows_in == 45_000 == report.rows_out + sum(report.rows_dropped.values())


def test_a_key_that_comes_twice_is_an_error_if_asked_for(tmp_path):
    keys = np.random.default_rng(SEED).permutation(20_000)
    pq.write_table(pa.table({"k": keys}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [77, 5]}), tmp_path / "b.parquet")
    sources = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(plait.DuplicateKey, match="5"):
        plait.sort(sources, tmp_path / "out", sort_by="k", on_duplicate="error")
    assert not (tmp_path / "out").exists()
    report = plait.sort(sources[0], tmp_path / "out", sort_by="k", on_duplicate="error")
    assert report.rows_out == 20_000


# ---- places


@pytest.mark.local
def test_folders_globs_and_urls_are_sorted(tmp_path):
    tables = [rows(i) for i in range(2)]
    (tmp_path / "in").mkdir()
    for i, table in enumerate(tables):
        pq.write_table(table, tmp_path / "in" / f"{i}.parquet")
    wanted = pairs(expected(*tables))
    places = (tmp_path / "in", str(tmp_path / "in" / "*.parquet"), f"file://{tmp_path}/in")
    for i, place in enumerate(places):
        report = plait.sort(place, tmp_path / f"out-{i}", sort_by="k")
        assert pairs(outputs(report)) == wanted
    report = plait.sort(places[0], f"file://{tmp_path}/url/one.parquet", sort_by="k")
    assert pairs(pq.read_table(tmp_path / "url" / "one.parquet")) == wanted


@pytest.mark.local
def test_objects_are_sorted_into_objects(tmp_path, s3_server):
    bucket = Bucket(s3_server, f"b-sort-{os.getpid()}")
    tables = [rows(0), rows(1, "sorted"), rows(2)]
    for i, table in enumerate(tables):
        path = tmp_path / f"{i}.parquet"
        pq.write_table(table, path)
        bucket.put(f"raw/{i}.parquet", path.read_bytes())
    report = plait.sort(
        f"{bucket.url}/raw",
        f"{bucket.url}/out",
        sort_by="k",
        outputs=2,
        memory_limit="16MB",
        storage_options=s3_server.options(),
    )
    assert report.sort.unsorted == (f"{bucket.url}/raw/0.parquet", f"{bucket.url}/raw/2.parquet")
    assert pairs(bucket.table("out")) == pairs(expected(*tables))
    assert len(bucket.keys("out")) == 2 and bucket.pending() == 0


def test_tables_of_other_tools_agree(tmp_path):
    """DuckDB and Polars give the same order."""
    table = rows(3)
    pq.write_table(table, tmp_path / "a.parquet")
    report = plait.sort(tmp_path / "a.parquet", tmp_path / "out", sort_by="k, row")
    got = pairs(outputs(report))
    query = f"select file, row from '{tmp_path}/a.parquet' order by k, row"
    assert got == duckdb.sql(query).fetchall()
    frame = pl.read_parquet(tmp_path / "a.parquet").sort("k", maintain_order=True)
    assert got == list(zip(frame["file"], frame["row"], strict=True))
