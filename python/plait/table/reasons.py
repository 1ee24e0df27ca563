"""Why files of a table stay apart: the reasons of a survey in words, with the figures.

partitions, sizes, levels, policy ──▶ "7 files of 130 MB to 1.2 GB: no two of them share a key"

Not here: files that cannot be merged, of which `Skipped` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plait._report import _files
from plait._text import human_bytes

__all__ = ["APART", "Alike", "reasons"]

# The sentences about orders and schemas have these words.
APART = "are merged separately"

# So many columns are named that differ.
_NAMED_MAX = 3


@dataclass(frozen=True)
class Alike:
    """Files that may be merged with one another.

    Attributes:
        scope: Their partition.
        sort_by: Their order, if it is known without the policy.
        files: Bytes of each file, and how many merges lie behind it.
        is_chosen: Whether the policy selects some of them.
        columns: Path and type of each column, if schemas keep files of the partition apart.
    """

    scope: str
    sort_by: str
    files: tuple[tuple[int, int], ...]
    is_chosen: bool
    columns: tuple[tuple[str, str], ...] = ()


def reasons(policy: dict[str, Any], found: Sequence[Alike]) -> tuple[str, ...]:
    """Why files are not merged with one another, one sentence each.

    Args:
        policy: The options of the policy.
        found: All files that can be merged.
    """
    left = [alike for alike in found if not alike.is_chosen]
    said = list(_apart(found))
    alone = [alike.files[0] for alike in left if len(alike.files) == 1]
    several = [file for alike in left if len(alike.files) > 1 for file in alike.files]
    if several:
        said += _BY_POLICY[policy["policy"]](policy, several)
    if alone:
        said.append(f"{_sized(alone)}: no other file of the partition, schema and order")
    return tuple(said)


def _apart(found: Sequence[Alike]) -> Iterator[str]:
    """Partitions whose files are of several schemas or orders."""
    by_scope: dict[str, list[Alike]] = {}
    for alike in found:
        by_scope.setdefault(alike.scope, []).append(alike)
    for scope, several in sorted(by_scope.items()):
        where = f"`{scope}`" if scope else "the folder"
        orders = Counter(alike.sort_by for alike in several)
        if len(orders) > 1:
            named = ", ".join(f"`{order}`" for order in sorted(orders))
            yield f"{where} has files of {len(orders)} sort orders, which {APART}: {named}"
        for order, schemas in orders.items():
            if schemas == 1:
                continue
            differ = _differences([alike for alike in several if alike.sort_by == order])
            yield (
                f"{where} has files of {schemas} schemas, which {APART}{differ}; "
                "`across_schemas=True` merges those that one schema fits"
            )


def _differences(several: Sequence[Alike]) -> str:
    """How the columns of files differ that schemas keep apart."""
    total = sum(len(alike.files) for alike in several)
    found: dict[str, Counter[str]] = {}
    for alike in several:
        for column, type_ in alike.columns:
            found.setdefault(column, Counter())[type_] += len(alike.files)
    said = []
    for column, types in found.items():
        if len(types) > 1:
            named = ", ".join(f"{type_} in {count:,}" for type_, count in sorted(types.items()))
            said.append(f"`{column}` is {named}")
        elif types.total() < total:
            said.append(f"`{column}` is in {types.total():,} of {total:,} files")
    if not said:
        return " (order of columns, nulls allowed, or field ids)" if found else ""
    more = [f"{len(said) - _NAMED_MAX:,} more columns"] if len(said) > _NAMED_MAX else []
    return f" ({', '.join([*said[:_NAMED_MAX], *more])})"


def _overlap(policy: dict[str, Any], files: list[tuple[int, int]]) -> Iterator[str]:
    depth = policy["max_depth"]
    most = "no two of them share a key" if depth == 1 else f"at most {depth} of them share a key"
    yield f'{_sized(files)}: {most}; policy="full" merges them all the same'


def _size_tiered(policy: dict[str, Any], files: list[tuple[int, int]]) -> Iterator[str]:
    size, level = policy["mature_size"], policy["mature_level"]
    large = [file for file in files if file[0] >= size]
    if large:
        yield f"{_sized(large)}: large enough, from mature_size {human_bytes(size)} on"
    rest = [file for file in files if file[0] < size]
    often = [file for file in rest if file[1] >= level]
    if often:
        yield f"{_sized(often)}: merged often enough, from mature_level {level} on"
    for of, count in sorted(Counter(file[1] for file in rest if file[1] < level).items()):
        factor = policy["merge_factor"]
        few = [file for file in rest if file[1] == of]
        if policy["finalize"]:
            yield f"{_sized(few)} of level {of}: one merge made them"
        elif count < factor:
            yield (
                f"{_sized(few)} of level {of}: fewer than merge_factor {factor}; "
                "finalize=True merges them"
            )
        else:
            yield (
                f"{_sized(few)} of level {of}: fewer than merge_factor {factor} in each "
                "partition, or old enough"
            )


def _full(_policy: dict[str, Any], files: list[tuple[int, int]]) -> Iterator[str]:
    yield f"{_sized(files)}: one merge made all of each partition"


def _sized(files: Sequence[tuple[int, int]]) -> str:
    sizes = [human_bytes(size) for size in (min(files)[0], max(files)[0])]
    of = sizes[0] if sizes[0] == sizes[1] else f"{sizes[0]} to {sizes[1]}"
    return f"{_files(len(files))} of {of}"


_BY_POLICY: dict[str, Callable[[dict[str, Any], list[tuple[int, int]]], Iterator[str]]] = {
    "overlap": _overlap,
    "size_tiered": _size_tiered,
    "full": _full,
}
