"""What the platform owns: agents, users, sessions, messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any

import bson
import msgspec
from bson import ObjectId
from bson.errors import InvalidDocument, InvalidStringData
from msgspec import structs
from pymongo.errors import BulkWriteError, DuplicateKeyError

from edenmem.errors import InputError, UsageError
from edenmem.models.backup import StoredUser
from edenmem.models.host import Agent, Message, Session, User, owner_of
from edenmem.models.ids import utc_now
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import Filter, at_or_after, id_parts, object_id, object_ids
from edenmem.store.mongo.core.merging import EPOCH
from edenmem.store.mongo.core.migrating import MigratingPart
from edenmem.store.mongo.core.transactions import Transaction, TransactionsPart
from edenmem.store.mongo.formations.cold import stir
from edenmem.store.mongo.host import host_codec as codec
from edenmem.store.protocol.store import batched

_LIVING: Filter = {"deleted": {"$ne": True}}
_IN_ORDER = (("createdAt", 1), ("_id", 1))
_INSERT_BATCH = 1000
#: The largest document, in bytes. MongoDB's own limit leaves the platform room for its fields.
LARGEST = 16 * 1024 * 1024 - 64 * 1024

#: Messages that people wrote, with everything that `host_codec` takes for no trigger.
BY_PEOPLE: Filter = {"role": "user", "trigger": {"$in": [None, False, 0, "", {}]}}

#: What is shorter is never larger as BSON, in which an item of a list takes up to 14 bytes.
_SMALL = LARGEST // 16


class HostPart(TransactionsPart, MigratingPart):
    """Reads and, carefully, writes the platform's documents: only ever the fields it is about."""

    # -- agents and users --------------------------------------------------------------------

    def agents(self) -> Iterator[Agent]:
        """See `edenmem.store.protocol.store.Store.agents`."""
        return map(codec.agent_from, self._accounts("agent"))

    def users(self) -> Iterator[User]:
        """See `edenmem.store.protocol.store.Store.users`."""
        return map(codec.user_from, self._accounts("user"))

    def _accounts(self, kind: str) -> Iterator[Document]:
        return self._users.find({"type": kind, **_LIVING}, sort=[("username", 1)])

    def agent(self, agent_id: str) -> Agent | None:
        """See `edenmem.store.protocol.store.Store.agent`."""
        found = self._users.find_one({"_id": object_id(agent_id), "type": "agent", **_LIVING})
        return None if found is None else codec.agent_from(found)

    def user(self, user_id: str) -> User | None:
        """See `edenmem.store.protocol.store.Store.user`."""
        found = self._users.find_one({"_id": object_id(user_id), "type": "user", **_LIVING})
        return None if found is None else codec.user_from(found)

    def users_by_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        """See `edenmem.store.protocol.store.Store.users_by_ids`."""
        filters = [{"_id": {"$in": part}, "type": "user"} for part in id_parts(user_ids)]
        users = map(codec.user_from, self._find_all(self._users, filters))
        return {user.id: user for user in users}

    def accounts_of(self, person_id: str) -> list[StoredUser]:
        """See `edenmem.store.protocol.erasure.Erasing.accounts_of`."""
        key = object_id(person_id)
        documents = {
            str(document["_id"]): document
            for condition in ({"_id": key}, {"eden_user_id": {"$in": [key, person_id]}})
            for document in self._users.find({**condition, "type": "user"})
        }
        return [codec.stored_user_from(document) for _, document in sorted(documents.items())]

    def refusal(self, record: msgspec.Struct) -> str:
        """See `edenmem.store.protocol.store.Store.refusal`."""
        try:
            match record:
                case Agent():
                    codec.agent_document(record)
                case Session():
                    codec.session_document(self._assign_owner(record))
                case Message():
                    return _oversize(record)
                case _:
                    return _too_large(len(msgspec.msgpack.encode(record)))
        except UsageError as error:
            return error.message
        return ""

    def _assign_owner(self, session: Session) -> Session:
        """The session with an owner, if there is anybody to be it."""
        owner = owner_of(session, ())
        if owner is None and session.agents:
            of_agents = {"_id": {"$in": object_ids(session.agents)}, "type": "agent"}
            agents = {
                agent.id: agent for agent in map(codec.agent_from, self._users.find(of_agents))
            }
            owner = owner_of(session, [agents[id] for id in session.agents if id in agents])
        return session if owner == session.owner else structs.replace(session, owner=owner)

    def add_agent(self, agent: Agent) -> bool:
        """See `edenmem.store.protocol.store.Store.add_agent`."""
        return self._add_account(codec.agent_document(agent))

    def add_user(self, user: User) -> bool:
        """See `edenmem.store.protocol.store.Store.add_user`."""
        return self._add_account(codec.user_document(user))

    def _add_account(self, document: Document) -> bool:
        """Insert an account. The platform allows two with one name, so that no unique index may
        stand for what is looked up here."""
        users = self._settings.users_collection
        key = {"type": document["type"], "username": document["username"]}

        def add(transaction: Transaction) -> bool:
            transaction.guard(accounts=True)
            if transaction.find(users, key, {"_id": 1}, limit=1):
                return False
            transaction.insert(users, [document])
            return True

        try:
            return self._transact(add)
        except (DuplicateKeyError, BulkWriteError):
            return False

    # -- sessions ----------------------------------------------------------------------------

    def sessions(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        group_id: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Session]:
        """See `edenmem.store.protocol.store.Store.sessions`."""
        named: Filter = {}
        if agent_id is not None:
            named["agents"] = object_id(agent_id)
        if user_id is not None:
            named["users"] = object_id(user_id)
        if group_id is not None:
            named["group_id"] = group_id
        activity = "memory_context.last_activity"
        recorded = self._sessions.find(
            {**named, activity: at_or_after(EPOCH), **_LIVING}, sort=[(activity, -1), ("_id", 1)]
        )
        silent = self._sessions.find(
            {**named, activity: None, **_LIVING}, sort=[("updatedAt", -1), ("_id", 1)]
        )
        both = merge(
            map(codec.session_from, recorded), map(codec.session_from, silent), key=_latest_first
        )
        return islice(both, limit)

    def session(self, session_id: str) -> Session | None:
        """See `edenmem.store.protocol.store.Store.session`."""
        found = self._sessions.find_one({"_id": object_id(session_id), **_LIVING})
        return None if found is None else codec.session_from(found)

    def put_session(self, session: Session) -> bool:
        """See `edenmem.store.protocol.store.Store.put_session`."""
        known = self._sessions.find_one({"_id": object_id(session.id)}, {"_id": 1}) is not None
        if not known:
            try:
                self._sessions.insert_one(codec.session_document(self._assign_owner(session)))
            except DuplicateKeyError:
                pass
            else:
                return True
        for field, ids in (("agents", session.agents), ("users", session.users)):
            if ids:
                self._add_to_list(object_id(session.id), field, ids)
        if session.imported:
            self._mark_imported(session)
        return False

    def _mark_imported(self, session: Session) -> None:
        key: Filter = {"_id": object_id(session.id), "extras.edenmem.imported": {"$ne": True}}
        no_extras = {**key, "extras": {"$not": {"$type": "object"}}}
        self._sessions.update_one(no_extras, {"$set": {"extras": {}}})
        mark = {
            "extras.edenmem": {"imported": True},
            codec.IMPORTED: True,
            "updatedAt": utc_now(),
        }
        for where, status in (({"status": "active"}, {"status": session.status}), ({}, {})):
            self._sessions.update_one({**key, **where}, {"$set": {**mark, **status}})

    def _add_to_list(self, session_id: ObjectId | str, field: str, ids: Sequence[str]) -> None:
        added = {"$addToSet": {field: {"$each": object_ids(ids)}}, "$set": {"updatedAt": utc_now()}}
        if not self._sessions.update_one({"_id": session_id, field: {"$type": "array"}}, added):
            # An old document holds null or a dict here, to which nothing can be added.
            self._sessions.update_one(
                {"_id": session_id, field: {"$not": {"$type": "array"}}}, {"$set": {field: []}}
            )
            self._sessions.update_one({"_id": session_id}, added)

    def set_session_status(self, session_id: str, status: str) -> None:
        """See `edenmem.store.protocol.store.Store.set_session_status`."""
        self._sessions.update_one(
            {"_id": object_id(session_id)}, {"$set": {"status": status, "updatedAt": utc_now()}}
        )

    def _set_in_context(
        self,
        session_id: str,
        operator: str,
        fields: Mapping[str, Any],
        *,
        where: Filter | None = None,
    ) -> bool:
        """Write subfields of ``memory_context``, which may be missing or null.

        False: the session is gone, or differs from ``where``.
        """
        key = object_id(session_id)
        dotted = {f"memory_context.{name}": value for name, value in fields.items()}
        here = {"_id": key, "memory_context": {"$type": "object"}, **(where or {})}
        if self._sessions.update_one(here, {operator: dotted}):
            return True
        self._sessions.update_one(
            {"_id": key, "memory_context": {"$not": {"$type": "object"}}},
            {"$set": {"memory_context": {}}},
        )
        return self._sessions.update_one(here, {operator: dotted}) > 0

    # -- messages ----------------------------------------------------------------------------

    def add_messages(self, session_id: str, messages: Sequence[Message]) -> int:
        """See `edenmem.store.protocol.store.Store.add_messages`."""
        for message in messages:
            if reason := _oversize(message):
                raise InputError(f"message {message.id}: {reason}")
        added = 0
        for batch in batched(messages, _INSERT_BATCH):
            documents = [codec.message_document(message) for message in batch]
            for document in documents:
                document["session"] = [object_id(session_id)]
            added += len(documents) - len(self._messages.insert_new(documents))
        if messages:
            latest = max(message.created_at for message in messages)
            self._set_in_context(session_id, "$max", {"last_activity": latest})
            stir(self._cold, session_id, latest)
        return added

    def messages(
        self, session_id: str, *, newest: int | None = None, ids: Sequence[str] | None = None
    ) -> Iterator[Message]:
        """See `edenmem.store.protocol.store.Store.messages`."""
        of_session: Filter = {"session": object_id(session_id)}
        documents: Iterator[Document]
        if ids is not None:
            filters = [{**of_session, "_id": {"$in": part}} for part in id_parts(ids)]
            found = self._find_all(self._messages, filters)
            read = (codec.message_from(document, session_id) for document in found)
            # By the time that the message is read with: an old document may lack its own.
            return iter(sorted(read, key=lambda message: (message.created_at, message.id)))
        if newest is not None:
            backwards = [(field, -order) for field, order in _IN_ORDER]
            last = self._messages.find(of_session, sort=backwards, limit=newest) if newest else ()
            documents = reversed(list(last))
        else:
            documents = self._messages.find(of_session, sort=_IN_ORDER)
        return (codec.message_from(document, session_id) for document in documents)

    def senders(self, session_id: str) -> tuple[str, ...]:
        """See `edenmem.store.protocol.store.Store.senders`."""
        by_people: Filter = {"session": object_id(session_id), **BY_PEOPLE}
        found = self._messages.distinct("sender", by_people)
        return tuple(sorted(str(sender) for sender in found if sender))


def _oversize(message: Message) -> str:
    """Why a message does not fit into a document; empty if it does."""
    calls = msgspec.msgpack.encode(message.tool_calls) if message.tool_calls else b""
    if len(message.content) + len(calls) < _SMALL:
        return ""
    try:
        return _too_large(len(bson.encode(codec.message_document(message))))
    except (InvalidDocument, InvalidStringData, OverflowError, RecursionError) as error:
        return f"cannot be a document of MongoDB: {error}"


def _too_large(size: int) -> str:
    if size <= LARGEST:
        return ""
    return f"too large for MongoDB: {size:,} bytes, the limit is {LARGEST:,}"


def _latest_first(session: Session) -> tuple[float, str]:
    moment = session.last_activity or session.created_at or EPOCH
    return -moment.timestamp(), session.id
