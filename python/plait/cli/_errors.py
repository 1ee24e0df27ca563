"""Tells of an error: a line and a hint for people, or one JSON object with `--json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import plait
from plait.cli import _options
from plait.cli._colour import CYAN, RED, paint
from plait.cli._usage import Misused
from plait.cli._words import Flags, in_shell


def tell(error: BaseException, arguments: Sequence[str], code: int) -> None:
    """Prints an error, and for people its hint, on standard error."""
    flags = flags_of(arguments)
    known = error if isinstance(error, plait.PlaitError) else None
    text, _, _ = str(error).partition("\nhint: ")
    hint = _hint(known, flags)
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in words:
        shown = {"error": {**_described(error, known, flags), "exit_code": code}}
        print(json.dumps(shown), file=sys.stderr)
        return
    head = "plait:" if isinstance(error, plait.Cancelled) else "plait: error:"
    print(paint(head, RED, sys.stderr), _sentence(text, known, flags), file=sys.stderr)
    if hint:
        print(paint("hint:", CYAN, sys.stderr), hint, file=sys.stderr)


def _described(
    error: BaseException, known: plait.PlaitError | None, flags: Flags
) -> dict[str, Any]:
    """The parts of an error, each by itself."""
    if known is None:
        return {"class": type(error).__name__, "message": str(error)}
    place = {name: getattr(known, name) for name in ("path", "column", "row", "offset")}
    text, _, _ = str(known).partition("\nhint: ")
    return {
        "class": next(c for c in type(known).__mro__ if c.__module__ == "plait").__name__,
        "message": _sentence(known.what or text, known, flags),
        "where": {name: value for name, value in place.items() if value is not None},
        "got": known.got,
        "hint": _hint(known, flags),
        **({"errors": [_described(e, e, flags) for e in known.errors]} if known.errors else {}),
    }


def _sentence(text: str, error: plait.PlaitError | None, flags: Flags) -> str:
    """What is wrong; options have their names of here, and columns keep theirs."""
    of_options = isinstance(error, plait.InvalidArgument | plait.UnknownColumn)
    if error is None or not error.what or not of_options or isinstance(error, Misused):
        return text
    return in_shell(error.what, flags) + text.removeprefix(error.what)


def _hint(error: plait.PlaitError | None, flags: Flags) -> str | None:
    if error is None or not error.hint:
        return None
    if isinstance(error, Misused):
        return error.hint
    # Elsewhere what is in backticks may be columns.
    names = isinstance(error, plait.InvalidArgument | plait.StorageError)
    return in_shell(error.hint, flags, names=names)


def flags_of(arguments: Sequence[str]) -> Flags:
    """How options are written: those of the command first, then those of the others."""
    root = _options.parser()
    named = root.commands.choices
    first = [named[arguments[0]]] if arguments and arguments[0] in named else []
    flags: dict[str, Any] = {}
    for command in [*first, *named.values()]:
        for name, forms in command.flags.items():
            flags.setdefault(name, forms)
    return {name: forms for name, forms in flags.items() if forms and name != "help"}
