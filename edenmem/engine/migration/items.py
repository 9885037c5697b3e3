"""Identify the items of a plan: their targets in v2, reasons in the log, and outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from edenmem.engine.history.trails import fields_of
from edenmem.models.forgetting import Forgetting, Subject, block
from edenmem.models.ids import derived_id, is_id
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.v1 import (
    Disposition,
    V1Fact,
    V1Item,
    V1Policy,
    V1Ref,
    V1Reflection,
    V1Text,
    V1Toggles,
)

Memory = Fact | Reflection | Consolidation | Policy
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
#: Number of leading digits of an ID that encode its time.
_TIME = 8

# Reasons of versions in the log. Stored logs contain them: never change these.
#: v1 has a later text of the same owner.
REPLACED_LATER = "replaced by a later text of the same owner"
#: v1 has absorbed memories without changing the text.
ABSORBED_LATER = "v1 has absorbed what was pending, and kept its text"


class Outcome(StrEnum):
    """The outcome of an item."""

    MIGRATED = "migrated"
    MERGED = "merged"
    ALREADY = "already"  # unchanged in v1 since an earlier run, or identical in v2
    KEPT = "kept"  # v2 has another version, which was kept
    LEFT_BEHIND = "left_behind"
    BAD = "bad"
    FAILED = "failed"


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


#: Fields that the store sets, or that another check compares: the order of a buffer as a whole,
#: versions with those in the log.
_UNCOMPARED: dict[type, frozenset[str]] = {
    Fact: frozenset({"version"}),
    Reflection: frozenset({"version", "place"}),
    Consolidation: frozenset({"version", "id", "absorbed_ids"}),
    Policy: frozenset({"version", "id", "updated_at"}),
}


def uncompared(model: Memory) -> frozenset[str]:
    """Return the fields of a document that its digest does not cover."""
    return _UNCOMPARED[type(model)]


@cache
def _values_of(kind: type) -> Callable[[Any], Any]:
    return attrgetter(*fields_of(kind, _UNCOMPARED[kind]))


def digest_of(model: Memory) -> int:
    """Return the digest of a document's compared fields."""
    return digest(msgspec.json.encode(_values_of(type(model))(model)))


def digest(raw: bytes) -> int:
    """Return 8 bytes of a hash, as a signed number."""
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big", signed=True)


def digest_of_ids(ids: Iterable[str]) -> int:
    """Return the digest of the ordered IDs of a buffer."""
    return digest(" ".join(ids).encode("utf-8", "surrogatepass"))


def text_of(model: Any) -> str:
    """Return the text of a document; "" for a policy or a switch."""
    match model:
        case Fact(content=content) | Reflection(content=content):
            return content
        case Consolidation(consolidated_content=content):
            return content.strip()
    return ""


def digest_of_text(text: str) -> int:
    """Return the digest of a text."""
    return digest(text.strip().encode("utf-8", "surrogatepass"))


class Key(NamedTuple):
    """The identity of a target: its ID, of a text or policy its scope, of a switch its agent."""

    type: str
    id: str


def key_of(model: Memory) -> Key:
    """Return the key of a document."""
    own = model.id if isinstance(model, Fact | Reflection) else model.home.key
    return Key(TYPES[type(model)], own)


class Wanted(NamedTuple):
    """The target of an item as v1 describes it; ``memory`` is None for a switch."""

    key: Key
    digest: int
    memory: Memory | None


def wanted_of(item: V1Item) -> Wanted | None:
    """Return what v2 must hold for an item, as written to an empty store."""
    memory: Memory
    match item.target:
        case None:
            return None
        case V1Toggles(agent_id=agent_id, agent_memory_enabled=enabled):
            return Wanted(Key(SWITCH, agent_id), int(enabled), None)
        case V1Fact(fact=made) | V1Reflection(reflection=made):
            memory = made
        case V1Policy(policy=policy):
            memory = policy
        case V1Text(scope=scope) as text:
            memory = Consolidation(
                id="",
                **scope.fields(),
                consolidated_content=text.content,
                version=text.version,
                word_limit=text.word_limit,
                updated_at=text.last_updated_at,
            )
    return Wanted(key_of(memory), digest_of(memory), memory)


def key_of_item(item: V1Item) -> Key:
    """Return the key of an item's target."""
    match item.target:
        case V1Fact(fact=memory) | V1Reflection(reflection=memory):
            return key_of(memory)
        case V1Toggles(agent_id=agent_id):
            return Key(SWITCH, agent_id)
        case V1Text(scope=scope):
            return Key("consolidation", scope.key)
        case V1Policy(policy=policy):
            return key_of(policy)
    raise AssertionError(item)


def target_scope(item: V1Item) -> Scope | None:
    """Return the scope of the item's target; None for a switch and without a target."""
    match item.target:
        case V1Text(scope=scope):
            return scope
        case V1Reflection(reflection=memory) | V1Fact(fact=memory):
            return memory.home
        case V1Policy(policy=policy):
            return policy.home
    return None


# -- reasons and outcomes --------------------------------------------------------------------------


def reason_of(item: V1Item) -> str:
    """Return the audit reason of a change: its documents, why, and fields unknown to v2."""
    return "; ".join(filter(None, (origin_of(item.sources), item.reason, item.extra)))


def origin_of(sources: Sequence[V1Ref]) -> str:
    """Return the beginning of a reason, with the v1 documents."""
    return f"from {format_sources(sources)}"


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


def classify_moved(item: V1Item) -> Outcome:
    """Return the outcome of a moved item."""
    return Outcome.MERGED if item.disposition is Disposition.MERGED else Outcome.MIGRATED


def classify_unmoved(item: V1Item) -> Outcome:
    """Return the outcome of an item without a target."""
    return Outcome.BAD if item.disposition is Disposition.BAD else Outcome.LEFT_BEHIND


#: Settings of v2 that v1 has too.
_SETTINGS = ("memory_instructions", "consolidate_at", "fact_buffer_max", "active")


def settings_of(policy: Policy) -> dict[str, Any]:
    """Return the settings of a policy that exist in v1."""
    return {name: getattr(policy, name) for name in _SETTINGS}


# -- erased owners -----------------------------------------------------------------------------


class Forgotten:
    """The erased facts and owners, whose memory is not migrated again."""

    reason = "it or its owner was erased here"

    def __init__(self, forgettings: Iterable[Forgetting]) -> None:
        forgettings = list(forgettings)
        self.ids = {forgetting.id for forgetting in forgettings}
        self._blocks = {key for one in forgettings if one.kind == "fact" for key in one.blocks}

    def has(self, item: V1Item) -> bool:
        """Return whether the item's target, its owner or its agent was erased."""
        scope = target_scope(item)
        if not self.ids or scope is None:
            return False
        if isinstance(item.target, V1Fact) and block("fact", item.target.fact.id) in self._blocks:
            return True
        return any(subject.id in self.ids for subject in _subjects(scope))

    def without_users(self, item: V1Item) -> V1Item:
        """Return the item without erased related users."""
        replace = msgspec.structs.replace
        match item.target if self.ids else None:
            case V1Fact(fact=fact) as target:
                fact = replace(fact, related_users=tuple(self._known_of(fact)))
                return replace(item, target=replace(target, fact=fact))
            case V1Reflection(reflection=reflection) as target:
                reflection = replace(reflection, related_users=tuple(self._known_of(reflection)))
                return replace(item, target=replace(target, reflection=reflection))
        return item

    def _known_of(self, memory: Fact | Reflection) -> Iterator[str]:
        for user in memory.related_users:
            subjects = _subjects(Scope.user(memory.agent_id, user))[1:]
            if not any(subject.id in self.ids for subject in subjects):
                yield user


def _subjects(scope: Scope) -> list[Subject]:
    """Return the subjects of forgettings that a scope belongs to; the agent is first."""
    subjects = [Subject(kind="agent", agent_id=scope.agent_id)]
    if scope.kind is ScopeKind.USER:
        subjects.append(Subject(kind="user", owner=scope.owner))
        subjects.append(Subject(kind="user", owner=scope.owner, agent_id=scope.agent_id))
    elif scope.kind is ScopeKind.SESSION:
        subjects.append(Subject(kind="session", owner=scope.owner))
    return subjects
