"""Who sent a request, and what that caller may reach."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import msgspec
from fastapi import Depends, Request
from starlette.datastructures import Headers

from edenmem.engine.access.tokens import PREFIX
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.service import MemoryService
from edenmem.errors import EdenmemError
from edenmem.models.scope import Scope, ScopeKind
from edenmem.server.state import state_of

#: Headers that a reverse proxy adds: behind one, every caller has the proxy's address.
_FORWARDED = (
    "cf-connecting-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
)

#: What a browser says of a request that does not come from a page of another site.
_OWN_PAGES = frozenset({"same-origin", "same-site", "none"})

#: Where a request's scope has its caller once the gate has let it in.
CALLER_KEY = "edenmem.caller"

#: A token in this header leaves ``Authorization`` to the key of the upstream.
TOKEN_HEADER = "x-edenmem-token"  # noqa: S105 - a name


class AccessDenied(EdenmemError):
    """A request that may not be answered; ``status`` is 401 without a valid token, else 403."""

    def __init__(self, message: str, *, status: int = 401, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {"WWW-Authenticate": 'Bearer realm="edenmem"'} if self.status == 401 else {}


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A caller and the limits of what it may reach.

    Attributes:
        name: The name that history and audit show.
        agents: The ids of the agents within reach; None: all.
        user_id: The only user within reach; None: all users.
        accounts: The ids of all accounts of that user.
        write: Whether it may change memory by hand. A chat is stored either way.
        token_id: The id of its token; None: a local caller without one.
    """

    name: str
    agents: frozenset[str] | None = None
    user_id: str | None = None
    accounts: frozenset[str] = frozenset()
    write: bool = False
    token_id: str | None = None

    def may_reach_agent(self, agent_id: str) -> bool:
        """Return whether the agent is within reach."""
        return self.agents is None or agent_id in self.agents

    def may_reach_user(self, user_id: str | None) -> bool:
        """Return whether the user, by any account, is; None is a request without a user."""
        return self.user_id is None or user_id == self.user_id or user_id in self.accounts

    def may_read(self, scope: Scope) -> bool:
        """Return whether the caller may see what is in a scope.

        One user's token opens no group and no session: others take part in them.
        """
        if not self.may_reach_agent(scope.agent_id):
            return False
        if self.user_id is None or scope.kind in (ScopeKind.AGENT, ScopeKind.SHARD):
            return True
        return scope.kind is ScopeKind.USER and self.may_reach_user(scope.owner)

    def may_write(self, scope: Scope) -> bool:
        """Return whether the caller may change what is in a scope: with one user's token that
        user's memory alone."""
        is_own = self.user_id is None or scope.kind is ScopeKind.USER
        return self.write and is_own and self.may_read(scope)


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


def token_of(headers: Headers, path: str) -> str | None:
    """Return the token of edenmem that a request brings. Below ``/v1`` another bearer token is the
    key of the upstream; elsewhere every bearer token must be one of ours."""
    given = headers.get(TOKEN_HEADER)
    if given is not None:
        return given.strip()
    scheme, _, value = headers.get("authorization", "").partition(" ")
    value = value.strip()
    is_ours = value.startswith(PREFIX) or not path.startswith("/v1/")
    return value if scheme.lower() == "bearer" and is_ours else None


async def caller(request: Request) -> Caller:
    """Return who sent the request; see `find_caller`, which the server's gate asks first."""
    known = request.scope.get(CALLER_KEY)
    return known if isinstance(known, Caller) else await find_caller(request)


async def find_caller(request: Request) -> Caller:
    """Return who sent the request.

    Without a token only this machine is served, and only if the server listens on loopback. What
    a browser sends for a page of another site is refused too: the name it calls this server by,
    or the page's origin, is not of this machine, or the browser says so itself. HTTP/1.0 is what a
    proxy speaks that adds no header.

    Raises:
        AccessDenied: the caller may not be served.
    """
    state = state_of(request)
    secret = token_of(request.headers, request.url.path)
    if secret is not None:
        return await in_thread(_check_token, state.service, secret)
    peer = request.client.host if request.client else ""
    is_direct = (
        is_loopback(peer)
        and request.scope.get("http_version") != "1.0"
        and not any(name in request.headers for name in _FORWARDED)
    )
    if not (state.is_local and is_direct):
        raise AccessDenied("a token is required", hint="send 'Authorization: Bearer TOKEN'")
    if not is_loopback(_hostname(request.headers.get("host", ""))):
        raise AccessDenied("the Host header is not of this machine", status=403)
    origin = request.headers.get("origin")
    is_foreign = origin is not None and not is_loopback(_hostname(origin.partition("://")[2]))
    if is_foreign or request.headers.get("sec-fetch-site", "none") not in _OWN_PAGES:
        raise AccessDenied("the request comes from a page of another site", status=403)
    return Caller(name="local", write=True)


def _check_token(service: MemoryService, secret: str) -> Caller:
    """Return the caller with this token; an unknown, an expired and a revoked one are alike."""
    token = service.tokens.check(secret)
    if token is None:
        raise AccessDenied("the token is not valid")
    accounts = frozenset[str]()
    if token.user_id is not None:
        accounts = frozenset((token.user_id, *service.host.person(token.user_id).ids))
    return Caller(
        name=token.name,
        agents=frozenset(token.agents),
        user_id=token.user_id,
        accounts=accounts,
        write=token.can_write,
        token_id=token.id,
    )


#: What a route takes as a parameter: ``async def read(caller: FromCaller)``.
FromCaller = Annotated[Caller, Depends(caller)]


async def writer(caller: FromCaller) -> Caller:
    """Return a caller that may change memory.

    Raises:
        AccessDenied: its token may only read.
    """
    if not caller.write:
        raise AccessDenied("the token may only read", status=403)
    return caller


#: What a route takes that changes memory by hand.
FromWriter = Annotated[Caller, Depends(writer)]
