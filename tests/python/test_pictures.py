"""Pictures of plans and reports: what is drawn is what the plan and the report say, row by row."""

from __future__ import annotations

import random
import re
from itertools import combinations, pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait


def write(path, keys) -> None:
    pq.write_table(pa.table({"k": pa.array(keys, pa.int64())}), path)


@pytest.fixture
def thirds(tmp_path):
    """288,000 rows in two files that overlap, keys of uneven distance, for three equal outputs."""
    first = list(range(200_000))
    second = list(range(150_000, 150_000 + 88_000 * 50, 50))
    write(tmp_path / "first.parquet", first)
    write(tmp_path / "second.parquet", second)
    return [tmp_path / "first.parquet", tmp_path / "second.parquet"]


def check_tiles(bars, rows: list[int]) -> None:
    """Outputs stand side by side, each as wide as it has rows."""
    assert [bar.rows for bar in bars] == rows
    at = 0.0
    for bar, count in zip(bars, rows, strict=True):
        assert bar.start == pytest.approx(at) and bar.end - bar.start == pytest.approx(count)
        at += count


def rectangles(svg: str) -> list[tuple[float, float]]:
    """Begin and width of each bar, as shares of the axis."""
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    bars = [(float(x), float(width)) for x, width in found]
    left, right = min(x for x, _ in bars), max(x + width for x, width in bars)
    return [((x - left) / (right - left), width / (right - left)) for x, width in bars]


def test_equal_outputs_are_drawn_equal_and_share_no_row(thirds, tmp_path):
    planned = plait.plan(thirds, sort_by="k", outputs=3)
    rows = [task.rows for task in planned.tasks]
    assert rows == [96_000] * 3
    picture = planned._picture()
    check_tiles(picture.placed.outputs, rows)
    assert {depth for _, _, depth in picture.placed.output_depth} == {1}
    drawn = rectangles(planned._repr_html_())[2:]
    assert [width for _, width in drawn] == pytest.approx([1 / 3] * 3, abs=1e-3)
    assert [x for x, _ in drawn] == pytest.approx([0, 1 / 3, 2 / 3], abs=1e-3)
    lines = [line for line in str(planned).splitlines() if "part-0000" in line]
    assert [line.count("═") + line.count("╞") + line.count("╡") for line in lines] == [20] * 3

    report = planned.execute(tmp_path / "out")
    check_tiles(report._picture().placed.outputs, [output.rows for output in report.outputs])
    assert {
        depth for start, end, depth in report._picture().placed.output_depth if end > start
    } == {1}


def test_sources_lie_where_their_rows_go(thirds):
    placed = plait.plan(thirds, sort_by="k", outputs=3)._picture().placed
    first, second = placed.sources
    # All of the first file's rows, and those of the second whose keys are not above its last.
    shared = len(range(150_000, 200_000, 50))
    assert (first.start, first.end) == (0, pytest.approx(200_000 + shared, rel=0.01))
    assert (second.start, second.end) == (pytest.approx(150_000, rel=0.01), 288_000)
    deep = [(start, end) for start, end, depth in placed.source_depth if depth == 2]
    assert deep[0][0] == pytest.approx(150_000, rel=0.01)
    assert deep[-1][1] == pytest.approx(first.end)


def test_names_and_keys_are_the_real_ones(thirds, tmp_path):
    planned = plait.plan(thirds, sort_by="k", outputs=3)
    report = planned.execute(tmp_path / "out")
    names = [output.path.rsplit("/", 1)[1] for output in report.outputs]
    assert [bar.name for bar in planned._picture().placed.outputs] == names
    for drawn in (str(planned), planned._repr_html_(), report._repr_html_()):
        for name in ("first.parquet", "second.parquet", *names):
            assert name in drawn
    marks = {mark.key[0]: mark.row for mark in planned._picture().placed.marks}
    cuts = [output.key_min[0] for output in report.outputs][1:]
    assert [marks[cut] for cut in cuts] == pytest.approx([96_000, 192_000])
    assert marks[0] == 0 and 4_549_950 in marks
    assert "4549950" in str(planned) and ">4549950</text>" in report._repr_html_()
    alone = plait.plan(thirds, tmp_path / "one.parquet", sort_by="k")
    assert "one.parquet" in str(alone)


def test_files_that_share_one_key_alone_are_two_deep(tmp_path):
    write(tmp_path / "a.parquet", [1, 2, 5])
    write(tmp_path / "b.parquet", [5, 8, 9])
    planned = plait.plan([tmp_path / "a.parquet", tmp_path / "b.parquet"], sort_by="k")
    assert planned.overlap.depth_max == 2
    depths = planned._picture().placed.source_depth
    assert max(depth for start, end, depth in depths if end > start) == 2
    assert "at most 2" in str(planned)


def test_random_plans_are_drawn_as_they_are(tmp_path):
    for seed in range(30):
        draw = random.Random(seed)
        paths = []
        for i in range(draw.randrange(1, 6)):
            start = draw.randrange(500)
            keys = sorted(start + draw.randrange(400) for _ in range(draw.randrange(1, 300)))
            paths.append(tmp_path / f"{seed}-{i}.parquet")
            write(paths[-1], keys)
        planned = plait.plan(paths, sort_by="k", outputs=draw.randrange(1, 5))
        placed = planned._picture().placed
        check_tiles(placed.outputs, [task.rows for task in planned.tasks])
        assert {depth for _, _, depth in placed.output_depth} <= {1}, seed
        assert max(depth for _, _, depth in placed.source_depth) == planned.overlap.depth_max, seed
        assert all(bar.start < bar.end for bar in placed.sources), seed
        ends = [mark.row for mark in placed.marks]
        assert all(a <= b for a, b in pairwise(ends)), seed
        # No file is narrower than its rows, for others lie between them.
        assert all(bar.end - bar.start >= bar.rows * 0.4 for bar in placed.sources), seed


def test_the_drawn_figure_has_bars_names_and_keys(thirds, tmp_path):
    pytest.importorskip("matplotlib")
    planned = plait.plan(thirds, sort_by="k", outputs=3)
    figure = planned.plot(tmp_path / "plan.png")
    before, depth, after = figure.axes
    assert [patch.get_width() for patch in after.patches] == pytest.approx([96_000] * 3)
    assert [patch.get_x() for patch in after.patches] == pytest.approx([0, 96_000, 192_000])
    assert [text.get_text() for text in before.get_yticklabels()] == [
        "first.parquet",
        "second.parquet",
    ]
    assert all(text.get_text().startswith("part-0000") for text in after.get_yticklabels())
    assert max(depth.patches[0].get_data().values) == 2
    ticks = [text.get_text() for text in after.get_xticklabels()]
    assert ticks[0] == "0" and ticks[-1] == "4549950"
    assert [axis.get_title(loc="left") for axis in (before, after)] == [
        "Before: 2 files, up to 2 overlap, not merged before",
        "After: 3 files, none overlap, mostly copied as whole pages",
    ]


def test_no_text_of_a_drawn_figure_is_cut_or_covers_another(thirds, tmp_path):
    pytest.importorskip("matplotlib")
    for i in range(40):
        write(tmp_path / f"a-name-that-is-much-longer-than-others-{i:03}.parquet", [i, i + 10**15])
    for sources in (thirds, sorted(tmp_path.glob("a-name*"))):
        figure = plait.plan(sources, sort_by="k", outputs=3).plot(tmp_path / "plan.png")
        canvas = figure.canvas
        canvas.draw()
        whole = figure.bbox
        for axis in figure.axes:
            texts = [
                *axis.get_yticklabels(),
                *(axis.get_xticklabels() if axis is figure.axes[-1] else ()),
                axis.title,
                axis._left_title,
            ]
            boxes = [t.get_window_extent() for t in texts if t.get_text()]
            for box in boxes:
                assert box.x0 >= whole.x0 and box.x1 <= whole.x1 + 1, sources
                assert box.y0 >= whole.y0 and box.y1 <= whole.y1 + 1, sources
            for a, b in combinations(boxes, 2):
                assert not a.shrunk(0.95, 0.95).overlaps(b.shrunk(0.95, 0.95)), sources


def test_plans_without_keys_and_without_rows_are_drawn_too(tmp_path):
    write(tmp_path / "a.parquet", [3, 1])
    write(tmp_path / "b.parquet", [])
    empty_order = plait.plan(tmp_path / "?.parquet", sort_by=[])
    assert empty_order._repr_html_().count("<rect") == 1
    nothing = plait.plan([tmp_path / "b.parquet"], sort_by="k")
    assert "0 rows" in str(nothing) and nothing._repr_html_()
