"""Resolve names in an import to agents and users, existing or to be added."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from edenmem.engine.edits.checks import add_account
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.scopes.references import find_references, fold
from edenmem.errors import ConflictError
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id, is_id
from edenmem.store.protocol.host import ReferenceKind
from edenmem.store.protocol.store import Store
from edenmem.text import normalize_name

Account = TypeVar("Account", Agent, User)


class People:
    """Cached lookup of names by full ID or username; a prefix would be too ambiguous in a file."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Owner of added agents.
        self.owner_id: str | None = None
        self._agents: dict[str, Agent | None] = {}
        self._users: dict[str, User | None] = {}
        self.new_agents: dict[str, Agent] = {}
        self.new_users: dict[str, User] = {}

    def agent(self, name: str) -> Agent | None:
        """Return the agent with this name, existing or planned."""
        if name not in self._agents:
            self._agents[name] = self._look_up("agent", name, self._store.host.agent)
        return self._agents[name] or self.new_agents.get(name)

    def user(self, name: str) -> User | None:
        """Return the account with this name, existing or planned."""
        if name not in self._users:
            self._users[name] = self._look_up("user", name, self._store.host.user)
        return self._users[name] or self.new_users.get(name)

    def agent_or_new(self, name: str) -> Agent:
        """Return the agent with this name, or a new one with memory on."""
        id = name if is_id(name) else derived_id("agent", normalize_name(name))
        return self.agent(name) or Agent(
            id=id,
            username=normalize_name(name),
            name=normalize_name(name),
            owner=self.owner_id,
            user_memory_enabled=True,
            agent_memory_enabled=True,
        )

    def user_or_new(self, name: str) -> User:
        """Return the account with this name, or a new one."""
        id = name if is_id(name) else derived_id("user", normalize_name(name))
        return self.user(name) or User(id=id, username=normalize_name(name))

    def plan(self, agents: Iterable[str], users: Iterable[str]) -> None:
        """Plan to add those that do not exist."""
        for name in agents:
            if self.agent(name) is None:
                self.new_agents[name] = self.agent_or_new(name)
        for name in users:
            if self.user(name) is None:
                self.new_users[name] = self.user_or_new(name)

    def add(self, runtime: Runtime) -> None:
        """Add the planned accounts, with audit entries.

        Raises:
            ConflictError: an ID belongs to a deleted account.
        """
        for agent in self.new_agents.values():
            if not add_account(runtime, agent):
                raise ConflictError(f"agent was deleted and cannot be added: {agent.username!r}")
        for user in self.new_users.values():
            if not add_account(runtime, user):
                raise ConflictError(f"user was deleted and cannot be added: {user.username!r}")

    def _look_up(
        self, kind: ReferenceKind, name: str, load: Callable[[str], Account | None]
    ) -> Account | None:
        if is_id(name):
            by_id = load(name)
            if by_id is not None:
                return by_id
        loaded = [load(found.id) for found in find_references(self._store, kind, name)]
        found = [account for account in loaded if account is not None]
        exact = [account for account in found if account.username == name]
        like = [account for account in found if fold(account.username) == fold(name)]
        matches = exact or like
        return matches[0] if len(matches) == 1 else None
