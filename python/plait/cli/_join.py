"""`plait join`: one step of a foreign-key join, its changes and its state as Parquet files."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import plait
from plait import _native
from plait.join import CHOICES


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The grammar of the command."""
    command.add_argument("--left", nargs="+", metavar="FILE", help="changes of the left table")
    command.add_argument("--right", nargs="+", metavar="FILE", help="changes of the right table")
    command.add_argument("--state", required=True, metavar="DIR", help="folder of the state")
    command.add_argument("-o", "--out", metavar="FILE", help="where the changes go, as .parquet")
    command.add_argument("--table", metavar="FILE", help="where the joined table goes, as .parquet")
    for name, text in (
        ("left_key", "columns that identify a left row, comma-separated"),
        ("foreign_key", "columns of the left table that hold a right key"),
        ("right_key", "columns that identify a right row"),
    ):
        flag = "--" + name.replace("_", "-")
        command.add_argument(
            flag, type=_listed, metavar="NAMES", help=f"{text}; default: as the state"
        )
    command.add_argument(
        "--replace", action="store_true", help="replace --out and --table if they are there"
    )
    command.add_argument("--how", choices=CHOICES["how"], help="default: as the state, or inner")
    command.add_argument("--columns", type=_columns, metavar="NAMES", help="columns, or NEW=OLD")
    command.add_argument("--before", action="store_true", help="old values, too, as before.*")
    command.add_argument(
        "--on-null-key", choices=CHOICES["on_null_key"], help="default: as the state, or error"
    )
    command.add_argument("--step", type=int, metavar="N", help="number of the step; default: next")
    command.add_argument("--compact", action="store_true", help="merge the runs of the state")
    command.add_argument("--memory-limit", default="512MB", metavar="SIZE", help="(default: 512MB)")
    command.add_argument("--threads", type=int, metavar="N", help="default: all processors")
    command.add_argument("--json", action="store_true", help="print as JSON")


def run(
    *,
    left: list[str] | None,
    right: list[str] | None,
    state: str,
    out: str | None,
    table: str | None,
    replace: bool,
    step: int | None,
    compact: bool,
    as_json: bool,
    **options: Any,  # noqa: ANN401 - those of the join
) -> None:
    """Applies the step, writes what is asked for, and prints what was done."""
    # A step counts before its changes are written: what can be known of outputs is looked at first.
    read = {Path(path).resolve() for path in (*(left or ()), *(right or ()))}
    for flag, output in (("--out", out), ("--table", table)):
        _check_output(flag, output, read, replace=replace)
        read |= {Path(output).resolve()} if output else set()
    sides = {"left": _changes(left), "right": _changes(right)}
    report: dict[str, int | None] = {}
    with _open(state, sides, options) as join:
        if left or right or step is not None:
            changes = join.apply(**sides, step=step)
            report["changes"] = (
                sum(batch.num_rows for batch in changes)
                if out is None
                else _written(changes, out, join.step)
            )
            report["step"] = join.step
        if compact:
            join.compact()
        if table is not None:
            report["rows"] = _native.write_parquet(join.table(), table)
        if as_json:
            print(json.dumps(report, indent=2))
            return
        for name, value in report.items():
            print(f"{name}: {value:,}" if name != "step" else f"step: {value}")
        print(join.explain())


def _check_output(flag: str, path: str | None, taken: set[Path], *, replace: bool) -> None:
    if path is None:
        return
    if not path.endswith(".parquet"):
        hint = "give a name that ends in .parquet"
        raise plait.InvalidArgument.of(f"`{flag}` is not a file", got=f"`{path}`", hint=hint)
    if Path(path).resolve() in taken:
        what = f"`{flag}` is a file that the step reads or writes"
        raise plait.InvalidArgument.of(what, got=f"`{path}`", hint="give another name")
    if not replace and Path(path).exists():
        hint = "give another name, or --replace"
        raise plait.OutputExists.of(f"`{flag}` is there already", got=f"`{path}`", hint=hint)


def _written(changes: object, out: str, step: int | None) -> int:
    try:
        return _native.write_parquet(changes, out)
    except BaseException:
        again = f"the same command with --step {step} gives its changes again"
        print(f"step {step} counts, and its changes are in no file: {again}", file=sys.stderr)
        raise


def _open(
    state: str, sides: Mapping[str, plait.Scan | None], options: dict[str, Any]
) -> plait.ForeignKeyJoin:
    keys = ("left_key", "foreign_key", "right_key")
    if all(options[key] is None for key in keys):
        for name in ("how", "columns", "before", "on_null_key"):
            if options[name]:
                flag = "--" + name.replace("_", "-")
                hint = "give all three keys, too, or go on as the state does"
                raise plait.InvalidArgument.of(f"`{flag}` is that of the state", hint=hint)
        limits = {name: options[name] for name in ("memory_limit", "threads")}
        return plait.ForeignKeyJoin.restore(state, **limits)
    for key in keys:
        if options[key] is None:
            flag = "--" + key.replace("_", "-")
            hint = "give all three keys, or none to go on with the state"
            raise plait.InvalidArgument.of(f"`{flag}` is missing", hint=hint)
    options["how"] = options["how"] or "inner"
    options["on_null_key"] = options["on_null_key"] or "error"
    left, right = (found and found.schema for found in sides.values())
    return plait.ForeignKeyJoin(state=state, left_schema=left, right_schema=right, **options)


def _changes(files: Iterable[str] | None) -> plait.Scan | None:
    return plait.scan(list(files), missing="null") if files else None


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _columns(text: str) -> dict[str, str]:
    pairs = (name.partition("=") for name in _listed(text))
    return {new: old or new for new, _, old in pairs}
