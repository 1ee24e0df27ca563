"""What a Python worker of Spark may use: threads, memory and local disks.

    spark.task.cpus ─▶ threads          spark.executor.pyspark.memory ─▶ memory_limit
    spark.local.dir ─▶ local_dir

Not here: what a worker does with it.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyspark import TaskContext

from plait.sizes import Size, parse_size

# What a worker maps before it reads a row, where the system does not say.
_WORKER_BYTES = 1_500 << 20
_LIMIT_BYTES = 256 << 20
_LIMIT_BYTES_MIN = 32 << 20


def threads() -> int:
    """The processors of the task: `spark.task.cpus`; 1 outside of tasks."""
    context = TaskContext.get()
    return 1 if context is None else max(1, context.cpus())


def memory_limit(asked: Size | None = None) -> int:
    """Bytes that batches may take in this worker.

    Args:
        asked: What the user asked for, if anything. By default half of what this worker has left
            of `spark.executor.pyspark.memory`, 256 MiB where Spark sets no limit.

    Example:
        >>> memory_limit("64MB")
        64000000
    """
    if asked is not None:
        return parse_size(asked, "memory_limit")
    # Spark passes workers their share of spark.executor.pyspark.memory this way.
    share = os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB", "")
    if not share.isdecimal():
        return _LIMIT_BYTES
    return max((int(share) * (1 << 20) - _mapped()) // 2, _LIMIT_BYTES_MIN)


def local_dir() -> str | None:
    """A folder of `spark.local.dir`; workers take different ones. `None` outside of workers."""
    folders = list(filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")))
    return folders[os.getpid() % len(folders)] if folders else None


def _mapped() -> int:
    """Bytes of address space in use, which is what Spark limits."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):  # not Linux, where Spark sets no limit either
        return _WORKER_BYTES
    return pages * os.sysconf("SC_PAGE_SIZE")
