"""How merges use processors: one thread, two threads, and two processes with a task each.

    .venv/bin/python benches/python/cores.py [--workloads W1,W4] [--scale 1] [--rounds 3]
    .venv/bin/python benches/python/cores.py --threads 16

One process a run, in turns. *Waiting* is the share of the time of two threads in which the engine
had nothing for them to do (`report.time.idle_s`). With one thread, putting rows in order
(`order_s`) and the column that takes longest (`column_s`) are shares of the processor time: one
thread at a time does either. The greater one bounds how many threads one task can use. Tasks of a
plan share nothing.

With `--threads`, how many of so many threads have work, on average, while the eight tasks of a plan
run one after the other and at the same time, with enough memory for four at a time: all of their
time but `idle_s`, by the wall time. It says what more cores could do: threads that have work wait for
the few cores here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import workloads

ROOT = Path(__file__).resolve().parents[2]
TASK = """
import json, sys, plait
plan, out, task, threads = json.loads(sys.argv[1])
report = plait.Plan.from_json(open(plan).read()).execute(out, tasks=task, threads=threads)
print(json.dumps(report.to_dict()["time"]))
"""


TASKS = """
import json, sys, plait
plan, out, threads, together = json.loads(sys.argv[1])
plan = plait.Plan.from_json(open(plan).read())
tasks = [None] if together else [[task.index] for task in plan.tasks]
reports = [plan.execute(out, tasks=task, threads=threads) for task in tasks]
times = [report.to_dict()["time"] for report in reports]
most = max(report.memory.peak_accounted_bytes for report in reports)
print(json.dumps({key: sum(time[key] for time in times) for key in times[0]} | {"bytes": most}))
"""


def start(plan: Path, out: Path, tasks: list[int] | None, threads: int) -> subprocess.Popen:
    asked = json.dumps([str(plan), str(out), tasks, threads])
    return subprocess.Popen([sys.executable, "-c", TASK, asked], stdout=subprocess.PIPE, text=True)


def run(plans: dict[int, Path], folder: Path, threads: int, processes: int) -> dict:
    """Seconds of a whole merge: of all its processes together, but for the wall."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    tasks = [None] if processes == 1 else [[number] for number in range(processes)]
    running = [start(plans[processes], out, task, threads) for task in tasks]
    times = []
    for process in running:
        said, _ = process.communicate()
        assert process.returncode == 0
        times.append(json.loads(said))
    shutil.rmtree(out, ignore_errors=True)
    return {
        stage: (max if stage == "wall_s" else sum)(took[stage] for took in times)
        for stage in times[0]
    }


def measure(name: str, asked: argparse.Namespace) -> None:
    import plait

    folder = asked.folder / f"{name}-{asked.scale:g}"
    workloads.prepare(name, folder, asked.scale)
    sources = sorted(folder.glob("in-*.parquet"))
    plans = {}
    for outputs in (1, 2):
        plan = plait.plan(sources, outputs=outputs, if_exists="add")
        plans[outputs] = folder / f"plan-{outputs}.json"
        plans[outputs].write_text(plan.to_json())
    ways = {"1 thread": (1, 1), "2 threads": (2, 1), "2 processes": (1, 2)}
    seen: dict[str, list[dict]] = {way: [] for way in ways}
    for _ in range(asked.rounds):
        for way, (threads, processes) in ways.items():
            seen[way].append(run(plans, folder, threads, processes))
            time.sleep(0.5)
    middle = {
        way: {key: statistics.median(times[key] for times in runs) for key in runs[0]}
        for way, runs in seen.items()
    }
    one, two, apart = (middle[way] for way in ways)
    serial = max(one["order_s"], one["column_s"]) / one["cpu_s"]
    print(
        f"{name}  {one['wall_s']:>6.2f}  {one['wall_s'] / two['wall_s']:>9.2f}"
        f"  {two['idle_s'] / (2 * two['wall_s']):>7.0%}"
        f"  {one['wall_s'] / apart['wall_s']:>11.2f}"
        f"  {one['order_s'] / one['cpu_s']:>6.1%}  {one['column_s'] / one['cpu_s']:>7.1%}"
        f"  {1 / serial:>6.1f}",
        flush=True,
    )


def measure_many(name: str, asked: argparse.Namespace) -> None:
    import plait

    folder = asked.folder / f"{name}-{asked.scale:g}"
    workloads.prepare(name, folder, asked.scale)
    sources = sorted(folder.glob("in-*.parquet"))
    planned = plait.plan(sources, outputs=8, if_exists="add", memory_limit="2GB")
    plan, out = folder / "plan-8.json", folder / "out"
    plan.write_text(planned.to_json())
    seen: dict[bool, list[dict]] = {False: [], True: []}
    for _ in range(asked.rounds):
        for together, runs in seen.items():
            shutil.rmtree(out, ignore_errors=True)
            given = json.dumps([str(plan), str(out), asked.threads, together])
            ran = subprocess.run(
                [sys.executable, "-c", TASKS, given], check=True, capture_output=True, text=True
            )
            runs.append(json.loads(ran.stdout))
    shutil.rmtree(out, ignore_errors=True)
    middle = {
        together: {key: statistics.median(times[key] for times in runs) for key in runs[0]}
        for together, runs in seen.items()
    }
    busy = {
        together: asked.threads - times["idle_s"] / times["wall_s"]
        for together, times in middle.items()
    }
    alone, joint = middle[False], middle[True]
    print(
        f"{name}  {busy[False]:>13.1f}  {busy[True]:>13.1f}"
        f"  {alone['cpu_s']:>6.1f} s  {joint['cpu_s']:>6.1f} s"
        f"  {alone['bytes'] / 1e6:>5.0f} MB  {joint['bytes'] / 1e6:>5.0f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", default=",".join(workloads.BY_DEFAULT))
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=ROOT / "bench-data")
    parser.add_argument("--threads", type=int, help="how many of these have work")
    asked = parser.parse_args()
    if asked.threads:
        print("    one at a time  at a time      processor time        accounted", flush=True)
        for name in asked.workloads.split(","):
            measure_many(name, asked)
        return
    print(
        "    1 thread  2 threads  waiting  2 processes   order   column  most threads", flush=True
    )
    for name in asked.workloads.split(","):
        measure(name, asked)


if __name__ == "__main__":
    main()
