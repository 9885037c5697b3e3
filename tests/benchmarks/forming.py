"""The engine's own time in one formation: the providers answer at once."""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from edenmem.engine.runtime.answers import (
    DedupAnswer,
    ExtractedFact,
    FactsAnswer,
    ReflectionItem,
    ReflectionsAnswer,
    SingleAnswer,
)
from edenmem.engine.service import MemoryService
from edenmem.llm.protocol import LLMRequest
from edenmem.models.host import Message, Session
from edenmem.models.ids import derived_id, new_id
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from edenmem.settings.schema import FormationSettings, Settings
from edenmem.store.sqlite import SqliteStore
from tests.benchmarks import data, plain
from tests.benchmarks.adding import ReadyVectors
from tests.benchmarks.data import DIMENSIONS, unit
from tests.benchmarks.measure import Bench, Row, Target, interleaved, median
from tests.benchmarks.vocabulary import sentence
from tests.benchmarks.world import plain_row
from tests.support.llm import FakeLLM

_MESSAGES = 45
_FACTS = 8
_REFLECTIONS = 6
_PLAIN = "same rows by sqlite3, three commits"
_OWN_TIME = Target("figure", 30)
#: A message of a transcript: its number and its text.
_MESSAGE = re.compile(r"^\[(\d+)\] \d\d:\d\d [^:]+: (.+)$", re.MULTILINE)


class _Way(NamedTuple):
    """How is formed: the setting, whether the new facts have neighbors, the most LLM calls."""

    extraction: Literal["two-step", "single"]
    neighbors: bool
    most_calls: int

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.extraction}, {'with' if self.neighbors else 'without'} near facts"


_WAYS = (_Way("two-step", True, 3), _Way("two-step", False, 2), _Way("single", False, 1))


def measure(bench: Bench) -> list[Row]:
    """A conversation of 45 messages that yields 8 facts and 6 reflections; consolidations, which
    are the slow model's time, are left out."""
    count = bench.times(40)
    store = SqliteStore(bench.world.edenmem)
    hand = plain.connect(bench.world.plain)
    plain_facts = _plain_rows(count + 1)
    outcomes: list[str] = []
    calls = dict.fromkeys(_WAYS, 0)
    with asyncio.Runner() as runner:
        services = {way: _service(store, way, _FACTS * (count + 1)) for way in _WAYS}
        sessions = {way: _sessions(store, count + 1, way) for way in _WAYS}

        def form(way: _Way) -> None:
            service, llm = services[way]
            before = len(llm.requests)
            work = service.form_memories(next(sessions[way]), consolidate=False)
            reports = runner.run(work)
            outcomes.extend("rejected" if each.rejected else each.outcome for each in reports)
            calls[way] = max(calls[way], len(llm.requests) - before)

        runs: dict[str, Callable[[], object]] = {
            way.name: functools.partial(form, way) for way in _WAYS
        }
        taken = interleaved(runs | {_PLAIN: lambda: _by_hand(hand, next(plain_facts))}, count)
    store.database.close()
    hand.close()
    agrees = set(outcomes) == {"applied"} and len(outcomes) == len(_WAYS) * (count + 1)
    subject = f"one formation into {bench.size:,} facts"
    times = [
        Row(
            f"{subject}, engine's own time, {way.name}",
            "ms",
            median(taken[way.name]),
            _PLAIN,
            median(taken[_PLAIN]),
            _OWN_TIME,
            agrees,
        )
        for way in _WAYS
    ]
    return times + [
        Row(
            f"LLM calls for it, {way.name}",
            "calls",
            calls[way],
            target=Target("figure", way.most_calls),
            agrees=agrees,
        )
        for way in _WAYS
    ]


def _service(store: SqliteStore, way: _Way, most: int) -> tuple[MemoryService, FakeLLM]:
    llm = FakeLLM(
        {
            "facts": lambda request: FactsAnswer(facts=_facts(request)),
            "dedup": DedupAnswer(decisions=[]),  # what is left out is added
            "reflections": _reflections,
            "single": lambda request: SingleAnswer(
                facts=_facts(request), reflections=_reflections(request)
            ),
        }
    )
    settings = Settings(formation=FormationSettings(extraction=way.extraction))
    vectors = [data.vector(1_000_000 + place) for place in range(most)]
    if not way.neighbors:  # directions that nothing has: at right angles to all others
        chance = np.random.default_rng([20260317, _WAYS.index(way)])
        vectors = [row.tobytes() for row in unit(chance.standard_normal((most, DIMENSIONS)))]
    service = MemoryService(
        store,
        settings,
        llm=llm,
        embedder=ReadyVectors(vectors),
        actor=data.ACTOR,
        clock=data.clock,
    )
    return service, llm


def _said(request: LLMRequest[Any]) -> list[tuple[int, str]]:
    """What the person said, with the numbers of the messages: every other one from the first on."""
    return [(int(number), text) for number, text in _MESSAGE.findall(request.user)][::2]


def _facts(request: LLMRequest[Any]) -> list[ExtractedFact]:
    """Half about the user, half for the agent."""
    return [
        ExtractedFact(
            content=text,
            scope="user" if place % 2 else "agent",
            shard=None,
            private=False,
            sources=[number],
            quote=text,
        )
        for place, (number, text) in enumerate(_said(request)[:_FACTS])
    ]


def _reflections(request: LLMRequest[Any]) -> ReflectionsAnswer:
    """Two each for agent, user and session."""
    said = _said(request)[_FACTS : _FACTS + _REFLECTIONS]
    items = [ReflectionItem(content=text, private=False, sources=[number]) for number, text in said]
    return ReflectionsAnswer(
        agent=items[:2], shards=[], group=[], user=items[2:4], session=items[4:]
    )


def _plain_rows(times: int) -> Iterator[list[plain.Row]]:
    """As many facts as rows of the baseline, for each time."""
    numbers = itertools.count(30_000_000)
    return iter(
        [
            [plain_row(_fact(sentence(next(numbers)), place)) for place in range(_FACTS)]
            for _ in range(times)
        ]
    )


def _fact(text: str, place: int) -> Fact:
    scope = Scope.user(data.agent_id(0), data.user_id(0))
    return Fact(
        id=new_id(),
        scope=scope.kind,
        agent_id=scope.agent_id,
        user_id=scope.user_id,
        content=text,
        hash=content_hash(text),
        formed_at=data.NOW,
        embedding=data.vector(1_000_000 + place),
        embedding_model=data.MODEL,
    )


def _by_hand(connection: sqlite3.Connection, rows: Sequence[plain.Row]) -> None:
    """What the engine must write at the least: a claim, the outcome, and the outcome's effect."""
    connection.execute(
        "CREATE TABLE IF NOT EXISTS claims (id TEXT PRIMARY KEY, messages TEXT, outcome TEXT)"
    )
    claim = rows[0][0]
    messages = " ".join(derived_id(claim, str(place)) for place in range(_MESSAGES))
    connection.execute("INSERT INTO claims VALUES (?, ?, NULL)", (claim, messages))
    outcome = msgspec.json.encode(rows).decode()
    connection.execute("UPDATE claims SET outcome = ? WHERE id = ?", (outcome, claim))
    connection.execute("BEGIN IMMEDIATE")
    plain.insert(connection, rows)
    connection.executemany(
        "INSERT INTO reflections (scope, content, formed_at) VALUES (?, ?, 0)",
        [(row[1], row[2]) for row in rows[:_REFLECTIONS]],
    )
    connection.execute("UPDATE claims SET outcome = NULL WHERE id = ?", (claim,))
    connection.execute("COMMIT")


def _sessions(store: SqliteStore, count: int, way: _Way) -> Iterator[str]:
    """New sessions of 45 messages each, in the store already; no message is in two of them."""
    made = []
    first = 40_000_000 + _WAYS.index(way) * count * _MESSAGES
    for number in range(count):
        agent, user = number % data.AGENTS, number % data.USERS
        session = Session(
            id=derived_id("formed", way.name, str(number)),
            agents=(data.agent_id(agent),),
            users=(data.user_id(user),),
            owner=data.user_id(user),
            created_at=data.NOW,
            last_activity=data.NOW,
        )
        store.host.put_session(session)
        store.host.add_messages(
            session.id,
            [_message(session, first + number * _MESSAGES, place) for place in range(_MESSAGES)],
        )
        made.append(session.id)
    return iter(made)


def _message(session: Session, first: int, place: int) -> Message:
    return Message(
        id=derived_id(session.id, str(place)),
        session_id=session.id,
        role="assistant" if place % 2 else "user",
        sender=session.agents[0] if place % 2 else session.users[0],
        content=sentence(first + place),
        created_at=data.NOW - timedelta(seconds=_MESSAGES - place),
    )
