"""What an operator sees of the work: log records, and spans of OpenTelemetry.

Loggers are below ``edenmem``, and silent until a program adds a handler. Spans are made if the
program has loaded OpenTelemetry; looking whether it has is all that it costs otherwise. Neither
holds content: names of models, numbers, and IDs alone. The words of an error may quote what was
said, and so are logged for debugging only.
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

#: What is told of a piece of work.
Details = Mapping[str, str | int | float]

logging.getLogger("edenmem").addHandler(logging.NullHandler())


def observed(
    name: str,
    *,
    before: Callable[[Mapping[str, Any]], Details] = lambda _: {},
    after: Callable[[Any], Details] = lambda _: {},
    level: int = logging.DEBUG,
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Log each call of a function and make a span of it.

    Args:
        name: Of the span and the logger, below ``edenmem``.
        before: Returns what is told of the keyword arguments.
        after: Returns what is told of the result.
        level: Of the record of a call that went well; failures are logged at INFO.
    """
    logger = logging.getLogger(f"edenmem.{name}")

    def wrap(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            details = dict(before(kwargs))
            begun = perf_counter()
            with _span(f"edenmem.{name}", details):
                try:
                    result = await function(*args, **kwargs)
                except Exception as error:
                    details |= {"error": type(error).__name__, "ms": _since(begun)}
                    _log(logger, logging.INFO, "failed", details)
                    logger.debug("%s: %s", type(error).__name__, error)
                    raise
                details |= after(result)
            _log(logger, level, "done", {**details, "ms": _since(begun)})
            return result

        return call

    return wrap


def _log(logger: logging.Logger, level: int, what: str, details: Details) -> None:
    if logger.isEnabledFor(level):
        told = " ".join(f"{key}={value}" for key, value in details.items())
        logger.log(level, "%s %s", what, told, extra={"details": details})


def _since(begun: float) -> float:
    return round((perf_counter() - begun) * 1000, 1)


@contextmanager
def _span(name: str, details: dict[str, str | int | float]) -> Iterator[None]:
    """Make a span, if anybody looks; it gets the details that are there in the end."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        yield
        return
    # An exception's own words may quote what was said.
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
