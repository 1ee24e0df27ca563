"""Weaves many sorted Parquet files into few sorted ones whose key ranges do not overlap.

report = plait.merge("runs/*.parquet", "merged", sort_by="name, -ts", outputs=4)
print(report)
"""

from plait import _notebook, errors
from plait._adopt import adopt
from plait._api import inspect, merge, sort, verify
from plait._interleave import interleave
from plait._keys import decode_keys, encode_keys, prefix_range, successor
from plait._native import Array, Batch, Interleave, Schema, Stream
from plait._native import version as _version
from plait._overlay import Layer, OverlayReport, overlay, overlay_files
from plait._plan import Plan, PlanSource, Task
from plait._planning import execute_task, plan
from plait._prune import prune
from plait._read import SortedRead, read
from plait._read_report import ReadPlan, ReadStats
from plait._run_writer import RunWriter
from plait._scan import Scan, scan
from plait._scan_report import ScanReport, SchemaChange, SourceAdapter
from plait._staged_report import SideStats
from plait._staged_sides import side_numbers
from plait._streams import merge_streams
from plait._table import Table
from plait._trace import TracedRow, TraceReport, trace
from plait.errors import (
    Cancelled,
    CorruptSource,
    DuplicateField,
    DuplicateKey,
    EncryptedSource,
    FieldNotInLayer,
    ForeignTable,
    IndexTypeError,
    InternalError,
    InvalidArgument,
    InvalidPath,
    LossyCast,
    MemoryLimitExceeded,
    NullKey,
    OutputExists,
    PathThroughNonStruct,
    PlaitError,
    ProjectionError,
    RowMismatch,
    SchemaChanged,
    SchemaConflict,
    SchemaDrift,
    SourceChanged,
    SourceFailed,
    SourceNotFound,
    SplitInsideNonStruct,
    StorageError,
    UnknownColumn,
    UnsortedSource,
    Unsupported,
    UnsupportedKey,
    VerificationFailed,
)
from plait.join import ForeignKeyJoin, JoinStats
from plait.report import FileReport, MergeReport, Progress, VerifyReport
from plait.staged import StagedLeft, StagedRight
from plait.table._calls import compact
from plait.table.expire import ExpireReport, expire
from plait.table.report import CompactReport

__version__ = _version()

__all__ = [
    "Array",
    "Batch",
    "Cancelled",
    "CompactReport",
    "CorruptSource",
    "DuplicateField",
    "DuplicateKey",
    "EncryptedSource",
    "ExpireReport",
    "FieldNotInLayer",
    "FileReport",
    "ForeignKeyJoin",
    "ForeignTable",
    "IndexTypeError",
    "Interleave",
    "InternalError",
    "InvalidArgument",
    "InvalidPath",
    "JoinStats",
    "Layer",
    "LossyCast",
    "MemoryLimitExceeded",
    "MergeReport",
    "NullKey",
    "OutputExists",
    "OverlayReport",
    "PathThroughNonStruct",
    "PlaitError",
    "Plan",
    "PlanSource",
    "Progress",
    "ProjectionError",
    "ReadPlan",
    "ReadStats",
    "RowMismatch",
    "RunWriter",
    "Scan",
    "ScanReport",
    "Schema",
    "SchemaChange",
    "SchemaChanged",
    "SchemaConflict",
    "SchemaDrift",
    "SideStats",
    "SortedRead",
    "SourceAdapter",
    "SourceChanged",
    "SourceFailed",
    "SourceNotFound",
    "SplitInsideNonStruct",
    "StagedLeft",
    "StagedRight",
    "StorageError",
    "Stream",
    "Table",
    "Task",
    "TraceReport",
    "TracedRow",
    "UnknownColumn",
    "UnsortedSource",
    "Unsupported",
    "UnsupportedKey",
    "VerificationFailed",
    "VerifyReport",
    "__version__",
    "adopt",
    "compact",
    "decode_keys",
    "encode_keys",
    "errors",
    "execute_task",
    "expire",
    "inspect",
    "interleave",
    "merge",
    "merge_streams",
    "overlay",
    "overlay_files",
    "plan",
    "prefix_range",
    "prune",
    "read",
    "scan",
    "side_numbers",
    "sort",
    "successor",
    "trace",
    "verify",
]

_notebook.draw()
