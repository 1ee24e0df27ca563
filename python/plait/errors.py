"""Exceptions: one base, `PlaitError`, and one class per kind with its nearest builtin.

The message says what, where, what was found and what to do; the same parts are attributes::

    try:
        plait.merge(["a.parquet", "b.parquet"], "out", sort_by="ts")
    except plait.UnsortedSource as error:
        print(error.path, error.column, error.row)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

    from plait.report import VerifyReport

__all__ = [
    "Cancelled",
    "CorruptSource",
    "DuplicateField",
    "DuplicateKey",
    "EncryptedSource",
    "FieldNotInLayer",
    "ForeignTable",
    "IndexTypeError",
    "InternalError",
    "InvalidArgument",
    "InvalidPath",
    "LossyCast",
    "MemoryLimitExceeded",
    "NullKey",
    "OutputExists",
    "PathThroughNonStruct",
    "PlaitError",
    "ProjectionError",
    "RowMismatch",
    "SchemaChanged",
    "SchemaConflict",
    "SchemaDrift",
    "SourceChanged",
    "SourceFailed",
    "SourceNotFound",
    "SplitInsideNonStruct",
    "StorageError",
    "UnknownColumn",
    "UnsortedSource",
    "Unsupported",
    "UnsupportedKey",
    "VerificationFailed",
]


class PlaitError(Exception):
    """Base of every error that Plait raises.

    Attributes:
        what: The sentence alone, without place, find and hint.
        path: The file, if one is named.
        column: Dotted path of the column, if one is named.
        row: Row of the file, counted from 0, if one is named.
        offset: Byte offset in the file, if one is named.
        got: What was found, if that is said.
        hint: What the caller can do, if anything.
        errors: Where one error names several files: that of each.
    """

    what: str = ""
    path: str | None = None
    column: str | None = None
    row: int | None = None
    offset: int | None = None
    got: str | None = None
    hint: str | None = None
    errors: tuple[PlaitError, ...] = ()

    @classmethod
    def of(cls, what: str, *, got: str = "", hint: str = "") -> Self:
        """The error that says `what`, what was found, and what to do."""
        error = cls(what + (f": got {got}" if got else "") + (f"\nhint: {hint}" if hint else ""))
        error.what, error.got, error.hint = what, got or None, hint or None
        return error

    def __str__(self) -> str:
        # KeyError and OSError would print their arguments in their own way.
        return str(self.args[0]) if self.args else type(self).__name__


def _by_file(error: PlaitError) -> dict[str, str]:
    """What is wrong with each file that an error names, without hint; nothing if it names none."""
    found = {}
    for part in error.errors or (error,):
        if part.path is not None:
            text = str(part).partition("\nhint: ")[0]
            text = text.replace(f"file `{part.path}`, ", "", 1)
            found[part.path] = text.replace(f": file `{part.path}`", "", 1)
    return found


class InvalidArgument(PlaitError, ValueError):
    """An option or a combination of options is invalid."""


class UnsortedSource(PlaitError, ValueError):
    """A source's rows are not in the declared order."""


class DuplicateKey(PlaitError, ValueError):
    """Two rows have one key where that was forbidden."""


class SchemaConflict(PlaitError, TypeError):
    """The sources cannot be brought to one schema."""


class UnknownColumn(PlaitError, KeyError):
    """A named column is in no source."""


class NullKey(PlaitError, ValueError):
    """A change has no key."""


class RowMismatch(PlaitError, ValueError):
    """Layers do not hold the same rows in the same order."""


class IndexTypeError(PlaitError, TypeError):
    """A layer's index column has another type than it must have."""


class FieldNotInLayer(PlaitError, KeyError):
    """A layer owns a path that it does not have."""


class SplitInsideNonStruct(PlaitError, ValueError):
    """Layers contest parts of a value that cannot be taken apart."""


class PathThroughNonStruct(PlaitError, ValueError):
    """A path leads through a value that has no fields."""


class DuplicateField(PlaitError, ValueError):
    """A schema has two fields of one name."""


class SchemaDrift(PlaitError, TypeError):
    """The schema changed within a stream that must keep it."""


class InvalidPath(PlaitError, ValueError):
    """A path of fields cannot be read."""


class ProjectionError(PlaitError, TypeError):
    """A projected path does not go with the type it meets."""


class LossyCast(PlaitError, ValueError):
    """A value does not fit the type it is cast to."""


class SchemaChanged(PlaitError, TypeError):
    """The schema changed where changes are refused."""


class UnsupportedKey(PlaitError, TypeError):
    """A column's type has no order and cannot be a key."""


class CorruptSource(PlaitError, ValueError):
    """Bytes of a source contradict the format or each other."""


class EncryptedSource(CorruptSource):
    """A source is encrypted."""


class Unsupported(PlaitError, NotImplementedError):
    """Valid input that this version does not handle."""


class ForeignTable(Unsupported):
    """A folder is a table of another format, whose log lists the live files."""


class SourceNotFound(PlaitError, FileNotFoundError):
    """A source does not exist."""


class SourceChanged(PlaitError, OSError):
    """A source changed while it was read."""


class SourceFailed(PlaitError, RuntimeError):
    """A stream that is a source failed. What a Python iterable raises is raised as it is."""


class StorageError(PlaitError, OSError):
    """Reading or writing failed in the storage below."""


class OutputExists(PlaitError, FileExistsError):
    """The output is there already."""


class MemoryLimitExceeded(PlaitError, MemoryError):
    """One item alone needs more memory than the limit allows."""


class Cancelled(PlaitError):
    """The call was asked to stop; nothing was published."""


class VerificationFailed(PlaitError, ValueError):
    """A check of the result failed.

    Attributes:
        report: What `plait.verify` found; `None` when `plait.merge` raised.
    """

    report: VerifyReport | None = None


class InternalError(PlaitError, RuntimeError):
    """A promise inside Plait was broken; please report it."""


for _name in __all__:
    # Tracebacks and pickles show the name that users import.
    globals()[_name].__module__ = "plait"
del _name
