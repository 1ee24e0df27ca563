"""`plan`: a merge before it runs, as a value that can be looked at, stored, shared out, executed.

plan(sources, ...) ──▶ Plan ── tasks ──▶ one task, one output: here, there, in any order
                         └──── to_json / from_json
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from plait import _layout, _native, _picture, _plot
from plait._checks import (
    BloomFilters,
    Path,
    Paths,
    Statistics,
    StorageOptions,
    _choice,
    _count,
    _flag,
    _path,
    merge_options,
)
from plait._native_call import OnProgress, _call
from plait._report import _files, _PrintedReport, _regions, _Report, _sorted_by
from plait._tables import with_tables
from plait._text import Page, Table, Value, counted, human_bytes, human_key
from plait.errors import InvalidArgument
from plait.order import SortBy
from plait.report import TIERS, MergeReport, MetadataConflict, Overlap
from plait.sizes import Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MemoryNeed", "Plan", "PlanSource", "Task", "execute_task", "plan"]


@dataclass(frozen=True)
class PlanSource(_Report):
    """A source of a plan.

    Attributes:
        path: Where it is.
        rows: Number of rows.
        bytes: Size of the file.
        row_groups: Number of row groups.
        merge_level: 1 + the highest level of the sources of the merge that wrote it; 0 for other
            files.
        key_min: First key, one value per sort column, `None` for a null; `()` without rows.
        key_max: Last key.
        keys_from: Where these keys were read: in the `"footer"` or in the `"rows"`.
    """

    path: str
    rows: int
    bytes: int
    row_groups: int
    merge_level: int
    key_min: tuple[Value, ...]
    key_max: tuple[Value, ...]
    keys_from: str


@dataclass(frozen=True)
class MemoryNeed(_Report):
    """The limit, the approximate need of a merge in one pass, and the number of passes."""

    limit_bytes: int
    needed_bytes: int
    passes: int


@dataclass(frozen=True)
class Task:
    """The work that makes one output.

    Attributes:
        index: Which output, from 0.
        rows: Its rows.
        rows_exact: Whether these are exact, or an estimate.
        bytes: Estimated size of the output: the size of its rows in the sources.
        sources: How many sources it reads.
        depth_max: The most sources that share one key.
        tiers: Estimated rows by copy tier.
        partition: The folder of the output, such as `day=2024-05-01/`; `""` without `partition_by`.
    """

    index: int
    rows: int
    rows_exact: bool
    bytes: int
    sources: int
    depth_max: int
    tiers: dict[str, int]
    partition: str
    _plan: Plan = field(repr=False, compare=False)

    @property
    def storage_options(self) -> StorageOptions | None:
        """Those that the plan was made with; no JSON has them."""
        return self._plan.storage_options

    def to_json(self) -> str:
        """The task alone, with the sources it needs: a plan of one output.

        `execute_task` executes it, in this process or another.
        """
        return json.dumps(_only(self._plan.to_dict(), self.index))

    def execute(self, out: Path | None = None, **options: Any) -> MergeReport:  # noqa: ANN401 - passed on
        """Executes the task; takes what `Plan.execute` takes but `tasks`."""
        return self._plan.execute(out, tasks=[self.index], **options)


class Plan(_PrintedReport):
    """A merge as a value. `print(plan)` draws it; `execute` runs it, as `merge` would.

    Executing the tasks in any order, in any process, any number of times, gives the same files.
    """

    def __init__(
        self,
        data: dict[str, Any],
        *,
        out: Path | None = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        """Wraps what the engine planned; users call `plan` or `Plan.from_json`."""
        self._data = data
        self._out = out
        self._storage_options = storage_options

    @cached_property
    def sources(self) -> tuple[PlanSource, ...]:
        """The sources, in the order that breaks ties."""
        return tuple(PlanSource.from_dict(source) for source in self._data["sources"])

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in key order: one output each."""
        return tuple(
            Task(
                index=task["index"],
                rows=task["rows"],
                rows_exact=task["rows_exact"],
                bytes=task["bytes"],
                sources=len(task["slices"]),
                depth_max=task["depth_max"],
                tiers=dict(task["tiers"]),
                partition=task.get("partition", ""),
                _plan=self,
            )
            for task in self._data["tasks"]
        )

    @property
    def storage_options(self) -> StorageOptions | None:
        """The `storage_options` of the call; the JSON of a plan lacks them."""
        return self._storage_options

    @property
    def sort_by(self) -> str:
        """The order, as text; `""` is the empty order."""
        return str(self._data["sort_by"])

    @property
    def rows(self) -> int:
        """Rows of all sources."""
        return sum(source.rows for source in self.sources)

    @property
    def overlap(self) -> Overlap:
        """Number of regions, and the most sources that share a key."""
        return Overlap.from_dict(self._data["overlap"])

    @property
    def memory(self) -> MemoryNeed:
        """Memory that executing a task needs, and the number of passes."""
        return MemoryNeed.from_dict(self._data["memory"])

    @property
    def metadata_conflicts(self) -> tuple[MetadataConflict, ...]:
        """Footer entries on which the sources differ."""
        return tuple(MetadataConflict.from_dict(c) for c in self._data["metadata_conflicts"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings, one sentence each."""
        return tuple(self._data["warnings"])

    def execute(
        self,
        out: Path | None = None,
        *,
        tasks: Iterable[SupportsIndex] | None = None,
        threads: SupportsIndex | None = None,
        verify: Literal["content"] | None = None,
        sha256: bool | None = None,
        if_exists: Literal["error", "add"] | None = None,
        storage_options: StorageOptions | None = None,
        progress: OnProgress | None = None,
    ) -> MergeReport:
        """Executes all tasks, or some. Options that are not given are those of the plan.

        Args:
            out: A folder, or one path that ends in `.parquet`.
            tasks: Indices of tasks; all by default. The outputs of one plan may be made one by one:
                they go to one folder under distinct names.
            threads: See `merge`.
            verify: Hash the rows of these tasks in and out: `"content"`.
            sha256: Whether to report a SHA-256 digest of every output.
            if_exists: See `merge`.
            storage_options: See `merge`. They are not part of a plan's JSON.
            progress: Called a few times a second with a `Progress`.

        Returns:
            The report of the merge; of the tasks that were executed, if these are not all.

        Raises:
            SourceChanged: A source changed since the plan was made; names it.
            PlaitError: Anything that `merge` raises.
        """
        out = self._out if out is None else out
        if out is None:
            raise InvalidArgument.of("`out` is missing", hint="name a folder or a .parquet file")
        options = {
            "plan": self.to_json(),
            "out": _path(out, "out"),
            "tasks": None if tasks is None else [_count(task, "tasks") for task in tasks],
            "threads": _count(threads, "threads"),
            "verify": None if verify is None else _choice(verify, "verify"),
            "sha256": None if sha256 is None else _flag(sha256, "sha256"),
            "if_exists": None if if_exists is None else _choice(if_exists, "if_exists"),
            "memory_limit": self._data["options"]["memory_limit"],
        }
        if storage_options is None:
            storage_options = self._storage_options
        return MergeReport.from_dict(_call(_native.execute, options, storage_options, progress))

    def to_json(self) -> str:
        """The plan as JSON; `docs/formats/plan.md` describes it. It holds no credentials."""
        return json.dumps(self._data)

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Reads a plan, or one task, from the JSON of `to_json`.

        Raises:
            Unsupported: The plan is of another version.
            InvalidArgument: The text is not a plan, or it contradicts itself.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        checked = json.loads(_native.read_plan(text))
        return cls(checked)

    def to_dict(self) -> dict[str, Any]:
        """The plan as dictionaries, lists, text and numbers."""
        data: dict[str, Any] = json.loads(self.to_json())
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Plan:
        """Builds the plan from the result of `to_dict`."""
        return cls.from_json(json.dumps(data))

    def plot(self, path: Path | None = None) -> Figure:
        """Draws sources and outputs over the key axis, and how deep they overlap.

        Needs matplotlib: `pip install 'plait[plot]'`.

        Args:
            path: Where to save the picture, by its ending as SVG, PNG or PDF; not saved if absent.
        """
        return _plot.plot(self._picture(), None if path is None else _path(path, "path"))

    def _picture(self) -> _picture.Picture:
        sources, tasks = self._data["sources"], self._data["tasks"]
        texts: dict[bytes, tuple[Value, ...]] = {}
        for ends, names in ((tasks, ("low", "high")), (sources, ("first", "last"))):
            texts_of = ("key_low", "key_high") if ends is tasks else ("key_min", "key_max")
            for end in ends:
                for name, text in zip(names, texts_of, strict=True):
                    if key := _key(end[name]):
                        texts[key] = tuple(end.get(text, ()))
        keys = sorted(texts)
        index = {key: i for i, key in enumerate(keys)}
        parts: list[dict[int, float]] = [{} for _ in sources]
        for number, task in enumerate(tasks):
            for piece in task["slices"]:
                rows = (sum(piece["end"]) - sum(piece["start"])) / 2
                parts[piece["source"]][number] = rows
        before = [
            _layout.Span(
                source.path,
                _picture.merged_times(source.merge_level),
                _layout.cell_of(index[first]),
                _layout.cell_of(index[last]),
                source.rows,
                parts[i] if tasks else None,
            )
            for i, (source, data) in enumerate(zip(self.sources, sources, strict=True))
            for first, last in ((_key(data["first"]), _key(data["last"])),)
            if first and last
        ]
        after, bounds = [], [(_key(task["low"]), _key(task["high"])) for task in tasks]
        for task, (low, high) in zip(self.tasks, bounds, strict=True):
            first = _layout.cell_of(index[low]) if low else 0
            last = _layout.cell_of(index[high]) - 1 if high else 2 * len(keys)
            name = self._output_name(task.index)
            after.append(
                _layout.Span(name, _picture.TIER_WORDS[_tier(task.tiers)], first, last, task.rows)
            )
        placed = _layout.laid_out(
            [texts[key] for key in keys], _layout.distances(keys), before, after
        )
        title = f"plan to merge {_files(len(sources))} into {_files(len(tasks))}"
        return _picture.Picture(title, self.sort_by, placed)

    def _output_name(self, index: int) -> str:
        """The name of an output: that of a file, or the one that it will have in a folder."""
        out = None if self._out is None else _path(self._out, "out")
        if out is not None and out.endswith(".parquet"):
            return out
        return f"part-{index:05}-{self._data['task']}.parquet"

    def _page(self) -> Page:
        def about(exact: bool, text: str) -> str:  # noqa: FBT001 - the value is the point
            return text if exact else f"about {text}"

        tiers = [tier for tier in TIERS if any(task.tiers.get(tier) for task in self.tasks)]
        outputs = Table(
            ("output", "rows", "bytes", "sources", "depth", *tiers),
            tuple(
                (
                    f"{task.index}",
                    about(task.rows_exact, f"{task.rows:,}"),
                    f"about {human_bytes(task.bytes)}",
                    task.sources,
                    task.depth_max,
                    *(f"{task.tiers.get(t, 0) / max(task.rows, 1):.0%}" for t in tiers),
                )
                for task in self.tasks
            ),
        )
        known = [source for source in self.sources if source.rows]
        by_footer = sum(source.keys_from == "footer" for source in known)
        footers = f"footers of {counted(by_footer, 'source')}"
        memory = self.memory
        facts = [
            ("overlap", f"{_regions(self.overlap.regions)}, {self.overlap.depth_max:,} deep"),
            ("keys known", f"from {footers}, from rows of {len(known) - by_footer:,}"),
            (
                "memory",
                f"about {human_bytes(memory.needed_bytes)} in one pass, limit "
                f"{human_bytes(memory.limit_bytes)}: {memory.passes} "
                + ("pass" if memory.passes == 1 else "passes"),
            ),
        ]
        if known:
            ends = zip(self.sources, self._data["sources"], strict=True)
            keyed = [
                (_key(d["first"]) or b"", _key(d["last"]) or b"", s) for s, d in ends if s.rows
            ]
            first = min(keyed, key=lambda end: end[0])[2]
            last = max(keyed, key=lambda end: end[1])[2]
            if first.key_min:
                facts += [
                    ("first key", human_key(first.key_min)),
                    ("last key", human_key(last.key_max)),
                ]
        return Page(
            title=f"plan to merge {_files(len(self.sources))} into {_files(len(self.tasks))}: "
            f"{counted(self.rows, 'row')} {_sorted_by(self.sort_by)}",
            drawing=self._picture().text(),
            svg=self._picture().svg(),
            tables=(outputs,) if self.tasks else (),
            facts=tuple(facts),
            remarks=tuple(f"warning: {warning}" for warning in self.warnings),
        )


def _key(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return None


def _tier(tiers: dict[str, int]) -> str:
    return max(TIERS, key=lambda tier: (tiers.get(tier, 0), -TIERS.index(tier)))


def leased(made: Plan, lease: str) -> Plan:
    """The plan with outputs whose names have the id of a lease."""
    return _changed(made, {"lease": lease})


def with_level(made: Plan, merge_level: int) -> Plan:
    """The plan with outputs of another level."""
    return _changed(made, {"merge_level": merge_level})


def _changed(made: Plan, members: dict[str, Any]) -> Plan:
    data = {**made.to_dict(), **members}
    return Plan(data, out=made._out, storage_options=made.storage_options)  # noqa: SLF001


def _only(data: dict[str, Any], index: int) -> dict[str, Any]:
    """The plan with one task, and the sources of that task."""
    task = next(task for task in data["tasks"] if task["index"] == index)
    needed = [piece["source"] for piece in task["slices"]]
    position = {source: i for i, source in enumerate(needed)}
    pieces = [{**piece, "source": position[piece["source"]]} for piece in task["slices"]]
    return {
        **data,
        "sources": [data["sources"][source] for source in needed],
        "tasks": [{**task, "slices": pieces}],
    }


def execute_task(task: Task | str | bytes, out: Path, **options: Any) -> MergeReport:  # noqa: ANN401 - passed on
    """Executes one task, in any process, from the JSON of `Task.to_json`.

    Args:
        task: The task, or its JSON.
        out: The folder of the outputs; the same for all tasks of a plan.
        options: Those of `Plan.execute` without `tasks`.

    Returns:
        The report of this one output.

    Raises:
        SourceChanged: A source changed since the plan was made; names it.
        PlaitError: Anything that `merge` raises.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 3]}), "a.parquet")
        >>> pq.write_table(pa.table({"k": [2, 4]}), "b.parquet")
        >>> made = plan(["a.parquet", "b.parquet"], sort_by="k", outputs=2)
        >>> tasks = [task.to_json() for task in made.tasks]
        >>> [execute_task(task, "merged").rows_out for task in tasks]
        [2, 2]
    """
    text = task.to_json() if isinstance(task, Task) else task
    return Plan.from_json(text).execute(out, **options)


def plan(
    sources: Paths,
    out: Path | None = None,
    *,
    sort_by: SortBy | None = None,
    outputs: SupportsIndex | None = None,
    target_file_size: Size | None = None,
    target_rows: SupportsIndex | None = None,
    cut_on: SupportsIndex | None = None,
    partition_by: Iterable[str] = (),
    partition_columns: Literal["drop", "keep"] = "drop",
    row_group_size: Size = "128MB",
    row_group_rows: SupportsIndex = 1_048_576,
    page_size: Size = "1MB",
    page_rows: SupportsIndex = 20_000,
    align_row_groups: SupportsIndex = 0,
    compression: str | None = None,
    dictionary: bool | None = None,
    data_page_version: Literal[1, 2] | None = None,
    bloom_filters: BloomFilters = (),
    value_sets: Iterable[str] = (),
    statistics: Statistics = "page",
    widen: Literal["lossless", "error"] = "lossless",
    missing: Literal["null", "error"] = "null",
    missing_keys: Literal["error", "null"] = "error",
    metadata_conflicts: Literal["first", "drop", "error"] = "drop",
    on_duplicate: Literal["keep_all", "keep_first", "keep_last", "error"] = "keep_all",
    version_by: str | None = None,
    delete_where: str | None = None,
    keep_tombstones: bool = False,
    drop_where: str | None = None,
    verify_order: Literal["bounds", "full"] = "full",
    verify_pages: Literal["checksum", "unpack"] = "checksum",
    unsorted: Literal["error", "sort", "skip"] = "error",
    assume_sorted: bool = False,
    trust_footers: bool = True,
    verify: Literal["content"] | None = None,
    sha256: bool = False,
    copy_tiers: Iterable[str] = ("chunk", "page", "dict"),
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    if_exists: Literal["error", "add"] = "error",
    empty_output: bool = True,
    storage_options: StorageOptions | None = None,
    progress: OnProgress | None = None,
) -> Plan:
    """Plans a merge without running it: reads footers, and keys where footers have none.

    Files that Plait wrote have keys in their footers: then no data page is read, unless the
    requested outputs are smaller than the distance between these keys. Of other files, one page of
    each key column is read at both ends, and a few pages for every output.

    Args:
        sources: See `merge`.
        out: Where `Plan.execute` writes to by default. It is not part of the plan.
        sort_by: See `merge`.
        outputs: See `merge`.
        target_file_size: See `merge`.
        target_rows: See `merge`.
        cut_on: See `merge`.
        partition_by: See `merge`.
        partition_columns: See `merge`.
        row_group_size: See `merge`.
        row_group_rows: See `merge`.
        page_size: See `merge`.
        page_rows: See `merge`.
        align_row_groups: See `merge`.
        compression: See `merge`.
        dictionary: See `merge`.
        data_page_version: See `merge`.
        bloom_filters: See `merge`.
        value_sets: See `merge`.
        statistics: See `merge`.
        widen: See `merge`.
        missing: See `merge`.
        missing_keys: See `merge`.
        metadata_conflicts: See `merge`.
        on_duplicate: See `merge`.
        version_by: See `merge`.
        delete_where: See `merge`.
        keep_tombstones: See `merge`.
        drop_where: See `merge`.
        verify_order: See `merge`.
        verify_pages: See `merge`.
        unsorted: See `merge`.
        assume_sorted: See `merge`.
        trust_footers: Whether keys in footers are trusted. If one is wrong, the task that finds it
            fails; plan again with `trust_footers=False`.
        verify: See `merge`.
        sha256: See `merge`.
        copy_tiers: See `merge`.
        threads: See `merge`.
        memory_limit: See `merge`.
        if_exists: See `merge`.
        empty_output: See `merge`.
        storage_options: See `merge`. The plan object keeps them, its JSON does not.
        progress: See `merge`.

    Returns:
        The plan: sources, tasks, what to expect. Printing it draws it.

    Raises:
        PlaitError: Anything that `merge` raises before it writes.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> pq.write_table(pa.table({"k": [1, 3]}), "a.parquet")
        >>> pq.write_table(pa.table({"k": [2, 4]}), "b.parquet")
        >>> made = plan(["a.parquet", "b.parquet"], sort_by="k", outputs=2)
        >>> [(task.rows, task.depth_max) for task in made.tasks]
        [(2, 2), (2, 2)]
        >>> made.execute("merged").rows_out
        4
    """
    options = merge_options(locals())

    def run(named: list[str]) -> dict[str, Any]:
        given = {**options, "sources": named}
        return _call(_native.plan, given, storage_options, progress)

    made = with_tables(run, options["sources"], storage_options)
    return Plan(made, out=out, storage_options=storage_options)


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `plan` as the engine takes them, and all of one value looked at by it.

    What is not among `given` is as `plan` has it.
    """
    options = merge_options({**(plan.__kwdefaults__ or {}), "sources": [], **given})
    _native.check(json.dumps({**options, "storage_options": {}}))
    return options


def plan_knowing(
    sources: Sequence[str],
    options: Mapping[str, Any],
    known: _native.Known | None,
    progress: OnProgress | None = None,
) -> Plan:
    """The same plan, of files of which parts were read before.

    Args:
        sources: The files.
        options: Arguments of `plan`, by name.
        known: What was read of some of the files; it is served instead of reading it again.
        progress: As for `plan`.
    """
    given: dict[str, Any] = {**(plan.__kwdefaults__ or {}), **options, "sources": sources}
    storage_options = given["storage_options"]
    made = _call(_native.plan, merge_options(given), storage_options, progress, known)
    return Plan(made, storage_options=storage_options)
