"""The charts of the documentation: words inside the picture, apart, and on any background."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
SVG = "{http://www.w3.org/2000/svg}"


def texts(chart: Path) -> list[tuple[str, float, float, float, float]]:
    """Texts and their boxes: left, right, base line, size."""
    pytest.importorskip("matplotlib")
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    found = []
    for text in ET.parse(chart).iter(f"{SVG}text"):
        style = dict(part.split(": ", 1) for part in text.get("style").split("; "))
        size = float(style["font-size"].removesuffix("px"))
        font = FontProperties(
            family="DejaVu Sans", weight="bold" if "font-weight" in style else "normal"
        )
        wide, _, _ = text_to_path.get_text_width_height_descent(text.text, font, False)
        wide *= size / font.get_size_in_points()
        # Of several lines each is moved to its place.
        moved = re.fullmatch(r"translate\(([\d.]+) ([\d.]+)\)", text.get("transform"))
        x, y = map(float, moved.groups() if moved else (text.get("x"), text.get("y")))
        anchor = style.get("text-anchor", "start")
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        found.append((text.text, left, left + wide, y, size))
    return found


def check(chart: Path) -> list[str]:
    width, height = map(float, ET.parse(chart).getroot().get("viewBox").split()[2:])
    found = texts(chart)
    assert found
    for text, left, right, y, size in found:
        assert left >= 0 and right <= width, text
        assert size * 0.75 <= y <= height - size * 0.2, text
    for a, b in combinations(found, 2):
        apart = a[2] <= b[1] or b[2] <= a[1]
        assert apart or abs(a[3] - b[3]) >= min(a[4], b[4]) * 0.95, (a, b)
    drawn = chart.read_text(encoding="utf-8")
    # The background is the page's.
    assert not re.search(r'id="patch_1">.*?fill: #ffffff(?!; opacity: 0)', drawn[:3000], re.DOTALL)
    return [text for text, *_ in found]


@pytest.mark.long
def test_the_chart_of_policies_names_curves_and_has_few_ticks(tmp_path):
    shown = check(GUIDE / "policies.svg")
    for name in ("none", "size_tiered", "overlap", "full"):
        assert shown.count(name) == 3, "the name of a curve stands in each panel"
    assert "How often each row was written" in shown
    assert len([text for text in shown if re.fullmatch(r"[\d,]+|day \d+", text)]) <= 16
    # What the script draws of fewer days keeps to the same rules.
    page = tmp_path / "page.md"
    page.write_text("<!-- table -->\n\n<!-- end -->\n", encoding="utf-8")
    script = ROOT / "benches" / "python" / "policies.py"
    subprocess.run([sys.executable, script, "--days", "3", "--write", page], check=True)
    assert set(check(tmp_path / "page.svg")) >= {"day 0", "day 3", "overlap"}


@pytest.mark.long
def test_the_chart_of_a_year_names_curves_and_has_few_ticks(tmp_path):
    shown = check(GUIDE / "year.svg")
    for name in ("none", "size_tiered", "overlap", "full"):
        assert shown.count(name) == 6, "the name of a curve stands in each panel"
    assert {"By time: written per row", "By series: files for a series, most in a week"} <= set(
        shown
    )
    assert len([text for text in shown if re.fullmatch(r"[\d,]+|day \d+", text)]) <= 24
    page = tmp_path / "page.md"
    page.write_text("<!-- year -->\n\n<!-- end of year -->\n", encoding="utf-8")
    script = ROOT / "benches" / "python" / "year.py"
    only = ["--only", "size_tiered by ts, name", "full by name, ts"]
    command = [sys.executable, script, "--days", "9", "--write", page, *only]
    subprocess.run(command, check=True)
    assert set(check(tmp_path / "year.svg")) >= {"day 0", "day 9", "size_tiered", "full"}
    assert "| `name, ts` | full |" in page.read_text(encoding="utf-8")


def test_the_chart_of_benchmarks_shows_what_the_runs_say():
    shown = check(GUIDE / "benchmarks.svg")
    results = json.loads((GUIDE / "benchmarks.json").read_text(encoding="utf-8"))
    compared = [result for result in results if len(result["runs"]) > 1]
    for result in compared:
        facts = result["facts"]
        told = f"{facts['rows']:,} rows, {facts['columns']} columns, {facts['files']} files"
        assert f"{result['name']}: {told}" in shown
    assert shown.count("plait") == len(compared)
    assert shown.count("peak memory, MB") == len(compared) == shown.count("seconds")
    values = [text for text in shown if re.fullmatch(r"[\d,.]+|failed", text)]
    assert len(values) == 2 * sum(len(result["runs"]) for result in compared), (
        "no axis next to them"
    )
