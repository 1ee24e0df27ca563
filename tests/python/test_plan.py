"""Plans as values: what they read, what they promise, and that executing them is merging."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem

import plait

EXECUTE = """
import sys, plait
from pathlib import Path
print("begun", flush=True)
plait.execute_task(Path(sys.argv[1]).read_text(), sys.argv[2], threads=1)
"""


def digests(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.glob("*.parquet")):
        found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def table(rows: int, seed: int, *, low: int = 0, high: int = 1_000_000) -> pa.Table:
    """Sorted by name, then by ts from the latest on; with a text and a list."""
    rng = np.random.default_rng(seed)
    name = np.sort(rng.integers(low, high, rows) // 1000)
    ts = rng.integers(0, 10**6, rows)
    order = np.lexsort((-ts, name))
    made = {
        "name": pa.array([f"n{value:06}" for value in name[order].tolist()]),
        "ts": pa.array(ts[order]),
        "value": pa.array(rng.normal(size=rows)),
        "tags": pa.array([[int(v) % 3] * (int(v) % 4) for v in ts[order].tolist()]),
    }
    return pa.table(made)


ORDER = "name, -ts"


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(6):
        part = table(6_000, i, low=150_000 * (i // 2), high=150_000 * (i // 2) + 400_000)
        pq.write_table(part, folder / f"{i}.parquet", row_group_size=1_500, data_page_size=4_000)
    return folder


@pytest.fixture
def large(tmp_path):
    """Outputs of Plait, so large that their footers are enough to plan by."""
    folder = tmp_path / "large"
    for i in range(2):
        keys = np.sort(np.random.default_rng(i).integers(0, 10**9, 1_200_000))
        raw = tmp_path / f"raw-{i}.parquet"
        pq.write_table(pa.table({"k": keys, "v": keys % 1000}), raw)
        plait.merge(raw, folder / f"{i}.parquet", sort_by="k", row_group_rows=200_000)
    return folder


def kill_while_it_works(task: Path, out: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", EXECUTE, str(task), str(out)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(random.Random(str(task)).uniform(0.0, 0.05))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize(
    "options",
    [
        {"outputs": 5},
        {"outputs": 4, "cut_on": 1, "verify": "content"},
        {"target_rows": 9_000, "copy_tiers": ()},
        {"target_file_size": "150kB", "compression": "zstd"},
        {"outputs": 3, "memory_limit": "16MB", "row_group_rows": 1_000},
    ],
    ids=str,
)
def test_tasks_in_any_order_and_often_make_the_files_of_one_merge(sources, tmp_path, options):
    merged = plait.merge(sources, tmp_path / "merged", sort_by=ORDER, **options)
    planned = plait.Plan.from_json(plait.plan(sources, sort_by=ORDER, **options).to_json())
    assert len(planned.tasks) == len(merged.outputs) > 1
    tasks = [*planned.tasks, *planned.tasks]
    random.Random(7).shuffle(tasks)
    reports = [plait.execute_task(task.to_json(), tmp_path / "tasks") for task in tasks]
    planned.execute(tmp_path / "plan", threads=1)
    assert digests(tmp_path / "tasks") == digests(tmp_path / "merged")
    assert digests(tmp_path / "plan") == digests(tmp_path / "merged")
    assert sum(r.rows_out for r in reports) == 2 * merged.rows_out
    assert plait.verify(tmp_path / "tasks", against=sources).ok


def test_tasks_that_were_killed_are_done_again(sources, large, tmp_path):
    for folder, options in ((sources, {"sort_by": ORDER, "outputs": 6}), (large, {"outputs": 2})):
        merged = tmp_path / f"{folder.name}-merged"
        out = tmp_path / f"{folder.name}-out"
        plait.merge(folder, merged, **options)
        tasks = list(plait.plan(folder, **options).tasks)
        random.Random(3).shuffle(tasks)
        for i, task in enumerate(tasks):
            file = tmp_path / f"{task.index}.json"
            file.write_text(task.to_json())
            if i % 2 == 0:
                kill_while_it_works(file, out)
        for task in reversed(tasks):
            for _ in range(2):
                plait.execute_task(task.to_json(), out)
        assert digests(out) == digests(merged) and len(digests(out)) == len(tasks)
        assert [name for name in os.listdir(out) if not name.endswith(".parquet")] == []


def test_outputs_that_footers_can_cut_are_estimates_and_hold_every_row(large, tmp_path):
    planned = plait.plan(large, outputs=2)
    assert [task.rows_exact for task in planned.tasks] == [False, False]
    assert all(source.keys_from == "footer" for source in planned.sources)
    report = planned.execute(tmp_path / "out", verify="content")
    for task, output in zip(planned.tasks, report.outputs, strict=True):
        assert abs(task.rows - output.rows) < 0.1 * task.rows
        assert abs(output.rows - report.rows_out / 2) < 0.1 * report.rows_out
    assert plait.verify(tmp_path / "out", against=large).ok
    read = plait.plan(large, outputs=2, trust_footers=False)
    assert [task.rows for task in read.tasks] == [1_200_000, 1_200_000]
    assert all(task.rows_exact for task in read.tasks)


class ReadLog(DirFileSystem):
    """Notes the ranges that are read of every file."""

    def __init__(self, path):
        super().__init__(path=str(path), fs=fsspec.filesystem("file"))
        self.reads: list[tuple[str, int, int]] = []

    def cat_file(self, path, start=None, end=None, **kwargs):
        self.reads.append((path, start, end))
        return super().cat_file(path, start=start, end=end, **kwargs)


@pytest.mark.parametrize("options", [{}, {"outputs": 2}, {"target_rows": 1_000_000}], ids=str)
def test_no_data_page_is_read_where_footers_have_keys(large, options):
    system = ReadLog(large)
    planned = plait.plan(["0.parquet", "1.parquet"], storage_options=system, **options)
    assert planned.rows == 2_400_000 and len(planned.tasks) >= len(options) + 1
    assert len(system.reads) >= 2
    # One read of the end of each file: the store reads no less than this at once.
    assert sorted(path for path, _, _ in system.reads) == ["0.parquet", "1.parquet"]
    for path, start, end in system.reads:
        length = (large / path).stat().st_size
        assert (start, end) == (length - 262_144, length), (path, start, end)
    assert length > 5_000_000


def test_without_keys_in_footers_few_pages_are_read(sources):
    system = ReadLog(sources)
    names = sorted(os.listdir(sources))
    plait.plan(names, sort_by=ORDER, storage_options=system)
    assert len({path for path, _, _ in system.reads}) == len(names)


def stale(path: Path, name: str, change) -> None:
    """Writes the file again with other keys in its footer."""
    file = pq.ParquetFile(path)
    rows, metadata = file.read(), dict(file.schema_arrow.metadata or {})
    told = dict(file.metadata.metadata)
    entry = json.loads(told[name.encode()])
    change(entry)
    metadata |= {k: v for k, v in told.items() if k.startswith(b"plait.")}
    metadata[name.encode()] = json.dumps(entry).encode()
    pq.write_table(rows.replace_schema_metadata(metadata), path)


def shifted(entry):
    for side in ("min", "max"):
        key = bytearray(base64.b64decode(entry[side]))
        key[-5] ^= 0x40
        entry[side] = base64.b64encode(bytes(key)).decode()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("plait.key_range", shifted),
        ("plait.key_range", lambda e: e.update(version=9)),
        ("plait.key_range", lambda e: e.update(min="?")),
        ("plait.key_range", lambda e: e.update(min=e["max"], max=e["min"])),
        ("plait.key_index", lambda e: e["rows"].reverse()),
        ("plait.key_index", lambda e: e["keys"].reverse()),
        ("plait.key_index", lambda e: e["rows"].__setitem__(1, 140_000)),
        ("plait.key_index", lambda e: e["keys"].pop()),
    ],
)
def test_keys_in_footers_that_are_wrong_change_nothing(tmp_path, name, change):
    # The first half of a is below the first half of b, and so on.
    for i in range(2):
        keys = np.sort(np.random.default_rng(i).integers(0, 10**9, 150_000))
        pq.write_table(pa.table({"k": keys}), tmp_path / f"raw-{i}.parquet")
        raw, out = tmp_path / f"raw-{i}.parquet", tmp_path / f"{i}.parquet"
        plait.merge(raw, out, sort_by="k", row_group_rows=100_000)
    stale(tmp_path / "1.parquet", name, change)
    raw = [tmp_path / f"raw-{i}.parquet" for i in range(2)]
    files = [tmp_path / f"{i}.parquet" for i in range(2)]
    for options in ({}, {"outputs": 3}, {"target_rows": 90_000}):
        out = tmp_path / f"out-{len(options)}-{'outputs' in options}"
        plait.merge(files, out, sort_by="k", **options)
        assert plait.verify(out, against=raw, sort_by="k").ok


def test_a_task_that_meets_a_wrong_footer_says_so(large, tmp_path):
    planned = json.loads(plait.plan(large, outputs=2).to_json())
    # As if the footer had said that the cut were lower: rows of the other task fall into this.
    task = planned["tasks"][0]
    for piece in task["slices"]:
        piece["end"] = [piece["end"][1]] * 2
    planned["tasks"] = [task]
    with pytest.raises(plait.UnsortedSource, match="outside of its task") as raised:
        plait.Plan.from_json(json.dumps(planned)).execute(tmp_path / "out", tasks=[0])
    assert "trust_footers=False" in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_source_that_changed_is_refused_by_name(sources, tmp_path):
    planned = plait.plan(sources, sort_by=ORDER, outputs=2)
    text = planned.to_json()
    victim = sources / "3.parquet"
    before = victim.read_bytes()
    pq.write_table(table(6_001, 9), victim)
    with pytest.raises(plait.SourceChanged, match=r"3\.parquet"):
        plait.Plan.from_json(text).execute(tmp_path / "out")
    victim.write_bytes(before)  # the same bytes, another time
    with pytest.raises(plait.SourceChanged, match=r"3\.parquet.*version"):
        plait.Plan.from_json(text).execute(tmp_path / "out")
    victim.unlink()
    with pytest.raises(plait.SourceNotFound, match=r"3\.parquet"):
        plait.Plan.from_json(text).execute(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def put(where, value):
    def change(plan):
        *path, last = where
        for part in path:
            plan = plan[part]
        plan[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (put(["version"], 2), plait.Unsupported, "another version"),
        (put(["format"], "plait.plam"), plait.InvalidArgument, "not a plan"),
        (put(["more"], 1), plait.InvalidArgument, "cannot read the plan"),
        (put(["tasks", 0, "slices", 0, "source"], 99), plait.InvalidArgument, "does not have"),
        (put(["tasks", 0, "slices", 0, "end"], [9, 8]), plait.InvalidArgument, "make no range"),
        (put(["tasks", 1, "slices", 0, "start"], [0, 0]), plait.InvalidArgument, "same rows"),
        (put(["tasks", 1, "index"], 0), plait.InvalidArgument, "not in order"),
        (put(["tasks", 1, "index"], 7), plait.InvalidArgument, "does not have"),
        (put(["tasks", 1, "low"], ""), plait.InvalidArgument, "overlap"),
        (put(["tasks", 1, "low"], "?"), plait.InvalidArgument, "cannot read the plan"),
        (put(["task"], "../x"), plait.InvalidArgument, "hexadecimal"),
        (put(["options", "row_group_rows"], 0), plait.InvalidArgument, "at least 1"),
    ],
)
def test_a_damaged_plan_is_refused(sources, change, error, message):
    planned = json.loads(plait.plan(sources, sort_by=ORDER, outputs=2).to_json())
    change(planned)
    with pytest.raises(error, match=message):
        plait.Plan.from_json(json.dumps(planned))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "plait.plan"}', b"\xff\xfe"])
def test_what_is_not_json_is_no_plan(text):
    with pytest.raises(plait.InvalidArgument, match="cannot read the plan"):
        plait.Plan.from_json(text)


def test_a_damaged_schema_or_unknown_column_is_refused(sources, tmp_path):
    planned = json.loads(plait.plan(sources, sort_by=ORDER, outputs=2).to_json())
    for member, value in [
        ("schema", base64.b64encode(b"PAR1 what PAR1").decode()),
        ("sort_by", "nobody"),
        ("encodings", {"page_version": 1, "columns": []}),
    ]:
        damaged = plait.Plan.from_json(json.dumps({**planned, member: value}))
        with pytest.raises(plait.PlaitError) as raised:
            damaged.execute(tmp_path / "out")
        assert not isinstance(raised.value, plait.InternalError)


def test_settings_of_stores_are_not_part_of_a_plan(sources):
    secret = {"aws_secret_access_key": "hush"}
    planned = plait.plan(sources, sort_by=ORDER, storage_options=secret)
    assert "hush" not in planned.to_json() and "hush" not in repr(planned)


def test_plans_do_not_depend_on_threads(sources):
    def made(threads: int) -> dict:
        plan = json.loads(plait.plan(sources, sort_by=ORDER, outputs=3, threads=threads).to_json())
        assert plan["options"].pop("threads") == threads
        return plan

    assert made(1) == made(2) == made(16)


@pytest.mark.parametrize("threads", [1, 8])
def test_of_several_damaged_files_the_first_is_told(tmp_path, threads):
    for part in range(20):
        pq.write_table(table(500, part), tmp_path / f"{part:02}.parquet")
    for part in (7, 11, 12, 19):
        (tmp_path / f"{part:02}.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    for _ in range(5):
        with pytest.raises(plait.CorruptSource, match=r"07\.parquet"):
            plait.plan(tmp_path, sort_by=ORDER, threads=threads)


def test_two_thousand_files_are_planned_within_two_seconds(tmp_path):
    columns = {"k": pa.array(range(8))} | {f"c{i}": pa.array([i] * 8) for i in range(21)}
    pq.write_table(pa.table(columns), tmp_path / "raw.parquet", row_group_size=1)
    plait.merge(
        tmp_path / "raw.parquet",
        tmp_path / "one.parquet",
        sort_by="k",
        align_row_groups=1,
    )
    body = (tmp_path / "one.parquet").read_bytes()
    assert pq.read_metadata(tmp_path / "one.parquet").num_row_groups == 8
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(2_000):
        (folder / f"{i:04}.parquet").write_bytes(body)
    plait.plan(folder)
    began = time.process_time()
    planned = plait.plan(folder)
    seconds = time.process_time() - began
    assert len(planned.sources) == 2_000 and planned.overlap.depth_max == 2_000
    assert all(source.keys_from == "footer" for source in planned.sources)
    assert seconds < 2


def test_a_plan_draws_itself(sources, tmp_path):
    planned = plait.plan(sources, sort_by=ORDER, outputs=3)
    text = str(planned)
    assert text.startswith("plan to merge 6 files into 3 files: 36,000 rows sorted by name, -ts")
    assert "depth before: at most" in text and "part-00002-" in text
    assert planned._repr_html_().count("<rect") == 9
    report = planned.execute(tmp_path / "out")
    assert report._repr_html_().count("<rect") == 9
    assert sum(sum(output.tiers.values()) for output in report.outputs) == 36_000
    pytest.importorskip("matplotlib")
    for made in (planned, report):
        for ending in ("svg", "png"):
            made.plot(tmp_path / f"picture.{ending}")
            assert (tmp_path / f"picture.{ending}").stat().st_size > 5_000


def test_the_command_line_plans_and_executes(sources, tmp_path, capsys):
    from plait.cli import main

    arguments = ["plan", str(sources), "--sort-by", ORDER, "--outputs", "3"]
    assert main(arguments) == 0
    assert "depth before" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    file = tmp_path / "plan.json"
    file.write_text(capsys.readouterr().out)
    assert main(["execute", str(file), "-o", str(tmp_path / "out"), "--tasks", "2", "0"]) == 0
    assert main(["execute", str(file), "-o", str(tmp_path / "out"), "--tasks", "1"]) == 0
    plait.merge(sources, tmp_path / "merged", sort_by=ORDER, outputs=3)
    assert digests(tmp_path / "out") == digests(tmp_path / "merged")
    assert main(["execute", str(file), "-o", str(tmp_path / "out"), "--tasks", "3"]) == 2
    assert main(["execute", str(tmp_path / "none"), "-o", str(tmp_path / "out")]) == 4


def test_empty_orders_and_empty_files_have_plans_too(tmp_path):
    for i, rows in enumerate((3, 0, 5)):
        pq.write_table(pa.table({"k": pa.array([1] * rows, pa.int64())}), tmp_path / f"{i}.parquet")
    pattern = tmp_path / "?.parquet"
    planned = plait.plan(pattern, sort_by=[], outputs=3)
    assert [task.rows for task in planned.tasks] == [3, 3, 2]
    out = [plait.execute_task(task.to_json(), tmp_path / "out") for task in planned.tasks]
    assert [report.rows_out for report in out] == [3, 3, 2]
    same = plait.plan(pattern, sort_by="k", outputs=3)
    assert [task.rows for task in same.tasks] == [8]
    none = plait.plan(tmp_path / "1.parquet", sort_by="k")
    assert none.execute(tmp_path / "none").outputs[0].rows == 0


def test_inspect_tells_row_groups_pages_keys_and_order(tmp_path):
    keys = [*range(100), *range(50, 150)]
    pq.write_table(
        pa.table({"k": keys, "v": ["x"] * 200}),
        tmp_path / "a.parquet",
        row_group_size=100,
        data_page_size=100,
    )
    found = plait.inspect(tmp_path / "a.parquet", pages=True, sort_by="k", check_order=True)
    assert (found.sorted, found.unsorted_row) == (False, 100)
    assert [(g.key_min, g.key_max) for g in found.row_groups] == [
        ((0,), (99,)),
        ((50,), (149,)),
    ]
    column = found.row_groups[0].columns[1]
    assert column.dictionary and column.dictionary_bytes is not None
    assert 0 < column.dictionary_bytes < column.compressed_bytes
    assert column.pages == 1 and column.page_rows_max == 100
    text = str(found)
    assert "not sorted by" in text
    assert "row 100 goes back" in text
    assert plait.inspect(tmp_path / "a.parquet").sorted is None
    assert plait.inspect(tmp_path / "a.parquet", sort_by="v", check_order=True).sorted is True
    with pytest.raises(plait.UnknownColumn):
        plait.inspect(tmp_path / "a.parquet", sort_by="nobody")
