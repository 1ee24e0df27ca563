"""Names of columns that files of one merge have for them: which column of the merge is meant?

    a.parquet  old #2        the merge calls it `old`; `new` in a query is the same column
    b.parquet  new #2

Invariants: a name of the merge is that column; a name that only files have is the one column that
they call so, or is refused.
Not here: which columns are the same (the engine, which puts other names into its plan).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from plait.errors import InvalidArgument
from plait.order import _quoted_if_odd
from plait.spark.keys import sort_path

if TYPE_CHECKING:
    import pyarrow as pa

    from plait.spark.filters import Condition

_NAME = r'(?:"(?:[^"]|"")*"|[^\s,".<>=]+)'
_PATH = re.compile(rf"\s*(?P<path>{_NAME}(?:\.{_NAME})*)")

Path = tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """Other names of columns.

    Attributes:
        renamed: What files call a leaf, and what the merge calls it.
    """

    renamed: tuple[tuple[Path, Path], ...] = ()

    @classmethod
    def of(cls, planned: Mapping[str, object]) -> Names:
        """Those that a plan names."""
        found: Any = planned.get("renamed", ())
        return cls(tuple((tuple(each["from"]), tuple(each["to"])) for each in found))

    def column(self, name: str, schema: pa.Schema) -> str | None:
        """What the merge calls a column; `None` if nobody has it."""
        if name in schema.names:
            return name
        found = {to[0] for own, to in self.renamed if own[0] == name and to[0] != name}
        return _only(name, found)

    def columns(self, names: Sequence[str], schema: pa.Schema) -> dict[str, str | None]:
        """The same of several columns, which must not be one."""
        found = {name: self.column(name, schema) for name in names}
        known: dict[str, str] = {}
        for name, column in found.items():
            if column is not None and known.setdefault(column, name) != name:
                raise InvalidArgument.of(
                    "two names are one column", got=f"`{known[column]}` and `{name}`"
                )
        return found

    def path(self, path: Path) -> Path:
        """What the merge calls a leaf."""
        found = {to for own, to in self.renamed if own == path}
        return _only(".".join(path), found) or path

    def condition(self, condition: Condition) -> Condition:
        """A condition by the names of the merge."""
        return replace(condition, path=self.path(condition.path))

    def text(self, text: str | None) -> str | None:
        """A column, or a comparison that begins with one, by the names of the merge."""
        match = None if text is None else _PATH.match(text)
        if text is None or match is None:
            return text
        own = sort_path(match["path"])
        path = self.path(own)
        if path == own:
            return text
        return ".".join(map(_quoted_if_odd, path)) + text[match.end() :]


_Found = TypeVar("_Found", str, Path)


def _only(name: str, found: set[_Found]) -> _Found | None:
    if len(found) > 1:
        raise InvalidArgument.of(
            f"`{name}` is what files call several columns",
            got=", ".join(sorted(map(str, found))),
            hint="name them as the merge does",
        )
    return next(iter(found), None)
