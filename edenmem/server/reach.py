"""The memory within reach of a request. All functions block.

Missing objects and objects out of reach get the same answer after the same look-ups, so that
neither the text nor the time reveals which objects exist.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import cached_property
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from edenmem.engine.chats.sessions import name_session
from edenmem.engine.scopes.visibility import OWN_KINDS
from edenmem.errors import NotFoundError, UsageError
from edenmem.models.changes import Actor
from edenmem.models.host import Agent, Session
from edenmem.models.ids import is_id
from edenmem.models.memory import Fact, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.server.access import AccessDenied, Caller, FromCaller, FromWriter
from edenmem.server.state import ServerState, state_of

T = TypeVar("T", Fact, Reflection)

#: An ID that does not exist.
_NOBODY = "0" * 24


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
