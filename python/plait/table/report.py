"""What a compaction reports.

CompactReport ── groups: CompactedGroup, what was merged
             ├── waiting: WaitingGroup, what is left for another run, and why
             └── skipped: Skipped, files that stay as they are, and why
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plait._report import _files, _PrintedReport, _Report
from plait._svg import Quantity, chart
from plait._text import Advice, Page, Table, counted, human_bytes
from plait.table.reasons import APART

__all__ = ["CompactReport", "CompactedGroup", "Skipped", "WaitingGroup"]


@dataclass(frozen=True)
class CompactedGroup(_Report):
    """Files that were merged with one another, or would be.

    Attributes:
        folder: Their partition: a folder below the one that was compacted, such as `day=1`.
        sort_by: Their order.
        sources: The files, in the order that breaks ties.
        rows: Number of their rows.
        bytes: Sum of their sizes.
        depth_max: The most of them that share one key.
        outputs: The files that were written; `()` in a dry run.
        bytes_out: Sum of the sizes of the outputs.
        rows_dropped: Number of rows that did not stay, by reason.
        unsorted: Which of the files were not sorted, and were sorted.
    """

    folder: str
    sort_by: str
    sources: tuple[str, ...]
    rows: int
    bytes: int
    depth_max: int
    outputs: tuple[str, ...] = ()
    bytes_out: int = 0
    rows_dropped: dict[str, int] = field(default_factory=dict)
    unsorted: tuple[str, ...] = ()


@dataclass(frozen=True)
class WaitingGroup(_Report):
    """Files that are to be merged with one another, by another run.

    Attributes:
        folder: Their partition, as in `CompactedGroup`.
        sources: The files.
        rows: Number of their rows.
        bytes: Sum of their sizes.
        depth_max: The most of them that share one key.
        why: The limit of this run that they exceed.
    """

    folder: str
    sources: tuple[str, ...]
    rows: int
    bytes: int
    depth_max: int
    why: str


@dataclass(frozen=True)
class Skipped(_Report):
    """A file that stays as it is, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class CompactReport(_PrintedReport):
    """What a compaction did, or would do.

    Attributes:
        table: The folder or table.
        format: `"folder"`, `"delta"` or `"iceberg"`.
        policy: The policy.
        dry_run: Whether nothing was done.
        groups: Groups that were merged; in a dry run those that would be merged first.
        lost: Number of groups whose files another writer replaced first: their outputs are not
            live.
        skipped: Files that were not merged, such as unsorted or damaged ones, and the reason.
        version: Number of the current manifest or version, or id of the current snapshot.
        files_before: Number of live files that were looked at first, with those left alone;
            `None` for sources that are merged into a folder of their own.
        files: Number of them at the end.
        reasons: Why the files of `files` are not merged (any more), one sentence each.
        notes: Deviations from the usual course, one sentence each.
        waiting: Groups that `max_bytes`, `max_groups` or `max_seconds` leave to another run, the
            most valuable first; further ones may follow from what that makes.
    """

    table: str
    format: str
    policy: str
    dry_run: bool
    groups: tuple[CompactedGroup, ...]
    lost: int
    skipped: tuple[Skipped, ...]
    version: int
    files_before: int | None = None
    files: int | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    waiting: tuple[WaitingGroup, ...] = ()

    @property
    def folder(self) -> str:
        """The former name of `table`."""
        return str(self._renamed("folder", "table"))

    @property
    def manifest(self) -> int:
        """The former name of `version`."""
        return int(self._renamed("manifest", "version"))

    @property
    def rows_dropped(self) -> dict[str, int]:
        """Number of rows that did not stay in all groups, by reason."""
        dropped = Counter[str]()
        for group in self.groups:
            dropped.update(group.rows_dropped)
        return dict(sorted(dropped.items()))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values; that of a folder has the former names, too."""
        former = {"folder": self.table, "manifest": self.version}
        return {**super().to_dict(), **(former if self.format == "folder" else {})}

    def shown_as(self, names: Sequence[str]) -> CompactReport:
        """The report once outputs are ordinary files, which are among the files `names`."""
        root = self.table.rstrip("/")

        def now(path: str) -> str:
            own = path.rsplit("/", 1)[-1]
            shown = (f"{root}/{name}" for name in names if name.endswith(own))
            return next(shown, path)

        groups = (replace(of, outputs=tuple(map(now, of.outputs))) for of in self.groups)
        note = "the folder was exchanged in one step, and has no replaced file"
        notes = (*self.notes, *((note,) if names or self.groups else ()))
        return replace(self, groups=tuple(groups), notes=notes)

    def _renamed(self, old: str, new: str) -> Any:  # noqa: ANN401 - text or a number
        text = f"`CompactReport.{old}` is now `{new}`"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
        return getattr(self, new)

    def _page(self) -> Page:
        sources = sum(len(group.sources) for group in self.groups)
        if not self.groups and self.waiting:
            title = f"{self.table}: merged nothing"
        elif not self.groups:
            title = f"{self.table}: nothing to merge by policy {self.policy}"
        elif self.dry_run:
            title = (
                f"{self.table}: would merge {_files(sources)} in {_groups(len(self.groups))} "
                f"by policy {self.policy}"
            )
        else:
            outputs = sum(len(group.outputs) for group in self.groups)
            title = f"{self.table}: merged {_files(sources)} into {_files(outputs)}"
            if self.files and self.files_before not in (None, sources):
                title += f"; {_files(self.files_before or 0)} are now {self.files:,}"
        # How many files a group becomes is found when it is merged.
        outputs_too = () if self.dry_run else ("outputs",)
        groups = Table(
            ("folder", "order", "files", "depth", "rows", "bytes", *outputs_too),
            tuple(
                (
                    group.folder or ".",
                    group.sort_by,
                    len(group.sources),
                    group.depth_max,
                    group.rows,
                    human_bytes(group.bytes),
                    *(len(group.outputs) for _ in outputs_too),
                )
                for group in self.groups
            ),
        )
        counts = [
            quantity
            for group in self.groups
            for quantity in (
                Quantity(
                    group.folder or ".", len(group.sources), f"{_files(len(group.sources))} before"
                ),
                *(
                    []
                    if self.dry_run
                    else [Quantity("", len(group.outputs), f"{_files(len(group.outputs))} now", 1)]
                ),
            )
        ]
        remarks = [
            f"dropped {counted(rows, 'row')}: {why}" for why, rows in self.rows_dropped.items()
        ]
        unsorted = sum(len(group.unsorted) for group in self.groups)
        if unsorted:
            are, were = ("is", "was") if unsorted == 1 else ("are", "were")
            did = f"sorted {_files(unsorted)} that {were} not sorted"
            would = f"would sort {_files(unsorted)} that {are} not sorted"
            remarks.insert(0, would if self.dry_run else did)
        remarks += self.notes
        if not self.groups:
            remarks += map(Advice, self.reasons)
            remarks += ["there is no Parquet file"] if self.files == 0 else []
        else:
            # Of what was merged there is no more to say.
            remarks += [Advice(why) for why in self.reasons if APART in why]
        remarks += _left_alone(self.skipped)
        if any(file.why.startswith(_UNSORTED) for file in self.skipped):
            remarks.append(Advice('unsorted="sort" sorts and merges files that are not sorted'))
        remarks += _waiting(self.waiting)
        if self.lost:
            were = "was" if self.lost == 1 else "were"
            remarks.append(f"{_groups(self.lost)} {were} compacted by another process first")
        if self.dry_run and self.groups:
            remarks.append("a dry run: nothing was done")
        return Page(
            title=title,
            svg=chart("Files by folder", counts),
            tables=(groups,) if self.groups else (),
            remarks=tuple(remarks),
        )


# How the reason of a file begins that is not sorted.
_UNSORTED = "key goes backwards"
# So many files that are left alone for one reason are named.
_NAMED_MAX = 5


def _groups(count: int) -> str:
    return counted(count, "group")


def _waiting(waiting: tuple[WaitingGroup, ...]) -> list[str]:
    """One line for the groups that one limit leaves to another run."""
    by_why: dict[str, list[WaitingGroup]] = {}
    for group in waiting:
        by_why.setdefault(group.why, []).append(group)
    return [
        f"left to another run: {_groups(len(groups))} of "
        f"{_files(sum(len(group.sources) for group in groups))}, "
        f"{human_bytes(sum(group.bytes for group in groups))}: {why}"
        for why, groups in by_why.items()
    ]


def _left_alone(skipped: tuple[Skipped, ...]) -> list[str]:
    """One line for a file; files of one reason together, where they are several."""
    by_why: dict[str, list[str]] = {}
    for file in skipped:
        by_why.setdefault(file.why, []).append(file.path)
    lines: list[str] = []
    for why, paths in by_why.items():
        if len(paths) == 1:
            lines.append(Advice(why, f"left alone: {paths[0]}: "))
            continue
        more = len(paths) - _NAMED_MAX
        named = [*paths[:_NAMED_MAX], *([f"and {more:,} more"] if more > 0 else [])]
        lines += [Advice(why, f"left alone, {_files(len(paths))}: "), "  " + "\n  ".join(named)]
    return lines
