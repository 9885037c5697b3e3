"""``edenmem serve``: the HTTP server."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, single
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.engine.service import MemoryService
from edenmem.errors import ConfigError

app = single()


@app.command(cls=Command)
def serve(
    ctx: typer.Context,
    agent: options.Agent = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Address to listen on.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65_535, metavar="PORT", help="Port to listen on (0 = any)."
        ),
    ] = None,
) -> None:
    """Serve memory over HTTP, until SIGTERM or Ctrl-C.

    --agent is the agent of requests that name none. Without a token only this machine is served.

    \b
    edenmem serve --agent mira
    """
    if not all(map(find_spec, ("fastapi", "uvicorn", "prometheus_client"))):
        raise ConfigError("the server is not installed", hint='pip install "edenmem[server]"')
    run = invocation(ctx)
    _override(run, agent, host, port)
    from edenmem.server import process
    from edenmem.server.access import is_loopback
    from edenmem.server.app import create_app

    settings = run.settings.server
    chosen = run.resolver.agent(settings.agent) if settings.agent else None
    listener = process.open_socket(settings.host, settings.port)
    is_local = is_loopback(listener.getsockname()[0])

    async def work(service: MemoryService) -> None:
        application = create_app(service, run.settings, agent=chosen, is_local=is_local)
        await process.serve(
            application,
            listener,
            shutdown_seconds=settings.shutdown_seconds,
            ready=lambda: run.out.note(f"listening on {process.url_of(listener)}"),
        )

    with listener:
        run.serve(work, llm=True)


def _override(run: Invocation, agent: str | None, host: str | None, port: int | None) -> None:
    given = {"server.agent": agent, "server.host": host, "server.port": port}
    chosen = {key: str(value) for key, value in given.items() if value is not None}
    if chosen:
        run.override(chosen)
