"""The words of Python in those of a shell: `sort_by="k"` is `--sort-by k`.

A library says what to do as Python is written. Here it becomes what can be typed.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from typing import Any

# How an option is written, by its name and by its value; `""` is any other value.
Flags = Mapping[str, Mapping[str, str]]

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_CALL = re.compile(rf"plait\.(\w+)\(((?:{_QUOTED}|[^()\"'])*)\)")
_NAMED_CALL = re.compile(r"`plait\.(merge|plan|compact|expire|verify|scan)`")
_MAPPING = r"\{[^{}]*\}"
_GIVEN = re.compile(
    rf"(?<![\w./-])(\w+)=(?!=)({_QUOTED}|{_MAPPING}|[\w.]+)?((?:,? (?:or )?\"\w+\")*)"
)
_NAME = re.compile(r"`(\w+)`")
_WORD = re.compile(r"(?<![\w.`\"'=/-])([a-z]+(?:_[a-z]+)+)(?![\w.`\"'=/(-])")


def in_shell(text: str, flags: Flags, *, names: bool = True) -> str:
    """A hint, or other text about options, as a shell says it.

    Args:
        text: What the library says.
        flags: The options of the command.
        names: Whether names in backticks are those of options; otherwise they may be columns.
    """

    def call(found: re.Match[str]) -> str:
        try:
            parsed: Any = ast.parse(found[0], mode="eval").body
            given = [str(ast.literal_eval(argument)) for argument in parsed.args]
            values = {word.arg: repr(ast.literal_eval(word.value)) for word in parsed.keywords}
        except (SyntaxError, ValueError):
            return found[0]
        options = [_option(name, value, flags) for name, value in values.items()]
        return " ".join([f"plait {found[1]}", *map(shlex.quote, given), *options])

    def given(found: re.Match[str]) -> str:
        if found[1] not in flags:
            return found[0]
        return _option(found[1], found[2], flags) + found[3].replace('"', "")

    def name(found: re.Match[str]) -> str:
        return f"`{_flag(found[1], flags)}`" if found[1] in flags else found[0]

    def word(found: re.Match[str]) -> str:
        return _flag(found[1], flags) if found[1] in flags else found[0]

    text = _NAMED_CALL.sub(r"`plait \1`", text)
    text = _GIVEN.sub(given, _CALL.sub(call, text))
    return _WORD.sub(word, _NAME.sub(name, text) if names else text)


def _flag(name: str, flags: Flags) -> str:
    forms = flags[name]
    return forms.get("") or forms.get("True") or next(iter(forms.values()))


def _option(name: str, value: str | None, flags: Flags) -> str:
    if value is None or name not in flags:
        return _flag(name, flags) if name in flags else f"{name}={value}"
    if value in flags[name]:
        return flags[name][value]
    if value.startswith("{"):
        pairs = [f"{key}={of}" for key, of in ast.literal_eval(value).items()]
        return " ".join([_flag(name, flags), *map(shlex.quote, pairs)])
    bare = value[1:-1] if value[:1] in "\"'" else value
    is_word = re.fullmatch(r"[\w.:/-]+", bare)
    return f"{_flag(name, flags)} " + (bare if is_word else f'"{bare}"')
