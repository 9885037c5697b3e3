"""The input of a formation, and the values that its steps pass on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Literal

import msgspec

from edenmem.acceptance.evidence import Evidence
from edenmem.engine.formation.quotas import ScopeQuotas
from edenmem.engine.formation.transcript import Transcript, cut_middle, tidy_name
from edenmem.models.host import Agent
from edenmem.models.ids import as_utc, derived_id, new_id
from edenmem.models.memory import Fact, FactTimes, Held, Reflection, content_hash, join_times
from edenmem.models.scope import Scope
from edenmem.text import clean

#: Length of an agent's persona in prompts, in characters.
PERSONA_CHARACTERS = 2000


Kind = Literal["fact", "reflection"]


class NewItem(msgspec.Struct, frozen=True, kw_only=True):
    """A fact or reflection that was extracted and checked, but is not in memory.

    ``source_ids`` are its source messages; empty for the whole range. ``quote`` is a passage of one
    of them, ``unconfirmed`` says what is in doubt, ``note`` what the verification did, and
    ``failure`` which error prevented it.
    """

    kind: Kind = "fact"
    scope: Scope
    content: str
    private: bool = False
    source_ids: tuple[str, ...] = ()
    quote: str = ""
    unconfirmed: str = ""
    note: str = ""
    failure: str = ""

    @property
    def key(self) -> tuple[Kind, Scope, str]:
        """Return the key that items with the same text share."""
        return self.kind, self.scope, content_hash(self.content)

    def join(self, other: NewItem) -> NewItem:
        """Add the sources of another item with the same text."""
        return msgspec.structs.replace(
            self,
            private=self.private or other.private,
            source_ids=tuple(dict.fromkeys((*self.source_ids, *other.source_ids))),
        )


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of everything that a formation creates, and the time.

    ``sent`` are the times of all messages of the range, by ID. A note has no session, and its
    results have no sources.
    """

    session_id: str | None
    formation_id: str | None
    sent: Mapping[str, datetime]
    at: datetime

    def sources_of(self, new: NewItem) -> tuple[str, ...]:
        """Return the source messages of a new item; without any, the whole range."""
        return (new.source_ids or tuple(self.sent)) if self.session_id else ()

    def said_at(self, sources: Iterable[str]) -> datetime | None:
        """Return the time of the newest source message, never a time to come."""
        if self.session_id is None:
            return None
        newest = max((self.sent[each] for each in sources if each in self.sent), default=None)
        return newest and min(as_utc(newest), self.at)

    def times_with(self, new: NewItem, known: Fact) -> FactTimes | None:
        """Return the times of a known fact with the sources of a new one; None for a note."""
        if self.session_id is None:
            return None
        return join_times([known.said_at, self.said_at(self.sources_of(new))], [known.recent_at])

    def fact(self, new: NewItem, embedding: bytes | None, model: str | None) -> Fact:
        """Return the fact to store, with a new ID."""
        scope = new.scope
        return Fact(
            id=new_id(self.at),
            **scope.fields(session_id=self.session_id),
            content=new.content,
            hash=content_hash(new.content),
            formed_at=self.at,
            said_at=self.said_at(self.sources_of(new)),
            source_message_ids=self.sources_of(new),
            private=new.private,
            quote=new.quote,
            unconfirmed=new.unconfirmed,
            formation_id=self.formation_id,
            embedding=embedding,
            embedding_model=model if embedding is not None else None,
        )

    def held(self, new: NewItem) -> Held:
        """Return the item to keep for review; the same text of a scope is kept once."""
        return Held(
            id=derived_id("held", new.kind, new.scope.key, content_hash(new.content)),
            **new.scope.fields(session_id=self.session_id),
            kind=new.kind,
            content=new.content,
            quote=new.quote,
            reasons=new.unconfirmed,
            source_message_ids=self.sources_of(new),
            private=new.private,
            formation_id=self.formation_id,
            held_at=self.at,
            said_at=self.said_at(self.sources_of(new)),
        )

    def reflection(self, new: NewItem) -> Reflection:
        """Return the reflection to store, with a new ID."""
        scope = new.scope
        return Reflection(
            id=new_id(self.at),
            **scope.fields(session_id=self.session_id),
            content=new.content,
            formed_at=self.at,
            said_at=self.said_at(self.sources_of(new)),
            source_message_ids=self.sources_of(new),
            private=new.private,
            unconfirmed=new.unconfirmed,
            formation_id=self.formation_id,
        )


class FormationInput(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A range of messages, ready for a model.

    Attributes:
        agent: The agent whose memory is formed.
        transcript: The messages.
        quotas: What each scope may take.
        origin: The origin of the results.
        background: The session's title, and the names of people and agents in it.
        users: The names of the session's users.
    """

    agent: Agent
    transcript: Transcript
    quotas: ScopeQuotas
    origin: Origin
    background: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @property
    def is_worth_asking(self) -> bool:
        """Return whether there is a readable message and a scope that takes something."""
        return bool(self.transcript.text and self.quotas.items)

    def parts(self, characters: int) -> Iterator[FormationInput]:
        """Yield the conversation in parts of at most ``characters`` characters; usually one."""
        for transcript in self.transcript.parts(characters):
            is_whole = transcript is self.transcript
            yield self if is_whole else msgspec.structs.replace(self, transcript=transcript)

    @cached_property
    def persona(self) -> str:
        """Return the agent's persona as shown in prompts."""
        return cut_middle(clean(self.agent.persona).strip(), PERSONA_CHARACTERS)

    @cached_property
    def evidence(self) -> Evidence:
        """Return the evidence for items, without memory and the text of a prompt."""
        wishes = (quota.instructions for quota in self.quotas.items)
        context = (*self.background, self.persona, *wishes)
        others = (
            each.speaker for each in self.transcript.talk.messages if each.author == "other agent"
        )
        agents = (tidy_name(self.agent.label), *others)
        return Evidence(
            talk=self.transcript.talk,
            context=tuple(dict.fromkeys(part for part in context if part)),
            agents=tuple(dict.fromkeys(filter(None, agents))),
            users=tuple(dict.fromkeys((*self.users, *self.transcript.talk.speakers))),
        )

    @cached_property
    def prompt_values(self) -> dict[str, object]:
        """Return the values for every prompt about the conversation."""
        return {
            "conversation": self.transcript.text,
            "speakers": self.transcript.talk.speakers,
            "agent": tidy_name(self.agent.label) or "an agent",
            "persona": self.persona,
            "now": self.origin.at,
        }
