"""Writing history and audit entries, inside the transaction of what they tell of."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from edenmem.models.changes import Actor, action_of_command, action_of_new_fact
from edenmem.models.ids import derived_id
from edenmem.models.memory import Fact
from edenmem.store.sqlite.core.codec import to_list, to_ms

#: The action of a fact's tombstone, and of its return.
REMOVED = "delete"
RESTORED = "restore"
#: The action of an audit entry that is not shown: an addition that met with a duplicate.
VOID = "void"


class Origin(NamedTuple):
    """How a version of a fact came to be."""

    action: str
    actor: str = ""
    change_id: str | None = None


def version_id(target_type: str, target_id: str, version: int, change_id: str | None) -> str:
    """The id of a version's history entry: the same however often it is asked for."""
    return derived_id("history", target_type, target_id, str(version), change_id or "")


def add_version(
    connection: sqlite3.Connection,
    target_type: str,
    target_id: str,
    scope_id: int,
    *,
    version: int,
    content: str,
    at: datetime,
    action: str,
    actor: str = "",
    change_id: str | None = None,
    absorbed_ids: Sequence[str] = (),
    snapshot: Fact | None = None,
) -> None:
    """Keep a version."""
    connection.execute(
        "INSERT INTO history (id, target_type, target_id, scope_id, version, content, at,"
        " action, actor, change_id, absorbed_ids, snapshot)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            version_id(target_type, target_id, version, change_id),
            target_type,
            target_id,
            scope_id,
            version,
            content,
            to_ms(at),
            action,
            actor,
            change_id,
            to_list(absorbed_ids),
            None if snapshot is None else msgspec.json.encode(snapshot),
        ),
    )


def origin_of(connection: sqlite3.Connection, fact: Fact) -> Origin:
    """How a fact came to be of which history has nothing: as the audit entry of its addition says,
    and as much as can be seen of it if others than edenmem added it."""
    row = connection.execute(
        "SELECT id, actor FROM audit WHERE target_id = ? AND target_type = 'fact'"
        " AND action IN ('add_fact', 'revise_fact') ORDER BY at DESC, audit_no DESC LIMIT 1",
        (fact.id,),
    ).fetchone()
    if row is None:
        return Origin(action_of_new_fact(fact))
    change_id, stored_actor = row
    actor = msgspec.json.decode(stored_actor, type=Actor)
    action = action_of_command(actor.command) or action_of_new_fact(fact)
    return Origin(action, actor.name, change_id)


def keep_fact_version(connection: sqlite3.Connection, fact: Fact, scope_id: int) -> None:
    """Before a fact changes: make sure that history has it as it is."""
    last = last_version(connection, "fact", fact.id)
    if last is None or last[0] != fact.version:
        origin = origin_of(connection, fact)
        add_version(
            connection,
            "fact",
            fact.id,
            scope_id,
            version=fact.version,
            content=fact.content,
            at=fact.recent_at,
            action=origin.action,
            actor=origin.actor,
            change_id=origin.change_id,
        )


def last_version(
    connection: sqlite3.Connection, target_type: str, target_id: str
) -> tuple[int, str] | None:
    """The version and action of what history says last of a target."""
    row: tuple[int, str] | None = connection.execute(
        "SELECT version, action FROM history WHERE target_id = ? AND target_type = ?"
        " ORDER BY history_no DESC LIMIT 1",
        (target_id, target_type),
    ).fetchone()
    return row


def add_audit(
    connection: sqlite3.Connection,
    entry_id: str,
    *,
    change_set_id: str,
    at: datetime,
    actor: Actor,
    action: str,
    target_type: str,
    target_id: str,
    agent_id: str,
    scope_id: int | None,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    reason: str,
    undoes: str | None = None,
) -> None:
    """Write the audit entry of a change."""
    connection.execute(
        "INSERT INTO audit (id, change_set_id, at, actor, action, target_type, target_id, agent_id,"
        " scope_id, before, after, reason, undoes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry_id,
            change_set_id,
            to_ms(at),
            msgspec.json.encode(actor).decode(),
            action,
            target_type,
            target_id,
            agent_id,
            scope_id,
            None if before is None else msgspec.json.encode(before).decode(),
            None if after is None else msgspec.json.encode(after).decode(),
            reason,
            undoes,
        ),
    )
