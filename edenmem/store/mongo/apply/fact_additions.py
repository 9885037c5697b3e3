"""Adding facts: many at once, whatever some of them meet with."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edenmem.errors import ScopeError
from edenmem.models.changes import AddFact, AuditEntry, ChangeResult, ChangeStatus, ReviseFact
from edenmem.models.ids import utc_now
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.mongo.apply.ledger import LedgerPart, Run, result
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.filters import id_parts, object_id
from edenmem.store.mongo.indexes.fact_key import FactKeyPart
from edenmem.store.mongo.memory.history import RESTORED, Kept, fact_version, history_from, plain
from edenmem.store.mongo.search.slots import SlotPart


class Addition(msgspec.Struct, frozen=True):
    """A fact to insert, and the change that wants it."""

    change: AddFact | ReviseFact
    fact: Fact


class FactAdditionsPart(LedgerPart, SlotPart, FactKeyPart):
    """Inserts facts in a handful of round trips for all of them."""

    def _add_facts(self, run: Run, additions: Sequence[Addition]) -> list[ChangeResult]:
        results: dict[str, ChangeResult] = {}
        new: list[Addition] = []
        for addition in additions:
            found = self._added_before(run, addition) or _unfit(addition)
            if found is None:
                new.append(addition)
            else:
                results[addition.change.id] = found
        if new:
            results.update(self._insert_facts(run, new))
        return [results[addition.change.id] for addition in additions]

    def _added_before(self, run: Run, addition: Addition) -> ChangeResult | None:
        """For a change whose entry is pending: whether its fact was inserted, whatever became of
        it afterwards."""
        if addition.change.id not in run.resumed:
            return None
        document = self._facts.find_one({"_id": object_id(addition.fact.id)}, codec.NO_VECTOR)
        if document is not None and _made_by(document, addition) and document.get("life"):
            self._keep_version(fact_version(document))
        return self._was_added(run, addition, document)

    def _was_added(
        self, run: Run, addition: Addition, document: Document | None
    ) -> ChangeResult | None:
        change, fact = addition.change, addition.fact
        made = document is not None and _made_by(document, addition)
        if made or self._history_by("fact", fact.id, change.id) is not None:
            return run.already(change, fact.id, fact.home)
        return None

    def _insert_facts(self, run: Run, additions: Sequence[Addition]) -> dict[str, ChangeResult]:
        buried = self._buried([addition.fact.id for addition in additions])
        additions = [_continued(addition, buried.get(addition.fact.id)) for addition in additions]
        self._begin_many(run, [_entry(run, addition) for addition in additions])
        answered = {a.change.id: run.answer(a.change) for a in additions if run.answers(a.change)}
        open_ = [addition for addition in additions if addition.change.id not in answered]
        documents = [self._new_fact(run, a, buried.get(a.fact.id)) for a in open_]
        refused = self._facts.insert_new(documents)
        results = self._refusals(run, [(open_[place], refused[place]) for place in sorted(refused)])
        for place, addition in enumerate(open_):
            if place in refused:
                continue
            change, fact = addition.change, addition.fact
            if fact.id in buried:
                self._keep_version(fact_version(documents[place]))
            results[change.id] = run.applied(change, fact.id, fact.home)
        self._dismiss(run, results.values())
        return {**answered, **results}

    def _new_fact(self, run: Run, addition: Addition, tombstone: Kept | None) -> Document:
        fact = addition.fact
        bare = msgspec.structs.replace(fact, embedding=None)
        vector, _ = self._vector_update(fact.embedding, fact.embedding_model, fact.hash)
        document = {
            **codec.fact_document(bare, at=utc_now(), storage="array"),
            **vector,
            **run.mark(addition.change, fact.version, fact.recent_at),
        }
        if tombstone is not None:
            document["life"] = tombstone.life + 1
            document["last_version"] |= {"at": run.set.at, "action": RESTORED}
        return document

    def _buried(self, fact_ids: Sequence[str]) -> dict[str, Kept]:
        """The tombstone of each fact that was removed. Adding such a fact restores it: its
        numbers of versions go on."""
        latest: dict[str, Kept] = {}
        filters = [
            {"target_type": "fact", "target_id": {"$in": part}} for part in id_parts(fact_ids)
        ]
        for version in map(history_from, self._find_all(self._history, filters)):
            known = latest.get(version.entry.target_id)
            if known is None or version.place > known.place:
                latest[version.entry.target_id] = version
        return {key: version for key, version in latest.items() if version.is_tombstone}

    def _refusals(
        self, run: Run, refused: Sequence[tuple[Addition, str]]
    ) -> dict[str, ChangeResult]:
        """Why a unique index, which is named with each, refused each of these."""
        if not refused:
            return {}
        additions = [addition for addition, _ in refused]
        filters = [{"_id": {"$in": part}} for part in id_parts(a.fact.id for a in additions)]
        documents = self._find_all(self._facts, filters, codec.NO_VECTOR)
        taken = {str(document["_id"]): document for document in documents}
        hashes: dict[Scope, list[str]] = {}
        for addition in additions:
            hashes.setdefault(addition.fact.home, []).append(addition.fact.hash)
        same = {scope: self.facts_by_hashes(scope, wanted) for scope, wanted in hashes.items()}
        return {
            addition.change.id: self._refusal(
                run,
                addition,
                taken.get(addition.fact.id),
                same[addition.fact.home].get(addition.fact.hash),
                index,
            )
            for addition, index in refused
        }

    def _refusal(
        self,
        run: Run,
        addition: Addition,
        taken: Document | None,
        same: Fact | None,
        index: str,
    ) -> ChangeResult:
        change, fact = addition.change, addition.fact
        if taken is not None:
            mine = self._was_added(run, addition, taken)
            if mine is not None:
                return mine
        if same is not None:
            detail = "the scope has the same fact"
            return result(change, ChangeStatus.DUPLICATE, same.id, detail)
        if taken is not None:
            return result(change, ChangeStatus.CONFLICT, fact.id, "another fact has its id")
        return self._refused_by(run, change, fact.id, index)

    def _refused_by(
        self, run: Run, change: AddFact | ReviseFact, fact_id: str, index: str
    ) -> ChangeResult:
        """The answer to a change that a unique index refused, although no fact of its scope has
        the text. A foreign index fails the whole run, or what was learned would be lost."""
        foreign = self._refusing_index(index)
        if foreign is not None:
            run.refusal = foreign
            return result(change, ChangeStatus.CONFLICT, fact_id, foreign.message)
        detail = "the same fact was there and is gone again"
        return result(change, ChangeStatus.CONFLICT, fact_id, detail)


def _made_by(document: Document, addition: Addition) -> bool:
    return codec.text_id(document.get("last_change_id")) == addition.change.id


def _unfit(addition: Addition) -> ChangeResult | None:
    """A fact that belongs to nobody is refused; the others of the set are not."""
    try:
        _ = addition.fact.home
    except ScopeError as error:
        return result(addition.change, ChangeStatus.CONFLICT, addition.fact.id, error.message)
    return None


def _continued(addition: Addition, tombstone: Kept | None) -> Addition:
    """A restored fact is never of an older version than the one that was removed."""
    if tombstone is None or addition.fact.version >= tombstone.entry.version:
        return addition
    fact = msgspec.structs.replace(addition.fact, version=tombstone.entry.version)
    return msgspec.structs.replace(addition, fact=fact)


def _entry(run: Run, addition: Addition) -> AuditEntry:
    fact = addition.fact
    return run.entry(
        addition.change,
        target_type="fact",
        target_id=fact.id,
        agent_id=fact.agent_id,
        scope=fact.home,
        after=plain(fact),
    )
