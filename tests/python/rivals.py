"""Somebody else who does the same before the n-th request of a change of a table, for every n."""

from __future__ import annotations

from collections.abc import Callable

import obstore.store
import pytest

import plait
from plait import _stores


class Beaten(_stores._Obstore):
    """A store before whose `at`-th request somebody else does something, once."""

    count, at, rival = 0, 0, None

    def asked(self):
        cls = type(self)
        cls.count += 1
        if cls.count == cls.at:
            rival, cls.rival = cls.rival, None
            rival()

    def head(self, *arguments):
        self.asked()
        return super().head(*arguments)

    def list(self, *arguments):
        self.asked()
        return super().list(*arguments)

    def put_new(self, *arguments):
        self.asked()
        return super().put_new(*arguments)


def beat_everywhere(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[obstore.store.MemoryStore], object],
    act: Callable[[plait.Table], object],
    check: Callable[[plait.Table, int], None],
) -> int:
    """Makes a table `t`, acts, and checks, for every request; gives the number of requests."""
    for at in range(1, 200):
        store = obstore.store.MemoryStore()
        make(store)

        def rival(store=store):
            monkeypatch.undo()
            act(plait.Table("t", storage_options=store))

        beaten = type("Once", (Beaten,), {"at": at, "rival": staticmethod(rival)})
        monkeypatch.setattr(_stores, "_Obstore", beaten)
        asked = plait.Table("t", storage_options=store)
        act(asked)
        monkeypatch.undo()
        if beaten.rival is not None:
            return at - 1
        check(asked, at)
    raise AssertionError("a change has no end of requests")
