"""What a person calls agents, accounts, sessions and scopes."""

from __future__ import annotations

from collections.abc import Iterable

from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store

#: Sessions whose labels are looked up; the others are shown by id.
SESSION_LABELS = 200


class Labels(dict[str, str]):
    """Names by id. ``labels[id]`` is the id itself where no name is known."""

    def __missing__(self, key: str) -> str:
        return key

    def within_agent(self, scope: Scope) -> str:
        """What the scope is called within its agent: ``user lena``, or ``agent``."""
        return f"{scope.kind} {self[scope.owner]}" if scope.owner else scope.kind.value

    def full(self, scope: Scope) -> str:
        """What the scope is called in a list over several agents: ``mira: user lena``."""
        return f"{self[scope.agent_id]}: {self.within_agent(scope)}"


def load_labels(store: Store, items: Iterable[Scope | str]) -> Labels:
    """Labels that a person knows, for the agents and owners of scopes, and for single ids.

    A plain id is taken for an agent's or a user's. One call for all agents and one for all users;
    sessions are looked up singly, at most `SESSION_LABELS` of them. What is not found (a deleted
    agent, say) is left out, so that its id is shown.
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
    for session_id in list(sessions)[:SESSION_LABELS]:
        session = store.host.session(session_id)
        if session is not None:
            labels[session_id] = session.label
    return labels
