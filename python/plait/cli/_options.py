"""The grammar of the command line: every option of the functions, by the same name.

Names, defaults, choices and help come from signatures and docstrings. Here is what a shell adds:
positional arguments, and options that say what is printed. What is not given is left out, so that
defaults are those of the functions.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import plait
from plait.cli import _cat, _completion, _values
from plait.cli._documented import Option, first_line, options_of
from plait.cli._usage import Parser
from plait.cli._words import in_shell
from plait.table.options import CompactOptions

# Arguments of functions that are of no use in a shell, or are written in another way there.
_NOT_OPTIONS = ("self", "progress", "validate", "joiner", "left_schema", "right_schema")
_OUT = "folder, made if absent, or one path that ends in .parquet"
_TABLE = (
    *("sort_by", "partition_by", "on_duplicate", "version_by", "replace_columns", "aggregate"),
    *("retention", "maintain", "storage_options"),
)
_REPEATED = ("Paths", "Iterable[SupportsIndex]")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the arguments after the program's name.

    Raises:
        InvalidArgument: They are invalid.
    """
    joined: list[str] = []
    for argument in arguments:
        # `--sort-by -ts` must not be read as two options.
        if joined and joined[-1] == "--sort-by":
            joined[-1] += "=" + argument
        else:
            joined.append(argument)
    root = parser()
    root.check(joined)
    return root.parse_args(joined)


@cache
def parser() -> Parser:
    """The parser of the whole command line."""
    root = Parser(prog="plait", description=first_line(plait))
    root.add_argument("--version", action="version", version=f"plait {plait.__version__}")
    root.commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    merge = root.command("merge", "merge sorted files", plait.merge)
    _add_all(merge, plait.merge, takes={"sources": "SOURCE"}, without=("out",))
    _add_output(merge, _OUT)
    _add_printing(merge)

    sort = root.command("sort", "sort files in any order", plait.sort)
    _add_all(sort, plait.sort, takes={"sources": "SOURCE"}, without=("out", "options"))
    without = ("sources", "sort_by", "out", "unsorted", "assume_sorted")
    _add_all(sort, plait.merge, without=without)
    _add_output(sort, _OUT)
    _add_printing(sort)

    plan = root.command("plan", "what a merge would do", plait.plan)
    _add_all(plan, plait.plan, plait.merge, takes={"sources": "SOURCE"}, without=("out",))
    _add_json(plan)

    execute = root.command("execute", "execute a plan, or some tasks of it", plait.Plan.execute)
    execute.add_argument(
        "plan", type=_values.path, metavar="PLAN", help="file with the JSON of `plait plan --json`"
    )
    _add_all(execute, plait.Plan.execute, plait.merge, without=("out",))
    _add_output(execute, _OUT)
    _add_printing(execute)

    _add_compact(root)

    verify = root.command("verify", "check order, ranges and rows of files", plait.verify)
    _add_all(verify, plait.verify, plait.merge, takes={"files": "FILE"}, without=("check",))
    _add_printing(verify)

    overlay = root.command("overlay", "join layers by position", plait.overlay_files)
    overlay.add_argument(
        "--layer",
        dest="layers",
        action="append",
        nargs="+",
        required=True,
        metavar=("FILE", "PATH"),
        help="a layer, and the paths it owns, such as a.b; default: all its columns; weakest first",
    )
    functions = (plait.overlay_files, plait.overlay, plait.merge)
    _add_all(overlay, *functions, without=("layers", "out"))
    _add_output(overlay, "path of the output")
    _add_printing(overlay)

    _add_tables(root)
    _add_cat(root)
    _add_scan(root)
    _add_join(root)

    describe = root.command("inspect", "describe one file", plait.inspect)
    _add_all(describe, plait.inspect, plait.merge, takes={"file": "FILE"})
    _add_json(describe)

    _add_trace(root)

    shown = root.command("help", "help on a command", "Prints the help of a command, or of all.")
    shown.add_argument(
        "topic", nargs="?", choices=root.commands.choices, metavar="COMMAND", help="a command"
    )
    text = "Prints a script that completes commands, options and files in a shell."
    script = root.command("completion", "complete commands in a shell", text)
    script.add_argument("shell", choices=_completion.SHELLS, metavar="SHELL", help=_completion.HELP)
    return root


def _add_compact(root: Parser) -> None:
    compact = root.command("compact", "merge files of a folder or table by a policy", plait.compact)
    sources = (plait.compact, CompactOptions, plait.merge)
    _add_all(compact, *sources, takes={"folder": "DIR"}, without=("yes",))
    runs = compact.add_mutually_exclusive_group()
    runs.add_argument(
        "--dry-run",
        dest="yes",
        action="store_false",
        default=argparse.SUPPRESS,
        help="only print what would be merged first",
    )
    runs.add_argument(
        "--yes",
        action="store_true",
        default=argparse.SUPPRESS,
        help="compact, which is the default",
    )
    _add_printing(compact)
    expire = root.command("expire", "remove files that were replaced", plait.expire)
    _add_all(expire, plait.expire, plait.merge, takes={"folder": "DIR"})
    _add_json(expire)


def _add_trace(root: Parser) -> None:
    text = "Looks a row up in the row maps that merges with --row-map write."
    trace = root.command("trace", "which row of which source a row of an output is", text)
    trace.add_argument(
        "output", nargs="?", type=_values.place, metavar="OUTPUT:ROW", help="a row of an output"
    )
    trace.add_argument(
        "--from",
        dest="source",
        type=_values.place,
        metavar="SOURCE:ROW",
        help="a row of a source: say where it went",
    )
    _add_all(trace, plait.trace, plait.merge, without=("file", "row"))
    _add_json(trace)


def _add_tables(root: Parser) -> None:
    append = root.command("append", "append files to a table, made if absent", plait.Table.append)
    _add_all(append, plait.Table, plait.merge, takes={"path": "TABLE"}, only=_TABLE)
    append.add_argument(
        "sources", nargs="+", type=_values.path, metavar="SOURCE", help="files, in any order"
    )
    others = (plait.RunWriter.flush, plait.RunWriter, plait.merge)
    _add_all(append, plait.Table.append, *others, without=("batches",))
    _add_printing(append)
    adopt = root.command("adopt", "make a table of a folder of files", plait.adopt)
    _add_all(adopt, plait.adopt, plait.Table, plait.merge, takes={"folder": "DIR"})
    _add_json(adopt)
    history = root.command("history", "what was committed to a table", plait.Table.history)
    only = ("storage_options",)
    _add_all(history, plait.Table, plait.merge, takes={"path": "TABLE"}, only=only)
    _add_all(history, plait.Table.history)
    _add_json(history)


def _add_cat(root: Parser) -> None:
    cat = root.command("cat", "print rows of sorted files in order", plait.read)
    _add_all(cat, plait.read, plait.merge, takes={"sources": "SOURCE"})
    cat.add_argument(
        "--format",
        choices=_cat.FORMATS,
        default="table",
        help="how rows are printed (default: table)",
    )
    cat.add_argument("--explain", action="store_true", help="print what would be read, and no row")


def _add_scan(root: Parser) -> None:
    scan = root.command("scan", "one schema over files that drift", plait.scan)
    _add_all(scan, plait.scan, plait.merge, takes={"sources": "SOURCE"}, without=("schema",))
    scan.add_argument(
        "--schema-of",
        dest="schema",
        default=argparse.SUPPRESS,
        type=_values.path,
        metavar="FILE",
        help="a Parquet file whose schema wins over what sources say",
    )
    what = scan.add_mutually_exclusive_group()
    what.add_argument(
        "--schema",
        dest="show_schema",
        action="store_true",
        help="print the schema and its fingerprint, read no row",
    )
    what.add_argument(
        "--explain", action="store_true", help="print what happens to each column of each file"
    )
    _add_json(scan)


def _add_join(root: Parser) -> None:
    text = "Applies changes of two tables, and writes how their join changes."
    join = root.command("join", "join two tables that change, by key", text)
    files: dict[str, Any] = {"type": _values.path, "metavar": "FILE"}
    join.add_argument("--left", nargs="+", **files, help="changes of the left table")
    join.add_argument("--right", nargs="+", **files, help="changes of the right table")
    join.add_argument(
        "--state", type=_values.path, required=True, metavar="DIR", help="folder of the state"
    )
    join.add_argument("-o", "--out", **files, help="where the changes go, as .parquet")
    join.add_argument("--table", **files, help="where the joined table goes, as .parquet")
    join.add_argument(
        "--replace", action="store_true", help="replace --out and --table if they exist"
    )
    options = join.add_argument_group("a new join", "A state keeps its own.")
    limits = ("memory_limit", "threads")
    _add_all(join, plait.ForeignKeyJoin, plait.merge, without=("state", "batch_rows"), only=limits)
    without = ("state", "batch_rows", *limits)
    _add_all(options, plait.ForeignKeyJoin, without=without)
    join.add_argument("--step", type=_values.count, metavar="N", help="number; default: the next")
    join.add_argument("--compact", action="store_true", help="merge the runs of the state")
    _add_json(join)


def _add_all(
    command: argparse._ActionsContainer,
    function: Callable[..., Any],
    *others: object,
    takes: dict[str, str] | None = None,
    without: Sequence[str] = (),
    only: Sequence[str] = (),
) -> None:
    """Adds the arguments of a function.

    Args:
        command: What gets them.
        function: The function.
        others: What documents arguments that its docstring leaves to them.
        takes: Positional arguments, and what stands for them.
        without: Arguments that are no options.
        only: The options, if they are not all.
    """
    options = options_of(function, *others)
    flags = {name: {"": "--" + name.replace("_", "-")} for name in options}
    for option in options.values():
        text = re.sub(r'`"([\w.:/-]+)"`', r"\1", in_shell(option.text, flags))
        text = text.replace("`", "").replace("%", "%%")
        if takes is not None and option.name in takes:
            _add_positional(command, option, takes[option.name], text)
        elif option.name not in (*_NOT_OPTIONS, *without) and (not only or option.name in only):
            command.add_argument(flags[option.name][""], **_settings(option, text))


def _add_positional(
    command: argparse._ActionsContainer, option: Option, metavar: str, text: str
) -> None:
    # What `scan` takes in Python may be streams, too.
    nargs = "+" if option.type.split(" | ")[0] in ("Paths", "object") else None
    command.add_argument(option.name, nargs=nargs, type=_values.path, metavar=metavar, help=text)


def _settings(option: Option, text: str) -> dict[str, Any]:
    """How argparse reads an option."""
    settings: dict[str, Any] = {"default": argparse.SUPPRESS}
    default = option.default
    if option.type == "bool":
        settings["action"] = "store_true" if default is False else argparse.BooleanOptionalAction
    elif option.choices:
        settings |= {"choices": option.choices, "type": type(option.choices[0])}
    else:
        form = _values.form_of(option)
        settings |= {"type": form.read, "metavar": form.metavar}
        text = f"{text}; {form.syntax}" if form.syntax else text
    if option.type in _REPEATED:
        settings["nargs"] = "+"
    if option.type in ("StorageOptions", "Where"):
        settings |= {"action": _Collected, "const": option.type == "Where"}
    if isinstance(default, tuple | str | int) and not isinstance(default, bool) and default != ():
        shown = ",".join(default) if isinstance(default, tuple) else default
        text += f" (default: {shown})"
    return {**settings, "help": text}


def _add_output(command: Parser, text: str) -> None:
    command.add_argument(
        *("-o", "--out"), required=True, type=_values.path, metavar="OUT", help=text
    )


def _add_printing(command: Parser) -> None:
    _add_json(command)
    command.add_argument("--quiet", action="store_true", help="no progress bar, no report")


def _add_json(command: Parser) -> None:
    command.add_argument(
        "--json", action="store_true", help="print JSON; errors are JSON on standard error, too"
    )


class _Collected(argparse.Action):
    """Collects pairs into one mapping; with `const` the values of a name into a list."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - the signature is argparse's
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 - the signature is argparse's
        option_string: str | None = None,  # noqa: ARG002 - the signature is argparse's
    ) -> None:
        """Adds one pair."""
        name, value = values
        known = getattr(namespace, self.dest, None) or {}
        added = [*known.get(name, ()), value] if self.const else value
        setattr(namespace, self.dest, {**known, name: added})
