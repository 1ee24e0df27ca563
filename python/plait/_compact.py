"""`compact`: merges files of a folder where a policy says so; `expire` removes what was replaced.

survey ──▶ groups ──▶ plan, execute into _plait/files ──▶ commit: one manifest ──▶ survey ──▶ ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path as LocalPath
from typing import Any, Literal, SupportsIndex

from plait import _native, _stores
from plait._api import _call
from plait._checks import CHOICES as _MERGE_CHOICES
from plait._checks import (
    POLICY_CHECKS,
    Path,
    StorageOptions,
    _choice,
    _count,
    _flag,
    _path,
    _size,
)
from plait._lease import Lease
from plait._observe import watched
from plait._plan import checked_options, leased, plan
from plait._report import _files, _PrintedReport, _Report
from plait._text import Page, Table, human_bytes
from plait.errors import (
    CorruptSource,
    ForeignTable,
    InvalidArgument,
    PlaitError,
    SourceChanged,
    SourceNotFound,
    UnknownColumn,
    UnsortedSource,
    UnsupportedKey,
    _by_file,
)
from plait.order import SortBy, sort_text
from plait.sizes import Size

__all__ = ["CompactReport", "CompactedGroup", "ExpireReport", "Skipped", "compact", "expire"]

CHOICES = {
    "policy": ("size_tiered", "overlap", "full"),
    "on_duplicate": _MERGE_CHOICES["on_duplicate"],
    "verify": _MERGE_CHOICES["verify"],
}

# What is wrong with one file, and leaves others as they are.
OF_A_FILE = (UnsortedSource, CorruptSource, UnknownColumn, UnsupportedKey)

# A policy of levels may go on with what it made; each round raises a level.
_ROUNDS_MAX = 64
_UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class CompactedGroup(_Report):
    """Files that were merged with one another, or would be.

    Attributes:
        folder: The folder of the files, below the one that was compacted.
        sort_by: Their order.
        sources: The files, in the order that breaks ties.
        rows: Their rows.
        bytes: Their bytes.
        depth_max: The most of them that share one key.
        outputs: The files that were made; `()` in a dry run.
        bytes_out: Their bytes.
        rows_dropped: Rows that did not stay, by reason.
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


@dataclass(frozen=True)
class Skipped(_Report):
    """A file that was left alone, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class CompactReport(_PrintedReport):
    """What a compaction did, or would do.

    Attributes:
        folder: The folder.
        policy: The policy.
        dry_run: Whether nothing was done.
        groups: Groups that were merged; in a dry run those that would be merged first.
        lost: How many groups others compacted meanwhile: what was made of them does not count.
        skipped: Files that were left alone, and why: such as those that are not sorted, or damaged.
        manifest: Number of the manifest that counts.
    """

    folder: str
    policy: str
    dry_run: bool
    groups: tuple[CompactedGroup, ...]
    lost: int
    skipped: tuple[Skipped, ...]
    manifest: int

    def _page(self) -> Page:
        sources = sum(len(group.sources) for group in self.groups)
        if not self.groups:
            title = f"{self.folder}: nothing to merge by policy {self.policy}"
        elif self.dry_run:
            title = (
                f"{self.folder}: would merge {_files(sources)} in {len(self.groups)} groups "
                f"by policy {self.policy}"
            )
        else:
            outputs = sum(len(group.outputs) for group in self.groups)
            title = f"{self.folder}: merged {_files(sources)} into {_files(outputs)}"
        groups = Table(
            ("folder", "order", "files", "depth", "rows", "bytes", "outputs"),
            tuple(
                (
                    group.folder or ".",
                    group.sort_by,
                    len(group.sources),
                    group.depth_max,
                    group.rows,
                    human_bytes(group.bytes),
                    len(group.outputs),
                )
                for group in self.groups
            ),
        )
        dropped = sorted(_dropped(self.groups).items())
        remarks = [f"dropped {rows:,} rows: {why}" for why, rows in dropped]
        remarks += [f"left alone: {skipped.path}: {skipped.why}" for skipped in self.skipped]
        if self.lost:
            remarks.append(f"{self.lost} groups were compacted by somebody else meanwhile")
        if self.dry_run and self.groups:
            remarks.append("nothing was done; pass yes=True, or --yes")
        return Page(title=title, tables=(groups,) if self.groups else (), remarks=tuple(remarks))


@dataclass(frozen=True)
class ExpireReport(_PrintedReport):
    """What `expire` removed, or would remove.

    Attributes:
        folder: The folder.
        dry_run: Whether nothing was done.
        replaced: Files that were replaced long enough ago.
        orphans: Files that a compaction made and never committed.
        kept: Files that were written later under the name of one that was replaced: they stay, and
            count from now on.
        bytes: Bytes of what was removed.
    """

    folder: str
    dry_run: bool
    replaced: tuple[str, ...]
    orphans: tuple[str, ...]
    kept: tuple[str, ...]
    bytes: int

    def _page(self) -> Page:
        did = "would remove" if self.dry_run else "removed"
        return Page(
            title=f"{self.folder}: {did} {_files(len(self.replaced))} that were replaced and "
            f"{_files(len(self.orphans))} that never counted, {human_bytes(self.bytes)}",
            remarks=(
                *(f"kept: {path} was written again, and counts" for path in self.kept),
                *(("nothing was done; pass yes=True, or --yes",) if self.dry_run else ()),
            ),
        )


def compact(
    folder: Path,
    *,
    policy: Literal["size_tiered", "overlap", "full"] = "size_tiered",
    sort_by: SortBy | None = None,
    max_depth: SupportsIndex = 1,
    merge_factor: SupportsIndex = 10,
    merge_factor_max: SupportsIndex = 12,
    mature_size: Size = "1GB",
    mature_level: SupportsIndex = 3,
    mature_age: str | float | None = None,
    finalize: bool = False,
    target_file_size: Size | None = None,
    compression: str | None = None,
    on_duplicate: Literal["keep_all", "keep_first", "keep_last", "error"] = "keep_all",
    version_by: str | None = None,
    delete_where: str | None = None,
    drop_where: str | None = None,
    verify: Literal["content"] | None = None,
    threads: SupportsIndex | None = None,
    memory_limit: Size = "512MB",
    storage_options: StorageOptions | None = None,
    yes: bool = False,
) -> CompactReport:
    """Merges files of a folder where a policy says so. A dry run unless `yes`.

    Files are merged only with files of the same folder (so of the same partition), schema and
    order. Outputs are written to `_plait/files` and count once a manifest in `_plait` names them,
    in one step. `merge`, `plan` and `scan` of the folder read what counts. What was replaced stays
    until `expire`. Compacting again when nothing is left to merge does nothing, and says so.

    A file that cannot be merged (not sorted, damaged, encrypted, without the sort column) is left
    alone and reported with the reason; the others are merged. A dry run reads footers and the first
    and last key, so it does not see what is wrong in between.

    Args:
        folder: A local folder, or a URL such as `s3://bucket/folder`.
        policy: `"size_tiered"`: files of one level, `merge_factor` at a time, so that a row is
            written once per level. `"overlap"`: files that share a key with more than `max_depth`.
            `"full"`: everything.
        sort_by: The order; each file's own by default.
        max_depth: For `"overlap"`: so many files may share a key.
        merge_factor: For `"size_tiered"`: so many files of a level make one of the next.
        merge_factor_max: As many are taken if they are there.
        mature_size: Files of this size are left alone by `"size_tiered"`.
        mature_level: Files of this level are left alone.
        mature_age: Files written so long ago are left alone: seconds, or `"7d"`, `"12h"`.
        finalize: Merge what is not mature, however few files there are.
        target_file_size: Outputs of about this size; one output a group by default.
        compression: See `merge`.
        on_duplicate: See `merge`. Files that are read later are younger; where not all rows stay,
            only files are merged that leave this so.
        version_by: See `merge`.
        delete_where: See `merge`. Rows that delete stay until no other file can have a row for
            them to delete.
        drop_where: See `merge`. A file with such a row is written again, whatever the policy, and
            one of such rows only counts no more.
        verify: See `merge`.
        threads: See `merge`.
        memory_limit: See `merge`.
        storage_options: See `merge`.
        yes: Whether to do it.

    Returns:
        The groups that were merged; in a dry run, those that would be merged first.

    Raises:
        ForeignTable: The folder is a table of Delta, Iceberg or Hudi, or has one in it.
        UnknownColumn: No file has the sort column.
        PlaitError: Anything that `merge` raises of more than one file.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> for part in range(3):
        ...     pq.write_table(pa.table({"k": [part, part + 5]}), f"part-{part}.parquet")
        >>> print(compact(".", policy="overlap", sort_by="k").groups[0].depth_max)
        3
        >>> len(compact(".", policy="overlap", sort_by="k", yes=True).groups)
        1
        >>> compact(".", policy="overlap", sort_by="k", yes=True).groups
        ()
    """
    if policy not in CHOICES["policy"]:
        choices = ", ".join(map(repr, CHOICES["policy"]))
        raise InvalidArgument.of(
            "`policy` has no such choice", got=f"`{policy!r}`", hint=f"give one of: {choices}"
        )
    root, store = _reached(_path(folder, "folder"), storage_options)
    _refuse_tables(root, storage_options)
    options = {
        "folder": root,
        "sort_by": sort_text(sort_by),
        "policy": policy,
        "max_depth": POLICY_CHECKS["max_depth"](max_depth, "max_depth"),
        "merge_factor": POLICY_CHECKS["merge_factor"](merge_factor, "merge_factor"),
        "merge_factor_max": POLICY_CHECKS["merge_factor_max"](merge_factor_max, "merge_factor_max"),
        "mature_size": _size(mature_size, "mature_size"),
        "mature_level": _count(mature_level, "mature_level"),
        "mature_age": None if mature_age is None else _seconds(mature_age, "mature_age"),
        "finalize": _flag(finalize, "finalize"),
        "on_duplicate": _choice(on_duplicate, "on_duplicate"),
        "version_by": version_by,
        "deletes": delete_where is not None,
        "memory_limit": _size(memory_limit, "memory_limit"),
    }
    _flag(yes, "yes")
    merge = {
        "target_file_size": target_file_size,
        "compression": compression,
        "on_duplicate": on_duplicate,
        "version_by": version_by,
        "delete_where": delete_where,
        "drop_where": drop_where,
        "verify": verify,
        "threads": threads,
        "memory_limit": memory_limit,
        "storage_options": store,
    }
    # What it says of rows is looked at by the survey, and so in a dry run, too.
    options["merge"] = checked_options(merge)
    with watched("compact") as call:
        report = _compact(options, merge, store, dry_run=not yes)
        sources = sum(len(group.sources) for group in report.groups)
        told = {"groups": len(report.groups), "lost": report.lost, "sources": sources}
        call.done({**told, "rows_dropped": _dropped(report.groups)})
    return report


def _compact(
    options: dict[str, Any], merge: dict[str, Any], store: object, *, dry_run: bool
) -> CompactReport:
    root = options["folder"]
    done: list[CompactedGroup] = []
    left: dict[str, str] = {}
    lost = rounds = 0
    while rounds < _ROUNDS_MAX:
        found = _call(_native.survey, {**options, "leave": left}, store, None)
        groups = [(scope, group) for scope in found["scopes"] for group in scope["groups"]]
        if dry_run or not groups:
            break
        left_before = len(left)
        with Lease(root, store, len(groups)) as lease:
            for scope, group in groups:
                try:
                    merged = _merge_group(root, scope, group, merge, lease)
                except OF_A_FILE as error:
                    left |= left_alone(error, [scope["files"][i]["path"] for i in group["files"]])
                    continue
                if merged is None:
                    lost += 1
                else:
                    done.append(merged)
        # What is left alone says nothing of how others are merged: it is no round.
        rounds += len(left) == left_before
    if dry_run:
        done = [_described(scope, group) for scope, group in groups]
    return CompactReport(
        folder=root,
        policy=options["policy"],
        dry_run=dry_run,
        groups=tuple(done),
        lost=lost,
        skipped=tuple(Skipped(**skipped) for skipped in found["skipped"]),
        manifest=found["manifest"],
    )


def left_alone(error: PlaitError, paths: Iterable[str]) -> dict[str, str]:
    """Files among `paths` that an error names, and why; raises it if it is about no one of them."""
    known = set(paths)
    found = {path: why for path, why in _by_file(error).items() if path in known}
    if not found:
        raise error
    return found


def _dropped(groups: Iterable[CompactedGroup]) -> Counter[str]:
    """Rows that did not stay in all groups, by reason."""
    dropped = Counter[str]()
    for group in groups:
        dropped.update(group.rows_dropped)
    return dropped


def _refuse_tables(root: str, storage_options: object) -> None:
    """Refuses local folders whose files a log of others counts, not a manifest."""
    if "://" in root or _stores.is_store(storage_options):
        return
    for kind, found in (
        ("Delta", LocalPath(root, "_delta_log").is_dir()),
        ("Iceberg", any(LocalPath(root, "metadata").glob("*.metadata.json"))),
    ):
        if found:
            error = ForeignTable.of(
                f"`{root}` is a table of {kind}, not a plain folder",
                hint=f"use plait.table.compact_{kind.lower()}",
            )
            error.path = root
            raise error


def _described(scope: dict[str, Any], group: dict[str, Any]) -> CompactedGroup:
    files = [scope["files"][i] for i in group["files"]]
    return CompactedGroup(
        folder=scope["folder"],
        sort_by=scope["sort_by"],
        sources=tuple(file["path"] for file in files),
        rows=sum(file["rows"] for file in files),
        bytes=sum(file["bytes"] for file in files),
        depth_max=group["depth_max"],
    )


def _merge_group(
    root: str, scope: dict[str, Any], group: dict[str, Any], merge: dict[str, Any], lease: Lease
) -> CompactedGroup | None:
    """Merges a group and commits; `None` if others have replaced a file of it."""
    files = [scope["files"][i] for i in group["files"]]
    gone = [{"name": file["name"], "footer": file["footer"]} for file in files]
    described, store = _described(scope, group), merge["storage_options"]
    change: dict[str, Any] = {"replace": gone}
    if group["why"] == "all_expired":
        # Nothing is left of these files: there is nothing to be made.
        dropped = {"expired": described.rows}
        is_done = lease.commit(change)["committed"]
        return replace(described, rows_dropped=dropped) if is_done else None
    try:
        made = plan(
            described.sources,
            sort_by=scope["sort_by"] or [],
            keep_tombstones=group["keep_tombstones"],
            **merge,
        )
        level = files[0]["merge_level"] if group["why"] == "expired" else None
        report = leased(made, lease.id, level).execute(scope["out"], if_exists="add")
    except (SourceChanged, SourceNotFound):
        # Somebody else may have replaced the files, and `expire` have removed them.
        asked = {"folder": root, **change, "check": True}
        if _call(_native.commit, asked, store, None)["counts"]:
            raise
        return None
    change["add"] = [output.path for output in report.outputs]
    if not lease.commit(change)["committed"]:
        return None
    return replace(
        described,
        outputs=tuple(output.path for output in report.outputs),
        bytes_out=sum(output.bytes for output in report.outputs),
        rows_dropped=report.rows_dropped,
    )


def expire(
    folder: Path,
    *,
    retention: str | float = "7d",
    storage_options: StorageOptions | None = None,
    yes: bool = False,
) -> ExpireReport:
    """Removes files of a folder that compactions replaced. A dry run unless `yes`.

    Args:
        folder: A folder that was compacted, or a URL.
        retention: How long ago a file must have been replaced: seconds, or `"7d"`, `"12h"`,
            `"30min"`. Who reads a list of files that is older than this finds files missing.
        storage_options: See `merge`.
        yes: Whether to do it.

    Returns:
        What was removed, or would be.

    Raises:
        StorageError: A file cannot be removed.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> for part in range(3):
        ...     pq.write_table(pa.table({"k": [part, part + 5]}), f"part-{part}.parquet")
        >>> done = compact(".", policy="full", sort_by="k", yes=True)
        >>> len(expire(".", retention=0, yes=True).replaced)
        3
    """
    root, store = _reached(_path(folder, "folder"), storage_options)
    _refuse_tables(root, storage_options)
    options = {
        "folder": root,
        "retention_s": _seconds(retention, "retention"),
        "yes": _flag(yes, "yes"),
    }
    done = _call(_native.expire, options, store, None)
    return ExpireReport(
        folder=root,
        dry_run=not yes,
        replaced=tuple(done["replaced"]),
        orphans=tuple(done["orphans"]),
        kept=tuple(done["kept"]),
        bytes=done["bytes"],
    )


def _reached(folder: str, storage_options: object) -> tuple[str, object]:
    """The folder and the settings that calls of the engine need: a store is looked at once."""
    if not _stores.is_store(storage_options):
        return folder, storage_options
    prefix, settings, bucket = _stores.reach(storage_options)
    return _stores.named(prefix, folder), settings if bucket is None else storage_options


def _seconds(value: object, name: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    if isinstance(value, str):
        text = value.strip()
        for unit, seconds in sorted(_UNITS_S.items(), key=lambda item: -len(item[0])):
            digits = text.removesuffix(unit).strip()
            if digits != text and digits.replace(".", "", 1).isdecimal():
                return float(digits) * seconds
        if text.replace(".", "", 1).isdecimal():
            return float(text)
    raise InvalidArgument.of(
        f"`{name}` is not a time span",
        got=f"`{value!r}`",
        hint='give seconds, or text such as "7d"',
    )
