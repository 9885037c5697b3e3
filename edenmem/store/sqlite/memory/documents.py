"""The rows of reflections, held items, consolidated texts and policies."""

# ruff: noqa: S608 - statements are built from constants only; values are bound.

from __future__ import annotations

import sqlite3

from edenmem.errors import ConflictError
from edenmem.models.memory import Consolidation, Held, Policy, Reflection
from edenmem.store.sqlite.core.codec import HELD_ITEMS, POLICIES, REFLECTIONS, TEXTS
from edenmem.text import word_count

_INSERT_REFLECTION = REFLECTIONS.insert("scope_id")
_CHANGED = (
    "content",
    "version",
    "updated_at",
    "absorbed",
    "absorbed_at",
    "consolidated_into",
    "private",
    "unconfirmed",
)
_UPDATE_REFLECTION = f"UPDATE reflections SET {REFLECTIONS.assign(*_CHANGED)} WHERE id = ?"
_changed_values = REFLECTIONS.encoder(*_CHANGED, "id")
_INSERT_HELD = HELD_ITEMS.insert("scope_id")
_PUT_TEXT = TEXTS.insert("words", "scope_id", replace="scope_id", keep=("id",))
_PUT_POLICY = POLICIES.insert("scope_id", replace="scope_id")


def insert_reflection(connection: sqlite3.Connection, new: Reflection, scope_id: int) -> None:
    """Insert a reflection with an unused ID."""
    connection.execute(_INSERT_REFLECTION, (*REFLECTIONS.values(new), scope_id))


def update_reflection(connection: sqlite3.Connection, new: Reflection) -> None:
    """Update the mutable fields of a reflection."""
    connection.execute(_UPDATE_REFLECTION, _changed_values(new))


def insert_held(connection: sqlite3.Connection, new: Held, scope_id: int) -> None:
    """Insert a held item with an unused ID."""
    connection.execute(_INSERT_HELD, (*HELD_ITEMS.values(new), scope_id))


def put_text(connection: sqlite3.Connection, new: Consolidation, scope_id: int) -> None:
    """Insert or replace the text of a scope; its failed drafts are dropped."""
    words = word_count(new.consolidated_content)
    connection.execute(f"{_PUT_TEXT}, failed_drafts = NULL", (*TEXTS.values(new), words, scope_id))


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
    connection.execute(_PUT_POLICY, (*POLICIES.values(policy), scope_id))
