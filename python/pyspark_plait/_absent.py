"""The check of a worker that may have no Plait, and what it says.

It is made of Python alone and travels by value: a Python without Plait can run it.

Not here: what is shipped with it (`plait.spark.shipping`).
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["HINT", "WHAT", "checker"]

WHAT = "Spark's Python workers have no Plait"
HINT = "set PYSPARK_PYTHON to a Python that has Plait on every node, or install Plait for this one"


def checker() -> Callable[[], None]:
    """A function that raises where there is no Plait: made here, so that it travels by value."""

    def check() -> None:
        import sys  # noqa: PLC0415 - it travels

        try:
            import plait  # noqa: F401, PLC0415 - it travels
        except ModuleNotFoundError as cause:
            if cause.name != "plait":
                raise
            text = f"{WHAT}: got `{sys.executable}`\nhint: {HINT}"
            raise ModuleNotFoundError(text, name="plait") from None

    return check
