"""Plans of many files: cuts are those of the naive rule, and the work grows as the files do."""

from __future__ import annotations

import bisect
import io
import json
import logging
import pickle
import random
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait._packed import PackedSources
from plait.cli import main

Row = tuple[str, int]
ORDER = "name, ts"


def written(folder: Path, files: list[list[Row]], page_rows: int = 20_000) -> list[Path]:
    """A file of each list of rows, in order."""
    folder.mkdir()
    paths = []
    for number, rows in enumerate(files):
        path = folder / f"{number:05}.parquet"
        columns = {"name": [name for name, _ in rows], "ts": [ts for _, ts in rows]}
        schema = pa.schema({"name": pa.string(), "ts": pa.int64()})
        pq.write_table(pa.table(columns, schema), path, max_rows_per_page=page_rows)
        paths.append(path)
    return paths


def cut_by_rows(files: list[list[Row]], target: int, columns: int) -> list[Row]:
    """Where outputs begin: at the first change of the cut key after `target` rows, one by one."""
    rows = sorted(row for file in files for row in file)
    begins, done = [], 0
    for i in range(1, len(rows)):
        if i - done >= target and rows[i][:columns] != rows[i - 1][:columns]:
            begins.append(rows[i])
            done = i
    return begins


def cut_by_outputs(files: list[list[Row]], outputs: int, columns: int) -> list[Row]:
    """The same for equal shares of what is left, with a cut key at least for each output behind."""
    rows = sorted(row for file in files for row in file)
    starts = [i for i in range(len(rows)) if i == 0 or rows[i][:columns] != rows[i - 1][:columns]]
    left = min(outputs, len(starts))
    begins, done = [], 0
    while left > 1:
        target = done + -(-(len(rows) - done) // left)
        at = min(bisect.bisect_left(starts, target), len(starts) - (left - 1))
        begins.append(rows[starts[at]])
        done = starts[at]
        left -= 1
    return begins


def slices_of(files: list[list[Row]], begins: list[Row], columns: int) -> list[list[list[int]]]:
    """Of each output the rows of each file that it has: file, first row, row behind the last."""
    starts = [0] * len(files)
    keys = [[row[:columns] for row in file] for file in files]
    found = []
    for begin in [*begins, None]:
        ends = [
            len(of) if begin is None else bisect.bisect_left(of, begin[:columns]) for of in keys
        ]
        parts = [[i, starts[i], ends[i]] for i in range(len(files)) if ends[i] > starts[i]]
        found.append(parts)
        starts = ends
    return found


def random_files(rng: random.Random) -> list[list[Row]]:
    """Files that overlap a lot or hardly; with many rows of one key or none; some without rows."""
    span = rng.choice([3, 40, 100_000])
    files = []
    number = rng.choice([1, 2, 9, 90])
    for _ in range(number):
        low = rng.randrange(span)
        high = low + 1 + rng.choice([0, span // 50, span])
        count = rng.choice([0, 1, 7, 300, 300, 300 if number > 9 else 20_000])
        rows = [(f"n{rng.randrange(low, high):06}", rng.randrange(50)) for _ in range(count)]
        files.append(sorted(rows))
    return files


@pytest.mark.parametrize("seed", range(14))
def test_cuts_are_those_of_looking_at_every_row(tmp_path, seed):
    rng = random.Random(seed)
    files = random_files(rng)
    paths = written(tmp_path / "in", files, page_rows=rng.choice([100, 20_000]))
    total = sum(map(len, files))
    for cut_on in (1, 2):
        for share in (3, 11):
            target = max(total // share, 1)
            options = {"target_rows": target}, {"outputs": share}
            expected = (
                cut_by_rows(files, target, cut_on),
                cut_by_outputs(files, share, cut_on),
            )
            for option, begins in zip(options, expected, strict=True):
                made = plait.plan(paths, sort_by=ORDER, cut_on=cut_on, **option)
                parts = [
                    [[s["source"], *s["start"][:1], *s["end"][:1]] for s in task["slices"]]
                    for task in json.loads(made.to_json())["tasks"]
                ]
                assert parts == slices_of(files, begins, cut_on), (cut_on, option)
                assert all(task.rows_exact for task in made.tasks)


def looks(caplog, paths: list[Path], **options: object) -> int:
    """How often the planner looked at a source to find the cuts."""
    caplog.clear()
    plait.plan(paths, sort_by=ORDER, **options)
    texts = [record.getMessage() for record in caplog.records]
    found = [re.search(r"outputs, found by (\d+) looks", text) for text in texts]
    return next(int(match[1]) for match in found if match)


@pytest.mark.parametrize("large", [0, 60_000], ids=["small files", "a large file among them"])
def test_files_and_looks_at_them_grow_alike(tmp_path, caplog, large):
    caplog.set_level(logging.DEBUG, logger="plait")
    rng = random.Random(1)

    def file(i: int) -> list[Row]:
        return sorted((f"n{i * 10 + rng.randrange(40):06}", ts) for ts in range(100))

    files = [file(i) for i in range(1600)]
    if large:
        keys = sorted(rng.randrange(16_000) for _ in range(large))
        files.append([(f"n{key:06}", 7) for key in keys])
    paths = written(tmp_path / "in", files)
    rest = paths[1600:]
    few, many = (
        looks(caplog, paths[:count] + rest, target_rows=2000 if not large else 5000)
        for count in (400, 1600)
    )
    assert many < 6 * few, (few, many)
    few, many = (looks(caplog, paths[:count] + rest, outputs=count // 20) for count in (400, 1600))
    assert many < 6 * few, (few, many)


def test_small_files_that_all_overlap_are_looked_at_as_often_however_many_cuts(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, logger="plait")
    rng = random.Random(3)

    def file() -> list[Row]:
        return sorted((f"n{rng.randrange(10**6):06}", rng.randrange(9)) for _ in range(700))

    files = [file() for _ in range(300)]
    paths = written(tmp_path / "in", files)
    whole = plait.merge(paths, tmp_path / "whole", sort_by=ORDER).outputs[0].bytes
    made = plait.plan(paths, sort_by=ORDER, target_file_size=whole // 3)
    assert len(made.tasks) in (3, 4)
    # About as large as asked; which rows they have is exact.
    rows = [task.rows for task in made.tasks]
    assert sum(rows) == 300 * 700
    assert all(abs(count - rows[0]) < 7_000 for count in rows[:-1]), rows
    assert all(task.rows_exact for task in made.tasks)
    plan = json.loads(made.to_json())
    keys = [(name, int(ts)) for name, ts in (task["key_low"] for task in plan["tasks"][1:])]
    parts = [
        [[s["source"], *s["start"][:1], *s["end"][:1]] for s in task["slices"]]
        for task in plan["tasks"]
    ]
    assert parts == slices_of(files, keys, 2)
    # About four looks at every file for a cut; by halving there were hundreds.
    texts = [record.getMessage() for record in caplog.records]
    found = [re.search(r"outputs, found by (\d+) looks", text) for text in texts]
    looks = next(int(match[1]) for match in found if match)
    assert looks <= 300 * 4 * len(made.tasks), looks
    # The naive rule, where so many rows are promised.
    made = plait.plan(paths, sort_by=ORDER, target_rows=70_000)
    assert [task.rows for task in made.tasks][:2] == [70_000, 70_000]


def test_tasks_become_json_without_the_rest_of_their_plan(tmp_path, monkeypatch):
    files = [[(f"n{i:04}", ts) for ts in range(40)] for i in range(120)]
    plan = plait.plan(written(tmp_path / "in", files), sort_by=ORDER, target_rows=80)
    assert len(plan.tasks) == 60
    whole = json.loads(plan.to_json())
    spared = {"sources": whole["sources"], "tasks": whole["tasks"]}
    written_out, read = [], []
    dumps, loads = json.dumps, json.loads

    def counted(data: object) -> str:
        written_out.append(dumps(data))
        return written_out[-1]

    monkeypatch.setattr("plait._plan.json.dumps", counted)
    monkeypatch.setattr("plait._plan.json.loads", lambda text: read.append(text) or loads(text))
    tasks = [loads(task.to_json()) for task in plan.tasks]
    # Its slices, what is left of it, and the rest of the plan: no other task is looked at.
    assert len(written_out) == 3 * 60
    assert list(map(loads, read)) == [task["slices"] for task in whole["tasks"]]
    sources = [source["path"] for task in tasks for source in task["sources"]]
    assert sorted(sources) == sorted(source["path"] for source in spared["sources"])
    for task, planned in zip(tasks, spared["tasks"], strict=True):
        assert task["tasks"][0] | {"slices": []} == planned | {"slices": []}
        of = [spared["sources"][piece["source"]] for piece in planned["slices"]]
        assert task["sources"] == of


def held(value: object, seen: set[int]) -> int:
    """Bytes of a value of dictionaries, lists and texts."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    parts: list[object] = []
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, PackedSources):
        parts = list(vars(value).values())
    return sys.getsizeof(value) + sum(held(part, seen) for part in parts)


def test_a_plan_holds_a_quarter_of_a_kilobyte_a_file(tmp_path):
    files = [[(f"{number:04}", 1), (f"{number:04}", 2)] for number in range(1000)]
    paths = written(tmp_path / "files", files)
    few, many = (plait.plan(paths[:count], sort_by=ORDER, outputs=4) for count in (300, 1000))
    assert json.loads(many.to_json()) == many.to_dict()
    assert many.to_dict()["sources"][399]["path"] == str(paths[399])
    assert plait.Plan.from_json(many.to_json()).to_dict() == many.to_dict()
    assert plait.Plan.from_dict(many.to_dict()).to_dict() == many.to_dict()
    assert plait.Plan(many.to_dict()).to_dict() == many.to_dict()
    assert pickle.loads(pickle.dumps(many)).to_dict() == many.to_dict()
    growth = held(vars(many), set()) - held(vars(few), set())
    assert growth / 700 < 250, "as a text, each takes 600 bytes, and parsed 1,700"
    assert [source.path for source in many.sources] == [str(path) for path in paths]


@pytest.fixture
def wide_files(tmp_path) -> list[Path]:
    """Files whose footers take more than a block of stored footers."""
    (tmp_path / "wide").mkdir()
    for number in range(400):
        columns = {f"column_{i:02}": [number, number + i] for i in range(30)}
        pq.write_table(
            pa.table({"k": [number, number + 2], **columns}), f"{tmp_path}/wide/{number:03}"
        )
    return [tmp_path / "wide" / f"{number:03}" for number in range(400)]


@pytest.mark.parametrize("is_writable", [True, False])
def test_footers_on_disk_change_nothing(wide_files, tmp_path, monkeypatch, is_writable):
    scratch = tmp_path / "scratch"
    scratch.mkdir() if is_writable else scratch.write_text("no folder")
    monkeypatch.setenv("TMPDIR", str(scratch))
    reports = [
        plait.merge(wide_files, tmp_path / limit, sort_by="k", outputs=1, memory_limit=limit)
        for limit in ("16MB", "1GB")
    ]
    small, large = (pq.read_table(tmp_path / limit) for limit in ("16MB", "1GB"))
    assert small.num_rows == 800
    assert small.sort_by([("k", "ascending"), ("column_29", "ascending")]).equals(
        large.sort_by([("k", "ascending"), ("column_29", "ascending")])
    )
    if is_writable:
        assert reports[0].metrics.spilled_bytes > 250_000
        assert list(scratch.iterdir()) == []
    assert reports[1].metrics.spilled_bytes == 0
    read = plait.read(wide_files, sort_by="k", memory_limit="16MB", temp_dir=scratch)
    assert pa.table(read).num_rows == 800


def test_files_whose_first_keys_do_not_stay_in_memory_have_the_same_plan(tmp_path):
    rng = random.Random(5)
    # Dictionaries and pages of so many files have no room within 16 MB, and are not kept there.
    files = []
    for number in range(2100):
        names = sorted(f"{number // 7 + rng.randrange(9):05}" for _ in range(4))
        files.append([(name, ts) for ts, name in enumerate(names)])
    paths = written(tmp_path / "files", files)

    def planned(limit: str, **how: object) -> tuple[object, object]:
        plan = plait.plan(paths, sort_by=ORDER, memory_limit=limit, **how).to_dict()
        return plan["sources"], plan["tasks"]

    for how in ({"outputs": 40}, {"target_rows": 300, "cut_on": 1}):
        assert planned("16MB", **how) == planned("1GB", **how)
        _, tasks = planned("16MB", **how)
        assert sum(task["rows"] for task in tasks) == 4 * 2100 and len(tasks) > 20


def test_any_separator_of_lines_may_be_in_a_path(tmp_path):
    names = ["a\u2028b", "a\x85b", "a\x0bb", "a\x1cb", "a\nb", "a\rb"]
    for number, name in enumerate(names):
        table = pa.table({"name": [f"{number}"], "ts": [number]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    paths = [str(tmp_path / f"{name}.parquet") for name in names]
    plan = plait.plan(paths, sort_by=ORDER)
    assert [source.path for source in plan.sources] == paths
    assert plan.execute(tmp_path / "out").rows_out == len(names)
    assert plait.Plan.from_json(plan.to_json()).to_dict() == plan.to_dict()
    assert [source["path"] for source in json.loads(plan.tasks[0].to_json())["sources"]] == paths


def test_plans_are_written_source_by_source(tmp_path, monkeypatch, capsys):
    files = [[(f"n{i:04}", ts) for ts in range(40)] for i in range(120)]
    paths = written(tmp_path / "in", files)
    plan = plait.plan(paths, sort_by=ORDER, target_rows=80)
    pieces = []

    class Recorder(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return super().write(text)

        def writelines(self, lines: Iterable[str]) -> None:
            for line in lines:
                self.write(line)

    file = Recorder()
    plan.write_json(file)
    assert file.getvalue() == plan.to_json()
    assert len(file.getvalue().splitlines()) == 120 + 60 + 3
    # No piece has two sources or tasks.
    assert max(piece.count('"path"') for piece in pieces) == 1
    assert max(piece.count('"slices"') for piece in pieces) == 1
    again = plait.Plan.from_json(file.getvalue())
    assert again.to_json() == plan.to_json()
    assert again.execute(tmp_path / "out").rows_out == 120 * 40
    # The command line does the same, and never makes one text of it.
    monkeypatch.setattr(plait.Plan, "to_json", lambda _: pytest.fail("all sources in one text"))
    asked = ["plan", *map(str, paths), "--sort-by", ORDER, "--target-rows", "80", "--json"]
    assert main(asked) == 0
    assert capsys.readouterr().out == file.getvalue() + "\n"


def test_a_plan_is_written_to_nothing_but_an_open_text_file(tmp_path):
    plan = plait.plan(written(tmp_path / "in", [[("a", 1)]]), sort_by=ORDER)
    path = tmp_path / "plan.json"
    for wrong in (str(path), path, None):
        with pytest.raises(plait.InvalidArgument, match="open for text"):
            plan.write_json(wrong)
    assert not path.exists()
    with path.open("wb") as file, pytest.raises(plait.InvalidArgument, match="open for text"):
        plan.write_json(file)
    assert path.read_bytes() == b""
