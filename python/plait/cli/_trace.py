"""`plait trace`: rows before and after merges, in a shell.

Not here: what the maps say (`plait.trace`).
"""

from __future__ import annotations

from typing import Any

import plait
from plait.errors import InvalidArgument

Place = tuple[str, int]


def run(
    output: Place | None = None,
    source: Place | None = None,
    **options: Any,  # noqa: ANN401 - those of trace
) -> plait.TraceReport:
    """Looks up a row of an output, or of a source in the outputs of its folder.

    Args:
        output: A row of an output.
        source: A row of a source.
        **options: Those of `plait.trace`.

    Raises:
        InvalidArgument: Not one of the two is given.
    """
    if (output is None) == (source is None):
        raise InvalidArgument.of(
            "the row is missing" if output is None else "two rows are given",
            hint="give OUTPUT:ROW, or --from SOURCE:ROW",
        )
    if source is not None:
        file, row = source
        beside = file.rpartition("/")[0] or "."
        return plait.trace(file, row, **{"to": [beside], **options})
    if "to" in options:
        raise InvalidArgument.of("`to` goes with a row of a source", hint="give --from SOURCE:ROW")
    file, row = output or ("", 0)
    return plait.trace(file, row, **options)
