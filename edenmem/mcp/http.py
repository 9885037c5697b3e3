"""The tools over streamable HTTP, with access control before the protocol.

The rules of `edenmem.server.access` apply: tokens, or this machine only. Requests are independent
of each other, so there are no protocol sessions to take over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import ServerRequestContext
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.service import MemoryService
from edenmem.errors import NotFoundError
from edenmem.mcp.server import Reach, build_server
from edenmem.server.access import AccessDenied, Caller, caller
from edenmem.server.limits import Gate, Limits
from edenmem.server.problems import add_handlers, describe
from edenmem.server.state import ServerState
from edenmem.settings.schema import Settings

#: Path of the protocol.
MCP = "/mcp"
#: Maximum size of a request; the longest argument of a tool has 20,000 characters.
MAX_BODY = 256 * 1024

_REACH = "edenmem.reach"

#: The agent and user of a request, and whether it may write.
Target = tuple[str, str | None, bool]


def create_app(
    service: MemoryService,
    settings: Settings,
    *,
    agent_id: str,
    user_id: str | None,
    write: bool,
    is_local: bool,
) -> Starlette:
    """Return an application of its own.

    Args:
        service: The engine with its models; the application does not close it.
        settings: The current settings.
        agent_id: The agent.
        user_id: The user (None: the user of the caller's token, if any).
        write: Whether to offer the tools that write to callers with write access.
        is_local: Whether the server listens only on loopback.
    """

    def choose(who: Caller) -> Target:
        if not who.may_reach_agent(agent_id):
            raise AccessDenied("the token is for another agent", status=403)
        if user_id is not None and not who.may_reach_user(user_id):
            raise AccessDenied("the token is for another user", status=403)
        return agent_id, user_id or who.user_id, write and who.write

    app = Starlette()
    is_open = is_local and not settings.server.require_token
    app.state.edenmem = state = ServerState(service=service, settings=settings, is_local=is_open)
    attach(app, choose)
    add_handlers(app)
    app.add_middleware(Gate)
    app.add_middleware(Limits, settings=settings.server, metrics=state.metrics)
    return app


def attach_to_server(app: Starlette) -> None:
    """Add the tools to the application of `edenmem.server.app`.

    Agent and user are those of the token, or the defaults of the server.
    """
    state: ServerState = app.state.edenmem

    def choose(who: Caller) -> Target:
        only = min(who.agents) if who.agents is not None and len(who.agents) == 1 else None
        agent_id = only or (state.agent.id if state.agent else None)
        if agent_id is None or not who.may_reach_agent(agent_id):
            raise AccessDenied("no agent: use a token of one agent", status=403)
        if who.token_id is not None:
            return agent_id, who.user_id, who.write
        server = state.settings.server
        user = state.service.chats.find_user(server.users.get(server.user, server.user))
        return agent_id, user.id if user else None, who.write

    attach(app, choose)


def attach(app: Starlette, choose: Callable[[Caller], Target]) -> None:
    """Add the path of the protocol to an application."""
    state: ServerState = app.state.edenmem
    settings = state.settings

    async def answer(request: Request) -> ASGIApp:
        """Pass a request with its reach on to the protocol."""
        who = await caller(request)
        agent_id, user_id, write = await in_thread(choose, who)
        try:
            memory = await state.service.memory_for(
                agent_id,
                user=user_id,
                actor_name=who.name if who.token_id is not None else None,
                own_only=who.user_id is not None,
            )
        except NotFoundError as error:  # deleted since the server started or the token was made
            raise AccessDenied("the agent or the user does not exist", status=403) from error
        request.scope[_REACH] = Reach(memory=memory, write=write)
        return protocol

    server = build_server(
        _reach_of,
        seconds=settings.server.request_seconds,
        describe=lambda error: describe(error)[1],
    )
    protocol = server.streamable_http_app(
        streamable_http_path=MCP,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        # Access control checks the Host and Origin headers.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def both(app: Starlette) -> AsyncIterator[None]:
        async with protocol.router.lifespan_context(protocol), lifespan(app):
            yield

    app.router.lifespan_context = both
    # There are no events to wait for and no sessions to end.
    app.router.routes.append(Route(MCP, answer, methods=["POST"]))


def _reach_of(context: ServerRequestContext[Any, Any]) -> Reach:
    assert context.request is not None
    reach = context.request.scope[_REACH]
    assert isinstance(reach, Reach)
    return reach
