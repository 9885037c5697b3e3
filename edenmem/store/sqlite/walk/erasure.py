"""Search and removal of the traces of a subject.

Each step is a transaction of its own, so that a whole agent does not fill the log, and continues
where an interrupted run stopped. Derived data is removed first, since it is found through its
origin.
"""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from edenmem.models.backup import RecordKind, Selection
from edenmem.models.forgetting import (
    FORGOTTEN,
    Forgetting,
    Passage,
    Traces,
    whole_accounts,
)
from edenmem.models.memory import Fact, Reflection
from edenmem.models.records import AuditEntry, content_mark, users_mark
from edenmem.store.protocol.erasure import KINDS
from edenmem.store.sqlite.core import scopes, source_words
from edenmem.store.sqlite.core.codec import Row, Table, as_json, from_list, to_ms
from edenmem.store.sqlite.core.part import AMONG, GIVEN, Part, json_array
from edenmem.store.sqlite.memory import documents, log
from edenmem.store.sqlite.walk.sources import (
    BY_SUBJECT,
    OF_ACCOUNTS,
    SOURCES,
    count_rows,
)

_DERIVED, _REPLIES = "derived reflections", "notes of replies"
_VERSIONS, _ENTRIES = KINDS[RecordKind.HISTORY], KINDS[RecordKind.AUDIT]
#: Facts and reflections in one transaction.
_AT_ONCE = 500

#: Audit entries with content.
_FULL = "(before IS NOT NULL OR after IS NOT NULL OR reason <> '')"
#: Empties audit entries with their salts (`StoredEntry`); the first parameter is the mark.
_EMPTY_AUDIT = (
    "UPDATE audit SET before = NULL, after = NULL, reason = '',"
    " salts = json_remove(salts, '$.content', '$.users', '$.reason'),"
    f" erased = json_insert(coalesce(erased, '[]'), '$[#]', ?) WHERE {{}} AND {_FULL}"
)

#: The related users of a JSON value, without the given ones.
_OTHERS = f"(SELECT json_group_array(value) FROM json_each({{}}) WHERE value NOT {GIVEN})"
_NAMING = (
    "SELECT id FROM {} WHERE related_users IS NOT NULL"
    f" AND EXISTS (SELECT 1 FROM json_each(related_users) WHERE value {GIVEN})"
    " AND (?2 IS NULL OR scope_id IN (SELECT scope_id FROM scopes WHERE agent_id = ?2))"
)
_UNRELATE = (
    f"UPDATE {{}} SET related_users = nullif({_OTHERS.format('related_users')}, '[]')"
    " WHERE id IN (SELECT value FROM json_each(?2))"
)
#: Removes all related users from audit entries: what is left of a list could not be sealed.
_UNRELATE_AUDIT = (
    "UPDATE audit SET before = json_remove(before, '$.related_users'),"
    " after = json_remove(after, '$.related_users'), salts = json_remove(salts, '$.users'),"
    " erased = json_insert(coalesce(erased, '[]'), '$[#]', ?)"
    f" WHERE target_id {AMONG} AND target_type = ? AND json_type(salts, '$.users') IS NOT NULL"
)

#: Kind of a passage → statement that empties it.
_EMPTYING = {
    "previous": f"UPDATE facts SET previous_content = NULL WHERE id {AMONG}",
    "audit": _EMPTY_AUDIT.format(f"id {AMONG}"),
    "history": f"UPDATE history SET content = '{FORGOTTEN}', fields = NULL, snapshot = NULL"
    f" WHERE id {AMONG}",
    # A worker's next step must not write back what it knows.
    "formation": "UPDATE formations SET decisions = '[]', error = NULL, updated_at = updated_at + 1"
    f" WHERE id {AMONG}",
}

#: Passages that are part of memory, so that their scopes change.
_IN_MEMORY = ("previous", "doubt")
#: Empties quote and doubt; the memory stays in doubt.
_DOUBT = f"unconfirmed = iif(unconfirmed = '', '', '{FORGOTTEN}')"

_FORGETTINGS = Table(
    Forgetting,
    "forgettings",
    "forgettings",
    "id kind",
    times="begun_at closed_at",
    others={"counts": as_json(dict[str, int], None)},
    start=1,
)
_FORGETTING = (
    "SELECT (SELECT json_group_array(key) FROM forgetting_blocks"
    " WHERE forgetting_id = forgettings.id),"
    f" {_FORGETTINGS.qualified} FROM forgettings"
)


def _forgetting(row: Row) -> Forgetting:
    return _FORGETTINGS.make(row, blocks=tuple(sorted(from_list(row[0]))))


class Erasure(Part):
    """See `edenmem.store.protocol.erasure.Erasure`."""

    # -- traces ------------------------------------------------------------------------------------

    def count_conversations(self, traces: Traces) -> dict[str, int]:
        own = Selection(traces=msgspec.structs.replace(traces, shared=()))
        shared = Selection(traces=msgspec.structs.replace(traces, own=()))
        with self._db.reading() as connection:
            counts = Counter(
                sessions=count_rows(connection, RecordKind.SESSION, own),
                messages=count_rows(connection, RecordKind.MESSAGE, own),
            )
            counts[_shared_messages(traces)] += count_rows(connection, RecordKind.MESSAGE, shared)
            counts["accounts"] = _count(connection, f"users WHERE id {AMONG}", traces.accounts)
        return dict(+counts)

    def count_traces(self, traces: Traces, derived: Sequence[str]) -> dict[str, int]:
        about = f"audit WHERE target_type = 'reflection' AND target_id {AMONG} AND {_FULL}"
        with self._db.reading() as connection:
            cached = f"cached_contexts WHERE agent_id {AMONG}"
            counts = Counter(
                {
                    "cached contexts": _count(connection, cached, traces.agents),
                    _REPLIES: log.count_replies(connection, traces),
                    _DERIVED: _count(connection, f"reflections WHERE id {AMONG}", derived),
                    _ENTRIES: _count(connection, about, derived),
                }
            )
        return dict(+counts)

    # -- forgettings -------------------------------------------------------------------------------

    def begin_forgetting(self, forgetting: Forgetting) -> Forgetting:
        with self._db.writing() as connection:
            connection.execute(
                "INSERT INTO forgettings (id, kind, begun_at, counts) VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT (id) DO UPDATE SET"
                " begun_at = iif(closed_at IS NULL, begun_at, ?3),"
                " counts = iif(closed_at IS NULL, counts, ?4), closed_at = NULL",
                (
                    forgetting.id,
                    forgetting.kind,
                    to_ms(forgetting.begun_at),
                    msgspec.json.encode(forgetting.counts).decode(),
                ),
            )
            connection.executemany(
                "INSERT OR IGNORE INTO forgetting_blocks VALUES (?, ?)",
                [(key, forgetting.id) for key in forgetting.blocks],
            )
            row = connection.execute(f"{_FORGETTING} WHERE id = ?", (forgetting.id,)).fetchone()
        return _forgetting(row)

    def forgettings(self) -> list[Forgetting]:
        order = "ORDER BY closed_at IS NOT NULL, begun_at DESC, id"
        return list(map(_forgetting, self._fetch(f"{_FORGETTING} {order}")))

    def close_forgetting(
        self, forgetting_id: str, *, at: datetime, counts: dict[str, int], entry: AuditEntry
    ) -> None:
        with self._db.writing() as connection:
            closed = connection.execute(
                "UPDATE forgettings SET closed_at = ?, counts = ?"
                " WHERE id = ? AND closed_at IS NULL",
                (to_ms(at), msgspec.json.encode(counts).decode(), forgetting_id),
            ).rowcount
            if closed:
                _add_entries(connection, [entry])

    def add_entries(self, entries: Sequence[AuditEntry]) -> None:
        with self._db.writing() as connection:
            _add_entries(connection, entries)

    def find_returned(self, since: datetime) -> Iterator[Fact | Reflection]:
        return iter(())  # only edenmem writes the file, and the blocks refuse it

    def find_old_contexts(self, *, since: datetime, before: datetime) -> dict[str, datetime]:
        return {}

    # -- memory ------------------------------------------------------------------------------------

    def erase(
        self, traces: Traces, derived: Sequence[str], *, at: datetime, run: str
    ) -> dict[str, int]:
        removed: Counter[str] = Counter()
        mark = content_mark(run)
        for reflection_id in derived:
            self._erase_reflections(_DERIVED, [reflection_id], at, mark, removed)
        if traces.facts:  # also the past of deleted ones
            self._erase_facts(traces.facts, at, mark, removed)
        for ids in self._ids(RecordKind.FACT, traces):
            self._erase_facts(ids, at, mark, removed)
        for ids in self._ids(RecordKind.REFLECTION, traces):
            self._erase_reflections("reflections", ids, at, mark, removed)
        where = SOURCES[RecordKind.HELD].narrow(Selection(traces=traces))
        with self._db.writing() as connection:
            whole = json_array(scopes.numbers_of(connection, traces.scopes).values())
            gone = connection.execute(
                f"DELETE FROM held AS e WHERE {where.text} RETURNING id", where.values
            ).fetchall()
            removed["held items"] += len(gone)
            held = (*(id for (id,) in gone), *traces.held)
            _erase_past(connection, "held", held, mark, removed)
        for kind, table in (("texts", "consolidations"), ("policies", "policies")):
            with self._db.writing() as connection:
                gone = connection.execute(
                    f"DELETE FROM {table} WHERE scope_id {AMONG} RETURNING scope_id, version > 0",
                    (whole,),
                ).fetchall()
                # In the same transaction: cached contexts depend on the revision.
                for scope_id, is_written in gone:
                    scopes.touch(connection, scope_id, to_ms(at))
                    removed[kind] += is_written
        accounts = json_array(whole_accounts(traces))
        for kind, statement, values in (
            (_VERSIONS, f"DELETE FROM history WHERE scope_id {AMONG}", (whole,)),
            (_ENTRIES, _EMPTY_AUDIT.format(f"scope_id {AMONG}"), (mark, whole)),
            (_ENTRIES, _EMPTY_AUDIT.format(OF_ACCOUNTS), (mark, accounts)),
        ):
            removed[kind] += self._write(statement, values)
        for kind in ("fact", "reflection"):
            self._unrelate(kind, traces, users_mark(run))
        with self._db.writing() as connection:
            removed[_REPLIES] += log.erase_told(connection, traces)
        removed["cached contexts"] += self._write(
            f"DELETE FROM cached_contexts WHERE agent_id {AMONG}", (json_array(traces.agents),)
        )
        return dict(+removed)

    def _unrelate(self, kind: str, traces: Traces, mark: str) -> None:
        """Remove the accounts from the related users of the memory that stays."""
        accounts, table = json_array(traces.accounts), f"{kind}s"
        with self._db.writing() as connection:
            rows = connection.execute(_NAMING.format(table), (accounts, traces.agent_id))
            ids = json_array(id for (id,) in rows.fetchall())
            connection.execute(_UNRELATE_AUDIT, (mark, ids, kind))
            connection.execute(_UNRELATE.format(table), (accounts, ids))

    def mark_messages(self, traces: Traces) -> None:
        chosen = f"SELECT id FROM messages m WHERE {_OF_SUBJECT}"
        subject = (traces.own, traces.shared, traces.accounts, traces.messages)
        values = tuple(map(json_array, subject))
        with self._db.writing() as connection:
            connection.execute(f"INSERT OR IGNORE INTO forgotten_messages {chosen}", values)
            connection.execute(  # also missing ones, which a backup may bring
                "INSERT OR IGNORE INTO forgotten_messages SELECT value FROM json_each(?)",
                (json_array(traces.messages),),
            )
            gone = [id for (id,) in connection.execute(chosen, values)]
            source_words.refresh_words(connection, gone)

    def _ids(self, kind: RecordKind, traces: Traces) -> Iterator[list[str]]:
        """Yield the remaining IDs in batches of one transaction."""
        source = SOURCES[kind]
        where = source.narrow(Selection(traces=traces))
        query = f"SELECT id FROM {source.table} WHERE {where.text} LIMIT {_AT_ONCE}"
        while rows := self._fetch(query, where.values):
            yield [id for (id,) in rows]

    def _erase_facts(
        self, ids: Sequence[str], at: datetime, mark: str, removed: Counter[str]
    ) -> None:
        with self._db.writing() as connection:
            for fact_id in ids:
                stored = documents.find_fact(connection, fact_id)
                if stored is not None:
                    documents.delete_fact(connection, stored)
                    scopes.touch(connection, stored.scope_id, to_ms(at), facts=-1)
                    removed["facts"] += 1
            _erase_past(connection, "fact", ids, mark, removed)

    def _erase_reflections(
        self, kind: str, ids: Sequence[str], at: datetime, mark: str, removed: Counter[str]
    ) -> None:
        with self._db.writing() as connection:
            gone = connection.execute(
                f"DELETE FROM reflections WHERE id {AMONG} RETURNING scope_id, absorbed",
                (json_array(ids),),
            ).fetchall()
            for scope_id, absorbed in gone:
                scopes.touch(
                    connection, scope_id, to_ms(at), reflections=-1, pending=0 if absorbed else -1
                )
            removed[kind] += len(gone)
            _erase_past(connection, "reflection", ids, mark, removed)

    def redact(self, passages: Sequence[Passage], *, run: str) -> int:
        emptied = 0
        for kind, statement in _EMPTYING.items():
            ids = json_array(dict.fromkeys(p.id for p in passages if p.kind == kind))
            mark = (content_mark(run),) if kind == "audit" else ()
            emptied += self._write(statement, (*mark, ids))
        ids = json_array(p.id for p in passages if p.kind == "doubt")
        for what in (f"facts SET quote = '', {_DOUBT}", f"reflections SET {_DOUBT}"):
            emptied += self._write(f"UPDATE {what} WHERE id {AMONG}", (ids,))
        changed = {p.scope for p in passages if p.kind in _IN_MEMORY and p.scope is not None}
        with self._db.writing() as connection:
            for passage in passages:
                if passage.kind == "context":
                    emptied += connection.execute(
                        "DELETE FROM cached_contexts WHERE session_id = ? AND agent_id = ?",
                        passage.id.split("/"),
                    ).rowcount
            scopes.touch_all(connection, scopes.numbers_of(connection, changed).values())
        return emptied

    # -- conversations -----------------------------------------------------------------------------

    def erase_messages(self, traces: Traces) -> dict[str, int]:
        removed: Counter[str] = Counter()
        accounts, shared = json_array(traces.accounts), json_array(traces.shared)
        own = json_array(traces.own)
        for kind, statement, values in (
            ("messages", f"DELETE FROM messages WHERE session_id {AMONG}", (own,)),
            (
                _shared_messages(traces),
                f"DELETE FROM messages AS m WHERE session_id {AMONG} AND {BY_SUBJECT}",
                (shared, accounts, json_array(traces.messages)),
            ),
            ("", f"DELETE FROM formations WHERE session_id {AMONG}", (own,)),  # emptied before
            ("sessions", f"DELETE FROM sessions WHERE id {AMONG}", (own,)),
            (
                "",
                f"DELETE FROM session_members WHERE member_id {AMONG} AND role = 'user'",
                (accounts,),
            ),
            (
                "",
                f"UPDATE sessions SET owner = NULL WHERE id {AMONG} AND owner {AMONG}",
                (shared, accounts),
            ),
            ("accounts", f"DELETE FROM users WHERE id {AMONG}", (accounts,)),
        ):
            removed[kind] += self._write(statement, values)
        return {kind: number for kind, number in removed.items() if kind and number}


#: Messages in the subject's own sessions, or by its accounts, or sources of its facts.
_OF_SUBJECT = f"session_id {AMONG} OR (session_id {AMONG} AND {BY_SUBJECT})"


def _count(connection: sqlite3.Connection, rows: str, ids: Sequence[str]) -> int:
    """Count rows whose condition has IDs."""
    found: int
    (found,) = connection.execute(f"SELECT count(*) FROM {rows}", (json_array(ids),)).fetchone()
    return found


def _shared_messages(traces: Traces) -> str:
    """Return the name of the messages to remove from shared sessions."""
    return "messages" if traces.facts else "messages in shared sessions"


def _add_entries(connection: sqlite3.Connection, entries: Sequence[AuditEntry]) -> None:
    known = f"SELECT id FROM audit WHERE id {AMONG}"
    there = {id for (id,) in connection.execute(known, (json_array(e.id for e in entries),))}
    log.add_entries(connection, [(entry, None) for entry in entries if entry.id not in there])


def _erase_past(
    connection: sqlite3.Connection,
    kind: str,
    ids: Sequence[str],
    mark: str,
    removed: Counter[str],
) -> None:
    """Remove the history of targets and notes of them, and empty their audit entries."""
    log.erase_items(connection, ids)
    among, values = f"target_id {AMONG} AND target_type = ?", (json_array(ids), kind)
    gone = connection.execute(f"DELETE FROM history WHERE {among}", values)
    removed[_VERSIONS] += gone.rowcount
    emptied = connection.execute(_EMPTY_AUDIT.format(among), (mark, *values))
    removed[_ENTRIES] += emptied.rowcount
