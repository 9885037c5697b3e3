"""Who sent a request, and what that caller may reach."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import msgspec
from fastapi import Depends, Request

from edenmem.errors import EdenmemError
from edenmem.server.state import state_of

#: Headers that a reverse proxy adds: behind one, every caller has the proxy's address.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


class AccessDenied(EdenmemError):
    """A request that may not be answered; ``status`` is 401 without a valid token, else 403."""

    def __init__(self, message: str, *, status: int = 401, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A caller and the limits of what it may reach.

    Attributes:
        name: The name that history and audit show.
        agents: The ids of the agents within reach; None: all.
        user_id: The only user within reach; None: all users.
        write: Whether it may change memory by hand. A chat is stored either way.
        token_id: The id of its token; None: a local caller without one.
    """

    name: str
    agents: frozenset[str] | None = None
    user_id: str | None = None
    write: bool = False
    token_id: str | None = None

    def may_reach_agent(self, agent_id: str) -> bool:
        """Return whether the agent is within reach."""
        return self.agents is None or agent_id in self.agents

    def may_reach_user(self, user_id: str | None) -> bool:
        """Return whether the user is; None is a request without a user."""
        return self.user_id is None or self.user_id == user_id


def is_loopback(host: str) -> bool:
    """Return whether an address or name means this machine."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _hostname(authority: str) -> str:
    """Return the host of ``host:port``."""
    if authority.startswith("["):
        return authority.partition("]")[0]
    return authority.partition(":")[0]


async def caller(request: Request) -> Caller:
    """Return who sent the request.

    Without a token only this machine is served, and only if the server listens on loopback. What
    a browser sends for a page of another site is refused too: the name it calls this server by,
    or the page's origin, is not of this machine.

    Raises:
        AccessDenied: the caller may not be served.
    """
    state = state_of(request)
    peer = request.client.host if request.client else ""
    is_direct = is_loopback(peer) and not any(name in request.headers for name in _FORWARDED)
    if not (state.is_local and is_direct):
        raise AccessDenied("a token is required", hint="send 'Authorization: Bearer TOKEN'")
    if not is_loopback(_hostname(request.headers.get("host", ""))):
        raise AccessDenied("the Host header is not of this machine", status=403)
    origin = request.headers.get("origin")
    if origin is not None and not is_loopback(_hostname(origin.partition("://")[2])):
        raise AccessDenied("the request comes from a page of another site", status=403)
    return Caller(name="local", write=True)


#: What a route takes as a parameter: ``async def read(caller: FromCaller)``.
FromCaller = Annotated[Caller, Depends(caller)]
