"""A driver that dies at the n-th of some calls."""

from collections.abc import Callable


class Stop(BaseException):
    """The driver dies."""


class Steps:
    """Counts calls, and dies instead of the `last` one."""

    def __init__(self, last: int) -> None:
        self.count, self.last = 0, last

    def counted(self, real: Callable) -> Callable:
        """`real`, as one of the calls."""

        def call(*arguments, **named):
            self.count += 1
            if self.count == self.last:
                raise Stop
            return real(*arguments, **named)

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
