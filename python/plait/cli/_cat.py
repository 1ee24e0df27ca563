"""Rows of sorted files on standard output: `plait cat`.

Not here: which rows (`plait.read`); values as text and JSON (the engine).
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from typing import Any

import plait
from plait._native import Batch

FORMATS = ("table", "csv", "jsonl", "arrow")

# Columns of a table are as wide as the values of the first so many rows, and no wider than this.
_WIDTH_ROWS = 1000
_WIDTH_MAX = 60


def run(options: dict[str, Any], *, format: str, explain: bool) -> None:  # noqa: A002 - as it is typed
    """Prints the rows, or what would be read.

    Args:
        options: Those of `plait.read`.
        format: One of `FORMATS`.
        explain: Print what would be read instead.
    """
    read = plait.read(**options)
    if explain:
        print(read.explain())
    elif format in ("jsonl", "arrow"):
        sys.stdout.flush()
        for piece in read.to_batches()._encoded(format):  # noqa: SLF001 - of the engine
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    elif format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(read.schema.names)
        for batch in read:
            writer.writerows(_rows(batch, null=""))
    else:
        _print_table(read.schema, read)


def _rows(batch: Batch, *, null: str) -> Iterable[tuple[str, ...]]:
    columns = batch._texts()  # noqa: SLF001 - of the engine
    texts = [[null if value is None else value for value in column] for column in columns]
    return zip(*texts, strict=True) if texts else [()] * batch.num_rows


def _print_table(schema: plait.Schema, batches: Iterable[Batch]) -> None:
    names = [name for name, _, _ in schema.columns]
    numbers = ("Int", "UInt", "Float", "Decimal")
    is_right = [type_.startswith(numbers) for _, type_, _ in schema.columns]
    widths: list[int] | None = None
    for batch in batches:
        rows = [tuple(map(_shown, row)) for row in _rows(batch, null="null")]
        if widths is None:
            first = [tuple(map(_shown, names)), *rows[:_WIDTH_ROWS]]
            widths = [max(map(len, column)) for column in zip(*first, strict=True)]
            rows.insert(0, tuple(map(_shown, names)))
        for row in rows:
            cells = zip(row, widths, is_right, strict=True)
            print("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in cells).rstrip())
    if widths is None:
        print("  ".join(map(_shown, names)))


def _shown(text: str) -> str:
    """A value on one line, cut where it is long."""
    line = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
    return line if len(line) <= _WIDTH_MAX else line[: _WIDTH_MAX - 1] + "…"
