"""The data of the benchmarks: agents, people, facts and their vectors, all from one seed.

Vectors are made in blocks, each from its own seed, so that a million facts need no memory. They
lie as those of sentences do: a direction common to all, a topic, a matter within it, and noise;
two facts of one topic have a cosine of about 0.55, of one matter 0.75, others 0.25.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edenmem.models.changes import Actor
from edenmem.models.host import Agent
from edenmem.models.ids import derived_id
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope, ScopeKind
from tests.benchmarks.vocabulary import question, sentence

Floats = npt.NDArray[np.float32]

#: ``BENCH_DIMENSIONS=384`` measures with shorter vectors.
DIMENSIONS = int(os.environ.get("BENCH_DIMENSIONS", "1536"))
MODEL = f"synthetic-{DIMENSIONS}"
AGENTS = 10
USERS = 10
NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
ACTOR = Actor(name="benchmark", host="localhost", command="benchmark")

_BLOCK = 1000
_TOPICS, _MATTERS = 64, 1024
_COMMON, _TOPIC, _MATTER, _NOISE = 0.5, 0.55, 0.45, 0.5


def clock() -> datetime:
    """The time at which the benchmarks happen."""
    return NOW


def agent(number: int) -> Agent:
    """An agent with both kinds of memory on."""
    return Agent(
        id=agent_id(number),
        username=f"agent{number}",
        owner=user_id(0),
        user_memory_enabled=True,
        agent_memory_enabled=True,
    )


def agent_id(agent: int) -> str:
    """The id of an agent, by number."""
    return derived_id("agent", str(agent))


def user_id(user: int) -> str:
    """The id of a user, by number."""
    return derived_id("user", str(user))


def session_id(agent: int, user: int) -> str:
    """The id of the session of an agent with a user."""
    return derived_id("session", str(agent), str(user))


def scope_of(index: int) -> Scope:
    """Whose a fact is: the agents take turns, and every fifth of an agent is about a user."""
    place, agent = divmod(index, AGENTS)
    if place % 5:
        return Scope.agent(agent_id(agent))
    return Scope.user(agent_id(agent), user_id(place // 5 % USERS))


def seen_by(agent: int, user: int) -> tuple[Scope, ...]:
    """The scopes that a search for a user of an agent reads: four fifths of the agent's facts."""
    return Scope.agent(agent_id(agent)), Scope.user(agent_id(agent), user_id(user))


# -- vectors -------------------------------------------------------------------------------------


def unit(rows: npt.NDArray[Any]) -> Floats:
    """Rows scaled to length 1."""
    scaled: Floats = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return scaled


@lru_cache(1)
def _centers() -> tuple[Floats, Floats, Floats]:
    chance = np.random.default_rng(20260314)
    return (
        unit(chance.standard_normal((1, DIMENSIONS))),
        unit(chance.standard_normal((_TOPICS, DIMENSIONS))),
        unit(chance.standard_normal((_MATTERS, DIMENSIONS))),
    )


@lru_cache(2)
def _block(number: int) -> Floats:
    common, topics, matters = _centers()
    chance = np.random.default_rng([20260315, number])
    matter = chance.integers(_MATTERS, size=_BLOCK)
    noise = unit(chance.standard_normal((_BLOCK, DIMENSIONS), dtype=np.float32))
    topic = topics[matter % _TOPICS]
    return unit(_COMMON * common + _TOPIC * topic + _MATTER * matters[matter] + _NOISE * noise)


def vector(index: int) -> bytes:
    """The vector of the fact of this number."""
    number, place = divmod(index, _BLOCK)
    raw: bytes = _block(number)[place].tobytes()
    return raw


# -- facts and questions ---------------------------------------------------------------------------


def fact(index: int, *, with_vector: bool = True) -> Fact:
    """The fact of this number; formed within the last sixty days, the higher the later."""
    scope, content = scope_of(index), sentence(index)
    minutes = 60 * 24 * 60 / (1 + index % 997)
    return Fact(
        id=derived_id("fact", str(index)),
        scope=scope.kind,
        agent_id=scope.agent_id,
        user_id=scope.user_id,
        session_id=session_id(index % AGENTS, 0) if scope.kind is ScopeKind.USER else None,
        content=content,
        hash=content_hash(content),
        formed_at=NOW - timedelta(minutes=round(minutes)),
        embedding_model=MODEL if with_vector else None,
        embedding=vector(index) if with_vector else None,
    )


def facts(count: int, *, start: int = 0, with_vectors: bool = True) -> Iterator[Fact]:
    """The facts from ``start`` on, made as they are asked for."""
    for index in range(start, start + count):
        yield fact(index, with_vector=with_vectors)


class Question(NamedTuple):
    """A query in words and as a vector, who asks, and the fact that it was made from."""

    text: str
    vector: bytes
    agent: int
    user: int
    answer: str

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """What is searched."""
        return seen_by(self.agent, self.user)


def wide_scopes(question: Question) -> tuple[Scope, ...]:
    """Return 30 scopes with half of all facts: six agents with four users each."""
    agents = [(question.agent + step) % AGENTS for step in range(6)]
    users = [(question.user + step) % USERS for step in range(4)]
    owned = (Scope.user(agent_id(agent), user_id(user)) for agent in agents for user in users)
    return *(Scope.agent(agent_id(agent)) for agent in agents), *owned


def questions(count: int, size: int) -> list[Question]:
    """Questions about facts among the first ``size``, from all agents."""
    chance = np.random.default_rng(20260316)
    asked = []
    for index in chance.integers(size, size=count).tolist():
        place, agent = divmod(index, AGENTS)
        near = np.frombuffer(vector(index), np.float32)
        near = near + 0.4 * unit(chance.standard_normal(DIMENSIONS))
        asked.append(
            Question(
                text=question(sentence(index), index),
                vector=unit(near).tobytes(),
                agent=agent,
                user=place // 5 % USERS,
                answer=derived_id("fact", str(index)),
            )
        )
    return asked
