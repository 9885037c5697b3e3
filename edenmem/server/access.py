"""The caller of a request, and the memory within its reach.

Missing objects and objects out of reach get the same answer after the same look-ups, so that
neither the text nor the time reveals which objects exist. The methods of `Reach` block.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Annotated, TypeVar

import msgspec
from fastapi import Depends, Request
from starlette.datastructures import Headers

from edenmem.engine.chats.sessions import name_session
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.scopes.visibility import OWN_KINDS
from edenmem.engine.service import MemoryService
from edenmem.engine.tokens import PREFIX
from edenmem.errors import EdenmemError, NotFoundError, UsageError
from edenmem.models.changes import Actor
from edenmem.models.host import Agent, Session
from edenmem.models.ids import is_id
from edenmem.models.memory import Fact, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.server.state import ServerState, state_of

T = TypeVar("T", Fact, Reflection)

#: An ID that does not exist.
_NOBODY = "0" * 24

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


class Reach:
    """The memory within reach of a caller.

    Attributes:
        service: The engine, with the caller as the actor of changes.
        caller: The caller.
        search_recipe: The configured recipe of a search.
    """

    def __init__(self, state: ServerState, caller: Caller, command: str) -> None:
        actor = Actor(name=caller.name, host=socket.gethostname(), command=command)
        self.service = state.service.for_actor(actor)
        self.caller = caller
        self._default = state.agent
        self._settings = state.settings.server
        self.search_recipe = state.settings.search.recipe

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        """Return the agents of the caller's token."""
        found = map(self.service.host.agent, sorted(self.caller.agents or ()))
        return tuple(agent for agent in found if agent is not None)

    def agent(self, text: str | None) -> Agent:
        """Return the agent with an ID or username (None: the only agent of the token, or the
        agent of the server).

        Raises:
            NotFoundError: no such agent within reach.
            UsageError: no name is given, and there is no default.
        """
        if text is None:
            return self._choose_agent()
        if self.caller.agents is not None:
            candidates = self.agents
        else:
            found = self.service.store.host.find("agent", text)
            agents = (self.service.host.agent(each.id) for each in found)
            candidates = tuple(agent for agent in agents if agent is not None)
        for agent in candidates:
            if text in (agent.id, agent.username):
                return agent
        raise NotFoundError("agent not found")

    def _choose_agent(self) -> Agent:
        if len(self.agents) == 1:
            return self.agents[0]
        if self._default is not None and self.caller.may_reach_agent(self._default.id):
            return self._default
        raise UsageError("an agent is required: add 'agent'")

    def account(self, agent: Agent, text: str | None) -> str | None:
        """Return the ID of the account that a request is about.

        It is named by ID or username. Default: the token's user, or ``server.user`` for a local
        caller without a token. A token of all users reaches users that its agent talked to or has
        memory of.

        Raises:
            NotFoundError: no such user within reach.
            UsageError: several accounts have the name.
        """
        is_default = text is None and self.caller.token_id is None
        if is_default:
            name = self._settings.user
            text = self._settings.users.get(name, name)
        if not text:
            return self.caller.user_id
        own_only = self.caller.user_id is not None
        within = self._own_accounts(text) if own_only else self._accounts(agent, text)
        if len(within) > 1:
            raise UsageError("several accounts have this name: use an ID")
        if not within and is_default:  # not left out: a new fact would become the agent's
            raise NotFoundError(
                f"the user of the server (server.user) does not exist: {text}; name another one"
                " with 'user', or start the server again"
            )
        if not within:
            raise NotFoundError("user not found")
        return within[0]

    def demand_account(self, agent: Agent, text: str | None) -> str:
        """Return the account of a request (see `account`), which is required.

        Raises:
            UsageError: no user is given.
        """
        account = self.account(agent, text)
        if account is None:
            raise UsageError("a user is required: add '?user=USER'")
        return account

    def _own_accounts(self, text: str) -> list[str]:
        """Return the accounts of the token's user with a name."""
        own = self.service.store.host.users_by_ids(sorted(self.caller.accounts))
        names = {id: own[id].username if id in own else id for id in sorted(self.caller.accounts)}
        return [id for id, name in names.items() if text in (id, name)]

    def _accounts(self, agent: Agent, text: str) -> list[str]:
        """Return the accounts with a name; for a token, only accounts that its agent knows."""
        host = self.service.store.host
        found = [text] if is_id(text) else [each.id for each in host.users_named(text)]
        if self.caller.token_id is not None:
            return [each for each in found or [_NOBODY] if self._is_known(agent, each)]
        return [each for each in found if host.user(each) or self._is_known(agent, each)]

    def _is_known(self, agent: Agent, account: str) -> bool:
        """Return whether the agent has memory of an account, deleted or not, or talked to it."""
        memory = self.service.store.memory.scopes(
            agent_id=agent.id, kinds=[ScopeKind.USER], user_ids=[account]
        )
        talks = self.service.host.sessions(agent_id=agent.id, user_id=account, limit=1)
        found = [next(iter(memory), None), next(iter(talks), None)]  # always both, for equal times
        return found != [None, None]

    def shard(self, agent: Agent, text: str) -> Policy:
        """Return the policy of the agent's shard with a name or ID.

        Raises:
            NotFoundError: no such shard.
        """
        shards = self.service.host.shards(agent.id)
        for shard in shards:
            if text in (shard.shard, shard.id):
                return shard
        why = "" if shards else (
            ": the agent has no shards; a migration with '--shards merge' made them the agent's"
            " own memory"
        )  # fmt: skip
        raise NotFoundError(f"shard not found{why}")

    def session(self, agent: Agent, text: str) -> Session:
        """Return the agent's session with an ID.

        The user of a token must participate in it.

        Raises:
            NotFoundError: no such session within reach.
        """
        may_see = is_id(text)
        if may_see and self.caller.user_id is not None:
            people = self.service.store.host.people_of([text]).get(text, frozenset())
            may_see = bool(people & self.caller.accounts)
        session = self.service.host.session(text) if may_see else None
        own_only = self.caller.user_id is not None
        if (
            session is not None
            and agent.id in session.agents
            and not (own_only and self.caller.accounts.isdisjoint(session.users))
        ):
            return session
        raise NotFoundError("session not found")

    def chat(self, agent: Agent, text: str, user: str | None) -> tuple[Session, str | None]:
        """Return the session with this ID, or of the user's chats with this name; and the account.

        Chats of an unknown user are found by their name only, and have no account.

        Raises:
            NotFoundError: no such user or session within reach.
            UsageError: several accounts have the name.
        """
        try:
            account = self.account(agent, user)
        except NotFoundError:
            if user is not None and self.caller.user_id is None:
                with suppress(NotFoundError):
                    return self.session(agent, name_session(agent, None, user, text)), None
            raise
        return self._chat_of(agent, text, account), account

    def _chat_of(self, agent: Agent, text: str, account: str | None) -> Session:
        user = self.service.store.host.user(account) if account else None
        named = name_session(agent, user, account or "", text)
        try:
            return self.session(agent, text)
        except NotFoundError:
            return self.session(agent, named)

    def fact(self, fact_id: str) -> Fact:
        """Return the fact with an ID.

        Raises:
            NotFoundError: no such fact within reach.
        """
        return self._within(self.service.memory.fact(fact_id) if is_id(fact_id) else None)

    def memory(self, memory_id: str) -> Fact | Reflection:
        """Return the fact or reflection with an ID.

        Raises:
            NotFoundError: no such memory within reach.
        """
        known = is_id(memory_id)
        fact = self.service.memory.fact(memory_id) if known else None
        reflection = self.service.memory.reflection(memory_id) if known else None
        return self._within(fact) if fact is not None else self._within(reflection)

    @property
    def kinds(self) -> list[ScopeKind] | None:
        """Return the readable kinds of scopes (None: all)."""
        return None if self.caller.user_id is None else sorted(OWN_KINDS)

    def _within(self, found: T | None) -> T:
        if found is None or not self.caller.may_read(found.home):
            raise NotFoundError("memory not found")
        return found

    def demand_write(self, scope: Scope) -> None:
        """Check that the caller may change a scope within reach.

        Raises:
            AccessDenied: the caller may not.
        """
        if not self.caller.may_write(scope):
            raise AccessDenied("a user's token may change only that user's memory", status=403)


async def reading(request: Request, caller: FromCaller) -> Reach:
    """Return the reach of a request that reads."""
    route = getattr(request.scope.get("route"), "path", request.url.path)
    return Reach(state_of(request), caller, f"serve {request.method} {route}")


async def writing(request: Request, caller: FromWriter) -> Reach:
    """Return the reach of a request that changes memory."""
    return await reading(request, caller)


#: Parameter of routes that read.
Reading = Annotated[Reach, Depends(reading)]
#: Parameter of routes that change memory.
Writing = Annotated[Reach, Depends(writing)]
