"""A few users, an agent and a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from edenmem.models.host import Agent, Session, User
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope
from tests.support.builders import make_agent, make_session, make_user
from tests.support.memory import set_policy
from tests.support.stores import SECANTUS_TOO

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store


@dataclass(kw_only=True)
class Cast:
    """Agent ``eve`` of owner ``olga``; Anna with a second account, and Bruno; Anna's session."""

    store: Store
    olga: User
    anna: User
    anna_on_discord: User
    bruno: User
    eve: Agent
    session: Session

    def add_session(self, *users: User, **fields: object) -> Session:
        """Add a session of Eve."""
        session = make_session([self.eve], users, **fields)
        assert self.store.host.put_session(session)
        return session

    def add_agent(self, username: str, **fields: object) -> Agent:
        """Add an agent."""
        agent = make_agent(username, **fields)
        assert self.store.host.add_agent(agent)
        return agent

    def add_shard(self, name: str, **fields: object) -> Scope:
        """Add a shard of Eve."""
        scope = Scope.shard(self.eve.id, name)
        set_policy(self.store, scope, **fields)
        return scope

    def policy(self, scope: Scope) -> Policy:
        """Return the stored policy of a scope."""
        return self.store.memory.policies((scope,))[scope]

    @property
    def agent_scope(self) -> Scope:
        """Return the agent scope of Eve."""
        return Scope.agent(self.eve.id)

    @property
    def anna_scope(self) -> Scope:
        """Return the scope of Anna."""
        return Scope.user(self.eve.id, self.anna.id)

    @property
    def discord_scope(self) -> Scope:
        """Return the scope of Anna's second account."""
        return Scope.user(self.eve.id, self.anna_on_discord.id)

    @property
    def anna_scopes(self) -> tuple[Scope, Scope]:
        """Return the scopes of all of Anna's accounts."""
        return self.anna_scope, self.discord_scope

    @property
    def bruno_scope(self) -> Scope:
        """Return the scope of Bruno."""
        return Scope.user(self.eve.id, self.bruno.id)

    @property
    def session_scope(self) -> Scope:
        """Return the scope of Anna's session."""
        return Scope.session(self.eve.id, self.session.id)


def make_cast(store: Store) -> Cast:
    """Store the cast in ``store``."""
    olga, anna, bruno = make_user("olga"), make_user("anna"), make_user("bruno")
    discord = make_user("anna#1234", eden_user_id=anna.id)
    for user in (olga, anna, bruno, discord):
        assert store.host.add_user(user)
    eve = make_agent("eve", name="Eve", owner=olga.id)
    assert store.host.add_agent(eve)
    session = make_session([eve], [anna], name="monday-chat")
    assert store.host.put_session(session)
    return Cast(
        store=store,
        olga=olga,
        anna=anna,
        anna_on_discord=discord,
        bruno=bruno,
        eve=eve,
        session=session,
    )


@pytest.fixture(params=["sqlite", SECANTUS_TOO])
def store(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Store:
    """Return an empty store, once per kind."""
    return open_store(request.param)


@pytest.fixture
def cast(sqlite_store: Store) -> Cast:
    """Return the cast in a new store."""
    return make_cast(sqlite_store)
