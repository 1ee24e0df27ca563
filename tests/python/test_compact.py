"""Compactions: which files, in one step, after crashes, with others at the same time, and that nothing is lost."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main

pytestmark = pytest.mark.local  # tests of folders, of examples, of what one call tells

COMPACT = Path(__file__).with_name("compact_staged.py")


def write(path: Path, keys: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"k": sorted(keys), "from": [path.name] * len(keys)}), path)


def rows(folder: Path) -> Counter:
    read = pa.table(plait.scan(folder))
    columns = (read.column(name).to_pylist() for name in ("k", "from"))
    return Counter(zip(*columns, strict=True))


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "events"
    rng = random.Random(1)
    for day in (1, 2):
        for part in range(12):
            keys = [rng.randrange(part * 10, part * 10 + 15) for _ in range(200)]
            write(made / f"day={day}" / f"{part:02}.parquet", keys)
    return made


def depth_max(folder: Path, day: int) -> int:
    return plait.plan(folder / f"day={day}", sort_by="k").overlap.depth_max


def test_overlapping_files_of_one_partition_become_one(folder):
    before = rows(folder)
    dry = plait.compact(folder, sort_by="k", yes=False)
    assert dry.dry_run and [len(group.sources) for group in dry.groups] == [12, 12]
    assert [group.folder for group in dry.groups] == ["day=1", "day=2"]
    assert not (folder / "_plait").exists() and "would merge 24 files" in str(dry)
    assert "outputs" not in str(dry)
    done = plait.compact(folder, sort_by="k")
    assert [len(group.outputs) for group in done.groups] == [1, 1] and done.version == 2
    assert rows(folder) == before
    assert [depth_max(folder, day) for day in (1, 2)] == [1, 1]
    again = plait.compact(folder, policy="overlap", sort_by="k", yes=True)
    assert again.groups == () and "nothing to merge" in str(again)
    # The partition columns of files that were made are those of their sources.
    read = pa.table(plait.scan(folder, partitions="hive"))
    assert Counter(map(str, read.column("day").to_pylist())) == {"1": 2400, "2": 2400}


def test_files_that_come_later_count_and_are_merged_next(folder):
    plait.compact(folder, policy="full", sort_by="k", yes=True)
    write(folder / "day=1" / "late.parquet", [5, 50, 500])
    before = rows(folder)
    assert sum(before.values()) == 24 * 200 + 3
    done = plait.compact(folder, policy="full", sort_by="k", yes=True)
    assert [len(group.sources) for group in done.groups] == [2]
    assert rows(folder) == before
    assert plait.compact(folder, policy="full", sort_by="k").groups == ()
    merged = plait.merge(folder / "day=1", folder.parent / "merged.parquet")
    assert merged.rows_out == 12 * 200 + 3


def test_levels_are_merged_ten_at_a_time_and_finalised(tmp_path):
    folder = tmp_path / "levels"
    for part in range(23):
        write(folder / f"{part:03}.parquet", [part * 10 + i for i in range(5)])
    before = rows(folder)
    options = {"policy": "size_tiered", "sort_by": "k", "merge_factor_max": 10}
    done = plait.compact(folder, **options)
    assert [len(group.sources) for group in done.groups] == [10, 10]
    assert plait.compact(folder, **options).groups == ()
    last = plait.compact(folder, finalize=True, **options)
    assert [len(group.sources) for group in last.groups] == [5]
    assert plait.compact(folder, finalize=True, **options).groups == ()
    assert rows(folder) == before
    options |= {"mature_age": "1h", "merge_factor": 2}
    assert plait.compact(folder, **options).groups == ()


def test_outputs_of_one_group_may_be_many(folder):
    before = rows(folder)
    options = {"policy": "full", "sort_by": "k", "target_file_size": "2kB", "yes": True}
    done = plait.compact(folder, **options)
    assert all(len(group.outputs) > 1 for group in done.groups)
    assert rows(folder) == before
    assert plait.compact(folder, **options).groups == ()


def test_only_files_of_one_schema_and_order_are_merged(tmp_path):
    folder = tmp_path / "mixed"
    write(folder / "a.parquet", [1, 5])
    write(folder / "b.parquet", [2, 6])
    pq.write_table(pa.table({"k": [3], "other": [1]}), folder / "c.parquet")
    done = plait.compact(folder, policy="full", sort_by="k", yes=True)
    assert [[Path(s).name for s in g.sources] for g in done.groups] == [["a.parquet", "b.parquet"]]
    left = plait.compact(folder, policy="full")
    assert [Path(s.path).name for s in left.skipped] == ["c.parquet"]
    assert "pass sort_by" in left.skipped[0].why and left.groups == ()


def test_replaced_files_are_removed_after_the_retention(folder):
    before = rows(folder)
    plait.compact(folder, policy="full", sort_by="k", yes=True)
    assert plait.expire(folder, yes=True).replaced == ()
    dry = plait.expire(folder, retention=0)
    assert len(dry.replaced) == 24 and len(list(folder.glob("day=*/*.parquet"))) == 24
    # A crash between removing files and telling of it: nothing comes back, and it is done again.
    (folder / "day=1" / "00.parquet").unlink()
    assert rows(folder) == before
    orphan = folder / "_plait" / "files" / "orphan.parquet"
    write(orphan, [1])
    assert rows(folder) == before
    done = plait.expire(folder, retention="0s", yes=True)
    assert len(done.replaced) == 24 and done.orphans == ("_plait/files/orphan.parquet",)
    visible = [path.relative_to(folder).as_posix() for path in folder.glob("day=*/*.parquet")]
    assert sorted(visible) == sorted(done.shown) and len(visible) == 2 and not orphan.exists()
    assert rows(folder) == before
    assert plait.expire(folder, retention=0, yes=True).replaced == ()


STAGES = [
    f"{when} {call}" for call in ("plan", "execute", "commit") for when in ("before", "after")
]


@pytest.mark.slow
@pytest.mark.parametrize("stage", [*STAGES, "0.35", "0.45"])
def test_a_killed_compaction_leaves_old_or_new(folder, stage):
    before = rows(folder)
    seconds = "0" if " " in stage else stage
    command = [sys.executable, COMPACT, str(folder), stage, seconds]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert killed.returncode == -9 or (seconds != "0" and killed.returncode == 0), killed.stderr
    assert rows(folder) == before
    plait.compact(folder, policy="overlap", sort_by="k", yes=True)
    assert rows(folder) == before
    assert plait.compact(folder, policy="overlap", sort_by="k", yes=True).groups == ()
    plait.expire(folder, retention=0, yes=True)
    assert rows(folder) == before
    parquet = [path for path in folder.rglob("*") if path.is_file() and path.suffix == ".parquet"]
    assert len(parquet) == 2


def test_two_compactions_at_once_end_as_one(folder):
    before = rows(folder)
    command = [sys.executable, COMPACT, str(folder), "", "0"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate()[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(int(groups) for groups, _ in told) == 2
    assert rows(folder) == before
    assert plait.compact(folder, policy="overlap", sort_by="k").groups == ()
    names = sorted(os.listdir(folder / "_plait"))
    # Each takes a lease, groups are committed once, and a lease may end by itself. One that starts
    # after the other has ended finds nothing to do, and takes no lease.
    assert names[:2] == ["files", "leases"] and 2 <= len(names[2:]) <= 6
    assert names[2:] == [f"manifest-{n:08}.json" for n in range(1, len(names) - 1)]
    assert json.loads((folder / "_plait" / names[-1]).read_text())["leases"] == []
    assert list((folder / "_plait" / "leases").iterdir()) == []


def test_manifests_that_are_damaged_or_newer_are_refused(folder):
    plait.compact(folder, policy="full", sort_by="k", yes=True)
    path = folder / "_plait" / "manifest-00000009.json"
    for text, error in (("{", plait.CorruptSource), ('{"version": 4}', plait.Unsupported)):
        path.write_text(text)
        for call in (plait.plan, plait.scan, plait.compact):
            with pytest.raises(error, match="manifest"):
                call(folder, **({} if call is plait.scan else {"sort_by": "k"}))


def test_what_cannot_be_compacted_is_refused(tmp_path):
    with pytest.raises(plait.SourceNotFound):
        plait.compact(tmp_path / "none")
    with pytest.raises(plait.InvalidArgument, match="policy"):
        plait.compact(tmp_path, policy="some")
    with pytest.raises(plait.InvalidArgument, match="time span"):
        plait.compact(tmp_path, mature_age="soon")
    assert plait.compact(tmp_path).groups == ()


def test_the_command_line_compacts(folder, capsys):
    arguments = ["compact", str(folder), "--policy", "overlap", "--sort-by", "k"]
    assert main([*arguments, "--dry-run"]) == 0
    assert "would merge 24 files" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["dry_run"] is False and told["folder"] == told["table"] == str(folder)
    assert main([*arguments, "--yes"]) == 0
    assert "nothing to merge" in capsys.readouterr().out
    assert main(["expire", str(folder), "--retention", "0s", "--yes"]) == 0
    assert "removed 24 files" in capsys.readouterr().out


@pytest.mark.long
def test_size_tiered_writes_rows_no_more_often_than_there_are_levels(tmp_path):
    script = Path(__file__).parents[2] / "benches" / "python" / "policies.py"
    out = tmp_path / "policies.json"
    subprocess.run([sys.executable, script, "--days", "8", "--json", out], check=True)
    found = json.loads(out.read_text())
    for name, run in found["policies"].items():
        assert run["rows"] == found["rows"], name
    tiered = found["policies"]["size_tiered"]
    assert 2 < tiered["write_amplification"] <= tiered["bound"] == 4
    assert tiered["files"][-1] < 60 < found["policies"]["none"]["files"][-1]


def test_a_file_that_is_added_twice_counts_once(tmp_path):
    from plait import _native
    from plait._lease import new_id, take

    lease = new_id()
    held = take(str(tmp_path), lease, 60, None)
    name = f"_plait/files/a-{lease}.parquet"
    write(tmp_path / name, [1, 2])
    for _ in range(2):
        change = {"folder": str(tmp_path), "changes": [{"add": [str(tmp_path / name)]}]}
        told = json.loads(_native.commit(json.dumps(change)))
    held.close()
    assert [made["path"] for made in told["manifest"]["files"]] == [name]
    assert rows(tmp_path) == Counter({(1, Path(name).name): 1, (2, Path(name).name): 1})


def partitioned(root: Path, days: int = 2) -> Path:
    for day in range(days):
        folder = root / f"day=2024-05-0{day + 1}"
        folder.mkdir(parents=True)
        for i in range(2):
            pq.write_table(
                pa.table({"k": [i + 10 * day, i + 5 + 10 * day]}), folder / f"{i}.parquet"
            )
    return root


def test_nothing_to_merge_is_explained_with_sizes(tmp_path):
    for i in range(3):
        pq.write_table(pa.table({"k": [10 * i, 10 * i + 5]}), tmp_path / f"{i}.parquet")
    size = (tmp_path / "0.parquet").stat().st_size
    apart = plait.compact(tmp_path, sort_by="k")
    assert apart.reasons == (
        f'3 files of {size} B: no two of them share a key; policy="full" merges them all the same',
    )
    assert apart.reasons[0] in str(apart)
    few = plait.compact(tmp_path, sort_by="k", policy="size_tiered")
    assert "3 files of" in str(few) and "level 0: fewer than merge_factor 10" in str(few)
    large = plait.compact(tmp_path, sort_by="k", policy="size_tiered", mature_size=size)
    assert f"3 files of {size} B: large enough, from mature_size {size} B on" in str(large)
    level = plait.compact(tmp_path, sort_by="k", policy="size_tiered", mature_level=0)
    assert "merged often enough, from mature_level 0 on" in str(level)
    done = plait.compact(tmp_path, sort_by="k", policy="full")
    assert "merged 3 files into 1 file" in str(done) and "are now" not in str(done)
    assert "no other file of the partition" in str(plait.compact(tmp_path, sort_by="k"))


def test_advice_is_in_the_words_of_the_door(tmp_path, capsys):
    for i in range(3):
        pq.write_table(pa.table({"k": [10 * i, 10 * i + 5]}), tmp_path / f"{i}.parquet")
    folder = str(tmp_path)
    assert '; policy="full" merges them' in str(plait.compact(folder, sort_by="k"))
    assert main(["compact", folder, "--sort-by", "k"]) == 0
    assert "; --policy full merges them" in capsys.readouterr().out
    assert main(["compact", folder, "--sort-by", "k", "--policy", "size_tiered"]) == 0
    assert "fewer than --merge-factor 10; --finalize merges them" in capsys.readouterr().out
    told = plait.expire(folder)
    assert str(told).endswith("nothing was done; pass yes=True")
    assert "pass yes=True" in told._repr_html_()
    assert main(["expire", folder]) == 0
    assert capsys.readouterr().out.endswith("nothing was done; pass --yes\n")


def test_an_empty_folder_is_said_to_be_empty(tmp_path):
    assert "there is no Parquet file" in str(plait.compact(tmp_path, sort_by="k"))


def test_files_that_count_are_counted_before_and_after(tmp_path):
    for i in range(3):
        pq.write_table(pa.table({"k": [i, i + 5]}), tmp_path / f"{i}.parquet")
    pq.write_table(pa.table({"k": [100]}), tmp_path / "apart.parquet")
    report = plait.compact(tmp_path, sort_by="k")
    assert (report.files_before, report.files) == (4, 2)
    assert "merged 3 files into 1 file; 4 files are now 2" in str(report)


def test_files_of_several_schemas_are_said_to_be_merged_apart(tmp_path):
    for i in range(4):
        column = "a" if i % 2 else "b"
        pq.write_table(pa.table({"k": [i, i + 5], column: [1, 2]}), tmp_path / f"{i}.parquet")
    report = plait.compact(tmp_path, sort_by="k", yes=False)
    assert len(report.groups) == 2
    text = str(report)
    assert "the folder has files of 2 schemas, which are merged separately (" in text
    assert "`a` is in 2 of 4 files" in text and "`b` is in 2 of 4 files" in text
    assert "); `across_schemas=True` merges those that one schema fits" in text
    pq.write_table(
        pa.table({"k": pa.array([1, 7], pa.int32()), "b": [1, 2]}), tmp_path / "4.parquet"
    )
    text = str(plait.compact(tmp_path, sort_by="k", yes=False))
    assert "3 schemas, which are merged separately (" in text
    assert "`k` is int32 in 1, int64 in 4" in text


def test_reasons_are_in_the_words_of_the_shell(tmp_path, capsys):
    for i in range(2):
        pq.write_table(
            pa.table({"k": [i, i + 5], f"sort_by_{i}": [1, 2]}), tmp_path / f"{i}.parquet"
        )
    assert main(["compact", str(tmp_path)]) == 0
    assert (
        "left alone, 2 files: it declares no sort order; pass --sort-by\n"
        in capsys.readouterr().out
    )
    assert main(["compact", str(tmp_path), "--sort-by", "k"]) == 0
    text = capsys.readouterr().out
    assert "`sort_by_0` is in 1 of 2 files" in text and "; `--across-schemas` merges those" in text


def test_a_where_that_matches_nothing_names_the_partitions(tmp_path):
    partitioned(tmp_path)
    with pytest.raises(plait.InvalidArgument) as caught:
        plait.compact(tmp_path, sort_by="k", where={"day": "2024-06-01"})
    assert str(caught.value) == (
        "`where` matches no partition: got `day=2024-06-01`\n"
        "hint: the partitions are `day=2024-05-01`, `day=2024-05-02`"
    )


def test_numbers_and_dates_stand_for_the_text_of_a_partition(tmp_path):
    partitioned(tmp_path)
    day = dt.date(2024, 5, 1)
    for where in ({"day": day}, {"day": [day, "2024-05-01"]}):
        dry = plait.compact(tmp_path, sort_by="k", policy="full", where=where, yes=False)
        assert [group.folder for group in dry.groups] == ["day=2024-05-01"]
    with pytest.raises(plait.InvalidArgument, match="got `day=7`\n"):
        plait.compact(tmp_path, sort_by="k", where={"day": 7})
    for odd in (True, 1.5, None, [False]):
        with pytest.raises(plait.InvalidArgument, match="does not name partitions"):
            plait.compact(tmp_path, sort_by="k", where={"day": odd})


def test_sorting_by_a_partition_column_is_said_to_be_that(tmp_path):
    partitioned(tmp_path)
    with pytest.raises(plait.UnknownColumn, match="sort column is a partition column") as caught:
        plait.compact(tmp_path, sort_by="day, k")
    assert caught.value.column == "day" and "leave it out of sort_by" in str(caught.value)


def test_files_that_are_left_alone_for_one_reason_are_told_together(tmp_path):
    for i in range(7):
        pq.write_table(pa.table({"k": [5, 1]}), tmp_path / f"{i}.parquet")
    text = str(plait.compact(tmp_path, sort_by="k"))
    assert "left alone, 7 files: key goes backwards: column `k`, row 1, got 1 after 5" in text
    assert text.count("key goes backwards") == 1 and "and 2 more" in text
