"""Files whose columns do not fit those of other files: which of them are left alone.

SchemaConflict of a column ──▶ what each file says of it ──▶ the files that say what few say

Cost: the footer of each file, for each conflict.
Not here: what goes together (`rust/core/src/schema`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from plait import _native
from plait._native_call import _call
from plait.errors import PlaitError, SchemaConflict

__all__ = ["odd_ones"]


def odd_ones(
    error: SchemaConflict, paths: Sequence[str], storage_options: object
) -> dict[str, str]:
    """Files to leave alone, and why; raises the error if it is about none of them.

    Args:
        error: What planning them together raised.
        paths: The files, the oldest first.
        storage_options: As for `plait.plan`.
    """
    named = [path for path in paths if f"`{path}`" in str(error)]
    if error.column is None or not named:
        raise error
    said = {path: _said(path, error.column, storage_options) for path in paths}
    counts = Counter(filter(None, said.values()))
    # Of two that are as many, those that were first stay.
    kept = max(counts, key=lambda text: counts[text], default="")
    odd = [path for path, text in said.items() if text not in ("", kept)]
    why = str(error).partition("\nhint: ")[0]
    if not odd:
        return {named[-1]: why}
    return {
        path: f"column `{error.column}` is `{said[path]}`, and `{kept}` in most of the files"
        for path in odd
    }


def _said(path: str, column: str, storage_options: object) -> str:
    """What the schema of a file says of a column; `""` without one."""
    options = {"file": path, "pages": False, "sort_by": None, "check_order": False}
    try:
        schema = str(_call(_native.inspect, options, storage_options, None)["schema"])
    except PlaitError:
        # Planning says what is wrong with it.
        return ""
    name = column.rpartition(".")[2]
    lines = [line.strip(" ;{") for line in schema.splitlines()]
    # Whether there may be nulls is no conflict.
    return ", ".join(line.partition(" ")[2] for line in lines if name in line.split())
