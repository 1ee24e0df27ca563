"""What a scan found and what it did, as values.

Not here: the scan (`_scan`); how it is counted (the engine).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plait._native import Schema
from plait._notebook import schema_rows
from plait._svg import Quantity, chart
from plait._text import Page, Table, counted


@dataclass(frozen=True)
class SchemaChange:
    """The schema changed, in mode `"follow"`.

    Attributes:
        source: The source that brought the change.
        what: What changed, a sentence each.
    """

    source: str
    what: tuple[str, ...]


@dataclass(frozen=True)
class ScanReport:
    """What a scan found, and what it did so far.

    Attributes:
        sources: Number of sources.
        files: How many of them are files.
        schemas: Number of distinct schemas among them.
        rows_known: Rows of all files, where their footers were read.
        sources_opened: Sources that were opened for reading.
        sources_skipped: Sources without a read row so far.
        rows: Rows returned.
        batches: Batches returned.
        seen: In how many sources each column is.
        resolve_seconds: Seconds it took to resolve the schema.
        peak_bytes: Peak size of bytes read and batches that waited.
        changes: Changes of the schema, in mode `"follow"`.
    """

    sources: int
    files: int
    schemas: int
    rows_known: int | None
    sources_opened: int
    sources_skipped: int
    rows: int
    batches: int
    seen: Mapping[str, int]
    resolve_seconds: float
    peak_bytes: int
    changes: tuple[SchemaChange, ...]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ScanReport:
        """The report that the engine wrote."""
        changes = tuple(SchemaChange(c["source"], tuple(c["what"])) for c in values.pop("changes"))
        return cls(**values, changes=changes)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        known = "" if self.rows_known is None else f", {counted(self.rows_known, 'row')} in files"
        schemas = f"{counted(self.sources, 'source')} of {counted(self.schemas, 'schema')}"
        opened = counted(self.sources_opened, "source")
        lines = [
            f"scanned  {schemas}{known}",
            f"read     {counted(self.rows, 'row')} in {counted(self.batches, 'batch')}",
            f"opened   {opened}, skipped {self.sources_skipped:,}",
            *(f"changed  in {c.source}: {'; '.join(c.what)}" for c in self.changes),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self._page().html()

    def _page(self, schema: Schema | None = None, facts: Sequence[tuple[str, str]] = ()) -> Page:
        """The report as a page; with types where a schema is given."""
        types = dict(schema_rows(schema)) if schema else {}
        names = list(types) or list(self.seen)
        where = {n: f"in {self.seen[n]:,} of {self.sources:,}" for n in names if n in self.seen}
        picture = chart(
            "Columns, and in how many sources they are",
            [Quantity(name, self.seen[name], seen) for name, seen in where.items()],
        )
        rows = tuple((name, types.get(name, ""), where.get(name, "added")) for name in names)
        lines = [
            *facts,
            ("sources", f"{self.sources:,}, {self.files:,} of them files"),
            ("schemas", f"{self.schemas:,}"),
            *([] if self.rows_known is None else [("rows in files", f"{self.rows_known:,}")]),
            ("read so far", f"{counted(self.rows, 'row')} in {counted(self.batches, 'batch')}"),
            (
                "opened",
                f"{counted(self.sources_opened, 'source')}, skipped {self.sources_skipped:,}",
            ),
        ]
        return Page(
            title=f"scan of {counted(self.sources, 'source')} into {counted(len(names), 'column')}",
            svg=picture,
            tables=(Table(("column", "type", "sources"), rows),),
            facts=tuple(lines),
            remarks=tuple(f"changed in {c.source}: {'; '.join(c.what)}" for c in self.changes),
        )


@dataclass(frozen=True)
class SourceAdapter:
    """The conversion of every column of one source.

    Attributes:
        source: Path of the file, or name of the stream.
        rows: Rows of the file; `None` for a stream.
        columns: Every column of the output, and what is done for it.
    """

    source: str
    rows: int | None
    columns: tuple[tuple[str, str], ...]
