"""Sessions that went quiet, and providers that answer at once and remember nothing.

Each session has fifty messages of one person with one agent; a conversation yields four facts and
two reflections, and every fourth session of a pair makes a text due.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import numpy as np

from edenmem.embed.protocol import Embedding, Role
from edenmem.engine.runtime.answers import (
    DedupAnswer,
    ExtractedFact,
    FactsAnswer,
    ReflectionItem,
    ReflectionsAnswer,
    VerifyAnswer,
)
from edenmem.llm.protocol import AnswerT, LLMAnswer, LLMRequest
from edenmem.models.formation import CallUsage
from edenmem.models.host import Message, Session, User
from edenmem.models.ids import derived_id
from edenmem.store.protocol.store import Store
from tests.benchmarks import data
from tests.benchmarks.data import unit
from tests.benchmarks.vocabulary import sentence

MESSAGES = 50
FACTS = 4
REFLECTIONS = 2
DIMENSIONS = 384
MODEL = "synthetic-384"

_VECTORS = 4096
_SENTENCES = 2000


def make(store: Store, count: int) -> None:
    """Put agents, people and ``count`` sessions with their messages into an empty store."""
    for number in range(data.AGENTS):
        store.host.add_agent(data.agent(number))
    for number in range(data.USERS):
        store.host.add_user(User(id=data.user_id(number), username=f"user{number}"))
    for number in range(count):
        store.host.put_session(session(number))
        store.host.add_messages(session(number).id, list(messages(number)))


def session(number: int) -> Session:
    """The session of this number; the higher, the later."""
    agent, user = number % data.AGENTS, number // data.AGENTS % data.USERS
    return Session(
        id=derived_id("quiet", str(number)),
        name=str(number),
        agents=(data.agent_id(agent),),
        users=(data.user_id(user),),
        owner=data.user_id(user),
        created_at=_began(number),
        last_activity=_began(number),
    )


def messages(number: int) -> Iterator[Message]:
    """Its messages, one a second."""
    of = session(number)
    for place in range(MESSAGES):
        yield Message(
            id=derived_id(of.id, str(place)),
            session_id=of.id,
            role="assistant" if place % 2 else "user",
            sender=of.agents[0] if place % 2 else of.users[0],
            content=_sentence(number * MESSAGES + place),
            created_at=_began(number) + timedelta(seconds=place),
        )


def _began(number: int) -> datetime:
    return data.NOW - timedelta(days=60) + timedelta(minutes=number)


def _sentence(number: int) -> str:
    """One of some sentences with a number of its own, so that making them takes no time."""
    return f"{_sentences()[number % _SENTENCES]}, item {number}."


@cache
def _sentences() -> list[str]:
    return [sentence(number).rpartition(", item ")[0] for number in range(_SENTENCES)]


def facts(number: int) -> list[str]:
    """What the model finds in the session of this number: what the person said first."""
    return [_sentence(number * MESSAGES + 2 * place) for place in range(FACTS)]


def reflections(number: int) -> list[str]:
    """What it learns from it: about the agent, and about the user."""
    return [_sentence(number * MESSAGES + 2 * (FACTS + place)) for place in range(REFLECTIONS)]


def text() -> str:
    """What it makes of reflections."""
    return ". ".join(_sentences()[:5])


@cache
def _vectors() -> list[bytes]:
    chance = np.random.default_rng(20260318)
    return [row.tobytes() for row in unit(chance.standard_normal((_VECTORS, DIMENSIONS)))]


def vector(content: str) -> bytes:
    """The vector of a text: one of some, so that a few facts have near ones."""
    return _vectors()[zlib.crc32(content.encode()) % _VECTORS]


def warm_up() -> None:
    """Make what is made once, so that it falls on nobody's time."""
    _sentences()
    _vectors()


class InstantLLM:
    """A language model that takes no time."""

    description = "scripted answers"
    is_scripted = True

    async def ask(self, request: LLMRequest[AnswerT]) -> LLMAnswer[AnswerT]:
        """The answer for the session that the request's key names."""
        usage = CallUsage(task=request.task, model=request.model, input_tokens=1, output_tokens=1)
        value: Any = self._answer(request)
        return LLMAnswer(value=value, usage=(usage,))

    def _answer(self, request: LLMRequest[Any]) -> object:
        match request.task:
            case "facts":
                number = int(request.key.partition("/")[0])
                return FactsAnswer(
                    facts=[
                        ExtractedFact(
                            content=content,
                            scope="user" if place % 2 else "agent",
                            shard=None,
                            private=False,
                            sources=[2 * place + 1],
                            quote=content,
                        )
                        for place, content in enumerate(facts(number))
                    ]
                )
            case "reflections":
                number = int(request.key.partition("/")[0])
                items = [
                    ReflectionItem(
                        sources=[2 * (FACTS + place) + 1], content=content, private=False
                    )
                    for place, content in enumerate(reflections(number))
                ]
                return ReflectionsAnswer(
                    agent=items[:1], shards=[], group=[], user=items[1:], session=[]
                )
            case "dedup":
                return DedupAnswer(decisions=[])  # what is left out is added
            case "verify":
                return VerifyAnswer(items=[])  # what is left out stays in doubt
            case _:
                return request.answer(text=text())

    async def close(self) -> None:
        """Nothing to let go of."""


class InstantEmbedder:
    """An embedding model that takes no time."""

    model = MODEL
    dimensions = DIMENSIONS

    async def embed(self, texts: Sequence[str], *, role: Role = "passage") -> Embedding:
        """A vector for each text."""
        return Embedding(vectors=tuple(map(vector, texts)))

    async def close(self) -> None:
        """Nothing to let go of."""
