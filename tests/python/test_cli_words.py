"""Hints of the library, as the command line says them: no `name=` of Python is left."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import plait
from plait.cli import _errors, main
from plait.cli._options import parser
from plait.cli._words import in_shell

ROOT = Path(__file__).parents[2]
COMMANDS = parser().commands.choices
FLAGS = {name: _errors.flags_of([name]) for name in COMMANDS}
OPTIONS = {name for flags in FLAGS.values() for name in flags}
GIVEN = re.compile(rf"(?<![\w/-])(?:{'|'.join(OPTIONS)}) *=(?!=)")
# A letter in single quotes may be a double quote.
RUST_TEXT = re.compile(r"""'(?:[^'\\]|\\.)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)


def texts_of_rust() -> set[str]:
    """All texts of the engine but for its tests: a hint may be made far from where it is given."""
    found = set()
    for path in sorted((ROOT / "rust").rglob("src/**/*.rs")):
        source = path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0]
        source = re.sub(r"^\s*//.*$", "", source, flags=re.MULTILINE)
        for text in RUST_TEXT.findall(source):
            found.add(re.sub(r"\\\n\s*", "", text).replace('\\"', '"'))
    return found


def hints_of_python() -> set[str]:
    """All texts that are given, or named, as a hint."""
    found = set()
    for path in sorted((ROOT / "python/plait").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            value = None
            if isinstance(node, ast.keyword) and node.arg == "hint":
                value = node.value
            elif isinstance(node, ast.Assign) and "hint" in ast.unparse(node.targets[0]):
                value = node.value
            for part in ast.walk(value) if value is not None else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    found.add(part.value)
    return found


HINTS = sorted(text for text in texts_of_rust() | hints_of_python() if GIVEN.search(text))


def test_hints_are_found_in_the_sources():
    assert "pass threads=1" in HINTS and any('catalog="lake"' in hint for hint in HINTS)
    assert any("on_duplicate=" in hint for hint in HINTS)
    assert any("trust_footers=False" in hint for hint in HINTS)
    assert len(HINTS) >= 12


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_hint_gives_an_option_as_python_does(command):
    left = [
        said for said in (in_shell(hint, FLAGS[command]) for hint in HINTS) if GIVEN.search(said)
    ]
    assert left == []


@pytest.mark.parametrize(
    ("command", "hint", "said"),
    [
        ("merge", "pass threads=1", "pass --threads 1"),
        (
            "merge",
            'pass sort_by, for example sort_by="service, -timestamp"',
            'pass --sort-by, for example --sort-by "service, -timestamp"',
        ),
        (
            "merge",
            'on_duplicate="keep_last", "keep_first" or "keep_all" says what to do',
            "--on-duplicate keep_last, keep_first or keep_all says what to do",
        ),
        ("plan", "or plan with trust_footers=False", "or plan with --no-trust-footers"),
        ("execute", "or plan with trust_footers=False", "or plan with --no-trust-footers"),
        ("compact", "yes=False tells what it would do", "--dry-run tells what it would do"),
        ("scan", 'give partitions="hive" or "dirs"', "give --partitions hive or dirs"),
        (
            "scan",
            "it says how sources adapt to a `schema`",
            "it says how sources adapt to a `--schema-of`",
        ),
        ("join", "leave the column out with columns=", "leave the column out with --columns"),
        ("merge", "raise memory_limit, or rewrite", "raise --memory-limit, or rewrite"),
        (
            "compact",
            'pass its catalog: plait.compact("db.events", catalog="lake")',
            "pass its catalog: plait compact db.events --catalog lake",
        ),
        ("merge", "see `storage_options`", "see `--storage-options`"),
        # What is no option stays: values, columns, parts of names, URLs.
        ("merge", "for example dtype=int64", "for example dtype=int64"),
        ("merge", "the columns are `my_sort_by`", "the columns are `my_sort_by`"),
        ("merge", "s3://b/sort_by=3/x", "s3://b/sort_by=3/x"),
    ],
)
def test_options_are_written_as_the_shell_has_them(command, hint, said):
    assert in_shell(hint, FLAGS[command]) == said


def test_columns_are_not_taken_for_options(tmp_path, monkeypatch, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"memory_limit": [1], "out": [2]}), "a.parquet")
    assert main(["merge", "a.parquet", "-o", "o.parquet", "--sort-by", "memory_limi"]) == 3
    assert "did you mean `memory_limit`" in capsys.readouterr().err


def test_what_is_wrong_names_the_option_of_the_shell(capsys):
    error = plait.InvalidArgument.of("`target_rows` and `outputs` exclude each other", got="`a`")
    _errors.tell(error, ["merge"], 2)
    assert capsys.readouterr().err == (
        "plait: error: `--target-rows` and `--outputs` exclude each other: got `a`\n"
    )
