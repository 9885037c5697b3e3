"""The application: routes over one `MemoryService`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from edenmem import __version__
from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent
from edenmem.server.access import AccessDenied
from edenmem.server.state import ServerState
from edenmem.settings.schema import Settings

#: The routers of the application. A module that adds routes adds its router here.
ROUTERS: tuple[APIRouter, ...] = ()


def create_app(
    service: MemoryService,
    settings: Settings,
    *,
    agent: Agent | None = None,
    is_local: bool = False,
) -> FastAPI:
    """Make the application.

    Args:
        service: The engine with its models; whoever made it closes it.
        settings: The settings in force.
        agent: The agent of requests that name none.
        is_local: Whether the server listens on loopback only, so that callers of this machine
            need no token.
    """
    app = FastAPI(title="edenmem", version=__version__, lifespan=_lifespan)
    app.state.edenmem = ServerState(
        service=service, settings=settings, agent=agent, is_local=is_local
    )
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(AccessDenied, _refuse)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run what must be running while requests are served."""
    yield


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AccessDenied)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    content = {"error": {"message": error.advised_message, "type": "access_denied"}}
    return JSONResponse(content, status_code=error.status, headers=headers)
