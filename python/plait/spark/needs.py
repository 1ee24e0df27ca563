"""Packages that `plait.spark` needs besides Spark, looked for before anything imports them.

    import plait.spark ──▶ pyspark, pyarrow, pandas there? ──▶ the modules │ MissingPackage

Spark itself asks for PyArrow and pandas late, and in words of its own.

Not here: Plait itself in a worker (`shipping`).
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from plait.errors import Unsupported

__all__ = ["MissingPackage", "check"]

PACKAGES = {"pyspark": "PySpark", "pyarrow": "PyArrow", "pandas": "pandas"}


class MissingPackage(Unsupported, ModuleNotFoundError):
    """A package is not installed that `plait.spark` needs."""


def check() -> None:
    """Looks for all packages.

    Raises:
        MissingPackage: One is not installed.
    """
    missing = [shown for name, shown in PACKAGES.items() if find_spec(name) is None]
    if missing:
        raise MissingPackage.of(
            f"`plait.spark` needs {' and '.join(missing)}",
            got=f"`{sys.executable}` without",
            hint="pip install 'plait[spark]'; Spark's workers run the Python of PYSPARK_PYTHON",
        )
