"""HTML in notebooks: well formed, readable without hovering, inert, in light and dark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import combinations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait._html import STYLE
from plait._picture import banded
from plait._svg import COLOURS, Quantity, chart, fitted, text_width
from plait._text import column_names

HOSTILE = "</text></svg><script>alert(1)</script>\"'<img src=x onerror=alert(2)>\x1b\u202e&amp;"
SVG = "{http://www.w3.org/2000/svg}"
VOID = {"br", "img", "input", "hr"}


class Parsed(HTMLParser):
    """Elements, attributes and visible text; fails on what is not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.shown: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag

    def handle_data(self, data):
        # A title inside of a picture is what hovering shows.
        if "style" not in self.open and "title" not in self.open:
            self.shown.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.shown)


def pictures(html: str) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


def check(html: str) -> Parsed:
    parsed = Parsed(html)
    allowed = {"div", "style", "p", "pre", "svg", "path", "rect", "text", "title", "table", "thead"}
    assert parsed.tags <= allowed | {"tbody", "tr", "th", "td", "details", "summary"}
    assert not any(
        name.startswith("on") or name in ("href", "src") for name, _ in parsed.attributes
    )
    # But for the name of SVG's namespace nothing is named that could be loaded.
    links = [v for name, v in parsed.attributes if re.search(r"(https?:|url\(|@import)", v)]
    assert set(links) <= {"http://www.w3.org/2000/svg"}
    for picture in pictures(html):
        check_texts(picture)
    return parsed


def check_texts(picture: ET.Element) -> None:
    """No text is cut by the edge of the picture, or lies over another, in a wide font."""
    width, height = map(float, picture.get("viewBox").split()[2:])
    boxes = []
    for text in picture.iter(f"{SVG}text"):
        wide = measured(text.text, 12, bold=text.get("font-weight") is not None)
        x = (
            float(text.get("x"))
            - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor")]
        )
        y = float(text.get("y"))
        assert x >= 0 and x + wide <= width, text.text
        assert 12 <= y <= height - 3, text.text
        boxes.append((x, x + wide, y, text.text))
    for a, b in combinations(boxes, 2):
        assert a[1] <= b[0] or b[1] <= a[0] or abs(a[2] - b[2]) >= 14, (a, b)
    for bar in picture.iter(f"{SVG}rect"):
        start = float(bar.get("x"))
        assert start >= 0 and start + float(bar.get("width")) <= width + 0.2


def measured(text: str, size: float, *, bold: bool = False) -> float:
    """The width in DejaVu Sans, the widest of the fonts that browsers take for sans-serif."""
    pytest.importorskip("matplotlib")
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    wide, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return wide * size / font.get_size_in_points()


@pytest.fixture
def folder(tmp_path):
    """Files of two key columns that overlap, one of them without the column `host`."""
    for i in range(3):
        times = pa.array([10**15 + (i * 50 + j) * 10**6 for j in range(100)], pa.timestamp("us"))
        columns = {"service": ["a"] * 40 + ["b"] * 60, "ts": times, "v": list(range(100))}
        if i:
            columns["host"] = ["h"] * 100
        pq.write_table(pa.table(columns), tmp_path / f"in-{i}.parquet")
    return tmp_path


@pytest.fixture
def drawn(folder):
    """Every object that draws itself, by name."""
    sources = sorted(folder.glob("in-*.parquet"))
    planned = plait.plan(sources, sort_by="service, ts", outputs=2)
    merged = planned.execute(folder / "merged")
    pq.write_table(pa.table({"_index": [0, 1], "x": [1, 2]}), folder / "base.parquet")
    pq.write_table(pa.table({"_index": [0, 1], "label": ["a", "b"]}), folder / "labels.parquet")
    layers = [
        plait.Layer(folder / "base.parquet"),
        plait.Layer(folder / "labels.parquet", ["label"]),
    ]
    join = plait.ForeignKeyJoin(
        left_key="order_id", foreign_key="buyer_id", right_key="customer_id"
    )
    orders = pa.table({"order_id": [1, 2], "buyer_id": [7, 8]})
    join.apply(left=orders, right=pa.table({"customer_id": [7], "name": ["Ada"]}))
    keys = {"left_key": "order_id", "foreign_key": "buyer_id", "right_key": "customer_id"}
    customers = pa.schema([("customer_id", pa.int64())])
    schemas = {"left_schema": orders.schema, "right_schema": customers}
    scan = plait.scan(sources)
    stream = plait.merge_streams(sources, sort_by="service, ts")
    compacted = folder / "compacted"
    compacted.mkdir()
    for i in range(8):
        pq.write_table(pa.table({"k": [i, i + 5]}), compacted / f"{i}.parquet")
    return {
        "plan": planned,
        "merge": merged,
        "verify": plait.verify(folder / "merged", sort_by="service, ts"),
        "inspect": plait.inspect(merged.outputs[0].path),
        "overlay": plait.overlay_files(layers, folder / "labelled.parquet"),
        "compact": plait.compact(compacted, sort_by="k"),
        "expire": plait.expire(compacted),
        "scan": scan,
        "scanned": scan.report,
        "stream": stream,
        "batch": next(iter(scan)),
        "schema": scan.schema,
        "read": plait.read(sources, sort_by="service, ts", where="v < 7"),
        "join": join,
        "left": plait.StagedLeft(**keys, **schemas),
        "right": plait.StagedRight(**keys, **schemas),
        "pruned": plait.prune(sources, {"service": ["a", None], "v": 7}),
    }


def test_every_object_draws_itself_in_html_that_is_well_formed(drawn):
    for name, made in drawn.items():
        parsed = check(made._repr_html_())
        assert parsed.text.strip(), name
    with_pictures = [name for name, made in drawn.items() if "<svg" in made._repr_html_()]
    assert (
        with_pictures == "plan merge inspect overlay compact scan scanned join left right".split()
    )


def test_pictures_show_names_of_files_columns_and_keys_without_hovering(drawn):
    for name in ("plan", "merge"):
        (picture,) = pictures(drawn[name]._repr_html_())
        texts = [text.text for text in picture.iter(f"{SVG}text")]
        assert {"in-0.parquet", "in-1.parquet", "service", "ts", "a", "b"} <= set(texts), name
        keys = drawn["merge"].outputs
        assert {str(keys[0].key_min[1]), str(keys[-1].key_max[1])} <= set(texts), name
        assert "100 rows" in texts and "150 rows" in texts, name
        assert not any("level" in text for text in texts), name
        assert any(text.startswith("Before: 3 files, up to 3 overlap") for text in texts), name
        assert any(text.startswith("After: 2 files, none overlap") for text in texts), name
    join = check(drawn["join"]._repr_html_()).text
    assert "key: order_id" in join and "key: customer_id" in join and "\nbuyer_id\n" in join
    scan = check(drawn["scan"]._repr_html_()).text
    assert "in 2 of 3" in scan and "in 3 of 3" in scan and "timestamp[us" in scan
    assert "label\n" in check(drawn["overlay"]._repr_html_()).text
    assert "8 files before" in check(drawn["compact"]._repr_html_()).text


def test_staged_sides_show_where_they_are_and_what_is_due(drawn, tmp_path):
    left, right = (check(drawn[name]._repr_html_()).text for name in ("left", "right"))
    assert "left side of a staged inner join" in left and "right side of a staged" in right
    for text in (left, right):
        assert "key: order_id" in text and "key: customer_id" in text and "in memory" in text
    assert left.index("here") < left.index("elsewhere")
    assert right.index("elsewhere") < right.index("here")
    state = tmp_path / "state"
    schema = pa.schema([("k", pa.int64())])
    keys = {"left_key": "k", "foreign_key": "k", "right_key": "k", "how": "left"}
    side = plait.StagedLeft(**keys, left_schema=schema, right_schema=schema, state=state)
    side.send(pa.table({"k": [1]}))
    text = check(side._repr_html_()).text
    assert "staged left join" in text and str(state) in text and "step" in text
    side.close()
    assert "this side was closed" in check(side._repr_html_()).text
    with plait.StagedLeft.restore(state) as again:
        text = check(again._repr_html_()).text
    assert "restored from its state" in text and str(state) in text


def test_pruned_files_are_a_list_that_says_what_was_looked_for(drawn):
    pruned = drawn["pruned"]
    assert isinstance(pruned, list) and len(pruned) == 3
    text = check(pruned._repr_html_()).text
    assert "3 of 3 files may hold what is looked for" in text
    assert "in-0.parquet" in text and "a or null" in text


def test_drawing_a_stream_reads_none_of_its_rows(drawn):
    stream = drawn["stream"]
    assert "service" in check(stream._repr_html_()).text
    assert pa.table(stream).num_rows == 300
    assert "service" in check(stream._repr_html_()).text


def test_hostile_names_and_keys_are_text(tmp_path):
    table = pa.table({HOSTILE: [f"{HOSTILE}{i}" for i in range(3)], "v": [1, 2, 3]})
    file = tmp_path / "<script>alert(1)<\u2215script>.parquet"
    pq.write_table(table, file)
    order = [(HOSTILE, "ascending")]
    planned = plait.plan([file], sort_by=order)
    join = plait.ForeignKeyJoin(left_key=HOSTILE, foreign_key="v", right_key="w")
    join.apply(left=table, right=pa.table({"w": [1]}))
    staged = {
        "left_key": HOSTILE,
        "foreign_key": "v",
        "right_key": "w",
        "left_schema": table.schema,
        "right_schema": pa.schema([("w", pa.int64())]),
    }
    assert "alert(1)" in check(plait.verify(file, sort_by=order)._repr_html_()).text
    made = [
        planned,
        planned.execute(tmp_path / "out"),
        plait.verify(file, sort_by=order),
        plait.inspect(file, sort_by=order),
        plait.scan(file),
        plait.scan(file).report,
        plait.merge_streams([table], sort_by=order),
        join,
        plait.StagedLeft(**staged, state=tmp_path / "<script>state"),
        plait.StagedRight(**staged),
        plait.prune(file, {HOSTILE: f"{HOSTILE}0"}),
    ]
    for one in made:
        html = one._repr_html_()
        parsed = check(html)
        assert "script" in parsed.text or one is join or isinstance(one, plait.StagedRight)
        assert not {"script", "img"} & parsed.tags
        assert "\x1b" not in html and "\u202e" not in html


def test_many_files_are_drawn_as_bands(tmp_path):
    for i in range(216):
        keys = pa.array(range(i * 10, i * 10 + 15))
        pq.write_table(pa.table({"k": keys}), tmp_path / f"hour-{i:03}.parquet")
    planned = plait.plan(tmp_path / "*.parquet", sort_by="k", outputs=7)
    html = planned._repr_html_()
    (picture,) = pictures(html)
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert "Before: 216 files, up to 2 overlap, not merged before" in texts
    assert "18 files: hour-000 to hour-017" in texts and "18 files: hour-198 to hour-215" in texts
    assert sum(text.startswith("18 files") for text in texts) == 12
    assert float(picture.get("height")) < 800
    # All of them are there: 216 in 12 bands, and 7 outputs.
    assert len(list(picture.iter(f"{SVG}rect"))) == 216 + 12 + 7
    assert "18 files: hour-000 to hour-017 (not merged before)" in str(planned)
    assert len(str(planned).split("\n\n")[1].splitlines()) == 1 + 12 + 7 + 1
    check(html)
    for band in banded(planned._picture().placed.sources):
        assert len(band.bars) == 18 and max(band.lanes) == 1
        for (a, lane), (b, other) in combinations(zip(band.bars, band.lanes), 2):
            assert lane != other or a.end <= b.start


def test_bands_of_names_in_no_order_name_no_range(tmp_path):
    for i in range(48):
        name = f"{'ab'[i % 2]}-{i:02}.parquet"
        pq.write_table(pa.table({"k": [i * 2, i * 2 + 1]}), tmp_path / name)
    planned = plait.plan(tmp_path / "*.parquet", sort_by="k", outputs=1)
    text = check(planned._repr_html_()).text
    assert "4 files: a-00, b-01, …" in text and " to b-" not in text


def test_long_tables_fold(folder):
    many = folder / "many"
    many.mkdir()
    for i in range(60):
        pq.write_table(pa.table({"k": [i]}), many / f"{i:02}.parquet")
    html = plait.verify(many, sort_by="k")._repr_html_()
    assert "48 more rows" in check(html).text
    assert html.count("<tr>") == 60 + 2 + 2


def test_long_names_and_keys_stay_in_their_place(tmp_path):
    wide = "W" * 300
    for i in range(3):
        keys = [f"{i}{wide}{j}" for j in range(5)]
        table = pa.table({wide: keys, "漢" * 80: ["漢" * 90 + str(j) for j in range(5)]})
        pq.write_table(table, tmp_path / f"{i}{'漢' * 60}.parquet")
    sources = sorted(tmp_path.glob("*.parquet"))
    order = [(wide, "ascending"), ("漢" * 80, "ascending")]
    planned = plait.plan(sources, sort_by=order, outputs=2)
    for made in (planned, planned.execute(tmp_path / "out"), plait.scan(sources)):
        html = made._repr_html_()
        Parsed(html)
        for picture in pictures(html):
            for text in picture.iter(f"{SVG}text"):
                after = text_width(text.text) if text.get("text-anchor") == "start" else 0
                assert float(text.get("x")) + after <= 860


def test_short_labels_are_whole_and_the_last_key_ends_at_its_line(tmp_path):
    names = [letter * count for letter in "aimtW" for count in (1, 2, 4, 7)]
    pq.write_table(pa.table({name: [1] for name in names}), tmp_path / "a.parquet")
    (picture,) = pictures(plait.scan(tmp_path / "a.parquet")._repr_html_())
    assert set(names) <= {text.text for text in picture.iter(f"{SVG}text")}
    pq.write_table(pa.table({"k": ["iii", "lll"], "n": [1, 2]}), tmp_path / "k.parquet")
    plan = plait.plan(tmp_path / "k.parquet", sort_by="k, n")
    (picture,) = pictures(plan._repr_html_())
    end = max(float(line.get("d")[1:].split()[0]) for line in picture.iter(f"{SVG}path"))
    last = {t.text: t for t in picture.iter(f"{SVG}text") if t.get("text-anchor") == "end"}
    assert set(last) == {"lll", "2"}
    assert {float(text.get("x")) for text in last.values()} == {end}


def test_text_widths_are_those_of_a_wide_font_or_more():
    for text in ("part-00000-96c054365ede285d.parquet", "2024-05-01 13:00:00.5", "MWmw@%", "Éàß"):
        assert text_width(text) >= measured(text, 12), text
    letters = [chr(i) for i in range(33, 127)]
    for letter in letters:
        assert text_width(letter * 20) >= measured(letter * 20, 12), letter
    assert fitted("part-00000.parquet", 70) != "part-00000.parquet"
    assert fitted("part-00000.parquet", 70)[0] == "p" and "…" in fitted("part-00000.parquet", 70)
    assert fitted("short", 70) == "short"


def test_colours_show_on_light_and_dark():
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear))

    def contrast(a: str, b: str) -> float:
        high, low = sorted((luminance(a), luminance(b)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    # Grounds of JupyterLab and VS Code.
    for colour in COLOURS:
        for ground in ("#ffffff", "#111111", "#1e1e1e"):
            assert contrast(colour, ground) >= 3, (colour, ground)
    # Text has the colour of the page: no rule and no picture sets another.
    assert set(re.findall(r"[{;]color:([^;}]*)", STYLE)) == {"inherit"}
    assert 'fill="currentColor"' in chart("x", [Quantity("a", 1, "1")])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("ts", ("ts",)),
        ("name, -ts nulls first", ("name", "ts (descending)")),
        ('-"a, ""b"" nulls first", c.d NULLS LAST', ('a, "b" nulls first (descending)', "c.d")),
    ],
)
def test_columns_of_an_order_are_named_as_people_call_them(text, names):
    assert column_names(text) == names
