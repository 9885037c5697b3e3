"""The switch to another embedding model: its row, and the staged vectors."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence

from edenmem.models.embeddings import SwitchPhase, VectorSwitch
from edenmem.models.indexes import IndexState
from edenmem.store.sqlite.core import scopes
from edenmem.store.sqlite.core.codec import Table
from edenmem.store.sqlite.core.part import Part, json_array
from edenmem.store.sqlite.memory import vectors

_SWITCH = Table(
    VectorSwitch,
    "vector_switch",
    "vector_switch",
    "model dimensions previous phase",
    times="begun_at",
    start=0,
)
_INSERT = _SWITCH.insert("id")

#: A fact with a staged vector, and its row numbers.
_STAGED = (
    "SELECT b.fact_no, f.scope_id, f.model_id, b.model_id, b.vector FROM staged_vectors b"
    " JOIN facts f USING (fact_no) ORDER BY b.fact_no LIMIT ?"
)

#: Facts in one transaction, few enough to keep other writers from waiting.
_PAGE = 200


class ModelSwitches(Part):
    """See `edenmem.store.protocol.search.ModelSwitches`."""

    def platform_model(self, model: str) -> str:
        return ""

    def vector_switch(self) -> VectorSwitch | None:
        with self._db.reading() as connection:
            return switch_of(connection)

    def move_switch(self, before: VectorSwitch | None, after: VectorSwitch | None) -> bool:
        with self._db.writing() as connection:
            if switch_of(connection) != before:
                return False
            connection.execute("DELETE FROM vector_switch")
            if after is not None:
                connection.execute(_INSERT, (*_SWITCH.values(after), 1))
        return True

    def switch_index(self) -> IndexState | None:
        return None  # codes are written with their vectors

    def finds_vectors(self, model: str) -> bool:
        return True

    def vectors_of(self, fact_ids: Sequence[str], *, model: str) -> dict[str, bytes]:
        wanted = (json_array(fact_ids), model)
        found: dict[str, bytes] = {}
        with self._db.reading() as connection:
            for table, of in (("vectors", "f"), ("staged_vectors", "v")):
                found.update(
                    connection.execute(
                        f"SELECT f.id, v.vector FROM facts f JOIN {table} v USING (fact_no)"
                        f" JOIN embedding_models m ON m.model_id = {of}.model_id"
                        " WHERE f.id IN (SELECT value FROM json_each(?)) AND m.name = ?",
                        wanted,
                    )
                )
        return found

    def drop_switch_index(self) -> bool:
        return True

    def settle_vectors(self) -> Iterator[int]:
        return self._unstage(("settling", "clearing"), settle=True)

    def clear_staged(self) -> Iterator[int]:
        return self._unstage(("clearing", "abandoning"), settle=False)

    def _unstage(self, phases: Collection[SwitchPhase], *, settle: bool) -> Iterator[int]:
        """Remove staged vectors in these phases; ``settle`` replaces the old ones by them."""
        while True:
            with self._db.writing() as connection:
                switch = switch_of(connection)
                if switch is None or switch.phase not in phases:
                    return
                rows = connection.execute(_STAGED, (_PAGE,)).fetchall()
                for number, scope_id, own, model_id, vector in rows:
                    vectors.drop_staged(connection, number, scope_id)
                    if settle:
                        vectors.drop_vector(connection, number, scope_id, own)
                        vectors.put_vector(connection, number, scope_id, model_id, vector)
                        connection.execute(
                            "UPDATE facts SET model_id = ? WHERE fact_no = ?", (model_id, number)
                        )
                scopes.touch_all(connection, {row[1] for row in rows})
            if not rows:
                return
            yield len(rows)


def switch_of(connection: sqlite3.Connection) -> VectorSwitch | None:
    """Return the current switch, if any."""
    row = connection.execute(f"SELECT {_SWITCH.qualified} FROM vector_switch").fetchone()
    return None if row is None else _SWITCH.make(row)
