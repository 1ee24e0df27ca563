"""Options as the Python functions have them: name, default, choices, and what the docstring says.

signature ──▶ name, type, default ──┐
docstring ──▶ first sentence ───────┴─▶ Option

Not here: how a shell writes them (`plait.cli._values`, `plait.cli._options`).
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

_PROPER_NAMES = ("Parquet", "Iceberg", "Delta")


@dataclass(frozen=True)
class Option:
    """An argument of a function.

    Attributes:
        name: As in Python.
        type: The annotation without `None`.
        default: The default, or `Parameter.empty`.
        text: The first sentence of its documentation, as a phrase.
        choices: The values of a `Literal`.
        may_be_none: Whether `None` is a value.
    """

    name: str
    type: str
    default: Any
    text: str
    choices: tuple[Any, ...]
    may_be_none: bool


def options_of(function: Callable[..., Any], *others: object) -> dict[str, Option]:
    """The arguments of a function, by name.

    Args:
        function: A function or class with a docstring in Google's style.
        others: Functions and classes that document what the docstring leaves to them, such as
            "See `merge`"; the first that says something counts.
    """
    sources = [function, *others]
    texts = [_documented(source) for source in sources]
    modules = [sys.modules[source.__module__] for source in sources]
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        text = next((known[parameter.name] for known in texts if parameter.name in known), "")
        kind = str(parameter.annotation)
        bare = kind.removesuffix(" | None")
        found[parameter.name] = Option(
            name=parameter.name,
            type=bare,
            default=parameter.default,
            text=text,
            choices=_choices(bare, modules),
            may_be_none=bare != kind,
        )
    return found


def first_line(thing: object) -> str:
    """The first line of what documents a function."""
    return (thing.__doc__ or "").partition("\n")[0]


def _choices(kind: str, modules: list[Any]) -> tuple[Any, ...]:
    literal = re.fullmatch(r"Literal\[(.*)\]", kind)
    if literal:
        return tuple(ast.literal_eval(f"({literal[1]},)"))
    aliases = (getattr(module, kind, None) for module in modules)
    choices = next((get_args(alias) for alias in aliases if alias is not None), ())
    return choices if all(isinstance(choice, str | int) for choice in choices) else ()


def _documented(thing: object) -> dict[str, str]:
    """The first sentence about each argument that says more than where to look."""
    text = f"{inspect.getdoc(thing)}\nArgs:\n"
    section = re.split(r"^(?:Args|Attributes):\n", text, flags=re.MULTILINE)[1]
    found = {}
    for name, text in re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE):
        sentence = re.split(r"\.(?:\s|$)", re.sub(r"\s+", " ", text))[0]
        if not sentence.startswith("See `"):
            is_name = sentence.startswith(_PROPER_NAMES)
            found[name] = sentence if is_name else sentence[0].lower() + sentence[1:]
    return found
