"""Candidates for search: the text list from FTS5, the semantic list from codes and vectors."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from edenmem.errors import EmbeddingModelMismatch
from edenmem.models.scope import Scope
from edenmem.models.search import Candidate, Completion, FactFilter, Gap, SearchAbility
from edenmem.models.switch import check_in_force
from edenmem.store.sqlite.core import scopes, source_words
from edenmem.store.sqlite.core.connections import Connections
from edenmem.store.sqlite.core.part import Part, json_array
from edenmem.store.sqlite.memory import vectors
from edenmem.store.sqlite.memory.memory import narrowing
from edenmem.store.sqlite.search.fulltext import FACTS, SOURCES, Postings, TextQuery
from edenmem.store.sqlite.search.switches import switch_of

if TYPE_CHECKING:
    from edenmem.store.sqlite.search.nearest import CodeCache, Nearest

_STAGED = "SELECT 1 FROM vectors_beside b WHERE b.fact_no = f.fact_no AND b.model_id = ?"


class Search(Part):
    """See `edenmem.store.protocol.search.Search`."""

    def __init__(self, db: Connections) -> None:
        super().__init__(db)
        self._codes: CodeCache | None = None
        self._postings = Postings()

    def search_ability(self) -> SearchAbility:
        with self._db.reading() as connection:
            return SearchAbility(kind="embedded", source_words=source_words.is_complete(connection))

    def require_formable(
        self, scopes: Sequence[Scope], *, model: str | None, dimensions: int | None
    ) -> None:
        return  # the indexes are written with their data

    def is_searchable(self, fact_id: str) -> bool:
        with self._db.reading() as connection:
            found = connection.execute("SELECT 1 FROM facts WHERE id = ?", (fact_id,))
            return found.fetchone() is not None

    def text_candidates(
        self, filter: FactFilter, queries: Sequence[str], *, limit: int, source: bool = False
    ) -> list[list[Candidate]]:
        conditions, values = narrowing(filter)
        with self._db.reading() as connection:
            numbers = list(scopes.numbers_of(connection, filter.scopes).values())
            if not numbers or limit < 1:
                return [[] for _ in queries]
            if source:
                source_words.require_complete(connection)
            index = SOURCES if source else FACTS
            text = TextQuery(connection, numbers, conditions, values, self._postings, index)
            return [text.best(query, limit) for query in queries]

    def semantic_candidates(
        self,
        filter: FactFilter,
        vectors_: Sequence[bytes],
        *,
        model: str,
        limit: int,
        exact: bool = False,
        floor: float = 0.0,
        prepared: bool = False,
    ) -> list[list[Candidate]]:
        for vector in vectors_:
            vectors.check_vector(vector)
        if not vectors_ or limit < 1:
            return [[] for _ in vectors_]
        dimensions = len(vectors_[0]) // 4
        with self._db.reading() as connection:
            if not prepared:
                check_in_force(switch_of(connection), model)
            numbers = list(scopes.numbers_of(connection, filter.scopes).values())
            known = vectors.model_of(connection, model, dimensions) if model else None
            if known is not None:
                of_model = (known, dimensions)
                search = self._search(connection, numbers, of_model, filter)
                if search is not None:
                    return search.best(vectors_, limit, exact=exact, floor=floor)
            stored = _another_model(connection, numbers, filter, known)
        if stored is None:
            return [[] for _ in vectors_]
        if stored[0] != model:
            raise EmbeddingModelMismatch(stored=stored[0], current=model)
        raise EmbeddingModelMismatch(
            stored=f"{model} ({stored[1]:,} dimensions)",
            current=f"{model} ({dimensions:,} dimensions)",
        )

    def complete_scores(
        self,
        filter: FactFilter,
        gaps: Sequence[Gap],
        *,
        model: str,
        load: Sequence[str] = (),
        prepared: bool = False,
    ) -> Completion:
        conditions, values = narrowing(filter)
        with self._db.reading() as connection:
            numbers = list(scopes.numbers_of(connection, filter.scopes).values())
            text = TextQuery(connection, numbers, conditions, values, self._postings)
            completion = Completion(
                semantic=tuple(_semantic_scores(connection, numbers, gaps, model)),
                text=tuple(text.scores(gap.query, gap.text) for gap in gaps),
                reach=tuple(text.reach(gap.query) for gap in gaps),
            )
            if all(gap.source is None for gap in gaps):
                return completion
            said = TextQuery(connection, numbers, conditions, values, self._postings, SOURCES)
            return msgspec.structs.replace(
                completion,
                source=tuple(said.scores(gap.query, gap.source or ()) for gap in gaps),
                source_reach=tuple(said.reach(gap.query) for gap in gaps),
            )

    def _search(
        self,
        connection: sqlite3.Connection,
        numbers: Sequence[int],
        model: tuple[int, int],
        filter: FactFilter,
    ) -> Nearest | None:
        """Return the search over the codes of these scopes; None without codes of the model."""
        from edenmem.store.sqlite.search import nearest  # loads numpy

        if self._codes is None:
            self._codes = nearest.CodeCache()
        conditions, values = narrowing(filter)
        allowed = None
        if conditions:
            rows = connection.execute(
                "SELECT f.fact_no FROM facts f WHERE f.scope_id IN (SELECT value FROM json_each(?))"
                f" AND (f.model_id = ? OR EXISTS ({_STAGED})){conditions}",
                (json_array(numbers), model[0], model[0], *values),
            )
            allowed = [number for (number,) in rows]
        blocks = [self._codes.block(connection, number, model[0]) for number in numbers]
        search = nearest.Nearest(connection, blocks, model, allowed)
        return search if search.total else None


def _semantic_scores(
    connection: sqlite3.Connection, numbers: Sequence[int], gaps: Sequence[Gap], model: str
) -> list[dict[str, float]]:
    """Return for each gap the semantic scores of facts with a vector of the model."""
    wanted = dict.fromkeys(fact_id for gap in gaps for fact_id in gap.semantic)
    known = vectors.model_of(connection, model, len(gaps[0].vector) // 4) if wanted else None
    if known is None:
        return [{} for _ in gaps]
    from edenmem.store.sqlite.search.nearest import ExactScores  # loads numpy

    rows = connection.execute(
        "SELECT f.id, f.fact_no FROM facts f WHERE f.id IN (SELECT value FROM json_each(?))"
        " AND f.scope_id IN (SELECT value FROM json_each(?))"
        f" AND (f.model_id = ? OR EXISTS ({_STAGED}))",
        (json_array(wanted), json_array(numbers), known, known),
    )
    places = dict(rows.fetchall())
    scorer = ExactScores(connection, (known, len(gaps[0].vector) // 4))
    return scorer.of(
        [(gap.vector, {places[id]: id for id in gap.semantic if id in places}) for gap in gaps]
    )


def _another_model(
    connection: sqlite3.Connection,
    numbers: Sequence[int],
    filter: FactFilter,
    model_id: int | None,
) -> tuple[str, int] | None:
    """Return name and dimensions of another model among the filter's facts, if any."""
    conditions, values = narrowing(filter)
    row: tuple[str, int] | None = connection.execute(
        "SELECT m.name, m.dimensions FROM facts f JOIN embedding_models m USING (model_id)"
        " WHERE f.scope_id IN (SELECT value FROM json_each(?)) AND f.model_id IS NOT ?"
        f" AND m.name <> ''{conditions} LIMIT 1",
        (json_array(numbers), model_id, *values),
    ).fetchone()
    return row
