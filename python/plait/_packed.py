"""The sources of a plan, packed: there may be a million of them.

sources   0 … 255      256 … 511    512 … 600
blocks    compressed   compressed   compressed      JSON, a line each

About 100 bytes a source, a sixth of its text.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, overload


class PackedSources(Sequence[str]):
    """The JSON of each source, from blocks that the engine packed."""

    def __init__(self, packed: dict[str, Any]) -> None:
        """Takes what the engine gives: `len`, `each` (sources of a block), `blocks`."""
        self._len: int = packed["len"]
        self._each: int = packed["each"]
        self._blocks: list[bytes] = packed["blocks"]
        self._unpacked: tuple[int, list[str]] = (-1, [])

    def __len__(self) -> int:
        return self._len

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """The JSON of one source; the block that was unpacked last is kept."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._len))]
        block, line = divmod(range(self._len)[index], self._each)
        held, lines = self._unpacked
        if held != block:
            lines = self._lines(block)
            self._unpacked = block, lines
        return lines[line]

    def __iter__(self) -> Iterator[str]:
        for block in range(len(self._blocks)):
            yield from self._lines(block)

    def _lines(self, block: int) -> list[str]:
        # Not `splitlines`: paths may have other separators of lines.
        return zlib.decompress(self._blocks[block]).decode().split("\n")[:-1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_unpacked": (-1, [])}

    def packed(self) -> dict[str, Any]:
        """What the engine takes."""
        blocks = [base64.b64encode(block).decode() for block in self._blocks]
        return {"len": self._len, "each": self._each, "blocks": blocks}
