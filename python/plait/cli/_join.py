"""`plait join`: one step of a foreign-key join, its changes and its state as Parquet files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import plait
from plait import _native


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
    again = f"the same command with --step {step} gives its changes again"
    notice = f"step {step} is committed, but its changes are in no file: {again}"
    try:
        return _native.write_parquet(changes, out)
    except plait.PlaitError as error:
        error.hint = f"{error.hint}; {notice}" if error.hint else notice
        raise
    except BaseException:
        print(notice, file=sys.stderr)
        raise


def _open(
    state: str, sides: Mapping[str, plait.Scan | None], options: dict[str, Any]
) -> plait.ForeignKeyJoin:
    keys = ("left_key", "foreign_key", "right_key")
    stored = options.keys() - {*keys, "memory_limit", "threads"}
    if not options.keys() & {*keys}:
        for name in sorted(stored):
            hint = "give all three keys, too, or go on as the state does"
            raise plait.InvalidArgument.of(f"`{name}` is that of the state", hint=hint)
        return plait.ForeignKeyJoin.restore(state, **options)
    for key in keys:
        if key not in options:
            hint = "give all three keys, or none to go on with the state"
            raise plait.InvalidArgument.of(f"`{key}` is missing", hint=hint)
    left, right = (found and found.schema for found in sides.values())
    return plait.ForeignKeyJoin(state=state, left_schema=left, right_schema=right, **options)


def _changes(files: Iterable[str] | None) -> plait.Scan | None:
    return plait.scan(list(files), missing="null") if files else None
