"""A driver that dies at the n-th of some calls."""

from collections.abc import Callable
from typing import Literal


class Stop(BaseException):
    """The driver dies."""


class Steps:
    """Counts calls, and dies instead of the `last` one, or once it is done."""

    def __init__(self, last: int, dies: Literal["before", "after"] = "before") -> None:
        self.count, self.last, self.dies = 0, last, dies

    def counted(self, real: Callable) -> Callable:
        """`real`, as one of the calls."""

        def call(*arguments, **named):
            self.count += 1
            is_last = self.count == self.last
            if is_last and self.dies == "before":
                raise Stop
            answer = real(*arguments, **named)
            if is_last:
                raise Stop
            return answer

        return call

    def counting(self, made: Callable) -> Callable:
        """`made`, whose results have methods that are calls, too."""
        return lambda *arguments: Stepping(made(*arguments), self)


class Stepping:
    """An object whose methods are counted."""

    def __init__(self, inner: object, steps: Steps) -> None:
        self._inner, self._steps = inner, steps

    def __getattr__(self, name: str) -> Callable:
        return self._steps.counted(getattr(self._inner, name))
