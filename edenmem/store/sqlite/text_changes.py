"""Changes to consolidated texts."""

from __future__ import annotations

from edenmem.models.changes import ChangeResult, ChangeStatus, WriteConsolidation, version_action
from edenmem.models.ids import new_id
from edenmem.store.sqlite import log, scopes
from edenmem.store.sqlite.codec import plain, to_list, to_ms
from edenmem.store.sqlite.judging import Judging, result, stale
from edenmem.store.sqlite.memory import consolidation_of
from edenmem.store.sqlite.part import json_array


class TextChanges(Judging):
    """Writes texts, which takes reflections out of buffers."""

    def _write_consolidation(self, change: WriteConsolidation) -> ChangeResult:
        from edenmem.text import word_count

        scope = change.scope
        number = scopes.number_of(self._db, scope)
        old = None if number is None else consolidation_of(self._db, number)
        target = old.id if old else ""
        version = old.version if old else 0
        if version != change.expected_version:
            return stale(change, target, version, change.expected_version)
        absorbed = tuple(dict.fromkeys(change.absorbed_ids))
        gone = set(absorbed).difference(old.unabsorbed_ids if old else ())
        if gone:
            return result(
                change,
                ChangeStatus.CONFLICT,
                target,
                f"{len(gone)} of the reflections are not in the buffer any more",
            )
        at = to_ms(change.at)
        unpropagated = old.unpropagated_versions if old else ()
        if change.propagate:
            unpropagated = (*unpropagated, version + 1)
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
            " absorbed_ids = ?, updated_at = ?, unpropagated = ?,"
            " last_consolidated_at = iif(?, ?, last_consolidated_at) WHERE scope_id = ?",
            (
                change.content,
                word_count(change.content),
                version + 1,
                change.word_limit,
                to_list(absorbed),
                at,
                json_array(unpropagated) if unpropagated else None,
                bool(absorbed),
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
            action=version_action(change, self._set.actor),
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
        return result(change, ChangeStatus.APPLIED, target)
