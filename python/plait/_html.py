"""Reports as HTML for notebooks: tables that scroll, and text of others that stays text.

    title ─┐
    SVG   ─┼─▶ one <div>, with the rules that it needs, no script, nothing from elsewhere
    tables ┘

Invariants: colours are the text colour of the page or show on light and dark alike, so the themes
of JupyterLab, VS Code and a browser need no rules of their own; every text passes `escaped`.
Not here: pictures (`_svg`, `_picture`); what a report says (`_text.Page`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

# Rows of a table that are shown at once; the others unfold.
_ROWS_MAX = 24
_ROWS_SHOWN = 12
# What XML forbids, and what would turn the direction of the text after it.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_BORDER = "rgba(128,128,128,.35)"
STYLE = (
    ".plait{color:inherit;font:13px/1.5 system-ui,sans-serif;max-width:100%}"
    ".plait .plait-title{font-weight:600;margin:.4em 0;overflow-wrap:anywhere}"
    ".plait p{margin:.4em 0;overflow-wrap:anywhere}"
    ".plait svg{display:block;max-width:100%;min-width:640px;height:auto}"
    ".plait .plait-table,.plait .plait-picture{overflow-x:auto;margin:.6em 0}"
    ".plait table{border-collapse:collapse;margin:0;color:inherit;font-size:12px}"
    ".plait th,.plait td{padding:.2em .8em .2em 0;text-align:left;vertical-align:top;"
    f"border:0;border-bottom:1px solid {_BORDER};background:none;color:inherit;"
    "max-width:36em;overflow-wrap:break-word;white-space:pre-wrap}"
    ".plait thead th{font-weight:600;white-space:nowrap}"
    ".plait tbody th{font-weight:400;opacity:.75;white-space:nowrap}"
    ".plait .plait-number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".plait details{margin:.2em 0}.plait summary{cursor:pointer}"
    ".plait pre{overflow-x:auto;font-size:12px;margin:.6em 0;background:none;color:inherit}"
)


def escaped(text: str) -> str:
    """The text as HTML and XML show it; characters that they cannot show are `�`."""
    return escape(_UNSHOWN.sub("\ufffd", text))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """A table; the rows of a long one are behind a fold, but for the first."""
    marks = [' class="plait-number"' if is_right else "" for is_right in right]
    head = "".join(
        f'<th scope="col"{mark}>{escaped(name)}</th>'
        for name, mark in zip(columns, marks, strict=True)
    )

    def body(part: Sequence[Sequence[str]]) -> str:
        lines = [
            "".join(
                f"<td{mark}>{escaped(cell)}</td>" for cell, mark in zip(row, marks, strict=True)
            )
            for row in part
        ]
        return (
            f'<div class="plait-table"><table><thead><tr>{head}</tr></thead><tbody>'
            + "".join(f"<tr>{line}</tr>" for line in lines)
            + "</tbody></table></div>"
        )

    if len(rows) <= _ROWS_MAX:
        return body(rows)
    rest = rows[_ROWS_SHOWN:]
    return (
        f"{body(rows[:_ROWS_SHOWN])}<details><summary>{len(rest):,} more rows</summary>"
        f"{body(rest)}</details>"
    )


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and what they are."""
    lines = [
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(value)}</td></tr>'
        for name, value in pairs
    ]
    return f'<div class="plait-table"><table><tbody>{"".join(lines)}</tbody></table></div>'


def picture(svg: str) -> str:
    """A picture, which scrolls where it would be too small to read; nothing for none."""
    return f'<div class="plait-picture">{svg}</div>' if svg else ""


def remark(text: str) -> str:
    """A sentence, or lines as they are."""
    return f"<pre>{escaped(text)}</pre>" if "\n" in text else f"<p>{escaped(text)}</p>"


def page(title: str, parts: Sequence[str]) -> str:
    """A title and what is below it, which is HTML already."""
    return (
        f'<div class="plait"><style>{STYLE}</style>'
        f'<p class="plait-title">{escaped(title)}</p>{"".join(parts)}</div>'
    )
