"""The rows of reflections, consolidated texts and policies."""

from __future__ import annotations

import sqlite3
from typing import Any

from edenmem.errors import ConflictError
from edenmem.models.memory import Consolidation, Held, Policy, Reflection
from edenmem.store.sqlite.core.codec import fixed_column, to_list, to_ms
from edenmem.store.sqlite.core.part import json_array
from edenmem.text import word_count


def insert_reflection(connection: sqlite3.Connection, new: Reflection, scope_id: int) -> None:
    """Insert a reflection with an unused ID."""
    connection.execute(
        "INSERT INTO reflections (id, scope_id, content, formed_at, session_id,"
        " source_message_ids, version, updated_at, absorbed, absorbed_at, consolidated_into,"
        " private, formation_id, propagated_from, related_users, place, said_at, unconfirmed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.id,
            scope_id,
            new.content,
            to_ms(new.formed_at),
            new.session_id,
            to_list(new.source_message_ids),
            new.version,
            to_ms(new.updated_at),
            new.absorbed,
            to_ms(new.absorbed_at),
            new.consolidated_into,
            new.private,
            new.formation_id,
            to_list(new.propagated_from),
            to_list(new.related_users),
            new.place,
            to_ms(new.said_at),
            new.unconfirmed,
        ),
    )


def update_reflection(connection: sqlite3.Connection, new: Reflection) -> None:
    """Update the mutable fields of a reflection."""
    connection.execute(
        "UPDATE reflections SET content = ?, version = ?, updated_at = ?, absorbed = ?,"
        " absorbed_at = ?, consolidated_into = ?, private = ? WHERE id = ?",
        (
            new.content,
            new.version,
            to_ms(new.updated_at),
            new.absorbed,
            to_ms(new.absorbed_at),
            new.consolidated_into,
            new.private,
            new.id,
        ),
    )


def insert_held(connection: sqlite3.Connection, new: Held, scope_id: int) -> None:
    """Insert a held item with an unused ID."""
    connection.execute(
        "INSERT INTO held (id, scope_id, kind, content, quote, reasons, source_message_ids,"
        " private, formation_id, session_id, held_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.id,
            scope_id,
            new.kind,
            new.content,
            new.quote,
            new.reasons,
            to_list(new.source_message_ids),
            new.private,
            new.formation_id,
            new.session_id,
            to_ms(new.held_at),
        ),
    )


def put_text(connection: sqlite3.Connection, new: Consolidation, scope_id: int) -> None:
    """Insert or replace the text of a scope."""
    unpropagated = new.unpropagated_versions
    connection.execute(
        "INSERT INTO consolidations (scope_id, id, content, words, version, word_limit,"
        " absorbed_ids, last_consolidated_at, updated_at, unpropagated, fixed)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope_id) DO UPDATE SET"
        " content = excluded.content, words = excluded.words, version = excluded.version,"
        " word_limit = excluded.word_limit, absorbed_ids = excluded.absorbed_ids,"
        " last_consolidated_at = excluded.last_consolidated_at, updated_at = excluded.updated_at,"
        " unpropagated = excluded.unpropagated, fixed = excluded.fixed,"
        " failed_drafts = NULL",
        (
            scope_id,
            new.id,
            new.consolidated_content,
            word_count(new.consolidated_content),
            new.version,
            new.word_limit,
            to_list(new.absorbed_ids),
            to_ms(new.last_consolidated_at),
            to_ms(new.updated_at),
            json_array(unpropagated) if unpropagated else None,
            fixed_column(new),
        ),
    )


def put_policy(connection: sqlite3.Connection, policy: Policy, scope_id: int) -> None:
    """Insert or replace the policy of a scope.

    Raises:
        ConflictError: the policy of another scope has this ID.
    """
    taken = connection.execute(
        "SELECT 1 FROM policies WHERE id = ? AND scope_id <> ?", (policy.id, scope_id)
    ).fetchone()
    if taken is not None:
        raise ConflictError(f"the policy of another scope has this ID: {policy.id}")
    connection.execute(
        "INSERT INTO policies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (scope_id) DO UPDATE SET id = excluded.id,"
        " memory_instructions = excluded.memory_instructions,"
        " consolidation_instructions = excluded.consolidation_instructions,"
        " consolidate_at = excluded.consolidate_at, word_limit = excluded.word_limit,"
        " fact_buffer_max = excluded.fact_buffer_max, fast_model = excluded.fast_model,"
        " slow_model = excluded.slow_model, active = excluded.active, private = excluded.private,"
        " propagate = excluded.propagate, version = excluded.version,"
        " updated_at = excluded.updated_at, orders = excluded.orders",
        (scope_id, *_policy_columns(policy)),
    )


def _policy_columns(policy: Policy) -> tuple[Any, ...]:
    return (
        policy.id,
        policy.memory_instructions,
        policy.consolidation_instructions,
        policy.consolidate_at,
        policy.word_limit,
        policy.fact_buffer_max,
        policy.fast_model,
        policy.slow_model,
        policy.active,
        policy.private,
        policy.propagate,
        policy.version,
        to_ms(policy.updated_at),
        policy.orders,
    )
