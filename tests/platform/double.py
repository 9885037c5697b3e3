"""A double of the platform's memory: what its own processes do to the database that we share.

It is written from the behavior of the public platform, reduced to what can meet edenmem: which
indexes a process makes when it starts, which documents it can load, which messages it forms, what
it writes, and what it serves. One `Platform` is one process. Like the platform it swallows its own
errors; they are kept in ``errors``, so that a test can demand that there were none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from bson import ObjectId
from pydantic import BaseModel, ConfigDict, Field
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError, PyMongoError

from tests.support.fake_openai import fake_vector

# -- documents -------------------------------------------------------------------------------------

D = TypeVar("D", bound="Document")
Ids = list[ObjectId]
Data = Mapping[str, Any]


def _now() -> datetime:
    return datetime.now(UTC)


class Shape(BaseModel):
    """What a document must fit; fields that are not listed are ignored, as the platform does."""

    model_config = ConfigDict(populate_by_name=True, arbitrary_types_allowed=True)


class Document(Shape):
    """A document with a collection."""

    collection: ClassVar[str]

    id: Annotated[ObjectId | None, Field(alias="_id")] = None
    createdAt: datetime | None = None
    updatedAt: datetime | None = None


class ToolCall(Shape):
    id: str
    tool: str
    args: dict[str, Any]
    task: ObjectId | None = None
    cost: float | None = None
    status: Literal["pending", "running", "completed", "failed", "cancelled"] | None = None
    result: list[dict[str, Any]] | None = None
    error: str | None = None


class Message(Document):
    collection = "messages"

    role: Literal["user", "assistant", "system", "tool", "eden"]
    name: str | None = None
    session: Ids | None = None
    sender: ObjectId | None = None
    reply_to: ObjectId | None = None
    pinned: bool | None = False
    content: str = ""
    attachments: list[str] | None = None
    tool_calls: list[ToolCall] | None = None
    cost: float | None = None
    trigger: ObjectId | None = None
    thought: list[dict[str, Any]] | None = None


class MemoryContext(Shape):
    cached_memory_context: str | None = None
    memory_context_timestamp: datetime | None = None
    last_activity: datetime | None = None
    last_memory_message_id: ObjectId | None = None
    messages_since_memory_formation: int = 0
    weighted_tokens_since_memory_formation: int = 0
    agent_memory_timestamp: datetime | None = None
    user_memory_timestamp: datetime | None = None
    cached_episode_memories: list[dict[str, Any]] | None = None
    episode_memories_timestamp: datetime | None = None


class Extras(Shape):
    incognito: bool | None = False
    is_public: bool | None = False


class Budget(Shape):
    token_budget: int | None = None
    manna_budget: float | None = None
    turn_budget: int | None = None


class Session(Document):
    collection = "sessions"

    owner: ObjectId
    users: Ids = []
    session_key: str | None = None
    parent_session: ObjectId | None = None
    agents: Ids = []
    status: Literal["active", "paused", "running", "archived", "finished"] = "active"
    messages: Ids = []
    memory_context: MemoryContext | None = None
    title: str | None = None
    session_type: Literal["passive", "natural", "automatic"] = "passive"
    budget: Budget = Budget()
    platform: Literal["discord", "telegram", "twitter", "farcaster", "gmail", "app"] | None = None
    trigger: ObjectId | None = None
    extras: Extras | None = None
    deleted: bool | None = False
    context: str | None = None


class User(Document):
    collection = "users3"

    type: Literal["user", "agent"] | None = "user"
    username: str
    deleted: bool | None = False
    eden_user_id: ObjectId | None = None
    owner: ObjectId | None = None
    featureFlags: list[str] | None = None
    subscriptionTier: int | None = None
    preferences: dict[str, Any] | None = None
    social_accounts: dict[str, Any] | None = None


class Agent(User):
    type: Literal["agent"] = "agent"
    owner: ObjectId
    name: str
    description: str | None = None
    persona: str | None = None
    tools: dict[str, bool] | None = None
    user_memory_enabled: bool | None = False
    agent_memory_enabled: bool | None = False


class Fact(Document):
    collection = "memory2_facts"

    content: str
    hash: str = ""
    embedding: list[float] = []
    embedding_model: str = "text-embedding-3-small"
    scope: Literal["user", "agent"]
    agent_id: ObjectId
    user_id: ObjectId | None = None
    formed_at: datetime
    session_id: ObjectId | None = None
    source_message_ids: Ids = []
    access_count: int = 0
    last_accessed_at: datetime | None = None
    version: int = 1
    previous_content: str | None = None
    updated_at: datetime | None = None


class Reflection(Document):
    collection = "memory2_reflections"

    content: str
    scope: Literal["session", "user", "agent"]
    agent_id: ObjectId
    user_id: ObjectId | None = None
    formed_at: datetime
    session_id: ObjectId | None = None
    source_message_ids: Ids = []
    absorbed: bool = False
    absorbed_at: datetime | None = None
    consolidated_into: ObjectId | None = None


class Consolidated(Document):
    collection = "memory2_consolidated"

    scope: Literal["agent", "user", "session"]
    agent_id: ObjectId
    user_id: ObjectId | None = None
    session_id: ObjectId | None = None
    consolidated_content: str = ""
    word_limit: int = 400
    unabsorbed_ids: Ids = []
    last_consolidated_at: datetime | None = None


# -- the model -------------------------------------------------------------------------------------


class Learned(NamedTuple):
    """What a language model finds in messages: facts as (scope, text), reflections by scope."""

    facts: Sequence[tuple[str, str]] = ()
    reflections: Mapping[str, Sequence[str]] = {}


Model = Callable[[Sequence[Message]], Learned]


class Platform:
    """One process of the platform, from its start on.

    It moves a session's cursor before it asks the model, without comparing, and never back; it
    reads its window of 25 to 50 messages only; and it writes whole memory contexts from the copy
    that it loaded.

    Args:
        database: The database that it shares with edenmem.
        model: What is found in messages. It is the only part that is made up.
        clock: The current time.
    """

    WINDOW = 25  # messages; also as many make memory due
    LEAST = 4
    DUE_TOKENS = 1500
    QUIET = timedelta(minutes=10)
    LOOK_BACK = timedelta(days=2)
    CACHED_FOR = timedelta(minutes=5)
    WORD_LIMITS: ClassVar = {"agent": 2000, "user": 600, "session": 1500}
    THRESHOLDS: ClassVar = {"agent": 10, "user": 4, "session": 6}
    WEIGHTS: ClassVar = {"user": 1.0, "assistant": 0.2, "eden": 0.2}

    def __init__(
        self,
        database: Database[dict[str, Any]],
        model: Model = lambda messages: Learned(),
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self.database = database
        self.errors: list[Exception] = []
        self.read: list[str] = []  # the content of every message that the model was given
        self._model = model
        self._clock = clock
        self._make_indexes()

    @contextmanager
    def _swallowing(self) -> Any:
        try:
            yield
        except (ValueError, PyMongoError) as error:
            self.errors.append(error)

    def demand_no_errors(self) -> Self:
        """This, if nothing went wrong in it."""
        assert not self.errors, self.errors
        return self

    # -- indexes -------------------------------------------------------------------------------

    def _make_indexes(self) -> None:
        """Every process does this once. The first error ends it, except for duplicate facts: of
        those it keeps one for each hash and agent, and begins again with the facts."""
        with self._swallowing():
            create = {
                kind: self.database[kind.collection].create_index
                for kind in (Reflection, Consolidated, Fact)
            }
            for name, keys in {
                "unabsorbed": ["agent_id", "scope", "absorbed"],
                "user": ["agent_id", "user_id", "scope", "absorbed"],
                "session": ["session_id", "scope", "absorbed"],
            }.items():
                create[Reflection](keys, name=f"reflection_{name}_idx")
            create[Consolidated](
                ["agent_id", "user_id", "session_id", "scope"],
                name="consolidated_scope_idx",
                unique=True,
            )
            try:
                self._make_fact_indexes()
            except DuplicateKeyError:
                self._keep_one_of_each_hash()
                self._make_fact_indexes()

    def _make_fact_indexes(self) -> None:
        create = self.database[Fact.collection].create_index
        create(["hash", "agent_id"], name="fact_dedup_idx", unique=True)
        create(["agent_id", "scope"], name="fact_scope_idx")
        create(["agent_id", "user_id"], name="fact_user_idx")

    def _keep_one_of_each_hash(self) -> None:
        facts = self.database[Fact.collection]
        key = {"hash": "$hash", "agent_id": "$agent_id"}
        for group in facts.aggregate([{"$group": {"_id": key, "ids": {"$push": "$_id"}}}]):
            facts.delete_many({"_id": {"$in": group["ids"][1:]}})

    # -- loading and saving --------------------------------------------------------------------

    def find(self, kind: type[D], query: Data, *, sort: str = "_id", limit: int = 0) -> list[D]:
        """All that match. One that does not fit its shape makes the whole call raise."""
        found = self.database[kind.collection].find(query).sort(sort, 1).limit(limit)
        return [kind.model_validate(document) for document in found]

    def load(self, kind: type[D], key: ObjectId) -> D:
        """One document, which must be there and fit."""
        [found] = self.find(kind, {"_id": key})
        return found

    def save(self, document: Document) -> None:
        """Write the whole document back as it is in memory, or make it anew."""
        fields = document.model_dump(by_alias=True, exclude={"id", "createdAt"})
        fields["updatedAt"] = self._clock()
        document.id = document.id or ObjectId()
        self.database[document.collection].update_one(
            {"_id": document.id},
            {"$set": fields, "$setOnInsert": {"createdAt": document.createdAt or self._clock()}},
            upsert=True,
        )

    def _insert(self, documents: Sequence[Document]) -> None:
        """Insert in order. At the first that is refused, the rest is lost without a word."""
        if not documents:
            return
        now = self._clock()
        rows = []
        for document in documents:
            document.id = ObjectId()
            rows.append({**document.model_dump(by_alias=True), "createdAt": now, "updatedAt": now})
        try:
            self.database[documents[0].collection].insert_many(rows)
        except BulkWriteError as error:
            self.errors.append(error)

    def _write_context(self, session: Session) -> None:
        """Write the session's whole memory context back, as this process knows it."""
        assert session.memory_context is not None
        self.database[session.collection].update_one(
            {"_id": session.id},
            {
                "$set": {"memory_context": session.memory_context.model_dump()},
                "$currentDate": {"updatedAt": True},
            },
        )

    def _context(self, session: Session) -> MemoryContext:
        if session.memory_context is None:
            session.memory_context = MemoryContext()
        return session.memory_context

    # -- talking -------------------------------------------------------------------------------

    def say(self, session: Session, sender: ObjectId, content: str) -> ObjectId:
        """Store a message and count it, in a session as this process has it in memory."""
        now, role = self._clock(), "assistant" if sender in session.agents else "user"
        message = Message(
            session=[session.id], sender=sender, role=role, content=content, createdAt=now
        )
        self._insert([message])
        context = self._context(session)
        context.last_activity = now
        context.messages_since_memory_formation += 1
        tokens = int(len(content) * self.WEIGHTS[role] / 4.5)
        context.weighted_tokens_since_memory_formation += tokens
        self._write_context(session)
        assert message.id is not None
        return message.id

    # -- forming -------------------------------------------------------------------------------

    def maybe_form(self, session_id: ObjectId) -> bool:
        """After an agent's answer: form if enough was said since the cursor."""
        with self._swallowing():
            session = self.load(Session, session_id)
            waiting = self._since_cursor(session, self._window(session))
            if session.extras and session.extras.incognito:
                return False
            enough = len(waiting) >= self.WINDOW or self._tokens(waiting) >= self.DUE_TOKENS
            return len(waiting) >= self.LEAST and enough and self._form(session)
        return False

    def form(self, session_id: ObjectId) -> bool:
        """Form whatever is after the cursor, if that is not next to nothing."""
        with self._swallowing():
            return self._form(self.load(Session, session_id))
        return False

    def cold_run(self) -> list[ObjectId]:
        """Form the active sessions that went quiet; the ids of those that were formed."""
        now = self._clock()
        quiet = now - self.QUIET
        recent = {"$gte": now - self.LOOK_BACK, "$lt": quiet}
        base = {"updatedAt": recent, "status": "active", "extras.incognito": {"$ne": True}}
        counters = {"messages_since": self.LEAST, "weighted_tokens_since": self.DUE_TOKENS}
        enough = [
            {f"memory_context.{name}_memory_formation": {"$gte": least}}
            for name, least in counters.items()
        ]
        formed: list[ObjectId] = []
        with self._swallowing():
            counted = self.find(
                Session,
                {**base, "memory_context.last_activity": {"$lt": quiet}, "$or": enough},
                limit=50,
            )
            talked = self.database[Message.collection].aggregate(
                [
                    {"$match": {"role": {"$ne": "eden"}, "createdAt": recent}},
                    {"$unwind": "$session"},
                    {"$group": {"_id": "$session", "count": {"$sum": 1}}},
                    {"$match": {"count": {"$gte": self.LEAST}}},
                ]
            )
            bare = {**base, "_id": {"$in": [row["_id"] for row in talked]}, "memory_context": None}
            # All are loaded before the first is formed, and each is written back as it was then.
            for session in (*counted, *self.find(Session, bare)):
                assert session.id is not None
                with self._swallowing():  # an error ends one session; its cursor has moved
                    if session.agents and self._form(session):
                        formed.append(session.id)
        return formed

    def _window(self, session: Session) -> list[Message]:
        """The last messages, 25 to 50 of them, and the pinned ones before; odd ones are skipped."""
        messages = self.database[Message.collection]
        total = messages.count_documents({"session": session.id})
        start = self.WINDOW * max(0, -(-(total - 2 * self.WINDOW) // self.WINDOW))
        order = [("createdAt", 1), ("_id", 1)]
        window = list(messages.find({"session": session.id}).sort(order).skip(start))
        shown = {row["_id"] for row in window}
        pinned = messages.find({"session": session.id, "pinned": True}).sort("_id", 1)
        valid = []
        for row in [*(row for row in pinned if row["_id"] not in shown), *window]:
            with self._swallowing():
                valid.append(Message.model_validate(row))
        return valid

    def _since_cursor(self, session: Session, messages: list[Message]) -> list[Message]:
        """What comes after the last formed message; all, if that is not among them."""
        cursor = self._context(session).last_memory_message_id
        ids = [message.id for message in messages]
        return messages[ids.index(cursor) + 1 :] if cursor in ids else messages

    def _tokens(self, messages: Iterable[Message]) -> int:
        weighted = sum(
            len(message.content.strip()) * self.WEIGHTS.get(message.role, 0.5)
            for message in self._readable(messages)
        )
        return int(weighted / 4.5)

    def _readable(self, messages: Iterable[Message]) -> list[Message]:
        return [each for each in messages if each.role != "system" and not each.trigger]

    def _form(self, session: Session) -> bool:
        messages = self._window(session)
        waiting = self._since_cursor(session, messages)
        if not messages or (len(waiting) < self.LEAST and self._tokens(waiting) < self.DUE_TOKENS):
            return False
        context = self._context(session)
        context.last_memory_message_id = messages[-1].id
        context.last_activity = self._clock()
        context.messages_since_memory_formation = 0
        context.weighted_tokens_since_memory_formation = 0
        self._write_context(session)
        agent_id = session.agents[0]
        scopes = self._scopes(session, agent_id)
        user_id = self._user_of(session, waiting)
        readable = self._readable(waiting)
        self.read.extend(message.content for message in readable)
        learned = self._model(readable)
        sources = [message.id for message in waiting if message.id]
        self._insert(
            [
                Fact(
                    content=text,
                    hash=hashlib.md5(text.encode()).hexdigest(),
                    embedding=[each / 118 for each in fake_vector(text, 1536)],  # of about 1
                    scope=scope,
                    agent_id=agent_id,
                    user_id=user_id if scope == "user" else None,
                    formed_at=self._clock(),
                    session_id=session.id,
                    source_message_ids=sources,
                )
                for scope, text in learned.facts
                if scope in scopes
            ]
        )
        for scope in ("agent", "user", "session"):
            if scope in scopes:
                texts = learned.reflections.get(scope, ())
                self._reflect(scope, agent_id, user_id, session, texts, sources)
                self._consolidate(scope, agent_id, user_id, session)
        self._build_context(session, agent_id, user_id)
        return True

    def _scopes(self, session: Session, agent_id: ObjectId) -> list[str]:
        """The session always; the agent and the user where their switches are on. An agent that
        cannot be loaded has no switches."""
        scopes = ["session"]
        try:
            agent = self.load(Agent, agent_id)
        except ValueError:
            return scopes
        if agent.user_memory_enabled and len(session.users) < 2:
            scopes.append("user")
        if agent.agent_memory_enabled:
            scopes.append("agent")
        return scopes

    def _user_of(self, session: Session, messages: Sequence[Message]) -> ObjectId:
        """Whose memory it is: the account that wrote last, never the person behind it."""
        for message in reversed(messages):
            if message.role == "user" and message.sender:
                return message.sender
        return session.users[0] if session.users else session.owner

    def _key(
        self, scope: str, agent_id: ObjectId, user_id: ObjectId | None, session: Session
    ) -> dict[str, Any]:
        owner = {"user": {"user_id": user_id}, "session": {"session_id": session.id}}
        return {"scope": scope, "agent_id": agent_id, **owner.get(scope, {})}

    def _reflect(
        self,
        scope: str,
        agent_id: ObjectId,
        user_id: ObjectId,
        session: Session,
        texts: Sequence[str],
        sources: Ids,
    ) -> None:
        if not texts:
            return
        key = self._key(scope, agent_id, user_id, session)
        reflections = [
            Reflection.model_validate(
                {
                    **key,
                    "content": text,
                    "formed_at": self._clock(),
                    "session_id": session.id,
                    "source_message_ids": sources,
                }
            )
            for text in texts
        ]
        self._insert(reflections)
        if not self.find(Consolidated, key):
            limit = {"word_limit": self.WORD_LIMITS[scope]}
            self.save(Consolidated.model_validate({**key, **limit}))
        self.database[Consolidated.collection].update_one(
            key, {"$push": {"unabsorbed_ids": {"$each": [each.id for each in reflections]}}}
        )

    def _consolidate(
        self, scope: str, agent_id: ObjectId, user_id: ObjectId, session: Session
    ) -> None:
        """Write the text anew from what waits, if that is enough, under a line of its own."""
        found = self.find(Consolidated, self._key(scope, agent_id, user_id, session))
        if not found or len(found[0].unabsorbed_ids) < self.THRESHOLDS[scope]:
            return
        [text] = found
        waiting = self.find(Reflection, {"_id": {"$in": text.unabsorbed_ids[:100]}})
        now, ids = self._clock(), [each.id for each in waiting]
        lines = ["VERSION: 1", text.consolidated_content, *(each.content for each in waiting)]
        self.database[text.collection].update_one(
            {"_id": text.id},
            {
                "$set": {"consolidated_content": "\n".join(lines), "last_consolidated_at": now},
                "$pull": {"unabsorbed_ids": {"$in": text.unabsorbed_ids}},
                "$currentDate": {"updatedAt": True},
            },
        )
        self.database[Reflection.collection].update_many(
            {"_id": {"$in": ids}},
            {"$set": {"absorbed": True, "absorbed_at": now, "consolidated_into": text.id}},
        )

    # -- serving -------------------------------------------------------------------------------

    def context(self, session_id: ObjectId, user_id: ObjectId | None) -> str:
        """What goes into the prompt as this user talks: the cache while it is fresh, whoever it
        was built for."""
        session = self.load(Session, session_id)
        cache = self._context(session)
        if cache.cached_memory_context and cache.memory_context_timestamp:
            built = cache.memory_context_timestamp
            built = built if built.tzinfo else built.replace(tzinfo=UTC)
            if self._clock() - built < self.CACHED_FOR:
                return cache.cached_memory_context
        return self._build_context(session, session.agents[0], user_id)

    def _build_context(self, session: Session, agent_id: ObjectId, user_id: ObjectId | None) -> str:
        parts = []
        scopes = self._scopes(session, agent_id)
        user_id = user_id if len(session.users) < 2 else None
        for scope in ("agent", "user", "session"):
            if scope in scopes and (scope != "user" or user_id):
                with self._swallowing():  # a scope that cannot be loaded is left out
                    key = self._key(scope, agent_id, user_id, session)
                    parts += [each.consolidated_content for each in self.find(Consolidated, key)]
                    waiting = self.find(
                        Reflection, {**key, "absorbed": False}, sort="createdAt", limit=20
                    )
                    parts += [each.content for each in waiting]
        with self._swallowing():  # one fact that cannot be loaded hides all of them
            parts += [fact.content for fact in self.recent_facts(agent_id, user_id, scopes)]
        text = "\n".join(part for part in parts if part)
        context = self._context(session)
        context.cached_memory_context = text
        context.memory_context_timestamp = self._clock()
        self._write_context(session)
        return text

    def recent_facts(
        self, agent_id: ObjectId, user_id: ObjectId | None, scopes: Sequence[str]
    ) -> list[Fact]:
        """The facts of a week that an agent and one account see."""
        owners: list[Data] = []
        if "agent" in scopes:
            owners.append({"scope": "agent"})
        if "user" in scopes and user_id:
            owners.append({"scope": "user", "user_id": user_id})
        if not owners:
            return []
        since = {"$gte": self._clock() - timedelta(days=7)}
        return self.find(Fact, {"agent_id": agent_id, "formed_at": since, "$or": owners}, limit=40)

    # -- everything ----------------------------------------------------------------------------

    def load_everything(self) -> int:
        """Load every document that a query of the platform can meet; how many there were.

        Groups and shards are scopes that it does not know and never asks for.
        """
        known = {"scope": {"$in": ["agent", "user", "session"]}}
        queries: list[tuple[type[Document], Data]] = [
            (Session, {}),
            (Message, {}),
            (User, {"type": {"$ne": "agent"}}),
            (Agent, {"type": "agent"}),
            (Fact, known),
            (Reflection, known),
            (Consolidated, known),
        ]
        return sum(len(self.find(kind, query)) for kind, query in queries)
