"""Defaults have one source: signatures agree with the engine, with one another and with the guide."""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import _native, sizes
from plait.cli import _options
from plait.cli._documented import options_of
from plait.table import CompactOptions
from plait.table.options import FolderOptions, LogOptions, TableOptions

pytestmark = pytest.mark.local
GUIDE = Path(__file__).parents[2] / "docs" / "guide"
DEFAULTS = {field.name: field.default for field in fields(CompactOptions)}


def defaults(function) -> dict:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_the_engine_has_the_defaults_of_merge(tmp_path):
    file = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": [1]}), file)
    given = json.dumps({"sources": [file], "sort_by": "k"})
    of_engine = json.loads(_native.plan(given)[0])["options"]
    of_python = plait.plan(file, sort_by="k").to_dict()["options"]
    assert of_engine == of_python and len(of_engine) > 30


@pytest.mark.parametrize(
    ("function", "others"),
    [
        (plait.plan, set()),
        (plait.merge_streams, set()),
        (plait.read, set()),
        # A scan leaves it to the mode what a missing column is.
        (plait.scan, {"missing"}),
        (plait.verify, set()),
        (plait.overlay_files, set()),
    ],
)
def test_an_option_of_merge_has_one_default_in_other_functions(function, others):
    of_merge, of_other = defaults(plait.merge), defaults(function)
    shared = (of_merge.keys() & of_other.keys()) - others
    assert {"memory_limit", "storage_options"} & shared
    assert {n: of_other[n] for n in shared} == {n: of_merge[n] for n in shared}


def test_options_of_compactions_are_declared_once():
    declared = {field.name: field.type for field in fields(CompactOptions)}
    typed = {name: hint.__forward_arg__ for name, hint in FolderOptions.__annotations__.items()}
    assert typed == declared
    assert TableOptions.__annotations__.keys() < FolderOptions.__annotations__.keys()


def compactions() -> list:
    found = [plait.compact, plait.table.compact_delta, plait.table.compact_iceberg]
    try:
        from plait import spark
    except ImportError:
        return found
    return [*found, spark.compact, spark.compact_delta, spark.compact_iceberg]


@pytest.mark.parametrize("function", compactions())
def test_every_call_that_compacts_has_the_same_defaults(function):
    shared = {n: default for n, default in defaults(function).items() if n in DEFAULTS}
    of_logs = dict.fromkeys((plait.table.compact_delta, plait.table.compact_iceberg), LogOptions)
    keywords = {plait.compact: FolderOptions, **of_logs}
    assert shared.keys() == keywords.get(function, TableOptions).__annotations__.keys()
    assert shared == {name: DEFAULTS[name] for name in shared}
    required = len(inspect.signature(function).parameters) - len(defaults(function))
    with pytest.raises(TypeError, match="unexpected keyword argument 'polcy'"):
        function(*[None] * required, polcy="full")


LEAST = {
    "merge": ["a", "-o", "o"],
    "plan": ["a"],
    "execute": ["p", "-o", "o"],
    "compact": ["d"],
    "expire": ["d"],
    "verify": ["a"],
    "overlay": ["--layer", "a", "-o", "o"],
    "scan": ["a"],
    "cat": ["a"],
    "inspect": ["a"],
    "join": ["--state", "s"],
}
FUNCTIONS = {
    **{name: getattr(plait, name) for name in LEAST if hasattr(plait, name)},
    "cat": plait.read,
    "execute": plait.Plan.execute,
    "overlay": plait.overlay_files,
    "join": plait.ForeignKeyJoin,
}


@pytest.mark.parametrize("command", LEAST)
def test_the_command_line_leaves_defaults_to_the_function(command):
    parsed = vars(_options.parse([command, *LEAST[command]]))
    given = {name for name in parsed if name in defaults(FUNCTIONS[command])}
    assert given <= {"out", "state"}


@pytest.mark.parametrize("command", LEAST)
def test_options_default_and_choices_in_help_are_those_of_the_signature(command):
    parameters = inspect.signature(FUNCTIONS[command]).parameters
    actions = {a.dest: a for a in _options.parser().commands.choices[command].actions}
    shown = 0
    for name, parameter in parameters.items():
        action = actions.get(name)
        if action is None:
            assert name in ("self", *PYTHON_ONLY), f"{command} lacks --{name}"
            continue
        assert action.help, name
        if isinstance(parameter.default, str | int) and not isinstance(parameter.default, bool):
            assert action.help.endswith(f" (default: {parameter.default})"), name
            shown += 1
        literal = re.match(r"Literal\[(.*?)\]", str(parameter.annotation))
        if literal:
            assert list(action.choices) == list(ast.literal_eval(f"[{literal[1]}]")), name
    assert shown or command in ("execute", "inspect")


# Arguments of functions for which a shell has no use, or another way.
PYTHON_ONLY = (
    *("progress", "check", "validate", "joiner", "left_schema", "right_schema", "batch_rows"),
    *("out", "layers"),
)


def test_choices_of_signatures_are_those_that_are_checked():
    from plait import _checks, _overlay, _scan, join

    told = {
        **options_of(plait.Table),
        **options_of(plait.merge),
        **{f"scan.{n}": o for n, o in options_of(plait.scan).items()},
        **{f"overlay.{n}": o for n, o in options_of(plait.overlay_files).items()},
        **{f"join.{n}": o for n, o in options_of(plait.ForeignKeyJoin).items()},
    }
    checked = {
        **{n: c for n, c in _checks.CHOICES.items() if n != "validate"},
        **{f"scan.{n}": c for n, c in _scan.CHOICES.items()},
        **{f"overlay.{n}": c for n, c in _overlay.CHOICES.items()},
        **{f"join.{n}": c for n, c in join.CHOICES.items()},
    }
    assert {n: set(told[n].choices) for n in checked} == {n: set(c) for n, c in checked.items()}


def test_help_is_the_first_sentence_of_the_docstring():
    merge = options_of(plait.merge)
    assert merge["outputs"].text == "maximum number of output files"
    assert merge["drop_where"].text.endswith("""or `"day < '2024-05-01'"`""")
    # What refers to another function says what that says, unless it has words of its own.
    plan, compact = (
        options_of(plait.plan, plait.merge),
        options_of(plait.compact, CompactOptions, plait.merge),
    )
    assert plan["outputs"].text == merge["outputs"].text
    assert plan["trust_footers"].text == "whether keys in footers are trusted"
    assert compact["compression"].text == merge["compression"].text
    assert compact["guard"].text.startswith("Delta: whether")
    for option in (*merge.values(), *plan.values(), *compact.values()):
        assert option.text or option.name == "out", option.name


def test_the_guide_names_the_defaults_of_compactions():
    text = (GUIDE / "policies.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(
        r"defaults \(`plait\.table\.CompactOptions`\): (.*?)\. ", text, re.DOTALL
    )
    sentence = sentence.replace("policy `overlap`", "`policy` overlap").replace("\n", " ")
    told = dict(re.findall(r"`(\w+)`\s+([\w ]+?)(?:,| and|$)", sentence))
    assert len(told) == 7
    for name, value in told.items():
        default = DEFAULTS[name]
        if name.endswith("size"):
            assert sizes.parse_size(value) == sizes.parse_size(default), name
        else:
            assert value == str(default), name


def test_the_help_of_the_command_line_is_that_of_the_options(capsys, tmp_path):
    with pytest.raises(SystemExit):
        _options.parse(["compact", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for field in fields(CompactOptions):
        flag = "--" + field.name.replace("_", "-")
        assert flag in text, flag
        if isinstance(field.default, int | str) and not isinstance(field.default, bool):
            assert re.search(rf"{flag} [^-]*.*?\(default: {field.default}\)", text), flag
    assert "which files are merged: files of one level" in text
    assert (
        vars(_options.parse(["compact", "d", "--target-file-size", "none"]))["target_file_size"]
        is None
    )
