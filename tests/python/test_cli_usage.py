"""What people see who mistype a command: the real program, its exit code and its messages."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import main
from plait.cli._options import parser

from .command_line import plait_command

COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR")
PLAIT = [sys.executable, "-m", "plait"]


@pytest.fixture
def shell(tmp_path, environment):
    """Runs the command in a folder with two sorted sources and one that is not sorted."""
    for folder in ("events", "full", "home"):
        (tmp_path / folder).mkdir()
    for i in range(2):
        pq.write_table(pa.table({"ts": [1 + i, 3 + i]}), tmp_path / f"events/{i}.parquet")
    pq.write_table(pa.table({"ts": [1]}), tmp_path / "full/x.parquet")
    pq.write_table(pa.table({"ts": [3, 1]}), tmp_path / "unsorted.parquet")
    for folder in ("nothing", "tables.parquet"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tables.parquet/b.csv").write_text("ts\n1\n")
    (tmp_path / "tables.parquet/a.csv").write_text("ts\n1\n")
    (tmp_path / "zero.parquet").touch()
    (tmp_path / "half.parquet").write_bytes(b"PAR1 and no more")
    plain = {name: value for name, value in environment.items() if name not in COLOURS}

    def shell(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        home = {"HOME": str(tmp_path / "home")}
        return plait_command(*arguments, cwd=tmp_path, env={**plain, **home, **variables})

    return shell


SIZES = "give bytes, or a number and a unit: 256MB, 4G, 1.5GB (decimal), 512 MiB (binary)"
CHOICES = "give one of: keep_all, keep_first, keep_last, error, update, aggregate"
MORE = "see `plait merge --help`"
OUT = f"`--out`: folder, made if absent, or one path that ends in .parquet; {MORE}"
OTHERS = "the output folder has other Parquet files, readers would see their rows too: file `full/x.parquet`"
MISTAKES = [
    (2, "", "the command is missing", "`plait help` lists the commands"),
    (
        *(2, "mrege events -o out", "there is no command `mrege`"),
        "did you mean `merge`? `plait help` lists the commands",
    ),
    (2, "events -o out", "there is no command `events`", "`plait help` lists the commands"),
    (
        *(2, "read events", "there is no command `read`"),
        "did you mean `cat`? `plait help` lists the commands",
    ),
    (
        *(2, "--versoin", "there is no option `--versoin`"),
        "did you mean `--version`? `plait help` lists the commands",
    ),
    (
        *(2, "merge events --sort-bye ts -o out", "`--sort-bye` is not an option of `plait merge`"),
        f"did you mean `--sort-by`? {MORE}",
    ),
    (
        *(2, "merge events --sort_by=ts -o out", "`--sort_by` is not an option of `plait merge`"),
        f"did you mean `--sort-by`? {MORE}",
    ),
    (
        *(2, "verify events --outputs 3", "`--outputs` is not an option of `plait verify`"),
        "`plait merge` has it; see `plait verify --help`",
    ),
    (2, "merge events -x", "`-x` is not an option of `plait merge`", MORE),
    (2, "merge events", "`--out` is missing", OUT),
    (2, "merge events -o", "`--out` has no value", OUT),
    (
        *(2, "merge", "`SOURCE` and `--out` are missing"),
        "`SOURCE`: Parquet files, sorted already: paths, globs, folders, object store URLs; "
        + MORE,
    ),
    (
        2,
        "merge events -o out --memory-limit lots",
        "`--memory-limit` is not a size: got `lots`",
        SIZES,
    ),
    (
        2,
        "merge events -o out --memory-limit -4G",
        "`--memory-limit` has no value",
        f"`--memory-limit`: memory for buffers, such as 512MB or 4G; a number counts bytes; {MORE}",
    ),
    (
        *(2, "merge events -o out --outputs many", "`--outputs` is not a count: got `many`"),
        "give a whole number, 0 or more",
    ),
    (
        2,
        "merge events -o out --on-duplicate keeplast",
        "`--on-duplicate` has no such choice: got `keeplast`",
        f"did you mean `keep_last`? {CHOICES}",
    ),
    (
        2,
        "merge events -o out --on-duplicate twice",
        "`--on-duplicate` has no such choice: got `twice`",
        CHOICES,
    ),
    (
        2,
        "merge events -o out --data-page-version two",
        "`--data-page-version` has no such choice: got `two`",
        "give one of: 1, 2",
    ),
    (
        2,
        "merge events -o out --sort-by ts --outputs 2 --target-rows 5",
        "`--outputs` and `--target-rows` exclude each other",
        None,
    ),
    (
        *(2, "merge events -o out --storage-options region"),
        "`--storage-options` is not of the form NAME=VALUE: got `region`",
        None,
    ),
    (
        *(2, "help mereg", "`COMMAND` has no such choice: got `mereg`"),
        f"did you mean `merge`? give one of: {', '.join(parser().commands.choices)}",
    ),
    (
        2,
        "merge events -o out",
        "source declares no sort order: file `events/0.parquet`",
        'pass --sort-by, for example --sort-by "service, -timestamp"',
    ),
    (
        3,
        "merge unsorted.parquet -o out --sort-by ts",
        "key goes backwards: file `unsorted.parquet`, column `ts`, row 1, got 1 after 3",
        "pass --unsorted sort, or check the direction and null placement in --sort-by",
    ),
    (
        *(3, "merge events -o out --sort-by tz", "sort column is in no source: column `tz`"),
        "the columns are `ts`",
    ),
    (
        *(2, "merge events --output out --sort-by ts"),
        *("`--output` is not an option of `plait merge`", f"did you mean `--out`? {MORE}"),
    ),
    (
        *(2, "merge events -o out --order-by ts"),
        *("`--order-by` is not an option of `plait merge`", f"did you mean `--sort-by`? {MORE}"),
    ),
    (
        *(2, "version", "there is no command `version`"),
        "did you mean `--version`? `plait help` lists the commands",
    ),
    (
        *(2, "verfy events", "there is no command `verfy`"),
        "did you mean `verify`? `plait help` lists the commands",
    ),
    (
        *(2, "compact events --yes=no", "`--yes` takes no value"),
        "see `plait compact --help`",
    ),
    (
        *(2, "compact full/x.parquet", "this is a file, and not a folder: file `full/x.parquet`"),
        "name the folder that has the file",
    ),
    (
        *(2, "expire events --retention 7x", "`--retention` is not a time span: got `7x`"),
        'give seconds, or text such as "7d"',
    ),
    (
        *(4, "merge nothing -o out --sort-by ts", "the folder has no Parquet file: file `nothing`"),
        "folders are searched for names that end in .parquet",
    ),
    (
        *(4, "merge tables.parquet -o out --sort-by ts"),
        "the folder has no Parquet file: file `tables.parquet`, got others, such as `a.csv`",
        "folders are searched for names that end in .parquet",
    ),
    (
        *(3, "inspect tables.parquet/a.csv"),
        "not a Parquet file, or cut short: file `tables.parquet/a.csv`, got 5 bytes",
        "a Parquet file starts and ends with `PAR1`; convert CSV or JSON first",
    ),
    (
        *(3, "inspect zero.parquet"),
        "not a Parquet file, or cut short: file `zero.parquet`, got 0 bytes",
        "the file is empty: its writer may have failed, or not be done",
    ),
    (
        *(3, "verify half.parquet --sort-by ts"),
        "not a Parquet file, or cut short: file `half.parquet`, got `more` at the end",
        "the file starts as Parquet: its writer or a copy may have failed",
    ),
    (
        *(4, "merge s3:/lake/events -o out --sort-by ts"),
        "source does not exist: file `s3:/lake/events`",
        "did you mean `s3://lake/events`?",
    ),
    (
        *(
            2,
            "merge s3:///events -o out",
            'the URL names no bucket: file `s3:///events`, Unable to recognise URL "s3:///events"',
        ),
        "write s3://BUCKET/events",
    ),
    (
        2,
        "cat events --sort-by ts --where ts>five",
        "text is not a value of the column's type: column `ts`, got five for int64",
        "write a number, without quotes",
    ),
    (
        *(3, "merge events -o out --sort-by ts --drop-where tz<5"),
        *("column of `--drop-where` is in no source: column `tz`", "the columns are `ts`"),
    ),
    (
        2,
        "merge events -o out --sort-by ts --drop-where ts<>5",
        "`--drop-where` has another operator: got ts<>5",
        "write a key column, one of < <= = >= >, and a value: timestamp < 1700000000",
    ),
    (
        *(4, "merge event -o out --sort-by ts", "source does not exist: file `event`"),
        "check the path; relative paths start at the working directory",
    ),
    (
        *(3, "merge events -o out --sort-by tss"),
        *("sort column is in no source: column `tss`", "did you mean `ts`?"),
    ),
    (
        4,
        "merge events -o full --sort-by ts",
        OTHERS,
        "write to an empty folder, or pass --if-exists add",
    ),
]


@pytest.mark.parametrize(
    ("code", "line", "said", "hint"),
    MISTAKES,
    ids=[line or "nothing" for _, line, _, _ in MISTAKES],
)
def test_a_mistake_is_one_line_and_a_hint(shell, code, line, said, hint):
    ran = shell(*line.split())
    hints = f"hint: {hint}\n" if hint else ""
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", f"plait: error: {said}\n{hints}")


@pytest.mark.parametrize(
    ("code", "line", "said", "hint"),
    [mistake for mistake in MISTAKES if mistake[1]],
    ids=[line for _, line, _, _ in MISTAKES if line],
)
def test_a_mistake_is_json_with_its_parts(
    shell, tmp_path, monkeypatch, capsys, code, line, said, hint
):
    monkeypatch.chdir(tmp_path)
    assert main([*line.split(), "--json"]) == code
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    error = json.loads(printed.err)["error"]
    if "has no value" in said or line.startswith(("help", "-", "cat")):
        return  # `--json` changes what is wrong with the line
    assert (error["exit_code"], error["hint"]) == (code, hint)
    assert issubclass(getattr(plait, error["class"]), plait.PlaitError)
    place = {name: [f"{error['where'][name]}"] for name in error["where"]}
    words = [
        error["message"],
        error["got"] or "",
        *(text for part in place.values() for text in part),
    ]
    assert all(word in said for word in words) and said.startswith(error["message"])
    assert (": got " in said or ", got " in said) == bool(error["got"])


def test_the_parts_of_an_error_are_fields(shell):
    ran = shell("merge", "unsorted.parquet", "-o", "out", "--sort-by", "ts", "--json")
    assert json.loads(ran.stderr) == {
        "error": {
            "class": "UnsortedSource",
            "message": "key goes backwards",
            "where": {"path": "unsorted.parquet", "column": "ts", "row": 1},
            "got": "1 after 3",
            "hint": "pass --unsorted sort, or check the direction and null placement in --sort-by",
            "exit_code": 3,
        }
    }


def test_what_was_found_is_an_attribute_and_not_cut_out_of_the_text(shell, tmp_path):
    pq.write_table(pa.table({"a, got b": [3, 1]}), tmp_path / "odd.parquet")
    ran = shell("merge", "odd.parquet", "-o", "out", "--sort-by", '"a, got b"', "--json")
    assert json.loads(ran.stderr)["error"]["got"] == "1 after 3"
    with pytest.raises(plait.UnsortedSource) as caught:
        plait.merge(tmp_path / "odd.parquet", tmp_path / "out", sort_by='"a, got b"')
    assert caught.value.got == "1 after 3"
    with pytest.raises(plait.InvalidArgument) as wrong:
        plait.merge("a.parquet", "out", outputs="many")
    assert wrong.value.got == "`'many'`" and wrong.value.hint is not None
    assert plait.Cancelled("stopped").got is None


@pytest.mark.parametrize(
    ("size", "bytes_"),
    [("4G", 4 * 10**9), ("1.5GB", 1_500_000_000), ("512 MiB", 2**29), ("300000000", 300_000_000)],
)
def test_sizes_are_read_as_people_write_them(shell, size, bytes_):
    ran = shell("merge", "events", "-o", "o", "--sort-by", "ts", "--memory-limit", size, "--json")
    assert json.loads(ran.stdout)["memory"]["limit_bytes"] == bytes_


@pytest.mark.slow
@pytest.mark.parametrize("spelt", [["--out=~/o.parquet"], ["--out", "~/o.parquet"]], ids=" ".join)
def test_the_home_folder_is_found(shell, tmp_path, spelt):
    (tmp_path / "events").rename(tmp_path / "home/events")
    ran = shell("merge", "~/events", *spelt, "--sort-by", "ts", "--quiet")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "home/o.parquet").is_file() and not (tmp_path / "~").exists()
    assert shell("verify", "~/o.parquet", "--against", "~/events").returncode == 0
    assert shell("inspect", "~/o.parquet").returncode == 0
    assert shell("scan", "~/o.parquet", "--schema-of", "~/o.parquet").returncode == 0
    planned = shell("plan", "~/events", "--sort-by", "ts", "--json")
    (tmp_path / "home/plan.json").write_text(planned.stdout)
    assert shell("execute", "~/plan.json", "-o", "~/p.parquet").returncode == 0


def test_a_layer_may_be_in_the_home_folder(shell, tmp_path):
    pq.write_table(pa.table({"_index": [1], "v": [1]}), tmp_path / "home/a.parquet")
    assert shell("overlay", "--layer", "~/a.parquet", "--out=~/b.parquet").returncode == 0
    assert (tmp_path / "home/b.parquet").is_file()


# ---- help


@pytest.mark.parametrize("command", parser().commands.choices)
def test_help_on_a_command_is_its_help(capsys, command):
    assert main(["help", command]) == 0
    helped = capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert helped == capsys.readouterr() and f"usage: plait {command}" in helped.out


def test_help_alone_lists_the_commands(shell):
    told = shell("help").stdout
    assert told == shell("--help").stdout
    for name in parser().commands.choices:
        assert f"\n    {name}" in told, name


# ---- options of `execute` that came with the signature


@pytest.mark.slow
@pytest.mark.parametrize("spelt", ["day=1", "day = 1", "day='1'", 'day = "1"'])
def test_a_partition_is_named_as_conditions_are_written(shell, tmp_path, spelt):
    table = pq.read_table(tmp_path / "unsorted.parquet").sort_by("ts")
    for day in (1, 1, 2, 2):
        folder = tmp_path / f"days/day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"{len(list(folder.iterdir()))}.parquet")
    ran = shell("compact", "days", "--sort-by", "ts", "--policy", "full", "--where", spelt)
    assert ran.returncode == 0, ran.stderr
    assert "merged 2 files into 1 file" in ran.stdout
    assert "day=1" in ran.stdout and "day=2" not in ran.stdout


def test_execute_takes_options_of_the_plan_anew(shell, tmp_path):
    planned = shell("plan", "events", "--sort-by", "ts", "--json")
    (tmp_path / "p.json").write_text(planned.stdout)
    plain = json.loads(shell("execute", "p.json", "-o", "a", "--json").stdout)
    hashed = json.loads(shell("execute", "p.json", "-o", "b", "--sha256", "--json").stdout)
    assert not plain["outputs"][0]["sha256"] and hashed["outputs"][0]["sha256"]
    assert shell("execute", "p.json", "-o", "full").returncode == 4
    assert shell("execute", "p.json", "-o", "full", "--if-exists", "add").returncode == 0


def test_one_file_a_group_is_asked_for_by_none(shell):
    one = ["merge", "events", "-o", "o", "--sort-by", "ts", "--target-file-size", "none"]
    assert shell(*one).returncode == 0


# ---- colour

RED = "\x1b[31;1mplait: error:\x1b[0m "


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": ""}, False),
        ({"CLICOLOR_FORCE": "1"}, True),
        ({"CLICOLOR_FORCE": "0"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
    ],
    ids=str,
)
def test_colour_without_a_terminal_is_for_those_who_ask(monkeypatch, capsys, variables, expected):
    for name in (*COLOURS, "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["mrege"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(RED) == expected
    assert ("\x1b[36mhint:\x1b[0m " in told) == ("\x1b[" in told) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
    ],
    ids=str,
)
def test_terminals_have_colour(shell, tmp_path, environment, variables, expected):
    plain = {name: value for name, value in environment.items() if name not in COLOURS}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PLAIT, "inspect", "events/0.parquet"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=plain | variables,
    ) as process:
        shown = os.read(ours, 4096)
        assert process.wait() == 0
        # Standard error is a pipe here: each stream is looked at by itself.
        assert process.stderr.read() == b""
    os.close(theirs)
    os.close(ours)
    assert shown.startswith(b"\x1b[1mevents/0.parquet") == expected
    assert (b"\x1b[" in shown) == expected


def test_json_has_no_colour(shell):
    ran = shell("inspect", "events/0.parquet", "--json", FORCE_COLOR="1")
    assert json.loads(ran.stdout)["rows"] == 2
    assert json.loads(shell("inspect", "no", "--json", FORCE_COLOR="1").stderr)["error"]
