"""Changes to who there is: agents and people's accounts that edenmem adds, and takes away again.

They are the platform's documents. One is only ever removed if it is exactly what edenmem put there
and nothing refers to it.
"""

from __future__ import annotations

from pymongo.errors import DuplicateKeyError

from edenmem.models.changes import (
    AddAgent,
    AddUser,
    ChangeResult,
    ChangeStatus,
    RemoveAgent,
    RemoveUser,
)
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.mongo.apply.ledger import LedgerPart, Run, result
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import Filter, object_id
from edenmem.store.mongo.core.migrating import MigratingPart
from edenmem.store.mongo.host import host_codec
from edenmem.store.mongo.memory.history import plain

_LIVING: Filter = {"deleted": {"$ne": True}}
_ID = {"_id": 1}


class AccountChangesPart(LedgerPart, MigratingPart):
    """Adds agents and accounts, and removes those that nothing refers to."""

    def _add_account_of(self, run: Run, change: AddAgent | AddUser) -> ChangeResult:
        if isinstance(change, AddAgent):
            account_id, kind = change.agent.id, "agent"
            document, after = host_codec.agent_document(change.agent), plain(change.agent)
        else:
            account_id, kind = change.user.id, "user"
            document, after = host_codec.user_document(change.user), plain(change.user)
        if change.id in run.resumed and self._account(kind, account_id) is not None:
            return run.already(change, account_id, None)
        taken = result(
            change,
            ChangeStatus.CONFLICT,
            account_id,
            f"the id or the username {document['username']!r} is taken",
        )
        with self._name_held(kind, document["username"], change.id) as held:
            for key in ({"_id": document["_id"]}, {"type": kind, "username": document["username"]}):
                if not held or self._users.find_one(key, _ID) is not None:
                    return taken
            entry = run.entry(
                change,
                target_type=kind,
                target_id=account_id,
                agent_id=account_id if kind == "agent" else "",
                scope=None,
                after=after,
            )
            if not self._begin(run, entry):
                return run.answer(change)
            try:
                self._users.insert_one(document)
            except DuplicateKeyError:
                self._withdraw(run, [change.id])
                return taken
            return run.applied(change, account_id, None)

    def _remove_account(self, run: Run, change: RemoveAgent | RemoveUser) -> ChangeResult:
        is_agent = isinstance(change, RemoveAgent)
        kind = "agent" if is_agent else "user"
        account_id = change.agent_id if isinstance(change, RemoveAgent) else change.user_id
        document = self._account(kind, account_id)
        if document is None:
            if change.id in run.resumed:
                return run.already(change, account_id, None)
            return result(change, ChangeStatus.MISSING, account_id, f"there is no such {kind}")
        account = host_codec.agent_from(document) if is_agent else host_codec.user_from(document)
        used = self._used(kind, account_id) or _is_more(document, kind)
        if used:
            detail = f"{account.username!r} {used}"
            return result(change, ChangeStatus.CONFLICT, account_id, detail)
        entry = run.entry(
            change,
            target_type=kind,
            target_id=account_id,
            agent_id=account_id if is_agent else "",
            scope=None,
            before=plain(account),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        same = {name: document.get(name) for name in ("_id", "username", "updatedAt")}
        if self._users.delete_one(same):
            return run.applied(change, account_id, None)
        run.resumed.add(change.id)  # by now it may have been made by a twin of this run
        return self._remove_account(run, change)

    def _account(self, kind: str, account_id: str) -> Document | None:
        return self._users.find_one({"_id": object_id(account_id), "type": kind, **_LIVING})

    def _used(self, kind: str, account_id: str) -> str:
        """What is known of the account, in words; "" if nothing is."""
        if self._sessions.find_one({f"{kind}s": object_id(account_id)}, _ID) is not None:
            return "has sessions"
        if kind == "agent":
            homes = [summary.scope for summary in self.scopes(agent_id=account_id)]
        else:
            living = self._users.find({"type": "agent", **_LIVING}, _ID)
            homes = [Scope.user(str(agent["_id"]), account_id) for agent in living]
        if any(self.facts(FactFilter(scopes=tuple(homes)), limit=1)):
            return "has facts"
        if any(self.reflections(homes, limit=1)):
            return "has reflections"
        if any(text.consolidated_content for text in self.consolidations(homes).values()):
            return "has a text"
        return "has a policy" if self.policies(homes) else ""


def _is_more(document: Document, kind: str) -> str:
    """In words, that the platform has stored more in a document than edenmem did."""
    if kind == "agent":
        ours = host_codec.agent_document(host_codec.agent_from(document))
    else:
        ours = host_codec.user_document(host_codec.user_from(document))
    more = sorted(document.keys() - ours.keys())
    return f"has more in the host's collection: {', '.join(more)}" if more else ""
