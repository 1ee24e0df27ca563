"""A parser whose errors are those of Plait: one line, and a hint that says what was meant."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from plait.cli._documented import first_line
from plait.cli._words import Flags
from plait.errors import InvalidArgument

EXIT_CODES = """\
exit codes:
  0    done
  1    verification failed
  2    wrong usage
  3    bad input: unsorted, conflicting, damaged, or of an unsupported kind
  4    storage: not found, exists already, not readable or writable, full
  5    the memory limit is too small
  70   a bug in plait
  130  interrupted; outputs that exist are complete
  141  the reader of the output went away
"""
_LOOK = "`plait help` lists the commands"
# What other programs, or Python, call it.
_SYNONYMS = {
    **dict.fromkeys(("--output", "--output-dir", "--outdir", "--out-dir"), "--out"),
    **dict.fromkeys(("--order-by", "--sort", "--by", "--key", "--keys"), "--sort-by"),
    **dict.fromkeys(("--filter", "--condition"), "--where"),
}


class Misused(InvalidArgument):
    """A wrong command line, in words that can be typed as they are."""


_REQUIRED = "the following arguments are required: "


class Parser(argparse.ArgumentParser):
    """The grammar of the program or a command; what does not fit it is an `InvalidArgument`."""

    commands: argparse._SubParsersAction[Parser]

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - those of argparse
        super().__init__(
            **settings,
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def command(self, name: str, text: str, about: object) -> Parser:
        """Adds a command, described by a sentence or by the docstring of its function."""
        described = about if isinstance(about, str) else first_line(about)
        return self.commands.add_parser(name, help=text, description=described)

    @property
    def actions(self) -> list[argparse.Action]:
        """All arguments."""
        return self._actions

    @property
    def flags(self) -> Flags:
        """How options are written, by name and value."""
        found: dict[str, dict[str, str]] = {}
        for action in self.actions:
            known = found.setdefault(action.dest, {}) if action.option_strings else {}
            if isinstance(action, argparse.BooleanOptionalAction):
                known |= dict(zip(("True", "False"), action.option_strings, strict=True))
            elif action.option_strings:
                is_switch = action.nargs == 0
                known[str(action.const) if is_switch else ""] = action.option_strings[-1]
        return found

    def check(self, arguments: Sequence[str]) -> None:
        """Refuses commands and options that do not exist, which argparse does less clearly.

        Raises:
            InvalidArgument: Says what was probably meant.
        """
        first = arguments[0] if arguments else ""
        command = self.commands.choices.get(first)
        if command is not None:
            for flag in command.unknown_options(arguments[1:]):
                raise command.wrong(
                    f"`{flag}` is not an option of `{command.prog}`",
                    hint=meant(_SYNONYMS.get(flag, flag), command.long_options())
                    or self._others(flag),
                )
        elif not first or first == "--json":
            raise InvalidArgument.of("the command is missing", hint=_LOOK)
        elif first not in self._option_string_actions:
            kind, known = "command", list(self.commands.choices)
            if first.startswith("-"):
                kind, known = "option", self.long_options()
            # What Python calls `read` is `cat` in a shell.
            asked = {"read": "cat", "version": "--version"}.get(first, first)
            near = meant(asked, [*known, "--version"])
            raise Misused.of(f"there is no {kind} `{first}`", hint=f"{near} {_LOOK}".strip())

    def long_options(self) -> list[str]:
        """The options that are words."""
        return [flag for flag in self._option_string_actions if flag.startswith("--")]

    def unknown_options(self, arguments: Sequence[str]) -> Iterator[str]:
        """What looks like an option, and is none of the command."""
        for argument in arguments:
            flag = argument.partition("=")[0]
            if argument == "--":
                return
            looks_so = re.match(r"--\w|-[A-Za-z]", flag) is not None and " " not in flag
            short = flag if flag.startswith("--") else flag[:2]
            if looks_so and short not in self._option_string_actions:
                yield flag

    def wrong(self, what: str, *, hint: str = "") -> InvalidArgument:
        """The error of a wrong command line, which says where to look."""
        joint = "" if not hint else " " if hint.endswith("?") else "; "
        return InvalidArgument.of(what, hint=f"{hint}{joint}see `{self.prog} --help`")

    def error(self, message: str) -> NoReturn:
        """Refuses the command line; argparse calls this."""
        about = re.fullmatch(r"argument (\S+): (.*)", message)
        if message.startswith(_REQUIRED):
            missing = message.removeprefix(_REQUIRED).split(", ")
            names = " and ".join(f"`{name.rpartition('/')[2]}`" for name in missing)
            hint = self._meaning(missing[0].rpartition("/")[2])
            raise self.wrong(f"{names} {'is' if len(missing) == 1 else 'are'} missing", hint=hint)
        if about:
            name = about[1].rpartition("/")[2]
            if about[2].startswith("ignored explicit argument"):
                raise self.wrong(f"`{name}` takes no value")
            if about[2].startswith("expected"):
                raise self.wrong(f"`{name}` has no value", hint=self._meaning(name))
            message = f"`{name}`: {about[2]}"
        raise self.wrong(message)

    def _meaning(self, name: str) -> str:
        for action in self.actions:
            if name in (*action.option_strings, action.dest, action.metavar):
                return f"`{name}`: {plain(action.help)}"
        return ""

    def _others(self, flag: str) -> str:
        names = [n for n, other in self.commands.choices.items() if flag in other.long_options()]
        return f"`plait {names[0]}` has it" if names else ""

    # The rest is called by argparse for each value.

    def _get_value(self, action: argparse.Action, text: str) -> Any:  # noqa: ANN401
        read = self._registry_get("type", action.type, action.type)
        try:
            return read(text)
        except InvalidArgument:
            raise
        except ValueError:
            return text  # the choices say what is wrong

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        choices = [] if action.choices is None else list(action.choices)
        if not choices or value in choices:
            return
        name = action.option_strings[-1] if action.option_strings else action.metavar
        listed = f"give one of: {', '.join(map(str, choices))}"
        near = meant(str(value), list(map(str, choices)))
        hint = f"{near} {listed}" if near else listed
        raise Misused.of(f"`{name}` has no such choice", got=f"`{value}`", hint=hint)


def meant(word: str, known: Sequence[str]) -> str:
    """The question whether another word was meant; nothing if none is close."""
    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else ""


def plain(text: str | None) -> str:
    """The help of an argument without its default."""
    return re.sub(r" \(default: [^()]*\)$", "", text or "").replace("%%", "%")
