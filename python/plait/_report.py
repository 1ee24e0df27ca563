"""What all reports share: plain dictionaries in and out, text, HTML.

JSON of the engine ─▶ from_dict ─▶ frozen dataclass ─▶ to_dict, str, _repr_html_
"""

from __future__ import annotations

import dataclasses
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from plait._text import Page, counted

if TYPE_CHECKING:
    from typing_extensions import Self


class _Report:
    """Reads from and writes to plain dictionaries."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Builds the report from what `to_dict` gave, or from parsed JSON."""
        report: Self = _build(cls, data)
        return report

    def to_dict(self) -> dict[str, Any]:
        """The report as dictionaries, lists, text and numbers, ready for `json.dumps`."""
        plain: dict[str, Any] = _plain(self)
        return plain


class _PrintedReport(_Report, ABC):
    """Also prints itself."""

    @abstractmethod
    def _page(self) -> Page:
        """What is printed."""

    def __str__(self) -> str:
        return self._page().text()

    def _said(self, say: Callable[[str], str]) -> str:
        """The text, with options in the words of another door."""
        return self._page().text(say)

    def _repr_html_(self) -> str:
        return self._page().html()


def _files(count: int) -> str:
    return counted(count, "file")


def _regions(count: int) -> str:
    return counted(count, "region")


def _sorted_by(sort_by: str) -> str:
    return f"sorted by {sort_by}" if sort_by else "in source order"


def _yes(value: bool) -> str:  # noqa: FBT001 - the value is the point
    return "yes" if value else "no"


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(hint: Any, value: Any) -> Any:  # noqa: ANN401 - JSON on one side, type hints on the other
    if value is None:
        return None
    if dataclasses.is_dataclass(hint):
        hints = _hints(typing.cast("type", hint))
        names = [field.name for field in dataclasses.fields(hint) if field.name in value]
        return typing.cast("type", hint)(**{n: _build(hints[n], value[n]) for n in names})
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        return _build(next(arg for arg in args if arg is not types.NoneType), value)
    if origin is tuple:
        return tuple(_build(args[0], item) for item in value)
    if origin is dict:
        return {key: _build(args[1], item) for key, item in value.items()}
    return value


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field of any report
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
