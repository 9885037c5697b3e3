"""What all routes share, and how a route reaches it."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent
from edenmem.server.metrics import Metrics
from edenmem.settings.schema import Settings


@dataclass(slots=True, kw_only=True)
class ServerState:
    """The engine behind the routes, and what the server was started with.

    Attributes:
        service: The engine, with the configured models.
        settings: The settings in force.
        agent: The agent of requests that name none; None: each request must name one.
        is_local: Whether the server listens on a loopback address only.
        metrics: The numbers of this application.
        readiness: When it was last examined whether the server is ready, and the state of parts.
    """

    service: MemoryService
    settings: Settings
    agent: Agent | None = None
    is_local: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    readiness: tuple[float, dict[str, str]] | None = None

    @property
    def stores_chats(self) -> bool:
        """Whether what is said in chats is stored."""
        return self.settings.server.store_chats and not self.settings.store.read_only


def state_of(connection: HTTPConnection) -> ServerState:
    """Return what the application of a request was made with."""
    state = connection.app.state.edenmem
    assert isinstance(state, ServerState)
    return state
