"""Every example of README.md and of the pages of docs runs and prints what it shows.

    ```python     run, all of a page in one namespace
    ```console    lines after `$ ` run in a shell; the others are what they print
    ```text       right after a python block: what that block prints
    ```sh         for the reader's own machine: checked to exist, not run
    ```yaml       run by test_recipes.py, as are python blocks that import a scheduler

`...` in shown output stands for anything; how many spaces there are does not matter, and a
command that fails prints `[exit CODE]` last.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = [
    # Tests of folders, of examples, of what one call tells.
    pytest.mark.local,
    # PyIceberg leaves its catalog's connections open.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/first-hour").glob("*.md")),
    *sorted((ROOT / "docs/guide").glob("*.md")),
    *sorted((ROOT / "docs/recipes").glob("*.md")),
]
OTHERS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path not in PAGES]
LINKING = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES, *OTHERS]
COLUMNS_MAX = 100
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = {"python", "console", "text", "sh", "yaml"}
SCHEDULERS = re.compile(r"^(?:from|import) (?:airflow|dagster)\b", re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, text and first line of every block; a text block is shown output."""
    return blocks_of(page.read_text(encoding="utf-8"))


def blocks_of(text: str) -> list[tuple[str, str, int]]:
    """The blocks of the text of a page."""
    return [(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in BLOCK.finditer(text)]


def same(shown: str, printed: str) -> bool:
    """Whether `printed` is what a page shows, up to spacing and `...`."""

    def squeeze(text: str) -> str:
        return "\n".join(re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines())

    parts = [re.escape(part) for part in squeeze(shown).split("...")]
    return re.fullmatch(".*?".join(parts), squeeze(printed), re.DOTALL) is not None


def shell(command: str) -> str:
    """What a command prints, errors too, then its exit code if that is not 0."""
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    return done.stdout + done.stderr + (f"[exit {done.returncode}]\n" if done.returncode else "")


def sessions(text: str) -> list[tuple[str, str]]:
    """Commands and what is shown below each."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not parts[0], "a console block starts with a command"
    pairs = []
    for part in parts[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = command[:-1] + more
        pairs.append((command, shown))
    return pairs


def variables(page: Path, **replaced: str) -> dict[str, str]:
    """What a page exports, with `replaced` for values of some names that it exports."""
    exported = dict(re.findall(r"^    export (\w+)=(\S+)$", page.read_text("utf-8"), re.MULTILINE))
    assert replaced.keys() <= exported.keys(), f"{page.name} exports {sorted(exported)}"
    return exported | replaced


ON_SPARK = [page for page in PAGES if page.name.startswith("spark")]
RUNNING = [
    pytest.param(page, marks=[pytest.mark.spark] if page in ON_SPARK else []) for page in PAGES
]


@pytest.mark.few(6)
@pytest.mark.parametrize("page", RUNNING, ids=name_of)
def test_examples_run_and_print_what_is_shown(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    if page in ON_SPARK:
        # The page's `getOrCreate` finds it.
        request.getfixturevalue("spark")
    if page.name == "minio.md":
        endpoint = request.getfixturevalue("s3_server").url
        for name, value in variables(page, AWS_ENDPOINT_URL=endpoint).items():
            monkeypatch.setenv(name, value)
    names: dict = {"__name__": "__main__"}
    printed = None
    for kind, text, line in blocks(page):
        where = f"{page.name}:{line}"
        assert kind in KINDS, f"{where}: a `{kind}` block is neither run nor compared"
        if kind == "python" and not SCHEDULERS.search(text):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * (line - 1) + text, str(page), "exec"), names)
            printed = out.getvalue()
        elif kind == "text":
            assert printed is not None, f"{where}: output of what?"
            assert same(text, printed), f"{where} shows\n{text}\nbut this was printed\n{printed}"
            printed = None
        elif kind == "console":
            for command, shown in sessions(text):
                output = shell(command)
                assert same(shown, output), f"{where} `{command}` printed\n{output}\nnot\n{shown}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_for_the_readers_machine_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for kind, text, line in blocks(page):
        for command in text.splitlines() if kind == "sh" else ():
            program, *arguments = command.split()
            known = {"pip": ["install", "."]}.get(program) == arguments or (
                program == "make" and targets.issuperset(arguments)
            )
            assert known, f"{page.name}:{line}: no such command: {command}"


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_lines_of_prose_and_of_shown_output_have_at_most_100_columns(page):
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    assert [f"{page.name}:{number}" for number, line in lines if len(line) > COLUMNS_MAX] == []


def test_comparing_shown_output_finds_differences():
    assert same("a  b\n... c", "a b\nxyz c\n")
    assert not same("a b", "a b\nc")
    assert not same("rows 3", "rows 4")


def test_every_exception_is_under_its_exit_code_in_troubleshooting():
    from plait import errors
    from plait.cli import _main

    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    rows = [
        (name, base, int(code))
        for code, part in re.findall(r"(?ms)^### Exit code (\d+):(.*?)(?=^##|\Z)", page)
        for name, base in re.findall(r"(?m)^- \*\*`(\w+)`\*\* \((\w+)\)\. Cause: ", part)
    ]
    assert sorted(name for name, _, _ in rows) == sorted(set(errors.__all__) - {"PlaitError"})
    for name, base, code in rows:
        error = getattr(plait, name)
        assert _main.exit_code(error()) == code, name
        assert base in [c.__name__ for c in error.__mro__], name


def test_every_page_of_the_first_hour_leads_to_a_success_that_was_measured():
    pages = {path.name: path.read_text("utf-8") for path in (ROOT / "docs/first-hour").iterdir()}
    overview = pages.pop("README.md")
    marked = {name for name, text in pages.items() if text.count("<!-- first success -->") == 1}
    assert pages.keys() - marked == {"rust.md"}, "its success needs a build"
    measured = re.findall(r"(?m)^\| \[\w+\]\((\w+\.md)\) \| \d+ lines \| [\d.]+ s \|$", overview)
    assert measured == sorted(marked)


def test_figures_of_readme_and_comparison_are_those_of_the_benchmarks():
    page = (ROOT / "docs/guide/benchmarks.md").read_text(encoding="utf-8")
    found = {}
    for workload, part in re.findall(r"(?ms)^## (W\d): (.*?)(?=^## |\Z)", page):
        rows = re.findall(r"(?m)^\| ([\w-]+) \| ([\d.]+) \S+ \|.*?\| ([\d,]+) \S+ \|", part)
        costs = {tool: (f"{float(wall):.1f} s", f"{memory} MB") for tool, wall, memory in rows}
        best = re.search(r"Best peer: ([\w-]+)\.", part)[1]
        found[workload] = (costs["plait"], best, costs[best])
    told = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (W\d): .*? \| (.*?), (.*?) \| (.*?): (.*?), (.*?) \|$", told)
    named = {"DataFusion": "datafusion", "Polars, sort": "polars-sort"}
    named["DataFusion, tuned"] = "datafusion-tuned"
    named["Polars, merge"] = "polars-merge"
    assert {w: ((s, m), named[tool], (t, n)) for w, s, m, tool, t, n in rows} == found
    (seconds, memory), best, (others, more) = found["W1"]
    assert best in ("datafusion", "datafusion-tuned")
    screen = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"**{seconds} and {memory} of memory**" in screen
    assert f"DataFusion, the fastest other tool, takes {others} and {more}" in screen


def test_every_option_of_merge_is_in_the_guide():
    import inspect

    guide = (ROOT / "docs/guide/merge.md").read_text(encoding="utf-8")
    options = list(inspect.signature(plait.merge).parameters)
    assert [name for name in options if f"`{name}" not in guide] == []


@pytest.fixture
def metrics(tmp_path):
    """Three columns in two sources, and their merge."""
    tables = [
        pa.table({"name": ["api", "api", None], "ts": [9, 4, 7], "v": [1.0, 2.0, 3.0]}),
        pa.table({"name": ["api", "web", "web"], "ts": [6, 8, 2], "v": [4.0, 5.0, 6.0]}),
    ]
    for i, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{i}.parquet")
    return plait.merge(str(tmp_path / "?.parquet"), tmp_path / "out", sort_by="name, -ts")


def entries(path: str) -> dict[str, str]:
    metadata = pq.read_metadata(path).metadata
    return {k.decode(): v.decode() for k, v in metadata.items() if k.startswith(b"plait.")}


def test_footer_entries_are_those_of_the_format_page(metrics):
    page = (ROOT / "docs/formats/footer.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^(plait\.\w+) +(\S.*)$", page, re.MULTILINE))
    found = entries(metrics.outputs[0].path)
    assert shown.keys() == found.keys()
    task = found.pop("plait.task")
    assert re.fullmatch(r"[0-9a-f]{16}", task) and re.fullmatch(
        r"[0-9a-f]{16}", shown.pop("plait.task")
    )
    assert Path(metrics.outputs[0].path).name == f"part-00000-{task}.parquet"
    as_json = ("plait.key_range", "plait.key_index")
    for name in as_json:
        assert json.loads(found.pop(name)) == json.loads(shown.pop(name)), name
    assert found == shown


def test_key_range_decodes_to_first_and_last_key_by_hand(metrics):
    found = json.loads(entries(metrics.outputs[0].path)["plait.key_range"])
    first, last = base64.b64decode(found["min"]), base64.b64decode(found["max"])
    descending = bytes(255 - byte for byte in (9 + 2**63).to_bytes(8, "big"))
    assert first == b"\x01api\0\0" + b"\x01" + descending
    assert last[:1] == b"\x02" and len(last) == 1 + 9
    assert metrics.outputs[0].key_max == (None, 7)


def test_key_index_has_the_first_key_and_one_every_64_ki_rows(tmp_path):
    rows = 150_000
    pq.write_table(pa.table({"k": list(range(rows))}), tmp_path / "a.parquet")
    plait.merge(tmp_path / "a.parquet", tmp_path / "b.parquet", sort_by="k", copy_tiers=())
    found = json.loads(entries(str(tmp_path / "b.parquet"))["plait.key_index"])
    keys = [int.from_bytes(base64.b64decode(key)[1:], "big") - 2**63 for key in found["keys"]]
    assert found["rows"] == [0, 65_536, 131_072]
    assert keys == found["rows"]


def test_members_of_a_manifest_are_those_of_the_format_page(metrics, tmp_path):
    page = (ROOT / "docs/formats/manifest.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
    plait.compact(tmp_path, policy="full", sort_by="name, -ts", yes=True)
    manifests = sorted((tmp_path / "_plait").glob("manifest-*.json"))
    taken, found = (json.loads(path.read_text()) for path in manifests)
    assert found["leases"] == []
    found["leases"] = taken["leases"]
    # While the folder is exchanged, or a file moves, there is one more.
    assert [name for name, _ in shown if name != "exchange"] == list(found)
    for member in ("files", "replaced", "leases"):
        named = re.findall("`([a-z]+)`", dict(shown)[member])
        assert [name for name in named if name != "to"] == list(found[member][0]), member
    assert found["format"] == dict(shown)["format"].strip("`") and found["version"] == 3
    assert all((tmp_path / made["path"]).is_file() for made in found["files"])


def test_members_of_a_plan_are_those_of_the_format_page(metrics, tmp_path):
    page = (ROOT / "docs/formats/plan.md").read_text(encoding="utf-8")
    whole, source, task = (
        {
            name
            for names in re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
            for name in names.split("`")[1::2]
        }
        for part in re.split(r"^A (?:source|task):$", page, flags=re.MULTILINE)
    )
    planned = json.loads(plait.plan(str(tmp_path / "?.parquet"), sort_by="name, -ts").to_json())
    assert whole - {"renamed"} == planned.keys()  # which is there only where ids match names
    assert source == planned["sources"][0].keys()
    assert task - {"partition"} == planned["tasks"][0].keys()
    name = Path(metrics.outputs[0].path).name
    assert name == f"part-00000-{planned['task']}.parquet"


@pytest.mark.behaviour("merge-24")
def test_a_merge_of_merged_files_is_one_level_higher(metrics, tmp_path):
    again = plait.merge(metrics.outputs[0].path, tmp_path / "again")
    assert entries(metrics.outputs[0].path)["plait.merge_level"] == "1"
    assert entries(again.outputs[0].path)["plait.merge_level"] == "2"
    assert again.sort_by == "name, -ts"


@pytest.mark.long
def test_the_bench_runs_and_checks_its_outputs(tmp_path):
    bench = [sys.executable, str(ROOT / "benches/python/merge_peers.py")]
    options = ["--workloads", "W2,W5", "--scale", "0.002", "--rounds", "1", "--wait", "0"]
    files = [
        "--peers",
        "duckdb",
        "--data",
        str(tmp_path / "data"),
        "--write",
        str(tmp_path / "page.md"),
    ]
    done = subprocess.run([*bench, *options, *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (plait|duckdb) \| .* \| (.*) \|$", page, re.MULTILINE)
    assert rows == [(tool, "order, rows") for tool in ("plait", "duckdb")] * 2
    again = ["--from-json", str(tmp_path / "page.json"), "--write", str(tmp_path / "page.md")]
    subprocess.run([*bench, *again], capture_output=True, check=True, timeout=120)
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page
