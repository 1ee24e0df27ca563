"""Defaults have one source: signatures agree with the engine, with one another and with the guide."""

from __future__ import annotations

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
from plait.table import CompactOptions
from plait.table.options import FolderOptions, TableOptions

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
    of_engine = json.loads(_native.plan(given))["options"]
    of_python = plait.plan(file, sort_by="k").to_dict()["options"]
    assert of_engine == of_python and len(of_engine) > 30


@pytest.mark.parametrize("function", [plait.plan, plait.merge_streams])
def test_an_option_of_merge_has_one_default_in_other_functions(function):
    of_merge, others = defaults(plait.merge), defaults(function)
    shared = of_merge.keys() & others.keys()
    assert len(shared) > 10
    assert {n: others[n] for n in shared} == {n: of_merge[n] for n in shared}


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
    assert len(shared) == len(
        DEFAULTS if function is plait.compact else TableOptions.__annotations__
    )
    assert shared == {name: DEFAULTS[name] for name in shared}
    required = len(inspect.signature(function).parameters) - len(defaults(function))
    with pytest.raises(TypeError, match="unexpected keyword argument 'polcy'"):
        function(*[None] * required, polcy="full")


def test_the_command_line_leaves_defaults_to_the_function():
    parsed = vars(_options.parse(["compact", "events"]))
    assert parsed == {
        "command": "compact",
        "folder": "events",
        "format": None,
        "catalog": None,
        "json": False,
    }


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
