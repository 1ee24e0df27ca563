"""What the benches say: tables in Markdown and one chart, from the runs alone."""

from __future__ import annotations

import statistics
import textwrap
from pathlib import Path

from tools import SPARK, TOOLS

PREFACE = """\
# Benchmarks

`make bench` runs `benches/python/merge_peers.py`, which writes this page. All numbers of a table
were measured in one session on one machine. Your files and your machine differ, so
[run the benchmark there](#reproduce-this-page).

- **Setup.** All tools read the same sorted files and write one output file, with the same number of
  threads and the same number of rows per row group. The files are in the page cache before the
  first run. iceberg writes a file for each thread, because each of its tasks writes one, and limits
  row groups to 128 MiB.
- **Compression.** Peers and floors write zstd level 3. Plait uses its defaults: the codec of the
  sources, with a level that it chooses. *output MB* shows what that costs or saves.
- **Runs.** Every run is a new process, and the tools take turns. The tables show medians of the
  rounds (of one round where it says so). Wall and CPU time cover the merge alone, without the start
  of Python. Peak RSS covers the whole process.
- **Tools outside of Python.** parquet-go is a Go program that measures itself in the same way.
  For iceberg, wall and CPU time cover the call of the procedure alone, after the JVM has started,
  the files are registered, and a small table has been rewritten. Its peak RSS is that of Python and
  of the JVM, whose heap may grow to 8 GB.
- **Ratios** in parentheses are relative to the best peer: the one with the least wall time among
  those that merged correctly.
- **Plait** runs with its default `memory_limit` of 512 MB and checks every key.
- **Other processes**, below each table, is the number of processors that other programs used, in
  the worst run of each tool. A run above {others_max} is repeated a few times. Above about 0.3, trust CPU
  seconds more than wall time.
- ***checked*** is the result of `plait verify`. `order, rows` means that the output is sorted and
  that its rows equal those of the sources, value by value. Where a tool changes the type of a
  column, its values cannot be compared. The lines below the table say why a check found less.
- **Floors**, in italics, do not merge. They show the cost of reading and writing the same data
  without any order; `cp` shows the cost of copying the files.

The workloads:

- W1: 16 files of metrics; their key ranges overlap row by row
- W2: 8 files of 121 columns; their ids interleave
- W3: TPC-H lineitem, sorted and dealt into 10 files
- W4: the rows of W1 in 16 ranges; 2 % of the rows of a file lie in the range of a neighbour
- W5: 8 files of text of 1 to 4 KiB and 256 floats a row
- M1, M2, M3, W1x10: 1,000 files of W1's rows; 400 columns; row groups of 2 GiB; ten times W1

What the tools do:

{does}

Not measured, because they cannot do this:

- timelake 0.7.0 sorts by series and by a time column, which must be a timestamp, and both ascend.
  No key of W1 to W5 is of that kind. Where a table has no time column, `maintain` concatenates.
- pypaimon 2.1.0 has no compaction. It refuses to commit one, and leaves it to Paimon on the JVM.

## Reproduce this page

The machine and the versions are below. A checkout needs Rust, Python 3.10 or newer, a C compiler
and `make`; parquet-go needs Go 1.24 or newer, and iceberg needs a JDK and PySpark {spark}, in an
environment of its own:

    python3 -m venv peers
    peers/bin/pip install "pyspark=={spark}.*" numpy pyarrow
    PEER_PYTHON=peers/bin/python make bench

`make bench` installs the newest versions of the other packages. The data are made by the bench,
always the same for one scale. A tool that is not installed is a row that says so. A part of the
page takes less time:

    .venv/bin/python benches/run.py --workloads W1 --scale 0.1 --rounds 1 --write page.md

More options, such as those that cut a long run into pieces, are in `benches/README.md`.

## Machine and versions
"""

MEMORY_PREFACE = """\
## Memory

Plait with its default options, on workloads whose memory is hard to bound. *accounted* is the peak
that Plait charged to `memory_limit`. The rest of the peak RSS is Python, code, and memory that the
allocator retains. *limit* is `memory_limit`. Sizes are in MB.
"""

# Processors of other processes, from which a run is named.
BUSY = 0.15
STAGES = ("plan_s", "order_s", "weave_s", "write_s")
FACTS = ("wall_s", "cpu_s", "rss_bytes", "out_bytes")


# -- numbers ---------------------------------------------------------------------------------------


def whole(result: dict) -> dict[str, dict[str, float]]:
    """Medians of the tools that ran without an error."""
    return {
        tool: {fact: statistics.median(run[fact] for run in runs) for fact in FACTS}
        for tool, runs in result["runs"].items()
        if runs and not any("error" in run for run in runs)
    }


def best_peer(result: dict) -> str | None:
    """The fastest tool that is not Plait and merged correctly."""
    medians = whole(result)
    peers = [
        tool
        for tool in medians
        if tool != "plait"
        and not TOOLS[tool].is_floor
        and result["checks"][tool].startswith("order")
    ]
    return min(peers, key=lambda tool: medians[tool]["wall_s"], default=None)


def times(value: float, base: float | None) -> str:
    return f" ({value / base:.2f}×)" if base else ""


def wrapped(line: str) -> str:
    """A paragraph in lines of at most 100 columns."""
    # A value stays next to its label: a line that begins with `1. ` would start a list.
    joined = line.replace(": ", ":\N{NO-BREAK SPACE}")
    filled = textwrap.fill(joined, 100, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\N{NO-BREAK SPACE}", " ")


# -- the page --------------------------------------------------------------------------------------


def text(results: list[dict], others_max: float, chart: str | None) -> str:
    """The page; `chart` is its picture, as a link."""
    shown = [tool for tool in TOOLS if any(tool in result["runs"] for result in results)]
    does = "\n".join(f"- {tool} {TOOLS[tool].does}" for tool in shown)
    lines = [PREFACE.format(does=does, others_max=others_max, spark=SPARK)]
    settings: dict[str, list[str]] = {}
    for result in results:
        setting = result["setting"]
        line = (
            f"{setting['machine']}. Threads: {setting['threads']}. Rounds: {setting['rounds']}. "
            f"{setting['versions']}."
        )
        settings.setdefault(line, []).append(result["name"])
    for line, names in settings.items():
        lines += [wrapped(f"{', '.join(names)}: {line}"), ""]
    if chart:
        lines += [f"![Seconds and peak memory of every tool on every workload]({chart})", ""]
    for result in results:
        if not result["for_memory"] or len(result["runs"]) > 1:
            lines += [*table(result), ""]
    for_memory = [result for result in results if result["for_memory"]]
    if for_memory:
        lines += [*memory_table(for_memory), ""]
    return "\n".join(lines)


def table(result: dict) -> list[str]:
    """The runs of one workload."""
    facts, medians = result["facts"], whole(result)
    best = best_peer(result)
    base = medians[best] if best else dict.fromkeys(FACTS)
    size = f"{facts['files']} files, {facts['bytes'] / 1e6:,.0f} MB"
    lines = [
        f"## {result['name']}: {facts['rows']:,} rows, {facts['columns']} leaf columns, {size}",
        "",
        f"Scale {facts['scale']:g}. Key `{result['sort_by']}`."
        + (f" Best peer: {best}." if best else ""),
        "",
        "| tool | wall s | CPU s | peak RSS MB | output MB | checked |",
        "|---" * 6 + "|",
    ]
    notes: dict[str, list[str]] = {}
    others: dict[str, float] = {}
    floors = [tool for tool in result["runs"] if TOOLS[tool].is_floor]
    for tool in [*(t for t in result["runs"] if t not in floors), *floors]:
        name = f"*{tool}*" if tool in floors else tool
        if tool not in medians:
            lines.append(f"| {name} | failed |" + " |" * 4)
            notes.setdefault(result["checks"].get(tool, "not run"), []).append(tool)
            continue
        median = medians[tool]
        cells = [
            f"{median['wall_s']:.2f}{times(median['wall_s'], base['wall_s'])}",
            f"{median['cpu_s']:.2f}{times(median['cpu_s'], base['cpu_s'])}",
            f"{median['rss_bytes'] / 1e6:,.0f}{times(median['rss_bytes'], base['rss_bytes'])}",
            f"{median['out_bytes'] / 1e6:,.0f}",
        ]
        check, _, note = result["checks"][tool].replace(" and ", ", ").partition("; ")
        if note:
            notes.setdefault(note, []).append(tool)
        others[tool] = max(run["others"] for run in result["runs"][tool])
        lines.append(f"| {name} | {' | '.join(cells)} | {check} |".replace("\n", " "))
    lines.append("")
    lines += [wrapped(f"- {', '.join(tools)}: {note}.") for note, tools in notes.items()]
    lines += rounds_of(result)
    lines.append(wrapped(f"- Other processes: {busy(others)}."))
    if "plait" in medians:
        lines += ["", *plait_lines(result, medians["plait"], base, best)]
    return lines


def rounds_of(result: dict) -> list[str]:
    """How far runs of one tool are apart, and which tools ran once where others did not."""
    walls = {
        tool: [run["wall_s"] for run in runs if "wall_s" in run]
        for tool, runs in result["runs"].items()
    }
    often = {tool: seconds for tool, seconds in walls.items() if len(seconds) > 1}
    once = [tool for tool, seconds in walls.items() if len(seconds) == 1]
    if not often:
        return []
    apart = [f"{tool} {min(took):.2f} to {max(took):.2f} s" for tool, took in often.items()]
    lines = [wrapped(f"- Wall time, least and greatest: {', '.join(apart)}.")]
    return lines + [wrapped(f"- One round: {', '.join(once)}.")] * bool(once)


def busy(others: dict[str, float]) -> str:
    """How many processors other processes kept busy: at most so many, and where more."""
    quiet = [value for value in others.values() if value <= BUSY]
    loud = [f"{value:.2f} ({tool})" for tool, value in others.items() if value > BUSY]
    return ", ".join([f"at most {max(quiet):.2f}", *loud] if quiet else loud)


def plait_lines(result: dict, ours: dict, base: dict, best: str | None) -> list[str]:
    """What is known about Plait alone."""
    runs, lines = result["runs"]["plait"], []
    if best:
        ratios = f"{ours['wall_s'] / base['wall_s']:.2f} times the wall time and "
        ratios += f"{ours['rss_bytes'] / base['rss_bytes']:.2f} times the memory"
        lines += [f"Plait takes {ratios} of the best peer, {best}.", ""]
    stages = {s: statistics.median(run["stages"][s] for run in runs) for s in STAGES}
    lines.append("Plait by stage: " + ", ".join(f"{s[:-2]} {v:.2f} s" for s, v in stages.items()))
    lines[-1] += "."
    copied = {tier: moved for tier, moved in runs[0]["copied"].items() if moved["rows"]}
    if copied:
        shares = (
            f"{tier} {moved['rows']:,} rows ({moved['rows'] / result['facts']['rows']:.0%}), "
            f"{moved['bytes'] / 1e6:,.1f} MB"
            for tier, moved in copied.items()
        )
        lines += ["", wrapped(f"Plait copied by tier: {'; '.join(shares)}.")]
    elif runs[0]["copied"]:
        lines += ["", "Plait copied by tier: nothing."]
    return lines


def memory_table(results: list[dict]) -> list[str]:
    """Wall time and memory of Plait, one line a workload."""
    lines = [
        MEMORY_PREFACE,
        "| | scale | rows | files × columns | input | wall s | CPU s | accounted | RSS | limit | checked |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        facts, runs = result["facts"], result["runs"]["plait"]
        size = (
            f"| {result['name']} | {facts['scale']:g} | {facts['rows']:,} "
            f"| {facts['files']:,} × {facts['columns']} | {facts['bytes'] / 1e6:,.0f} "
        )
        median = whole(result).get("plait")
        if not median:
            lines.append(
                f"{size}| failed | | | | | {result['checks']['plait'].replace(' and ', ', ')} |"
            )
            continue
        accounted = max(run["memory"]["peak_accounted_bytes"] for run in runs)
        limit = runs[0]["memory"]["limit_bytes"]
        over = " (over)" if accounted > limit else ""
        lines.append(
            f"{size}| {median['wall_s']:.2f} | {median['cpu_s']:.2f} "
            f"| {accounted / 1e6:,.0f}{over} | {max(r['rss_bytes'] for r in runs) / 1e6:,.0f} "
            f"| {limit / 1e6:,.0f} | {result['checks']['plait'].replace(' and ', ', ')} |"
        )
    return lines


# -- the chart -------------------------------------------------------------------------------------

# Grey and middle tones show on light and dark pages alike.
INK = "#7a7a7a"
COLOURS = {"plait": "#2b8f82", "peer": "#7d8ea6", "floor": "#9a9a9a"}
NO_MERGE = "no merge: "


def draw(results: list[dict], path: Path) -> bool:
    """Draws seconds and peak memory, a row of bars a workload; same runs, same bytes."""
    compared = [result for result in results if len(result["runs"]) > 1]
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        print("no chart: matplotlib is not installed")
        return False
    if not compared:
        return False
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    style = {"svg.hashsalt": "plait", "svg.fonttype": "none", "font.size": 9}
    style |= dict.fromkeys(("text.color", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    panels = (("wall_s", 1, "seconds", ".2f"), ("rss_bytes", 1e6, "peak memory, MB", ",.0f"))
    heights = [len(result["runs"]) + 2.5 for result in compared]
    with mpl.rc_context(style):
        figure, grid = plt.subplots(
            len(compared),
            len(panels),
            figsize=(9, 0.22 * sum(heights)),
            height_ratios=heights,
            sharey="row",
            squeeze=False,
            layout="constrained",
        )
        for row, result in zip(grid, compared):
            for axes, (fact, unit, label, digits) in zip(row, panels):
                bars(axes, result, fact, unit, digits)
                axes.set_title(label, loc="left")
            facts = result["facts"]
            told = f"{facts['rows']:,} rows, {facts['columns']} columns, {facts['files']} files"
            row[0].set_title(f"{result['name']}: {told}\nseconds", loc="left", fontweight="bold")
        figure.savefig(path, metadata={"Date": None, "Creator": None}, transparent=True)
        plt.close(figure)
    return True


def bars(axes, result: dict, fact: str, unit: float, digits: str) -> None:
    """One bar a tool, floors last, values next to them."""
    medians, names = whole(result), list(result["runs"])
    names.sort(key=lambda tool: TOOLS[tool].is_floor)
    kinds = [
        "plait" if tool == "plait" else "floor" if TOOLS[tool].is_floor else "peer"
        for tool in names
    ]
    values = [medians[tool][fact] / unit if tool in medians else 0 for tool in names]
    told = [NO_MERGE + tool if TOOLS[tool].is_floor else tool for tool in names]
    drawn = axes.barh(told, values, color=[COLOURS[kind] for kind in kinds])
    labels = [
        format(value, digits) if tool in medians else "failed" for tool, value in zip(names, values)
    ]
    axes.bar_label(drawn, labels, padding=3)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.margins(x=0.15)
    # The values stand next to the bars.
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom", "left"]].set_visible(False)
    axes.tick_params(length=0)
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == "plait" else "normal")
