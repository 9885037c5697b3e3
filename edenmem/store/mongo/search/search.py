"""Find candidates for search, and check that written facts are among them."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from edenmem.errors import EmbeddingModelMismatch, StoreError
from edenmem.models.embeddings import check_in_force
from edenmem.models.scope import Scope, ScopeKind
from edenmem.models.search import (
    Candidate,
    Candidates,
    FactFilter,
    ListName,
    Lists,
    ListScores,
    Question,
    SearchAbility,
)
from edenmem.search.words import leave_out_names
from edenmem.store.common.cache import BoundedCache
from edenmem.store.mongo.core import codec
from edenmem.store.mongo.core.collection import Document
from edenmem.store.mongo.core.collections import FACT_KEY, OWN, STAGED, VectorSlot
from edenmem.store.mongo.core.connection import Connection
from edenmem.store.mongo.core.filters import (
    IN_LIMIT,
    Filter,
    fact_fields,
    fact_filters,
    group_filters,
    id_parts,
    object_id,
    object_ids,
)
from edenmem.store.mongo.core.readiness import Readiness
from edenmem.store.mongo.search.atlas_search import AtlasSearch
from edenmem.store.mongo.search.scan import Nearest, Scan
from edenmem.store.mongo.search.slots import Slots, not_of_this_text, slot_of, vector_in
from edenmem.store.protocol.store import batched

#: Seconds for which names and complete scopes are cached, and the maximum number of entries.
_CACHE_SECONDS = 60.0
_CACHE_SIZE = 256

#: The scores of each list by fact, best first.
_Found = Mapping[ListName, Mapping[str, float]]


#: Seconds for which the answer about search commands is cached.
_ASK_AGAIN = 60.0


#: A way to find candidates.
CandidateSearch = AtlasSearch | Scan


class SearchChoice:
    """Chooses by the server's search commands.

    Args:
        db: The database.
        scan_limit: Maximum number of facts to read without search indexes.
        fuzzy_expansions: Maximum number of variants per word.
    """

    def __init__(self, db: Connection, *, scan_limit: int, fuzzy_expansions: int) -> None:
        self._db = db
        self._scan_limit = scan_limit
        self._fuzzy_expansions = fuzzy_expansions
        self._chosen: tuple[float, Any, CandidateSearch] | None = None

    def current(self) -> CandidateSearch:
        """Return the search in use; the server is asked again periodically and on reconnection."""
        now, database = time.monotonic(), self._db.database
        chosen = self._chosen
        if chosen is None or chosen[1] is not database or now - chosen[0] > _ASK_AGAIN:
            known = chosen[2] if chosen is not None and chosen[1] is database else None
            # Two threads may both ask; both answers are valid.
            self._chosen = chosen = (now, database, self._choose(known))
        return chosen[2]

    def atlas(self) -> AtlasSearch | None:
        """Return the search by the server's indexes, if it has any."""
        current = self.current()
        return current if isinstance(current, AtlasSearch) else None

    def _choose(self, known: CandidateSearch | None) -> CandidateSearch:
        facts = self._db.facts
        if not facts.answers_search():
            return Scan(facts, self._db.messages, self._db.forgotten_messages, self._scan_limit)
        if isinstance(known, AtlasSearch):
            return known  # keep its cached indexes
        settings = self._db.settings
        return AtlasSearch(
            facts,
            self._db.run_all,
            storage=settings.embedding_storage,
            max_seconds=settings.search_timeout_seconds,
            vector_index=settings.vector_index,
            text_index=settings.text_index,
            fuzzy_expansions=self._fuzzy_expansions,
        )


class MongoSearch:
    """Implements `edenmem.store.protocol.search.Search`."""

    def __init__(
        self, db: Connection, readiness: Readiness, slots: Slots, choice: SearchChoice
    ) -> None:
        self._db = db
        self._readiness = readiness
        self._slots = slots
        self._choice = choice
        self._names: BoundedCache[frozenset[str], tuple[float, tuple[str, ...]]] = BoundedCache(
            _CACHE_SIZE
        )
        self._all_fit: BoundedCache[tuple[frozenset[Scope], str], float] = BoundedCache(_CACHE_SIZE)

    def search_ability(self) -> SearchAbility:
        return self._choice.current().ability()

    def semantic_candidates(
        self,
        filter: FactFilter,
        vectors: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        floor: float = 0.0,
    ) -> list[list[Candidate]]:
        search = self._choice.current()
        # A scan can afford one more read, and would silently miss a moved switch.
        switch = self._slots.read_switch() if isinstance(search, Scan) else self._slots.switch()
        while True:
            try:
                check_in_force(switch, model)
                found = search.semantic(
                    filter,
                    vectors,
                    model=model,
                    limit=limit,
                    exact=exact,
                    slot=slot_of(switch, model),
                )
            except (EmbeddingModelMismatch, StoreError):
                now = self._slots.read_switch()
                if now == switch:
                    raise
            else:
                now = switch if any(found) else self._slots.read_switch()
                if now == switch:
                    return [[one for one in nearest if one.score >= floor] for nearest in found]
            switch = now  # the switch moved on, and the vectors with it

    def text_candidates(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int, source: bool = False
    ) -> list[list[Candidate]]:
        asked = [self._asked(filter, query) for query in queries]
        return self._choice.current().text(filter, asked, limit=limit, source=source)

    def _asked(self, filter: FactFilter, query: str) -> str:
        """Return the query for the search in use.

        The weights of Atlas are those of the whole index, in which a name common to all these facts
        is rare.
        """
        if not isinstance(self._choice.current(), AtlasSearch):
            return query
        return leave_out_names(query, self._names_of(filter.scopes))

    def _names_of(self, scopes: Sequence[Scope]) -> tuple[str, ...]:
        """Return the names of the agents and users in these scopes, cached for a while."""
        ids = {scope.agent_id for scope in scopes}
        ids |= {scope.owner for scope in scopes if scope.kind is ScopeKind.USER}
        key, now = frozenset(ids), time.monotonic()
        known = self._names.get(key)
        if known is None or now - known[0] > _CACHE_SECONDS:
            found = self._db.users.find(
                {"_id": {"$in": object_ids(sorted(ids))}}, {"username": 1, "name": 1}
            )
            names = {codec.text(one.get(field)) for one in found for field in ("username", "name")}
            known = (now, tuple(sorted(names - {""})))
            self._names.put(key, known)
        return known[1]

    def candidates(
        self,
        filter: FactFilter,
        questions: Sequence[Question],
        lists: Sequence[ListName],
        *,
        model: str,
        limit: int,
        exact: bool = False,
    ) -> Candidates:
        texts = [question.text for question in questions]
        calls: list[Callable[[], Any]] = [
            partial(
                self.semantic_candidates,
                filter,
                [question.vector for question in questions],
                model=model,
                limit=limit,
                exact=exact,
            )
            if name == "semantic"
            else partial(self.text_candidates, filter, texts, limit=limit, source=name == "source")
            for name in lists
        ]
        search = self._choice.current()
        notices = search.notices(filter) if isinstance(search, AtlasSearch) else ()
        if "semantic" in lists:
            calls.append(partial(self._count_without_vector, filter.scopes, model))
        answers = self._db.run_all(calls)
        found: list[_Found] = [
            {
                name: {one.fact_id: one.score for one in answer[place]}
                for name, answer in zip(lists, answers, strict=False)
            }
            for place in range(len(questions))
        ]
        without = answers[-1] if "semantic" in lists else 0
        found_facts = self._complete(filter, questions, found, model=model, without=without)
        return msgspec.structs.replace(found_facts, notices=notices)

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        for part in id_parts(fact_ids):
            self._db.facts.update_many(
                {"_id": {"$in": part}},
                {"$inc": {"access_count": 1}, "$max": {"last_accessed_at": at}},
            )

    def _count_without_vector(self, scopes: Sequence[Scope], model: str) -> int:
        """Count the facts without a vector of a model; 0 is cached: every search asks for it."""
        key, now = (frozenset(scopes), model), time.monotonic()
        seen_at = self._all_fit.get(key)
        if seen_at is not None and now - seen_at < _CACHE_SECONDS:
            return 0
        filters = group_filters(scopes, fact_fields)
        if slot_of(self._slots.switch(), model) is STAGED:
            wanted = [{**owner, **part} for owner in filters for part in not_of_this_text(model)]
        else:
            wanted = [{**owner, OWN.model: {"$ne": model}} for owner in filters]
        count = sum(map(self._db.facts.count, wanted))
        if not count:
            self._all_fit.put(key, now)
        return count

    def _complete(
        self,
        filter: FactFilter,
        questions: Sequence[Question],
        found: Sequence[_Found],
        *,
        model: str,
        without: int,
    ) -> Candidates:
        """Read the found facts, and score each by the lists that did not find it."""
        search = self._choice.current()
        unions = [dict.fromkeys(id for of in lists.values() for id in of) for lists in found]
        unlike = {
            id
            for lists, union in zip(found, unions, strict=True)
            for id in (union if "semantic" in lists else ())
            if id not in lists["semantic"]
        }
        documents = self._read(filter, [id for union in unions for id in union], unlike)
        facts = {id: codec.fact_from(document) for id, document in documents.items()}
        vectors = {id: vector_in(document, model) for id, document in documents.items()}
        completed: list[Lists] = []
        for question, lists, union in zip(questions, found, unions, strict=True):
            scores: dict[ListName, ListScores] = {}
            for name, listed in lists.items():
                # An index may lack a field of the filter.
                of = {id: score for id, score in listed.items() if id in facts}
                lacking = [id for id in union if id in facts and id not in of]
                if name != "semantic":
                    query, is_source = self._asked(filter, question.text), name == "source"
                    scores[name] = search.complete(
                        filter, query, of, lacking, facts, source=is_source
                    )
                elif lacking:
                    compared = Nearest([question.vector], limit=len(lacking))
                    compared.add((id, vectors.get(id)) for id in lacking)
                    (near,) = compared.best()
                    scores[name] = ListScores(of, {one.fact_id: one.score for one in near})
                else:
                    scores[name] = ListScores(of)
            completed.append(scores)
        return Candidates(
            lists=tuple(completed),
            unconfirmed=frozenset(id for id, fact in facts.items() if fact.unconfirmed),
            without_vector=without,
            facts=facts,
        )

    def _read(
        self, filter: FactFilter, fact_ids: Iterable[str], with_vector: Set[str]
    ) -> dict[str, Document]:
        """Read the facts that the filter matches, usually in one query; vectors only of some."""
        owners = fact_filters(filter)
        admitted = owners[0] if len(owners) == 1 else {"$or": owners}
        queries = [
            partial(self._read_part, part, admitted, with_vector)
            for part in batched(dict.fromkeys(fact_ids), IN_LIMIT)
        ]
        found = [document for documents in self._db.run_all(queries) for document in documents]
        return {str(document["_id"]): document for document in found}

    def _read_part(
        self, fact_ids: Sequence[str], admitted: Filter, with_vector: Set[str]
    ) -> list[Document]:
        matching: Filter = {"_id": {"$in": object_ids(fact_ids)}, **admitted}
        compared = [fact_id for fact_id in fact_ids if fact_id in with_vector]
        if not compared:
            return list(self._db.facts.find(matching, codec.NO_VECTOR))
        if len(compared) == len(fact_ids):
            return list(self._db.facts.find(matching))
        is_compared = {"$in": ["$_id", object_ids(compared)]}
        vectors = {
            slot.field: {"$cond": [is_compared, f"${slot.field}", "$$REMOVE"]}
            for slot in (OWN, STAGED)
        }
        return list(self._db.facts.aggregate([{"$match": matching}, {"$addFields": vectors}]))

    def require_formable(
        self, scopes: Sequence[Scope], *, model: str | None, dimensions: int | None
    ) -> None:
        self._readiness.require_keys([FACT_KEY])
        search = self._choice.atlas()
        if model is None or search is None:
            return
        filter = FactFilter(scopes=tuple(scopes))
        while True:
            switch = self._slots.switch()
            check_in_force(switch, model)
            try:
                search.require_vectors(
                    filter, model=model, dimensions=dimensions, slot=slot_of(switch, model)
                )
            except StoreError:
                if self._slots.read_switch() == switch:
                    raise
            else:
                return

    def is_searchable(self, fact_id: str) -> bool:
        """See `Search.is_searchable`; also checks a new model's vector, in its separate index."""
        document = self._db.facts.find_one({"_id": object_id(fact_id)})
        if document is None:
            return False
        search = self._choice.current()
        if not search.finds(codec.fact_from(document, with_vector=True)):
            return False
        switch = self._slots.read_switch() if isinstance(search, AtlasSearch) else None
        if switch is None or switch.phase != "switched" or not isinstance(search, AtlasSearch):
            return True
        has_one = document.get(STAGED.model) == switch.model
        return not has_one or finds_vector_of(search, document, switch.model, STAGED)


def finds_vector_of(search: AtlasSearch, document: Document, model: str, slot: VectorSlot) -> bool:
    """Return whether a search index has the document's vector of a model; True without one."""
    vector = vector_in(document, model)
    return vector is None or search.finds_vector(codec.fact_from(document), vector, model, slot)
