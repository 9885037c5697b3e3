"""Changes to what governs memory: privacy, policies, the toggles of agents."""

# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from edenmem.models.changes import (
    ChangeResult,
    ChangeStatus,
    RemovePolicy,
    SetAgentToggles,
    SetPrivacy,
    WritePolicy,
)
from edenmem.models.memory import Fact, Policy, Reflection
from edenmem.models.scope import Scope
from edenmem.store.sqlite.apply.fact_changes import FactChanges
from edenmem.store.sqlite.apply.judging import absent, result, stale
from edenmem.store.sqlite.apply.reflection_changes import ReflectionChanges
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import plain, to_ms
from edenmem.store.sqlite.host.host import agent_of
from edenmem.store.sqlite.memory.memory import policy_of


class SettingChanges(FactChanges, ReflectionChanges):
    """Sets privacy, policies and toggles."""

    def _set_privacy(self, change: SetPrivacy) -> ChangeResult:
        old: Fact | Reflection | None = None
        if change.target_type == "fact":
            stored = self._fact(change.scope, change.target_id)
            old = stored.fact if stored else None
        elif change.target_type == "reflection":
            old = self._reflection(change.scope, change.target_id)
        if old is None:
            return absent(change, change.target_id)
        self._db.execute(
            f"UPDATE {change.target_type}s SET private = ? WHERE id = ?",
            (change.private, change.target_id),
        )
        self._touch(change.scope)
        after = plain(msgspec.structs.replace(old, private=change.private))
        self._audit(change, change.target_type, change.target_id, change.scope, plain(old), after)
        return result(change, ChangeStatus.APPLIED, change.target_id)

    def _write_policy(self, change: WritePolicy) -> ChangeResult:
        scope = change.policy.home
        number = scopes.number_of(self._db, scope)
        old = None if number is None else policy_of(self._db, number)
        version = old.version if old else 0
        if version != change.expected_version:
            return stale(
                change, old.id if old else change.policy.id, version, change.expected_version
            )
        new = msgspec.structs.replace(
            change.policy,
            id=old.id if old else change.policy.id,
            version=version + 1,
            updated_at=change.at,
        )
        scope_id = scopes.make_number(self._db, scope)
        put_policy(self._db, new, scope_id)
        scopes.touch(self._db, scope_id, self._now)
        self._audit(
            change, "policy", new.id, scope, None if old is None else plain(old), plain(new)
        )
        return result(change, ChangeStatus.APPLIED, new.id)

    def _remove_policy(self, change: RemovePolicy) -> ChangeResult:
        number = scopes.number_of(self._db, change.scope)
        old = None if number is None else policy_of(self._db, number)
        if number is None or old is None:
            return absent(change, "")
        if old.version != change.expected_version:
            return stale(change, old.id, old.version, change.expected_version)
        self._db.execute("DELETE FROM policies WHERE scope_id = ?", (number,))
        scopes.touch(self._db, number, self._now)
        self._audit(change, "policy", old.id, change.scope, plain(old))
        return result(change, ChangeStatus.APPLIED, old.id)

    def _set_agent_toggles(self, change: SetAgentToggles) -> ChangeResult:
        old = agent_of(self._db, change.agent_id)
        if old is None:
            return absent(change, change.agent_id)
        new = old
        if change.user_memory_enabled is not None:
            new = msgspec.structs.replace(new, user_memory_enabled=change.user_memory_enabled)
        if change.agent_memory_enabled is not None:
            new = msgspec.structs.replace(new, agent_memory_enabled=change.agent_memory_enabled)
        self._db.execute(
            "UPDATE agents SET user_memory_enabled = ?, agent_memory_enabled = ? WHERE id = ?",
            (new.user_memory_enabled, new.agent_memory_enabled, new.id),
        )
        self._touch(Scope.agent(new.id))
        self._audit(change, "agent", new.id, None, plain(old), plain(new))
        return result(change, ChangeStatus.APPLIED, new.id)


def put_policy(connection: sqlite3.Connection, policy: Policy, scope_id: int) -> None:
    """Store the policy of a scope in the place of the one that it has."""
    connection.execute(
        "INSERT OR REPLACE INTO policies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (scope_id, *_policy_columns(policy)),
    )


def _policy_columns(policy: Policy) -> tuple[Any, ...]:
    return (
        policy.id,
        policy.memory_instructions,
        policy.consolidation_instructions,
        policy.consolidate_at,
        policy.word_limit,
        policy.fact_buffer_max,
        policy.fast_model,
        policy.slow_model,
        policy.active,
        policy.private,
        policy.propagate,
        policy.version,
        to_ms(policy.updated_at),
    )
