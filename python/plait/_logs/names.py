"""Names of columns of a Delta table, and those that its files have if columns are mapped.

    table   day        s.x            callers, messages, properties
    files   col-1a2b   col-3c.col-4d  merges, partition values and statistics in the log

Not here: what a log says of names, and whether files have them (`rust/delta`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from plait.errors import PlaitError

__all__ = ["Names"]

_QUOTED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Names:
    """The names of columns of a table.

    Attributes:
        is_mapped: Whether files have other names than the table, or may have.
        of_files: What files call a column.
        of_table: Dotted names of columns and members of structs, by those of files.
    """

    is_mapped: bool = False
    of_files: dict[str, str] = field(default_factory=dict)
    of_table: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Sequence[tuple[list[str], list[str]]] | None) -> Names:
        """Of what the log says of each column: its path in the table, and that in files."""
        if pairs is None:
            return cls()
        tops = {shown[0]: stored[0] for shown, stored in pairs}
        return cls(
            is_mapped=True,
            of_files=tops,
            of_table={".".join(stored): ".".join(shown) for shown, stored in pairs},
        )

    def stored(self, column: str) -> str:
        """What files and the log call a column of the table."""
        return self.of_files.get(column, column)

    def shown(self, text: str) -> str:
        """A message with names of the table in place of those of files."""
        return _QUOTED.sub(lambda m: f"`{self.of_table.get(m[1], m[1])}`", text)

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Gives errors the names of the table."""
        try:
            yield
        except PlaitError as error:
            if self.is_mapped:
                self._rename(error)
            raise

    def _rename(self, error: PlaitError) -> None:
        error.args = (self.shown(str(error)), *error.args[1:])
        error.what = self.shown(error.what)
        if error.got is not None:
            error.got = self.shown(error.got)
        if error.hint is not None:
            error.hint = self.shown(error.hint)
        if error.column is not None:
            error.column = self.of_table.get(error.column, error.column)
        for part in error.errors:
            self._rename(part)
