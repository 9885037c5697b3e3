"""Changes of facts: adding many, revising, removing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from pymongo.errors import DuplicateKeyError

from edenmem.errors import ScopeError
from edenmem.models.changes import (
    AddFact,
    ChangeResult,
    ChangeStatus,
    RemoveFact,
    ReviseFact,
)
from edenmem.models.ids import utc_now
from edenmem.models.memory import Fact, content_hash
from edenmem.models.scope import Scope
from edenmem.store.mongo import codec
from edenmem.store.mongo.collection import Document
from edenmem.store.mongo.filters import id_parts, object_id, object_ids
from edenmem.store.mongo.history import (
    DELETED,
    Kept,
    fact_version,
    history_from,
    kept,
    plain,
)
from edenmem.store.mongo.ledger import Begun, LedgerPart, Run, result


class Addition(msgspec.Struct, frozen=True):
    """A fact to insert, and the change that wants it."""

    change: AddFact | ReviseFact
    fact: Fact


class FactChangesPart(LedgerPart):
    """Alters facts, each by one conditional write on its document."""

    # -- adding ------------------------------------------------------------------------------

    def _add_facts(self, run: Run, additions: Sequence[Addition]) -> list[ChangeResult]:
        """Insert what is new, in a handful of round trips for all."""
        results: dict[str, ChangeResult] = {}
        fresh: list[Addition] = []
        for addition in additions:
            found = self._added_before(run, addition) or _unfit(addition)
            if found is None:
                fresh.append(addition)
            else:
                results[addition.change.id] = found
        for found in self._insert_facts(run, fresh) if fresh else ():
            results[found.change_id] = found
        return [results[addition.change.id] for addition in additions]

    def _added_before(self, run: Run, addition: Addition) -> ChangeResult | None:
        """For a change whose entry is pending: whether its fact was inserted, whatever became of
        it afterwards."""
        change, fact = addition.change, addition.fact
        if change.id not in run.resumed:
            return None
        document = self._facts.find_one({"_id": object_id(fact.id)}, codec.NO_VECTOR)
        made = document is not None and codec.text_id(document.get("last_change_id")) == change.id
        if made or self._history_by("fact", fact.id, change.id) is not None:
            return run.already(change, fact.id, fact.home)
        return None

    def _insert_facts(self, run: Run, additions: Sequence[Addition]) -> list[ChangeResult]:
        buried = self._buried([addition.fact.id for addition in additions])
        facts: list[Fact] = []
        for addition in additions:
            tombstone = buried.get(addition.fact.id)
            version = max(addition.fact.version, tombstone.entry.version if tombstone else 0)
            facts.append(msgspec.structs.replace(addition.fact, version=version))
        begun = self._begin_all(run, additions, facts)
        documents = [self._new_fact(run, a, f) for a, f in zip(additions, facts, strict=True)]
        for document in documents:
            tombstone = buried.get(str(document["_id"]))
            if tombstone is not None:
                document["life"] = tombstone.life + 1
        refused = self._facts.insert_new(documents)
        results: list[ChangeResult] = []
        for place, (addition, fact) in enumerate(zip(additions, facts, strict=True)):
            change = addition.change
            if begun[place] is Begun.DONE:
                results.append(result(change, ChangeStatus.ALREADY, fact.id))
            elif place in refused:
                results.append(self._refused(run, addition))
            else:
                if fact.id in buried:
                    self._keep_version(_restored(fact_version(documents[place]), run.set.at))
                results.append(run.applied(change, fact.id, fact.home))
        self._withdraw(run, (r.change_id for r in results if not _stands(r)))
        return results

    def _begin_all(
        self, run: Run, additions: Sequence[Addition], facts: Sequence[Fact]
    ) -> list[Begun]:
        entries = [
            run.entry(
                addition.change,
                target_type="fact",
                target_id=fact.id,
                agent_id=fact.agent_id,
                scope=fact.home,
                after=plain(fact),
            )
            for addition, fact in zip(additions, facts, strict=True)
        ]
        return self._begin_many(run, entries)

    def _new_fact(self, run: Run, addition: Addition, fact: Fact) -> Document:
        made = codec.mark(
            addition.change.id,
            fact.version,
            action=run.action(addition.change),
            actor=run.set.actor.name,
        )
        storage = self._settings.embedding_storage
        return {**codec.fact_document(fact, at=utc_now(), storage=storage), **made}

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

    def _refused(self, run: Run, addition: Addition) -> ChangeResult:
        """Why a unique index refused a fact."""
        change, fact = addition.change, addition.fact
        taken = self._facts.find_one({"_id": object_id(fact.id)}, codec.NO_VECTOR)
        if taken is not None:
            mine = codec.text_id(taken.get("last_change_id")) == change.id
            if mine or self._history_by("fact", fact.id, change.id) is not None:
                return run.already(change, fact.id, fact.home)
            other = codec.fact_from(taken)
            if (other.home, other.hash) != (fact.home, fact.hash):
                detail = "its id is taken by another fact"
                return result(change, ChangeStatus.CONFLICT, fact.id, detail)
            return result(change, ChangeStatus.DUPLICATE, other.id)
        same = self.facts_by_hashes(fact.home, [fact.hash]).get(fact.hash)
        if same is not None:
            return result(change, ChangeStatus.DUPLICATE, same.id)
        detail = "the same fact was there and is gone again"
        return result(change, ChangeStatus.CONFLICT, fact.id, detail)

    # -- revising ----------------------------------------------------------------------------

    def _revise_fact(self, run: Run, change: ReviseFact) -> ChangeResult:
        found = self._revised_before(run, change)
        if found is not None:
            return found
        document = self._fact_in(change.scope, change.fact_id)
        if document is None:
            missing = result(change, ChangeStatus.MISSING, change.fact_id, "there is no such fact")
            return self._instead(run, change) or missing
        fact = codec.fact_from(document)
        if fact.version != change.expected_version:
            return self._instead(run, change) or _changed(change, fact)
        revised = _revised(fact, change)
        entry = run.entry(
            change,
            target_type="fact",
            target_id=fact.id,
            agent_id=fact.agent_id,
            scope=fact.home,
            before=plain(fact),
            after=plain(revised),
        )
        if self._begin(run, entry) is Begun.DONE:
            return result(change, ChangeStatus.ALREADY, fact.id)
        self._keep_version(fact_version(document))
        try:
            written = self._facts.find_and_update(
                codec.version_filter(document),
                self._revision(run, change, revised),
                projection=codec.NO_VECTOR,
            )
        except DuplicateKeyError:
            return self._make_way(run, change, revised)
        if written is None:
            return self._revised_before(run, change, raced=True) or self._lost(run, change, fact)
        self._keep_version(fact_version(written))
        return run.applied(change, fact.id, fact.home)

    def _revision(self, run: Run, change: ReviseFact, revised: Fact) -> Document:
        vector = codec.vector_fields(
            change.embedding, change.embedding_model, self._settings.embedding_storage
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
            **codec.mark(
                change.id,
                revised.version,
                action=run.action(change),
                actor=run.set.actor.name,
            ),
        }
        # The old text's vector would find the new one by what it no longer says.
        return {"$set": fields} if vector else {"$set": fields, "$unset": _VECTOR_FIELDS}

    def _revised_before(
        self, run: Run, change: ReviseFact, *, raced: bool = False
    ) -> ChangeResult | None:
        """For a change that another run may have made: complete and answer it if it was."""
        if change.id not in run.resumed and not raced:
            return None
        document = self._fact_in(change.scope, change.fact_id)
        if document is not None and codec.text_id(document.get("last_change_id")) == change.id:
            self._keep_version(fact_version(document))
            return run.already(change, change.fact_id, change.scope)
        made = self._history_by("fact", change.fact_id, change.id)
        if made is not None and (not made.is_tombstone or document is None):
            return run.already(change, change.fact_id, change.scope)
        if change.or_add is None or change.id not in run.resumed:
            return None
        return self._added_before(run, Addition(change, change.or_add))

    def _instead(self, run: Run, change: ReviseFact) -> ChangeResult | None:
        """Insert what was learned, since its target is not what the decision was made on."""
        if change.or_add is None:
            return None
        (added,) = self._add_facts(run, [Addition(change, change.or_add)])
        if added.status is ChangeStatus.APPLIED:
            return msgspec.structs.replace(added, status=ChangeStatus.ADDED_INSTEAD)
        return added

    def _lost(self, run: Run, change: ReviseFact, fact: Fact) -> ChangeResult:
        """Somebody else's write came between reading and writing."""
        self._withdraw(run, [change.id])
        return self._instead(run, change) or _changed(change, fact)

    def _make_way(self, run: Run, change: ReviseFact, revised: Fact) -> ChangeResult:
        """Another fact of the scope has the new text: the target goes in its favour."""
        same = self.facts_by_hashes(change.scope, [revised.hash]).get(revised.hash)
        removal = RemoveFact(
            id=change.id,
            reason=change.reason,
            scope=change.scope,
            fact_id=change.fact_id,
            expected_version=change.expected_version,
            at=change.at,
        )
        removed = self._remove_fact(run, removal, change)
        if not removed.ok or same is None:
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
        if self._begin(run, entry) is Begun.DONE:
            return result(change, ChangeStatus.ALREADY, fact.id)
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
        if current is None and change.id in run.resumed:
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


_VECTOR_FIELDS = {"embedding": "", "embedding_model": ""}


def _home(document: Document) -> Scope | None:
    try:
        return codec.fact_from(document).home
    except ScopeError:
        return None


def _unfit(addition: Addition) -> ChangeResult | None:
    """A fact that belongs to nobody is refused; the others of the set are not."""
    try:
        _ = addition.fact.home
    except ScopeError as error:
        return result(addition.change, ChangeStatus.CONFLICT, addition.fact.id, error.message)
    return None


def _revised(fact: Fact, change: ReviseFact) -> Fact:
    return msgspec.structs.replace(
        fact,
        content=change.content,
        hash=content_hash(change.content),
        previous_content=fact.content,
        updated_at=change.at,
        version=fact.version + 1,
        source_message_ids=tuple(
            dict.fromkeys((*fact.source_message_ids, *change.source_message_ids))
        ),
        embedding_model=change.embedding_model if change.embedding else None,
    )


def _tombstone(run: Run, change: RemoveFact, fact: Fact, life: int) -> Kept:
    return kept(
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


def _restored(version: Kept, at: datetime) -> Kept:
    return Kept(msgspec.structs.replace(version.entry, at=at, action="restore"), version.life)


def _changed(change: ReviseFact | RemoveFact, fact: Fact) -> ChangeResult:
    detail = f"it is at version {fact.version}, not {change.expected_version}"
    return result(change, ChangeStatus.CONFLICT, change.fact_id, detail)


def _stands(found: ChangeResult) -> bool:
    """Whether the audit entry of this change is to stay."""
    return found.status in (ChangeStatus.APPLIED, ChangeStatus.ALREADY)
