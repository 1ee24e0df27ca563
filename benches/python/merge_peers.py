"""Merges the same sorted files with Plait and with what users would otherwise use.

    python benches/python/merge_peers.py --workloads W1,W3 --scale 1 --rounds 3
    python benches/python/merge_peers.py --workloads W2 --merge-results --write docs/guide/benchmarks.md
    python benches/python/merge_peers.py --from-json docs/guide/benchmarks.json --write page.md
    python benches/python/merge_peers.py --workloads M1,M2,M3,W1x10

One process a run; the tools take turns, so that a noisy minute hits all of them. Time and processor
time are those of the merge alone, without starting Python and importing; memory is the peak of the
whole process. A tool with a process of its own, such as a JVM, measures the same there. Every merged
output is checked by `plait.verify`: sorted, and the rows of the sources.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import page
import tools
import workloads

# Processors that others may keep busy during a run that counts at once.
OTHERS_MAX = 0.15
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What libraries read when they are loaded.
THREAD_VARIABLES = (
    "POLARS_MAX_THREADS",
    "TOKIO_WORKER_THREADS",
    "RAYON_NUM_THREADS",
    "OMP_NUM_THREADS",
)


# -- runs ------------------------------------------------------------------------------------------


def busy_s() -> float:
    """Processor seconds that all processes together have used, where the system tells."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq = path.read_text().split()[1:8]
    ticks = sum(map(int, (user, nice, system, irq, softirq)))
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_until_quiet(wait_s: float) -> None:
    """Waits until others used less than a tenth of a processor for two seconds, at most `wait_s`."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        before = busy_s()
        time.sleep(2)
        if busy_s() - before < 0.2:
            return


def run_group(command: list[str], environment: dict, timeout_s: float):
    """Runs a command. If that takes too long, all that it started ends with it."""
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, error = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, error)


def run_apart(job: dict, wait_s: float, timeout_s: float) -> dict:
    """Runs one tool in a process of its own and measures its output, and what others did then."""
    tools.remove(job["out"])
    shutil.rmtree(job["scratch"], ignore_errors=True)
    os.makedirs(job["scratch"])
    # What the tool before left to the system to write would be written on the time of this one.
    os.sync()
    wait_until_quiet(wait_s)
    before, started = busy_s(), time.perf_counter()
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    python = job.get("python", sys.executable)
    try:
        done = run_group(
            [python, str(HERE / "one_run.py"), json.dumps(job)],
            os.environ | dict.fromkeys(THREAD_VARIABLES, str(job["threads"])),
            timeout_s,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"stopped after {timeout_s:g} s"}
    except FileNotFoundError:
        return {"error": "not installed: the interpreter of --peer-python"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"exit code {done.returncode}: {last}"}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    others = max(0.0, busy_s() - before - own_s) / (time.perf_counter() - started)
    # A library may have printed something, too.
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    return facts | {"out_bytes": tools.out_bytes(job["out"]), "others": others}


def quietest(job: dict, arguments: argparse.Namespace) -> dict:
    """The quietest of a few runs, or the first that is quiet enough or fails."""
    tries: list[dict] = []
    while len(tries) < arguments.tries:
        tries.append(run_apart(job, arguments.wait, arguments.timeout))
        if "error" in tries[-1] or tries[-1]["others"] <= OTHERS_MAX:
            break
    return min(tries, key=lambda run: -1 if "error" in run else run["others"])


def check(job: dict) -> str:
    """Whether the output is sorted and has the rows of the sources."""
    import plait

    made = list(map(str, tools.outputs(job["out"])))
    try:
        report = plait.verify(made, against=job["sources"], sort_by=job["sort_by"], check=False)
    except plait.SchemaConflict as conflict:
        # The tool changed a type, such as fixed-size binary to binary: rows cannot be compared.
        report = plait.verify(made, sort_by=job["sort_by"], check=False)
        same = plait.verify(job["sources"], sort_by=[], check=False).rows == report.rows
        if report.ok and same:
            return f"order and count; type of {conflict.column or 'a column'} changed"
        return "; ".join(report.problems) or "rows are missing"
    if report.ok:
        return "order and rows"
    changed = report.against.columns_differ if report.against else ()
    if report.against and all(f.sorted for f in report.files) and changed:
        return "order; values of " + ", ".join(changed) + " differ"
    return "; ".join(report.problems)


def checked(job: dict) -> str:
    """`check`, unless there is nothing to check or the output does not even open."""
    if tools.TOOLS[job["tool"]].is_floor:
        return "no merge"
    try:
        return check(job)
    except Exception as error:
        said = getattr(error, "what", None) or error  # without the path of the file
        return f"not readable: {said}".partition("\n")[0]


def bench(name: str, arguments: argparse.Namespace) -> dict:
    """All runs of one workload."""
    folder = arguments.data / f"{name}-{arguments.scale:g}"
    facts = workloads.prepare(name, folder, arguments.scale)
    for_memory = name not in workloads.BY_DEFAULT
    sources = sorted(map(str, folder.glob("*.parquet")))
    names = list(dict.fromkeys(["plait", *peers_of(name, arguments)]))
    jobs = {
        tool: {
            "tool": tool,
            "folder": f"{folder}/",
            "sources": sources,
            "out": str(arguments.data / f"out-{tool}.parquet"),
            "scratch": str(arguments.data / "scratch"),
            "key": workloads.KEYS[name],
            "sort_by": workloads.sort_by(name),
            # Where memory is the question, Plait's defaults are.
            "row_group_rows": None if for_memory else facts["row_group_rows"],
            "peer_row_group_rows": min(facts["row_group_rows"], workloads.ROW_GROUP_ROWS),
            "memory_limit": arguments.memory_limit,
            "threads": arguments.threads,
            "python": arguments.peer_python if tools.TOOLS[tool].is_apart else sys.executable,
        }
        for tool in names
    }
    if facts["bytes"] < memory_bytes() / 2:  # every tool finds the files in memory
        for path in sources:
            Path(path).read_bytes()
    runs: dict[str, list[dict]] = {tool: [] for tool in names}
    checks: dict[str, str] = {}
    for turn in range(arguments.rounds):
        shift = turn % len(names)
        for tool in names[shift:] + names[:shift]:
            if any("error" in run for run in runs[tool]) or (turn and tool in arguments.once):
                continue  # it has failed, or takes long; the others go on
            run = quietest(jobs[tool], arguments)
            runs[tool].append(run)
            print(name, turn, tool, json.dumps(run), flush=True)
            if "error" in run:
                checks[tool] = run["error"]
            elif tool not in checks:
                checks[tool] = checked(jobs[tool])
                print(name, tool, "checked:", checks[tool], flush=True)
            tools.remove(jobs[tool]["out"])
    shutil.rmtree(arguments.data / "scratch", ignore_errors=True)
    versions = [f"Python {platform.python_version()}", tools.versions(names)]
    # Tools that are no packages of this environment say their versions themselves.
    reported = [run.pop("versions", "") for tool in names for run in runs[tool]]
    versions += filter(None, dict.fromkeys(reported))
    if arguments.commit:
        versions.append(f"commit {arguments.commit}")
    return {
        "name": name,
        "facts": facts,
        "sort_by": workloads.sort_by(name),
        "for_memory": for_memory,
        "setting": {
            "machine": machine(),
            "threads": arguments.threads,
            "rounds": arguments.rounds,
            "versions": ", ".join(filter(None, versions)),
        },
        "runs": runs,
        "checks": checks,
    }


def peers_of(name: str, arguments: argparse.Namespace) -> list[str]:
    """Those asked for; else all, or none where the memory of Plait is the question."""
    if arguments.peers is not None:
        return arguments.peers
    return list(tools.TOOLS) if name in workloads.BY_DEFAULT else []


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def commit() -> str:
    """What of Plait was measured, where this is a checkout; `-dirty` if files differ from it."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def machine() -> str:
    """What was measured on, in general terms."""
    model, info = "unknown processor", Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = f"{memory_bytes() / 2**30:.0f} GiB of memory"
    return f"{os.cpu_count()} cores ({model}), {memory}, {platform.system()}"


# -- the command -----------------------------------------------------------------------------------


def parse(arguments=None) -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return [part for part in text.split(",") if part]

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--workloads",
        type=names,
        default=list(workloads.BY_DEFAULT),
        help="some of " + ",".join(workloads.TABLES) + "; W1 to W5 unless told otherwise",
    )
    parser.add_argument(
        "--peers",
        type=names,
        help="some of " + ",".join(tools.TOOLS) + "; all for W1 to W5, else none but plait",
    )
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--once", type=names, default=[], help="tools that run in the first round alone"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-limit", help="of Plait; its default unless told otherwise")
    parser.add_argument("--tries", type=int, default=3, help="most tries of a run for quiet")
    parser.add_argument("--wait", type=float, default=60, help="most seconds to wait for quiet")
    parser.add_argument("--timeout", type=float, default=300, help="most seconds of a run")
    parser.add_argument(
        "--peer-python",
        default=os.environ.get("PEER_PYTHON", sys.executable),
        help="an interpreter with PySpark, for iceberg; $PEER_PYTHON, or this one",
    )
    parser.add_argument(
        "--data", type=Path, default=ROOT / "bench-data", help="where files are made"
    )
    parser.add_argument(
        "--write", type=Path, help="page.md: also writes page.json (the runs) and page.svg"
    )
    parser.add_argument(
        "--merge-results",
        action="store_true",
        help="keep what the JSON next to --write has about other workloads",
    )
    parser.add_argument("--from-json", type=Path, help="make the page from this; run nothing")
    parsed = parser.parse_args(arguments)
    parsed.commit = commit()  # before the page is written, which makes it dirty
    for tool in parsed.peers or ():
        if tool not in tools.TOOLS:
            parser.error(f"no such peer: {tool}")
    for name in parsed.workloads:
        if name not in workloads.TABLES:
            parser.error(f"no such workload: {name}")
    if parsed.merge_results and not parsed.write:
        parser.error("--merge-results needs --write")
    return parsed


def save(results: list[dict], path: Path) -> None:
    """Writes page, runs and chart into one folder."""
    chart = path.with_suffix(".svg")
    drawn = page.draw(results, chart)
    path.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    path.write_text(page.text(results, OTHERS_MAX, chart.name if drawn else None), encoding="utf-8")


def main(arguments=None) -> None:
    parsed = parse(arguments)
    known = parsed.from_json
    if known is None and parsed.merge_results and parsed.write.with_suffix(".json").exists():
        known = parsed.write.with_suffix(".json")
    loaded = json.loads(known.read_text(encoding="utf-8")) if known else []
    results = {result["name"]: result for result in loaded}

    def ordered() -> list[dict]:
        return [results[name] for name in workloads.TABLES if name in results]

    parsed.data.mkdir(parents=True, exist_ok=True)
    for name in [] if parsed.from_json else parsed.workloads:
        results[name] = bench(name, parsed)
        if parsed.write:  # after each: a long run may be cut short
            save(ordered(), parsed.write)
    if parsed.write and parsed.from_json:
        save(ordered(), parsed.write)
    print("\n" + page.text(ordered(), OTHERS_MAX, None))


if __name__ == "__main__":
    main()
