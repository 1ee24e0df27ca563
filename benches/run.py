"""What `make bench` runs; arguments go through: `python benches/run.py --scale 0.1 --rounds 1`."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "python"))

import merge_peers  # noqa: E402 - found through the line above

merge_peers.main(["--write", str(HERE.parent / "docs/guide/benchmarks.md"), *sys.argv[1:]])
