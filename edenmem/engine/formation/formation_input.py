"""The input of a formation, and the values that its steps pass on."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

import msgspec

from edenmem.acceptance.conversation import Conversation
from edenmem.acceptance.evidence import Evidence
from edenmem.engine.formation.quotas import ScopeQuotas
from edenmem.engine.formation.transcript import Transcript, cut_middle, tidy_name
from edenmem.models.host import Agent
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Reflection, content_hash
from edenmem.models.scope import Scope
from edenmem.settings.schema import AcceptanceSettings
from edenmem.text import clean

#: Length of an agent's persona in prompts, in characters.
PERSONA_CHARACTERS = 2000


class NewFact(msgspec.Struct, frozen=True):
    """A fact that was extracted and checked, but is not in memory.

    ``source_ids`` are its source messages; empty for the whole range. ``weak``: not all of it was
    confirmed. ``named``: the speaker's name has replaced the first person.
    """

    scope: Scope
    content: str
    private: bool = False
    source_ids: tuple[str, ...] = ()
    weak: bool = False
    named: bool = False


class NewReflection(msgspec.Struct, frozen=True):
    """A reflection that was extracted and checked, but is not in memory."""

    scope: Scope
    content: str
    private: bool = False


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of everything that a formation creates, and the time.

    ``message_ids`` are those of the whole range. A note has no session, and its results have no
    sources.
    """

    session_id: str | None
    formation_id: str | None
    message_ids: tuple[str, ...]
    at: datetime

    def sources_of(self, new: NewFact) -> tuple[str, ...]:
        """Return the source messages of a new fact."""
        return (new.source_ids or self.message_ids) if self.session_id else ()

    def fact(self, new: NewFact, embedding: bytes | None, model: str | None) -> Fact:
        """Return the fact to store, with a new ID."""
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
        """Return the reflection to store, with a new ID."""
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
    """A range of messages, ready for a model.

    Attributes:
        agent: The agent whose memory is formed.
        transcript: The messages.
        quotas: What each scope may take.
        origin: The origin of the results.
        acceptance: The rules that a model's items must pass.
        background: The session's title, and the names of people and agents in it.
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
        """Return whether there is a readable message and a scope that takes something."""
        return bool(self.transcript.text and self.quotas.items)

    @cached_property
    def persona(self) -> str:
        """Return the agent's persona as shown in prompts."""
        return cut_middle(clean(self.agent.persona).strip(), PERSONA_CHARACTERS)

    @cached_property
    def evidence(self) -> Evidence:
        """Return the evidence for items, without memory and the text of a prompt."""
        wishes = (quota.instructions for quota in self.quotas.items)
        people = self.transcript.speakers
        context = (*self.background, *people, self.persona, *wishes)
        return Evidence(
            talk=Conversation(self.transcript.messages),
            context=tuple(dict.fromkeys(part for part in context if part)),
            user=people[0] if len(people) == 1 else None,
            agent=tidy_name(self.agent.label),
        )

    @cached_property
    def prompt_values(self) -> dict[str, object]:
        """Return the values for every prompt about the conversation."""
        return {
            "conversation": self.transcript.text,
            "speakers": self.transcript.speakers,
            "agent": tidy_name(self.agent.label) or "an agent",
            "persona": self.persona,
            "now": self.origin.at,
        }
