"""Changes to who there is: agents and people's accounts that edenmem adds, and takes away again."""

# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

from edenmem.models.changes import (
    AddAgent,
    AddUser,
    ChangeResult,
    ChangeStatus,
    RemoveAgent,
    RemoveUser,
)
from edenmem.models.host import Agent, User
from edenmem.store.sqlite.apply.judging import Judging, absent, result
from edenmem.store.sqlite.core.codec import plain
from edenmem.store.sqlite.host.host import agent_of, insert_agent, insert_user, user_of

#: What an agent or account may be found in → a query for it, with the id as ``?1``.
_AGENT_IN = {
    "facts": "facts JOIN scopes USING (scope_id) WHERE agent_id = ?1",
    "reflections": "reflections JOIN scopes USING (scope_id) WHERE agent_id = ?1",
    "a text": "consolidations JOIN scopes USING (scope_id) WHERE agent_id = ?1 AND content <> ''",
    "a policy": "policies JOIN scopes USING (scope_id) WHERE agent_id = ?1",
    "sessions": "session_members WHERE member_id = ?1 AND role = 'agent'",
}
_USER_IN = {
    "facts": "facts JOIN scopes USING (scope_id) WHERE kind = 'user' AND owner = ?1",
    "reflections": "reflections JOIN scopes USING (scope_id) WHERE kind = 'user' AND owner = ?1",
    "a text": "consolidations JOIN scopes USING (scope_id) WHERE kind = 'user' AND owner = ?1"
    " AND content <> ''",
    "a policy": "policies JOIN scopes USING (scope_id) WHERE kind = 'user' AND owner = ?1",
    "sessions": "session_members WHERE member_id = ?1 AND role = 'user'",
    "agents": "agents WHERE owner = ?1 AND NOT deleted",
}


class AccountChanges(Judging):
    """Adds agents and accounts, and removes those that nothing refers to."""

    def _add_agent(self, change: AddAgent) -> ChangeResult:
        return self._added(change, change.agent, insert_agent(self._db, change.agent))

    def _add_user(self, change: AddUser) -> ChangeResult:
        return self._added(change, change.user, insert_user(self._db, change.user))

    def _added(
        self, change: AddAgent | AddUser, account: Agent | User, inserted: bool
    ) -> ChangeResult:
        if not inserted:
            detail = f"the id or the username {account.username!r} is taken"
            return result(change, ChangeStatus.CONFLICT, account.id, detail)
        kind = "agent" if isinstance(account, Agent) else "user"
        self._audit(change, kind, account.id, None, None, plain(account))
        return result(change, ChangeStatus.APPLIED, account.id)

    def _remove_agent(self, change: RemoveAgent) -> ChangeResult:
        agent = agent_of(self._db, change.agent_id)
        return self._removed(change, agent, change.agent_id, "agents", _AGENT_IN)

    def _remove_user(self, change: RemoveUser) -> ChangeResult:
        user = user_of(self._db, change.user_id)
        return self._removed(change, user, change.user_id, "users", _USER_IN)

    def _removed(
        self,
        change: RemoveAgent | RemoveUser,
        account: Agent | User | None,
        account_id: str,
        table: str,
        places: dict[str, str],
    ) -> ChangeResult:
        if account is None:
            return absent(change, account_id)
        for what, place in places.items():
            if self._db.execute(f"SELECT 1 FROM {place} LIMIT 1", (account_id,)).fetchone():
                detail = f"{account.username!r} has {what}"
                return result(change, ChangeStatus.CONFLICT, account_id, detail)
        self._db.execute(f"DELETE FROM {table} WHERE id = ?", (account_id,))
        self._audit(change, table.removesuffix("s"), account_id, None, plain(account), None)
        return result(change, ChangeStatus.APPLIED, account_id)
