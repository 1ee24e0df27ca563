"""Sorts files that are in no order, or almost in order, with Plait and with its peers.

    python benches/python/sort.py --scale 1 --rounds 3
    python benches/python/sort.py --cases late,pieces --peers none --json sort.json

    shuffled   W1, the rows of each file in random order
    late       W1, 1 % of the rows of each file moved by up to 10,000 places; against W1 merged
    pieces     W1 as 16 files of 20 sorted pieces behind each other; against 320 files merged
    large      W5 (large values), the rows of each file in random order

One process a run; tools take turns. Peers are given `--peer-memory` where they know a limit. Every
output is checked by `plait.verify`: sorted, and the rows of the sources.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

import merge_peers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sort_tools
import tools
import workloads

VERSION = 1
PIECES = 20
LATE_SHARE = 0.01
LATE_PLACES = 10_000
PEERS = ("duckdb", "datafusion", "polars", "pyarrow")


@dataclass(frozen=True)
class Case:
    """A workload disturbed in a way, and what is merged to compare with."""

    workload: str
    disturbed: str
    yardstick: str | None
    target: str


CASES = {
    "shuffled": Case("W1", "shuffled", None, "0.6x of the fastest peer within its limit"),
    "late": Case("W1", "late", "sorted", "1.4x of merging W1 sorted"),
    "pieces": Case("W1", "pieces", "split", "1.2x of merging the pieces as files"),
    "large": Case("W5", "shuffled", None, "finishes within the limit"),
}


# -- inputs ----------------------------------------------------------------------------------------


def late(rows: int, rng: np.random.Generator) -> np.ndarray:
    """Places of sorted rows after some were moved."""
    place = np.arange(rows) * 2.0
    moved = rng.random(rows) < LATE_SHARE
    by = rng.integers(-LATE_PLACES, LATE_PLACES + 1, int(moved.sum()))
    place[moved] += 2 * by + 1
    return np.argsort(place, kind="stable")


def pieces(rows: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows dealt at random into pieces; each piece keeps their order."""
    return [np.sort(piece) for piece in np.array_split(rng.permutation(rows), PIECES)]


def disturbed(how: str, rows: int, number: int) -> list[np.ndarray]:
    """The rows of each file that is made of one file."""
    rng = np.random.default_rng([workloads.SEED, 30, number])
    if how == "shuffled":
        return [rng.permutation(rows)]
    if how == "late":
        return [late(rows, rng)]
    dealt = pieces(rows, rng)
    return dealt if how == "split" else [np.concatenate(dealt)]


def prepare(name: str, how: str, data: Path, scale: float) -> dict:
    """Makes the files of a workload disturbed in a way, unless they are there."""
    plain = data / f"{name}-{scale:g}"
    facts = workloads.prepare(name, plain, scale)
    if how == "sorted":
        return facts | {"folder": str(plain)}
    folder = data / f"{name}-{scale:g}-{how}"
    path = folder / "facts.json"
    wanted = {"of": {key: facts[key] for key in ("workload", "scale", "version")}, "made": VERSION}
    if path.exists() and wanted.items() <= (known := json.loads(path.read_text())).items():
        return known
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, source in enumerate(sorted(plain.glob("*.parquet"))):
        table = pq.read_table(source)
        for part, rows in enumerate(disturbed(how, table.num_rows, number)):
            pq.write_table(
                table.take(pa.array(rows)),
                folder / f"in-{number:03}-{part:03}.parquet",
                compression="zstd",
                compression_level=3,
                row_group_size=facts["row_group_rows"],
                write_page_index=True,
            )
    made = sorted(folder.glob("*.parquet"))
    known = facts | wanted | {"folder": str(folder), "files": len(made)}
    known["bytes"] = sum(source.stat().st_size for source in made)
    path.write_text(json.dumps(known))
    return known


# -- runs ------------------------------------------------------------------------------------------


def job(case: Case, tool: str, facts: dict, arguments: argparse.Namespace) -> dict:
    folder = Path(facts["folder"])
    return {
        "tools": "sort_tools",
        "tool": tool,
        "folder": f"{folder}/",
        "sources": sorted(map(str, folder.glob("*.parquet"))),
        "out": str(arguments.data / f"out-{tool}.parquet"),
        "scratch": str(arguments.data / "scratch"),
        "key": workloads.KEYS[case.workload],
        "sort_by": workloads.sort_by(case.workload),
        "row_group_rows": facts["row_group_rows"],
        "peer_row_group_rows": facts["row_group_rows"],
        "memory_limit": arguments.memory_limit,
        "peer_memory": arguments.peer_memory << 20,
        "threads": arguments.threads,
    }


def checked(one: dict) -> str:
    try:
        return merge_peers.check(one)
    except Exception as error:
        return f"not readable: {error}".partition("\n")[0]


def bench(name: str, arguments: argparse.Namespace) -> dict:
    """All runs of a case."""
    case = CASES[name]
    facts = prepare(case.workload, case.disturbed, arguments.data, arguments.scale)
    jobs = {tool: job(case, tool, facts, arguments) for tool in ("plait-sort", *arguments.peers)}
    if case.yardstick:
        other = prepare(case.workload, case.yardstick, arguments.data, arguments.scale)
        jobs["plait-merge"] = job(case, "plait-merge", other, arguments)
    for one in jobs.values():  # every tool finds the files in memory
        for path in one["sources"]:
            Path(path).read_bytes()
    names, checks = list(jobs), {}
    runs: dict[str, list[dict]] = {tool: [] for tool in names}
    for turn in range(arguments.rounds):
        shift = turn % len(names)
        for tool in names[shift:] + names[:shift]:
            if any("error" in run for run in runs[tool]):
                continue  # it has failed; the others go on
            run = merge_peers.quietest(jobs[tool], arguments)
            runs[tool].append(run)
            print(name, turn, tool, json.dumps(run), flush=True)
            if tool not in checks:
                checks[tool] = run["error"] if "error" in run else checked(jobs[tool])
                print(name, tool, "checked:", checks[tool], flush=True)
            tools.remove(jobs[tool]["out"])
    shutil.rmtree(arguments.data / "scratch", ignore_errors=True)
    return {"name": name, "facts": facts, "runs": runs, "checks": checks}


# -- the table -------------------------------------------------------------------------------------


def median(runs: list[dict], what: str) -> float:
    return statistics.median(run[what] for run in runs)


def yardstick(result: dict, limit_bytes: int) -> tuple[str, float] | None:
    """What `plait-sort` is compared with: the merge, or the fastest peer that keeps to the limit."""
    good = {t: r for t, r in result["runs"].items() if r and not any("error" in run for run in r)}
    if "plait-merge" in good:
        return "plait-merge", median(good["plait-merge"], "wall_s")
    times = {
        tool: median(runs, "wall_s")
        for tool, runs in good.items()
        if tool != "plait-sort" and median(runs, "rss_bytes") <= limit_bytes
    }
    return min(times.items(), key=lambda item: item[1]) if times else None


def text(results: list[dict], limit_bytes: int) -> str:
    """Medians of all runs as a table."""
    lines = [
        "| case | tool | s | cpu s | peak MB | others | of plait-sort | checked |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    verdicts = []
    for result in results:
        own = result["runs"]["plait-sort"]
        base = median(own, "wall_s") if own and "error" not in own[0] else None
        for tool, runs in result["runs"].items():
            if not runs or any("error" in run for run in runs):
                cells = ["-"] * 5
            else:
                wall = median(runs, "wall_s")
                cells = [
                    f"{wall:.2f}",
                    f"{median(runs, 'cpu_s'):.2f}",
                    f"{median(runs, 'rss_bytes') / 1e6:,.0f}",
                    f"{median(runs, 'others'):.2f}",
                    f"{wall / base:.2f}x" if base else "-",
                ]
            found = result["checks"].get(tool, "")
            lines.append(f"| {result['name']} | {tool} | {' | '.join(cells)} | {found} |")
        against = yardstick(result, limit_bytes)
        if base and against:
            verdicts.append(
                f"{result['name']}: plait-sort takes {base / against[1]:.2f}x of {against[0]}; "
                f"the target is {CASES[result['name']].target}"
            )
        if base:
            last = own[-1]
            verdicts.append(
                f"{result['name']}: {last['sorted_rows']:,} of {result['facts']['rows']:,} rows "
                f"sorted, {last['runs']:,} runs, {last['spilled_bytes'] / 1e6:,.0f} MB spilled, "
                f"stages {json.dumps(last['stages'])}"
            )
    return "\n".join([*lines, "", *verdicts])


def parse(arguments=None) -> argparse.Namespace:
    def names(known):
        def parsed(words: str) -> list[str]:
            found = [word for word in words.split(",") if word and word != "none"]
            if unknown := [word for word in found if word not in known]:
                raise argparse.ArgumentTypeError(f"not one of {', '.join(known)}: {unknown[0]}")
            return found

        return parsed

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=names(CASES), default=list(CASES), help=",".join(CASES))
    parser.add_argument(
        "--peers", type=names(PEERS), default=list(PEERS), help="some of these, or none"
    )
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-limit", default="512MB", help="of Plait")
    parser.add_argument("--peer-memory", type=int, default=1024, help="limit of peers in MiB")
    parser.add_argument("--tries", type=int, default=3, help="most tries of a run for quiet")
    parser.add_argument("--wait", type=float, default=60, help="most seconds to wait for quiet")
    parser.add_argument("--timeout", type=float, default=300, help="most seconds of a run")
    parser.add_argument("--data", type=Path, default=merge_peers.ROOT / "bench-data")
    parser.add_argument("--json", type=Path, help="where all runs are written")
    return parser.parse_args(arguments)


def main(arguments=None) -> None:
    parsed = parse(arguments)
    parsed.data.mkdir(parents=True, exist_ok=True)
    results = []
    # The process may have more than the limit of its pool; a tenth more still keeps to it.
    limit_bytes = int((parsed.peer_memory << 20) * 1.1)
    for name in parsed.cases:
        results.append(bench(name, parsed))
        if parsed.json:
            setting = {"machine": merge_peers.machine(), "versions": versions()}
            parsed.json.write_text(json.dumps([setting, *results], indent=1) + "\n")
    print("\n" + text(results, limit_bytes))


def versions() -> str:
    """The versions of the packages of these tools."""
    from importlib import metadata

    packages = dict.fromkeys(tool.package for tool in sort_tools.TOOLS.values())
    return ", ".join(f"{package} {metadata.version(package)}" for package in packages)


if __name__ == "__main__":
    main()
