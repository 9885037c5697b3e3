"""The switch to another embedding model: its row, and the staged vectors."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from edenmem.models.embeddings import SwitchPhase, VectorSwitch, continue_switch
from edenmem.models.indexes import IndexState
from edenmem.store.sqlite.core.codec import optional_time, time, to_ms
from edenmem.store.sqlite.core.part import Part, json_array
from edenmem.store.sqlite.memory import vectors

_ROW = "SELECT model, dimensions, previous, phase, begun_at, switched_at FROM vector_switch"

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

    def begin_switch(self, switch: VectorSwitch) -> VectorSwitch:
        with self._db.writing() as connection:
            there = switch_of(connection)
            if there is not None:
                return continue_switch(there, switch)
            connection.execute(
                "INSERT INTO vector_switch VALUES (1, ?, ?, ?, ?, ?, NULL)",
                (
                    switch.model,
                    switch.dimensions,
                    switch.previous,
                    switch.phase,
                    to_ms(switch.begun_at),
                ),
            )
        return switch

    def move_switch(
        self, model: str, *, before: SwitchPhase, after: SwitchPhase, at: datetime
    ) -> bool:
        switched_at = to_ms(at) if after == "switched" else None
        with self._db.writing() as connection:
            moved = connection.execute(
                "UPDATE vector_switch SET phase = ?, switched_at = coalesce(?, switched_at)"
                " WHERE model = ? AND phase = ?",
                (after, switched_at, model, before),
            )
            return moved.rowcount > 0

    def end_switch(self, model: str) -> bool:
        with self._db.writing() as connection:
            ended = connection.execute(
                "DELETE FROM vector_switch WHERE model = ? AND phase IN ('clearing', 'abandoning')",
                (model,),
            )
            return ended.rowcount > 0

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
        while settled := self._settle():
            yield settled

    def _settle(self) -> int:
        with self._db.writing() as connection:
            if not _is_in(connection, "settling", "clearing"):
                return 0
            rows = connection.execute(_STAGED, (_PAGE,)).fetchall()
            for number, scope_id, own, model_id, vector in rows:
                vectors.drop_staged(connection, number, scope_id)
                vectors.drop_vector(connection, number, scope_id, own)
                vectors.put_vector(connection, number, scope_id, model_id, vector)
                connection.execute(
                    "UPDATE facts SET model_id = ? WHERE fact_no = ?", (model_id, number)
                )
            touch_scopes(connection, {row[1] for row in rows})
        return len(rows)

    def clear_staged(self) -> Iterator[int]:
        while cleared := self._clear():
            yield cleared

    def _clear(self) -> int:
        with self._db.writing() as connection:
            if not _is_in(connection, "clearing", "abandoning"):
                return 0
            rows = connection.execute(_STAGED, (_PAGE,)).fetchall()
            for number, scope_id, *_ in rows:
                vectors.drop_staged(connection, number, scope_id)
            touch_scopes(connection, {row[1] for row in rows})
        return len(rows)


def switch_of(connection: sqlite3.Connection) -> VectorSwitch | None:
    """Return the current switch, if any."""
    row = connection.execute(_ROW).fetchone()
    if row is None:
        return None
    model, dimensions, previous, phase, begun_at, switched_at = row
    return VectorSwitch(
        model=model,
        dimensions=dimensions,
        previous=previous,
        phase=phase,
        begun_at=time(begun_at),
        switched_at=optional_time(switched_at),
    )


def _is_in(connection: sqlite3.Connection, *phases: SwitchPhase) -> bool:
    switch = switch_of(connection)
    return switch is not None and switch.phase in phases


def touch_scopes(connection: sqlite3.Connection, numbers: Collection[int]) -> None:
    """Invalidate the cached codes of these scopes in other processes."""
    connection.execute(
        "UPDATE scopes SET revision = revision + 1"
        " WHERE scope_id IN (SELECT value FROM json_each(?))",
        (json_array(numbers),),
    )
