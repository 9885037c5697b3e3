"""Writing history and audit entries, inside the transaction of what they tell of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from edenmem.memory import VOID as VOID
from edenmem.memory import Origin
from edenmem.memory import version_id as version_id
from edenmem.models.backup import StoredVersion
from edenmem.models.changes import Actor, action_of_command, action_of_new_fact
from edenmem.models.memory import Fact
from edenmem.models.records import AuditEntry, HistoryEntry
from edenmem.store.sqlite.core.codec import to_list, to_ms

#: The action of a fact's tombstone.
REMOVED = "delete"


def add_versions(
    connection: sqlite3.Connection, versions: Iterable[tuple[HistoryEntry | StoredVersion, int]]
) -> None:
    """Keep versions, each with the number of its scope."""
    connection.executemany(
        "INSERT INTO history (id, target_type, target_id, scope_id, version, content, at,"
        " action, actor, change_id, absorbed_ids, snapshot)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                each.id,
                each.target_type,
                each.target_id,
                scope_id,
                each.version,
                each.content,
                to_ms(each.at),
                each.action,
                each.actor,
                each.change_id,
                to_list(each.absorbed_ids),
                None if each.snapshot is None else msgspec.json.encode(each.snapshot),
            )
            for each, scope_id in versions
        ],
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
        return Origin(action=action_of_new_fact(fact))
    change_id, stored_actor = row
    actor = msgspec.json.decode(stored_actor, type=Actor)
    action = action_of_command(actor.command) or action_of_new_fact(fact)
    return Origin(action=action, actor=actor.name, change_id=change_id)


def add_entries(
    connection: sqlite3.Connection, entries: Iterable[tuple[AuditEntry, int | None]]
) -> None:
    """Write audit entries, each with the number of its scope. What is void says so in the place of
    its action."""
    connection.executemany(
        "INSERT INTO audit (id, change_set_id, at, actor, action, target_type, target_id, agent_id,"
        " scope_id, before, after, reason, undoes)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                entry.id,
                entry.change_set_id,
                to_ms(entry.at),
                msgspec.json.encode(entry.actor).decode(),
                VOID if entry.status == VOID else entry.action,
                entry.target_type,
                entry.target_id,
                entry.agent_id,
                scope_id,
                None if entry.before is None else msgspec.json.encode(entry.before).decode(),
                None if entry.after is None else msgspec.json.encode(entry.after).decode(),
                entry.reason,
                entry.undoes,
            )
            for entry, scope_id in entries
        ],
    )
