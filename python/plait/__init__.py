"""Weaves many sorted Parquet files into few sorted ones whose key ranges do not overlap.

report = plait.merge("runs/*.parquet", "merged", sort_by="name, -ts", outputs=4)
print(report)
"""

from plait import errors
from plait._api import inspect, merge, verify
from plait._native import version as _version
from plait.errors import (
    Cancelled,
    CorruptSource,
    EncryptedSource,
    InternalError,
    InvalidArgument,
    MemoryLimitExceeded,
    OutputExists,
    PlaitError,
    SchemaConflict,
    SourceChanged,
    SourceNotFound,
    StorageError,
    UnknownColumn,
    UnsortedSource,
    Unsupported,
    UnsupportedKey,
    VerificationFailed,
)
from plait.report import FileReport, MergeReport, Progress, VerifyReport

__version__ = _version()

__all__ = [
    "Cancelled",
    "CorruptSource",
    "EncryptedSource",
    "FileReport",
    "InternalError",
    "InvalidArgument",
    "MemoryLimitExceeded",
    "MergeReport",
    "OutputExists",
    "PlaitError",
    "Progress",
    "SchemaConflict",
    "SourceChanged",
    "SourceNotFound",
    "StorageError",
    "UnknownColumn",
    "UnsortedSource",
    "Unsupported",
    "UnsupportedKey",
    "VerificationFailed",
    "VerifyReport",
    "__version__",
    "errors",
    "inspect",
    "merge",
    "verify",
]
