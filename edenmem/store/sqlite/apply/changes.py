"""Changes to memory: loaded, planned by `edenmem.memory`, and written in one transaction.

Under ``BEGIN IMMEDIATE`` there are no other writers between reading and writing. An error (an
invalid vector, a full disk) rolls back the whole set.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from edenmem.memory import (
    Answer,
    Disorder,
    Effect,
    Head,
    Needs,
    State,
    Write,
    needs,
    plan_all,
)
from edenmem.models.changes import ChangeResult, ChangeSet
from edenmem.models.host import Agent, User
from edenmem.models.memory import Consolidation, Fact, FailedDrafts, Held, Policy, Reflection
from edenmem.models.records import AuditEntry, HistoryEntry
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import batched
from edenmem.store.sqlite.core import codec, scopes
from edenmem.store.sqlite.core.codec import Row, time, to_ms
from edenmem.store.sqlite.core.part import AMONG, Part, json_array
from edenmem.store.sqlite.core.scopes import OF_SCOPE, scope_keys
from edenmem.store.sqlite.host.rows import AGENT, AGENTS, USER, USERS, insert_account
from edenmem.store.sqlite.memory import documents, log

#: Number of changes that are loaded, planned and written together.
_BATCH = 1000


class Changes(Part):
    """See `edenmem.store.protocol.memory.Changes`."""

    def apply(self, changes: ChangeSet) -> list[ChangeResult]:
        if not changes.changes:
            return []
        with self._db.writing() as connection:
            return apply_changes(connection, changes)

    def load_state(self, needs: Needs, *, at: datetime) -> State:
        with self._db.reading() as connection:
            return StateLoader(connection, needs).state(to_ms(at))

    def set_failed_drafts(self, scope: Scope, failed: FailedDrafts) -> None:
        self._write(
            f"UPDATE consolidations SET failed_drafts = ? WHERE scope_id {OF_SCOPE}",
            (msgspec.json.encode(failed).decode(), scope_keys(scope)),
        )

    def finish_absorbing(self, scope: Scope) -> None:
        with self._db.writing() as connection:
            number = scopes.number_of(connection, scope)
            marked = connection.execute(
                "UPDATE reflections AS r SET absorbed = 1, consolidated_into = c.id,"
                " absorbed_at = coalesce(c.last_consolidated_at, c.updated_at)"
                " FROM consolidations c WHERE c.scope_id = ? AND r.scope_id = c.scope_id"
                " AND r.absorbed = 0 AND r.id IN (SELECT value FROM json_each(c.absorbed_ids))",
                (number,),
            ).rowcount
            if number is not None and marked:
                scopes.touch(connection, number, 0, pending=-marked)

    def settle_propagation(self, scope: Scope, version: int) -> None:
        self._write(
            "UPDATE consolidations SET unpropagated = (SELECT nullif(json_group_array(value), '[]')"
            f" FROM json_each(unpropagated) WHERE value <> ?) WHERE scope_id {OF_SCOPE}",
            (version, scope_keys(scope)),
        )


def apply_changes(connection: sqlite3.Connection, changes: ChangeSet) -> list[ChangeResult]:
    """Apply a set in the caller's transaction."""
    at = to_ms(changes.at)
    writer = EffectWriter(connection, at)
    results: list[ChangeResult] = []
    for batch in batched(changes.changes, _BATCH):
        loader = StateLoader(connection, needs(batch, automatic=changes.automatic))
        effects = plan_all(changes, loader.state(at), batch, start=len(results))
        writer.write(effects, loader.numbers)
        results += [effect.result for effect in effects]
    return results


class EffectWriter:
    """Writes effects in order; shared rows are written once per batch."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        self._db = connection
        self._at = at
        self._numbers: dict[Scope, int] = {}
        self._touched: dict[Scope, tuple[int, int, int, int]] = {}
        self._versions: list[tuple[HistoryEntry, int]] = []
        self._entries: list[tuple[AuditEntry, int | None]] = []

    def write(self, effects: Iterable[Effect], numbers: Mapping[Scope, int]) -> None:
        """Write all effects; ``numbers`` are the known scope numbers."""
        self._numbers.update(numbers)
        for effect in effects:
            for write in effect.writes:
                self._write(write)
            self._versions += [(each, self._number(each.scope)) for each in effect.versions]
            if (entry := effect.entry) is not None:
                scope_id = None if entry.scope is None else self._number(entry.scope)
                self._entries.append((entry, scope_id))
            for touch in effect.touches:
                revision, *counts = self._touched.get(touch.scope, (0, 0, 0, 0))
                more = (touch.facts, touch.reflections, touch.pending)
                grown = (now + by for now, by in zip(counts, more, strict=True))
                self._touched[touch.scope] = (revision + 1, *grown)  # type: ignore[assignment]
            if effect.repairs is not None:
                self._touch()
                number = self._number(effect.repairs)
                self._db.execute(
                    "UPDATE scopes SET facts = ?, reflections = ?, pending = ? WHERE scope_id = ?",
                    (*count_scope(self._db, number), number),
                )
        log.add_versions(self._db, self._versions)
        log.add_entries(self._db, self._entries)
        self._touch()
        self._versions, self._entries = [], []

    def _number(self, scope: Scope) -> int:
        number = self._numbers.get(scope)
        if number is None:
            number = self._numbers[scope] = scopes.make_number(self._db, scope)
        return number

    def _touch(self) -> None:
        for scope, (revision, in_facts, in_reflections, pending) in self._touched.items():
            scopes.touch(
                self._db,
                self._number(scope),
                self._at,
                revision=revision,
                facts=in_facts,
                reflections=in_reflections,
                pending=pending,
            )
        self._touched = {}

    # -- documents ---------------------------------------------------------------------------

    def _write(self, write: Write) -> None:
        match write.model:
            case Fact() as fact:
                self._write_fact(fact, write)
            case Reflection() as reflection:
                self._write_reflection(reflection, write)
            case Held() as held:
                if write.new is None:
                    self._delete("held", held.id)
                else:
                    documents.insert_held(self._db, held, self._number(held.home))
            case Consolidation() as text:
                documents.put_text(self._db, text, self._number(text.home))
            case Policy() as policy:
                if write.new is None:
                    self._delete("policies", policy.id)
                else:
                    documents.put_policy(self._db, policy, self._number(policy.home))
            case Agent() | User():
                self._write_account(write)

    def _write_fact(self, fact: Fact, write: Write) -> None:
        old = write.old
        if not isinstance(old, Fact):
            documents.insert_fact(self._db, fact, self._number(fact.home))
        elif write.new is None:
            documents.delete_fact(self._db, documents.locate_fact(self._db, old))
        elif fact.hash == old.hash and fact.embedding is old.embedding:
            documents.update_fact(self._db, old, fact)
        else:
            documents.rewrite_fact(self._db, documents.locate_fact(self._db, old), fact)

    def _write_reflection(self, reflection: Reflection, write: Write) -> None:
        if write.old is None:
            documents.insert_reflection(self._db, reflection, self._number(reflection.home))
        elif write.new is None:
            self._delete("reflections", reflection.id)
        else:
            documents.update_reflection(self._db, reflection)

    def _write_account(self, write: Write) -> None:
        match write.old, write.new:
            case None, (Agent() | User()) as account:
                insert_account(self._db, account)
            case _, Agent() as agent:
                self._db.execute(
                    "UPDATE agents SET user_memory_enabled = ?, agent_memory_enabled = ?"
                    " WHERE id = ?",
                    (agent.user_memory_enabled, agent.agent_memory_enabled, agent.id),
                )
            case _, None:
                self._delete(f"{write.kind}s", write.model.id)

    def _delete(self, table: str, id: str) -> None:
        self._db.execute(f"DELETE FROM {table} WHERE id = ?", (id,))


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
            agents=self._by_id(AGENT, "NOT deleted AND id", AGENTS.make, needs.agents),
            users=self._by_id(USER, "NOT deleted AND id", USERS.make, needs.users),
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
            found[scope, key] = documents.fact_with_key(self._db, self.numbers.get(scope), key)
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
                "SELECT target_id, version FROM history WHERE history_no IN"
                f" (SELECT max(history_no) FROM history WHERE target_type = '{kind}'"
                f" AND target_id {AMONG} GROUP BY target_id)",
                [key for each, key in state.heads if each == kind],
            )
            for key, version in rows:
                state.heads[kind, key] = Head(version=version)
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
