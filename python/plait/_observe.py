"""Tells `logging` and, where it is installed, OpenTelemetry what a call does and did.

Both are told on the caller's thread, before and after the engine works: no thread of the engine
ever waits for the interpreter.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("plait")
logger.addHandler(logging.NullHandler())


class Call:
    """One call, while it is watched."""

    def __init__(self, name: str, span: Any) -> None:  # noqa: ANN401 - a span of whatever SDK
        """Begins to watch."""
        self._name = name
        self._span = span

    def done(self, report: Mapping[str, Any]) -> None:
        """Tells what the report of the engine says."""
        for warning in report.get("warnings", ()):
            logger.warning("%s: %s", self._name, warning)
        facts = _facts(report)
        if logger.isEnabledFor(logging.DEBUG):
            for output in report.get("outputs", ()):
                logger.debug(
                    "%s: wrote %s, %d rows, %d bytes",
                    self._name,
                    output["path"],
                    output["rows"],
                    output["bytes"],
                )
        if logger.isEnabledFor(logging.INFO):
            told = ", ".join(f"{name}={value}" for name, value in facts.items())
            logger.info("%s: done%s", self._name, f", {told}" if told else "")
        if self._span is not None:
            for name, value in facts.items():
                self._span.set_attribute(f"plait.{name}", value)


@contextmanager
def watched(name: str) -> Iterator[Call]:
    """Watches one call: a span around it, and a line at its begin and its end."""
    logger.debug("%s: begins", name)
    tracer = _tracer()
    try:
        if tracer is None:
            yield Call(name, None)
        else:
            with tracer.start_as_current_span(f"plait.{name}") as span:
                yield Call(name, span)
    except Exception as error:
        logger.debug("%s: failed with %s", name, type(error).__name__)
        raise


def _tracer() -> Any:  # noqa: ANN401 - the package is optional
    # Who uses OpenTelemetry has imported it; importing it here would cost others a search.
    trace = sys.modules.get("opentelemetry.trace")
    return None if trace is None else trace.get_tracer("plait")


def _facts(report: Mapping[str, Any]) -> dict[str, int | float]:
    counts = {name: report[name] for name in ("rows_in", "rows_out", "rows") if name in report}
    parts = [counts, report.get("metrics", {}), report.get("time", {})]
    facts = {name: value for part in parts for name, value in part.items()}
    return {name: value for name, value in facts.items() if isinstance(value, int | float)}
