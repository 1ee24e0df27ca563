"""Recipes whose code runs elsewhere: in cron, in schedulers, and in workflows of GitHub.

`test_docs.py` runs the other blocks of the same pages. Airflow, Dagster and the schema of
workflows are no packages of the extra `test`: the extra `schedulers` has them.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait

pytestmark = pytest.mark.local

RECIPES = Path(__file__).resolve().parents[2] / "docs/recipes"
CODE_LINES_MAX = 39
HOURS = 12


def code(name: str, kind: str = "python") -> str:
    """The blocks of a page, as one file."""
    text = (RECIPES / name).read_text(encoding="utf-8")
    return "\n\n".join(re.findall(rf"(?ms)^```{kind}\n(.*?)^```$", text))


def needs(name: str):
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed: extra `schedulers`")


def write_hours(folder: Path, first: dt.datetime) -> None:
    """A file for each of twelve hours; rows of one hour reach into the next."""
    folder.mkdir(parents=True)
    for hour in range(HOURS):
        begin = first + dt.timedelta(hours=hour)
        times = pa.array([begin, begin + dt.timedelta(minutes=90)], pa.timestamp("us"))
        pq.write_table(pa.table({"ts": times}), folder / f"hour-{first:%m%d}-{hour:02}.parquet")


def live(folder: Path) -> list[str]:
    return [source.path for source in plait.plan(folder, sort_by="ts").sources]


def run(*command: str, **environment: str) -> str:
    """What a command prints on both streams; it must succeed."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("page", sorted(RECIPES.glob("*.md")), ids=lambda page: page.name)
def test_a_recipe_has_less_than_40_lines_of_code(page):
    lines = [
        line
        for kind in ("python", "console", "yaml")
        for line in code(page.name, kind).splitlines()
        # Of a shell session, what is typed.
        if line.strip() and (kind != "console" or line.startswith("$ "))
    ]
    assert 0 < len(lines) <= CODE_LINES_MAX


@pytest.fixture
def year(tmp_path):
    """A folder with half a day of today, and half a day that is too old."""
    now = dt.datetime.now(dt.timezone.utc).replace(tzinfo=None, microsecond=0)
    folder = tmp_path / "events"
    write_hours(folder / "old", now - dt.timedelta(days=100))
    write_hours(folder / "new", now - dt.timedelta(days=1))
    return folder


def test_functions_of_the_airflow_recipe_compact_drop_old_rows_and_expire(year):
    names: dict = {}
    exec(code("airflow.md").partition("from airflow")[0], names)
    assert names["compact"](str(year)) == 2 * HOURS
    assert pa.table(plait.scan(year)).num_rows == 2 * HOURS
    assert names["compact"](str(year)) == 0
    assert names["expire"](str(year)) == 0, "readers may still have listed the old files"
    assert len(list(year.glob("*/hour-*.parquet"))) == 2 * HOURS


@needs("airflow")
def test_airflow_loads_and_runs_the_dag(year, tmp_path):
    home = tmp_path / "airflow"
    (home / "dags").mkdir(parents=True)
    dag = code("airflow.md").replace("/data/events", str(year))
    (home / "dags" / "keep_events_compact.py").write_text(dag)
    airflow = str(Path(sys.executable).with_name("airflow"))
    settings = {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    run(airflow, "db", "migrate", **settings)
    log = run(airflow, "dags", "test", "keep_events_compact", **settings)
    assert f"Returned value was: {2 * HOURS}" in log, log
    assert "Returned value was: 0" in log, log
    assert "[plait.compact]" in log, "the log of the task has what Plait logs"
    assert pa.table(plait.scan(year)).num_rows == 2 * HOURS


def test_the_script_for_cron_compacts_drops_old_rows_and_keeps_replaced_files(year, tmp_path):
    page = (RECIPES / "hourly.md").read_text(encoding="utf-8")
    script = re.search(r"(?m)(?:^    .*\n)+", page.partition("in a crontab")[2])[0]
    script = script.replace("/data", str(tmp_path))
    (tmp_path / "hourly.sh").write_text(script)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Where cron starts a job.
    printed = run("env", "-C", "/", "sh", str(tmp_path / "hourly.sh"), PATH=path)
    assert f"dropped {2 * HOURS} rows: expired" in printed
    assert pa.table(plait.scan(year)).num_rows == 2 * HOURS
    assert len(list(year.glob("*/hour-*.parquet"))) == 2 * HOURS
    assert "nothing to merge" in run("env", "-C", "/", "sh", str(tmp_path / "hourly.sh"), PATH=path)


@pytest.fixture
def days(tmp_path):
    """A folder of two days, each a partition."""
    for day in (1, 2):
        write_hours(tmp_path / "events" / f"day=2024-05-0{day}", dt.datetime(2024, 5, day))
    return tmp_path / "events"


def test_the_function_of_the_dagster_recipe_compacts_one_day(days):
    names: dict = {}
    exec(code("dagster.md").partition("import dagster")[0], names)
    report, rows = names["compact_day"]("2024-05-01", str(days))
    assert "merged 12 files into 1 file" in report and rows == 2 * HOURS
    assert len(live(days / "day=2024-05-01")) == 1
    assert len(live(days / "day=2024-05-02")) == HOURS
    again, rows = names["compact_day"]("2024-05-01", str(days))
    assert "nothing to merge" in again and rows == 2 * HOURS
    late = {"ts": pa.array([dt.datetime(2024, 5, 1, 3)], pa.timestamp("us"))}
    pq.write_table(pa.table(late), days / "day=2024-05-01" / "late.parquet")
    report, rows = names["compact_day"]("2024-05-01", str(days))
    assert "merged 2 files into 1 file" in report and rows == 2 * HOURS + 1


@needs("dagster")
def test_dagster_loads_the_definitions_and_materializes_a_day(days, tmp_path):
    assets = tmp_path / "assets.py"
    materialize = (
        "result = dg.materialize([compacted_events], partition_key='2024-05-02')\n"
        "made = result.asset_materializations_for_node('compacted_events')[0]\n"
        "print(result.success, made.metadata['dagster/row_count'].value)\n"
    )
    assets.write_text(code("dagster.md").replace("/data/events", str(days)))
    home = {"DAGSTER_HOME": ""}
    checked = run(sys.executable, "-m", "dagster", "definitions", "validate", "-f", str(assets))
    assert "All code locations passed validation" in checked
    printed = run(sys.executable, "-c", assets.read_text() + materialize, **home)
    assert f"True {2 * HOURS}" in printed, printed
    assert len(live(days / "day=2024-05-02")) == 1
    assert len(live(days / "day=2024-05-01")) == HOURS


def test_steps_of_the_github_workflow_compact_a_bucket(s3_server, tmp_path):
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(code("github-action.md", "yaml"))
    job = workflow["jobs"]["compact"]
    steps = {step["name"]: step["run"] for step in job["steps"] if "run" in step}
    assert list(steps) == ["Install", "Compact", "Verify", "Remove replaced files"]
    assert workflow["defaults"]["run"]["shell"] == "bash"

    s3_server.request("PUT", "/workflow")
    for hour in range(3):
        path = tmp_path / "hour.parquet"
        pq.write_table(pa.table({"ts": [hour * 10, hour * 10 + 12]}), path)
        s3_server.request("PUT", f"/workflow/events/{hour}.parquet", path.read_bytes())
    environment = {
        **{name: value for name, value in job["env"].items() if "${{" not in value},
        **{name.upper(): value for name, value in s3_server.options().items()},
        "AWS_ALLOW_HTTP": "true",
        "FOLDER": job["env"]["FOLDER"].replace("lake", "workflow"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    # As GitHub calls `shell: bash`.
    bash = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
    printed = {name: run(*bash, step, **environment) for name, step in list(steps.items())[1:]}
    assert "merged 3 files into 1 file" in printed["Compact"]
    assert (tmp_path / "summary").read_text() == printed["Compact"]
    assert "verified: 1 file, 6 rows" in printed["Verify"]
    assert "removed 0 files" in printed["Remove replaced files"], "they are too young"
    environment["FOLDER"] = "s3://bucket-of-nobody/events"
    with pytest.raises(AssertionError, match="NoSuchBucket"):
        run(*bash, steps["Compact"], **environment)


@needs("check_jsonschema")
def test_the_github_workflow_fits_the_schema_of_workflows(tmp_path):
    workflow = tmp_path / "compact.yml"
    check = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "github-workflows")
    workflow.write_text(code("github-action.md", "yaml"))
    run(*check, str(workflow))
    workflow.write_text(code("github-action.md", "yaml").replace("runs-on", "run-on"))
    with pytest.raises(AssertionError, match="run-on"):
        run(*check, str(workflow))


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not on the PATH")
def test_actionlint_finds_nothing_in_the_github_workflow(tmp_path):
    workflow = tmp_path / ".github/workflows/compact.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(code("github-action.md", "yaml"))
    assert run("actionlint", str(workflow)) == ""
