"""What becomes of rows with one key: the rule, and the options of columns that go with it.

    a call    on_duplicate="update", replace_columns=["a"] ─┐
    a table   plait.on_duplicate, plait.duplicate_rules ────┴▶ Rules ──▶ narrowing ──▶ the engine
                                                                          └─ "a" is in no source

Invariants: what a table says and this version cannot read is refused by name, never left out. Only
of columns that a table has, and none of the sources, rules are left out: there all values are null.
Not here: what the rules do (the engine); which of a call and a table counts (`_tables`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plait import _native
from plait._checks import _aggregates, _choice, _names, _version_by
from plait.errors import PlaitError, UnknownColumn

__all__ = ["OF_COLUMNS", "Rules", "narrowing"]

# Options of columns as the engine takes them, where they say nothing.
OF_COLUMNS: Mapping[str, Any] = {"version_by": None, "replace_columns": [], "aggregate": {}}

T = TypeVar("T")


@dataclass(frozen=True)
class Rules:
    """What becomes of several rows with one key.

    Attributes:
        on_duplicate: Which of them stays, or how they are combined; `None` if that is not said.
        of_columns: The options of `OF_COLUMNS` that say something, in one way of writing them.
    """

    on_duplicate: str | None = None
    of_columns: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, on_duplicate: object, options: Mapping[str, Any]) -> Rules:
        """The rules that options say.

        Args:
            on_duplicate: As a caller gives it; `None` is nothing.
            options: Those of `OF_COLUMNS`, and others, by name.

        Raises:
            InvalidArgument: One of them is invalid by itself: see `check`.
        """
        rule = None if on_duplicate is None else str(_choice(on_duplicate, "on_duplicate"))
        versions = _version_by(options.get("version_by"), "version_by")
        if isinstance(versions, Mapping):
            versions = {name: sorted(of) for name, of in sorted(versions.items())}
        replaced = _names(options.get("replace_columns", ()), "replace_columns")
        functions = _aggregates(options.get("aggregate"), "aggregate")
        found = {
            "version_by": versions,
            "replace_columns": sorted(replaced),
            "aggregate": dict(sorted(functions.items())),
        }
        return cls(rule, {name: value for name, value in found.items() if value})

    def check(self) -> None:
        """Refuses options that do not go together, whatever the columns are.

        Raises:
            InvalidArgument: Some do not; names them.
        """
        _native.check(json.dumps(self.options()))

    def options(self) -> dict[str, Any]:
        """All options, as the engine takes them."""
        return {"on_duplicate": self.on_duplicate or "keep_all", **OF_COLUMNS, **self.of_columns}

    def names(self) -> Iterator[str]:
        """The columns that are named, as they are named."""
        versions = self.of_columns.get("version_by", {})
        by_version = {versions: ()} if isinstance(versions, str) else versions
        for version, of in by_version.items():
            yield from (version, *of)
        yield from self.of_columns.get("replace_columns", ())
        yield from self.of_columns.get("aggregate", {})

    def without(self, column: str | None) -> Rules:
        """The rules of sources that lack a column: it is null in all of their rows.

        Where the version is null in all rows, the last row is the newest.
        """
        gone = next((name for name in self.names() if path_of(name) == path_of(column)), None)
        if gone is None:
            return self
        left = dict(self.of_columns)
        replaced = list(left.get("replace_columns", ()))
        versions = left.get("version_by")
        if isinstance(versions, Mapping):
            replaced += versions.get(gone, ())
            versions = {
                version: [name for name in of if name != gone]
                for version, of in versions.items()
                if version != gone
            }
        left["version_by"] = None if versions == gone else versions
        left["replace_columns"] = [name for name in replaced if name != gone]
        left["aggregate"] = {n: of for n, of in left.get("aggregate", {}).items() if n != gone}
        # Without functions, all values are those of the last row.
        is_plain = self.on_duplicate == "aggregate" and not left["aggregate"]
        return Rules.of("keep_last" if is_plain else self.on_duplicate, left)

    def text(self) -> str:
        """The options of columns, as JSON; the same for the same options."""
        return json.dumps(self.of_columns, sort_keys=True, ensure_ascii=False)

    def __str__(self) -> str:
        return f"{self.on_duplicate or 'keep_all'}{f' {self.text()}' if self.of_columns else ''}"


def narrowing(call: Callable[[Rules], T], rules: Rules) -> T:
    """Calls with the rules of a table, without those of columns that no source has.

    Args:
        call: Takes rules; raises `UnknownColumn` where they name what is not there.
        rules: The rules. The table has the columns that they name.
    """
    try:
        return call(rules)
    except UnknownColumn as error:
        less = rules.without(error.column)
        if less == rules:
            raise
    return narrowing(call, less)


def path_of(name: str | None) -> tuple[str, ...] | None:
    """The path of the column that a name is of; `None` if it is of none."""
    try:
        ((path, _, _),) = _native.sort_columns(name or "")
    except (PlaitError, ValueError):
        return None
    return tuple(path)
