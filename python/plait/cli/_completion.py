"""Completion for bash, zsh and fish: scripts that are made from the grammar.

Commands, options and choices are completed as words; what is a path as files; nothing else.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NamedTuple

from plait.cli._usage import Parser, plain

SHELLS = ("bash", "zsh", "fish")
HELP = """bash: add `eval "$(plait completion bash)"` to ~/.bashrc; zsh: the same with zsh, in \
~/.zshrc after compinit; fish: plait completion fish > ~/.config/fish/completions/plait.fish"""

_PATHS = ("FILE", "SOURCE", "OUT", "DIR", "PATH", "PLAN")


class _Argument(NamedTuple):
    flags: list[str]
    help: str
    takes_value: bool
    words: list[str]
    is_path: bool


def script(shell: str, root: Parser) -> str:
    """The script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](root)


def _arguments(command: argparse.ArgumentParser) -> Iterator[_Argument]:
    for action in command._actions:  # noqa: SLF001 - argparse has no other way at them
        metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
        yield _Argument(
            flags=list(action.option_strings),
            help=plain(action.help).replace("\n", " "),
            takes_value=action.nargs != 0,
            words=[str(choice) for choice in action.choices or ()],
            is_path=metavar in _PATHS,
        )


def _bash(root: Parser) -> str:
    flags, values = [], []
    for name, command in root.commands.choices.items():
        arguments = list(_arguments(command))
        listed = " ".join(flag for a in arguments for flag in a.flags)
        flags.append(f'    {name}) flags="{listed}" ;;')
        for a in arguments:
            if not a.takes_value:
                continue
            how = "files" if a.is_path else f'words "{" ".join(a.words)}"'
            names = [f"{name}:{flag}" for flag in a.flags] or [f"{name}:"]
            values.append(f"    {'|'.join(names)}) _plait_{how}; return ;;")
    return f"""\
# Completion of plait for bash.
_plait_words() {{ COMPREPLY=($(compgen -W "$1" -- "$word")); }}
_plait_files() {{ compopt -o filenames 2>/dev/null; local IFS=$'\\n'; \
COMPREPLY=($(compgen -f -- "$word")); }}
_plait() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="${{COMP_WORDS[1]}}" flags=""
  COMPREPLY=()
  # Bash takes the parts of --name=value for three words.
  if [[ $word == "=" ]]; then word=""
  elif [[ $before == "=" ]]; then before="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  if [[ $COMP_CWORD -eq 1 ]]; then
    _plait_words "{" ".join(root.commands.choices)} --help --version"; return
  fi
  case $command in
{chr(10).join(flags)}
  esac
  if [[ $word == -* ]]; then _plait_words "$flags"; return; fi
  [[ $before == -* ]] || before=""
  case $command:$before in
{chr(10).join(values)}
  esac
  # After a switch comes what comes anywhere.
  [[ -n $before && " $flags " == *" $before "* ]] && _plait_files
}}
complete -F _plait plait
"""


def _zsh(root: Parser) -> str:
    cases, described = [], []
    for name, command in root.commands.choices.items():
        described.append(_single(f"{name}:{command.description or ''}"))
        specs = []
        for a in _arguments(command):
            value = f"({' '.join(a.words)})" if a.words else "_files" if a.is_path else " "
            text = re.sub(r"([\[\]:\\])", r"\\\1", a.help)
            for flag in a.flags:
                rest = f":value:{value}" if a.takes_value else ""
                specs.append(
                    _single(f"*{flag}{'=' if rest and flag[1] == '-' else ''}[{text}]{rest}")
                )
            if not a.flags:
                specs.append(_single(f"*:argument:{value}"))
        lines = " \\\n        ".join(specs)
        cases.append(f"    {name})\n      _arguments \\\n        {lines} ;;")
    return f"""\
#compdef plait
# Completion of plait for zsh.
_plait() {{
  if (( CURRENT == 2 )); then
    local -a commands=({" ".join(described)})
    _describe command commands; return
  fi
  local command=$words[2]
  shift words; (( CURRENT-- ))
  case $command in
{chr(10).join(cases)}
  esac
}}
compdef _plait plait
"""


def _fish(root: Parser) -> str:
    lines = ["# Completion of plait for fish.", "complete -c plait -f"]
    for name, command in root.commands.choices.items():
        about = _single(command.description or "", "\\'")
        lines.append(f"complete -c plait -n __fish_use_subcommand -a {name} -d {about}")
        seen = f"complete -c plait -n '__fish_seen_subcommand_from {name}'"
        for a in _arguments(command):
            how = f" -a {_single(' '.join(a.words))}" if a.words else ""
            how = " -F" if a.is_path else how
            if not a.flags:
                lines.append(seen + how)
                continue
            spelt = " ".join(f"-l {f[2:]}" if f[:2] == "--" else f"-s {f[1:]}" for f in a.flags[:2])
            if a.takes_value:
                how = f" -r{how}" if a.is_path else f" -x{how}"
            lines.append(f"{seen} {spelt}{how} -d {_single(a.help, chr(92) + chr(39))}")
    return "\n".join(lines) + "\n"


def _single(text: str, quote: str = "'\\''") -> str:
    """Text in single quotes."""
    return "'" + text.replace("'", quote) + "'"
