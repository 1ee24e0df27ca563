"""A sorted read as a lazy frame of Polars: projection, filter and row limit reach the files.

Not here: conditions as text (`_where`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from plait._where import pushed_down
from plait.errors import InvalidArgument, UnsupportedKey

_BATCH_ROWS = 8192


def lazy_frame(read: Any, again: Any) -> pl.LazyFrame:  # noqa: ANN401 - `_read` is above
    """The frame; each `collect` reads the files again.

    Args:
        read: A `SortedRead`.
        again: Makes reads of less of it.
    """

    def batches(
        columns: list[str] | None,
        predicate: pl.Expr | None,
        rows: int | None,
        batch_rows: int | None,
    ) -> Iterator[pl.DataFrame]:
        found, is_all = ([], True) if predicate is None else pushed_down(predicate)
        if found and again.limit is not None:
            # The rows of the frame are those within the limit, of which the filter leaves some.
            found, is_all = [], False
        pushed = _readable(again, found)
        where, is_all = " AND ".join(pushed) or None, is_all and len(pushed) == len(found)
        needed = columns
        if columns is not None and predicate is not None and not is_all:
            needed = list(dict.fromkeys([*columns, *predicate.meta.root_names()]))
        if not needed:
            # Frames without columns have no rows.
            needed = None if columns is None else list(schema)[:1]
        # A limit counts rows for which the filter holds.
        limit = rows if is_all else None
        # Polars stops asking once it has the rows of a limit that it has not passed on.
        rows_at_once = min(batch_rows or _BATCH_ROWS, _BATCH_ROWS)
        asked = again(columns=needed, where=where, limit=limit, batch_rows=rows_at_once)
        read.follow(asked)
        left = rows
        for batch in asked:
            # Polars takes a batch for a series of structs.
            frame = pl.Series(pl.from_arrow(batch)).struct.unnest()
            if predicate is not None and not is_all:
                frame = frame.filter(predicate)
            frame = frame if columns is None else frame.select(columns)
            if left is not None:
                frame = frame.head(left)
                left -= len(frame)
            yield frame
            if left == 0:
                return

    schema = pl.DataFrame(again(limit=0)).schema
    return register_io_source(batches, schema=schema)


def _readable(again: Any, conditions: list[str]) -> list[str]:  # noqa: ANN401 - see above
    """Those of the conditions that the engine takes: others are about columns without an order."""

    def is_taken(where: str) -> bool:
        try:
            again(where=where, limit=0)
        except (InvalidArgument, UnsupportedKey):
            return False
        return True

    if not conditions or is_taken(" AND ".join(conditions)):
        return conditions
    return [condition for condition in conditions if is_taken(condition)]
