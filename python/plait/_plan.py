"""A merge before it runs, as a value that can be looked at, stored, shared out, executed.

Plan ── tasks ──▶ one task, one output: here, there, in any order
 └───── to_json / from_json

Not here: how it is drawn (`_plan_page`), how it is made (`_planning`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BufferedIOBase, RawIOBase
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TextIO

from plait import _native, _plan_page, _plot
from plait._checks import Path, StorageOptions, _choice, _count, _flag, _path
from plait._native_call import OnProgress, _call, parsed
from plait._packed import PackedSources
from plait._picture import Picture
from plait._report import _PrintedReport, _Report
from plait._text import Page, Value
from plait.errors import InvalidArgument
from plait.report import MergeReport, MetadataConflict, Overlap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MemoryNeed", "Plan", "PlanSource", "Task"]


@dataclass(frozen=True)
class PlanSource(_Report):
    """A source of a plan.

    Attributes:
        path: Where it is.
        rows: Number of rows that are not deleted.
        bytes: Size of the file.
        row_groups: Number of row groups.
        merge_level: 1 + the highest level of the sources of the merge that wrote it; 0 for other
            files.
        key_min: First key, one value per sort column, `None` for a null; `()` without rows.
        key_max: Last key.
        keys_from: Where these keys were read: in the `"footer"` or in the `"rows"`.
        deleted: Number of rows that a deletion vector or a delete file deletes.
    """

    path: str
    rows: int
    bytes: int
    row_groups: int
    merge_level: int
    key_min: tuple[Value, ...]
    key_max: tuple[Value, ...]
    keys_from: str
    deleted: int = 0


@dataclass(frozen=True)
class MemoryNeed(_Report):
    """The limit, the approximate need of a merge in one pass, and the number of passes.

    Attributes:
        limit_bytes: The memory limit.
        needed_bytes: What a merge in one pass takes, about.
        passes: 1, or 2 where sources are merged in groups first.
        unpacked_bytes: Bytes of all pages of the sources, unpacked; `None` in plans of older
            versions.
    """

    limit_bytes: int
    needed_bytes: int
    passes: int
    unpacked_bytes: int | None = None


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
        return "".join(pieces_of(self))

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
        if isinstance(data["sources"], list) and "packed" not in data:
            data = _read(json.dumps(data))
        self._data = dict(data)
        if "packed" in data:  # else it is that of another plan
            self._data["sources"] = PackedSources(self._data.pop("packed"))
            slices = self._data.pop("slices")
            tasks = zip(data["tasks"], slices, strict=True)
            self._data["tasks"] = [{**task, "slices": of_task} for task, of_task in tasks]
        self._out = out
        self._storage_options = storage_options
        # Bytes of the memory limit, if others have the rest: see `sharing`.
        self._share_bytes: int | None = None

    @cached_property
    def sources(self) -> tuple[PlanSource, ...]:
        """The sources, in the order that breaks ties."""
        return tuple(PlanSource.from_dict(source) for source in self._parsed())

    def _parsed(self) -> Iterator[dict[str, Any]]:
        return map(json.loads, self._data["sources"])

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in key order: one output each."""
        return tuple(
            Task(
                index=task["index"],
                rows=task["rows"],
                rows_exact=task["rows_exact"],
                bytes=task["bytes"],
                sources=task["slices"].count('"source"'),  # not parsed: there may be a million
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
        return sum(source["rows"] for source in self._parsed())

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
            "plan": json.dumps({**self._data, "sources": self._data["sources"].packed()}),
            "out": _path(out, "out"),
            "tasks": None if tasks is None else [_count(task, "tasks") for task in tasks],
            "threads": _count(threads, "threads"),
            "verify": None if verify is None else _choice(verify, "verify"),
            "sha256": None if sha256 is None else _flag(sha256, "sha256"),
            "if_exists": None if if_exists is None else _choice(if_exists, "if_exists"),
            "memory_limit": self._data["options"]["memory_limit"],
            "share_bytes": self._share_bytes,
        }
        if storage_options is None:
            storage_options = self._storage_options
        return MergeReport.from_dict(_call(_native.execute, options, storage_options, progress))

    def to_json(self) -> str:
        """The plan as JSON; `docs/formats/plan.md` describes it. It holds no credentials."""
        return _json(self._data)

    def write_json(self, file: TextIO) -> None:
        """Writes the text of `to_json` to an open file, one source at a time.

        A plan has about 500 bytes a source, and this never holds the text of all of them.

        Args:
            file: Where to, open for text.

        Raises:
            InvalidArgument: `file` is a path, or open for bytes.
            OSError: What `file.write` raises.

        Example:
            >>> import pyarrow as pa, pyarrow.parquet as pq
            >>> pq.write_table(pa.table({"k": [1, 3]}), "a.parquet")
            >>> made = plait.plan("a.parquet", sort_by="k")
            >>> with open("plan.json", "w") as file:
            ...     made.write_json(file)
            >>> with open("plan.json") as file:
            ...     print(plait.Plan.from_json(file.read()).rows)
            2
        """
        if not hasattr(file, "writelines") or isinstance(file, (RawIOBase, BufferedIOBase)):
            raise InvalidArgument.of(
                "`file` is not a file that is open for text",
                got=f"`{file!r}`",
                hint='open it: `open("plan.json", "w")`',
            )
        file.writelines(_pieces(self._data))

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Reads a plan, or one task, from the JSON of `to_json`.

        Raises:
            Unsupported: The plan is of another version.
            InvalidArgument: The text is not a plan, or it contradicts itself.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        return cls(_read(text))

    @cached_property
    def _tasks_by_index(self) -> dict[int, dict[str, Any]]:
        return {task["index"]: task for task in self._data["tasks"]}

    def _only(self, index: int) -> dict[str, Any]:
        """The plan with one task, and the sources of that task; no other task is looked at.

        The sources can be iterated once.
        """
        task = self._tasks_by_index[index]
        sources = self._data["sources"]
        slices = json.loads(task["slices"])
        of_task = json.dumps([{**piece, "source": i} for i, piece in enumerate(slices)])
        return {
            **self._data,
            "sources": (sources[piece["source"]] for piece in slices),
            "tasks": [{**task, "slices": of_task}],
        }

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

    def _picture(self) -> Picture:
        return _plan_page.picture(self.to_dict(), self._named_out())

    def _page(self) -> Page:
        return _plan_page.page(self.to_dict(), self._named_out())

    def _named_out(self) -> str | None:
        return None if self._out is None else _path(self._out, "out")


def _read(text: str) -> dict[str, Any]:
    """What the engine makes of the JSON of a plan, as it gives plans."""
    return parsed(_native.read_plan(json.dumps({"plan": text})))


def _json(data: dict[str, Any]) -> str:
    """A plan whose sources and slices are JSON texts, as JSON."""
    return "".join(_pieces(data))


def _pieces(data: dict[str, Any]) -> Iterator[str]:
    """The text of that JSON, piece by piece: a line for each task and each source."""
    yield f'{_without(data, "tasks", "sources")}, "tasks": ['
    for place, task in enumerate(data["tasks"]):
        yield ",\n" if place else "\n"
        yield f'{_without(task, "slices")}, "slices": {task["slices"]}}}'
    yield '\n], "sources": ['
    for place, source in enumerate(data["sources"]):
        yield f",\n{source}" if place else f"\n{source}"
    yield "\n]}"


def _without(data: dict[str, Any], *names: str) -> str:
    """The text of JSON that goes on behind it, without these members."""
    return json.dumps({name: value for name, value in data.items() if name not in names})[:-1]


def entries(made: Plan) -> Iterator[dict[str, Any]]:
    """What the JSON of a plan says of each source. Unlike `sources`, it holds one at a time."""
    return made._parsed()  # noqa: SLF001


def token_of(made: Plan) -> str:
    """What the names of the outputs have of the plan."""
    return str(made._data["task"])  # noqa: SLF001


def pieces_of(task: Task) -> Iterator[str]:
    """The text of `task.to_json`, one source at a time."""
    return _pieces(task._plan._only(task.index))  # noqa: SLF001


def leased(made: Plan, lease: str) -> Plan:
    """The plan with outputs whose names have the id of a lease."""
    return _changed(made, {"lease": lease})


def needs(made: Plan, source_bytes: int) -> dict[str, Any]:
    """What the engine asks of a plan that may be executed next to others."""
    data = made._data  # noqa: SLF001
    return {"options": data["options"], "memory": data["memory"], "bytes": source_bytes}


def sharing(made: Plan, share_bytes: int) -> Plan:
    """The plan, to be executed within a part of its memory limit, with the same outputs."""
    shared = _changed(made, {})
    shared._share_bytes = share_bytes  # noqa: SLF001
    return shared


def with_level(made: Plan, merge_level: int) -> Plan:
    """The plan with outputs of another level."""
    return _changed(made, {"merge_level": merge_level})


def _changed(made: Plan, members: dict[str, Any]) -> Plan:
    data = {**made._data, **members}  # noqa: SLF001
    return Plan(data, out=made._out, storage_options=made.storage_options)  # noqa: SLF001
