"""Compactions on a local cluster of two executors, some of which are killed; prints what it saw.

    python spark_cluster.py FOLDER CASES

    driver (this process) ─ JVM ─┬─ executor JVM ─ pyspark.daemon ─ worker      killed: worker or JVM
                                 └─ executor JVM ─ pyspark.daemon ─ worker

Each case is a folder of its own with the same sources. One JSON object a line.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
import urllib.request
import warnings
from pathlib import Path

import plait
from plait import spark as ps
from plait.spark import prefetch

warnings.filterwarnings("ignore", category=FutureWarning)
# Executors read what planning needs: they are killed at that, too.
prefetch.LOCAL_FILES_MAX = 20
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
LIMIT = 64_000_000
EXECUTORS = 2


def start():
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.task.maxFailures": "8",
        "spark.executor.maxNumFailures": "100",
        "spark.excludeOnFailure.enabled": "true",
        "spark.excludeOnFailure.timeout": "1s",
        # One executor cannot write in a case below; a task that fails on the other for a reason of
        # the machine would have nowhere to go.
        "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
        "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "4",
    }
    builder = SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,1024]").appName(
        "plait cluster"
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


# -- processes -------------------------------------------------------------------------------------


def descendants() -> dict[int, str]:
    """Command lines of the processes below this one."""
    return commands_below(os.getpid())


def commands_below(root: int) -> dict[int, str]:
    """Command lines of the processes below another."""
    parents, commands = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
                commands[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().decode().replace("\0", " ")
                )
            except (OSError, ValueError):
                continue
    found, above = {}, {root}
    while above:
        below = {pid for pid, parent in parents.items() if parent in above}
        found |= {pid: commands[pid] for pid in below if pid in commands}
        above = below
    return found


def executors() -> list[int]:
    return sorted(p for p, c in descendants().items() if "CoarseGrainedExecutorBackend" in c)


def pythons() -> list[int]:
    """Daemons and workers of executors."""
    return sorted(
        pid for pid, c in descendants().items() if "pyspark.daemon" in c or "pyspark/daemon" in c
    )


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def workers() -> list[int]:
    daemons = set(pythons())
    return [pid for pid in daemons if alive_parent(pid) in daemons]


def alive_parent(pid: int) -> int:
    try:
        return parent_of(pid)
    except OSError:
        return 0


def wait_for_executors(spark) -> None:
    """Waits until the driver knows as many executors as there are to be.

    A task is not tried again on an executor on which it failed. Where the other one is not back
    since it was killed, Spark ends the job: "cannot run anywhere due to node and executor
    excludeOnFailure".
    """
    deadline = time.monotonic() + 120
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    # The driver is one of those it tells of.
    while len(executors()) != EXECUTORS or len(tracker.getExecutorInfos()) != EXECUTORS + 1:
        assert time.monotonic() < deadline, executors()
        time.sleep(0.05)


class Peaks(threading.Thread):
    """The greatest memory of any worker."""

    def __init__(self):
        super().__init__(daemon=True)
        self.bytes_max, self.is_done = 0, threading.Event()

    def run(self):
        while not self.is_done.wait(0.02):
            for pid in workers():
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                for line in status.splitlines():
                    if line.startswith("VmHWM:"):
                        self.bytes_max = max(self.bytes_max, int(line.split()[1]) * 1024)


# -- cases -----------------------------------------------------------------------------------------


def compact(spark, folder: Path, **options):
    return ps.compact(
        spark,
        folder,
        sort_by="k",
        target_file_size=options.pop("size", "200kB"),
        memory_limit=LIMIT,
        verify="content",
        **options,
    )


def same_rows(folder: Path, sources: Path) -> bool:
    """Whether a folder counts the rows of the sources."""
    counted = [source.path for source in plait.plan(folder, sort_by="k").sources]
    return plait.verify(counted, against=sources, sort_by="k", check=False).against.equal


def case(spark, root: Path, name: str, act) -> dict:
    """Compacts a copy of the sources while `act` does what it does."""
    sources, folder = root / "sources", root / name
    shutil.copytree(sources, folder)
    wait_for_executors(spark)
    done = threading.Event()
    told: dict = {"case": name}
    actor = threading.Thread(target=act, args=(told, done), daemon=True)
    actor.start()
    started = time.monotonic()
    try:
        told["groups"] = len(compact(spark, folder).groups)
    except plait.PlaitError as error:
        told["error"] = f"{type(error).__name__}: {error}"
        told["spark's words"] = str(error.__cause__)
    except Exception as error:
        told["spark error"] = f"{type(error).__name__}: {error}"
    told["seconds"] = round(time.monotonic() - started, 2)
    done.set()
    actor.join()
    told["rows are right"] = same_rows(folder, sources)
    told["groups of the next run"] = len(compact(spark, folder).groups)
    told["groups of the run after"] = len(compact(spark, folder).groups)
    told["rows are right then"] = same_rows(folder, sources)
    plait.expire(folder, retention=0, yes=True)
    told["left"] = sorted(
        path.name
        for path in folder.rglob("*")
        if path.is_file() and path.name.startswith(".plait-tmp")
    )
    told["orphans"] = len(plait.expire(folder, retention=0).orphans)
    told["rows are right at last"] = same_rows(folder, sources)
    return told


def kill(pids, told, done, seconds, what):
    """Kills one of `pids()` after so many seconds, or as soon as there is one."""
    if done.wait(seconds):
        told["killed"] = "too late"
        return
    while not done.is_set():
        found = pids()
        if found:
            victim = found[int(seconds * 1000) % len(found)]
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
            told["killed"] = what
            return
        time.sleep(0.005)
    told["killed"] = "too late"


def shuffled(spark) -> dict:
    """What all stages so far have shuffled and spilled, by the interface of Spark's pages."""
    url = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}/stages"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as page:
        stages = json.load(page)
    names = ("shuffleReadBytes", "shuffleWriteBytes", "diskBytesSpilled", "memoryBytesSpilled")
    return {"stages": len(stages), **{n: sum(stage[n] for stage in stages) for n in names}}


def plain(spark, root: Path) -> dict:
    peaks = Peaks()
    peaks.start()
    told = case(spark, root, "plain", lambda _told, _done: None)
    peaks.is_done.set()
    peaks.join()
    return {**told, "worker bytes": peaks.bytes_max, "limit": LIMIT, **shuffled(spark)}


def concurrently(spark, root: Path) -> dict:
    """Two jobs on one folder at once."""

    def second(told, _done):
        told["groups of the other"] = len(compact(spark, root / "concurrently").groups)

    return case(spark, root, "concurrently", second)


def full(spark, root: Path) -> dict:
    """The storage of one executor takes no more than 4 kB a file."""
    limited: list[int] = []
    for number in range(20):
        # An executor that came in place of a killed one has no Python before its first task, and
        # where only one executor is left there is nobody to pass tasks on to.
        compact(spark, shutil.copytree(root / "sources", root / f"warm {number}"))
        parents = {pid: (alive_parent(pid), alive_parent(alive_parent(pid))) for pid in pythons()}
        found = [[p for p, above in parents.items() if victim in above] for victim in executors()]
        if len(found) == EXECUTORS and all(found):
            limited = found[0]
            break
    for pid in limited:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    told = case(spark, root, "full", lambda _told, _done: None)
    for pid in limited:
        if Path(f"/proc/{pid}").exists():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return {**told, "limited": len(limited)}


def all_full(spark, root: Path) -> dict:
    """No executor can write."""
    for pid in pythons():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    folder = root / "all full"
    shutil.copytree(root / "sources", folder)
    told: dict = {"case": "all full"}
    try:
        compact(spark, folder)
    except plait.PlaitError as error:
        told["error"] = f"{type(error).__name__}: {error}"
    for pid in pythons():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    told["rows are right"] = same_rows(folder, root / "sources")
    # Manifests that are about leases only name no file.
    manifests = [json.loads(path.read_text()) for path in folder.glob("_plait/manifest-*")]
    told["manifests"] = sum(bool(manifest["files"]) for manifest in manifests)
    return told


def main() -> None:
    root, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    os.environ["SPARK_WORKER_DIR"] = str(root / "work")
    spark = start()
    try:
        # Workers start with the first job.
        compact(spark, shutil.copytree(root / "sources", root / "warm"))
        told = plain(spark, root)
        print(json.dumps(told), flush=True)
        print(json.dumps(concurrently(spark, root)), flush=True)
        rng = random.Random(cases["seed"])
        usual = told["seconds"]
        for number in range(cases["kills"]):
            what = "executor" if number % 3 == 2 else "worker"
            seconds = rng.uniform(0, usual)
            pids = executors if what == "executor" else workers
            act = lambda t, d, p=pids, s=seconds, w=what: kill(p, t, d, s, w)  # noqa: E731
            made = case(spark, root, f"{what} {number}", act)
            print(json.dumps({**made, "at": round(seconds, 3)}), flush=True)
            usual = min(usual, made["seconds"])
        print(json.dumps(full(spark, root)), flush=True)
        print(json.dumps(all_full(spark, root)), flush=True)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
