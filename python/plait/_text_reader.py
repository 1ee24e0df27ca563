"""The reader of files of text that a scan gives to the engine: PyArrow comes with the first file.

Not here: formats (`plait._text_files`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from plait.errors import Unsupported

if TYPE_CHECKING:
    from plait import _native


class TextReader:
    """Reads files of JSON lines and CSV for one scan.

    Args:
        schema: The schema that is asked for, or none.
    """

    def __init__(self, schema: object = None) -> None:
        """Makes the reader."""
        self._schema = schema

    def survey(self, file: _native.TextFile) -> tuple[object, int]:
        """The columns of a file, and the number of its rows."""
        found: tuple[object, int] = _files(file).survey(file, self._schema)
        return found

    def read(self, file: _native.TextFile, schema: object) -> Iterable[Any]:
        """The rows of a file, with columns that `survey` found."""
        rows: Iterable[Any] = _files(file).read(file, schema)
        return rows


def _files(file: _native.TextFile) -> Any:  # noqa: ANN401 - a module
    try:
        from plait import _text_files  # noqa: PLC0415 - PyArrow is an extra
    except ModuleNotFoundError as cause:
        error = Unsupported.of(
            "files of JSON lines and CSV are read by PyArrow, which is not installed",
            got=f"`{file.path}`",
            hint="install pyarrow, or name Parquet files alone",
        )
        error.path = file.path
        raise error from cause
    return _text_files
