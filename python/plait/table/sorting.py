"""Files that are in no order: how they are looked at, and merged without a plan.

files ──▶ look: range of all keys, in order or not ──▶ policy ──▶ group ──▶ sort_merge ──▶ outputs

Invariant: a group with such a file is merged as a whole, in one process: what its outputs are cut
from are sorted runs, which are there only once the files are sorted.
Not here: the sort (`rust/parquet/src/sort`), which groups there are (`survey`, the engine).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait import _native
from plait._checks import merge_options
from plait._native_call import OnProgress, _call
from plait._planning import plan
from plait.report import MergeReport

__all__ = ["Look", "LookedFile", "Seen", "look", "sort_merge", "task_of"]


@dataclass(frozen=True)
class LookedFile:
    """What was seen of a file.

    Attributes:
        path: Where the engine reads it.
        rows: Its rows.
        bytes: Its bytes.
        merge_level: How many merges lie behind it.
        footer: SHA-256 of its footer.
        is_sorted: Whether its rows are in order.
        first: Its smallest key, in base 64; `None` without rows.
        last: Its greatest key.
    """

    path: str
    rows: int
    bytes: int
    merge_level: int
    footer: str
    is_sorted: bool
    first: str | None
    last: str | None


@dataclass(frozen=True)
class Look:
    """What was seen of files.

    Attributes:
        sort_by: The order.
        files: The files.
    """

    sort_by: str
    files: tuple[LookedFile, ...]


@dataclass(frozen=True)
class Seen:
    """What is known of a group that is sorted.

    Attributes:
        unsorted: Which of its files are in no order, by path.
        footers: SHA-256 of the footers that the files had, by path.
        naming: What the names of outputs have: `task` and `lease`, if they are not to be found.
    """

    unsorted: tuple[str, ...] = ()
    footers: Mapping[str, str] = field(default_factory=dict)
    naming: Mapping[str, str] = field(default_factory=dict)


def look(
    sources: Sequence[str],
    merge: Mapping[str, Any],
    known_sorted: Collection[str],
    known: _native.Known | None = None,
    progress: OnProgress | None = None,
) -> Look:
    """Looks at the keys of files: all keys, where footers do not tell them.

    Args:
        sources: The files.
        merge: Arguments of `plait.merge`, by name; of them `unsorted` says what becomes of files
            that are not sorted.
        known_sorted: Files that were found sorted before.
        known: What was read of some of the files.
        progress: As for `plait.plan`.

    Raises:
        UnsortedSource: Files are not sorted and are not to be sorted; names all.
        PlaitError: Anything that `plait.plan` raises.
    """
    options = {**_options(sources, merge), "sorted": sorted(known_sorted)}
    seen = _call(_native.look, options, merge["storage_options"], progress, known)
    return Look(seen["sort_by"], tuple(LookedFile(**file) for file in seen["files"]))


def sort_merge(
    sources: Sequence[str],
    out: str,
    merge: Mapping[str, Any],
    seen: Seen,
    progress: OnProgress | None = None,
) -> MergeReport:
    """Merges files of a group, and sorts what of them is in no order.

    Args:
        sources: The files.
        out: The folder of the outputs.
        merge: Arguments of `plait.merge`, by name.
        seen: What is known of them.
        progress: As for `plait.merge`.

    Raises:
        SourceChanged: A file is not the one that was looked at.
        PlaitError: Anything that `plait.merge` raises.
    """
    # Rows that are sorted first have no row map.
    options = _options(sources, {**merge, "if_exists": "add", "row_map": False})
    options |= {"out": out, "naming": dict(seen.naming), "footers": dict(seen.footers)}
    storage_options = merge["storage_options"]
    return MergeReport.from_dict(_call(_native.sort_merge, options, storage_options, progress))


def task_of(seen: Look, merge: Mapping[str, Any]) -> str:
    """Names the merge of files by what they hold and how they are merged."""
    options = {**_options([], merge)["merge"], "memory_limit": 0, "threads": None}
    facts = [seen.sort_by, options, [(file.bytes, file.footer) for file in seen.files]]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _options(sources: Sequence[str], merge: Mapping[str, Any]) -> dict[str, Any]:
    checked = merge_options({**(plan.__kwdefaults__ or {}), **merge, "sources": list(sources)})
    checked["sources"] = []
    limit = checked["memory_limit"]
    return {"sources": list(sources), "merge": checked, "memory_limit": limit}
