"""What the platform owns: agents, users and sessions."""

# ruff: noqa: D102 - the protocol documents these methods.
# ruff: noqa: S608 - what is put into statements here are our own constants; values are bound.

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from edenmem.models.backup import StoredUser
from edenmem.models.host import Agent, Session, User
from edenmem.store.sqlite.core.codec import (
    Row,
    from_list,
    optional_time,
    to_list,
    to_ms,
)
from edenmem.store.sqlite.core.part import BATCH, Part, json_array

AGENT = (
    "SELECT id, username, name, persona, owner, user_memory_enabled, agent_memory_enabled,"
    " created_at FROM agents"
)
USER = "SELECT id, username, eden_user_id, subscription_tier, feature_flags, created_at FROM users"
STORED_USER = USER.replace(" FROM", ", deleted FROM")
SESSION = (
    "SELECT id, owner, group_id, name, title, status, platform, incognito, deleted,"
    " last_activity, created_at, imported FROM sessions s"
)


def agent_from(row: Row) -> Agent:
    """A row of `AGENT`."""
    return Agent(
        id=row[0],
        username=row[1],
        name=row[2],
        persona=row[3],
        owner=row[4],
        user_memory_enabled=bool(row[5]),
        agent_memory_enabled=bool(row[6]),
        created_at=optional_time(row[7]),
    )


def user_from(row: Row) -> User:
    """A row of `USER`."""
    return User(
        id=row[0],
        username=row[1],
        eden_user_id=row[2],
        subscription_tier=row[3],
        feature_flags=from_list(row[4]),
        created_at=optional_time(row[5]),
    )


def stored_user_from(row: Row) -> StoredUser:
    """A row of `USER` with the column ``deleted`` at its end."""
    return StoredUser(**msgspec.structs.asdict(user_from(row)), deleted=bool(row[-1]))


def agent_of(connection: sqlite3.Connection, agent_id: str) -> Agent | None:
    """The agent with this id, unless it is deleted."""
    row = connection.execute(f"{AGENT} WHERE id = ? AND NOT deleted", (agent_id,)).fetchone()
    return agent_from(row) if row else None


def user_of(connection: sqlite3.Connection, user_id: str) -> User | None:
    """The account with this id, unless it is deleted."""
    row = connection.execute(f"{USER} WHERE id = ? AND NOT deleted", (user_id,)).fetchone()
    return user_from(row) if row else None


def insert_agent(connection: sqlite3.Connection, agent: Agent) -> bool:
    """Insert; False if the id or the username is taken."""
    added = connection.execute(
        "INSERT OR IGNORE INTO agents VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?)",
        (
            agent.id,
            agent.username,
            agent.username.casefold(),
            agent.name,
            agent.persona,
            agent.owner,
            agent.user_memory_enabled,
            agent.agent_memory_enabled,
            to_ms(agent.created_at),
        ),
    )
    return added.rowcount == 1


def insert_user(connection: sqlite3.Connection, user: User) -> bool:
    """Insert; False if the id or the username is taken."""
    added = connection.execute(
        "INSERT OR IGNORE INTO users VALUES (?, ?, ?, ?, ?, ?, 0, ?)",
        (
            user.id,
            user.username,
            user.username.casefold(),
            user.eden_user_id,
            user.subscription_tier,
            to_list(user.feature_flags) or "[]",
            to_ms(user.created_at),
        ),
    )
    return added.rowcount == 1


def _members(connection: sqlite3.Connection, session_id: str, role: str) -> tuple[str, ...]:
    rows = connection.execute(
        "SELECT member_id FROM session_members WHERE session_id = ? AND role = ? ORDER BY place",
        (session_id, role),
    )
    return tuple(member for (member,) in rows)


def session_from(connection: sqlite3.Connection, row: Row) -> Session:
    """A row of `SESSION`, with its members."""
    return Session(
        id=row[0],
        agents=_members(connection, row[0], "agent"),
        users=_members(connection, row[0], "user"),
        owner=row[1],
        group_id=row[2],
        name=row[3],
        title=row[4],
        status=row[5],
        platform=row[6],
        incognito=bool(row[7]),
        deleted=bool(row[8]),
        last_activity=optional_time(row[9]),
        created_at=optional_time(row[10]),
        imported=bool(row[11]),
    )


def session_of(connection: sqlite3.Connection, session_id: str) -> Session | None:
    """The session with this id, unless it is deleted."""
    row = connection.execute(f"{SESSION} WHERE id = ? AND NOT deleted", (session_id,)).fetchone()
    return session_from(connection, row) if row else None


def add_members(
    connection: sqlite3.Connection, session_id: str, role: str, members: Sequence[str]
) -> None:
    """Let these join the session, after those who are in it."""
    (place,) = connection.execute(
        "SELECT coalesce(max(place) + 1, 0) FROM session_members WHERE session_id = ? AND role = ?",
        (session_id, role),
    ).fetchone()
    connection.executemany(
        "INSERT OR IGNORE INTO session_members VALUES (?, ?, ?, ?)",
        [(session_id, role, member, place + i) for i, member in enumerate(members)],
    )


def stir(connection: sqlite3.Connection, session_id: str) -> None:
    """Take back the cold run's note of a session; see the migration that added it."""
    connection.execute(
        "UPDATE sessions SET stirred = stirred + 1, settled = NULL WHERE id = ?", (session_id,)
    )


def insert_session(connection: sqlite3.Connection, session: Session) -> bool:
    """Store a new session, or add its members to the one with its id; whether it is new."""
    added = connection.execute(
        "INSERT OR IGNORE INTO sessions (id, owner, group_id, name, name_folded, title,"
        " title_folded, status, platform, incognito, deleted, last_activity, created_at, imported)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session.id,
            session.owner,
            session.group_id,
            session.name,
            session.name and session.name.casefold(),
            session.title,
            session.title and session.title.casefold(),
            session.status,
            session.platform,
            session.incognito,
            session.deleted,
            to_ms(session.last_activity),
            to_ms(session.created_at),
            session.imported,
        ),
    )
    if session.imported and added.rowcount != 1:
        marked = connection.execute(
            "UPDATE sessions SET imported = 1, status = iif(status = 'active', ?, status)"
            " WHERE id = ? AND NOT imported",
            (session.status, session.id),
        )
        if marked.rowcount:
            stir(connection, session.id)
    add_members(connection, session.id, "agent", session.agents)
    add_members(connection, session.id, "user", session.users)
    return added.rowcount == 1


class Host(Part):
    """See `edenmem.store.protocol.store.Store`."""

    # -- agents and users --------------------------------------------------------------------

    def refusal(self, record: msgspec.Struct) -> str:
        return ""

    def agents(self) -> Iterator[Agent]:
        return map(agent_from, self._by_username(AGENT))

    def users(self) -> Iterator[User]:
        return map(user_from, self._by_username(USER))

    def _by_username(self, select: str) -> Iterator[Row]:
        last = ""
        while True:
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{select} WHERE NOT deleted AND username > ? ORDER BY username LIMIT ?",
                    (last, BATCH),
                ).fetchall()
            yield from rows
            if len(rows) < BATCH:
                return
            last = rows[-1][1]

    def agent(self, agent_id: str) -> Agent | None:
        with self._db.reading() as connection:
            return agent_of(connection, agent_id)

    def add_agent(self, agent: Agent) -> bool:
        with self._db.writing() as connection:
            return insert_agent(connection, agent)

    def user(self, user_id: str) -> User | None:
        with self._db.reading() as connection:
            return user_of(connection, user_id)

    def users_by_ids(self, user_ids: Sequence[str]) -> dict[str, User]:
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{USER} WHERE id IN (SELECT value FROM json_each(?))", (json_array(user_ids),)
            ).fetchall()
        return {user.id: user for user in map(user_from, rows)}

    def accounts_of(self, person_id: str) -> list[StoredUser]:
        with self._db.reading() as connection:
            rows = connection.execute(
                f"{STORED_USER} WHERE id = ?1 OR eden_user_id = ?1 ORDER BY id", (person_id,)
            ).fetchall()
        return [stored_user_from(row) for row in rows]

    def add_user(self, user: User) -> bool:
        with self._db.writing() as connection:
            return insert_user(connection, user)

    # -- sessions ----------------------------------------------------------------------------

    def sessions(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | None = None,
        group_id: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Session]:
        member = (
            " AND EXISTS (SELECT 1 FROM session_members x WHERE x.session_id = s.id"
            " AND x.role = '{}' AND x.member_id = ?)"
        )
        where, values = "NOT s.deleted", list[Any]()
        for condition, value in (
            (member.format("agent"), agent_id),
            (member.format("user"), user_id),
            (" AND s.group_id = ?", group_id),
        ):
            if value is not None:
                where += condition
                values.append(value)
        return itertools.islice(self._sessions(where, values), limit)

    def _sessions(self, where: str, values: Sequence[Any]) -> Iterator[Session]:
        """A batch at a time, by latest activity; sessions without any come last."""
        last: Row | None = None
        activity = "coalesce(s.last_activity, -1)"
        while True:
            after = "" if last is None else f" AND {activity} <= ? AND ({activity} < ? OR id > ?)"
            keys = () if last is None else (last[0], last[0], last[1])
            with self._db.reading() as connection:
                rows = connection.execute(
                    f"{SESSION} WHERE {where}{after} ORDER BY {activity} DESC, id LIMIT ?",
                    (*values, *keys, BATCH),
                ).fetchall()
                sessions = [session_from(connection, row) for row in rows]
            yield from sessions
            if len(rows) < BATCH:
                return
            last = (-1 if rows[-1][9] is None else rows[-1][9], rows[-1][0])

    def session(self, session_id: str) -> Session | None:
        with self._db.reading() as connection:
            return session_of(connection, session_id)

    def put_session(self, session: Session) -> bool:
        with self._db.writing() as connection:
            return insert_session(connection, session)

    def set_session_status(self, session_id: str, status: str) -> None:
        with self._db.writing() as connection:
            connection.execute("UPDATE sessions SET status = ? WHERE id = ?", (status, session_id))
            stir(connection, session_id)
