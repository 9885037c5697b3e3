"""What takes back one entry of the log of a run, judged by what is there now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edenmem.models.changes import (
    AuditEntry,
    Change,
    RemoveAgent,
    RemoveFact,
    RemovePolicy,
    RemoveReflection,
    RemoveUser,
    SetAgentToggles,
    WritePolicy,
)
from edenmem.models.ids import derived_id
from edenmem.models.memory import Policy
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store

#: What a change that is not made leaves: the reason, or "" if there is nothing left to take back.
Verdict = Change | str


class Now:
    """What is there of the targets of one batch of entries."""

    def __init__(self, store: Store, entries: Sequence[AuditEntry]) -> None:
        def of(kind: str) -> list[AuditEntry]:
            return [entry for entry in entries if entry.target_type == kind]

        def scopes(kind: str) -> list[Scope]:
            return list(dict.fromkeys(e.scope for e in of(kind) if e.scope is not None))

        facts, reflections = of("fact"), of("reflection")
        self.facts = (
            store.facts_by_ids(scopes("fact"), [e.target_id for e in facts]) if facts else {}
        )
        self.reflections = (
            store.reflections_by_ids([e.target_id for e in reflections]) if reflections else {}
        )
        policies = scopes("policy")
        self.policies = store.policies(policies) if policies else {}


class Judge:
    """Judges the entries of one run."""

    def __init__(self, store: Store, run_id: str, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._run_id = run_id
        self._clock = clock

    def own(self, entry: AuditEntry) -> dict[str, Any]:
        """What the change that takes an entry back says of itself."""
        return {
            "id": derived_id("rollback", self._run_id, entry.id),
            "undoes": entry.id,
            "reason": f"rollback of the run {self._run_id}",
        }

    def judged(self, entry: AuditEntry, now: Now) -> Verdict:
        """The change that takes an entry back, or why there is none."""
        own = self.own(entry)
        match entry.action, entry.scope:
            case "add_fact", Scope() as scope:
                return self._fact(entry, scope, now, own)
            case "add_reflection", Scope() as scope:
                return self._reflection(entry, scope, now, own)
            case "write_policy", Scope() as scope:
                return self._policy(entry, scope, now, own)
            case "set_agent_toggles", _:
                return self._toggles(entry, own)
            case "add_agent", _:
                return RemoveAgent(agent_id=entry.target_id, **own)
            case "add_user", _:
                return RemoveUser(user_id=entry.target_id, **own)
        return f"a change of the kind {entry.action} is not one of a migration"

    def _fact(self, entry: AuditEntry, scope: Scope, now: Now, own: dict[str, Any]) -> Verdict:
        fact = now.facts.get(entry.target_id)
        if fact is None:
            return ""
        if fact.version != version_of(entry):
            return "it was edited since"
        return RemoveFact(
            scope=scope,
            fact_id=fact.id,
            expected_version=fact.version,
            at=self._clock(),
            **own,
        )

    def _reflection(
        self, entry: AuditEntry, scope: Scope, now: Now, own: dict[str, Any]
    ) -> Verdict:
        reflection = now.reflections.get(entry.target_id)
        if reflection is None or reflection.home != scope:
            return ""
        if reflection.absorbed and not (entry.after or {}).get("absorbed"):
            return "it went into a consolidated text since"
        if reflection.version != version_of(entry):
            return "it was edited since"
        return RemoveReflection(
            scope=scope,
            reflection_id=reflection.id,
            expected_version=reflection.version,
            at=self._clock(),
            **own,
        )

    def _policy(self, entry: AuditEntry, scope: Scope, now: Now, own: dict[str, Any]) -> Verdict:
        policy = now.policies.get(scope)
        if policy is None:
            return ""
        if policy.version != version_of(entry):
            return "it was changed since"
        if entry.before is None:
            return RemovePolicy(
                scope=scope, expected_version=policy.version, at=self._clock(), **own
            )
        before = msgspec.convert(entry.before, Policy)
        return WritePolicy(policy=before, expected_version=policy.version, at=self._clock(), **own)

    def _toggles(self, entry: AuditEntry, own: dict[str, Any]) -> Verdict:
        agent = self._store.agent(entry.target_id)
        before, after = entry.before or {}, entry.after or {}
        if agent is None or before == after:
            return ""
        if agent.agent_memory_enabled == before.get("agent_memory_enabled"):
            return ""  # as it was before the run, by whomever
        if agent.agent_memory_enabled != after.get("agent_memory_enabled"):
            return "its memory was switched since"
        return SetAgentToggles(
            agent_id=agent.id,
            at=self._clock(),
            agent_memory_enabled=bool(before.get("agent_memory_enabled")),
            **own,
        )


def version_of(entry: AuditEntry) -> int:
    """The version that the entry's target had after it."""
    return int((entry.after or {}).get("version") or 0)
