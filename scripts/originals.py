"""Writes docs/originals: what each original system does, whether Plait does it, where it is tested.

tests/originals has the behaviours. A test names those that it is about:

    @pytest.mark.behaviour("scan-07", "scan-08")     above a test of tests/python
    /// behaviour: join-15                           above a test of rust

Text is searched, and no test is imported. `--check` writes nothing and fails if a page is stale.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: pip brings a copy
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("overlay", "merge", "scan", "interleave", "join")
IN_RUST = re.compile(
    r"^ *///? behaviour: ([\w, -]+)$((?:\n *(?:///|#\[).*)*)\n *fn (\w+)", re.MULTILINE
)
DIFFERENT = "different, because "


@dataclass
class Behaviour:
    """A sentence on what the original does, and what Plait does."""

    name: str
    section: str
    original: str
    plait: str
    tests: list[str] = field(default_factory=list)


@dataclass
class Page:
    """One original."""

    title: str
    about: str
    behaviours: list[Behaviour]


def read(folder: Path = ROOT / "tests/originals") -> dict[str, Page]:
    """The behaviours of all originals."""
    pages = {}
    for page in PAGES:
        parts = tomllib.loads((folder / f"{page}.toml").read_text(encoding="utf-8"))
        title, about = parts.pop("title"), parts.pop("about")
        behaviours = [
            Behaviour(name, section, *entry)
            for section, entries in parts.items()
            for name, entry in entries.items()
        ]
        pages[page] = Page(title, about, behaviours)
    return pages


def marked(root: Path = ROOT) -> list[tuple[str, str]]:
    """Every behaviour that a test names, with the test."""
    found = []
    for path in sorted((root / "tests/python").glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.behaviour(" not in text:
            continue
        for node in ast.parse(text).body:
            for call in getattr(node, "decorator_list", ()):
                if ast.unparse(call).startswith("pytest.mark.behaviour("):
                    names = [ast.literal_eval(name) for name in call.args]
                    found += [(name, f"tests/python/{path.name}::{node.name}") for name in names]
    for path in sorted((root / "rust").glob("**/*.rs")):
        text = path.read_text(encoding="utf-8")
        if "behaviour: " not in text:
            continue
        for names, _, test in IN_RUST.findall(text):
            where = path.relative_to(root).as_posix()
            found += [(name.strip(), f"{where}::{test}") for name in names.split(",")]
    return found


def problems(pages: dict[str, Page], marks: list[tuple[str, str]]) -> list[str]:
    """What is wrong with the table; tests are added to their behaviours."""
    found = []
    known: dict[str, Behaviour] = {}
    for prefix, page in pages.items():
        for behaviour in page.behaviours:
            name = behaviour.name
            if name in known:
                found.append(f"{name}: there are two")
            if not re.fullmatch(prefix + r"-\d\d", name):
                found.append(f"{name}: not named as its page, `{prefix}-00`")
            if behaviour.plait not in ("same", "missing") and not (
                behaviour.plait.startswith(DIFFERENT) and len(behaviour.plait) > len(DIFFERENT)
            ):
                found.append(f"{name}: `{behaviour.plait}` is not same, missing or different")
            known[name] = behaviour
    for name, test in marks:
        if name in known:
            known[name].tests.append(test)
        else:
            found.append(f"{test}: there is no behaviour `{name}`")
    for behaviour in known.values():
        if behaviour.plait == "missing" and behaviour.tests:
            found.append(f"{behaviour.name}: is missing, but {behaviour.tests[0]} tests it")
        elif behaviour.plait != "missing" and not behaviour.tests:
            found.append(f"{behaviour.name}: has no test")
    return found


def written(page: Page) -> str:
    """A page of the site."""
    kinds = [behaviour.plait.partition(",")[0] for behaviour in page.behaviours]
    same, different, missing = map(kinds.count, ("same", "different", "missing"))
    counts = f"{same} are the same in Plait, {different} differ on purpose, {missing} are missing"
    lines = [
        f"# {page.title}",
        "",
        "<!-- Written by scripts/originals.py; the behaviours are in tests/originals. -->",
        "",
        *wrapped(page.about),
        "",
        f"Of {len(kinds)} behaviours, {counts}.",
    ]
    section = None
    for behaviour in page.behaviours:
        if behaviour.section != section:
            section = behaviour.section
            lines += ["", f"## {section}", ""]
        plait = behaviour.plait[0].upper() + behaviour.plait[1:]
        text = f"- **{behaviour.name}** {behaviour.original} *{plait}.*"
        lines += wrapped(text, "  ")
        modules: dict[str, list[str]] = {}
        for test in behaviour.tests:
            module, _, name = test.partition("::")
            modules.setdefault(module, []).append(f"`{name}`")
        for module, names in modules.items():
            lines[-1] += "<br>"
            lines.append(f"  [{Path(module).name}](../../{module}):")
            lines += [f"  {name}," for name in names[:-1]] + [f"  {names[-1]}"]
    return "\n".join(lines) + "\n"


def wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, 96, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def main(arguments: list[str]) -> int:
    """Writes or checks the pages."""
    pages = read()
    wrong = problems(pages, marked())
    for name, page in pages.items():
        path, text = ROOT / "docs/originals" / f"{name}.md", written(page)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            if "--check" in arguments:
                wrong.append(f"{path.relative_to(ROOT)}: is stale, run scripts/originals.py")
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
