"""Changes of facts that are there: revising and removing."""

from __future__ import annotations

from typing import Any

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ScopeError
from edenmem.models.changes import ChangeResult, ChangeStatus, RemoveFact, ReviseFact
from edenmem.models.ids import utc_now
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.mongo.apply.fact_additions import Addition, FactAdditionsPart
from edenmem.store.mongo.apply.ledger import Run, result
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.errors import index_in
from edenmem.store.mongo.core.filters import object_id, object_ids
from edenmem.store.mongo.memory.history import DELETED, Kept, fact_version, make_version, plain


class FactChangesPart(FactAdditionsPart):
    """Alters facts, each by one conditional write on its document."""

    # -- revising ----------------------------------------------------------------------------

    def _revise_fact(self, run: Run, change: ReviseFact) -> ChangeResult:
        document = self._fact_in(change.scope, change.fact_id)
        if document is None:
            missing = result(change, ChangeStatus.MISSING, change.fact_id, "there is no such fact")
            return self._otherwise(run, change) or missing
        fact = codec.fact_from(document)
        if fact.version != change.expected_version:
            return self._otherwise(run, change) or _changed(change, fact)
        revised = change.revise(fact)
        entry = run.entry(
            change,
            target_type="fact",
            target_id=fact.id,
            agent_id=fact.agent_id,
            scope=fact.home,
            before=plain(fact),
            after=plain(revised),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        self._keep_version(fact_version(document))
        try:
            written = self._facts.find_and_update(
                codec.version_filter(document),
                self._revision(run, change, revised, is_new_text=revised.hash != fact.hash),
                projection=codec.NO_VECTOR,
            )
        except DuplicateKeyError as error:
            return self._make_way(run, change, revised, index_in(error.details or {}))
        if written is None:
            run.resumed.add(change.id)  # by now it may have been made by a twin of this run
            return self._otherwise(run, change) or _changed(change, fact)
        self._keep_version(fact_version(written))
        return run.applied(change, fact.id, fact.home)

    def _revision(
        self, run: Run, change: ReviseFact, revised: Fact, *, is_new_text: bool
    ) -> Document:
        vector, others = dict[str, Any](), dict[str, Any]()
        if is_new_text or change.embedding is not None:
            vector, others = self._vector_update(
                change.embedding, change.embedding_model, revised.hash
            )
        fields = {
            "content": revised.content,
            "hash": revised.hash,
            "previous_content": revised.previous_content,
            "updated_at": revised.updated_at,
            "version": revised.version,
            "source_message_ids": object_ids(revised.source_message_ids),
            "updatedAt": utc_now(),
            **vector,
            **run.mark(change, revised.version, change.at),
        }
        # The old text's vectors would find the new one by what it no longer says.
        return {"$set": fields, "$unset": others} if others else {"$set": fields}

    def _otherwise(self, run: Run, change: ReviseFact) -> ChangeResult | None:
        """The target is not as it was when the decision was made: either by this very change, or
        what was learned is inserted beside it."""
        if self._begun_elsewhere(run, change):
            return run.answer(change) if run.answers(change) else self._revise_fact(run, change)
        made = self._revised_before(run, change) if change.id in run.resumed else None
        if made is not None or change.or_add is None:
            return made
        (added,) = self._add_facts(run, [Addition(change, change.or_add)])
        if added.status is ChangeStatus.APPLIED:
            return msgspec.structs.replace(added, status=ChangeStatus.ADDED_INSTEAD)
        return added

    def _revised_before(self, run: Run, change: ReviseFact) -> ChangeResult | None:
        """Whether a change whose entry is pending was made, whatever was made after it."""
        document = self._fact_in(change.scope, change.fact_id)
        if document is not None and codec.text_id(document.get("last_change_id")) == change.id:
            self._keep_version(fact_version(document))
            return run.already(change, change.fact_id, change.scope)
        made = self._history_by("fact", change.fact_id, change.id)
        if made is not None and (not made.is_tombstone or document is None):
            return run.already(change, change.fact_id, change.scope)
        return None

    def _make_way(self, run: Run, change: ReviseFact, revised: Fact, index: str) -> ChangeResult:
        """Another fact of the scope has the new text: the target goes in its favour."""
        same = self.facts_by_hashes(change.scope, [revised.hash]).get(revised.hash)
        if same is None:
            refused = self._refused_by(run, change, change.fact_id, index)
            if run.refusal is not None:
                self._withdraw(run, [change.id])
                return refused
            return self._otherwise(run, change) or refused
        removal = RemoveFact(
            id=change.id,
            reason=change.reason,
            scope=change.scope,
            fact_id=change.fact_id,
            expected_version=change.expected_version,
            at=change.at,
        )
        removed = self._remove_fact(run, removal, change)
        if not removed.ok:
            return removed
        return result(change, ChangeStatus.DUPLICATE, same.id)

    # -- removing ----------------------------------------------------------------------------

    def _remove_fact(
        self, run: Run, change: RemoveFact, cause: RemoveFact | ReviseFact | None = None
    ) -> ChangeResult:
        """Remove a fact. ``cause`` is the change that the audit entry tells of."""
        document = self._fact_in(change.scope, change.fact_id, with_vector=True)
        if change.id in run.resumed and document is None:
            tombstone = self._history_by("fact", change.fact_id, change.id)
            if tombstone is not None:
                return run.already(change, change.fact_id, change.scope)
        if document is None:
            return result(change, ChangeStatus.MISSING, change.fact_id, "there is no such fact")
        fact = codec.fact_from(document, with_vector=True)
        life = codec.number(document.get("life"))
        back = self._removed_and_back(run, change, fact, life) if change.id in run.resumed else None
        if back is not None or fact.version != change.expected_version:
            return back or _changed(change, fact)
        entry = run.entry(
            cause or change,
            target_type="fact",
            target_id=fact.id,
            agent_id=fact.agent_id,
            scope=fact.home,
            before=plain(fact),
        )
        if not self._begin(run, entry):
            return run.answer(change)
        # Version and tombstone are there before the fact goes; until then readers of history leave
        # the tombstone out, and for ever if the removal loses to another write.
        self._keep_version(fact_version(document))
        tombstone = _tombstone(run, change, fact, life)
        mine = self._keep_tombstone(tombstone)
        if self._facts.delete_one(codec.version_filter(document)):
            if not mine:
                self._keep_version(tombstone)
            return run.applied(change, fact.id, fact.home)
        return self._not_removed(run, change, fact)

    def _not_removed(self, run: Run, change: RemoveFact, fact: Fact) -> ChangeResult:
        current = self._fact_in(change.scope, change.fact_id)
        if current is None and not self._removed_by_other(change, fact.id, fact.version):
            return run.already(change, fact.id, fact.home)
        self._withdraw(run, [change.id])
        if current is None:
            return result(change, ChangeStatus.MISSING, fact.id, "it was removed meanwhile")
        return _changed(change, codec.fact_from(current))

    def _removed_and_back(
        self, run: Run, change: RemoveFact, fact: Fact, life: int
    ) -> ChangeResult | None:
        """A removal that was made, after which somebody restored the fact."""
        tombstone = self._history_by("fact", fact.id, change.id)
        if tombstone is None or tombstone.life >= life:
            return None
        return run.already(change, fact.id, change.scope)

    # -- shared ------------------------------------------------------------------------------

    def _fact_in(self, scope: Scope, fact_id: str, *, with_vector: bool = False) -> Document | None:
        """The fact's document, if it is one of the scope's."""
        projection = None if with_vector else codec.NO_VECTOR
        found = self._facts.find_one({"_id": object_id(fact_id)}, projection)
        return found if found is not None and _home(found) == scope else None


def _home(document: Document) -> Scope | None:
    try:
        return codec.fact_from(document).home
    except ScopeError:
        return None


def _tombstone(run: Run, change: RemoveFact, fact: Fact, life: int) -> Kept:
    return make_version(
        life,
        target_type="fact",
        target_id=fact.id,
        scope=fact.home,
        version=fact.version,
        content=fact.content,
        at=change.at,
        action=DELETED,
        actor=run.set.actor.name,
        change_id=change.id,
        snapshot=fact,
    )


def _changed(change: ReviseFact | RemoveFact, fact: Fact) -> ChangeResult:
    detail = f"it is at version {fact.version}, not {change.expected_version}"
    return result(change, ChangeStatus.CONFLICT, change.fact_id, detail)
