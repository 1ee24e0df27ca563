"""What a call did: frozen values that print well, and survive JSON.

Every report has `from_dict`, `to_dict`, `__str__` (aligned text) and `_repr_html_` (for
notebooks). `from_dict` ignores keys it does not know, so reports of later versions still read.

Values of columns (keys, bounds) are numbers and booleans as such. Text, decimals, dates, times and
binary are text, as people read it; so are the numbers that JSON lacks, `NaN`, `inf` and `-inf`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait import _layout, _picture, _plot
from plait._report import _files, _PrintedReport, _regions, _Report, _sorted_by, _yes
from plait._text import Page, Table, Value, counted, human_bytes, human_key
from plait.inspected import ColumnReport, FileReport, RowGroupReport, ZoneColumn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Against",
    "ColumnReport",
    "Copied",
    "FileReport",
    "Memory",
    "MergeReport",
    "MetadataConflict",
    "OutputReport",
    "Overlap",
    "Progress",
    "RowGroupReport",
    "SortReport",
    "SourceReport",
    "Times",
    "VerifiedFile",
    "VerifyReport",
    "ZoneColumn",
]

# Copy tiers, cheapest first.
TIERS = ("chunk", "page", "dict", "value")


@dataclass(frozen=True)
class Progress:
    """The progress of a call.

    Attributes:
        consumed_bytes: Bytes of the sources read so far.
        total_bytes: Bytes to read in all; 0 until known.
        rows_written: Rows written so far.
        stage: The current stage: `"plan"`, `"sort"`, `"merge"`, `"publish"` or `"verify"`.
    """

    consumed_bytes: int
    total_bytes: int
    rows_written: int
    stage: str


@dataclass(frozen=True)
class SourceReport(_Report):
    """One source: where it is, and its rows, bytes and row groups.

    `span` has the places of its first and last key among those of all sources and outputs.
    """

    path: str
    rows: int
    bytes: int
    row_groups: int
    span: tuple[int, ...] | None = None


@dataclass(frozen=True)
class OutputReport(_Report):
    """One output file.

    Attributes:
        path: Where it was published.
        rows: Number of rows.
        bytes: Size of the file.
        row_groups: Number of row groups.
        key_min: First key, one value per sort column, `None` for a null; `()` without rows.
        key_max: Last key.
        sha256: Digest of the file's bytes, if it was asked for.
        oversized: Whether rows that must stay together made it exceed its target.
        span: Places of its first and last key among those of all sources and outputs.
        tiers: Rows by copy tier.
        row_map: Where its row map is, if there is one.
    """

    path: str
    rows: int
    bytes: int
    row_groups: int
    key_min: tuple[Value, ...]
    key_max: tuple[Value, ...]
    sha256: str | None = None
    oversized: bool = False
    span: tuple[int, ...] | None = None
    tiers: dict[str, int] = field(default_factory=dict)
    row_map: str | None = None


@dataclass(frozen=True)
class Copied(_Report):
    """Rows and stored bytes that one copy tier moved."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Overlap(_Report):
    """The number of regions, and the most sources that share a key."""

    regions: int
    depth_max: int


@dataclass(frozen=True)
class MetadataConflict(_Report):
    """A footer entry that was not simply copied.

    Attributes:
        key: Its name.
        kept: Whether the outputs have it: the first value, or one that was computed anew.
        files: The first file that has it, and one that differs.
        why: Why it was not copied.
    """

    key: str
    kept: bool
    files: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True)
class Times(_Report):
    """Seconds by stage, in all (`wall_s`), and of processor time (`cpu_s`, where known).

    Two say whether more threads would help. `idle_s` is the time that threads had nothing to do,
    all threads together; with `threads=1` it is 0. `column_s` is the time of the column that took
    longest, summed over outputs. One thread at a time makes a column; others only compress its
    pages. Rows are put in order (`order_s`) by one thread at a time, too. Seconds of stages are
    sums over outputs, several of which may be made at the same time.
    """

    plan_s: float = 0.0
    sort_s: float = 0.0
    order_s: float = 0.0
    weave_s: float = 0.0
    write_s: float = 0.0
    verify_s: float = 0.0
    idle_s: float = 0.0
    column_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float | None = None


@dataclass(frozen=True)
class Memory(_Report):
    """The limit, and the most that was accounted for at once."""

    limit_bytes: int
    peak_accounted_bytes: int


@dataclass(frozen=True)
class SortReport(_Report):
    """What became of sources that were not sorted.

    Attributes:
        unsorted: Paths of the sources that were not sorted: they were sorted, or left out.
        rows: Number of rows that were sorted; all other rows were in order.
        runs: Number of sorted runs that were merged; 0 if nothing had to be sorted.
    """

    unsorted: tuple[str, ...]
    rows: int
    runs: int

    def _line(self, of: int) -> str:
        """What became of `of` sources, and of the rows of those that were not sorted."""
        in_order = of - len(self.unsorted) if self.runs else of
        left = "1 file was in order" if in_order == 1 else f"{_files(in_order)} were in order"
        if not self.runs:
            skipped = f"; left out {_files(len(self.unsorted))}" if self.unsorted else ""
            return f"nothing sorted; {left}{skipped}"
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        runs = "1 sorted run" if self.runs == 1 else f"{self.runs:,} sorted runs"
        return f"sorted {rows} of {_files(len(self.unsorted))}; {left}; {runs}"


@dataclass(frozen=True)
class Metrics(_Report):
    """The bytes and requests of a merge.

    Attributes:
        bytes_read: Pages read, as stored, each time they are read: keys are read more than once.
        bytes_written: Size of all outputs.
        spilled_bytes: Size of sorted runs, of encoded chunks that waited on disk until their row
            group was complete, and of stored footers of many files.
        requests: Requests to object stores, including retries, without those of store objects that
            were passed in.
        failed_requests: Requests that reached no server, or that the server failed to answer.
        sent_bytes: Bytes sent to object stores.
        received_bytes: Bytes received from object stores.
        server_copied_bytes: Bytes that the store copied from sources to outputs itself.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    spilled_bytes: int = 0
    requests: int = 0
    failed_requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    server_copied_bytes: int = 0


@dataclass(frozen=True)
class MergeReport(_PrintedReport):
    """What a merge did.

    Attributes:
        sort_by: The order of the outputs; `""` is the empty order.
        rows_in: Rows of all sources.
        rows_out: Rows of all outputs; with `rows_dropped` they add up to `rows_in`.
        rows_dropped: Dropped rows by reason.
        sources: One entry per source, in the order that decides ties.
        outputs: One entry per output, in key order.
        copied: Rows and bytes by copy tier.
        overlap: How much the sources overlap.
        metadata_conflicts: Footer entries on which the sources differ.
        time: Seconds by stage.
        memory: Limit and peak.
        metrics: Bytes and requests.
        values_merged: Values of rows with one key that are not those of the last of these rows:
            taken from another one, or made of several.
        passes: 2 if `memory_limit` did not allow all sources, or sorted runs, at once; otherwise 1.
        sort: What was sorted or left out, with `unsorted="sort"` or `"skip"`.
        assumed_sorted: Whether the order of the sources was not checked.
        content_hash: Hash of all rows regardless of their order, with `verify="content"`.
        warnings: Warnings, one sentence each.
    """

    sort_by: str
    rows_in: int
    rows_out: int
    rows_dropped: dict[str, int]
    sources: tuple[SourceReport, ...]
    outputs: tuple[OutputReport, ...]
    copied: dict[str, Copied]
    overlap: Overlap
    metadata_conflicts: tuple[MetadataConflict, ...]
    time: Times
    memory: Memory
    metrics: Metrics = field(default_factory=Metrics)
    values_merged: int = 0
    passes: int = 1
    sort: SortReport | None = None
    assumed_sorted: bool = False
    content_hash: str | None = None
    warnings: tuple[str, ...] = ()

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draws sources and outputs over the key axis, and how deep they overlap.

        Needs matplotlib: `pip install 'plait[plot]'`.

        Args:
            path: Where to save the picture, by its ending as SVG, PNG or PDF; not saved if absent.
        """
        return _plot.plot(self._picture(), None if path is None else os.fspath(path))

    def _picture(self) -> _picture.Picture:
        def tier(output: OutputReport) -> str:
            most = max(output.tiers.values(), default=0)
            found = next((t for t in TIERS if output.tiers.get(t) == most), TIERS[-1])
            return _picture.TIER_WORDS[found]

        found = [*(s.span for s in self.sources), *(o.span for o in self.outputs)]
        spans = [span for span in found if span]
        keys: list[tuple[Value, ...]] = [()] * (max((span[1] for span in spans), default=-1) + 1)
        for output in self.outputs:
            if output.span:
                keys[output.span[0]] = output.key_min
                keys[output.span[1]] = output.key_max

        def span(file: SourceReport | OutputReport, kind: str) -> list[_layout.Span]:
            if not file.span:
                return []
            first, last = (_layout.cell_of(place) for place in file.span)
            return [_layout.Span(file.path, kind, first, last, file.rows)]

        before = [bar for source in self.sources for bar in span(source, _picture.SOURCE)]
        after = [bar for output in self.outputs for bar in span(output, tier(output))]
        placed = _layout.laid_out(keys, None, before, after)
        title = f"merged {_files(len(self.sources))} into {_files(len(self.outputs))}"
        return _picture.Picture(title, self.sort_by, placed)

    def _page(self) -> Page:
        outputs = Table(
            ("output", "rows", "bytes", "row groups", "first key", "last key"),
            tuple(
                (o.path, o.rows, o.bytes, o.row_groups, human_key(o.key_min), human_key(o.key_max))
                for o in self.outputs
            ),
        )
        time = self.time
        stages = ("plan", "sort", "order", "weave", "write", "verify")
        facts = [
            *(
                (f"copied by {tier}", f"{counted(copied.rows, 'row')}, {human_bytes(copied.bytes)}")
                for tier, copied in sorted(self.copied.items(), key=lambda c: TIERS.index(c[0]))
                if copied.rows
            ),
            *(
                (f"dropped as {reason}", counted(rows, "row"))
                for reason, rows in self.rows_dropped.items()
                if rows
            ),
            *([("merged by key", counted(self.values_merged, "value"))] * (self.values_merged > 0)),
            ("overlap", f"{_regions(self.overlap.regions)}, {self.overlap.depth_max:,} deep"),
            (
                "time",
                f"{time.wall_s:.2f} s"
                + ("" if time.cpu_s is None else f", processor {time.cpu_s:.2f} s")
                + " ("
                + ", ".join(f"{stage} {getattr(time, stage + '_s'):.2f}" for stage in stages)
                + ")",
            ),
            (
                "memory",
                f"peak {human_bytes(self.memory.peak_accounted_bytes)} of "
                + human_bytes(self.memory.limit_bytes),
            ),
        ]
        if self.content_hash is not None:
            facts.append(("content hash", self.content_hash))
        remarks = [f"warning: {warning}" for warning in self.warnings]
        if self.sort is not None:
            facts.insert(0, ("sort", self.sort._line(len(self.sources))))  # noqa: SLF001 - ours
            if self.sort.unsorted and not self.sort.runs:
                remarks.append("left out, because not sorted: " + ", ".join(self.sort.unsorted))
        if self.assumed_sorted:
            remarks.append("the order of the sources was assumed, not checked")
        remarks += [
            f"metadata `{conflict.key}` {conflict.why or 'differs'}: "
            + ("kept" if conflict.kept else "dropped")
            for conflict in self.metadata_conflicts
            if not any(f"`{conflict.key}`" in warning for warning in self.warnings)
        ]
        return Page(
            title=f"merged {_files(len(self.sources))} into {_files(len(self.outputs))}: "
            f"{counted(self.rows_out, 'row')} {_sorted_by(self.sort_by)}",
            svg=self._picture().svg(),
            tables=(outputs,) if self.outputs else (),
            facts=tuple(facts),
            remarks=tuple(remarks),
        )


@dataclass(frozen=True)
class VerifiedFile(_Report):
    """One file that was checked: its rows, first and last key, and whether it is sorted."""

    path: str
    rows: int
    key_min: tuple[Value, ...]
    key_max: tuple[Value, ...]
    sorted: bool


@dataclass(frozen=True)
class Against(_Report):
    """The files compared with: rows, hash, whether equal, and the columns that differ."""

    rows: int
    content_hash: str | None
    equal: bool
    columns_differ: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifyReport(_PrintedReport):
    """What a verification found.

    Attributes:
        ok: Whether all checks passed.
        sort_by: The order that was checked.
        rows: Rows of all files.
        files: One entry per file.
        disjoint: Whether no two files' key ranges overlap.
        content_hash: Hash of all rows regardless of their order.
        against: The comparison, if one was asked for.
        problems: Failed checks, one sentence each.
    """

    ok: bool
    sort_by: str
    rows: int
    files: tuple[VerifiedFile, ...]
    disjoint: bool
    content_hash: str | None = None
    against: Against | None = None
    problems: tuple[str, ...] = ()

    def _page(self) -> Page:
        files = Table(
            ("file", "rows", "sorted", "first key", "last key"),
            tuple(
                (f.path, f.rows, _yes(f.sorted), human_key(f.key_min), human_key(f.key_max))
                for f in self.files
            ),
        )
        facts = [("disjoint", _yes(self.disjoint))]
        if self.content_hash is not None:
            facts.append(("content hash", self.content_hash))
        if self.against is not None:
            same = f"{_yes(self.against.equal)} ({counted(self.against.rows, 'row')})"
            facts.append(("same rows", same))
            if self.against.columns_differ:
                facts.append(("differing columns", ", ".join(self.against.columns_differ)))
        return Page(
            title=f"{'verified' if self.ok else 'verification failed'}: "
            f"{_files(len(self.files))}, {counted(self.rows, 'row')} {_sorted_by(self.sort_by)}",
            tables=(files,) if self.files else (),
            facts=tuple(facts),
            remarks=tuple(f"problem: {problem}" for problem in self.problems),
        )
