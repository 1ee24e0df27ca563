"""A folder of sorted runs as writers and scans see it: its live files, and commits in one step.

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
import uuid
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from plait import _native
from plait._lease import end, take
from plait._native_call import _call
from plait._plan import plan
from plait._tables import listed as _listed
from plait._tables import with_tables
from plait.errors import SourceChanged, StorageError
from plait.spark.settings import Settings, is_url

FOLDER = "_plait"
FILES = f"{FOLDER}/files"
_TOKENS = ".plait-batches"
_TRIES = 20
# How long the tasks of a write may take before `expire` takes it for dead: as long as orphans of
# Iceberg tables are left alone. Drivers of Spark write by several processes; none has a lock.
_TERM_S = 3 * 86_400.0


def place_of(root: str, settings: Settings | None = None) -> _native.Folder:
    """The folder, wherever it is; a local one must be there."""
    options = {"folder": root, "storage_options": dict(settings or {})}
    return _native.Folder(json.dumps(options))


def newest(root: str, settings: Settings | None = None) -> dict[str, Any]:
    """The manifest that counts; an empty one of number 0 before there is one."""
    found: dict[str, Any] = _call(_native.commit, {"folder": root}, settings, None)["manifest"]
    return found


def counting(root: str, settings: Settings | None = None) -> list[str]:
    """Paths below `root` of the live files, each where the file stood that it replaced."""
    # Listed before the manifest is read, which knows why a file is not in the list.
    place = place_of(root, settings)
    names = place.names()
    manifest = newest(root, settings)
    made = [entry["path"] for entry in manifest["files"]]
    # What is being moved does not count by its new name yet.
    other = {*made, *(entry["path"] for entry in manifest["replaced"])}
    other |= {entry["to"] for entry in manifest["files"] if "to" in entry}
    plain = (
        name
        for name in names
        if name.endswith(".parquet")
        and not any(part.startswith((".", "_")) for part in name.split("/"))
    )
    # Visible files are those of whoever uses the folder, who may remove them.
    live = (name for name in made if name.startswith(f"{FILES}/") or place.exists(name))
    return sorted(live) + [name for name in plain if name not in other]


def listed(paths: Iterable[str]) -> list[str]:
    """Files of paths: of folders and tables those that count, of globs all that match, in order.

    Raises:
        SourceNotFound: A path leads to no file.
        ForeignTable: A folder is a table whose log cannot be read, or a glob leads into one.
        Unsupported: A table has what its files alone do not say.
    """
    return with_tables(_listed, list(paths), None)


def begin(root: str, lease: str, settings: Settings | None = None) -> None:
    """Takes the lease of a write: its files, whose names bear it, are out of reach of `expire`."""
    if not is_url(root):
        Path(root).mkdir(parents=True, exist_ok=True)
    take(root, lease, _TERM_S, "many", settings).close()


def give_up(root: str, lease: str | None, settings: Settings | None = None) -> None:
    """Ends the lease of a write, if there is one: none of its other files will count."""
    if lease is not None:
        end(root, lease, settings)


def publish(
    root: str,
    add: Sequence[str],
    *,
    overwrite: bool = False,
    settings: Settings | None = None,
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
        added = [place.location(n) for n in add]
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
    settings: Settings | None = None,
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
    record = f"{FOLDER}/batches/{query}/{batch:012}.json"
    token = f"{_TOKENS}/{query}/{batch:012}-{uuid.uuid4().hex}"
    mine: dict[str, Any] = {"files": sorted(add), "token": token}
    decided = _decided(place, record)
    if decided is None:
        # Before the record, so that one without its token is a batch that was added.
        place.put_new(token, b"")
        decided = mine
        if not place.put_new(record, _json(mine)):
            place.remove(token)
            decided = _decided(place, record)
    if decided is None:
        raise StorageError.of("the record of a batch was removed", got=f"`{record}`")
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


def _decided(place: _native.Folder, record: str) -> dict[str, Any] | None:
    """The files and the token of a batch, if somebody decided them."""
    found = place.read(record)
    if found is None:
        # Until 0.1 those of object stores were tables of one value.
        table = place.read(record.removesuffix(".json") + ".parquet")
        if table is None:
            return None
        found = pq.read_table(BytesIO(table))["value"][0].as_py()
    decided: dict[str, Any] = json.loads(found)
    return decided


def _decide_anew(
    place: _native.Folder, record: str, decided: dict[str, Any], files: Sequence[str]
) -> None:
    """What was decided was swept before it counted: this run of the batch has the same rows."""
    decided["files"] = files
    place.replace(record, _json(decided))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _add(
    place: _native.Folder,
    change: Mapping[str, Any],
    names: Sequence[str],
    settings: Settings | None,
) -> None:
    added = {"add": [place.location(name) for name in names]}
    _call(_native.commit, {**change, **added}, settings, None)


def _leased(manifest: Mapping[str, Any], name: str) -> bool:
    """Whether a file may still come to count, or does."""
    parts = Path(name).stem.split("-")
    counts = any(made["path"] == name for made in manifest["files"])
    return counts or any(lease["id"] in parts for lease in manifest["leases"])


def _known(
    place: _native.Folder, names: Sequence[str], settings: Settings | None
) -> list[dict[str, str]]:
    """Files with what they are known by: a later one of the same name is another file."""
    if not names:
        return []
    paths = [place.location(name) for name in names]
    found = plan(paths, sort_by=[], storage_options=dict(settings or {})).to_dict()["sources"]
    footers = [source["footer"] for source in found]
    return [{"name": n, "footer": footer} for n, footer in zip(names, footers, strict=True)]
