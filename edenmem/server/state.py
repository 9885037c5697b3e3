"""What all routes share, and how a route reaches it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent
from edenmem.settings.schema import Settings


@dataclass(slots=True, kw_only=True)
class ServerState:
    """The engine behind the routes, and what the server was started with.

    Attributes:
        service: The engine, with the configured models.
        settings: The settings in force.
        agent: The agent of requests that name none; None: each request must name one.
        is_local: Whether the server listens on a loopback address only.
    """

    service: MemoryService
    settings: Settings
    agent: Agent | None = None
    is_local: bool = False


def state_of(connection: HTTPConnection) -> ServerState:
    """Return what the application of a request was made with."""
    state = connection.app.state.edenmem
    assert isinstance(state, ServerState)
    return state
