"""The shards of one agent: each becomes a part of the agent's own memory, or a scope."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import SHARDS, V1Options
from edenmem.models.v1 import V1ProblemKind as Kind
from edenmem.models.v1_documents import Note, V1Shard, V1Staged
from edenmem.text import clean, one_line

#: The longest name of a shard scope.
NAME_CHARACTERS = 100

_VERSION_LINE = re.compile(r"\s*VERSION:\s*(\d{1,9})[^\S\n]*(?:\n|\Z)", re.IGNORECASE)


class Versioned(NamedTuple):
    """A text of v1 and the number of its ``VERSION:`` line, 1 if it has none."""

    content: str
    version: int


def versioned(text: str) -> Versioned:
    """The text without its ``VERSION:`` line."""
    kept = clean(text)
    match = _VERSION_LINE.match(kept)
    if match is None:
        return Versioned(kept.strip(), 1)
    return Versioned(kept[match.end() :].strip(), max(int(match[1]), 1))


class Shard(NamedTuple):
    """One shard. ``key`` is its scope's name in the stage; ``name`` is unique for the agent."""

    staged: V1Staged
    document: V1Shard
    name: str
    key: str
    scope: Scope
    notes: tuple[Note, ...]

    @property
    def text(self) -> Versioned:
        """Its text."""
        return versioned(self.document.content)

    @property
    def updated_at(self) -> datetime:
        """When its text was last written."""
        document = self.document
        return document.last_updated_at or document.updated_at or document.created_at


def shards_of(agent_id: str, staged: Sequence[V1Staged], options: V1Options) -> list[Shard]:
    """The agent's shards, oldest first, each with a name of its own."""
    taken: set[str] = set()
    shards = []
    for each in staged:
        document = each.document
        assert isinstance(document, V1Shard)
        name, notes = _name(document, taken)
        taken.add(name)
        merged = options.shards == "merge" and document.active
        shard_id = document.id if is_id(document.id) else derived_id("v1", SHARDS, document.id)
        scope = Scope.agent(agent_id) if merged else Scope.shard(agent_id, name)
        key = "agent" if merged else f"shard/{shard_id}"
        shards.append(Shard(each, document, name, key, scope, notes))
    return shards


def _name(document: V1Shard, taken: set[str]) -> tuple[str, tuple[Note, ...]]:
    notes: list[Note] = []
    name = one_line(clean(document.name))
    if not name:
        name = f"shard {document.id[:8]}"
        notes.append((Kind.EMPTY, f"shard_name is missing; the shard is called {name!r}"))
    if len(name) > NAME_CHARACTERS - 6:  # room for a number
        notes.append((Kind.OVER_LIMIT, f"shard_name is too long and is cut: {name}"))
        name = name[: NAME_CHARACTERS - 6].rstrip()
    numbered, number = name, 1
    while numbered in taken:
        number += 1
        numbered = f"{name} ({number})"
    if number > 1:
        detail = f"the agent has another shard {name!r}; this one is called {numbered!r}"
        notes.append((Kind.REPEATED_SHARD, detail))
    return numbered, tuple(notes)


def shard_policy(agent_id: str, shard: Shard) -> Policy:
    """The settings of a shard that becomes a scope."""
    document = shard.document
    return Policy(
        id=document.id if is_id(document.id) else derived_id("v1", SHARDS, document.id),
        scope=ScopeKind.SHARD,
        agent_id=agent_id,
        shard=shard.name,
        memory_instructions=clean(document.instructions).strip() or None,
        consolidate_at=document.max_pending,
        fact_buffer_max=document.max_facts,
        active=document.active,
    )


def agent_policy(agent_id: str, merged: Sequence[Shard]) -> Policy | None:
    """The settings of the agent's own scope: the instructions of its active shards, each under its
    name. None if they have none. Limits of single shards say nothing about all of them."""
    instructions = headed(
        [(each.name, clean(each.document.instructions).strip()) for each in merged]
    )
    if not instructions:
        return None
    return Policy(
        id=derived_id("v1", "policy", agent_id),
        scope=ScopeKind.AGENT,
        agent_id=agent_id,
        memory_instructions=instructions,
    )


def headed(sections: Sequence[tuple[str, str]]) -> str:
    """One text, a headed section for each that is not empty."""
    return "\n\n".join(f"## {name}\n\n{text}" for name, text in sections if text)
