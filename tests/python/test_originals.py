"""The pages of docs/originals are true: every behaviour has a test, and every marker a behaviour."""

import importlib.util
import re
import sys

import pytest


@pytest.fixture
def script(root, monkeypatch):
    """`scripts/originals.py` as a module."""
    spec = importlib.util.spec_from_file_location("originals", root / "scripts/originals.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "originals", module)
    spec.loader.exec_module(module)
    return module


def test_every_behaviour_has_a_test_and_every_page_is_up_to_date(script, capsys):
    assert script.main(["--check"]) == 0, capsys.readouterr().out


def test_every_page_is_in_the_navigation(script, root):
    navigation = (root / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    found = re.findall(r": originals/(\w+)\.md$", navigation, re.MULTILINE)
    assert found == list(script.PAGES)
    assert {path.stem for path in (root / "docs/originals").iterdir()} == set(script.PAGES)


def behaviour(script, name, plait):
    return script.Behaviour(name, "Part", "It does.", plait)


def test_what_is_wrong_with_the_table_is_told(script):
    def problems(behaviours, *marks):
        page = script.Page("Title", "About.", [behaviour(script, *each) for each in behaviours])
        return script.problems({"scan": page}, list(marks))

    assert problems([("scan-01", "same")], ("scan-01", "test")) == []
    assert problems([("scan-01", "missing")]) == []
    for behaviours, marks, told in (
        ([("scan-01", "same")], [], "scan-01: has no test"),
        ([("scan-01", "different, because of x")], [], "scan-01: has no test"),
        ([], [("scan-02", "test")], "test: there is no behaviour `scan-02`"),
        ([("scan-01", "missing")], [("scan-01", "test")], "scan-01: is missing, but test tests it"),
        ([("scan-01", "alike")], [("scan-01", "test")], "scan-01: `alike` is not same"),
        ([("join-01", "same")], [("join-01", "test")], "join-01: not named as its page"),
        ([("scan-01", "same")] * 2, [("scan-01", "test")], "scan-01: there are two"),
    ):
        assert any(problem.startswith(told) for problem in problems(behaviours, *marks)), told


def test_a_page_that_is_stale_is_told(script, tmp_path, monkeypatch, capsys):
    pages = script.read()
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "read", lambda: pages)
    monkeypatch.setattr(script, "marked", list)
    monkeypatch.setattr(script, "problems", lambda *_: [])
    assert script.main(["--check"]) == 1
    assert "docs/originals/scan.md: is stale" in capsys.readouterr().out
    assert script.main([]) == 0 and script.main(["--check"]) == 0
    page = tmp_path / "docs/originals/scan.md"
    page.write_text(page.read_text(encoding="utf-8") + "more\n", encoding="utf-8")
    assert script.main(["--check"]) == 1


def test_markers_are_found_in_python_and_rust(script, tmp_path):
    (tmp_path / "tests/python").mkdir(parents=True)
    (tmp_path / "rust/core").mkdir(parents=True)
    (tmp_path / "tests/python/test_x.py").write_text(
        '@pytest.mark.behaviour("scan-01", "scan-02")\n'
        '@pytest.mark.parametrize("a", [1])\ndef test_a(a):\n    pass\n'
    )
    (tmp_path / "rust/core/x.rs").write_text(
        "    /// What it is.\n    /// behaviour: join-01, join-02\n    #[test]\n    fn b() {}\n"
    )
    assert script.marked(tmp_path) == [
        ("scan-01", "tests/python/test_x.py::test_a"),
        ("scan-02", "tests/python/test_x.py::test_a"),
        ("join-01", "rust/core/x.rs::b"),
        ("join-02", "rust/core/x.rs::b"),
    ]
