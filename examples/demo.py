"""The main job on real input: many sorted runs in, four sorted files out, checked.

    make demo            or            python examples/demo.py [FOLDER]

Makes sixteen sorted runs of a metrics table and ten sorted runs of TPC-H `lineitem`, merges each
into four files whose key ranges do not overlap, and verifies that they have the rows of the runs.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait

METRIC_RUNS = 16
METRIC_ROWS_PER_RUN = 100_000
METRIC_KEY = "metric, service, -ts"
LINEITEM_RUNS = 10
LINEITEM_SCALE = "0.2"
LINEITEM_KEY = "l_shipdate, l_orderkey, l_linenumber"


def metric_run(run: int) -> pa.Table:
    """One run: a quarter of an hour of samples of every service, as an agent would send them."""
    rng = np.random.default_rng(run)
    rows = METRIC_ROWS_PER_RUN
    metric = rng.integers(0, 40, rows)
    service = rng.integers(0, 50, rows)
    ts = 1_700_000_000 + run * 900 + rng.integers(-300, 900, rows)  # some samples come late
    order = np.lexsort((-ts, service, metric))
    metric, service, ts = metric[order], service[order], ts[order]
    tags = [None if n % 7 == 0 else [f"zone-{n % 3}", f"rack-{n % 11}"] for n in range(rows)]
    return pa.table(
        {
            "metric": pa.array([f"system.metric_{n:02d}" for n in metric]),
            "service": pa.array([f"service-{n:02d}" for n in service]),
            "ts": pa.array(ts),
            "value": pa.array(np.round(rng.gamma(2.0, 50.0, rows), 3)),
            "is_error": pa.array(rng.random(rows) < 0.02),
            "tags": pa.array(tags, pa.list_(pa.string())),
        }
    )


def write_metric_runs(folder: Path) -> None:
    """Writes the runs of the metrics table."""
    for run in range(METRIC_RUNS):
        pq.write_table(metric_run(run), folder / f"run-{run:02d}.parquet", compression="zstd")


def write_lineitem_runs(folder: Path, scale: str = LINEITEM_SCALE) -> None:
    """Makes `lineitem` with tpchgen-cli, sorts it, and deals its rows into runs."""
    tool = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent))
    tool = tool or shutil.which("tpchgen-cli")
    if tool is None:
        message = "the demo needs tpchgen-cli: run `make setup`, or pip install tpchgen-cli"
        raise SystemExit(message)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        command = [tool, "parquet", "-s", scale, "-T", "lineitem", "-o", made]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        table = pq.read_table(next(Path(made).rglob("lineitem*.parquet")))
    as_text = [
        field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
        for field in table.schema
    ]
    table = table.cast(pa.schema(as_text))
    columns = [name.strip() for name in LINEITEM_KEY.split(",")]
    table = table.sort_by([(name, "ascending") for name in columns])
    for run in range(LINEITEM_RUNS):
        rows = table.take(pa.array(np.arange(run, table.num_rows, LINEITEM_RUNS)))
        pq.write_table(rows, folder / f"run-{run:02d}.parquet", compression="zstd")


def merge_and_verify(name: str, runs: Path, out: Path, key: str) -> None:
    """Merges the runs into four files and compares them with the runs."""
    print(f"== {name}: plait.merge({runs.name!r}, {out.name!r}, sort_by={key!r}, outputs=4)\n")
    report = plait.merge(runs, out, sort_by=key, outputs=4)
    print(report)
    print(f"\n== {name}: plait.verify({out.name!r}, against={runs.name!r})\n")
    print(plait.verify(out, against=runs))
    print()


def main() -> None:
    """Runs the demo in the folder given, or in `demo-data`."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data")
    for name, write, key in [
        ("metrics", write_metric_runs, METRIC_KEY),
        ("lineitem", write_lineitem_runs, LINEITEM_KEY),
    ]:
        runs, merged = root / f"{name}-runs", root / f"{name}-merged"
        for folder in (runs, merged):
            shutil.rmtree(folder, ignore_errors=True)
        runs.mkdir(parents=True)
        print(f"== {name}: writing sorted runs to {runs} ...\n")
        write(runs)
        merge_and_verify(name, runs, merged, key)
    print(f"The files are in {root}/; try `plait inspect` on one of them.")


if __name__ == "__main__":
    main()
