"""Changes to consolidated texts, and thereby to buffers."""

from __future__ import annotations

from edenmem.models.changes import (
    ChangeResult,
    ChangeStatus,
    RepairBuffer,
    RevertConsolidation,
    WriteConsolidation,
    version_action,
)
from edenmem.models.ids import new_id
from edenmem.models.memory import Consolidation
from edenmem.models.scope import Scope
from edenmem.store.sqlite.apply.judging import Judging, result, stale
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import plain, to_list, to_ms
from edenmem.store.sqlite.core.part import json_array
from edenmem.store.sqlite.memory import log
from edenmem.store.sqlite.memory.memory import consolidation_of

_COUNTS = ("facts", "reflections", "pending")


class TextChanges(Judging):
    """Writes texts, which takes reflections out of buffers, and takes that back."""

    def _write_consolidation(self, change: WriteConsolidation) -> ChangeResult:
        old = self._text(change.scope)
        version = old.version if old else 0
        if version != change.expected_version:
            return stale(change, old.id if old else "", version, change.expected_version)
        absorbed = tuple(dict.fromkeys(change.absorbed_ids))
        gone = set(absorbed).difference(old.unabsorbed_ids if old else ())
        if gone:
            return result(
                change,
                ChangeStatus.CONFLICT,
                old.id if old else "",
                f"{len(gone)} of the reflections are not in the buffer any more",
            )
        unpropagated = old.unpropagated_versions if old else ()
        if change.propagate:
            unpropagated = (*unpropagated, change.next_version)
        target = self._place(change.scope, old)
        at = to_ms(change.at)
        self._db.executemany(
            "UPDATE reflections SET absorbed = 1, absorbed_at = ?, consolidated_into = ?"
            " WHERE id = ?",
            [(at, target, reflection_id) for reflection_id in absorbed],
        )
        return self._next_version(change, old, absorbed, unpropagated)

    def _revert_consolidation(self, change: RevertConsolidation) -> ChangeResult:
        old = self._text(change.scope)
        version = old.version if old else 0
        if old is None or version != change.expected_version:
            return stale(change, old.id if old else "", version, change.expected_version)
        released = tuple(dict.fromkeys(change.released_ids))
        (absorbed,) = self._db.execute(
            "SELECT count(*) FROM reflections JOIN scopes USING (scope_id)"
            " WHERE id IN (SELECT value FROM json_each(?)) AND absorbed = 1"
            " AND (kind, agent_id, owner) = (?, ?, ?)",
            (json_array(released), change.scope.kind, change.scope.agent_id, change.scope.owner),
        ).fetchone()
        if absorbed < len(released):
            gone = len(released) - absorbed
            detail = f"{gone} of the reflections are not consolidated, or not there any more"
            return result(change, ChangeStatus.CONFLICT, old.id, detail)
        self._db.executemany(
            "UPDATE reflections SET absorbed = 0, absorbed_at = NULL, consolidated_into = NULL"
            " WHERE id = ?",
            [(reflection_id,) for reflection_id in released],
        )
        left = tuple(v for v in old.unpropagated_versions if v not in change.reverted_versions)
        return self._next_version(change, old, (), left, released=len(released))

    def _text(self, scope: Scope) -> Consolidation | None:
        number = scopes.number_of(self._db, scope)
        return None if number is None else consolidation_of(self._db, number)

    def _place(self, scope: Scope, old: Consolidation | None) -> str:
        """The id of the scope's text, which is made if there is none."""
        if old is not None:
            return old.id
        target = new_id()
        self._db.execute(
            "INSERT INTO consolidations (scope_id, id, content, words, version, word_limit)"
            " VALUES (?, ?, '', 0, 0, 0)",
            (scopes.make_number(self._db, scope), target),
        )
        return target

    def _next_version(
        self,
        change: WriteConsolidation | RevertConsolidation,
        old: Consolidation | None,
        absorbed: tuple[str, ...],
        unpropagated: tuple[int, ...],
        *,
        released: int = 0,
    ) -> ChangeResult:
        from edenmem.text import word_count

        scope_id = scopes.make_number(self._db, change.scope)
        at, version = to_ms(change.at), change.next_version
        self._db.execute(
            "UPDATE consolidations SET content = ?, words = ?, version = ?, word_limit = ?,"
            " absorbed_ids = ?, updated_at = ?, unpropagated = ?,"
            " last_consolidated_at = iif(?, ?, last_consolidated_at) WHERE scope_id = ?",
            (
                change.content,
                word_count(change.content),
                version,
                change.word_limit,
                to_list(absorbed),
                at,
                json_array(unpropagated) if unpropagated else None,
                bool(absorbed),
                at,
                scope_id,
            ),
        )
        new = consolidation_of(self._db, scope_id)
        assert new is not None
        log.add_version(
            self._db,
            "consolidation",
            new.id,
            scope_id,
            version=version,
            content=change.content,
            at=change.at,
            action=version_action(change, self._set.actor),
            actor=self._set.actor.name,
            change_id=change.id,
            absorbed_ids=absorbed,
        )
        scopes.touch(self._db, scope_id, self._now, pending=released - len(absorbed))
        before = None if old is None else plain(old)
        self._audit(change, "consolidation", new.id, change.scope, before, plain(new))
        return result(change, ChangeStatus.APPLIED, new.id)

    def _repair_buffer(self, change: RepairBuffer) -> ChangeResult:
        number = scopes.make_number(self._db, change.scope)
        counted = "SELECT facts, reflections, pending FROM scopes WHERE scope_id = ?"
        before = self._db.execute(counted, (number,)).fetchone()
        self._db.execute(
            "UPDATE scopes SET facts = (SELECT count(*) FROM facts WHERE scope_id = ?1),"
            " reflections = (SELECT count(*) FROM reflections WHERE scope_id = ?1),"
            " pending = (SELECT count(*) FROM reflections WHERE scope_id = ?1 AND absorbed = 0)"
            " WHERE scope_id = ?1",
            (number,),
        )
        after = self._db.execute(counted, (number,)).fetchone()
        old = consolidation_of(self._db, number)
        if before == after and (old is not None or not after[2]):
            return result(change, ChangeStatus.ALREADY, old.id if old else "", "it is in order")
        target = self._place(change.scope, old)
        scopes.touch(self._db, number, self._now)
        told = [
            dict(zip(_COUNTS, counts, strict=True)) | {"id": target} for counts in (before, after)
        ]
        self._audit(change, "consolidation", target, change.scope, *told)
        return result(change, ChangeStatus.APPLIED, target)
