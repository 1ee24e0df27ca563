"""The options of a compaction: one object, from which signatures, checks and flags are derived.

CompactOptions ──┬─▶ __signature__ of every `compact…` function ──▶ flags of `plait compact`
                 ├─▶ policy   which files: as the engine takes it
                 ├─▶ limits   how much one run does
                 └─▶ merge    how they are merged: arguments of `plait.plan`

Not here: what goes with one call only: sessions, catalogs, `threads`, `guard`, `progress`.
"""

from __future__ import annotations

import datetime as dt
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, wraps
from typing import Any, Literal, SupportsIndex, TypedDict, TypeVar

from plait import _stores
from plait._checks import CHOICES as _MERGE_CHOICES
from plait._checks import (
    POLICY_CHECKS,
    Aggregates,
    OnDuplicate,
    StorageOptions,
    VersionBy,
    _at_least,
    _choice,
    _flag,
    _size,
    _time_span,
    _version_by,
)
from plait._native_call import _settings
from plait._now import at_moment
from plait._planning import checked_options
from plait.errors import InvalidArgument
from plait.order import SortBy, sort_text
from plait.sizes import Size

__all__ = [
    "CHOICES",
    "CompactOptions",
    "FolderOptions",
    "Limits",
    "LogOptions",
    "TableOptions",
    "Where",
    "takes",
]

# Partitions: the values that a partition column may have.
Where = Mapping[str, str | int | dt.date | Sequence[str | int | dt.date]]
Policy = Literal["size_tiered", "overlap", "full"]
Unsorted = Literal["error", "sort", "skip"]
Encoding = Literal["sources", "compatible", "smallest"]

CHOICES = {
    "policy": ("size_tiered", "overlap", "full"),
    "on_duplicate": _MERGE_CHOICES["on_duplicate"],
    "unsorted": _MERGE_CHOICES["unsorted"],
    "encoding": _MERGE_CHOICES["encoding"],
    "verify": _MERGE_CHOICES["verify"],
}


@dataclass(frozen=True)
class Limits:
    """How much one run of a compaction may do; `None` is no limit.

    Attributes:
        bytes: Bytes of files that are merged.
        groups: Number of groups.
        seconds: Time after which no group begins.
    """

    bytes: int | None
    groups: int | None
    seconds: float | None

    @property
    def is_open(self) -> bool:
        """Whether there is no limit."""
        return self == Limits(None, None, None)


@dataclass(frozen=True, kw_only=True)
class CompactOptions:
    """Options of a compaction: the same names and defaults through every call.

    Functions take them as keywords. `mature_age`, `on_duplicate`, `version_by`, `replace_columns`,
    `aggregate`, `delete_where` and `drop_where` are options of folders; Delta and Iceberg tables
    refuse them by name, and `across_schemas` too: their files are of one schema.

    Attributes:
        sort_by: Order of the files, as for `merge`; by default the one of the Iceberg table, or
            else the one that each file declares.
        policy: Which files are merged: files of one level, files that share keys, or all.
            `"size_tiered"` takes `merge_factor` files of a level at a time, so that a row is
            written once per level. `"overlap"` takes files that share a key with more than
            `max_depth`. `"full"` takes all.
        where: Partitions to compact, such as those of one day; all by default. `{"day":
            "2024-05-01"}` names one; a column may have several values, as a list. A number or a
            date stands for its text.
        across_schemas: Folders: whether files of different schemas are merged with one another, as
            `merge` does, if one schema has the columns of all of them without loss. A row lacks
            what its file lacked: it is null.
        max_bytes: How many bytes of files one run merges, such as `"10GB"`; all by default. Groups
            are merged in the order of their value: the files that readers open less, for a byte
            that is merged. A group that does not fit waits for another run, and is reported in
            `waiting`. The first group of a run is merged even if it is larger.
        max_groups: How many groups one run merges; all by default. See `max_bytes`.
        max_seconds: How long after its start a run begins no further group, such as `"10min"`; a
            number counts seconds. See `max_bytes`. The first group is merged in any case, and a
            group that was begun is finished. Groups are merged one after the other, on Spark, too.
        min_commit_interval: How long groups that are merged wait for others, to be replaced in one
            commit with them, such as `"10min"`; a number counts seconds. The time is looked at
            whenever a group is merged. With 0 each group is committed by itself, as soon as it is
            merged. What waits is committed when the last group is merged, and when an error ends
            the compaction; not on Ctrl-C.
        max_depth: Policy overlap: number of files that may share a key.
        merge_factor: Policy size_tiered: number of files of a level that make one of the next.
        merge_factor_max: Policy size_tiered: number of files that are taken if there are more.
        mature_size: Policy size_tiered: files of this size are left alone, such as `"1GB"`.
        mature_level: Policy size_tiered: files of this level are left alone.
        mature_age: Policy size_tiered: files of this age are left alone, such as `"7d"` or `"12h"`.
            A number counts seconds.
        finalize: Policy size_tiered: merge all files that are not mature, however few they are.
        target_file_size: Approximate size of an output file; with none, each group becomes one
            file.
        compression: See `merge`.
        encoding: See `merge`.
        server_side_copy: See `merge`.
        on_duplicate: See `merge`. Files that are read later are younger. If rows are dropped, files
            are merged only if that keeps the order of age.
        version_by: See `merge`.
        replace_columns: See `merge`.
        aggregate: See `merge`.
        delete_where: See `merge`. Tombstones stay until no other file can have a row that they
            delete.
        drop_where: See `merge`. A file with such a row is rewritten, whatever the policy; a file of
            such rows only is removed from the live files.
        unsorted: What to do with files that are not sorted. `"error"`: they are left alone; those
            whose ends do not show it are found when they are merged. `"sort"`: they are rewritten
            sorted, whatever the policy, with the files that it selects with them. `"skip"`: all of
            them are found and left alone before anything is merged. To `"sort"` and to `"skip"`
            reads all keys of files that do not tell their keys, as those of Plait do.
        verify: See `merge`.
        row_map: Delta and Iceberg: whether row maps of outputs stay, for `trace`. A compaction
            writes them in any case, and removes them after the commit. Groups with files that are
            not sorted have none.
        memory_limit: Memory for buffers of a merge, such as `"4G"`; 512 MB by default. On Spark it
            is the share of a task by default.
        storage_options: See `merge`.
        yes: Whether to compact. Otherwise the call is a dry run: the report says what would be
            merged first.
    """

    sort_by: SortBy | None = None
    policy: Policy = "overlap"
    where: Where | None = None
    across_schemas: bool = False
    max_bytes: Size | None = None
    max_groups: SupportsIndex | None = None
    max_seconds: str | float | None = None
    min_commit_interval: str | float = "1min"
    max_depth: SupportsIndex = 1
    merge_factor: SupportsIndex = 10
    merge_factor_max: SupportsIndex = 12
    mature_size: Size = "1GB"
    mature_level: SupportsIndex = 3
    mature_age: str | float | None = None
    finalize: bool = False
    target_file_size: Size | None = "128MB"
    compression: str | None = None
    encoding: Encoding = "sources"
    server_side_copy: bool = False
    on_duplicate: OnDuplicate = "keep_all"
    version_by: VersionBy | None = None
    replace_columns: Iterable[str] = ()
    aggregate: Aggregates | None = None
    delete_where: str | None = None
    drop_where: str | None = None
    unsorted: Unsorted = "error"
    verify: Literal["content"] | None = None
    row_map: bool = False
    memory_limit: Size | None = None
    storage_options: StorageOptions | None = None
    yes: bool = True

    def __post_init__(self) -> None:
        """Checks all of them, whether or not there is something to compact."""
        _flag(self.yes, "yes")
        _flag(self.row_map, "row_map")
        _flag(self.across_schemas, "across_schemas")
        if not _stores.is_store(self.storage_options):
            _settings(self.storage_options)
        _ = self.policy_options, self.partitions, self.limits, self.commit_interval_s
        checked_options({**self.merge_options, "verify": self.verify})

    @cached_property
    def policy_options(self) -> dict[str, Any]:
        """What the engine chooses files by."""
        if self.policy not in CHOICES["policy"]:
            choices = ", ".join(map(repr, CHOICES["policy"]))
            raise InvalidArgument.of(
                "`policy` has no such choice",
                got=f"`{self.policy!r}`",
                hint=f"give one of: {choices}",
            )
        age = self.mature_age
        return {
            "sort_by": sort_text(self.sort_by),
            "policy": self.policy,
            **{name: check(getattr(self, name), name) for name, check in POLICY_CHECKS.items()},
            "mature_age": None if age is None else _time_span(age, "mature_age"),
            "on_duplicate": _choice(self.on_duplicate, "on_duplicate"),
            "version_by": _version_by(self.version_by, "version_by"),
            "deletes": self.delete_where is not None,
            "across_schemas": self.across_schemas,
            "unsorted": _choice(self.unsorted, "unsorted"),
            **self._memory,
        }

    @cached_property
    def merge_options(self) -> dict[str, Any]:
        """How each group is merged: arguments of `plait.plan`."""
        given = {name: getattr(self, name) for name in _OF_MERGE}
        # Once, so that all groups and rounds of a compaction mean the same moment.
        return {**given, "drop_where": at_moment(self.drop_where), **self._memory}

    @cached_property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """The wanted values of each partition column that `where` names."""
        where: object = {} if self.where is None else self.where
        checked = {}
        for column, values in where.items() if isinstance(where, Mapping) else ((None, None),):
            texts = (values,) if isinstance(values, _TEXTS) else values
            if not (
                isinstance(column, str)
                and isinstance(texts, Sequence)
                and all(isinstance(t, _TEXTS) and not isinstance(t, bool) for t in texts)
            ):
                raise InvalidArgument.of(
                    "`where` does not name partitions",
                    got=f"`{where!r}`",
                    hint='give {"day": "2024-05-01"} or {"day": ["2024-05-01", "2024-05-02"]}',
                )
            checked[column] = tuple(map(str, texts))
        return checked

    @cached_property
    def limits(self) -> Limits:
        """How much one run may do."""
        span = self.max_seconds
        return Limits(
            _size(self.max_bytes, "max_bytes"),
            _at_least(1)(self.max_groups, "max_groups"),
            None if span is None else _time_span(span, "max_seconds"),
        )

    @cached_property
    def commit_interval_s(self) -> float:
        """How long groups wait for a commit."""
        return _time_span(self.min_commit_interval, "min_commit_interval")

    @property
    def has_commit_interval(self) -> bool:
        """Whether the caller says how long groups wait for a commit."""
        return self.min_commit_interval != CompactOptions.min_commit_interval

    @property
    def target_bytes(self) -> int | None:
        """About how large an output is; `None` if each group becomes one file."""
        return _size(self.target_file_size, "target_file_size")

    @property
    def _memory(self) -> dict[str, int | None]:
        limit = self.memory_limit
        return {} if limit is None else {"memory_limit": _size(limit, "memory_limit")}

    def check_format(self, kind: str) -> None:
        """Refuses options that tables of a format do not have.

        Raises:
            InvalidArgument: One of them differs from its default; names it.
        """
        other = _OF_LOGS if kind == "folder" else _OF_FOLDERS
        for option in fields(self):
            if option.name in other and getattr(self, option.name) != option.default:
                raise InvalidArgument.of(
                    f"`{option.name}` is not an option of the format", got=kind
                )


# Options of folders alone: they change rows, or need what a log does not say.
# Values of partitions, of which folders have the text.
_TEXTS = (str, int, dt.date)
_OF_FOLDERS = (
    *("across_schemas", "mature_age", "on_duplicate", "version_by", "replace_columns", "aggregate"),
    *("delete_where", "drop_where"),
)
_OF_LOGS = ("row_map",)
_OF_MERGE = (
    *("sort_by", "target_file_size", "compression", "encoding", "server_side_copy"),
    *(
        "on_duplicate",
        "version_by",
        "replace_columns",
        "aggregate",
        "delete_where",
        "drop_where",
        "storage_options",
    ),
)


class TableOptions(TypedDict, total=False):
    """Types of the keywords that all tables have; `CompactOptions` has defaults and meaning."""

    sort_by: SortBy | None
    policy: Policy
    where: Where | None
    max_bytes: Size | None
    max_groups: SupportsIndex | None
    max_seconds: str | float | None
    min_commit_interval: str | float
    max_depth: SupportsIndex
    merge_factor: SupportsIndex
    merge_factor_max: SupportsIndex
    mature_size: Size
    mature_level: SupportsIndex
    finalize: bool
    target_file_size: Size | None
    compression: str | None
    encoding: Encoding
    server_side_copy: bool
    unsorted: Unsorted
    verify: Literal["content"] | None
    memory_limit: Size | None
    storage_options: StorageOptions | None
    yes: bool


class LogOptions(TableOptions, total=False):
    """Types of the keywords that Delta and Iceberg tables have."""

    row_map: bool


class FolderOptions(LogOptions, total=False):
    """Types of the keywords that folders, or tables in their place, have."""

    across_schemas: bool
    mature_age: str | float | None
    on_duplicate: OnDuplicate
    version_by: VersionBy | None
    replace_columns: Iterable[str]
    aggregate: Aggregates | None
    delete_where: str | None
    drop_where: str | None


F = TypeVar("F", bound=Callable[..., Any])


def takes(keywords: type) -> Callable[[F], F]:
    """Gives a function with `**options` the signature that lists them, with their defaults.

    Args:
        keywords: `TableOptions`, or one that has more.
    """
    named = [f for f in fields(CompactOptions) if f.name in keywords.__annotations__]

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        keyword_only = inspect.Parameter.KEYWORD_ONLY
        listed = [
            *(p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD),
            *(
                inspect.Parameter(f.name, keyword_only, default=f.default, annotation=f.type)
                for f in named
            ),
        ]
        signature = own.replace(parameters=listed)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                what = f"{function.__name__}() {error}{_meant(kwargs, signature)}"
                raise TypeError(what) from None
            return function(*args, **kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _meant(given: Mapping[str, Any], signature: inspect.Signature) -> str:
    """What an unknown keyword was probably meant to be."""
    names = list(signature.parameters)
    for name in given:
        if name == "dry_run":
            return "; `yes=False` is a dry run"
        near = difflib.get_close_matches(name, names, 1) if name not in names else []
        if near:
            return f"; did you mean `{near[0]}`?"
    return ""
