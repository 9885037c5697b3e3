"""``edenmem mcp``: memory as tools of the Model Context Protocol."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.terminal.data import to_json
from edenmem.cli.terminal.prompts import Missing
from edenmem.errors import ConfigError, UsageError
from edenmem.mcp.client_config import CLIENTS, Client, http_config, stdio_config
from edenmem.settings.installation import install_hint, own_command
from edenmem.settings.paths import has_password, user_config_file

if TYPE_CHECKING:
    from edenmem.engine.service import MemoryService

#: Default address of --http.
_HOST, _PORT = "127.0.0.1", 8378


def mcp(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="config CLIENT",
            help="Print the configuration for claude, cursor or vscode, with the given options.",
        ),
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
    run = invocation(ctx)
    if not http and (host is not None or port is not None):
        raise UsageError("--host and --port need --http")
    if session and http:
        raise UsageError("--session and --http exclude each other: HTTP serves many sessions")
    host, port = host or _HOST, _PORT if port is None else port
    named = {"--agent": agent, "--user": user, "--session": session}
    given = [word for option, name in named.items() if name for word in (option, name)]
    given += ["--write"] if write else []
    if words:
        client = _parse_client(words)
        for name, find in zip(
            named.values(),
            (run.resolver.agent, run.resolver.user, run.resolver.session),
            strict=True,
        ):
            if name:  # checked now instead of when a client starts the server
                find(name)
        if http:
            _print_http_config(run, client, given, host, port)
        else:
            _print_config(run, client, given)
        return
    if run.out.is_data:
        raise UsageError("--format does not apply: stdout carries the protocol")
    run.refuse_output_file("stdout carries the protocol")
    if find_spec("mcp") is None:
        raise ConfigError("the MCP server is not installed", hint=install_hint("mcp"))
    if http and not all(map(find_spec, ("fastapi", "httpx", "prometheus_client"))):
        raise ConfigError("--http needs the server", hint=install_hint("mcp", "server"))
    if write:
        run.must_write("edenmem mcp --write")
    chosen = options.choose_agent(run, agent)
    user_id = run.resolver.user(user).id if user else None
    session_id = run.resolver.session(session).id if session else None
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


def _serve_http(
    run: Invocation, host: str, port: int, *, agent_id: str, user_id: str | None, write: bool
) -> None:
    from edenmem.mcp.http import create_app
    from edenmem.server import process
    from edenmem.server.access import is_loopback
    from edenmem.server.limits import MCP

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


# -- config ----------------------------------------------------------------------------------------


def _parse_client(words: Sequence[str]) -> Client:
    if words[0] != "config":
        raise UsageError(
            f"unknown argument: {words[0]!r}", hint="did you mean 'edenmem mcp config CLIENT'?"
        )
    for client in CLIENTS:
        if [word.lower() for word in words[1:]] == [client]:
            return client
    clients = f"one of: {', '.join(CLIENTS)}"
    if len(words) == 1:
        raise Missing("CLIENT", hint=clients)
    raise UsageError(f"no such client: {' '.join(words[1:])!r}", hint=clients)


def _print_config(run: Invocation, client: Client, extra: Sequence[str]) -> None:
    """Print the configuration of a client with its own folder and environment."""
    command = [*own_command(), *_store_options(run), "mcp"]
    if "--agent" not in extra:  # a client cannot ask which one
        only = options.choose_agent(run, None)
        command += ["--agent", only.username or only.id]
    sys.stdout.write(to_json(stdio_config(client, [*command, *extra]), indent=2) + "\n")
    origins = {key: origin for key, origin in run.loaded.origins.items() if key != "store.uri"}
    named = sorted({origin for origin in origins.values() if origin.isupper()})
    if named:
        run.out.note(f"set in this shell, but not for the client: {', '.join(named)}")


def _print_http_config(
    run: Invocation, client: Client, extra: Sequence[str], host: str, port: int
) -> None:
    """Print the configuration of a client for a running server, and the command that starts it."""
    is_local = host in ("127.0.0.1", "::1", "localhost")
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    config = http_config(client, url, token_variable="" if is_local else "EDENMEM_TOKEN")
    sys.stdout.write(to_json(config, indent=2) + "\n")
    address = [] if host == _HOST else ["--host", host]
    address += [] if port == _PORT else ["--port", str(port)]
    store = [] if has_password(run.settings.store.uri) else _store_options(run)
    command = ["edenmem", *store, "mcp", *extra, "--http", *address]
    run.out.note(f"start the server with: {shlex.join(command)}")


def _store_options(run: Invocation) -> list[str]:
    """Return the options for the same store and settings in any folder.

    Raises:
        UsageError: The URI contains a password, which the configuration would expose.
    """
    from edenmem.engine.factory import store_uri

    given = []
    own = user_config_file()
    files = [file.absolute() for file in run.loaded.files if file.absolute() != own]
    if files:
        given += ["--config", str(files[0])]
        if len(files) < len(run.loaded.files):
            run.out.note(f"the client reads {files[0]}, and not {own}: put all settings there")
    if run.profile:
        given += ["--profile", run.profile]
    for key, value in run.overrides.items():
        given += ["--set", f"{key}={value}"]
    if run.read_only:
        given.append("--read-only")
    origin = run.loaded.origins.get("store.uri", "default")
    if any(origin.startswith(str(file)) for file in run.loaded.files):
        return given
    uri = store_uri(run.settings)
    if has_password(uri):
        raise UsageError(
            "the store URI contains a password, which the configuration would expose",
            hint="put the URI into a private configuration file and pass it with --config",
        )
    return [*given, "--uri", uri]
