"""A folder of sorted runs as writers and scans see it: which files count, and commits in one step.

    _plait/files/run-….parquet     written by a task; counts once a manifest names it
    _plait/manifest-….json         what counts
    _plait/batches/<query>/….json  what a micro-batch wrote, decided once
    .plait-batches/<query>/…       a batch that is not added yet

The folder is a local or mounted one, or one of objects, by its URL.

Invariants: what counts changes by a manifest, all at once; a file that nobody names does no harm
and is swept by `plait.expire`.
Not here: manifests themselves (`docs/formats/manifest.md`).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from plait import _native
from plait._lease import end, take
from plait._native_call import _call
from plait._plan import plan
from plait._tables import listed as _listed
from plait._tables import with_tables
from plait.errors import SourceChanged, StorageError
from plait.spark.objects import Objects
from plait.spark.settings import is_url

FOLDER = "_plait"
FILES = f"{FOLDER}/files"
_TOKENS = ".plait-batches"
_TRIES = 20
# How long the tasks of a write may take before `expire` takes it for dead: as long as orphans of
# Iceberg tables are left alone. Drivers of Spark write by several processes; none has a lock.
_TERM_S = 3 * 86_400.0


Settings = Mapping[str, str] | None


@dataclass(frozen=True)
class Local:
    """A folder on a disk: names below it, and files of JSON that are there whole or not at all."""

    root: str
    suffix = ".json"

    def located(self, name: str) -> str:
        """The path of a file below the folder."""
        return str(self._at(name))

    def exists(self, name: str) -> bool:
        """Whether there is a file."""
        return self._at(name).exists()

    def names(self, below: str = "") -> list[str]:
        """Names of all files below the folder, or some of them."""
        found = sorted(path for path in self._at(below).rglob("*") if not path.is_dir())
        return [str(path.relative_to(self.root)) for path in found]

    def touch(self, name: str) -> None:
        """Makes an empty file."""
        _touch(self._at(name))

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        self._at(name).unlink(missing_ok=True)

    def put(self, name: str, value: object) -> bool:
        """Writes a value where there is none, whole or not at all."""
        self._at(name).parent.mkdir(parents=True, exist_ok=True)
        return _put(self._at(name), value)

    def get(self, name: str) -> Any:  # noqa: ANN401 - any JSON
        """The value that was put."""
        return json.loads(self._at(name).read_text(encoding="utf-8"))

    def replace(self, name: str, value: object) -> None:
        """Writes a value over another."""
        _replace(self._at(name), value)

    @contextmanager
    def created(self, name: str) -> Iterator[IO[bytes]]:
        """A new file, which is durable when the block ends; `name` is nobody else's."""
        path = self._at(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def _at(self, name: str) -> Path:
        return Path(self.root, name)


Place = Local | Objects


def place_of(root: str, settings: Settings = None) -> Place:
    """The folder, wherever it is."""
    return Objects(root, dict(settings or {})) if is_url(root) else Local(root)


def newest(root: str, settings: Settings = None) -> dict[str, Any]:
    """The manifest that counts; an empty one of number 0 before there is one."""
    found: dict[str, Any] = _call(_native.commit, {"folder": root}, settings, None)["manifest"]
    return found


def counting(root: str, settings: Settings = None) -> list[str]:
    """Paths below `root` of the files that count, each where the file stood that it replaced."""
    # Listed before the manifest is read, which knows why a file is not in the list.
    names = place_of(root, settings).names()
    manifest = newest(root, settings)
    replaced = {entry["path"] for entry in manifest["replaced"]}
    plain = (
        name
        for name in names
        if name.endswith(".parquet")
        and not any(part.startswith((".", "_")) for part in name.split("/"))
    )
    return sorted(made["path"] for made in manifest["files"]) + [
        name for name in plain if name not in replaced
    ]


def listed(paths: Iterable[str]) -> list[str]:
    """Files of paths: of folders and tables those that count, of globs all that match, in order.

    Raises:
        SourceNotFound: A path leads to no file.
        ForeignTable: A folder is a table whose log cannot be read, or a glob leads into one.
        Unsupported: A table has what its files alone do not say.
    """
    return with_tables(_listed, list(paths), None)


def begin(root: str, lease: str, settings: Settings = None) -> None:
    """Takes the lease of a write: its files, whose names bear it, are out of reach of `expire`."""
    if not is_url(root):
        Path(root).mkdir(parents=True, exist_ok=True)
    take(root, lease, _TERM_S, "many", settings).close()


def give_up(root: str, lease: str | None, settings: Settings = None) -> None:
    """Ends the lease of a write, if there is one: none of its other files will count."""
    if lease is not None:
        end(root, lease, settings)


def publish(
    root: str,
    add: Sequence[str],
    *,
    overwrite: bool = False,
    settings: Settings = None,
    lease: str | None = None,
) -> int:
    """Makes files count, in one step, and with `overwrite` no others; gives the manifest's number.

    The lease of the write ends with that.

    Raises:
        StorageError: Others replaced what is to be overwritten again and again.
    """
    place = place_of(root, settings)
    for _ in range(_TRIES):
        gone = _known(place, counting(root, settings), settings) if overwrite else []
        added = [place.located(n) for n in add]
        change = {"folder": root, "add": added, "replace": gone, "end": lease}
        if not added and not gone:
            give_up(root, lease, settings)
            return int(newest(root, settings)["number"])
        done = _call(_native.commit, change, settings, None)
        if done["committed"]:
            return int(done["manifest"]["number"])
    raise StorageError.of(
        "the folder changes too often to overwrite it",
        got=f"`{root}`",
        hint="stop compactions of the folder while it is overwritten",
    )


def publish_batch(
    root: str,
    query: str,
    batch: int,
    add: Sequence[str],
    settings: Settings = None,
    *,
    lease: str | None = None,
) -> tuple[str, ...]:
    """Makes the files of a micro-batch count once, however often it is committed.

    The first to put the batch's record decides which files it has. Whoever comes later, after a
    crash or at the same time, finishes with these. The record names a token, a file that the
    manifest which adds the batch replaces: nothing is replaced twice, so the batch is added once.

    Returns:
        Files among `add` that are not needed, as the batch was decided before.
    """
    place = place_of(root, settings)
    record = f"{FOLDER}/batches/{query}/{batch:012}{place.suffix}"
    token = f"{_TOKENS}/{query}/{batch:012}-{uuid.uuid4().hex}"
    mine = {"files": sorted(add), "token": token}
    if not place.exists(record):
        # Before the record, so that one without its token is a batch that was added.
        place.touch(token)
        if not place.put(record, mine):
            place.remove(token)
    decided = place.get(record)
    manifest = newest(root, settings)
    replaced = [entry["path"] for entry in manifest["replaced"]]
    if place.exists(decided["token"]) and decided["token"] not in replaced:
        if not all(place.exists(name) and _leased(manifest, name) for name in decided["files"]):
            _decide_anew(place, record, decided, mine["files"])
        tokens = [name for name in replaced if name.startswith(_TOKENS)]
        change = {
            "folder": root,
            "replace": [{"name": decided["token"]}],
            "forget": tokens,
            "end": lease,
        }
        # Not committed: another driver just did, with the same files.
        try:
            _add(place, change, decided["files"], settings)
        except SourceChanged:
            if decided["files"] == mine["files"]:
                raise
            _decide_anew(place, record, decided, mine["files"])
            _add(place, change, decided["files"], settings)
    give_up(root, lease, settings)
    place.remove(decided["token"])
    return tuple(sorted(set(add) - set(decided["files"])))


def _decide_anew(place: Place, record: str, decided: dict[str, Any], files: Sequence[str]) -> None:
    """What was decided was swept before it counted: this run of the batch has the same rows."""
    decided["files"] = files
    place.replace(record, decided)


def _add(place: Place, change: Mapping[str, Any], names: Sequence[str], settings: Settings) -> None:
    added = {"add": [place.located(name) for name in names]}
    _call(_native.commit, {**change, **added}, settings, None)


def _leased(manifest: Mapping[str, Any], name: str) -> bool:
    """Whether a file may still come to count, or does."""
    parts = Path(name).stem.split("-")
    counts = any(made["path"] == name for made in manifest["files"])
    return counts or any(lease["id"] in parts for lease in manifest["leases"])


def _known(place: Place, names: Sequence[str], settings: Settings) -> list[dict[str, str]]:
    """Files with what they are known by: a later one of the same name is another file."""
    if not names:
        return []
    paths = [place.located(name) for name in names]
    found = plan(paths, sort_by=[], storage_options=dict(settings or {})).to_dict()["sources"]
    footers = [source["footer"] for source in found]
    return [{"name": n, "footer": footer} for n, footer in zip(names, footers, strict=True)]


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _put(path: Path, value: object) -> bool:
    """Writes a file where there is none, whole or not at all."""
    draft = _draft(path, value)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _replace(path: Path, value: object) -> None:
    _draft(path, value).replace(path)


def _draft(path: Path, value: object) -> Path:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    return draft
