"""The right to make files of a folder count: taken before they are written, ended by a commit.

take ──▶ merges: outputs whose names bear the id ──▶ commits, the last of which ends it
  └──── renewed by a thread, so that a long merge keeps it ────┘

Invariant: `expire` removes nothing that a lease may still make count, whatever its retention; see
`rust/parquet/src/compact/lease.rs`.
Not here: tables, whose log says what counts (`rust/delta`).
"""

from __future__ import annotations

import json
import secrets
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from plait import _native, _stores
from plait._native_call import _call, _settings
from plait.errors import PlaitError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Lease", "end", "new_id", "take"]

# Where the death of a process is not seen, its files are out of reach for so long.
TERM_S = 3600.0
_RENEW_S = 900.0


def new_id() -> str:
    """An id that no lease ever had."""
    return secrets.token_hex(8)


def take(root: str, lease: str, term_s: float, storage: object) -> _native.Lease:
    """Takes the lease of this id; where there are locks, it goes with this process.

    Args:
        root: The folder.
        lease: What `new_id` gave.
        term_s: Seconds after which others may end it, unless it is renewed.
        storage: Settings of object stores, or a store.
    """
    settings, bucket = _reached(storage)
    options = {"folder": root, "id": lease, "term_s": term_s}
    return _native.Lease(json.dumps({**options, "storage_options": settings}), bucket)


class Lease:
    """A lease of this process, as a context; it is taken by entering."""

    def __init__(self, root: str, storage_options: object, groups: int) -> None:
        """Takes the folder, and how many groups of files are to be committed."""
        self.id = new_id()
        self._root, self._storage, self._groups = root, storage_options, groups
        self._is_ended = False
        self._is_over = threading.Event()
        self._sign: _native.Lease | None = None
        self._renewing = threading.Thread(target=self._renew, name="plait-lease", daemon=True)

    def __enter__(self) -> Self:
        self._sign = take(self._root, self.id, TERM_S, self._storage)
        self._renewing.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._renewing.join()
        # A lease that is not ended ends by itself.
        with suppress(PlaitError):
            if not self._is_ended:
                end(self._root, self.id, self._storage)
        if self._sign is not None:
            self._sign.close()

    def commit(self, change: dict[str, Any], groups: int = 1) -> dict[str, Any]:
        """Commits a change of the folder; what the engine says of it.

        Args:
            change: The change.
            groups: How many groups it has: the commit of the last one ends the lease.
        """
        left = self._groups - groups
        last = {} if left > 0 else {"end": self.id}
        options = {"folder": self._root, **change, **last}
        done = _call(_native.commit, options, self._storage, None)
        if done["committed"]:
            self._groups, self._is_ended = left, bool(last)
        return done

    def _renew(self) -> None:
        renewal = {"renew": {"id": self.id, "term_s": TERM_S}}
        # Others may have ended it: the next commit says so. For what fails there is time once more.
        while not self._is_over.wait(_RENEW_S):
            with suppress(PlaitError):
                _unwatched(self._root, renewal, self._storage)


def end(root: str, lease: str, storage: object) -> None:
    """Ends a lease, if it is there: what of its files does not count by now never will."""
    _unwatched(root, {"end": lease}, storage)


def _unwatched(root: str, change: dict[str, Any], storage: object) -> None:
    """A commit of a lease alone: no step of what is watched, and on any thread."""
    settings, bucket = _reached(storage)
    options = {"folder": root, **change, "storage_options": settings}
    _native.commit(json.dumps(options), None, bucket)


def _reached(storage: object) -> tuple[dict[str, str], object | None]:
    if not _stores.is_store(storage):
        return _settings(storage), None
    _, settings, bucket = _stores.reach(storage)
    return settings, bucket
