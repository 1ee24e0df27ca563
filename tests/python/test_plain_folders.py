"""Plain folders are plain again after `expire`: what other programs see of them, from other processes.

`plain_readers.py` reads with every program, tables too. The tables of the guide are compared with what
it saw.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local  # other programs read the folder by its path

READERS = Path(__file__).with_name("plain_readers.py")
GUIDE = Path(__file__).resolve().parents[2] / "docs/guide"
ROWS = 40


def write(path: Path, keys: list[int], values: list[int] | None = None) -> None:
    """As writers do: a file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    pq.write_table(pa.table({"k": keys, "v": values or keys}), hidden)
    hidden.rename(path)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "around" / "events"
    for file in range(4):
        keys = range(file, ROWS, 4)
        write(made / f"day={file % 2}" / f"hour-{file}.parquet", list(keys))
    return made


def keys(folder: Path) -> list[int]:
    return sorted(pa.table(plait.scan(folder, columns=["k"]))["k"].to_pylist())


def files(folder: Path) -> list[str]:
    found = folder.rglob("*.parquet")
    return sorted(str(path.relative_to(folder)) for path in found)


class Observers:
    """A process with other programs, which tells what each of them sees of a folder or table."""

    def __init__(self, which: str) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, READERS, which]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def __call__(self, folder: Path) -> dict[str, str]:
        self.process.stdin.write(f"{folder}\t{ROWS}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    def end(self) -> None:
        self.process.communicate(timeout=120)


@pytest.fixture
def observers():
    """Begins such processes, and ends them."""
    begun: list[Observers] = []

    def begin(which: str) -> Observers:
        begun.append(Observers(which))
        return begun[-1]

    yield begin
    for observed in begun:
        observed.end()


def while_it_merges(monkeypatch, look) -> None:
    """Looks when outputs of a compaction are complete and not committed."""
    execute = plait.Plan.execute

    def watched(self, *args, **options):
        report = execute(self, *args, **options)
        look()
        return report

    monkeypatch.setattr(plait.Plan, "execute", watched)


def steps_of_a_folder(folder: Path, tmp_path: Path, monkeypatch, observed) -> dict:
    """What programs see of a plain folder, by step."""
    copy = tmp_path / "copy"
    for path in folder.rglob("*.parquet"):
        target = copy / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    told = {"before": observed(folder)}
    while_it_merges(monkeypatch, lambda: told.update({"while it merges": observed(folder)}))
    plait.compact(folder, policy="full", sort_by="k")
    monkeypatch.undo()
    told["compacted"] = observed(folder)
    plait.expire(folder, retention=0, yes=True)
    told["expired"] = observed(folder)
    plait.compact(copy, policy="full", sort_by="k", in_place=True)
    told["in place"] = observed(copy)
    return told


def steps_of_a_table(tmp_path: Path, monkeypatch, observed) -> dict:
    """What programs see of a table, by step."""
    folder = tmp_path / "metrics"
    table = plait.Table(folder, sort_by="k")
    for file in range(12):  # the tenth commit has a checkpoint, which is a Parquet file
        table.append(pa.table({"k": range(file, ROWS, 12), "v": range(file, ROWS, 12)}))
    told = {"before": observed(folder)}
    while_it_merges(monkeypatch, lambda: told.update({"while it merges": observed(folder)}))
    table.compact(policy="full")
    monkeypatch.undo()
    told["compacted"] = observed(folder)
    table.expire(0)
    told["expired"] = observed(folder)
    assert len(table.files()) == 1
    return told


def documented(page: Path) -> dict[str, dict[str, str]]:
    """The table of a page: for each program what it sees, by step."""
    text = page.read_text(encoding="utf-8")
    header, _, *lines = re.search(r"(\| program \| before .*\n(?:\|.*\n)+)", text)[1].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in [header, *lines]]
    names = [name.strip() for name in cells[0][1:]]
    return {name: dict(zip(names, row, strict=True)) for name, *row in cells[1:]}


def by_program(told: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {
        reader if "`" in reader or " " in reader else f"`{reader}`": {
            step: told[step][reader] for step in told
        }
        for reader in told["before"]
    }


def compare(page: str, told: dict[str, dict[str, str]]) -> None:
    """Compares what programs saw with the lines of them in a page; all lines of Spark or all others."""
    seen = by_program(told)
    of_spark = all(name.startswith("Spark") for name in seen)
    lines = documented(GUIDE / page)
    assert {p: steps for p, steps in lines.items() if p.startswith("Spark") == of_spark} == seen


@pytest.mark.long
def test_the_table_of_the_guide_says_what_programs_see(folder, tmp_path, monkeypatch, observers):
    observed = observers("folder")
    compare("policies.md", steps_of_a_folder(folder, tmp_path, monkeypatch, observed))


@pytest.mark.long
def test_the_guide_says_what_programs_see_of_a_table(tmp_path, monkeypatch, observers):
    compare("table.md", steps_of_a_table(tmp_path, monkeypatch, observers("table")))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.spark
def test_the_guide_says_what_spark_sees(folder, tmp_path, monkeypatch, observers):
    observed = observers("spark")
    compare("policies.md", steps_of_a_folder(folder, tmp_path, monkeypatch, observed))
    compare("table.md", steps_of_a_table(tmp_path, monkeypatch, observed))


def test_expire_leaves_ordinary_files_and_nothing_hidden(folder):
    before = keys(folder)
    dry = plait.expire(folder, retention=0)
    assert dry.shown == ()
    plait.compact(folder, policy="full", sort_by="k")
    dry = plait.expire(folder, retention=0)
    assert len(dry.shown) == 2 and "would become ordinary" in str(dry)
    done = plait.expire(folder, retention=0, yes=True)
    assert (done.shown, len(done.replaced), done.waiting) == (dry.shown, 4, ())
    assert files(folder) == sorted(done.shown)
    assert [name.split(".part-")[0] for name in files(folder)] == ["day=0/hour-2", "day=1/hour-3"]
    assert not (folder / "_plait/files").exists()
    assert keys(folder) == before
    # They are files like any other: merged again, and anybody may remove them.
    write(folder / "day=0" / "hour-4.parquet", [100])
    again = plait.compact(folder, policy="full", sort_by="k")
    assert [len(group.sources) for group in again.groups] == [2]
    done = plait.expire(folder, retention=0, yes=True)
    assert len(files(folder)) == 2 and keys(folder) == [*before, 100]
    (folder / done.shown[0]).unlink()
    assert keys(folder) == [key for key in before if key % 2]


def test_a_folder_keeps_its_order_when_it_is_plain(tmp_path):
    """Without its manifests, names decide as the places in them did."""
    folder = tmp_path / "stock"
    for hour in range(4):
        write(folder / f"hour-{hour}.parquet", [1, 10 + hour], [hour, hour])
    how = {"sort_by": "k", "on_duplicate": "keep_last"}
    plait.compact(folder, policy="size_tiered", merge_factor=2, merge_factor_max=2, **how)
    for plain in (False, True):
        rows = pa.table(plait.read(folder, **how)).to_pylist()
        assert rows[0] == {"k": 1, "v": 3}
        if not plain:
            plait.expire(folder, retention=0, yes=True)
            for path in (folder / "_plait").glob("*.json"):
                path.unlink()
    write(folder / "hour-4.parquet", [1], [4])
    assert pa.table(plait.read(folder, **how)).to_pylist()[0] == {"k": 1, "v": 4}


def test_files_wait_until_all_that_hold_their_rows_may_be_seen(folder):
    """Whatever the retention, no row is missing for whoever sees visible files only."""
    plait.compact(folder, policy="full", sort_by="k")
    manifest = max((folder / "_plait").glob("manifest-*.json"))
    told = json.loads(manifest.read_text())
    for entry in told["replaced"]:
        entry["since"] -= 86_400 if entry["path"] != "day=0/hour-2.parquet" else 0
    manifest.write_text(json.dumps(told))
    done = plait.expire(folder, retention="1h", yes=True)
    assert done.waiting == ("day=0/hour-0.parquet",) and "must wait" in str(done)
    assert len(done.replaced) == 2 and len(done.shown) == 1
    visible = [name for name in files(folder) if "_plait" not in name]
    assert len(visible) == 3
    found = [key for name in visible for key in pq.read_table(folder / name)["k"].to_pylist()]
    assert sorted(found) == keys(folder) == list(range(ROWS))


def test_a_reader_that_listed_before_a_move_reads_on(folder):
    plait.compact(folder, policy="full", sort_by="k")
    scan = plait.scan(folder, columns=["k"])
    batches = iter(plait.read(folder, sort_by="k", batch_rows=5))
    first = pa.record_batch(next(batches))["k"].to_pylist()
    plait.expire(folder, retention=0, yes=True)
    rest = [key for batch in batches for key in pa.record_batch(batch)["k"].to_pylist()]
    assert sorted(first + rest) == list(range(ROWS))
    assert sorted(pa.table(scan)["k"].to_pylist()) == list(range(ROWS))


def test_a_folder_is_exchanged_in_one_step(folder):
    (folder / "notes.txt").write_text("stays")
    (folder / ".hidden").write_text("stays")
    (folder / "link").symlink_to("notes.txt")
    (folder / "day=1").chmod(0o750)
    inode = folder.stat().st_ino
    done = plait.compact(folder, policy="full", sort_by="k", in_place=True)
    assert folder.stat().st_ino != inode and "exchanged in one step" in str(done)
    outputs = [Path(path).relative_to(folder) for group in done.groups for path in group.outputs]
    assert files(folder) == sorted(map(str, outputs))
    assert keys(folder) == list(range(ROWS))
    assert (folder / "notes.txt").read_text() == (folder / ".hidden").read_text() == "stays"
    assert (folder / "link").is_symlink() and (folder / "day=1").stat().st_mode & 0o777 == 0o750
    assert [path.name for path in folder.parent.iterdir()] == ["events"]
    again = plait.compact(folder, policy="full", sort_by="k", in_place=True)
    assert again.groups == () and keys(folder) == list(range(ROWS))
    plait.compact(folder, policy="full", sort_by="k", in_place=True, yes=False)


def test_the_shell_exchanges_folders_too(folder, python):
    inode = folder.stat().st_ino
    done = python("-m", "plait", "compact", str(folder), "--sort-by", "k", "--in-place")
    assert done.returncode == 0 and "exchanged in one step" in done.stdout, done.stderr
    assert folder.stat().st_ino != inode
    write(folder / "day=0" / "late.parquet", [0])
    plait.compact(folder, sort_by="k")
    inode = folder.stat().st_ino
    flags = ("--retention", "0s", "--swap", "--yes")
    done = python("-m", "plait", "expire", str(folder), *flags)
    assert done.returncode == 0 and "1 file that compactions wrote became" in done.stdout, (
        done.stdout
    )
    assert folder.stat().st_ino != inode


def test_swap_exchanges_what_was_compacted_before(folder):
    plait.compact(folder, policy="full", sort_by="k")
    inode = folder.stat().st_ino
    plait.expire(folder, swap=True, yes=True)
    assert folder.stat().st_ino == inode and len(files(folder)) == 6, "they are too young"
    done = plait.expire(folder, retention=0, swap=True, yes=True)
    assert folder.stat().st_ino != inode and len(done.replaced) == 4
    assert files(folder) == sorted(done.shown) and keys(folder) == list(range(ROWS))


def test_where_folders_cannot_be_exchanged_nothing_is_done(folder, monkeypatch):
    store = pytest.importorskip("obstore.store").MemoryStore()
    for call in (
        lambda: plait.expire("events", swap=True, storage_options=store),
        lambda: plait.compact("events", sort_by="k", in_place=True, storage_options=store),
    ):
        with pytest.raises(plait.Unsupported, match="exchanged in one step"):
            call()
    if os.geteuid() != 0:
        folder.parent.chmod(0o500)
        with pytest.raises(plait.StorageError):
            plait.compact(folder, policy="full", sort_by="k", in_place=True)
        folder.parent.chmod(0o700)
        assert not (folder / "_plait").exists()


def test_a_folder_that_others_compact_is_not_exchanged(folder, monkeypatch):
    execute = plait.Plan.execute

    def rival(self, *args, **options):
        with pytest.raises(plait.SourceChanged, match="others write to the folder"):
            plait.expire(folder, retention=0, swap=True, yes=True)
        return execute(self, *args, **options)

    write(folder / "day=0" / "late.parquet", [100])
    plait.compact(folder, policy="full", sort_by="k")
    write(folder / "day=0" / "later.parquet", [101])
    monkeypatch.setattr(plait.Plan, "execute", rival)
    plait.compact(folder, policy="full", sort_by="k")
    assert keys(folder) == [*range(ROWS), 100, 101]


RIVAL = """
import sys, collections, duckdb
rows, reads, again = int(sys.argv[2]), 0, 0
print("go", flush=True)
while not __import__("os").path.exists(sys.argv[3]):
    try:
        found = duckdb.sql(f"SELECT k FROM '{sys.argv[1]}/day=*/*.parquet'").fetchall()
    except duckdb.Error as error:
        again += 1  # a file of the list is gone: list again
        continue
    counts = collections.Counter(key for (key,) in found)
    twice = [key for key, n in counts.items() if n > 1]
    lost = [key for key in range(rows) if not counts[key]]
    assert not twice and not lost, (reads, twice[:5], lost[:5])
    reads += 1
print(reads, again)
"""


@pytest.mark.slow
def test_a_rival_that_lists_again_and_again_sees_each_row_once_in_place(folder, tmp_path):
    stop, added = tmp_path / "stop", 0
    command = [sys.executable, "-c", RIVAL, folder, str(ROWS), stop]
    rival = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert rival.stdout.readline() == "go\n"
        appending = threading.Event()

        def append() -> None:
            nonlocal added
            while not appending.is_set() and added < 40:
                write(folder / f"day={added % 2}" / f"late-{added:05}.parquet", [1000 + added])
                added += 1
                time.sleep(0.05)

        writer = threading.Thread(target=append)
        writer.start()
        for _ in range(4):
            plait.compact(folder, policy="full", sort_by="k", in_place=True)
        appending.set()
        writer.join()
    finally:
        stop.touch()
        out, errors = rival.communicate(timeout=120)
    assert rival.returncode == 0, errors
    reads, again = map(int, out.split())
    assert reads > 0, (reads, again)
    assert keys(folder) == [*range(ROWS), *(1000 + i for i in range(added))]
    assert [path.name for path in folder.parent.iterdir()] == ["events"]


KILLED = """
import sys, plait
print("go", flush=True)
plait.expire(sys.argv[1], retention=0, swap=sys.argv[2] == "swap", yes=True)
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("how", ["moves", "swap"])
def test_expire_that_is_killed_at_any_time_loses_no_row(tmp_path, how):
    """The steps one by one are killed by the tests of `rust/parquet/src/compact/tests.rs`."""
    folder = tmp_path / "around" / "events"
    expected: list[int] = []
    for round_ in range(12):
        for file in range(20):
            first = 1000 * round_ + 10 * file
            write(folder / f"day={file % 5}" / f"hour-{round_:02}-{file:02}.parquet", [first])
            expected.append(first)
        plait.compact(folder, policy="full", sort_by="k")
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, folder, how], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "go\n"
        time.sleep(0.004 * round_)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert keys(folder) == sorted(expected), round_
        plait.expire(folder, retention=0, yes=True)
        visible = sorted(folder.glob("day=*/*.parquet"))
        found = [key for path in visible for key in pq.ParquetFile(path).read()["k"].to_pylist()]
        assert sorted(found) == sorted(expected) == keys(folder), round_
        assert len(visible) == len(files(folder)) == 5
    # A probe that was killed leaves empty folders beside it.
    beside = [path for path in folder.parent.iterdir() if path != folder]
    assert not any(any(path.iterdir()) for path in beside)


def test_manifests_of_before_files_moved_are_read_and_end_plain(folder):
    plait.compact(folder, policy="full", sort_by="k")
    path = max((folder / "_plait").glob("manifest-*.json"))
    old = json.loads(path.read_text())
    for entry in [*old["files"], *old["replaced"]]:
        del entry["group"]
    path.write_text(json.dumps({**old, "version": 2}))
    assert keys(folder) == list(range(ROWS))
    assert len(plait.expire(folder, retention=0, yes=True).shown) == 2
    assert len(files(folder)) == 2 and keys(folder) == list(range(ROWS))
