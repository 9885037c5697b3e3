"""Log records, OpenTelemetry spans and durations of calls.

Loggers are below ``edenmem`` and silent until a program adds a handler. Spans are created only if
the program has loaded OpenTelemetry. Records and spans hold model names, numbers and IDs, never
content. Error messages may quote content, so they are logged at DEBUG only.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: Attributes of a log record or span.
Details = Mapping[str, str | int | float]

logging.getLogger("edenmem").addHandler(logging.NullHandler())


def observed(
    name: str,
    *,
    before: Callable[[Mapping[str, Any]], Details] = lambda _: {},
    after: Callable[[Any], Details] = lambda _: {},
    level: int = logging.DEBUG,
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Log each call of a function and create a span for it.

    Args:
        name: Name of the span and the logger, below ``edenmem``.
        before: Returns the details of the keyword arguments.
        after: Returns the details of the result.
        level: Log level of successful calls; failures are logged at INFO.
    """
    logger = logging.getLogger(f"edenmem.{name}")

    def wrap(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            details = dict(before(kwargs))
            started = perf_counter()
            with _span(f"edenmem.{name}", details):
                try:
                    result = await function(*args, **kwargs)
                except Exception as error:
                    details |= {"error": type(error).__name__, "ms": _elapsed_ms(started)}
                    _log(logger, logging.INFO, "failed", details)
                    logger.debug("%s: %s", type(error).__name__, error)
                    raise
                details |= after(result)
            _log(logger, level, "done", {**details, "ms": _elapsed_ms(started)})
            return result

        return call

    return wrap


def _log(logger: logging.Logger, level: int, event: str, details: Details) -> None:
    if logger.isEnabledFor(level):
        text = " ".join(f"{key}={value}" for key, value in details.items())
        logger.log(level, "%s %s", event, text, extra={"details": details})


def _elapsed_ms(started: float) -> float:
    return round((perf_counter() - started) * 1000, 1)


@contextmanager
def _span(name: str, details: dict[str, str | int | float]) -> Iterator[None]:
    """Open a span if OpenTelemetry is loaded, and set the final details on exit."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        yield
        return
    # The message of an exception may quote content.
    with trace.get_tracer("edenmem").start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        finally:
            for key, value in details.items():
                span.set_attribute(f"edenmem.{key}", value)
            if "error" in details:
                span.set_status(trace.StatusCode.ERROR)


class Stopwatch:
    """Measure stages in milliseconds; concurrent stages are measured separately."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._stages: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the body; repeated stages add up."""
        started = perf_counter()
        try:
            yield
        finally:
            took = (perf_counter() - started) * 1000
            self._stages[name] = self._stages.get(name, 0.0) + took

    def timings(self) -> dict[str, float]:
        """Return milliseconds by stage, and the time since creation as "total"."""
        return {**self._stages, "total": (perf_counter() - self._started) * 1000}
