"""What streams, batches and schemas show in a notebook: their columns, and no rows.

The classes are those of the extension, which draws nothing itself. A stream gives its rows once, so
nothing here reads them.
"""

from __future__ import annotations

from plait import _native
from plait._text import Page, Table, counted


def schema_rows(schema: _native.Schema) -> list[tuple[str, str]]:
    """Columns and their types; one that has no nulls says so."""
    return [
        (name, kind if nullable else f"{kind}, never null")
        for name, kind, nullable in schema.columns
    ]


def schema_html(what: str, schema: _native.Schema, remark: str = "") -> str:
    """The columns of what has this schema, and a remark."""
    count = len(schema)
    return Page(
        title=f"{what} {counted(count, 'column')}",
        tables=(Table(("column", "type"), tuple(schema_rows(schema))),),
        remarks=(remark,) if remark else (),
    ).html()


def _stream(stream: _native.Stream) -> str:
    once = "rows are read once: plait reads on as you iterate, or as another library takes them"
    return schema_html("stream of", stream.schema, once)


def _batch(batch: _native.Batch) -> str:
    rows = f"{batch.num_rows:,} row" + ("" if batch.num_rows == 1 else "s")
    return schema_html(f"batch of {rows} and", batch.schema)


def _schema(schema: _native.Schema) -> str:
    return schema_html("schema of", schema)


def draw() -> None:
    """Gives the classes of the extension what notebooks call."""
    for kind, html in (
        (_native.Stream, _stream),
        (_native.Batch, _batch),
        (_native.Schema, _schema),
    ):
        setattr(kind, "_repr_html_", html)  # noqa: B010 - the stub names what the extension has
