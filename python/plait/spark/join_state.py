"""Where a join on Spark keeps its state: versions of shards, and commits that say which count.

    checkpoint/plait-join/
        join.json                      what is joined with what
        commit-0000000007.json         batch 7: the versions that count, the changes it made
        rows/3/0000000007-5f…/state    shard 3 after batch 7, by foreign key, and its changes
        places/3/0000000007-5f…/state  shard 3 of the index from primary to foreign keys
        temp/0000000007-5f…-…          what a task is writing

    version 6 ── links ──▶ temp ── one step ──▶ temp ── rename ──▶ version 7

Invariants: a version is never written to once it has its name; of several attempts at a version the
first to rename wins, and all of them hold the same rows; a batch has one commit. What no commit of
the last two batches names is swept before the next.
Cost: a link for every file of a shard, and what the step itself writes.
Not here: what a step does (`join_step`).
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from plait.errors import CorruptSource, InvalidArgument, StorageError, Unsupported
from plait.spark.folder import place_of

FOLDER = "plait-join"
STATE = "state"
_FORMAT = "plait-join"
_VERSION = 1
# Of the state's files: held by one process, so never shared between versions.
_LOCK = ".lock"


@dataclass(frozen=True)
class Commit:
    """What counts after a batch.

    Attributes:
        batch: The batch.
        query: Spark's id of the query, that of all runs of one checkpoint.
        places: Versions of the shards of the index, by shard.
        rows: Versions of the shards of the rows, by shard.
        changes: Parquet files with the changes of the batch, below the folder.
        count: How many changes these are.
        told: Sums over the shards that changed, for those who watch.
    """

    batch: int
    query: str
    places: dict[str, str] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    count: int = 0
    told: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One try of a driver at a batch, as it travels to tasks.

    Attributes:
        root: The folder.
        batch: The batch.
        name: Tells this try from others: names of versions are made of it, never of an attempt.
        places: Versions before the batch, by shard.
        rows: The same of rows.
    """

    root: str
    batch: int
    name: str
    places: dict[str, str]
    rows: dict[str, str]

    @contextmanager
    def version(self, kind: str, shard: int) -> Iterator[Path]:
        """A folder that becomes the next version of a shard when the block ends without an error.

        Its `state` is that of the version before, by links: files that exist are not written to.

        Raises:
            StorageError: The version before is not there, or this one cannot be written.
        """
        temp = Path(self.root, "temp", f"{self.name}-{uuid.uuid4().hex}")
        before = getattr(self, kind).get(str(shard))
        try:
            (temp / STATE).mkdir(parents=True)
            if before is not None:
                _link(Path(self.root, kind, str(shard), before, STATE), temp / STATE)
            yield temp
            final = Path(self.root, kind, str(shard), self.name)
            final.parent.mkdir(parents=True, exist_ok=True)
            _sync(temp / STATE)
            _sync(temp)
            try:
                temp.rename(final)
            except OSError:
                # Another attempt of this task was first; it holds the same rows.
                if not final.is_dir():
                    raise
            _sync(final.parent)
        except OSError as cause:
            if isinstance(cause, StorageError):
                raise
            raise StorageError.of(
                f"a shard of the join cannot be written: {cause.strerror}",
                got=f"`{cause.filename}`",
                hint="drivers and executors must see the checkpoint under one path",
            ) from cause
        finally:
            shutil.rmtree(temp, ignore_errors=True)


class Store:
    """The folder of a join, as the driver sees it."""

    def __init__(self, checkpoint: str, options: dict[str, Any]) -> None:
        """Opens the folder, or makes it, for a join with these options.

        Raises:
            InvalidArgument: The folder is that of a join with other options.
            Unsupported: The checkpoint is a URL, or of another version.
        """
        self.root = Path(checkpoint) / FOLDER
        options = {"format": _FORMAT, "version": _VERSION, **options}
        path = self.root / "join.json"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            _put(self.root, path.name, options)
            found = json.loads(path.read_text(encoding="utf-8"))
        except OSError as cause:
            if isinstance(cause, StorageError):
                raise
            raise StorageError.of(
                f"the checkpoint cannot be written: {cause.strerror}", got=f"`{path}`"
            ) from cause
        except ValueError as cause:
            raise CorruptSource.of(
                "the options of the join are not JSON", got=f"`{path}`"
            ) from cause
        if found.get("format") != _FORMAT or found.get("version") != _VERSION:
            raise Unsupported.of(
                "another version of Plait wrote the checkpoint",
                got=f"{found.get('format')} {found.get('version')}",
            )
        for name, value in json.loads(json.dumps(options)).items():
            if found.get(name) != value:
                raise InvalidArgument.of(
                    f"the checkpoint is that of a join with another `{name}`",
                    got=f"`{value!r}`, and there `{found.get(name)!r}`",
                    hint="give what the checkpoint has, or start with a new checkpoint",
                )

    def commits(self) -> list[int]:
        """The batches that have a commit, in order."""
        names = (path.stem.partition("-")[2] for path in self.root.glob("commit-*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def last(self, query: str) -> Commit | None:
        """The last commit, `None` before the first.

        Raises:
            InvalidArgument: It is that of another query.
            CorruptSource: It cannot be read.
        """
        batches = self.commits()
        return self.read(batches[-1], query) if batches else None

    def read(self, batch: int, query: str) -> Commit:
        """The commit of a batch."""
        path = self._path(batch)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            commit = Commit(**{**found, "changes": tuple(found["changes"])})
        except (OSError, ValueError, TypeError, KeyError) as cause:
            raise CorruptSource.of("a commit of the join is damaged", got=f"`{path}`") from cause
        if commit.query != query:
            raise InvalidArgument.of(
                "the state is that of another query",
                got=f"query {query}, and there {commit.query}",
                hint="Spark's own part of the checkpoint was removed: remove all of it",
            )
        return commit

    def commit(self, commit: Commit) -> Commit:
        """Makes a batch count, unless it does already; gives the commit that counts."""
        if _put(self.root, self._path(commit.batch).name, asdict(commit)):
            return commit
        return self.read(commit.batch, commit.query)

    def step(self, batch: int, last: Commit | None) -> Step:
        """Begins a batch after the last commit; sweeps what nothing names any more."""
        name = f"{batch:010}-{uuid.uuid4().hex[:12]}"
        step = Step(
            str(self.root),
            batch,
            name,
            {} if last is None else last.places,
            {} if last is None else last.rows,
        )
        self.sweep(last)
        return step

    def made(self, step: Step, kind: str) -> dict[str, str]:
        """The versions after a step: those it made, and those of shards without changes."""
        made = {path.parent.name: step.name for path in (self.root / kind).glob(f"*/{step.name}")}
        return {**getattr(step, kind), **made}

    def sweep(self, last: Commit | None) -> int:
        """Removes versions, changes and drafts that the last commit does not name; counts them."""
        count = 0
        for kind in ("places", "rows"):
            named = {} if last is None else getattr(last, kind)
            for path in (self.root / kind).glob("*/*"):
                # The changes of the last batch lie in versions that it names.
                if named.get(path.parent.name) != path.name:
                    shutil.rmtree(path, ignore_errors=True)
                    count += 1
        kept = {Path(name).parent.name for name in (last.changes if last else ())}
        for path in [*(self.root / "temp").glob("*"), *(self.root / "moved").glob("*")]:
            if path.parent.name != "moved" or path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)
                count += 1
        for batch in self.commits()[:-2]:
            self._path(batch).unlink(missing_ok=True)
        return count

    def _path(self, batch: int) -> Path:
        return self.root / f"commit-{batch:010}.json"


def _put(root: Path, name: str, value: object) -> bool:
    return place_of(str(root)).put_new(name, json.dumps(value).encode())


def _link(there: Path, here: Path) -> None:
    """Gives the files of a state second names; copies them where the file system has no links."""
    for path in there.iterdir():
        if path.name == _LOCK or not path.is_file():
            continue
        try:
            os.link(path, here / path.name)
        except OSError:
            if not path.exists():
                raise
            _sync(Path(shutil.copyfile(path, here / path.name)))


def _sync(path: Path) -> None:
    """Makes a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
