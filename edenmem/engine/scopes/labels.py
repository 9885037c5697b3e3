"""Labels of agents, accounts, sessions and scopes."""

from __future__ import annotations

from collections.abc import Iterable

from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store


class Labels(dict[str, str]):
    """Names by ID. ``labels[id]`` is the ID itself if the name is unknown."""

    def __missing__(self, key: str) -> str:
        return key

    def within_agent(self, scope: Scope) -> str:
        """Return the label of a scope within its agent: ``user lena``, or ``agent``."""
        return f"{scope.kind} {self[scope.owner]}" if scope.owner else scope.kind.value

    def full(self, scope: Scope) -> str:
        """Return the label of a scope with its agent: ``mira: user lena``."""
        return f"{self[scope.agent_id]}: {self.within_agent(scope)}"


def load_labels(store: Store, items: Iterable[Scope | str]) -> Labels:
    """Load the labels of scopes (agents and owners), and of IDs of agents or users.

    Agents, users and sessions take one query each. Deleted objects have no label.
    """
    accounts: dict[str, None] = {}
    sessions: dict[str, None] = {}
    labels = Labels()
    for item in items:
        if isinstance(item, str):
            accounts[item] = None
            continue
        accounts[item.agent_id] = None
        if item.user_id:
            accounts[item.user_id] = None
        elif item.session_id:
            sessions[item.session_id] = None
        elif item.owner:
            labels[item.owner] = item.owner
    if accounts:
        labels.update((one.id, one.username) for one in store.host.agents() if one.id in accounts)
        people = [account for account in accounts if account not in labels]
        if people:
            users = store.host.users_by_ids(people)
            labels.update((id, user.username) for id, user in users.items())
    if sessions:
        known = store.host.sessions_by_ids(list(sessions))
        labels.update((id, session.label) for id, session in known.items())
    return labels
