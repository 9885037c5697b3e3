"""Agents, accounts, sessions with their cached contexts, and messages; the platform owns them."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edenmem.errors import NotFoundError
from edenmem.models.forgetting import Passage
from edenmem.models.host import Agent, CachedContext, Message, Session, User
from edenmem.models.ids import is_id
from edenmem.models.integrity import Finding
from edenmem.store.protocol.host import Reference, ReferenceKind
from edenmem.store.sqlite.core.codec import Row, time, to_ms
from edenmem.store.sqlite.core.part import AMONG, BATCH, GIVEN, Part, json_array, where
from edenmem.store.sqlite.core.source_words import refresh_words
from edenmem.store.sqlite.host.rows import (
    AGENT,
    AGENTS,
    INSERT_MESSAGE,
    MESSAGE,
    MESSAGES,
    SESSION,
    SESSIONS,
    STORED_USER,
    USER,
    USERS,
    insert_account,
    insert_session,
    sessions_from,
    stored_user_from,
)

if TYPE_CHECKING:
    from edenmem.models.backup import StoredUser
    from edenmem.models.told import Note

_content_values = MESSAGES.encoder("content", "tool_calls")
(_CREATED_AT,) = MESSAGES.places("created_at")
(_LAST_ACTIVITY,) = SESSIONS.places("last_activity")

IN_ORDER = "ORDER BY m.created_at, m.id"
#: Skips from sender to sender along the index, so that long sessions cost no more.
_SENDERS = """
    WITH RECURSIVE senders (sender) AS (
        SELECT min(m.sender) FROM messages m WHERE m.session_id = ?1 AND m.role = 'user'
            AND m.trigger = 0 AND m.sender IS NOT NULL
        UNION ALL
        SELECT (SELECT min(m.sender) FROM messages m WHERE m.session_id = ?1 AND m.role = 'user'
                AND m.trigger = 0 AND m.sender IS NOT NULL AND m.sender > senders.sender)
            FROM senders WHERE senders.sender IS NOT NULL
    )
    SELECT sender FROM senders WHERE sender IS NOT NULL
"""

#: Session and person: members and authors.
_PEOPLE = f"""
    SELECT t.session_id, coalesce(nullif(u.eden_user_id, ''), t.account) FROM (
        SELECT session_id, member_id AS account FROM session_members
        WHERE session_id {GIVEN} AND role = 'user'
        UNION SELECT m.session_id, m.sender FROM messages m
        WHERE m.session_id {GIVEN} AND m.role = 'user' AND m.trigger = 0
            AND m.sender IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM session_members a WHERE a.session_id = m.session_id
                AND a.role = 'agent' AND a.member_id = m.sender)
    ) AS t LEFT JOIN users u ON u.id = t.account
"""


class Host(Part):
    """See `edenmem.store.protocol.host.Host`."""

    # -- agents and users --------------------------------------------------------------------------

    def refusal(self, record: msgspec.Struct) -> str:
        return ""

    def agents(self) -> Iterator[Agent]:
        return map(AGENTS.make, self._by_username(AGENT))

    def users(self) -> Iterator[User]:
        return map(USERS.make, self._by_username(USER))

    def _by_username(self, select: str) -> Iterator[Row]:
        query = f"{select} WHERE NOT deleted AND username > ? ORDER BY username LIMIT ?"
        return self._pages(query, (), ("",), lambda row: row[1:2])

    def agent(self, agent_id: str) -> Agent | None:
        row = self._fetch_one(f"{AGENT} WHERE id = ? AND NOT deleted", (agent_id,))
        return AGENTS.make(row) if row else None

    def find_agent_ids(self) -> list[str]:
        rows = self._fetch("SELECT id FROM agents UNION SELECT agent_id FROM scopes")
        return [agent_id for (agent_id,) in rows]

    def add_agent(self, agent: Agent) -> bool:
        with self._db.writing() as connection:
            return insert_account(connection, agent)

    def user(self, user_id: str) -> User | None:
        row = self._fetch_one(f"{USER} WHERE id = ? AND NOT deleted", (user_id,))
        return USERS.make(row) if row else None

    def users_named(self, username: str) -> list[User]:
        rows = self._fetch(
            f"{USER} WHERE NOT deleted AND username_folded = ? AND username = ? ORDER BY id",
            (username.casefold(), username),
        )
        return [USERS.make(row) for row in rows]

    def users_by_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        rows = self._fetch(f"{USER} WHERE id {AMONG}", (json_array(user_ids),))
        return {user.id: user for user in map(USERS.make, rows)}

    def accounts_of(self, person_id: str) -> list[StoredUser]:
        rows = self._fetch(
            f"{STORED_USER} WHERE id = ?1 OR eden_user_id = ?1 ORDER BY id", (person_id,)
        )
        return [stored_user_from(row) for row in rows]

    def add_user(self, user: User) -> bool:
        with self._db.writing() as connection:
            return insert_account(connection, user)

    # -- sessions ----------------------------------------------------------------------------------

    def sessions(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        group_id: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Session]:
        member = (
            "EXISTS (SELECT 1 FROM session_members x WHERE x.session_id = s.id"
            " AND x.role = '{}' AND x.member_id = ?)"
        )
        conditions, values = where(
            (member.format("agent"), agent_id),
            (member.format("user"), user_id),
            ("s.group_id = ?", group_id),
        )
        return itertools.islice(self._sessions(f"NOT s.deleted{conditions}", values), limit)

    def sessions_of(
        self, *, accounts: Sequence[str] = (), agent_id: str | None = None, group_id: str = ""
    ) -> Iterator[Session]:
        member = (
            "s.id IN (SELECT x.session_id FROM session_members x"
            f" WHERE x.role = '{{}}' AND x.member_id {AMONG})"
        )
        if accounts:
            wrote = (
                "EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.role = 'user'"
                f" AND m.trigger = 0 AND m.sender {AMONG})"
            )
            ids = json_array(accounts)
            return self._sessions(f"({member.format('user')} OR {wrote})", [ids, ids])
        if agent_id is not None:
            return self._sessions(member.format("agent"), [json_array([agent_id])])
        return self._sessions("s.group_id = ?", [group_id]) if group_id else iter(())

    def _sessions(self, conditions: str, values: Sequence[Any]) -> Iterator[Session]:
        """Yield sessions in batches by latest activity; sessions without activity last."""
        last: Row | None = None
        activity = "coalesce(s.last_activity, -1)"
        while True:
            after = "" if last is None else f" AND {activity} <= ? AND ({activity} < ? OR id > ?)"
            keys = () if last is None else (last[0], last[0], last[1])
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{SESSION} WHERE {conditions}{after} ORDER BY {activity} DESC, id LIMIT ?",
                    (*values, *keys, BATCH),
                ).fetchall()
                sessions = sessions_from(connection, rows)
            yield from sessions
            if len(rows) < BATCH:
                return
            latest = rows[-1][_LAST_ACTIVITY]
            last = (-1 if latest is None else latest, rows[-1][0])

    def session(self, session_id: str) -> Session | None:
        return self.sessions_by_ids([session_id]).get(session_id)

    def sessions_by_ids(self, session_ids: Sequence[str]) -> dict[str, Session]:
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{SESSION} WHERE id {AMONG} AND NOT deleted", (json_array(session_ids),)
            ).fetchall()
            return {found.id: found for found in sessions_from(connection, rows)}

    def people_of(self, session_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        people: dict[str, set[str]] = {}
        with self._db.reading() as connection:
            given = (json_array(session_ids),)
            for (session_id,) in connection.execute(
                f"SELECT id FROM sessions WHERE id {GIVEN}", given
            ):
                people[session_id] = set()
            for session_id, person in connection.execute(_PEOPLE, given):
                people.setdefault(session_id, set()).add(person)
        return {session_id: frozenset(found) for session_id, found in people.items()}

    def put_session(self, session: Session) -> bool:
        with self._db.writing() as connection:
            return insert_session(connection, session)

    def find_lost_progress(
        self, *, agent_id: str | None = None, since: datetime | None = None
    ) -> Iterator[Finding]:
        return iter(())  # no platform writes to a file

    # -- messages ----------------------------------------------------------------------------------

    def add_messages(
        self, session_id: str, messages: Sequence[Message], *, note: Note | None = None
    ) -> int:
        if not messages:
            return 0
        with self._db.writing() as connection:
            added = _insert_messages(connection, session_id, messages)
            if note is not None:
                from edenmem.store.sqlite.memory.log import add_notes

                add_notes(connection, [note])
        return added

    def put_message(self, message: Message) -> None:
        content = _content_values(message)
        with self._db.writing() as connection:
            if _insert_messages(connection, message.session_id, [message]):
                return
            changed = connection.execute(
                "UPDATE messages SET content = ?1, tool_calls = ?2 WHERE id = ?3"
                " AND session_id = ?4 AND (content, tool_calls) IS NOT (?1, ?2)",
                (*content, message.id, message.session_id),
            ).rowcount
            if changed:
                refresh_words(connection, [message.id])

    def messages(
        self, session_id: str, *, newest: int | None = None, ids: Sequence[str] | None = None
    ) -> Iterator[Message]:
        if ids is not None:
            rows = self._fetch(
                f"{MESSAGE} WHERE m.id {AMONG} AND m.session_id = ? {IN_ORDER}",
                (json_array(ids), session_id),
            )
            return map(MESSAGES.make, rows)
        if newest is not None:
            rows = self._fetch(
                f"{MESSAGE} WHERE m.session_id = ? ORDER BY m.created_at DESC, m.id DESC LIMIT ?",
                (session_id, max(0, newest)),
            )
            return map(MESSAGES.make, reversed(rows))
        query = (
            f"{MESSAGE} WHERE (m.created_at, m.id) > (?, ?) AND m.session_id = ? {IN_ORDER} LIMIT ?"
        )
        pages = self._pages(
            query, (session_id,), (-(2**63), ""), lambda row: (row[_CREATED_AT], row[0])
        )
        return map(MESSAGES.make, pages)

    def messages_by_ids(self, message_ids: Sequence[str]) -> list[Message]:
        rows = self._fetch(f"{MESSAGE} WHERE m.id {AMONG} {IN_ORDER}", (json_array(message_ids),))
        return [MESSAGES.make(row) for row in rows]

    def senders(self, session_id: str) -> tuple[str, ...]:
        rows = self._fetch(_SENDERS, (session_id,))
        return tuple(sender for (sender,) in rows)

    def find_message_ids(
        self, accounts: Sequence[str], session_ids: Sequence[str]
    ) -> Iterator[str]:
        for session_id in session_ids:
            rows = self._fetch(
                f"SELECT m.id FROM messages m WHERE m.session_id = ? AND m.sender {AMONG}",
                (session_id, json_array(accounts)),
            )
            yield from (id for (id,) in rows)

    def display_names(self, accounts: Sequence[str], session_ids: Sequence[str]) -> list[str]:
        rows = self._fetch(
            f"SELECT DISTINCT m.name FROM messages m WHERE m.session_id {AMONG}"
            f" AND m.role = 'user' AND m.trigger = 0 AND m.sender {AMONG}"
            " AND m.name IS NOT NULL ORDER BY m.name",
            (json_array(session_ids), json_array(accounts)),
        )
        return [name for (name,) in rows]

    # -- names -------------------------------------------------------------------------------------

    def find(self, kind: ReferenceKind, text: str, *, limit: int = 20) -> Sequence[Reference]:
        named, digits = _KINDS[kind], text.lower()
        if _SURROGATE.search(text):  # no stored name has surrogates, and SQLite rejects them
            return []
        tests: list[tuple[str, list[str]]] = []
        if is_id(digits):
            tests.append(("id = ?", [digits]))
        folded = [(f"{name}_folded = ?", [text.casefold()]) for name in named.names]
        tests += [
            (f"{test} AND {name} = ?", [*values, text])
            for name, (test, values) in zip(named.names, folded, strict=True)
        ]
        tests += folded
        if _PREFIX.match(digits):
            tests.append(("id >= ? AND id < ?", [digits, digits + "g"]))
        found = (self._references(named, named.label, *test, "id", limit) for test in tests)
        return next(filter(None, found), [])

    def find_by_prefix(self, kind: ReferenceKind, text: str, *, limit: int) -> Sequence[Reference]:
        named, low, digits = _KINDS[kind], text.casefold(), text.lower()
        if _SURROGATE.search(text):
            return []
        found: list[Reference] = []
        for name in named.names:
            test = f"{name}_folded >= ? AND {name}_folded < ?"
            found += self._references(
                named, name, test, [low, low + _LAST], f"{name}_folded", limit
            )
        if _DIGITS.match(digits):
            test = "id >= ? AND id < ?"
            found += self._references(named, "id", test, [digits, digits + "g"], "id DESC", limit)
        first = {each.id: each for each in reversed(found)}
        return list(dict.fromkeys(first[each.id] for each in found))[:limit]

    def _references(
        self, named: _NameTable, label: str, test: str, values: list[str], order: str, limit: int
    ) -> list[Reference]:
        rows = self._fetch(
            f"SELECT id, {label} FROM {named.table} WHERE {named.condition} AND {test}"
            f" ORDER BY {order} LIMIT ?",
            (*values, limit),
        )
        return [Reference(id=row_id, label=text) for row_id, text in rows]


def _insert_messages(
    connection: sqlite3.Connection, session_id: str, messages: Sequence[Message]
) -> int:
    """Insert messages with new IDs; return how many were new.

    Raises:
        NotFoundError: the session does not exist.
    """
    latest = max(to_ms(message.created_at) for message in messages)
    found = connection.execute(
        "UPDATE sessions SET last_activity = max(coalesce(last_activity, ?1), ?1) WHERE id = ?2",
        (latest, session_id),
    )
    if found.rowcount != 1:
        raise NotFoundError(f"session does not exist: {session_id}")
    rows = [
        MESSAGES.values(msgspec.structs.replace(message, session_id=session_id))
        for message in messages
    ]
    return connection.executemany(INSERT_MESSAGE, rows).rowcount


_SURROGATE = re.compile("[\ud800-\udfff]")
_DIGITS = re.compile(r"[0-9a-f]{0,24}\Z")
#: Sorts after all continuations of a prefix.
_LAST = "\U0010ffff"
_PREFIX = re.compile(r"[0-9a-f]{4,23}\Z")


class _NameTable(NamedTuple):
    """The table of a kind of thing: name expression, name columns and a condition.

    Each name column has a twin ``…_folded`` for comparison without case.
    """

    table: str
    label: str
    names: tuple[str, ...] = ()
    condition: str = "1"


_BEGINNING = "iif(length(content) > 100, substr(content, 1, 99) || '…', content)"


_KINDS: dict[ReferenceKind, _NameTable] = {
    "agent": _NameTable("agents", "username", ("username",), "NOT deleted"),
    "user": _NameTable("users", "username", ("username",), "NOT deleted"),
    "session": _NameTable(
        "sessions", "coalesce(name, title, id)", ("name", "title"), "NOT deleted"
    ),
    "fact": _NameTable("facts", _BEGINNING),
    "reflection": _NameTable("reflections", _BEGINNING),
    "formation": _NameTable(
        "formations",
        "status || ' #' || seq || ' of session ' || session_id",
    ),
}


class Contexts(Part):
    """See `edenmem.store.protocol.host.Contexts`."""

    def find_context(self, session_id: str, agent_id: str) -> CachedContext | None:
        row = self._fetch_one(
            "SELECT xml, fingerprint, built_at, shown FROM cached_contexts"
            " WHERE session_id = ? AND agent_id = ?",
            (session_id, agent_id),
        )
        if row is None:
            return None
        xml, fingerprint, built_at, shown = row
        return CachedContext(xml=xml, fingerprint=fingerprint, built_at=time(built_at), shown=shown)

    def cache_context(
        self, session_id: str, agent_id: str, context: CachedContext, *, shared: bool = True
    ) -> None:
        row = (context.xml, context.fingerprint, to_ms(context.built_at), context.shown)
        with self._db.writing(durable=False) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO cached_contexts"
                " (session_id, agent_id, xml, fingerprint, built_at, shown)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (session_id, agent_id, *row),
            )

    def cached_texts(self) -> Iterator[Passage]:
        rows = self._pages(
            "SELECT c.session_id, c.agent_id, c.xml FROM cached_contexts c"
            " WHERE (c.session_id, c.agent_id) > (?, ?)"
            " ORDER BY c.session_id, c.agent_id LIMIT ?",
            (),
            ("", ""),
            lambda row: row[:2],
        )
        for session_id, agent_id, xml in rows:
            yield Passage(
                kind="context",
                id=f"{session_id}/{agent_id}",
                target_type="session",
                target_id=session_id,
                text=xml,
            )
