"""Loading of the state that changes are planned on: one query for each kind of need."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from edenmem.memory import Answer, Disorder, Head, Needs, State
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, time, to_ms
from edenmem.store.sqlite.core.part import AMONG, json_array
from edenmem.store.sqlite.host.rows import AGENT, USER, agent_from, user_from
from edenmem.store.sqlite.memory import log
from edenmem.store.sqlite.memory.facts import fact_with_key

_COUNTS = ("facts", "reflections", "pending")

_IN_SCOPES = {
    "agent": "(SELECT scope_id FROM scopes WHERE agent_id = ?1)",
    "user": "(SELECT scope_id FROM scopes WHERE kind = 'user' AND owner = ?1)",
}
#: Kind of use of an agent or account → query that counts the uses; the ID is ``?1``.
_COUNTED = {
    "facts": "SELECT count(*) FROM facts WHERE scope_id IN {scopes}",
    "reflections": "SELECT count(*) FROM reflections WHERE scope_id IN {scopes}",
    "held": "SELECT count(*) FROM held WHERE scope_id IN {scopes}",
    "texts": "SELECT count(*) FROM consolidations WHERE scope_id IN {scopes} AND content <> ''",
    "policies": "SELECT count(*) FROM policies WHERE scope_id IN {scopes}",
    "sessions": "SELECT count(*) FROM session_members WHERE member_id = ?1 AND role = '{kind}'",
    "agents": "SELECT count(*) FROM agents WHERE '{kind}' = 'user' AND owner = ?1 AND NOT deleted",
}


def load_state(connection: sqlite3.Connection, needs: Needs, at: datetime) -> State:
    """Load the state for changes that were decided at ``at``."""
    return StateLoader(connection, needs).state(to_ms(at))


class StateLoader:
    """Loads one state in the caller's transaction. ``numbers`` are scope numbers."""

    def __init__(self, connection: sqlite3.Connection, needs: Needs) -> None:
        self._db = connection
        self._needs = needs
        named = {scope for scope, _ in needs.owners | needs.keys}
        self.numbers = scopes.numbers_of(
            connection, named | needs.texts | needs.buffers | needs.policies | needs.repairs
        )

    def state(self, at: int) -> State:
        """Load everything that is needed."""
        needs = self._needs
        owners, expiring = self._owners()
        facts = needs.facts | expiring
        state = State(
            facts=self._by_id(codec.FACT_WITH_VECTOR, "f.id", codec.fact_from, facts),
            reflections=self._by_id(
                codec.REFLECTION, "r.id", codec.reflection_from, needs.reflections
            ),
            held=self._by_id(codec.HELD, "e.id", codec.held_from, needs.held),
            owners=owners,
            keys=self._keys(),
            texts=self._by_scope(
                codec.CONSOLIDATION, "c", lambda row: codec.consolidation_from(row, ()), needs.texts
            ),
            buffers={scope: self._buffer(scope) for scope in needs.buffers},
            policies=self._by_scope(codec.POLICY, "p", codec.policy_from, needs.policies),
            agents=self._by_id(AGENT, "NOT deleted AND id", agent_from, needs.agents),
            users=self._by_id(USER, "NOT deleted AND id", user_from, needs.users),
            ids=self._ids(),
            names={
                (kind, name): self._has(f"SELECT 1 FROM {kind}s WHERE username = ?", name)
                for kind, name in needs.names
            },
            used={(kind, key): self._use(kind, key) for kind, key in needs.used},
            answers=self._answers(),
            blocks=self._blocks(at),
        )
        state.repairs = {scope: self._count_mismatch(scope) for scope in needs.repairs}
        texts = (state.texts.get(scope) for scope in needs.buffers)
        self._heads(
            state,
            needs.heads
            | {("fact", each) for each in expiring}
            | {("consolidation", each.id) for each in texts if each},
        )
        return state

    # -- documents ---------------------------------------------------------------------------

    def _rows(self, query: str, keys: Iterable[str | int]) -> Iterator[Row]:
        """Return the rows of a query with a list as its parameter; none for an empty list."""
        wanted = list(keys)
        if len(wanted) == 1:  # the usual case, without reading a list
            return iter(self._db.execute(query.replace(AMONG, "= ?"), wanted))
        return iter(self._db.execute(query, (json_array(wanted),)) if wanted else ())

    def _by_id(
        self, select: str, column: str, decode: Callable[[Row], Any], ids: Iterable[str]
    ) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys(ids)
        for row in self._rows(f"{select} WHERE {column} {AMONG}", found):
            model = decode(row)
            found[model.id] = model
        return found

    def _by_scope(
        self, select: str, table: str, decode: Callable[[Row], Any], wanted: Iterable[Scope]
    ) -> dict[Scope, Any]:
        found: dict[Scope, Any] = dict.fromkeys(wanted)
        numbers = [self.numbers[scope] for scope in found if scope in self.numbers]
        for row in self._rows(f"{select} WHERE {table}.scope_id {AMONG}", numbers):
            model = decode(row)
            found[model.home] = model
        return found

    def _owners(self) -> tuple[dict[tuple[Scope, str], str | None], set[str]]:
        """Return the facts with the needed hashes, and those among them that expire."""
        found: dict[tuple[Scope, str], str | None] = dict.fromkeys(self._needs.owners)
        expiring: set[str] = set()
        hashes: dict[Scope, list[str]] = {}
        for scope, digest in found:
            hashes.setdefault(scope, []).append(digest)
        for scope, wanted in hashes.items():
            number = self.numbers.get(scope)
            if number is not None:
                query = (
                    "SELECT hash, id, expires_at FROM facts"
                    f" WHERE scope_id = {number} AND hash {AMONG}"
                )
                for digest, fact_id, expires_at in self._rows(query, wanted):
                    found[scope, digest] = fact_id
                    if expires_at is not None:
                        expiring.add(fact_id)
        return found, expiring

    def _keys(self) -> dict[tuple[Scope, str], str | None]:
        found: dict[tuple[Scope, str], str | None] = dict.fromkeys(self._needs.keys)
        for scope, key in found:
            found[scope, key] = fact_with_key(self._db, self.numbers.get(scope), key)
        return found

    def _buffer(self, scope: Scope) -> dict[str, datetime]:
        rows = self._db.execute(
            "SELECT id, formed_at FROM reflections WHERE scope_id = ? AND absorbed = 0",
            (self.numbers.get(scope),),
        )
        return {reflection_id: time(formed_at) for reflection_id, formed_at in rows}

    def _count_mismatch(self, scope: Scope) -> Disorder | None:
        """Compare the stored and the actual counts of a scope.

        None if they agree and pending reflections have a document.
        """
        number = self.numbers.get(scope)
        if number is None:
            return None
        columns = ", ".join(_COUNTS)
        before = self._db.execute(
            f"SELECT {columns} FROM scopes WHERE scope_id = ?", (number,)
        ).fetchone()
        after = count_scope(self._db, number)
        has_text = self._has("SELECT 1 FROM consolidations WHERE scope_id = ?", number)
        if before == after and (has_text or not after[2]):
            return None
        told = (dict(zip(_COUNTS, counts, strict=True)) for counts in (before, after))
        return Disorder(before=next(told), after=next(told))

    # -- the log -----------------------------------------------------------------------------

    def _answers(self) -> dict[str, Answer | None]:
        found: dict[str, Answer | None] = dict.fromkeys(self._needs.answers)
        rows = self._rows(f"SELECT id, target_id, action FROM audit WHERE id {AMONG}", found)
        for change_id, target_id, action in rows:
            found[change_id] = Answer(target_id=target_id, void=action == log.VOID)
        return found

    def _heads(self, state: State, targets: Iterable[tuple[str, str]]) -> None:
        state.heads = dict.fromkeys(targets)
        for kind in ("fact", "consolidation"):
            rows = self._rows(
                "SELECT target_id, version, action FROM history WHERE history_no IN"
                f" (SELECT max(history_no) FROM history WHERE target_type = '{kind}'"
                f" AND target_id {AMONG} GROUP BY target_id)",
                [key for each, key in state.heads if each == kind],
            )
            for key, version, action in rows:
                state.heads[kind, key] = Head(version=version, action=action)
        for kind, key in state.heads:
            fact = state.facts.get(key) if kind == "fact" else None
            if fact is not None:
                self._origin(state, fact)

    def _origin(self, state: State, fact: Fact) -> None:
        key = ("fact", fact.id)
        head = state.heads[key]
        if head is None or head.version != fact.version:
            state.origins[key] = log.origin_of(self._db, fact)

    def _blocks(self, at: int) -> dict[str, bool]:
        found = dict.fromkeys(self._needs.blocks, False)
        if self._has("SELECT 1 FROM forgetting_blocks LIMIT 1"):
            rows = self._db.execute(
                "SELECT b.key FROM forgetting_blocks b"
                " JOIN forgettings x ON x.id = b.forgetting_id"
                f" WHERE b.key {AMONG} AND coalesce(x.closed_at, ?) >= ?",
                (json_array(found), at, at),
            )
            found.update((key, True) for (key,) in rows)
        return found

    # -- accounts ----------------------------------------------------------------------------

    def _ids(self) -> dict[str, bool]:
        wanted = self._needs.ids
        taken = {
            key
            for table in ("agents", "users")
            for (key,) in self._rows(f"SELECT id FROM {table} WHERE id {AMONG}", wanted)
        }
        return {key: key in taken for key in wanted}

    def _use(self, kind: str, account_id: str) -> dict[str, int]:
        texts = {
            name: query.format(kind=kind, scopes=_IN_SCOPES[kind])
            for name, query in _COUNTED.items()
        }
        return {
            name: self._db.execute(text, (account_id,)).fetchone()[0]
            for name, text in texts.items()
        }

    def _has(self, query: str, *values: str | int) -> bool:
        return self._db.execute(query, values).fetchone() is not None


def count_scope(connection: sqlite3.Connection, number: int) -> Row:
    """Count the facts, the reflections and the pending reflections of a scope."""
    found: Row = connection.execute(
        "SELECT (SELECT count(*) FROM facts WHERE scope_id = ?1),"
        " (SELECT count(*) FROM reflections WHERE scope_id = ?1),"
        " (SELECT count(*) FROM reflections WHERE scope_id = ?1 AND absorbed = 0)",
        (number,),
    ).fetchone()
    return found
