"""Where the processor time of a merge goes: samples of `perf`, by what the functions do.

    CARGO_PROFILE_RELEASE_STRIP=none .venv/bin/maturin develop --release
    .venv/bin/python benches/python/shares.py --workloads W1,W2,W3,W4,W5

Needs `perf`, and a build that keeps its symbols, as above. Prints a table of shares of all samples
of the process, from the start of Python. `--functions` also lists the functions of each kind.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import workloads

ROOT = Path(__file__).resolve().parents[2]
MERGE = """
import json, sys, plait
sources, out, sort_by, rows = json.loads(sys.argv[1])
report = plait.merge(
    sources, out, sort_by=sort_by, threads=2, row_group_rows=rows, row_group_size="1TB"
)
print(json.dumps(report.to_dict()["time"]))
"""
# What the functions do whose names match: the first match counts. `perf` has no names for the
# assembly of zstd, which decompresses, and shows its addresses. What begins as the standard library
# of Rust is code of the engine that was compiled into it.
KINDS = {
    "decompression (zstd)": r"^(ZSTD|HUF|FSE)_.*(decompress|DTable|DStats)|^ZSTD_(exec|decode)|^0x",
    "compression (zstd)": r"^(ZSTD|HUF|FSE|HIST|ZDICT)_",
    "ids and dictionaries": r"dictionar|::ids|id_runs|unions|hybrid|::carried|put_ids",
    "bounds, counts, checksums": r"bounds|statistics|facts|recount|crc32|::zone::",
    "keys and loser tree": r"plait_core|::keys|::ranks|ordering",
    "decoding, moving and encoding rows": r"plait_|parquet::|core::|alloc::|hashbrown|mem(move|cpy|set|cmp)",
}


def kind_of(process: str, library: str, function: str) -> str:
    """What a function does."""
    if "kernel" in library:
        return "kernel: reading, writing, page faults"
    if not process.startswith("plait") and "_native" not in library:
        return "Python"
    found = (kind for kind, pattern in KINDS.items() if re.search(pattern, function))
    return next(found, "the rest")


def record(name: str, asked: argparse.Namespace) -> tuple[Counter, Counter, float]:
    """Samples of each kind and of each function, and the share of the order stage."""
    folder = asked.folder / f"{name}-{asked.scale:g}"
    facts = workloads.prepare(name, folder, asked.scale)
    out, samples = folder / "out.parquet", folder / "perf.data"
    job = [
        sorted(map(str, folder.glob("in-*.parquet"))),
        str(out),
        workloads.sort_by(name),
        facts["row_group_rows"],
    ]
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-o", str(samples)]
    try:
        ran = subprocess.run(
            [*command, sys.executable, "-c", MERGE, json.dumps(job)],
            check=True,
            capture_output=True,
            text=True,
        )
        listed = subprocess.run(
            ["perf", "script", "-i", str(samples), "-F", "comm,ip,sym,dso"],
            check=True,
            capture_output=True,
            text=True,
        )
    finally:
        out.unlink(missing_ok=True)
        samples.unlink(missing_ok=True)
    times = json.loads(ran.stdout.splitlines()[-1])
    kinds, functions = Counter(), Counter()
    for line in listed.stdout.splitlines():
        found = re.match(r"\s*(.+?)\s+([0-9a-f]+) (.+) \((.+)\)$", line)
        if found is None:
            continue
        process, address, function, library = found.groups()
        if function == "[unknown]":
            function = f"0x{address}"
        kind = kind_of(process, library, function)
        kinds[kind] += 1
        functions[kind, function, Path(library).name] += 1
    if not any("plait_" in function for _, function, _ in functions):
        sys.exit("the functions of Plait have no names: build it as the top of this file says")
    return kinds, functions, times["order_s"] / times["cpu_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", default=",".join(workloads.BY_DEFAULT))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--functions", action="store_true", help="list functions of each kind, too")
    parser.add_argument("--folder", type=Path, default=ROOT / "bench-data")
    asked = parser.parse_args()
    if shutil.which("perf") is None:
        sys.exit("perf is not installed")
    seen = {name: record(name, asked) for name in asked.workloads.split(",")}
    everywhere = sum((kinds for kinds, _, _ in seen.values()), Counter())
    print("| | " + " | ".join(seen) + " |")
    print("|---" * (len(seen) + 1) + "|")
    for kind, _ in everywhere.most_common():
        shares = (kinds[kind] / kinds.total() for kinds, _, _ in seen.values())
        print(f"| {kind} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")
    orders = (order for _, _, order in seen.values())
    print("| *of all that: the order stage* | " + " | ".join(f"{o:.0%}" for o in orders) + " |")
    if asked.functions:
        for name, (kinds, functions, _) in seen.items():
            for (kind, function, library), samples in functions.most_common(60):
                print(
                    f"{name} {samples / kinds.total():6.1%}  {kind[:12]:12}  {function}  {library}"
                )


main()
