"""``edenmem serve|token``: the HTTP server, and its access tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.tables import Column
from edenmem.engine.runtime.runtime import no_llm
from edenmem.engine.service import MemoryService
from edenmem.errors import ConfigError, NotFoundError, WriteRefused
from edenmem.models.access import AccessToken
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
    models: dict[str, str | None] = {}
    if model is not None:
        from edenmem.server.proxy.upstream import OLLAMA

        llm, url = run.settings.llm, upstream or run.settings.server.upstream_url
        models = dict.fromkeys(("llm.fast_model", "llm.slow_model", "llm.premium_model"), model)
        if not (llm.base_url or (llm.api_key and not url)):
            models["llm.base_url"] = url or OLLAMA
    run.override(
        {
            "server.agent": ("--agent", agent),
            "server.user": ("--user", user),
            "server.host": ("--host", host),
            "server.port": ("--port", port),
            "server.upstream_url": ("--upstream", upstream),
            "server.store_chats": ("--no-store", "false" if no_store else None),
            **{
                key: ("--upstream" if key == "llm.base_url" else "--model", value)
                for key, value in models.items()
            },
        }
    )
    _serve(run)


def _serve(run: Invocation) -> None:
    from edenmem.server import process
    from edenmem.server.access import is_loopback
    from edenmem.server.app import create_app
    from edenmem.server.proxy.background import told

    settings = run.settings.server
    if run.settings.store.read_only and settings.store_chats:
        raise WriteRefused("'edenmem serve' stores chats; use --no-store for a read-only store")
    setup = run.service.setup
    if not setup.is_made:  # 'edenmem init' creates the store on a server
        if not setup.is_embedded:
            raise NotFoundError("the store does not exist", hint="create it with 'edenmem init'")
        setup.make()
        run.out.note(f"created the store: {setup.location}")
    chosen = None
    if settings.agent:
        _add_missing(run, run.resolver.agent, Agent, settings.agent)
        chosen = run.resolver.agent(settings.agent)
    if settings.user:
        _add_missing(run, run.resolver.user, User, settings.user)
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


def _add_missing(
    run: Invocation, find: Callable[[str], object], kind: type[Agent | User], name: str
) -> None:
    """Add a missing agent, with its memory enabled, or user to a SQLite store."""
    try:
        find(name)
    except NotFoundError:
        if not run.service.setup.is_embedded or run.settings.store.read_only:
            raise
        what = kind.__name__.lower()
        username, now = options.parse_username(name), utc_now()
        account: Agent | User = User(id=derived_id(what, name), username=username, created_at=now)
        if kind is Agent:
            account = Agent(
                id=account.id,
                username=username,
                user_memory_enabled=True,
                agent_memory_enabled=True,
                created_at=now,
            )
        if run.service.accounts.add(account):
            run.out.note(f"added {what} {name}")


# -- tokens --------------------------------------------------------------------------------------

token_app = group("Create, list, rotate and revoke access tokens of the server.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")]


@token_app.command("create", cls=Command)
def create(
    ctx: typer.Context,
    name: _Name,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="AGENT",
            help="Agent that the token gives access to: username, ID, or ID prefix (repeatable).",
        ),
    ] = None,
    user: options.User = None,
    write: Annotated[
        bool, typer.Option("--write", help="Allow writing; otherwise read-only.")
    ] = False,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="TIME", help="Lifetime: 12h, 90d, 1y.  [default: unlimited]"
        ),
    ] = None,
) -> None:
    """Create an access token for agents and, with --user, for one user.

    Without --user, the token gives access to the memory of every user of the agents. The token is
    shown once and stored as a hash. Its name is the author of its changes in history and log.

    \b
    edenmem token create website --agent mira --expires 90d
    edenmem token create lena-phone --agent mira --user lena --write
    """
    run = invocation(ctx)
    run.must_write("token create")
    agents = [options.choose_agent(run, given) for given in agent or (None,)]
    user_id = run.resolver.user_id(user) if user else None
    token, secret = run.service.tokens.create(
        name,
        agents=[each.id for each in agents],
        user_id=user_id,
        can_write=write,
        expires_at=utc_now() + options.parse_duration(expires, "--expires") if expires else None,
    )
    _print_secret(run, token, secret)


def _print_secret(run: Invocation, token: AccessToken, secret: str) -> None:
    run.out.record(
        token,
        [
            ("token", secret),
            ("name", token.name),
            ("agents", _agents(run, token)),
            ("user", _user_name(run, token.user_id)),
            ("access", _access(token)),
            ("expires", token.expires_at),
        ],
        data=lambda each: {"token": secret, **_data(each)},
    )
    run.out.note("copy the token now: only its hash is stored")


@token_app.command("list", cls=Command)
def list_tokens(ctx: typer.Context) -> None:
    """List tokens with their access and their last use, to the hour.

    \b
    edenmem token list
    """
    run = invocation(ctx)
    now = utc_now()
    columns = [
        Column[AccessToken]("name", lambda each: each.name, "name"),
        Column[AccessToken]("agents", lambda each: _agents(run, each), "text"),
        Column[AccessToken]("user", lambda each: _user_name(run, each.user_id), "text"),
        Column[AccessToken]("access", _access),
        Column[AccessToken]("created", lambda each: each.created_at, "time"),
        Column[AccessToken]("last used", lambda each: each.last_used_at, "time"),
        Column[AccessToken](
            "expires", lambda each: "expired" if each.has_expired(now) else each.expires_at, "time"
        ),
    ]
    run.out.listing(
        run.service.tokens.list_all(),
        columns,
        data=_data,
        empty="no tokens; create one with 'edenmem token create NAME --agent AGENT'",
        header=[each for each in AccessToken.__struct_fields__ if each != "digest"],
    )


@token_app.command("rotate", cls=Command)
def rotate(ctx: typer.Context, name: _Name, yes: options.Yes = False) -> None:
    """Replace the secret of a token. Access and expiry stay; the old secret ends at once.

    \b
    edenmem token rotate website
    """
    run = invocation(ctx)
    run.must_write("token rotate")
    run.service.tokens.find(name)
    run.confirm(f"Replace the secret of {name!r}?", yes=yes, can_look=False)
    _print_secret(run, *run.service.tokens.rotate(name))


@token_app.command("revoke", cls=Command)
def revoke(
    ctx: typer.Context,
    name: _Name,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Revoke a token immediately. Its name can be reused.

    \b
    edenmem token revoke website --dry-run
    edenmem token revoke website --yes
    """
    run = invocation(ctx)
    token = run.service.tokens.find(name)
    if not dry_run:
        run.confirm(f"Revoke the token {token.name!r}?", yes=yes)
        token = run.service.tokens.revoke(name)
    title = "would revoke" if dry_run else "revoked"
    run.out.record(
        token,
        [
            (title, token.name),
            ("agents", _agents(run, token)),
            ("user", _user_name(run, token.user_id)),
            ("last used", token.last_used_at),
        ],
        data=_data,
    )


def _data(token: AccessToken) -> dict[str, Any]:
    return {key: value for key, value in to_data(token).items() if key != "digest"}


def _access(token: AccessToken) -> str:
    return "read and write" if token.can_write else "read"


def _agents(run: Invocation, token: AccessToken) -> list[str]:
    labels = run.service.scopes.labels(token.agents)
    return [labels[agent_id] for agent_id in token.agents]


def _user_name(run: Invocation, user_id: str | None) -> str:
    """Return the name of a token's user, their ID if they are gone, or "" for all users."""
    if user_id is None:
        return ""
    return run.service.host.person(user_id).names.get(user_id, user_id)
