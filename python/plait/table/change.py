"""Changes of a table as values, and what becomes of them when they are committed.

Changes ──▶ table.commit ──┬─▶ Committed    they count, by this or by an earlier attempt
                           ├─▶ Conflicted   others replaced a file of them: they never will
                           └─▶ Retryable    others were quicker: look again, and try again

Invariant: changes of one commit count all or none, and committed any number of times like once.
Not here: where a table keeps what counts (`folder`, `delta`, `iceberg`); which changes are
committed at a time (`commits`).
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from plait.errors import StorageError
from plait.report import OutputReport

__all__ = [
    "Change",
    "Committed",
    "Committer",
    "Conflicted",
    "Outcome",
    "Retryable",
    "commit",
    "is_final",
    "token_of",
]

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
    """The changes count; `version` is that of the table with them."""

    version: int


@dataclass(frozen=True)
class Conflicted:
    """The changes never will count: others have replaced or deleted a file that they replace."""

    why: str


@dataclass(frozen=True)
class Retryable:
    """The changes do not count yet, since others committed meanwhile; they may next time."""

    why: str


Outcome = Committed | Conflicted | Retryable


class Committer(Protocol):
    """What commits changes of one table."""

    name: str

    def commit(self, changes: Sequence[Change]) -> Outcome:
        """Looks at the table as it is now, and tries once to make all changes in one commit."""


def token_of(changes: Sequence[Change]) -> str:
    """What names a commit of these changes: the token of one, or one that is made of theirs."""
    if len(changes) == 1:
        return changes[0].token
    return hashlib.sha256("".join(c.token for c in changes).encode()).hexdigest()[:16]


def is_final(outcome: Outcome, changes: Sequence[Change]) -> bool:
    """Whether no attempt follows. Where one of several is in the way, each is tried by itself."""
    return isinstance(outcome, Committed) or (isinstance(outcome, Conflicted) and len(changes) == 1)


def commit(table: Committer, changes: Sequence[Change]) -> Committed | Conflicted:
    """Makes changes in one commit; tries as often as it takes.

    Args:
        table: What to commit to.
        changes: The changes; no two of them replace the same file.

    Returns:
        Whether they count.

    Raises:
        StorageError: Others were quicker too many times.
    """
    why = ""
    for attempt in range(_ATTEMPTS_MAX):
        outcome = table.commit(changes)
        if not isinstance(outcome, Retryable):
            return outcome
        why = outcome.why
        # Two that wait equally long would meet again.
        time.sleep(random.uniform(0, min(0.01 * 2**attempt, _WAIT_S_MAX)))  # noqa: S311 - no secret
    raise StorageError.of(
        "the changes could not be committed",
        got=f"{_ATTEMPTS_MAX} commits of others at `{table.name}`: {why}",
        hint="compact when less is written; nothing was changed, the new files are not live",
    )
