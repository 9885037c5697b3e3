"""Rows of agents, accounts, sessions and messages."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from edenmem.models.host import Agent, Message, Session, ToolCall, User
from edenmem.store.sqlite.core.codec import Row, Table, as_json, from_list, select_more
from edenmem.store.sqlite.core.part import AMONG, json_array

if TYPE_CHECKING:
    from edenmem.models.backup import StoredUser

AGENTS = Table(
    Agent,
    "agents",
    "agents",
    "id username name persona owner",
    flags="user_memory_enabled agent_memory_enabled",
    times="created_at",
    start=0,
)
USERS = Table(
    User,
    "users",
    "users",
    "id username eden_user_id subscription_tier",
    times="created_at",
    others={
        "feature_flags": (from_list, json_array),
    },
    start=0,
)
SESSIONS = Table(
    Session,
    "sessions",
    "s",
    "id owner group_id name title status platform parent",
    flags="incognito deleted imported",
    times="last_activity created_at",
    start=0,
)
MESSAGES = Table(
    Message,
    "messages",
    "m",
    "id session_id role content sender name",
    flags="trigger",
    times="created_at",
    others={
        "tool_calls": as_json(tuple[ToolCall, ...]),
    },
    start=0,
)
AGENT = f"SELECT {AGENTS.qualified} FROM agents"
USER = f"SELECT {USERS.qualified} FROM users"
STORED_USER = select_more(USER, "deleted")
SESSION = f"SELECT {SESSIONS.qualified} FROM sessions s"
MESSAGE = f"SELECT {MESSAGES.qualified} FROM messages m"

_INSERT_ACCOUNT: dict[Table[Any], str] = {
    table: table.insert("username_folded", otherwise="OR IGNORE ") for table in (AGENTS, USERS)
}
_INSERT_SESSION = SESSIONS.insert("name_folded", "title_folded", otherwise="OR IGNORE ")
INSERT_MESSAGE = MESSAGES.insert(otherwise="OR IGNORE ")


def stored_user_from(row: Row) -> StoredUser:
    """Decode a row of `STORED_USER`."""
    from edenmem.models.backup import StoredUser  # loads what most commands do not use

    return StoredUser(**msgspec.structs.asdict(USERS.make(row)), deleted=bool(row[USERS.end]))


def insert_account(connection: sqlite3.Connection, account: Agent | User) -> bool:
    """Insert an agent or a user; False if the ID or the username is taken."""
    table: Table[Any] = AGENTS if isinstance(account, Agent) else USERS
    values = (*table.values(account), account.username.casefold())
    return connection.execute(_INSERT_ACCOUNT[table], values).rowcount == 1


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
        SESSIONS.make(
            row,
            agents=tuple(members.get((row[0], "agent"), ())),
            users=tuple(members.get((row[0], "user"), ())),
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
        "UPDATE sessions SET activity = activity + 1, settled = NULL WHERE id = ?", (session_id,)
    )


def insert_session(connection: sqlite3.Connection, session: Session) -> bool:
    """Store a new session, or add its members to the stored one; return whether it is new."""
    folded = [text and text.casefold() for text in (session.name, session.title)]
    added = connection.execute(_INSERT_SESSION, (*SESSIONS.values(session), *folded))
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
