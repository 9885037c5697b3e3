"""Vectors of facts: stored, counted, validated and dropped."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edenmem.errors import InputError
from edenmem.models.embeddings import is_staged
from edenmem.models.ids import utc_now
from edenmem.models.integrity import Finding
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.protocol.search import VectorCount
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, to_ms
from edenmem.store.sqlite.core.part import AMONG, BATCH, Part, json_array
from edenmem.store.sqlite.core.schema import FileState, file_state
from edenmem.store.sqlite.memory import documents, vectors
from edenmem.store.sqlite.search.switches import switch_of

#: The fact has no staged vector of a model with these dimensions.
_NONE_STAGED = (
    "NOT EXISTS (SELECT 1 FROM staged_vectors b JOIN embedding_models n USING (model_id)"
    " WHERE b.fact_no = f.fact_no AND n.name = ? AND n.dimensions = coalesce(?, n.dimensions))"
)


class Vectors(Part):
    """See `edenmem.store.protocol.search.Vectors`."""

    def set_vectors(
        self, vectors: Mapping[str, tuple[str, bytes]], *, model: str, staged: bool = False
    ) -> int:
        if not vectors:
            return 0
        written, now = 0, to_ms(utc_now())
        with self._db.writing() as connection:
            switch = switch_of(connection)
            put = (
                documents.put_staged if is_staged(switch, model, must=staged) else documents.put_own
            )
            for fact_id, (digest, vector) in vectors.items():
                stored = documents.find_fact(connection, fact_id)
                if stored is not None and stored.fact.hash == digest:
                    put(connection, stored, model, vector, now)
                    written += 1
        return written

    def drop_vectors(self, fact_ids: Sequence[str]) -> int:
        with self._db.writing() as connection:
            numbers = connection.execute(
                f"SELECT fact_no, scope_id, model_id FROM facts WHERE id {AMONG}",
                (json_array(fact_ids),),
            ).fetchall()
            for fact_no, scope_id, model_id in numbers:
                connection.execute("DELETE FROM vectors WHERE fact_no = ?", (fact_no,))
                connection.execute(
                    "DELETE FROM vector_codes WHERE scope_id = ? AND model_id = ? AND fact_no = ?",
                    (scope_id, model_id, fact_no),
                )
                connection.execute("UPDATE facts SET model_id = NULL WHERE fact_no = ?", (fact_no,))
            scopes.touch_all(connection, {scope_id for _, scope_id, _ in numbers})
        return len(numbers)

    def vector_faults(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        rows = self._pages(
            "SELECT f.fact_no, f.id, s.kind, s.agent_id, s.owner, m.name, m.dimensions, v.vector"
            " FROM facts f JOIN scopes s USING (scope_id) LEFT JOIN vectors v USING (fact_no)"
            " LEFT JOIN embedding_models m USING (model_id)"
            " WHERE f.fact_no > ? AND +s.agent_id = coalesce(?, s.agent_id)"
            " AND (f.model_id IS NOT NULL OR v.fact_no IS NOT NULL) ORDER BY f.fact_no LIMIT ?",
            (agent_id,),
            (0,),
            lambda row: row[:1],
        )
        for _, fact_id, *owner, model, dimensions, vector in rows:
            if detail := _unusable(model, dimensions, vector):
                scope = codec.scope_of(*owner)
                yield Finding(
                    target_type="fact",
                    target_id=fact_id,
                    detail=detail,
                    agent_id=scope.agent_id,
                    scope=scope,
                )

    def vector_model_names(self, scopes_: Sequence[Scope]) -> tuple[str, ...]:
        rows = self._fetch(
            "SELECT n.name FROM embedding_models n WHERE n.name <> '' AND EXISTS (SELECT 1"
            f" FROM facts f WHERE f.model_id = n.model_id AND f.scope_id {scopes.OF_SCOPES})"
            " ORDER BY n.name",
            (scopes.scope_keys(*scopes_),),
        )
        return tuple(name for (name,) in rows)

    def first_vector_model(self) -> str:
        if file_state(self._db.path) in (FileState.MISSING, FileState.EMPTY):
            return ""
        row = self._fetch_one(
            "SELECT m.name FROM facts f JOIN embedding_models m USING (model_id)"
            " WHERE f.fact_no = (SELECT min(fact_no) FROM vectors)"
        )
        return "" if row is None else str(row[0])

    def vector_counts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> list[VectorCount]:
        # A fact with a staged vector of the model counts as one of the model.
        select = (
            "SELECT s.agent_id, coalesce(n.name, m.name, '') AS model, count(*),"
            " sum(coalesce(n.name, m.name) = ?1 AND coalesce(n.dimensions, m.dimensions) <> ?2)"
            " FROM scopes s CROSS JOIN facts f USING (scope_id)"
            " LEFT JOIN embedding_models m USING (model_id)"
            " LEFT JOIN staged_vectors b USING (fact_no)"
            " LEFT JOIN embedding_models n ON n.model_id = b.model_id AND n.name = ?1"
        )
        where = " WHERE s.agent_id = ?3" if agent_id else ""
        values = (model, dimensions, agent_id) if agent_id else (model, dimensions)
        rows = self._fetch(
            f"{select}{where} GROUP BY s.agent_id, model ORDER BY s.agent_id, model", values
        )
        return [
            VectorCount(agent_id=agent, model=name, facts=facts, wrong_length=wrong or 0)
            for agent, name, facts, wrong in rows
        ]

    def stale_facts(
        self, model: str, *, dimensions: int | None, agent_id: str | None = None
    ) -> Iterator[Fact]:
        others = self._fetch(
            "SELECT model_id FROM embedding_models WHERE name <> ?1 OR dimensions <> ?2",
            (model, dimensions),
        )
        for (number,) in [(None,), *others]:  # None: facts without a vector
            for row in self._of_model(number, agent_id, model, dimensions):
                yield codec.fact_from(row)

    def _of_model(
        self, model_id: int | None, agent_id: str | None, wanted: str, dimensions: int | None
    ) -> Iterator[Row]:
        """Find facts with a vector of a model, or without one, and no staged vector of the target.

        Rows come by scope and age, as in the index. Each page continues after the previous one,
        with the rest of that scope.
        """
        select = codec.select_more(codec.FACT, "f.scope_id", "f.fact_no")
        select += f" WHERE f.model_id IS ? AND {_NONE_STAGED}"
        values: list[object] = [model_id, wanted, dimensions]
        if agent_id is not None:
            select += " AND s.agent_id = ?"
            values.append(agent_id)
        tail = " ORDER BY f.scope_id, f.fact_no LIMIT ?"
        last = (0, 0)
        while True:
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{select} AND f.scope_id = ? AND f.fact_no > ?{tail}", (*values, *last, BATCH)
                ).fetchall()
                if len(rows) < BATCH:
                    rows += connection.execute(
                        f"{select} AND f.scope_id > ?{tail}", (*values, last[0], BATCH - len(rows))
                    ).fetchall()
            yield from rows
            if len(rows) < BATCH:
                return
            last = rows[-1][-2:]


def _unusable(model: str | None, dimensions: int | None, vector: bytes | None) -> str:
    """Return the defect of a vector; empty for a valid one."""
    if model is None:
        return "has a vector of no model"
    if vector is None:
        return f"has no usable vector of {model or 'some model'}: missing"
    if dimensions and len(vector) != 4 * dimensions:
        return f"has a vector of {len(vector)} bytes; those of {model} have {4 * dimensions}"
    try:
        vectors.check_vector(vector)
    except InputError as error:
        return error.message
    return ""
