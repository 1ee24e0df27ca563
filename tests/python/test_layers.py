"""Modules import one another in one direction: no module reaches itself through its imports.

Imports inside of functions and for type checkers count like all others.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PYTHON = Path(__file__).parents[2] / "python"


def module_files(root):
    """The modules below a folder: dotted name and file; a package by the name of its folder."""
    files = {}
    for path in sorted(root.rglob("*.py*")):
        if path.suffix not in {".py", ".pyi"}:
            continue
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imported(tree: ast.Module, name: str, *, is_package: bool) -> Iterator[tuple[str, str | None]]:
    """The modules that a module names in imports, each with what is taken of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: len(name.split(".")) - node.level + is_package]
            base = ".".join([*above, *filter(None, [node.module])]) if node.level else node.module
            for alias in node.names:
                yield base, alias.name


def arrows_of(root):
    """Every module with the modules that it imports."""
    files = module_files(root)
    arrows = {}
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = set()
        for module, member in imported(tree, name, is_package=path.name == "__init__.py"):
            below = f"{module}.{member}"
            target = below if below in files else module
            if target in files and target != name:
                found.add(target)
        arrows[name] = found
    return arrows


def circles_of(arrows):
    """The sets of modules that reach one another."""

    def reached(start):
        seen, left = set(), [start]
        while left:
            for target in arrows[left.pop()] - seen:
                seen.add(target)
                left.append(target)
        return seen

    reach = {name: reached(name) for name in arrows}
    circles = {
        tuple(sorted({name, *(other for other in reach[name] if name in reach[other])}))
        for name in arrows
        if name in reach[name]
    }
    return sorted(circles)


def test_no_modules_import_each_other():
    arrows = arrows_of(PYTHON)
    assert len(arrows) > 60
    assert circles_of(arrows) == []


@pytest.mark.parametrize(
    "line",
    [
        "import p.b",
        "from p import b",
        "from p.b import f",
        "from . import b",
        "from .b import f",
        "def g():\n    from p.b import f",
        "if TYPE_CHECKING:\n    from p.b import f",
    ],
)
def test_a_circle_is_found_however_it_is_written(tmp_path, line):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "__init__.py").write_text("")
    (tmp_path / "p" / "a.py").write_text(line)
    (tmp_path / "p" / "b.py").write_text("import os\nimport p.c")
    (tmp_path / "p" / "c.py").write_text("from p.a import g")
    assert circles_of(arrows_of(tmp_path)) == [("p.a", "p.b", "p.c")]
    (tmp_path / "p" / "c.py").write_text("import os")
    assert circles_of(arrows_of(tmp_path)) == []
