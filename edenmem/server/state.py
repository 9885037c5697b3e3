"""The state shared by all routes, and the metrics for Prometheus.

Metrics are without content and IDs, and have few label values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from starlette.requests import HTTPConnection
from starlette.routing import Match

from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent
from edenmem.models.ids import utc_now
from edenmem.models.memory import HeldCount
from edenmem.settings.schema import Settings

#: The media type of what `Metrics.expose` returns.
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class Metrics:
    """The counters of one application.

    Attributes:
        requests: Requests by route, method and status.
        seconds: Duration until the end of the answer, by route.
        in_flight: Requests in progress.
        refused: Requests refused by a limit, by limit.
        memory_skipped: Chats without a part of memory, by stage and reason.
        tokens: Tokens used by chats, by direction.
        chats_waiting: Chats that wait for the store.
        chats_lost: Chats that were forwarded and not stored, by reason.
        notes_lost: Notes of replies that could not be written.
        held: Items that wait for review, in the store.
        held_seconds: Age of the oldest of them.
    """

    def __init__(self) -> None:
        # They double the number of series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "edenmem_requests",
            "Requests by route, method and status.",
            ("route", "method", "status"),
            registry=registry,
        )
        self.seconds = Histogram(
            "edenmem_request_seconds",
            "Duration until the end of the answer.",
            ("route",),
            buckets=(0.005, 0.025, 0.1, 0.5, 2.5, 10, 60),
            registry=registry,
        )
        self.in_flight = Gauge(
            "edenmem_requests_in_flight", "Requests in progress.", registry=registry
        )
        self.refused = Counter(
            "edenmem_requests_refused",
            "Requests refused by a limit.",
            ("limit",),
            registry=registry,
        )
        self.memory_skipped = Counter(
            "edenmem_memory_skipped",
            "Chats without a part of memory.",
            ("stage", "reason"),
            registry=registry,
        )
        self.tokens = Counter(
            "edenmem_chat_tokens", "Tokens used by chats.", ("direction",), registry=registry
        )
        self.chats_waiting = Gauge(
            "edenmem_chats_waiting", "Chats that wait for the store.", registry=registry
        )
        self.chats_lost = Counter(
            "edenmem_chats_lost",
            "Chats that were forwarded and not stored.",
            ("reason",),
            registry=registry,
        )
        self.notes_lost = Gauge(
            "edenmem_notes_lost", "Notes of replies that could not be written.", registry=registry
        )

        self.held = Gauge("edenmem_held", "Items that wait for review.", registry=registry)
        self.held_seconds = Gauge(
            "edenmem_held_oldest_seconds",
            "Age of the oldest item that waits for review.",
            registry=registry,
        )

    def note_held(self, held: HeldCount) -> None:
        """Set how many items wait for review, and since when."""
        age = (utc_now() - held.oldest).total_seconds() if held.oldest else 0.0
        self.held.set(held.number)
        self.held_seconds.set(age)

    def count(self, scope: Any, status: int, seconds: float) -> None:
        """Count an answered request."""
        route = route_of(scope)
        self.requests.labels(route, method_of(scope), str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def expose(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


def route_of(scope: Any) -> str:
    """Return the path of a request's route, with names of parameters instead of values.

    A request that was refused early has no route yet.
    """
    route = scope.get("route")
    if route is None and "app" in scope:
        routes = (
            route
            for each in scope["app"].routes
            for route in getattr(getattr(each, "original_router", None), "routes", (each,))
        )
        route = next((each for each in routes if each.matches(scope)[0] is Match.FULL), None)
    return str(getattr(route, "path", "other"))


def method_of(scope: Any) -> str:
    """Return the method of a request."""
    return str(scope["method"]) if scope["method"] in _METHODS else "other"


@dataclass(slots=True, kw_only=True)
class ServerState:
    """The engine, and the options of the server.

    Attributes:
        service: The engine, with the configured models.
        settings: The current settings.
        agent: Default agent of requests.
        is_local: Whether the server listens only on a loopback address.
        metrics: The metrics of this application.
        readiness: Time and result of the last readiness check.
    """

    service: MemoryService
    settings: Settings
    agent: Agent | None = None
    is_local: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    readiness: tuple[float, dict[str, str]] | None = None

    @property
    def stores_chats(self) -> bool:
        """Return whether messages of chats are stored."""
        return self.settings.server.store_chats and not self.settings.store.read_only


def state_of(connection: HTTPConnection) -> ServerState:
    """Return the state of the application of a request."""
    state = connection.app.state.edenmem
    assert isinstance(state, ServerState)
    return state
