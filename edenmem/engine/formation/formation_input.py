"""What one formation works on, and what it makes: the values that its steps hand to each other."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

import msgspec

from edenmem.acceptance.evidence import Evidence
from edenmem.engine.formation.quotas import ScopeQuotas
from edenmem.engine.formation.transcript import Transcript, cut_middle, tidy_name
from edenmem.models.host import Agent
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Reflection, content_hash
from edenmem.models.scope import Scope
from edenmem.settings.schema import AcceptanceSettings
from edenmem.text import clean

#: What a prompt shows of an agent's persona: enough to tell what matters to the agent.
PERSONA_CHARACTERS = 2000


class NewFact(msgspec.Struct, frozen=True):
    """A fact that was extracted and checked, and is not yet in memory. ``source_ids`` are the
    messages that it comes from; empty: the whole range. ``weak``: not all of it was confirmed."""

    scope: Scope
    content: str
    private: bool = False
    source_ids: tuple[str, ...] = ()
    weak: bool = False


class NewReflection(msgspec.Struct, frozen=True):
    """A reflection that was extracted and checked, and is not yet in memory."""

    scope: Scope
    content: str
    private: bool = False


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything that a formation makes comes from, and when it was made. ``message_ids``
    are those of the whole range. A note has no session, and what is made of it has no sources."""

    session_id: str | None
    formation_id: str | None
    message_ids: tuple[str, ...]
    at: datetime

    def sources_of(self, new: NewFact) -> tuple[str, ...]:
        """The messages that a new fact comes from."""
        return (new.source_ids or self.message_ids) if self.session_id else ()

    def fact(self, new: NewFact, embedding: bytes | None, model: str | None) -> Fact:
        """The fact as it is stored, with an id of its own."""
        scope = new.scope
        return Fact(
            id=new_id(self.at),
            **scope.fields(session_id=self.session_id),
            content=new.content,
            hash=content_hash(new.content),
            formed_at=self.at,
            source_message_ids=self.sources_of(new),
            private=new.private,
            weak=new.weak,
            formation_id=self.formation_id,
            embedding=embedding,
            embedding_model=model if embedding is not None else None,
        )

    def reflection(self, new: NewReflection) -> Reflection:
        """The reflection as it is stored, with an id of its own."""
        scope = new.scope
        return Reflection(
            id=new_id(self.at),
            **scope.fields(session_id=self.session_id),
            content=new.content,
            formed_at=self.at,
            source_message_ids=self.message_ids,
            private=new.private,
            formation_id=self.formation_id,
        )


class Material(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A range of messages, ready to be asked about.

    Attributes:
        agent: Whose memory is formed.
        transcript: The messages.
        quotas: What each scope may take.
        origin: Where everything comes from that is made of it.
        acceptance: The rules that a model's items must pass.
        background: The session's title, and the names of people and agents who take part.
        is_shared: Whether several people read the session.
    """

    agent: Agent
    transcript: Transcript
    quotas: ScopeQuotas
    origin: Origin
    acceptance: AcceptanceSettings
    background: tuple[str, ...] = ()
    is_shared: bool = False

    @property
    def is_worth_asking(self) -> bool:
        """Whether there is something to read, and a scope that takes something new."""
        return bool(self.transcript.text and self.quotas.items)

    @cached_property
    def persona(self) -> str:
        """The agent's persona as prompts show it."""
        return cut_middle(clean(self.agent.persona).strip(), PERSONA_CHARACTERS)

    @cached_property
    def evidence(self) -> Evidence:
        """What items are checked against; without the memory and the words of one prompt."""
        wishes = (quota.instructions for quota in self.quotas.items)
        people = self.transcript.speakers
        context = (*self.background, *people, self.persona, *wishes)
        return Evidence(
            messages=self.transcript.messages,
            context=tuple(dict.fromkeys(part for part in context if part)),
            user=people[0] if len(people) == 1 else None,
        )

    @cached_property
    def prompt_values(self) -> dict[str, object]:
        """The values that every prompt about the conversation takes."""
        return {
            "conversation": self.transcript.text,
            "speakers": self.transcript.speakers,
            "agent": tidy_name(self.agent.label) or "an agent",
            "persona": self.persona,
            "now": self.origin.at,
        }
