"""The changes that make what is stored say what a file says."""

from __future__ import annotations

from datetime import datetime

from edenmem.models.backup import Record, RecordKind, StoredAgent, differences
from edenmem.models.changes import (
    Change,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.memory import Consolidation, Fact, Policy, Reflection

_REASON = "replaced by an import"
_TOGGLES = {"user_memory_enabled", "agent_memory_enabled"}


def replacement(kind: RecordKind, stored: Record, given: Record, at: datetime) -> list[Change]:
    """The changes; none if what differs is nothing that a change can alter."""
    fields = set(differences(kind, stored, given))
    match stored, given:
        case Fact() | Reflection(), Fact() | Reflection() if fields <= {"content", "private"}:
            rewritten = _rewritten(stored, given, at) if "content" in fields else []
            if "content" in fields and not rewritten:
                return []
            return rewritten + (_privacy(kind, stored, given, at) if "private" in fields else [])
        case Consolidation(), Consolidation() if fields == {"consolidated_content"}:
            return [
                WriteConsolidation(
                    scope=stored.home,
                    expected_version=stored.version,
                    content=given.consolidated_content,
                    word_limit=given.word_limit or stored.word_limit,
                    at=at,
                    reason=_REASON,
                )
            ]
        case Policy(), Policy() if "scope" not in fields:
            return [
                WritePolicy(policy=given, expected_version=stored.version, at=at, reason=_REASON)
            ]
        case StoredAgent(), StoredAgent() if fields <= _TOGGLES:
            return [
                SetAgentToggles(
                    agent_id=stored.id,
                    at=at,
                    user_memory_enabled=given.user_memory_enabled,
                    agent_memory_enabled=given.agent_memory_enabled,
                    reason=_REASON,
                )
            ]
    return []


def _rewritten(stored: Fact | Reflection, given: Fact | Reflection, at: datetime) -> list[Change]:
    match stored, given:
        case Fact(), Fact():
            return [
                ReviseFact(
                    scope=stored.home,
                    fact_id=stored.id,
                    expected_version=stored.version,
                    content=given.content,
                    at=at,
                    embedding=given.embedding,
                    embedding_model=given.embedding_model,
                    reason=_REASON,
                )
            ]
        case Reflection(), Reflection() if not stored.absorbed:
            return [
                ReviseReflection(
                    scope=stored.home,
                    reflection_id=stored.id,
                    expected_version=stored.version,
                    content=given.content,
                    at=at,
                    reason=_REASON,
                )
            ]
    return []


def _privacy(
    kind: RecordKind, stored: Fact | Reflection, given: Fact | Reflection, at: datetime
) -> list[Change]:
    return [
        SetPrivacy(
            scope=stored.home,
            target_type=kind.value,
            target_id=stored.id,
            private=given.private,
            at=at,
            reason=_REASON,
        )
    ]
