"""Configuration of MCP clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple


class Client(StrEnum):
    """A program that starts MCP servers, or calls them."""

    CLAUDE = "claude"
    CURSOR = "cursor"
    VSCODE = "vscode"


#: The name of the server in a client.
NAME = "edenmem"


class _Form(NamedTuple):
    """The configuration format of a client: key of the server table, and types to include."""

    table: str
    stdio: str = ""
    http: str = ""


_FORMS: Mapping[Client, _Form] = {
    Client.CLAUDE: _Form("mcpServers", http="http"),
    Client.CURSOR: _Form("mcpServers"),
    Client.VSCODE: _Form("servers", stdio="stdio", http="http"),
}


def stdio_config(client: Client, command: Sequence[str]) -> dict[str, Any]:
    """Return the configuration of a client that starts the server."""
    form = _FORMS[client]
    kind = {"type": form.stdio} if form.stdio else {}
    server = {**kind, "command": command[0], "args": list(command[1:])}
    return {form.table: {NAME: server}}


def http_config(client: Client, url: str, *, token_variable: str = "") -> dict[str, Any]:
    """Return the configuration of a client that calls a running server.

    Args:
        client: The client.
        url: URL of the server.
        token_variable: Environment variable of the client with the token.
    """
    form = _FORMS[client]
    server: dict[str, Any] = {**({"type": form.http} if form.http else {}), "url": url}
    if token_variable:
        reference = f"${{{token_variable}}}" if client == "claude" else f"${{env:{token_variable}}}"
        server["headers"] = {"Authorization": f"Bearer {reference}"}
    return {form.table: {NAME: server}}
