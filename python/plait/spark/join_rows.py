"""Changes of one shard as tables, and the files that they are written to.

Not here: which changes there are (`join_step`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plait.spark.join_state import _sync
from plait.spark.types import to_spark

OP, SEQ = "_op", "_seq"
# Rows of a change file between looks at memory; Spark reads files by row groups.
_GROUP_ROWS = 131_072


class ChangeFiles:
    """Files of changes of one shard, made when the first row comes."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._open: dict[str, tuple[pq.ParquetWriter, Any]] = {}
        self.rows: dict[str, int] = {}

    def __enter__(self) -> ChangeFiles:  # noqa: PYI034 - never subclassed
        return self

    def write(self, name: str, batch: pa.RecordBatch) -> None:
        """Adds rows to a file."""
        if not batch.num_rows:
            return
        if name not in self._open:
            sink = pa.OSFile(str(self._folder / name), "wb")
            self._open[name] = (pq.ParquetWriter(sink, self._schema, compression="zstd"), sink)
        self._open[name][0].write_batch(to_spark(batch, self._schema), _GROUP_ROWS)
        self.rows[name] = self.rows.get(name, 0) + batch.num_rows

    def __exit__(self, *_: object) -> None:
        for name, (writer, sink) in self._open.items():
            writer.close()
            sink.close()
            _sync(self._folder / name)


def with_seq(schema: pa.Schema, *, has_seq: bool) -> pa.Schema:
    """Columns of changes whose numbers the state keeps, to recognise those that come too late."""
    return schema.append(pa.field(SEQ, pa.int64())) if has_seq else schema


def rows_of(column: pa.ChunkedArray, schema: pa.Schema, *, has_seq: bool) -> pa.Table:
    """The rows in a column of structs, `_op` and `_seq` among them; equal numbers in one order."""
    rows = pa.Table.from_batches([pa.RecordBatch.from_struct_array(c) for c in column.chunks])
    names = [*schema.names, *(name for name in (OP, SEQ) if name in rows.column_names)]
    types = {OP: pa.string(), SEQ: pa.int64()}
    wanted = pa.schema(
        [(name, schema.field(name).type if name in schema.names else types[name]) for name in names]
    )
    rows = rows.select(names).cast(wanted)
    return rows.sort_by(SEQ) if has_seq else rows


def as_struct(columns: list[Any], type_: pa.StructType) -> pa.Array:
    """Columns as the members of one column, cast to their types."""
    flat = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    flat = [c.cast(f.type) for c, f in zip(flat, type_, strict=True)]
    return pa.StructArray.from_arrays(flat, fields=list(type_))


def as_table(columns: list[Any], schema: pa.Schema) -> pa.Table:
    """Columns of that schema as a table."""
    flat = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pa.Table.from_arrays(flat, schema=schema)
