"""Measures the pages of docs/first-hour: time to first success.

    python scripts/first_success.py          runs the pages, writes the table of their README
    python scripts/first_success.py PAGE     runs one page to its mark, in the current folder

A page is run by the functions of tests/python/test_docs.py, up to `<!-- first success -->`.
"""

import contextlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs/first-hour"
MARK = "<!-- first success -->"
TABLE = re.compile(r"(?s)(<!-- table -->\n).*?(<!-- end -->)")
ROUNDS = 3


def first_success(page: Path) -> int:
    """Runs a page up to its mark, and gives how many lines were typed."""
    sys.path.insert(0, str(ROOT / "tests/python"))
    import test_docs

    begun = page.read_text(encoding="utf-8").partition(MARK)[0]
    names, typed = {"__name__": "__main__"}, 0
    for kind, text, _ in test_docs.blocks_of(begun):
        if kind == "python":
            typed += sum(bool(line.strip()) for line in text.splitlines())
            with contextlib.redirect_stdout(io.StringIO()):
                exec(text, names)
        elif kind == "console":
            for command, shown in test_docs.sessions(text):
                typed += 1
                printed = test_docs.shell(command)
                if not test_docs.same(shown, printed):
                    raise SystemExit(f"{page.name}: `{command}` printed\n{printed}")
    return typed


def measured(page: Path) -> tuple[int, float]:
    """Typed lines, and the least time of new processes in empty folders."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}  # as the page says
    times = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as empty:
            start = time.perf_counter()
            command = [sys.executable, __file__, str(page)]
            done = subprocess.run(
                command, cwd=empty, capture_output=True, text=True, env=environment
            )
            times.append(time.perf_counter() - start)
        if done.returncode != 0:
            raise SystemExit(f"{page.name}: {done.stderr}")
        typed = json.loads(done.stdout.splitlines()[-1])
    return typed, min(times)


def main() -> None:
    if len(sys.argv) > 1:
        print(first_success(Path(sys.argv[1])))
        return
    rows = ["| page | typed | time |", "|---|---:|---:|"]
    for page in sorted(PAGES.glob("*.md")):
        if MARK in page.read_text(encoding="utf-8"):
            typed, seconds = measured(page)
            rows.append(f"| [{page.stem}]({page.name}) | {typed} lines | {seconds:.1f} s |")
            print(rows[-1], flush=True)
    python = platform.python_version()
    load = f"with a load of {os.getloadavg()[1]:.0f}, mostly of other programs"
    setup = f"Fastest of {ROUNDS} runs on {os.cpu_count()} cores {load}. Python {python}."
    table = "\n".join([*rows, "", setup, ""])
    readme = PAGES / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(TABLE.sub(lambda found: found[1] + table + found[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
