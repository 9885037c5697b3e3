"""Changes to memory: each judged and applied inside one transaction.

Every judgement is made before the first write of its change, and under ``BEGIN IMMEDIATE``
nobody else can write in between, so a change is applied whole or not at all without savepoints.
An error (a vector that is none, a full disk) undoes the whole set.

History's action of a version: "form", "consolidate", "restore" or "migrate" if the actor's command
says so, "form" for a fact of a formation, otherwise "add" for the first and "edit" for later ones.
An audit entry's action is the change's tag.
"""

# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from edenmem.models.changes import (
    AddFact,
    AddReflection,
    Change,
    ChangeResult,
    ChangeSet,
    ChangeStatus,
    RemoveFact,
    RemoveReflection,
    ReviseFact,
    ReviseReflection,
    SetAgentToggles,
    SetPrivacy,
    WriteConsolidation,
    WritePolicy,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import Fact, Policy, Reflection, content_hash
from edenmem.models.scope import Scope
from edenmem.store.sqlite import codec, facts, log, scopes
from edenmem.store.sqlite.codec import plain, to_list, to_ms
from edenmem.store.sqlite.facts import StoredFact
from edenmem.store.sqlite.host import agent_of
from edenmem.store.sqlite.memory import consolidation_of, policy_of

_replace = msgspec.structs.replace

#: The first word of a command → the action of the versions that it makes.
_ACTIONS = {"form": "form", "cold": "form", "consolidate": "consolidate", "migrate": "migrate"}


def apply_changes(connection: sqlite3.Connection, changes: ChangeSet) -> list[ChangeResult]:
    """Apply a set inside the caller's transaction."""
    applier = _Applier(connection, changes)
    return [applier.apply(change) for change in changes.changes]


class _Applier:
    """One set on its way into the database."""

    def __init__(self, connection: sqlite3.Connection, changes: ChangeSet) -> None:
        self._db = connection
        self._set = changes
        self._now = to_ms(changes.at)
        words = changes.actor.command.split()
        self._restoring = "restore" in words or "undo" in words
        self._action = _ACTIONS.get(words[0]) if words else None

    def apply(self, change: Change) -> ChangeResult:
        """Judge one change, and apply it if nothing speaks against it."""
        done = self._db.execute("SELECT target_id FROM audit WHERE id = ?", (change.id,)).fetchone()
        if done is not None:
            return ChangeResult(change_id=change.id, status=ChangeStatus.ALREADY, target_id=done[0])
        handler: Callable[[Any], ChangeResult] = getattr(self, f"_{change.__struct_config__.tag}")
        return handler(change)

    # -- facts -------------------------------------------------------------------------------

    def _add_fact(self, change: AddFact) -> ChangeResult:
        return self._insert(change, change.fact, ChangeStatus.APPLIED)

    def _insert(
        self, change: AddFact | ReviseFact, fact: Fact, status: ChangeStatus
    ) -> ChangeResult:
        scope = fact.home
        number = scopes.number_of(self._db, scope)
        twin = None if number is None else facts.fact_with_hash(self._db, number, fact.hash)
        if twin is not None:
            return _result(change, ChangeStatus.DUPLICATE, twin, "the scope has the same fact")
        if self._db.execute("SELECT 1 FROM facts WHERE id = ?", (fact.id,)).fetchone():
            return _result(change, ChangeStatus.CONFLICT, fact.id, "another fact has this id")
        scope_id = number or scopes.make_number(self._db, scope)
        facts.insert_fact(self._db, fact, scope_id, self._now)
        if log.last_version(self._db, "fact", fact.id) is not None:
            self._version(change, fact, scope_id, at=self._set.at, action=log.RESTORED)
        self._audit(change, "fact", fact.id, scope, None, plain(fact))
        return _result(change, status, fact.id)

    def _revise_fact(self, change: ReviseFact) -> ChangeResult:
        old = self._fact(change.scope, change.fact_id)
        if old is None or old.fact.version != change.expected_version:
            if change.or_add is not None:
                return self._insert(change, change.or_add, ChangeStatus.ADDED_INSTEAD)
            return (
                _absent(change, change.fact_id)
                if old is None
                else _stale(change, change.fact_id, old.fact.version, change.expected_version)
            )
        digest = content_hash(change.content)
        twin = facts.fact_with_hash(self._db, old.scope_id, digest)
        if twin is not None and twin != change.fact_id:
            self._take_away(change, old, change.at)
            return _result(
                change, ChangeStatus.DUPLICATE, twin, "another fact of the scope has this text"
            )
        sources = dict.fromkeys((*old.fact.source_message_ids, *change.source_message_ids))
        new = _replace(
            old.fact,
            content=change.content,
            hash=digest,
            version=old.fact.version + 1,
            previous_content=old.fact.content,
            updated_at=change.at,
            source_message_ids=tuple(sources),
            embedding=change.embedding,
            embedding_model=change.embedding_model if change.embedding is not None else None,
        )
        log.keep_fact_version(self._db, old.fact, old.scope_id)
        facts.rewrite_fact(self._db, old, new, self._now)
        action = log.RESTORED if self._restoring else self._action or "edit"
        self._version(change, new, old.scope_id, at=change.at, action=action)
        self._audit(change, "fact", new.id, change.scope, plain(old.fact), plain(new))
        return _result(change, ChangeStatus.APPLIED, new.id)

    def _remove_fact(self, change: RemoveFact) -> ChangeResult:
        old = self._fact(change.scope, change.fact_id)
        if old is None:
            return _absent(change, change.fact_id)
        if old.fact.version != change.expected_version:
            return _stale(change, change.fact_id, old.fact.version, change.expected_version)
        self._take_away(change, old, change.at)
        return _result(change, ChangeStatus.APPLIED, change.fact_id)

    def _take_away(self, change: RemoveFact | ReviseFact, old: StoredFact, at: datetime) -> None:
        log.keep_fact_version(self._db, old.fact, old.scope_id)
        facts.delete_fact(self._db, old, self._now)
        self._version(change, old.fact, old.scope_id, at=at, action=log.REMOVED, snapshot=old.fact)
        self._audit(change, "fact", old.fact.id, change.scope, plain(old.fact), None)

    def _fact(self, scope: Scope, fact_id: str) -> StoredFact | None:
        """The fact, if it is in the scope that the change names."""
        found = facts.find_fact(self._db, fact_id)
        return found if found is not None and found.fact.home == scope else None

    def _version(
        self,
        change: Change,
        fact: Fact,
        scope_id: int,
        *,
        at: datetime,
        action: str,
        snapshot: Fact | None = None,
    ) -> None:
        log.add_version(
            self._db,
            "fact",
            fact.id,
            scope_id,
            version=fact.version,
            content=fact.content,
            at=at,
            action=action,
            actor=self._set.actor.name,
            change_id=change.id,
            snapshot=snapshot,
        )

    # -- privacy -----------------------------------------------------------------------------

    def _set_privacy(self, change: SetPrivacy) -> ChangeResult:
        old: Fact | Reflection | None = None
        if change.target_type == "fact":
            stored = self._fact(change.scope, change.target_id)
            old = stored.fact if stored else None
        elif change.target_type == "reflection":
            old = self._reflection(change.scope, change.target_id)
        if old is None:
            return _absent(change, change.target_id)
        self._db.execute(
            f"UPDATE {change.target_type}s SET private = ? WHERE id = ?",
            (change.private, change.target_id),
        )
        self._touch(change.scope)
        after = plain(_replace(old, private=change.private))
        self._audit(change, change.target_type, change.target_id, change.scope, plain(old), after)
        return _result(change, ChangeStatus.APPLIED, change.target_id)

    # -- reflections -------------------------------------------------------------------------

    def _add_reflection(self, change: AddReflection) -> ChangeResult:
        new = change.reflection
        scope = new.home
        known = self._db.execute(f"{codec.REFLECTION} WHERE r.id = ?", (new.id,)).fetchone()
        if known is not None:
            same = codec.reflection_from(known)
            if same.home == scope and same.content == new.content:
                return _result(change, ChangeStatus.DUPLICATE, new.id, "it is there already")
            return _result(change, ChangeStatus.CONFLICT, new.id, "another reflection has this id")
        scope_id = scopes.make_number(self._db, scope)
        self._db.execute(
            "INSERT INTO reflections (id, scope_id, content, formed_at, session_id,"
            " source_message_ids, version, updated_at, absorbed, absorbed_at, consolidated_into,"
            " private, formation_id, propagated_from)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                new.id,
                scope_id,
                new.content,
                to_ms(new.formed_at),
                new.session_id,
                to_list(new.source_message_ids),
                new.version,
                to_ms(new.updated_at),
                new.absorbed,
                to_ms(new.absorbed_at),
                new.consolidated_into,
                new.private,
                new.formation_id,
                to_list(new.propagated_from),
            ),
        )
        if not new.absorbed:
            self._db.execute(
                "INSERT OR IGNORE INTO consolidations (scope_id, id, content, words, version,"
                " word_limit, updated_at) VALUES (?, ?, '', 0, 0, ?, ?)",
                (scope_id, new_id(), change.word_limit, self._now),
            )
        pending = 0 if new.absorbed else 1
        scopes.touch(self._db, scope_id, self._now, reflections=1, pending=pending)
        self._audit(change, "reflection", new.id, scope, None, plain(new))
        return _result(change, ChangeStatus.APPLIED, new.id)

    def _revise_reflection(self, change: ReviseReflection) -> ChangeResult:
        old = self._reflection(change.scope, change.reflection_id)
        if old is None:
            return _absent(change, change.reflection_id)
        if old.absorbed:
            return _result(
                change, ChangeStatus.CONFLICT, old.id, "it has been consolidated meanwhile"
            )
        if old.version != change.expected_version:
            return _stale(change, old.id, old.version, change.expected_version)
        new = _replace(old, content=change.content, version=old.version + 1, updated_at=change.at)
        self._db.execute(
            "UPDATE reflections SET content = ?, version = ?, updated_at = ? WHERE id = ?",
            (new.content, new.version, to_ms(new.updated_at), new.id),
        )
        self._touch(change.scope)
        self._audit(change, "reflection", new.id, change.scope, plain(old), plain(new))
        return _result(change, ChangeStatus.APPLIED, new.id)

    def _remove_reflection(self, change: RemoveReflection) -> ChangeResult:
        old = self._reflection(change.scope, change.reflection_id)
        if old is None:
            return _absent(change, change.reflection_id)
        if old.version != change.expected_version:
            return _stale(change, old.id, old.version, change.expected_version)
        self._db.execute("DELETE FROM reflections WHERE id = ?", (old.id,))
        self._touch(change.scope, reflections=-1, pending=0 if old.absorbed else -1)
        self._audit(change, "reflection", old.id, change.scope, plain(old), None)
        return _result(change, ChangeStatus.APPLIED, old.id)

    def _reflection(self, scope: Scope, reflection_id: str) -> Reflection | None:
        row = self._db.execute(f"{codec.REFLECTION} WHERE r.id = ?", (reflection_id,)).fetchone()
        found = codec.reflection_from(row) if row else None
        return found if found is not None and found.home == scope else None

    # -- texts -------------------------------------------------------------------------------

    def _write_consolidation(self, change: WriteConsolidation) -> ChangeResult:
        from edenmem.text import word_count

        scope = change.scope
        number = scopes.number_of(self._db, scope)
        old = None if number is None else consolidation_of(self._db, number)
        target = old.id if old else ""
        version = old.version if old else 0
        if version != change.expected_version:
            return _stale(change, target, version, change.expected_version)
        absorbed = tuple(dict.fromkeys(change.absorbed_ids))
        gone = set(absorbed).difference(old.unabsorbed_ids if old else ())
        if gone:
            return _result(
                change,
                ChangeStatus.CONFLICT,
                target,
                f"{len(gone)} of the reflections are not in the buffer any more",
            )
        action = log.RESTORED if self._restoring else "consolidate" if absorbed else "edit"
        action = self._action or action
        at = to_ms(change.at)
        scope_id = scopes.make_number(self._db, scope)
        if old is None:
            target = new_id()
            self._db.execute(
                "INSERT INTO consolidations (scope_id, id, content, words, version, word_limit)"
                " VALUES (?, ?, '', 0, 0, 0)",
                (scope_id, target),
            )
        self._db.executemany(
            "UPDATE reflections SET absorbed = 1, absorbed_at = ?, consolidated_into = ?"
            " WHERE id = ?",
            [(at, target, reflection_id) for reflection_id in absorbed],
        )
        self._db.execute(
            "UPDATE consolidations SET content = ?, words = ?, version = ?, word_limit = ?,"
            " absorbed_ids = ?, updated_at = ?,"
            " last_consolidated_at = iif(?, ?, last_consolidated_at) WHERE scope_id = ?",
            (
                change.content,
                word_count(change.content),
                version + 1,
                change.word_limit,
                to_list(absorbed),
                at,
                action == "consolidate" or bool(absorbed),
                at,
                scope_id,
            ),
        )
        log.add_version(
            self._db,
            "consolidation",
            target,
            scope_id,
            version=version + 1,
            content=change.content,
            at=change.at,
            action=action,
            actor=self._set.actor.name,
            change_id=change.id,
            absorbed_ids=absorbed,
        )
        scopes.touch(self._db, scope_id, self._now, pending=-len(absorbed))
        new = consolidation_of(self._db, scope_id)
        assert new is not None
        self._audit(
            change, "consolidation", target, scope, None if old is None else plain(old), plain(new)
        )
        return _result(change, ChangeStatus.APPLIED, target)

    # -- settings ----------------------------------------------------------------------------

    def _write_policy(self, change: WritePolicy) -> ChangeResult:
        scope = change.policy.home
        number = scopes.number_of(self._db, scope)
        old = None if number is None else policy_of(self._db, number)
        version = old.version if old else 0
        if version != change.expected_version:
            return _stale(
                change, old.id if old else change.policy.id, version, change.expected_version
            )
        new = _replace(
            change.policy,
            id=old.id if old else change.policy.id,
            version=version + 1,
            updated_at=change.at,
        )
        scope_id = scopes.make_number(self._db, scope)
        self._db.execute(
            "INSERT OR REPLACE INTO policies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (scope_id, *_policy_columns(new)),
        )
        scopes.touch(self._db, scope_id, self._now)
        self._audit(
            change, "policy", new.id, scope, None if old is None else plain(old), plain(new)
        )
        return _result(change, ChangeStatus.APPLIED, new.id)

    def _set_agent_toggles(self, change: SetAgentToggles) -> ChangeResult:
        old = agent_of(self._db, change.agent_id)
        if old is None:
            return _absent(change, change.agent_id)
        new = old
        if change.user_memory_enabled is not None:
            new = _replace(new, user_memory_enabled=change.user_memory_enabled)
        if change.agent_memory_enabled is not None:
            new = _replace(new, agent_memory_enabled=change.agent_memory_enabled)
        self._db.execute(
            "UPDATE agents SET user_memory_enabled = ?, agent_memory_enabled = ? WHERE id = ?",
            (new.user_memory_enabled, new.agent_memory_enabled, new.id),
        )
        self._touch(Scope.agent(new.id))
        self._audit(change, "agent", new.id, None, plain(old), plain(new))
        return _result(change, ChangeStatus.APPLIED, new.id)

    # -- what all do -------------------------------------------------------------------------

    def _touch(self, scope: Scope, *, reflections: int = 0, pending: int = 0) -> None:
        number = scopes.make_number(self._db, scope)
        scopes.touch(self._db, number, self._now, reflections=reflections, pending=pending)

    def _audit(
        self,
        change: Change,
        target_type: str,
        target_id: str,
        scope: Scope | None,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
    ) -> None:
        log.add_audit(
            self._db,
            change.id,
            change_set_id=self._set.id,
            at=self._set.at,
            actor=self._set.actor,
            action=str(change.__struct_config__.tag),
            target_type=target_type,
            target_id=target_id,
            agent_id=scope.agent_id if scope else target_id,
            scope_id=scopes.number_of(self._db, scope) if scope else None,
            before=before,
            after=after,
            reason=change.reason,
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


def _result(change: Change, status: ChangeStatus, target_id: str, detail: str = "") -> ChangeResult:
    return ChangeResult(change_id=change.id, status=status, target_id=target_id, detail=detail)


def _absent(change: Change, target_id: str) -> ChangeResult:
    return _result(change, ChangeStatus.MISSING, target_id, "it is not there, or not in this scope")


def _stale(change: Change, target_id: str, found: int, expected: int) -> ChangeResult:
    return _result(
        change,
        ChangeStatus.CONFLICT,
        target_id,
        f"somebody changed it: it is version {found} now, and version {expected} was expected",
    )
