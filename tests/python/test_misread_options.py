"""Options in a form that could be taken for another: refused, or taken as they are meant."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import _main, main

KEYS = {"left_key": "id", "foreign_key": "fk", "right_key": "key"}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"k": [3, 2, 2, 2, 1]}), path)
    return path


@pytest.mark.parametrize(
    "order", [{"k": "desc"}, {"k"}, frozenset({"k"}), {"k": "desc"}.items(), {"k": 1}.keys()]
)
def test_an_order_is_a_list_or_text(source, tmp_path, order):
    out = tmp_path / "o.parquet"
    batches = pa.table({"k": [1]}).to_batches()
    calls = [
        lambda: plait.merge(source, out, sort_by=order),
        lambda: plait.plan(source, sort_by=order),
        lambda: plait.verify(source, sort_by=order),
        lambda: plait.inspect(source, check_order=True, sort_by=order),
        lambda: list(plait.merge_streams([batches], sort_by=order)),
        lambda: plait.compact(tmp_path, sort_by=order),
    ]
    for call in calls:
        with pytest.raises(plait.InvalidArgument, match="`sort_by` is not a list of columns"):
            call()
    assert not out.exists()
    assert plait.merge(source, out, sort_by=[("k", "desc")]).sort_by == "-k"


@pytest.mark.parametrize("sources", [dict.fromkeys, set])
def test_sources_have_an_order_that_breaks_ties(source, tmp_path, sources):
    for call in (plait.merge, plait.plan):
        with pytest.raises(plait.InvalidArgument, match="`sources` is not a list of paths"):
            call(sources([str(source)]), tmp_path / "o.parquet", sort_by="-k")


@pytest.mark.parametrize("value", [{"id": "desc"}, {"id"}])
def test_keys_of_joins_are_names_or_lists(value):
    for name in ("left_key", "foreign_key", "right_key"):
        with pytest.raises(plait.InvalidArgument, match=f"`{name}` names no columns"):
            plait.ForeignKeyJoin(**KEYS | {name: value})
    with pytest.raises(plait.InvalidArgument, match="`columns` names no columns"):
        plait.ForeignKeyJoin(**KEYS, columns={"id"})
    with pytest.raises(plait.InvalidArgument, match="value_sets"):
        plait.plan("a.parquet", value_sets={"k": "all"})


# ---- exit codes of the command line

LONG = "n" * 300
COMMANDS = {
    "merge": ["merge", LONG, "-o", "o.parquet", "--sort-by", "k"],
    "plan": ["plan", LONG, "--sort-by", "k"],
    "verify": ["verify", LONG],
    "inspect": ["inspect", LONG],
    "scan": ["scan", LONG],
    "compact": ["compact", LONG],
    "expire": ["expire", LONG],
    "execute": ["execute", LONG, "-o", "o"],
    "overlay": ["overlay", "--layer", LONG, "-o", "o.parquet", "--index", "k"],
    "join": ["join", "--left", LONG, "--right", LONG, "--state", "s"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_read_is_no_failed_verification(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = main(COMMANDS[command])
    printed = capsys.readouterr().err
    assert code in (2, 4), printed
    assert "error: " in printed and "Traceback" not in printed


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("command", ["merge", "verify", "compact", "scan", "expire", "plan"])
def test_a_folder_that_may_not_be_read_exits_with_4(command, tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir()
    pq.write_table(pa.table({"k": [1]}), folder / "a.parquet")
    folder.chmod(0o000)
    rest = ["-o", str(tmp_path / "o.parquet"), "--sort-by", "k"] if command == "merge" else []
    opened = tmp_path / "opened"
    opened.mkdir()
    pq.write_table(pa.table({"k": [1]}), opened / "a.parquet")
    # As root everything may be read: the right goes once all is imported that the command needs.
    program = (
        "import os, sys; from plait.cli import main\n"
        "command, opened, *rest = sys.argv[1:]\n"
        "main([command, opened, *rest[1:]])\n"
        "print('closed', flush=True)\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(main([command, *rest]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, command, str(opened), str(folder), *rest],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4 and "closed" in done.stdout, done.stderr
    assert "error: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (PermissionError(13, "Permission denied", "x"), 4),
        (MemoryError(), 5),
        (ModuleNotFoundError("no module named deltalake"), 2),
        (RuntimeError("what nobody thought of"), 70),
    ],
)
def test_no_error_exits_as_a_failed_verification(raised, code, monkeypatch, capsys):
    def fails(**_):
        raise raised

    monkeypatch.setitem(_main._PRINTED, "inspect", fails)
    assert main(["inspect", "a.parquet"]) == code
    printed = capsys.readouterr().err
    assert "plait: error: " in printed
    assert ("Traceback" in printed) == (code == 70)


def test_a_pair_is_not_taken_for_two_columns(source, tmp_path):
    with pytest.raises(plait.InvalidArgument, match="`sort_by` is one pair") as caught:
        plait.merge(source, tmp_path / "o.parquet", sort_by=("k", "desc"))
    assert caught.value.hint == "write [('k', 'desc')] for a column and its direction"
    assert plait.merge(source, tmp_path / "o.parquet", sort_by=(("k", "desc"),)).sort_by == "-k"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"polcy": "full"}, "unexpected keyword argument 'polcy'; did you mean `policy`?"),
        ({"dry_run": True}, "'dry_run'; `yes=False` is a dry run"),
        ({"zzz": 1}, "unexpected keyword argument 'zzz'"),
    ],
)
def test_an_unknown_option_of_a_compaction_is_named_with_the_one_that_was_meant(given, said):
    with pytest.raises(TypeError) as caught:
        plait.compact("folder", **given)
    assert str(caught.value).endswith(said)


@pytest.mark.parametrize(
    ("where", "kind", "hint"),
    [
        ("k = 1 OR k = 2", plait.InvalidArgument, "for several values of one column write"),
        ('name = "a"', plait.InvalidArgument, "texts go in single quotes"),
        ("k > 'a'", plait.InvalidArgument, "write a number, without quotes"),
        ("ts > 'noon'", plait.InvalidArgument, "write '2024-05-01 13:00:00'"),
        ("items = 1", plait.UnsupportedKey, "elements of lists and maps cannot be tested"),
    ],
)
def test_a_wrong_condition_says_how_to_write_it(tmp_path, where, kind, hint):
    ts = pa.array([0], pa.timestamp("us"))
    table = pa.table({"k": [1], "name": ["a"], "ts": ts, "items": [[1]]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(kind) as caught:
        pa.table(plait.read(tmp_path / "a.parquet", sort_by="k", where=where))
    assert hint in caught.value.hint


def test_a_list_as_sort_column_names_no_leaf_of_it(tmp_path):
    rows = {"items": [[1]], "at": [{"x": 1, "many": [1]}]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    for column, hint in {"items": "outside of lists and maps", "at": "field of it: `at.x`"}.items():
        with pytest.raises(plait.UnsupportedKey, match="is a list, map or struct") as caught:
            plait.plan(tmp_path / "a.parquet", sort_by=column)
        assert caught.value.hint.endswith(hint)
