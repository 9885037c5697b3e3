"""``edenmem serve|token|mcp``: the servers, and access to them."""

from __future__ import annotations

import io
import logging
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import to_data, to_json
from edenmem.cli.terminal.prompts import Missing
from edenmem.cli.terminal.tables import Column
from edenmem.engine.runtime.runtime import no_llm
from edenmem.engine.service import MemoryService
from edenmem.errors import ConfigError, NotFoundError, UsageError, WriteRefused
from edenmem.mcp.client_config import Client, http_config, stdio_config
from edenmem.models.access import AccessToken
from edenmem.models.ids import utc_now
from edenmem.settings.installation import install_hint, own_command
from edenmem.settings.paths import has_password, user_config_file

T = TypeVar("T")


def serve(
    run: Invocation,
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
    from edenmem.server.proxy.upstream import upstream_of

    settings = run.settings.server
    if run.settings.store.read_only and settings.store_chats:
        raise WriteRefused("'edenmem serve' stores chats; use --no-store for a read-only store")
    upstream, _ = upstream_of(run.settings)
    setup = run.service.setup
    if not setup.is_made:  # 'edenmem init' creates the store on a server
        if not setup.is_embedded:
            raise NotFoundError("the store does not exist", hint="create it with 'edenmem init'")
        setup.make()
        run.out.note(f"created the store: {setup.location}")
    listener = process.open_socket(settings.host, settings.port)
    url = process.url_of(listener)
    if upstream.startswith(url):
        listener.close()
        raise ConfigError(
            f"the upstream is this server: {upstream}",
            hint="set another one with --upstream",
        )
    is_local = is_loopback(listener.getsockname()[0])

    async def work(service: MemoryService) -> None:
        chosen = await _find_or_add(run, run.resolver.agent, service.ensure_agent, settings.agent)
        await _find_or_add(run, run.resolver.user, service.ensure_user, settings.user)
        application = create_app(service, run.settings, agent=chosen, is_local=is_local)
        if find_spec("mcp") is not None:
            from edenmem.mcp.http import attach_to_server

            attach_to_server(application)
            run.out.note(f"serving MCP tools at {url}/mcp")
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


async def _find_or_add(
    run: Invocation, find: Callable[[str], T], add: Callable[[str], Awaitable[T]], name: str
) -> T | None:
    """Return the agent or user with a name; a SQLite store gets a missing one."""
    if not name:
        return None
    try:
        return find(name)
    except NotFoundError:
        if not run.service.setup.is_embedded or run.settings.store.read_only:
            raise
    added = await add(name)
    run.out.note(f"added {type(added).__name__.lower()} {name}")
    return added


# -- tokens --------------------------------------------------------------------------------------

token_app = group("Create, list, rotate and revoke access tokens of the server.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")]


@token_app.command("create", cls=Command)
def create(
    run: Invocation,
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
def list_tokens(run: Invocation) -> None:
    """List tokens with their access and their last use, to the hour.

    \b
    edenmem token list
    """
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
def rotate(run: Invocation, name: _Name, yes: options.Yes = False) -> None:
    """Replace the secret of a token. Access and expiry stay; the old secret ends at once.

    \b
    edenmem token rotate website
    """
    run.must_write("token rotate")
    run.service.tokens.find(name)
    run.confirm(f"Replace the secret of {name!r}?", yes=yes, can_look=False)
    _print_secret(run, *run.service.tokens.rotate(name))


@token_app.command("revoke", cls=Command)
def revoke(
    run: Invocation,
    name: _Name,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Revoke a token immediately. Its name can be reused.

    \b
    edenmem token revoke website --dry-run
    edenmem token revoke website --yes
    """
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


# -- mcp -----------------------------------------------------------------------------------------

#: Default address of --http.
_HOST, _PORT = "127.0.0.1", 8378


def mcp(
    run: Invocation,
    action: Annotated[
        Literal["config"] | None,
        typer.Argument(
            metavar="[ACTION]", help="config: print a configuration with the given options."
        ),
    ] = None,
    client: Annotated[
        Client | None,
        typer.Argument(metavar="[CLIENT]", help="Of config: claude, cursor or vscode."),
    ] = None,
    agent: options.Agent = None,
    user: options.User = None,
    session: options.Session = None,
    write: Annotated[
        bool, typer.Option("--write", help="Also offer tools that change memory.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP instead of stdio.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Address of --http.  [default: 127.0.0.1]"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            metavar="PORT",
            help="Port of --http (0 = any).  [default: 8378]",
        ),
    ] = None,
) -> None:
    """Serve memory as MCP tools over stdio, to a client that starts this command.

    The options limit the memory that tools can access. Without --user, tools access only memory
    that the agent has for all users. --session limits access to the scopes of a session. Tools are
    read-only unless --write is given. With --http, callers need a token (edenmem token create)
    unless the server listens only on this machine.

    \b
    edenmem mcp --agent mira --user lena
    edenmem mcp --agent mira --http
    edenmem mcp config claude --agent mira --user lena --write
    """
    options.needs({"--host": host, "--port": port}, "--http", http)
    options.exclusive({"--session": session, "--http": http}, hint="HTTP serves many sessions")
    host, port = host or _HOST, _PORT if port is None else port
    if action and client is None:
        raise Missing("CLIENT", hint=f"one of: {', '.join(Client)}")
    if client is not None:
        is_secret = http and has_password(run.settings.store.uri)
        store = [] if is_secret else run.options_elsewhere(_config_file(run))
    else:
        _check_servable(run, http=http)
        if write:
            run.must_write("edenmem mcp --write")
    chosen = options.choose_agent(run, agent)
    user_id = run.resolver.user(user).id if user else None
    session_id = run.resolver.session(session).id if session else None
    named = {"--agent": agent or chosen.username or chosen.id, "--user": user, "--session": session}
    given = [word for option, name in named.items() if name for word in (option, name)]
    given += ["--write"] if write else []
    if client is not None:
        if http:
            _print_http_config(run, client, [*store, "mcp", *given], host, port)
        else:
            _print_config(run, client, [*store, "mcp", *given])
        if find_spec("mcp") is None:
            run.out.note(f"the MCP server is not installed: {install_hint('mcp')}")
        return
    if http:
        _serve_http(run, host, port, agent_id=chosen.id, user_id=user_id, write=write)
        return
    if sys.stdin.isatty():
        command = shlex.join(["edenmem", "mcp", "config", "claude", *given])
        run.out.note(f"serving MCP on stdio; to configure a client: {command}")

    async def work(service: MemoryService) -> None:
        from edenmem.mcp.server import Reach, build_server, serve_stdio

        memory = await service.memory_for(chosen.id, user=user_id, session=session_id)
        reach = Reach(memory=memory, write=write)
        seconds = run.settings.server.request_seconds
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="replace")
        await serve_stdio(build_server(lambda _: reach, seconds=seconds), sys.stdin)

    run.serve(work, llm=write)


def _check_servable(run: Invocation, *, http: bool) -> None:
    """Check that stdout is free for the protocol, and that the server is installed."""
    if run.out.is_data:
        raise UsageError("--format does not apply: stdout carries the protocol")
    run.refuse_output_file("stdout carries the protocol")
    if find_spec("mcp") is None:
        raise ConfigError("the MCP server is not installed", hint=install_hint("mcp"))
    if http and not all(map(find_spec, ("fastapi", "httpx", "prometheus_client"))):
        raise ConfigError("--http needs the server", hint=install_hint("mcp", "server"))


def _serve_http(
    run: Invocation, host: str, port: int, *, agent_id: str, user_id: str | None, write: bool
) -> None:
    from edenmem.mcp.http import MCP, create_app
    from edenmem.server import process
    from edenmem.server.access import is_loopback

    listener = process.open_socket(host, port)

    async def work(service: MemoryService) -> None:
        application = create_app(
            service,
            run.settings,
            agent_id=agent_id,
            user_id=user_id,
            write=write,
            is_local=is_loopback(listener.getsockname()[0]),
        )
        await process.serve(
            application,
            listener,
            shutdown_seconds=run.settings.server.shutdown_seconds,
            ready=lambda: run.out.note(f"listening on {process.url_of(listener)}{MCP}"),
        )

    with listener:
        run.serve(work, llm=write)


# -- config --------------------------------------------------------------------------------------


def _print_config(run: Invocation, client: Client, words: Sequence[str]) -> None:
    """Print the configuration of a client with its own folder and environment."""
    sys.stdout.write(to_json(stdio_config(client, [*own_command(), *words]), indent=2) + "\n")
    origins = {key: origin for key, origin in run.loaded.origins.items() if key != "store.uri"}
    if named := sorted({origin for origin in origins.values() if origin.isupper()}):
        run.out.note(f"set in this shell, but not for the client: {', '.join(named)}")


def _print_http_config(
    run: Invocation, client: Client, words: Sequence[str], host: str, port: int
) -> None:
    """Print the configuration of a client for a running server, and the command that starts it."""
    is_local = host in ("127.0.0.1", "::1", "localhost")
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    config = http_config(client, url, token_variable="" if is_local else "EDENMEM_TOKEN")
    sys.stdout.write(to_json(config, indent=2) + "\n")
    address = [] if host == _HOST else ["--host", host]
    address += [] if port == _PORT else ["--port", str(port)]
    run.out.note(f"start the server with: {shlex.join(['edenmem', *words, '--http', *address])}")


def _config_file(run: Invocation) -> Path | None:
    """Return the configuration file for a client, which starts the server in another folder."""
    own = user_config_file()
    files = [file.absolute() for file in run.loaded.files if file.absolute() != own]
    if files and len(files) < len(run.loaded.files):
        run.out.note(f"the client reads {files[0]}, and not {own}: put all settings there")
    return files[0] if files else None
