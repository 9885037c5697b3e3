"""The application: routes over one `MemoryService`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.types import Receive, Scope, Send

from edenmem import __version__
from edenmem.engine.service import MemoryService
from edenmem.errors import EdenmemError
from edenmem.models.host import Agent
from edenmem.models.ids import derived_id
from edenmem.server import health, problems, rest, rest_search, rest_sessions
from edenmem.server.limits import Gate, Limits
from edenmem.server.problems import describe
from edenmem.server.proxy import routes as proxy
from edenmem.server.proxy.background import Background
from edenmem.server.proxy.recording import unpack
from edenmem.server.proxy.retries import Retries
from edenmem.server.proxy.routes import Proxy
from edenmem.server.proxy.upstream import Upstream
from edenmem.server.state import ServerState
from edenmem.settings.paths import user_data_folder
from edenmem.settings.schema import Settings

#: The routers of the application.
ROUTERS: tuple[APIRouter, ...] = (
    proxy.router,
    health.router,
    rest.router,
    rest_search.router,
    rest_sessions.router,
)


class _Application(FastAPI):
    """The application, with errors and tokens in its reference.

    ``prefix`` is the path that a reverse proxy removes, for links.
    """

    prefix = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self.prefix:
            scope["root_path"] = self.prefix
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Return the reference of all endpoints."""
        reference = super().openapi()
        parts = reference["components"]
        parts["schemas"].update(problems.SCHEMAS)
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        reference["security"] = [{}, {"token": []}]  # callers on this machine may need none
        return reference


def create_app(
    service: MemoryService,
    settings: Settings,
    *,
    agent: Agent | None = None,
    is_local: bool = False,
) -> FastAPI:
    """Return the application.

    Args:
        service: The engine with its models; the application does not close it.
        settings: The current settings.
        agent: Default agent of requests.
        is_local: Whether the server listens only on loopback, so that callers on this machine
            need no token.
    """
    app = _Application(
        title="edenmem",
        version=__version__,
        lifespan=_lifespan,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        swagger_ui_oauth2_redirect_url=None,
        # Its own spans and logs would hold questions, as parts of URLs.
        telemetry={"tracing": False, "logs": False},
    )
    app.prefix = settings.server.root_path
    is_open = is_local and not settings.server.require_token
    state = ServerState(service=service, settings=settings, agent=agent, is_local=is_open)
    state.metrics.notes_lost.set_function(lambda: service.told.notes.lost)
    app.state.edenmem, app.state.answers = state, {}
    background = Background(service, settings.server)
    app.state.proxy = Proxy(
        upstream=Upstream(settings),
        background=background,
        retries=Retries(background, state.metrics, _waiting_folder(service, settings)),
    )
    for router in ROUTERS:
        app.include_router(router)
    for route in app.routes:  # builds the validation of all routes now, not in the first request
        route.matches({"type": "http", "method": "GET", "path": "/", "headers": []})
    problems.add_handlers(app)
    app.add_middleware(Gate)
    # The middleware that is added last runs first.
    app.add_middleware(Limits, settings=settings.server, metrics=state.metrics)
    return app


def _waiting_folder(service: MemoryService, settings: Settings) -> Path:
    """Return the folder for chats that wait for the store, one for each store."""
    if settings.server.waiting_folder:
        return Path(settings.server.waiting_folder)
    if service.setup.is_embedded:
        path = Path(service.setup.location)
        return path.with_name(f"{path.name}.waiting")
    store = derived_id("waiting", settings.store.uri, settings.store.database)
    return user_data_folder() / f"{store}.waiting"


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Finish background tasks when the server stops."""
    chats: Proxy = app.state.proxy
    state: ServerState = app.state.edenmem
    try:
        await state.service.embeddings.load()
    except EdenmemError as error:  # searches say so again
        describe(error)
    if state.stores_chats:
        chats.retries.load(lambda data: unpack(data, state, chats.background, chats.retries))
        chats.background.start(chats.background.resume())
    try:
        yield
    finally:
        await chats.background.drain()
        chats.retries.close()
        await chats.upstream.close()
