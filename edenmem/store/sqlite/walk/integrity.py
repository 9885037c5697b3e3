"""What a file says of its own integrity, and mending what is only derived in it."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from edenmem.errors import InputError
from edenmem.models.integrity import Finding, PresenceKind
from edenmem.models.scope import Scope
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core import schema as expected
from edenmem.store.sqlite.core.codec import to_ms
from edenmem.store.sqlite.core.part import BATCH, json_array
from edenmem.store.sqlite.memory import vectors
from edenmem.store.sqlite.memory.memory import consolidation_of
from edenmem.store.sqlite.walk.records import Records
from edenmem.text import word_count

_GIVEN = "IN (SELECT value FROM json_each(?1))"
_PRESENT: dict[PresenceKind, str] = {
    "agent": f"SELECT id FROM agents WHERE id {_GIVEN} AND NOT deleted",
    "person": (
        f"SELECT id FROM users WHERE id {_GIVEN} AND NOT deleted UNION"
        f" SELECT eden_user_id FROM users WHERE eden_user_id {_GIVEN} AND NOT deleted"
    ),
    "session": f"SELECT id FROM sessions WHERE id {_GIVEN} AND NOT deleted",
    "group": f"SELECT DISTINCT group_id FROM sessions WHERE group_id {_GIVEN} AND NOT deleted",
    "message": f"SELECT id FROM messages WHERE id {_GIVEN}",
    "reflection": f"SELECT id FROM reflections WHERE id {_GIVEN}",
    "consolidation": f"SELECT id FROM consolidations WHERE id {_GIVEN}",
}

#: Session and person, for those who are listed and those who wrote.
_PEOPLE = f"""
    SELECT t.session_id, coalesce(nullif(u.eden_user_id, ''), t.account) FROM (
        SELECT session_id, member_id AS account FROM session_members
        WHERE session_id {_GIVEN} AND role = 'user'
        UNION SELECT m.session_id, m.sender FROM messages m
        WHERE m.session_id {_GIVEN} AND m.role = 'user' AND m.trigger = 0
            AND m.sender IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM session_members a WHERE a.session_id = m.session_id
                AND a.role = 'agent' AND a.member_id = m.sender)
    ) AS t LEFT JOIN users u ON u.id = t.account
"""

#: Column of ``scopes`` → what it counts.
_COUNTED = {
    "facts": "SELECT count(*) FROM facts x WHERE x.scope_id = scopes.scope_id",
    "reflections": "SELECT count(*) FROM reflections x WHERE x.scope_id = scopes.scope_id",
    "pending": (
        "SELECT count(*) FROM reflections x WHERE x.scope_id = scopes.scope_id AND x.absorbed = 0"
    ),
}

#: How many faults SQLite looks for before it gives up: one is enough to know.
_FAULTS = 20


class IntegrityChecks(Records):
    """See `edenmem.store.protocol.integrity.Integrity`."""

    # -- the file ----------------------------------------------------------------------------

    def file_faults(self) -> Iterator[Finding]:
        with self._db.reading() as connection:
            said = [row[0] for row in connection.execute(f"PRAGMA quick_check({_FAULTS})")]
            broken = connection.execute("PRAGMA foreign_key_check").fetchmany(_FAULTS)
            missing = list(_missing(connection))
        file = str(self._db.path)
        for line in said:
            if line != "ok":
                yield Finding(target_type="file", target_id=file, detail=line)
        for table, row, parent, _ in broken:
            detail = f"row {row} of {table} points to a row of {parent} that is not there"
            yield Finding(target_type="file", target_id=f"{table}/{row}", detail=detail)
        yield from missing

    def mend_schema(self) -> int:
        with self._db.writing() as connection:
            lost = [
                part
                for part in expected.schema().parts.values()
                if part.type == "trigger" and not _is_there(connection, part)
            ]
            for part in lost:
                connection.execute(part.sql)
        return len(lost)

    # -- looking things up -------------------------------------------------------------------

    def present(self, kind: PresenceKind, ids: Sequence[str]) -> set[str]:
        with self._db.reading() as connection:
            return {row[0] for row in connection.execute(_PRESENT[kind], (json_array(ids),))}

    def people_of(self, session_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        people: dict[str, set[str]] = {}
        with self._db.reading() as connection:
            given = (json_array(session_ids),)
            for (session_id,) in connection.execute(
                f"SELECT id FROM sessions WHERE id {_GIVEN}", given
            ):
                people[session_id] = set()
            for session_id, person in connection.execute(_PEOPLE, given):
                people.setdefault(session_id, set()).add(person)
        return {session_id: frozenset(found) for session_id, found in people.items()}

    def buffers(self, scopes_: Sequence[Scope]) -> dict[Scope, tuple[str, ...]]:
        with self._db.reading() as connection:
            return {
                scope: tuple(
                    reflection_id
                    for (reflection_id,) in connection.execute(
                        "SELECT id FROM reflections WHERE scope_id = ? AND absorbed = 0"
                        " ORDER BY formed_at, id",
                        (number,),
                    )
                )
                for scope, number in scopes.numbers_of(connection, scopes_).items()
            }

    def list_versions(self, target_type: str, ids: Sequence[str]) -> dict[str, dict[int, str]]:
        found: dict[str, dict[int, str]] = {}
        with self._db.reading() as connection:
            for target_id, version, action in connection.execute(
                "SELECT target_id, version, action FROM history"
                f" WHERE target_id {_GIVEN} AND target_type = ?2",
                (json_array(ids), target_type),
            ):
                found.setdefault(target_id, {})[version] = action
        return found

    # -- what the schema rules out -----------------------------------------------------------

    def twins(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        return iter(())

    def find_shared_messages(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        return iter(())

    def find_lost_progress(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        return iter(())  # no platform writes here

    # -- what is derived ---------------------------------------------------------------------

    def vector_faults(self, *, agent_id: str | None = None) -> Iterator[Finding]:
        query = (
            "SELECT f.fact_no, f.id, s.kind, s.agent_id, s.owner, m.name, m.dimensions, v.vector"
            " FROM facts f JOIN scopes s USING (scope_id) LEFT JOIN vectors v USING (fact_no)"
            " LEFT JOIN embedding_models m USING (model_id)"
            " WHERE f.fact_no > ?1 AND (f.model_id IS NOT NULL OR v.fact_no IS NOT NULL)"
            " AND +s.agent_id = coalesce(?2, s.agent_id)"
            f" ORDER BY f.fact_no LIMIT {BATCH}"
        )
        last = 0
        while True:
            with self._db.reading() as connection:
                rows = connection.execute(query, (last, agent_id)).fetchall()
            for _, fact_id, kind, owner_agent, owner, model, dimensions, vector in rows:
                if detail := _unusable(model, dimensions, vector):
                    yield Finding(
                        target_type="fact",
                        target_id=fact_id,
                        detail=detail,
                        agent_id=owner_agent,
                        scope=codec.scope_of(kind, owner_agent, owner),
                    )
            if len(rows) < BATCH:
                return
            last = rows[-1][0]

    def finish_absorbing(self, scope: Scope) -> int:
        with self._db.writing() as connection:
            number = scopes.number_of(connection, scope)
            text = None if number is None else consolidation_of(connection, number)
            if number is None or text is None:
                return 0
            at = to_ms(text.last_consolidated_at or text.updated_at)
            marked = connection.execute(
                "UPDATE reflections SET absorbed = 1, absorbed_at = ?, consolidated_into = ?"
                " WHERE scope_id = ? AND absorbed = 0 AND id IN (SELECT value FROM json_each(?))",
                (at, text.id, number, json_array(text.absorbed_ids)),
            ).rowcount
            if marked:
                scopes.touch(connection, number, at or 0, pending=-marked)
        return marked

    def drop_vectors(self, fact_ids: Sequence[str]) -> int:
        with self._db.writing() as connection:
            numbers = connection.execute(
                f"SELECT fact_no, scope_id, model_id FROM facts WHERE id {_GIVEN}",
                (json_array(fact_ids),),
            ).fetchall()
            for fact_no, scope_id, model_id in numbers:
                connection.execute("DELETE FROM vectors WHERE fact_no = ?", (fact_no,))
                connection.execute(
                    "DELETE FROM vector_codes WHERE scope_id = ? AND model_id = ? AND fact_no = ?",
                    (scope_id, model_id, fact_no),
                )
                connection.execute("UPDATE facts SET model_id = NULL WHERE fact_no = ?", (fact_no,))
            self._revise(connection, {scope_id for _, scope_id, _ in numbers})
        return len(numbers)

    @staticmethod
    def _revise(connection: sqlite3.Connection, numbers: set[int]) -> None:
        """Let other processes see that what they keep of these scopes is old."""
        connection.executemany(
            "UPDATE scopes SET revision = revision + 1 WHERE scope_id = ?",
            [(number,) for number in sorted(numbers)],
        )

    def stray_contexts(self) -> Iterator[Finding]:
        with self._db.reading() as connection:
            rows = connection.execute(
                "SELECT c.session_id, c.agent_id FROM cached_contexts c WHERE NOT EXISTS"
                " (SELECT 1 FROM sessions s JOIN session_members m ON m.session_id = s.id"
                " AND m.role = 'agent' AND m.member_id = c.agent_id"
                " WHERE s.id = c.session_id AND NOT s.deleted)"
            ).fetchall()
        for session_id, agent_id in rows:
            yield Finding(
                target_type="session",
                target_id=session_id,
                detail="keeps a context although it is gone, or the agent is not in it",
                agent_id=agent_id,
                related=(agent_id,),
            )

    def drop_contexts(self, pairs: Sequence[tuple[str, str]]) -> int:
        with self._db.writing() as connection:
            return connection.executemany(
                "DELETE FROM cached_contexts WHERE session_id = ? AND agent_id = ?", list(pairs)
            ).rowcount

    def miscounts(self) -> Iterator[Finding]:
        counted = ", ".join(f"{kept}, ({count})" for kept, count in _COUNTED.items())
        with self._db.reading() as connection:
            rows = connection.execute(f"SELECT kind, agent_id, owner, {counted} FROM scopes")
            wrong = [
                _miscount(row[:3], name, kept, real)
                for row in rows
                for name, kept, real in zip(_COUNTED, row[3::2], row[4::2], strict=True)
                if kept != real
            ]
            wrong += [
                _miscount(owner, "words", words, real)
                for *owner, words, content in connection.execute(
                    "SELECT s.kind, s.agent_id, s.owner, c.words, c.content"
                    " FROM consolidations c JOIN scopes s USING (scope_id)"
                )
                if words != (real := word_count(content))
            ]
        yield from wrong

    def recount(self) -> int:
        names = ", ".join(f"{kept} = ({count})" for kept, count in _COUNTED.items())
        differs = " OR ".join(f"{kept} <> ({count})" for kept, count in _COUNTED.items())
        with self._db.writing() as connection:
            mended = connection.execute(f"UPDATE scopes SET {names} WHERE {differs}").rowcount
            texts = connection.execute("SELECT scope_id, words, content FROM consolidations")
            wrong = [
                (real, scope_id)
                for scope_id, words, content in texts
                if words != (real := word_count(content))
            ]
            connection.executemany("UPDATE consolidations SET words = ? WHERE scope_id = ?", wrong)
        return mended + len(wrong)


def _is_there(connection: sqlite3.Connection, part: expected.Part) -> bool:
    found = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = ? AND name = ?", (part.type, part.name)
    )
    return found.fetchone() is not None


def _missing(connection: sqlite3.Connection) -> Iterator[Finding]:
    """What the schema lacks, indexes left aside, which are told of with the indexes."""
    schema = expected.schema()
    for part in schema.parts.values():
        if part.type == "index":
            continue
        lacks = ""
        if not _is_there(connection, part):
            lacks = f"the {part.type} {part.name} is missing"
        elif part.type == "table":
            gone = schema.columns[part.name] - expected.columns_of(connection, part.name)
            lacks = f"the table {part.name} has no {', '.join(sorted(gone))}" if gone else ""
        if lacks:
            yield Finding(target_type=part.type, target_id=part.name, detail=lacks)


def _unusable(model: str | None, dimensions: int | None, vector: bytes | None) -> str:
    """What is wrong with a vector; empty if nothing is."""
    if model is None:
        return "has a vector of no model"
    if vector is None:
        return f"is said to have a vector of {model or 'some model'}, and has none"
    if dimensions and len(vector) != 4 * dimensions:
        return f"has a vector of {len(vector)} bytes; those of {model} have {4 * dimensions}"
    try:
        vectors.check_vector(vector)
    except InputError as error:
        return error.message
    return ""


def _miscount(owner: Sequence[str], name: str, kept: int, real: int) -> Finding:
    scope = codec.scope_of(*owner)
    return Finding(
        target_type="scope",
        target_id=scope.key,
        detail=f"{name}: {kept:,} are noted, {real:,} are there",
        agent_id=scope.agent_id,
        scope=scope,
    )
