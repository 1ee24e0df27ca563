"""Completion in bash, zsh and fish: what each shell offers, asked of the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from plait.cli import main
from plait.cli._completion import SHELLS
from plait.cli._options import parser

COMMANDS = parser().commands.choices
CHOICES = ["keep_all", "keep_first", "keep_last", "error", "update", "aggregate"]
# The line up to the cursor, and all that may follow; files are those of the folder.
CASES = [
    ("plait me", ["merge"]),
    ("plait ver", ["verify"]),
    ("plait help ver", ["verify"]),
    ("plait completion f", ["fish"]),
    ("plait merge --sort", ["--sort-by"]),
    ("plait merge --no-e", ["--no-empty-output"]),
    ("plait verify --out", []),
    ("plait merge --on-duplicate ", CHOICES),
    ("plait merge a.parquet --on-duplicate keep_f", ["keep_first"]),
    ("plait merge --on-duplicate=keep_f", ["keep_first"]),
    ("plait merge a.p", ["a.parquet"]),
    ("plait merge --sha256 a.p", ["a.parquet"]),
    ("plait merge -o a.p", ["a.parquet"]),
    ("plait merge --out a.p", ["a.parquet"]),
    ("plait merge --threads a.p", []),
    ("plait merge in", ["in two"]),
    ("plait overlay --layer a.p", ["a.parquet"]),
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"")
    (tmp_path / "in two").mkdir()
    return tmp_path


@pytest.fixture
def script_of(folder, capsys):
    def script_of(shell: str) -> str:
        assert main(["completion", shell]) == 0
        path = folder / f"{shell}.script"
        path.write_text(capsys.readouterr().out)
        return str(path)

    return script_of


def output_of(folder, *command: str) -> list[str]:
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    return ran.stdout.splitlines()


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


BASH = """
source "$1"; line=$2
# As readline splits a line: at spaces, and before and after `=`.
read -ra COMP_WORDS <<< "${line//=/ = }"
[[ $line == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_plait
(( ${#COMPREPLY[@]} )) && printf '%s\\n' "${COMPREPLY[@]}"
exit 0
"""


@pytest.mark.parametrize(("line", "offered"), CASES, ids=[line for line, _ in CASES])
def test_bash_completes(folder, script_of, line, offered):
    needs("bash")
    assert output_of(folder, "bash", "-c", BASH, "-", script_of("bash"), line) == offered


def test_bash_knows_every_option(folder, script_of):
    needs("bash")
    script = script_of("bash")
    for name, command in COMMANDS.items():
        offered = output_of(folder, "bash", "-c", BASH, "-", script, f"plait {name} --")
        assert offered == command.long_options(), name


@pytest.mark.parametrize(("line", "offered"), CASES, ids=[line for line, _ in CASES])
def test_fish_completes(folder, script_of, line, offered):
    needs("fish")
    ask = ["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]"]
    told = output_of(folder, *ask, script_of("fish"), line)
    found = {text.partition("\t")[0].rstrip("/").replace("\\ ", " ") for text in told}
    # Fish offers the whole word, also where a value is joined to its option.
    assert {word.rpartition("=")[2] for word in found} == set(offered)


def typed(folder, script: str, shell: list[str], setup: str, line: str) -> str:
    """What a terminal shows when a line is typed and completed; the end of it is the prompt."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ.update({"TERM": "dumb", "PS1": "> ", "HOME": str(folder)})
        os.execvp(shell[0], shell)
    shown = b""

    def until(mark: bytes, seconds: float) -> None:
        nonlocal shown
        end = time.monotonic() + seconds
        while mark not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 4096)

    try:
        os.write(terminal, f"{setup} {script}; echo rea''dy\n".encode())
        until(b"ready\r", 30)
        shown = b""
        os.write(terminal, line.encode() + b"\t")
        until(b"\0", 3)
    finally:
        os.close(terminal)
        os.kill(process, 9)
        os.waitpid(process, 0)
    return shown.decode(errors="replace")


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("plait me", "merge "),
        ("plait merge --sort", "--sort-by"),
        ("plait merge --on-duplicate keep_f", "keep_first "),
        ("plait merge --on-duplicate=keep_f", "keep_first "),
        ("plait merge a.p", "a.parquet "),
        ("plait merge -o a.p", "a.parquet "),
        ("plait help ver", "verify "),
    ],
)
def test_zsh_completes(folder, script_of, line, rest):
    needs("zsh")
    setup = "autoload -Uz compinit; compinit -D -u; source"
    shown = typed(folder, script_of("zsh"), ["zsh", "-f", "-i"], setup, line)
    assert rest in shown, shown


def test_bash_completes_what_is_typed(folder, script_of):
    needs("bash")
    shell = ["bash", "--norc", "--noprofile", "-i"]
    shown = typed(folder, script_of("bash"), shell, "source", "plait merge --on-duplicate=keep_f")
    assert "keep_first " in shown, shown


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_can_read_its_script(folder, script_of, shell):
    needs(shell)
    output_of(folder, shell, "-n", script_of(shell))


def test_another_shell_is_refused(python):
    ran = python("-m", "plait", "completion", "basch")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "plait: error: `SHELL` has no such choice: got `basch`\n"
        "hint: did you mean `bash`? give one of: bash, zsh, fish\n"
    )
