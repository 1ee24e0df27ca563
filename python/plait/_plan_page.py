"""A plan as a page: outputs, facts, and a picture of sources and outputs.

JSON of a plan ─┬─▶ picture   before: sources; after: outputs, by their copy tiers
                └─▶ page      the picture, a line an output, overlap, keys, memory

Not here: how pictures and pages are drawn (`_picture`, `_text`).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from plait._layout import Span, cell_of, distances, laid_out
from plait._picture import TIER_WORDS, Picture, merged_times
from plait._report import _files, _regions, _sorted_by
from plait._text import Page, Table, Value, counted, human_bytes, human_key
from plait.report import TIERS


def picture(data: dict[str, Any], out: str | None) -> Picture:
    """Sources and outputs over the key axis; outputs go to `out`."""
    sources, tasks = data["sources"], data["tasks"]
    texts = _key_texts(sources, tasks)
    keys = sorted(texts)
    index = {key: i for i, key in enumerate(keys)}
    parts: list[dict[int, float]] = [{} for _ in sources]
    for number, task in enumerate(tasks):
        for piece in task["slices"]:
            rows = (sum(piece["end"]) - sum(piece["start"])) / 2
            parts[piece["source"]][number] = rows
    before = [
        Span(
            source["path"],
            merged_times(source["merge_level"]),
            cell_of(index[first]),
            cell_of(index[last]),
            source["rows"],
            part if tasks else None,
        )
        for source, part in zip(sources, parts, strict=True)
        for first, last in ((_key(source["first"]), _key(source["last"])),)
        if first and last
    ]
    after = []
    for task in tasks:
        low, high = _key(task["low"]), _key(task["high"])
        first = cell_of(index[low]) if low else 0
        last = cell_of(index[high]) - 1 if high else 2 * len(keys)
        name = _output_name(data, out, task["index"])
        after.append(Span(name, TIER_WORDS[_tier(task["tiers"])], first, last, task["rows"]))
    placed = laid_out([texts[key] for key in keys], distances(keys), before, after)
    return Picture(_title(data), str(data["sort_by"]), placed)


def page(data: dict[str, Any], out: str | None) -> Page:
    """What printing a plan prints."""
    sources, sort_by = data["sources"], str(data["sort_by"])
    rows = sum(source["rows"] for source in sources)
    drawn = picture(data, out)
    return Page(
        title=f"{_title(data)}: {counted(rows, 'row')} {_sorted_by(sort_by)}",
        drawing=drawn.text(),
        svg=drawn.svg(),
        tables=(_outputs(data["tasks"]),) if data["tasks"] else (),
        facts=tuple(_facts(data)),
        remarks=tuple(f"warning: {warning}" for warning in data["warnings"]),
    )


def _title(data: dict[str, Any]) -> str:
    sources, tasks = _files(len(data["sources"])), _files(len(data["tasks"]))
    return f"plan to merge {sources} into {tasks}"


def _outputs(tasks: list[dict[str, Any]]) -> Table:
    tiers = [tier for tier in TIERS if any(task["tiers"].get(tier) for task in tasks)]
    return Table(
        ("output", "rows", "bytes", "sources", "depth", *tiers),
        tuple(
            (
                f"{task['index']}",
                f"{task['rows']:,}" if task["rows_exact"] else f"about {task['rows']:,}",
                f"about {human_bytes(task['bytes'])}",
                len(task["slices"]),
                task["depth_max"],
                *(f"{task['tiers'].get(t, 0) / max(task['rows'], 1):.0%}" for t in tiers),
            )
            for task in tasks
        ),
    )


def _facts(data: dict[str, Any]) -> list[tuple[str, str]]:
    overlap, memory = data["overlap"], data["memory"]
    known = [source for source in data["sources"] if source["rows"]]
    by_footer = sum(source["keys_from"] == "footer" for source in known)
    footers = f"footers of {counted(by_footer, 'source')}"
    facts = [
        ("overlap", f"{_regions(overlap['regions'])}, {overlap['depth_max']:,} deep"),
        ("keys known", f"from {footers}, from rows of {len(known) - by_footer:,}"),
        (
            "memory",
            f"about {human_bytes(memory['needed_bytes'])} in one pass, limit "
            f"{human_bytes(memory['limit_bytes'])}: {memory['passes']} "
            + ("pass" if memory["passes"] == 1 else "passes"),
        ),
    ]
    if known:
        first = min(known, key=lambda source: _key(source["first"]) or b"")
        last = max(known, key=lambda source: _key(source["last"]) or b"")
        if first["key_min"]:
            facts += [
                ("first key", human_key(tuple(first["key_min"]))),
                ("last key", human_key(tuple(last["key_max"]))),
            ]
    return facts


def _key_texts(
    sources: list[dict[str, Any]], tasks: list[dict[str, Any]]
) -> dict[bytes, tuple[Value, ...]]:
    """The keys at the ends of sources and tasks, and their values."""
    texts: dict[bytes, tuple[Value, ...]] = {}
    task_ends = (("low", "key_low"), ("high", "key_high"))
    source_ends = (("first", "key_min"), ("last", "key_max"))
    for spans, ends in ((tasks, task_ends), (sources, source_ends)):
        for span in spans:
            for name, text in ends:
                if key := _key(span[name]):
                    texts[key] = tuple(span.get(text, ()))
    return texts


def _output_name(data: dict[str, Any], out: str | None, index: int) -> str:
    """The name of an output: that of a file, or the one that it will have in a folder."""
    if out is not None and out.endswith(".parquet"):
        return out
    return f"part-{index:05}-{data['task']}.parquet"


def _key(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return None


def _tier(tiers: dict[str, int]) -> str:
    return max(TIERS, key=lambda tier: (tiers.get(tier, 0), -TIERS.index(tier)))
