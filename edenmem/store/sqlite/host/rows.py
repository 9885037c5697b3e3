"""Rows of agents, accounts, sessions and messages."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from edenmem.models.host import Agent, Message, Session, ToolCall, User
from edenmem.store.sqlite.core.codec import (
    Row,
    from_list,
    optional_time,
    select_more,
    time,
    to_list,
    to_ms,
)
from edenmem.store.sqlite.core.part import AMONG, json_array

if TYPE_CHECKING:
    from edenmem.models.backup import StoredUser

AGENT = (
    "SELECT id, username, name, persona, owner, user_memory_enabled, agent_memory_enabled,"
    " created_at FROM agents"
)
USER = "SELECT id, username, eden_user_id, subscription_tier, feature_flags, created_at FROM users"
STORED_USER = select_more(USER, "deleted")
SESSION = (
    "SELECT id, owner, group_id, name, title, status, platform, incognito, deleted,"
    " last_activity, created_at, imported, parent FROM sessions s"
)
MESSAGE = (
    "SELECT m.id, m.session_id, m.role, m.content, m.created_at, m.sender, m.name, m.tool_calls,"
    " m.trigger FROM messages m"
)


def agent_from(row: Row) -> Agent:
    """Decode a row of `AGENT`."""
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
    """Decode a row of `USER`."""
    return User(
        id=row[0],
        username=row[1],
        eden_user_id=row[2],
        subscription_tier=row[3],
        feature_flags=from_list(row[4]),
        created_at=optional_time(row[5]),
    )


def stored_user_from(row: Row) -> StoredUser:
    """Decode a row of `STORED_USER`."""
    from edenmem.models.backup import StoredUser  # loads what most commands do not use

    return StoredUser(**msgspec.structs.asdict(user_from(row)), deleted=bool(row[6]))


def agent_of(connection: sqlite3.Connection, agent_id: str) -> Agent | None:
    """Return the agent with this ID, unless deleted."""
    row = connection.execute(f"{AGENT} WHERE id = ? AND NOT deleted", (agent_id,)).fetchone()
    return agent_from(row) if row else None


def user_of(connection: sqlite3.Connection, user_id: str) -> User | None:
    """Return the account with this ID, unless deleted."""
    row = connection.execute(f"{USER} WHERE id = ? AND NOT deleted", (user_id,)).fetchone()
    return user_from(row) if row else None


def insert_agent(connection: sqlite3.Connection, agent: Agent) -> bool:
    """Insert an agent; False if the ID or the username is taken."""
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
    """Insert an account; False if the ID or the username is taken."""
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


def session_from(connection: sqlite3.Connection, row: Row) -> Session:
    """Decode a row of `SESSION`, with its members."""
    return sessions_from(connection, [row])[0]


def sessions_from(connection: sqlite3.Connection, rows: Sequence[Row]) -> list[Session]:
    """Decode rows of `SESSION`, with their members."""
    members: dict[tuple[str, str], list[str]] = {}
    for session_id, role, member in connection.execute(
        f"SELECT session_id, role, member_id FROM session_members WHERE session_id {AMONG}"
        " ORDER BY place",
        (json_array(row[0] for row in rows),),
    ):
        members.setdefault((session_id, role), []).append(member)
    return [
        Session(
            id=row[0],
            agents=tuple(members.get((row[0], "agent"), ())),
            users=tuple(members.get((row[0], "user"), ())),
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
            parent=row[12],
        )
        for row in rows
    ]


def session_of(connection: sqlite3.Connection, session_id: str) -> Session | None:
    """Return the session with this ID, unless deleted."""
    row = connection.execute(f"{SESSION} WHERE id = ? AND NOT deleted", (session_id,)).fetchone()
    return session_from(connection, row) if row else None


def add_members(
    connection: sqlite3.Connection, session_id: str, role: str, members: Sequence[str]
) -> None:
    """Add members to a session, after the existing members."""
    (place,) = connection.execute(
        "SELECT coalesce(max(place) + 1, 0) FROM session_members WHERE session_id = ? AND role = ?",
        (session_id, role),
    ).fetchone()
    connection.executemany(
        "INSERT OR IGNORE INTO session_members VALUES (?, ?, ?, ?)",
        [(session_id, role, member, place + i) for i, member in enumerate(members)],
    )


def reset_cold_note(connection: sqlite3.Connection, session_id: str) -> None:
    """Remove the cold run's note of a session; see its migration."""
    connection.execute(
        "UPDATE sessions SET stirred = stirred + 1, settled = NULL WHERE id = ?", (session_id,)
    )


def insert_session(connection: sqlite3.Connection, session: Session) -> bool:
    """Store a new session, or add its members to the stored one; return whether it is new."""
    added = connection.execute(
        "INSERT OR IGNORE INTO sessions (id, owner, group_id, name, name_folded, title,"
        " title_folded, status, platform, incognito, deleted, last_activity, created_at, imported,"
        " parent) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            session.parent,
        ),
    )
    if session.imported and added.rowcount != 1:
        marked = connection.execute(
            "UPDATE sessions SET imported = 1, status = iif(status = 'active', ?, status)"
            " WHERE id = ? AND NOT imported",
            (session.status, session.id),
        )
        if marked.rowcount:
            reset_cold_note(connection, session.id)
    add_members(connection, session.id, "agent", session.agents)
    add_members(connection, session.id, "user", session.users)
    return added.rowcount == 1


def message_from(row: Row) -> Message:
    """Decode a row of `MESSAGE`."""
    return Message(
        id=row[0],
        session_id=row[1],
        role=row[2],
        content=row[3],
        created_at=time(row[4]),
        sender=row[5],
        name=row[6],
        tool_calls=msgspec.json.decode(row[7], type=tuple[ToolCall, ...]) if row[7] else (),
        trigger=bool(row[8]),
    )


def message_row(session_id: str, message: Message) -> Row:
    """Return the columns of a message."""
    return (
        message.id,
        session_id,
        message.role,
        message.content,
        to_ms(message.created_at),
        message.sender,
        message.name,
        msgspec.json.encode(message.tool_calls).decode() if message.tool_calls else None,
        message.trigger,
    )
