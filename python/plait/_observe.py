"""Tells `logging` and, where it is installed, OpenTelemetry what a call does and did.

engine's threads ─▶ waiting events ─▶ caller's thread, 20 times a second ─▶ plait.merge, ...
caller's thread: a call begins, is done, has failed ───────────────────────▶ plait, spans

Everything is reported on the caller's thread: no thread of the engine waits for the interpreter.
Groups of a compaction may be merged by threads of their own (`plait.table.groups_at_once`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait._native import Stream

logger = logging.getLogger("plait")
logger.addHandler(logging.NullHandler())

# The parts of the engine that have events.
_PARTS = {
    part: logging.getLogger(f"plait.{part}")
    for part in ("plan", "merge", "store", "compact", "events")
}


def level() -> int:
    """The least level that anybody listens to, for the engine; 0 if nobody does."""
    for least in (logging.DEBUG, logging.INFO):
        if any(part.isEnabledFor(least) for part in _PARTS.values()):
            return least
    return 0


def hear(least: int, part: str, text: str) -> None:
    """Logs an event of the engine."""
    _PARTS.get(part, logger).log(least, "%s", text)


class Call:
    """One call, while it is watched."""

    def __init__(self, name: str, span: Any) -> None:  # noqa: ANN401 - a span of whatever SDK
        """Begins to watch."""
        self._name = name
        self._span = span

    def is_heard(self) -> bool:
        """Whether anybody hears what `done` tells."""
        return self._span is not None or logger.isEnabledFor(logging.INFO)

    def done(self, report: Mapping[str, Any], how: str = "done") -> None:
        """Tells what the report of the engine says."""
        for warning in report.get("warnings", ()):
            logger.warning("%s: %s", self._name, warning)
        facts = _facts(report)
        if logger.isEnabledFor(logging.DEBUG):
            outputs = report.get("outputs")
            # A plan has their number.
            for output in outputs if isinstance(outputs, list) else ():
                logger.debug(
                    "%s: wrote %s, %d rows, %d bytes",
                    self._name,
                    output["path"],
                    output["rows"],
                    output["bytes"],
                )
        if logger.isEnabledFor(logging.INFO):
            text = ", ".join(f"{name}={value}" for name, value in facts.items())
            logger.info("%s: %s%s", self._name, how, f", {text}" if text else "")
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


def watch(name: str, stream: Stream) -> Stream:
    """Watches a lazy stream: its span ends, and its line comes, when the stream has ended."""
    tracer = _tracer()
    if tracer is None and not logger.isEnabledFor(logging.INFO):
        return stream
    logger.debug("%s: begins", name)
    # Not the current span: what the caller does between two batches is not part of it.
    span = None if tracer is None else tracer.start_span(f"plait.{name}")

    def on_end(how: str, rows: int, batches: int, dropped: dict[str, int]) -> None:
        report: dict[str, Any] = {} if how == "handed on" else {"rows": rows, "batches": batches}
        Call(name, span).done({**report, "rows_dropped": dropped}, how)
        if span is not None:
            span.set_attribute("plait.end", how)
            span.end()

    stream._watch(on_end)  # noqa: SLF001 - our own
    return stream


def _tracer() -> Any:  # noqa: ANN401 - the package is optional
    # Who uses OpenTelemetry has imported it; importing it here would cost others a search.
    trace = sys.modules.get("opentelemetry.trace")
    return None if trace is None else trace.get_tracer("plait")


_COUNTS = (
    "rows_in",
    "rows_out",
    "rows_known",
    "rows",
    "batches",
    "sources",
    "columns",
    "groups",
    "lost",
)


def _facts(report: Mapping[str, Any]) -> dict[str, int | float]:
    counts = {name: report[name] for name in _COUNTS if name in report}
    dropped = {f"rows_{why}": rows for why, rows in report.get("rows_dropped", {}).items()}
    parts = [counts, dropped, report.get("metrics", {}), report.get("time", {})]
    facts = {name: value for part in parts for name, value in part.items()}
    return {name: value for name, value in facts.items() if isinstance(value, int | float)}
