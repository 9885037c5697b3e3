"""Changes to facts."""

from __future__ import annotations

from datetime import datetime

from edenmem.models.changes import (
    AddFact,
    Change,
    ChangeResult,
    ChangeStatus,
    RemoveFact,
    ReviseFact,
    version_action,
)
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from edenmem.store.sqlite.apply.judging import Judging, absent, result, stale
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import plain
from edenmem.store.sqlite.memory import facts, log
from edenmem.store.sqlite.memory.facts import StoredFact


class FactChanges(Judging):
    """Adds, revises and removes facts."""

    def _add_fact(self, change: AddFact) -> ChangeResult:
        return self._insert(change, change.fact, ChangeStatus.APPLIED)

    def _insert(
        self, change: AddFact | ReviseFact, fact: Fact, status: ChangeStatus
    ) -> ChangeResult:
        scope = fact.home
        number = scopes.number_of(self._db, scope)
        twin = None if number is None else facts.fact_with_hash(self._db, number, fact.hash)
        if twin is not None:
            self._audit(change, "fact", twin, scope, action=log.VOID)
            return result(change, ChangeStatus.DUPLICATE, twin, "the scope has the same fact")
        if self._db.execute("SELECT 1 FROM facts WHERE id = ?", (fact.id,)).fetchone():
            return result(change, ChangeStatus.CONFLICT, fact.id, "another fact has this id")
        scope_id = number or scopes.make_number(self._db, scope)
        facts.insert_fact(self._db, fact, scope_id, self._now)
        if log.last_version(self._db, "fact", fact.id) is not None:
            self._version(change, fact, scope_id, at=self._set.at, action=log.RESTORED)
        self._audit(change, "fact", fact.id, scope, None, plain(fact))
        return result(change, status, fact.id)

    def _revise_fact(self, change: ReviseFact) -> ChangeResult:
        old = self._fact(change.scope, change.fact_id)
        if old is None or old.fact.version != change.expected_version:
            if change.or_add is not None:
                return self._insert(change, change.or_add, ChangeStatus.ADDED_INSTEAD)
            return (
                absent(change, change.fact_id)
                if old is None
                else stale(change, change.fact_id, old.fact.version, change.expected_version)
            )
        digest = content_hash(change.content)
        twin = facts.fact_with_hash(self._db, old.scope_id, digest)
        if twin is not None and twin != change.fact_id:
            self._take_away(change, old, change.at)
            return result(
                change, ChangeStatus.DUPLICATE, twin, "another fact of the scope has this text"
            )
        new = change.revised(old.fact)
        log.keep_fact_version(self._db, old.fact, old.scope_id)
        facts.rewrite_fact(self._db, old, new, self._now)
        self._version(
            change, new, old.scope_id, at=change.at, action=version_action(change, self._set.actor)
        )
        self._audit(change, "fact", new.id, change.scope, plain(old.fact), plain(new))
        return result(change, ChangeStatus.APPLIED, new.id)

    def _remove_fact(self, change: RemoveFact) -> ChangeResult:
        old = self._fact(change.scope, change.fact_id)
        if old is None:
            return absent(change, change.fact_id)
        if old.fact.version != change.expected_version:
            return stale(change, change.fact_id, old.fact.version, change.expected_version)
        self._take_away(change, old, change.at)
        return result(change, ChangeStatus.APPLIED, change.fact_id)

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
