"""A change of a table as a value, and what becomes of it when it is committed.

Change ──▶ table.commit ──┬─▶ Committed    it counts, by this or by an earlier attempt
                          ├─▶ Conflicted   others replaced a file of it: it never will
                          └─▶ Retryable    others were quicker: look again, and try again

Invariant: a change is committed whole or not at all, and any number of times like once.
Not here: where a table keeps what counts (`folder`, `delta`, `iceberg`).
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Protocol

from plait.errors import StorageError
from plait.report import OutputReport

__all__ = ["Change", "Committed", "Committer", "Conflicted", "Outcome", "Retryable", "commit"]

# Each attempt loses only to somebody else's commit. So many in a row mean that something is wrong.
_ATTEMPTS_MAX = 50
_WAIT_S_MAX = 1.0


@dataclass(frozen=True)
class Change:
    """Files that count from now on, and files that they replace.

    Attributes:
        token: Names the change: the plan's `task`. Committing it twice is committing it once.
        added: The new files.
        replaced: The files to replace, as the table calls them; all of them must be live.
        scope: Their partition, such as `day=1`; `""` without one.
    """

    token: str
    added: tuple[OutputReport, ...]
    replaced: tuple[str, ...]
    scope: str = ""


@dataclass(frozen=True)
class Committed:
    """The change counts; `version` is that of the table with it."""

    version: int


@dataclass(frozen=True)
class Conflicted:
    """The change never will count: others have replaced or deleted what it replaces."""

    why: str


@dataclass(frozen=True)
class Retryable:
    """The change does not count yet, since others committed meanwhile; it may count next time."""

    why: str


Outcome = Committed | Conflicted | Retryable


class Committer(Protocol):
    """What commits changes of one table."""

    name: str

    def commit(self, change: Change) -> Outcome:
        """Looks at the table as it is now, and tries once."""


def commit(table: Committer, change: Change) -> Committed | Conflicted:
    """Commits a change, as often as it takes.

    Args:
        table: What to commit to.
        change: The change.

    Returns:
        Whether it counts.

    Raises:
        StorageError: Others were quicker too many times.
    """
    why = ""
    for attempt in range(_ATTEMPTS_MAX):
        outcome = table.commit(change)
        if not isinstance(outcome, Retryable):
            return outcome
        why = outcome.why
        # Two that wait equally long would meet again.
        time.sleep(random.uniform(0, min(0.01 * 2**attempt, _WAIT_S_MAX)))  # noqa: S311 - no secret
    raise StorageError.of(
        "the change could not be committed",
        got=f"{_ATTEMPTS_MAX} commits of others at `{table.name}`: {why}",
        hint="compact when less is written; nothing was changed, the new files are not live",
    )
