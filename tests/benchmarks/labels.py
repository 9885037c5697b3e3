"""Labeled facts and queries, and a store made of them.

Our own set is in ``labeled/``, another in six languages in ``languages/``, and a small set whose
facts have source messages in ``sources/``. ``facts.jsonl``: the scope of each fact, its text,
``was`` (the text before a correction), ``session`` and ``sources`` (a conversation of
``extraction/`` and its messages, counted from 1). ``queries.jsonl``: the form of ``edenmem eval``,
with labels of facts in place of ids. In ``sources/`` a query is "lost" if the sources of its answer
have a word of the query that the fact does not have, else "kept".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from edenmem.embed.protocol import Embedder
from edenmem.models.changes import Actor, AddFact, Change, ChangeSet, ChangeStatus, WritePolicy
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import derived_id
from edenmem.models.indexes import IndexWish
from edenmem.models.memory import Fact, Policy, content_hash
from edenmem.models.scope import Scope, ScopeKind
from edenmem.store.protocol.store import Store, batched

FOLDER = Path(__file__).parent / "labeled"
LANGUAGES = Path(__file__).parent / "languages"
SOURCES = Path(__file__).parent / "sources"
TOWN = Path(__file__).parent / "town"
LONG = Path(__file__).parent / "long"
CONVERSATIONS = Path(__file__).parent / "extraction" / "conversations.jsonl"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_ACTOR = Actor(name="benchmark", host="localhost", command="benchmark")
_BATCH = 100


class LabeledFact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fact as the file has it; ``id`` is a label by which queries name it."""

    id: str
    agent: str
    scope: ScopeKind
    content: str
    user: str | None = None
    group: str | None = None
    shard: str | None = None
    was: str | None = None
    session: str | None = None
    sources: tuple[int, ...] = ()
    said_at: datetime | None = None

    @property
    def home(self) -> Scope:
        """The scope that it is in."""
        return Scope.from_fields(
            self.scope,
            derived_id("agent", self.agent),
            user_id=derived_id("user", self.user) if self.user else None,
            group_id=self.group,
            shard=self.shard,
        )

    @property
    def fact_id(self) -> str:
        """The id that it has in a store."""
        # The IDs order equal scores: another word would change the figures in QUALITY.md.
        return derived_id("labelled", self.id)


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query as the file has it, with labels of facts."""

    query: str
    agent: str
    kind: str
    relevant: tuple[str, ...]
    user: str | None = None
    group: str | None = None

    def sees(self, fact: LabeledFact) -> bool:
        """Whether the one who asks may see ``fact``, by the rules of the host."""
        if fact.agent != self.agent:
            return False
        match fact.scope:
            case ScopeKind.USER:
                return fact.user == self.user
            case ScopeKind.GROUP:
                return fact.group == self.group
            case _:
                return fact.scope in (ScopeKind.AGENT, ScopeKind.SHARD)


@dataclass(frozen=True)
class Labeled:
    """Facts, and queries about them."""

    facts: Sequence[LabeledFact]
    queries: Sequence[Query]

    def lines(self) -> list[str]:
        """The queries as ``edenmem eval`` reads them."""
        ids = {fact.id: fact.fact_id for fact in self.facts}
        rows: list[dict[str, Any]] = []
        for query in self.queries:
            row = msgspec.to_builtins(query)
            row["relevant"] = [ids[label] for label in query.relevant]
            rows.append(row)
        return [json.dumps(row, ensure_ascii=False) for row in rows]


def own() -> Labeled:
    """Our own set: an invented town, two agents, six people, a choir, a route and a garden."""
    return Labeled(
        facts=_decoded("facts.jsonl", LabeledFact), queries=_decoded("queries.jsonl", Query)
    )


def languages() -> Labeled:
    """Six people, each with a memory in a language of their own; some queries are in another."""
    return Labeled(
        facts=_decoded("facts.jsonl", LabeledFact, LANGUAGES),
        queries=_decoded("queries.jsonl", Query, LANGUAGES),
    )


def with_sources() -> Labeled:
    """Facts of eleven conversations, known to all, with the messages they were formed from."""
    return Labeled(
        facts=_decoded("facts.jsonl", LabeledFact, SOURCES),
        queries=_decoded("queries.jsonl", Query, SOURCES),
    )


class _Turn(msgspec.Struct, frozen=True):
    """A message of a long conversation."""

    session: str
    number: int
    at: datetime
    speaker: str
    text: str


class _LongQuery(msgspec.Struct, frozen=True):
    """A question about a long conversation, and the facts and the turns that answer it."""

    query: str
    user: str
    kind: str
    relevant: tuple[str, ...]
    turns: tuple[int, ...]
    asked_at: datetime | None = None


def town() -> Labeled:
    """Questions about `own`, half of which have no answer: "near" ones sound as if they had."""
    return Labeled(facts=own().facts, queries=_decoded("queries.jsonl", Query, TOWN))


def long(unit: Literal["facts", "turns"] = "facts") -> Labeled:
    """Three conversations of 200 turns over months, each the memory of a user.

    Facts are sentences about the conversation, or its turns with speaker and date.
    """
    asked = _decoded("queries.jsonl", _LongQuery, LONG)
    facts: list[LabeledFact] = _decoded("facts.jsonl", LabeledFact, LONG)
    if unit == "turns":
        facts = [
            LabeledFact(
                id=f"{turn.session}/{turn.number}",
                agent="long",
                scope=ScopeKind.USER,
                user=turn.session,
                content=f"{turn.speaker}, {turn.at:%d %B %Y}: {turn.text}",
                said_at=turn.at,
            )
            for turn in _decoded("turns.jsonl", _Turn, LONG)
        ]
    queries = [
        Query(
            query=each.query,
            agent="long",
            user=each.user,
            kind=each.kind,
            relevant=each.relevant
            if unit == "facts"
            else tuple(f"{each.user}/{number}" for number in each.turns),
        )
        for each in asked
    ]
    return Labeled(facts=facts, queries=queries)


def _decoded(name: str, kind: type[Any], folder: Path = FOLDER) -> list[Any]:
    lines = (folder / name).read_text("utf-8").splitlines()
    return [msgspec.json.decode(line, type=kind) for line in lines]


async def fill(store: Store, facts: Sequence[LabeledFact], embedder: Embedder | None) -> None:
    """Put agents, users, shards and facts into a new store, with vectors if there is a model."""
    store.database.initialize()
    for name in dict.fromkeys(fact.agent for fact in facts):
        store.host.add_agent(Agent(id=derived_id("agent", name), username=name, created_at=NOW))
    for name in dict.fromkeys(fact.user for fact in facts if fact.user):
        store.host.add_user(User(id=derived_id("user", name), username=name, created_at=NOW))
    sessions = {fact.session for fact in facts if fact.session}
    if sessions:
        _fill_sessions(store, sessions)
    homes = dict.fromkeys(fact.home for fact in facts if fact.scope is ScopeKind.SHARD)
    _apply(store, [_policy(home) for home in homes])
    for batch in batched(enumerate(facts), _BATCH):
        vectors: Sequence[bytes | None] = [None] * len(batch)
        if embedder is not None:
            texts = [fact.content for _, fact in batch]
            vectors = (await embedder.embed(texts, role="passage")).vectors
        model = embedder.model if embedder else None
        _apply(
            store,
            [
                AddFact(fact=_stored(fact, place, vector, model))
                for (place, fact), vector in zip(batch, vectors, strict=True)
            ],
        )


def _fill_sessions(store: Store, names: Set[str]) -> None:
    """Store the conversations with these names, and create the index of their words."""
    said: dict[str, list[str]] = {}
    for line in CONVERSATIONS.read_text("utf-8").splitlines():
        conversation = json.loads(line)
        said[conversation["session"]] = [each["content"] for each in conversation["messages"]]
    for turn in _decoded("turns.jsonl", _Turn, LONG):
        said.setdefault(turn.session, []).append(turn.text)
    for name in sorted(names):
        session = Session(
            id=derived_id("session", name),
            owner=derived_id("user", name),
            agents=(derived_id("agent", name),),
            created_at=NOW,
            last_activity=NOW,
        )
        store.host.put_session(session)
        messages = [
            Message(
                id=_message_id(name, number),
                session_id=session.id,
                role="user",
                content=content,
                created_at=NOW + timedelta(seconds=number),
            )
            for number, content in enumerate(said[name], 1)
        ]
        store.host.add_messages(session.id, messages)
    store.indexes.create_index("facts_source", IndexWish(analyzer="lucene.english"))


def _message_id(session: str | None, number: int) -> str:
    return derived_id("message", f"{session} {number}")


def _policy(home: Scope) -> WritePolicy:
    policy = Policy(
        id=derived_id("policy", home.key),
        scope=home.kind,
        agent_id=home.agent_id,
        shard=home.shard_name,
        version=1,
    )
    return WritePolicy(policy=policy, expected_version=0, at=NOW)


def _stored(labeled: LabeledFact, place: int, vector: bytes | None, model: str | None) -> Fact:
    home = labeled.home
    return Fact(
        id=labeled.fact_id,
        scope=home.kind,
        agent_id=home.agent_id,
        user_id=home.user_id,
        group_id=home.group_id,
        shard=home.shard_name,
        source_message_ids=tuple(_message_id(labeled.session, n) for n in labeled.sources),
        content=labeled.content,
        hash=content_hash(labeled.content),
        formed_at=NOW - timedelta(hours=5 * (place % 300) + 1),
        said_at=labeled.said_at,
        updated_at=NOW - timedelta(minutes=place % 60) if labeled.was else None,
        version=2 if labeled.was else 1,
        previous_content=labeled.was,
        embedding_model=model if vector else None,
        embedding=vector,
    )


def _apply(store: Store, changes: Iterable[Change]) -> None:
    results = store.changes.apply(ChangeSet(actor=_ACTOR, at=NOW, changes=tuple(changes)))
    refused = [result for result in results if result.status is not ChangeStatus.APPLIED]
    assert not refused, refused
