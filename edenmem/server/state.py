"""The state shared by all routes."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent
from edenmem.server.metrics import Metrics
from edenmem.settings.schema import Settings


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
