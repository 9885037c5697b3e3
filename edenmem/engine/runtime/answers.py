"""Answers of language models, by task.

`edenmem.llm.structured.answer_schema` converts each class to a JSON schema for strict structured
output: all fields are required, other fields are forbidden, and keywords that some endpoints lack
are not used. Docstrings become descriptions in this schema, so the model reads them. Parsing is
more lenient: a missing list is empty. The classes hold types and closed vocabularies; callers check
lengths, counts, and whether a number was in the prompt.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Base class: exact types, no unknown fields, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ExtractedFact(Answer):
    """One fact with its scope. ``sources`` are numbers of messages from the prompt."""

    sources: list[int] = Field(default_factory=list, description="Numbers of the messages.")
    quote: str = Field(default="", description="A passage of one of them, word for word.")
    content: str = Field(description="One sentence that can be understood alone.")
    scope: Literal["user", "group", "agent", "shard"]
    shard: str | None = Field(
        default=None, description="The shard's name if scope is shard, else null."
    )
    private: bool = Field(description="Whether the speaker asked for it to be kept private.")


class FactsAnswer(Answer):
    """Task ``facts``."""

    facts: list[ExtractedFact] = Field(default_factory=list)


class ReflectionItem(Answer):
    """One reflection. ``sources`` are numbers of messages from the prompt."""

    sources: list[int] = Field(default_factory=list, description="Numbers of the messages.")
    content: str
    private: bool = Field(description="Whether the speaker asked for it to be kept private.")


class ShardReflections(Answer):
    """The reflections of one shard, by the shard's name."""

    shard: str
    reflections: list[ReflectionItem] = Field(default_factory=list)


class ReflectionsAnswer(Answer):
    """Task ``reflections``: broad to narrow, each item in one place only."""

    agent: list[ReflectionItem] = Field(default_factory=list)
    shards: list[ShardReflections] = Field(default_factory=list)
    group: list[ReflectionItem] = Field(default_factory=list)
    user: list[ReflectionItem] = Field(default_factory=list)
    session: list[ReflectionItem] = Field(default_factory=list)


class SingleAnswer(Answer):
    """Task ``single``: facts and reflections in one call."""

    facts: list[ExtractedFact] = Field(default_factory=list)
    reflections: ReflectionsAnswer = Field(default_factory=ReflectionsAnswer)


class VerifiedItem(Answer):
    """The verdict about an item. ``item`` is a number from the prompt."""

    item: int
    about: str = Field(description="Who or what the messages speak of.")
    verdict: Literal["keep", "correct", "drop"]
    sources: list[int] = Field(default_factory=list, description="Numbers of the messages.")
    content: str | None = Field(default=None, description="The corrected sentence, else null.")


class VerifyAnswer(Answer):
    """Task ``verify``: an item that is left out stays in doubt."""

    items: list[VerifiedItem] = Field(default_factory=list)


class DedupDecision(Answer):
    """What to do with one new fact. ``fact`` and ``target`` are labels from the prompt."""

    fact: str = Field(description="The new fact's label, N1 or the like.")
    reason: str = Field(description="A few words.")
    action: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    target: str | None = Field(
        default=None, description="The label of the existing fact meant, or null for ADD."
    )
    content: str | None = Field(default=None, description="The merged text for UPDATE, else null.")


class DedupAnswer(Answer):
    """Task ``dedup``."""

    decisions: list[DedupDecision] = Field(default_factory=list)


class TextAnswer(Answer):
    """Task ``shorten``: the whole new text."""

    text: str


class Contradiction(Answer):
    """A fixed sentence and the reflection that contradicts it, by their numbers."""

    fixed: int
    reflection: int


class ConsolidateAnswer(Answer):
    """Task ``consolidate``: the whole new text, and the contradictions to fixed sentences."""

    text: str
    contradictions: list[Contradiction] = Field(default_factory=list)


class PropagatedItem(Answer):
    """What one reflection says that is of use above. ``reflection`` is a number from the prompt."""

    reflection: int
    content: str = Field(description="One general statement that names no person.")


class PropagateAnswer(Answer):
    """Task ``propagate``: at most one item for each reflection; none is a good answer."""

    items: list[PropagatedItem] = Field(default_factory=list)


class RecallAnswer(Answer):
    """Task ``recall``: up to three search queries; none if memory is not needed."""

    queries: list[str] = Field(default_factory=list)
