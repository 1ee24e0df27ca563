"""The command `plait`: reports, exit codes, progress bar, pipes, Ctrl-C."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli import _main, _progress, main
from plait.report import Progress


@pytest.fixture
def runs(deal, events):
    return [str(path) for path in deal(events, 3)]


def test_merge_prints_its_report(runs, tmp_path, capsys, read_rows, merged_slowly):
    out = tmp_path / "out"
    assert main(["merge", *runs, "-o", str(out), "--sort-by", "name, -ts", "--outputs", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("merged 3 files into 2 files: 12 rows sorted by name, -ts\n")
    assert printed.err == ""
    assert read_rows(*sorted(out.glob("*.parquet"))) == merged_slowly(runs, "name", "-ts")


def test_merge_prints_json(runs, tmp_path, capsys):
    out = str(tmp_path / "o.parquet")
    assert main(["merge", *runs, "-o", out, "--sort-by", "name, -ts", "--json"]) == 0
    report = plait.MergeReport.from_dict(json.loads(capsys.readouterr().out))
    assert (report.rows_out, report.outputs[0].path) == (12, out)


def test_quiet_prints_nothing(runs, tmp_path, capsys):
    out = str(tmp_path / "o.parquet")
    assert main(["merge", *runs, "-o", out, "--sort-by", "name, -ts", "--quiet"]) == 0
    assert main(["verify", out, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_descending_order_needs_no_trick(runs, tmp_path, capsys):
    pq.write_table(pa.table({"k": [3, 2, 1]}), tmp_path / "d.parquet")
    out = str(tmp_path / "o.parquet")
    assert main(["merge", str(tmp_path / "d.parquet"), "-o", out, "--sort-by", "-k"]) == 0
    assert main(["merge", str(tmp_path / "d.parquet"), "-o", out + "2", "--sort-by=-k"]) == 0


def test_every_option_of_merge_is_understood(runs, tmp_path, capsys):
    options = """
        --target-rows 5 --cut-on 1 --row-group-size 1MiB --row-group-rows 100 --page-size 64KiB
        --page-rows 10 --align-row-groups 1 --compression snappy --no-dictionary
        --data-page-version 2 --encoding smallest --bloom-filters name=0.001,ts --value-sets name,ts
        --statistics name=chunk,ts=none --widen lossless --missing null --metadata-conflicts drop
        --verify-order full --assume-sorted --verify content --sha256 --copy-tiers none --threads 1
        --memory-limit 100MB --if-exists add --no-empty-output --json
    """.split()
    out = str(tmp_path / "out")
    assert main(["merge", *runs, "-o", out, "--sort-by", "name, -ts", *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["memory"]["limit_bytes"] == 100_000_000
    assert report["copied"].get("chunk", {"rows": 0})["rows"] == 0
    assert report["assumed_sorted"] and report["content_hash"]
    assert all(output["sha256"] for output in report["outputs"])


def test_verify_says_yes_and_no_by_exit_code(runs, tmp_path, capsys, events):
    out = str(tmp_path / "o.parquet")
    assert main(["merge", *runs, "-o", out, "--sort-by", "name, -ts", "--quiet"]) == 0
    assert main(["verify", out, "--against", *runs]) == 0
    assert capsys.readouterr().out.startswith("verified: 1 file, 12 rows")
    assert main(["verify", out, "--against", *runs[:2], "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"] and report["problems"]


def test_inspect_prints_text_and_json(runs, capsys):
    assert main(["inspect", runs[0]]) == 0
    assert "4 rows in 1 row group, " in capsys.readouterr().out
    assert main(["inspect", runs[0], "--pages", "--json"]) == 0
    report = plait.FileReport.from_dict(json.loads(capsys.readouterr().out))
    assert report.rows == 4


# ---- exit codes


def test_errors_are_two_lines_and_a_code(runs, tmp_path, capsys):
    out = str(tmp_path / "o.parquet")
    unsorted = tmp_path / "unsorted.parquet"
    pq.write_table(pa.table({"name": ["b", "a"], "ts": [1, 2]}), unsorted)
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(b"no Parquet here")
    (tmp_path / "there.parquet").write_bytes(b"")
    cases = [
        (2, ["merge", *runs, "-o", out, "--sort-by", "name,,ts"]),
        (3, ["merge", str(unsorted), "-o", out, "--sort-by", "name"]),
        (3, ["merge", str(damaged), "-o", out, "--sort-by", "name"]),
        (3, ["merge", *runs, "-o", out, "--sort-by", "nowhere"]),
        (3, ["inspect", str(damaged)]),
        (4, ["merge", str(tmp_path / "absent.parquet"), "-o", out]),
        (4, ["merge", *runs, "-o", str(tmp_path / "there.parquet"), "--sort-by", "name, -ts"]),
        (4, ["verify", str(tmp_path / "absent.parquet")]),
    ]
    for code, arguments in cases:
        assert main(arguments) == code, arguments
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("plait: error: ")
        assert "Traceback" not in printed.err and "panicked" not in printed.err
    assert not os.path.exists(out)


def test_every_error_has_a_code():
    codes = {
        name: _main.exit_code(getattr(plait, name)("x"))
        for name in plait.errors.__all__
        if name != "PlaitError"
    }
    assert codes == {
        "VerificationFailed": 1,
        "InvalidArgument": 2,
        "InvalidPath": 2,
        "UnsortedSource": 3,
        "DuplicateKey": 3,
        "NullKey": 3,
        "SchemaConflict": 3,
        "UnknownColumn": 3,
        "UnsupportedKey": 3,
        "RowMismatch": 3,
        "IndexTypeError": 3,
        "FieldNotInLayer": 3,
        "SplitInsideNonStruct": 3,
        "PathThroughNonStruct": 3,
        "DuplicateField": 3,
        "SchemaDrift": 3,
        "ProjectionError": 3,
        "LossyCast": 3,
        "SchemaChanged": 3,
        "CorruptSource": 3,
        "EncryptedSource": 3,
        "Unsupported": 3,
        "SourceNotFound": 4,
        "SourceChanged": 4,
        "SourceFailed": 4,
        "StorageError": 4,
        "OutputExists": 4,
        "MemoryLimitExceeded": 5,
        "InternalError": 70,
        "Cancelled": 130,
        "ForeignTable": 3,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["weave"],
        ["merge"],
        ["merge", "a"],
        ["merge", "a", "-o", "b", "--memory-limit", "much"],
        ["merge", "a", "-o", "b", "--outputs", "-1"],
        ["merge", "a", "-o", "b", "--widen", "sure"],
        ["merge", "a", "-o", "b", "--sha"],
        ["merge", "a", "-o", "b", "--sort-by"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert re.fullmatch(r"plait: error: .+\nhint: .+\n", told), told


@pytest.mark.parametrize("command", [[], ["merge"], ["verify"], ["inspect"]])
def test_help_tells_the_exit_codes(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([*command, "--help"])
    assert left.value.code == 0
    assert "130  interrupted; outputs that exist are complete" in capsys.readouterr().out


# ---- as a process


def test_the_module_and_the_script_are_one_command(python):
    expected = f"plait {plait.__version__}\n"
    assert python("-m", "plait", "--version").stdout == expected
    script = os.path.join(os.path.dirname(sys.executable), "plait")
    ran = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert ran.stdout == expected


def test_a_reader_that_leaves_is_no_error(runs, environment):
    process = subprocess.Popen(
        [sys.executable, "-m", "plait", "inspect", runs[0]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert errors == b""


@pytest.fixture
def slow_command(tmp_path):
    """A merge that takes several seconds, because every page is packed very hard."""
    random = np.random.default_rng(7)
    for i in range(4):
        rows = 200_000
        text = random.integers(97, 107, rows * 24, dtype=np.uint8).tobytes().decode()
        table = pa.table(
            {
                "k": np.arange(rows, dtype=np.int64) * 4 + i,
                "v": [text[j * 24 : j * 24 + 24] for j in range(rows)],
            }
        )
        pq.write_table(table, tmp_path / f"slow-{i}.parquet", use_dictionary=False)
    return [
        *(sys.executable, "-m", "plait", "merge", str(tmp_path / "slow-*.parquet")),
        *("-o", str(tmp_path / "out"), "--sort-by", "k", "--compression", "brotli(11)"),
        *("--page-size", "100kB"),
        *("--no-dictionary", "--copy-tiers", "none"),
    ]


@pytest.mark.long
@pytest.mark.slow
def test_a_terminal_shows_progress_and_ctrl_c_ends_it(slow_command, tmp_path, environment):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(slow_command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while b"left" not in shown:
        shown += os.read(ours, 4096)
    assert b"merge [" in shown and b"MB/s" in shown
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    assert process.wait() == 130
    assert time.monotonic() - sent < 1.5  # a second for the merge, the rest for the process
    ending = re.sub(rb"\x1b\[[0-9;]*m", b"", os.read(ours, 4096))
    os.close(ours)
    assert process.stdout.read() == b""
    process.stdout.close()
    assert ending.endswith(b"plait: interrupted; outputs that exist are complete\r\n")
    assert b"Traceback" not in ending
    assert list(tmp_path.glob("out/*")) == []


def test_the_bar_fits_its_line():
    for columns in (10, 40, 60, 80, 200):
        for done in (0, 1, 10**9, 3 * 10**9):
            line = _progress.bar_line(Progress(done, 3 * 10**9, 5, "merge"), 3.0, columns)
            assert 0 < len(line) < columns
    assert _progress.bar_line(Progress(0, 0, 0, "plan"), 0.0, 80) == "plan ..."
