"""The caller of a request, and the memory within its reach."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Annotated

import msgspec
from fastapi import Depends, Request
from starlette.datastructures import Headers

from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.scopes.visibility import OWN_KINDS
from edenmem.engine.service import MemoryService
from edenmem.engine.tokens import PREFIX
from edenmem.errors import EdenmemError
from edenmem.models.scope import Scope, ScopeKind
from edenmem.server.state import state_of

#: Headers of reverse proxies: all requests of a proxy have its address.
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

#: Values of ``Sec-Fetch-Site`` for requests that no page of another site sent.
_OWN_PAGES = frozenset({"same-origin", "same-site", "none"})

#: Key of the caller in the scope of a request, set by the gate.
CALLER_KEY = "edenmem.caller"

#: Header for a token if ``Authorization`` has the key of the upstream.
TOKEN_HEADER = "x-edenmem-token"  # noqa: S105 - a name


class AccessDenied(EdenmemError):
    """The caller has no access: ``status`` is 401 without a valid token, 403 otherwise."""

    def __init__(self, message: str, *, status: int = 401, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        kind = "invalid_token" if self.status == 401 else "insufficient_scope"
        return {"WWW-Authenticate": f'Bearer realm="edenmem", error="{kind}"'}


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A caller and its permissions.

    Attributes:
        name: Name in history and audit.
        agents: IDs of the agents within reach (None: all).
        user_id: The only user within reach (None: all users).
        accounts: IDs of all accounts of that user.
        write: Whether the caller may change memory. Chats are stored in any case.
        token_id: ID of the token (None: a local caller without a token).
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
        """Return whether a user is within reach, by any account; None means no user."""
        return self.user_id is None or user_id == self.user_id or user_id in self.accounts

    def may_read(self, scope: Scope) -> bool:
        """Return whether the caller may read a scope.

        A user's token reads only `OWN_KINDS`, and of users only its own.
        """
        if not self.may_reach_agent(scope.agent_id):
            return False
        if self.user_id is None:
            return True
        is_own = scope.kind is not ScopeKind.USER or self.may_reach_user(scope.owner)
        return scope.kind in OWN_KINDS and is_own

    def may_write(self, scope: Scope) -> bool:
        """Return whether the caller may change a scope.

        A user's token may change only that user's memory.
        """
        is_own = self.user_id is None or scope.kind is ScopeKind.USER
        return self.write and is_own and self.may_read(scope)


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Return whether an address or name is a loopback address."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


#: A host with or without a port. Anything else names no machine.
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\[\]:@/]+)(?::[0-9]*)?")


def _hostname(authority: str) -> str:
    """Return the host of ``host:port``, or "" if it is neither."""
    found = _AUTHORITY.fullmatch(authority)
    return found[1] if found else ""


def token_of(headers: Headers, path: str) -> str | None:
    """Return the token of a request, or None.

    Below ``/v1``, other bearer tokens are keys of the upstream. Elsewhere, all bearer tokens are
    tokens of edenmem.
    """
    given = headers.get(TOKEN_HEADER)
    if given is not None:
        return given.strip()
    scheme, _, value = headers.get("authorization", "").partition(" ")
    value = value.strip()
    is_ours = value.startswith(PREFIX) or not path.startswith("/v1/")
    return value if scheme.lower() == "bearer" and is_ours else None


async def caller(request: Request) -> Caller:
    """Return the caller of a request, which the gate has found."""
    found = request.scope[CALLER_KEY]
    assert isinstance(found, Caller)
    return found


async def find_caller(request: Request) -> Caller:
    """Return the caller of a request.

    Requests without a token must come from this machine to a server on loopback. Requests of
    pages of other sites are refused: their ``Host`` or ``Origin`` is not this machine, or the
    browser marks them as cross-site. So are HTTP/1.0 requests: a proxy that adds no headers may
    have sent them.

    Raises:
        AccessDenied: the caller has no access.
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
        raise AccessDenied("the Host header does not name this machine", status=403)
    origin = request.headers.get("origin")
    is_foreign = origin is not None and not is_loopback(_hostname(origin.partition("://")[2]))
    if is_foreign or request.headers.get("sec-fetch-site", "none") not in _OWN_PAGES:
        raise AccessDenied("the request comes from a page of another site", status=403)
    return Caller(name="local", write=True)


def _check_token(service: MemoryService, secret: str) -> Caller:
    """Return the caller with a token; unknown, expired and revoked tokens get the same error."""
    token = service.tokens.check(secret)
    if token is None:
        raise AccessDenied("invalid token")
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


#: Parameter of routes: ``async def read(caller: FromCaller)``.
FromCaller = Annotated[Caller, Depends(caller)]


async def writer(caller: FromCaller) -> Caller:
    """Return a caller with permission to change memory.

    Raises:
        AccessDenied: the token is read-only.
    """
    if not caller.write:
        raise AccessDenied("the token is read-only", status=403)
    return caller


#: Parameter of routes that change memory.
FromWriter = Annotated[Caller, Depends(writer)]
