"""Read, write and find the platform's agents, users, sessions and messages."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any

import bson
import msgspec
from bson import ObjectId
from bson.errors import InvalidDocument, InvalidStringData
from msgspec import structs
from pymongo import InsertOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from edenmem.errors import InputError, UsageError
from edenmem.models.backup import StoredUser
from edenmem.models.host import Agent, Message, Session, User, owner_of
from edenmem.models.ids import as_utc, is_id, utc_now
from edenmem.models.integrity import Finding
from edenmem.models.told import Note
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Collection, Document
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    EPOCH,
    EVERYTHING,
    IN_LIMIT,
    NOT_DELETED,
    Filter,
    at_or_after,
    id_parts,
    object_id,
    object_ids,
)
from edenmem.store.mongo.core.transactions import Transaction, Transactions
from edenmem.store.mongo.host import host_codec
from edenmem.store.mongo.host.host_codec import session_from, sub_document
from edenmem.store.mongo.memory.audit_log import add_notes
from edenmem.store.mongo.memory.memory import agents_with_memory
from edenmem.store.protocol.host import Reference, ReferenceKind
from edenmem.store.protocol.store import batched

_IN_ORDER = (("createdAt", 1), ("_id", 1))
_INSERT_BATCH = 1000

#: Maximum size of a document in bytes; leaves the platform room below MongoDB's limit.
LARGEST = 16 * 1024 * 1024 - 64 * 1024

#: Messages written by users; includes every trigger that `host_codec` treats as none.
BY_PEOPLE: Filter = {"role": "user", "trigger": {"$in": [None, False, 0, "", {}]}}


#: Below this size a message always fits: as BSON an item of a list takes up to 14 bytes.
_SMALL = LARGEST // 16


class MongoHost:
    """Implements `edenmem.store.protocol.host.Host`; writes only edenmem's fields of documents."""

    def __init__(self, db: Connection, transactions: Transactions) -> None:
        self._db = db
        self._transactions = transactions

    # -- agents and users --------------------------------------------------------------------

    def agents(self) -> Iterator[Agent]:
        return map(host_codec.agent_from, self._accounts("agent"))

    def users(self) -> Iterator[User]:
        return map(host_codec.user_from, self._accounts("user"))

    def _accounts(self, kind: str, **more: Any) -> Iterator[Document]:
        return self._db.users.find({"type": kind, **more, **NOT_DELETED}, sort=[("username", 1)])

    def agent(self, agent_id: str) -> Agent | None:
        found = self._accounts("agent", _id=object_id(agent_id))
        return next(map(host_codec.agent_from, found), None)

    def user(self, user_id: str) -> User | None:
        found = self._accounts("user", _id=object_id(user_id))
        return next(map(host_codec.user_from, found), None)

    def users_named(self, username: str) -> list[User]:
        users = map(host_codec.user_from, self._accounts("user", username=username))
        return sorted(users, key=lambda each: each.id)

    def users_by_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        found = self._db.find_by_ids(self._db.users, user_ids, type="user")
        users = map(host_codec.user_from, found)
        return {user.id: user for user in users}

    def accounts_of(self, person_id: str) -> list[StoredUser]:
        key = object_id(person_id)
        documents = {
            str(document["_id"]): document
            for condition in ({"_id": key}, {"eden_user_id": {"$in": [key, person_id]}})
            for document in self._db.users.find({**condition, "type": "user"})
        }
        return [host_codec.stored_user_from(document) for _, document in sorted(documents.items())]

    def find_agent_ids(self) -> list[str]:
        ids = {agent.id for agent in self.agents()}
        ids.update(str(value) for value in self._db.audit.distinct("agent_id") if value)
        ids.update(agents_with_memory(self._db))
        return sorted(ids)

    def refusal(self, record: msgspec.Struct) -> str:
        try:
            match record:
                case Agent():
                    host_codec.agent_document(record)
                case Session():
                    host_codec.session_document(assign_owner(self._db, record))
                case Message():
                    return _oversize(record)
                case _:
                    return _too_large(len(msgspec.msgpack.encode(record)))
        except UsageError as error:
            return error.message
        return ""

    def add_agent(self, agent: Agent) -> bool:
        return self._add_account(host_codec.agent_document(agent))

    def add_user(self, user: User) -> bool:
        return self._add_account(host_codec.user_document(user))

    def _add_account(self, document: Document) -> bool:
        """Insert an account in a transaction: usernames have no unique index on the platform."""
        users = self._db.settings.users_collection
        key = {"type": document["type"], "username": document["username"]}

        def add(transaction: Transaction) -> bool:
            transaction.guard(accounts=True)
            if transaction.find(users, key, {"_id": 1}, limit=1):
                return False
            transaction.write(users, [InsertOne(document)])
            return True

        try:
            return self._transactions.run(add)
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
        named: Filter = {} if group_id is None else {"group_id": group_id}
        for field, id in (("agents", agent_id), ("users", user_id)):
            if id is not None:
                named[field] = object_id(id)
        activity = "memory_context.last_activity"
        recorded = self._db.sessions.find(
            {**named, activity: at_or_after(EPOCH), **NOT_DELETED},
            host_codec.SESSION_FIELDS,
            sort=[(activity, -1), ("_id", 1)],
        )
        silent = self._db.sessions.find(
            {**named, activity: None, **NOT_DELETED},
            host_codec.SESSION_FIELDS,
            sort=[("updatedAt", -1), ("_id", 1)],
        )
        both = merge(
            map(host_codec.session_from, recorded),
            map(host_codec.session_from, silent),
            key=_latest_first,
        )
        return islice(both, limit)

    def session(self, session_id: str) -> Session | None:
        return self.sessions_by_ids([session_id]).get(session_id)

    def sessions_by_ids(self, session_ids: Sequence[str]) -> dict[str, Session]:
        fields = host_codec.SESSION_FIELDS
        found = self._db.find_by_ids(self._db.sessions, session_ids, fields, **NOT_DELETED)
        return {session.id: session for session in map(host_codec.session_from, found)}

    def sessions_of(
        self, *, accounts: Sequence[str] = (), agent_id: str | None = None, group_id: str = ""
    ) -> Iterator[Session]:
        if accounts:
            ids = object_ids(accounts)
            sessions = self._db.messages.distinct("session", {"sender": {"$in": ids}, **BY_PEOPLE})
            wrote = [{"_id": {"$in": part}} for part in id_parts(map(str, sessions))]
            filters: list[Filter] = [{"users": {"$in": ids}}, *wrote]
        elif agent_id is not None:
            filters = [{"agents": object_id(agent_id)}]
        elif group_id:
            filters = [{"group_id": group_id}]
        else:
            return
        seen: set[Any] = set()  # several filters can match a session
        for document in self._db.find_all(self._db.sessions, filters, host_codec.SESSION_FIELDS):
            if document["_id"] not in seen:
                seen.add(document["_id"])
                yield host_codec.session_from(document)

    def people_of(self, session_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        members = {"users": 1, "agents": 1}
        documents = list(self._db.find_by_ids(self._db.sessions, session_ids, members))
        wrote = self._db.run_all(
            [partial(self.senders, str(document["_id"])) for document in documents]
        )
        accounts: dict[str, set[str]] = {}
        for document, senders in zip(documents, wrote, strict=True):
            agents = codec.text_ids(document.get("agents"))
            listed = codec.text_ids(document.get("users"))
            accounts[str(document["_id"])] = {*listed, *senders}.difference(agents)
        everyone = [account for those in accounts.values() for account in those]
        known = self.users_by_ids(everyone)
        return {
            session_id: frozenset(known[a].person_id if a in known else a for a in those)
            for session_id, those in accounts.items()
        }

    def put_session(self, session: Session) -> bool:
        known = self._db.sessions.find_one({"_id": object_id(session.id)}, {"_id": 1}) is not None
        if not known:
            try:
                self._db.sessions.insert_one(
                    host_codec.session_document(assign_owner(self._db, session))
                )
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
        self._db.sessions.update_one(no_extras, {"$set": {"extras": {}}})
        mark = {
            "extras.edenmem": {"imported": True},
            host_codec.IMPORTED: True,
            "updatedAt": utc_now(),
        }
        for where, status in (({"status": "active"}, {"status": session.status}), ({}, {})):
            self._db.sessions.update_one({**key, **where}, {"$set": {**mark, **status}})

    def _add_to_list(self, session_id: ObjectId | str, field: str, ids: Sequence[str]) -> None:
        added = {"$addToSet": {field: {"$each": object_ids(ids)}}, "$set": {"updatedAt": utc_now()}}
        if not self._db.sessions.update_one({"_id": session_id, field: {"$type": "array"}}, added):
            # An old document may hold null or a dict, to which $addToSet cannot add.
            self._db.sessions.update_one(
                {"_id": session_id, field: {"$not": {"$type": "array"}}}, {"$set": {field: []}}
            )
            self._db.sessions.update_one({"_id": session_id}, added)

    def find_lost_progress(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Iterator[Finding]:
        active = {"memory_context.last_activity": {"$gte": since}} if since else EVERYTHING
        cursor = {"memory_context.last_memory_message_id": 1}
        fields = {"session_id": 1, "agent_id": 1, "last_message_at": 1}
        for page in batched(self._db.sessions.find(active, cursor), IN_LIMIT):
            keys = [session["_id"] for session in page]
            of_page = {"session_id": {"$in": keys}, "status": {"$ne": "superseded"}}
            newest: dict[Any, Document] = {}
            for formation in self._db.formations.find(of_page, fields):
                known = newest.get(formation["session_id"], formation)
                newest[formation["session_id"]] = max(known, formation, key=_last_message_at)
            reached = self._read_cursor_times(each for each in page if each["_id"] in newest)
            for key, formation in newest.items():
                agent = str(formation["agent_id"])
                between = {"$gt": reached[key], "$lte": _last_message_at(formation)}
                is_behind = agent_id in (None, agent) and reached[key] < between["$lte"]
                if is_behind and self._db.messages.find_one({"session": key, "createdAt": between}):
                    yield Finding(
                        target_type="session",
                        target_id=str(key),
                        detail="the platform's progress is behind formed or forgotten messages",
                        agent_id=agent,
                        related=(str(formation["_id"]),),
                    )

    def _read_cursor_times(self, sessions: Iterable[Document]) -> dict[Any, datetime]:
        """Return the time of the message at the platform's cursor, by session."""
        cursors = {
            session["_id"]: sub_document(session.get("memory_context")).get(
                "last_memory_message_id"
            )
            for session in sessions
        }
        ids = (str(cursor) for cursor in cursors.values() if cursor)
        found = self._db.find_by_ids(self._db.messages, ids, {"createdAt": 1})
        times = {message["_id"]: codec.read_creation_time(message) for message in found}
        return {
            key: times.get(cursor) or codec.read_creation_time({"_id": cursor})
            for key, cursor in cursors.items()
        }

    # -- messages ----------------------------------------------------------------------------

    def add_messages(
        self, session_id: str, messages: Sequence[Message], *, note: Note | None = None
    ) -> int:
        for message in messages:
            if reason := _oversize(message):
                raise InputError(f"message {message.id}: {reason}")
        if note is None or not messages:
            return self._insert(session_id, messages)
        both = (partial(self._insert, session_id, messages), partial(add_notes, self._db, [note]))
        return self._db.run_all(both)[0] or 0

    def _insert(self, session_id: str, messages: Sequence[Message]) -> int:
        added = 0
        for batch in batched(messages, _INSERT_BATCH):
            documents = [host_codec.message_document(message) for message in batch]
            for document in documents:
                document["session"] = [object_id(session_id)]
            added += len(documents) - len(self._db.messages.insert_new(documents))
        if messages:
            latest = max(message.created_at for message in messages)
            set_in_context(self._db, session_id, "$max", {"last_activity": latest})
            reset_cold_note(self._db, session_id, latest)
        return added

    def put_message(self, message: Message) -> None:
        if self.add_messages(message.session_id, [message]):
            return
        document = host_codec.message_document(message)
        content = {field: document[field] for field in ("content", "tool_calls")}
        self._db.messages.update_one(
            {"_id": object_id(message.id), "session": object_id(message.session_id)},
            {"$set": {**content, "updatedAt": utc_now()}},
        )

    def messages(
        self, session_id: str, *, newest: int | None = None, ids: Sequence[str] | None = None
    ) -> Iterator[Message]:
        of_session: Filter = {"session": object_id(session_id)}
        documents: Iterable[Document] = ()
        if ids is not None:
            filters = [{**of_session, "_id": {"$in": part}} for part in id_parts(ids)]
            found = self._db.find_all(self._db.messages, filters)
            documents = sorted(found, key=_position)
        elif newest is None:
            documents = self._db.messages.find(of_session, sort=_IN_ORDER)
        elif newest:
            backwards = [(field, -order) for field, order in _IN_ORDER]
            last = self._db.messages.find(of_session, sort=backwards, limit=newest)
            documents = reversed(list(last))
        return (host_codec.message_from(document, session_id) for document in documents)

    def messages_by_ids(self, message_ids: Sequence[str]) -> list[Message]:
        read: list[Message] = []
        for document in self._db.find_by_ids(self._db.messages, message_ids):
            held = document.get("session")
            session_ids = held if isinstance(held, list) else [held]
            read.append(host_codec.message_from(document, str(next(iter(session_ids), ""))))
        return sorted(read, key=lambda message: (message.created_at, message.id))

    def senders(self, session_id: str) -> tuple[str, ...]:
        by_people: Filter = {"session": object_id(session_id), **BY_PEOPLE}
        found = self._db.messages.distinct("sender", by_people)
        return tuple(sorted(str(sender) for sender in found if sender))

    def find_message_ids(
        self, accounts: Sequence[str], session_ids: Sequence[str]
    ) -> Iterator[str]:
        for session_id in session_ids:
            yield from map(str, find_messages_by(self._db, session_id, accounts))

    def display_names(self, accounts: Sequence[str], session_ids: Sequence[str]) -> list[str]:
        names: set[str] = set()
        for session_id in session_ids:
            by_accounts = {
                "session": object_id(session_id),
                "role": "user",
                "sender": {"$in": object_ids(accounts)},
            }
            found = self._db.messages.find(by_accounts, {"name": 1})
            names.update(name for each in found if (name := codec.text(each.get("name"))))
        return sorted(names)

    # -- references ------------------------------------------------------------------------

    def find(self, kind: ReferenceKind, text: str, *, limit: int = 20) -> Sequence[Reference]:
        collection, always, names, label = _kinds(self._db)[kind]
        if not text.strip() or not _storable(text):
            return []
        for condition in _conditions(text, names):
            by_id = [("_id", 1)] if "_id" in condition else []
            named = {**condition, **always}
            found = list(collection.find(named, _LABEL_FIELDS, sort=by_id, limit=limit))
            if found:
                return [Reference(id=str(d["_id"]), label=label(d) or str(d["_id"])) for d in found]
        return []

    def find_by_prefix(self, kind: ReferenceKind, text: str, *, limit: int) -> Sequence[Reference]:
        """See `Host.find_by_prefix`; names match with case."""
        collection, always, names, _ = _kinds(self._db)[kind]
        if not _storable(text):
            return []
        found: dict[str, Reference] = {}
        for name in names[:1]:  # not by titles, which are sentences
            named = {name: {"$gte": text, "$lt": text + _LAST}, **always}
            for document in collection.find(named, {name: 1}, sort=[(name, 1)], limit=limit):
                key = str(document["_id"])
                found[key] = Reference(id=key, label=codec.text(document.get(name)))
        if _DIGITS.match(text.lower()):
            begins = {**_with_prefix(text.lower()), **always}
            for document in collection.find(begins, {"_id": 1}, sort=[("_id", -1)], limit=limit):
                key = str(document["_id"])
                found.setdefault(key, Reference(id=key, label=key))
        return list(found.values())[:limit]


def assign_owner(db: Connection, session: Session) -> Session:
    """Return the session with an owner, if one can be found."""
    owner = owner_of(session, ())
    if owner is None and session.agents:
        of_agents = {"_id": {"$in": object_ids(session.agents)}, "type": "agent"}
        agents = {agent.id: agent for agent in map(host_codec.agent_from, db.users.find(of_agents))}
        owner = owner_of(session, [agents[id] for id in session.agents if id in agents])
    return session if owner == session.owner else structs.replace(session, owner=owner)


def _last_message_at(formation: Document) -> datetime:
    return codec.require_moment(formation, "last_message_at")


def set_in_context(
    db: Connection,
    session_id: str,
    operator: str,
    fields: Mapping[str, Any],
    *,
    where: Filter | None = None,
) -> bool:
    """Write subfields of ``memory_context``, which may be missing or null.

    Returns False if the session is gone or differs from ``where``.
    """
    key = object_id(session_id)
    dotted = {f"memory_context.{name}": value for name, value in fields.items()}
    here = {"_id": key, "memory_context": {"$type": "object"}, **(where or {})}
    if db.sessions.update_one(here, {operator: dotted}):
        return True
    db.sessions.update_one(
        {"_id": key, "memory_context": {"$not": {"$type": "object"}}},
        {"$set": {"memory_context": {}}},
    )
    return db.sessions.update_one(here, {operator: dotted}) > 0


def find_messages_by(
    db: Connection, session_id: str, accounts: Sequence[str] | None, ids: Sequence[str] = ()
) -> dict[Any, Document]:
    """Return the messages of a session, in order, without contents.

    ``accounts`` limits them to messages of these accounts, and to these ``ids``.
    """
    here: Filter = {"session": object_id(session_id)}
    filters = [here]
    if accounts is not None:
        by_them = {**here, "role": "user", "sender": {"$in": object_ids(accounts)}}
        filters = [by_them] if accounts else []
        filters += [{**here, "_id": {"$in": part}} for part in id_parts(ids)]
    found: dict[Any, Document] = {}
    for filter in filters:
        found |= {each["_id"]: each for each in db.messages.find(filter, {"createdAt": 1})}
    return {document["_id"]: document for document in sorted(found.values(), key=_position)}


def _position(message: Document) -> tuple[datetime, str]:
    """Return what orders messages: the time as read, since an old document may lack the field."""
    return codec.read_creation_time(message), str(message["_id"])


def reset_cold_note(db: Connection, session_id: str, latest: datetime) -> None:
    """Reset the cold run's note of a session that has new messages."""
    db.cold.update_one({"_id": object_id(session_id)}, cold_note_reset(latest), upsert=True)


def cold_note_reset(latest: datetime) -> Filter:
    """Return the update that resets the cold run's note of a session."""
    change = {"settled": None, "seen": None}
    return {"$set": change, "$max": {"activity": as_utc(latest)}}


def _oversize(message: Message) -> str:
    """Return why a message does not fit into a document; empty if it does."""
    calls = msgspec.msgpack.encode(message.tool_calls) if message.tool_calls else b""
    if len(message.content) + len(calls) < _SMALL:
        return ""
    try:
        return _too_large(len(bson.encode(host_codec.message_document(message))))
    except (InvalidDocument, InvalidStringData, OverflowError, RecursionError) as error:
        return f"cannot be stored in MongoDB: {error}"


def _too_large(size: int) -> str:
    if size <= LARGEST:
        return ""
    return f"too large for MongoDB: {size:,} bytes (limit {LARGEST:,})"


def _latest_first(session: Session) -> tuple[float, str]:
    moment = session.last_activity or session.created_at or EPOCH
    return -moment.timestamp(), session.id


_DIGITS = re.compile(r"[0-9a-f]{0,24}\Z")

#: Sorts after every continuation of a prefix.
_LAST = "\U0010ffff"
_PREFIX = re.compile(r"[0-9a-f]{4,24}\Z")

#: Longer names only match exactly: servers limit the length of a regular expression.
_PATTERN_LIMIT = 1000

#: Fields used in labels.
_LABEL_FIELDS = dict.fromkeys(
    ("username", "name", "title", "content", "session_id", "seq", "status", "createdAt"), 1
)


def _kinds(
    db: Connection,
) -> dict[str, tuple[Collection, Filter, Sequence[str], Callable[[Document], str]]]:
    """Return for each kind its collection, a filter, the fields of its names, and its label."""
    content = partial(_text_of, "content")
    username = partial(_text_of, "username")
    return {
        "agent": (db.users, {"type": "agent", **NOT_DELETED}, ["username"], username),
        "user": (db.users, {"type": "user", **NOT_DELETED}, ["username"], username),
        "session": (db.sessions, NOT_DELETED, ["name", "title"], lambda d: session_from(d).label),
        "fact": (db.facts, {}, [], content),
        "reflection": (db.reflections, {}, [], content),
        "formation": (
            db.formations,
            {},
            [],
            lambda d: f"{d['session_id']} #{d['seq']} {d['status']}",
        ),
    }


def _text_of(field: str, document: Document) -> str:
    return codec.text(document.get(field))


def _storable(text: str) -> bool:
    """Return whether a name in the database can equal this text."""
    return "\x00" not in text and text.encode("utf-8", "ignore").decode() == text


def _conditions(text: str, names: Sequence[str]) -> list[Filter]:
    """Return filters by priority; the first with results counts."""
    conditions: list[Filter] = []
    if is_id(text):
        conditions.append({"_id": ObjectId(text)})
    conditions.extend({name: text} for name in names)
    # A regular expression matches names in any case; the text is escaped.
    pattern = f"^{re.escape(text)}$"
    if len(pattern) <= _PATTERN_LIMIT:
        conditions.extend({name: {"$regex": pattern, "$options": "i"}} for name in names)
    if _PREFIX.match(text):
        conditions.append(_with_prefix(text))
    return conditions


def _with_prefix(prefix: str) -> Filter:
    low, high = prefix.ljust(24, "0"), prefix.ljust(24, "f")
    return {"_id": {"$gte": ObjectId(low), "$lte": ObjectId(high)}}
