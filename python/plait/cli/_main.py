"""Reads the command line, calls the function, prints the report, and says how it ended."""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import plait
from plait import _native
from plait._report import _PrintedReport
from plait.cli import _cat, _completion, _errors, _join, _options, _tables, _trace, _values
from plait.cli._colour import BOLD, paint
from plait.cli._progress import Bar
from plait.cli._words import in_shell

EXIT_OK = 0
EXIT_VERIFICATION = 1
EXIT_USAGE = 2
EXIT_INPUT = 3
EXIT_STORAGE = 4
EXIT_MEMORY = 5
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

# The first class that fits decides.
_EXIT_CODES: tuple[tuple[tuple[type[plait.PlaitError], ...], int], ...] = (
    ((plait.VerificationFailed,), EXIT_VERIFICATION),
    ((plait.InvalidArgument, plait.InvalidPath), EXIT_USAGE),
    (
        (
            plait.UnsortedSource,
            plait.DuplicateKey,
            plait.SchemaConflict,
            plait.UnknownColumn,
            plait.UnsupportedKey,
            plait.NullKey,
            plait.RowMismatch,
            plait.IndexTypeError,
            plait.FieldNotInLayer,
            plait.SplitInsideNonStruct,
            plait.PathThroughNonStruct,
            plait.DuplicateField,
            plait.SchemaDrift,
            plait.ProjectionError,
            plait.LossyCast,
            plait.SchemaChanged,
            plait.CorruptSource,
            plait.Unsupported,
        ),
        EXIT_INPUT,
    ),
    (
        (
            plait.SourceNotFound,
            plait.SourceChanged,
            plait.SourceFailed,
            plait.StorageError,
            plait.OutputExists,
        ),
        EXIT_STORAGE,
    ),
    ((plait.MemoryLimitExceeded,), EXIT_MEMORY),
    ((plait.Cancelled,), EXIT_INTERRUPTED),
    ((plait.PlaitError,), EXIT_INTERNAL),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns its exit code.

    Args:
        arguments: The arguments after the program's name; those of the process by default.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(_options.parse(given))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - 1 would be a failed check
        code = _failed(error, given)
    return code


def _failed(error: BaseException, arguments: Sequence[str]) -> int:
    """Tells of an error; gives its exit code."""
    if isinstance(error, KeyboardInterrupt):
        error = plait.Cancelled("interrupted; outputs that exist are complete")
    if isinstance(error, plait.PlaitError):
        code = exit_code(error)
    elif isinstance(error, OSError):
        code = EXIT_STORAGE
    elif isinstance(error, MemoryError):
        code, error = EXIT_MEMORY, MemoryError("out of memory")
    elif isinstance(error, ImportError):
        code, error = EXIT_USAGE, ImportError(f"a package is missing: {error}")
    else:
        traceback.print_exception(error)
        code, error = EXIT_INTERNAL, plait.InternalError("this is a bug; please report it")
    _errors.tell(error, arguments, code)
    return code


def exit_code(error: plait.PlaitError) -> int:
    """The exit code for an error."""
    return next(code for classes, code in _EXIT_CODES if isinstance(error, classes))


# Commands that print what the function gives, and draw no bar.
_PRINTED: dict[str, Callable[..., Any]] = {
    "inspect": plait.inspect,
    "plan": plait.plan,
    "expire": _tables.expire,
    "adopt": plait.adopt,
}


def _run(parsed: argparse.Namespace) -> int:
    options = vars(parsed)
    command = options.pop("command")
    as_json = options.pop("json", False)
    quiet = options.pop("quiet", False)
    _refuse_shell_globs(options.get("sources", ()))
    if command in _PRINTED:
        _print(_PRINTED[command](**options), command, as_json=as_json)
    elif command == "help":
        root, topic = _options.parser(), options["topic"]
        (root.commands.choices[topic] if topic else root).print_help()
    elif command == "completion":
        print(_completion.script(options["shell"], _options.parser()), end="")
    elif command == "history":
        print(_tables.history(**options, as_json=as_json))
    elif command == "cat":
        options = _tables.with_order(options["sources"], options)
        _cat.run(options, format=options.pop("format"), explain=options.pop("explain"))
    elif command == "scan":
        _scan(options, as_json=as_json)
    elif command == "trace":
        _print(_trace.run(**options), command, as_json=as_json)
    elif command == "join":
        _join.run(**options, as_json=as_json)
    else:
        with Bar.on_terminal(sys.stderr, quiet=quiet or as_json) as bar:
            report = _written(command, {**options, "progress": bar})
        if as_json or not quiet:
            _print(report, command, as_json=as_json)
        return EXIT_OK if getattr(report, "ok", True) else EXIT_VERIFICATION
    return EXIT_OK


def _written(command: str, options: dict[str, Any]) -> Any:  # noqa: ANN401 - any report
    """Does what takes long, and is drawn a bar for."""
    if command == "verify":
        return plait.verify(**options, check=False)
    if command == "compact":
        return plait.compact(**options)
    if command == "append":
        return _tables.append(options)
    if command == "execute":
        return _read_plan(options.pop("plan")).execute(**options)
    if command == "overlay":
        named = [(_values.path(file), paths) for file, *paths in options.pop("layers")]
        return plait.overlay_files([plait.Layer(f, p or None) for f, p in named], **options)
    return plait.sort(**options) if command == "sort" else plait.merge(**options)


def _refuse_shell_globs(sources: Sequence[object]) -> None:
    """Refuses files of tables: a shell puts all files of a folder in place of a glob."""
    files = [Path(source) for source in sources if isinstance(source, str)]
    folders = sorted({str(file.parent) for file in files if file.is_file()})
    tables = json.loads(_native.tables_of(json.dumps({"sources": folders})))
    for table in tables:
        if table is not None:
            error = plait.ForeignTable.of(
                f"the files are of a table of {table['format']}: only its log lists the live files",
                hint=f"name the table, `{table['root']}`",
            )
            error.path = table["root"]
            raise error


def _read_plan(path: str) -> plait.Plan:
    try:
        return plait.Plan.from_json(Path(path).read_bytes())
    except OSError as cause:
        raise plait.StorageError.of("cannot read the plan", got=f"`{path}`: {cause}") from cause


def _scan(options: dict[str, Any], *, as_json: bool) -> None:
    show_schema, explain = options.pop("show_schema"), options.pop("explain")
    if "schema" in options:
        settings = options.get("storage_options")
        options["schema"] = plait.scan(options["schema"], storage_options=settings).schema
    scanned = plait.scan(**options)
    if show_schema:
        columns = scanned.schema.columns
        if as_json:
            fields = [{"name": n, "type": t, "nullable": null} for n, t, null in columns]
            described = {"columns": fields, "fingerprint": scanned.fingerprint}
            print(json.dumps(described, indent=2))
            return
        for name, type_name, nullable in columns:
            print(f"{name}: {type_name}{'' if nullable else ' not null'}")
        print(f"fingerprint {scanned.fingerprint}")
    elif explain:
        if as_json:
            print(json.dumps([asdict(adapter) for adapter in scanned.adapters], indent=2))
        else:
            print(scanned.explain())
    else:
        for _ in scanned.to_batches():
            pass
        _print(scanned.report, "scan", as_json=as_json)


def _print(report: Any, command: str, *, as_json: bool) -> None:  # noqa: ANN401 - any report
    if as_json and isinstance(report, plait.Plan):
        report.write_json(sys.stdout)
        print()
        return
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
        return
    text = str(report)
    if isinstance(report, _PrintedReport):
        flags = _errors.flags_of([command])
        # What is in backticks are partitions and columns, or a call.
        say = lambda advice: in_shell(advice, flags, names=False)  # noqa: E731
        text = report._said(say)  # noqa: SLF001 - our own
    title, newline, rest = text.partition("\n")
    print(paint(title, BOLD, sys.stdout) + newline + rest)
