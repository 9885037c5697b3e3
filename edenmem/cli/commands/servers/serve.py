"""``edenmem serve``: the HTTP server."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.engine.runtime.runtime import no_llm
from edenmem.engine.service import MemoryService
from edenmem.errors import ConfigError, NotFoundError, WriteRefused
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id, utc_now
from edenmem.settings.installation import install_hint


def serve(
    ctx: typer.Context,
    agent: options.Agent = None,
    user: options.User = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            "--upstream", metavar="URL", help="OpenAI-compatible endpoint to forward chats to."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Model of the upstream for forming memory."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="Address to listen on.  [default: server.host, 127.0.0.1]",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            metavar="PORT",
            help="Port to listen on (0 = any).  [default: server.port, 8377]",
        ),
    ] = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Add memory to chats, but do not store chats.")
    ] = False,
) -> None:
    """Serve memory over HTTP until SIGTERM or Ctrl-C.

    Forwards chats to the upstream with memory in their context: point the base URL of a client at
    this server. --agent and --user are the defaults for requests that name none. Creates a missing
    SQLite store, agent and user. Without a token, only this machine has access. See
    'edenmem help --guide serve'.

    \b
    edenmem serve --agent mira --user anna --model llama3.2
    edenmem serve --agent mira --upstream https://api.openai.com/v1
    """
    run = invocation(ctx)
    run.refuse_output_file("the server does not end")
    if not all(map(find_spec, ("fastapi", "httpx", "prometheus_client", "uvicorn"))):
        raise ConfigError("the server is not installed", hint=install_hint("server"))
    given = {
        "server.agent": agent,
        "server.user": user,
        "server.host": host,
        "server.port": port,
        "server.upstream_url": upstream,
        "server.store_chats": "false" if no_store else None,
        **_formation_model(run, upstream, model),
    }
    if chosen := {key: str(value) for key, value in given.items() if value is not None}:
        run.override(chosen, _OPTION_OF)
    _serve(run)


#: The option of each setting that it overrides.
_OPTION_OF = {
    "server.agent": "--agent",
    "server.user": "--user",
    "server.host": "--host",
    "server.port": "--port",
    "server.upstream_url": "--upstream",
    "server.store_chats": "--no-store",
    "llm.fast_model": "--model",
    "llm.slow_model": "--model",
    "llm.premium_model": "--model",
    "llm.base_url": "--upstream",
}


def _serve(run: Invocation) -> None:
    from edenmem.server import process
    from edenmem.server.access import is_loopback
    from edenmem.server.app import create_app
    from edenmem.server.proxy.background import told

    settings = run.settings.server
    if run.settings.store.read_only and settings.store_chats:
        raise WriteRefused("'edenmem serve' stores chats; use --no-store for a read-only store")
    _prepare_store(run)
    chosen = _agent(run, settings.agent) if settings.agent else None
    if settings.user:
        _add_user(run, settings.user)
    listener = process.open_socket(settings.host, settings.port)
    url = process.url_of(listener)
    is_local = is_loopback(listener.getsockname()[0])

    async def work(service: MemoryService) -> None:
        application = create_app(service, run.settings, agent=chosen, is_local=is_local)
        if find_spec("mcp") is not None:
            from edenmem.mcp.http import attach_to_server

            attach_to_server(application)
            run.out.note(f"serving MCP tools at {url}/mcp")
        upstream = application.state.proxy.upstream.url
        if upstream.startswith(url):
            raise ConfigError(
                f"the upstream is this server: {upstream}",
                hint="set another one with --upstream",
            )
        run.out.note(f"forwarding chats to {upstream}")
        if not urlsplit(upstream).path:
            run.out.note(f"the upstream URL has no path; most servers expect {upstream}/v1")
        if not service.can_form and settings.store_chats:
            lack = no_llm()
            run.out.note(
                f"{lack.message}, so no memory is formed: add --model MODEL, or {lack.hint}"
            )
        elif settings.store_chats:
            if not run.quiet:
                told.setLevel(logging.INFO)
            run.out.note(
                f"forming memory with {run.settings.llm.fast_model} once a chat is quiet for"
                f" {settings.form_after:g} s"
            )
        await process.serve(
            application,
            listener,
            shutdown_seconds=settings.shutdown_seconds,
            ready=lambda: run.out.note(f"listening on {url} (base URL for clients: {url}/v1)"),
        )

    with listener:
        run.serve(work, llm=True)


def _formation_model(
    run: Invocation, upstream: str | None, model: str | None
) -> dict[str, str | None]:
    """Return the settings for forming memory with a model of the upstream."""
    if model is None:
        return {}
    from edenmem.server.proxy.upstream import OLLAMA

    settings = run.settings
    url = upstream or settings.server.upstream_url
    models = dict.fromkeys(("llm.fast_model", "llm.slow_model", "llm.premium_model"), model)
    if settings.llm.base_url or (settings.llm.api_key and not url):
        return {**models}
    return {**models, "llm.base_url": url or OLLAMA}


def _prepare_store(run: Invocation) -> None:
    """Create a missing SQLite store; 'edenmem init' creates one on a server."""
    setup = run.service.setup
    if setup.is_made:
        return
    if not run.service.setup.is_embedded:
        raise NotFoundError("the store does not exist", hint="create it with 'edenmem init'")
    setup.make()
    run.out.note(f"created the store: {setup.location}")


def _agent(run: Invocation, name: str) -> Agent:
    """Return the agent, adding a missing one to a SQLite store."""
    try:
        return run.resolver.agent(name)
    except NotFoundError:
        if not run.service.setup.is_embedded or run.settings.store.read_only:
            raise
    agent = Agent(
        id=derived_id("agent", name),
        username=options.parse_username(name),
        user_memory_enabled=True,
        agent_memory_enabled=True,
        created_at=utc_now(),
    )
    if run.service.accounts.add(agent):
        run.out.note(f"added agent {name}")
    return run.resolver.agent(name)


def _add_user(run: Invocation, name: str) -> None:
    """Add a missing user to a SQLite store."""
    try:
        run.resolver.user(name)
    except NotFoundError:
        if not run.service.setup.is_embedded or run.settings.store.read_only:
            raise
        user = User(
            id=derived_id("user", name),
            username=options.parse_username(name),
            created_at=utc_now(),
        )
        if run.service.accounts.add(user):
            run.out.note(f"added user {name}")
