"""Identify the items of a plan: their targets in v2, and reasons in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from edenmem.models.forgetting import Forgetting, Subject, block
from edenmem.models.host import Agent, User
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import Memory, V1Item, V1Ref

#: The types of targets, as in the log; the switch of an agent is of type "agent".
TYPES: dict[type, str] = {
    Policy: "policy",
    Consolidation: "consolidation",
    Fact: "fact",
    Reflection: "reflection",
}
SWITCH = "agent"

#: Maximum number of sources named in an audit entry; more are counted.
_NAMED_SOURCES = 20
_encode = msgspec.json.Encoder().encode
#: Number of leading digits of an ID that encode its time.
_TIME = 8

# Reasons of versions in the log. Stored logs contain them: never change these.
#: v1 has a later text of the same owner.
REPLACED_LATER = "replaced by a later text of the same owner"
#: v1 has absorbed memories without changing the text.
ABSORBED_LATER = "v1 has absorbed what was pending, and kept its text"


class Treatment(StrEnum):
    """How a run treats a difference between v1 and existing v2 memory."""

    FOLLOWED = "followed"
    KEPT = "kept"
    REPLACED = "replaced"
    REMOVED = "removed"


# -- identity ------------------------------------------------------------------------------------


def target_id(kind: str, document_id: str, scope: Scope) -> str:
    """Return the ID in v2 of a v1 document in a scope.

    IDs begin with the time of the document: an index takes IDs in ascending order faster.
    """
    own = derived_id("v1", kind, document_id, scope.key)
    return document_id[:_TIME] + own[_TIME:] if is_id(document_id) else own


def fact_id(scope: Scope, content_hash: str) -> str:
    """Return the ID in v2 of a fact, which is unique in its scope by its text."""
    return derived_id("v1", "fact", scope.key, content_hash)


def scope_of(key: str) -> Scope:
    """Return the scope with a key."""
    kind, agent_id, owner = (*key.split(":", 2), "")[:3]
    return Scope(ScopeKind(kind), agent_id, owner)


class Key(NamedTuple):
    """The identity of a target: its ID, of a text or policy its scope, of a switch its agent."""

    type: str
    id: str


def key_of(model: Memory) -> Key:
    """Return the key of a document."""
    own = model.id if isinstance(model, Fact | Reflection) else model.home.key
    return Key(TYPES[type(model)], own)


def key_of_item(item: V1Item) -> Key:
    """Return the key of an item's target."""
    memory = item.memory
    return Key(SWITCH, item.agent_id) if memory is None else key_of(memory)


# -- comparison ----------------------------------------------------------------------------------

#: Fields that change without a log entry.
_LOOSE: dict[type, frozenset[str]] = {
    Fact: frozenset({"access_count", "last_accessed_at", "embedding", "embedding_model"}),
    Reflection: frozenset(),
    Consolidation: frozenset({"unabsorbed_ids", "unpropagated_versions"}),
    Policy: frozenset(),
    Agent: frozenset({"created_at"}),
    User: frozenset({"created_at", "subscription_tier", "feature_flags"}),
}

#: Fields that the store sets, or that another check compares: the order of a buffer as a whole,
#: versions with those in the log.
UNCOMPARED: dict[type, frozenset[str]] = {
    Fact: frozenset({"version"}),
    Reflection: frozenset({"version", "place"}),
    Consolidation: frozenset({"version", "id", "absorbed_ids"}),
    Policy: frozenset({"version", "id", "updated_at"}),
}


def differing(
    expected: Any, found: Any, without: frozenset[str] = frozenset()
) -> list[tuple[str, Any, Any]]:
    """Return the differing fields of two documents: name, expected value, found value."""
    loose = _LOOSE[type(expected)] | without
    pairs = (
        (name, getattr(expected, name), getattr(found, name))
        for name in expected.__struct_fields__
        if name not in loose
    )
    return [(name, want, have) for name, want, have in pairs if want != have]


@cache
def _compared(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the compared fields of a model with their defaults."""
    without = _LOOSE[kind] | UNCOMPARED[kind]
    return {
        each.name: {} if each.default_factory is dict else None if each.required else each.default
        for each in msgspec.structs.fields(kind)
        if each.name not in without
    }


@cache
def _values_of(kind: type[msgspec.Struct]) -> Callable[[Any], Any]:
    return attrgetter(*_compared(kind))


def digest_of(model: Memory) -> int:
    """Return the digest of a document's compared fields."""
    return digest(_encode(_values_of(model.__class__)(model)))


def digest_of_fields(kind: type[msgspec.Struct], fields: Mapping[str, Any]) -> int:
    """Return the digest of a document in the log, which omits empty fields."""
    return digest(_encode([fields.get(name, own) for name, own in _compared(kind).items()]))


def digest(raw: bytes) -> int:
    """Return 8 bytes of a hash, as a signed number."""
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big", signed=True)


def digest_of_text(text: str) -> int:
    """Return the digest of a text."""
    return digest(text.strip().encode("utf-8", "surrogatepass"))


def text_of(model: Any) -> str:
    """Return the text of a document; "" for a policy, a switch, or nothing."""
    match model:
        case Fact(content=content) | Reflection(content=content):
            return content
        case Consolidation(consolidated_content=content):
            return content.strip()
    return ""


#: Settings of v2 that v1 has too.
_SETTINGS = ("memory_instructions", "consolidate_at", "fact_buffer_max", "active")


def settings_of(policy: Policy) -> dict[str, Any]:
    """Return the settings of a policy that exist in v1."""
    return {name: getattr(policy, name) for name in _SETTINGS}


# -- reasons -------------------------------------------------------------------------------------


def reason_of(item: V1Item) -> str:
    """Return the audit reason of a change: its documents, why, and fields unknown to v2."""
    origin = f"from {format_sources(item.sources)}"
    return "; ".join(filter(None, (origin, item.reason, item.extra)))


def origin_of(reason: str) -> str:
    """Return the beginning of a reason, which names the documents."""
    return reason.partition(";")[0]


def format_sources(sources: Sequence[V1Ref]) -> str:
    """Return the names of documents, shortened if there are many."""
    shown = [f"{ref.collection}/{ref.id}" for ref in sources[:_NAMED_SOURCES]]
    more = len(sources) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def read_sources(reason: str) -> list[tuple[str, str]]:
    """Return the documents (collection, ID) named in the reason of a change."""
    named = reason.partition(";")[0].removeprefix("from ").partition(" and ")[0]
    pairs = (each.partition("/") for each in named.split(", "))
    return [(collection, id) for collection, slash, id in pairs if slash]


# -- erased owners -----------------------------------------------------------------------------


class Forgotten:
    """The erased facts and owners, whose memory is not migrated again."""

    def __init__(self, forgettings: Iterable[Forgetting]) -> None:
        forgettings = list(forgettings)
        self.ids = {forgetting.id for forgetting in forgettings}
        self._blocks = {key for one in forgettings if one.kind == "fact" for key in one.blocks}

    def has(self, item: V1Item) -> bool:
        """Return whether the item's target, its owner or its agent was erased."""
        scope = item.scope
        if not self.ids or scope is None:
            return False
        if item.fact is not None and block("fact", item.fact.id) in self._blocks:
            return True
        return any(subject.id in self.ids for subject in _subjects(scope))

    def without_users(self, item: V1Item) -> V1Item:
        """Return the item without erased related users."""
        memory = item.fact or item.reflection
        if not self.ids or memory is None:
            return item
        owners = {user: Scope.user(memory.agent_id, user) for user in memory.related_users}
        known = tuple(
            user
            for user, scope in owners.items()
            if self.ids.isdisjoint(subject.id for subject in _subjects(scope)[1:])
        )
        memory = msgspec.structs.replace(memory, related_users=known)
        return msgspec.structs.replace(item, **{TYPES[type(memory)]: memory})


def _subjects(scope: Scope) -> list[Subject]:
    """Return the subjects of forgettings that a scope belongs to; the agent is first."""
    subjects = [Subject(kind="agent", agent_id=scope.agent_id)]
    if scope.kind is ScopeKind.USER:
        subjects.append(Subject(kind="user", owner=scope.owner))
        subjects.append(Subject(kind="user", owner=scope.owner, agent_id=scope.agent_id))
    elif scope.kind is ScopeKind.SESSION:
        subjects.append(Subject(kind="session", owner=scope.owner))
    return subjects
