"""Entries of files that a commit adds to an Iceberg table.

output ──────── footer ───────▶ entry of a data file: metrics, sort order
deleted rows ─▶ delete file ──▶ entry of a position delete file

Invariants: new files are of the partition, and of its specification, of those that they replace. A
delete file names one data file, so that readers open it for that one alone.
Cost: the footer of each output, many at a time.
Not here: the snapshot (`iceberg_snapshot`). Source: the Iceberg table specification, "Position
Delete Files".
"""

from __future__ import annotations

import base64
import contextlib
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from plait._logs.iceberg_files import FILE_PATH, POS
from plait.order import _quoted_if_odd
from plait.table.deletes import DeletedRows

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as IcebergTable

__all__ = ["new_data_files", "new_delete_file", "order_of", "remove"]


def order_of(table: IcebergTable, schema: Schema | None = None) -> str | None:
    """The table's sort order as `sort_by`; `None` if it has none that says it all.

    Args:
        table: The table.
        schema: The schema by whose names it is said; the table's by default.
    """
    schema = schema or table.schema()
    parts = []
    for field in table.sort_order().fields:
        if str(field.transform) != "identity":
            return None
        name = schema.find_column_name(field.source_id)
        if name is None:
            return None
        # As the engine spells it, so that footers can be compared.
        sign = "-" if field.direction.name == "DESC" else ""
        nulls = " nulls first" if field.null_order.name == "NULLS_FIRST" else ""
        parts.append(f"{sign}{_quoted_if_odd(name)}{nulls}")
    return ", ".join(parts) or None


def new_data_files(table: IcebergTable, made: Sequence[tuple[str, DataFile]]) -> list[DataFile]:
    """The entries of outputs; as many footers are read at a time as PyIceberg has threads.

    Args:
        table: The table.
        made: Outputs, each with a file that it replaces.
    """
    from pyiceberg.utils.concurrent import ExecutorFactory  # noqa: PLC0415 - an extra

    paths, likes = [path for path, _ in made], [like for _, like in made]
    return list(ExecutorFactory.get_or_create().map(partial(_data_file, table), paths, likes))


def _data_file(table: IcebergTable, path: str, like: DataFile) -> DataFile:
    """The entry of an output: partition of what it replaces, metrics from its footer."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - of PyIceberg
    from pyiceberg.io.pyarrow import (  # noqa: PLC0415
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
        pyarrow_to_schema,
    )
    from pyiceberg.manifest import DataFile  # noqa: PLC0415

    source = table.io.new_input(path)
    with source.open() as stream:
        footer = pq.read_metadata(stream)
    # The file's own names and ids: columns may have been renamed or dropped since.
    schema = pyarrow_to_schema(
        footer.schema.to_arrow_schema(), table.name_mapping(), downcast_ns_timestamp_to_us=True
    )
    metrics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    made = DataFile.from_args(
        content=like.content,
        file_path=path,
        file_format=like.file_format,
        partition=like.partition,
        file_size_in_bytes=len(source),
        sort_order_id=_sort_order_id(table, footer.metadata or {}, schema),
        equality_ids=None,
        key_metadata=None,
        **metrics.to_serialized_dict(),
    )
    made.spec_id = like.spec_id
    return made


def new_delete_file(table: IcebergTable, path: str, gone: DeletedRows, like: DataFile) -> DataFile:
    """Writes a position delete file next to an output.

    Args:
        table: The table.
        path: The output, as its entry names it.
        gone: Deleted rows of it, as numbers.
        like: A file that it replaces.

    Returns:
        The entry of the delete file.
    """
    import pyarrow as pa  # noqa: PLC0415 - of PyIceberg
    import pyarrow.parquet as pq  # noqa: PLC0415
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat  # noqa: PLC0415

    def column(name: str, values: pa.DataType, field_id: int) -> pa.Field:
        return pa.field(name, values, nullable=False, metadata={"PARQUET:field_id": str(field_id)})

    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), gone.rows), [path])
    numbers = pa.py_buffer(base64.b64decode(gone.encoded))
    positions = pa.Array.from_buffers(pa.int64(), gone.rows, [None, numbers])
    columns = [column("file_path", paths.type, FILE_PATH), column("pos", pa.int64(), POS)]
    rows = pa.Table.from_arrays([paths, positions], schema=pa.schema(columns))
    where = f"{path.rpartition('/')[0]}/{uuid.uuid4()}-deletes.parquet"
    output = table.io.new_output(where)
    with output.create() as stream:
        # Readers are to find text, not what PyArrow made of it.
        pq.write_table(rows, stream, store_schema=False, compression="zstd")
    name = path.encode()
    made = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=where,
        file_format=FileFormat.PARQUET,
        partition=like.partition,
        record_count=gone.rows,
        file_size_in_bytes=len(output),
        lower_bounds={FILE_PATH: name},
        upper_bounds={FILE_PATH: name},
    )
    made.spec_id = like.spec_id
    return made


def remove(table: IcebergTable, paths: Iterable[str]) -> None:
    """Removes files that do not count. What cannot be removed is an orphan file of the table."""
    for path in paths:
        # The commit is made, or is tried again: neither fails for this.
        with contextlib.suppress(OSError):
            table.io.delete(path)


def _sort_order_id(table: IcebergTable, metadata: dict[bytes, bytes], schema: Schema) -> int | None:
    """The table's sort order, if the output has it: of the same columns by their ids."""
    made = metadata.get(b"plait.sort_order", b"").decode()
    return table.sort_order().order_id if made and made == order_of(table, schema) else None
