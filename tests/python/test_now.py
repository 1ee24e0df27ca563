"""Conditions that count from now: `ts < now() - 7d`."""

from __future__ import annotations

import datetime as dt
import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _now
from plait._now import at_moment

NOW = dt.datetime(2024, 5, 8, 12, 30, tzinfo=dt.timezone.utc)
TYPES = [
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "Europe/Paris"),
    pa.timestamp("ms", "+02:00"),
    pa.date32(),
]


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by a day whenever somebody looks at it."""
    looks = []

    def moment() -> float:
        looks.append(None)
        return NOW.timestamp() + 86_400 * (len(looks) - 1)

    monkeypatch.setattr(_now, "time", SimpleNamespace(time=moment))
    return looks


def write(path, data_type=None, days=range(12), **columns):
    """A row for each of so many days ago, oldest first, at the time of `NOW`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ages = sorted(days, reverse=True)
    moments = pa.array([NOW - dt.timedelta(days=age) for age in ages], pa.timestamp("us", "UTC"))
    table = pa.table({"ts": moments.cast(data_type or moments.type), "age": ages})
    pq.write_table(table, path)
    return path


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_times_of_all_types_count_from_now(tmp_path, clock, data_type):
    path = write(tmp_path / "a.parquet", data_type)
    # A day counts as its midnight, which is before noon.
    expected = list(range(6 if data_type == pa.date32() else 7, -1, -1))
    del clock[:]
    rows = plait.read(path, sort_by="ts", where="ts >= now() - 7d")
    assert pa.table(rows)["age"].to_pylist() == expected
    del clock[:]
    plait.merge([path], tmp_path / "out", sort_by="ts", drop_where="ts < now() - 7d")
    (output,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(output)["age"].to_pylist() == expected
    del clock[:]
    dropped = plait.read(path, sort_by="ts", drop_where="ts<NOW( )-1w").count()
    assert dropped == len(expected)
    del clock[:]
    streams = plait.merge_streams(
        [pq.read_table(path).to_reader()], sort_by="ts", drop_where="ts < now() - 7d"
    )
    assert sum(len(pa.record_batch(batch)) for batch in streams) == len(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ts < now()", "'2024-05-08 12:30:00Z'"),
        ("ts < now() - 90s", "'2024-05-08 12:28:30Z'"),
        ("ts < now() - 30m", "'2024-05-08 12:00:00Z'"),
        ("ts < now() - 12h", "'2024-05-08 00:30:00Z'"),
        ("ts < now() - 1d - 12h", "'2024-05-07 00:30:00Z'"),
        ("ts < now() + 2w", "'2024-05-22 12:30:00Z'"),
        ("ts < now()-1D", "'2024-05-07 12:30:00Z'"),
    ],
)
def test_spans_have_units(text, expected):
    assert at_moment(text, NOW.timestamp()) == f"ts < {expected}"


def test_a_call_looks_at_the_clock_once(tmp_path, clock):
    path = write(tmp_path / "a.parquet")
    del clock[:]
    where = "ts >= now() - 5d AND ts < now() - 1d"
    rows = plait.read(path, sort_by="ts", where=where, drop_where="ts < now() - 3d")
    assert pa.table(rows)["age"].to_pylist() == [3, 2] and len(clock) == 1
    assert rows.where("ts < now() - 3d").count() == 1, "a call of its own: a day later"


def test_what_is_quoted_is_text_and_what_is_no_span_is_refused(tmp_path):
    kept = "s = 'now()' AND \"now()\" = 5 AND know() = 3"
    assert at_moment(kept, 0.0) == kept
    assert at_moment(None) is None and at_moment(5) == 5
    path = write(tmp_path / "a.parquet")
    for text in ("now() - 7", "now() - 7 days", "now() - 7x", "now() 7d", "now() - 1d ago"):
        for call in (
            lambda text=text: plait.read(path, sort_by="ts", where=f"ts < {text}").count(),
            lambda text=text: plait.plan(path, sort_by="ts", drop_where=f"ts < {text}"),
        ):
            with pytest.raises(plait.InvalidArgument, match="no span of time"):
                call()
    with pytest.raises(plait.InvalidArgument, match="outside of the calendar"):
        at_moment("ts < now() - 999999999999w")
    with pytest.raises(plait.InvalidArgument):
        plait.read(path, sort_by="age", where="age < now()").count()


def test_a_plan_is_executed_at_the_moment_at_which_it_was_made(tmp_path, clock):
    path = write(tmp_path / "a.parquet")
    del clock[:]
    planned = plait.plan(path, sort_by="ts", drop_where="ts < now() - 2d", target_rows=2)
    assert "ts < '2024-05-06 12:30:00Z'" in planned.to_json() and len(clock) == 1
    again = plait.Plan.from_json(planned.to_json())
    again.execute(tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert [age for file in files for age in pq.read_table(file)["age"].to_pylist()] == [2, 1, 0]


@pytest.mark.parametrize("policy", ["full", "overlap", "size_tiered"])
@pytest.mark.parametrize("data_type", [pa.timestamp("ns"), pa.date32()], ids=str)
def test_retention_applies_under_every_policy(tmp_path, clock, policy, data_type):
    """Also to files that the policy leaves alone: one is rewritten, and one is dropped."""
    folder = tmp_path / "events"
    for name, days in (("a", [9, 10]), ("b", [6, 7, 8]), ("c", [3, 4]), ("d", [1, 2])):
        write(folder / f"{name}.parquet", data_type, days)
    how = {"sort_by": "ts", "policy": policy}
    if policy == "full":
        plait.compact(folder, **how)
        assert plait.compact(folder, **how).groups == (), "there is nothing to merge"
    del clock[:]
    done = plait.compact(folder, drop_where="ts < now() - 7d", **how)
    kept = 6 if data_type == pa.date32() else 7
    ages = sorted(pa.table(plait.scan(folder))["age"].to_pylist())
    assert ages == [age for age in (1, 2, 3, 4, 6, 7) if age <= kept]
    assert done.rows_dropped == {"expired": 9 - len(ages)}
    assert len(clock) == 1, "all rounds mean one moment"
    if policy == "overlap":
        assert [len(group.outputs) for group in done.groups] == [0, 1]


def test_the_shell_takes_times_that_count_from_now(tmp_path, python):
    table = pa.table({"ts": [dt.datetime(2000, 1, 1), dt.datetime(2100, 1, 1)]})
    pq.write_table(table, tmp_path / "a.parquet")
    named = ("cat", str(tmp_path / "a.parquet"), "--sort-by", "ts", "--format", "jsonl")
    done = python("-m", "plait", *named, "--where", "ts > now() - 7d")
    assert done.returncode == 0, done.stderr
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 1


def test_tasks_of_spark_mean_the_moment_of_the_driver(clock):
    pytest.importorskip("pyspark")
    from plait.spark.source import Query

    del clock[:]
    given = {"path": "runs", "where": "ts > now() - 1d", "drop_where": "ts < now() - 7d"}
    query = Query.of(given)
    assert (query.where, query.duplicates["drop_where"]) == (
        "ts > '2024-05-07 12:30:00Z'",
        "ts < '2024-05-01 12:30:00Z'",
    )
    assert len(clock) == 1
