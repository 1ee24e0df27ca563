"""What is shipped to Python workers: unpacked there by code that a worker without Plait has, too.

    driver   function ─▶ bytes ─┐
    worker                      └─▶ unpack: is there a Plait? ─▶ function │ what to do about it

Cloudpickle ships functions that are made inside of others by value, and names modules for the rest:
without this, a worker without Plait fails in the midst of unpickling.

Invariant: what `unpack` names is of Python itself, or was made inside of a function.
Not here: the check (`pyspark_plait._absent`), packages besides Plait (`needs`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pyspark import cloudpickle

from plait.errors import PlaitError, Unsupported

__all__ = ["absent", "shipped", "shipped_object"]

Function = TypeVar("Function", bound=Callable[..., Any])


def shipped(function: Function) -> Function:
    """A function for `mapInArrow` or `applyInArrow` that a worker without Plait can unpickle.

    Args:
        function: What workers call, with one to three arguments.
    """
    unpack, packed = _unpacker(), _packed(function)

    # Spark counts the arguments.
    def of_one(batches: Any) -> Any:  # noqa: ANN401 - whatever the function takes
        return unpack(packed)(batches)

    def of_two(key: Any, table: Any) -> Any:  # noqa: ANN401 - see above
        return unpack(packed)(key, table)

    def of_three(key: Any, left: Any, right: Any) -> Any:  # noqa: ANN401 - see above
        return unpack(packed)(key, left, right)

    count = len(inspect.signature(function).parameters)
    return cast("Function", (of_one, of_two, of_three)[count - 1])


def shipped_object(kind: type, state: dict[str, Any]) -> tuple[Callable[..., Any], tuple[bytes]]:
    """What `__reduce__` gives, for an object of a class of Plait."""

    def build() -> object:
        made: Any = object.__new__(kind)
        made.__dict__.update(state)
        return made

    return _built(_unpacker()), (_packed(build),)


def absent(text: str) -> PlaitError | None:
    """The error of a worker without Plait, if a text of Spark has one."""
    from pyspark_plait._absent import HINT, WHAT  # noqa: PLC0415 - executors need not have it

    found = re.search(rf"ModuleNotFoundError: {WHAT}: got (`[^`]*`)", text)
    return None if found is None else Unsupported.of(WHAT, got=found[1], hint=HINT)


def _packed(function: Callable[..., Any]) -> bytes:
    packed: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    return packed


def _built(unpack: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def built(packed: bytes) -> Any:  # noqa: ANN401 - the object
        return unpack(packed)()

    return built


def _unpacker() -> Callable[[bytes], Any]:
    from pyspark_plait._absent import checker  # noqa: PLC0415 - executors need not have it

    check = checker()

    def unpack(packed: bytes) -> Any:  # noqa: ANN401 - whatever was packed
        import pickle  # noqa: PLC0415 - by value: see the module

        check()
        return pickle.loads(packed)  # noqa: S301 - of the driver, as all that Spark ships

    return unpack
