"""Candidates for search: the text list from FTS5, the semantic list from codes and vectors."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edenmem.errors import EmbeddingModelMismatch
from edenmem.models.embeddings import check_in_force
from edenmem.models.scope import Scope
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
from edenmem.store.sqlite.core import scopes, source_words
from edenmem.store.sqlite.core.codec import optional_time, to_ms
from edenmem.store.sqlite.core.connections import Connections, map_file
from edenmem.store.sqlite.core.part import Part, json_array
from edenmem.store.sqlite.core.scopes import State
from edenmem.store.sqlite.memory import vectors
from edenmem.store.sqlite.memory.memory import narrowing
from edenmem.store.sqlite.search.few import NearestOfFew
from edenmem.store.sqlite.search.fulltext import (
    FACTS,
    MOST_POSTINGS,
    SOURCES,
    Postings,
    TextIndex,
    TextQuery,
)
from edenmem.store.sqlite.search.switches import switch_of

if TYPE_CHECKING:
    from edenmem.store.sqlite.search.nearest import CodeCache, Nearest

_STAGED = "SELECT 1 FROM staged_vectors b WHERE b.fact_no = f.fact_no AND b.model_id = ?"


#: Up to this many numbers are compared faster without numpy, which takes 0.1 s to import.
_FEW_NUMBERS = 500_000
#: The size of an ID in entries of `Postings`.
_ID_ENTRIES = 16


class Search(Part):
    """See `edenmem.store.protocol.search.Search`."""

    def __init__(self, db: Connections) -> None:
        super().__init__(db)
        self.postings = Postings(MOST_POSTINGS)

    @cached_property
    def codes(self) -> CodeCache:
        """The cache of codes."""
        from edenmem.store.sqlite.search.nearest import CodeCache

        return CodeCache()

    def search_ability(self) -> SearchAbility:
        with self._db.reading() as connection:
            return SearchAbility(kind="embedded", source_words=source_words.is_complete(connection))

    def require_formable(
        self, scopes: Sequence[Scope], *, model: str | None, dimensions: int | None
    ) -> None:
        return  # the indexes are written with their data

    def track_access(self, fact_ids: Sequence[str], at: datetime) -> None:
        if not fact_ids:
            return
        with self._db.writing(durable=False) as connection:
            connection.execute(
                "UPDATE facts SET access_count = access_count + 1,"
                " last_accessed_at = max(coalesce(last_accessed_at, ?1), ?1)"
                " WHERE id IN (SELECT value FROM json_each(?2))",
                (to_ms(at), json_array(fact_ids)),
            )

    def is_searchable(self, fact_id: str) -> bool:
        with self._db.reading() as connection:
            found = connection.execute("SELECT 1 FROM facts WHERE id = ?", (fact_id,))
            return found.fetchone() is not None

    def text_candidates(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int, source: bool = False
    ) -> list[list[Candidate]]:
        name: ListName = "source" if source else "text"
        questions = [Question(query) for query in queries]
        found = self._find(filter, questions, [name], limit=limit)
        return [_candidates(lists[name]) for lists in found.lists]

    def semantic_candidates(
        self,
        filter: FactFilter,
        vectors_: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        floor: float = 0.0,
    ) -> list[list[Candidate]]:
        found = self._find(
            filter,
            [Question("", vector) for vector in vectors_],
            ["semantic"],
            model=model,
            limit=limit,
            exact=exact,
            floor=floor,
        )
        return [_candidates(lists["semantic"]) for lists in found.lists]

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
        return self._find(filter, questions, lists, model=model, limit=limit, exact=exact)

    def _find(
        self,
        filter: FactFilter,
        questions: Sequence[Question],
        lists: Sequence[ListName],
        *,
        limit: int,
        model: str = "",
        exact: bool = False,
        floor: float = 0.0,
    ) -> Candidates:
        """Search by numbers of facts; their IDs are read once, at the end."""
        semantic = "semantic" in lists
        for question in questions if semantic else ():
            vectors.check_vector(question.vector)
        with self._db.reading() as connection:
            states = scopes.states_of(connection, filter.scopes).values()
            if not questions or not states or limit < 1:
                nothing: Lists = {name: ListScores({}) for name in lists}
                return Candidates(lists=(nothing,) * len(questions))
            map_file(connection)
            if semantic:
                check_in_force(switch_of(connection), model)
            if "source" in lists:
                source_words.require_complete(connection)
            search = _Search(self, connection, filter, states)
            ways: dict[ListName, _Way] = {
                name: search.semantic(questions, model, limit, exact=exact, floor=floor)
                if name == "semantic"
                else search.words(questions, limit, SOURCES if name == "source" else FACTS)
                for name in lists
            }
            unions = [
                set().union(*of) for of in zip(*(way.found for way in ways.values()), strict=True)
            ]
            known = self._ids(connection, states, set().union(*unions))
            completed: list[Lists] = [
                {name: way.scores(place, union, known) for name, way in ways.items()}
                for place, union in enumerate(unions)
            ]
        return Candidates(
            lists=tuple(completed),
            unconfirmed=frozenset(id for id, is_unconfirmed in known.values() if is_unconfirmed),
            without_vector=search.without_vector,
        )

    def _ids(
        self, connection: sqlite3.Connection, states: Collection[State], numbers: Collection[int]
    ) -> _Known:
        """Return the IDs of facts, and whether they are unconfirmed; cached for the scopes."""
        key = ("ids", *((state.number, state.revision) for state in states))
        cached: dict[int, tuple[str, int]] = self.postings.get(key) or {}
        if missing := [number for number in numbers if number not in cached]:
            rows = connection.execute(
                "SELECT fact_no, id, unconfirmed > '' FROM facts"
                " WHERE fact_no IN (SELECT value FROM json_each(?))",
                (json_array(missing),),
            )
            cached.update((number, (fact_id, doubt)) for number, fact_id, doubt in rows)
            self.postings.put(key, cached, _ID_ENTRIES * len(cached))
        return {number: cached[number] for number in numbers}


#: The ID of each fact, and whether it is unconfirmed.
_Known = Mapping[int, tuple[str, int]]


class _Way(NamedTuple):
    """The list of each question, best first, by numbers of facts; and how to score other facts."""

    found: Sequence[Mapping[int, float]]
    complete: Callable[[int, set[int]], Mapping[int, float]]
    whole: Sequence[float]

    def scores(self, place: int, facts: set[int], known: _Known) -> ListScores:
        """Return the scores of a question by ID, for the best facts of all lists."""
        found = self.found[place]
        lacking = facts.difference(found)
        more = self.complete(place, lacking) if lacking else {}
        return ListScores(
            {known[number][0]: score for number, score in found.items()},
            {known[number][0]: score for number, score in more.items()},
            self.whole[place],
        )


class _Search:
    """The lists of a search, in one read transaction."""

    def __init__(
        self,
        part: Search,
        connection: sqlite3.Connection,
        filter: FactFilter,
        states: Collection[State],
    ) -> None:
        self._part = part
        self._db = connection
        self._states = states
        self.without_vector = 0
        if filter.live_at is not None:
            last = self._last_expiry(filter.live_at)
            filter = msgspec.structs.replace(filter, live_at=optional_time(last))
        self._conditions, self._values = narrowing(filter)

    def _last_expiry(self, at: datetime) -> int | None:
        """Return when the last fact of the scopes expired, if any.

        Used as the time of the filter, which stays the same until another fact expires: without
        one, nothing is filtered, and what is cached for a filter stays valid.
        """
        (last,) = self._db.execute(
            "SELECT max(expires_at) FROM facts WHERE expires_at <= ?"
            " AND +scope_id IN (SELECT value FROM json_each(?))",
            (to_ms(at), self._among()),
        ).fetchone()
        return None if last is None else int(last)

    def words(self, questions: Sequence[Question], limit: int, index: TextIndex) -> _Way:
        """Return the lists of the facts that have words of the questions."""
        text = TextQuery(
            self._db, self._states, self._conditions, self._values, self._part.postings, index
        )
        return _Way(
            [text.best(question.text, limit) for question in questions],
            lambda place, facts: text.scores(questions[place].text, facts),
            [text.whole(question.text) for question in questions],
        )

    def semantic(
        self, questions: Sequence[Question], model: str, limit: int, *, exact: bool, floor: float
    ) -> _Way:
        """Return the lists of the facts with the nearest vectors of a model."""
        dimensions = len(questions[0].vector) // 4
        number = vectors.model_of(self._db, model, dimensions) if model else None
        nearest = self._nearest(number or -1, dimensions)
        self.without_vector = sum(state.facts for state in self._states) - nearest.size
        if number is None or not nearest.size:
            self._check_models(number, model, dimensions)
            none: list[dict[int, float]] = [{} for _ in questions]
            return _Way(none, lambda place, facts: {}, [0.0] * len(questions))
        if self._conditions:
            nearest.narrow(self._numbers_of(number))
        found = nearest.best([one.vector for one in questions], limit, exact=exact, floor=floor)
        return _Way(found, nearest.scores, [0.0] * len(questions))

    def _nearest(self, model: int, dimensions: int) -> Nearest | NearestOfFew:
        """Return the facts with a vector of a model, ready to be compared."""
        facts = sum(state.facts for state in self._states)
        if facts * dimensions <= _FEW_NUMBERS and "numpy" not in sys.modules:
            return NearestOfFew(self._db, model, self._among())
        from edenmem.store.sqlite.search.nearest import ExactScores, Nearest

        scorer = ExactScores(self._db, (model, dimensions))
        return Nearest(scorer, [self._part.codes.block(scorer, state) for state in self._states])

    def _numbers_of(self, model: int) -> list[int]:
        """Return the facts that match the filter and have a vector of a model."""
        rows = self._db.execute(
            "SELECT f.fact_no FROM facts f WHERE f.scope_id IN (SELECT value FROM json_each(?))"
            f" AND (f.model_id = ? OR EXISTS ({_STAGED})){self._conditions}",
            (self._among(), model, model, *self._values),
        )
        return [number for (number,) in rows]

    def _among(self) -> str:
        return json_array(state.number for state in self._states)

    def _check_models(self, number: int | None, model: str, dimensions: int) -> None:
        """Raise if facts have vectors, but only of another model."""
        row = self._db.execute(
            "SELECT m.name, m.dimensions FROM facts f JOIN embedding_models m USING (model_id)"
            " WHERE f.scope_id IN (SELECT value FROM json_each(?)) AND f.model_id IS NOT ?"
            f" AND m.name <> ''{self._conditions} LIMIT 1",
            (self._among(), number, *self._values),
        ).fetchone()
        if row is None:
            return
        if row[0] != model:
            raise EmbeddingModelMismatch(stored=row[0], current=model)
        raise EmbeddingModelMismatch(
            stored=f"{model} ({row[1]:,} dimensions)",
            current=f"{model} ({dimensions:,} dimensions)",
        )


def _candidates(scores: ListScores) -> list[Candidate]:
    return [Candidate(fact_id, score) for fact_id, score in scores.found.items()]
