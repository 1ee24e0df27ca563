"""Rows of several runs as they come, held until all runs are there; beyond a limit in files.

    batches ─▶ run 1: ██ ██      held > limit ─▶ one file: run 1 ██ ██ │ run 2 █ │ …
               run 2: █
               ⋮                 in_order ─▶ a reader for each run, batches as they came

Invariants: rows of a run keep their order; what is held stays below the limit but for one batch;
the files are gone when the block ends, however it ends.
Not here: the merge (`functions`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import InvalidArgument, SchemaConflict, UnknownColumn
from plait.spark.worker import local_dir

if TYPE_CHECKING:
    from typing_extensions import Self

# A merge holds one batch of every run.
_SPILLED_ROWS = 1_024


class Runs:
    """The runs of some batches; a context manager, for it has files."""

    def __init__(self, run_column: str, memory_limit: int) -> None:
        self._column = run_column
        # Half for what is held, half for the merge.
        self._limit = memory_limit // 2
        self._schema: pa.Schema | None = None
        self._held: dict[Any, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        # For every run the positions of its batches: file, first, behind the last.
        self._places: dict[Any, list[tuple[int, int, int]]] = {}
        self._files: list[Path] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def spilled(self) -> int:
        """How many files were written."""
        return len(self._files)

    def add(self, batch: pa.RecordBatch) -> None:
        """Deals the rows of a batch to their runs."""
        if batch.num_rows == 0:
            return
        if self._schema is None:
            self._schema = batch.schema
        elif batch.schema != self._schema:
            raise SchemaConflict.of(
                "batches have different columns", got=f"{batch.schema} after {self._schema}"
            )
        index = batch.schema.get_field_index(self._column)
        if index < 0:
            raise UnknownColumn.of(
                f"there is no column `{self._column}`", got=", ".join(batch.schema.names)
            )
        runs = batch.column(index)
        if runs.null_count:
            raise InvalidArgument.of(
                f"`{self._column}` is null", hint="give every row the name of its run"
            )
        values = pc.unique(runs)
        for value in values:
            mine = batch if len(values) == 1 else batch.filter(pc.equal(runs, value))
            self._held.setdefault(value.as_py(), []).append(mine)
            self._held_bytes += mine.nbytes
        if self._held_bytes > self._limit:
            self._spill()

    def in_order(self) -> list[pa.RecordBatchReader]:
        """A reader for every run, in the order of the runs' values."""
        schema = self._schema
        if schema is None:
            return []
        files = [pa.ipc.open_file(pa.OSFile(str(path))) for path in self._files]
        runs = sorted({*self._held, *self._places})

        def batches(run: object) -> Iterator[pa.RecordBatch]:
            for file, first, end in self._places.get(run, ()):
                for index in range(first, end):
                    yield files[file].get_batch(index)
            yield from self._held.get(run, ())

        return [pa.RecordBatchReader.from_batches(schema, batches(run)) for run in runs]

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="plait-runs-", dir=local_dir())
        path = Path(self._folder.name, f"{len(self._files)}.arrow")
        count = 0
        with pa.ipc.new_file(str(path), self._schema) as writer:
            for run, held in self._held.items():
                first = count
                for batch in pa.Table.from_batches(held).combine_chunks().to_batches(_SPILLED_ROWS):
                    writer.write_batch(batch)
                    count += 1
                self._places.setdefault(run, []).append((len(self._files), first, count))
        self._files.append(path)
        self._held.clear()
        self._held_bytes = 0
