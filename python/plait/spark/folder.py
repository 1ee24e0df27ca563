"""A folder of sorted runs as writers and scans see it: which files count, and commits in one step.

    _plait/files/run-….parquet     written by a task; counts once a manifest names it
    _plait/manifest-….json         what counts
    _plait/batches/<query>/….json  what a micro-batch wrote, decided once
    .plait-batches/<query>/…       a batch that is not added yet

Invariants: what counts changes by a manifest, all at once; a file that nobody names does no harm
and is swept by `plait.expire`.
Not here: manifests themselves (`docs/formats/manifest.md`).
"""

from __future__ import annotations

import glob
import json
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from plait import _native
from plait._api import _call
from plait.errors import SourceNotFound, StorageError
from plait.plan import plan

FOLDER = "_plait"
FILES = f"{FOLDER}/files"
_TOKENS = ".plait-batches"
_TRIES = 20


def newest(root: str) -> dict[str, Any]:
    """The manifest that counts; an empty one of number 0 before there is one."""
    found: dict[str, Any] = _call(_native.commit, {"folder": root}, None, None)["manifest"]
    return found


def counting(root: str) -> list[str]:
    """Paths below `root` of the files that count, each where the file stood that it replaced."""
    manifest = newest(root)
    replaced = {entry["path"] for entry in manifest["replaced"]}
    plain = (
        str(path.relative_to(root))
        for path in sorted(Path(root).rglob("*.parquet"))
        if not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)
    )
    return sorted(made["path"] for made in manifest["files"]) + [
        name for name in plain if name not in replaced
    ]


def listed(paths: Iterable[str]) -> list[str]:
    """Files of paths: of folders those that count, of globs all that match, in order.

    Raises:
        SourceNotFound: A path leads to no file.
    """
    files: list[str] = []
    for path in paths:
        if Path(path).is_dir():
            found = [str(Path(path, name)) for name in counting(path)]
        elif Path(path).exists():
            found = [path]
        else:
            found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - paths are texts
        if not found:
            raise SourceNotFound.of("there is no Parquet file", got=f"`{path}`")
        files += found
    return files


def publish(root: str, add: Sequence[str], *, overwrite: bool = False) -> int:
    """Makes files count, in one step, and with `overwrite` no others; gives the manifest's number.

    Raises:
        StorageError: Others replaced what is to be overwritten again and again.
    """
    for _ in range(_TRIES):
        gone = _known(root, counting(root)) if overwrite else []
        change = {"folder": root, "add": _located(root, add), "replace": gone}
        if not change["add"] and not change["replace"]:
            return int(newest(root)["number"])
        done = _call(_native.commit, change, None, None)
        if done["committed"]:
            return int(done["manifest"]["number"])
    raise StorageError.of(
        "the folder changes too often to overwrite it",
        got=f"`{root}`",
        hint="stop compactions of the folder while it is overwritten",
    )


def publish_batch(root: str, query: str, batch: int, add: Sequence[str]) -> tuple[str, ...]:
    """Makes the files of a micro-batch count once, however often it is committed.

    The first to put the batch's record decides which files it has. Whoever comes later, after a
    crash or beside it, finishes with these. The record names a token, a file that the manifest
    which adds the batch replaces: nothing is replaced twice, so the batch is added once.

    Returns:
        Files among `add` that are not needed, as the batch was decided before.
    """
    record = Path(root, FOLDER, "batches", query, f"{batch:012}.json")
    token = f"{_TOKENS}/{query}/{batch:012}-{uuid.uuid4().hex}"
    mine = {"files": sorted(add), "token": token}
    if not record.exists():
        # Before the record, so that one without its token is a batch that was added.
        _touch(Path(root, token))
        record.parent.mkdir(parents=True, exist_ok=True)
        if not _put(record, mine):
            Path(root, token).unlink()
    decided = json.loads(record.read_text(encoding="utf-8"))
    replaced = [entry["path"] for entry in newest(root)["replaced"]]
    if Path(root, decided["token"]).exists() and decided["token"] not in replaced:
        if not all(Path(root, name).exists() for name in decided["files"]):
            # Swept before it counted: this run of the batch has the same rows.
            decided["files"] = mine["files"]
            _replace(record, decided)
        tokens = [name for name in replaced if name.startswith(_TOKENS)]
        change = {
            "folder": root,
            "add": _located(root, decided["files"]),
            "replace": [{"name": decided["token"]}],
            "forget": tokens,
        }
        # Not committed: another driver just did, with the same files.
        _call(_native.commit, change, None, None)
    Path(root, decided["token"]).unlink(missing_ok=True)
    return tuple(sorted(set(add) - set(decided["files"])))


def _known(root: str, names: Sequence[str]) -> list[dict[str, str]]:
    """Files with what they are known by: a later one of the same name is another file."""
    if not names:
        return []
    sources = plan(_located(root, names), sort_by=[]).to_dict()["sources"]
    footers = [source["footer"] for source in sources]
    return [{"name": n, "footer": footer} for n, footer in zip(names, footers, strict=True)]


def _located(root: str, names: Sequence[str]) -> list[str]:
    return [str(Path(root, name)) for name in names]


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
